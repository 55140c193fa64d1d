"""What is to be done to a host, from state alone: nothing where it is as planned, and the right thing wherever not."""

from __future__ import annotations

import pytest

from llamaherd.host.state import HostState
from llamaherd.onhost.servers import ContainerState, UnitState
from llamaherd.plan import Plan
from roles.base import base_changes, package_changes
from roles.base.onhost import UserFound
from roles.engines import build_changes
from roles.models import begin_changes, model_changes
from roles.serve.plan import image_changes
from roles.serve.removal import removal_changes
from roles.serve.state import ServeState
from tests.support.drifts import (
    CPU,
    GPU,
    KEYED,
    WATCHER,
    Drift,
    edit,
    folder,
    having,
    host,
    lacking,
    nowhere,
    seen_of,
    switch,
    together,
)
from tests.support.ours import refusals, sends
from tests.support.rigs import RUN, SHA, WRITTEN
from tests.support.states import edited


def steps_of(plan: Plan, seen: HostState) -> dict[str, int]:
    """How many steps each role would take, where it takes any."""
    steps: dict[str, int] = {
        "packages": len(package_changes(plan, seen)),
        "base": len(list(base_changes(plan, seen))),
        "removals": len(removal_changes(plan, seen)),
    }
    steps |= {build.engine: len(build_changes(build, seen)) for build in plan.builds}
    steps |= {"begin": len(begin_changes(plan, seen, nowhere, WATCHER))}
    steps |= {"models": len(model_changes(plan, seen, nowhere, WATCHER))}
    steps |= {f"image {n}": len(image_changes(image, seen)) for n, image in enumerate(plan.images)}
    steps |= {instance.name: len(switch(instance, seen)) for instance in plan.instances}
    return {role: count for role, count in steps.items() if count}


@pytest.mark.parametrize("plan", [CPU, GPU, KEYED], ids=["cpu", "gpu", "keyed"])
def test_nothing_is_done_to_a_host_that_is_as_planned(plan: Plan) -> None:
    assert steps_of(plan, seen_of(plan)) == {}
    assert refusals(plan, seen_of(plan), {}) == []
    assert sends(plan, seen_of(plan)) == []


@pytest.mark.parametrize(
    ("plan", "steps"),
    [
        (CPU, {"packages": 1, "base": 3, "main": 3, "models": 3, "image 0": 1, "chat": 1, "drafter": 1}),
        (
            GPU,
            {"packages": 1, "base": 3, "main": 1, "ik": 1, "begin": 1, "models": 3, "image 0": 1}
            | {"boxed": 1, "reasoner": 1, "small": 1, "worker": 1},
        ),
    ],
    ids=["cpu", "gpu"],
)
def test_all_is_done_to_a_virgin_host(plan: Plan, steps: dict[str, int]) -> None:
    assert steps_of(plan, HostState()) == steps


# What is seen otherwise than planned, and the roles that act on it, each with as many steps.
DRIFTS: dict[str, tuple[Drift, dict[str, int]]] = {
    "a package is gone": (lambda s: edited(s, packages=s.system.packages - {"cmake"}), {"packages": 1}),
    "an account is gone": (lacking(users="llama"), {"base": 1}),
    "an account is in the group of Docker": (
        having(users={"llama-chat": UserFound("/usr/sbin/nologin", ("llama-chat", "docker"))}),
        {"base": 1},
    ),
    "an account's own group is another": (
        having(users={"llama-chat": UserFound("/usr/sbin/nologin", ("sudo",))}),
        {"base": 1},
    ),
    "an account can log in": (
        having(users={"llama-build": UserFound("/bin/bash", ("llama-build",))}),
        {"base": 1},
    ),
    "an account takes a password": (host(passwords={"llama-chat"}), {"base": 1}),
    "an account of a person's takes a password": (
        together(having(users={"llama": UserFound("", ())}), host(passwords={"llama"})),
        {},
    ),
    "an account of ours is a person's": (having(users={"llama": UserFound("", ())}), {}),
    "the folders are gone": (host(folders={}), {"base": 1}),
    "all may write to the folder of keys": (folder("/etc/llamaherd/keys", 0o777, "root"), {"base": 1}),
    "all may see which keys there are": (folder("/etc/llamaherd/keys", 0o755, "root"), {"base": 1}),
    "nobody may pass the folder above keys": (folder("/etc/llamaherd", 0o700, "root"), {"base": 1}),
    "programs lie in a folder of somebody else's": (folder("/opt/llamaherd/libexec", 0o755, "tom"), {"base": 1}),
    "a model may be read by root alone": (host(closed=(CPU.models[0].path,)), {"base": 1}),
    "a build was touched": (having(builds={CPU.builds[0].id: "intact"}), {"main": 1}),
    "a program was replaced, its source is there": (
        having(builds={CPU.builds[0].id: "damaged"}),
        {"main": 1},
    ),
    "a program was replaced, its source is gone": (
        together(having(builds={CPU.builds[0].id: "damaged"}), host(sources={})),
        {"main": 3},
    ),
    "a shared file was edited": (lambda s: edit(s, "/opt/llamaherd/libexec/wait-healthy", sha256="0"), {"base": 1}),
    "a shared file lost its mode": (lambda s: edit(s, "/opt/llamaherd/libexec/wait-healthy", mode="644"), {"base": 1}),
    "a program was edited": (host(fetcher="0"), {"base": 1}),
    "a build is gone, its source is there": (host(builds={}), {"main": 1}),
    "a build and its source are gone": (together(host(builds={}), host(sources={})), {"main": 3}),
    "a build runs": (having(builds={CPU.builds[0].id: "building"}), {"main": 1}),
    "a build has ended, not let in yet": (having(builds={CPU.builds[0].id: "built"}), {"main": 1}),
    "a source that a build no longer needs": (host(sources={}), {}),
    "a model was cut": (having(stored={CPU.models[0].folder: {"gemma.gguf": (7, WRITTEN)}}), {"models": 2}),
    "a model is gone": (having(stored={CPU.models[0].folder: {}}), {"models": 2}),
    "a model was written to": (
        having(stored={CPU.models[1].folder: {"moe.gguf": (253113024, WRITTEN + 1)}}),
        {"models": 2},
    ),
    "a model was verified as another": (
        having(verified={CPU.models[1].folder: {"moe.gguf": (253113024, WRITTEN, SHA)}}),
        {"models": 2},
    ),
    "a model was never verified": (host(verified={}), {"models": 3}),
    "an image is gone": (host(images={}), {"image 0": 1}),
    "somebody else's image": (lambda s: edited(s, images={*s.servers.images, "llamaherd/engine:other"}), {}),
    "a unit that was removed from the inventory": (
        having(units={"llama-old": UnitState("active", "enabled", False, RUN, "0")}),
        {"removals": 1},
    ),
    "a project that was removed from the inventory": (
        lambda s: edited(s, projects={*ServeState.of(s).projects, "old"}),
        {"removals": 1},
    ),
    "a container whose project was deleted by hand": (
        having(containers={"llama-old": ContainerState("running", "healthy", RUN, "0")}),
        {"removals": 1},
    ),
}


@pytest.mark.parametrize("case", DRIFTS)
def test_what_is_done_about_a_drift(case: str) -> None:
    drift, steps = DRIFTS[case]
    assert steps_of(CPU, seen_of(CPU, drift)) == steps
