"""`herd tune` where no host is asked: what it refuses, and a search that has come to its end already."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.inventory.schema import PowerLimits, Tune
from llamaherd.plan import Reading
from llamaherd.tune.aim import Aim, Figures, Purpose
from llamaherd.tune.axes import THREADS
from llamaherd.tune.candidate import Candidate
from llamaherd.tune.journal import SearchJournal, searches
from llamaherd.tune.lines import Deep, Found, Head, Limited, Trial, keys_of
from llamaherd.tune.planned import Tuned, tuned
from roles import ROLES
from tests.support.rigs import changed, cpu_rig

HEADER = "# whose rig this is\n"


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHAT_KEY", "canary")
    file = tmp_path / "box.yaml"
    rig = changed(cpu_rig(), {"instances/chat/threads": 2, "connect/port": 9})
    file.write_text(HEADER + yaml.safe_dump(rig, sort_keys=False))
    return file


def herd(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], prog_name="herd")


def searched(
    inventory: Path,
    purpose: Purpose = "turn",
    *,
    ended: bool = True,
    deep: Sequence[Deep] = (),
    limited: Mapping[int, float] | None = None,
    watts: tuple[int, ...] = (),
) -> Tuned:
    """A search that was made before: one thread is twice as fast.

    `deep` are what is declared and that at depth, `limited` scores of speed under power limits. `watts` are
    limits that were wished for by the option.
    """
    of = tuned(inventory, ROLES, "box", "chat", watts)
    head = Head(
        llamaherd="0",
        rig="box",
        instance="chat",
        began="2026-11-24T15:00:00Z",
        identity=of.identity,
        aim=Aim(purpose=purpose),
        declared=keys_of(of.start),
        gpus=("big",) if limited else (),
        watts=tuple(limited or ()),
    )
    better = of.start.with_keys({THREADS: 1})
    with SearchJournal.begin(inventory.parent / "results", head) as journal:
        for number in (None, 0, 1, 2):
            for candidate, speed in ((of.start, 20.0), (better, 40.0)):
                journal.add(trial(candidate, speed, number))
        for candidate, each in zip((of.start, better), deep, strict=False):
            journal.add(each.model_copy(update={"keys": keys_of(candidate)}))
        for limit, speed in (limited or {}).items():
            for number in range(3):
                told = Limited(keys=keys_of(better), watts=limit, round=number, speed=speed + number / 99, joules=limit)
                journal.add(told)
        if ended:
            journal.add(Found(keys=keys_of(better), ended="2026-11-24T15:30:00Z"))
    return of


def trial(candidate: Candidate, speed: float, number: int | None) -> Trial:
    off = 1 + 0.001 * (number or 0)
    figures = Figures(decode={"code": speed * off, "prose": speed}, prefill=speed * 10, runs=6)
    return Trial(keys=keys_of(candidate), figures=figures, seconds=10.0, round=number)


def test_the_same_search_answers_from_its_file(inventory: Path) -> None:
    searched(inventory)
    ended = herd("tune", "-i", inventory, "box", "chat", "--json")
    assert ended.exit_code == 0, ended.output
    assert "known from" in ended.stderr
    said = json.loads(ended.stdout)
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
    ended = herd("tune", "-i", inventory, "box", "chat", "--apply")
    assert ended.exit_code == 0, ended.output
    assert f"written into {inventory}" in ended.stderr
    assert inventory.read_text() == before.replace("threads: 2", "threads: 1")
    assert list(inventory.parent.glob(".*")) == []


def test_what_is_slower_at_the_full_depth_is_not_applied(inventory: Path) -> None:
    deep = [Deep(keys={}, depth=8000, prefill=200.0, decode=(speed, speed * 1.01)) for speed in (20.0, 15.0)]
    searched(inventory, deep=deep)
    before = inventory.read_text()
    ended = herd("tune", "-i", inventory, "box", "chat", "--apply")
    assert ended.exit_code == 1, ended.output
    assert "error: not written: at a depth of 8,000 tokens it is slower than what is declared: -" in ended.stderr
    assert "help: write the lines by hand" in ended.stderr
    assert "warning: at a depth of 8,000 tokens" in ended.stdout
    assert "threads: 1" in ended.stdout
    assert inventory.read_text() == before


CARDS = "gpus: {cuda: '13.0', cards: {big: {model: RTX 3090, memory: 24GB, architecture: '86'}}}  # the only one\n"


def test_a_power_limit_is_applied_with_the_keys(inventory: Path) -> None:
    inventory.write_text(inventory.read_text() + CARDS)
    searched(inventory, limited={200: 90.0, 250: 99.5, 300: 100.0})
    ended = herd("tune", "-i", inventory, "box", "chat", "--apply")
    assert ended.exit_code == 0, ended.output
    assert "in the inventory:\n  gpus:\n    cards:\n      big:\n        power_limit: 250W\n" in ended.stdout
    text = inventory.read_text()
    assert CARDS.replace("'86'}", "'86', power_limit: 250W}") in text
    assert yaml.safe_load(text)["instances"]["chat"]["threads"] == 1


def test_a_gpu_that_another_file_declares_is_not_written(inventory: Path) -> None:
    searched(inventory, limited={200: 90.0, 250: 99.5, 300: 100.0})
    before = inventory.read_text()
    ended = herd("tune", "-i", inventory, "box", "chat", "--apply")
    assert ended.exit_code == 1, ended.output
    assert "does not declare GPU `big` itself" in ended.stderr
    assert inventory.read_text() == before


@pytest.mark.parametrize(
    ("power", "limits"),
    [
        ({"max": "300W"}, (180, 210, 240, 270, 300)),
        ({"max": 300, "min": 250, "step": 20}, (250, 270, 290, 300)),
        ({"max": 60}, (35, 40, 45, 50, 55, 60)),
        ({"max": 600, "min": 300, "step": 150}, (300, 450, 600)),
    ],
)
def test_power_limits_that_are_tried(power: dict[str, Any], limits: tuple[int, ...]) -> None:
    assert Tune.model_validate({"power": power}).power == PowerLimits.model_validate(power)
    assert PowerLimits.model_validate(power).watts == limits


@pytest.mark.parametrize(
    ("power", "says"),
    [
        ({"max": 300, "min": 300}, "write a `min` below `max`"),
        ({"max": 300, "min": 100, "step": 10}, "these are 21 power limits, where 2 to 12 can be tried"),
        ({"max": 999_999, "min": 1, "step": 1}, "these are 999999 power limits"),
        ({"min": 100}, "`instances.chat.tune.power.max` is missing"),
    ],
    ids=["nothing between", "too many", "far too many", "no most"],
)
def test_limits_that_cannot_be_tried_are_said(inventory: Path, power: dict[str, int], says: str) -> None:
    rig = changed(cpu_rig(), {"instances/chat/tune": {"power": power}})
    inventory.write_text(yaml.safe_dump(rig, sort_keys=False))
    ended = herd("tune", "-i", inventory, "box", "chat")
    assert ended.exit_code == 2, ended.output
    assert says in ended.output


def on_a_card(inventory: Path, power: dict[str, Any] | None = None) -> None:
    """Its instance is on a GPU, and says which power limits are to be tried."""
    cards = {"big": {"model": "RTX 3090", "uuid": "GPU-3090"}}
    rig = changed(yaml.safe_load(inventory.read_text()), {"gpus": {"cuda": "13.0", "cards": cards}})
    rig = changed(rig, {"instances/chat/on": ["big"]} | ({"instances/chat/tune": {"power": power}} if power else {}))
    inventory.write_text(yaml.safe_dump(rig, sort_keys=False))


POWER = {"max": "300W", "min": "250W", "step": "25W"}


@pytest.mark.parametrize(
    ("declared", "option", "tried"),
    [
        (None, (), ()),
        (None, (200, 250), (200, 250)),
        (POWER, (), (250, 275, 300)),
        (POWER, (200, 250), (200, 250)),
    ],
    ids=["neither", "option", "key", "both"],
)
def test_the_option_says_power_limits_in_place_of_the_key(
    inventory: Path, declared: dict[str, Any] | None, option: tuple[int, ...], tried: tuple[int, ...]
) -> None:
    on_a_card(inventory, declared)
    of = tuned(inventory, ROLES, "box", "chat", option)
    assert of.watts == tried
    assert (of.identity == tuned(inventory, ROLES, "box", "chat").identity) == (not option)


def test_a_search_with_the_option_is_known_by_it(inventory: Path) -> None:
    on_a_card(inventory)
    searched(inventory, limited={200: 90.0, 250: 99.5, 300: 100.0}, watts=(200, 250, 300))
    for limits in ("200W..300W/50W", "200,250,300"):
        ended = herd("tune", "-i", inventory, "box", "chat", "--power", limits)
        assert ended.exit_code == 0, ended.output
        assert "known from" in ended.stderr
        assert "power_limit: 250W" in ended.stdout
    ended = herd("tune", "-i", inventory, "box", "chat", "--yes")
    assert "known from" not in ended.stderr


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ("", "says no power limits"),
        ("much", "`much` says no power limits from 10 to 2000 W; say for example `--power 200W..350W/10W`"),
        ("300W", "one power limit makes no series; name 2 to 12, or take another step"),
        ("200W..350W/10W", "16 power limits make no series; name 2 to 12, or take another step"),
    ],
)
def test_an_option_that_says_no_power_limits_is_refused(inventory: Path, limits: str, says: str) -> None:
    ended = herd("tune", "-i", inventory, "box", "chat", "--power", limits)
    assert ended.exit_code == 2, ended.output
    assert says in " ".join(ended.stderr.split())


def test_without_a_gpu_the_option_is_refused_before_a_host_is_asked(inventory: Path) -> None:
    ended = herd("tune", "-i", inventory, "box", "chat", "--power", "200W,300W", "--yes")
    assert ended.exit_code == 1, ended.output
    said = "error LH083: power limits of box/chat cannot be tried: instance `chat` is on no GPU"
    assert f"{said}\n  help: leave out `--power`, or name limits that its GPUs take" in ended.stderr


def test_without_a_gpu_no_power_limit_is_tried(inventory: Path) -> None:
    rig = changed(cpu_rig(), {"instances/chat/tune": {"power": {"max": 300}}})
    inventory.write_text(yaml.safe_dump(rig, sort_keys=False))
    ended = herd("tune", "-i", inventory, "box", "chat")
    assert ended.exit_code == 2, ended.output
    assert "LH083" in ended.output
    assert "instance `chat` is on no GPU" in ended.output


@pytest.mark.parametrize("purpose", ["decode", "throughput"])
def test_the_inventory_says_what_it_is_for(inventory: Path, purpose: Purpose) -> None:
    inventory.write_text(inventory.read_text().replace("threads: 2", f"threads: 2\n    tune: {{for: {purpose}}}"))
    searched(inventory, "decode")
    ended = herd("tune", "-i", inventory, "box", "chat", "--json")
    # Another one than that which is known would need its host, and there is none.
    assert ended.exit_code == (0 if purpose == "decode" else 1), ended.output


def test_another_plan_is_another_search(inventory: Path) -> None:
    searched(inventory)
    inventory.write_text(inventory.read_text().replace("context: 8192", "context: 4096"))
    ended = herd("tune", "-i", inventory, "box", "chat")
    assert ended.exit_code == 1, ended.output
    assert "known from" not in ended.output
    assert len(searches(inventory.parent / "results", "box", "chat")) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("box",), "error: box has 2 instances\n  help: name one of chat, drafter"),
        (("box", "drafter"), "is a container"),
        (("box", "nobody"), "has no instance `nobody`"),
        (("other", "chat"), "LH007"),
        (("box", "chat", "--budget", "7h"), "30s to 6h"),
        (("box", "chat", "--budget", "soon"), "30s to 6h"),
    ],
    ids=["two", "container", "no instance", "no rig", "too long", "no time"],
)
def test_what_cannot_be_tuned_is_said(inventory: Path, words: tuple[str, ...], says: str) -> None:
    ended = herd("tune", "-i", inventory, *words)
    assert ended.exit_code == 2, ended.output
    assert says in ended.output
    assert "Traceback" not in ended.output


def test_without_a_gpu_nothing_is_asked_about_energy(inventory: Path) -> None:
    ended = herd("tune", "-i", inventory, "box", "chat", "--for", "efficiency", "--yes")
    assert ended.exit_code == 1, ended.output
    line = inventory.read_text().splitlines().index("  chat:") + 2
    said = "error LH082: no energy of box/chat is known: it is on no GPU, whose energy could be counted"
    assert f"{inventory}:{line}:5: {said}\n  help: choose another aim" in ended.stderr
    assert searches(inventory.parent / "results", "box", "chat") == []


def test_a_host_that_is_not_there_is_a_sentence(inventory: Path) -> None:
    ended = herd("tune", "-i", inventory, "box", "chat", "--yes")
    assert ended.exit_code == 1, ended.output
    assert "help:" in ended.stderr
    assert searches(inventory.parent / "results", "box", "chat") == []


def judged(inventory: Path, **quality: float) -> Tuned:
    rig = changed(cpu_rig(), {"instances/chat/kv": "f16", "instances/chat/tune": {"quality": quality}})
    inventory.write_text(yaml.safe_dump(rig, sort_keys=False))
    return tuned(inventory, ROLES, "box", "chat")


def test_coarser_caches_are_tried_only_where_they_are_judged(inventory: Path) -> None:
    plain = tuned(inventory, ROLES, "box", "chat")
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
    unit = of.judge_unit(candidate, "q4_0", Reading(2048, 4, 512, 10**9), 300)
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
