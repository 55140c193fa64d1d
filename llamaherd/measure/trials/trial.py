"""`Trial`: the units of servers that are tried on a host, and their run in place of or side by side with others."""

from __future__ import annotations

import base64
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.protocol import HostLock, UnexpectedLineError
from llamaherd.host.remote import Patience, Shell
from llamaherd.host.ssh import Forward, RemoteError
from llamaherd.host.tunnel import free_port
from llamaherd.inventory.api_keys import UnreadableKeyError, read_key
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.layout import KEPT, RUNTIME_UNITS, TRIALS_TEXT, trial_service
from llamaherd.measure.bench.job import WorkloadContext
from llamaherd.measure.bench.workloads import Ladder
from llamaherd.measure.client.http_client import Failure, StreamedResponse, Target
from llamaherd.measure.client.requests import Requests, RequestSpec, Served, estimate_prompt
from llamaherd.measure.results.result import Run, Start
from llamaherd.memory.instances import MARGIN, SYSTEM_RAM
from llamaherd.onhost.servers import MINE, READY_TO_START, NeededGpu, StoppedServer, TrialServer, TrialsInput
from llamaherd.plan import RAM, InstancePlan, Plan, TextFile
from llamaherd.plan.backends import render_unit, server_definition
from llamaherd.plan.instance import require_chats
from llamaherd.plan.plan import instance_name_error, instance_names, instances_of
from llamaherd.render import render
from llamaherd.role.changes import written_files
from llamaherd.text.numbers import whole_number
from llamaherd.text.quoting import Written

VariantName = Literal["A", "B", "C"]
"""A and B of a comparison; C is the current candidate of a search."""

LISTEN = "127.0.0.1"
_PORTS = range(65_000, 65_100)
"""Above the ports that Linux gives to outgoing connections (32768 to 60999), and those of candidates in a switch."""

SCRATCH = "/var/tmp"
"""Where a unit may write: its own one, on the disk (PrivateTmp), which systemd removes when it is stopped, and of units
of an earlier boot when the system starts (tmp.conf of its tmpfiles.d)."""


@dataclass(frozen=True)
class Variant:
    """A server to try: an instance, planned at the port of trials, and its title in messages."""

    name: VariantName
    title: str
    instance: InstancePlan

    @property
    def service(self) -> str:
        """The name of its systemd unit."""
        return trial_service(self.instance.name, self.name)


def trial_port(plan: Plan, name: str) -> int:
    """Return the port of the tried servers of an instance: always the same, and not a declared one."""
    declared = {each.endpoint.port for each in plan.instances}
    first = zlib.crc32(name.encode()) % len(_PORTS)
    turned: tuple[int, ...] = (*_PORTS[first:], *_PORTS[:first])
    return next(port for port in turned if port not in declared)


def variant_unit(variant: Variant, longest: int) -> TextFile:
    """Render the unit of a tried server: the declared unit under another name, for at most `longest` seconds."""
    return _unit(variant, "bench/trial.service.j2", longest=longest)


def program_unit(variant: Variant, runs: Sequence[Sequence[str]], seconds: int) -> TextFile:
    """Render the unit of a tried server that runs these programs, one after the other, instead of the server.

    Each may take some seconds. The unit has the rights and limits of the server, and its own SCRATCH, which is removed
    with the unit.
    """
    return _unit(variant, "bench/trial-run.service.j2", runs=runs, seconds=seconds)


def _unit(variant: Variant, template: str, **values: object) -> TextFile:
    server = variant.instance.server.model_copy(update={"service": variant.service})
    text = render(template, unit=Written(render_unit(server, variant.instance.spec).text), **values)
    return TextFile(path=str(RUNTIME_UNITS / f"{variant.service}.service"), text=text)


def unit_instances(server: InstancePlan) -> tuple[str, ...]:
    """Return the instances of a server: those of a group one by one."""
    return tuple(each.name for each in server.members) or (server.name,)


def server_with(plan: Plan, name: str) -> InstancePlan:
    """Return the server of an instance: its own, or that of its group."""
    return next(each for each in plan.instances if name in unit_instances(each))


