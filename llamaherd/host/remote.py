"""Run a script or the program on a host in one connection: by the OpenSSH client, or on this machine."""

from __future__ import annotations

import os
import select
import selectors
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Self, TypeVar, get_args

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.program import GO, MISSING, SEND, Events, Program, bootstrap, packed_program, parse_event, request
from llamaherd.host.signals import end_with_parent
from llamaherd.host.ssh import (
    JOIN_SECONDS,
    NOT_THROUGH,
    SSH_ENDED,
    Forward,
    RemoteError,
    argv,
    is_open,
    lost,
    not_started,
    place,
    require_key,
    shared_socket,
)
from llamaherd.host.time_limits import show_limit
from llamaherd.inventory.schema import Connect
from llamaherd.inventory.schema.rig import OperatingSystem
from llamaherd.text.numbers import show_size

PIECE = 1 << 16
"""Bytes of one read or write: the capacity of a pipe."""


@dataclass
class Patience:
    """The limits of a wait: seconds without a byte either way, and seconds in all since `began`.

    Each wait has a total: a peer that sends a byte now and then is never silent. `what` is the work that the error
    message names.
    """

    silence: float
    total: float
    what: str = ""
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def within(cls, seconds: float, what: str = "") -> Patience:
        """Return the limits of a wait that may be silent until its total ends."""
        return cls(seconds, seconds, what)

    def renew(self, total: float, what: str = "") -> None:
        """Start a new total, for the next response of a verb that reads commands."""
        self.total, self.what, self.began = total, what or self.what, time.monotonic()

    @property
    def rest(self) -> float:
        """Return the seconds of the total that are left: negative after its end."""
        return self.began + self.total - time.monotonic()

    def left(self) -> float:
        """Return the seconds to wait for the next byte. Raise TimeoutError after the end of the total."""
        if self.rest <= 0:
            raise TimeoutError
        return min(self.rest, self.silence)


def talk(
    process: subprocess.Popen[bytes], pieces: Iterator[bytes], patience: Patience, *, more: bool = False
) -> Iterator[tuple[str, bytes]]:
    """Write these pieces to a process, and yield its output on `stdout` and `stderr` until it has closed both.

    Close its stdin after the last piece, unless there is `more` to write later. Raise TimeoutError.
    """
    assert process.stdin
    assert process.stdout
    assert process.stderr
    os.set_blocking(process.stdin.fileno(), False)
    feed = _Feed(process.stdin.fileno(), pieces)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE, "stdin")
        selector.register(process.stdout, selectors.EVENT_READ, "stdout")
        selector.register(process.stderr, selectors.EVENT_READ, "stderr")
        open_outputs = 2
        while open_outputs:
            ready = selector.select(patience.left())
            if not ready:
                raise TimeoutError
            # A script prints its progress, and then why it fails: stdout first where both have output.
            for key, _ in sorted(ready, key=lambda each: str(each[0].data), reverse=True):
                if key.data == "stdin":
                    if not feed.write():
                        selector.unregister(process.stdin)
                        if not more:
                            process.stdin.close()
                elif piece := os.read(key.fd, PIECE):
                    yield key.data, piece
                else:
                    selector.unregister(key.fileobj)
                    open_outputs -= 1


