"""A stand-in for NVML as ctypes sees it, with the GPUs of nvidia-smi's stand-in: only the shared library is faked.

Run as a program, it runs another one with that library: `nvml.py PROGRAM ARGUMENTS...`. What its functions answer is
what nvml.h says of them. `fan_range` of a GPU is what its fans take; `fan_errors` has the codes that functions end
with on it, by name, or by name and fan, and `fan_at` how its fans run, where that is not what they are told.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as all the rest
    from typing import Any

    Card = dict[str, Any]

INVALID_ARGUMENT, NOT_FOUND, NOT_LOADED = 2, 6, 9
WORDS = {3: "Not Supported", 4: "Insufficient Permissions", 6: "Not Found", 9: "Driver Not Loaded"}
OWN_SPEED = 30


class Function:
    """One function: what it does, and what the program says of its arguments, as of every function of a library."""

    def __init__(self, name: str, library: Library) -> None:
        self.name, self.library = name, library
        self.argtypes: Any = None
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """As the real one, if the program has said what goes in and what comes out."""
        assert self.argtypes is not None, self.name
        assert len(self.argtypes) == len(arguments), (self.name, arguments)
        if self.name == "nvmlErrorString":
            assert self.restype is ctypes.c_char_p
            return WORDS.get(arguments[0], "Unknown Error").encode()
        assert self.restype is ctypes.c_int
        return self.library.run(self.name, arguments)


class Library:
    """The library by its name; a function that `state["missing"]` names is not in it."""

    def __init__(self, name: str) -> None:
        assert name == "libnvidia-ml.so.1"
        self.file = Path(os.environ["FAKE_CARDS"])
        self.state: dict[str, Any] = json.loads(self.file.read_text())
        if self.state.get("missing") == name:
            raise OSError(f"{name}: cannot open shared object file: No such file or directory")

    def __getattr__(self, name: str) -> Function:
        """A function."""
        if name == self.state.get("missing"):
            raise AttributeError(name)
        return Function(name, self)

    def run(self, name: str, arguments: tuple[Any, ...]) -> int:
        """What it does; the code that it ends with."""
        cards: list[Card] = self.state["cards"]
        if name == "nvmlInit_v2":
            return NOT_LOADED if "broken" in self.state else 0
        if name == "nvmlDeviceGetHandleByUUID":
            found = [number for number, each in enumerate(cards) if each["uuid"].encode() == arguments[0]]
            if not found:
                return NOT_FOUND
            # A handle is an address, which is never null.
            arguments[1]._obj.value = found[0] + 1
            return 0
        card = cards[arguments[0].value - 1]
        errors = card.get("fan_errors", {})
        if code := errors.get(name, errors.get(" ".join([name, *map(str, arguments[1:2])]), 0)):
            return int(code)
        return self._of_card(name, card, *arguments[1:])

    def _of_card(self, name: str, card: Card, *arguments: Any) -> int:
        fans = card["fans"]
        if name == "nvmlDeviceGetNumFans":
            arguments[0]._obj.value = len(fans)
        elif name == "nvmlDeviceGetMinMaxFanSpeed":
            arguments[0]._obj.value, arguments[1]._obj.value = card.get("fan_range", (30, 100))
        elif arguments[0] >= len(fans):
            return INVALID_ARGUMENT
        elif name == "nvmlDeviceSetFanSpeed_v2":
            self._tell(card, arguments[0], arguments[1])
        elif name == "nvmlDeviceSetDefaultFanSpeed_v2":
            self._tell(card, arguments[0], None)
        else:
            speed = fans[arguments[0]] or OWN_SPEED
            arguments[1]._obj.value = card.get("fan_at", speed) if name == "nvmlDeviceGetFanSpeed_v2" else speed
        return 0

    def _tell(self, card: Card, fan: int, percent: int | None) -> None:
        """One fan is told; `changes` and `noted` are kept as by nvidia-smi's stand-in."""
        card["fans"][fan] = percent
        said = f"fan {fan} {percent or 'auto'}"
        self.state["changes"] = [*self.state.get("changes", []), said]
        note = Path(os.environ["RUNTIME_DIRECTORY"], card["uuid"])
        self.state["noted"] = [*self.state.get("noted", []), note.read_text().strip() if note.exists() else ""]
        self.file.write_text(json.dumps(self.state))


if __name__ == "__main__":
    vars(ctypes)["CDLL"] = Library
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
