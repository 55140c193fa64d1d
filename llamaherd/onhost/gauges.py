"""Read the load of a host and a server: memory, processor time, energy, processes and requests in flight."""

from __future__ import annotations

import os
import platform
import re
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST_RESPONSE = 5.0
"""Seconds in which a whole response must arrive, also one that arrives byte by byte."""

BUSY = re.compile(
    r"^(?:llamacpp:requests_(?:processing|deferred)|vllm:num_requests_(?:running|waiting))\S* ([0-9.]+)", re.MULTILINE
)


def count_in_flight(metrics: Sequence[str], key: str) -> int | None:
    """Return the requests that a server processes or defers, by its metrics at these URLs; None where it has none.

    A server of several models has metrics of the loaded model, and refuses URLs of other models.
    """
    counts = [count for url in metrics if (count := count_within_limit(url, key)) is not None]
    return sum(counts) if counts else None


def count_within_limit(url: str, key: str) -> int | None:
    """Return the requests at one URL; None after LONGEST_RESPONSE seconds. A slow response ends with this program."""
    found: list[int | None] = []
    reader = threading.Thread(target=lambda: found.append(count_at_url(url, key)), daemon=True)
    reader.start()
    reader.join(LONGEST_RESPONSE)
    return found[0] if found else None


def count_at_url(url: str, key: str) -> int | None:
    """Return the requests that a server counts at a URL; None where it does not respond."""
    request = urllib.request.Request(url)
    try:
        if key:
            request.add_header("Authorization", "Bearer " + Path(key).read_text(encoding="utf-8").strip())
        # No proxy: the server is on this host.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=3) as response:
            text = response.read(1 << 20).decode(errors="replace")
    except (OSError, ValueError):
        return None
    found = BUSY.findall(text)
    return round(sum(float(number) for number in found)) if found else None


PROC, SYS = Path("/proc"), Path("/sys")
TICKS = os.sysconf("SC_CLK_TCK")
FIRST_NAMESPACE = "pid:[4026531836]"
"""The first PID namespace: the driver reports only processes of this namespace."""


def text(path: Path) -> str:
    """Return the text of a file of the kernel; empty where there is none."""
    try:
        with path.open("rb") as file:
            return file.read(1 << 18).decode(errors="replace").strip()
    except OSError:
        return ""


def figure(path: Path) -> int | None:
    """Return the number in a file of the kernel."""
    found = text(path)
    return int(found) if found.isascii() and found.removeprefix("-").isdigit() and len(found) < 24 else None


@dataclass(frozen=True)
class MeterInput:
    """A server to watch. `every`, `lasts` and `silence` are seconds: between readings, in all, and without a command.

    `most` is in bytes. `backend` is `systemd` or another; `loaded` is the model to watch of a server of several models.
    `key` is a file.
    """

    service: str
    backend: str
    loaded: str
    every: float
    lasts: float
    silence: float
    most: int
    port: int
    metrics: tuple[str, ...]
    key: str


class Rapl:
    """The counters of the processor's energy, by package."""

    def __init__(self) -> None:
        self.files: dict[str, Path] = {}
        self.ranges: dict[str, int] = {}
        self.why = ""
        zones = sorted(SYS.glob("class/powercap/*rapl*:*"))
        for zone in zones:
            # A zone below a package is a part of the package.
            if re.fullmatch(r"package-\d+", text(zone / "name")) and zone.name.count(":") == 1:
                most = figure(zone / "max_energy_range_uj")
                if figure(zone / "energy_uj") is None:
                    self.why = "its counter may not be read"
                elif most:
                    self.files[zone.name], self.ranges[zone.name] = zone / "energy_uj", most
        if not self.files:
            self.why = self.why or ("it has no packages" if zones else "absent")

    def energy(self) -> dict[str, int]:
        """Return microjoules, which begin at 0 again after the range."""
        return {name: found for name, file in self.files.items() if (found := figure(file)) is not None}


