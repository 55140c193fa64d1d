"""What engines take without a word and what goes wrong later, or could be said better."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence

from llamaherd.diagnostics.findings import Severity
from llamaherd.engines.flags import codes
from llamaherd.engines.flags.model import Catalogue, Flag, Problem
from llamaherd.engines.flags.translations import said

SECRETS = {
    "--api-key": "say where the key is under `api_key`: the server then reads it from a file",
    "--hf-token": "declare the model under `models`: llamaherd fetches it and keeps the token to itself",
}
DOWNLOADING = ("--hf-repo", "--hf-file", "--model-url", "--docker-repo", "--mmproj-url", "--spec-draft-hf")
PRESET = re.compile(r"--(?:embd|fim|gpt-oss|vision)-[\w.-]+")
EVERYWHERE = ("0.0.0.0", "::", "[::]", "*")
NO_SPLIT_BUFFERS = 9890
"""llama.cpp builds from here on refuse `--split-mode row` on CUDA (ggml-org/llama.cpp#25884, #27465)."""


def shown(arguments: Sequence[str]) -> str:
    """Arguments as one would type them."""
    return shlex.join(arguments)


def advise(
    catalogue: Catalogue, index: int, name: str, flag: Flag, values: Sequence[str], arguments: Sequence[str]
) -> Iterator[Problem]:
    """What to say of a flag that the engine takes with these values; `arguments` are all that are given."""
    length = 1 + len(values)

    def problem(
        code: str, message: str, way_out: str, severity: Severity, replacement: tuple[str, ...] | None = None
    ) -> Problem:
        return Problem(code, index, length, message, way_out, severity, replacement)

    if flag.ends:
        yield problem(codes.ENDS, f"with `{name}` the server prints something and ends", "leave it out", "error", ())
    if flag.idle:
        yield problem(codes.IDLE, f"`{name}` has no effect in {catalogue}", "leave it out", "warning", ())
    if flag.deprecated:
        better = _instead_of(catalogue, name)
        way_out = f"write `{shown(better)}`" if better else f"{catalogue.kind} says: {flag.deprecated}"
        yield problem(codes.DEPRECATED, f"`{name}` is deprecated in {catalogue}", way_out, "warning", better)
    for spelling, way_out in SECRETS.items():
        if spelling in flag.spellings:
            yield problem(codes.SECRET, f"every user of the host can read the value of `{name}`", way_out, "error")
    if any(spelling in DOWNLOADING or PRESET.fullmatch(spelling) for spelling in flag.spellings):
        yield problem(
            codes.DOWNLOADS,
            f"with `{name}` the server downloads what is newest when it starts, unlocked and unchecked",
            "declare the model under `models` and let llamaherd fetch it",
            "warning",
        )
    if "--host" in flag.spellings and _open(values, arguments):
        yield problem(
            codes.OPEN,
            f"`{name} {values[0]}` lets every network reach the server, and no key is asked for",
            "set `api_key`, or listen on 127.0.0.1",
            "warning",
        )
    yield from (problem(*one) for one in _by_value(catalogue, name, flag, values))


def _open(hosts: Sequence[str], arguments: Sequence[str]) -> bool:
    """Whether a server with these arguments listens everywhere and asks for no key."""
    keys = {"--api-key", "--api-key-file"} & {argument.replace("_", "-") for argument in arguments}
    return not keys and any(host in EVERYWHERE for value in hosts for host in value.split(","))


def _by_value(
    catalogue: Catalogue, name: str, flag: Flag, values: Sequence[str]
) -> Iterator[tuple[str, str, str, Severity, tuple[str, ...] | None]]:
    """Values that the engine takes and should not be given."""
    row = catalogue.kind == "llama.cpp" and "--split-mode" in flag.spellings and "row" in values
    if row and int(catalogue.version.lstrip("b")) >= NO_SPLIT_BUFFERS:
        message = f"`{name} row` fails on CUDA when the model is loaded: there are no split buffers any more"
        yield codes.NO_LOAD, message, f"write `{name} layer`", "error", (name, "layer")
    if "--chat-template-kwargs" in flag.spellings and values:
        for key, switch in (("enable_thinking", "--reasoning"), ("preserve_reasoning", "--reasoning-preserve")):
            found = _json_object(values[0])
            if key not in found or not catalogue.knows(switch):
                continue
            on = found.pop(key) is True
            better = (switch, "on" if on else "off") if key == "enable_thinking" else _switched(switch, on)
            rest = (name, json.dumps(found)) if found else ()
            message = f"`{key}` in `{name}` is deprecated in {catalogue}"
            yield codes.DEPRECATED, message, f"write `{shown((*better, *rest))}`", "warning", (*better, *rest)


def _instead_of(catalogue: Catalogue, name: str) -> tuple[str, ...] | None:
    """What a deprecated loading switch is called now."""
    modes = {"--no-mmap": "none", "--mmap": "mmap", "--mlock": "mlock", "--direct-io": "dio", "-dio": "dio"}
    mode = modes.get(name.replace("_", "-"))
    return (said(catalogue, ("--load-mode", "{}"), mode) or None) if mode else None


def _switched(switch: str, on: bool) -> tuple[str, ...]:
    return (switch if on else f"--no-{switch.removeprefix('--')}",)


def _json_object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
