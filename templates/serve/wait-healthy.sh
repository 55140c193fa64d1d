#!/bin/sh
# Waits until the server that is asked for its health at URL $1 says that its model is loaded. Ends early when the
# server ($MAINPID) is gone; how long it may take at most is TimeoutStartSec= of the unit that calls it.
set -u
until curl -q -fs --noproxy '*' -o /dev/null --max-time 5 "$1"; do
    kill -0 "$MAINPID" 2>/dev/null || exit 1
    sleep 0.2
done