def server_at_port(server: InstancePlan, name: str, port: int, start_seconds: int | None = None) -> InstancePlan:
    """Return an instance of a server as it is planned, but for its own host alone and at this port.

    It is placed after the plan: an inventory with another `listen` would be another fleet, with other keys. Raise
    UserError if its arguments do not contain where it listens.
    """
    if server.members:
        return standalone_server(server, name, port, start_seconds)
    if missing := next((flag for flag in ("--host", "--port") if flag not in server.server.arguments[:-1]), None):
        raise UserError(f"the arguments of {name} have no `{missing}`", "let `listen` and `port` set it")
    return server.model_copy(update={"server": server.server.model_copy(update=_at_port(server, port))})


def standalone_server(group: InstancePlan, name: str, port: int, start_seconds: int | None = None) -> InstancePlan:
    """Return the instance as a unit with one model, at this port of the host itself, and with this time to start.

    It runs as the group's user, on its GPUs, with its key.
    """
    one = next(each for each in instances_of(group) if each.name == name)
    server = one.server.model_copy(
        update=_at_port(one, port, swaps=False)
        | {
            "folders": tuple(each for each in (one.model_folder, one.draft_folder) if each),
            "start_seconds": start_seconds or one.server.start_seconds,
        }
    )
    spec, unit = server_definition("systemd", server)
    return one.model_copy(update={"server": server, "spec": spec, "file": unit, "preset": None})


def _at_port(one: InstancePlan, port: int, **more: object) -> dict[str, object]:
    """Return the changed fields of a server that listens at this port of its own host; `more` are of its endpoint."""
    places = {"--host": LISTEN, "--port": str(port)}
    endpoint = one.endpoint.model_copy(update={"listen": LISTEN, "port": port, **more})
    before = (None, *one.server.arguments)
    words = tuple(places.get(flag or "", word) for flag, word in zip(before, one.server.arguments, strict=False))
    return {"arguments": words, "endpoint": endpoint}


def unit_of(plan: Plan, rig: str, name: str) -> InstancePlan:
    """Return the systemd server of an instance: its own, or that of its group. Raise UserError."""
    found = next((each for each in plan.instances if name in unit_instances(each)), None)
    if found is None:
        group = next((each for each in plan.instances if each.name == name), None)
        if group:
            there = ", ".join(instance_names(plan))
            raise UserError(f"{rig}/{name} is a group, and a trial runs one model", f"name one of {there}")
        raise instance_name_error(plan, name)
    if found.backend != "systemd":
        raise UserError(
            f"{rig}/{name} is a container, and a trial runs units of systemd",
            "declare `backend: systemd` for it to compare it so, or compare two results of `herd bench`",
        )
    return found


def variant_instance(plan: Plan, rig: str, name: str, port: int, start_seconds: int | None = None) -> InstancePlan:
    """Return an instance of a plan as a tried server at this port. Raise UserError, also for embeddings and rerank."""
    tried = server_at_port(unit_of(plan, rig, name), name, port, start_seconds)
    require_chats(tried, "a trial of `herd tune` or `herd compare --run`")
    return tried


OUT_OF_MEMORY_WORDS = {
    "out of memory": (
        "CUDA's name of cudaErrorMemoryAllocation, which ggml/src/ggml-cuda/ggml-cuda.cu prints after `CUDA error: ` "
        "and PyTorch after `CUDA `; Linux' OOM killer, mm/oom_kill.c"
    ),
    "cudaMalloc": "ggml_backend_cuda_buffer_type_alloc_buffer in ggml/src/ggml-cuda/ggml-cuda.cu",
    "failed to allocate": "ggml_gallocr_reserve_n in ggml/src/ggml-alloc.c, and llama_context in src/llama-context.cpp",
    "unable to allocate": "load_tensors in src/llama-model.cpp; ik_llama.cpp's src/llama.cpp",
    "bad_alloc": "what() of C++'s std::bad_alloc, by libstdc++",
    "for lack of RAM": "roles/serve/onhost/trials.py, where systemd reports that the result of a unit is `oom-kill`",
}
"""The words, in any case, and the source of each."""
_PATTERN = re.compile("|".join(map(re.escape, OUT_OF_MEMORY_WORDS)), re.IGNORECASE)


