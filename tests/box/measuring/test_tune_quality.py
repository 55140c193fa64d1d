"""What coarser caches and other weights cost is judged on a real host; whatever ends it, nothing of it stays."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.trials.trial import Trial, TrialHost
from llamaherd.measure.tune.candidate import Candidate, Precision
from llamaherd.measure.tune.tuning import TuneTarget, tune_target
from llamaherd.memory.divergence import Reading, logits_bytes
from roles import ROLES
from tests.box.bench import Bench
from tests.box.coarse import coarse

READING = Reading(512, 2, 512, logits_bytes(262_144, 512, 2))
"""Two short chunks: this is about how it runs, and not about how good Gemma is."""
COARSE = Precision("q8_0")


class ShortTarget(TuneTarget):
    """An instance whose quality is measured on two short chunks."""

    def readings(self, _candidate: Candidate, _precision: Precision) -> Sequence[Reading]:
        return [READING]


def short(of: TuneTarget) -> ShortTarget:
    return ShortTarget(**vars(of))


LEFT = "ls -d /run/systemd/system/llamaherd-arm* /run/llamaherd/arms* /var/tmp/*llamaherd-arm* 2>/dev/null"
LOGITS = "stat -c %s /var/tmp/systemd-private-*-llamaherd-arm-c-chat.service-*/tmp/logits 2>/dev/null"


@pytest.fixture
def judged(bench: Bench) -> TuneTarget:
    """The rig with an instance whose caches may be judged: its engine is built anew, with one program more."""
    rig = bench.rig()
    rig["instances"]["chat"] |= {"context": 512, "kv": "f16", "threads": 2, "tune": {"quality": {}}}
    bench.declare(rig)
    ended = bench.up("--yes", "--only", "chat")
    assert ended.code == 0, ended.output
    return tune_target(bench.inventory, ROLES, "box", "chat")


@contextmanager
def measuring(of: TuneTarget) -> Iterator[TrialHost]:
    """The host with the declared server stopped, as in a search."""
    variant = of.variant(of.start, None)
    trial = Trial(
        of.rig.rig, of.rig.connect, (variant,), (of.declared,), 600, "a test", print, replaceable=True, text=of.text
    )
    with TrialHost(trial, "salts") as host:
        yield host


def serves_again(bench: Bench) -> None:
    until = time.monotonic() + 300
    while bench.sh("systemctl is-active llama-chat", check=False) != "active":
        assert time.monotonic() < until, bench.sh("systemctl status llama-chat llamaherd-arms", check=False)
        time.sleep(0.3)
    assert bench.answers("chat")
    assert bench.sh(LEFT, check=False) == ""
    assert bench.sh("pgrep -c llama-perplexi", check=False) == "0"


def test_it_is_judged_and_leaves_nothing(bench: Bench, judged: TuneTarget) -> None:
    candidate = judged.start.with_keys({"kv": "q8_0"})
    assert [each.context for each in judged.readings(candidate, COARSE)] == [512]
    with measuring(judged) as host:
        found = short(judged).judge(host, candidate, COARSE, 500)
        assert bench.sh(LOGITS, check=False) == ""
        full = host.run_to_end(judged.judge_unit(candidate, COARSE, READING, 60), 1 << 50)
        host.stop()
        slow = host.run_to_end(judged.judge_unit(candidate, COARSE, READING, 1), 0)
        host.stop()
    assert found.quality, found.says
    assert 0.001 < found.quality.kld.value < 0.02
    assert 90 < found.quality.same_top.value < 99.5
    assert found.quality.kld.error > 0
    assert (full.well, full.says.startswith("there is no room in /var/tmp")) == (False, True)
    assert (slow.well, slow.says.startswith("it took too long")) == (False, True)
    serves_again(bench)


def test_other_weights_are_judged_beside_the_largest(bench: Bench) -> None:
    rig = bench.rig()
    rig["models"]["coarse"] = coarse()
    tune = {"models": ["coarse"], "quality": {"kld": 0.5}}
    rig["instances"]["chat"] |= {"context": 512, "kv": "f16", "threads": 2, "tune": tune}
    bench.declare(rig)
    ended = bench.up("--yes", "--only", "chat")
    assert ended.code == 0, ended.output
    of = tune_target(bench.inventory, ROLES, "box", "chat")
    assert of.known.finest == "gemma-3-270m"
    candidate = of.start.with_keys({"model": "coarse"})
    with measuring(of) as host:
        found = short(of).judge(host, candidate, Precision("f16", "coarse", of.known.finest), 500)
    assert found.quality, found.says
    assert 0.01 < found.quality.kld.value < 2
    assert 40 < found.quality.same_top.value < 99
    serves_again(bench)


def test_whatever_ends_it_the_tool_and_its_file_go_and_the_server_comes_back(bench: Bench, judged: TuneTarget) -> None:
    candidate = judged.start.with_keys({"kv": "q8_0"})
    with ThreadPoolExecutor(1) as pool, measuring(judged) as host:
        running = pool.submit(short(judged).judge, host, candidate, COARSE, 500)
        until = time.monotonic() + 300
        while not bench.sh(LOGITS, check=False):
            assert time.monotonic() < until
            time.sleep(0.3)
        pid = bench.sh("sed -n 's/process \\([0-9]*\\) .*/\\1/p' /run/llamaherd/locks/host")
        bench.sh(f"kill -9 {pid}")
        with pytest.raises(UserError):  # what it says by then is no figure, and stands in no journal
            running.result()
    serves_again(bench)
