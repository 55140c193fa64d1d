"""Lines of a meter, as `llamaherd/onhost/meter.py` writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from llamaherd.measure.meter.readings import Readings, parse_readings

OLD, NEW = "GPU-11111111-aaaa-bbbb-cccc-000000000001", "GPU-22222222-aaaa-bbbb-cccc-000000000002"
FIELDS = ("uuid", "watts", "mean_watts", "limit", "celsius", "sm_mhz", "memory_mib", "generation", "lanes", "reasons")
CARD_FIELDS = (
    *("uuid", "pci", "driver", "vbios", "default_limit"),
    *("most_sm_mhz", "most_memory_mhz", "ecc", "memory_mib", "name"),
)
CARDS = (
    f"{OLD}, 00000000:01:00.0, 580.159.04, 94.02.42.00.A9, 350.00, 2100, 9751, [N/A], 24576, NVIDIA RTX, of 3090",
    f"{NEW}, 00000000:21:00.0, 580.159.04, [N/A], [N/A], 3000, 14001, Enabled, 32607, NVIDIA GeForce RTX 5090",
)
SERVER = {"rss": 900, "anon": 500, "most": 1000, "swap": 0, "cpu": 0, "faults": 3, "read": 0, "peak": 4000}


def line(kind: str, at: float, **values: Any) -> str:
    """A line."""
    return json.dumps({"k": kind, "t": at, **values})


def hello(**more: Any) -> str:
    """The first one, of a server that runs on a machine with two GPUs and two processors that count."""
    host: dict[str, Any] = {
        "name": "duo",
        "kernel": "6.8.0",
        "os": "Debian GNU/Linux 13",
        "libc": "glibc 2.41",
        "cpu": "Ryzen",
    }
    host |= {"microcode": "0x1", "threads": 32, "smt": True, "governor": "powersave", "ram_bytes": 64 << 30}
    values: dict[str, Any] = {
        "wall": 1.8e9,
        "every": 0.2,
        "card_fields": CARD_FIELDS,
        "cards": CARDS,
        "fields": FIELDS,
        "no_smi": "",
        "why_smi": "",
    }
    values |= {"host": host, "virtual": "none", "no_nvml": "", "no_counter": {}, "no_rapl": "", "battery": None}
    values |= {"rapl": {"intel-rapl:0": 1_000_000_000}, "server": {"pid": 77, "spec": "abc", "started": 5}}
    return line("hello", 100.0, **values | more)


def gpu(at: float, uuid: str = OLD, **more: Any) -> str:
    """A reading of a GPU that works."""
    said = {"uuid": uuid, "watts": "300.00", "mean_watts": "299.00", "limit": "350.00", "celsius": "60"}
    said |= {"sm_mhz": "1800", "memory_mib": "20480", "generation": "4", "lanes": "16", "reasons": "0x0"}
    return line("gpu", at, csv=", ".join({**said, **more}[name] for name in FIELDS))


def count(at: float, mj: dict[str, int] | None = None, uj: dict[str, int] | None = None, **more: Any) -> str:
    """The counters."""
    return line("count", at, mj=mj or {}, uj=uj or {}, **more)


def figures(at: float, cpu: int = 0, own: int = 0, server: dict[str, int] | None = None, **more: Any) -> str:
    """The host, and its server."""
    values = {"own": own, "cpu": cpu, "server": SERVER if server is None else server, "available": 1 << 30, "swap": 0}
    return line("host", at, **values | {"mhz": 4200.0, "celsius": 55.5} | more)


def seen(at: float, **more: Any) -> str:
    """A look at a host where nobody else is."""
    values = {"ours": [77, 78], "others": [], "apps": [[OLD, 77, 7 << 30, "llama-server", "llama-chat.service"]]}
    return line("look", at, **values | {"listens": True, "in_flight": 0, "load": 0.1, "battery": None} | more)


def readings(*lines: str | Iterable[str], **more: Any) -> Readings:
    """A first line, and these."""
    flat = [each for group in lines for each in ([group] if isinstance(group, str) else group)]
    return parse_readings([hello(**more), *flat])
