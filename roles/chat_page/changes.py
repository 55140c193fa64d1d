"""The page: made anew where its container is not the one that is planned, or reads another key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llamaherd.host.state import HostState
from llamaherd.layout import CHAT, CHAT_CONTAINER, CHAT_DATA
from llamaherd.plan import ChatPlan, Plan, TextFile
from llamaherd.render import render
from llamaherd.role.changes import Action, Change, RunScript, differences, put_files
from roles.chat_page.files import read_files
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
    script = render(
        "chat_page/apply.sh.j2",
        image=chat.image,
        container=CHAT_CONTAINER,
        folder=CHAT,
        data=CHAT_DATA,
        file=CHAT / "compose.yaml",
        number=chat.number,
        seconds=SECONDS,
        keys=[file.path for file in files],
        put=put_files([*files, chat.file]),
    )
    action: Action = "restart" if seen.page else "create"
    return [Change(action, "chat page", CHAT_CONTAINER, reasons, RunScript(script, "starting the chat page"))]


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
    script = render("chat_page/remove.sh.j2", container=CHAT_CONTAINER, folder=CHAT, data=CHAT_DATA)
    why = ("this rig has no chat page any more",)
    return [Change("remove", "chat page", CHAT_CONTAINER, why, RunScript(script, "ending the chat page"))]
