"""Find code on pages: fenced blocks of Markdown, `<pre>` of HTML, commands between prose, typed lines of terminals."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser

from llamaherd.recipes.commands import Text, joined, placed, positioned, without_escapes

_FENCE = re.compile(r"([ \t>]*)(?:[-*+] |\d+\. )?(`{3,}|~{3,})[ \t]*\{?\.?([\w+#-]*)[^`\n]*")
_HTML = re.compile(r"<(?:!doctype html|html|body|pre)\b", re.IGNORECASE)
_SHELLS = {"", "sh", "bash", "shell", "zsh", "console", "shellsession", "shell-session", "terminal", "text", "txt"}
_SHELLS |= {"plaintext", "none", "cmd", "bat", "powershell", "pwsh", "ps1", "ini", "service", "systemd", "conf"}
_PROMPT = re.compile(r"[ \t]*(?:(?:\([\w.-]+\) ?)?(?:\S+@\S+?)?[$%>]|PS [^>\n]*>|[A-Z]:\\[^>\n]*>)[ \t]+(?=\S)")
_LANGUAGE = re.compile(r"\b(?:language|lang|highlight-source|brush)[-:] ?([\w+#-]+)")
_CONTINUED = re.compile(r"[\\`^][ \t]*\n?$")


@dataclass(frozen=True)
class Block:
    """A piece of code on a page."""

    language: str
    text: Text

    @property
    def shell(self) -> bool:
        """True if the code may be for a shell, systemd or WSL."""
        return self.language in _SHELLS


def blocks_of(text: str) -> tuple[Block, ...]:
    """Return the marked code on a page."""
    fenced = tuple(_fenced(text))
    if fenced or not _HTML.search(text):
        return fenced
    page = _Page()
    page.feed(text)
    page.close()
    return tuple(page.blocks)


def text_outside_code(text: str) -> str:
    """Return a page of Markdown with blank lines for its code."""
    lines = text.split("\n")
    for block in _fenced(text):
        for line in {line for line, _ in block.text.at}:
            lines[line - 1] = ""
    return "\n".join(lines)


def typed_commands(text: Text) -> Text:
    """Return the typed lines of a terminal session: only those with a prompt, if there are any."""
    lines = text.lines()
    if not any(_PROMPT.match(line.chars) for line in lines):
        return text
    kept: list[Text] = []
    continued = False
    for line in lines:
        prompt = _PROMPT.match(line.chars)
        if prompt or continued:
            kept.append(line.cut(prompt.end() if prompt else 0, len(line.chars)))
            continued = _CONTINUED.search(line.chars) is not None
    return joined(kept)


def _fenced(text: str) -> Iterator[Block]:
    """Yield the blocks in fences of CommonMark, at any depth of indentation."""
    language, closing = "", ""
    depth = 0
    kept: list[Text] = []
    for line in positioned(text).lines():
        fence = _FENCE.fullmatch(line.chars.rstrip("\r\n"))
        if not closing and fence:
            closing, language, depth, kept = fence[2], fence[3].lower(), len(fence[1]), []
        elif closing and fence and fence[2].startswith(closing) and not fence[3]:
            yield Block(language, joined(kept))
            closing = ""
        elif closing:
            margin = re.match(rf"[ \t>]{{0,{depth}}}", line.chars)
            kept.append(line.cut(margin.end() if margin else 0, len(line.chars)))
    if closing:
        yield Block(language, joined(kept))


class _Page(HTMLParser):
    """The text in `<pre>`, without the tags in it."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.blocks: list[Block] = []
        self.parts: list[Text] | None = None
        self.language = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a block at `<pre>`; a `class` there or at `<code>` names its language."""
        if tag == "pre":
            self.parts, self.language = [], ""
        if self.parts is not None:
            named = _LANGUAGE.search(dict(attrs).get("class") or "")
            self.language = named[1].lower() if named else self.language
        if tag == "br":
            self._take("\n")

    def handle_endtag(self, tag: str) -> None:
        """Close the block."""
        if tag == "pre" and self.parts is not None:
            self.blocks.append(Block(self.language, joined(self.parts)))
            self.parts = None

    def handle_data(self, data: str) -> None:
        """Keep text as it is."""
        if self.parts is not None:
            line, column = self.getpos()
            self.parts.append(positioned(data, line, column + 1))

    def handle_entityref(self, name: str) -> None:
        """Replace `&lt;` by its character."""
        self._take(html.unescape(f"&{name};"))

    def handle_charref(self, name: str) -> None:
        """Replace `&#39;` by its character."""
        self._take(html.unescape(f"&#{name};"))

    def _take(self, chars: str) -> None:
        if self.parts is not None:
            line, column = self.getpos()
            self.parts.append(placed(chars, (line, column + 1)))


_PROSE = re.compile(r"^(?:```|(?:[*>-] )?[A-Z][\w'*-]*,? (?:[\w'(),:/.*-]+ ){4,})", re.MULTILINE)
"""A fence of Markdown, or five words in a row that begin with a capital."""
# Each text is read in one way alone: where there are two, a line of many values that is no command takes for ever.
_PART = r"""'[^']*'|"[^"]*"|[^\s|'"]"""
_FLAG = rf"""--?[a-zA-Z][\w-]*(?:\s+(?:-\d\S*|(?!-)(?:{_PART})+(?<!:)))?"""
_FLAGS = re.compile(rf"\s*{_FLAG}(?:\s+{_FLAG})*\s*\\?\s*")
_SETTING = re.compile(r"\s*(?:export +)?[A-Za-z_]\w*=(?:\S*|'[^']*'|\"[^\"]*\")\s*|(?:ExecStart|Environment)=.*")
_COMMAND = re.compile(
    r"""\s*(?:[$>%]\ |\S+@\S+[$\#]\ )?  # a prompt
    (?:(?:export|sudo|nohup|exec|env)\ +|[A-Za-z_]\w*=\S*\ +)*
    (?:"?\$\{?\w+\}?"?
      |(?:\S*/)?(?:llama-(?:server|cli|bench)|vllm|cmake|git|make|huggingface-cli|docker|podman|nvidia-smi|cd))
    (?:\ +\S+)*\ *""",
    re.VERBOSE,
)
_COMMAND_LINES = (_SETTING, _FLAGS, _COMMAND)
_SENTENCE = re.compile(r"[.!?:]\s*$|[.,;:]\s+[A-Za-z]|\s(?:the|is|are|to|and|you|your|with|of)\s")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_WSL_SECTIONS = re.compile(
    r"^\[(?:wsl2|experimental|general)\][^\n]*(?:\n(?:[A-Za-z]\w* *=|#|\[|\s*$)[^\n]*)*", re.MULTILINE
)


