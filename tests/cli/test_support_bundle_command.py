"""`herd support-bundle` against a real sshd: canaries are planted everywhere, and none is in the file."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support.ssh_hosts import HERD
from tests.support.sshd import MISSING, SSHD, Sshd, running_sshd
from tests.support.stores import needs_root

pytestmark = [needs_root, pytest.mark.skipif(SSHD is None, reason=MISSING)]

CANARIES = {
    "of a key file": "canary-FILE-0a1b2c3d",
    "of a variable": "canary-ENV-0a1b2c3d",
    "of a server": "canary-SERVER-0a1b2c3d",
    "of a server's variable": "canary-PASS-0a1b2c3d",
    "of a server's flag": "canary-FLAG-0a1b2c3d",
    "of a list of variables": "canary-LIST-0a1b2c3d",
    "of a file of variables": "canary-ENVFILE-0a1b2c3d",
    "with words": "canary words",
    "of the shell": "canary-SHELL-0a1b2c3d",
    "of a created key": "canary-MADE-0a1b2c3d",
    "in a comment": "canary-COMMENT-0a1b2c3d",
    "of a stranger": "cAnary0fAStrangerInALog42x",
}
OF_ODD = ("of a server's flag", "of a list of variables")
"""Canaries in logs that are secrets by `odd.yaml` alone."""
NAMES = ("attic-user", "attic.example", "192.168.77.5")
LINE = "2026-11-29T10:00:00 llama-chat[1]"
FLEET = """
gateway:
  on: attic
  # the old key was {comment}
  users:
    ann-of-the-fleet: {{key: {{file: keys/ann}}}}
    bob-of-the-fleet: {{key: {{env: BOB_KEY}}}}
  models: {{}}
"""


@dataclass(frozen=True)
class Bundle:
    """What a command has written, and printed."""

    files: dict[str, str]
    code: int
    output: str

    @property
    def text(self) -> str:
        return "\n".join([*self.files, *self.files.values()])


@dataclass(frozen=True)
class Fleet:
    """A folder with rigs, and the server that leads to one of them."""

    folder: Path
    sshd: Sshd

    def bundle(self, *words: str) -> Bundle:
        """Run the command, and read its file."""
        output = self.folder.parent / "report.tar.gz"
        output.unlink(missing_ok=True)
        ended = subprocess.run(
            [HERD, "-i", str(self.folder), "support-bundle", "-o", str(output), *words],
            env=os.environ | {"BOB_KEY": CANARIES["of a variable"], "MY_SERVICE_TOKEN": CANARIES["of the shell"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if not output.exists():
            return Bundle({}, ended.returncode, ended.stdout + ended.stderr)
        assert output.stat().st_mode & 0o777 == 0o600
        with tarfile.open(fileobj=io.BytesIO(output.read_bytes())) as archive:
            members = archive.getmembers()
            assert {(each.uid, each.gid, each.uname, each.mtime, each.mode) for each in members} == {
                (0, 0, "", 0, 0o600)
            }
            files = {each.name: file.read().decode() for each in members if (file := archive.extractfile(each))}
        return Bundle(files, ended.returncode, ended.stdout + ended.stderr)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet with a secret in every place that can have one, and a host whose journal has more."""
    programs, folder = tmp_path / "programs", tmp_path / "fleet"
    programs.mkdir()
    log = [f"{LINE}: Authorization: Bearer {CANARIES['of a server']}", f"{LINE}: got {CANARIES['of a stranger']}"]
    log += [f"{LINE}: {NAMES[0]} logs in at {NAMES[1]} from {NAMES[2]}", f"{LINE}: CUDA error: out of memory"]
    (folder / "keys" / "rigs").mkdir(parents=True)
    (folder / "keys" / "ann").write_text(CANARIES["of a key file"] + "\n")
    (folder / "keys" / "rigs" / "attic").write_text(CANARIES["of a created key"] + "\n")
    (folder / "keys" / "mail.env").write_text(f"MAIL={CANARIES['of a file of variables']}\n")
    log += [
        f"{LINE}: {CANARIES[what]}"
        for what in ("of a file of variables", "of a server's flag", "of a list of variables")
    ]
    (folder / "fleet.yaml").write_text(FLEET.format(comment=CANARIES["in a comment"]))
    (programs / "journalctl").write_text(f"#!{sys.executable}\nprint({chr(10).join(log)!r})\n")
    (programs / "journalctl").chmod(0o755)
    with running_sshd(programs=programs) as sshd:
        rig = {"rig": "attic", "connect": sshd.connect.model_dump(mode="json"), "engines": {}, "models": {}}
        rig |= {"host": {"os": "debian-12", "cpu": {"cores": 2}, "ram": "4GB"}, "instances": {}}
        away = {"connect": {"host": NAMES[1], "user": NAMES[0], "port": 9}, "rig": "away"}
        (folder / "attic.yaml").write_text(yaml.safe_dump(rig))
        (folder / "away.yaml").write_text(yaml.safe_dump(rig | away))
        variables = {"MY_PASSWORD": CANARIES["of a server's variable"], "GGML_CUDA_P2P": "1"}
        broken = {"chat": {"engine": "none", "model": "none", "port": 8080, "environment": variables}}
        broken["chat"]["extra_args"] = [
            "--api-key",
            CANARIES["of a server's flag"],
            "--smtp-password",
            "a canary words",
        ]
        broken["list"] = {
            "environment": [f"MY_AUTH={CANARIES['of a list of variables']}"],
            "hf_token": "x canary words",
        }
        (folder / "odd.yaml").write_text(yaml.safe_dump(rig | away | {"rig": "odd", "instances": broken}))
        yield Fleet(folder, sshd)


