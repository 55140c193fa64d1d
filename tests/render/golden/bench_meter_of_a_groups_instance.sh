# Watches this host while its server is measured. What is said to it comes after this script, on the same pipe.
pid=$(systemctl show -P MainPID llama-card.service 2>/dev/null) spec=''
# Of a server that has several models in turn, what is watched is the process of this one: it ends with a swap.
router=${pid:-0} pid=0
for child in $(cat "/proc/$router/task/"*/children 2>/dev/null); do
    named=$(tr '\0' '\n' <"/proc/$child/cmdline" 2>/dev/null | grep -x -A 1 -e --alias | tail -n 1)
    [ "$named" != gemma ] || pid=$child
done
exec python3 -I - '{"every": 0.2, "lasts": 300, "silence": 60, "most": 67108864, "port": 8010, "metrics": ["http://127.0.0.1:8010/metrics?model=gemma&autoload=false"], "key": "/etc/llamaherd/keys/card"}' "${pid:-0}" "$spec" "$(systemd-detect-virt 2>/dev/null)" 3<&0 <<'END'
"""What NVIDIA's library tells of cards: how they are, what they have spent, and who is on them."""

# For Python 3.10 and its standard library alone.
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
"""Seconds that reading all counters may take, for their time to be known well: a card may take 10 ms."""
LACKED, NOT_TOLD = 13, "[N/A]"
POWER_MEAN, POWER_NOW, IS_UINT, OF_GPU, OF_SM, OF_MEMORY = 185, 186, 1, 0, 1, 2
NEEDED = ("GetCount_v2", "GetHandleByIndex_v2", "GetUUID", "GetPowerUsage", "GetTemperature", "GetClockInfo")
"""Without these, nvidia-smi tells more."""
SELDOM, COUNTED = {"generation": 1.0, "lanes": 1.0, "limit": 5.0}, 30.0
"""Seconds between two readings of what costs a driver more than the rest: most of all the counter of energy, with 5 ms
on an H200. It is read when it is asked for, too."""


class App(ctypes.Structure):
    """A process on a card, as NVML tells of it."""

    _fields_ = (("pid", FIGURE), ("memory", LARGE), ("instance", FIGURE), ("compute", FIGURE))


class Field(ctypes.Structure):
    """A figure that is asked for by its number: `nvmlFieldValue_t`."""

    _fields_ = (
        *(("number", FIGURE), ("scope", FIGURE), ("at", ctypes.c_longlong), ("took", ctypes.c_longlong)),
        *(("kind", ctypes.c_int), ("code", ctypes.c_int), ("value", LARGE)),
    )


class Memory(ctypes.Structure):
    """Bytes of a card: `nvmlMemory_v2_t`, in which what the driver keeps for itself is not used."""

    _fields_ = (("version", FIGURE), ("total", LARGE), ("reserved", LARGE), ("free", LARGE), ("used", LARGE))


class OldMemory(ctypes.Structure):
    """The same of older drivers: `nvmlMemory_t`."""

    _fields_ = (("total", LARGE), ("free", LARGE), ("used", LARGE))


class Place(ctypes.Structure):
    """Where a card is: `nvmlPciInfo_t`."""

    _fields_ = (("old", ctypes.c_char * 16), ("numbers", FIGURE * 5), ("bus", ctypes.c_char * 32))


