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
from llamaherd.checks.suggestions import as_written
from llamaherd.diagnostics.findings import Edit, Finding, Rule
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
from llamaherd.inventory.exact_edits import key_edit, value_edit
from llamaherd.inventory.schema.software import cmake_value
from llamaherd.inventory.yaml_file import Document, Path_
from llamaherd.text.quoting import yaml_value


def check_command_line(subject: RigContext) -> Iterator[Finding]:
    """Check `extra_args` and `environment` of every instance, each argument by itself and all that the server gets
    together.
    """
    each = tuple(_each(subject))
    wrong = {finding.place for finding in each if finding.severity == "error"}
    servers = tuple(conflicting_commands(subject))
    found = tuple(check_conflicts(servers))
    # A problem with a value stays the same if a key sets it: `-t 64` on 16 cores.
    wrong |= {one.place for one in found if one.code == TOO_MANY_THREADS.code}
    contradicting = [one for one in found if one.code != OVERRIDES.code or one.place not in wrong]
    conflicting = {
        finding.place for finding in contradicting if finding.code in (OVERRIDES.code, OPEN.code)
    } | conflict_sources(servers)
    yield from contradicting
    yield from (one for one in each if one.code != MANAGED.code or one.place not in conflicting)


def _each(subject: RigContext) -> Iterator[Finding]:
    """Compare arguments and variables with the flags of the pinned version of the engine."""
    for name, instance in subject.rig.instances.items():
        known = subject.facts.instances[name].flags
        if known is None:
            continue
        problems = check_arguments(known, instance.extra_args, _others(known), managed_flags(known.kind))
        wrong = {problem.index for problem in problems if problem.rule is not MANAGED}
        for problem in problems:
            if problem.rule is OPEN:
                continue  # reported with the key as a suggestion
            if problem.rule is MANAGED and problem.index in wrong:
                continue  # another problem reports the same
            path: Path_ = ("instances", name, "extra_args")
            place = subject.document.word(path, instance.extra_args, problem.index)
            keyless = None if instance.api_key else name
            found = _by_key(problem, known.kind, instance.extra_args, keyless).at(place)
            yield replace(found, edits=_word_edits(subject.document, path, instance.extra_args, problem))
        names = tuple(instance.environment)
        for problem in check_environment(known, instance.environment):
            place = subject.document.key(("instances", name, "environment", names[problem.index]))
            yield _by_key(problem, known.kind, (), None).at(place)


def _word_edits(document: Document, path: Path_, words: tuple[str, ...], problem: Problem) -> tuple[Edit, ...]:
    """Return the edits that write the replacement of arguments, word for word; none if their number differs."""
    if problem.replacement is None or len(problem.replacement) != problem.length:
        return ()
    edits: tuple[Edit, ...] = ()
    for index, new in enumerate(problem.replacement, start=problem.index):
        if new != words[index]:
            edit = value_edit(document, (*path, index), as_written(new))
            if not edit:
                return ()
            edits += edit
    return edits


def check_abilities(subject: RigContext) -> Iterator[Finding]:
    """Report keys for which the pinned version of an engine has no flag, or a flag that supports less."""
    for name in subject.rig.instances:
        command = subject.facts.instances[name].command
        if command is None:
            continue
        known = command.effective.catalogue
        by_key = [(key, word) for key, words in _parts(known, command.arguments[: command.keys]) for word in words]
        for problem in check_arguments(known, [word for _, word in by_key]):
            if problem.severity == "error":
                key = by_key[problem.index][0]
                message = f"{known.kind} {known.version} does not support `{key}` with this value: {problem.message}"
                place = subject.document.value(("instances", name, key))
                yield CANNOT_DO.at(place, message, f"take a newer version, or leave `{key}` out")


