"""A trial takes an engine by its name: a release that no declared instance uses is planned, and is what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from llamaherd.inventory.exact_edits import parse_setting
from llamaherd.lock import dumps
from llamaherd.measure.trials.pair import Pair, missing_for_trial, plan_pair, to_install, variant_result
from roles import ROLES
from tests.support.ours import parse_state
from tests.support.releases import TAG, release_lock
from tests.support.rigs import KEY, changed, converged, cpu_rig, planned


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """A rig with a release that no instance uses, and the lock."""
    rig = changed(cpu_rig(), {"engines/prebuilt": {"kind": "llama.cpp", "release": TAG}})
    (tmp_path / "box.yaml").write_text(yaml.safe_dump(rig))
    (tmp_path / "herd.lock").write_text(dumps(release_lock().model_copy(update={"models": ()})))
    return tmp_path / "box.yaml"


def compared(inventory: Path, *settings: str) -> Pair:
    words = [parse_setting(each) for each in settings]
    return plan_pair(inventory, ROLES, "box/chat", None, words, lambda _: None)


def test_what_only_b_needs_can_be_installed(inventory: Path) -> None:
    two = compared(inventory, "engine=prebuilt")
    (release,) = (build for build in two.plan_b.builds if build.release)
    assert two.b.instance.server.program == f"{release.folder}/bin/llama-server"
    assert not any(build.release for build in two.plan_a.builds)
    assert {each.id for each in two.needed.builds} == {each.id for each in (*two.plan_a.builds, release)}
    there = parse_state(converged(planned(cpu_rig()), {"chat": KEY, "drafter": KEY}))
    assert to_install(two, there) == (f"build {release.id}",)
    assert str(missing_for_trial(two, there)).startswith(f"the host has no build {release.id}")
    # A host without the declared server must be deployed first.
    assert to_install(two, parse_state([])) == ()
    # The results name what was measured.
    result = variant_result("box", two.plan_b, two.b, (), session="s", began="2026-11-26T10:00:00Z", declared=False)
    assert result.provenance.engine.options == (f"release={TAG}",)


def test_a_host_that_has_all_of_it_needs_nothing(inventory: Path) -> None:
    two = compared(inventory, "batch=512")
    there = parse_state(converged(planned(cpu_rig()), {"chat": KEY, "drafter": KEY}))
    assert to_install(two, there) == ()
    assert missing_for_trial(two, there) is None
