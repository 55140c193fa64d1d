"""The number of threads of servers: of one server alone, and of all that compute on the CPU of one host together.

Threads of an engine wait for each other by spinning, hundreds of times a token. If there are more of them than
processors, each waits for a thread that is not running: measured in docs/serve.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from llamaherd.diagnostics.findings import Rule
from llamaherd.engines import CommandLine, reads_gguf
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Cpu, Instance, Rig
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
    if any("=CPU" in option.value for option in line.meant.every("--override-tensor") if not line.is_by_key(option)):
        return True
    moving = (option for name in _MOVING if (option := line.own(name)))
    return any(option.on and option.value != "0" for option in moving)
