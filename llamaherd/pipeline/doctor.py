"""Diagnose a host for `herd doctor`: what is wrong and the fix, from one inspection of the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from llamaherd.host.program import request
from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.host.remote import RemoteError
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.doctor import DiskSpace, DoctorFacts, DoctorInput
from llamaherd.onhost.document import DocumentError, decode
from llamaherd.onhost.verification import Inspected
from llamaherd.pipeline.history import release_of
from llamaherd.pipeline.inspection import inspect_input, state_of
from llamaherd.pipeline.preview import ROLE_ERRORS, files_to_send, local_sizes, preview_changes, survey_host
from llamaherd.plan import Plan
from llamaherd.role.role import Role
from llamaherd.text.numbers import show_size
from llamaherd.text.terminal import MOST_HELP, one_line

VERB = "llamaherd.doctor.inspect"

LEAST_FREE = 2 << 30
"""Free bytes below which a disk counts as full: logs and package managers fail soon after."""

MOST_SKEW = 10.0
"""Seconds by which clocks may differ: certificates, logs and alerts need no more."""

_SERVERS = "/var/lib/docker"
_MOST_NAMED = 5


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was checked, what was found, and the fix if it is wrong. A note is not wrong."""

    what: str
    verdict: Literal["ok", "note", "wrong"]
    found: str
    fix: str = ""

    def __post_init__(self) -> None:
        for name in ("found", "fix"):
            object.__setattr__(self, name, one_line(getattr(self, name), MOST_HELP))  # it quotes what a host printed


@dataclass(frozen=True)
class Examined:
    """The diagnoses of one machine."""

    name: str
    diagnoses: tuple[Diagnosis, ...]

    @property
    def ok(self) -> bool:
        """Return whether nothing is wrong."""
        return all(each.verdict != "wrong" for each in self.diagnoses)

    def as_json(self) -> dict[str, Any]:
        """Return the diagnoses as plain JSON values."""
        return {"rig": self.name, "ok": self.ok, "checks": [asdict(each) for each in self.diagnoses]}


def doctor_input(plan: Plan | None) -> DoctorInput:
    """Return what to inspect besides the parts of roles."""
    return DoctorInput(("/", *([plan.store.path] if plan else []), _SERVERS))


def doctor_request(plan: Plan, roles: Sequence[Role]) -> bytes:
    """Return the document of one inspection: that of `herd up`, with what only a diagnosis needs."""
    given = inspect_input(plan, roles)
    return request("inspect", replace(given, parts={**given.parts, VERB: doctor_input(plan)}))


def unreached(name: str, error: RemoteError) -> Examined:
    """Return the diagnosis of a host that could not be inspected."""
    return Examined(name, (Diagnosis("connection", "wrong", error.message, error.help),))


def examine_host(rig: Rig, plan: Plan, roles: Sequence[Role], result: object, queried: tuple[float, float]) -> Examined:
    """Return the diagnoses of a host from its inspection, which ran between two times of this machine's clock.

    Raise UnexpectedLineError if the program cannot have returned this result.
    """
    try:
        facts = decode(DoctorFacts, decode(Inspected, result).parts.get(VERB))
    except DocumentError as error:
        raise UnexpectedLineError(str(error)) from None
    found = [*examine_facts(rig.rig, facts, queried)]
    try:
        state = state_of(result, roles)
    except RemoteError as error:  # a part of the host does not respond
        return Examined(rig.rig, (*found, Diagnosis("inspection", "wrong", error.message, error.help)))
    return Examined(rig.rig, (*found, *_gpus(plan, state), *_plan_checks(rig, plan, roles, state)))


def examine_facts(rig: str, facts: DoctorFacts, queried: tuple[float, float]) -> Iterator[Diagnosis]:
    """Yield the diagnoses that need no plan."""
    yield Diagnosis("connection", "ok", f"root rights, Python {facts.python}")
    yield clock_diagnosis(facts.clock, queried, "`timedatectl set-ntp true` on that host sets its clock by the network")
    yield _disks(rig, facts.disks)
    yield from _units(rig, facts.failed)
    if facts.holder:
        fix = f"wait until it has ended; if it is gone for good, `herd unlock {rig}` breaks its lock"
        yield Diagnosis("lock", "note", f"a run changes this host, by {facts.holder}", fix)
    elif facts.interrupted:
        yield Diagnosis(
            "lock", "wrong", "a run was interrupted while it replaced servers", f"`herd up {rig}` resumes it"
        )
    yield _last_run(rig, facts)


def clock_diagnosis(clock: float, queried: tuple[float, float], fix: str) -> Diagnosis:
    """Return how far another clock differs from this machine's, which it was compared with between two times."""
    skew = max(queried[0] - clock, clock - queried[1], 0.0)
    if skew <= MOST_SKEW:
        return Diagnosis("clock", "ok", "agrees with this machine")
    side = "behind" if clock < queried[0] else "ahead of"
    return Diagnosis("clock", "wrong", f"{_duration(skew)} {side} this machine's", fix)


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _disks(rig: str, disks: Sequence[DiskSpace]) -> Diagnosis:
    full = [each for each in disks if each.free < LEAST_FREE]
    shown = ", ".join(f"{each.folder} {show_size(each.free)}" for each in full or disks)
    if full:
        fix = f"`herd prune {rig}` and `herd models prune {rig}` list what can go"
        return Diagnosis("disk", "wrong", f"nearly full, free: {shown}", fix)
    return Diagnosis("disk", "ok", f"free: {shown}")


