# One run at a time changes this host: its lock is held until nobody is at the other end any more.
<<< bench_alone.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
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
<<< bench_alone.sh: while sleep 1; do
>>> while read -r _; do :; done
: >"$locks/run"
kill $words 2>/dev/null
