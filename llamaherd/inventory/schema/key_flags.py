"""The keys of an instance that become flags of its server: one row per key, with its spelling for each engine.

Examples of the JSON Schemas, the arguments of servers, the checks of `extra_args`, the keys that `herd check` suggests
for a recipe and the table in docs/inventory.md are derived from these rows. Their order is the order of the arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from typing import Any, Protocol

from llamaherd.inventory.schema.serving import LONGEST_IDLE, SHORTEST_IDLE, Draft, Instance, Sampling
from llamaherd.text.numbers import parse_json

LLAMA, IK, VLLM = "llama.cpp", "ik_llama.cpp", "vllm"

Words = tuple[str, ...]


class Settings(dict[str, Any]):
    """Values by key, of a flag that sets several keys or none. A dot separates the parts of a key: `kv.k`.

    `draft.own`, `draft.count` and `draft.path` are parts of `draft` that only all flags together decide on.
    """


class Flags(Protocol):
    """The flags of one version of an engine."""

    def knows(self, spelling: str, /) -> bool:
        """Return whether it has this flag."""
        ...

    def accepts(self, spelling: str, value: str, /) -> bool:
        """Return whether it has this flag and accepts this value."""
        ...


class Served(Protocol):
    """The settings of one server, and the flags of its engine's version."""

    @property
    def declared(self) -> Instance:
        """The instance of the inventory."""
        ...

    @property
    def flags(self) -> Flags:
        """The flags of the engine's version."""
        ...

    @property
    def draft_path(self) -> str | None:
        """The path of the model that drafts, if it is another one."""
        ...


Writer = Callable[[Any, Served], Words]
Reader = Callable[[str], Any]
"""Return the value of the key, or Settings; None for a text that no key can express."""


@dataclass(frozen=True, kw_only=True)
class Spelling:
    """How one engine spells a key on its command line."""

    write: Writer | None = None
    """Return the arguments for a value of the key. None: the flag of `values` with the value, or the switch of that
    value, if there is one; and `always`."""
    always: Words = ()
    """Flags that every server gets."""
    values: Mapping[str, Reader] = field(default_factory=dict)
    """Flags that take a value, each with its reader."""
    switches: Mapping[str, Any] = field(default_factory=dict)
    """Flags without a value, each with the value of the key, or Settings."""
    partial: frozenset[str] = frozenset()
    """Those of the flags whose other values no key can express."""
    shown: str = ""
    """The cell of docs/inventory.md; empty for the flags alone."""

    @property
    def flags(self) -> Words:
        """All flags, first those that take a value."""
        return (*self.values, *self.switches)


@dataclass(frozen=True)
class KeyFlag:
    """One key and its spelling for each engine that has a flag for it."""

    key: str
    """As in an instance, `kv.k` for a part; empty for flags that every server gets."""
    spelled: Mapping[str, Spelling]
    """By the kind of engine."""
    _: KW_ONLY
    source: str = ""
    """The attribute of a server that holds the value, where it is not the declared one."""
    example: str = ""
    """A value as YAML on one line."""
    title: str = ""
    """The first cell in docs/inventory.md, where it is not the key."""
    wired: str = ""
    """Why the flag in `extra_args` breaks the rig, also where the key is not set."""
    limited: bool = True
    """Whether `herd check` reports that a version cannot do it. False where another check reports that, or every
    version can."""

    @property
    def top(self) -> str:
        """The key of the instance; `kv` of `kv.k`."""
        return self.key.partition(".")[0]

    @property
    def schema_field(self) -> str:
        """The model and the field of the schema: `CacheTypes.k`."""
        _, _, inner = self.key.partition(".")
        return f"{_PARTS[self.top]}.{inner}" if inner else f"Instance.{self.key}"


_PARTS: Mapping[str, str] = {"kv": "CacheTypes", "draft": "Draft", "sampling": "Sampling", "idle": "Idle"}
"""The models of keys that have parts."""


# --- values ---


