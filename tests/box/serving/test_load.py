"""Servers under idle connections, and stopped in the middle of an answer."""

import json
import subprocess
import time

import pytest

from tests.box.bench import PORTS, Bench

INSTANCES = ["chat", "drafter", "ik-chat"]
CONNECTIONS = 2000
HOLDING = """
import resource, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
held = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(count)]
print("held", len(held), flush=True)
sys.stdin.readline()
"""
STREAM = json.dumps(
    {"messages": [{"role": "user", "content": "Go"}], "max_tokens": 4000, "stream": True, "ignore_eos": True}
)


def started(bench: Bench, name: str) -> str:
    """Which process serves: another one after a restart."""
    if name == "drafter":
        return bench.sh("docker inspect -f '{{.State.Pid}} {{.RestartCount}}' llama-drafter")
    return bench.sh(f"systemctl show -P MainPID -P NRestarts llama-{name}")


def inside(bench: Bench, *argv: str) -> list[str]:
    """What runs a command on the host, with its input and output."""
    return ["docker", "exec", "-i", bench.host.name, *argv]


@pytest.mark.parametrize("instance", ["chat", *(pytest.param(each, marks=pytest.mark.rare) for each in INSTANCES[1:])])
def test_two_thousand_idle_connections_shut_nothing(converged: Bench, instance: str) -> None:
    before = started(converged, instance)
    argv = inside(converged, "python3", "-c", HOLDING, str(PORTS[instance]), str(CONNECTIONS))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        try:
            assert holder.stdout.readline() == f"held {CONNECTIONS}\n"
            assert converged.ask(instance, "/health")[0] == 200
        finally:
            holder.communicate("\n")
    assert converged.ask(instance, "/health")[0] == 200
    assert started(converged, instance) == before


@pytest.mark.parametrize("instance", INSTANCES)
def test_a_server_that_streams_is_stopped_in_time(bench: Bench, instance: str) -> None:
    header = f"Authorization: Bearer {bench.key()}"
    url = f"http://127.0.0.1:{PORTS[instance]}/v1/chat/completions"
    stop = f"systemctl stop llama-{instance}" if instance != "drafter" else "docker stop llama-drafter"
    argv = inside(bench, "curl", "-sN", "-H", header, "-H", "Content-Type: application/json", "-d", STREAM, url)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout
        assert client.stdout.readline().startswith("data: ")
        began = time.monotonic()
        bench.sh(stop)
        took = time.monotonic() - began
        client.kill()
    assert bench.ask(instance, "/health")[0] == 0
    # It ends by itself or is killed after a second. Half of the 30 s that a hanging one had before is no chance.
    assert took < 15
