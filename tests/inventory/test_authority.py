"""A CA of the fleet's own: as openssl reads it, after kills at every step, and over the years."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.authority import KEY, ROOT, certificate_of, make_root, root_in
from llamaherd.inventory.certificates import LIFE, RENEWED, ROOT_LIFE, valid

NAMES = ("127.0.0.1", "attic.lan", "localhost")
NOW = datetime.now(UTC)
KILLED = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
import llamaherd.inventory.certificates
from llamaherd.inventory.authority import certificate_of, make_root

left = int(sys.argv[2])
FILES = ("open", "os.link", "os.rename", "os.chmod", "os.remove", "os.mkdir")

def step(event, arguments):
    global left
    if event in FILES and "keys" in str(arguments[0]):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(step)
make_root(Path(sys.argv[1]))
certificate_of(Path(sys.argv[1]), "attic", ("attic.lan",))
"""
"""Makes a CA and a certificate, and kills itself before this one of its steps that touch a file."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_root(tmp_path / "keys")
    return tmp_path / "keys"


def openssl(*words: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """What openssl says."""
    command = ["openssl", *map(str, words)]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_keys_are_open_to_nobody_else(folder: Path) -> None:
    certificate_of(folder, "attic", NAMES)
    modes = {file.name: mode(file) for file in folder.iterdir()}
    assert modes == {KEY: 0o600, ROOT: 0o644, "gateway-attic.pem": 0o600}
    assert mode(folder) == 0o700
    assert "PRIVATE" not in (folder / ROOT).read_text()


@pytest.mark.parametrize(
    ("asked", "ok"),
    [
        (("-verify_hostname", "attic.lan"), True),
        (("-verify_ip", "127.0.0.1"), True),
        (("-verify_hostname", "porch.lan"), False),
        (("-verify_ip", "127.0.0.2"), False),
        (("-purpose", "sslclient"), False),
        (("-attime", str(int((NOW + LIFE + timedelta(days=1)).timestamp()))), False),
    ],
    ids=["its name", "its address", "another name", "another address", "as a client", "later"],
)
def test_openssl_takes_it_for_what_it_is(folder: Path, asked: tuple[str, str], ok: bool) -> None:
    certificate_of(folder, "attic", NAMES, NOW)
    purpose = () if "-purpose" in asked else ("-purpose", "sslserver")
    words = ("verify", "-x509_strict", *purpose, *asked, "-CAfile", folder / ROOT, folder / "gateway-attic.pem")
    done = openssl(*words)
    assert (done.returncode == 0) is ok, done.stdout + done.stderr


def test_what_it_signs_signs_nothing(folder: Path) -> None:
    """A certificate of the gateway's is no CA, though its host has the key."""
    leaf = certificate_of(folder, "attic", NAMES)
    said = openssl("x509", "-noout", "-ext", "basicConstraints,keyUsage", text=leaf).stdout
    assert "CA:FALSE" in said
    assert "Certificate Sign" not in said
    root = openssl("x509", "-noout", "-ext", "basicConstraints", text=root_in(folder).pem).stdout
    assert "CA:TRUE, pathlen:0" in root


def test_the_fingerprint_is_the_one_that_others_show(folder: Path) -> None:
    said = openssl("x509", "-noout", "-fingerprint", "-sha256", "-in", folder / ROOT).stdout
    assert said.strip().partition("=")[2] == root_in(folder).fingerprint


def test_a_second_run_changes_nothing(folder: Path) -> None:
    first = certificate_of(folder, "attic", NAMES, NOW)
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()}
    assert not make_root(folder)
    assert certificate_of(folder, "attic", tuple(reversed(NAMES)), NOW + LIFE - RENEWED - timedelta(hours=1)) == first
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()} == before


@pytest.mark.parametrize(
    "made",
    [
        lambda folder: certificate_of(folder, "attic", NAMES, NOW + LIFE - RENEWED + timedelta(hours=1)),
        lambda folder: certificate_of(folder, "attic", (*NAMES, "llm.lan"), NOW),
        lambda folder: certificate_of(folder, "attic", NAMES[1:], NOW),
    ],
    ids=["in time", "another name", "a name less"],
)
def test_it_is_made_anew(folder: Path, made: object) -> None:
    first = certificate_of(folder, "attic", NAMES, NOW)
    assert callable(made)
    second = made(folder)
    assert second != first
    assert (folder / "gateway-attic.pem").read_text() == second
    assert openssl("verify", "-no_check_time", "-CAfile", folder / ROOT, text=second).returncode == 0


