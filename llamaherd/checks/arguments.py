"""Arguments, environment and CMake options that users write for an engine: known names, versions, reachable paths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from llamaherd.checks.command_line import (
    OVERRIDES,
    ServerCommand,
    as_keys,
    check_conflicts,
    conflict_sources,
    conflicting_commands,
    server_command,
)
from llamaherd.checks.context import RigContext
from llamaherd.checks.models import CANNOT_DO
from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.engines import TRAITS, flags_of, reads_gguf, version_of
from llamaherd.engines.flags import (
    Catalogue,
    Problem,
    catalogue,
    catalogues,
    check_arguments,
    check_environment,
    check_options,
)
from llamaherd.engines.flags.access import is_local
from llamaherd.engines.flags.advice import OPEN
from llamaherd.engines.flags.arguments import EQUALS, MANAGED
from llamaherd.engines.flags.conflicts import TOO_MANY_THREADS
from llamaherd.engines.flags.effective import Option
from llamaherd.engines.flags.keys import limited_flags, managed_flags, written_flags
from llamaherd.inventory.schema.software import cmake_value
from llamaherd.text.quoting import yaml_value


def check_command_line(subject: RigContext) -> Iterator[Finding]:
    """`extra_args` and `environment` of every instance, each by itself and all that the server gets together."""
    each = tuple(_each(subject))
    wrong = {finding.place for finding in each if finding.severity == "error"}
    servers = tuple(conflicting_commands(subject))
    found = tuple(check_conflicts(servers))
    # What is wrong with a value is no better by the key: `-t 64` on 16 cores.
    wrong |= {one.place for one in found if one.code == TOO_MANY_THREADS.code}
    contradicting = [one for one in found if one.code != OVERRIDES.code or one.place not in wrong]
    said = {
        finding.place for finding in contradicting if finding.code in (OVERRIDES.code, OPEN.code)
    } | conflict_sources(servers)
    yield from contradicting
    yield from (one for one in each if one.code != MANAGED.code or one.place not in said)


def _each(subject: RigContext) -> Iterator[Finding]:
    """Arguments and variables against the flags of the pinned version of the engine."""
    for name, instance in subject.rig.instances.items():
        known = subject.facts.instances[name].flags
        if known is None:
            continue
        problems = check_arguments(known, instance.extra_args, _others(known), managed_flags(known.kind))
        wrong = {problem.index for problem in problems if problem.rule is not MANAGED}
        for problem in problems:
            if problem.rule is OPEN:
                continue  # said with the key in view
            if problem.rule is MANAGED and problem.index in wrong:
                continue  # what is wrong with it says as much
            place = subject.document.word(("instances", name, "extra_args"), instance.extra_args, problem.index)
            keyless = None if instance.api_key else name
            yield _finding(_by_key(problem, known.kind, instance.extra_args, keyless), place)
        names = tuple(instance.environment)
        for problem in check_environment(known, instance.environment):
            place = subject.document.key(("instances", name, "environment", names[problem.index]))
            yield _finding(_by_key(problem, known.kind, (), None), place)


def check_abilities(subject: RigContext) -> Iterator[Finding]:
    """Keys that the pinned version of an engine has no flag for, or another one that cannot do as much."""
    for name in subject.rig.instances:
        command = subject.facts.instances[name].command
        if command is None:
            continue
        known = command.meant.catalogue
        by_key = [(key, word) for key, words in _parts(known, command.arguments[: command.keys]) for word in words]
        for problem in check_arguments(known, [word for _, word in by_key]):
            if problem.severity == "error":
                key = by_key[problem.index][0]
                message = f"{known.kind} {known.version} cannot do what `{key}` says: {problem.message}"
                place = subject.document.value(("instances", name, key))
                yield CANNOT_DO.at(place, message, f"take a newer version, or leave `{key}` out")


def _parts(known: Catalogue, told: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Flags with their values, of those keys that no other check holds against the version."""
    written, limited = written_flags(known.kind), limited_flags(known.kind)
    starts = [index for index, word in enumerate(told) if known.find(word) or word in written]
    for start, end in pairwise([*starts, len(told)]):
        if key := limited.get(told[start]):
            yield key, told[start:end]


