"""What an instance cannot be started without."""

from __future__ import annotations

from roles.serve.ports import lacks
from tests.support.rigs import cpu_rig, planned
from tests.support.states import host_with


def test_what_an_instance_lacks_is_named() -> None:
    plan = planned(cpu_rig())
    chat, drafter = plan.instances
    builds = {build.id: "done" for build in plan.builds}
    everything = host_with(builds=builds, images={image.tag for image in plan.images})
    assert lacks(chat, plan, everything, ()) is lacks(drafter, plan, everything, ()) is None
    assert lacks(chat, plan, everything, {"gemma", "moe"}) == f"its model `{chat.model}` is not in the store"
    assert lacks(chat, plan, everything, {drafter.model}) is None
    assert "is not built" in (lacks(chat, plan, host_with(images=everything.servers.images), ()) or "")
    assert lacks(chat, plan, host_with(builds=everything.engines.builds), ()) is None
    assert "is not made" in (lacks(drafter, plan, host_with(builds=everything.engines.builds), ()) or "")
