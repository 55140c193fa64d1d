"""Findings from pydantic's errors about a rig, in plain words, with a suggestion."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, get_origin

import yaml
from pydantic import BaseModel

from llamaherd.checks.suggestions import (
    KeySuggestion,
    ValueSuggestion,
    as_written,
    is_optional,
    is_valid_as,
    keys_of_model,
    passes_renamed,
    suggest_key,
    suggest_value,
    suggest_value_name,
)
from llamaherd.diagnostics.findings import Edit, Finding, Rule, nearest
from llamaherd.diagnostics.spelling import one_slip
from llamaherd.engines import USUAL
from llamaherd.inventory.exact_edits import key_edit, moved_key, unlisted, value_edit
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.keys import EXAMPLES, DeclaredAt, container_type, declared_at, key_choices, value_at
from llamaherd.inventory.suggestions import candidate_values, is_same_value
from llamaherd.inventory.yaml_file import HARMFUL_CHARACTER, WRONG_VALUE, Document, Path_
from llamaherd.inventory.yaml_text import Loader
from llamaherd.text.quoting import comment
from llamaherd.text.textfile import lines_of

_MOST_GIVEN = 60
"""The most characters of a value that a message repeats."""


MISSING_KEY = Rule(
    "LH011",
    "A key is missing that has no default.",
    example="""
    engines:
      pulled:
        image: registry.lan/llama.cpp@sha256:d2a84f4b8b650937ec8f73cd8be2c74add5a911ba64df27458ed8229da804a26
    """,
    after="Here it is `kind`: the flags of the image's server depend on it.",
    fix="add the key.",
)


def mistakes(document: Document, problems: Sequence[Mapping[str, Any]], most: int) -> list[Finding]:
    """Return all of pydantic's errors as findings; for the first `most`, search for the intended key or value, which
    takes its time.
    """
    written = {id(problem["input"]) for problem in problems if problem["loc"] in document.values}
    own = (each for each in problems if each["loc"] in document.values or id(each["input"]) not in written)
    found = [mistake(document, problem, thorough=n < most) for n, problem in enumerate(own)]
    # A key that another finding suggests is not reported as missing.
    suggested = {each.suggested for each in found} - {None}
    covered = frozenset[Path_]().union(*(each.covers for each in found))
    kept = (
        each.finding
        for each in found
        if (each.missing is None or each.missing not in suggested) and (each.at is None or each.at not in covered)
    )
    # One value may stand for two, as in `kv: q8_0`: report its problem once. Report each key that is missing in one
    # place.
    return list(
        {(each.code, each.place, each.message if each.code == MISSING_KEY.code else ""): each for each in kept}.values()
    )


class Mistake(NamedTuple):
    """A finding; the path of its key, of the key that its help suggests, or that is missing.

    `covers` are the keys without findings of their own: they belong below this one.
    """

    finding: Finding
    suggested: Path_ | None = None
    missing: Path_ | None = None
    at: Path_ | None = None
    covers: frozenset[Path_] = frozenset()


FROM_BELOW_MODELS = Rule(
    "LH186",
    "`from` stands below `models`.",
    why="There it would be a model of that name.",
    example="""
    models: {from: [hub]}
    """,
    fix="write `store: {from: [hub]}` next to `models`.",
)


def mistake(document: Document, problem: Mapping[str, Any], *, thorough: bool) -> Mistake:
    """Return one of pydantic's errors; `thorough` searches for the intended key or value, which takes its time."""
    path: Path_ = problem["loc"]
    if problem["type"] == "missing":
        return _missing(document, path)
    if problem["type"] == "extra_forbidden":
        return _unknown(document, path, problem["input"], thorough)
    if path == ("models", "from") and problem["type"] == "model_type":
        message = "`from` below `models` would be a model of that name; the sources of models are a key of the store"
        help_ = "write `store: {from: [hub]}` next to `models`"
        return Mistake(FROM_BELOW_MODELS.at(document.key(path), message, help_))
    if thorough and not isinstance(problem["input"], dict) and (found := _misplaced(document, path)):
        return found
    return Mistake(_wrong_value(document, problem, thorough), at=path)


