"""`.wslconfig`: what WSL knows, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd import recipes
from llamaherd.inventory.wslconfig import WSL_KEYS, check_setting, check_wslconfig

IN_LINUX = "`systemd=true` belongs under `[boot]` in /etc/wsl.conf, inside Linux"
FILE = Path("home/.wslconfig")


def found(text: str) -> list[tuple[int, int, str, str]]:
    return [(each.place.line, each.place.column, each.code, each.help) for each in check_wslconfig(FILE, text)]


def test_a_right_one_has_no_finding() -> None:
    text = (
        "\ufeff# for models\r\n"
        "[wsl2]\r\n"
        "memory=64GB   # of 96\r\n"
        "Swap = 16384MB\r\n"
        "processors=0x10\r\n"
        "vmIdleTimeout=-1\r\n"
        "networkingMode=mirrored\r\n"
        "swapFile=C:\\\\temp\\\\swap.vhdx\r\n"
        "guiApplications=0\r\n"
        "\r\n"
        "[general]\r\n"
        "instanceIdleTimeout=-1\r\n"
        "[experimental]\r\n"
        "autoMemoryReclaim=dropcache\r\n"
        "sparseVhd=TRUE\r\n"
    )
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[wsl2]\ngpuMemory=24GB",
            (2, 1, "LH147", "leave it out: WSL gives Linux the whole GPU, and how much VRAM that is cannot be set"),
        ),
        ("[wsl2]\nprocesors=8", (2, 1, "LH147", "did you mean `processors`?")),
        ("[wsl2]\nfrobnicate=8", (2, 1, "LH147", "leave it out")),
        (
            "[wsl2]\nsystemd=true",
            (2, 1, "LH147", "`systemd=true` belongs under `[boot]` in /etc/wsl.conf, inside Linux"),
        ),
        ("[wsl2]\n  autoMemoryReclaim=disabled", (2, 3, "LH147", "put it under `[experimental]`")),
        ("[experimental]\nmemory=64GB", (2, 1, "LH147", "put it under `[wsl2]`")),
        ("memory=64GB\n[wsl2]", (1, 1, "LH147", "put `[wsl2]` on a line above it")),
        ("[wsl]\nmemory=64GB", (1, 1, "LH147", "did you mean `wsl2`?")),
        ("[boot]\nsystemd=true", (1, 1, "LH147", "`[boot]` belongs into /etc/wsl.conf, inside Linux")),
        ("[wsl2]\nmemory=1GB\nMEMORY=2GB", (3, 1, "LH148", "keep one of the two")),
        ("[wsl2]\nmemory 64GB", (2, 1, "LH148", "write `key=value`; comments begin with `#`")),
        ("[wsl2]\ndhcp = yes", (2, 8, "LH148", "write `dhcp=true`")),
        ("[wsl2]\ndhcp=", (2, 1, "LH148", "write `dhcp=true` or `false`")),
        ("[wsl2]\nswap=16384 MB", (2, 6, "LH148", "write `swap=16384MB`")),
        ("[wsl2]\nmemory=64GiB", (2, 8, "LH148", "write `memory=64GB`")),
        ("[wsl2]\nmemory=1.5GB", (2, 8, "LH148", "write `memory=64GB`, or `65536MB`")),
        ("[wsl2]\nmemory=64", (2, 8, "LH148", "write `memory=64GB`")),
        ("[wsl2]\nprocessors=all", (2, 12, "LH148", "write `processors=` and a number, such as 8")),
        ("[wsl2]\nnetworkingMode=mirorred", (2, 16, "LH148", "did you mean `mirrored`?")),
        ("[wsl2]\nswapFile=C:\\swap.vhdx", (2, 10, "LH148", "write `swapFile=C:\\\\swap.vhdx`")),
    ],
)
def test_what_is_wrong_is_said_at_its_place(text: str, expected: tuple[int, int, str, str]) -> None:
    assert found(text) == [expected]


@pytest.mark.parametrize("size", ["0", "16G", "16GB", "16gb", "16384M"])
def test_a_size_may_be_short_and_zero_switches_swap_off(size: str) -> None:
    assert found(f"[wsl2]\nswap={size}") == []


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("wsl2", "memory", "64GB"), ("wsl2", "firewall", True), ("wsl2", "processors", 8), ("WSL2", "MEMORY", "1GB")],
)
def test_settings_of_an_inventory_that_are_right(section: str, key: str, value: str | int | bool) -> None:
    assert check_setting(section, key, value) is None


def test_settings_of_an_inventory_that_are_wrong() -> None:
    wrong = check_setting("wsl2", "memory", 64)
    assert wrong is not None
    assert (wrong.rule.code, wrong.about_value, wrong.help) == ("LH148", True, "write `memory=64GB`")
    unknown = check_setting("wsl2", "gpuMemory", "24GB")
    assert unknown is not None
    assert (unknown.rule.code, unknown.about_value) == ("LH147", False)
    section = check_setting("wsl", "memory", "64GB")
    assert section is not None
    assert section.help == "did you mean `wsl2`?"


def test_every_kind_of_value_is_one_that_is_checked() -> None:
    kinds = {kind for keys in WSL_KEYS.values() for kind in keys.values() if "|" not in kind}
    assert kinds == {"bool", "int", "size", "path", "text", "ports"}


@pytest.mark.parametrize(
    "text",
    [
        "[wsl2]\nmemory=48G\nswap=512m\nnetworkingMode=mirrored\n[experimental]\nignoredPorts=3000, 9000,22\n",
        "[wsl2]\nlocalhostForwarding=true\nnetworkingMode=NAT\n",
        "[experimental]\nnetworkingMode=mirrored\nhostAddressLoopback=true\n",
    ],
)
def test_what_goes_together_is_let_be(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[wsl2]\nlocalhostForwarding=true\nnetworkingMode=mirrored\n", 2),
        ("[experimental]\nnetworkingMode=Mirrored\n[wsl2]\nlocalhostForwarding=false\n", 4),
        ("[experimental]\nignoredPorts=3000\n", 2),
        ("[wsl2]\nnetworkingMode=nat\n[experimental]\nhostAddressLoopback=true\n", 4),
        ("[wsl2]\nnetworkingMode=mirrored\n[experimental]\nignoredPorts=3000,abc\n", 4),
        ("[wsl2]\nnetworkingMode=mirrored\n[experimental]\nignoredPorts=70000\n", 4),
        ("[wsl2]\nnetworkingMode=mirrored\n[experimental]\nignoredPorts=3000;9000\n", 4),
    ],
)
def test_what_does_nothing_beside_the_mode_of_networking(text: str, line: int) -> None:
    assert [(each[0], each[2]) for each in found(text)] == [(line, "LH148")]


@pytest.mark.parametrize("name", [".wslconfig.txt", "wslconfig.txt", ".WSLCONFIG.ini"])
def test_a_name_that_wsl_does_not_read(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text("[wsl2]\nmemory=48GB\n", encoding="utf-8")
    assert [each.code for each in recipes.examine(file)] == ["LH141"]


def test_units_of_one_letter_are_named() -> None:
    (finding,) = check_wslconfig(FILE, "[wsl2]\nmemory=48 gigabytes\n")
    assert "K, M, G or T" in finding.message


@given(st.text(st.sampled_from(list('[]=#\r\n \\"wsl2memory0GB.é\ufeff'))) | st.text())
def test_any_text_gives_findings(text: str) -> None:
    for finding in check_wslconfig(FILE, text):
        assert 1 <= finding.place.line <= text.count("\n") + 1


def test_what_keeps_the_virtual_machine_keeps_no_distribution() -> None:
    (alone,) = found("[wsl2]\nvmIdleTimeout=-1\n")
    assert "LH283" in str(alone)
    assert found("[wsl2]\nvmIdleTimeout=-1\n[general]\ninstanceIdleTimeout=-1\n") == []
    assert found("[wsl2]\nvmIdleTimeout=60000\n") == []
    (longer,) = found("[wsl2]\nvmIdleTimeout=600000\n")
    assert "LH283" in str(longer)
    (seconds,) = found("[wsl2]\nvmIdleTimeout=60\n")
    assert "vmIdleTimeout=60000" in str(seconds)
