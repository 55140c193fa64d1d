"""`herd prune` as it is typed, with this machine as the rig: in a namespace with folders of its own, and no Docker."""

from __future__ import annotations

import gzip
import hashlib
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from llamaherd.layout import BUILDS, KEPT, LOCKS, PRESETS, RELEASES, UNITS, WORK
from tests.support.envelope import the_rig
from tests.support.stores import needs_root

pytestmark = needs_root

HERD = str(Path(sys.executable).parent / "herd")
OLD, OLDER, KEPT_ONE = "llama.cpp-000000000000", "llama.cpp-111111111111", "llama.cpp-222222222222"
SOURCE = "ab" * 32
PRESET, KEPT_PRESET, RELEASED_PRESET, UNIT_PRESET = (f"card-{digit * 12}.ini" for digit in "0123")
OURS = f"""
set -e
for folder in /run /opt /srv /var/cache /var/lib; do mount -t tmpfs tmpfs "$folder"; done
cp -a /etc /run/etc && mount --bind /run/etc /etc
mkdir -p /var/lib/dpkg /var/cache/apt/archives/partial /var/cache/llamaherd/sources {WORK}/x {RELEASES} {KEPT} {PRESETS}
for build in {OLD} {OLDER} {KEPT_ONE}; do
    mkdir -p {BUILDS}/$build/bin
    echo much >{BUILDS}/$build/bin/llama-server
done
echo much >/var/cache/llamaherd/sources/{SOURCE}
echo much >{WORK}/x/log
for file in {PRESET} {KEPT_PRESET} {RELEASED_PRESET} {UNIT_PRESET} mine.ini; do echo much >{PRESETS}/$file; done
echo much >/var/cache/apt/archives/a_1_all.deb
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """A rig that is this machine, and serves one model."""
    weights = tmp_path / "m.gguf"
    weights.write_bytes(b"weights")
    declared = {
        "rig": "here",
        "connect": "local",
        "host": {"os": "debian-13", "cpu": {"cores": 2}, "ram": "4GB"},
        "engines": {"main": {"kind": "llama.cpp", "source": {"git": "https://x.lan/e", "commit": "0" * 40}}},
        "models": {"m": {"file": str(weights), "sha256": hashlib.sha256(b"weights").hexdigest()}},
        "instances": {"chat": {"engine": "main", "model": "m", "context": 4096, "port": 18089}},
    }
    path = tmp_path / "here.yaml"
    path.write_text(yaml.safe_dump(declared))
    return path


def prune(inventory: Path, *words: str, before: str = ":") -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Run it on a machine with two old builds and more; and the builds that are there afterwards."""
    herd = shlex.join([HERD, "-i", str(inventory), "prune", *words])
    script = f"{OURS}\n{before}\nset +e\n{herd} </dev/null\ncode=$?\nls {BUILDS} >&2\nexit $code"
    # On stdin: a shell with the names of builds among its arguments would be one that uses them.
    # With processes of its own: what else this machine builds or serves uses the same folders.
    alone = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-s"]
    ended = subprocess.run(alone, input=script, capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr
    return ended, {line for line in ended.stderr.splitlines() if line.startswith("llama.cpp-")}


def released(number: int, build: str, *failed: str) -> str:
    """What leaves a release whose plan has a build."""
    plan = gzip.compress(json.dumps({"builds": [{"id": build}]}).encode()).hex()
    release = json.dumps({"failed": failed}, separators=(",", ":"))
    return (
        f"echo {shlex.quote(release)} >{RELEASES}/{number}.json\n"
        f"python3 -c 'import sys; sys.stdout.buffer.write(bytes.fromhex(\"{plan}\"))' >{RELEASES}/{number}.plan"
    )


def test_it_shows_what_would_go(inventory: Path) -> None:
    ended, left = prune(inventory, "--dry-run")
    assert ended.returncode == 0, ended.stderr
    for what in (f"build {OLD}", f"build {OLDER}", f"preset {PRESET}", f"source {SOURCE}", "work x", "packages apt"):
        assert f"  {what}\n" in ended.stdout
    assert left == {OLD, OLDER, KEPT_ONE}


def test_it_removes_what_it_showed(inventory: Path) -> None:
    ended, left = prune(inventory, "--yes", "--json")
    found = the_rig(ended.stdout)
    assert ended.returncode == 0
    assert sorted(found["outcome"]["things"]["removed"]) == sorted(found["removals"])
    assert left == set()


def test_what_good_releases_need_stays_and_so_does_what_is_kept(inventory: Path) -> None:
    before = "\n".join(
        [
            released(1, OLD),
            *(released(number, "none", "it failed") for number in (2, 3, 4)),
            f"mkdir -p {KEPT}/llama-chat/x && ln -s x {KEPT}/llama-chat/last",
            f"echo ExecStart={BUILDS}/{KEPT_ONE}/bin/llama-server >{KEPT}/llama-chat/last/file",
        ]
    )
    ended, left = prune(inventory, "--yes", before=before)
    assert left == {OLD, KEPT_ONE}, ended.stdout
    assert f"kept for release 1: build {OLD}\n" in ended.stdout
    assert f"kept for kept llama-chat: build {KEPT_ONE}\n" in ended.stdout
    assert prune(inventory, "--yes", "--keep", "0", before=before)[1] == {KEPT_ONE}


def test_preset_files_stay_that_anything_names_and_those_of_others(inventory: Path) -> None:
    release = json.dumps({"instances": [{"preset": {"path": f"{PRESETS}/{RELEASED_PRESET}", "text": "[m]"}}]})
    before = "\n".join(
        [
            f"mkdir -p {KEPT}/llama-card/x && ln -s x {KEPT}/llama-card/last",
            f"echo ExecStart=/x --models-preset {PRESETS}/{KEPT_PRESET} --models-max 1 >{KEPT}/llama-card/last/file",
            f"echo ExecStart=/x --models-preset {PRESETS}/{UNIT_PRESET} --models-max 1 >{UNITS}/llama-card.service",
            f"echo '{{\"failed\":[]}}' >{RELEASES}/1.json && echo '{release}' | gzip >{RELEASES}/1.plan",
        ]
    )
    listing = f"; trap 'ls {PRESETS}' EXIT"
    ended, _ = prune(inventory, "--yes", before=before + listing)
    assert ended.returncode == 0, ended.stderr
    assert f"  kept for release 1: preset {RELEASED_PRESET}\n" in ended.stdout
    assert ended.stdout.splitlines()[-4:] == [KEPT_PRESET, RELEASED_PRESET, UNIT_PRESET, "mine.ini"]
    ended, _ = prune(inventory, "--yes", "--keep", "0", before=before + listing)
    assert ended.stdout.splitlines()[-3:] == [KEPT_PRESET, UNIT_PRESET, "mine.ini"]


def test_releases_out_of_reach_keep_nothing(inventory: Path) -> None:
    before = "\n".join(released(number, build) for number, build in enumerate((OLD, OLDER, "none", "none"), 1))
    assert prune(inventory, "--yes", before=before)[1] == {OLDER}


def test_what_has_come_into_use_since_stays(inventory: Path) -> None:
    """The program is started by the very shell that then prunes: it runs meanwhile."""
    program = f"{BUILDS}/{OLD}/bin/llama-server"
    before = f"install /bin/sleep {program}; {program} 60 >/dev/null 2>&1 & trap 'kill $!' EXIT"
    ended, left = prune(inventory, "--yes", before=before)
    assert ended.returncode == 0, ended.stderr
    assert left == {OLD}


def test_another_run_is_not_disturbed(inventory: Path) -> None:
    """It is waited for, and not for long."""
    before = f"mkdir -p {LOCKS} && chmod 0700 {LOCKS} && exec 7>{LOCKS}/build && flock 7"
    ended, left = prune(inventory, "--yes", before=before)
    assert ended.returncode == 1
    assert "another run is active" in ended.stderr
    assert left == {OLD, OLDER, KEPT_ONE}


def test_nothing_goes_without_being_asked_for(inventory: Path) -> None:
    ended, left = prune(inventory)
    assert (ended.returncode, len(left)) == (2, 3)
    assert ended.stderr.startswith(
        "error: removing anything needs a confirmation, and this is no terminal\n  help: run it with `--dry-run`"
    )
