"""Install NVIDIA's driver: apt's plan is checked first, so that a host that cannot have it stays as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from llamaherd.layout import DRIVER_KEPT
from llamaherd.onhost.apt import LOCK_SECONDS, LOG, lock_help, lock_holder, start_log
from llamaherd.onhost.clients import systemctl
from llamaherd.onhost.document import Secret
from llamaherd.onhost.files import WrittenFile, write_files
from llamaherd.onhost.services import locked
from llamaherd.onhost.system import Ended, FailedError, System
from llamaherd.onhost.verbs import Verb
from roles.nvidia_driver.onhost import (
    PERSISTENCE,
    Action,
    Names,
    compile_modules,
    disarm,
    find_problems,
    is_named,
    loaded_version,
    module_version,
    next_kernel,
    parse_simulation,
    purge_pinning,
    run_admin,
    run_logged,
    running_kernel,
    upstream,
    version_order,
)
from roles.nvidia_driver.onhost.undo import DriverRollback, keep_driver

VERSION = "@VERSION@"
"""Stands for the installed version in the preferences that keep it."""
_PREFERENCES = "/etc/apt/preferences.d"
_STAGED = "/run/llamaherd/driver-preferences"
"""The host's preferences and ours, for apt's plan."""
_PLAN_SECONDS = 1800
"""For a question to apt: it waits for other processes that install, and matches preferences with all packages."""
_TRIES, _PAUSE = 120, 5
_NONE = ("", "(none)")
_LAST, _SHOWN, _REASONS = 12, 8, 5


@dataclass(frozen=True)
class DriverInput:
    """The declared driver."""

    branch: str
    version: str | None
    library: str
    """The package whose version is the driver's."""
    beside: tuple[str, ...]
    """Packages that are taken where there are such."""
    pinning: tuple[str, ...]
    """NVIDIA's own preferences. The first that exists comes before the driver."""
    prebuilt: bool
    """Whether the distribution has compiled its modules."""
    source: str
    """Where it comes from, for messages."""

    @property
    def wanted(self) -> str:
        """Return what is declared: `580`, or `580.95.05`."""
        return self.version or self.branch

    def wants(self, version: str) -> bool:
        """Return whether a version of a package is as declared."""
        return version == self.wanted or version.startswith((f"{self.wanted}.", f"{self.wanted}-"))


@dataclass(frozen=True)
class InstallInput:
    """What a host needs for the declared driver."""

    driver: DriverInput
    packages: tuple[str, ...]
    headers: tuple[str, ...]
    """Kernels that modules cannot be compiled for yet."""
    leftovers: tuple[str, ...]
    """Installed packages of another branch or version."""
    names: Names
    wanted: WrittenFile
    """The preferences for the declared driver."""
    files: tuple[WrittenFile, ...]
    """The other files that are written before it is installed."""
    kept: WrittenFile
    """The preferences that keep the installed version, in whose text VERSION stands for it."""
    moves: bool
    """Whether another version comes than is installed."""
    way_back: DriverRollback | None
    in_container: bool
    """Whether the kernel is that of another host."""


@dataclass(frozen=True)
class ComponentsInput:
    """Components of the distribution's repository that are not in apt's sources."""

    components: tuple[str, ...]


def install(given: InstallInput, system: System) -> None:
    """Install the driver, and what keeps it. Raise FailedError; before apt's plan is approved, nothing is changed."""
    with locked(system, "NVIDIA's driver"):
        start_log(system, f"driver {given.driver.wanted}")
        update_lists(system)
        try:
            plan = AptPlan(given, system)
            words = plan.words()
            actions = plan.simulate(words)
        finally:
            system.remove(_STAGED)
        if given.way_back:
            keep_driver(system, given.way_back, actions, given.names, plan.version)
        write_files(system, [given.wanted, *given.files])
        if given.moves:
            system.remove(str(DRIVER_KEPT))
        if plan.pinning:
            install_packages(system, [plan.pinning])
        install_packages(system, words)
        purge_pinning(system)
        _complete(given, system)


