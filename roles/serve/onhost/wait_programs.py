#!/usr/bin/env -S python3 -IS
"""Wait for a server that starts: two programs of its unit, in one file that is shipped under both names.

    wait-healthy URL
        Wait until the server reports at this URL that its model is loaded.
    wait-loaded URL KEY|-
        Wait until a server of several models, whose list of models is at this URL, has loaded one of them: it is
        healthy before that. KEY is the file of its key. Exit with 1 if the model does not load.

Both exit with 1 when the server ($MAINPID) is gone. TimeoutStartSec= of the unit limits how long they wait.
"""

# Shipped alone: for Python 3.10 and its standard library, without a module of llamaherd.
from __future__ import annotations

import http.client
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

USAGE = "usage: wait-healthy URL | wait-loaded URL KEY|-"
REQUEST_SECONDS = 5.0
_PAUSE_SECONDS = 0.2
_MOST = 1 << 20


def wait_healthy(url: str, main_pid: str) -> int:
    """Wait until a page is returned without an error. Return the exit code."""
    while (fetch(url, {}) or (500, b""))[0] >= 400:
        if not is_running(main_pid):
            return 1
        time.sleep(_PAUSE_SECONDS)
    return 0


def wait_loaded(url: str, key_file: str, main_pid: str) -> int:
    """Wait until a list of models contains a loaded one. Return the exit code."""
    headers = {}
    if key_file != "-":
        try:
            with Path(key_file).open("rb") as file:
                key = file.readline(_MOST).rstrip(b"\r\n")
        except OSError as error:
            return fail(f"the server's key cannot be read: {error}")
        if b"\r" in key or b"\0" in key:
            return fail(f"the key in {key_file} contains a control character")
        headers = {"Authorization": b"Bearer " + key}
    while is_running(main_pid):
        _, body = fetch(url, headers) or (0, b"")
        if b'"value":"loaded"' in body:
            return 0
        if b'"failed":true' in body:
            return fail("the model that is to be loaded first does not load")
        time.sleep(_PAUSE_SECONDS)
    return 1


def fetch(url: str, headers: Mapping[str, str | bytes]) -> tuple[int, bytes] | None:
    """Return the status and the first MiB of a page; None where it does not arrive in REQUEST_SECONDS.

    No proxy is used, and no redirect is followed: the request is for this host.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    try:
        # For the whole request: a limit for each read would not end a response that arrives byte by byte.
        signal.signal(signal.SIGALRM, _expire)
        signal.setitimer(signal.ITIMER_REAL, REQUEST_SECONDS)
        connection.request("GET", f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}", headers=headers)
        response = connection.getresponse()
        return response.status, response.read(_MOST)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.close()


def _expire(_: int, __: FrameType | None) -> None:
    raise TimeoutError


def is_running(pid: str) -> bool:
    """Return whether a process exists and this user may signal it."""
    if not (pid.isascii() and pid.isdigit()):
        return False
    try:
        os.kill(int(pid), 0)
    except (OSError, OverflowError):
        return False
    return True


def fail(reason: str) -> int:
    """Print the reason of a failure. Return the exit code."""
    print(reason, file=sys.stderr)
    return 1


def main(name: str, arguments: Sequence[str]) -> int:
    """Run the program of this name. Return its exit code."""
    main_pid = os.environ.get("MAINPID", "")
    match name, *arguments:
        case "wait-healthy", url:
            return wait_healthy(url, main_pid)
        case "wait-loaded", url, key_file:
            return wait_loaded(url, key_file, main_pid)
    return fail(USAGE)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[0]).name, sys.argv[1:]))
