"""An inspection: files, what roles inspect side by side, scripts of a fleet's roles, and what does not respond."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from llamaherd.onhost.clients import query_docker, query_systemctl
from llamaherd.onhost.document import DocumentError
from llamaherd.onhost.files import disk_of
from llamaherd.onhost.services import ServiceState, find_services, runs_unchanged, show_units
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError, Host, System, UnknownStateError
from llamaherd.onhost.verification import Inspected, InspectInput, inspect
from roles.virtual_address.onhost import Found
from tests.support.recording import InspectedHost

NO_BUS = Ended(1, "", "Failed to connect to bus: Connection refused")
NO_DAEMON = Ended(1, "", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon up?")
SHOWN = "Id=a.service\nActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=yes\nMainPID=7\n\nId=b.service\n"


def host(**ends: Ended) -> InspectedHost:
    return InspectedHost({}, ends={name.replace("_", " "): ended for name, ended in ends.items()})


def with_systemd(**ends: Ended) -> InspectedHost:
    found = host(**ends)
    found.folders.add("/run/systemd/system")
    return found


@pytest.mark.usefixtures("starts_processes")
def test_files_and_scripts_of_this_machine(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("text")
    file.chmod(0o640)
    link.symlink_to(file)
    paths = (str(file), str(link), str(tmp_path), str(tmp_path / "absent"))
    scripts = {"motd": "echo one; echo two", "odd $(id)": "cat"}
    found = inspect(InspectInput(files=paths, scripts=scripts), Host(print, print))
    assert found.lines == {"motd": ("one", "two"), "odd $(id)": ()}
    assert found.files.keys() == {str(file), str(link)}
    assert found.files[str(file)].mode == 0o640
    assert found.files[str(file)].written == pytest.approx(file.stat().st_mtime, abs=1e-6)
    assert {each.sha256 for each in found.files.values()} == {hashlib.sha256(b"text").hexdigest()}


@pytest.mark.usefixtures("starts_processes")
def test_a_script_that_fails_fails_the_inspection() -> None:
    with pytest.raises(FailedError, match=r"role `motd` inspects the host ended with 3$") as caught:
        inspect(InspectInput(scripts={"motd": "echo why >&2; exit 3"}), Host(print, print))
    assert caught.value.log == ("why",)
    assert "`inspect` of that role" in caught.value.fix


@pytest.mark.usefixtures("starts_processes")
def test_a_script_prints_one_mebibyte_at_most() -> None:
    """Only the last one is kept: lines without their beginning are no inspection."""
    line = "x" * 1023
    for lines, fits in ((1024, True), (1025, False)):
        given = InspectInput(scripts={"motd": f"yes {line} | head -n {lines}"})
        if fits:
            assert inspect(given, Host(print, print)).lines == {"motd": (line,) * lines}
        else:
            with pytest.raises(FailedError, match=r"with which role `motd` inspects the host prints more than 1 MiB$"):
                inspect(given, Host(print, print))


def test_a_script_that_does_not_end_fails_the_inspection() -> None:
    with pytest.raises(FailedError, match=r"role `motd` inspects the host has not ended within 30 s$"):
        inspect(InspectInput(scripts={"motd": "sleep 60"}), host(sh=Ended(TIMED_OUT)))


def test_each_role_inspects_its_part() -> None:
    found = inspect(InspectInput(parts={"virtual_address.inspect": {}}), host())
    assert found == Inspected(parts={"virtual_address.inspect": Found()})


@pytest.mark.parametrize("parts", [{"no.such": {}}, {"virtual_address.inspect": {"odd": 1}}])
def test_a_part_that_this_version_does_not_have_is_refused(parts: dict[str, object]) -> None:
    with pytest.raises(DocumentError):
        inspect(InspectInput(parts=parts), host())


def test_what_does_not_respond_is_unknown_and_not_absent() -> None:
    silent = with_systemd(systemctl=Ended(TIMED_OUT))
    silent.write("/etc/systemd/system/llamaherd-address.service", "text")
    found = inspect(InspectInput(parts={"virtual_address.inspect": {}}), silent)
    assert (found.parts, found.unknown) == ({}, ("systemd",))


@pytest.mark.parametrize(
    ("ended", "unknown"),
    [
        (Ended(0, "ok"), False),
        (Ended(3, "inactive"), False),
        (Ended(1, "", "Unit x.service not loaded."), False),
        (NO_BUS, True),
        (Ended(1, "", "Failed to get properties: Connection timed out"), True),
        (Ended(TIMED_OUT), True),
    ],
)
def test_systemctl_of_an_inspection(ended: Ended, unknown: bool) -> None:
    if unknown:
        with pytest.raises(UnknownStateError, match="systemd"):
            query_systemctl(with_systemd(systemctl=ended), "show", "x")
    else:
        assert query_systemctl(with_systemd(systemctl=ended), "show", "x") == ended
    # Another init: there is no systemd that could respond.
    assert query_systemctl(host(systemctl=ended), "show", "x") == ended


def docker_of(active: str, ended: Ended) -> System:
    return with_systemd(docker=ended, systemctl=Ended(0, f"{active}\n"))


def test_docker_of_an_inspection() -> None:
    assert query_docker(docker_of("active", Ended(0, "a")), "ps").out == "a"
    refused = Ended(1, "", "no such container")
    assert query_docker(docker_of("active", refused), "inspect", "a") == refused
    for state in ("inactive", "failed", "activating"):
        assert query_docker(docker_of(state, NO_DAEMON), "ps") == NO_DAEMON
    for state in ("active", "reloading"):
        with pytest.raises(UnknownStateError, match="Docker"):
            query_docker(docker_of(state, NO_DAEMON), "ps")
    with pytest.raises(UnknownStateError, match="Docker"):
        query_docker(docker_of("active", Ended(TIMED_OUT)), "ps")


def test_services_are_those_with_a_file_of_ours() -> None:
    shown = with_systemd(systemctl_show=Ended(0, SHOWN))
    assert find_services(["a.service"], shown) == {}
    shown.write("/etc/systemd/system/a.service", "text")
    shown.write("/etc/systemd/system/b.service", "text")
    shown.write("/proc/7/environ", "PATH=/bin\0LLAMAHERD_SPEC=ab12\0")
    assert find_services(["a.service", "b.service", "c.service"], shown) == {
        "a.service": ServiceState("active", "enabled", needs_reload=True, spec="ab12"),
        "b.service": ServiceState("", "", needs_reload=False, spec=""),
    }
    assert sum(each[0] == "systemctl" for each in shown.done) == 1
    assert show_units([], ["Id"], shown) == {}


@pytest.mark.parametrize(
    ("state", "verified", "unchanged"),
    [
        ("UnitFileState=enabled", "", True),
        ("ActiveState=active", "??5?????? c /usr/bin/x", True),
        ("ActiveState=active", "??5?????? c /etc/haproxy/haproxy.cfg", False),
        ("UnitFileState=disabled\nActiveState=inactive", "", False),
    ],
)
def test_a_distributions_own_unit(state: str, verified: str, unchanged: bool) -> None:
    played = with_systemd(systemctl=Ended(0, f"Id=x.service\n{state}\n"), dpkg=Ended(0, f"{verified}\n"))
    assert runs_unchanged("x.service", "x", "/etc/haproxy/haproxy.cfg", played) is unchanged


MOUNTS = r"""
1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
2 1 8:2 / /var ro,relatime shared:2 - xfs /dev/sdb1 rw
3 1 0:40 / /mnt/two\040words rw - nfs4 nas:/models rw
4 1 8:3 / /srv rw - ext4 /dev/old rw
5 1 8:4 / /srv rw - btrfs /dev/new rw
odd line
"""


@pytest.mark.parametrize(
    ("path", "device", "kind", "writable", "mount"),
    [
        ("/home", "/dev/sda1", "ext4", True, "/"),
        ("/var/lib/models", "/dev/sdb1", "xfs", False, "/var"),
        ("/mnt/two words/a", "nas:/models", "nfs4", True, "/mnt/two words"),
        ("/srv/a", "/dev/new", "btrfs", True, "/srv"),
        ("/srvx", "/dev/sda1", "ext4", True, "/"),
    ],
)
def test_the_disk_of_a_folder(path: str, device: str, kind: str, writable: bool, mount: str) -> None:
    played = host()
    played.write("/proc/self/mountinfo", MOUNTS)
    played.folders |= {path, "/"}
    found = disk_of(f"{path}/not/there", played)
    assert (found.folder, found.device, found.kind, found.writable) == (path, device, kind, writable)
    assert found.mount == mount
    assert found.free > 0


@pytest.mark.usefixtures("starts_processes")
def test_the_disk_of_this_machine(tmp_path: Path) -> None:
    found = disk_of(str(tmp_path / "a" / "b"), Host(print, print))
    assert found.folder == str(tmp_path)
    assert found.kind
    assert found.writable
