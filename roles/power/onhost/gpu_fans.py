#!/usr/bin/env -S python3 -IS
"""Hold all fans of a GPU at one speed, or give them back to the driver: NVML can, and nvidia-smi cannot.

    gpu-fans UUID PERCENT   The speed stays when this has ended, as long as the driver keeps the GPU loaded.
    gpu-fans UUID auto      The driver's own control again.

It exits with 0 if all fans are set; 1 if not all of them are; 2 for other arguments; 3 if the GPU has no fans that can
be set, or there is no driver; 4 if the GPU takes no such speed. 3 and 4 have changed nothing.
"""

# Shipped alone: for Python 3.10 and its standard library, without a module of llamaherd. No callbacks: ctypes writes
# their code to executable memory, which the unit forbids.
from __future__ import annotations

import ctypes
import sys
import time

FAILED, MISUSED, NO_FANS, OUT_OF_RANGE = 1, 2, 3, 4

# Figures and signatures are those of nvidia-ml-py 13.615.71, NVIDIA's own binding, and of nvml.h.
NOT_SUPPORTED, FUNCTION_NOT_FOUND = 3, 13
CARD, FIGURE, FIGURE_READ = ctypes.c_void_p, ctypes.c_uint, ctypes.POINTER(ctypes.c_uint)
SIGNATURES = {
    "nvmlInit_v2": [],
    "nvmlDeviceGetHandleByUUID": [ctypes.c_char_p, ctypes.POINTER(CARD)],
    "nvmlDeviceGetNumFans": [CARD, FIGURE_READ],
    "nvmlDeviceGetMinMaxFanSpeed": [CARD, FIGURE_READ, FIGURE_READ],
    "nvmlDeviceSetFanSpeed_v2": [CARD, FIGURE, FIGURE],
    "nvmlDeviceSetDefaultFanSpeed_v2": [CARD, FIGURE],
    "nvmlDeviceGetTargetFanSpeed": [CARD, FIGURE, FIGURE_READ],
    "nvmlDeviceGetFanSpeed_v2": [CARD, FIGURE, FIGURE_READ],
}

SETTLING = 10
"""Seconds in which fans must reach their speed, so that the next query returns it."""

NEAR = 3
"""Percentage points by which a fan's speed may differ from the speed that it is set to."""


class RefusedError(Exception):
    """Fans are not set; contains the exit code and a sentence."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class NvmlError(Exception):
    """A function of NVML failed; contains its name, its code and NVML's words for it."""

    def __init__(self, function: str, code: int, words: str) -> None:
        super().__init__(words)
        self.function, self.code = function, code


class Nvml:
    """NVIDIA's library, whose every return code is checked."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise RefusedError(NO_FANS, f"NVIDIA's driver is not installed here: {error}") from None
        try:
            self.call("nvmlInit_v2")
        except NvmlError as error:
            raise RefusedError(FAILED, f"NVIDIA's driver does not respond: {error}") from None

    def call(self, name: str, *arguments: object) -> None:
        """Call a function. Raise NvmlError where it fails."""
        try:
            function = getattr(self.library, name)
        except AttributeError:
            raise NvmlError(name, FUNCTION_NOT_FOUND, "Function Not Found") from None
        function.argtypes, function.restype = SIGNATURES[name], ctypes.c_int
        code = function(*arguments)
        if code:
            report = self.library.nvmlErrorString
            report.argtypes, report.restype = [ctypes.c_int], ctypes.c_char_p
            raise NvmlError(name, code, (report(code) or b"").decode(errors="replace"))

    def read(self, name: str, *arguments: object) -> int:
        """Return the figure that a function writes."""
        figure = FIGURE()
        self.call(name, *arguments, ctypes.byref(figure))
        return figure.value


class Card:
    """A GPU, how many fans it has, and whether one was set."""

    def __init__(self, uuid: str) -> None:
        self.nvml, self.uuid, self.handle, self.touched = Nvml(), uuid, CARD(), False
        self.nvml.call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self.handle))
        self.fans = self.nvml.read("nvmlDeviceGetNumFans", self.handle)
        if not self.fans:
            raise NvmlError("nvmlDeviceGetNumFans", NOT_SUPPORTED, "Not Supported")

    def hold(self, percent: int) -> None:
        """Hold all fans at this speed. Raise RefusedError or NvmlError."""
        least, most = FIGURE(), FIGURE()
        self.nvml.call("nvmlDeviceGetMinMaxFanSpeed", self.handle, ctypes.byref(least), ctypes.byref(most))
        if not least.value <= percent <= most.value:
            words = f"card {self.uuid} takes fan speeds of {least.value} to {most.value} %, not {percent} %"
            raise RefusedError(OUT_OF_RANGE, words)
        for fan in range(self.fans):
            self.nvml.call("nvmlDeviceSetFanSpeed_v2", self.handle, fan, percent)
            self.touched = True
        targets = self.targets()
        if targets is not None and any(abs(target - percent) > NEAR for target in targets):
            raise RefusedError(FAILED, f"fans of card {self.uuid} are set to {shown(targets)}, not {percent} %")
        speeds = self.settled(percent)
        if targets is None and any(abs(speed - percent) > NEAR for speed in speeds):
            raise RefusedError(FAILED, f"fans of card {self.uuid} run at {shown(speeds)}, not at {percent} %")

    def give_back(self) -> None:
        """Let the driver control all fans again. Raise NvmlError."""
        for fan in range(self.fans):
            self.nvml.call("nvmlDeviceSetDefaultFanSpeed_v2", self.handle, fan)

    def targets(self) -> list[int] | None:
        """Return the speeds that fans are set to; None if they cannot be read."""
        try:
            return [self.nvml.read("nvmlDeviceGetTargetFanSpeed", self.handle, fan) for fan in range(self.fans)]
        except NvmlError as error:
            if error.code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                return None
            raise

    def settled(self, percent: int) -> list[int]:
        """Wait until fans run at this speed, or time is up. Return their speeds then."""
        until = time.monotonic() + SETTLING
        while True:
            speeds = [self.nvml.read("nvmlDeviceGetFanSpeed_v2", self.handle, fan) for fan in range(self.fans)]
            if all(abs(speed - percent) <= NEAR for speed in speeds) or time.monotonic() > until:
                return speeds
            time.sleep(0.5)


def shown(speeds: list[int]) -> str:
    """Return speeds as text."""
    return ", ".join(f"{speed} %" for speed in speeds)


def main(arguments: list[str]) -> int:
    """Set fans. Return the exit code."""
    uuid, speed = arguments if len(arguments) == 2 else ("", "")
    percent = int(speed) if speed.isascii() and speed.isdigit() and len(speed) <= 3 else 0
    if not uuid or not (speed == "auto" or 1 <= percent <= 100):
        print("gpu-fans UUID PERCENT, from 1 to 100, or gpu-fans UUID auto", file=sys.stderr)
        return MISUSED
    card: Card | None = None
    try:
        card = Card(uuid)
        if speed == "auto":
            card.give_back()
        else:
            card.hold(percent)
    except RefusedError as error:
        print(error, file=sys.stderr)
        return error.code
    except NvmlError as error:
        if error.code == NOT_SUPPORTED and not (card and card.touched):
            # Fans of servers and many laptops belong to the machine.
            print(f"card {uuid} has no fans that can be set", file=sys.stderr)
            return NO_FANS
        if error.code == FUNCTION_NOT_FOUND:
            print(f"NVIDIA's driver is too old to set fans: it has no {error.function}", file=sys.stderr)
            return FAILED
        print(f"{error.function} of card {uuid} failed: {error}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
