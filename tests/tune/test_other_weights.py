"""A search that may take other weights, on a host that plays a law: judged beside the finest before they lead."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from benchmarks.tune import start_of
from benchmarks.tune_law import LawRig
from llamaherd.measure.trials.divergence import Compared, Figure, Quality
from llamaherd.measure.tune.candidate import MODEL, Candidate, Judged, Limits, Precision
from llamaherd.measure.tune.journal import Found, candidate_of
from llamaherd.measure.tune.result import search_result, yaml_lines
from llamaherd.measure.tune.search import Axis, Space
from tests.tune.played import JUDGING, Played, pass_alone, search_on
from tests.tune.test_tuning import only

BYTES = {None: 1.0, "coder-q4": 0.7, "coder-q8": 1.4}
"""Of a layer, beside what is declared."""
LIMITS = Limits(kld=0.03, same_top=95)


class Quants(LawRig):
    """A rig that has its model three times: smaller weights are read faster, and leave room for more of them."""

    def _with(self, candidate: Candidate) -> LawRig:
        model = candidate[MODEL]
        own = {name: getattr(self, name) for name in LawRig.__dataclass_fields__}
        return LawRig(**own | {"layer": self.layer * BYTES[model if model is None else str(model)]})

    def taken(self, candidate: Candidate) -> float:
        return self._with(candidate).taken(candidate)

    def decode(self, candidate: Candidate) -> float:
        return self._with(candidate).decode(candidate)

    def prefill(self, candidate: Candidate) -> float:
        return self._with(candidate).prefill(candidate)

    def space(self, *, arithmetic: bool = True) -> Space:
        space = super().space(arithmetic=arithmetic)
        return replace(space, axes=(Axis(MODEL, tuple(BYTES), "each"), *space.axes))


@dataclass
class Weighed(Played):
    """Its host judges weights beside the finest ones; what is not in `divergences` cannot be judged."""

    divergences: dict[str, float] = field(default_factory=dict)
    asked: list[Precision] = field(default_factory=list)

    def judge(self, candidate: Candidate, precision: Precision, seconds: float) -> Judged:
        self.asked.append(precision)
        if not precision.model:
            return super().judge(candidate, precision, seconds)
        assert candidate[MODEL] == precision.model
        self.now += JUDGING
        if (value := self.divergences.get(precision.model)) is None:
            return Judged.of(precision, Compared(says="it took too long", seconds=JUDGING))
        quality = Quality(kld=Figure(value=value, error=0.0001), same_top=Figure(value=97.0, error=0.1))
        return Judged.of(precision, Compared(context=8192, chunks=2, quality=quality, seconds=JUDGING))


def quants(divergences: dict[str, float]) -> Weighed:
    own = LawRig.drawn(0)
    rig = Quants(**{name: getattr(own, name) for name in LawRig.__dataclass_fields__})
    return Weighed(rig, costs={"q8_0": 0.001, "q4_0": 0.004}, divergences=divergences)


def searched(folder: Path, servers: Weighed) -> Found:
    return search_on(folder, servers, 900, model=pass_alone, limits=LIMITS, finest="coder-q8")[0]


@pytest.mark.parametrize(
    ("divergences", "takes"),
    [({"coder-q4": 0.02}, True), ({"coder-q4": 0.04}, False), ({}, False)],
    ids=["within the limits", "beyond them", "not to be judged"],
)
def test_other_weights_are_proposed_only_within_the_limits(
    tmp_path: Path, divergences: dict[str, float], takes: bool
) -> None:
    servers = quants(divergences)
    found = searched(tmp_path, servers)
    assert found.keys.get(MODEL) == ("coder-q4" if takes else None)
    weights = [each for each in servers.asked if each.model]
    assert {(each.model, each.reference) for each in weights} == {("coder-q4", "coder-q8")}
    assert len(set(weights)) == len(weights), "each once"
    lines = yaml_lines(search_result(only(tmp_path), start_of(servers.rig)))
    assert ("model: coder-q4" in lines) is takes


def test_the_finest_weights_are_not_judged(tmp_path: Path) -> None:
    servers = quants({"coder-q4": 1.0})
    searched(tmp_path, servers)
    search = only(tmp_path)
    finest = [trial for trial in search.trials if trial.keys.get(MODEL) == "coder-q8"]
    assert finest
    assert [trial for trial in finest if trial.keys["kv"] == "f16" and not trial.why]
    assert all(each.kv != "f16" for each in servers.asked if each.model == "coder-q8")


def test_what_is_judged_is_read_back(tmp_path: Path) -> None:
    servers = quants({"coder-q4": 0.02})
    found = searched(tmp_path, servers)
    search = only(tmp_path)
    cost = search.cost(candidate_of(found.keys))
    assert cost
    assert cost.judged
    assert str(cost).startswith("model=coder-q4, kv=")
    assert " vs model=coder-q8 with kv=f16: mean KLD 0.02000" in str(cost)
    asked = len(servers.asked)
    searched(tmp_path, servers)
    assert len(servers.asked) == asked
