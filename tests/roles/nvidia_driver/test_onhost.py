"""The driver's verbs on a played host: installed, judged at a boot, and restored, wherever the program is killed."""

from __future__ import annotations

import itertools
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llamaherd.host.program import packed_program
from llamaherd.layout import (
    DRIVER_ARMED,
    DRIVER_BEFORE,
    DRIVER_HELD,
    DRIVER_KEPT,
    DRIVER_READING,
    DRIVER_REFUSED,
    DRIVER_UNDO,
    DRIVER_UNDO_UNIT,
    DRIVER_WANTED,
    REBOOT_MARK,
    REBOOT_NOTE,
)
from llamaherd.onhost.apt import LOG
from llamaherd.onhost.document import VERSION, Secret, decode, dump, parse_document
from llamaherd.onhost.files import WrittenFile
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError
from roles.nvidia_driver.changes import NAMES
from roles.nvidia_driver.going_back import undo_unit
from roles.nvidia_driver.onhost.before import WayBack
from roles.nvidia_driver.onhost.booting import (
    LoadInput,
    NothingInput,
    ReadingInput,
    RebootedInput,
    RebootInput,
    SettleInput,
    TakenBackInput,
    forget_before,
    keep_reading,
    load,
    reboot,
    report_taken_back,
    require_booted,
    require_driver,
    settle,
)
from roles.nvidia_driver.onhost.packages import ComponentsInput, Driver, InstallInput, add_components, install
from roles.nvidia_driver.onhost.undo import TakeBackInput, UndoInput, judge, take_back
from tests.support.driver_host import DAEMON, DKMS, DRIVER, FAILED, KERNEL, LIBRARY, SMI, DriverHost, driver_host
from tests.support.hostile import PLAIN
from tests.support.played_host import File, Killed

OLD, NEW = "580.95.05", "590.48.01"
BEFORE, TO = f"{OLD}-1", f"{NEW}-1"
INSTALLED, WENT = f"driver {NEW} is installed, and", f"driver {NEW} did not come up (it hangs), and {OLD}"
REFUSED, KEPT = str(DRIVER_REFUSED), str(DRIVER_KEPT)
UNDO = UndoInput(kind="open nvidia", may_reboot=True, judged=False)
JUDGED = replace(UNDO, judged=True)


def file(path: object, text: str) -> WrittenFile:
    """Return a file."""
    return WrittenFile(str(path), Secret(text), 0o644, "root")


def given(version: str = NEW, undo: UndoInput | None = UNDO, **more: Any) -> InstallInput:
    """Return an input that moves a host to another version."""
    driver = Driver(version[:3], None, LIBRARY, (), (), prebuilt=False, source="NVIDIA's repository")
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
        "way_back": WayBack(undo, undo_unit()) if undo else None,
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


# --- installing ----------------------------------------------------------------------------------------------


def test_a_driver_is_installed_kept_and_judged_at_the_next_boot() -> None:
    host = working()
    install(bytes_of(given(), InstallInput), host)
    assert host.installed == dict.fromkeys(DRIVER, TO)
    assert host.modules == {KERNEL: NEW}
    assert host.read(KEPT) == f"Pin: version {NEW}*\n"
    assert host.read(str(DRIVER_WANTED)) == f"wants {NEW}\n"
    assert host.log == [
        f"driver {OLD} is kept (0 MiB): it comes back by itself where {NEW} does not answer after the next boot",
        f"driver {NEW} is installed",
    ]
    assert {name: host.read(f"{DRIVER_BEFORE}/{name}") for name in ("from", "to", "cards", "new")} == {
        "from": f"{OLD}\n",
        "to": f"{NEW}\n",
        "cards": "1\n",
        "new": "",
    }
    assert host.names(f"{DRIVER_BEFORE}/debs") == sorted(f"{name}_{BEFORE}_amd64.deb" for name in DRIVER)
    assert host.names(f"{DRIVER_BEFORE}/files") == [DRIVER_KEPT.name, DRIVER_WANTED.name]
    assert host.read(str(DRIVER_UNDO)) == "the program"
    assert DRIVER_UNDO_UNIT.removesuffix(".service") in host.enabled
    assert not [name for name in host.names("/run/llamaherd") if "preferences" in name]
    host.boot()
    assert serves(host, NEW)
    assert (host.boots, host.left(), host.read(REFUSED)) == (1, [], None)


