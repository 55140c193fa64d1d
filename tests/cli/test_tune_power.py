"""`herd tune` under power limits, where no host is asked: by the key and by the option, and what is written of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.inventory.schema import PowerLimits, Tune
from llamaherd.measure.tune.tuning import tune_target
from roles import ROLES
from tests.support.rigs import changed, cpu_rig
from tests.support.searched import declared, herd, searched


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHAT_KEY", "canary")
    return declared(tmp_path)


CARDS = "gpus: {cuda: '13.0', cards: {big: {model: RTX 3090, memory: 24GB, architecture: '86'}}}  # the only one\n"


def test_a_power_limit_is_applied_with_the_keys(inventory: Path) -> None:
    inventory.write_text(inventory.read_text() + CARDS)
    searched(inventory, limited={200: 90.0, 250: 99.5, 300: 100.0})
    ended = herd("tune", "-i", inventory, "box/chat", "--apply")
    assert ended.exit_code == 0, ended.output
    assert "in the inventory:\n  gpus:\n    cards:\n      big:\n        power_limit: 250W\n" in ended.stdout
    text = inventory.read_text()
    assert CARDS.replace("'86'}", "'86', power_limit: 250W}") in text
    assert yaml.safe_load(text)["instances"]["chat"]["threads"] == 1


def test_a_gpu_that_another_file_declares_is_not_written(inventory: Path) -> None:
    searched(inventory, limited={200: 90.0, 250: 99.5, 300: 100.0})
    before = inventory.read_text()
    ended = herd("tune", "-i", inventory, "box/chat", "--apply")
    assert ended.exit_code == 1, ended.output
    assert "does not declare GPU `big`" in ended.stderr
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
    ended = herd("tune", "-i", inventory, "box/chat")
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
    of = tune_target(inventory, ROLES, "box", "chat", option)
    assert of.watts == tried
    assert (of.identity == tune_target(inventory, ROLES, "box", "chat").identity) == (not option)


@pytest.mark.usefixtures("starts_processes")
def test_a_search_with_the_option_is_known_by_it(inventory: Path) -> None:
    on_a_card(inventory)
    searched(inventory, limited={200: 90.0, 250: 99.5, 300: 100.0}, watts=(200, 250, 300))
    for limits in ("200W..300W/50W", "200,250,300"):
        ended = herd("tune", "-i", inventory, "box/chat", "--power", limits)
        assert ended.exit_code == 0, ended.output
        assert "the result of" in ended.stderr
        assert "power_limit: 250W" in ended.stdout
    ended = herd("tune", "-i", inventory, "box/chat", "--yes")
    assert "the result of" not in ended.stderr


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ("", "invalid power limits"),
        (
            "much",
            "invalid power limits `much`: they must lie between 10 and 2000 W; for example `--power 200W..350W/10W`",
        ),
        ("300W", "one power limit makes no series; name 2 to 12, or take another step"),
        ("200W..350W/10W", "16 power limits make no series; name 2 to 12, or take another step"),
    ],
)
def test_an_option_that_says_no_power_limits_is_refused(inventory: Path, limits: str, says: str) -> None:
    ended = herd("tune", "-i", inventory, "box/chat", "--power", limits)
    assert ended.exit_code == 2, ended.output
    assert says in " ".join(ended.stderr.split())


def test_without_a_gpu_the_option_is_refused_before_a_host_is_asked(inventory: Path) -> None:
    ended = herd("tune", "-i", inventory, "box/chat", "--power", "200W,300W", "--yes")
    assert ended.exit_code == 1, ended.output
    said = "error LH083: cannot set power limits for box/chat: instance `chat` is on no GPU"
    assert said in ended.stderr
    assert "\n  help: leave out `--power`, or name limits that its GPUs take" in ended.stderr


def test_under_wsl_the_option_is_refused_before_a_host_is_asked(inventory: Path) -> None:
    on_a_card(inventory)
    wsl = {"host/wsl": {"memory": "64GB", "swap": "16GB", "networking": "mirrored"}, "host/ram": "64GB"}
    inventory.write_text(yaml.safe_dump(changed(yaml.safe_load(inventory.read_text()), wsl), sort_keys=False))
    ended = herd("tune", "-i", inventory, "box/chat", "--power", "200W,300W", "--yes")
    assert ended.exit_code == 1, ended.output
    assert "error LH083: cannot set power limits for box/chat: under WSL, Windows sets power limits" in ended.stderr


def test_without_a_gpu_no_power_limit_is_tried(inventory: Path) -> None:
    rig = changed(cpu_rig(), {"instances/chat/tune": {"power": {"max": 300}}})
    inventory.write_text(yaml.safe_dump(rig, sort_keys=False))
    ended = herd("tune", "-i", inventory, "box/chat")
    assert ended.exit_code == 2, ended.output
    assert "LH083" in ended.output
    assert "instance `chat` is on no GPU" in ended.output
