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
IEdQVS0zMDkwClRpbWVvdXRTdGFydFNlYz0zNjAKUmVzdGFydD1hbHdheXMKUmVzdGFydFNlYz0x
MApLaWxsU2lnbmFsPVNJR0lOVAojIFdoYXQgaXQgaGFzIHRvIGxvc2UgaXMgaW4gaXRzIGNsaWVu
dHM6IHdoaWxlIGl0IHN0cmVhbXMsIFNJR0lOVCBjYW4gbGVhdmUgaXQgaGFuZ2luZyB3aXRoIGl0
cyBwb3J0IGNsb3NlZC4KVGltZW91dFN0b3BTZWM9MQojIEVhY2ggY29ubmVjdGlvbiBpcyBhbiBv
cGVuIGZpbGUsIGFuZCB0aGUgZmlyc3QgMSwwMDAgb3Igc28gYXJlIGEgdGhyZWFkIGVhY2g7IHN5
c3RlbWQncyBvd24gbGltaXQgaXMgMSwwMjQgZmlsZXMuCkxpbWl0Tk9GSUxFPTE2Mzg0ClRhc2tz
TWF4PTQwOTYKIyBEaWVzIGJlZm9yZSBzc2hkIGRvZXMgd2hlbiBtZW1vcnkgcnVucyBvdXQuCk9P
TVNjb3JlQWRqdXN0PTUwMApFbnZpcm9ubWVudD1MTEFNQUhFUkRfU1BFQz05NDEzZTgwNzEzY2IK
IyBObyBjb25maWd1cmF0aW9uIGJ1dCB0aGlzIGZpbGU6IGxsYW1hLmNwcCByZWFkcyBjb25maWcu
aW5pIGZyb20gaGVyZSBhbmQgZnJvbSAvZXRjL2xsYW1hLmNwcC4KRW52aXJvbm1lbnQ9WERHX0NP
TkZJR19IT01FPS9ub25leGlzdGVudApJbmFjY2Vzc2libGVQYXRocz0tL2V0Yy9sbGFtYS5jcHAK
RW52aXJvbm1lbnQ9TExBTUFfQVJHX0NPUlNfT1JJR0lOUz1sb2NhbGhvc3QKRW52aXJvbm1lbnQ9
Q1VEQV9ERVZJQ0VfT1JERVI9UENJX0JVU19JRApFbnZpcm9ubWVudD1DVURBX1ZJU0lCTEVfREVW
SUNFUz1HUFUtNTA5MCxHUFUtMzA5MAoKVXNlcj1sbGFtYS1yZWFzb25lcgpHcm91cD1sbGFtYS1y
ZWFzb25lcgpVTWFzaz0wMDc3Ck5vTmV3UHJpdmlsZWdlcz15ZXMKQ2FwYWJpbGl0eUJvdW5kaW5n
U2V0PQpBbWJpZW50Q2FwYWJpbGl0aWVzPQpEZXZpY2VQb2xpY3k9Y2xvc2VkCkRldmljZUFsbG93
PWNoYXItbnZpZGlhIHJ3CkRldmljZUFsbG93PWNoYXItbnZpZGlhLWZyb250ZW5kIHJ3CkRldmlj
ZUFsbG93PWNoYXItbnZpZGlhY3RsIHJ3CiMgbTogbnZpZGlhLW1vZHByb2JlIG1ha2VzIHRoZSBu
b2RlLiBUaGUgc2VydmVyIGNhbm5vdCwgaXQgaGFzIG5vIENBUF9NS05PRC4KRGV2aWNlQWxsb3c9
Y2hhci1udmlkaWEtdXZtIHJ3bQpEZXZpY2VBbGxvdz1jaGFyLW52aWRpYS1jYXBzIHIKRGV2aWNl
QWxsb3c9L2Rldi9keGcgcncKSVBBZGRyZXNzRGVueT1hbnkKSVBBZGRyZXNzQWxsb3c9bG9jYWxo
b3N0CkxvY2tQZXJzb25hbGl0eT15ZXMKTWVtb3J5RGVueVdyaXRlRXhlY3V0ZT15ZXMKUHJpdmF0
ZUlQQz15ZXMKUHJpdmF0ZVRtcD15ZXMKUHJvdGVjdENsb2NrPXllcwpQcm90ZWN0Q29udHJvbEdy
b3Vwcz15ZXMKUHJvdGVjdEhvbWU9eWVzClByb3RlY3RIb3N0bmFtZT15ZXMKUHJvdGVjdEtlcm5l
bExvZ3M9eWVzClByb3RlY3RLZXJuZWxNb2R1bGVzPXllcwpQcm90ZWN0S2VybmVsVHVuYWJsZXM9
eWVzClByb3RlY3RQcm9jPWludmlzaWJsZQpQcm90ZWN0U3lzdGVtPXN0cmljdApSZW1vdmVJUEM9
eWVzClJlc3RyaWN0QWRkcmVzc0ZhbWlsaWVzPUFGX0lORVQgQUZfSU5FVDYgQUZfVU5JWApSZXN0
cmljdE5hbWVzcGFjZXM9eWVzClJlc3RyaWN0UmVhbHRpbWU9eWVzClJlc3RyaWN0U1VJRFNHSUQ9
eWVzClN5c3RlbUNhbGxBcmNoaXRlY3R1cmVzPW5hdGl2ZQpTeXN0ZW1DYWxsRXJyb3JOdW1iZXI9
RVBFUk0KU3lzdGVtQ2FsbEZpbHRlcj1Ac3lzdGVtLXNlcnZpY2UKU3lzdGVtQ2FsbEZpbHRlcj1+
QHByaXZpbGVnZWQKCltJbnN0YWxsXQpXYW50ZWRCeT1tdWx0aS11c2VyLnRhcmdldAoKCiMgSXQg
bGFzdHMgZm9yIGEgYmxvY2sgYXQgbW9zdDogaXQgY29tZXMgYmFjayBuZWl0aGVyIGJ5IGl0c2Vs
ZiBub3IgYXQgYSBib290LCBhbmQgZW5kcyB3aGVyZSBub2JvZHkgZW5kcyBpdC4KW1NlcnZpY2Vd
ClJlc3RhcnQ9bm8KUnVudGltZU1heFNlYz0yMTAwCg==
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
