"""Who reaches a server that stays on its own host: a neighbour with a route, and web pages of others."""

import re
from collections.abc import Iterator

import pytest

from tests.box.bench import PORTS, Bench
from tests.support.envelope import the_rig

NEIGHBOUR, HOST = "10.99.7.2", "10.99.7.1"
PUBLISHED = 8099


@pytest.fixture
def neighbour(converged: Bench) -> Iterator[Bench]:
    """A machine in the LAN of the host: a network namespace, linked to it, that sends it all it does not know."""
    converged.sh(
        "ip netns add neighbour && ip link add lan type veth peer name lan0 netns neighbour &&"
        f" ip addr add {HOST}/24 dev lan && ip link set lan up &&"
        f" ip -n neighbour addr add {NEIGHBOUR}/24 dev lan0 && ip -n neighbour link set lan0 up &&"
        f" ip -n neighbour route add default via {HOST}"
    )
    yield converged
    converged.sh("ip netns del neighbour; ip link del lan", check=False)


def answers(bench: Bench, url: str, *, inside: str = "ip netns exec neighbour") -> str:
    """The status that a URL answers with, `000` for none."""
    return bench.sh(f"{inside} curl -s -m 3 -o /dev/null -w '%{{http_code}}' '{url}'", check=False)


def addresses(bench: Bench) -> set[str]:
    """All of the host's own, and of its containers."""
    own = re.findall(r"inet ([\d.]+)/", bench.sh("ip -4 addr"))
    networks = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
    return {*own, *bench.sh(f"docker inspect -f '{networks}' $(docker ps -q)").split()} - {"127.0.0.1"}


@pytest.mark.parametrize("instance", PORTS)
def test_a_neighbour_with_a_route_finds_nothing(neighbour: Bench, instance: str) -> None:
    assert answers(neighbour, f"http://127.0.0.1:{PORTS[instance]}/health", inside="") == "200"
    for address in addresses(neighbour):
        assert answers(neighbour, f"http://{address}:{PORTS[instance]}/health") == "000", address


def test_a_neighbour_does_find_what_docker_publishes_on_loopback(neighbour: Bench) -> None:
    """What the test above would say of a container that is published: its neighbour is one that sends and hears."""
    image = neighbour.sh("docker inspect -f '{{.Image}}' llama-drafter")
    neighbour.sh(
        f"docker run -d --rm --name published -p 127.0.0.1:{PUBLISHED}:80 --entrypoint /usr/bin/busybox {image}"
        " httpd -f -p 80 -h /"
    )
    try:
        url = f"http://127.0.0.1:{PUBLISHED}/etc/os-release"
        neighbour.sh(f"timeout 300 sh -c 'until curl -fs -m 5 -o /dev/null {url}; do sleep 0.2; done'")
        address = neighbour.sh("docker inspect -f '{{.NetworkSettings.IPAddress}}' published")
        assert answers(neighbour, f"http://{address}:80/etc/os-release") == "200"
    finally:
        neighbour.sh("docker rm -f published")


@pytest.mark.parametrize(
    ("origin", "may"),
    [("https://evil.example", False), ("null", False), ("http://localhost:3000", True), ("http://127.0.0.1", True)],
)
def test_pages_of_others_may_not_read(converged: Bench, origin: str, may: bool) -> None:
    heads = converged.sh(
        f"curl -s -D - -o /dev/null -H 'Origin: {origin}' http://127.0.0.1:{PORTS['drafter']}/props;"
        f" curl -s -D - -o /dev/null -X OPTIONS -H 'Origin: {origin}' http://127.0.0.1:{PORTS['drafter']}/props"
    )
    allowed = re.findall(r"(?i)^access-control-allow-origin: *(.*?)\s*$", heads, re.MULTILINE)
    assert allowed == ([origin] * 2 if may else [])


