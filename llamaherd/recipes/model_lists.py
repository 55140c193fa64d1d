"""Models of other programs: a folder of LM Studio, the output of `ollama list` and of `ollama show --modelfile`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from llamaherd.engines.flags.keys import slug
from llamaherd.recipes.commands import word_at
from llamaherd.recipes.recipe import ServerCommand

MOST_MODELS = 200
"""The most models of one folder or list."""
_MOST_ENTRIES = 20_000
"""The most files and folders that are read."""
_DEEPEST = 4
_SHARD = re.compile(r"-(\d{5})-of-\d{5}\.gguf$")
_LIST = re.compile(r"\s*NAME\s+ID\s+SIZE\s+MODIFIED\s*$", re.MULTILINE)
_ON_HUB = re.compile(r"(?:hf\.co|huggingface\.co)/([\w.-]+/[\w.-]+)(?::([\w.-]+))?", re.ASCII)
_INSTRUCTION = re.compile(r"^[ \t]*([A-Za-z]+)[ \t]+(\"\"\"(?:.|\n)*?\"\"\"|[^\n]*)", re.MULTILINE)
_FLAGS: Mapping[str, str] = {
    "num_ctx": "--ctx-size",
    "num_batch": "--batch-size",
    "num_gpu": "--gpu-layers",
    "num_thread": "--threads",
    "temperature": "--temp",
    "top_k": "--top-k",
    "top_p": "--top-p",
    "min_p": "--min-p",
    "repeat_penalty": "--repeat-penalty",
    "presence_penalty": "--presence-penalty",
    "seed": "--seed",
}
"""The flags of llama-server by the parameters of a Modelfile (ollama docs/modelfile.mdx)."""


@dataclass(frozen=True)
class ListedModel:
    """A model of a list or folder: its name, and its source for `herd add`, or empty if the list has none."""

    name: str
    source: str


def models_of_folder(folder: Path) -> tuple[ListedModel, ...]:
    """Return the GGUF models in a folder of LM Studio: `PUBLISHER/REPOSITORY/FILE`, the first of shards."""
    return tuple(islice((ListedModel(slug(path.name), str(path)) for path in _files(folder)), MOST_MODELS))


def _files(folder: Path) -> Iterator[Path]:
    left = _MOST_ENTRIES
    for place, folders, names in os.walk(folder):
        left -= len(names) + len(folders)
        if left < 0:
            return
        folders.sort()
        if len(Path(place).relative_to(folder).parts) >= _DEEPEST:
            folders.clear()
        for name in sorted(names):
            shard = _SHARD.search(name)
            if name.endswith(".gguf") and "mmproj" not in name.lower() and (not shard or int(shard[1]) == 1):
                yield Path(place) / name


def listed_models(text: str) -> tuple[ListedModel, ...]:
    """Return the models in the output of `ollama list`; none for another text. Only those of a hub have a source."""
    head = _LIST.match(text)
    rows = text[head.end() :].splitlines() if head else []
    names = [row.split()[0] for row in rows[:MOST_MODELS] if row.strip()]
    return tuple(ListedModel(_bare(name), _source(name)) for name in names)


def _bare(name: str) -> str:
    return slug(name.removesuffix(":latest").rpartition("/")[2].replace(":", "-"))


def _source(name: str) -> str:
    """Return `OWNER/NAME:QUANT` of a model that ollama has from a hub; empty for one of its own library."""
    found = _ON_HUB.fullmatch(name)
    if found is None:
        return ""
    return f"{found[1]}:{found[2]}" if found[2] and found[2] != "latest" else found[1]


def server_of_modelfile(text: str) -> ServerCommand | None:
    """Return a server with the model and the parameters of a Modelfile; None for another text."""
    whole = [(found[1].upper(), found[2].strip(), found.start()) for found in _INSTRUCTION.finditer(text)]
    model = next((value for name, value, _ in whole if name == "FROM"), "")
    if not model or not any(name in ("PARAMETER", "TEMPLATE", "SYSTEM", "LICENSE") for name, _, _ in whole):
        return None
    named = re.search(r"^# FROM (\S+)[ \t]*$", text, re.MULTILINE)
    on_hub = _source(model) or (_source(named[1]) if named else "")
    words = ["-hf", on_hub] if on_hub else ["--model", model]
    rest: list[str] = []
    for name, value, _ in whole:
        parameter, _, setting = value.partition(" ")
        if name == "PARAMETER" and parameter in _FLAGS:
            words += [_FLAGS[parameter], setting.strip().strip('"')]
        elif name not in ("FROM", "LICENSE"):
            rest.append(f"{name} {parameter}" if name == "PARAMETER" else name)
    line = text.count("\n", 0, next(start for name, _, start in whole if name == "FROM")) + 1
    at = (line, 1)
    arguments = tuple(word_at(word, at) for word in words)
    served_as = _bare(named[1]) if named else ""
    return ServerCommand(
        "llama-server", "llama.cpp", arguments, at, served_as=served_as, dropped=tuple(dict.fromkeys(rest))
    )
