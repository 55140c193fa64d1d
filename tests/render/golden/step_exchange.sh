# Servers that exchange something change together: all of them, or none. How to end that is written down on the host before
# the first one is stopped: whatever ends this script, the next run does the rest.
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
hold 8 host 3600 'changing llama-chat, llama-drafter' || exit 1
# It goes on when nobody listens any more.
trap : PIPE
exchange=/var/lib/llamaherd/kept/.exchange
if [ -s "$exchange/back" ]; then
    echo 'another run was cut off while it changed llama-chat, llama-drafter, or others, so they were left as they are' >&2
    echo "  help: run \`herd up\` again, which ends that first" >&2
    exit 1
fi
check_1() (
# A user of a server's own, who owns nothing else and cannot log in.
account() {
    id -u "$1" >/dev/null 2>&1 ||
        useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$1"
}
# A run that held the lock before us may have gone on to a container, and have taken the unit's user with it.
account llama-chat || exit 1
# The engine itself says whether it understands these arguments: it reads them all before --version ends it.
# `timeout`, since an argument that swallows --version would start the server. Any file does for a key: this one needs no
# room on a disk.
key=/proc/version
said=$(timeout 20 setpriv --reuid llama-chat --regid llama-chat --clear-groups --no-new-privs \
    env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server --model /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/gemma.gguf --alias gemma --ctx-size 8192 --cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on --parallel 1 --threads 1 --host 127.0.0.1 --port 8080 --metrics --api-key-file "$key" --version 2>&1)
rc=$?
case $rc in
124 | 126 | 127 | 137)
    printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "instance chat: /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server --version did not end by itself within 20 s, or could not be run (exit code $rc), so its arguments are not checked; the instance was left as it was" >&2
    exit 1
    ;;
esac
if [ $rc != 0 ] || ! printf '%s\n' "$said" | grep -q '^version:'; then
    printf '%s\n' "$said" | grep -i error | head -n 5 >&2
    printf '%s\n' "$said" | grep -qi error || printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "instance chat: /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server does not accept its arguments; the instance was left as it was" >&2
    exit 1
fi

# A switch is taken back where what is new does not serve: what served before is kept, and comes back. So it goes on when
# nobody listens any more: whoever began it may be gone, and what is new may not serve.
trap : PIPE
exec 4>&1  # progress, while stdout is read for a reason
kept=/var/lib/llamaherd/kept/llama-chat refused=/var/lib/llamaherd/refused/llama-chat
[ -x /opt/llamaherd/libexec/prove ] || {
    echo "/opt/llamaherd/libexec/prove, which proves servers, is not on this host, so llama-chat was left as it is" >&2
    echo "  help: \`herd up\` installs it" >&2
    exit 1
}
beside=llamaherd-beside-chat beside_file=/run/systemd/system/llamaherd-beside-chat.service beside_asked='' beside_proved='' direct=''
[ ! -e "$beside_file" ] || direct='setpriv --regid 2009999999 --clear-groups'
# A server beside goes on where it is the only one that serves: for as long as its unit lets it.
at_exit() {
    if [ -e "$beside_file" ]; then
        if [ -n "$(spec_of unit)" ]; then
            end_beside
        else
            echo "what was tried beside llama-chat answers in its place, until \`herd up\` has it serve again, or for as long as \`systemctl status $beside\` says" >&2
        fi
    fi
    rm -f "$asked" "$asked".* "$beside_asked"
}
asked=$(mktemp) && trap at_exit EXIT && base64 -d >"$asked" <<'END' || exit 1
eyJ1cmwiOiAiaHR0cDovLzEyNy4wLjAuMTo4MDgwL3YxL2NoYXQvY29tcGxldGlvbnMiLCAibWV0
cmljcyI6ICJodHRwOi8vMTI3LjAuMC4xOjgwODAvbWV0cmljcyIsICJrZXkiOiAiL2V0Yy9sbGFt
YWhlcmQva2V5cy9jaGF0IiwgInNlY29uZHMiOiAxMjAsICJkcmFmdHMiOiAwLCAiZmxvb3IiOiAw
LCAiYm9keSI6IHsibW9kZWwiOiAiZ2VtbWEiLCAibWVzc2FnZXMiOiBbeyJyb2xlIjogInVzZXIi
LCAiY29udGVudCI6ICJUaGUgdGhyZWUgcHJpbWFyeSBjb2xvdXJzIGFyZSJ9XSwgInRlbXBlcmF0
dXJlIjogMCwgIm1heF90b2tlbnMiOiA4fSwgImtpbmQiOiAiY2hhdCIsICJtb2RlbHMiOiBbImdl
bW1hIl0sICJtb2RlbHNfcGF0aCI6ICIvdjEvbW9kZWxzIiwgInByb3BzX3BhdGgiOiAiL3Byb3Bz
IiwgImhlYWx0aF9wYXRoIjogIi9oZWFsdGgiLCAibGlzdGVuIjogIjEyNy4wLjAuMSIsICJjbG9z
ZWQiOiB0cnVlLCAiY29udGV4dCI6IDgxOTIsICJzYW1lIjogIjJiNGExMDJkNzE0MiIsICJzcGVj
IjogImVhM2QzNmE3YTA3MiJ9
END
file_of() { if [ "$1" = unit ]; then echo /etc/systemd/system/llama-chat.service; else echo /etc/llamaherd/compose/chat/compose.yaml; fi; }
how_kept() {
    printf 'was_kind=%s was_spec=%s was_seconds=%s was_file=%s was_key=%s\n' "$1" "$2" 300 "$(file_of "$1")" /etc/llamaherd/keys/chat
    printf 'was_inputs=%s\n' ''"'"'/etc/llamaherd/keys/chat /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5'"'"''
}
# $1 unit or container, $2 the spec that serves, $3 how to ask it, if that is known. All at once, by one link.
keep() (
    umask 077
    install -d -m 0700 "${kept%/*}" "$kept" && new=$(mktemp -d "$kept/XXXXXXXX") || exit 1
    cp -p "$(file_of "$1")" "$new/file" && { [ ! -f /etc/llamaherd/keys/chat ] || cp -p /etc/llamaherd/keys/chat "$new/key"; } &&
        { [ -z "${3:-}" ] || cp "$3" "$new/asked"; } &&
        { speeds=$asked.speeds && [ -s "$speeds" ] || speeds=$kept/last/speeds; [ ! -s "$speeds" ] || cp "$speeds" "$new/speeds"; } &&
        { [ "$2" != ea3d36a7a072 ] || printf '%s\n' ea3d36a7a072 >"$new/holds"; } &&
        { [ -z "${loaded:-}" ] || printf '%s\t%s\n' "$loaded" /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 >"$new/loaded"; } && how_kept "$1" "$2" >"$new/how" && sync "$new"/* &&
        ln -sfn "${new##*/}" "$kept/last.new" && mv -fT "$kept/last.new" "$kept/last" || { rm -rf "$new"; exit 1; }
    for each in "$kept"/*; do [ -L "$each" ] || [ "$each" = "$new" ] || [ "$each" -ef "$kept/before" ] || rm -rf "$each"; done
)
# The previous version stays until the new one has passed its probation.
keep_new() {
    replaced=''
    [ ! -f "$kept/last/how" ] || [ "$(was)" = ea3d36a7a072 ] || { ln -sfn "$(readlink "$kept/last")" "$kept/before" && replaced=yes; }
    keep unit ea3d36a7a072 "$asked" || {
        replaced=''
        echo "llama-chat serves, and cannot be kept in $kept: a later change that fails cannot come back to it"
    }
    rm -f "$refused"
}
# From here on, the host itself probes the new version, and restores the previous one if it fails.
start_probation() {
    [ "$replaced" ] || return 0
    systemctl stop llamaherd-probation-chat 2>/dev/null
    (umask 077 && install -d -m 0700 /run/llamaherd/probation && base64 -d >/run/llamaherd/probation/llama-chat.json) <<'END' &&
W3sic2VydmljZSI6ICJsbGFtYS1jaGF0IiwgImtpbmQiOiAidW5pdCIsICJzcGVjIjogImVhM2Qz
NmE3YTA3MiIsICJ0cmllZCI6ICJiNWYzZDA0MDRmYTciLCAiaW5zdGFuY2UiOiAiY2hhdCIsICJ1
c2VyIjogImxsYW1hLWNoYXQiLCAia2VwdCI6ICIvdmFyL2xpYi9sbGFtYWhlcmQva2VwdC9sbGFt
YS1jaGF0IiwgInJlZnVzZWQiOiAiL3Zhci9saWIvbGxhbWFoZXJkL3JlZnVzZWQvbGxhbWEtY2hh
dCIsICJyZWxlYXNlcyI6ICIvdmFyL2xpYi9sbGFtYWhlcmQvcmVsZWFzZXMiLCAibG9ja3MiOiAi
L3J1bi9sbGFtYWhlcmQvbG9ja3MiLCAibG9ja19zZWNvbmRzIjogMzYwMCwgInNlY29uZHMiOiAx
MjAsICJwcm9tcHRzIjogdHJ1ZSwgInByb3ZlIjogIi9vcHQvbGxhbWFoZXJkL2xpYmV4ZWMvcHJv
dmUiLCAic3RhcnRlZCI6ICIvb3B0L2xsYW1haGVyZC9saWJleGVjL3N0YXJ0ZWQiLCAiZm9yZ2V0
IjogInN5c3RlbWN0bCBzdG9wIGxsYW1haGVyZC1iZXNpZGUtY2hhdC5zZXJ2aWNlIDI+L2Rldi9u
dWxsXG5zeXN0ZW1jdGwgZGlzYWJsZSAtcSAtLW5vdyBsbGFtYS1jaGF0LnNlcnZpY2VcbiMgVGhl
IHVuaXQncyBmaWxlIGdvZXMgYWZ0ZXIgaXRzIHVzZXI6IGFzIGxvbmcgYXMgaXQgaXMgdGhlcmUs
IHRoZSBuZXh0IHJ1biBrbm93cyB0aGF0IHRoaXMgb25lIGRpZCBub3QgZW5kLlxuISBpZCAtdSBs
bGFtYS1jaGF0ID4vZGV2L251bGwgMj4mMSB8fCB1c2VyZGVsIGxsYW1hLWNoYXQgfHwgZXhpdCAx
XG5ybSAtZiAvZXRjL3N5c3RlbWQvc3lzdGVtL2xsYW1hLWNoYXQuc2VydmljZSAvcnVuL2xsYW1h
aGVyZC9zdGFydGVkL2xsYW1hLWNoYXRcbnN5c3RlbWN0bCBkYWVtb24tcmVsb2FkXG5zeXN0ZW1j
dGwgcmVzZXQtZmFpbGVkIGxsYW1hLWNoYXQuc2VydmljZSAyPi9kZXYvbnVsbFxuOlxuIn1d
END
        systemd-run --quiet --collect --unit=llamaherd-probation-chat --property=RuntimeMaxSec=7800 /opt/llamaherd/libexec/probation /run/llamaherd/probation/llama-chat.json ||
        echo "llama-chat serves, but its probation did not start: the host does not roll it back if it fails within a minute" >&2
}
# What was started and has not answered a prompt yet, a spec each line: it stands there before anything is changed, since
# a run may be killed, or its host, and systemd starts what is new at the next boot. Gone with the next that is kept.
untried() { grep -Fqsx "$1" "$kept/untried"; }
mark_untried() {
    # A probation would mistake what is stopped and tried from here on for the server that it watches.
    systemctl stop llamaherd-probation-chat 2>/dev/null
    ! untried ea3d36a7a072 || { unproven=yes; return; }
    unproven=''
    (umask 077 && install -d -m 0700 "${kept%/*}" "$kept" && echo ea3d36a7a072 >>"$kept/untried" && sync "$kept/untried") || {
        echo "cannot write $kept/untried, so llama-chat was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
was() { sed -n "s/.*was_spec=\([^ ]*\) .*/\1/p" "$kept/last/how" 2>/dev/null; }
spec_of() {
    if [ "$1" = unit ]; then
        systemctl -q is-active llama-chat.service && sed -z -n 's/^LLAMAHERD_SPEC=//p' "/proc/$(systemctl show -P MainPID llama-chat.service)/environ" | tr -d '\0'
    else
        docker inspect --type container --format '{{if eq .State.Status "running"}}{{with .State.Health}}{{if eq .Status "healthy"}}{{index $.Config.Labels "llamaherd.spec"}}{{end}}{{end}}{{end}}' llama-chat
    fi 2>/dev/null
}
# What an earlier version of ours started, or somebody since, is not kept yet. Its file is the one that it was started from
# if it says the same spec.
keep_what_serves() {
    serving=$(spec_of "$1")
    [ -z "$serving" ] || [ "$serving" = "$(was)" ] || { [ -f "$kept/last/how" ] && untried "$serving"; } || ! grep -Fqs "$serving" "$(file_of "$1")" || keep "$1" "$serving" || {
        echo "cannot keep what serves as llama-chat in $kept, so it was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
# $1 how to ask it. What was declared before, or by another key alone, is not judged by its speed.
proved() {
    how=judge limit=300 proves=llama-chat
    [ "$(was)" != ea3d36a7a072 ] || how=''
    case $1 in
    "$asked") ;;
    "$beside_asked") how=beside proves=$beside ;;
    *) how=back limit=$was_seconds ;;
    esac
    LEFT=$((began + limit - $(date +%s))) PROVED=$beside_proved PROGRESS=4 BESIDE=$beside_asked $direct /opt/llamaherd/libexec/prove "$1" "$kept/last/speeds" "$asked.speeds" "$how" \
        $(systemctl show -P MainPID "$proves.service") $(docker top "$proves" -eo pid 2>/dev/null | sed 1d)
}
# What was put back is as slow as what it was put back for: the host is, and it is nobody's fault.
host_is_slow() {
    [ -s "$asked.speeds.slow" ] && [ -s "$asked.speeds" ] && cp "$asked.speeds" "$kept/last/speeds.new" && mv -fT "$kept/last/speeds.new" "$kept/last/speeds" || return 1
    echo "what served before decodes no faster now: \`herd up\` tries what is declared again, and compares with that"
}
# What a server is answering ends before it does, as far as that takes no longer than it may. How to ask it is kept since
# it was started; $1 says how to ask another. Then new connections are refused where the host can do that, for seconds
# at most: `let_in` is to come after the server was stopped.
drain() {
    grep -qs '"metrics"' "${1:-/var/lib/llamaherd/kept/llama-chat/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/var/lib/llamaherd/kept/llama-chat/last/asked}" 30 2009999999 ${direct:+led} <<'END'
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
# What a server beside answers ends before it does, while new connections go to the declared one again.
end_beside() {
    [ -e "$beside_file" ] || return 0
    nft flush table inet "$beside" 2>/dev/null
    [ -z "$direct" ] || [ -z "$beside_asked" ] || drain "$beside_asked"
    systemctl stop "$beside" 2>/dev/null
    # Its unit does so as well, but what a unit does at its end has no longer than its stop may take.
    nft delete table inet "$beside" 2>/dev/null
    rm -f "$beside_file" /run/llamaherd/beside/chat.yaml "/run/llamaherd/started/$beside"
    systemctl daemon-reload
    systemctl reset-failed "$beside" 2>/dev/null
    direct=''
}
put_back() { [ ! -f "$kept/last/$1" ] || { cp -p "$kept/last/$1" "$2.llamaherd-new" && mv -fT "$2.llamaherd-new" "$2"; }; }
start_what_was() {
    if [ "$was_kind" = unit ]; then
        systemctl -q --no-reload enable llama-chat.service && systemctl daemon-reload || return 1
        systemctl reset-failed llama-chat.service 2>/dev/null
        systemctl start llama-chat.service 2>/dev/null
    else
        docker compose --progress plain -f "$was_file" up -d --force-recreate --remove-orphans --wait --wait-timeout "$was_seconds" >/run/llamaherd-compose.log 2>&1 || return 1
        eval "set -- $was_inputs"
        /opt/llamaherd/libexec/started record container llama-chat "$@"
    fi
}
note_refused() { (umask 077 && mkdir -p "${refused%/*}" && printf '%s\t%s\t%s\n' b5f3d0404fa7 "$(date +'%F %T')" "$(printf %s "$1" | tr -s '\t\n' '  ' | cut -c -300)" >"$refused"); }
# All that change with it go back as well: whoever has begun this sees to that. $1 is why.
take_back() {
    printf '%s\n' "$1" >"$exchange/why"
    [ "$(was)" = ea3d36a7a072 ] || note_refused "$1"
    [ ! -f "$kept/last/how" ] || [ "$(was)" = ea3d36a7a072 ] || exit 1
}
# What is not declared any more goes on until what is new has answered a prompt, where both have room. Else it is stopped,
# and comes back where what is new does not serve: a mark beside what is kept of it says so, also to a later run.
# So does what is about to: at a boot, or after it could not have its port.
runs() {
    case $(systemctl show -P ActiveState -P Job "$1.service" 2>/dev/null | tr '\n' ' ') in active* | activating* | reloading* | *[0-9]*) return 0 ;; esac
    case $(docker inspect --type container --format '{{.State.Status}}' "$1" 2>/dev/null) in running | restarting) return 0 ;; esac
    return 1
}
any_going() {
    if [ -e /var/lib/llamaherd/kept/llama-old/aside ] || runs llama-old; then return 0; fi
    if [ -e /var/lib/llamaherd/kept/llama-boxed/aside ] || runs llama-boxed; then return 0; fi
    return 1
}
no_room_with_going() {
    echo 'how much llama-chat takes is not certain'
    return 1
}
# $1 is who, $2 what is kept of it, $3 why.
step_aside() {
    runs "$1" || return 0
    echo "stopping $1, which is not declared any more: $3"
    drain "$2/last/asked"
    (umask 077 && install -d -m 0700 "${2%/*}" "$2" && : >"$2/aside" && sync "$2/aside") || exit 1
    systemctl stop "$1.service" 2>/dev/null
    docker stop "$1" >/dev/null 2>&1
    let_in
}
going_steps_aside() {
    step_aside llama-old /var/lib/llamaherd/kept/llama-old 'its port is to be that of llama-chat'
    room=$(no_room_with_going) && return
    step_aside llama-boxed /var/lib/llamaherd/kept/llama-boxed "$room"
}
instead=llama-chat
# $1 is who, $2 what is kept of it, $3 its Compose file; $instead does not serve.
come_back() {
    [ -e "$2/aside" ] || return 0
    back='' began=$(date +%s)
    if [ -e "/etc/systemd/system/$1.service" ]; then
        systemctl reset-failed "$1.service" 2>/dev/null
        systemctl start "$1.service" 2>/dev/null && back=yes
    elif [ -e "$3" ]; then
        docker compose --progress plain -f "$3" up -d --no-recreate --wait >/run/llamaherd-compose.log 2>&1 && back=yes
    fi
    if [ "$back" ]; then
        rm -f "$2/aside"
        echo "$1 serves again, after $(($(date +%s) - began)) s: $instead does not serve in its place" >&2
    else
        echo "$1 was started again, as $instead does not serve in its place, and does not come up either" >&2
    fi
}
going_comes_back() {
    come_back llama-old /var/lib/llamaherd/kept/llama-old /etc/llamaherd/compose/old/compose.yaml
    come_back llama-boxed /var/lib/llamaherd/kept/llama-boxed /etc/llamaherd/compose/boxed/compose.yaml
}
# Whose place is taken does not come back, also where another instance of this run fails.
going_has_gone() {
    :
    rm -f /var/lib/llamaherd/kept/llama-old/aside
}
# Ends the run, where others serve in its place. What failed may still run. $1 is why.
give_way() {
    any_going || return 0
    systemctl disable -q --now llama-chat.service
    systemctl reset-failed llama-chat.service 2>/dev/null
    note_refused "$1"
    echo "llama-chat is stopped, and what it was to replace goes on, llama-old, llama-boxed: what is declared did not serve, since $1" >&2
    echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    exit 1
}
keep_what_serves unit

)
switch_1() (
# A user of a server's own, who owns nothing else and cannot log in.
account() {
    id -u "$1" >/dev/null 2>&1 ||
        useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$1"
}
# A run that held the lock before us may have gone on to a container, and have taken the unit's user with it.
account llama-chat || exit 1
# A switch is taken back where what is new does not serve: what served before is kept, and comes back. So it goes on when
# nobody listens any more: whoever began it may be gone, and what is new may not serve.
trap : PIPE
exec 4>&1  # progress, while stdout is read for a reason
kept=/var/lib/llamaherd/kept/llama-chat refused=/var/lib/llamaherd/refused/llama-chat
[ -x /opt/llamaherd/libexec/prove ] || {
    echo "/opt/llamaherd/libexec/prove, which proves servers, is not on this host, so llama-chat was left as it is" >&2
    echo "  help: \`herd up\` installs it" >&2
    exit 1
}
beside=llamaherd-beside-chat beside_file=/run/systemd/system/llamaherd-beside-chat.service beside_asked='' beside_proved='' direct=''
[ ! -e "$beside_file" ] || direct='setpriv --regid 2009999999 --clear-groups'
# A server beside goes on where it is the only one that serves: for as long as its unit lets it.
at_exit() {
    if [ -e "$beside_file" ]; then
        if [ -n "$(spec_of unit)" ]; then
            end_beside
        else
            echo "what was tried beside llama-chat answers in its place, until \`herd up\` has it serve again, or for as long as \`systemctl status $beside\` says" >&2
        fi
    fi
    rm -f "$asked" "$asked".* "$beside_asked"
}
asked=$(mktemp) && trap at_exit EXIT && base64 -d >"$asked" <<'END' || exit 1
eyJ1cmwiOiAiaHR0cDovLzEyNy4wLjAuMTo4MDgwL3YxL2NoYXQvY29tcGxldGlvbnMiLCAibWV0
cmljcyI6ICJodHRwOi8vMTI3LjAuMC4xOjgwODAvbWV0cmljcyIsICJrZXkiOiAiL2V0Yy9sbGFt
YWhlcmQva2V5cy9jaGF0IiwgInNlY29uZHMiOiAxMjAsICJkcmFmdHMiOiAwLCAiZmxvb3IiOiAw
LCAiYm9keSI6IHsibW9kZWwiOiAiZ2VtbWEiLCAibWVzc2FnZXMiOiBbeyJyb2xlIjogInVzZXIi
LCAiY29udGVudCI6ICJUaGUgdGhyZWUgcHJpbWFyeSBjb2xvdXJzIGFyZSJ9XSwgInRlbXBlcmF0
dXJlIjogMCwgIm1heF90b2tlbnMiOiA4fSwgImtpbmQiOiAiY2hhdCIsICJtb2RlbHMiOiBbImdl
bW1hIl0sICJtb2RlbHNfcGF0aCI6ICIvdjEvbW9kZWxzIiwgInByb3BzX3BhdGgiOiAiL3Byb3Bz
IiwgImhlYWx0aF9wYXRoIjogIi9oZWFsdGgiLCAibGlzdGVuIjogIjEyNy4wLjAuMSIsICJjbG9z
ZWQiOiB0cnVlLCAiY29udGV4dCI6IDgxOTIsICJzYW1lIjogIjJiNGExMDJkNzE0MiIsICJzcGVj
IjogImVhM2QzNmE3YTA3MiJ9
END
file_of() { if [ "$1" = unit ]; then echo /etc/systemd/system/llama-chat.service; else echo /etc/llamaherd/compose/chat/compose.yaml; fi; }
how_kept() {
    printf 'was_kind=%s was_spec=%s was_seconds=%s was_file=%s was_key=%s\n' "$1" "$2" 300 "$(file_of "$1")" /etc/llamaherd/keys/chat
    printf 'was_inputs=%s\n' ''"'"'/etc/llamaherd/keys/chat /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5'"'"''
}
# $1 unit or container, $2 the spec that serves, $3 how to ask it, if that is known. All at once, by one link.
keep() (
    umask 077
    install -d -m 0700 "${kept%/*}" "$kept" && new=$(mktemp -d "$kept/XXXXXXXX") || exit 1
    cp -p "$(file_of "$1")" "$new/file" && { [ ! -f /etc/llamaherd/keys/chat ] || cp -p /etc/llamaherd/keys/chat "$new/key"; } &&
        { [ -z "${3:-}" ] || cp "$3" "$new/asked"; } &&
        { speeds=$asked.speeds && [ -s "$speeds" ] || speeds=$kept/last/speeds; [ ! -s "$speeds" ] || cp "$speeds" "$new/speeds"; } &&
        { [ "$2" != ea3d36a7a072 ] || printf '%s\n' ea3d36a7a072 >"$new/holds"; } &&
        { [ -z "${loaded:-}" ] || printf '%s\t%s\n' "$loaded" /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 >"$new/loaded"; } && how_kept "$1" "$2" >"$new/how" && sync "$new"/* &&
        ln -sfn "${new##*/}" "$kept/last.new" && mv -fT "$kept/last.new" "$kept/next" || { rm -rf "$new"; exit 1; }
    # What served before stays the last that is kept until all that change with this one serve.
    exit 0
    for each in "$kept"/*; do [ -L "$each" ] || [ "$each" = "$new" ] || [ "$each" -ef "$kept/before" ] || rm -rf "$each"; done
)
# The previous version stays until the new one has passed its probation.
keep_new() {
    replaced=''
    [ ! -f "$kept/last/how" ] || [ "$(was)" = ea3d36a7a072 ] || { ln -sfn "$(readlink "$kept/last")" "$kept/before" && replaced=yes; }
    keep unit ea3d36a7a072 "$asked" || {
        replaced=''
        echo "llama-chat serves, and cannot be kept in $kept: a later change that fails cannot come back to it"
    }
    rm -f "$refused"
}
# From here on, the host itself probes the new version, and restores the previous one if it fails.
start_probation() {
    [ "$replaced" ] || return 0
    systemctl stop llamaherd-probation-chat 2>/dev/null
    (umask 077 && install -d -m 0700 /run/llamaherd/probation && base64 -d >/run/llamaherd/probation/llama-chat.json) <<'END' &&
W3sic2VydmljZSI6ICJsbGFtYS1jaGF0IiwgImtpbmQiOiAidW5pdCIsICJzcGVjIjogImVhM2Qz
NmE3YTA3MiIsICJ0cmllZCI6ICJiNWYzZDA0MDRmYTciLCAiaW5zdGFuY2UiOiAiY2hhdCIsICJ1
c2VyIjogImxsYW1hLWNoYXQiLCAia2VwdCI6ICIvdmFyL2xpYi9sbGFtYWhlcmQva2VwdC9sbGFt
YS1jaGF0IiwgInJlZnVzZWQiOiAiL3Zhci9saWIvbGxhbWFoZXJkL3JlZnVzZWQvbGxhbWEtY2hh
dCIsICJyZWxlYXNlcyI6ICIvdmFyL2xpYi9sbGFtYWhlcmQvcmVsZWFzZXMiLCAibG9ja3MiOiAi
L3J1bi9sbGFtYWhlcmQvbG9ja3MiLCAibG9ja19zZWNvbmRzIjogMzYwMCwgInNlY29uZHMiOiAx
MjAsICJwcm9tcHRzIjogdHJ1ZSwgInByb3ZlIjogIi9vcHQvbGxhbWFoZXJkL2xpYmV4ZWMvcHJv
dmUiLCAic3RhcnRlZCI6ICIvb3B0L2xsYW1haGVyZC9saWJleGVjL3N0YXJ0ZWQiLCAiZm9yZ2V0
IjogInN5c3RlbWN0bCBzdG9wIGxsYW1haGVyZC1iZXNpZGUtY2hhdC5zZXJ2aWNlIDI+L2Rldi9u
dWxsXG5zeXN0ZW1jdGwgZGlzYWJsZSAtcSAtLW5vdyBsbGFtYS1jaGF0LnNlcnZpY2VcbiMgVGhl
IHVuaXQncyBmaWxlIGdvZXMgYWZ0ZXIgaXRzIHVzZXI6IGFzIGxvbmcgYXMgaXQgaXMgdGhlcmUs
IHRoZSBuZXh0IHJ1biBrbm93cyB0aGF0IHRoaXMgb25lIGRpZCBub3QgZW5kLlxuISBpZCAtdSBs
bGFtYS1jaGF0ID4vZGV2L251bGwgMj4mMSB8fCB1c2VyZGVsIGxsYW1hLWNoYXQgfHwgZXhpdCAx
XG5ybSAtZiAvZXRjL3N5c3RlbWQvc3lzdGVtL2xsYW1hLWNoYXQuc2VydmljZSAvcnVuL2xsYW1h
aGVyZC9zdGFydGVkL2xsYW1hLWNoYXRcbnN5c3RlbWN0bCBkYWVtb24tcmVsb2FkXG5zeXN0ZW1j
dGwgcmVzZXQtZmFpbGVkIGxsYW1hLWNoYXQuc2VydmljZSAyPi9kZXYvbnVsbFxuOlxuIn1d
END
        systemd-run --quiet --collect --unit=llamaherd-probation-chat --property=RuntimeMaxSec=7800 /opt/llamaherd/libexec/probation /run/llamaherd/probation/llama-chat.json ||
        echo "llama-chat serves, but its probation did not start: the host does not roll it back if it fails within a minute" >&2
}
# What was started and has not answered a prompt yet, a spec each line: it stands there before anything is changed, since
# a run may be killed, or its host, and systemd starts what is new at the next boot. Gone with the next that is kept.
untried() { grep -Fqsx "$1" "$kept/untried"; }
mark_untried() {
    # A probation would mistake what is stopped and tried from here on for the server that it watches.
    systemctl stop llamaherd-probation-chat 2>/dev/null
    ! untried ea3d36a7a072 || { unproven=yes; return; }
    unproven=''
    (umask 077 && install -d -m 0700 "${kept%/*}" "$kept" && echo ea3d36a7a072 >>"$kept/untried" && sync "$kept/untried") || {
        echo "cannot write $kept/untried, so llama-chat was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
was() { sed -n "s/.*was_spec=\([^ ]*\) .*/\1/p" "$kept/last/how" 2>/dev/null; }
spec_of() {
    if [ "$1" = unit ]; then
        systemctl -q is-active llama-chat.service && sed -z -n 's/^LLAMAHERD_SPEC=//p' "/proc/$(systemctl show -P MainPID llama-chat.service)/environ" | tr -d '\0'
    else
        docker inspect --type container --format '{{if eq .State.Status "running"}}{{with .State.Health}}{{if eq .Status "healthy"}}{{index $.Config.Labels "llamaherd.spec"}}{{end}}{{end}}{{end}}' llama-chat
    fi 2>/dev/null
}
# What an earlier version of ours started, or somebody since, is not kept yet. Its file is the one that it was started from
# if it says the same spec.
keep_what_serves() {
    serving=$(spec_of "$1")
    [ -z "$serving" ] || [ "$serving" = "$(was)" ] || { [ -f "$kept/last/how" ] && untried "$serving"; } || ! grep -Fqs "$serving" "$(file_of "$1")" || keep "$1" "$serving" || {
        echo "cannot keep what serves as llama-chat in $kept, so it was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
# $1 how to ask it. What was declared before, or by another key alone, is not judged by its speed.
proved() {
    how=judge limit=300 proves=llama-chat
    [ "$(was)" != ea3d36a7a072 ] || how=''
    case $1 in
    "$asked") ;;
    "$beside_asked") how=beside proves=$beside ;;
    *) how=back limit=$was_seconds ;;
    esac
    LEFT=$((began + limit - $(date +%s))) PROVED=$beside_proved PROGRESS=4 BESIDE=$beside_asked $direct /opt/llamaherd/libexec/prove "$1" "$kept/last/speeds" "$asked.speeds" "$how" \
        $(systemctl show -P MainPID "$proves.service") $(docker top "$proves" -eo pid 2>/dev/null | sed 1d)
}
# What was put back is as slow as what it was put back for: the host is, and it is nobody's fault.
host_is_slow() {
    [ -s "$asked.speeds.slow" ] && [ -s "$asked.speeds" ] && cp "$asked.speeds" "$kept/last/speeds.new" && mv -fT "$kept/last/speeds.new" "$kept/last/speeds" || return 1
    echo "what served before decodes no faster now: \`herd up\` tries what is declared again, and compares with that"
}
# What a server is answering ends before it does, as far as that takes no longer than it may. How to ask it is kept since
# it was started; $1 says how to ask another. Then new connections are refused where the host can do that, for seconds
# at most: `let_in` is to come after the server was stopped.
drain() {
    grep -qs '"metrics"' "${1:-/var/lib/llamaherd/kept/llama-chat/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/var/lib/llamaherd/kept/llama-chat/last/asked}" 30 2009999999 ${direct:+led} <<'END'
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
# What a server beside answers ends before it does, while new connections go to the declared one again.
end_beside() {
    [ -e "$beside_file" ] || return 0
    nft flush table inet "$beside" 2>/dev/null
    [ -z "$direct" ] || [ -z "$beside_asked" ] || drain "$beside_asked"
    systemctl stop "$beside" 2>/dev/null
    # Its unit does so as well, but what a unit does at its end has no longer than its stop may take.
    nft delete table inet "$beside" 2>/dev/null
    rm -f "$beside_file" /run/llamaherd/beside/chat.yaml "/run/llamaherd/started/$beside"
    systemctl daemon-reload
    systemctl reset-failed "$beside" 2>/dev/null
    direct=''
}
put_back() { [ ! -f "$kept/last/$1" ] || { cp -p "$kept/last/$1" "$2.llamaherd-new" && mv -fT "$2.llamaherd-new" "$2"; }; }
start_what_was() {
    if [ "$was_kind" = unit ]; then
        systemctl -q --no-reload enable llama-chat.service && systemctl daemon-reload || return 1
        systemctl reset-failed llama-chat.service 2>/dev/null
        systemctl start llama-chat.service 2>/dev/null
    else
        docker compose --progress plain -f "$was_file" up -d --force-recreate --remove-orphans --wait --wait-timeout "$was_seconds" >/run/llamaherd-compose.log 2>&1 || return 1
        eval "set -- $was_inputs"
        /opt/llamaherd/libexec/started record container llama-chat "$@"
    fi
}
note_refused() { (umask 077 && mkdir -p "${refused%/*}" && printf '%s\t%s\t%s\n' b5f3d0404fa7 "$(date +'%F %T')" "$(printf %s "$1" | tr -s '\t\n' '  ' | cut -c -300)" >"$refused"); }
# All that change with it go back as well: whoever has begun this sees to that. $1 is why.
take_back() {
    printf '%s\n' "$1" >"$exchange/why"
    [ "$(was)" = ea3d36a7a072 ] || note_refused "$1"
    [ ! -f "$kept/last/how" ] || [ "$(was)" = ea3d36a7a072 ] || exit 1
}
# What is not declared any more goes on until what is new has answered a prompt, where both have room. Else it is stopped,
# and comes back where what is new does not serve: a mark beside what is kept of it says so, also to a later run.
# So does what is about to: at a boot, or after it could not have its port.
runs() {
    case $(systemctl show -P ActiveState -P Job "$1.service" 2>/dev/null | tr '\n' ' ') in active* | activating* | reloading* | *[0-9]*) return 0 ;; esac
    case $(docker inspect --type container --format '{{.State.Status}}' "$1" 2>/dev/null) in running | restarting) return 0 ;; esac
    return 1
}
any_going() {
    if [ -e /var/lib/llamaherd/kept/llama-old/aside ] || runs llama-old; then return 0; fi
    if [ -e /var/lib/llamaherd/kept/llama-boxed/aside ] || runs llama-boxed; then return 0; fi
    return 1
}
no_room_with_going() {
    echo 'how much llama-chat takes is not certain'
    return 1
}
# $1 is who, $2 what is kept of it, $3 why.
step_aside() {
    runs "$1" || return 0
    echo "stopping $1, which is not declared any more: $3"
    drain "$2/last/asked"
    (umask 077 && install -d -m 0700 "${2%/*}" "$2" && : >"$2/aside" && sync "$2/aside") || exit 1
    systemctl stop "$1.service" 2>/dev/null
    docker stop "$1" >/dev/null 2>&1
    let_in
}
going_steps_aside() {
    step_aside llama-old /var/lib/llamaherd/kept/llama-old 'its port is to be that of llama-chat'
    room=$(no_room_with_going) && return
    step_aside llama-boxed /var/lib/llamaherd/kept/llama-boxed "$room"
}
instead=llama-chat
# $1 is who, $2 what is kept of it, $3 its Compose file; $instead does not serve.
come_back() {
    [ -e "$2/aside" ] || return 0
    back='' began=$(date +%s)
    if [ -e "/etc/systemd/system/$1.service" ]; then
        systemctl reset-failed "$1.service" 2>/dev/null
        systemctl start "$1.service" 2>/dev/null && back=yes
    elif [ -e "$3" ]; then
        docker compose --progress plain -f "$3" up -d --no-recreate --wait >/run/llamaherd-compose.log 2>&1 && back=yes
    fi
    if [ "$back" ]; then
        rm -f "$2/aside"
        echo "$1 serves again, after $(($(date +%s) - began)) s: $instead does not serve in its place" >&2
    else
        echo "$1 was started again, as $instead does not serve in its place, and does not come up either" >&2
    fi
}
going_comes_back() {
    come_back llama-old /var/lib/llamaherd/kept/llama-old /etc/llamaherd/compose/old/compose.yaml
    come_back llama-boxed /var/lib/llamaherd/kept/llama-boxed /etc/llamaherd/compose/boxed/compose.yaml
}
# Whose place is taken does not come back, also where another instance of this run fails.
going_has_gone() {
    :
    rm -f /var/lib/llamaherd/kept/llama-old/aside
}
# Ends the run, where others serve in its place. What failed may still run. $1 is why.
give_way() {
    any_going || return 0
    systemctl disable -q --now llama-chat.service
    systemctl reset-failed llama-chat.service 2>/dev/null
    note_refused "$1"
    echo "llama-chat is stopped, and what it was to replace goes on, llama-old, llama-boxed: what is declared did not serve, since $1" >&2
    echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    exit 1
}
mark_untried
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
put_file /etc/systemd/system/llama-chat.service /etc/systemd/system 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgaW5zdGFuY2UgYGNoYXRgIG9mIHJpZyBgYm94YDog
Y2hhbmdlIHRoZSBpbnZlbnRvcnksIG5vdCB0aGlzIGZpbGUuCltVbml0XQpEZXNjcmlwdGlvbj1M
TE0gc2VydmVyIGNoYXQ6IGdlbW1hIG9uIG1haW4KQWZ0ZXI9bmV0d29yay50YXJnZXQgbG9jYWwt
ZnMudGFyZ2V0ClN0YXJ0TGltaXRJbnRlcnZhbFNlYz02MDAKU3RhcnRMaW1pdEJ1cnN0PTMKCltT
ZXJ2aWNlXQpUeXBlPWV4ZWMKIyBXaGF0IGl0IHN0YXJ0cyB3aXRoLCBmb3Igd2hvZXZlciB3YW50
cyB0byBrbm93IGxhdGVyIHdoYXQgaGFzIGNoYW5nZWQgc2luY2UuCkV4ZWNTdGFydFByZT0tKy9v
cHQvbGxhbWFoZXJkL2xpYmV4ZWMvc3RhcnRlZCByZWNvcmQgdW5pdCBsbGFtYS1jaGF0IC9ldGMv
bGxhbWFoZXJkL2tleXMvY2hhdCAvdmFyL2xpYi9sbGFtYWhlcmQvbW9kZWxzL2xvY2FsL2E1YTVh
NWE1YTVhNWE1YTUKRXhlY1N0YXJ0PS9vcHQvbGxhbWFoZXJkL2J1aWxkcy9sbGFtYS5jcHAtMjU0
YzJlMTExZmNhL2Jpbi9sbGFtYS1zZXJ2ZXIgLS1tb2RlbCAvdmFyL2xpYi9sbGFtYWhlcmQvbW9k
ZWxzL2xvY2FsL2E1YTVhNWE1YTVhNWE1YTUvZ2VtbWEuZ2d1ZiAtLWFsaWFzIGdlbW1hIC0tY3R4
LXNpemUgODE5MiAtLWNhY2hlLXR5cGUtayBxOF8wIC0tY2FjaGUtdHlwZS12IHE4XzAgLS1mbGFz
aC1hdHRuIG9uIC0tcGFyYWxsZWwgMSAtLXRocmVhZHMgMSAtLWhvc3QgMTI3LjAuMC4xIC0tcG9y
dCA4MDgwIC0tbWV0cmljcyAtLWFwaS1rZXktZmlsZSAvZXRjL2xsYW1haGVyZC9rZXlzL2NoYXQK
IyBTdGFydGVkIG1lYW5zOiBpdCBhbnN3ZXJzLiBMb2FkaW5nIGEgbW9kZWwgZnJvbSBhIGNvbGQg
ZGlzayB0YWtlcyBpdHMgdGltZS4KRXhlY1N0YXJ0UG9zdD0vb3B0L2xsYW1haGVyZC9saWJleGVj
L3dhaXQtaGVhbHRoeSBodHRwOi8vMTI3LjAuMC4xOjgwODAvaGVhbHRoClRpbWVvdXRTdGFydFNl
Yz0zMDAKUmVzdGFydD1hbHdheXMKUmVzdGFydFNlYz0xMApLaWxsU2lnbmFsPVNJR0lOVAojIFdo
YXQgaXQgaGFzIHRvIGxvc2UgaXMgaW4gaXRzIGNsaWVudHM6IHdoaWxlIGl0IHN0cmVhbXMsIFNJ
R0lOVCBjYW4gbGVhdmUgaXQgaGFuZ2luZyB3aXRoIGl0cyBwb3J0IGNsb3NlZC4KVGltZW91dFN0
b3BTZWM9MQojIEVhY2ggY29ubmVjdGlvbiBpcyBhbiBvcGVuIGZpbGUsIGFuZCB0aGUgZmlyc3Qg
MSwwMDAgb3Igc28gYXJlIGEgdGhyZWFkIGVhY2g7IHN5c3RlbWQncyBvd24gbGltaXQgaXMgMSww
MjQgZmlsZXMuCkxpbWl0Tk9GSUxFPTE2Mzg0ClRhc2tzTWF4PTQwOTYKIyBEaWVzIGJlZm9yZSBz
c2hkIGRvZXMgd2hlbiBtZW1vcnkgcnVucyBvdXQuCk9PTVNjb3JlQWRqdXN0PTUwMApFbnZpcm9u
bWVudD1MTEFNQUhFUkRfU1BFQz1lYTNkMzZhN2EwNzIKIyBObyBjb25maWd1cmF0aW9uIGJ1dCB0
aGlzIGZpbGU6IGxsYW1hLmNwcCByZWFkcyBjb25maWcuaW5pIGZyb20gaGVyZSBhbmQgZnJvbSAv
ZXRjL2xsYW1hLmNwcC4KRW52aXJvbm1lbnQ9WERHX0NPTkZJR19IT01FPS9ub25leGlzdGVudApJ
bmFjY2Vzc2libGVQYXRocz0tL2V0Yy9sbGFtYS5jcHAKClVzZXI9bGxhbWEtY2hhdApHcm91cD1s
bGFtYS1jaGF0ClVNYXNrPTAwNzcKTm9OZXdQcml2aWxlZ2VzPXllcwpDYXBhYmlsaXR5Qm91bmRp
bmdTZXQ9CkFtYmllbnRDYXBhYmlsaXRpZXM9ClByaXZhdGVEZXZpY2VzPXllcwpEZXZpY2VQb2xp
Y3k9Y2xvc2VkClByb2NTdWJzZXQ9cGlkCklQQWRkcmVzc0Rlbnk9YW55CklQQWRkcmVzc0FsbG93
PWxvY2FsaG9zdApMb2NrUGVyc29uYWxpdHk9eWVzCk1lbW9yeURlbnlXcml0ZUV4ZWN1dGU9eWVz
ClByaXZhdGVJUEM9eWVzClByaXZhdGVUbXA9eWVzClByb3RlY3RDbG9jaz15ZXMKUHJvdGVjdENv
bnRyb2xHcm91cHM9eWVzClByb3RlY3RIb21lPXllcwpQcm90ZWN0SG9zdG5hbWU9eWVzClByb3Rl
Y3RLZXJuZWxMb2dzPXllcwpQcm90ZWN0S2VybmVsTW9kdWxlcz15ZXMKUHJvdGVjdEtlcm5lbFR1
bmFibGVzPXllcwpQcm90ZWN0UHJvYz1pbnZpc2libGUKUHJvdGVjdFN5c3RlbT1zdHJpY3QKUmVt
b3ZlSVBDPXllcwpSZXN0cmljdEFkZHJlc3NGYW1pbGllcz1BRl9JTkVUIEFGX0lORVQ2IEFGX1VO
SVgKUmVzdHJpY3ROYW1lc3BhY2VzPXllcwpSZXN0cmljdFJlYWx0aW1lPXllcwpSZXN0cmljdFNV
SURTR0lEPXllcwpTeXN0ZW1DYWxsQXJjaGl0ZWN0dXJlcz1uYXRpdmUKU3lzdGVtQ2FsbEVycm9y
TnVtYmVyPUVQRVJNClN5c3RlbUNhbGxGaWx0ZXI9QHN5c3RlbS1zZXJ2aWNlClN5c3RlbUNhbGxG
aWx0ZXI9fkBwcml2aWxlZ2VkCgpbSW5zdGFsbF0KV2FudGVkQnk9bXVsdGktdXNlci50YXJnZXQK
END

