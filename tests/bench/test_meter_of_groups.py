"""The meter of a group's instance: it watches the process of that model, and counts what the server answers.

The group's server and its children are processes that sleep, and systemctl is a script; all else is this machine's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.measure.meter.meter import Meter, obstacles
from llamaherd.onhost.gauges import count_in_flight
from llamaherd.plan.plan import instances_of
from tests.bench.grouped import CARD, GROUPED
from tests.bench.site import Site, page
from tests.support.stores import needs_root

ONE, TWO = instances_of(CARD)
ROUTER = """
import subprocess, sys
children = [subprocess.Popen([sys.executable, "-c", "input()", *words], stdin=subprocess.PIPE) for words in
            (["--model", "moe"], ["--alias", "moe", "--model", "x"])]
print(children[1].pid, flush=True)
input()
"""
"""One process has the name of a model elsewhere in its arguments; the other one is that model's."""


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The process of the model that is loaded, which is a child of what systemctl says."""
    environment = {**os.environ, "LLAMAHERD_SPEC": CARD.spec}
    words = [sys.executable, "-c", ROUTER]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as router:
        assert router.stdout
        program = tmp_path / "systemctl"
        program.write_text(f"#!/bin/sh\necho MainPID={router.pid}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        yield int(router.stdout.readline())
        router.kill()


@needs_root
def test_what_is_watched_is_the_process_of_the_model(loaded: int) -> None:
    with Meter(Connect(host=LOCAL), TWO, 30) as meter:
        hello = meter.readings.hello
        assert hello
        assert (hello.server.pid, hello.server.spec) == (loaded, CARD.spec)
        assert loaded in meter.first_snapshot.ours


@needs_root
@pytest.mark.usefixtures("loaded")
def test_one_whose_model_is_not_loaded_does_not_run() -> None:
    with Meter(Connect(host=LOCAL), ONE, 30) as meter:
        (found,) = obstacles(meter.first_snapshot, GROUPED, ONE)
    assert (found.code, found.message) == ("server-down", "one does not run")


def test_requests_are_counted_by_whichever_model_is_loaded() -> None:
    busy = page("llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n", kind="text/plain")
    refused = page({"error": {"message": "model is not loaded"}}, "400 Bad Request")
    with Site({"/one": refused, "/two": busy}) as site:
        assert count_in_flight([f"{site.url}/one", f"{site.url}/two"], "") == 3
        assert count_in_flight([f"{site.url}/one"], "") is None
