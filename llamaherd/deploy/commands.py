"""How pyinfra carries changes out: a command for each way that there is. What fails is noted, to be said again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from pyinfra import logger
from pyinfra.api import FileUploadCommand, Host, State, StringCommand
from pyinfra.api.command import PyinfraCommand
from pyinfra.connectors.util import CommandOutput
from typing_extensions import override

from llamaherd.deploy.run_state import note_failure
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.errors import explain_failure
from llamaherd.host.program import request
from llamaherd.inventory.schema import Connect
from llamaherd.onhost.undo import UNDONE, DisarmInput
from llamaherd.pipeline.release import Origin
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.role.changes import Change, DeferredVerb, Gated, Guard, RebootHost, RunScript, RunVerb, Say, SendFile
from llamaherd.role.services import GateRefusal, GateRequest
from llamaherd.text.terminal import plain

REBOOT_SECONDS = 900
"""How long a host may take to come back: big ones count their memory for minutes."""

TELL_SECONDS = 15
"""How often a person who waits for that is told that we do too."""

ASK_SECONDS = 5
"""Between two tries to reach it."""

LOGIN_SECONDS = 60
"""How long a login may take in all, and a script that does next to nothing."""

DISARM = "base.disarm_undo"

LINE_HELP = "  help: see how you reach this host, and what of that this change concerns; `herd up` tries it again"


def command(change: Change) -> PyinfraCommand:
    """What carries a change out."""
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
            # As whoever logged in: only what is let in afterwards, by its hash, belongs to root.
            return SendFileCommand(how)


def _on_stdin(script: str) -> str:
    """In braces: a shell reads it to the end before it starts, so that one cut off on its way does nothing.

    With a `systemctl` for it that survives that systemd re-executes, and a `docker` that waits for no daemon for ever.
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
        logger.info(f"{host.print_prefix}{command.says}")
    done, said = host.run_shell_command(command, print_output=True, print_input=state.print_input, **arguments)
    if not done:
        why = explain_failure(line.line for line in said.combined_lines)
        sentences = str(why).splitlines() if why else []
        for sentence in sentences:
            logger.error(f"{host.print_prefix}{sentence}")
        note_failure(host, [*said.stderr_lines, *sentences])
    return done, CommandOutput([])  # what it said was shown: pyinfra would show it again where it failed


class GuardedVerbCommand(VerbCommand):
    """A verb, and then a login of its own, without which the host undoes what the verb has done."""

    def __init__(self, how: RunVerb, guard: Guard) -> None:
        super().__init__(how)
        self.guard = guard

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> Any:
        done, output = super().execute(state, host, dict(connector_arguments))
        said = self._log_in(host, connector_arguments)
        for line in said:
            logger.error(f"{host.print_prefix}{line}")
        if said:
            note_failure(host, said)
        return done and not said, output

    def _log_in(self, host: Host, connector_arguments: Any) -> list[str]:
        """Return nothing where a login came through in time; else what became of the change."""
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
                logger.info(f"{host.print_prefix}no new login comes through: waiting for this host to take it back")
            sleep(ASK_SECONDS)


class SendFileCommand(FileUploadCommand):
    """A file of the controller's, sent unless another run has brought it meanwhile."""

    def __init__(self, how: SendFile) -> None:
        super().__init__(str(how.local), how.remote, _sudo=False)
        self.settled = how.settled

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        connector_arguments.update(self.connector_arguments)
        return host.put_file(self.src, self.dest, settled=self.settled, **connector_arguments)


class DeferredVerbCommand(PyinfraCommand):
    """A verb whose input is made when its turn comes: other hosts are queried for it."""

    def __init__(self, how: DeferredVerb) -> None:
        super().__init__()
        self.how = how

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> Any:
        def say(line: str) -> None:
            logger.info(f"{host.print_prefix}{plain(line)}")

        say(self.how.says)
        try:
            how = self.how.make(say)
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

        logger.info(f"{host.print_prefix}rebooting: {self.why}")
        if not run(self.how.ask):
            return False
        if not self._back(host, lambda: self._booted(host, connector_arguments)):
            why = (
                f"this host did not come back within {self._seconds} s of its reboot\n"
                "  help: look at its console; `herd up` goes on from there once it answers again"
            )
            return RefuseCommand([why]).execute(state, host, connector_arguments)
        return run(self.how.after)

    @property
    def _seconds(self) -> int:
        """How long it is waited for."""
        return REBOOT_SECONDS + self.how.extra

    def _booted(self, host: Host, connector_arguments: Any) -> bool:
        """Whether it is back for good. That it is not yet is no failure, and nothing to say again at the end."""
        how = self.how.back
        arguments = {**connector_arguments, "_document": request(how.verb, how.given), "_timeout": self._seconds}
        booted: bool = host.run_shell_command(VerbCommand(how), **arguments)[0]
        return booted

    def _back(self, host: Host, booted: Callable[[], bool]) -> bool:
        """Whether it can be reached again, by a connection of its new life."""
        began = told = monotonic()
        while monotonic() - began < self._seconds:
            sleep(ASK_SECONDS)
            if monotonic() - told >= TELL_SECONDS:
                told = monotonic()
                logger.info(f"{host.print_prefix}waiting for it to come back, {told - began:.0f} s by now")
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

    def __init__(self, gate: Callable[[GateRequest], GateRefusal | None], gated: Gated, say: Say) -> None:
        super().__init__()
        self.gate = gate
        self.gated = gated
        self.say = say

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        data = host.data
        request = GateRequest(
            gated=self.gated,
            plan=Plan.model_validate(data.plan),
            connect=Connect.model_validate(data.rig_connect),
            inventory=Path(data.inventory),
            user=Origin.model_validate(data.rig_origin).who,
            say=self.say,
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
    """Fails the host, with sentences that say why, and before them a table of what it is."""

    def __init__(self, sentences: Iterable[str], table: Iterable[str] = ()) -> None:
        super().__init__()
        self.sentences = tuple(sentences)
        self.table = tuple(table)

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        for line in self.table:
            logger.info(f"{host.print_prefix}{plain(line)}")
        for sentence in map(plain, self.sentences):
            logger.error(f"{host.print_prefix}{sentence}")
            note_failure(host, sentence.splitlines())
        return False


def wrong_file(send: SendFile) -> str | None:
    """Why a file of the controller's is not the one that is declared, with a way out."""
    try:
        with send.local.open("rb") as file:
            have = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"cannot read {send.local}: {error.strerror}"
    if have == send.sha256:
        return None
    return (
        f"{send.local} has sha256 {have}, but the inventory says {send.sha256}\n"
        "  help: fetch the file again, or correct the hash if you know that the file is right"
    )
