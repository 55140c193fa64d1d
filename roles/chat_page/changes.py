"""The page: made anew where its container is not the one that is planned, or reads another key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llamaherd.host.state import HostState
from llamaherd.layout import CHAT_CONTAINER
from llamaherd.plan import ChatPlan, Plan, TextFile
from llamaherd.role.changes import Action, Change, RunVerb, differences, written_files
from roles.chat_page.files import read_files
from roles.chat_page.onhost import ApplyInput, RemoveInput
from roles.chat_page.state import ChatState

SECONDS = 300
"""For its first start, which makes its database."""


def chat_changes(plan: Plan, state: HostState) -> list[Change]:
    """Make the page run as planned. Raises UserError where its key cannot be read."""
    return changes_with(plan.chat, state, read_files(plan.chat)) if plan.chat else []


def changes_with(chat: ChatPlan, state: HostState, files: Sequence[TextFile]) -> list[Change]:
    """The same with these files."""
    seen = ChatState.of(state)
    reasons = (*_wrong(chat, seen), *differences((chat.file, *files), state))
    if not reasons:
        return []
    (compose,) = written_files([chat.file])
    given = ApplyInput(
        image=chat.image, number=chat.number, keys=written_files(files), compose=compose, seconds=SECONDS
    )
    action: Action = "restart" if seen.page else "create"
    how = RunVerb("chat_page.apply", given, "starting the chat page")
    return [Change(action, "chat page", CHAT_CONTAINER, reasons, how)]


def _wrong(chat: ChatPlan, seen: ChatState) -> Iterator[str]:
    """Why its container must be made anew."""
    if seen.page is None:
        yield "there is no such container"
        return
    if seen.page.status != "running":
        yield f"it is {seen.page.status}"
    elif seen.page.health == "unhealthy":
        yield "it is unhealthy"
    if seen.page.spec != chat.spec:
        yield f"spec {seen.page.spec} runs, not {chat.spec}"
    if seen.untried:
        yield "a run before did not see it healthy"
    if seen.unsigned:
        yield "the secret that signs who is logged in is not there"


def chat_leftovers(plan: Plan, state: HostState) -> list[Change]:
    """Take it away where the fleet has it elsewhere, or none. What people wrote stays."""
    if plan.chat or not ChatState.of(state).there:
        return []
    why = ("this rig has no chat page any more",)
    how = RunVerb("chat_page.remove", RemoveInput(), "ending the chat page")
    return [Change("remove", "chat page", CHAT_CONTAINER, why, how)]
