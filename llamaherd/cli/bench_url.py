"""`herd bench --url`: a server that no inventory declares."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from llamaherd.cli.common import UNUSABLE, say
from llamaherd.diagnostics.findings import UserError

if TYPE_CHECKING:
    from llamaherd.bench.courses.chosen import Chosen
    from llamaherd.bench.foreign import Visit
    from llamaherd.bench.job import Measured

KEY = "HERD_URL_KEY"
"""The variable that may hold the key."""


def measured_by_url(
    url: str, model: str | None, key_file: Path | None, name: str | None, results: Path, seconds: float, chosen: Chosen
) -> Measured:
    """The measurement; the program ends where there is none."""
    from llamaherd.bench.asking.client import Target
    from llamaherd.bench.asking.endpoint import look_at
    from llamaherd.bench.foreign import Visit, label_of

    try:
        served = look_at(Target(url, _key(key_file)), model)
        return _measured(Visit(served, label_of(served, name), results, seconds), chosen)
    except UserError as error:
        say(f"error: {error}", err=True)
    except KeyboardInterrupt:
        say(f"what was measured by now, if anything, is kept in {results}", err=True)
        raise
    sys.exit(UNUSABLE)


def _measured(visit: Visit, chosen: Chosen) -> Measured:
    from llamaherd.bench.courses.quick import quick
    from llamaherd.bench.foreign import measure_url
    from llamaherd.cli.bench_progress import telling

    courses, sentences = chosen.courses(visit.served)
    unmetered = ("energy is left out: no meter reads what is behind a URL",) if chosen.energy else ()
    wanted = replace(chosen, energy=False)
    for sentence in (*unmetered, *sentences):
        say(sentence, err=True)
    with telling(visit.label) as teller:
        return measure_url(visit, lambda known: (quick(known), *wanted.series(known)), courses, teller)


def _key(file: Path | None) -> str | None:
    """The key, of a file or of the environment: every process of a machine can read the arguments of all others."""
    from llamaherd.inventory.keys import UnreadableKeyError, read_key
    from llamaherd.inventory.schema import Secret

    if file is None and KEY not in os.environ:
        return None
    try:
        return read_key(Secret(file=file) if file else Secret(env=KEY))
    except UnreadableKeyError as error:
        raise UserError(str(error), f"name a file with `--key-file`, or set {KEY}") from None
