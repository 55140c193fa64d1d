"""`herd ssh`: a real ssh client and sshd, and this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.host.ssh import terminal_argv
from llamaherd.inventory.schema import LOCAL, Connect
from tests.support.rigs import cpu_rig
from tests.support.ssh_hosts import HERD
from tests.support.sshd import running_sshd
from tests.support.terminal import Terminal

DUO = Connect(host="duo.lan", user="tom", port=2222, key=Path("/keys/duo"), known_hosts=Path("/keys/known"))


def declare(folder: Path, connect: Any) -> Path:
    """Declare a rig without servers, reached by `connect`."""
    rig = cpu_rig() | {"connect": connect, "engines": {}, "models": {}, "instances": {}}
    (folder / "box.yaml").write_text(yaml.safe_dump(rig))
    return folder / "box.yaml"


def herd(inventory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HERD, "ssh", "-i", str(inventory), "box", *words],
        env=os.environ | {"SHELL": "/bin/sh"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_client_has_what_the_rig_declares() -> None:
    words = terminal_argv(DUO, ("nvtop",), "/bin/sh", terminal=True)
    assert words[:6] == ["ssh", "-t", "-p", "2222", "-l", "tom"]
    assert {'IdentityFile="/keys/duo"', "IdentitiesOnly=yes", 'UserKnownHostsFile="/keys/known"'} <= {*words}
    assert words[-3:] == ["--", "duo.lan", "nvtop"]
    assert not any("BatchMode" in word for word in words), "it may prompt for a passphrase"
    assert "-t" not in terminal_argv(DUO, (), "/bin/sh", terminal=True), "a shell has a terminal anyway"
    assert "-t" not in terminal_argv(DUO, ("df",), "/bin/sh", terminal=False)


def test_this_machine_needs_no_client() -> None:
    here = Connect(host=LOCAL)
    assert terminal_argv(here, (), "/bin/zsh", terminal=True) == ["/bin/zsh", "-l"]
    assert terminal_argv(here, ("df", "-h"), "/bin/zsh", terminal=True) == ["/bin/zsh", "-c", "df -h"]


def test_two_hyphens_may_stand_before_the_command(tmp_path: Path) -> None:
    done = herd(declare(tmp_path, "local"), "--", "printf", "%s", "-v")
    assert (done.returncode, done.stdout, done.stderr) == (0, "-v", "")


def test_a_command_runs_there_with_its_options_and_exit_code(tmp_path: Path) -> None:
    with running_sshd() as sshd:
        done = herd(
            declare(tmp_path, sshd.declared),
            "printf",
            "%s-",
            "-h",
            "'a b';",
            "test",
            "-n",
            '"$SSH_CONNECTION"',
            "-a",
            "1",
            "=",
            "2",
        )
    assert (done.returncode, done.stdout, done.stderr) == (1, "-h-a b-", "")


def test_on_a_terminal_the_command_has_one(tmp_path: Path) -> None:
    with running_sshd() as sshd:
        inventory = declare(tmp_path, sshd.declared)
        terminal = Terminal(
            tmp_path, os.environ, HERD, "ssh", "-i", str(inventory), "box", "tty; read word; exit $word"
        )
        terminal.wait_for("/dev/pts/")
        assert terminal.end("7\n") == 7


def test_a_command_on_this_machine(tmp_path: Path) -> None:
    done = herd(declare(tmp_path, "local"), "echo", "$((1+2))", "&&", "exit", "5")
    assert (done.returncode, done.stdout, done.stderr) == (5, "3\n", "")


@pytest.mark.usefixtures("starts_processes")
def test_a_key_that_is_missing_is_named(tmp_path: Path) -> None:
    done = herd(declare(tmp_path, {"host": "duo.lan", "key": str(tmp_path / "id")}))
    assert done.returncode == 2
    assert f"there is no SSH key at {tmp_path / 'id'}" in done.stderr
