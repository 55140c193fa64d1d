"""`herd` from its first moment to its last: signals, and an output that takes nothing, never end in a traceback.

Only what Python has loaded anyway is imported before that holds.
"""

import errno
import gc
import io
import os
import signal
import sys
from typing import Any, NoReturn

UNWRITABLE = 1
"""The exit code where what was to be said could not be."""


class Output(io.FileIO):
    """Stdout's file, which remembers why it takes nothing."""

    problem: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write what it takes."""
        try:
            return super().write(data)
        except OSError as error:
            self.problem = error
            raise


def main() -> NoReturn:
    """Run a command of `herd`; 130 where it is interrupted, 143 or 129 where it is ended from outside."""
    gc.set_threshold(50_000)  # nearly all that is made while Python loads us stays: looking through it frees nothing
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # nohup, and shells' background jobs
            signal.signal(ending, _leave)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for some reads all that is installed
    output = _output()
    code: Any = UNWRITABLE
    try:
        from llamaherd.cli.herd import main as herd

        herd(prog_name="herd")
    except SystemExit as ended:
        code = ended.code
    except OSError as error:
        if error is not output.problem:
            raise
    code = code if isinstance(code, int) else int(code is not None)
    sys.exit(_end(output, code))


def _leave(number: int, _frame: object) -> NoReturn:
    """At once: nothing is begun yet, or all is done. Past Python's own buffers, which refuse to be entered twice."""
    if number == signal.SIGINT:
        os.write(2, b"interrupted\n")
    os._exit(128 + number)


def _output() -> Output:
    """Stdout, made such that a character it has no bytes for is shown as `?`."""
    try:
        os.fstat(2)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # else the next file that is opened would be stderr
    try:
        os.fstat(1)
    except OSError:
        os.write(2, b"herd: stdout is closed\n  help: leave it open, or say `>/dev/null`\n")
        os._exit(UNWRITABLE)
    output = Output(1, "w", closefd=False)
    old = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(output), encoding=old.encoding, errors="replace", line_buffering=output.isatty()
    )
    return output


def _end(output: Output, code: int) -> int:
    """The exit code, once all is written that can be."""
    try:
        sys.stdout.flush()
    except OSError as error:
        output.problem = output.problem or error
    if output.problem:
        # Whoever reads no further, as `head`, need not be told.
        if output.problem.errno != errno.EPIPE:
            os.write(2, f"herd: cannot write the output: {output.problem.strerror}\n".encode())
        os._exit(code or UNWRITABLE)
    if code > 128:
        os._exit(code)  # threads that wait for hosts are not waited for
    return code
