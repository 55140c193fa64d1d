"""The releases of hosts: what runs changed, their origins, results and plans; causes of changes, and rollbacks."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.program import packed_program, request
from llamaherd.host.protocol import HostLock, query_host, query_verb
from llamaherd.host.remote import Remote, RemoteError, query_all
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect, Rig
from llamaherd.onhost.releases import MOST_PLAN, ReadInput, Stored, WriteInput
from llamaherd.pipeline.diff import Causes, find_causes
from llamaherd.pipeline.inspection import INSPECT_SECONDS, inspect_host, inspect_request, program_for, state_of
from llamaherd.pipeline.plan import needed_plan
from llamaherd.pipeline.preview import ROLE_ERRORS, Preview, preview_changes
from llamaherd.plan import InstancePlan, Only, Plan
from llamaherd.plan.artifacts import Planned
from llamaherd.role.role import Role
from llamaherd.role.values import ValueChange, instance_changes
from llamaherd.store.files import missing_files

_SENTENCES, _LETTERS = 100, 400
"""The most changes and failures that are kept, and the most letters of each."""


class Origin(Planned):
    """The origin of a run: its user, machine, commit of the inventory, lock, and version of llamaherd.

    `commit` is empty if the inventory is in no git repository, and ends in `+` if it has uncommitted changes.
    """

    user: str = ""
    machine: str = ""
    commit: str = ""
    lock: str = ""
    version: str = ""

    @property
    def author(self) -> str:
        """Return the user and the machine, as text."""
        return f"{self.user} on {self.machine}"


class Release(Planned):
    """One run that changed something. `at` is its end, in UTC. A rollback restored the release `back_to`.

    `only` are the instances and roles that the run was limited to; empty for all.
    """

    at: str
    origin: Origin
    changes: tuple[str, ...]
    failed: tuple[str, ...] = ()
    back_to: int | None = None
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Past:
    """The releases of a host by number, the oldest first, and the plans of the requested ones."""

    releases: dict[int, Release]
    plans: dict[int, Plan]
    texts: Mapping[str, bool] = field(default_factory=dict)
    """By file that is made of keys, whether it is as the last run wrote it; only files that a run recorded."""

    @property
    def good(self) -> list[int]:
        """The releases without a failure, the newest first."""
        return [number for number, release in reversed(self.releases.items()) if not release.failed]

    @property
    def newest_plan(self) -> Plan | None:
        """The plan of the last run, even if the run failed."""
        return self.plans[max(self.plans)] if self.plans else None


def bounded_sentences(sentences: Iterable[str]) -> tuple[str, ...]:
    """Return as many sentences, and as many letters of each, as a release keeps."""
    return tuple(each[:_LETTERS] for each in list(sentences)[:_SENTENCES])


def settling_release(unsettled: str, origin: Origin, at: str) -> Release:
    """Return the release of a run that found nothing to do, though the newest release has not the host's state."""
    return Release(at=at, origin=origin, changes=(f"confirm plan: the host matches it, after {unsettled}",))


def write_input(release: Release, plan: Plan) -> WriteInput:
    """Return the input with which the host stores a release under the next number. It contains no secret."""
    return WriteInput(release.model_dump_json(), plan.model_dump_json())


def past_of(stored: Stored) -> Past:
    """Return the releases that a host has stored. Releases that only a later version can read are left out."""
    releases = {each.number: release for each in stored.releases if (release := release_of(each.release))}
    plans = {each.number: plan for each in stored.releases if each.plan and (plan := _unpack_plan(each.plan))}
    return Past(dict(sorted(releases.items())), plans, stored.texts)


def release_of(text: str | bytes) -> Release | None:
    """Return a release from its text; None if this version cannot read it."""
    try:
        return Release.model_validate_json(text)
    except ValueError:
        return None


def _unpack_plan(content: str) -> Plan | None:
    """Return a plan, unpacked no further than a plan can be long."""
    try:
        packed = base64.b64decode(content, validate=True)
        text = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, MOST_PLAN)
        return Plan.model_validate_json(text)
    except (ValueError, zlib.error):
        return None


RECENT = 10
"""The releases that are searched for a server that runs with another spec than in the newest."""

_EMPTY = ("packages", "files", "repositories", "builds", "models", "images", "instances", "windows_power")
_NONE = ("driver", "toolkit", "runtime", "power", "wsl")

T = TypeVar("T")


def merged_plan(past: Past, plan: Plan, running: Mapping[str, str]) -> Plan:
    """Return the plan of a host after this plan was applied there; `running` are specs of its servers, by service.

    If the host has no release, it is the plan of the part alone, with `only`.
    """
    only = plan.only
    if only is None:
        return plan
    nothing = dict.fromkeys(_EMPTY, ()) | dict.fromkeys(_NONE) | {"parts": {}, "only": Only()}
    before = past.newest_plan or plan.model_copy(update=nothing)
    update: dict[str, Any] = {name: getattr(plan, name) for name in only.fields}
    update["parts"] = before.parts | {role: plan.parts[role] for role in only.roles if role in plan.parts}
    update["only"] = _both_parts(before.only, only) if before.only else None
    if only.needs:
        update |= _with_needs(before.model_copy(update=update), only.needs)
    instances = plan.instances
    if not plan.whole("serve"):
        others = (each for each in _instances_before(past, before, running) if each.name not in only.instances)
        instances = tuple(sorted((*others, *plan.chosen), key=lambda each: each.name))
    plans = (plan, before, *_newest_first(past))
    folders = {folder for each in instances for folder in each.server.folders}
    update |= {
        "instances": instances,
        "builds": _used_items(
            {each.build for each in instances}, lambda build: build.id, [each.builds for each in plans]
        ),
        "models": _used_items(folders, lambda model: model.folder, [each.models for each in plans]),
        "images": _used_items(
            {each.server.image for each in instances}, lambda i: i.tag, [each.images for each in plans]
        ),
    }
    return before.model_copy(update=update)


