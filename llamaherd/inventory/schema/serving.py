"""One server instance: its model, placement and endpoint, how it is tuned, and what a change must prove."""

from __future__ import annotations

import re
import shlex
from ipaddress import ip_address
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from llamaherd.inventory.schema.base import Declared, Name, Port, Secret, Watts, wrong
from llamaherd.text.characters import Line, TextLines
from llamaherd.text.numbers import parse_duration, parse_loss, whole_number

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


CacheType = Literal["f32", "f16", "bf16", "q8_0", "q6_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
Backend = Literal["systemd", "compose"]
Split = Literal["none", "layer", "row", "tensor", "graph"]

MOST_INT = 2**31 - 1
"""Engines read these numbers into 32 bits."""

DRAIN_SECONDS = 30
"""What requests in flight are given, where nothing is declared."""


class CacheTypes(Declared):
    """Types of the K and the V cache; `kv: q8_0` sets both."""

    k: CacheType = "f16"
    """Type of the K cache."""
    v: CacheType = "f16"
    """Type of the V cache."""

    @property
    def quantised(self) -> bool:
        """Whether V is quantised, which needs flash attention, or K is."""
        return any(not kind.endswith(("f16", "f32")) for kind in (self.k, self.v))


class Draft(Declared):
    """Speculative decoding: by a prediction head (`mtp: 2`), or by a smaller model (`model: NAME`)."""

    mtp: Annotated[int, Field(ge=1, le=16)] | None = None
    """Tokens to draft at a time with a multi-token prediction head: the model's own, or that in `model`."""
    model: Name | None = None
    """A model of this rig that drafts; with `mtp`, one that is a prediction head in files of its own."""
    max: Annotated[int, Field(ge=1, le=64)] | None = None
    """Tokens to draft at a time with a smaller model. Default: 16."""
    p_min: Annotated[float, Field(ge=0, le=1)] | None = None
    """Stop drafting where what drafts is less sure than this."""

    @model_validator(mode="after")
    def _one_kind(self) -> Draft:
        if self.mtp is None and self.model is None:
            help_ = "add `mtp: 2` for the model's own prediction head, or `model:` and a smaller model of this rig"
            raise wrong("nothing says what drafts", help_)
        if self.mtp is not None and self.max is not None:
            message = "`max` is for a smaller model that drafts; `mtp` says how many tokens a head does"
            raise wrong(message, "leave `max` out", at="max")
        return self

    @property
    def tokens(self) -> int:
        """How many are drafted at a time."""
        return self.mtp or self.max or 16


class Sampling(Declared):
    """How tokens are chosen where a request does not say."""

    temperature: Annotated[float, Field(ge=0, le=5)] | None = None
    """0 takes the likeliest token."""
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Nucleus: the likeliest tokens that make up this much."""
    top_k: Annotated[int, Field(ge=0, le=MOST_INT)] | None = None
    """The k likeliest tokens; 0 for all."""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Least likelihood, relative to the likeliest token."""
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    """Against tokens that have occurred."""
    repeat_penalty: Annotated[float, Field(ge=0, le=10)] | None = None
    """Against repetition; 1 for none."""
    seed: Annotated[int, Field(ge=-1, le=2**32 - 1)] | None = None
    """Of the random numbers; -1 for another one each time."""


def _rate(value: Any) -> Any:
    """Tokens per second of `35 t/s`, `35 tok/s` or 35."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:t/s|tok/s|tokens/s)?\s*", str(value), re.ASCII)
    return float(match[1]) if match and isinstance(value, str) else value


Rate = Annotated[float, BeforeValidator(_rate, json_schema_input_type=str | float), Field(gt=0)]


class Expect(Declared):
    """What its owner saw, or wants to see. `herd verify` fails at half of `decode`; a measurement tells less."""

    decode: Rate | None = None
    """Tokens per second when it answers one request, with the kind of text that it writes fastest."""
    prefill: Rate | None = None
    """Tokens per second when it reads a long prompt."""
    power: Watts | None = None
    """The most power of all its GPUs together, on average while it writes."""


def _share(value: Any) -> Any:
    """`75%`, a number of layers, or `all`, which is `100%`."""
    if value == "all":
        return "100%"
    number = whole_number(value) if isinstance(value, str) else None
    return value if number is None else number


Share = Annotated[
    Annotated[int, Field(ge=0, le=MOST_INT)]
    | Annotated[str, StringConstraints(pattern=r"^(100(\.0{1,4})?|[0-9]{1,2}(\.[0-9]{1,4})?)%$")],
    BeforeValidator(_share, json_schema_input_type=str | int),
]


class Instance(Declared):
    """One server process: engine + model + placement + port."""

    engine: Name
    """An engine of this rig."""
    model: Name
    """A model of this rig. Clients see it under this name."""
    on: tuple[Name, ...] = ()
    """GPUs to run on. Empty: on the CPU."""
    split: Split | None = None
    """How several GPUs share a model: whole layers (`layer`), or every layer between them."""
    tensor_split: tuple[Annotated[float, Field(ge=0)], ...] = ()
    """How much of the model each GPU takes, in proportion, such as `[0.9, 1, 1]`."""
    gpu_layers: Annotated[int, Field(ge=0, le=MOST_INT)] | Literal["all"] | None = None
    """How many layers the GPUs hold, the last ones; `all` where there is a GPU."""
    experts_on_cpu: Share | None = None
    """Of how many layers the CPU computes the experts: `75%`, a number of layers, or `all`."""
    context: Annotated[int, Field(ge=256, le=MOST_INT)]
    """Tokens of context, shared by all slots."""
    kv: CacheTypes = CacheTypes()
    """Types of the cache: one for both, or k and v."""
    batch: Annotated[int, Field(ge=1, le=MOST_INT)] | None = None
    """Tokens of a prompt that are queued at once (`--batch-size`)."""
    ubatch: Annotated[int, Field(ge=1, le=MOST_INT)] | None = None
    """Tokens that are computed at once (`--ubatch-size`); more is faster at prompts and takes memory."""
    parallel: Annotated[int, Field(ge=1, le=1024)] = 1
    """Slots: requests that are answered at once."""
    threads: Annotated[int, Field(ge=1, le=MOST_INT)] | None = None
    """Threads. Default: the performance cores, or all cores."""
    cpus: Annotated[str, StringConstraints(pattern=r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$")] | None = None
    """Logical processors that it may use, such as `0-5,12-17`."""
    numa: Literal["distribute", "isolate", "numactl"] | None = None
    """How memory is spread on a host with several NUMA nodes."""
    flash_attention: Literal["auto", "on", "off"] | None = None
    """Flash attention. Default: `on` with a quantised cache, else `auto`."""
    mmap: bool | None = None
    """Whether the model is mapped (the engine's default) or read into memory."""
    mlock: bool = False
    """Keep the model from being swapped out."""
    warmup: bool | None = None
    """Whether it computes once before it is ready."""
    draft: Draft | None = None
    """Speculative decoding."""
    sampling: Sampling | None = None
    """How tokens are chosen where a request does not say."""
    thinking: bool | None = None
    """Whether the model thinks before it answers. Default: what its chat template does."""
    cache_reuse: Annotated[int, Field(ge=0, le=MOST_INT)] | None = None
    """Least length of a part of an earlier prompt that is used again."""
    expect: Expect | None = None
    """What its owner saw, or wants to see."""
    tune: Tune | None = None
    """What `herd tune` goes by for it."""
    gate: Gate | None = None
    """What a change may cost: how much slower it may become, and how far from what it said."""
    listen: Line = "127.0.0.1"
    """IP address to listen on, or `localhost`."""
    port: Port
    """Port, one per instance."""
    group: Name | None = None
    """Instances of a group are one server at one port, which has the model of one of them loaded at a time."""
    backend: Backend = "systemd"
    """`systemd`: a unit. `compose`: a Docker Compose project."""
    api_key: Secret | None = None
    """Where the key is that clients must send."""
    environment: dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], TextLines] = Field(
        default_factory=dict
    )
    """Environment variables of the server. Not for secrets."""
    extra_args: tuple[TextLines, ...] = ()
    """More arguments, after all others: a list, or a text that is split as a shell does."""
    load_timeout: Annotated[int, Field(ge=5, le=7200)] | None = None
    """Seconds that it may take to load its model."""
    drain: Annotated[int, Field(ge=0, le=3600)] = DRAIN_SECONDS
    """Seconds that requests in flight are given to end before it is stopped for a change."""

    @field_validator("listen")
    @classmethod
    def _address(cls, value: str) -> str:
        if "%" in value:
            alone = value.partition("%")[0]
            help_ = f"write `listen: '{alone}'`, the address alone, or `listen: '::'` for all"
            if alone.lower().startswith("fe80:"):  # not to be bound without it
                help_ = "write another address of the host, or `listen: '::'` for all"
            raise wrong(f"`{value}` names an interface behind `%`", help_)
        try:
            return str(ip_address("127.0.0.1" if value == "localhost" else value))
        except ValueError:
            help_ = "write `listen: 127.0.0.1` for this host alone, or `listen: 0.0.0.0` for every network"
            raise wrong(f"`{value}` is no IP address", help_) from None

    @field_validator("kv", mode="before", json_schema_input_type=CacheType | CacheTypes)
    @classmethod
    def _one_type_for_both(cls, value: Any) -> Any:
        return {"k": value, "v": value} if isinstance(value, str) else value

    @field_validator("extra_args", mode="before", json_schema_input_type=str | list[str])
    @classmethod
    def _as_a_shell_splits(cls, value: Any) -> Any:
        return split_as_shell(value) if isinstance(value, str) else value

    @field_validator("environment", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {k: str(v) if isinstance(v, int | float) and not isinstance(v, bool) else v for k, v in value.items()}

    @model_validator(mode="after")
    def _placed(self) -> Instance:
        if not self.on:
            for key in ("split", "tensor_split", "gpu_layers", "experts_on_cpu"):
                if getattr(self, key) not in (None, ()):
                    message = f"`{key}` needs `on`: without a GPU everything is on the CPU"
                    raise wrong(message, f"name GPUs in `on`, or leave `{key}` out", at=key)
        parts, even = len(self.tensor_split), f"[{', '.join('1' for _ in self.on)}]"
        if parts and parts != len(self.on):
            message = f"`tensor_split` has {parts} parts for {len(self.on)} GPUs in `on`"
            raise wrong(message, f"give each GPU one part, such as `tensor_split: {even}`", at="tensor_split")
        if parts and not any(self.tensor_split):
            help_ = f"write `tensor_split: {even}`, or leave it out"
            raise wrong("`tensor_split` gives no GPU anything", help_, at="tensor_split")
        if len(set(self.on)) < len(self.on):
            raise wrong("`on` names a GPU twice", f"write `on: [{', '.join(dict.fromkeys(self.on))}]`", at="on")
        return self

    @property
    def quality(self) -> Quality | None:
        """What coarser types of its cache may cost; None where none is to be tried."""
        return self.tune.quality if self.tune else None

    @property
    def tried_models(self) -> tuple[str, ...]:
        """Other models that a search may put in the place of its own."""
        return tuple(name for name in (self.tune.models if self.tune else ()) if name != self.model)

    @property
    def tried_limits(self) -> tuple[int, ...]:
        """Power limits that a search tries, in watts."""
        return self.tune.power.watts if self.tune and self.tune.power else ()

    @property
    def judged(self) -> bool:
        """Whether what it says is to be compared with what it says otherwise, by a search or by its gate."""
        return self.quality is not None or (self.gate is not None and self.gate.kld is not None)

    @property
    def moves_experts(self) -> bool:
        """Whether the CPU is to compute some of its experts."""
        return self.experts_on_cpu is not None and float(str(self.experts_on_cpu).rstrip("%")) > 0

    @property
    def loopback(self) -> bool:
        """Whether only this host can reach it."""
        return ip_address(self.listen).is_loopback


def split_as_shell(text: str) -> list[str]:
    """The words of a command line; line ends, escaped or not, separate them. Raises ValueError."""
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError:
        raise ValueError("a quote is opened and not closed") from None
