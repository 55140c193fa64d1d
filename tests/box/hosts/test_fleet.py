"""Five rigs, one of which cannot be used: it ends with one sentence and its way out, and the others converge."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from box.cli import BOX
from box.host import BoxHost
from tests.box.bench import HERD, Declared, Ended, run
from tests.box.slot import PORTS_OF_A_SLOT, SLOT, slotted

SICK, *WELL = [f"rig-{number}" for number in range(1, 6)]
GATE = "/opt/llamaherd/libexec/wait-healthy"
"""A file that each rig has from us; without it, there is something to do."""


@dataclass(frozen=True)
class Fleet:
    """Five hosts, and the folder that their inventory lies in."""

    hosts: dict[str, BoxHost]
    folder: Path

    def rig(self, name: str) -> Declared:
        """A rig that serves nothing: its accounts, files and packages are enough to see it converge."""
        host = self.hosts[name]
        connect = {"host": "127.0.0.1", "port": host.port, "user": "owner"}
        connect |= {"key": str(host.key), "known_hosts": str(host.known_hosts)}
        system = {"os": "debian-13", "cpu": {"cores": 2}, "ram": "8GB"}
        return {"rig": name, "connect": connect, "host": system, "engines": {}, "models": {}, "instances": {}}

    def declare(self, name: str, **connect: object) -> None:
        """One rig's YAML, reached in another way perhaps."""
        rig = self.rig(name)
        rig["connect"] |= connect
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(rig))

    def herd(self, *arguments: str) -> Ended:
        """A command of `herd` about this fleet."""
        return run([HERD, "-i", str(self.folder), *arguments], {**os.environ, "NO_COLOR": "1"})

    def sh(self, name: str, script: str) -> str:
        """A shell script on a host, past SSH."""
        return self.hosts[name].exec("sh", "-c", script).strip()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Five rigs as planned."""
    hosts = {}
    for number, name in enumerate((SICK, *WELL)):
        called = slotted(f"llamaherd-{name}")
        # A cache of packages each: apt locks it.
        hosts[name] = BoxHost(called, 2270 + PORTS_OF_A_SLOT * SLOT + number, BOX / called, caches=called)
    fleet = Fleet(hosts, tmp_path_factory.mktemp("fleet"))
    try:
        for name, host in hosts.items():
            host.up()
            fleet.declare(name)
        ended = fleet.herd("up", "-v")
        assert ended.code == 0, ended.output
        yield fleet
    finally:
        if not os.environ.get("LLAMAHERD_KEEP"):
            for host in hosts.values():
                host.down()
                for volume in host.cache_volumes:
                    subprocess.run(["docker", "volume", "rm", "-f", volume], check=False, capture_output=True)


@pytest.fixture
def keys(tmp_path: Path, fleet: Fleet) -> Path:
    """Keys that are none, and host keys of others."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(tmp_path / "locked")], check=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    shutil.copy(fleet.hosts[SICK].key, tmp_path / "open")
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "text").write_text("no key\n")
    (tmp_path / "text").chmod(0o600)
    (tmp_path / "empty").touch()
    known = " ".join((tmp_path / "other.pub").read_text().split()[:2])
    (tmp_path / "changed").write_text(f"[127.0.0.1]:{fleet.hosts[SICK].port} {known}\n")
    return tmp_path


REACHED: dict[str, tuple[dict[str, object], str, str]] = {
    "key with a passphrase": ({"key": "locked"}, "has a passphrase", "ssh-add"),
    "key that others can read": ({"key": "open"}, "other users can read it", "chmod 600"),
    "key that is none": ({"key": "text"}, "cannot be read as a private key", "private key's file"),
    "key that is not there": ({"key": "nowhere"}, "there is no SSH key at", "correct `connect: key:`"),
    "key of somebody else": ({"key": "other"}, "does not accept", "authorized_keys"),
    "host that nobody knows": ({"known_hosts": "empty"}, "is unknown", "ssh-keyscan"),
    "host that is another": ({"known_hosts": "changed"}, "has changed", "ssh-keygen"),
    "port that is closed": ({"port": 9}, "nothing listens for SSH at", "that sshd runs there"),
    "name that does not resolve": ({"host": "nowhere.invalid"}, "cannot be resolved", "give the address of the host"),
}

