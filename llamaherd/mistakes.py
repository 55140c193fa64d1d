"""What pydantic says of a rig that is not as the models want it, said as a person would, with what to write instead."""

from __future__ import annotations

from contextlib import suppress
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from llamaherd.findings import Finding, nearest
from llamaherd.fleet import Rig
from llamaherd.fleet.examples import EXAMPLES
from llamaherd.quoting import comment, yaml_value
from llamaherd.yamlfile import Document, Path_

_MOST_GIVEN = 60
"""Signs of a value that are repeated."""


class Declared(NamedTuple):
    """What stands at a path: the path without pydantic's own words, the field's name for examples, its type."""

    path: Path_
    field: str
    annotation: Any


def declared_at(path: Path_) -> Declared:
    """What the models have at a path, or at the nearest place around it."""
    annotation: Any = Rig
    field, at = "", list[str | int]()
    for part in path:
        kind = _container(annotation)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found = next((f for name, f in kind.model_fields.items() if (f.alias or name) == part), None)
            if found is None:
                break
            field = f"{kind.__name__}.{part}"
            annotation = Annotated[(found.annotation, *found.metadata)] if found.metadata else found.annotation
        elif get_origin(kind) is dict and isinstance(part, str):
            annotation = get_args(kind)[1]
        elif get_origin(kind) is tuple and isinstance(part, int):
            annotation = get_args(kind)[0]
        else:
            break
        at.append(part)
    return Declared(tuple(at), field, annotation)


def _container(annotation: Any) -> Any:
    """`X` of `X | None` and of `Annotated[X, …]`; of several kinds, the one that holds others."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    kinds = [_container(part) for part in get_args(annotation) if part is not type(None)]
    holding = (kind for kind in kinds if get_origin(kind) in (dict, tuple) or hasattr(kind, "model_fields"))
    return next(holding, kinds[0])


def choices(annotation: Any) -> list[str]:
    """The words that a key takes, if it takes nothing else but them."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        return [str(each) for each in get_args(annotation)]
    if get_origin(annotation) in (Union, UnionType):
        return [word for part in get_args(annotation) for word in choices(part)]
    return []


def mistake(document: Document, problem: dict[str, Any], *, thorough: bool) -> Finding:
    """One of pydantic's errors as a finding; `thorough` looks for the nearest name, which takes its time."""
    path: Path_ = problem["loc"]
    if problem["type"] in ("extra_forbidden", "missing"):
        return _key(document, path, problem["type"], thorough)
    if path == ("models", "from") and problem["type"] == "model_type":
        message = "`from` below `models` would be a model of that name; where models come from is said of the store"
        return Finding("LH186", document.key(path), message, "write `store: {from: [hub]}` beside `models`")
    found = declared_at(path)
    at_key = path[-1:] == ("[key]",)
    place = document.key(path[:-1]) if at_key else document.value(found.path)
    shown = comment(".".join(map(str, found.path)) or "the rig")
    if problem["type"] == "harmful_character":
        message = f"`{shown}` holds {problem['ctx']['character']}, which no text here may hold"
        return Finding("LH013", place, message, _CHARACTER_HELP)
    help_ = _KEY_HELP if at_key else _way_out(found, problem)
    return Finding("LH012", place, _sentence(shown, problem), help_)


def _key(document: Document, path: Path_, kind: str, thorough: bool) -> Finding:
    name, around = str(path[-1]), declared_at(path[:-1])
    if kind == "missing":
        shown = ".".join(map(str, path))
        field = declared_at(path).field
        written = f"`{name}: {EXAMPLES[field]}`" if field in EXAMPLES else f"`{name}:`"
        return Finding("LH011", document.value(around.path), f"`{shown}` is missing", f"add it, as in {written}")
    model = _container(around.annotation) if around.path else Rig
    fields = model.model_fields.items() if hasattr(model, "model_fields") else ()
    known = {field.alias or key for key, field in fields}
    help_ = nearest(name, known) if thorough else "docs/inventory.md has all keys"
    return Finding("LH010", document.key(path), f"there is no key `{comment(name)}` here", help_)


def _sentence(shown: str, problem: dict[str, Any]) -> str:
    """What is wrong with a value."""
    kind, limits = problem["type"], problem.get("ctx", {})
    given = problem["input"]
    if kind == "value_error":
        if not isinstance(given, str | int | float) and f"`{given}`" in str(problem["msg"]):
            return f"what stands at `{shown}` does not do there"
        said = comment(str(problem["msg"]).removeprefix("Value error, "))
        return f"`{shown}`: {said.replace(given, _short(given)) if isinstance(given, str) and given else said}"
    if kind in _KINDS:
        return f"`{shown}` must be {_KINDS[kind]}"
    for limit, words in _LIMITS.items():
        if limit in limits:
            return f"`{shown}` must be {words} {limits[limit]:g}"
    if isinstance(given, str | int | float):
        return f"`{_short(str(given))}` does not do for `{shown}`"
    return f"what stands at `{shown}` does not do there"


def _short(given: str) -> str:
    text = comment(given)
    return f"{text[:_MOST_GIVEN]}…" if len(text) > _MOST_GIVEN else text


def _way_out(found: Declared, problem: dict[str, Any]) -> str:
    """What to write, with an example; of choices, the nearest as a question, or all."""
    words = choices(found.annotation)
    if words and isinstance(problem["input"], str):
        return nearest(problem["input"], words)
    example, key = EXAMPLES.get(found.field), found.field.partition(".")[2]
    if example is None:
        return "docs/inventory.md shows a whole rig"
    # A word where a list is to be, and a number where a text is: if that is all that is wrong, what was meant is known.
    meant = {"tuple_type": [problem["input"]], "string_type": str(problem["input"])}.get(problem["type"])
    if meant is not None and isinstance(problem["input"], str | int | float) and found.path[-1] == key:
        with suppress(ValidationError):
            TypeAdapter(found.annotation).validate_python(meant)
            return f"write `{key}: {yaml_value(meant) if isinstance(meant, str) else f'[{meant[0]}]'}`"
    hint = _HINTS.get(found.field, "")
    return f"{hint and f'{hint}; '}write it like `{key}: {example}`"


_CHARACTER_HELP = (
    "take it out; of such characters, only `extra_args`, `environment` and the texts of `overlay` may hold line ends "
    "and tabs"
)
_KEY_HELP = "choose another one: names have up to 40 lower-case letters, digits, dots and dashes"
_KINDS = {
    **dict.fromkeys(("tuple_type", "list_type", "set_type", "frozen_set_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "mapping_type"), "a mapping"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("string_type", "path_type", "path_error"), "text"),
}
"""What a value should have been, by what pydantic says of it."""
_LIMITS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_HINTS = {
    "Model.sha256": "a sha256 has 64 hexadecimal digits, lower case",
    "Source.sha256": "a sha256 has 64 hexadecimal digits, lower case",
    "Source.commit": "give all 40 hexadecimal digits of the commit, as a branch or tag moves",
    "Store.path": "an absolute path of the host has letters, digits, and `.`, `_`, `+`, `-`",
    "Rig.rig": "names have up to 40 lower-case letters, digits, dots and dashes",
}
"""What else there is to know of a value."""
