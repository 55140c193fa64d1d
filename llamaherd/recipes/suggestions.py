"""Suggest the instance of an inventory that matches the command of a recipe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path, PurePosixPath

import yaml

from llamaherd.engines.flags.keys import Keys, keys_from_arguments, slug
from llamaherd.inventory.schema import Instance
from llamaherd.inventory.schema.key_flags import number
from llamaherd.recipes.recipe import ServerCommand
from llamaherd.recipes.servers import API_KEY_VARIABLES, PORTS, corrected_arguments, is_loopback, sound_environment

HUB_FLAGS = ("-hf", "-hfr", "--hf-repo")
"""Flags for a model in a repository of a hub."""
KEY_FILE: Keys = {"file": "api-key"}
_ENVIRONMENT = re.compile(r"(?:GGML|LLAMA_ARG|CUDA(?!_VISIBLE_DEVICES|_DEVICE_ORDER)|NCCL|VLLM)_(?!.*(?:KEY|TOKEN))\w+")
"""Variables that engines read. GPUs are chosen by `on`, and keys are never copied."""


def inventory_fragment(file: Path, servers: Iterable[ServerCommand]) -> str:
    """Return YAML for an inventory with an instance for each command; empty if there is no command."""
    instances: dict[str, Keys] = {}
    models: dict[str, Keys] = {}
    about: list[str] = []
    for server in servers:
        name, keys, model = suggest_instance(server)
        while name in instances:
            name = f"{name[:36]}-{len(instances) + 1}"
        instances[name] = keys
        about.append(f"# `{name}` is {file.name}:{server.start[0]}")
        if "context" not in keys:
            about.append(f"# `{name}` lacks `context`, which the command leaves to the engine: write how many tokens")
        if model:
            models[keys["model"]] = model
    if not instances:
        return ""
    about.append("# name the engine, the model and the GPUs as your rig does")
    if any(keys.get("api_key") == KEY_FILE for keys in instances.values()):
        about.append(f"# write a key of your own into the file {KEY_FILE['file']} in the inventory folder")
    parts = {"models": models, "instances": instances}
    lines = [line for title, part in parts.items() if part for line in (f"{title}:", *_mapping(part))]
    return "\n".join([*about, *lines]) + "\n"


def _mapping(part: Mapping[str, Keys]) -> Iterator[str]:
    """Yield the lines of names with their keys, one key a line."""
    for name, keys in part.items():
        yield f"  {name}:"
        for key, value in keys.items():
            flow = None if isinstance(value, list | dict) else False
            text = yaml.safe_dump({"_": value}, default_flow_style=flow, allow_unicode=True, width=1e9, sort_keys=False)
            yield f"    {key}{text.strip().removeprefix('_')}"  # `on` is a word in an inventory


def suggest_instance(server: ServerCommand) -> tuple[str, Keys, Keys]:
    """Return the name of an instance, its keys in the order of docs/inventory.md, and its model if a hub has it."""
    words = list(corrected_arguments(server))
    keys, model, alias, gpus, rest = keys_from_arguments(words, server.kind)
    name = slug(PurePosixPath(model).name) or "server"
    keys |= {"engine": server.kind, "model": slug(alias) or name}
    if keys.get("gpu_layers") == 0 or gpus == 0:
        keys.pop("gpu_layers", None)  # no card: on the CPU
    else:
        count = len(keys["tensor_split"]) if "tensor_split" in keys else gpus or 1
        keys["on"] = [f"card{number}" for number in range(1, count + 1)]
    if server.published:
        keys |= {"listen": server.published.address or "0.0.0.0", "port": number(server.published.host)}
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
    return name, {key: keys[key] for key in Instance.model_fields if key in keys}, _of_hub(words)


def _of_hub(words: list[str]) -> Keys:
    """Return the model of `-hf USER/REPOSITORY[:QUANTISATION]`, which the inventory locks and fetches."""
    for flag, value in pairwise(words):
        found = re.fullmatch(r"([\w.-]+/[\w.-]+)(?::([\w.-]+))?", value) if flag in HUB_FLAGS else None
        if found:
            return {"hf": found[1], "files": f"*{found[2]}*.gguf" if found[2] else "*.gguf"}
    return {}
