"""When alerts fire, by promtool: each in one case, and not in its neighbour, which are data in alerts.yaml."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.plan import Plan
from roles.monitoring.rules import ALERTS, Alert
from tests.support.monitoring import household
from tests.support.prometheus import ask, watcher_of, write_files

CASES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("alerts.yaml").read_text(encoding="utf-8"))


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert list(CASES) == [alert.name for alert in ALERTS]
    assert all(list(case) == ["fires", "silent"] for case in CASES.values())


@pytest.fixture(scope="module")
def watching() -> Plan:
    """The plan of the rig that watches the household."""
    return household()["box"]


@pytest.mark.parametrize("kind", ["fires", "silent"])
@pytest.mark.parametrize("alert", ALERTS, ids=[alert.name for alert in ALERTS])
def test_an_alert_fires_when_it_must(tmp_path: Path, alert: Alert, kind: str, watching: Plan) -> None:
    _asked(tmp_path, alert, CASES[alert.name][kind], watching)


def _asked(tmp_path: Path, alert: Alert, case: dict[str, Any], watching: Plan) -> None:
    """What promtool says of a case, by the rules of a rig that watches."""
    write_files(watcher_of(watching), {}, tmp_path)
    series = [{"series": name, "values": str(values)} for name, values in case["series"].items()]
    expected = {"eval_time": case["at"], "alertname": alert.name, "exp_alerts": _said(alert, case)}
    every = case.get("every", "30s")
    test = {"interval": every, "input_series": series, "alert_rule_test": [expected]}
    asked = {"rule_files": ["rules.yml"], "evaluation_interval": every, "tests": [test]}
    (tmp_path / "test.yml").write_text(json.dumps(asked), encoding="utf-8")
    done = ask("promtool", "test", "rules", "test.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["ServerDown", "ServerStopped", "GatewayServerDown"])
@pytest.mark.parametrize("other", [False, True], ids=["it is paused", "another server is paused"])
def test_an_alert_does_not_fire_for_a_paused_server(tmp_path: Path, name: str, watching: Plan, *, other: bool) -> None:
    alert = next(each for each in ALERTS if each.name == name)
    server = "drafter" if other else "chat"
    paused = f'llamaherd_server_paused{{rig="duo",instance="duo",name="llama-{server}.service",server="{server}"}}'
    case = {**CASES[name]["fires"]}
    case["series"] = {**case["series"], paused: "1x80"}
    if not other:
        del case["summary"]
    _asked(tmp_path, alert, case, watching)


@pytest.mark.parametrize("name", ["RigUnreachable", "ServerDown", "GatewayServerDown"])
@pytest.mark.parametrize("awake", [False, True], ids=["its host does not respond", "its host responds"])
def test_an_alert_does_not_fire_for_a_rig_that_sleeps(tmp_path: Path, name: str, *, awake: bool) -> None:
    alert = next(each for each in ALERTS if each.name == name)
    if name == "RigUnreachable" and awake:
        return
    case = {**CASES[name]["fires"]}
    host = 'up{job="host",rig="duo",instance="duo"}'
    case["series"] = {**case["series"], host: "1x80" if awake else "0x80"}
    case["series"] = {each.replace("duo.chat", "duo.worker"): values for each, values in case["series"].items()}
    if awake:
        case["labels"] = {key: value.replace("duo.chat", "duo.worker") for key, value in case["labels"].items()}
        case["summary"] = case["summary"].replace("duo.chat", "duo.worker")
    else:
        del case["summary"]
    _asked(tmp_path, alert, case, household(wakes="duo")["box"])


@pytest.mark.parametrize(
    ("measured", "fires"),
    [({"duo.worker": 30.0}, True), ({"duo.worker": 28.0}, False), ({"box.chat": 30.0}, False), ({}, False)],
    ids=["under 70 % of it", "over 70 % of it", "another was measured", "nothing was measured"],
)
def test_a_server_is_slow_by_what_was_measured_of_it(
    tmp_path: Path, measured: dict[str, float], *, fires: bool
) -> None:
    """20 tokens a second, where nobody has said what is expected."""
    alert = next(each for each in ALERTS if each.name == "SlowerThanExpected")
    labels = 'rig="duo",instance="duo.worker"'
    counters = {"tokens_predicted_total": "0+600x80", "tokens_predicted_seconds_total": "0+30x80"}
    series = {f"llamacpp:{name}{{{labels}}}": values for name, values in counters.items()}
    case = {"at": "30m", "series": {**series, f"llamacpp:requests_processing{{{labels}}}": "1x80"}}
    if fires:
        said = "duo.worker writes 20.0 tokens a second to one client"
        case |= {"labels": {"rig": "duo", "instance": "duo.worker"}, "summary": said}
    _asked(tmp_path, alert, case, household(measured=measured)["box"])


def _said(alert: Alert, case: dict[str, Any]) -> list[Any]:
    """The one alert that is to fire, with all that is said of it."""
    if "summary" not in case:
        return []
    labels = case["labels"]
    help_ = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels[found[1]], alert.help)
    annotations = {"summary": case["summary"], "help": help_}
    return [{"exp_labels": {**labels, "severity": alert.severity}, "exp_annotations": annotations}]
