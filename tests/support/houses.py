"""The drawing of the packages in docs/architecture.md: which imports which."""

from __future__ import annotations

from pathlib import Path

from tests.support.lanes import ROOT, imports

HOUSES = ("cli", "fleet", "measure", "recipes")
"""What stands on the core. All other packages are the core."""
LEAVES = ("diagnostics", "text", "reference")
"""Packages that nearly all others import: arrows to them would hide the rest."""


def drawing() -> str:
    """Return a mermaid flowchart of the packages. An arrow that follows from two others is left out."""
    folders = {path.parent.name for path in (ROOT / "llamaherd").glob("*/__init__.py")}
    arrows = {name: _imported(name) & folders - {name, *LEAVES} for name in folders - {*LEAVES}}
    lines = ["flowchart TD"]
    lines += [f"    {name}([{name}])" for name in HOUSES]
    for name in sorted(arrows):
        further = set().union(*(_reached(each, arrows) for each in arrows[name]))
        lines += [f"    {name} --> {each}" for each in sorted(arrows[name] - further)]
    return "\n".join(lines)


def _imported(package: str) -> set[str]:
    """Return the packages that the modules of a package import, at their heads or later."""
    files = (ROOT / "llamaherd" / package).rglob("*.py")
    return {_package(each) for file in files for each in imports(file, ("llamaherd",))}


def _package(file: Path) -> str:
    return file.relative_to(ROOT / "llamaherd").parts[0]


def _reached(package: str, arrows: dict[str, set[str]]) -> set[str]:
    """Return the packages that a package imports by way of others."""
    found: set[str] = set()
    left = [*arrows[package]]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += arrows[name]
    return found
