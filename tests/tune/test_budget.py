"""The rig of docs/rigs/budget.md as a law: what its owner has measured comes out, and the page says what is found."""

from __future__ import annotations

import pytest

from benchmarks.tune_budget import MIDDLE, NEAR, RECIPE, Searched, best, lines, space_from
from benchmarks.tune_budget_law import MEASURED, Budget
from llamaherd.measure.tune.candidate import Candidate
from llamaherd.measure.tune.search import LAYERS, THREADS
from tests.support.rigs import ROOT


@pytest.mark.parametrize(("quant", "layers", "threads"), MEASURED)
def test_the_law_is_what_the_owner_has_measured(quant: str, layers: int, threads: int) -> None:
    keys = Candidate.of({LAYERS: layers, THREADS: threads})
    for share in (0.3, 0.9):
        assert Budget(quant, share).decode(keys) == pytest.approx(MEASURED[quant, layers, threads], rel=1e-3)


@pytest.mark.parametrize("quant", RECIPE)
def test_a_search_from_nothing_on_the_gpu_comes_to_the_best_of_all(quant: str) -> None:
    law = Budget(quant, MIDDLE)
    found = Searched.of(quant, 0, seed=3)
    assert law.decode(found.found) >= NEAR * law.decode(best(quant, MIDDLE))
    assert found.needed <= 3


def test_where_experts_are_most_of_a_layer_the_owners_recipe_stays_the_best() -> None:
    _, start = space_from("IQ2_XXS", RECIPE["IQ2_XXS"])
    law = Budget("IQ2_XXS", 0.9)
    assert law.decode(best("IQ2_XXS", 0.9)) < law.decode(start) == pytest.approx(29.899, rel=1e-3)


def test_the_page_has_what_the_command_prints() -> None:
    page = (ROOT / "docs/measurements/rigs.md").read_text(encoding="utf-8")
    assert [line for line in lines() if line not in page.splitlines()] == []
