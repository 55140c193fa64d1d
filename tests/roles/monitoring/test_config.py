"""What Prometheus and Alertmanager read, by themselves: their tools' word, and a run of both on loopback."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from llamaherd.inventory.schema.fleet_file import Ntfy
from llamaherd.layout import MONITORING, MONITORING_DATA
from llamaherd.onhost.system import Host
from llamaherd.plan import TextFile
from roles.monitoring import monitoring_checks, probes
from tests.support.gateway import fleet_of, free_port, until
from tests.support.monitoring import FILES, HOUSEHOLD, KEYS, household
from tests.support.ours import probed
from tests.support.prometheus import ask, monitored, program, queried, watcher_of, write_files

NOBODY = "monitoring: {on: box}"


@pytest.mark.parametrize("text", [HOUSEHOLD, NOBODY], ids=["all ways", "nobody is told"])
def test_their_own_tools_take_what_is_written(tmp_path: Path, text: str) -> None:
    watcher = watcher_of(household(text)["box"])
    write_files(watcher, {name: key for name, key in FILES.items() if "." in name or text is HOUSEHOLD}, tmp_path)
    for words in (("promtool", "check", "config", "prometheus.yml"), ("amtool", "check-config", "alertmanager.yml")):
        done = ask(*words, folder=tmp_path)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert "duplicate" not in said


def test_files_are_their_users_alone() -> None:
    for file in watcher_of(household()["box"]).files:
        assert (file.mode, file.owner) == ("0600", "llamaherd-monitor")


@pytest.mark.parametrize(
    "url",
    [
        "ntfy.sh/a",
        "ftp://ntfy.sh/a",
        "https://",
        "https://tom:key@a/",
        "https://a/#b",
        "https://a:0/",
        "http://a b/",
    ],
)
def test_what_is_no_url_to_send_to_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        Ntfy.model_validate({"url": url})


def test_a_change_of_what_is_watched_is_another_spec() -> None:
    texts = (HOUSEHOLD, HOUSEHOLD.replace("[duo]", "[porch]"), HOUSEHOLD.replace("6h", "8h"))
    one, two, three = (watcher_of(household(text)["box"]) for text in texts)
    assert one.spec != two.spec
    assert one.spec == three.spec, "whom Alertmanager tells is not Prometheus' business"
    assert one.units[1] != three.units[1], "it is its unit's"


class Recorder(ThreadingHTTPServer):
    """A server that tells a figure to whoever has its key, and keeps what is sent to it."""

    daemon_threads = True

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    server: Recorder

    def do_GET(self) -> None:
        self._say(200 if self.headers["Authorization"] == f"Bearer {KEYS['CHAT_KEY']}" else 401)
        self.wfile.write(b"llamacpp:requests_deferred 3\n")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.sent.append((self.path, self.headers["Authorization"] or "", body))
        self._say(200)

    def _say(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def started(folder: Path, unit: TextFile, ports: Mapping[str, int]) -> Iterator[None]:
    """What a unit runs, with its own words but for places, until it is ended."""
    (line,) = re.findall("^ExecStart=(.*)$", unit.text, re.MULTILINE)
    text = _elsewhere(line.replace(str(MONITORING_DATA), str(folder)).replace(str(MONITORING), str(folder)), ports)
    path, *words = text.split()
    name = Path(path).name
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([*program(name), *words], cwd=folder, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


def _elsewhere(text: str, ports: Mapping[str, int]) -> str:
    """The same with other ports of this machine."""
    for port, other in ports.items():
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{other}")
    return text


def test_a_server_is_asked_with_its_key_and_people_are_told_of_one_that_is_away(tmp_path: Path) -> None:
    """All three programs run by what is written, but for ports and for time, which passes faster."""
    recorder, ports = Recorder(), {"9090": free_port(), "9093": free_port(), "9100": free_port()}
    box = household()["box"]
    write_files(watcher_of(box), FILES, tmp_path)
    ports["8080"] = recorder.port
    _hasten(tmp_path, ports)
    try:
        with ExitStack() as running:
            for unit in monitored(box).units:
                running.enter_context(started(tmp_path, unit, ports))
            until(lambda: _value(ports["9090"], 'llm:requests:waiting{instance="box.chat"}') == "3", 60)
            until(lambda: _value(ports["9090"], 'node_load1{instance="box"}'), 60)
            until(lambda: any("ServerDown" in json.dumps(body) for _, _, body in recorder.sent), 60)
            elsewhere = (
                replace(each, argv=tuple(_elsewhere(word, ports) for word in each.argv)) for each in probes(box)
            )
            found = probed(elsewhere, Host(print, print))
    finally:
        recorder.shutdown()
    assert f'"spec":"{watcher_of(box).spec}"' in found["monitoring read", ""]
    assert found["monitoring alertmanager", ""] == "200"
    assert "box.drafter" in found["monitoring down", ""]
    checks = {check.name: check for check in monitoring_checks(monitored(box), found)}
    assert checks["Prometheus"].ok
    assert checks["Alertmanager"].ok
    assert checks["figures of the host"].ok
    assert "no response from box.drafter" in checks["what is watched"].detail
    ways = {path.partition("?")[0]: key for path, key, _ in recorder.sent}
    assert ways == {"/house": f"Bearer {KEYS['NTFY_KEY']}", "/hook": ""}
    (path,) = {path for path, _, _ in recorder.sent if path.startswith("/house")}
    assert "tpl=1&t=%7B%7B" in path


def _hasten(folder: Path, ports: Mapping[str, int]) -> None:
    """Other ports, a second for what is half a minute, and nobody to be mailed."""
    here = f"http://127.0.0.1:{ports['8080']}"
    for name in ("prometheus.yml", "rules.yml", "alertmanager.yml"):
        text = _elsewhere((folder / name).read_text(encoding="utf-8"), ports)
        for was, now in (
            ("https://ntfy.lan", here),
            ("http://192.0.2.9:8080", here),
            ("scrape_timeout: 25s", "scrape_timeout: 1s"),
            (": 30s", ": 1s"),
            ("for: 5m", "for: 0s"),
            ("group_interval: 5m", "group_interval: 1s"),
            ("mail.example.org", "127.0.0.1"),
        ):
            text = text.replace(was, now)
        (folder / name).write_text(text, encoding="utf-8")


def _value(port: int, query: str) -> str:
    """The first figure that Prometheus answers to a query."""
    found = queried(port, query)
    return str(found[0]["value"][1]) if found else ""


def test_the_fleets_file_is_read_with_what_is_left_out() -> None:
    declared = fleet_of(NOBODY).monitoring
    assert declared
    assert (declared.retention, declared.rigs, declared.alerts.repeat) == (30, (), 43200)
    assert not declared.alerts.keys
