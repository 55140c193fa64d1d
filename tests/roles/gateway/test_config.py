"""What HAProxy reads, by HAProxy itself; and our program that tells it of users while it runs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamaherd.plan import GatewayPlan
from roles.gateway.config import GatewayKeys, configuration, maps, spec_of
from tests.support.gateway import (
    KEYS,
    REVOKED,
    Upstream,
    check,
    free_port,
    gateway_of,
    gateway_plans,
    key_hashes,
    keys_of,
    made,
    rig_at,
    running,
    until,
    write_files,
)


@pytest.mark.parametrize("number", [0, 1], ids=["in the clear", "with a certificate"])
def test_haproxy_takes_what_is_written(tmp_path: Path, number: int) -> None:
    plan = gateway_of(gateway_plans()[number])
    pem = None
    if plan.certificate:
        made_by = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=gateway -keyout k -out c"
        subprocess.run(made_by.split(), cwd=tmp_path, check=True, capture_output=True)
        pem = (tmp_path / "c").read_text() + (tmp_path / "k").read_text()
    write_files(plan, keys_of(plan, pem=pem), tmp_path)
    config = tmp_path / "haproxy.cfg"
    config.write_text(config.read_text().replace("duo.lan", "192.0.2.7"))  # a name that is known where it runs
    done = check(tmp_path)
    assert (done.returncode, re.findall("WARNING|ALERT", done.stderr)) == (0, []), done.stderr


@pytest.mark.parametrize(
    "key", ["a'b", 'a"b', "a\\b", "a%b", "%[env(HOME)]", "$HOME", "${HOME}", "#a", "a{b}", "~!@^&*()[]|;:,.<>?/`", "é"]
)
def test_a_servers_key_reaches_it_whatever_is_in_it(tmp_path: Path, key: str) -> None:
    server = Upstream()
    plan = made(f"gateway: {{on: [box], port: {free_port()}, users: {{tom: {{key: {{env: A}}}}}}, "
                "models: {coder: {serve: [box.one]}}}", [rig_at({"one": server.port})])  # fmt: skip
    try:
        with running(plan, tmp_path, GatewayKeys(key_hashes({"tom": KEYS["tom"]}), {"coder": key})) as gateway:
            until(lambda: gateway.ask().status == 200)
            sent = server.seen[-1].headers["authorization"]
            assert sent.encode("latin-1").decode() == f"Bearer {key}"
    finally:
        server.stop()


def plan_of(*users: str, models: str = "models: {coder: {serve: [box.one]}, small: {serve: [box.one]}}") -> GatewayPlan:
    declared = ", ".join(f"{name}: {{key: {{env: {name.upper()}}}}}" for name in users)
    return made(f"gateway: {{on: [box], port: 8000, users: {{{declared}}}, {models}}}", [rig_at({"one": 8001})])


def test_users_are_in_maps_alone() -> None:
    one, two = plan_of("tom"), plan_of("tom", "ann")
    assert configuration(one, keys_of(one)) == configuration(two, keys_of(two))
    assert list(maps(one, keys_of(one))) != list(maps(two, keys_of(two)))


def test_a_certificate_or_a_servers_key_is_another_configuration() -> None:
    plan = plan_of("tom")
    keys = keys_of(plan)
    others = [
        GatewayKeys(keys.users, keys.servers, "a certificate"),
        GatewayKeys(keys.users, keys.servers, "another one"),
        GatewayKeys(keys.users, dict.fromkeys(keys.servers, "another key")),
        keys,
    ]
    assert len({spec_of(configuration(plan, each).text) for each in others}) == 4


def test_a_map_has_no_blank_but_the_one_that_ends_a_word() -> None:
    plan = gateway_of(gateway_plans()[0])
    for file in maps(plan, keys_of(plan)):
        assert all(line.count(" ") == 1 for line in file.text.splitlines()), file.path
        assert file.text.isascii()
        assert (file.mode, file.owner) == ("0600", "llamaherd-gateway")


NAMES = st.lists(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,8}", fullmatch=True), min_size=1, max_size=5, unique=True)


@settings(max_examples=25)
@given(NAMES, NAMES, st.data())
def test_every_name_leads_to_a_server_and_every_fallback_is_followed_in_one_pass(
    models: list[str], users: list[str], data: st.DataObject
) -> None:
    chain = {name: models[n + 1] for n, name in enumerate(models[:-1]) if data.draw(st.booleans())}
    declared = {
        "gateway": {
            "on": ["box"],
            "users": {
                name: {"key": {"env": "A"}, "models": data.draw(st.lists(st.sampled_from(models)))} for name in users
            },
            "models": {name: {"serve": ["box.one"], "fallback": chain.get(name)} for name in models},
        }
    }
    plan = made(json.dumps(declared), [rig_at({"one": 8001})])
    keys = GatewayKeys(key_hashes({name: name for name in users}), {})
    config = configuration(plan, keys).text
    backends = set(re.findall(r"^backend (m_\S+)$", config, re.MULTILINE))
    assert backends == {f"m_{name}" for name in models}
    named = {
        line.split(" ")[1] for file in maps(plan, keys) if "models" in file.path for line in file.text.splitlines()
    }
    assert named <= backends
    order = re.findall(r"set-var\(txn.backend\) str\(m_(\S+)\) if \{ var\(txn.backend\) -m str m_(\S+) \}", config)
    for model in models:
        at = model
        for fallback, falling in order:
            at = fallback if at == falling else at
        last = model
        while last in chain:
            last = chain[last]
        assert at == last, "where nothing answers, one pass leads to the end of the chain"


def test_servers_of_other_rigs_are_asked_at_their_address() -> None:
    plan = gateway_of(gateway_plans()[0])
    at = {server.name: (server.address, server.port, server.streams) for m in plan.models for server in m.servers}
    assert at["box.chat"] == ("127.0.0.1", 8080, 2)
    assert at["duo.reasoner"] == ("duo.lan", 8001, 1)


def test_a_server_that_cannot_say_how_it_is_while_it_reads_is_given_time() -> None:
    config = configuration(plan := gateway_of(gateway_plans()[0]), keys_of(plan)).text
    backend = config.partition("backend m_last")[2]  # ik_llama.cpp's
    assert "timeout check 30m" in backend
    assert "timeout check 30m" not in config.partition("backend m_coder")[2].partition("backend ")[0]


def test_only_a_low_port_gives_a_capability() -> None:
    high, low = (gateway_of(each).unit.text for each in gateway_plans())
    assert "\nCapabilityBoundingSet=\n" in high
    assert "AmbientCapabilities" not in high
    assert "\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n" in low


def test_a_user_comes_and_goes_while_the_gateway_runs(tmp_path: Path) -> None:
    """No reload: the process that runs is told, a stream goes on, and what it was told is what lies in the files."""
    server = Upstream()
    port = free_port()

    def of(*users: str) -> GatewayPlan:
        declared = ", ".join(f"{name}: {{key: {{env: A}}}}" for name in users)
        text = f"gateway: {{on: [box], port: {port}, users: {{{declared}}}, models: {{coder: {{serve: [box.one]}}}}}}"
        return made(text, [rig_at({"one": server.port})])

    before, after = of("tom", "bob"), of("tom", "ann")
    known = {**KEYS, "bob": REVOKED}
    try:
        with running(before, tmp_path, keys_of(before, known)) as gateway:
            until(lambda: gateway.ask(key=REVOKED).status == 200)
            spec = spec_of(configuration(before, keys_of(before, known)).text)
            assert gateway.talk("state").stdout == f"{spec} same\n"
            write_files(after, keys_of(after, known), tmp_path)
            assert gateway.talk("state").stdout == f"{spec} other\n"
            assert gateway.ask(key=KEYS["ann"]).status == 401
            assert gateway.talk("maps").returncode == 0
            assert gateway.talk("state").stdout == f"{spec} same\n"
            assert [gateway.ask(key=key).status for key in (KEYS["tom"], KEYS["ann"], REVOKED)] == [200, 200, 401]
            assert "Reexecuting" not in gateway.log
    finally:
        server.stop()


def test_a_thousand_users_are_told_at_once(tmp_path: Path) -> None:
    text = f"gateway: {{on: [box], port: {free_port()}, models: {{coder: {{serve: [box.one]}}}}}}"
    plan = made(text, [rig_at({"one": 8001})])
    with running(plan, tmp_path) as gateway:
        lines = [f"{n:064x} user-{n}" for n in range(1000)]
        (tmp_path / "keys.map").write_text("\n".join([*lines, ""]))
        assert gateway.talk("maps").returncode == 0
        assert gateway.talk("state").stdout.endswith(" same\n")


def test_a_gateway_that_does_not_run_is_said(tmp_path: Path) -> None:
    program = Path(__file__).parents[3] / "templates/gateway/gateway-talk.py"
    environment = {"GATEWAY_SOCKET": str(tmp_path / "none"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["python3", str(program), "state"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
