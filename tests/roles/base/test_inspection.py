"""What base inspects, on a played host and on this machine."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
from dataclasses import replace

import pytest

from llamaherd.host.program import fetcher_files, fetcher_hash
from llamaherd.onhost.system import Ended, Host
from roles.base.onhost import Found, InspectInput, RepositoryQuery, UserFound, inspect
from tests.support.recording import InspectedHost

PASSWD = """\
root:x:0:0:root:/root:/bin/bash
llama-chat:x:990:990::/:/usr/sbin/nologin
llama-two:x:991:990::/:/bin/sh
other:x:991:100::/:/bin/sh
someone:x:1000:1000::/home/someone:/bin/bash
broken line
"""
GROUPS = "llama-chat:x:990:\nvideo:x:44:llama-chat,someone\nsudo:x:27:someone\nodd\n"
SHADOW = "llama-chat:!:1::::::\nllama-two:$6$hash:1::::::\nother:$6$hash:1::::::\n"
REPOSITORY = RepositoryQuery("nvidia", "https://repo.example/cuda", "/etc/apt/sources.list.d/llamaherd.sources")


QUESTION = InspectInput(
    packages=("curl", "cmake"),
    users=("llama-chat", "llama-two", "someone", "absent"),
    repositories=(REPOSITORY,),
    folders=("/opt/llamaherd", "/etc/llamaherd"),
    fetcher="/opt/llamaherd/libexec/fetcher",
    has_gpus=False,
)


@pytest.fixture
def played() -> InspectedHost:
    host = InspectedHost(
        {},
        ends={
            "getent passwd": Ended(0, PASSWD),
            "getent group": Ended(0, GROUPS),
            "dpkg-query": Ended(1, "curl\tinstalled\ncmake\tconfig-files\n"),
            "ip -o": Ended(0, "1: lo    inet 127.0.0.1/8 scope host lo\n2: eth0  inet 192.0.2.7/24 brd x\nodd\n"),
            "systemd-detect-virt": Ended(1, "none\n"),
            "uname": Ended(0, "riscv64\n"),
        },
    )
    host.write("/etc/shadow", SHADOW)
    host.write("/etc/os-release", '# a comment\nNAME=\'Debian\'\nID=debian\nVERSION_ID="13"\nBROKEN="x\n')
    host.write("/proc/net/tcp", "  sl  local\n 0: 00000000:1F90 0:0 0A\n 1: 0100007F:1F91 0:0 01\n")
    host.write("/proc/net/tcp6", "  sl  local\n 0: 0000:1F92 0:0 0A\n")
    host.folders |= {"/var/lib", "/opt/llamaherd", "/run/systemd/system"}
    return host


def test_a_host(played: InspectedHost) -> None:
    found = inspect(QUESTION, played)
    assert (found.os, found.arch, found.systemd, found.wsl) == ("debian-13", "riscv64", True, "")
    assert found.addresses == ("127.0.0.1/8", "192.0.2.7/24")
    assert found.listening == (8080, 8082)
    assert found.packages == ("curl",)
    assert found.machine.virtual == "none"
    assert found.disk
    assert found.disk.folder == "/var/lib"
    assert found.folders.keys() == {"/opt/llamaherd"}
    assert found.fetcher == ""


@pytest.mark.parametrize(
    ("release", "os_"), [("ID=arch\nBUILD_ID=rolling\n", "arch"), ("", ""), ("VERSION_ID=1\n", "")]
)
def test_a_system_without_a_version(release: str, os_: str, played: InspectedHost) -> None:
    played.write("/etc/os-release", release)
    assert inspect(QUESTION, played).os == os_


def test_accounts(played: InspectedHost) -> None:
    found = inspect(QUESTION, played)
    assert found.users == {
        "llama-chat": UserFound("/usr/sbin/nologin", ("llama-chat", "video")),
        "llama-two": UserFound("/bin/sh", ("llama-chat",)),
        "someone": UserFound(),
    }
    assert found.twins == {"llama-two": "other"}
    assert found.passwords == ("llama-two",)
    assert inspect(replace(QUESTION, users=()), played).users == {}


def test_a_repository_that_another_file_names(played: InspectedHost) -> None:
    played.write(REPOSITORY.file, f"URIs: {REPOSITORY.url}")
    assert inspect(QUESTION, played).repositories == {}
    played.write("/etc/apt/sources.list.d/theirs.list", f"deb {REPOSITORY.url} /")
    played.write("/etc/apt/sources.list.d/theirs.save", f"deb {REPOSITORY.url} /")
    assert inspect(QUESTION, played).repositories == {"nvidia": "/etc/apt/sources.list.d/theirs.list"}
    assert inspect(replace(QUESTION, repositories=()), played).repositories == {}


@pytest.mark.parametrize(
    ("release", "file", "wsl"),
    [
        ("6.6.87.2-microsoft-standard-WSL2", "", True),
        ("4.4.0-19041-Microsoft", "", True),
        ("6.6.87.2-microsoft-standard-WSL2", "/.dockerenv", False),
        ("6.6.87.2-microsoft-standard-WSL2", "/run/.containerenv", False),
        ("6.12.0-amd64", "", False),
    ],
)
def test_wsl(release: str, file: str, wsl: bool, played: InspectedHost) -> None:
    played.write("/proc/sys/kernel/osrelease", f"{release}\n")
    if file:
        played.write(file, "")
    assert inspect(QUESTION, played).wsl == (release if wsl else "")


def test_the_fetcher_is_known_by_its_fingerprint(played: InspectedHost) -> None:
    for each in fetcher_files():
        played.write(each.path, each.text, mode=int(each.mode, 8), owner=each.owner)
    assert inspect(QUESTION, played).fetcher == fetcher_hash()
    played.write(fetcher_files()[0].path, "changed", mode=0o755)
    assert inspect(QUESTION, played).fetcher not in ("", fetcher_hash())


@pytest.mark.usefixtures("starts_processes")
def test_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: Found = inspect(
            replace(QUESTION, packages=("dpkg", "no-such-package"), users=("daemon",)), Host(print, print)
        )
    assert server
    assert found.packages == ("dpkg",)
    account = pwd.getpwnam("daemon")
    groups = subprocess.run(["id", "-nG", "daemon"], capture_output=True, text=True, check=True).stdout.split()
    assert found.users == {"daemon": UserFound(account.pw_shell, tuple(groups))}
    assert found.arch == os.uname().machine
    assert found.machine.kernel == os.uname().release
    assert found.machine.memory == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert "127.0.0.1/8" in found.addresses
