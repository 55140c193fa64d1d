"""Load NVIDIA's driver, by a reboot where nothing less does, and report which driver a boot has brought."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llamaherd.layout import DRIVER_REFUSED, REBOOT_MARK, REBOOT_NOTE
from llamaherd.onhost.clients import systemctl
from llamaherd.onhost.files import cannot_write
from llamaherd.onhost.services import journal, locked
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import NoInput, Verb
from roles.nvidia_driver.onhost import PERSISTENCE, is_judged, load_modules, loaded_version, responds, sync

_MARK, _NOTE = str(REBOOT_MARK), str(REBOOT_NOTE)
_LINES = 5
_RETRY = "declare another branch or version, or `herd up --retry` to try the same again"


@dataclass(frozen=True)
class LoadInput:
    """The installed driver."""

    version: str


@dataclass(frozen=True)
class RebootInput:
    """A driver, and the kernel that the next boot starts."""

    driver: str
    kernel: str


@dataclass(frozen=True)
class RebootedInput:
    """The driver that a host was rebooted for."""

    driver: str


def load(given: LoadInput, system: System) -> None:
    """Load the driver without a reboot. What a kernel refuses here, the next step judges."""
    with locked(system, "loading the driver"):
        loaded = load_modules(system)
        output = (loaded.out + loaded.err).splitlines()
        if loaded_version(system) != given.version:
            last = next((line for line in reversed(output) if line.strip()), "")
            system.report(f"the module does not load as it is: {last}")
            return
        if not system.entry("/sys/module/nvidia_uvm"):
            raise FailedError(f"driver {given.version} is loaded, and nvidia_uvm does not load", log=output)
        system.remove(_NOTE)
        systemctl(system, "reset-failed", PERSISTENCE)
        if not systemctl(system, "start", PERSISTENCE).ok:
            message = f"driver {given.version} is loaded, and nvidia-persistenced, which keeps it so, does not start"
            raise FailedError(message, log=journal(system, [PERSISTENCE], _LINES))


def reboot(given: RebootInput, system: System) -> None:
    """Restart the host. The mark is gone afterwards, as all of /run; the note stays until the driver is loaded."""
    try:
        system.write(_MARK, "", mode=0o644)
        system.write(_NOTE, f"{given.driver} {given.kernel}\n", mode=0o644)
    except OSError as error:
        raise cannot_write(error) from error
    sync(system)
    # A moment later: this connection ends in order.
    timer = ["systemd-run", "-q", "--on-active=2s", "--timer-property=AccuracySec=100ms"]
    ended = system.run([*timer, "systemctl", "reboot"])
    if not ended.ok:
        system.remove(_MARK)
        system.remove(_NOTE)
        raise FailedError("systemd does not schedule the reboot", log=ended.err.splitlines())


def require_booted(_: NoInput, system: System) -> None:
    """Raise FailedError until the host is back for good: it may boot once more, to go back to the driver before."""
    if system.entry(_MARK) or is_judged(system):
        raise FailedError("this host is not back from its reboot yet")


def require_driver(given: RebootedInput, system: System) -> None:
    """Raise FailedError unless the kernel has the driver that the host was rebooted for."""
    modules = load_modules(system)
    loaded = loaded_version(system)
    refused = (system.read(str(DRIVER_REFUSED)) or "").partition("\n")[0].split("\t")
    if len(refused) > 4 and refused[0] == given.driver:
        before, why = refused[3], refused[4]
        message = f"driver {given.driver} did not come up ({why}), and {before}"
        if loaded == before and responds(system):
            raise FailedError(f"{message} serves again: this host went back to it by itself", _RETRY)
        raise FailedError(f"{message}, which was here before, does not respond either", _RETRY)
    if loaded == given.driver:
        system.remove(_NOTE)
        return
    log = []
    if system.entry("/sys/module/nouveau"):
        log = ["nouveau is loaded before it is kept out (`grep -r nouveau /etc/modprobe.d /lib/modprobe.d` shows why)"]
    log += [line for line in (modules.out + modules.err).splitlines() if line.strip()][-3:]
    kernel_log = system.run(["dmesg"]).out.splitlines()
    log += [line for line in kernel_log if re.search("nvrm|nvidia|lockdown", line, re.IGNORECASE)][-_LINES:]
    has = loaded or "no driver"
    raise FailedError(f"this host was rebooted, and its kernel has {has}, where {given.driver} is installed", log=log)


VERBS = {
    "load": Verb(LoadInput, load),
    "reboot": Verb(RebootInput, reboot),
    "require_booted": Verb(NoInput, require_booted),
    "require_driver": Verb(RebootedInput, require_driver),
}
