"""A server as a systemd unit or as a container: start, stop and inspect it by one set of functions."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress

from llamaherd.layout import COMPOSE_LOG, GPU_CHECK, PROJECTS, STARTED, UNITS, candidate_service
from llamaherd.onhost.clients import docker, systemctl, unit_properties
from llamaherd.onhost.services import last_lines, spec_of
from llamaherd.onhost.system import TIMED_OUT, FailedError, System
from roles.serve.onhost.kept import Version
from roles.serve.onhost.model import RemovalInput, Server

_GPU_SECONDS = 120
_LINE = 300
"""Characters of a line of a log that is shown."""
_COMPOSE_LOG = str(COMPOSE_LOG)
_STOP_SPARE, _START_SPARE = 600, 120
"""Seconds beyond a server's own limits after which systemctl is not waited for any more."""


class UnitBackend:
    """systemd."""

    kind = "unit"

    def __init__(self, system: System) -> None:
        self._system = system

    def running_spec(self, service: str) -> str:
        """Return the spec of an active unit."""
        found = unit_properties(self._system, f"{service}.service", "ActiveState", "MainPID")
        return spec_of(found.get("MainPID", "0"), self._system) if found.get("ActiveState") == "active" else ""

    def started_spec(self, service: str) -> str:
        """Return the spec of the main process."""
        found = unit_properties(self._system, f"{service}.service", "MainPID")
        return spec_of(found.get("MainPID", "0"), self._system)

    def processes(self, service: str) -> tuple[str, ...]:
        """Return the main process; a family is its children."""
        pid = unit_properties(self._system, f"{service}.service", "MainPID").get("MainPID", "0")
        return () if pid in ("", "0") else (pid,)

    def enable(self, server: Server) -> None:
        """Let the unit start at boot, and let systemd read it."""
        # --no-reload: systemd would read all of its files twice, which takes as long as many a server stops.
        for words in (("-q", "--no-reload", "enable", server.unit), ("daemon-reload",)):
            ended = systemctl(self._system, *words)
            if not ended.ok:
                log = last_lines(ended, 3)
                fix = "" if log else f"see `systemctl status {server.unit}`"
                raise FailedError(f"systemd does not load {server.unit}", fix, log)

    def start(self, server: Server, seconds: int, *, anew: bool) -> bool:
        """Start the unit; systemd waits until it is healthy."""
        # After the stop, never before: systemd would start it again.
        systemctl(self._system, "reset-failed", server.unit)
        word = "restart" if anew else "start"
        return systemctl(self._system, word, server.unit, seconds=seconds + _START_SPARE).ok

    def stop(self, service: str) -> None:
        """Stop the unit."""
        systemctl(self._system, "stop", f"{service}.service", seconds=_STOP_SPARE)

    def stop_failed(self, server: Server) -> None:
        """Stop the unit: systemd would go on starting it every ten seconds."""
        self.stop(server.service)

    def kill(self, service: str) -> None:
        """Kill the main process of the unit, after thawing it."""
        systemctl(self._system, "thaw", f"{service}.service")
        systemctl(self._system, "kill", "--kill-who=main", "-s", "KILL", f"{service}.service")

    def log(self, service: str, lines: int) -> list[str]:
        """Return lines of the journal, of the last start."""
        unit = f"{service}.service"
        run = unit_properties(self._system, unit, "InvocationID").get("InvocationID", "")
        words = ["journalctl", "-q", "--no-pager", "-o", "cat"]
        found = self._system.run([*words, "-u", unit, "-n", str(lines)]).out
        about_cuda = self._system.run([*words, f"_SYSTEMD_INVOCATION_ID={run}"]).out if run else ""
        # Printed first, and long gone from the last lines.
        cuda = [line for line in about_cuda.splitlines() if "cuda" in line.lower()][:3]
        last = found.splitlines()[-lines:]
        return _short([*(line for line in cuda if line not in last), *last])

    def record(self, server: Server) -> None:
        """Record what it was started with. A start records by itself, through its unit."""
        self._system.run([str(STARTED), "record", "unit", server.service, *server.inputs])

    def already(self, server: Server, run: str) -> bool:
        """Compare invocations, and what the running one was started with."""
        now = unit_properties(self._system, server.unit, "InvocationID").get("InvocationID", "")
        return now != run and self.running_spec(server.service) == server.spec and _unchanged(self._system, server)


