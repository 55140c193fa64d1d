{
<<< texts.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# Breaks the lock of the run that changes this host, and says whose it was.
<<< host_turn.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>> open_lock 9 run || exit 1
if flock -n 9; then
    say free
    finish
fi
by=$(cat "$locks/run")
pid=${by##* process }
holds() { readlink "/proc/$pid/fd/9" 2>/dev/null | grep -Fqx "$locks/run"; }
case $pid in
'' | *[!0-9]*)
    say held "$by"
    finish
    ;;
esac
! holds || kill -KILL "$pid"
for _ in 1 2 3 4 5; do
    # Who has waited for it may hold it by now.
    holds || { say broken "$by" && finish; }
    sleep 1
done
say held "$by"

finish
} </dev/null
