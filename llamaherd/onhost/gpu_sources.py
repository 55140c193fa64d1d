"""Read the state of GPUs again and again: by NVIDIA's library (NVML) in a process of its own, or by nvidia-smi."""

from __future__ import annotations

import ctypes
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

# Signatures and figures are those of nvml.h; a process is its `nvmlProcessInfo_v2_t`.
CARD, FIGURE, LARGE = ctypes.c_void_p, ctypes.c_uint, ctypes.c_ulonglong
MOST_CARDS, MOST_APPS, UNKNOWN_MEMORY = 16, 64, 2**64 - 1
NVML = ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
PROMPT = 0.05
"""Seconds that reading all counters may take, so that their time is exact: a card may take 10 ms."""
LACKED, NOT_REPORTED = 13, "[N/A]"
POWER_MEAN, POWER_NOW, IS_UINT, OF_GPU, OF_SM, OF_MEMORY = 185, 186, 1, 0, 1, 2
NEEDED = ("GetCount_v2", "GetHandleByIndex_v2", "GetUUID", "GetPowerUsage", "GetTemperature", "GetClockInfo")
"""Without these functions, nvidia-smi reports more."""
SELDOM, COUNTED = {"generation": 1.0, "lanes": 1.0, "limit": 5.0}, 30.0
"""Seconds between two readings of figures that cost a driver more. The counter of energy costs most: 5 ms on an H200.
A request reads it, too."""


class App(ctypes.Structure):
    """A process on a card, as NVML reports it."""

    _fields_ = (("pid", FIGURE), ("memory", LARGE), ("instance", FIGURE), ("compute", FIGURE))


class Field(ctypes.Structure):
    """A figure that is queried by its number: `nvmlFieldValue_t`."""

    _fields_ = (
        *(("number", FIGURE), ("scope", FIGURE), ("at", ctypes.c_longlong), ("took", ctypes.c_longlong)),
        *(("kind", ctypes.c_int), ("code", ctypes.c_int), ("value", LARGE)),
    )


class Memory(ctypes.Structure):
    """Bytes of a card: `nvmlMemory_v2_t`, in which memory that the driver reserves does not count as used."""

    _fields_ = (("version", FIGURE), ("total", LARGE), ("reserved", LARGE), ("free", LARGE), ("used", LARGE))


class OldMemory(ctypes.Structure):
    """Bytes of a card, as older drivers report them: `nvmlMemory_t`."""

    _fields_ = (("total", LARGE), ("free", LARGE), ("used", LARGE))


class Place(ctypes.Structure):
    """Where a card is: `nvmlPciInfo_t`."""

    _fields_ = (("old", ctypes.c_char * 16), ("numbers", FIGURE * 5), ("bus", ctypes.c_char * 32))


