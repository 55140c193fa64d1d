"""The GPUs of instances as CUDA and Docker name them, their power settings and memory, and a server's environment."""

from __future__ import annotations

from llamaherd.engines import DIALECTS
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Card, Instance, Rig
from llamaherd.memory.estimate import Memory, Use
from llamaherd.memory.instances import InstanceMemory, capacity
from llamaherd.memory.overhead import mapped_between, repacked_bytes
from llamaherd.memory.placement import Placement
from llamaherd.plan import RAM, Estimate, GpuRef, Grows, Holds
from llamaherd.plan.artifacts import BuildPlan
from llamaherd.plan.machine import GpuPower
from llamaherd.reference.cards import pci_address
from llamaherd.text.numbers import whole_number

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
    ids = [_id(gpus[name], numbers.get(name)) for name in instance.on]
    return tuple(each for each in ids if each is not None)


def visible_devices(ids: tuple[str, ...], *, given: bool) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES. With `given`, as in a container, numbers count only these GPUs."""
    if given and ids and all(whole_number(each) is not None for each in ids):
        order = sorted(ids, key=int)
        return ",".join(str(order.index(each)) for each in ids)
    return ",".join(ids)


def gpu_refs(rig: Rig, instance: Instance) -> tuple[GpuRef, ...]:
    """Return where each GPU in `on` is found on the host; any one GPU if the instance sets its devices explicitly."""
    devices = _explicit_devices(instance)
    if devices is not None and devices.lower() in NO_DEVICES:
        return ()
    if devices is not None:
        return tuple(GpuRef(name=name, at="any") for name in instance.on[:1])
    gpus = rig.gpus.cards if rig.gpus else {}
    return tuple(GpuRef(name=name, at=_shown_id(gpus[name]) or "any") for name in instance.on)


def on_one_gpu(instance: Instance) -> bool:
    """Return whether a server may leave some of its GPUs unused.

    With `split: none` both engines use a single GPU (src/llama.cpp: "if using single GPU mode" in llama.cpp,
    LLAMA_SPLIT_MODE_NONE in ik_llama.cpp). Otherwise they open a CUDA context on every visible GPU, even if it holds no
    layer: to query its free memory, and to read long prompts.
    """
    return instance.split == "none" or _explicit_devices(instance) is not None


def _explicit_devices(instance: Instance) -> str | None:
    """Return the devices of an instance that an argument or a variable sets; None without both."""
    words = iter(instance.extra_args)
    chosen = [next(words, "") for word in words if word in DEVICE_FLAGS]
    return chosen[-1] if chosen else instance.environment.get("CUDA_VISIBLE_DEVICES")


def _shown_id(gpu: Card) -> str | None:
    """Return the UUID of a GPU, its PCI address as nvidia-smi prints it, or its index; None if none is declared."""
    if gpu.pci and not gpu.uuid:
        domain, bus, device, function = pci_address(gpu.pci)
        return f"{domain:08X}:{bus:02X}:{device:02X}.{function}"
    return gpu.uuid or (None if gpu.index is None else str(gpu.index))


def _id(gpu: Card, number: str | None) -> str | None:
    if gpu.uuid:
        return gpu.uuid
    return str(gpu.index) if gpu.index is not None else number


def cdi_devices(rig: Rig, instance: Instance) -> tuple[str, ...]:
    """Return CDI's names of the GPUs in `on`: `all` if nothing identifies them, and always under WSL.

    Under WSL, GPUs cannot be distinguished from outside a container (NVIDIA, CUDA on WSL User Guide, 5.1).
    """
    if not instance.on:
        return ()
    ids = () if rig.host.wsl is not None else device_ids(rig, instance)
    return tuple(f"nvidia.com/gpu={each}" for each in ids or ("all",))


def gpu_ref(gpu: Card, position: int) -> str:
    """Return how a GPU is identified. Without an id it is the only one of its rig: otherwise there is a finding."""
    return _shown_id(gpu) or str(position)


def declared_power(rig: Rig) -> tuple[GpuPower, ...]:
    """Return the GPUs of a rig with a declared limit, clocks or fan speed, whether Linux or Windows sets them."""
    gpus = rig.gpus.cards if rig.gpus else {}
    return tuple(
        GpuPower(
            name=name,
            at=gpu_ref(gpu, position),
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
            # A container has its own GPUs and no others, except under WSL.
            given = declared.backend == "compose" and rig.host.wsl is None
            assigned["CUDA_VISIBLE_DEVICES"] = visible_devices(ids, given=given)
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