def _misplaced(document: Document, path: Path_) -> Mistake | None:
    """Return the mistake of a key that is only indented wrongly. Below a mapping of names, each key is one."""
    if path not in document.keys or not (found := misplaced_key(document, path)):
        return None
    finding = UNKNOWN_KEY.at(document.key(path), found.message, found.help, edits=found.edits)
    return Mistake(finding, suggested=found.right, at=path, covers=found.below)


def _wrong_value(document: Document, problem: Mapping[str, Any], thorough: bool) -> Finding:
    path: Path_ = problem["loc"]
    found = declared_at(path)
    at_key = path[-1:] == ("[key]",)
    limits = problem.get("ctx", {})
    # A value such as `kv: q8_0` has no `kv.v`.
    written = _written(document, found.path)
    shown = comment(".".join(map(str, written)) or "the rig")
    if problem["type"] == "wrong":
        place = document.value((*written, limits["at"]) if limits["at"] else written)
        meant = suggest_value(document, written) if thorough and isinstance(problem["input"], str) else None
        help_ = meant.help if meant else _clipped(limits["help"])
        edits = _value_edits(document, written, meant)
        return WRONG_VALUE.at(place, f"`{shown}`: {_clipped(limits['message'])}", help_, edits=edits)
    place = document.key(path[:-1]) if at_key else document.value(written)
    if problem["type"] == "harmful_character":
        message = f"`{shown}` holds {limits['character']}, which no text of an inventory may hold"
        return HARMFUL_CHARACTER.at(place, message, _CHARACTER_HELP)
    if at_key:
        return WRONG_VALUE.at(place, f"invalid name `{_short(str(path[-2]))}`", suggest_value_name(document, path[:-1]))
    if isinstance(problem["input"], list) and problem["type"] in _MAPPING_TYPES and (listed := _listed(document, path)):
        return WRONG_VALUE.at(place, f"{_sentence(shown, problem)}, and is a list", listed[0], edits=listed[1])
    meant = (suggest_value(document, written) if thorough else None) or _fix(found, problem)
    edits = _value_edits(document, written, meant)
    given = problem["input"]
    is_number = problem["type"] == "string_type" and isinstance(given, int | float)
    if is_number and not is_valid_as(document, written, given):
        return WRONG_VALUE.at(place, f"invalid value `{_short(str(given))}` for `{shown}`", meant.help, edits=edits)
    return WRONG_VALUE.at(place, _sentence(shown, problem), meant.help, edits=edits)


_MAPPING_TYPES = ("dict_type", "model_type", "model_attributes_type", "mapping_type")
_NAME_KEYS = ("name", "id")


def _listed(document: Document, path: Path_) -> tuple[str, tuple[Edit, ...]] | None:
    """Return the fix for a list of mappings where one mapping is meant, and its edits if they are certain."""
    items = value_at(document.data, path)
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) and item for item in items):
        return None
    if get_origin(container_type(declared_at(path).annotation)) is dict:
        key = next((each for each in _NAME_KEYS if all(isinstance(item.get(each), str) for item in items)), None)
        if key is None:
            return None
        name = _short(str(items[0][key]))
        return f"write `{name}:` and its keys below it, in place of `- {key}: {name}`", unlisted(document, path, key)
    return "leave out each `- `: the keys of a mapping need none", unlisted(document, path, None)


def _value_edits(document: Document, written: Path_, meant: ValueSuggestion | None) -> tuple[Edit, ...]:
    """Return the edit that writes the value that is certainly meant."""
    while written and isinstance(written[-1], int):
        written = written[:-1]
    return value_edit(document, written, meant.certain) if meant and meant.certain else ()


def _written(document: Document, path: Path_) -> Path_:
    """Return the part of a path that is written, without the keys that a short form stands for."""
    one = tuple(part for part in path if not isinstance(part, int))
    if path not in document.values and one in document.values:
        return one
    while path and document.values and path not in document.values:
        path = path[:-1]
    return path


def _missing(document: Document, path: Path_) -> Mistake:
    shown, around = ".".join(map(str, path)), declared_at(path[:-1])
    field = declared_at(path).field
    written = f"`{path[-1]}: {EXAMPLES[field]}`" if field in EXAMPLES else f"`{path[-1]}:`"
    message = f"`{comment(shown)}` is missing"
    return Mistake(MISSING_KEY.at(document.value(around.path), message, f"add it, as in {written}"), missing=path)


