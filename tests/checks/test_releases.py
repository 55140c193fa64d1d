"""Findings of engines that are releases: keys for builds beside them, caches without kernels, and containers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.diagnostics.findings import InventoryError
from llamaherd.pipeline.fleet_files import examine_fleet
from tests.support.rigs import changed, gpu_rig

RELEASE = {"kind": "llama.cpp", "release": "b11434"}


def findings(folder: Path, engine: dict[str, Any], **changes: Any) -> list[str]:
    """Return the findings of the rig with GPUs whose engine `main` is declared so, without those of its models."""
    file = folder / "duo.yaml"
    rig = changed(gpu_rig(), {"engines/main": engine})
    del rig["instances"]["boxed"]
    file.write_text(yaml.safe_dump(changed(rig, changes)))
    try:
        found = examine_fleet(file)[1]
    except InventoryError as error:
        found = error.findings
    return [f"{each.severity} {each.code} {each.message}: {each.help}" for each in found if each.severity != "note"]


def with_release(folder: Path, engine: dict[str, Any], **changes: Any) -> list[str]:
    """Return the findings that the rig without the change does not have."""
    usual = findings(folder, RELEASE)
    return [each for each in findings(folder, engine, **changes) if each not in usual]


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"options": {"GGML_LTO": True}}, "`options` are for CMake, and the programs of a `release` are built already"),
        ({"options": {"CMAKE_CUDA_ARCHITECTURES": "86"}}, "write `ref: b11434`, which builds it on the host"),
        ({"ref": "b11434"}, "the engine is a `release` or has `ref`, and not both"),
        ({"image": "ghcr.io/ggml-org/llama.cpp:server"}, "the engine is a `release` or has `image`, and not both"),
        ({"source": {"git": "https://git.lan/x", "ref": "a"}}, "the engine is a `release` or has `source`"),
        ({"kind": "ik_llama.cpp"}, "the authors of ik_llama.cpp publish no programs for Linux"),
        ({"commit": "cd" * 20}, "commit"),
        ({"release": "cd" * 20}, "a commit is not a release"),
        ({"release": "latest"}, "llama.cpp has no release `latest`: write the tag of a release"),
        ({"release": "master"}, "llama.cpp has no release `master`: write the tag of a release"),
        ({"release": "B11434"}, "did you mean `release: b11434`?"),
    ],
)
def test_what_does_not_go_with_a_release_is_an_error(tmp_path: Path, engine: dict[str, Any], said: str) -> None:
    found = with_release(tmp_path, RELEASE | engine)
    assert any(each.startswith("error") and said in each for each in found), found


def test_a_release_that_is_declared_alone_is_right(tmp_path: Path) -> None:
    assert [each for each in findings(tmp_path, RELEASE) if "release" in each or "engine `main`" in each] == []


def test_a_cache_without_kernels_is_a_warning(tmp_path: Path) -> None:
    (found,) = with_release(tmp_path, RELEASE, **{"instances/reasoner/kv": {"k": "q8_0", "v": "q4_0"}})
    assert found.startswith("warning LH056")
    assert "write `ref: b11434` in place of `release`, which builds all pairs on the host" in found
    assert with_release(tmp_path, RELEASE, **{"instances/reasoner/kv": "q4_0"}) == []


def test_a_driver_that_is_too_old_for_a_release_is_an_error(tmp_path: Path) -> None:
    alone = {"gpus/driver": {"branch": 570}, "instances/worker/on": []}
    found = with_release(tmp_path, RELEASE, **alone)
    assert any(each.startswith("error LH045 driver branch 570 is too old for CUDA 13.0") for each in found), found
    assert not any("LH045" in each for each in with_release(tmp_path, RELEASE, **alone | {"gpus/cuda": "12.9"}))


def test_a_container_of_a_release_is_an_error(tmp_path: Path) -> None:
    found = with_release(tmp_path, RELEASE, **{"instances/reasoner/backend": "compose"})
    assert any(each.startswith("error LH028") and "libraries that its engine's release" in each for each in found), (
        found
    )
