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
hold 8 host 3600 'starting llama-reasoner.service' || exit 1
# The engine itself says whether it understands these arguments: it reads them all before --version ends it.
# `timeout`, since an argument that swallows --version would start the server.
key=$(mktemp) && echo placeholder >"$key" && chmod 0644 "$key"
said=$(timeout 20 setpriv --reuid llama-reasoner --regid llama-reasoner --clear-groups --no-new-privs \
    env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server --model /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc/UD-Q4_K_XL/35b-00001-of-00002.gguf --alias 35b --ctx-size 262144 --cache-type-k f16 --cache-type-v f16 --flash-attn auto --parallel 1 --threads 12 --host 127.0.0.1 --port 8001 --metrics --gpu-layers all --spec-type draft-mtp --spec-draft-n-max 3 --version 2>&1)
rc=$?
rm -f "$key"
if [ $rc != 0 ] || ! printf '%s\n' "$said" | grep -q '^version:'; then
    printf '%s\n' "$said" | grep -i error | head -n 5 >&2
    echo "instance reasoner: /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server does not accept its arguments; the instance was left as it was" >&2
    exit 1
fi

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
put_file /etc/systemd/system/llama-reasoner.service /etc/systemd/system 0644 root <<'END'
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
aGVyZC9saWJleGVjL3N0YXJ0ZWQgcmVjb3JkIHVuaXQgbGxhbWEtcmVhc29uZXIgLSAvdmFyL2xp
Yi9sbGFtYWhlcmQvbW9kZWxzL3Vuc2xvdGgvUXdlbjMuNi0zNUItQTNCLU1UUC1HR1VGL2RjZGNk
Y2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGMKRXhlY1N0YXJ0PS9vcHQvbGxhbWFo
ZXJkL2J1aWxkcy9sbGFtYS5jcHAtMWU1YTRjMzIxMDIzL2Jpbi9sbGFtYS1zZXJ2ZXIgLS1tb2Rl
bCAvdmFyL2xpYi9sbGFtYWhlcmQvbW9kZWxzL3Vuc2xvdGgvUXdlbjMuNi0zNUItQTNCLU1UUC1H
R1VGL2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGMvVUQtUTRfS19YTC8z
NWItMDAwMDEtb2YtMDAwMDIuZ2d1ZiAtLWFsaWFzIDM1YiAtLWN0eC1zaXplIDI2MjE0NCAtLWNh
Y2hlLXR5cGUtayBmMTYgLS1jYWNoZS10eXBlLXYgZjE2IC0tZmxhc2gtYXR0biBhdXRvIC0tcGFy
YWxsZWwgMSAtLXRocmVhZHMgMTIgLS1ob3N0IDEyNy4wLjAuMSAtLXBvcnQgODAwMSAtLW1ldHJp
Y3MgLS1ncHUtbGF5ZXJzIGFsbCAtLXNwZWMtdHlwZSBkcmFmdC1tdHAgLS1zcGVjLWRyYWZ0LW4t
bWF4IDMKIyBTdGFydGVkIG1lYW5zOiBpdCBhbnN3ZXJzLiBMb2FkaW5nIGEgbW9kZWwgZnJvbSBh
IGNvbGQgZGlzayB0YWtlcyBpdHMgdGltZS4KRXhlY1N0YXJ0UG9zdD0vb3B0L2xsYW1haGVyZC9s
aWJleGVjL3dhaXQtaGVhbHRoeSBodHRwOi8vMTI3LjAuMC4xOjgwMDEvaGVhbHRoCiMgV2l0aG91
dCBDVURBIGl0IHdvdWxkIGJlIGhlYWx0aHkgYXMgd2VsbCwgb24gdGhlIENQVS4KRXhlY1N0YXJ0
UG9zdD0vb3B0L2xsYW1haGVyZC9saWJleGVjL2dwdS1jaGVjayBldmVyeSAiam91cm5hbGN0bCAt
dSBsbGFtYS1yZWFzb25lciIgJHtNQUlOUElEfSBHUFUtNTA5MCBHUFUtMzA5MApUaW1lb3V0U3Rh
cnRTZWM9MzYwClJlc3RhcnQ9b24tZmFpbHVyZQpSZXN0YXJ0U2VjPTEwCktpbGxTaWduYWw9U0lH
SU5UCiMgV2hhdCBpdCBoYXMgdG8gbG9zZSBpcyBpbiBpdHMgY2xpZW50czogd2hpbGUgaXQgc3Ry
ZWFtcywgU0lHSU5UIGNhbiBsZWF2ZSBpdCBoYW5naW5nIHdpdGggaXRzIHBvcnQgY2xvc2VkLgpU
aW1lb3V0U3RvcFNlYz0xCiMgRWFjaCBjb25uZWN0aW9uIGlzIGFuIG9wZW4gZmlsZSwgYW5kIHRo
ZSBmaXJzdCAxLDAwMCBvciBzbyBhcmUgYSB0aHJlYWQgZWFjaDsgc3lzdGVtZCdzIG93biBsaW1p
dCBpcyAxLDAyNCBmaWxlcy4KTGltaXROT0ZJTEU9MTYzODQKVGFza3NNYXg9NDA5NgojIERpZXMg
YmVmb3JlIHNzaGQgZG9lcyB3aGVuIG1lbW9yeSBydW5zIG91dC4KT09NU2NvcmVBZGp1c3Q9NTAw
CkVudmlyb25tZW50PUxMQU1BSEVSRF9TUEVDPTk0MTNlODA3MTNjYgojIE5vIGNvbmZpZ3VyYXRp
b24gYnV0IHRoaXMgZmlsZTogbGxhbWEuY3BwIHJlYWRzIGNvbmZpZy5pbmkgZnJvbSBoZXJlIGFu
ZCBmcm9tIC9ldGMvbGxhbWEuY3BwLgpFbnZpcm9ubWVudD1YREdfQ09ORklHX0hPTUU9L25vbmV4
aXN0ZW50CkluYWNjZXNzaWJsZVBhdGhzPS0vZXRjL2xsYW1hLmNwcApFbnZpcm9ubWVudD1MTEFN
QV9BUkdfQ09SU19PUklHSU5TPWxvY2FsaG9zdApFbnZpcm9ubWVudD1DVURBX0RFVklDRV9PUkRF
Uj1QQ0lfQlVTX0lECkVudmlyb25tZW50PUNVREFfVklTSUJMRV9ERVZJQ0VTPUdQVS01MDkwLEdQ
VS0zMDkwCgpVc2VyPWxsYW1hLXJlYXNvbmVyCkdyb3VwPWxsYW1hLXJlYXNvbmVyClVNYXNrPTAw
NzcKTm9OZXdQcml2aWxlZ2VzPXllcwpDYXBhYmlsaXR5Qm91bmRpbmdTZXQ9CkFtYmllbnRDYXBh
YmlsaXRpZXM9CkRldmljZVBvbGljeT1jbG9zZWQKRGV2aWNlQWxsb3c9Y2hhci1udmlkaWEgcncK
RGV2aWNlQWxsb3c9Y2hhci1udmlkaWEtZnJvbnRlbmQgcncKRGV2aWNlQWxsb3c9Y2hhci1udmlk
aWFjdGwgcncKIyBtOiBudmlkaWEtbW9kcHJvYmUgbWFrZXMgdGhlIG5vZGUuIFRoZSBzZXJ2ZXIg
Y2Fubm90LCBpdCBoYXMgbm8gQ0FQX01LTk9ELgpEZXZpY2VBbGxvdz1jaGFyLW52aWRpYS11dm0g
cndtCkRldmljZUFsbG93PWNoYXItbnZpZGlhLWNhcHMgcgpEZXZpY2VBbGxvdz0vZGV2L2R4ZyBy
dwpJUEFkZHJlc3NEZW55PWFueQpJUEFkZHJlc3NBbGxvdz1sb2NhbGhvc3QKTG9ja1BlcnNvbmFs
aXR5PXllcwpNZW1vcnlEZW55V3JpdGVFeGVjdXRlPXllcwpQcml2YXRlSVBDPXllcwpQcml2YXRl
VG1wPXllcwpQcm90ZWN0Q2xvY2s9eWVzClByb3RlY3RDb250cm9sR3JvdXBzPXllcwpQcm90ZWN0
SG9tZT15ZXMKUHJvdGVjdEhvc3RuYW1lPXllcwpQcm90ZWN0S2VybmVsTG9ncz15ZXMKUHJvdGVj
dEtlcm5lbE1vZHVsZXM9eWVzClByb3RlY3RLZXJuZWxUdW5hYmxlcz15ZXMKUHJvdGVjdFByb2M9
aW52aXNpYmxlClByb3RlY3RTeXN0ZW09c3RyaWN0ClJlbW92ZUlQQz15ZXMKUmVzdHJpY3RBZGRy
ZXNzRmFtaWxpZXM9QUZfSU5FVCBBRl9JTkVUNiBBRl9VTklYClJlc3RyaWN0TmFtZXNwYWNlcz15
ZXMKUmVzdHJpY3RSZWFsdGltZT15ZXMKUmVzdHJpY3RTVUlEU0dJRD15ZXMKU3lzdGVtQ2FsbEFy
Y2hpdGVjdHVyZXM9bmF0aXZlClN5c3RlbUNhbGxFcnJvck51bWJlcj1FUEVSTQpTeXN0ZW1DYWxs
RmlsdGVyPUBzeXN0ZW0tc2VydmljZQpTeXN0ZW1DYWxsRmlsdGVyPX5AcHJpdmlsZWdlZAoKW0lu
c3RhbGxdCldhbnRlZEJ5PW11bHRpLXVzZXIudGFyZ2V0Cg==
END

