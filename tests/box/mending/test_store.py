"""Where models lie and where they come from besides the hub: full disks, caches of other programs, neighbours."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.box.bench import Declared
from tests.box.supply import FILE, REPO, STORE, Supply


@pytest.fixture
def disk(supply: Supply) -> Iterator[Callable[[str], None]]:
    """A disk of its own for the store, which can be mounted otherwise."""
    supply.bench.sh("mkdir -p /srv/disk; mount -t tmpfs -o size=100m tmpfs /srv/disk")
    supply.declare(path="/srv/disk/models")
    supply.hurry()

    def remount(options: str) -> None:
        supply.bench.sh(f"mount -o remount,{options} /srv/disk")

    yield remount
    supply.bench.sh("umount -l /srv/disk")


def test_a_disk_with_no_room(supply: Supply, disk: Callable[[str], None]) -> None:
    """Said before anything comes."""
    disk("size=2m")
    supply.refused("/srv/disk has 2.1 MB free", "are needed")
    assert supply.bodies == []


def test_a_disk_that_is_read_only(supply: Supply, disk: Callable[[str], None]) -> None:
    disk("ro")
    supply.refused("/srv/disk/models is on a filesystem that is mounted read-only")
    assert supply.bodies == []


def test_what_another_program_has_is_taken_from_there(supply: Supply, tmp_path: Path) -> None:
    """From the cache of Hugging Face's own tools, where it stays as it is."""
    bench = supply.bench
    blob = f"/home/owner/.cache/huggingface/hub/models--x--y/blobs/{supply.sha256}"
    (tmp_path / FILE).write_bytes(supply.content)
    bench.sh(f"install -d -o owner {blob.rpartition('/')[0]}")
    subprocess.run(["docker", "cp", "-q", str(tmp_path / FILE), f"{bench.host.name}:{blob}"], check=True)
    bench.sh(f"chown owner {blob}; chmod 0644 {blob}")
    supply.deploys()
    assert supply.bodies == []
    assert bench.sh(f"stat -c '%h %U %a' {blob}") == "1 owner 644"
    assert bench.sh(f"stat -c '%h %U %a' {STORE}/{REPO}/*/{FILE} | sort -u") == "1 root 644"
    assert bench.answers("drafter").startswith("abcdefgh")
    supply.settled()
    bench.sh("rm -r /home/owner/.cache")


def test_a_neighbour_lends_what_it_has(supply: Supply) -> None:
    """Two rigs: here both are this host, with two stores. The hub is not asked for a byte."""
    bench = supply.bench
    supply.hurry()
    supply.deploys()
    supply.hub.requests.clear()
    borrower: Declared = bench.rig()
    borrower["models"]["tiny-moe"] = {"hf": REPO, "files": FILE}
    address = bench.sh("hostname -I").split()[0]
    lender = borrower | {"rig": "lender", "store": {"share": {"address": address, "port": 8970}}}
    borrower["store"] = {"path": "/srv/models", "from": ["lender", "hub"]}
    folder = bench.folder / "two"
    folder.mkdir()
    for rig in (lender, borrower):
        (folder / f"{rig['rig']}.yaml").write_text(json.dumps(rig))
    (folder / "herd.lock").write_text((bench.folder / "herd.lock").read_text())
    environment = supply.private | {"HERD_INVENTORY": str(folder)}
    ended = bench.up("box", **environment)
    assert ended.code == 0, ended.output
    assert "lender has 1 of the 1 files" in ended.output
    assert supply.bodies == []
    assert bench.sh(f"sha256sum /srv/models/{REPO}/*/{FILE}").split()[0] == supply.sha256
    assert f"{address}:8970" in bench.sh("ss -ltnH 'sport = 8970'")
    assert bench.up("box", **environment).changes == 0
    bench.sh("systemctl stop llamaherd-share")
