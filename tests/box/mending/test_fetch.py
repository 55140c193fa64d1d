"""Models that are fetched: whatever happens on the way, the next run goes on, and nothing comes twice."""

from __future__ import annotations

import signal
import subprocess
import threading
import time

import pytest

from tests.box.bench import Ended
from tests.box.supply import FILE, REPO, STORE, TOKEN, TRICKLE, Supply
from tests.support.hub_server import Request

LITTLE = 1_000_000
"""Bytes on their way when a line is cut: what two sockets hold."""

# The program that waits for a fetch, once it has let go of the lock: it was the last one to hold it.
LOOKING_ON = """
for attempt in $(seq 600); do
    by=$(sed -n 's/^process \\([0-9]*\\) .*: waiting for a fetch$/\\1/p' /run/llamaherd/locks/fetch 2>/dev/null)
    [ "$by" ] && [ "$(systemctl is-active llamaherd-fetch)" = active ] &&
        flock -n /run/llamaherd/locks/fetch true && break
    sleep 0.1
done
echo "$by"
"""


def arrived(supply: Supply) -> int:
    """Bytes of the model that are on the host, but not whole yet."""
    return int(supply.bench.sh(f"du -cB1 {STORE}/.incoming/*.part 2>/dev/null | tail -n 1 | cut -f 1"))


def test_a_run_that_is_interrupted_leaves_the_fetch_alone(supply: Supply) -> None:
    bench = supply.bench
    before = bench.running()
    supply.caught(signal.SIGINT)
    bench.unchanged(before)
    assert bench.sh("systemctl is-active llamaherd-fetch") == "active"
    supply.hurry()
    supply.deploys()
    bench.unchanged(before, "drafter")
    assert len(supply.bodies) == 1
    assert bench.answers("drafter").startswith("abcdefgh")


def test_a_fetch_that_is_killed_goes_on_from_the_last_byte(supply: Supply) -> None:
    """And while it runs no process list shows the token."""
    bench = supply.bench
    bench.sh(f"umask 077; printf %s {TOKEN} >/run/canary")
    run = supply.caught(signal.SIGKILL)
    shown = bench.sh("grep -lF -f /run/canary /proc/[0-9]*/cmdline 2>/dev/null; rm /run/canary", check=False)
    owner = bench.sh("ps -o user= -p $(systemctl show -P MainPID llamaherd-fetch)")
    bench.sh("systemctl kill -s KILL llamaherd-fetch")
    assert 0 < arrived(supply) < len(supply.content)
    supply.hurry()
    supply.deploys()
    supply.settled()
    assert supply.twice <= LITTLE
    assert len(supply.bodies) == 2
    assert owner == "llama-fetch"
    assert shown == ""
    assert TOKEN not in run.output


@pytest.mark.rare
def test_a_cable_that_is_pulled(supply: Supply) -> None:
    """The way to the hub is gone for a while: the run, which looks on, sees no more than a pause."""
    address, port = supply.hub.url.removeprefix("http://").split(":")
    rule = f"to {address} ipproto tcp dport {port} blackhole"

    supply.hub.bytes_per_second = 100_000

    def pull() -> None:
        while not supply.hub.sent > 200_000:
            time.sleep(0.1)
        supply.bench.sh(f"ip rule add {rule}")
        time.sleep(5)
        supply.bench.sh(f"ip rule del {rule}")
        supply.hurry()

    hand = threading.Thread(target=pull)
    hand.start()
    supply.deploys()
    hand.join()
    assert supply.twice <= LITTLE


def test_a_host_that_is_switched_off(supply: Supply) -> None:
    """In the middle, as by the power; and on again."""
    bench = supply.bench
    supply.caught(signal.SIGKILL)
    assert 0 < arrived(supply) < len(supply.content)
    subprocess.run(["docker", "restart", "-t", "0", bench.host.name], check=True, stdout=subprocess.DEVNULL)
    bench.host.up()
    supply.hurry()
    supply.deploys()
    assert supply.twice <= LITTLE
    assert bench.answers("drafter").startswith("abcdefgh")


@pytest.mark.rare
def test_what_was_meant_before_gives_way(supply: Supply) -> None:
    """A wrong model, Ctrl-C, the right one: nobody waits for the wrong one."""
    lock, hub = supply.bench.folder / "herd.lock", supply.hub
    right = lock.read_text()
    supply.push("llamaherd/wrong")
    supply.caught(signal.SIGINT)
    # To lock it anew would read it from a hub that trickles.
    supply.declare()
    lock.write_text(right)

    def hurry_with_the_right_one(request: Request) -> None:
        if REPO in request.path:
            hub.bytes_per_second = None

    hub.on_request = hurry_with_the_right_one
    assert "it ends here, and what it has is kept" in supply.deploys()


