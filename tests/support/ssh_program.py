"""The far end of an `ssh` of the tests' own: a shell that runs the program, with places on the host moved elsewhere."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from llamaherd import layout
from llamaherd.host.program import GO


def read_document() -> dict[str, Any]:
    """Give a shell, receive the script that starts the program, and return the document that follows."""
    sys.stdin.buffer.readline()
    print("llamaherd: a shell is there", flush=True)
    while sys.stdin.buffer.readline() not in (b"}\n", b""):
        pass
    print(GO, flush=True)
    document: dict[str, Any] = json.loads(sys.stdin.buffer.readline() or b"{}")
    return document


def run_program(document: Mapping[str, Any], places: Mapping[str, PurePath]) -> int:
    """Run the verb of a document, where these constants of `llamaherd.layout` are other paths. Return the exit code."""
    for name, path in places.items():
        assert hasattr(layout, name)
        setattr(layout, name, path)
    # Only now: modules of the program take constants from the layout when they are imported.
    from llamaherd.onhost.verbs import main

    sys.stdin = io.TextIOWrapper(io.BytesIO(json.dumps(document).encode()))
    return main([])
