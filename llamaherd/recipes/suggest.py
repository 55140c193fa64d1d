"""From the command of a recipe to the instance of an inventory that says the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from llamaherd.recipes.programs import Server
from llamaherd.recipes.servers import API_KEY_VARIABLES, PORTS, corrected, is_loopback

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


def _switch(text: str) -> str:
    return {"1": "on", "true": "on", "enabled": "on", "0": "off", "false": "off", "disabled": "off"}.get(text, text)


def _shares(text: str) -> list[int | float | str]:
    return [_number(part) for part in re.split(r"[,/]", text)]


def _named(names: str, key: str, read: Callable[[str], Any]) -> dict[str, tuple[str, Callable[[str], Any]]]:
    return dict.fromkeys(names.split(), (key, read))


# Flags with a value, and the key of the inventory that says it; `a.b` is a key in a mapping.
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
    **_named("-t --threads", "threads", _number),
    **_named("--numa", "numa", str),
    **_named("-fa --flash-attn", "flash_attention", _switch),
    **_named("--spec-draft-n-max --draft-max --draft-n --draft", "draft.mtp", _number),
    **_named("--spec-draft-p-min", "draft.p_min", _number),
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
}
_LOAD_MODES: Mapping[str, Keys] = {
    "none": {"mmap": False},
    "mmap": {"mmap": True},
    "mlock": {"mmap": False, "mlock": True},
    "mmap+mlock": {"mmap": True, "mlock": True},
}
_ALL_EXPERTS = re.compile(r"(?:\\?\.?(?:ffn_)?[.*]*_?)?exps(?:\\?\.(?:weight)?)?=CPU")
_SAID_ANYWAY = {"--jinja", "--metrics"}
_ORDER = (
    *("engine", "model", "split", "tensor_split", "gpu_layers", "experts_on_cpu", "context", "kv", "batch", "ubatch"),
    *("parallel", "threads", "numa", "flash_attention", "mmap", "mlock", "draft", "sampling", "thinking", "warmup"),
    *("cache_reuse", "listen", "port", "api_key", "backend", "extra_args", "environment"),
)
_ENVIRONMENT = re.compile(r"(?:GGML|LLAMA|CUDA|NCCL|VLLM)_(?!.*(?:KEY|TOKEN))\w+")


def fragment(file: Path, servers: Iterable[Server]) -> str:
    """YAML for an inventory that says what these commands say; empty when there is no command."""
    instances: dict[str, Keys] = {}
    lines: list[str] = []
    for server in servers:
        name, keys = instance(server)
        while name in instances:
            name = f"{name[:37]}-{len(instances) + 1}"
        instances[name] = keys
        lines.append(f"# `{name}` is {file.name}:{server.start[0]}")
        if "context" not in keys:
            lines.append(f"# `{name}` lacks `context`, which the command leaves to the engine: say how many tokens")
    if not instances:
        return ""
    lines.append("# engines, models and cards (`on: [CARD]`) are to be named as your rig does")
    body = yaml.safe_dump({"instances": instances}, sort_keys=False, default_flow_style=None, allow_unicode=True)
    return "\n".join(lines) + "\n" + body


def instance(server: Server) -> tuple[str, Keys]:
    """The name of an instance, and its keys in the order of docs/inventory.md."""
    keys, model, rest = _read([str(word) for word in corrected(server) if not word.unknown or "$" not in str(word)])
    name = _slug(PurePosixPath(model).name) or "server"
    keys |= {"engine": server.kind, "model": name}
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
        keys.setdefault("api_key", {"file": "api-key"})
    if rest:
        keys["extra_args"] = rest
    environment = {key: str(word) for key, word in server.settings.items() if _ENVIRONMENT.fullmatch(key)}
    if environment:
        keys["environment"] = environment
    if isinstance(kv := keys.get("kv"), dict) and len(set(kv.values())) == 1 and len(kv) == 2:
        keys["kv"] = kv["k"]
    return name, {key: keys[key] for key in _ORDER if key in keys}


def _slug(name: str) -> str:
    """A model's file as a name of an inventory."""
    bare = re.sub(r"(?:-\d{5}-of-\d{5})?\.gguf$", "", name.lower())
    return re.sub(r"[^a-z0-9._-]+", "-", bare)[:40].strip("-._")


def _read(words: list[str]) -> tuple[Keys, str, list[str]]:
    """The keys that flags stand for, the model, and what has no key."""
    keys: Keys = {}
    model, rest, mtp = "", list[str](), False
    index = 0
    while index < len(words):
        flag = words[index]
        value = words[index + 1] if index + 1 < len(words) and _is_value(words[index + 1]) else None
        taken = 2
        if flag in {"-m", "--model", "-hf", "--hf-repo", "-hfr"} and value is not None:
            model = value
        elif not flag.startswith("-") and not model and not rest:
            model, taken = flag, 1
        elif flag == "-mtp" or (flag, value) == ("--spec-type", "draft-mtp"):
            mtp, taken = True, 1 if flag == "-mtp" else 2
        elif flag in _VALUES and value is not None:
            key, read = _VALUES[flag]
            _put(keys, key, read(value))
        elif flag in _SWITCHES:
            _put(keys, *_SWITCHES[flag])
            taken = 1
        elif flag in _SAID_ANYWAY or flag in _VALUES:
            taken = 1
        elif value is None or not (said := _special(flag, value)):
            rest += words[index : index + (1 if value is None else 2)]
            taken = 1 if value is None else 2
        else:
            for key, setting in said.items():
                _put(keys, key, setting)
        index += taken
    if mtp:
        _put(keys, "draft.mtp", keys.get("draft", {}).get("mtp", 3))  # the default: llama.cpp common/arg.cpp:4150
    return keys, model, rest


def _is_value(word: str) -> bool:
    return not word.startswith("-") or re.fullmatch(r"-\d+(?:\.\d+)?", word) is not None


def _put(keys: Keys, path: str, value: Any) -> None:
    key, _, inner = path.partition(".")
    if inner:
        keys.setdefault(key, {})[inner] = value
    else:
        keys[key] = value


def _special(flag: str, value: str) -> Keys:
    """Flags whose value decides which key they are; nothing for a value that no key stands for."""
    match flag:
        case "-lm" | "--load-mode":
            return dict(_LOAD_MODES.get(value, {}))
        case "--spec-type" if value.startswith("mtp"):
            settings = dict(part.partition("=")[::2] for part in value.partition(":")[2].split(",") if part)
            said: Keys = {"draft.mtp": _number(settings.get("n_max", "1"))}
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
