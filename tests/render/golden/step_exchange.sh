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
dFtzdHIsIEFueV0KU3BlZWRzID0gbGlzdFtKc29uXQoKCmNsYXNzIEZhaWxlZEVycm9yKEV4Y2Vw
dGlvbik6CiAgICAiIiJUaGUgc2VydmVyIGRvZXMgbm90IHNlcnZlOyBjb250YWlucyB0aGUgcmVh
c29uLiIiIgoKCmNsYXNzIE5vUmVzcG9uc2VFcnJvcihGYWlsZWRFcnJvcik6CiAgICAiIiJObyBy
ZXNwb25zZSBjb21lcyBpbiB0aW1lLiIiIgoKCmNsYXNzIExlZnRPdXRFcnJvcihFeGNlcHRpb24p
OgogICAgIiIiQSBzdGVwIGNhbm5vdCBiZSBkb25lOyBjb250YWlucyB0aGUgcmVhc29uLiIiIgoK
CkBkYXRhY2xhc3MoZnJvemVuPVRydWUpCmNsYXNzIFF1ZXN0aW9uOgogICAgIiIiVGhlIGRlY2xh
cmVkIHNlcnZlcjogd2hlcmUgaXQgbGlzdGVucywgd2hhdCBhIGNsaWVudCBzZW5kcyBmaXJzdCwg
YW5kIHdoYXQgaXRzIHJlc3BvbnNlcyBtdXN0IGJlIGxpa2UuCgogICAgQSBxdWVzdGlvbiB0aGF0
IGFuIGVhcmxpZXIgdmVyc2lvbiBrZXB0IGhhcyBubyBtb3JlIHRoYW4gdGhlIHByb21wdC4KICAg
ICIiIgoKICAgIHVybDogc3RyID0gIiIKICAgIG1ldHJpY3M6IHR1cGxlW3N0ciwgLi4uXSA9ICgp
CiAgICBrZXk6IHN0ciB8IE5vbmUgPSBOb25lCiAgICBzZWNvbmRzOiBmbG9hdCA9IExBVEVSX1NF
Q09ORFMKICAgIGRyYWZ0czogaW50ID0gMAogICAgZmxvb3I6IGZsb2F0ID0gMAogICAgYm9keTog
SnNvbiA9IGZpZWxkKGRlZmF1bHRfZmFjdG9yeT1kaWN0KQogICAgc2FtZTogc3RyIHwgTm9uZSA9
IE5vbmUKICAgIHNwZWM6IHN0ciB8IE5vbmUgPSBOb25lCiAgICBraW5kOiBzdHIgPSAiY2hhdCIK
ICAgIG1vZGVsczogdHVwbGVbc3RyLCAuLi5dID0gKCkKICAgIG1vZGVsc19wYXRoOiBzdHIgfCBO
b25lID0gTm9uZQogICAgcHJvcHNfcGF0aDogc3RyIHwgTm9uZSA9IE5vbmUKICAgIGhlYWx0aF9w
YXRoOiBzdHIgfCBOb25lID0gTm9uZQogICAgbGlzdGVuOiBzdHIgfCBOb25lID0gTm9uZQogICAg
Y2xvc2VkOiBib29sID0gRmFsc2UKICAgIGNvbnRleHQ6IGludCA9IDAKICAgIHBpZHM6IHR1cGxl
W3N0ciwgLi4uXSA9ICgpCgogICAgQHByb3BlcnR5CiAgICBkZWYgcGF0aChzZWxmKSAtPiBzdHI6
CiAgICAgICAgIiIiVGhlIHBhdGggb2YgdGhlIHByb21wdC4iIiIKICAgICAgICByZXR1cm4gdXJs
c3BsaXQoc2VsZi51cmwpLnBhdGgKCiAgICBkZWYgYXV0aG9yaXphdGlvbihzZWxmKSAtPiBkaWN0
W3N0ciwgc3RyXToKICAgICAgICAiIiJSZXR1cm4gdGhlIGhlYWRlciB0aGF0IGhvbGRzIHRoZSBr
ZXkuIiIiCiAgICAgICAgaWYgbm90IHNlbGYua2V5OgogICAgICAgICAgICByZXR1cm4ge30KICAg
ICAgICByZXR1cm4geyJBdXRob3JpemF0aW9uIjogIkJlYXJlciAiICsgUGF0aChzZWxmLmtleSku
cmVhZF90ZXh0KGVuY29kaW5nPSJ1dGYtOCIpLnN0cmlwKCl9CgoKZGVmIHJlYWRfcXVlc3Rpb24o
cGF0aDogc3RyLCBwaWRzOiBJdGVyYWJsZVtzdHJdKSAtPiBRdWVzdGlvbjoKICAgICIiIlJlYWQg
YSBxdWVzdGlvbiBmcm9tIGEgZmlsZS4iIiIKICAgIHNhaWQgPSBqc29uLmxvYWRzKFBhdGgocGF0
aCkucmVhZF90ZXh0KGVuY29kaW5nPSJ1dGYtOCIpKQogICAga25vd24gPSB7bmFtZTogc2FpZFtu
YW1lXSBmb3IgbmFtZSBpbiBRdWVzdGlvbi5fX2RhdGFjbGFzc19maWVsZHNfXyBpZiBuYW1lIGlu
IHNhaWR9CiAgICBtZXRyaWNzID0gc2FpZFsibWV0cmljcyJdIGlmIGlzaW5zdGFuY2Uoc2FpZFsi
bWV0cmljcyJdLCBsaXN0KSBlbHNlIFtzYWlkWyJtZXRyaWNzIl1dCiAgICBrbm93biB8PSB7Im1l
dHJpY3MiOiB0dXBsZShtZXRyaWNzKSwgIm1vZGVscyI6IHR1cGxlKHNhaWQuZ2V0KCJtb2RlbHMi
LCAoKSkpfQogICAgcmV0dXJuIFF1ZXN0aW9uKCoqa25vd24gfCB7InBpZHMiOiB0dXBsZShwaWQg
Zm9yIHBpZCBpbiBwaWRzIGlmIHBpZC5pc2RlY2ltYWwoKSBhbmQgcGlkICE9ICIwIil9KQoKCkBk
YXRhY2xhc3MoZnJvemVuPVRydWUpCmNsYXNzIEFuc3dlcjoKICAgICIiIldoYXQgaXMgbWVhc3Vy
ZWQgb2YgYSByZXNwb25zZTogaXRzIHRva2VucywgdGhvc2UgZHJhZnRlZCBhbmQgYWNjZXB0ZWQs
IGFuZCB0b2tlbnMgYSBzZWNvbmQsIDAgd2hlcmUgdW5rbm93bi4KCiAgICBgY291bnRzYDogaXQg
aXMgbG9uZyBlbm91Z2ggdG8gdGVsbCB0aGUgc3BlZWQsIGFuZCBvdGhlcnMgZGlkIG5vdCBjb21w
dXRlIG1lYW53aGlsZS4KICAgICIiIgoKICAgIHRva2VuczogaW50CiAgICBkcmFmdGVkOiBpbnQK
ICAgIGFjY2VwdGVkOiBpbnQKICAgIHJhdGU6IGZsb2F0CiAgICBjb3VudHM6IGJvb2wKCgpAZGF0
YWNsYXNzKGZyb3plbj1UcnVlKQpjbGFzcyBSZXBseToKICAgICIiIkFuIEhUVFAgcmVzcG9uc2Uu
IiIiCgogICAgc3RhdHVzOiBpbnQKICAgIGtpbmQ6IHN0cgogICAgYm9keTogYnl0ZXMKICAgIHNl
Y29uZHM6IGZsb2F0CgoKQGRhdGFjbGFzcyhmcm96ZW49VHJ1ZSkKY2xhc3MgQ29tcGxldGlvbjoK
ICAgICIiIldoYXQgYSBjbGllbnQgZ2V0cyBvZiBhIHByb21wdDogdGV4dCwgdGhvdWdodHMsIGNh
bGxzIG9mIHRvb2xzLCBhbmQgd2hldGhlciBpdCB3YXMgY3V0IGJ5IGl0cyBsaW1pdCBvZiB0b2tl
bnMuCgogICAgaWtfbGxhbWEuY3BwIGNhbGxzIHRoYXQgYHN0b3BgLCB0b28sIHNvIHRoYXQgdGhl
IHRva2VucyBkZWNpZGUuCiAgICAiIiIKCiAgICB0ZXh0OiBzdHIKICAgIHRob3VnaHRzOiBzdHIK
ICAgIGNhbGxzOiB0dXBsZVtBbnksIC4uLl0KICAgIGN1dDogYm9vbAoKCiMgV2FpdGluZywgd2l0
aCBhIGxpbWl0IGZvciB0aGUgd2hvbGUuCgoKY2xhc3MgV2lyZShzb2NrZXQuc29ja2V0KToKICAg
ICIiIkEgc29ja2V0IHdob3NlIHJlYWRzIGVuZCBhdCBhIGRlYWRsaW5lIGFuZCBhZnRlciBzbyBt
YW55IGJ5dGVzLCBob3dldmVyIG1hbnkgcmVhZHMgdGhleSBhcmUuIiIiCgogICAgZGVhZGxpbmUg
PSAwLjAKICAgIHJvb20gPSAyICogTEFSR0VTVAoKICAgIGRlZiByZWN2X2ludG8oc2VsZiwgKmFy
Z3VtZW50czogQW55KSAtPiBpbnQ6CiAgICAgICAgc2VsZi5zZXR0aW1lb3V0KGxlZnQoc2VsZi5k
ZWFkbGluZSkpCiAgICAgICAgY291bnQgPSBzdXBlcigpLnJlY3ZfaW50bygqYXJndW1lbnRzKQog
ICAgICAgIHNlbGYucm9vbSAtPSBjb3VudAogICAgICAgIGlmIHNlbGYucm9vbSA8IDA6CiAgICAg
ICAgICAgIHJhaXNlIE9TRXJyb3IoIml0IGRvZXMgbm90IGVuZCIpCiAgICAgICAgcmV0dXJuIGNv
dW50CgoKZGVmIGxlZnQoZGVhZGxpbmU6IGZsb2F0KSAtPiBmbG9hdDoKICAgICIiIlJldHVybiB0
aGUgc2Vjb25kcyB1bnRpbCBhIGRlYWRsaW5lOyByYWlzZXMgVGltZW91dEVycm9yIGFmdGVyIGl0
LiIiIgogICAgaWYgKHNlY29uZHMgOj0gZGVhZGxpbmUgLSB0aW1lLm1vbm90b25pYygpKSA8PSAw
OgogICAgICAgIHJhaXNlIFRpbWVvdXRFcnJvcigidGltZWQgb3V0IikKICAgIHJldHVybiBzZWNv
bmRzCgoKY2xhc3MgTGluayhodHRwLmNsaWVudC5IVFRQQ29ubmVjdGlvbik6CiAgICAiIiJBIGNv
bm5lY3Rpb24gdG8gdGhlIHNlcnZlciBpdHNlbGY6IG5vIHByb3h5LCBubyByZWRpcmVjdCwgYW5k
IGEgZGVhZGxpbmUuIiIiCgogICAgZGVmIF9faW5pdF9fKHNlbGYsIHVybDogc3RyLCBkZWFkbGlu
ZTogZmxvYXQpIC0+IE5vbmU6CiAgICAgICAgcGFydHMgPSB1cmxzcGxpdCh1cmwpCiAgICAgICAg
c3VwZXIoKS5fX2luaXRfXyhwYXJ0cy5ob3N0bmFtZSBvciAiIiwgcGFydHMucG9ydCkKICAgICAg
ICBzZWxmLmRlYWRsaW5lID0gZGVhZGxpbmUKCiAgICBkZWYgY29ubmVjdChzZWxmKSAtPiBOb25l
OgogICAgICAgIGZhbWlseSA9IHNvY2tldC5BRl9JTkVUNiBpZiAiOiIgaW4gc2VsZi5ob3N0IGVs
c2Ugc29ja2V0LkFGX0lORVQKICAgICAgICB3aXJlID0gV2lyZShmYW1pbHksIHNvY2tldC5TT0NL
X1NUUkVBTSkKICAgICAgICB3aXJlLmRlYWRsaW5lID0gc2VsZi5kZWFkbGluZQogICAgICAgIHdp
cmUuc2V0dGltZW91dChsZWZ0KHNlbGYuZGVhZGxpbmUpKQogICAgICAgIHNlbGYuc29jayA9IHdp
cmUKICAgICAgICB3aXJlLmNvbm5lY3QoKHNlbGYuaG9zdCwgc2VsZi5wb3J0KSkKICAgICAgICB3
aXJlLnNldHNvY2tvcHQoc29ja2V0LklQUFJPVE9fVENQLCBzb2NrZXQuVENQX05PREVMQVksIDEp
CgogICAgZGVmIHVudGlsKHNlbGYsIGRlYWRsaW5lOiBmbG9hdCkgLT4gTm9uZToKICAgICAgICAi
IiJMaW1pdCB3aGF0IGZvbGxvd3Mgb24gdGhpcyBjb25uZWN0aW9uLiIiIgogICAgICAgIHNlbGYu
ZGVhZGxpbmUgPSBkZWFkbGluZQogICAgICAgIGlmIGlzaW5zdGFuY2Uoc2VsZi5zb2NrLCBXaXJl
KToKICAgICAgICAgICAgc2VsZi5zb2NrLmRlYWRsaW5lLCBzZWxmLnNvY2sucm9vbSA9IGRlYWRs
aW5lLCAyICogTEFSR0VTVAogICAgICAgICAgICBzZWxmLnNvY2suc2V0dGltZW91dChsZWZ0KGRl
YWRsaW5lKSkKCgpAY29udGV4dG1hbmFnZXIKZGVmIHRyb3VibGUoYXNrZWQ6IHN0cikgLT4gSXRl
cmF0b3JbTm9uZV06CiAgICAiIiJUZWxsIG9mIHdoYXQgYSBjb25uZWN0aW9uIHJhaXNlcywgaW4g
dGhlIHdvcmRzIG9mIHdoYXQgd2FzIGFza2VkIGZvci4iIiIKICAgIHRyeToKICAgICAgICB5aWVs
ZAogICAgZXhjZXB0IFRpbWVvdXRFcnJvciBhcyBlcnJvcjoKICAgICAgICByYWlzZSBOb1Jlc3Bv
bnNlRXJyb3IoZiJ7YXNrZWR9IGlzIG5vdCBhbnN3ZXJlZDoge2Vycm9yfSIpIGZyb20gTm9uZQog
ICAgZXhjZXB0IE9TRXJyb3IgYXMgZXJyb3I6CiAgICAgICAgcmFpc2UgRmFpbGVkRXJyb3IoZiJ7
YXNrZWR9IGlzIG5vdCBhbnN3ZXJlZDoge2Vycm9yfSIpIGZyb20gTm9uZQogICAgZXhjZXB0ICho
dHRwLmNsaWVudC5IVFRQRXhjZXB0aW9uLCBWYWx1ZUVycm9yKSBhcyBlcnJvcjoKICAgICAgICBy
YWlzZSBGYWlsZWRFcnJvcihmInthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCB3aGF0IGlzIG5vdCBI
VFRQOiB7dHlwZShlcnJvcikuX19uYW1lX199IikgZnJvbSBOb25lCgoKZGVmIHJlcXVlc3QobGlu
azogTGluaywgcXVlc3Rpb246IFF1ZXN0aW9uLCBhc2tlZDogc3RyLCBwYXRoOiBzdHIsIGJvZHk6
IEpzb24gfCBOb25lID0gTm9uZSkgLT4gUmVwbHk6CiAgICAiIiJTZW5kIG9uZSByZXF1ZXN0IGFu
ZCByZXR1cm4gdGhlIHJlc3BvbnNlLiBSYWlzZXMgRmFpbGVkRXJyb3Igd2hlcmUgbm9uZSBjb21l
cywgb3IgbW9yZSB0aGFuIGEgY2xpZW50IHRha2VzLiIiIgogICAgd2l0aCB0cm91YmxlKGFza2Vk
KToKICAgICAgICBiZWdhbiA9IHRpbWUubW9ub3RvbmljKCkKICAgICAgICByZXBseSA9IGJlZ2lu
KGxpbmssIHF1ZXN0aW9uLCBwYXRoLCBib2R5KQogICAgICAgIGNvbnRlbnQgPSByZXBseS5yZWFk
KExBUkdFU1QgKyAxKQogICAgICAgIGlmIGxlbihjb250ZW50KSA+IExBUkdFU1Q6CiAgICAgICAg
ICAgIHJhaXNlIEZhaWxlZEVycm9yKGYie2Fza2VkfSBpcyBhbnN3ZXJlZCB3aXRoIG1vcmUgdGhh
biB7TEFSR0VTVH0gYnl0ZXMiKQogICAgICAgIHJldHVybiBSZXBseShyZXBseS5zdGF0dXMsIHJl
cGx5LmhlYWRlcnMuZ2V0KCJDb250ZW50LVR5cGUiLCAiIiksIGNvbnRlbnQsIHRpbWUubW9ub3Rv
bmljKCkgLSBiZWdhbikKCgpkZWYgYmVnaW4oCiAgICBsaW5rOiBMaW5rLCBxdWVzdGlvbjogUXVl
c3Rpb24sIHBhdGg6IHN0ciwgYm9keTogSnNvbiB8IE5vbmUsIGhlYWRlcnM6IE1hcHBpbmdbc3Ry
LCBzdHJdIHwgTm9uZSA9IE5vbmUKKSAtPiBodHRwLmNsaWVudC5IVFRQUmVzcG9uc2U6CiAgICAi
IiJTZW5kIG9uZSByZXF1ZXN0IGFuZCByZXR1cm4gaXRzIHJlc3BvbnNlLCB0byBiZSByZWFkLiIi
IgogICAga2VwdCA9IGxpbmsuc29jayBpcyBub3QgTm9uZQogICAgbW9yZSA9IHF1ZXN0aW9uLmF1
dGhvcml6YXRpb24oKSBpZiBoZWFkZXJzIGlzIE5vbmUgZWxzZSBkaWN0KGhlYWRlcnMpCiAgICBp
ZiBib2R5IGlzIG5vdCBOb25lOgogICAgICAgIG1vcmVbIkNvbnRlbnQtVHlwZSJdID0gImFwcGxp
Y2F0aW9uL2pzb24iCiAgICBjb250ZW50ID0gTm9uZSBpZiBib2R5IGlzIE5vbmUgZWxzZSBqc29u
LmR1bXBzKGJvZHkpLmVuY29kZSgpCiAgICB0cnk6CiAgICAgICAgbGluay5yZXF1ZXN0KCJHRVQi
IGlmIGJvZHkgaXMgTm9uZSBlbHNlICJQT1NUIiwgcGF0aCwgY29udGVudCwgbW9yZSkKICAgICAg
ICByZXR1cm4gbGluay5nZXRyZXNwb25zZSgpCiAgICBleGNlcHQgKGh0dHAuY2xpZW50LlJlbW90
ZURpc2Nvbm5lY3RlZCwgQ29ubmVjdGlvblJlc2V0RXJyb3IsIEJyb2tlblBpcGVFcnJvcik6CiAg
ICAgICAgaWYgbm90IGtlcHQ6CiAgICAgICAgICAgIHJhaXNlCiAgICAjIEEgc2VydmVyIG1heSBj
bG9zZSBhIGNvbm5lY3Rpb24gdGhhdCBpdCBrZXB0IGF0IGFueSB0aW1lOiBjbGllbnRzIG9wZW4g
YW5vdGhlci4KICAgIGxpbmsuY2xvc2UoKQogICAgbGluay5yZXF1ZXN0KCJHRVQiIGlmIGJvZHkg
aXMgTm9uZSBlbHNlICJQT1NUIiwgcGF0aCwgY29udGVudCwgbW9yZSkKICAgIHJldHVybiBsaW5r
LmdldHJlc3BvbnNlKCkKCgojIFdoYXQgYSBjbGllbnQgbWFrZXMgb2YgYSByZXNwb25zZS4KCgpk
ZWYgcGFyc2VkKGNvbnRlbnQ6IGJ5dGVzLCBhc2tlZDogc3RyLCB3aGF0OiBzdHIpIC0+IEFueToK
ICAgICIiIlJldHVybiB0aGUgSlNPTiBvZiBhIGJvZHkuIFJhaXNlcyBGYWlsZWRFcnJvciB3aGVy
ZSBhIGNsaWVudCBjb3VsZCBub3QgcmVhZCBpdC4iIiIKICAgIHRyeToKICAgICAgICByZXR1cm4g
anNvbi5sb2Fkcyhjb250ZW50LmRlY29kZSgidXRmLTgiKSwgcGFyc2VfY29uc3RhbnQ9bm90X2pz
b24pCiAgICBleGNlcHQgKFZhbHVlRXJyb3IsIFJlY3Vyc2lvbkVycm9yKToKICAgICAgICByYWlz
ZSBGYWlsZWRFcnJvcihmInthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCB7d2hhdH0iKSBmcm9tIE5v
bmUKCgpkZWYgbm90X2pzb24obmFtZTogc3RyKSAtPiBOb25lOgogICAgcmFpc2UgVmFsdWVFcnJv
cihuYW1lKQoKCmRlZiBzYWlkX29mKGJvZHk6IGJ5dGVzKSAtPiBzdHI6CiAgICAiIiJSZXR1cm4g
dGhlIG1lc3NhZ2Ugb2YgYW4gZXJyb3IncyBib2R5LCBvciB0aGUgYm9keSwgb24gb25lIGxpbmUu
IiIiCiAgICB0ZXh0ID0gYm9keS5kZWNvZGUoZXJyb3JzPSJyZXBsYWNlIikKICAgIHdpdGggc3Vw
cHJlc3MoVmFsdWVFcnJvciwgTG9va3VwRXJyb3IsIFR5cGVFcnJvciwgUmVjdXJzaW9uRXJyb3Ip
OgogICAgICAgIHRleHQgPSBzdHIoanNvbi5sb2Fkcyh0ZXh0KVsiZXJyb3IiXVsibWVzc2FnZSJd
KQogICAgcmV0dXJuICIgIi5qb2luKHRleHQuc3BsaXQoKSlbOjIwMF0KCgpkZWYgYWNjZXB0ZWQo
cmVwbHk6IFJlcGx5LCBhc2tlZDogc3RyKSAtPiBSZXBseToKICAgICIiIlJldHVybiBhIHJlc3Bv
bnNlIHRoYXQgaXMgbm8gZXJyb3IuIiIiCiAgICBpZiByZXBseS5zdGF0dXMgIT0gMjAwOgogICAg
ICAgIHJhaXNlIEZhaWxlZEVycm9yKGYie2Fza2VkfSBpcyBhbnN3ZXJlZCB3aXRoIEhUVFAge3Jl
cGx5LnN0YXR1c306IHtzYWlkX29mKHJlcGx5LmJvZHkpfSIpCiAgICByZXR1cm4gcmVwbHkKCgpk
ZWYgY29tcGxldGlvbihzYWlkOiBBbnksIGJvZHk6IEpzb24sIHF1ZXN0aW9uOiBRdWVzdGlvbiwg
YXNrZWQ6IHN0cikgLT4gQ29tcGxldGlvbjoKICAgICIiIlJldHVybiBhIGNoYXQgY29tcGxldGlv
bi4gUmFpc2VzIEZhaWxlZEVycm9yIHdoZXJlIGl0IGlzIG5vbmUuIiIiCiAgICB0cnk6CiAgICAg
ICAgY2hvaWNlID0gc2FpZFsiY2hvaWNlcyJdWzBdCiAgICAgICAgbWVzc2FnZSwgZmluaXNoLCB1
c2FnZSA9IGNob2ljZVsibWVzc2FnZSJdLCBjaG9pY2UuZ2V0KCJmaW5pc2hfcmVhc29uIiksIHNh
aWRbInVzYWdlIl0KICAgICAgICB0ZXh0LCB0aG91Z2h0cyA9IHRleHRzKG1lc3NhZ2UpCiAgICAg
ICAgY2FsbHMgPSB0dXBsZShtZXNzYWdlLmdldCgidG9vbF9jYWxscyIpIG9yICgpKQogICAgICAg
IG1vZGVsLCB3aG9sZSA9IHNhaWQuZ2V0KCJtb2RlbCIpLCBzYWlkLmdldCgib2JqZWN0IiwgImNo
YXQuY29tcGxldGlvbiIpCiAgICAgICAgcm9sZSA9IG1lc3NhZ2UuZ2V0KCJyb2xlIiwgImFzc2lz
dGFudCIpCiAgICAgICAgY291bnRlZCh1c2FnZSwgYm9keSwgYXNrZWQpCiAgICAgICAgbm9uZSA9
IGJvb2wodGV4dCBvciB0aG91Z2h0cykgYW5kIG5vdCB1c2FnZVsiY29tcGxldGlvbl90b2tlbnMi
XQogICAgICAgIGN1dCA9IGZpbmlzaCA9PSAibGVuZ3RoIiBvciB1c2FnZVsiY29tcGxldGlvbl90
b2tlbnMiXSA+PSBib2R5WyJtYXhfdG9rZW5zIl0KICAgIGV4Y2VwdCAoTG9va3VwRXJyb3IsIFR5
cGVFcnJvciwgQXR0cmlidXRlRXJyb3IsIFZhbHVlRXJyb3IpOgogICAgICAgIHJhaXNlIEZhaWxl
ZEVycm9yKGYie2Fza2VkfSBpcyBhbnN3ZXJlZCB3aXRoIHtOT19DSEFUfSIpIGZyb20gTm9uZQog
ICAgaWYgZmluaXNoIG5vdCBpbiBGSU5JU0hFUyBvciByb2xlICE9ICJhc3Npc3RhbnQiIG9yIHdo
b2xlICE9ICJjaGF0LmNvbXBsZXRpb24iOgogICAgICAgIHJhaXNlIEZhaWxlZEVycm9yKGYie2Fz
a2VkfSBpcyBhbnN3ZXJlZCB3aXRoIHtOT19DSEFUfTogZmluaXNoX3JlYXNvbiBpcyB7c2hvd24o
ZmluaXNoKX0sIHJvbGUge3Nob3duKHJvbGUpfSIpCiAgICBpZiBub25lOgogICAgICAgIHJhaXNl
IEZhaWxlZEVycm9yKGYie2Fza2VkfSBpcyBhbnN3ZXJlZCB3aXRoIHRleHQsIGFuZCB3aXRoIG5v
IHRva2VuIGJ5IGl0cyBgdXNhZ2VgIikKICAgIG5hbWVkKG1vZGVsLCBxdWVzdGlvbiwgYXNrZWQp
CiAgICByZXR1cm4gQ29tcGxldGlvbih0ZXh0LCB0aG91Z2h0cywgY2FsbHMsIGN1dCkKCgpkZWYg
dGV4dHMobWVzc2FnZTogTWFwcGluZ1tzdHIsIEFueV0pIC0+IHR1cGxlW3N0ciwgc3RyXToKICAg
ICIiIlJldHVybiB0aGUgdGV4dCBhbmQgdGhlIHRob3VnaHRzIG9mIGEgbWVzc2FnZSwgb3Igb2Yg
YSBwYXJ0IG9mIGl0LiBSYWlzZXMgVHlwZUVycm9yIHdoZXJlIHRoZXkgYXJlIG5vIHRleHQuIiIi
CiAgICB0ZXh0ID0gbWVzc2FnZS5nZXQoImNvbnRlbnQiKSBvciAiIgogICAgdGhvdWdodHMgPSBt
ZXNzYWdlLmdldCgicmVhc29uaW5nX2NvbnRlbnQiKSBvciBtZXNzYWdlLmdldCgicmVhc29uaW5n
Iikgb3IgIiIKICAgIGlmIG5vdCBpc2luc3RhbmNlKHRleHQsIHN0cikgb3Igbm90IGlzaW5zdGFu
Y2UodGhvdWdodHMsIHN0cik6CiAgICAgICAgcmFpc2UgVHlwZUVycm9yCiAgICByZXR1cm4gdGV4
dCwgdGhvdWdodHMKCgpkZWYgY291bnRlZCh1c2FnZTogTWFwcGluZ1tzdHIsIEFueV0sIGJvZHk6
IEpzb24sIGFza2VkOiBzdHIpIC0+IE5vbmU6CiAgICAiIiJSYWlzZSBGYWlsZWRFcnJvciB3aGVy
ZSBhIHJlc3BvbnNlIGNhbm5vdCBoYXZlIHNvIG1hbnkgdG9rZW5zLiIiIgogICAgcmVhZCwgd3Jp
dHRlbiA9IHVzYWdlLmdldCgicHJvbXB0X3Rva2VucyIsIDEpLCB1c2FnZVsiY29tcGxldGlvbl90
b2tlbnMiXQogICAgaWYgbm90IGlzaW5zdGFuY2UocmVhZCwgaW50KSBvciBub3QgaXNpbnN0YW5j
ZSh3cml0dGVuLCBpbnQpOgogICAgICAgIHJhaXNlIFR5cGVFcnJvcgogICAgbW9zdCA9IGJvZHlb
Im1heF90b2tlbnMiXQogICAgaWYgcmVhZCA8IDAgb3Igd3JpdHRlbiA8IDAgb3Igd3JpdHRlbiA+
IG1vc3QgKyBTUEFSRToKICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihmInthc2tlZH0gaXMgYW5z
d2VyZWQgd2l0aCB7cmVhZH0gKyB7d3JpdHRlbn0gdG9rZW5zLCBhbmQgbm8gbW9yZSB0aGFuIHtt
b3N0fSB3ZXJlIGFsbG93ZWQiKQoKCmRlZiBuYW1lZChtb2RlbDogb2JqZWN0LCBxdWVzdGlvbjog
UXVlc3Rpb24sIGFza2VkOiBzdHIpIC0+IE5vbmU6CiAgICAiIiJSYWlzZSBGYWlsZWRFcnJvciB3
aGVyZSBhbm90aGVyIG1vZGVsIHJlc3BvbmRzLiIiIgogICAgaWYgcXVlc3Rpb24ubW9kZWxzIGFu
ZCBtb2RlbCBpcyBub3QgTm9uZSBhbmQgbW9kZWwgbm90IGluIHF1ZXN0aW9uLm1vZGVsczoKICAg
ICAgICByYWlzZSBGYWlsZWRFcnJvcihmInthc2tlZH0gaXMgYW5zd2VyZWQgYnkgbW9kZWwge3No
b3duKG1vZGVsKX0sIG5vdCBieSB7cXVlc3Rpb24uYm9keVsnbW9kZWwnXX0iKQoKCmRlZiBzaG93
bih2YWx1ZTogb2JqZWN0KSAtPiBzdHI6CiAgICAiIiJSZXR1cm4gYSB2YWx1ZSBmcm9tIG91dHNp
ZGUgYXMgdGV4dCBmb3IgYSBtZXNzYWdlLiIiIgogICAgcmV0dXJuIGpzb24uZHVtcHModmFsdWUp
Wzo2MF0KCgpkZWYgdmlzaWJsZSh0ZXh0OiBzdHIpIC0+IGJvb2w6CiAgICAiIiJSZXR1cm4gd2hl
dGhlciBhIHBlcnNvbiB3b3VsZCBzZWUgdGV4dDogbm90IG9ubHkgYmxhbmtzLCBjb250cm9sIG9y
IHNwZWNpYWwgdG9rZW5zLCBVK0ZGRkQsIG9yIG9uZSBjaGFyYWN0ZXIuIiIiCiAgICByZXN0ID0g
U1BFQ0lBTC5zdWIoIiIsIHRleHQpCiAgICBzZWVuID0gW2VhY2ggZm9yIGVhY2ggaW4gcmVzdCBp
ZiB1bmljb2RlZGF0YS5jYXRlZ29yeShlYWNoKVswXSBpbiAiTE5QUyIgb3IgdW5pY29kZWRhdGEu
Y2F0ZWdvcnkoZWFjaCkgPT0gIk1uIl0KICAgIGJyb2tlbiA9IHNlZW4uY291bnQoIlx1ZmZmZCIp
CiAgICBvbmUgPSBsZW4oc2VlbikgPj0gUkVQRUFURUQgYW5kIGxlbihzZXQoc2VlbikpID09IDEK
ICAgIHJldHVybiBsZW4oc2VlbikgPiAyICogYnJva2VuIGFuZCBub3Qgb25lCgoKIyBTdGVwcyBv
ZiB0aGUgcHJvb2YuCgoKQGRhdGFjbGFzcwpjbGFzcyBUYWxrOgogICAgIiIiQSBwcm9vZiBpbiBw
cm9ncmVzczogaXRzIGRlYWRsaW5lLCBhbmQgd2hhdCB3YXMgbWVhc3VyZWQuCgogICAgYHJlYWRz
YCBhbmQgYHdyaXRlc2AgYXJlIHRva2VucyBhIHNlY29uZCwgYGRlbnNpdHlgIHRoZSB0b2tlbnMg
b2YgYSBjaGFyYWN0ZXIgYnkgdGhlIGxvbmdlc3QgcHJvbXB0IHVudGlsIG5vdy4KICAgICIiIgoK
ICAgIHF1ZXN0aW9uOiBRdWVzdGlvbgogICAgZGVhZGxpbmU6IGZsb2F0CiAgICBsaW5rOiBMaW5r
CiAgICBiZWdhbjogZmxvYXQgPSBmaWVsZChkZWZhdWx0X2ZhY3Rvcnk9dGltZS5tb25vdG9uaWMp
CiAgICB0b2xkOiBmbG9hdCA9IGZpZWxkKGRlZmF1bHRfZmFjdG9yeT10aW1lLm1vbm90b25pYykK
ICAgIHJlYWRzOiBmbG9hdCA9IDAuMAogICAgd3JpdGVzOiBmbG9hdCA9IDAuMAogICAgbG9uZ2Vz
dDogaW50ID0gMAogICAgZGVuc2l0eTogZmxvYXQgPSAxLjAKICAgIG90aGVyczogYm9vbCA9IEZh
bHNlCiAgICBjYXBzOiBKc29uID0gZmllbGQoZGVmYXVsdF9mYWN0b3J5PWRpY3QpCgogICAgZGVm
IGdldChzZWxmLCBwYXRoOiBzdHIpIC0+IFJlcGx5OgogICAgICAgICIiIlJldHVybiBhIHBhZ2Uu
IiIiCiAgICAgICAgc2VsZi5saW5rLnVudGlsKG1pbihzZWxmLmRlYWRsaW5lLCB0aW1lLm1vbm90
b25pYygpICsgUEFHRV9TRUNPTkRTKSkKICAgICAgICByZXR1cm4gcmVxdWVzdChzZWxmLmxpbmss
IHNlbGYucXVlc3Rpb24sIHBhdGgsIHBhdGgpCgogICAgZGVmIGxpbWl0KHNlbGYsIHRva2Vuczog
aW50KSAtPiBmbG9hdDoKICAgICAgICAiIiJSZXR1cm4gdGhlIGRlYWRsaW5lIG9mIGEgc3RlcCwg
d2hpY2ggbWF5IHRha2UgdGVuIHRpbWVzIGFzIGxvbmcgYXMgdGhpcyBob3N0IHRha2VzIGZvciBz
byBtYW55IHRva2Vucy4iIiIKICAgICAgICBzZWNvbmRzID0gTEFURVJfU0VDT05EUyBpZiBzZWxm
Lm90aGVycyBlbHNlIG1heChTVEVQX1NFQ09ORFMsIDEwICogc2VsZi5leHBlY3RlZCgwLCB0b2tl
bnMpKQogICAgICAgIHJldHVybiBtaW4oc2VsZi5kZWFkbGluZSwgdGltZS5tb25vdG9uaWMoKSAr
IHNlY29uZHMpCgogICAgZGVmIGV4cGVjdGVkKHNlbGYsIHByb21wdDogaW50LCB0b2tlbnM6IGlu
dCkgLT4gZmxvYXQ6CiAgICAgICAgIiIiUmV0dXJuIHRoZSBzZWNvbmRzIHRoYXQgYSBzdGVwIHRh
a2VzIGJ5IHdoYXQgd2FzIG1lYXN1cmVkLiIiIgogICAgICAgIHJldHVybiAocHJvbXB0IC8gc2Vs
Zi5yZWFkcyBpZiBzZWxmLnJlYWRzIGVsc2UgMCkgKyAodG9rZW5zIC8gc2VsZi53cml0ZXMgaWYg
c2VsZi53cml0ZXMgZWxzZSAwKQoKICAgIGRlZiBhc2soc2VsZiwgYXNrZWQ6IHN0ciwgKiptb3Jl
OiBBbnkpIC0+IENvbXBsZXRpb246CiAgICAgICAgIiIiU2VuZCBhIHByb21wdCB0aGF0IGlzIG5v
dCBzdHJlYW1lZCwgYW5kIHJldHVybiBpdHMgY29tcGxldGlvbiwgb2Ygd2hpY2ggYSBwZXJzb24g
Y2FuIHNlZSBzb21ldGhpbmcuIiIiCiAgICAgICAgYm9keSA9IHByb21wdChzZWxmLnF1ZXN0aW9u
LCAqKm1vcmUpCiAgICAgICAgc2VsZi5saW5rLnVudGlsKHNlbGYubGltaXQoYm9keVsibWF4X3Rv
a2VucyJdKSkKICAgICAgICByZXBseSA9IGFjY2VwdGVkKHJlcXVlc3Qoc2VsZi5saW5rLCBzZWxm
LnF1ZXN0aW9uLCBhc2tlZCwgc2VsZi5xdWVzdGlvbi5wYXRoLCBib2R5KSwgYXNrZWQpCiAgICAg
ICAgc2FpZCA9IHBhcnNlZChyZXBseS5ib2R5LCBhc2tlZCwgTk9fQ0hBVCkKICAgICAgICBmb3Vu
ZCA9IGNvbXBsZXRpb24oc2FpZCwgYm9keSwgc2VsZi5xdWVzdGlvbiwgYXNrZWQpCiAgICAgICAg
c2VsZi5sZWFybihib2R5LCBzYWlkLCByZXBseS5zZWNvbmRzKQogICAgICAgIHJldHVybiBmb3Vu
ZAoKICAgIGRlZiBsZWFybihzZWxmLCBib2R5OiBKc29uLCBzYWlkOiBKc29uLCBzZWNvbmRzOiBm
bG9hdCkgLT4gTm9uZToKICAgICAgICAiIiJLZWVwIGhvdyBmYXN0IGEgcHJvbXB0IHdhcyByZWFk
IGFuZCBhIHJlc3BvbnNlIHdyaXR0ZW47IHdoZXJlIHRoZSBzZXJ2ZXIgdGVsbHMgbm8gdGltZXMs
IGJ5IHRoZSBjbG9jay4iIiIKICAgICAgICB1c2FnZSwgdGltZXMgPSBzYWlkWyJ1c2FnZSJdLCBz
YWlkLmdldCgidGltaW5ncyIpIG9yIHt9CiAgICAgICAgbGVuZ3RoID0gc3VtKGxlbihlYWNoWyJj
b250ZW50Il0pIGZvciBlYWNoIGluIGJvZHlbIm1lc3NhZ2VzIl0pCiAgICAgICAgaWYgbGVuZ3Ro
ID4gc2VsZi5sb25nZXN0IGFuZCB1c2FnZS5nZXQoInByb21wdF90b2tlbnMiKToKICAgICAgICAg
ICAgc2VsZi5sb25nZXN0LCBzZWxmLmRlbnNpdHkgPSBsZW5ndGgsIHVzYWdlWyJwcm9tcHRfdG9r
ZW5zIl0gLyBsZW5ndGgKICAgICAgICBzZWxmLndyaXRlcyA9IG1heChzZWxmLndyaXRlcywgdXNh
Z2VbImNvbXBsZXRpb25fdG9rZW5zIl0gLyBtYXgoc2Vjb25kcywgMC4wMDEpKQogICAgICAgIHdp
dGggc3VwcHJlc3MoTG9va3VwRXJyb3IsIFR5cGVFcnJvciwgVmFsdWVFcnJvciwgQXR0cmlidXRl
RXJyb3IsIFplcm9EaXZpc2lvbkVycm9yLCBPdmVyZmxvd0Vycm9yKToKICAgICAgICAgICAgc2Vs
Zi53cml0ZXMgPSBtYXgoc2VsZi53cml0ZXMsIG1pbihGQVNURVNULCAxMDAwICogdGltZXNbInBy
ZWRpY3RlZF9uIl0gLyB0aW1lc1sicHJlZGljdGVkX21zIl0pKQogICAgICAgICAgICBzZWxmLnJl
YWRzID0gbWF4KHNlbGYucmVhZHMsIG1pbihGQVNURVNULCAxMDAwICogdGltZXNbInByb21wdF9u
Il0gLyB0aW1lc1sicHJvbXB0X21zIl0pKQogICAgICAgIHNlbGYucmVhZHMgPSBzZWxmLnJlYWRz
IG9yIDEwICogc2VsZi53cml0ZXMKCiAgICBkZWYgdGVsbChzZWxmLCBzdGVwOiBzdHIpIC0+IE5v
bmU6CiAgICAgICAgIiIiUHJpbnQgd2hhdCBpcyB0cmllZCwgd2hlcmUgdGhlIHByb29mIHRha2Vz
IGxvbmcuIiIiCiAgICAgICAgaWYgdGltZS5tb25vdG9uaWMoKSAtIHNlbGYudG9sZCA+IFRBTEtJ
TkdfU0VDT05EUzoKICAgICAgICAgICAgc2VsZi50b2xkID0gdGltZS5tb25vdG9uaWMoKQogICAg
ICAgICAgICBwcm9ncmVzcyhmInN0aWxsIHByb3ZpbmcgdGhhdCBpdCBzZXJ2ZXM6IHtzdGVwfSIp
CgoKQGRhdGFjbGFzcyhmcm96ZW49VHJ1ZSkKY2xhc3MgU3RlcDoKICAgICIiIk9uZSB0aGluZyB0
aGF0IGNsaWVudHMgZG86IGhvdyB0byBjYWxsIGl0LCBob3cgdG8gdHJ5IGl0LCBhbmQgdGhlIHRv
a2VucyB0aGF0IGl0IHRha2VzLiIiIgoKICAgIG5hbWU6IHN0cgogICAgcnVuOiBDYWxsYWJsZVtb
VGFsa10sIE5vbmVdCiAgICBwcm9tcHQ6IGludCA9IDAKICAgIHRva2VuczogaW50ID0gMAoKCmRl
ZiBwcm9ncmVzcyhsaW5lOiBzdHIpIC0+IE5vbmU6CiAgICAiIiJQcmludCBhIGxpbmUgb2YgcHJv
Z3Jlc3MsIHdoZXJlIHNvbWVib2R5IHJlYWRzIGl0LiIiIgogICAgaWYgKG51bWJlciA6PSBvcy5l
bnZpcm9uLmdldCgiUFJPR1JFU1MiLCAiIikpLmlzZGVjaW1hbCgpOgogICAgICAgIHdpdGggc3Vw
cHJlc3MoT1NFcnJvcik6CiAgICAgICAgICAgIG9zLndyaXRlKGludChudW1iZXIpLCBmIntsaW5l
fVxuIi5lbmNvZGUoKSkKCgpkZWYgcHJvbXB0KHF1ZXN0aW9uOiBRdWVzdGlvbiwgKiptb3JlOiBB
bnkpIC0+IEpzb246CiAgICAiIiJSZXR1cm4gYSBjaGF0IHJlcXVlc3Qgb2YgYSBmZXcgdG9rZW5z
LiIiIgogICAgbWVzc2FnZXMgPSBbeyJyb2xlIjogInVzZXIiLCAiY29udGVudCI6IFBSSU1BUll9
XQogICAgcmV0dXJuIHsibW9kZWwiOiBxdWVzdGlvbi5ib2R5WyJtb2RlbCJdLCAibWVzc2FnZXMi
OiBtZXNzYWdlcywgIm1heF90b2tlbnMiOiBTSE9SVCwgKiptb3JlfQoKCmRlZiBzZWVuKHRhbGs6
IFRhbGssIGFza2VkOiBzdHIsIGZvdW5kOiBDb21wbGV0aW9uLCBhZ2FpbjogQ2FsbGFibGVbLi4u
LCBDb21wbGV0aW9uXSwgKiptb3JlOiBBbnkpIC0+IE5vbmU6CiAgICAiIiJSYWlzZSBGYWlsZWRF
cnJvciB3aGVyZSBub3RoaW5nIG9mIGEgcmVzcG9uc2UgY2FuIGJlIHNlZW4sIGFuZCBvZiBhIGxv
bmdlciBvbmUgbmVpdGhlci4iIiIKICAgIGZvciBfIGluIHJhbmdlKDIpOgogICAgICAgIGlmIHZp
c2libGUoZm91bmQudGV4dCkgb3IgdmlzaWJsZShmb3VuZC50aG91Z2h0cyk6CiAgICAgICAgICAg
IHJldHVybgogICAgICAgIHRva2VucyA9IG1heChTSE9SVCwgbWluKFJFVFJJRUQsIGludCh0YWxr
LndyaXRlcyAqIEJVREdFVCkgb3IgUkVUUklFRCkpCiAgICAgICAgZm91bmQgPSBhZ2Fpbihhc2tl
ZCwgKiptb3JlIHwgeyJtYXhfdG9rZW5zIjogdG9rZW5zLCAidGVtcGVyYXR1cmUiOiAwLjh9KQog
ICAgaWYgdmlzaWJsZShmb3VuZC50ZXh0KSBvciB2aXNpYmxlKGZvdW5kLnRob3VnaHRzKToKICAg
ICAgICByZXR1cm4KICAgIHJhaXNlIEZhaWxlZEVycm9yKAogICAgICAgIGYie2Fza2VkfSBpcyBh
bnN3ZXJlZCB3aXRoIHtmJ3doYXQgaXMgbm8gdGV4dDoge3Nob3duKGZvdW5kLnRleHQpfScgaWYg
Zm91bmQudGV4dCBlbHNlICdub3RoaW5nJ30iCiAgICApCgoKZGVmIHNlZXNfdGV4dCh0YWxrOiBU
YWxrLCBhc2tlZDogc3RyLCAqKm1vcmU6IEFueSkgLT4gQ29tcGxldGlvbjoKICAgIGZvdW5kID0g
dGFsay5hc2soYXNrZWQsICoqbW9yZSkKICAgIHNlZW4odGFsaywgYXNrZWQsIGZvdW5kLCB0YWxr
LmFzaywgKiptb3JlKQogICAgcmV0dXJuIGZvdW5kCgoKZGVmIHN0cmVhbWVkKHRhbGs6IFRhbGss
IGFza2VkOiBzdHIsICoqbW9yZTogQW55KSAtPiBDb21wbGV0aW9uOgogICAgIiIiU2VuZCBhIHBy
b21wdCB0aGF0IGlzIHN0cmVhbWVkLCBhbmQgcmV0dXJuIHdoYXQgYWxsIGl0cyBwYXJ0cyBtYWtl
LiIiIgogICAgYm9keSA9IHByb21wdCh0YWxrLnF1ZXN0aW9uLCAqKm1vcmUpIHwgeyJzdHJlYW0i
OiBUcnVlLCAic3RyZWFtX29wdGlvbnMiOiB7ImluY2x1ZGVfdXNhZ2UiOiBUcnVlfX0KICAgIGxp
bmsgPSBMaW5rKHRhbGsucXVlc3Rpb24udXJsLCB0YWxrLmxpbWl0KGJvZHlbIm1heF90b2tlbnMi
XSkpCiAgICB3aXRoIHRyb3VibGUoYXNrZWQpOgogICAgICAgIHJlcGx5ID0gYmVnaW4obGluaywg
dGFsay5xdWVzdGlvbiwgdGFsay5xdWVzdGlvbi5wYXRoLCBib2R5KQogICAgICAgIGlmIHJlcGx5
LnN0YXR1cyAhPSAyMDA6CiAgICAgICAgICAgIGFjY2VwdGVkKFJlcGx5KHJlcGx5LnN0YXR1cywg
IiIsIHJlcGx5LnJlYWQoTEFSR0VTVCksIDApLCBhc2tlZCkKICAgICAgICBpZiBub3QgcmVwbHku
aGVhZGVycy5nZXQoIkNvbnRlbnQtVHlwZSIsICIiKS5zdGFydHN3aXRoKCJ0ZXh0L2V2ZW50LXN0
cmVhbSIpOgogICAgICAgICAgICByYWlzZSBGYWlsZWRFcnJvcigKICAgICAgICAgICAgICAgIGYi
e2Fza2VkfSBpcyBhbnN3ZXJlZCB3aXRoIHtyZXBseS5oZWFkZXJzLmdldCgnQ29udGVudC1UeXBl
Jyl9LCBub3Qgd2l0aCBhIHN0cmVhbSBvZiBldmVudHMiCiAgICAgICAgICAgICkKICAgICAgICBm
b3VuZCA9IGpvaW5lZChldmVudHMocmVwbHksIGJvZHlbIm1heF90b2tlbnMiXSwgYXNrZWQpLCBi
b2R5LCB0YWxrLnF1ZXN0aW9uLCBhc2tlZCkKICAgICAgICBsaW5rLmNsb3NlKCkKICAgIHJldHVy
biBmb3VuZAoKCmRlZiBldmVudHMocmVwbHk6IGh0dHAuY2xpZW50LkhUVFBSZXNwb25zZSwgdG9r
ZW5zOiBpbnQsIGFza2VkOiBzdHIpIC0+IEl0ZXJhYmxlW2J5dGVzXToKICAgICIiIllpZWxkIHRo
ZSBkYXRhIG9mIGEgc3RyZWFtJ3MgZXZlbnRzIHVudGlsIGl0IGVuZHMuIFJhaXNlcyBGYWlsZWRF
cnJvciB3aGVyZSBpdCBkb2VzIG5vdCBlbmQgYXMgc3RyZWFtcyBkby4iIiIKICAgIGNvdW50ID0g
c2l6ZSA9IDAKICAgIHdoaWxlIGxpbmUgOj0gcmVwbHkucmVhZGxpbmUoTEFSR0VTVCk6CiAgICAg
ICAgY291bnQsIHNpemUgPSBjb3VudCArIGxpbmUuc3RhcnRzd2l0aChiImRhdGE6IiksIHNpemUg
KyBsZW4obGluZSkKICAgICAgICBpZiBjb3VudCA+IDIgKiB0b2tlbnMgKyA2NCBvciBzaXplID4g
TEFSR0VTVDoKICAgICAgICAgICAgcmFpc2UgRmFpbGVkRXJyb3IoZiJ7YXNrZWR9IGlzIGFuc3dl
cmVkIHdpdGggYSBzdHJlYW0gdGhhdCBkb2VzIG5vdCBlbmQgYWZ0ZXIge3Rva2Vuc30gdG9rZW5z
IikKICAgICAgICBuYW1lLCBfLCB2YWx1ZSA9IGxpbmUucnN0cmlwKGIiXHJcbiIpLnBhcnRpdGlv
bihiIjoiKQogICAgICAgIGlmIG5hbWUgPT0gYiJkYXRhIjoKICAgICAgICAgICAgaWYgdmFsdWUu
c3RyaXAoKSA9PSBiIltET05FXSI6CiAgICAgICAgICAgICAgICByZXR1cm4KICAgICAgICAgICAg
eWllbGQgdmFsdWUuc3RyaXAoKQogICAgICAgIGVsaWYgbmFtZSBub3QgaW4gKGIiIiwgYiJldmVu
dCIsIGIiaWQiLCBiInJldHJ5Iik6CiAgICAgICAgICAgIHJhaXNlIEZhaWxlZEVycm9yKGYie2Fz
a2VkfSBpcyBhbnN3ZXJlZCB3aXRoIGEgc3RyZWFtIG9mIHdoYXQgYXJlIG5vIGV2ZW50cyIpCiAg
ICByYWlzZSBGYWlsZWRFcnJvcihmInthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCBhIHN0cmVhbSB0
aGF0IGVuZHMgd2l0aG91dCBbRE9ORV0iKQoKCmRlZiBqb2luZWQoZGF0YTogSXRlcmFibGVbYnl0
ZXNdLCBib2R5OiBKc29uLCBxdWVzdGlvbjogUXVlc3Rpb24sIGFza2VkOiBzdHIpIC0+IENvbXBs
ZXRpb246CiAgICAiIiJSZXR1cm4gdGhlIGNvbXBsZXRpb24gdGhhdCBhIHN0cmVhbSdzIGV2ZW50
cyBtYWtlLiBSYWlzZXMgRmFpbGVkRXJyb3Igd2hlcmUgYSBjbGllbnQgY291bGQgbm90IG1ha2Ug
b25lLiIiIgogICAgd2hhdCA9ICJhIHN0cmVhbSBvZiAiICsgTk9fQ0hBVAogICAgdGV4dCA9IHRo
b3VnaHRzID0gZmluaXNoID0gIiIKICAgIGNhbGxzOiBsaXN0W0FueV0gPSBbXQogICAgZm9yIGVh
Y2ggaW4gZGF0YToKICAgICAgICBzYWlkID0gcGFyc2VkKGVhY2gsIGFza2VkLCB3aGF0KQogICAg
ICAgIGlmIGlzaW5zdGFuY2Uoc2FpZCwgZGljdCkgYW5kIHNhaWQuZ2V0KCJlcnJvciIpOgogICAg
ICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihmInthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCBhbiBl
cnJvciBpbiB0aGUgc3RyZWFtOiB7c2FpZF9vZihlYWNoKX0iKQogICAgICAgIHRyeToKICAgICAg
ICAgICAgaWYgdXNhZ2UgOj0gc2FpZC5nZXQoInVzYWdlIik6CiAgICAgICAgICAgICAgICBjb3Vu
dGVkKHVzYWdlLCBib2R5LCBhc2tlZCkKICAgICAgICAgICAgZm9yIGNob2ljZSBpbiBzYWlkWyJj
aG9pY2VzIl06CiAgICAgICAgICAgICAgICBtb3JlLCB0aG91Z2h0ID0gdGV4dHMoY2hvaWNlWyJk
ZWx0YSJdKQogICAgICAgICAgICAgICAgdGV4dCwgdGhvdWdodHMgPSB0ZXh0ICsgbW9yZSwgdGhv
dWdodHMgKyB0aG91Z2h0CiAgICAgICAgICAgICAgICBjYWxscyArPSBjaG9pY2VbImRlbHRhIl0u
Z2V0KCJ0b29sX2NhbGxzIikgb3IgKCkKICAgICAgICAgICAgICAgIGZpbmlzaCA9IGNob2ljZS5n
ZXQoImZpbmlzaF9yZWFzb24iKSBvciBmaW5pc2gKICAgICAgICAgICAgbmFtZWQoc2FpZC5nZXQo
Im1vZGVsIiksIHF1ZXN0aW9uLCBhc2tlZCkKICAgICAgICBleGNlcHQgKExvb2t1cEVycm9yLCBU
eXBlRXJyb3IsIEF0dHJpYnV0ZUVycm9yKToKICAgICAgICAgICAgcmFpc2UgRmFpbGVkRXJyb3Io
ZiJ7YXNrZWR9IGlzIGFuc3dlcmVkIHdpdGgge3doYXR9IikgZnJvbSBOb25lCiAgICBpZiBmaW5p
c2ggbm90IGluIEZJTklTSEVTOgogICAgICAgIHJhaXNlIEZhaWxlZEVycm9yKGYie2Fza2VkfSBp
cyBhbnN3ZXJlZCB3aXRoIGEgc3RyZWFtIHdob3NlIGZpbmlzaF9yZWFzb24gaXMge3Nob3duKGZp
bmlzaCl9IikKICAgIHJldHVybiBDb21wbGV0aW9uKHRleHQsIHRob3VnaHRzLCB0dXBsZShjYWxs
cyksIGZpbmlzaCA9PSAibGVuZ3RoIikKCgpkZWYgc2Vlc19zdHJlYW0odGFsazogVGFsaywgYXNr
ZWQ6IHN0ciwgKiptb3JlOiBBbnkpIC0+IE5vbmU6CiAgICBkZWYgYWdhaW4oYXNrZWQ6IHN0ciwg
Kiptb3JlOiBBbnkpIC0+IENvbXBsZXRpb246CiAgICAgICAgcmV0dXJuIHN0cmVhbWVkKHRhbGss
IGFza2VkLCAqKm1vcmUpCgogICAgc2Vlbih0YWxrLCBhc2tlZCwgYWdhaW4oYXNrZWQsICoqbW9y
ZSksIGFnYWluLCAqKm1vcmUpCgoKZGVmIHRyeV9zdHJlYW0odGFsazogVGFsaykgLT4gTm9uZToK
ICAgIHNlZXNfc3RyZWFtKHRhbGssICJhIHByb21wdCB0aGF0IGlzIHN0cmVhbWVkIikKCgpkZWYg
dHJ5X3N5c3RlbSh0YWxrOiBUYWxrKSAtPiBOb25lOgogICAgaWYgdGFsay5jYXBzLmdldCgic3Vw
cG9ydHNfc3lzdGVtX3JvbGUiKSBpcyBGYWxzZToKICAgICAgICByYWlzZSBMZWZ0T3V0RXJyb3IK
ICAgIHN5c3RlbSA9IHsicm9sZSI6ICJzeXN0ZW0iLCAiY29udGVudCI6ICJZb3UgYXJlIGEgaGVs
cGZ1bCBhc3Npc3RhbnQuIn0KICAgIG1lc3NhZ2VzID0gW3N5c3RlbSwgeyJyb2xlIjogInVzZXIi
LCAiY29udGVudCI6IFBSSU1BUll9XQogICAgb3B0aW9uYWwoCiAgICAgICAgbGFtYmRhOiBzZWVz
X3N0cmVhbSh0YWxrLCAiYSBzeXN0ZW0gbWVzc2FnZSIsIG1lc3NhZ2VzPW1lc3NhZ2VzKSwga25v
d249InN1cHBvcnRzX3N5c3RlbV9yb2xlIiBpbiB0YWxrLmNhcHMKICAgICkKCgpkZWYgdHJ5X3R1
cm5zKHRhbGs6IFRhbGspIC0+IE5vbmU6CiAgICAiIiJTZXZlcmFsIHR1cm5zLCBub3QgYWxsIG9m
IHRoZW0gQVNDSUksIGF0IHRoZSB0ZW1wZXJhdHVyZSB0aGF0IHRoZSBzZXJ2ZXIgY2hvb3Nlcy4i
IiIKICAgIHF1ZXN0aW9uID0gIldhcyBoZWnDn3Qg4oCeZHJlaSBHcnVuZGZhcmJlbuKAnCBhdWYg
RW5nbGlzY2g/IPCfjqgg0J/QvtC20LDQu9GD0LnRgdGC0LAsIOeugOefreOAgiIKICAgIG1lc3Nh
Z2VzID0gWwogICAgICAgIHsicm9sZSI6ICJ1c2VyIiwgImNvbnRlbnQiOiBxdWVzdGlvbn0sCiAg
ICAgICAgeyJyb2xlIjogImFzc2lzdGFudCIsICJjb250ZW50IjogIkl0IG1lYW5zOiB0aHJlZSBw
cmltYXJ5IGNvbG91cnM6IHJlZCwgeWVsbG93IGFuZCBibHVlLiJ9LAogICAgICAgIHsicm9sZSI6
ICJ1c2VyIiwgImNvbnRlbnQiOiBQUklNQVJZfSwKICAgIF0KICAgIHNlZXNfdGV4dCh0YWxrLCAi
YSBjb252ZXJzYXRpb24gb2Ygc2V2ZXJhbCB0dXJucyIsIG1lc3NhZ2VzPW1lc3NhZ2VzKQoKCmRl
ZiB0cnlfdG9vbHModGFsazogVGFsaykgLT4gTm9uZToKICAgIGlmIHRhbGsuY2Fwcy5nZXQoInN1
cHBvcnRzX3Rvb2xzIikgaXMgRmFsc2U6CiAgICAgICAgcmFpc2UgTGVmdE91dEVycm9yCiAgICBr
bm93biA9IHRhbGsuY2Fwcy5nZXQoInN1cHBvcnRzX3Rvb2xzIikgaXMgVHJ1ZQogICAgcHJvcGVy
dGllcyA9IHsibmFtZSI6IHsidHlwZSI6ICJzdHJpbmciLCAiZW51bSI6IFsicmVkIiwgImJsdWUi
XX19CiAgICBwYXJhbWV0ZXJzID0geyJ0eXBlIjogIm9iamVjdCIsICJwcm9wZXJ0aWVzIjogcHJv
cGVydGllcywgInJlcXVpcmVkIjogWyJuYW1lIl0sICJhZGRpdGlvbmFsUHJvcGVydGllcyI6IEZh
bHNlfQogICAgZnVuY3Rpb24gPSB7Im5hbWUiOiAibWl4X2NvbG91ciIsICJkZXNjcmlwdGlvbiI6
ICJNaXhlcyBhIGNvbG91ci4iLCAicGFyYW1ldGVycyI6IHBhcmFtZXRlcnN9CiAgICBhc2tlZCA9
ICJhIHByb21wdCB3aXRoIHRvb2xzIgogICAgbW9yZTogSnNvbiA9IHsidG9vbHMiOiBbeyJ0eXBl
IjogImZ1bmN0aW9uIiwgImZ1bmN0aW9uIjogZnVuY3Rpb259XSwgIm1heF90b2tlbnMiOiBDQUxM
RUR9CiAgICBmb3VuZDogbGlzdFtDb21wbGV0aW9uXSA9IFtdCiAgICBvcHRpb25hbChsYW1iZGE6
IGZvdW5kLmFwcGVuZCh0YWxrLmFzayhhc2tlZCwgKiptb3JlIHwgeyJ0b29sX2Nob2ljZSI6ICJy
ZXF1aXJlZCJ9KSksIGtub3duPWtub3duKQogICAgZm9yIHNhaWQgaW4gZm91bmQ6CiAgICAgICAg
aWYgc2FpZC5jYWxsczoKICAgICAgICAgICAgY2FsbGVkKHNhaWQsIGFza2VkKQogICAgICAgIGVs
aWYga25vd24gYW5kIG5vdCBzYWlkLmN1dDoKICAgICAgICAgICAgcmFpc2UgRmFpbGVkRXJyb3Io
ZiJ7YXNrZWR9IGlzIGFuc3dlcmVkIHdpdGhvdXQgYSBjYWxsLCB3aGljaCB3YXMgcmVxdWlyZWQi
KQoKCmRlZiBjYWxsZWQoc2FpZDogQ29tcGxldGlvbiwgYXNrZWQ6IHN0cikgLT4gTm9uZToKICAg
ICIiIlJhaXNlIEZhaWxlZEVycm9yIHdoZXJlIGEgY2xpZW50IGNvdWxkIG5vdCBtYWtlIHRoZSBj
YWxsIG9mIGEgdG9vbC4iIiIKICAgIHRyeToKICAgICAgICBmb3IgY2FsbCBpbiBzYWlkLmNhbGxz
OgogICAgICAgICAgICBuYW1lLCBhcmd1bWVudHMgPSBjYWxsWyJmdW5jdGlvbiJdWyJuYW1lIl0s
IGNhbGxbImZ1bmN0aW9uIl1bImFyZ3VtZW50cyJdCiAgICAgICAgICAgIGlmIG5vdCBzYWlkLmN1
dDoKICAgICAgICAgICAgICAgIHdob2xlID0gaXNpbnN0YW5jZShqc29uLmxvYWRzKGFyZ3VtZW50
cyksIGRpY3QpIGFuZCBuYW1lID09ICJtaXhfY29sb3VyIiBhbmQgY2FsbFsiaWQiXQogICAgICAg
ICAgICAgICAgaWYgbm90IHdob2xlOgogICAgICAgICAgICAgICAgICAgIHJhaXNlIFZhbHVlRXJy
b3IKICAgIGV4Y2VwdCAoTG9va3VwRXJyb3IsIFR5cGVFcnJvciwgQXR0cmlidXRlRXJyb3IsIFZh
bHVlRXJyb3IsIFJlY3Vyc2lvbkVycm9yKToKICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihmInth
c2tlZH0gaXMgYW5zd2VyZWQgd2l0aCB3aGF0IGlzIG5vIGNhbGwgb2YgdGhlIHRvb2wiKSBmcm9t
IE5vbmUKCgpkZWYgdHJ5X3NjaGVtYSh0YWxrOiBUYWxrKSAtPiBOb25lOgogICAgcHJvcGVydGll
cyA9IHsiY29sb3VyIjogeyJ0eXBlIjogInN0cmluZyIsICJlbnVtIjogWyJyZWQiLCAiYmx1ZSJd
fX0KICAgIHNjaGVtYSA9IHsidHlwZSI6ICJvYmplY3QiLCAicHJvcGVydGllcyI6IHByb3BlcnRp
ZXMsICJyZXF1aXJlZCI6IFsiY29sb3VyIl0sICJhZGRpdGlvbmFsUHJvcGVydGllcyI6IEZhbHNl
fQogICAgZm9ybSA9IHsidHlwZSI6ICJqc29uX3NjaGVtYSIsICJqc29uX3NjaGVtYSI6IHsibmFt
ZSI6ICJjb2xvdXIiLCAic3RyaWN0IjogVHJ1ZSwgInNjaGVtYSI6IHNjaGVtYX19CiAgICBhc2tl
ZCA9ICJhIHByb21wdCB3aXRoIGEgSlNPTiBzY2hlbWEiCiAgICBmb3VuZDogbGlzdFtDb21wbGV0
aW9uXSA9IFtdCiAgICBvcHRpb25hbChsYW1iZGE6IGZvdW5kLmFwcGVuZCh0YWxrLmFzayhhc2tl
ZCwgcmVzcG9uc2VfZm9ybWF0PWZvcm0sIG1heF90b2tlbnM9Rk9STUVEKSksIGtub3duPUZhbHNl
KQogICAgZm9yIHNhaWQgaW4gZm91bmQ6CiAgICAgICAgdGV4dCA9IHNhaWQudGV4dC5zdHJpcCgp
CiAgICAgICAgaWYgbm90IHRleHQgb3IgdGV4dC5zdGFydHN3aXRoKCI8Iik6CiAgICAgICAgICAg
IGNvbnRpbnVlICAjIGl0IHRoaW5rcyBmaXJzdAogICAgICAgIHdoYXQgPSAid2hhdCBpcyBub3Qg
b2YgdGhhdCBzY2hlbWEiCiAgICAgICAgaWYgc2FpZC5jdXQgYW5kIHRleHQuc3RhcnRzd2l0aCgi
eyIpOgogICAgICAgICAgICBjb250aW51ZQogICAgICAgIHZhbHVlID0gcGFyc2VkKHRleHQuZW5j
b2RlKCksIGFza2VkLCB3aGF0KQogICAgICAgIGlmIG5vdCBpc2luc3RhbmNlKHZhbHVlLCBkaWN0
KSBvciB2YWx1ZS5nZXQoImNvbG91ciIpIG5vdCBpbiAoInJlZCIsICJibHVlIikgb3IgbGVuKHZh
bHVlKSAhPSAxOgogICAgICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihmInthc2tlZH0gaXMgYW5z
d2VyZWQgd2l0aCB7d2hhdH06IHtzaG93bih0ZXh0KX0iKQoKCmRlZiBvcHRpb25hbChydW46IENh
bGxhYmxlW1tdLCBvYmplY3RdLCAqLCBrbm93bjogYm9vbCkgLT4gTm9uZToKICAgICIiIkRvIHdo
YXQgYSBzZXJ2ZXIgbmVlZCBub3QgYmUgYWJsZSB0byBkby4gUmFpc2VzIExlZnRPdXRFcnJvciB3
aGVyZSBpdCByZXBvcnRzIHRoYXQgaXQgY2Fubm90LgoKICAgIGBrbm93bmA6IGl0IHJlcG9ydHMg
ZWxzZXdoZXJlIHRoYXQgaXQgY2FuLgogICAgIiIiCiAgICB0cnk6CiAgICAgICAgcnVuKCkKICAg
IGV4Y2VwdCBGYWlsZWRFcnJvciBhcyBlcnJvcjoKICAgICAgICBzdGF0dXMgPSByZS5zZWFyY2go
ciJhbnN3ZXJlZCB3aXRoIEhUVFAgKFxkKyk6ICguKikiLCBzdHIoZXJyb3IpKQogICAgICAgIGlm
IHN0YXR1cyBhbmQgbm90IGtub3duIGFuZCBzdGF0dXNbMV0gaW4gKCI0MDAiLCAiNDA0IiwgIjQy
MiIsICI1MDAiLCAiNTAxIikgYW5kIFVOU1VQUE9SVEVELnNlYXJjaChzdGF0dXNbMl0pOgogICAg
ICAgICAgICByYWlzZSBMZWZ0T3V0RXJyb3IgZnJvbSBOb25lCiAgICAgICAgcmFpc2UKCgpkZWYg
dHJ5X3R3byh0YWxrOiBUYWxrKSAtPiBOb25lOgogICAgIiIiVHdvIHByb21wdHMgYXQgb25jZTog
ZWFjaCBnZXRzIGl0cyBvd24gcmVzcG9uc2UuIiIiCiAgICBhc2tlZCA9ICJvbmUgb2YgdHdvIHBy
b21wdHMgYXQgb25jZSIKICAgIGJvZGllcyA9IFtwcm9tcHQodGFsay5xdWVzdGlvbiwgbWF4X3Rv
a2Vucz10b2tlbnMpIGZvciB0b2tlbnMgaW4gKDIsIEZPUk1FRCldCiAgICBkZWFkbGluZSA9IHRh
bGsubGltaXQoc3VtKGJvZHlbIm1heF90b2tlbnMiXSBmb3IgYm9keSBpbiBib2RpZXMpKQogICAg
bGlua3MgPSBbTGluayh0YWxrLnF1ZXN0aW9uLnVybCwgZGVhZGxpbmUpIGZvciBfIGluIGJvZGll
c10KICAgIGhlYWRlcnMgPSB7Kip0YWxrLnF1ZXN0aW9uLmF1dGhvcml6YXRpb24oKSwgIkNvbnRl
bnQtVHlwZSI6ICJhcHBsaWNhdGlvbi9qc29uIn0KICAgIHdpdGggdHJvdWJsZShhc2tlZCk6CiAg
ICAgICAgZm9yIGxpbmssIGJvZHkgaW4gemlwKGxpbmtzLCBib2RpZXMsIHN0cmljdD1UcnVlKToK
ICAgICAgICAgICAgbGluay5yZXF1ZXN0KCJQT1NUIiwgdGFsay5xdWVzdGlvbi5wYXRoLCBqc29u
LmR1bXBzKGJvZHkpLmVuY29kZSgpLCBoZWFkZXJzKQogICAgICAgIGZvciBsaW5rLCBib2R5IGlu
IHppcChsaW5rcywgYm9kaWVzLCBzdHJpY3Q9VHJ1ZSk6CiAgICAgICAgICAgIHJlcGx5ID0gbGlu
ay5nZXRyZXNwb25zZSgpCiAgICAgICAgICAgIGNvbnRlbnQgPSBhY2NlcHRlZChSZXBseShyZXBs
eS5zdGF0dXMsICIiLCByZXBseS5yZWFkKExBUkdFU1QpLCAwKSwgYXNrZWQpLmJvZHkKICAgICAg
ICAgICAgY29tcGxldGlvbihwYXJzZWQoY29udGVudCwgYXNrZWQsIE5PX0NIQVQpLCBib2R5LCB0
YWxrLnF1ZXN0aW9uLCBhc2tlZCkKICAgICAgICAgICAgbGluay5jbG9zZSgpCgoKZGVmIHRyeV9s
ZWF2aW5nKHRhbGs6IFRhbGspIC0+IE5vbmU6CiAgICAiIiJBIGNsaWVudCBsZWF2ZXMgaW4gdGhl
IG1pZGRsZSBvZiBhIHJlc3BvbnNlOyB0aGUgbmV4dCBvbmUgbXVzdCBnZXQgaXRzIG93bi4iIiIK
ICAgIGJvZHkgPSBwcm9tcHQodGFsay5xdWVzdGlvbiwgc3RyZWFtPVRydWUsIG1heF90b2tlbnM9
UkVUUklFRCkKICAgIGFza2VkID0gImEgcHJvbXB0IHdob3NlIGNsaWVudCBsZWF2ZXMiCiAgICBs
aW5rID0gTGluayh0YWxrLnF1ZXN0aW9uLnVybCwgdGFsay5saW1pdChTSE9SVCkpCiAgICB3aXRo
IHRyb3VibGUoYXNrZWQpOgogICAgICAgIHJlcGx5ID0gYmVnaW4obGluaywgdGFsay5xdWVzdGlv
biwgdGFsay5xdWVzdGlvbi5wYXRoLCBib2R5KQogICAgICAgIHJlcGx5LnJlYWRsaW5lKExBUkdF
U1QpCiAgICAgICAgaWYgbGluay5zb2NrOgogICAgICAgICAgICBsaW5rLnNvY2suc2h1dGRvd24o
c29ja2V0LlNIVVRfUkRXUikKICAgICAgICBsaW5rLmNsb3NlKCkKICAgIHN0YXlzX2J1c3kodGFs
ay5xdWVzdGlvbiwgTEVBVklOR19TRUNPTkRTKQogICAgc2Vlc190ZXh0KHRhbGssICJhIHByb21w
dCBhZnRlciBhIGNsaWVudCB0aGF0IGxlZnQiKQoKCmRlZiB0cnlfbG9uZyh0YWxrOiBUYWxrKSAt
PiBOb25lOgogICAgIiIiQSBsb25nIHByb21wdCwgYXMgbG9uZyBhcyB0aGlzIGhvc3QgcmVhZHMg
aW4gaGFsZiBhIHNlY29uZDsgYWxsIG9mIGl0IG11c3QgYmUgcmVhZC4iIiIKICAgIHRva2VucyA9
IG1pbihMT05HLCBpbnQodGFsay5yZWFkcyAqIExPTkdfU0VDT05EUyksIHRhbGsucXVlc3Rpb24u
Y29udGV4dCAvLyA0KQogICAgaWYgdG9rZW5zIDwgRkVXRVNUOgogICAgICAgIHJhaXNlIExlZnRP
dXRFcnJvcgogICAgbGVuZ3RoLCBzdGFydCA9IGludCh0b2tlbnMgLyB0YWxrLmRlbnNpdHkpLCBz
ZWNyZXRzLnJhbmRiZWxvdygxMDAwKQogICAgdGV4dCA9ICIgIi5qb2luKGYie2VhY2h9IGlzIGEg
bnVtYmVyLiIgZm9yIGVhY2ggaW4gcmFuZ2Uoc3RhcnQsIHN0YXJ0ICsgdG9rZW5zKSlbOmxlbmd0
aF0KICAgIGFza2VkID0gZiJhIHByb21wdCBvZiB7bGVuZ3RofSBjaGFyYWN0ZXJzIgogICAgYm9k
eSA9IHByb21wdCh0YWxrLnF1ZXN0aW9uLCBtZXNzYWdlcz1beyJyb2xlIjogInVzZXIiLCAiY29u
dGVudCI6IGYie3RleHR9IHtQUklNQVJZfSJ9XSkKICAgIHRhbGsubGluay51bnRpbCh0YWxrLmxp
bWl0KHRva2VucykpCiAgICByZXBseSA9IGFjY2VwdGVkKHJlcXVlc3QodGFsay5saW5rLCB0YWxr
LnF1ZXN0aW9uLCBhc2tlZCwgdGFsay5xdWVzdGlvbi5wYXRoLCBib2R5KSwgYXNrZWQpCiAgICBz
YWlkID0gcGFyc2VkKHJlcGx5LmJvZHksIGFza2VkLCBOT19DSEFUKQogICAgY29tcGxldGlvbihz
YWlkLCBib2R5LCB0YWxrLnF1ZXN0aW9uLCBhc2tlZCkKICAgIHJlYWQgPSBzYWlkWyJ1c2FnZSJd
LmdldCgicHJvbXB0X3Rva2VucyIsIGxlbmd0aCkKICAgIGlmIHJlYWQgPCBsZW5ndGggLy8gTU9T
VF9DSEFSQUNURVJTOgogICAgICAgIHJhaXNlIEZhaWxlZEVycm9yKGYie2Fza2VkfSBpcyBhbnN3
ZXJlZCBhZnRlciB7cmVhZH0gdG9rZW5zIG9mIGl0IikKCgpkZWYgdHJ5X2tleSh0YWxrOiBUYWxr
KSAtPiBOb25lOgogICAgIiIiQSBkZWNsYXJlZCBrZXkgaXMgcmVxdWlyZWQsIGFuZCBhbm90aGVy
IG9uZSByZWZ1c2VkLiIiIgogICAgaWYgbm90IHRhbGsucXVlc3Rpb24ua2V5OgogICAgICAgIHJh
aXNlIExlZnRPdXRFcnJvcgogICAgZm9yIGFza2VkLCBoZWFkZXJzIGluICgKICAgICAgICAoImEg
cHJvbXB0IHdpdGhvdXQgdGhlIGtleSIsIHt9KSwKICAgICAgICAoImEgcHJvbXB0IHdpdGggYSB3
cm9uZyBrZXkiLCB7IkF1dGhvcml6YXRpb24iOiBmIkJlYXJlciB3cm9uZy17c2VjcmV0cy50b2tl
bl9oZXgoOCl9In0pLAogICAgKToKICAgICAgICBsaW5rID0gTGluayh0YWxrLnF1ZXN0aW9uLnVy
bCwgdGFsay5saW1pdChTSE9SVCkpCiAgICAgICAgYm9keSA9IHByb21wdCh0YWxrLnF1ZXN0aW9u
LCBtYXhfdG9rZW5zPTEpIGlmIHRhbGsucXVlc3Rpb24ua2luZCA9PSAiY2hhdCIgZWxzZSB7Imlu
cHV0IjogUFJJTUFSWX0KICAgICAgICB3aXRoIHRyb3VibGUoYXNrZWQpOgogICAgICAgICAgICBy
ZXBseSA9IGJlZ2luKGxpbmssIHRhbGsucXVlc3Rpb24sIHRhbGsucXVlc3Rpb24ucGF0aCwgYm9k
eSwgaGVhZGVycykKICAgICAgICAgICAgc3RhdHVzID0gcmVwbHkuc3RhdHVzCiAgICAgICAgICAg
IHJlcGx5LnJlYWQoTEFSR0VTVCkKICAgICAgICAgICAgbGluay5jbG9zZSgpCiAgICAgICAgaWYg
c3RhdHVzIG5vdCBpbiAoNDAxLCA0MDMpOgogICAgICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihm
Inthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCBIVFRQIHtzdGF0dXN9LCBhbmQgYSBrZXkgaXMgZGVj
bGFyZWQiKQoKCmRlZiB0cnlfcGFnZXModGFsazogVGFsaykgLT4gTm9uZToKICAgICIiIlRoZSBw
YWdlcyB0aGF0IGNsaWVudHMsIHRoZSBnYXRld2F5IGFuZCBtb25pdG9yaW5nIHJlYWQuIiIiCiAg
ICBxdWVzdGlvbiA9IHRhbGsucXVlc3Rpb24KICAgIGlmIHF1ZXN0aW9uLm1vZGVsc19wYXRoOgog
ICAgICAgIHBhZ2UgPSBxdWVzdGlvbi5tb2RlbHNfcGF0aAogICAgICAgIHNhaWQgPSBwYXJzZWQo
YWNjZXB0ZWQodGFsay5nZXQocGFnZSksIHBhZ2UpLmJvZHksIHBhZ2UsICJ3aGF0IGlzIG5vIGxp
c3Qgb2YgbW9kZWxzIikKICAgICAgICB0cnk6CiAgICAgICAgICAgIG5hbWVzID0ge25hbWUgZm9y
IGVhY2ggaW4gc2FpZFsiZGF0YSJdIGZvciBuYW1lIGluIChlYWNoWyJpZCJdLCAqKGVhY2guZ2V0
KCJhbGlhc2VzIikgb3IgKCkpKX0KICAgICAgICBleGNlcHQgKExvb2t1cEVycm9yLCBUeXBlRXJy
b3IsIEF0dHJpYnV0ZUVycm9yKToKICAgICAgICAgICAgcmFpc2UgRmFpbGVkRXJyb3IoZiJ7cGFn
ZX0gaXMgYW5zd2VyZWQgd2l0aCB3aGF0IGlzIG5vIGxpc3Qgb2YgbW9kZWxzIikgZnJvbSBOb25l
CiAgICAgICAgaWYgbWlzc2luZyA6PSBzb3J0ZWQoc2V0KHF1ZXN0aW9uLm1vZGVscykgLSBuYW1l
cyk6CiAgICAgICAgICAgIHJhaXNlIEZhaWxlZEVycm9yKGYie3BhZ2V9IGRvZXMgbm90IGxpc3Qg
eycsICcuam9pbihtaXNzaW5nKX0iKQogICAgaWYgcXVlc3Rpb24ucHJvcHNfcGF0aDoKICAgICAg
ICBzYWlkID0gcGFyc2VkKGFjY2VwdGVkKHRhbGsuZ2V0KHF1ZXN0aW9uLnByb3BzX3BhdGgpLCAi
L3Byb3BzIikuYm9keSwgIi9wcm9wcyIsICJ3aGF0IGlzIG5vdCBKU09OIikKICAgICAgICBjYXBz
ID0gc2FpZC5nZXQoImNoYXRfdGVtcGxhdGVfY2FwcyIpIGlmIGlzaW5zdGFuY2Uoc2FpZCwgZGlj
dCkgZWxzZSBOb25lCiAgICAgICAgdGFsay5jYXBzID0gY2FwcyBpZiBpc2luc3RhbmNlKGNhcHMs
IGRpY3QpIGVsc2Uge30KICAgIGZvciB1cmwgaW4gcXVlc3Rpb24ubWV0cmljcyBpZiBsZW4ocXVl
c3Rpb24ubWV0cmljcykgPT0gMSBlbHNlICgpOgogICAgICAgIHBhcnRzID0gdXJsc3BsaXQodXJs
KQogICAgICAgIHJlcGx5ID0gdGFsay5nZXQoZiJ7cGFydHMucGF0aH0/e3BhcnRzLnF1ZXJ5fSIg
aWYgcGFydHMucXVlcnkgZWxzZSBwYXJ0cy5wYXRoKQogICAgICAgIGlmIHJlcGx5LnN0YXR1cyBu
b3QgaW4gKDQwNCwgNTAxKSBhbmQgbm90IEJVU1kuc2VhcmNoKAogICAgICAgICAgICBhY2NlcHRl
ZChyZXBseSwgcGFydHMucGF0aCkuYm9keS5kZWNvZGUoZXJyb3JzPSJyZXBsYWNlIikKICAgICAg
ICApOgogICAgICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihmIntwYXJ0cy5wYXRofSBpcyBhbnN3
ZXJlZCB3aXRoIHdoYXQgYXJlIG5vIGZpZ3VyZXMgb2YgYSBzZXJ2ZXIiKQoKCmRlZiB0cnlfaGVh
bHRoKHRhbGs6IFRhbGspIC0+IE5vbmU6CiAgICAiIiJJdCBpcyBhcyBoZWFsdGh5IGFzIGJlZm9y
ZSBhbGwgb2YgdGhpcy4iIiIKICAgIGlmIHBhdGggOj0gdGFsay5xdWVzdGlvbi5oZWFsdGhfcGF0
aDoKICAgICAgICBhY2NlcHRlZCh0YWxrLmdldChwYXRoKSwgcGF0aCkKCgpkZWYgdHJ5X2xpc3Rl
bmluZyh0YWxrOiBUYWxrKSAtPiBOb25lOgogICAgIiIiSXQgbGlzdGVucyB3aGVyZSBpdCBpcyBk
ZWNsYXJlZCwgYW5kIG5vd2hlcmUgZWxzZSB0aGF0IG90aGVyIG1hY2hpbmVzIHJlYWNoLiIiIgog
ICAgcXVlc3Rpb24gPSB0YWxrLnF1ZXN0aW9uCiAgICBpZiBub3QgcXVlc3Rpb24ubGlzdGVuIG9y
IG5vdCBxdWVzdGlvbi5waWRzOgogICAgICAgIHJhaXNlIExlZnRPdXRFcnJvcgogICAgZGVjbGFy
ZWQsIHBvcnQgPSBpcGFkZHJlc3MuaXBfYWRkcmVzcyhxdWVzdGlvbi5saXN0ZW4pLCB1cmxzcGxp
dChxdWVzdGlvbi51cmwpLnBvcnQKICAgIGZvdW5kID0gbGlzdGVuaW5nKHF1ZXN0aW9uLnBpZHMp
CiAgICBmb3IgYWRkcmVzcywgbnVtYmVyIGluIHNvcnRlZChmb3VuZCwga2V5PXN0cik6CiAgICAg
ICAgaWYgbnVtYmVyID09IHBvcnQgYW5kIGFkZHJlc3MgIT0gZGVjbGFyZWQ6CiAgICAgICAgICAg
IHJhaXNlIEZhaWxlZEVycm9yKGYiaXQgbGlzdGVucyBhdCB7YWRkcmVzc30sIHBvcnQge251bWJl
cn0sIGFuZCB7ZGVjbGFyZWR9IGlzIGRlY2xhcmVkIikKICAgICAgICBpZiBudW1iZXIgIT0gcG9y
dCBhbmQgcXVlc3Rpb24uY2xvc2VkIGFuZCBub3QgYWRkcmVzcy5pc19sb29wYmFjazoKICAgICAg
ICAgICAgcmFpc2UgRmFpbGVkRXJyb3IoZiJpdCBsaXN0ZW5zIGF0IHthZGRyZXNzfSwgcG9ydCB7
bnVtYmVyfSwgdG9vLCB3aGljaCBpcyBub3QgZGVjbGFyZWQiKQoKCmRlZiBsaXN0ZW5pbmcocGlk
czogU2VxdWVuY2Vbc3RyXSkgLT4gc2V0W3R1cGxlW0FueSwgaW50XV06CiAgICAiIiJSZXR1cm4g
dGhlIFRDUCBhZGRyZXNzZXMgYW5kIHBvcnRzIG9mIHByb2Nlc3NlcyBhbmQgdGhvc2UgdGhhdCB0
aGV5IHN0YXJ0ZWQsIG9uIHRoaXMgaG9zdCdzIG93biBuZXR3b3JrLiIiIgogICAgb3duLCBzb2Nr
ZXRzID0gbmV0d29yaygic2VsZiIpLCBzZXQoKQogICAgZXZlcnkgPSBbcGlkIGZvciBwaWQgaW4g
ZmFtaWx5KHBpZHMpIGlmIG5ldHdvcmsocGlkKSA9PSBvd25dCiAgICBmb3IgcGlkIGluIGV2ZXJ5
OgogICAgICAgIHdpdGggc3VwcHJlc3MoT1NFcnJvcik6CiAgICAgICAgICAgIGZvciBlYWNoIGlu
IFBhdGgoIi9wcm9jIiwgcGlkLCAiZmQiKS5pdGVyZGlyKCk6CiAgICAgICAgICAgICAgICB3aXRo
IHN1cHByZXNzKE9TRXJyb3IpOgogICAgICAgICAgICAgICAgICAgIHNvY2tldHMuYWRkKHN0cihl
YWNoLnJlYWRsaW5rKCkpKQogICAgZm91bmQgPSBzZXQoKQogICAgZm9yIHRhYmxlIGluICgidGNw
IiwgInRjcDYiKToKICAgICAgICB3aXRoIHN1cHByZXNzKE9TRXJyb3IpOgogICAgICAgICAgICBm
b3IgbGluZSBpbiBQYXRoKCIvcHJvYy9zZWxmL25ldCIsIHRhYmxlKS5yZWFkX3RleHQoZW5jb2Rp
bmc9InV0Zi04Iikuc3BsaXRsaW5lcygpWzE6XToKICAgICAgICAgICAgICAgIHdvcmRzID0gbGlu
ZS5zcGxpdCgpCiAgICAgICAgICAgICAgICBpZiB3b3Jkc1szXSA9PSAiMEEiIGFuZCBmInNvY2tl
dDpbe3dvcmRzWzldfV0iIGluIHNvY2tldHM6CiAgICAgICAgICAgICAgICAgICAgYWRkcmVzcywg
XywgcG9ydCA9IHdvcmRzWzFdLnBhcnRpdGlvbigiOiIpCiAgICAgICAgICAgICAgICAgICAgZm91
bmQuYWRkKChrZXJuZWxfYWRkcmVzcyhhZGRyZXNzKSwgaW50KHBvcnQsIDE2KSkpCiAgICByZXR1
cm4gZm91bmQKCgpkZWYgbmV0d29yayhwaWQ6IHN0cikgLT4gc3RyOgogICAgIiIiUmV0dXJuIHRo
ZSBuZXR3b3JrIHRoYXQgYSBwcm9jZXNzIGlzIGluLCBvciBub3RoaW5nLiIiIgogICAgd2l0aCBz
dXBwcmVzcyhPU0Vycm9yKToKICAgICAgICByZXR1cm4gc3RyKFBhdGgoIi9wcm9jIiwgcGlkLCAi
bnMvbmV0IikucmVhZGxpbmsoKSkKICAgIHJldHVybiAiIgoKCmRlZiBmYW1pbHkocGlkczogU2Vx
dWVuY2Vbc3RyXSkgLT4gc2V0W3N0cl06CiAgICAiIiJSZXR1cm4gcHJvY2Vzc2VzIGFuZCBhbGwg
dGhhdCB0aGV5IHN0YXJ0ZWQuIiIiCiAgICBwYXJlbnRzOiBkaWN0W3N0ciwgc3RyXSA9IHt9CiAg
ICBmb3IgZWFjaCBpbiBQYXRoKCIvcHJvYyIpLml0ZXJkaXIoKToKICAgICAgICBpZiBlYWNoLm5h
bWUuaXNkZWNpbWFsKCk6CiAgICAgICAgICAgIHdpdGggc3VwcHJlc3MoT1NFcnJvciwgSW5kZXhF
cnJvcik6CiAgICAgICAgICAgICAgICBwYXJlbnRzW2VhY2gubmFtZV0gPSAoZWFjaCAvICJzdGF0
IikucmVhZF90ZXh0KGVuY29kaW5nPSJ1dGYtOCIpLnJwYXJ0aXRpb24oIikiKVsyXS5zcGxpdCgp
WzFdCiAgICBmb3VuZCA9IHNldChwaWRzKQogICAgd2hpbGUgbW9yZSA6PSB7cGlkIGZvciBwaWQs
IHBhcmVudCBpbiBwYXJlbnRzLml0ZW1zKCkgaWYgcGFyZW50IGluIGZvdW5kfSAtIGZvdW5kOgog
ICAgICAgIGZvdW5kIHw9IG1vcmUKICAgIHJldHVybiBmb3VuZAoKCmRlZiBrZXJuZWxfYWRkcmVz
cyh0ZXh0OiBzdHIpIC0+IEFueToKICAgICIiIlJldHVybiBhbiBJUCBhZGRyZXNzIG9mIC9wcm9j
L25ldC90Y3A6IHdvcmRzIG9mIDMyIGJpdHMgaW4gdGhpcyBtYWNoaW5lJ3Mgb3JkZXIuIiIiCiAg
ICB3b3JkcyA9IFtpbnQodGV4dFtuIDogbiArIDhdLCAxNikudG9fYnl0ZXMoNCwgc3lzLmJ5dGVv
cmRlcikgZm9yIG4gaW4gcmFuZ2UoMCwgbGVuKHRleHQpLCA4KV0KICAgIHJldHVybiBpcGFkZHJl
c3MuaXBfYWRkcmVzcyhiIiIuam9pbih3b3JkcykpCgoKZGVmIHRyeV9lbWJlZGRpbmcodGFsazog
VGFsaykgLT4gTm9uZToKICAgICIiIlR3byB0ZXh0cyBnaXZlIHR3byB2ZWN0b3JzIG9mIG9uZSBs
ZW5ndGg7IG9uZSB0ZXh0IGdpdmVzIG9uZS4iIiIKICAgIGZvciBnaXZlbiBpbiAoW1BSSU1BUlks
ICJBIGxldHRlciBhYm91dCB0aGUgd2VhdGhlciBpbiBNYXJjaCJdLCBQUklNQVJZKToKICAgICAg
ICBhc2tlZCwgd2hhdCA9ICJhbiBlbWJlZGRpbmciIGlmIGdpdmVuID09IFBSSU1BUlkgZWxzZSAi
dHdvIGVtYmVkZGluZ3MiLCAid2hhdCBpcyBubyBlbWJlZGRpbmciCiAgICAgICAgY291bnQgPSAx
IGlmIGdpdmVuID09IFBSSU1BUlkgZWxzZSBsZW4oZ2l2ZW4pCiAgICAgICAgcGF0aCwgYm9keSA9
IHRhbGsucXVlc3Rpb24ucGF0aCwgeyJtb2RlbCI6IHRhbGsucXVlc3Rpb24uYm9keVsibW9kZWwi
XSwgImlucHV0IjogZ2l2ZW59CiAgICAgICAgdGFsay5saW5rLnVudGlsKHRhbGsubGltaXQoU0hP
UlQpKQogICAgICAgIHJlcGx5ID0gcmVxdWVzdCh0YWxrLmxpbmssIHRhbGsucXVlc3Rpb24sIGFz
a2VkLCBwYXRoLCBib2R5KQogICAgICAgIGlmIGJ5X3Rva2VuIDo9IHJlcGx5LnN0YXR1cyA9PSA0
MDAgYW5kIGIib29saW5nIHR5cGUgJ25vbmUnIiBpbiByZXBseS5ib2R5OgogICAgICAgICAgICAj
IEEgdmVjdG9yIGZvciBlYWNoIHRva2VuLCB3aGljaCB0aGlzIHBhdGggZG9lcyBub3QgaGF2ZS4K
ICAgICAgICAgICAgcmVwbHkgPSByZXF1ZXN0KHRhbGsubGluaywgdGFsay5xdWVzdGlvbiwgYXNr
ZWQsIFRPS0VOU19QQVRILCB7ImNvbnRlbnQiOiBnaXZlbn0pCiAgICAgICAgc2FpZCA9IHBhcnNl
ZChhY2NlcHRlZChyZXBseSwgYXNrZWQpLmJvZHksIGFza2VkLCB3aGF0KQogICAgICAgIHRyeToK
ICAgICAgICAgICAgZGF0YSA9IHNhaWQgaWYgYnlfdG9rZW4gZWxzZSBzYWlkWyJkYXRhIl0KICAg
ICAgICAgICAgdmVjdG9ycyA9IHtlYWNoWyJpbmRleCJdOiB0dXBsZShtYXAobnVtYmVyLCBmbGF0
KGVhY2hbImVtYmVkZGluZyJdKSkpIGZvciBlYWNoIGluIGRhdGF9CiAgICAgICAgZXhjZXB0IChM
b29rdXBFcnJvciwgVHlwZUVycm9yLCBBdHRyaWJ1dGVFcnJvciwgVmFsdWVFcnJvcik6CiAgICAg
ICAgICAgIHJhaXNlIEZhaWxlZEVycm9yKGYie2Fza2VkfSBpcyBhbnN3ZXJlZCB3aXRoIHt3aGF0
fSIpIGZyb20gTm9uZQogICAgICAgIGlmIHNvcnRlZCh2ZWN0b3JzKSAhPSBsaXN0KHJhbmdlKGNv
dW50KSkgb3IgbGVuKGRhdGEpICE9IGNvdW50OgogICAgICAgICAgICByYWlzZSBGYWlsZWRFcnJv
cihmInthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCB7d2hhdH06IG51bWJlcnMge3NvcnRlZCh2ZWN0
b3JzKX0sIG9mIHtjb3VudH0iKQogICAgICAgIGxlbmd0aHMgPSB7bGVuKGVhY2gpIGZvciBlYWNo
IGluIHZlY3RvcnMudmFsdWVzKCl9CiAgICAgICAgaWYgbm90IGFsbChhbnkodmVjdG9yKSBmb3Ig
dmVjdG9yIGluIHZlY3RvcnMudmFsdWVzKCkpIG9yIChsZW4obGVuZ3RocykgPiAxIGFuZCBub3Qg
YnlfdG9rZW4pOgogICAgICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihmInthc2tlZH0gaXMgYW5z
d2VyZWQgd2l0aCB7d2hhdH06IHplcm9zLCBvciB2ZWN0b3JzIG9mIHNldmVyYWwgbGVuZ3RocyIp
CiAgICAgICAgaWYgbGVuKHNldCh2ZWN0b3JzLnZhbHVlcygpKSkgIT0gY291bnQ6CiAgICAgICAg
ICAgIHJhaXNlIEZhaWxlZEVycm9yKGYie2Fza2VkfSBpcyBhbnN3ZXJlZCB3aXRoIHRoZSBzYW1l
IGVtYmVkZGluZyBmb3IgZGlmZmVyZW50IHRleHRzIikKCgpkZWYgZmxhdCh2ZWN0b3I6IGxpc3Rb
QW55XSkgLT4gbGlzdFtBbnldOgogICAgIiIiUmV0dXJuIGEgdmVjdG9yLCBvciB0aG9zZSBvZiBh
bGwgdG9rZW5zIGFzIG9uZS4iIiIKICAgIHJldHVybiBbZWFjaCBmb3IgcGFydCBpbiB2ZWN0b3Ig
Zm9yIGVhY2ggaW4gKHBhcnQgaWYgaXNpbnN0YW5jZShwYXJ0LCBsaXN0KSBlbHNlIFtwYXJ0XSld
CgoKZGVmIHRyeV9yZXJhbmsodGFsazogVGFsaykgLT4gTm9uZToKICAgICIiIkRvY3VtZW50cyBn
ZXQgc2NvcmVzLCBhbmQgZGlmZmVyZW50IG9uZXMuIiIiCiAgICBhc2tlZCA9ICJhIHJlcmFuayIK
ICAgIGRvY3VtZW50cyA9IFsiUmVkLCB5ZWxsb3cgYW5kIGJsdWUgYXJlIHRoZSB0aHJlZSBwcmlt
YXJ5IGNvbG91cnMuIiwgIlRoZSB0cmFpbiB0byBCZXJuIGxlYXZlcyBhdCBub29uLiIsICJDaGVl
c2UiXQogICAgYm9keSA9IHsKICAgICAgICAibW9kZWwiOiB0YWxrLnF1ZXN0aW9uLmJvZHlbIm1v
ZGVsIl0sCiAgICAgICAgInF1ZXJ5IjogIldoaWNoIGFyZSB0aGUgdGhyZWUgcHJpbWFyeSBjb2xv
dXJzPyIsCiAgICAgICAgImRvY3VtZW50cyI6IGRvY3VtZW50cywKICAgIH0KICAgIHRhbGsubGlu
ay51bnRpbCh0YWxrLmxpbWl0KFNIT1JUKSkKICAgIHJlcGx5ID0gYWNjZXB0ZWQocmVxdWVzdCh0
YWxrLmxpbmssIHRhbGsucXVlc3Rpb24sIGFza2VkLCB0YWxrLnF1ZXN0aW9uLnBhdGgsIGJvZHkp
LCBhc2tlZCkKICAgIHNhaWQgPSBwYXJzZWQocmVwbHkuYm9keSwgYXNrZWQsICJ3aGF0IGlzIG5v
IHJlcmFuayIpCiAgICB0cnk6CiAgICAgICAgc2NvcmVzID0ge2VhY2hbImluZGV4Il06IG51bWJl
cihlYWNoWyJyZWxldmFuY2Vfc2NvcmUiXSkgZm9yIGVhY2ggaW4gc2FpZFsicmVzdWx0cyJdfQog
ICAgZXhjZXB0IChMb29rdXBFcnJvciwgVHlwZUVycm9yLCBBdHRyaWJ1dGVFcnJvciwgVmFsdWVF
cnJvcik6CiAgICAgICAgcmFpc2UgRmFpbGVkRXJyb3IoZiJ7YXNrZWR9IGlzIGFuc3dlcmVkIHdp
dGggd2hhdCBpcyBubyByZXJhbmsiKSBmcm9tIE5vbmUKICAgIGlmIHNvcnRlZChzY29yZXMpICE9
IGxpc3QocmFuZ2UobGVuKGRvY3VtZW50cykpKToKICAgICAgICByYWlzZSBGYWlsZWRFcnJvcihm
Inthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCB7bGVuKHNjb3Jlcyl9IHNjb3JlcyBvZiB7bGVuKGRv
Y3VtZW50cyl9IikKICAgIGlmIGxlbihzZXQoc2NvcmVzLnZhbHVlcygpKSkgPT0gMToKICAgICAg
ICByYWlzZSBGYWlsZWRFcnJvcihmInthc2tlZH0gaXMgYW5zd2VyZWQgd2l0aCB0aGUgc2FtZSBz
Y29yZSBmb3IgZGlmZmVyZW50IGRvY3VtZW50cyIpCgoKZGVmIG51bWJlcih2YWx1ZTogQW55KSAt
PiBmbG9hdDoKICAgICIiIlJldHVybiBhIG51bWJlciB0aGF0IGEgY2xpZW50IGNhbiBjb21wdXRl
IHdpdGguIFJhaXNlcyBWYWx1ZUVycm9yIHdoZXJlIGl0IGlzIG5vbmUuIiIiCiAgICBpZiAoCiAg
ICAgICAgaXNpbnN0YW5jZSh2YWx1ZSwgYm9vbCkKICAgICAgICBvciBub3QgaXNpbnN0YW5jZSh2
YWx1ZSwgKGludCwgZmxvYXQpKQogICAgICAgIG9yIG5vdCBtYXRoLmlzZmluaXRlKHZhbHVlKQog
ICAgICAgIG9yIGFicyh2YWx1ZSkgPiAzLjRlMzgKICAgICk6CiAgICAgICAgcmFpc2UgVmFsdWVF
cnJvcgogICAgcmV0dXJuIGZsb2F0KHZhbHVlKQoKClBST1ZFUyA9IHsiZW1iZWRkaW5ncyI6IFN0
ZXAoImFuIGVtYmVkZGluZyIsIHRyeV9lbWJlZGRpbmcpLCAicmVyYW5rIjogU3RlcCgiYSByZXJh
bmsiLCB0cnlfcmVyYW5rKX0KIiIiVGhlIGZpcnN0IHN0ZXAgb2YgYSBzZXJ2ZXIgdGhhdCBjb21w
bGV0ZXMgbm8gcHJvbXB0cy4iIiIKClNURVBTID0gKAogICAgU3RlcCgiaXRzIGFkZHJlc3NlcyIs
IHRyeV9saXN0ZW5pbmcpLAogICAgU3RlcCgiaXRzIHBhZ2VzIiwgdHJ5X3BhZ2VzKSwKICAgIFN0
ZXAoIml0cyBrZXkiLCB0cnlfa2V5LCAxNiwgMSksCikKQ0hBVF9TVEVQUyA9ICgKICAgIFN0ZXAo
ImEgc3RyZWFtIiwgdHJ5X3N0cmVhbSwgOCwgU0hPUlQpLAogICAgU3RlcCgic2V2ZXJhbCB0dXJu
cyIsIHRyeV90dXJucywgNjAsIFNIT1JUKSwKICAgIFN0ZXAoImEgc3lzdGVtIG1lc3NhZ2UiLCB0
cnlfc3lzdGVtLCAxNiwgU0hPUlQpLAogICAgU3RlcCgiYSBKU09OIHNjaGVtYSIsIHRyeV9zY2hl
bWEsIDE2LCBGT1JNRUQpLAogICAgU3RlcCgidG9vbHMiLCB0cnlfdG9vbHMsIDEyMCwgQ0FMTEVE
KSwKICAgIFN0ZXAoInR3byBwcm9tcHRzIGF0IG9uY2UiLCB0cnlfdHdvLCAxNiwgMiArIEZPUk1F
RCksCiAgICBTdGVwKCJhIGxvbmcgcHJvbXB0IiwgdHJ5X2xvbmcsIDAsIFNIT1JUKSwKICAgICMg
TGFzdCwgc2luY2UgaXRzIHJlc3BvbnNlIG1heSBzdGlsbCBiZSB3cml0dGVuIHdoZW4gdGhlIG5l
eHQgc3RlcCBiZWdpbnMuCiAgICBTdGVwKCJhIGNsaWVudCB0aGF0IGxlYXZlcyIsIHRyeV9sZWF2
aW5nLCAxNiwgMiAqIFNIT1JUKSwKKQpMQVNUID0gU3RlcCgiaXRzIGhlYWx0aCIsIHRyeV9oZWFs
dGgpCgoKZGVmIHByb3ZlKHRhbGs6IFRhbGssIHN0ZXBzOiBTZXF1ZW5jZVtTdGVwXSkgLT4gTm9u
ZToKICAgICIiIkRvIHRoZSBzdGVwcyB0aGF0IHRoaXMgaG9zdCBoYXMgdGltZSBmb3IuIFJhaXNl
cyBGYWlsZWRFcnJvciBhdCB0aGUgZmlyc3QgdGhhdCBmYWlscy4iIiIKICAgIHNsb3cgPSBbXQog
ICAgZm9yIHN0ZXAgaW4gc3RlcHM6CiAgICAgICAgdGFsay50ZWxsKHN0ZXAubmFtZSkKICAgICAg
ICB0b29rID0gdGltZS5tb25vdG9uaWMoKSAtIHRhbGsuYmVnYW4KICAgICAgICBpZiBzdGVwLnRv
a2VucyBhbmQgdG9vayArIHRhbGsuZXhwZWN0ZWQoc3RlcC5wcm9tcHQsIHN0ZXAudG9rZW5zKSA+
IEJVREdFVDoKICAgICAgICAgICAgc2xvdy5hcHBlbmQoc3RlcC5uYW1lKQogICAgICAgICAgICBj
b250aW51ZQogICAgICAgIHRhbGsub3RoZXJzID0gYm9vbChzdGVwLnRva2VucykgYW5kIHN0YXlz
X2J1c3kodGFsay5xdWVzdGlvbiwgTEVBVklOR19TRUNPTkRTKQogICAgICAgIHRyeToKICAgICAg
ICAgICAgc3RlcC5ydW4odGFsaykKICAgICAgICBleGNlcHQgTGVmdE91dEVycm9yOgogICAgICAg
ICAgICBjb250aW51ZQogICAgICAgIGV4Y2VwdCBGYWlsZWRFcnJvciBhcyBlcnJvcjoKICAgICAg
ICAgICAgaWYgbm90IHRhbGsub3RoZXJzIG9yIG5vdCBpc2luc3RhbmNlKGVycm9yLCBOb1Jlc3Bv
bnNlRXJyb3IpOgogICAgICAgICAgICAgICAgcmFpc2UKICAgICAgICAgICAgdGFsay5saW5rLmNs
b3NlKCkKICAgICAgICAgICAgc2xvdy5hcHBlbmQoc3RlcC5uYW1lKQogICAgaWYgc2xvdzoKICAg
ICAgICB3aHkgPSAiaXQgcmVzcG9uZHMgdG8gb3RoZXIgY2xpZW50cyIgaWYgdGFsay5vdGhlcnMg
ZWxzZSBmIml0IHdyaXRlcyB7dGFsay53cml0ZXM6LjFmfSB0b2tlbnMvcyIKICAgICAgICBwcm9n
cmVzcyhmIm5vdCB0cmllZCwgc2luY2Uge3doeX06IHsnLCAnLmpvaW4oc2xvdyl9IikKCgpkZWYg
cHJvYmUocXVlc3Rpb246IFF1ZXN0aW9uLCBzZWNvbmRzOiBmbG9hdCkgLT4gdHVwbGVbaW50LCBz
dHJdOgogICAgIiIiUmV0dXJuIGFuIGV4aXQgY29kZSBhbmQgYSByZWFzb24sIGJ5IGEgcHJvbXB0
IGFuZCBhIHN0cmVhbSwgb3IgYW4gZW1iZWRkaW5nLCB3aXRoaW4gc28gbWFueSBzZWNvbmRzLiIi
IgogICAgZGVhZGxpbmUgPSB0aW1lLm1vbm90b25pYygpICsgc2Vjb25kcwogICAgdGFsayA9IFRh
bGsocXVlc3Rpb24sIGRlYWRsaW5lLCBMaW5rKHF1ZXN0aW9uLnVybCwgZGVhZGxpbmUpLCBvdGhl
cnM9VHJ1ZSkKICAgIHRyeToKICAgICAgICBpZiBxdWVzdGlvbi5raW5kIGluIFBST1ZFUzoKICAg
ICAgICAgICAgUFJPVkVTW3F1ZXN0aW9uLmtpbmRdLnJ1bih0YWxrKQogICAgICAgIGVsc2U6CiAg
ICAgICAgICAgIHNlZXNfdGV4dCh0YWxrLCAiYSBwcm9tcHQiKQogICAgICAgICAgICB0cnlfc3Ry
ZWFtKHRhbGspCiAgICBleGNlcHQgRmFpbGVkRXJyb3IgYXMgZXJyb3I6CiAgICAgICAgcmV0dXJu
ICgzIGlmIGlzaW5zdGFuY2UoZXJyb3IsIE5vUmVzcG9uc2VFcnJvcikgZWxzZSAxKSwgc3RyKGVy
cm9yKQogICAgcmV0dXJuIDAsICIiCgoKIyBBZnRlciBhIHN3aXRjaC4KCgpkZWYgbWFpbihwYXRo
OiBzdHIsIHJlY29yZDogc3RyLCBvdXQ6IHN0ciwgaG93OiBzdHIsICpwaWRzOiBzdHIpIC0+IHR1
cGxlW2ludCwgc3RyXToKICAgICIiIlJldHVybiBhbiBleGl0IGNvZGUgYW5kIGEgcmVhc29uLgoK
ICAgIGByZWNvcmRgOiB0aGUgc3BlZWRzIHRoYXQgYXJlIGtub3duOyBgb3V0YDogd2hlcmUgdGhl
eSBnbyB3aXRoIHRoaXMgb25lLgogICAgYGhvd2A6IGBqdWRnZWAgZm9yIG9uZSB0aGF0IG1heSBi
ZSB0YWtlbiBiYWNrIGZvciBpdHMgc3BlZWQsIGBhbnlgIHdoZXJlIGFueSBzcGVlZCB3aWxsIGRv
IGZyb20gbm93IG9uLCBgYmFja2AgZm9yCiAgICBvbmUgdGhhdCB3YXMgcHV0IGJhY2ssIGBiZXNp
ZGVgIGZvciBvbmUgdGhhdCBpcyB0cmllZCBzaWRlIGJ5IHNpZGUsIGFuZCBub3RoaW5nIGZvciBv
bmUgdGhhdCBpcyBzdGFydGVkIGFzIGJlZm9yZS4KICAgIGBwaWRzYCBhcmUgaXRzIHByb2Nlc3Nl
cy4gV2hhdCB3YXMgcHV0IGJhY2ssIG9yIHByb3ZlZCBzaWRlIGJ5IHNpZGUgYSBtb21lbnQgYWdv
IChQUk9WRUQpLCBpcyBwcm92ZWQgaW4gc2hvcnQuCiAgICAiIiIKICAgIHF1ZXN0aW9uID0gcmVh
ZF9xdWVzdGlvbihwYXRoLCBwaWRzKQogICAgbGltaXQgPSBGSVJTVF9TRUNPTkRTCiAgICBpZiAo
cmVzdCA6PSBvcy5lbnZpcm9uLmdldCgiTEVGVCIsICIiKSkuaXNkZWNpbWFsKCk6CiAgICAgICAg
bGltaXQgPSBtYXgobGltaXQsIGludChyZXN0KSkKICAgIGZpcnN0X2VuZCA9IHRpbWUubW9ub3Rv
bmljKCkgKyBtaW4obGltaXQsIHF1ZXN0aW9uLnNlY29uZHMpCiAgICBkZWFkbGluZSA9IGZpcnN0
X2VuZCArIExBVEVSX1NFQ09ORFMKICAgIHRhbGsgPSBUYWxrKHF1ZXN0aW9uLCBmaXJzdF9lbmQs
IExpbmsocXVlc3Rpb24udXJsLCBmaXJzdF9lbmQpKQogICAgc2hvcnQgPSBob3cgPT0gImJhY2si
IG9yIGJvb2wob3MuZW52aXJvbi5nZXQoIlBST1ZFRCIpKQogICAgdHJ5OgogICAgICAgIGlmIHF1
ZXN0aW9uLmtpbmQgaW4gUFJPVkVTOgogICAgICAgICAgICB0YWxrLmRlYWRsaW5lID0gZmlyc3Rf
ZW5kCiAgICAgICAgICAgIFBST1ZFU1txdWVzdGlvbi5raW5kXS5ydW4odGFsaykKICAgICAgICAg
ICAgdGFsay5kZWFkbGluZSA9IGRlYWRsaW5lCiAgICAgICAgICAgIHByb3ZlKHRhbGssICgpIGlm
IHNob3J0IGVsc2UgKCpTVEVQUywgTEFTVCkpCiAgICAgICAgICAgIHJldHVybiAwLCAiIgogICAg
ICAgIGZpcnN0ID0gYXNrKHRhbGssIGZpcnN0X2VuZCkKICAgICAgICB0YWxrLmRlYWRsaW5lID0g
ZGVhZGxpbmUKICAgICAgICB0YWxrLmJlZ2FuID0gdGltZS5tb25vdG9uaWMoKQogICAgICAgIGlm
IHdoeSA6PSB1bmRyYWZ0ZWQocXVlc3Rpb24sIGZpcnN0KToKICAgICAgICAgICAgcmV0dXJuIDIs
IHdoeQogICAgICAgIGlmIHNob3J0OgogICAgICAgICAgICB0YWxrLm90aGVycyA9IFRydWUKICAg
ICAgICAgICAgdHJ5X3N0cmVhbSh0YWxrKQogICAgICAgIGVsc2U6CiAgICAgICAgICAgIHByb3Zl
KHRhbGssICgqU1RFUFMsICpDSEFUX1NURVBTLCBMQVNUKSkKICAgICAgICBrbm93biA9IHNwZWVk
cyhyZWNvcmQpCiAgICAgICAgaWYgaG93ID09ICJiZXNpZGUiOgogICAgICAgICAgICByZXR1cm4g
MCwgIiIKICAgICAgICBpZiBob3cgPT0gImJhY2siOgogICAgICAgICAgICBwdXRfYmFjayh0YWxr
LCBmaXJzdCwga25vd24sIFBhdGgob3V0KSkKICAgICAgICAgICAgcmV0dXJuIDAsICIiCiAgICAg
ICAgcmV0dXJuIGp1ZGdlZCh0YWxrLCBmaXJzdCwga25vd24sIFBhdGgob3V0KSwgaG93KQogICAg
ZXhjZXB0IEZhaWxlZEVycm9yIGFzIGVycm9yOgogICAgICAgIHJldHVybiAxLCBzdHIoZXJyb3Ip
CgoKZGVmIGp1ZGdlZCh0YWxrOiBUYWxrLCBmaXJzdDogQW5zd2VyLCBrbm93bjogU3BlZWRzLCBv
dXQ6IFBhdGgsIGhvdzogc3RyKSAtPiB0dXBsZVtpbnQsIHN0cl06CiAgICBxdWVzdGlvbiA9IHRh
bGsucXVlc3Rpb24KICAgIGZsb29yLCBiZWZvcmUgPSBxdWVzdGlvbi5mbG9vciwgdXN1YWwocXVl
c3Rpb24sIGtub3duKQogICAgaWYgaG93ID09ICJhbnkiIGFuZCBub3QgZmxvb3IgYW5kICh0aGVu
IDo9IG93bl9zcGVlZHMocXVlc3Rpb24sIGtub3duKSk6CiAgICAgICAga2VlcChbKm90aGVycyhx
dWVzdGlvbiwga25vd24pLCAqdGhlbl0sIG91dCkKICAgICAgICByZXR1cm4gMCwgIiIKICAgIGJl
c3QsIGFsb25lID0gbWVhc3VyZWQodGFsaywgZmlyc3QsIGZsb29yIG9yIChGTE9PUiAqIGJlZm9y
ZSBpZiBob3cgPT0gImp1ZGdlIiBlbHNlIDApKQogICAgaWYgKGRlY2xhcmVkIDo9IG1heChiZXN0
LCBmaXJzdC5yYXRlKSkgPCBmbG9vcjoKICAgICAgICByZXR1cm4gMiwgZiJpdCBkZWNvZGVzIHtk
ZWNsYXJlZDouMWZ9IHRva2Vucy9zLCBhbmQgYGV4cGVjdGAgYWxsb3dzIG5vIGxlc3MgdGhhbiB7
Zmxvb3I6Z30iCiAgICBpZiBub3QgYWxvbmUgb3Igbm90IGJlc3Qgb3Igbm90IHF1ZXN0aW9uLnNh
bWU6CiAgICAgICAgcmV0dXJuIDAsICIiCiAgICBzbG93ID0gYmVzdCA8IEZMT09SICogYmVmb3Jl
CiAgICBpZiBzbG93IGFuZCBob3cgPT0gImp1ZGdlIiBhbmQgbm90IGZsb29yOgogICAgICAgIFBh
dGgoZiJ7b3V0fS5zbG93Iikud3JpdGVfdGV4dChzdHIoYmVzdCksIGVuY29kaW5nPSJ1dGYtOCIp
CiAgICAgICAgd2h5ID0gZiJpdCBkZWNvZGVzIHtiZXN0Oi4xZn0gdG9rZW5zL3MsIGFuZCB0aGUg
c2FtZSBtb2RlbCBkZWNvZGVkIHtiZWZvcmU6LjFmfSBoZXJlIGJlZm9yZSIKICAgICAgICByZXR1
cm4gMiwgd2h5ICsgIjogYGV4cGVjdDoge2RlY29kZTogIiArIGYie21heChiZXN0LCAwLjEpOi4x
Zn0iICsgIn1gIG9yIGBoZXJkIHVwIC0tcmV0cnlgIGhhcyBpdCBzbyIKICAgIGlmIGZsb29yIG9y
IGhvdyA9PSAiYW55IiBvciBub3Qgc2xvdzoKICAgICAgICB3cml0ZShxdWVzdGlvbiwgb3RoZXJz
KHF1ZXN0aW9uLCBrbm93bikgaWYgc2xvdyBlbHNlIGtub3duLCBiZXN0LCBvdXQpCiAgICByZXR1
cm4gMCwgIiIKCgpkZWYgcHV0X2JhY2sodGFsazogVGFsaywgZmlyc3Q6IEFuc3dlciwga25vd246
IFNwZWVkcywgb3V0OiBQYXRoKSAtPiBOb25lOgogICAgIiIiV3JpdGUgd2hhdCBpcyBrbm93biBm
cm9tIG5vdyBvbiwgd2hlcmUgdGhpcyBvbmUgaXMgYXMgc2xvdyBpdHNlbGYgYXMgd2hhdCBpdCB3
YXMgcHV0IGJhY2sgZm9yLiIiIgogICAgc2xvdyA9IFBhdGgoZiJ7b3V0fS5zbG93IikKICAgIGlm
IHRhbGsucXVlc3Rpb24uc2FtZSBhbmQgc2xvdy5leGlzdHMoKToKICAgICAgICBvdGhlciA9IGZs
b2F0KHNsb3cucmVhZF90ZXh0KGVuY29kaW5nPSJ1dGYtOCIpKQogICAgICAgIGJlc3QsIGFsb25l
ID0gbWVhc3VyZWQodGFsaywgZmlyc3QsIG90aGVyIC8gRkxPT1IgKiAxLjAwMSkKICAgICAgICBp
ZiBhbG9uZSBhbmQgMCA8IGJlc3QgKiBGTE9PUiA8PSBvdGhlcjoKICAgICAgICAgICAgd3JpdGUo
dGFsay5xdWVzdGlvbiwgb3RoZXJzKHRhbGsucXVlc3Rpb24sIGtub3duKSwgYmVzdCwgb3V0KQoK
CmRlZiBtZWFzdXJlZCh0YWxrOiBUYWxrLCBmaXJzdDogQW5zd2VyLCBlbm91Z2g6IGZsb2F0KSAt
PiB0dXBsZVtmbG9hdCwgYm9vbF06CiAgICAiIiJSZXR1cm4gdGhlIGJlc3Qgb2YgYSBmZXcgdHJp
ZXMsIDAgd2hlcmUgbm8gc3BlZWQgaXMgdG9sZCwgYW5kIHdoZXRoZXIgaXQgcmVzcG9uZGVkIHRv
IG5vYm9keSBlbHNlIHRoZW4uIiIiCiAgICBiZXN0ID0gZmlyc3QucmF0ZSBpZiBmaXJzdC5jb3Vu
dHMgYW5kIGZpcnN0LnRva2VucyA+IFRPS0VOUyBlbHNlIDAuMAogICAgYWxvbmUgPSBub3QgaW5f
ZmxpZ2h0KHRhbGsucXVlc3Rpb24pCiAgICBtb3N0ID0gbWF4KFRPS0VOUywgbWluKE1PU1RfVE9L
RU5TLCBpbnQoZmlyc3QucmF0ZSAqIFNFQ09ORFMpKSkKICAgIGZvciBfIGluIHJhbmdlKChUUklF
UyBpZiBlbm91Z2ggZWxzZSAxKSBpZiBmaXJzdC5yYXRlIGVsc2UgMCk6CiAgICAgICAgaWYgbm90
IGFsb25lIG9yIChiZXN0IGFuZCBiZXN0ID49IGVub3VnaCk6CiAgICAgICAgICAgIGJyZWFrCiAg
ICAgICAgdGFsay5vdGhlcnMgPSBGYWxzZQogICAgICAgIHNhaWQgPSBhc2sodGFsaywgdGFsay5s
aW1pdChtb3N0KSwgbW9zdCkKICAgICAgICBhbG9uZSA9IG5vdCBpbl9mbGlnaHQodGFsay5xdWVz
dGlvbikKICAgICAgICBiZXN0ID0gbWF4KGJlc3QsIHNhaWQucmF0ZSBpZiBzYWlkLmNvdW50cyBl
bHNlIDApCiAgICByZXR1cm4gYmVzdCwgYWxvbmUKCgpkZWYgYXNrKHRhbGs6IFRhbGssIGRlYWRs
aW5lOiBmbG9hdCwgdG9rZW5zOiBpbnQgPSAwKSAtPiBBbnN3ZXI6CiAgICAiIiJSZXR1cm4gd2hh
dCBpcyBtZWFzdXJlZCBvZiB0aGUgcHJvbXB0LCBvZiB3aGljaCBhIHBlcnNvbiBjYW4gc2VlIHNv
bWV0aGluZy4iIiIKICAgIHF1ZXN0aW9uLCBhc2tlZCA9IHRhbGsucXVlc3Rpb24sICJhIHByb21w
dCIKICAgIGJvZHkgPSBxdWVzdGlvbi5ib2R5IHwgKHsibWF4X3Rva2VucyI6IHRva2Vuc30gaWYg
dG9rZW5zIGVsc2Uge30pCiAgICB0YWxrLmxpbmsudW50aWwoZGVhZGxpbmUpCiAgICBiZWZvcmUg
PSBjb21wdXRlZChxdWVzdGlvbi5waWRzKQogICAgcmVwbHkgPSBhY2NlcHRlZChyZXF1ZXN0KHRh
bGsubGluaywgcXVlc3Rpb24sIGFza2VkLCBxdWVzdGlvbi5wYXRoLCBib2R5KSwgYXNrZWQpCiAg
ICBhZnRlciA9IGNvbXB1dGVkKHF1ZXN0aW9uLnBpZHMpCiAgICBzYWlkID0gcGFyc2VkKHJlcGx5
LmJvZHksIGFza2VkLCBOT19DSEFUKQogICAgZm91bmQgPSBjb21wbGV0aW9uKHNhaWQsIGJvZHks
IHF1ZXN0aW9uLCBhc2tlZCkKICAgIHRhbGsubGVhcm4oYm9keSwgc2FpZCwgcmVwbHkuc2Vjb25k
cykKICAgIGlmIG5vdCB0b2tlbnM6CiAgICAgICAgc2Vlbih0YWxrLCBhc2tlZCwgZm91bmQsIHRh
bGsuYXNrKQogICAgdHJ5OgogICAgICAgIHJldHVybiB0aW1lZChzYWlkLmdldCgidGltaW5ncyIs
IHt9KSwgY3Jvd2RlZChiZWZvcmUsIGFmdGVyKSkKICAgIGV4Y2VwdCAoVmFsdWVFcnJvciwgTG9v
a3VwRXJyb3IsIFR5cGVFcnJvciwgQXR0cmlidXRlRXJyb3IsIE92ZXJmbG93RXJyb3IpOgogICAg
ICAgIHJhaXNlIEZhaWxlZEVycm9yKGYie2Fza2VkfSBpcyBhbnN3ZXJlZCB3aXRoIHtOT19DSEFU
fSIpIGZyb20gTm9uZQoKCmRlZiB0aW1lZChzYWlkOiBNYXBwaW5nW3N0ciwgQW55XSwgY3Jvd2Rl
ZDogYm9vbCkgLT4gQW5zd2VyOgogICAgIiIiVGhlIGZpcnN0IHRva2VuIGNvbWVzIHdpdGggdGhl
IHByb21wdDogb2YgdGhvc2UgYWZ0ZXIgaXQsIGVuZ2luZXMgY291bnQgb25lIG1vcmUgb3IgbGVz
cyBpbiB0aGUgc2FtZSB0aW1lLiIiIgogICAgY291bnQsIHNlY29uZHMgPSBpbnQoc2FpZC5nZXQo
InByZWRpY3RlZF9uIiwgMCkpLCBmbG9hdChzYWlkLmdldCgicHJlZGljdGVkX21zIiwgMCkpIC8g
MTAwMAogICAgZHJhZnRlZCwgYWNjZXB0ZWQgPSBpbnQoc2FpZC5nZXQoImRyYWZ0X24iLCAwKSks
IGludChzYWlkLmdldCgiZHJhZnRfbl9hY2NlcHRlZCIsIDApKQogICAgcmF0ZSA9IChjb3VudCAt
IDEpIC8gc2Vjb25kcyBpZiBzZWNvbmRzID4gMCBhbmQgY291bnQgPiAxIGVsc2UgMC4wCiAgICBy
ZXR1cm4gQW5zd2VyKGNvdW50LCBkcmFmdGVkLCBhY2NlcHRlZCwgcmF0ZSwgY291bnQgPj0gVE9L
RU5TIGFuZCBzZWNvbmRzID49IExFQVNUX1NFQ09ORFMgYW5kIG5vdCBjcm93ZGVkKQoKCmRlZiBj
b21wdXRlZChwaWRzOiBJdGVyYWJsZVtzdHJdKSAtPiB0dXBsZVtpbnQsIGludF06CiAgICAiIiJI
b3cgbG9uZyBhbGwgcHJvY2Vzc29ycyBoYXZlIGJlZW4gdGhlcmUsIGFuZCBob3cgbG9uZyB0aGV5
IGhhdmUgY29tcHV0ZWQgZm9yIG90aGVycywgaW4gdGhlIGtlcm5lbCdzIHRpY2tzLiIiIgogICAg
dHJ5OgogICAgICAgIHdpdGggUGF0aCgiL3Byb2Mvc3RhdCIpLm9wZW4oZW5jb2Rpbmc9InV0Zi04
IikgYXMgc3RhdDoKICAgICAgICAgICAgdXNlciwgbmljZSwgc3lzdGVtLCBpZGxlLCB3YWl0aW5n
LCAqbW9yZSA9IG1hcChpbnQsIHN0YXQucmVhZGxpbmUoKS5zcGxpdCgpWzE6OV0pCiAgICBleGNl
cHQgKE9TRXJyb3IsIFZhbHVlRXJyb3IpOgogICAgICAgIHJldHVybiAwLCAwCiAgICBidXN5ID0g
dXNlciArIG5pY2UgKyBzeXN0ZW0gKyBzdW0obW9yZSkKICAgIHJldHVybiBidXN5ICsgaWRsZSAr
IHdhaXRpbmcsIGJ1c3kgLSBzdW0obWFwKG93biwgcGlkcykpCgoKZGVmIG93bihwaWQ6IHN0cikg
LT4gaW50OgogICAgd2l0aCBzdXBwcmVzcyhPU0Vycm9yLCBWYWx1ZUVycm9yLCBJbmRleEVycm9y
KToKICAgICAgICBmaWVsZHMgPSBQYXRoKCIvcHJvYyIsIHBpZCwgInN0YXQiKS5yZWFkX3RleHQo
ZW5jb2Rpbmc9InV0Zi04IikucnBhcnRpdGlvbigiKSIpWzJdLnNwbGl0KCkKICAgICAgICByZXR1
cm4gaW50KGZpZWxkc1sxMV0pICsgaW50KGZpZWxkc1sxMl0pCiAgICByZXR1cm4gMAoKCmRlZiBj
cm93ZGVkKGJlZm9yZTogdHVwbGVbaW50LCBpbnRdLCBhZnRlcjogdHVwbGVbaW50LCBpbnRdKSAt
PiBib29sOgogICAgcmV0dXJuIGFmdGVyWzFdIC0gYmVmb3JlWzFdID4gQ1JPV0RFRCAqIChhZnRl
clswXSAtIGJlZm9yZVswXSkKCgpkZWYgaW5fZmxpZ2h0KHF1ZXN0aW9uOiBRdWVzdGlvbikgLT4g
Ym9vbDoKICAgICIiIldoZXRoZXIgaXQgcmVzcG9uZHMgdG8gb3RoZXJzLCBvciB3aGF0IHdhcyB0
cmllZCBiZXNpZGUgaXQgZG9lcywgb24gdGhlIHNhbWUgR1BVIGl0IG1heSBiZS4iIiIKICAgIGJl
c2lkZSA9IG9zLmVudmlyb24uZ2V0KCJCRVNJREUiKQogICAgcmV0dXJuIGJ1c3kocXVlc3Rpb24p
IG9yIGJvb2woYmVzaWRlIGFuZCBidXN5KHJlYWRfcXVlc3Rpb24oYmVzaWRlLCAoKSkpKQoKCmRl
ZiBidXN5KHF1ZXN0aW9uOiBRdWVzdGlvbikgLT4gYm9vbDoKICAgIHJldHVybiBhbnkoYnVzeV9h
dCh1cmwsIHF1ZXN0aW9uKSBmb3IgdXJsIGluIHF1ZXN0aW9uLm1ldHJpY3MpCgoKZGVmIHN0YXlz
X2J1c3kocXVlc3Rpb246IFF1ZXN0aW9uLCBzZWNvbmRzOiBmbG9hdCkgLT4gYm9vbDoKICAgICIi
IlJldHVybiB3aGV0aGVyIHJlcXVlc3RzIG9mIG90aGVycyBhcmUgaW4gZmxpZ2h0OiBhIHNlcnZl
ciBtYXkgY291bnQgb25lIG9mIG91cnMgZm9yIGEgbW9tZW50IGFmdGVyIGl0cyBlbmQuIiIiCiAg
ICBlbmQgPSB0aW1lLm1vbm90b25pYygpICsgc2Vjb25kcwogICAgd2hpbGUgYnVzeShxdWVzdGlv
bik6CiAgICAgICAgaWYgdGltZS5tb25vdG9uaWMoKSA+IGVuZDoKICAgICAgICAgICAgcmV0dXJu
IFRydWUKICAgICAgICB0aW1lLnNsZWVwKDAuMDIpCiAgICByZXR1cm4gRmFsc2UKCgpkZWYgYnVz
eV9hdCh1cmw6IHN0ciwgcXVlc3Rpb246IFF1ZXN0aW9uKSAtPiBib29sOgogICAgIiIiV2hldGhl
ciByZXF1ZXN0cyBhcmUgaW4gZmxpZ2h0LCBhcyBmYXIgYXMgaXQgdGVsbHM7IG9uZSB0aGF0IGlz
IHRvbyBidXN5IHRvIHRlbGwgaGFzIHNvbWUuIiIiCiAgICBwYXJ0cyA9IHVybHNwbGl0KHVybCkK
ICAgIGxpbmsgPSBMaW5rKHVybCwgdGltZS5tb25vdG9uaWMoKSArIDIpCiAgICB0cnk6CiAgICAg
ICAgcmVwbHkgPSBiZWdpbihsaW5rLCBxdWVzdGlvbiwgZiJ7cGFydHMucGF0aH0/e3BhcnRzLnF1
ZXJ5fSIgaWYgcGFydHMucXVlcnkgZWxzZSBwYXJ0cy5wYXRoLCBOb25lKQogICAgICAgIHNhaWQg
PSByZXBseS5yZWFkKExBUkdFU1QpLmRlY29kZShlcnJvcnM9InJlcGxhY2UiKQogICAgICAgIGxp
bmsuY2xvc2UoKQogICAgZXhjZXB0IFRpbWVvdXRFcnJvcjoKICAgICAgICByZXR1cm4gVHJ1ZQog
ICAgZXhjZXB0IChPU0Vycm9yLCBodHRwLmNsaWVudC5IVFRQRXhjZXB0aW9uKToKICAgICAgICBy
ZXR1cm4gRmFsc2UKICAgIHJldHVybiBhbnkoZmxvYXQoZWFjaCkgZm9yIGVhY2ggaW4gQlVTWS5m
aW5kYWxsKHNhaWQpKQoKCmRlZiB1bmRyYWZ0ZWQocXVlc3Rpb246IFF1ZXN0aW9uLCBzYWlkOiBB
bnN3ZXIpIC0+IHN0cjoKICAgIGlmIHF1ZXN0aW9uLmRyYWZ0cyBhbmQgbm90IHNhaWQuZHJhZnRl
ZDoKICAgICAgICByZXR1cm4gIm5vIHRva2VuIHdhcyBkcmFmdGVkLCB0aG91Z2ggZHJhZnRpbmcg
aXMgZGVjbGFyZWQiCiAgICBpZiBxdWVzdGlvbi5kcmFmdHMgYW5kIHNhaWQuZHJhZnRlZCA+PSBx
dWVzdGlvbi5kcmFmdHMgYW5kIG5vdCBzYWlkLmFjY2VwdGVkOgogICAgICAgIHJldHVybiBmIm5v
bmUgb2Yge3NhaWQuZHJhZnRlZH0gZHJhZnRlZCB0b2tlbnMgd2FzIGFjY2VwdGVkOiB3aGF0IGRy
YWZ0cyBkb2VzIG5vdCBmaXQgdGhlIG1vZGVsIgogICAgcmV0dXJuICIiCgoKZGVmIHNwZWVkcyhy
ZWNvcmQ6IHN0cikgLT4gU3BlZWRzOgogICAgIiIiVGhvc2UgdGhhdCBhcmUga25vd24sIHRoZSBu
ZXdlc3QgbGFzdC4iIiIKICAgIHdpdGggc3VwcHJlc3MoT1NFcnJvciwgVmFsdWVFcnJvcik6CiAg
ICAgICAgcmV0dXJuIGxpc3QoanNvbi5sb2FkcyhQYXRoKHJlY29yZCkucmVhZF90ZXh0KGVuY29k
aW5nPSJ1dGYtOCIpKSkKICAgIHJldHVybiBbXQoKCmRlZiB1c3VhbChxdWVzdGlvbjogUXVlc3Rp
b24sIGtub3duOiBTcGVlZHMpIC0+IGZsb2F0OgogICAgIiIiV2hhdCB0aGUgc2FtZSBtb2RlbCBk
ZWNvZGVkIG9uIHRoZSBzYW1lIEdQVXM7IG9uZSB0aGF0IGRvZXMgbm90IGRyYWZ0IGlzIG5vdCBo
ZWxkIHRvIG9uZSB0aGF0IGRpZC4iIiIKICAgIGFsaWtlID0gW2VhY2ggZm9yIGVhY2ggaW4ga25v
d24gaWYgZWFjaFsic2FtZSJdID09IHF1ZXN0aW9uLnNhbWUgYW5kIGVhY2hbImRyYWZ0cyJdIDw9
IGJvb2wocXVlc3Rpb24uZHJhZnRzKV0KICAgIHJldHVybiBzdGF0aXN0aWNzLm1lZGlhbl9sb3co
ZWFjaFsicmF0ZSJdIGZvciBlYWNoIGluIGFsaWtlWy1SRUNFTlQ6XSkgaWYgYWxpa2UgZWxzZSAw
LjAKCgpkZWYgb3RoZXJzKHF1ZXN0aW9uOiBRdWVzdGlvbiwga25vd246IFNwZWVkcykgLT4gU3Bl
ZWRzOgogICAgIiIiU3BlZWRzIG9mIG90aGVyIG1vZGVsczogd2hhdCB3YXMga25vd24gb2YgdGhp
cyBvbmUgaXMgc28gbm8gbW9yZS4iIiIKICAgIHJldHVybiBbZWFjaCBmb3IgZWFjaCBpbiBrbm93
biBpZiBlYWNoWyJzYW1lIl0gIT0gcXVlc3Rpb24uc2FtZV0KCgpkZWYgb3duX3NwZWVkcyhxdWVz
dGlvbjogUXVlc3Rpb24sIGtub3duOiBTcGVlZHMpIC0+IFNwZWVkczoKICAgICIiIldoYXQgdGhl
IHZlcnkgc2FtZSBzZXJ2ZXIgZGVjb2RlZCBoZXJlLCBpZiBpdCB3YXMgbWVhc3VyZWQuIiIiCiAg
ICBhbGlrZSA9IChlYWNoIGZvciBlYWNoIGluIGtub3duIGlmIGVhY2hbInNhbWUiXSA9PSBxdWVz
dGlvbi5zYW1lIGFuZCBlYWNoWyJkcmFmdHMiXSA9PSBib29sKHF1ZXN0aW9uLmRyYWZ0cykpCiAg
ICByZXR1cm4gW2VhY2ggZm9yIGVhY2ggaW4gYWxpa2UgaWYgcXVlc3Rpb24uc3BlYyBpcyBub3Qg
Tm9uZSBhbmQgZWFjaC5nZXQoInNwZWMiKSA9PSBxdWVzdGlvbi5zcGVjXQoKCmRlZiB3cml0ZShx
dWVzdGlvbjogUXVlc3Rpb24sIGtub3duOiBTcGVlZHMsIGJlc3Q6IGZsb2F0LCBvdXQ6IFBhdGgp
IC0+IE5vbmU6CiAgICBvbmUgPSB7InNhbWUiOiBxdWVzdGlvbi5zYW1lLCAic3BlYyI6IHF1ZXN0
aW9uLnNwZWMsICJkcmFmdHMiOiBib29sKHF1ZXN0aW9uLmRyYWZ0cyksICJyYXRlIjogcm91bmQo
YmVzdCwgMyl9CiAgICBrZWVwKFsqa25vd24sIG9uZV0sIG91dCkKCgpkZWYga2VlcChrbm93bjog
U3BlZWRzLCBvdXQ6IFBhdGgpIC0+IE5vbmU6CiAgICBvdXQud3JpdGVfdGV4dChqc29uLmR1bXBz
KGtub3duWy1NT1NUOl0pLCBlbmNvZGluZz0idXRmLTgiKQoKCmRlZiBydW4oYXJndW1lbnRzOiBT
ZXF1ZW5jZVtzdHJdKSAtPiB0dXBsZVtpbnQsIHN0cl06CiAgICAiIiJSZXR1cm4gYW4gZXhpdCBj
b2RlLCBhbmQgd2hhdCB0byBwcmludC4iIiIKICAgIGlmIGFyZ3VtZW50c1swXSA9PSAiLS1zaG9y
dCI6CiAgICAgICAgcmV0dXJuIHByb2JlKHJlYWRfcXVlc3Rpb24oYXJndW1lbnRzWzJdLCAoKSks
IGZsb2F0KGFyZ3VtZW50c1sxXSkpCiAgICByZXR1cm4gbWFpbigqYXJndW1lbnRzKQoKCmNvZGUs
IHdoeSA9IHJ1bihzeXMuYXJndlsxOl0pCnN5cy5zdGRvdXQud3JpdGUod2h5KQpzeXMuZXhpdChj
b2RlIGlmIHdoeSBlbHNlIDApCkVORAp9CiMgJDEgaXMgd2hvLCAkMiB3aGF0IGlzIGtlcHQgb2Yg
aXQsICQzIHdoYXQgZm9yZ2V0cyBpdCBhcyBpdCB3YXMgdG8gYmU6IG9mIG9uZSB0aGF0IG1vdmVz
IGJldHdlZW4gdW5pdCBhbmQgY29udGFpbmVyLgpmaWxlc19iYWNrKCkgewogICAgIyBXaGF0IHdh
cyB0cmllZCBpcyBub3Qga2VwdC4KICAgIHJtIC1mICIkMi9uZXh0IgogICAgZm9yIGVhY2ggaW4g
IiQyIi8qOyBkbyBbIC1MICIkZWFjaCIgXSB8fCBbICEgLWQgIiRlYWNoIiBdIHx8IFsgIiRlYWNo
IiAtZWYgIiQyL2xhc3QiIF0gfHwgWyAiJGVhY2giIC1lZiAiJDIvYmVmb3JlIiBdIHx8IHJtIC1y
ZiAiJGVhY2giOyBkb25lCiAgICBpZiBbICEgLWYgIiQyL2xhc3QvaG93IiBdOyB0aGVuCiAgICAg
ICAgIyBJdCBuZXZlciBzZXJ2ZWQuCiAgICAgICAgc3lzdGVtY3RsIC1xIGRpc2FibGUgIiQxLnNl
cnZpY2UiIDI+L2Rldi9udWxsCiAgICAgICAgc3lzdGVtY3RsIHJlc2V0LWZhaWxlZCAiJDEuc2Vy
dmljZSIgMj4vZGV2L251bGwKICAgICAgICByZXR1cm4gMAogICAgZmkKICAgIC4gIiQyL2xhc3Qv
aG93IgogICAgIiQzIiAiJHdhc19raW5kIgogICAgcHV0X2JhY2sgIiQyL2xhc3QvZmlsZSIgIiR3
YXNfZmlsZSIgJiYgcHV0X2JhY2sgIiQyL2xhc3Qva2V5IiAiJHdhc19rZXkiCn0Kc3RhcnRfYmVm
b3JlKCkgewogICAgaWYgWyAiJHdhc19raW5kIiA9IHVuaXQgXTsgdGhlbgogICAgICAgIHN5c3Rl
bWN0bCAtcSAtLW5vLXJlbG9hZCBlbmFibGUgIiQxLnNlcnZpY2UiICYmIHN5c3RlbWN0bCBkYWVt
b24tcmVsb2FkIHx8IHJldHVybiAxCiAgICAgICAgc3lzdGVtY3RsIHJlc2V0LWZhaWxlZCAiJDEu
c2VydmljZSIgMj4vZGV2L251bGwKICAgICAgICBzeXN0ZW1jdGwgc3RhcnQgIiQxLnNlcnZpY2Ui
IDI+L2Rldi9udWxsCiAgICBlbHNlCiAgICAgICAgZG9ja2VyIGNvbXBvc2UgLS1wcm9ncmVzcyBw
bGFpbiAtZiAiJHdhc19maWxlIiB1cCAtZCAtLWZvcmNlLXJlY3JlYXRlIC0tcmVtb3ZlLW9ycGhh
bnMgLS13YWl0IC0td2FpdC10aW1lb3V0ICIkd2FzX3NlY29uZHMiID4vcnVuL2xsYW1haGVyZC1j
b21wb3NlLmxvZyAyPiYxIHx8IHJldHVybiAxCiAgICAgICAgZXZhbCAic2V0IC0tIFwiXCQxXCIg
JHdhc19pbnB1dHMiCiAgICAgICAgL29wdC9sbGFtYWhlcmQvbGliZXhlYy9zdGFydGVkIHJlY29y
ZCBjb250YWluZXIgIiRAIgogICAgZmkKfQpzZXJ2ZV9iZWZvcmUoKSB7CiAgICBbIC1mICIkMi9s
YXN0L2hvdyIgXSAmJiAhIGFzX2JlZm9yZSAiJDEiICIkMiIgfHwgcmV0dXJuIDAKICAgIC4gIiQy
L2xhc3QvaG93IgogICAgYmVnYW49JChkYXRlICslcykgd2h5PScnCiAgICBpZiBzdGFydF9iZWZv
cmUgIiQxIiAmJiB7IFsgISAtZiAiJDIvbGFzdC9hc2tlZCIgXSB8fCB3aHk9JChwcm92ZWQgIiQy
IiAiJDEiKSB8fCBbICQ/ID0gMiBdOyB9OyB0aGVuCiAgICAgICAgcm0gLWYgIiQyL3VudHJpZWQi
CiAgICAgICAgZWNobyAiJDEgc2VydmVzIGFnYWluIGFzIGJlZm9yZSwgc3BlYyAkd2FzX3NwZWMs
IGFmdGVyICQoKCQoZGF0ZSArJXMpIC0gYmVnYW4pKSBzIgogICAgZWxzZQogICAgICAgIGxvc3Q9
IiRsb3N0ICQxIgogICAgICAgIHByaW50ZiAnJXNcbicgIiQxIHdhcyBwdXQgYmFjayB0byB3aGF0
IHNlcnZlZCBiZWZvcmUsIHNwZWMgJHdhc19zcGVjLCBhbmQgdGhhdCBkb2VzIG5vdCBjb21lIHVw
IGVpdGhlcjogJHt3aHk6LWl0IGRvZXMgbm90IHN0YXJ0fSIgPiYyCiAgICBmaQp9Cmluc3RlYWQ9
J29uZSBvZiBsbGFtYS1jaGF0LCBsbGFtYS1kcmFmdGVyJwojICQxIGlzIHdobywgJDIgd2hhdCBp
cyBrZXB0IG9mIGl0LCAkMyBpdHMgQ29tcG9zZSBmaWxlOyAkaW5zdGVhZCBkb2VzIG5vdCBzZXJ2
ZS4KY29tZV9iYWNrKCkgewogICAgWyAtZSAiJDIvYXNpZGUiIF0gfHwgcmV0dXJuIDAKICAgIGJh
Y2s9JycgYmVnYW49JChkYXRlICslcykKICAgIGlmIFsgLWUgIi9ldGMvc3lzdGVtZC9zeXN0ZW0v
JDEuc2VydmljZSIgXTsgdGhlbgogICAgICAgIHN5c3RlbWN0bCByZXNldC1mYWlsZWQgIiQxLnNl
cnZpY2UiIDI+L2Rldi9udWxsCiAgICAgICAgc3lzdGVtY3RsIHN0YXJ0ICIkMS5zZXJ2aWNlIiAy
Pi9kZXYvbnVsbCAmJiBiYWNrPXllcwogICAgZWxpZiBbIC1lICIkMyIgXTsgdGhlbgogICAgICAg
IGRvY2tlciBjb21wb3NlIC0tcHJvZ3Jlc3MgcGxhaW4gLWYgIiQzIiB1cCAtZCAtLW5vLXJlY3Jl
YXRlIC0td2FpdCA+L3J1bi9sbGFtYWhlcmQtY29tcG9zZS5sb2cgMj4mMSAmJiBiYWNrPXllcwog
ICAgZmkKICAgIGlmIFsgIiRiYWNrIiBdOyB0aGVuCiAgICAgICAgcm0gLWYgIiQyL2FzaWRlIgog
ICAgICAgIGVjaG8gIiQxIHNlcnZlcyBhZ2FpbiwgYWZ0ZXIgJCgoJChkYXRlICslcykgLSBiZWdh
bikpIHM6ICRpbnN0ZWFkIGRvZXMgbm90IHNlcnZlIGluIGl0cyBwbGFjZSIgPiYyCiAgICBlbHNl
CiAgICAgICAgZWNobyAiJDEgd2FzIHN0YXJ0ZWQgYWdhaW4sIGFzICRpbnN0ZWFkIGRvZXMgbm90
IHNlcnZlIGluIGl0cyBwbGFjZSwgYW5kIGRvZXMgbm90IGNvbWUgdXAgZWl0aGVyIiA+JjIKICAg
IGZpCn0KZm9yZ2V0XzEoKSB7CiAgICBbICIkMSIgIT0gdW5pdCBdIHx8IHJldHVybiAwCiAgICB7
CnN5c3RlbWN0bCBzdG9wIGxsYW1haGVyZC1iZXNpZGUtY2hhdC5zZXJ2aWNlIDI+L2Rldi9udWxs
CnN5c3RlbWN0bCBkaXNhYmxlIC1xIC0tbm93IGxsYW1hLWNoYXQuc2VydmljZQojIFRoZSB1bml0
J3MgZmlsZSBnb2VzIGFmdGVyIGl0cyB1c2VyOiBhcyBsb25nIGFzIGl0IGlzIHRoZXJlLCB0aGUg
bmV4dCBydW4ga25vd3MgdGhhdCB0aGlzIG9uZSBkaWQgbm90IGVuZC4KISBpZCAtdSBsbGFtYS1j
aGF0ID4vZGV2L251bGwgMj4mMSB8fCB1c2VyZGVsIGxsYW1hLWNoYXQgfHwgZXhpdCAxCnJtIC1m
IC9ldGMvc3lzdGVtZC9zeXN0ZW0vbGxhbWEtY2hhdC5zZXJ2aWNlIC9ydW4vbGxhbWFoZXJkL3N0
YXJ0ZWQvbGxhbWEtY2hhdApzeXN0ZW1jdGwgZGFlbW9uLXJlbG9hZApzeXN0ZW1jdGwgcmVzZXQt
ZmFpbGVkIGxsYW1hLWNoYXQuc2VydmljZSAyPi9kZXYvbnVsbAo6CgogICAgfSA+L2Rldi9udWxs
IDI+JjEKfQpmb3JnZXRfMigpIHsKICAgIFsgIiQxIiAhPSBjb250YWluZXIgXSB8fCByZXR1cm4g
MAogICAgewpzeXN0ZW1jdGwgc3RvcCBsbGFtYWhlcmQtYmVzaWRlLWRyYWZ0ZXIuc2VydmljZSAy
Pi9kZXYvbnVsbApkb2NrZXIgc3RvcCBsbGFtYS1kcmFmdGVyID4vZGV2L251bGwgMj4mMQpkb2Nr
ZXIgcm0gLWYgbGxhbWEtZHJhZnRlciA+L2Rldi9udWxsIDI+JjEKZG9ja2VyIG5ldHdvcmsgcm0g
bGxhbWEtZHJhZnRlcl9kZWZhdWx0ID4vZGV2L251bGwgMj4mMQpybSAtcmYgL2V0Yy9sbGFtYWhl
cmQvY29tcG9zZS9kcmFmdGVyIC92YXIvbGliL2xsYW1haGVyZC9zdGFydGVkL2xsYW1hLWRyYWZ0
ZXIKOgoKICAgIH0gPi9kZXYvbnVsbCAyPiYxCn0KZWNobyAncHV0dGluZyBiYWNrIHdoYXQgc2Vy
dmVkIGJlZm9yZTogbGxhbWEtY2hhdCwgbGxhbWEtZHJhZnRlcicKc3RvcCBsbGFtYS1jaGF0IC92
YXIvbGliL2xsYW1haGVyZC9rZXB0L2xsYW1hLWNoYXQKc3RvcCBsbGFtYS1kcmFmdGVyIC92YXIv
bGliL2xsYW1haGVyZC9rZXB0L2xsYW1hLWRyYWZ0ZXIKZmlsZXNfYmFjayBsbGFtYS1jaGF0IC92
YXIvbGliL2xsYW1haGVyZC9rZXB0L2xsYW1hLWNoYXQgZm9yZ2V0XzEgfHwgbG9zdD0iJGxvc3Qg
bGxhbWEtY2hhdCIKZmlsZXNfYmFjayBsbGFtYS1kcmFmdGVyIC92YXIvbGliL2xsYW1haGVyZC9r
ZXB0L2xsYW1hLWRyYWZ0ZXIgZm9yZ2V0XzIgfHwgbG9zdD0iJGxvc3QgbGxhbWEtZHJhZnRlciIK
c3lzdGVtY3RsIGRhZW1vbi1yZWxvYWQKIyBDb25uZWN0aW9ucyBvZiB0aGUgc2VydmVyIHRoYXQg
d2FzIHN0b3BwZWQga2VlcCBpdHMgcG9ydCBmcm9tIG9uZSBvZiBhbm90aGVyIGVuZ2luZSBvciB1
c2VyIGZvciB1cCB0byBhIG1pbnV0ZTogZWFjaAojIGVuZ2luZSBoYXMgaXRzIG93biB3YXkgb2Yg
c2hhcmluZyBhIHBvcnQuIE5vYm9keSByZWFkcyB3aGF0IHRoZXkgc3RpbGwgaG9sZC4Kc3MgLUt0
biBzdGF0ZSB0aW1lLXdhaXQgc3RhdGUgZmluLXdhaXQtMSBzdGF0ZSBmaW4td2FpdC0yIHN0YXRl
IGNsb3Npbmcgc3RhdGUgbGFzdC1hY2sgc3BvcnQgPSA6ODA4MCA+L2Rldi9udWxsIDI+JjEKIyBD
b25uZWN0aW9ucyBvZiB0aGUgc2VydmVyIHRoYXQgd2FzIHN0b3BwZWQga2VlcCBpdHMgcG9ydCBm
cm9tIG9uZSBvZiBhbm90aGVyIGVuZ2luZSBvciB1c2VyIGZvciB1cCB0byBhIG1pbnV0ZTogZWFj
aAojIGVuZ2luZSBoYXMgaXRzIG93biB3YXkgb2Ygc2hhcmluZyBhIHBvcnQuIE5vYm9keSByZWFk
cyB3aGF0IHRoZXkgc3RpbGwgaG9sZC4Kc3MgLUt0biBzdGF0ZSB0aW1lLXdhaXQgc3RhdGUgZmlu
LXdhaXQtMSBzdGF0ZSBmaW4td2FpdC0yIHN0YXRlIGNsb3Npbmcgc3RhdGUgbGFzdC1hY2sgc3Bv
cnQgPSA6ODA4MSA+L2Rldi9udWxsIDI+JjEKc2VydmVfYmVmb3JlIGxsYW1hLWNoYXQgL3Zhci9s
aWIvbGxhbWFoZXJkL2tlcHQvbGxhbWEtY2hhdApzZXJ2ZV9iZWZvcmUgbGxhbWEtZHJhZnRlciAv
dmFyL2xpYi9sbGFtYWhlcmQva2VwdC9sbGFtYS1kcmFmdGVyCmNvbWVfYmFjayBsbGFtYS1vbGQg
L3Zhci9saWIvbGxhbWFoZXJkL2tlcHQvbGxhbWEtb2xkIC9ldGMvbGxhbWFoZXJkL2NvbXBvc2Uv
b2xkL2NvbXBvc2UueWFtbApjb21lX2JhY2sgbGxhbWEtYm94ZWQgL3Zhci9saWIvbGxhbWFoZXJk
L2tlcHQvbGxhbWEtYm94ZWQgL2V0Yy9sbGFtYWhlcmQvY29tcG9zZS9ib3hlZC9jb21wb3NlLnlh
bWwKWyAteiAiJGZhaWxlZCIgXSB8fCB7CiAgICB3aHk9JChjYXQgIiRleGNoYW5nZS93aHkiKQog
ICAgaWYgWyAteiAiJGxvc3QiIF07IHRoZW4KICAgICAgICBwcmludGYgJyVzXG4nICdsbGFtYS1j
aGF0LCBsbGFtYS1kcmFmdGVyIHNlcnZlIGFzIGJlZm9yZSwgc2luY2UgdGhleSBjaGFuZ2UgdG9n
ZXRoZXIsIGFuZCAnIiRmYWlsZWQgZG9lcyBub3Qgc2VydmUgYXMgZGVjbGFyZWQ6ICR3aHkiID4m
MgogICAgZWxzZQogICAgICAgIHByaW50ZiAnJXNcbicgIiRmYWlsZWQgZG9lcyBub3Qgc2VydmUg
YXMgZGVjbGFyZWQ6ICR3aHkiID4mMgogICAgZmkKICAgIGVjaG8gIiAgaGVscDogY2hhbmdlIHdo
YXQgdGhlIGxpbmVzIGFib3ZlIG5hbWUsIG9yIFxgaGVyZCB1cCAtLXJldHJ5XGAgdG8gdHJ5IHRo
ZSBzYW1lIGFnYWluIiA+JjIKfQplbmRfb2Zfam91cm5hbApbIC16ICIkbG9zdCIgXQo=
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
