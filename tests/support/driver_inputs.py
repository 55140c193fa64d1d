"""Inputs of the driver's verbs, and played hosts that have been through some of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from llamaherd.layout import (
    DRIVER_HELD,
    DRIVER_KEPT,
    DRIVER_REFUSED,
    DRIVER_WANTED,
)
from llamaherd.onhost.document import Secret, decode, dump, parse_document
from llamaherd.onhost.files import WrittenFile
from llamaherd.role.changes import written_files
from roles.nvidia_driver.changes import NAMES, undo_file
from roles.nvidia_driver.onhost.packages import DriverInput, InstallInput, install
from roles.nvidia_driver.onhost.undo import DriverRollback, UndoInput
from tests.support.driver_host import DAEMON, DKMS, DRIVER, LIBRARY, SMI, DriverHost, driver_host
from tests.support.played_host import File

OLD, NEW = "580.95.05", "590.48.01"
BEFORE, TO = f"{OLD}-1", f"{NEW}-1"
INSTALLED, WENT = f"driver {NEW} is installed, and", f"driver {NEW} did not come up (it hangs), and {OLD}"
REFUSED, KEPT = str(DRIVER_REFUSED), str(DRIVER_KEPT)
UNDO = UndoInput(kind="open nvidia", may_reboot=True)


def file(path: object, text: str) -> WrittenFile:
    """Return a file."""
    return WrittenFile(str(path), Secret(text), 0o644, "root")


def given(version: str = NEW, undo: UndoInput | None = UNDO, **more: Any) -> InstallInput:
    """Return an input that moves a host to another version."""
    driver = DriverInput(version[:3], None, LIBRARY, (), (), prebuilt=False, source="NVIDIA's repository")
    values: dict[str, Any] = {
        "driver": driver,
        "packages": (LIBRARY, DKMS, SMI),
        "headers": (),
        "leftovers": (DAEMON,),
        "names": NAMES,
        "wanted": file(DRIVER_WANTED, f"wants {version}\n"),
        "files": (file(DRIVER_HELD, "held\n"),),
        "kept": file(DRIVER_KEPT, "Pin: version @VERSION@*\n"),
        "moves": True,
        "way_back": DriverRollback(undo, written_files([undo_file()])[0]) if undo else None,
        "in_container": False,
    }
    of_driver = {name: more.pop(name) for name in ("beside", "pinning", "prebuilt") if name in more}
    exact = more.pop("exact", None)
    return InstallInput(**{**values, "driver": replace(driver, version=exact, **of_driver), **more})


def working(*versions: str, **more: Any) -> DriverHost:
    """Return a host whose driver is the first version, by files of ours."""
    host = driver_host(*(versions or (OLD, NEW)), **more)
    host.files |= {KEPT: File(f"Pin: version {OLD}*\n"), str(DRIVER_WANTED): File("wants 580\n")}
    return host


def serves(host: DriverHost, version: str) -> bool:
    """Return whether a version is installed, kept and loaded."""
    full = dict.fromkeys(DRIVER, f"{version}-1")
    return (host.installed, host.module, host.read(KEPT)) == (full, version, f"Pin: version {version}*\n")


def bytes_of(value: object, kind: type[Any]) -> Any:
    """Return a value as a host reads it."""
    return decode(kind, parse_document(dump(value).encode()))


def installed(undo: UndoInput = UNDO, **more: Any) -> DriverHost:
    """Return a host that has a new driver, and has not booted it."""
    host = working(**more)
    install(given(undo=undo), host)
    host.log.clear()
    return host
