"""The driver is loaded, and boots are asked for and judged, on a played host."""

from __future__ import annotations

import pytest

from llamaherd.layout import (
    DRIVER_ARMED,
    REBOOT_MARK,
    REBOOT_NOTE,
)
from llamaherd.onhost.system import Ended, FailedError
from llamaherd.onhost.verbs import NoInput
from roles.nvidia_driver.onhost import (
    LoadInput,
    RebootedInput,
    RebootInput,
    load,
    reboot,
    require_booted,
    require_driver,
)
from tests.support.driver_host import DAEMON, KERNEL
from tests.support.driver_inputs import (
    NEW,
    OLD,
    REFUSED,
    WENT,
    installed,
    working,
)
from tests.support.played_host import File


def test_a_driver_is_loaded_without_a_reboot() -> None:
    host = working(ends={"systemctl start nvidia-persistenced": Ended(0)})
    host.load_version("")
    host.files[str(REBOOT_NOTE)] = File("x")
    load(LoadInput(OLD), host)
    assert (host.module, host.read(str(REBOOT_NOTE))) == (OLD, None)
    assert host.has_done("systemctl", "start", f"{DAEMON}.service")


def test_why_it_is_not_loaded() -> None:
    host = working(refused={OLD})
    host.load_version("")
    load(LoadInput(OLD), host)
    assert host.log == ["the module does not load as it is: modprobe: ERROR: could not insert 'nvidia'"]
    host = working(uvm=False)
    host.load_version(OLD)
    with pytest.raises(FailedError, match="is loaded, and nvidia_uvm does not load"):
        load(LoadInput(OLD), host)
    host = working(ends={"systemctl start": Ended(1)})
    with pytest.raises(FailedError, match="nvidia-persistenced, which keeps it so, does not start") as caught:
        load(LoadInput(OLD), host)
    assert caught.value.log == ("the engine reports: out of memory",)


def test_a_reboot_is_marked_before_it_is_scheduled() -> None:
    host = working()
    reboot(RebootInput(NEW, KERNEL), host)
    assert host.read(str(REBOOT_NOTE)) == f"{NEW} {KERNEL}\n"
    marked, scheduled = host.index("write", str(REBOOT_MARK)), host.index("systemd-run")
    assert marked < host.index("write", str(REBOOT_NOTE)) < scheduled
    with pytest.raises(FailedError, match="not back from its reboot"):
        require_booted(NoInput(), host)
    host.boot()
    require_booted(NoInput(), host)


@pytest.mark.parametrize("full", ["driver-reboot", "llamaherd/reboot"])
def test_a_reboot_that_cannot_be_scheduled(full: str) -> None:
    host = working(full=full)
    with pytest.raises(FailedError, match="cannot write"):
        reboot(RebootInput(NEW, KERNEL), host)
    host = working(ends={"systemd-run": Ended(1, "", "no bus\n")})
    with pytest.raises(FailedError, match="does not schedule"):
        reboot(RebootInput(NEW, KERNEL), host)
    assert host.entry(str(REBOOT_MARK)) is host.entry(str(REBOOT_NOTE)) is None


@pytest.mark.parametrize(("state", "back"), [("ActiveState=activating", 0), ("Job=42", 0), ("ActiveState=inactive", 1)])
def test_a_host_that_judges_is_not_back(state: str, back: int) -> None:
    host = installed(ends={"systemctl show": Ended(0, f"{state}\n")})
    host.files.pop(str(DRIVER_ARMED))
    if back:
        require_booted(NoInput(), host)
        return
    with pytest.raises(FailedError):
        require_booted(NoInput(), host)


def test_a_host_that_has_the_driver_it_was_rebooted_for() -> None:
    host = working()
    host.files |= {str(REBOOT_NOTE): File("x"), REFUSED: File(f"{NEW}\topen nvidia\tat\t{OLD}\twhy\n")}
    require_driver(RebootedInput(OLD), host)
    assert host.read(str(REBOOT_NOTE)) is None


@pytest.mark.parametrize(
    ("hung", "said"),
    [
        (
            set(),
            f"{WENT} serves again: this host went back to it by itself",
        ),
        ({OLD}, f"{WENT}, which was here before, does not respond either"),
    ],
)
def test_a_host_that_went_back(hung: set[str], said: str) -> None:
    host = working(hung=hung)
    host.files[REFUSED] = File(f"{NEW}\topen nvidia\tat\t{OLD}\tit hangs\n")
    with pytest.raises(FailedError) as caught:
        require_driver(RebootedInput(NEW), host)
    assert caught.value.message == said
    assert "--retry" in caught.value.fix


def test_a_reboot_that_did_not_help() -> None:
    host = working(refused={NEW, OLD}, ends={"dmesg": Ended(0, "usb\nNVRM: it failed\nLockdown: refused\n")})
    host.load_version("")
    host.files["/sys/module/nouveau/x"] = File("")
    with pytest.raises(FailedError) as caught:
        require_driver(RebootedInput(NEW), host)
    assert caught.value.message == f"this host was rebooted, and its kernel has no driver, where {NEW} is installed"
    nouveau, *rest = caught.value.log
    assert nouveau.startswith("nouveau is loaded")
    assert rest == ["modprobe: ERROR: could not insert 'nvidia'", "NVRM: it failed", "Lockdown: refused"]