def test_two_runs_at_once_fetch_once(supply: Supply) -> None:
    supply.hub.bytes_per_second = 1_500_000
    ends: list[Ended] = []
    runs = [threading.Thread(target=lambda: ends.append(supply.bench.deploy(**supply.private))) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert [ended.code for ended in ends] == [0, 0], "".join(ended.output for ended in ends)
    assert len(supply.bodies) == 1
    supply.settled()


@pytest.mark.rare
def test_a_run_that_looks_when_another_has_let_all_in(supply: Supply) -> None:
    """What it awaited has come and gone on to the store: stopped on the host while the other run does both.

    That takes its lock from it, as from one that is gone.
    """
    supply.hub.bytes_per_second = TRICKLE
    ends: list[Ended] = []
    first, second = (threading.Thread(target=lambda: ends.append(supply.bench.deploy(**supply.private))) for _ in "12")
    first.start()
    late = supply.bench.sh(LOOKING_ON)
    sudo = supply.bench.sh(f"ps -o ppid= -p {late}")
    supply.bench.sh(f"kill -STOP {late}")
    supply.hurry()
    assert supply.bench.herd("unlock", "box", **supply.private).code == 0
    second.start()
    second.join()
    # sudo stops with what it has started, and does not go on with it.
    supply.bench.sh(f"kill -CONT {sudo} {late}")
    first.join()
    assert [ended.code for ended in ends] == [0, 0], "".join(ended.output for ended in ends)
    assert len(supply.bodies) == 1


def test_a_sound_fetch(supply: Supply) -> None:
    """Begun before the first engine and awaited after the last one; then nobody is asked, and nothing is hashed.

    The token goes to the hub alone, and is nowhere afterwards.
    """
    bench = supply.bench
    supply.hurry()
    ended = bench.deploy("-vvv", "--diff", **supply.private)
    assert ended.code == 0, ended.output
    marks = ["fetching 1 file of tiny-moe", "engines | ik", "engines | main", "models | in the store"]
    found = [ended.output.index(mark) for mark in marks]
    assert found == sorted(found)
    assert TOKEN not in ended.output
    assert TOKEN not in bench.herd("show", "--json", **supply.private).output
    # The pattern is written so that it does not find itself in the journal of this command.
    places = "/etc /opt /var/lib/llamaherd /var/log /run/llamaherd /tmp /home /root"
    leaks = f"{{ grep -rl 'hf_[c]anary' {places}; journalctl -q | grep hf_[c]an; }} 2>/dev/null"
    assert bench.sh(leaks, check=False) == ""
    supply.hub.requests.clear()
    # A file that is read has another time of its last reading.
    bench.sh(f"touch -a -d 2001-01-01 {STORE}/{REPO}/*/{FILE}")
    assert bench.deploy(**supply.private).changes == 0
    assert supply.hub.requests == []
    read = bench.sh(f"stat -c %x {STORE}/{REPO}/*/{FILE}").splitlines()
    assert all(time.startswith("2001-01-01") for time in read)


@pytest.mark.rare
def test_what_a_hub_refuses(supply: Supply) -> None:
    """Each is a sentence with a way out; once it is mended, the same command goes on."""
    supply.hurry()
    supply.refused("requires a token", "HF_TOKEN", HF_ENDPOINT=supply.hub.url, HF_TOKEN="")
    supply.refused("does not accept the token", HF_ENDPOINT=supply.hub.url, HF_TOKEN="hf_wrong")
    supply.hub.gated.add(REPO)
    supply.refused(f"open {supply.hub.url}/{REPO} in a browser and request access")
    supply.hub.gated.clear()
    supply.hub.corrupt.add(FILE)
    supply.refused(FILE, "sha256", supply.sha256)
    assert supply.sha256 not in supply.bench.sh(f"cat {STORE}/{REPO}/*/.manifest", check=False)
    supply.hub.corrupt.clear()
    supply.deploys()
    supply.settled()


def test_a_fetch_that_fails_is_done_once(supply: Supply) -> None:
    """A run begins to fetch, and awaits it later: what failed by then is not tried again."""
    supply.hurry()
    supply.hub.corrupt.add(FILE)
    supply.refused(FILE, "sha256", supply.sha256)
    assert len(supply.bodies) == 1
    supply.hub.corrupt.clear()
    supply.deploys()
    assert len(supply.bodies) == 2


@pytest.mark.rare
def test_a_fetch_that_is_stopped_by_hand_stays_stopped(supply: Supply) -> None:
    """The run that waits for it ends with a sentence; the next one goes on from the last byte."""
    bench = supply.bench
    # However slow this machine is just now, the fetch is not done before the hand is there.
    supply.hub.bytes_per_second = 100_000

    def stop() -> None:
        # By what the hub has sent: what an earlier test left on the host has arrived before the fetch begins.
        while not (supply.hub.sent > 200_000 and arrived(supply)):
            time.sleep(0.2)
        bench.sh("systemctl stop llamaherd-fetch")

    hand = threading.Thread(target=stop, daemon=True)
    hand.start()
    supply.refused("the fetch ended before all had come", "`systemctl stop`", "goes on from there")
    hand.join(timeout=300)
    assert bench.sh("systemctl is-active llamaherd-fetch", check=False) == "inactive"
    assert 0 < arrived(supply) < len(supply.content)
    assert len(supply.bodies) == 1
    supply.hurry()
    supply.deploys()
    assert supply.twice <= LITTLE


@pytest.mark.rare
def test_a_revision_that_is_gone(supply: Supply) -> None:
    supply.hub.forget(REPO)
    supply.refused("no longer has this revision", "herd lock --upgrade")
