"""A whole article, or notes: its commands stay where they stand, and its prose is blanked out."""

from __future__ import annotations

import re

_COMMAND = re.compile(
    r"""\s*(?:[$>%]\ |\S+@\S+[$\#]\ )?               # a prompt
    (?:(?:export|sudo|nohup|exec|env)\ +|[A-Za-z_]\w*=\S*\ +)*
    (?:"?\$\{?\w+\}?"?|(?:\S*/)?(?:llama-(?:server|cli|bench)|vllm|cmake|git|make|huggingface-cli|docker|podman
      |nvidia-smi|cd))
    (?:\ +[^\s]+)*\ *""",
    re.VERBOSE,
)
_SETTING = re.compile(r"\s*(?:export +)?[A-Za-z_]\w*=(?:\S*|'[^']*'|\"[^\"]*\")\s*|(?:ExecStart|Environment)=.*")
_FLAGS = re.compile(r"""\s*(?:--?[a-zA-Z][\w-]*(?:\s+(?:'[^']*'|"[^"]*"|[^\s|-][^\s|]*(?<!:))?)?)+\\?\s*""")
_SENTENCE = re.compile(r"[.!?:]\s*$|[.,;:]\s+[A-Za-z]|\s(?:the|is|are|to|and|you|your|with|of)\s")


def commands_of(text: str) -> str:
    """The text, as long as it was, with a `:` (the shell's nothing) in the place of each line of prose."""
    lines = text.split("\n")
    continued = False
    for number, line in enumerate(lines):
        if not (continued or _is_command(line)) and line.strip():
            lines[number] = ":" + " " * (len(line) - 1)
        continued = lines[number].rstrip().endswith("\\")
    return "\n".join(lines)


def _is_command(line: str) -> bool:
    if _SENTENCE.search(line) or any(line.count(quote) % 2 for quote in "'\"`"):
        return False
    return any(pattern.fullmatch(line) for pattern in (_SETTING, _FLAGS, _COMMAND))
