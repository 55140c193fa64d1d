"""What a search has found, written into the inventory: `herd tune --apply`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from llamaherd.cli.common import FAILED, fail, say
from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.patch import patched, with_value
from llamaherd.inventory.yamlfile import parse
from llamaherd.pipeline.load import read_lock
from llamaherd.pipeline.load_fleet import survey_fleet
from llamaherd.tune.depth import deeper_of
from llamaherd.tune.journal import Search
from llamaherd.tune.keys import settings_of
from llamaherd.tune.lines import candidate_of
from llamaherd.tune.planned import Tuned
from llamaherd.tune.power import power_end

_DEEP_HELP = "write the lines by hand where requests are never that long, or declare less `context` and search again"


def apply(search: Search, tuned: Tuned) -> None:
    """Write the keys into the file that declares the instance, and a power limit of its GPUs.

    Ends the program where it cannot.
    """
    assert search.found
    found = candidate_of(search.found.keys)
    settings = settings_of(found, tuned.start)
    power = power_end(search)
    watts = power.proposed if power else None
    if not settings and watts is None:
        return
    deeper = deeper_of(search, tuned.start, found)
    if deeper and deeper.doubt:
        say(f"error: not written: {deeper.doubt}\n  help: {_DEEP_HELP}", err=True)
        sys.exit(FAILED)
    file = _file_of(tuned)
    try:
        text = file.read_text(encoding="utf-8")
        if settings:
            text = patched(text, file, tuned.declared.name, settings)
        if power and watts is not None:
            text = _limited(text, file, power.gpus, watts)
        _replace(file, text)
    except OSError as error:
        say(f"error: cannot write {file}: {error.strerror}\n  help: check its mode and its disk", err=True)
        sys.exit(FAILED)
    except UserError as error:
        fail(error, FAILED)
    say(f"written into {file}; `herd diff {tuned.rig.rig}` shows what `herd up` would do", err=True)


def _limited(text: str, file: Path, gpus: Sequence[str], watts: int) -> str:
    """The text in which GPUs are held to so many watts. Raises UserError where it does not declare them itself."""
    declared = parse(file, text).data.get("gpus")
    cards = declared.get("cards") if isinstance(declared, dict) else None
    for name in gpus:
        if not isinstance(cards, dict) or not isinstance(cards.get(name), dict):
            raise UserError(f"{file} does not declare GPU `{name}` itself", "write `power_limit` where it is declared")
        text = with_value(text, file, ("gpus", "cards", name, "power_limit"), f"{watts}W")
    return text


def _file_of(tuned: Tuned) -> Path:
    """Where a link to it leads: the link stays."""
    return survey_fleet(tuned.inventory, read_lock(tuned.inventory)).documents[tuned.rig.rig].file.resolve()


def _replace(file: Path, text: str) -> None:
    """All of the file at once, with the mode that it had."""
    part = file.with_name(f".{file.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.chmod(file.stat().st_mode & 0o777)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
