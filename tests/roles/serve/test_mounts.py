"""Units of servers whose models are on a mounted disk."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from llamaherd.onhost.files import Disk
from roles.models import refusals
from tests.support.rigs import cpu_rig, planned
from tests.support.states import host_with

STORE = {"path": "/srv/disk.1/models", "mount": True}


def units(store: dict[str, object]) -> list[str]:
    plan = planned(cpu_rig(), {"store": store})
    return [each.file.text for each in plan.instances if each.backend == "systemd"]


def test_a_unit_waits_for_a_store_that_is_mounted() -> None:
    mounted, plain = units(STORE), units({"path": STORE["path"]})
    assert mounted
    for unit, other in zip(mounted, plain, strict=True):
        section = unit.split("[Service]")[0]
        assert "RequiresMountsFor=/srv/disk.1/models\n" in section
        more = set(unit.splitlines()) - set(other.splitlines())
        assert {line for line in more if "LLAMAHERD_SPEC" not in line} == {"RequiresMountsFor=/srv/disk.1/models"}


def test_no_unit_changes_without_the_key() -> None:
    assert all("RequiresMountsFor" not in unit for unit in units({"path": STORE["path"]}))
    assert units({"path": STORE["path"], "mount": False}) == units({"path": STORE["path"]})


@pytest.mark.parametrize(
    ("store", "mount", "refused"),
    [(STORE, "/", True), (STORE, "/srv", False), (STORE, "", False), ({"path": STORE["path"]}, "/", False)],
)
def test_no_model_is_fetched_below_a_disk_that_is_not_mounted(
    store: dict[str, object], mount: str, refused: bool
) -> None:
    disk = Disk("/srv", 10**12, "/dev/sda1", "ext4", writable=True, mount=mount)
    found = refusals(planned(cpu_rig(), {"store": store}), host_with(disk=disk))
    assert ["must be on a mounted disk" in each.message for each in found] == [True] * refused


@pytest.mark.usefixtures("starts_processes")
def test_systemd_reads_the_mount(tmp_path: Path) -> None:
    """`systemd-analyze verify` names a line that it does not understand."""
    (unit, *_) = units(STORE)
    file = tmp_path / "made.service"
    head = unit.split("[Service]")[0]
    file.write_text(f"{head}\n[Service]\nExecStart=/bin/true\n")
    ended = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False)
    assert "RequiresMountsFor" not in ended.stderr
    file.write_text(f"{head}\nRequiresMountsFor=srv\n[Service]\nExecStart=/bin/true\n")
    ended = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False)
    assert "srv" in ended.stderr
