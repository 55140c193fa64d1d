"""A gateway on the rig of the box tests: HAProxy of its distribution before real servers, queried by curl."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.box.bench import Bench

PORT = 8090
FLEET = f"""
gateway:
  on: [box]
  port: {PORT}
  models:
    coder: {{serve: [box.chat], aliases: [gpt-4o], fallback: small}}
    small: {{serve: [box.drafter]}}
"""
UNIT = "llamaherd-gateway.service"
Keys = dict[str, str]


def declare(bench: Bench, text: str) -> None:
    """Make this the fleet's file; users that were added stay in it."""
    (bench.folder / "fleet.yaml").write_text(text)


def fleet_text(bench: Bench) -> str:
    """The fleet's file as it is."""
    return (bench.folder / "fleet.yaml").read_text()


def up(bench: Bench) -> str:
    """A run that comes out well, and what it said."""
    ended = bench.up()
    assert ended.code == 0, ended.output
    return ended.output


def ask(bench: Bench, key: str, model: str = "coder", path: str = "/v1/chat/completions") -> tuple[int, str, str]:
    """Ask through the gateway, on the host: status, headers, body."""
    body = json.dumps({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "model": model})
    header = f"-H 'Authorization: Bearer {key}'" if key else ""
    said = bench.sh(
        f"curl -s -m 300 -D /tmp/headers -w '\\n%{{http_code}}' {header} -H 'Content-Type: application/json' "
        f"-d '{body}' http://127.0.0.1:{PORT}{path}; echo; cat /tmp/headers",
        check=False,
    )
    answer, _, rest = said.rpartition("\nHTTP/1.1 ")
    body, _, status = answer.rstrip().rpartition("\n")
    return int(status or 0), rest.lower(), body


def until_answered(bench: Bench, key: str) -> None:
    deadline = time.monotonic() + 300
    while ask(bench, key)[0] != 200:
        assert time.monotonic() < deadline, ask(bench, key)
        time.sleep(0.5)


def pids(bench: Bench) -> str:
    """The process of the unit, and the one that serves."""
    return bench.sh("pgrep -u llamaherd-gateway -x haproxy | sort | tr '\\n' ' '")


@contextmanager
def gateway_keys(converged: Bench) -> Iterator[Keys]:
    """The rig as a gateway, and the key of a user. Afterwards nothing of it is left."""
    declare(converged, FLEET)
    made = converged.herd("users", "add", "tom", "--streams", "2")
    assert made.code == 0, made.output
    output = up(converged)
    assert "gateway | one endpoint for clients" in output
    found = re.search(r"sk-herd-[0-9a-f]{48}", made.output)
    assert found
    assert found[0] not in output
    until_answered(converged, found[0])
    yield {"tom": found[0]}
    declare(converged, "gateway: null\n")
    up(converged)
    left = converged.sh(
        f"ls -d /etc/llamaherd/gateway* /etc/systemd/system/{UNIT} /run/llamaherd-gateway "
        "/var/lib/llamaherd/written/gateway 2>/dev/null",
        check=False,
    )
    (converged.folder / "fleet.yaml").unlink()
    # The next module of the lane creates this user again.
    (converged.folder / "keys" / "users" / "tom").unlink(missing_ok=True)
    assert left == ""
    assert converged.sh(f"curl -s -m 3 http://127.0.0.1:{PORT}/healthz || echo gone", check=False) == "gone"
