"""`herd bench --import`: what others have measured, kept beside what we have."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from llamaherd.cli.common import UNUSABLE, counted, fail, say
from llamaherd.diagnostics.findings import UserError

_PLACE = re.compile(r"([a-z0-9][a-z0-9._-]{0,39})/([a-z0-9][a-z0-9._-]{0,39})")


def keep_imported(file: Path, place: str | None, results: Path, as_json: bool) -> None:
    """Keep each result of a file, and say where; the program ends where it cannot be read."""
    from llamaherd.bench.results.naming import read_any
    from llamaherd.bench.results.store import write_result

    try:
        where = _where(place)
        found = [each.model_copy(update=where) for each in read_any(file)]
        paths = [write_result(results, each) for each in found]
    except UserError as error:
        fail(error, UNUSABLE)
    if as_json:
        click.echo(json.dumps({"kept": [str(path) for path in paths]}))
        return
    for each, path in zip(found, paths, strict=True):
        say(f"{each.label}, {counted(len(each.cells), 'condition')}, by {each.source.kind}: kept in {path}")
        for note in each.source.notes:
            say(f"  less known: {note}")


def _where(place: str | None) -> dict[str, str]:
    """The rig and the instance that it is to be of."""
    if place is None:
        return {}
    found = _PLACE.fullmatch(place)
    if not found:
        raise UserError(f"`{place[:90]}` is no RIG/INSTANCE", "say for example `--as duo/chat`")
    return {"rig": found[1], "instance": found[2]}