class _Feed:
    """Writes pieces into a pipe that does not block."""

    def __init__(self, pipe: int, pieces: Iterator[bytes]) -> None:
        self._pipe, self._pieces, self._piece = pipe, pieces, b""

    def write(self) -> bool:
        """Write as much as the pipe has room for. Return False after the last piece, and if the reader has ended."""
        self._piece = self._piece or next(self._pieces, b"")
        if not self._piece:
            return False
        try:
            self._piece = self._piece[os.write(self._pipe, self._piece) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return True


__all__ = ["AT_ONCE", "Remote", "RemoteError", "Shell", "as_they_come", "on_hosts", "query_all"]

AT_ONCE = 16
"""Hosts that are queried at the same time. Each is an ssh client, which mostly waits."""

MOST, MOST_LINES = 8 << 20, 100_000
"""Bytes and lines of one output: an inspection has some kB, the table of a large store some 100 kB."""

LOGIN_SECONDS = 30
"""Seconds from the connection to a shell. A host may wait for name servers that do not respond."""

_MARK = b"llamaherd: a shell is there\n"
"""The line that a shell prints before its script. Start files and banners print before this line."""

_BEFORE = 1 << 20
"""Bytes that start files and banners may print."""

_ENDING_SECONDS = 5
"""Seconds to wait for the end of a script whose output is no longer read."""

IN_ORDER_SECONDS = 5
"""Seconds in which results are shown in their order. Hosts that take longer come last."""

Heard = Callable[[str, str], None]
"""Receives `stdout` or `stderr`, and a line with its line break."""


_T = TypeVar("_T")
_Host = TypeVar("_Host")


def as_they_come(results: Mapping[str, Future[_T]], in_order: float = IN_ORDER_SECONDS) -> Iterator[tuple[str, _T]]:
    """Yield the results of hosts: in their order for `in_order` seconds, then each as it arrives."""
    until = time.monotonic() + in_order
    late: dict[Future[_T], str] = {}
    for name, result in results.items():
        wait([result], max(0.0, until - time.monotonic()))
        if result.done():
            yield name, result.result()
        else:
            late[result] = name
    for result in as_completed(late):
        yield late[result], result.result()


@contextmanager
def on_hosts(hosts: Mapping[str, _Host], query: Callable[[_Host], _T]) -> Iterator[dict[str, Future[_T]]]:
    """Query hosts at the same time, and yield the future results. An interrupted command waits for no host."""
    pool = ThreadPoolExecutor(max(1, min(AT_ONCE, len(hosts))))
    try:
        yield {name: pool.submit(query, host) for name, host in hosts.items()}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def query_all(hosts: Mapping[str, _Host], query: Callable[[_Host], _T]) -> dict[str, _T]:
    """Query hosts at the same time, and return all results in their order."""
    with on_hosts(hosts, query) as results:
        return {name: result.result() for name, result in results.items()}


class NoPythonError(RemoteError):
    """A host has no python3, which the program on hosts needs. `installable`: whether `herd up` can install it."""

    def __init__(self, connect: Connect, distribution: str) -> None:
        name, known = distribution[:40].strip("-"), get_args(OperatingSystem)
        self.installable = name in known
        help_ = f"use a host with one of {', '.join(known)}: llamaherd provisions no other system"
        super().__init__(
            f"there is no python3 on {place(connect)}{f' ({name})' if name else ''}",
            "run `herd up`: it installs python3 first" if self.installable else help_,
        )


@dataclass(frozen=True)
class Remote:
    """A host that runs verbs as root."""

    connect: Connect
    note_key: bool = field(default=False, kw_only=True)
    """Whether to accept and store the key of an unknown host, unless the inventory has `known_hosts:`."""

    def perform(
        self, program: Program, document: bytes | Callable[[], bytes], events: Events, limit: float | Patience
    ) -> int:
        """Run a verb, and return the exit code of the program. A host that is not set up does not store the program.

        Login and verb have so many seconds together, or the limits of a patience. Raise RemoteError where the verb
        could not be started or did not end in time, and NoPythonError.
        """
        patience = limit if isinstance(limit, Patience) else Patience.within(limit)
        with Shell(self.connect, note_key=self.note_key, login_seconds=min(patience.total, LOGIN_SECONDS)) as shell:
            return shell.run_program(program, document, events, patience, keep=False)


class Shell:
    """A shell on a host, root's or the login user's, that waits for its script."""

    def __init__(
        self,
        connect: Connect,
        *,
        root: bool = True,
        note_key: bool = False,
        fresh: bool = False,
        forward: Forward | None = None,
        login_seconds: float | None = None,
    ) -> None:
        """Log in, on the shared connection of the host if there is one. `forward` lasts as long as the shell.

        A shell with `fresh` or `forward` has a connection of its own. Raise RemoteError.
        """
        require_key(connect)
        self._connect = connect
        self._err = b""
        self._shared = None if fresh or forward else shared_socket(connect)
        command = argv(connect, root=root, note_key=note_key, fresh=fresh or bool(forward), shared=self._shared)
        command[1:1] = forward.options if forward else ()
        seconds = LOGIN_SECONDS if login_seconds is None else login_seconds
        if self._shared and self._shared.exists() and self._joined(command, seconds):
            return
        self._start(command)
        try:
            self._log_in(Patience.within(seconds))
        except RemoteError:
            if self._shared is None or NOT_THROUGH not in self._err.decode(errors="replace"):
                raise
            # A client that shares its connection discards what a jump host prints: another client has the reason.
            self._shared, self._err = None, b""
            self._start(argv(connect, root=root, note_key=note_key, fresh=True))
            self._log_in(Patience.within(seconds))

    def _joined(self, command: Sequence[str], seconds: float) -> bool:
        """Log in on the shared connection. Return False if that connection is dead: later clients do not find it.

        Raise RemoteError if the connection works, and the login does not.
        """
        assert self._shared
        self._start(command)
        try:
            self._log_in(Patience.within(min(seconds, JOIN_SECONDS)))
        except RemoteError:
            code = self._process.poll()
            if code is not None and 0 <= code < SSH_ENDED:  # of a program on the host
                raise
            self._shared.unlink(missing_ok=True)
            self._err = b""
            return False
        return True

    def _start(self, command: Sequence[str]) -> None:
        """Start the client. Raise RemoteError."""
        try:
            # llamaherd/host/ssh.py reads the client's messages, in English.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=os.environ | {"LC_ALL": "C"},
                # Ctrl-C must not end the client: a measurement sends commands to the host before it disconnects.
                process_group=0,
                preexec_fn=end_with_parent,
            )
        except FileNotFoundError as error:
            raise RemoteError(
                f"there is no `{error.filename}` on this machine", "install the package openssh-client"
            ) from None

    def __enter__(self) -> Self:
        """Return the shell."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the shell and its script."""
        self.close()

    @property
    def alive(self) -> bool:
        """Return whether the shell still runs."""
        return self._process.poll() is None

    def run(self, script: str, heard: Heard, patience: Patience) -> int:
        """Run a script, and pass each line to `heard` as it arrives. Return the exit code.

        Raise RemoteError if the connection is lost, and if the output is too long or exceeds the limits of time.
        """
        for stream, line in self.lines(script, patience):
            heard(stream, line)
        return self._ended(patience)

    def lines(self, script: str, patience: Patience) -> Iterator[tuple[str, str]]:
        """Yield the stream and the text of each line that a script prints, with its line break. Raise as `run` does."""
        return self._lines(iter([script.encode()]), patience)

    def _lines(
        self, pieces: Iterator[bytes], patience: Patience, *, more: bool = False
    ) -> Generator[tuple[str, str], None, None]:
        begun = {"stdout": b"", "stderr": b""}
        heard = lines = 0
        for stream, piece in self._talk(pieces, patience, more=more):
            heard += len(piece)
            lines += piece.count(b"\n")
            if heard > MOST or lines > MOST_LINES:
                raise RemoteError(
                    f"{place(self._connect)} does not stop printing: {show_size(heard)} so far",
                    "check what the programs on that host print",
                )
            *whole, begun[stream] = (begun[stream] + piece).split(b"\n")
            for line in whole:
                yield stream, line.decode(errors="replace") + "\n"
        self._require_end(patience)
        for stream, rest in begun.items():
            if rest:
                yield stream, rest.decode(errors="replace")

    def run_program(
        self,
        program: Program,
        document: bytes | Callable[[], bytes],
        events: Events,
        patience: Patience,
        *,
        keep: bool = True,
    ) -> int:
        """Run the program with a document on stdin. Send the program first if the host lacks this version.

        Return the exit code; `events` reads each line that the program writes. A document that is a function is made
        after the login. Without `keep`, a host that is not set up stores nothing. Raise as `run` does, and
        NoPythonError.
        """
        pieces = self._start_program(program, document, events, patience, keep=keep)
        for stream, text in self._lines(pieces, patience):
            events.hear(stream, text)
        code = self._ended(patience)
        unfinished = not (events.finished or events.error)
        if problem := lost(self._connect, code, "", unfinished=unfinished):
            raise problem
        return code

    def converse(self, verb: str, given: object, patience: Patience) -> Iterator[str]:
        """Yield the lines of a verb that reads commands until this generator is closed.

        Raise RemoteError at a limit, UserError if the verb fails, and NoPythonError. The caller renews `patience` for
        each response.
        """
        document = request(verb, given) + b"\n"
        events = Events(lambda *_: None)
        pieces = self._start_program(packed_program(), document, events, patience, keep=False)
        for line in self._while_it_listens(pieces, patience):
            text = line.decode(errors="replace")
            match parse_event(text):
                case {"event": "progress", "text": str(reported)}:
                    yield reported
                case {"event": "warning", "text": str(warned)}:
                    self._err = (self._err + f"{warned}\n".encode())[-PIECE:]
                case {"event": "error", "message": str(message), "help": str(fix)}:
                    raise UserError(message, fix)
                case {"event": "result"}:
                    pass
                case _:
                    yield text
        self._require_end(patience)

    def values(
        self, program: Program, document: bytes, events: Events, patience: Patience
    ) -> Generator[object, None, None]:
        """Run the program, and yield each value that its verb sends. The caller may send lines until it ends.

        A host that is not set up stores nothing. Raise as `run_program` does.
        """
        pieces = self._start_program(program, document + b"\n", events, patience, keep=False)
        with closing(self._lines(pieces, patience, more=True)) as lines:
            for stream, text in lines:
                events.hear(stream, text)
                while events.values:
                    yield events.values.pop(0)

    def send(
        self,
        program: Program,
        document: bytes,
        data: BinaryIO,
        events: Events,
        patience: Patience,
        sent: Callable[[int], None],
    ) -> int:
        """Run a verb that sends the number of the first byte that it lacks. Send it the bytes of `data` from there on.

        A verb that lacks none sends no number. Return the exit code. Before the number, the host may be silent for as
        long as a login. Call `sent` with the bytes that the host has, after each piece. Raise as `run_program` does.
        """
        before = replace(patience, silence=LOGIN_SECONDS)
        with closing(self.values(program, document, events, before)) as values:
            first = next(values, None)
        if first is None:
            return self._ended(patience)
        if type(first) is not int or not 0 <= first <= data.seek(0, os.SEEK_END):
            message = f"{place(self._connect)} lacks a file from byte {first!r:.40} on, which the file does not have"
            raise RemoteError(message, "run the command again")
        data.seek(first)
        for stream, text in self._lines(_pieces(data, sent), patience):
            events.hear(stream, text)
        return self._ended(patience)

    def _start_program(
        self,
        program: Program,
        document: bytes | Callable[[], bytes],
        events: Events,
        patience: Patience,
        *,
        keep: bool,
    ) -> Iterator[bytes]:
        """Start the program. Return what to send: first the program, if the host lacks it, then the document."""
        script = f"{{\n{bootstrap(program, keep=keep)}\n}}\n"
        for line in self._while_it_listens(iter([script.encode()]), replace(patience, silence=LOGIN_SECONDS)):
            text = line.decode(errors="replace")
            if text in (GO, SEND):
                sent = [b"%d\n" % len(program.data), program.data] if text == SEND else []
                began = time.monotonic()
                pieces = iter([*sent, document if isinstance(document, bytes) else document()])
                patience.began += time.monotonic() - began
                return pieces
            if text.startswith(MISSING):
                events.no_python = True
                raise NoPythonError(self._connect, text.removeprefix(MISSING))
            events.hear("stdout", text + "\n")
        return iter(())

    def tell(self, line: str) -> None:
        """Send a short line to a verb that reads commands. Raise RemoteError if the connection has ended."""
        assert self._process.stdin
        try:
            os.write(self._process.stdin.fileno(), line.encode() + b"\n")
        except (OSError, ValueError):
            raise RemoteError(f"the connection to {place(self._connect)} has ended", "check the connection") from None

    def hang_up(self) -> None:
        """Close stdin: a verb that reads commands ends. Its output until then can still be read."""
        assert self._process.stdin
        with suppress(OSError):
            self._process.stdin.close()

    @property
    def complaints(self) -> list[str]:
        """Return the last lines that the script has printed on stderr."""
        return self._err.decode(errors="replace").splitlines()

    def _while_it_listens(self, pieces: Iterator[bytes], patience: Patience) -> Iterator[bytes]:
        """Yield the lines on stdout as they come, after these pieces, while stdin stays open."""
        begun = b""
        with closing(self._talk(pieces, patience, more=True)) as output:
            for stream, piece in output:
                *lines, begun = (begun + piece * (stream == "stdout")).split(b"\n")
                yield from lines
                if len(begun) > _BEFORE:
                    raise self._talks_without_end()

    def _talks_without_end(self) -> RemoteError:
        return RemoteError(
            f"the login shell of {place(self._connect)} does not stop printing before it reads a script",
            "check the start files of the login user's shell on that host",
        )

    def close(self) -> None:
        """End the shell. A script of another user cannot be sent a signal: it ends when its pipes are closed."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe
            with suppress(OSError):
                pipe.close()
        for end in (self._process.terminate, self._process.kill):
            with suppress(PermissionError):
                end()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDING_SECONDS)
                return

    def _log_in(self, patience: Patience) -> None:
        """Wait for the shell. End the client if that fails."""
        try:
            self._wait_for_shell(patience)
        except BaseException:
            self.close()
            raise

    def _wait_for_shell(self, patience: Patience) -> None:
        """Wait for the shell. The output of its start files and of the client is discarded."""
        try:
            out = self._until(_MARK, b"echo '" + _MARK.rstrip() + b"'\n", patience)
        except TimeoutError:
            raise _no_shell(self._connect, patience) from None
        if _MARK not in out:
            code = self._ended(Patience.within(_ENDING_SECONDS, "its login"))
            raise not_started(self._connect, code, self._err.decode(errors="replace"), out.decode(errors="replace"))
        # Start files may have printed on stderr: that is not the script's output.
        assert self._process.stderr
        while select.select([self._process.stderr], [], [], 0)[0] and os.read(self._process.stderr.fileno(), PIECE):
            pass
        self._err = b""

    def _until(self, mark: bytes, text: bytes, patience: Patience) -> bytes:
        """Write a text, and return the output on stdout up to the mark, or all of it if the mark is missing.

        Raise TimeoutError.
        """
        out = b""
        heard = 0
        for stream, piece in talk(self._process, iter([text]), patience, more=True):
            if stream == "stderr":
                self._err = (self._err + piece)[-PIECE:]
            heard += len(piece)
            out += piece if stream == "stdout" else b""
            if mark in out:
                break
            if heard > _BEFORE:
                raise self._talks_without_end()
        return out

    def _talk(self, pieces: Iterator[bytes], patience: Patience, *, more: bool = False) -> Generator[tuple[str, bytes]]:
        try:
            for stream, piece in talk(self._process, pieces, patience, more=more):
                if stream == "stderr":
                    self._err = (self._err + piece)[-PIECE:]
                yield stream, piece
        except TimeoutError:
            raise _too_slow(self._connect, patience) from None

    def _require_end(self, patience: Patience) -> None:
        """Raise RemoteError if the connection was lost before the script ended."""
        code = self._ended(patience)
        ended = code == SSH_ENDED and self._shared is not None and not is_open(self._shared)
        if problem := lost(self._connect, code, self._err.decode(errors="replace"), unfinished=ended):
            raise problem

    def _ended(self, patience: Patience) -> int:
        """Return the exit code. A script may close its output and run on, within the limits."""
        try:
            return self._process.wait(patience.left())
        except (subprocess.TimeoutExpired, TimeoutError):
            raise _too_slow(self._connect, patience) from None


def _pieces(data: BinaryIO, sent: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the rest of a file in pieces. Call `sent` with the position after each piece, once that was written."""
    while piece := data.read(PIECE):
        yield piece
        sent(data.tell())


def _no_shell(connect: Connect, patience: Patience) -> RemoteError:
    return RemoteError(
        f"{place(connect)} started no shell within {patience.total:.0f} s",
        "check the host's load and the start files of the login user's shell there, then run the command again",
    )


def _too_slow(connect: Connect, patience: Patience) -> RemoteError:
    if patience.rest <= 0 or patience.silence >= patience.total:
        what = f" {patience.what}" if patience.what else ""
        hangs = "which program hangs there (`ps -ef --forest`)" if what else "whether a server on it hangs"
        return RemoteError(
            f"{place(connect)} did not finish{what} within {show_limit(patience.total)}",
            f"check the host's load, and {hangs}",
        )
    return RemoteError(
        f"{place(connect)} has sent nothing for {patience.silence:.0f} s",
        "check the host's load and the connection, then run the command again",
    )