class Nvml:
    """NVIDIA's library. `why` nothing is told by it; `lacks`: by card, why it counts no energy.

    `why_smi` is why it does not tell how cards are. What it tells has nvidia-smi's form. `fields` are those that any
    card has told at first: nobody is asked again and again for what there is not.
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
        self.why_smi = self.why_smi or ("" if self.cards else "NVIDIA's library knows no card")
        if not self.why_smi:
            self.fields = list(READ)
            self.rows(time.monotonic())
            self.fields = [name for name in READ if any(each[name] != NOT_TOLD for each in self.known.values())]

    def call(self, name: str, *arguments: Any) -> int:
        """The code that a function ends with; 13 for one that the library lacks."""
        function = getattr(self.library, name, None)
        if function is None:
            return LACKED
        # Each argument is of ctypes: that is its type.
        function.argtypes, function.restype = [type(each) for each in arguments], ctypes.c_int
        return int(function(*arguments))

    def words(self, code: int) -> str:
        """What a code means."""
        say = self.library.nvmlErrorString
        say.argtypes, say.restype = [ctypes.c_int], ctypes.c_char_p
        return (say(code) or b"").decode(errors="replace")

    def find(self) -> None:
        """All cards by UUID, and which of them count their energy."""
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
        """A number that a function tells of a card."""
        value = kind()
        return None if self.call(name, card, *which, ctypes.pointer(value)) else int(value.value)

    def name(self, function: str, *card: Any) -> str:
        """A text that a function tells."""
        room = ctypes.create_string_buffer(96)
        return "" if self.call(function, *card, room, FIGURE(96)) else room.value.decode(errors="replace")

    def field(self, card: Any, number: int) -> int | None:
        """A figure by its number: those of power are whole milliwatts."""
        asked = Field(number)
        code = self.call("nvmlDeviceGetFieldValues", card, ctypes.c_int(1), ctypes.pointer(asked))
        return None if code or asked.code or asked.kind != IS_UINT else int(asked.value & 0xFFFFFFFF)

    def memory(self, card: Any) -> tuple[int, int] | None:
        """Bytes that are used, and all."""
        new, old = Memory(ctypes.sizeof(Memory) | 2 << 24), OldMemory()
        if not self.call("nvmlDeviceGetMemoryInfo_v2", card, ctypes.pointer(new)):
            return new.used, new.total
        return None if self.call("nvmlDeviceGetMemoryInfo", card, ctypes.pointer(old)) else (old.used, old.total)

    def limit(self, card: Any) -> int | None:
        """What a card is held to, in milliwatts: as somebody has set it, or as its driver holds it."""
        held = self.figure("nvmlDeviceGetPowerManagementLimit", card)
        return self.figure("nvmlDeviceGetEnforcedPowerLimit", card) if held is None else held

    def reasons(self, card: Any) -> int | None:
        """Why its clocks are as they are, as bits."""
        said = self.figure("nvmlDeviceGetCurrentClocksEventReasons", card, kind=LARGE)
        return self.figure("nvmlDeviceGetCurrentClocksThrottleReasons", card, kind=LARGE) if said is None else said

    def power(self, card: Any) -> int | None:
        """Milliwatts, mostly as a mean."""
        mean = self.field(card, POWER_MEAN)
        return self.figure("nvmlDeviceGetPowerUsage", card) if mean is None else mean

    def rows(self, now: float) -> list[str]:
        """A line for each card, of its UUID and `fields`. What changes seldom is as it was, until it is due again."""
        names = [name for name in self.fields if now >= self.due.get(name, now)]
        self.due.update({name: now + SELDOM[name] for name in names if name in SELDOM})
        for uuid, card in self.cards.items():
            self.known[uuid] |= {name: READ[name](self, card) for name in names}
        return [", ".join((uuid, *map(known.__getitem__, self.fields))) for uuid, known in self.known.items()]

    def standing(self) -> list[str]:
        """A line for each card of what stays as it is. Nobody promises that its name has no comma: it is the last."""
        return [", ".join((uuid, *self.facts(card))) for uuid, card in self.cards.items()]

    def facts(self, card: Any) -> list[str]:
        """As `STANDING` has them, without the UUID."""
        place, ecc, memory = Place(), (FIGURE(), FIGURE()), self.memory(card)
        at = not self.call("nvmlDeviceGetPciInfo_v3", card, ctypes.pointer(place))
        corrects = not self.call("nvmlDeviceGetEccMode", card, *map(ctypes.pointer, ecc))
        return [
            place.bus.decode(errors="replace") if at else NOT_TOLD,
            self.name("nvmlSystemGetDriverVersion") or NOT_TOLD,
            self.name("nvmlDeviceGetVbiosVersion", card) or NOT_TOLD,
            watts(self.figure("nvmlDeviceGetPowerManagementDefaultLimit", card)),
            plain(self.figure("nvmlDeviceGetMaxClockInfo", card, FIGURE(OF_SM))),
            plain(self.figure("nvmlDeviceGetMaxClockInfo", card, FIGURE(OF_MEMORY))),
            ("Disabled", "Enabled")[ecc[0].value == 1] if corrects else NOT_TOLD,
            plain(memory[1] >> 20 if memory else None),
            self.name("nvmlDeviceGetName", card) or NOT_TOLD,
        ]

    def energy(self) -> dict[str, int]:
        """Millijoules since the driver was loaded, by card."""
        found = {}
        for uuid, card in self.cards.items():
            if uuid not in self.lacks:
                spent = self.figure("nvmlDeviceGetTotalEnergyConsumption", card, kind=LARGE)
                found.update({} if spent is None else {uuid: spent})
        return found

    def apps(self) -> list[list[Any]] | None:
        """Who is on which card: UUID, process, bytes, if they are told. None where nobody can say."""
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
            told = apps[: count.value]
            found += [[uuid, app.pid, None if app.memory == UNKNOWN_MEMORY else app.memory] for app in told]
        return found


def watts(milliwatts: int | None) -> str:
    """Power as nvidia-smi writes it."""
    return NOT_TOLD if milliwatts is None else f"{milliwatts / 1000:.2f}"


def plain(value: int | None, form: str = "{}") -> str:
    """A number as nvidia-smi writes it."""
    return NOT_TOLD if value is None else form.format(value)


def used(memory: tuple[int, int] | None) -> str:
    """Memory that is used, as nvidia-smi writes it: MiB."""
    return NOT_TOLD if memory is None else str(memory[0] >> 20)


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


def serve(every: float, told: int, out: int) -> None:
    """Tell how cards are, again and again, and what is asked, until nobody asks any more."""
    library = Nvml()
    hello = {"why": library.why, "why_smi": library.why_smi, "lacks": library.lacks, "fields": library.fields}
    serves = not library.why
    say(out, ("hello", {**hello, "cards": library.standing() if not library.why_smi else [], "serves": serves}))
    due = counted = time.monotonic()
    while serves:
        words = b""
        if select.select([told], [], [], max(0.0, due - time.monotonic()))[0]:
            words = os.read(told, 4096)
            if not words:
                return
        if b"apps" in words:
            say(out, ("apps", {"apps": library.apps()}))
        if b"count" in words:
            say(out, ("now", count(library)))
        now = time.monotonic()
        if now >= due:
            rows = library.rows(now) if library.fields else []
            lines = [("gpu", {"csv": row, "t": round(time.monotonic(), 5)}) for row in rows]
            say(out, *lines, *([("count", count(library))] if now >= counted else ()))
            # What came too late is not made up for.
            due = max(due + every, time.monotonic())
            counted = now + COUNTED if now >= counted else counted


def say(out: int, *told: tuple[str, dict[str, Any]]) -> None:
    """Some lines at once."""
    data = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in told).encode()
    while data:
        data = data[os.write(out, data) :]


def count(library: Nvml) -> dict[str, Any]:
    """The counters, and when they were read: a busy host may hold us up between the two, and is asked again."""
    for _ in range(3):
        before = time.monotonic()
        counters = library.energy()
        after = time.monotonic()
        if after - before < PROMPT:
            break
    return {"t": round((before + after) / 2, 5), "mj": counters, "uj": {}}


"""Who tells of cards: NVIDIA's library in a process of its own, or else nvidia-smi. Neither outlives this program."""

