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
# `timeout`, since an argument that swallows --version would start the server.
key=$(mktemp) && echo placeholder >"$key" && chmod 0644 "$key"
said=$(timeout 20 setpriv --reuid 2093696176 --regid 2093696176 --clear-groups --no-new-privs \
    env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server --model /var/lib/llamaherd/models/local/0404040404040404/moe.gguf --alias moe --ctx-size 4096 --cache-type-k f16 --cache-type-v f16 --flash-attn auto --parallel 1 --threads 1 --host 127.0.0.1 --port 8081 --metrics --spec-type draft-mtp --spec-draft-n-max 2 --version 2>&1)
rc=$?
rm -f "$key"
if [ $rc != 0 ] || ! printf '%s\n' "$said" | grep -q '^version:'; then
    printf '%s\n' "$said" | grep -i error | head -n 5 >&2
    echo "instance drafter: /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server does not accept its arguments; the instance was left as it was" >&2
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
if [ "${now%% *}" != '' ] && [ "${now#* }" = 'running healthy 6b3e9ef709bc' ] &&
    /opt/llamaherd/libexec/started changed container llama-drafter - /var/lib/llamaherd/models/local/0404040404040404 >/dev/null; then
    echo "llama-drafter was started by another run meanwhile, as planned"
    exit 0
fi
began=$(date +%s)
echo "starting llama-drafter in its container: it has 300 s to load its model"
docker stop llama-drafter >/dev/null 2>&1
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8081 >/dev/null 2>&1
if ! docker compose --progress plain -f /etc/llamaherd/compose/drafter/compose.yaml up -d --force-recreate --remove-orphans \
    --wait --wait-timeout 300 >/run/llamaherd-compose.log 2>&1; then
    tail -n 5 /run/llamaherd-compose.log | cut -c -300 >&2
    docker logs --tail 20 llama-drafter 2>&1 | cut -c -300 >&2
    echo "llama-drafter is not healthy after $(($(date +%s) - began)) s of 300; its last lines are above, all of them in: docker logs llama-drafter" >&2
    docker compose -f /etc/llamaherd/compose/drafter/compose.yaml stop >/dev/null 2>&1
    exit 1
fi
/opt/llamaherd/libexec/started record container llama-drafter - /var/lib/llamaherd/models/local/0404040404040404
# The network that it had before, if it is on the host's own now: one in use is not removed.
docker network rm llama-drafter_default >/dev/null 2>&1 || :
