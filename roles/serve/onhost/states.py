"""The states of a switch, and the transitions between them. `docs/design/switch.md` shows them as a diagram."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """Where a switch is: before each, what it needs to end well after a kill is on the disk."""

    CHECK = "check"
    KEEP = "keep"
    CANDIDATE = "start candidate"
    MARK = "mark as untried"
    WRITE = "write files"
    STOP = "drain and stop"
    START = "start"
    PROVE = "prove"
    ACCEPT = "keep the new version"
    CLEAN = "remove what was replaced"
    RESTORE = "restore the previous version"
    UNTOUCHED = "untouched"
    DONE = "done"
    RESTORED = "rolled back"
    DOWN = "down"


class Outcome(Enum):
    """How a step ended."""

    OK = "ok"
    FAILED = "failed"
    ALREADY = "another run did it"
    STAYS = "nothing to restore"


@dataclass(frozen=True)
class Step:
    """A state as people read it: what is on the disk before it, and what a run does that finds it after a kill."""

    after: Mapping[Outcome, State]
    persisted: str
    found: str


STEPS: Mapping[State, Step] = {
    State.CHECK: Step(
        {Outcome.OK: State.KEEP, Outcome.FAILED: State.UNTOUCHED},
        "nothing",
        "starts from the beginning",
    ),
    State.KEEP: Step(
        {Outcome.OK: State.CANDIDATE, Outcome.FAILED: State.UNTOUCHED},
        "nothing",
        "starts from the beginning",
    ),
    State.CANDIDATE: Step(
        {Outcome.OK: State.MARK, Outcome.FAILED: State.UNTOUCHED},
        "`last`: the running version",
        "removes the candidate, and starts from the beginning",
    ),
    State.MARK: Step(
        {Outcome.OK: State.WRITE, Outcome.FAILED: State.UNTOUCHED},
        "`last`; the candidate's unit, which ends by itself",
        "removes the candidate, and starts from the beginning",
    ),
    State.WRITE: Step(
        {Outcome.OK: State.STOP, Outcome.ALREADY: State.DONE, Outcome.FAILED: State.UNTOUCHED},
        "`untried`: the new spec",
        "writes the files and starts the server: what runs does not match them",
    ),
    State.STOP: Step(
        {Outcome.OK: State.START, Outcome.FAILED: State.RESTORE},
        "`untried`; the new files",
        "starts the server",
    ),
    State.START: Step(
        {Outcome.OK: State.PROVE, Outcome.FAILED: State.RESTORE},
        "`untried`; the new files",
        "starts the server",
    ),
    State.PROVE: Step(
        {Outcome.OK: State.ACCEPT, Outcome.FAILED: State.RESTORE, Outcome.STAYS: State.ACCEPT},
        "`untried`; the new files",
        "proves the server: its spec is in `untried`",
    ),
    State.ACCEPT: Step(
        {Outcome.OK: State.CLEAN, Outcome.FAILED: State.CLEAN},
        "`untried`; the new files",
        "proves the server: its spec is in `untried`",
    ),
    State.CLEAN: Step(
        {Outcome.OK: State.DONE, Outcome.FAILED: State.DONE},
        "`last`: the new version; `before`: the previous one",
        "removes the candidate and what the server was before",
    ),
    State.RESTORE: Step(
        {Outcome.OK: State.RESTORED, Outcome.FAILED: State.DOWN, Outcome.STAYS: State.DOWN},
        "`last`: the previous version; `untried`: the new spec",
        "tries the new version again, and restores the previous one if it fails again",
    ),
}

ENDS = (State.UNTOUCHED, State.DONE, State.RESTORED, State.DOWN)


def diagram() -> str:
    """Return the states and what follows from each, as a Mermaid diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.CHECK.name}"]
    lines += [f"    {state.name}: {state.value}" for state in State]
    for state, step in STEPS.items():
        for outcome, after in step.after.items():
            label = "" if outcome is Outcome.OK else f": {outcome.value}"
            lines.append(f"    {state.name} --> {after.name}{label}")
    return "\n".join([*lines, *(f"    {each.name} --> [*]" for each in ENDS)])


def table() -> str:
    """Return what is on the disk before each state, and what a run does that finds it after a kill, in Markdown."""
    rows = (f"| {state.value} | {step.persisted} | {step.found} |" for state, step in STEPS.items())
    return "\n".join(["| killed before it can | on the disk | the next run |", "| --- | --- | --- |", *rows])