def check_cmake_options(subject: RigContext) -> Iterator[Finding]:
    """CMake options of every engine that is built."""
    for name, engine in subject.rig.engines.items():
        texts = {option: cmake_value(value) for option, value in engine.options.items()}
        names = tuple(texts)
        known = flags_of(engine)
        newer = known.asked if known and known.outdated else ""
        for problem in check_options(engine.kind, texts, newer=newer) if engine.source else ():
            place = subject.document.key(("engines", name, "options", names[problem.index]))
            yield _finding(_as_option(problem), place)


UNKNOWN_VERSION = Rule(
    "LH175",
    "The flags of an engine's version are not known here.",
    why="""
    llamaherd then uses those of the newest known version before it: a note. If it is older than all, it uses
    those of the oldest; if `flags` tells no version at all, those of the newest: both a warning. The engine
    itself is asked on the host before anything is switched.
    """,
    example="""
    engines:
      main: {ref: b4000}
    """,
    after="What a version lacks that an instance wants is said besides (LH176).",
    way_out="""
    write one of the versions in the help line: [inventory.md](../inventory.md#enginesname) lists them as well.
    For llama.cpp it is a build number, for ik_llama.cpp a commit or a date.
    """,
    severity="warning",
    sometimes=("note",),
)


def check_catalogue_versions(subject: RigContext) -> Iterator[Finding]:
    """Versions whose flags are not known: which ones are gone by instead."""
    for name, engine in subject.rig.engines.items():
        known, version = flags_of(engine), version_of(engine)
        if known is None or known.exact or version is None:
            continue
        exact = catalogue(engine.kind, version)
        if exact is None and not (engine.flags or (engine.source and engine.source.build_number)):
            continue  # a commit, which is not known before it is locked
        key = "flags" if engine.flags else "ref"
        told = ", ".join(each.version for each in catalogues(engine.kind))
        asked = "the engine itself is asked on the host before anything is switched"
        place = subject.document.value(("engines", name, key))
        if exact:
            message = f"the flags of {engine.kind} {version} are not known here: those of {known.version} are gone by"
            yield UNKNOWN_VERSION.at(place, message, f"known here: {told}; {asked}", "note")
            continue
        oldest = known.version == catalogues(engine.kind)[0].version
        message = f"`{version}` tells no version of {engine.kind} whose flags are known: "
        message += f"those of the {'oldest' if oldest else 'newest'}, {known.version}, are gone by"
        yield UNKNOWN_VERSION.at(place, message, f"known here: {told}; {asked}")


def _others(known: Catalogue) -> tuple[Catalogue, ...]:
    """Every other catalogue, to tell where a flag comes from."""
    return tuple(each for kind in TRAITS for each in catalogues(kind) if each.version != known.version)


def _by_key(problem: Problem, kind: str, arguments: tuple[str, ...], keyless: str | None) -> Problem:
    """The same, with a way out in the inventory's own words where it has them. `keyless` has no API key."""
    said = arguments[problem.index : problem.index + problem.length]
    written = as_keys(problem.replacement or () if problem.rule is not MANAGED else said, kind)
    if not written:
        return replace(
            problem,
            help=re.sub(
                r"give it to CMake, as `-D(\w+)=(.*?)`", r"write `options: {\1: \2}` below the engine", problem.help
            ),
        )
    if problem.rule is EQUALS and any(flag in managed_flags(kind) for flag in problem.replacement or ()):
        return replace(problem, help=f"write {written} as a key of the instance{_with_key(written, keyless)}")
    if problem.rule is MANAGED:
        return replace(problem, help=f"write {written} as a key of the instance")
    return replace(problem, help=f"{problem.help}, or without `extra_args`: {written}")


def _with_key(written: str, keyless: str | None) -> str:
    """What must stand beside an address that others reach."""
    listen = re.match(r"`listen: (.+?)`", written)
    if not keyless or not listen or is_local(listen[1].strip("'")):
        return ""
    return f", with `api_key: {{file: keys/{keyless}}}` beside it"


