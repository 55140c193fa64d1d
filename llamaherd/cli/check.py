"""`herd check`: report mistakes in an inventory or in a recipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, UNUSABLE, counted, echo, inventory_option, json_option, print_findings
from llamaherd.diagnostics.findings import Finding, to_print
from llamaherd.inventory.yaml_file import UNREADABLE
from llamaherd.pipeline.load import examined, inventory_path
from llamaherd.pipeline.rules import NO_INVENTORY
from llamaherd.recipes import is_recipe, understand
from llamaherd.recipes.suggestions import inventory_fragment

UNREAD = frozenset({UNREADABLE.code, NO_INVENTORY.code})
"""Codes of files that cannot be read at all."""


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@inventory_option
@json_option
@click.pass_obj
def check(inventory: Path | None, paths: tuple[Path, ...], as_json: bool) -> None:
    """Report mistakes in an inventory or in a recipe. Connects to no host.

    A PATH is a rig's YAML file, a folder of them, or a recipe: a script that starts a server, a Compose file, a
    .wslconfig.

    Exit codes: 0 no errors, perhaps warnings; 1 errors; 2 a file cannot be read.

    \b
    Examples:
      herd check                      the inventory
      herd check ~/fleet/duo.yaml     one rig
      herd check start.sh             a recipe: its mistakes, and the same as a rig
    """
    findings, suggested, rigs, recipes = _check_paths(paths or (inventory_path(inventory),))
    ok = not any(finding.severity == "error" for finding in findings)
    if as_json:
        shown = [finding.as_json() for finding in to_print(findings)]
        click.echo(json.dumps({"ok": ok, "findings": shown, "total": len(findings)}))
    else:
        print_findings(findings)
        for text in suggested:
            echo(f"\nThe same in an inventory:\n\n{text}")
        parts = [counted(rigs, "rig")] if rigs or not recipes else []
        parts += [counted(recipes, "recipe")] if recipes else []
        echo(", ".join([*parts, counted(len(findings), "finding")]))
    if not ok:
        sys.exit(UNUSABLE if any(finding.code in UNREAD for finding in findings) else FAILED)


def _check_paths(paths: Iterable[Path]) -> tuple[list[Finding], list[str], int, int]:
    """Return the findings, the recipes as parts of a rig, and the numbers of rigs and recipes read."""
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
