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
hold 8 host 3600 'starting llama-boxed' || exit 1
systemctl -q is-active docker || timeout 180 systemctl start docker || exit 1
# The engine itself says whether it understands these arguments: it reads them all before --version ends it.
# `timeout`, since an argument that swallows --version would start the server. Any file does for a key: this one needs no
# room on a disk.
key=/proc/version
said=$(timeout 20 setpriv --reuid 2043340793 --regid 2043340793 --clear-groups --no-new-privs \
    env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server --model /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/gemma.gguf --alias gemma --ctx-size 4096 --cache-type-k f16 --cache-type-v f16 --flash-attn auto --parallel 1 --threads 12 --host 127.0.0.1 --port 8004 --metrics --gpu-layers all --version 2>&1)
rc=$?
case $rc in
124 | 126 | 127 | 137)
    printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "instance boxed: /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server --version did not end by itself within 20 s, or could not be run (exit code $rc), so its arguments are not checked; the instance was left as it was" >&2
    exit 1
    ;;
esac
if [ $rc != 0 ] || ! printf '%s\n' "$said" | grep -q '^version:'; then
    printf '%s\n' "$said" | grep -i error | head -n 5 >&2
    printf '%s\n' "$said" | grep -qi error || printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "instance boxed: /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server does not accept its arguments; the instance was left as it was" >&2
    exit 1
fi

