#!/usr/bin/python3 -I
"""Writes what the exporter has no name for: GPUs by nvidia-smi, what the kernel said of them, when a certificate ends.

It also writes which servers are paused, by the records of `herd pause`.

    figures FILE [--gpus] [--certificate PEM]

Run by a timer. The file is written beside its place and renamed, so that nobody reads half of it.
"""

# For Python 3.10 and its standard library alone.
import argparse
import csv
import os
import re
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PATH = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/usr/lib/wsl/lib"
PAUSED = Path("/var/lib/llamaherd/paused")
LONGEST = 1 << 20
"""Bytes of what a program may say."""
ASKED = (
    *("uuid", "pci.bus_id", "temperature.gpu", "power.draw", "power.limit", "memory.used", "memory.total"),
    *("utilization.gpu", "fan.speed", "clocks.sm", "ecc.errors.uncorrected.volatile.total"),
)
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""By either name: a driver that lacks one field answers to none."""
FIGURES = {
    "temperature.gpu": ("temperature_celsius", 1),
    "power.draw": ("power_watts", 1),
    "power.limit": ("power_limit_watts", 1),
    "memory.used": ("memory_used_bytes", 1 << 20),
    "memory.total": ("memory_total_bytes", 1 << 20),
    "utilization.gpu": ("utilization_ratio", 0.01),
    "fan.speed": ("fan_ratio", 0.01),
    "clocks.sm": ("clock_hertz", 1e6),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected_errors", 1),
}
"""What each field is called here, and what of its unit one of ours is."""
THROTTLED = {"sw_thermal": 0x20, "hw_thermal": 0x40, "hw_power_brake": 0x80}
"""Bits of NVML's clocks event reasons. A power limit of ours is none of them (0x4)."""
XID = re.compile(r"^(\d+)(?:\.\d+)? .*NVRM: Xid \(PCI:([0-9A-Fa-f:.]{1,20})\): (\d{1,4})\b")


def said(*command: str) -> str:
    """What a program says; nothing where it fails, hangs, or is not there."""
    with suppress(OSError, subprocess.SubprocessError):
        env = {"PATH": PATH, "LC_ALL": "C"}
        done = subprocess.run(command, capture_output=True, timeout=20, env=env, check=False)
        if done.returncode == 0:
            return done.stdout[:LONGEST].decode(errors="replace")
    return ""


def figure(name: str, labels: str, value: object) -> str:
    """A line of the file."""
    return f"llamaherd_{name}" + "{" + labels + "}" + f" {value}"


def gpus(text: str) -> Iterator[str]:
    """The lines of all GPUs, from the answer of nvidia-smi: fields as asked, then the reasons."""
    rows = [row for row in csv.reader(text.splitlines(), skipinitialspace=True) if len(row) == len(ASKED) + 1]
    rows = [row for row in rows if re.fullmatch(r"GPU-[0-9a-f-]{8,50}", row[0])]
    rows = sorted((row for row in rows if re.fullmatch(r"[0-9A-F:.]{7,20}", row[1])), key=lambda row: row[1])
    yield f"llamaherd_gpus {len(rows)}"
    for number, row in enumerate(rows):
        labels = f'gpu="{row[0]}",pci="{row[1]}",index="{number}"'
        for field, value in zip(ASKED, row[:-1], strict=True):
            if field in FIGURES and re.fullmatch(r"\d{1,9}(\.\d{1,6})?", value):
                name, unit = FIGURES[field]
                yield figure(f"gpu_{name}", labels, f"{float(value) * unit:.15g}")
        if re.fullmatch(r"0x[0-9A-Fa-f]{1,16}", row[-1]):
            for why, bit in THROTTLED.items():
                yield figure("gpu_throttled", f'{labels},why="{why}"', int(bool(int(row[-1], 16) & bit)))


def xids(text: str) -> Iterator[str]:
    """When the kernel last told each error of a GPU, by lines of the journal that begin with seconds."""
    last = {(found[2], found[3]): found[1] for line in text.splitlines() if (found := XID.match(line))}
    for (pci, xid), seconds in sorted(last.items()):
        yield figure("gpu_xid_last_seconds", f'pci="{pci}",xid="{xid}"', seconds)


def certificate(text: str) -> Iterator[str]:
    """When it ends, by what openssl says."""
    with suppress(ValueError):
        if ends := re.match(r"notAfter=(.*)", text):
            yield f"llamaherd_certificate_end_seconds {ssl.cert_time_to_seconds(ends[1].strip())}"


def paused(folder: Path) -> Iterator[str]:
    """Which servers are paused: a record of each is in a folder of its name."""
    names = sorted(each.parent.name for each in folder.glob("llama-*/pause.json"))
    for name in names:
        if re.fullmatch(r"[a-z0-9._-]{1,100}", name):
            yield figure("server_paused", f'name="{name}.service",server="{name.removeprefix("llama-")}"', 1)


def lines(of_gpus: bool, pem: str | None) -> Iterator[str]:
    """All figures of this host."""
    yield from paused(PAUSED)
    if of_gpus:
        asked = (f"--query-gpu={','.join((*ASKED, reason))}" for reason in REASONS)
        answers = (said("nvidia-smi", query, "--format=csv,noheader,nounits") for query in asked)
        yield from gpus(next(filter(None, answers), ""))
        # -g ends with 1 where there is none.
        kernel = ("journalctl", "-k", "-q", "-o", "short-unix", "--no-pager", "-n", "1000", "--since=-1h")
        yield from xids(said(*kernel, "-g", "NVRM: Xid"))
    if pem:
        yield from certificate(said("openssl", "x509", "-noout", "-enddate", "-in", pem))
    yield f"llamaherd_figures_seconds {int(time.time())}"


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--gpus", action="store_true")
    parser.add_argument("--certificate")
    chosen = parser.parse_args()
    text = "".join(f"{line}\n" for line in lines(chosen.gpus, chosen.certificate))
    # The exporter reads what ends with .prom.
    beside = Path(f"{chosen.file}.new")
    beside.write_text(text, encoding="utf-8")
    beside.chmod(0o644)
    beside.replace(chosen.file)


if __name__ == "__main__":
    main()
