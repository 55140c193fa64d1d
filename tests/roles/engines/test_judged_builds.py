"""What compares caches is built only where an instance is to be judged by it, and changes no other build."""

from __future__ import annotations

from llamaherd.plan import BuildPlan
from roles.engines import compile_input
from tests.support.rigs import changed, cpu_rig, gpu_rig, planned

WORKER = "instances/worker/"
QUALITY: dict[str, dict[str, float]] = {"quality": {}}


def builds(declared: dict[str, object]) -> dict[str, BuildPlan]:
    return {build.engine: build for build in planned(declared).builds}


def test_it_is_built_beside_the_server_of_that_engine() -> None:
    before, after = builds(gpu_rig()), builds(changed(gpu_rig(), {WORKER + "kv": "q8_0", WORKER + "tune": QUALITY}))
    assert after["ik"].targets == (*before["ik"].targets, "llama-perplexity")
    assert after["ik"].id != before["ik"].id
    assert compile_input(after["ik"]).targets == after["ik"].targets
    assert after["main"] == before["main"]


def test_tune_without_quality_builds_nothing_else() -> None:
    assert builds(changed(gpu_rig(), {WORKER + "tune": {"for": "decode"}})) == builds(gpu_rig())


def test_limits_are_not_what_a_build_is_known_by() -> None:
    one, other = (
        builds(changed(cpu_rig(), {"instances/chat/tune": {"quality": {"kld": kld}}})) for kld in (0.005, 0.02)
    )
    assert one == other
    assert one != builds(cpu_rig())
