"""Templates to text. A name that a template wants and does not get is an error, never an empty string."""

from __future__ import annotations

import json
import shlex
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from llamaherd.layout import LOCK_SECONDS, LOCKS

_FOLDER = Path(__file__).resolve().parent.parent / "templates"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["quote"] = shlex.quote
    environment.filters["unit_quote"] = unit_quote
    environment.filters["unit_value"] = unit_value
    environment.filters["compose"] = compose_value
    environment.globals |= {"locks": str(LOCKS), "lock_seconds": LOCK_SECONDS}
    return environment


def render(template: str, **values: Any) -> str:
    """The text of a template under templates/."""
    return _environment().get_template(template).render(**values)


def unit_quote(argument: str) -> str:
    """One argument as ExecStart= wants it (systemd.service(5), command lines): nothing in it is expanded."""
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = escaped and not any(c in escaped for c in " \t\n\r;'\"\\")
    return escaped if plain else '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'


def unit_value(text: str) -> str:
    """One assignment as Environment= wants it (systemd.exec(5)): `%` starts a specifier there, `$` means itself."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return escaped if not any(c in escaped for c in " \t\n\r;'\"\\") else '"' + escaped.replace("\n", "\\n") + '"'


def compose_value(value: Any) -> str:
    """A value for a Compose file, as JSON: `$` starts a variable there, and `$$` is one dollar."""
    return json.dumps(value, ensure_ascii=False).replace("$", "$$")
