"""The command line and environment of each instance's server, and what in them contradicts the rig or itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import yaml

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.engines import CommandLine, has_own_network
from llamaherd.engines.flags.access import is_keyed, is_local
from llamaherd.engines.flags.advice import OPEN
from llamaherd.engines.flags.conflicts import BAD_BUILD, CUT_BATCH, NO_EFFECT, NOT_REUSED, find_conflicts, known_faults
from llamaherd.engines.flags.definitions import Flag
from llamaherd.engines.flags.effective import Conflict, EffectiveOptions, Option, ServerContext
from llamaherd.engines.flags.keys import keys_from_arguments, managed_flags, wired_flags, written_flags
from llamaherd.engines.flags.placement import CUDA_ORDER
from llamaherd.engines.flags.task import SHORT_INPUTS, header_pooling
from llamaherd.gguf.header import WITHOUT_CACHE
from llamaherd.inventory.schema import Instance


def as_keys(words: Iterable[str], kind: str) -> str:
    """Return the keys for the same settings, each between backquotes; an empty string without one."""
    keys = keys_from_arguments(words, kind).keys
    return ", ".join(f"`{key}: {_flow(value)}`" for key, value in keys.items())


def _flow(value: Any) -> str:
    """Format a value on one line. `on` and `off` are words in an inventory."""
    if value in ("on", "off"):
        return str(value)
    flow = True if isinstance(value, list | dict) else None
    return yaml.safe_dump(value, default_flow_style=flow, width=1e9, sort_keys=False).removesuffix("\n...\n").strip()


@dataclass(frozen=True)
class ServerCommand:
    """The command line and environment of one instance's server, and which part of it comes from keys."""

    subject: RigContext
    name: str
    instance: Instance
    options: EffectiveOptions
    keys: int
    """How many arguments are from keys; those of `extra_args` follow."""

    def key(self, option: Option) -> str | None:
        """Return the key that an option comes from; None for an option of `extra_args` or `environment`."""
        if option.origin == "environment" or option.index >= self.keys:
            return None
        return self._written.get(option.flag)

    @cached_property
    def _written(self) -> Mapping[Flag, str]:
        return self._of_catalogue(written_flags(self.options.catalogue.kind))

    @cached_property
    def keys_of(self) -> Mapping[Flag, str]:
        """The keys by the flags that carry them with any value."""
        return self._of_catalogue(managed_flags(self.options.catalogue.kind))

    @cached_property
    def wiring(self) -> Mapping[Flag, str]:
        """The reasons why flags in `extra_args` break the rig."""
        return self._of_catalogue({**wired_flags(self.options.catalogue.kind), **WIRING})

    def _of_catalogue(self, keys: Mapping[str, str]) -> Mapping[Flag, str]:
        found = ((self.options.catalogue.find(name), key) for name, key in keys.items())
        return {flag: key for flag, key in reversed(tuple(found)) if flag}  # of two names of one flag, the first counts

    def place(self, option: Option) -> Place:
        """Return where an option is written."""
        where, document = ("instances", self.name), self.subject.document
        if option.origin == "environment":
            name = option.words[0].partition("=")[0]
            return document.key((*where, "environment", name))
        if key := self.key(option):
            return document.value((*where, key))
        return document.word((*where, "extra_args"), self.instance.extra_args, option.index - self.keys)


def server_command(subject: RigContext, name: str, command: CommandLine) -> ServerCommand:
    """Return the whole command line and environment of an instance's server."""
    return ServerCommand(subject, name, subject.rig.instances[name], command.effective, command.keys)


WIRING: Mapping[str, str] = {
    "--model-url": "`model` sets the model",
    "--hf-file": "`model` sets the model",
    "--docker-repo": "`model` sets the model",
    "--uds": "`listen` sets the address",
    "--api-prefix": "llamaherd requests its health without a prefix",
    "--ssl-key-file": "llamaherd requests its health by plain HTTP",
    "--ssl-cert-file": "llamaherd requests its health by plain HTTP",
    "--ssl-keyfile": "llamaherd requests its health by plain HTTP",
    "--ssl-certfile": "llamaherd requests its health by plain HTTP",
    "--root-path": "llamaherd requests its health without a prefix",
}
"""Why a flag without a key breaks the instance in `extra_args`: the rig sets the value by other means."""
VARIABLES: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "on",
    "NVIDIA_VISIBLE_DEVICES": "on",
    "CUDA_DEVICE_ORDER": "on",
    "GGML_CUDA_DEVICES": "on",
}
"""Variables that override a key."""
OUR_VARIABLES: Mapping[str, str] = {
    "LLAMAHERD_SPEC": "a run reads from it how the server was started, and another value would restart it each time",
    "XDG_CONFIG_HOME": "the engine would read a configuration from there that no check has read",
}
"""Variables that llamaherd sets itself, and what another value breaks."""


