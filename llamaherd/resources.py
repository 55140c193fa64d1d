"""Where the files lie that come along with the code: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_IN_A_WHEEL = _PACKAGE / "_data"

ROOT = _IN_A_WHEEL if _IN_A_WHEEL.is_dir() else _PACKAGE.parent
"""The folder that holds what pyproject.toml puts into a wheel, under the names that a checkout has for it."""

DEPLOY = ROOT / "deploy.py"
"""What pyinfra does to a host, for the deploy.py of a fleet's folder to include."""

TEMPLATES = ROOT / "templates"
DOCS = ROOT / "docs"
DOCKERFILE = ROOT / "compose" / "engine.Dockerfile"