def _complete(given: InstallInput, system: System) -> None:
    """Keep the installed version, and make sure that the next boot loads it."""
    library = system.run(["dpkg-query", "-W", "-f", "${Version}", given.driver.library]).out
    version = upstream(library)
    text = given.kept.text.text.replace(VERSION, version)
    write_files(system, [replace(given.kept, text=Secret(text))])
    if not given.driver.prebuilt:
        for kernel in sorted({running_kernel(system), next_kernel(system)}):
            if system.names(f"/lib/modules/{kernel}/build"):
                compile_modules(system, kernel, version)
    _require_module(given, version, system)
    if not run_admin(system, ["sh", "-c", "command -v nvidia-smi"]).ok:
        raise FailedError(f"driver {version} is installed, and brought no nvidia-smi")
    _enable_persistence(version, system)
    # What the kernel has already needs no boot that judges it.
    if given.way_back and loaded_version(system) == version:
        disarm(system)
    system.report(f"driver {version} is installed")


def _require_module(given: InstallInput, version: str, system: System) -> None:
    """Raise FailedError unless the kernel that the next boot starts has the module."""
    kernel = next_kernel(system)
    found = module_version(system, kernel)
    if found == version or (given.in_container and loaded_version(system) == version):
        return
    has = found or "no module of it"
    raise FailedError(
        f"driver {version} is installed, and kernel {kernel}, which the next boot starts, has {has}",
        f"`dkms status` and {LOG} on the host show why; without headers of that kernel none can be compiled",
        _compiler_log(system),
    )


def _enable_persistence(version: str, system: System) -> None:
    """Start the persistence daemon at boot."""
    systemctl(system, "daemon-reload")
    if not systemctl(system, "cat", PERSISTENCE).ok:
        raise FailedError(f"driver {version} is installed, and brought no nvidia-persistenced")
    state = systemctl(system, "is-enabled", PERSISTENCE).out.strip()
    if state not in ("masked-runtime", "disabled", "masked"):
        return
    runtime = ["--runtime"] if state == "masked-runtime" else []
    systemctl(system, "-q", "unmask", *runtime, PERSISTENCE)
    if not systemctl(system, "-q", "enable", PERSISTENCE).ok:
        raise FailedError(f"cannot enable {PERSISTENCE}", f"see `systemctl status {PERSISTENCE}`")


def update_lists(system: System) -> None:
    """Complete what was left half-way, and let apt read its lists.

    Raise FailedError where another process holds apt for too long.
    """
    for _ in range(_TRIES):
        ended = run_logged(system, "dpkg", "--configure", "-a")
        if ended.ok:
            ended = run_logged(system, "apt-get", "-q", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}", "update")
        if ended.ok or not re.search("Could not get lock|locked by another|is held by process", ended.out):
            return
        system.sleep(_PAUSE)
    if held := lock_holder(system):
        raise FailedError(f"apt is held by {held} for more than ten minutes", "let it end, or end it, and run again")