# With --no-reload: systemd would read all of its files anew twice, which takes as long as many a server stops.
systemctl -q --no-reload enable llama-chat.service && systemctl daemon-reload || exit 1
# Who held the lock before us may have started what we want. What was seen to be wrong is not asked about again.
run=$(systemctl show -P InvocationID llama-chat.service)
if [ -z "$unproven" ] && [ "$run" != '' ] && systemctl -q is-active llama-chat.service &&
    tr '\0' '\n' <"/proc/$(systemctl show -P MainPID llama-chat.service)/environ" | grep -Fqx LLAMAHERD_SPEC=ea3d36a7a072 &&
    /opt/llamaherd/libexec/started changed unit llama-chat /etc/llamaherd/keys/chat /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 >/dev/null; then
    echo "llama-chat.service was started by another run meanwhile, as planned"
    rm -f "$kept/untried"
    exit 0
fi
echo "starting llama-chat.service: it has 300 s to load its model"
began=$(date +%s) stopped=$(date +%s%3N)
systemctl stop llama-chat.service 2>/dev/null
let_in
going_steps_aside
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8080 >/dev/null 2>&1
# Not before the old server is stopped: what is asked of it between its last request and that is cut off.
systemctl reset-failed llama-chat.service 2>/dev/null
if ! systemctl restart llama-chat.service 2>/dev/null; then
    journalctl -q -u llama-chat.service -n 20 --no-pager -o cat | cut -c -300 >&2
    echo "llama-chat.service is not healthy after $(($(date +%s) - began)) s of 300; its last lines are above, all of them in: journalctl -u llama-chat.service" >&2
    # Left alone, it would go on failing every ten seconds behind our back.
    systemctl stop llama-chat.service
    take_back "llama-chat.service was not healthy after $(($(date +%s) - began)) s of 300"
    exit 1
fi
loaded=$(($(date +%s%3N) - stopped))
why=$(proved "$asked")
case $? in
0) ;;
1)
    journalctl -q -u llama-chat.service -n 5 --no-pager -o cat | cut -c -300 >&2
    printf '%s\n' "llama-chat.service is healthy, but $why" >&2
    systemctl stop llama-chat.service
    take_back "$why"
    exit 1
    ;;
*)
    printf '%s\n' "llama-chat.service answers, but $why" >&2
    [ ! -f "$kept/last/how" ] || [ "$(was)" = ea3d36a7a072 ] || systemctl stop llama-chat.service
    take_back "$why"
    ;;
esac
keep unit ea3d36a7a072 "$asked" || echo "llama-chat serves, and cannot be kept in $kept: a later change that fails cannot come back to it"

)
check_2() (
systemctl -q is-active docker || timeout 180 systemctl start docker || exit 1
# The engine itself says whether it understands these arguments: it reads them all before --version ends it.
# `timeout`, since an argument that swallows --version would start the server. Any file does for a key: this one needs no
# room on a disk.
key=/proc/version
said=$(timeout 20 setpriv --reuid 2093696176 --regid 2093696176 --clear-groups --no-new-privs \
    env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server --model /var/lib/llamaherd/models/local/0404040404040404/moe.gguf --alias moe --ctx-size 4096 --cache-type-k f16 --cache-type-v f16 --flash-attn auto --parallel 1 --threads 1 --host 127.0.0.1 --port 8081 --metrics --spec-type draft-mtp --spec-draft-n-max 2 --version 2>&1)
rc=$?
case $rc in
124 | 126 | 127 | 137)
    printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "instance drafter: /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server --version did not end by itself within 20 s, or could not be run (exit code $rc), so its arguments are not checked; the instance was left as it was" >&2
    exit 1
    ;;
esac
if [ $rc != 0 ] || ! printf '%s\n' "$said" | grep -q '^version:'; then
    printf '%s\n' "$said" | grep -i error | head -n 5 >&2
    printf '%s\n' "$said" | grep -qi error || printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "instance drafter: /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server does not accept its arguments; the instance was left as it was" >&2
    exit 1
fi

# While the old server answers: Compose reads the new file, the image is brought, and its engine asked about the arguments.
trial=$(mktemp -d) || exit 1
left() {
    [ ! -s "$trial/said" ] || tail -n 5 "$trial/said" | cut -c -300 >&2
    printf '%s\n' "instance drafter: $1; the instance was left as it was" >&2
    rm -rf "$trial"
    exit 1
}
base64 -d >"$trial/compose.yaml" <<'END' || exit 1
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgaW5zdGFuY2UgYGRyYWZ0ZXJgIG9mIHJpZyBgYm94
YDogY2hhbmdlIHRoZSBpbnZlbnRvcnksIG5vdCB0aGlzIGZpbGUuCm5hbWU6IGxsYW1hLWRyYWZ0
ZXIKc2VydmljZXM6CiAgc2VydmVyOgogICAgaW1hZ2U6ICJsbGFtYWhlcmQvZW5naW5lOmxsYW1h
LmNwcC0yNTRjMmUxMTFmY2EtYTM3MWI2IgogICAgcHVsbF9wb2xpY3k6IG5ldmVyCiAgICBjb250
YWluZXJfbmFtZTogbGxhbWEtZHJhZnRlcgogICAgZW50cnlwb2ludDogWyIvdXNyL2xvY2FsL2Jp
bi9sbGFtYS1zZXJ2ZXIiXQogICAgY29tbWFuZDogWyItLW1vZGVsIiwgIi92YXIvbGliL2xsYW1h
aGVyZC9tb2RlbHMvbG9jYWwvMDQwNDA0MDQwNDA0MDQwNC9tb2UuZ2d1ZiIsICItLWFsaWFzIiwg
Im1vZSIsICItLWN0eC1zaXplIiwgIjQwOTYiLCAiLS1jYWNoZS10eXBlLWsiLCAiZjE2IiwgIi0t
Y2FjaGUtdHlwZS12IiwgImYxNiIsICItLWZsYXNoLWF0dG4iLCAiYXV0byIsICItLXBhcmFsbGVs
IiwgIjEiLCAiLS10aHJlYWRzIiwgIjEiLCAiLS1ob3N0IiwgIjEyNy4wLjAuMSIsICItLXBvcnQi
LCAiODA4MSIsICItLW1ldHJpY3MiLCAiLS1zcGVjLXR5cGUiLCAiZHJhZnQtbXRwIiwgIi0tc3Bl
Yy1kcmFmdC1uLW1heCIsICIyIl0KICAgIGVudmlyb25tZW50OiB7IkxMQU1BX0FSR19DT1JTX09S
SUdJTlMiOiAibG9jYWxob3N0In0KICAgIGxhYmVsczoKICAgICAgbGxhbWFoZXJkLnNwZWM6ICI2
YjNlOWVmNzA5YmMiCiAgICAgIGxsYW1haGVyZC5wb3J0OiAiODA4MSIKICAgIHVzZXI6ICIyMDkz
Njk2MTc2OjIwOTM2OTYxNzYiCiAgICByZWFkX29ubHk6IHRydWUKICAgIGNhcF9kcm9wOiBbQUxM
XQogICAgc2VjdXJpdHlfb3B0OiBbIm5vLW5ldy1wcml2aWxlZ2VzOnRydWUiXQogICAgdG1wZnM6
IFsiL3RtcDpzaXplPTY0bSxtb2RlPTE3NzciXQogICAgIyBFYWNoIGNvbm5lY3Rpb24gaXMgYW4g
b3BlbiBmaWxlLCBhbmQgdGhlIGZpcnN0IDEsMDAwIG9yIHNvIGFyZSBhIHRocmVhZCBlYWNoLgog
ICAgcGlkc19saW1pdDogNDA5NgogICAgdWxpbWl0czoge25vZmlsZTogMTYzODR9CiAgICBvb21f
c2NvcmVfYWRqOiA1MDAKICAgICMgSXQgbGlzdGVucyBvbiB0aGUgaG9zdCdzIG93biBsb29wYmFj
ay4gV2hhdCBEb2NrZXIgcHVibGlzaGVzIHRoZXJlIGNhbiBiZSByZWFjaGVkIGZyb20gb3V0c2lk
ZSwgYnkgYSByb3V0ZSB0byB0aGUKICAgICMgY29udGFpbmVyJ3MgbmV0d29yayAoRG9ja2VyIGJl
Zm9yZSAyOCkuCiAgICBuZXR3b3JrX21vZGU6IGhvc3QKICAgIHZvbHVtZXM6CiAgICAgIC0ge3R5
cGU6IGJpbmQsIHNvdXJjZTogIi92YXIvbGliL2xsYW1haGVyZC9tb2RlbHMvbG9jYWwvMDQwNDA0
MDQwNDA0MDQwNCIsIHRhcmdldDogIi92YXIvbGliL2xsYW1haGVyZC9tb2RlbHMvbG9jYWwvMDQw
NDA0MDQwNDA0MDQwNCIsIHJlYWRfb25seTogdHJ1ZSwgYmluZDoge2NyZWF0ZV9ob3N0X3BhdGg6
IGZhbHNlfX0KICAgIGhlYWx0aGNoZWNrOgogICAgICB0ZXN0OiBbIkNNRCIsICIvdXNyL2Jpbi9i
dXN5Ym94IiwgIndnZXQiLCAiLXEiLCAiLU8iLCAiL2Rldi9udWxsIiwgImh0dHA6Ly8xMjcuMC4w
LjE6ODA4MS9oZWFsdGgiXQogICAgICBpbnRlcnZhbDogMzBzCiAgICAgIHRpbWVvdXQ6IDVzCiAg
ICAgIHJldHJpZXM6IDMKICAgICAgc3RhcnRfcGVyaW9kOiAzMDBzCiAgICAgIHN0YXJ0X2ludGVy
dmFsOiAxcwogICAgcmVzdGFydDogdW5sZXNzLXN0b3BwZWQKICAgIHN0b3Bfc2lnbmFsOiBTSUdJ
TlQKICAgIHN0b3BfZ3JhY2VfcGVyaW9kOiAxcwogICAgbG9nZ2luZzoge2RyaXZlcjoganNvbi1m
aWxlLCBvcHRpb25zOiB7bWF4LXNpemU6IDEwbSwgbWF4LWZpbGU6ICIzIn19Cg==
END
docker compose -f "$trial/compose.yaml" config -q >"$trial/said" 2>&1 || left 'Compose does not take its file'
docker image inspect llamaherd/engine:llama.cpp-254c2e111fca-a371b6 >/dev/null 2>&1 || {
    left 'its image llamaherd/engine:llama.cpp-254c2e111fca-a371b6 is not there'
}
rm -rf "$trial"

