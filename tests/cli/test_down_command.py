"""`herd down` as it is typed, with this machine as the rig: in namespaces with folders and processes of its own.

It has no systemd there.
"""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from llamaherd.layout import (
    ACCOUNTS,
    BUILDS,
    CACHE,
    DEFAULT_STORE,
    KEPT,
    KEYS,
    LOGS,
    RELEASES,
    STATE,
    UNITS,
)
from tests.support.stores import needs_root

pytestmark = needs_root

HERD = str(Path(sys.executable).parent / "herd")
BUILD, COMMIT = "llama.cpp-000000000000", "0" * 40
MODEL_FOLDER = f"ann/tiny/{COMMIT}"
MODEL = f"{DEFAULT_STORE}/{MODEL_FOLDER}"
APT_FILE = "/etc/apt/preferences.d/llamaherd-cuda"
SUM = hashlib.sha256(b"weights").hexdigest()
FILES = (
    *(f"{UNITS}/llamaherd-fetch.service", f"{UNITS}/mine.service"),
    *(f"{KEPT}/llama-chat/x/file", f"{BUILDS}/{BUILD}/bin/llama-server", f"{MODEL}/m.gguf"),
    *(f"{CACHE}/sources/{'ab' * 32}", f"{LOGS}/apt.log", f"{RELEASES}/1.json", APT_FILE),
)
SET_UP = f"""
set -e
for folder in /run /opt /srv /var/cache /var/lib /var/log; do mount -t tmpfs tmpfs "$folder"; done
cp -a /etc /run/etc && mount --bind /run/etc /etc
mkdir -p /var/lib/dpkg /var/cache/apt/archives/partial
for user in {" ".join(ACCOUNTS)}; do useradd --system --no-create-home "$user"; done
for file in {" ".join(FILES)}; do mkdir -p "${{file%/*}}"; echo much >"$file"; done
printf '7\\t%s\\t{SUM}\\tm.gguf\\n' "$(stat -c %.9Y {MODEL}/m.gguf)" >{MODEL}/.manifest
"""
LEFT = """
find /etc /opt /run/llamaherd /srv /var/cache /var/lib /var/log -name '*llama*' -print 2>/dev/null
getent passwd | grep '^llama' || :
"""


@dataclass(frozen=True)
class Ended:
    """A command that has ended, and what is left of llamaherd on its machine."""

    code: int
    out: str
    err: str
    left: frozenset[str]


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """A rig that is this machine."""
    declared = {
        "rig": "here",
        "connect": "local",
        "host": {"os": "debian-13", "cpu": {"cores": 2}, "ram": "4GB"},
        "engines": {},
        "models": {},
        "instances": {},
    }
    path = tmp_path / "here.yaml"
    path.write_text(yaml.safe_dump(declared))
    return path


def down(inventory: Path, *words: str, before: str = ":", after: str = ":", times: int = 1) -> Ended:
    """Run it on a machine that is set up, so many times; return the last."""
    herd = shlex.join([HERD, "-i", str(inventory), "down", *words])
    runs = "\n".join([f"{herd} </dev/null >/dev/null 2>&1"] * (times - 1))
    script = f"{SET_UP}\n{before}\nset +e\n{runs}\n{herd} </dev/null\ncode=$?\n{after}\necho @\n{LEFT}\nexit $code"
    # With processes of its own: what else this machine builds or serves uses the same folders.
    alone = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-s"]
    ended = subprocess.run(alone, input=script, capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr
    out, _, left = ended.stdout.partition("@\n")
    return Ended(ended.returncode, out, ended.stderr, frozenset(left.splitlines()))


def test_it_shows_what_would_go_and_what_would_stay(inventory: Path) -> None:
    ended = down(inventory, "here", "--purge", "--dry-run")
    assert (ended.code, ended.err) == (0, "--> Inspecting 1 host...\n")
    lines = ended.out.splitlines()
    assert lines[:1] == ["here: this is removed"]
    for line in ("unit llamaherd-fetch.service", "account llama-build", f"model {MODEL_FOLDER}  5 B"):
        assert f"  - {line}" in lines
    assert any(line.startswith(f"  - folder {STATE}  ") for line in lines)
    assert [line for line in lines if line.startswith("  - engines  1 build, 1 source, ")], lines
    stays = lines[lines.index("here: this stays") + 1 :]
    assert stays[0].startswith("  packages, with ")
    assert {str(STATE), str(BUILDS.parent), f"{UNITS}/llamaherd-fetch.service"} <= ended.left


def test_services_go_and_models_and_engines_stay(inventory: Path) -> None:
    """The key of a server that is gone is removed by a run of pyinfra, as `herd up` makes it."""
    key = f"mkdir -p {KEYS} && echo secret >{KEYS}/chat"
    ended = down(inventory, "here", "--yes", before=key)
    assert ended.code == 0, ended.err
    assert "  - key chat\n" in ended.out
    assert "here \N{CHECK MARK} removed in " in ended.out
    assert "here: remove key chat\n" in ended.err
    assert "pyinfra" not in ended.err
    assert f"{UNITS}/llamaherd-fetch.service" not in ended.left
    assert f"{BUILDS}/{BUILD}/bin/llama-server" in ended.left
    assert f"keys of {KEYS}: " not in ended.err


def test_a_purge_leaves_packages_alone_and_a_second_run_finds_nothing(inventory: Path) -> None:
    ended = down(inventory, "here", "--purge", "--yes", times=2)
    assert (ended.code, ended.out) == (0, "here: nothing to remove\n"), ended.err
    assert ended.left == {APT_FILE, "/run/llamaherd"}


def test_what_another_program_uses_stays_with_the_reason(inventory: Path) -> None:
    used = f"echo 'ExecStart=/usr/bin/x {MODEL}/m.gguf' >{UNITS}/mine.service"
    again = f"{shlex.join([HERD, '-i', str(inventory), 'down', 'here', '--purge', '--yes', '-q'])} </dev/null"
    ended = down(inventory, "here", "--purge", "--yes", before=used, after=f"{again}; cat {MODEL}/m.gguf")
    assert ended.code == 0, ended.err
    first, _, second = ended.out.partition("here \N{CHECK MARK} removed in ")
    assert f"  model {MODEL_FOLDER}: unit mine.service uses it\n" in first
    assert second.splitlines()[1:] == ["here: nothing to remove", "much"]
    assert ended.left == {APT_FILE, "/run/llamaherd", str(STATE)}


def test_without_a_terminal_it_needs_a_yes(inventory: Path) -> None:
    words = [HERD, "-i", str(inventory), "down", "here"]
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "error: removing what is on here needs a confirmation, and this is no terminal\n"
        "  help: run it with `--dry-run` to see what would be removed, then with `--yes`\n"
    )
