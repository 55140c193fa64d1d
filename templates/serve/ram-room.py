"""Whether there is RAM for a server once what runs as it has ended, on the host and in its control group. Ends with 1,
and says what lacks, where that is sure; where it cannot tell, there is nothing to say.

Pages of files that can be read again are counted on neither side; what can be swapped out is counted as room."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

SURELY = 0.9
"""Of what was worked out: buffers are touched page by page, and some of them at the longest prompts alone."""
UNLIMITED = 1 << 60
ARC = Path("/proc/spl/kstat/zfs/arcstats")
"""What ZFS holds of files: Linux does not count it as available, and it gives way."""


def main(need: int, own: set[str], elsewhere: set[str]) -> str:
    try:
        ends = sum(held(pid) for pid in own | elsewhere)
        info = meminfo()
        swap = info["SwapFree"]
        if need * SURELY > (room := info["MemAvailable"] + swap + given_way() + ends):
            return lacks("the host has", room, need, processes(own | elsewhere))
        for pid in sorted(own):
            for group, files in groups(pid):
                inside = [each for each in processes() if group in group_of(each)]
                back = sum(held(each) for each in inside if each in own)
                if need * SURELY > (room := left(files) + swap + back):
                    return lacks(f"{group} is limited, and has", room, need, set(inside) - own)
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


def family(pids: set[str]) -> set[str]:
    """These processes and their children: of a server that has several models in turn, a child holds the one."""
    found = set(pids)
    for pid in pids:
        for children in Path("/proc", pid, "task").glob("*/children"):
            with suppress(OSError):
                found |= {*children.read_text().split()}
    return found


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


def lacks(where: str, room: int, need: int, others: Iterable[str]) -> str:
    most = sorted(((held(pid), pid) for pid in others), reverse=True)[:3]
    holds = ", ".join(f"{name(pid)} holds {gb(size)}" for size, pid in most if size)
    return f"{where} {gb(max(room, 0))} of RAM for it, and it takes {gb(need)}{'; ' if holds else ''}{holds}"


def name(pid: str) -> str:
    comm = Path("/proc", pid, "comm")
    try:
        return f"{comm.read_text().strip()} (process {pid})"
    except OSError:
        return f"process {pid}"


def gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"


own, elsewhere = (family({*each.split()} - {"0"}) for each in sys.argv[2:4])
lacking = main(int(sys.argv[1]), own, elsewhere)
sys.stdout.write(lacking)
sys.exit(bool(lacking))
