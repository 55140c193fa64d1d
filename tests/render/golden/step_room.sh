# What lacks of GPUs, or of RAM, once processes of a server have ended.
no_room_after() { python3 -I - "$@" <<'END'
"""Whether there is room for a server once what runs as it has ended: on GPUs, or in RAM, on the host and in its control
group. Ends with 1, and says what lacks, where that is sure; where it cannot tell, there is nothing to say.

Of RAM, pages of files that can be read again are counted on neither side; what can be swapped out is counted as room.
"""

# For Python 3.10 and its standard library alone.
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SURELY_OF_GPUS = 0.97
"""Of what was worked out: that may be too much by as little."""
SURELY_OF_RAM = 0.9
"""Of what was worked out: buffers are touched page by page, and some of them at the longest prompts alone."""
FIRST_PIDS = "pid:[4026531836]"
"""The driver knows nothing of PID namespaces (NVIDIA/nvidia-docker#179, #1483): its ids are those of the first one,
whose inode is this in every Linux."""
UNLIMITED = 1 << 60
ARC = Path("/proc/spl/kstat/zfs/arcstats")
"""What ZFS holds of files: Linux does not count it as available, and it gives way."""
MIB = 1 << 20


class CannotTellError(Exception):
    """The driver does not say."""


def main(resource: str, need: str, own_pids: str, other_pids: str) -> str:
    """What lacks of GPUs for `need`, a list in JSON, or of RAM for so many bytes. `other_pids` are processes of the
    server that end too, by the other backend: its control group is not where the new one will be."""
    own, others = (family({*each.split()} - {"0"}) for each in (own_pids, other_pids))
    if resource == "gpus":
        return no_room_on_gpus(json.loads(need), own | others)
    return no_room_in_ram(int(need), own, others)


def no_room_on_gpus(asked: list[dict[str, Any]], pids: set[str]) -> str:
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
        if asked["need"] * SURELY_OF_GPUS > room:
            others = {pid: size for pid, size in used.items() if pid not in pids}
            return lacks(f"GPU {asked['name']} has {gb(room)}", asked["need"], others)
    return ""


def no_room_in_ram(need: int, own: set[str], others: set[str]) -> str:
    try:
        ends = sum(held(pid) for pid in own | others)
        info = meminfo()
        swap = info["SwapFree"]
        if need * SURELY_OF_RAM > (room := info["MemAvailable"] + swap + given_way() + ends):
            return lacks_ram("the host has", room, need, processes(own | others))
        for pid in sorted(own):
            for group, files in groups(pid):
                inside = [each for each in processes() if group in group_of(each)]
                back = sum(held(each) for each in inside if each in own)
                if need * SURELY_OF_RAM > (room := left(files) + swap + back):
                    return lacks_ram(f"{group} is limited, and has", room, need, set(inside) - own)
    except (OSError, ValueError, LookupError):
        return ""
    return ""


def meminfo() -> dict[str, int]:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) << 10 for words in lines}


def given_way() -> int:
    if not ARC.exists():
        return 0
    lines = (line.split() for line in ARC.read_text().splitlines())
    arc = {words[0]: words[2] for words in lines if len(words) == 3}
    return max(0, int(arc["size"]) - int(arc["c_min"]))


def held(pid: str) -> int:
    """Bytes that come back when a process ends: what CUDA has locked is shared memory. 0 for one that has ended."""
    lines: list[list[str]] = []
    with suppress(OSError):
        lines = [line.split() for line in Path("/proc", pid, "status").read_text().splitlines()]
    size = {words[0]: int(words[1]) << 10 for words in lines if words[0].startswith(("Rss", "Vm"))}
    kept = sum(size.get(f"{name}:", 0) for name in ("RssAnon", "RssShmem", "VmLck"))
    return min(kept, size.get("VmRSS:", 0))


def processes(but: Iterable[str] = ()) -> set[str]:
    return {each.name for each in Path("/proc").iterdir() if each.name.isdigit()} - set(but)


def group_of(pid: str) -> list[str]:
    """The control groups that a process is in and that count memory, from its own up to the first."""
    with suppress(OSError):
        said = [line.split(":", 2) for line in Path("/proc", pid, "cgroup").read_text().splitlines()]
        by = {what: path for _, controllers, path in said for what in controllers.split(",")}
        own = Path(by.get("memory") or by.get("", "/"))
        return [str(own), *map(str, own.parents)]
    return []


def groups(pid: str) -> Iterator[tuple[str, Path]]:
    """Those above a server's own, which is made anew with it, that have a limit: their names, and their folders."""
    for group in group_of(pid)[1:]:
        for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory"):
            files = Path(root, group.lstrip("/"))
            if limit(files) < UNLIMITED:
                yield group, files


def limit(files: Path) -> int:
    for name in ("memory.max", "memory.limit_in_bytes"):
        with suppress(OSError):
            said = (files / name).read_text().strip()
            return UNLIMITED if said == "max" else int(said)
    return UNLIMITED


def left(files: Path) -> int:
    """What a group may hold more, with pages of files given up."""
    used = next(files / name for name in ("memory.current", "memory.usage_in_bytes") if (files / name).exists())
    stat = {words[0]: int(words[1]) for words in map(str.split, (files / "memory.stat").read_text().splitlines())}
    total = "total_" if "total_active_file" in stat else ""
    files_of = stat[f"{total}active_file"] + stat[f"{total}inactive_file"] + stat.get("slab_reclaimable", 0)
    return limit(files) - int(used.read_text()) + files_of


def lacks_ram(where: str, room: int, need: int, others: Iterable[str]) -> str:
    return lacks(f"{where} {gb(max(room, 0))} of RAM", need, {pid: held(pid) for pid in others})


def family(pids: set[str]) -> set[str]:
    """These processes and their children: of a server that has several models in turn, a child holds the one."""
    found = set(pids)
    for pid in pids:
        for children in Path("/proc", pid, "task").glob("*/children"):
            with suppress(OSError):
                found |= {*children.read_text().split()}
    return found


def lacks(what_there_is: str, need: int, others: Mapping[str, int]) -> str:
    """A sentence for people, with the three that hold most."""
    most = sorted(((size, pid) for pid, size in others.items() if size), reverse=True)[:3]
    holds = "".join(f"{', ' if at else '; '}{name(pid)} holds {gb(size)}" for at, (size, pid) in enumerate(most))
    return f"{what_there_is} for it, and it takes {gb(need)}{holds}"


def name(pid: str) -> str:
    comm = Path("/proc", pid, "comm")
    try:
        return f"{comm.read_text().strip()} (process {pid})"
    except OSError:
        return f"process {pid}"


def gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"


lacking = main(*sys.argv[1:])
sys.stdout.write(lacking)
sys.exit(bool(lacking))
END
}
