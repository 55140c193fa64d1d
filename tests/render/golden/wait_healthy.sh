#!/bin/sh
# Waits until the server on port $1 says that its model is loaded. Ends early when the server ($MAINPID) is gone;
# how long it may take at most is TimeoutStartSec= of the unit that calls it.
set -u
until curl -fs -o /dev/null --max-time 5 "http://127.0.0.1:$1/health"; do
    kill -0 "$MAINPID" 2>/dev/null || exit 1
    sleep 0.2
done
