"""What is held where, in bytes, and the parts it is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DraftUse:
    """What speculation by a model's own head adds, in bytes.

    `state` is the copies of the recurrent state beyond one per slot: the engine keeps one for each drafted token, so
    that it can go back.
    """

    weights: int = 0
    kv: int = 0
    state: int = 0
    compute: int = 0

    @property
    def total(self) -> int:
        """All parts."""
        return self.weights + self.kv + self.state + self.compute


@dataclass(frozen=True)
class Use:
    """What one GPU, or the host's RAM, holds, in bytes."""

    weights: int = 0
    kv: int = 0
    state: int = 0
    compute: int = 0
    draft: DraftUse = DraftUse()

    @property
    def total(self) -> int:
        """All parts, the draft's included."""
        return self.weights + self.context + self.compute + self.draft.weights + self.draft.kv + self.draft.compute

    @property
    def context(self) -> int:
        """What the engine calls context: KV and every copy of the state, without the draft's own KV."""
        return self.kv + self.state + self.draft.state


@dataclass(frozen=True)
class Memory:
    """What each GPU and the host hold. `doubts` are sentences on what could not be known."""

    devices: tuple[Use, ...]
    host: Use
    doubts: tuple[str, ...] = ()

    @property
    def everywhere(self) -> Use:
        """All GPUs and the host together."""
        total = self.host
        for use in self.devices:
            total = add(total, use)
        return total


def add(one: Use, other: Use) -> Use:
    """Both, part by part."""
    return Use(
        weights=one.weights + other.weights,
        kv=one.kv + other.kv,
        state=one.state + other.state,
        compute=one.compute + other.compute,
        draft=DraftUse(
            weights=one.draft.weights + other.draft.weights,
            kv=one.draft.kv + other.draft.kv,
            state=one.draft.state + other.draft.state,
            compute=one.draft.compute + other.draft.compute,
        ),
    )
