"""Apply exact edits to the text of a file. All other bytes of it stay as they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llamaherd.diagnostics.findings import Edit, Finding
from llamaherd.text.textfile import LINE_END

_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True)
class EditedText:
    """A text after its edits, and the findings whose edits are in it."""

    text: str
    done: tuple[Finding, ...]


def with_fixes(text: str, findings: Iterable[Finding]) -> EditedText:
    """Return the text of a file with the edits of findings. All edits of a finding are applied, or none.

    A finding is left out if the file has another text there, or if an earlier finding changes it.
    """
    pieces = LINE_END.split(text)
    taken: dict[int, list[Edit]] = {}
    done = []
    for finding in findings:
        if finding.edits and all(_fits(pieces, edit, taken) for edit in finding.edits):
            done.append(finding)
            for edit in finding.edits:
                taken.setdefault(_index(edit), []).append(edit)
    return EditedText(with_edits(text, [edit for edits in taken.values() for edit in edits]), tuple(done))


def with_edits(text: str, edits: Iterable[Edit]) -> str:
    """Return the text of a file with edits that fit into it and do not overlap."""
    pieces = LINE_END.split(text)
    for edit in sorted(edits, key=lambda each: each.place, reverse=True):
        line = pieces[_index(edit)]
        start, end = _span(line, edit)
        pieces[_index(edit)] = line[:start] + edit.new + line[end:]
    return "".join(pieces)


def _index(edit: Edit) -> int:
    """Return the index of an edit's line among lines and line ends."""
    return 2 * (edit.place.line - 1)


def _span(line: str, edit: Edit) -> tuple[int, int]:
    start = edit.place.column - 1 + line.startswith(_BYTE_ORDER_MARK)
    return start, start + len(edit.old)


def _fits(pieces: list[str], edit: Edit, taken: dict[int, list[Edit]]) -> bool:
    """Return whether a line has the old text of an edit, and no other edit overlaps it."""
    if not 0 <= _index(edit) < len(pieces):
        return False
    line = pieces[_index(edit)]
    start, end = _span(line, edit)
    others = (_span(line, other) for other in taken.get(_index(edit), ()))
    return line[start:end] == edit.old and all(end < first or last < start for first, last in others)
