"""apt's plans by the real apt, with packages as NVIDIA's repository has them, in a root folder of the test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from llamaherd.host.state import HostState, PackageState
from llamaherd.onhost import apt
from llamaherd.onhost.system import Ended, FailedError, Host
from roles.nvidia_driver import onhost
from roles.nvidia_driver.changes import NAMES as PATTERNS
from roles.nvidia_driver.changes import driver_changes
from roles.nvidia_driver.onhost import new_parts, packages, replaced_parts, undo
from roles.nvidia_driver.onhost.packages import AptPlan, InstallInput
from tests.support.apt_repository import AptRepository
from tests.support.deb import Package
from tests.support.nvidia_packages import debian_driver, metapackages, pinning
from tests.support.recording import input_of
from tests.support.rigs import gpu_rig, planned
from tests.support.states import with_driver
from tests.support.stores import needs_root

pytestmark = pytest.mark.usefixtures("starts_processes", "root")

OLD, NEW = "580.95.05", "590.48.01"
NAMES = (
    *("libcuda1", "libnvidia-ml1", "libnvidia-cfg1", "nvidia-smi", "nvidia-persistenced", "nvidia-driver-cuda"),
    *("firmware-nvidia-gsp", "nvidia-kernel-support", "nvidia-modprobe"),
)
DKMS = "nvidia-kernel-open-dkms"
ELSE = [Package("dkms", "3.1-1"), Package("nvidia-container-toolkit", "1.17-1", depends=(f"libcuda1 (= {OLD}-1)",))]


@pytest.fixture(scope="module")
def repository() -> Iterator[AptRepository]:
    """Return a repository with two branches, and what leads astray."""
    drivers = [each for version in (OLD, NEW) for each in debian_driver(version)]
    traps = [*metapackages(NEW, "13.1"), *ELSE, pinning("580"), pinning("590")]
    with AptRepository(*drivers, *traps) as made:
        yield made


@pytest.fixture
def root(repository: AptRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that apt and dpkg work in: nothing of this machine is read or changed."""
    folders = ("var/lib/apt/lists/partial", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log/apt")
    for each in ("etc/apt/preferences.d", "etc/apt/apt.conf.d", *folders):
        (tmp_path / each).mkdir(parents=True)
    (tmp_path / "var/cache/apt/archives/partial").mkdir(parents=True)
    (tmp_path / "etc/apt/sources.list").write_text(f"deb [trusted=yes] {repository.url} ./\n")
    (tmp_path / "apt.conf").write_text(
        f'Dir "{tmp_path}";\nDir::State::status "{tmp_path}/var/lib/dpkg/status";\nAPT::Architecture "amd64";\n'
        'APT::Architectures "amd64";\nAPT::Sandbox::User "root";\nAcquire::Languages "none";\n'
        f'DPkg::Options {{ "--root={tmp_path}"; }};\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    monkeypatch.setenv("DPKG_ADMINDIR", str(tmp_path / "var/lib/dpkg"))
    for module, name, path in (
        (apt, "LOG", "apt.log"),
        (onhost, "LOG", "apt.log"),
        (packages, "_PREFERENCES", "etc/apt/preferences.d"),
        (packages, "_STAGED", "staged"),
        (undo, "_NEW", "kept"),
        (undo, "APT_ARCHIVES", "var/cache/apt/archives"),
        (undo, "BEFORE", "before"),
    ):
        monkeypatch.setattr(module, name, str(tmp_path / path))
    monkeypatch.setattr(undo, "SPARE_BYTES", 0)
    installed(tmp_path, *NAMES, DKMS, "dkms")
    (tmp_path / "kept" / "debs").mkdir(parents=True)
    host = Host(print, print)
    packages.update_lists(host)
    assert "Reading package lists" in (host.read(str(tmp_path / "apt.log")) or "")
    return tmp_path


def installed(root: Path, *names: str, version: str = OLD) -> None:
    """Let dpkg know these packages as installed."""
    known = [*debian_driver(version), *ELSE]
    stanzas = [f"Status: install ok installed\n{each.control}" for each in known if each.name in names]
    (root / "var/lib/dpkg/status").write_text("\n".join(stanzas))


def plan(version: str = NEW, *, have: str = OLD) -> tuple[AptPlan, list[str]]:
    """Return apt's plan for a branch by the input of a real change, and its words."""
    wanted = planned(gpu_rig(), {"host/os": "debian-13", "gpus/driver": {"branch": int(version[:3])}})
    state = HostState()
    state = with_driver(state, packages={name: PackageState(f"{have}-1", "nvidia") for name in (*NAMES, DKMS)})
    given = input_of(driver_changes(wanted, state)[-1], InstallInput)
    made = AptPlan(replace(given, headers=()), Host(print, print))
    return made, made.words()


def test_a_plan_moves_all_parts_to_the_declared_branch() -> None:
    found, words = plan()
    assert {*words} == {*NAMES, DKMS, "dkms"}
    assert (found.version, found.pinning) == (NEW, "nvidia-driver-pinning-590")
    actions = found.simulate(words)
    comes = {each.name: each.version for each in actions if each.what == "Inst"}
    assert comes["libcuda1"] == comes[DKMS] == comes["nvidia-smi"] == NEW
    assert set(replaced_parts(actions, PATTERNS)) == {*NAMES, DKMS}
    assert new_parts(actions, PATTERNS) == ["nvidia-driver-pinning-590"]


def test_a_version_goes_back_where_an_older_branch_is_declared(root: Path) -> None:
    installed(root, *NAMES, DKMS, "dkms", version=NEW)
    found, words = plan(OLD, have=NEW)
    comes = {each.name: each.version for each in found.simulate(words) if each.what == "Inst"}
    assert comes["libcuda1"] == comes[DKMS] == OLD


def test_what_is_no_part_of_a_driver_is_not_removed(root: Path) -> None:
    installed(root, *NAMES, DKMS, "dkms", "nvidia-container-toolkit")
    found, words = plan()
    with pytest.raises(FailedError) as caught:
        found.simulate(words)
    assert caught.value.log == ("  would remove nvidia-container-toolkit, which is no part of a driver",)


def test_a_branch_that_the_repository_does_not_have() -> None:
    with pytest.raises(FailedError) as caught:
        plan("610.43.02")
    assert caught.value.message == "NVIDIA's repository has no driver 610 (nvidia-driver-cuda)"
    assert caught.value.fix == f"it has {OLD} {NEW}; declare one of these, or another `from`"


def test_why_apt_finds_no_way() -> None:
    found, words = plan()
    with pytest.raises(FailedError, match="apt finds no way to driver 590") as caught:
        found.simulate([*words, f"libcuda1={OLD}-1"])
    assert any("Depends:" in line for line in caught.value.log)


def test_packages_are_kept_from_where_apt_stores_them_and_from_the_repository(
    root: Path, repository: AptRepository
) -> None:
    archives = root / "var/cache/apt/archives"
    stored = next(each for each in debian_driver(OLD) if each.name == "libcuda1")
    (archives / stored.filename).write_bytes(stored.deb)
    broken = next(each for each in debian_driver(OLD) if each.name == "nvidia-smi")
    (archives / broken.filename).write_bytes(broken.deb[:200])
    repository.requests.clear()
    size = undo.keep_packages(Host(print, print), [*NAMES, DKMS])
    kept = {each.name: each.read_bytes() for each in (root / "kept" / "debs").iterdir()}
    debs = {each.filename: each.deb for each in debian_driver(OLD) if each.name in (*NAMES, DKMS)}
    assert kept == debs
    assert size == sum(map(len, debs.values()))
    assert stored.filename not in repository.requests
    assert broken.filename in repository.requests


def test_packages_that_are_gone_cannot_be_kept(root: Path, repository: AptRepository) -> None:
    installed(root, *NAMES, version="570.1.1")
    with pytest.raises(FailedError, match=r"570\.1\.1"):
        undo.keep_packages(Host(print, print), NAMES)
    installed(root, *NAMES)
    repository.status = 503
    try:
        with pytest.raises(FailedError, match=r"503|Failed to fetch"):
            undo.keep_packages(Host(print, print), NAMES)
    finally:
        repository.status = 200


@needs_root
def test_a_driver_is_installed_and_the_one_before_is_restored_without_a_network(
    root: Path, repository: AptRepository
) -> None:
    """Without modules, whose scripts need a whole system below them."""
    installed(root, *NAMES, "dkms")
    host = Host(print, print)
    found, words = plan()
    packages.install_packages(host, [found.pinning, *(each for each in words if each != DKMS)])
    assert versions(root) == {**dict.fromkeys(NAMES, f"{NEW}-1"), "dkms": "3.1-1", found.pinning: "590-1"}
    debs = root / "before" / "debs"
    debs.mkdir(parents=True)
    for each in debian_driver(OLD):
        if each.name in NAMES:
            (debs / each.filename).write_bytes(each.deb)
    (root / "before" / "new").write_text(f"{found.pinning}\n")
    repository.status = 503
    try:
        assert undo.install_kept(host)
    finally:
        repository.status = 200
    assert versions(root) == {**dict.fromkeys(NAMES, f"{OLD}-1"), "dkms": "3.1-1"}


def versions(root: Path) -> dict[str, str]:
    """Return the versions of installed packages, by dpkg."""
    words = ["dpkg-query", "--admindir", str(root / "var/lib/dpkg"), "-W", "-f"]
    listed = subprocess.run([*words, "${db:Status-Status} ${Package} ${Version}\n"], capture_output=True, text=True)
    found = [line.split() for line in listed.stdout.splitlines()]
    return {name: version for status, name, version in found if status == "installed"}


def test_removed_pinning_packages_are_found(root: Path) -> None:
    control = pinning("570").control
    status = root / "var/lib/dpkg/status"
    status.write_text(f"Status: deinstall ok config-files\n{control}Conffiles:\n /etc/x 0\n")
    purged: list[list[str]] = []

    class Noted(Host):
        def run_logged(
            self, argv: Sequence[str], log: str, *, seconds: float, heard: Callable[[str], None] | None = None
        ) -> Ended:
            del heard
            purged.append(list(argv))
            return super().run_logged(["true"], log, seconds=seconds)

    onhost.purge_pinning(Noted(print, print))
    assert [each[-3:] for each in purged] == [["dpkg", "--purge", "nvidia-driver-pinning-570"]]
    assert os.environ["DPKG_ADMINDIR"].startswith(str(root))
