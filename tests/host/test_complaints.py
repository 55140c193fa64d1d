"""A disk that takes nothing: what each program really says of it, and what is made of that."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from llamaherd.deploy.commands import explain_failure
from tests.support.stores import needs_root

WRITES = [
    "echo x >{}/new",
    "echo x >{}/folder/new",
    "mkdir {}/new",
    "mkdir -p {}/folder/new/deep",
    "mktemp -d -p {}",
    "install -m 644 /bin/true {}/new",
    "install -d -m 700 {}/new/deep",
    "cp /bin/true {}/new",
    "touch {}/new",
    "ln -s a {}/new",
    "sed -i s/a/b/ {}/file",
    "tee {}/new </dev/null",
    "truncate -s 5 {}/new",
    "dd if=/dev/zero of={}/new count=1",
]
CHANGES = [
    "mv {0}/file {0}/new",
    "rm {}/file",
    "chmod 700 {}/file",
    "chown 1 {}/file",
    "rmdir {}/folder",
    "rm -rf {}/folder",
]


def said(folder: Path, options: str, command: str) -> list[str]:
    """What a command prints on a filesystem of its own, with a file and a folder in it, that takes no more."""
    made = f"mount -t tmpfs t {folder} && echo a >{folder}/file && mkdir {folder}/folder && mount -o {options} {folder}"
    script = f"{made} || exit 99\nexec 2>&1\nexport LC_ALL=C\n{command.format(folder)}\nexit 0"
    ended = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()


def works(folder: Path, options: str, way_out: str) -> bool:
    """Whether each command of a way out that asks something gets an answer there."""
    asks = [way for way in re.findall(r"`([^`]+)`", way_out) if way.split()[0] in ("df", "findmnt")]
    return bool(asks) and said(folder, options, f"({' && '.join(asks)}) >/dev/null 2>&1 && echo well") == ["well"]


@needs_root
@pytest.mark.parametrize("command", [*WRITES, *CHANGES])
def test_a_disk_that_is_mounted_read_only(tmp_path: Path, command: str) -> None:
    why = explain_failure(said(tmp_path, "remount,ro", command))
    assert why
    assert str(tmp_path) in why.message
    assert why.message.startswith("the host cannot write /")
    assert why.message.endswith(": read-only file system")
    assert why.help
    assert f"findmnt -T {tmp_path}" in why.help
    assert works(tmp_path, "remount,ro", why.help)


@needs_root
@pytest.mark.parametrize("command", WRITES)
def test_a_disk_without_room_for_another_file(tmp_path: Path, command: str) -> None:
    why = explain_failure(said(tmp_path, "remount,nr_inodes=3", command))
    assert why
    assert str(tmp_path) in why.message
    assert why.help
    assert f"df -i {tmp_path}" in why.help
    assert works(tmp_path, "remount,nr_inodes=3", why.help)


@needs_root
@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("head -c 9000 /dev/zero | base64 >{}/file", ""),
        ("cat /bin/sh >{}/file", ""),
        ("cp /bin/sh {}/file", "file"),
        ("head -c 9000 /dev/zero | tee {}/file >/dev/null", "file"),
    ],
)
def test_a_disk_without_room(tmp_path: Path, command: str, path: str) -> None:
    why = explain_failure(said(tmp_path, "remount,size=4k", command))
    assert why
    assert why.message == f"the host cannot write {tmp_path / path if path else 'a file'}: no space left on device"
    assert why.help
    assert "make room" in why.help


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("E: Write error - write (28: No space left on device)", "a file"),
        ("Failed to enable unit: Read-only file system", "a file"),
        ("mv: cannot move '/var/lib/a b' to '/etc/a b': Read-only file system", "/etc/a b"),
        ("useradd: cannot lock /etc/passwd; try again later.", "/etc/passwd"),
    ],
)
def test_other_programs(line: str, path: str) -> None:
    why = explain_failure(["something before", line, "something after"])
    assert why
    assert path in why.message
    assert why.help


@pytest.mark.parametrize(
    ("line", "unit", "way_out"),
    [
        (
            "Failed to enable unit: Unit /etc/systemd/system/docker.service is masked",
            "docker.service",
            "`systemctl unmask docker.service`, then",
        ),
        (
            "Failed to enable unit, unit /etc/systemd/system/docker.socket is masked.",
            "docker.socket",
            "`systemctl unmask docker.socket`, then",
        ),
        (
            "Failed to enable unit: Unit file /etc/systemd/system/nvidia-cdi-refresh.path is masked.",
            "nvidia-cdi-refresh.path",
            "`systemctl unmask nvidia-cdi-refresh.path`, then",
        ),
        (
            "Failed to enable unit: Unit file /run/systemd/system/docker.service is masked.",
            "docker.service",
            "`systemctl unmask --runtime docker.service`, then",
        ),
        (
            "Failed to start nvidia-persistenced.service: Unit nvidia-persistenced.service is masked.",
            "nvidia-persistenced.service",
            "is-enabled nvidia-persistenced.service` prints masked-runtime), then",
        ),
        (
            "Failed to start transient service unit: Unit llamaherd-fetch.service is masked.",
            "llamaherd-fetch.service",
            "`systemctl unmask llamaherd-fetch.service` (",
        ),
    ],
)
def test_a_unit_that_somebody_masked(line: str, unit: str, way_out: str) -> None:
    why = explain_failure(["something before", line, "cannot begin to fetch in /a; the reason is above"])
    assert why
    assert why.message.startswith(f"{unit} is masked")
    assert way_out in (why.help or "")


def test_a_name_of_ours_that_another_unit_has() -> None:
    unit = "llamaherd-fetch.service"
    why = explain_failure(
        [f"Failed to start transient service unit: Unit {unit} was already loaded or has a fragment file.", "and so on"]
    )
    assert why
    assert why.message.startswith(f"{unit} cannot be started")
    assert f"`systemctl unmask {unit}`" in (why.help or "")


@pytest.mark.parametrize(
    "lines",
    [
        ["the text that it reads is masked"],
        ["mv: cannot stat '/a': No such file or directory"],
        ["the model talks of a Read-only file system, and goes on"],
        ["cannot write /etc/a: Read-only file system", "  help: make / writable"],
        [],
    ],
)
def test_nothing_is_said_of_other_things_or_twice(lines: list[str]) -> None:
    assert explain_failure(lines) is None
