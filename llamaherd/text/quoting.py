"""The characters that texts may hold, and one quoting function for each language that values are written into.

The reader of a quoted value reads that value, and nothing else. The result is `Written`, which `render.py` inserts into
a text unchanged. Any other value may be inserted into a text only as a number or a plain word, which mean themselves to
every reader. A character that a language cannot hold is a ValueError: the models of the inventory and of the lock
refuse it long before.
"""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

HARMFUL = re.compile(
    # C0, DEL and C1: line ends, terminals' commands. U+2028 and U+2029 end lines too, to YAML 1.1 and JavaScript.
    "[\x00-\x1f\x7f-\x9f\u2028\u2029"
    # Characters that reverse the order in which a text is shown (CVE-2021-42574).
    "\u202a-\u202e\u2066-\u2069"
    # Halves of pairs, and code points that Unicode reserves: systemd takes neither for UTF-8 (its unichar_is_valid).
    "\ud800-\udfff\ufdd0-\ufdef"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
    + "]"
)
"""Characters that no text of an inventory may hold, except line ends and tabs in texts of several lines."""
_OF_SEVERAL_LINES = frozenset("\n\t")
_NAMES = {
    "\x00": "a NUL",
    "\t": "a tab",
    "\n": "a line's end",
    "\r": "a carriage return",
    "\x1b": "an escape character",
    "\x7f": "a DEL",
    "\x85": "a line's end of other systems",
    "\u2028": "a line separator",
    "\u2029": "a paragraph separator",
}


def harmful(text: str, *, lines: bool = False) -> str | None:
    """Return the first invalid character of a text in words: `a carriage return (U+000D)`; None if there is none.

    `lines`: the text may have several lines, and tabs.
    """
    found = (match[0] for match in HARMFUL.finditer(text))
    character = next((each for each in found if not (lines and each in _OF_SEVERAL_LINES)), None)
    if character is None:
        return None
    code = f"U+{ord(character):04X}"
    if name := _NAMES.get(character):
        return f"{name} ({code})"
    category = unicodedata.category(character)
    kind = {"Cc": "a control character", "Cs": "half of a character"}.get(category, "an invisible character")
    return f"{kind} ({code})"


def _without_harmful(value: Any, *, lines: bool) -> Any:
    if isinstance(value, str) and (found := harmful(value, lines=lines)):
        raise PydanticCustomError("harmful_character", "it holds {character}", {"character": found})
    return value


def one_line(value: Any) -> Any:
    """Return a value unchanged. Raise ValueError for a text with control characters."""
    return _without_harmful(value, lines=False)


def several_lines(value: Any) -> Any:
    """Return a value unchanged. Raise ValueError for a text with control characters other than line ends and tabs."""
    return _without_harmful(value, lines=True)


Line = Annotated[str, AfterValidator(one_line)]
"""A text on one line, such as a name."""
TextLines = Annotated[str, AfterValidator(several_lines)]
"""A text that may have several lines: a template, a grammar, JSON, a file."""
Plain = Annotated[str | int | bool, AfterValidator(one_line)]
"""A value of a setting of another program."""


_WORD = re.compile(r"[A-Za-z0-9_@+=:,./-]*")
_IN_QUOTES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})
_LINE_ENDS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
SSH_REFUSED = re.compile(r'["\\]|\$\{')
"""The characters of a path that older clients cannot escape, and the begin of a variable (ssh_config(5), TOKENS)."""
_POWERSHELL_QUOTES = re.compile("['\u2018\u2019\u201a\u201b]")


class Written(str):
    """A text in the language of the file that contains it."""

    __slots__ = ()


def is_word(text: str) -> bool:
    """Return whether a text means itself to every reader: letters, digits, and marks without a meaning."""
    return _WORD.fullmatch(text) is not None


def sh(value: object) -> Written:
    """Quote one word for a POSIX shell, outside of quotes (POSIX, Shell Command Language, 2.2.2)."""
    return Written(shlex.quote(_storable(value)))


def here_document(text: str) -> Written:
    """Return whole lines for the place between `<<'END'` and `END`, which a shell reads unchanged."""
    if "END" in _storable(text).split("\n"):
        raise ValueError("a line of it is END, where the shell would stop reading")
    return Written(text)


def systemd_argument(value: object) -> Written:
    """Quote one argument of ExecStart= (systemd.service(5), "Command lines"): no `%` or `$` in it is expanded."""
    return Written(systemd_value(value).replace("$", "$$"))


def systemd_value(value: object) -> Written:
    """Quote one assignment of Environment= (systemd.exec(5)): `%` begins a specifier there, `$` means itself.

    A word is quoted with C's escapes (systemd.syntax(7), "Quoting").
    """
    text = _storable(value).replace("%", "%%")
    plain = text and not any(sign in " \t\n\r;'\"\\" for sign in text)
    return Written(text if plain else f'"{text.translate(_IN_QUOTES)}"')


def compose(value: object) -> Written:
    """Quote a value of a Compose file, as JSON, which is YAML: `$` starts a variable there, and `$$` is one dollar."""
    return Written(yaml_value(value).replace("$", "$$"))


def yaml_value(value: Any) -> Written:
    """Quote a value of a YAML file, as JSON; characters that YAML refuses or reads as a line's end are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return Written(re.sub("[\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]", _escaped, text))


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def powershell(value: object) -> Written:
    """Quote a text of PowerShell by one of its five single quotes (about_Quoting_Rules; its tokenizer)."""
    return Written("'" + _POWERSHELL_QUOTES.sub(r"\g<0>\g<0>", _one_line(value)) + "'")


def url_host(address: str) -> Written:
    """Return a name or address as the host of a URL: an IPv6 address is in brackets there."""
    return Written(f"[{address}]" if ":" in address else address)


def ssh_option(value: object) -> Written:
    """Quote a path as the value of an option of the OpenSSH client: split at spaces otherwise, and expanded at `%`."""
    text = _one_line(value)
    if SSH_REFUSED.search(text):
        raise ValueError(f"{text!r} has a sign for which not every ssh has an escape")
    return Written('"' + text.replace("%", "%%") + '"')


def comment(value: object) -> Written:
    """Return the rest of a line behind the mark of a comment: line ends and invalid characters become spaces."""
    return Written(HARMFUL.sub(" ", str(value)))


def _storable(value: object) -> str:
    """Return a text that an argument of a process can be: no NUL, and only UTF-8."""
    text = str(value)
    if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        raise ValueError(f"{text!r} cannot be handed to a program")
    return text


def _one_line(value: object) -> str:
    text = _storable(value)
    if _LINE_ENDS.search(text):
        raise ValueError(f"{text!r} has more than one line")
    return text


def haproxy(value: object) -> Written:
    """Quote one word of HAProxy's configuration (configuration.txt, 2.2): nothing in strong quotes has a meaning."""
    text = _storable(value)
    if _LINE_ENDS.search(text):
        raise ValueError(f"{value!r} holds the end of a line, which no word of HAProxy's can")
    return Written("'" + text.replace("'", "'\\''") + "'")


def haproxy_format(value: object) -> Written:
    """Quote a word in which HAProxy expands `%`, such as the value of a header."""
    return haproxy(str(value).replace("%", "%%"))
