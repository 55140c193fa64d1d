"""The schemas that editors use: they accept what `herd check` accepts, and refuse what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from llamaherd.inventory import schema as fleet
from llamaherd.inventory.json_schema import SCHEMAS, defaults_schema, rig_schema, schema_text
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.pipeline.fleet_files import examine_fleet
from llamaherd.scaffold import example_rig, fleet_files
from tests.support.rigs import GONE, ROOT, changed, cpu_rig, gpu_rig

Declared = dict[str, Any]

RIG = Draft202012Validator(rig_schema())
DEFAULTS = Draft202012Validator(defaults_schema())
EXAMPLES = sorted(file for file in (ROOT / "inventory").rglob("*.yaml") if file.name != "fleet.yaml")


def problems(declared: object, validator: Draft202012Validator = RIG) -> list[str]:
    """What the schema has against it: the path and the sentence."""
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(declared)]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_schemas_of_the_docs_are_current(kind: str) -> None:
    """`herd schema KIND > docs/schema/KIND.schema.json` makes them so."""
    assert (ROOT / "docs" / "schema" / f"{kind}.schema.json").read_text(encoding="utf-8") == schema_text(kind)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_they_are_schemas(kind: str) -> None:
    schema = json.loads(schema_text(kind))
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:llamaherd:{kind}"


@pytest.mark.parametrize("declared", [cpu_rig(), gpu_rig()], ids=["cpu", "gpu"])
def test_rigs_are_accepted(declared: Declared) -> None:
    assert problems(declared) == []


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_rigs_of_this_repository_are_accepted(file: Path) -> None:
    assert problems(read_yaml(file).data) == []


def test_what_init_writes_is_accepted(tmp_path: Path) -> None:
    for name, text in fleet_files({"attic": example_rig()}).items():
        if name.endswith(".yaml"):
            (tmp_path / name).write_text(text)
            assert problems(read_yaml(tmp_path / name).data, DEFAULTS if name == "defaults.yaml" else RIG) == []


MODELS = [value for value in vars(fleet).values() if isinstance(value, type) and issubclass(value, BaseModel)]


def test_every_key_is_described() -> None:
    parts = rig_schema()["$defs"]
    for model in MODELS:
        if model.__name__ in parts:
            properties = parts[model.__name__]["properties"]
            assert list(properties) == [field.alias or key for key, field in model.model_fields.items()]
            assert [key for key, value in properties.items() if not value.get("description")] == []
    assert {*Rig.model_fields, "extends", "instance_defaults"} == set(rig_schema()["properties"])
    assert [key for key, value in rig_schema()["properties"].items() if not value.get("description")] == []


# What people may write: paths in `gpu_rig`, and what is there instead.
WRITTEN: dict[str, list[object]] = {
    "connect": ["local", {"host": "a"}],
    "connect/key": ["~/.ssh/id", "keys/id"],
    "host/ram": ["64GB", "64 GiB", "512M", 64000000000, "1.5TB", "64gb"],
    "host/cpu/performance": [8],
    "host/wsl": [{}, {"memory": "64GB", "swap": 0, "networking": "mirrored"}, {"swap": "8GB"}],
    "host/wsl/settings": [{"wsl2": {"nestedVirtualization": False, "swapFile": "C:\\\\s", "processors": 8}}],
    "gpus/cuda": ["13.0", 13.0, 12.8],
    "gpus/driver": [{"branch": 580}, {"branch": "580", "version": "580.95.05"}],
    "gpus/cards/new": [{"model": "RTX 3090"}, {"model": "P40", "architecture": "61", "memory": "24GiB", "index": 0}],
    "gpus/cards/new/power_limit": ["320W", "320 w", 320],
    "gpus/cards/new/fans": ["70%", "70 %", 70, "1%", "100%", "070"],
    "gpus/cards/new/clocks": [{"max": "1800MHz"}, {"min": 300, "max": 1800}],
    "engines/main": [{"kind": "llama.cpp", "ref": "b11434"}],
    "engines/main/options": [{"GGML_LTO": True, "N": 3, "S": "text"}],
    "store": [{"path": "/srv/models"}, {"from": "hub"}, {"from": ["six", "/mnt/my disk", "hub"]}, {"connections": 32}],
    "store/bandwidth": [
        *("8MB/s", "64 Mbit/s", "64Mbps", "500k", 8000000, []),
        *({"limit": "8MB/s"}, [{"limit": "1.5GB/s", "hours": "7:00-24:00"}, {"limit": 10000, "hours": "22:00 - 6:00"}]),
    ],
    "store/share": [{"address": "192.168.1.20"}, {"address": "six.lan", "port": 9000}, {"address": "fd00::6"}],
    "models/35b": [
        {"hf": "a/b", "quant": "UD-Q4_K_XL", "mmproj": "mmproj-F16.gguf"},
        {"hf": "a/b"},
        {"file": "a.gguf", "sha256": "ab" * 32},
    ],
    "instances/reasoner/kv": ["q8_0", {"k": "q8_0"}, {"k": "f16", "v": "q4_0"}],
    "instances/reasoner/tensor_split": [[0.9, 1], [1, 1.5]],
    "instances/reasoner/gpu_layers": ["all", 12],
    "instances/reasoner/experts_on_cpu": ["75%", "12.5%", "all", 12, "12"],
    "instances/reasoner/flash_attention": ["on", "off", "auto"],
    "instances/reasoner/mmap": [True, False],
    "instances/reasoner/extra_args": [["--temp", "0.6"], "--temp 0.6", []],
    "instances/reasoner/environment": [{"A": "b", "C": 1, "D": 0.5}],
    "instances/reasoner/sampling": [{"temperature": 0.6, "top_k": 20, "seed": -1}],
    "instances/reasoner/draft": [{"mtp": 2}, {"model": "small", "max": 8, "p_min": 0.5}, {"mtp": 1, "model": "head"}],
    "instances/reasoner/expect": [{"decode": "35 t/s", "prefill": 650, "power": "700W"}, {"decode": "35.5 tok/s"}],
    "instances/reasoner/listen": ["localhost", "127.0.0.1", "::1"],
    "instances/reasoner/api_key": [{"env": "KEY"}, {"file": "keys/k"}],
    "instances/reasoner/cpus": ["0-5,12-17", "3"],
}


@pytest.mark.parametrize("path", WRITTEN)
def test_spellings_that_are_read_are_accepted(path: str) -> None:
    for value in WRITTEN[path]:
        declared = changed(gpu_rig(), {path: value})
        Rig.model_validate(declared)
        assert problems(declared) == []


# What nobody means: paths in `gpu_rig`, and what is there instead.
REFUSED: dict[str, list[object]] = {
    "rig": ["Box", "", 5, None],
    "connect": ["remote", 5, {}, None],
    "host/ram": ["much", "16 GiBit", -1, 0, 1.5, [1], True],
    "host/os": ["windows-11"],
    "host/cpu/cores": [0, "many", 1.5],
    "gpus/cuda": ["13", "new"],
    "gpus/cards/new/uuid": ["new", 5],
    "gpus/cards/new/power_limit": ["320 V", 0],
    "gpus/cards/new/fans": ["auto", "0%", 0, "101%", 101, "7.5%", True],
    "gpus/cards/New": [{"model": "RTX 3090"}],
    "engines/main/kind": ["vlm"],
    "engines/main/options": [{"lower": 1}],
    "store": [{"path": "models"}, {"path": "~/models"}, {"path": "/srv/my models"}, {"from": ["~/models"]}, "hub"],
    "store/bandwidth": ["8Mb/s", "fast", -1, True, {"limit": 1, "hours": "7-23"}],
    "store/connections": [0, 33],
    "store/share": [{"address": "http://six.lan"}, {"port": 0}],
    "models/35b/sha256": ["short"],
    "instances/reasoner/port": [0, 65536, "http"],
    "instances/reasoner/context": [17],
    "instances/reasoner/kv": ["q9_0", {"q": "f16"}],
    "instances/reasoner/experts_on_cpu": ["most", "101%"],
    "instances/reasoner/flash_attention": [True, "yes"],
    "instances/reasoner/expect": [{"decode": "fast"}],
}


@pytest.mark.parametrize("path", REFUSED)
def test_what_is_wrong_is_refused(path: str) -> None:
    for value in REFUSED[path]:
        declared = changed(gpu_rig(), {path: value})
        assert problems(declared)
        with pytest.raises(ValueError, match=r".+"):
            Rig.model_validate(declared)


def mappings(node: Declared, path: str = "") -> list[str]:
    """The paths of all mappings whose keys are llamaherd's and not names of one's own."""
    own_names = ("gpus/cards", "engines", "models", "instances", "options", "overlay")
    inner = [
        each for key, value in node.items() if isinstance(value, dict) for each in mappings(value, f"{path}{key}/")
    ]
    return inner if path.rstrip("/").endswith(own_names) else [path, *inner]


@pytest.mark.parametrize("path", mappings(gpu_rig()))
def test_no_mapping_takes_a_key_that_is_not_known(path: str) -> None:
    declared = changed(gpu_rig(), {f"{path}colour": "red"})
    assert any("colour" in problem for problem in problems(declared))
    with pytest.raises(ValueError, match="colour"):
        Rig.model_validate(declared)


@pytest.mark.parametrize("key", ["host", "gpus", "engines", "models", "instances"])
def test_what_can_be_inherited_is_neither_missing_nor_kept_from_null(key: str) -> None:
    assert problems(changed(gpu_rig(), {key: GONE})) == []
    assert problems(changed(gpu_rig(), {key: None})) == []


@pytest.mark.parametrize("key", ["rig", "connect"])
def test_which_machine_it_is_cannot_be_inherited(key: str) -> None:
    assert problems(changed(gpu_rig(), {key: GONE}))
    assert problems({key: gpu_rig()[key]}, DEFAULTS)


def test_a_rig_that_takes_over_all_but_a_little() -> None:
    declared = {
        "rig": "next",
        "connect": {"host": "next.lan"},
        "extends": "duo",
        "host": {"cpu": {"performance": None}},
        "gpus": {"cards": {"old": None}},
        "instance_defaults": {"parallel": 2, "draft": None},
        "instances": {"reasoner": {"port": 9000}, "worker": None},
    }
    assert problems(declared) == []
    defaults = {key: value for key, value in declared.items() if key not in ("rig", "connect", "extends")}
    assert problems(defaults, DEFAULTS) == []
    assert problems({"extends": "duo"}, DEFAULTS)


CHANGES = st.sampled_from([(path, value) for path, values in WRITTEN.items() for value in values])
ODD = st.sampled_from([(path, value) for path, values in REFUSED.items() for value in values])


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60, deadline=None
)
@given(st.lists(CHANGES | ODD, max_size=4))
def test_whatever_is_checked_without_errors_is_accepted(tmp_path: Path, changes: list[tuple[str, object]]) -> None:
    file = tmp_path / "duo.yaml"
    declared = gpu_rig()
    for path, value in changes:
        if reaches(declared, path):
            declared = changed(declared, {path: value})
    file.write_text(json.dumps(declared))
    _, findings = examine_fleet(file)
    if not any(finding.severity == "error" for finding in findings):
        assert problems(read_yaml(file).data) == []


def reaches(declared: object, path: str) -> bool:
    """Whether every mapping on the way to a path is one, or can be made."""
    for part in path.split("/")[:-1]:
        declared = declared.get(part, {}) if isinstance(declared, dict) else None
    return isinstance(declared, dict)
