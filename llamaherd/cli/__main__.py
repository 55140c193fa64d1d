"""The entry point of `herd`: signals and a failing output end it without a traceback.

Until the signal handlers are set, it imports only modules that Python has loaded anyway.
"""

import errno
import gc
import io
import os
import signal
import sys
from typing import Any, NoReturn

UNWRITABLE = 1
"""The exit code if the output cannot be written."""


class Output(io.FileIO):
    """The file of stdout, which stores why it cannot be written."""

    problem: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write data."""
        try:
            return super().write(data)
        except OSError as error:
            self.problem = error
            raise


def main() -> NoReturn:
    """Run a command of `herd`. The exit code is 130 after SIGINT, 143 after SIGTERM, 129 after SIGHUP."""
    gc.set_threshold(50_000)  # nearly all objects that are created while modules load stay: collecting frees nothing
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # nohup, and shells' background jobs
            signal.signal(ending, _leave)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # the search reads all packages
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
    """Exit at once: no command is running. Write to the file descriptor: Python's buffers are not reentrant."""
    if number == signal.SIGINT:
        os.write(2, b"interrupted\n")
    os._exit(128 + number)


def _output() -> Output:
    """Open stdout again, so that a character outside its encoding is printed as `?`."""
    try:
        os.fstat(2)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # otherwise the next opened file would become stderr
    try:
        os.fstat(1)
    except OSError:
        os.write(2, b"herd: stdout is closed\n  help: leave it open, or use `>/dev/null`\n")
        os._exit(UNWRITABLE)
    output = Output(1, "w", closefd=False)
    old = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(output), encoding=old.encoding, errors="replace", line_buffering=output.isatty()
    )
    return output


def _end(output: Output, code: int) -> int:
    """Flush the output, and return the exit code."""
    try:
        sys.stdout.flush()
    except OSError as error:
        output.problem = output.problem or error
    if output.problem:
        # A reader that closes the pipe early, such as `head`, is no error.
        if output.problem.errno != errno.EPIPE:
            os.write(2, f"herd: cannot write the output: {output.problem.strerror}\n".encode())
        os._exit(code or UNWRITABLE)
    if code > 128:
        os._exit(code)  # do not wait for threads that wait for hosts
    return code


if __name__ == "__main__":
    main()
