"""What can stand in the page's way: its port is somebody else's."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.role.ports import port_taken, taken
from llamaherd.role.refusal import Refusal
from roles.chat_page.state import ChatState


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """A port that is taken."""
    if plan.chat is None:
        return
    port, page = plan.chat.port, ChatState.of(state).page
    if taken(port, plan, state) and not (page and page.port == port):
        yield port_taken(port, "the chat page")
