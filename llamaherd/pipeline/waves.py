"""Waves: which rigs are changed together, and which rigs a halted run leaves alone. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """How many rigs are changed at once: `canary` first and alone, then at most `most` each time; else all of them."""

    canary: str | None = None
    most: int | None = None


@dataclass(frozen=True)
class Wave:
    """Rigs that are changed at once: the `number`-th of `of` such steps."""

    rigs: tuple[str, ...]
    number: int
    of: int
    canary: bool = False

    @property
    def last(self) -> bool:
        """Return whether it is the last wave."""
        return self.number == self.of

    def __str__(self) -> str:
        what = ", the canary" if self.canary else ""
        return f"Wave {self.number} of {self.of}{what}: {', '.join(self.rigs)}"


def waves(rigs: Sequence[str], pace: Pace, apart: Sequence[Collection[str]] = ()) -> tuple[Wave, ...]:
    """Return the waves of these rigs, each rig in the earliest wave that it can be in.

    A canary comes first. No two rigs of a group in `apart`, which back each other up, are in one wave.
    """
    canary = [name for name in rigs if name == pace.canary]
    others = [name for name in rigs if name != pace.canary]
    steps: list[list[str]] = []
    for name in others:
        alone = {each for group in apart if name in group for each in group}
        room = (step for step in steps if len(step) < (pace.most or len(others)) and alone.isdisjoint(step))
        step = next(room, None)
        if step is None:
            steps.append([name])
        else:
            step.append(name)
    steps = [canary, *steps] if canary else steps
    return tuple(
        Wave(tuple(step), number, len(steps), canary=step is canary) for number, step in enumerate(steps, start=1)
    )


@dataclass(frozen=True)
class Halt:
    """Why a run halts: rigs that failed, and rigs that do not match their plan; and the rigs that it leaves alone."""

    failed: tuple[str, ...]
    unplanned: tuple[str, ...]
    left: tuple[str, ...]

    def __str__(self) -> str:
        why = [f"{_all_of(self.failed)} failed"] if self.failed else []
        if self.unplanned:
            why.append(f"{_all_of(self.unplanned)} {'does' if len(self.unplanned) == 1 else 'do'} not match the plan")
        return f"left alone, as {' and '.join(why)}: {', '.join(self.left)}"


def _all_of(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def halt(all_waves: Sequence[Wave], ended: Wave, failed: Sequence[str], unplanned: Sequence[str]) -> Halt | None:
    """Return why no wave begins after the one that has `ended`; None if the next one may begin or none is left."""
    left = tuple(name for wave in all_waves if wave.number > ended.number for name in wave.rigs)
    return Halt(tuple(failed), tuple(unplanned), left) if left and (failed or unplanned) else None
