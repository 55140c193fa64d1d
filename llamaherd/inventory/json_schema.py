"""JSON Schemas of the YAML files of a fleet, for completion and checks in editors.

They follow from the models, with two differences for inheritance: a file may leave out inherited keys, so nearly no key
is required, and any key of a mapping may be `null`, which removes an inherited key.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, BeforeValidator
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from llamaherd.inventory import schema as fleet
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.base import Megahertz, Percent, Size, Watts
from llamaherd.inventory.schema.fleet_file import FleetFile
from llamaherd.inventory.schema.keys import EXAMPLES
from llamaherd.inventory.schema.rig import DataRate, Hours, StoreOrigin
from llamaherd.inventory.schema.serving import Rate, Share
from llamaherd.inventory.yaml_file import EXTENDS, INSTANCE_DEFAULTS, OWN_KEYS
from llamaherd.inventory.yaml_text import Loader

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def rig_schema() -> Schema:
    """Return the schema of a rig's file. `rig` and `connect` are its own; all other keys can be inherited."""
    schema = _declared()
    own: Schema = {
        EXTENDS: {"$ref": "#/$defs/Name", "description": "A rig whose keys this one takes over, but for its own."},
    }
    return _finished("rig", "A rig of llamaherd", schema, own | schema["properties"], ["rig", "connect"])


def defaults_schema() -> Schema:
    """Return the schema of `defaults.yaml`: the keys that a rig can inherit."""
    schema = _declared()
    shared = {key: value for key, value in schema["properties"].items() if key not in OWN_KEYS}
    return _finished("defaults", "Defaults for all rigs of a fleet", schema, shared, [])


def fleet_schema() -> Schema:
    """Return the schema of `fleet.yaml`, which is about all rigs of a fleet together."""
    schema = _model(FleetFile)
    return _finished("fleet", "Settings of a fleet", schema, schema["properties"], [])


SCHEMAS: Mapping[str, Callable[[], Schema]] = {"rig": rig_schema, "defaults": defaults_schema, "fleet": fleet_schema}


def schema_text(kind: str) -> str:
    """Return the text of `rig.schema.json`, `defaults.schema.json` or `fleet.schema.json`."""
    return json.dumps(SCHEMAS[kind](), indent=2, ensure_ascii=False) + "\n"


def _parser(quantity: Any) -> Any:
    """Return the function that parses an annotated type."""
    return next(part.func for part in get_args(quantity) if isinstance(part, BeforeValidator))


_SPELLINGS: Mapping[Any, Schema] = {
    _parser(Size): {
        "type": ["string", "integer"],
        "pattern": r"^\s*(\d{1,15}(\.\d{1,9})?\s*([kKmMgGtT][iI]?[bB]?|[bB])|[1-9]\d{6,14})\s*$",
        "minimum": 1_000_000,
        "examples": ["64GB", "512MiB"],
    },
    _parser(Watts): {
        "type": ["string", "integer"],
        "pattern": r"^\s*\d{1,6}\s*[wW]?\s*$",
        "minimum": 1,
        "examples": ["320W"],
    },
    _parser(Megahertz): {
        "type": ["string", "integer"],
        "pattern": r"^\s*\d{1,6}\s*([mM][hH][zZ])?\s*$",
        "minimum": 1,
        "examples": ["1800MHz"],
    },
    _parser(Percent): {
        "type": ["string", "integer"],
        "pattern": r"^\s*0{0,3}([1-9][0-9]?|100)\s*%?\s*$",
        "minimum": 1,
        "maximum": 100,
        "examples": ["70%"],
    },
    _parser(DataRate): {
        "type": ["string", "integer"],
        "pattern": r"^\s*\d{1,9}(\.\d{1,9})?\s*([kKmMgG]i?)?(B/s|B|/s|bit/s|bit|bps)?\s*$",
        "minimum": 1,
        "examples": ["8MB/s", "64Mbit/s"],
    },
    _parser(Hours): {
        "type": "string",
        "pattern": r"^\s*([01]?\d|2[0-3]):[0-5]\d\s*-\s*(([01]?\d|2[0-3]):[0-5]\d|24:00)\s*$",
        "examples": ["07:00-23:00"],
    },
    _parser(StoreOrigin): {
        "type": "string",
        "pattern": r"^(/[^\u0000-\u001f\u007f]*|[a-z0-9][a-z0-9._-]{0,39})$",
        "examples": ["hub", "/mnt/usb/models"],
    },
    _parser(Rate): {
        "type": ["string", "number"],
        "pattern": r"^\s*\d+(\.\d+)?\s*(t/s|tok/s|tokens/s)?\s*$",
        "exclusiveMinimum": 0,
        "examples": ["35 t/s"],
    },
    _parser(Share): {
        "type": ["string", "integer"],
        "pattern": r"^(all|\d+|(100(\.0{1,4})?|\d{1,2}(\.\d{1,4})?)%)$",
        "minimum": 0,
        "examples": ["75%", "all"],
    },
}
"""The patterns of quantities. Their parsers are in units.py and next to the types."""


