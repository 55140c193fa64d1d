"""Which results beside an inventory say how fast a server must be, and what becomes of that."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from llamaherd.inventory.schema import Rig
from llamaherd.measure.results.result import Cell, Condition, Engine, Host, Method, Provenance, Result
from llamaherd.measure.results.store import results_folder, write_result
from llamaherd.plan.instance import SHARE_OF_MEASURED, lowest_speed
from roles.monitoring import measured
from roles.serve.onhost.speed import FLOOR
from tests.bench.made import result, run
from tests.support import gguf_files
from tests.support.gateway import fleet_of
from tests.support.ours import plans
from tests.support.prometheus import watcher_of
from tests.support.rigs import KEY, SHA, changed, cpu_rig

FLEET = "monitoring: {on: box}"
KNOWN = Provenance(model="gemma", engine=Engine(kind="llama.cpp"))
LATER = "2026-11-24T20:15:00Z"


def cell(speed: float, **condition: Any) -> Cell:
    """Three answers at a speed."""
    declared = {"kind": "code", "generated": 256, **condition}
    return Cell(condition=Condition.model_validate(declared), runs=(run(speed),) * 3)


def of_box(*cells: Cell, **more: Any) -> Result:
    """A result of the only server of the box."""
    found = {"rig": "box", "provenance": KNOWN, "ended": LATER, **more}
    return result(**found).model_copy(update={"cells": cells})


def found(folder: Path, *results: Result) -> dict[str, float]:
    """What is read of them."""
    for each in results:
        write_result(results_folder(folder), each)
    return measured(folder, {"box": Rig.model_validate(cpu_rig())}, fleet_of(FLEET))


def test_the_slowest_text_and_depth_counts(tmp_path: Path) -> None:
    fast, slow, deep = cell(60.0), cell(40.0, kind="prose"), cell(31.0, depth=32768)
    others = cell(9.0, concurrency=8), cell(8.0, power_limit_watts=200.0), cell(7.0, kind="long", prompt=2048)
    assert found(tmp_path, of_box(fast, slow, *others)) == {"box.chat": pytest.approx(40.0, rel=0.01)}
    assert found(tmp_path, of_box(fast, deep, began=LATER)) == {"box.chat": pytest.approx(31.0, rel=0.01)}


@pytest.mark.parametrize("runs", [(500.0, 1400.0), (90.0,)], ids=["far apart", "one"])
def test_a_result_with_too_few_runs_neither_makes_a_floor_nor_takes_one_away(
    tmp_path: Path, runs: tuple[float, ...]
) -> None:
    few = cell(1.0, kind="prose").model_copy(update={"runs": tuple(map(run, runs))})
    assert found(tmp_path, of_box(cell(60.0), few)) == {}
    before = found(tmp_path, of_box(cell(60.0), began="2026-11-20T20:15:00Z"))
    assert before == {"box.chat": pytest.approx(60.0, rel=0.01)}
    assert found(tmp_path, of_box(few, began=LATER)) == before


@pytest.mark.parametrize(
    "more",
    [
        {"method": Method(anyway=("somebody else is on the GPU",))},
        {"method": Method(series="a", arm="A")},
        {"provenance": KNOWN.model_copy(update={"model": "another"})},
        {"provenance": KNOWN.model_copy(update={"engine": Engine(kind="vllm")})},
        {"provenance": KNOWN.model_copy(update={"host": Host(swapped_bytes=1)})},
        {"rig": "porch"},
    ],
    ids=["disturbed", "an arm", "another model", "another engine", "swapped", "another rig"],
)
def test_what_is_not_of_this_server_as_it_is_does_not_count(tmp_path: Path, more: dict[str, Any]) -> None:
    assert found(tmp_path, of_box(cell(60.0), **more)) == {}


def test_a_result_of_an_image_knows_the_engine_by_its_name(tmp_path: Path) -> None:
    known = KNOWN.model_copy(update={"engine": Engine(kind="main")})
    assert "box.chat" in found(tmp_path, of_box(cell(60.0), provenance=known))


def test_what_is_damaged_is_passed_over(tmp_path: Path) -> None:
    path = write_result(results_folder(tmp_path), of_box(cell(60.0), began=LATER))
    path.write_text(path.read_text().replace("256", "257"))
    assert found(tmp_path, of_box(cell(50.0))) == {"box.chat": pytest.approx(50.0, rel=0.01)}


def test_who_is_not_watched_is_not_read(tmp_path: Path) -> None:
    write_result(results_folder(tmp_path), of_box(cell(60.0)))
    rigs = {"box": Rig.model_validate(cpu_rig())}
    assert measured(tmp_path, rigs, fleet_of("monitoring: {on: porch, rigs: [duo]}")) == {}
    assert measured(tmp_path, rigs, fleet_of("monitoring: null")) == {}


def rules(folder: Path) -> str:
    """What the box is told to watch by."""
    (_, planned) = plans(folder)["box"]
    return watcher_of(planned).files[1].text


def test_rules_change_with_a_result_and_only_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_KEY", KEY)
    declared = changed(cpu_rig(), {"instances": {"chat": cpu_rig()["instances"]["chat"]}})
    weights = tmp_path / "files" / "gemma.gguf"
    weights.parent.mkdir()
    (tmp_path / "box.yaml").write_text(json.dumps(_of_files(declared, weights)))
    (tmp_path / "fleet.yaml").write_text(FLEET)
    assert "record: llm:decode_tokens_per_second:floor" not in rules(tmp_path)
    write_result(results_folder(tmp_path), of_box(cell(60.0)))
    before = rules(tmp_path)
    assert re.search(r'record: llm:decode_tokens_per_second:floor\n +expr: "vector\(42\)"', before)
    assert rules(tmp_path) == before
    write_result(results_folder(tmp_path), of_box(cell(20.0), began=LATER))
    assert "vector(14)" in rules(tmp_path)
    expecting = changed(declared, {"instances/chat/expect": {"decode": "45 t/s"}})
    (tmp_path / "box.yaml").write_text(json.dumps(_of_files(expecting, weights)))
    assert re.search(r':floor\n +expr: "vector\(22.5\)"', rules(tmp_path)), "what is expected wins"


def _of_files(declared: Any, weights: Path) -> Any:
    """The rig by files of this machine, which need no lock."""
    gguf_files.write(gguf_files.gemma3(), weights)
    archive = weights.with_name("llama.tar.gz")
    archive.touch()
    source = {"engines/main/source/archive": str(archive)}
    return changed(declared, {**source, "models": {"gemma": {"file": str(weights), "sha256": SHA}}})


def test_a_switch_and_an_alert_take_the_same_share() -> None:
    assert FLOOR == SHARE_OF_MEASURED
    assert (lowest_speed(40.0, 100.0), lowest_speed(None, 100.0), lowest_speed(None)) == (20.0, 70.0, None)
