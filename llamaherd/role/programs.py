"""Our own programs on a host: the fetcher, in plain Python, started only for as long as there is something to fetch."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path, PurePosixPath

from llamaherd.layout import FETCHER, LAUNCHER
from llamaherd.plan import TextFile

_PACKAGE = Path(__file__).resolve().parents[1]

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
def programs() -> tuple[TextFile, ...]:
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
def fingerprint() -> str:
    """Return a sha256 that shows whether exactly these files are on a host and belong to root."""
    named = [(f"./{PurePosixPath(file.path).relative_to(FETCHER)}", file) for file in programs()]
    modes = sorted(f"{int(file.mode, 8):o} {file.owner} {name}\n" for name, file in named)
    sums = sorted(f"{hashlib.sha256(file.text.encode()).hexdigest()}  {name}\n" for name, file in named)
    return hashlib.sha256("".join([*modes, *sums]).encode()).hexdigest()
