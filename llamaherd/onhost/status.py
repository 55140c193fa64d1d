"""The state of the host now: its servers, GPUs, newest release and gateway. All queries are bounded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Thread

from llamaherd.layout import RELEASES
from llamaherd.onhost import gateway
from llamaherd.onhost.gateway import GatewayState
from llamaherd.onhost.nvidia_smi import parse_number
from llamaherd.onhost.status_probe import Probe, ServerInput, ServerStatus
from llamaherd.onhost.system import NOT_STARTED, TIMED_OUT, Ended, FailedError, System
from llamaherd.onhost.verbs import Verb

PROGRAM_SECONDS = 5
"""The limit for each program of systemd, Docker and the driver."""
ALL_SECONDS = 12.0
"""The time after which queries without a response are left out."""
ABSENT = "absent"
MOST_CARDS = 64
CARD_FIELDS = (
    *("uuid", "pci.bus_id", "memory.used", "memory.total", "power.draw", "power.limit"),
    *("temperature.gpu", "utilization.gpu", "name"),
)
"""The fields of nvidia-smi; the name comes last, since it may contain a comma."""
_FORM = "{{.Name}} {{.State.Status}} {{.State.Pid}} {{with .State.Health}}{{.Status}}{{end}}"
_PROPERTIES = ("Id", "LoadState", "ActiveState", "SubState", "Result", "MainPID")
_DOWN = (ABSENT, "inactive", "failed", "exited", "created", "dead", "paused")
"""States in which a server is not queried."""
_MOST_RELEASE = 1 << 18
_NUMBERED = re.compile(r"([0-9]{1,9})\.json")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MOST_WHY = 200


@dataclass(frozen=True)
class StatusInput:
    """The planned servers, and whether there are GPUs and a gateway."""

    servers: tuple[ServerInput, ...]
    gpus: bool
    gateway: bool


@dataclass(frozen=True)
class CardStatus:
    """A GPU, as the driver reports it: MiB, watts, degrees Celsius, percent; None for what it does not report."""

    uuid: str
    pci: str
    used: float | None
    total: float | None
    watts: float | None
    limit: float | None
    celsius: float | None
    busy: float | None
    name: str


@dataclass(frozen=True)
class ReleaseStatus:
    """The newest release: its number and its JSON."""

    number: int
    text: str


@dataclass(frozen=True)
class GatewayError:
    """Why the gateway's state is unknown, and what to do about it."""

    message: str
    fix: str


@dataclass(frozen=True)
class HostStatus:
    """The state of the host. `driver` contains why it lists no GPUs."""

    servers: Mapping[str, ServerStatus]
    cards: tuple[CardStatus, ...] = ()
    driver: str = ""
    release: ReleaseStatus | None = None
    gateway: GatewayState | None = None
    gateway_error: GatewayError | None = None


class Servers:
    """Queries systemd and Docker, then each server that runs."""

    def __init__(self, servers: Sequence[ServerInput], system: System) -> None:
        self._servers, self._system = servers, system
        self._states: dict[str, tuple[ServerStatus, int]] = {}
        self._probes: list[Probe] = []

    @property
    def found(self) -> dict[str, ServerStatus]:
        """Return what is known by now."""
        states = {name: status for name, (status, _) in [*self._states.items()]}
        return states | {probe.server.name: probe.status for probe in [*self._probes]}

    def run(self) -> None:
        """Query them."""
        run_together([self._find_units, self._find_containers], self._system)
        for each in self._servers:
            status, pid = self._states.get(each.name, (ServerStatus(), 0))
            if status.active not in _DOWN:
                self._probes.append(Probe(each, pid, status, self._system))
        run_together([probe.run for probe in self._probes], self._system)

    def _named(self, backend: str) -> list[str]:
        return [each.name for each in self._servers if each.backend == backend]

    def _find_units(self) -> None:
        if names := self._named("systemd"):
            self._states |= _units(names, self._system)

    def _find_containers(self) -> None:
        if names := self._named("compose"):
            self._states |= _containers(names, self._system)


class Cards:
    """Queries the driver."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.found: tuple[CardStatus, ...] = ()
        self.why = "nvidia-smi does not end"

    def run(self) -> None:
        """Query the driver in one call."""
        query = (f"--query-gpu={','.join(CARD_FIELDS)}", "--format=csv,noheader,nounits")
        ended = self._system.run(["nvidia-smi", *query], seconds=PROGRAM_SECONDS)
        self.found = tuple(_cards(ended.out))
        self.why = "" if self.found else _why("nvidia-smi", ended) or "nvidia-smi lists no GPU"


class Gateway:
    """Queries the gateway."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.found: GatewayState | None = None
        self.error: GatewayError | None = GatewayError(
            "its gateway does not respond", "see `systemctl status llamaherd-gateway` there"
        )

    def run(self) -> None:
        """Query it."""
        try:
            self.found, self.error = gateway.status(gateway.StatusInput(), self._system), None
        except FailedError as error:
            self.error = GatewayError(error.message, error.fix)


