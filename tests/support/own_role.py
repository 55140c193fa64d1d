"""The example of docs/roles.md, as somebody would copy it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.rigs import ROOT

SHOWN = "\n  motd       /etc/motd names what is served\n"
"""Its line of `herd show`."""


def write_example(fleet: Path) -> None:
    """Put it into a fleet's folder."""
    page = (ROOT / "docs/roles.md").read_text(encoding="utf-8")
    folder = fleet / "roles/motd"
    folder.mkdir(parents=True)
    for language, file in (("python", "__init__.py"), ("jinja", "motd.j2")):
        (code,) = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        (folder / file).write_text(code)
