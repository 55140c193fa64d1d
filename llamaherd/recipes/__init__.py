"""Find the mistakes of recipes: scripts, units, Compose files and pages that users paste from blogs."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal

from llamaherd.diagnostics.findings import Finding, InventoryError, Place
from llamaherd.inventory import wslconfig
from llamaherd.inventory.yaml_file import UNREADABLE
from llamaherd.recipes import compose, llama_swap, preset, shell
from llamaherd.recipes.commands import EMPTY, Text, joined, positioned
from llamaherd.recipes.recipe import NOT_AS_IT_LOOKS, Recipe, check_outdated_terms
from llamaherd.text.textfile import UnreadableError, decoded, read_bytes, read_text

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
    lines = list(_lines(text))
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


def _lines(text: Text) -> Iterator[Text]:
    start = 0
    for found in re.finditer(r"[^\n]*\n|[^\n]+\Z", text.chars):
        yield text.cut(start, found.end())
        start = found.end()


def _fenced(text: str) -> Iterator[Block]:
    """Yield the blocks in fences of CommonMark, at any depth of indentation."""
    language, closing = "", ""
    depth = 0
    kept: list[Text] = []
    for line in _lines(positioned(text)):
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
            self.parts.append(Text(chars, ((line, column + 1),) * len(chars)) if chars else EMPTY)


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


def _is_command(line: str, patterns: tuple[re.Pattern[str], ...]) -> bool:
    if _SENTENCE.search(_QUOTED.sub("", line)) or any(line.count(quote) % 2 for quote in "'\"`"):
        return False
    return any(pattern.fullmatch(line) for pattern in patterns)


RecipeKind = Literal["inventory", "compose", "shell", "wslconfig", "preset", "swap"]

LARGEST = 128 << 10
"""The most bytes of a recipe. Longer files are models or logs, given by mistake."""

_SHELL_SUFFIXES = {".sh", ".bash", ".zsh", ".service"}
_WSLCONFIG = re.compile(r"\ufeff?(?:[^\S\n]*(?:#[^\n]*)?\n)*[^\S\n]*\[(?:wsl2|experimental)\]", re.IGNORECASE)
_SECTIONS = re.compile(r"^\[(?:Service|wsl2|experimental)\]\s*$", re.MULTILINE | re.IGNORECASE)
_COMPOSE_LANGUAGES = {"", "yaml", "yml", "docker-compose", "compose"}
_SERVICES = re.compile(r"^[ \t]*services[ \t]*:", re.MULTILINE)
_COMMANDS = re.compile(
    r"\b(?:llama-(?:server|cli|bench)|vllm serve|huggingface-cli|nvidia-smi|(?:docker|podman) run|cmake -)|ExecStart="
    r"|^[^\S\n]*--?[a-z][\w-]* ",
    re.MULTILINE,
)


def kind_of(path: Path, text: str) -> RecipeKind | None:
    """Return the kind of a file, by its name and content; None for an unknown kind."""
    name = path.name.lower()
    if name.endswith("wslconfig") or _WSLCONFIG.match(text):
        return "wslconfig"
    if path.suffix.lower() in _SHELL_SUFFIXES or text.startswith("#!"):
        return "shell"
    if path.suffix.lower() == ".ini" and preset.is_preset(text):
        return "preset"
    if path.suffix.lower() in {".yaml", ".yml"}:
        services = re.search(r"^services\s*:", text, re.MULTILINE)
        rig = re.search(r"^rig\s*:", text, re.MULTILINE)
        if not rig and not services and llama_swap.is_config(text):
            return "swap"
        return "compose" if not rig and (services or "compose" in name) else "inventory"
    known = _COMMANDS.search(text) or _SECTIONS.search(text) or _composed(text) or _presets(text)
    return "shell" if known else None


def _presets(text: str) -> tuple[Block, ...]:
    """Return the preset files on a page."""
    shown = blocks_of(text) if re.search(r"^[ \t]*\[", text, re.MULTILINE) else ()
    return tuple(
        block for block in shown if block.language in {"", "ini", "toml", "conf"} and preset.is_preset(block.text.chars)
    )


def _composed(text: str) -> tuple[Block, ...]:
    """Return the Compose files on a page."""
    shown = blocks_of(text) if _SERVICES.search(text) else ()
    return tuple(
        block for block in shown if block.language in _COMPOSE_LANGUAGES and _SERVICES.match(_first(block.text.chars))
    )


def _first(text: str) -> str:
    """Return a text without leading comments, and without the name or version of a Compose file."""
    return re.sub(r"\A(?:[ \t]*(?:#[^\n]*|---|(?:version|name|x-[\w-]+)[ \t]*:[^\n]*)?\n)+", "", text)


def is_recipe(path: Path) -> bool:
    """Return whether a path is a recipe: an existing file that is not an inventory."""
    if not path.is_file():
        return False
    try:
        text = read_text(path, LARGEST)
    except UnreadableError:
        return path.suffix.lower() not in {".yaml", ".yml"}
    return kind_of(path, text) != "inventory"


def examine(path: Path) -> tuple[Finding, ...]:
    """Return the findings of a recipe, in the order of its lines. An inventory is checked elsewhere."""
    return understand(path).findings


def understand(path: Path) -> Recipe:
    """Return the findings of a recipe, and the servers that it would start."""
    try:
        recipe = _read(path)
    except InventoryError as error:
        return Recipe(error.findings)
    except RecursionError:
        return Recipe((_unreadable(path, "it is nested too deeply", "simplify it"),))
    findings = sorted(dict.fromkeys(recipe.findings), key=lambda finding: (finding.place, finding.code))
    return Recipe(tuple(findings), recipe.servers)


def _read(path: Path) -> Recipe:
    try:
        # Read bytes: line ends of Windows are reported.
        text = decoded(read_bytes(path, LARGEST))
    except UnreadableError as error:
        return Recipe((_unreadable(path, str(error), error.help),))
    match kind_of(path, text):
        case "compose":
            recipe = compose.check_text(path, text, _dotenv(path))
        case "shell":
            recipe = _shell(path, text)
        case "wslconfig":
            recipe = Recipe((*_hidden_ending(path), *wslconfig.check_wslconfig(path, text)))
        case "preset":
            recipe = Recipe(preset.check_text(path, text))
        case "swap":
            recipe = llama_swap.check_text(path, text)
        case "inventory":
            return Recipe()
        case None if re.search(r"""^[{ \t]*["']?rig["']?[ \t]*:""", text, re.MULTILINE):
            help_ = f"rename it: `mv {path.name} {path.name.partition('.')[0]}.yaml`"
            return Recipe((_unreadable(path, "it holds a rig, and its name does not end in `.yaml`", help_),))
        case None:
            known = "give an inventory, a shell script, a systemd unit, a Compose file, a preset file, a .wslconfig or "
            known += "a config.yaml of llama-swap"
            return Recipe((_unreadable(path, "nothing in it is recognised", known),))
    return recipe + Recipe(tuple(check_outdated_terms(path, text)))


def _hidden_ending(file: Path) -> Iterator[Finding]:
    """Report an ending that Notepad or a browser added to the name, and that Windows hides."""
    if re.fullmatch(r"\.?wslconfig\.(?:txt|ini|cfg|conf)", file.name, re.IGNORECASE):
        message = f"WSL reads `.wslconfig` alone, and this is `{file.name}`, which it ignores"
        yield NOT_AS_IT_LOOKS.at(Place(file), message, f"rename it: `ren {file.name} .wslconfig`")


def _shell(path: Path, text: str) -> Recipe:
    """Return the recipe of a script, or of the commands and settings of WSL in an article."""
    script = path.suffix.lower() in _SHELL_SUFFIXES or text.startswith("#!")
    code = () if script else blocks_of(text)
    if script or not (code or is_article(text)):
        return shell.check_text(path, text)
    typed = [typed_commands(block.text) for block in code if block.shell]
    rest = positioned(commands_of(text_outside_code(text) if code else text, marked=bool(code)))
    recipe = shell.check_excerpts(path, text, (*typed, rest))
    for block in _composed(text):
        recipe += _shown(path, text, block)
    for block in _presets(text):
        first = block.text.at[0][0] - 1
        found = preset.check_text(path, block.text.chars)
        moved = (replace(each, place=replace(each.place, line=each.place.line + first)) for each in found)
        recipe += Recipe(tuple(moved))
    return recipe + Recipe(wslconfig.check_wslconfig(path, wslconfig_of(text)))


def _shown(path: Path, text: str, block: Block) -> Recipe:
    """Return the recipe of a Compose file on a page; empty if it has omissions, or is not YAML."""
    if re.search(r"^[^\S\n]*(?:\.\.\.|…)[^\S\n]*$|<[\w -]+>", block.text.chars, re.MULTILINE):
        return Recipe()
    kept = set(block.text.at)
    lines = text.split("\n")
    blank = (
        "".join(char if (number, column) in kept else " " for column, char in enumerate(line, start=1))
        for number, line in enumerate(lines, start=1)
    )
    try:
        return compose.check_excerpt(path, "\n".join(blank))
    except InventoryError:
        return Recipe()


def _dotenv(path: Path) -> dict[str, str]:
    """Return the variables of the `.env` that Compose would read with this file."""
    try:
        return compose.settings_of(read_text(path.with_name(".env"), LARGEST))
    except (UnreadableError, ValueError):
        return {}


def _unreadable(path: Path, reason: str, way_out: str) -> Finding:
    return UNREADABLE.at(Place(path), f"cannot read this file: {reason}", way_out)