class Nvml:
    """NVIDIA's library. `why` contains why it reports nothing; `lacks` contains, by card, why it counts no energy.

    `why_smi` is why nvidia-smi is used for the state of cards. Lines have nvidia-smi's form. `fields` are those that
    any card has reported at first: only these fields are read repeatedly.
    """

    def __init__(self) -> None:
        self.cards: dict[str, Any] = {}
        self.known: dict[str, dict[str, str]] = {}
        self.due: dict[str, float] = {}
        self.lacks: dict[str, str] = {}
        self.fields: list[str] = []
        self.why = self.why_smi = ""
        self.library: Any = None
        for name in NVML:
            with suppress(OSError):
                self.library = ctypes.CDLL(name)
                break
        if self.library is None:
            self.why = "NVIDIA's library is not installed"
        elif code := self.call("nvmlInit_v2"):
            self.why = self.words(code)
        else:
            self.find()
        lacked = [name for name in NEEDED if self.library and not hasattr(self.library, f"nvmlDevice{name}")]
        self.why_smi = self.why or (f"NVIDIA's library lacks nvmlDevice{lacked[0]}" if lacked else "")
        self.why_smi = self.why_smi or ("" if self.cards else "NVIDIA's library finds no card")
        if not self.why_smi:
            self.fields = list(READERS)
            self.rows(time.monotonic())
            self.fields = [name for name in READERS if any(each[name] != NOT_REPORTED for each in self.known.values())]

    def call(self, name: str, *arguments: Any) -> int:
        """Return the code that a function ends with; 13 for one that the library lacks."""
        function = getattr(self.library, name, None)
        if function is None:
            return LACKED
        # Each argument is a ctypes value, so that its type is the argument type.
        function.argtypes, function.restype = [type(each) for each in arguments], ctypes.c_int
        return int(function(*arguments))

    def words(self, code: int) -> str:
        """Return the meaning of a code."""
        words = self.library.nvmlErrorString
        words.argtypes, words.restype = [ctypes.c_int], ctypes.c_char_p
        return (words(code) or b"").decode(errors="replace")

    def find(self) -> None:
        """Find all cards by UUID, and which of them count their energy."""
        count = FIGURE()
        if code := self.call("nvmlDeviceGetCount_v2", ctypes.pointer(count)):
            self.why = self.words(code)
        for number in range(min(count.value, MOST_CARDS)):
            card = CARD()
            if self.call("nvmlDeviceGetHandleByIndex_v2", FIGURE(number), ctypes.pointer(card)):
                continue
            if uuid := self.name("nvmlDeviceGetUUID", card):
                self.cards[uuid], self.known[uuid] = card, {}
        for uuid, card in self.cards.items():
            if code := self.call("nvmlDeviceGetTotalEnergyConsumption", card, ctypes.pointer(LARGE())):
                self.lacks[uuid] = self.words(code)

    def figure(self, name: str, card: Any, *which: Any, kind: Any = FIGURE) -> int | None:
        """Return a number that a function reports of a card."""
        value = kind()
        return None if self.call(name, card, *which, ctypes.pointer(value)) else int(value.value)

    def name(self, function: str, *card: Any) -> str:
        """Return a text that a function reports."""
        room = ctypes.create_string_buffer(96)
        return "" if self.call(function, *card, room, FIGURE(96)) else room.value.decode(errors="replace")

    def field(self, card: Any, number: int) -> int | None:
        """Return a figure by its number: those of power are whole milliwatts."""
        queried = Field(number)
        code = self.call("nvmlDeviceGetFieldValues", card, ctypes.c_int(1), ctypes.pointer(queried))
        return None if code or queried.code or queried.kind != IS_UINT else int(queried.value & 0xFFFFFFFF)

    def memory(self, card: Any) -> tuple[int, int] | None:
        """Return the used bytes and all bytes."""
        new, old = Memory(ctypes.sizeof(Memory) | 2 << 24), OldMemory()
        if not self.call("nvmlDeviceGetMemoryInfo_v2", card, ctypes.pointer(new)):
            return new.used, new.total
        return None if self.call("nvmlDeviceGetMemoryInfo", card, ctypes.pointer(old)) else (old.used, old.total)

    def limit(self, card: Any) -> int | None:
        """Return the power limit of a card in milliwatts: as it was set, or as its driver enforces it."""
        held = self.figure("nvmlDeviceGetPowerManagementLimit", card)
        return self.figure("nvmlDeviceGetEnforcedPowerLimit", card) if held is None else held

    def reasons(self, card: Any) -> int | None:
        """Return the reasons for a card's present clocks, as bits."""
        bits = self.figure("nvmlDeviceGetCurrentClocksEventReasons", card, kind=LARGE)
        return self.figure("nvmlDeviceGetCurrentClocksThrottleReasons", card, kind=LARGE) if bits is None else bits

    def power(self, card: Any) -> int | None:
        """Return milliwatts, mostly as a mean."""
        mean = self.field(card, POWER_MEAN)
        return self.figure("nvmlDeviceGetPowerUsage", card) if mean is None else mean

    def rows(self, now: float) -> list[str]:
        """Return a line for each card, of its UUID and `fields`. Figures that change seldom are read when due."""
        names = [name for name in self.fields if now >= self.due.get(name, now)]
        self.due.update({name: now + SELDOM[name] for name in names if name in SELDOM})
        for uuid, card in self.cards.items():
            self.known[uuid] |= {name: READERS[name](self, card) for name in names}
        return [", ".join((uuid, *map(known.__getitem__, self.fields))) for uuid, known in self.known.items()]

    def standing(self) -> list[str]:
        """Return a line for each card, of facts that do not change. The name is last: it may contain a comma."""
        return [", ".join((uuid, *self.facts(card))) for uuid, card in self.cards.items()]

    def facts(self, card: Any) -> list[str]:
        """Return the facts in the order of `STANDING`, without the UUID."""
        place, ecc, memory = Place(), (FIGURE(), FIGURE()), self.memory(card)
        at = not self.call("nvmlDeviceGetPciInfo_v3", card, ctypes.pointer(place))
        corrects = not self.call("nvmlDeviceGetEccMode", card, *map(ctypes.pointer, ecc))
        return [
            place.bus.decode(errors="replace") if at else NOT_REPORTED,
            self.name("nvmlSystemGetDriverVersion") or NOT_REPORTED,
            self.name("nvmlDeviceGetVbiosVersion", card) or NOT_REPORTED,
            show_watts(self.figure("nvmlDeviceGetPowerManagementDefaultLimit", card)),
            show_figure(self.figure("nvmlDeviceGetMaxClockInfo", card, FIGURE(OF_SM))),
            show_figure(self.figure("nvmlDeviceGetMaxClockInfo", card, FIGURE(OF_MEMORY))),
            ("Disabled", "Enabled")[ecc[0].value == 1] if corrects else NOT_REPORTED,
            show_figure(memory[1] >> 20 if memory else None),
            self.name("nvmlDeviceGetName", card) or NOT_REPORTED,
        ]

    def energy(self) -> dict[str, int]:
        """Return millijoules since the driver was loaded, by card."""
        found = {}
        for uuid, card in self.cards.items():
            if uuid not in self.lacks:
                spent = self.figure("nvmlDeviceGetTotalEnergyConsumption", card, kind=LARGE)
                found.update({} if spent is None else {uuid: spent})
        return found

    def apps(self) -> list[list[Any]] | None:
        """Return the processes on cards: UUID, process, bytes if reported. None where the library reports nothing."""
        if self.why:
            return None
        found: list[list[Any]] = []
        for uuid, card in self.cards.items():
            for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"):
                count, apps = FIGURE(MOST_APPS), (App * MOST_APPS)()
                code = self.call(name, card, ctypes.pointer(count), apps)
                if code != LACKED:
                    break
            if code:
                return None
            listed = apps[: count.value]
            found += [[uuid, app.pid, None if app.memory == UNKNOWN_MEMORY else app.memory] for app in listed]
        return found