# A switch is taken back where what is new does not serve: what served before is kept, and comes back. So it goes on when
# nobody listens any more: whoever began it may be gone, and what is new may not serve.
trap : PIPE
exec 4>&1  # progress, while stdout is read for a reason
kept=/var/lib/llamaherd/kept/llama-drafter refused=/var/lib/llamaherd/refused/llama-drafter
[ -x /opt/llamaherd/libexec/prove ] || {
    echo "/opt/llamaherd/libexec/prove, which proves servers, is not on this host, so llama-drafter was left as it is" >&2
    echo "  help: \`herd up\` installs it" >&2
    exit 1
}
beside=llamaherd-beside-drafter beside_file=/run/systemd/system/llamaherd-beside-drafter.service beside_asked='' beside_proved='' direct=''
[ ! -e "$beside_file" ] || direct='setpriv --regid 2009999999 --clear-groups'
# A server beside goes on where it is the only one that serves: for as long as its unit lets it.
at_exit() {
    if [ -e "$beside_file" ]; then
        if [ -n "$(spec_of container)" ]; then
            end_beside
        else
            echo "what was tried beside llama-drafter answers in its place, until \`herd up\` has it serve again, or for as long as \`systemctl status $beside\` says" >&2
        fi
    fi
    rm -f "$asked" "$asked".* "$beside_asked"
}
asked=$(mktemp) && trap at_exit EXIT && base64 -d >"$asked" <<'END' || exit 1
eyJ1cmwiOiAiaHR0cDovLzEyNy4wLjAuMTo4MDgxL3YxL2NoYXQvY29tcGxldGlvbnMiLCAibWV0
cmljcyI6ICJodHRwOi8vMTI3LjAuMC4xOjgwODEvbWV0cmljcyIsICJrZXkiOiBudWxsLCAic2Vj
b25kcyI6IDEyMCwgImRyYWZ0cyI6IDE2LCAiZmxvb3IiOiAwLCAiYm9keSI6IHsibW9kZWwiOiAi
bW9lIiwgIm1lc3NhZ2VzIjogW3sicm9sZSI6ICJ1c2VyIiwgImNvbnRlbnQiOiAiVGhlIHRocmVl
IHByaW1hcnkgY29sb3VycyBhcmUifV0sICJ0ZW1wZXJhdHVyZSI6IDAsICJtYXhfdG9rZW5zIjog
NjR9LCAia2luZCI6ICJjaGF0IiwgIm1vZGVscyI6IFsibW9lIl0sICJtb2RlbHNfcGF0aCI6ICIv
djEvbW9kZWxzIiwgInByb3BzX3BhdGgiOiAiL3Byb3BzIiwgImhlYWx0aF9wYXRoIjogIi9oZWFs
dGgiLCAibGlzdGVuIjogIjEyNy4wLjAuMSIsICJjbG9zZWQiOiB0cnVlLCAiY29udGV4dCI6IDQw
OTYsICJzYW1lIjogIjVkYzJhNzE4OTU2OSIsICJzcGVjIjogIjZiM2U5ZWY3MDliYyJ9
END
file_of() { if [ "$1" = unit ]; then echo /etc/systemd/system/llama-drafter.service; else echo /etc/llamaherd/compose/drafter/compose.yaml; fi; }
how_kept() {
    printf 'was_kind=%s was_spec=%s was_seconds=%s was_file=%s was_key=%s\n' "$1" "$2" 300 "$(file_of "$1")" ''"'"''"'"''
    printf 'was_inputs=%s\n' ''"'"'- /var/lib/llamaherd/models/local/0404040404040404'"'"''
}
# $1 unit or container, $2 the spec that serves, $3 how to ask it, if that is known. All at once, by one link.
keep() (
    umask 077
    install -d -m 0700 "${kept%/*}" "$kept" && new=$(mktemp -d "$kept/XXXXXXXX") || exit 1
    cp -p "$(file_of "$1")" "$new/file" && { [ ! -f '' ] || cp -p '' "$new/key"; } &&
        { [ -z "${3:-}" ] || cp "$3" "$new/asked"; } &&
        { speeds=$asked.speeds && [ -s "$speeds" ] || speeds=$kept/last/speeds; [ ! -s "$speeds" ] || cp "$speeds" "$new/speeds"; } &&
        { [ "$2" != 6b3e9ef709bc ] || printf '%s\n' 6b3e9ef709bc >"$new/holds"; } &&
        { [ -z "${loaded:-}" ] || printf '%s\t%s\n' "$loaded" /var/lib/llamaherd/models/local/0404040404040404 >"$new/loaded"; } && how_kept "$1" "$2" >"$new/how" && sync "$new"/* &&
        ln -sfn "${new##*/}" "$kept/last.new" && mv -fT "$kept/last.new" "$kept/last" || { rm -rf "$new"; exit 1; }
    for each in "$kept"/*; do [ -L "$each" ] || [ "$each" = "$new" ] || [ "$each" -ef "$kept/before" ] || rm -rf "$each"; done
)
# The previous version stays until the new one has passed its probation.
keep_new() {
    replaced=''
    [ ! -f "$kept/last/how" ] || [ "$(was)" = 6b3e9ef709bc ] || { ln -sfn "$(readlink "$kept/last")" "$kept/before" && replaced=yes; }
    keep container 6b3e9ef709bc "$asked" || {
        replaced=''
        echo "llama-drafter serves, and cannot be kept in $kept: a later change that fails cannot come back to it"
    }
    rm -f "$refused"
}
# From here on, the host itself probes the new version, and restores the previous one if it fails.
start_probation() {
    [ "$replaced" ] || return 0
    systemctl stop llamaherd-probation-drafter 2>/dev/null
    (umask 077 && install -d -m 0700 /run/llamaherd/probation && base64 -d >/run/llamaherd/probation/llama-drafter.json) <<'END' &&
W3sic2VydmljZSI6ICJsbGFtYS1kcmFmdGVyIiwgImtpbmQiOiAiY29udGFpbmVyIiwgInNwZWMi
OiAiNmIzZTllZjcwOWJjIiwgInRyaWVkIjogIjU2ZDY3YzljZTY2OCIsICJpbnN0YW5jZSI6ICJk
cmFmdGVyIiwgInVzZXIiOiAibGxhbWEtZHJhZnRlciIsICJrZXB0IjogIi92YXIvbGliL2xsYW1h
aGVyZC9rZXB0L2xsYW1hLWRyYWZ0ZXIiLCAicmVmdXNlZCI6ICIvdmFyL2xpYi9sbGFtYWhlcmQv
cmVmdXNlZC9sbGFtYS1kcmFmdGVyIiwgInJlbGVhc2VzIjogIi92YXIvbGliL2xsYW1haGVyZC9y
ZWxlYXNlcyIsICJsb2NrcyI6ICIvcnVuL2xsYW1haGVyZC9sb2NrcyIsICJsb2NrX3NlY29uZHMi
OiAzNjAwLCAic2Vjb25kcyI6IDEyMCwgInByb21wdHMiOiB0cnVlLCAicHJvdmUiOiAiL29wdC9s
bGFtYWhlcmQvbGliZXhlYy9wcm92ZSIsICJzdGFydGVkIjogIi9vcHQvbGxhbWFoZXJkL2xpYmV4
ZWMvc3RhcnRlZCIsICJmb3JnZXQiOiAic3lzdGVtY3RsIHN0b3AgbGxhbWFoZXJkLWJlc2lkZS1k
cmFmdGVyLnNlcnZpY2UgMj4vZGV2L251bGxcbmRvY2tlciBzdG9wIGxsYW1hLWRyYWZ0ZXIgPi9k
ZXYvbnVsbCAyPiYxXG5kb2NrZXIgcm0gLWYgbGxhbWEtZHJhZnRlciA+L2Rldi9udWxsIDI+JjFc
bmRvY2tlciBuZXR3b3JrIHJtIGxsYW1hLWRyYWZ0ZXJfZGVmYXVsdCA+L2Rldi9udWxsIDI+JjFc
bnJtIC1yZiAvZXRjL2xsYW1haGVyZC9jb21wb3NlL2RyYWZ0ZXIgL3Zhci9saWIvbGxhbWFoZXJk
L3N0YXJ0ZWQvbGxhbWEtZHJhZnRlclxuOlxuIn1d
END
        systemd-run --quiet --collect --unit=llamaherd-probation-drafter --property=RuntimeMaxSec=7800 /opt/llamaherd/libexec/probation /run/llamaherd/probation/llama-drafter.json ||
        echo "llama-drafter serves, but its probation did not start: the host does not roll it back if it fails within a minute" >&2
}
# What was started and has not answered a prompt yet, a spec each line: it stands there before anything is changed, since
# a run may be killed, or its host, and systemd starts what is new at the next boot. Gone with the next that is kept.
untried() { grep -Fqsx "$1" "$kept/untried"; }
mark_untried() {
    # A probation would mistake what is stopped and tried from here on for the server that it watches.
    systemctl stop llamaherd-probation-drafter 2>/dev/null
    ! untried 6b3e9ef709bc || { unproven=yes; return; }
    unproven=''
    (umask 077 && install -d -m 0700 "${kept%/*}" "$kept" && echo 6b3e9ef709bc >>"$kept/untried" && sync "$kept/untried") || {
        echo "cannot write $kept/untried, so llama-drafter was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
was() { sed -n "s/.*was_spec=\([^ ]*\) .*/\1/p" "$kept/last/how" 2>/dev/null; }
spec_of() {
    if [ "$1" = unit ]; then
        systemctl -q is-active llama-drafter.service && sed -z -n 's/^LLAMAHERD_SPEC=//p' "/proc/$(systemctl show -P MainPID llama-drafter.service)/environ" | tr -d '\0'
    else
        docker inspect --type container --format '{{if eq .State.Status "running"}}{{with .State.Health}}{{if eq .Status "healthy"}}{{index $.Config.Labels "llamaherd.spec"}}{{end}}{{end}}{{end}}' llama-drafter
    fi 2>/dev/null
}
# What an earlier version of ours started, or somebody since, is not kept yet. Its file is the one that it was started from
# if it says the same spec.
keep_what_serves() {
    serving=$(spec_of "$1")
    [ -z "$serving" ] || [ "$serving" = "$(was)" ] || { [ -f "$kept/last/how" ] && untried "$serving"; } || ! grep -Fqs "$serving" "$(file_of "$1")" || keep "$1" "$serving" || {
        echo "cannot keep what serves as llama-drafter in $kept, so it was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
# $1 how to ask it. What was declared before, or by another key alone, is not judged by its speed.
proved() {
    how=judge limit=300 proves=llama-drafter
    [ "$(was)" != 6b3e9ef709bc ] || how=''
    case $1 in
    "$asked") ;;
    "$beside_asked") how=beside proves=$beside ;;
    *) how=back limit=$was_seconds ;;
    esac
    LEFT=$((began + limit - $(date +%s))) PROVED=$beside_proved PROGRESS=4 BESIDE=$beside_asked $direct /opt/llamaherd/libexec/prove "$1" "$kept/last/speeds" "$asked.speeds" "$how" \
        $(systemctl show -P MainPID "$proves.service") $(docker top "$proves" -eo pid 2>/dev/null | sed 1d)
}
# What was put back is as slow as what it was put back for: the host is, and it is nobody's fault.
host_is_slow() {
    [ -s "$asked.speeds.slow" ] && [ -s "$asked.speeds" ] && cp "$asked.speeds" "$kept/last/speeds.new" && mv -fT "$kept/last/speeds.new" "$kept/last/speeds" || return 1
    echo "what served before decodes no faster now: \`herd up\` tries what is declared again, and compares with that"
}
# What a server is answering ends before it does, as far as that takes no longer than it may. How to ask it is kept since
# it was started; $1 says how to ask another. Then new connections are refused where the host can do that, for seconds
# at most: `let_in` is to come after the server was stopped.
drain() {
    grep -qs '"metrics"' "${1:-/var/lib/llamaherd/kept/llama-drafter/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/var/lib/llamaherd/kept/llama-drafter/last/asked}" 30 2009999999 ${direct:+led} <<'END'
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
# What a server beside answers ends before it does, while new connections go to the declared one again.
end_beside() {
    [ -e "$beside_file" ] || return 0
    nft flush table inet "$beside" 2>/dev/null
    [ -z "$direct" ] || [ -z "$beside_asked" ] || drain "$beside_asked"
    systemctl stop "$beside" 2>/dev/null
    # Its unit does so as well, but what a unit does at its end has no longer than its stop may take.
    nft delete table inet "$beside" 2>/dev/null
    rm -f "$beside_file" /run/llamaherd/beside/drafter.yaml "/run/llamaherd/started/$beside"
    systemctl daemon-reload
    systemctl reset-failed "$beside" 2>/dev/null
    direct=''
}
put_back() { [ ! -f "$kept/last/$1" ] || { cp -p "$kept/last/$1" "$2.llamaherd-new" && mv -fT "$2.llamaherd-new" "$2"; }; }
start_what_was() {
    if [ "$was_kind" = unit ]; then
        systemctl -q --no-reload enable llama-drafter.service && systemctl daemon-reload || return 1
        systemctl reset-failed llama-drafter.service 2>/dev/null
        systemctl start llama-drafter.service 2>/dev/null
    else
        docker compose --progress plain -f "$was_file" up -d --force-recreate --remove-orphans --wait --wait-timeout "$was_seconds" >/run/llamaherd-compose.log 2>&1 || return 1
        eval "set -- $was_inputs"
        /opt/llamaherd/libexec/started record container llama-drafter "$@"
    fi
}
note_refused() { (umask 077 && mkdir -p "${refused%/*}" && printf '%s\t%s\t%s\n' 56d67c9ce668 "$(date +'%F %T')" "$(printf %s "$1" | tr -s '\t\n' '  ' | cut -c -300)" >"$refused"); }
# All that change with it go back as well: whoever has begun this sees to that. $1 is why.
take_back() {
    printf '%s\n' "$1" >"$exchange/why"
    [ "$(was)" = 6b3e9ef709bc ] || note_refused "$1"
    [ ! -f "$kept/last/how" ] || [ "$(was)" = 6b3e9ef709bc ] || exit 1
}
# What is not declared any more goes on until what is new has answered a prompt, where both have room. Else it is stopped,
# and comes back where what is new does not serve: a mark beside what is kept of it says so, also to a later run.
# So does what is about to: at a boot, or after it could not have its port.
runs() {
    case $(systemctl show -P ActiveState -P Job "$1.service" 2>/dev/null | tr '\n' ' ') in active* | activating* | reloading* | *[0-9]*) return 0 ;; esac
    case $(docker inspect --type container --format '{{.State.Status}}' "$1" 2>/dev/null) in running | restarting) return 0 ;; esac
    return 1
}
any_going() {
    if [ -e /var/lib/llamaherd/kept/llama-old/aside ] || runs llama-old; then return 0; fi
    if [ -e /var/lib/llamaherd/kept/llama-boxed/aside ] || runs llama-boxed; then return 0; fi
    return 1
}
no_room_with_going() {
    echo 'how much llama-drafter takes is not certain'
    return 1
}
# $1 is who, $2 what is kept of it, $3 why.
step_aside() {
    runs "$1" || return 0
    echo "stopping $1, which is not declared any more: $3"
    drain "$2/last/asked"
    (umask 077 && install -d -m 0700 "${2%/*}" "$2" && : >"$2/aside" && sync "$2/aside") || exit 1
    systemctl stop "$1.service" 2>/dev/null
    docker stop "$1" >/dev/null 2>&1
    let_in
}
going_steps_aside() {
    step_aside llama-old /var/lib/llamaherd/kept/llama-old 'its port is to be that of llama-drafter'
    room=$(no_room_with_going) && return
    step_aside llama-boxed /var/lib/llamaherd/kept/llama-boxed "$room"
}
instead=llama-drafter
# $1 is who, $2 what is kept of it, $3 its Compose file; $instead does not serve.
come_back() {
    [ -e "$2/aside" ] || return 0
    back='' began=$(date +%s)
    if [ -e "/etc/systemd/system/$1.service" ]; then
        systemctl reset-failed "$1.service" 2>/dev/null
        systemctl start "$1.service" 2>/dev/null && back=yes
    elif [ -e "$3" ]; then
        docker compose --progress plain -f "$3" up -d --no-recreate --wait >/run/llamaherd-compose.log 2>&1 && back=yes
    fi
    if [ "$back" ]; then
        rm -f "$2/aside"
        echo "$1 serves again, after $(($(date +%s) - began)) s: $instead does not serve in its place" >&2
    else
        echo "$1 was started again, as $instead does not serve in its place, and does not come up either" >&2
    fi
}
going_comes_back() {
    come_back llama-old /var/lib/llamaherd/kept/llama-old /etc/llamaherd/compose/old/compose.yaml
    come_back llama-boxed /var/lib/llamaherd/kept/llama-boxed /etc/llamaherd/compose/boxed/compose.yaml
}
# Whose place is taken does not come back, also where another instance of this run fails.
going_has_gone() {
    :
    rm -f /var/lib/llamaherd/kept/llama-old/aside
}
# Ends the run, where others serve in its place. What failed may still run. $1 is why.
give_way() {
    any_going || return 0
    docker compose -f /etc/llamaherd/compose/drafter/compose.yaml stop >/dev/null 2>&1
    note_refused "$1"
    echo "llama-drafter is stopped, and what it was to replace goes on, llama-old, llama-boxed: what is declared did not serve, since $1" >&2
    echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    exit 1
}
keep_what_serves container

)
switch_2() (
systemctl -q is-active docker || timeout 180 systemctl start docker || exit 1
# A switch is taken back where what is new does not serve: what served before is kept, and comes back. So it goes on when
# nobody listens any more: whoever began it may be gone, and what is new may not serve.
trap : PIPE
exec 4>&1  # progress, while stdout is read for a reason
kept=/var/lib/llamaherd/kept/llama-drafter refused=/var/lib/llamaherd/refused/llama-drafter
[ -x /opt/llamaherd/libexec/prove ] || {
    echo "/opt/llamaherd/libexec/prove, which proves servers, is not on this host, so llama-drafter was left as it is" >&2
    echo "  help: \`herd up\` installs it" >&2
    exit 1
}
beside=llamaherd-beside-drafter beside_file=/run/systemd/system/llamaherd-beside-drafter.service beside_asked='' beside_proved='' direct=''
[ ! -e "$beside_file" ] || direct='setpriv --regid 2009999999 --clear-groups'
# A server beside goes on where it is the only one that serves: for as long as its unit lets it.
at_exit() {
    if [ -e "$beside_file" ]; then
        if [ -n "$(spec_of container)" ]; then
            end_beside
        else
            echo "what was tried beside llama-drafter answers in its place, until \`herd up\` has it serve again, or for as long as \`systemctl status $beside\` says" >&2
        fi
    fi
    rm -f "$asked" "$asked".* "$beside_asked"
}
asked=$(mktemp) && trap at_exit EXIT && base64 -d >"$asked" <<'END' || exit 1
eyJ1cmwiOiAiaHR0cDovLzEyNy4wLjAuMTo4MDgxL3YxL2NoYXQvY29tcGxldGlvbnMiLCAibWV0
cmljcyI6ICJodHRwOi8vMTI3LjAuMC4xOjgwODEvbWV0cmljcyIsICJrZXkiOiBudWxsLCAic2Vj
b25kcyI6IDEyMCwgImRyYWZ0cyI6IDE2LCAiZmxvb3IiOiAwLCAiYm9keSI6IHsibW9kZWwiOiAi
bW9lIiwgIm1lc3NhZ2VzIjogW3sicm9sZSI6ICJ1c2VyIiwgImNvbnRlbnQiOiAiVGhlIHRocmVl
IHByaW1hcnkgY29sb3VycyBhcmUifV0sICJ0ZW1wZXJhdHVyZSI6IDAsICJtYXhfdG9rZW5zIjog
NjR9LCAia2luZCI6ICJjaGF0IiwgIm1vZGVscyI6IFsibW9lIl0sICJtb2RlbHNfcGF0aCI6ICIv
djEvbW9kZWxzIiwgInByb3BzX3BhdGgiOiAiL3Byb3BzIiwgImhlYWx0aF9wYXRoIjogIi9oZWFs
dGgiLCAibGlzdGVuIjogIjEyNy4wLjAuMSIsICJjbG9zZWQiOiB0cnVlLCAiY29udGV4dCI6IDQw
OTYsICJzYW1lIjogIjVkYzJhNzE4OTU2OSIsICJzcGVjIjogIjZiM2U5ZWY3MDliYyJ9
END
file_of() { if [ "$1" = unit ]; then echo /etc/systemd/system/llama-drafter.service; else echo /etc/llamaherd/compose/drafter/compose.yaml; fi; }
how_kept() {
    printf 'was_kind=%s was_spec=%s was_seconds=%s was_file=%s was_key=%s\n' "$1" "$2" 300 "$(file_of "$1")" ''"'"''"'"''
    printf 'was_inputs=%s\n' ''"'"'- /var/lib/llamaherd/models/local/0404040404040404'"'"''
}
# $1 unit or container, $2 the spec that serves, $3 how to ask it, if that is known. All at once, by one link.
keep() (
    umask 077
    install -d -m 0700 "${kept%/*}" "$kept" && new=$(mktemp -d "$kept/XXXXXXXX") || exit 1
    cp -p "$(file_of "$1")" "$new/file" && { [ ! -f '' ] || cp -p '' "$new/key"; } &&
        { [ -z "${3:-}" ] || cp "$3" "$new/asked"; } &&
        { speeds=$asked.speeds && [ -s "$speeds" ] || speeds=$kept/last/speeds; [ ! -s "$speeds" ] || cp "$speeds" "$new/speeds"; } &&
        { [ "$2" != 6b3e9ef709bc ] || printf '%s\n' 6b3e9ef709bc >"$new/holds"; } &&
        { [ -z "${loaded:-}" ] || printf '%s\t%s\n' "$loaded" /var/lib/llamaherd/models/local/0404040404040404 >"$new/loaded"; } && how_kept "$1" "$2" >"$new/how" && sync "$new"/* &&
        ln -sfn "${new##*/}" "$kept/last.new" && mv -fT "$kept/last.new" "$kept/next" || { rm -rf "$new"; exit 1; }
    # What served before stays the last that is kept until all that change with this one serve.
    exit 0
    for each in "$kept"/*; do [ -L "$each" ] || [ "$each" = "$new" ] || [ "$each" -ef "$kept/before" ] || rm -rf "$each"; done
)
# The previous version stays until the new one has passed its probation.
keep_new() {
    replaced=''
    [ ! -f "$kept/last/how" ] || [ "$(was)" = 6b3e9ef709bc ] || { ln -sfn "$(readlink "$kept/last")" "$kept/before" && replaced=yes; }
    keep container 6b3e9ef709bc "$asked" || {
        replaced=''
        echo "llama-drafter serves, and cannot be kept in $kept: a later change that fails cannot come back to it"
    }
    rm -f "$refused"
}
# From here on, the host itself probes the new version, and restores the previous one if it fails.
start_probation() {
    [ "$replaced" ] || return 0
    systemctl stop llamaherd-probation-drafter 2>/dev/null
    (umask 077 && install -d -m 0700 /run/llamaherd/probation && base64 -d >/run/llamaherd/probation/llama-drafter.json) <<'END' &&
W3sic2VydmljZSI6ICJsbGFtYS1kcmFmdGVyIiwgImtpbmQiOiAiY29udGFpbmVyIiwgInNwZWMi
OiAiNmIzZTllZjcwOWJjIiwgInRyaWVkIjogIjU2ZDY3YzljZTY2OCIsICJpbnN0YW5jZSI6ICJk
cmFmdGVyIiwgInVzZXIiOiAibGxhbWEtZHJhZnRlciIsICJrZXB0IjogIi92YXIvbGliL2xsYW1h
aGVyZC9rZXB0L2xsYW1hLWRyYWZ0ZXIiLCAicmVmdXNlZCI6ICIvdmFyL2xpYi9sbGFtYWhlcmQv
cmVmdXNlZC9sbGFtYS1kcmFmdGVyIiwgInJlbGVhc2VzIjogIi92YXIvbGliL2xsYW1haGVyZC9y
ZWxlYXNlcyIsICJsb2NrcyI6ICIvcnVuL2xsYW1haGVyZC9sb2NrcyIsICJsb2NrX3NlY29uZHMi
OiAzNjAwLCAic2Vjb25kcyI6IDEyMCwgInByb21wdHMiOiB0cnVlLCAicHJvdmUiOiAiL29wdC9s
bGFtYWhlcmQvbGliZXhlYy9wcm92ZSIsICJzdGFydGVkIjogIi9vcHQvbGxhbWFoZXJkL2xpYmV4
ZWMvc3RhcnRlZCIsICJmb3JnZXQiOiAic3lzdGVtY3RsIHN0b3AgbGxhbWFoZXJkLWJlc2lkZS1k
cmFmdGVyLnNlcnZpY2UgMj4vZGV2L251bGxcbmRvY2tlciBzdG9wIGxsYW1hLWRyYWZ0ZXIgPi9k
ZXYvbnVsbCAyPiYxXG5kb2NrZXIgcm0gLWYgbGxhbWEtZHJhZnRlciA+L2Rldi9udWxsIDI+JjFc
bmRvY2tlciBuZXR3b3JrIHJtIGxsYW1hLWRyYWZ0ZXJfZGVmYXVsdCA+L2Rldi9udWxsIDI+JjFc
bnJtIC1yZiAvZXRjL2xsYW1haGVyZC9jb21wb3NlL2RyYWZ0ZXIgL3Zhci9saWIvbGxhbWFoZXJk
L3N0YXJ0ZWQvbGxhbWEtZHJhZnRlclxuOlxuIn1d
END
        systemd-run --quiet --collect --unit=llamaherd-probation-drafter --property=RuntimeMaxSec=7800 /opt/llamaherd/libexec/probation /run/llamaherd/probation/llama-drafter.json ||
        echo "llama-drafter serves, but its probation did not start: the host does not roll it back if it fails within a minute" >&2
}
# What was started and has not answered a prompt yet, a spec each line: it stands there before anything is changed, since
# a run may be killed, or its host, and systemd starts what is new at the next boot. Gone with the next that is kept.
untried() { grep -Fqsx "$1" "$kept/untried"; }
mark_untried() {
    # A probation would mistake what is stopped and tried from here on for the server that it watches.
    systemctl stop llamaherd-probation-drafter 2>/dev/null
    ! untried 6b3e9ef709bc || { unproven=yes; return; }
    unproven=''
    (umask 077 && install -d -m 0700 "${kept%/*}" "$kept" && echo 6b3e9ef709bc >>"$kept/untried" && sync "$kept/untried") || {
        echo "cannot write $kept/untried, so llama-drafter was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
was() { sed -n "s/.*was_spec=\([^ ]*\) .*/\1/p" "$kept/last/how" 2>/dev/null; }
spec_of() {
    if [ "$1" = unit ]; then
        systemctl -q is-active llama-drafter.service && sed -z -n 's/^LLAMAHERD_SPEC=//p' "/proc/$(systemctl show -P MainPID llama-drafter.service)/environ" | tr -d '\0'
    else
        docker inspect --type container --format '{{if eq .State.Status "running"}}{{with .State.Health}}{{if eq .Status "healthy"}}{{index $.Config.Labels "llamaherd.spec"}}{{end}}{{end}}{{end}}' llama-drafter
    fi 2>/dev/null
}
# What an earlier version of ours started, or somebody since, is not kept yet. Its file is the one that it was started from
# if it says the same spec.
keep_what_serves() {
    serving=$(spec_of "$1")
    [ -z "$serving" ] || [ "$serving" = "$(was)" ] || { [ -f "$kept/last/how" ] && untried "$serving"; } || ! grep -Fqs "$serving" "$(file_of "$1")" || keep "$1" "$serving" || {
        echo "cannot keep what serves as llama-drafter in $kept, so it was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
# $1 how to ask it. What was declared before, or by another key alone, is not judged by its speed.
proved() {
    how=judge limit=300 proves=llama-drafter
    [ "$(was)" != 6b3e9ef709bc ] || how=''
    case $1 in
    "$asked") ;;
    "$beside_asked") how=beside proves=$beside ;;
    *) how=back limit=$was_seconds ;;
    esac
    LEFT=$((began + limit - $(date +%s))) PROVED=$beside_proved PROGRESS=4 BESIDE=$beside_asked $direct /opt/llamaherd/libexec/prove "$1" "$kept/last/speeds" "$asked.speeds" "$how" \
        $(systemctl show -P MainPID "$proves.service") $(docker top "$proves" -eo pid 2>/dev/null | sed 1d)
}
# What was put back is as slow as what it was put back for: the host is, and it is nobody's fault.
host_is_slow() {
    [ -s "$asked.speeds.slow" ] && [ -s "$asked.speeds" ] && cp "$asked.speeds" "$kept/last/speeds.new" && mv -fT "$kept/last/speeds.new" "$kept/last/speeds" || return 1
    echo "what served before decodes no faster now: \`herd up\` tries what is declared again, and compares with that"
}
# What a server is answering ends before it does, as far as that takes no longer than it may. How to ask it is kept since
# it was started; $1 says how to ask another. Then new connections are refused where the host can do that, for seconds
# at most: `let_in` is to come after the server was stopped.
drain() {
    grep -qs '"metrics"' "${1:-/var/lib/llamaherd/kept/llama-drafter/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/var/lib/llamaherd/kept/llama-drafter/last/asked}" 30 2009999999 ${direct:+led} <<'END'
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
# What a server beside answers ends before it does, while new connections go to the declared one again.
end_beside() {
    [ -e "$beside_file" ] || return 0
    nft flush table inet "$beside" 2>/dev/null
    [ -z "$direct" ] || [ -z "$beside_asked" ] || drain "$beside_asked"
    systemctl stop "$beside" 2>/dev/null
    # Its unit does so as well, but what a unit does at its end has no longer than its stop may take.
    nft delete table inet "$beside" 2>/dev/null
    rm -f "$beside_file" /run/llamaherd/beside/drafter.yaml "/run/llamaherd/started/$beside"
    systemctl daemon-reload
    systemctl reset-failed "$beside" 2>/dev/null
    direct=''
}
put_back() { [ ! -f "$kept/last/$1" ] || { cp -p "$kept/last/$1" "$2.llamaherd-new" && mv -fT "$2.llamaherd-new" "$2"; }; }
start_what_was() {
    if [ "$was_kind" = unit ]; then
        systemctl -q --no-reload enable llama-drafter.service && systemctl daemon-reload || return 1
        systemctl reset-failed llama-drafter.service 2>/dev/null
        systemctl start llama-drafter.service 2>/dev/null
    else
        docker compose --progress plain -f "$was_file" up -d --force-recreate --remove-orphans --wait --wait-timeout "$was_seconds" >/run/llamaherd-compose.log 2>&1 || return 1
        eval "set -- $was_inputs"
        /opt/llamaherd/libexec/started record container llama-drafter "$@"
    fi
}
note_refused() { (umask 077 && mkdir -p "${refused%/*}" && printf '%s\t%s\t%s\n' 56d67c9ce668 "$(date +'%F %T')" "$(printf %s "$1" | tr -s '\t\n' '  ' | cut -c -300)" >"$refused"); }
# All that change with it go back as well: whoever has begun this sees to that. $1 is why.
take_back() {
    printf '%s\n' "$1" >"$exchange/why"
    [ "$(was)" = 6b3e9ef709bc ] || note_refused "$1"
    [ ! -f "$kept/last/how" ] || [ "$(was)" = 6b3e9ef709bc ] || exit 1
}
# What is not declared any more goes on until what is new has answered a prompt, where both have room. Else it is stopped,
# and comes back where what is new does not serve: a mark beside what is kept of it says so, also to a later run.
# So does what is about to: at a boot, or after it could not have its port.
runs() {
    case $(systemctl show -P ActiveState -P Job "$1.service" 2>/dev/null | tr '\n' ' ') in active* | activating* | reloading* | *[0-9]*) return 0 ;; esac
    case $(docker inspect --type container --format '{{.State.Status}}' "$1" 2>/dev/null) in running | restarting) return 0 ;; esac
    return 1
}
any_going() {
    if [ -e /var/lib/llamaherd/kept/llama-old/aside ] || runs llama-old; then return 0; fi
    if [ -e /var/lib/llamaherd/kept/llama-boxed/aside ] || runs llama-boxed; then return 0; fi
    return 1
}
no_room_with_going() {
    echo 'how much llama-drafter takes is not certain'
    return 1
}
# $1 is who, $2 what is kept of it, $3 why.
step_aside() {
    runs "$1" || return 0
    echo "stopping $1, which is not declared any more: $3"
    drain "$2/last/asked"
    (umask 077 && install -d -m 0700 "${2%/*}" "$2" && : >"$2/aside" && sync "$2/aside") || exit 1
    systemctl stop "$1.service" 2>/dev/null
    docker stop "$1" >/dev/null 2>&1
    let_in
}
going_steps_aside() {
    step_aside llama-old /var/lib/llamaherd/kept/llama-old 'its port is to be that of llama-drafter'
    room=$(no_room_with_going) && return
    step_aside llama-boxed /var/lib/llamaherd/kept/llama-boxed "$room"
}
instead=llama-drafter
# $1 is who, $2 what is kept of it, $3 its Compose file; $instead does not serve.
come_back() {
    [ -e "$2/aside" ] || return 0
    back='' began=$(date +%s)
    if [ -e "/etc/systemd/system/$1.service" ]; then
        systemctl reset-failed "$1.service" 2>/dev/null
        systemctl start "$1.service" 2>/dev/null && back=yes
    elif [ -e "$3" ]; then
        docker compose --progress plain -f "$3" up -d --no-recreate --wait >/run/llamaherd-compose.log 2>&1 && back=yes
    fi
    if [ "$back" ]; then
        rm -f "$2/aside"
        echo "$1 serves again, after $(($(date +%s) - began)) s: $instead does not serve in its place" >&2
    else
        echo "$1 was started again, as $instead does not serve in its place, and does not come up either" >&2
    fi
}
going_comes_back() {
    come_back llama-old /var/lib/llamaherd/kept/llama-old /etc/llamaherd/compose/old/compose.yaml
    come_back llama-boxed /var/lib/llamaherd/kept/llama-boxed /etc/llamaherd/compose/boxed/compose.yaml
}
# Whose place is taken does not come back, also where another instance of this run fails.
going_has_gone() {
    :
    rm -f /var/lib/llamaherd/kept/llama-old/aside
}
# Ends the run, where others serve in its place. What failed may still run. $1 is why.
give_way() {
    any_going || return 0
    docker compose -f /etc/llamaherd/compose/drafter/compose.yaml stop >/dev/null 2>&1
    note_refused "$1"
    echo "llama-drafter is stopped, and what it was to replace goes on, llama-old, llama-boxed: what is declared did not serve, since $1" >&2
    echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    exit 1
}
mark_untried
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
put_file /etc/llamaherd/compose/drafter/compose.yaml /etc/llamaherd/compose/drafter 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgaW5zdGFuY2UgYGRyYWZ0ZXJgIG9mIHJpZyBgYm94
YDogY2hhbmdlIHRoZSBpbnZlbnRvcnksIG5vdCB0aGlzIGZpbGUuCm5hbWU6IGxsYW1hLWRyYWZ0
ZXIKc2VydmljZXM6CiAgc2VydmVyOgogICAgaW1hZ2U6ICJsbGFtYWhlcmQvZW5naW5lOmxsYW1h
LmNwcC0yNTRjMmUxMTFmY2EtYTM3MWI2IgogICAgcHVsbF9wb2xpY3k6IG5ldmVyCiAgICBjb250
YWluZXJfbmFtZTogbGxhbWEtZHJhZnRlcgogICAgZW50cnlwb2ludDogWyIvdXNyL2xvY2FsL2Jp
bi9sbGFtYS1zZXJ2ZXIiXQogICAgY29tbWFuZDogWyItLW1vZGVsIiwgIi92YXIvbGliL2xsYW1h
aGVyZC9tb2RlbHMvbG9jYWwvMDQwNDA0MDQwNDA0MDQwNC9tb2UuZ2d1ZiIsICItLWFsaWFzIiwg
Im1vZSIsICItLWN0eC1zaXplIiwgIjQwOTYiLCAiLS1jYWNoZS10eXBlLWsiLCAiZjE2IiwgIi0t
Y2FjaGUtdHlwZS12IiwgImYxNiIsICItLWZsYXNoLWF0dG4iLCAiYXV0byIsICItLXBhcmFsbGVs
IiwgIjEiLCAiLS10aHJlYWRzIiwgIjEiLCAiLS1ob3N0IiwgIjEyNy4wLjAuMSIsICItLXBvcnQi
LCAiODA4MSIsICItLW1ldHJpY3MiLCAiLS1zcGVjLXR5cGUiLCAiZHJhZnQtbXRwIiwgIi0tc3Bl
Yy1kcmFmdC1uLW1heCIsICIyIl0KICAgIGVudmlyb25tZW50OiB7IkxMQU1BX0FSR19DT1JTX09S
SUdJTlMiOiAibG9jYWxob3N0In0KICAgIGxhYmVsczoKICAgICAgbGxhbWFoZXJkLnNwZWM6ICI2
YjNlOWVmNzA5YmMiCiAgICAgIGxsYW1haGVyZC5wb3J0OiAiODA4MSIKICAgIHVzZXI6ICIyMDkz
Njk2MTc2OjIwOTM2OTYxNzYiCiAgICByZWFkX29ubHk6IHRydWUKICAgIGNhcF9kcm9wOiBbQUxM
XQogICAgc2VjdXJpdHlfb3B0OiBbIm5vLW5ldy1wcml2aWxlZ2VzOnRydWUiXQogICAgdG1wZnM6
IFsiL3RtcDpzaXplPTY0bSxtb2RlPTE3NzciXQogICAgIyBFYWNoIGNvbm5lY3Rpb24gaXMgYW4g
b3BlbiBmaWxlLCBhbmQgdGhlIGZpcnN0IDEsMDAwIG9yIHNvIGFyZSBhIHRocmVhZCBlYWNoLgog
ICAgcGlkc19saW1pdDogNDA5NgogICAgdWxpbWl0czoge25vZmlsZTogMTYzODR9CiAgICBvb21f
c2NvcmVfYWRqOiA1MDAKICAgICMgSXQgbGlzdGVucyBvbiB0aGUgaG9zdCdzIG93biBsb29wYmFj
ay4gV2hhdCBEb2NrZXIgcHVibGlzaGVzIHRoZXJlIGNhbiBiZSByZWFjaGVkIGZyb20gb3V0c2lk
ZSwgYnkgYSByb3V0ZSB0byB0aGUKICAgICMgY29udGFpbmVyJ3MgbmV0d29yayAoRG9ja2VyIGJl
Zm9yZSAyOCkuCiAgICBuZXR3b3JrX21vZGU6IGhvc3QKICAgIHZvbHVtZXM6CiAgICAgIC0ge3R5
cGU6IGJpbmQsIHNvdXJjZTogIi92YXIvbGliL2xsYW1haGVyZC9tb2RlbHMvbG9jYWwvMDQwNDA0
MDQwNDA0MDQwNCIsIHRhcmdldDogIi92YXIvbGliL2xsYW1haGVyZC9tb2RlbHMvbG9jYWwvMDQw
NDA0MDQwNDA0MDQwNCIsIHJlYWRfb25seTogdHJ1ZSwgYmluZDoge2NyZWF0ZV9ob3N0X3BhdGg6
IGZhbHNlfX0KICAgIGhlYWx0aGNoZWNrOgogICAgICB0ZXN0OiBbIkNNRCIsICIvdXNyL2Jpbi9i
dXN5Ym94IiwgIndnZXQiLCAiLXEiLCAiLU8iLCAiL2Rldi9udWxsIiwgImh0dHA6Ly8xMjcuMC4w
LjE6ODA4MS9oZWFsdGgiXQogICAgICBpbnRlcnZhbDogMzBzCiAgICAgIHRpbWVvdXQ6IDVzCiAg
ICAgIHJldHJpZXM6IDMKICAgICAgc3RhcnRfcGVyaW9kOiAzMDBzCiAgICAgIHN0YXJ0X2ludGVy
dmFsOiAxcwogICAgcmVzdGFydDogdW5sZXNzLXN0b3BwZWQKICAgIHN0b3Bfc2lnbmFsOiBTSUdJ
TlQKICAgIHN0b3BfZ3JhY2VfcGVyaW9kOiAxcwogICAgbG9nZ2luZzoge2RyaXZlcjoganNvbi1m
aWxlLCBvcHRpb25zOiB7bWF4LXNpemU6IDEwbSwgbWF4LWZpbGU6ICIzIn19Cg==
END

# Who held the lock before us may have made what we want. What was seen to be wrong with a container is not asked about
# again; one that was only not recorded yet may be by now.
now=$(docker inspect --type container --format '{{.Id}} {{.State.Status}} {{with .State.Health}}{{.Status}}{{end}} {{index .Config.Labels "llamaherd.spec"}}' llama-drafter 2>/dev/null)
if [ -z "$unproven" ] && [ "${now%% *}" != '' ] && [ "${now#* }" = 'running healthy 6b3e9ef709bc' ] &&
    /opt/llamaherd/libexec/started changed container llama-drafter - /var/lib/llamaherd/models/local/0404040404040404 >/dev/null; then
    echo "llama-drafter was started by another run meanwhile, as planned"
    rm -f "$kept/untried"
    exit 0
fi
echo "starting llama-drafter in its container: it has 300 s to load its model"
began=$(date +%s) stopped=$(date +%s%3N)
docker stop llama-drafter >/dev/null 2>&1
let_in
going_steps_aside
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8081 >/dev/null 2>&1
if ! docker compose --progress plain -f /etc/llamaherd/compose/drafter/compose.yaml up -d --force-recreate --remove-orphans \
    --wait --wait-timeout 300 >/run/llamaherd-compose.log 2>&1; then
    tail -n 5 /run/llamaherd-compose.log | cut -c -300 >&2
    docker logs --tail 20 llama-drafter 2>&1 | cut -c -300 >&2
    echo "llama-drafter is not healthy after $(($(date +%s) - began)) s of 300; its last lines are above, all of them in: docker logs llama-drafter" >&2
    docker compose -f /etc/llamaherd/compose/drafter/compose.yaml stop >/dev/null 2>&1
    take_back "llama-drafter was not healthy after $(($(date +%s) - began)) s of 300"
    exit 1
fi
loaded=$(($(date +%s%3N) - stopped))
why=$(proved "$asked")
case $? in
0) ;;
1)
    docker logs --tail 5 llama-drafter 2>&1 | cut -c -300 >&2
    printf '%s\n' "llama-drafter is healthy, but $why" >&2
    docker compose -f /etc/llamaherd/compose/drafter/compose.yaml stop >/dev/null 2>&1
    take_back "$why"
    exit 1
    ;;
*)
    printf '%s\n' "llama-drafter answers, but $why" >&2
    take_back "$why"
    ;;
