#!/usr/bin/env -S python3 -IS
"""Hold a server to its GPUs: two programs of its unit, in one file that is shipped under both names.

    gpu-gate SECONDS CARD...
        Wait until the GPUs respond, for so many seconds at most; otherwise print the reason and exit with 1. A server
        that finds no GPU would serve from the CPU without an error.
    gpu-check every|one LOG PIDS CARD...
        Exit with 1 if the server is not on its GPUs. A server that could not start CUDA reports it in a line of its log
        and serves from the CPU, healthy, at a tenth of the speed (ggml-org/llama.cpp#27923). PIDS are its processes, in
        one word; LOG is the command that shows its log. `one`: of several GPUs it may use a single one.

A CARD is a UUID, a PCI address as nvidia-smi prints it, a number in the order of addresses, or `any`: any GPU of the
host, a different one for each `any`.
"""

# Shipped alone: for Python 3.10 and its standard library, without a module of llamaherd.
from __future__ import annotations

import errno
import os
import pwd
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")
SMI_SECONDS = 20.0
"""A driver that hangs must not hang the start."""
NOT_STARTED, TIMED_OUT = 127, 124
USAGE = "usage: gpu-gate SECONDS CARD... | gpu-check every|one LOG PIDS CARD..."
_MOST_OUTPUT = 1 << 20
_MOST_LINE = 500
_WSL_PROGRAMS = "/usr/lib/wsl/lib"
"""Under WSL the driver belongs to Windows, and its programs are in no folder of PATH."""
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The first PID namespace: its inode is the same in every Linux."""
_MODULES = {
    "nvidiactl": ("nvidia", ("nvidia", "nvidia-frontend", "nvidiactl")),
    "nvidia-uvm": ("nvidia_uvm", ("nvidia-uvm",)),
}
"""The module of a device, and the names that it may have in /proc/devices."""


class NotReadyError(Exception):
    """A GPU cannot be used; contains the reason. `final`: waiting does not help."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


