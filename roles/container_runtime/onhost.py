"""The container runtime's part of the program on hosts: Docker, its settings, NVIDIA's container toolkit, inspection.

The connection to the host may depend on Docker. The host undoes each change of Docker unless a new login follows.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from llamaherd.layout import UNDO_RUN
from llamaherd.onhost.apt import install as install_packages
from llamaherd.onhost.apt import install_missing, installed_versions, refresh
from llamaherd.onhost.clients import QUERY_SECONDS, docker, docker_runs, query_docker, systemctl
from llamaherd.onhost.docker_api import query_api
from llamaherd.onhost.document import Secret
from llamaherd.onhost.files import WrittenFile, is_file, resolve, write_files
from llamaherd.onhost.services import journal, last_lines, locked, require_success, show_units
from llamaherd.onhost.system import FailedError, System, UnknownStateError
from llamaherd.onhost.undo import arm, arm_within, forget_undone, stop_timer, undoing
from llamaherd.onhost.verbs import NoInput, Verb

UNDO = "docker"
"""The name of the undo of all changes here."""
BACKUP = ".before-llamaherd"
"""Behind the name of Docker's settings: as they were before the first change."""
SETTINGS = f"{UNDO_RUN}/docker.settings"
"""Docker's settings as they were before this change."""
RUNTIME = "nvidia"
_SERVICE = "docker.service"
_UNITS = (_SERVICE, "docker.socket", "containerd.service")
_REFRESH = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/snap/bin")
_SNAP = "/usr/bin/snap"
"""The program that runs those of snaps, by their names."""
_BRIDGE = re.compile(r"docker0|br-[0-9a-f]{12}")
_RESTART_SECONDS, _START_SECONDS, _CLIENT_SECONDS = 600, 180, 20
_LINES = 10

Query = Callable[[Sequence[str], float], list[object]]
"""Queries Docker's API, as `query_api`."""


@dataclass(frozen=True)
class Within:
    """Seconds after which the host undoes a change, unless a login disarms that."""

    longest: int
    """From before the change to its end."""
    login: int
    """From its end on."""


@dataclass(frozen=True)
class InstallInput:
    """Docker and Compose, with the packages that are missing."""

    packages: tuple[str, ...]
    within: Within


@dataclass(frozen=True)
class UndoInstallInput:
    """The network bridges that there were before Docker started."""

    bridges: tuple[str, ...]


@dataclass(frozen=True)
class WireInput:
    """What gives GPUs to containers."""

    path: str
    """Docker's settings."""
    before: str
    """Their sha256 when they were read; empty where there were none."""
    settings: Secret
    """Their new text, which may contain the password of a proxy; empty where they stay."""
    order: tuple[WrittenFile, ...]
    devices: tuple[str, ...]
    may_restart: bool
    """Whether containers that run may be restarted."""
    within: Within


@dataclass(frozen=True)
class UndoWiringInput:
    """What runs before Docker is restarted, and the settings to restore; empty where they were not changed."""

    path: str
    running: tuple[str, ...]


@dataclass(frozen=True)
class ToolkitInput:
    """NVIDIA's container toolkit: all of its packages at one version, which apt then keeps."""

    packages: tuple[str, ...]
    version: str
    """Without the distribution's part; empty for the newest."""
    preferences: WrittenFile
    """With `@version@` in it."""


# --- Docker -------------------------------------------------------------------------------------------------


def install(given: InstallInput, system: System) -> None:
    """Install Docker and Compose, and run Docker, now and after each boot. Raise FailedError where it does not run."""
    is_new = not systemctl(system, "-q", "is-active", _SERVICE).ok
    if is_new:
        # Its network may be one that the host uses already: responses to the controller would go there.
        undo = UndoInstallInput(tuple(_bridges(system)))
        arm(system, UNDO, given.within.longest, "container_runtime.undo_install", undo)
    if given.packages:
        install_missing(system, given.packages)
    require_success(systemctl(system, "-q", "enable", _SERVICE), "Docker cannot be enabled")
    systemctl(system, "reset-failed", *_UNITS[:2])
    # Not waited for: its unit may take any time to start.
    require_success(systemctl(system, "start", "--no-block", _SERVICE), "Docker cannot be started")
    if not _responds(system):
        message = "Docker does not respond; its last lines are above, all of them in: journalctl -u docker"
        raise FailedError(message, log=journal(system, ["docker"], _LINES))
    if is_new:
        arm_within(system, UNDO, given.within.login)


