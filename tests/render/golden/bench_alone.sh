# One measurement at a time on this host: its lock is held until nobody is at the other end any more.
<<< step_release.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
open_lock 9 measure || exit 1
if ! flock -n 9; then
    by=$(cat "$locks/measure")
    echo "another measurement goes on here, by ${by:-somebody who has just begun}" >&2
    echo "  help: wait until it has ended" >&2
    exit 1
fi
printf '%s since %s\n' 'tom on desk' "$(date +'%F %T')" >"$locks/measure"
echo 'it is yours'
# A word now and then: the connection to somebody whose line was cut is given up then. It does not hold the lock.
while sleep 1; do
    kill -0 $$ 2>/dev/null || exit
    seconds=$(((${seconds:-0} + 1) % 30))
    [ "$seconds" != 0 ] || echo
done 9>&- &
words=$!
while read -r _; do :; done
: >"$locks/measure"
kill $words 2>/dev/null