# For Python 3.10 and its standard library alone.
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

PATH = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/usr/lib/wsl/lib"
LONGEST_LINE = 1 << 17
"""Bytes: all processes of all cards are one."""
SLOW = 15
"""Seconds that they may take for their first line."""
PDEATHSIG = 1  # linux/prctl.h
LIBC = ctypes.CDLL(None)

Told = tuple[str, dict[str, Any]]
"""A line, as its kind and what is in it."""
Serve = Callable[[float, int, int], None]
"""What reads the library and says so: how often, the descriptor that it is asked on, and that for what it says."""

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
"""What nvidia-smi is asked all the time, and by which names: a driver that lacks one field answers to none."""
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
    # Nobody promises that it has no comma.
    "name": ("name",),
}
"""What it is asked once. The library tells the same."""


def end_with_parent() -> None:
    """Have this process killed when its parent is gone, however that one ends."""
    LIBC.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def end_with(parent: int) -> None:
    """The same, in a process that has just begun: its parent may be gone already."""
    end_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def let_go(kept: tuple[int, int]) -> None:
    """Hold the connection open no more: that is for this program, which ends with it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(4):
        if descriptor not in kept:
            os.dup2(nothing, descriptor)


class Lines:
    """What a process has said since. Raises OSError where it has ended, or says what is no line."""

    def __init__(self, output: int) -> None:
        self.output, self.begun = output, b""

    def read(self) -> list[str]:
        """Whole lines."""
        piece = os.read(self.output, 1 << 16)
        if not piece:
            raise OSError
        *whole, self.begun = (self.begun + piece).split(b"\n")
        if len(self.begun) > LONGEST_LINE:
            raise OSError
        return [line.decode(errors="replace").strip() for line in whole]


class Library:
    """The library, in a process of its own: one that hangs in the driver, or falls, holds up nobody but itself."""

    def __init__(self, serve: Serve, every: float) -> None:
        self.output, theirs = os.pipe()
        told, self.input = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            with suppress(BaseException):
                os.close(self.output)
                os.close(self.input)
                end_with(parent)
                let_go((told, theirs))
                serve(every, told, theirs)
            os._exit(0)
        os.close(theirs)
        os.close(told)
        # One that hangs does not empty it.
        os.set_blocking(self.input, False)
        self.lines = Lines(self.output)
        self.left: list[Told] = []
        self.failed = False
        self.hello: dict[str, Any] = {"why": "NVIDIA's library does not answer", "why_smi": "", "lacks": {}}
        self.wait("hello", SLOW, self.left)
        if self.failed:
            self.hello |= dict.fromkeys(("why", "why_smi"), "NVIDIA's library fails")
        if not self.hello.get("serves"):
            self.end()

    def heard(self) -> list[Told]:
        """What was told since. Raises OSError where it has ended."""
        told: list[Told] = []
        for line in self.lines.read():
            kind, values = json.loads(line)
            if kind == "hello":
                self.hello = values
            told.append((kind, values))
        return told

    def wait(self, kind: str, seconds: float, told: list[Told]) -> bool:
        """Whether something was told within so many seconds. What else is told meanwhile is added to `told`."""
        until = time.monotonic() + seconds
        try:
            while self.output >= 0 and (left := until - time.monotonic()) > 0:
                if select.select([self.output], [], [], left)[0]:
                    told += self.heard()
                if any(each == kind for each, _ in told):
                    return True
        except OSError:
            self.failed = True
        return False

    def ask(self, word: str) -> None:
        """Have it tell something now: `count` or `apps`."""
        with suppress(OSError):
            if self.output >= 0:
                os.write(self.input, word.encode() + b"\n")

    def end(self) -> None:
        """Have it gone. One that the driver holds fast is not waited for."""
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
    """The driver's own program, which costs more: asked which fields it knows, then running until this ends."""

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
        code, said = self.ask("--help-query-gpu")
        known = set(re.findall(r'"([a-z0-9_.]+)"', said))
        if not known:
            self.why = said.strip().partition("\n")[0][:200] or f"nvidia-smi ended with {code}"
            return
        self.fields, names = self.chosen(STREAMED, known)
        self.standing, standing = self.chosen(STANDING, known)
        code, said = self.ask(f"--query-gpu={','.join(standing)}", "--format=csv,noheader,nounits")
        lines = said.splitlines()[:16]
        if code or not lines:
            self.why = (lines or [f"nvidia-smi ended with {code}"])[0][:200]
            return
        self.cards = lines
        self.query = [self.program, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]

    def chosen(self, wished: Mapping[str, tuple[str, ...]], known: set[str]) -> tuple[list[str], list[str]]:
        """Our names of what can be asked, and the driver's."""
        found = {key: next((name for name in names if name in known), "") for key, names in wished.items()}
        return [key for key, name in found.items() if name], [name for name in found.values() if name]

    def ask(self, *arguments: str) -> tuple[int, str]:
        """What it says to a question. A driver that hangs is not waited for."""
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
        return 124, "nvidia-smi does not answer"

    def start(self, every: float) -> None:
        """Have it say how all cards are, again and again. To a terminal it says each line at once."""
        if self.why:
            return
        self.output, theirs = pty.openpty()
        self.lines = Lines(self.output)
        parent, command = os.getpid(), [*self.query, "-lms", str(max(20, round(every * 1000)))]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, preexec_fn=lambda: end_with(parent)
        )
        os.close(theirs)

    def heard(self) -> list[Told]:
        """What it says of cards, and the first of what else it says. Raises OSError where it has ended."""
        told: list[Told] = []
        for line in self.lines.read():
            if line.count(",") == len(self.fields) - 1:
                told.append(("gpu", {"csv": line[:1024]}))
            elif line and self.complaints < 5:
                self.complaints += 1
                told.append(("said", {"text": line[:200]}))
        return told

    def end(self) -> None:
        """Have it gone. One that the driver holds fast is not waited for."""
        if self.process:
            self.process.kill()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)
        if self.output >= 0:
            os.close(self.output)
            self.output = -1