def _bridges(system: System) -> list[str]:
    return [each for each in system.names("/sys/class/net") if _BRIDGE.fullmatch(each)]


def _responds(system: System) -> bool:
    """Return whether Docker responds within three minutes: with many containers it takes one to start.

    Its client waits without end at a socket that systemd holds while the daemon behind it fails again and again.
    """
    until = system.now() + _START_SECONDS
    while not system.run(["docker", "info"], seconds=_CLIENT_SECONDS).ok:
        if system.now() >= until or systemctl(system, "-q", "is-failed", _SERVICE).ok:
            return False
        system.sleep(1)
    return True


def undo_install(given: UndoInstallInput, system: System) -> None:
    """Stop Docker, and remove the networks that it has made."""
    with undoing(system, UNDO) as is_due:
        if not is_due:
            return
        systemctl(system, "disable", "--now", *_UNITS, seconds=_RESTART_SECONDS)
        for each in _bridges(system):
            if each not in given.bridges:
                system.run(["ip", "link", "delete", each])


def confirm(_: NoInput, __: System) -> None:
    """Change nothing: the login that follows disarms the undo of an earlier run."""


# --- GPUs for containers ------------------------------------------------------------------------------------


def wire(given: WireInput, system: System) -> None:
    """Apply Docker's settings and what describes GPUs, and restart Docker for what it still lacks.

    Raise FailedError where it does not come up with new settings, which are rolled back then.
    """
    wiring = _Wiring(given, system)
    with locked(system, "Docker's settings"):
        if given.settings.text:
            wiring.apply_settings()
        write_files(system, given.order)
        systemctl(system, "daemon-reload")
        _enable_descriptions(system)
        _describe(given.devices, system)
        wiring.load()
        responds = _responds(system)
        if wiring.is_armed:
            arm_within(system, UNDO, given.within.login)
        if given.settings.text and not responds:
            raise wiring.rolled_back()
        if not (responds and _has_cdi(system) and _has_runtime(system)):
            message = (
                "Docker gives no cards to containers, although its settings enable it; its last log lines are above"
            )
            raise FailedError(message, log=journal(system, ["docker"], _LINES))


class _Wiring:
    """One application of settings. The undo is armed once, before the first change that may cut the connection."""

    def __init__(self, given: WireInput, system: System) -> None:
        self._given, self._system = given, system
        self.is_armed = False
        self._undo = UndoWiringInput("", ())

    def apply_settings(self) -> None:
        """Write Docker's settings once Docker accepts them. Raise FailedError, and leave them as they were."""
        given, system = self._given, self._system
        path = _resolved(given.path, system)
        there = system.entry(path) is not None
        # What another program has written since the inspection is not lost.
        if (system.run(["sha256sum", path]).out[:64] if there else "") != given.before:
            raise FailedError(f"{given.path} has changed while this ran, and was left alone; run again")
        new = f"{path}.llamaherd-new"
        if there and not system.entry(path + BACKUP):
            system.copy(path, path + BACKUP)
        system.write(new, given.settings.text, mode=0o644)
        for command in ("chmod", "chown") if there else ():
            system.run([command, f"--reference={path}", new])
        checked = system.run(["dockerd", "--validate", "--config-file", new], seconds=60)
        if not checked.ok:
            system.remove(new)
            message = f"Docker would not start with {given.path} as it would be; it was left as it was"
            raise FailedError(message, log=last_lines(checked, 3))
        system.folder(str(UNDO_RUN), mode=0o700)
        system.remove(SETTINGS)
        if there:
            system.copy(path, SETTINGS)
        self._arm()
        system.rename(new, path)

    def _arm(self) -> None:
        """Record what runs now and the settings of before: the connection may go through a container."""
        if self.is_armed:
            return
        given, system = self._given, self._system
        running = docker(system, "ps", "-q", "--no-trunc").out.split()
        self._undo = UndoWiringInput(given.path if given.settings.text else "", tuple(running))
        arm(system, UNDO, given.within.longest, "container_runtime.undo_wiring", self._undo)
        self.is_armed = True

    def load(self) -> None:
        """Let the daemon that runs read what it lacks. Raise FailedError where that needs a restart that is refused."""
        system = self._system
        if _has_cdi(system) and not _has_runtime(system):
            # Runtimes are read anew while containers run; CDI is not.
            systemctl(system, "reload", "docker")
            system.sleep(1)
        if _has_cdi(system) and _has_runtime(system):
            return
        if not self._given.may_restart:
            _require_no_containers(system)
        system.report("restarting Docker")
        self._arm()
        systemctl(system, "restart", "docker", seconds=_RESTART_SECONDS)

    def rolled_back(self) -> FailedError:
        """Restore the settings of before, and return the failure."""
        system = self._system
        log = journal(system, ["docker"], _LINES)
        stop_timer(system, UNDO)
        undo_wiring(self._undo, system)
        forget_undone(system, UNDO)
        message = f"Docker does not come up with {self._given.path} as it would be"
        if _responds(system):
            return FailedError(f"{message}: the one before is back, and what ran is started again", log=log)
        help_ = "its last lines are above, all of them in: journalctl -u docker"
        return FailedError(f"{message}, and with the one before, which is back, no more", help_, log)


