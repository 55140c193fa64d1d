"""Convert the arguments of a server to the keys of an instance that mean the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from llamaherd.text.numbers import parse_json

Keys = dict[str, Any]

HUB_FLAGS = ("-hf", "-hfr", "--hf-repo")


class ParsedKeys(NamedTuple):
    """What arguments say: the keys of an instance, the model by its path or repository, and what has no key."""

    keys: Keys
    model: str
    rest: list[str]


def number(text: str) -> int | float | str:
    """A number, where the text is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _layers(text: str) -> int | float | str:
    """99 and more is how people say `all`."""
    value = number(text)
    return "all" if isinstance(value, int) and value >= 99 else value


def _threads(text: str) -> int | float | str | None:
    """Zero and less is every logical processor, which nobody wants: the default of a rig is better."""
    value = number(text)
    return None if isinstance(value, int | float) and value <= 0 else value


def _switch(text: str) -> str:
    return {"1": "on", "true": "on", "enabled": "on", "0": "off", "false": "off", "disabled": "off"}.get(text, text)


def _shares(text: str) -> list[int | float | str]:
    return [number(part) for part in re.split(r"[,/]", text)]


def _named(names: str, key: str, read: Callable[[str], Any]) -> dict[str, tuple[str, Callable[[str], Any]]]:
    return dict.fromkeys(names.split(), (key, read))


# Flags with a value, and the key of the inventory that says it. `a.b` is a key in a mapping; `draft.own` is none, but
# tells that the model drafts by its own head, and `draft.path` that another one does.
_VALUES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    **_named("-sm --split-mode", "split", str),
    **_named("-ts --tensor-split", "tensor_split", _shares),
    **_named("-ngl --gpu-layers --n-gpu-layers", "gpu_layers", _layers),
    **_named("-ncmoe --n-cpu-moe", "experts_on_cpu", number),
    **_named("-c --ctx-size --max-model-len", "context", number),
    **_named("-ctk --cache-type-k", "kv.k", str),
    **_named("-ctv --cache-type-v", "kv.v", str),
    **_named("-b --batch-size", "batch", number),
    **_named("-ub --ubatch-size", "ubatch", number),
    **_named("-np --parallel", "parallel", number),
    **_named("-t --threads", "threads", _threads),
    **_named("--numa", "numa", str),
    **_named("-fa --flash-attn", "flash_attention", _switch),
    **_named("--spec-draft-n-max --draft-max --draft-n --draft", "draft.mtp", number),
    **_named("--spec-draft-p-min", "draft.p_min", number),
    **_named("-md --model-draft --spec-draft-model", "draft.path", str),
    **_named("--temp --temperature", "sampling.temperature", number),
    **_named("--top-p", "sampling.top_p", number),
    **_named("--top-k", "sampling.top_k", number),
    **_named("--min-p", "sampling.min_p", number),
    **_named("--presence-penalty", "sampling.presence_penalty", number),
    **_named("--repeat-penalty", "sampling.repeat_penalty", number),
    **_named("-s --seed", "sampling.seed", number),
    **_named("--cache-reuse", "cache_reuse", number),
    **_named("--host", "listen", str),
    **_named("--port", "port", number),
}
_SWITCHES: Mapping[str, tuple[str, Any]] = {
    "--no-mmap": ("mmap", False),
    "--mmap": ("mmap", True),
    "--mlock": ("mlock", True),
    "--no-warmup": ("warmup", False),
    "--warmup": ("warmup", True),
    "-cmoe": ("experts_on_cpu", "all"),
    "--cpu-moe": ("experts_on_cpu", "all"),
    "-mtp": ("draft.own", True),
}
_DRAFTING = {"mtp": "--spec-draft-n-max", "p_min": "--spec-draft-p-min"}
_LOAD_MODES: Mapping[str, Keys] = {
    "none": {"mmap": False},
    "mmap": {"mmap": True},
    "mlock": {"mmap": False, "mlock": True},
    "mmap+mlock": {"mmap": True, "mlock": True},
}
_ALL_EXPERTS = re.compile(r"(?:\\?\.?(?:ffn_)?[.*]*_?)?exps(?:\\?\.(?:weight)?)?=CPU")
_MODEL_FLAGS = ("-m", "--model", *HUB_FLAGS)
_SAID_ANYWAY = {"--jinja", "--metrics", "--op-offload"}
"""What llamaherd passes by itself, or the engine does."""


