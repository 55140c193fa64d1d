#!/usr/bin/python3 -I
"""A stand-in for nvidia-smi where it says how GPUs are again and again (`-lms`): what is faked of a GPU is this alone.

The answers have the form of nvidia-smi 580's, with two RTX 3090: the second one tells no fan, and no power of now. Each
reading's watts are those of the file beside it, `watts`, where there is one. It ends when nobody reads any more, or it
is killed; it says to the file `started` beside it which process it is.
"""

import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
HELP = """List of valid properties to query for the switch "--query-gpu=":

"timestamp"
The timestamp of when the query was made in format "YYYY/MM/DD HH:MM:SS.msec".

"""
VALUES = {
    "uuid": ("GPU-11111111-aaaa-bbbb-cccc-000000000001", "GPU-22222222-aaaa-bbbb-cccc-000000000002"),
    "pci.bus_id": ("00000000:01:00.0", "00000000:21:00.0"),
    "driver_version": ("580.159.04", "580.159.04"),
    "vbios_version": ("94.02.42.00.A9", "94.02.42.00.B1"),
    "power.default_limit": ("350.00", "350.00"),
    "clocks.max.sm": ("2100", "2100"),
    "clocks.max.memory": ("9751", "9751"),
    "ecc.mode.current": ("[N/A]", "[N/A]"),
    "memory.total": ("24576", "24576"),
    "name": ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
    "power.draw.instant": ("250.00", "[N/A]"),
    "power.draw": ("249.10", "21.33"),
    "power.limit": ("350.00", "230.00"),
    "temperature.gpu": ("64", "41"),
    "clocks.sm": ("1695", "210"),
    "memory.used": ("20480", "12"),
    "pcie.link.gen.current": ("4", "1"),
    "pcie.link.width.current": ("16", "16"),
    "clocks_throttle_reasons.active": ("0x0000000000000004", "0x0000000000000001"),
}


def rows(fields: list[str]) -> str:
    """A line for each GPU."""
    watts = HERE / "watts"
    now = {"power.draw.instant": (watts.read_text().strip(), "[N/A]")} if watts.exists() else {}
    return "".join(", ".join({**VALUES, **now}[field][gpu] for field in fields) + "\n" for gpu in (0, 1))


def main(arguments: list[str]) -> None:
    """What the command line asks for."""
    if "--help-query-gpu" in arguments:
        sys.stdout.write(HELP + "".join(f'"{name}"\nWhat it is.\n\n' for name in VALUES))
        return
    query = next(each for each in arguments if each.startswith("--query-gpu="))
    fields = query.partition("=")[2].split(",")
    sys.stdout.write(rows(fields))
    if "-lms" in arguments:
        (HERE / "started").write_text(str(os.getpid()))
        while True:
            sys.stdout.flush()
            time.sleep(int(arguments[arguments.index("-lms") + 1]) / 1000)
            sys.stdout.write(rows(fields))


if __name__ == "__main__":
    main(sys.argv[1:])
