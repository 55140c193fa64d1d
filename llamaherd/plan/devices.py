"""The GPUs of instances as CUDA and Docker name them, their power settings, and a server's environment."""

from __future__ import annotations

from llamaherd.engines import DIALECTS
from llamaherd.inventory.schema import Card, Instance, Rig
from llamaherd.plan import GpuRef
from llamaherd.plan.artifacts import BuildPlan
from llamaherd.plan.machine import GpuPower
from llamaherd.reference.cards import pci_address
from llamaherd.text.numbers import whole_number

DEVICE_FLAGS = ("--device", "-dev")
NO_DEVICES = ("", "none", "-1")
"""Values of `--device` and CUDA_VISIBLE_DEVICES that leave a server without a GPU."""


def device_ids(rig: Rig, instance: Instance) -> tuple[str, ...]:
    """A UUID, or a number in the order of PCI addresses, for each GPU in `on`; nothing for one that needs no telling.

    A PCI address is no name that CUDA takes: it becomes the number that it has among all GPUs that are declared.
    """
    gpus = rig.gpus.cards if rig.gpus else {}
    by_address = sorted((pci_address(gpu.pci), name) for name, gpu in gpus.items() if gpu.pci)
    numbers = {name: str(number) for number, (_, name) in enumerate(by_address)}
    ids = [_id(gpus[name], numbers.get(name)) for name in instance.on]
    return tuple(each for each in ids if each is not None)


def visible_devices(ids: tuple[str, ...], *, given: bool) -> str:
    """The value of CUDA_VISIBLE_DEVICES. Where only these GPUs are given, as to a container, numbers count those."""
    if given and ids and all(whole_number(each) is not None for each in ids):
        order = sorted(ids, key=int)
        return ",".join(str(order.index(each)) for each in ids)
    return ",".join(ids)


def gpu_refs(rig: Rig, instance: Instance) -> tuple[GpuRef, ...]:
    """Where each GPU in `on` is found on the host; one that may be any where the instance chooses by itself."""
    itself = _chosen_itself(instance)
    if itself is not None and itself.lower() in NO_DEVICES:
        return ()
    if itself is not None:
        return tuple(GpuRef(name=name, at="any") for name in instance.on[:1])
    gpus = rig.gpus.cards if rig.gpus else {}
    return tuple(GpuRef(name=name, at=_place(gpus[name])) for name in instance.on)


def on_one_gpu(instance: Instance) -> bool:
    """Whether a server may leave some of its GPUs alone.

    With `split: none` both engines use a single one (src/llama.cpp: "if using single GPU mode" in llama.cpp,
    LLAMA_SPLIT_MODE_NONE in ik_llama.cpp). Else they open a context of CUDA on every GPU that they see, also where it
    holds no layer: to ask for its free memory, and to read long prompts.
    """
    return instance.split == "none" or _chosen_itself(instance) is not None


def _chosen_itself(instance: Instance) -> str | None:
    """The devices that an instance is told to use by other means than `on`."""
    words = iter(instance.extra_args)
    chosen = [next(words, "") for word in words if word in DEVICE_FLAGS]
    return chosen[-1] if chosen else instance.environment.get("CUDA_VISIBLE_DEVICES")


def _place(gpu: Card) -> str:
    if gpu.pci and not gpu.uuid:
        domain, bus, device, function = pci_address(gpu.pci)
        return f"{domain:08X}:{bus:02X}:{device:02X}.{function}"
    return gpu.uuid or ("any" if gpu.index is None else str(gpu.index))


def _id(gpu: Card, number: str | None) -> str | None:
    if gpu.uuid:
        return gpu.uuid
    return str(gpu.index) if gpu.index is not None else number


def cdi_devices(rig: Rig, instance: Instance) -> tuple[str, ...]:
    """The names that CDI has for the GPUs in `on`: all of them where nothing tells which, and always under WSL.

    There GPUs cannot be told apart from outside a container (NVIDIA, CUDA on WSL User Guide, 5.1).
    """
    if not instance.on:
        return ()
    ids = () if rig.host.wsl is not None else device_ids(rig, instance)
    return tuple(f"nvidia.com/gpu={each}" for each in ids or ("all",))


def gpu_ref(gpu: Card, position: int) -> str:
    """Which GPU it is. One that nothing tells from others is the only one: anything else is a finding."""
    if gpu.uuid:
        return gpu.uuid
    if gpu.pci:
        domain, bus, device, function = pci_address(gpu.pci)
        return f"{domain:08X}:{bus:02X}:{device:02X}.{function}"
    return str(position if gpu.index is None else gpu.index)


def declared_power(rig: Rig) -> tuple[GpuPower, ...]:
    """The GPUs of a rig that have a limit, clocks or a fan speed, whoever is to set them."""
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
    """GPUs by name and order; none for a server on the CPU whose engine could use one."""
    assigned: dict[str, str] = {}
    if declared.on:
        assigned["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        ids = device_ids(rig, declared)
        if ids:
            assigned["CUDA_VISIBLE_DEVICES"] = visible_devices(ids, given=_given(rig, declared))
        if rig.host.wsl:
            assigned["LD_LIBRARY_PATH"] = "/usr/lib/wsl/lib"
    elif build and build.cuda:
        assigned["CUDA_VISIBLE_DEVICES"] = ""
    if home := DIALECTS[rig.engines[declared.engine].kind].home:
        assigned["HOME"] = home
    return assigned | declared.environment


def _given(rig: Rig, declared: Instance) -> bool:
    """Whether it is given its own GPUs and no others: a container is, but under WSL."""
    return declared.backend == "compose" and rig.host.wsl is None
