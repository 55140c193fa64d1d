#!/bin/sh
# Waits until the server that is asked for its health at URL $1 says that its model is loaded. Ends early when the
# server ($MAINPID) is gone; how long it may take at most is TimeoutStartSec= of the unit that calls it.
set -u
tries=0
until curl -fs -o /dev/null --max-time 5 "$1"; do
    kill -0 "$MAINPID" 2>/dev/null || exit 1
    # Often at first: a small model is there in less than a second.
    [ $((tries += 1)) -lt 50 ] && sleep 0.05 || sleep 0.2
done