class Tellers:
    """All who tell of cards. nvidia-smi is asked where the library does not tell how they are."""

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

    def start(self, every: float) -> list[Told]:
        """Begin, with what the library has told by now."""
        if self.smi:
            self.smi.start(every)
        return [each for each in self.library.left if each[0] != "hello"]

    @property
    def running(self) -> dict[int, Any]:
        """Those that tell something, by the descriptors at which they do."""
        return {each.output: each for each in (self.library, self.smi) if each and each.output >= 0}

    @property
    def pids(self) -> list[int]:
        """Their processes."""
        smi = self.smi.process.pid if self.smi and self.smi.output >= 0 else 0
        return [pid for pid in (self.library.pid if self.library.output >= 0 else 0, smi) if pid]

    def end(self) -> None:
        """Have them gone."""
        for each in list(self.running.values()):
            each.end()


"""How many requests a server has, by its own figures."""

# For Python 3.10 and its standard library alone.
import re
import urllib.request
from pathlib import Path

BUSY = re.compile(
    r"^(?:llamacpp:requests_(?:processing|deferred)|vllm:num_requests_(?:running|waiting))\S* ([0-9.]+)", re.MULTILINE
)


def in_flight(metrics: list[str], key: str) -> int | None:
    """Requests that a server answers or lets wait, by all that it tells at these URLs; None where it does not say.

    One that has several models in turn tells of that which is loaded, and refuses the others.
    """
    told = [count for url in metrics if (count := counted(url, key)) is not None]
    return sum(told) if told else None


