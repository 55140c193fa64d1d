"""The GPUs of instances as CUDA and Docker name them, their power settings and memory, and a server's environment."""

from __future__ import annotations

from llamaherd.engines import DIALECTS
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Card, Instance, Rig
from llamaherd.memory.estimate import Memory, Use
from llamaherd.memory.instances import InstanceMemory, capacity
from llamaherd.memory.overhead import mapped_between, repacked_bytes
from llamaherd.memory.placement import Placement
from llamaherd.plan import RAM, Estimate, GpuRef, Grows, Holds, ServerGpus
from llamaherd.plan.artifacts import BuildPlan
from llamaherd.plan.machine import GpuPower
from llamaherd.reference.cards import pci_address

DEVICE_FLAGS = ("--device", "-dev")
NO_DEVICES = ("", "none", "-1")
"""Values of `--device` and CUDA_VISIBLE_DEVICES that leave a server without a GPU."""


def device_ids(rig: Rig, instance: Instance) -> tuple[str, ...]:
    """Return a UUID, or a number in the order of PCI addresses, for each GPU in `on` that declares how to identify it.

    CUDA does not accept a PCI address: it becomes its number among the addresses of all declared GPUs.
    """
    gpus = rig.gpus.cards if rig.gpus else {}
    by_address = sorted((pci_address(gpu.pci), name) for name, gpu in gpus.items() if gpu.pci)
    numbers = {name: str(number) for number, (_, name) in enumerate(by_address)}
    ids = [
        gpu.uuid or (numbers.get(name) if gpu.index is None else str(gpu.index))
        for name, gpu in ((name, gpus[name]) for name in instance.on)
    ]
    return tuple(each for each in ids if each is not None)


def server_gpus(rig: Rig, instance: Instance, gate_seconds: int) -> ServerGpus:
    """Return the GPUs of a server, and where each is found on the host.

    A server may leave some unused if it sets its devices explicitly, or with `split: none`: both engines use a single
    GPU then (src/llama.cpp: "if using single GPU mode" in llama.cpp, LLAMA_SPLIT_MODE_NONE in ik_llama.cpp). Otherwise
    they open a CUDA context on every visible GPU, even if it holds no layer: to query its free memory, and to read long
    prompts.
    """
    words = iter(instance.extra_args)
    chosen = [next(words, "") for word in words if word in DEVICE_FLAGS]
    devices = chosen[-1] if chosen else instance.environment.get("CUDA_VISIBLE_DEVICES")
    gpus = rig.gpus.cards if rig.gpus else {}
    if devices is None:
        at = tuple(GpuRef(name=name, at=gpu_ref(gpus[name], "any")) for name in instance.on)
    elif devices.lower() in NO_DEVICES:
        at = ()
    else:
        at = tuple(GpuRef(name=name, at="any") for name in instance.on[:1])
    return ServerGpus(
        cdi=cdi_devices(rig, instance),
        at=at,
        any_one=bool(at) and (instance.split == "none" or devices is not None),
        gate_seconds=gate_seconds,
        wsl=rig.host.wsl is not None,
    )


def cdi_devices(rig: Rig, instance: Instance) -> tuple[str, ...]:
    """Return CDI's names of the GPUs in `on`: `all` if nothing identifies them, and always under WSL.

    Under WSL, GPUs cannot be distinguished from outside a container (NVIDIA, CUDA on WSL User Guide, 5.1).
    """
    if not instance.on:
        return ()
    ids = () if rig.host.wsl is not None else device_ids(rig, instance)
    return tuple(f"nvidia.com/gpu={each}" for each in ids or ("all",))


def gpu_ref(gpu: Card, otherwise: str) -> str:
    """Return the UUID of a GPU, its PCI address as nvidia-smi prints it, or its index."""
    if gpu.pci and not gpu.uuid:
        domain, bus, device, function = pci_address(gpu.pci)
        return f"{domain:08X}:{bus:02X}:{device:02X}.{function}"
    return gpu.uuid or (otherwise if gpu.index is None else str(gpu.index))


