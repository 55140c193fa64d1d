"""A host, looked at by pyinfra's connection: once for all operations that change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, sleep
from typing import NamedTuple
from weakref import WeakKeyDictionary

from pyinfra import host, logger
from pyinfra.api import Host, StringCommand
from pyinfra.context import ctx_host

from llamaherd.deploy.reasons import HELP
from llamaherd.diagnostics.findings import UserError
from llamaherd.host.program import Events
from llamaherd.host.protocol import result_of
from llamaherd.host.state import HostState
from llamaherd.pipeline.inspect import INSPECT_SECONDS, inspect_request, state_of
from llamaherd.pipeline.only import parts
from llamaherd.pipeline.python_first import python_change
from llamaherd.plan import Plan
from llamaherd.role.role import Role

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


def forget() -> None:
    """Have whoever comes next look anew: the host is changed now."""
    _looks.pop(ctx_host.get(), None)


def remember(plan: Plan, seen: HostState, at: float) -> None:
    """Have whoever comes next take this look, under our turn, for its own: it holds as long as any."""
    _looks[ctx_host.get()] = Look(at, host.state.is_executing, plan, seen)


def observe(plan: Plan, roles: Sequence[Role]) -> HostState:
    """What the host looks like, by a fresh look. Raises UserError where it could not be asked."""
    here, executing = ctx_host.get(), host.state.is_executing
    last = _looks.get(here)
    if last and last.plan is plan and last.executing == executing and monotonic() - last.at < FRESH_SECONDS:
        return last.seen
    seen = _inspect(plan, roles, install=executing)
    _looks[here] = Look(monotonic(), executing, plan, seen)
    return seen


def _inspect(plan: Plan, roles: Sequence[Role], *, install: bool) -> HostState:
    """Inspect the host; where it has no python3, `install` that first. Raise UserError where it cannot be inspected."""
    here = ctx_host.get()
    complaints: list[str] = []
    events = Events(lambda stream, line: complaints.append(line) if stream == "stderr" else None)
    # No fact of pyinfra's: where one fails, it says so in its own words before we can say why.
    done, said = here.run_shell_command(
        StringCommand("python3", "-I", "inspect"),
        print_output=here.state.print_fact_output,
        print_input=here.state.print_fact_input,
        _document=inspect_request(plan, roles),
        _events=events,
        _keep=False,
        _sudo=True,
        _timeout=INSPECT_SECONDS,
    )
    if events.no_python and install:
        _install_python(here)
        return _inspect(plan, roles, install=False)
    if not done and (unasked := _own_words(said.stderr_lines)):
        raise unasked
    return state_of(result_of(events, [*complaints, *said.stderr_lines]), roles)


def _install_python(here: Host) -> None:
    """Install python3. Raise UserError where that fails."""
    change = python_change()
    logger.info(f"{host.print_prefix}{change.says}")
    script = f"{{\n{change.script}\n}} </dev/null\n"
    done, said = here.run_shell_command(StringCommand("sh", "-s"), print_output=True, _stdin=script, _sudo=True)
    if not done:
        raise _own_words(said.stderr_lines) or UserError("python3 could not be installed", "install it on the host")


def settled(plan: Plan, roles: Sequence[Role], looking: Sequence[Role]) -> HostState:
    """What the host looks like, once no port of ours passes from one holder to the next. Raises UserError as a look."""
    seen = observe(plan, looking)
    for again in range(SETTLING_LOOKS if host.state.is_executing else 0):
        if not any(role.unsettled(part, seen) for role, part in parts(plan, roles)):
            break
        if not again:
            logger.info(f"{host.print_prefix}a port passes from one holder to another just now: looking again")
        sleep(1)
        _looks.pop(ctx_host.get(), None)
        seen = observe(plan, looking)
    return seen


def _own_words(said: Sequence[str]) -> UserError | None:
    """Why a host was not asked, in the sentence of ours that its connector ended with, if it did."""
    *_, message, help_ = ("", "", *said)
    return UserError(message, help_.removeprefix(HELP)) if help_.startswith(HELP) else None
