"""What is found wrong with an address that two gateways have in turn, and the neighbour that is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from llamaherd.diagnostics.findings import Finding
from llamaherd.pipeline.fleet_files import survey_fleet
from tests.support.rigs import Declared, changed, cpu_rig
from tests.support.virtual_address import ADDRESS, OWN, SHARED


def rig(name: str, known: str | None) -> Declared:
    """A rig that others know by this address, or by its name."""
    store = {"store": {"share": {"address": known}}} if known else {"connect": {"host": f"{name}.lan"}}
    served = {"instances/chat/listen": "0.0.0.0", "instances/chat/api_key": {"env": "CHAT_KEY"}}
    return changed(cpu_rig(), {"rig": name, **store, **served})


def found(folder: Path, text: str = SHARED, **known: str | None) -> list[Finding]:
    """What is found of the address."""
    (folder / "fleet.yaml").write_text(text)
    for name, address in {**OWN, "attic": "10.77.0.3", **known}.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(rig(name, address)))
    findings = survey_fleet(folder).findings
    return [each for each in findings if each.place.file.name == "fleet.yaml" and each.severity == "error"]


def codes(folder: Path, text: str = SHARED, **known: str | None) -> list[str]:
    return [each.code for each in found(folder, text, **known)]


def test_one_that_two_rigs_can_have_has_no_findings(tmp_path: Path) -> None:
    assert codes(tmp_path) == []
    assert codes(tmp_path, SHARED.replace("0.0.0.0", "'::'")) == [], "that is all addresses of both kinds"


def test_so_can_one_of_ipv6(tmp_path: Path) -> None:
    text = SHARED.replace(ADDRESS, "'fd00:77::50'").replace("0.0.0.0", "'::'")
    assert codes(tmp_path, text, box="fd00:77::1", porch="fd00:77::2") == []


@pytest.mark.parametrize(
    ("was", "now", "wanted"),
    [
        ("[box, porch]", "[box]", ["LH350"]),
        ("[box, porch]", "[box, box]", ["LH350"]),
        ("[box, porch]", "[box, porch, attic]", ["LH350"]),
        (ADDRESS, "8.8.8.8", ["LH351"]),
        (ADDRESS, "127.0.0.2", ["LH351"]),
        (ADDRESS, "0.0.0.0", ["LH351"]),
        (ADDRESS, "224.0.0.18", ["LH351"]),
        (ADDRESS, "169.254.1.1", ["LH351"]),
        (ADDRESS, "172.31.255.1", []),
        (ADDRESS, "172.32.0.1", ["LH351"]),
        (ADDRESS, "10.77.0.1", ["LH352"]),
        (ADDRESS, "10.77.0.3", ["LH352"]),
        ("0.0.0.0", "127.0.0.1", ["LH353"]),
        ("0.0.0.0", "10.77.0.50", ["LH353"]),
        (ADDRESS, "10.77.0.50/24", ["LH012"]),
        (ADDRESS, "llm.lan", ["LH012"]),
        (ADDRESS, "'fe80::1%eth0'", ["LH012"]),
        (ADDRESS, "'fd00::1'", ["LH353", "LH354", "LH354"]),
    ],
)
def test_a_mistake_is_found(tmp_path: Path, was: str, now: str, wanted: list[str]) -> None:
    assert sorted(codes(tmp_path, SHARED.replace(was, now))) == wanted


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (None, "has the address `porch.lan`, which is not an address of IPv4"),
        ("fd00:77::2", "has the address `fd00:77::2`, which is not an address of IPv4"),
        ("127.0.0.1", "has the address `127.0.0.1`, which is each machine's own"),
        ("10.77.0.1", "has the address `10.77.0.1`, like rig `box`"),
    ],
)
def test_hosts_that_do_not_find_each_other_are_said(tmp_path: Path, known: str | None, said: str) -> None:
    (finding,) = [each for each in found(tmp_path, porch=known) if each.code == "LH354"]
    assert said in finding.message
    assert "`store: {share: {address: 10.77.0.51}}`" in finding.help


def test_a_rig_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    found(tmp_path)
    (tmp_path / "porch.yaml").write_text("rig: porch\n")
    surveyed = survey_fleet(tmp_path / "box.yaml")
    assert "rig `porch` cannot be read, and its address is needed" in [each.message for each in surveyed.findings]
