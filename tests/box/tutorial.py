"""The tutorials of docs/, typed as they stand: files are written, commands run, and outputs compared.

Figures, dates and spaces of outputs may differ, and `…` stands for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from box.cli import ROOT

_LONGEST = 900
"""Seconds for all commands of a page."""
_NEXT = "--- next ---"


@dataclass(frozen=True)
class Step:
    """A command of a page with the heading above it, and the output that the page shows."""

    heading: str
    command: str
    shown: str = ""


def steps(name: str) -> list[Step]:
    """Return the commands of a page. A YAML block that begins with `# FILE` is written to that file."""
    found: list[Step] = []
    for section in (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        heading = section.partition("\n")[0]
        for kind, block in re.findall(r"^```(console|yaml)\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
            if kind == "console":
                parts = (part.partition("\n") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:])
                found += [Step(heading, command, shown) for command, _, shown in parts]
            elif file := re.match(r"# (\S+)\n", block):
                found.append(Step(heading, f"cat >{file[1]} <<'END'\n{block}END"))
    return found


class Terminal:
    """A shell that commands are typed into, one after another."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def prints(self, command: str) -> str:
        """Run a command. Return what it prints on both streams."""
        given, printed = self._process.stdin, self._process.stdout
        assert given
        assert printed
        # What reads standard input would read the next commands.
        given.write(f"{{ {command}\n}} </dev/null\necho '{_NEXT}'\n")
        given.flush()
        lines: list[str] = []
        for line in printed:
            lines.append(line.removesuffix(f"{_NEXT}\n"))
            if line != lines[-1]:
                output = "".join(lines)
                print(f"$ {command}\n{output}")  # shown where the test fails
                return output
        raise AssertionError(f"the shell ended at `{command}`:\n" + "".join(lines))

    def follows(self, step: Step) -> None:
        """Run a command of a page. Fail if it prints something else than the page shows."""
        output = self.prints(step.command)
        matches = re.fullmatch(_pattern(_plain(step.shown)) + "\n?", _plain(output) + "\n", re.DOTALL)
        assert matches or not step.shown.strip(), f"$ {step.command}\n{output}\nthe page shows:\n{step.shown}"


@contextmanager
def terminal(folder: Path, environment: Mapping[str, str], within: Sequence[str] = ()) -> Iterator[Terminal]:
    """Open a shell in a folder, with the `herd` of this checkout. `within` is a command that starts what follows it."""
    path = f"{Path(sys.executable).parent}:{environment.get('PATH', os.defpath)}"
    process = subprocess.Popen(
        [*within, "bash"],
        cwd=folder,
        env={**environment, "PATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    longest = threading.Timer(_LONGEST, process.kill)
    longest.start()
    try:
        yield Terminal(process)
    finally:
        longest.cancel()
        process.kill()
        process.communicate()


def _plain(text: str) -> str:
    """Return a text without its figures; a speed is missing where the machine is too slow to measure it in time."""
    text = re.sub(r" +[\d.,]+ tokens/s", "", text)
    lines = (" ".join(re.sub(r"\d[\d.,:]*", "N", line).split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _pattern(shown: str) -> str:
    """Return a pattern for the output that the page shows."""
    return "(?:.*\n)?".join(
        ".*".join(map(re.escape, part.split("…"))) for part in re.split(r"^…\n?", shown, flags=re.M)
    )
