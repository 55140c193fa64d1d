"""The command line and environment of each instance's server, and what in them contradicts the rig or itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict

import yaml

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.engines import has_own_network
from llamaherd.engines.command_line import CommandLine
from llamaherd.engines.flags.access import is_keyed, is_local
from llamaherd.engines.flags.advice import OPEN
from llamaherd.engines.flags.conflicts import BAD_BUILD, CUT_BATCH, NOT_REUSED, find_conflicts, known_faults
from llamaherd.engines.flags.definitions import Flag
from llamaherd.engines.flags.effective import Conflict, EffectiveOptions, Option, ServerContext
from llamaherd.engines.flags.keys import keys_from_arguments, managed_flags, wired_flags, written_flags
from llamaherd.engines.flags.no_effect import NO_EFFECT
from llamaherd.engines.flags.placement import CUDA_ORDER
from llamaherd.gguf.header import Header
from llamaherd.gguf.layers import WITHOUT_CACHE
from llamaherd.inventory.schema import Instance, Rig


def as_keys(words: Iterable[str], kind: str) -> str:
    """Return the keys that mean the same, each between backquotes; empty where there are none."""
    return ", ".join(f"`{line}`" for line in _lines(keys_from_arguments(words, kind).keys))


def _lines(keys: Mapping[str, Any]) -> list[str]:
    """Keys as one would write them: `draft: {mtp: 2}`, `flash_attention: on`."""
    return [f"{key}: {_flow(value)}" for key, value in keys.items()]


def _flow(value: Any) -> str:
    """A value on one line. `on` and `off` are words in an inventory."""
    if value in ("on", "off"):
        return str(value)
    flow = True if isinstance(value, list | dict) else None
    return yaml.safe_dump(value, default_flow_style=flow, width=1e9, sort_keys=False).removesuffix("\n...\n").strip()


@dataclass(frozen=True)
class ServerCommand:
    """What one instance's server is told, and how much of that comes from keys."""

    subject: RigContext
    name: str
    instance: Instance
    told: EffectiveOptions
    keys: int
    """How many arguments are from keys; those of `extra_args` follow."""

    def key(self, option: Option) -> str | None:
        """The key that an option comes from; None for what is written word for word."""
        if option.origin == "environment" or option.index >= self.keys:
            return None
        return self._written.get(option.flag)

    @cached_property
    def _written(self) -> Mapping[Flag, str]:
        return self._of_catalogue(written_flags(self.told.catalogue.kind))

    @cached_property
    def keys_of(self) -> Mapping[Flag, str]:
        """The keys by the flags that carry them with any value."""
        return self._of_catalogue(managed_flags(self.told.catalogue.kind))

    @cached_property
    def wiring(self) -> Mapping[Flag, str]:
        """The reasons why flags in `extra_args` break the rig."""
        return self._of_catalogue({**wired_flags(self.told.catalogue.kind), **WIRING})

    def _of_catalogue(self, keys: Mapping[str, str]) -> Mapping[Flag, str]:
        found = ((self.told.catalogue.find(name), key) for name, key in keys.items())
        return {flag: key for flag, key in reversed(tuple(found)) if flag}  # of two names of one flag, the first counts

    def place(self, option: Option) -> Place:
        """Where an option is written."""
        where, document = ("instances", self.name), self.subject.document
        if option.origin == "environment":
            name = option.words[0].partition("=")[0]
            return document.key((*where, "environment", name))
        if key := self.key(option):
            return document.value((*where, key))
        return document.word((*where, "extra_args"), self.instance.extra_args, option.index - self.keys)


def server_command(subject: RigContext, name: str, command: CommandLine) -> ServerCommand:
    """Return the whole command line and environment of an instance's server."""
    return ServerCommand(subject, name, subject.rig.instances[name], command.meant, command.keys)


WIRING: Mapping[str, str] = {
    "--model-url": "the model is what `model` names",
    "--hf-file": "the model is what `model` names",
    "--docker-repo": "the model is what `model` names",
    "--uds": "where it listens is what `listen` says",
    "--api-prefix": "llamaherd asks for its health without a prefix",
    "--ssl-key-file": "llamaherd asks for its health by plain HTTP",
    "--ssl-cert-file": "llamaherd asks for its health by plain HTTP",
    "--ssl-keyfile": "llamaherd asks for its health by plain HTTP",
    "--ssl-certfile": "llamaherd asks for its health by plain HTTP",
    "--root-path": "llamaherd asks for its health without a prefix",
}
"""What flags without a key break in `extra_args`: the rig says it by other means."""
VARIABLES: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "on",
    "NVIDIA_VISIBLE_DEVICES": "on",
    "CUDA_DEVICE_ORDER": "on",
    "GGML_CUDA_DEVICES": "on",
}
"""Variables that decide what a key says."""
OUR_VARIABLES: Mapping[str, str] = {
    "LLAMAHERD_SPEC": "by it a run knows what the server was started as, and would start it anew each time",
    "XDG_CONFIG_HOME": "there the engine would look for a configuration that no rule has read",
}
"""Variables that llamaherd sets itself, and what another value breaks."""


def opened_listener(each: ServerCommand) -> Iterator[Finding]:
    """A listener beyond the host's own addresses that no key opens: LH022 says so of `listen`."""
    host = each.told.get("--host")
    engine = each.subject.rig.engines[each.instance.engine]
    if host is None or each.key(host) or is_local(host.value) or has_own_network(engine, each.instance):
        return
    if not is_keyed(each.told, ServerContext(keyed=each.instance.api_key is not None)):
        message = f"{host} lets every network reach the server, and no key is asked for"
        key = f"`api_key: {{file: keys/{each.name}}}`"
        help_ = f"write `listen: {host.value}` with {key}, or leave it out to stay on loopback"
        yield OPEN.at(each.place(host), message, help_)


