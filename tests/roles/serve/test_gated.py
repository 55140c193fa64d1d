"""Which changes a gate measures first, and what its host remembers of one that was too slow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Connect
from llamaherd.layout import REFUSED
from llamaherd.onhost.servers import Refused, ServingState, UnitState
from llamaherd.plan import InstancePlan
from llamaherd.role.changes import Change
from llamaherd.role.role import Run
from roles.serve import tasks
from roles.serve.onhost.model import RefusalInput
from roles.serve.onhost.removal import refuse
from roles.serve.transaction import attempt_identity, raise_if_refused
from tests.support.ours import parse_state
from tests.support.played_host import PlayedHost
from tests.support.rigs import KEY, converged, cpu_rig, planned
from tests.support.states import host_with, updated

GATE = {"instances/chat/gate": {"decode": "-3%"}}
RUN = Run(connect=Connect(host="duo.lan"), executing=False)


def changes(tmp_path: Path, keys: Mapping[str, object], *, run: Run = RUN, serving: str = "active") -> list[Change]:
    """What is done about `chat`, which runs as it was planned without any of these keys."""
    key = tmp_path / "key"
    key.write_text(f"{KEY}\n")
    was = planned(cpu_rig(), {"instances/chat/api_key": {"file": str(key)}})
    state = parse_state(converged(was, {"chat": KEY}))
    chat = state.servers.units["llama-chat"]
    state = updated(
        state, units={"llama-chat": UnitState(serving, chat.enabled, chat.needs_reload, chat.run, chat.spec)}
    )
    plan = planned(cpu_rig(), {"instances/chat/api_key": {"file": str(key)}, **keys})
    task = next(each for each in tasks(plan) if each.name.startswith("chat "))
    return list(task.changes(state, run))


def test_a_change_of_a_gated_server_is_measured_first(tmp_path: Path) -> None:
    (change,) = changes(tmp_path, {**GATE, "instances/chat/ubatch": 64})
    assert change.gated
    assert change.gated.instance.name == "chat"
    assert change.away
    assert "and for up to 20 min 00 s while its gate measures both versions" in str(change.away)


def test_the_one_that_is_held_against_is_what_runs(tmp_path: Path) -> None:
    (change,) = changes(tmp_path, {**GATE, "instances/chat/ubatch": 64})
    was = next(each for each in planned(cpu_rig()).instances if each.name == "chat")
    assert change.gated
    assert change.gated.was
    assert change.gated.was != change.gated.instance.spec
    assert was.gate is None


def test_a_gate_alone_changes_nothing(tmp_path: Path) -> None:
    assert changes(tmp_path, GATE) == []


def test_what_it_says_is_judged_where_its_key_changes_as_well(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("another\n")
    keys: dict[str, object] = {"instances/chat/kv": "q8_0", "instances/chat/api_key": {"file": str(tmp_path / "new")}}
    both = {"instances/chat/gate": {"decode": "-3%", "kld": 0.02}}
    (change,) = changes(tmp_path, {**both, **keys})
    assert change.gated
    assert not change.gated.speed
    (change,) = changes(tmp_path, {**both, "instances/chat/kv": "q8_0"})
    assert change.gated
    assert change.gated.speed


def test_how_it_is_compared_is_planned_where_its_engine_has_the_program() -> None:
    with_gate = chat({"instances/chat/gate": {"kld": 0.02}})
    assert with_gate.gate
    assert (with_gate.gate.kld, with_gate.gate.decode) == (0.02, None)
    assert with_gate.divergence
    assert with_gate.divergence.tool == f"{with_gate.build_folder}/bin/llama-perplexity"
    assert {"--model", "--cache-type-k"} <= set(with_gate.divergence.says)
    assert "--threads" in with_gate.divergence.more
    assert chat({}).divergence is None
    # By another one's gate its engine has it as well: what serves today can be held against later.
    assert chat({"instances/chat/tune": {"quality": {}}}).divergence


@pytest.mark.parametrize("case", ["no gate", "by --retry", "it does not serve", "its key changes as well"])
def test_nothing_is_measured(case: str, tmp_path: Path) -> None:
    gate = {} if case == "no gate" else GATE
    run = replace(RUN, retry=True) if case == "by --retry" else RUN
    serving = "failed" if case == "it does not serve" else "active"
    keys: dict[str, object] = {**gate, "instances/chat/ubatch": 64}
    if case == "its key changes as well":
        (tmp_path / "new").write_text("another\n")
        keys["instances/chat/api_key"] = {"file": str(tmp_path / "new")}
    found = changes(tmp_path, keys, run=run, serving=serving)
    assert found
    assert not any(each.gated for each in found)


def chat(keys: dict[str, object]) -> InstancePlan:
    return next(each for each in planned(cpu_rig(), keys).instances if each.name == "chat")


def test_its_host_remembers_it_until_something_is_said_otherwise(tmp_path: Path) -> None:
    (change,) = changes(tmp_path, {**GATE, "instances/chat/ubatch": 64})
    assert change.gated
    why = "it is slower than the running server: writing code -5.4% (-6.3% to -4.6%, 5 blocks), and -3.0% may be lost"
    how, host = change.gated.refused(why), PlayedHost({})
    assert how.verb == "serve.removal.refuse"
    assert how.given == RefusalInput("llama-chat", attempt_identity(change.gated.instance), why)
    refuse(how.given, host)
    what, when, said = host.files[str(REFUSED / "llama-chat")].text.rstrip("\n").split("\t")
    assert said == why
    serving = ServingState(refused=Refused(what, when, said))
    state = host_with(
        units={"llama-chat": UnitState("active", "enabled", False, "run", "was")}, serving={"llama-chat": serving}
    )
    again = change.gated.instance
    with pytest.raises(UserError, match=r"was tried on 20.*writing code -5.4%"):
        raise_if_refused(again, state, retry=False)
    raise_if_refused(again, state, retry=True)
    raise_if_refused(again.model_copy(update={"gate": None}), state, retry=False)


def test_what_was_tried_without_a_gate_is_known_by_the_same_name_as_before() -> None:
    assert attempt_identity(chat({})) == attempt_identity(chat({"instances/chat/drain": 5}))
    assert (
        len(
            {attempt_identity(chat({"instances/chat/gate": {"decode": each}})) for each in ("-3%", "-4%")}
            | {attempt_identity(chat({}))}
        )
        == 3
    )


def test_another_limit_of_what_it_says_is_another_try() -> None:
    gates: list[dict[str, object]] = [{"decode": "-3%", "kld": 0.02}, {"decode": "-3%", "kld": 0.03}, {"kld": 0.02}]
    assert len({attempt_identity(chat({"instances/chat/gate": each})) for each in gates}) == 3
