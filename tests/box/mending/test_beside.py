"""Where both have room, what is new is tried beside what serves, and nobody waits for a load."""

from __future__ import annotations

import signal
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from llamaherd.layout import DIRECT_GROUP
from roles.serve.blue_green import redirect_rule
from tests.box.bench import HERD, PORTS, Bench, Ended
from tests.box.changes import KILL_PROGRAM, SPEC, no_answer, no_load

LONGEST = 1.0
"""Seconds between two answers that nobody takes for a server that is away."""

UNTOUCHED = "ik-chat"

LED = "nft list table inet llamaherd-beside-chat >/dev/null 2>&1"

ASKING = """
import sys, time, urllib.request
url, last, worst, failed = sys.argv[1], time.monotonic(), 0.0, 0
while True:
    try:
        urllib.request.urlopen(url, timeout=60).read()
        now = time.monotonic()
        worst, last = max(worst, now - last), now
    except OSError:
        failed += 1
    print(f"{worst:.2f} {failed}", flush=True)
    time.sleep(0.03)
"""


@pytest.fixture(scope="module", autouse=True)
def with_nft(converged: Bench) -> Iterator[None]:
    """As hosts have it that an installer of Debian or Ubuntu made; the box is less than that."""
    converged.sh("apt-get install -qq -y --no-install-recommends nftables >/dev/null 2>&1; test -x /usr/sbin/nft")
    yield
    converged.sh("apt-get purge -qq -y nftables >/dev/null 2>&1; test ! -x /usr/sbin/nft")


@dataclass
class Asking:
    """A client of a server: the longest time between two answers by now, and how often it got none."""

    worst: float = 0.0
    failed: int = 0