def test_what_is_kept_is_kept_before_anything_is_changed() -> None:
    host = working()
    install(given(), host)
    armed = host.index("enable", DRIVER_UNDO_UNIT)
    assert host.index("write", str(DRIVER_ARMED)) < armed < host.index("write", str(DRIVER_WANTED))
    assert armed < min(at for at, each in enumerate(host.done) if "install" in each and "-s" not in each)


def test_what_the_kernel_has_already_needs_no_boot() -> None:
    host = working()
    host.module = NEW
    host.load_version(NEW)
    host.installed |= {LIBRARY: TO}
    install(given(), host)
    assert host.left() == []


@pytest.mark.parametrize("undo", [None, UNDO], ids=["nothing moves", "none works"])
def test_without_a_driver_to_go_back_to_nothing_is_armed(undo: UndoInput | None) -> None:
    host = working(module="")
    host.load_version("")
    host.files[REFUSED] = File("an earlier one")
    install(given(undo=undo), host)
    assert host.left() == []
    assert (host.read(REFUSED) is None) is (undo is not None)
    said = f"no driver answers here now, so that there is none to go back to where {NEW} does not come up"
    assert (said in host.log) is (undo is not None)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"free": 10**9}, "its packages take 0 MiB"),
        ({"full": "driver-before"}, f"{DRIVER_BEFORE} cannot be written"),
        ({"fetches": False}, "http://mirror it is away"),
        ({"gpus": 0}, "nvidia-smi shows no GPU any more"),
    ],
    ids=["no room", "a full disk", "no network", "no GPU"],
)
def test_a_driver_that_cannot_be_kept_is_reported_and_the_new_one_comes(more: dict[str, Any], why: str) -> None:
    host = working(**more)
    if "fetches" in more:
        host.files = {path: each for path, each in host.files.items() if "archives" not in path}
    install(given(), host)
    cannot = f"driver {OLD} cannot be kept, so that nothing brings it back by itself where {NEW} does not come up"
    assert host.log[0] == f"{cannot}: {why}"
    assert (host.installed[LIBRARY], host.left()) == (TO, [])


def test_packages_that_no_repository_has_any_more_cannot_be_kept() -> None:
    host = working()
    host.files = {path: each for path, each in host.files.items() if "archives" not in path}
    host.available = {name: [TO] for name in DRIVER}
    install(given(), host)
    assert host.log[0].endswith(f"does not come up: Version '{LIBRARY}={BEFORE}' was not found")


def test_packages_that_apt_does_not_store_are_fetched() -> None:
    host = working()
    host.files = {path: each for path, each in host.files.items() if "archives" not in path}
    install(given(), host)
    assert host.names(f"{DRIVER_BEFORE}/debs") == sorted(f"{name}_{BEFORE}_amd64.deb" for name in DRIVER)


def test_a_second_version_in_one_boot_goes_back_to_the_one_that_worked() -> None:
    newest = "610.43.02"
    host = working(OLD, NEW, newest)
    host.available = {name: versions[1:] for name, versions in host.available.items()}
    host.available["libnvidia-new"] = [f"{NEW}-1"]
    install(given(packages=(LIBRARY, DKMS, SMI, "libnvidia-new")), host)
    assert host.read(f"{DRIVER_BEFORE}/new") == "libnvidia-new\n"
    host.available = {name: [f"{newest}-1", *versions] for name, versions in host.available.items()}
    host.available["libnvidia-newest"] = [f"{newest}-1"]
    host.refused = {newest}
    # Its library is another one by now, and the kernel's module that which worked.
    install(given(newest, packages=(LIBRARY, DKMS, SMI, "libnvidia-new", "libnvidia-newest")), host)
    assert host.read(f"{DRIVER_BEFORE}/to") == f"{newest}\n"
    assert host.read(f"{DRIVER_BEFORE}/new") == "libnvidia-new\nlibnvidia-newest\n"
    host.boot()
    assert serves(host, OLD)