UNKNOWN_KEY = Rule(
    "LH010",
    "A key is unknown at this place.",
    why="It is misspelt, or stands too far in or out.",
    example="""
    instances:
      coder:
        contxt: 8192
    """,
    fix="""
    the help line names the nearest key, or all keys of that place. [inventory.md](../inventory.md) describes
    each.
    """,
)


def _unknown(document: Document, path: Path_, value: Any, thorough: bool) -> Mistake:
    name, around = str(path[-1]), declared_at(path[:-1])
    written = _misplaced(document, path) or _unseparated(document, path, value) or _decimal_comma(document, path, value)
    if thorough and written:
        return written
    model = container_type(around.annotation) if around.path else Rig
    suggested = KeySuggestion("`herd explain inventory` has all keys")
    if thorough and hasattr(model, "model_fields"):
        suggested = suggest_key(model, name, value, _engine(document, path))
    place = document.key((*_written(document, path[:-1]), path[-1]))
    edits: tuple[Edit, ...] = ()
    if suggested.renames and suggested.key and passes_renamed(document, path, model, suggested.key):
        edits = key_edit(document, (*_written(document, path[:-1]), path[-1]), suggested.key)
    finding = UNKNOWN_KEY.at(place, f"there is no key `{_short(name)}` here", comment(suggested.help), edits=edits)
    return Mistake(finding, suggested=(*path[:-1], suggested.key) if suggested.key else None, at=path)


def _decimal_comma(document: Document, path: Path_, value: Any) -> Mistake | None:
    """Return the mistake of a comma in a number in braces, as in `{temperature: 0,7}`."""
    place = document.keys.get(path)
    text = document.texts.get(place.file) if place else None
    if value is not None or place is None or text is None or not str(path[-1]).isdecimal():
        return None
    line = lines_of(text)[place.line - 1]
    number = re.search(r"([\w.-]+): *(\d+),$", line[: place.column - 1])
    if number is None:
        return None
    whole = len(str(path[-1])) == len("000") and number[2] != "0"
    written = f"{number[1]}: {number[2]}{'' if whole else '.'}{path[-1]}"
    edit = Edit(replace(place, column=place.column - 1), ",", "" if whole else ".")
    message = f"the comma in `{number[2]},{path[-1]}` begins another key"
    return Mistake(UNKNOWN_KEY.at(place, message, f"write `{_short(written)}`", edits=[edit]), at=path)


_SEPARATED = re.compile(r"([\w.-]+)(:|=)(?!//)(\S.*)")


def _unseparated(document: Document, path: Path_, value: Any) -> Mistake | None:
    """Return the mistake of a key in braces that is not separated from its value, as in `{port:8080}`."""
    match = _SEPARATED.fullmatch(str(path[-1]))
    place = document.keys.get(path)
    if value is not None or match is None or place is None:
        return None
    key, sign, rest = match.groups()
    lack = f"there is no space behind `{_short(key)}:`" if sign == ":" else f"there is no colon behind `{_short(key)}`"
    edit = Edit(replace(place, column=place.column + len(key)), sign, ": ")
    finding = UNKNOWN_KEY.at(place, lack, f"write `{_short(f'{key}: {rest}')}`", edits=[edit])
    return Mistake(finding, suggested=(*path[:-1], key), at=path)


def _engine(document: Document, path: Path_) -> str:
    """Return the kind of the engine of the instance that a path leads into."""
    if path[:1] != ("instances",):
        return USUAL
    name = value_at(document.data, (*path[:2], "engine"))
    kind = value_at(document.data, ("engines", str(name), "kind"))
    return kind if isinstance(kind, str) else USUAL


def _sentence(shown: str, problem: Mapping[str, Any]) -> str:
    """Describe what is wrong with a value."""
    kind, limits = problem["type"], problem.get("ctx", {})
    given = problem["input"]
    if kind == "value_error":
        if not isinstance(given, str | int | float) and f"`{given}`" in str(problem["msg"]):
            return f"invalid value for `{shown}`"
        reason = comment(str(problem["msg"]).removeprefix("Value error, "))
        return f"`{shown}`: {reason.replace(given, _short(given)) if isinstance(given, str) and given else reason}"
    if given is None and kind in _KINDS:
        return f"`{shown}` has no value, and must be {_KINDS[kind]}"
    if kind in _KINDS:
        return f"`{shown}` must be {_KINDS[kind]}"
    for limit, words in _LIMITS.items():
        if limit in limits:
            most = limits[limit]
            return f"`{shown}` must be {words} {most if isinstance(most, int) else format(most, 'g')}"
    if isinstance(given, str | int | float):
        return f"invalid value `{_short(str(given))}` for `{shown}`"
    return f"invalid value for `{shown}`"


