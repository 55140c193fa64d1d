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
hold 8 host 3600 'measuring llama-reasoner' || exit 1
# A guard of before has what it waits for by now.
systemctl stop llamaherd-arms.service 2>/dev/null
open_lock 7 measure || exit 1
if ! flock -w 5 7; then
    by=$(cat "$locks/measure")
    echo "another measurement goes on here, by ${by:-somebody who has just begun}" >&2
    echo "  help: wait until it has ended" >&2
    exit 1
fi
printf '%s since %s\n' 'tom'"'"'s' "$(date +'%F %T')" >"$locks/measure"
lacking=$(python3 -I - '{"ram": 10737418240, "gpus": [{"name": "new", "at": "GPU-5090", "need": 21609054208}, {"name": "old", "at": "GPU-3090", "need": 21609054208}]}' <<'END'
"""Whether a second server can be started beside one, and connections be led to it. Ends with 1, and says why not, also
where that is not certain."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

NFT = "/usr/sbin/nft"
KIB, MIB = 1 << 10, 1 << 20


def main(asked: dict[str, Any]) -> str:
    try:
        return ("port" in asked and elsewhere(asked)) or ram(asked["ram"]) or gpus(asked)
    except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
        return f"this host does not say ({error})"


def elsewhere(asked: dict[str, Any]) -> str:
    """Why it cannot serve at a port of its own, in the place of the other."""
    return led(asked["for_others"]) or held(asked["listen"], asked["port"])


def led(for_others: bool) -> str:
    """Why connections cannot be led to another port."""
    if not os.access(NFT, os.X_OK):
        return "there is no nft (package nftables) to lead connections to it"
    rules = told([NFT, "list", "ruleset"])
    older = Path("/proc/net/ip_tables_names")
    if for_others and ("hook input" in rules or (older.exists() and older.read_text().strip())):
        return "a firewall here filters by port"
    return ""


def held(listen: str, port: int) -> str:
    """Why it cannot listen."""
    with socket.socket(socket.AF_INET6 if ":" in listen else socket.AF_INET) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((listen, port))
        except OSError as error:
            return f"its port {port} cannot be had ({error.strerror})"
    return ""


def ram(need: int) -> str:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    free = next(int(words[1]) for words in lines if words[0] == "MemAvailable:") * KIB
    return f"{gb(free)} of RAM are free, and it takes {gb(need)} with what the system needs" if free < need else ""


def gpus(asked: dict[str, Any]) -> str:
    if not asked["gpus"]:
        return ""
    query = ["nvidia-smi", "--query-gpu=pci.bus_id,uuid,memory.free", "--format=csv,noheader,nounits"]
    cards = sorted(line.split(", ") for line in told(query).splitlines() if line.strip())
    for each in asked["gpus"]:
        at = each["at"].upper()
        by_name = {name.upper(): card for card in cards for name in card[:2]}
        card = cards[int(at)] if at.isdigit() else by_name[at]
        if (free := int(card[2]) * MIB) < each["need"]:
            return f"GPU {each['name']} has {gb(free)} free, and it takes {gb(each['need'])}"
    return ""


def told(argv: list[str]) -> str:
    ended = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=True)
    return ended.stdout


def gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"


lacking = main(json.loads(sys.argv[1]))
sys.stdout.write(lacking)
sys.exit(bool(lacking))
END
) || {
    printf '%s\n' "llamaherd-arm-a-reasoner has no room beside what serves: $lacking" "  help: without \`--beside\`, llama-reasoner is stopped while it is measured" >&2
    exit 1
}
served=''
(umask 077 && rm -rf /run/llamaherd/arms && mkdir -p /run/llamaherd/arms) && printf '%s' "$served" >/run/llamaherd/arms/served && cat >/run/llamaherd/arms/back <<'END' || exit 1
# What is measured ends, and what served before serves again: whoever began it may be gone.
systemctl stop llamaherd-arm-a-reasoner.service 2>/dev/null
rm -f /run/systemd/system/llamaherd-arm-a-reasoner.service /run/llamaherd/started/llamaherd-arm-a-reasoner
systemctl daemon-reload
systemctl reset-failed llamaherd-arm-a-reasoner.service 2>/dev/null
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
put_file /run/systemd/system/llamaherd-arm-a-reasoner.service /run/systemd/system 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgaW5zdGFuY2UgYHJlYXNvbmVyYCBvZiByaWcgYGR1
b2A6IGNoYW5nZSB0aGUgaW52ZW50b3J5LCBub3QgdGhpcyBmaWxlLgpbVW5pdF0KRGVzY3JpcHRp
b249TExNIHNlcnZlciByZWFzb25lcjogMzViIG9uIG1haW4KQWZ0ZXI9bmV0d29yay50YXJnZXQg
bG9jYWwtZnMudGFyZ2V0CiMgQSBuYW1lIGluIERldmljZUFsbG93PSBpcyBsb29rZWQgdXAgb25j
ZSwgYXQgc3RhcnQ6IHRoZSBtb2R1bGUgbXVzdCBiZSB0aGVyZSBieSB0aGVuLgpXYW50cz1tb2Rw
cm9iZUBudmlkaWFfdXZtLnNlcnZpY2UgbnZpZGlhLXBlcnNpc3RlbmNlZC5zZXJ2aWNlCkFmdGVy
PW1vZHByb2JlQG52aWRpYV91dm0uc2VydmljZSBudmlkaWEtcGVyc2lzdGVuY2VkLnNlcnZpY2UK
U3RhcnRMaW1pdEludGVydmFsU2VjPTYwMApTdGFydExpbWl0QnVyc3Q9MwoKW1NlcnZpY2VdClR5
cGU9ZXhlYwojIENVREEgaXRzZWxmIHdvdWxkIG1ha2UgdGhpcyBub2RlLCBieSBhIHNldHVpZCBw
cm9ncmFtIHRoYXQgTm9OZXdQcml2aWxlZ2VzIHN0b3BzLiBBcyByb290ICgrKSwgd2hlcmUgaXQg
aXMgdGhlcmUgKC0pOwojIHdoYXQgRGV2aWNlQWxsb3c9IHNheXMgaG9sZHMgZm9yIGl0IGFsbCB0
aGUgc2FtZS4KRXhlY1N0YXJ0UHJlPS0rL3Vzci9iaW4vbnZpZGlhLW1vZHByb2JlIC11IC1jIDAK
RXhlY1N0YXJ0UHJlPS9vcHQvbGxhbWFoZXJkL2xpYmV4ZWMvZ3B1LWdhdGUgMTIwIEdQVS01MDkw
IEdQVS0zMDkwCiMgV2hhdCBpdCBzdGFydHMgd2l0aCwgZm9yIHdob2V2ZXIgd2FudHMgdG8ga25v
dyBsYXRlciB3aGF0IGhhcyBjaGFuZ2VkIHNpbmNlLgpFeGVjU3RhcnRQcmU9LSsvb3B0L2xsYW1h
aGVyZC9saWJleGVjL3N0YXJ0ZWQgcmVjb3JkIHVuaXQgbGxhbWFoZXJkLWFybS1hLXJlYXNvbmVy
IC0gL3Zhci9saWIvbGxhbWFoZXJkL21vZGVscy91bnNsb3RoL1F3ZW4zLjYtMzVCLUEzQi1NVFAt
R0dVRi9kY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjCkV4ZWNTdGFydD0v
b3B0L2xsYW1haGVyZC9idWlsZHMvbGxhbWEuY3BwLTFlNWE0YzMyMTAyMy9iaW4vbGxhbWEtc2Vy
dmVyIC0tbW9kZWwgL3Zhci9saWIvbGxhbWFoZXJkL21vZGVscy91bnNsb3RoL1F3ZW4zLjYtMzVC
LUEzQi1NVFAtR0dVRi9kY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjL1VE
LVE0X0tfWEwvMzViLTAwMDAxLW9mLTAwMDAyLmdndWYgLS1hbGlhcyAzNWIgLS1jdHgtc2l6ZSAy
NjIxNDQgLS1jYWNoZS10eXBlLWsgZjE2IC0tY2FjaGUtdHlwZS12IGYxNiAtLWZsYXNoLWF0dG4g
YXV0byAtLXBhcmFsbGVsIDEgLS10aHJlYWRzIDEyIC0taG9zdCAxMjcuMC4wLjEgLS1wb3J0IDgw
MDEgLS1tZXRyaWNzIC0tZ3B1LWxheWVycyBhbGwgLS1zcGVjLXR5cGUgZHJhZnQtbXRwIC0tc3Bl
Yy1kcmFmdC1uLW1heCAzCiMgU3RhcnRlZCBtZWFuczogaXQgYW5zd2Vycy4gTG9hZGluZyBhIG1v
ZGVsIGZyb20gYSBjb2xkIGRpc2sgdGFrZXMgaXRzIHRpbWUuCkV4ZWNTdGFydFBvc3Q9L29wdC9s
bGFtYWhlcmQvbGliZXhlYy93YWl0LWhlYWx0aHkgaHR0cDovLzEyNy4wLjAuMTo4MDAxL2hlYWx0
aAojIFdpdGhvdXQgQ1VEQSBpdCB3b3VsZCBiZSBoZWFsdGh5IGFzIHdlbGwsIG9uIHRoZSBDUFUu
CkV4ZWNTdGFydFBvc3Q9L29wdC9sbGFtYWhlcmQvbGliZXhlYy9ncHUtY2hlY2sgZXZlcnkgImpv
dXJuYWxjdGwgLXUgbGxhbWFoZXJkLWFybS1hLXJlYXNvbmVyIiAke01BSU5QSUR9IEdQVS01MDkw
IEdQVS0zMDkwClRpbWVvdXRTdGFydFNlYz0zNjAKUmVzdGFydD1vbi1mYWlsdXJlClJlc3RhcnRT
ZWM9MTAKS2lsbFNpZ25hbD1TSUdJTlQKIyBXaGF0IGl0IGhhcyB0byBsb3NlIGlzIGluIGl0cyBj
bGllbnRzOiB3aGlsZSBpdCBzdHJlYW1zLCBTSUdJTlQgY2FuIGxlYXZlIGl0IGhhbmdpbmcgd2l0
aCBpdHMgcG9ydCBjbG9zZWQuClRpbWVvdXRTdG9wU2VjPTEKIyBFYWNoIGNvbm5lY3Rpb24gaXMg
YW4gb3BlbiBmaWxlLCBhbmQgdGhlIGZpcnN0IDEsMDAwIG9yIHNvIGFyZSBhIHRocmVhZCBlYWNo
OyBzeXN0ZW1kJ3Mgb3duIGxpbWl0IGlzIDEsMDI0IGZpbGVzLgpMaW1pdE5PRklMRT0xNjM4NApU
YXNrc01heD00MDk2CiMgRGllcyBiZWZvcmUgc3NoZCBkb2VzIHdoZW4gbWVtb3J5IHJ1bnMgb3V0
LgpPT01TY29yZUFkanVzdD01MDAKRW52aXJvbm1lbnQ9TExBTUFIRVJEX1NQRUM9OTQxM2U4MDcx
M2NiCiMgTm8gY29uZmlndXJhdGlvbiBidXQgdGhpcyBmaWxlOiBsbGFtYS5jcHAgcmVhZHMgY29u
ZmlnLmluaSBmcm9tIGhlcmUgYW5kIGZyb20gL2V0Yy9sbGFtYS5jcHAuCkVudmlyb25tZW50PVhE
R19DT05GSUdfSE9NRT0vbm9uZXhpc3RlbnQKSW5hY2Nlc3NpYmxlUGF0aHM9LS9ldGMvbGxhbWEu
Y3BwCkVudmlyb25tZW50PUxMQU1BX0FSR19DT1JTX09SSUdJTlM9bG9jYWxob3N0CkVudmlyb25t
ZW50PUNVREFfREVWSUNFX09SREVSPVBDSV9CVVNfSUQKRW52aXJvbm1lbnQ9Q1VEQV9WSVNJQkxF
X0RFVklDRVM9R1BVLTUwOTAsR1BVLTMwOTAKClVzZXI9bGxhbWEtcmVhc29uZXIKR3JvdXA9bGxh
bWEtcmVhc29uZXIKVU1hc2s9MDA3NwpOb05ld1ByaXZpbGVnZXM9eWVzCkNhcGFiaWxpdHlCb3Vu
ZGluZ1NldD0KQW1iaWVudENhcGFiaWxpdGllcz0KRGV2aWNlUG9saWN5PWNsb3NlZApEZXZpY2VB
bGxvdz1jaGFyLW52aWRpYSBydwpEZXZpY2VBbGxvdz1jaGFyLW52aWRpYS1mcm9udGVuZCBydwpE
ZXZpY2VBbGxvdz1jaGFyLW52aWRpYWN0bCBydwojIG06IG52aWRpYS1tb2Rwcm9iZSBtYWtlcyB0
aGUgbm9kZS4gVGhlIHNlcnZlciBjYW5ub3QsIGl0IGhhcyBubyBDQVBfTUtOT0QuCkRldmljZUFs
bG93PWNoYXItbnZpZGlhLXV2bSByd20KRGV2aWNlQWxsb3c9Y2hhci1udmlkaWEtY2FwcyByCkRl
dmljZUFsbG93PS9kZXYvZHhnIHJ3CklQQWRkcmVzc0Rlbnk9YW55CklQQWRkcmVzc0FsbG93PWxv
Y2FsaG9zdApMb2NrUGVyc29uYWxpdHk9eWVzCk1lbW9yeURlbnlXcml0ZUV4ZWN1dGU9eWVzClBy
aXZhdGVJUEM9eWVzClByaXZhdGVUbXA9eWVzClByb3RlY3RDbG9jaz15ZXMKUHJvdGVjdENvbnRy
b2xHcm91cHM9eWVzClByb3RlY3RIb21lPXllcwpQcm90ZWN0SG9zdG5hbWU9eWVzClByb3RlY3RL
ZXJuZWxMb2dzPXllcwpQcm90ZWN0S2VybmVsTW9kdWxlcz15ZXMKUHJvdGVjdEtlcm5lbFR1bmFi
bGVzPXllcwpQcm90ZWN0UHJvYz1pbnZpc2libGUKUHJvdGVjdFN5c3RlbT1zdHJpY3QKUmVtb3Zl
SVBDPXllcwpSZXN0cmljdEFkZHJlc3NGYW1pbGllcz1BRl9JTkVUIEFGX0lORVQ2IEFGX1VOSVgK
UmVzdHJpY3ROYW1lc3BhY2VzPXllcwpSZXN0cmljdFJlYWx0aW1lPXllcwpSZXN0cmljdFNVSURT
R0lEPXllcwpTeXN0ZW1DYWxsQXJjaGl0ZWN0dXJlcz1uYXRpdmUKU3lzdGVtQ2FsbEVycm9yTnVt
YmVyPUVQRVJNClN5c3RlbUNhbGxGaWx0ZXI9QHN5c3RlbS1zZXJ2aWNlClN5c3RlbUNhbGxGaWx0
ZXI9fkBwcml2aWxlZ2VkCgpbSW5zdGFsbF0KV2FudGVkQnk9bXVsdGktdXNlci50YXJnZXQKCgoj
IEl0IGxhc3RzIGZvciBhIGJsb2NrIGF0IG1vc3Q6IGl0IGNvbWVzIGJhY2sgbmVpdGhlciBieSBp
dHNlbGYgbm9yIGF0IGEgYm9vdCwgYW5kIGVuZHMgd2hlcmUgbm9ib2R5IGVuZHMgaXQuCltTZXJ2
aWNlXQpSZXN0YXJ0PW5vClJ1bnRpbWVNYXhTZWM9MjEwMAo=
END

) && systemctl daemon-reload || exit 1
# A word now and then: the connection to somebody whose line was cut is given up then.
while sleep 15; do
    kill -0 $$ 2>/dev/null || exit
    echo
done 7>&- 8>&- &
words=$!
start() {
    began=$(date +%s%3N)
    if systemctl start "$2" 2>/dev/null; then
        echo "ready $1 $(($(date +%s%3N) - began)) $(systemctl show -P InvocationID "$2")"
    else
        [ "$(systemctl show -P Result "$2")" = oom-kill ] && why='the system ended it for want of RAM; ' || why=''
        echo "failed $1 $why$(journalctl -q _SYSTEMD_INVOCATION_ID="$(systemctl show -P InvocationID "$2")" -n 3 --no-pager -o cat | tr -s '\n\t' '  ' | cut -c -300)"
    fi
}
echo armed
while read -r what arm; do
    case $what-$arm in
    # In braces: a shell keeps what it closes for a function of its own, and with that the locks.
    start-A) { start A llamaherd-arm-a-reasoner.service; } </dev/null 7>&- 8>&- & ;;
    stop-)
        systemctl stop llamaherd-arm-a-reasoner.service 2>/dev/null
        systemctl reset-failed llamaherd-arm-a-reasoner.service 2>/dev/null
        echo stopped
        ;;
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
