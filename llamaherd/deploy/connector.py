"""pyinfra's connector to a rig: the OpenSSH client, as for every other command of `herd`, with the same errors.

The output of a host is decoded whatever it contains, bounded, and shown without control characters.
"""

from __future__ import annotations

import shlex
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from io import IOBase
from pathlib import Path, PurePosixPath
from time import monotonic
from typing import Any, TypedDict

import gevent
from pyinfra.api import Host, StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.output import echo
from pyinfra.connectors.base import BaseConnector, DataMeta
from pyinfra.connectors.util import CommandOutput, OutputLine, make_unix_command
from typing_extensions import override

from llamaherd.deploy.run_state import (
    LockedHost,
    holds_host_lock,
    log_in_for_lock,
    note_failure,
    note_unreached,
    record_release,
    release_host_lock,
    show_output,
)
from llamaherd.host.program import Events, packed_program, request
from llamaherd.host.remote import Patience, RemoteError, Shell
from llamaherd.host.ssh import share_none
from llamaherd.host.time_limits import STEP_SECONDS, transfer_seconds
from llamaherd.inventory.schema import Connect
from llamaherd.onhost.reporting import Pace
from llamaherd.onhost.store import ReceiveInput
from llamaherd.pipeline.load import inventory_folder
from llamaherd.text.numbers import show_size
from llamaherd.text.terminal import shown

CONNECTOR = "llamaherd"
"""The name of the connector in pyproject.toml."""

SILENCE = 7200
"""Seconds that a step may be silent: hashing 400 GB on a slow disk is. A lost connection is detected within 45."""

SEND_SILENCE = 120
"""Seconds for which the transfer of a file may stall."""

STANDING = SEND_SILENCE + 30
"""Seconds that another run may send no byte of a file, before this run gives up."""

END = "LLAMAHERD_END_OF_STDIN"


class RigData(TypedDict):
    """The data of a rig that pyinfra stores for its connector."""

    rig_connect: dict[str, Any]
    rig_unreached: str
    rig_lock_first: bool
    rig_locked: LockedHost | None


_META = {
    "rig_connect": DataMeta("`connect:` of the rig in its inventory"),
    "rig_unreached": DataMeta("why the last inspection did not reach it, as an error of herd", ""),
    "rig_lock_first": DataMeta("whether the last inspection has found something to do", False),
    "rig_locked": DataMeta("the host's lock that was taken before, and the state that was inspected under it", None),
}