def is_article(text: str) -> bool:
    """Return whether there is prose in a text, outside of comments."""
    return _PROSE.search(text) is not None


def commands_of(text: str, *, marked: bool = False) -> str:
    """Return the text, of the same length, with `:` (the shell's no-op) in place of each line of prose.

    If the page marks its code elsewhere, only lines that begin with a program or are indented as code are kept.
    A continuation of a line that is not kept, such as `curl … \\`, is not kept either.
    """
    lines = text.split("\n")
    continued = taken = False
    for number, line in enumerate(lines):
        taken = (
            taken
            if continued
            else _is_command(line, (_COMMAND,) if marked and not line.startswith("    ") else _COMMAND_LINES)
        )
        continued = line.rstrip().endswith("\\")
        if not taken and line.strip():
            lines[number] = ":" + " " * (len(line) - 1)
    return "\n".join(lines)


def wslconfig_of(text: str) -> str:
    """Return the lines of a text that are a `.wslconfig`, with blank lines for the others."""
    lines = [""] * (text.count("\n") + 1)
    for found in _WSL_SECTIONS.finditer(text):
        first = text.count("\n", 0, found.start())
        for number, line in enumerate(found[0].split("\n"), start=first):
            lines[number] = line
    return "\n".join(lines)


_SECTION = re.compile(
    r"^%(?:(?P<script>prep|conf|build|install|check|(?:pre|post)(?:un|trans)?)"
    r"|package|description|clean|files|changelog|generate_buildrequires|trigger\w*)\b[^\n]*\n?",
    re.MULTILINE,
)
"""The first line of a section of an RPM package."""


def steps_of_package(text: str) -> Text | None:
    """Return the sections of an RPM `.spec` that are scripts, without `%{buildroot}`; None for another text."""
    found = [*_SECTION.finditer(text)]
    ends = [*(each.start() for each in found[1:]), len(text)]
    scripts = [(each.end(), end) for each, end in zip(found, ends, strict=False) if each["script"]]
    if not scripts or not re.search(r"^Name[ \t]*:", text, re.MULTILINE):
        return None
    whole = positioned(text)
    steps = joined(whole.cut(start, end) for start, end in scripts)
    return without_escapes(steps, r"(%\{buildroot\}|\$\{?RPM_BUILD_ROOT\b\}?)", dict.fromkeys(_ROOTS, ""))


_ROOTS = ("%{buildroot}", "$RPM_BUILD_ROOT", "${RPM_BUILD_ROOT}")
"""The folder that stands for the root of the host while a package is built."""


def _is_command(line: str, patterns: tuple[re.Pattern[str], ...]) -> bool:
    if _SENTENCE.search(_QUOTED.sub("", line)) or any(line.count(quote) % 2 for quote in "'\"`"):
        return False
    return any(pattern.fullmatch(line) for pattern in patterns)