def show_watts(milliwatts: int | None) -> str:
    """Return power as nvidia-smi writes it."""
    return NOT_REPORTED if milliwatts is None else f"{milliwatts / 1000:.2f}"


def show_figure(value: int | None, form: str = "{}") -> str:
    """Return a number as nvidia-smi writes it."""
    return NOT_REPORTED if value is None else form.format(value)


def show_used(memory: tuple[int, int] | None) -> str:
    """Return memory that is used, as nvidia-smi writes it: MiB."""
    return NOT_REPORTED if memory is None else str(memory[0] >> 20)


READERS: dict[str, Callable[[Nvml, Any], str]] = {
    "watts": lambda nvml, card: show_watts(nvml.field(card, POWER_NOW)),
    "mean_watts": lambda nvml, card: show_watts(nvml.power(card)),
    "limit": lambda nvml, card: show_watts(nvml.limit(card)),
    "celsius": lambda nvml, card: show_figure(nvml.figure("nvmlDeviceGetTemperature", card, FIGURE(OF_GPU))),
    "sm_mhz": lambda nvml, card: show_figure(nvml.figure("nvmlDeviceGetClockInfo", card, FIGURE(OF_SM))),
    "memory_mib": lambda nvml, card: show_used(nvml.memory(card)),
    "generation": lambda nvml, card: show_figure(nvml.figure("nvmlDeviceGetCurrPcieLinkGeneration", card)),
    "lanes": lambda nvml, card: show_figure(nvml.figure("nvmlDeviceGetCurrPcieLinkWidth", card)),
    "reasons": lambda nvml, card: show_figure(nvml.reasons(card), "{:#018x}"),
}
"""The reader of each figure of a card, by llamaherd's names of them."""