@pytest.mark.parametrize(
    ("ends", "more", "message", "fix"),
    [
        ({}, {"exact": "590.44.01"}, "NVIDIA's repository has no driver 590.44.01 (libcuda1)", f"{OLD} {NEW}"),
        (
            {"apt-get -q -o Dir::Etc": Ended(100, "x\n", "E: broken\n")},
            {},
            "apt finds no way to driver 590; nothing was changed",
            "",
        ),
        ({}, {"leftovers": ("gnome",)}, "apt's way to driver 590 does more than that; nothing was changed", "remove"),
        (
            {},
            {"headers": (KERNEL,)},
            f"there are no headers of kernel {KERNEL}, which the next boot starts: apt has no linux-headers-{KERNEL}",
            "reboot into a kernel",
        ),
    ],
    ids=["no such driver", "no way", "it takes more away", "no headers"],
)
def test_a_host_that_cannot_have_it_stays_as_it_was(
    ends: dict[str, Ended], more: dict[str, Any], message: str, fix: str
) -> None:
    host = working(ends=ends)
    host.installed["gnome"] = "1"
    before = ({path for path in host.files if path != LOG}, dict(host.installed))
    with pytest.raises(FailedError) as caught:
        install(given(**more), host)
    assert caught.value.message == message
    assert fix in caught.value.fix
    assert ({path for path in host.files if path != LOG}, host.installed) == before
    assert not [each for each in host.done if each[:2] == ["systemctl", "daemon-reload"]]


def test_why_apt_finds_no_way_is_shown_and_logged() -> None:
    said = Ended(100, "Reading\n x : Depends: y\n", "E: Unable to correct problems\n")
    host = working(ends={"apt-get -q -o Dir::Etc": said})
    with pytest.raises(FailedError) as caught:
        install(given(), host)
    assert caught.value.log == (" x : Depends: y", "E: Unable to correct problems")
    assert host.has_done("printf", f"{said.out}{said.err}")


def test_headers_follow_a_kernel_where_apt_has_them() -> None:
    host = working()
    name = "linux-headers-6.1-old"
    host.available[name] = ["6.1"]
    install(given(headers=("6.1-old", "6.0-gone")), host)
    assert host.installed[name] == "6.1"
    # The module of that version is there already: no headers are needed for it.
    host = working(modules={KERNEL: NEW})
    install(given(headers=(KERNEL,)), host)
    # The kernel of a container is another host's.
    install(given(headers=(KERNEL,), in_container=True, undo=None), working())


def test_parts_of_another_branch_move_or_go_and_tools_stay() -> None:
    host = working()
    host.installed |= {"libnvidia-cfg1-580": BEFORE, "nvidia-modprobe": BEFORE}
    install(given(leftovers=(DAEMON, "libnvidia-cfg1-580", "nvidia-modprobe", LIBRARY)), host)
    assert "libnvidia-cfg1-580" not in host.installed
    assert (host.installed["nvidia-modprobe"], host.installed[DAEMON]) == (BEFORE, TO)


def test_the_first_pinning_package_that_exists_comes_before_the_driver() -> None:
    host = working()
    host.available |= {"nvidia-driver-pinning-590": ["590-1"], "nvidia-imex": [TO], "nvidia-other": [BEFORE]}
    pinning = ("nvidia-driver-pinning-590.48.01", "nvidia-driver-pinning-590")
    status = "dpkg-query -W -f ${Package} ${db:Status-Status}"
    host.ends = {status: Ended(0, "nvidia-driver-pinning-580 config-files\nnvidia-driver-pinning-590 installed\n")}
    host.ends["dpkg --purge"] = Ended(0)
    install(given(pinning=pinning, beside=("nvidia-imex", "nvidia-other")), host)
    installs = [each for each in host.done if "install" in each and "-s" not in each]
    assert installs[0][-1] == "nvidia-driver-pinning-590"
    assert "nvidia-imex" in installs[1]
    assert "nvidia-other" not in installs[1]
    assert host.has_done("dpkg", "--purge", "nvidia-driver-pinning-580")
    assert host.index("dpkg", "--purge") > host.index(*installs[1])


