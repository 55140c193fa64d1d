# One run at a time changes this host: its lock is held until nobody is at the other end any more.
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
open_lock 9 run || exit 1
if ! flock -n 9; then
    by=$(cat "$locks/run")
    echo "waiting for another run on this host, by ${by:-somebody who has just begun}, for up to 60 s"
    if ! flock -w 60 9; then
        by=$(cat "$locks/run")
        echo "another run changes this host, by ${by:-somebody who has just begun}" >&2
        echo "  help: wait until it has ended and run again; where it is gone for good, "'`herd unlock duo` breaks its lock' >&2
        exit 1
    fi
fi
# What a killed run has begun goes on here, and ends first: then it can be seen what it did.
(hold 8 host 60 'beginning a run') || exit 1
printf '%s since %s, process %s\n' 'tom on desk' "$(date +'%F %T')" $$ >"$locks/run"
echo 'it is yours'
# A word now and then: the connection to somebody whose line was cut is given up then. It does not hold the lock, and
# does not keep the connection of one whose lock was broken.
while sleep 1; do
    kill -0 $$ 2>/dev/null || exit
    seconds=$(((${seconds:-0} + 1) % 30))
    [ "$seconds" != 0 ] || echo
done 9>&- &
words=$!
while read -r _; do :; done
: >"$locks/run"
kill $words 2>/dev/null
