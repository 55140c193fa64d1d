"""A change that does not serve is taken back: what served before comes back, and the same is not tried again."""

from __future__ import annotations

import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.box.bench import HERD, UNIT, Bench, Declared
from tests.box.changes import BAD, KILL_PROGRAM, RUN_WAITS, SPEC, comes_back, declare, fails, no_answer, no_load

AS_IT_LOADS = f"""
old=$(systemctl show -P InvocationID llama-chat)
until new=$(systemctl show -P MainPID llama-chat); [ "$new" != 0 ] &&
    [ "$(systemctl show -P InvocationID llama-chat)" != "$old" ]; do sleep 0.02; done
{KILL_PROGRAM}
"""
"""The moment when a new process is there; the script that is to ask it a prompt is killed, and nobody asks."""


@pytest.mark.parametrize(
    "case", ["it does not load", "it is slower than expected", "a container that answers no prompt"]
)
def test_what_served_comes_back(bench: Bench, case: str) -> None:
    comes_back(bench, BAD[case])


@pytest.mark.rare
def test_it_is_tried_again_when_asked(bench: Bench) -> None:
    declare(bench, no_answer)
    fails(bench, "chat")
    back = bench.running()
    fails(bench, "chat", "--retry")
    bench.unchanged(back, "chat")


def test_a_key_comes_back_with_its_server(bench: Bench) -> None:
    """Whoever had the old key goes on with it."""
    key = bench.key()
    try:
        declare(bench, no_load)
        bench.key_file.write_text("another-canary-0123456789\n")
        ended = bench.up("--yes")
        assert ended.code == 1, ended.output
        assert "another-canary" not in ended.output
    finally:
        bench.key_file.write_text(f"{key}\n")
    assert bench.answers("chat")


def test_a_run_that_is_killed_in_a_bad_change(bench: Bench) -> None:
    """And its host with it: the next run takes back what that one could not."""
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 2048
    no_load(rig)
    bench.declare(rig)
    bench.killed(signal.SIGKILL, lambda line: "starting llama-chat" in line)
    subprocess.run(["docker", "restart", "-t", "0", bench.host.name], check=True, stdout=subprocess.DEVNULL)
    bench.host.up()
    fails(bench, "chat")


def test_a_switch_goes_on_without_the_run_that_began_it(bench: Bench) -> None:
    """Nobody listens to it any more, and it must say why it takes back what does not serve."""
    before = bench.running()
    spec = bench.sh(SPEC)
    declare(bench, no_answer)
    bench.killed(
        signal.SIGKILL, lambda line: "starting llama-chat.service" in line, [HERD, "up", "-v", "--yes", "--retry"]
    )
    # It has the lock until it has come to its end.
    bench.sh("flock -w 120 /run/llamaherd/locks/host true")
    assert bench.sh(SPEC) == spec
    assert bench.answers("chat")
    bench.unchanged(before, "chat")
    ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    assert "chat serves as before: what is declared was tried on 20" in ended.output


@pytest.mark.parametrize("boots", [False, pytest.param(True, marks=pytest.mark.rare)])
def test_what_was_cut_off_before_it_answered_is_not_taken_for_good(bench: Bench, boots: bool) -> None:
    """It runs and is healthy, and that is all that is known of it."""
    spec = bench.sh(SPEC)
    declare(bench, no_answer)

    def as_it_loads(line: str) -> bool:
        if "starting llama-chat.service" not in line:
            return False
        bench.sh(AS_IT_LOADS)
        return True

    bench.killed(signal.SIGKILL, as_it_loads, [HERD, "up", "-v", "--yes", "--retry"])
    if boots:
        subprocess.run(["docker", "restart", "-t", "0", bench.host.name], check=True, stdout=subprocess.DEVNULL)
        bench.host.up()
    bench.sh("until systemctl -q is-active llama-chat; do sleep 0.1; done")
    assert bench.sh(SPEC) != spec
    assert "it has not responded to a prompt yet" in bench.herd("plan", "box", "-v").output
    fails(bench, "chat")
    assert bench.sh(SPEC) == spec
    # The note of it is gone: as before is as declared before.
    bench.declare(bench.rig())
    ended = bench.up("--yes")
    assert (ended.code, ended.changes) == (0, 0), ended.output


def test_what_another_run_took_back_is_not_kept_as_what_is_declared(bench: Bench) -> None:
    """A bad change in its middle, made by hand: a run that looked just then waits for its end, and looks again."""
    declare(bench, no_load)
    (chat,) = [instance for instance in bench.plan()["instances"] if instance["name"] == "chat"]
    bench.sh(f"systemctl stop llama-chat; cp -p {UNIT} /run/chat-before")
    bench.host.exec("sh", "-c", f'printf %s "$0" >{UNIT}', chat["file"]["text"])
    bench.sh("systemd-run -q --unit=other flock /run/llamaherd/locks/host sleep 600")
    with ThreadPoolExecutor() as pool:
        run = pool.submit(bench.up, "--yes")
        bench.sh(RUN_WAITS)
        bench.sh(f"mv -f /run/chat-before {UNIT}; systemctl daemon-reload; systemctl start llama-chat")
        bench.sh("systemctl stop other")
    ended = run.result()
    assert ended.code == 1, ended.output
    # What was put back was another server's file: it was changed, tried, and put back once more.
    assert "llama-chat serves again as before, spec " in ended.output
    assert bench.answers("chat")
    again = bench.up("--yes")
    assert again.code == 1, again.output
    assert "chat serves as before: what is declared was tried on " in again.output


def as_a_container(rig: Declared) -> None:
    rig["instances"]["chat"]["backend"] = "compose"


@pytest.mark.rare
def test_one_that_moves_into_a_container_and_back(bench: Bench) -> None:
    """What it was goes when what it is to be serves, and not before."""
    before = bench.running()
    rig = bench.rig()
    as_a_container(rig)
    no_load(rig)
    bench.declare(rig)
    fails(bench, "chat")
    assert bench.sh("docker ps -aq --filter name=llama-chat; ls -d /etc/llamaherd/compose/chat", check=False) == ""
    bench.unchanged(before, "chat")
    declare(bench, as_a_container)
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert bench.answers("chat")
    assert bench.sh("ls -d /etc/systemd/system/llama-chat.service; id -u llama-chat", check=False) == ""
    rig = bench.rig()
    no_load(rig)
    bench.declare(rig)
    fails(bench, "chat")
    assert bench.sh("docker inspect -f '{{.State.Health.Status}}' llama-chat") == "healthy"
    bench.declare(bench.rig())
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert bench.answers("chat")
    assert bench.sh("docker ps -aq --filter name=llama-chat; ls -d /etc/llamaherd/compose/chat", check=False) == ""
    again = bench.up("--yes")
    assert (again.code, again.changes) == (0, 0), again.output


def test_nothing_of_a_server_that_is_removed_is_kept(bench: Bench) -> None:
    rig = bench.rig()
    rig["instances"]["spare"] = rig["instances"]["ik-chat"] | {"port": 8083, "api_key": {"file": str(bench.key_file)}}
    bench.declare(rig)
    assert bench.up("--yes").code == 0
    assert bench.key() in bench.sh("cat /var/lib/llamaherd/kept/llama-spare/last/key")
    assert (
        bench.sh("stat -c '%a %U' /var/lib/llamaherd/kept /var/lib/llamaherd/kept/llama-spare") == "700 root\n700 root"
    )
    bench.declare(bench.rig())
    assert bench.up("--yes").code == 0
    assert bench.sh("ls -d /var/lib/llamaherd/kept/llama-spare", check=False) == ""
