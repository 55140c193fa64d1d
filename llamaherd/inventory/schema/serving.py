"""A server instance: its model, placement and endpoint, its tuning, and the limits of its gate."""

from __future__ import annotations

import re
import shlex
from ipaddress import ip_address
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from llamaherd.inventory.schema.base import Declared, Name, Port, Secret, Watts, wrong
from llamaherd.text.numbers import parse_duration, parse_loss, whole_number
from llamaherd.text.quoting import Line, TextLines

Duration = Annotated[int, BeforeValidator(parse_duration, json_schema_input_type=str), Field(ge=30, le=6 * 3600)]


def _percent(value: Any) -> Any:
    """Parse the percent of `99%`, `99.5 %` or 99."""
    match = re.fullmatch(r"\s*(\d{1,3}(?:\.\d{1,3})?)\s*%?\s*", str(value), re.ASCII)
    return float(match[1]) if match and isinstance(value, str) else value


class Quality(Declared):
    """The allowed loss in quality of a cache coarser than `kv`, or of other weights.

    It is compared with the same weights, or the largest of the models, with a cache of f16.
    """

    kld: Annotated[float, Field(gt=0, le=1)] = 0.005
    """The largest mean KL divergence of the next token."""
    same_top: Annotated[float, BeforeValidator(_percent, json_schema_input_type=str | float), Field(ge=50, le=100)] = 99
    """The smallest percentage of tokens for which the likeliest token is the same."""


FEWEST_LIMITS, MOST_LIMITS = 2, 12
"""The fewest and most power limits of a search."""


class PowerLimits(Declared):
    """Power limits that a search measures with its best settings."""

    max: Watts
    """The highest limit of each GPU."""
    min: Watts | None = None
    """The lowest limit. Default: 60 % of `max`."""
    step: Watts | None = None
    """The step between limits. Default: a quarter of the range."""

    @property
    def watts(self) -> tuple[int, ...]:
        """Return all limits, lowest first."""
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
    """The defaults of `herd tune` for an instance."""

    for_: Annotated[Literal["turn", "decode", "throughput", "efficiency"], Field(alias="for")] = "turn"
    """The objective: the turn of an agent, one response, parallel responses in all slots, or the energy per turn."""
    budget: Duration | None = None
    """The longest duration of a search, `30s` to `6h`. Default: `45m`."""
    quality: Quality | None = None
    """The allowed loss in quality of lossy cache types and other `models`. Default: none is tried."""
    models: Annotated[tuple[Name, ...], Field(max_length=8)] = ()
    """Other models of this rig that can replace `model`, such as other quants. `herd up` fetches them."""
    power: PowerLimits | None = None
    """Power limits that are measured at the end. Default: none."""

    @model_validator(mode="after")
    def _judged(self) -> Self:
        if self.models and self.quality is None:
            raise wrong("other models have no limit of their cost", "add `quality: {kld: 0.02}`", at="models")
        return self


Loss = Annotated[float, BeforeValidator(parse_loss, json_schema_input_type=str)]


