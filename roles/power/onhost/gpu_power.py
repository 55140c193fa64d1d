#!/usr/bin/env -S python3 -IS
"""Hold GPUs to the power limits, clocks and fan speeds of a table, and release what the table no longer contains.

    gpu-power hold TABLE
        TABLE has a line for each GPU: its name; its UUID, PCI address, or number in the order of addresses; watts;
        lowest,highest MHz; percent. `-` stands where nothing is declared.
    gpu-power release
        Give all GPUs that are held their defaults back.

No query returns which clocks are locked. So there is a note for each GPU, named by its UUID: limit, clocks, persistence
and fans. It is unknown (?) while the GPU is changed, so that a run which is killed leaves no wrong note.
"""

# Shipped alone: for Python 3.10 and its standard library, without a module of llamaherd.
from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SECONDS = 60.0
"""A driver that hangs must not hang the boot."""
NOT_STARTED, TIMED_OUT = 127, 124
NO_FANS, OUT_OF_RANGE = 3, 4
"""Exit codes of gpu-fans that have changed nothing."""
UNKNOWN, NONE = "?", "-"
USAGE = "gpu-power hold TABLE, or gpu-power release"
_FIELDS = "uuid,persistence_mode,power.limit,power.default_limit,power.min_limit,power.max_limit"
_MOST_OUTPUT = 1 << 20
_MOST_LINE = 500


@dataclass(frozen=True)
class Row:
    """A line of the table: a GPU and its limits; `-` where nothing is declared."""

    name: str
    at: str
    watts: str
    clocks: str
    fans: str


class Gpu:
    """A GPU, its present settings in whole watts, and the settings in its note."""

    def __init__(self, holder: Holder, name: str, uuid: str, fans: str) -> None:
        self.holder, self.name, self.uuid = holder, name, uuid
        self.note = holder.notes / uuid
        self.read()
        self.limit, self.clocks, self.persistence, self.fans = NONE, NONE, NONE, NONE
        if self.note.is_file():
            words = [*self.note.read_text(errors="replace").split(), "", "", "", ""]
            self.limit, self.clocks, self.persistence = (word or UNKNOWN for word in words[:3])
            # A note of earlier versions has three words, without fans. A note with fewer words was cut off.
            self.fans = words[3] or (NONE if words[2] else UNKNOWN)
        # If nothing was ever declared for fans, their note stays: another program may control them.
        touched = NONE if self.fans == fans == NONE else UNKNOWN
        self.note.write_text(f"? ? ? {touched}\n")

    def read(self) -> None:
        """Read what the GPU is set to; None stands for what it does not report."""
        _, text = run(["nvidia-smi", "-i", self.uuid, "--format=csv,noheader,nounits", f"--query-gpu={_FIELDS}"])
        line = next((line for line in text.splitlines() if line.startswith("GPU-")), "")
        fields = [*line.split(", "), "", "", "", "", ""]
        self.unloads = fields[1] == "Disabled"
        self.now, self.default, self.least, self.most = (_whole(field) for field in fields[2:6])

    def is_set_to(self, watts: int) -> bool:
        """Return whether it is set to so many watts, but for rounding."""
        return self.now is not None and abs(self.now - watts) <= 1

    def set(self, *words: str) -> tuple[bool, str]:
        """Change a setting. Return whether nvidia-smi succeeds, and what it printed."""
        code, text = run(["nvidia-smi", "-i", self.uuid, *words])
        return code == 0, text

    def keep_loaded(self) -> None:
        """Switch persistence on: without it, a GPU forgets its limit as soon as nothing uses it.

        Ubuntu starts the daemon with it off.
        """
        self.persistence = "on"
        if not self.unloads:
            return
        _, text = self.set("-pm", "1")
        self.read()
        if self.unloads:
            self.persistence = "refused"
            report(f"card {self.name} forgets its limit when nothing uses it: {first_line(text)}")

    def hold_limit(self, watts: int, clocks: str) -> None:
        """Hold it to a power limit."""
        if self.is_set_to(watts):
            self.limit = str(watts)
            return
        if self.least is not None and self.most is not None and not self.least <= watts <= self.most:
            self.fail(f"takes a power limit of {self.least} to {self.most} W, not {watts} W")
            return
        _, text = self.set("-pl", str(watts))
        self.read()
        if self.is_set_to(watts):
            self.limit = str(watts)
            report(f"card {self.name} is limited to {watts} W")
        elif not is_unsupported(text):
            self.fail(f"cannot be limited to {watts} W: {first_line(text)}")
        elif clocks == NONE:
            self.fail("takes no power limit; declare its `clocks`, to which it is held instead")
        else:
            self.limit = "refused"
            report(f"card {self.name} takes no power limit; its clocks are held instead")

    def hold_clocks(self, clocks: str) -> None:
        """Hold it to a range of clocks."""
        ok, text = self.set("-lgc", clocks)
        if ok and not is_unsupported(text):
            self.clocks = clocks
            report(f"card {self.name} is limited to {clocks} MHz")
        else:
            self.fail(f"cannot be limited to {clocks} MHz: {first_line(text)}")

    def hold_fans(self, percent: str) -> None:
        """Hold its fans at a speed."""
        code, text = self.holder.set_fans(self.uuid, percent)
        if code == 0:
            self.fans = percent
            report(f"the fans of card {self.name} are held at {percent} %")
            return
        if code not in (NO_FANS, OUT_OF_RANGE):
            self.fans = UNKNOWN
        self.holder.fail(f"the fans of card {self.name} are not held at {percent} %: {first_line(text)}")

    def free_limit(self) -> None:
        """Give it its default limit back, if it is held."""
        # A GPU that reports no limit takes none.
        if self.limit in (NONE, "refused") or self.default is None or self.is_set_to(self.default):
            self.limit = NONE
            return
        _, text = self.set("-pl", str(self.default))
        self.read()
        if self.default is not None and self.is_set_to(self.default):
            self.limit = NONE
            report(f"card {self.name} has its default limit again, {self.default} W")
        elif is_unsupported(text):
            self.limit = NONE
        else:
            self.fail(f"does not go back to its default limit: {first_line(text)}")

    def free_clocks(self) -> None:
        """Give it its own clocks back, if they are held."""
        if self.clocks == NONE:
            return
        ok, text = self.set("-rgc")
        if ok or is_unsupported(text):
            self.clocks = NONE
            report(f"card {self.name} has its own clocks again")
        else:
            self.fail(f"does not go back to its own clocks: {first_line(text)}")

    def free_fans(self) -> None:
        """Give the driver control of its fans back, if they are held."""
        if self.fans == NONE:
            return
        code, text = self.holder.set_fans(self.uuid, "auto")
        if code == 0:
            report(f"the fans of card {self.name} are the driver's own to control again")
        if code in (0, NO_FANS):
            self.fans = NONE
        else:
            reason = f"do not go back to the driver's own control: {first_line(text)}"
            self.holder.fail(f"the fans of card {self.name} {reason}")

    def write_note(self) -> None:
        """Write the note of the GPU's settings."""
        self.note.write_text(f"{self.limit} {self.clocks} {self.persistence} {self.fans}\n")

    def fail(self, reason: str) -> None:
        """Report a setting that the GPU does not have."""
        self.holder.fail(f"card {self.name} {reason}")


