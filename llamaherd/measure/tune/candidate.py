"""A candidate: keys of an instance with other values, as settings of an inventory, and its outcome when tried. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from llamaherd.inventory.schema import Instance
from llamaherd.inventory.settings import Setting

Value = bool | int | float | str | tuple[float, ...] | None
"""Of a key as YAML has it; None where the key is left out."""


@dataclass(frozen=True)
class Candidate:
    """Keys with dots between levels, such as `draft.mtp`, in alphabetical order: the same keys are the same one."""

    keys: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, keys: Mapping[str, Value]) -> Candidate:
        """The candidate with these keys."""
        return cls(tuple(sorted(keys.items(), key=lambda each: each[0])))

    def __getitem__(self, key: str) -> Value:
        return dict(self.keys).get(key)

    def with_keys(self, values: Mapping[str, Value]) -> Candidate:
        """The same with other values of these keys."""
        return Candidate.of({**dict(self.keys), **values})

    def besides(self, other: Candidate) -> Mapping[str, Value]:
        """The keys that are otherwise here than there."""
        return {key: value for key, value in self.keys if other[key] != value}

    def __str__(self) -> str:
        return ", ".join(f"{key}={_shown(value)}" for key, value in self.keys if value is not None) or "nothing set"


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(f'{each:g}' for each in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


_PARTS = {"draft": ("draft.mtp", "draft.model")}
"""Mappings that mean nothing without one of these keys."""
_TOGETHER = {"on", "split", "tensor_split", "gpu_layers", "experts_on_cpu"}
"""Keys that an instance is refused for together."""


def settings_of(candidate: Candidate, declared: Candidate) -> tuple[Setting, ...]:
    """What is to be said beside the inventory, for an instance that has the keys of `declared`."""
    changed = candidate.besides(declared)
    gone = [part for part, needs in _PARTS.items() if all(candidate[key] is None for key in needs)]
    found = [
        _setting(key, value) for key, value in changed.items() if key.partition(".")[0] not in gone or "." not in key
    ]
    had = [part for part in gone if any(declared[key] is not None for key in _PARTS[part])]
    return (*found, *(_setting(part, None) for part in had))


def with_keys(instance: Instance, candidate: Candidate) -> Instance:
    """The instance with a candidate's keys. Raises ValueError, as its model does.

    What it does not change stays as it was read: `45m` is seconds by then, which nobody may write.
    """
    touched = {key.partition(".")[0] for key, _ in candidate.keys} | _TOGETHER
    kept = {name: getattr(instance, name) for name in Instance.model_fields if name not in touched}
    required = {name for name, field in Instance.model_fields.items() if field.is_required()}
    data: dict[str, Any] = instance.model_dump(exclude_none=True, exclude=kept.keys() - required)
    for key, value in candidate.keys:
        part, _, last = key.rpartition(".")
        at = data.setdefault(part, {}) if part else data
        if value is None:
            at.pop(last, None)
        else:
            at[last] = value
    for part, needs in _PARTS.items():
        if all(candidate[key] is None for key in needs if key in dict(candidate.keys)):
            data.pop(part, None)
    return Instance.model_validate(data).model_copy(update=kept)


def _setting(key: str, value: Value) -> Setting:
    said = list(value) if isinstance(value, tuple) else value
    shown = "null" if value is None else str(Candidate.of({key: value})).partition("=")[2]
    return Setting(tuple(key.split(".")), said, f"{key}={shown}")


Why = Literal["memory", "load", "answer", "quality", "draft"]
"""It ran out of memory, did not load, gave no answer, fell below the limit of quality, or did not draft as asked."""


@dataclass(frozen=True)
class Outcome:
    """What came of a candidate: how good it is, higher being better; or why there is no such figure.

    `spread` is the standard deviation of `score` as a share, where it is known.
    """

    score: float | None
    spread: float | None = None
    why: Why | None = None
    says: str = ""

    @property
    def failed(self) -> bool:
        """Whether it is no candidate any more."""
        return self.score is None


@dataclass
class Trials:
    """Candidates in the order in which they were tried."""

    outcomes: dict[Candidate, Outcome] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[tuple[Candidate, Outcome]]:
        return iter(self.outcomes.items())

    def add(self, candidate: Candidate, outcome: Outcome) -> None:
        """Keep what came of a candidate."""
        self.outcomes[candidate] = outcome

    def best(self, count: int) -> list[Candidate]:
        """The best ones by what was seen of them, best first."""
        scored = [(outcome.score, each) for each, outcome in self if outcome.score is not None]
        return [each for _, each in sorted(scored, key=lambda pair: -pair[0])[:count]]
