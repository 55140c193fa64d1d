"""Return the state of a host now: servers, GPUs, release, gateway, and what processes take. All queries are bounded."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import Any

from llamaherd.layout import RELEASES
from llamaherd.onhost import gateway
from llamaherd.onhost.gateway import GatewayState
from llamaherd.onhost.hardware import parse_number
from llamaherd.onhost.reservation import run_holder
from llamaherd.onhost.server_control import left_of
from llamaherd.onhost.system import NOT_STARTED, TIMED_OUT, Ended, FailedError, System
from llamaherd.onhost.verbs import NoInput, Verb

HTTP_SECONDS = 2.0
"""The limit for one response: ik_llama.cpp responds to no client while it reads a prompt."""
BETWEEN_SECONDS = 1.0
"""The time between two reads of a count."""
MOST_BYTES = 4 << 20
"""Bytes of a response. Each of ik_llama.cpp's slots contains its prompt."""
IDLE_TICKS = 2
"""Ticks of processor time that an idle server uses in two seconds."""
_NOT_LOADED = "400"
"""The HTTP status that a server of several models returns for a model that it has not loaded."""
_RUNNING = re.compile(r"^(?:llamacpp:requests_processing|vllm:num_requests_running)(?:\{.*\})? ([0-9.e+]+)$", re.M)
_WAITING = re.compile(r"^(?:llamacpp:requests_deferred|vllm:num_requests_waiting)(?:\{.*\})? ([0-9.e+]+)$", re.M)
_WRITTEN = re.compile(r"^vllm:generation_tokens_total(?:\{.*\})? ([0-9.e+]+)$", re.M)
"""vLLM's counter grows while a response is written. llama.cpp's counter grows at the end of a response."""
_WORD = re.compile(r"[a-z]{1,20}")
_MOST_COUNT = 1 << 40


@dataclass(frozen=True)
class ServerInput:
    """A server: its unit or container, where it listens, and the paths that it is queried at.

    `figures` are pairs of paths, of its slots and of its metrics: of a server of several models, a pair for each.
    """

    name: str
    backend: str
    host: str
    port: int
    health: str
    figures: tuple[tuple[str, str], ...]
    in_turn: tuple[str, ...]
    """The models that it loads one after another."""
    models: str
    """The path of its list of models."""
    key: str | None
    """The file of its key."""
    one_process: bool
    props: str = ""
    """The path at which it reports that it sleeps; empty for a server that never unloads its model."""


@dataclass(frozen=True)
class ServerStatus:
    """A server: the reports of systemd or Docker, and its responses.

    `health` is an HTTP status, or `refused`, `silent`, `broken`. `still` is set for a silent server: `idle` if it has
    computed nothing since, `stopped` if its process is stopped. `models` has a word for each of several models, such as
    `loaded` or `failed`. `slots` counts all slots, `busy` slots with a request, `reading` slots that still read a
    prompt. `wrote` contains tokens, and the milliseconds in which they were written. `context` contains the tokens that
    all slots hold, also of finished requests, and those that they have room for. `pause_left` contains the seconds that
    are left of the pause of a server that does not run. `asleep` is set for a server that has unloaded its model.
    """

    active: str = ""
    doing: str = ""
    ended: str = ""
    health: str = ""
    still: str = ""
    silent: bool = False
    slots: int | None = None
    busy: int | None = None
    reading: int | None = None
    waiting: int | None = None
    wrote: tuple[int, int] | None = None
    context: tuple[int, int] | None = None
    models: Mapping[str, str] = field(default_factory=dict)
    pause_left: float | None = None
    asleep: bool = False


