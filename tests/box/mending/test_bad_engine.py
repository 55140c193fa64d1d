"""A change to a server that is healthy and misbehaves is rolled back, whatever a client would notice first."""

from __future__ import annotations

import pytest

from tests.box.bench import Bench, Declared
from tests.support.bad_engine import engine

SELECTED = ("fails-streams", "empty", "listens-everywhere")
RARE = (
    "drip",
    "endless-stream",
    "redirect",
    "replacement",
    "one-letter",
    "stream-cut",
    "fails-system",
    "fails-long",
    "fails-tools",
    "schema-ignored",
    "key-not-needed",
    "models-other",
    "dies-at-disconnect",
    "hangs-at-disconnect",
    "deadlock",
)
LIMIT = 100
"""Seconds in which a run has judged any server: the limit of one step, twice a load, and the run itself."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Declared:
    return engine(tmp_path_factory.mktemp("bad-engine"))


def declare(bench: Bench, source: Declared, mode: str) -> None:
    rig = bench.rig()
    rig["engines"]["bad"] = source
    rig["instances"]["chat"] |= {"engine": "bad", "environment": {"BAD_ENGINE": mode}, "load_timeout": 20}
    bench.declare(rig)


@pytest.mark.parametrize("mode", [*SELECTED, *(pytest.param(mode, marks=pytest.mark.rare) for mode in RARE)])
def test_a_server_that_misbehaves_is_rolled_back(bench: Bench, source: Declared, mode: str) -> None:
    before = bench.running()
    declare(bench, source, mode)
    ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    assert "Traceback" not in ended.output
    assert "llama-chat serves again as before, spec " in ended.output
    assert ended.seconds < LIMIT
    assert bench.answers("chat")
    bench.unchanged(before, "chat")


def test_a_server_that_serves_well_is_kept(bench: Bench, source: Declared) -> None:
    """Else the proof would prove nothing."""
    declare(bench, source, "")
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert "red yellow" in bench.answers("chat")
