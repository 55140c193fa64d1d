# Starts the arms of a comparison one at a time, as it is told on the same pipe. What serves is stopped meanwhile, and
# comes back whatever ends this: the kernel opens this script's lock with its process, which ends the guard, a unit of
# systemd, and what systemd does after that brings it back. A boot starts it by itself.
trap : PIPE
# Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
locks=/run/llamaherd/locks
# $1 file descriptor, $2 name; opens the lock, and does not wait for it.
open_lock() {
    (umask 022 && mkdir -p "${locks%/*}") && mkdir -m 0700 "$locks" 2>/dev/null
    if [ -L "$locks" ] || [ "$(stat -c '%F %u %a' "$locks")" != "directory $(id -u) 700" ]; then
        echo "$locks is no folder of root's alone, as locks need one (mode 0700): see who made it, remove it, and run again" >&2
        return 1
    fi
    (umask 077 && : >>"$locks/$2") && eval "exec $1<>\"\$locks/$2\""
}
# $3 seconds to wait, $4 what it is held for: told to whoever waits for us meanwhile.
hold() {
    open_lock "$1" "$2" || return 1
    if ! flock -n "$1"; then
        by=$(cat "$locks/$2")
        echo "waiting for another run, ${by:-which has just begun}, for up to $3 s"
        if ! flock -w "$3" "$1"; then
            by=$(cat "$locks/$2")
            echo "after $3 s another run, ${by:-which does not say what it is}, still holds $locks/$2; see with \`ps\` whether it works or hangs, wait or end it, and run again" >&2
            return 1
        fi
    fi
    echo "process $$ since $(date +%T): $4" >"$locks/$2"
}
hold 8 host 3600 'measuring llama-chat' || exit 1
# A guard of before has what it waits for by now.
systemctl stop llamaherd-arms.service 2>/dev/null
open_lock 7 measure || exit 1
if ! flock -w 5 7; then
    by=$(cat "$locks/measure")
    echo "another measurement goes on here, by ${by:-somebody who has just begun}" >&2
    echo "  help: wait until it has ended" >&2
    exit 1
fi
printf '%s since %s\n' 'tom on desk' "$(date +'%F %T')" >"$locks/measure"
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
served=''
case $(systemctl show -P ActiveState llama-chat.service) in active | activating | reloading) served="$served llama-chat.service" ;; esac
(umask 077 && rm -rf /run/llamaherd/arms && mkdir -p /run/llamaherd/arms) && printf '%s' "$served" >/run/llamaherd/arms/served && cat >/run/llamaherd/arms/back <<'END' || exit 1
# What is measured ends, and what served before serves again: whoever began it may be gone.
systemctl stop llamaherd-arm-c-chat.service 2>/dev/null
rm -f /run/systemd/system/llamaherd-arm-c-chat.service /run/llamaherd/arms-text /run/llamaherd/started/llamaherd-arm-c-chat
systemctl daemon-reload
systemctl reset-failed llamaherd-arm-c-chat.service 2>/dev/null
if [ -s /run/llamaherd/arms/served ]; then
    # Few starts within minutes are allowed, and none of those was its own.
    xargs systemctl reset-failed </run/llamaherd/arms/served 2>/dev/null
    xargs systemctl start --no-block </run/llamaherd/arms/served
fi
rm -rf /run/llamaherd/arms