def _units(rig: str, failed: Sequence[str] | None) -> Iterator[Diagnosis]:
    """Yield the units that failed: those of llamaherd are wrong, all others are a note."""
    if failed is None:
        yield Diagnosis(
            "units",
            "wrong",
            "systemd does not respond",
            "see `systemctl status` on that host; a reboot helps if it hangs",
        )
        return
    ours = [each for each in failed if each.startswith(("llama-", "llama_", "llamaherd-"))]
    others = [each for each in failed if each not in ours]
    for unit in ours[:_MOST_NAMED]:
        fix = f"see `journalctl -u {unit} -n 50` on that host, then `herd up {rig}`"
        yield Diagnosis("units", "wrong", f"{unit} failed", fix)
    if others:
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        fix = "see `systemctl --failed` on that host"
        yield Diagnosis(
            "units", "note", f"units of other programs failed: {', '.join(others[:_MOST_NAMED])}{more}", fix
        )
    if not failed:
        yield Diagnosis("units", "ok", "none failed")


def _last_run(rig: str, facts: DoctorFacts) -> Diagnosis:
    release = release_of(facts.release.text) if facts.release else None
    if facts.release is None or release is None:
        return Diagnosis("last run", "note", "none is recorded", f"`herd up {rig}` applies the plan")
    at = f"release {facts.release.number}, {release.at[:16].replace('T', ' ')} UTC, by {release.origin.author}"
    if release.failed:
        more = f" (and {len(release.failed) - 1} more)" if len(release.failed) > 1 else ""
        fix = f"fix the cause and run `herd up {rig}`, or try the same again with `herd up {rig} --retry`"
        return Diagnosis("last run", "wrong", f"{at}, failed: {release.failed[0]}{more}", fix)
    return Diagnosis("last run", "ok", at)


def _gpus(plan: Plan, state: HostState) -> Iterator[Diagnosis]:
    """Yield whether the driver detects the declared GPUs. Preflight reports which one is missing."""
    shown = state.gpus.shown
    if not plan.cards and not shown:
        return
    names = ", ".join(dict.fromkeys(gpu.name for gpu in shown))
    if len(shown) >= len(plan.cards):
        driver = f", driver {state.driver.loaded}" if state.driver.loaded else ""
        yield Diagnosis("gpus", "ok", f"{len(shown)} detected: {names}{driver}")
        return
    why = f": {state.gpus.problem}" if state.gpus.problem else ""
    installs = f"; `herd up {plan.rig}` installs the driver" if plan.driver else ""
    fix = f"`herd preflight {plan.rig}` lists the GPUs on the bus{installs}"
    yield Diagnosis("gpus", "wrong", f"{len(shown)} of {len(plan.cards)} declared GPUs detected{why}", fix)


def _plan_checks(rig: Rig, plan: Plan, roles: Sequence[Role], state: HostState) -> Iterator[Diagnosis]:
    """Yield the obstacles to a run, and otherwise whether the host matches the plan."""
    try:
        sizes = local_sizes(files_to_send(plan, state, roles))
        survey = survey_host(plan, state, roles, sizes)
        for row in survey.doubtful:
            verdict: Literal["note", "wrong"] = "wrong" if row.verdict == "refused" else "note"
            yield Diagnosis(row.what, verdict, row.why, row.help)
        if survey.refused:
            return
        yield Diagnosis("preflight", "ok", f"{len(survey.rows)} requirements checked")
        found = preview_changes(plan, roles, state, rig.connect, sizes)
    except ROLE_ERRORS as error:
        yield Diagnosis("plan", "wrong", *_split(str(error)))
        return
    for problem in found.problems:
        yield Diagnosis("plan", "wrong", *_split(problem))
    if found.changes:
        count = f"{len(found.changes)} change{'s' if len(found.changes) > 1 else ''} to apply"
        fix = f"`herd plan {rig.rig}` lists them, `herd up {rig.rig}` applies them"
        yield Diagnosis("plan", "note", count, fix)
    elif not found.problems:
        yield Diagnosis("plan", "ok", "the host matches it")


def _split(problem: str) -> tuple[str, str]:
    """Return the message and the help of an error's text."""
    message, _, fix = problem.partition("\n  help: ")
    return message, fix


MARKS = {"ok": ("✓", "ok"), "note": ("!", "note"), "wrong": ("✗", "WRONG")}
"""The mark of a verdict in a terminal with UTF-8, and in any other."""


def diagnosis_lines(found: Examined, *, unicode: bool) -> Iterator[tuple[str, str]]:
    """Yield each line with its verdict: the checked thing, what was found, and the fix of what is not right."""
    width = max((len(each.what) for each in found.diagnoses), default=0)
    for each in found.diagnoses:
        mark = MARKS[each.verdict][0 if unicode else 1]
        fix = f": {each.fix}" if each.fix and each.verdict != "ok" else ""
        yield each.verdict, f"  {mark} {each.what:{width}}  {each.found}{fix}"
