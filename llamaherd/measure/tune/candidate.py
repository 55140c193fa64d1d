"""A candidate of a search, its outcome and loss of quality, and the objective that it is scored by. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import fmean
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from llamaherd.inventory.exact_edits import Setting
from llamaherd.inventory.schema import Instance
from llamaherd.measure.bench.series import ANSWERED, SECONDS, response_length
from llamaherd.measure.client.requests import RequestSpec, suite
from llamaherd.measure.results.metrics import ACCEPTED, DECODE, PREFILL, Metric
from llamaherd.measure.results.result import Condition, Count, Kind, NotNegative, Positive, Recorded, Run
from llamaherd.measure.statistics import rate
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
    """The outcome of a candidate: its score, higher being better; or why there is none."""

    score: float | None
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
    their own reference; `reference` names the reference of other weights.
    """

    kv: str
    model: str = ""
    reference: str = ""

    @property
    def exact(self) -> str:
        """The reference that it is compared with."""
        return f"model={self.reference} with kv=f16" if self.model else "f16"

    def __str__(self) -> str:
        words = [f"model={self.model}"] * bool(self.model) + [f"kv={self.kv}"] * bool(self.kv)
        return ", ".join(words)


class Judged(Compared):
    """The judged precision of a candidate, as a line of the journal."""

    line: Literal["judged"] = "judged"
    kv: str
    model: _Named = ""
    beside: _Named = ""

    @classmethod
    def of(cls, precision: Precision, found: Compared) -> Judged:
        """Return what a comparison has found about a precision."""
        named = {"kv": precision.kv, "model": precision.model, "beside": precision.reference}
        return cls.model_validate({**dict(found), **named})

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


Purpose = Literal["decode", "turn", "throughput", "efficiency"]

WEIGHTS: Mapping[Kind, float] = MappingProxyType({"code": 0.6, "prose": 0.4})
"""The share of each kind in the generated text: drafts are accepted most in one, and least in the other."""

TURN_READ, TURN_WRITTEN = 2000, 500
"""Tokens of an agent's turn: new ones of its prompt, and those of its response."""


class Figures(Recorded):
    """The measured figures of a candidate, in tokens a second.

    `decode` is of one request, by kind of text; `total` of all requests at once. `accepted` is the share of drafted
    tokens. `load` are seconds. `written` and `read` are the joules of all GPUs for a token of each, if energy is
    measured, and `together` those for a token of all requests at once.
    """

    decode: dict[Kind, Positive] = Field(default_factory=dict)
    prefill: Positive | None = None
    total: Positive | None = None
    accepted: NotNegative | None = None
    load: NotNegative | None = None
    written: dict[Kind, Positive] = Field(default_factory=dict)
    read: Positive | None = None
    together: Positive | None = None
    runs: Count = 0


