"""Verify a running host against its plan, by other means than those that apply it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llamaherd.host import protocol
from llamaherd.host.program import fetcher_files, request
from llamaherd.host.remote import Remote
from llamaherd.host.responses import ProbeOutputs
from llamaherd.inventory.schema import Rig
from llamaherd.layout import FETCHER
from llamaherd.onhost.document import DocumentError, decode
from llamaherd.onhost.verification import Probe, VerifyInput, VerifyResult
from llamaherd.pipeline.inspection import program_for
from llamaherd.plan import Plan, TextFile
from llamaherd.role.dial import reached
from llamaherd.role.reach import Reach, doors, walls
from llamaherd.role.report import Check, Report, chat_seconds
from llamaherd.role.role import Judging, Role, Verified
from llamaherd.text.numbers import parse_mode
from llamaherd.text.quoting import Written

_NAMED = 3
"""Files that are named in one sentence."""


def shipped_files(plan: Plan, roles: Sequence[Role]) -> dict[str, TextFile]:
    """Return every file that herd alone writes, by path: without files such as a repository's entry."""
    return {file.path: file for file in (*(file for role in roles for file in role.brings(plan)), *fetcher_files())}


def shipped_paths(plan: Plan, roles: Sequence[Role]) -> list[str]:
    """Return the paths that a host inspects for them: the fetcher's whole folder, and the paths of further files."""
    inside = f"{FETCHER}/"
    return [inside, *(path for path in shipped_files(plan, roles) if not path.startswith(inside))]


def shipped_checks(plan: Plan, roles: Sequence[Role], outputs: ProbeOutputs) -> Iterator[Check]:
    """Yield one check of all these files."""
    if ("shipped", "") not in outputs:
        return
    files = shipped_files(plan, roles)
    wrong = list(_shipped_faults(files, outputs["shipped", ""], outputs.get(("shipped sums", ""), "")))
    more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    named = f"{'; '.join(wrong[:_NAMED])}{more}: `herd up` mends that"
    yield Check("programs", not wrong, named if wrong else f"{len(files)} files match the plan")


def _shipped_faults(files: dict[str, TextFile], stats: str, sums: str) -> Iterator[str]:
    """Yield what differs. Lines of `stats` are octal mode, owner, path; lines of `sums` sha256, two blanks, path."""
    rows = (line.split("\t", 2) for line in stats.split("\n"))
    there = {path: (mode, owner) for mode, owner, path in (row for row in rows if len(row) == 3)}
    hashes = {path: sha256 for sha256, _, path in (line.partition("  ") for line in sums.split("\n"))}
    for path, file in files.items():
        if path not in there:
            yield f"{path} is not there"
        elif hashes.get(path) != hashlib.sha256(file.text.encode()).hexdigest():
            yield f"{path} differs from the plan"
        elif (parse_mode(there[path][0]), there[path][1]) != (int(file.mode, 8), file.owner):
            mode, owner = there[path]
            yield f"{path} has mode {mode} and is {owner}'s, not {int(file.mode, 8):o} and {file.owner}'s"
    yield from (f"{path} is not in the plan" for path in there if path not in files)


_BASE_SECONDS = 60


@dataclass(frozen=True)
class HostFacts:
    """What a host returned: texts of probes and scripts, and the results of roles' verbs, by type."""

    outputs: ProbeOutputs = field(default_factory=dict)
    parts: Mapping[type[Any], Any] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    """The part of the host that did not respond to a verb, by the verb's name."""


def verify_rig(rig: Rig, plan: Plan, roles: Sequence[Role], remote: Remote) -> Report:
    """Verify the rig's host, and judge the results. Raise RemoteError if the host cannot be verified."""
    chats = [chat_seconds(each) for each in plan.instances for _ in each.members or (each,)]
    seconds = _BASE_SECONDS + sum(each + 20 for each in chats)
    document = request("verify", verify_input(plan, roles))
    facts = facts_of(protocol.query_host(remote, program_for(roles), document, seconds), roles)
    return judge_host(rig, plan, roles, facts, _reached(rig, plan, roles, facts))