def inspect(given: StatusInput, system: System) -> HostStatus:
    """Return the state of the host, as far as it is known within some seconds. Nothing is changed."""
    servers = Servers(given.servers, system)
    cards = Cards(system) if given.gpus else None
    front = Gateway(system) if given.gateway else None
    run_together([part.run for part in (servers, cards, front) if part], system)
    return HostStatus(
        servers=servers.found,
        cards=cards.found if cards else (),
        driver=cards.why if cards else "",
        release=_newest_release(system),
        gateway=front.found if front else None,
        gateway_error=front.error if front else None,
    )


def run_together(jobs: Sequence[Callable[[], None]], system: System) -> None:
    """Run all jobs at once. The program ends without jobs that take too long."""
    failures: list[Exception] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:
            failures.append(error)

    threads = [Thread(target=run, args=(job,), daemon=True) for job in jobs]
    until = system.now() + ALL_SECONDS
    for each in threads:
        each.start()
    for each in threads:
        each.join(max(0.0, until - system.now()))
    if failures:
        raise failures[0]


def _units(names: Sequence[str], system: System) -> dict[str, tuple[ServerStatus, int]]:
    """Return the states of units, and their processes. A unit that systemd does not report is unknown, not absent."""
    options = [f"-p{each}" for each in _PROPERTIES]
    units = [f"{name}.service" for name in names]
    ended = system.run(["systemctl", "show", *options, *units], seconds=PROGRAM_SECONDS)
    found = {}
    for block in ended.out.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        name = values.get("Id", "").removesuffix(".service")
        if name in names and all(each in values for each in _PROPERTIES) and values["MainPID"].isdecimal():
            active = ABSENT if values["LoadState"] == "not-found" else values["ActiveState"]
            found[name] = ServerStatus(active, values["SubState"], values["Result"]), int(values["MainPID"])
    return found


def _containers(names: Sequence[str], system: System) -> dict[str, tuple[ServerStatus, int]]:
    """Return the states of containers, and their processes."""
    words = ("inspect", "--type", "container", "--format", _FORM)
    ended = system.run(["docker", *words, *names], seconds=PROGRAM_SECONDS)
    found = {}
    for line in ended.out.splitlines():
        match line.strip("/ ").split(" "):
            case [name, state, pid, *health] if name in names and pid.isdecimal():
                found[name] = ServerStatus(state, " ".join(health)), int(pid)
    if ended.ok or ended.code == NOT_STARTED or "no such" in ended.err.lower():
        found |= {name: (ServerStatus(ABSENT), 0) for name in names if name not in found}
    return found


def _cards(output: str) -> Iterator[CardStatus]:
    for line in output.splitlines()[:MOST_CARDS]:
        fields = [_CONTROL.sub(" ", each) for each in line.split(", ", len(CARD_FIELDS) - 1)]
        if line.startswith("GPU-") and len(fields) == len(CARD_FIELDS):
            uuid, pci, *figures, name = fields
            used, total, watts, limit, celsius, busy = map(parse_number, figures)
            yield CardStatus(uuid, pci, used, total, watts, limit, celsius, busy, name)


def _why(program: str, ended: Ended) -> str:
    """Return why a program failed: the first line of its output; empty where it did not fail."""
    if ended.code == TIMED_OUT:
        return f"{program} does not end within {PROGRAM_SECONDS} s"
    if ended.code == NOT_STARTED:
        return f"there is no {program}"
    text = ended.err.strip() or ended.out.strip() or f"{program} failed with exit code {ended.code}"
    return "" if ended.ok else _CONTROL.sub(" ", text.partition("\n")[0])[:_MOST_WHY]


def _newest_release(system: System) -> ReleaseStatus | None:
    numbers = [int(found[1]) for name in system.names(str(RELEASES)) if (found := _NUMBERED.fullmatch(name))]
    text = system.read(f"{RELEASES}/{max(numbers)}.json", _MOST_RELEASE) if numbers else None
    return None if text is None else ReleaseStatus(max(numbers), text)


VERBS = {"inspect": Verb(StatusInput, inspect)}