class _Generator(GenerateJsonSchema):
    """Return the schema of the written forms, if a model reads more than its type."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        spelling = _SPELLINGS.get(schema["function"]["function"])
        return super().function_before_schema(schema) if spelling is None else dict(spelling)


def _declared() -> Schema:
    """Return a rig's schema with the `$defs` of its parts, cleaned, and with the key for instance defaults."""
    raw = _described(Rig)
    parts = {name: _part(name, part) for name, part in raw["$defs"].items()}
    # Which machine it is, no rig takes over: what it needs to be reached stands there.
    parts["Connect"]["required"] = ["host"]
    parts["Instance"]["properties"]["environment"]["additionalProperties"] = {
        "type": ["string", "number", "null"],
        "examples": ["0"],
    }
    stored = Rig.model_json_schema(mode="serialization")["$defs"]
    for part, key in (("Driver", "branch"), ("Gpus", "cuda")):
        # A pattern binds texts alone: a number may stand for its text, as in `cuda: 13.0`.
        parts[part]["properties"][key]["pattern"] = stored[part]["properties"][key]["pattern"]
    name = raw["properties"]["rig"]
    parts["Name"] = {"type": "string", "pattern": name["pattern"]}
    properties = _part("Rig", raw)["properties"]
    properties["rig"] = {"$ref": "#/$defs/Name", "description": name["description"]}
    properties["connect"] = {
        "anyOf": [{"$ref": "#/$defs/Connect"}, {"const": "local"}],
        "description": raw["properties"]["connect"]["description"],
    }
    properties[INSTANCE_DEFAULTS] = {
        "anyOf": [{"$ref": "#/$defs/Instance"}, {"type": "null"}],
        "description": "Defaults for the keys of every instance of the rig.",
    }
    return {"properties": properties, "$defs": dict(sorted(parts.items()))}


def _model(top: type[BaseModel]) -> Schema:
    """Return the schema of a file without inheritance."""
    raw = _described(top)
    parts = {name: _part(name, part, inherits=False) for name, part in raw["$defs"].items()}
    whole = _part(top.__name__, raw, inherits=False)
    return {"properties": whole["properties"], "$defs": dict(sorted(parts.items()))}


def _described(top: type[BaseModel]) -> Schema:
    """Return pydantic's schema of a model, with the meaning of each key."""
    raw = top.model_json_schema(schema_generator=_Generator)
    for (model, key), text in _meanings().items():
        part = raw if model == top.__name__ else raw["$defs"].get(model, {})
        if key in part.get("properties", {}):
            part["properties"][key]["description"] = text
    return raw


def _meanings() -> dict[tuple[str, str], str]:
    """Return the docstring of each key, by model and key. pydantic could read them itself, but at every start."""
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in Path(fleet.__path__[0]).glob("*.py"))
    models = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    found = {}
    for model in models:
        for declared, below in pairwise(model.body):
            match declared, below:
                case ast.AnnAssign(target=ast.Name(key)), ast.Expr(ast.Constant(str(text))):
                    # `from` is a word of Python: its field is `from_`.
                    found[model.name, key.removesuffix("_")] = inspect.cleandoc(text)
    return found


def _finished(kind: str, title: str, schema: Schema, properties: Schema, required: list[str]) -> Schema:
    return {
        "$schema": DIALECT,
        "$id": f"urn:llamaherd:{kind}",
        "title": title,
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
        "$defs": schema["$defs"],
    }


def _part(name: str, part: Schema, *, inherits: bool = True) -> Schema:
    """Return the schema of one model. If keys can be inherited, none is required and each may be null."""
    properties = {}
    for key, value in part["properties"].items():
        properties[key] = _nullable(_cleaned(value)) if inherits else _cleaned(value)
        if (example := EXAMPLES.get(f"{name}.{key}")) and _is_open(properties[key]):
            properties[key]["examples"] = [yaml.load(example, Loader=Loader)]
    return {
        "description": part["description"],
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": part["required"]} if "required" in part and not inherits else {}),
    }


def _is_open(schema: Schema) -> bool:
    """Return whether an example is useful: editors list choices, and parts have their own examples."""
    kinds = schema.get("anyOf", [schema])
    return not any({"examples", "enum", "const", "$ref"} & kind.keys() for kind in (schema, *kinds)) and not any(
        "boolean" in kind.get("type", ()) for kind in kinds
    )


def _cleaned(schema: Schema) -> Schema:
    """Return a schema without titles, formats, duplicate bounds and defaults of null, which only pydantic uses."""
    kept = {key: value for key, value in schema.items() if key not in ("title", "format", "gt", "ge", "le")}
    if kept.get("default", 0) is None:
        del kept["default"]
    if "anyOf" in kept:
        kept["anyOf"] = [_cleaned(each) for each in kept["anyOf"]]
    if isinstance(kept.get("items"), dict):
        kept["items"] = _cleaned(kept["items"])
    if kept.get("type") == "object":
        values = kept.pop("patternProperties", None)
        if values:
            ((pattern, of_each),) = values.items()
            kept |= {"propertyNames": {"pattern": pattern}, "additionalProperties": of_each}
        if isinstance(kept.get("additionalProperties"), dict):
            kept["additionalProperties"] = _nullable(_cleaned(kept["additionalProperties"]))
    return kept


def _nullable(schema: Schema) -> Schema:
    """Return a schema that also accepts null. Kinds that differ only by type need no `anyOf`."""
    described = {key: schema[key] for key in ("description", "default", "examples") if key in schema}
    rest = {key: value for key, value in schema.items() if key not in described}
    kinds = [kind for kind in rest.get("anyOf", [rest]) if kind != {"type": "null"}]
    if len(kinds) == 1 and "type" in kinds[0]:
        return described | _or_null(kinds[0])
    return described | {"anyOf": [*kinds, {"type": "null"}]}


def _or_null(kind: Schema) -> Schema:
    types = kind["type"] if isinstance(kind["type"], list) else [kind["type"]]
    either = {**kind, "type": [*types, "null"]}
    return {**either, "enum": [*kind["enum"], None]} if "enum" in kind else either
