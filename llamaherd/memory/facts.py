"""The facts of a rig: command line, threads, placement and memory of each instance, derived once and passed on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from llamaherd.diagnostics.findings import Rule
from llamaherd.engines import CommandLine, command_line, explicit_command, flags_of, reads_gguf
from llamaherd.engines.flags.definitions import Catalogue
from llamaherd.engines.flags.task import Task, server_task
from llamaherd.gguf.folder import FolderShape
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Cpu, Instance, Rig
from llamaherd.memory.estimate import Memory
from llamaherd.memory.fit import Fit, Room, fit_memory
from llamaherd.memory.instances import (
    MARGIN,
    SYSTEM_RAM,
    InstanceMemory,
    instance_memory,
    place_instance,
    placement,
    usable_bytes,
)
from llamaherd.memory.overhead import Growth
from llamaherd.memory.placement import Placement
from llamaherd.text.numbers import whole_number

ALL_LAYERS = 99
"""The number that recipes write for all layers. Without the model's header, fewer layers are not all of them."""

SMALL = 16
"""Up to so many cores, a thread for each is best. With more, decoding waits for RAM."""

_MOVING = ("--cpu-moe", "--n-cpu-moe", "--n-cpu-ffn")

THREAD_FOR_EACH = Rule(
    "LH160",
    "A server has a thread for every processor.",
    why="""
    Its threads wait for each other some hundred times a token, and one that waits for a processor stops all the
    others. On 64 cores without SMT siblings, experts on the CPU were computed at 7 to 83 tokens a second with 64
    threads, and at 80 with 32 or 40 ([serve.md](../serve.md#threads)).
    """,
    example="""
    llama-server -m model.gguf -c 4096 --port 8080 -t "$(nproc)"
    """,
    language="sh",
    fix="""
    leave `threads` out of an inventory. In a recipe, give the number of physical cores. Of more than 16 without
    siblings, leave half of those beyond 16 free.
    """,
    severity="warning",
    sometimes=("note",),
)


def best_threads(cpu: Cpu) -> int:
    """Return the threads of one server alone: one for each performance core, or core.

    Half of those beyond 16 stay free.
    On 64 cores without SMT siblings, 24 to 48 threads were within 6 % of the best, 62 to 64 now and then three to
    thirty times slower.
    """
    cores = min(cpu.performance or cpu.cores, cpu.cores)
    return cores if cores <= SMALL else SMALL + (cores - SMALL) // 2


