"""Asks the live host whether it is what was declared, by other means than those that made it so.

One script in one connection asks for everything; what it printed is then judged here, by pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llamaherd.host import protocol
from llamaherd.host.answers import Answers, reply
from llamaherd.host.remote import Remote
from llamaherd.inventory.schema import Rig
from llamaherd.pipeline.brought import brought_checks, places
from llamaherd.plan import Plan
from llamaherd.role.dial import reached
from llamaherd.role.reach import Reach, doors, walls
from llamaherd.role.report import Check, Report, chat_seconds
from llamaherd.role.role import Judging, Role, Verified

_BASE_SECONDS = 60


def verify(rig: Rig, plan: Plan, roles: Sequence[Role], remote: Remote) -> Report:
    """Ask the rig's host, and judge. Raises RemoteError where it cannot be asked."""
    chats = [chat_seconds(each) for each in plan.instances for _ in each.members or (each,)]
    seconds = _BASE_SECONDS + sum(each + 20 for each in chats)
    answers = protocol.texts(protocol.ask_host(remote, question(plan, roles), seconds))
    return judge(rig, plan, roles, answers, _reached(rig, plan, answers))


def _reached(rig: Rig, plan: Plan, answers: Answers) -> dict[str, Reach]:
    """Which servers for others are reached from here, and which for none, of those that answer on their own host."""
    well = [each.name for each in plan.instances if reply(answers.get(("health", each.name), "")).status == 200]
    own = answers.get(("addresses", ""), "").split("\n")
    return reached(rig.connect, doors(plan, well), own, walls(plan, well))


def question(plan: Plan, roles: Sequence[Role]) -> str:
    """The script that asks a host for everything; no key is in it."""
    parts = [part for role in roles if (part := role.verify(plan))]
    return protocol.question_of("host/verify.sh.j2", brought=places(plan, roles), parts=parts)


def judge(
    rig: Rig, plan: Plan, roles: Sequence[Role], answers: Answers, reached: Mapping[str, Reach] | None = None
) -> Report:
    """The report that follows from what the host said, and from which of its servers are `reached` from here."""
    judging = Judging(rig, plan, answers, reached or {})
    found = [(role, _judged(role, judging)) for role in roles]
    parts = [part for _, part in found]
    return Report(
        rig=plan.rig,
        instances=tuple(each for part in parts for each in part.instances),
        installed=tuple(each for part in parts for each in part.installed),
        machine=(*_of("machine", found), *brought_checks(plan, roles, answers)),
        cards=_of("cards", found),
        driver=_of("driver", found),
    )


def _judged(role: Role, judging: Judging) -> Verified:
    """Return what a role found: one failed check if the host printed what no host prints."""
    try:
        return role.judge(judging)
    except (ValueError, LookupError) as error:
        why = f"what the host printed cannot be read: {type(error).__name__}: {error}"
        return Verified(checks=(Check(role.name, ok=False, detail=why),))


def _of(section: str, found: Sequence[tuple[Role, Verified]]) -> tuple[Check, ...]:
    return tuple(check for role, part in found if role.section == section for check in part.checks)
