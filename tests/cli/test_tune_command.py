"""`herd tune` where no host is asked: what it refuses, and a search that has come to an end already."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from llamaherd.measure.tune.candidate import Precision, Purpose
from llamaherd.measure.tune.journal import Deep, searches
from llamaherd.measure.tune.search import THREADS
from llamaherd.measure.tune.tuning import TuneTarget, tune_target
from llamaherd.memory.divergence import Reading
from roles import ROLES
from tests.support.envelope import the_rig
from tests.support.rigs import changed, cpu_rig
from tests.support.searched import declared, herd, searched


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHAT_KEY", "canary")
    return declared(tmp_path)


def test_the_same_search_answers_from_its_file(inventory: Path) -> None:
    searched(inventory)
    ended = herd("tune", "-i", inventory, "box/chat", "--json")
    assert ended.exit_code == 0, ended.output
    assert "the result of" in ended.stderr
    said = the_rig(ended.stdout)
    assert said["changes"] == "threads: 1\n"
    assert (said["for"], said["tried"], said["failed"]) == ("turn", 2, {})
    best, declared = said["standings"]
    assert (best["keys"]["threads"], best["verdict"], declared["verdict"]) == (1, "faster", None)
    assert best["beside"] == pytest.approx([2, 2, 2])


def test_people_are_shown_the_lines(inventory: Path) -> None:
    searched(inventory)
    ended = herd("tune", "-i", inventory, "box", "chat")
    assert ended.exit_code == 0, ended.output
    assert "in the inventory, under `chat`:\n  threads: 1\n" in ended.stdout
    assert "faster" in ended.stdout
    assert inventory.read_text().count("threads: 2") == 1


def test_apply_changes_that_line_alone(inventory: Path) -> None:
    searched(inventory)
    before = inventory.read_text()
    ended = herd("tune", "-i", inventory, "box/chat", "--apply")
    assert ended.exit_code == 0, ended.output
    assert f"written to {inventory}" in ended.stderr
    assert inventory.read_text() == before.replace("threads: 2", "threads: 1")
    assert list(inventory.parent.glob(".*")) == []


def test_what_is_slower_at_the_full_depth_is_not_applied(inventory: Path) -> None:
    deep = [Deep(keys={}, depth=8000, prefill=200.0, decode=(speed, speed * 1.01)) for speed in (20.0, 15.0)]
    searched(inventory, deep=deep)
    before = inventory.read_text()
    ended = herd("tune", "-i", inventory, "box/chat", "--apply")
    assert ended.exit_code == 1, ended.output
    assert "error: not written: at a depth of 8,000 tokens it is slower than the declared keys: -" in ended.stderr
    assert "help: write the lines by hand" in ended.stderr
    assert "warning: at a depth of 8,000 tokens" in ended.stdout
    assert "threads: 1" in ended.stdout
    assert inventory.read_text() == before


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("purpose", ["decode", "throughput"])
def test_the_inventory_says_what_it_is_for(inventory: Path, purpose: Purpose) -> None:
    inventory.write_text(inventory.read_text().replace("threads: 2", f"threads: 2\n    tune: {{for: {purpose}}}"))
    searched(inventory, "decode")
    ended = herd("tune", "-i", inventory, "box/chat", "--json")
    # Another one than that which is known would need its host, and there is none.
    assert ended.exit_code == (0 if purpose == "decode" else 1), ended.output


@pytest.mark.usefixtures("starts_processes")
def test_another_plan_is_another_search(inventory: Path) -> None:
    searched(inventory)
    inventory.write_text(inventory.read_text().replace("context: 8192", "context: 4096"))
    ended = herd("tune", "-i", inventory, "box", "chat")
    assert ended.exit_code == 1, ended.output
    assert "the result of" not in ended.output
    assert len(searches(inventory.parent / "results", "box", "chat")) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("box",), "error: box has 2 instances\n  help: name one of chat, drafter"),
        (("box", "drafter"), "is a container"),
        (("box", "nobody"), "has no instance `nobody`"),
        (("other", "chat"), "LH007"),
        (("box/chat", "--budget", "7h"), "30s to 6h"),
        (("box/chat", "--budget", "soon"), "30s to 6h"),
    ],
    ids=["two", "container", "no instance", "no rig", "too long", "no time"],
)
def test_what_cannot_be_tuned_is_said(inventory: Path, words: tuple[str, ...], says: str) -> None:
    ended = herd("tune", "-i", inventory, *words)
    assert ended.exit_code == 2, ended.output
    assert says in ended.output
    assert "Traceback" not in ended.output


def test_without_a_gpu_nothing_is_asked_about_energy(inventory: Path) -> None:
    ended = herd("tune", "-i", inventory, "box/chat", "--for", "efficiency", "--yes")
    assert ended.exit_code == 1, ended.output
    line = inventory.read_text().splitlines().index("  chat:") + 2
    said = "error LH082: cannot measure the energy of box/chat: the instance uses no GPU"
    assert f"{inventory}:{line}:5: {said}\n" in ended.stderr
    assert "\n  help: choose another objective" in ended.stderr
    assert searches(inventory.parent / "results", "box", "chat") == []


@pytest.mark.usefixtures("starts_processes")
def test_a_host_that_is_not_there_is_a_sentence(inventory: Path) -> None:
    ended = herd("tune", "-i", inventory, "box/chat", "--yes")
    assert ended.exit_code == 1, ended.output
    assert "help:" in ended.stderr
    assert searches(inventory.parent / "results", "box", "chat") == []


def judged(inventory: Path, **quality: float) -> TuneTarget:
    rig = changed(cpu_rig(), {"instances/chat/kv": "f16", "instances/chat/tune": {"quality": quality}})
    inventory.write_text(yaml.safe_dump(rig, sort_keys=False))
    return tune_target(inventory, ROLES, "box", "chat")


def test_coarser_caches_are_tried_only_where_they_are_judged(inventory: Path) -> None:
    plain = tune_target(inventory, ROLES, "box", "chat")
    assert plain.space.axis("kv").values == ("f16", "q8_0")
    assert (plain.limits, plain.text) == (None, "")
    of = judged(inventory)
    assert of.space.axis("kv").values == ("f16", "q8_0", "q4_0")
    assert of.limits
    assert (of.limits.kld, of.limits.same_top) == (0.005, 99)
    assert len(of.text) > 16_384 * 4


def test_other_limits_are_another_search(inventory: Path) -> None:
    assert len({judged(inventory, kld=kld).identity for kld in (0.005, 0.005, 0.01)}) == 2


def test_a_cache_is_judged_by_a_unit_as_the_candidate_is(inventory: Path) -> None:
    of = judged(inventory)
    candidate = of.start.with_keys({"kv": "q4_0", THREADS: 1})
    unit = of.judge_unit(candidate, Precision("q4_0"), Reading(2048, 4, 512, 10**9), 300)
    build = next(build for build in of.plan.builds if build.id == of.declared.build)
    *_, base, coarse = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    for line, cache in ((base, "f16"), (coarse, "q4_0")):
        assert line.startswith(f"ExecStart={build.folder}/bin/llama-perplexity --model ")
        assert f"--cache-type-k {cache} --cache-type-v {cache}" in line
        assert "--threads 1 " in line
        assert "--flash-attn on" in line
        assert "/var/tmp/logits" in line
        assert not {"--port", "--alias", "--api-key-file", "--metrics"} & set(line.split())
    assert "--file /run/llamaherd/arms-text --chunks 4" in base
    assert coarse.endswith("--kl-divergence")
    assert "PrivateTmp=yes" in unit
    assert f"User={of.declared.server.user}" in unit
    assert unit.rstrip().endswith("Restart=no\nTimeoutStartSec=300")


def with_other_weights(inventory: Path) -> TuneTarget:
    tune = {"models": ["finer", "gemma"], "quality": {"kld": 0.02}}
    finer = {"file": "/srv/finer.gguf", "sha256": "b7" * 32}
    rig = changed(cpu_rig(), {"models/finer": finer, "instances/chat/kv": "f16", "instances/chat/tune": tune})
    inventory.write_text(yaml.safe_dump(rig, sort_keys=False))
    return tune_target(inventory, ROLES, "box", "chat")


def test_other_weights_are_tried_where_they_are_declared(inventory: Path) -> None:
    of = with_other_weights(inventory)
    assert of.space.axis("model").values == ("gemma", "finer")
    assert [each.name for each in of.others] == ["finer"], "`herd up` installs it"
    assert judged(inventory).identity != of.identity


def test_other_weights_are_judged_by_a_unit_that_reads_both(inventory: Path) -> None:
    of = with_other_weights(inventory)
    candidate = of.start.with_keys({"model": "finer", "kv": "q8_0"})
    unit = of.judge_unit(candidate, Precision("q8_0", "finer", "gemma"), Reading(2048, 4, 512, 10**9), 300)
    *_, base, other = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    folders = {each.name: each.folder for each in of.plan.models}
    assert f"--model {folders['gemma']}/gemma.gguf " in base
    assert f"--model {folders['finer']}/finer.gguf " in other
    assert ("--cache-type-k f16" in base, "--cache-type-k q8_0" in other) == (True, True)
    assert (base.endswith("--kl-divergence"), other.endswith("--kl-divergence")) == (False, True)
