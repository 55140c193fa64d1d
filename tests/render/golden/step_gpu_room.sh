# Somebody else may have taken memory of a GPU: that is known before anything is stopped.
lacking=$(python3 -I - '[{"name": "big", "at": "0", "need": 7}]' $(systemctl show -P MainPID llama-coder.service) $(docker top llama-coder -eo pid 2>/dev/null | sed 1d) <<'END'
"""Whether GPUs have room for a server once what runs as it has ended. Ends with 1, and says which has not, where the
driver surely says so; where it cannot tell, there is nothing to say."""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SURELY = 0.97
"""Of what was worked out: that may be too much by as little."""
FIRST_PIDS = "pid:[4026531836]"
"""The driver knows nothing of PID namespaces (NVIDIA/nvidia-docker#179, #1483): its ids are those of the first one,
whose inode is this in every Linux."""
MIB = 1 << 20


class CannotTellError(Exception):
    """The driver does not say."""


def main(asked: list[dict[str, Any]], pids: set[str]) -> str:
    if "microsoft" in Path("/proc/sys/kernel/osrelease").read_text().lower():
        return ""
    if str(Path("/proc/self/ns/pid").readlink()) != FIRST_PIDS:
        return ""
    try:
        cards = sorted(told("gpu=pci.bus_id,uuid,memory.free", 3))
        apps = told("compute-apps=gpu_uuid,pid,used_memory", 3)
        return next(filter(None, (short(each, cards, apps, pids) for each in asked)), "")
    except (CannotTellError, OSError, ValueError, subprocess.TimeoutExpired):
        return ""


def told(query: str, fields: int) -> list[list[str]]:
    """Lines of an answer of nvidia-smi, taken apart."""
    answer = subprocess.run(
        ["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    lines = [line.split(", ") for line in answer.stdout.splitlines() if line.strip()]
    if answer.returncode or any(len(line) != fields for line in lines):
        raise CannotTellError
    return lines


def short(asked: dict[str, Any], cards: Sequence[Sequence[str]], apps: Sequence[Sequence[str]], pids: set[str]) -> str:
    """What a card lacks, if anything. Raises ValueError where a figure is none."""
    at = asked["at"].upper()
    if at.isdigit():
        found = [cards[int(at)]] if int(at) < len(cards) else []
    else:
        found = [card for card in cards if at in (card[0].upper(), card[1].upper())]
    for _, uuid, free in found:
        used = {pid: int(size) * MIB for on, pid, size in apps if on == uuid}
        room = int(free) * MIB + sum(size for pid, size in used.items() if pid in pids)
        if asked["need"] * SURELY > room:
            others = sorted(((size, pid) for pid, size in used.items() if pid not in pids), reverse=True)
            holds = ", ".join(f"{name(pid)} holds {gb(size)}" for size, pid in others[:3])
            return (
                f"GPU {asked['name']} has {gb(room)} for it, and it takes {gb(asked['need'])}"
                f"{'; ' if holds else ''}{holds}"
            )
    return ""


def family(pids: set[str]) -> set[str]:
    """These processes and their children: of a server that has several models in turn, a child holds the one."""
    found = set(pids)
    for pid in pids:
        for children in Path("/proc", pid, "task").glob("*/children"):
            with suppress(OSError):
                found |= {*children.read_text().split()}
    return found


def name(pid: str) -> str:
    try:
        return f"{Path('/proc', pid, 'comm').read_text().strip()} (process {pid})"
    except OSError:
        return f"process {pid}"


def gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"


lacking = main(json.loads(sys.argv[1]), family({*sys.argv[2:]} - {"0"}))
sys.stdout.write(lacking)
sys.exit(bool(lacking))
END
)
if [ "$lacking" ]; then
    printf '%s\n' "llama-coder is left as it is: $lacking" "  help: end what else uses that GPU, or declare what fits beside it" >&2
    exit 1
fi