OVERRIDES = Rule(
    "LH210",
    "An argument or a variable says something else than the rig does.",
    why="""
    llamaherd checks, sizes, watches and asks what the rig says by keys. An argument that beats a key makes all of
    that untrue. A variable that an argument beats does nothing.
    """,
    example="""
    instances:
      coder: {extra_args: [--port, "9000"]}
    """,
    way_out="write the key of the help line, or leave it out.",
)


def find_key_conflicts(each: ServerCommand) -> Iterator[Finding]:
    """What says something else than a key does, or breaks what llamaherd wires up."""
    by_key = {option.flag: option for option in each.told.said if each.key(option)}
    for option in each.told.said:
        if each.key(option) or not option.on:
            continue
        ours, key = by_key.get(option.flag), each.keys_of.get(option.flag)
        if ours and not option.flag.repeats:
            key = each.key(ours)
        reason = each.wiring.get(option.flag)
        if option.origin == "environment" and each.told.catalogue.env == "above":
            continue  # a variable that beats the command line is an error by itself
        if option.origin == "environment" and ours:
            message = f"{option} does nothing: llamaherd passes `{' '.join(ours.words)}`, which beats it"
            yield OVERRIDES.at(each.place(option), message, _instead(each, option, key))
        elif (ours and ours.values == option.values) or _is_open(each, option):
            continue
        elif reason or (key in each.instance.model_fields_set and (ours or key == "experts_on_cpu")):
            beside = f"`{key}`" if ours else "the rig"
            message = f"{option} says something else than {beside} does" + (f": {reason}" if reason else "")
            yield OVERRIDES.at(each.place(option), message, _instead(each, option, key))


def _instead(each: ServerCommand, option: Option, key: str | None) -> str:
    """The key that says it, with the value where it can be told."""
    if option.origin == "argument" and (written := as_keys(option.words, each.told.catalogue.kind)):
        if written == f"`{key}: {getattr(each.instance, key or '', None)}`":
            return f"leave it out: {written} says it"
        return f"write {written} as a key of the instance"
    return f"leave it out; `{key}` is the key that says it" if key else "leave it out"


def _is_open(each: ServerCommand, option: Option) -> bool:
    """Whether it is said already that it opens the server."""
    return option == each.told.get("--host") and any(True for _ in opened_listener(each))


def find_reserved_variables(each: ServerCommand) -> Iterator[Finding]:
    """GPUs chosen behind the rig's back, and what servers are told by us."""
    for name, why in OUR_VARIABLES.items():
        if name in each.instance.environment:
            place = each.subject.document.key(("instances", each.name, "environment", name))
            yield OVERRIDES.at(place, f"llamaherd sets `{name}` itself: {why}", "leave it out")
    for name, key in VARIABLES.items():
        value = each.instance.environment.get(name)
        if value is None or (name, value) == ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"):
            continue
        place = each.subject.document.key(("instances", each.name, "environment", name))
        message = f"`{name}={value}` chooses other GPUs than `{key}` does, behind the rig's back"
        yield OVERRIDES.at(place, message, f"leave it out, and name the GPUs in `{key}`")


REPORTED_FOR_KEYS = frozenset((CUT_BATCH, NOT_REUSED, BAD_BUILD))
"""Rules that no other check holds against keys alone."""

_POOLING = ("none", "mean", "cls", "last", "rank")
"""Types of pooling by their numbers in headers (llama.cpp b11434, include/llama.h)."""

ConflictingCommand = tuple[ServerCommand, tuple[Conflict, ...]]
"""A server's whole command line, and what in it contradicts each other."""


def check_conflicts(servers: Iterable[ConflictingCommand]) -> Iterator[Finding]:
    """Arguments and variables that contradict each other, the keys, or the rig."""
    for each, found in servers:
        yield from opened_listener(each)
        yield from find_key_conflicts(each)
        yield from find_reserved_variables(each)
        for clash in found:
            if finding := _said(each, clash):
                yield finding


def conflict_sources(servers: Iterable[ConflictingCommand]) -> frozenset[Place]:
    """Where everything is written that contradicts something: advice to say it by a key would be no help there."""
    return frozenset(
        each.place(option)
        for each, found in servers
        for clash in found
        for option in clash.options
        if each.key(option) is None
    )


def conflicting_commands(subject: RigContext) -> Iterator[ConflictingCommand]:
    """What the servers are told that are told more than most, and where it contradicts itself."""
    for name, instance in subject.rig.instances.items():
        command = subject.facts.instances[name].command
        plain = not (instance.extra_args or instance.environment or instance.ubatch or instance.cache_reuse)
        if command is not None and (known_faults(command.meant.catalogue) or not plain):
            each = server_command(subject, name, command)
            yield each, tuple(find_conflicts(each.told, _around_of(each)))


def _around_of(each: ServerCommand) -> ServerContext:
    return _around(each.subject.rig, each.instance, each.subject.headers.get(each.instance.model))


def _around(rig: Rig, instance: Instance, header: Header | None) -> ServerContext:
    return ServerContext(
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


def _said(each: ServerCommand, clash: Conflict) -> Finding | None:
    """A clash as a finding; None where keys alone are to blame, which other checks say."""
    own = next((option for option in clash.options if each.key(option) is None), None)
    if (own is None and clash.rule not in REPORTED_FOR_KEYS) or clash.rule is CUDA_ORDER:
        return None  # which GPUs there are, `on` says
    if clash.rule is NO_EFFECT and own and own.origin == "environment" and each.key(clash.options[-1]):
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
