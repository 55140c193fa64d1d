#!/bin/sh
# Waits until a server of several models, whose list of models is at URL $1, has one of them loaded: it answers for its
# health before that. $2 is the file of its key, or -. Ends early when the server ($MAINPID) is gone, or the model does
# not load; how long it may take at most is TimeoutStartSec= of the unit that calls it.
set -u
key=''
[ "$2" = - ] || IFS= read -r key <"$2"
while kill -0 "$MAINPID" 2>/dev/null; do
    said=$(printf 'Authorization: Bearer %s\n' "$key" | curl -q -s --noproxy '*' --max-time 5 -H @- "$1" | head -c 1048576)
    case $said in
    *'"value":"loaded"'*) exit 0 ;;
    *'"failed":true'*)
        echo 'the model that is to be loaded first does not load' >&2
        exit 1
        ;;
    esac
    sleep 0.2
done
exit 1
