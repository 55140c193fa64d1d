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
hold 8 host 3600 'starting llama-chat.service' || exit 1
# The engine itself says whether it understands these arguments: it reads them all before --version ends it.
# `timeout`, since an argument that swallows --version would start the server.
key=$(mktemp) && echo placeholder >"$key" && chmod 0644 "$key"
said=$(timeout 20 setpriv --reuid llama-chat --regid llama-chat --clear-groups --no-new-privs \
    env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server --model /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/gemma.gguf --alias gemma --ctx-size 8192 --cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on --parallel 1 --threads 1 --host 127.0.0.1 --port 8080 --metrics --api-key-file "$key" --version 2>&1)
rc=$?
rm -f "$key"
if [ $rc != 0 ] || ! printf '%s\n' "$said" | grep -q '^version:'; then
    printf '%s\n' "$said" | grep -i error | head -n 5 >&2
    echo "instance chat: /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server does not accept its arguments; the instance was left as it was" >&2
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
Yz0zMDAKUmVzdGFydD1vbi1mYWlsdXJlClJlc3RhcnRTZWM9MTAKS2lsbFNpZ25hbD1TSUdJTlQK
IyBXaGF0IGl0IGhhcyB0byBsb3NlIGlzIGluIGl0cyBjbGllbnRzOiB3aGlsZSBpdCBzdHJlYW1z
LCBTSUdJTlQgY2FuIGxlYXZlIGl0IGhhbmdpbmcgd2l0aCBpdHMgcG9ydCBjbG9zZWQuClRpbWVv
dXRTdG9wU2VjPTEKIyBFYWNoIGNvbm5lY3Rpb24gaXMgYW4gb3BlbiBmaWxlLCBhbmQgdGhlIGZp
cnN0IDEsMDAwIG9yIHNvIGFyZSBhIHRocmVhZCBlYWNoOyBzeXN0ZW1kJ3Mgb3duIGxpbWl0IGlz
IDEsMDI0IGZpbGVzLgpMaW1pdE5PRklMRT0xNjM4NApUYXNrc01heD00MDk2CiMgRGllcyBiZWZv
cmUgc3NoZCBkb2VzIHdoZW4gbWVtb3J5IHJ1bnMgb3V0LgpPT01TY29yZUFkanVzdD01MDAKRW52
aXJvbm1lbnQ9TExBTUFIRVJEX1NQRUM9ZWEzZDM2YTdhMDcyCiMgTm8gY29uZmlndXJhdGlvbiBi
dXQgdGhpcyBmaWxlOiBsbGFtYS5jcHAgcmVhZHMgY29uZmlnLmluaSBmcm9tIGhlcmUgYW5kIGZy
b20gL2V0Yy9sbGFtYS5jcHAuCkVudmlyb25tZW50PVhER19DT05GSUdfSE9NRT0vbm9uZXhpc3Rl
bnQKSW5hY2Nlc3NpYmxlUGF0aHM9LS9ldGMvbGxhbWEuY3BwCgpVc2VyPWxsYW1hLWNoYXQKR3Jv
dXA9bGxhbWEtY2hhdApVTWFzaz0wMDc3Ck5vTmV3UHJpdmlsZWdlcz15ZXMKQ2FwYWJpbGl0eUJv
dW5kaW5nU2V0PQpBbWJpZW50Q2FwYWJpbGl0aWVzPQpQcml2YXRlRGV2aWNlcz15ZXMKRGV2aWNl
UG9saWN5PWNsb3NlZApQcm9jU3Vic2V0PXBpZApJUEFkZHJlc3NEZW55PWFueQpJUEFkZHJlc3NB
bGxvdz1sb2NhbGhvc3QKTG9ja1BlcnNvbmFsaXR5PXllcwpNZW1vcnlEZW55V3JpdGVFeGVjdXRl
PXllcwpQcml2YXRlSVBDPXllcwpQcml2YXRlVG1wPXllcwpQcm90ZWN0Q2xvY2s9eWVzClByb3Rl
Y3RDb250cm9sR3JvdXBzPXllcwpQcm90ZWN0SG9tZT15ZXMKUHJvdGVjdEhvc3RuYW1lPXllcwpQ
cm90ZWN0S2VybmVsTG9ncz15ZXMKUHJvdGVjdEtlcm5lbE1vZHVsZXM9eWVzClByb3RlY3RLZXJu
ZWxUdW5hYmxlcz15ZXMKUHJvdGVjdFByb2M9aW52aXNpYmxlClByb3RlY3RTeXN0ZW09c3RyaWN0
ClJlbW92ZUlQQz15ZXMKUmVzdHJpY3RBZGRyZXNzRmFtaWxpZXM9QUZfSU5FVCBBRl9JTkVUNiBB
Rl9VTklYClJlc3RyaWN0TmFtZXNwYWNlcz15ZXMKUmVzdHJpY3RSZWFsdGltZT15ZXMKUmVzdHJp
Y3RTVUlEU0dJRD15ZXMKU3lzdGVtQ2FsbEFyY2hpdGVjdHVyZXM9bmF0aXZlClN5c3RlbUNhbGxF
cnJvck51bWJlcj1FUEVSTQpTeXN0ZW1DYWxsRmlsdGVyPUBzeXN0ZW0tc2VydmljZQpTeXN0ZW1D
YWxsRmlsdGVyPX5AcHJpdmlsZWdlZAoKW0luc3RhbGxdCldhbnRlZEJ5PW11bHRpLXVzZXIudGFy
Z2V0Cg==
END
put_file /etc/llamaherd/keys/chat /etc/llamaherd/keys 0400 llama-chat <<'END'
a2V5Cg==
END

began=$(date +%s)
systemctl daemon-reload
systemctl -q enable llama-chat.service || exit 1
systemctl reset-failed llama-chat.service 2>/dev/null
# Who held the lock before us may have started what we want. What was seen to be wrong is not asked about again.
run=$(systemctl show -P InvocationID llama-chat.service)
if [ "$run" != '' ] && systemctl -q is-active llama-chat.service &&
    tr '\0' '\n' <"/proc/$(systemctl show -P MainPID llama-chat.service)/environ" | grep -Fqx LLAMAHERD_SPEC=ea3d36a7a072 &&
    /opt/llamaherd/libexec/started changed unit llama-chat /etc/llamaherd/keys/chat /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 >/dev/null; then
    echo "llama-chat.service was started by another run meanwhile, as planned"
    exit 0
fi
echo "starting llama-chat.service: it has 300 s to load its model"
systemctl stop llama-chat.service 2>/dev/null
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8080 >/dev/null 2>&1
if ! systemctl restart llama-chat.service 2>/dev/null; then
    journalctl -q -u llama-chat.service -n 20 --no-pager -o cat | cut -c -300 >&2
    echo "llama-chat.service is not healthy after $(($(date +%s) - began)) s of 300; its last lines are above, all of them in: journalctl -u llama-chat.service" >&2
    # Left alone, it would go on failing every ten seconds behind our back.
    systemctl stop llama-chat.service
    exit 1
fi
