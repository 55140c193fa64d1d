"""pyinfra's commands that apply changes, one class for each kind, and the explanation of their failures."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from time import monotonic, sleep
from typing import Any

from pyinfra.api import FileUploadCommand, Host, State, StringCommand
from pyinfra.api.command import PyinfraCommand
from pyinfra.connectors.util import CommandOutput
from typing_extensions import override

from llamaherd.deploy.run_state import note_failure, note_values, show_detail, show_in_log, show_problem
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.program import request
from llamaherd.inventory.schema import Connect
from llamaherd.onhost.undo import UNDONE, DisarmInput
from llamaherd.pipeline.history import Origin
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.role.changes import (
    Change,
    DeferredVerb,
    Gated,
    GateRefusal,
    GateRequest,
    Guard,
    RebootHost,
    Report,
    RunScript,
    RunVerb,
    SendFile,
)
from llamaherd.text.terminal import plain

_REASONS = {
    "No space left on device": (
        "make room on that disk (`df -h {folder}`; `df -i {folder}` where it has room, but no more files), "
        "then `herd up`"
    ),
    "Disk quota exceeded": "raise the quota there (`quota`, `repquota -a`), or make room, then `herd up`",
    "Read-only file system": (
        "make it writable (`findmnt -T {folder}` shows how it is mounted; a disk with errors is mounted read-only: see "
        "`dmesg`), then `herd up`"
    ),
    "Operation not permitted": (
        "`lsattr -d {folder} {path}` shows whether one of them is immutable (`chattr -i` changes that), then `herd up`"
    ),
    "Input/output error": "the disk may be failing: see `dmesg` and `smartctl -a` on the host",
    "Structure needs cleaning": "the filesystem is damaged: see `dmesg`, and run `fsck` while it is not mounted",
}
_PATTERN = re.compile(rf"^[\w./\[\] -]+: (?P<what>.*?)(?:: |\(\d+: )?(?P<reason>{'|'.join(_REASONS)})[).]?$")
"""The program, what it could not do, and the error of the system."""
_ACCOUNTS = re.compile(r"^(?:user|group)\w+: cannot lock (/etc/\S+); try again later")

_MASKED = re.compile(r"^Failed to .*\b[Uu]nit (?:file )?(?P<unit>\S+) is masked\b")
"""The message of systemctl and systemd-run, versions 252 and 257."""
_NAME_TAKEN = re.compile(r"^Failed to start transient .*: Unit (\S+) was already loaded or has a fragment file\b")
"""The message for a transient unit. A mask is a fragment file, too."""


def explain_failure(lines: Iterable[str]) -> UserError | None:
    """Return why a disk could not be written or a unit not be started, by the first program that reports it.

    Return None if no program reports such an error, or if the lines contain a help.
    """
    lines = list(lines)
    if any(line.lstrip().startswith("help: ") for line in lines):
        return None
    for line in lines:
        if unit := _of_a_unit(line):
            return unit
        if locked := _ACCOUNTS.search(line):
            return UserError(
                f"{locked[1]} cannot be changed",
                "`findmnt -T /etc` shows whether it is mounted read-only; otherwise another program changes accounts, "
                f"or a killed program has left {locked[1]}.lock: remove this file, then `herd up`",
            )
        if found := _PATTERN.match(line.strip()):
            path = _last_path(found["what"])
            # A path that could not be made does not exist: its folder can be examined.
            folder = path if found["what"].startswith("changing ") else str(PurePosixPath(path).parent)
            help_ = _REASONS[found["reason"]].format(path=path, folder=folder if path else "/var/lib /tmp /etc")
            return UserError(f"the host cannot write {path or 'a file'}: {found['reason'].lower()}", help_)
    return None


def _of_a_unit(line: str) -> UserError | None:
    """Return why systemd does not start a unit; None if the line reports no such error."""
    if masked := _MASKED.search(line):
        return _is_masked(masked["unit"])
    if taken := _NAME_TAKEN.search(line):
        unit = taken[1]
        return UserError(
            f"{unit} cannot be started: a unit of that name is on this host already",
            f"`systemctl status {unit}` shows where it is from; if it is masked, `systemctl unmask {unit}`, otherwise "
            "wait for its end, or move its file away and `systemctl daemon-reload`; then `herd up`",
        )
    return None


def _is_masked(unit: str) -> UserError:
    """Return the error of a masked unit, which systemctl names by the path of its link or by its name alone."""
    folder, _, name = unit.rpartition("/")
    fix = f"`systemctl unmask {'--runtime ' if folder.startswith('/run/') else ''}{name}`"
    if not folder:
        fix += f" (`systemctl unmask --runtime {name}` if `systemctl is-enabled {name}` prints masked-runtime)"
    return UserError(f"{name} is masked on this host, so that systemd does not start it", f"{fix}, then `herd up`")


def _last_path(what: str) -> str:
    """Return the path that an error is about: of two, the path that the program was to make."""
    quoted = re.findall(r"'(/[^']*)'", what)
    bare = re.findall(r"(/\S+?)(?:$|[\s:])", what)
    return str((quoted or bare or [""])[-1])


REBOOT_SECONDS = 900
"""The longest that a reboot may take: large hosts test their memory for minutes."""

TELL_SECONDS = 15
"""Seconds between two lines of progress during such a wait."""

ASK_SECONDS = 5
"""Seconds between two attempts to connect."""

LOGIN_SECONDS = 60
"""The longest time for a login and a script that does next to nothing."""

DISARM = "base.disarm_undo"

LINE_HELP = "  help: see how you reach this host, and what of that this change concerns; `herd up` tries it again"


def command(change: Change) -> PyinfraCommand:
    """Return the command that applies a change."""
    match change.how:
        case RunScript() as how:
            return ScriptCommand(how)
        case RunVerb() as how:
            return GuardedVerbCommand(how, how.guard) if how.guard else VerbCommand(how)
        case DeferredVerb() as how:
            return DeferredVerbCommand(how)
        case RebootHost() as how:
            return RebootHostCommand(how, "; ".join(change.reasons))
        case SendFile() as how:
            if wrong := wrong_file(how):
                return RefuseCommand([wrong])
            # As the login user: a file belongs to root only after its hash was checked.
            return SendFileCommand(how)


def _on_stdin(script: str) -> str:
    """Return a script in braces: the shell reads it to the end before it starts, so that a partial one does nothing.

    The script gets functions `systemctl`, which survives a re-execution of systemd, and `docker`, which does not wait
    forever for its daemon.
    """
    return f"{{\n{render('host/clients.sh.j2', reports=False)}\n{script}\n}} </dev/null\n"


class ScriptCommand(StringCommand):
    """A shell script, sent on stdin, whose output is shown line by line while it runs."""

    def __init__(self, how: RunScript) -> None:
        super().__init__("sh", "-s", _stdin=_on_stdin(how.script))
        self.says = how.says
        self.seconds = how.seconds

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> Any:
        return _shown(self, state, host, {**connector_arguments, **self.connector_arguments, "_total": self.seconds})


class VerbCommand(StringCommand):
    """A verb of the program that runs on hosts, whose progress is shown line by line while it runs."""

    def __init__(self, how: RunVerb) -> None:
        super().__init__("python3", "-I", how.verb)
        self.says = how.says
        self.how = how

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> Any:
        more = {"_total": self.how.seconds, "_document": request(self.how.verb, self.how.given)}
        return _shown(self, state, host, {**connector_arguments, **self.connector_arguments, **more})


def _shown(command: ScriptCommand | VerbCommand, state: State, host: Host, arguments: dict[str, Any]) -> Any:
    """Run a command, show what it prints, and note why it failed."""
    if command.says:
        show_detail(host, command.says)
    values: list[object] = []
    shown = {"print_output": True, "print_input": state.print_input, "_values": values}
    done, said = host.run_shell_command(command, **shown, **arguments)
    note_values(host, values)
    if not done:
        why = explain_failure(line.line for line in said.combined_lines)
        sentences = str(why).splitlines() if why else []
        for sentence in sentences:
            show_problem(host, sentence)
        note_failure(host, [*said.stderr_lines, *sentences], values)
    return done, CommandOutput([])  # the output was shown: pyinfra would show it again after a failure


class GuardedVerbCommand(VerbCommand):
    """A verb, and then a new login. Without this login, the host undoes the change of the verb."""

    def __init__(self, how: RunVerb, guard: Guard) -> None:
        super().__init__(how)
        self.guard = guard

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> Any:
        done, output = super().execute(state, host, dict(connector_arguments))
        said = self._log_in(host, connector_arguments)
        for line in said:
            show_problem(host, line)
        if said:
            note_failure(host, said)
        return done and not said, output

    def _log_in(self, host: Host, connector_arguments: Any) -> list[str]:
        """Return nothing if a login came through in time; otherwise the sentences that report the undo."""
        began = monotonic()
        reported = began - TELL_SECONDS
        seconds = self.guard.seconds
        arguments = {
            **connector_arguments,
            "_document": request(DISARM, DisarmInput(self.guard.name, self.guard.patience)),
            "_timeout": LOGIN_SECONDS + seconds,
            "_fresh": True,
        }
        while True:
            reached, said = host.run_shell_command(StringCommand("python3", "-I", DISARM), **arguments)
            if reached:
                return [self.guard.undone, LINE_HELP] if UNDONE in said.stdout_lines else []
            if monotonic() - began > seconds:
                return [f"no new login comes through since this, and not within {seconds} s either", LINE_HELP]
            if monotonic() - reported >= TELL_SECONDS:
                reported = monotonic()
                show_detail(host, "no new login comes through: waiting for this host to take it back")
            sleep(ASK_SECONDS)


class SendFileCommand(FileUploadCommand):
    """A file of the controller, sent unless another run has brought it meanwhile."""

    def __init__(self, how: SendFile) -> None:
        super().__init__(str(how.local), how.remote, _sudo=False)
        self.settled = how.settled

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        connector_arguments.update(self.connector_arguments)
        return host.put_file(self.src, self.dest, settled=self.settled, **connector_arguments)


class DeferredVerbCommand(PyinfraCommand):
    """A verb whose input is created just before it runs, because it depends on other hosts."""

    def __init__(self, how: DeferredVerb) -> None:
        super().__init__()
        self.how = how

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> Any:
        def report(line: str) -> None:
            show_detail(host, line)

        report(self.how.says)
        try:
            how = self.how.make(report)
        except (UserError, InventoryError) as error:
            return RefuseCommand([str(error)]).execute(state, host, connector_arguments)
        return VerbCommand(how).execute(state, host, connector_arguments)[0]


class RebootHostCommand(PyinfraCommand):
    """A reboot, and the wait for the host to come back with the driver that it was for."""

    def __init__(self, how: RebootHost, why: str) -> None:
        super().__init__()
        self.how = how
        self.why = why

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        def run(how: RunVerb) -> bool:
            # Arguments of its own: the document of an earlier command is not for this one.
            done: bool = VerbCommand(how).execute(state, host, dict(connector_arguments))[0]
            return done

        show_detail(host, f"rebooting: {self.why}")
        if not run(self.how.ask):
            return False
        if not self._back(host, lambda: self._booted(host, connector_arguments)):
            why = (
                f"this host did not come back within {self._seconds} s of its reboot\n"
                "  help: see its console; once the host responds again, `herd up` resumes the run"
            )
            return RefuseCommand([why]).execute(state, host, connector_arguments)
        return run(self.how.after)

    @property
    def _seconds(self) -> int:
        """The longest wait for the host, in seconds."""
        return REBOOT_SECONDS + self.how.extra

    def _booted(self, host: Host, connector_arguments: Any) -> bool:
        """Return whether the reboot is complete. An incomplete one is no failure, and is not reported at the end."""
        how = self.how.back
        arguments = {**connector_arguments, "_document": request(how.verb, how.given), "_timeout": self._seconds}
        booted: bool = host.run_shell_command(VerbCommand(how), **arguments)[0]
        return booted

    def _back(self, host: Host, booted: Callable[[], bool]) -> bool:
        """Wait until a new connection reaches the rebooted host. Return whether one did in time."""
        began = reported = monotonic()
        while monotonic() - began < self._seconds:
            sleep(ASK_SECONDS)
            if monotonic() - reported >= TELL_SECONDS:
                reported = monotonic()
                show_detail(host, f"waiting for it to come back, {reported - began:.0f} s by now")
            try:
                host.disconnect()
                host.connect(show_errors=False)
                if host.connected and booted():
                    return True
            except OSError:
                continue  # it went down just then
        return False


class GateCommand(PyinfraCommand):
    """Measures a changed server by its gate. A rejected change fails the host, and the host keeps the reason."""

    def __init__(self, gate: Callable[[GateRequest], GateRefusal | None], gated: Gated, report: Report) -> None:
        super().__init__()
        self.gate = gate
        self.gated = gated
        self.report = report

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        data = host.data
        request = GateRequest(
            gated=self.gated,
            plan=Plan.model_validate(data.plan),
            connect=Connect.model_validate(data.rig_connect),
            inventory=Path(data.inventory),
            user=Origin.model_validate(data.rig_origin).author,
            report=self.report,
        )
        try:
            refusal = self.gate(request)
        except UserError as error:
            return RefuseCommand([str(error)]).execute(state, host, connector_arguments)
        if refusal is None:
            return True
        if refusal.kept:
            VerbCommand(self.gated.refused(refusal.why)).execute(state, host, dict(connector_arguments))
        sentence = f"{self.gated.instance.name} serves as before, and not as declared: {refusal.why}"
        return RefuseCommand([f"{sentence}\n  help: {refusal.help}"]).execute(state, host, connector_arguments)


class RefuseCommand(PyinfraCommand):
    """Fails the host: prints a table of its state, and then the reasons."""

    def __init__(self, sentences: Iterable[str], table: Iterable[str] = (), *, noted: bool = False) -> None:
        """Keep the sentences and the table. If `noted`, the sentences are failures that were noted before."""
        super().__init__()
        self.noted = noted
        self.sentences = tuple(sentences)
        self.table = tuple(table)

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        for line in self.table:
            show_in_log(host, line)
        for number, sentence in enumerate(map(plain, self.sentences)):
            show_problem(host, sentence)
            if not self.noted:
                note_failure(host, sentence.splitlines(), number=number)
        return False


def wrong_file(send: SendFile) -> str | None:
    """Return why a file of the controller is not the declared one, with a help; None if it is."""
    try:
        with send.local.open("rb") as file:
            have = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"cannot read {send.local}: {error.strerror}"
    if have == send.sha256:
        return None
    return (
        f"{send.local} has sha256 {have}, but the inventory or its lock has {send.sha256}\n"
        "  help: fetch the file again; if it is the right one, correct `sha256:`, or run `herd lock --upgrade NAME`"
    )
