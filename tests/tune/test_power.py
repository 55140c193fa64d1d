"""Power limits in the end of a search, on a host that plays a law: no GPU is held to anything here (`played.py`)."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from benchmarks.tune_law import LawRig
from llamaherd.measure.bench.series import POWER_ROUNDS
from llamaherd.measure.report.page import gather_results, page
from llamaherd.measure.tune.candidate import Purpose
from llamaherd.measure.tune.final_measurements import power_lines
from llamaherd.measure.tune.journal import read_search, searches
from llamaherd.measure.tune.result import SearchResult, result_json, search_result
from llamaherd.measure.tune.show import print_result
from tests.tune.played import NOW, Played, pass_alone, search_on

LIMITS = (180, 210, 240, 270, 300)
SHARES = {180: 0.5, 210: 0.93, 240: 0.97, 270: 0.995, 300: 0.999, NOW: 1.0}
"""Of the speed. Joules a token are least at 210 W."""


def played(noise: float = 0.002, seed: int = 0) -> Played:
    return Played(LawRig.drawn(1, noise), seed, shares=SHARES)


def searched(folder: Path, servers: Played, purpose: Purpose = "turn", budget: float = 1800) -> SearchResult:
    search_on(folder, servers, budget, purpose, pass_alone, watts=LIMITS)
    (path,) = searches(folder, "box", "chat")
    return search_result(read_search(path))


def printed(end: SearchResult) -> str:
    to = io.StringIO()
    print_result(end, "chat", Console(file=to, width=160))
    return to.getvalue()


@pytest.mark.parametrize(
    ("purpose", "watts"),
    [("turn", 270), ("decode", 270), ("throughput", 270), ("efficiency", 210)],
)
def test_what_is_proposed_goes_by_the_aim(tmp_path: Path, purpose: Purpose, watts: int) -> None:
    end = searched(tmp_path, played(), purpose)
    assert end.power
    assert end.power.proposed == watts
    (group,) = page(gather_results((), tmp_path)).groups
    assert group.parts[0].lines.endswith(power_lines(end.power))
    assert "The best settings under power limits" in " ".join(table.caption for table in group.parts[0].tables)
    assert yaml.safe_load(power_lines(end.power)) == {"gpus": {"cards": {"big": {"power_limit": f"{watts}W"}}}}
    assert "power_limit: " + f"{watts}W" in printed(end)


def test_every_limit_is_measured_in_rounds_without_a_restart(tmp_path: Path) -> None:
    servers = played()
    end = searched(tmp_path, servers)
    assert end.power
    assert [each.watts for each in end.power.levels] == [*LIMITS, NOW]
    assert [each.watts for each in end.power.levels if each.as_now] == [NOW]
    assert len(servers.holds) == POWER_ROUNDS * (len(LIMITS) + 1)
    assert servers.holds.count(None) == POWER_ROUNDS, "what it is held to anyway is one of them"
    first, second = servers.holds[:6], servers.holds[6:12]
    assert first == second[::-1]
    assert (servers.held_to, servers.running) == (NOW, False)
    (path,) = searches(tmp_path, "box", "chat")
    assert len(servers.started) == len(read_search(path).trials) + 1, "one start for all of them"
    assert servers.started[-1] == end.found


def test_more_than_may_be_is_only_a_measure(tmp_path: Path) -> None:
    """It is held to 350 W, and 300 W are the most that it may be: speed is held against those."""
    end = searched(tmp_path, played())
    assert end.power
    assert end.power.base == 300
    said = result_json(end)["power"]
    assert (said["base"], said["proposed"]) == (300, 270)
    beside = {each["watts"]: each["beside"] for each in said["limits"]}
    assert beside[300] is None
    assert beside[270][0] == pytest.approx(0.996, abs=0.005)
    assert beside[210][0] < 0.96
    joules = {each["watts"]: each["joules"] for each in said["limits"]}
    for each in said["limits"]:
        if each["watts"] != 300:
            assert each["saves"][0] == pytest.approx(joules[300] / each["joules"], rel=0.01)


def test_noise_proposes_nothing_that_is_not_known(tmp_path: Path) -> None:
    """Readings that are off by 5 % tell no limit from another: the most that it may be is what is left.

    One in twenty intervals is too narrow by chance; what loses as much as 210 W does is never proposed.
    """
    ends = [searched(tmp_path / str(seed), played(0.05, seed)) for seed in range(10)]
    proposed = [end.power.proposed or 0 for end in ends if end.power]
    assert proposed.count(300) >= 8
    assert min(proposed) >= 270


def test_too_small_a_budget_is_said(tmp_path: Path) -> None:
    servers = played()
    end = searched(tmp_path, servers, budget=150)
    assert servers.holds == []
    assert end.power is None
    assert "of them take about" in end.unlimited
    assert "no power limit was tried to its end" in printed(end)
    assert result_json(end)["power"] == {"left_out": end.unlimited}


def test_where_gpus_tell_no_energy_any_more_nothing_is_proposed(tmp_path: Path) -> None:
    servers = played()

    def before() -> None:
        servers.tells = len(servers.holds) < 4

    servers.before = before
    end = searched(tmp_path, servers)
    assert len(servers.holds) == 4
    assert end.power is None
    assert end.unlimited == f"under {servers.holds[3] or NOW} W its GPUs reported no energy, or it did not respond"
    assert (servers.held_to, servers.running) == (NOW, False)


class _KilledError(BaseException):
    """The program is gone."""


def test_killed_in_the_middle_it_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    servers = played()

    def before() -> None:
        if len(servers.holds) == 8:
            raise _KilledError

    servers.before = before
    with pytest.raises(_KilledError):
        searched(tmp_path, servers)
    assert servers.held_to == NOW
    servers.before, servers.running = (lambda: None), False
    end = searched(tmp_path, servers)
    assert end.power
    assert end.power.proposed == 270
    (path,) = searches(tmp_path, "box", "chat")
    seen = [(each.watts, each.round) for each in read_search(path).limited]
    assert len(seen) == len(set(seen)) == POWER_ROUNDS * (len(LIMITS) + 1)
    assert len(servers.holds) <= len(seen) + 1


def test_without_power_declared_nothing_is_held(tmp_path: Path) -> None:
    servers = played()
    search_on(tmp_path, servers, 600, "efficiency", pass_alone)
    assert servers.holds == []
