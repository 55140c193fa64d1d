"""Read the releases of hosts: find the causes of changes in them, and prepare a rollback to one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.program import packed_program, request
from llamaherd.host.protocol import HostLock, query_host, query_verb
from llamaherd.host.remote import AT_ONCE, Remote, RemoteError
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect, Rig
from llamaherd.onhost.releases import ReadInput, Stored
from llamaherd.pipeline.diff import Causes, find_causes
from llamaherd.pipeline.inspection import INSPECT_SECONDS, inspect_host, inspect_request, program_for, state_of
from llamaherd.pipeline.plan import needed_plan
from llamaherd.pipeline.preview import ROLE_ERRORS, Preview, preview_changes
from llamaherd.pipeline.release import Origin, Past, merged_plan, past_of, settling_release, union, write_input
from llamaherd.plan import InstancePlan, Only, Plan
from llamaherd.role.role import Role
from llamaherd.role.values import ValueChange, instance_changes
from llamaherd.store.files import missing_files

ROLLBACK_ROLES = ("base", "serve")
"""The roles of a rollback: engines, models and drivers stay unchanged."""

NEWEST_RELEASES = 10
"""The successful releases whose plans are searched for another version of an instance."""

_HISTORY = "`herd history` lists what there is"


def choose_release(past: Past, rig: str, instance: str | None, number: int | None) -> int:
    """Return the number of the release to roll back to: the newest successful one with other servers than the last one.

    With an instance, the newest one with another version of it. Raises UserError if there is none.
    """
    if number is not None:
        if number not in past.releases or number not in past.plans:
            raise UserError(f"{rig} has no release {number}", _HISTORY)
        return number
    if not past.good:
        raise UserError(f"{rig} has no release to go back to", "each `herd up` that changes something leaves one")
    current, *earlier = past.good
    for each in earlier:
        if each in past.plans and _specs(past, each, instance) != _specs(past, current, instance):
            return each
    what = f"`{instance}`" if instance else "a server"
    other = f" with another version of {what}" if earlier else ""
    raise UserError(f"{rig} has no release before {current}{other}", _HISTORY)


def release_plan(past: Past, number: int, instance: str | None) -> Plan:
    """Return the plan of a release; with an instance, the newest plan with the instance's version of the release.

    The latter is limited to the instance, and so is the plan of a release that recorded a part alone. Keys on the host
    stay unchanged: none is read. Raises UserError if the release has no such instance.
    """
    then = past.plans[number]
    if instance is None:
        return keyless(then)
    was = next((each for each in then.instances if each.name == instance), None)
    if was is None:
        raise UserError(f"release {number} has no instance `{instance}`", _HISTORY)
    now = past.newest_plan or then
    both = keyless(
        now.model_copy(
            update={
                "instances": (*(each for each in now.instances if each.name != instance), was),
                "builds": union(now.builds, then.builds),
                "models": union(now.models, then.models),
                "images": union(now.images, then.images),
            }
        )
    )
    return both.model_copy(update={"only": Only(instances=(instance,), needs=needed_plan(both, both, (instance,)))})


def missing_on_host(plan: Plan, state: HostState) -> Iterator[str]:
    """Yield what the instances of a plan need, and the host no longer has."""
    used = {instance.build for instance in plan.chosen}
    folders = {folder for instance in plan.chosen for folder in instance.server.folders}
    images = {instance.server.image for instance in plan.chosen if instance.backend == "compose"}
    yield from (
        f"build {each.id}" for each in plan.builds if each.id in used and state.engines.builds.get(each.id) != "done"
    )
    yield from (f"key of {each.name}" for each in plan.chosen if each.key_file and each.key_file not in state.files)
    yield from (
        f"image {each.tag}" for each in plan.images if each.tag in images and each.tag not in state.servers.images
    )
    for model in plan.models:
        if model.folder in folders and missing_files(model, state):
            yield f"model {model.name} in {model.folder}"


def _specs(past: Past, number: int, instance: str | None) -> dict[str, str]:
    """Return the specs of the servers in a release, or of one server; empty if its plan was not read."""
    plan = past.plans.get(number)
    instances = plan.instances if plan else ()
    return {each.name: each.spec for each in instances if instance in (None, each.name)}


def keyless(plan: Plan) -> Plan:
    """Return a plan without the places of keys on this machine."""

    def without(instance: InstancePlan) -> InstancePlan:
        endpoint = instance.endpoint.model_copy(update={"key": None})
        return instance.model_copy(update={"server": instance.server.model_copy(update={"endpoint": endpoint})})

    return plan.model_copy(update={"instances": tuple(map(without, plan.instances))})


_RELEASES_SECONDS = 60


def query_past(connect: Connect, newest: int = 0, number: int | None = None, *, texts: bool = False) -> Past:
    """Return the releases of a host, and the plans of so many of the newest, of as many good ones, and of a number.

    With `texts`, also what has become of files that are made of keys. Raise RemoteError.
    """
    given = ReadInput(newest, number or 0, texts)
    return past_of(query_verb(Remote(connect), "llamaherd.releases.read", given, Stored, _RELEASES_SECONDS))


def query_pasts(rigs: Mapping[str, Rig]) -> dict[str, Past | RemoteError]:
    """Return the releases of many hosts at once; or the error of a host."""

    def query(rig: Rig) -> Past | RemoteError:
        try:
            return query_past(rig.connect)
        except RemoteError as error:
            return error

    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(rigs)))) as pool:
        return dict(zip(rigs, pool.map(query, rigs.values()), strict=True))


def query_causes(
    planned: Mapping[str, tuple[Rig, Plan]], found: Mapping[str, Preview], roles: Sequence[Role]
) -> dict[str, tuple[Causes, ...]]:
    """Return the causes of each change, by rig, if the host has a readable release, and the settings that differ.

    If the release has another plan, the host is inspected once more for that plan.
    """

    def query(name: str) -> tuple[Causes, ...]:
        (rig, plan), each = planned[name], found[name]
        try:
            if each.unsettled:
                return _causes_since_failure(rig, plan, each)
            past = query_past(rig.connect, newest=1, texts=True)
            last = past.newest_plan
            if last is None or not _covers(last, plan):
                return ()
            if last == merged_plan(past, plan, {}):
                return find_causes(each, each, past.texts)
            seen = inspect_host(Remote(rig.connect), last, roles)
            causes = find_causes(each, preview_changes(keyless(last), roles, seen, rig.connect, {}), past.texts)
            values = (instance_changes(last, plan, change.name) for change in each.changes)
            return tuple(replace(cause, values=own) for cause, own in zip(causes, values, strict=True))
        except (RemoteError, *ROLE_ERRORS):
            return ()  # causes are a note, and no reason to fail

    names = [name for name, each in found.items() if each.changes]
    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(names)))) as pool:
        return dict(zip(names, pool.map(query, names), strict=True))


def _causes_since_failure(rig: Rig, plan: Plan, found: Preview) -> tuple[Causes, ...]:
    """Return the settings that differ from those of the running servers, by the release that each of them is from.

    Drift is unknown: what a failed or interrupted run has left is none, and no release lists it.
    """
    past = query_past(rig.connect, newest=NEWEST_RELEASES)
    values = (_running_values(past, plan, change.name, found.running) for change in found.changes)
    return tuple(Causes(values=own, known=False) for own in values)


def _running_values(past: Past, plan: Plan, service: str, running: Mapping[str, str]) -> tuple[ValueChange, ...]:
    for _, then in sorted(past.plans.items(), reverse=True):
        if any(each.service == service and each.spec == running.get(service) for each in then.instances):
            return instance_changes(then, plan, service)
    return ()


def settle(rig: Rig, plan: Plan, unsettled: str, origin: Origin, at: str) -> None:
    """Store a release on a host that matches its plan, where the newest one does not. Raise RemoteError."""
    given = write_input(settling_release(unsettled, origin, at), plan)
    query_host(Remote(rig.connect), packed_program(), request("llamaherd.releases.write", given), _RELEASES_SECONDS)


def _covers(last: Plan, plan: Plan) -> bool:
    """Return whether the last plan contains all that this plan applies: on some hosts, only a part was ever applied."""
    return last.only is None or (plan.only is not None and set(plan.only.names) <= set(last.only.names))


@dataclass(frozen=True)
class PreparedRollback:
    """A release, its plan, and the preview of a rollback to it, for a host in this state.

    `seen_at` is the time of the inspection in seconds, if this run has held the lock since; otherwise None. `causes`
    has the settings that differ from the newest successful release, for each change.
    """

    number: int
    plan: Plan
    outlook: Preview
    seen: HostState
    seen_at: float | None
    causes: tuple[Causes, ...] = ()


def prepare_rollback(
    rig: Rig,
    roles: Sequence[Role],
    instance: str | None,
    number: int | None,
    turn: HostLock | None,
    clock: Callable[[], float],
) -> PreparedRollback:
    """Prepare the rollback of one instance or of all. Raises RemoteError, and UserError if it is not possible.

    The login for the inspection starts while the host still returns its releases. The lock, if given, is taken before
    the inspection, unless another run holds it. `clock` returns the time of the inspection.
    """
    document: Future[bytes] = Future()
    pool = ThreadPoolExecutor(2)
    inspected = pool.submit(query_host, Remote(rig.connect), program_for(roles), document.result, INSPECT_SECONDS)
    taken = pool.submit(_is_taken, turn)
    try:
        past = query_past(rig.connect, NEWEST_RELEASES, number)
        chosen = choose_release(past, rig.rig, instance, number)
        plan = release_plan(past, chosen, instance)
        ours = taken.result()
        seen_at = clock() if ours else None
        document.set_result(inspect_request(plan, roles))
        logged_in = pool.submit(_log_in, turn if ours else None)
        seen = state_of(inspected.result(), roles)
        logged_in.result()
    finally:
        document.cancel()  # a thread that still waits for it sends no request
        pool.shutdown(wait=False)
    if gone := list(missing_on_host(plan, seen)):
        raise UserError(
            f"release {chosen} cannot come back: the host has no {', no '.join(gone)} any more",
            "declare the servers in the inventory, and run `herd up`, which brings what they need",
        )
    taking_part = tuple(role for role in roles if role.name in ROLLBACK_ROLES)
    would = preview_changes(plan, taking_part, seen, rig.connect, {}, retry=True)
    last = past.plans.get(past.good[0]) if past.good else None
    values = (instance_changes(last, plan, change.name) if last else () for change in would.changes)
    return PreparedRollback(
        chosen, plan, would, seen, seen_at, tuple(Causes(values=own, known=False) for own in values)
    )


def _log_in(turn: HostLock | None) -> None:
    """Log in for the first change while the host is inspected. If that fails, the next login reports why."""
    with suppress(RemoteError):
        if turn:
            turn.log_in()


def _is_taken(turn: HostLock | None) -> bool:
    """Take the lock if it is free, and return whether this run holds it. Waiting for another run comes later."""
    try:
        return turn is not None and turn.take(lambda _: None, wait=0)
    except UserError:
        return False
