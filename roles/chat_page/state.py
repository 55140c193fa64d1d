"""The page's part of a host's state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llamaherd.host.state import HostState, StatePart
from llamaherd.layout import CHAT, CHAT_CONTAINER
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.text.numbers import parse_whole


class PageState(NamedTuple):
    """Its container, in Docker's words, the hash of the file that it was made from, and its port."""

    status: str
    health: str
    spec: str
    port: int


@dataclass
class ChatState(StatePart):
    """All of it. `untried`: a run did not come to its end. `unsigned`: there is no secret that signs logins."""

    there: bool = False
    untried: bool = False
    unsigned: bool = False
    page: PageState | None = None


def inspect(plan: Plan) -> str:
    """Ask for it, also where the fleet has it elsewhere by now."""
    return render("chat_page/inspect.sh.j2", folder=CHAT, container=CHAT_CONTAINER) if plan.of_fleet else ""


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    match kind, fields:
        case "chat", ["there"]:
            ChatState.within(state).there = True
        case "chat", ["untried"]:
            ChatState.within(state).untried = True
        case "chat", ["unsigned"]:
            ChatState.within(state).unsigned = True
        case "chat", ["container", status, health, spec, port]:
            ChatState.within(state).page = PageState(status, health, spec, parse_whole(port))
        case _:
            return False
    return True
