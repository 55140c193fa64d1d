"""`herd check`: everything that is wrong with an inventory, or with a recipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, UNUSABLE, counted, inventory_option, json_option, say, show
from llamaherd.diagnostics.findings import Finding, to_print
from llamaherd.inventory.yaml_file import UNREADABLE
from llamaherd.pipeline.rules import NO_INVENTORY

UNREAD = frozenset({UNREADABLE.code, NO_INVENTORY.code})
"""Codes of what could not be read at all."""


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@inventory_option
@json_option
@click.pass_obj
def check(inventory: Path | None, paths: tuple[Path, ...], as_json: bool) -> None:
    """Say what is wrong with an inventory, or with a recipe. Touches no host.

    A PATH is a rig's YAML file, a folder of them, or what one pastes from elsewhere: a script that starts a server, a
    Compose file, a .wslconfig. Exit codes: 0 nothing wrong (there may be warnings), 1 errors, 2 something cannot be
    read.

    \b
    Examples:
      herd check                      the inventory
      herd check ~/fleet/duo.yaml     one rig
      herd check start.sh             a recipe: what is wrong, and how a rig says the same
    """
    from llamaherd.pipeline.load import inventory_path

    findings, suggested, rigs, recipes = _examined(paths or (inventory_path(inventory),))
    ok = not any(finding.severity == "error" for finding in findings)
    if as_json:
        told = [finding.as_json() for finding in to_print(findings)]
        click.echo(json.dumps({"ok": ok, "findings": told, "total": len(findings)}))
    else:
        show(findings)
        for text in suggested:
            say(f"\nIn an inventory, that is:\n\n{text}")
        parts = [counted(rigs, "rig")] if rigs or not recipes else []
        parts += [counted(recipes, "recipe")] if recipes else []
        say(", ".join([*parts, counted(len(findings), "finding")]))
    if not ok:
        sys.exit(UNUSABLE if any(finding.code in UNREAD for finding in findings) else FAILED)


def _examined(paths: Iterable[Path]) -> tuple[list[Finding], list[str], int, int]:
    """What is wrong, what recipes are as a rig, and how many rigs and recipes were read."""
    from llamaherd.pipeline.load import examined
    from llamaherd.recipes import is_recipe, understand
    from llamaherd.recipes.suggestions import inventory_fragment

    findings: list[Finding] = []
    suggested: list[str] = []
    rigs = recipes = 0
    for path in paths:
        if is_recipe(path):
            recipe = understand(path)
            findings += recipe.findings
            suggested += [inventory_fragment(path, recipe.servers)] if recipe.servers else []
            recipes += 1
        else:
            fleet, found = examined(path)
            findings += found
            rigs += len(fleet.rigs)
    return findings, suggested, rigs, recipes