BASHRC = "/home/owner/.bashrc"
MADE: dict[str, tuple[str, str, str]] = {
    "sudo that asks": (
        "mv /etc/sudoers.d /root/; mkdir /etc/sudoers.d; echo 'owner ALL=(ALL) ALL' >/etc/sudoers.d/owner",
        "requires a password for owner",
        "NOPASSWD",
    ),
    "no sudo": ("mv /usr/bin/sudo /root/", "there is no sudo on", "connect as root"),
    "shell that ends": (f"sed -i '1i echo bye; exit 0' {BASHRC}", "its last line: bye", "start files"),
    "shell that never ends talking": (f"sed -i '1i yes' {BASHRC}", "does not stop printing", "start files"),
    "shell that is silent": (f"sed -i '1i exec sleep 100' {BASHRC}", "started no shell within", "host's load"),
}


@pytest.fixture
def something_to_do(fleet: Fleet) -> Callable[[], None]:
    """Something for each healthy rig to mend; what it gives asks whether each is mended."""
    for name in WELL:
        fleet.sh(name, f"rm -f {GATE}")

    def mended() -> None:
        for name in WELL:
            assert fleet.sh(name, f"ls {GATE}") == GATE

    return mended


def ends_alone(fleet: Fleet, words: str, help_: str) -> None:
    """`up` and `verify` say the same of the sick rig, once, and end with 1."""
    up = fleet.herd("up", "-v")
    assert up.code == 1, up.output
    said = re.findall(rf"\[{SICK}\] +(.*)\n +help: (.*)", up.output)
    assert [(words in sentence, help_ in way) for sentence, way in said] == [(True, True)], up.output
    for noise in ("Traceback", "paramiko", "EOFError", "termios", "Greenlet"):
        assert noise not in up.output
    verify = fleet.herd("verify", SICK)
    assert verify.code == 1, verify.output
    assert f"{SICK}: {said[0][0]}\n  help: {said[0][1]}" in verify.output


@pytest.mark.parametrize("case", REACHED)
def test_a_host_that_cannot_be_reached(
    fleet: Fleet, keys: Path, something_to_do: Callable[[], None], case: str
) -> None:
    connect, words, help_ = REACHED[case]
    files = {name: str(keys / str(value)) for name, value in connect.items() if name in ("key", "known_hosts")}
    fleet.declare(SICK, **{**connect, **files})
    try:
        ends_alone(fleet, words, help_)
    finally:
        fleet.declare(SICK)
    something_to_do()


@pytest.mark.parametrize("case", MADE)
def test_a_host_that_cannot_be_used(fleet: Fleet, something_to_do: Callable[[], None], case: str) -> None:
    script, words, help_ = MADE[case]
    fleet.sh(SICK, f"cp -a {BASHRC} /root/bashrc; {script}")
    try:
        ends_alone(fleet, words, help_)
    finally:
        fleet.sh(
            SICK,
            f"cp -a /root/bashrc {BASHRC}; rm -f /usr/local/bin/uname; [ ! -e /root/sudo ] || mv /root/sudo /usr/bin/; "
            "[ ! -d /root/sudoers.d ] || { rm -r /etc/sudoers.d; mv /root/sudoers.d /etc/; }",
        )
    something_to_do()


def test_start_files_may_print_what_they_like(fleet: Fleet) -> None:
    fleet.sh(SICK, rf"cp -a {BASHRC} /root/bashrc; sed -i '1i echo hello; printf \"caf\\351 \\033[31m\"' {BASHRC}")
    try:
        up = fleet.herd("up", "-v", SICK)
        verify = fleet.herd("verify", SICK)
    finally:
        fleet.sh(SICK, f"cp -a /root/bashrc {BASHRC}")
    assert (up.code, verify.code) == (0, 0), up.output + verify.output
    assert "hello" not in up.output + verify.output
