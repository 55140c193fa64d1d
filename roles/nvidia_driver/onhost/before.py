"""Keep the driver that works, before another one is installed: the next boot goes back to it without a network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from llamaherd.layout import APT_ARCHIVES, DRIVER_REFUSED
from llamaherd.onhost.files import WrittenFile
from llamaherd.onhost.system import FailedError, System
from roles.nvidia_driver.onhost.driver import (
    ARMED,
    BEFORE,
    WRITTEN,
    disarm,
    gpus_in,
    list_gpus,
    loaded_version,
    responds,
    run_admin,
    sync,
)
from roles.nvidia_driver.onhost.simulation import Action, Names, new_parts, replaced_parts
from roles.nvidia_driver.onhost.undo import UndoInput, arm

MOST_KEPT = 10**9
"""Bytes of packages that are kept: a driver for computing has 0.4 GB of them, with its desktop 0.7 GB."""
BESIDE_KEPT = 2 * 10**9
"""Bytes that must be free besides: what the new driver takes."""
_NEW = f"{BEFORE}.new"
_FETCH_SECONDS = 1800
_CHECK_SECONDS = 120


@dataclass(frozen=True)
class WayBack:
    """How a host goes back from a driver that does not respond after the next boot."""

    undo: UndoInput
    unit: WrittenFile


def keep_driver(system: System, way: WayBack, actions: Sequence[Action], names: Names, to: str) -> None:
    """Keep the driver that works, and let the next boot judge the version `to`."""
    works = loaded_version(system) if responds(system) else ""
    new = new_parts(actions, names)
    if system.entry(BEFORE) and system.entry(ARMED):
        # What an earlier run has kept in this boot is what worked.
        _add_to_kept(system, new, to)
        arm(system, way.undo, way.unit)
        kept = f"driver {(system.read(f'{BEFORE}/from') or '').strip()} is kept"
        system.report(f"{kept}: it comes back by itself where {to} does not answer after the next boot")
    elif not works:
        disarm(system, reading=way.undo.judged)
        system.report(f"no driver answers here now, so that there is none to go back to where {to} does not come up")
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


def _keep(system: System, way: WayBack, works: str, new: Sequence[str], old: Sequence[str], to: str) -> None:
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
        system.report(f"{kept}: it comes back by itself where {to} does not answer after the next boot")
        return
    disarm(system, reading=way.undo.judged)
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
            raise FailedError(f"dpkg does not know {name}")
        about, version = found.out.splitlines()
        file = f"{APT_ARCHIVES}/{about.replace(':', '%3a')}"
        entry = system.entry(file)
        if entry and system.run(["dpkg-deb", "-c", file], seconds=_CHECK_SECONDS).ok:
            size += entry.size
            stored.append(file)
        else:
            missing.append(f"{name}={version}")
    size += _size_of_missing(system, missing)
    if size > MOST_KEPT or (system.free(_NEW) or 0) - size < BESIDE_KEPT:
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


def _apt_error(said: str) -> str:
    """Return the first error in what apt prints."""
    found = re.search(r"^E: (.*)", said, re.MULTILINE) or re.search(r"^Err\S* (.*)", said, re.MULTILINE)
    return found[1] if found else ""