def number(text: str) -> int | float | str:
    """Return the number that a text contains, or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _threads(text: str) -> Any:
    """Return the number of threads; none for 0 and less, which start a thread for every logical processor."""
    value = number(text)
    return Settings() if isinstance(value, int | float) and value <= 0 else value


def _on_or_off(text: str) -> str:
    return {"1": "on", "true": "on", "enabled": "on", "0": "off", "false": "off", "disabled": "off"}.get(text, text)


def _shares(text: str) -> list[int | float | str]:
    return [number(part) for part in re.split(r"[,/]", text)]


def _object(text: str) -> dict[str, Any]:
    """Return a JSON object; empty for any other text."""
    try:
        value = parse_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


# --- spellings of one key ---


def _valued(flag: str, *, read: Reader = number) -> Spelling:
    """Return the spelling by one flag with a value."""
    return Spelling(values={flag: read})


def _named(flag: str) -> Spelling:
    """Return the spelling by one flag whose value is a word, even if it consists of digits."""
    return _valued(flag, read=str)


def _constant(*flags: str, default: Words = ()) -> Spelling:
    """Return the spelling of flags that every server gets. The engine's `default` flags need not be written."""
    shown = ", ".join(f"`{flag}`" for flag in flags)
    return Spelling(always=flags, switches=dict.fromkeys((*flags, *default), Settings()), shown=shown)


# --- the model, attention, GPUs and experts ---


def _model(*hub: str) -> Spelling:
    """Return the spelling of the model's path. The flags for a repository of a hub are only read."""
    return Spelling(
        values=dict.fromkeys(("--model", *hub), str),
        partial=frozenset(hub),
        shown="`--model`",
    )


MOST_GPUS = 64
"""The most GPUs that a flag is believed to mean."""


def _devices(text: str) -> Settings:
    return Settings({"on": 0 if text == "none" else min(text.count(",") + 1, MOST_GPUS)})


def _count_of_gpus(text: str) -> Settings | None:
    count = number(text)
    return Settings({"on": count}) if isinstance(count, int) and 1 <= count <= MOST_GPUS else None


def _write_flash_attention(wanted: str | None, server: Served) -> Words:
    """Return llama.cpp's flag: a quantised cache needs `on`."""
    return ("--flash-attn", wanted or ("on" if server.declared.kv.quantised else "auto"))


_FLASH_ATTENTION = Spelling(write=_write_flash_attention, values={"--flash-attn": _on_or_off})
_IK_FLASH_ATTENTION = Spelling(
    write=lambda wanted, _server: ("--flash-attn", "off" if wanted == "off" else "on"),
    values={"--flash-attn": _on_or_off},
    shown="`--flash-attn`, on unless `off`",
)
_TENSOR_SPLIT = Spelling(
    write=lambda shares, _server: ("--tensor-split", ",".join(f"{share:g}" for share in shares)) if shares else (),
    values={"--tensor-split": _shares},
)
_PROJECTOR = Spelling(
    values={"--mmproj": lambda _text: None},
    partial=frozenset({"--mmproj"}),
)
_DEVICES = Spelling(write=lambda _value, _server: (), values={"--device": _devices}, shown="`CUDA_VISIBLE_DEVICES`")
_TENSOR_PARALLEL = Spelling(
    write=lambda gpus, _server: ("--tensor-parallel-size", str(len(gpus))) if len(gpus) > 1 else (),
    values={"--tensor-parallel-size": _count_of_gpus},
)


def _layers(flag: str, whole: str) -> Spelling:
    """Return the spelling of the layers on GPUs; 99 and more is how people write `all`."""

    def read(text: str) -> int | float | str:
        value = number(text)
        return "all" if isinstance(value, int) and value >= 99 else value

    def write(value: Any, server: Served) -> Words:
        if not server.declared.on:
            return ()
        return (flag, whole if value in (None, "all") else str(value))

    return Spelling(write=write, values={flag: read})


_ALL_EXPERTS = re.compile(r"(?:\\?\.?(?:ffn_)?[.*]*_?)?exps(?:\\?\.(?:weight)?)?=CPU")
_EXPERTS = Spelling(
    write=lambda value, _server: ("--override-tensor", ",".join(value)) if value else (),
    values={
        "--override-tensor": lambda text: "all" if _ALL_EXPERTS.fullmatch(text) else None,
        "--n-cpu-moe": number,
    },
    switches={"--cpu-moe": "all"},
    partial=frozenset({"--override-tensor"}),
    shown="`--override-tensor`",
)


# --- loading ---

_LOAD_MODES: Mapping[str, Settings] = {
    "none": Settings(mmap=False),
    "mmap": Settings(mmap=True),
    "mlock": Settings(mmap=False, mlock=True),
    "mmap+mlock": Settings(mmap=True, mlock=True),
}