def _short(given: str) -> str:
    text = comment(given)
    return f"{text[:_MOST_GIVEN]}…" if len(text) > _MOST_GIVEN else text


def _clipped(text: str) -> str:
    """Shorten the words of a sentence to a bearable length."""
    return comment(re.sub(rf"\S{{{_MOST_GIVEN * 2},}}", lambda word: f"{word[0][:_MOST_GIVEN]}…`", text))


def _fix(found: DeclaredAt, problem: Mapping[str, Any]) -> ValueSuggestion:
    """Return the fix, with an example; of choices, the nearest as a question, or all."""
    words = key_choices(found.annotation)
    if words:
        given = problem["input"] if isinstance(problem["input"], str) else ""
        meant = next((each for each in candidate_values(found.field, given) if each in words), None)
        certain = meant if meant and is_same_value(given, meant) else one_slip(given, words)
        return ValueSuggestion(f"did you mean `{meant}`?" if meant else nearest(given, words), certain)
    example, key = EXAMPLES.get(found.field), found.field.partition(".")[2]
    if isinstance(problem["input"], str) and _VARIABLE.search(problem["input"]) and found.field not in _SECRETS:
        return ValueSuggestion(f"write the value itself: an inventory has no variables, as in `{key}: {example}`")
    if example is None:
        return ValueSuggestion("`herd explain inventory` shows a whole rig")
    hint = _HINTS.get(found.field, "")
    if problem["input"] in _DEFAULTS and is_optional(found.field):
        hint = f"leave `{key}` out for the default{hint and f', or give {hint}'}"
    if found.path and found.path[-1] != key and found.field in _NAMED:
        # One of several kinds, by its name in the inventory.
        example = as_written(next(iter(yaml.load(example, Loader=Loader).values())))
        key = _short(str(found.path[-1]))
    return ValueSuggestion(f"{hint and f'{hint}; '}write it like `{key}: {example}`")