class ContainerBackend:
    """Docker, by Compose."""

    kind = "container"

    def __init__(self, system: System) -> None:
        self._system = system

    def _inspected(self, service: str) -> dict[str, object]:
        ended = docker(self._system, "inspect", "--type", "container", service)
        with suppress(ValueError, LookupError, TypeError):
            found = json.loads(ended.out)[0]
            if ended.ok and isinstance(found, dict):
                return found
        return {}

    def is_of_others(self, service: str, project_file: str) -> bool:
        """Return whether a container has this name, and llamaherd did not create it."""
        found = self._inspected(service)
        labels = _labels(found)
        # One whose labels were removed by hand is still of our file, and Compose creates it again.
        ours = labels.get("llamaherd.spec") or labels.get("com.docker.compose.project.config_files") == project_file
        return bool(found) and not ours

    def running_spec(self, service: str) -> str:
        """Return the spec of a healthy container."""
        return _healthy_spec(self._inspected(service))

    def started_spec(self, service: str) -> str:
        """Return the spec of a container that runs."""
        return _running_spec(self._inspected(service))

    def processes(self, service: str) -> tuple[str, ...]:
        """Return all processes of the container."""
        ended = docker(self._system, "top", service, "-eo", "pid")
        return tuple(ended.out.split()[1:]) if ended.ok else ()

    def enable(self, server: Server) -> None:
        """Leave it to Docker, which starts the container again by the policy in its file."""

    def start(self, server: Server, seconds: int, *, anew: bool) -> bool:
        """Create and start the container; Compose waits until it is healthy."""
        return self.start_file(server.project_file, seconds, anew=anew)

    def start_file(self, file: str, seconds: int, *, anew: bool) -> bool:
        """Start what a Compose file defines."""
        again = ["--force-recreate"] if anew else []
        words = ["docker", "compose", "--progress", "plain", "-f", file, "up", "-d", *again, "--remove-orphans"]
        ended = self._system.run([*words, "--wait", "--wait-timeout", str(seconds)], seconds=seconds + _START_SPARE)
        with suppress(OSError):
            self._system.write(_COMPOSE_LOG, ended.out + ended.err)
        return ended.ok

    def stop(self, service: str) -> None:
        """Stop the container."""
        docker(self._system, "stop", service)

    def stop_failed(self, server: Server) -> None:
        """Stop the project: Docker would go on starting it."""
        docker(self._system, "compose", "-f", server.project_file, "stop")

    def kill(self, service: str) -> None:
        """Resume the container if it is paused, and kill it."""
        docker(self._system, "unpause", service)
        docker(self._system, "kill", service)

    def log(self, service: str, lines: int) -> list[str]:
        """Return what Compose and the server printed last."""
        compose = (self._system.read(_COMPOSE_LOG) or "").splitlines()[-5:] if lines > 5 else []
        ended = docker(self._system, "logs", "--tail", str(lines), service)
        return _short([*compose, *(ended.out + ended.err).splitlines()])

    def record(self, server: Server) -> None:
        """Record what it was started with, and remove the network that it had before its host's own."""
        self.record_inputs(server.service, server.inputs)
        docker(self._system, "network", "rm", f"{server.service}_default")

    def record_inputs(self, service: str, inputs: Sequence[str]) -> None:
        """Record what a container was started with: Docker has no place for that."""
        self._system.run([str(STARTED), "record", "container", service, *inputs])

    def already(self, server: Server, run: str) -> bool:
        """Compare containers, and what the running one was started with."""
        found = self._inspected(server.service)
        return found.get("Id") != run and _healthy_spec(found) == server.spec and _unchanged(self._system, server)

    def gpu_problem(self, service: str, gpus: Sequence[str], *, one: bool) -> list[str]:
        """Return why a container is not on its GPUs: healthy is not enough, as without CUDA it serves from the CPU."""
        state = self._inspected(service).get("State")
        pids = self.processes(service) or ((str(state.get("Pid")),) if isinstance(state, dict) else ())
        words = [
            str(GPU_CHECK),
            "one" if one else "every",
            f"docker logs {shlex.quote(service)} 2>&1",
            " ".join(pids),
            *gpus,
        ]
        ended = self._system.run(words, seconds=_GPU_SECONDS)
        # A driver that hangs does not report where a server is.
        if ended.code in (0, TIMED_OUT):
            return []
        return _short([*ended.out.splitlines(), *ended.err.splitlines()]) or [f"{GPU_CHECK} failed"]


