"""A host that is watched while its servers work, over SSH, with real servers; and nothing of it is left, whoever dies.

Faked is NVML, as the box has no GPU: `tests/support/nvml_cards.c`, compiled there. It says what a script has it say,
and next to nothing is computed for that. nvidia-smi is `smi_stream.py`, where the library is taken away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from box.inside import File
from llamaherd.inventory.schema import Connect
from llamaherd.measure.meter.meter import HostSnapshot, Meter, obstacles
from llamaherd.measure.meter.usage import Usage, Window, unmeasured_sentences, usage_of
from llamaherd.plan import InstancePlan, Plan
from tests.bench.meter_lines import NEW, OLD
from tests.box.bench import Bench
from tests.support import smi_stream

PROGRAM, LIBRARY = "/usr/local/bin/nvidia-smi", "/usr/local/lib/libnvidia-ml.so.1"
PROGRAM_IS, SMI_IS = "pgrep %s -x llamaherd-meter", "pgrep -f 'nvidia-smi --query-[g]pu'"
FIRST, SECOND = PROGRAM_IS % "-o", PROGRAM_IS % "-n"
"""The program, and what it has started to ask the library."""
STORY = '{"messages":[{"role":"user","content":"Tell a long story."}],"max_tokens":%d,"ignore_eos":true}'


@pytest.fixture(scope="module")
def watched(converged: Bench) -> Iterator[Bench]:
    """The rig, with the two GPUs of the stand-ins, for as long as these tests take."""
    source = Path(smi_stream.__file__).with_name("nvml_cards.c")
    converged.host.put(
        File(PROGRAM, Path(smi_stream.__file__).read_bytes(), 0o755), File("/root/nvml.c", source.read_bytes())
    )
    converged.sh(f"cc -shared -fPIC -o {LIBRARY} /root/nvml.c && ldconfig")
    yield converged
    converged.sh(f"rm -f {PROGRAM} {LIBRARY} /usr/local/bin/started /root/nvml.c; ldconfig")


def connect(bench: Bench) -> Connect:
    """The way to it."""
    return Connect(
        host="127.0.0.1",
        port=bench.host.port,
        user="owner",
        key=bench.host.key,
        known_hosts=bench.host.known_hosts,
    )


def plan(bench: Bench) -> Plan:
    """What is planned for it."""
    return Plan.model_validate(bench.plan())


def instance(bench: Bench, name: str) -> InstancePlan:
    """One of its servers."""
    return next(each for each in plan(bench).instances if each.name == name)


def codes(bench: Bench, name: str, snapshot: HostSnapshot) -> set[str]:
    """What is in the way, beside what other tests and machines do to the processors."""
    return {each.code for each in obstacles(snapshot, plan(bench), instance(bench, name))} - {"host-busy"}


def computed(bench: Bench, pid: int) -> float:
    """Seconds that a process has computed, past everything under test."""
    ticks = bench.sh(f"sed 's/.*) //' /proc/{pid}/stat | awk '{{ print $12 + $13 }}'")
    return int(ticks) / 100


def measured(bench: Bench, name: str, tokens: int, main: int) -> tuple[Meter, Usage, HostSnapshot, float]:
    """A server that tells a story while it is watched, and what it computed meanwhile.

    The last look is from the middle of a story of so many tokens.
    """
    key = bench.key() if name == "chat" else ""
    with Meter(connect(bench), instance(bench, name), 120) as meter:
        before = computed(bench, main)
        meter.mark("begin")
        assert meter.clocks
        begin = meter.clocks.on_host(time.monotonic())
        status, answer = bench.ask(name, "/v1/chat/completions", STORY % 60, key)
        assert status == 200, answer
        end = meter.clocks.on_host(time.monotonic())
        meter.mark("end")
        seconds = computed(bench, main) - before
        story = threading.Thread(target=bench.ask, args=(name, "/v1/chat/completions", STORY % tokens, key))
        story.start()
        time.sleep(1)
        busy = meter.snapshot()
        story.join()
    return meter, usage_of(meter.readings, Window(begin, end)), busy, seconds


@pytest.mark.parametrize(("name", "tokens"), [("chat", 100), ("drafter", 3000)])
def test_a_server_at_work(watched: Bench, name: str, tokens: int) -> None:
    # Past everything under test: systemd and Docker say which process it is.
    which = "docker inspect -f '{{.State.Pid}}'" if name == "drafter" else "systemctl show -P MainPID"
    main = int(watched.sh(f"{which} llama-{name}"))
    meter, used, busy, seconds = measured(watched, name, tokens, main)
    assert meter.error is None
    assert codes(watched, name, meter.first_snapshot) == set()
    assert codes(watched, name, busy) == {"busy"}
    assert busy.in_flight == 1
    assert main in busy.ours
    assert meter.readings.hello
    assert meter.readings.hello.server.pid == main
    host = used.host
    assert host.processors is not None
    assert host.processors * used.window.seconds == pytest.approx(seconds, rel=0.1, abs=0.1)
    kilobytes = int(watched.sh(f"awk '/^VmHWM/ {{print $2}}' /proc/{main}/status"))
    assert host.peak_bytes == pytest.approx(kilobytes << 10, rel=0.2)
    assert host.peak_bytes
    assert host.anonymous_bytes
    assert host.resident_bytes
    assert host.anonymous_bytes <= host.resident_bytes <= host.peak_bytes
    old, new = used.gpus
    for joules in (old.counted, old.integrated):
        assert joules == pytest.approx(250 * used.window.seconds, rel=0.02)
    assert new.counted is None
    assert new.watts == pytest.approx(21.33)
    assert f"no energy counter on GPU {NEW}: Not Supported" in unmeasured_sentences(meter.readings)
    assert gone(watched)


def test_what_runs_is_held_against_what_is_planned(watched: Bench) -> None:
    with Meter(connect(watched), instance(watched, "chat"), 60) as meter:
        snapshot = meter.first_snapshot
    other = instance(watched, "chat").model_copy(update={"spec": "0" * 16})
    assert [each.code for each in obstacles(snapshot, plan(watched), other)] == ["not-as-planned"]


def test_a_server_that_is_stopped_meanwhile(watched: Bench) -> None:
    with Meter(connect(watched), instance(watched, "ik-chat"), 60) as meter:
        begin = meter.readings.figures[-1].t
        watched.sh("systemctl stop llama-ik-chat")
        try:
            time.sleep(1.5)
            snapshot = meter.snapshot()
        finally:
            watched.sh("systemctl start llama-ik-chat")
    assert [each.code for each in obstacles(snapshot, plan(watched), instance(watched, "ik-chat"))] == ["server-down"]
    end = meter.readings.figures[-1].t
    assert "the server ended meanwhile" in usage_of(meter.readings, Window(begin, end)).doubts


def test_it_costs_no_more_than_a_hundredth_of_a_processor(watched: Bench) -> None:
    """The stand-in for the library costs next to nothing: a real driver's part is measured on a real GPU."""
    with Meter(connect(watched), instance(watched, "chat"), 60) as meter:
        began = len(meter.readings.figures)
        time.sleep(20)
    figures = meter.readings.figures[began:]
    used = usage_of(meter.readings, Window(figures[0].t, figures[-1].t))
    assert used.host.meter is not None
    assert 0 < used.host.meter <= 0.01
    assert len(meter.readings.gpus[OLD]) >= 60  # of 100, on a machine that has other things to do


