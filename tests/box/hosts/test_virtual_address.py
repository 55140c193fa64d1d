"""Two hosts with one address: real systemd, keepalived and HAProxy, in the unit that is deployed."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from box import tiny_moe
from box.cli import BOX, TINY_MOE
from box.host import BoxHost
from tests.box.bench import HERD, Ended, run
from tests.box.slot import PORTS_OF_A_SLOT, SLOT, slotted
from tests.support.gateway import until

PARTS = ("base", "gateway", "virtual_address")
"""Without servers behind it a gateway answers who asks it, and says that no server does: that is enough here."""


@dataclass(frozen=True)
class Pair:
    """Two hosts, the folder that their inventory lies in, and the address."""

    hosts: dict[str, BoxHost]
    folder: Path
    address: str

    def herd(self, *arguments: str) -> Ended:
        """A command of `herd` about both."""
        return run([HERD, "-i", str(self.folder), *arguments], {**os.environ, "NO_COLOR": "1", "TOM_KEY": "herd-tom"})

    def up(self) -> Ended:
        """What is declared of both, but for servers."""
        return self.herd("up", "-v", *(word for part in PARTS for word in ("--only", part)))

    def sh(self, name: str, script: str, *, check: bool = True) -> str:
        """A shell script on a host, past SSH."""
        return self.hosts[name].exec("sh", "-c", script, check=check).strip()

    @property
    def owners(self) -> list[str]:
        """The hosts that have the address, by what their kernels say."""
        return [name for name in self.hosts if f" {self.address}/32 " in self.sh(name, "ip -o address show")]

    def answered(self, by: str) -> bool:
        """Whether a request from a host to the address is answered."""
        asked = f"curl -s -o /dev/null -w '%{{http_code}}' --max-time 1 http://{self.address}:8000/v1/models"
        return self.sh(by, asked, check=False) == "401"


def _address(host: BoxHost) -> str:
    return host.exec("sh", "-c", "ip -o -4 address show dev eth0 | awk '{print $4}'").strip().partition("/")[0]


def _declare(pair: Pair, known: dict[str, str], *, shared: bool = True) -> None:
    for name, host in pair.hosts.items():
        connect = {"host": "127.0.0.1", "port": host.port, "user": "owner"}
        connect |= {"key": str(host.key), "known_hosts": str(host.known_hosts)}
        chat = {"engine": "main", "model": "tiny", "context": 512, "port": 8080, "backend": "compose"}
        rig = {
            "rig": name,
            "connect": connect,
            "host": {"os": "debian-13", "cpu": {"cores": 2}, "ram": "8GB"},
            "engines": {"main": {"kind": "llama.cpp", "image": f"box.invalid/llama@sha256:{'ab' * 32}"}},
            "store": {"share": {"address": known[name]}},
            "models": {"tiny": {"file": str(TINY_MOE), "sha256": hashlib.sha256(TINY_MOE.read_bytes()).hexdigest()}},
            "instances": {"chat": {**chat, "listen": "0.0.0.0", "api_key": {"env": "TOM_KEY"}}},
        }
        (pair.folder / f"{name}.yaml").write_text(yaml.safe_dump(rig))
    gateway = {"on": [*pair.hosts], "listen": "0.0.0.0", "users": {"tom": {"key": {"env": "TOM_KEY"}}}}
    gateway |= {"models": {"chat": {"serve": [f"{name}.chat" for name in pair.hosts]}}}
    gateway |= {"address": pair.address} if shared else {}
    (pair.folder / "fleet.yaml").write_text(yaml.safe_dump({"gateway": gateway}))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both as planned, from nothing."""
    TINY_MOE.parent.mkdir(parents=True, exist_ok=True)
    tiny_moe.write(TINY_MOE)
    hosts = {}
    for number, name in enumerate(("attic", "porch")):
        called = slotted(f"llamaherd-address-{name}")
        hosts[name] = BoxHost(called, 2280 + PORTS_OF_A_SLOT * SLOT + number, BOX / called, caches=called)
    try:
        for host in hosts.values():
            host.up()
        known = {name: _address(host) for name, host in hosts.items()}
        # The last but one of Docker's network: it gives addresses away from the first one on.
        address = ".".join([*known["attic"].split(".")[:2], "255", "253"])
        made = Pair(hosts, tmp_path_factory.mktemp("fleet"), address)
        _declare(made, known)
        ended = made.up()
        assert ended.code == 0, ended.output
        yield made
    finally:
        if not os.environ.get("LLAMAHERD_KEEP"):
            for host in hosts.values():
                host.down()
                for volume in host.cache_volumes:
                    subprocess.run(["docker", "volume", "rm", "-f", volume], check=False, capture_output=True)


def test_one_of_both_has_it_and_a_second_run_changes_nothing(pair: Pair) -> None:
    until(lambda: len(pair.owners) == 1, 15)
    (owner,) = pair.owners
    assert pair.answered("attic")
    assert pair.answered("porch")
    ended = pair.up()
    assert ended.code == 0, ended.output
    assert "virtual address" not in ended.output
    said = pair.herd("gateway", "status")
    assert f"{pair.address} is on {owner}" in said.output
    verified = pair.herd("verify", "-v", owner).output
    assert f"{pair.address} is on this rig, and a gateway responds there" in verified


def test_it_moves_when_haproxy_is_gone_and_stays_when_that_is_back(pair: Pair) -> None:
    until(lambda: len(pair.owners) == 1, 15)
    (owner,) = pair.owners
    (other,) = {*pair.hosts} - {owner}
    pair.sh(owner, "systemctl stop llamaherd-gateway")
    until(lambda: pair.owners == [other] and pair.answered(owner), 8)
    pair.sh(owner, "systemctl start llamaherd-gateway && sleep 6")
    assert pair.owners == [other]
    pair.sh(other, "systemctl kill -s KILL llamaherd-address")
    until(lambda: pair.owners == [owner] and pair.answered(other), 8)


def test_it_goes_where_it_is_not_declared_any_more(pair: Pair) -> None:
    _declare(pair, {name: _address(host) for name, host in pair.hosts.items()}, shared=False)
    ended = pair.up()
    assert ended.code == 0, ended.output
    for name in pair.hosts:
        left = pair.sh(name, "ls -d /etc/llamaherd/address /etc/systemd/system/llamaherd-address.service 2>&1 || :")
        assert left.count("No such file") == 2
    assert pair.owners == []