class Server:
    """The processes of the measured server: its control group, or its first process with all descendants."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.group: Path | None = None
        self.peak: Path | None = None
        lines = [line.split(":", 2) for line in text(PROC / str(pid) / "cgroup").splitlines()]
        places = {kind: path for _, kind, path in lines}
        for kind, root, file in (
            ("", "", "memory.peak"),
            ("", "unified", ""),
            ("memory", "memory", "memory.max_usage_in_bytes"),
            ("name=systemd", "systemd", ""),
            ("pids", "pids", ""),
        ):
            folder = SYS / "fs/cgroup" / root / places.get(kind, "/").lstrip("/")
            if places.get(kind, "/") != "/" and (folder / "cgroup.procs").exists():
                self.group = self.group or folder
                if file and (folder / file).exists():
                    self.peak = self.peak or folder / file

    def processes(self) -> list[int]:
        """Return their numbers, the first process first; none if the first process has ended."""
        if not (PROC / str(self.pid)).exists():
            return []
        listed = text(self.group / "cgroup.procs") if self.group else ""
        found = {int(each) for each in listed.split()[:4096]} or self.family()
        return [self.pid, *sorted(found - {self.pid, 0})]

    def family(self) -> set[int]:
        """Return the first process, its children, and theirs."""
        found, left = {self.pid}, [self.pid]
        while left and len(found) < 4096:
            for task in (PROC / str(left.pop()) / "task").glob("*/children"):
                new = {int(each) for each in text(task).split()} - found
                found |= new
                left += new
        return found

    def figures(self) -> dict[str, int]:
        """Return the sums of all processes: bytes, microseconds, faults; nothing if they have ended."""
        total: dict[str, int] = {}
        for pid in self.processes():
            fields = stat(pid)
            if fields is None:
                continue
            folder = PROC / str(pid)
            parts = dict(line.split(":", 1) for line in text(folder / "status").splitlines() if ":" in line)
            sizes = {
                key: int(parts.get(name, "0").split()[0]) << 10
                for key, name in (("rss", "VmRSS"), ("anon", "RssAnon"), ("most", "VmHWM"), ("swap", "VmSwap"))
            }
            io = dict(line.split(": ", 1) for line in text(folder / "io").splitlines() if ": " in line)
            did = {"cpu": cpu(fields), "faults": int(fields[9]), "read": int(io.get("read_bytes", 0))}
            for key, value in {**sizes, **did}.items():
                total[key] = total.get(key, 0) + value
        # The group's own figure includes processes that have ended.
        if total and self.group and (used := re.match(r"usage_usec (\d+)", text(self.group / "cpu.stat"))):
            total["cpu"] = int(used[1])
        if total and self.peak and (peak := figure(self.peak)) is not None:
            total["peak"] = peak
        return total


def stat(pid: int) -> list[str] | None:
    """Return the fields of a process from its state on, as /proc has them."""
    found = text(PROC / str(pid) / "stat")
    return found.rpartition(") ")[2].split() if ") " in found else None


def cpu(fields: list[str]) -> int:
    """Return the microseconds that a process has computed."""
    return (int(fields[11]) + int(fields[12])) * 1_000_000 // TICKS


def busy() -> int:
    """Return the microseconds that all processors have computed since the boot, with guests and without waiting."""
    with (PROC / "stat").open() as file:
        user, nice, system, _idle, _wait, irq, soft, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + irq + soft) * 1_000_000 // TICKS


def running() -> dict[int, tuple[int, str]]:
    """Return the processor time of every process by now, and its name."""
    found: dict[int, tuple[int, str]] = {}
    for folder in PROC.glob("[0-9]*"):
        if len(found) < 65536 and (fields := stat(int(folder.name))) is not None:
            found[int(folder.name)] = (cpu(fields), text(folder / "comm"))
    return found


def unit_of(pid: int) -> str:
    """Return the unit or container of a process."""
    paths = [line.rpartition(":")[2] for line in text(PROC / str(pid) / "cgroup").splitlines()]
    return next((path.rpartition("/")[2] for path in paths if path.endswith(".service") or "docker" in path), "")


def temperature() -> Path | None:
    """Return the file of the processor's temperature, in thousandths of a degree."""
    for folder in sorted(SYS.glob("class/hwmon/hwmon*")):
        if text(folder / "name") in ("k10temp", "zenpower", "coretemp", "cpu_thermal"):
            return folder / "temp1_input"
    for folder in sorted(SYS.glob("class/thermal/thermal_zone*")):
        if text(folder / "type") in ("x86_pkg_temp", "cpu-thermal", "cpu_thermal"):
            return folder / "temp"
    return None