class Gate(Declared):
    """The allowed loss of a change: both servers are measured, and a larger loss is rolled back."""

    decode: Loss | None = None
    """The largest loss of decode speed, `-0.5%` to `-50%`."""
    prefill: Loss | None = None
    """The largest loss of prefill speed."""
    kld: Annotated[float, Field(gt=0, le=1)] | None = None
    """The largest mean KL divergence between new and old output."""
    budget: Duration | None = None
    """The longest duration of the measurement, `30s` to `6h`. Default: `20m`."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.decode is None and self.prefill is None and self.kld is None:
            raise ValueError("it has no limit; write `decode: -3%`, `prefill: -5%`, `kld: 0.02`, or some of them")
        return self


SHORTEST_IDLE, LONGEST_IDLE = 60, 48 * 3600
"""Seconds. Each load takes seconds: a shorter time costs more than it frees."""

IdleTime = Annotated[
    int, BeforeValidator(parse_duration, json_schema_input_type=str), Field(ge=SHORTEST_IDLE, le=LONGEST_IDLE)
]


class Idle(Declared):
    """What a server does while it gets no requests."""

    unload: IdleTime
    """The time without a request after which the server unloads its model, `1m` to `48h`. The next request loads it."""


CacheType = Literal["f32", "f16", "bf16", "q8_0", "q6_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
Backend = Literal["systemd", "compose"]
Task = Literal["chat", "embeddings", "rerank"]
"""What clients request of a server: completions, vectors of texts, or scores of documents."""
Split = Literal["none", "layer", "row", "tensor", "graph"]

MOST_INT = 2**31 - 1
"""Engines store these numbers in 32 bits."""

DRAIN_SECONDS = 30
"""The default time for running requests, in seconds."""


class CacheTypes(Declared):
    """Types of the K and the V cache; `kv: q8_0` sets both."""

    k: CacheType = "f16"
    """Type of the K cache."""
    v: CacheType = "f16"
    """Type of the V cache."""

    @property
    def quantised(self) -> bool:
        """Return whether K or V is quantised. A quantised V requires flash attention."""
        return any(not kind.endswith(("f16", "f32")) for kind in (self.k, self.v))


class Draft(Declared):
    """Speculative decoding: by a prediction head (`mtp: 2`), or by a smaller model (`model: NAME`)."""

    mtp: Annotated[int, Field(ge=1, le=16)] | None = None
    """Tokens per draft with a multi-token prediction head: the model's own, or that in `model`."""
    model: Name | None = None
    """The draft model, of this rig; with `mtp`, a prediction head in separate files."""
    max: Annotated[int, Field(ge=1, le=64)] | None = None
    """Tokens per draft with a smaller model. Default: 16."""
    p_min: Annotated[float, Field(ge=0, le=1)] | None = None
    """Stop drafting when the draft's probability is lower."""

    @model_validator(mode="after")
    def _one_kind(self) -> Draft:
        if self.mtp is None and self.model is None:
            help_ = "add `mtp: 2` for the model's own prediction head, or `model:` and a smaller model of this rig"
            raise wrong("the draft has no model", help_)
        if self.mtp is not None and self.max is not None:
            message = "`max` is for a smaller draft model; for a prediction head, `mtp` is the number of tokens"
            raise wrong(message, "leave `max` out", at="max")
        return self

    @property
    def tokens(self) -> int:
        """Return the tokens per draft."""
        return self.mtp or self.max or 16


class Sampling(Declared):
    """The default sampling of requests."""

    temperature: Annotated[float, Field(ge=0, le=5)] | None = None
    """Temperature; 0 selects the likeliest token."""
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Nucleus: the likeliest tokens with this total probability."""
    top_k: Annotated[int, Field(ge=0, le=MOST_INT)] | None = None
    """The k likeliest tokens; 0 for all."""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """The lowest probability, relative to the likeliest token."""
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    """Penalty for tokens that have occurred."""
    repeat_penalty: Annotated[float, Field(ge=0, le=10)] | None = None
    """Penalty for repetition; 1 for none."""
    seed: Annotated[int, Field(ge=-1, le=2**32 - 1)] | None = None
    """Seed of the random numbers; -1 for a new one each time."""


def _rate(value: Any) -> Any:
    """Parse the tokens per second of `35 t/s`, `35 tok/s` or 35."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:t/s|tok/s|tokens/s)?\s*", str(value), re.ASCII)
    return float(match[1]) if match and isinstance(value, str) else value


Rate = Annotated[float, BeforeValidator(_rate, json_schema_input_type=str | float), Field(gt=0)]


class Expect(Declared):
    """The expected performance. `herd verify` fails below half of `decode`; a measurement reports smaller losses."""

    decode: Rate | None = None
    """Decode speed of one request, with its fastest kind of text, in tokens per second."""
    prefill: Rate | None = None
    """Prefill speed of a long prompt, in tokens per second."""
    power: Watts | None = None
    """The highest average power of all its GPUs together during decode."""


