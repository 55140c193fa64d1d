# The fetch that runs brings what is wanted here: what it ends with is the answer to this run, too.
exec 9>/run/lock/llamaherd-fetch && flock 9 || exit 1
[ "$(cat /run/llamaherd/fetch.id 2>/dev/null)" = 8e2bba1ef066 ] && echo 0123456789abcdef >>/run/llamaherd/fetch.watchers
exit 0