def _resolved(path: str, system: System) -> str:
    """Return what a path leads to: settings may be a link."""
    return system.run(["readlink", "-f", path]).out.strip() or path


def undo_wiring(given: UndoWiringInput, system: System) -> None:
    """Restore Docker's settings, restart Docker, and start the containers that ran."""
    with undoing(system, UNDO) as is_due:
        if not is_due:
            return
        if given.path:
            path = _resolved(given.path, system)
            if system.entry(SETTINGS):
                system.copy(SETTINGS, path)
            else:
                system.remove(path)
        systemctl(system, "reset-failed", *_UNITS[:2])
        systemctl(system, "restart", "docker", seconds=_RESTART_SECONDS)
        if given.running:
            docker(system, "start", *given.running)


def _enable_descriptions(system: System) -> None:
    """Let the host describe its GPUs for containers at each boot. Raise FailedError."""
    for unit in _REFRESH:
        if systemctl(system, "cat", unit).ok:
            require_success(systemctl(system, "-q", "enable", unit), f"{unit} cannot be enabled")
    systemctl(system, "-q", "start", "nvidia-cdi-refresh.path")


def _describe(devices: Sequence[str], system: System) -> None:
    """Describe GPUs for containers. Raise FailedError where one is missing."""

    def known() -> list[str]:
        listed = system.run(["nvidia-ctk", "cdi", "list"], seconds=_CLIENT_SECONDS)
        return listed.out.splitlines() if listed.ok else []

    if set(devices) <= set(known()):
        return
    systemctl(system, "restart", "nvidia-cdi-refresh.service")
    found = known()
    if not set(devices) <= set(found):
        cards = " ".join(each for each in found if "nvidia.com/" in each)
        raise FailedError(
            f"CDI describes no such card: {', '.join(devices)}",
            f"it describes {cards}; does `nvidia-smi -L` list the declared cards?",
            journal(system, ["nvidia-cdi-refresh"], 5),
        )


def _has_runtime(system: System) -> bool:
    names = docker(system, "info", "--format", "{{range $name, $each := .Runtimes}}{{println $name}}{{end}}")
    return RUNTIME in names.out.splitlines()


def _has_cdi(system: System) -> bool:
    return "/" in docker(system, "info", "--format", "{{json .CDISpecDirs}}").out


def _require_no_containers(system: System) -> None:
    """Raise FailedError where a restart of Docker would stop containers."""
    running = docker(system, "ps", "--format", "{{.Names}}").out.split()
    lives = docker(system, "info", "--format", "{{.LiveRestoreEnabled}}").out.strip()
    if running and lives != "true":
        raise FailedError(
            f"Docker must be restarted once to give cards to containers, and these run: {' '.join(running)}",
            "stop them, or write `restart_docker: true` under `gpus: container_toolkit:`; then run again",
        )


# --- NVIDIA's container toolkit -----------------------------------------------------------------------------


