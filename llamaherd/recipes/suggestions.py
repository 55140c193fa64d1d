"""Suggest the instance of an inventory that matches the command of a recipe."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath

import yaml
from pydantic import ValidationError

from llamaherd.engines.flags.keys import Keys, keys_from_arguments, slug
from llamaherd.inventory.schema import Instance
from llamaherd.inventory.schema.key_flags import number
from llamaherd.inventory.schema.serving import LONGEST_IDLE, SHORTEST_IDLE
from llamaherd.recipes.recipe import ServerCommand, visible_gpus
from llamaherd.recipes.servers import (
    API_KEY_VARIABLES,
    MODEL_FLAGS,
    PORTS,
    ROUTING,
    KnownArguments,
    is_loopback,
    known_arguments,
    shortened,
    sound_environment,
    with_arguments_of_environment,
)
from llamaherd.text.terminal import one_line

HUB_FLAGS = ("-hf", "-hfr", "--hf-repo")
"""Flags for a model in a repository of a hub."""
DRAFT_FLAGS = ("-md", "--model-draft", "--spec-draft-model", "--draft-model")
_REPO = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
_OVERRIDES = ("-ot", "--override-tensor")
_CPUS = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")
KEY_FILE: Keys = {"file": "keys/server"}
_ENVIRONMENT = re.compile(r"(?:GGML|LLAMA_ARG|CUDA(?!_VISIBLE_DEVICES|_DEVICE_ORDER)|NCCL|VLLM)_(?!.*(?:KEY|TOKEN))\w+")
"""Variables that engines read. GPUs are chosen by `on`, and keys are never copied."""


@dataclass(frozen=True)
class Offer:
    """The instance of an inventory that matches a command, and what differs."""

    name: str
    keys: Keys
    """The keys of the instance, in the order of docs/inventory.md."""
    model: Keys
    """The model, if a hub has it."""
    notes: tuple[str, ...]
    """What the command leaves to others, or has and the instance does not."""
    server: ServerCommand
    """The command, with its LLAMA_ARG_ variables as arguments."""
    known: KnownArguments
    source: str
    """The path or the repository of the model, as the command has it; empty if it is unknown."""
    draft: str
    """The same of the model that drafts."""
    gpus: int | None
    """The number of GPUs; None for all that there are."""

    @property
    def line(self) -> int:
        """The line of the command."""
        return self.server.start[0]


def offers_of(servers: Iterable[ServerCommand]) -> tuple[Offer, ...]:
    """Return an offer for each command that serves one model, with names that differ."""
    offers: list[Offer] = []
    for server in servers:
        if is_router(server):
            continue
        offer = offer_of(server)
        while any(offer.name == other.name for other in offers):
            offer = replace(offer, name=f"{offer.name[:36]}-{len(offers) + 1}")
        offers.append(offer)
    return tuple(offers)


def inventory_fragment(file: Path, servers: Iterable[ServerCommand]) -> str:
    """Return YAML for an inventory with an instance for each command; empty if there is no command."""
    servers = tuple(servers)
    offers = offers_of(servers)
    about = [
        f"# line {server.start[0]} starts a router of several models: declare each model, and a group of them"
        for server in servers
        if is_router(server)
    ]
    for offer in offers:
        about.append(f"# `{offer.name}` is {os.fsencode(file.name).decode(errors='replace')}:{offer.line}")
        about += [f"# `{offer.name}`: {note}" for note in offer.notes]
    if not offers:
        return ""
    about.append("# name the engine, the model and the GPUs as your rig does")
    if any(offer.keys.get("api_key") == KEY_FILE for offer in offers):
        about.append(f"# write a key of your own into the file {KEY_FILE['file']} in the inventory folder")
    models = {offer.keys["model"]: offer.model for offer in offers if offer.model}
    parts = {"models": models, "instances": {offer.name: _grouped(offer, offers) for offer in offers}}
    lines = [line for title, part in parts.items() if part for line in (f"{title}:", *_mapping(part))]
    return "\n".join([*map(one_line, about), *lines]) + "\n"


def _grouped(offer: Offer, offers: Iterable[Offer]) -> Keys:
    """Return the keys of an offer; servers of which one runs at a time are a group at one port."""
    group = offer.server.group
    members = [each for each in offers if group and each.server.group == group]
    if len(members) < 2:
        return offer.keys
    keys = offer.keys | {"group": slug(group), "port": members[0].keys.get("port", 8080)}
    return {key: keys[key] for key in Instance.model_fields if key in keys}


def _mapping(part: Mapping[str, Keys]) -> Iterator[str]:
    """Yield the lines of names with their keys, one key a line."""
    for name, keys in part.items():
        yield f"  {name}:"
        for key, value in keys.items():
            flow = None if isinstance(value, list | dict) else False
            text = yaml.safe_dump({"_": value}, default_flow_style=flow, allow_unicode=True, width=1e9, sort_keys=False)
            yield f"    {key}{text.strip().removeprefix('_')}"  # `on` is a word in an inventory


def is_router(server: ServerCommand) -> bool:
    """Return whether a server loads models as they are requested: llama-server without a model."""
    return server.program == "llama-server" and server.has(*ROUTING) is not None and not server.has(*MODEL_FLAGS)


def offer_of(server: ServerCommand) -> Offer:
    """Return the instance that matches a command."""
    server = with_arguments_of_environment(server)
    known = known_arguments(server)
    words, overrides = _without_overrides(known.arguments)
    keys, model, alias, gpus, rest = keys_from_arguments(words, server.kind)
    file = re.sub(r"(?:-GGUF)?(?::[\w.-]+)?$", "", PurePosixPath(model).name) or model
    name = slug(server.served_as) or slug(file) or "server"
    keys |= {"engine": server.kind, "model": slug(alias) or name}
    visible = visible_gpus(server.settings)
    given = len(visible) if server.cards is None and visible is not None else server.cards
    if keys.get("gpu_layers") == 0 or gpus == 0 or given == 0:
        keys.pop("gpu_layers", None)  # no card: on the CPU
        count: int | None = 0
    else:
        count = len(keys["tensor_split"]) if "tensor_split" in keys else gpus or given
        count = 1 if count is None and server.kind == "vllm" else count
        keys["on"] = [f"card{number}" for number in range(1, (count or 1) + 1)]
    if server.published:
        keys |= {"listen": server.published.address or "0.0.0.0", "port": number(server.published.host)}
    if server.contained or server.kind == "vllm":
        keys["backend"] = "compose"
    keys.setdefault("port", int(PORTS.get(server.program, "8080")))
    if keys.get("listen") in {"127.0.0.1", "localhost"}:
        del keys["listen"]
    if API_KEY_VARIABLES & set(server.settings):
        keys.setdefault("api_key", {"env": "LLAMA_API_KEY"})
    if "listen" in keys and not is_loopback(str(keys["listen"])):
        keys.setdefault("api_key", KEY_FILE)
    if rest or overrides:
        keys["extra_args"] = [*rest, *overrides]
    if environment := {key: value for key, value in sound_environment(server).items() if _ENVIRONMENT.fullmatch(key)}:
        keys["environment"] = environment
    if isinstance(kv := keys.get("kv"), dict) and len(set(kv.values())) == 1 and len(kv) == 2:
        keys["kv"] = kv["k"]
    if _CPUS.fullmatch(server.cpus):
        keys["cpus"] = server.cpus
    if server.kind == "llama.cpp" and server.unload_after and SHORTEST_IDLE <= server.unload_after <= LONGEST_IDLE:
        keys.setdefault("idle", {"unload": f"{server.unload_after}s"})
    wrong = _invalid(keys)
    ordered = {key: keys[key] for key in Instance.model_fields if key in keys}
    return Offer(
        name,
        ordered,
        _of_hub(list(known.arguments)) if server.kind != "vllm" else _whole(model),
        tuple(map(one_line, (*_notes(server, keys, known), *wrong))),
        server,
        known,
        model,
        next((value for flag, value in pairwise(words) if flag in DRAFT_FLAGS), ""),
        count,
    )


def _invalid(keys: Keys) -> list[str]:
    """Remove the keys whose values no inventory accepts, and return a note on each."""
    notes: list[str] = []
    if found := re.fullmatch(r"(\d{1,9})([kK])", str(keys.get("context"))):
        keys["context"] = int(found[1]) * (1000 if found[2] == "k" else 1024)  # as vLLM reads it
    for _ in range(len(keys)):
        try:
            Instance.model_validate({"context": 4096} | keys, context={"folder": Path()})
        except ValidationError as error:
            wrong = {str(each["loc"][0]) for each in error.errors() if each["loc"]} & set(keys)
            notes += [f"`{key}: {keys.pop(key)}` is not carried over: it is no value of an inventory" for key in wrong]
            if not wrong:
                break
        else:
            break
    return notes


def _without_overrides(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return arguments without several `-ot`, and those in their order, which decides. One alone may be a key."""
    given = list(words)
    places = [at for at, word in enumerate(given) if word in _OVERRIDES and at + 1 < len(given)]
    if len(places) < 2:
        return given, []
    taken = {each for at in places for each in (at, at + 1)}
    return [word for at, word in enumerate(given) if at not in taken], [given[at] for at in sorted(taken)]