esac
/opt/llamaherd/libexec/started record container llama-drafter - /var/lib/llamaherd/models/local/0404040404040404
# The network that it had before, if it is on the host's own now: one in use is not removed.
docker network rm llama-drafter_default >/dev/null 2>&1 || :
keep container 6b3e9ef709bc "$asked" || echo "llama-drafter serves, and cannot be kept in $kept: a later change that fails cannot come back to it"

)
# The last line of a member's own words is why; of some there is none.
not_together() {
    [ -s "$exchange/why" ] || echo 'the reason is above' >"$exchange/why"
    sh "$exchange/back" "$1"
    exit 1
}
# What a server is answering ends before it does, as far as that takes no longer than it may. How to ask it is kept since
# it was started; $1 says how to ask another. Then new connections are refused where the host can do that, for seconds
# at most: `let_in` is to come after the server was stopped.
drain() {
    grep -qs '"metrics"' "${1:-/var/lib/llamaherd/kept/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/var/lib/llamaherd/kept/last/asked}" 30 2009999999 ${direct:+led} <<'END'
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
# $1 is who, $2 what is kept of it.
stop_member() {
    echo "stopping $1: "'llama-chat, llama-drafter change together'
    drain "$2/last/asked"
    systemctl stop "$1.service" 2>/dev/null
    docker stop "$1" >/dev/null 2>&1
    let_in
}
check_1 || exit 1
check_2 || exit 1
(umask 077 && rm -rf "$exchange.new" "$exchange" && mkdir -p "$exchange.new" && base64 -d >"$exchange.new/back" &&
    echo 'llama-chat, llama-drafter' >"$exchange.new/members" && sync "$exchange.new"/* && mv -T "$exchange.new" "$exchange") <<'END' || {
IyBFbmRzIHdoYXQgc2VydmVycyBkbyB0b2dldGhlciwgYnkgd2hhdCB3YXMga2VwdCBvZiBlYWNo
IGJlZm9yZSB0aGUgZmlyc3Qgd2FzIHN0b3BwZWQ6IHdoZXJlIGFsbCBvZiB0aGVtIHNlcnZlIGFz
IGRlY2xhcmVkLAojIHRoYXQgaXMga2VwdCBmcm9tIG5vdyBvbjsgZWxzZSB0aG9zZSB0aGF0IHNl
cnZlZCBiZWZvcmUgY29tZSBiYWNrLiBJdCBtYXkgYmUgcnVuIGFnYWluLCBhZnRlciB3aGF0ZXZl
ciBlbmRlZCBpdC4KIyBJdCBnb2VzIG9uIHdoZW4gbm9ib2R5IGxpc3RlbnMgYW55IG1vcmUuCnRy
YXAgOiBQSVBFCmV4Y2hhbmdlPS92YXIvbGliL2xsYW1haGVyZC9rZXB0Ly5leGNoYW5nZQojICQx
IGlzIHdobyBkaWQgbm90IHNlcnZlLCBhbmQgZW1wdHkgd2hlcmUgdGhlIHJ1biB3YXMgY3V0IG9m
Zi4KZmFpbGVkPSR7MTotfSBsb3N0PScnCmVuZF9vZl9qb3VybmFsKCkgeyBybSAtZiAiJGV4Y2hh
bmdlL2JhY2siICYmIHJtIC1yZiAiJGV4Y2hhbmdlIjsgfQp3YXMoKSB7IHNlZCAtbiAicy8uKndh
c19zcGVjPVwoW14gXSpcKSAuKi9cMS9wIiAiJDEvaG93IiAyPi9kZXYvbnVsbDsgfQojICQxIGlz
IHdoYXQgaXMga2VwdCBvZiBpdCwgJDIgdGhlIG5vdGUgb2Ygd2hhdCB3YXMgdHJpZWQgYmVmb3Jl
LiBUaGUgcHJldmlvdXMgdmVyc2lvbiBzdGF5cyB1bnRpbCB0aGUgbmV3IG9uZSBoYXMgcGFzc2Vk
CiMgaXRzIHByb2JhdGlvbi4Kc2V0dGxlKCkgewogICAgaWYgWyAtTCAiJDEvbmV4dCIgXTsgdGhl
bgogICAgICAgIFsgISAtZiAiJDEvbGFzdC9ob3ciIF0gfHwgWyAiJCh3YXMgIiQxL2xhc3QiKSIg
PSAiJCh3YXMgIiQxL25leHQiKSIgXSB8fCBsbiAtc2ZuICIkKHJlYWRsaW5rICIkMS9sYXN0Iiki
ICIkMS9iZWZvcmUiCiAgICAgICAgbXYgLWZUICIkMS9uZXh0IiAiJDEvbGFzdCIKICAgIGZpCiAg
ICBmb3IgZWFjaCBpbiAiJDEiLyo7IGRvIFsgLUwgIiRlYWNoIiBdIHx8IFsgIiRlYWNoIiAtZWYg
IiQxL2xhc3QiIF0gfHwgWyAiJGVhY2giIC1lZiAiJDEvYmVmb3JlIiBdIHx8IHJtIC1yZiAiJGVh
Y2giOyBkb25lCiAgICBybSAtZiAiJDIiCn0KaWYgWyAtZSAiJGV4Y2hhbmdlL2RvbmUiIF07IHRo
ZW4KICAgIHNldHRsZSAvdmFyL2xpYi9sbGFtYWhlcmQva2VwdC9sbGFtYS1jaGF0IC92YXIvbGli
L2xsYW1haGVyZC9yZWZ1c2VkL2xsYW1hLWNoYXQKICAgIHNldHRsZSAvdmFyL2xpYi9sbGFtYWhl
cmQva2VwdC9sbGFtYS1kcmFmdGVyIC92YXIvbGliL2xsYW1haGVyZC9yZWZ1c2VkL2xsYW1hLWRy
YWZ0ZXIKICAgIHJtIC1mIC92YXIvbGliL2xsYW1haGVyZC9rZXB0L2xsYW1hLW9sZC9hc2lkZQog
ICAgZW5kX29mX2pvdXJuYWwKICAgICMgRnJvbSBoZXJlIG9uLCB0aGUgaG9zdCBpdHNlbGYgcHJv
YmVzIGFsbCBvZiB0aGVtLCBhbmQgcmVzdG9yZXMgYWxsIGlmIG9uZSBmYWlscy4KICAgIHN5c3Rl
bWN0bCBzdG9wIGxsYW1haGVyZC1wcm9iYXRpb24tY2hhdCAyPi9kZXYvbnVsbAogICAgKHVtYXNr
IDA3NyAmJiBpbnN0YWxsIC1kIC1tIDA3MDAgL3J1bi9sbGFtYWhlcmQvcHJvYmF0aW9uICYmIGJh
c2U2NCAtZCA+L3J1bi9sbGFtYWhlcmQvcHJvYmF0aW9uL2xsYW1hLWNoYXQuanNvbikgPDwnRU5E
JyAmJgpXM3NpYzJWeWRtbGpaU0k2SUNKc2JHRnRZUzFqYUdGMElpd2dJbXRwYm1RaU9pQWlkVzVw
ZENJc0lDSnpjR1ZqSWpvZ0ltVmhNMlF6Ck5tRTNZVEEzTWlJc0lDSjBjbWxsWkNJNklDSmlOV1l6
WkRBME1EUm1ZVGNpTENBaWFXNXpkR0Z1WTJVaU9pQWlZMmhoZENJc0lDSjEKYzJWeUlqb2dJbXhz
WVcxaExXTm9ZWFFpTENBaWEyVndkQ0k2SUNJdmRtRnlMMnhwWWk5c2JHRnRZV2hsY21RdmEyVndk
QzlzYkdGdApZUzFqYUdGMElpd2dJbkpsWm5WelpXUWlPaUFpTDNaaGNpOXNhV0l2Ykd4aGJXRm9a
WEprTDNKbFpuVnpaV1F2Ykd4aGJXRXRZMmhoCmRDSXNJQ0p5Wld4bFlYTmxjeUk2SUNJdmRtRnlM
MnhwWWk5c2JHRnRZV2hsY21RdmNtVnNaV0Z6WlhNaUxDQWliRzlqYTNNaU9pQWkKTDNKMWJpOXNi
R0Z0WVdobGNtUXZiRzlqYTNNaUxDQWliRzlqYTE5elpXTnZibVJ6SWpvZ016WXdNQ3dnSW5ObFky
OXVaSE1pT2lBeApNakFzSUNKd2NtOXRjSFJ6SWpvZ2RISjFaU3dnSW5CeWIzWmxJam9nSWk5dmNI
UXZiR3hoYldGb1pYSmtMMnhwWW1WNFpXTXZjSEp2CmRtVWlMQ0FpYzNSaGNuUmxaQ0k2SUNJdmIz
QjBMMnhzWVcxaGFHVnlaQzlzYVdKbGVHVmpMM04wWVhKMFpXUWlMQ0FpWm05eVoyVjAKSWpvZ0lu
TjVjM1JsYldOMGJDQnpkRzl3SUd4c1lXMWhhR1Z5WkMxaVpYTnBaR1V0WTJoaGRDNXpaWEoyYVdO
bElESStMMlJsZGk5dQpkV3hzWEc1emVYTjBaVzFqZEd3Z1pHbHpZV0pzWlNBdGNTQXRMVzV2ZHlC
c2JHRnRZUzFqYUdGMExuTmxjblpwWTJWY2JpTWdWR2hsCklIVnVhWFFuY3lCbWFXeGxJR2R2WlhN
Z1lXWjBaWElnYVhSeklIVnpaWEk2SUdGeklHeHZibWNnWVhNZ2FYUWdhWE1nZEdobGNtVXMKSUhS
b1pTQnVaWGgwSUhKMWJpQnJibTkzY3lCMGFHRjBJSFJvYVhNZ2IyNWxJR1JwWkNCdWIzUWdaVzVr
TGx4dUlTQnBaQ0F0ZFNCcwpiR0Z0WVMxamFHRjBJRDR2WkdWMkwyNTFiR3dnTWo0bU1TQjhmQ0Ix
YzJWeVpHVnNJR3hzWVcxaExXTm9ZWFFnZkh3Z1pYaHBkQ0F4ClhHNXliU0F0WmlBdlpYUmpMM041
YzNSbGJXUXZjM2x6ZEdWdEwyeHNZVzFoTFdOb1lYUXVjMlZ5ZG1salpTQXZjblZ1TDJ4c1lXMWgK
YUdWeVpDOXpkR0Z5ZEdWa0wyeHNZVzFoTFdOb1lYUmNibk41YzNSbGJXTjBiQ0JrWVdWdGIyNHRj
bVZzYjJGa1hHNXplWE4wWlcxagpkR3dnY21WelpYUXRabUZwYkdWa0lHeHNZVzFoTFdOb1lYUXVj
MlZ5ZG1salpTQXlQaTlrWlhZdmJuVnNiRnh1T2x4dUluMHNJSHNpCmMyVnlkbWxqWlNJNklDSnNi
R0Z0WVMxa2NtRm1kR1Z5SWl3Z0ltdHBibVFpT2lBaVkyOXVkR0ZwYm1WeUlpd2dJbk53WldNaU9p
QWkKTm1JelpUbGxaamN3T1dKaklpd2dJblJ5YVdWa0lqb2dJalUyWkRZM1l6bGpaVFkyT0NJc0lD
SnBibk4wWVc1alpTSTZJQ0prY21GbQpkR1Z5SWl3Z0luVnpaWElpT2lBaWJHeGhiV0V0WkhKaFpu
UmxjaUlzSUNKclpYQjBJam9nSWk5MllYSXZiR2xpTDJ4c1lXMWhhR1Z5ClpDOXJaWEIwTDJ4c1lX
MWhMV1J5WVdaMFpYSWlMQ0FpY21WbWRYTmxaQ0k2SUNJdmRtRnlMMnhwWWk5c2JHRnRZV2hsY21R
dmNtVm0KZFhObFpDOXNiR0Z0WVMxa2NtRm1kR1Z5SWl3Z0luSmxiR1ZoYzJWeklqb2dJaTkyWVhJ
dmJHbGlMMnhzWVcxaGFHVnlaQzl5Wld4bApZWE5sY3lJc0lDSnNiMk5yY3lJNklDSXZjblZ1TDJ4
c1lXMWhhR1Z5WkM5c2IyTnJjeUlzSUNKc2IyTnJYM05sWTI5dVpITWlPaUF6Ck5qQXdMQ0FpYzJW
amIyNWtjeUk2SURFeU1Dd2dJbkJ5YjIxd2RITWlPaUIwY25WbExDQWljSEp2ZG1VaU9pQWlMMjl3
ZEM5c2JHRnQKWVdobGNtUXZiR2xpWlhobFl5OXdjbTkyWlNJc0lDSnpkR0Z5ZEdWa0lqb2dJaTl2
Y0hRdmJHeGhiV0ZvWlhKa0wyeHBZbVY0WldNdgpjM1JoY25SbFpDSXNJQ0ptYjNKblpYUWlPaUFp
YzNsemRHVnRZM1JzSUhOMGIzQWdiR3hoYldGb1pYSmtMV0psYzJsa1pTMWtjbUZtCmRHVnlMbk5s
Y25acFkyVWdNajR2WkdWMkwyNTFiR3hjYm1SdlkydGxjaUJ6ZEc5d0lHeHNZVzFoTFdSeVlXWjBa
WElnUGk5a1pYWXYKYm5Wc2JDQXlQaVl4WEc1a2IyTnJaWElnY20wZ0xXWWdiR3hoYldFdFpISmha
blJsY2lBK0wyUmxkaTl1ZFd4c0lESStKakZjYm1SdgpZMnRsY2lCdVpYUjNiM0pySUhKdElHeHNZ
VzFoTFdSeVlXWjBaWEpmWkdWbVlYVnNkQ0ErTDJSbGRpOXVkV3hzSURJK0pqRmNibkp0CklDMXla
aUF2WlhSakwyeHNZVzFoYUdWeVpDOWpiMjF3YjNObEwyUnlZV1owWlhJZ0wzWmhjaTlzYVdJdmJH
eGhiV0ZvWlhKa0wzTjAKWVhKMFpXUXZiR3hoYldFdFpISmhablJsY2x4dU9seHVJbjFkCkVORAog
ICAgICAgIHN5c3RlbWQtcnVuIC0tcXVpZXQgLS1jb2xsZWN0IC0tdW5pdD1sbGFtYWhlcmQtcHJv
YmF0aW9uLWNoYXQgLS1wcm9wZXJ0eT1SdW50aW1lTWF4U2VjPTg0MDAgL29wdC9sbGFtYWhlcmQv
bGliZXhlYy9wcm9iYXRpb24gL3J1bi9sbGFtYWhlcmQvcHJvYmF0aW9uL2xsYW1hLWNoYXQuanNv
biB8fAogICAgICAgIGVjaG8gJ2xsYW1hLWNoYXQsIGxsYW1hLWRyYWZ0ZXIgc2VydmUsIGJ1dCB0
aGVpciBwcm9iYXRpb24gZGlkIG5vdCBzdGFydDogdGhlIGhvc3QgZG9lcyBub3Qgcm9sbCB0aGVt
IGJhY2sgaWYgb25lIGZhaWxzIHdpdGhpbiBhIG1pbnV0ZScgPiYyCiAgICBleGl0IDAKZmkKcnVu
bmluZygpIHsKICAgIHNlZCAteiAtbiAncy9eTExBTUFIRVJEX1NQRUM9Ly9wJyAiL3Byb2MvJChz
eXN0ZW1jdGwgc2hvdyAtUCBNYWluUElEICIkMS5zZXJ2aWNlIikvZW52aXJvbiIgMj4vZGV2L251
bGwgfCB0ciAtZCAnXDAnCiAgICBkb2NrZXIgaW5zcGVjdCAtLXR5cGUgY29udGFpbmVyIC0tZm9y
bWF0ICd7e2lmIGVxIC5TdGF0ZS5TdGF0dXMgInJ1bm5pbmcifX17e2luZGV4IC5Db25maWcuTGFi
ZWxzICJsbGFtYWhlcmQuc3BlYyJ9fXt7ZW5kfX0nICIkMSIgMj4vZGV2L251bGwKfQojIFdob2V2
ZXIgd2FzIG5vdCBzdG9wcGVkIHlldCBzZXJ2ZXMgb24uCmFzX2JlZm9yZSgpIHsgWyAtZiAiJDIv
bGFzdC9ob3ciIF0gJiYgWyAiJChydW5uaW5nICIkMSIpIiA9ICIkKHdhcyAiJDIvbGFzdCIpIiBd
OyB9CnN0b3AoKSB7CiAgICBhc19iZWZvcmUgIiQxIiAiJDIiIHx8IHsKICAgICAgICBzeXN0ZW1j
dGwgc3RvcCAiJDEuc2VydmljZSIgMj4vZGV2L251bGwKICAgICAgICBkb2NrZXIgc3RvcCAiJDEi
ID4vZGV2L251bGwgMj4mMQogICAgfQp9CnB1dF9iYWNrKCkgeyBbICEgLWYgIiQxIiBdIHx8IHsg
Y3AgLXAgIiQxIiAiJDIubGxhbWFoZXJkLW5ldyIgJiYgbXYgLWZUICIkMi5sbGFtYWhlcmQtbmV3
IiAiJDIiOyB9OyB9CnByb3ZlZCgpIHsKICAgIHB5dGhvbjMgLUkgLSAiJDEvbGFzdC9hc2tlZCIg
IiQxL2xhc3Qvc3BlZWRzIiAiJGV4Y2hhbmdlL3NwZWVkcyIgYmFjayBcCiAgICAgICAgJChzeXN0
ZW1jdGwgc2hvdyAtUCBNYWluUElEICIkMi5zZXJ2aWNlIikgJChkb2NrZXIgdG9wICIkMiIgLWVv
IHBpZCAyPi9kZXYvbnVsbCB8IHNlZCAxZCkgPDwnRU5EJwojIS91c3IvYmluL3B5dGhvbjMgLUkK
IiIiUHJvdmUgdGhhdCBhIHNlcnZlciBzZXJ2ZXM6IHF1ZXJ5IGl0IGFzIGEgY2xpZW50IGRvZXMg
aW4gaXRzIGZpcnN0IG1pbnV0ZS4KCiAgICBwcm92ZS5weSBRVUVTVElPTiBSRUNPUkQgT1VUIEhP
VyBQSUQuLi4gICAgIGFmdGVyIGEgc3dpdGNoCiAgICBwcm92ZS5weSAtLXNob3J0IFNFQ09ORFMg
UVVFU1RJT04gICAgICAgICAgIGxhdGVyOiBvbmUgcHJvbXB0LCBhbmQgb25lIHRoYXQgaXMgc3Ry
ZWFtZWQKCkV4aXRzIHdpdGggMCBhbmQgcHJpbnRzIG5vdGhpbmc7IHdpdGggMSBhbmQgcHJpbnRz
IHdoeSB0aGUgc2VydmVyIGRvZXMgbm90IHNlcnZlOyB3aXRoIDIgYW5kIHByaW50cyB3aGF0IGlz
IG5vdCBhcwpkZWNsYXJlZCwgb3IgaG93IG11Y2ggc2xvd2VyIHRoZSBzZXJ2ZXIgaXMgdGhhbiB0
aGUgc2FtZSBtb2RlbCB3YXMgaGVyZSBiZWZvcmU7IG9yLCBpbiBzaG9ydCwgd2l0aCAzIHdoZXJl
IG5vIHJlc3BvbnNlCmNvbWVzIGluIHRpbWUuIEVhY2ggd2FpdCBoYXMgYSBsaW1pdCBmb3IgdGhl
IHdob2xlIG9mIGl0OiB0aGUgZmlyc3QgcmVzcG9uc2UgYnkgd2hhdCBpcyBsZWZ0IG9mIHRoZSBs
b2FkJ3MgKExFRlQKc2Vjb25kcyksIGFsbCB0aGF0IGZvbGxvd3MgYnkgbGltaXRzIG9mIGl0cyBv
d24uCgpUaGUgcHJvb2YgZW5kcyB3aXRoIGEgcHJvbXB0IHRoYXQgaXMgYXMgbG9uZyBhcyB0aHJl
ZSBzZWNvbmRzIGFsbG93IGJ5IHRoZSBzcGVlZCBvZiB0aGUgZmlyc3Qgb25lOiB0aGUgbW9kZWwg
aXMgaW4KbWVtb3J5IGJ5IHRoZW4uIEEgc2xvdyBzZXJ2ZXIgaGFzIHRocmVlIHRyaWVzLCBhbmQg
dGhlIGJlc3QgY291bnRzLiBOb25lIGNvdW50cyB3aGlsZSB0aGUgc2VydmVyIHJlc3BvbmRzIHRv
IG90aGVyCmNsaWVudHMsIG9yIHdoaWxlIGl0cyBob3N0IGNvbXB1dGVzIGZvciBvdGhlcnMuIEEg
c2VydmVyIHRoYXQgbWF5IGhhdmUgYW55IHNwZWVkLCBhbmQgaGFzIHNlcnZlZCBoZXJlIGJlZm9y
ZSwgaXMgbm90Cm1lYXN1cmVkIGFnYWluLgoiIiIKCmltcG9ydCBodHRwLmNsaWVudAppbXBvcnQg
aXBhZGRyZXNzCmltcG9ydCBqc29uCmltcG9ydCBtYXRoCmltcG9ydCBvcwppbXBvcnQgcmUKaW1w
b3J0IHNlY3JldHMKaW1wb3J0IHNvY2tldAppbXBvcnQgc3RhdGlzdGljcwppbXBvcnQgc3lzCmlt
cG9ydCB0aW1lCmltcG9ydCB1bmljb2RlZGF0YQpmcm9tIGNvbGxlY3Rpb25zLmFiYyBpbXBvcnQg
Q2FsbGFibGUsIEl0ZXJhYmxlLCBJdGVyYXRvciwgTWFwcGluZywgU2VxdWVuY2UKZnJvbSBjb250
ZXh0bGliIGltcG9ydCBjb250ZXh0bWFuYWdlciwgc3VwcHJlc3MKZnJvbSBkYXRhY2xhc3NlcyBp
bXBvcnQgZGF0YWNsYXNzLCBmaWVsZApmcm9tIHBhdGhsaWIgaW1wb3J0IFBhdGgKZnJvbSB0eXBp
bmcgaW1wb3J0IEFueQpmcm9tIHVybGxpYi5wYXJzZSBpbXBvcnQgdXJsc3BsaXQKCkxBUkdFU1Qg
PSAxIDw8IDIwCiIiIkJ5dGVzIG9mIGEgcmVzcG9uc2UuIiIiClRPS0VOUywgTU9TVF9UT0tFTlMs
IFNFQ09ORFMsIExFQVNUX1NFQ09ORFMgPSA4LCAxMjgsIDMsIDAuMgoiIiJPZiBhIHJlc3BvbnNl
IHRoYXQgdGVsbHMgdGhlIHNwZWVkOiBubyBmZXdlciwgbm8gbW9yZSwgaG93IGxvbmcgaXQgc2hv
dWxkIHRha2UsIGFuZCBtdXN0LiIiIgpDUk9XREVEID0gMC4yCiIiIk9mIGFsbCBwcm9jZXNzb3Jz
JyB0aW1lLCB0YWtlbiBieSBvdGhlcnM6IHdoYXQgd2FzIG1lYXN1cmVkIHRoZW4gbWVhbnMgbm90
aGluZy4iIiIKVFJJRVMgPSAzCkZMT09SID0gMC43CiIiIk9mIHRoZSBzcGVlZCB0aGF0IHRoZSBz
YW1lIG1vZGVsIGhhZDogc2xvd2VyIGlzIG5vdCBhY2NlcHRlZC4iIiIKUkVDRU5ULCBNT1NUID0g
NSwgMjAKIiIiU3BlZWRzIHRoYXQgY291bnQgb2Ygb25lIG1vZGVsLCBhbmQgdGhvc2UgdGhhdCBh
cmUga2VwdCBvZiBhbGw6IHRoZSBtZWRpYW4gb2YgYSBmZXcgbW92ZXMgYnkgbm8gc2luZ2xlIG9u
ZS4iIiIKQlVTWSA9IHJlLmNvbXBpbGUoCiAgICByIl4oPzpsbGFtYWNwcDpyZXF1ZXN0c18oPzpw
cm9jZXNzaW5nfGRlZmVycmVkKXx2bGxtOm51bV9yZXF1ZXN0c18oPzpydW5uaW5nfHdhaXRpbmcp
KVxTKiAoWzAtOS5dKykiLCByZS5NVUxUSUxJTkUKKQpGSVJTVF9TRUNPTkRTLCBMQVRFUl9TRUNP
TkRTLCBTVEVQX1NFQ09ORFMsIFBBR0VfU0VDT05EUyA9IDMwLCAxMjAsIDMwLCA1CiIiIlRoZSBs
ZWFzdCBsaW1pdCBvZiB0aGUgZmlyc3QgcmVzcG9uc2U7IHRoZSBsaW1pdCBvZiBhbGwgdGhhdCBm
b2xsb3dzIGl0OyBvZiBvbmUgc3RlcDsgb2YgYSBwYWdlIHN1Y2ggYXMgL21ldHJpY3MuIiIiCkJV
REdFVCwgTE9OR19TRUNPTkRTID0gOC4wLCAwLjUKIiIiU2Vjb25kcyB0aGF0IHRoZSBzdGVwcyBt
YXkgdGFrZSBieSB0aGUgc3BlZWQgb2YgdGhpcyBob3N0LCBhbmQgdGhlIGxvbmcgcHJvbXB0IGFt
b25nIHRoZW0uIiIiClNIT1JULCBGT1JNRUQsIENBTExFRCwgUkVUUklFRCwgTE9ORyA9IDQsIDE2
LCA0MCwgNjQsIDIwMDAKIiIiVG9rZW5zOiBvZiBhIHN0ZXAncyByZXNwb25zZSwgb2Ygb25lIGJ5
IGEgc2NoZW1hLCBvZiBhIGNhbGwsIG9mIGEgc2Vjb25kIHRyeSwgYW5kIG9mIHRoZSBsb25nIHBy
b21wdC4iIiIKU1BBUkUgPSA4CiIiIlRva2VucyB0aGF0IGEgcmVzcG9uc2UgbWF5IGhhdmUgbW9y
ZSB0aGFuIHdlcmUgYWxsb3dlZC4iIiIKRkVXRVNULCBNT1NUX0NIQVJBQ1RFUlMgPSAxMDAsIDgK
IiIiVG9rZW5zIG9mIGEgbG9uZyBwcm9tcHQsIGFuZCBjaGFyYWN0ZXJzIG9mIGl0cyB0b2tlbnMu
IiIiCkxFQVZJTkdfU0VDT05EUyA9IDAuNQoiIiJJbiB3aGljaCBhIHNlcnZlciBub3RpY2VzIHRo
YXQgYSBjbGllbnQgaGFzIGxlZnQsIG9yIGhhcyBpdHMgcmVzcG9uc2UuIiIiCkZBU1RFU1QgPSAx
ZTYKIiIiVG9rZW5zIGEgc2Vjb25kIHRoYXQgYXJlIGJlbGlldmVkLiIiIgpUQUxLSU5HX1NFQ09O
RFMgPSAzCiIiIkJldHdlZW4gdHdvIGxpbmVzIG9mIHByb2dyZXNzLiIiIgpSRVBFQVRFRCA9IDQK
IiIiQ2hhcmFjdGVycyB0aGF0IGFyZSBubyB0ZXh0IHdoZXJlIGFsbCBhcmUgdGhlIHNhbWUuIiIi
ClNQRUNJQUwgPSByZS5jb21waWxlKAogICAgciI8XHxbXnw8Pl17MCw0MH1cfD58PC8/KD86c3xi
b3N8ZW9zfHBhZHx1bmt8dW51c2VkXGQrfG1hc2t8c3RhcnRfb2ZfdHVybnxlbmRfb2ZfdHVybik+
fFxbKD86UEFEfFVOS3xFT1MpXGQqXF0iCikKRklOSVNIRVMgPSB7InN0b3AiLCAibGVuZ3RoIiwg
InRvb2xfY2FsbHMiLCAiZnVuY3Rpb25fY2FsbCJ9ClVOU1VQUE9SVEVEID0gcmUuY29tcGlsZSgi
c3VwcG9ydHxqaW5qYXx0ZW1wbGF0ZXxyZXF1aXJlc3x0b29sWyBfLV0/Y2hvaWNlfC0tZW5hYmxl
fHN5c3RlbSByb2xlIiwgcmUuSUdOT1JFQ0FTRSkKIiIiSW4gdGhlIG1lc3NhZ2Ugb2YgYW4gZXJy
b3I6IHRoZSBzZXJ2ZXIgZG9lcyBub3QgaGF2ZSB3aGF0IGl0IHdhcyBhc2tlZCBmb3IuIiIiClRP
S0VOU19QQVRIID0gIi9lbWJlZGRpbmdzIgoiIiJXaGVyZSBsbGFtYS5jcHAgZ2l2ZXMgYSB2ZWN0
b3IgZm9yIGVhY2ggdG9rZW4uIiIiCk5PX0NIQVQgPSAid2hhdCBpcyBubyBjaGF0IGNvbXBsZXRp
b24iClBSSU1BUlkgPSAiVGhlIHRocmVlIHByaW1hcnkgY29sb3VycyBhcmUiCgpKc29uID0gZGlj
dFtzdHIsIEFueV0KQ09MT1VSOiBKc29uID0gewogICAgInR5cGUiOiAianNvbl9zY2hlbWEiLAog
ICAgImpzb25fc2NoZW1hIjogewogICAgICAgICJuYW1lIjogImNvbG91ciIsCiAgICAgICAgInN0
cmljdCI6IFRydWUsCiAgICAgICAgInNjaGVtYSI6IHsKICAgICAgICAgICAgInR5cGUiOiAib2Jq
ZWN0IiwKICAgICAgICAgICAgInByb3BlcnRpZXMiOiB7ImNvbG91ciI6IHsidHlwZSI6ICJzdHJp
bmciLCAiZW51bSI6IFsicmVkIiwgImJsdWUiXX19LAogICAgICAgICAgICAicmVxdWlyZWQiOiBb
ImNvbG91ciJdLAogICAgICAgICAgICAiYWRkaXRpb25hbFByb3BlcnRpZXMiOiBGYWxzZSwKICAg
ICAgICB9LAogICAgfSwKfQoiIiJBIHNjaGVtYSBvZiBhIHJlc3BvbnNlLCBhcyBjbGllbnRzIHNl
bmQgaXQuIiIiClNwZWVkcyA9IGxpc3RbSnNvbl0KCgpjbGFzcyBGYWlsZWRFcnJvcihFeGNlcHRp
b24pOgogICAgIiIiVGhlIHNlcnZlciBkb2VzIG5vdCBzZXJ2ZTsgY29udGFpbnMgdGhlIHJlYXNv
bi4iIiIKCgpjbGFzcyBOb1Jlc3BvbnNlRXJyb3IoRmFpbGVkRXJyb3IpOgogICAgIiIiTm8gcmVz
cG9uc2UgY29tZXMgaW4gdGltZS4iIiIKCgpjbGFzcyBMZWZ0T3V0RXJyb3IoRXhjZXB0aW9uKToK
ICAgICIiIkEgc3RlcCBjYW5ub3QgYmUgZG9uZTsgY29udGFpbnMgdGhlIHJlYXNvbi4iIiIKCgpA
ZGF0YWNsYXNzKGZyb3plbj1UcnVlKQpjbGFzcyBRdWVzdGlvbjoKICAgICIiIlRoZSBkZWNsYXJl
ZCBzZXJ2ZXI6IHdoZXJlIGl0IGxpc3RlbnMsIHdoYXQgYSBjbGllbnQgc2VuZHMgZmlyc3QsIGFu
ZCB3aGF0IGl0cyByZXNwb25zZXMgbXVzdCBiZSBsaWtlLgoKICAgIEEgcXVlc3Rpb24gdGhhdCBh
biBlYXJsaWVyIHZlcnNpb24ga2VwdCBoYXMgbm8gbW9yZSB0aGFuIHRoZSBwcm9tcHQuCiAgICAi
IiIKCiAgICB1cmw6IHN0ciA9ICIiCiAgICBtZXRyaWNzOiB0dXBsZVtzdHIsIC4uLl0gPSAoKQog
ICAga2V5OiBzdHIgfCBOb25lID0gTm9uZQogICAgc2Vjb25kczogZmxvYXQgPSBMQVRFUl9TRUNP
TkRTCiAgICBkcmFmdHM6IGludCA9IDAKICAgIGZsb29yOiBmbG9hdCA9IDAKICAgIGJvZHk6IEpz
b24gPSBmaWVsZChkZWZhdWx0X2ZhY3Rvcnk9ZGljdCkKICAgIHNhbWU6IHN0ciB8IE5vbmUgPSBO
b25lCiAgICBzcGVjOiBzdHIgfCBOb25lID0gTm9uZQogICAga2luZDogc3RyID0gImNoYXQiCiAg
ICBtb2RlbHM6IHR1cGxlW3N0ciwgLi4uXSA9ICgpCiAgICBtb2RlbHNfcGF0aDogc3RyIHwgTm9u
ZSA9IE5vbmUKICAgIHByb3BzX3BhdGg6IHN0ciB8IE5vbmUgPSBOb25lCiAgICBoZWFsdGhfcGF0
aDogc3RyIHwgTm9uZSA9IE5vbmUKICAgIGxpc3Rlbjogc3RyIHwgTm9uZSA9IE5vbmUKICAgIGNs
b3NlZDogYm9vbCA9IEZhbHNlCiAgICBjb250ZXh0OiBpbnQgPSAwCiAgICBwaWRzOiB0dXBsZVtz
dHIsIC4uLl0gPSAoKQoKICAgIEBwcm9wZXJ0eQogICAgZGVmIHBhdGgoc2VsZikgLT4gc3RyOgog
ICAgICAgICIiIlRoZSBwYXRoIG9mIHRoZSBwcm9tcHQuIiIiCiAgICAgICAgcmV0dXJuIHVybHNw
bGl0KHNlbGYudXJsKS5wYXRoCgogICAgZGVmIGF1dGhvcml6YXRpb24oc2VsZikgLT4gZGljdFtz
dHIsIHN0cl06CiAgICAgICAgIiIiUmV0dXJuIHRoZSBoZWFkZXIgdGhhdCBob2xkcyB0aGUga2V5
LiIiIgogICAgICAgIGlmIG5vdCBzZWxmLmtleToKICAgICAgICAgICAgcmV0dXJuIHt9CiAgICAg
ICAgcmV0dXJuIHsiQXV0aG9yaXphdGlvbiI6ICJCZWFyZXIgIiArIFBhdGgoc2VsZi5rZXkpLnJl
YWRfdGV4dChlbmNvZGluZz0idXRmLTgiKS5zdHJpcCgpfQoKCmRlZiByZWFkX3F1ZXN0aW9uKHBh
dGg6IHN0ciwgcGlkczogSXRlcmFibGVbc3RyXSkgLT4gUXVlc3Rpb246CiAgICAiIiJSZWFkIGEg
cXVlc3Rpb24gZnJvbSBhIGZpbGUuIiIiCiAgICBzYWlkID0ganNvbi5sb2FkcyhQYXRoKHBhdGgp
LnJlYWRfdGV4dChlbmNvZGluZz0idXRmLTgiKSkKICAgIGtub3duID0ge25hbWU6IHNhaWRbbmFt
ZV0gZm9yIG5hbWUgaW4gUXVlc3Rpb24uX19kYXRhY2xhc3NfZmllbGRzX18gaWYgbmFtZSBpbiBz
YWlkfQogICAgbWV0cmljcyA9IHNhaWRbIm1ldHJpY3MiXSBpZiBpc2luc3RhbmNlKHNhaWRbIm1l
dHJpY3MiXSwgbGlzdCkgZWxzZSBbc2FpZFsibWV0cmljcyJdXQogICAga25vd24gfD0geyJtZXRy
aWNzIjogdHVwbGUobWV0cmljcyksICJtb2RlbHMiOiB0dXBsZShzYWlkLmdldCgibW9kZWxzIiwg
KCkpKX0KICAgIHJldHVybiBRdWVzdGlvbigqKmtub3duIHwgeyJwaWRzIjogdHVwbGUocGlkIGZv
ciBwaWQgaW4gcGlkcyBpZiBwaWQuaXNkZWNpbWFsKCkgYW5kIHBpZCAhPSAiMCIpfSkKCgpAZGF0
YWNsYXNzKGZyb3plbj1UcnVlKQpjbGFzcyBBbnN3ZXI6CiAgICAiIiJXaGF0IGlzIG1lYXN1cmVk
IG9mIGEgcmVzcG9uc2U6IGl0cyB0b2tlbnMsIHRob3NlIGRyYWZ0ZWQgYW5kIGFjY2VwdGVkLCBh
bmQgdG9rZW5zIGEgc2Vjb25kLCAwIHdoZXJlIHVua25vd24uCgogICAgYGNvdW50c2A6IGl0IGlz
IGxvbmcgZW5vdWdoIHRvIHRlbGwgdGhlIHNwZWVkLCBhbmQgb3RoZXJzIGRpZCBub3QgY29tcHV0
ZSBtZWFud2hpbGUuCiAgICAiIiIKCiAgICB0b2tlbnM6IGludAogICAgZHJhZnRlZDogaW50CiAg
ICBhY2NlcHRlZDogaW50CiAgICByYXRlOiBmbG9hdAogICAgY291bnRzOiBib29sCgoKQGRhdGFj
bGFzcyhmcm96ZW49VHJ1ZSkKY2xhc3MgUmVwbHk6CiAgICAiIiJBbiBIVFRQIHJlc3BvbnNlLiIi
IgoKICAgIHN0YXR1czogaW50CiAgICBraW5kOiBzdHIKICAgIGJvZHk6IGJ5dGVzCiAgICBzZWNv
bmRzOiBmbG9hdAoKCkBkYXRhY2xhc3MoZnJvemVuPVRydWUpCmNsYXNzIENvbXBsZXRpb246CiAg
ICAiIiJXaGF0IGEgY2xpZW50IGdldHMgb2YgYSBwcm9tcHQ6IHRleHQsIHRob3VnaHRzLCBjYWxs
cyBvZiB0b29scywgYW5kIHdoZXRoZXIgaXQgd2FzIGN1dCBieSBpdHMgbGltaXQgb2YgdG9rZW5z
LgoKICAgIGlrX2xsYW1hLmNwcCBjYWxscyB0aGF0IGBzdG9wYCwgdG9vLCBzbyB0aGF0IHRoZSB0
b2tlbnMgZGVjaWRlLgogICAgIiIiCgogICAgdGV4dDogc3RyCiAgICB0aG91Z2h0czogc3RyCiAg
ICBjYWxsczogdHVwbGVbQW55LCAuLi5dCiAgICBjdXQ6IGJvb2wKCgojIFdhaXRpbmcsIHdpdGgg
YSBsaW1pdCBmb3IgdGhlIHdob2xlLgoKCmNsYXNzIFdpcmUoc29ja2V0LnNvY2tldCk6CiAgICAi
IiJBIHNvY2tldCB3aG9zZSByZWFkcyBlbmQgYXQgYSBkZWFkbGluZSBhbmQgYWZ0ZXIgc28gbWFu
eSBieXRlcywgaG93ZXZlciBtYW55IHJlYWRzIHRoZXkgYXJlLiIiIgoKICAgIGRlYWRsaW5lID0g
MC4wCiAgICByb29tID0gMiAqIExBUkdFU1QKCiAgICBkZWYgcmVjdl9pbnRvKHNlbGYsICphcmd1
bWVudHM6IEFueSkgLT4gaW50OgogICAgICAgIHNlbGYuc2V0dGltZW91dChsZWZ0KHNlbGYuZGVh
ZGxpbmUpKQogICAgICAgIGNvdW50ID0gc3VwZXIoKS5yZWN2X2ludG8oKmFyZ3VtZW50cykKICAg
ICAgICBzZWxmLnJvb20gLT0gY291bnQKICAgICAgICBpZiBzZWxmLnJvb20gPCAwOgogICAgICAg
ICAgICByYWlzZSBPU0Vycm9yKCJpdCBkb2VzIG5vdCBlbmQiKQogICAgICAgIHJldHVybiBjb3Vu
dAoKCmRlZiBsZWZ0KGRlYWRsaW5lOiBmbG9hdCkgLT4gZmxvYXQ6CiAgICAiIiJSZXR1cm4gdGhl
IHNlY29uZHMgdW50aWwgYSBkZWFkbGluZTsgcmFpc2VzIFRpbWVvdXRFcnJvciBhZnRlciBpdC4i
IiIKICAgIGlmIChzZWNvbmRzIDo9IGRlYWRsaW5lIC0gdGltZS5tb25vdG9uaWMoKSkgPD0gMDoK
ICAgICAgICByYWlzZSBUaW1lb3V0RXJyb3IoInRpbWVkIG91dCIpCiAgICByZXR1cm4gc2Vjb25k
cwoKCmNsYXNzIExpbmsoaHR0cC5jbGllbnQuSFRUUENvbm5lY3Rpb24pOgogICAgIiIiQSBjb25u
ZWN0aW9uIHRvIHRoZSBzZXJ2ZXIgaXRzZWxmOiBubyBwcm94eSwgbm8gcmVkaXJlY3QsIGFuZCBh
IGRlYWRsaW5lLiIiIgoKICAgIGRlZiBfX2luaXRfXyhzZWxmLCB1cmw6IHN0ciwgZGVhZGxpbmU6
IGZsb2F0KSAtPiBOb25lOgogICAgICAgIHBhcnRzID0gdXJsc3BsaXQodXJsKQogICAgICAgIHN1
cGVyKCkuX19pbml0X18ocGFydHMuaG9zdG5hbWUgb3IgIiIsIHBhcnRzLnBvcnQpCiAgICAgICAg
c2VsZi5kZWFkbGluZSA9IGRlYWRsaW5lCgogICAgZGVmIGNvbm5lY3Qoc2VsZikgLT4gTm9uZToK
ICAgICAgICBmYW1pbHkgPSBzb2NrZXQuQUZfSU5FVDYgaWYgIjoiIGluIHNlbGYuaG9zdCBlbHNl
IHNvY2tldC5BRl9JTkVUCiAgICAgICAgd2lyZSA9IFdpcmUoZmFtaWx5LCBzb2NrZXQuU09DS19T
VFJFQU0pCiAgICAgICAgd2lyZS5kZWFkbGluZSA9IHNlbGYuZGVhZGxpbmUKICAgICAgICB3aXJl
LnNldHRpbWVvdXQobGVmdChzZWxmLmRlYWRsaW5lKSkKICAgICAgICBzZWxmLnNvY2sgPSB3aXJl
CiAgICAgICAgd2lyZS5jb25uZWN0KChzZWxmLmhvc3QsIHNlbGYucG9ydCkpCiAgICAgICAgd2ly
ZS5zZXRzb2Nrb3B0KHNvY2tldC5JUFBST1RPX1RDUCwgc29ja2V0LlRDUF9OT0RFTEFZLCAxKQoK
ICAgIGRlZiB1bnRpbChzZWxmLCBkZWFkbGluZTogZmxvYXQpIC0+IE5vbmU6CiAgICAgICAgIiIi
TGltaXQgd2hhdCBmb2xsb3dzIG9uIHRoaXMgY29ubmVjdGlvbi4iIiIKICAgICAgICBzZWxmLmRl
YWRsaW5lID0gZGVhZGxpbmUKICAgICAgICBpZiBpc2luc3RhbmNlKHNlbGYuc29jaywgV2lyZSk6
CiAgICAgICAgICAgIHNlbGYuc29jay5kZWFkbGluZSwgc2VsZi5zb2NrLnJvb20gPSBkZWFkbGlu
ZSwgMiAqIExBUkdFU1QKICAgICAgICAgICAgc2VsZi5zb2NrLnNldHRpbWVvdXQobGVmdChkZWFk
bGluZSkpCgoKQGNvbnRleHRtYW5hZ2VyCmRlZiB0cm91YmxlKGFza2VkOiBzdHIpIC0+IEl0ZXJh
dG9yW05vbmVdOgogICAgIiIiVGVsbCBvZiB3aGF0IGEgY29ubmVjdGlvbiByYWlzZXMsIGluIHRo
ZSB3b3JkcyBvZiB3aGF0IHdhcyBhc2tlZCBmb3IuIiIiCiAgICB0cnk6CiAgICAgICAgeWllbGQK
ICAgIGV4Y2VwdCBUaW1lb3V0RXJyb3IgYXMgZXJyb3I6CiAgICAgICAgcmFpc2UgTm9SZXNwb25z
ZUVycm9yKGYie2Fza2VkfSBpcyBub3QgYW5zd2VyZWQ6IHtlcnJvcn0iKSBmcm9tIE5vbmUKICAg
IGV4Y2VwdCBPU0Vycm9yIGFzIGVycm9yOgogICAgICAgIHJhaXNlIEZhaWxlZEVycm9yKGYie2Fz
a2VkfSBpcyBub3QgYW5zd2VyZWQ6IHtlcnJvcn0iKSBmcm9tIE5vbmUKICAgIGV4Y2VwdCAoaHR0
cC5jbGllbnQuSFRUUEV4Y2VwdGlvbiwgVmFsdWVFcnJvcikgYXMgZXJyb3I6CiAgICAgICAgcmFp
c2UgRmFpbGVkRXJyb3IoZiJ7YXNrZWR9IGlzIGFuc3dlcmVkIHdpdGggd2hhdCBpcyBub3QgSFRU
UDoge3R5cGUoZXJyb3IpLl9fbmFtZV9ffSIpIGZyb20gTm9uZQoKCmRlZiByZXF1ZXN0KGxpbms6
IExpbmssIHF1ZXN0aW9uOiBRdWVzdGlvbiwgYXNrZWQ6IHN0ciwgcGF0aDogc3RyLCBib2R5OiBK
c29uIHwgTm9uZSA9IE5vbmUpIC0+IFJlcGx5OgogICAgIiIiU2VuZCBvbmUgcmVxdWVzdCBhbmQg
cmV0dXJuIHRoZSByZXNwb25zZS4gUmFpc2VzIEZhaWxlZEVycm9yIHdoZXJlIG5vbmUgY29tZXMs
IG9yIG1vcmUgdGhhbiBhIGNsaWVudCB0YWtlcy4iIiIKICAgIHdpdGggdHJvdWJsZShhc2tlZCk6
CiAgICAgICAgYmVnYW4gPSB0aW1lLm1vbm90b25pYygpCiAgICAgICAgcmVwbHkgPSBiZWdpbihs
aW5rLCBxdWVzdGlvbiwgcGF0aCwgYm9keSkKICAgICAgICBjb250ZW50ID0gcmVwbHkucmVhZChM
QVJHRVNUICsgMSkKICAgICAgICBpZiBsZW4oY29udGVudCkgPiBMQVJHRVNUOgogICAgICAgICAg
ICByYWlzZSBGYWlsZWRFcnJvcihmInthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCBtb3JlIHRoYW4g
e0xBUkdFU1R9IGJ5dGVzIikKICAgICAgICByZXR1cm4gUmVwbHkocmVwbHkuc3RhdHVzLCByZXBs
eS5oZWFkZXJzLmdldCgiQ29udGVudC1UeXBlIiwgIiIpLCBjb250ZW50LCB0aW1lLm1vbm90b25p
YygpIC0gYmVnYW4pCgoKZGVmIGJlZ2luKAogICAgbGluazogTGluaywgcXVlc3Rpb246IFF1ZXN0
aW9uLCBwYXRoOiBzdHIsIGJvZHk6IEpzb24gfCBOb25lLCBoZWFkZXJzOiBNYXBwaW5nW3N0ciwg
c3RyXSB8IE5vbmUgPSBOb25lCikgLT4gaHR0cC5jbGllbnQuSFRUUFJlc3BvbnNlOgogICAgIiIi
U2VuZCBvbmUgcmVxdWVzdCBhbmQgcmV0dXJuIGl0cyByZXNwb25zZSwgdG8gYmUgcmVhZC4iIiIK
ICAgIGtlcHQgPSBsaW5rLnNvY2sgaXMgbm90IE5vbmUKICAgIG1vcmUgPSBxdWVzdGlvbi5hdXRo
b3JpemF0aW9uKCkgaWYgaGVhZGVycyBpcyBOb25lIGVsc2UgZGljdChoZWFkZXJzKQogICAgaWYg
Ym9keSBpcyBub3QgTm9uZToKICAgICAgICBtb3JlWyJDb250ZW50LVR5cGUiXSA9ICJhcHBsaWNh
dGlvbi9qc29uIgogICAgY29udGVudCA9IE5vbmUgaWYgYm9keSBpcyBOb25lIGVsc2UganNvbi5k
dW1wcyhib2R5KS5lbmNvZGUoKQogICAgdHJ5OgogICAgICAgIGxpbmsucmVxdWVzdCgiR0VUIiBp
ZiBib2R5IGlzIE5vbmUgZWxzZSAiUE9TVCIsIHBhdGgsIGNvbnRlbnQsIG1vcmUpCiAgICAgICAg
cmV0dXJuIGxpbmsuZ2V0cmVzcG9uc2UoKQogICAgZXhjZXB0IChodHRwLmNsaWVudC5SZW1vdGVE
aXNjb25uZWN0ZWQsIENvbm5lY3Rpb25SZXNldEVycm9yLCBCcm9rZW5QaXBlRXJyb3IpOgogICAg
ICAgIGlmIG5vdCBrZXB0OgogICAgICAgICAgICByYWlzZQogICAgIyBBIHNlcnZlciBtYXkgY2xv
c2UgYSBjb25uZWN0aW9uIHRoYXQgaXQga2VwdCBhdCBhbnkgdGltZTogY2xpZW50cyBvcGVuIGFu
b3RoZXIuCiAgICBsaW5rLmNsb3NlKCkKICAgIGxpbmsucmVxdWVzdCgiR0VUIiBpZiBib2R5IGlz
IE5vbmUgZWxzZSAiUE9TVCIsIHBhdGgsIGNvbnRlbnQsIG1vcmUpCiAgICByZXR1cm4gbGluay5n
ZXRyZXNwb25zZSgpCgoKIyBXaGF0IGEgY2xpZW50IG1ha2VzIG9mIGEgcmVzcG9uc2UuCgoKZGVm
IHBhcnNlZChjb250ZW50OiBieXRlcywgYXNrZWQ6IHN0ciwgd2hhdDogc3RyKSAtPiBBbnk6CiAg
ICAiIiJSZXR1cm4gdGhlIEpTT04gb2YgYSBib2R5LiBSYWlzZXMgRmFpbGVkRXJyb3Igd2hlcmUg
YSBjbGllbnQgY291bGQgbm90IHJlYWQgaXQuIiIiCiAgICB0cnk6CiAgICAgICAgcmV0dXJuIGpz
b24ubG9hZHMoY29udGVudC5kZWNvZGUoInV0Zi04IiksIHBhcnNlX2NvbnN0YW50PW5vdF9qc29u
KQogICAgZXhjZXB0IChWYWx1ZUVycm9yLCBSZWN1cnNpb25FcnJvcik6CiAgICAgICAgcmFpc2Ug
RmFpbGVkRXJyb3IoZiJ7YXNrZWR9IGlzIGFuc3dlcmVkIHdpdGgge3doYXR9IikgZnJvbSBOb25l
CgoKZGVmIG5vdF9qc29uKG5hbWU6IHN0cikgLT4gTm9uZToKICAgIHJhaXNlIFZhbHVlRXJyb3Io
bmFtZSkKCgpkZWYgc2FpZF9vZihib2R5OiBieXRlcykgLT4gc3RyOgogICAgIiIiUmV0dXJuIHRo
ZSBtZXNzYWdlIG9mIGFuIGVycm9yJ3MgYm9keSwgb3IgdGhlIGJvZHksIG9uIG9uZSBsaW5lLiIi
IgogICAgdGV4dCA9IGJvZHkuZGVjb2RlKGVycm9ycz0icmVwbGFjZSIpCiAgICB3aXRoIHN1cHBy
ZXNzKFZhbHVlRXJyb3IsIExvb2t1cEVycm9yLCBUeXBlRXJyb3IsIFJlY3Vyc2lvbkVycm9yKToK
ICAgICAgICB0ZXh0ID0gc3RyKGpzb24ubG9hZHModGV4dClbImVycm9yIl1bIm1lc3NhZ2UiXSkK
ICAgIHJldHVybiAiICIuam9pbih0ZXh0LnNwbGl0KCkpWzoyMDBdCgoKZGVmIGFjY2VwdGVkKHJl
cGx5OiBSZXBseSwgYXNrZWQ6IHN0cikgLT4gUmVwbHk6CiAgICAiIiJSZXR1cm4gYSByZXNwb25z
ZSB0aGF0IGlzIG5vIGVycm9yLiIiIgogICAgaWYgcmVwbHkuc3RhdHVzICE9IDIwMDoKICAgICAg
ICByYWlzZSBGYWlsZWRFcnJvcihmInthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCBIVFRQIHtyZXBs
eS5zdGF0dXN9OiB7c2FpZF9vZihyZXBseS5ib2R5KX0iKQogICAgcmV0dXJuIHJlcGx5CgoKZGVm
IGNvbXBsZXRpb24oc2FpZDogQW55LCBib2R5OiBKc29uLCBxdWVzdGlvbjogUXVlc3Rpb24sIGFz
a2VkOiBzdHIpIC0+IENvbXBsZXRpb246CiAgICAiIiJSZXR1cm4gYSBjaGF0IGNvbXBsZXRpb24u
IFJhaXNlcyBGYWlsZWRFcnJvciB3aGVyZSBpdCBpcyBub25lLiIiIgogICAgdHJ5OgogICAgICAg
IGNob2ljZSA9IHNhaWRbImNob2ljZXMiXVswXQogICAgICAgIG1lc3NhZ2UsIGZpbmlzaCwgdXNh
Z2UgPSBjaG9pY2VbIm1lc3NhZ2UiXSwgY2hvaWNlLmdldCgiZmluaXNoX3JlYXNvbiIpLCBzYWlk
WyJ1c2FnZSJdCiAgICAgICAgdGV4dCwgdGhvdWdodHMgPSB0ZXh0cyhtZXNzYWdlKQogICAgICAg
IGNhbGxzID0gdHVwbGUobWVzc2FnZS5nZXQoInRvb2xfY2FsbHMiKSBvciAoKSkKICAgICAgICBt
b2RlbCwgd2hvbGUgPSBzYWlkLmdldCgibW9kZWwiKSwgc2FpZC5nZXQoIm9iamVjdCIsICJjaGF0
LmNvbXBsZXRpb24iKQogICAgICAgIHJvbGUgPSBtZXNzYWdlLmdldCgicm9sZSIsICJhc3Npc3Rh
bnQiKQogICAgICAgIGNvdW50ZWQodXNhZ2UsIGJvZHksIGFza2VkKQogICAgICAgIG5vbmUgPSBi
b29sKHRleHQgb3IgdGhvdWdodHMpIGFuZCBub3QgdXNhZ2VbImNvbXBsZXRpb25fdG9rZW5zIl0K
ICAgICAgICBjdXQgPSBmaW5pc2ggPT0gImxlbmd0aCIgb3IgdXNhZ2VbImNvbXBsZXRpb25fdG9r
ZW5zIl0gPj0gYm9keVsibWF4X3Rva2VucyJdCiAgICBleGNlcHQgKExvb2t1cEVycm9yLCBUeXBl
RXJyb3IsIEF0dHJpYnV0ZUVycm9yLCBWYWx1ZUVycm9yKToKICAgICAgICByYWlzZSBGYWlsZWRF
cnJvcihmInthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCB7Tk9fQ0hBVH0iKSBmcm9tIE5vbmUKICAg
IGlmIGZpbmlzaCBub3QgaW4gRklOSVNIRVMgb3Igcm9sZSAhPSAiYXNzaXN0YW50IiBvciB3aG9s
ZSAhPSAiY2hhdC5jb21wbGV0aW9uIjoKICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihmInthc2tl
ZH0gaXMgYW5zd2VyZWQgd2l0aCB7Tk9fQ0hBVH06IGZpbmlzaF9yZWFzb24gaXMge3Nob3duKGZp
bmlzaCl9LCByb2xlIHtzaG93bihyb2xlKX0iKQogICAgaWYgbm9uZToKICAgICAgICByYWlzZSBG
YWlsZWRFcnJvcihmInthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCB0ZXh0LCBhbmQgd2l0aCBubyB0
b2tlbiBieSBpdHMgYHVzYWdlYCIpCiAgICBuYW1lZChtb2RlbCwgcXVlc3Rpb24sIGFza2VkKQog
ICAgcmV0dXJuIENvbXBsZXRpb24odGV4dCwgdGhvdWdodHMsIGNhbGxzLCBjdXQpCgoKZGVmIHRl
eHRzKG1lc3NhZ2U6IE1hcHBpbmdbc3RyLCBBbnldKSAtPiB0dXBsZVtzdHIsIHN0cl06CiAgICAi
IiJSZXR1cm4gdGhlIHRleHQgYW5kIHRoZSB0aG91Z2h0cyBvZiBhIG1lc3NhZ2UsIG9yIG9mIGEg
cGFydCBvZiBpdC4gUmFpc2VzIFR5cGVFcnJvciB3aGVyZSB0aGV5IGFyZSBubyB0ZXh0LiIiIgog
ICAgdGV4dCA9IG1lc3NhZ2UuZ2V0KCJjb250ZW50Iikgb3IgIiIKICAgIHRob3VnaHRzID0gbWVz
c2FnZS5nZXQoInJlYXNvbmluZ19jb250ZW50Iikgb3IgbWVzc2FnZS5nZXQoInJlYXNvbmluZyIp
IG9yICIiCiAgICBpZiBub3QgaXNpbnN0YW5jZSh0ZXh0LCBzdHIpIG9yIG5vdCBpc2luc3RhbmNl
KHRob3VnaHRzLCBzdHIpOgogICAgICAgIHJhaXNlIFR5cGVFcnJvcgogICAgcmV0dXJuIHRleHQs
IHRob3VnaHRzCgoKZGVmIGNvdW50ZWQodXNhZ2U6IE1hcHBpbmdbc3RyLCBBbnldLCBib2R5OiBK
c29uLCBhc2tlZDogc3RyKSAtPiBOb25lOgogICAgIiIiUmFpc2UgRmFpbGVkRXJyb3Igd2hlcmUg
YSByZXNwb25zZSBjYW5ub3QgaGF2ZSBzbyBtYW55IHRva2Vucy4iIiIKICAgIHJlYWQsIHdyaXR0
ZW4gPSB1c2FnZS5nZXQoInByb21wdF90b2tlbnMiLCAxKSwgdXNhZ2VbImNvbXBsZXRpb25fdG9r
ZW5zIl0KICAgIGlmIG5vdCBpc2luc3RhbmNlKHJlYWQsIGludCkgb3Igbm90IGlzaW5zdGFuY2Uo
d3JpdHRlbiwgaW50KToKICAgICAgICByYWlzZSBUeXBlRXJyb3IKICAgIG1vc3QgPSBib2R5WyJt
YXhfdG9rZW5zIl0KICAgIGlmIHJlYWQgPCAwIG9yIHdyaXR0ZW4gPCAwIG9yIHdyaXR0ZW4gPiBt
b3N0ICsgU1BBUkU6CiAgICAgICAgcmFpc2UgRmFpbGVkRXJyb3IoZiJ7YXNrZWR9IGlzIGFuc3dl
cmVkIHdpdGgge3JlYWR9ICsge3dyaXR0ZW59IHRva2VucywgYW5kIG5vIG1vcmUgdGhhbiB7bW9z
dH0gd2VyZSBhbGxvd2VkIikKCgpkZWYgbmFtZWQobW9kZWw6IG9iamVjdCwgcXVlc3Rpb246IFF1
ZXN0aW9uLCBhc2tlZDogc3RyKSAtPiBOb25lOgogICAgIiIiUmFpc2UgRmFpbGVkRXJyb3Igd2hl
cmUgYW5vdGhlciBtb2RlbCByZXNwb25kcy4iIiIKICAgIGlmIHF1ZXN0aW9uLm1vZGVscyBhbmQg
bW9kZWwgaXMgbm90IE5vbmUgYW5kIG1vZGVsIG5vdCBpbiBxdWVzdGlvbi5tb2RlbHM6CiAgICAg
ICAgcmFpc2UgRmFpbGVkRXJyb3IoZiJ7YXNrZWR9IGlzIGFuc3dlcmVkIGJ5IG1vZGVsIHtzaG93
bihtb2RlbCl9LCBub3QgYnkge3F1ZXN0aW9uLmJvZHlbJ21vZGVsJ119IikKCgpkZWYgc2hvd24o
dmFsdWU6IG9iamVjdCkgLT4gc3RyOgogICAgIiIiUmV0dXJuIGEgdmFsdWUgZnJvbSBvdXRzaWRl
IGFzIHRleHQgZm9yIGEgbWVzc2FnZS4iIiIKICAgIHJldHVybiBqc29uLmR1bXBzKHZhbHVlKVs6
NjBdCgoKZGVmIHZpc2libGUodGV4dDogc3RyKSAtPiBib29sOgogICAgIiIiUmV0dXJuIHdoZXRo
ZXIgYSBwZXJzb24gd291bGQgc2VlIHRleHQ6IG5vdCBvbmx5IGJsYW5rcywgY29udHJvbCBvciBz
cGVjaWFsIHRva2VucywgVStGRkZELCBvciBvbmUgY2hhcmFjdGVyLiIiIgogICAgcmVzdCA9IFNQ
RUNJQUwuc3ViKCIiLCB0ZXh0KQogICAgc2VlbiA9IFtlYWNoIGZvciBlYWNoIGluIHJlc3QgaWYg
dW5pY29kZWRhdGEuY2F0ZWdvcnkoZWFjaClbMF0gaW4gIkxOUFMiIG9yIHVuaWNvZGVkYXRhLmNh
dGVnb3J5KGVhY2gpID09ICJNbiJdCiAgICBicm9rZW4gPSBzZWVuLmNvdW50KCJcdWZmZmQiKQog
ICAgb25lID0gbGVuKHNlZW4pID49IFJFUEVBVEVEIGFuZCBsZW4oc2V0KHNlZW4pKSA9PSAxCiAg
ICByZXR1cm4gbGVuKHNlZW4pID4gMiAqIGJyb2tlbiBhbmQgbm90IG9uZQoKCiMgU3RlcHMgb2Yg
dGhlIHByb29mLgoKCkBkYXRhY2xhc3MKY2xhc3MgVGFsazoKICAgICIiIkEgcHJvb2YgaW4gcHJv
Z3Jlc3M6IGl0cyBkZWFkbGluZSwgYW5kIHdoYXQgd2FzIG1lYXN1cmVkLgoKICAgIGByZWFkc2Ag
YW5kIGB3cml0ZXNgIGFyZSB0b2tlbnMgYSBzZWNvbmQsIGBkZW5zaXR5YCB0aGUgdG9rZW5zIG9m
IGEgY2hhcmFjdGVyIGJ5IHRoZSBsb25nZXN0IHByb21wdCB1bnRpbCBub3cuCiAgICAiIiIKCiAg
ICBxdWVzdGlvbjogUXVlc3Rpb24KICAgIGRlYWRsaW5lOiBmbG9hdAogICAgbGluazogTGluawog
ICAgYmVnYW46IGZsb2F0ID0gZmllbGQoZGVmYXVsdF9mYWN0b3J5PXRpbWUubW9ub3RvbmljKQog
ICAgdG9sZDogZmxvYXQgPSBmaWVsZChkZWZhdWx0X2ZhY3Rvcnk9dGltZS5tb25vdG9uaWMpCiAg
ICByZWFkczogZmxvYXQgPSAwLjAKICAgIHdyaXRlczogZmxvYXQgPSAwLjAKICAgIGxvbmdlc3Q6
IGludCA9IDAKICAgIGRlbnNpdHk6IGZsb2F0ID0gMS4wCiAgICBvdGhlcnM6IGJvb2wgPSBGYWxz
ZQogICAgY2FwczogSnNvbiA9IGZpZWxkKGRlZmF1bHRfZmFjdG9yeT1kaWN0KQoKICAgIGRlZiBn
ZXQoc2VsZiwgcGF0aDogc3RyKSAtPiBSZXBseToKICAgICAgICAiIiJSZXR1cm4gYSBwYWdlLiIi
IgogICAgICAgIHNlbGYubGluay51bnRpbChtaW4oc2VsZi5kZWFkbGluZSwgdGltZS5tb25vdG9u
aWMoKSArIFBBR0VfU0VDT05EUykpCiAgICAgICAgcmV0dXJuIHJlcXVlc3Qoc2VsZi5saW5rLCBz
ZWxmLnF1ZXN0aW9uLCBwYXRoLCBwYXRoKQoKICAgIGRlZiBsaW1pdChzZWxmLCB0b2tlbnM6IGlu
dCkgLT4gZmxvYXQ6CiAgICAgICAgIiIiUmV0dXJuIHRoZSBkZWFkbGluZSBvZiBhIHN0ZXAsIHdo
aWNoIG1heSB0YWtlIHRlbiB0aW1lcyBhcyBsb25nIGFzIHRoaXMgaG9zdCB0YWtlcyBmb3Igc28g
bWFueSB0b2tlbnMuIiIiCiAgICAgICAgc2Vjb25kcyA9IExBVEVSX1NFQ09ORFMgaWYgc2VsZi5v
dGhlcnMgZWxzZSBtYXgoU1RFUF9TRUNPTkRTLCAxMCAqIHNlbGYuZXhwZWN0ZWQoMCwgdG9rZW5z
KSkKICAgICAgICByZXR1cm4gbWluKHNlbGYuZGVhZGxpbmUsIHRpbWUubW9ub3RvbmljKCkgKyBz
ZWNvbmRzKQoKICAgIGRlZiBleHBlY3RlZChzZWxmLCBwcm9tcHQ6IGludCwgdG9rZW5zOiBpbnQp
IC0+IGZsb2F0OgogICAgICAgICIiIlJldHVybiB0aGUgc2Vjb25kcyB0aGF0IGEgc3RlcCB0YWtl
cyBieSB3aGF0IHdhcyBtZWFzdXJlZC4iIiIKICAgICAgICByZXR1cm4gKHByb21wdCAvIHNlbGYu
cmVhZHMgaWYgc2VsZi5yZWFkcyBlbHNlIDApICsgKHRva2VucyAvIHNlbGYud3JpdGVzIGlmIHNl
bGYud3JpdGVzIGVsc2UgMCkKCiAgICBkZWYgYXNrKHNlbGYsIGFza2VkOiBzdHIsICoqbW9yZTog
QW55KSAtPiBDb21wbGV0aW9uOgogICAgICAgICIiIlNlbmQgYSBwcm9tcHQgdGhhdCBpcyBub3Qg
c3RyZWFtZWQsIGFuZCByZXR1cm4gaXRzIGNvbXBsZXRpb24sIG9mIHdoaWNoIGEgcGVyc29uIGNh
biBzZWUgc29tZXRoaW5nLiIiIgogICAgICAgIGJvZHkgPSBwcm9tcHQoc2VsZi5xdWVzdGlvbiwg
Kiptb3JlKQogICAgICAgIHNlbGYubGluay51bnRpbChzZWxmLmxpbWl0KGJvZHlbIm1heF90b2tl
bnMiXSkpCiAgICAgICAgcmVwbHkgPSBhY2NlcHRlZChyZXF1ZXN0KHNlbGYubGluaywgc2VsZi5x
dWVzdGlvbiwgYXNrZWQsIHNlbGYucXVlc3Rpb24ucGF0aCwgYm9keSksIGFza2VkKQogICAgICAg
IHNhaWQgPSBwYXJzZWQocmVwbHkuYm9keSwgYXNrZWQsIE5PX0NIQVQpCiAgICAgICAgZm91bmQg
PSBjb21wbGV0aW9uKHNhaWQsIGJvZHksIHNlbGYucXVlc3Rpb24sIGFza2VkKQogICAgICAgIHNl
bGYubGVhcm4oYm9keSwgc2FpZCwgcmVwbHkuc2Vjb25kcykKICAgICAgICByZXR1cm4gZm91bmQK
CiAgICBkZWYgbGVhcm4oc2VsZiwgYm9keTogSnNvbiwgc2FpZDogSnNvbiwgc2Vjb25kczogZmxv
YXQpIC0+IE5vbmU6CiAgICAgICAgIiIiS2VlcCBob3cgZmFzdCBhIHByb21wdCB3YXMgcmVhZCBh
bmQgYSByZXNwb25zZSB3cml0dGVuOyB3aGVyZSB0aGUgc2VydmVyIHRlbGxzIG5vIHRpbWVzLCBi
eSB0aGUgY2xvY2suIiIiCiAgICAgICAgdXNhZ2UsIHRpbWVzID0gc2FpZFsidXNhZ2UiXSwgc2Fp
ZC5nZXQoInRpbWluZ3MiKSBvciB7fQogICAgICAgIGxlbmd0aCA9IHN1bShsZW4oZWFjaFsiY29u
dGVudCJdKSBmb3IgZWFjaCBpbiBib2R5WyJtZXNzYWdlcyJdKQogICAgICAgIGlmIGxlbmd0aCA+
IHNlbGYubG9uZ2VzdCBhbmQgdXNhZ2UuZ2V0KCJwcm9tcHRfdG9rZW5zIik6CiAgICAgICAgICAg
IHNlbGYubG9uZ2VzdCwgc2VsZi5kZW5zaXR5ID0gbGVuZ3RoLCB1c2FnZVsicHJvbXB0X3Rva2Vu
cyJdIC8gbGVuZ3RoCiAgICAgICAgc2VsZi53cml0ZXMgPSBtYXgoc2VsZi53cml0ZXMsIHVzYWdl
WyJjb21wbGV0aW9uX3Rva2VucyJdIC8gbWF4KHNlY29uZHMsIDAuMDAxKSkKICAgICAgICB3aXRo
IHN1cHByZXNzKExvb2t1cEVycm9yLCBUeXBlRXJyb3IsIFZhbHVlRXJyb3IsIEF0dHJpYnV0ZUVy
cm9yLCBaZXJvRGl2aXNpb25FcnJvciwgT3ZlcmZsb3dFcnJvcik6CiAgICAgICAgICAgIHNlbGYu
d3JpdGVzID0gbWF4KHNlbGYud3JpdGVzLCBtaW4oRkFTVEVTVCwgMTAwMCAqIHRpbWVzWyJwcmVk
aWN0ZWRfbiJdIC8gdGltZXNbInByZWRpY3RlZF9tcyJdKSkKICAgICAgICAgICAgc2VsZi5yZWFk
cyA9IG1heChzZWxmLnJlYWRzLCBtaW4oRkFTVEVTVCwgMTAwMCAqIHRpbWVzWyJwcm9tcHRfbiJd
IC8gdGltZXNbInByb21wdF9tcyJdKSkKICAgICAgICBzZWxmLnJlYWRzID0gc2VsZi5yZWFkcyBv
ciAxMCAqIHNlbGYud3JpdGVzCgogICAgZGVmIHRlbGwoc2VsZiwgc3RlcDogc3RyKSAtPiBOb25l
OgogICAgICAgICIiIlByaW50IHdoYXQgaXMgdHJpZWQsIHdoZXJlIHRoZSBwcm9vZiB0YWtlcyBs
b25nLiIiIgogICAgICAgIGlmIHRpbWUubW9ub3RvbmljKCkgLSBzZWxmLnRvbGQgPiBUQUxLSU5H
X1NFQ09ORFM6CiAgICAgICAgICAgIHNlbGYudG9sZCA9IHRpbWUubW9ub3RvbmljKCkKICAgICAg
ICAgICAgcHJvZ3Jlc3MoZiJzdGlsbCBwcm92aW5nIHRoYXQgaXQgc2VydmVzOiB7c3RlcH0iKQoK
CkBkYXRhY2xhc3MoZnJvemVuPVRydWUpCmNsYXNzIFN0ZXA6CiAgICAiIiJPbmUgdGhpbmcgdGhh
dCBjbGllbnRzIGRvOiBob3cgdG8gY2FsbCBpdCwgaG93IHRvIHRyeSBpdCwgYW5kIHRoZSB0b2tl
bnMgdGhhdCBpdCB0YWtlcy4iIiIKCiAgICBuYW1lOiBzdHIKICAgIHJ1bjogQ2FsbGFibGVbW1Rh
bGtdLCBOb25lXQogICAgcHJvbXB0OiBpbnQgPSAwCiAgICB0b2tlbnM6IGludCA9IDAKCgpkZWYg
cHJvZ3Jlc3MobGluZTogc3RyKSAtPiBOb25lOgogICAgIiIiUHJpbnQgYSBsaW5lIG9mIHByb2dy
ZXNzLCB3aGVyZSBzb21lYm9keSByZWFkcyBpdC4iIiIKICAgIGlmIChudW1iZXIgOj0gb3MuZW52
aXJvbi5nZXQoIlBST0dSRVNTIiwgIiIpKS5pc2RlY2ltYWwoKToKICAgICAgICB3aXRoIHN1cHBy
ZXNzKE9TRXJyb3IpOgogICAgICAgICAgICBvcy53cml0ZShpbnQobnVtYmVyKSwgZiJ7bGluZX1c
biIuZW5jb2RlKCkpCgoKZGVmIHByb21wdChxdWVzdGlvbjogUXVlc3Rpb24sICoqbW9yZTogQW55
KSAtPiBKc29uOgogICAgIiIiUmV0dXJuIGEgY2hhdCByZXF1ZXN0IG9mIGEgZmV3IHRva2Vucy4i
IiIKICAgIG1lc3NhZ2VzID0gW3sicm9sZSI6ICJ1c2VyIiwgImNvbnRlbnQiOiBQUklNQVJZfV0K
ICAgIHJldHVybiB7Im1vZGVsIjogcXVlc3Rpb24uYm9keVsibW9kZWwiXSwgIm1lc3NhZ2VzIjog
bWVzc2FnZXMsICJtYXhfdG9rZW5zIjogU0hPUlQsICoqbW9yZX0KCgpkZWYgc2Vlbih0YWxrOiBU
YWxrLCBhc2tlZDogc3RyLCBmb3VuZDogQ29tcGxldGlvbiwgYWdhaW46IENhbGxhYmxlWy4uLiwg
Q29tcGxldGlvbl0sICoqbW9yZTogQW55KSAtPiBOb25lOgogICAgIiIiUmFpc2UgRmFpbGVkRXJy
b3Igd2hlcmUgbm90aGluZyBvZiBhIHJlc3BvbnNlIGNhbiBiZSBzZWVuLCBhbmQgb2YgYSBsb25n
ZXIgb25lIG5laXRoZXIuIiIiCiAgICBmb3IgXyBpbiByYW5nZSgyKToKICAgICAgICBpZiB2aXNp
YmxlKGZvdW5kLnRleHQpIG9yIHZpc2libGUoZm91bmQudGhvdWdodHMpOgogICAgICAgICAgICBy
ZXR1cm4KICAgICAgICB0b2tlbnMgPSBtYXgoU0hPUlQsIG1pbihSRVRSSUVELCBpbnQodGFsay53
cml0ZXMgKiBCVURHRVQpIG9yIFJFVFJJRUQpKQogICAgICAgIGZvdW5kID0gYWdhaW4oYXNrZWQs
ICoqbW9yZSB8IHsibWF4X3Rva2VucyI6IHRva2VucywgInRlbXBlcmF0dXJlIjogMC44fSkKICAg
IGlmIHZpc2libGUoZm91bmQudGV4dCkgb3IgdmlzaWJsZShmb3VuZC50aG91Z2h0cyk6CiAgICAg
ICAgcmV0dXJuCiAgICByYWlzZSBGYWlsZWRFcnJvcigKICAgICAgICBmInthc2tlZH0gaXMgYW5z
d2VyZWQgd2l0aCB7Zid3aGF0IGlzIG5vIHRleHQ6IHtzaG93bihmb3VuZC50ZXh0KX0nIGlmIGZv
dW5kLnRleHQgZWxzZSAnbm90aGluZyd9IgogICAgKQoKCmRlZiBzZWVzX3RleHQodGFsazogVGFs
aywgYXNrZWQ6IHN0ciwgKiptb3JlOiBBbnkpIC0+IENvbXBsZXRpb246CiAgICBmb3VuZCA9IHRh
bGsuYXNrKGFza2VkLCAqKm1vcmUpCiAgICBzZWVuKHRhbGssIGFza2VkLCBmb3VuZCwgdGFsay5h
c2ssICoqbW9yZSkKICAgIHJldHVybiBmb3VuZAoKCmRlZiBzdHJlYW1lZCh0YWxrOiBUYWxrLCBh
c2tlZDogc3RyLCAqKm1vcmU6IEFueSkgLT4gQ29tcGxldGlvbjoKICAgICIiIlNlbmQgYSBwcm9t
cHQgdGhhdCBpcyBzdHJlYW1lZCwgYW5kIHJldHVybiB3aGF0IGFsbCBpdHMgcGFydHMgbWFrZS4i
IiIKICAgIGJvZHkgPSBwcm9tcHQodGFsay5xdWVzdGlvbiwgKiptb3JlKSB8IHsic3RyZWFtIjog
VHJ1ZSwgInN0cmVhbV9vcHRpb25zIjogeyJpbmNsdWRlX3VzYWdlIjogVHJ1ZX19CiAgICBsaW5r
ID0gTGluayh0YWxrLnF1ZXN0aW9uLnVybCwgdGFsay5saW1pdChib2R5WyJtYXhfdG9rZW5zIl0p
KQogICAgd2l0aCB0cm91YmxlKGFza2VkKToKICAgICAgICByZXBseSA9IGJlZ2luKGxpbmssIHRh
bGsucXVlc3Rpb24sIHRhbGsucXVlc3Rpb24ucGF0aCwgYm9keSkKICAgICAgICBpZiByZXBseS5z
dGF0dXMgIT0gMjAwOgogICAgICAgICAgICBhY2NlcHRlZChSZXBseShyZXBseS5zdGF0dXMsICIi
LCByZXBseS5yZWFkKExBUkdFU1QpLCAwKSwgYXNrZWQpCiAgICAgICAgaWYgbm90IHJlcGx5Lmhl
YWRlcnMuZ2V0KCJDb250ZW50LVR5cGUiLCAiIikuc3RhcnRzd2l0aCgidGV4dC9ldmVudC1zdHJl
YW0iKToKICAgICAgICAgICAgcmFpc2UgRmFpbGVkRXJyb3IoCiAgICAgICAgICAgICAgICBmInth
c2tlZH0gaXMgYW5zd2VyZWQgd2l0aCB7cmVwbHkuaGVhZGVycy5nZXQoJ0NvbnRlbnQtVHlwZScp
fSwgbm90IHdpdGggYSBzdHJlYW0gb2YgZXZlbnRzIgogICAgICAgICAgICApCiAgICAgICAgZm91
bmQgPSBqb2luZWQoZXZlbnRzKHJlcGx5LCBib2R5WyJtYXhfdG9rZW5zIl0sIGFza2VkKSwgYm9k
eSwgdGFsay5xdWVzdGlvbiwgYXNrZWQpCiAgICAgICAgbGluay5jbG9zZSgpCiAgICByZXR1cm4g
Zm91bmQKCgpkZWYgZXZlbnRzKHJlcGx5OiBodHRwLmNsaWVudC5IVFRQUmVzcG9uc2UsIHRva2Vu
czogaW50LCBhc2tlZDogc3RyKSAtPiBJdGVyYWJsZVtieXRlc106CiAgICAiIiJZaWVsZCB0aGUg
ZGF0YSBvZiBhIHN0cmVhbSdzIGV2ZW50cyB1bnRpbCBpdCBlbmRzLiBSYWlzZXMgRmFpbGVkRXJy
b3Igd2hlcmUgaXQgZG9lcyBub3QgZW5kIGFzIHN0cmVhbXMgZG8uIiIiCiAgICBjb3VudCA9IHNp
emUgPSAwCiAgICB3aGlsZSBsaW5lIDo9IHJlcGx5LnJlYWRsaW5lKExBUkdFU1QpOgogICAgICAg
IGNvdW50LCBzaXplID0gY291bnQgKyBsaW5lLnN0YXJ0c3dpdGgoYiJkYXRhOiIpLCBzaXplICsg
bGVuKGxpbmUpCiAgICAgICAgaWYgY291bnQgPiAyICogdG9rZW5zICsgNjQgb3Igc2l6ZSA+IExB
UkdFU1Q6CiAgICAgICAgICAgIHJhaXNlIEZhaWxlZEVycm9yKGYie2Fza2VkfSBpcyBhbnN3ZXJl
ZCB3aXRoIGEgc3RyZWFtIHRoYXQgZG9lcyBub3QgZW5kIGFmdGVyIHt0b2tlbnN9IHRva2VucyIp
CiAgICAgICAgbmFtZSwgXywgdmFsdWUgPSBsaW5lLnJzdHJpcChiIlxyXG4iKS5wYXJ0aXRpb24o
YiI6IikKICAgICAgICBpZiBuYW1lID09IGIiZGF0YSI6CiAgICAgICAgICAgIGlmIHZhbHVlLnN0
cmlwKCkgPT0gYiJbRE9ORV0iOgogICAgICAgICAgICAgICAgcmV0dXJuCiAgICAgICAgICAgIHlp
ZWxkIHZhbHVlLnN0cmlwKCkKICAgICAgICBlbGlmIG5hbWUgbm90IGluIChiIiIsIGIiZXZlbnQi
LCBiImlkIiwgYiJyZXRyeSIpOgogICAgICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihmInthc2tl
ZH0gaXMgYW5zd2VyZWQgd2l0aCBhIHN0cmVhbSBvZiB3aGF0IGFyZSBubyBldmVudHMiKQogICAg
cmFpc2UgRmFpbGVkRXJyb3IoZiJ7YXNrZWR9IGlzIGFuc3dlcmVkIHdpdGggYSBzdHJlYW0gdGhh
dCBlbmRzIHdpdGhvdXQgW0RPTkVdIikKCgpkZWYgam9pbmVkKGRhdGE6IEl0ZXJhYmxlW2J5dGVz
XSwgYm9keTogSnNvbiwgcXVlc3Rpb246IFF1ZXN0aW9uLCBhc2tlZDogc3RyKSAtPiBDb21wbGV0
aW9uOgogICAgIiIiUmV0dXJuIHRoZSBjb21wbGV0aW9uIHRoYXQgYSBzdHJlYW0ncyBldmVudHMg
bWFrZS4gUmFpc2VzIEZhaWxlZEVycm9yIHdoZXJlIGEgY2xpZW50IGNvdWxkIG5vdCBtYWtlIG9u
ZS4iIiIKICAgIHdoYXQgPSAiYSBzdHJlYW0gb2YgIiArIE5PX0NIQVQKICAgIHRleHQgPSB0aG91
Z2h0cyA9IGZpbmlzaCA9ICIiCiAgICBjYWxsczogbGlzdFtBbnldID0gW10KICAgIGZvciBlYWNo
IGluIGRhdGE6CiAgICAgICAgc2FpZCA9IHBhcnNlZChlYWNoLCBhc2tlZCwgd2hhdCkKICAgICAg
ICBpZiBpc2luc3RhbmNlKHNhaWQsIGRpY3QpIGFuZCBzYWlkLmdldCgiZXJyb3IiKToKICAgICAg
ICAgICAgcmFpc2UgRmFpbGVkRXJyb3IoZiJ7YXNrZWR9IGlzIGFuc3dlcmVkIHdpdGggYW4gZXJy
b3IgaW4gdGhlIHN0cmVhbToge3NhaWRfb2YoZWFjaCl9IikKICAgICAgICB0cnk6CiAgICAgICAg
ICAgIGlmIHVzYWdlIDo9IHNhaWQuZ2V0KCJ1c2FnZSIpOgogICAgICAgICAgICAgICAgY291bnRl
ZCh1c2FnZSwgYm9keSwgYXNrZWQpCiAgICAgICAgICAgIGZvciBjaG9pY2UgaW4gc2FpZFsiY2hv
aWNlcyJdOgogICAgICAgICAgICAgICAgbW9yZSwgdGhvdWdodCA9IHRleHRzKGNob2ljZVsiZGVs
dGEiXSkKICAgICAgICAgICAgICAgIHRleHQsIHRob3VnaHRzID0gdGV4dCArIG1vcmUsIHRob3Vn
aHRzICsgdGhvdWdodAogICAgICAgICAgICAgICAgY2FsbHMgKz0gY2hvaWNlWyJkZWx0YSJdLmdl
dCgidG9vbF9jYWxscyIpIG9yICgpCiAgICAgICAgICAgICAgICBmaW5pc2ggPSBjaG9pY2UuZ2V0
KCJmaW5pc2hfcmVhc29uIikgb3IgZmluaXNoCiAgICAgICAgICAgIG5hbWVkKHNhaWQuZ2V0KCJt
b2RlbCIpLCBxdWVzdGlvbiwgYXNrZWQpCiAgICAgICAgZXhjZXB0IChMb29rdXBFcnJvciwgVHlw
ZUVycm9yLCBBdHRyaWJ1dGVFcnJvcik6CiAgICAgICAgICAgIHJhaXNlIEZhaWxlZEVycm9yKGYi
e2Fza2VkfSBpcyBhbnN3ZXJlZCB3aXRoIHt3aGF0fSIpIGZyb20gTm9uZQogICAgaWYgZmluaXNo
IG5vdCBpbiBGSU5JU0hFUzoKICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihmInthc2tlZH0gaXMg
YW5zd2VyZWQgd2l0aCBhIHN0cmVhbSB3aG9zZSBmaW5pc2hfcmVhc29uIGlzIHtzaG93bihmaW5p
c2gpfSIpCiAgICByZXR1cm4gQ29tcGxldGlvbih0ZXh0LCB0aG91Z2h0cywgdHVwbGUoY2FsbHMp
LCBmaW5pc2ggPT0gImxlbmd0aCIpCgoKZGVmIHNlZXNfc3RyZWFtKHRhbGs6IFRhbGssIGFza2Vk
OiBzdHIsICoqbW9yZTogQW55KSAtPiBOb25lOgogICAgZGVmIGFnYWluKGFza2VkOiBzdHIsICoq
bW9yZTogQW55KSAtPiBDb21wbGV0aW9uOgogICAgICAgIHJldHVybiBzdHJlYW1lZCh0YWxrLCBh
c2tlZCwgKiptb3JlKQoKICAgIHNlZW4odGFsaywgYXNrZWQsIGFnYWluKGFza2VkLCAqKm1vcmUp
LCBhZ2FpbiwgKiptb3JlKQoKCmRlZiB0cnlfc3RyZWFtKHRhbGs6IFRhbGspIC0+IE5vbmU6CiAg
ICBzZWVzX3N0cmVhbSh0YWxrLCAiYSBwcm9tcHQgdGhhdCBpcyBzdHJlYW1lZCIpCgoKZGVmIHRy
eV9zeXN0ZW0odGFsazogVGFsaykgLT4gTm9uZToKICAgIGlmIHRhbGsuY2Fwcy5nZXQoInN1cHBv
cnRzX3N5c3RlbV9yb2xlIikgaXMgRmFsc2U6CiAgICAgICAgcmFpc2UgTGVmdE91dEVycm9yCiAg
ICBzeXN0ZW0gPSB7InJvbGUiOiAic3lzdGVtIiwgImNvbnRlbnQiOiAiWW91IGFyZSBhIGhlbHBm
dWwgYXNzaXN0YW50LiJ9CiAgICBtZXNzYWdlcyA9IFtzeXN0ZW0sIHsicm9sZSI6ICJ1c2VyIiwg
ImNvbnRlbnQiOiBQUklNQVJZfV0KICAgIG9wdGlvbmFsKAogICAgICAgIGxhbWJkYTogc2Vlc19z
dHJlYW0odGFsaywgImEgc3lzdGVtIG1lc3NhZ2UiLCBtZXNzYWdlcz1tZXNzYWdlcyksIGtub3du
PSJzdXBwb3J0c19zeXN0ZW1fcm9sZSIgaW4gdGFsay5jYXBzCiAgICApCgoKZGVmIHRyeV90dXJu
cyh0YWxrOiBUYWxrKSAtPiBOb25lOgogICAgIiIiU2V2ZXJhbCB0dXJucywgbm90IGFsbCBvZiB0
aGVtIEFTQ0lJLCBhdCB0aGUgdGVtcGVyYXR1cmUgdGhhdCB0aGUgc2VydmVyIGNob29zZXMuIiIi
CiAgICBxdWVzdGlvbiA9ICJXYXMgaGVpw590IOKAnmRyZWkgR3J1bmRmYXJiZW7igJwgYXVmIEVu
Z2xpc2NoPyDwn46oINCf0L7QttCw0LvRg9C50YHRgtCwLCDnroDnn63jgIIiCiAgICBtZXNzYWdl
cyA9IFsKICAgICAgICB7InJvbGUiOiAidXNlciIsICJjb250ZW50IjogcXVlc3Rpb259LAogICAg
ICAgIHsicm9sZSI6ICJhc3Npc3RhbnQiLCAiY29udGVudCI6ICJJdCBtZWFuczogdGhyZWUgcHJp
bWFyeSBjb2xvdXJzOiByZWQsIHllbGxvdyBhbmQgYmx1ZS4ifSwKICAgICAgICB7InJvbGUiOiAi
dXNlciIsICJjb250ZW50IjogUFJJTUFSWX0sCiAgICBdCiAgICBzZWVzX3RleHQodGFsaywgImEg
Y29udmVyc2F0aW9uIG9mIHNldmVyYWwgdHVybnMiLCBtZXNzYWdlcz1tZXNzYWdlcykKCgpkZWYg
dHJ5X3Rvb2xzKHRhbGs6IFRhbGspIC0+IE5vbmU6CiAgICBpZiB0YWxrLmNhcHMuZ2V0KCJzdXBw
b3J0c190b29scyIpIGlzIEZhbHNlOgogICAgICAgIHJhaXNlIExlZnRPdXRFcnJvcgogICAga25v
d24gPSB0YWxrLmNhcHMuZ2V0KCJzdXBwb3J0c190b29scyIpIGlzIFRydWUKICAgIHByb3BlcnRp
ZXMgPSB7Im5hbWUiOiB7InR5cGUiOiAic3RyaW5nIiwgImVudW0iOiBbInJlZCIsICJibHVlIl19
fQogICAgcGFyYW1ldGVycyA9IHsidHlwZSI6ICJvYmplY3QiLCAicHJvcGVydGllcyI6IHByb3Bl
cnRpZXMsICJyZXF1aXJlZCI6IFsibmFtZSJdLCAiYWRkaXRpb25hbFByb3BlcnRpZXMiOiBGYWxz
ZX0KICAgIGZ1bmN0aW9uID0geyJuYW1lIjogIm1peF9jb2xvdXIiLCAiZGVzY3JpcHRpb24iOiAi
TWl4ZXMgYSBjb2xvdXIuIiwgInBhcmFtZXRlcnMiOiBwYXJhbWV0ZXJzfQogICAgYXNrZWQgPSAi
YSBwcm9tcHQgd2l0aCB0b29scyIKICAgIG1vcmU6IEpzb24gPSB7InRvb2xzIjogW3sidHlwZSI6
ICJmdW5jdGlvbiIsICJmdW5jdGlvbiI6IGZ1bmN0aW9ufV0sICJtYXhfdG9rZW5zIjogQ0FMTEVE
fQogICAgZm91bmQ6IGxpc3RbQ29tcGxldGlvbl0gPSBbXQogICAgb3B0aW9uYWwobGFtYmRhOiBm
b3VuZC5hcHBlbmQodGFsay5hc2soYXNrZWQsICoqbW9yZSB8IHsidG9vbF9jaG9pY2UiOiAicmVx
dWlyZWQifSkpLCBrbm93bj1rbm93bikKICAgIGZvciBzYWlkIGluIGZvdW5kOgogICAgICAgIGlm
IHNhaWQuY2FsbHM6CiAgICAgICAgICAgIGNhbGxlZChzYWlkLCBhc2tlZCkKICAgICAgICBlbGlm
IGtub3duIGFuZCBub3Qgc2FpZC5jdXQ6CiAgICAgICAgICAgIHJhaXNlIEZhaWxlZEVycm9yKGYi
e2Fza2VkfSBpcyBhbnN3ZXJlZCB3aXRob3V0IGEgY2FsbCwgd2hpY2ggd2FzIHJlcXVpcmVkIikK
CgpkZWYgY2FsbGVkKHNhaWQ6IENvbXBsZXRpb24sIGFza2VkOiBzdHIpIC0+IE5vbmU6CiAgICAi
IiJSYWlzZSBGYWlsZWRFcnJvciB3aGVyZSBhIGNsaWVudCBjb3VsZCBub3QgbWFrZSB0aGUgY2Fs
bCBvZiBhIHRvb2wuIiIiCiAgICB0cnk6CiAgICAgICAgZm9yIGNhbGwgaW4gc2FpZC5jYWxsczoK
ICAgICAgICAgICAgbmFtZSwgYXJndW1lbnRzID0gY2FsbFsiZnVuY3Rpb24iXVsibmFtZSJdLCBj
YWxsWyJmdW5jdGlvbiJdWyJhcmd1bWVudHMiXQogICAgICAgICAgICBpZiBub3Qgc2FpZC5jdXQ6
CiAgICAgICAgICAgICAgICB3aG9sZSA9IGlzaW5zdGFuY2UoanNvbi5sb2Fkcyhhcmd1bWVudHMp
LCBkaWN0KSBhbmQgbmFtZSA9PSAibWl4X2NvbG91ciIgYW5kIGNhbGxbImlkIl0KICAgICAgICAg
ICAgICAgIGlmIG5vdCB3aG9sZToKICAgICAgICAgICAgICAgICAgICByYWlzZSBWYWx1ZUVycm9y
CiAgICBleGNlcHQgKExvb2t1cEVycm9yLCBUeXBlRXJyb3IsIEF0dHJpYnV0ZUVycm9yLCBWYWx1
ZUVycm9yLCBSZWN1cnNpb25FcnJvcik6CiAgICAgICAgcmFpc2UgRmFpbGVkRXJyb3IoZiJ7YXNr
ZWR9IGlzIGFuc3dlcmVkIHdpdGggd2hhdCBpcyBubyBjYWxsIG9mIHRoZSB0b29sIikgZnJvbSBO
b25lCgoKZGVmIHRyeV9zY2hlbWEodGFsazogVGFsaykgLT4gTm9uZToKICAgICIiIkEgcmVzcG9u
c2Uga2VlcHMgdG8gYSBKU09OIHNjaGVtYS4gT25lIHRoYXQgZG9lcyBub3QgZ2V0cyBhIGxvbmdl
ciB0cnk6IGEgc21hbGwgbW9kZWwgbWF5IGVuZCB0b28gZWFybHkuIiIiCiAgICBhc2tlZCA9ICJh
IHByb21wdCB3aXRoIGEgSlNPTiBzY2hlbWEiCiAgICBmb3VuZDogbGlzdFtDb21wbGV0aW9uXSA9
IFtdCgogICAgZGVmIGFzayh0b2tlbnM6IGludCkgLT4gc3RyOgogICAgICAgIG9wdGlvbmFsKGxh
bWJkYTogZm91bmQuYXBwZW5kKHRhbGsuYXNrKGFza2VkLCByZXNwb25zZV9mb3JtYXQ9Q09MT1VS
LCBtYXhfdG9rZW5zPXRva2VucykpLCBrbm93bj1GYWxzZSkKICAgICAgICByZXR1cm4gdW5saWtl
KGZvdW5kWy0xXSkKCiAgICBpZiBhc2soRk9STUVEKSBhbmQgKHRleHQgOj0gYXNrKFJFVFJJRUQp
KToKICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihmInthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCB3
aGF0IGlzIG5vdCBvZiB0aGF0IHNjaGVtYToge3Nob3duKHRleHQpfSIpCgoKZGVmIHVubGlrZShz
YWlkOiBDb21wbGV0aW9uKSAtPiBzdHI6CiAgICAiIiJSZXR1cm4gdGhlIHRleHQgb2YgYSByZXNw
b25zZSB0aGF0IGlzIG5vdCBvZiB0aGUgc2NoZW1hIENPTE9VUiwgYXMgZmFyIGFzIGl0IGNhbiBi
ZSBqdWRnZWQuIiIiCiAgICB0ZXh0ID0gc2FpZC50ZXh0LnN0cmlwKCkKICAgICMgT25lIHRoYXQg
YmVnaW5zIHdpdGggYSB0YWcgdGhpbmtzIGZpcnN0LgogICAgaWYgbm90IHRleHQgb3IgdGV4dC5z
dGFydHN3aXRoKCI8Iikgb3IgKHNhaWQuY3V0IGFuZCB0ZXh0LnN0YXJ0c3dpdGgoInsiKSk6CiAg
ICAgICAgcmV0dXJuICIiCiAgICB0cnk6CiAgICAgICAgdmFsdWUgPSBqc29uLmxvYWRzKHRleHQp
CiAgICBleGNlcHQgKFZhbHVlRXJyb3IsIFJlY3Vyc2lvbkVycm9yKToKICAgICAgICByZXR1cm4g
dGV4dAogICAgcmV0dXJuICIiIGlmIGlzaW5zdGFuY2UodmFsdWUsIGRpY3QpIGFuZCBsaXN0KHZh
bHVlLnZhbHVlcygpKSBpbiAoWyJyZWQiXSwgWyJibHVlIl0pIGFuZCAiY29sb3VyIiBpbiB2YWx1
ZSBlbHNlIHRleHQKCgpkZWYgb3B0aW9uYWwocnVuOiBDYWxsYWJsZVtbXSwgb2JqZWN0XSwgKiwg
a25vd246IGJvb2wpIC0+IE5vbmU6CiAgICAiIiJEbyB3aGF0IGEgc2VydmVyIG5lZWQgbm90IGJl
IGFibGUgdG8gZG8uIFJhaXNlcyBMZWZ0T3V0RXJyb3Igd2hlcmUgaXQgcmVwb3J0cyB0aGF0IGl0
IGNhbm5vdC4KCiAgICBga25vd25gOiBpdCByZXBvcnRzIGVsc2V3aGVyZSB0aGF0IGl0IGNhbi4K
ICAgICIiIgogICAgdHJ5OgogICAgICAgIHJ1bigpCiAgICBleGNlcHQgRmFpbGVkRXJyb3IgYXMg
ZXJyb3I6CiAgICAgICAgc3RhdHVzID0gcmUuc2VhcmNoKHIiYW5zd2VyZWQgd2l0aCBIVFRQIChc
ZCspOiAoLiopIiwgc3RyKGVycm9yKSkKICAgICAgICBpZiBzdGF0dXMgYW5kIG5vdCBrbm93biBh
bmQgc3RhdHVzWzFdIGluICgiNDAwIiwgIjQwNCIsICI0MjIiLCAiNTAwIiwgIjUwMSIpIGFuZCBV
TlNVUFBPUlRFRC5zZWFyY2goc3RhdHVzWzJdKToKICAgICAgICAgICAgcmFpc2UgTGVmdE91dEVy
cm9yIGZyb20gTm9uZQogICAgICAgIHJhaXNlCgoKZGVmIHRyeV90d28odGFsazogVGFsaykgLT4g
Tm9uZToKICAgICIiIlR3byBwcm9tcHRzIGF0IG9uY2U6IGVhY2ggZ2V0cyBpdHMgb3duIHJlc3Bv
bnNlLiIiIgogICAgYXNrZWQgPSAib25lIG9mIHR3byBwcm9tcHRzIGF0IG9uY2UiCiAgICBib2Rp
ZXMgPSBbcHJvbXB0KHRhbGsucXVlc3Rpb24sIG1heF90b2tlbnM9dG9rZW5zKSBmb3IgdG9rZW5z
IGluICgyLCBGT1JNRUQpXQogICAgZGVhZGxpbmUgPSB0YWxrLmxpbWl0KHN1bShib2R5WyJtYXhf
dG9rZW5zIl0gZm9yIGJvZHkgaW4gYm9kaWVzKSkKICAgIGxpbmtzID0gW0xpbmsodGFsay5xdWVz
dGlvbi51cmwsIGRlYWRsaW5lKSBmb3IgXyBpbiBib2RpZXNdCiAgICBoZWFkZXJzID0geyoqdGFs
ay5xdWVzdGlvbi5hdXRob3JpemF0aW9uKCksICJDb250ZW50LVR5cGUiOiAiYXBwbGljYXRpb24v
anNvbiJ9CiAgICB3aXRoIHRyb3VibGUoYXNrZWQpOgogICAgICAgIGZvciBsaW5rLCBib2R5IGlu
IHppcChsaW5rcywgYm9kaWVzLCBzdHJpY3Q9VHJ1ZSk6CiAgICAgICAgICAgIGxpbmsucmVxdWVz
dCgiUE9TVCIsIHRhbGsucXVlc3Rpb24ucGF0aCwganNvbi5kdW1wcyhib2R5KS5lbmNvZGUoKSwg
aGVhZGVycykKICAgICAgICBmb3IgbGluaywgYm9keSBpbiB6aXAobGlua3MsIGJvZGllcywgc3Ry
aWN0PVRydWUpOgogICAgICAgICAgICByZXBseSA9IGxpbmsuZ2V0cmVzcG9uc2UoKQogICAgICAg
ICAgICBjb250ZW50ID0gYWNjZXB0ZWQoUmVwbHkocmVwbHkuc3RhdHVzLCAiIiwgcmVwbHkucmVh
ZChMQVJHRVNUKSwgMCksIGFza2VkKS5ib2R5CiAgICAgICAgICAgIGNvbXBsZXRpb24ocGFyc2Vk
KGNvbnRlbnQsIGFza2VkLCBOT19DSEFUKSwgYm9keSwgdGFsay5xdWVzdGlvbiwgYXNrZWQpCiAg
ICAgICAgICAgIGxpbmsuY2xvc2UoKQoKCmRlZiB0cnlfbGVhdmluZyh0YWxrOiBUYWxrKSAtPiBO
b25lOgogICAgIiIiQSBjbGllbnQgbGVhdmVzIGluIHRoZSBtaWRkbGUgb2YgYSByZXNwb25zZTsg
dGhlIG5leHQgb25lIG11c3QgZ2V0IGl0cyBvd24uIiIiCiAgICBib2R5ID0gcHJvbXB0KHRhbGsu
cXVlc3Rpb24sIHN0cmVhbT1UcnVlLCBtYXhfdG9rZW5zPVJFVFJJRUQpCiAgICBhc2tlZCA9ICJh
IHByb21wdCB3aG9zZSBjbGllbnQgbGVhdmVzIgogICAgbGluayA9IExpbmsodGFsay5xdWVzdGlv
bi51cmwsIHRhbGsubGltaXQoU0hPUlQpKQogICAgd2l0aCB0cm91YmxlKGFza2VkKToKICAgICAg
ICByZXBseSA9IGJlZ2luKGxpbmssIHRhbGsucXVlc3Rpb24sIHRhbGsucXVlc3Rpb24ucGF0aCwg
Ym9keSkKICAgICAgICByZXBseS5yZWFkbGluZShMQVJHRVNUKQogICAgICAgIGlmIGxpbmsuc29j
azoKICAgICAgICAgICAgbGluay5zb2NrLnNodXRkb3duKHNvY2tldC5TSFVUX1JEV1IpCiAgICAg
ICAgbGluay5jbG9zZSgpCiAgICBzdGF5c19idXN5KHRhbGsucXVlc3Rpb24sIExFQVZJTkdfU0VD
T05EUykKICAgIHNlZXNfdGV4dCh0YWxrLCAiYSBwcm9tcHQgYWZ0ZXIgYSBjbGllbnQgdGhhdCBs
ZWZ0IikKCgpkZWYgdHJ5X2xvbmcodGFsazogVGFsaykgLT4gTm9uZToKICAgICIiIkEgbG9uZyBw
cm9tcHQsIGFzIGxvbmcgYXMgdGhpcyBob3N0IHJlYWRzIGluIGhhbGYgYSBzZWNvbmQ7IGFsbCBv
ZiBpdCBtdXN0IGJlIHJlYWQuIiIiCiAgICB0b2tlbnMgPSBtaW4oTE9ORywgaW50KHRhbGsucmVh
ZHMgKiBMT05HX1NFQ09ORFMpLCB0YWxrLnF1ZXN0aW9uLmNvbnRleHQgLy8gNCkKICAgIGlmIHRv
a2VucyA8IEZFV0VTVDoKICAgICAgICByYWlzZSBMZWZ0T3V0RXJyb3IKICAgIGxlbmd0aCwgc3Rh
cnQgPSBpbnQodG9rZW5zIC8gdGFsay5kZW5zaXR5KSwgc2VjcmV0cy5yYW5kYmVsb3coMTAwMCkK
ICAgIHRleHQgPSAiICIuam9pbihmIntlYWNofSBpcyBhIG51bWJlci4iIGZvciBlYWNoIGluIHJh
bmdlKHN0YXJ0LCBzdGFydCArIHRva2VucykpWzpsZW5ndGhdCiAgICBhc2tlZCA9IGYiYSBwcm9t
cHQgb2Yge2xlbmd0aH0gY2hhcmFjdGVycyIKICAgIGJvZHkgPSBwcm9tcHQodGFsay5xdWVzdGlv
biwgbWVzc2FnZXM9W3sicm9sZSI6ICJ1c2VyIiwgImNvbnRlbnQiOiBmInt0ZXh0fSB7UFJJTUFS
WX0ifV0pCiAgICB0YWxrLmxpbmsudW50aWwodGFsay5saW1pdCh0b2tlbnMpKQogICAgcmVwbHkg
PSBhY2NlcHRlZChyZXF1ZXN0KHRhbGsubGluaywgdGFsay5xdWVzdGlvbiwgYXNrZWQsIHRhbGsu
cXVlc3Rpb24ucGF0aCwgYm9keSksIGFza2VkKQogICAgc2FpZCA9IHBhcnNlZChyZXBseS5ib2R5
LCBhc2tlZCwgTk9fQ0hBVCkKICAgIGNvbXBsZXRpb24oc2FpZCwgYm9keSwgdGFsay5xdWVzdGlv
biwgYXNrZWQpCiAgICByZWFkID0gc2FpZFsidXNhZ2UiXS5nZXQoInByb21wdF90b2tlbnMiLCBs
ZW5ndGgpCiAgICBpZiByZWFkIDwgbGVuZ3RoIC8vIE1PU1RfQ0hBUkFDVEVSUzoKICAgICAgICBy
YWlzZSBGYWlsZWRFcnJvcihmInthc2tlZH0gaXMgYW5zd2VyZWQgYWZ0ZXIge3JlYWR9IHRva2Vu
cyBvZiBpdCIpCgoKZGVmIHRyeV9rZXkodGFsazogVGFsaykgLT4gTm9uZToKICAgICIiIkEgZGVj
bGFyZWQga2V5IGlzIHJlcXVpcmVkLCBhbmQgYW5vdGhlciBvbmUgcmVmdXNlZC4iIiIKICAgIGlm
IG5vdCB0YWxrLnF1ZXN0aW9uLmtleToKICAgICAgICByYWlzZSBMZWZ0T3V0RXJyb3IKICAgIGZv
ciBhc2tlZCwgaGVhZGVycyBpbiAoCiAgICAgICAgKCJhIHByb21wdCB3aXRob3V0IHRoZSBrZXki
LCB7fSksCiAgICAgICAgKCJhIHByb21wdCB3aXRoIGEgd3Jvbmcga2V5IiwgeyJBdXRob3JpemF0
aW9uIjogZiJCZWFyZXIgd3Jvbmcte3NlY3JldHMudG9rZW5faGV4KDgpfSJ9KSwKICAgICk6CiAg
ICAgICAgbGluayA9IExpbmsodGFsay5xdWVzdGlvbi51cmwsIHRhbGsubGltaXQoU0hPUlQpKQog
ICAgICAgIGJvZHkgPSBwcm9tcHQodGFsay5xdWVzdGlvbiwgbWF4X3Rva2Vucz0xKSBpZiB0YWxr
LnF1ZXN0aW9uLmtpbmQgPT0gImNoYXQiIGVsc2UgeyJpbnB1dCI6IFBSSU1BUll9CiAgICAgICAg
d2l0aCB0cm91YmxlKGFza2VkKToKICAgICAgICAgICAgcmVwbHkgPSBiZWdpbihsaW5rLCB0YWxr
LnF1ZXN0aW9uLCB0YWxrLnF1ZXN0aW9uLnBhdGgsIGJvZHksIGhlYWRlcnMpCiAgICAgICAgICAg
IHN0YXR1cyA9IHJlcGx5LnN0YXR1cwogICAgICAgICAgICByZXBseS5yZWFkKExBUkdFU1QpCiAg
ICAgICAgICAgIGxpbmsuY2xvc2UoKQogICAgICAgIGlmIHN0YXR1cyBub3QgaW4gKDQwMSwgNDAz
KToKICAgICAgICAgICAgcmFpc2UgRmFpbGVkRXJyb3IoZiJ7YXNrZWR9IGlzIGFuc3dlcmVkIHdp
dGggSFRUUCB7c3RhdHVzfSwgYW5kIGEga2V5IGlzIGRlY2xhcmVkIikKCgpkZWYgdHJ5X3BhZ2Vz
KHRhbGs6IFRhbGspIC0+IE5vbmU6CiAgICAiIiJUaGUgcGFnZXMgdGhhdCBjbGllbnRzLCB0aGUg
Z2F0ZXdheSBhbmQgbW9uaXRvcmluZyByZWFkLiIiIgogICAgcXVlc3Rpb24gPSB0YWxrLnF1ZXN0
aW9uCiAgICBpZiBxdWVzdGlvbi5tb2RlbHNfcGF0aDoKICAgICAgICBwYWdlID0gcXVlc3Rpb24u
bW9kZWxzX3BhdGgKICAgICAgICBzYWlkID0gcGFyc2VkKGFjY2VwdGVkKHRhbGsuZ2V0KHBhZ2Up
LCBwYWdlKS5ib2R5LCBwYWdlLCAid2hhdCBpcyBubyBsaXN0IG9mIG1vZGVscyIpCiAgICAgICAg
dHJ5OgogICAgICAgICAgICBuYW1lcyA9IHtuYW1lIGZvciBlYWNoIGluIHNhaWRbImRhdGEiXSBm
b3IgbmFtZSBpbiAoZWFjaFsiaWQiXSwgKihlYWNoLmdldCgiYWxpYXNlcyIpIG9yICgpKSl9CiAg
ICAgICAgZXhjZXB0IChMb29rdXBFcnJvciwgVHlwZUVycm9yLCBBdHRyaWJ1dGVFcnJvcik6CiAg
ICAgICAgICAgIHJhaXNlIEZhaWxlZEVycm9yKGYie3BhZ2V9IGlzIGFuc3dlcmVkIHdpdGggd2hh
dCBpcyBubyBsaXN0IG9mIG1vZGVscyIpIGZyb20gTm9uZQogICAgICAgIGlmIG1pc3NpbmcgOj0g
c29ydGVkKHNldChxdWVzdGlvbi5tb2RlbHMpIC0gbmFtZXMpOgogICAgICAgICAgICByYWlzZSBG
YWlsZWRFcnJvcihmIntwYWdlfSBkb2VzIG5vdCBsaXN0IHsnLCAnLmpvaW4obWlzc2luZyl9IikK
ICAgIGlmIHF1ZXN0aW9uLnByb3BzX3BhdGg6CiAgICAgICAgc2FpZCA9IHBhcnNlZChhY2NlcHRl
ZCh0YWxrLmdldChxdWVzdGlvbi5wcm9wc19wYXRoKSwgIi9wcm9wcyIpLmJvZHksICIvcHJvcHMi
LCAid2hhdCBpcyBub3QgSlNPTiIpCiAgICAgICAgY2FwcyA9IHNhaWQuZ2V0KCJjaGF0X3RlbXBs
YXRlX2NhcHMiKSBpZiBpc2luc3RhbmNlKHNhaWQsIGRpY3QpIGVsc2UgTm9uZQogICAgICAgIHRh
bGsuY2FwcyA9IGNhcHMgaWYgaXNpbnN0YW5jZShjYXBzLCBkaWN0KSBlbHNlIHt9CiAgICBmb3Ig
dXJsIGluIHF1ZXN0aW9uLm1ldHJpY3MgaWYgbGVuKHF1ZXN0aW9uLm1ldHJpY3MpID09IDEgZWxz
ZSAoKToKICAgICAgICBwYXJ0cyA9IHVybHNwbGl0KHVybCkKICAgICAgICByZXBseSA9IHRhbGsu
Z2V0KGYie3BhcnRzLnBhdGh9P3twYXJ0cy5xdWVyeX0iIGlmIHBhcnRzLnF1ZXJ5IGVsc2UgcGFy
dHMucGF0aCkKICAgICAgICBpZiByZXBseS5zdGF0dXMgbm90IGluICg0MDQsIDUwMSkgYW5kIG5v
dCBCVVNZLnNlYXJjaCgKICAgICAgICAgICAgYWNjZXB0ZWQocmVwbHksIHBhcnRzLnBhdGgpLmJv
ZHkuZGVjb2RlKGVycm9ycz0icmVwbGFjZSIpCiAgICAgICAgKToKICAgICAgICAgICAgcmFpc2Ug
RmFpbGVkRXJyb3IoZiJ7cGFydHMucGF0aH0gaXMgYW5zd2VyZWQgd2l0aCB3aGF0IGFyZSBubyBm
aWd1cmVzIG9mIGEgc2VydmVyIikKCgpkZWYgdHJ5X2hlYWx0aCh0YWxrOiBUYWxrKSAtPiBOb25l
OgogICAgIiIiSXQgaXMgYXMgaGVhbHRoeSBhcyBiZWZvcmUgYWxsIG9mIHRoaXMuIiIiCiAgICBp
ZiBwYXRoIDo9IHRhbGsucXVlc3Rpb24uaGVhbHRoX3BhdGg6CiAgICAgICAgYWNjZXB0ZWQodGFs
ay5nZXQocGF0aCksIHBhdGgpCgoKZGVmIHRyeV9saXN0ZW5pbmcodGFsazogVGFsaykgLT4gTm9u
ZToKICAgICIiIkl0IGxpc3RlbnMgd2hlcmUgaXQgaXMgZGVjbGFyZWQsIGFuZCBub3doZXJlIGVs
c2UgdGhhdCBvdGhlciBtYWNoaW5lcyByZWFjaC4iIiIKICAgIHF1ZXN0aW9uID0gdGFsay5xdWVz
dGlvbgogICAgaWYgbm90IHF1ZXN0aW9uLmxpc3RlbiBvciBub3QgcXVlc3Rpb24ucGlkczoKICAg
ICAgICByYWlzZSBMZWZ0T3V0RXJyb3IKICAgIGRlY2xhcmVkLCBwb3J0ID0gaXBhZGRyZXNzLmlw
X2FkZHJlc3MocXVlc3Rpb24ubGlzdGVuKSwgdXJsc3BsaXQocXVlc3Rpb24udXJsKS5wb3J0CiAg
ICBmb3VuZCA9IGxpc3RlbmluZyhxdWVzdGlvbi5waWRzKQogICAgZm9yIGFkZHJlc3MsIG51bWJl
ciBpbiBzb3J0ZWQoZm91bmQsIGtleT1zdHIpOgogICAgICAgIGlmIG51bWJlciA9PSBwb3J0IGFu
ZCBhZGRyZXNzICE9IGRlY2xhcmVkOgogICAgICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihmIml0
IGxpc3RlbnMgYXQge2FkZHJlc3N9LCBwb3J0IHtudW1iZXJ9LCBhbmQge2RlY2xhcmVkfSBpcyBk
ZWNsYXJlZCIpCiAgICAgICAgaWYgbnVtYmVyICE9IHBvcnQgYW5kIHF1ZXN0aW9uLmNsb3NlZCBh
bmQgbm90IGFkZHJlc3MuaXNfbG9vcGJhY2s6CiAgICAgICAgICAgIHJhaXNlIEZhaWxlZEVycm9y
KGYiaXQgbGlzdGVucyBhdCB7YWRkcmVzc30sIHBvcnQge251bWJlcn0sIHRvbywgd2hpY2ggaXMg
bm90IGRlY2xhcmVkIikKCgpkZWYgbGlzdGVuaW5nKHBpZHM6IFNlcXVlbmNlW3N0cl0pIC0+IHNl
dFt0dXBsZVtBbnksIGludF1dOgogICAgIiIiUmV0dXJuIHRoZSBUQ1AgYWRkcmVzc2VzIGFuZCBw
b3J0cyBvZiBwcm9jZXNzZXMgYW5kIHRob3NlIHRoYXQgdGhleSBzdGFydGVkLCBvbiB0aGlzIGhv
c3QncyBvd24gbmV0d29yay4iIiIKICAgIG93biwgc29ja2V0cyA9IG5ldHdvcmsoInNlbGYiKSwg
c2V0KCkKICAgIGV2ZXJ5ID0gW3BpZCBmb3IgcGlkIGluIGZhbWlseShwaWRzKSBpZiBuZXR3b3Jr
KHBpZCkgPT0gb3duXQogICAgZm9yIHBpZCBpbiBldmVyeToKICAgICAgICB3aXRoIHN1cHByZXNz
KE9TRXJyb3IpOgogICAgICAgICAgICBmb3IgZWFjaCBpbiBQYXRoKCIvcHJvYyIsIHBpZCwgImZk
IikuaXRlcmRpcigpOgogICAgICAgICAgICAgICAgd2l0aCBzdXBwcmVzcyhPU0Vycm9yKToKICAg
ICAgICAgICAgICAgICAgICBzb2NrZXRzLmFkZChzdHIoZWFjaC5yZWFkbGluaygpKSkKICAgIGZv
dW5kID0gc2V0KCkKICAgIGZvciB0YWJsZSBpbiAoInRjcCIsICJ0Y3A2Iik6CiAgICAgICAgd2l0
aCBzdXBwcmVzcyhPU0Vycm9yKToKICAgICAgICAgICAgZm9yIGxpbmUgaW4gUGF0aCgiL3Byb2Mv
c2VsZi9uZXQiLCB0YWJsZSkucmVhZF90ZXh0KGVuY29kaW5nPSJ1dGYtOCIpLnNwbGl0bGluZXMo
KVsxOl06CiAgICAgICAgICAgICAgICB3b3JkcyA9IGxpbmUuc3BsaXQoKQogICAgICAgICAgICAg
ICAgaWYgd29yZHNbM10gPT0gIjBBIiBhbmQgZiJzb2NrZXQ6W3t3b3Jkc1s5XX1dIiBpbiBzb2Nr
ZXRzOgogICAgICAgICAgICAgICAgICAgIGFkZHJlc3MsIF8sIHBvcnQgPSB3b3Jkc1sxXS5wYXJ0
aXRpb24oIjoiKQogICAgICAgICAgICAgICAgICAgIGZvdW5kLmFkZCgoa2VybmVsX2FkZHJlc3Mo
YWRkcmVzcyksIGludChwb3J0LCAxNikpKQogICAgcmV0dXJuIGZvdW5kCgoKZGVmIG5ldHdvcmso
cGlkOiBzdHIpIC0+IHN0cjoKICAgICIiIlJldHVybiB0aGUgbmV0d29yayB0aGF0IGEgcHJvY2Vz
cyBpcyBpbiwgb3Igbm90aGluZy4iIiIKICAgIHdpdGggc3VwcHJlc3MoT1NFcnJvcik6CiAgICAg
ICAgcmV0dXJuIHN0cihQYXRoKCIvcHJvYyIsIHBpZCwgIm5zL25ldCIpLnJlYWRsaW5rKCkpCiAg
ICByZXR1cm4gIiIKCgpkZWYgZmFtaWx5KHBpZHM6IFNlcXVlbmNlW3N0cl0pIC0+IHNldFtzdHJd
OgogICAgIiIiUmV0dXJuIHByb2Nlc3NlcyBhbmQgYWxsIHRoYXQgdGhleSBzdGFydGVkLiIiIgog
ICAgcGFyZW50czogZGljdFtzdHIsIHN0cl0gPSB7fQogICAgZm9yIGVhY2ggaW4gUGF0aCgiL3By
b2MiKS5pdGVyZGlyKCk6CiAgICAgICAgaWYgZWFjaC5uYW1lLmlzZGVjaW1hbCgpOgogICAgICAg
ICAgICB3aXRoIHN1cHByZXNzKE9TRXJyb3IsIEluZGV4RXJyb3IpOgogICAgICAgICAgICAgICAg
cGFyZW50c1tlYWNoLm5hbWVdID0gKGVhY2ggLyAic3RhdCIpLnJlYWRfdGV4dChlbmNvZGluZz0i
dXRmLTgiKS5ycGFydGl0aW9uKCIpIilbMl0uc3BsaXQoKVsxXQogICAgZm91bmQgPSBzZXQocGlk
cykKICAgIHdoaWxlIG1vcmUgOj0ge3BpZCBmb3IgcGlkLCBwYXJlbnQgaW4gcGFyZW50cy5pdGVt
cygpIGlmIHBhcmVudCBpbiBmb3VuZH0gLSBmb3VuZDoKICAgICAgICBmb3VuZCB8PSBtb3JlCiAg
ICByZXR1cm4gZm91bmQKCgpkZWYga2VybmVsX2FkZHJlc3ModGV4dDogc3RyKSAtPiBBbnk6CiAg
ICAiIiJSZXR1cm4gYW4gSVAgYWRkcmVzcyBvZiAvcHJvYy9uZXQvdGNwOiB3b3JkcyBvZiAzMiBi
aXRzIGluIHRoaXMgbWFjaGluZSdzIG9yZGVyLiIiIgogICAgd29yZHMgPSBbaW50KHRleHRbbiA6
IG4gKyA4XSwgMTYpLnRvX2J5dGVzKDQsIHN5cy5ieXRlb3JkZXIpIGZvciBuIGluIHJhbmdlKDAs
IGxlbih0ZXh0KSwgOCldCiAgICByZXR1cm4gaXBhZGRyZXNzLmlwX2FkZHJlc3MoYiIiLmpvaW4o
d29yZHMpKQoKCmRlZiB0cnlfZW1iZWRkaW5nKHRhbGs6IFRhbGspIC0+IE5vbmU6CiAgICAiIiJU
d28gdGV4dHMgZ2l2ZSB0d28gdmVjdG9ycyBvZiBvbmUgbGVuZ3RoOyBvbmUgdGV4dCBnaXZlcyBv
bmUuIiIiCiAgICBmb3IgZ2l2ZW4gaW4gKFtQUklNQVJZLCAiQSBsZXR0ZXIgYWJvdXQgdGhlIHdl
YXRoZXIgaW4gTWFyY2giXSwgUFJJTUFSWSk6CiAgICAgICAgYXNrZWQsIHdoYXQgPSAiYW4gZW1i
ZWRkaW5nIiBpZiBnaXZlbiA9PSBQUklNQVJZIGVsc2UgInR3byBlbWJlZGRpbmdzIiwgIndoYXQg
aXMgbm8gZW1iZWRkaW5nIgogICAgICAgIGNvdW50ID0gMSBpZiBnaXZlbiA9PSBQUklNQVJZIGVs
c2UgbGVuKGdpdmVuKQogICAgICAgIHBhdGgsIGJvZHkgPSB0YWxrLnF1ZXN0aW9uLnBhdGgsIHsi
bW9kZWwiOiB0YWxrLnF1ZXN0aW9uLmJvZHlbIm1vZGVsIl0sICJpbnB1dCI6IGdpdmVufQogICAg
ICAgIHRhbGsubGluay51bnRpbCh0YWxrLmxpbWl0KFNIT1JUKSkKICAgICAgICByZXBseSA9IHJl
cXVlc3QodGFsay5saW5rLCB0YWxrLnF1ZXN0aW9uLCBhc2tlZCwgcGF0aCwgYm9keSkKICAgICAg
ICBpZiBieV90b2tlbiA6PSByZXBseS5zdGF0dXMgPT0gNDAwIGFuZCBiIm9vbGluZyB0eXBlICdu
b25lJyIgaW4gcmVwbHkuYm9keToKICAgICAgICAgICAgIyBBIHZlY3RvciBmb3IgZWFjaCB0b2tl
biwgd2hpY2ggdGhpcyBwYXRoIGRvZXMgbm90IGhhdmUuCiAgICAgICAgICAgIHJlcGx5ID0gcmVx
dWVzdCh0YWxrLmxpbmssIHRhbGsucXVlc3Rpb24sIGFza2VkLCBUT0tFTlNfUEFUSCwgeyJjb250
ZW50IjogZ2l2ZW59KQogICAgICAgIHNhaWQgPSBwYXJzZWQoYWNjZXB0ZWQocmVwbHksIGFza2Vk
KS5ib2R5LCBhc2tlZCwgd2hhdCkKICAgICAgICB0cnk6CiAgICAgICAgICAgIGRhdGEgPSBzYWlk
IGlmIGJ5X3Rva2VuIGVsc2Ugc2FpZFsiZGF0YSJdCiAgICAgICAgICAgIHZlY3RvcnMgPSB7ZWFj
aFsiaW5kZXgiXTogdHVwbGUobWFwKG51bWJlciwgZmxhdChlYWNoWyJlbWJlZGRpbmciXSkpKSBm
b3IgZWFjaCBpbiBkYXRhfQogICAgICAgIGV4Y2VwdCAoTG9va3VwRXJyb3IsIFR5cGVFcnJvciwg
QXR0cmlidXRlRXJyb3IsIFZhbHVlRXJyb3IpOgogICAgICAgICAgICByYWlzZSBGYWlsZWRFcnJv
cihmInthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCB7d2hhdH0iKSBmcm9tIE5vbmUKICAgICAgICBp
ZiBzb3J0ZWQodmVjdG9ycykgIT0gbGlzdChyYW5nZShjb3VudCkpIG9yIGxlbihkYXRhKSAhPSBj
b3VudDoKICAgICAgICAgICAgcmFpc2UgRmFpbGVkRXJyb3IoZiJ7YXNrZWR9IGlzIGFuc3dlcmVk
IHdpdGgge3doYXR9OiBudW1iZXJzIHtzb3J0ZWQodmVjdG9ycyl9LCBvZiB7Y291bnR9IikKICAg
ICAgICBsZW5ndGhzID0ge2xlbihlYWNoKSBmb3IgZWFjaCBpbiB2ZWN0b3JzLnZhbHVlcygpfQog
ICAgICAgIGlmIG5vdCBhbGwoYW55KHZlY3RvcikgZm9yIHZlY3RvciBpbiB2ZWN0b3JzLnZhbHVl
cygpKSBvciAobGVuKGxlbmd0aHMpID4gMSBhbmQgbm90IGJ5X3Rva2VuKToKICAgICAgICAgICAg
cmFpc2UgRmFpbGVkRXJyb3IoZiJ7YXNrZWR9IGlzIGFuc3dlcmVkIHdpdGgge3doYXR9OiB6ZXJv
cywgb3IgdmVjdG9ycyBvZiBzZXZlcmFsIGxlbmd0aHMiKQogICAgICAgIGlmIGxlbihzZXQodmVj
dG9ycy52YWx1ZXMoKSkpICE9IGNvdW50OgogICAgICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihm
Inthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCB0aGUgc2FtZSBlbWJlZGRpbmcgZm9yIGRpZmZlcmVu
dCB0ZXh0cyIpCgoKZGVmIGZsYXQodmVjdG9yOiBsaXN0W0FueV0pIC0+IGxpc3RbQW55XToKICAg
ICIiIlJldHVybiBhIHZlY3Rvciwgb3IgdGhvc2Ugb2YgYWxsIHRva2VucyBhcyBvbmUuIiIiCiAg
ICByZXR1cm4gW2VhY2ggZm9yIHBhcnQgaW4gdmVjdG9yIGZvciBlYWNoIGluIChwYXJ0IGlmIGlz
aW5zdGFuY2UocGFydCwgbGlzdCkgZWxzZSBbcGFydF0pXQoKCmRlZiB0cnlfcmVyYW5rKHRhbGs6
IFRhbGspIC0+IE5vbmU6CiAgICAiIiJEb2N1bWVudHMgZ2V0IHNjb3JlcywgYW5kIGRpZmZlcmVu
dCBvbmVzLiIiIgogICAgYXNrZWQgPSAiYSByZXJhbmsiCiAgICBkb2N1bWVudHMgPSBbIlJlZCwg
eWVsbG93IGFuZCBibHVlIGFyZSB0aGUgdGhyZWUgcHJpbWFyeSBjb2xvdXJzLiIsICJUaGUgdHJh
aW4gdG8gQmVybiBsZWF2ZXMgYXQgbm9vbi4iLCAiQ2hlZXNlIl0KICAgIGJvZHkgPSB7CiAgICAg
ICAgIm1vZGVsIjogdGFsay5xdWVzdGlvbi5ib2R5WyJtb2RlbCJdLAogICAgICAgICJxdWVyeSI6
ICJXaGljaCBhcmUgdGhlIHRocmVlIHByaW1hcnkgY29sb3Vycz8iLAogICAgICAgICJkb2N1bWVu
dHMiOiBkb2N1bWVudHMsCiAgICB9CiAgICB0YWxrLmxpbmsudW50aWwodGFsay5saW1pdChTSE9S
VCkpCiAgICByZXBseSA9IGFjY2VwdGVkKHJlcXVlc3QodGFsay5saW5rLCB0YWxrLnF1ZXN0aW9u
LCBhc2tlZCwgdGFsay5xdWVzdGlvbi5wYXRoLCBib2R5KSwgYXNrZWQpCiAgICBzYWlkID0gcGFy
c2VkKHJlcGx5LmJvZHksIGFza2VkLCAid2hhdCBpcyBubyByZXJhbmsiKQogICAgdHJ5OgogICAg
ICAgIHNjb3JlcyA9IHtlYWNoWyJpbmRleCJdOiBudW1iZXIoZWFjaFsicmVsZXZhbmNlX3Njb3Jl
Il0pIGZvciBlYWNoIGluIHNhaWRbInJlc3VsdHMiXX0KICAgIGV4Y2VwdCAoTG9va3VwRXJyb3Is
IFR5cGVFcnJvciwgQXR0cmlidXRlRXJyb3IsIFZhbHVlRXJyb3IpOgogICAgICAgIHJhaXNlIEZh
aWxlZEVycm9yKGYie2Fza2VkfSBpcyBhbnN3ZXJlZCB3aXRoIHdoYXQgaXMgbm8gcmVyYW5rIikg
ZnJvbSBOb25lCiAgICBpZiBzb3J0ZWQoc2NvcmVzKSAhPSBsaXN0KHJhbmdlKGxlbihkb2N1bWVu
dHMpKSk6CiAgICAgICAgcmFpc2UgRmFpbGVkRXJyb3IoZiJ7YXNrZWR9IGlzIGFuc3dlcmVkIHdp
dGgge2xlbihzY29yZXMpfSBzY29yZXMgb2Yge2xlbihkb2N1bWVudHMpfSIpCiAgICBpZiBsZW4o
c2V0KHNjb3Jlcy52YWx1ZXMoKSkpID09IDE6CiAgICAgICAgcmFpc2UgRmFpbGVkRXJyb3IoZiJ7
YXNrZWR9IGlzIGFuc3dlcmVkIHdpdGggdGhlIHNhbWUgc2NvcmUgZm9yIGRpZmZlcmVudCBkb2N1
bWVudHMiKQoKCmRlZiBudW1iZXIodmFsdWU6IEFueSkgLT4gZmxvYXQ6CiAgICAiIiJSZXR1cm4g
YSBudW1iZXIgdGhhdCBhIGNsaWVudCBjYW4gY29tcHV0ZSB3aXRoLiBSYWlzZXMgVmFsdWVFcnJv
ciB3aGVyZSBpdCBpcyBub25lLiIiIgogICAgaWYgKAogICAgICAgIGlzaW5zdGFuY2UodmFsdWUs
IGJvb2wpCiAgICAgICAgb3Igbm90IGlzaW5zdGFuY2UodmFsdWUsIChpbnQsIGZsb2F0KSkKICAg
ICAgICBvciBub3QgbWF0aC5pc2Zpbml0ZSh2YWx1ZSkKICAgICAgICBvciBhYnModmFsdWUpID4g
My40ZTM4CiAgICApOgogICAgICAgIHJhaXNlIFZhbHVlRXJyb3IKICAgIHJldHVybiBmbG9hdCh2
YWx1ZSkKCgpQUk9WRVMgPSB7ImVtYmVkZGluZ3MiOiBTdGVwKCJhbiBlbWJlZGRpbmciLCB0cnlf
ZW1iZWRkaW5nKSwgInJlcmFuayI6IFN0ZXAoImEgcmVyYW5rIiwgdHJ5X3JlcmFuayl9CiIiIlRo
ZSBmaXJzdCBzdGVwIG9mIGEgc2VydmVyIHRoYXQgY29tcGxldGVzIG5vIHByb21wdHMuIiIiCgpT
VEVQUyA9ICgKICAgIFN0ZXAoIml0cyBhZGRyZXNzZXMiLCB0cnlfbGlzdGVuaW5nKSwKICAgIFN0
ZXAoIml0cyBwYWdlcyIsIHRyeV9wYWdlcyksCiAgICBTdGVwKCJpdHMga2V5IiwgdHJ5X2tleSwg
MTYsIDEpLAopCkNIQVRfU1RFUFMgPSAoCiAgICBTdGVwKCJhIHN0cmVhbSIsIHRyeV9zdHJlYW0s
IDgsIFNIT1JUKSwKICAgIFN0ZXAoInNldmVyYWwgdHVybnMiLCB0cnlfdHVybnMsIDYwLCBTSE9S
VCksCiAgICBTdGVwKCJhIHN5c3RlbSBtZXNzYWdlIiwgdHJ5X3N5c3RlbSwgMTYsIFNIT1JUKSwK
ICAgIFN0ZXAoImEgSlNPTiBzY2hlbWEiLCB0cnlfc2NoZW1hLCAxNiwgRk9STUVEKSwKICAgIFN0
ZXAoInRvb2xzIiwgdHJ5X3Rvb2xzLCAxMjAsIENBTExFRCksCiAgICBTdGVwKCJ0d28gcHJvbXB0
cyBhdCBvbmNlIiwgdHJ5X3R3bywgMTYsIDIgKyBGT1JNRUQpLAogICAgU3RlcCgiYSBsb25nIHBy
b21wdCIsIHRyeV9sb25nLCAwLCBTSE9SVCksCiAgICAjIExhc3QsIHNpbmNlIGl0cyByZXNwb25z
ZSBtYXkgc3RpbGwgYmUgd3JpdHRlbiB3aGVuIHRoZSBuZXh0IHN0ZXAgYmVnaW5zLgogICAgU3Rl
cCgiYSBjbGllbnQgdGhhdCBsZWF2ZXMiLCB0cnlfbGVhdmluZywgMTYsIDIgKiBTSE9SVCksCikK
TEFTVCA9IFN0ZXAoIml0cyBoZWFsdGgiLCB0cnlfaGVhbHRoKQoKCmRlZiBwcm92ZSh0YWxrOiBU
YWxrLCBzdGVwczogU2VxdWVuY2VbU3RlcF0pIC0+IE5vbmU6CiAgICAiIiJEbyB0aGUgc3RlcHMg
dGhhdCB0aGlzIGhvc3QgaGFzIHRpbWUgZm9yLiBSYWlzZXMgRmFpbGVkRXJyb3IgYXQgdGhlIGZp
cnN0IHRoYXQgZmFpbHMuIiIiCiAgICBzbG93ID0gW10KICAgIGZvciBzdGVwIGluIHN0ZXBzOgog
ICAgICAgIHRhbGsudGVsbChzdGVwLm5hbWUpCiAgICAgICAgdG9vayA9IHRpbWUubW9ub3Rvbmlj
KCkgLSB0YWxrLmJlZ2FuCiAgICAgICAgaWYgc3RlcC50b2tlbnMgYW5kIHRvb2sgKyB0YWxrLmV4
cGVjdGVkKHN0ZXAucHJvbXB0LCBzdGVwLnRva2VucykgPiBCVURHRVQ6CiAgICAgICAgICAgIHNs
b3cuYXBwZW5kKHN0ZXAubmFtZSkKICAgICAgICAgICAgY29udGludWUKICAgICAgICB0YWxrLm90
aGVycyA9IGJvb2woc3RlcC50b2tlbnMpIGFuZCBzdGF5c19idXN5KHRhbGsucXVlc3Rpb24sIExF
QVZJTkdfU0VDT05EUykKICAgICAgICB0cnk6CiAgICAgICAgICAgIHN0ZXAucnVuKHRhbGspCiAg
ICAgICAgZXhjZXB0IExlZnRPdXRFcnJvcjoKICAgICAgICAgICAgY29udGludWUKICAgICAgICBl
eGNlcHQgRmFpbGVkRXJyb3IgYXMgZXJyb3I6CiAgICAgICAgICAgIGlmIG5vdCB0YWxrLm90aGVy
cyBvciBub3QgaXNpbnN0YW5jZShlcnJvciwgTm9SZXNwb25zZUVycm9yKToKICAgICAgICAgICAg
ICAgIHJhaXNlCiAgICAgICAgICAgIHRhbGsubGluay5jbG9zZSgpCiAgICAgICAgICAgIHNsb3cu
YXBwZW5kKHN0ZXAubmFtZSkKICAgIGlmIHNsb3c6CiAgICAgICAgd2h5ID0gIml0IHJlc3BvbmRz
IHRvIG90aGVyIGNsaWVudHMiIGlmIHRhbGsub3RoZXJzIGVsc2UgZiJpdCB3cml0ZXMge3RhbGsu
d3JpdGVzOi4xZn0gdG9rZW5zL3MiCiAgICAgICAgcHJvZ3Jlc3MoZiJub3QgdHJpZWQsIHNpbmNl
IHt3aHl9OiB7JywgJy5qb2luKHNsb3cpfSIpCgoKZGVmIHByb2JlKHF1ZXN0aW9uOiBRdWVzdGlv
biwgc2Vjb25kczogZmxvYXQpIC0+IHR1cGxlW2ludCwgc3RyXToKICAgICIiIlJldHVybiBhbiBl
eGl0IGNvZGUgYW5kIGEgcmVhc29uLCBieSBhIHByb21wdCBhbmQgYSBzdHJlYW0sIG9yIGFuIGVt
YmVkZGluZywgd2l0aGluIHNvIG1hbnkgc2Vjb25kcy4iIiIKICAgIGRlYWRsaW5lID0gdGltZS5t
b25vdG9uaWMoKSArIHNlY29uZHMKICAgIHRhbGsgPSBUYWxrKHF1ZXN0aW9uLCBkZWFkbGluZSwg
TGluayhxdWVzdGlvbi51cmwsIGRlYWRsaW5lKSwgb3RoZXJzPVRydWUpCiAgICB0cnk6CiAgICAg
ICAgaWYgcXVlc3Rpb24ua2luZCBpbiBQUk9WRVM6CiAgICAgICAgICAgIFBST1ZFU1txdWVzdGlv
bi5raW5kXS5ydW4odGFsaykKICAgICAgICBlbHNlOgogICAgICAgICAgICBzZWVzX3RleHQodGFs
aywgImEgcHJvbXB0IikKICAgICAgICAgICAgdHJ5X3N0cmVhbSh0YWxrKQogICAgZXhjZXB0IEZh
aWxlZEVycm9yIGFzIGVycm9yOgogICAgICAgIHJldHVybiAoMyBpZiBpc2luc3RhbmNlKGVycm9y
LCBOb1Jlc3BvbnNlRXJyb3IpIGVsc2UgMSksIHN0cihlcnJvcikKICAgIHJldHVybiAwLCAiIgoK
CiMgQWZ0ZXIgYSBzd2l0Y2guCgoKZGVmIG1haW4ocGF0aDogc3RyLCByZWNvcmQ6IHN0ciwgb3V0
OiBzdHIsIGhvdzogc3RyLCAqcGlkczogc3RyKSAtPiB0dXBsZVtpbnQsIHN0cl06CiAgICAiIiJS
ZXR1cm4gYW4gZXhpdCBjb2RlIGFuZCBhIHJlYXNvbi4KCiAgICBgcmVjb3JkYDogdGhlIHNwZWVk
cyB0aGF0IGFyZSBrbm93bjsgYG91dGA6IHdoZXJlIHRoZXkgZ28gd2l0aCB0aGlzIG9uZS4KICAg
IGBob3dgOiBganVkZ2VgIGZvciBvbmUgdGhhdCBtYXkgYmUgdGFrZW4gYmFjayBmb3IgaXRzIHNw
ZWVkLCBgYW55YCB3aGVyZSBhbnkgc3BlZWQgd2lsbCBkbyBmcm9tIG5vdyBvbiwgYGJhY2tgIGZv
cgogICAgb25lIHRoYXQgd2FzIHB1dCBiYWNrLCBgYmVzaWRlYCBmb3Igb25lIHRoYXQgaXMgdHJp
ZWQgc2lkZSBieSBzaWRlLCBhbmQgbm90aGluZyBmb3Igb25lIHRoYXQgaXMgc3RhcnRlZCBhcyBi
ZWZvcmUuCiAgICBgcGlkc2AgYXJlIGl0cyBwcm9jZXNzZXMuIFdoYXQgd2FzIHB1dCBiYWNrLCBv
ciBwcm92ZWQgc2lkZSBieSBzaWRlIGEgbW9tZW50IGFnbyAoUFJPVkVEKSwgaXMgcHJvdmVkIGlu
IHNob3J0LgogICAgIiIiCiAgICBxdWVzdGlvbiA9IHJlYWRfcXVlc3Rpb24ocGF0aCwgcGlkcykK
ICAgIGxpbWl0ID0gRklSU1RfU0VDT05EUwogICAgaWYgKHJlc3QgOj0gb3MuZW52aXJvbi5nZXQo
IkxFRlQiLCAiIikpLmlzZGVjaW1hbCgpOgogICAgICAgIGxpbWl0ID0gbWF4KGxpbWl0LCBpbnQo
cmVzdCkpCiAgICBmaXJzdF9lbmQgPSB0aW1lLm1vbm90b25pYygpICsgbWluKGxpbWl0LCBxdWVz
dGlvbi5zZWNvbmRzKQogICAgZGVhZGxpbmUgPSBmaXJzdF9lbmQgKyBMQVRFUl9TRUNPTkRTCiAg
ICB0YWxrID0gVGFsayhxdWVzdGlvbiwgZmlyc3RfZW5kLCBMaW5rKHF1ZXN0aW9uLnVybCwgZmly
c3RfZW5kKSkKICAgIHNob3J0ID0gaG93ID09ICJiYWNrIiBvciBib29sKG9zLmVudmlyb24uZ2V0
KCJQUk9WRUQiKSkKICAgIHRyeToKICAgICAgICBpZiBxdWVzdGlvbi5raW5kIGluIFBST1ZFUzoK
ICAgICAgICAgICAgdGFsay5kZWFkbGluZSA9IGZpcnN0X2VuZAogICAgICAgICAgICBQUk9WRVNb
cXVlc3Rpb24ua2luZF0ucnVuKHRhbGspCiAgICAgICAgICAgIHRhbGsuZGVhZGxpbmUgPSBkZWFk
bGluZQogICAgICAgICAgICBwcm92ZSh0YWxrLCAoKSBpZiBzaG9ydCBlbHNlICgqU1RFUFMsIExB
U1QpKQogICAgICAgICAgICByZXR1cm4gMCwgIiIKICAgICAgICBmaXJzdCA9IGFzayh0YWxrLCBm
aXJzdF9lbmQpCiAgICAgICAgdGFsay5kZWFkbGluZSA9IGRlYWRsaW5lCiAgICAgICAgdGFsay5i
ZWdhbiA9IHRpbWUubW9ub3RvbmljKCkKICAgICAgICBpZiB3aHkgOj0gdW5kcmFmdGVkKHF1ZXN0
aW9uLCBmaXJzdCk6CiAgICAgICAgICAgIHJldHVybiAyLCB3aHkKICAgICAgICBpZiBzaG9ydDoK
ICAgICAgICAgICAgdGFsay5vdGhlcnMgPSBUcnVlCiAgICAgICAgICAgIHRyeV9zdHJlYW0odGFs
aykKICAgICAgICBlbHNlOgogICAgICAgICAgICBwcm92ZSh0YWxrLCAoKlNURVBTLCAqQ0hBVF9T
VEVQUywgTEFTVCkpCiAgICAgICAga25vd24gPSBzcGVlZHMocmVjb3JkKQogICAgICAgIGlmIGhv
dyA9PSAiYmVzaWRlIjoKICAgICAgICAgICAgcmV0dXJuIDAsICIiCiAgICAgICAgaWYgaG93ID09
ICJiYWNrIjoKICAgICAgICAgICAgcHV0X2JhY2sodGFsaywgZmlyc3QsIGtub3duLCBQYXRoKG91
dCkpCiAgICAgICAgICAgIHJldHVybiAwLCAiIgogICAgICAgIHJldHVybiBqdWRnZWQodGFsaywg
Zmlyc3QsIGtub3duLCBQYXRoKG91dCksIGhvdykKICAgIGV4Y2VwdCBGYWlsZWRFcnJvciBhcyBl
cnJvcjoKICAgICAgICByZXR1cm4gMSwgc3RyKGVycm9yKQoKCmRlZiBqdWRnZWQodGFsazogVGFs
aywgZmlyc3Q6IEFuc3dlciwga25vd246IFNwZWVkcywgb3V0OiBQYXRoLCBob3c6IHN0cikgLT4g
dHVwbGVbaW50LCBzdHJdOgogICAgcXVlc3Rpb24gPSB0YWxrLnF1ZXN0aW9uCiAgICBmbG9vciwg
YmVmb3JlID0gcXVlc3Rpb24uZmxvb3IsIHVzdWFsKHF1ZXN0aW9uLCBrbm93bikKICAgIGlmIGhv
dyA9PSAiYW55IiBhbmQgbm90IGZsb29yIGFuZCAodGhlbiA6PSBvd25fc3BlZWRzKHF1ZXN0aW9u
LCBrbm93bikpOgogICAgICAgIGtlZXAoWypvdGhlcnMocXVlc3Rpb24sIGtub3duKSwgKnRoZW5d
LCBvdXQpCiAgICAgICAgcmV0dXJuIDAsICIiCiAgICBiZXN0LCBhbG9uZSA9IG1lYXN1cmVkKHRh
bGssIGZpcnN0LCBmbG9vciBvciAoRkxPT1IgKiBiZWZvcmUgaWYgaG93ID09ICJqdWRnZSIgZWxz
ZSAwKSkKICAgIGlmIChkZWNsYXJlZCA6PSBtYXgoYmVzdCwgZmlyc3QucmF0ZSkpIDwgZmxvb3I6
CiAgICAgICAgcmV0dXJuIDIsIGYiaXQgZGVjb2RlcyB7ZGVjbGFyZWQ6LjFmfSB0b2tlbnMvcywg
YW5kIGBleHBlY3RgIGFsbG93cyBubyBsZXNzIHRoYW4ge2Zsb29yOmd9IgogICAgaWYgbm90IGFs
b25lIG9yIG5vdCBiZXN0IG9yIG5vdCBxdWVzdGlvbi5zYW1lOgogICAgICAgIHJldHVybiAwLCAi
IgogICAgc2xvdyA9IGJlc3QgPCBGTE9PUiAqIGJlZm9yZQogICAgaWYgc2xvdyBhbmQgaG93ID09
ICJqdWRnZSIgYW5kIG5vdCBmbG9vcjoKICAgICAgICBQYXRoKGYie291dH0uc2xvdyIpLndyaXRl
X3RleHQoc3RyKGJlc3QpLCBlbmNvZGluZz0idXRmLTgiKQogICAgICAgIHdoeSA9IGYiaXQgZGVj
b2RlcyB7YmVzdDouMWZ9IHRva2Vucy9zLCBhbmQgdGhlIHNhbWUgbW9kZWwgZGVjb2RlZCB7YmVm
b3JlOi4xZn0gaGVyZSBiZWZvcmUiCiAgICAgICAgcmV0dXJuIDIsIHdoeSArICI6IGBleHBlY3Q6
IHtkZWNvZGU6ICIgKyBmInttYXgoYmVzdCwgMC4xKTouMWZ9IiArICJ9YCBvciBgaGVyZCB1cCAt
LXJldHJ5YCBoYXMgaXQgc28iCiAgICBpZiBmbG9vciBvciBob3cgPT0gImFueSIgb3Igbm90IHNs
b3c6CiAgICAgICAgd3JpdGUocXVlc3Rpb24sIG90aGVycyhxdWVzdGlvbiwga25vd24pIGlmIHNs
b3cgZWxzZSBrbm93biwgYmVzdCwgb3V0KQogICAgcmV0dXJuIDAsICIiCgoKZGVmIHB1dF9iYWNr
KHRhbGs6IFRhbGssIGZpcnN0OiBBbnN3ZXIsIGtub3duOiBTcGVlZHMsIG91dDogUGF0aCkgLT4g
Tm9uZToKICAgICIiIldyaXRlIHdoYXQgaXMga25vd24gZnJvbSBub3cgb24sIHdoZXJlIHRoaXMg
b25lIGlzIGFzIHNsb3cgaXRzZWxmIGFzIHdoYXQgaXQgd2FzIHB1dCBiYWNrIGZvci4iIiIKICAg
IHNsb3cgPSBQYXRoKGYie291dH0uc2xvdyIpCiAgICBpZiB0YWxrLnF1ZXN0aW9uLnNhbWUgYW5k
IHNsb3cuZXhpc3RzKCk6CiAgICAgICAgb3RoZXIgPSBmbG9hdChzbG93LnJlYWRfdGV4dChlbmNv
ZGluZz0idXRmLTgiKSkKICAgICAgICBiZXN0LCBhbG9uZSA9IG1lYXN1cmVkKHRhbGssIGZpcnN0
LCBvdGhlciAvIEZMT09SICogMS4wMDEpCiAgICAgICAgaWYgYWxvbmUgYW5kIDAgPCBiZXN0ICog
RkxPT1IgPD0gb3RoZXI6CiAgICAgICAgICAgIHdyaXRlKHRhbGsucXVlc3Rpb24sIG90aGVycyh0
YWxrLnF1ZXN0aW9uLCBrbm93biksIGJlc3QsIG91dCkKCgpkZWYgbWVhc3VyZWQodGFsazogVGFs
aywgZmlyc3Q6IEFuc3dlciwgZW5vdWdoOiBmbG9hdCkgLT4gdHVwbGVbZmxvYXQsIGJvb2xdOgog
ICAgIiIiUmV0dXJuIHRoZSBiZXN0IG9mIGEgZmV3IHRyaWVzLCAwIHdoZXJlIG5vIHNwZWVkIGlz
IHRvbGQsIGFuZCB3aGV0aGVyIGl0IHJlc3BvbmRlZCB0byBub2JvZHkgZWxzZSB0aGVuLiIiIgog
ICAgYmVzdCA9IGZpcnN0LnJhdGUgaWYgZmlyc3QuY291bnRzIGFuZCBmaXJzdC50b2tlbnMgPiBU
T0tFTlMgZWxzZSAwLjAKICAgIGFsb25lID0gbm90IGluX2ZsaWdodCh0YWxrLnF1ZXN0aW9uKQog
ICAgbW9zdCA9IG1heChUT0tFTlMsIG1pbihNT1NUX1RPS0VOUywgaW50KGZpcnN0LnJhdGUgKiBT
RUNPTkRTKSkpCiAgICBmb3IgXyBpbiByYW5nZSgoVFJJRVMgaWYgZW5vdWdoIGVsc2UgMSkgaWYg
Zmlyc3QucmF0ZSBlbHNlIDApOgogICAgICAgIGlmIG5vdCBhbG9uZSBvciAoYmVzdCBhbmQgYmVz
dCA+PSBlbm91Z2gpOgogICAgICAgICAgICBicmVhawogICAgICAgIHRhbGsub3RoZXJzID0gRmFs
c2UKICAgICAgICBzYWlkID0gYXNrKHRhbGssIHRhbGsubGltaXQobW9zdCksIG1vc3QpCiAgICAg
ICAgYWxvbmUgPSBub3QgaW5fZmxpZ2h0KHRhbGsucXVlc3Rpb24pCiAgICAgICAgYmVzdCA9IG1h
eChiZXN0LCBzYWlkLnJhdGUgaWYgc2FpZC5jb3VudHMgZWxzZSAwKQogICAgcmV0dXJuIGJlc3Qs
IGFsb25lCgoKZGVmIGFzayh0YWxrOiBUYWxrLCBkZWFkbGluZTogZmxvYXQsIHRva2VuczogaW50
ID0gMCkgLT4gQW5zd2VyOgogICAgIiIiUmV0dXJuIHdoYXQgaXMgbWVhc3VyZWQgb2YgdGhlIHBy
b21wdCwgb2Ygd2hpY2ggYSBwZXJzb24gY2FuIHNlZSBzb21ldGhpbmcuIiIiCiAgICBxdWVzdGlv
biwgYXNrZWQgPSB0YWxrLnF1ZXN0aW9uLCAiYSBwcm9tcHQiCiAgICBib2R5ID0gcXVlc3Rpb24u
Ym9keSB8ICh7Im1heF90b2tlbnMiOiB0b2tlbnN9IGlmIHRva2VucyBlbHNlIHt9KQogICAgdGFs
ay5saW5rLnVudGlsKGRlYWRsaW5lKQogICAgYmVmb3JlID0gY29tcHV0ZWQocXVlc3Rpb24ucGlk
cykKICAgIHJlcGx5ID0gYWNjZXB0ZWQocmVxdWVzdCh0YWxrLmxpbmssIHF1ZXN0aW9uLCBhc2tl
ZCwgcXVlc3Rpb24ucGF0aCwgYm9keSksIGFza2VkKQogICAgYWZ0ZXIgPSBjb21wdXRlZChxdWVz
dGlvbi5waWRzKQogICAgc2FpZCA9IHBhcnNlZChyZXBseS5ib2R5LCBhc2tlZCwgTk9fQ0hBVCkK
ICAgIGZvdW5kID0gY29tcGxldGlvbihzYWlkLCBib2R5LCBxdWVzdGlvbiwgYXNrZWQpCiAgICB0
YWxrLmxlYXJuKGJvZHksIHNhaWQsIHJlcGx5LnNlY29uZHMpCiAgICBpZiBub3QgdG9rZW5zOgog
ICAgICAgIHNlZW4odGFsaywgYXNrZWQsIGZvdW5kLCB0YWxrLmFzaykKICAgIHRyeToKICAgICAg
ICByZXR1cm4gdGltZWQoc2FpZC5nZXQoInRpbWluZ3MiLCB7fSksIGNyb3dkZWQoYmVmb3JlLCBh
ZnRlcikpCiAgICBleGNlcHQgKFZhbHVlRXJyb3IsIExvb2t1cEVycm9yLCBUeXBlRXJyb3IsIEF0
dHJpYnV0ZUVycm9yLCBPdmVyZmxvd0Vycm9yKToKICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihm
Inthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCB7Tk9fQ0hBVH0iKSBmcm9tIE5vbmUKCgpkZWYgdGlt
ZWQoc2FpZDogTWFwcGluZ1tzdHIsIEFueV0sIGNyb3dkZWQ6IGJvb2wpIC0+IEFuc3dlcjoKICAg
ICIiIlRoZSBmaXJzdCB0b2tlbiBjb21lcyB3aXRoIHRoZSBwcm9tcHQ6IG9mIHRob3NlIGFmdGVy
IGl0LCBlbmdpbmVzIGNvdW50IG9uZSBtb3JlIG9yIGxlc3MgaW4gdGhlIHNhbWUgdGltZS4iIiIK
ICAgIGNvdW50LCBzZWNvbmRzID0gaW50KHNhaWQuZ2V0KCJwcmVkaWN0ZWRfbiIsIDApKSwgZmxv
YXQoc2FpZC5nZXQoInByZWRpY3RlZF9tcyIsIDApKSAvIDEwMDAKICAgIGRyYWZ0ZWQsIGFjY2Vw
dGVkID0gaW50KHNhaWQuZ2V0KCJkcmFmdF9uIiwgMCkpLCBpbnQoc2FpZC5nZXQoImRyYWZ0X25f
YWNjZXB0ZWQiLCAwKSkKICAgIHJhdGUgPSAoY291bnQgLSAxKSAvIHNlY29uZHMgaWYgc2Vjb25k
cyA+IDAgYW5kIGNvdW50ID4gMSBlbHNlIDAuMAogICAgcmV0dXJuIEFuc3dlcihjb3VudCwgZHJh
ZnRlZCwgYWNjZXB0ZWQsIHJhdGUsIGNvdW50ID49IFRPS0VOUyBhbmQgc2Vjb25kcyA+PSBMRUFT
VF9TRUNPTkRTIGFuZCBub3QgY3Jvd2RlZCkKCgpkZWYgY29tcHV0ZWQocGlkczogSXRlcmFibGVb
c3RyXSkgLT4gdHVwbGVbaW50LCBpbnRdOgogICAgIiIiSG93IGxvbmcgYWxsIHByb2Nlc3NvcnMg
aGF2ZSBiZWVuIHRoZXJlLCBhbmQgaG93IGxvbmcgdGhleSBoYXZlIGNvbXB1dGVkIGZvciBvdGhl
cnMsIGluIHRoZSBrZXJuZWwncyB0aWNrcy4iIiIKICAgIHRyeToKICAgICAgICB3aXRoIFBhdGgo
Ii9wcm9jL3N0YXQiKS5vcGVuKGVuY29kaW5nPSJ1dGYtOCIpIGFzIHN0YXQ6CiAgICAgICAgICAg
IHVzZXIsIG5pY2UsIHN5c3RlbSwgaWRsZSwgd2FpdGluZywgKm1vcmUgPSBtYXAoaW50LCBzdGF0
LnJlYWRsaW5lKCkuc3BsaXQoKVsxOjldKQogICAgZXhjZXB0IChPU0Vycm9yLCBWYWx1ZUVycm9y
KToKICAgICAgICByZXR1cm4gMCwgMAogICAgYnVzeSA9IHVzZXIgKyBuaWNlICsgc3lzdGVtICsg
c3VtKG1vcmUpCiAgICByZXR1cm4gYnVzeSArIGlkbGUgKyB3YWl0aW5nLCBidXN5IC0gc3VtKG1h
cChvd24sIHBpZHMpKQoKCmRlZiBvd24ocGlkOiBzdHIpIC0+IGludDoKICAgIHdpdGggc3VwcHJl
c3MoT1NFcnJvciwgVmFsdWVFcnJvciwgSW5kZXhFcnJvcik6CiAgICAgICAgZmllbGRzID0gUGF0
aCgiL3Byb2MiLCBwaWQsICJzdGF0IikucmVhZF90ZXh0KGVuY29kaW5nPSJ1dGYtOCIpLnJwYXJ0
aXRpb24oIikiKVsyXS5zcGxpdCgpCiAgICAgICAgcmV0dXJuIGludChmaWVsZHNbMTFdKSArIGlu
dChmaWVsZHNbMTJdKQogICAgcmV0dXJuIDAKCgpkZWYgY3Jvd2RlZChiZWZvcmU6IHR1cGxlW2lu
dCwgaW50XSwgYWZ0ZXI6IHR1cGxlW2ludCwgaW50XSkgLT4gYm9vbDoKICAgIHJldHVybiBhZnRl
clsxXSAtIGJlZm9yZVsxXSA+IENST1dERUQgKiAoYWZ0ZXJbMF0gLSBiZWZvcmVbMF0pCgoKZGVm
IGluX2ZsaWdodChxdWVzdGlvbjogUXVlc3Rpb24pIC0+IGJvb2w6CiAgICAiIiJXaGV0aGVyIGl0
IHJlc3BvbmRzIHRvIG90aGVycywgb3Igd2hhdCB3YXMgdHJpZWQgYmVzaWRlIGl0IGRvZXMsIG9u
IHRoZSBzYW1lIEdQVSBpdCBtYXkgYmUuIiIiCiAgICBiZXNpZGUgPSBvcy5lbnZpcm9uLmdldCgi
QkVTSURFIikKICAgIHJldHVybiBidXN5KHF1ZXN0aW9uKSBvciBib29sKGJlc2lkZSBhbmQgYnVz
eShyZWFkX3F1ZXN0aW9uKGJlc2lkZSwgKCkpKSkKCgpkZWYgYnVzeShxdWVzdGlvbjogUXVlc3Rp
b24pIC0+IGJvb2w6CiAgICByZXR1cm4gYW55KGJ1c3lfYXQodXJsLCBxdWVzdGlvbikgZm9yIHVy
bCBpbiBxdWVzdGlvbi5tZXRyaWNzKQoKCmRlZiBzdGF5c19idXN5KHF1ZXN0aW9uOiBRdWVzdGlv
biwgc2Vjb25kczogZmxvYXQpIC0+IGJvb2w6CiAgICAiIiJSZXR1cm4gd2hldGhlciByZXF1ZXN0
cyBvZiBvdGhlcnMgYXJlIGluIGZsaWdodDogYSBzZXJ2ZXIgbWF5IGNvdW50IG9uZSBvZiBvdXJz
IGZvciBhIG1vbWVudCBhZnRlciBpdHMgZW5kLiIiIgogICAgZW5kID0gdGltZS5tb25vdG9uaWMo
KSArIHNlY29uZHMKICAgIHdoaWxlIGJ1c3kocXVlc3Rpb24pOgogICAgICAgIGlmIHRpbWUubW9u
b3RvbmljKCkgPiBlbmQ6CiAgICAgICAgICAgIHJldHVybiBUcnVlCiAgICAgICAgdGltZS5zbGVl
cCgwLjAyKQogICAgcmV0dXJuIEZhbHNlCgoKZGVmIGJ1c3lfYXQodXJsOiBzdHIsIHF1ZXN0aW9u
OiBRdWVzdGlvbikgLT4gYm9vbDoKICAgICIiIldoZXRoZXIgcmVxdWVzdHMgYXJlIGluIGZsaWdo
dCwgYXMgZmFyIGFzIGl0IHRlbGxzOyBvbmUgdGhhdCBpcyB0b28gYnVzeSB0byB0ZWxsIGhhcyBz
b21lLiIiIgogICAgcGFydHMgPSB1cmxzcGxpdCh1cmwpCiAgICBsaW5rID0gTGluayh1cmwsIHRp
bWUubW9ub3RvbmljKCkgKyAyKQogICAgdHJ5OgogICAgICAgIHJlcGx5ID0gYmVnaW4obGluaywg
cXVlc3Rpb24sIGYie3BhcnRzLnBhdGh9P3twYXJ0cy5xdWVyeX0iIGlmIHBhcnRzLnF1ZXJ5IGVs
c2UgcGFydHMucGF0aCwgTm9uZSkKICAgICAgICBzYWlkID0gcmVwbHkucmVhZChMQVJHRVNUKS5k
ZWNvZGUoZXJyb3JzPSJyZXBsYWNlIikKICAgICAgICBsaW5rLmNsb3NlKCkKICAgIGV4Y2VwdCBU
aW1lb3V0RXJyb3I6CiAgICAgICAgcmV0dXJuIFRydWUKICAgIGV4Y2VwdCAoT1NFcnJvciwgaHR0
cC5jbGllbnQuSFRUUEV4Y2VwdGlvbik6CiAgICAgICAgcmV0dXJuIEZhbHNlCiAgICByZXR1cm4g
YW55KGZsb2F0KGVhY2gpIGZvciBlYWNoIGluIEJVU1kuZmluZGFsbChzYWlkKSkKCgpkZWYgdW5k
cmFmdGVkKHF1ZXN0aW9uOiBRdWVzdGlvbiwgc2FpZDogQW5zd2VyKSAtPiBzdHI6CiAgICBpZiBx
dWVzdGlvbi5kcmFmdHMgYW5kIG5vdCBzYWlkLmRyYWZ0ZWQ6CiAgICAgICAgcmV0dXJuICJubyB0
b2tlbiB3YXMgZHJhZnRlZCwgdGhvdWdoIGRyYWZ0aW5nIGlzIGRlY2xhcmVkIgogICAgaWYgcXVl
c3Rpb24uZHJhZnRzIGFuZCBzYWlkLmRyYWZ0ZWQgPj0gcXVlc3Rpb24uZHJhZnRzIGFuZCBub3Qg
c2FpZC5hY2NlcHRlZDoKICAgICAgICByZXR1cm4gZiJub25lIG9mIHtzYWlkLmRyYWZ0ZWR9IGRy
YWZ0ZWQgdG9rZW5zIHdhcyBhY2NlcHRlZDogd2hhdCBkcmFmdHMgZG9lcyBub3QgZml0IHRoZSBt
b2RlbCIKICAgIHJldHVybiAiIgoKCmRlZiBzcGVlZHMocmVjb3JkOiBzdHIpIC0+IFNwZWVkczoK
ICAgICIiIlRob3NlIHRoYXQgYXJlIGtub3duLCB0aGUgbmV3ZXN0IGxhc3QuIiIiCiAgICB3aXRo
IHN1cHByZXNzKE9TRXJyb3IsIFZhbHVlRXJyb3IpOgogICAgICAgIHJldHVybiBsaXN0KGpzb24u
bG9hZHMoUGF0aChyZWNvcmQpLnJlYWRfdGV4dChlbmNvZGluZz0idXRmLTgiKSkpCiAgICByZXR1
cm4gW10KCgpkZWYgdXN1YWwocXVlc3Rpb246IFF1ZXN0aW9uLCBrbm93bjogU3BlZWRzKSAtPiBm
bG9hdDoKICAgICIiIldoYXQgdGhlIHNhbWUgbW9kZWwgZGVjb2RlZCBvbiB0aGUgc2FtZSBHUFVz
OyBvbmUgdGhhdCBkb2VzIG5vdCBkcmFmdCBpcyBub3QgaGVsZCB0byBvbmUgdGhhdCBkaWQuIiIi
CiAgICBhbGlrZSA9IFtlYWNoIGZvciBlYWNoIGluIGtub3duIGlmIGVhY2hbInNhbWUiXSA9PSBx
dWVzdGlvbi5zYW1lIGFuZCBlYWNoWyJkcmFmdHMiXSA8PSBib29sKHF1ZXN0aW9uLmRyYWZ0cyld
CiAgICByZXR1cm4gc3RhdGlzdGljcy5tZWRpYW5fbG93KGVhY2hbInJhdGUiXSBmb3IgZWFjaCBp
biBhbGlrZVstUkVDRU5UOl0pIGlmIGFsaWtlIGVsc2UgMC4wCgoKZGVmIG90aGVycyhxdWVzdGlv
bjogUXVlc3Rpb24sIGtub3duOiBTcGVlZHMpIC0+IFNwZWVkczoKICAgICIiIlNwZWVkcyBvZiBv
dGhlciBtb2RlbHM6IHdoYXQgd2FzIGtub3duIG9mIHRoaXMgb25lIGlzIHNvIG5vIG1vcmUuIiIi
CiAgICByZXR1cm4gW2VhY2ggZm9yIGVhY2ggaW4ga25vd24gaWYgZWFjaFsic2FtZSJdICE9IHF1
ZXN0aW9uLnNhbWVdCgoKZGVmIG93bl9zcGVlZHMocXVlc3Rpb246IFF1ZXN0aW9uLCBrbm93bjog
U3BlZWRzKSAtPiBTcGVlZHM6CiAgICAiIiJXaGF0IHRoZSB2ZXJ5IHNhbWUgc2VydmVyIGRlY29k
ZWQgaGVyZSwgaWYgaXQgd2FzIG1lYXN1cmVkLiIiIgogICAgYWxpa2UgPSAoZWFjaCBmb3IgZWFj
aCBpbiBrbm93biBpZiBlYWNoWyJzYW1lIl0gPT0gcXVlc3Rpb24uc2FtZSBhbmQgZWFjaFsiZHJh
ZnRzIl0gPT0gYm9vbChxdWVzdGlvbi5kcmFmdHMpKQogICAgcmV0dXJuIFtlYWNoIGZvciBlYWNo
IGluIGFsaWtlIGlmIHF1ZXN0aW9uLnNwZWMgaXMgbm90IE5vbmUgYW5kIGVhY2guZ2V0KCJzcGVj
IikgPT0gcXVlc3Rpb24uc3BlY10KCgpkZWYgd3JpdGUocXVlc3Rpb246IFF1ZXN0aW9uLCBrbm93
bjogU3BlZWRzLCBiZXN0OiBmbG9hdCwgb3V0OiBQYXRoKSAtPiBOb25lOgogICAgb25lID0geyJz
YW1lIjogcXVlc3Rpb24uc2FtZSwgInNwZWMiOiBxdWVzdGlvbi5zcGVjLCAiZHJhZnRzIjogYm9v
bChxdWVzdGlvbi5kcmFmdHMpLCAicmF0ZSI6IHJvdW5kKGJlc3QsIDMpfQogICAga2VlcChbKmtu
b3duLCBvbmVdLCBvdXQpCgoKZGVmIGtlZXAoa25vd246IFNwZWVkcywgb3V0OiBQYXRoKSAtPiBO
b25lOgogICAgb3V0LndyaXRlX3RleHQoanNvbi5kdW1wcyhrbm93blstTU9TVDpdKSwgZW5jb2Rp
bmc9InV0Zi04IikKCgpkZWYgcnVuKGFyZ3VtZW50czogU2VxdWVuY2Vbc3RyXSkgLT4gdHVwbGVb
aW50LCBzdHJdOgogICAgIiIiUmV0dXJuIGFuIGV4aXQgY29kZSwgYW5kIHdoYXQgdG8gcHJpbnQu
IiIiCiAgICBpZiBhcmd1bWVudHNbMF0gPT0gIi0tc2hvcnQiOgogICAgICAgIHJldHVybiBwcm9i
ZShyZWFkX3F1ZXN0aW9uKGFyZ3VtZW50c1syXSwgKCkpLCBmbG9hdChhcmd1bWVudHNbMV0pKQog
ICAgcmV0dXJuIG1haW4oKmFyZ3VtZW50cykKCgpjb2RlLCB3aHkgPSBydW4oc3lzLmFyZ3ZbMTpd
KQpzeXMuc3Rkb3V0LndyaXRlKHdoeSkKc3lzLmV4aXQoY29kZSBpZiB3aHkgZWxzZSAwKQpFTkQK
fQojICQxIGlzIHdobywgJDIgd2hhdCBpcyBrZXB0IG9mIGl0LCAkMyB3aGF0IGZvcmdldHMgaXQg
YXMgaXQgd2FzIHRvIGJlOiBvZiBvbmUgdGhhdCBtb3ZlcyBiZXR3ZWVuIHVuaXQgYW5kIGNvbnRh
aW5lci4KZmlsZXNfYmFjaygpIHsKICAgICMgV2hhdCB3YXMgdHJpZWQgaXMgbm90IGtlcHQuCiAg
ICBybSAtZiAiJDIvbmV4dCIKICAgIGZvciBlYWNoIGluICIkMiIvKjsgZG8gWyAtTCAiJGVhY2gi
IF0gfHwgWyAhIC1kICIkZWFjaCIgXSB8fCBbICIkZWFjaCIgLWVmICIkMi9sYXN0IiBdIHx8IFsg
IiRlYWNoIiAtZWYgIiQyL2JlZm9yZSIgXSB8fCBybSAtcmYgIiRlYWNoIjsgZG9uZQogICAgaWYg
WyAhIC1mICIkMi9sYXN0L2hvdyIgXTsgdGhlbgogICAgICAgICMgSXQgbmV2ZXIgc2VydmVkLgog
ICAgICAgIHN5c3RlbWN0bCAtcSBkaXNhYmxlICIkMS5zZXJ2aWNlIiAyPi9kZXYvbnVsbAogICAg
ICAgIHN5c3RlbWN0bCByZXNldC1mYWlsZWQgIiQxLnNlcnZpY2UiIDI+L2Rldi9udWxsCiAgICAg
ICAgcmV0dXJuIDAKICAgIGZpCiAgICAuICIkMi9sYXN0L2hvdyIKICAgICIkMyIgIiR3YXNfa2lu
ZCIKICAgIHB1dF9iYWNrICIkMi9sYXN0L2ZpbGUiICIkd2FzX2ZpbGUiICYmIHB1dF9iYWNrICIk
Mi9sYXN0L2tleSIgIiR3YXNfa2V5Igp9CnN0YXJ0X2JlZm9yZSgpIHsKICAgIGlmIFsgIiR3YXNf
a2luZCIgPSB1bml0IF07IHRoZW4KICAgICAgICBzeXN0ZW1jdGwgLXEgLS1uby1yZWxvYWQgZW5h
YmxlICIkMS5zZXJ2aWNlIiAmJiBzeXN0ZW1jdGwgZGFlbW9uLXJlbG9hZCB8fCByZXR1cm4gMQog
ICAgICAgIHN5c3RlbWN0bCByZXNldC1mYWlsZWQgIiQxLnNlcnZpY2UiIDI+L2Rldi9udWxsCiAg
ICAgICAgc3lzdGVtY3RsIHN0YXJ0ICIkMS5zZXJ2aWNlIiAyPi9kZXYvbnVsbAogICAgZWxzZQog
ICAgICAgIGRvY2tlciBjb21wb3NlIC0tcHJvZ3Jlc3MgcGxhaW4gLWYgIiR3YXNfZmlsZSIgdXAg
LWQgLS1mb3JjZS1yZWNyZWF0ZSAtLXJlbW92ZS1vcnBoYW5zIC0td2FpdCAtLXdhaXQtdGltZW91
dCAiJHdhc19zZWNvbmRzIiA+L3J1bi9sbGFtYWhlcmQtY29tcG9zZS5sb2cgMj4mMSB8fCByZXR1
cm4gMQogICAgICAgIGV2YWwgInNldCAtLSBcIlwkMVwiICR3YXNfaW5wdXRzIgogICAgICAgIC9v
cHQvbGxhbWFoZXJkL2xpYmV4ZWMvc3RhcnRlZCByZWNvcmQgY29udGFpbmVyICIkQCIKICAgIGZp
Cn0Kc2VydmVfYmVmb3JlKCkgewogICAgWyAtZiAiJDIvbGFzdC9ob3ciIF0gJiYgISBhc19iZWZv
cmUgIiQxIiAiJDIiIHx8IHJldHVybiAwCiAgICAuICIkMi9sYXN0L2hvdyIKICAgIGJlZ2FuPSQo
ZGF0ZSArJXMpIHdoeT0nJwogICAgaWYgc3RhcnRfYmVmb3JlICIkMSIgJiYgeyBbICEgLWYgIiQy
L2xhc3QvYXNrZWQiIF0gfHwgd2h5PSQocHJvdmVkICIkMiIgIiQxIikgfHwgWyAkPyA9IDIgXTsg
fTsgdGhlbgogICAgICAgIHJtIC1mICIkMi91bnRyaWVkIgogICAgICAgIGVjaG8gIiQxIHNlcnZl
cyBhZ2FpbiBhcyBiZWZvcmUsIHNwZWMgJHdhc19zcGVjLCBhZnRlciAkKCgkKGRhdGUgKyVzKSAt
IGJlZ2FuKSkgcyIKICAgIGVsc2UKICAgICAgICBsb3N0PSIkbG9zdCAkMSIKICAgICAgICBwcmlu
dGYgJyVzXG4nICIkMSB3YXMgcHV0IGJhY2sgdG8gd2hhdCBzZXJ2ZWQgYmVmb3JlLCBzcGVjICR3
YXNfc3BlYywgYW5kIHRoYXQgZG9lcyBub3QgY29tZSB1cCBlaXRoZXI6ICR7d2h5Oi1pdCBkb2Vz
IG5vdCBzdGFydH0iID4mMgogICAgZmkKfQppbnN0ZWFkPSdvbmUgb2YgbGxhbWEtY2hhdCwgbGxh
bWEtZHJhZnRlcicKIyAkMSBpcyB3aG8sICQyIHdoYXQgaXMga2VwdCBvZiBpdCwgJDMgaXRzIENv
bXBvc2UgZmlsZTsgJGluc3RlYWQgZG9lcyBub3Qgc2VydmUuCmNvbWVfYmFjaygpIHsKICAgIFsg
LWUgIiQyL2FzaWRlIiBdIHx8IHJldHVybiAwCiAgICBiYWNrPScnIGJlZ2FuPSQoZGF0ZSArJXMp
CiAgICBpZiBbIC1lICIvZXRjL3N5c3RlbWQvc3lzdGVtLyQxLnNlcnZpY2UiIF07IHRoZW4KICAg
ICAgICBzeXN0ZW1jdGwgcmVzZXQtZmFpbGVkICIkMS5zZXJ2aWNlIiAyPi9kZXYvbnVsbAogICAg
ICAgIHN5c3RlbWN0bCBzdGFydCAiJDEuc2VydmljZSIgMj4vZGV2L251bGwgJiYgYmFjaz15ZXMK
ICAgIGVsaWYgWyAtZSAiJDMiIF07IHRoZW4KICAgICAgICBkb2NrZXIgY29tcG9zZSAtLXByb2dy
ZXNzIHBsYWluIC1mICIkMyIgdXAgLWQgLS1uby1yZWNyZWF0ZSAtLXdhaXQgPi9ydW4vbGxhbWFo
ZXJkLWNvbXBvc2UubG9nIDI+JjEgJiYgYmFjaz15ZXMKICAgIGZpCiAgICBpZiBbICIkYmFjayIg
XTsgdGhlbgogICAgICAgIHJtIC1mICIkMi9hc2lkZSIKICAgICAgICBlY2hvICIkMSBzZXJ2ZXMg
YWdhaW4sIGFmdGVyICQoKCQoZGF0ZSArJXMpIC0gYmVnYW4pKSBzOiAkaW5zdGVhZCBkb2VzIG5v
dCBzZXJ2ZSBpbiBpdHMgcGxhY2UiID4mMgogICAgZWxzZQogICAgICAgIGVjaG8gIiQxIHdhcyBz
dGFydGVkIGFnYWluLCBhcyAkaW5zdGVhZCBkb2VzIG5vdCBzZXJ2ZSBpbiBpdHMgcGxhY2UsIGFu
ZCBkb2VzIG5vdCBjb21lIHVwIGVpdGhlciIgPiYyCiAgICBmaQp9CmZvcmdldF8xKCkgewogICAg
WyAiJDEiICE9IHVuaXQgXSB8fCByZXR1cm4gMAogICAgewpzeXN0ZW1jdGwgc3RvcCBsbGFtYWhl
cmQtYmVzaWRlLWNoYXQuc2VydmljZSAyPi9kZXYvbnVsbApzeXN0ZW1jdGwgZGlzYWJsZSAtcSAt
LW5vdyBsbGFtYS1jaGF0LnNlcnZpY2UKIyBUaGUgdW5pdCdzIGZpbGUgZ29lcyBhZnRlciBpdHMg
dXNlcjogYXMgbG9uZyBhcyBpdCBpcyB0aGVyZSwgdGhlIG5leHQgcnVuIGtub3dzIHRoYXQgdGhp
cyBvbmUgZGlkIG5vdCBlbmQuCiEgaWQgLXUgbGxhbWEtY2hhdCA+L2Rldi9udWxsIDI+JjEgfHwg
dXNlcmRlbCBsbGFtYS1jaGF0IHx8IGV4aXQgMQpybSAtZiAvZXRjL3N5c3RlbWQvc3lzdGVtL2xs
YW1hLWNoYXQuc2VydmljZSAvcnVuL2xsYW1haGVyZC9zdGFydGVkL2xsYW1hLWNoYXQKc3lzdGVt
Y3RsIGRhZW1vbi1yZWxvYWQKc3lzdGVtY3RsIHJlc2V0LWZhaWxlZCBsbGFtYS1jaGF0LnNlcnZp
Y2UgMj4vZGV2L251bGwKOgoKICAgIH0gPi9kZXYvbnVsbCAyPiYxCn0KZm9yZ2V0XzIoKSB7CiAg
ICBbICIkMSIgIT0gY29udGFpbmVyIF0gfHwgcmV0dXJuIDAKICAgIHsKc3lzdGVtY3RsIHN0b3Ag
bGxhbWFoZXJkLWJlc2lkZS1kcmFmdGVyLnNlcnZpY2UgMj4vZGV2L251bGwKZG9ja2VyIHN0b3Ag
bGxhbWEtZHJhZnRlciA+L2Rldi9udWxsIDI+JjEKZG9ja2VyIHJtIC1mIGxsYW1hLWRyYWZ0ZXIg
Pi9kZXYvbnVsbCAyPiYxCmRvY2tlciBuZXR3b3JrIHJtIGxsYW1hLWRyYWZ0ZXJfZGVmYXVsdCA+
L2Rldi9udWxsIDI+JjEKcm0gLXJmIC9ldGMvbGxhbWFoZXJkL2NvbXBvc2UvZHJhZnRlciAvdmFy
L2xpYi9sbGFtYWhlcmQvc3RhcnRlZC9sbGFtYS1kcmFmdGVyCjoKCiAgICB9ID4vZGV2L251bGwg
Mj4mMQp9CmVjaG8gJ3B1dHRpbmcgYmFjayB3aGF0IHNlcnZlZCBiZWZvcmU6IGxsYW1hLWNoYXQs
IGxsYW1hLWRyYWZ0ZXInCnN0b3AgbGxhbWEtY2hhdCAvdmFyL2xpYi9sbGFtYWhlcmQva2VwdC9s
bGFtYS1jaGF0CnN0b3AgbGxhbWEtZHJhZnRlciAvdmFyL2xpYi9sbGFtYWhlcmQva2VwdC9sbGFt
YS1kcmFmdGVyCmZpbGVzX2JhY2sgbGxhbWEtY2hhdCAvdmFyL2xpYi9sbGFtYWhlcmQva2VwdC9s
bGFtYS1jaGF0IGZvcmdldF8xIHx8IGxvc3Q9IiRsb3N0IGxsYW1hLWNoYXQiCmZpbGVzX2JhY2sg
bGxhbWEtZHJhZnRlciAvdmFyL2xpYi9sbGFtYWhlcmQva2VwdC9sbGFtYS1kcmFmdGVyIGZvcmdl
dF8yIHx8IGxvc3Q9IiRsb3N0IGxsYW1hLWRyYWZ0ZXIiCnN5c3RlbWN0bCBkYWVtb24tcmVsb2Fk
CiMgQ29ubmVjdGlvbnMgb2YgdGhlIHNlcnZlciB0aGF0IHdhcyBzdG9wcGVkIGtlZXAgaXRzIHBv
cnQgZnJvbSBvbmUgb2YgYW5vdGhlciBlbmdpbmUgb3IgdXNlciBmb3IgdXAgdG8gYSBtaW51dGU6
IGVhY2gKIyBlbmdpbmUgaGFzIGl0cyBvd24gd2F5IG9mIHNoYXJpbmcgYSBwb3J0LiBOb2JvZHkg
cmVhZHMgd2hhdCB0aGV5IHN0aWxsIGhvbGQuCnNzIC1LdG4gc3RhdGUgdGltZS13YWl0IHN0YXRl
IGZpbi13YWl0LTEgc3RhdGUgZmluLXdhaXQtMiBzdGF0ZSBjbG9zaW5nIHN0YXRlIGxhc3QtYWNr
IHNwb3J0ID0gOjgwODAgPi9kZXYvbnVsbCAyPiYxCiMgQ29ubmVjdGlvbnMgb2YgdGhlIHNlcnZl
ciB0aGF0IHdhcyBzdG9wcGVkIGtlZXAgaXRzIHBvcnQgZnJvbSBvbmUgb2YgYW5vdGhlciBlbmdp
bmUgb3IgdXNlciBmb3IgdXAgdG8gYSBtaW51dGU6IGVhY2gKIyBlbmdpbmUgaGFzIGl0cyBvd24g
d2F5IG9mIHNoYXJpbmcgYSBwb3J0LiBOb2JvZHkgcmVhZHMgd2hhdCB0aGV5IHN0aWxsIGhvbGQu
CnNzIC1LdG4gc3RhdGUgdGltZS13YWl0IHN0YXRlIGZpbi13YWl0LTEgc3RhdGUgZmluLXdhaXQt
MiBzdGF0ZSBjbG9zaW5nIHN0YXRlIGxhc3QtYWNrIHNwb3J0ID0gOjgwODEgPi9kZXYvbnVsbCAy
PiYxCnNlcnZlX2JlZm9yZSBsbGFtYS1jaGF0IC92YXIvbGliL2xsYW1haGVyZC9rZXB0L2xsYW1h
LWNoYXQKc2VydmVfYmVmb3JlIGxsYW1hLWRyYWZ0ZXIgL3Zhci9saWIvbGxhbWFoZXJkL2tlcHQv
bGxhbWEtZHJhZnRlcgpjb21lX2JhY2sgbGxhbWEtb2xkIC92YXIvbGliL2xsYW1haGVyZC9rZXB0
L2xsYW1hLW9sZCAvZXRjL2xsYW1haGVyZC9jb21wb3NlL29sZC9jb21wb3NlLnlhbWwKY29tZV9i
YWNrIGxsYW1hLWJveGVkIC92YXIvbGliL2xsYW1haGVyZC9rZXB0L2xsYW1hLWJveGVkIC9ldGMv
bGxhbWFoZXJkL2NvbXBvc2UvYm94ZWQvY29tcG9zZS55YW1sClsgLXogIiRmYWlsZWQiIF0gfHwg
ewogICAgd2h5PSQoY2F0ICIkZXhjaGFuZ2Uvd2h5IikKICAgIGlmIFsgLXogIiRsb3N0IiBdOyB0
aGVuCiAgICAgICAgcHJpbnRmICclc1xuJyAnbGxhbWEtY2hhdCwgbGxhbWEtZHJhZnRlciBzZXJ2
ZSBhcyBiZWZvcmUsIHNpbmNlIHRoZXkgY2hhbmdlIHRvZ2V0aGVyLCBhbmQgJyIkZmFpbGVkIGRv
ZXMgbm90IHNlcnZlIGFzIGRlY2xhcmVkOiAkd2h5IiA+JjIKICAgIGVsc2UKICAgICAgICBwcmlu
dGYgJyVzXG4nICIkZmFpbGVkIGRvZXMgbm90IHNlcnZlIGFzIGRlY2xhcmVkOiAkd2h5IiA+JjIK
ICAgIGZpCiAgICBlY2hvICIgIGhlbHA6IGNoYW5nZSB3aGF0IHRoZSBsaW5lcyBhYm92ZSBuYW1l
LCBvciBcYGhlcmQgdXAgLS1yZXRyeVxgIHRvIHRyeSB0aGUgc2FtZSBhZ2FpbiIgPiYyCn0KZW5k
X29mX2pvdXJuYWwKWyAteiAiJGxvc3QiIF0K
END
    echo 'cannot write the journal of llama-chat, llama-drafter to /var/lib/llamaherd/kept/.exchange, so they were left as they are' >&2
    echo "  help: \`df -h /var/lib/llamaherd/kept\` says whether there is room" >&2
    exit 1
}
# A probation that goes on would take what is tried from here on for what it watches.
systemctl stop llamaherd-probation-chat llamaherd-probation-drafter 2>/dev/null
stop_member llama-chat /var/lib/llamaherd/kept/llama-chat
stop_member llama-drafter /var/lib/llamaherd/kept/llama-drafter
switch_1 || not_together llama-chat
switch_2 || not_together llama-drafter
: >"$exchange/done" && sync "$exchange/done"
sh "$exchange/back"
