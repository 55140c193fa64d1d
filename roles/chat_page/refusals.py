"""What can stand in the page's way: its port is somebody else's."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.role.refusal import Refusal
from roles.chat_page.state import ChatState


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """A port that is taken."""
    if plan.chat is None:
        return
    port, page = plan.chat.port, ChatState.of(state).page
    leaving = {unit.port for unit in state.units.values()} - {each.endpoint.port for each in plan.instances}
    if port in state.listening and port not in leaving and not (page and page.port == port):
        yield Refusal(
            f"port {port} of the chat page is taken by something else",
            f"see by what with `ss -ltnp 'sport = :{port}'` and stop that, or choose another port in fleet.yaml",
        )