@pytest.mark.parametrize("spoil", ["", "no PEM", "half", "of another CA", "of another key"])
def test_what_cannot_be_used_is_made_anew(folder: Path, tmp_path: Path, spoil: str) -> None:
    first, file = certificate_of(folder, "attic", NAMES), folder / "gateway-attic.pem"
    make_root(tmp_path / "other")
    foreign = certificate_of(tmp_path / "other", "attic", NAMES)
    parts = (first.partition("-----BEGIN PRIVATE"), foreign.partition("-----BEGIN PRIVATE"))
    mixed = parts[0][0] + "".join(parts[1][1:])
    texts = {"half": first[: len(first) // 2], "of another CA": foreign, "of another key": mixed}
    file.write_text(texts.get(spoil, spoil))
    made = certificate_of(folder, "attic", NAMES)
    assert made not in (first, texts.get(spoil))
    assert openssl("verify", "-CAfile", folder / ROOT, text=made).returncode == 0


def test_the_last_one_ends_with_its_ca(folder: Path) -> None:
    """And is not made anew each time because little is left of it."""
    late = NOW + ROOT_LIFE - timedelta(days=30)
    made = certificate_of(folder, "attic", NAMES, late)
    assert valid(made)[1] == root_in(folder).ends
    assert certificate_of(folder, "attic", NAMES, late + timedelta(days=1)) == made


@pytest.mark.parametrize(
    ("later", "said"), [(ROOT_LIFE + timedelta(days=1), "has ended"), (-timedelta(days=9), "clock")]
)
def test_a_ca_signs_in_its_time_alone(folder: Path, later: timedelta, said: str) -> None:
    with pytest.raises(UserError, match=said):
        certificate_of(folder, "attic", NAMES, NOW + later)


@pytest.mark.parametrize("name", [KEY, ROOT])
@pytest.mark.parametrize(
    "text", [None, "", "no PEM", "é", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_a_ca_that_is_not_whole_is_said_and_left(folder: Path, name: str, text: str | None) -> None:
    """Another one in its place would be one that nobody trusts."""
    (folder / name).unlink() if text is None else (folder / name).write_text(text)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(UserError) as told:
        certificate_of(folder, "attic", NAMES)
    assert str(folder) in told.value.message
    assert "PRIVATE" not in str(told.value)
    if name == KEY:
        with pytest.raises(UserError):
            make_root(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_key_of_another_ca_is_said(folder: Path, tmp_path: Path) -> None:
    make_root(tmp_path / "other")
    (folder / KEY).write_text((tmp_path / "other" / KEY).read_text())
    with pytest.raises(UserError, match="is not the key of"):
        root_in(folder)


def test_a_key_of_another_kind_is_said(folder: Path) -> None:
    (folder / KEY).write_text(openssl("genpkey", "-algorithm", "ed25519").stdout)
    with pytest.raises(UserError, match="another kind"):
        root_in(folder)


def test_killed_before_any_step_and_run_again(tmp_path: Path) -> None:
    """By a real SIGKILL before each step that touches a file: what was made stays, and the end is the same."""
    for steps in range(100):
        keys = tmp_path / str(steps) / "keys"
        keys.parent.mkdir()
        done = subprocess.run([sys.executable, "-c", KILLED, str(keys), str(steps)], timeout=60, check=False)
        made = {file.name: file.read_bytes() for file in keys.glob("*.pem")} if keys.exists() else {}
        if (keys / KEY).exists():
            made[KEY] = (keys / KEY).read_bytes()
            assert mode(keys / KEY) == 0o600
        for part in keys.glob(".*.part"):
            assert mode(part) & 0o077 == 0 or ROOT in part.name, "a key is open to nobody, not even for a moment"
        make_root(keys)
        certificate_of(keys, "attic", ("attic.lan",))
        assert {name: (keys / name).read_bytes() for name in made} == made
        assert openssl("verify", "-CAfile", keys / ROOT, keys / "gateway-attic.pem").returncode == 0
        assert list(keys.glob(".*")) == [], "a key that nobody needs is left nowhere"
        if done.returncode == 0:
            break
    assert 8 < steps < 99, "the steps were counted"


def test_what_is_being_written_is_left_alone(folder: Path) -> None:
    """By a process that runs, here this one's parent, or by nobody of ours."""
    others = [folder / f".{KEY}.{os.getppid()}.part", folder / f".{KEY}.x.part", folder / ".mine.1234567.part"]
    ended = folder / f".{KEY}.{_ended()}.part"
    for file in (*others, ended):
        file.write_text("key")
    certificate_of(folder, "attic", NAMES)
    assert sorted(folder.glob(".*")) == sorted(others)


def _ended() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        return process.pid


def test_two_that_make_it_at_once_make_one(tmp_path: Path) -> None:
    script = KILLED.replace("left = int", "left = 10**9 + int")
    command = [sys.executable, "-c", script, str(tmp_path / "keys"), "0"]
    with ThreadPoolExecutor(6) as pool:
        ended = list(pool.map(lambda _: subprocess.run(command, timeout=60, check=False).returncode, range(6)))
    assert ended == [0] * 6
    root_in(tmp_path / "keys")
    assert {file.name for file in (tmp_path / "keys").iterdir()} == {KEY, ROOT, "gateway-attic.pem"}