class RigConnector(BaseConnector):
    """One rig. It is connected when a root shell on the host waits for a script: the first command is that script."""

    handles_execution = True
    data_cls = RigData
    data_meta = _META
    _reached = False
    """Whether the host was connected before: then this run has rebooted it, and waits for it."""
    _waiting: Shell | None = None
    _coming: Any = None
    """A greenlet that logs in while another shell works; its shell becomes `_waiting`."""

    @staticmethod
    @override
    def make_names_data(name: str) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        """Yield the rig by its own name. From here on, the run shares no connection."""
        share_none()
        yield name, {}, []

    @property
    def _connect(self) -> Connect:
        return Connect.model_validate(self.data["rig_connect"])

    @property
    def _own_roles(self) -> Path | None:
        """The fleet's folder of roles; None for hosts of another inventory than ours."""
        inventory = self.host.data.get("inventory")
        return inventory_folder(Path(inventory)) / "roles" if inventory else None

    @property
    def _locks_first(self) -> bool:
        return bool(self.data["rig_lock_first"]) and not self.data["rig_locked"]

    @override
    def connect(self) -> None:
        """Log in and become root. Raises ConnectError with the same error that `herd verify` prints."""
        if why := self.data["rig_unreached"]:
            note_unreached(self.host, why)
            raise ConnectError(why)
        login = [gevent.spawn(log_in_for_lock, self.host)] if self._locks_first else []
        try:
            held = self.data["rig_locked"]
            self._waiting = (held.lock.ready() if held else None) or Shell(self._connect, note_key=True, fresh=True)
        except RemoteError as error:
            gevent.joinall(login)
            release_host_lock(self.host)
            if not self._reached:
                note_unreached(self.host, str(error))
            raise ConnectError(str(error)) from None
        self._reached = True
        gevent.joinall(login)

    @override
    def disconnect(self) -> None:
        """Close the shell, and the shell that is being opened. Record what a run that failed has done here."""
        if self.host in self.state.failed_hosts:  # its run ended before its last operation
            record_release(self.host)
            release_host_lock(self.host)
        if self._coming is not None:
            self._coming.kill()
            self._arrived()
        if self._waiting:
            self._waiting.close()
        self._waiting = None

    def _shell(self, *, root: bool, fresh: bool = False) -> Shell:
        """Return the waiting shell, or a new one: each runs one script. With `fresh`, it is a new one.

        A run shares no connection: it reboots hosts, and only a new login proves that a host is back.
        """
        if fresh:
            return Shell(self._connect, root=root, fresh=True)
        if root:
            self._arrived()
        waiting, self._waiting = (self._waiting, None) if root else (None, self._waiting)
        return waiting if waiting and waiting.alive else Shell(self._connect, root=root, fresh=True)

    def _log_in_ahead(self) -> None:
        """Log in for the script after this one."""
        if self._coming is None and self._waiting is None:
            self._coming = gevent.spawn(_shell_or_none, self._connect)

    def _arrived(self) -> None:
        """Wait until the login that runs in the background has ended, and keep its shell."""
        coming, self._coming = self._coming, None
        came = coming.get() if coming is not None else None
        if isinstance(came, Shell):  # and no end of the greenlet
            self._waiting = came

    @override
    def run_shell_command(
        self, command: str | StringCommand, print_output: bool = False, print_input: bool = False, **arguments: Any
    ) -> tuple[bool, CommandOutput]:
        """Run a command. If it cannot be run, the error is its output.

        While this run holds the host's lock, another command follows, except after the `_last`: the login for the next
        command starts meanwhile.
        """
        command = StringCommand(command) if isinstance(command, str) else command
        if print_input:
            echo(f"{self.host.print_prefix}>>> {command}", err=True)
        host_output = HostOutput(self.host, printed=print_output)
        values = arguments.pop("_values", [])
        within = arguments.pop("_timeout", None)
        total = arguments.pop("_total", STEP_SECONDS)
        patience = Patience.within(within) if within else Patience(SILENCE, total, "this step")
        expected = arguments.pop("_success_exit_codes", None) or [0]
        fresh = bool(arguments.pop("_fresh", False))
        last = bool(arguments.pop("_last", False))
        root = bool(arguments.get("_sudo")) and not arguments.get("_sudo_user")
        document = arguments.pop("_document", None)
        events = arguments.pop("_events", None) or Events(host_output.hear)
        keep = bool(arguments.pop("_keep", True))
        try:
            with self._shell(root=root, fresh=fresh) as shell:
                if root and not fresh and not last and holds_host_lock(self.host):
                    self._log_in_ahead()
                if document is None:
                    code = shell.run(_script(command, arguments, root=root), host_output.hear, patience)
                else:
                    program = packed_program(self._own_roles)
                    code = shell.run_program(program, document, events, patience, keep=keep)
                    values.extend(events.values)
        except RemoteError as error:
            host_output.hear_all(error)
            return False, host_output.output
        return code in expected, host_output.output

    @override
    def put_file(
        self,
        filename_or_io: str | IOBase,
        remote_filename: str,
        remote_temp_filename: str | None = None,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> bool:
        """Write a file of one of pyinfra's operations; with `settled`, send a file of ours. Note why that fails."""
        host_output = HostOutput(self.host, printed=True)
        try:
            if "settled" in arguments:
                file = Path(str(filename_or_io))
                done = self._send_file(file, remote_filename, arguments["settled"], host_output)
            else:
                root = bool(arguments.get("_sudo"))
                done = self._write_file(_read(filename_or_io), remote_filename, host_output, root=root)
        except RemoteError as error:
            host_output.hear_all(error)
            done = False
        if not done:
            note_failure(self.host, host_output.output.stderr_lines)
        return done

    def _write_file(self, content: bytes, remote_filename: str, host_output: HostOutput, *, root: bool) -> bool:
        data = b64encode(content).decode()
        patience = Patience(SEND_SILENCE, transfer_seconds([len(data)]), f"writing {remote_filename}")
        script = f"{{\nbase64 -d >{shlex.quote(remote_filename)} <<'{END}'\n{data}\n{END}\n}}\n"
        with self._shell(root=root) as shell:
            return shell.run(script, host_output.hear, patience) == 0

    def _send_file(
        self, file: Path, remote_filename: str, settled: Sequence[PurePosixPath], host_output: HostOutput
    ) -> bool:
        """Send a file as the login user. An upload that was interrupted resumes.

        `settled` are the paths in the store where another run may have brought the file meanwhile: it is not sent then.
        """
        size = file.stat().st_size
        total = transfer_seconds([size])
        given = ReceiveInput(remote_filename, size, tuple(map(str, settled)), STANDING, total)
        document = request("llamaherd.store.receive", given)
        # On a connection of its own: the transfer would delay the others of a shared connection.
        with file.open("rb") as data, self._shell(root=False, fresh=True) as shell:
            patience = Patience(SEND_SILENCE, total, f"receiving {file.name}")
            program = packed_program(self._own_roles)
            sent = upload_progress(size, monotonic, lambda line: host_output.hear("stdout", line))
            return shell.send(program, document, data, Events(host_output.hear), patience, sent) == 0

    @override
    def get_file(self, *_: Any, **__: Any) -> bool:
        """Raise NotImplementedError: no role fetches a file from a host."""
        raise NotImplementedError("files are sent to rigs, never fetched from them")


def upload_progress(size: int, clock: Callable[[], float], show: Callable[[str], None]) -> Callable[[int], None]:
    """Return a function that shows now and then how much of a file was sent. Its argument is that number of bytes.

    `clock` returns seconds. The speed leaves out the bytes that the host had before.
    """
    began, pace = clock(), Pace(clock())
    first: list[int] = []

    def sent(done: int) -> None:
        now = clock()
        first[:] = first or [done]
        if pace.is_due(now):
            rate = show_size(round((done - first[0]) / (now - began)))
            show(f"sent {show_size(done)} of {show_size(size)} at {rate}/s")

    return sent


def _shell_or_none(connect: Connect) -> Shell | None:
    """Return a root shell on the host; None if the login fails. The next login reports why."""
    try:
        return Shell(connect, fresh=True)
    except RemoteError:
        return None


class HostOutput:
    """The output of a command on a host. With `printed`, each line is printed when it arrives."""

    def __init__(self, host: Host, *, printed: bool) -> None:
        self.output = CommandOutput([])
        self._host, self._printed = host, printed

    def hear(self, stream: str, line: str) -> None:
        """Add one line, with its end or without."""
        line = line.rstrip("\n")
        wrong = stream == "stderr"
        text = shown(line) if wrong or self._printed else line
        self.output.combined_lines.append(OutputLine(stream, text if wrong else line))
        if self._printed:
            show_output(self._host.print_prefix, self._host.name, text, wrong=wrong)

    def hear_all(self, error: RemoteError) -> None:
        """Add an error and its help, as if the host had printed them."""
        for line in str(error).splitlines():
            self.hear("stderr", line)


def _read(filename_or_io: str | IOBase) -> bytes:
    if isinstance(filename_or_io, str):
        return Path(filename_or_io).read_bytes()
    filename_or_io.seek(0)
    content: str | bytes = filename_or_io.read()
    return content.encode() if isinstance(content, str) else content


def _script(command: StringCommand, arguments: dict[str, Any], *, root: bool) -> str:
    """Return the script that a shell runs: our own scripts unchanged, any other command as pyinfra writes it."""
    given = arguments.pop("_stdin", None)
    arguments.pop("_get_pty", None)
    if root:
        arguments.pop("_sudo")
    if command.get_raw_value() == "sh -s" and isinstance(given, str):
        return given
    written = make_unix_command(command, **arguments).get_raw_value()
    if given is None:
        return f"{written} </dev/null\n"
    return f"{written} <<'{END}'\n{given if isinstance(given, str) else ''.join(given)}\n{END}\n"
