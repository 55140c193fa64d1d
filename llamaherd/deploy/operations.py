"""How pyinfra carries steps out. An operation here never raises: it fails its host alone, with a sentence."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Sequence
from time import monotonic, sleep
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pyinfra import host, logger
from pyinfra.api import FileUploadCommand, Host, State, StringCommand, operation
from pyinfra.api.command import PyinfraCommand
from pyinfra.connectors.util import CommandOutput
from pyinfra.context import ctx_host
from typing_extensions import override

from llamaherd.converge.driver import after_reboot_script, reboot_script
from llamaherd.converge.host import between_holders, sends
from llamaherd.converge.steps import DeferredScript, RebootHost, RunScript, SendFile
from llamaherd.deploy.reasons import HELP, note, noted
from llamaherd.diagnostics.findings import UserError
from llamaherd.host.complaints import explained
from llamaherd.host.inspect import inspect_script, parse_state, script_lines
from llamaherd.host.state import HostState
from llamaherd.inventory.keys import UnreadableKeyError, unreadable
from llamaherd.layout import REBOOT_MARK
from llamaherd.pipeline.preflight import lines, survey
from llamaherd.pipeline.preflight_ask import local_sizes, size_of
from llamaherd.plan import Plan
from llamaherd.text.terminal import plain
from llamaherd.text.units import show_size

LOOK_SECONDS = 120
"""How long a look may be silent: it takes a third of a second on a host that has nothing else to do."""

LINE = 300
"""Characters of a line of others that are shown."""

REBOOT_SECONDS = 900
"""How long a host may take to come back: big ones count their memory for minutes."""

TELL_SECONDS = 15
"""How often a person who waits for that is told that we do too."""

ASK_SECONDS = 5
"""Between two tries to reach it."""

SETTLING_LOOKS = 15
"""How often a port may be between two holders before it counts as taken: a second apart."""

FRESH_SECONDS = 2
"""How long a look holds while we change nothing. Longer, and what others do meanwhile would count."""


class Look(NamedTuple):
    """What a host answered to a plan's question, and when: in seconds, and whether operations were carried out."""

    at: float
    executing: bool
    plan: Plan
    seen: HostState


_looks: WeakKeyDictionary[Host, Look] = WeakKeyDictionary()

Commands = Generator[PyinfraCommand, None, None]


class ScriptCommand(StringCommand):
    """A shell script, sent on stdin, whose output is shown line by line while it runs."""

    def __init__(self, step: RunScript) -> None:
        # In braces: a shell reads it to the end before it starts, so that one cut off on its way does nothing.
        super().__init__("sh", "-s", _stdin=f"{{\n{step.script}\n}} </dev/null\n")
        self.says = step.says

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> Any:
        if self.says:
            logger.info(f"{host.print_prefix}{self.says}")
        connector_arguments.update(self.connector_arguments)
        done, said = host.run_shell_command(
            self, print_output=True, print_input=state.print_input, **connector_arguments
        )
        if not done:
            why = explained(line.line for line in said.combined_lines)
            sentences = str(why).splitlines() if why else []
            for sentence in sentences:
                logger.error(f"{host.print_prefix}{sentence}")
            note(host, [*said.stderr_lines, *sentences])
        return done, CommandOutput([])  # what it said was shown: pyinfra would show it again where it failed


class SendFileCommand(FileUploadCommand):
    """A file of the controller's, sent unless another run has brought it meanwhile."""

    def __init__(self, step: SendFile) -> None:
        super().__init__(str(step.local), step.remote, _sudo=False)
        self.settled = step.settled

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        connector_arguments.update(self.connector_arguments)
        return host.put_file(self.src, self.dest, settled=self.settled, **connector_arguments)


class DeferredScriptCommand(PyinfraCommand):
    """A script that is put together when its turn comes: other hosts are asked for it."""

    def __init__(self, step: DeferredScript) -> None:
        super().__init__()
        self.step = step

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> Any:
        def say(line: str) -> None:
            logger.info(f"{host.print_prefix}{plain(line)}")

        say(self.step.says)
        try:
            step = self.step.make(say)
        except UserError as error:
            return RefuseCommand([str(error)]).execute(state, host, connector_arguments)
        return ScriptCommand(step).execute(state, host, connector_arguments)[0]


class RebootHostCommand(PyinfraCommand):
    """A reboot, and the wait for the host to come back with the driver that it was for."""

    def __init__(self, step: RebootHost) -> None:
        super().__init__()
        self.step = step

    @override
    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        def run(script: str) -> bool:
            # Of their own: what an earlier command was given on stdin is not for this one.
            done: bool = ScriptCommand(RunScript(script)).execute(state, host, dict(connector_arguments))[0]
            return done

        logger.info(f"{host.print_prefix}rebooting: {self.step.why}")
        if not run(reboot_script(self.step)):
            return False
        if not self._back(host, lambda: run(f"[ ! -e {REBOOT_MARK} ]")):
            logger.error(
                f"{host.print_prefix}this host did not come back within {REBOOT_SECONDS} s of its reboot\n"
                "  help: look at its console; `herd up` goes on from there once it answers again"
            )
            return False
        return run(after_reboot_script(self.step))

    def _back(self, host: Host, booted: Callable[[], bool]) -> bool:
        """Whether it can be reached again, by a connection of its new life."""
        began = told = monotonic()
        while monotonic() - began < REBOOT_SECONDS:
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
            note(host, sentence.splitlines())
        return False


