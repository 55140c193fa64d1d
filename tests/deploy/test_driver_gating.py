"""What becomes of a driver in a run: what is kept before it, what lets it stay, and what takes it back.

This machine is the rig; its servers are played at exact speeds, and its releases are told. What real hosts do is in
tests/box/gpus/test_driver_gate.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest
from pyinfra.api import Config, Host, Inventory, State
from pyinfra.api.connect import connect_all
from pyinfra.api.state import StateOperationMeta

from llamaherd.deploy import commands, gates
from llamaherd.deploy.gates import JudgeDriverCommand, MeasureBeforeCommand
from llamaherd.deploy.run_state import noted_failures
from llamaherd.diagnostics.findings import UserError
from llamaherd.host import program
from llamaherd.measure.results.result import Start
from llamaherd.measure.trials import restarts
from llamaherd.measure.trials.host import NotStartedError
from llamaherd.measure.trials.restarts import BootReading, parse_boot_reading
from llamaherd.measure.trials.units import Arm, ArmName
from llamaherd.onhost.servers import TrialsInput
from llamaherd.pipeline.release import Past
from llamaherd.plan import InstancePlan
from llamaherd.role.changes import JudgedSince, MeasuredBefore, RebootHost, RunVerb
from tests.bench.played_arms import Played
from tests.support.played_role import played, write_played_role
from tests.support.rigs import cpu_rig, planned
from tests.support.stores import needs_root

pytestmark = [needs_root, pytest.mark.usefixtures("starts_processes")]

GATES = {"instances/chat/gate": {"decode": "-3%", "prefill": "-5%"}}
PLAN = planned(cpu_rig(), GATES)
BEFORE, AFTER = "580.105.08", "590.48.01"
Arms, Keys = Mapping[ArmName, Arm], Mapping[ArmName, str | None]


@dataclass
class Rig:
    """How fast its servers are, and how they fail."""

    slower: float = 0.0
    error: UserError | None = None
    asked: int = 0
    past: Past = field(default_factory=lambda: Past({}, {1: PLAN}))


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    told = Rig()

    class OnIt(Played):
        """One connection to it."""

        def __init__(
            self,
            _connect: object,
            given: TrialsInput,
            arms: Mapping[ArmName, Arm],
            keys: Mapping[ArmName, str | None],
            *_: Any,
        ) -> None:
            told.asked += 1
            super().__init__(told.asked, arm_a=told.slower)
            assert (list(arms), keys) == (["A"], {"A": "a-key"})
            assert [each.service for each in given.stops] == ["llama-chat"]

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            assert self.running is None

        def start(self, name: ArmName) -> Start:
            if told.error:
                raise told.error
            return super().start(name)

    monkeypatch.setattr(restarts, "ArmsHost", OnIt)
    monkeypatch.setattr(gates, "ask_past", lambda *_, **__: told.past)
    monkeypatch.setattr(commands, "ASK_SECONDS", 0.01)
    monkeypatch.setenv("CHAT_KEY", "a-key")
    return told


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """This machine as a rig of pyinfra's, in the middle of an operation."""
    monkeypatch.setattr(program, "PROGRAMS", tmp_path / "onhost")
    write_played_role(tmp_path)
    data = {"rig_connect": {"host": "@local"}, "rig_origin": {}, "plan": PLAN.model_dump(mode="json")}
    inventory = Inventory((["@llamaherd/one"], {**data, "inventory": str(tmp_path / "box.yaml")}))
    state = State(inventory, Config())
    connect_all(state)
    (host,) = inventory
    meta = StateOperationMeta((0,))
    meta.names.add("driver")
    state.op_meta["this"] = meta
    host.executing_op_hash = "this"
    yield host
    host.disconnect()


def chat() -> InstancePlan:
    return next(each for each in PLAN.instances if each.name == "chat")