_DEFAULTS = ("auto", "default", "max", "all", "none", "unlimited")
"""Words that users write for a default, where the key does not accept them."""
_VARIABLE = re.compile(r"\$\{?\w+\}?|\{\{.*\}\}")
_SECRETS = ("Instance.api_key", "Secret.env", "Secret.file")
_CHARACTER_HELP = (
    "take it out; of such characters, only `extra_args`, `environment` and the texts of `overlay` may hold line ends "
    "and tabs"
)
_NAMED = ("Gpus.cards", "Rig.engines", "Rig.models", "Rig.instances")
"""Fields that hold things by names of the user's."""
_KINDS = {
    **dict.fromkeys(("tuple_type", "list_type", "set_type", "frozen_set_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "mapping_type"), "a mapping"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("string_type", "path_type", "path_error"), "text"),
}
"""The expected kind of a value, by pydantic's type of the error."""
_LIMITS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_HINTS = {
    "Model.sha256": "a sha256 has 64 hexadecimal digits, lower case",
    "Source.sha256": "a sha256 has 64 hexadecimal digits, lower case",
    "Source.commit": "give all 40 hexadecimal digits of the commit, as a branch or tag moves",
    "Store.path": "an absolute path of the host has letters, digits, and `.`, `_`, `+`, `-`",
    "Instance.gpu_layers": "a number of layers, or `all`",
    "Instance.experts_on_cpu": "a part, a number of layers, or `all`",
    "Engine.ref": "a tag, a branch or a commit of the engine's own repository",
    "Instance.api_key": "name the file of this machine with the key, or as `{env: CODER_KEY}` a variable",
    "Secret.env": "the name of a variable of this machine",
    "Wsl.swap": "a size, or 0 for none",
    "Gpus.cuda": "major and minor version, in quotes",
    "Instance.cpus": "numbers and ranges of logical processors, in quotes where there is one",
    "Instance.extra_args": "a list of texts",
    "Rig.rig": "names have up to 40 lower-case letters, digits, dots and dashes",
}
"""More help for a value."""


_FEWEST = 2
"""The fewest keys by which a mapping is recognised as an instance, a model, an engine or a GPU."""


@dataclass(frozen=True)
class Misplaced:
    """A key at a wrong depth: the sentence, the fix, its right path, its edits, and the keys that belong below it."""

    message: str
    help: str
    right: Path_
    edits: tuple[Edit, ...]
    below: frozenset[Path_]


def misplaced_key(document: Document, path: Path_) -> Misplaced | None:
    """Return where a key belongs that is unknown only because of its indentation; None for other keys."""
    place = document.keys.get(path)
    text = document.texts.get(place.file) if place else None
    if place is None or text is None or lines_of(text)[place.line - 1][: place.column - 1].strip():
        return None  # inherited, or within braces
    model, _ = _kinds(path[:-1])
    if model is not None and path[-1] in keys_of_model(model):
        return None
    value = value_at(document.data, path)
    below = frozenset(_followers(document.data, path)) if value is None else frozenset[Path_]()
    if value is None:
        value = value_at(document.data, path[:-1])
        value = {str(each[-1]): value[each[-1]] for each in below}
    outer = next((path[:n] for n in range(len(path) - 2, -1, -1) if _fits(document, path[:n], path[-1], value)), None)
    parent = outer if outer is not None else _inner(document, path, value)
    if parent is None:
        return None
    name, around = comment(str(path[-1])), comment(".".join(map(str, path[:-1])))
    where = f"below `{around}`" if around else "at the left edge"
    too = "indented too far" if outer is not None else "not indented enough"
    target = f"below `{comment('.'.join(map(str, parent)))}`" if parent else "at the left edge"
    moved = moved_key(document, path, parent)
    depth = f"indent it with {moved.depth} spaces, " if moved.depth else "write it "
    return Misplaced(
        f"`{name}` is {too}: it stands {where}", f"{depth}{target}", (*parent, path[-1]), moved.edits, below
    )


def _followers(data: Any, path: Path_) -> Iterator[Path_]:
    """Yield the keys that follow a key in its mapping."""
    around = value_at(data, path[:-1])
    keys = list(around) if isinstance(around, dict) else []
    for key in keys[keys.index(path[-1]) + 1 :] if path[-1] in keys else ():
        yield (*path[:-1], key)


def _fits(document: Document, parent: Path_, key: Any, value: Any) -> bool:
    """Return whether a key with a value belongs into a mapping that does not have it yet."""
    around = value_at(document.data, parent) if parent else document.data
    if around is not None and (not isinstance(around, dict) or key in around):
        return False
    model, item = _kinds(parent)
    if model is not None:
        return key in keys_of_model(model)
    known = keys_of_model(item) if item is not None and isinstance(value, Mapping) else ()
    matching = sum(each in known for each in value) if known else 0
    return matching >= _FEWEST and 2 * matching >= len(value)


def _kinds(parent: Path_) -> tuple[type[BaseModel] | None, type[BaseModel] | None]:
    """Return the model of a mapping, or of the named things in it."""
    found = declared_at(parent)
    if found.path != parent:
        return None, None
    kind = container_type(found.annotation) if parent else Rig
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind, None
    item = container_type(declared_at((*parent, "name")).annotation)
    return None, item if isinstance(item, type) and issubclass(item, BaseModel) else None


def _inner(document: Document, path: Path_, value: Any) -> Path_ | None:
    """Return the mapping above a key, in the lines of the file, that it belongs into."""
    around = value_at(document.data, path[:-1]) if len(path) > 1 else document.data
    keys = list(around) if isinstance(around, dict) else []
    model, _ = _kinds(path[:-1])
    for sibling in reversed(keys[: keys.index(path[-1])] if path[-1] in keys else []):
        at: Path_ | None = (*path[:-1], sibling)
        while at is not None:
            if _fits(document, at, path[-1], value):
                return at
            inside = value_at(document.data, at)
            at = (*at, next(reversed(inside))) if isinstance(inside, dict) and inside else None
        if model is None or sibling in keys_of_model(model):
            return None
    return None
