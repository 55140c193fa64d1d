"""Step scripts that wait for a unit, or a server, that never ends: each ends by its total, with a sentence."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from llamaherd.host.state import HostState
from llamaherd.host.time_limits import SOURCE_SECONDS
from llamaherd.onhost.system import FailedError, Host
from llamaherd.role.changes import DeferredVerb
from roles import models
from roles.engines import compile_input
from roles.engines.onhost.compiling import compile_engine
from roles.models.onhost import FetchInput
from tests.render.pieces import hub
from tests.render.plans import GPU, WATCHER
from tests.support.rigs import cpu_rig, planned
from tests.support.stores import needs_root

pytestmark = needs_root

LIMIT, SOON = 1, 20
"""Seconds of a total, and in which a script has ended with it, on a busy machine."""


@contextmanager
def ends_in_time() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert LIMIT <= time.monotonic() - began < SOON


def run(script: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script where every unit runs for ever."""
    for name, text in (("systemctl", "case $* in *ActiveState*) echo active ;; esac"), ("systemd-run", "true")):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    return subprocess.run(
        ["sh", "-c", script],
        env={"PATH": f"{folder}:{os.environ['PATH']}", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def moved(script: str, folder: Path) -> str:
    """A script whose files lie in a folder of a test."""
    for place in ("/var/lib/llamaherd", "/opt/llamaherd", "/run/llamaherd", "/srv/llms"):
        script = script.replace(place, f"{folder}{place}")
    return script


def test_the_unit_of_a_fetch_has_a_total_and_the_step_a_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/roles/models/onhost/test_fetch.py` has that the unit gets it, and a fetch that never ends."""
    monkeypatch.setattr(models, "transfer_seconds", lambda _: LIMIT)
    (change,) = (each for each in models.model_changes(GPU, HostState(), hub, WATCHER) if each.action == "fetch")
    assert isinstance(change.how, DeferredVerb)
    made = change.how.make(print)
    assert isinstance(made.given, FetchInput)
    assert made.seconds > made.given.seconds == LIMIT


# --- the source of an engine --------------------------------------------------------------------------------


class Drips(BaseHTTPRequestHandler):
    """Sends a kilobyte now and then, for ever: more than what counts as silence."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
        self.send_header("Content-Length", "1000000000")
        self.end_headers()
        try:
            while True:
                self.wfile.write(bytes(1024))
                time.sleep(0.1)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def drips() -> Iterator[str]:
    """The URL of a server that drips."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Drips) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    "source", [{"archive": "{url}/x.tar.gz", "sha256": "ab" * 32}, {"git": "{url}/x.git", "commit": "ab" * 20}]
)
def test_a_source_that_never_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drips: str, source: dict[str, str]
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    named = {key: value.format(url=drips) for key, value in source.items()}
    planned_input = compile_input(planned(cpu_rig(), {"engines/main/source": named}).builds[0])
    given = replace(
        planned_input,
        source=replace(planned_input.source, seconds=LIMIT),
        work=str(tmp_path / "work"),
        cache=str(tmp_path / "cache"),
        user="root",
    )
    (tmp_path / "cache/sources").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    with ends_in_time(), pytest.raises(FailedError, match=r"cannot fetch .*(within|timed out)"):
        compile_engine(given, Host(print, print))
    assert (tmp_path / "work/failed").read_text().startswith("cannot fetch ")


def test_an_hour_is_enough_for_a_source_on_a_slow_line() -> None:
    assert SOURCE_SECONDS * 1_000_000 / 8 > 400_000_000
