"""Verify a live host against the plan, by other means than those that apply it.

One run of the program there runs all probes; what they printed is judged here, by pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llamaherd.host import protocol
from llamaherd.host.answers import Answers, reply
from llamaherd.host.program import request
from llamaherd.host.remote import Remote
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.document import DocumentError, decode
from llamaherd.onhost.verification import Probe, VerifyInput, VerifyResult
from llamaherd.pipeline.brought import brought_checks, places
from llamaherd.pipeline.inspect import program_for
from llamaherd.plan import Plan
from llamaherd.role.dial import reached
from llamaherd.role.reach import Reach, doors, walls
from llamaherd.role.report import Check, Report, chat_seconds
from llamaherd.role.role import Judging, Role, Verified

_BASE_SECONDS = 60


def verify(rig: Rig, plan: Plan, roles: Sequence[Role], remote: Remote) -> Report:
    """Run the probes on the rig's host, and judge. Raise RemoteError where that fails."""
    chats = [chat_seconds(each) for each in plan.instances for _ in each.members or (each,)]
    seconds = _BASE_SECONDS + sum(each + 20 for each in chats)
    document = request("verify", verify_input(plan, roles))
    answers = answers_of(protocol.query_host(remote, program_for(roles), document, seconds))
    return judge(rig, plan, roles, answers, _reached(rig, plan, answers))


def answers_of(result: object) -> Answers:
    """Return what the probes printed. Raise UnaskedError where the program cannot have returned this."""
    try:
        found = decode(VerifyResult, result)
    except DocumentError as error:
        raise protocol.UnaskedError(str(error)) from None
    texts = {(each.what, each.of): each.text for each in found.texts}
    return {**texts, **(protocol.texts(protocol.answer(found.lines)) if found.lines else {})}


def _reached(rig: Rig, plan: Plan, answers: Answers) -> dict[str, Reach]:
    """Which servers for others are reached from here, and which for none, of those that answer on their own host."""
    well = [each.name for each in plan.instances if reply(answers.get(("health", each.name), "")).status == 200]
    lines = answers.get(("addresses", ""), "").split("\n")
    own = [words[3] for line in lines if len(words := line.split()) > 3]
    return reached(rig.connect, doors(plan, well), own, walls(plan, well))


def verify_input(plan: Plan, roles: Sequence[Role]) -> VerifyInput:
    """Return what is run on a host."""
    shipped = places(plan, roles)
    probes = [
        Probe("shipped", "", ("find", *shipped, "!", "-type", "d", "-printf", r"%m\t%u\t%p\n")),
        Probe("shipped sums", "", ("find", *shipped, "-type", "f", "-exec", "sha256sum", "{}", "+")),
        Probe("addresses", "", ("ip", "-o", "addr", "show")),
        Probe("listening", "", ("awk", '$4 == "0A" { print $2 }', "/proc/net/tcp", "/proc/net/tcp6")),
        *(probe for role in roles for probe in role.probes(plan)),
    ]
    parts = [part for role in roles if (part := role.verify(plan))]
    return VerifyInput(tuple(probes), protocol.question_of("host/verify.sh.j2", parts=parts) if parts else "")


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
