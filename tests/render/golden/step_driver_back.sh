# Goes back to the driver of before, by the program and the unit that do so where a driver does not answer. Whatever ends
# it, the next boot goes on with it.
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
hold 8 host 3600 'taking a driver back' || exit 1
before=/var/lib/llamaherd/driver-before
[ -e "$before/answered" ] && [ -x /opt/llamaherd/libexec/driver-undo ] || {
    echo 'what was kept of the driver before is gone' >&2
    exit 1
}
printf '%s\n' 'chat is slower by it: writing code -9.0%' >"$before/slower.new" && mv -f "$before/slower.new" "$before/slower" || exit 1
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
put_file /etc/systemd/system/llamaherd-driver-undo.service /etc/systemd/system 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgdGhlIG5leHQgYm9vdCBhbG9uZSwgd2hpY2ggcmVt
b3ZlcyBpdC4KW1VuaXRdCkRlc2NyaXB0aW9uPUJyaW5nIGJhY2sgdGhlIGRyaXZlciBvZiBiZWZv
cmUsIHdoZXJlIHRoZSBuZXcgb25lIGRvZXMgbm90IGFuc3dlcgpDb25kaXRpb25QYXRoSXNEaXJl
Y3Rvcnk9L3Zhci9saWIvbGxhbWFoZXJkL2RyaXZlci1iZWZvcmUKQWZ0ZXI9c3lzdGVtZC1tb2R1
bGVzLWxvYWQuc2VydmljZQoKW1NlcnZpY2VdClR5cGU9b25lc2hvdApFeGVjU3RhcnQ9L29wdC9s
bGFtYWhlcmQvbGliZXhlYy9kcml2ZXItdW5kbwpUaW1lb3V0U3RhcnRTZWM9MzYwMAoKW0luc3Rh
bGxdCldhbnRlZEJ5PW11bHRpLXVzZXIudGFyZ2V0Cg==
END

) && systemctl daemon-reload && systemctl -q enable llamaherd-driver-undo.service || exit 1
# The mark is gone after the reboot: until then nobody takes this for its end.
mkdir -p /run/llamaherd
: >/run/llamaherd/reboot && sync && systemctl --no-block start llamaherd-driver-undo.service