def measured(here: Host, tmp_path: Path, spec: str = "") -> str:
    """What a host keeps of its server before its driver is changed."""
    kept = tmp_path / "reading"
    kept.write_text("of an earlier run")

    def keep(text: str) -> RunVerb:
        kept.unlink()
        return played(f"{kept} {text}") if text else played()

    before = MeasuredBefore(((chat(), spec or chat().spec),), BEFORE, keep)
    assert MeasureBeforeCommand(before).execute(here.state, here, {"_sudo": True})
    return kept.read_text() if kept.exists() else ""


def stays(here: Host, reading: str) -> bool:
    """Whether a driver stays. Going back is told by the error that the host ends with."""

    def back(why: str) -> RebootHost:
        return RebootHost(ask=played(), back=played(), after=played(fails=f"went back: {why}"))

    since = JudgedSince(AFTER, BEFORE, reading, played(), back)
    return JudgeDriverCommand(since).execute(here.state, here, {"_sudo": True})


def test_one_that_is_as_fast_stays(here: Host, rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    kept = parse_boot_reading(measured(here, tmp_path))
    assert kept
    assert [(each.instance, each.spec) for each in kept.servers] == [("chat", chat().spec)]
    assert kept.servers[0].cells[0].condition.kind == "code"
    assert stays(here, kept.model_dump_json())
    assert rig.asked == 2
    assert caplog.text.count("may be lost: ") == 3
    assert noted_failures(here) == []


def test_one_that_is_slower_goes_back(here: Host, rig: Rig, tmp_path: Path) -> None:
    reading = measured(here, tmp_path)
    rig.slower = 0.25
    assert not stays(here, reading)
    (why,) = noted_failures(here)
    assert why.startswith("driver: went back: chat is slower by it: writing code -2")
    assert "3 starts), and -3.0% may be lost, writing prose -2" in why
    assert "\n" not in why


def test_one_that_a_server_does_not_start_by_goes_back(here: Host, rig: Rig, tmp_path: Path) -> None:
    reading = measured(here, tmp_path)
    rig.error = NotStartedError("what serves as chat", "CUDA error:\tno kernel image")
    assert not stays(here, reading)
    assert noted_failures(here) == ["driver: went back: chat does not start by it: CUDA error: no kernel image"]


def test_what_cannot_be_measured_again_is_not_judged_yet(here: Host, rig: Rig, tmp_path: Path) -> None:
    reading = measured(here, tmp_path)
    rig.error = UserError("another measurement goes on", "wait for it")
    assert not stays(here, reading)
    told = f"driver: driver {AFTER} is not judged yet: another measurement goes on\n  help: wait for it"
    assert noted_failures(here) == [told]


def test_what_cannot_be_measured_before_is_said_and_what_was_kept_goes(
    here: Host, rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert measured(here, tmp_path, spec="of another") == ""
    assert "chat does not judge the driver: nothing is known here of what serves, of another" in caplog.text
    rig.error = NotStartedError("what serves as chat", "no room")
    assert measured(here, tmp_path) == ""
    assert "chat does not judge the driver: what serves as chat does not start: no room" in caplog.text


@pytest.mark.parametrize("case", ["nonsense", "of another driver", "by other prompts"])
def test_without_a_reading_it_stays(
    case: str, here: Host, rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    reading = parse_boot_reading(measured(here, tmp_path))
    assert isinstance(reading, BootReading)
    wrong = {"driver": "570.1.1"} if case == "of another driver" else {"suite": "0" * 64}
    text = "nonsense" if case == "nonsense" else reading.model_copy(update=wrong).model_dump_json()
    rig.slower = 0.5
    assert stays(here, text)
    assert rig.asked == 1
    assert f"driver {AFTER} stays unjudged: what was measured before it is gone, or is no such" in caplog.text


def test_a_server_that_is_another_one_by_now_judges_nothing(here: Host, rig: Rig, tmp_path: Path) -> None:
    reading = measured(here, tmp_path)
    rig.slower, rig.past = 0.5, Past({}, {1: planned(cpu_rig(), {"instances/chat/context": 4096})})
    assert stays(here, reading)
    assert rig.asked == 1
