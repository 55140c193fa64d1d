"""Checks of flags that an engine accepts, but that fail later, are unsafe, or have a better spelling."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence

from llamaherd.diagnostics.findings import Rule
from llamaherd.engines.flags.definitions import Catalogue, Flag, Problem
from llamaherd.engines.flags.translations import spell_way
from llamaherd.reference import releases

SECRET_FLAGS = {
    "--api-key": "set `api_key` to the place of the key: the server then reads it from a file",
    "--hf-token": "declare the model under `models`: llamaherd fetches it and keeps the token to itself",
}
DOWNLOADING = ("--hf-repo", "--hf-file", "--model-url", "--docker-repo", "--mmproj-url", "--spec-draft-hf")
PRESET = re.compile(r"--(?:embd|fim|gpt-oss|vision)-[\w.-]+")
EVERYWHERE = ("0.0.0.0", "::", "[::]", "*")
NO_SPLIT_BUFFERS = 9890
"""llama.cpp builds from here on refuse `--split-mode row` on CUDA: #25884 names it, and #27465 shows the error."""


IDLE_FLAG = Rule(
    "LH112",
    "A flag has no effect.",
    why="The engine accepts it and ignores it, or ignores it because of another flag.",
    example="""
    instances:
      coder: {extra_args: [--defrag-thold, "0.1"]}
    """,
    fix="leave it out.",
    severity="warning",
)


DEPRECATED = Rule(
    "LH114",
    "A flag or value still works and will be removed.",
    example="""
    instances:
      coder: {extra_args: [--chat-template-kwargs, '{"enable_thinking": false}']}
    """,
    fix="write the new spelling, or the key of the inventory: here `thinking: false`.",
    severity="warning",
)


SECRET = Rule(
    "LH115",
    "A secret is among the arguments, where every user of the host can read it.",
    why="""
    `ps` shows arguments, and so do units, plans and this repository. In a recipe it is a note: a key there is its
    owner's.
    """,
    example="""
    instances:
      coder: {extra_args: [--api-key, sk-123456]}
    """,
    fix="write `api_key: {file: PATH}` or `api_key: {env: NAME}`.",
    sometimes=("note",),
)


DOWNLOADS = Rule(
    "LH117",
    "A flag makes the server fetch a model by itself.",
    why="It would be another model than the one in the lock, unchecked, and in a folder of its own.",
    example="""
    instances:
      coder: {extra_args: [-hf, unsloth/Qwen3.6-35B-A3B-MTP-GGUF]}
    """,
    after="Together with the rig's own model it is a contradiction, too (LH210).",
    fix="declare it under `models`, and name it by `model`.",
    severity="warning",
)


OPEN = Rule(
    "LH118",
    "The server listens on every network, and no key is among its arguments.",
    example="""
    instances:
      coder: {api_key: null, extra_args: [--host, 0.0.0.0]}
    """,
    fix="""
    write `listen: 0.0.0.0` with an `api_key`. With a key, `--host` among `extra_args` still contradicts `listen`
    (LH210).
    """,
)


ENDS = Rule(
    "LH119",
    "A flag makes the server print something and end.",
    example="""
    instances:
      coder: {extra_args: [--list-devices]}
    """,
    fix="leave it out.",
)


def advise(
    catalogue: Catalogue, index: int, name: str, flag: Flag, values: Sequence[str], arguments: Sequence[str]
) -> Iterator[Problem]:
    """Yield the problems of a flag that the engine accepts with these values; `arguments` are the full command line."""
    length = 1 + len(values)

    def problem(rule: Rule, message: str, way_out: str, replacement: tuple[str, ...] | None = None) -> Problem:
        return Problem(rule, index, length, message, way_out, replacement=replacement)

    if flag.ends:
        yield problem(ENDS, f"with `{name}` the server prints something and ends", "leave it out", ())
    if flag.idle:
        yield problem(IDLE_FLAG, f"`{name}` has no effect in {catalogue}", "leave it out", ())
    if flag.deprecated:
        better = _instead_of(catalogue, name)
        way_out = f"write `{shlex.join(better)}`" if better else f"{catalogue.kind} says: {flag.deprecated}"
        yield problem(DEPRECATED, f"`{name}` is deprecated in {catalogue}", way_out, better)
    for spelling, way_out in SECRET_FLAGS.items():
        if spelling in flag.spellings:
            yield problem(SECRET, f"every user of the host can read the value of `{name}`", way_out)
    if any(spelling in DOWNLOADING or PRESET.fullmatch(spelling) for spelling in flag.spellings):
        yield problem(
            DOWNLOADS,
            f"with `{name}` the server downloads what is newest when it starts, unlocked and unchecked",
            "declare the model under `models` and let llamaherd fetch it",
        )
    if "--host" in flag.spellings and _open(values, arguments):
        yield problem(
            OPEN,
            f"`{name} {values[0]}` lets every network reach the server, and no key is required",
            "set `api_key`, or listen on 127.0.0.1",
        )
    yield from (problem(*one) for one in _by_value(catalogue, name, flag, values))


def _open(hosts: Sequence[str], arguments: Sequence[str]) -> bool:
    """Return whether a server with these arguments listens on all addresses and requires no key."""
    keys = {"--api-key", "--api-key-file"} & {argument.replace("_", "-") for argument in arguments}
    return not keys and any(host in EVERYWHERE for value in hosts for host in value.split(","))


FAILS_TO_LOAD = Rule(
    "LH113",
    "A value passes the command line and fails when the model is loaded.",
    example="""
    instances:
      coder: {extra_args: [--split-mode, row]}
    """,
    fix="apply the fix of the help line.",
)


def _by_value(
    catalogue: Catalogue, name: str, flag: Flag, values: Sequence[str]
) -> Iterator[tuple[Rule, str, str, tuple[str, ...] | None]]:
    """Yield the problems of values that the engine accepts and that should not be given."""
    row = catalogue.kind == "llama.cpp" and "--split-mode" in flag.spellings and "row" in values
    if row and (releases.release_order(catalogue.version) or (NO_SPLIT_BUFFERS,)) >= (NO_SPLIT_BUFFERS,):
        message = f"`{name} row` fails on CUDA when the model is loaded: there are no split buffers any more"
        yield FAILS_TO_LOAD, message, f"write `{name} layer`", (name, "layer")
    if "--chat-template-kwargs" in flag.spellings and values:
        for key, switch in (("enable_thinking", "--reasoning"), ("preserve_reasoning", "--reasoning-preserve")):
            found = _json_object(values[0])
            if key not in found or not catalogue.knows(switch):
                continue
            on = found.pop(key) is True
            better = (switch, "on" if on else "off") if key == "enable_thinking" else _switched(switch, on)
            rest = (name, json.dumps(found)) if found else ()
            message = f"`{key}` in `{name}` is deprecated in {catalogue}"
            yield DEPRECATED, message, f"write `{shlex.join((*better, *rest))}`", (*better, *rest)


def _instead_of(catalogue: Catalogue, name: str) -> tuple[str, ...] | None:
    """Return the current spelling of a deprecated loading switch."""
    modes = {"--no-mmap": "none", "--mmap": "mmap", "--mlock": "mlock", "--direct-io": "dio", "-dio": "dio"}
    mode = modes.get(name.replace("_", "-"))
    return (spell_way(catalogue, ("--load-mode", "{}"), mode) or None) if mode else None


def _switched(switch: str, on: bool) -> tuple[str, ...]:
    return (switch if on else f"--no-{switch.removeprefix('--')}",)


def _json_object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
