"""Render templates to text. A missing variable is an error, never an empty string.

A template may print the result of a function in `quoting.py`, a rendered text, a number or a plain word. Any other
value is an error, so that a template cannot forget to quote.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path, PurePath
from typing import Any

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined, Undefined, compiler, nodes

from llamaherd.layout import DIRECT_GROUP, LOCK_WAIT, LOCKS, WRITTEN
from llamaherd.resources import TEMPLATES
from llamaherd.text import quoting
from llamaherd.text.quoting import Written, is_word

FILTERS = {
    "quote": quoting.sh,
    "here_document": quoting.here_document,
    "unit_quote": quoting.systemd_argument,
    "unit_value": quoting.systemd_value,
    "compose": quoting.compose,
    "yaml": quoting.yaml_value,
    "powershell": quoting.powershell,
    "comment": quoting.comment,
    "haproxy": quoting.haproxy,
    "url_host": quoting.url_host,
    "haproxy_format": quoting.haproxy_format,
}
"""The filters of templates, by name."""


class UnquotedError(TypeError):
    """A template prints a value without a quoting function."""


class _Environment(Environment):
    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse a template. A quoted text in an expression, such as `{{ "{{.Id}}" }}`, is text of the template."""
        tree = super()._parse(source, name, filename)
        for printed in tree.find_all(nodes.Output):
            printed.nodes = [
                nodes.TemplateData(each.value) if isinstance(each, nodes.Const) else each for each in printed.nodes
            ]
        return tree


@cache
def template_environment() -> Environment:
    """Return the environment of all templates."""
    made = _Environment(
        loader=FileSystemLoader(TEMPLATES),
        bytecode_cache=_compiled(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=_printable,
    )
    made.filters |= FILTERS | {"join": _joined}
    made.globals |= {
        "locks": str(LOCKS),
        "lock_seconds": LOCK_WAIT,
        "direct_group": DIRECT_GROUP,
        "written": str(WRITTEN),
    }
    return made


def _compiled() -> FileSystemBytecodeCache | None:
    """Return the cache of compiled templates, in the folder of Python's bytecode; None if it is not writable.

    Its name depends on this module, on the quoting functions and on Jinja, because the compiled code does.
    """
    folder = Path(cache_from_source(__file__)).parent
    if sys.dont_write_bytecode or not os.access(folder, os.W_OK):
        return None
    made_by = hashlib.sha256()
    for module in (__file__, quoting.__file__, compiler.__file__):
        made_by.update(Path(module).read_bytes())
    return FileSystemBytecodeCache(str(folder), f"template-{made_by.hexdigest()[:16]}-%s.cache")


def render(template: str, **values: Any) -> Written:
    """Return the text of a template in templates/. Raise UnquotedError, or jinja2's UndefinedError."""
    return Written(template_environment().get_template(template).render(**values))


def render_file(template: Path, **values: Any) -> Written:
    """Return the text of a template in another folder, such as that of a fleet's own role. Raise as `render`."""
    return Written(template_environment().from_string(template.read_text(encoding="utf-8")).render(**values))


def _printable(value: object) -> object:
    """Return a value that needs no quoting. Raise UnquotedError for others."""
    if isinstance(value, Written | Undefined):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str | PurePath) and is_word(str(value)):
        return value
    raise UnquotedError(f"{value!r} is printed without a quoting function")


def _joined(values: Iterable[object], between: str = "") -> str:
    """Join values as Jinja does. The result needs no quoting if none of the parts does."""
    parts = list(values)
    text = between.join(map(str, parts))
    try:
        for part in parts:
            _printable(part)
    except UnquotedError:
        return text
    return Written(text)