KILLED = {
    "the program": f"kill -KILL $({FIRST})",
    "what asks the library": f"kill -KILL $({SECOND})",
    "sudo": f"kill -KILL $(ps -o ppid= -p $({FIRST}))",
    "the connection": f"kill -KILL $(ps -o ppid= -p $(ps -o ppid= -p $({FIRST})))",
}


@pytest.mark.parametrize("who", KILLED)
def test_nothing_is_left_after_a_kill_on_the_host(watched: Bench, who: str) -> None:
    with Meter(connect(watched), instance(watched, "chat"), 60) as meter:
        assert len(there(watched)) == 2
        watched.sh(KILLED[who])
        if who != "what asks the library":
            assert gone(watched)
    assert gone(watched)
    assert (meter.error is None) == (who == "what asks the library")


@pytest.mark.parametrize("who", [FIRST, SMI_IS], ids=["the program", "nvidia-smi"])
def test_nothing_is_left_of_nvidia_smi(watched: Bench, who: str) -> None:
    """Where there is no library to ask."""
    watched.sh(f"mv {LIBRARY} /root/library")
    try:
        with Meter(connect(watched), instance(watched, "chat"), 60) as meter:
            assert meter.readings.hello
            assert meter.readings.hello.why_smi == "NVIDIA's library is not installed"
            assert meter.first_snapshot.gpus[OLD].watts == 250
            assert len(there(watched)) == 2
            watched.sh(f"kill -KILL $({who})")
        assert gone(watched)
    finally:
        watched.sh(f"mv /root/library {LIBRARY}")


def test_nothing_is_left_when_we_are_killed(watched: Bench) -> None:
    """By SIGKILL to our ssh client: nothing of ours can say goodbye."""
    with Meter(connect(watched), instance(watched, "chat"), 60) as meter:
        assert len(there(watched)) == 2
        assert meter._shell
        meter._shell._process.kill()
        assert gone(watched)


def there(bench: Bench) -> list[str]:
    """What of it is on the host: the program, and what it has started."""
    return bench.sh(f"{PROGRAM_IS % ''}; {SMI_IS}", check=False).split()


def gone(bench: Bench) -> bool:
    """Whether all of it has ended on the host, within five seconds."""
    until = time.monotonic() + 5
    while there(bench) and time.monotonic() < until:
        time.sleep(0.1)
    return not there(bench)