class Holder:
    """Holds and releases GPUs: where the notes are, the program that sets fans, and whether something failed."""

    def __init__(self, notes: Path, fans_program: Path) -> None:
        self.notes, self._fans_program, self.failed = notes, fans_program, False

    def fail(self, reason: str) -> None:
        """Print why a GPU does not have its settings, and continue with the next GPU."""
        self.failed = True
        print(reason, file=sys.stderr, flush=True)

    def set_fans(self, uuid: str, speed: str) -> tuple[int, str]:
        """Set all fans of a GPU to a speed or to `auto`. Return the exit code and what was printed."""
        return run([str(self._fans_program), uuid, speed])

    def hold(self, table: Path) -> None:
        """Hold GPUs to a table, and release those that it does not contain."""
        try:
            rows = [*parse_table(table.read_text())]
        except (OSError, ValueError) as error:
            # Nothing is released: what is declared is unknown.
            self.fail(f"the table of GPUs cannot be read: {error}")
            return
        _, text = run(["nvidia-smi", "--query-gpu=pci.bus_id,uuid", "--format=csv,noheader"])
        gpus = [(each[0], each[2]) for each in sorted(line.partition(", ") for line in text.splitlines()) if each[2]]
        if not any(uuid.startswith("GPU-") for _, uuid in gpus):
            self.fail(f"nvidia-smi shows no card: {first_line(text)}")
            return
        self.notes.mkdir(parents=True, exist_ok=True)
        declared = set()
        for row in rows:
            uuid = find_uuid(row.at, gpus)
            if not uuid:
                self.fail(f"there is no card {row.at}, which is to be {row.name}")
                continue
            declared.add(uuid)
            self._hold_one(Gpu(self, row.name, uuid, row.fans), row)
        for note in self._noted():
            if note.name not in declared:
                self._free(note.name)

    def _hold_one(self, gpu: Gpu, row: Row) -> None:
        gpu.keep_loaded()
        # Fans before limits, which may let the GPU get hotter.
        if row.fans == NONE:
            gpu.free_fans()
        else:
            gpu.hold_fans(row.fans)
        # Clocks before limits as well: where a limit is refused, clocks are held instead.
        if row.clocks == NONE:
            gpu.free_clocks()
        else:
            gpu.hold_clocks(row.clocks)
        if row.watts == NONE:
            gpu.free_limit()
        else:
            gpu.hold_limit(int(row.watts), row.clocks)
        gpu.write_note()

    def release(self) -> None:
        """Release all GPUs that are held."""
        for note in self._noted():
            self._free(note.name)

    def _noted(self) -> list[Path]:
        return sorted(note for note in self.notes.glob("GPU-*") if note.is_file())

    def _free(self, uuid: str) -> None:
        """Release a GPU that is no longer declared, or remove the note of a GPU that is gone."""
        _, text = run(["nvidia-smi", "-i", uuid, "--query-gpu=uuid", "--format=csv,noheader"])
        if text.strip() == uuid:
            gpu = Gpu(self, uuid, uuid, NONE)
            gpu.free_fans()
            gpu.free_clocks()
            gpu.free_limit()
            gpu.write_note()
            if (gpu.limit, gpu.clocks, gpu.fans) != (NONE, NONE, NONE):
                return
        elif "No devices were found" not in text:
            self.fail(f"card {uuid} cannot be queried: {first_line(text)}")
            return
        (self.notes / uuid).unlink()


