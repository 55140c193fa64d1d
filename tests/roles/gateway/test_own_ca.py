"""A gateway with a certificate of a CA of our own: the real HAProxy, and clients that verify it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from llamaherd.cli.herd import main
from llamaherd.inventory.authority import KEY, ROOT, make_root
from llamaherd.inventory.certificates import LIFE
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.onhost.system import Host
from llamaherd.plan import GatewayPlan
from roles.gateway import gateway_checks, probes, read_keys
from roles.gateway.config import configuration, spec_of
from tests.support.gateway import (
    KEYS,
    SERVERS_KEY,
    Running,
    Upstream,
    free_port,
    gateway_plans,
    made,
    rig_at,
    running,
    until,
    write_files,
)
from tests.support.ours import probed

NOW = datetime.now(UTC)
AGES = NOW - 2 * LIFE


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", KEYS["tom"])
    monkeypatch.setenv("SERVERS_KEY", SERVERS_KEY)


@pytest.fixture(name="server")
def _server() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.stop()


@pytest.fixture(name="plan")
def _plan(tmp_path: Path, server: Upstream) -> GatewayPlan:
    (tmp_path / "haproxy").mkdir()
    make_root(tmp_path / "ca", AGES)
    text = f"gateway: {{on: [box], port: {free_port()}, tls: {{ca: {tmp_path}/ca, names: [LLM.lan, 192.0.2.9]}}, "
    text += "users: {tom: {key: {env: A}}}, models: {coder: {serve: [box.one]}}}"
    return made(text, [rig_at({"one": server.port}, {"connect/host": "box.lan"})])


def refused(gateway: Running, name: str, root: Path) -> str | None:
    """Why a client by this name does not take the gateway's certificate; None where it does."""
    context = ssl.create_default_context(cafile=str(root))
    try:
        with (
            socket.create_connection(("127.0.0.1", gateway.plan.port), timeout=10) as line,
            context.wrap_socket(line, server_hostname=name),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return error.verify_message


def curl(gateway: Running, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """What curl is told of the models, as Tom."""
    command = ["curl", "-sS", "-q", "--noproxy", "*", "-H", "@-", *map(str, words)]
    url = f"https://localhost:{gateway.plan.port}/v1/models"
    key = f"Authorization: Bearer {KEYS['tom']}\n"
    return subprocess.run([*command, url], input=key, capture_output=True, text=True, timeout=30, check=False)


def test_it_is_made_out_to_all_that_the_gateway_is_called(plan: GatewayPlan) -> None:
    assert plan.names == ("127.0.0.1", "192.0.2.9", "::1", "box.lan", "llm.lan", "localhost")


def test_who_trusts_the_root_can_ask_and_nobody_else(plan: GatewayPlan, tmp_path: Path) -> None:
    make_root(tmp_path / "other")
    with running(plan, tmp_path / "haproxy", read_keys(plan)) as gateway:
        assert json.loads(curl(gateway, "--cacert", tmp_path / "ca" / ROOT).stdout)["data"][0]["id"] == "coder"
        assert curl(gateway, "--cacert", tmp_path / "other" / ROOT).returncode == 60
        assert curl(gateway).returncode == 60
        for name in plan.names:
            assert refused(gateway, name, tmp_path / "ca" / ROOT) is None, name
        assert "mismatch" in (refused(gateway, "porch.lan", tmp_path / "ca" / ROOT) or "")


def test_http2_is_refused_also_without_its_name(plan: GatewayPlan, tmp_path: Path) -> None:
    """A client may begin with HTTP/2 although HTTP/1.1 is all that the gateway offers."""
    context = ssl.create_default_context(cafile=str(tmp_path / "ca" / ROOT))
    with (
        running(plan, tmp_path / "haproxy", read_keys(plan)),
        socket.create_connection(("127.0.0.1", plan.port), timeout=10) as line,
        context.wrap_socket(line, server_hostname="localhost") as secure,
    ):
        secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        assert secure.recv(100).startswith(b"HTTP/1.1 400 ")


def test_programs_of_node_trust_it(plan: GatewayPlan, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node")
    with running(plan, tmp_path / "haproxy", read_keys(plan)) as gateway:
        answers = "then(answer => console.log(answer.status), why => console.log(why.cause.code))"
        script = f"fetch('https://localhost:{plan.port}/healthz').{answers}"
        for trusted, said in ((tmp_path / "ca" / ROOT, "200"), (Path("/dev/null"), "UNABLE_TO_VERIFY_LEAF_SIGNATURE")):
            env = {"NODE_EXTRA_CA_CERTS": str(trusted), "PATH": os.environ["PATH"]}
            done = subprocess.run(
                [node, "-e", script], env=env, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.stdout.strip() == said, done.stderr
        assert gateway.process.poll() is None


def test_one_that_has_ended_is_refused_and_the_next_run_brings_another(
    plan: GatewayPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the run that signs is what is changed: the certificate, HAProxy and clients are real."""
    root = tmp_path / "ca" / ROOT

    def run_at(now: datetime) -> str:
        monkeypatch.setattr("llamaherd.inventory.authority.datetime", type("Clock", (), {"now": lambda _: now}))
        keys = read_keys(plan)
        write_files(plan, keys, tmp_path / "haproxy")
        return spec_of(configuration(plan, keys).text)

    first = run_at(NOW - LIFE - timedelta(days=1))
    with running(plan, tmp_path / "haproxy", read_keys(plan)) as gateway:
        assert refused(gateway, "box.lan", root) == "certificate has expired"
        assert run_at(NOW - LIFE - timedelta(days=1)) == first, "nothing is to be done before it is time"
        second = run_at(NOW)
        assert second != first, "the host is told by its state that a reload is due"
        assert run_at(NOW + timedelta(days=200)) == second
        gateway.reload()
        until(lambda: refused(gateway, "box.lan", root) is None)
        assert gateway.talk("state").stdout == f"{second} same\n"


def test_the_cas_key_goes_nowhere(plan: GatewayPlan, tmp_path: Path) -> None:
    """Not into what a host is given, nor into a plan; the certificate's own key is in no plan either."""
    keys = read_keys(plan)
    write_files(plan, keys, tmp_path / "haproxy")
    secret = (tmp_path / "ca" / KEY).read_text().splitlines()[1]
    sent = "".join(file.read_text() for file in (tmp_path / "haproxy").iterdir())
    assert sent.count("BEGIN PRIVATE KEY") == 1
    assert secret not in sent
    assert "PRIVATE" not in plan.model_dump_json() + repr(keys)


def test_verify_asks_by_the_root(plan: GatewayPlan, tmp_path: Path) -> None:
    """The probes themselves, by curl: right, and with another CA's certificate in the gateway."""
    whole = gateway_plans()[0].model_copy(update={"gateway": plan})
    make_root(tmp_path / "other")
    foreign = read_keys(plan.model_copy(update={"authority": tmp_path / "other"}))
    for keys, ok in ((read_keys(plan), True), (foreign, False)):
        with running(plan, tmp_path / "haproxy", keys) as gateway:
            until(lambda at=gateway: curl(at, "-k").returncode == 0)
            answers = probed(probes(whole), Host(print, print))
        (check,) = [each for each in gateway_checks(plan, answers, "box") if each.name == "gateway certificate"]
        assert check.ok is ok, check.detail
        assert "certificate" in check.detail or ok


def test_what_is_printed_for_clients_works(plan: GatewayPlan, tmp_path: Path, server: Upstream) -> None:
    """`herd gateway ca` and `herd clients curl`, from an inventory, against the gateway that it becomes."""
    rig = rig_at({"one": server.port}, {"connect/host": "localhost"})
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    declared = (
        f"gateway:\n  on: [box]\n  port: {plan.port}\n  tls: {{ca: ../ca}}\n  users: {{tom: {{key: {{env: A}}}}}}\n"
    )
    (fleet / "fleet.yaml").write_text(f"{declared}  models: {{coder: {{serve: [box.one]}}}}\n")
    (fleet / "box.yaml").write_text(json.dumps(rig.model_dump(mode="json", exclude_unset=True)))
    assert Rig.model_validate(read_yaml(fleet / "box.yaml").data) == rig
    told = CliRunner().invoke(main, ["clients", "curl", "--user", "tom", "-i", str(fleet)])
    assert f"--cacert {tmp_path}/ca/root.pem" in told.stdout, told.output
    with running(plan, tmp_path / "haproxy", read_keys(plan)) as gateway:
        until(lambda: curl(gateway, "-k").returncode == 0)
        env = {"PATH": os.environ["PATH"], "HERD_KEY": KEYS["tom"]}
        done = subprocess.run(["sh"], input=told.stdout, env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"by": server.port}
    assert json.loads(server.seen[-1].body)["model"] == "coder"
