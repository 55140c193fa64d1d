"""What a run records on its host."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.fake import Alone, run
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


def written(world: list[str]) -> list[dict[str, Any]]:
    """Return the releases that a run writes on a host that is in this state, and already matches its plan."""
    ran = run(planned(cpu_rig()), world)
    given = [each["input"] for each in ran.documents if each["verb"] == "llamaherd.releases.write"]
    return [json.loads(each["release"]) for each in given]


@pytest.fixture
def _chat_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the key in this process."""
    monkeypatch.setenv("CHAT_KEY", KEY)


@pytest.mark.usefixtures("_chat_key")
def test_a_run_without_changes_settles_an_earlier_failure() -> None:
    """As after a step that ended on its own once its connection was lost."""
    world = converged(planned(cpu_rig()), {"chat": KEY})
    assert written(world) == []
    (release,) = written([*world, "unsettled\trelease 3 failed"])
    assert release["failed"] == []
    assert release["changes"] == ["confirm plan: the host matches it, after release 3 failed"]


def test_a_run_that_fails_settles_nothing() -> None:
    """There is no key in this process."""
    world = converged(planned(cpu_rig()), {"chat": KEY})
    assert all(each["failed"] for each in written([*world, "unsettled\trelease 3 failed"]))


@pytest.mark.usefixtures("_chat_key")
def test_the_host_notes_the_first_change_of_a_run() -> None:
    noted: list[str] = []

    class Turn(Alone):
        def note_changes(self) -> None:
            noted.append("changes")

    world = converged(planned(cpu_rig()), {"chat": KEY})
    run(planned(cpu_rig()), world, turn=Turn)
    assert noted == []
    run(planned(changed(cpu_rig(), {"instances/chat/context": 4096})), world, turn=Turn)
    assert noted == ["changes"]
