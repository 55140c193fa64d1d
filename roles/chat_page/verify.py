"""Whether the page is there, and who may read what it reads: asked on its host by Docker and curl."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.answers import Answers
from llamaherd.layout import CHAT, CHAT_CONTAINER, CHAT_DATA
from llamaherd.onhost.verification import Probe
from llamaherd.plan import ChatPlan, Plan
from llamaherd.role.report import Check
from llamaherd.role.role import Judging, Verified
from roles.chat_page.plan import chat_url

_SHOWN = "{{.State.Status}} {{with .State.Health}}{{.Status}}{{end}} {{.Config.User}} {{.Image}}"


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of the page, its container and its files."""
    if plan.chat is None:
        return
    container = ("docker", "inspect", "--type", "container", "--format", _SHOWN, CHAT_CONTAINER)
    page = ("curl", "-q", "-sS", "--noproxy", "*", "--max-time", "10", chat_url(plan.chat.listen, plan.chat.port))
    files = (f"{CHAT}/key", f"{CHAT}/secret", str(CHAT_DATA))
    yield Probe("chat container", "", container, errors=True)
    yield Probe("chat page", "", page, errors=True)
    yield Probe("chat files", "", ("stat", "-c", "%a %u %n", *files), errors=True)


def judge(judging: Judging) -> Verified:
    """What it is, and what it says."""
    made = judging.plan.chat
    return Verified(checks=tuple(chat_checks(made, judging.answers))) if made else Verified()


def chat_checks(made: ChatPlan, answers: Answers) -> Iterator[Check]:
    """Its container, its answer, and who may read its keys and what people wrote."""
    container = answers.get(("chat container", ""), "")
    status, health, user, *_ = [*container.split(), "", "", ""]
    right = (status, health, user) == ("running", "healthy", f"{made.number}:{made.number}")
    yield Check(
        "chat page's container", right, f"is {status} {health} as {user}" if right else container or "no answer"
    )
    said = answers.get(("chat page", ""), "")
    well = '"status":true' in said.replace(" ", "")
    yield Check("chat page", well, f"answers on port {made.port}" if well else said[:200] or "no answer")
    owners = answers.get(("chat files", ""), "").splitlines()
    fine = (f"400 {made.number} ", f"700 {made.number} ")
    wrong = [line for line in owners if not line.startswith(fine)]
    detail = (
        f"others may read {wrong[0]}: `herd up` mends that" if wrong else "its user alone reads keys and conversations"
    )
    yield Check("chat page's files", bool(owners) and not wrong, detail if owners else "there are none: `herd up`")