def test_preferences_of_the_host_count_but_not_those_that_keep_the_version_before() -> None:
    staged: list[dict[str, str]] = []

    class Watched(DriverHost):
        def _apt(self, words: list[str], folder: str) -> Ended:
            if "policy" in words:
                staged.append(self.texts("/run/llamaherd/driver-preferences"))
            return super()._apt(words, folder)

    host = working()
    host.files["/etc/apt/preferences.d/mine"] = File("mine\n")
    host.folders.add("/etc/apt/preferences.d/a folder")
    host = Watched(**vars(host))
    install(given(), host)
    install(given(moves=False, undo=None), host)
    names = [{path.rpartition("/")[2]: text for path, text in each.items()} for each in staged]
    assert names == [
        {"mine": "mine\n", DRIVER_WANTED.name: f"wants {NEW}\n"},
        {"mine": "mine\n", DRIVER_WANTED.name: f"wants {NEW}\n", KEPT.rpartition("/")[2]: f"Pin: version {NEW}*\n"},
    ]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"uncompiled": {NEW}},
            f"driver {NEW} is installed, and kernel {KERNEL}, which the next boot starts, has {OLD}",
        ),
        ({"ends": {"sh -c command": Ended(1)}}, f"{INSTALLED} brought no nvidia-smi"),
        ({"ends": {"systemctl cat": Ended(1)}}, f"{INSTALLED} brought no nvidia-persistenced"),
        (
            {"unit_state": "disabled", "ends": {"systemctl -q enable nvidia-persistenced": Ended(1)}},
            "cannot enable nvidia-persistenced.service",
        ),
        (
            {"ends": {"apt-get -q -y": Ended(100, "E: dkms failed\n")}},
            f"apt could not install: {LIBRARY} {DKMS} {SMI} {DAEMON}. The whole log is {LOG} on the host.",
        ),
        (
            {"ends": {"systemctl -q enable llamaherd": Ended(1, "", "it is masked\n")}},
            f"cannot enable {DRIVER_UNDO_UNIT}",
        ),
    ],
    ids=["no module", "no nvidia-smi", "no daemon", "masked", "apt", "no unit"],
)
def test_why_it_could_not_be_installed(more: dict[str, Any], message: str) -> None:
    host = working(**more)
    log = "/var/lib/dkms/nvidia/590.48.01/build/make.log"
    host.files[log] = File("".join(f"line {number}\n" for number in range(20)))
    with pytest.raises(FailedError) as caught:
        install(given(), host)
    assert caught.value.message == message
    compiled = [f"line {number}" for number in range(12, 20)]
    assert (list(caught.value.log)[-8:] == compiled) is ("no nvidia" not in message and "enable" not in message)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("disabled", [["unmask", f"{DAEMON}.service"], ["enable", f"{DAEMON}.service"]]),
        ("masked", [["unmask", f"{DAEMON}.service"], ["enable", f"{DAEMON}.service"]]),
        ("masked-runtime", [["unmask", "--runtime", f"{DAEMON}.service"], ["enable", f"{DAEMON}.service"]]),
        ("static", []),
    ],
)
def test_the_persistence_daemon_starts_at_boot(state: str, words: list[list[str]]) -> None:
    host = working(unit_state=state)
    install(given(undo=None), host)
    assert [each[2:] for each in host.done if each[:2] == ["systemctl", "-q"] and DAEMON in each[-1]] == words


def test_a_container_takes_what_its_kernel_has() -> None:
    host = working(uncompiled={NEW}, modules={})
    host.module = NEW
    host.load_version(NEW)
    install(given(undo=None, in_container=True, prebuilt=True), host)
    assert not host.has_done("dkms")


def test_other_processes_that_install_are_waited_for() -> None:
    locked = Ended(
        100, "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (unattended-upgr)\n"
    )
    host = working(ends={"dpkg --configure": locked, "stat": Ended(0, "4711\n")})
    host.files |= {
        "/proc/locks": File("1: POSIX  ADVISORY  WRITE 7 fd:01:4711 0 EOF\n"),
        "/proc/7/comm": File("unattended-upgr\n"),
    }
    with pytest.raises(FailedError) as caught:
        install(given(), host)
    assert caught.value.message == "apt is held by unattended-upgr (process 7) for more than ten minutes"
    assert host.time >= 600
    # Without a process that holds it, apt itself says why.
    host = working(ends={"dpkg --configure": locked})
    install(given(), host)
    assert host.installed[LIBRARY] == TO