def serve_library(every: float, requests: int, out: int) -> None:
    """Report the state of cards again and again, and respond to requests, until the pipe is closed."""
    library = Nvml()
    hello = {"why": library.why, "why_smi": library.why_smi, "lacks": library.lacks, "fields": library.fields}
    serves = not library.why
    write_lines(out, ("hello", {**hello, "cards": library.standing() if not library.why_smi else [], "serves": serves}))
    due = counted = time.monotonic()
    while serves:
        words = b""
        if select.select([requests], [], [], max(0.0, due - time.monotonic()))[0]:
            words = os.read(requests, 4096)
            if not words:
                return
        if b"apps" in words:
            write_lines(out, ("apps", {"apps": library.apps()}))
        if b"count" in words:
            write_lines(out, ("now", read_counters(library)))
        now = time.monotonic()
        if now >= due:
            rows = library.rows(now) if library.fields else []
            lines = [("gpu", {"csv": row, "t": round(time.monotonic(), 5)}) for row in rows]
            write_lines(out, *lines, *([("count", read_counters(library))] if now >= counted else ()))
            # Readings that are overdue are skipped.
            due = max(due + every, time.monotonic())
            counted = now + COUNTED if now >= counted else counted


def write_lines(out: int, *lines: tuple[str, dict[str, Any]]) -> None:
    """Write some lines at once."""
    data = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in lines).encode()
    while data:
        data = data[os.write(out, data) :]


def read_counters(library: Nvml) -> dict[str, Any]:
    """Return the counters, and when they were read: on a busy host, both are read again."""
    for _ in range(3):
        before = time.monotonic()
        counters = library.energy()
        after = time.monotonic()
        if after - before < PROMPT:
            break
    return {"t": round((before + after) / 2, 5), "mj": counters, "uj": {}}


PATH = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/usr/lib/wsl/lib"
LONGEST_LINE = 1 << 17
"""Bytes of the longest line, which lists all processes of all cards."""
SLOW = 15
"""Seconds that a source may take for its first line."""
PDEATHSIG, PR_SET_NAME = 1, 15  # linux/prctl.h
LIBC = ctypes.CDLL(None)

Line = tuple[str, dict[str, Any]]
"""A line: its kind and its values."""
Serve = Callable[[float, int, int], None]
"""Reads the library: how often, the descriptor of its requests, and that of its output."""

STREAMED = {
    "uuid": ("uuid",),
    "watts": ("power.draw.instant",),
    "mean_watts": ("power.draw.average", "power.draw"),
    "limit": ("power.limit",),
    "celsius": ("temperature.gpu",),
    "sm_mhz": ("clocks.sm", "clocks.current.sm"),
    "memory_mib": ("memory.used",),
    "generation": ("pcie.link.gen.gpucurrent", "pcie.link.gen.current"),
    "lanes": ("pcie.link.width.current",),
    "reasons": ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
}
"""Fields that nvidia-smi reports again and again, with their names: a driver that lacks one field reports none."""
STANDING = {
    "uuid": ("uuid",),
    "pci": ("pci.bus_id",),
    "driver": ("driver_version",),
    "vbios": ("vbios_version",),
    "default_limit": ("power.default_limit",),
    "most_sm_mhz": ("clocks.max.sm",),
    "most_memory_mhz": ("clocks.max.memory",),
    "ecc": ("ecc.mode.current",),
    "memory_mib": ("memory.total",),
    # The name is last: it may contain a comma.
    "name": ("name",),
}
"""Fields that nvidia-smi reports once. The library reports the same fields."""


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, for whatever reason."""
    LIBC.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def name_process(name: str) -> None:
    """Name this process, as `ps` and `pgrep` show it: up to 15 bytes. Its forks have the same name."""
    LIBC.prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def end_with(parent: int) -> None:
    """Call `end_with_parent` in a process that has just begun: its parent may have ended already."""
    end_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def let_go(kept: tuple[int, int]) -> None:
    """Close the connection in this process: it belongs to the program, which ends with it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        if descriptor not in kept:
            os.dup2(nothing, descriptor)


