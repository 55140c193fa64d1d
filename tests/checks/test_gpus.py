"""GPUs: telling them apart, power, clocks, fans, and what of them is Windows' own."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamaherd.reference.cards import BOARD_WATTS, CARDS, known_as
from tests.support.checking import Case, assert_said
from tests.support.rigs import GONE

NEW, OLD = "gpus/cards/new/", "gpus/cards/old/"
BY_PCI = {OLD + "uuid": GONE, OLD + "pci": "01:00.0", NEW + "uuid": GONE, NEW + "pci": "0000:02:00.0"}
BY_INDEX = {OLD + "uuid": GONE, OLD + "index": 0, NEW + "uuid": GONE, NEW + "index": 1}

CASES = {
    "one uuid twice": Case(
        {OLD + "uuid": "GPU-5090"}, "LH049", "GPU-5090", "GPUs `new` and `old` have the same `uuid`", "--query-gpu"
    ),
    "one uuid twice, in other letters": Case(
        {OLD + "uuid": "GPU-aa", NEW + "uuid": "GPU-AA"}, "LH049", "GPU-aa", "the same `uuid`"
    ),
    "by PCI address": Case(BY_PCI),
    "one PCI address twice": Case(
        BY_PCI | {OLD + "pci": "0000:02:00.0", NEW + "pci": "02:00.0"}, "LH049", "'0000:02:00.0'", "the same `pci`"
    ),
    "one by PCI address, one not": Case(
        {OLD + "uuid": GONE, OLD + "pci": "01:00.0"},
        "LH049",
        "'01:00.0'",
        "GPU `old` is given by its PCI address and `new` is not",
        "all GPUs of the rig by `pci`, or each by its `uuid`",
    ),
    "a limit for a GPU that nothing tells from another": Case(
        {OLD + "uuid": GONE, OLD + "power_limit": "280W"},
        "LH049",
        "old",
        "GPU `old` has limits of its own, and cannot be identified among the other GPUs",
        "add its `uuid`",
    ),
    "a fan speed for a GPU that nothing tells from another": Case(
        {OLD + "uuid": GONE, OLD + "fans": "70%"},
        "LH049",
        "old",
        "GPU `old` has a fan speed of its own",
        "`uuid`",
    ),
    "fans": Case({OLD + "fans": "40%", NEW + "fans": 100}),
    "fans that are slow": Case(
        {OLD + "fans": "39%"},
        "LH050",
        "39%",
        "fans of GPU `old` at 39 % stay so under load",
        "write `fans: 40%` or more, or take `fans` out",
        "warning",
    ),
    "fans of a laptop": Case(
        {NEW + "model": "RTX 5090M", NEW + "fans": "30%"},
        "LH050",
        "30%",
        "GPU `new` is a laptop's, whose fans belong to the firmware",
        "take `fans` out",
        "warning",
    ),
    "no limit for a GPU that nothing tells from another": Case({OLD + "uuid": GONE}),
    "by number": Case(BY_INDEX),
    "one number twice": Case(BY_INDEX | {NEW + "index": 0}, "LH049", "0", "the same `index`"),
    "a number beyond": Case(
        BY_INDEX | {NEW + "index": 2},
        "LH049",
        "2",
        "GPU `new` is the one with number 2, and the rig declares 2",
        "write one up to 1",
        "warning",
    ),
    "350 W": Case({OLD + "power_limit": "350W", NEW + "power_limit": "575W"}),
    "200 W for a 3090": Case({OLD + "power_limit": "200W"}),
    "190 W for a 3090": Case(
        {OLD + "power_limit": "190W"}, "LH050", "190W", "190 W is so little", "`power_limit: 200W` or more", "warning"
    ),
    "190 W for another": Case({NEW + "power_limit": "190W"}),
    "90 W for another": Case({NEW + "power_limit": 90}, "LH050", "90", "90 W is so little", "100W", "warning"),
    "a digit too many": Case(
        {NEW + "power_limit": "5750W"},
        "LH050",
        "5750W",
        "5750 W is more than GPU `new`",
        "nvidia-smi -q -d POWER",
        "warning",
    ),
    "much for a 3090": Case(
        {OLD + "power_limit": "900W"},
        "LH050",
        "900W",
        "RTX 3090 is made for 350 W",
        "nvidia-smi -q -d POWER",
        "warning",
    ),
    "a partner's 3090": Case({OLD + "power_limit": "480W"}),
    "60 W for a small GPU": Case({NEW + "model": "RTX 4060", NEW + "power_limit": "60W"}),
    "70 W for a GPU that is not known": Case(
        {NEW + "power_limit": "70W", NEW + "model": "RTX A2000", NEW + "memory": "12GB", NEW + "architecture": "86"}
    ),
    "as much for a GPU that is not known": Case(
        {NEW + "power_limit": "1400W", NEW + "model": "B300", NEW + "memory": "288GB", NEW + "architecture": "103"}
    ),
    "a laptop": Case(
        {NEW + "model": "RTX 5090M", NEW + "power_limit": "80W"},
        "LH050",
        "80W",
        "GPU `new` is a laptop's",
        "add `clocks: {max: 1800MHz}`",
        "note",
    ),
    "another laptop": Case(
        {
            NEW + "model": "RTX 3080 Laptop GPU",
            NEW + "architecture": "86",
            NEW + "memory": "16GiB",
            NEW + "power_limit": "80W",
        },
        "LH050",
        "80W",
        "is a laptop's",
        "clocks",
        "note",
    ),
    "a laptop with clocks": Case(
        {NEW + "model": "RTX 5090M", NEW + "power_limit": "80W", NEW + "clocks": {"max": "1800MHz"}}
    ),
    "clocks": Case({OLD + "clocks": {"min": 900, "max": 1700}}),
    "clocks the other way round": Case(
        {OLD + "clocks": {"min": 1700, "max": 900}},
        "LH051",
        "min: 1700",
        "a lowest clock of 1700 MHz and a highest of 900",
        "`clocks: {min: 900, max: 1700}`",
    ),
    "clocks below the lowest by default": Case(
        {OLD + "clocks": {"max": 200}}, "LH051", "max: 200", "lowest clock of 210 MHz", "a highest above that"
    ),
    "WSL": Case({}, wsl=True),
    "power under WSL": Case(
        {NEW + "power_limit": "400W"},
        "LH048",
        "power_limit",
        "the GPU belongs to Windows",
        "nvidia-smi.exe -pl 400",
        "warning",
        wsl=True,
    ),
    "clocks under WSL": Case(
        {NEW + "clocks": {"max": 1800}}, "LH048", "clocks", "`clocks` of GPU", "-lgc 210,1800", "warning", wsl=True
    ),
    "fans under WSL": Case(
        {NEW + "fans": "30%"},
        "LH048",
        "fans",
        "`fans` of GPU `new` cannot be set inside WSL, nor by the script of `herd up` for Windows",
        "with the tool of the GPU's maker or the NVIDIA app",
        "warning",
        wsl=True,
    ),
    "a driver under WSL": Case(
        {"gpus/driver": {"branch": 550}}, "LH048", "driver", "Windows' own", "leave out `driver`", wsl=True
    ),
    "a driver": Case({"gpus/driver": {"branch": 580}}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_cards(case: Case, tmp_path: Path) -> None:
    assert_said(case, tmp_path)


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("NVIDIA GeForce RTX 3090 Ti", "RTX 3090 Ti"),
        ("RTX 3090Ti", "RTX 3090 Ti"),
        ("rtx3090", "RTX 3090"),
        ("3090", "RTX 3090"),
        ("GeForce RTX 4070 SUPER", "RTX 4070 Super"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "RTX 5090M"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GB10", "GB10"),
        ("GTX 1080Ti", "GTX 1080 Ti"),
        ("NVIDIA A100-SXM4-40GB", None),
        ("NVIDIA H100 NVL", None),
        ("RTX 6000 Ada Generation", None),
        ("RTX 9090", None),
        ("", None),
    ],
)
def test_a_card_is_known_by_the_names_that_people_and_tools_give_it(written: str, known: str | None) -> None:
    assert known_as(written) == known


def test_every_known_card_is_called_otherwise_than_all_others() -> None:
    assert {known_as(f"NVIDIA GeForce {model}") for model in CARDS} == set(CARDS)
    assert set(CARDS) >= BOARD_WATTS.keys()