# --- judging -------------------------------------------------------------------------------------------------


def installed(undo: UndoInput = UNDO, **more: Any) -> DriverHost:
    """Return a host that has a new driver, and has not booted it."""
    host = working(**more)
    install(given(undo=undo), host)
    host.log.clear()
    return host


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"refused": {NEW}}, f"nvidia-smi: {FAILED}"),
        ({"hung": {NEW}}, "nvidia-smi hangs"),
    ],
    ids=["refused by the kernel", "hangs"],
)
@pytest.mark.parametrize("undo", [UNDO, JUDGED], ids=["", "judged"])
def test_one_that_does_not_respond_goes_back(undo: UndoInput, more: dict[str, Any], why: str) -> None:
    host = installed(undo, **more)
    host.files[str(REBOOT_NOTE)] = File(f"{NEW} {KERNEL}\n")
    host.boot()
    assert serves(host, OLD)
    assert (host.boots, host.left(), host.read(str(REBOOT_NOTE))) == (2, [], None)
    fields = (host.read(REFUSED) or "").removesuffix("\n").split("\t")
    assert [*fields[:2], *fields[3:]] == [NEW, "open nvidia", OLD, why, *([""] if undo.judged else [])]
    assert fields[2].endswith(" UTC")
    assert host.read(str(DRIVER_WANTED)) == "wants 580\n"
    assert host.read(str(DRIVER_HELD)) is None
    assert f"driver {NEW} did not come up: {why}" in host.log


def test_what_is_restored_is_fetched_from_nowhere_and_nothing_pins_the_new_one() -> None:
    host = installed(refused={NEW})
    host.done.clear()
    host.boot()
    (words,) = [each for each in host.done if "install" in each]
    assert {"Dir::Etc::preferencesparts=/dev/null", "Acquire::Retries=0", "--allow-downgrades"} <= set(words)
    assert [each for each in words if each.startswith("/")] == [
        f"{DRIVER_BEFORE}/debs/{name}_{BEFORE}_amd64.deb" for name in sorted(DRIVER)
    ]
    assert host.index("remove", str(DRIVER_HELD)) < host.index(*words)
    assert not host.has_done("update")


def test_one_that_shows_fewer_gpus_goes_back() -> None:
    host = working(gpus=2)
    install(given(), host)
    host.gpus = 1
    host.boot()
    assert (host.read(REFUSED) or "").rstrip().endswith("nvidia-smi shows 1 of 2 GPUs")
    assert serves(host, OLD)


def test_a_driver_has_a_minute_to_respond() -> None:
    class Late(DriverHost):
        """A host whose driver shows its GPU late."""

        def _driver(self, words: list[str]) -> Ended:
            if words[0] == "nvidia-smi" and self.boots and self.time < 60:
                return Ended(9, "\nit is\tnot ready \x1b[2J\u00e9\n")
            return super()._driver(words)

    host = Late(**vars(installed()))
    host.time = 0
    host.boot()
    assert (host.boots, serves(host, NEW)) == (1, True)
    host = Late(**vars(installed()))
    host.time = -1000
    host.boot()
    assert (host.read(REFUSED) or "").endswith("\tnvidia-smi: it is not ready  [2J \n")
    assert f"driver {NEW} did not come up: nvidia-smi: it is not ready  [2J " in host.log


def test_a_modprobe_that_hangs_is_named() -> None:
    host = installed(hung={NEW}, ends={"modprobe nvidia": Ended(TIMED_OUT)})
    host.boot()
    assert "the driver hangs" in (host.read(REFUSED) or "")


def test_the_boot_that_changed_it_does_not_judge() -> None:
    host = installed(refused={NEW})
    judge(UNDO, host)
    assert (host.installed[LIBRARY], host.read(REFUSED)) == (TO, None)