@pytest.fixture
def in_the_lan(bench: Bench) -> Bench:
    """The rig, reached at its own address, with one server that is for others."""
    (address,) = re.findall(r"inet ([\d.]+)/", bench.sh("ip -4 -o addr show dev eth0"))
    known = bench.folder / "known_hosts"
    known.write_text(f"{address} {bench.host.known_hosts.read_text().split(' ', 1)[1]}")
    rig = bench.rig()
    rig["connect"] |= {"host": address, "port": 22, "known_hosts": str(known)}
    rig["instances"]["chat"]["listen"] = "0.0.0.0"
    bench.declare(rig)
    ended = bench.up()
    assert ended.code == 0, ended.output
    assert "from this machine" not in ended.output
    return bench


def reach(bench: Bench) -> dict[str, list[tuple[bool, str]]]:
    """What verification says of the ways to each instance."""
    ended = bench.herd("verify", "box", "--json")
    report = the_rig(ended.output)
    return {
        instance["name"]: [(check["ok"], check["detail"]) for check in instance["checks"] if check["name"] == "reach"]
        for instance in report["instances"]
    }


def test_a_firewall_that_shuts_a_declared_port_is_seen(in_the_lan: Bench) -> None:
    for verdict, words in (("DROP", "does not respond"), ("REJECT --reject-with tcp-reset", "is refused")):
        rule = f"INPUT -i eth0 -p tcp --dport {PORTS['chat']} -j {verdict}"
        in_the_lan.sh(f"iptables -I {rule}")
        try:
            said = reach(in_the_lan)
            ended = in_the_lan.up()
        finally:
            in_the_lan.sh(f"iptables -D {rule}")
        ((ok, detail),) = said["chat"]
        assert (ok, words in detail, "a firewall of the host" in detail) == (False, True, True), detail
        assert ended.code == 0, ended.output
        assert f":{PORTS['chat']} {words} from this machine" in ended.output
    said = reach(in_the_lan)
    ((ok, detail),) = said["chat"]
    assert ok, detail
    assert detail.endswith(f":{PORTS['chat']}, with the key")
    for name in ("drafter", "ik-chat"):
        assert said[name] == [(True, f"takes no connections of this machine at port {PORTS[name]}")]


def test_a_server_that_asks_nobody_for_its_key_is_seen(in_the_lan: Bench) -> None:
    """Somebody has started it by hand in its place, without the file of its key."""
    in_the_lan.sh(
        "set -- $(tr '\\0' '\\n' </proc/$(systemctl show -P MainPID llama-chat)/cmdline | "
        "grep -v -e api-key -e keys/ -e chat-template -e '{%'); systemctl stop llama-chat;"
        ' systemd-run -q --unit=stray "$@";'
        f" until curl -sf -o /dev/null http://127.0.0.1:{PORTS['chat']}/health; do sleep 0.2; done"
    )
    try:
        ((ok, detail),) = reach(in_the_lan)["chat"]
    finally:
        in_the_lan.sh("systemctl stop stray; systemctl start llama-chat")
    assert not ok
    assert f":{PORTS['chat']} without the API key that is declared (HTTP " in detail


def test_a_server_that_somebody_passes_connections_on_to_is_seen(in_the_lan: Bench) -> None:
    (address,) = re.findall(r"inet ([\d.]+)/", in_the_lan.sh("ip -4 -o addr show dev eth0"))
    port = PORTS["ik-chat"]
    in_the_lan.sh(
        f"systemd-run -q --unit=tunnel systemd-socket-activate -l {address}:{port} "
        f"/usr/lib/systemd/systemd-socket-proxyd 127.0.0.1:{port}; sleep 1"
    )
    try:
        ((ok, detail),) = reach(in_the_lan)["ik-chat"]
    finally:
        in_the_lan.sh("systemctl stop tunnel")
    assert not ok
    assert f"it can be used from this machine at {address}:{port}, and listens on 127.0.0.1 alone" in detail
