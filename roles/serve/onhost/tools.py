"""The tools of a switch: drain a server, redirect connections, check free memory."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

from llamaherd.layout import DIRECT_GROUP
from llamaherd.onhost.document import DocumentError
from llamaherd.onhost.servers import NeededGpu
from llamaherd.onhost.system import System
from roles.serve.onhost.model import CandidateInput, ProofQuestion, Room
from roles.serve.onhost.processes import ROOT, every_process, process_family, valid_pids
from roles.serve.onhost.proof import prove
from roles.serve.onhost.speed import Proof, ProofInput
from roles.serve.onhost.wire import DeclaredServer, direct_group, parse_declared, requests_in_flight

NFT = "/usr/sbin/nft"
_NFT_SECONDS = 5
_ARRIVES = 0.05
"""Seconds in which a request follows its connection."""
_POLL_SECONDS = 0.2
_QUIET_SECONDS = 2.0
"""A shorter wait is not reported. A server takes up to a second to notice that a client, such as a probe, is gone."""
_DRAIN_TABLE = "llamaherd-shut"
# The kernel lets all in again by itself, whatever is killed in the middle. Connections that are redirected do not get
# here: a rule for that comes later on a packet's way. Only this program, by its group, gets through on the host itself.
_SHUT = Template("""
table inet $table {}
delete table inet $table
table inet $table {
    set ports { type inet_service; flags timeout; timeout 3s; elements = { $ports }; }
    chain others {
        type filter hook prerouting priority -150
        iifname != "lo" $new tcp dport @ports reject with tcp reset
    }
    chain local {
        type filter hook output priority -150
        meta skgid != $group $new tcp dport @ports reject with tcp reset
    }
}
""")
_NEW = "fib daddr type local tcp flags & (fin | syn | rst | ack) == syn"

SURELY_OF_GPUS = 0.97
"""Of what was worked out: that may be too much by as little."""

SURELY_OF_RAM = 0.9
"""Of what was worked out: buffers are touched page by page, and some of them at the longest prompts alone."""

FIRST_PIDS = "pid:[4026531836]"
"""The driver does not support PID namespaces (NVIDIA/nvidia-docker#179, #1483): its ids are those of the first one,
whose inode is this in every Linux."""

_UNLIMITED = 1 << 60

_ARC = "proc/spl/kstat/zfs/arcstats"
"""What ZFS caches of files: Linux does not count it as available, and ZFS frees it."""

_CGROUPS = ("sys/fs/cgroup", "sys/fs/cgroup/memory")
_LIMITS, _USAGES = ("memory.max", "memory.limit_in_bytes"), ("memory.current", "memory.usage_in_bytes")
_KIB, _MIB = 1 << 10, 1 << 20
_QUERY_SECONDS = 20

_REDIRECT_TABLE = """\
table inet {name} {{
    chain local {{
        type nat hook output priority -101;
        meta skgid {{ {groups} }} return
        {rule}
    }}
    chain others {{
        type nat hook prerouting priority -101;
        {rule}
    }}
}}
"""


def drain(
    question: Mapping[str, object],
    *,
    key: str | None,
    seconds: float,
    group: int,
    led: bool,
    system: System,
) -> None:
    """Wait until a server responds to no request, for so many seconds at most, and then refuse new connections.

    They are refused for three seconds, where the host can do that: `let_in` is to follow once the server has stopped.
    `key` is that of the server that runs, `group` the one that is let through meanwhile. `led`: new connections are
    redirected to another server, and none are refused. A question without metrics is not waited for.
    """
    try:
        server = parse_declared(question, key)
    except DocumentError:
        return
    began = time.monotonic()
    end, reported = began + seconds, False
    while count := _in_flight(server) or (0 if led else _shut_out(server, group, system)):
        if time.monotonic() > end:
            system.report(f"{count} of them did not end in time, and {'are' if count > 1 else 'is'} cut off")
            return
        if not reported and time.monotonic() - began >= _QUIET_SECONDS:
            plural = "s" if count > 1 else ""
            system.report(f"waiting for {count} request{plural} in flight, for up to {seconds:g} s")
            reported = True
        time.sleep(_POLL_SECONDS)


def let_in(system: System) -> None:
    """Accept new connections again."""
    system.run([NFT, "delete", "table", "inet", _DRAIN_TABLE], seconds=_NFT_SECONDS)


def _in_flight(server: DeclaredServer) -> int:
    return requests_in_flight(server.metrics, server.key)


def _shut_out(server: DeclaredServer, group: int, system: System) -> int:
    """Refuse new connections, and return the requests that have come since they were counted: then none are refused."""
    ports = sorted({str(port) for url in server.metrics if (port := urlsplit(url).port)})
    if not ports:
        return 0
    rules = _SHUT.substitute(table=_DRAIN_TABLE, ports=", ".join(ports), new=_NEW, group=group)
    try:
        with direct_group(group):
            if not system.run([NFT, "-f", "-"], seconds=_NFT_SECONDS, text=rules).ok:
                return 0
            time.sleep(_ARRIVES)
            count = _in_flight(server)
    except OSError:  # not as root
        return 0
    if count:
        let_in(system)
    return count


class NotReportedError(Exception):
    """A program does not report what is free; contains the reason."""


@dataclass(frozen=True)
class Gpu:
    """A GPU as nvidia-smi reports it. `free` is in MiB, and may be no number."""

    address: str
    uuid: str
    free: str


def gb(size: float) -> str:
    """Return a number of bytes as text."""
    return f"{size / 1e9:.1f} GB"


# Once the processes of a server have ended.


def lacks_gpus(needs: Sequence[NeededGpu], pids: Iterable[str], *, system: System, root: Path = ROOT) -> str:
    """Return which GPU lacks memory once these processes have ended; empty where that is not certain."""
    try:
        if "microsoft" in (root / "proc/sys/kernel/osrelease").read_text(encoding="utf-8").lower():
            return ""
        if str((root / "proc/self/ns/pid").readlink()) != FIRST_PIDS:
            return ""
        ending = process_family(valid_pids(pids), root)
        gpus = _gpus(system)
        apps = _query(system, "compute-apps=gpu_uuid,pid,used_memory", 3)
        return next(filter(None, (_lacks_gpu(each, gpus, apps, ending, root) for each in needs)), "")
    except (NotReportedError, OSError, ValueError):
        return ""


def _gpus(system: System) -> list[Gpu]:
    return [Gpu(*line) for line in sorted(_query(system, "gpu=pci.bus_id,uuid,memory.free", 3))]


def _query(system: System, query: str, fields: int) -> list[list[str]]:
    """Return the fields of each line that nvidia-smi prints. Raise NotReportedError."""
    argv = ["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits"]
    lines = [line.split(", ") for line in _output(system, argv).splitlines() if line.strip()]
    if any(len(line) != fields for line in lines):
        raise NotReportedError("nvidia-smi does not print what it was queried for")
    return lines


def _output(system: System, argv: Sequence[str]) -> str:
    ended = system.run(argv, seconds=_QUERY_SECONDS)
    if not ended.ok:
        raise NotReportedError(f"{argv[0]} failed with exit code {ended.code}")
    return ended.out


def _lacks_gpu(
    need: NeededGpu, gpus: Sequence[Gpu], apps: Sequence[Sequence[str]], ending: set[str], root: Path
) -> str:
    """Return what a GPU lacks, if anything. Raise ValueError where a number is none."""
    gpu = _find_gpu(need.at, gpus)
    if gpu is None:
        return ""
    used = {pid: int(size) * _MIB for on, pid, size in apps if on == gpu.uuid}
    room = int(gpu.free) * _MIB + sum(size for pid, size in used.items() if pid in ending)
    if need.need * SURELY_OF_GPUS <= room:
        return ""
    others = {pid: size for pid, size in used.items() if pid not in ending}
    return _lacks(f"GPU {need.name} has {gb(room)}", need.need, others, root)


def _find_gpu(at: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """Return the GPU of an index, a PCI address or a UUID; None where there is none."""
    if at.isdecimal():
        return gpus[int(at)] if int(at) < len(gpus) else None
    return next((each for each in gpus if at.upper() in (each.address.upper(), each.uuid.upper())), None)


def lacks_ram(need: int, own: Iterable[str], others: Iterable[str], *, root: Path = ROOT) -> str:
    """Return what RAM lacks once processes have ended, on the host and in their control group; empty if uncertain.

    `own` are those of the server, `others` further ones that end: of the same server by the other backend, whose
    control group is not where the new one will be.
    """
    try:
        own, others = process_family(valid_pids(own), root), process_family(valid_pids(others), root)
        ending = own | others
        info = _meminfo(root)
        room = info["MemAvailable"] + info["SwapFree"] + _reclaimable_arc(root) + _held_by(ending, root)
        if need * SURELY_OF_RAM > room:
            return _lacks_ram("the host has", room, need, every_process(root) - ending, root)
        for pid in sorted(own):
            for group, files in _limited_groups(pid, root):
                inside = {each for each in every_process(root) if group in _groups_of(each, root)}
                room = _left_in(files) + info["SwapFree"] + _held_by(inside & own, root)
                if need * SURELY_OF_RAM > room:
                    return _lacks_ram(f"{group} is limited, and has", room, need, inside - own, root)
    except (OSError, ValueError, LookupError):
        return ""
    return ""


def _meminfo(root: Path) -> dict[str, int]:
    lines = (line.split() for line in (root / "proc/meminfo").read_text(encoding="utf-8").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * _KIB for words in lines}


def _reclaimable_arc(root: Path) -> int:
    """Return the bytes that ZFS frees when they are needed."""
    file = root / _ARC
    if not file.exists():
        return 0
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    arc = {words[0]: words[2] for words in lines if len(words) == 3}
    return max(0, int(arc["size"]) - int(arc["c_min"]))


def _held_by(pids: Iterable[str], root: Path) -> int:
    return sum(_held(pid, root) for pid in pids)


def _held(pid: str, root: Path) -> int:
    """Return the bytes that a process frees at its end: memory that CUDA locks is shared. 0 for one that has ended."""
    lines: list[list[str]] = []
    with suppress(OSError):
        status = (root / "proc" / pid / "status").read_text(encoding="utf-8", errors="replace")
        lines = [line.split() for line in status.splitlines()]
    size = {words[0]: int(words[1]) * _KIB for words in lines if words and words[0].startswith(("Rss", "Vm"))}
    kept = sum(size.get(f"{name}:", 0) for name in ("RssAnon", "RssShmem", "VmLck"))
    return min(kept, size.get("VmRSS:", 0))


def _groups_of(pid: str, root: Path) -> list[str]:
    """Return the control groups that a process is in and that count memory, from its own up to the first."""
    with suppress(OSError):
        text = (root / "proc" / pid / "cgroup").read_text(encoding="utf-8")
        lines = [line.split(":", 2) for line in text.splitlines()]
        by = {controller: path for _, controllers, path in lines for controller in controllers.split(",")}
        own = Path(by.get("memory") or by.get("", "/"))
        return [str(own), *map(str, own.parents)]
    return []


def _limited_groups(pid: str, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and the folder of each limited control group above a server's own, which is made anew with it."""
    for group in _groups_of(pid, root)[1:]:
        for place in _CGROUPS:
            files = root / place / group.lstrip("/")
            if _limit_of(files) < _UNLIMITED:
                yield group, files


def _limit_of(files: Path) -> int:
    for name in _LIMITS:
        with suppress(OSError):
            text = (files / name).read_text(encoding="utf-8").strip()
            return _UNLIMITED if text == "max" else int(text)
    return _UNLIMITED


def _left_in(files: Path) -> int:
    """Return the bytes that a group may hold more, with pages of files given up. Raise OSError or LookupError."""
    used = next((files / name for name in _USAGES if (files / name).exists()), files / _USAGES[0])
    text = (files / "memory.stat").read_text(encoding="utf-8")
    stat = {words[0]: int(words[1]) for words in map(str.split, text.splitlines())}
    total = "total_" if "total_active_file" in stat else ""
    of_files = stat[f"{total}active_file"] + stat[f"{total}inactive_file"] + stat.get("slab_reclaimable", 0)
    return _limit_of(files) - int(used.read_text(encoding="utf-8")) + of_files


def _lacks_ram(where: str, room: int, need: int, others: Iterable[str], root: Path) -> str:
    held = {pid: _held(pid, root) for pid in others}
    return _lacks(f"{where} {gb(max(room, 0))} of RAM", need, held, root)


def _lacks(there_is: str, need: int, others: Mapping[str, int], root: Path) -> str:
    """Return a sentence with the three processes that hold most."""
    most = sorted(((size, pid) for pid, size in others.items() if size), reverse=True)[:3]
    holds = ", ".join(f"{_name(pid, root)} holds {gb(size)}" for size, pid in most)
    return f"{there_is} for it, and it takes {gb(need)}{'; ' if holds else ''}{holds}"


def _name(pid: str, root: Path) -> str:
    try:
        comm = (root / "proc" / pid / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return f"process {pid}"
    return f"{comm} (process {pid})"


# Side by side with all that runs.


def lacks_room(
    ram: int,
    gpus: Sequence[NeededGpu],
    *,
    listen: str,
    port: int | None,
    for_others: bool,
    system: System,
    root: Path = ROOT,
) -> str:
    """Return why a second server cannot run side by side with the others, also where that is not certain.

    `port` is its own one, to which connections are led meanwhile; None where it has the declared one. `for_others`:
    other machines send it requests.
    """
    try:
        elsewhere = "" if port is None else _lacks_redirect(system, root, for_others) or _lacks_port(listen, port)
        return elsewhere or _lacks_free_ram(ram, root) or _lacks_free_gpus(gpus, system)
    except (NotReportedError, OSError, ValueError, LookupError) as error:
        return f"this host does not report what is free ({error})"


def _lacks_redirect(system: System, root: Path, for_others: bool) -> str:
    """Return why connections cannot be led to another port."""
    nft = system.entry(NFT)
    if nft is None or not nft.mode & 0o111:
        return "there is no nft (package nftables) to lead connections to it"
    rules = _output(system, [NFT, "list", "ruleset"])
    older = root / "proc/net/ip_tables_names"
    if for_others and ("hook input" in rules or (older.exists() and older.read_text(encoding="utf-8").strip())):
        return "a firewall here filters by port"
    return ""


def _lacks_port(listen: str, port: int) -> str:
    """Return why a server cannot listen there."""
    with socket.socket(socket.AF_INET6 if ":" in listen else socket.AF_INET) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((listen, port))
        except OSError as error:
            return f"its port {port} cannot be had ({error.strerror})"
    return ""


def _lacks_free_ram(need: int, root: Path) -> str:
    free = _meminfo(root)["MemAvailable"]
    return f"{gb(free)} of RAM are free, and it takes {gb(need)} with what the system needs" if free < need else ""


def _lacks_free_gpus(needs: Sequence[NeededGpu], system: System) -> str:
    gpus = _gpus(system) if needs else []
    for each in needs:
        gpu = _find_gpu(each.at, gpus)
        if gpu is None:
            raise NotReportedError(f"nvidia-smi lists no GPU {each.at}")
        if (free := int(gpu.free) * _MIB) < each.need:
            return f"GPU {each.name} has {gb(free)} free, and it takes {gb(each.need)}"
    return ""


class Tools:
    """The parts of a switch that query the server, the GPUs and the firewall. Tests replace them."""

    def prove(self, given: ProofInput, system: System) -> Proof:
        """Prove that a server serves as declared."""
        with direct_group(DIRECT_GROUP) if given.direct else nullcontext():
            return prove(given, system.report)

    def drain(self, question: ProofQuestion, *, key: str | None, seconds: int, led: bool, system: System) -> None:
        """Wait for the requests in flight, and refuse new connections for a moment."""
        with direct_group(DIRECT_GROUP) if led else nullcontext():
            drain(question, key=key, seconds=seconds, group=DIRECT_GROUP, led=led, system=system)

    def let_in(self, system: System) -> None:
        """Accept connections again."""
        let_in(system)

    def lead(self, server: str, candidate: CandidateInput, system: System) -> bool:
        """Redirect new connections to the candidate by nftables. Return whether that succeeded."""
        ended = system.run(["id", "-g", candidate.group])
        own = ended.out.strip() if ended.ok else candidate.group
        text = _REDIRECT_TABLE.format(name=server, groups=f"{DIRECT_GROUP}, {own}", rule=candidate.rule)
        return system.run([NFT, "-f", "-"], text=text).ok

    def lead_back(self, server: str, system: System, *, end: bool) -> None:
        """Redirect new connections to the server itself again; with `end`, remove the redirection."""
        system.run([NFT, "delete" if end else "flush", "table", "inet", server])

    def lacks_gpus(self, system: System, needs: Sequence[NeededGpu], pids: Sequence[str]) -> str:
        """Return what GPUs lack once processes have ended; empty where nothing."""
        return lacks_gpus(needs, pids, system=system)

    def lacks_ram(self, system: System, need: int, own: Sequence[str], others: Sequence[str]) -> str:
        """Return what RAM lacks once processes have ended; empty where nothing."""
        del system
        return lacks_ram(need, own, others)

    def lacks_room(self, system: System, room: Room, candidate: CandidateInput | None) -> str:
        """Return what lacks for a second server; empty where nothing."""
        return lacks_room(
            room.ram,
            room.gpus,
            listen=candidate.listen if candidate else "",
            port=candidate.port if candidate else None,
            for_others=bool(candidate and candidate.for_others),
            system=system,
        )


TOOLS = Tools()