class Lines:
    """The output of a process. Raises OSError if it has ended, or writes a line without end."""

    def __init__(self, output: int) -> None:
        self.output, self.begun = output, b""

    def read(self) -> list[str]:
        """Return whole lines."""
        piece = os.read(self.output, 1 << 16)
        if not piece:
            raise OSError("it has ended")
        *whole, self.begun = (self.begun + piece).split(b"\n")
        if len(self.begun) > LONGEST_LINE:
            raise OSError("a line without end")
        return [line.decode(errors="replace").strip() for line in whole]


class Library:
    """The library in a process of its own: a hang in the driver, or a crash, stops that process alone."""

    def __init__(self, serve: Serve, every: float) -> None:
        self.output, theirs = os.pipe()
        requests, self.input = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            with suppress(BaseException):
                os.close(self.output)
                os.close(self.input)
                end_with(parent)
                let_go((requests, theirs))
                serve(every, requests, theirs)
            os._exit(0)
        os.close(theirs)
        os.close(requests)
        # A process that hangs does not empty the pipe.
        os.set_blocking(self.input, False)
        self.lines = Lines(self.output)
        self.left: list[Line] = []
        self.failed = False
        self.hello: dict[str, Any] = {"why": "NVIDIA's library does not respond", "why_smi": "", "lacks": {}}
        self.wait("hello", SLOW, self.left)
        if self.failed:
            self.hello |= dict.fromkeys(("why", "why_smi"), "NVIDIA's library fails")
        if not self.hello.get("serves"):
            self.end()

    def heard(self) -> list[Line]:
        """Return the lines since the last call. Raise OSError if the process has ended."""
        lines: list[Line] = []
        for line in self.lines.read():
            kind, values = json.loads(line)
            if kind == "hello":
                self.hello = values
            lines.append((kind, values))
        return lines

    def wait(self, kind: str, seconds: float, lines: list[Line]) -> bool:
        """Return whether a line of a kind came within so many seconds. All lines since are added to `lines`."""
        until = time.monotonic() + seconds
        try:
            while self.output >= 0 and (left := until - time.monotonic()) > 0:
                if select.select([self.output], [], [], left)[0]:
                    lines += self.heard()
                if any(each == kind for each, _ in lines):
                    return True
        except OSError:
            self.failed = True
        return False

    def request(self, word: str) -> None:
        """Request a line now: `count` or `apps`."""
        with suppress(OSError):
            if self.output >= 0:
                os.write(self.input, word.encode() + b"\n")

    def end(self) -> None:
        """End the process. One that hangs in the driver is not waited for."""
        if self.output < 0:
            return
        os.kill(self.pid, signal.SIGKILL)
        for _ in range(50):
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                break
            time.sleep(0.01)
        os.close(self.output)
        os.close(self.input)
        self.output = -1


