"""`herd doctor` against a real sshd, with this machine as the host: what is wrong, where, and the exit code."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.envelope import envelope
from tests.support.gateway import free_port
from tests.support.ssh_hosts import HERD
from tests.support.sshd import MISSING, SSHD, Sshd, running_sshd
from tests.support.stores import needs_root

pytestmark = [needs_root, pytest.mark.skipif(SSHD is None, reason=MISSING)]


@dataclass(frozen=True)
class Fleet:
    """A rig, and the server that leads to it."""

    folder: Path
    sshd: Sshd

    def declare(self, **more: object) -> None:
        """Write the file of the rig."""
        connect = self.sshd.connect.model_dump(mode="json")
        rig = {"rig": "attic", "connect": connect, "engines": {}, "models": {}, "instances": {}}
        rig |= {"host": {"os": "debian-12", "cpu": {"cores": 2}, "ram": "4GB"}}
        (self.folder / "attic.yaml").write_text(yaml.safe_dump(rig | more))

    def doctor(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return subprocess.run(
            [HERD, "-i", str(self.folder), "doctor", *words],
            env=os.environ | {"XDG_RUNTIME_DIR": str(self.sshd.runtime)} | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def wrong(self, **environment: str) -> dict[str, dict[str, Any]]:
        """Return what is wrong, by machine and thing; the last of each thing."""
        found = envelope(self.doctor("--json", **environment).stdout)
        machines = {"here": found["data"]["controller"], **{rig["rig"]: rig["checks"] for rig in found["rigs"]}}
        assert not found["ok"]
        return {
            name: {each["what"]: each for each in checks if each["verdict"] == "wrong"}
            for name, checks in machines.items()
        }


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with running_sshd() as sshd:
        made = Fleet(tmp_path, sshd)
        made.declare()
        yield made


def test_it_prints_a_line_for_each_check_after_one_login(fleet: Fleet) -> None:
    ended = fleet.doctor()
    lines = ended.stdout.splitlines()
    assert lines[0] == "this machine"
    assert "attic" in lines
    assert any(line.startswith("  ✓ connection") and "root rights, Python 3" in line for line in lines)
    assert any(line.startswith("  ✓ inventory") and line.endswith("1 rig") for line in lines)
    # No test machine has a release of ours: it is a host that was never set up.
    assert any(line.startswith("  ! last run") and "`herd up attic`" in line for line in lines)
    assert ended.returncode == ("nothing is wrong" not in lines)
    log = (fleet.sshd.folder / "log").read_text()
    assert (fleet.sshd.logins, log.count("Starting session")) == (1, 1)


def test_a_key_that_others_can_read(fleet: Fleet) -> None:
    (fleet.sshd.folder / "id").chmod(0o644)
    wrong = fleet.wrong()
    assert wrong["here"]["ssh keys"]["fix"] == f"`chmod 600 {fleet.sshd.folder}/id`"
    assert "other users can read it" in wrong["attic"]["connection"]["found"]


def test_an_inventory_with_a_mistake_keeps_no_host_from_being_inspected(fleet: Fleet) -> None:
    fleet.declare(instances={"chat": {"engine": "none", "model": "none", "port": 8080, "context": 4096}})
    wrong = fleet.wrong()
    assert "attic.yaml:" in wrong["here"]["inventory"]["found"]
    assert "connection" not in wrong["attic"]
    assert fleet.sshd.logins == 1


def test_a_model_that_is_not_locked_and_a_hub_that_does_not_respond(fleet: Fleet) -> None:
    fleet.declare(models={"small": {"hf": "owner/small-GGUF", "quant": "Q4_K_M"}})
    wrong = fleet.wrong(HF_ENDPOINT=f"http://127.0.0.1:{free_port()}")
    assert "lock` and commit the lock" in wrong["here"]["herd.lock"]["fix"]
    assert "cannot be reached" in wrong["here"]["hub"]["found"]
    assert "HF_ENDPOINT" in wrong["here"]["hub"]["fix"]


def test_a_host_without_a_connection_and_a_rig_that_does_not_exist(fleet: Fleet) -> None:
    connect = fleet.sshd.connect.model_dump(mode="json") | {"port": free_port()}
    fleet.declare(connect=connect)
    assert "connection refused" in fleet.wrong()["attic"]["connection"]["found"]
    ended = fleet.doctor("atic")
    assert ended.returncode == 2
    assert "did you mean `attic`?" in ended.stderr