def test_what_is_not_complete_is_not_judged() -> None:
    for name in ("from", "to", "cards"):
        host = installed(refused={NEW})
        host.files.pop(f"{DRIVER_BEFORE}/{name}")
        host.boot()
        assert (host.installed[LIBRARY], host.left()) == (TO, [])


@pytest.mark.parametrize("undo", [UNDO, JUDGED], ids=["", "judged"])
@pytest.mark.parametrize("breaks", ["apt-get -q -y -o Dir", "no module", "no packages", "a full disk"])
def test_one_that_cannot_be_restored_is_reported_once(breaks: str, undo: UndoInput) -> None:
    host = installed(undo, refused={NEW})
    host.files[str(REBOOT_MARK)] = File("")
    if breaks == "no module":
        host.uncompiled = {OLD}
    elif breaks == "no packages":
        host.remove(f"{DRIVER_BEFORE}/debs")
    elif breaks == "a full disk":
        host.full = "apt/preferences.d"
    else:
        host.ends[breaks] = Ended(100)
    host.boot()
    assert (host.boots, host.left()) == (1, [])
    why = f"driver {OLD} could not be brought back, {LOG} on the host says why"
    assert why in (host.read(REFUSED) or "")


def test_a_host_that_is_not_to_be_booted_loads_the_driver_before() -> None:
    host = installed(replace(UNDO, may_reboot=False), refused={NEW})
    host.boot()
    assert serves(host, OLD)
    assert (host.boots, host.left()) == (1, [])
    assert host.has_done("systemctl", "start", f"{DAEMON}.service")


def test_where_the_power_goes_again_and_again_it_ends_after_three_tries() -> None:
    host = installed(refused={NEW})
    host.files[f"{DRIVER_BEFORE}/tries"] = File("again\n" * 3)
    host.boot()
    assert (host.boots, host.left(), host.installed[LIBRARY]) == (1, [], TO)
    assert "could not be brought back" in (host.read(REFUSED) or "")


# --- servers that judge --------------------------------------------------------------------------------------


def test_one_that_responds_is_kept_until_servers_were_measured() -> None:
    host = installed(JUDGED)
    host.files[str(DRIVER_READING)] = File("figures")
    host.boot()
    assert serves(host, NEW)
    assert host.read(f"{DRIVER_BEFORE}/answered") == ""
    assert not [each for each in host.left() if "undo.service" in each or each in host.enabled]
    # The next boot judges nothing.
    host.boot()
    assert serves(host, NEW)
    forget_before(NothingInput(), host)
    assert (host.left(), host.read(str(DRIVER_READING))) == ([], None)


def slower() -> DriverHost:
    """Return a host whose driver responds, and waits until servers were measured by it."""
    host = installed(JUDGED)
    host.files[str(DRIVER_READING)] = File("figures")
    host.boot()
    host.log.clear()
    return host


BACK = TakeBackInput("chat is slower by it", JUDGED, undo_unit())


def test_one_that_servers_are_slower_by_goes_back() -> None:
    host = slower()
    take_back(bytes_of(BACK, TakeBackInput), host)
    with pytest.raises(FailedError):
        require_booted(NothingInput(), host)
    host.judge()
    assert host.rebooting
    host.boot()
    require_booted(NothingInput(), host)
    assert serves(host, OLD)
    assert (host.left(), host.read(str(DRIVER_READING))) == ([], None)
    fields = (host.read(REFUSED) or "").removesuffix("\n").split("\t")
    assert (fields[0], *fields[3:]) == (NEW, OLD, "chat is slower by it", "slower")


def test_nothing_goes_back_to_what_is_gone() -> None:
    host = slower()
    host.remove(f"{DRIVER_BEFORE}/answered")
    with pytest.raises(FailedError, match="what was kept of the driver before is gone"):
        take_back(BACK, host)
    host = slower()
    host.ends["systemctl --no-block start"] = Ended(1, "", "it is masked\n")
    with pytest.raises(FailedError, match="cannot start llamaherd-driver-undo"):
        take_back(BACK, host)


