"""A played host that records what is done to it, in its order, and the input of a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from llamaherd.onhost.system import Ended
from llamaherd.role.changes import Change, RunVerb
from roles.serve.onhost.model import SwitchInput
from roles.serve.onhost.speed import Proof, ProofInput
from tests.support.played_host import PlayedHost
from tests.support.switches import copied

Input = TypeVar("Input")


@dataclass
class RecordingHost(PlayedHost):
    """A played host with a record."""

    done: list[list[str]] = field(default_factory=list)
    """Each program with its arguments; `write`, `remove` and `rename` with their paths; `prove` with the spec."""
    ends: dict[str, Ended] = field(default_factory=dict)
    """How programs end whose command line begins with a text."""

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Record a program, and play it."""
        self.done.append([*argv])
        for begins, ended in self.ends.items():
            if " ".join(argv).startswith(begins):
                return ended
        return super().run(argv, seconds=seconds, text=text, environment=environment)

    def write(self, path: str, text: str | bytes, *, mode: int = 0o600, owner: str = "root") -> None:
        """Record and write a file."""
        self.done.append(["write", path])
        super().write(path, text, mode=mode, owner=owner)

    def remove(self, path: str) -> None:
        """Record and remove what is there."""
        if self.entry(path):
            self.done.append(["remove", path])
        super().remove(path)

    def rename(self, path: str, to: str) -> None:
        """Record and rename."""
        self.done.append(["rename", path, to])
        super().rename(path, to)

    def prove(self, given: ProofInput, system: object) -> Proof:
        """Record what is proved, and play that."""
        self.done.append(["prove", str(given.question.get("spec", ""))])
        return super().prove(given, system)

    def index(self, *words: str) -> int:
        """Return when something with all these words was done last. Raise ValueError where it never was."""
        found = [at for at, each in enumerate(self.done) if set(words) <= set(each)]
        if not found:
            raise ValueError(f"{words} is not in {self.done}")
        return found[-1]

    def has_done(self, *words: str) -> bool:
        """Return whether something with all these words was done."""
        return any(set(words) <= set(each) for each in self.done)


class InspectedHost(RecordingHost):
    """A recording host whose /proc is what a test has written there."""

    def read(self, path: str, most: int = 1 << 20) -> str | None:
        """Return the text of a file."""
        file = self.files.get(path)
        return file.text[:most] if file else None


def recording(host: PlayedHost, **ends: Ended) -> RecordingHost:
    """Return a copy of a played host that records what is done to it from here on."""
    return RecordingHost(**vars(copied(host)), ends={name.replace("_", " "): ended for name, ended in ends.items()})


def input_of(change: Change, kind: type[Input]) -> Input:
    """Return the input of the verb that makes a change."""
    assert isinstance(change.how, RunVerb)
    assert isinstance(change.how.given, kind)
    return change.how.given


def switch_of(change: Change) -> SwitchInput:
    """Return the input of a change that is one switch."""
    assert isinstance(change.how, RunVerb)
    assert change.how.verb == "serve.switch.switch"
    return input_of(change, SwitchInput)