def keys_from_arguments(arguments: Iterable[str]) -> ParsedKeys:
    """What these arguments say."""
    words = list(arguments)
    keys: Keys = {}
    model, rest = "", list[str]()
    index = 0
    while index < len(words):
        flag = words[index]
        value = words[index + 1] if index + 1 < len(words) and _is_value(words[index + 1]) else None
        taken = 1 if value is None else 2
        if flag in _MODEL_FLAGS and value is not None:
            model = value
        elif not flag.startswith("-") and not model and not rest:
            model, taken = flag, 1  # as `vllm serve` takes it
        elif said := _said(flag, value):
            for key, setting in said[0].items():
                _put(keys, key, setting)
            taken = said[1]
        else:
            rest += words[index : index + taken]
        index += taken
    draft = keys.pop("draft", {})
    own, simple, path = draft.pop("own", False), draft.pop("simple", False), draft.pop("path", None)
    beside = {"model": slug(PurePosixPath(path).name)} if path else {}
    if own:
        keys["draft"] = {"mtp": 3} | draft | beside  # the default of llama.cpp, common/arg.cpp:4150
    elif path and "--spec-type" not in rest:
        keys["draft"] = beside | {"max" if key == "mtp" else key: value for key, value in draft.items()}
    else:  # another way to draft has no key
        rest += [*(("--spec-type", "draft-simple") if simple else ()), *(("-md", path) if path else ())]
        rest += [word for key, flag in _DRAFTING.items() if key in draft for word in (flag, str(draft[key]))]
    return ParsedKeys(keys, model, rest)


def _said(flag: str, value: str | None) -> tuple[Keys, int] | None:
    """The keys that a flag stands for, and how many words say it; None for a flag without a key."""
    if flag in _SWITCHES:
        key, setting = _SWITCHES[flag]
        return {key: setting}, 1
    if flag in _SAID_ANYWAY or (flag in _VALUES and value is None):
        return {}, 1
    if value is None:
        return None
    if flag in _VALUES:
        key, read = _VALUES[flag]
        return {key: read(value)}, 2
    special = _special(flag, value)
    return (special, 2) if special else None


def _is_value(word: str) -> bool:
    return not word.startswith("-") or re.fullmatch(r"-\d+(?:\.\d+)?", word) is not None


def _put(keys: Keys, path: str, value: Any) -> None:
    key, _, inner = path.partition(".")
    if inner:
        keys.setdefault(key, {})[inner] = value
    elif value is not None:
        keys[key] = value


def _special(flag: str, value: str) -> Keys:
    """Flags whose value decides which key they are; nothing for a value that no key stands for."""
    match flag:
        case "-lm" | "--load-mode":
            return dict(_LOAD_MODES.get(value, {}))
        case "--spec-type" if value in ("draft-mtp", "draft-simple"):
            return {"draft.own" if value == "draft-mtp" else "draft.simple": True}
        case "--spec-type" if value.startswith("mtp"):
            settings = dict(part.partition("=")[::2] for part in value.partition(":")[2].split(",") if part)
            said: Keys = {"draft.own": True, "draft.mtp": number(settings.get("n_max", "1"))}
            return said | ({"draft.p_min": number(settings["p_min"])} if "p_min" in settings else {})
        case "--reasoning" | "-rea" if value in {"on", "off"}:
            return {"thinking": value == "on"}
        case "--reasoning-budget" if value == "0":
            return {"thinking": False}
        case "--chat-template-kwargs":
            return _thinking(value)
        case "-ot" | "--override-tensor" if _ALL_EXPERTS.fullmatch(value):
            return {"experts_on_cpu": "all"}
        case "--api-key":
            return {"api_key": {"env": "LLAMA_API_KEY"}}  # never the key itself
        case "--api-key-file":
            return {"api_key": {"file": value}}
        case _:
            return {}


def _thinking(value: str) -> Keys:
    try:
        settings = parse_json(value)
    except ValueError:
        return {}
    if isinstance(settings, dict) and list(settings) == ["enable_thinking"]:
        return {"thinking": bool(settings["enable_thinking"])}
    return {}


def slug(name: str) -> str:
    """A model's file as a name of an inventory."""
    bare = re.sub(r"(?:-\d{5}-of-\d{5})?\.gguf$", "", name.lower())
    return re.sub(r"[^a-z0-9._-]+", "-", bare)[:40].strip("-._")