class Probe:
    """Queries one server. `status` contains all that is known by now, even if a later response never comes."""

    def __init__(self, server: ServerInput, pid: int, status: ServerStatus, system: System) -> None:
        self.server, self.status = server, status
        self._pid, self._system = pid, system

    def run(self) -> None:
        """Query the server, up to the first response that does not come in time."""
        server = self.server
        before = _stat(self._system, self._pid)
        health, _ = self._get(server.health)
        self._found(health=health)
        if health == "silent" and self._pid and server.one_process:
            self._found(still=_stands_still(self._system, self._pid, before))
        if health != "200":
            return
        if server.in_turn:
            code, text = self._get(server.models)
            known = _models(text) if code == "200" else {}
            self._found(models={name: word for name, word in known.items() if name in server.in_turn})
        if not server.props or self._has_requests():
            self._count_requests()

    def _has_requests(self) -> bool:
        """Return whether a server that can unload its model has requests.

        A request for its slots would load the model, or restart its idle time; requests for health, props and metrics
        do not (b11434, server-context.cpp:5086, server-queue.cpp:24).
        """
        server = self.server
        if server.in_turn:
            loaded = [each for name, each in zip(server.in_turn, server.figures, strict=False) if self._is_loaded(name)]
        else:
            self._found(asleep=sleeps(self._get(server.props)[1]))
            loaded = [] if self.status.asleep else list(server.figures)
        for _, metrics_path in loaded:
            code, metrics = self._get(metrics_path)
            self._requests(None, metrics if code == "200" else "")
        return bool(self.status.busy)

    def _is_loaded(self, model: str) -> bool:
        return self.status.models.get(model) == "loaded"

    def _count_requests(self) -> None:
        code, text, paths = "", "", ("", "")
        for paths in self.server.figures:
            code, text = self._get(paths[0])
            if code != _NOT_LOADED:
                break
        slots_path, metrics_path = paths
        if code == "silent":
            self._found(silent=True)
            return
        slots, since = _slots(text) if code == "200" else None, self._system.now()
        code, metrics = self._get(metrics_path)
        metrics = metrics if code == "200" else ""
        self._requests(slots, metrics)
        written = _total(_WRITTEN, metrics)
        if slots is None and written is None:
            return
        self._system.sleep(max(0.0, since + BETWEEN_SECONDS - self._system.now()))
        code, text = self._get(metrics_path if slots is None else slots_path)
        milliseconds = max(1, round((self._system.now() - since) * 1000))
        if code != "200":
            return
        if slots is not None and (later := _slots(text)) is not None:
            self._found(wrote=(_written_since(slots, later), milliseconds))
        elif slots is None and written is not None and (total := _total(_WRITTEN, text)) is not None:
            self._found(wrote=(max(0, round(total - written)), milliseconds))

    def _requests(self, slots: Sequence[Mapping[str, Any]] | None, metrics: str) -> None:
        if slots is not None:
            active = [slot for slot in slots if _is_busy(slot)]
            reading = sum(_decoded(slot) == 0 for slot in active)
            self._found(slots=len(slots), busy=len(active), reading=reading, context=_context(slots))
        elif (running := _total(_RUNNING, metrics)) is not None:
            self._found(busy=round(running))
        if (waiting := _total(_WAITING, metrics)) is not None:
            self._found(waiting=round(waiting))

    def _found(self, **fields: Any) -> None:
        self.status = replace(self.status, **fields)

    def _get(self, path: str) -> tuple[str, str]:
        """Return the status of a response and its text; in place of a status `refused`, `silent` or `broken`."""
        server = self.server
        headers = {}
        if server.key and path != server.health:
            key = self._system.read(server.key)
            if key is None:
                return "broken", ""
            headers["Authorization"] = f"Bearer {key.partition(chr(10))[0].strip()}"
        connection = http.client.HTTPConnection(server.host, server.port, timeout=HTTP_SECONDS)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            data = response.read(MOST_BYTES + 1)
            return str(response.status) if len(data) <= MOST_BYTES else "broken", data.decode(errors="replace")
        except TimeoutError:
            return "silent", ""
        except ConnectionRefusedError:
            return "refused", ""
        except (OSError, ValueError, http.client.HTTPException):
            return "broken", ""
        finally:
            connection.close()


def _stat(system: System, pid: int, thread: str = "") -> list[str]:
    """Return the fields of a process, or of a thread of it, from its state on."""
    text = system.read(f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat") if pid else None
    return (text or "").rpartition(") ")[2].split()


def _stands_still(system: System, pid: int, before: Sequence[str]) -> str:
    """Return `stopped`, or `idle` if a process has computed nothing since and waits for no processor or disk."""
    now = _stat(system, pid)
    if now[:1] in (["T"], ["t"]):
        return "stopped"
    if not before or not now or now[9] != before[9] or _ticks(now) - _ticks(before) > IDLE_TICKS:
        return ""
    states = {state for thread in system.names(f"/proc/{pid}/task") for state in _stat(system, pid, thread)[:1]}
    return "" if states & {"R", "D"} else "idle"


def _ticks(fields: Sequence[str]) -> int:
    """Return the processor time of a process."""
    return int(fields[11]) + int(fields[12])


def _slots(text: str) -> list[dict[str, Any]] | None:
    """Return the slots in a response; None if it is not a list of slots."""
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, list) and all(isinstance(each, dict) for each in found):
            return found
    return None