def opened_listener(each: ServerCommand) -> Iterator[Finding]:
    """Report a listener beyond the host's own addresses without a key: LH022 reports the same of `listen`."""
    host = each.options.get("--host")
    engine = each.subject.rig.engines[each.instance.engine]
    if host is None or each.key(host) or is_local(host.value) or has_own_network(engine, each.instance):
        return
    if not is_keyed(each.options, ServerContext(keyed=each.instance.api_key is not None)):
        message = f"{host} lets every network reach the server, and it needs no key"
        key = f"`api_key: {{file: keys/{each.name}}}`"
        help_ = f"write `listen: {host.value}` with {key}, or leave it out to stay on loopback"
        yield OPEN.at(each.place(host), message, help_)


OVERRIDES = Rule(
    "LH210",
    "An argument or a variable contradicts the rig.",
    why="""
    llamaherd checks, sizes, monitors and queries what the keys of the rig declare. An argument that overrides a key
    makes all of that wrong. A variable that an argument overrides has no effect.
    """,
    example="""
    instances:
      coder: {extra_args: [--port, "9000"]}
    """,
    fix="write the key of the help line, or leave it out.",
)


def find_key_conflicts(each: ServerCommand) -> Iterator[Finding]:
    """Report arguments and variables that contradict a key, or break what llamaherd sets up."""
    by_key = {option.flag: option for option in each.options.said if each.key(option)}
    for option in each.options.said:
        if each.key(option) or not option.on:
            continue
        ours, key = by_key.get(option.flag), each.keys_of.get(option.flag)
        if ours and not option.flag.repeats:
            key = each.key(ours)
        reason = each.wiring.get(option.flag)
        if option.origin == "environment" and each.options.catalogue.env == "above":
            continue  # a variable that overrides the command line is an error by itself
        if option.origin == "environment" and ours:
            message = f"{option} does nothing: llamaherd passes `{' '.join(ours.words)}`, which overrides it"
            yield OVERRIDES.at(each.place(option), message, _instead(each, option, key))
        elif (ours and ours.values == option.values) or _is_open(each, option):
            continue
        elif reason or (key in each.instance.model_fields_set and (ours or key == "experts_on_cpu")):
            beside = f"`{key}`" if ours else "the rig"
            message = f"{option} contradicts {beside}" + (f": {reason}" if reason else "")
            yield OVERRIDES.at(each.place(option), message, _instead(each, option, key))


def _instead(each: ServerCommand, option: Option, key: str | None) -> str:
    """Return the key for the same setting, with the value if it can be derived."""
    if option.origin == "argument" and (written := as_keys(option.words, each.options.catalogue.kind)):
        if written == f"`{key}: {getattr(each.instance, key or '', None)}`":
            return f"leave it out: {written} sets it"
        return f"write {written} as a key of the instance"
    return f"leave it out; `{key}` is the key for it" if key else "leave it out"


def _is_open(each: ServerCommand, option: Option) -> bool:
    """Return whether another finding reports that the option opens the server."""
    return option == each.options.get("--host") and any(True for _ in opened_listener(each))


def find_reserved_variables(each: ServerCommand) -> Iterator[Finding]:
    """Report GPUs that are chosen without the rig, and variables that llamaherd sets itself."""
    for name, why in OUR_VARIABLES.items():
        if name in each.instance.environment:
            place = each.subject.document.key(("instances", each.name, "environment", name))
            yield OVERRIDES.at(place, f"llamaherd sets `{name}` itself: {why}", "leave it out")
    for name, key in VARIABLES.items():
        value = each.instance.environment.get(name)
        if value is None or (name, value) == ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"):
            continue
        place = each.subject.document.key(("instances", each.name, "environment", name))
        message = f"`{name}={value}` chooses other GPUs than `{key}` does"
        yield OVERRIDES.at(place, message, f"leave it out, and name the GPUs in `{key}`")