def shared_threads(rig: Rig, on_cpu: Collection[str]) -> dict[str, int]:
    """Return the threads of every instance, by name. Instances without `threads` share the cores that are left.

    Only the instances `on_cpu` share, which compute on the CPU: others need little of it. Instances of a group have one
    share together, because only one of them runs.
    """
    best = best_threads(rig.host.cpu)
    undecided = [name for name in on_cpu if not rig.instances[name].threads]
    servers = {rig.server_of(name) for name in on_cpu}
    alone, fair = len(servers) == 1, max(1, best // max(1, len(servers)))
    left = best if alone else rig.host.cpu.cores - sum(_declared(rig, on_cpu).values())
    share = min(best, left // max(1, len({rig.server_of(name) for name in undecided})))
    share = share if 2 * share >= fair else fair  # other instances declare too many: a check reports that
    return {name: each.threads or (share if name in undecided else best) for name, each in rig.instances.items()}


def _declared(rig: Rig, names: Iterable[str]) -> dict[str, int]:
    """Return the declared threads by server; for a group, those of the instance with most."""
    found: dict[str, int] = {}
    for name in names:
        server = rig.server_of(name)
        found[server] = max(found.get(server, 0), rig.instances[name].threads or 0)
    return found


def computes_on_cpu(rig: Rig, instance: Instance, header: Header | None, explicit: CommandLine | None) -> bool:
    """Return whether an instance has no GPU, or not all layers or experts on its GPUs.

    `explicit` is its command line, if it has arguments or variables besides its keys.
    """
    engine = rig.engines.get(instance.engine)
    if not reads_gguf(engine):
        return False
    if not instance.on or instance.experts_on_cpu not in (None, 0, "0%"):
        return True
    if isinstance(instance.gpu_layers, int) and instance.gpu_layers < (header.layers if header else ALL_LAYERS):
        return True
    return explicit is not None and _moves(explicit, header.layers if header else ALL_LAYERS)


def _moves(line: CommandLine, layers: int) -> bool:
    """Return whether arguments or variables leave layers, tensors or the cache to the CPU."""
    held = line.own("--gpu-layers", "--n-gpu-layers")
    if held and (count := whole_number(held.value)) is not None and count < layers:
        return True
    cache = line.own("--no-kv-offload")
    if cache and cache.on != ("--no-kv-offload" in cache.flag.negated):
        return True
    overrides = line.effective.every("--override-tensor")
    if any("=CPU" in option.value for option in overrides if not line.is_by_key(option)):
        return True
    moving = (option for name in _MOVING if (option := line.own(name)))
    return any(option.on and option.value != "0" for option in moving)


_NO_HEADER = Header(architecture="")


@dataclass(frozen=True)
class InstanceFacts:
    """What rig, engine and headers decide about one instance.

    `flags` are those of the engine's pinned version, and `command` is the command line by them; both are None for an
    undeclared engine. `task` is what the server is for, by its arguments. `on_cpu` is set if the instance uses the CPU
    for more than feeding its GPUs. An instance whose engine reads GGUF files has a `placement`; if its header is
    unknown, as of a model without layers. `memory`
    is known where the header and the memory of all GPUs are. `fault` is the reason why either cannot be derived.
    """

    instance: Instance
    flags: Catalogue | None
    command: CommandLine | None
    task: Task
    header: Header | None
    on_cpu: bool
    threads: int
    placement: Placement | None
    memory: InstanceMemory | None
    fault: ValueError | None

    @property
    def explicit(self) -> CommandLine | None:
        """The command line, if `extra_args` or `environment` add to what the keys set."""
        return explicit_command(self.instance, self.command)


@dataclass(frozen=True)
class Sized:
    """An instance whose memory is known. `room` is what the other instances leave of its GPUs and the RAM."""

    name: str
    held: InstanceMemory
    room: Room

    @property
    def instance(self) -> Instance:
        """The declared instance."""
        return self.held.instance

    @property
    def header(self) -> Header:
        """The header of its model."""
        return self.held.header

    @property
    def placement(self) -> Placement:
        """The placement of its model."""
        return self.held.placement

    @property
    def memory(self) -> Memory:
        """The memory of its model and of what it loads besides."""
        return self.held.memory

    @property
    def ram(self) -> int:
        """The bytes of RAM that it needs."""
        return self.held.ram

    @property
    def growth(self) -> Growth:
        """The most that its RAM grows while it runs."""
        return self.held.growth

    @cached_property
    def fit(self) -> Fit:
        """The fit of its model into the room."""
        return fit_memory(self.held.model, self.room)


@dataclass(frozen=True)
class RigFacts:
    """A rig, the headers of its models, the bytes of vision projectors by name of model, and what follows from them.

    `shapes` are those of models in folders of safetensors.
    """

    rig: Rig
    headers: Mapping[str, Header]
    projectors: Mapping[str, int]
    instances: Mapping[str, InstanceFacts]
    shapes: Mapping[str, FolderShape] = field(default_factory=dict)

    @cached_property
    def sized(self) -> Mapping[str, Sized]:
        """Every instance whose memory is known, by name."""
        return {
            name: Sized(name, each.memory, self._room(name, each.memory))
            for name, each in self.instances.items()
            if each.memory
        }

    def sized_as(self, name: str, instance: Instance, *, projector: bool = True) -> Sized | None:
        """Return the size of an instance as if it had these keys, next to the same others; None if it is unknown.

        `projector`: whether the server loads the vision projector of its model.
        """
        header = self.headers.get(instance.model)
        if header is None or not reads_gguf(self.rig.engines.get(instance.engine)):
            return None
        with suppress(ValueError):
            placed = placement(self.rig, instance, header)
            projectors = self.projectors if projector else {}
            if held := instance_memory(self.rig, instance, placed, self.headers, projectors):
                return Sized(name, held, self._room(name, held))
        return None

    def _others(self, name: str) -> Iterator[list[InstanceMemory]]:
        """Yield the known instances of each other server. A group has one of its instances loaded at a time."""
        own = self.rig.server_of(name)
        for server, names in self.rig.servers.items():
            known = [memory for each in names if (memory := self.instances[each].memory)]
            if server != own and known:
                yield known

    def _room(self, name: str, own: InstanceMemory) -> Room:
        """Return what all other servers leave for an instance's model, without what CUDA and its sidecars take."""
        left = {
            gpu: usable_bytes(self.rig, gpu) - cuda - use.total
            for gpu, cuda, use in zip(own.instance.on, own.cuda, own.extra.devices, strict=True)
        }
        ram = self.rig.host.ram - SYSTEM_RAM - own.extra.host.total - own.server_ram
        for swapping in self._others(name):
            ram -= max(other.ram for other in swapping)
            held = [other.on_gpus for other in swapping]
            for gpu in left:
                left[gpu] -= max(each.get(gpu, 0) for each in held)
        return Room(cards=tuple(left.values()), ram=ram, reserve=MARGIN)


def rig_facts(
    rig: Rig,
    headers: Mapping[str, Header],
    projectors: Mapping[str, int] = MappingProxyType({}),
    shapes: Mapping[str, FolderShape] = MappingProxyType({}),
) -> RigFacts:
    """Derive the facts of a rig, as far as its mistakes allow.

    By name of model, `headers` are those of its models, `projectors` the bytes of their vision projectors, and `shapes`
    those of models in folders of safetensors.
    """
    flags = {name: flags_of(engine) for name, engine in rig.engines.items()}
    commands = {
        name: command_line(rig, instance, known) if (known := flags.get(instance.engine)) else None
        for name, instance in rig.instances.items()
    }
    on_cpu = {
        name
        for name, each in rig.instances.items()
        if computes_on_cpu(rig, each, headers.get(each.model), explicit_command(each, commands[name]))
    }
    threads = shared_threads(rig, on_cpu)
    instances = {}
    for name, instance in rig.instances.items():
        header, placed, held, fault = headers.get(instance.model), None, None, None
        command = commands[name]
        if reads_gguf(rig.engines.get(instance.engine)):
            try:
                placed = place_instance(rig, instance, header or _NO_HEADER, explicit_command(instance, command))
                held = instance_memory(rig, instance, placed, headers, projectors)
            except ValueError as error:
                fault = error
        instances[name] = InstanceFacts(
            instance=instance,
            flags=flags.get(instance.engine),
            command=command,
            task=server_task(command.effective) if command else "chat",
            header=header,
            on_cpu=name in on_cpu,
            threads=threads[name],
            placement=placed,
            memory=held,
            fault=fault,
        )
    return RigFacts(rig, headers, projectors, instances, shapes)
