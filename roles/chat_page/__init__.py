"""Chat page: a page that people chat on, beside the gateway, as a project of Docker Compose."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.plan import Plan
from llamaherd.role.role import Inspection, Role, Task
from roles.chat_page.changes import chat_changes, chat_leftovers
from roles.chat_page.describe import describe
from roles.chat_page.files import KEY, ROOT
from roles.chat_page.plan import plan
from roles.chat_page.refusals import refusals
from roles.chat_page.state import ChatState
from roles.chat_page.state import question as state_question
from roles.chat_page.verify import judge, probes


def tasks(plan: Plan) -> Iterator[Task]:
    """After servers, which it is for. What fails keeps nothing else from being done."""
    if plan.chat:
        yield Task("a page that people chat on", lambda state, _: chat_changes(plan, state), alone=True)


ROLE = Role(
    name="chat_page",
    summary="People find a page that they chat on.",
    plan=plan,
    brings=lambda plan: (plan.chat.file,) if plan.chat else (),
    files=lambda plan: (KEY, ROOT) if plan.chat else (),
    inspection=Inspection("chat_page.inspect", state_question, ChatState, ChatState.keep),
    refusals=refusals,
    leftovers=chat_leftovers,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