class Objective(Recorded):
    """The objective of a search.

    `turn` is that of an agent, `decode` one response, `throughput` that of `streams` requests, and `efficiency` the
    energy of an agent's turn.
    """

    purpose: Purpose = "turn"
    streams: Count = 1

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of text that are generated to measure it."""
        return tuple(WEIGHTS)

    @property
    def reads(self) -> bool:
        """Return True if it depends on the speed of prefill."""
        return self.purpose in ("turn", "efficiency")

    @property
    def of_energy(self) -> bool:
        """Return True if it depends on the energy of GPUs."""
        return self.purpose == "efficiency"

    def score(self, figures: Figures) -> float | None:
        """Return the score, higher is better; None if a figure is missing.

        For `turn`, turns an hour; for `efficiency`, tokens a joule; else tokens a second.
        """
        if self.purpose == "throughput":
            return figures.total
        if self.purpose == "efficiency":
            return _tokens_a_joule(figures)
        if set(WEIGHTS) - set(figures.decode):
            return None
        token = sum(share / figures.decode[kind] for kind, share in WEIGHTS.items())
        if self.purpose == "decode":
            return 1 / token
        return None if figures.prefill is None else 3600 / (TURN_READ / figures.prefill + TURN_WRITTEN * token)

    @property
    def speed(self) -> Objective:
        """The objective that judges speed: `turn` for `efficiency`, else itself."""
        return Objective() if self.of_energy else self

    def joules(self, figures: Figures) -> float | None:
        """Return the joules of a token of this objective; None if they are unknown."""
        if self.purpose == "throughput":
            return figures.together
        if self.purpose == "decode":
            parts = [share * figures.written.get(kind, 0.0) for kind, share in WEIGHTS.items()]
            return sum(parts) if all(parts) else None
        saved = _tokens_a_joule(figures)
        return 1 / saved if saved else None

    def figure(self, score: float) -> str:
        """Return a score as it is shown, without its unit."""
        if self.purpose == "efficiency":
            return f"{1 / score:.3g}"
        return f"{3600 / score:.2f}" if self.purpose == "turn" else f"{score:.1f}"

    @property
    def unit(self) -> str:
        """The unit of the shown figure."""
        return {"turn": "s a turn", "efficiency": "J a token"}.get(self.purpose, "t/s")

    def shown(self, score: float) -> str:
        """Return a score as it is shown."""
        return f"{self.figure(score)} {self.unit}"

    def __str__(self) -> str:
        return {
            "turn": f"one turn: {TURN_READ:,} tokens read, {TURN_WRITTEN} written",
            "decode": "generating one response",
            "throughput": f"generating {self.streams} responses at once",
            "efficiency": f"energy of one turn: {TURN_READ:,} tokens read, {TURN_WRITTEN} written",
        }[self.purpose]


def _tokens_a_joule(figures: Figures) -> float | None:
    """Return tokens a joule of prompt and response together."""
    if figures.read is None or set(WEIGHTS) - set(figures.written):
        return None
    token = sum(share * figures.written[kind] for kind, share in WEIGHTS.items())
    return (TURN_READ + TURN_WRITTEN) / (TURN_READ * figures.read + TURN_WRITTEN * token)


_WRITING, _READING = 1.0, 10.0
"""Seconds of one response, and of one prompt at most, on the declared server.

The speed of prefill depends on the length, up to the size of a batch.
"""
_FEWEST, _MOST = 24, 192
_FIRST_PROMPT, _SHORTEST, _LONGEST = 128, 512, 2048
_SEED = 7
_WARM = 12
_LEAST, _ESTIMATES = 0.1, 8
_MOST_PROMPTS = 16
"""That are read one after the other, so that together they take long enough to measure their energy."""


class Sizes(Recorded):
    """Tokens of a response, and of a prompt that is only read; and the number of such prompts. A line of the journal.

    `prefill` is the speed by which they were chosen, 0 if it is unknown. With `past_end`, end tokens are ignored,
    because responses are longer than the model would make them.
    """

    line: Literal["sizes"] = "sizes"
    written: Count
    read: Count
    prompts: Count = 1
    prefill: NotNegative = 0.0
    past_end: bool = False

    @classmethod
    def of(cls, decode: float, prefill: float, context: int, *, energy: bool = False) -> Sizes:
        """Choose sizes for a server of about this speed, whose requests have so much context.

        `energy`: everything takes long enough for energy counters, which move ten times a second.
        """
        read = min(_LONGEST, max(_SHORTEST, round(prefill * _READING)), context // 2)
        if energy:
            prompts = min(_MOST_PROMPTS, max(1, ceil(SECONDS * prefill / read)))
            written = response_length(SECONDS, decode, context)
            return cls(written=written, read=read, prompts=prompts, prefill=prefill, past_end=True)
        written = min(_MOST, max(_FEWEST, round(decode * _WRITING)))
        return cls(written=min(written, context // 4), read=read, prefill=prefill)


FIRST_SIZES = Sizes(written=_FEWEST, read=_FIRST_PROMPT, past_end=True)
"""The sizes before the speed is known."""


@dataclass(frozen=True)
class Probe:
    """One round of requests. `text` is as long as the prompt, by the server's own tokenizer."""

    aim: Objective
    sizes: Sizes
    text: str

    def conditions(self) -> tuple[Condition, ...]:
        """Return the condition of each request, by its number."""
        written = tuple(self._condition(kind) for kind in self.aim.kinds)
        return (*written, Condition(kind="long", prompt=self.sizes.read, cache="cold")) if self.aim.reads else written

    def warm_up(self) -> RequestSpec:
        """Return the request before all others, which does not count."""
        return RequestSpec(None, suite().prompts["code"][0].text, _WARM, salt=0, more={"seed": _SEED})

    def requests(self, number: int, salts: int | None = None) -> Iterator[RequestSpec]:
        """Yield the requests of a round: the same ones for each candidate.

        `salts` numbers their beginnings, if one server receives the same round more than once.
        """
        salts = number if salts is None else salts
        more = {"ignore_eos": True} if self.sizes.past_end else {}
        for cell, kind in enumerate(self.aim.kinds):
            prompts = suite().prompts[kind]
            text = prompts[number % len(prompts)].text
            yield RequestSpec(cell, text, self.sizes.written, salt=1 + salts, more={"seed": _SEED + number, **more})
        if self.aim.reads:
            for turn in range(self.sizes.prompts):
                salt = 1 + salts * self.sizes.prompts + turn
                yield RequestSpec(len(self.aim.kinds), self.text, ANSWERED, salt=salt, more={"seed": _SEED, **more})

    def _condition(self, kind: Kind) -> Condition:
        return Condition(kind=kind, generated=self.sizes.written, cache="cold")