def counted(url: str, key: str) -> int | None:
    """What it says at one of them."""
    request = urllib.request.Request(url)
    try:
        if key:
            request.add_header("Authorization", "Bearer " + Path(key).read_text(encoding="utf-8").strip())
        # No proxy: this host is asked.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=3) as answer:
            said = answer.read(1 << 20).decode(errors="replace")
    except (OSError, ValueError):
        return None
    found = BUSY.findall(said)
    return round(sum(float(number) for number in found)) if found else None


"""What a host's kernel tells of a server and of what is around it: files and figures, as they are."""

# For Python 3.10 and its standard library alone. `templates/bench/meter.py` comes after it, in the same program.
import os
import platform
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

PROC, SYS = Path("/proc"), Path("/sys")
TICKS = os.sysconf("SC_CLK_TCK")
FIRST_NAMESPACE = "pid:[4026531836]"
"""Of processes: the driver knows those of this one alone."""


def text(path: Path) -> str:
    """What a file of the kernel says; empty where it says nothing."""
    try:
        with path.open("rb") as file:
            return file.read(1 << 18).decode(errors="replace").strip()
    except OSError:
        return ""


def figure(path: Path) -> int | None:
    """A number that a file of the kernel says."""
    said = text(path)
    return int(said) if said.lstrip("-").isdigit() and len(said) < 24 else None


class Rapl:
    """What the processor counts of its own energy, by package."""

    def __init__(self) -> None:
        self.files: dict[str, Path] = {}
        self.ranges: dict[str, int] = {}
        self.why = ""
        zones = sorted(SYS.glob("class/powercap/*rapl*:*"))
        for zone in zones:
            # What is below a package is a part of it.
            if re.fullmatch(r"package-\d+", text(zone / "name")) and zone.name.count(":") == 1:
                most = figure(zone / "max_energy_range_uj")
                if figure(zone / "energy_uj") is None:
                    self.why = "its counter may not be read"
                elif most:
                    self.files[zone.name], self.ranges[zone.name] = zone / "energy_uj", most
        if not self.files:
            self.why = self.why or ("it has no packages" if zones else "absent")

    def energy(self) -> dict[str, int]:
        """Microjoules, which begin at 0 again after the range."""
        return {name: said for name, file in self.files.items() if (said := figure(file)) is not None}