def _write_load_mode(mapped: Any, server: Served) -> Words:
    """Return one flag since July 2026 (PR #20834), a switch before."""
    if not server.flags.knows("--load-mode"):
        return ("--no-mmap",) if mapped is False else ()
    if server.declared.mlock:
        return ("--load-mode", "mlock" if mapped is False else "mmap+mlock")
    return () if mapped is None else ("--load-mode", "mmap" if mapped else "none")


_LOAD_MODE = Spelling(
    write=_write_load_mode,
    values={"--load-mode": lambda text: _LOAD_MODES.get(text)},
    switches={"--no-mmap": False, "--mmap": True},
    shown="`--load-mode`",
)
_LOCK = Spelling(
    write=lambda locked, server: ("--mlock",) if locked and not server.flags.knows("--load-mode") else (),
    switches={"--mlock": True},
    shown="`--load-mode`",
)
_WARMUP = Spelling(
    # The default need not be written.
    switches={"--no-warmup": False, "--warmup": Settings(warmup=True)},
    shown="`--no-warmup`",
)


# --- drafting ---


def _draft_type(text: str) -> Settings | None:
    """Read `--spec-type` of llama.cpp."""
    return {"draft-mtp": Settings({"draft.own": True}), "draft-simple": Settings({"draft.own": False})}.get(text)


def _draft_stage(text: str) -> Settings | None:
    """Read `--spec-type` of ik_llama.cpp: `mtp:n_max=2,p_min=0.5`."""
    name, _, rest = text.partition(":")
    settings = dict(part.partition("=")[::2] for part in rest.split(",") if part)
    if name not in ("mtp", "draft") or not settings.keys() <= {"n_max", "p_min"}:
        return None
    found = Settings({"draft.own": name == "mtp"})
    if name == "mtp" or "n_max" in settings:
        found["draft.count"] = number(settings.get("n_max", "1"))
    if "p_min" in settings:
        found["draft.p_min"] = number(settings["p_min"])
    return found


def _draft_layers(text: str) -> Settings | None:
    """Read the layers on GPUs of the model that drafts; llamaherd always puts all of them there."""
    value = number(text)
    return Settings() if value == "all" or (isinstance(value, int) and value >= 99) else None


def _draft_part(part: str) -> Reader:
    return lambda text: Settings({f"draft.{part}": text if part == "path" else number(text)})


def _draft_values(spec_type: Reader, *, count: Words, p_min: str, path: str, layers: str) -> Mapping[str, Reader]:
    """Return the readers of the flags that set a part of `draft`."""
    parts = {**dict.fromkeys(count, "count"), p_min: "p_min", path: "path"}
    return {
        "--spec-type": spec_type,
        **{flag: _draft_part(part) for flag, part in parts.items()},
        layers: _draft_layers,
    }


def _write_draft(draft: Draft | None, server: Served) -> Words:
    """Return llama.cpp's arguments of a draft."""
    if draft is None:
        return ()
    # In b9093 a model of its own drafts once it is named; since b9246 it drafts nothing without its type.
    kind = "draft-mtp" if draft.mtp else "draft-simple"
    most = "--spec-draft-n-max" if server.flags.knows("--spec-draft-n-max") else "--draft-max"
    least = "--spec-draft-p-min" if server.flags.knows("--spec-draft-p-min") else "--draft-p-min"
    return (
        *(("--spec-type", kind) if draft.mtp or server.flags.accepts("--spec-type", kind) else ()),
        *(most, str(draft.tokens)),
        *(() if draft.p_min is None else (least, str(draft.p_min))),
        *(("--spec-draft-model", server.draft_path) if server.draft_path else ()),
        *(("--spec-draft-ngl", "all") if server.draft_path and server.declared.on else ()),
    )


def _write_ik_draft(draft: Draft | None, server: Served) -> Words:
    """Return ik_llama.cpp's arguments of a draft: it had three spellings in 2026, and the pinned version decides."""
    if draft is None:
        return ()
    model = ("--model-draft", server.draft_path) if server.draft_path else ()
    layers = ("--n-gpu-layers-draft", "999") if server.draft_path and server.declared.on else ()
    if server.flags.knows("-mtp"):
        head = ("-mtp",) if draft.mtp else ()
        least = () if draft.p_min is None else ("--draft-p-min", str(draft.p_min))
        return (*head, "--draft-max", str(draft.tokens), *least, *model, *layers)
    kind = "mtp" if draft.mtp else "draft"
    sure = "" if draft.p_min is None else f",p_min={draft.p_min:g}"
    return ("--spec-type", f"{kind}:n_max={draft.tokens}{sure}", *model, *layers)


