"""What of a host's builds, images and caches is of use, by what the host said and the plan wants."""

from __future__ import annotations

import pytest

from llamaherd.layout import BUILDS, PRESETS
from llamaherd.onhost.document import decode
from llamaherd.onhost.removal import FoundThing, Outcome, Use
from llamaherd.onhost.removal import Things as Found
from llamaherd.plan import Plan
from llamaherd.store.unused import HostItems, items_of_host
from tests.support.rigs import cpu_rig, planned

OLD, OLDER = "llama.cpp-000000000000", "llama.cpp-111111111111"
OLD_PRESET = "card-000000000000.ini"
OLD_IMAGE = f"llamaherd/engine:{OLD}-abcdef"


@pytest.fixture(scope="module")
def plan() -> Plan:
    """A plan with a build and an image of it."""
    return planned(cpu_rig())


def judged(plan: Plan, *said: str) -> HostItems:
    """Return what follows from these lines."""
    lines = [line.split(" | ") for line in said]
    return items_of_host(
        plan,
        Found(
            tuple(
                decode(FoundThing, {"kind": kind, "name": name, "size": int(size or "0")})
                for each, kind, name, size in (line for line in lines if line[0] == "thing")
            ),
            tuple(
                decode(Use, {"kind": kind, "name": name, "path": path})
                for each, kind, name, path in (line for line in lines if line[0] == "need")
            ),
            ["building"] in lines,
        ),
    )


def gone(things: HostItems) -> list[str]:
    """What can go."""
    return [each.what for each in things.removals]


def test_what_is_planned_stays(plan: Plan) -> None:
    build, image = plan.builds[0], plan.images[0]
    said = (f"thing | build | {build.id} | 7", f"thing | image | {image.tag} | 7", f"thing | image | {image.base} | 7")
    assert gone(judged(plan, *said, f"thing | work | {build.id} | 7")) == []
    assert judged(plan, *said).things[0].needed_by == ("plan",)


def test_what_nobody_needs_goes_and_is_counted(plan: Plan) -> None:
    things = judged(
        plan,
        f"thing | build | {OLD} | 30",
        f"thing | image | {OLD_IMAGE} | 40",
        f"thing | preset | {OLD_PRESET} | 50",
        f"thing | source | {'12' * 32} | 5",
        "thing | work | left | 6",
        "thing | packages | apt | 700",
    )
    assert gone(things) == [
        f"build {OLD}",
        f"image {OLD_IMAGE}",
        f"preset {OLD_PRESET}",
        f"source {'12' * 32}",
        "work left",
        "packages apt",
    ]
    assert things.frees == things.as_json()["frees"] == 831


@pytest.mark.parametrize(
    "need",
    [
        f"unit | mine.service | {OLD}/bin/llama-server -m x",
        f"process | 12 sh | {OLD}",
        f"release | 12 | {OLD}",
        f"kept | llama-chat | {OLD}",
        f"file | /srv/all.sh | {BUILDS}",
    ],
)
def test_what_somebody_needs_stays(plan: Plan, need: str) -> None:
    things = judged(plan, f"thing | build | {OLD} | 30", f"thing | build | {OLDER} | 30", f"need | {need}")
    kind, name, thing = need.split(" | ")
    assert things.things[0].needed_by == (f"{kind} {name}",)
    assert gone(things) == ([] if thing == str(BUILDS) else [f"build {OLDER}"])


def test_a_preset_file_that_is_planned_or_named_stays() -> None:
    """A unit may read more after its file; who is given their folder may read each."""
    swapping = {"engine": "main", "context": 4096, "port": 8090, "group": "card"}
    two = {"instances/one": swapping | {"model": "gemma"}, "instances/two": swapping | {"model": "moe"}}
    planned_group = planned(cpu_rig(), two)
    (preset,) = [each.preset for each in planned_group.instances if each.preset]
    said = [f"thing | preset | {name} | 7" for name in (preset.path.rpartition("/")[2], OLD_PRESET)]
    assert gone(judged(planned_group, *said)) == [f"preset {OLD_PRESET}"]
    assert gone(judged(planned_group, *said, f"need | kept | llama-card | {OLD_PRESET} --models-max 1")) == []
    assert gone(judged(planned_group, *said, f"need | file | /srv/all.sh | {PRESETS}")) == []
    assert gone(judged(planned_group, *said, f"need | file | /srv/all.sh | {BUILDS}")) == [f"preset {OLD_PRESET}"]


def test_an_image_in_which_a_container_runs_stays(plan: Plan) -> None:
    said = f"thing | image | {OLD_IMAGE} | 30", f"need | container | llama-chat | {OLD_IMAGE}"
    assert gone(judged(plan, *said)) == []


def test_what_builds_work_with_stays_while_one_runs(plan: Plan) -> None:
    said = (f"thing | source | {'12' * 32} | 5", f"thing | work | {OLD} | 6", f"thing | build | {OLD} | 7")
    assert gone(judged(plan, *said, "building")) == [f"build {OLD}"]


def test_what_takes_no_room_is_not_worth_a_word(plan: Plan) -> None:
    assert gone(judged(plan, "thing | packages | apt | 0", "thing | work | x | ")) == []


def test_what_became_of_removals() -> None:
    assert Outcome(("build a",)).ok
    assert not Outcome(("build a",), {"build b": "unit c needs it"}).ok
    assert not Outcome(busy="").ok
