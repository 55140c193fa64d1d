"""The table of keys that become flags: what it writes it reads back, in the words of the engines' catalogues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from llamaherd.engines import DIALECTS, Server
from llamaherd.engines.flags import Catalogue, catalogues
from llamaherd.engines.flags.keys import keys_from_arguments
from llamaherd.inventory.schema import Instance
from llamaherd.inventory.schema.key_flags import KEY_FLAGS, key_arguments
from llamaherd.inventory.schema.serving import CacheType

VERSIONS = {kind: {known.version: known for known in catalogues(kind)} for kind in DIALECTS}
PLAIN = {"engine": "e", "model": "m", "context": 4096, "port": 8080}
DRAFTS = st.sampled_from(["s", "gemma-3-1b"])
OWN_VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "gpu_layers": st.integers(0, 98) | st.just("all"),  # 99 and more is read as `all`
    "listen": st.sampled_from(["127.0.0.1", "0.0.0.0", "::1"]),
    "model": st.sampled_from(["m", "qwen3.6-35b"]),
    "kv": st.fixed_dictionaries({}, optional=dict.fromkeys(("k", "v"), st.sampled_from(get_args(CacheType)))),
    "api_key": st.just({"file": "/key"}),
    "idle": st.fixed_dictionaries({"unload": st.sampled_from(["1m", "90s", "15m", "2880m"])}),
    "draft": st.fixed_dictionaries({"mtp": st.integers(1, 16)}, optional={"model": DRAFTS, "p_min": st.just(0.25)})
    | st.fixed_dictionaries({"model": DRAFTS}, optional={"max": st.integers(1, 64), "p_min": st.just(0.5)}),
}
"""Values that the schema alone does not describe."""
NOT_READ_BACK = {"on", "tensor_split", "experts_on_cpu"}
"""Keys with a test of their own below: their number of parts is that of `on`, or a model's header decides on them."""


def values(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Draw values that a part of the JSON Schema accepts."""
    if "$ref" in schema:
        return objects(parts[schema["$ref"].rpartition("/")[2]]["properties"], parts)
    if "anyOf" in schema:
        return st.one_of([values(each, parts) for each in schema["anyOf"] if each.get("type") != "null"])
    if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return st.sampled_from(choices)
    low, high = schema.get("minimum", -100), schema.get("maximum", 2**31 - 1)
    if schema["type"] == "integer":
        return st.integers(low, high)
    if schema["type"] == "number":
        return st.integers(round(100 * low), min(round(100 * high), 10_000)).map(lambda hundredths: hundredths / 100)
    assert schema["type"] == "boolean", f"draw values for {schema} in OWN_VALUES"
    return st.booleans()


def objects(properties: Mapping[str, Any], parts: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw some of the keys with values."""
    drawn = {key: OWN_VALUES[key] if key in OWN_VALUES else values(each, parts) for key, each in properties.items()}
    return st.fixed_dictionaries({}, optional=drawn)


SCHEMA = Instance.model_json_schema()
KEYS = {row.top for row in KEY_FLAGS} & set(Instance.model_fields) - NOT_READ_BACK
INSTANCES = st.builds(
    lambda keys, cards: PLAIN | {"on": [f"card{number}" for number in range(cards)]} | keys,
    objects({key: SCHEMA["properties"][key] for key in sorted(KEYS)}, SCHEMA["$defs"]),
    st.integers(0, 4),
)


def arguments(known: Catalogue, declared: Mapping[str, Any]) -> tuple[str, ...]:
    instance = Instance.model_validate(declared, context={"folder": "/"})
    draft = instance.draft.model if instance.draft else None
    server = Server(
        instance,
        model_path=f"/{instance.model}.gguf",
        threads=instance.threads or 6,
        listen=instance.listen,
        api_key_file="/key" if instance.api_key else None,
        flags=known,
        draft_path=f"/{draft}.gguf" if draft else None,
    )
    return key_arguments(known.kind, server)


def without_one_key(declared: Mapping[str, Any]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield each key, `a.b` for a part, with its value and what is declared without it."""
    for key, value in declared.items():
        yield key, value, {name: each for name, each in declared.items() if name != key}
        for inner in value if isinstance(value, dict) else ():
            rest = {name: each for name, each in value.items() if name != inner}
            yield f"{key}.{inner}", value[inner], {**declared, key: rest}


def value_at(keys: Mapping[str, Any], path: str) -> Any:
    key, _, inner = path.partition(".")
    return keys.get(key, {}).get(inner) if inner else keys.get(key)


@pytest.mark.parametrize("kind", DIALECTS)
@given(data=st.data(), declared=INSTANCES)
def test_arguments_are_read_back_as_the_keys_of_their_instance(
    kind: str, data: st.DataObject, declared: dict[str, Any]
) -> None:
    known = VERSIONS[kind][data.draw(st.sampled_from(sorted(VERSIONS[kind])), label="version")]
    try:
        written = arguments(known, declared)
    except ValidationError:
        return  # such as a split without GPUs
    keys, model, name, gpus, rest = keys_from_arguments(written, kind)
    assert rest == []
    assert (model, name) == (f"/{declared['model']}.gguf", declared["model"])
    assert gpus in (None, len(declared["on"]))
    read = {**PLAIN, "on": declared["on"], **keys, "model": name}
    assert arguments(known, read) == written
    for path, value, fewer in without_one_key(declared):
        try:
            matters = arguments(known, fewer) != written
        except ValidationError:
            matters = False  # a key that another one needs
        if matters and path != "on" and not isinstance(value, dict):
            assert value_at(read, path) == value, path


@given(shares=st.lists(st.sampled_from([0, 0.5, 0.9, 1, 3, 24]), min_size=2, max_size=4))
@pytest.mark.parametrize("kind", ["llama.cpp", "ik_llama.cpp"])
def test_shares_of_gpus_are_read_back(kind: str, shares: list[float]) -> None:
    if any(shares):
        declared = PLAIN | {"on": [f"card{number}" for number, _ in enumerate(shares)], "tensor_split": shares}
        written = arguments(catalogues(kind)[-1], declared)
        assert keys_from_arguments(written, kind).keys["tensor_split"] == shares


@pytest.mark.parametrize("kind", DIALECTS)
def test_each_flag_of_the_table_is_in_a_catalogue(kind: str) -> None:
    flags = [flag for row in KEY_FLAGS if (spelling := row.spelled.get(kind)) for flag in spelling.flags]
    assert [flag for flag in flags if not any(known.find(flag) for known in catalogues(kind))] == []


@pytest.mark.parametrize("kind", DIALECTS)
def test_each_flag_carries_one_key(kind: str) -> None:
    flags = [flag for row in KEY_FLAGS if (spelling := row.spelled.get(kind)) for flag in spelling.flags]
    assert sorted(flags) == sorted(set(flags))
