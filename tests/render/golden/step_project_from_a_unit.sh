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
# two runs at once would restart each other's servers
hold 8 host 3600 'starting llama-drafter' || exit 1
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
# Ends the run, where there is anything to go back to. $1 is why: it has been said by then. What failed has been stopped.
take_back() {
    [ -f "$kept/last/how" ] || return 0
    . "$kept/last/how"
    if [ "$was_kind" != container ]; then
        {
systemctl stop llamaherd-beside-drafter.service 2>/dev/null
docker stop llama-drafter >/dev/null 2>&1
docker rm -f llama-drafter >/dev/null 2>&1
docker network rm llama-drafter_default >/dev/null 2>&1
rm -rf /etc/llamaherd/compose/drafter /var/lib/llamaherd/started/llama-drafter
:

        } >/dev/null 2>&1
    elif cmp -s "$kept/last/file" "$was_file" && { [ ! -f "$kept/last/key" ] || cmp -s "$kept/last/key" "$was_key"; }; then
        return 0
    fi
    echo "putting back what served as llama-drafter before, spec $was_spec"
    began=$(date +%s)
    if put_back file "$was_file" && put_back key "$was_key" && {
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8081 >/dev/null 2>&1
        start_what_was
    } && { [ ! -f "$kept/last/asked" ] || why=$(proved "$kept/last/asked") || [ $? = 2 ]; }; then
        rm -f "$kept/untried"
        # Whoever changed no more than the key may try again.
        [ "$was_spec" = 6b3e9ef709bc ] || host_is_slow || note_refused "$1"
        printf '%s\n' "llama-drafter serves again as before, spec $was_spec, after $(($(date +%s) - began)) s: what is declared did not, since $1" >&2
        echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    else
        printf '%s\n' "llama-drafter was put back to what served before, spec $was_spec, and that does not come up either: ${why:-it does not start}" >&2
        echo "  help: \`docker logs llama-drafter\` says more; \`herd up\` tries what is declared again" >&2
    fi
    exit 1
}
keep_what_serves container
keep_what_serves unit
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
drain
began=$(date +%s) stopped=$(date +%s%3N)
docker stop llama-drafter >/dev/null 2>&1
# Also where nothing else is to be done: a boot starts what a killed run had enabled.
systemctl stop llama-drafter.service 2>/dev/null
let_in
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
keep_new
end_beside
systemctl stop llamaherd-beside-drafter.service 2>/dev/null
systemctl disable -q --now llama-drafter.service
# The unit's file goes after its user: as long as it is there, the next run knows that this one did not end.
! id -u llama-drafter >/dev/null 2>&1 || userdel llama-drafter || exit 1
rm -f /etc/systemd/system/llama-drafter.service /run/llamaherd/started/llama-drafter
systemctl daemon-reload
systemctl reset-failed llama-drafter.service 2>/dev/null
:

start_probation