def install_toolkit(given: ToolkitInput, system: System) -> None:
    """Install NVIDIA's container toolkit. Raise FailedError where not all of its packages have the version."""
    with locked(system, "NVIDIA's container toolkit"):
        refresh(system)
        version = _version(given, system)
        text = given.preferences.text.text.replace("@version@", version)
        system.write(given.preferences.path, text, mode=given.preferences.mode)
        packages = [f"{each}={version}" for each in given.packages]
        what = f"apt could not install NVIDIA's container toolkit {version}"
        install_packages(system, packages, what, "--allow-downgrades")
        system.report(f"NVIDIA's container toolkit is at {version}")


def _version(given: ToolkitInput, system: System) -> str:
    """Return the newest version that all packages have. Raise FailedError where there is none."""
    listed = [system.run(["apt-cache", "madison", each]).out.splitlines() for each in given.packages]
    have = [{line.split("|")[1].strip() for line in lines if line.count("|") > 1} for lines in listed]
    common = sorted(set.intersection(*have))
    wanted = [each for each in common if given.version in ("", each, each.partition("-")[0])]
    if not wanted:
        raise FailedError(
            "none of this host's repositories has all packages of NVIDIA's container toolkit at "
            f"{given.version or 'one version'}",
            f"what there is of all of them: {' '.join(common) or 'nothing'}; "
            "write another `version:`, or see `repository:`",
        )
    return system.run(["sort", "-V"], text="".join(f"{each}\n" for each in wanted)).out.split()[-1]


# --- inspection ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InspectInput:
    """What to inspect."""

    packages: tuple[str, ...]
    """Names of packages of Docker and Compose."""
    toolkit: tuple[str, ...] = ()
    """Names of packages of NVIDIA's container toolkit, if it is planned."""
    path: str = ""
    """The file of Docker's settings, if the toolkit is planned."""


@dataclass(frozen=True)
class UnitFound:
    """A unit as systemd reports it, and the units that it needs. None are known of one that is masked."""

    load: str
    active: str
    enabled: str
    needs: tuple[str, ...]

    @property
    def is_active(self) -> bool:
        """Return whether it runs."""
        return self.active == "active"

    @property
    def is_masked(self) -> bool:
        """Return whether it may not be started."""
        return self.load == "masked"


@dataclass(frozen=True)
class DaemonFound:
    """What the running daemon reports."""

    version: str
    live_restore: bool = False
    runtimes: tuple[str, ...] = ()
    cdi: bool = False
    running: tuple[str, ...] = ()
    """Names of all containers that run, if the toolkit is planned."""


@dataclass(frozen=True)
class Found:
    """The state of Docker, and of what gives GPUs to its containers."""

    armed: bool = False
    """Whether an undo of a change waits for a login."""
    units: Mapping[str, UnitFound] = field(default_factory=dict)
    """Units of Docker, its socket and containerd, by name."""
    is_snap: bool = False
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of installed packages."""
    compose: str = ""
    """The version that Compose prints, if it comes from no package."""
    daemon: DaemonFound | None = None
    program: str = ""
    """The version that Docker's program prints, if its daemon does not run."""
    settings: Secret | None = None
    """Docker's settings as base64. They may contain the password of a proxy."""
    refresh: Mapping[str, str] = field(default_factory=dict)
    """By unit that describes GPUs for CDI: whether it is enabled, as systemd reports it."""
    devices: tuple[str, ...] = ()
    """Names that CDI has for GPUs."""


def inspect(given: InspectInput, system: System, query: Query = query_api) -> Found:
    """Inspect Docker. Raise UnknownStateError if Docker or systemd runs and does not respond."""
    # Units are inspected also without Docker's program: a masked unit stays masked when the program is installed.
    refresh = _REFRESH if given.toolkit else ()
    shown = show_units([*_UNITS, *refresh], ("LoadState", "ActiveState", "UnitFileState", "Requires", "Wants"), system)
    client = _client(system)
    names = (*(given.packages if client else ()), *given.toolkit)
    packages = installed_versions(system, names) if names else {}
    daemon = _daemon(query, system, running=bool(given.toolkit)) if client else None
    listed = system.run(["nvidia-ctk", "cdi", "list"], seconds=_CLIENT_SECONDS).out if given.toolkit else ""
    has_compose = any("compose" in each for each in packages)
    return Found(
        armed=system.entry(f"{UNDO_RUN}/{UNDO}") is not None,
        units={name: _unit(shown[name]) for name in _UNITS if name in shown},
        is_snap=client.startswith("/snap/") or client == _SNAP,
        packages=packages,
        compose="" if has_compose or not client else _compose_version(system),
        daemon=daemon,
        program=_program_version(system) if client and not daemon else "",
        settings=_settings(given.path, system) if given.toolkit else None,
        refresh={name: state for name in refresh if (state := shown.get(name, {}).get("UnitFileState", ""))},
        devices=tuple(line for line in listed.splitlines() if line.startswith("nvidia.com/gpu=")),
    )


