"""How this llamaherd was installed, and the command that adds an extra to it."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


def install_command(extra: str) -> str:
    """Return the shell command that adds an extra, by the tool that installed llamaherd and from the same source."""
    return f"{_tool()} {_requirement(extra)}"


def _tool() -> str:
    """Return the command line of the installer, up to the requirement."""
    folder = Path(sys.prefix)
    if (folder / "uv-receipt.toml").exists():
        return "uv tool install"
    if (folder / "pipx_metadata.json").exists():
        return "pipx install --force"
    python = shlex.quote(sys.executable)
    return f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"


def _requirement(extra: str) -> str:
    """Return llamaherd with an extra as a quoted requirement: a path, a URL, or a name in a package index."""
    source = _source()
    url = source.get("url", "")
    if url.startswith("file:"):
        editable = "-e " if source.get("dir_info", {}).get("editable") else ""
        return editable + shlex.quote(f"{unquote(urlsplit(url).path)}[{extra}]")
    kind = source.get("vcs_info", {}).get("vcs", "")
    origin = f" @ {kind}+{url}" if kind else f" @ {url}" if url else ""
    return shlex.quote(f"llamaherd[{extra}]{origin}")


def _source() -> dict[str, Any]:
    """Return what the installer recorded of the source (PEP 610): empty for a package index."""
    try:
        recorded = distribution("llamaherd").read_text("direct_url.json")
    except PackageNotFoundError:
        return {}
    return dict(json.loads(recorded)) if recorded else {}
