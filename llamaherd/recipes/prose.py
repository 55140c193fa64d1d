"""What any text may say that is no longer so, whatever the text is: a script, a Compose file, a comment in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.diagnostics.rule import Rule
from llamaherd.recipes.recipe_rules import BETTER_BY_RIG, NAME_GONE

_SAID: tuple[tuple[re.Pattern[str], Rule, str, str], ...] = (
    (
        re.compile(r"/v1/internal/health\b"),
        NAME_GONE,
        "no engine answers at `/v1/internal/health`",
        "ask `/health`",
    ),
    (
        re.compile(r"\b(?:compil|build)\w*\b[^\n]{0,60}\bMTP\b(?: build| compile)? flags", re.IGNORECASE),
        BETTER_BY_RIG,
        "no engine has MTP flags to be compiled with",
        "leave them out: MTP is there in every build, and switched on when the server starts",
    ),
)


def check_text(file: Path, text: str) -> Iterator[Finding]:
    """Addresses and options that a text names and that are nowhere."""
    for pattern, rule, message, way_out in _SAID:
        for found in pattern.finditer(text):
            before = text[: found.start()]
            place = Place(file, before.count("\n") + 1, found.start() - before.rfind("\n"))
            yield rule.at(place, message, way_out)