def is_out_of_memory(says: str) -> bool:
    """Return whether a program that ended with these words lacked memory."""
    return bool(_PATTERN.search(says))


_SILENCE = 120
"""Seconds without a line from the host, which sends one every 15."""
_WORD_SECONDS = 4 * 3600.0
"""Seconds until the response to one command: a server loads for two hours at most, and another run comes first."""
_DOES = {
    MINE: "preparing a measurement",
    READY_TO_START: "stopping the running servers",
    "ready": "starting a server",
    "judged": "reading a text as a server",
    "placed": "writing a unit",
    "stopped": "stopping a server",
    "back": "restoring the servers that ran before",
}
"""What a host does before each word; a wait for several words is listed by the first of them."""
_ANSWER_SECONDS = 900.0
_SPARE = 900
"""Seconds beyond the budget: the block that it ends in, and a connection that was cut and is not detected yet."""
_MOST_CHARACTERS = 200
"""Letters of the user's name."""
_RECORDS = "/run/llamaherd/started"


class NotStartedError(UserError):
    """A server that did not start; `says` is the end of its log."""

    def __init__(self, title: str, says: str) -> None:
        super().__init__(
            f"{title} does not start: {says or 'no error message'}",
            "fix what its message names; the servers that ran before are started again",
        )
        self.says = says


@dataclass(frozen=True)
class UnitRun:
    """How a unit ended that ran in place of a server, and the end of its output."""

    well: bool
    says: str


@dataclass(frozen=True)
class Trial:
    """Servers to try on a host, one at a time, and the declared servers that stop for it.

    Without `stops`, the declared servers keep running, and the tried servers run side by side with them.
    """

    rig: str
    connect: Connect
    servers: tuple[Variant, ...]
    stops: tuple[InstancePlan, ...]
    seconds: float
    """The budget of all measurements."""
    author: str
    """The user, for messages to other runs."""
    report: Callable[[str], None]
    drain: Callable[[], AbstractContextManager[object]] = nullcontext
    """Keeps new requests off the declared servers, from before they stop until they serve again."""
    keys: Mapping[VariantName, str | None] = field(default_factory=dict, repr=False)
    """The API key of each server; see `read_keys`."""
    replaceable: bool = False
    """Whether the controller may replace the unit of the only server, one after the other."""
    text: str = ""
    """A text that a unit may read: see `TrialHost.run_to_end`."""

    @property
    def input(self) -> TrialsInput:
        """The input of the verb that runs the trial on the host."""
        longest = int(self.seconds) + _SPARE
        units = [variant_unit(each, longest) for each in self.servers]
        files = [*units, *([TextFile(path=str(TRIALS_TEXT), text=self.text)] if self.text else [])]
        return TrialsInput(
            name=self.servers[0].instance.service,
            holder=" ".join(self.author.split())[:_MOST_CHARACTERS],
            servers=tuple(_needs(each, side_by_side=not self.stops) for each in self.servers),
            stops=tuple(StoppedServer(each.service, str(KEPT / each.service)) for each in self.stops),
            drain_seconds=max((each.drain for each in self.stops), default=0),
            longest=longest,
            patience=60 + max(each.instance.server.stop.seconds for each in self.servers),
            files=written_files(files),
            leftovers=(*(each.path for each in files), *(f"{_RECORDS}/{each.service}" for each in self.servers)),
            placed=units[0].path if self.replaceable else "",
            scratch=SCRATCH if self.text else "",
        )


