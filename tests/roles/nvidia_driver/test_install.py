"""The driver is installed on a played host: apt's plan is checked first, and what works is kept for the way back."""

from __future__ import annotations

from typing import Any

import pytest

from llamaherd.layout import (
    DRIVER_ARMED,
    DRIVER_BEFORE,
    DRIVER_KEPT,
    DRIVER_UNDO,
    DRIVER_UNDO_UNIT,
    DRIVER_WANTED,
)
from llamaherd.onhost.apt import LOG
from llamaherd.onhost.system import Ended, FailedError
from roles.nvidia_driver.onhost.packages import ComponentsInput, InstallInput, add_components, install
from roles.nvidia_driver.onhost.undo import UndoInput
from tests.support.driver_host import DAEMON, DKMS, DRIVER, KERNEL, LIBRARY, SMI, DriverHost
from tests.support.driver_inputs import (
    BEFORE,
    INSTALLED,
    KEPT,
    NEW,
    OLD,
    REFUSED,
    TO,
    UNDO,
    bytes_of,
    given,
    serves,
    working,
)
from tests.support.played_host import File


def test_a_driver_is_installed_kept_and_judged_at_the_next_boot() -> None:
    host = working()
    install(bytes_of(given(), InstallInput), host)
    assert host.installed == dict.fromkeys(DRIVER, TO)
    assert host.modules == {KERNEL: NEW}
    assert host.read(KEPT) == f"Pin: version {NEW}*\n"
    assert host.read(str(DRIVER_WANTED)) == f"wants {NEW}\n"
    assert host.log == [
        f"driver {OLD} is kept (0 MiB): the host restores it if {NEW} does not respond after the next boot",
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
    said = f"no driver responds now, so the host cannot roll back if {NEW} does not come up"
    assert (said in host.log) is (undo is not None)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"space": 10**9}, "its packages take 0 MiB"),
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
