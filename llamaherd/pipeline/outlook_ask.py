"""Hosts, asked whether there is anything to do: one question in one connection each, all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.program import Program
from llamaherd.host.protocol import query_host
from llamaherd.host.remote import AT_ONCE, NoPythonError, Remote, RemoteError
from llamaherd.inventory.keys import UnreadableKeyError, unreadable
from llamaherd.inventory.schema import Rig
from llamaherd.pipeline.inspect import INSPECT_SECONDS, inspect_request, state_of
from llamaherd.pipeline.outlook import Outlook, outlook
from llamaherd.pipeline.preflight import sends
from llamaherd.pipeline.preflight_ask import local_sizes
from llamaherd.pipeline.python_first import NOTE, python_change
from llamaherd.plan import Plan
from llamaherd.role.role import Role

T = TypeVar("T")

RAISED = (UserError, InventoryError, UnreadableKeyError)
"""What roles raise, in a sentence."""


class Hosts:
    """Hosts that are logged in to while their plans are made. Each then gets its one question."""

    def __init__(self, rigs: Mapping[str, Rig], program: Program) -> None:
        """Begin to log in to all of them, and to start the program there."""
        self._pool = ThreadPoolExecutor(max(1, min(AT_ONCE, len(rigs))))
        self._further: ThreadPoolExecutor | None = None
        self._requests: dict[str, Future[bytes]] = {name: Future() for name in rigs}
        self._results = {
            name: self._pool.submit(
                query_host, Remote(rig.connect, note_key=True), program, document.result, INSPECT_SECONDS
            )
            for (name, rig), document in zip(rigs.items(), self._requests.values(), strict=True)
        }

    def leave(self) -> None:
        """Ask nothing, and wait for nobody."""
        for document in self._requests.values():
            document.cancel()
        for pool in filter(None, (self._pool, self._further)):
            pool.shutdown(wait=False, cancel_futures=True)

    def outlooks(
        self,
        planned: Mapping[str, tuple[Rig, Plan]],
        roles: Sequence[Role],
        *,
        retry: bool = False,
        folder: Path | None = None,
    ) -> dict[str, Outlook]:
        """What a run would do to each; with `retry`, one that tries again what was taken back.

        In `folder`, the inventory's, roles keep what checks need of a host's state before they connect.
        """
        self._ask(planned, roles)
        found = {name: self._outlook(name, *each, roles, retry=retry, folder=folder) for name, each in planned.items()}
        self._pool.shutdown()
        return found

    def begin(
        self, planned: Mapping[str, tuple[Rig, Plan]], roles: Sequence[Role], more: Callable[[str, Outlook], T]
    ) -> dict[str, Future[T]]:
        """What a run would do to each as soon as it has responded, and what `more` makes of that, all at once."""

        def look(name: str, rig: Rig, plan: Plan) -> T:
            return more(name, self._outlook(name, rig, plan, roles, retry=False, folder=None))

        self._ask(planned, roles)
        self._further = ThreadPoolExecutor(max(1, min(AT_ONCE, len(planned))))
        return {name: self._further.submit(look, name, *each) for name, each in planned.items()}

    def _ask(self, planned: Mapping[str, tuple[Rig, Plan]], roles: Sequence[Role]) -> None:
        for name, (_, plan) in planned.items():
            try:
                self._requests[name].set_result(inspect_request(plan, roles))
            except RAISED as error:
                self._requests[name].set_exception(error)

    def _outlook(
        self, name: str, rig: Rig, plan: Plan, roles: Sequence[Role], *, retry: bool, folder: Path | None
    ) -> Outlook:
        try:
            seen = state_of(self._results[name].result(), roles)
            kept = [role.keep(folder, plan, seen) for role in roles] if folder else []
            keys = [each.endpoint.key for each in plan.chosen if each.endpoint.key]
            if missing := tuple(filter(None, map(unreadable, keys))):
                return Outlook(problems=missing)
            sizes = local_sizes(sends(plan, seen, roles))
            found = outlook(plan, roles, seen, rig.connect, sizes, retry=retry)
            return replace(found, notes=(*found.notes, *filter(None, kept)))
        except NoPythonError:
            return Outlook(changes=(python_change(),), notes=(NOTE,))
        except RemoteError as error:
            return Outlook(unreached=str(error))
        except RAISED as error:
            return Outlook(problems=(str(error),))