def _both_parts(one: Only, other: Only) -> Only:
    return Only(instances=union(one.instances, other.instances), roles=union(one.roles, other.roles))


def _with_needs(before: Plan, needs: Plan) -> dict[str, Any]:
    """Return what instances need in addition to builds, models and images, merged with a plan."""
    files = {file.path: file for file in (*before.files, *needs.files)}
    return {
        "packages": tuple(sorted({*before.packages, *needs.packages})),
        "files": tuple(files.values()),
        "repositories": union(before.repositories, needs.repositories),
        "store": needs.store,
        "toolkit": needs.toolkit or before.toolkit,
        "runtime": before.runtime or needs.runtime,
    }


def _instances_before(past: Past, before: Plan, running: Mapping[str, str]) -> Iterator[InstancePlan]:
    """Yield each instance as it was planned last; if another spec runs, as in the last release with that spec.

    The last run may have failed without changing the instance.
    """
    last = {each.name: each for each in before.instances}
    runs = {
        each.name: each
        for plan in reversed(_newest_first(past))
        for each in plan.instances
        if running.get(each.service) == each.spec
    }
    yield from (last | runs).values()


def _used_items(used: set[Any], key: Callable[[T], object], lists: Sequence[Sequence[T]]) -> tuple[T, ...]:
    """Return the used items, each once: as in the first list that contains it."""
    found = {key(each): each for list_ in reversed(lists) for each in list_ if key(each) in used}
    return tuple(found.values())


def _newest_first(past: Past) -> list[Plan]:
    return [past.plans[number] for number in sorted(past.plans, reverse=True)]


def union(first: Sequence[T], second: Sequence[T]) -> tuple[T, ...]:
    """Return the items of both, each of the second only if the first lacks it."""
    return (*first, *(each for each in second if each not in first))


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

    return query_all(rigs, query)


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
            state = inspect_host(Remote(rig.connect), last, roles)
            causes = find_causes(each, preview_changes(keyless(last), roles, state, rig.connect, {}), past.texts)
            values = (instance_changes(last, plan, change.name) for change in each.changes)
            return tuple(replace(cause, values=own) for cause, own in zip(causes, values, strict=True))
        except (RemoteError, *ROLE_ERRORS):
            return ()  # causes are a note, and no reason to fail

    return query_all({name: name for name, each in found.items() if each.changes}, query)


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

    `inspected_at` is the time of the inspection in seconds, if this run has held the lock since; otherwise None.
    `causes` has the settings that differ from the newest successful release, for each change.
    """

    number: int
    plan: Plan
    outlook: Preview
    state: HostState
    inspected_at: float | None
    causes: tuple[Causes, ...] = ()


def prepare_rollback(
    rig: Rig,
    roles: Sequence[Role],
    instance: str | None,
    number: int | None,
    lock: HostLock | None,
    clock: Callable[[], float],
) -> PreparedRollback:
    """Prepare the rollback of one instance or of all. Raises RemoteError, and UserError if it is not possible.

    The login for the inspection starts while the host still returns its releases. The lock, if given, is taken before
    the inspection, unless another run holds it. `clock` returns the time of the inspection.
    """
    document: Future[bytes] = Future()
    pool = ThreadPoolExecutor(2)
    inspected = pool.submit(query_host, Remote(rig.connect), program_for(roles), document.result, INSPECT_SECONDS)
    taken = pool.submit(_is_taken, lock)
    try:
        past = query_past(rig.connect, NEWEST_RELEASES, number)
        chosen = choose_release(past, rig.rig, instance, number)
        plan = release_plan(past, chosen, instance)
        ours = taken.result()
        inspected_at = clock() if ours else None
        document.set_result(inspect_request(plan, roles))
        logged_in = pool.submit(_log_in, lock if ours else None)
        state = state_of(inspected.result(), roles)
        logged_in.result()
    finally:
        document.cancel()  # a thread that still waits for it sends no request
        pool.shutdown(wait=False)
    if gone := list(missing_on_host(plan, state)):
        raise UserError(
            f"release {chosen} cannot come back: the host has no {', no '.join(gone)} any more",
            "declare the servers in the inventory, and run `herd up`, which brings what they need",
        )
    taking_part = tuple(role for role in roles if role.name in ROLLBACK_ROLES)
    would = preview_changes(plan, taking_part, state, rig.connect, {}, retry=True)
    last = past.plans.get(past.good[0]) if past.good else None
    values = (instance_changes(last, plan, change.name) if last else () for change in would.changes)
    return PreparedRollback(
        chosen, plan, would, state, inspected_at, tuple(Causes(values=own, known=False) for own in values)
    )


def _log_in(lock: HostLock | None) -> None:
    """Log in for the first change while the host is inspected. If that fails, the next login reports why."""
    with suppress(RemoteError):
        if lock:
            lock.log_in()


def _is_taken(lock: HostLock | None) -> bool:
    """Take the lock if it is free, and return whether this run holds it. Waiting for another run comes later."""
    try:
        return lock is not None and lock.take(lambda _: None, wait=0)
    except UserError:
        return False
