"""One endpoint for people on a real host: HAProxy of its distribution before real servers, asked by curl."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from testinfra.host import Host

from tests.box.bench import HERD, Bench
from tests.box.gateway import PORT, UNIT, Keys, ask, declare, fleet_text, gateway_keys, pids, until_answered, up
from tests.support.envelope import the_rig


@pytest.fixture(scope="module")
def keys(converged: Bench) -> Iterator[Keys]:
    """The rig as a gateway, and the key of a user."""
    with gateway_keys(converged) as made:
        yield made


def test_it_is_confined_and_the_distributions_own_unit_is_off(asked: Host, converged: Bench, keys: Keys) -> None:
    assert keys
    assert asked.service(UNIT).is_running
    assert asked.service(UNIT).is_enabled
    assert not asked.service("haproxy").is_running
    assert not asked.service("haproxy").is_enabled
    said = asked.check_output(f"systemd-analyze security --no-pager {UNIT}")
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert exposure
    assert float(exposure[1]) <= 2.5, said
    status = converged.sh(f"cat /proc/$(systemctl show -P MainPID {UNIT})/status")
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE), status
    assert asked.file("/etc/llamaherd/gateway").mode == 0o700
    assert asked.file("/etc/llamaherd/gateway/haproxy.cfg").mode == 0o600


def test_a_new_alias_is_a_reload_that_cuts_no_stream(converged: Bench, keys: Keys) -> None:
    before = pids(converged).split()
    body = '{"messages":[{"role":"user","content":"Hello"}],"max_tokens":600,"stream":true,"model":"coder"}'
    converged.sh(
        f"nohup curl -s -N -m 600 -H 'Authorization: Bearer {keys['tom']}' -d '{body}' "
        f"http://127.0.0.1:{PORT}/v1/chat/completions >/tmp/stream 2>&1 &"
    )
    text = fleet_text(converged)
    declare(converged, text.replace("port: 8090", "port: 8090\n  queue: {length: 9}"))
    up(converged)
    after = pids(converged).split()
    assert set(before) & set(after), "the process of the unit is the same"
    assert set(after) - set(before), "another one serves"
    assert ask(converged, keys["tom"], "small")[0] == 200
    deadline = time.monotonic() + 300
    while "[DONE]" not in converged.sh("tail -c 200 /tmp/stream", check=False):
        assert time.monotonic() < deadline, converged.sh("tail -c 500 /tmp/stream", check=False)
        time.sleep(1)


def test_a_configuration_that_is_none_leaves_all_as_it_was(converged: Bench, keys: Keys) -> None:
    before, text = pids(converged), fleet_text(converged)
    for name in ("cert", "certkey"):
        (converged.folder / name).write_text("no certificate\n")
        (converged.folder / name).chmod(0o600)
    declare(converged, text.replace("port: 8090", "port: 8090\n  tls: {certificate: cert, key: certkey}"))
    ended = converged.up()
    declare(converged, text)
    assert ended.code == 1, ended.output
    assert "the previous one still runs" in ended.output
    assert pids(converged) == before
    assert ask(converged, keys["tom"])[0] == 200
    again = converged.up()
    assert (again.code, again.changes) == (0, 0), again.output


def told(bench: Bench) -> str:
    """What a look says of the gateway."""
    said = bench.herd("plan", "-v")
    assert said.code == 2, said.output
    return next(line for line in said.output.splitlines() if "update gateway" in line)


def test_who_changed_its_configuration_is_told(converged: Bench, keys: Keys) -> None:
    """By what the host noted when it was written; where an earlier version wrote it, nobody can say."""
    config, note = "/etc/llamaherd/gateway/haproxy.cfg", "/var/lib/llamaherd/written/gateway"
    text = fleet_text(converged)
    assert keys
    kept = converged.sh(f"cat {config}; cp -p {note} /var/lib/note")
    converged.sh(f"echo '# by hand' >>{config}")
    assert told(converged).endswith(f"{config} has another text (drift)")
    converged.sh(f"rm {note}")
    assert told(converged).endswith(f"{config} has another text")
    converged.sh(f"cp -p /var/lib/note {note}")
    up(converged)
    assert converged.sh(f"cat {config}") == kept
    declare(converged, text.replace("aliases: [gpt-4o]", "aliases: [gpt-4o, gpt-5]"))
    assert told(converged).endswith(" has another text (the inventory has moved)")
    converged.sh(f"echo '# by hand' >>{config}")
    assert told(converged).endswith(" has another text (drift and the inventory has moved)")
    declare(converged, text)
    up(converged)
    again = converged.up()
    assert (again.code, again.changes) == (0, 0), again.output
    digests = converged.sh(f"sha256sum {config} /etc/llamaherd/gateway/*.map | cut -d ' ' -f 1").split()
    assert not set(digests) & set(converged.sh(f"cat {note}").split())


def test_a_gateway_that_is_killed_comes_back(converged: Bench, keys: Keys) -> None:
    converged.sh(f"systemctl kill -s KILL {UNIT}")
    until_answered(converged, keys["tom"])
    again = converged.up()
    assert (again.code, again.changes) == (0, 0), again.output


def test_while_a_server_is_away_the_fallback_answers(converged: Bench, keys: Keys) -> None:
    converged.sh("systemctl stop llama-chat")
    try:
        began = time.monotonic()
        while "x-herd-fallback: small" not in ask(converged, keys["tom"])[1]:
            assert time.monotonic() - began < 10
        assert time.monotonic() - began < 6
    finally:
        converged.sh("systemctl start llama-chat")
    until_answered(converged, keys["tom"])


@pytest.fixture
def opened(bench: Bench, keys: Keys) -> Iterator[Bench]:
    """The server of `small` listens for others and names no key. Afterwards all is as before, and its key is gone."""
    assert keys
    rig = bench.rig()
    rig["instances"]["drafter"]["listen"] = "0.0.0.0"
    bench.declare(rig)
    yield bench
    (bench.folder / "keys/rigs/box").unlink(missing_ok=True)


def from_outside(bench: Bench, key: str = "") -> str:
    """The status that the server of `small` gives to another machine."""
    (address,) = re.findall(r"inet ([\d.]+)/", bench.sh("ip -4 -o addr show dev eth0"))
    argv = ["curl", "-s", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", f"http://{address}:8081/v1/models"]
    argv += ["-H", f"Authorization: Bearer {key}"] if key else []
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def test_a_server_that_others_reach_is_given_a_key(opened: Bench, keys: Keys) -> None:
    """It asks for it, the gateway knows it, nobody is shown it, and no run from elsewhere changes it."""
    file = opened.folder / "keys/rigs/box"
    looked = opened.herd("plan")
    assert looked.code == 2, looked.output
    assert not file.exists()
    output = up(opened)
    assert f"made {file}, the key of servers of rig box" in output
    key = file.read_text().strip()
    assert (from_outside(opened), from_outside(opened, "wrong"), from_outside(opened, key)) == ("401", "401", "200")
    assert ask(opened, keys["tom"], "small")[0] == 200
    again, verified = opened.up(), opened.herd("verify", "box")
    assert (again.code, again.changes) == (0, 0), again.output
    assert verified.code == 0, verified.output
    told = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; journalctl -q; cat /var/lib/llamaherd/releases/*"
    assert key not in opened.sh(told, check=False)
    file.unlink()
    refused = opened.up()
    assert (refused.code, "error LH024" in refused.output) == (2, True), refused.output
    assert from_outside(opened, key) == "200"
    file.write_text(f"{key}\n")
    again = opened.up()
    assert (again.code, again.changes) == (0, 0), again.output
    for said in (looked, verified, refused, again):
        assert key not in said.output + output


PAIR = ("coder: {serve: [box.chat], aliases: [gpt-4o], fallback: small}", "coder: {serve: [box.chat, box.drafter]}")
"""Two servers of one model, as the fleet's file says it, and what that says until then."""


