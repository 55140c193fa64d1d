"""What was judged by a gate's `kld`, kept beside the results: whoever asks the same again need not read it again.

A file `results/<rig>/<instance>/kld-<time>.json` for each, written in one step and never rewritten.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from llamaherd.bench.arms.divergence import Compared
from llamaherd.bench.results.appended import read
from llamaherd.bench.results.provenance import Recorded
from llamaherd.bench.results.result import Time
from llamaherd.bench.results.store import MOST_FILES, put_whole
from llamaherd.diagnostics.findings import UserError

_NAME = re.compile(r"kld-\d{8}T\d{6}Z\.json")
_MOST_BYTES = 1 << 16
_LOOKED_AT = 50
"""Of an instance's, the newest."""


class Judgement(Recorded):
    """B beside A. Both are known by hashes of all that what they say can come from, `text` by that of what was read."""

    llamaherd: str
    rig: str
    instance: str
    began: Time
    text: str
    a: str
    b: str
    found: Compared = Compared()

    def same(self, other: Judgement) -> bool:
        """Whether the same was asked."""
        return (self.text, self.a, self.b) == (other.text, other.a, other.b)


def keep(results: Path, judgement: Judgement) -> Path:
    """Write it down. Raises UserError."""
    began = judgement.began.replace("-", "").replace(":", "")
    path = results / judgement.rig / judgement.instance / f"kld-{began}.json"
    put_whole(path, judgement.model_dump_json(indent=2).encode() + b"\n")
    return path


def kept(results: Path, like: Judgement, since: datetime) -> Judgement | None:
    """The newest of the same that has figures and has begun since then; what cannot be read is none."""
    folder = results / like.rig / like.instance
    try:
        with os.scandir(folder) as there:
            names = [each.name for _, each in zip(range(MOST_FILES), there, strict=False)]
    except OSError:
        return None
    whole = sorted((name for name in names if _NAME.fullmatch(name)), reverse=True)
    for name in whole[:_LOOKED_AT]:
        with suppress(UserError, ValidationError):
            found = Judgement.model_validate_json(read(folder / name, _MOST_BYTES))
            if datetime.fromisoformat(found.began) >= since and found.same(like) and found.found.quality:
                return found
    return None