def _write_vllm_draft(draft: Draft | None, _server: Served) -> Words:
    if draft is None or draft.mtp is None:
        return ()
    return ("--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": draft.mtp}))


def _speculative_config(text: str) -> Settings | None:
    settings = _object(text)
    if settings.keys() != {"method", "num_speculative_tokens"} or settings["method"] != "mtp":
        return None
    return Settings({"draft.own": True, "draft.count": settings["num_speculative_tokens"]})


_DRAFT = Spelling(
    write=_write_draft,
    values=_draft_values(
        _draft_type,
        count=("--spec-draft-n-max", "--draft-max"),
        p_min="--spec-draft-p-min",
        path="--spec-draft-model",
        layers="--spec-draft-ngl",
    ),
    shown="`--spec-type draft-mtp`, `--spec-draft-n-max`, `--spec-draft-p-min`; with `model`: "
    "`--spec-type draft-simple`, `--spec-draft-model`, `--spec-draft-ngl`",
)
_IK_DRAFT = Spelling(
    write=_write_ik_draft,
    values=_draft_values(
        _draft_stage,
        count=("--draft-max",),
        p_min="--draft-p-min",
        path="--model-draft",
        layers="--n-gpu-layers-draft",
    ),
    switches={"-mtp": Settings({"draft.own": True})},
    shown="`--spec-type mtp:n_max=2,p_min=0.5`; with `model`: `--spec-type draft:n_max=16`, `--model-draft`, "
    "`--n-gpu-layers-draft`",
)
_VLLM_DRAFT = Spelling(
    write=_write_vllm_draft,
    values={"--speculative-config": _speculative_config},
    partial=frozenset({"--speculative-config"}),
)


# --- sampling and thinking ---

_GENERATION = {"repeat_penalty": "repetition_penalty"}
"""Keys of `sampling` that vLLM calls otherwise."""


def _write_generation(sampling: Sampling | None, _server: Served) -> Words:
    """Return vLLM's sampling defaults. Renamed keys come last, as running servers have them."""
    given = sampling.model_dump(exclude_none=True) if sampling else {}
    for key, name in _GENERATION.items():
        if key in given:
            given[name] = given.pop(key)
    return ("--override-generation-config", json.dumps(given)) if given else ()


def _generation(text: str) -> Settings | None:
    keys = {name: key for key in Sampling.model_fields if (name := _GENERATION.get(key, key))}
    given = _object(text)
    if not given or not given.keys() <= keys.keys():
        return None
    return Settings({f"sampling.{keys[name]}": value for name, value in given.items()})


def _enable_thinking(text: str) -> bool | None:
    settings = _object(text)
    return bool(settings["enable_thinking"]) if list(settings) == ["enable_thinking"] else None


def _write_thinking(wanted: bool | None, server: Served) -> Words:
    """Return a flag of its own, or before there was one, an argument of the chat template."""
    if wanted is None:
        return ()
    if server.flags.knows("--reasoning"):
        return ("--reasoning", "on" if wanted else "off")
    return ("--chat-template-kwargs", json.dumps({"enable_thinking": wanted}))


def _idle_time(text: str) -> Settings | str | None:
    """Read `--sleep-idle-seconds`: -1 is never."""
    seconds = number(text)
    if not isinstance(seconds, int) or not (seconds == -1 or SHORTEST_IDLE <= seconds <= LONGEST_IDLE):
        return None
    if seconds == -1:
        return Settings()
    return f"{seconds}s" if seconds % 60 else f"{seconds // 60}m"


_THINKING = Spelling(
    write=_write_thinking,
    values={
        "--reasoning": lambda text: {"on": True, "off": False}.get(_on_or_off(text)),
        "--reasoning-budget": lambda text: False if text == "0" else None,
        "--chat-template-kwargs": _enable_thinking,
    },
    partial=frozenset({"--reasoning-budget", "--chat-template-kwargs"}),
    shown="`--reasoning`",
)


_VLLM_THINKING = Spelling(
    write=lambda wanted, _server: (
        () if wanted is None else ("--default-chat-template-kwargs", json.dumps({"enable_thinking": wanted}))
    ),
    values={"--default-chat-template-kwargs": _enable_thinking},
    partial=frozenset({"--default-chat-template-kwargs"}),
)
# --- embeddings and rerank ---


def _write_task(task: str, server: Served) -> Words:
    """Return the switch of a task; none for rerank with ik_llama.cpp, which has no such server."""
    if task == "embeddings":
        return ("--embeddings",)
    return ("--reranking",) if task == "rerank" and server.flags.knows("--reranking") else ()


