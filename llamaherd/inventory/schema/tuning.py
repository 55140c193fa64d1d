"""What a search of an instance goes by, and what a change of it must prove."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from llamaherd.inventory.schema.base import Declared, Name, Watts, wrong
from llamaherd.text.units import parse_duration, parse_loss

Duration = Annotated[int, BeforeValidator(parse_duration, json_schema_input_type=str), Field(ge=30, le=6 * 3600)]


def _percent(value: Any) -> Any:
    """Percent of `99%`, `99.5 %` or 99."""
    match = re.fullmatch(r"\s*(\d{1,3}(?:\.\d{1,3})?)\s*%?\s*", str(value), re.ASCII)
    return float(match[1]) if match and isinstance(value, str) else value


class Quality(Declared):
    """The most that a coarser cache than `kv`, or other weights, may cost: beside the same weights with a cache of f16,
    or beside the largest of the models with one."""

    kld: Annotated[float, Field(gt=0, le=1)] = 0.005
    """Mean KL divergence of what the model says next, at most."""
    same_top: Annotated[float, BeforeValidator(_percent, json_schema_input_type=str | float), Field(ge=50, le=100)] = 99
    """Percent of all tokens, at least, for which the likeliest one is the same."""


FEWEST_LIMITS, MOST_LIMITS = 2, 12
"""Power limits that one search can try."""


class PowerLimits(Declared):
    """Power limits that the GPUs of an instance are held to in turn, once its best keys are known."""

    max: Watts
    """The most that each GPU may be held to."""
    min: Watts | None = None
    """The least that is tried. Default: 60 % of `max`."""
    step: Watts | None = None
    """From one limit to the next. Default: a quarter of what lies between."""

    @property
    def watts(self) -> tuple[int, ...]:
        """All of them, from the least on."""
        return (*self._below, self.max)

    @property
    def _below(self) -> range:
        least = self.min or _round_to(5, 0.6 * self.max)
        return range(least, self.max, self.step or max(5, _round_to(5, (self.max - least) / 4)))

    @model_validator(mode="after")
    def _several(self) -> Self:
        if self.min is not None and self.min >= self.max:
            raise wrong(f"`min` is {self.min} W, and `max` is {self.max} W", "write a `min` below `max`", at="min")
        if not FEWEST_LIMITS <= (count := len(self._below) + 1) <= MOST_LIMITS:
            many = f"these are {count} power limits, where {FEWEST_LIMITS} to {MOST_LIMITS} can be tried"
            raise wrong(many, "take another `step`", at="step" if self.step else "max")
        return self


def _round_to(step: int, value: float) -> int:
    return step * round(value / step)


class Tune(Declared):
    """What `herd tune` goes by for it, unless the command says otherwise."""

    for_: Annotated[Literal["turn", "decode", "throughput", "efficiency"], Field(alias="for")] = "turn"
    """What it is to be best at: an agent's turn, one answer, as many at once as it has slots, or a turn's energy."""
    budget: Duration | None = None
    """The longest that a search takes, `30s` to `6h`. Default: `45m`."""
    quality: Quality | None = None
    """What coarser types of the cache and other `models` may cost. Without it, none is tried."""
    models: Annotated[tuple[Name, ...], Field(max_length=8)] = ()
    """Other models of this rig that may take the place of `model`, such as other quants. `herd up` fetches them."""
    power: PowerLimits | None = None
    """Power limits that are tried in the end. Without it, none is."""

    @model_validator(mode="after")
    def _judged(self) -> Self:
        if self.models and self.quality is None:
            raise wrong("nothing says what other models may cost", "add `quality: {kld: 0.02}`", at="models")
        return self


Loss = Annotated[float, BeforeValidator(parse_loss, json_schema_input_type=str)]


class Gate(Declared):
    """What a change may cost: what serves and what is declared are measured, and what costs more is not served."""

    decode: Loss | None = None
    """The most that writing may lose, `-0.5%` to `-50%`."""
    prefill: Loss | None = None
    """The most that reading a prompt may lose."""
    kld: Annotated[float, Field(gt=0, le=1)] | None = None
    """How far what it says may be from what it said: mean KL divergence, at most."""
    budget: Duration | None = None
    """The longest that measuring takes, `30s` to `6h`. Default: `20m`."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.decode is None and self.prefill is None and self.kld is None:
            raise ValueError("it says no limit; write `decode: -3%`, `prefill: -5%`, `kld: 0.02`, or some of them")
        return self
