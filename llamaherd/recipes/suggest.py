"""From the command of a recipe to the instance of an inventory that says the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from llamaherd.recipes.flagged import corrected, sound_environment
from llamaherd.recipes.programs import ServerCommand
from llamaherd.recipes.servers import API_KEY_VARIABLES, PORTS, is_loopback

Keys = dict[str, Any]


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _layers(text: str) -> int | float | str:
    """99 and more is how people say `all`."""
    value = _number(text)
    return "all" if isinstance(value, int) and value >= 99 else value


def _threads(text: str) -> int | float | str | None:
    """Zero and less is every logical processor, which nobody wants: the default of a rig is better."""
    value = _number(text)
    return None if isinstance(value, int | float) and value <= 0 else value


def _switch(text: str) -> str:
    return {"1": "on", "true": "on", "enabled": "on", "0": "off", "false": "off", "disabled": "off"}.get(text, text)


def _shares(text: str) -> list[int | float | str]:
    return [_number(part) for part in re.split(r"[,/]", text)]


def _named(names: str, key: str, read: Callable[[str], Any]) -> dict[str, tuple[str, Callable[[str], Any]]]:
    return dict.fromkeys(names.split(), (key, read))


# Flags with a value, and the key of the inventory that says it. `a.b` is a key in a mapping; `draft.own` is none, but
# tells that the model drafts by its own head, and `draft.path` that another one does.
_VALUES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    **_named("-sm --split-mode", "split", str),
    **_named("-ts --tensor-split", "tensor_split", _shares),
    **_named("-ngl --gpu-layers --n-gpu-layers", "gpu_layers", _layers),
    **_named("-ncmoe --n-cpu-moe", "experts_on_cpu", _number),
    **_named("-c --ctx-size --max-model-len", "context", _number),
    **_named("-ctk --cache-type-k", "kv.k", str),
    **_named("-ctv --cache-type-v", "kv.v", str),
    **_named("-b --batch-size", "batch", _number),
    **_named("-ub --ubatch-size", "ubatch", _number),
    **_named("-np --parallel", "parallel", _number),
    **_named("-t --threads", "threads", _threads),
    **_named("--numa", "numa", str),
    **_named("-fa --flash-attn", "flash_attention", _switch),
    **_named("--spec-draft-n-max --draft-max --draft-n --draft", "draft.mtp", _number),
    **_named("--spec-draft-p-min", "draft.p_min", _number),
    **_named("-md --model-draft --spec-draft-model", "draft.path", str),
    **_named("--temp --temperature", "sampling.temperature", _number),
    **_named("--top-p", "sampling.top_p", _number),
    **_named("--top-k", "sampling.top_k", _number),
    **_named("--min-p", "sampling.min_p", _number),
    **_named("--presence-penalty", "sampling.presence_penalty", _number),
    **_named("--repeat-penalty", "sampling.repeat_penalty", _number),
    **_named("-s --seed", "sampling.seed", _number),
    **_named("--cache-reuse", "cache_reuse", _number),
    **_named("--host", "listen", str),
    **_named("--port", "port", _number),
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
_HUB_FLAGS = ("-hf", "-hfr", "--hf-repo")
_MODEL_FLAGS = ("-m", "--model", *_HUB_FLAGS)
_SAID_ANYWAY = {"--jinja", "--metrics", "--op-offload"}
"""What llamaherd passes by itself, or the engine does."""
KEY_FILE: Keys = {"file": "api-key"}
_ORDER = (
    *("engine", "model", "on", "split", "tensor_split", "gpu_layers", "experts_on_cpu", "context", "kv"),
    *("batch", "ubatch"),
    *("parallel", "threads", "numa", "flash_attention", "mmap", "mlock", "draft", "sampling", "thinking", "warmup"),
    *("cache_reuse", "listen", "port", "api_key", "backend", "extra_args", "environment"),
)
_ENVIRONMENT = re.compile(r"(?:GGML|LLAMA_ARG|CUDA(?!_VISIBLE_DEVICES|_DEVICE_ORDER)|NCCL|VLLM)_(?!.*(?:KEY|TOKEN))\w+")
"""Variables that engines read. GPUs are chosen by `on`, and keys are never copied."""


def fragment(file: Path, servers: Iterable[ServerCommand]) -> str:
    """YAML for an inventory that says what these commands say; empty when there is no command."""
    instances: dict[str, Keys] = {}
    models: dict[str, Keys] = {}
    about: list[str] = []
    for server in servers:
        name, keys, model = instance(server)
        while name in instances:
            name = f"{name[:36]}-{len(instances) + 1}"
        instances[name] = keys
        about.append(f"# `{name}` is {file.name}:{server.start[0]}")
        if "context" not in keys:
            about.append(f"# `{name}` lacks `context`, which the command leaves to the engine: say how many tokens")
        if model:
            models[keys["model"]] = model
    if not instances:
        return ""
    about.append("# name the engine, the model and the GPUs as your rig does")
    if any(keys.get("api_key") == KEY_FILE for keys in instances.values()):
        about.append(f"# write a key of your own into the file {KEY_FILE['file']} beside the inventory")
    parts = {"models": models, "instances": instances}
    lines = [line for title, part in parts.items() if part for line in (f"{title}:", *_mapping(part))]
    return "\n".join([*about, *lines]) + "\n"


def _mapping(part: Mapping[str, Keys]) -> Iterator[str]:
    """Names with their keys, one key a line."""
    for name, keys in part.items():
        yield f"  {name}:"
        for key, value in keys.items():
            flow = None if isinstance(value, list | dict) else False
            text = yaml.safe_dump({"_": value}, default_flow_style=flow, allow_unicode=True, width=1e9, sort_keys=False)
            yield f"    {key}{text.strip().removeprefix('_')}"  # `on` is a word in an inventory


def instance(server: ServerCommand) -> tuple[str, Keys, Keys]:
    """The name of an instance, its keys in the order of docs/inventory.md, and its model where a hub has it."""
    words = list(corrected(server))
    keys, model, rest = _read(words)
    name = _slug(PurePosixPath(model).name) or "server"
    keys |= {"engine": server.kind, "model": name}
    if keys.get("gpu_layers") == 0:
        del keys["gpu_layers"]  # no card: on the CPU
    else:
        keys["on"] = [f"card{number}" for number, _ in enumerate(keys.get("tensor_split", [1]), start=1)]
    if server.published:
        keys |= {"listen": server.published.address or "0.0.0.0", "port": _number(server.published.host)}
    if server.contained:
        keys["backend"] = "compose"
    keys.setdefault("port", int(PORTS.get(server.program, "8080")))
    if keys.get("listen") in {"127.0.0.1", "localhost"}:
        del keys["listen"]
    if API_KEY_VARIABLES & set(server.settings):
        keys.setdefault("api_key", {"env": "LLAMA_API_KEY"})
    if "listen" in keys and not is_loopback(str(keys["listen"])):
        keys.setdefault("api_key", KEY_FILE)
    if rest:
        keys["extra_args"] = rest
    if environment := {key: value for key, value in sound_environment(server).items() if _ENVIRONMENT.fullmatch(key)}:
        keys["environment"] = environment
    if isinstance(kv := keys.get("kv"), dict) and len(set(kv.values())) == 1 and len(kv) == 2:
        keys["kv"] = kv["k"]
    return name, {key: keys[key] for key in _ORDER if key in keys}, _of_hub(words)


def keys_of(words: Iterable[str]) -> Keys:
    """The keys of an instance that say the same as these arguments, as far as there are such."""
    return _read(list(words))[0]


def _of_hub(words: list[str]) -> Keys:
    """The model of `-hf USER/REPOSITORY[:QUANTISATION]`, which the inventory locks and fetches itself."""
    for flag, value in pairwise(words):
        found = re.fullmatch(r"([\w.-]+/[\w.-]+)(?::([\w.-]+))?", value) if flag in _HUB_FLAGS else None
        if found:
            return {"hf": found[1], "files": f"*{found[2]}*.gguf" if found[2] else "*.gguf"}
    return {}


def _slug(name: str) -> str:
    """A model's file as a name of an inventory."""
    bare = re.sub(r"(?:-\d{5}-of-\d{5})?\.gguf$", "", name.lower())
    return re.sub(r"[^a-z0-9._-]+", "-", bare)[:40].strip("-._")


def _read(words: list[str]) -> tuple[Keys, str, list[str]]:
    """The keys that flags stand for, the model, and what has no key."""
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
    beside = {"model": _slug(PurePosixPath(path).name)} if path else {}
    if own:
        keys["draft"] = {"mtp": 3} | draft | beside  # the default of llama.cpp, common/arg.cpp:4150
    elif path and "--spec-type" not in rest:
        keys["draft"] = beside | {"max" if key == "mtp" else key: value for key, value in draft.items()}
    else:  # another way to draft has no key
        rest += [*(("--spec-type", "draft-simple") if simple else ()), *(("-md", path) if path else ())]
        rest += [word for key, flag in _DRAFTING.items() if key in draft for word in (flag, str(draft[key]))]
    return keys, model, rest


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
            said: Keys = {"draft.own": True, "draft.mtp": _number(settings.get("n_max", "1"))}
            return said | ({"draft.p_min": _number(settings["p_min"])} if "p_min" in settings else {})
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
        settings = json.loads(value)
    except ValueError:
        return {}
    if isinstance(settings, dict) and list(settings) == ["enable_thinking"]:
        return {"thinking": bool(settings["enable_thinking"])}
    return {}