def _needs(variant: Variant, *, side_by_side: bool) -> TrialServer:
    """Return a server and the memory that it needs; without memory if that is uncertain."""
    memory = variant.instance.memory
    sure = memory is not None and not memory.doubts
    at = {card.name: card.at for card in variant.instance.server.cards if card.at != "any"}
    holds = {each.where: each.total for each in memory.holds} if memory and sure else {}
    taken = {} if variant.instance.server.one_card else holds
    more = MARGIN if side_by_side else 0
    gpus = tuple(NeededGpu(name, at[name], need + more) for name, need in taken.items() if name in at)
    resident = (memory.resident or 0) if memory and sure else 0
    ram = holds.get(RAM, 0) + SYSTEM_RAM if side_by_side else resident
    return TrialServer(variant.name, variant.service, ram, gpus)


def read_keys(servers: Iterable[Variant]) -> dict[VariantName, str | None]:
    """Return the API key of each server; None for a server without one. Raise UserError if one cannot be read."""
    secrets = {each.name: each.instance.endpoint.key for each in servers}
    try:
        return {name: read_key(secret) if secret else None for name, secret in secrets.items()}
    except UnreadableKeyError as error:
        raise UserError(str(error), "put the key there, or name its place in the inventory") from None


@contextmanager
def locked_host(rig: str, connect: Connect, author: str, report: Callable[[str], None], wait: int) -> Iterator[None]:
    """Hold the lock of a host. Raise UserError if another run keeps it for longer than `wait` seconds."""
    lock = HostLock(rig, connect, author)
    lock.take(report, wait)
    try:
        yield
    finally:
        lock.give_back()


class TrialServers(Protocol):
    """Starts servers, one at a time, and sends requests to the running one."""

    def start(self, name: VariantName, /) -> Start:
        """Start a server, and wait until it responds. Raise NotStartedError."""
        ...

    def stop(self) -> None:
        """Stop the running server."""
        ...

    def request(self, request: RequestSpec, /) -> StreamedResponse | Failure:
        """Return one streamed response of the running server."""
        ...

    def count(self, text: str, /) -> int:
        """Return the number of tokens that the running server reads of a chat with a text."""
        ...

    def clock(self) -> float:
        """Return the time in seconds."""
        ...


