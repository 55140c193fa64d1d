"""A key that is not known at its place: which one was meant."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from llamaherd.diagnostics.findings import nearest
from llamaherd.diagnostics.near import begun, slip
from llamaherd.engines import USUAL
from llamaherd.inventory import schema as fleet
from llamaherd.inventory.declared_at import container
from llamaherd.inventory.inheritance import EXTENDS, INSTANCE_DEFAULTS
from llamaherd.inventory.schema.also_called import NOT_HERE, also_called
from llamaherd.text.quoting import yaml_value

BELOW: Mapping[str, str] = {
    "Bandwidth": "`bandwidth` of the store",
    "Card": "a GPU, under `gpus.cards`",
    "Clocks": "`clocks` of a GPU",
    "Connect": "`connect`",
    "ContainerToolkit": "`gpus.container_toolkit`",
    "Cpu": "`host.cpu`",
    "Draft": "`draft` of an instance",
    "Driver": "`gpus.driver`",
    "Engine": "an engine, under `engines`",
    "Expect": "`expect` of an instance",
    "Gpus": "`gpus`",
    "Host": "`host`",
    "Instance": "an instance, under `instances`",
    "Model": "a model, under `models`",
    "Rig": "the rig itself, at the left edge",
    "Sampling": "`sampling` of an instance",
    "Secret": "`api_key` of an instance",
    "Sharing": "`store.share`",
    "Store": "`store`",
    "Wsl": "`host.wsl`",
}
"""Where the keys of each model stand."""


class Asked(NamedTuple):
    """The way out of a key that is not known, and the key here that it asks about, if it does."""

    help: str
    key: str | None = None


def meant_key(model: type[BaseModel], word: str, value: Any, engine: str = USUAL) -> Asked:
    """Which key was meant: a slip, another name of one, a flag of the engine, a key of another place; or all there are.

    `engine` is the kind whose flags are looked at, of an instance.
    """
    name, known = model.__name__, keys(model)
    if sentence := NOT_HERE.get(name, {}).get(word.lower()):
        return Asked(sentence)
    if inside := _inside(model, word, value):
        return inside
    if close := also_called(name, word) or slip(word, known):
        return Asked(f"did you mean `{close}`?", close)
    asked = _of_the_engine(word, value, engine) if name == "Instance" else None
    if asked and asked.key:
        return asked
    others = [other for other, where in BELOW.items() if other != name and where and word in keys(MODELS[other])]
    if asked and len(others) != 1:
        return asked
    if 0 < len(others) < 4:
        return Asked(f"`{word}` is a key of {', and of '.join(BELOW[other] for other in others)}")
    close = begun(word, known)
    return Asked(nearest(word, known), close)


def _inside(model: type[BaseModel], word: str, value: Any) -> Asked | None:
    """A key of the one mapping below a model that has it, and that most do without: `mtp` is written in `draft`."""
    fields = ((key, container(field.annotation)) for key, field in model.model_fields.items() if field.default is None)
    within = [key for key, kind in fields if hasattr(kind, "model_fields") and word in keys(kind)]
    if model.__name__ != "Instance" or len(within) != 1 or isinstance(value, list | dict) or value is None:
        return None
    return Asked(f"did you mean `{within[0]}: {{{word}: {yaml_value(value)}}}`?", within[0])


def keys(model: type[BaseModel]) -> list[str]:
    """The keys of a model, as they are written."""
    own = [field.alias or key for key, field in model.model_fields.items()]
    return own if model is not fleet.Rig else [*own, EXTENDS, INSTANCE_DEFAULTS]


MODELS: Mapping[str, type[BaseModel]] = {
    name: kind for name, kind in vars(fleet).items() if isinstance(kind, type) and issubclass(kind, BaseModel)
}
"""The models of an inventory, by name."""


def _of_the_engine(word: str, value: Any, kind: str) -> Asked | None:
    """A flag that was written as a key: the key that says it, or where flags go."""
    from llamaherd.checks.whole import KEY_OF_FLAG
    from llamaherd.checks.written import as_keys
    from llamaherd.engines.flags import catalogues

    if re.search("key|token|pass|secret", word, re.IGNORECASE) and "file" not in word:
        return None  # its value is shown to nobody
    spellings = (f"--{word.replace('_', '-')}", f"-{word}")
    for known in reversed(catalogues(kind) or catalogues(USUAL)):
        for spelling in spellings:
            if (flag := known.find(spelling)) is None:
                continue
            given = [] if isinstance(value, bool) else [str(value)] if isinstance(value, str | int | float) else None
            if given is not None and (written := as_keys([spelling, *given])):
                return Asked(f"did you mean {written}?", written.strip("`").partition(":")[0])
            if key := next((KEY_OF_FLAG[name] for name in flag.spellings if name in KEY_OF_FLAG), None):
                return Asked(f"did you mean `{key}`?", key)
            if given is not None:
                return Asked(f"write it as an argument: `extra_args: {json.dumps([spelling, *given])}`")
    return None
