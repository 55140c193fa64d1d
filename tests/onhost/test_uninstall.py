"""What a removal finds on a host, and that nothing of ours is left: for each path and unit that llamaherd writes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

import pytest

from llamaherd import layout
from llamaherd.layout import (
    ACCOUNTS,
    BUILDS,
    CACHE,
    DEFAULT_STORE,
    DRIVER_BEFORE,
    DRIVER_UNDO_UNIT,
    FETCH_UNIT,
    FIGURES_TIMER,
    GATEWAY_USER,
    LOCKS,
    OF_THE_SYSTEM,
    OURS_ALONE,
    OWN_PREFIX,
    POWER_UNIT,
    PRESETS,
    SET_ASIDE,
    STATE,
    TIMER_STAMPS,
    TRIALS_GUARD,
    UNITS,
)
from llamaherd.onhost.removal import Outcome
from llamaherd.onhost.system import TIMED_OUT, Ended, Entry, FailedError, HeldError
from llamaherd.onhost.uninstall import Installed, UninstallInput, inspect, remove
from tests.support.played_host import File, PlayedHost, Running
from tests.support.rigs import ROOT
from tests.support.service_host import killed_everywhere

PURGE = UninstallInput(str(DEFAULT_STORE), purge=True)
SERVICES = UninstallInput(str(DEFAULT_STORE))
OTHERS = ("/etc/systemd/system/mine.service", "/etc/systemd/system/llama-swap.service", "/etc/hosts", "/srv/x.gguf")
"""Files of the system and of other programs."""
TOPS = ("/etc/", "/home/", "/opt/", "/root/", "/run/", "/srv/", "/tmp/", "/usr/", "/var/")
NOTHING = Installed(spared=(str(LOCKS),), sizes={str(LOCKS.parent): 30})


@dataclass
class SetUpHost(PlayedHost):
    """A host on which llamaherd has been at work."""

    persons: dict[str, int] = field(default_factory=dict)
    """The numbers of accounts that are of people."""
    busy: set[str] = field(default_factory=set)
    """Accounts that something runs as."""
    mounts: set[str] = field(default_factory=set)
    silent: str = ""
    """A program that does not respond."""

    def run(self, argv: Sequence[str], **more: Any) -> Ended:
        """Play accounts, units and containers."""
        match [*argv]:
            case [program, *_] if program == self.silent:
                return Ended(TIMED_OUT)
            case ["id", "-u", user]:
                number = self.persons.get(user, 990)
                return Ended(0, f"{number}\n") if user in self.accounts else Ended(1)
            case ["userdel", user] if user in self.busy:
                return Ended(8, "", f"userdel: user {user} is currently used by process 4711\n")
            case ["du", *_, path]:
                return Ended(0, f"30\t{path}\n")
            case ["systemctl", "list-units", *_]:
                units = (f"{name} loaded active\n" for name, each in self.units.items() if each.state == "active")
                return Ended(0, "".join(units))
            case ["docker", "ps", *_]:
                return Ended(0, "".join(f"{name}\n" for name in self.containers))
        return super().run(argv, **more)

    def _end_unit(self, name: str) -> None:
        for each in (name, f"{name}.service"):
            self.units.pop(each, None)

    def entry(self, path: str) -> Entry | None:
        """Inspect a path: what is mounted is on a disk of its own."""
        found = super().entry(path)
        return replace(found, device=1) if found and path in self.mounts else found


def layout_paths() -> Iterator[tuple[str, PurePosixPath]]:
    """Yield each path of the layout with the name of its constant."""
    for name, value in vars(layout).items():
        if not name.lstrip("_").isupper():
            continue
        values = value if isinstance(value, (tuple, dict)) else (value,)
        for each in values:
            if isinstance(each, PurePosixPath) or (isinstance(each, str) and each.startswith("/")):
                yield name, PurePosixPath(each)


PATHS = dict.fromkeys(path for name, path in layout_paths() if name not in ("OURS_ALONE", "OF_THE_SYSTEM"))
SYSTEMD = ("automount", "mount", "path", "scope", "service", "slice", "socket", "swap", "target", "timer")
"""The kinds of units (systemd.unit(5))."""


def units_of(value: object) -> list[str]:
    """Return the names of units in a constant of the layout."""
    values = value if isinstance(value, tuple) else (value,)
    return [each for each in values if isinstance(each, str) and each.rpartition(".")[2] in SYSTEMD and "/" not in each]


UNIT_NAMES = [
    *dict.fromkeys(value for values in vars(layout).values() for value in units_of(values)),
    *(f"{each}.service" for each in (layout.candidate_service("chat"), layout.trial_service("chat", "A"))),
    *(f"{each}.timer" for each in (layout.probation_of("chat"), layout.resume_of("chat"))),
]


def within(path: PurePosixPath, folders: Sequence[PurePosixPath]) -> bool:
    return any(path.is_relative_to(each) for each in folders)


def set_up(names: Sequence[str] = UNIT_NAMES, **more: Any) -> SetUpHost:
    """Return a host with something at each path that we write, our units, and files of others."""
    ours = [path for path in PATHS if within(path, OURS_ALONE)]
    inner = [path for path in ours if not any(path in each.parents for each in ours)]
    files = {str(path): File("ours") for path in inner if path != DRIVER_BEFORE}
    files |= {f"{UNITS}/{name}": File("[Unit]") for name in names}
    files |= {f"{TIMER_STAMPS}/stamp-{name}": File("") for name in names if name.endswith(".timer")}
    files |= {path: File("of others") for path in OTHERS}
    # Builds, preset files, models and files that were set aside: others decide on these.
    apart = {str(BUILDS), str(DEFAULT_STORE), str(PRESETS), str(SET_ASIDE)}
    files = {path: each for path, each in files.items() if path not in apart}
    units = {
        FETCH_UNIT: Running("active"),
        "llamaherd-build-x.service": Running("active"),
        "ssh.service": Running("active"),
    }
    containers = {"llamaherd-beside-x": Running("running"), "nginx": Running("running")}
    given: dict[str, Any] = {"units": units, "containers": containers, "accounts": {*ACCOUNTS, GATEWAY_USER, "ann"}}
    return SetUpHost({}, files=files, **given | more)


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_each_path_of_the_layout_is_removed_or_is_of_the_system(path: PurePosixPath) -> None:
    """A new path outside of these folders must be added to OURS_ALONE in llamaherd/layout.py, or to OF_THE_SYSTEM."""
    assert within(path, OURS_ALONE) != within(path, OF_THE_SYSTEM)


@pytest.mark.parametrize("name", UNIT_NAMES)
def test_each_unit_of_the_layout_has_the_prefix_by_which_it_is_found(name: str) -> None:
    host = SetUpHost({}, files={f"{UNITS}/{name}": File("[Unit]")})
    assert inspect(SERVICES, host).units == (name,)


def test_no_other_path_is_written() -> None:
    """Paths of ours that the layout lacks are in its folders, too."""
    known = (*OURS_ALONE, *OF_THE_SYSTEM)
    found: dict[str, str] = {}
    for file in [*(ROOT / "roles").rglob("*.py"), *(ROOT / "llamaherd").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if text.startswith(TOPS) and "llamaherd" in text and len(text.split()) == 1:
                    found[text] = f"{file.relative_to(ROOT)}:{node.lineno}"
    assert found
    assert {path: at for path, at in found.items() if not within(PurePosixPath(path), known)} == {}


def test_what_is_found() -> None:
    found = inspect(PURGE, set_up())
    assert {*UNIT_NAMES, "llamaherd-build-x.service"} == {*found.units}
    assert found.containers == ("llamaherd-beside-x",)
    assert set(found.accounts) == {*ACCOUNTS, GATEWAY_USER}
    assert {*found.paths} >= {str(STATE), str(BUILDS.parent), "/etc/llamaherd"}
    assert set(found.sizes) == {*map(str, OURS_ALONE)}
    assert set(found.sizes.values()) == {30}
    assert found.spared == (str(LOCKS),)


def test_services_go_and_the_rest_stays() -> None:
    host = set_up()
    before = inspect(SERVICES, host)
    done = remove(SERVICES, host)
    assert done.ok
    after = inspect(SERVICES, host)
    assert (after.units, after.containers) == ((), ())
    assert (after.accounts, after.paths) == (before.accounts, before.paths)
    assert {path for path in host.files if path.startswith((f"{UNITS}/", f"{TIMER_STAMPS}/"))} == {*OTHERS[:2]}
    assert [*host.units] == ["ssh.service"]
    assert [*host.containers] == ["nginx"]


def test_a_purge_leaves_nothing_of_ours() -> None:
    host = set_up()
    done = remove(PURGE, host)
    assert done.ok
    assert f"account {GATEWAY_USER}" in done.removed
    assert str(BUILDS.parent) in done.removed
    assert {path for path in host.files if not path.startswith(f"{LOCKS}/")} - {str(LOCKS)} == {*OTHERS}
    assert host.accounts == {"ann"}
    assert inspect(PURGE, host) == NOTHING
    assert remove(PURGE, host) == Outcome()


def test_killed_anywhere_and_run_again_it_ends_alike() -> None:
    names = (TRIALS_GUARD, FIGURES_TIMER)
    hosts = killed_everywhere(lambda: set_up(names), lambda host: remove(PURGE, host))
    assert len(hosts) > len(OURS_ALONE)
    for host in hosts:
        assert inspect(PURGE, host) == NOTHING
        assert {path for path in host.files if not path.startswith(str(LOCKS))} == {*OTHERS}
        assert (host.accounts, [*host.units], [*host.containers]) == ({"ann"}, ["ssh.service"], ["nginx"])


def test_guards_end_first() -> None:
    """They restore what a trial has changed, and need their program for that."""
    (first, *_) = remove(SERVICES, set_up()).removed
    assert first == f"unit {TRIALS_GUARD}" or first.startswith("unit llamaherd-limits")


@pytest.mark.parametrize(
    "path",
    [
        f"{BUILDS}/llama.cpp-000000000000/bin/llama-server",
        f"{PRESETS}/mine.ini",
        f"{DEFAULT_STORE}/own/model.gguf",
        f"{SET_ASIDE}/llama-chat.service.d/mine.conf",
    ],
)
def test_what_others_use_or_have_written_stays(path: str) -> None:
    host = set_up()
    host.files[path] = File("of others")
    assert remove(PURGE, host).ok
    assert {each for each in host.files if not each.startswith(str(LOCKS))} == {*OTHERS, path}
    assert replace(inspect(PURGE, host), spared=(), sizes={}) == Installed()


def test_the_rests_of_a_transfer_go() -> None:
    host = set_up()
    host.files[f"{DEFAULT_STORE}/.incoming/{'a' * 64}.part"] = File("half")
    host.files[f"{BUILDS}/.trash-0123/it/x"] = File("half")
    assert remove(PURGE, host).ok
    assert not any(each.startswith((str(STATE), str(BUILDS))) for each in host.files)


def test_a_store_elsewhere_goes_if_nothing_else_is_in_it() -> None:
    given = UninstallInput("/srv/models", purge=True)
    host = set_up()
    host.files["/srv/models/.lock"] = File("")
    assert "/srv/models" in remove(given, host).removed
    assert host.entry("/srv/models") is None
    host = set_up()
    host.files |= {"/srv/models/.lock": File(""), "/srv/models/mine.gguf": File("x")}
    remove(given, host)
    assert "/srv/models/mine.gguf" in host.files
    host = set_up(folders={"/srv/models"})
    assert inspect(given, host).spared == (str(LOCKS),)
    assert "/srv/models" not in remove(given, host).removed


@pytest.mark.parametrize("folder", [str(STATE), str(DEFAULT_STORE), str(BUILDS), f"{CACHE}/ccache"])
def test_a_disk_of_its_own_stays_mounted(folder: str) -> None:
    host = set_up(mounts={folder}, folders={folder, f"{folder}/lost+found"})
    host.files.pop(folder, None)
    host.files[f"{folder}/.trash-01/it"] = File("half")
    assert remove(PURGE, host).ok
    assert host.names(folder) == ["lost+found"]
    assert replace(inspect(PURGE, host), sizes=NOTHING.sizes) == NOTHING
    ours = {path for path in host.files if within(PurePosixPath(path), OURS_ALONE)}
    assert {path for path in ours if not path.startswith(str(LOCKS))} == set()


def test_an_account_of_a_person_stays() -> None:
    host = set_up(persons={ACCOUNTS[0]: 1000})
    assert remove(PURGE, host).ok
    assert host.accounts == {"ann", ACCOUNTS[0]}


def test_an_account_in_use_is_kept_with_the_reason() -> None:
    done = remove(PURGE, set_up(busy={ACCOUNTS[0]}))
    assert done.kept == {f"account {ACCOUNTS[0]}": f"something still runs as it: see `ps -u {ACCOUNTS[0]}`"}


def test_a_driver_before_its_first_boot_is_left_alone() -> None:
    host = set_up()
    host.files[f"{DRIVER_BEFORE}/from"] = File("580")
    assert DRIVER_UNDO_UNIT not in inspect(SERVICES, host).units
    assert remove(SERVICES, host).ok
    assert f"{UNITS}/{DRIVER_UNDO_UNIT}" in host.files
    before = dict(host.files)
    with pytest.raises(FailedError, match="waits for its first boot"):
        remove(PURGE, host)
    assert host.files == before


@pytest.mark.parametrize("program", ["systemctl", "docker"])
def test_what_does_not_respond_is_not_absent(program: str) -> None:
    host = set_up(silent=program)
    host.files["/run/systemd/system/x"] = File("")
    with pytest.raises(FailedError, match="does not respond"):
        inspect(PURGE, host)


def test_another_run_is_not_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    host = set_up()
    before = dict(host.files)

    def held(*_: object) -> None:
        raise HeldError("held")

    monkeypatch.setattr(host, "lock", held)
    assert remove(PURGE, host) == Outcome(busy="")
    assert host.files == before


def test_a_file_that_cannot_be_removed_is_kept_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    host = set_up()
    real = host.remove

    def refusing(path: str) -> None:
        if path == str(STATE):
            raise OSError(1, "Operation not permitted", path)
        real(path)

    monkeypatch.setattr(host, "remove", refusing)
    done = remove(PURGE, host)
    assert done.kept == {str(STATE): "Operation not permitted"}
    assert inspect(PURGE, host).paths == (str(STATE),)


def test_units_of_servers_are_not_ours_to_remove_here() -> None:
    host = SetUpHost({}, files={f"{UNITS}/llama-chat.service": File(""), f"{UNITS}/{POWER_UNIT}": File("")})
    assert inspect(SERVICES, host).units == (POWER_UNIT,)
    assert OWN_PREFIX == "llamaherd-"