Backend = UnitBackend | ContainerBackend
"""What runs one server."""


def backend_of(kind: str, system: System) -> Backend:
    """Return what runs servers of a kind."""
    return UnitBackend(system) if kind == "unit" else ContainerBackend(system)


def other_kind(kind: str) -> str:
    """Return the kind that a server has not."""
    return "container" if kind == "unit" else "unit"


def processes(system: System, service: str) -> tuple[str, ...]:
    """Return the processes of a server, as a unit and as a container."""
    return (*UnitBackend(system).processes(service), *ContainerBackend(system).processes(service))


def ensure_account(system: System, user: str) -> bool:
    """Create the account of a unit where it is missing: it owns nothing and cannot log in."""
    if system.run(["id", "-u", user]).ok:
        return True
    nobody = ("--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin")
    return system.run(["useradd", "--system", "--user-group", *nobody, user]).ok


def stop_both(system: System, service: str) -> None:
    """Stop a server, whether it is a unit or a container."""
    UnitBackend(system).stop(service)
    ContainerBackend(system).stop(service)


def free_port(system: System, port: int) -> None:
    """Close what is left of a stopped server's connections: they keep its port for up to a minute."""
    states = ("time-wait", "fin-wait-1", "fin-wait-2", "closing", "last-ack")
    each_state = [word for state in states for word in ("state", state)]
    system.run(["ss", "-Ktn", *each_state, "sport", "=", f":{port}"])


def start_version(system: System, service: str, version: Version) -> bool:
    """Start a kept version whose files are in place. Return whether it is healthy in time."""
    if version.kind == "unit":
        unit = f"{service}.service"
        if not systemctl(system, "-q", "--no-reload", "enable", unit).ok or not systemctl(system, "daemon-reload").ok:
            return False
        systemctl(system, "reset-failed", unit)
        return systemctl(system, "start", unit, seconds=version.seconds + _START_SPARE).ok
    containers = ContainerBackend(system)
    healthy = containers.start_file(version.file, version.seconds, anew=True)
    if healthy:
        containers.record_inputs(service, version.inputs)
    return healthy


def forget(system: System, server: Server | RemovalInput, *, unit: bool, container: bool) -> bool:
    """Stop a server and remove its unit, its container, or both. Return False where its account is still in use."""
    name, service, user = server.name, server.service, server.user
    systemctl(system, "stop", f"{candidate_service(name)}.service", seconds=_STOP_SPARE)
    if unit:
        systemctl(system, "disable", "-q", "--now", f"{service}.service", seconds=_STOP_SPARE)
        # The unit's file goes after its user: as long as it is there, the next run knows that this one did not end.
        if system.run(["id", "-u", user]).ok and not system.run(["userdel", user]).ok:
            return False
        system.remove(f"{UNITS}/{service}.service")
        system.remove(f"/run/llamaherd/started/{service}")
        systemctl(system, "daemon-reload")
        systemctl(system, "reset-failed", f"{service}.service")
    if container:
        docker(system, "stop", service)
        docker(system, "rm", "-f", service)
        docker(system, "network", "rm", f"{service}_default")
        system.remove(f"{PROJECTS}/{name}")
        system.remove(f"/var/lib/llamaherd/started/{service}")
    return True


def _healthy_spec(found: dict[str, object]) -> str:
    state = found.get("State")
    health = state.get("Health") if isinstance(state, dict) else None
    return _running_spec(found) if isinstance(health, dict) and health.get("Status") == "healthy" else ""


def _running_spec(found: dict[str, object]) -> str:
    state = found.get("State")
    runs = isinstance(state, dict) and state.get("Status") == "running"
    return str(_labels(found).get("llamaherd.spec") or "") if runs else ""


def _labels(found: dict[str, object]) -> dict[str, object]:
    config = found.get("Config")
    labels = config.get("Labels") if isinstance(config, dict) else None
    return labels if isinstance(labels, dict) else {}


def _unchanged(system: System, server: Server) -> bool:
    return system.run([str(STARTED), "changed", server.kind, server.service, *server.inputs]).ok


def _short(lines: Sequence[str]) -> list[str]:
    return [line[:_LINE] for line in lines]
