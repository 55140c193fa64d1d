"""Whether dashboards show something: Prometheus, exporter and HAProxy run, and every query of every panel is asked.

What stands in: a server that counts as llama-server does, nvidia-smi's answers in a file, and a line of systemd's
collector, as no system bus is here. Scrapes and rules are hastened.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from llamaherd.fleet.dashboards import DASHBOARDS, Dashboard, Query
from llamaherd.pipeline.diff import SavedChange, SavedRig, metrics_text
from llamaherd.plan import GatewayFigures
from tests.support import gateway
from tests.support.gateway import free_port, made, rig_at, until
from tests.support.monitoring import FILES, household
from tests.support.prometheus import ask, program, queried, watcher_of, write_files
from tests.support.rigs import ROOT

CHOSEN = {"$rig": "box", "$instance": ".+", "$__rate_interval": "1m"}
"""What stands for Grafana's variables."""
GATEWAY = "gateway: {on: [box], listen: 127.0.0.1, port: PORT, models: {coder: {serve: [box.one]}}}"
COUNTERS = {
    "prompt_tokens_total": 30_000,
    "prompt_seconds_total": 30,
    "tokens_predicted_total": 1200,
    "tokens_predicted_seconds_total": 30,
    "spec_decode_num_draft_tokens_total": 20,
    "spec_decode_num_accepted_tokens_total": 15,
}
"""What llama-server counts, and by how much more each time: half a minute of work."""


def asked(query: Query) -> str:
    """The query as Prometheus is given it."""
    text = query.expr
    for name, value in CHOSEN.items():
        text = text.replace(name, value)
    assert "$" not in text
    return text


def queries(dashboard: Dashboard) -> dict[str, str]:
    """All that it asks, by the panel and the name of the line."""
    return {
        f"{panel.title}: {query.legend}": asked(query)
        for row in dashboard.rows
        for panel in row.panels
        for query in panel.queries
    }


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=[each.uid for each in DASHBOARDS])
def test_promtool_takes_every_query(tmp_path: Path, dashboard: Dashboard) -> None:
    rules = [{"record": f"a:{number}", "expr": expr} for number, expr in enumerate(queries(dashboard).values())]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}), encoding="utf-8")
    done = ask("promtool", "check", "rules", "rules.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_panel_shows_something_of_a_fleet_that_runs(tmp_path: Path) -> None:
    with _fleet(tmp_path) as port:
        for dashboard in DASHBOARDS:
            missing = dict(queries(dashboard))

            def none_is_missing(missing: dict[str, str] = missing) -> bool:
                for name in [name for name, expr in missing.items() if queried(port, expr)]:
                    del missing[name]
                return not missing

            try:
                until(none_is_missing, 60)
            except AssertionError:
                pytest.fail(f"{dashboard.title} shows nothing of {missing}")


class _Counting(BaseHTTPRequestHandler):
    """A server that has worked for half a minute each time that it is asked."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        lines = [f"llamacpp:{name} {step * self.asked}" for name, step in COUNTERS.items()]
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        text = "\n".join([*lines, "llamacpp:requests_processing 1", "llamacpp:requests_deferred 0", ""])
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def _fleet(folder: Path) -> Iterator[int]:
    """All that is watched, and Prometheus, until they are ended; the port that it listens at."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Counting)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    prometheus, exporter = free_port(), free_port()
    with ExitStack() as running:
        running.callback(server.server_close)
        running.callback(server.shutdown)
        told = running.enter_context(_gateway(folder / "gateway"))
        running.enter_context(_exporter(folder / "figures", exporter))
        ports = {"9100": exporter, "8405": told, "8080": server.server_address[1], "9090": prometheus}
        _write(folder, ports)
        words = ["--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        words.append(f"--web.listen-address=127.0.0.1:{prometheus}")
        running.enter_context(_started(folder, "prometheus", *words))
        yield prometheus


@contextmanager
def _gateway(folder: Path) -> Iterator[int]:
    """A gateway before one server, and where it tells its figures."""
    folder.mkdir()
    port = free_port()
    planned = made(GATEWAY.replace("PORT", str(free_port())), [rig_at({"one": free_port()})])
    watched = planned.model_copy(update={"figures": GatewayFigures(listen="127.0.0.1", port=port)})
    with gateway.running(watched, folder):
        yield port


@contextmanager
def _exporter(folder: Path, port: int) -> Iterator[None]:
    """The exporter, with all that is written for it."""
    folder.mkdir()
    smi = folder / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\ncat {Path(__file__).with_name('nvidia_smi.csv')}\n")
    smi.chmod(0o755)
    program_of_ours = [sys.executable, "-I", str(ROOT / "templates/monitoring/figures.py")]
    command = [*program_of_ours, str(folder / "llamaherd.prom"), "--gpus"]
    subprocess.run(command, env={"PATH": f"{folder}:/usr/bin:/bin"}, check=True, timeout=60)
    change = SavedChange(action="restart", kind="server", name="llama-chat", reasons=("a",), drift=("a",), inventory=())
    looked = SavedRig(rig="box", plan="0" * 64, changes=(change,), diffs={}, problems=(), unreached="")
    (folder / "drift.prom").write_text(metrics_text([looked], 1764043200), encoding="utf-8")
    (folder / "systemd.prom").write_text('node_systemd_unit_state{name="llama-chat.service",state="active"} 1\n')
    words = ["--collector.textfile", f"--collector.textfile.directory={folder}"]
    words.append(f"--web.listen-address=127.0.0.1:{port}")
    with _started(folder, "prometheus-node-exporter", *words):
        yield


def _write(folder: Path, ports: dict[str, int]) -> None:
    """What Prometheus reads on the rig that watches: both rigs are this machine, and half a minute is a second."""
    write_files(watcher_of(household(measured={"box.chat": 50.0})["box"]), FILES, folder)
    for name in ("prometheus.yml", "rules.yml"):
        text = (folder / name).read_text(encoding="utf-8").replace("scrape_timeout: 25s", "scrape_timeout: 1s")
        text = text.replace(": 30s", ": 1s").replace("for: 5m", "for: 0s").replace("duo.lan:", "127.0.0.1:")
        for port, other in ports.items():
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{other}")
        (folder / name).write_text(text, encoding="utf-8")


@contextmanager
def _started(folder: Path, name: str, *words: str) -> Iterator[None]:
    """One of the distribution's programs, until it is ended."""
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([*program(name), *words], cwd=folder, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


def test_a_panel_of_a_figure_that_nobody_tells_is_found(tmp_path: Path) -> None:
    """The test above can fail."""
    with _fleet(tmp_path) as port:
        until(lambda: queried(port, "llm:requests:processing"), 60)
        assert queried(port, 'llm:requests:processing{instance="nobody"}') == []
        assert queried(port, "llm:decode_tokens_per_second") == []