@pytest.fixture(scope="module")
def pair(converged: Bench, keys: Keys) -> Iterator[Bench]:
    """Both servers answer for one model, and for nothing else, in all tests from here on."""
    assert keys
    text, rig = fleet_text(converged), converged.rig()
    paired = re.sub(r"    small: \{serve.*\n", "", text.replace(*PAIR))
    assert paired.count("serve:") == 1
    declare(converged, paired)
    up(converged)
    yield converged
    declare(converged, text)
    converged.declare(rig)
    up(converged)


def states(bench: Bench) -> dict[str, str]:
    """How the gateway says that its servers are."""
    said = the_rig(bench.herd("gateway", "status", "--json").output)
    return {server["name"]: server["state"] for model in said["models"] for server in model["servers"]}


def smaller(bench: Bench, context: int) -> None:
    """Both servers are declared otherwise."""
    rig = bench.rig()
    for instance in rig["instances"].values():
        instance["context"] = context
    bench.declare(rig)


@contextmanager
def clients(bench: Bench, key: str) -> Iterator[Callable[[], list[str]]]:
    """Two people who ask without a pause: how each answer ended. What the model says may hold the word error."""
    body = json.dumps({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 24, "model": "coder"})
    loop = (
        "while [ -e /tmp/asking ]; do curl -s -m 60 -o /tmp/answer-$i -w '%{http_code} %header{x-herd-instance}\\n' "
        f"-H 'Authorization: Bearer {key}' -d '{body}' http://127.0.0.1:{PORT}/v1/chat/completions"
        " | grep . || echo none; grep '\"error\":' /tmp/answer-$i; done >>/tmp/asked"
    )
    bench.sh(f"rm -f /tmp/asked; touch /tmp/asking; for i in 1 2; do ({loop}) </dev/null 2>&1 & done")
    try:
        yield lambda: bench.sh("cat /tmp/asked").splitlines()
    finally:
        bench.sh("rm -f /tmp/asking; sleep 1")


