"""What the box says when it cannot go on."""


class BoxError(Exception):
    """A sentence for a person, with the way out."""


def ending(output: str, lines: int = 10) -> str:
    """The last lines of a program's output, indented: where the reason stands."""
    return "\n".join(f"    {line}" for line in output.rstrip().splitlines()[-lines:])