def _share(value: Any) -> Any:
    """Parse `75%`, a number of layers, or `all`, which is `100%`."""
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
    """How several GPUs share a model: whole layers (`layer`), or parts of every layer."""
    tensor_split: tuple[Annotated[float, Field(ge=0)], ...] = ()
    """The proportions of the model on each GPU, such as `[0.9, 1, 1]`."""
    gpu_layers: Annotated[int, Field(ge=0, le=MOST_INT)] | Literal["all"] | None = None
    """The number of layers on GPUs, from the last. Default: `all` with a GPU."""
    experts_on_cpu: Share | None = None
    """The layers whose experts run on the CPU: `75%`, a number of layers, or `all`."""
    context: Annotated[int, Field(ge=256, le=MOST_INT)]
    """Tokens of context, shared by all slots."""
    kv: CacheTypes = CacheTypes()
    """Types of the cache: one for both, or k and v."""
    batch: Annotated[int, Field(ge=1, le=MOST_INT)] | None = None
    """Tokens of a prompt per batch (`--batch-size`)."""
    ubatch: Annotated[int, Field(ge=1, le=MOST_INT)] | None = None
    """Tokens per computation (`--ubatch-size`): more makes prefill faster and uses more memory."""
    parallel: Annotated[int, Field(ge=1, le=1024)] = 1
    """Slots: the number of parallel requests."""
    threads: Annotated[int, Field(ge=1, le=MOST_INT)] | None = None
    """Threads. Default: the performance cores, or all cores."""
    cpus: Annotated[str, StringConstraints(pattern=r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$")] | None = None
    """The logical processors to use, such as `0-5,12-17`."""
    numa: Literal["distribute", "isolate", "numactl"] | None = None
    """How memory is spread on a host with several NUMA nodes."""
    flash_attention: Literal["auto", "on", "off"] | None = None
    """Flash attention. Default: `on` with a quantised cache, else `auto`."""
    mmap: bool | None = None
    """Whether the model is mapped (the engine's default) or read into memory."""
    mlock: bool = False
    """Lock the model in memory, so that it is not swapped out."""
    warmup: bool | None = None
    """Whether the server runs one computation before it is ready."""
    draft: Draft | None = None
    """Speculative decoding."""
    sampling: Sampling | None = None
    """The default sampling of requests."""
    thinking: bool | None = None
    """Whether the model thinks before its response. Default: what its chat template does."""
    cache_reuse: Annotated[int, Field(ge=0, le=MOST_INT)] | None = None
    """The shortest part of an earlier prompt that is reused, in tokens."""
    idle: Idle | None = None
    """What the server does while it gets no requests."""
    serve: Task = "chat"
    """What clients request: completions, vectors of texts (`embeddings`), or scores of documents (`rerank`)."""
    pooling: Literal["mean", "cls", "last"] | None = None
    """How the vectors of a text's tokens become one. Default: the type in the model's header."""
    expect: Expect | None = None
    """The expected performance."""
    tune: Tune | None = None
    """The defaults of `herd tune`."""
    gate: Gate | None = None
    """The allowed loss of a change in speed and in quality."""
    listen: Line = "127.0.0.1"
    """IP address to listen on, or `localhost`."""
    port: Port
    """Port, one per instance."""
    group: Name | None = None
    """Instances of a group share one server and port, which loads the model of one of them at a time."""
    backend: Backend = "systemd"
    """`systemd`: a unit. `compose`: a Docker Compose project."""
    api_key: Secret | None = None
    """The API key that clients must send."""
    environment: dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], TextLines] = Field(
        default_factory=dict
    )
    """Environment variables of the server. Not for secrets."""
    extra_args: tuple[TextLines, ...] = ()
    """More arguments, after all others: a list, or a text that is split like a shell command."""
    load_timeout: Annotated[int, Field(ge=5, le=7200)] | None = None
    """The most seconds to load its model."""
    drain: Annotated[int, Field(ge=0, le=3600)] = DRAIN_SECONDS
    """The seconds for running requests to finish before a change stops the server."""

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
        if self.pooling is not None and self.serve != "embeddings":
            help_ = "write `serve: embeddings`, or leave `pooling` out"
            raise wrong("`pooling` is for a server of embeddings", help_, at="pooling")
        if len(set(self.on)) < len(self.on):
            raise wrong("`on` names a GPU twice", f"write `on: [{', '.join(dict.fromkeys(self.on))}]`", at="on")
        return self

    @property
    def quality(self) -> Quality | None:
        """Return the allowed loss of lossy cache types; None if none is tried."""
        return self.tune.quality if self.tune else None

    @property
    def tried_models(self) -> tuple[str, ...]:
        """Return other models that a search can use instead of its own."""
        return tuple(name for name in (self.tune.models if self.tune else ()) if name != self.model)

    @property
    def tried_limits(self) -> tuple[int, ...]:
        """Return the power limits of a search, in watts."""
        return self.tune.power.watts if self.tune and self.tune.power else ()

    @property
    def judged(self) -> bool:
        """Return whether a search or its gate compares its output."""
        return self.quality is not None or (self.gate is not None and self.gate.kld is not None)

    @property
    def moves_experts(self) -> bool:
        """Return whether some of its experts run on the CPU."""
        return self.experts_on_cpu is not None and float(str(self.experts_on_cpu).rstrip("%")) > 0

    @property
    def loopback(self) -> bool:
        """Return whether only this host can reach it."""
        return ip_address(self.listen).is_loopback


def split_as_shell(text: str) -> list[str]:
    """Return the words of a command line. Line ends, escaped or not, separate words. Raise ValueError."""
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError:
        raise ValueError("a quote is opened and not closed") from None
