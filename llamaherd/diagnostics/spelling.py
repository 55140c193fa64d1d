"""Search for the known name that is spelled most like a given name."""

from __future__ import annotations

import re
from collections.abc import Iterable

FLAG_PREFIXES = re.compile(r"^(?:-{1,2}(?:no-)?|LLAMA_ARG_(?:NO_)?|(?:GGML|LLAMA)_(?:BUILD_|CUDA_|CPU_)?)")
"""Beginnings that so many names share that they prove no likeness."""

_LONGEST = 100
"""The most letters of a word that is compared: the time to compare two words grows with the product of
their lengths.
"""


def nearest_name(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant; None if there is none, or if two are as near.

    In each word and in the whole one letter may be wrong in up to six, two in up to eleven, three in more, not counting
    beginnings that many names share; or the same words may be in another order, or be joined otherwise.
    """
    bare = _bare(word)
    scores: dict[int, list[str]] = {}
    for name in known:
        if (distance := _slips(bare, _bare(name))) is not None:
            scores.setdefault(distance, []).append(name)
    best = scores[min(scores)] if scores else []
    return best[0] if len({_bare(name) for name in best}) == 1 else None


def misspelled_name(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that was meant, among the few that are valid at a place."""
    names = tuple(known)
    return nearest_name(word, names) or one_letter(word, names)


def one_letter(word: str, known: Iterable[str]) -> str | None:
    """Return the one known name that differs from a word by one letter more or less: too short for `near` to find."""
    slips = ((name, _distance(word.lower(), name.lower(), 1)) for name in known if abs(len(name) - len(word)) == 1)
    names = [name for name, distance in slips if distance is not None and len(name) > 1]
    return names[0] if len(names) == 1 else None


def completed_name(word: str, known: Iterable[str]) -> str | None:
    """Return the one known name that begins with a word of at least half its length, such as `q8_0` for `q8`."""
    start = word.lower()
    names = [name for name in known if len(start) > 1 and name.lower().startswith(start)]
    return names[0] if len(names) == 1 and 2 * len(start) >= len(names[0]) else None


_FEWEST = 3
"""The fewest letters of a word with one slip that is certain: `sdt` is `std`."""


def one_slip(word: str, known: Iterable[str]) -> str | None:
    """Return the one known name that a word is, apart from one wrong letter, case or what separates its words.

    None if several names are as near, or if a digit differs: `q4_0` is no slip of `q4_1`.
    """
    names = {name for name in known if name != word}
    same = {name for name in names if notation(name) == notation(word)}
    if not same and len(word) >= _FEWEST:
        same = {
            name
            for name in names
            if re.sub(r"\D", "", name) == re.sub(r"\D", "", word)
            and _distance(word.lower(), name.lower(), 1) is not None
        }
    return same.pop() if len(same) == 1 else None


def notation(text: str) -> str:
    """Return a text without case, quotes, blanks, commas and what separates its words."""
    return re.sub(r"(?<=.)[-_]|[\s,;()\"'\u201c\u201d\u2018\u2019\u200b]", "", text).lower()


def _bare(name: str) -> str:
    """Return a name without its common beginning; blanks between its words."""
    return re.sub(r"[-_]+", " ", FLAG_PREFIXES.sub("", name)).strip().lower()


def _allowed(bare: str) -> int:
    return 0 if len(bare) < 3 else 1 if len(bare) < 7 else 2 if len(bare) < 12 else 3


def _slips(one: str, other: str) -> int | None:
    """Count the wrong letters, word by word; None if the words are too different."""
    if sorted(one.split()) == sorted(other.split()) or one.replace(" ", "") == other.replace(" ", ""):
        return 0
    pairs = list(zip(one.split(), other.split(), strict=False))
    if len(one.split()) != len(other.split()):
        return _distance(one, other, min(1, _allowed(one)))
    distances = [_distance(a, b, _allowed(a)) for a, b in pairs]
    whole = sum(distance or 0 for distance in distances)
    return None if None in distances or whole > _allowed(one) else whole


def _distance(one: str, other: str, most: int) -> int | None:
    """Count letters that are wrong, missing, too many or swapped; None if more than `most`."""
    if one == other:
        return 0
    if abs(len(one) - len(other)) > most or not one or not other or len(one) > _LONGEST:
        return None
    rows = [list(range(len(other) + 1))]
    for i, a in enumerate(one, start=1):
        row = [i]
        for j, b in enumerate(other, start=1):
            cost = min(row[j - 1] + 1, rows[-1][j] + 1, rows[-1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1] if rows[-1][-1] <= most else None