# While the old server answers: Compose reads the new file, the image is brought, and its engine asked about the arguments.
trial=$(mktemp -d) || exit 1
left() {
    [ ! -s "$trial/said" ] || tail -n 5 "$trial/said" | cut -c -300 >&2
    printf '%s\n' "instance boxed: $1; the instance was left as it was" >&2
    rm -rf "$trial"
    exit 1
}
base64 -d >"$trial/compose.yaml" <<'END' || exit 1
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgaW5zdGFuY2UgYGJveGVkYCBvZiByaWcgYGR1b2A6
IGNoYW5nZSB0aGUgaW52ZW50b3J5LCBub3QgdGhpcyBmaWxlLgpuYW1lOiBsbGFtYS1ib3hlZApz
ZXJ2aWNlczoKICBzZXJ2ZXI6CiAgICBpbWFnZTogImxsYW1haGVyZC9lbmdpbmU6bGxhbWEuY3Bw
LTFlNWE0YzMyMTAyMy01NDU1NzUiCiAgICBwdWxsX3BvbGljeTogbmV2ZXIKICAgIGNvbnRhaW5l
cl9uYW1lOiBsbGFtYS1ib3hlZAogICAgZW50cnlwb2ludDogWyIvdXNyL2xvY2FsL2Jpbi9sbGFt
YS1zZXJ2ZXIiXQogICAgY29tbWFuZDogWyItLW1vZGVsIiwgIi92YXIvbGliL2xsYW1haGVyZC9t
b2RlbHMvbG9jYWwvYTVhNWE1YTVhNWE1YTVhNS9nZW1tYS5nZ3VmIiwgIi0tYWxpYXMiLCAiZ2Vt
bWEiLCAiLS1jdHgtc2l6ZSIsICI0MDk2IiwgIi0tY2FjaGUtdHlwZS1rIiwgImYxNiIsICItLWNh
Y2hlLXR5cGUtdiIsICJmMTYiLCAiLS1mbGFzaC1hdHRuIiwgImF1dG8iLCAiLS1wYXJhbGxlbCIs
ICIxIiwgIi0tdGhyZWFkcyIsICIxMiIsICItLWhvc3QiLCAiMTI3LjAuMC4xIiwgIi0tcG9ydCIs
ICI4MDA0IiwgIi0tbWV0cmljcyIsICItLWdwdS1sYXllcnMiLCAiYWxsIl0KICAgIGVudmlyb25t
ZW50OiB7IkxMQU1BX0FSR19DT1JTX09SSUdJTlMiOiAibG9jYWxob3N0IiwgIkNVREFfREVWSUNF
X09SREVSIjogIlBDSV9CVVNfSUQiLCAiQ1VEQV9WSVNJQkxFX0RFVklDRVMiOiAiR1BVLTUwOTAi
fQogICAgbGFiZWxzOgogICAgICBsbGFtYWhlcmQuc3BlYzogImY2NjJmNTVlNjQ4ZCIKICAgICAg
bGxhbWFoZXJkLnBvcnQ6ICI4MDA0IgogICAgdXNlcjogIjIwNDMzNDA3OTM6MjA0MzM0MDc5MyIK
ICAgIHJlYWRfb25seTogdHJ1ZQogICAgY2FwX2Ryb3A6IFtBTExdCiAgICBzZWN1cml0eV9vcHQ6
IFsibm8tbmV3LXByaXZpbGVnZXM6dHJ1ZSJdCiAgICB0bXBmczogWyIvdG1wOnNpemU9NjRtLG1v
ZGU9MTc3NyJdCiAgICAjIEVhY2ggY29ubmVjdGlvbiBpcyBhbiBvcGVuIGZpbGUsIGFuZCB0aGUg
Zmlyc3QgMSwwMDAgb3Igc28gYXJlIGEgdGhyZWFkIGVhY2guCiAgICBwaWRzX2xpbWl0OiA0MDk2
CiAgICB1bGltaXRzOiB7bm9maWxlOiAxNjM4NH0KICAgIG9vbV9zY29yZV9hZGo6IDUwMAogICAg
IyBJdCBsaXN0ZW5zIG9uIHRoZSBob3N0J3Mgb3duIGxvb3BiYWNrLiBXaGF0IERvY2tlciBwdWJs
aXNoZXMgdGhlcmUgY2FuIGJlIHJlYWNoZWQgZnJvbSBvdXRzaWRlLCBieSBhIHJvdXRlIHRvIHRo
ZQogICAgIyBjb250YWluZXIncyBuZXR3b3JrIChEb2NrZXIgYmVmb3JlIDI4KS4KICAgIG5ldHdv
cmtfbW9kZTogaG9zdAogICAgdm9sdW1lczoKICAgICAgLSB7dHlwZTogYmluZCwgc291cmNlOiAi
L3Zhci9saWIvbGxhbWFoZXJkL21vZGVscy9sb2NhbC9hNWE1YTVhNWE1YTVhNWE1IiwgdGFyZ2V0
OiAiL3Zhci9saWIvbGxhbWFoZXJkL21vZGVscy9sb2NhbC9hNWE1YTVhNWE1YTVhNWE1IiwgcmVh
ZF9vbmx5OiB0cnVlLCBiaW5kOiB7Y3JlYXRlX2hvc3RfcGF0aDogZmFsc2V9fQogICAgaGVhbHRo
Y2hlY2s6CiAgICAgIHRlc3Q6IFsiQ01EIiwgIi91c3IvYmluL2J1c3lib3giLCAid2dldCIsICIt
cSIsICItTyIsICIvZGV2L251bGwiLCAiaHR0cDovLzEyNy4wLjAuMTo4MDA0L2hlYWx0aCJdCiAg
ICAgIGludGVydmFsOiAzMHMKICAgICAgdGltZW91dDogNXMKICAgICAgcmV0cmllczogMwogICAg
ICBzdGFydF9wZXJpb2Q6IDMwMHMKICAgICAgc3RhcnRfaW50ZXJ2YWw6IDFzCiAgICByZXN0YXJ0
OiB1bmxlc3Mtc3RvcHBlZAogICAgc3RvcF9zaWduYWw6IFNJR0lOVAogICAgc3RvcF9ncmFjZV9w
ZXJpb2Q6IDFzCiAgICBsb2dnaW5nOiB7ZHJpdmVyOiBqc29uLWZpbGUsIG9wdGlvbnM6IHttYXgt
c2l6ZTogMTBtLCBtYXgtZmlsZTogIjMifX0KICAgIGRlcGxveToKICAgICAgcmVzb3VyY2VzOgog
ICAgICAgIHJlc2VydmF0aW9uczoKICAgICAgICAgICMgQnkgQ0RJOiB3aGF0IGl0IGdpdmVzIGEg
Y29udGFpbmVyIHN0YXlzIGdpdmVuIHdoZW4gc3lzdGVtZCByZWFkcyBpdHMgdW5pdHMgYW5ldy4K
ICAgICAgICAgIGRldmljZXM6IFt7ZHJpdmVyOiBjZGksIGRldmljZV9pZHM6IFsibnZpZGlhLmNv
bS9ncHU9R1BVLTUwOTAiXSwgY2FwYWJpbGl0aWVzOiBbZ3B1XX1dCg==
END
docker compose -f "$trial/compose.yaml" config -q >"$trial/said" 2>&1 || left 'Compose does not take its file'
docker image inspect llamaherd/engine:llama.cpp-1e5a4c321023-545575 >/dev/null 2>&1 || {
    left 'its image llamaherd/engine:llama.cpp-1e5a4c321023-545575 is not there'
}
rm -rf "$trial"