def run_smi(*arguments: str) -> tuple[int, str]:
    """Return the exit code of nvidia-smi and what it printed: NOT_STARTED without it, TIMED_OUT after SMI_SECONDS."""
    path = f"{os.environ.get('PATH', os.defpath)}:{_WSL_PROGRAMS}"
    try:
        process = subprocess.Popen(
            ["nvidia-smi", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": path, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError:
        return NOT_STARTED, ""
    assert process.stdout
    output, until = b"", time.monotonic() + SMI_SECONDS
    with process.stdout as pipe, suppress(subprocess.TimeoutExpired):
        while select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0] and len(output) < _MOST_OUTPUT:
            piece = os.read(pipe.fileno(), 1 << 16)
            if not piece:
                return process.wait(max(0.0, until - time.monotonic())), output.decode(errors="replace")
            output += piece
    # Do not wait for the process: if it is stuck in the kernel, it does not end.
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    return TIMED_OUT, output.decode(errors="replace")


def list_gpus() -> list[tuple[str, str]]:
    """Return PCI address and UUID of each GPU, in the order of addresses."""
    _, text = run_smi("--query-gpu=pci.bus_id,uuid", "--format=csv,noheader")
    lines = sorted(line for line in text.splitlines() if ", GPU-" in line)
    return [(line.partition(", ")[0], line.partition(", ")[2]) for line in lines]


def in_wsl() -> bool:
    """Return whether the kernel is that of WSL."""
    return "microsoft" in _read(ROOT / "proc/sys/kernel/osrelease").lower()


def gate(seconds: int, cards: Sequence[str]) -> int:
    """Wait until all GPUs respond. Return the exit code."""
    # The monotonic clock: the clock of the day may be set during the boot.
    began, printed = time.monotonic(), ""
    while True:
        try:
            require_gpus(cards)
        except NotReadyError as error:
            if error.final:
                return fail(str(error))
            if time.monotonic() - began >= seconds:
                return fail(f"{error} (waited {seconds} s)")
            if str(error) != printed:
                printed = str(error)
                print(f"waiting: {error}", flush=True)
        else:
            return 0
        time.sleep(1)


def require_gpus(cards: Sequence[str]) -> None:
    """Raise NotReadyError where a device cannot be opened, or a GPU does not respond."""
    for name in ("dxg",) if in_wsl() else tuple(_MODULES):
        node = ROOT / "dev" / name
        try:
            with node.open("rb", buffering=0):
                pass
        except OSError as error:
            raise _closed(node, error) from None
    numbers = [int(card) + 1 for card in cards if _is_number(card)]
    for card in cards:
        if card != "any" and not _is_number(card):
            code, text = run_smi("-i", card, "--query-gpu=uuid", "--format=csv,noheader")
            if not text.startswith("GPU-"):
                raise _silent(f"card {card}", code, text)
    needed = max([0, cards.count("any"), *numbers])
    if needed and (found := len(list_gpus())) < needed:
        code, text = run_smi("-L")
        if text.startswith("GPU "):
            raise NotReadyError(f"there are {found} cards, and at least {needed} are declared")
        raise _silent("card", code, text)


def _closed(node: Path, error: OSError) -> NotReadyError:
    """Return why a device cannot be opened."""
    if error.errno == errno.ENOENT:
        if node.name not in _MODULES:
            return NotReadyError(
                f"there is no {node}: WSL gives this distribution no card, see gpuSupport in .wslconfig"
            )
        module, names = _MODULES[node.name]
        lines = [line.split() for line in _read(ROOT / "proc/devices").splitlines()]
        if any(len(line) == 2 and line[0].isdigit() and line[1] in names for line in lines):
            command = "`nvidia-modprobe -c 255 -c 0; nvidia-modprobe -u -c 0` as root creates it"
            return NotReadyError(f"there is no {node}, although its module is loaded: {command}")
        return NotReadyError(f"the module {module} is not loaded: `modprobe {module}` as root prints the reason")
    if error.errno == errno.EPERM:
        # systemd resolves the devices that a unit may open once, when the unit starts.
        late = f"{node} came after this start had begun, so that it may not be opened: the next start may"
        return NotReadyError(late, final=True)
    return NotReadyError(f"{node} cannot be opened by {_user()}: {error.strerror}")


def _silent(what: str, code: int, text: str) -> NotReadyError:
    """Return why nvidia-smi lists no such GPU."""
    if "version mismatch" in text:
        reason = "the driver's module that is loaded is not of the version of its libraries: reboot"
        return NotReadyError(reason, final=True)
    if code == NOT_STARTED:
        return NotReadyError("there is no nvidia-smi, which NVIDIA's driver brings along", final=True)
    if "No devices were found" in text:
        return NotReadyError(f"there is no {what}: `nvidia-smi -L` shows those that are there")
    if not text:
        return NotReadyError(f"nvidia-smi prints nothing about {what} within {SMI_SECONDS:.0f} s")
    return NotReadyError(f"nvidia-smi cannot query {what}: {first_line(text)}")


def check(how: str, log: str, words: str, cards: Sequence[str]) -> int:
    """Check that processes are on their GPUs, if the host shows that. Return the exit code."""
    pids = words.replace(",", " ").split()
    for pid in pids:
        if not (_is_number(pid) and (ROOT / "proc" / pid).is_dir()):
            return fail(f"process {pid} is gone: see `{log}`")
    # A server of several models runs each in a process of its own.
    pids += [child for pid in pids for child in _children(pid)]
    gpus = list_gpus()
    on = listed_on(pids)
    if on is None:
        on = opened_by(pids, gpus)
    if on is None:
        shown = f"nvidia-smi prints {first_line(run_smi('-L')[1])}"
        print(f"whether process {' '.join(pids)} is on its cards is unknown here: {shown}", file=sys.stderr)
        return 0
    taken: list[str] = []
    missing: list[str] = []
    for card in cards:
        uuid = next((each for each in on if each not in taken), "") if card == "any" else _uuid(card, gpus)
        if uuid in on:
            taken.append(uuid)
        else:
            missing.append(card)
    if not missing or (how == "one" and taken):
        return 0
    if on:
        instead = f"card {' '.join(missing)}, but on {' '.join(sorted(set(on)))}"
        return fail(f"the server is not on {instead}: does CUDA see that card? `{log} | grep -i cuda` shows it")
    reason = f"`{log} | grep -i cuda` shows why CUDA did not start"
    return fail(f"the server is on no card, and would serve from the CPU: {reason}")


def listed_on(pids: Sequence[str]) -> list[str] | None:
    """Return the GPUs that the driver lists processes on; None if its list has other process ids than this host."""
    # The driver has no PID namespaces (NVIDIA/nvidia-docker#179, #1483): its ids are those of the first namespace.
    # Under WSL they are those of Windows.
    if _link(ROOT / "proc/self/ns/pid") != _FIRST_NAMESPACE or in_wsl():
        return None
    code, text = run_smi("--query-compute-apps=pid,gpu_uuid", "--format=csv,noheader")
    if code:
        return None
    found, unclear = [], False
    for line in filter(None, text.splitlines()):
        pid, _, uuid = (field.strip() for field in line.partition(","))
        if not (_is_number(pid) and uuid.startswith("GPU-")):
            unclear = True
        elif pid in pids:
            found.append(uuid)
    return None if unclear and not found else found


def opened_by(pids: Sequence[str], gpus: Sequence[tuple[str, str]]) -> list[str] | None:
    """Return the GPUs whose devices processes hold open; None if that cannot be read.

    This is less certain than the driver's list: a process that counts GPUs opens all of them for a moment. CUDA holds
    nvidia-uvm open as well.
    """
    held = _held(pids)
    if held is None:
        return None
    if in_wsl():
        # Under WSL, one device stands for all GPUs.
        return [uuid for _, uuid in gpus] if "/dev/dxg" in held else []
    cards = sorted((ROOT / "proc/driver/nvidia/gpus").glob("*/information"))
    if not cards:
        return None
    return [uuid for card in cards for uuid in _opened(card, held, gpus)] if "/dev/nvidia-uvm" in held else []


def _opened(information: Path, held: Iterable[str], gpus: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the UUID of the GPU that a file of the driver describes, if its device is held open."""
    lines = (line.partition(":") for line in _read(information).splitlines())
    minor = next((value.strip() for key, _, value in lines if key == "Device Minor"), "")
    if f"/dev/nvidia{minor}" in held:
        # nvidia-smi prints the domain with eight digits, the kernel with four.
        address = information.parent.name.lower()
        yield from (uuid for pci, uuid in gpus if pci.lower().endswith(address))


def _held(pids: Iterable[str]) -> set[str] | None:
    """Return the files that processes hold open; None if they cannot be read for any process."""
    held: set[str] = set()
    readable = False
    for pid in pids:
        with suppress(OSError):
            files = [*(ROOT / "proc" / pid / "fd").iterdir()]
            readable = True
            held.update(map(_link, files))
    return held if readable else None


def _children(pid: str) -> Iterator[str]:
    for file in sorted((ROOT / "proc" / pid / "task").glob("*/children")):
        yield from _read(file).split()


def _uuid(card: str, gpus: Sequence[tuple[str, str]]) -> str:
    """Return the UUID of a GPU; empty where there is none."""
    if _is_number(card):
        return gpus[int(card)][1] if int(card) < len(gpus) else ""
    names = (uuid for pci, uuid in gpus if card.lower() in (pci.lower(), uuid.lower()))
    return next(names, "")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _read(path: Path) -> str:
    """Return a file's text; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_OUTPUT).decode(errors="replace")
    except OSError:
        return ""


def _link(path: Path) -> str:
    """Return the target of a link; empty if it cannot be read."""
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def first_line(text: str) -> str:
    """Return the first line of a text that is not empty."""
    return next(filter(None, text.splitlines()), "")[:_MOST_LINE]


def fail(reason: str) -> int:
    """Print the reason of a failure. Return the exit code."""
    print(reason, file=sys.stderr)
    return 1


def main(name: str, arguments: Sequence[str]) -> int:
    """Run the program of this name. Return its exit code."""
    match name, *arguments:
        case "gpu-gate", seconds, *cards if _is_number(seconds):
            return gate(int(seconds), cards)
        case "gpu-check", ("every" | "one") as how, log, pids, *cards:
            return check(how, log, pids, cards)
    return fail(USAGE)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[0]).name, sys.argv[1:]))
