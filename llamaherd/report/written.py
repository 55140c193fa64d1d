"""A report as text in one of its forms, and as a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import mkstemp
from typing import Literal

from llamaherd.diagnostics.findings import UserError
from llamaherd.report.flat import search_json, to_csv, to_json
from llamaherd.report.gather import Gathered
from llamaherd.report.html import to_html
from llamaherd.report.markdown import to_markdown
from llamaherd.report.page import page

Form = Literal["html", "markdown", "csv", "json"]
_FORMS: dict[str, Form] = {"html": "html", "markdown": "markdown", "csv": "csv", "json": "json"}
_ENDINGS: dict[str, Form] = {".html": "html", ".htm": "html", ".md": "markdown", ".csv": "csv"}


def form_of(output: Path | None, asked: str | None) -> Form | None:
    """What is to be written: as it is asked for, or as the file is called; None: for people, here."""
    if asked is not None:
        return _FORMS[asked]
    if output is None:
        return None
    if output.suffix.lower() not in _ENDINGS:
        raise UserError(f"{output} does not say what it is to be", "call it .html, .md or .csv")
    return _ENDINGS[output.suffix.lower()]


def written(gathered: Gathered, form: Form) -> str:
    """The text."""
    if form == "html":
        return to_html(page(gathered))
    if form == "markdown":
        return to_markdown(page(gathered))
    if form == "csv":
        return to_csv(gathered.found)
    searches = [search_json(each) for each in gathered.searches]
    every = {"results": to_json(gathered.found), "searches": searches, "left_out": list(gathered.left_out)}
    return json.dumps(every) + "\n"


def write(path: Path, text: str) -> None:
    """Put a text into a file, whole or not at all. Raises UserError."""
    try:
        handle, part = mkstemp(".part", ".herd-", path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(text.encode("utf-8", "replace"))
            Path(part).chmod(0o644)
            Path(part).replace(path)
        finally:
            Path(part).unlink(missing_ok=True)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(f"cannot write {path}: {why}", "check the folder, its mode and its disk") from None