def _parts(known: Catalogue, arguments: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield flags with their values, of the keys that no other check compares with the version."""
    written, limited = written_flags(known.kind), limited_flags(known.kind)
    starts = [index for index, word in enumerate(arguments) if known.find(word) or word in written]
    for start, end in pairwise([*starts, len(arguments)]):
        if key := limited.get(arguments[start]):
            yield key, arguments[start:end]


def check_cmake_options(subject: RigContext) -> Iterator[Finding]:
    """Check the CMake options of every engine that is built."""
    for name, engine in subject.rig.engines.items():
        texts = {option: cmake_value(value) for option, value in engine.options.items()}
        names = tuple(texts)
        known = flags_of(engine)
        newer = known.requested if known.outdated else ""
        for problem in check_options(engine.kind, texts, newer=newer) if engine.source else ():
            option: Path_ = ("engines", name, "options", names[problem.index])
            new, _, value = (problem.replacement or ("",))[0].partition("=")
            edits = key_edit(subject.document, option, new) if new and value == texts[names[problem.index]] else ()
            yield replace(_as_option(problem).at(subject.document.key(option)), edits=edits)


UNKNOWN_VERSION = Rule(
    "LH175",
    "The flags of an engine's version are not in the catalogue.",
    why="""
    llamaherd then uses the flags of the newest catalogued version before it: a note. If the version is older than all
    of them, llamaherd uses the oldest; if `flags` names no version at all, the newest: both a warning. The engine
    itself is queried on the host before anything is switched.
    """,
    example="""
    engines:
      main: {ref: b4000}
    """,
    after="A flag that an instance needs and the version lacks is reported as well (LH176).",
    fix="""
    write one of the versions in the help line: [inventory.md](../inventory.md#enginesname) lists them as well.
    For llama.cpp it is a build number, for ik_llama.cpp a commit or a date.
    """,
    severity="warning",
    sometimes=("note",),
)


def check_catalogue_versions(subject: RigContext) -> Iterator[Finding]:
    """Report versions that are in no catalogue, with the catalogue that is used instead."""
    for name, engine in subject.rig.engines.items():
        known, version = flags_of(engine), version_of(engine)
        if known.exact or version is None:
            continue
        exact = catalogue(engine.kind, version)
        if exact is None and not (engine.flags or (engine.source and engine.source.build_number)):
            continue  # a commit, whose version is unknown before it is locked
        key = "flags" if engine.flags else "release" if engine.release else "ref"
        versions = ", ".join(each.version for each in catalogues(engine.kind))
        fallback = "the engine itself is queried on the host before anything is switched"
        place = subject.document.value(("engines", name, key))
        if exact:
            message = (
                f"the flags of {engine.kind} {version} are not in the catalogue: those of {known.version} are used"
            )
            yield UNKNOWN_VERSION.at(place, message, f"catalogued versions: {versions}; {fallback}", "note")
            continue
        oldest = known.version == catalogues(engine.kind)[0].version
        message = f"`{version}` is not a version of {engine.kind} in the catalogue: "
        message += f"the flags of the {'oldest' if oldest else 'newest'}, {known.version}, are used"
        yield UNKNOWN_VERSION.at(place, message, f"catalogued versions: {versions}; {fallback}")


def _others(known: Catalogue) -> tuple[Catalogue, ...]:
    """Return every other catalogue, to find where a flag comes from."""
    return tuple(each for kind in TRAITS for each in catalogues(kind) if each.version != known.version)


def _by_key(problem: Problem, kind: str, arguments: tuple[str, ...], keyless: str | None) -> Problem:
    """Replace the help by the key of the inventory, if there is one. `keyless` has no API key."""
    words = arguments[problem.index : problem.index + problem.length]
    written = as_keys(problem.replacement or () if problem.rule is not MANAGED else words, kind)
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
    """Return the key that an address needs if other machines can reach it."""
    listen = re.match(r"`listen: (.+?)`", written)
    if not keyless or not listen or is_local(listen[1].strip("'")):
        return ""
    return f", together with `api_key: {{file: keys/{keyless}}}`"


def _as_option(problem: Problem) -> Problem:
    """Replace the suggestion by its form under `options`."""
    if not problem.replacement:
        return replace(problem, help=re.sub(r"`([A-Z][A-Z0-9_]*)=([^`]*)`", r"`\1: \2`", problem.help))
    name, _, value = problem.replacement[0].partition("=")
    written = f"write `{name}: {yaml_value(value)}`"
    return replace(problem, help=problem.help.replace(f"write `{problem.replacement[0]}`", written))


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
"""Folders that a server may write to; its files there are removed when it ends."""
HOMES = ("/home/", "/root/", "/run/user/")


OUT_OF_REACH = Rule(
    "LH278",
    "A server cannot reach a path.",
    why="""
    A server runs isolated: a unit with `ProtectSystem=strict`, `ProtectHome=yes` and `PrivateTmp=yes`, or a read-only
    container. It writes to its own `/tmp` alone, which is removed when it ends. A unit hides `/home`, `/root` and the
    host's `/tmp` from it. It starts in `/`, and relative paths start there.

    So saved slots never pass from one build to another, at a switch or a rollback: llama.cpp v0.4.0 and v1.0.0 do not
    load slots that builds before them saved.
    """,
    example="""
    instances:
      coder: {extra_args: [--log-file, /var/log/llama.log]}
    """,
    fix="""
    leave logs out: the journal has them. Save slots in `/tmp` (`--slot-save-path /tmp`). Put templates and adapters
    into a folder such as `/srv`.
    """,
)


def check_paths(subject: RigContext) -> Iterator[Finding]:
    """Report paths that a server cannot write to or cannot read."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        command = subject.facts.instances[name].explicit
        if command is None or not reads_gguf(engine):
            continue
        each = server_command(subject, name, command)
        contained = instance.backend == "compose"
        for option in _own(each, WRITTEN):
            if problem := _not_written(name, option, contained=contained):
                yield OUT_OF_REACH.at(each.place(option), *problem)
        for option in _own(each, READ) if not contained else ():
            if problem := _unreadable(option):
                yield OUT_OF_REACH.at(each.place(option), *problem)


def _own(each: ServerCommand, names: tuple[str, ...]) -> tuple[Option, ...]:
    """Return those of some options that come from `extra_args` or `environment`."""
    found = (option for name in names for option in each.options.every(name) if each.key(option) is None)
    return tuple(dict.fromkeys(found))


def _not_written(name: str, option: Option, *, contained: bool) -> tuple[str, str] | None:
    if f"{option.value}/".startswith(OWN):
        return None
    where = "container" if contained else "unit"
    message = f"{option}: the {where} lets its server write to `/tmp` alone, which is its own"
    if option.flag.spellings[-1] in ("--log-file", "--logdir"):
        shown = f"docker logs llama-{name}" if contained else f"journalctl -u llama-{name}"
        return message, f"leave it out: `{shown}` shows the server's log"
    return message, "name a path in `/tmp`, whose files last as long as the server runs; or leave it out"


def _unreadable(option: Option) -> tuple[str, str] | None:
    value = option.value.partition(",")[0]
    if value and not value.startswith("/"):
        return (
            f"the path of {option} starts in `/`, where the unit starts its server",
            "write the whole path, from `/` on",
        )
    for prefix in (*HOMES, *OWN):
        if f"{value}/".startswith(prefix):
            message = f"{option}: the unit hides `{prefix.rstrip('/')}` of the host from its server"
            return message, "put the file elsewhere, such as in `/srv`, where its user may read it"
    return None