class Server:
    """The processes of what is measured: those of its group, or else its first one and that one's children."""

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
        """Their numbers, the first one's first; none where that one is gone."""
        if not (PROC / str(self.pid)).exists():
            return []
        said = text(self.group / "cgroup.procs") if self.group else ""
        found = {int(each) for each in said.split()[:4096]} or self.family()
        return [self.pid, *sorted(found - {self.pid, 0})]

    def family(self) -> set[int]:
        """It and its children's children."""
        found, left = {self.pid}, [self.pid]
        while left and len(found) < 4096:
            for task in (PROC / str(left.pop()) / "task").glob("*/children"):
                new = {int(each) for each in text(task).split()} - found
                found |= new
                left += new
        return found

    def figures(self) -> dict[str, int]:
        """What all of them hold and have done: bytes, microseconds, faults. Nothing where they are gone."""
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
        # Processes that have ended are in the group's own figure.
        if total and self.group and (used := re.match(r"usage_usec (\d+)", text(self.group / "cpu.stat"))):
            total["cpu"] = int(used[1])
        if total and self.peak and (peak := figure(self.peak)) is not None:
            total["peak"] = peak
        return total


def stat(pid: int) -> list[str] | None:
    """The fields of a process from its state on, as /proc has them."""
    said = text(PROC / str(pid) / "stat")
    return said.rpartition(") ")[2].split() if ") " in said else None


def cpu(fields: list[str]) -> int:
    """Microseconds that a process has computed."""
    return (int(fields[11]) + int(fields[12])) * 1_000_000 // TICKS


def busy() -> int:
    """Microseconds that all processors have computed, since the boot: guests are in it, and waiting is not."""
    with (PROC / "stat").open() as file:
        user, nice, system, _idle, _wait, irq, soft, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + irq + soft) * 1_000_000 // TICKS


def running() -> dict[int, tuple[int, str]]:
    """What every process has computed by now, and its name."""
    found: dict[int, tuple[int, str]] = {}
    for folder in PROC.glob("[0-9]*"):
        if len(found) < 65536 and (fields := stat(int(folder.name))) is not None:
            found[int(folder.name)] = (cpu(fields), text(folder / "comm"))
    return found


def unit_of(pid: int) -> str:
    """The unit or container that a process is of."""
    paths = [line.rpartition(":")[2] for line in text(PROC / str(pid) / "cgroup").splitlines()]
    return next((path.rpartition("/")[2] for path in paths if path.endswith(".service") or "docker" in path), "")


def temperature() -> Path | None:
    """The file of the processor's temperature, in thousandths of a degree."""
    for folder in sorted(SYS.glob("class/hwmon/hwmon*")):
        if text(folder / "name") in ("k10temp", "zenpower", "coretemp", "cpu_thermal"):
            return folder / "temp1_input"
    for folder in sorted(SYS.glob("class/thermal/thermal_zone*")):
        if text(folder / "type") in ("x86_pkg_temp", "cpu-thermal", "cpu_thermal"):
            return folder / "temp"
    return None