def _models(text: str) -> dict[str, str]:
    """Return the state of each of several models: `loaded`, `loading`, `unloaded`, or `failed`."""
    listed: Any = None
    with suppress(ValueError, RecursionError, KeyError, TypeError):
        listed = json.loads(text)["data"]
    found = {}
    for each in listed if isinstance(listed, list) else []:
        status = each.get("status") if isinstance(each, dict) else None
        if isinstance(status, dict) and _WORD.fullmatch(str(status.get("value"))):
            found[str(each.get("id"))] = "failed" if status.get("failed") is True else str(status["value"])
    return found


def sleeps(text: str) -> bool:
    """Return whether a server reports in its props that it has unloaded its model."""
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        return isinstance(found, dict) and found.get("is_sleeping") is True
    return False


def _is_busy(slot: Mapping[str, Any]) -> bool:
    """Return whether a slot has a request; ik_llama.cpp has a number for that."""
    return slot.get("is_processing") is True or slot.get("state") == 1


def _decoded(slot: Mapping[str, Any]) -> int:
    """Return the tokens of the response by now; 0 while the server reads the prompt."""
    found = slot.get("next_token")
    found = found[0] if isinstance(found, list) and found else found
    count = found.get("n_decoded") if isinstance(found, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _MOST_COUNT else 0


def _context(slots: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
    """Return the tokens that slots hold, and those that they have room for; None if a slot does not report its room.

    A slot that had no request yet reports no tokens (b11434, server-context.cpp:737).
    """
    rooms = [_count(slot.get("n_ctx")) for slot in slots]
    if not slots or not all(rooms):
        return None
    return sum(_count(slot.get("n_prompt_tokens")) or 0 for slot in slots), sum(each or 0 for each in rooms)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_COUNT else None


def _written_since(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> int:
    """Return the tokens that slots wrote between two reads: all tokens of requests that began since."""

    def key(slot: Mapping[str, Any], name: str) -> str:
        return json.dumps(slot.get(name))

    known = {key(slot, "id"): (key(slot, "id_task"), _decoded(slot)) for slot in before if _is_busy(slot)}
    total = 0
    for slot in now:
        if _is_busy(slot):
            task, count = known.get(key(slot, "id"), ("", 0))
            total += max(0, _decoded(slot) - (count if task == key(slot, "id_task") else 0))
    return total


def _total(pattern: re.Pattern[str], text: str) -> float | None:
    """Return the sum of a metric over its labels; None if it is not a possible count."""
    with suppress(ValueError):
        found = [float(each) for each in pattern.findall(text)]
        if found and sum(found) < _MOST_COUNT:
            return sum(found)
    return None


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
    """A GPU, as the driver reports it: MiB, watts, degrees Celsius, percent; None for a value that it does
    not report.
    """

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
    """Why the gateway's state is unknown, and the fix."""

    message: str
    fix: str


@dataclass(frozen=True)
class HostStatus:
    """The state of the host. `driver` contains why it lists no GPUs, `holder` the run that holds the host's lock."""

    servers: Mapping[str, ServerStatus]
    cards: tuple[CardStatus, ...] = ()
    driver: str = ""
    release: ReleaseStatus | None = None
    gateway: GatewayState | None = None
    gateway_error: GatewayError | None = None
    holder: str = ""


class Servers:
    """Queries systemd and Docker, then each server that runs."""

    def __init__(self, servers: Sequence[ServerInput], system: System) -> None:
        self._servers, self._system = servers, system
        self._states: dict[str, tuple[ServerStatus, int]] = {}
        self._probes: list[Probe] = []

    @property
    def found(self) -> dict[str, ServerStatus]:
        """Return the servers that are known by now."""
        states = {name: status for name, (status, _) in [*self._states.items()]}
        return states | {probe.server.name: probe.status for probe in [*self._probes]}

    @property
    def processes(self) -> dict[str, int]:
        """Return the first process of each server that runs."""
        return {name: pid for name, (_, pid) in [*self._states.items()] if pid}

    def run(self) -> None:
        """Query them."""
        run_together([self._find_units, self._find_containers], self._system)
        for each in self._servers:
            status, pid = self._states.get(each.name, (ServerStatus(), 0))
            if status.active not in _DOWN:
                self._probes.append(Probe(each, pid, status, self._system))
            elif (left := left_of(each.name, self._system)) is not None:
                self._states[each.name] = replace(status, pause_left=left), pid
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
            self.found, self.error = gateway.status(NoInput(), self._system), None
        except FailedError as error:
            self.error = GatewayError(error.message, error.fix)


def inspect(given: StatusInput, system: System) -> HostStatus:
    """Return the state of the host, as far as it is known within some seconds. Nothing is changed."""
    return inspect_processes(given, system)[0]


def inspect_processes(
    given: StatusInput, system: System, *more: Callable[[], None]
) -> tuple[HostStatus, Mapping[str, int]]:
    """Return the state of the host, and the process of each server that has one. Run `more` at the same time."""
    servers = Servers(given.servers, system)
    cards = Cards(system) if given.gpus else None
    front = Gateway(system) if given.gateway else None
    run_together([*(part.run for part in (servers, cards, front) if part), *more], system)
    status = HostStatus(
        servers=servers.found,
        cards=cards.found if cards else (),
        driver=cards.why if cards else "",
        release=newest_release(system),
        gateway=front.found if front else None,
        gateway_error=front.error if front else None,
        holder=run_holder(system),
    )
    return status, servers.processes


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


def newest_release(system: System) -> ReleaseStatus | None:
    """Return the newest release of the host; None if there is none."""
    numbers = [int(found[1]) for name in system.names(str(RELEASES)) if (found := _NUMBERED.fullmatch(name))]
    text = system.read(f"{RELEASES}/{max(numbers)}.json", _MOST_RELEASE) if numbers else None
    return None if text is None else ReleaseStatus(max(numbers), text)


_APPS = ("--query-compute-apps=gpu_uuid,pid,used_memory,process_name", "--format=csv,noheader,nounits")
_MOST_APPS = 256
_MOST_NAME = 60
_RSS = re.compile(r"^VmRSS:\s+([0-9]{1,15}) kB$", re.MULTILINE)


@dataclass(frozen=True)
class GpuUse:
    """A process on a GPU: MiB, None if the driver does not report it. `service` is empty for other programs."""

    uuid: str
    pid: int
    used: float | None
    name: str
    service: str = ""


@dataclass(frozen=True)
class ProcessUse:
    """The first process of a server: bytes of RAM, and seconds of processor time since its start."""

    pid: int
    memory: int | None = None
    computed: float = 0.0


@dataclass(frozen=True)
class TopStatus:
    """The state of a host at a time of its own clock, its server processes by service, and the processes on GPUs."""

    clock: float
    host: HostStatus
    processes: Mapping[str, ProcessUse] = field(default_factory=dict)
    apps: tuple[GpuUse, ...] = ()


def inspect_usage(given: StatusInput, system: System) -> TopStatus:
    """Return the state of the host, as far as it is known within some seconds. Nothing is changed."""
    apps: list[GpuUse] = []
    more = [lambda: apps.extend(_apps(system))] if given.gpus else []
    host, pids = inspect_processes(given, system, *more)
    groups = {name: _group(pid, system) for name, pid in pids.items()}
    return TopStatus(
        clock=system.now(),
        host=host,
        processes={name: _process(pid, system) for name, pid in pids.items()},
        apps=tuple(_of_service(each, pids, groups, system) for each in apps),
    )


def _apps(system: System) -> Iterator[GpuUse]:
    """Yield the processes on GPUs, as the driver reports them."""
    ended = system.run(["nvidia-smi", *_APPS], seconds=PROGRAM_SECONDS)
    for line in ended.out.splitlines()[:_MOST_APPS]:
        match [_CONTROL.sub(" ", each) for each in line.split(", ", 3)]:
            case [uuid, pid, used, name] if uuid.startswith("GPU-") and pid.isascii() and pid.isdecimal():
                yield GpuUse(uuid, int(pid[:10]), parse_number(used), name.rpartition("/")[2][:_MOST_NAME])


def _of_service(app: GpuUse, pids: Mapping[str, int], groups: Mapping[str, str], system: System) -> GpuUse:
    """Return a process with the server that it belongs to, by its number or its control group."""
    group = _group(app.pid, system)
    service = next((name for name in pids if app.pid == pids[name] or (group and group == groups[name])), "")
    return GpuUse(app.uuid, app.pid, app.used, app.name, service)


def _group(pid: int, system: System) -> str:
    """Return the control groups of a process; empty in the root of all groups."""
    text = (system.read(f"/proc/{pid}/cgroup") or "").strip()
    return "" if all(line.endswith(":/") for line in text.splitlines()) else text


def _process(pid: int, system: System) -> ProcessUse:
    found = _RSS.search(system.read(f"/proc/{pid}/status") or "")
    return ProcessUse(pid, int(found[1]) << 10 if found else None, system.computed(pid))


VERBS = {"inspect": Verb(StatusInput, inspect), "usage": Verb(StatusInput, inspect_usage)}
