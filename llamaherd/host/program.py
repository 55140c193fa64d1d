"""The programs that hosts get: one that is packed into one file and given a document on stdin, and the fetcher."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

from llamaherd.layout import FETCHER, LAUNCHER, PROGRAMS
from llamaherd.onhost.document import VERSION, dump
from llamaherd.plan import TextFile
from llamaherd.render import render

GO, SEND, MISSING = "llamaherd: go", "llamaherd: send", "llamaherd: no python3 on "
"""What templates/host/program.sh.j2 prints: it reads the document, it reads the program and the document, or the host
has no python3. The host's distribution follows the last."""

_PACKAGE = Path(__file__).resolve().parents[1]
_MAIN = "import sys\n\nfrom llamaherd.onhost.verbs import main\n\nsys.exit(main(sys.argv[1:]))\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MOST_LINE = 8 << 20
"""Characters of an event that are read: the result of an inspection contains each file of a large store."""


@dataclass(frozen=True)
class Program:
    """One version of the program: the hash of its sources, and its sources."""

    hash: str
    sources: Mapping[str, bytes] = field(repr=False)

    @property
    def path(self) -> str:
        """Return where it is on a host."""
        return f"{PROGRAMS}/{self.hash}.pyz"

    @cached_property
    def data(self) -> bytes:
        """Return the zip file that Python runs. It is packed only for a host that does not have it."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in self.sources.items():
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED, compresslevel=9)
        return packed.getvalue()


@cache
def packed_program(own_roles: Path | None = None) -> Program:
    """Return the program of this version: the same sources have the same hash on every machine.

    `own_roles` is a fleet's folder of roles: what each has as `onhost.py` or `onhost/` comes along.
    """
    sources = _sources(own_roles)
    digest = hashlib.sha256()
    for name, data in sources.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return Program(digest.hexdigest()[:16], sources)


def _sources(own_roles: Path | None) -> dict[str, bytes]:
    """Return the files in the zip: packages of roles are empty there, as only their `onhost` runs on hosts."""
    # The program that fetches models is a package of its own on a host: see `fetcher_files`.
    modules = [*(_PACKAGE / "onhost").glob("*.py"), _PACKAGE / "layout.py"]
    found = {each.relative_to(_PACKAGE.parent).as_posix(): each.read_bytes() for each in modules}
    ours = _PACKAGE.parent / "roles"
    for roles in (*([own_roles] if own_roles else []), ours):
        for each in (*roles.glob("*/onhost.py"), *roles.glob("*/onhost/*.py")):
            inside = each.relative_to(roles)
            # A fleet's role cannot take the place of one of ours.
            if roles == ours or not (ours / inside.parts[0]).is_dir():
                found[f"roles/{inside.as_posix()}"] = each.read_bytes()
    # Programs that units call are files of their own on a host.
    found = {name: data for name, data in found.items() if not data.startswith(b"#!")}
    packages = {f"{folder}/__init__.py" for name in found for folder in map(str, Path(name).parents) if folder != "."}
    empty = dict.fromkeys(packages - found.keys(), b"")
    return dict(sorted({**found, **empty, "__main__.py": _MAIN.encode()}.items()))


def bootstrap(program: Program, *, keep: bool) -> str:
    """Return the shell script that runs the program on a host, once it is there.

    With `keep`, the host stores it, or the script fails. Otherwise only a host that is set up stores it, if it can.
    """
    receiver = (_PACKAGE / "onhost" / "bootstrap.py").read_text(encoding="utf-8")
    return render("host/program.sh.j2", path=program.path, receiver=receiver, keep=keep)


def request(verb: str, given: object) -> bytes:
    """Return the document of a verb. It contains secrets, and is for stdin only."""
    return dump({"version": VERSION, "verb": verb, "input": given}).encode()


class Events:
    """Reads what the program writes, line by line: progress goes to `stdout`, and what failed to `stderr`."""

    def __init__(self, heard: Callable[[str, str], None]) -> None:
        self._heard = heard
        self.result: object = None
        """The result of the verb."""
        self.values: list[object] = []
        """Values that the verb has sent. The caller removes those that it has read."""
        self.finished = False
        self.no_python = False
        """Whether the host has no python3, so that nothing ran."""
        self.error: tuple[str, str] | None = None
        """The message of its error, and the help."""

    def hear(self, stream: str, line: str) -> None:
        """Read a line of the program, with its line break. Show a line that is not an event as it is."""
        event = parse_event(line) if stream == "stdout" else None
        match event:
            case {"event": "progress", "text": str(text)}:
                self._heard("stdout", f"{text}\n")
            case {"event": "warning", "text": str(text)}:
                self._heard("stderr", f"{text}\n")
            case {"event": "value", "value": value}:
                self.values.append(value)
            case {"event": "result", "value": value}:
                self.result, self.finished = value, True
            case {"event": "error", "message": str(message), "help": str(fix), "log": list(log)}:
                self.error = message, fix
                for each in (*map(str, log), message, *([f"  help: {fix}"] if fix else [])):
                    self._heard("stderr", f"{each}\n")
            case _:
                self._heard(stream, line)


def parse_event(line: str) -> object:
    """Return the event of a line; None if the line is not an event."""
    try:
        return json.loads(line) if line.startswith('{"event":') and len(line) <= _MOST_LINE else None
    except (ValueError, RecursionError):
        return None


_LAUNCHER = f'''\
#!/usr/bin/python3 -I
"""Fetches, adopts and shares models; `--help` says how."""

import sys

sys.path.insert(0, "{FETCHER}")
sys.dont_write_bytecode = True

from llamaherd.onhost.fetch.main import main

sys.exit(main())
'''


@cache
def fetcher_files() -> tuple[TextFile, ...]:
    """Return the fetcher's files as they are on a host. They are part of this version, not of a plan."""
    modules = sorted((_PACKAGE / "onhost" / "fetch").glob("*.py"))
    return (
        TextFile(path=LAUNCHER, text=_LAUNCHER, mode="0755"),
        TextFile(path=f"{FETCHER}/llamaherd/__init__.py", text=""),
        TextFile(path=f"{FETCHER}/llamaherd/onhost/__init__.py", text=""),
        *(
            TextFile(path=f"{FETCHER}/llamaherd/onhost/fetch/{module.name}", text=module.read_text(encoding="utf-8"))
            for module in modules
        ),
    )


@cache
def fetcher_hash() -> str:
    """Return a sha256 that shows whether exactly these files are on a host and belong to root."""
    named = [(f"./{PurePosixPath(file.path).relative_to(FETCHER)}", file) for file in fetcher_files()]
    modes = sorted(f"{int(file.mode, 8):o} {file.owner} {name}\n" for name, file in named)
    sums = sorted(f"{hashlib.sha256(file.text.encode()).hexdigest()}  {name}\n" for name, file in named)
    return hashlib.sha256("".join([*modes, *sums]).encode()).hexdigest()
