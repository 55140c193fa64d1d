# An instance that the inventory no longer has, or has elsewhere, is stopped and forgotten. Models and builds stay.
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
hold 8 host 3600 'removing old' || exit 1
# What a server is answering ends before it does, as far as that takes no longer than it may. How to ask it is kept since
# it was started; $1 says how to ask another. Then new connections are refused where the host can do that, for seconds
# at most: `let_in` is to come after the server was stopped.
drain() {
    grep -qs '"metrics"' "${1:-/var/lib/llamaherd/kept/llama-old/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/var/lib/llamaherd/kept/llama-old/last/asked}" 30 2009999999 ${direct:+led} <<'END'
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
drain
systemctl stop llamaherd-beside-old.service 2>/dev/null
systemctl disable -q --now llama-old.service
# The unit's file goes after its user: as long as it is there, the next run knows that this one did not end.
! id -u llama-old >/dev/null 2>&1 || userdel llama-old || exit 1
rm -f /etc/systemd/system/llama-old.service /run/llamaherd/started/llama-old
systemctl daemon-reload
systemctl reset-failed llama-old.service 2>/dev/null
systemctl stop llamaherd-probation-old.service 2>/dev/null
rm -rf /etc/llamaherd/keys/old /var/lib/llamaherd/kept/llama-old /var/lib/llamaherd/refused/llama-old
:

let_in