def test_a_change_of_both_servers_of_a_model_is_seen_by_nobody(pair: Bench, keys: Keys) -> None:
    smaller(pair, 2048)
    with clients(pair, keys["tom"]) as asked:
        output = up(pair)
    for server in ("box.chat", "box.drafter"):
        assert f"box sends no new requests to {server}" in output
        assert f"box sends to {server} again" in output
    ended = [line.split() for line in asked()]
    assert len(ended) > 20
    assert {status for status, *_ in ended} == {"200"}, ended
    assert {by for _, *rest in ended for by in rest} == {"box.chat", "box.drafter"}
    assert states(pair) == {"box.chat": "up", "box.drafter": "up"}
    assert pair.sh("systemctl list-units --plain --no-legend 'llamaherd-ready-*'") == ""


def test_a_run_that_is_killed_leaves_no_server_out(pair: Bench, keys: Keys) -> None:
    smaller(pair, 3072)
    pair.killed(signal.SIGKILL, lambda line: "sends no new requests to box.chat" in line, [HERD, "up", "-v", "--yes"])
    assert states(pair)["box.chat"] == "draining"
    assert "box.chat is drained by `herd up` or a measurement" in pair.herd("gateway", "status").output
    # The timer would do it in some minutes: here it does so now, as the next run does, too.
    pair.sh("systemctl start llamaherd-ready-box.chat.service")
    assert states(pair)["box.chat"] == "up"
    assert keys
    output = up(pair)
    assert "box sends to box.drafter again" in output
    assert states(pair) == {"box.chat": "up", "box.drafter": "up"}


COMPARED = ("compare", "--run", "box/chat", "--with", "context=512", "--cells", "prefill", "--budget", "30s", "--yes")
TIMERS = "systemctl list-units --plain --no-legend 'llamaherd-ready-*'"


def test_a_server_that_is_stopped_to_be_compared_is_missed_by_nobody(pair: Bench, keys: Keys) -> None:
    with clients(pair, keys["tom"]) as asked:
        compared = pair.herd(*COMPARED)
    assert compared.code == 0, compared.output
    said = compared.output
    assert "box sends no new requests to box.chat" in said
    assert said.index("llama-chat is as before") > said.index("box sends to box.chat again") > said.index("block 1")
    ended = [line.split() for line in asked()]
    assert len(ended) > 10
    assert {status for status, *_ in ended} == {"200"}, ended
    assert states(pair) == {"box.chat": "up", "box.drafter": "up"}
    assert pair.sh(TIMERS) == ""


def test_a_server_is_benched_alone_and_comes_back(pair: Bench, keys: Keys) -> None:
    assert keys
    benched = pair.herd("bench", "box/chat", "--time", "10s", "--anyway")
    assert "box sends no new requests to box.chat" in benched.output
    assert "box sends to box.chat again" in benched.output
    assert states(pair) == {"box.chat": "up", "box.drafter": "up"}
    assert pair.sh(TIMERS) == ""


@pytest.mark.parametrize(
    "words",
    [["bench", "box/chat", "--time", "5m", "--anyway"], [*COMPARED[:-2], "10m", "--yes"]],
    ids=["bench", "compare"],
)
def test_a_measurement_that_is_killed_leaves_no_server_out(pair: Bench, keys: Keys, words: list[str]) -> None:
    assert keys
    pair.killed(signal.SIGKILL, lambda line: "sends no new requests to box.chat" in line, [HERD, *words])
    assert states(pair)["box.chat"] == "draining"
    # Within a quarter of an hour its timer does it.
    assert "llamaherd-ready-box.chat.timer" in pair.sh(TIMERS)
    pair.sh("systemctl start llamaherd-ready-box.chat.service")
    assert states(pair)["box.chat"] != "draining"
    # What was stopped to be compared with is brought back by the host itself, and loads.
    until = time.monotonic() + 300
    while states(pair)["box.chat"] != "up":
        assert time.monotonic() < until
        time.sleep(0.3)


@pytest.mark.rare
def test_one_that_somebody_has_drained_stays_so(pair: Bench, keys: Keys) -> None:
    assert keys
    assert pair.herd("drain", "box/chat").code == 0
    smaller(pair, 1024)
    output = up(pair)
    assert "nothing new to box.chat" not in output
    assert "continues sending to box.drafter: no other server serves coder" in output
    assert states(pair) == {"box.chat": "draining", "box.drafter": "up"}
    assert pair.herd("ready", "box/chat").code == 0
