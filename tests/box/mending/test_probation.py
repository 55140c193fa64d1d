"""A server that fails soon after its switch: the host itself restores the previous version, without a controller."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box.bench import Bench, Declared
from tests.support.bad_engine import engine

PORT = 8090
WATCH = "llamaherd-probation-shaky"


def rig(bench: Bench, folder: Path, mode: str) -> Declared:
    """The rig with a server whose engine misbehaves in this way."""
    declared = bench.rig()
    declared["engines"]["bad"] = engine(folder)
    declared["instances"]["shaky"] = {
        "engine": "bad",
        "model": "tiny-moe",
        "context": 4096,
        "port": PORT,
        "environment": {"BAD_ENGINE": mode},
    }
    return declared


def spec(bench: Bench) -> str:
    pid = bench.sh("systemctl show -P MainPID llama-shaky")
    return bench.sh(f"tr '\\0' '\\n' </proc/{pid}/environ | grep ^LLAMAHERD_SPEC=", check=False) if pid != "0" else ""


def serves(bench: Bench) -> bool:
    ask = f"curl -s -m 2 -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{PORT}/v1/chat/completions"
    body = """-H 'Content-Type: application/json' -d '{"messages":[{"role":"user","content":"hi"}],"max_tokens":4}'"""
    return bench.sh(f"{ask} {body}", check=False) == "200"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine")


@pytest.fixture
def shaky(bench: Bench, folder: Path) -> Iterator[Bench]:
    """The rig with that server, which serves well."""
    bench.declare(rig(bench, folder, ""))
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    yield bench
    bench.sh(f"systemctl stop {WATCH}", check=False)


@pytest.mark.parametrize(
    ("mode", "longest"),
    [
        # Seconds from the end of `herd up` until the previous version serves again.
        ("die:2:0", 12),
        pytest.param("die:12:1", 22, marks=pytest.mark.rare),
        pytest.param("die:40:0", 50, marks=pytest.mark.rare),
        ("hang:3", 32),
        pytest.param("after:15:empty", 35, marks=pytest.mark.rare),
    ],
)
def test_the_host_restores_the_previous_version(shaky: Bench, folder: Path, mode: str, longest: float) -> None:
    good = spec(shaky)
    shaky.declare(rig(shaky, folder, mode))
    ended = shaky.up("--yes")
    assert ended.code == 0, ended.output
    assert spec(shaky) != good
    until = time.monotonic() + longest
    while spec(shaky) != good or not serves(shaky):
        assert time.monotonic() < until, shaky.sh(f"journalctl -u {WATCH} -u llama-shaky -n 40 --no-pager")
        time.sleep(0.2)
    for _ in range(50):
        if shaky.sh(f"systemctl is-active {WATCH}", check=False) == "inactive":
            break
        time.sleep(0.2)
    # The history and the next run report it, and the next run does not try it again.
    assert "llama-shaky serves again as before" in shaky.herd("history", "box").output
    again = shaky.up("--yes")
    assert again.code == 1, again.output
    assert "shaky serves as before: what is declared was tried on 20" in again.output
    assert spec(shaky) == good
    # The previous version is as it was declared before.
    shaky.declare(rig(shaky, folder, ""))
    ended = shaky.up("--yes")
    assert (ended.code, ended.changes) == (0, 0), ended.output


def test_a_container_that_ends_is_rolled_back(bench: Bench) -> None:
    """Docker starts it again at once, and counts that."""
    good = bench.sh("docker inspect -f '{{index .Config.Labels \"llamaherd.spec\"}}' llama-drafter")
    declared = bench.rig()
    declared["instances"]["drafter"]["context"] = 2048
    bench.declare(declared)
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    bench.sh("kill -9 $(docker inspect -f '{{.State.Pid}}' llama-drafter)")
    until = time.monotonic() + 30
    while (
        bench.sh(
            "docker inspect -f '{{.State.Health.Status}} {{index .Config.Labels \"llamaherd.spec\"}}' llama-drafter",
            check=False,
        )
        != f"healthy {good}"
    ):
        assert time.monotonic() < until, bench.sh("journalctl -u llamaherd-probation-drafter --no-pager")
        time.sleep(0.2)
    assert bench.answers("drafter")


@pytest.mark.rare
def test_a_server_that_works_keeps_its_place_and_the_previous_version_goes(shaky: Bench, folder: Path) -> None:
    declared = rig(shaky, folder, "")
    declared["instances"]["shaky"]["context"] = 2048
    shaky.declare(declared)
    ended = shaky.up("--yes")
    assert ended.code == 0, ended.output
    assert shaky.sh(f"systemctl is-active {WATCH}") == "active"
    now = spec(shaky)
    until = time.monotonic() + 90
    while shaky.sh(f"systemctl is-active {WATCH}", check=False) == "active":
        assert time.monotonic() < until
        time.sleep(1)
    assert spec(shaky) == now
    assert shaky.sh("ls /var/lib/llamaherd/kept/llama-shaky | wc -l") == "2"
    ended = shaky.up("--yes")
    assert (ended.code, ended.changes) == (0, 0), ended.output