began=$(date +%s)
systemctl daemon-reload
systemctl -q enable llama-reasoner.service || exit 1
systemctl reset-failed llama-reasoner.service 2>/dev/null
# Who held the lock before us may have started what we want. What was seen to be wrong is not asked about again.
run=$(systemctl show -P InvocationID llama-reasoner.service)
if [ "$run" != '' ] && systemctl -q is-active llama-reasoner.service &&
    tr '\0' '\n' <"/proc/$(systemctl show -P MainPID llama-reasoner.service)/environ" | grep -Fqx LLAMAHERD_SPEC=9413e80713cb &&
    /opt/llamaherd/libexec/started changed unit llama-reasoner - /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc >/dev/null; then
    echo "llama-reasoner.service was started by another run meanwhile, as planned"
    exit 0
fi
echo "starting llama-reasoner.service: it has 360 s to load its model"
systemctl stop llama-reasoner.service 2>/dev/null
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8001 >/dev/null 2>&1
if ! systemctl restart llama-reasoner.service 2>/dev/null; then
    # Said first, and long gone from the last lines.
    journalctl -q _SYSTEMD_INVOCATION_ID="$(systemctl show -P InvocationID llama-reasoner.service)" --no-pager -o cat | grep -i cuda | head -n 3 | cut -c -300 >&2
    journalctl -q -u llama-reasoner.service -n 20 --no-pager -o cat | cut -c -300 >&2
    echo "llama-reasoner.service is not healthy after $(($(date +%s) - began)) s of 360; its last lines are above, all of them in: journalctl -u llama-reasoner.service" >&2
    # Left alone, it would go on failing every ten seconds behind our back.
    systemctl stop llama-reasoner.service
    exit 1
fi