REPORTED_FOR_KEYS = frozenset((CUT_BATCH, NOT_REUSED, BAD_BUILD, SHORT_INPUTS))
"""Rules that no other check applies to keys alone."""

ConflictingCommand = tuple[ServerCommand, tuple[Conflict, ...]]
"""A server's whole command line, and what in it contradicts each other."""


def check_conflicts(servers: Iterable[ConflictingCommand]) -> Iterator[Finding]:
    """Report arguments and variables that contradict each other, the keys, or the rig."""
    for each, found in servers:
        yield from opened_listener(each)
        yield from find_key_conflicts(each)
        yield from find_reserved_variables(each)
        for clash in found:
            if finding := _conflict_finding(each, clash):
                yield finding


def conflict_sources(servers: Iterable[ConflictingCommand]) -> frozenset[Place]:
    """Return where everything is written that contradicts something: advice to use a key would not help there."""
    return frozenset(
        each.place(option)
        for each, found in servers
        for clash in found
        for option in clash.options
        if each.key(option) is None
    )


def conflicting_commands(subject: RigContext) -> Iterator[ConflictingCommand]:
    """Yield each server with arguments or variables of its own, and the contradictions among them."""
    for name, instance in subject.rig.instances.items():
        command = subject.facts.instances[name].command
        keys = instance.ubatch or instance.cache_reuse or instance.serve != "chat"
        plain = not (instance.extra_args or instance.environment or keys)
        if command is not None and (known_faults(command.effective.catalogue) or not plain):
            each = server_command(subject, name, command)
            yield each, tuple(find_conflicts(each.options, _context(each)))


def _context(each: ServerCommand) -> ServerContext:
    """Return what rig and header decide about a server."""
    instance, header = each.instance, each.subject.headers.get(each.instance.model)
    published = has_own_network(each.subject.rig.engines[instance.engine], instance)
    known = ServerContext(
        cards=len(instance.on),
        cores=each.subject.rig.host.cpu.cores,
        # If Docker publishes the port, the address inside has no effect.
        reachable=not instance.loopback if published else None,
        keyed=instance.api_key is not None,
        experts_moved=instance.moves_experts,
    )
    if header is None:
        return known
    cached = header.architecture not in WITHOUT_CACHE
    return replace(
        known,
        tensors=tuple(tensor.name for tensor in header.each),
        # A cache can be moved with one position for each token and no state (src/llama-kv-cache.cpp:1208).
        shifts=not any(key.startswith("ssm.") or key == "rope.dimension_sections" for key in header.parameters),
        # How long an input may be (llama.cpp b11434, src/llama-model.cpp:1322-1328).
        trained=header.number("context_length") or None,
        pools=header_pooling(header),
        causal=cached and bool(header.number("attention.causal", 1)),
        cached=cached,
    )


def _conflict_finding(each: ServerCommand, clash: Conflict) -> Finding | None:
    """Return a conflict as a finding; None if keys alone cause it, because other checks report these."""
    own = next((option for option in clash.options if each.key(option) is None), None)
    if (own is None and clash.rule not in REPORTED_FOR_KEYS) or clash.rule is CUDA_ORDER:
        return None  # `on` sets which GPUs there are
    if clash.rule is NO_EFFECT and own and own.origin == "environment" and each.key(clash.options[-1]):
        return None  # reported as a contradiction of a key
    message, help_ = clash.message, clash.help
    for flag, name in (("--batch-size", "batch"), ("--ubatch-size", "ubatch")):
        option = each.options.get(flag)
        if option is None or each.key(option):
            help_ = re.sub(rf"`{flag} (\d+)`", rf"`{name}: \1`", help_)
    for option in clash.options:
        if key := each.key(option):
            if key not in each.instance.model_fields_set or key == "model":
                help_ = help_.replace(f", or {option}", "")
                key = " ".join(option.words)
            message, help_ = (text.replace(str(option), f"`{key}`") for text in (message, help_))
    return clash.rule.at(each.place(own or clash.options[0]), message, help_, clash.unusual)
