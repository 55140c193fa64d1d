"""Ports that change hands between instances, and an instance that cannot be made to run: what becomes of the others."""

from __future__ import annotations

import json

import pytest

from tests.box.bench import PORTS, Bench

UNIT = "/etc/systemd/system/llama-chat.service"


def serves(bench: Bench, name: str, port: int) -> bool:
    """Whether the process of this unit, and no other, answers there."""
    header = f"-H 'Authorization: Bearer {bench.key()}'"
    said = bench.sh(f"curl -s -m 300 {header} http://127.0.0.1:{port}/props", check=False)
    process = bench.sh(f"ss -ltnpH 'sport = :{port}'", check=False)
    return bool(json.loads(said or "{}")) and f"pid={bench.sh(f'systemctl show -P MainPID llama-{name}')}," in process


@pytest.mark.parametrize(
    "ports",
    [
        pytest.param({"chat": PORTS["ik-chat"], "ik-chat": PORTS["chat"]}, marks=pytest.mark.rare),
        pytest.param({"chat": PORTS["ik-chat"], "ik-chat": 8090}, marks=pytest.mark.rare),
        {"chat": PORTS["drafter"], "drafter": PORTS["ik-chat"], "ik-chat": PORTS["chat"]},
    ],
    ids=["swapped", "handed on", "round all three, across backends"],
)
def test_ports_change_hands_in_one_run(bench: Bench, ports: dict[str, int]) -> None:
    rig = bench.rig()
    for name, port in ports.items():
        rig["instances"][name]["port"] = port
    bench.declare(rig)
    ended = bench.up()
    assert ended.code == 0, ended.output
    for name in ("chat", "ik-chat"):
        assert serves(bench, name, ports.get(name, PORTS[name])), name
    again = bench.deploy()
    assert (again.code, again.changes) == (0, 0), again.output


def test_an_instance_that_cannot_be_started_keeps_no_other_down(bench: Bench) -> None:
    rig = bench.rig()
    for name in PORTS:
        rig["instances"][name]["context"] = 2048
    bench.declare(rig)
    before = bench.running()
    bench.sh(f"systemctl stop llama-chat; rm {UNIT}; mkdir {UNIT}")
    try:
        ended = bench.up()
    finally:
        bench.sh(f"rmdir {UNIT}")
    assert ended.code == 1, ended.output
    assert ended.output.count(f"cannot write {UNIT}") == 2, "where it happens, and once more in the end"
    after = bench.running()
    assert [name for name in ("ik-chat", "drafter") if before[name] == after[name]] == []
    bench.finishes()