def _notes(server: ServerCommand, keys: Keys, known: KnownArguments) -> Iterator[str]:
    """Yield what the engine chose, what is unknown, and what no key has."""
    if "context" not in keys:
        yield "it lacks `context`, which the command leaves to the engine: write how many tokens"
    yield from not_carried(server, keys, known, "see its finding")
    if server.cpus and "cpus" not in keys:
        yield f"the processors `{server.cpus}` are not carried over"
    if server.program == "llama-server" and server.has("-fit", "--fit", "-fitt", "--fit-target", "-fitc", "--fit-ctx"):
        slots = "" if "parallel" in keys else ", and has 4 slots"
        yield f"the command lets llama.cpp fit the model into free memory{slots}: the rig plans both"


def not_carried(server: ServerCommand, keys: Keys, known: KnownArguments, why_wrong: str) -> Iterator[str]:
    """Yield what surrounds a command and no key has, and the arguments that are unknown or wrong."""
    if server.unload_after and "idle" not in keys:
        why = "`idle` takes 1m to 48h" if server.kind == "llama.cpp" else f"{server.kind} unloads no model"
        yield f"the model is not unloaded after {server.unload_after} s: {why}"
    yield from (f"`{text}` is not carried over" for text in server.dropped)
    for text in known.unknown:
        yield f"`{shortened(text)}` is not carried over: its value is set elsewhere"
    yield from (f"`{text}` is not carried over: {why_wrong}" for text in known.wrong)


def _whole(model: str) -> Keys:
    """Return the repository of which vLLM reads all files; none for a path."""
    return {"hf": model, "files": "*"} if _REPO.fullmatch(model) else {}


def _of_hub(words: list[str]) -> Keys:
    """Return the model of `-hf USER/REPOSITORY[:QUANTISATION]`, which the inventory locks and fetches."""
    for flag, value in pairwise(words):
        found = re.fullmatch(r"([\w.-]+/[\w.-]+)(?::([\w.-]+))?", value) if flag in HUB_FLAGS else None
        if found:
            return {"hf": found[1], "files": f"*{found[2]}*.gguf" if found[2] else "*.gguf"}
    return {}