def _unit(values: Mapping[str, str]) -> UnitFound:
    needs = f"{values.get('Requires', '')} {values.get('Wants', '')}".split()
    return UnitFound(
        load=values.get("LoadState", ""),
        active=values.get("ActiveState", ""),
        enabled=values.get("UnitFileState", ""),
        needs=tuple(needs),
    )


def _client(system: System) -> str:
    """Return the program behind the name `docker`; empty where there is none."""
    for folder in _FOLDERS:
        found = resolve(f"{folder}/docker", system)
        if found and found.kind == "file" and found.mode & 0o111:
            return system.resolved(f"{folder}/docker")
    return ""


def _compose_version(system: System) -> str:
    ended = system.run(["docker", "compose", "version", "--short"], seconds=_CLIENT_SECONDS)
    return ended.out.partition("\n")[0]


def _program_version(system: System) -> str:
    for program in ("dockerd", "docker"):
        ended = system.run([program, "--version"], seconds=_CLIENT_SECONDS)
        if ended.ok:
            found = re.match(r"Docker version ([^,\n]*),", ended.out)
            return found[1] if found else ""
    return ""


def _daemon(query: Query, system: System, *, running: bool) -> DaemonFound | None:
    """Return what the daemon reports; None if no daemon runs. Raise UnknownStateError if it does not respond."""
    paths = ("/info", "/containers/json") if running else ("/info",)
    try:
        found = query(paths, QUERY_SECONDS)
    except TimeoutError:
        if docker_runs(system):
            raise UnknownStateError("Docker") from None
        return None
    except OSError:
        found = []
    info = found[0] if found and found[0] else _queried(system, "info", "--format", "{{json .}}")
    if not isinstance(info, dict) or not re.match("[0-9]", str(info.get("ServerVersion", ""))):
        return None
    if not running:
        names: tuple[str, ...] = ()
    elif found[1:] and isinstance(found[1], list):
        names = _names(found[1])
    else:
        names = tuple(query_docker(system, "ps", "--format", "{{.Names}}").out.split())
    runtimes = info.get("Runtimes")
    return DaemonFound(
        version=str(info["ServerVersion"]),
        live_restore=bool(info.get("LiveRestoreEnabled")),
        runtimes=tuple(runtimes) if isinstance(runtimes, dict) else (),
        cdi=bool(info.get("CDISpecDirs")),
        running=names,
    )


def _queried(system: System, *words: str) -> object:
    """Return the JSON that Docker's client prints; None where it prints none."""
    try:
        found: object = json.loads(query_docker(system, *words).out)
    except ValueError:
        return None
    return found


def _names(containers: list[object]) -> tuple[str, ...]:
    """Return the names of containers, without names by which other containers link to them: `/client/server`."""
    lists = [each.get("Names") for each in containers if isinstance(each, dict)]
    names = [str(name).removeprefix("/") for each in lists if isinstance(each, list) for name in each]
    return tuple(name for name in names if "/" not in name)


def _settings(path: str, system: System) -> Secret | None:
    content = system.read_bytes(path) if is_file(path, system) else None
    return None if content is None else Secret(base64.b64encode(content).decode())


VERBS = {
    "inspect": Verb(InspectInput, inspect),
    "install": Verb(InstallInput, install),
    "undo_install": Verb(UndoInstallInput, undo_install),
    "confirm": Verb(NoInput, confirm),
    "wire": Verb(WireInput, wire),
    "undo_wiring": Verb(UndoWiringInput, undo_wiring),
    "install_toolkit": Verb(ToolkitInput, install_toolkit),
}
