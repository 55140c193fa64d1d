"""GPUs as NVIDIA's library (NVML) reports them: their state, the energy that they used, and their processes."""

from __future__ import annotations

import ctypes
import json
import os
import select
import time
from collections.abc import Callable
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
    any card has reported at first: only these fields are read again and again.
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
            self.fields = list(READ)
            self.rows(time.monotonic())
            self.fields = [name for name in READ if any(each[name] != NOT_REPORTED for each in self.known.values())]

    def call(self, name: str, *arguments: Any) -> int:
        """Return the code that a function ends with; 13 for one that the library lacks."""
        function = getattr(self.library, name, None)
        if function is None:
            return LACKED
        # Each argument is a ctypes value, so that its type is the argument type.
        function.argtypes, function.restype = [type(each) for each in arguments], ctypes.c_int
        return int(function(*arguments))

    def words(self, code: int) -> str:
        """Return what a code means."""
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
        said = self.figure("nvmlDeviceGetCurrentClocksEventReasons", card, kind=LARGE)
        return self.figure("nvmlDeviceGetCurrentClocksThrottleReasons", card, kind=LARGE) if said is None else said

    def power(self, card: Any) -> int | None:
        """Return milliwatts, mostly as a mean."""
        mean = self.field(card, POWER_MEAN)
        return self.figure("nvmlDeviceGetPowerUsage", card) if mean is None else mean

    def rows(self, now: float) -> list[str]:
        """Return a line for each card, of its UUID and `fields`. Figures that change seldom are read when due."""
        names = [name for name in self.fields if now >= self.due.get(name, now)]
        self.due.update({name: now + SELDOM[name] for name in names if name in SELDOM})
        for uuid, card in self.cards.items():
            self.known[uuid] |= {name: READ[name](self, card) for name in names}
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
            watts(self.figure("nvmlDeviceGetPowerManagementDefaultLimit", card)),
            plain(self.figure("nvmlDeviceGetMaxClockInfo", card, FIGURE(OF_SM))),
            plain(self.figure("nvmlDeviceGetMaxClockInfo", card, FIGURE(OF_MEMORY))),
            ("Disabled", "Enabled")[ecc[0].value == 1] if corrects else NOT_REPORTED,
            plain(memory[1] >> 20 if memory else None),
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


def watts(milliwatts: int | None) -> str:
    """Return power as nvidia-smi writes it."""
    return NOT_REPORTED if milliwatts is None else f"{milliwatts / 1000:.2f}"


def plain(value: int | None, form: str = "{}") -> str:
    """Return a number as nvidia-smi writes it."""
    return NOT_REPORTED if value is None else form.format(value)


def used(memory: tuple[int, int] | None) -> str:
    """Return memory that is used, as nvidia-smi writes it: MiB."""
    return NOT_REPORTED if memory is None else str(memory[0] >> 20)


READ: dict[str, Callable[[Nvml, Any], str]] = {
    "watts": lambda nvml, card: watts(nvml.field(card, POWER_NOW)),
    "mean_watts": lambda nvml, card: watts(nvml.power(card)),
    "limit": lambda nvml, card: watts(nvml.limit(card)),
    "celsius": lambda nvml, card: plain(nvml.figure("nvmlDeviceGetTemperature", card, FIGURE(OF_GPU))),
    "sm_mhz": lambda nvml, card: plain(nvml.figure("nvmlDeviceGetClockInfo", card, FIGURE(OF_SM))),
    "memory_mib": lambda nvml, card: used(nvml.memory(card)),
    "generation": lambda nvml, card: plain(nvml.figure("nvmlDeviceGetCurrPcieLinkGeneration", card)),
    "lanes": lambda nvml, card: plain(nvml.figure("nvmlDeviceGetCurrPcieLinkWidth", card)),
    "reasons": lambda nvml, card: plain(nvml.reasons(card), "{:#018x}"),
}
"""How each figure of a card is read, by our names of them."""


def serve(every: float, requests: int, out: int) -> None:
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
            write_lines(out, ("now", count(library)))
        now = time.monotonic()
        if now >= due:
            rows = library.rows(now) if library.fields else []
            lines = [("gpu", {"csv": row, "t": round(time.monotonic(), 5)}) for row in rows]
            write_lines(out, *lines, *([("count", count(library))] if now >= counted else ()))
            # Readings that are overdue are skipped.
            due = max(due + every, time.monotonic())
            counted = now + COUNTED if now >= counted else counted


def write_lines(out: int, *lines: tuple[str, dict[str, Any]]) -> None:
    """Write some lines at once."""
    data = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in lines).encode()
    while data:
        data = data[os.write(out, data) :]


def count(library: Nvml) -> dict[str, Any]:
    """Return the counters, and when they were read: on a busy host, both are read again."""
    for _ in range(3):
        before = time.monotonic()
        counters = library.energy()
        after = time.monotonic()
        if after - before < PROMPT:
            break
    return {"t": round((before + after) / 2, 5), "mj": counters, "uj": {}}
