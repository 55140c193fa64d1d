"""The models of what is declared: what they accept, refuse and make of short spellings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from llamaherd.inventory.schema import Card, Engine, Instance, Model, Rig, Secret, Source
from llamaherd.reference.cards import CARDS
from tests.support.rigs import COMMIT, DIGEST, ROOT, SHA, changed, cpu_rig, gpu_rig

INSTANCE: dict[str, Any] = {"engine": "main", "model": "m", "context": 4096, "port": 8080}


@pytest.mark.parametrize("declared", [cpu_rig(), gpu_rig()], ids=["cpu", "gpu"])
def test_what_is_read_is_frozen_and_reads_back(declared: dict[str, Any]) -> None:
    rig = Rig.model_validate(declared)
    with pytest.raises(ValidationError, match="frozen"):
        rig.rig = "other"
    with pytest.raises(ValidationError, match="frozen"):
        rig.host.ram = 0
    assert Rig.model_validate(rig.model_dump(mode="json")) == rig


@pytest.mark.parametrize(
    ("kv", "types"),
    [
        ("q8_0", ("q8_0", "q8_0")),
        ({"k": "q8_0", "v": "q4_0"}, ("q8_0", "q4_0")),
        ({"v": "bf16"}, ("f16", "bf16")),
    ],
)
def test_cache_types(kv: object, types: tuple[str, str]) -> None:
    instance = Instance.model_validate(INSTANCE | {"kv": kv})
    assert (instance.kv.k, instance.kv.v) == types


@pytest.mark.parametrize(
    ("listen", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("10.0.0.5", False)],
)
def test_loopback(listen: str, loopback: bool) -> None:
    assert Instance.model_validate(INSTANCE | {"listen": listen}).loopback is loopback


@pytest.mark.parametrize("listen", ["", "duo lan", "0.0.0.0:80", '"', "127.0.0.1\nUser=root", "300.1.1.1"])
def test_listen_is_an_address(listen: str) -> None:
    with pytest.raises(ValidationError):
        Instance.model_validate(INSTANCE | {"listen": listen})


@pytest.mark.parametrize("folder", ["/etc", "../elsewhere", "a/../../b"])
def test_a_source_stays_in_its_folder(folder: str) -> None:
    with pytest.raises(ValidationError):
        Source.model_validate({"archive": "/a.tar.gz", "sha256": SHA, "folder": folder})


@pytest.mark.parametrize(
    ("model", "given", "architecture"),
    [
        ("RTX 3090", None, "86"),
        ("RTX 5090M", None, "120"),
        ("H200", None, "90"),
        ("H200", "90a", "90a"),
        ("GTX 1080", "61", "61"),
    ],
)
def test_the_architecture_of_a_card(model: str, given: str | None, architecture: str) -> None:
    assert Card(model=model, architecture=given).cuda_architecture == architecture


def test_known_architectures_are_such_as_a_card_may_give() -> None:
    for model, card in CARDS.items():
        assert Card(model=model, architecture=card.architecture).cuda_architecture == card.architecture


@pytest.mark.parametrize("uuid", ["GPU 1", "GPU-1\nUser=root", "", "%n"])
def test_a_card_is_named_by_a_uuid(uuid: str) -> None:
    with pytest.raises(ValidationError):
        Card(model="RTX 3090", uuid=uuid)


@pytest.mark.parametrize(
    ("archive", "local"),
    [
        ("https://mirror.lan/a.tar.gz", None),
        ("http://mirror.lan/a.tar.gz", None),
        ("a.tar.gz", Path("/inventory/a.tar.gz")),
        ("../a.tar.gz", Path("/a.tar.gz")),
        ("/srv/a.tar.gz", Path("/srv/a.tar.gz")),
        ("https.tar.gz", Path("/inventory/https.tar.gz")),
        ("~/a.tar.gz", Path.home() / "a.tar.gz"),
    ],
)
def test_an_archive_is_a_url_or_stands_beside_the_inventory(archive: str, local: Path | None) -> None:
    source = Source.model_validate({"archive": archive, "sha256": SHA}, context={"folder": Path("/inventory")})
    found = source.local_archive
    assert (found.resolve() if found else None) == local


@pytest.mark.parametrize(
    ("kind", "declared", "problem"),
    [
        (Source, {}, "the source has no URL"),
        (Source, {"git": "g", "commit": COMMIT, "archive": "a", "sha256": SHA}, "and not both"),
        (Source, {"git": "g"}, "the repository has no commit"),
        (Source, {"archive": "a", "sha256": SHA, "overlay": {"../x": ""}}, "leads out of the source"),
        (Source, {"archive": "a", "sha256": SHA, "overlay": {"/x": ""}}, "leads out of the source"),
        (Engine, {"kind": "llama.cpp"}, "the engine has no version"),
        (
            Engine,
            {
                "kind": "llama.cpp",
                "image": f"i@sha256:{DIGEST}",
                "source": {"git": "g", "commit": COMMIT},
            },
            "and not both",
        ),
        (Model, {}, "the model has no source"),
        (Model, {"hf": "a/b", "file": "/c", "sha256": SHA}, "the model is in one of them"),
        (Secret, {}, "the secret has no source"),
        (Secret, {"file": "/k", "env": "K"}, "two are named"),
        (Card, {"model": "Voodoo 2"}, "is not a known GPU"),
    ],
)
def test_one_kind_and_all_of_it(
    kind: type[Source | Engine | Model | Secret | Card], declared: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        kind.model_validate(declared)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("host/ram", [-1, 0, 1.5, [1], None, "much"]),
        ("host/cpu/cores", [0, -2]),
        ("instances/chat/port", [0, 65536, "http"]),
        ("instances/chat/parallel", [0]),
        ("connect/key", [3, "~nobody-of-that-name/key"]),
        ("rig", ["", "Box", "-box", "b" * 41, "box\n"]),
    ],
)
def test_values_that_nobody_means(path: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(ValidationError):
            Rig.model_validate(changed(cpu_rig(), {path: value}))


def test_the_local_machine_has_a_short_spelling() -> None:
    assert Rig.model_validate(cpu_rig() | {"connect": "local"}).connect.host == "@local"


def test_the_box_is_a_rig() -> None:
    declared = yaml.safe_load((ROOT / "inventory" / "box.yaml").read_text(encoding="utf-8"))
    assert Rig.model_validate(declared, context={"folder": ROOT / "inventory"}).rig == "box"