@pytest.mark.usefixtures("starts_processes")
def test_a_unit_runs_the_copied_program_with_its_document(tmp_path: Path) -> None:
    """Its name has no ending, and Python runs it even so. The document lacks a field, so that it changes nothing."""
    program, document = tmp_path / "driver-undo", tmp_path / "undo.json"
    program.write_bytes(packed_program().data)
    document.write_text(dump({"version": VERSION, "verb": "nvidia_driver.undo.judge", "input": {"kind": "open"}}))
    words = [sys.executable, "-I", str(program), str(document)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (2, "UndoInput.may_reboot is missing")


# --- killed anywhere -----------------------------------------------------------------------------------------


def ends_everywhere(make: Any, run: Any, then: Any) -> list[DriverHost]:
    """Kill a run before each of its steps, and do something each time. Return the hosts afterwards."""
    hosts: list[DriverHost] = []
    for at in itertools.count():
        host = make()
        host.steps, host.kill_at = 0, at
        killed = True
        with suppress(Killed):
            run(host)
            killed = False
        host.kill_at = -1
        host.held.clear()
        if not killed:
            return hosts
        then(host)
        hosts.append(host)
    raise AssertionError


@pytest.mark.parametrize("undo", [UNDO, JUDGED], ids=["", "judged"])
def test_killed_while_it_is_installed_the_next_run_completes_it(undo: UndoInput) -> None:
    def again(host: DriverHost) -> None:
        install(given(undo=undo), host)
        host.boot()

    hosts = ends_everywhere(lambda: working(refused={NEW}), lambda host: install(given(undo=undo), host), again)
    assert len(hosts) > 20
    for host in hosts:
        assert serves(host, OLD), host.kill_at
        assert (host.left(), (host.read(REFUSED) or "").partition("\t")[0]) == ([], NEW)


def test_killed_while_it_is_installed_the_next_boot_goes_back_by_itself() -> None:
    """A boot in the middle of apt: what the kernel refuses goes; what is still the one before stays."""
    hosts = ends_everywhere(lambda: working(refused={NEW}), lambda host: install(given(), host), DriverHost.boot)
    for host in hosts:
        assert host.module == OLD
        assert not {DRIVER_UNDO_UNIT.removesuffix(".service")} & host.enabled or host.installed[DKMS] == BEFORE


def test_the_power_may_go_while_it_is_judged() -> None:
    hosts = ends_everywhere(lambda: installed(refused={NEW}), DriverHost.boot_once, DriverHost.boot)
    assert len(hosts) > 15
    for host in hosts:
        assert serves(host, OLD)
        # At most the unit is left, which does nothing without that folder.
        assert (host.entry(str(DRIVER_BEFORE)), (host.read(REFUSED) or "").partition("\t")[0]) == (None, NEW)


def test_the_power_may_go_while_a_slower_one_is_taken_back() -> None:
    def run(host: DriverHost) -> None:
        take_back(BACK, host)
        host.judge()

    def resume(host: DriverHost) -> None:
        host.boot()
        if host.entry(f"{DRIVER_BEFORE}/answered"):  # the next run measures again
            take_back(BACK, host)
            host.judge()
            host.boot()

    hosts = ends_everywhere(slower, run, resume)
    assert len(hosts) > 20
    for host in hosts:
        assert serves(host, OLD)
        assert (host.entry(str(DRIVER_BEFORE)), (host.read(REFUSED) or "").rstrip().split("\t")[-1]) == (None, "slower")


# --- loading and booting -------------------------------------------------------------------------------------


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
        require_booted(NothingInput(), host)
    host.boot()
    require_booted(NothingInput(), host)


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
        require_booted(NothingInput(), host)
        return
    with pytest.raises(FailedError):
        require_booted(NothingInput(), host)


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
        ({OLD}, f"{WENT}, which was here before, does not answer either"),
    ],
)
def test_a_host_that_went_back(hung: set[str], said: str) -> None:
    host = working(hung=hung)
    host.files[REFUSED] = File(f"{NEW}\topen nvidia\tat\t{OLD}\tit hangs\tslower\n")
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