class TrialHost:
    """A trial that runs on its host, from `with` to its end: then the declared servers serve again.

    `cache_buster` begins each prompt, so that no cache of an earlier trial contains it.
    """

    def __init__(self, trial: Trial, cache_buster: str) -> None:
        self._trial, self._cache_buster = trial, cache_buster
        self._servers = {each.name: each for each in trial.servers}
        self._drained = ExitStack()
        self._there = trial.servers[0].instance.endpoint.port
        self._here = self._there
        self._running: Variant | None = None
        self._shell: Shell | None = None
        self._lines: Iterator[str] = iter(())
        self._patience = Patience(_SILENCE, _WORD_SECONDS)

    def __enter__(self) -> Self:
        """Stop the declared servers. Raise UserError if the host refuses the trial."""
        forward = None
        if self._trial.connect.host != LOCAL:
            self._here = free_port()
            forward = Forward(self._here, LISTEN, self._there)
        self._shell = Shell(self._trial.connect, fresh=True, forward=forward)
        try:
            self._lines = self._shell.converse("serve.trials.run", self._trial.input, self._patience)
            if self._hear(MINE, READY_TO_START) == [MINE]:
                self._drained.enter_context(self._trial.drain())
                self._tell("go")
                self._hear(READY_TO_START)
        except BaseException:
            with self._drained:
                self._shell.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the tried servers, and wait until the declared servers serve again."""
        assert self._shell
        with self._drained:
            seconds = self._restore(self._shell)
        names = " and ".join(each.service for each in self._trial.stops)
        if not names:
            return
        if seconds is None:
            self._trial.report(f"the host restores {names} by itself; run `herd verify {self._trial.rig}` to check it")
        else:
            self._trial.report(f"{names} is as before, after {seconds:.1f} s")

    def _restore(self, shell: Shell) -> float | None:
        """Return the seconds until the declared servers serve again; None if they do not, or if that is unknown."""
        try:
            shell.hang_up()
            word, *parts = self._hear("back", "away")
            return _seconds(parts, 0) if word == "back" else None
        except UserError:
            return None
        finally:
            shell.close()

    def start(self, name: VariantName) -> Start:
        """Start a server, and wait until it responds. Raise NotStartedError if it does not."""
        variant = self._running = self._servers[name]
        self._tell(f"start {name}")
        word, *parts = self._hear("ready", "failed")
        if word == "failed":
            raise NotStartedError(variant.title, " ".join(parts[1:]))
        return Start(process=parts[2] if len(parts) > 2 else None, ready_seconds=_seconds(parts, 1))

    def place(self, variant: Variant) -> None:
        """Replace the only server of a replaceable trial."""
        self._place(variant_unit(variant, int(self._trial.seconds)).text)
        self._servers = {**self._servers, variant.name: variant}

    def run_to_end(self, unit: str, room: int) -> UnitRun:
        """Run a unit to its end in place of the only server of a replaceable trial, which has a text for it.

        The unit needs `room` bytes on the disk for its files. Stop it afterwards: that removes the files.
        """
        self._place(unit)
        self._tell(f"judge {room}")
        word, *parts = self._hear("judged", "failed")
        if word == "failed":
            return UnitRun(well=False, says=" ".join(parts[1:]))
        try:
            return UnitRun(well=True, says=base64.b64decode("".join(parts)).decode(errors="replace"))
        except ValueError:
            raise UnexpectedLineError("".join(parts)) from None

    def _place(self, unit: str) -> None:
        self._tell(f"unit {base64.b64encode(unit.encode()).decode()}")
        word, *parts = self._hear("placed", "failed")
        if word == "failed":
            raise UserError(" ".join(parts), "check the disk of the host")

    def stop(self) -> None:
        """Stop the running server."""
        self._running = None
        self._tell("stop")
        self._hear("stopped")

    def request(self, request: RequestSpec) -> StreamedResponse | Failure:
        """Return one streamed response of the running server."""
        variant = self._variant
        chat = variant.instance.endpoint.chat_path
        return Requests(self._target, chat, variant.instance.endpoint.models[0], self._cache_buster).send(
            request, _ANSWER_SECONDS
        )

    def climb(self, depth: int) -> list[Run]:
        """Let the running server read `depth` tokens and write after them; return the runs of both. Raise UserError."""
        endpoint, target = self._variant.instance.endpoint, self._target
        served = Served(target, target, endpoint.chat_path, endpoint.models[0], native=True)
        return [run for _, run in Ladder((depth,)).runs(WorkloadContext(served, self._cache_buster, self.clock))]

    def count(self, text: str) -> int:
        """Return the number of tokens that the running server reads of a chat with a text."""
        return estimate_prompt(self._target, self._variant.instance.endpoint.models[0], text)

    def clock(self) -> float:
        """Return the monotonic time in seconds."""
        return time.monotonic()

    @property
    def _variant(self) -> Variant:
        assert self._running
        return self._running

    @property
    def _target(self) -> Target:
        return Target(f"http://{LISTEN}:{self._here}", self._trial.keys.get(self._variant.name))

    def _tell(self, line: str) -> None:
        assert self._shell
        self._shell.tell(line)

    def _hear(self, *words: str) -> list[str]:
        """Return the next line that begins with one of these words. Raise UserError if none arrives in time."""
        self._patience.renew(_WORD_SECONDS, _DOES[words[0]])
        for line in self._lines:
            parts = line.split(" ")
            if parts[0] in words:
                return parts
        assert self._shell
        *_, why = ("it does not report why", *self._shell.complaints)
        raise RemoteError(
            f"measuring ended halfway: {why[:300]}",
            "the host restores the servers that ran before; run again to resume",
        )


def _seconds(parts: Sequence[str], at: int) -> float:
    """Return the seconds of a word of milliseconds. Raise UnexpectedLineError without such a word."""
    milliseconds = whole_number(parts[at]) if len(parts) > at else None
    if milliseconds is None:
        raise UnexpectedLineError(" ".join(parts))
    return milliseconds / 1000