def parse_table(text: str) -> Iterator[Row]:
    """Yield the rows of a table. Raise ValueError for a line that is not a row."""
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        # A table of earlier versions has four columns, without fans.
        figures = [figure for word in words[2:] for figure in word.split(",")]
        if len(words) not in (4, 5) or "," in words[2] or not all(map(_is_figure, figures)):
            raise ValueError(f"invalid line `{line}`")
        yield Row(words[0], words[1], words[2], words[3], words[4] if len(words) == 5 else NONE)


def find_uuid(at: str, gpus: Sequence[tuple[str, str]]) -> str:
    """Return the UUID of the GPU of a row, out of all GPUs by PCI address; empty if there is none."""
    if _is_number(at):
        return gpus[int(at)][1] if int(at) < len(gpus) else ""
    return next((uuid for pci, uuid in gpus if at.lower() in (pci.lower(), uuid.lower())), "")


def is_unsupported(text: str) -> bool:
    """Return whether nvidia-smi printed that a GPU lacks a setting: nvidia-smi exits with 0 then."""
    return "not supported" in text


def run(words: Sequence[str]) -> tuple[int, str]:
    """Return the exit code of a program and what it printed, to both of its outputs. It is killed after SECONDS."""
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        return NOT_STARTED, f"{words[0]} cannot be started: {error.strerror}"
    assert process.stdout
    output, until = b"", time.monotonic() + SECONDS
    with process.stdout as pipe, suppress(subprocess.TimeoutExpired):
        while select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0] and len(output) < _MOST_OUTPUT:
            piece = os.read(pipe.fileno(), 1 << 16)
            if not piece:
                return process.wait(max(0.0, until - time.monotonic())), output.decode(errors="replace")
            output += piece
    # Do not wait for the process: if it is stuck in the kernel, it does not end.
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    return TIMED_OUT, output.decode(errors="replace") or f"no response from {words[0]} within {SECONDS:.0f} s"


def first_line(text: str) -> str:
    """Return the first line of a text that is not empty."""
    return next(filter(None, text.splitlines()), "")[:_MOST_LINE]


def report(line: str) -> None:
    """Print a change."""
    print(line, flush=True)


def _whole(watts: str) -> int | None:
    """Return whole watts; None for a missing figure."""
    whole = watts.partition(".")[0]
    return int(whole) if _is_number(whole) else None


def _is_figure(text: str) -> bool:
    return text == NONE or _is_number(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def main(program: Path, arguments: Sequence[str]) -> int:
    """Hold or release. Return the exit code."""
    notes = Path(os.environ.get("RUNTIME_DIRECTORY") or "/run/llamaherd/gpu-power")
    holder = Holder(notes, program.parent / "gpu-fans")
    match arguments:
        case ["hold", table]:
            holder.hold(Path(table))
        case ["release"]:
            holder.release()
        case _:
            holder.fail(USAGE)
    return 1 if holder.failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[0]), sys.argv[1:]))