@pytest.mark.parametrize(
    ("loaded", "said"),
    [
        (OLD, f"driver {NEW} was taken back, and {OLD} serves again: chat is slower by it: it's 5 %"),
        ("", f"driver {NEW} is to go, and {OLD} could not be brought back: chat is slower by it: it's 5 %"),
    ],
)
def test_a_driver_that_was_taken_back_fails_the_run(loaded: str, said: str) -> None:
    host = working()
    host.load_version(loaded)
    with pytest.raises(FailedError) as caught:
        report_taken_back(TakenBackInput(NEW, OLD, "chat is slower by it: it's 5 %"), host)
    assert caught.value.message == said
    assert caught.value.fix


def test_servers_that_start_are_waited_for() -> None:
    host = working(ends={"systemctl show -P ActiveState a.service b.service": Ended(0, "active\n\nactivating\n")})
    settle(SettleInput(("a.service", "b.service"), 7), host)
    assert 7 <= host.time < 8
    host = working(ends={"systemctl show -P": Ended(0, "active\n\nfailed\n")})
    settle(SettleInput(("a.service",), 7), host)
    assert host.time < 1


def test_what_was_measured_is_kept_for_root_alone() -> None:
    host = working()
    keep_reading(ReadingInput("{}"), host)
    assert host.files[str(DRIVER_READING)] == File("{}", 0o600)
    keep_reading(ReadingInput(""), host)
    assert host.read(str(DRIVER_READING)) is None
    host.full = "driver-reading"
    with pytest.raises(FailedError, match="cannot write"):
        keep_reading(ReadingInput("{}"), host)


# --- parts of the distribution -------------------------------------------------------------------------------

TARGETS = """\
Debian|main|http://deb.debian.org/debian/|trixie|/usr/share/keyrings/debian-archive-keyring.gpg
Debian|main|http://deb.debian.org/debian/|trixie|/usr/share/keyrings/debian-archive-keyring.gpg
Debian|main|http://deb.debian.org/debian/|trixie-updates|$(SIGNED_BY)
Debian|main|http://deb.debian.org/debian/|trixie-backports|
Debian|contrib|http://deb.debian.org/debian/|trixie|
Debian|main|http://deb.debian.org/debian/|bookworm|
nonsense
"""
SOURCES = """\
# Written by llamaherd for the driver of NVIDIA.
Types: deb
URIs: http://deb.debian.org/debian/
Suites: trixie
Components: contrib non-free
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://deb.debian.org/debian/
Suites: trixie-updates
Components: contrib non-free

"""
ADDED = "/etc/apt/sources.list.d/llamaherd-contrib-non-free.sources"
COMPONENTS = ComponentsInput(("contrib", "non-free"))


def release(**ends: Ended) -> DriverHost:
    """Return a host of Debian 13."""
    host = working(ends={"apt-get indextargets": Ended(0, TARGETS), **ends})
    host.files["/etc/os-release"] = File('NAME="Debian"\nVERSION_CODENAME=trixie\n')
    return host


def test_parts_come_from_where_the_distribution_does() -> None:
    host = release()
    add_components(COMPONENTS, host)
    assert host.files[ADDED] == File(SOURCES, 0o644)


def test_parts_that_are_not_there_are_not_added() -> None:
    host = release(**{"apt-get -q": Ended(100, "Err:1 x\nW: y\n", "E: z\nother\n")})
    with pytest.raises(FailedError, match="the distribution's contrib, non-free could not be had") as caught:
        add_components(COMPONENTS, host)
    assert caught.value.log == ("Err:1 x", "W: y", "E: z")
    assert host.read(ADDED) is None
    host = release()
    host.files.pop("/etc/os-release")
    with pytest.raises(FailedError, match="has no `main` of"):
        add_components(COMPONENTS, host)


# --- hostile texts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", PLAIN)
def test_no_shell_reads_a_value(text: str) -> None:
    host = slower()
    take_back(replace(BACK, why=text), host)
    host.judge()
    host.boot()
    assert serves(host, OLD)
    reboot(RebootInput(text, text), host)
    settle(SettleInput((text,), 1), host)
    with suppress(FailedError):
        load(LoadInput(text), host)
    assert not [each for each in host.done if each[0] == "sh" and each != ["sh", "-c", "command -v nvidia-smi"]]
