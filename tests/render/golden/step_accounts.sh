# Each server, and what compiles and fetches, runs as a user of its own, who owns nothing else and cannot log in.
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
hold 8 host 3600 'making accounts and folders' || exit 1
set -eu
# A user of a server's own, who owns nothing else and cannot log in.
account() {
    id -u "$1" >/dev/null 2>&1 ||
        useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$1"
}
for user in llama llama-build llama-fetch llama-chat; do
    account "$user"
    # An account that is a person's is left alone: it may be the one that logs in here.
    [ "$(id -u "$user")" -ge 1000 ] || usermod --shell /usr/sbin/nologin --gid "$user" --groups '' --lock "$user"
done
umask 022
mkdir -p /opt/llamaherd /etc/llamaherd /var/lib/llamaherd /var/cache/llamaherd /opt/llamaherd/builds /opt/llamaherd/libexec /var/lib/llamaherd/models /var/lib/llamaherd/build /etc/llamaherd/compose /var/lib/llamaherd/work /etc/llamaherd/keys /var/cache/llamaherd/sources /var/cache/llamaherd/ccache
chown root /opt/llamaherd /etc/llamaherd /var/lib/llamaherd /var/cache/llamaherd /opt/llamaherd/builds /opt/llamaherd/libexec /var/lib/llamaherd/models /var/lib/llamaherd/build /etc/llamaherd/compose /var/lib/llamaherd/work /etc/llamaherd/keys
chown llama-build /var/cache/llamaherd/sources /var/cache/llamaherd/ccache
chmod 0755 /opt/llamaherd /etc/llamaherd /var/lib/llamaherd /var/cache/llamaherd /opt/llamaherd/builds /opt/llamaherd/libexec /var/lib/llamaherd/models /var/lib/llamaherd/build /etc/llamaherd/compose /var/lib/llamaherd/work /etc/llamaherd/keys /var/cache/llamaherd/sources /var/cache/llamaherd/ccache
# A key is its reader's alone; nobody can list which there are.
install -d -m 0711 -o root -g root /etc/llamaherd/keys
# What is sent from the controller arrives here, as whoever logs in, and is checked before it is let in.
install -d -m 0700 -o "${SUDO_USER:-root}" /var/lib/llamaherd/incoming