@contextmanager
def asking(bench: Bench, name: str) -> Iterator[Asking]:
    """Ask a server all the while; what came of it is known afterwards."""
    url = f"http://127.0.0.1:{PORTS[name]}/health"
    client = subprocess.Popen(
        ["docker", "exec", "-i", bench.host.name, "timeout", "600", "python3", "-u", "-c", ASKING, url],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout
    said, found = [client.stdout.readline()], Asking()
    reader = threading.Thread(target=lambda: said.extend(client.stdout or ()))
    reader.start()
    try:
        yield found
    finally:
        client.terminate()
        client.wait()
        reader.join()
    worst, failed = said[-1].split()
    found.worst, found.failed = float(worst), int(failed)


def asked_meanwhile(bench: Bench, name: str, run: Callable[[], Ended]) -> tuple[Ended, float, int]:
    """A run, the longest time between two answers of a server meanwhile, and how often it gave none.

    What a server that nobody touches makes its clients wait is this machine's, and is taken off.
    """
    with asking(bench, UNTOUCHED) as untouched, asking(bench, name) as asked:
        ended = run()
    return ended, asked.worst - untouched.worst, asked.failed


def nothing_left(bench: Bench) -> None:
    assert "llamaherd" not in bench.sh("nft list tables")
    assert (
        bench.sh(
            "systemctl list-units --all --plain --no-legend 'llamaherd-beside-*'; docker ps -aq --filter name=beside"
        )
        == ""
    )
    assert (
        bench.sh("ls /run/systemd/system /run/llamaherd/beside | grep beside- ; ls /run/llamaherd/beside", check=False)
        == ""
    )


@pytest.mark.parametrize("name", ["chat", pytest.param("drafter", marks=pytest.mark.rare)])
def test_a_good_change_is_seen_by_nobody(bench: Bench, name: str) -> None:
    before = bench.running()
    rig = bench.rig()
    rig["instances"][name]["context"] = 3072
    bench.declare(rig)
    assert "0 s if both versions fit side by side" in bench.herd("plan", "box").output
    ended, longest, failed = asked_meanwhile(bench, name, lambda: bench.up("--yes"))
    assert ended.code == 0, ended.output
    assert f"llama-{name} itself restarts" in ended.output
    assert failed == 0
    assert longest <= LONGEST
    bench.unchanged(before, name)
    nothing_left(bench)
    again = bench.up("--yes")
    assert (again.code, again.changes) == (0, 0), again.output


def test_what_is_asked_meanwhile_is_answered_whole(bench: Bench) -> None:
    """One request is in flight before, others come all the while: each has all its words."""
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 2560
    bench.declare(rig)
    prompt = '{"messages":[{"role":"user","content":"Count"}],"max_tokens":16,"stream":true,"ignore_eos":true}'
    over = threading.Event()

    def client() -> list[tuple[int, int]]:
        answers = []
        while not over.is_set():
            status, body = bench.ask("chat", "/v1/chat/completions", prompt, bench.key(), stream=True)
            answers.append((status, body.count("data: [DONE]")))
        return answers

    with ThreadPoolExecutor() as pool:
        clients = [pool.submit(client) for _ in range(2)]
        try:
            ended = bench.up("--yes")
        finally:
            over.set()
    assert ended.code == 0, ended.output
    answers = [answer for each in clients for answer in each.result()]
    assert set(answers) == {(200, 1)}
    nothing_left(bench)


@pytest.mark.parametrize(("change", "why"), [(no_load, "it was not healthy after"), (no_answer, "HTTP 400")])
def test_a_bad_change_touches_nothing(bench: Bench, change: Callable[[dict[str, object]], None], why: str) -> None:
    before = bench.running()
    rig = bench.rig()
    change(rig)
    bench.declare(rig)
    ended, longest, failed = asked_meanwhile(bench, "chat", lambda: bench.up("--yes", "--retry"))
    assert ended.code == 1, ended.output
    assert "llama-chat serves as before, without downtime: the new version was tried side by side, and " in ended.output
    assert why in ended.output
    assert failed == 0
    assert longest <= LONGEST
    bench.unchanged(before)
    nothing_left(bench)
    again = bench.up("--yes")
    assert again.code == 1, again.output
    assert "chat serves as before: what is declared was tried on 20" in again.output


@pytest.mark.parametrize(
    "moment",
    [
        "systemctl show -P ActiveState llamaherd-beside-chat | grep -qx 'active\\|activating'",
        f"{LED} && ! systemctl -q is-active llama-chat",
    ],
)
def test_a_switch_that_is_killed_with_all_its_scripts(bench: Bench, moment: str) -> None:
    """What is beside goes on for as long as nothing else serves, and the next run clears it away."""
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 1536
    bench.declare(rig)

    def kill(line: str) -> bool:
        if "starting the new version of llama-chat side by side" not in line:
            return False
        bench.sh(f"for n in $(seq 600); do if {moment}; then break; fi; sleep 0.02; done; {KILL_PROGRAM}")
        return True

    bench.killed(signal.SIGKILL, kill, [HERD, "up", "-v", "--yes"])
    assert bench.sh("ls /run/systemd/system | grep beside-chat")
    assert bench.answers("chat")
    ended, _, failed = asked_meanwhile(bench, "chat", lambda: bench.up("--yes"))
    assert ended.code == 0, ended.output
    assert failed == 0
    nothing_left(bench)
    again = bench.up("--yes")
    assert (again.code, again.changes) == (0, 0), again.output


def test_what_is_beside_is_gone_with_a_boot(bench: Bench) -> None:
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 1280
    bench.declare(rig)
    bench.killed(signal.SIGKILL, lambda line: "llama-chat itself restarts" in line, [HERD, "up", "-v", "--yes"])
    subprocess.run(["docker", "restart", "-t", "0", bench.host.name], check=True, stdout=subprocess.DEVNULL)
    bench.host.up()
    bench.finishes()
    nothing_left(bench)


def test_where_it_has_no_room_it_is_away(bench: Bench) -> None:
    """Somebody holds the port that it would have."""
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 1792
    bench.declare(rig)
    spec = bench.sh(SPEC)
    port = 61_000 + zlib.crc32(b"chat") % 4_000
    bench.sh(f"systemd-run -q --unit=holder python3 -m http.server {port} --bind 127.0.0.1")
    try:
        bench.sh(f"until curl -s -o /dev/null 127.0.0.1:{port}; do sleep 0.1; done")
        ended = bench.up("--yes")
    finally:
        bench.sh("systemctl stop holder")
    assert ended.code == 0, ended.output
    assert f"its port {port} cannot be had" in ended.output
    assert bench.sh(SPEC) != spec


@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0", "::", "::1", "192.168.1.20", "fd00::20"])
def test_the_rules_are_rules_of_nftables(bench: Bench, listen: str) -> None:
    rule = redirect_rule(listen, 8080, 63090)
    table = f"table inet t {{ chain c {{ type nat hook output priority -101; {rule}; }}; }}"
    assert bench.host.exec("nft", "-c", table) == ""


KEEPS_ASKING = """
import http.client, time
while True:
    connection, came = http.client.HTTPConnection("127.0.0.1", 8080, timeout=30), "refused"
    try:
        connection.connect()
        came = "cut"
        connection.request("GET", "/health")
        came = str(connection.getresponse().status)
    except (OSError, http.client.HTTPException):
        pass
    connection.close()
    print(came, flush=True)
    time.sleep(0.005)
"""


def test_nobody_is_let_in_between_the_last_look_and_the_stop(bench: Bench) -> None:
    """A server that stops first: who comes then is refused, and none who was let in is cut off."""
    rig = bench.rig()
    rig["instances"]["chat"] |= {"context": 2816}
    bench.declare(rig)
    port = 61_000 + zlib.crc32(b"chat") % 4_000
    bench.sh(f"systemd-run -q --unit=holder python3 -m http.server {port} --bind 127.0.0.1")
    written = f"cat >/run/asks.py <<'END'{KEEPS_ASKING}END\n"
    bench.sh(f"{written}systemd-run -q --unit=asks sh -c 'exec python3 -u /run/asks.py >/run/came'")
    try:
        ended = bench.up("--yes")
    finally:
        bench.sh("systemctl stop holder asks")
    assert ended.code == 0, ended.output
    came = bench.sh("cat /run/came").split()
    assert {"200", "refused"} <= set(came)
    # 503 while it loads.
    assert set(came) <= {"200", "503", "refused"}
    nothing_left(bench)


DRAINS = f"""
import json, pathlib, socket, time
from llamaherd.onhost.system import Host
from roles.serve.onhost.tools import drain
kept = pathlib.Path("/var/lib/llamaherd/kept/llama-chat/last")
key = (kept / "key").read_text().strip() if (kept / "key").exists() else None
question = json.loads((kept / "asked").read_text())
drain(question, key=key, seconds=30, group={DIRECT_GROUP}, led=False, system=Host(print, print))
end = time.monotonic() + 20
refused = True
while refused and time.monotonic() < end:
    with socket.socket() as client:
        refused = client.connect_ex(("127.0.0.1", 8080)) != 0
    print("refused" if refused else "accepted")
    time.sleep(0.2)
"""
"""What a switch does before it stops a server, and no more, as if it were killed then; and what clients get."""


def test_a_switch_that_is_killed_after_the_drain_refuses_clients_for_a_moment(bench: Bench) -> None:
    """The kernel accepts connections again by itself, since the server still serves."""
    program = "$(ls -t /opt/llamaherd/libexec/onhost/*.pyz | head -n 1)"
    got = bench.sh(f"PYTHONPATH={program} python3 - <<'END'{DRAINS}END", check=False).split()
    bench.sh("nft delete table inet llamaherd-shut")
    assert got[0] == "refused"
    assert got[-1] == "accepted"