class AptPlan:
    """What apt is to install, by the host's preferences and those that are to be written."""

    def __init__(self, given: InstallInput, system: System) -> None:
        self._given, self._system = given, system
        self._stage()
        driver = given.driver
        headers = [f"linux-headers-{kernel}" for kernel in given.headers]
        # All at once: apt takes seconds to match preferences with all packages.
        names = [driver.library, *driver.beside, *driver.pinning, *given.leftovers, *headers]
        output = self._apt("apt-cache", "policy", *names)
        self._candidates: dict[str, str] = {}
        name = ""
        for line in output.out.splitlines():
            if line[:1].strip():
                name = line.strip().removesuffix(":")
            elif line.startswith("  Candidate: "):
                self._candidates[name] = re.sub(r"^[0-9]*:", "", line.split()[1])
        self.version = upstream(self._candidate(driver.library))
        """Of the driver that would be installed."""
        existing = (each for each in driver.pinning if self._candidate(each) not in _NONE)
        self.pinning = next(existing, "")

    def words(self) -> list[str]:
        """Return the packages, with a `-` behind those that go. Raise FailedError where one is missing."""
        given, driver = self._given, self._given.driver
        if not driver.wants(self._candidate(driver.library)):
            raise self._no_such_driver()
        words = [*given.packages]
        words += [each for each in driver.beside if self._candidate(each).startswith(f"{driver.branch}.")]
        words += [f"linux-headers-{kernel}" for kernel in given.headers if self._has_headers(kernel)]
        # What is of another branch moves to the new one, if that has it by the same name; otherwise it goes.
        for each in given.leftovers:
            if each in words:
                continue
            if driver.wants(self._candidate(each)):
                words.append(each)
            elif not is_named(each, given.names.tools):
                words.append(f"{each}-")
        return words

    def simulate(self, words: Sequence[str]) -> list[Action]:
        """Return what apt would do. Raise FailedError where it finds no way, or does more than that."""
        given, wanted = self._given, self._given.driver.wanted
        pinning = [self.pinning] if self.pinning else []
        how = ("-s", "install", "--no-install-recommends", "--allow-downgrades")
        ended = self._apt("apt-get", *how, *pinning, *words)
        output = ended.out + ended.err
        if not ended.ok:
            run_logged(self._system, "printf", "%s\n", output)
            why = [line for line in output.splitlines() if line.startswith((" ", "E:"))]
            raise FailedError(f"apt finds no way to driver {wanted}; nothing was changed", log=why[-_LAST:])
        actions = parse_simulation(output)
        problems = [f"  {each}" for each in find_problems(actions, given.names, given.driver.branch)]
        if problems:
            raise FailedError(
                f"apt's way to driver {wanted} does more than that; nothing was changed",
                "remove what is named yourself, or bring it to the declared branch, then run this again",
                problems,
            )
        return actions

    def _stage(self) -> None:
        """Copy the host's preferences, with ours among them."""
        system, given = self._system, self._given
        system.remove(_STAGED)
        system.folder(_STAGED)
        for name in system.names(_PREFERENCES):
            if not (given.moves and name == DRIVER_KEPT.name):
                with suppress(OSError):  # a folder is nothing that apt reads
                    system.copy(f"{_PREFERENCES}/{name}", f"{_STAGED}/{name}")
        ours = f"{_STAGED}/{given.wanted.path.rpartition('/')[2]}"
        write_files(system, [replace(given.wanted, path=ours)])

    def _apt(self, program: str, *words: str) -> Ended:
        options = (f"Dir::Etc::preferencesparts={_STAGED}", f"DPkg::Lock::Timeout={LOCK_SECONDS}")
        given = [word for each in options for word in ("-o", each)]
        return run_admin(self._system, [program, "-q", *given, *words], _PLAN_SECONDS)

    def _candidate(self, package: str) -> str:
        """Return the version that apt would install, without its epoch; empty or `(none)` where it has none."""
        return self._candidates.get(package, "")

    def _no_such_driver(self) -> FailedError:
        driver = self._given.driver
        listed = self._system.run(["apt-cache", "-q", "madison", driver.library], seconds=_PLAN_SECONDS)
        columns = [line.split("|") for line in listed.out.splitlines()]
        versions = {upstream(each[1].strip()) for each in columns if len(each) > 1}
        has = " ".join(sorted(versions, key=version_order)[-_SHOWN:]) or "none"
        message = f"{driver.source} has no driver {driver.wanted} ({driver.library})"
        return FailedError(message, f"it has {has}; declare one of these, or another `from`")

    def _has_headers(self, kernel: str) -> bool:
        """Return whether apt has the headers of a kernel. Raise FailedError where the next boot needs them."""
        if self._candidate(f"linux-headers-{kernel}") not in _NONE:
            return True
        is_next = kernel == next_kernel(self._system) and not self._given.in_container
        # A module of another version does not help: that goes with its driver.
        if is_next and module_version(self._system, kernel) != self.version:
            what = f"apt has no linux-headers-{kernel}"
            raise FailedError(
                f"there are no headers of kernel {kernel}, which the next boot starts: {what}",
                "reboot into a kernel that the distribution still has, and run this again",
            )
        return False


