"""A host without python3: reported before a run, and mended before anything else in one."""

from __future__ import annotations

import pytest

from llamaherd.host.program import packed_program
from llamaherd.host.remote import NoPythonError, Remote
from llamaherd.inventory.schema import Connect, Rig
from llamaherd.pipeline import inspection as inspecting
from llamaherd.pipeline import preview
from llamaherd.pipeline.inspection import NO_PYTHON_NOTE, install_script, python_change
from llamaherd.pipeline.preview import run_preflight
from llamaherd.plan import Plan
from roles import ROLES
from tests.support.fake import Alone, is_question, run
from tests.support.rigs import KEY, changed, converged, cpu_rig, planned


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("CHAT_KEY", KEY)
    return planned(cpu_rig())


def no_python(remote: Remote, *_: object) -> object:
    raise NoPythonError(remote.connect, "debian-13")


def test_preflight_reports_it_as_a_note(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspecting, "query_host", no_python)
    found = run_preflight(plan, ROLES, Remote(Connect(host="box")))
    (row,) = found.rows
    fix = "run `herd up`: it installs python3 first"
    assert (row.what, row.found, row.verdict, row.help) == ("python3", "missing", "note", fix)


def test_a_plan_has_one_change(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "query_host", no_python)
    rig = Rig.model_validate(changed(cpu_rig(), {}))
    found = preview.Hosts({"box": rig}, packed_program()).outlooks({"box": (rig, plan)}, ROLES)
    assert found["box"].changes == (python_change(),)
    assert found["box"].notes == (NO_PYTHON_NOTE,)
    assert str(python_change()) == (
        "install package python3: the host has none, and all that llamaherd does there needs it"
    )


def test_a_run_installs_it_once_and_continues(plan: Plan) -> None:
    ran = run(plan, converged(plan, {"chat": KEY}), python=False)
    assert (ran.changed, ran.failed) == ([], False)
    steps = [script for script in ran.scripts if not is_question(script)]
    assert [install_script() in script for script in steps] == [True]


class NeedsPython(Alone):
    """A lock of a host that lacks python3 when it is taken first."""

    def take(self, *_: object, **__: object) -> bool:
        """Raise NoPythonError."""
        raise NoPythonError(Connect(host="box"), "debian-13")


def test_a_run_that_locks_the_host_first_installs_it_before(plan: Plan) -> None:
    ran = run(plan, converged(plan, {"chat": KEY}), python=False, turn=NeedsPython)
    assert (ran.changed, ran.failed) == ([], False)
    steps = [script for script in ran.scripts if not is_question(script)]
    assert [install_script() in script for script in steps] == [True]


def test_a_run_ends_with_a_sentence_where_it_cannot_be_installed(plan: Plan) -> None:
    ran = run(plan, converged(plan, {"chat": KEY}), python=False, broken=lambda script: "apt_get" in script)
    assert ran.failed
    assert ran.changed == []
