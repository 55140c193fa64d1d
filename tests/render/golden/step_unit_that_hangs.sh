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

# Nobody loses what somebody wrote, and a unit is what is declared.
aside=/var/lib/llamaherd/set-aside/'etc_systemd_system_llama-chat.service.d_it'"'"'s mine.conf'.$(date +%Y%m%dT%H%M%S)
if [ -e '/etc/systemd/system/llama-chat.service.d/it'"'"'s mine.conf' ] || [ -L '/etc/systemd/system/llama-chat.service.d/it'"'"'s mine.conf' ]; then
    install -d -m 0700 /var/lib/llamaherd/set-aside && mv -fT '/etc/systemd/system/llama-chat.service.d/it'"'"'s mine.conf' "$aside" || exit 1
    echo '/etc/systemd/system/llama-chat.service.d/it'"'"'s mine.conf changed llama-chat.service and is not declared; it lies in' "$aside now"
    rmdir "$(dirname '/etc/systemd/system/llama-chat.service.d/it'"'"'s mine.conf')" 2>/dev/null
fi
began=$(date +%s)
systemctl daemon-reload
systemctl -q enable llama-chat.service || exit 1
systemctl reset-failed llama-chat.service 2>/dev/null
# Who held the lock before us may have started what we want. What was seen to be wrong is not asked about again.
run=$(systemctl show -P InvocationID llama-chat.service)
if [ "$run" != 8f8f8f8f8f8f8f8f8f8f8f8f8f8f8f8f ] && systemctl -q is-active llama-chat.service &&
    tr '\0' '\n' <"/proc/$(systemctl show -P MainPID llama-chat.service)/environ" | grep -Fqx LLAMAHERD_SPEC=ea3d36a7a072 &&
    /opt/llamaherd/libexec/started changed unit llama-chat /etc/llamaherd/keys/chat /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 >/dev/null; then
    echo "llama-chat.service was started by another run meanwhile, as planned"
    exit 0
fi
echo 'llama-chat.service hangs: its process is stopped (SIGSTOP)'
# It could not end by itself; and nothing is done to a unit that is frozen.
systemctl thaw llama-chat.service >/dev/null 2>&1
systemctl kill --kill-who=main -s KILL llama-chat.service
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
