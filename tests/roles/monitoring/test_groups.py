"""A group that is watched: each of its models is asked for its figures, and one that is not loaded is not down.

promtool says when people are told.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from roles.monitoring.rules import down_expression
from tests.bench.grouped import watched
from tests.support.ours import probes_text
from tests.support.prometheus import ask, watcher_of, write_files


def jobs() -> dict[str, dict[str, Any]]:
    """What Prometheus asks, by its names."""
    config = next(file.text for file in watcher_of(watched()).files if file.path.endswith("prometheus.yml"))
    return {each["job_name"]: each for each in yaml.safe_load(config)["scrape_configs"]}


def test_each_model_is_asked_for_without_loading_it() -> None:
    asked = jobs()
    for name, model in (("one", "gemma"), ("two", "moe")):
        job = asked[f"server box.{name}"]
        assert job["params"] == {"model": [model], "autoload": ["false"]}
        assert job["authorization"] == {"credentials_file": f"keys/box.{name}"}
        (target,) = job["static_configs"]
        assert target["targets"] == ["127.0.0.1:8090"]
        assert (target["labels"]["model"], target["labels"]["group"]) == (model, "box.card")
    alone = asked["server box.chat"]
    assert "params" not in alone
    assert "group" not in alone["static_configs"][0]["labels"]


def test_what_owners_expect_of_one_is_its_own() -> None:
    text = next(file.text for file in watcher_of(watched()).files if file.path.endswith("rules.yml"))
    rules = yaml.safe_load(text)["groups"][0]["rules"]
    expected = [(each["expr"], each["labels"]) for each in rules if str(each.get("record")).endswith(":expected")]
    assert ("vector(10)", {"rig": "box", "instance": "box.one"}) in expected


def up(one: str, two: str) -> list[dict[str, str]]:
    """Whether each of two models of a group answers, twice a minute; and a server of its own that does."""
    labels = 'job="server",rig="box",waits="no"'
    return [
        {"series": f'up{{{labels},instance="box.{name}",group="box.card"}}', "values": values}
        for name, values in (("one", one), ("two", two))
    ] + [{"series": f'up{{{labels},instance="box.chat"}}', "values": "1x60"}]


@pytest.mark.parametrize(
    ("one", "two", "fires"),
    [("1x60", "0x60", False), ("0x14 1x46", "1x14 0x46", False), ("1x4 0x56", "0x60", True)],
    ids=["one is loaded", "they swap", "nobody answers"],
)
def test_people_are_told_where_none_of_its_models_answers(tmp_path: Path, one: str, two: str, *, fires: bool) -> None:
    write_files(watcher_of(watched()), {}, tmp_path)
    said = {
        "exp_labels": {"job": "server", "rig": "box", "instance": "box.card", "group": "box.card", "severity": "page"},
        "exp_annotations": {"summary": "server box.card does not respond", "help": "`herd verify box` shows more"},
    }
    test = {
        "interval": "30s",
        "input_series": up(one, two),
        "alert_rule_test": [{"eval_time": "14m", "alertname": "ServerDown", "exp_alerts": [said] if fires else []}],
        "promql_expr_test": [
            {
                "expr": down_expression(),
                "eval_time": "14m",
                "exp_samples": [{"labels": '{job="server",rig="box",instance="box.card",group="box.card"}', "value": 0}]
                if fires
                else [],
            }
        ],
    }
    asked = {"rule_files": ["rules.yml"], "evaluation_interval": "30s", "tests": [test]}
    (tmp_path / "test.yml").write_text(json.dumps(asked), encoding="utf-8")
    done = ask("promtool", "test", "rules", "test.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_verify_asks_for_what_does_not_answer() -> None:
    text = probes_text(watched())
    assert json.dumps(f"query={down_expression()}")[1:-1] in text