def install_packages(system: System, words: Sequence[str]) -> None:
    """Install packages, and remove those with a `-`. Raise FailedError."""
    conf = ("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")
    how = ("install", "--no-install-recommends", "--allow-downgrades")
    wait = ("-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}")
    ended = run_logged(system, "apt-get", "-q", "-y", *wait, *conf, *how, *words)
    if not ended.ok:
        raise FailedError(
            f"apt could not install: {' '.join(words)}. The whole log is {LOG} on the host.",
            lock_help(system, ended),
            [*ended.out.splitlines()[-_LAST:], *_compiler_log(system)],
        )


def _compiler_log(system: System) -> list[str]:
    """Return the last lines of what dkms has logged of the driver's modules."""
    found = []
    for name in system.names("/var/lib/dkms"):
        if name.startswith("nvidia"):
            for version in system.names(f"/var/lib/dkms/{name}"):
                log = f"/var/lib/dkms/{name}/{version}/build/make.log"
                found += system.run(["tail", "-n", str(_SHOWN), log]).out.splitlines()
    return found


def add_components(given: ComponentsInput, system: System) -> None:
    """Add parts of the distribution's repository to apt: the same address, suites and key as the host's own sources.

    Raise FailedError where they are not there; nothing is added then.
    """
    names = ", ".join(given.components)
    file = f"/etc/apt/sources.list.d/llamaherd-{'-'.join(given.components)}.sources"
    with locked(system, "parts of the distribution's repository"):
        found = re.search(r'^VERSION_CODENAME="?([^"\n]*)', system.read("/etc/os-release") or "", re.MULTILINE)
        suite = found[1] if found else ""
        columns = "$(ORIGIN)|$(COMPONENT)|$(REPO_URI)|$(RELEASE)|$(SIGNED_BY)"
        targets = ["apt-get", "indextargets", "--format", columns, "Created-By: Packages"]
        text = _sources(run_admin(system, targets, _PLAN_SECONDS).out, suite, given.components)
        if not text:
            message = f"apt on this host has no `main` of {suite}, so it is not known where {names} would come from"
            raise FailedError(message, "see /etc/apt/sources.list and /etc/apt/sources.list.d on the host")
        system.write(file, f"# Written by llamaherd for the driver of NVIDIA.\n{text}", mode=0o644)
        strict = ("-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}", "-o", "APT::Update::Error-Mode=any")
        ended = run_admin(system, ["apt-get", "-q", *strict, "update"], _PLAN_SECONDS)
        if not ended.ok:
            system.remove(file)
            why = [line for line in (ended.out + ended.err).splitlines() if line.startswith(("E", "W"))]
            raise FailedError(f"the distribution's {names} could not be had; nothing was added", log=why[:_REASONS])


def _sources(listed: str, suite: str, components: Sequence[str]) -> str:
    """Return apt's sources for components of a release, from the list of its sources."""
    found: dict[tuple[str, str], str] = {}
    for line in listed.splitlines():
        _, component, address, release, key = [*line.split("|"), "", "", "", ""][:5]
        # Suites of this release, from any mirror; backports are no part of it.
        is_ours = release == suite or release.startswith(f"{suite}-")
        if component != "main" or not suite or not is_ours or re.search("-(backports|proposed)", release):
            continue
        signed = f"Signed-By: {key}\n" if key and not key.startswith("$") else ""
        what = f"Types: deb\nURIs: {address}\nSuites: {release}\nComponents: {' '.join(components)}\n"
        found.setdefault((address, release), f"{what}{signed}\n")
    return "".join(found.values())


VERBS = {"install": Verb(InstallInput, install), "add_components": Verb(ComponentsInput, add_components)}