def figures_of(
    aim: Objective, runs: Sequence[tuple[int, Run]], load: float | None, total: float | None = None
) -> Figures:
    """Compute the figures of rounds of requests: each run has the number of its request."""
    counted = [(cell, run) for cell, run in runs if not run.excluded]
    decode = {}
    for cell, kind in enumerate(aim.kinds):
        if (found := _rate([run for at, run in counted if at == cell], DECODE)) is not None:
            decode[kind] = found
    prefill = _rate([run for at, run in counted if at == len(aim.kinds)], PREFILL) if aim.reads else None
    accepted = _rate([run for _, run in counted], ACCEPTED)
    figures = Figures(decode=decode, prefill=prefill, total=total, accepted=accepted, load=load, runs=len(counted))
    return _with_energy(figures, aim, counted) if aim.of_energy else figures


def _with_energy(figures: Figures, aim: Objective, counted: Sequence[tuple[int, Run]]) -> Figures:
    """Add the joules of a token, generated by kind, and read.

    Each response has a prompt that is read, and each prompt a few tokens that are generated. Their energy by the last
    estimate is subtracted in the next one, which soon converges.
    """
    answers = {kind: _summed([run for at, run in counted if at == cell]) for cell, kind in enumerate(aim.kinds)}
    prompts = _summed([run for at, run in counted if at == len(aim.kinds)])
    if not prompts.known or not all(each.known for each in answers.values()):
        return figures
    read, written = 0.0, dict.fromkeys(answers, 0.0)
    for _ in range(_ESTIMATES):
        written = {kind: each.of_one(each.written, read * each.read) for kind, each in answers.items()}
        read = prompts.of_one(prompts.read, fmean(written.values()) * prompts.written)
    return figures.model_copy(update={"written": written, "read": read})


@dataclass(frozen=True)
class _Usage:
    """The joules of some runs, None if those of one are unknown, and their tokens."""

    joules: float | None
    read: int
    written: int

    @property
    def known(self) -> bool:
        return bool(self.joules and self.read and self.written)

    def of_one(self, tokens: int, others: float) -> float:
        """Return the joules of one of these tokens, less those of the `others`: a tenth of all at least remains."""
        whole = self.joules or 0.0
        return max(whole - others, _LEAST * whole) / tokens


def _summed(runs: Sequence[Run]) -> _Usage:
    known = [run.joules for run in runs if run.joules]
    joules = sum(known) if len(known) == len(runs) else None
    return _Usage(joules, sum(run.prompt_n or 0 for run in runs), sum(run.predicted_n or 0 for run in runs))


def _rate(runs: Sequence[Run], metric: Metric) -> float | None:
    samples = [sample for run in runs if (sample := metric.of(run))]
    return rate(samples) if samples else None