class Smi:
    """The driver's own program, which costs more: queried for its fields, then running until this ends."""

    def __init__(self) -> None:
        self.program = shutil.which("nvidia-smi", path=PATH)
        self.why = ""
        self.fields: list[str] = []
        self.query: list[str] = []
        self.standing: list[str] = []
        self.cards: list[str] = []
        self.process: Any = None
        self.output, self.complaints = -1, 0
        if not self.program:
            self.why = "there is no nvidia-smi"
            return
        code, output = self.run_smi("--help-query-gpu")
        known = set(re.findall(r'"([a-z0-9_.]+)"', output))
        if not known:
            self.why = output.strip().partition("\n")[0][:200] or f"nvidia-smi ended with {code}"
            return
        self.fields, names = self.chosen(STREAMED, known)
        self.standing, standing = self.chosen(STANDING, known)
        code, output = self.run_smi(f"--query-gpu={','.join(standing)}", "--format=csv,noheader,nounits")
        lines = output.splitlines()[:16]
        if code or not lines:
            self.why = (lines or [f"nvidia-smi ended with {code}"])[0][:200]
            return
        self.cards = lines
        self.query = [self.program, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]

    def chosen(self, wished: Mapping[str, tuple[str, ...]], known: set[str]) -> tuple[list[str], list[str]]:
        """Return the fields that the driver has: our names, and the driver's names."""
        found = {key: next((name for name in names if name in known), "") for key, names in wished.items()}
        return [key for key, name in found.items() if name], [name for name in found.values() if name]

    def run_smi(self, *arguments: str) -> tuple[int, str]:
        """Return its exit code and output. A driver that hangs is not waited for."""
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                [self.program or "", *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=20,
                preexec_fn=end_with_parent,
                check=False,
            )
            return done.returncode, done.stdout[: 1 << 20].decode(errors="replace")
        return 124, "nvidia-smi does not respond"

    def start(self, every: float) -> None:
        """Start nvidia-smi in a loop. Its output is a terminal, so that it prints each line at once."""
        if self.why:
            return
        self.output, theirs = pty.openpty()
        self.lines = Lines(self.output)
        parent, command = os.getpid(), [*self.query, "-lms", str(max(20, round(every * 1000)))]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, preexec_fn=lambda: end_with(parent)
        )
        os.close(theirs)

    def heard(self) -> list[Line]:
        """Return its lines of cards, and the first ones of other lines. Raise OSError if it has ended."""
        lines: list[Line] = []
        for line in self.lines.read():
            if line.count(",") == len(self.fields) - 1:
                lines.append(("gpu", {"csv": line[:1024]}))
            elif line and self.complaints < 5:
                self.complaints += 1
                lines.append(("said", {"text": line[:200]}))
        return lines

    def end(self) -> None:
        """End the process. One that hangs in the driver is not waited for."""
        if self.process:
            self.process.kill()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)
        if self.output >= 0:
            os.close(self.output)
            self.output = -1


class GpuSources:
    """All sources. nvidia-smi is used if the library does not report the state of cards."""

    def __init__(self, serve: Serve, every: float) -> None:
        self.library = Library(serve, every)
        hello = self.library.hello
        self.why_smi = hello["why_smi"]
        self.smi = Smi() if self.why_smi else None
        self.standing = {
            "card_fields": self.smi.standing if self.smi else list(STANDING),
            "cards": self.smi.cards if self.smi else hello.get("cards", []),
            "fields": self.smi.fields if self.smi else ["uuid", *hello.get("fields", [])],
            "no_smi": self.smi.why if self.smi else hello["why"],
            "why_smi": self.why_smi,
            "no_nvml": hello["why"],
            "no_counter": hello["lacks"],
        }

    def start(self, every: float) -> list[Line]:
        """Begin, and return what the library has reported by now."""
        if self.smi:
            self.smi.start(every)
        return [each for each in self.library.left if each[0] != "hello"]

    @property
    def running(self) -> dict[int, Any]:
        """Return the sources that run, by the descriptors of their output."""
        return {each.output: each for each in (self.library, self.smi) if each and each.output >= 0}

    @property
    def pids(self) -> list[int]:
        """Return their processes."""
        smi = self.smi.process.pid if self.smi and self.smi.output >= 0 else 0
        return [pid for pid in (self.library.pid if self.library.output >= 0 else 0, smi) if pid]

    def end(self) -> None:
        """End them."""
        for each in list(self.running.values()):
            each.end()
