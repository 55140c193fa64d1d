"""What a Compose file says, beside what is said of it without reading it."""

from __future__ import annotations

import pytest

from llamaherd.plan.backends import container_limits, render_project
from roles.serve.state import declared_limits
from tests.support.rigs import cpu_rig, planned

(DRAFTER,) = (each.server for each in planned(cpu_rig()).instances if each.backend == "compose")


@pytest.mark.parametrize("cpus", [None, "3", "0-3", "0,2"])
def test_a_container_is_held_to_what_its_file_says(cpus: str | None) -> None:
    server = DRAFTER.model_copy(update={"limits": DRAFTER.limits.model_copy(update={"cpus": cpus})})
    assert container_limits(server) == declared_limits(render_project(server, "0" * 12).text)