def _as_option(problem: Problem) -> Problem:
    """The same, with its replacement as it stands under `options`."""
    if not problem.replacement:
        return replace(problem, help=re.sub(r"`([A-Z][A-Z0-9_]*)=([^`]*)`", r"`\1: \2`", problem.help))
    name, _, value = problem.replacement[0].partition("=")
    written = f"write `{name}: {yaml_value(value)}`"
    return replace(problem, help=problem.help.replace(f"write `{problem.replacement[0]}`", written))


def _finding(problem: Problem, place: Place) -> Finding:
    return problem.at(place)


WRITTEN = (
    "--log-file",
    "--logdir",
    "--slot-save-path",
    "--log-prompts-dir",
    "--lookup-cache-dynamic",
    "--sql-save-file",
)
READ = (
    *("--chat-template-file", "--grammar-file", "--json-schema-file", "--lookup-cache-static", "--mmproj"),
    *("--lora", "--control-vector", "--model-draft", "--spec-draft-model", "--media-path", "--path"),
    *("--ui-config-file", "--mcp-servers-config", "--models-preset", "--models-dir", "--system-prompt-file"),
    *("--banned-string-file", "--context-file"),
)
OWN = ("/tmp/", "/var/tmp/")
"""Where a server may write; what it wrote there goes with it."""
HOMES = ("/home/", "/root/", "/run/user/")


OUT_OF_REACH = Rule(
    "LH278",
    "A server cannot reach a path.",
    why="""
    A server runs in a closed place: a unit with `ProtectSystem=strict`, `ProtectHome=yes` and `PrivateTmp=yes`,
    or a read-only container. It writes to its own `/tmp` alone, which is gone when it ends. A unit shows it
    nothing of `/home`, `/root` and the host's `/tmp`. It starts in `/`, and relative paths count from there.

    So saved slots never pass from one build to another, at a switch or a rollback: llama.cpp v0.4.0 and v1.0.0 do
    not load what builds before them saved.
    """,
    example="""
    instances:
      coder: {extra_args: [--log-file, /var/log/llama.log]}
    """,
    way_out="""
    leave logs out: the journal has them. Save slots in `/tmp` (`--slot-save-path /tmp`). Put templates and
    adapters into a folder such as `/srv`.
    """,
)


def check_paths(subject: RigContext) -> Iterator[Finding]:
    """What a server cannot write to, or does not see."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        command = subject.facts.instances[name].explicit
        if command is None or not reads_gguf(engine):
            continue
        each = server_command(subject, name, command)
        contained = instance.backend == "compose"
        for option in _own(each, WRITTEN):
            if said := _not_written(name, option, contained=contained):
                yield OUT_OF_REACH.at(each.place(option), *said)
        for option in _own(each, READ) if not contained else ():
            if said := _not_seen(option):
                yield OUT_OF_REACH.at(each.place(option), *said)


def _own(each: ServerCommand, names: tuple[str, ...]) -> tuple[Option, ...]:
    """Those of some options that are written word for word."""
    found = (option for name in names for option in each.told.every(name) if each.key(option) is None)
    return tuple(dict.fromkeys(found))


def _not_written(name: str, option: Option, *, contained: bool) -> tuple[str, str] | None:
    if f"{option.value}/".startswith(OWN):
        return None
    where = "container" if contained else "unit"
    message = f"{option}: the {where} lets its server write to `/tmp` alone, which is its own"
    if option.flag.spellings[-1] in ("--log-file", "--logdir"):
        shown = f"docker logs llama-{name}" if contained else f"journalctl -u llama-{name}"
        return message, f"leave it out: `{shown}` shows what the server says"
    return message, "name a path in `/tmp`, whose files last as long as the server runs; or leave it out"


def _not_seen(option: Option) -> tuple[str, str] | None:
    value = option.value.partition(",")[0]
    if value and not value.startswith("/"):
        return f"{option} is looked for in `/`, where the unit starts its server", "write the whole path, from `/` on"
    for prefix in (*HOMES, *OWN):
        if f"{value}/".startswith(prefix):
            message = f"{option}: the unit hides `{prefix.rstrip('/')}` of the host from its server"
            return message, "let the file lie elsewhere, such as in `/srv`, where its user may read it"
    return None
