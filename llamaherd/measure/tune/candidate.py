"""A candidate: keys of an instance with other values, its outcome, and its loss of quality. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from llamaherd.inventory.exact_edits import Setting
from llamaherd.inventory.schema import Instance
from llamaherd.measure.results.result import Recorded
from llamaherd.measure.trials.divergence import Compared, Quality

Value = bool | int | float | str | tuple[float, ...] | None
"""The value of a key as in YAML; None if the key is absent."""


@dataclass(frozen=True)
class Candidate:
    """Keys with dots between levels, such as `draft.mtp`, in alphabetical order: the same keys are the same one."""

    keys: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, keys: Mapping[str, Value]) -> Candidate:
        """Return the candidate with these keys."""
        return cls(tuple(sorted(keys.items(), key=lambda each: each[0])))

    def __getitem__(self, key: str) -> Value:
        return dict(self.keys).get(key)

    def with_keys(self, values: Mapping[str, Value]) -> Candidate:
        """Return the candidate with other values of these keys."""
        return Candidate.of({**dict(self.keys), **values})

    def besides(self, other: Candidate) -> Mapping[str, Value]:
        """Return the keys whose values differ from another candidate's."""
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
    """Return the settings that turn an instance with the `declared` keys into a candidate."""
    changed = candidate.besides(declared)
    gone = [part for part, needs in _PARTS.items() if all(candidate[key] is None for key in needs)]
    found = [
        _setting(key, value) for key, value in changed.items() if key.partition(".")[0] not in gone or "." not in key
    ]
    had = [part for part in gone if any(declared[key] is not None for key in _PARTS[part])]
    return (*found, *(_setting(part, None) for part in had))


def with_keys(instance: Instance, candidate: Candidate) -> Instance:
    """Return the instance with a candidate's keys. Raise ValueError if the model refuses them.

    Unchanged keys stay as they were read: a value such as `45m` is a number of seconds by then, which YAML does not
    allow.
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
    plain = list(value) if isinstance(value, tuple) else value
    shown = "null" if value is None else str(Candidate.of({key: value})).partition("=")[2]
    return Setting(tuple(key.split(".")), plain, f"{key}={shown}")


Why = Literal["memory", "load", "answer", "quality", "draft"]
"""It ran out of memory, did not load, did not respond, lost too much quality, or did not draft as declared."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a candidate: its score, higher being better; or why there is none.

    `spread` is the standard deviation of `score` as a share, if it is known.
    """

    score: float | None
    spread: float | None = None
    why: Why | None = None
    says: str = ""

    @property
    def failed(self) -> bool:
        """Return True if the candidate failed."""
        return self.score is None


@dataclass
class Outcomes:
    """Candidates in the order in which they were tried."""

    outcomes: dict[Candidate, Outcome] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[tuple[Candidate, Outcome]]:
        return iter(self.outcomes.items())

    def add(self, candidate: Candidate, outcome: Outcome) -> None:
        """Keep the outcome of a candidate."""
        self.outcomes[candidate] = outcome

    def best(self, count: int) -> list[Candidate]:
        """Return the best candidates by their scores, best first."""
        scored = [(outcome.score, each) for each, outcome in self if outcome.score is not None]
        return [each for _, each in sorted(scored, key=lambda pair: -pair[0])[:count]]


KV, MODEL = "kv", "model"
PRECISE = ("f32", "f16", "bf16", "q8_0", "q6_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""Types of a cache, those that lose least first."""
_Named = Annotated[str, Field(max_length=200)]


class Limits(Recorded):
    """What a candidate may cost: the most mean divergence, and the least percent of the same likeliest tokens."""

    kld: Annotated[float, Field(gt=0)]
    same_top: Annotated[float, Field(ge=0, le=100)]

    def hold(self, quality: Quality) -> bool:
        """Return whether the means of figures are within the limits."""
        return quality.kld.value <= self.kld and quality.same_top.value >= self.same_top

    def __str__(self) -> str:
        return f"mean KLD up to {self.kld:g}, same top from {self.same_top:g} %"


@dataclass(frozen=True)
class Precision:
    """The precision of a candidate that is to be judged: of its cache, and of its weights if they are others.

    `kv` is empty if the cache is as declared, and of two types. `model` is empty for the declared weights, which are
    their own reference; `beside` names the reference of other weights.
    """

    kv: str
    model: str = ""
    beside: str = ""

    @property
    def exact(self) -> str:
        """The reference that it is compared with."""
        return f"model={self.beside} with kv=f16" if self.model else "f16"

    def __str__(self) -> str:
        words = [f"model={self.model}"] * bool(self.model) + [f"kv={self.kv}"] * bool(self.kv)
        return ", ".join(words)


class Judged(Compared):
    """The judged precision of a candidate, as a line of the journal."""

    line: Literal["judged"] = "judged"
    kv: str
    model: _Named = ""
    beside: _Named = ""

    @property
    def precision(self) -> Precision:
        """The measured precision."""
        return Precision(self.kv, self.model, self.beside)

    def passes(self, limits: Limits) -> bool:
        """Return whether a candidate with this precision may be proposed."""
        return self.quality is not None and limits.hold(self.quality)

    def __str__(self) -> str:
        if self.quality is None:
            return f"{self.precision} could not be judged: {self.says}"
        return f"{self.precision} vs {self.precision.exact}: {self.figures}"


@dataclass(frozen=True)
class Cost:
    """The loss of a candidate whose output may differ from the declared one, once it is judged."""

    precision: Precision
    judged: Judged | None

    def __str__(self) -> str:
        return str(self.judged) if self.judged else f"{self.precision} is not judged"


def precision_of(candidate: Candidate, declared: Candidate, finest: str) -> Precision | None:
    """Return the precision of a coarser cache than the declared one, or of other weights; None for the same precision.

    `finest` names the weights that lose least: with those, and a cache that is no coarser, there is nothing to judge.
    """
    model, kv = candidate[MODEL], _coarser(candidate, declared)
    if model == declared[MODEL]:
        return Precision(kv) if kv else None
    if model == finest and kv is None:
        return None
    return Precision(str(candidate[KV] or ""), str(model), finest)


def _coarser(candidate: Candidate, declared: Candidate) -> str | None:
    """Return the type of a cache that is coarser than the declared one; None if it is not."""
    kv, usual = candidate[KV], declared[KV]
    if kv not in PRECISE or usual not in PRECISE:
        return None
    return str(kv) if PRECISE.index(str(kv)) > PRECISE.index(str(usual)) else None