def facts_of(result: object, roles: Sequence[Role]) -> HostFacts:
    """Return what a host returned. Raise UnexpectedLineError if the program cannot have returned this."""
    verbs = {role.verification.verb: role.verification.found for role in roles if role.verification}
    try:
        found = decode(VerifyResult, result)
        parts = {kind: decode(kind, found.parts[verb]) for verb, kind in verbs.items() if verb in found.parts}
    except DocumentError as error:
        raise protocol.UnexpectedLineError(str(error)) from None
    texts = {(each.what, each.of): each.text for each in found.texts}
    lines = protocol.parse_texts(protocol.marked_lines(found.lines)) if found.lines else {}
    return HostFacts({**texts, **lines}, parts, found.unknown)


def _reached(rig: Rig, plan: Plan, roles: Sequence[Role], facts: HostFacts) -> dict[str, Reach]:
    """Try servers from here that are healthy on their host, also those for the host alone. Return results by name."""
    verified = [
        (each, facts.parts[each.found]) for role in roles if (each := role.verification) if each.found in facts.parts
    ]
    healthy = [name for each, found in verified for name in each.healthy(found)]
    lines = facts.outputs.get(("addresses", ""), "").split("\n")
    own = [words[3] for line in lines if len(words := line.split()) > 3]
    return reached(rig.connect, doors(plan, healthy), own, walls(plan, healthy))


def verify_input(plan: Plan, roles: Sequence[Role]) -> VerifyInput:
    """Return what is run on a host."""
    shipped = shipped_paths(plan, roles)
    probes = [
        Probe("shipped", "", ("find", *shipped, "!", "-type", "d", "-printf", r"%m\t%u\t%p\n")),
        Probe("shipped sums", "", ("find", *shipped, "-type", "f", "-exec", "sha256sum", "{}", "+")),
        Probe("addresses", "", ("ip", "-o", "addr", "show")),
        Probe("listening", "", ("awk", '$4 == "0A" { print $2 }', "/proc/net/tcp", "/proc/net/tcp6")),
        *(probe for role in roles for probe in role.probes(plan)),
    ]
    parts = {
        role.verification.verb: given
        for role in roles
        if role.verification and (given := role.verification.given(plan)) is not None
    }
    # A fleet's own role returns a plain text.
    scripts = [Written(script) for role in roles if (script := role.verify(plan))]
    script = protocol.probe_script("host/verify.sh.j2", parts=scripts) if scripts else ""
    return VerifyInput(tuple(probes), parts, script)


def judge_host(
    rig: Rig, plan: Plan, roles: Sequence[Role], facts: HostFacts, reached: Mapping[str, Reach] | None = None
) -> Report:
    """Return the report that follows from what the host returned, and which of its servers are `reached` from here."""
    judging = Judging(rig, plan, facts.outputs, reached or {}, facts.parts)
    found = [(role, _judge_role(role, judging, facts)) for role in roles]
    parts = [part for _, part in found]
    return Report(
        rig=plan.rig,
        instances=tuple(each for part in parts for each in part.instances),
        installed=tuple(each for part in parts for each in part.installed),
        machine=(*_section_checks("machine", found), *shipped_checks(plan, roles, facts.outputs)),
        cards=_section_checks("cards", found),
        driver=_section_checks("driver", found),
    )


def _judge_role(role: Role, judging: Judging, facts: HostFacts) -> Verified:
    """Return a role's checks; one failed check if its part is unknown, or if no host can have printed the result."""
    if role.verification and (silent := facts.unknown.get(role.verification.verb)):
        return Verified(checks=(Check(role.name, ok=False, detail=f"{silent} did not respond: run again"),))
    try:
        return role.judge(judging)
    except (ValueError, LookupError) as error:
        why = f"what the host printed cannot be read: {type(error).__name__}: {error}"
        return Verified(checks=(Check(role.name, ok=False, detail=why),))


def _section_checks(section: str, found: Sequence[tuple[Role, Verified]]) -> tuple[Check, ...]:
    return tuple(check for role, part in found if role.section == section for check in part.checks)