def test_no_secret_and_no_name_is_in_it(fleet: Fleet) -> None:
    found = fleet.bundle()
    assert [what for what, canary in CANARIES.items() if canary in found.text] == []
    assert [name for name in (*NAMES, "ann-of-the-fleet", "bob-of-the-fleet") if name in found.text] == []
    assert "GGML_CUDA_P2P" in found.files["herd-support/inventory/odd.yaml"]
    assert "person-1" in found.files["herd-support/inventory/fleet.yaml"]
    assert "nothing was sent" in found.output


def test_what_explains_a_fault_is_in_it(fleet: Fleet) -> None:
    (fleet.folder / "odd.yaml").unlink()
    (fleet.folder / "fleet.yaml").unlink()
    found = fleet.bundle("attic")
    assert found.code == 0, found.output
    assert {name.removeprefix("herd-support/") for name in found.files} == {
        *("versions.txt", "doctor.txt", "inventory/attic.yaml", "inventory/away.yaml"),
        *("rigs/attic/plan.json", "rigs/attic/inspection.json"),
        *("rigs/attic/logs/llamaherd.log", "rigs/attic/logs/kernel.log"),
    }
    assert "CUDA error: out of memory" in found.files["herd-support/rigs/attic/logs/llamaherd.log"]
    assert "pyinfra 3" in found.files["herd-support/versions.txt"]
    assert "✓ connection" in found.files["herd-support/doctor.txt"]
    for name, text in found.files.items():
        assert name.removeprefix("herd-support/") in found.output
        assert CANARIES["of a server"] not in text


def test_names_stay_on_request_and_a_host_that_is_away_is_reported(fleet: Fleet) -> None:
    (fleet.folder / "odd.yaml").unlink()
    (fleet.folder / "fleet.yaml").unlink()
    found = fleet.bundle("--names")
    assert found.code == 1
    assert NAMES[1] in found.files["herd-support/rigs/away/error.txt"]
    assert NAMES[2] in found.text
    known = {what: canary for what, canary in CANARIES.items() if what not in OF_ODD}
    assert [what for what, canary in known.items() if canary in found.text] == []


def test_the_file_has_a_name_and_a_wrong_rig_or_path_is_an_error(fleet: Fleet, tmp_path: Path) -> None:
    (fleet.folder / "odd.yaml").unlink()
    (fleet.folder / "fleet.yaml").unlink()
    assert fleet.bundle("attik").code == 2
    ended = subprocess.run(
        [HERD, "-i", str(fleet.folder), "support-bundle", "attic"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    (written,) = tmp_path.glob("herd-support-*.tar.gz")
    assert ended.stdout.startswith(f"{written.name}: ")
    assert written.stat().st_mode & 0o777 == 0o600
    refused = fleet.bundle("attic", "-o", "/proc/none.tar.gz")
    assert (refused.code, "cannot write /proc/none.tar.gz" in refused.output) == (2, True)
