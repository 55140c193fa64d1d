"""Back to a release: which one, the plan that it was, and what of it is not on the host any more. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from llamaherd.diagnostics.findings import UserError
from llamaherd.history.release import Past
from llamaherd.host.state import HostState
from llamaherd.pipeline.only import needed
from llamaherd.plan import InstancePlan, Only, Plan
from llamaherd.store.missing import missing_files

ROLES = ("base", "serve")
"""Those that take part: engines, models and drivers stay as they are."""

NEWEST = 10
"""Releases that came out well whose plans are looked at, for one in which an instance was another."""

_HISTORY = "`herd history` lists what there is"

T = TypeVar("T")


def to_release(past: Past, rig: str, instance: str | None, number: int | None) -> int:
    """The number of the release to go back to: of those that came out well, the one before the newest.

    With an instance, the newest in which that was another. Raises UserError where there is none.
    """
    if number is not None:
        if number not in past.releases or number not in past.plans:
            raise UserError(f"{rig} has no release {number}", _HISTORY)
        return number
    if not past.good:
        raise UserError(f"{rig} has no release to go back to", "each `herd up` that changes something leaves one")
    current, *earlier = past.good
    for each in earlier:
        if each in past.plans and (instance is None or _spec(past, each, instance) != _spec(past, current, instance)):
            return each
    what = f" in which `{instance}` was another" if instance else ""
    raise UserError(f"{rig} has no release before {current}{what}", _HISTORY)


def plan_of(past: Past, number: int, instance: str | None) -> Plan:
    """The plan of a release; with an instance, the newest plan with that instance as it was then.

    Then it is for that instance alone, as it is for a part where no more is known of the release. Keys stay as they are
    on the host: none is asked for. Raises UserError where the instance was none then.
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
                "builds": _both(now.builds, then.builds),
                "models": _both(now.models, then.models),
                "images": _both(now.images, then.images),
            }
        )
    )
    return both.model_copy(update={"only": Only(instances=(instance,), needs=needed(both, both, (instance,)))})


def lacks(plan: Plan, state: HostState) -> Iterator[str]:
    """What the instances of a plan need, and the host has no more."""
    used = {instance.build for instance in plan.chosen}
    folders = {folder for instance in plan.chosen for folder in instance.server.folders}
    images = {instance.server.image for instance in plan.chosen if instance.backend == "compose"}
    yield from (f"build {each.id}" for each in plan.builds if each.id in used and state.builds.get(each.id) != "done")
    yield from (f"key of {each.name}" for each in plan.chosen if each.key_file and each.key_file not in state.files)
    yield from (f"image {each.tag}" for each in plan.images if each.tag in images and each.tag not in state.images)
    for model in plan.models:
        if model.folder in folders and missing_files(model, state):
            yield f"model {model.name} in {model.folder}"


def _spec(past: Past, number: int, instance: str) -> str | None:
    plan = past.plans.get(number)
    return next((each.spec for each in plan.instances if each.name == instance), None) if plan else None


def _both(first: Sequence[T], second: Sequence[T]) -> tuple[T, ...]:
    return (*first, *(each for each in second if each not in first))


def keyless(plan: Plan) -> Plan:
    """A plan with no place on this machine that a key would be read from."""

    def without(instance: InstancePlan) -> InstancePlan:
        endpoint = instance.endpoint.model_copy(update={"key": None})
        return instance.model_copy(update={"server": instance.server.model_copy(update={"endpoint": endpoint})})

    return plan.model_copy(update={"instances": tuple(map(without, plan.instances))})