_EMBEDS = Settings({"serve.embeds": True})
_RANKS = Settings({"serve.embeds": True, "serve.ranks": True})
_TASK = Spelling(
    write=_write_task, switches={"--embeddings": _EMBEDS, "--reranking": _RANKS}, shown="`--embeddings`, `--reranking`"
)
_IK_TASK = Spelling(write=_write_task, switches={"--embeddings": _EMBEDS})
_VLLM_TASK = Spelling(
    write=lambda task, _server: {
        "embeddings": ("--runner", "pooling"),
        "rerank": ("--runner", "pooling", "--convert", "classify"),
    }.get(task, ()),
    values={
        "--runner": lambda text: {"pooling": _EMBEDS, "auto": Settings()}.get(text),
        "--convert": lambda text: {"embed": _EMBEDS, "classify": _RANKS, "auto": Settings()}.get(text),
    },
    partial=frozenset({"--runner", "--convert"}),
    shown="`--runner pooling`; for `rerank` also `--convert classify`",
)


def _pooling(text: str) -> Any:
    """Read `--pooling`; ranks are a task of their own, and vectors of each token have no key."""
    return Settings({"serve.ranks": True}) if text == "rank" else text if text in ("mean", "cls", "last") else None


_POOLING = Spelling(
    values={"--pooling": _pooling},
    partial=frozenset({"--pooling"}),
)
_GENERATION_CONFIG = Spelling(
    write=_write_generation,
    values={"--override-generation-config": _generation},
    partial=frozenset({"--override-generation-config"}),
)
_KEY_FILE = Spelling(
    write=lambda path, _server: ("--api-key-file", path) if path else (),
    values={
        "--api-key": lambda _text: {"env": "LLAMA_API_KEY"},  # never the key itself
        "--api-key-file": lambda text: {"file": text},
    },
    shown="`--api-key-file`",
)
_KEY_VARIABLE = Spelling(
    write=lambda _path, _server: (),
    values={"--api-key": lambda _text: {"env": "LLAMA_API_KEY"}},
    shown="`VLLM_API_KEY`, read inside the container",
)


# --- the table ---


def _llamas(spelling: Spelling, vllm: Spelling | None = None) -> Mapping[str, Spelling]:
    """Return the spelling that llama.cpp and its fork share, and that of vLLM."""
    return {LLAMA: spelling, IK: spelling, **({VLLM: vllm} if vllm else {})}