def declared_power(rig: Rig) -> tuple[GpuPower, ...]:
    """Return the GPUs of a rig with a declared limit, clocks or fan speed, whether Linux or Windows sets them."""
    gpus = rig.gpus.cards if rig.gpus else {}
    return tuple(
        GpuPower(
            name=name,
            # Without an id it is the only one of its rig: otherwise there is a finding.
            at=gpu_ref(gpu, str(position)),
            limit=gpu.power_limit,
            clocks=(gpu.clocks.min, gpu.clocks.max) if gpu.clocks else None,
            fans=gpu.fans,
        )
        for position, (name, gpu) in enumerate(gpus.items())
        if gpu.power_limit is not None or gpu.clocks or gpu.fans is not None
    )


def server_environment(rig: Rig, declared: Instance, build: BuildPlan | None) -> dict[str, str]:
    """Return the variables of a server. A server on the CPU whose engine could use a GPU gets no GPUs."""
    assigned: dict[str, str] = {}
    if declared.on:
        assigned["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        ids = device_ids(rig, declared)
        if ids:
            # A container has its own GPUs and no others, except under WSL: numbers count only these.
            if declared.backend == "compose" and rig.host.wsl is None and all(map(str.isdecimal, ids)):
                order = sorted(ids, key=int)
                ids = tuple(str(order.index(each)) for each in ids)
            assigned["CUDA_VISIBLE_DEVICES"] = ",".join(ids)
        if rig.host.wsl:
            assigned["LD_LIBRARY_PATH"] = "/usr/lib/wsl/lib"
    elif build and build.cuda:
        assigned["CUDA_VISIBLE_DEVICES"] = ""
    if home := DIALECTS[rig.engines[declared.engine].kind].home:
        assigned["HOME"] = home
    return assigned | declared.environment


def estimate_memory(rig: Rig, known: InstanceMemory) -> Estimate:
    """Return the memory of an instance by arithmetic."""
    return Estimate(
        source="arithmetic",
        holds=memory_held(rig, known, known.memory),
        doubts=known.memory.doubts,
        grows=Grows(prompts=known.growth.prompts, checkpoints=known.growth.checkpoints),
        resident=resident_bytes(known.memory.host, known.header, known.placement, locked=known.instance.mlock),
    )


def resident_bytes(use: Use, header: Header, placed: Placement, *, locked: bool) -> int:
    """Return the bytes of RAM that only swap can free: no page of a mapped file, unless the server locks it."""
    layouts = repacked_bytes(header, placed)
    own = use.context + use.compute + use.draft.kv + use.draft.compute + layouts.copies
    if placed.mmap and not locked:
        return own
    return own + use.weights + use.draft.weights - layouts.originals


def memory_held(rig: Rig, known: InstanceMemory, memory: Memory) -> tuple[Holds, ...]:
    """Return what each GPU of an instance and the RAM hold, with CUDA's part; `memory` is by arithmetic or engine."""
    gpus = known.instance.on
    sizes = [capacity(rig, gpu) or 0 for gpu in gpus]
    rooms = [*zip(gpus, sizes, memory.devices, strict=True), (RAM, rig.host.ram, memory.host)]
    cuda = (*known.cuda, known.server_ram + mapped_between(known.header, known.placement))
    return tuple(place_memory(*each, taken) for each, taken in zip(rooms, cuda, strict=True))


def place_memory(where: str, size: int, use: Use, cuda: int) -> Holds:
    """Return what one GPU, or the RAM, holds, with all that the draft adds in one figure."""
    return Holds(
        where=where,
        size=size,
        weights=use.weights,
        kv=use.kv,
        state=use.state,
        compute=use.compute,
        draft=use.draft.total,
        cuda=cuda,
    )
