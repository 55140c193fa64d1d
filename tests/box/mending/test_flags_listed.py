"""An engine that no catalogue is of: what its build lists is kept beside the inventory, and checked against later."""

from __future__ import annotations

import json

import pytest

from tests.box.bench import Bench, Declared

pytestmark = [pytest.mark.rare]

NUMBER = 11435
"""The next build after the newest catalogue: the same source under another number."""


def newer(bench: Bench, *words: str) -> Declared:
    rig = bench.rig()
    rig["engines"]["main"]["source"]["version"]["number"] = NUMBER
    rig["instances"]["chat"]["extra_args"] += words
    bench.declare(rig)
    return rig


def test_the_run_that_builds_it_keeps_its_flags(bench: Bench) -> None:
    kept = bench.folder / "engines/box.json"
    newer(bench, "--brand-new", "1")
    said = bench.herd("check")
    assert said.code == 0, said.output
    assert "note LH100: `--brand-new`" in said.output
    # The built engine decides: the server that runs is left as it was.
    before = bench.running()
    ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    assert "does not accept its arguments" in ended.output
    assert bench.running()["chat"] == before["chat"]
    (build,) = json.loads(kept.read_text()).values()
    assert build["flags"]["-t --threads"] == 1
    assert 200 < len(build["flags"]) < 400
    assert kept.stat().st_size < 20_000
    # Now checks know it before they connect.
    said = bench.herd("check")
    assert said.code == 1, said.output
    assert f"error LH100: `--brand-new` is not known to llama.cpp b{NUMBER}" in said.output
    newer(bench)
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert bench.answers("chat")
    assert "up to date, nothing to do" in bench.up().output
