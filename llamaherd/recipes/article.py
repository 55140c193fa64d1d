"""A whole article, or notes: what is a command in it stays where it stands, and its prose is blanked out."""

from __future__ import annotations

import re

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
_COMMANDS = (_SETTING, _FLAGS, _COMMAND)
_SENTENCE = re.compile(r"[.!?:]\s*$|[.,;:]\s+[A-Za-z]|\s(?:the|is|are|to|and|you|your|with|of)\s")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_WSLCONFIG = re.compile(
    r"^\[(?:wsl2|experimental|general)\][^\n]*(?:\n(?:[A-Za-z]\w* *=|#|\[|\s*$)[^\n]*)*", re.MULTILINE
)


def is_article(text: str) -> bool:
    """Whether there is prose in a text, outside of comments."""
    return _PROSE.search(text) is not None


def commands_of(text: str, *, marked: bool = False) -> str:
    """The text, as long as it was, with a `:` (the shell's nothing) in the place of each line of prose.

    Of a page that marks its code elsewhere, lines that begin with a program or are indented as code are taken. What
    goes on with a line that is none of ours, such as `curl … \\`, is another program's.
    """
    lines = text.split("\n")
    continued = taken = False
    for number, line in enumerate(lines):
        taken = (
            taken
            if continued
            else _is_command(line, (_COMMAND,) if marked and not line.startswith("    ") else _COMMANDS)
        )
        continued = line.rstrip().endswith("\\")
        if not taken and line.strip():
            lines[number] = ":" + " " * (len(line) - 1)
    return "\n".join(lines)


def wslconfig_of(text: str) -> str:
    """The parts of a text that are a `.wslconfig`, where they stand; blank lines for all else."""
    lines = [""] * (text.count("\n") + 1)
    for found in _WSLCONFIG.finditer(text):
        first = text.count("\n", 0, found.start())
        for number, line in enumerate(found[0].split("\n"), start=first):
            lines[number] = line
    return "\n".join(lines)


def _is_command(line: str, patterns: tuple[re.Pattern[str], ...]) -> bool:
    if _SENTENCE.search(_QUOTED.sub("", line)) or any(line.count(quote) % 2 for quote in "'\"`"):
        return False
    return any(pattern.fullmatch(line) for pattern in patterns)
