"""As much of a shell's reading as tells whether it would expand a text, or find it quoted."""

from __future__ import annotations


def expands(script: str, marker: str) -> bool:
    """Whether `marker`, such as `$(id)`, stands outside single quotes, comments and quoted here-documents."""
    nested: list[str] = []  # what we are in: `"`, or `(` of a subshell, an arithmetic or a command substitution
    here = False
    at = 0
    while at < len(script):
        character = script[at]
        in_text = bool(nested) and nested[-1] == '"'
        if script.startswith(marker, at):
            return True
        if character == "\\":
            at += 1
        elif character == '"':
            nested.pop() if in_text else nested.append('"')
        elif character == "'" and not in_text:
            at = script.index("'", at + 1) if not script.startswith("'END'", at) else at + 4
            here = here or script.startswith("<<'END'", at - 6)
        elif script.startswith("$(", at):
            nested.append("(")
            at += 1
        elif character == "(" and not in_text:
            nested.append("(")
        elif character == ")" and not in_text and nested:
            nested.pop()
        elif character == "#" and not in_text and (at == 0 or script[at - 1] in " \n"):
            at = script.index("\n", at) - 1
        elif character == "\n" and here:
            here, at = False, script.index("\nEND\n", at) + 4
        at += 1
    assert nested == [], "this reader lost its way"
    return False