KEY_FLAGS: Sequence[KeyFlag] = (
    KeyFlag(
        "model",
        _llamas(_model("--hf-repo"), _model()),
        source="model_path",
        example="small",
        wired="`model` sets the model",
        limited=False,
    ),
    KeyFlag(
        "model.name",
        _llamas(_named("--alias"), _named("--served-model-name")),
        source="declared.model",
        wired="clients request the model by the name in `model`",
        limited=False,
    ),
    KeyFlag("context", _llamas(_valued("--ctx-size"), _valued("--max-model-len")), example="32768", limited=False),
    KeyFlag("kv.k", _llamas(_named("--cache-type-k")), example="q8_0", limited=False),
    KeyFlag("kv.v", _llamas(_named("--cache-type-v")), example="q8_0", limited=False),
    KeyFlag(
        "flash_attention",
        {LLAMA: _FLASH_ATTENTION, IK: _IK_FLASH_ATTENTION},
        example="auto",
        limited=False,
    ),
    KeyFlag("parallel", _llamas(_valued("--parallel"), _valued("--max-num-seqs")), example="1", limited=False),
    KeyFlag("threads", _llamas(_valued("--threads", read=_threads)), source="threads", example="8", limited=False),
    KeyFlag(
        "listen",
        _llamas(_named("--host"), _named("--host")),
        source="listen",
        example="127.0.0.1",
        wired="`listen` sets the address",
        limited=False,
    ),
    KeyFlag(
        "port",
        _llamas(_valued("--port"), _valued("--port")),
        example="8080",
        wired="`port` sets the port",
        limited=False,
    ),
    # The chat template is off by default in ik_llama.cpp.
    KeyFlag(
        "",
        {LLAMA: _constant("--metrics", default=("--jinja", "--op-offload")), IK: _constant("--metrics", "--jinja")},
        source="declared",
        title="always",
        limited=False,
    ),
    KeyFlag(
        "on",
        _llamas(_DEVICES, _TENSOR_PARALLEL),
        example="[card]",
        wired="`on` sets the GPUs",
        limited=False,
    ),
    # ik_llama.cpp takes a number alone; more layers than there are means all.
    KeyFlag(
        "gpu_layers",
        {LLAMA: _layers("--gpu-layers", "all"), IK: _layers("--n-gpu-layers", "999")},
        example="all",
        limited=False,
    ),
    KeyFlag("split", _llamas(_named("--split-mode")), example="layer", limited=False),
    KeyFlag("tensor_split", _llamas(_TENSOR_SPLIT), example="[3, 1]", limited=False),
    KeyFlag("experts_on_cpu", _llamas(_EXPERTS), source="overrides", example="75%", limited=False),
    KeyFlag(
        "batch", _llamas(_valued("--batch-size"), _valued("--max-num-batched-tokens")), example="2048", limited=False
    ),
    KeyFlag("ubatch", _llamas(_valued("--ubatch-size")), example="512", limited=False),
    KeyFlag("numa", _llamas(_named("--numa")), example="distribute"),
    KeyFlag("mmap", {LLAMA: _LOAD_MODE, IK: Spelling(switches={"--no-mmap": False})}, example="false"),
    KeyFlag(
        "mlock",
        {LLAMA: _LOCK, IK: Spelling(switches={"--mlock": True})},
        example="true",
        wired="without the key `mlock` the unit may lock no memory",
    ),
    KeyFlag(
        "warmup",
        {LLAMA: _WARMUP, IK: Spelling(switches={"--no-warmup": False})},
        example="false",
    ),
    KeyFlag("model.mmproj", _llamas(_PROJECTOR), source="mmproj_path", title="`mmproj` of the model", limited=False),
    KeyFlag("draft", {LLAMA: _DRAFT, IK: _IK_DRAFT, VLLM: _VLLM_DRAFT}, example="{mtp: 2}"),
    KeyFlag("sampling", {VLLM: _GENERATION_CONFIG}, example="{temperature: 0.7}"),
    KeyFlag("sampling.temperature", _llamas(_valued("--temp")), example="0.7"),
    KeyFlag("sampling.top_p", _llamas(_valued("--top-p")), example="0.8"),
    KeyFlag("sampling.top_k", _llamas(_valued("--top-k")), example="20"),
    KeyFlag("sampling.min_p", _llamas(_valued("--min-p")), example="0.05"),
    KeyFlag("sampling.presence_penalty", _llamas(_valued("--presence-penalty")), example="1.5"),
    KeyFlag("sampling.repeat_penalty", _llamas(_valued("--repeat-penalty")), example="1.05"),
    KeyFlag("sampling.seed", _llamas(_valued("--seed")), example="-1"),
    KeyFlag("thinking", _llamas(_THINKING, _VLLM_THINKING), example="false"),
    KeyFlag("cache_reuse", {LLAMA: _valued("--cache-reuse")}, example="256"),
    KeyFlag("idle.unload", {LLAMA: _valued("--sleep-idle-seconds", read=_idle_time)}, example="15m"),
    KeyFlag("serve", {LLAMA: _TASK, IK: _IK_TASK, VLLM: _VLLM_TASK}, example="embeddings"),
    KeyFlag("pooling", _llamas(_POOLING), example="mean"),
    KeyFlag(
        "api_key",
        _llamas(_KEY_FILE, _KEY_VARIABLE),
        source="api_key_file",
        example="{file: keys/coder}",
        wired="`api_key` sets the key",
        limited=False,
    ),
)
"""All keys that become flags, in the order of a server's arguments."""


def key_arguments(kind: str, server: Served) -> Words:
    """Return the arguments of a server of this engine, without the program."""
    words: list[str] = []
    for path, spelling in _spelled_values(kind):
        value: Any = server
        for name in path:
            value = None if value is None else getattr(value, name)
        if spelling.write:
            words += spelling.write(value, server)
        elif value is not None and spelling.values:
            words += (next(iter(spelling.values)), str(value))
        else:
            words += spelling.always or [flag for flag, meant in spelling.switches.items() if meant is value]
    return (*words, *server.declared.extra_args)


@cache
def _spelled_values(kind: str) -> Sequence[tuple[Words, Spelling]]:
    """Return the path of each row's value from a server on, and its spelling."""
    rows = ((row, spelling) for row in KEY_FLAGS if (spelling := row.spelled.get(kind)))
    return tuple((tuple((row.source or f"declared.{row.key}").split(".")), spelling) for row, spelling in rows)
