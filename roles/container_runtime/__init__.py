"""Container runtime: Docker with Compose, and NVIDIA's container toolkit, which gives GPUs to containers."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from llamaherd.host.responses import ProbeOutputs, parse_pairs
from llamaherd.host.state import HostState, StatePart
from llamaherd.inventory.schema import Rig
from llamaherd.layout import PINNED
from llamaherd.onhost.document import Secret
from llamaherd.onhost.verbs import NoInput
from llamaherd.onhost.verification import Probe
from llamaherd.plan import ContainerToolkitPlan, Estimate, Plan, RuntimePlan, TextFile
from llamaherd.plan.devices import cdi_devices
from llamaherd.reference.packages import COMPOSE_PACKAGES
from llamaherd.render import render
from llamaherd.role.apt import container_toolkit_repository, repository_changes
from llamaherd.role.changes import (
    LOGIN_SECONDS,
    Change,
    RunVerb,
    file_difference,
    file_differences,
    guarded_verb,
    write_on_host,
    written_files,
)
from llamaherd.role.preflight import Refusal
from llamaherd.role.report import Check
from llamaherd.role.role import Inspection, Planning, PlanPart, Role, Task, Verified
from llamaherd.text.numbers import parse_whole
from roles.container_runtime.onhost import (
    UNDO,
    Found,
    InspectInput,
    InstallInput,
    ToolkitInput,
    UnitFound,
    WireInput,
    Within,
)

_UNITS = ("docker.service", "docker.socket", "containerd.service")
# Files of JSON are YAML, too, and NVIDIA's tool writes one value a line in both.
_CDI = """\
specs=$(ls /etc/cdi/*.yaml /etc/cdi/*.json /var/run/cdi/*.yaml /var/run/cdi/*.json 2>/dev/null)
[ -z "$specs" ] || {
    value='"\\{0,1\\}: "\\{0,1\\}\\([^",]*\\)"\\{0,1\\},\\{0,1\\}$'
    printf 'names=%s\\n' "$(sed -n "s/^[ -]*\\"\\{0,1\\}name$value/\\1/p" $specs | sort -u | tr '\\n' ' ')"
    printf 'missing=%s\\n' "$(sed -n "s/^[ -]*\\"\\{0,1\\}hostPath$value/\\1/p" $specs | sort -u |
        while read -r path; do [ -e "$path" ] || printf '%s ' "$path"; done)"
}
"""


PATH = "/etc/docker/daemon.json"
RUNTIME = "nvidia"
_PROGRAM = "nvidia-container-runtime"
_LONGEST = 40
"""Characters of a number."""


class SettingsError(ValueError):
    """Why settings are better left alone, as a sentence."""


def merge(before: bytes | None, *, cdi: bool) -> bytes:
    """Return the settings with NVIDIA's runtime, and with CDI if it must be enabled. Raise SettingsError."""
    # Settings that contain both come back byte for byte.
    settings = read_daemon(before)
    runtimes, features = _mapping(settings, "runtimes"), _mapping(settings, "features")
    ours = runtimes.get(RUNTIME, {})
    if not isinstance(ours, dict):
        raise SettingsError(f"`runtimes.{RUNTIME}` in {PATH} is no mapping")
    wanted = {}
    if str(ours.get("path", "")).rpartition("/")[2] != _PROGRAM:
        wanted["runtimes"] = {**runtimes, RUNTIME: {"args": [], **ours, "path": _PROGRAM}}
    if features.get("cdi", not cdi) is not True:
        wanted["features"] = {**features, "cdi": True}
    return _written({**settings, **wanted}, before) if wanted or before is None else before


def read_daemon(content: bytes | None) -> dict[str, Any]:
    """Return the content of settings; empty without settings. Raise SettingsError."""
    try:
        text = (content or b"").decode()
    except UnicodeDecodeError as error:
        raise SettingsError(f"{PATH} is no UTF-8 at byte {error.start}") from error
    if not text.strip():
        return {}
    try:
        settings = json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_number)
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise SettingsError(f"{PATH} is no JSON: line {error.lineno}, column {error.colno}: {reason}") from error
    except RecursionError as error:
        raise SettingsError(f"{PATH} is nested too deeply to be settings") from error
    if not isinstance(settings, dict):
        raise SettingsError(f"{PATH} holds no mapping")
    return settings


def _number(text: str) -> int | float:
    """Return a number that is written as it was read."""
    # Docker has no numbers that are not.
    short = len(text) < _LONGEST
    number = (int(text) if re.fullmatch(r"-?\d+", text) else float(text)) if short else math.nan
    if not math.isfinite(number):
        raise SettingsError(f"{PATH} is no JSON that Docker takes: {text[:_LONGEST]} is no number of its")
    return number


def _mapping(settings: dict[str, Any], key: str) -> dict[str, Any]:
    value = settings.get(key, {})
    if not isinstance(value, dict):
        raise SettingsError(f"`{key}` in {PATH} is no mapping")
    return value


def _written(settings: dict[str, Any], before: bytes | None) -> bytes:
    """Return settings with the same indentation as before, or that of Docker's own pages."""
    found = re.search(rb"\n([ \t]+)\"", before or b"")
    indent = found[1].decode() if found else 4 * " "
    text = json.dumps(settings, indent=indent, ensure_ascii=False)
    if any("\ud800" <= character <= "\udfff" for character in text):
        text = json.dumps(settings, indent=indent)  # half a character, which JSON can write and UTF-8 cannot
    return f"{text}\n".encode()


DOCKER = (25, 0)
"""The first Docker with `start_interval` (moby's release notes of 25.0.0), which every project of ours has."""

DOCKER_WITH_GPUS = (26, 1)
"""The first that reads what the container toolkit writes about GPUs: CDI 0.7 (its release notes of 1.19.0)."""

COMPOSE = (2, 21)
"""Compose has `start_interval` from 2.20.2 on (its release notes)."""

ORDER = "/etc/systemd/system/docker.service.d/llamaherd-cards.conf"

PACKAGES = (
    *("nvidia-container-toolkit", "nvidia-container-toolkit-base"),
    *("libnvidia-container-tools", "libnvidia-container1"),
)
"""NVIDIA's container toolkit: all four go together at one version only (its installation guide)."""

_ENGINES = ("podman-docker", "docker-ce", "docker.io")

DOCKER_PACKAGES = (*_ENGINES, "docker-compose", "docker-compose-v2", "docker-compose-plugin")
"""Packages of engines and of Compose, as Debian, Ubuntu and Docker call theirs."""

DockerVersion = tuple[int, ...]
_SERVICE = "docker.service"
_STOPPED = "Docker is stopped, and does not start at boot any more"

_LONGEST_INSTALL, _LONGEST_RESTART = 3600, 900
"""Seconds from arming to the end of a verb: packages are fetched, or Docker starts."""

_PLUGIN = "docker-compose-plugin"
"""The package of Compose in Docker's own repository, where `docker-ce` is from."""

_CDI_BY_DEFAULT = (28, 3)
"""The first Docker that enables CDI by default (Docker's pages on CDI devices)."""

_SHOWN = 5
"""Names of containers in one sentence."""


def plan(planning: Planning) -> PlanPart:
    """Return Docker, and the repository of the container toolkit."""
    gateway = planning.fleet.gateway if planning.fleet else None
    chats = gateway is not None and gateway.chat is not None and gateway.on[0] == planning.rig.rig
    runtime = plan_runtime(planning.rig, chats=chats)
    toolkit = runtime.toolkit if runtime else None
    return PlanPart(repositories=(toolkit.repository,) if toolkit else (), fields={"runtime": runtime})


def plan_runtime(rig: Rig, *, chats: bool = False) -> RuntimePlan | None:
    """Return what a rig's containers need; None without instances in containers and without a chat page."""
    instances = [each for each in rig.instances.values() if each.backend == "compose"]
    if not instances and not chats:
        return None
    packages = COMPOSE_PACKAGES[rig.host.os]
    on_gpus = [each for each in instances if each.on]
    return RuntimePlan(
        packages=packages,
        compose_package=next(package for package in packages if "compose" in package),
        docker=DOCKER_WITH_GPUS if on_gpus else DOCKER,
        compose=COMPOSE,
        toolkit=_toolkit(rig, sorted({device for each in on_gpus for device in cdi_devices(rig, each)})),
    )


def _toolkit(rig: Rig, devices: list[str]) -> ContainerToolkitPlan | None:
    if rig.gpus is None or not devices:
        return None
    declared = rig.gpus.container_toolkit
    return ContainerToolkitPlan(
        version=declared.version,
        repository=container_toolkit_repository(rig),
        devices=tuple(devices),
        order=TextFile(path=ORDER, text=render("container_runtime/docker-cards.conf.j2", rig=rig.rig)),
        restart_docker=declared.restart_docker,
    )


_NO_UNIT = UnitFound("", "", "", ())


@dataclass(frozen=True)
class DockerState(StatePart):
    """Docker and NVIDIA's container toolkit."""

    origin: str = ""
    """The package of Docker: `docker.io`, `docker-ce`, `snap`, `podman-docker`; empty if unknown."""
    version: DockerVersion = ()
    """The version of the engine, as (26, 1, 5)."""
    compose: DockerVersion = ()
    """The version of `docker compose`; empty without a version 2."""
    units: Mapping[str, UnitFound] = field(default_factory=dict)
    """By name: the units of Docker, of its socket and of containerd."""
    responds: bool = False
    """Whether the daemon responds."""
    live_restore: bool = False
    """Whether containers continue to run while the daemon restarts."""
    runtimes: Set[str] = frozenset()
    running: tuple[str, ...] = ()
    """Names of all running containers."""
    cdi: bool = False
    """Whether the running daemon supports CDI."""
    settings: bytes | None = None
    """The content of Docker's settings file, if it exists."""
    toolkit: Mapping[str, str] = field(default_factory=dict)
    """By installed package of the toolkit: its version."""
    refresh: Mapping[str, str] = field(default_factory=dict)
    """By unit that describes GPUs for CDI: systemd's `UnitFileState`."""
    devices: Set[str] = frozenset()
    """Names of the GPUs that CDI describes."""
    armed: bool = False
    """Whether the host will undo a change of Docker, because no new login has succeeded since."""

    @property
    def there(self) -> bool:
        """Return whether Docker is installed."""
        return bool(self.version or self.origin)

    @property
    def active(self) -> bool:
        """Return whether Docker runs."""
        return self.units.get(_SERVICE, _NO_UNIT).is_active

    @property
    def enabled(self) -> bool:
        """Return whether Docker starts at boot."""
        return self.units.get(_SERVICE, _NO_UNIT).enabled == "enabled"

    @property
    def masked(self) -> dict[str, str]:
        """Return units that keep Docker from starting now or at the next boot, with systemd's `UnitFileState`."""
        # A unit that Docker runs without is not needed.
        service = self.units.get(_SERVICE, _NO_UNIT)
        return {
            name: unit.enabled
            for name, unit in self.units.items()
            if unit.is_masked
            and (service.is_masked or (name in service.needs and (unit.is_active or not service.is_active)))
        }


def _version(text: str) -> DockerVersion:
    """Return `26.1.5+dfsg1` as (26, 1, 5); empty for a text without a version."""
    match = re.match(r"(?:[0-9]+:)?v?([0-9]+(?:\.[0-9]+)*)", text)
    return tuple(parse_whole(number) for number in match[1].split(".")) if match else ()


def inspection_input(plan: Plan) -> InspectInput | None:
    """Return what to inspect."""
    if plan.runtime is None:
        return None
    return InspectInput(DOCKER_PACKAGES, PACKAGES, PATH) if plan.runtime.toolkit else InspectInput(DOCKER_PACKAGES)


def state_parts(found: Found) -> tuple[DockerState]:
    """Return the part of the host's state. Raise ValueError for an invalid version or settings."""
    engines = [name for name in found.packages if name in _ENGINES]
    compose = [version for name, version in found.packages.items() if "compose" in name]
    docker = DockerState(
        origin="snap" if found.is_snap else next(iter(engines), ""),
        version=_version(found.daemon.version if found.daemon else found.program),
        compose=max(map(_version, compose or [found.compose])),
        units=found.units,
        settings=base64.b64decode(found.settings.text, validate=True) if found.settings else None,
        toolkit={name: version for name, version in found.packages.items() if name in PACKAGES},
        refresh=found.refresh,
        devices=frozenset(found.devices),
        armed=found.armed,
    )
    if found.daemon is None:
        return (docker,)
    reported = found.daemon
    runtimes = frozenset(reported.runtimes)
    return (
        replace(
            docker,
            responds=True,
            live_restore=reported.live_restore,
            cdi=reported.cdi,
            runtimes=runtimes,
            running=reported.running,
        ),
    )


def docker_changes(plan: Plan, state: HostState) -> list[Change]:
    """Install what is missing of Docker and Compose, and have it run, from every boot on."""
    if plan.runtime is None:
        return []
    docker, planned = DockerState.of(state), plan.runtime
    missing: tuple[str, ...] = ()
    if not docker.there:
        missing = planned.packages
    elif docker.compose < planned.compose:
        missing = (_PLUGIN if docker.origin == "docker-ce" else planned.compose_package,)
    if not missing and docker.active and docker.enabled:
        return _disarmed(docker)
    given = InstallInput(missing, Within(_LONGEST_INSTALL, LOGIN_SECONDS))
    verb = "container_runtime.install"
    if missing:
        lack = "Compose is missing or too old" if docker.there else "there is no Docker"
        how = guarded_verb(verb, given, f"installing {', '.join(missing)}", name=UNDO, undone=_STOPPED)
        return [Change("install", "packages", ", ".join(missing), (lack,), how)]
    idle = "it does not run" if not docker.active else "it does not start at boot"
    how = guarded_verb(verb, given, "starting Docker", name=UNDO, undone=_STOPPED)
    return [Change("start", "service", "docker", (idle,), how)]


def _disarmed(docker: DockerState) -> list[Change]:
    """Return the login that an earlier run did not reach: without it the host undoes that run's change."""
    if not docker.armed:
        return []
    why = "an earlier run has changed it, and no new login has succeeded since"
    undone = "Docker is as it was before that run"
    how = guarded_verb("container_runtime.confirm", NoInput(), "logging in again", name=UNDO, undone=undone)
    return [Change("update", "service", "docker", (why,), how)]


def toolkit_changes(plan: Plan, state: HostState) -> list[Change]:
    """Return the changes of NVIDIA's container toolkit and Docker's settings, with a reload or a restart."""
    if plan.runtime is None or plan.runtime.toolkit is None:
        return []
    toolkit, docker = plan.runtime.toolkit, DockerState.of(state)
    changes: list[Change] = []
    version = _installed(toolkit, docker)
    if version is None or toolkit.repository.sources.path in state.files:
        changes += repository_changes(toolkit.repository, state)
    if version is None:
        (preferences,) = written_files([pins(plan.rig, "@version@")])
        given = ToolkitInput(PACKAGES, toolkit.version or "", preferences)
        says = f"installing NVIDIA's container toolkit {toolkit.version or ''}".rstrip()
        how = RunVerb("container_runtime.install_toolkit", given, says)
        lack = "its packages are not there at one version, which is the planned one"
        changes.append(Change("install", "toolkit", PACKAGES[0], (lack,), how))
    elif why := file_differences([pins(plan.rig, version)], state):
        put = write_on_host([pins(plan.rig, version)], "writing preferences of apt")
        changes.append(Change("update", "preferences", PINNED, why, put))
    return [*changes, *_wiring_changes(toolkit, docker, state)]


def pins(rig: str, version: str) -> TextFile:
    """Return the preferences that keep the toolkit's packages at one version."""
    text = (
        f"# Written by llamaherd for rig `{rig}`: change the inventory, not this file.\n"
        "# These four go together at one version, and change it together.\n"
        f"Package: {' '.join(PACKAGES)}\nPin: version {version}\nPin-Priority: 1001\n"
    )
    return TextFile(path=PINNED, text=text)


def _wiring_changes(toolkit: ContainerToolkitPlan, docker: DockerState, state: HostState) -> list[Change]:
    before = docker.settings
    merged = merged_settings(docker)
    order = file_difference(toolkit.order, state)
    enabled = docker.refresh and set(docker.refresh.values()) == {"enabled"}
    why = {
        f"{PATH} does not have NVIDIA's runtime and CDI": merged != before,
        order: bool(order),
        "what describes GPUs at boot is not enabled": not enabled,
        "the running daemon has no CDI": not docker.cdi,
        "the running daemon lacks NVIDIA's runtime": RUNTIME not in docker.runtimes,
        "CDI does not describe all GPUs that containers request": not set(toolkit.devices) <= docker.devices,
    }
    reasons = tuple(reason for reason, holds in why.items() if holds)
    if not reasons:
        return []
    given = WireInput(
        path=PATH,
        before=hashlib.sha256(before).hexdigest() if before is not None else "",
        settings=Secret(merged.decode() if merged != before else ""),
        order=written_files([toolkit.order] if order else []),
        devices=toolkit.devices,
        may_restart=toolkit.restart_docker,
        within=Within(_LONGEST_RESTART, LOGIN_SECONDS),
    )
    undone = f"{PATH} is as it was, and Docker was restarted"
    how = guarded_verb("container_runtime.wire", given, "giving GPUs to containers", name=UNDO, undone=undone)
    return [Change("update", "service", "docker", reasons, how)]


def _installed(toolkit: ContainerToolkitPlan, docker: DockerState) -> str | None:
    """Return the version that all four packages have, if it is the planned one."""
    versions = {docker.toolkit.get(package) for package in PACKAGES}
    version = versions.pop()
    if versions or version is None:
        return None
    return version if toolkit.version in (None, version.partition("-")[0]) else None


def merged_settings(docker: DockerState) -> bytes:
    """Return Docker's settings with ours in them. Raise SettingsError."""
    return merge(docker.settings, cdi=docker.version < _CDI_BY_DEFAULT or not docker.cdi)


def runtime_refusals(plan: Plan, state: HostState) -> list[Refusal]:
    """Return an unusable Docker of another owner, settings that cannot be read, and containers in the way."""
    if plan.runtime is None:
        return []
    docker = DockerState.of(state)
    problems = [*_unfit(plan.runtime, docker), *_masked(docker)]
    toolkit = plan.runtime.toolkit
    if toolkit is None:
        return problems
    try:
        merged_settings(docker)
    except SettingsError as error:
        problems.append(Refusal(str(error), "correct it, or move it away: Docker does not start with such a file"))
    # Docker enables CDI only while it starts.
    must_restart = docker.responds and not docker.cdi and not docker.live_restore
    if not problems and must_restart and docker.running and not toolkit.restart_docker:
        shown = ", ".join(docker.running[:_SHOWN]) + (" and others" if len(docker.running) > _SHOWN else "")
        problems.append(
            Refusal(
                f"Docker must be restarted once to give GPUs to containers, and these run: {shown}",
                "stop them; or write `restart_docker: true` under `gpus: container_toolkit:`, and they are stopped, "
                "and started again where they have a restart policy; or switch `live-restore` on in daemon.json, "
                "`systemctl reload docker`, and they go on",
            )
        )
    return problems


def _unfit(planned: RuntimePlan, docker: DockerState) -> list[Refusal]:
    wanted = ".".join(map(str, planned.docker))
    if docker.origin == "snap":
        message = "the Docker of this host is a snap, which has no access to GPUs or our folders"
        return [Refusal(message, "`snap remove docker`, which takes its containers along, and run again")]
    if docker.origin == "podman-docker":
        message = "`docker` is podman-docker on this host, and projects of Docker Compose must run here"
        return [Refusal(message, "`apt-get remove podman-docker`, and run again; Podman itself may stay")]
    if docker.there and docker.version < planned.docker:
        found = ".".join(map(str, docker.version)) or "of an unknown version"
        way = f"install Docker {wanted} or newer, from where it came from; that restarts its containers"
        if docker.origin == "docker.io":
            way = f"`apt-get install {' '.join(planned.packages)}`, if that brings {wanted} or newer; it restarts them"
        return [Refusal(f"the Docker of this host is {found}, and {wanted} or newer is needed", way)]
    if docker.there and docker.compose < planned.compose and docker.origin not in {"docker.io", "docker-ce"}:
        least = ".".join(map(str, planned.compose))
        message = f"the Docker of this host has no Compose of {least} or newer"
        return [Refusal(message, "install its Compose plugin from where Docker came from, and run again")]
    return []


def _masked(docker: DockerState) -> list[Refusal]:
    """Return the refusal of masked units."""
    # Who masked a unit meant it: it is not for us to undo.
    if not docker.masked:
        return []
    names, temporary = list(docker.masked), [name for name, how in docker.masked.items() if how == "masked-runtime"]
    lasting = [name for name in names if name not in temporary]
    ways = [f"`systemctl unmask {' '.join(lasting)}`"] if lasting else []
    ways += [f"`systemctl unmask --runtime {' '.join(temporary)}`"] if temporary else []
    verb = "is" if len(names) == 1 else "are"
    message = f"{' and '.join(names)} {verb} masked, so that systemd does not start Docker"
    return [Refusal(message, f"{' and '.join(ways)}, then `herd up`; servers with `backend: compose` need Docker")]


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of Docker's daemon and units, and of what describes GPUs to containers."""
    if plan.runtime is None:
        return
    yield Probe("Docker", "", ("docker", "version"), seconds=20, code=True)
    yield Probe("Docker units", "", ("systemctl", "show", "-p", "Id,ActiveState,UnitFileState", *_UNITS))
    if plan.runtime.toolkit:
        yield Probe("container toolkit", "", ("nvidia-ctk", "--version"))
        yield Probe("container toolkit", "", ("nvidia-container-cli", "--version"))
        yield Probe("cdi", "", ("sh", "-c", _CDI))


def runtime_checks(plan: Plan, outputs: ProbeOutputs) -> Iterator[Check]:
    """Yield a check of each planned part."""
    if plan.runtime and ("Docker", "") in outputs:
        yield _docker(outputs["Docker", ""], outputs.get(("Docker units", ""), ""))
    if plan.runtime and plan.runtime.toolkit:
        yield _container_toolkit(plan.runtime.toolkit.version, outputs.get(("container toolkit", ""), ""))
        yield _gpus(plan.runtime.toolkit.devices, outputs.get(("cdi", ""), ""))


def _docker(version: str, shown: str) -> Check:
    """Return the check of the daemon, its own unit, and the units that it needs."""
    responds = version.partition("\n")[0] == "0"
    units = {found["Id"]: found for each in shown.split("\n\n") if "Id" in (found := parse_pairs(each))}
    runs = {name for name, unit in units.items() if unit.get("ActiveState") == "active"}
    # What a Docker that runs does without, the next boot does without.
    needed = [name for name in _UNITS if name in units and ("docker.service" not in runs or name in runs)]
    masked = [name for name in needed if units[name].get("UnitFileState", "").startswith("masked")]
    if masked:
        which = f"{' and '.join(masked)} {'is' if len(masked) == 1 else 'are'} masked"
        now = "it responds" if responds else "it does not respond"
        return Check("Docker", False, f"{now}, and systemd may not start it, as {which}: see `herd preflight`")
    return Check("Docker", responds, "responds" if responds else "it does not respond: `herd up`")


def _container_toolkit(declared: str | None, output: str) -> Check:
    """Return the check of versions."""
    # Each program prints the version of its own package, and of the library that it has loaded.
    patterns = {
        "nvidia-ctk": r"^.* version ([0-9.]+)",
        "nvidia-container-cli": r"^cli-version: ([0-9.]+)",
        "library": r"^lib-version: ([0-9.]+)",
    }
    matches = {name: re.search(pattern, output, re.MULTILINE) for name, pattern in patterns.items()}
    versions = {name: found[1] if found else "not there" for name, found in matches.items()}
    found = set(versions.values())
    if len(found) > 1 or found == {"not there"}:
        return Check("toolkit", False, ", ".join(f"{name} {version}" for name, version in versions.items()))
    (version,) = found
    right = declared in (None, version)
    return Check("toolkit", right, version if right else f"{version}, declared is {declared}")


def _gpus(devices: tuple[str, ...], output: str) -> Check:
    """Return the check of GPUs."""
    # What Docker would give comes from files, which the driver may have left behind.
    listed = parse_pairs(output)
    described, missing = set(listed.get("names", "").split()), listed.get("missing", "").split()
    if lacking := [device for device in devices if device.rpartition("=")[2] not in described]:
        return Check("GPUs", False, f"no CDI file describes {', '.join(lacking)}: `herd up`")
    if missing:
        return Check("GPUs", False, f"CDI names what is not there: {', '.join(missing)}: `herd up`")
    return Check("GPUs", True, f"CDI describes {', '.join(devices)}, and all that it names is there")


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """Return what containers need, and what gives them GPUs."""
    if (runtime := plan.runtime) is None:
        return []
    docker, compose = (".".join(map(str, version)) for version in (runtime.docker, runtime.compose))
    packages = " ".join(runtime.packages)
    lines = [f"  docker     {docker} or newer with Compose {compose} or newer, or else {packages}"]
    if runtime.toolkit is None:
        return lines
    version = f" {runtime.toolkit.version}" if runtime.toolkit.version else ", the newest and then kept"
    return [*lines, f"             GPUs by NVIDIA's container toolkit{version}"]


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield the engine's task first: only the engine reports what it lacks for GPUs."""
    if plan.runtime:
        yield Task("Docker and Compose", lambda state, _: docker_changes(plan, state))
    if plan.runtime and plan.runtime.toolkit:
        yield Task("GPUs for containers", lambda state, _: toolkit_changes(plan, state))


ROLE = Role(
    name="container_runtime",
    summary="Docker and Compose run, and containers are given the GPUs that they ask for.",
    for_instances=True,
    plan=plan,
    brings=lambda plan: (plan.runtime.toolkit.order,) if plan.runtime and plan.runtime.toolkit else (),
    files=lambda plan: (PINNED,) if plan.runtime and plan.runtime.toolkit else (),
    inspection=Inspection("container_runtime.inspect", inspection_input, Found, state_parts),
    refusals=lambda plan, state: [replace(each, about="Docker") for each in runtime_refusals(plan, state)],
    tasks=tasks,
    probes=probes,
    judge=lambda judging: Verified(tuple(runtime_checks(judging.plan, judging.outputs))),
    describe=describe,
)
