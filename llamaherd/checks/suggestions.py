"""Suggestions for unknown keys and invalid values: the key or the value that the user probably meant."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel, ValidationError

from llamaherd.diagnostics.findings import nearest
from llamaherd.diagnostics.spelling import completed_name, misspelled_name, one_slip
from llamaherd.engines import USUAL
from llamaherd.inventory import schema as fleet
from llamaherd.inventory.schema import Connect, Draft, Rig, Secret
from llamaherd.inventory.schema.keys import NOT_HERE, also_called, container_type, declared_at, value_at
from llamaherd.inventory.suggestions import candidate_values, declared_items, intended_name, is_same_value, suggest_name
from llamaherd.inventory.yaml_file import EXTENDS, INSTANCE_DEFAULTS, Document, Path_
from llamaherd.inventory.yaml_text import Dumper, Loader
from llamaherd.text.quoting import comment, yaml_value

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
"""Where the keys of each model belong."""


class KeySuggestion(NamedTuple):
    """The fix for an unknown key, and the key here that it suggests, if it does.

    `renames`: the unknown key is another name of that key, apart from one letter or by a word of another tool.
    """

    help: str
    key: str | None = None
    renames: bool = False


class ValueSuggestion(NamedTuple):
    """The fix for an invalid value, and the value as YAML if that is certainly meant."""

    help: str
    certain: str | None = None


def suggest_key(model: type[BaseModel], word: str, value: Any, engine: str = USUAL) -> KeySuggestion:
    """Suggest the intended key: a misspelling, another name of a key, a flag of the engine, a key of another place; or
    list all of them.

    `engine` is the kind whose flags are searched, for an instance.
    """
    name, known = model.__name__, keys_of_model(model)
    if sentence := NOT_HERE.get(name, {}).get(word.lower()):
        return KeySuggestion(sentence)
    if inside := _inside(model, word, value):
        return inside
    if close := also_called(name, word) or misspelled_name(word, known):
        renames = one_slip(word, known) == close or (also_called(name, word) == close and word not in _VAGUE)
        return KeySuggestion(f"did you mean `{close}`?", close, renames)
    flag = _of_the_engine(word, value, engine) if name == "Instance" else None
    if flag and flag.key:
        return flag
    others = [
        other for other, where in BELOW.items() if other != name and where and word in keys_of_model(MODELS[other])
    ]
    if flag and len(others) != 1:
        return flag
    if 0 < len(others) < 4:
        return KeySuggestion(f"`{word}` is a key of {', and of '.join(BELOW[other] for other in others)}")
    close = completed_name(word, known)
    return KeySuggestion(nearest(word, known), close)


_VAGUE = frozenset({"name", "type", "model", "kind", "number", "count", "id", "version", "release", "path", "default"})
"""Words that may mean something else than the one key that they are another name of."""


def _inside(model: type[BaseModel], word: str, value: Any) -> KeySuggestion | None:
    """Return a key of the one mapping below a model that has it, if most models do not: `mtp` is written in `draft`."""
    fields = (
        (key, container_type(field.annotation)) for key, field in model.model_fields.items() if field.default is None
    )
    within = [key for key, kind in fields if hasattr(kind, "model_fields") and word in keys_of_model(kind)]
    if model.__name__ != "Instance" or len(within) != 1 or isinstance(value, list | dict) or value is None:
        return None
    return KeySuggestion(f"did you mean `{within[0]}: {{{word}: {yaml_value(value)}}}`?", within[0])


def keys_of_model(model: type[BaseModel]) -> list[str]:
    """Return the keys of a model, as they are written."""
    own = [field.alias or key for key, field in model.model_fields.items()]
    return own if model is not fleet.Rig else [*own, EXTENDS, INSTANCE_DEFAULTS]


MODELS: Mapping[str, type[BaseModel]] = {
    name: kind for name, kind in vars(fleet).items() if isinstance(kind, type) and issubclass(kind, BaseModel)
}
"""The models of an inventory, by name."""


def _of_the_engine(word: str, value: Any, kind: str) -> KeySuggestion | None:
    """Return the fix for a flag that was written as a key: the key for it, or where flags belong."""
    from llamaherd.checks.command_line import as_keys
    from llamaherd.engines.flags import catalogues
    from llamaherd.engines.flags.keys import managed_flags

    if re.search("key|token|pass|secret", word, re.IGNORECASE) and "file" not in word:
        return None  # its value is never printed
    spellings = (f"--{word.replace('_', '-')}", f"-{word}")
    for known in reversed(catalogues(kind) or catalogues(USUAL)):
        for spelling in spellings:
            if (flag := known.find(spelling)) is None:
                continue
            given = [] if isinstance(value, bool) else [str(value)] if isinstance(value, str | int | float) else None
            if given is not None and (written := as_keys([spelling, *given], known.kind)):
                return KeySuggestion(f"did you mean {written}?", written.strip("`").partition(":")[0])
            managed = managed_flags(known.kind)
            if key := next((managed[name] for name in flag.spellings if name in managed), None):
                return KeySuggestion(f"did you mean `{key}`?", key)
            if given is not None:
                return KeySuggestion(f"write it as an argument: `extra_args: {json.dumps([spelling, *given])}`")
    return None


_MOST_WORDS = 64
"""The most names of a list for which suggestions are searched."""


def suggest_value_name(document: Document, path: Path_) -> str:
    """Suggest a valid name in place of an invalid one."""
    field, name = declared_at(path).field, str(path[-1])
    plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:40]
    shape = _KEY_SHAPES.get(field)
    for candidate in (*candidate_values(field, name), plain):
        known = value_at(document.data, path[:-1])
        around = {key: value for key, value in known.items() if key != name} if isinstance(known, dict) else {}
        if isinstance(candidate, str) and candidate not in around and re.fullmatch(shape or _NAME, candidate):
            return (
                f"did you mean `{candidate}`?"
                if shape
                else f"did you mean `{candidate}`, wherever it is named? {_NAMES}"
            )
    return _KEY_HELP.get(field, f"choose another one. {_NAMES}")


def suggest_value(document: Document, written: Path_) -> ValueSuggestion | None:
    """Suggest the value that was probably meant, if it is valid: as a question."""
    path = written
    while path and isinstance(path[-1], int):
        path = path[:-1]
    field, annotation = declared_at(path)[1:]
    key, given = str(path[-1]) if path else "", value_at(document.data, path)
    kind = container_type(annotation)
    if hasattr(kind, "model_fields") and kind is not Secret and isinstance(given, str | int | float):
        return _in_a_mapping(document, key, field, kind, given)
    if field.partition(".")[2] != key:
        return None
    if what := _REFERENCES.get(field):
        return _declared(document, key, what, given)
    for candidate in candidate_values(field, given):
        same = candidate == given and type(candidate) is type(given)
        if not same and _passes(document, path, field, candidate):
            text, besides = as_written(candidate), _besides(field, str(given))
            certain = text if is_same_value(given, candidate) and not besides else None
            return ValueSuggestion(f"did you mean `{key}: {text}{besides}`?", certain)
    return None


def _in_a_mapping(
    document: Document, key: str, field: str, kind: type[BaseModel], given: str | float
) -> ValueSuggestion | None:
    """Return a mapping with one key, if its value was written alone."""
    whole = [each for each in candidate_values(field, given) if isinstance(each, dict | str) and each != given]
    whole += [pairs] if (pairs := _pairs(str(given))) and kind is not Connect else []
    whole += [{"model": given}] if kind is Draft and given in declared_items(document.data, "model") else []
    single = [] if isinstance(given, bool) or (kind is Draft and isinstance(given, str)) else keys_of_model(kind)
    if not re.search(r"\.(tar(\.\w+)?|tgz|zip)$", str(given)):
        single = [name for name in single if name != "archive"]  # another URL is a repository
    for candidate in (*whole, *({name: given} for name in single)):
        try:
            Rig.model_validate({"connect": candidate}) if kind is Connect else kind.model_validate(candidate)
        except ValidationError as error:
            if kind is not Connect or any(each["loc"][:1] == ("connect",) for each in error.errors()):
                continue
        certain = as_written(candidate) if kind is Connect and isinstance(candidate, dict) else None
        return ValueSuggestion(f"did you mean `{key}: {as_written(candidate)}`?", certain)
    return None


def _pairs(text: str) -> dict[str, Any]:
    """Return the mapping that a text such as `temperature=0.7, top_k=20` means; empty if it means none."""
    parts = [re.fullmatch(r"([\w.-]+)\s*[=:]\s*([^=:\s,]+)", part) for part in re.split(r"\s*,\s*", text.strip("{} "))]
    try:
        return {part[1]: yaml.load(part[2], Loader=Loader) for part in parts if part} if all(parts) else {}
    except yaml.YAMLError:
        return {}


def _declared(document: Document, key: str, what: str, given: Any) -> ValueSuggestion:
    """Suggest a name that the rig declares in place of an invalid one."""
    if key == "on" and isinstance(given, str) and re.search(r"[,()\s]", given):
        parts = [part for part in re.split(r"[,()\s]+", given) if part]
        given = parts if all(part in declared_items(document.data, what) for part in parts) else given
    words = [*given][:_MOST_WORDS] if isinstance(given, list | dict) else [given]
    names = declared_items(document.data, what)
    if key == "on" and given in ("all", "gpu", "gpus", "cuda", "auto") and names:
        return ValueSuggestion(f"did you mean `on: [{', '.join(names)}]`, all of them?")
    if key == "on" and given in ("cpu", "none", False, "false"):
        return ValueSuggestion("leave `on` out: without GPUs it runs on the CPU")
    meant = [str(word) if str(word) in names else intended_name(document.data, what, str(word)) for word in words]
    if meant and all(meant):
        names_written = ", ".join(map(as_written, meant))
        shown = f"[{names_written}]" if key == "on" else names_written
        certain = all(
            str(word) == name or one_slip(str(word), names) == name for word, name in zip(words, meant, strict=True)
        )
        return ValueSuggestion(f"did you mean `{key}: {shown}`?", shown if certain else None)
    unknown = next((str(word) for word in words if str(word) not in names), "")
    listed = f"write it like `on: [{next(iter(names))}]`; " if key == "on" and names else ""
    return ValueSuggestion(f"{listed}{suggest_name(document.data, what, unknown)}")


def is_optional(field: str) -> bool:
    """Return whether a field such as `Instance.threads` may be left out."""
    model, _, name = field.partition(".")
    fields = MODELS[model].model_fields if model in MODELS else {}
    return any((each.alias or key) == name and not each.is_required() for key, each in fields.items())


def is_valid_as(document: Document, path: Path_, given: float) -> bool:
    """Return whether a number is valid at a path once it is written in quotes."""
    field = declared_at(path)[1]
    return field.partition(".")[2] == str(path[-1]) and _passes(document, path, field, str(given))


def _passes(document: Document, path: Path_, field: str, candidate: Any) -> bool:
    """Return whether a value is valid in place of another one, whatever else is wrong around it."""
    model = MODELS.get(field.partition(".")[0])
    if model is None:
        return False  # of a fleet's own file, where nothing is guessed
    around = value_at(document.data, path[:-1])
    whole = {**(around if isinstance(around, dict) else {}), path[-1]: candidate}
    try:
        model.model_validate(whole, context={"folder": document.file.parent})
    except ValidationError as error:
        return not any(each["loc"][:1] == path[-1:] for each in error.errors())
    return True


def passes_renamed(document: Document, path: Path_, model: type[BaseModel], new: str) -> bool:
    """Return whether the value of an unknown key is valid as that of another key, which is not there yet."""
    around = value_at(document.data, path[:-1])
    if not isinstance(around, dict) or new in around:
        return False
    renamed = {new if key == path[-1] else key: value for key, value in around.items()}
    try:
        model.model_validate(renamed, context={"folder": document.file.parent})
    except ValidationError as error:
        return not any(each["loc"][:1] == (new,) for each in error.errors())
    return True


def _besides(field: str, given: str) -> str:
    """Return the other part of a value, which has a key of its own."""
    quant = re.search(r"^[^:]+/[^:/]+:([\w.-]+)$", given) if field == "Model.hf" else None
    version = re.fullmatch(r"\d{3}\.\d+(\.\d+)+", given) if field == "Driver.branch" else None
    return f", quant: {quant[1]}" if quant else f', version: "{given}"' if version else ""


def as_written(value: Any) -> str:
    """Return a value in the usual form of YAML."""
    if value in ("on", "off") and isinstance(value, str):
        return str(value)
    if isinstance(value, str) and _is_another(value):
        return str(yaml_value(value))  # in the usual quotation marks
    text = yaml.dump(value, Dumper=Dumper, default_flow_style=True, width=float("inf"), sort_keys=False)
    return comment(text.removesuffix("\n").removesuffix("\n...").strip())


def _is_another(text: str) -> bool:
    """Return whether a text is something else to YAML unless it is quoted."""
    return not isinstance(yaml.load(text, Loader=Loader), str) if re.fullmatch(r"[\w.+-]+", text) else False


_NAME = r"[a-z0-9][a-z0-9._-]{0,39}"
_NAMES = "Names have up to 40 lower-case letters, digits, dots and dashes"
_KEY_SHAPES = {"Engine.options": r"[A-Z][A-Z0-9_]*", "Instance.environment": r"[A-Za-z_][A-Za-z0-9_]*"}
"""The valid forms of names that other programs read."""
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
"""Fields that name a declaration of the rig."""
