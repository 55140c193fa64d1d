"""What a container cannot have, the outermost edge of a GPU host: GPUs on the bus, a kernel that loads their module.

A unit of the rig runs early in each boot and mounts, over what the real kernel shows: the GPUs on the PCI bus; a
boot id of its own, so that a reboot of the rig is one; and, where dkms has put a module for the kernel that runs,
`/sys/module/nvidia` and `/proc/driver/nvidia`, as if udev had loaded it, unless that module is one to be refused. What
the package of a kernel's image leaves behind is put there too, and `systemd-detect-virt` says that this is no
container: the kernel of one would be another's business. Nothing else is faked: what modinfo, depmod, dkms, lspci and
apt make of all this, and the boot itself, are real. `modprobe` fails as in any container.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.support.kernel_modules import module
from tests.support.nvidia_smi import card

CARDS = "/dev/shm/cards.json"
"""Where the GPUs keep their state until the next boot: limits and clocks."""

_HOME = "/usr/local/lib/fake-kernel"


class FakeCard(NamedTuple):
    """A GPU in the rig: its UUID, its PCI id, its name, and its default, least and most watts."""

    uuid: str
    device: int
    name: str
    watts: tuple[float, float, float]


RTX_3090 = FakeCard(
    "GPU-5c1d2e7a-0b1f-4c0e-9a55-3f1f0a7c2b10", 0x2204, "NVIDIA GeForce RTX 3090", (350.0, 100.0, 366.0)
)

UNIT = f"""\
[Unit]
Description=Stand in for a kernel with cards
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={_HOME}/boot

[Install]
WantedBy=sysinit.target
"""

BOOT = f"""\
#!/bin/sh
set -e
run=/run/fake-kernel
mkdir -p $run/module $run/driver
cat /proc/sys/kernel/random/uuid >$run/boot_id
mount --bind $run/boot_id /proc/sys/kernel/random/boot_id
mount --bind {_HOME}/pci /sys/bus/pci/devices
cp {_HOME}/cards.json {CARDS}
found=/lib/modules/$(uname -r)/updates/dkms/nvidia.ko
say() {{ tr '\\0' '\\n' <"$found" | sed -n "s/.*$1=//p" | head -n 1; }}
if [ -f "$found" ] && [ -z "$(say refused)" ]; then
    case $(say license) in NVIDIA) kind=x86_64 ;; *) kind='Open Kernel Module for x86_64' ;; esac
    mkdir -p $run/module/nvidia $run/module/nvidia_uvm $run/driver/nvidia
    say version >$run/module/nvidia/version
    # What modprobe reads of a module that is loaded already.
    echo live | tee $run/module/nvidia/initstate >$run/module/nvidia_uvm/initstate
    echo "NVRM version: NVIDIA UNIX $kind  $(say version)  Release Build" >$run/driver/nvidia/version
fi
mount --bind $run/module /sys/module
mount --bind $run/driver /proc/driver
"""


def files(kernel: str, cards: Sequence[FakeCard]) -> Mapping[str, str | bytes]:
    """All that makes a rig believe in these GPUs, and in having installed the kernel that runs, by path.

    `fake-kernel.service` is then to be enabled.
    """
    states, placed = [], {}
    for number, each in enumerate(cards, 1):
        address = f"0000:{number:02x}:00.0"
        states.append(card(each.uuid, f"0000{address}", each.name, each.watts))
        for name, data in _on_bus(each.device).items():
            placed[f"{_HOME}/pci/{address}/{name}"] = data
    return {
        "/etc/systemd/system/fake-kernel.service": UNIT,
        f"{_HOME}/boot": BOOT,
        "/usr/local/bin/systemd-detect-virt": "#!/bin/sh\necho none\n",
        f"{_HOME}/cards.json": json.dumps({"cards": states}),
        **_image(kernel),
        **placed,
    }


def _image(kernel: str) -> dict[str, str | bytes]:
    """What the package of a kernel's image leaves behind, as far as dkms and depmod look at it."""
    modules, driver = f"/lib/modules/{kernel}", "kernel/drivers/net/dummy.ko"
    return {
        f"/boot/vmlinuz-{kernel}": "",
        f"{modules}/{driver}": module("dummy", "1", "GPL"),
        f"{modules}/modules.dep": f"{driver}:\n",
        f"{modules}/modules.order": f"{driver}\n",
        f"{modules}/modules.builtin": "",
        f"{modules}/modules.builtin.modinfo": "",
    }


def _on_bus(device: int) -> dict[str, str | bytes]:
    """What sysfs has of a display controller of NVIDIA's, as far as lspci reads it."""
    words = {0x00: 0x10DE, 0x02: device, 0x0A: 0x0300}
    config = bytearray(64)
    for at, value in words.items():
        struct.pack_into("<H", config, at, value)
    texts = {"vendor": "0x10de", "device": f"0x{device:04x}", "class": "0x030000", "irq": "0"}
    resources = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 13
    return {**{name: f"{text}\n" for name, text in texts.items()}, "config": bytes(config), "resource": resources}
