"""One way to serve an instance: keys of its inventory, with values that are not those declared. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
