"""Hide the secrets in lines that are shown of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_NAME = r"[\w.-]*?(?:api[_-]?key|token|passw(?:or)?d|passphrase|secret|credential|authorization)[\w-]*"
_NAMED = re.compile(
    # What separates name and value: `: `, `=`, a blank, a comma of a list; in YAML also the next item of a list.
    rf"""(?<![\w-])(?P<name>{_NAME})["'`]?[ \t]*(?:[:=,][ \t]*|(?<=[ \t])|\\?\n[ \t]*(?:-[ \t]+)?)(?:bearer[ \t]+)?"""
    r"""(?P<value>"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|[^\s,\]}]+)""",
    re.IGNORECASE,
)
_SHAPED = re.compile(r"\b(?:sk|hf|ghp|gho|github_pat|glpat|xox[abp]|nvapi|AKIA)[-_]?[A-Za-z0-9_-]{6,}")
"""Keys of providers, by their beginnings."""
_IN_URL = re.compile(r"(?<=://)[^\s/@'\"]+(?=@)")
_BEHIND_NAME = re.compile(r"(?:file|path|tokens?|keys|tokenizer\w*)$", re.IGNORECASE)
"""Ends of names that hold no secret: `--api-key-file`, `max_tokens`."""
_HARMLESS = re.compile(r"""["']?(?:\{|\[|\$|\.?/|~/|true\b|false\b|null\b|\d{1,6}\b|-)""")
"""Beginnings of values that are no secret: `{file: …}`, a variable, a path, a number, the next flag."""
_AROUND = 2
"""Lines above the shown one that may end in the name of its value."""


def secret_columns(lines: Sequence[str], number: int) -> frozenset[int]:
    """Return the columns, from 0, of a line that may be a secret. `number` counts the lines from 0."""
    first = max(number - _AROUND, 0)
    above = sum(len(line) + 1 for line in lines[first:number])
    text = "\n".join(lines[first : number + 1])
    return frozenset(at - above for start, end in _secrets(text) for at in range(start, end) if at >= above)


def _secrets(text: str) -> Iterator[tuple[int, int]]:
    for found in _NAMED.finditer(text):
        bare = found["name"].lower()
        if _HARMLESS.match(found["value"]) or (_BEHIND_NAME.search(bare) and not bare.endswith(("_token", "-token"))):
            continue
        yield found.span("value")
    for pattern in (_SHAPED, _IN_URL):
        for match in pattern.finditer(text):
            yield match.span()
