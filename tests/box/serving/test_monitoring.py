"""What watches a fleet on a real host: Prometheus and Alertmanager of its distribution, before real servers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest
from testinfra.host import Host

from tests.box.bench import Bench

pytestmark = [pytest.mark.rare]

UNITS = ("llamaherd-exporter", "llamaherd-prometheus", "llamaherd-alertmanager")
PORTS = (9090, 9093, 9100)
KEY = "sk-hook-canary-5c01"
HOOK = """
import http.server

class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        told = self.rfile.read(int(self.headers["Content-Length"]))
        with open("/root/hooked", "ab") as file:
            file.write(self.headers["Authorization"].encode() + b" " + told + b"\\n")
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", 9999), Hook).serve_forever()
"""


def declare(bench: Bench, text: str) -> None:
    """Make this the fleet's file."""
    (bench.folder / "fleet.yaml").write_text(text)


@pytest.fixture(scope="module")
def watched(converged: Bench) -> Iterator[Bench]:
    """The rig, watched by itself, which tells a program on it. Afterwards nothing of it is left but its memory."""
    (converged.folder / "hook").write_text(f"{KEY}\n")
    (converged.folder / "hook").chmod(0o600)
    declare(
        converged,
        "monitoring: {on: box, drift: true, "
        "alerts: {webhook: {url: 'http://127.0.0.1:9999/hook', key: {file: hook}}}}\n",
    )
    ended = converged.up()
    assert ended.code == 0, ended.output
    assert KEY not in ended.output
    yield converged
    declare(converged, "monitoring: null\n")
    ended = converged.up()
    assert ended.code == 0, ended.output
    left = converged.sh(f"ls /etc/systemd/system /etc/llamaherd | grep -E '{'|'.join(UNITS)}|monitoring'", check=False)
    again = converged.up()
    (converged.folder / "fleet.yaml").unlink()
    assert left == ""
    assert (again.code, again.changes) == (0, 0), again.output
    assert listening(converged) == set()


def listening(bench: Bench) -> set[str]:
    """Where any of its ports is open."""
    return {
        address
        for address in bench.sh("ss -Hltn | awk '{print $4}'").split()
        if int(address.rpartition(":")[2]) in PORTS
    }


def answered(bench: Bench, query: str) -> list[dict[str, str]]:
    """The labels of all that Prometheus answers."""
    said = bench.sh(f"curl -s -G --data-urlencode 'query={query}' http://127.0.0.1:9090/api/v1/query")
    return [each["metric"] for each in json.loads(said)["data"]["result"]]


def test_a_second_run_changes_nothing_and_verify_is_content(watched: Bench) -> None:
    before = watched.sh(f"systemctl show -P MainPID {' '.join(UNITS)}")
    again = watched.up()
    assert (again.code, again.changes) == (0, 0), again.output
    assert watched.sh(f"systemctl show -P MainPID {' '.join(UNITS)}") == before
    verified = watched.herd("verify", "-v", "box")
    assert verified.code == 0, verified.output
    assert "all targets respond" in verified.output


def test_each_server_is_asked_with_its_key(watched: Bench) -> None:
    deadline = time.monotonic() + 120
    servers = {f"box.{name}" for name in watched.rig()["instances"]}
    while {each["instance"] for each in answered(watched, 'up{job="server"} == 1')} != servers:
        assert time.monotonic() < deadline, answered(watched, "up")
        time.sleep(2)
    states = {each["name"] for each in answered(watched, 'node_systemd_unit_state{state="active"} == 1')}
    assert {"llama-chat.service", "llama-drafter.service"} & states == {"llama-chat.service"}


def test_a_drift_is_told_and_that_it_is_mended(watched: Bench) -> None:
    """By a look from here, as a timer would have it."""
    told_of = 'ALERTS{alertname="DriftFound",alertstate="firing"}'
    assert watched.herd("plan", "--tell").code == 0
    watched.sh("echo '# somebody was here' >>/etc/systemd/system/llamaherd-exporter.service")
    looked = watched.herd("plan", "--tell")
    assert looked.code == 2, looked.output
    until_answered(watched, told_of, ["box"])
    assert watched.up().code == 0
    assert watched.herd("plan", "--tell").code == 0
    until_answered(watched, told_of, [])


def until_answered(bench: Bench, query: str, rigs: list[str]) -> None:
    """Wait until Prometheus answers with these rigs."""
    deadline = time.monotonic() + 180
    while (found := [each["rig"] for each in answered(bench, query)]) != rigs:
        assert time.monotonic() < deadline, (query, found)
        time.sleep(5)


def test_it_is_confined_and_for_its_own_host_alone(asked: Host, watched: Bench) -> None:
    for unit in UNITS:
        assert asked.service(unit).is_running
        assert asked.service(unit).is_enabled
        said = asked.check_output(f"systemd-analyze security --no-pager {unit}")
        exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
        assert exposure
        assert float(exposure[1]) <= 2.5, said
    for package in ("prometheus", "prometheus-alertmanager", "prometheus-node-exporter"):
        assert not asked.service(package).is_running
        assert not asked.service(package).is_enabled
    assert listening(watched) == {f"127.0.0.1:{port}" for port in PORTS}
    assert asked.file("/etc/llamaherd/monitoring").mode == 0o700


def test_keys_are_where_they_must_be_and_nowhere_else(watched: Bench) -> None:
    for key in (KEY, watched.key()):
        found = watched.sh(f"grep -rlIF -- {key} /etc /run /var/lib/llamaherd* 2>/dev/null", check=False).split()
        assert [path for path in found if "/keys/" not in path and "/key" not in path] == []
        modes = watched.sh(f"stat -c '%a %U' {' '.join(path for path in found if 'monitoring' in path)}")
        assert set(modes.splitlines()) == {"600 llamaherd-monitor"}
        assert watched.sh(f"journalctl -q | grep -cF -- {key}", check=False) == "0"


@pytest.mark.rare
def test_people_are_told_of_a_server_that_is_away_and_that_it_is_back(watched: Bench) -> None:
    """For real: Prometheus waits for its minutes."""
    watched.sh(
        f"cat >/root/hook.py <<'END'\n{HOOK}\nEND\nrm -f /root/hooked; systemd-run -q --unit=hook python3 /root/hook.py"
    )
    watched.sh("systemctl stop llama-chat")
    try:
        told(watched, '"status":"firing"', "ServerDown", "box.chat", KEY)
    finally:
        watched.sh("systemctl start llama-chat")
    told(watched, '"status":"resolved"', "ServerDown", "box.chat", KEY)
    watched.sh("systemctl stop hook; rm -f /root/hooked /root/hook.py")


def told(bench: Bench, *words: str) -> None:
    """Wait until one message has all of these words."""
    deadline = time.monotonic() + 900
    while not [
        line
        for line in bench.sh("cat /root/hooked 2>/dev/null", check=False).splitlines()
        if all(word in line for word in words)
    ]:
        assert time.monotonic() < deadline, bench.sh("cat /root/hooked", check=False)
        time.sleep(5)
