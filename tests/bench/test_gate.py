"""A gate, by played servers: how often it lets in what is too slow, and keeps out what is not."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.measure.results.comparison import compare_results
from llamaherd.measure.trials.blocks import Blocks, trial_conditions
from llamaherd.measure.trials.gate import GateRow, gate_cells, gate_left, gate_pair, gate_rows, has_same_speed
from llamaherd.measure.trials.pair import JournalPair, finished_results
from llamaherd.plan import GatePlan
from tests.bench.played_arms import Played, begun
from tests.support.rigs import cpu_rig, planned
from tests.support.sample import drawn

USUAL = GatePlan(decode=0.03, prefill=0.05, seconds=1200)
ASKED = trial_conditions(gate_cells(USUAL), 8192)
PLAN = planned(cpu_rig())
HERE = Connect(host=LOCAL)


def verdicts(rows: tuple[GateRow, ...]) -> set[str]:
    return {row.verdict for row in rows}


def gated(folder: Path, servers: Played, budget: float = 36_000, gate: GatePlan = USUAL) -> tuple[GateRow, ...]:
    pair = JournalPair(folder / "results", begun("A", ASKED, "s"), begun("B", ASKED, "s"))

    try:
        Blocks(
            servers, pair.journals, ASKED, pair.session, budget, left=lambda found: gate_left(found, gate, ASKED)
        ).measured()
        found = compare_results(pair.journals["A"].result, pair.journals["B"].result)
        pair.finish("2026-11-23T21:00:00Z")
    finally:
        pair.close()
    return gate_rows(found, gate, spent=True)


@pytest.mark.parametrize("seed", range(10))
def test_five_percent_slower_is_kept_out(seed: int, tmp_path: Path) -> None:
    servers = Played(seed, slower=0.05)
    assert "slower" in verdicts(gated(tmp_path, servers))
    assert len(servers.starts) <= 24


@pytest.mark.parametrize("seed", drawn(range(20)))
def test_an_equal_one_is_let_in_soon(seed: int, tmp_path: Path) -> None:
    servers = Played(seed)
    assert verdicts(gated(tmp_path, servers)) == {"held"}
    assert len(servers.starts) <= 12


@pytest.mark.parametrize("seed", drawn(range(20)))
def test_an_equal_one_is_let_in_by_a_noisy_host(seed: int, tmp_path: Path) -> None:
    """Nothing is known of it then: that is no reason to keep it out."""
    servers = Played(seed, start_error=0.03, run_error=0.03)
    assert "slower" not in verdicts(gated(tmp_path, servers, budget=600))


def test_a_faster_one_is_let_in(tmp_path: Path) -> None:
    assert verdicts(gated(tmp_path, Played(1, slower=-0.2))) == {"held"}


def test_what_is_known_to_be_slower_in_the_end_is_kept_out(tmp_path: Path) -> None:
    """By no more than the limit for sure; but slower it is."""
    rows = gated(tmp_path, Played(3, slower=0.06, start_error=0.02), budget=1200)
    assert any(row.verdict == "slower" and row.ratio.high and row.ratio.high > 0.97 for row in rows)


def test_a_sentence_has_all_of_it(tmp_path: Path) -> None:
    row = next(each for each in gated(tmp_path, Played(1, slower=0.2)) if each.verdict == "slower")
    assert str(row).startswith("writing code -2")
    assert str(row).endswith("blocks), and -3.0% may be lost")


def test_only_what_has_a_limit_is_measured() -> None:
    assert gate_cells(GatePlan(prefill=0.05, seconds=60)) == ("prefill",)
    assert gate_cells(GatePlan(decode=0.05, seconds=60)) == ("code", "prose")


def test_what_was_measured_today_is_not_measured_again(tmp_path: Path) -> None:
    gated(tmp_path, Played(1))
    a, b = (begun(name, ASKED, "another") for name in ("A", "B"))
    found = finished_results(tmp_path / "results", a, b, datetime.fromisoformat("2026-11-23T00:00:00Z"))
    assert found
    assert verdicts(gate_rows(compare_results(*found), USUAL)) == {"held"}
    assert finished_results(tmp_path / "results", a, b, datetime.fromisoformat("2026-11-24T00:00:00Z")) is None
    other = trial_conditions(gate_cells(USUAL), 512)
    a, b = (begun(name, other, "another") for name in ("A", "B"))
    assert finished_results(tmp_path / "results", a, b, datetime.fromisoformat("2026-11-23T00:00:00Z")) is None


def test_both_listen_where_nobody_else_does() -> None:
    pair = gate_pair(HERE, PLAN, PLAN, "chat")
    told = pair.a.instance.server.arguments
    port = told[told.index("--port") + 1]
    assert told[told.index("--host") + 1] == "127.0.0.1"
    assert int(port) == pair.a.instance.endpoint.port == pair.b.instance.endpoint.port
    assert int(port) not in {each.endpoint.port for each in PLAN.instances}


@pytest.mark.parametrize(
    ("keys", "alike"),
    [
        ({"instances/chat/port": 9999}, True),
        ({"instances/chat/listen": "0.0.0.0"}, True),
        ({"instances/chat/drain": 5}, True),
        ({"instances/chat/ubatch": 64}, False),
        ({"instances/chat/context": 512}, False),
        ({"instances/chat/environment": {"A": "b"}}, False),
        ({"instances/chat/cpus": "0-1"}, False),
        ({"engines/main/options": {"GGML_NATIVE": "OFF"}}, False),
    ],
)
def test_nothing_is_measured_where_nothing_computes_otherwise(keys: dict[str, object], alike: bool) -> None:
    assert has_same_speed(gate_pair(HERE, PLAN, planned(cpu_rig(), keys), "chat")) is alike


def test_a_server_without_a_port_cannot_be_moved() -> None:
    chat = next(each for each in PLAN.instances if each.name == "chat")
    server = chat.server.model_copy(update={"arguments": ("--host", "127.0.0.1")})
    plan = PLAN.model_copy(update={"instances": (chat.model_copy(update={"server": server}),)})
    with pytest.raises(UserError, match="`--port`"):
        gate_pair(HERE, plan, PLAN, "chat")