def clocks(cores: int) -> list[Path]:
    """Return the files of processors' clocks, of sixteen at most: each interrupts its processor."""
    files = [SYS / f"devices/system/cpu/cpu{number}/cpufreq/scaling_cur_freq" for number in range(cores)]
    there = [file for file in files if file.exists()]
    return there[:: -(-len(there) // 16) or 1]


def on_battery() -> bool | None:
    """Return whether the machine runs on a battery; None where it has none."""
    found: bool | None = None
    for folder in sorted(SYS.glob("class/power_supply/*")):
        # A mouse has a battery, too.
        if text(folder / "type") == "Battery" and text(folder / "scope") != "Device":
            found = bool(found) or text(folder / "status") == "Discharging"
    return found


def listens(port: int, pids: Sequence[int]) -> bool | None:
    """Return whether one of these processes listens on a port; None where no process does."""
    wanted: set[str] = set()
    for name in ("net/tcp", "net/tcp6"):
        for line in text(PROC / name).splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                wanted.add(f"socket:[{fields[9]}]")
    for pid in pids if wanted else ():
        for link in (PROC / str(pid) / "fd").glob("*"):
            with suppress(OSError):
                if str(link.readlink()) in wanted:
                    return True
    return False if wanted else None


class Here:
    """This host, and the measured server on it: `pid` is its first process, 0 where it does not run."""

    def __init__(self, given: MeterInput, pid: int, spec: str, virtual: str) -> None:
        self._given, self.rapl = given, Rapl()
        self.server = Server(pid) if pid else None
        self.spec, self.virtual = spec or self.given("LLAMAHERD_SPEC"), virtual
        self.celsius, self.clocks = temperature(), clocks(os.cpu_count() or 1)
        self.before, self.since = running(), time.monotonic()

    def given(self, name: str) -> str:
        """Return a variable that the server was started with."""
        variables = text(PROC / str(self.server.pid) / "environ") if self.server else ""
        return next((each[len(name) + 1 :] for each in variables.split("\0") if each.startswith(f"{name}=")), "")

    def standing(self) -> dict[str, Any]:
        """Return the facts that do not change during a measurement."""
        cpu = dict(line.split("\t: ") for line in text(PROC / "cpuinfo").splitlines() if line.count("\t: ") == 1)
        cpu = {name.strip(): value for name, value in cpu.items()}
        system, one = os.uname(), SYS / "devices/system/cpu/cpu0/cpufreq"
        fields = stat(self.server.pid) if self.server else None
        pid = self.server.pid if self.server and fields else 0
        name = ""
        with suppress(OSError):
            name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
        return {
            "host": {
                "name": system.nodename,
                "kernel": system.release,
                "os": name,
                "libc": os.confstr("CS_GNU_LIBC_VERSION") or "",
                "cpu": cpu.get("model name", ""),
                "microcode": cpu.get("microcode", ""),
                "threads": os.cpu_count(),
                "smt": {"1": True, "0": False}.get(text(SYS / "devices/system/cpu/smt/active")),
                "governor": text(one / "scaling_governor"),
                "ram_bytes": memory().get("MemTotal"),
            },
            "virtual": self.virtual,
            "rapl": self.rapl.ranges,
            "no_rapl": self.rapl.why,
            "server": {"pid": pid, "spec": self.spec, "started": int(fields[19]) if fields else 0},
            "battery": on_battery(),
        }

    def figures(self) -> dict[str, Any]:
        """Return the state of the host and the server."""
        known = memory()
        clocks = [each for file in self.clocks if (each := figure(file)) is not None]
        celsius = figure(self.celsius) if self.celsius else None
        return {
            "cpu": busy(),
            "server": self.server.figures() if self.server else {},
            "available": known.get("MemAvailable"),
            "swap": known.get("SwapTotal", 0) - known.get("SwapFree", 0),
            "mhz": round(sum(clocks) / len(clocks) / 1000) if clocks else None,
            "celsius": celsius / 1000 if celsius is not None else None,
        }

    def usage(self, mine: list[int], apps: list[list[Any]] | None) -> dict[str, Any]:
        """Return other processes: those that used processors since the last call, and those on cards."""
        now, at = running(), time.monotonic()
        ours = self.server.processes() if self.server else []
        seconds, before = at - self.since, self.before
        self.before, self.since = now, at
        apart = {*ours, *mine}
        cores = {pid: (did - before[pid][0]) / 1e6 / seconds for pid, (did, _) in now.items() if pid in before}
        others = sorted((pid for pid in cores if pid not in apart and cores[pid] >= 0.05), key=lambda pid: -cores[pid])
        known = apps if Path("/proc/self/ns/pid").readlink() == Path(FIRST_NAMESPACE) else None
        return {
            "ours": ours[:256],
            "others": [[now[pid][1][:40], unit_of(pid)[:100], round(cores[pid], 2)] for pid in others[:8]],
            "apps": known and [[uuid, pid, size, *self.name_and_unit(pid)] for uuid, pid, size in known],
            "listens": listens(self._given.port, ours),
            "in_flight": count_in_flight(self._given.metrics, self._given.key),
            "load": os.getloadavg()[0],
            "battery": on_battery(),
        }

    def name_and_unit(self, pid: int) -> list[str]:
        """Return the name and the unit of a process."""
        return [text(PROC / str(pid) / "comm")[:40], unit_of(pid)[:100]]

    def computed(self, pid: int) -> int:
        """Return the microseconds that a process has computed."""
        fields = stat(pid)
        return cpu(fields) if fields else 0


def memory() -> dict[str, int]:
    """Return /proc/meminfo, in bytes."""
    lines = [line.split() for line in text(PROC / "meminfo").splitlines()]
    return {name.rstrip(":"): int(size) << 10 for name, size, *_ in lines if size.isdigit()}
