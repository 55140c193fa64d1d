"""What NVIDIA's library tells of cards: what they have spent, and who is on them."""

# For Python 3.10 and its standard library alone.
import ctypes
from contextlib import suppress
from typing import Any

# Signatures are those of nvml.h; a process is its `nvmlProcessInfo_v2_t`.
CARD, FIGURE, LARGE = ctypes.c_void_p, ctypes.c_uint, ctypes.c_ulonglong
MOST_CARDS, MOST_APPS, UNKNOWN_MEMORY = 16, 64, 2**64 - 1
NVML = ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1")


class App(ctypes.Structure):
    """A process on a card, as NVML tells of it."""

    _fields_ = (("pid", FIGURE), ("memory", LARGE), ("instance", FIGURE), ("compute", FIGURE))


class Nvml:
    """NVIDIA's library: counters of energy, and who is on which card. `lacks`: by card, why it has no counter."""

    def __init__(self) -> None:
        self.cards: dict[str, Any] = {}
        self.lacks: dict[str, str] = {}
        self.why = ""
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

    def call(self, name: str, *arguments: Any) -> int:
        """The code that a function ends with; 13 for one that the library lacks."""
        function = getattr(self.library, name, None)
        if function is None:
            return 13
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
            card, name = CARD(), ctypes.create_string_buffer(96)
            if self.call("nvmlDeviceGetHandleByIndex_v2", FIGURE(number), ctypes.pointer(card)):
                continue
            if not self.call("nvmlDeviceGetUUID", card, name, FIGURE(96)):
                self.cards[name.value.decode(errors="replace")] = card
        for uuid, card in self.cards.items():
            if code := self.call("nvmlDeviceGetTotalEnergyConsumption", card, ctypes.pointer(LARGE())):
                self.lacks[uuid] = self.words(code)

    def energy(self) -> dict[str, int]:
        """Millijoules since the driver was loaded, by card."""
        found = {}
        for uuid, card in self.cards.items():
            spent = LARGE()
            if uuid not in self.lacks and not self.call(
                "nvmlDeviceGetTotalEnergyConsumption", card, ctypes.pointer(spent)
            ):
                found[uuid] = spent.value
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
                if code != 13:
                    break
            if code:
                return None
            told = apps[: count.value]
            found += [[uuid, app.pid, None if app.memory == UNKNOWN_MEMORY else app.memory] for app in told]
        return found