# A switch is taken back where what is new does not serve: what served before is kept, and comes back. So it goes on when
# nobody listens any more: whoever began it may be gone, and what is new may not serve.
trap : PIPE
exec 4>&1  # progress, while stdout is read for a reason
kept=/var/lib/llamaherd/kept/llama-boxed refused=/var/lib/llamaherd/refused/llama-boxed
[ -x /opt/llamaherd/libexec/prove ] || {
    echo "/opt/llamaherd/libexec/prove, which proves servers, is not on this host, so llama-boxed was left as it is" >&2
    echo "  help: \`herd up\` installs it" >&2
    exit 1
}
beside=llamaherd-beside-boxed beside_file=/run/systemd/system/llamaherd-beside-boxed.service beside_asked='' beside_proved='' direct=''
[ ! -e "$beside_file" ] || direct='setpriv --regid 2009999999 --clear-groups'
# A server beside goes on where it is the only one that serves: for as long as its unit lets it.
at_exit() {
    if [ -e "$beside_file" ]; then
        if [ -n "$(spec_of container)" ]; then
            end_beside
        else
            echo "what was tried beside llama-boxed answers in its place, until \`herd up\` has it serve again, or for as long as \`systemctl status $beside\` says" >&2
        fi
    fi
    rm -f "$asked" "$asked".* "$beside_asked"
}
asked=$(mktemp) && trap at_exit EXIT && base64 -d >"$asked" <<'END' || exit 1
eyJ1cmwiOiAiaHR0cDovLzEyNy4wLjAuMTo4MDA0L3YxL2NoYXQvY29tcGxldGlvbnMiLCAibWV0
cmljcyI6ICJodHRwOi8vMTI3LjAuMC4xOjgwMDQvbWV0cmljcyIsICJrZXkiOiBudWxsLCAic2Vj
b25kcyI6IDEyMCwgImRyYWZ0cyI6IDAsICJmbG9vciI6IDAsICJib2R5IjogeyJtb2RlbCI6ICJn
ZW1tYSIsICJtZXNzYWdlcyI6IFt7InJvbGUiOiAidXNlciIsICJjb250ZW50IjogIlRoZSB0aHJl
ZSBwcmltYXJ5IGNvbG91cnMgYXJlIn1dLCAidGVtcGVyYXR1cmUiOiAwLCAibWF4X3Rva2VucyI6
IDh9LCAia2luZCI6ICJjaGF0IiwgIm1vZGVscyI6IFsiZ2VtbWEiXSwgIm1vZGVsc19wYXRoIjog
Ii92MS9tb2RlbHMiLCAicHJvcHNfcGF0aCI6ICIvcHJvcHMiLCAiaGVhbHRoX3BhdGgiOiAiL2hl
YWx0aCIsICJsaXN0ZW4iOiAiMTI3LjAuMC4xIiwgImNsb3NlZCI6IHRydWUsICJjb250ZXh0Ijog
NDA5NiwgInNhbWUiOiAiMTc1ZjU0ZTNiYjk1IiwgInNwZWMiOiAiZjY2MmY1NWU2NDhkIn0=
END
file_of() { if [ "$1" = unit ]; then echo /etc/systemd/system/llama-boxed.service; else echo /etc/llamaherd/compose/boxed/compose.yaml; fi; }
how_kept() {
    printf 'was_kind=%s was_spec=%s was_seconds=%s was_file=%s was_key=%s\n' "$1" "$2" 300 "$(file_of "$1")" ''"'"''"'"''
    printf 'was_inputs=%s\n' ''"'"'- /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5'"'"''
}
# $1 unit or container, $2 the spec that serves, $3 how to ask it, if that is known. All at once, by one link.
keep() (
    umask 077
    install -d -m 0700 "${kept%/*}" "$kept" && new=$(mktemp -d "$kept/XXXXXXXX") || exit 1
    cp -p "$(file_of "$1")" "$new/file" && { [ ! -f '' ] || cp -p '' "$new/key"; } &&
        { [ -z "${3:-}" ] || cp "$3" "$new/asked"; } &&
        { speeds=$asked.speeds && [ -s "$speeds" ] || speeds=$kept/last/speeds; [ ! -s "$speeds" ] || cp "$speeds" "$new/speeds"; } &&
        { [ "$2" != f662f55e648d ] || printf '%s\n' f662f55e648d >"$new/holds"; } &&
        { [ -z "${loaded:-}" ] || printf '%s\t%s\n' "$loaded" /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 >"$new/loaded"; } && how_kept "$1" "$2" >"$new/how" && sync "$new"/* &&
        ln -sfn "${new##*/}" "$kept/last.new" && mv -fT "$kept/last.new" "$kept/last" || { rm -rf "$new"; exit 1; }
    for each in "$kept"/*; do [ -L "$each" ] || [ "$each" = "$new" ] || [ "$each" -ef "$kept/before" ] || rm -rf "$each"; done
)
# The previous version stays until the new one has passed its probation.
keep_new() {
    replaced=''
    [ ! -f "$kept/last/how" ] || [ "$(was)" = f662f55e648d ] || { ln -sfn "$(readlink "$kept/last")" "$kept/before" && replaced=yes; }
    keep container f662f55e648d "$asked" || {
        replaced=''
        echo "llama-boxed serves, and cannot be kept in $kept: a later change that fails cannot come back to it"
    }
    rm -f "$refused"
}
# From here on, the host itself probes the new version, and restores the previous one if it fails.
start_probation() {
    [ "$replaced" ] || return 0
    systemctl stop llamaherd-probation-boxed 2>/dev/null
    (umask 077 && install -d -m 0700 /run/llamaherd/probation && base64 -d >/run/llamaherd/probation/llama-boxed.json) <<'END' &&
W3sic2VydmljZSI6ICJsbGFtYS1ib3hlZCIsICJraW5kIjogImNvbnRhaW5lciIsICJzcGVjIjog
ImY2NjJmNTVlNjQ4ZCIsICJ0cmllZCI6ICIyNTVlY2MxODE1MTYiLCAiaW5zdGFuY2UiOiAiYm94
ZWQiLCAidXNlciI6ICJsbGFtYS1ib3hlZCIsICJrZXB0IjogIi92YXIvbGliL2xsYW1haGVyZC9r
ZXB0L2xsYW1hLWJveGVkIiwgInJlZnVzZWQiOiAiL3Zhci9saWIvbGxhbWFoZXJkL3JlZnVzZWQv
bGxhbWEtYm94ZWQiLCAicmVsZWFzZXMiOiAiL3Zhci9saWIvbGxhbWFoZXJkL3JlbGVhc2VzIiwg
ImxvY2tzIjogIi9ydW4vbGxhbWFoZXJkL2xvY2tzIiwgImxvY2tfc2Vjb25kcyI6IDM2MDAsICJz
ZWNvbmRzIjogMTIwLCAicHJvbXB0cyI6IHRydWUsICJwcm92ZSI6ICIvb3B0L2xsYW1haGVyZC9s
aWJleGVjL3Byb3ZlIiwgInN0YXJ0ZWQiOiAiL29wdC9sbGFtYWhlcmQvbGliZXhlYy9zdGFydGVk
IiwgImZvcmdldCI6ICJzeXN0ZW1jdGwgc3RvcCBsbGFtYWhlcmQtYmVzaWRlLWJveGVkLnNlcnZp
Y2UgMj4vZGV2L251bGxcbmRvY2tlciBzdG9wIGxsYW1hLWJveGVkID4vZGV2L251bGwgMj4mMVxu
ZG9ja2VyIHJtIC1mIGxsYW1hLWJveGVkID4vZGV2L251bGwgMj4mMVxuZG9ja2VyIG5ldHdvcmsg
cm0gbGxhbWEtYm94ZWRfZGVmYXVsdCA+L2Rldi9udWxsIDI+JjFcbnJtIC1yZiAvZXRjL2xsYW1h
aGVyZC9jb21wb3NlL2JveGVkIC92YXIvbGliL2xsYW1haGVyZC9zdGFydGVkL2xsYW1hLWJveGVk
XG46XG4ifV0=
END
        systemd-run --quiet --collect --unit=llamaherd-probation-boxed --property=RuntimeMaxSec=7800 /opt/llamaherd/libexec/probation /run/llamaherd/probation/llama-boxed.json ||
        echo "llama-boxed serves, but its probation did not start: the host does not roll it back if it fails within a minute" >&2
}
# What was started and has not answered a prompt yet, a spec each line: it stands there before anything is changed, since
# a run may be killed, or its host, and systemd starts what is new at the next boot. Gone with the next that is kept.
untried() { grep -Fqsx "$1" "$kept/untried"; }
mark_untried() {
    # A probation would mistake what is stopped and tried from here on for the server that it watches.
    systemctl stop llamaherd-probation-boxed 2>/dev/null
    ! untried f662f55e648d || { unproven=yes; return; }
    unproven=''
    (umask 077 && install -d -m 0700 "${kept%/*}" "$kept" && echo f662f55e648d >>"$kept/untried" && sync "$kept/untried") || {
        echo "cannot write $kept/untried, so llama-boxed was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
was() { sed -n "s/.*was_spec=\([^ ]*\) .*/\1/p" "$kept/last/how" 2>/dev/null; }
spec_of() {
    if [ "$1" = unit ]; then
        systemctl -q is-active llama-boxed.service && sed -z -n 's/^LLAMAHERD_SPEC=//p' "/proc/$(systemctl show -P MainPID llama-boxed.service)/environ" | tr -d '\0'
    else
        docker inspect --type container --format '{{if eq .State.Status "running"}}{{with .State.Health}}{{if eq .Status "healthy"}}{{index $.Config.Labels "llamaherd.spec"}}{{end}}{{end}}{{end}}' llama-boxed
    fi 2>/dev/null
}
# What an earlier version of ours started, or somebody since, is not kept yet. Its file is the one that it was started from
# if it says the same spec.
keep_what_serves() {
    serving=$(spec_of "$1")
    [ -z "$serving" ] || [ "$serving" = "$(was)" ] || { [ -f "$kept/last/how" ] && untried "$serving"; } || ! grep -Fqs "$serving" "$(file_of "$1")" || keep "$1" "$serving" || {
        echo "cannot keep what serves as llama-boxed in $kept, so it was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
# $1 how to ask it. What was declared before, or by another key alone, is not judged by its speed.
proved() {
    how=judge limit=300 proves=llama-boxed
    [ "$(was)" != f662f55e648d ] || how=''
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
    grep -qs '"metrics"' "${1:-/var/lib/llamaherd/kept/llama-boxed/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/var/lib/llamaherd/kept/llama-boxed/last/asked}" 30 2009999999 ${direct:+led} <<'END'
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
    rm -f "$beside_file" /run/llamaherd/beside/boxed.yaml "/run/llamaherd/started/$beside"
    systemctl daemon-reload
    systemctl reset-failed "$beside" 2>/dev/null
    direct=''
}
put_back() { [ ! -f "$kept/last/$1" ] || { cp -p "$kept/last/$1" "$2.llamaherd-new" && mv -fT "$2.llamaherd-new" "$2"; }; }
start_what_was() {
    if [ "$was_kind" = unit ]; then
        systemctl -q --no-reload enable llama-boxed.service && systemctl daemon-reload || return 1
        systemctl reset-failed llama-boxed.service 2>/dev/null
        systemctl start llama-boxed.service 2>/dev/null
    else
        docker compose --progress plain -f "$was_file" up -d --force-recreate --remove-orphans --wait --wait-timeout "$was_seconds" >/run/llamaherd-compose.log 2>&1 || return 1
        eval "set -- $was_inputs"
        /opt/llamaherd/libexec/started record container llama-boxed "$@"
    fi
}
note_refused() { (umask 077 && mkdir -p "${refused%/*}" && printf '%s\t%s\t%s\n' 255ecc181516 "$(date +'%F %T')" "$(printf %s "$1" | tr -s '\t\n' '  ' | cut -c -300)" >"$refused"); }
# Ends the run, where there is anything to go back to. $1 is why: it has been said by then. What failed has been stopped.
take_back() {
    [ -f "$kept/last/how" ] || return 0
    . "$kept/last/how"
    if [ "$was_kind" != container ]; then
        {
systemctl stop llamaherd-beside-boxed.service 2>/dev/null
docker stop llama-boxed >/dev/null 2>&1
docker rm -f llama-boxed >/dev/null 2>&1
docker network rm llama-boxed_default >/dev/null 2>&1
rm -rf /etc/llamaherd/compose/boxed /var/lib/llamaherd/started/llama-boxed
:

        } >/dev/null 2>&1
    elif cmp -s "$kept/last/file" "$was_file" && { [ ! -f "$kept/last/key" ] || cmp -s "$kept/last/key" "$was_key"; }; then
        return 0
    fi
    echo "putting back what served as llama-boxed before, spec $was_spec"
    began=$(date +%s)
    if put_back file "$was_file" && put_back key "$was_key" && {
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8004 >/dev/null 2>&1
        start_what_was
    } && { [ ! -f "$kept/last/asked" ] || why=$(proved "$kept/last/asked") || [ $? = 2 ]; }; then
        rm -f "$kept/untried"
        # Whoever changed no more than the key may try again.
        [ "$was_spec" = f662f55e648d ] || host_is_slow || note_refused "$1"
        printf '%s\n' "llama-boxed serves again as before, spec $was_spec, after $(($(date +%s) - began)) s: what is declared did not, since $1" >&2
        echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    else
        printf '%s\n' "llama-boxed was put back to what served before, spec $was_spec, and that does not come up either: ${why:-it does not start}" >&2
        echo "  help: \`docker logs llama-boxed\` says more; \`herd up\` tries what is declared again" >&2
    fi
    exit 1
}
keep_what_serves container
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
put_file /etc/llamaherd/compose/boxed/compose.yaml /etc/llamaherd/compose/boxed 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgaW5zdGFuY2UgYGJveGVkYCBvZiByaWcgYGR1b2A6
IGNoYW5nZSB0aGUgaW52ZW50b3J5LCBub3QgdGhpcyBmaWxlLgpuYW1lOiBsbGFtYS1ib3hlZApz
ZXJ2aWNlczoKICBzZXJ2ZXI6CiAgICBpbWFnZTogImxsYW1haGVyZC9lbmdpbmU6bGxhbWEuY3Bw
LTFlNWE0YzMyMTAyMy01NDU1NzUiCiAgICBwdWxsX3BvbGljeTogbmV2ZXIKICAgIGNvbnRhaW5l
cl9uYW1lOiBsbGFtYS1ib3hlZAogICAgZW50cnlwb2ludDogWyIvdXNyL2xvY2FsL2Jpbi9sbGFt
YS1zZXJ2ZXIiXQogICAgY29tbWFuZDogWyItLW1vZGVsIiwgIi92YXIvbGliL2xsYW1haGVyZC9t
b2RlbHMvbG9jYWwvYTVhNWE1YTVhNWE1YTVhNS9nZW1tYS5nZ3VmIiwgIi0tYWxpYXMiLCAiZ2Vt
bWEiLCAiLS1jdHgtc2l6ZSIsICI0MDk2IiwgIi0tY2FjaGUtdHlwZS1rIiwgImYxNiIsICItLWNh
Y2hlLXR5cGUtdiIsICJmMTYiLCAiLS1mbGFzaC1hdHRuIiwgImF1dG8iLCAiLS1wYXJhbGxlbCIs
ICIxIiwgIi0tdGhyZWFkcyIsICIxMiIsICItLWhvc3QiLCAiMTI3LjAuMC4xIiwgIi0tcG9ydCIs
ICI4MDA0IiwgIi0tbWV0cmljcyIsICItLWdwdS1sYXllcnMiLCAiYWxsIl0KICAgIGVudmlyb25t
ZW50OiB7IkxMQU1BX0FSR19DT1JTX09SSUdJTlMiOiAibG9jYWxob3N0IiwgIkNVREFfREVWSUNF
X09SREVSIjogIlBDSV9CVVNfSUQiLCAiQ1VEQV9WSVNJQkxFX0RFVklDRVMiOiAiR1BVLTUwOTAi
fQogICAgbGFiZWxzOgogICAgICBsbGFtYWhlcmQuc3BlYzogImY2NjJmNTVlNjQ4ZCIKICAgICAg
bGxhbWFoZXJkLnBvcnQ6ICI4MDA0IgogICAgdXNlcjogIjIwNDMzNDA3OTM6MjA0MzM0MDc5MyIK
ICAgIHJlYWRfb25seTogdHJ1ZQogICAgY2FwX2Ryb3A6IFtBTExdCiAgICBzZWN1cml0eV9vcHQ6
IFsibm8tbmV3LXByaXZpbGVnZXM6dHJ1ZSJdCiAgICB0bXBmczogWyIvdG1wOnNpemU9NjRtLG1v
ZGU9MTc3NyJdCiAgICAjIEVhY2ggY29ubmVjdGlvbiBpcyBhbiBvcGVuIGZpbGUsIGFuZCB0aGUg
Zmlyc3QgMSwwMDAgb3Igc28gYXJlIGEgdGhyZWFkIGVhY2guCiAgICBwaWRzX2xpbWl0OiA0MDk2
CiAgICB1bGltaXRzOiB7bm9maWxlOiAxNjM4NH0KICAgIG9vbV9zY29yZV9hZGo6IDUwMAogICAg
IyBJdCBsaXN0ZW5zIG9uIHRoZSBob3N0J3Mgb3duIGxvb3BiYWNrLiBXaGF0IERvY2tlciBwdWJs
aXNoZXMgdGhlcmUgY2FuIGJlIHJlYWNoZWQgZnJvbSBvdXRzaWRlLCBieSBhIHJvdXRlIHRvIHRo
ZQogICAgIyBjb250YWluZXIncyBuZXR3b3JrIChEb2NrZXIgYmVmb3JlIDI4KS4KICAgIG5ldHdv
cmtfbW9kZTogaG9zdAogICAgdm9sdW1lczoKICAgICAgLSB7dHlwZTogYmluZCwgc291cmNlOiAi
L3Zhci9saWIvbGxhbWFoZXJkL21vZGVscy9sb2NhbC9hNWE1YTVhNWE1YTVhNWE1IiwgdGFyZ2V0
OiAiL3Zhci9saWIvbGxhbWFoZXJkL21vZGVscy9sb2NhbC9hNWE1YTVhNWE1YTVhNWE1IiwgcmVh
ZF9vbmx5OiB0cnVlLCBiaW5kOiB7Y3JlYXRlX2hvc3RfcGF0aDogZmFsc2V9fQogICAgaGVhbHRo
Y2hlY2s6CiAgICAgIHRlc3Q6IFsiQ01EIiwgIi91c3IvYmluL2J1c3lib3giLCAid2dldCIsICIt
cSIsICItTyIsICIvZGV2L251bGwiLCAiaHR0cDovLzEyNy4wLjAuMTo4MDA0L2hlYWx0aCJdCiAg
ICAgIGludGVydmFsOiAzMHMKICAgICAgdGltZW91dDogNXMKICAgICAgcmV0cmllczogMwogICAg
ICBzdGFydF9wZXJpb2Q6IDMwMHMKICAgICAgc3RhcnRfaW50ZXJ2YWw6IDFzCiAgICByZXN0YXJ0
OiB1bmxlc3Mtc3RvcHBlZAogICAgc3RvcF9zaWduYWw6IFNJR0lOVAogICAgc3RvcF9ncmFjZV9w
ZXJpb2Q6IDFzCiAgICBsb2dnaW5nOiB7ZHJpdmVyOiBqc29uLWZpbGUsIG9wdGlvbnM6IHttYXgt
c2l6ZTogMTBtLCBtYXgtZmlsZTogIjMifX0KICAgIGRlcGxveToKICAgICAgcmVzb3VyY2VzOgog
ICAgICAgIHJlc2VydmF0aW9uczoKICAgICAgICAgICMgQnkgQ0RJOiB3aGF0IGl0IGdpdmVzIGEg
Y29udGFpbmVyIHN0YXlzIGdpdmVuIHdoZW4gc3lzdGVtZCByZWFkcyBpdHMgdW5pdHMgYW5ldy4K
ICAgICAgICAgIGRldmljZXM6IFt7ZHJpdmVyOiBjZGksIGRldmljZV9pZHM6IFsibnZpZGlhLmNv
bS9ncHU9R1BVLTUwOTAiXSwgY2FwYWJpbGl0aWVzOiBbZ3B1XX1dCg==
END

# Who held the lock before us may have made what we want. What was seen to be wrong with a container is not asked about
# again; one that was only not recorded yet may be by now.
now=$(docker inspect --type container --format '{{.Id}} {{.State.Status}} {{with .State.Health}}{{.Status}}{{end}} {{index .Config.Labels "llamaherd.spec"}}' llama-boxed 2>/dev/null)
if [ -z "$unproven" ] && [ "${now%% *}" != '' ] && [ "${now#* }" = 'running healthy f662f55e648d' ] &&
    /opt/llamaherd/libexec/started changed container llama-boxed - /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 >/dev/null; then
    echo "llama-boxed was started by another run meanwhile, as planned"
    rm -f "$kept/untried"
    exit 0
fi
echo "starting llama-boxed in its container: it has 300 s to load its model"
drain
began=$(date +%s) stopped=$(date +%s%3N)
docker stop llama-boxed >/dev/null 2>&1
let_in
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8004 >/dev/null 2>&1
if ! docker compose --progress plain -f /etc/llamaherd/compose/boxed/compose.yaml up -d --force-recreate --remove-orphans \
    --wait --wait-timeout 300 >/run/llamaherd-compose.log 2>&1; then
    tail -n 5 /run/llamaherd-compose.log | cut -c -300 >&2
    docker logs --tail 20 llama-boxed 2>&1 | cut -c -300 >&2
    echo "llama-boxed is not healthy after $(($(date +%s) - began)) s of 300; its last lines are above, all of them in: docker logs llama-boxed" >&2
    docker compose -f /etc/llamaherd/compose/boxed/compose.yaml stop >/dev/null 2>&1
    take_back "llama-boxed was not healthy after $(($(date +%s) - began)) s of 300"
    exit 1
fi
loaded=$(($(date +%s%3N) - stopped))
# Healthy is not enough: without CUDA it serves from the CPU, and is as healthy.
if ! /opt/llamaherd/libexec/gpu-check every 'docker logs llama-boxed 2>&1' \
    "$(docker inspect --type container --format '{{.State.Pid}}' llama-boxed) $(docker top llama-boxed -eo pid 2>/dev/null | sed 1d)" GPU-5090; then
    docker logs llama-boxed 2>&1 | grep -i cuda | head -n 3 | cut -c -300 >&2
    docker compose -f /etc/llamaherd/compose/boxed/compose.yaml stop >/dev/null 2>&1
    take_back 'it was healthy, and not on its GPUs'
    exit 1
fi
why=$(proved "$asked")
case $? in
0) ;;
1)
    docker logs --tail 5 llama-boxed 2>&1 | cut -c -300 >&2
    printf '%s\n' "llama-boxed is healthy, but $why" >&2
    docker compose -f /etc/llamaherd/compose/boxed/compose.yaml stop >/dev/null 2>&1
    take_back "$why"
    exit 1
    ;;
*)
    printf '%s\n' "llama-boxed answers, but $why" >&2
    take_back "$why"
    ;;
esac
/opt/llamaherd/libexec/started record container llama-boxed - /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5
# The network that it had before, if it is on the host's own now: one in use is not removed.
docker network rm llama-boxed_default >/dev/null 2>&1 || :
keep_new
end_beside
start_probation
