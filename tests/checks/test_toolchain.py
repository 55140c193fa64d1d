"""CUDA, GPUs, host compiler and driver: each mistake beside its neighbour that is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamaherd.checks.context import RigContext
from llamaherd.checks.toolkit import built_with_cuda, check_host_compiler
from llamaherd.gguf.header import Header, TensorGroup
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import Document
from llamaherd.memory.facts import rig_facts
from llamaherd.reference import toolchains
from llamaherd.reference.packages import IMAGE_PACKAGES
from llamaherd.reference.toolchains import Needs, compiles_for, first_toolkit, release
from tests.support.checking import Case, assert_said
from tests.support.rigs import DIGEST, changed, gpu_rig

NEW, OLD, MAIN = "gpus/cards/new/", "gpus/cards/old/", "engines/main/options"
PASCAL = {OLD + "model": "GTX 1080 Ti"}
MIRROR = {"gpus/repository": {"url": "https://mirror.lan/cuda", "key": "key.asc", "fingerprint": "AB" * 20}}
KEPLER = {OLD + "model": "Tesla K80", OLD + "architecture": "37", OLD + "memory": "12GiB"}
IMAGES = {
    "engines/main": {"kind": "llama.cpp", "image": f"registry.lan/a@sha256:{DIGEST}"},
    "engines/ik": {"kind": "ik_llama.cpp", "image": f"registry.lan/b@sha256:{DIGEST}"},
}


def driver(branch: int) -> dict[str, Any]:
    return {"gpus/driver": {"branch": branch}}


CASES = {
    "as it is": Case({}),
    "12.6 for Blackwell": Case(
        {"gpus/cuda": "12.6"}, "LH040", "'12.6'", "does not compile for `new` (RTX 5090,", "12.8"
    ),
    "12.8 for Blackwell": Case({"gpus/cuda": "12.8"}),
    "12.8 for a Spark": Case(
        {"gpus/cuda": "12.8", NEW + "model": "GB10", NEW + "architecture": "121", NEW + "memory": "119GiB"},
        "LH040",
        "'12.8'",
        "the first that does is 12.9",
        '`cuda: "12.9"`',
    ),
    "12.9 for a Spark": Case(
        {"gpus/cuda": "12.9", NEW + "model": "GB10", NEW + "architecture": "121", NEW + "memory": "119GiB"}
    ),
    "12.8 for a family": Case(
        {"gpus/cuda": "12.8", NEW + "architecture": "120f"}, "LH040", "'12.8'", "first that does is 12.9", "12.9"
    ),
    "11.7 for Ada": Case(
        {"gpus/cuda": "11.7", "host/os": "ubuntu-22.04", NEW + "model": "RTX 4090"},
        "LH040",
        "'11.7'",
        "`new` (RTX 4090, architecture 89): the first that does is 11.8",
        '`cuda: "11.8"`',
    ),
    "11.8 for Ada": Case({"gpus/cuda": "11.8", "host/os": "ubuntu-22.04", NEW + "model": "RTX 4090"}),
    "13.0 for Pascal": Case(PASCAL, "LH041", "'13.0'", "any more: 13.0 dropped it", '`cuda: "12.9"`'),
    "12.9 for Pascal": Case(PASCAL | {"gpus/cuda": "12.9"}),
    "a Pascal that only an image uses": Case(
        PASCAL | {"instances/worker/on": ["new"], "instances/reasoner/on": ["new"], "instances/small/on": ["old"]}
    ),
    "12.8 for Pascal and a new C library": Case(
        PASCAL | {"gpus/cuda": "12.8", "host/os": "ubuntu-26.04"},
        "LH069",
        "'12.8'",
        "the C library of ubuntu-26.04, glibc 2.43: the newest that it supports is 2.40",
        "no toolkit compiles for all of these GPUs on this system: leave one out of `on`, or run an image",
    ),
    "12.8 for glibc 2.41": Case(
        {"gpus/cuda": "12.8", "host/os": "debian-13"}, "LH069", "'12.8'", "glibc 2.41", 'write `cuda: "13.0"`'
    ),
    "13.0 for glibc 2.41": Case({"gpus/cuda": "13.0", "host/os": "debian-13"}),
    "13.0 for glibc 2.43": Case(
        {"gpus/cuda": "13.0", "host/os": "ubuntu-26.04"}, "LH069", "'13.0'", "is 2.41", 'write `cuda: "13.3"`'
    ),
    "13.3 for glibc 2.43": Case({"gpus/cuda": "13.3", "host/os": "ubuntu-26.04"}),
    "a toolkit that somebody has mended": Case(
        {
            "gpus/cuda": "12.8",
            "host/os": "debian-13",
            MAIN: {"CMAKE_CUDA_COMPILER": "/opt/cuda/bin/nvcc"},
            "engines/ik/options": {"CMAKE_CUDA_COMPILER": "/opt/cuda/bin/nvcc"},
        }
    ),
    "12.3 for gcc 13": Case(
        {"gpus/cuda": "12.3", NEW + "model": "RTX 4090"} | MIRROR,
        "LH043",
        "'12.3'",
        "takes gcc up to 12, and ubuntu-24.04 compiles with gcc 13",
        "also installs g++-12",
        "note",
    ),
    "12.4 for gcc 13": Case({"gpus/cuda": "12.4", NEW + "model": "RTX 4090"} | MIRROR),
    "12.4 from NVIDIA for Ubuntu 24.04": Case(
        {"gpus/cuda": "12.4", NEW + "model": "RTX 4090"},
        "LH231",
        "'12.4'",
        "NVIDIA's repository for ubuntu-24.04 begins with CUDA 12.5: 12.4 was never in it",
        'write `cuda: "12.5"`',
    ),
    "12.5 from NVIDIA for Ubuntu 24.04": Case({"gpus/cuda": "12.5", NEW + "model": "RTX 4090"}),
    "12.2 from NVIDIA for Debian 12": Case(
        {"gpus/cuda": "12.2", "host/os": "debian-12", NEW + "model": "RTX 4090"},
        "LH231",
        "'12.2'",
        "debian-12 begins with CUDA 12.3",
        'write `cuda: "12.3"`',
    ),
    "12.3 from NVIDIA for Debian 12": Case({"gpus/cuda": "12.3", "host/os": "debian-12", NEW + "model": "RTX 4090"}),
    "12.4 under WSL": Case({"gpus/cuda": "12.4", NEW + "model": "RTX 4090"}, wsl=True),
    "a toolkit with a zero too many": Case(
        {"gpus/cuda": "13.00"}, "LH230", "'13.00'", "`cuda: 13.00` is not the name", 'write `cuda: "13.0"`'
    ),
    "a toolkit with a zero before it": Case({"gpus/cuda": "013.0"}, "LH230", "'013.0'", "is not the name", '"13.0"'),
    "a 3090 as a 4090": Case(
        {OLD + "model": "RTX 3090", OLD + "architecture": "89"},
        "LH232",
        "'89'",
        "`old` is a RTX 3090, whose architecture is 86: no code for 89 runs there",
        "leave `architecture` out",
    ),
    "a 3090 as an A100": Case(
        {OLD + "model": "RTX 3090", OLD + "architecture": "80"},
        "LH232",
        "'80'",
        "code for 80 runs there, and is slower",
        "leave `architecture` out",
        "warning",
    ),
    "a 5090 as itself": Case({NEW + "architecture": "120a"}),
    "a compiler of its own": Case(
        {
            **MIRROR,
            "gpus/cuda": "12.3",
            NEW + "model": "RTX 4090",
            MAIN: {"CMAKE_CUDA_HOST_COMPILER": "g++-12"},
            "engines/ik/options": {"CMAKE_CUDA_FLAGS": "-allow-unsupported-compiler"},
        }
    ),
    "13.2 and an IQ quant": Case(
        {"gpus/cuda": "13.2", "models/35b": {"hf": "unsloth/Qwen", "quant": "UD-IQ3_XXS"}},
        "LH042",
        "'13.2'",
        "`35b` would write gibberish",
        '`cuda: "13.3"`',
    ),
    "13.2 and other quants": Case(
        {"gpus/cuda": "13.2"}, "LH042", "'13.2'", "models of other quants", '`cuda: "13.3"`', "warning"
    ),
    "13.2 and the way around": Case(
        {
            "gpus/cuda": "13.2",
            MAIN: {"CMAKE_CUDA_FLAGS": "-Xcicc -O1"},
            "engines/ik/options": {"CMAKE_CUDA_FLAGS": "-Xcicc -O1"},
        }
    ),
    "13.3 and an IQ quant": Case(
        {"gpus/cuda": "13.3", "models/35b": {"hf": "unsloth/Qwen", "files": "*IQ2_M*.gguf"}},
    ),
    "13.2 and images": Case({"gpus/cuda": "13.2"} | IMAGES),
    "a CUDA to come": Case({"gpus/cuda": "13.6"}, "LH044", "'13.6'", "is unknown", "11.7 to 13.5", "note"),
    "no CUDA": Case({"gpus/cuda": "9" * 5000 + ".0"}, "LH044", "'999", "is unknown", "", "note"),
    "an old driver for 13": Case(driver(575), "LH045", "575", "needs 580 or newer", "`branch: 580`"),
    "a driver for 13": Case(driver(580)),
    "a driver for 12": Case(driver(580) | {"gpus/cuda": "12.8"}),
    "a driver that is listed no more": Case(
        driver(570) | {"gpus/cuda": "12.8"},
        "LH047",
        "570",
        "is not among those that NVIDIA supported in November 2026",
        "`branch: 580`",
        "note",
    ),
    "a driver for Kepler": Case(
        driver(580) | KEPLER | {"gpus/cuda": "11.8", "host/os": "ubuntu-22.04", NEW + "model": "RTX 4090"},
        "LH046",
        "580",
        "does not support `old` (Tesla K80) any more: 470 was the last that did",
        "no branch that NVIDIA maintains supports it",
    ),
    "an old driver for 12": Case(
        driver(520) | {"gpus/cuda": "12.8", NEW + "model": "RTX 4090"}, "LH045", "520", "too old for CUDA 12.8"
    ),
    "an old driver for Blackwell": Case(
        driver(550) | {"gpus/cuda": "12.8"}, "LH046", "550", "does not support `new` (RTX 5090)", "`branch: 580`"
    ),
    "a new driver for Pascal": Case(
        driver(595) | PASCAL | {"gpus/cuda": "12.9", NEW + "model": "RTX 4090"},
        "LH046",
        "595",
        "590 dropped it",
        "`branch: 580`",
    ),
    "a driver with open modules alone for Pascal": Case(
        driver(620) | PASCAL | {"gpus/cuda": "12.9", NEW + "model": "RTX 4090"},
        "LH046",
        "620",
        "since 615 there are only open kernel modules, which need Turing or newer",
        "`branch: 580`",
    ),
    "the long-term driver of 2026": Case(driver(620) | {"gpus/cuda": "13.5"}),
    "a short-lived driver": Case(driver(615), "LH047", "615", "is not among those", "`branch: 580`", "note"),
    "a driver to come": Case(driver(640)),
    "Pascal and Blackwell": Case(
        driver(580) | PASCAL | {"gpus/cuda": "12.9"},
        "LH058",
        "580",
        "`old` takes proprietary kernel modules only and `new` open ones only",
        "leave one of the two out",
    ),
    "open modules for Pascal": Case(
        {"gpus/driver": {"branch": 580, "modules": "open"}, NEW + "model": "RTX 4090", "gpus/cuda": "12.9", **PASCAL},
        "LH058",
        "open",
        "does not work with the open kernel modules",
        "`modules: proprietary`",
    ),
    "proprietary modules for Blackwell": Case(
        {"gpus/driver": {"branch": 580, "modules": "proprietary"}},
        "LH058",
        "proprietary",
        "`new` (RTX 5090) works with the open kernel modules only",
        "`modules: open`",
    ),
    "proprietary modules that are gone": Case(
        {"gpus/driver": {"branch": 615, "modules": "proprietary"}, NEW + "model": "RTX 4090"},
        "LH058",
        "proprietary",
        "615 dropped them",
        "`branch: 580`",
    ),
    "proprietary modules for Ada": Case(
        {"gpus/driver": {"branch": 580, "modules": "proprietary"}, NEW + "model": "RTX 4090"}
    ),
    "Debian's own driver": Case(
        {"gpus/driver": {"branch": 580, "from": "distribution"}, "host/os": "debian-13"},
        "LH059",
        "580",
        "debian-13 itself has driver branch 550 and no other",
        "`branch: 550`",
    ),
    "a branch that Ubuntu may not have": Case(
        {"gpus/driver": {"branch": 575, "from": "distribution"}, "gpus/cuda": "12.9"},
        "LH059",
        "575",
        "was not among those of ubuntu-24.04",
        "580",
        "warning",
    ),
    "a branch that Ubuntu has": Case({"gpus/driver": {"branch": 580, "from": "distribution"}}),
    "a new driver": Case(driver(595)),
    "a driver that ended": Case(
        driver(535) | {"gpus/cuda": "12.6", "host/os": "ubuntu-24.04", NEW + "model": "RTX 4090"},
        "LH047",
        "535",
        "until June 2026",
        "`branch: 580`",
        "note",
    ),
    "an old driver for images": Case(driver(570) | IMAGES, "LH047", "570", "November 2026", "580", "note"),
    "the way out names a driver as well": Case(
        {
            "gpus/cuda": "12.8",
            "host/os": "debian-13",
            "gpus/driver": {"branch": 550, "from": "distribution"},
            NEW + "model": "RTX 4090",
        },
        "LH069",
        "'12.8'",
        "glibc 2.41",
        '`cuda: "13.0"` and `branch: 580`',
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_goes_together(case: Case, tmp_path: Path) -> None:
    assert_said(case, tmp_path)


def test_a_header_tells_of_iq_tensors_that_no_name_tells_of() -> None:
    rig = Rig.model_validate(changed(gpu_rig(), {"gpus/cuda": "13.2"}))
    document = Document(Path("rig.yaml"), {}, {}, {})
    for kind, severity in (("IQ3_S", "error"), ("Q4_K", "warning")):
        group = TensorGroup(name="ffn_up_exps.weight", type=kind, shape=(256, 2), layers="0-3")
        (finding,) = check_host_compiler(
            RigContext(rig_facts(rig, {"35b": Header(architecture="llama", tensors=(group,))}), document)
        )
        assert (finding.code, finding.severity) == ("LH042", severity)


@pytest.mark.parametrize(
    ("changes", "engines"),
    [
        ({}, {"main", "ik"}),
        ({"instances/worker/on": []}, {"main"}),
        (IMAGES, set()),
        ({"engines/ik/options": {"GGML_CUDA": False}}, {"main"}),
        ({"engines/ik/options": {"CMAKE_CUDA_COMPILER": "/opt/nvcc"}}, {"main"}),
    ],
)
def test_what_is_built_with_the_toolkit(changes: dict[str, Any], engines: set[str]) -> None:
    assert set(built_with_cuda(Rig.model_validate(changed(gpu_rig(), changes)))) == engines


@pytest.mark.parametrize(
    ("toolkit", "good", "bad"),
    [
        ("11.8", {"50", "61", "86", "89", "90"}, {"100", "120"}),
        ("12.6", {"50", "70", "90a"}, {"37", "100", "120", "121"}),
        ("12.8", {"50", "100", "120", "120a"}, {"103", "120f", "121"}),
        ("12.9", {"50", "103", "120f", "121"}, {"110"}),
        ("13.0", {"75", "80", "110", "121"}, {"50", "61", "70", "72", "107"}),
        ("13.5", {"75", "107", "121a"}, {"70"}),
    ],
)
def test_what_toolkits_compile_for(toolkit: str, good: set[str], bad: set[str]) -> None:
    """As `nvcc --list-gpu-code` of 12.6, 12.8, 12.9, 13.0 and 13.5 prints it."""
    number = release(toolkit)
    assert number is not None
    assert {each for each in good | bad if compiles_for(number, each)} == good


def test_the_tables_know_every_system_and_card() -> None:
    assert set(IMAGE_PACKAGES) <= set(toolchains.DISTRIBUTION_GCC)
    assert {toolkit[0] for toolkit in toolchains.NEWEST_GCC} == set(toolchains.FIRST_DRIVER)
    assert list(toolchains.NEWEST_GCC) == sorted(toolchains.NEWEST_GCC)
    assert first_toolkit("61") == (0, 0)
    assert set(toolchains.GLIBC) == set(toolchains.DISTRIBUTION_GCC)
    assert all(max(older) < toolchains.DISTRIBUTION_GCC[name] for name, older in toolchains.OLDER_GCC.items())


def test_no_toolkit_for_all() -> None:
    needs = Needs({"61", "110"}, (2, 36))
    assert needs.nearest((12, 8)) is None
    assert Needs({"61"}, (2, 39)).nearest((13, 0)) == (12, 9)
    assert Needs({"61"}, (2, 41)).nearest((13, 0)) is None
    assert Needs({"75"}, (2, 36)).nearest((13, 1)) == (13, 3)


@pytest.mark.parametrize("system", toolchains.DISTRIBUTION_GCC)
def test_every_toolkit_that_compiles_on_a_system_has_a_compiler_there(system: str) -> None:
    for toolkit_, newest in toolchains.NEWEST_GCC.items():
        glibc = toolchains.newest_glibc(toolkit_)
        if glibc is None or toolchains.GLIBC[system] <= glibc:
            gcc = toolchains.beside_gcc(system, toolkit_) or toolchains.DISTRIBUTION_GCC[system]
            assert gcc <= newest, toolkit_
