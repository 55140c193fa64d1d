"""Each instance's arguments and environment as its server gets them: what in them contradicts each other or the rig."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypedDict

from llamaherd.checks.against_keys import contradicted, opened, own_variables
from llamaherd.checks.context import RigContext
from llamaherd.checks.whole import Whole, whole
from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.engines import flags_of, has_own_network
from llamaherd.engines.flags.clash import Around, Clash
from llamaherd.engines.flags.faults import BAD_BUILD, faulty
from llamaherd.engines.flags.idle import IDLE_BESIDE
from llamaherd.engines.flags.together import CUT_BATCH, NOT_REUSED, clashes
from llamaherd.engines.flags.visible import CUDA_ORDER
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Instance, Rig
from llamaherd.memory.encoders import WITHOUT_CACHE

AS_KEYS_SAY = frozenset((CUT_BATCH, NOT_REUSED, BAD_BUILD))
"""Rules that no other check holds against keys alone."""

_POOLING = ("none", "mean", "cls", "last", "rank")
"""Types of pooling by their numbers in headers (llama.cpp b11434, include/llama.h)."""

Clashing = tuple[Whole, tuple[Clash, ...]]
"""A server's whole command line, and what in it contradicts each other."""


def together(servers: Iterable[Clashing]) -> Iterator[Finding]:
    """Arguments and variables that contradict each other, the keys, or the rig."""
    for each, found in servers:
        yield from opened(each)
        yield from contradicted(each)
        yield from own_variables(each)
        for clash in found:
            if finding := _said(each, clash):
                yield finding


def blamed(servers: Iterable[Clashing]) -> frozenset[Place]:
    """Where everything is written that contradicts something: advice to say it by a key would be no help there."""
    return frozenset(
        each.place(option)
        for each, found in servers
        for clash in found
        for option in clash.options
        if each.key(option) is None
    )


def clashing(subject: RigContext) -> Iterator[Clashing]:
    """What the servers are told that are told more than most, and where it contradicts itself."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        known = flags_of(engine) if engine else None
        plain = not (instance.extra_args or instance.environment or instance.ubatch or instance.cache_reuse)
        if known is not None and (faulty(known) or not plain):
            each = whole(subject, name, instance, known)
            yield each, tuple(clashes(each.told, _around_of(each)))


def _around_of(each: Whole) -> Around:
    return _around(each.subject.rig, each.instance, each.subject.headers.get(each.instance.model))


def _around(rig: Rig, instance: Instance, header: Header | None) -> Around:
    return Around(
        cards=len(instance.on),
        cores=rig.host.cpu.cores,
        # Docker publishes the port, where it does: then the address inside says nothing.
        reachable=not instance.loopback if has_own_network(rig.engines[instance.engine], instance) else None,
        keyed=instance.api_key is not None,
        tensors=tuple(tensor.name for tensor in header.each) if header else (),
        shifts=_shifts(header) if header else None,
        **(_embedding(header) if header else {}),
        experts_moved=instance.moves_experts,
    )


class _Embedding(TypedDict, total=False):
    """What a model's header says of it as one for embeddings."""

    trained: int | None
    pools: str | None
    causal: bool
    cached: bool


def _embedding(header: Header) -> _Embedding:
    """Return what decides how long an input may be (llama.cpp b11434, src/llama-model.cpp:1322-1328)."""
    named = header.number("pooling_type", -1)
    return {
        "trained": header.number("context_length") or None,
        "pools": _POOLING[named] if 0 <= named < len(_POOLING) else "none",
        "causal": header.architecture not in WITHOUT_CACHE and bool(header.number("attention.causal", 1)),
        "cached": header.architecture not in WITHOUT_CACHE,
    }


def _shifts(header: Header) -> bool:
    """Whether a cache has one position for each token and no state (llama.cpp b11434, src/llama-kv-cache.cpp:1208)."""
    return not any(key.startswith("ssm.") or key == "rope.dimension_sections" for key in header.parameters)


def _said(each: Whole, clash: Clash) -> Finding | None:
    """A clash as a finding; None where keys alone are to blame, which other checks say."""
    own = next((option for option in clash.options if each.key(option) is None), None)
    if (own is None and clash.rule not in AS_KEYS_SAY) or clash.rule is CUDA_ORDER:
        return None  # which GPUs there are, `on` says
    if clash.rule is IDLE_BESIDE and own and own.origin == "environment" and each.key(clash.options[-1]):
        return None  # said as what contradicts a key
    message, help_ = clash.message, clash.help
    for flag, name in (("--batch-size", "batch"), ("--ubatch-size", "ubatch")):
        option = each.told.get(flag)
        if option is None or each.key(option):
            help_ = re.sub(rf"`{flag} (\d+)`", rf"`{name}: \1`", help_)
    for option in clash.options:
        if key := each.key(option):
            if key not in each.instance.model_fields_set or key == "model":
                help_ = help_.replace(f", or {option}", "")
                key = " ".join(option.words)
            message, help_ = (text.replace(str(option), f"`{key}`") for text in (message, help_))
    return clash.rule.at(each.place(own or clash.options[0]), message, help_, clash.unusual)
