"""The command line of the fetcher on a host: `fetch`, `adopt` and `share`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from llamaherd.onhost.fetch.adopt import adopt
from llamaherd.onhost.fetch.download import fetch
from llamaherd.onhost.fetch.job import FetchError, Progress, load_job
from llamaherd.onhost.fetch.share import serve_store

_STOPPED = 143


def main() -> int:
    """Run the command of the arguments; return the exit code."""
    # The files on disk are valid at any moment: there is nothing to clean up.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(_STOPPED))
    arguments = _parser().parse_args()
    run: Path = arguments.run
    (run / "failed").unlink(missing_ok=True)
    try:
        if arguments.command == "share":
            serve_store(arguments.store, run, arguments.bind, arguments.port, arguments.idle)
            return 0
        job = load_job(arguments.job)
        if arguments.command == "adopt":
            adopt(job, run)
            return 0
        return 1 if fetch(job, run) else 0
    except FetchError as error:
        Progress(run).fail([error])
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="llamaherd-fetcher", description="Fetch the files of models to this host.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (
        ("fetch", "fetch missing files from the job's sources"),
        ("adopt", "adopt files that are on this host already"),
    ):
        command = commands.add_parser(name, help=what, description=what)
        command.add_argument("job", type=Path, metavar="JOB", help="the job.json with the files to fetch")
        command.add_argument(
            "run", type=Path, metavar="RUN", help="the folder for progress, with the tokens in secrets/"
        )
    what = "share the store with a peer, until no requests arrive any more"
    share = commands.add_parser("share", help=what, description=what)
    share.add_argument("store", type=Path, metavar="STORE", help="the folder of models")
    share.add_argument("run", type=Path, metavar="RUN", help="the folder for progress, with the tokens in secrets/")
    share.add_argument("--bind", required=True, metavar="ADDRESS", help="the address to listen on")
    share.add_argument("--port", required=True, type=int, metavar="N", help="the port to listen on")
    share.add_argument(
        "--idle", required=True, type=float, metavar="SECONDS", help="end after so long without a request"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