END
systemd-run -q --collect --unit=llamaherd-arms.service --description='Brings back what served before a comparison' -p Type=exec -p RuntimeMaxSec=2100 -p TimeoutStopSec=61 -p 'ExecStopPost=/bin/sh /run/llamaherd/arms/back' flock "$locks/measure" true 7>&- 8>&- || exit 1
# It is awaited: what served is then back, or systemd says why not.
at_exit() { systemctl stop llamaherd-arms.service 2>/dev/null; }
trap at_exit EXIT
trap 'exit 1' HUP INT TERM
(
# Writes files beside their places, then renames each: no reader ever sees half a file.
umask 077
# $1 the path, $2 what the system says; the way out is by the reason.
cannot_write() {
    echo "cannot write $1: ${2##*: }" >&2
    near=$1
    until [ -d "$near" ]; do near=${near%/*} && near=${near:-/}; done
    on=$(df -P "$near" | awk 'NR == 2 {print $6}')
    case $2 in
    *'No space'*) echo "  help: make room on $on (\`df -h $on\`; \`df -i $on\` where it has room, but no more files), then run again" >&2 ;;
    *Read-only*) echo "  help: make $on writable (\`findmnt $on\` says how it is mounted; a disk with errors is mounted so, see \`dmesg\`), then run again" >&2 ;;
    *'not permitted'*) echo "  help: \`lsattr -d $near $1\` says whether it may not be changed (\`chattr -i\`), then run again" >&2 ;;
    *) echo "  help: see what is at $near with \`ls -la\`, then run again" >&2 ;;
    esac
    rm -f "$1.llamaherd-new" 2>/dev/null
    exit 1
}
# $1 path, $2 folder, $3 mode, $4 owner; its content comes on stdin.
put_file() {
    why=$({
        { [ -d "$2" ] || (umask 022 && mkdir -p "$2"); } &&
            base64 -d >"$1.llamaherd-new" &&
            chown "$4" "$1.llamaherd-new" &&
            chmod "$3" "$1.llamaherd-new" &&
            mv -fT "$1.llamaherd-new" "$1"
    } 2>&1) || cannot_write "$1" "$why"
}
put_file /run/systemd/system/llamaherd-arm-c-chat.service /run/systemd/system 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgaW5zdGFuY2UgYGNoYXRgIG9mIHJpZyBgYm94YDog
Y2hhbmdlIHRoZSBpbnZlbnRvcnksIG5vdCB0aGlzIGZpbGUuCltVbml0XQpEZXNjcmlwdGlvbj1M
TE0gc2VydmVyIGNoYXQ6IGdlbW1hIG9uIG1haW4KQWZ0ZXI9bmV0d29yay50YXJnZXQgbG9jYWwt
ZnMudGFyZ2V0ClN0YXJ0TGltaXRJbnRlcnZhbFNlYz02MDAKU3RhcnRMaW1pdEJ1cnN0PTMKCltT
ZXJ2aWNlXQpUeXBlPWV4ZWMKIyBXaGF0IGl0IHN0YXJ0cyB3aXRoLCBmb3Igd2hvZXZlciB3YW50
cyB0byBrbm93IGxhdGVyIHdoYXQgaGFzIGNoYW5nZWQgc2luY2UuCkV4ZWNTdGFydFByZT0tKy9v
cHQvbGxhbWFoZXJkL2xpYmV4ZWMvc3RhcnRlZCByZWNvcmQgdW5pdCBsbGFtYWhlcmQtYXJtLWMt
Y2hhdCAvZXRjL2xsYW1haGVyZC9rZXlzL2NoYXQgL3Zhci9saWIvbGxhbWFoZXJkL21vZGVscy9s
b2NhbC9hNWE1YTVhNWE1YTVhNWE1CkV4ZWNTdGFydD0vb3B0L2xsYW1haGVyZC9idWlsZHMvbGxh
bWEuY3BwLTI1NGMyZTExMWZjYS9iaW4vbGxhbWEtc2VydmVyIC0tbW9kZWwgL3Zhci9saWIvbGxh
bWFoZXJkL21vZGVscy9sb2NhbC9hNWE1YTVhNWE1YTVhNWE1L2dlbW1hLmdndWYgLS1hbGlhcyBn
ZW1tYSAtLWN0eC1zaXplIDgxOTIgLS1jYWNoZS10eXBlLWsgcThfMCAtLWNhY2hlLXR5cGUtdiBx
OF8wIC0tZmxhc2gtYXR0biBvbiAtLXBhcmFsbGVsIDEgLS10aHJlYWRzIDEgLS1ob3N0IDEyNy4w
LjAuMSAtLXBvcnQgODA4MCAtLW1ldHJpY3MgLS1hcGkta2V5LWZpbGUgL2V0Yy9sbGFtYWhlcmQv
a2V5cy9jaGF0CiMgU3RhcnRlZCBtZWFuczogaXQgYW5zd2Vycy4gTG9hZGluZyBhIG1vZGVsIGZy
b20gYSBjb2xkIGRpc2sgdGFrZXMgaXRzIHRpbWUuCkV4ZWNTdGFydFBvc3Q9L29wdC9sbGFtYWhl
cmQvbGliZXhlYy93YWl0LWhlYWx0aHkgaHR0cDovLzEyNy4wLjAuMTo4MDgwL2hlYWx0aApUaW1l
b3V0U3RhcnRTZWM9MzAwClJlc3RhcnQ9YWx3YXlzClJlc3RhcnRTZWM9MTAKS2lsbFNpZ25hbD1T
SUdJTlQKIyBXaGF0IGl0IGhhcyB0byBsb3NlIGlzIGluIGl0cyBjbGllbnRzOiB3aGlsZSBpdCBz
dHJlYW1zLCBTSUdJTlQgY2FuIGxlYXZlIGl0IGhhbmdpbmcgd2l0aCBpdHMgcG9ydCBjbG9zZWQu
ClRpbWVvdXRTdG9wU2VjPTEKIyBFYWNoIGNvbm5lY3Rpb24gaXMgYW4gb3BlbiBmaWxlLCBhbmQg
dGhlIGZpcnN0IDEsMDAwIG9yIHNvIGFyZSBhIHRocmVhZCBlYWNoOyBzeXN0ZW1kJ3Mgb3duIGxp
bWl0IGlzIDEsMDI0IGZpbGVzLgpMaW1pdE5PRklMRT0xNjM4NApUYXNrc01heD00MDk2CiMgRGll
cyBiZWZvcmUgc3NoZCBkb2VzIHdoZW4gbWVtb3J5IHJ1bnMgb3V0LgpPT01TY29yZUFkanVzdD01
MDAKRW52aXJvbm1lbnQ9TExBTUFIRVJEX1NQRUM9ZWEzZDM2YTdhMDcyCiMgTm8gY29uZmlndXJh
dGlvbiBidXQgdGhpcyBmaWxlOiBsbGFtYS5jcHAgcmVhZHMgY29uZmlnLmluaSBmcm9tIGhlcmUg
YW5kIGZyb20gL2V0Yy9sbGFtYS5jcHAuCkVudmlyb25tZW50PVhER19DT05GSUdfSE9NRT0vbm9u
ZXhpc3RlbnQKSW5hY2Nlc3NpYmxlUGF0aHM9LS9ldGMvbGxhbWEuY3BwCgpVc2VyPWxsYW1hLWNo
YXQKR3JvdXA9bGxhbWEtY2hhdApVTWFzaz0wMDc3Ck5vTmV3UHJpdmlsZWdlcz15ZXMKQ2FwYWJp
bGl0eUJvdW5kaW5nU2V0PQpBbWJpZW50Q2FwYWJpbGl0aWVzPQpQcml2YXRlRGV2aWNlcz15ZXMK
RGV2aWNlUG9saWN5PWNsb3NlZApQcm9jU3Vic2V0PXBpZApJUEFkZHJlc3NEZW55PWFueQpJUEFk
ZHJlc3NBbGxvdz1sb2NhbGhvc3QKTG9ja1BlcnNvbmFsaXR5PXllcwpNZW1vcnlEZW55V3JpdGVF
eGVjdXRlPXllcwpQcml2YXRlSVBDPXllcwpQcml2YXRlVG1wPXllcwpQcm90ZWN0Q2xvY2s9eWVz
ClByb3RlY3RDb250cm9sR3JvdXBzPXllcwpQcm90ZWN0SG9tZT15ZXMKUHJvdGVjdEhvc3RuYW1l
PXllcwpQcm90ZWN0S2VybmVsTG9ncz15ZXMKUHJvdGVjdEtlcm5lbE1vZHVsZXM9eWVzClByb3Rl
Y3RLZXJuZWxUdW5hYmxlcz15ZXMKUHJvdGVjdFByb2M9aW52aXNpYmxlClByb3RlY3RTeXN0ZW09
c3RyaWN0ClJlbW92ZUlQQz15ZXMKUmVzdHJpY3RBZGRyZXNzRmFtaWxpZXM9QUZfSU5FVCBBRl9J
TkVUNiBBRl9VTklYClJlc3RyaWN0TmFtZXNwYWNlcz15ZXMKUmVzdHJpY3RSZWFsdGltZT15ZXMK
UmVzdHJpY3RTVUlEU0dJRD15ZXMKU3lzdGVtQ2FsbEFyY2hpdGVjdHVyZXM9bmF0aXZlClN5c3Rl
bUNhbGxFcnJvck51bWJlcj1FUEVSTQpTeXN0ZW1DYWxsRmlsdGVyPUBzeXN0ZW0tc2VydmljZQpT
eXN0ZW1DYWxsRmlsdGVyPX5AcHJpdmlsZWdlZAoKW0luc3RhbGxdCldhbnRlZEJ5PW11bHRpLXVz
ZXIudGFyZ2V0CgoKIyBJdCBsYXN0cyBmb3IgYSBibG9jayBhdCBtb3N0OiBpdCBjb21lcyBiYWNr
IG5laXRoZXIgYnkgaXRzZWxmIG5vciBhdCBhIGJvb3QsIGFuZCBlbmRzIHdoZXJlIG5vYm9keSBl
bmRzIGl0LgpbU2VydmljZV0KUmVzdGFydD1ubwpSdW50aW1lTWF4U2VjPTIxMDAK
END
put_file /run/llamaherd/arms-text /run/llamaherd 0644 root <<'END'
V2hhdCBpcyByZWFkLgo=
END

) && systemctl daemon-reload || exit 1
# A word now and then: the connection to somebody whose line was cut is given up then.
while sleep 15; do
    kill -0 $$ 2>/dev/null || exit
    echo
done 7>&- 8>&- &
words=$!
# Nobody else measures or changes anything here from now on: gateways can be told that it is about to be stopped.
echo mine
read -r go && [ "$go" = go ] || exit 1
# What a server is answering ends before it does, as far as that takes no longer than it may. How to ask it is kept since
# it was started; $1 says how to ask another. Then new connections are refused where the host can do that, for seconds
# at most: `let_in` is to come after the server was stopped.
drain() {
    grep -qs '"metrics"' "${1:-/nonexistent/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/nonexistent/last/asked}" 30 2009999999 ${direct:+led} <<'END'
"""Wait until a server answers no request any more, for so many seconds at most, and have none come after the last."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlsplit

NFT = "/usr/sbin/nft"
LARGEST = 1 << 20
"""Bytes of an answer."""
LONGEST = 3.0
"""Seconds of one."""
BUSY = re.compile(
    r"^(?:llamacpp:requests_(?:processing|deferred)|vllm:num_requests_(?:running|waiting))\S* ([0-9.]+)", re.MULTILINE
)
ARRIVES = 0.05
"""Seconds in which a request follows its connection."""
# The kernel lets all in again by itself, whoever is killed in the middle. Nothing that is led elsewhere gets here: a
# rule for that comes later on a packet's way. Only this program, by its group, gets through on the host itself.
SHUT = Template("""
table inet llamaherd-shut {}
delete table inet llamaherd-shut
table inet llamaherd-shut {
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
NEW = "fib daddr type local tcp flags & (fin | syn | rst | ack) == syn"
OPEN = "delete table inet llamaherd-shut\n"


def main(path: str, seconds: float, group: int, led: bool) -> None:
    asked = json.loads(Path(path).read_text(encoding="utf-8"))
    end = time.monotonic() + seconds
    told = False
    while count := in_flight(asked) or (0 if led else last_look(asked, group)):
        if time.monotonic() > end:
            sys.stdout.write(f"{count} of them did not end in time, and {'are' if count > 1 else 'is'} cut off\n")
            return
        if not told:
            plural = "s" if count > 1 else ""
            sys.stdout.write(f"waiting for {count} request{plural} in flight, for up to {seconds:g} s\n")
            sys.stdout.flush()
            told = True
        time.sleep(0.2)


def last_look(asked: dict[str, Any], group: int) -> int:
    """Requests that have come since the first one; where there are none, new connections are refused from here on."""
    ports = sorted({str(port) for url in urls(asked) if (port := urlsplit(url).port)})
    try:
        os.setegid(group)
    except OSError:
        return 0
    if not ports or not nft(SHUT.substitute(ports=", ".join(ports), new=NEW, group=group)):
        return 0
    time.sleep(ARRIVES)
    if count := in_flight(asked):
        nft(OPEN)
    return count


def nft(rules: str) -> bool:
    """Whether the kernel has these rules; not every host can."""
    try:
        ended = subprocess.run([NFT, "-f", "-"], input=rules.encode(), capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return ended.returncode == 0


def in_flight(asked: dict[str, Any]) -> int:
    """Requests that are answered or wait for that, of all models that it has."""
    return sum(in_flight_at(url, asked) for url in urls(asked))


def urls(asked: dict[str, Any]) -> list[str]:
    return asked["metrics"] if isinstance(asked["metrics"], list) else [asked["metrics"]]


def in_flight_at(url: str, asked: dict[str, Any]) -> int:
    """The same of one model; 0 where nobody says. One that is too busy to say answers some."""
    request = urllib.request.Request(url)
    if asked["key"]:
        request.add_header("Authorization", "Bearer " + key(asked))
    # No proxy: this host is asked.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with within(LONGEST), opener.open(request, timeout=2) as answer:
            said = answer.read(LARGEST).decode(errors="replace")
    except OSError as error:
        return int(isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError))
    return round(sum(float(number) for number in BUSY.findall(said)))


def key(asked: dict[str, Any]) -> str:
    """The key of the server that runs: kept with what is asked of it, since a new one may lie in its place by now."""
    path = Path(sys.argv[1])
    kept = path.with_name("key")
    known = path.name == "asked" and kept.exists()
    return (kept if known else Path(asked["key"])).read_text(encoding="utf-8").strip()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in what takes longer, a byte now and then or not."""

    def late(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), "led" in sys.argv[4:])
END
}
let_in() { nft delete table inet llamaherd-shut 2>/dev/null || :; }
drain /var/lib/llamaherd/kept/llama-chat/last/asked
systemctl stop llama-chat.service
let_in
start() {
    began=$(date +%s%3N)
    if systemctl start "$2" 2>/dev/null; then
        echo "ready $1 $(($(date +%s%3N) - began)) $(systemctl show -P InvocationID "$2")"
    else
        [ "$(systemctl show -P Result "$2")" = oom-kill ] && why='the system ended it for want of RAM; ' || why=''
        echo "failed $1 $why$(journalctl -q _SYSTEMD_INVOCATION_ID="$(systemctl show -P InvocationID "$2")" -n 3 --no-pager -o cat | tr -s '\n\t' '  ' | cut -c -300)"
    fi
}
judge() {
    free=$(df -PB1 /var/tmp | awk 'END { print $4 }')
    if [ "${free:-0}" -lt "$2" ]; then
        printf '%s\n' "failed - there is no room in /var/tmp: $2 bytes are needed, ${free:-0} are free"
        return
    fi
    if systemctl start "$1" 2>/dev/null; then word=judged; else word=failed; fi
    case $(systemctl show -P Result "$1") in
        oom-kill) why='the system ended it for want of RAM; ' ;;
        timeout) why='it took too long; ' ;;
        *) why='' ;;
    esac
    journalctl --sync 2>/dev/null
    said() { journalctl -q _SYSTEMD_INVOCATION_ID="$(systemctl show -P InvocationID "$1")" -n "$2" --no-pager -o cat; }
    if [ $word = judged ]; then
        echo "judged $(said "$1" 200 | tail -c 30000 | base64 -w 0)"
    else
        printf '%s\n' "failed - $why$(said "$1" 5 | tr -s '\n\t' '  ' | tail -c 500)"
    fi
}
echo armed
while read -r what arm; do
    case $what-$arm in
    # In braces: a shell keeps what it closes for a function of its own, and with that the locks.
    start-C) { start C llamaherd-arm-c-chat.service; } </dev/null 7>&- 8>&- & ;;
    stop-)
        systemctl stop llamaherd-arm-c-chat.service 2>/dev/null
        systemctl reset-failed llamaherd-arm-c-chat.service 2>/dev/null
        echo stopped
        ;;
    unit-*)
        # What is read here is base64: no line end, and no quote.
        if printf %s "$arm" | base64 -d >/run/systemd/system/llamaherd-arm-c-chat.service.part && mv /run/systemd/system/llamaherd-arm-c-chat.service.part /run/systemd/system/llamaherd-arm-c-chat.service && systemctl daemon-reload; then
            echo placed
        else
            echo "failed the unit of a candidate cannot be written"
        fi
        ;;
    judge-*) { judge llamaherd-arm-c-chat.service "$arm"; } </dev/null 7>&- 8>&- & ;;
    esac
done
at_exit
trap - EXIT
began=$(date +%s%3N)
if [ -z "$served" ] || systemctl start $served 2>/dev/null; then
    echo "back $(($(date +%s%3N) - began))"
else
    echo "away$served"
fi
kill $words 2>/dev/null
