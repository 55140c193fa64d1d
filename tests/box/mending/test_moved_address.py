"""A server that moves to another port or address is drained where it serves until then, and is not taken for dead."""

from __future__ import annotations

import re

import pytest

from tests.box.bench import PORTS, Bench

MOVES: dict[str, tuple[str, dict[str, object]]] = {
    "a unit to another port": ("chat", {"port": 8090}),
    "a unit to another address": ("chat", {"listen": "127.0.0.2"}),
    "a unit to all addresses": ("chat", {"listen": "0.0.0.0"}),
    "a container to another port": ("drafter", {"port": 8091}),
    "a container to another address": ("drafter", {"listen": "127.0.0.2"}),
}
TOKENS = {"chat": 4000, "drafter": 8000}
"""Of a response that goes on until its server is drained. The container's model is fast, and is slowed down."""
DRAIN = 600


def stream(bench: Bench, name: str) -> None:
    """Begin a request whose response is streamed for a while; returns once its first words are there."""
    if name == "drafter":
        bench.sh("docker update --cpus 0.2 llama-drafter")
    header = f'header = "Authorization: Bearer {bench.key()}"' if name == "chat" else ""
    bench.sh(
        "systemctl reset-failed stream 2>/dev/null; rm -f /run/stream; umask 077;"
        f' echo \'{{"prompt": "Once", "n_predict": {TOKENS[name]}, "ignore_eos": true, "stream": true}}\' >/run/asked;'
        f" printf '%s\\n' '{header}' >/run/curlrc;"
        " systemd-run -q --collect --unit=stream sh -c"
        f" 'curl -K /run/curlrc -sN -d @/run/asked http://127.0.0.1:{PORTS[name]}/completion >/run/stream';"
        " until [ -s /run/stream ]; do sleep 0.05; done"
    )


def moved(bench: Bench, name: str, change: dict[str, object]) -> str:
    """Where the server is asked then."""
    rig = bench.rig()
    rig["instances"][name] |= {**change, "drain": DRAIN}
    bench.declare(rig)
    listen = str(change.get("listen", "127.0.0.1"))
    return f"http://{'127.0.0.1' if listen == '0.0.0.0' else listen}:{change.get('port', PORTS[name])}"


@pytest.mark.parametrize("busy", [False, pytest.param(True, marks=pytest.mark.rare)], ids=["idle", "busy"])
@pytest.mark.parametrize(
    "move", [each if "port" in each else pytest.param(each, marks=pytest.mark.rare) for each in MOVES]
)
def test_a_server_that_moves_is_drained(bench: Bench, move: str, busy: bool) -> None:
    name, change = MOVES[move]
    at = moved(bench, name, change)
    if busy:
        stream(bench, name)
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    # A probe of the probation before may wait behind the client's request.
    assert bool(re.search(r"waiting for (1 request|2 requests) in flight", ended.output)) == busy, ended.output
    history = bench.herd("history", "box").output.rpartition("\nbox ")[2]
    for untrue in ("hangs", "does not respond, and", "cut off"):
        assert untrue not in ended.output
        assert untrue not in history
    if busy:
        assert '"stop_type":"limit"' in bench.sh("tail -n 2 /run/stream")
    assert bench.sh(f"curl -s -o /dev/null -w '%{{http_code}}' {at}/health") == "200"
    again = bench.up("--yes")
    assert (again.code, again.changes) == (0, 0), again.output


@pytest.mark.rare
def test_a_new_key_does_not_cut_off_who_has_the_old_one(bench: Bench) -> None:
    """The old server is asked what it does with its own key, though the new one lies in its place by then."""
    rig = bench.rig()
    rig["instances"]["chat"]["drain"] = DRAIN
    bench.declare(rig)
    key = bench.key()
    stream(bench, "chat")
    bench.key_file.write_text("another-canary-0123456789\n")
    try:
        ended = bench.up("--yes")
    finally:
        bench.key_file.write_text(f"{key}\n")
    assert ended.code == 0, ended.output
    assert "waiting for 1 request in flight" in ended.output
    assert '"stop_type":"limit"' in bench.sh("tail -n 2 /run/stream")
