"""Paths of the files that are shipped with the code: next to the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_IN_A_WHEEL = _PACKAGE / "_data"

ROOT = _IN_A_WHEEL if _IN_A_WHEEL.is_dir() else _PACKAGE.parent
"""The folder of these files, under the names that they have in a checkout."""

DEPLOY = ROOT / "deploy.py"
"""The deployment for pyinfra. The `deploy.py` of a fleet's folder includes it."""

TEMPLATES = ROOT / "templates"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "inventory" / "examples"
DOCKERFILE = ROOT / "compose" / "engine.Dockerfile"
