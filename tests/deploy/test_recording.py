"""What a run records on its host."""

from __future__ import annotations

import pytest

from tests.support.fake import run
from tests.support.rigs import KEY, changed, converged, cpu_rig, planned


@pytest.mark.parametrize("fails", [True, False])
def test_a_run_that_cannot_be_recorded_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    monkeypatch.setenv("CHAT_KEY", KEY)
    world = converged(planned(cpu_rig()), {"chat": KEY})
    plan = planned(changed(cpu_rig(), {"instances/chat/context": 4096}))
    ran = run(plan, world, broken=lambda script: fails and '"verb":"llamaherd.releases.write"' in script)
    assert ran.changed
    assert ("what was done could not be written down there: it broke" in caplog.text) is fails
