"""What was surely meant by a value or a name that does not do: tried, and asked about if it passes."""

from __future__ import annotations

import re
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from llamaherd.checks.unknown_keys import MODELS, keys
from llamaherd.inventory.declared_at import at, container, declared_at
from llamaherd.inventory.declared_names import declared_of, meant_name, way_out
from llamaherd.inventory.repairs import candidates
from llamaherd.inventory.schema import Connect, Draft, Rig, Secret
from llamaherd.inventory.yamlfile import Document, Path_
from llamaherd.inventory.yamltext import Dumper, Loader
from llamaherd.text.quoting import comment, yaml_value

_MOST_WORDS = 64
"""Names in a list for which right ones are sought."""


def other_name(document: Document, path: Path_) -> str:
    """What to call a thing whose name does not do."""
    field, name = declared_at(path).field, str(path[-1])
    plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:40]
    shape = _KEY_SHAPES.get(field)
    for candidate in (*candidates(field, name), plain):
        known = at(document.data, path[:-1])
        around = {key: value for key, value in known.items() if key != name} if isinstance(known, dict) else {}
        if isinstance(candidate, str) and candidate not in around and re.fullmatch(shape or _NAME, candidate):
            return (
                f"did you mean `{candidate}`?"
                if shape
                else f"did you mean `{candidate}`, wherever it is named? {_NAMES}"
            )
    return _KEY_HELP.get(field, f"choose another one. {_NAMES}")


def meant_value(document: Document, written: Path_) -> str | None:
    """What was surely meant by a value, if that passes: as a question."""
    path = written
    while path and isinstance(path[-1], int):
        path = path[:-1]
    field, annotation = declared_at(path)[1:]
    key, given = str(path[-1]) if path else "", at(document.data, path)
    kind = container(annotation)
    if hasattr(kind, "model_fields") and kind is not Secret and isinstance(given, str | int | float):
        return _in_a_mapping(key, field, kind, given)
    if field.partition(".")[2] != key:
        return None
    if what := _REFERENCES.get(field):
        return _declared(document, key, what, given)
    for candidate in candidates(field, given):
        same = candidate == given and type(candidate) is type(given)
        if not same and _passes(document, path, field, candidate):
            return f"did you mean `{key}: {as_written(candidate)}{_besides(field, str(given))}`?"
    return None


def _in_a_mapping(key: str, field: str, kind: type[BaseModel], given: str | float) -> str | None:
    """A mapping with one key, where its value stands alone."""
    whole = [each for each in candidates(field, given) if isinstance(each, dict | str) and each != given]
    single = [] if isinstance(given, bool) or (kind is Draft and isinstance(given, str)) else keys(kind)
    for candidate in (*whole, *({name: given} for name in single)):
        try:
            Rig.model_validate({"connect": candidate}) if kind is Connect else kind.model_validate(candidate)
        except ValidationError as error:
            if kind is not Connect or any(each["loc"][:1] == ("connect",) for each in error.errors()):
                continue
        return f"did you mean `{key}: {as_written(candidate)}`?"
    return None


def _declared(document: Document, key: str, what: str, given: Any) -> str:
    """A name of the rig's own in place of what is no name."""
    if key == "on" and isinstance(given, str) and "," in given:
        given = [part.strip() for part in given.split(",")]
    words = [*given][:_MOST_WORDS] if isinstance(given, list | dict) else [given]
    names = declared_of(document.data, what)
    if key == "on" and given in ("all", "gpu", "gpus", "cuda", "auto") and names:
        return f"did you mean `on: [{', '.join(names)}]`, all of them?"
    if key == "on" and given in ("cpu", "none", False, "false"):
        return "leave `on` out: without GPUs it runs on the CPU"
    meant = [str(word) if str(word) in names else meant_name(document.data, what, str(word)) for word in words]
    if meant and all(meant):
        shown = ", ".join(map(str, meant))
        return f"did you mean `{key}: {f'[{shown}]' if key == 'on' else shown}`?"
    unknown = next((str(word) for word in words if str(word) not in names), "")
    listed = f"write it like `on: [{next(iter(names))}]`; " if key == "on" and names else ""
    return f"{listed}{way_out(document.data, what, unknown)}"


def _passes(document: Document, path: Path_, field: str, candidate: Any) -> bool:
    """Whether a value does where another one stands, whatever else is wrong around it."""
    model = MODELS.get(field.partition(".")[0])
    if model is None:
        return False  # of a fleet's own file, where nothing is guessed
    around = at(document.data, path[:-1])
    whole = {**(around if isinstance(around, dict) else {}), path[-1]: candidate}
    try:
        model.model_validate(whole, context={"folder": document.file.parent})
    except ValidationError as error:
        return not any(each["loc"][:1] == path[-1:] for each in error.errors())
    return True


def _besides(field: str, given: str) -> str:
    """What else a value said that has a key of its own."""
    quant = re.search(r"^[^:]+/[^:/]+:([\w.-]+)$", given) if field == "Model.hf" else None
    version = re.fullmatch(r"\d{3}\.\d+(\.\d+)+", given) if field == "Driver.branch" else None
    return f", quant: {quant[1]}" if quant else f', version: "{given}"' if version else ""


def as_written(value: Any) -> str:
    """A value as one would write it in YAML."""
    if value in ("on", "off") and isinstance(value, str):
        return str(value)
    if isinstance(value, str) and _is_another(value):
        return str(yaml_value(value))  # in the quotation marks that everybody knows
    text = yaml.dump(value, Dumper=Dumper, default_flow_style=True, width=float("inf"), sort_keys=False)
    return comment(text.removesuffix("\n").removesuffix("\n...").strip())


def _is_another(text: str) -> bool:
    """Whether a text is something else to YAML unless it stands in quotation marks."""
    return not isinstance(yaml.load(text, Loader=Loader), str) if re.fullmatch(r"[\w.+-]+", text) else False


_NAME = r"[a-z0-9][a-z0-9._-]{0,39}"
_NAMES = "Names have up to 40 lower-case letters, digits, dots and dashes"
_KEY_SHAPES = {"Engine.options": r"[A-Z][A-Z0-9_]*", "Instance.environment": r"[A-Za-z_][A-Za-z0-9_]*"}
"""How names of an owner's things are written that go to others."""
_KEY_HELP = {
    "Engine.options": "write it like `options: {GGML_LTO: true}`",
    "Instance.environment": 'they have letters, digits and `_`, as in `environment: {GGML_CUDA_P2P: "1"}`',
    "Wsl.settings": "write it like `settings: {experimental: {autoMemoryReclaim: disabled}}`",
}
_REFERENCES = {
    "Instance.engine": "engine",
    "Instance.model": "model",
    "Draft.model": "model",
    "Instance.on": "card",
}
"""Fields that name what the rig declares."""