def clocks(cores: int) -> list[Path]:
    """The files of processors' clocks, of sixteen at most: each is a question to that processor."""
    files = [SYS / f"devices/system/cpu/cpu{number}/cpufreq/scaling_cur_freq" for number in range(cores)]
    there = [file for file in files if file.exists()]
    return there[:: -(-len(there) // 16) or 1]


def on_battery() -> bool | None:
    """Whether the machine runs on one; None where it has none."""
    found: bool | None = None
    for folder in sorted(SYS.glob("class/power_supply/*")):
        # A mouse has a battery, too.
        if text(folder / "type") == "Battery" and text(folder / "scope") != "Device":
            found = bool(found) or text(folder / "status") == "Discharging"
    return found


def listens(port: int, pids: list[int]) -> bool | None:
    """Whether one of these processes listens on a port; None where nobody does."""
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
    """This host, and the server on it that is measured: `pid` is its first process, 0 where it does not run."""

    def __init__(self, asked: dict[str, Any], in_flight: Any, pid: int, spec: str, virtual: str) -> None:
        self.asked, self.in_flight, self.rapl = asked, in_flight, Rapl()
        self.server = Server(pid) if pid else None
        self.spec, self.virtual = spec or self.given("LLAMAHERD_SPEC"), virtual
        self.celsius, self.clocks = temperature(), clocks(os.cpu_count() or 1)
        self.before, self.since = running(), time.monotonic()

    def given(self, name: str) -> str:
        """A variable that the server was started with."""
        said = text(PROC / str(self.server.pid) / "environ") if self.server else ""
        return next((each[len(name) + 1 :] for each in said.split("\0") if each.startswith(f"{name}=")), "")

    def standing(self) -> dict[str, Any]:
        """What stays as it is."""
        cpu = dict(line.split("\t: ") for line in text(PROC / "cpuinfo").splitlines() if line.count("\t: ") == 1)
        cpu = {name.strip(): said for name, said in cpu.items()}
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
        """How the host and the server are now."""
        said = memory()
        clocks = [each for file in self.clocks if (each := figure(file)) is not None]
        celsius = figure(self.celsius) if self.celsius else None
        return {
            "cpu": busy(),
            "server": self.server.figures() if self.server else {},
            "available": said.get("MemAvailable"),
            "swap": said.get("SwapTotal", 0) - said.get("SwapFree", 0),
            "mhz": round(sum(clocks) / len(clocks) / 1000) if clocks else None,
            "celsius": celsius / 1000 if celsius is not None else None,
        }

    def look(self, mine: list[int], apps: list[list[Any]] | None) -> dict[str, Any]:
        """Who else is here: on processors since the last time, and on cards, as the driver knows processes."""
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
            "apps": known and [[uuid, pid, size, *self.who(pid)] for uuid, pid, size in known],
            "listens": listens(self.asked["port"], ours),
            "in_flight": self.in_flight(self.asked["metrics"], self.asked["key"]),
            "load": os.getloadavg()[0],
            "battery": on_battery(),
        }

    def who(self, pid: int) -> list[str]:
        """A process by its name and its unit."""
        return [text(PROC / str(pid) / "comm")[:40], unit_of(pid)[:100]]

    def computed(self, pid: int) -> int:
        """Microseconds that a process has computed."""
        fields = stat(pid)
        return cpu(fields) if fields else 0


def memory() -> dict[str, int]:
    """/proc/meminfo, in bytes."""
    lines = [line.split() for line in text(PROC / "meminfo").splitlines()]
    return {name.rstrip(":"): int(size) << 10 for name, size, *_ in lines if size.isdigit()}


"""Watches a host while a server on it is measured: a line of JSON for each reading, until nobody listens any more.

It ends when its input does, after `lasts` seconds, or when nothing was said to it for `silence` seconds. It is told
lines: `ping N`, `mark NAME`, `look`. Nothing that it starts outlives it, whatever kills it.
"""

# For Python 3.10 and its standard library alone. What reads the host and who tells of cards come before it.
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

TOLD = 3
"""The descriptor that it is told something on: its program came on stdin."""
LONGEST = 4096
"""Bytes of what it is told at once."""
FIRST = 15
"""Seconds that cards may take to tell something, before we look without it."""
ANSWER, LAST = 3.0, 0.5
"""Seconds that cards may take for an answer; and for the last one, when nobody may be left to hear it."""
LATE = 10
"""Seconds that it may end later than it was to: a look takes some."""


class EndedError(Exception):
    """It is over, and why."""


class Meter:
    """What is said, and when."""

    def __init__(self, asked: dict[str, Any], here: Any, tellers: Any) -> None:
        self.asked, self.here, self.left = asked, here, int(asked["most"])
        self.tellers = tellers
        self.heard, self.told = time.monotonic(), b""
        self.seen = False

    def say(self, kind: str, **values: Any) -> None:
        """One line. What nobody could keep any more ends it."""
        line = json.dumps({"k": kind, "t": round(time.monotonic(), 5), **values}, separators=(",", ":")) + "\n"
        self.left -= len(line)
        if self.left < 0:
            raise EndedError("full")
        data = line.encode()
        while data:
            data = data[os.write(1, data) :]

    def run(self) -> None:
        """Until it is over. Why is the last line."""
        why = "error"
        try:
            every = self.asked["every"]
            self.say("hello", wall=time.time(), every=every, **self.tellers.standing, **self.here.standing())
            self.hand_on(self.tellers.start(every))
            self.watch()
        except EndedError as ended:
            why = str(ended)
            self.left += LONGEST
            with suppress(OSError, EndedError):
                # What was just measured may have ended after the last reading.
                self.tellers.library.ask("count")
                self.count()
                self.say("host", own=self.own(), **self.here.figures())
                self.wait("now", LAST)
        except BrokenPipeError:
            return
        finally:
            own = self.own()
            self.tellers.end()
        self.left += LONGEST
        with suppress(OSError):
            self.say("bye", why=why, own=own)

    def watch(self) -> None:
        """Read what is due, hear what is said."""
        every = self.asked["every"] if self.here.rapl.ranges else max(1.0, self.asked["every"])
        began = time.monotonic()
        ticks, looked = 0, False
        while True:
            now = time.monotonic()
            if now - began > self.asked["lasts"]:
                raise EndedError("time")
            if now - self.heard > self.asked["silence"]:
                raise EndedError("silence")
            if now >= began + ticks * every:
                if self.here.rapl.ranges:
                    self.count()
                if ticks % max(1, round(1 / every)) == 0:
                    self.say("host", own=self.own(), **self.here.figures())
                # What came too late is not made up for.
                ticks = int((time.monotonic() - began) / every) + 1
            if not looked and now - began > (1 if self.seen or not self.tellers.running else FIRST):
                looked = True
                self.look()
            self.hear(max(0.0, began + ticks * every - time.monotonic()))

    def count(self, **mark: str) -> None:
        """The counters of the processor. Those of cards are told beside it."""
        before = time.monotonic()
        counters = self.here.rapl.energy()
        self.say("count", **{**mark, "mj": {}, "uj": counters, "t": round((before + time.monotonic()) / 2, 5)})

    def hear(self, seconds: float) -> None:
        """Wait so long for what is told of cards, and for what is asked."""
        running = self.tellers.running
        for pipe in select.select([TOLD, *running], [], [], seconds)[0]:
            if pipe == TOLD:
                self.answer()
                continue
            try:
                self.hand_on(running[pipe].heard())
            except OSError:
                running[pipe].end()
                self.say("gone")

    def hand_on(self, told: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Say what was told of cards."""
        for kind, values in told:
            if kind != "apps":
                self.seen = self.seen or kind == "gpu"
                self.say("count" if kind == "now" else kind, **values)

    def wait(self, kind: str, seconds: float) -> Any:
        """What the library tells when it is asked; None where it does not in time."""
        told: list[tuple[str, dict[str, Any]]] = []
        came = self.tellers.library.wait(kind, seconds, told)
        self.hand_on(told)
        return next(values for each, values in told if each == kind) if came else None

    def answer(self) -> None:
        """Do what is asked. Nobody at the other end any more ends it."""
        piece = os.read(TOLD, LONGEST)
        if not piece:
            raise EndedError("nobody")
        self.heard = time.monotonic()
        *lines, self.told = (self.told + piece).split(b"\n")
        if len(self.told) > LONGEST:
            raise EndedError("nonsense")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "ping":
                self.say("pong", n=rest[:40])
            elif word == "mark":
                self.tellers.library.ask("count")
                self.wait("now", LAST)
                self.count(mark=rest[:80])
                self.say("host", own=self.own(), **self.here.figures())
            elif word == "look":
                self.look()

    def look(self) -> None:
        """What costs more, and is asked at the beginning and on demand."""
        self.tellers.library.ask("apps")
        told = self.wait("apps", ANSWER) or {"apps": None}
        self.say("look", **self.here.look([os.getpid(), *self.tellers.pids], told["apps"]))

    def own(self) -> int:
        """Microseconds that this and what it has started have computed."""
        times = os.times()
        ours = times.user + times.system + times.children_user + times.children_system
        running: int = sum(map(self.here.computed, self.tellers.pids))
        return round(ours * 1_000_000) + running


def main(asked: dict[str, Any], here: Any, tellers: Callable[[], Any]) -> None:
    """Watch, for `asked["lasts"]` seconds at most: also where a pipe that nobody empties holds it up."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(each, signal.SIG_DFL)
    signal.alarm(int(asked["lasts"]) + LATE)
    sys.stdout.flush()
    Meter(asked, here, tellers()).run()


end_with_parent()
asked = json.loads(sys.argv[1])
main(asked, Here(asked, in_flight, int(sys.argv[2]), *sys.argv[3:5]), lambda: Tellers(serve, asked["every"]))
END
