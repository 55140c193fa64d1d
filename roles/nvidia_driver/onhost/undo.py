"""Keep the driver that works, judge the new one at its first boot, and restore the kept one if it fails."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from llamaherd.layout import (
    APT_ARCHIVES,
    DRIVER_REFUSED,
    DRIVER_UNDO,
    DRIVER_UNDO_UNIT,
    REBOOT_MARK,
    REBOOT_NOTE,
)
from llamaherd.onhost.apt import LOCK_SECONDS, LOG, start_log
from llamaherd.onhost.clients import systemctl
from llamaherd.onhost.document import VERSION, dump
from llamaherd.onhost.files import WrittenFile, write_files
from llamaherd.onhost.services import locked, require_success
from llamaherd.onhost.system import TIMED_OUT, FailedError, System
from llamaherd.onhost.verbs import Verb
from roles.nvidia_driver.onhost import (
    ARMED,
    BEFORE,
    PERSISTENCE,
    WRITTEN,
    Action,
    Names,
    compile_modules,
    disarm,
    first_line,
    gpus_in,
    list_gpus,
    load_modules,
    loaded_version,
    module_version,
    new_parts,
    next_kernel,
    purge_pinning,
    replaced_parts,
    responds,
    run_admin,
    run_logged,
    sync,
)

MOST_KEPT = 10**9
"""Bytes of packages that are kept: a driver for computing has 0.4 GB of them, with its desktop 0.7 GB."""
SPARE_BYTES = 2 * 10**9
"""Bytes that must be free besides: what the new driver takes."""
_NEW = f"{BEFORE}.new"
_FETCH_SECONDS = 1800
_CHECK_SECONDS = 120

DOCUMENT = f"{BEFORE}/undo.json"
"""What the unit judges by."""

RESPONSE_SECONDS = 60
"""How long a driver may take to respond after a boot, beyond what one call of nvidia-smi takes."""

_TRIED = f"{BEFORE}/tries"
"""A line for each boot that began to go back: the next one resumes that, whatever responds by then."""

_AGAIN_SECONDS = 10
"""The same for the driver before, where the host is not booted for it."""

_MODPROBE_SECONDS = 20
_PAUSE = 2

_TRIES = 3
"""Where the power goes while packages are restored, the next boot resumes; not for ever."""

_REBOOT_SECONDS = 300
_WIDTH = 200


@dataclass(frozen=True)
class DriverRollback:
    """How a host goes back from a driver that does not respond after the next boot."""

    undo: UndoInput
    unit: WrittenFile


def keep_driver(system: System, way: DriverRollback, actions: Sequence[Action], names: Names, to: str) -> None:
    """Keep the driver that works, and let the next boot judge the version `to`."""
    works = loaded_version(system) if responds(system) else ""
    new = new_parts(actions, names)
    if system.entry(BEFORE) and system.entry(ARMED):
        # What an earlier run has kept in this boot is what worked.
        _add_to_kept(system, new, to)
        arm(system, way.undo, way.unit)
        kept = f"driver {(system.read(f'{BEFORE}/from') or '').strip()} is kept"
        system.report(f"{kept}: the host restores it if {to} does not respond after the next boot")
    elif not works:
        disarm(system)
        system.report(f"no driver responds now, so the host cannot roll back if {to} does not come up")
    else:
        _keep(system, way, works, new, replaced_parts(actions, names), to)
    system.remove(str(DRIVER_REFUSED))


def _add_to_kept(system: System, new: Sequence[str], to: str) -> None:
    """Add what another version brings besides to what an earlier run has kept."""
    system.write(f"{BEFORE}/to", f"{to}\n", mode=0o644)
    have = (system.read(f"{BEFORE}/new") or "").split()
    debs = {each.partition("_")[0] for each in system.names(f"{BEFORE}/debs")}
    more = [each for each in new if each not in have and each.partition(":")[0] not in debs]
    system.write(f"{BEFORE}/new", "".join(f"{each}\n" for each in [*have, *more]), mode=0o644)


def _keep(system: System, way: DriverRollback, works: str, new: Sequence[str], old: Sequence[str], to: str) -> None:
    """Keep the driver that works, or report why it cannot be kept."""
    try:
        size = _keep_parts(system, works, new, old, to)
    except OSError:
        why = f"{BEFORE} cannot be written"
    except FailedError as error:
        why = error.message
    else:
        system.write(ARMED, "", mode=0o644)
        arm(system, way.undo, way.unit)
        kept = f"driver {works} is kept ({size >> 20} MiB)"
        system.report(f"{kept}: the host restores it if {to} does not respond after the next boot")
        return
    disarm(system)
    cannot = f"driver {works} cannot be kept, so that nothing brings it back by itself where {to} does not come up"
    system.report(f"{cannot}: {why}")


def _keep_parts(system: System, works: str, new: Sequence[str], old: Sequence[str], to: str) -> int:
    """Keep packages, files, and what the judgement needs, all at once. Return the bytes of packages.

    Raise FailedError with the reason where that is not possible.
    """
    for path in (BEFORE, _NEW):
        system.remove(path)
    system.folder(_NEW, mode=0o700)
    for name in ("debs", "files"):
        system.folder(f"{_NEW}/{name}", mode=0o700)
    size = keep_packages(system, old)
    for path in WRITTEN:
        if system.entry(path):
            system.copy(path, f"{_NEW}/files/{path.rpartition('/')[2]}")
    listed = list_gpus(system)
    if not listed.ok or not gpus_in(listed):
        raise FailedError("nvidia-smi shows no GPU any more")
    texts = {"new": "".join(f"{each}\n" for each in new), "from": f"{works}\n", "to": f"{to}\n"}
    for name, text in {**texts, "cards": f"{gpus_in(listed)}\n"}.items():
        system.write(f"{_NEW}/{name}", text, mode=0o644)
    sync(system)
    system.rename(_NEW, BEFORE)
    sync(system)
    return size


def keep_packages(system: System, names: Sequence[str]) -> int:
    """Copy packages that apt has stored, and fetch the others. Return their bytes.

    Raise FailedError with the reason where that is not possible.
    """
    size = 0
    stored, missing = [], []
    for name in names:
        found = system.run(["dpkg-query", "-W", "-f", "${Package}_${Version}_${Architecture}.deb\n${Version}", name])
        if not found.ok:
            raise FailedError(f"dpkg does not list {name}")
        about, version = found.out.splitlines()
        file = f"{APT_ARCHIVES}/{about.replace(':', '%3a')}"
        entry = system.entry(file)
        if entry and system.run(["dpkg-deb", "-c", file], seconds=_CHECK_SECONDS).ok:
            size += entry.size
            stored.append(file)
        else:
            missing.append(f"{name}={version}")
    size += _size_of_missing(system, missing)
    if size > MOST_KEPT or (system.free(_NEW) or 0) - size < SPARE_BYTES:
        raise FailedError(f"its packages take {size >> 20} MiB")
    for file in stored:
        system.copy(file, f"{_NEW}/debs/{file.rpartition('/')[2]}")
    if missing:
        fetch = ["env", f"--chdir={_NEW}/debs", "apt-get", "-q", "download", *missing]
        fetched = run_admin(system, fetch, _FETCH_SECONDS)
        if not fetched.ok:
            raise FailedError(_apt_error(fetched.out + fetched.err) or "they cannot be fetched")
    return size


def _size_of_missing(system: System, missing: Sequence[str]) -> int:
    """Return the bytes of packages that must be fetched. Raise FailedError where no repository has one."""
    if not missing:
        return 0
    listed = run_admin(system, ["apt-get", "-q", "download", "--print-uris", *missing], _CHECK_SECONDS)
    if not listed.ok:
        raise FailedError(_apt_error(listed.out + listed.err) or "no repository has its packages")
    # 'http://mirror/package.deb' package.deb 4711 SHA256:…
    return sum(int(found) for found in re.findall(r"^'.*' \S+ ([0-9]+)", listed.out, re.MULTILINE))


def _apt_error(output: str) -> str:
    """Return the first error in what apt prints."""
    found = re.search(r"^E: (.*)", output, re.MULTILINE) or re.search(r"^Err\S* (.*)", output, re.MULTILINE)
    return found[1] if found else ""


@dataclass(frozen=True)
class UndoInput:
    """How a driver is judged at the first boot with it."""

    kind: str
    """Its modules and its source: another kind of the same version is another driver."""
    may_reboot: bool


@dataclass(frozen=True)
class Before:
    """The driver before, the new one, and how many GPUs the first one showed."""

    version: str
    new: str
    gpus: int


def arm(system: System, undo: UndoInput, unit: WrittenFile) -> None:
    """Let the next boot judge. The program is copied: other versions of it come and go."""
    system.copy(system.program, str(DRIVER_UNDO))
    system.write(DOCUMENT, dump({"version": VERSION, "verb": "nvidia_driver.undo.judge", "input": undo}))
    write_files(system, [unit])
    systemctl(system, "daemon-reload")
    require_success(systemctl(system, "-q", "enable", DRIVER_UNDO_UNIT), f"cannot enable {DRIVER_UNDO_UNIT}")


def judge(given: UndoInput, system: System) -> None:
    """Judge the driver of this boot. Raise FailedError where it cannot be judged, or the one before cannot come."""
    if system.entry(ARMED):
        return  # it was changed in this boot: the next one judges
    with locked(system, "judging a driver"):
        before = _read_before(system)
        if before is None:
            disarm(system)
            raise FailedError(f"what was kept of the driver before is not complete in {BEFORE}")
        why = _interrupted(before, system) or wait_for_driver(system, before.gpus, RESPONSE_SECONDS)
        if why:
            _go_back(given, before, why, system)
            return
        system.remove(str(DRIVER_REFUSED))
        disarm(system)


def _read_before(system: System) -> Before | None:
    version, new, gpus = ((system.read(f"{BEFORE}/{name}") or "").strip() for name in ("from", "to", "cards"))
    return Before(version, new, int(gpus)) if version and new and gpus.isascii() and gpus.isdigit() else None


def _interrupted(before: Before, system: System) -> str:
    """Return why an earlier boot began to go back, where it did not come to the end; empty where none did."""
    if not system.entry(_TRIED):
        return ""
    refused = (system.read(str(DRIVER_REFUSED)) or "").partition("\n")[0].split("\t")
    return refused[4] if len(refused) > 4 and refused[0] == before.new else "the host went down while it was judged"


def _go_back(given: UndoInput, before: Before, why: str, system: System) -> None:
    """Record why the new driver goes, restore the one before, and boot it."""
    _refuse(given, before, why, system)
    tries = len((system.read(_TRIED) or "").splitlines()) + 1
    with suppress(OSError):
        system.write(_TRIED, "again\n" * tries)
    if tries > _TRIES or not _is_restored(before, system):
        why = f"{why}; driver {before.version} could not be restored, see {LOG} on the host"
        _refuse(given, before, why, system)
        disarm(system)
        raise FailedError(f"driver {before.version} could not be restored", f"see {LOG}")
    system.remove(str(REBOOT_NOTE))
    if given.may_reboot:
        # The mark is gone after the reboot; until then no run takes this for its end.
        system.write(str(REBOOT_MARK), "", mode=0o644)
        disarm(system)
        systemctl(system, "--no-block", "reboot")
        system.sleep(_REBOOT_SECONDS)
        raise FailedError("the host was not rebooted", "run `systemctl reboot`")
    run_admin(system, ["modprobe", "-r", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"])
    if not wait_for_driver(system, before.gpus, _AGAIN_SECONDS):
        systemctl(system, "start", PERSISTENCE)
    disarm(system)


def wait_for_driver(system: System, gpus: int, seconds: float) -> str:
    """Return why the driver does not show as many GPUs within some seconds; empty where it does."""
    began = system.now()
    while why := _missing_gpus(system, gpus):
        if system.now() - began >= seconds:
            return why
        system.sleep(_PAUSE)
    return ""


def _missing_gpus(system: System, gpus: int) -> str:
    """Return why the driver does not show as many GPUs; empty where it does."""
    modules = load_modules(system, _MODPROBE_SECONDS)
    listed = list_gpus(system)
    if listed.code == TIMED_OUT:
        return "the driver hangs" if modules.code == TIMED_OUT else "nvidia-smi hangs"
    if not listed.ok:
        output = first_line(listed.out + listed.err)[:_WIDTH]
        plain = "".join(sign if sign.isascii() and sign.isprintable() else " " for sign in output)
        return f"nvidia-smi: {plain or 'nothing'}"
    shown = gpus_in(listed)
    return "" if shown >= gpus else f"nvidia-smi shows {shown} of {gpus} GPUs"


def _refuse(given: UndoInput, before: Before, why: str, system: System) -> None:
    """Record that the new driver was tried, so that it is not tried again."""
    at = time.strftime("%F %T UTC", time.gmtime(system.clock()))
    fields = (before.new, given.kind, at, before.version, why)
    with suppress(OSError):
        system.write(str(DRIVER_REFUSED), "\t".join(fields) + "\n", mode=0o644)
    system.report(f"driver {before.new} did not come up: {why}")
    sync(system)


def _is_restored(before: Before, system: System) -> bool:
    """Restore files and packages of the driver before. Return whether the next boot has its module."""
    try:
        start_log(system, f"back to driver {before.version}")
        # What was written for the new driver goes first, so that no preferences pin that.
        _restore_files(WRITTEN, system)
        run_logged(system, "dpkg", "--configure", "-a")
        if not install_kept(system):
            return False
        purge_pinning(system)
        kernel = next_kernel(system)
        compile_modules(system, kernel, before.version)
    except (OSError, FailedError):
        return False
    if module_version(system, kernel) != before.version:
        return False
    systemctl(system, "daemon-reload")
    if systemctl(system, "is-enabled", PERSISTENCE).out.strip() == "disabled":
        systemctl(system, "-q", "enable", PERSISTENCE)
    return True


def _restore_files(paths: Iterable[str], system: System) -> None:
    for path in paths:
        system.remove(path)
        kept = f"{BEFORE}/files/{path.rpartition('/')[2]}"
        if system.entry(kept):
            system.copy(kept, path)


def install_kept(system: System) -> bool:
    """Install the packages that were kept, and remove what the new driver brought.

    apt takes a package from a repository that responds, and otherwise the one that was kept.
    """
    debs = [f"{BEFORE}/debs/{name}" for name in system.names(f"{BEFORE}/debs") if name.endswith(".deb")]
    new = (system.read(f"{BEFORE}/new") or "").split()
    removed = [f"{name}-" for name in new if system.run(["dpkg-query", "-W", name]).ok]
    # What is named is what comes: preferences of the new driver's packages do not count.
    options = (
        *("Dir::Etc::preferencesparts=/dev/null", "Dir::Etc::preferences=/dev/null", "Acquire::Retries=0"),
        *("Acquire::http::Timeout=10", "Acquire::https::Timeout=10", f"DPkg::Lock::Timeout={LOCK_SECONDS}"),
        *("Dpkg::Options::=--force-confdef", "Dpkg::Options::=--force-confold"),
    )
    words = [word for each in options for word in ("-o", each)]
    how = ("install", "--no-install-recommends", "--allow-downgrades")
    return bool(debs) and run_logged(system, "apt-get", "-q", "-y", *words, *how, *debs, *removed).ok


VERBS = {"judge": Verb(UndoInput, judge)}
