"""The threads that servers get who do not say: never the worst of what was measured."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from llamaherd.inventory.schema import Cpu, Rig
from llamaherd.memory.facts import best_threads, rig_facts
from tests.support.rigs import Declared, changed, gpu_rig

DATA = Path(__file__).parents[1] / "data" / "threads_h100.jsonl"
PROCESSORS = {"all": 64, "quarter": 64, "all-32": 32, "of-16": 16, "of-8": 8, "of-4": 4, "of-2": 2}
PROCESSORS |= {"none-of-16": 16, "none-of-8": 8, "none-of-2": 2}


def measured() -> dict[str, dict[int, float]]:
    """Tokens a second by series and threads: the mean of all answers but the first, of every run."""
    found: defaultdict[str, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in DATA.read_text().splitlines():
        row = json.loads(line)
        for server in row["written"]:
            found[row["series"]][row["threads"]] += server[1:] or server
    return {name: {threads: sum(each) / len(each) for threads, each in grid.items()} for name, grid in found.items()}


@pytest.mark.parametrize("series", PROCESSORS)
def test_a_server_alone_is_near_the_best_that_was_measured(series: str) -> None:
    """Within 7 %, which is how far two runs with the same threads are apart; grids have gaps: the next below counts."""
    grid = measured()[series]
    chosen = best_threads(Cpu(cores=PROCESSORS[series]))
    nearest = max(threads for threads in grid if threads <= chosen)
    assert grid[nearest] >= 0.93 * max(grid.values()), (nearest, grid)


def test_two_servers_at_once_get_what_was_best_for_two() -> None:
    grid = measured()["two"]
    rig = Rig.model_validate(cpu_servers(64, 2))
    (threads,) = set(threads_of(rig).values())
    assert grid[threads] >= 0.95 * max(grid.values())
    assert min(grid.values()) < grid[threads] / 50


def threads_of(rig: Rig) -> dict[str, int]:
    """The threads of each instance."""
    return {name: each.threads for name, each in rig_facts(rig, {}).instances.items()}


def cpu_servers(cores: int, count: int) -> Declared:
    """A rig of servers without GPUs."""
    rig = changed(gpu_rig(), {"host/cpu": {"cores": cores}})
    (first, *_) = rig["instances"].values()
    alone = {key: first[key] for key in ("engine", "model", "context")}
    rig["instances"] = {f"s{number}": {**alone, "port": 9000 + number} for number in range(count)}
    return rig


@pytest.mark.parametrize("cores", [1, 2, 3, 7, 8, 16, 17, 24, 64, 128])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_together_they_never_have_more_threads_than_cores(cores: int, count: int) -> None:
    threads = threads_of(Rig.model_validate(cpu_servers(cores, count)))
    assert min(threads.values()) >= 1
    assert sum(threads.values()) <= max(cores, count)


def test_who_declares_threads_takes_them_from_the_others() -> None:
    declared = cpu_servers(64, 3)
    declared["instances"]["s0"]["threads"] = 20
    assert threads_of(Rig.model_validate(declared)) == {"s0": 20, "s1": 22, "s2": 22}


def test_a_server_that_is_wholly_on_cards_takes_no_share() -> None:
    rig = Rig.model_validate(gpu_rig())
    for each in rig_facts(rig, {}).instances.values():
        if not each.on_cpu:
            assert each.threads == (each.instance.threads or best_threads(rig.host.cpu))