@operation()
def preflight(plan: Plan) -> Commands:
    """Find out whether the host can become as planned. Changes nothing; fails the host where it cannot."""
    try:
        seen = settled(plan)
    except UserError as error:
        yield RefuseCommand([str(error)])
        return
    to_send = sends(plan, seen)
    found = survey(plan, seen, local_sizes(to_send))
    problems = [
        *(f"{row.why}\n  help: {row.help}" for row in found.refused),
        *filter(None, map(_wrong_file, to_send)),
        *filter(None, map(unreadable, (instance.endpoint.key for instance in plan.instances if instance.endpoint.key))),
    ]
    if problems:
        yield RefuseCommand(problems, lines(found.doubtful) if found.refused else ())


@operation()
def converge(
    plan: Plan,
    steps: Callable[[HostState], Sequence[SendFile | RunScript | DeferredScript | RebootHost]],
    notes: Callable[[HostState], Sequence[str]] | None = None,
) -> Commands:
    """Look at the host, and do what `steps` says is to be done after that look: nothing, where all is as planned.

    A look of the operation before does, where that has changed nothing, and just now.

    `notes` is what a person is told then, of that look too: what is left for people to do, which is no change.
    """
    try:
        seen = observe(plan)
        todo = steps(seen)
        told = notes(seen) if notes else ()
    except (UserError, UnreadableKeyError) as error:
        yield RefuseCommand([str(error)])
        return
    if todo:
        # What is done now is to be seen by whoever comes next.
        _looks.pop(ctx_host.get(), None)
    for step in todo:
        if isinstance(step, RunScript):
            yield ScriptCommand(step)
        elif isinstance(step, DeferredScript):
            yield DeferredScriptCommand(step)
        elif isinstance(step, RebootHost):
            yield RebootHostCommand(step)
        elif wrong := _wrong_file(step):
            yield RefuseCommand([wrong])
        else:
            logger.info(f"{host.print_prefix}sending {step.local.name} ({show_size(size_of(step.local))})")
            # As whoever logged in: only what is let in afterwards, by its hash, belongs to root.
            yield SendFileCommand(step)
    # While it prepares, pyinfra may ask whether there is anything to do, and ask again when it does it.
    for remark in told if host.state.is_executing else ():
        logger.warning(f"{host.print_prefix}{plain(remark)}")


@operation()
def settle() -> Commands:
    """Fail a host where something has failed that kept nothing else from being done, and say all of it again."""
    if reasons := noted(ctx_host.get()):
        yield RefuseCommand(reasons)


def observe(plan: Plan) -> HostState:
    """What the host looks like, by a fresh look. Raises UserError where it could not be asked."""
    here, executing = ctx_host.get(), host.state.is_executing
    last = _looks.get(here)
    if last and last.plan is plan and last.executing == executing and monotonic() - last.at < FRESH_SECONDS:
        return last.seen
    # No fact of pyinfra's: where one fails, it says so in its own words before we can say why.
    done, said = here.run_shell_command(
        StringCommand("sh", "-s"),
        print_output=here.state.print_fact_output,
        print_input=here.state.print_fact_input,
        _stdin=inspect_script(plan),
        _sudo=True,
        _timeout=LOOK_SECONDS,
    )
    if not done:
        raise _unaskable(said.stderr_lines)
    try:
        seen = parse_state(script_lines(said.stdout_lines))
    except ValueError as error:
        raise _unaskable([str(error)[:LINE]]) from None
    _looks[here] = Look(monotonic(), executing, plan, seen)
    return seen


def settled(plan: Plan) -> HostState:
    """What the host looks like, once no port of ours passes from one holder to the next. Raises UserError as a look."""
    seen = observe(plan)
    for again in range(SETTLING_LOOKS if host.state.is_executing else 0):
        if not between_holders(plan, seen):
            break
        if not again:
            logger.info(f"{host.print_prefix}a port passes from one holder to another just now: looking again")
        sleep(1)
        _looks.pop(ctx_host.get(), None)
        seen = observe(plan)
    return seen


def _unaskable(said: Sequence[str]) -> UserError:
    """Why a look gave nothing: in our own words, whose last line is the way out, or in the last ones of the host."""
    *_, message, help_ = ("", "this host cannot be asked what it looks like, and does not say why", *said)
    if help_.startswith(HELP):
        return UserError(message, help_.removeprefix(HELP))
    return UserError(help_[:LINE], "`herd verify` asks that host by other means")


def _wrong_file(send: SendFile) -> str | None:
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
