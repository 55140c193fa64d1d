"""What watches, on pyinfra's @fake connector: virgin hosts, ones that are as planned, and hosts that have drifted."""

from __future__ import annotations

import re

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Rig
from llamaherd.layout import ALERTMANAGER_UNIT, PROMETHEUS_UNIT
from llamaherd.lock import Lock
from llamaherd.plan import Plan
from roles.monitoring import exporter_changes, leftovers, watcher_changes
from roles.monitoring.onhost import ExporterInput, RemoveInput, WatcherInput
from tests.support.fake import run
from tests.support.gateway import fleet_of
from tests.support.monitoring import FILES, HOUSEHOLD, KEYS, household
from tests.support.ours import inspect_text, parse_state, plan, refusals, show_plan, tasks
from tests.support.prometheus import monitored
from tests.support.recording import input_of
from tests.support.rigs import converged, cpu_rig

EXPORTER, WATCHER = "monitoring | figures of this host", "monitoring | what watches the fleet"
HELD = {**FILES, "chat": KEYS["CHAT_KEY"], "worker": KEYS["CHAT_KEY"], "tom": KEYS["TOM_KEY"]}
VIRGIN = [
    *("os\tdebian-13", "arch\tx86_64", "systemd\tyes"),
    *(f"free\t/var/lib\t{10**12}\toverlay", f"store\t/var/lib\t{10**12}\toverlay\toverlay\trw"),
]


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


@pytest.fixture(name="box", scope="module")
def _box() -> Plan:
    return household()["box"]


@pytest.fixture(name="duo", scope="module")
def _duo() -> Plan:
    return household()["duo"]


def change_of(wanted: Plan, lines: list[str]) -> tuple[str, tuple[str, ...], WatcherInput]:
    """Return what is done to what watches, why, and by which input of the verb."""
    (change,) = watcher_changes(wanted, parse_state(lines))
    return change.action, change.reasons, input_of(change, WatcherInput)


def exporter_of(wanted: Plan, lines: list[str]) -> ExporterInput:
    """Return the input by which the exporter is applied."""
    (change,) = exporter_changes(wanted, parse_state(lines))
    return input_of(change, ExporterInput)


def drifted(wanted: Plan, was: str, now: str) -> list[str]:
    """The lines of a host where this is so instead."""
    lines = converged(wanted, HELD)
    changed_ = [re.sub(was, now, line) for line in lines]
    assert changed_ != lines
    return changed_


def test_a_virgin_host_watches_when_it_serves(box: Plan) -> None:
    assert [*tasks(box)][-2:] == [EXPORTER, WATCHER]
    action, reasons, given = change_of(box, VIRGIN)
    assert action == "create"
    assert "there is no llamaherd-prometheus.service" in reasons
    assert given.restart == (PROMETHEUS_UNIT, ALERTMANAGER_UNIT)
    assert {"prometheus", "prometheus-alertmanager", "prometheus-node-exporter"} <= set(box.packages)
    assert "llamaherd-monitor" in box.accounts


def test_a_rig_that_is_watched_has_an_exporter_alone(duo: Plan) -> None:
    assert EXPORTER in tasks(duo)
    assert WATCHER not in tasks(duo)
    (change,) = exporter_changes(duo, parse_state(VIRGIN))
    assert change.action == "create"
    assert "prometheus" not in duo.packages
    assert "llamaherd-monitor" not in duo.accounts
    assert "llamaherd-exporter" in duo.accounts


def test_others_are_let_in_by_their_address_alone(box: Plan, duo: Plan) -> None:
    assert duo.monitoring
    assert box.monitoring
    assert duo.monitoring.exporter
    assert box.monitoring.exporter
    unit = duo.monitoring.exporter.unit.text
    assert "IPAddressDeny=any\nIPAddressAllow=192.0.2.1 localhost\n" in unit
    assert "--web.listen-address=127.0.0.1:9100" in box.monitoring.exporter.unit.text


def test_a_host_that_is_as_planned_is_left_alone(box: Plan, duo: Plan) -> None:
    for wanted in (box, duo):
        state = parse_state(converged(wanted, HELD))
        assert exporter_changes(wanted, state) == []
        assert watcher_changes(wanted, state) == []
        assert list(leftovers(wanted, state)) == []


def test_a_rig_without_it_sees_nothing_of_it() -> None:
    rig = Rig.model_validate(cpu_rig())
    alone = plan(rig, Lock(), {"box": rig})
    assert alone.monitoring is None
    assert "monitoring" not in inspect_text(alone)
    gateway = "gateway: {on: [other], models: {a: {serve: [box.chat]}}}"
    beside = plan(rig, Lock(), {"box": rig}, fleet=fleet_of(gateway))
    assert beside.monitoring is None
    assert "monitoring" not in inspect_text(beside)


@pytest.mark.parametrize(
    ("was", "now", "action", "why", "does"),
    [
        ("(prometheus.service\t)active", r"\1failed", "restart", "prometheus.service is failed", "restart"),
        ("(alertmanager.service\tactive\tenabled\tno\t).*", r"\1old", "restart", "runs by spec old", "restart"),
        ("(prometheus.service\tactive\t)enabled", r"\1disabled", "update", "is disabled", ""),
        ("(monitoring\tread\t).*", r"\g<1>abc", "update", "Prometheus has read abc", "reload"),
        ("^monitoring\tread.*", "listens\t0001", "update", "no known configuration", "reload"),
        ("993 llamaherd-monitor", "0 root", "update", "belongs to root", ""),
    ],
    ids=["failed", "another alertmanager", "not enabled", "has read another", "does not tell", "another's files"],
)
def test_a_drift_is_mended(box: Plan, was: str, now: str, action: str, why: str, does: str) -> None:
    found, reasons, given = change_of(box, drifted(box, was, now))
    assert found == action
    assert why in "; ".join(reasons)
    assert (bool(given.restart), given.reload) == (does == "restart", does == "reload")


def test_another_key_is_written_and_nothing_is_restarted(box: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read a key's file whenever they send it."""
    monkeypatch.setenv("NTFY_KEY", "another")
    action, reasons, given = change_of(box, converged(box, HELD))
    assert (action, reasons) == ("update", ("/etc/llamaherd/monitoring/keys/alerts-ntfy has another text",))
    assert (given.restart, given.reload) == ((), False)
    assert "/etc/llamaherd/monitoring/keys/alerts-ntfy" in given.keys


def test_a_model_that_comes_is_a_reload(box: Plan) -> None:
    more = household(HOUSEHOLD.replace("rigs: [duo]", "rigs: [duo, porch]"))["box"]
    before = converged(box, HELD)
    action, reasons, given = change_of(more, before)
    assert action == "update"
    assert any("prometheus.yml has another text" in why for why in reasons)
    assert (given.restart, given.reload) == ((), True)


def test_the_distributions_own_units_end(box: Plan, duo: Plan) -> None:
    _, reasons, given = change_of(box, [*converged(box, HELD), "monitoring\tidle\tprometheus"])
    assert reasons == ("the distribution's own prometheus.service also runs",)
    assert given.idle == ("prometheus.service",)
    exporter = exporter_of(duo, [*converged(duo, HELD), "monitoring\tidle\tprometheus-node-exporter"])
    assert (exporter.idle, exporter.restart) == (("prometheus-node-exporter.service",), False)


def test_who_is_not_watched_any_more_loses_it(box: Plan, duo: Plan) -> None:
    gone = household("monitoring: null")
    for before, units in ((box, 3), (duo, 1)):
        state = parse_state(converged(before, HELD))
        (change,) = leftovers(gone[before.rig], state)
        assert change.action == "remove"
        assert change.name.count(".service") == units
        assert (PROMETHEUS_UNIT in input_of(change, RemoveInput).units) is (before is box)


def test_what_is_left_is_taken_away_in_a_run() -> None:
    gone = household("monitoring: null")["porch"]
    lines = [*converged(gone, HELD), "monitoring\tunit\tllamaherd-exporter.service\tactive\tenabled\tno\tabc"]
    (document,) = [each for each in run(gone, lines).documents if each["verb"] == "monitoring.remove"]
    assert document["input"] == {"units": ["llamaherd-exporter.service"]}


def test_no_key_is_in_the_plan_or_in_what_is_shown(box: Plan) -> None:
    _, reasons, given = change_of(box, VIRGIN)
    shown = "\n".join([box.model_dump_json(), show_plan(box), inspect_text(box), *reasons, repr(given)])
    assert not [key for key in KEYS.values() if key in shown]


def test_a_key_that_is_not_there_is_said_by_whose_it_is(box: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NTFY_KEY")
    with pytest.raises(UserError, match="the key of alerts by ntfy"):
        change_of(box, VIRGIN)


def test_a_port_that_is_somebody_elses_is_refused(box: Plan) -> None:
    found = refusals(box, parse_state([*VIRGIN, "listens\t238C", "listens\t2382"]), {})
    assert [each.message for each in found if each.about == "monitoring"] == [
        "port 9100 of prometheus-node-exporter is taken by something else",
        "port 9090 of prometheus is taken by something else",
    ]
    idle = ["monitoring\tidle\tprometheus-node-exporter", "monitoring\tidle\tprometheus"]
    assert not [
        each
        for each in refusals(box, parse_state([*VIRGIN, "listens\t238C", "listens\t2382", *idle]), {})
        if each.about == "monitoring"
    ]
    assert not [each for each in refusals(box, parse_state(converged(box, HELD)), {}) if each.about == "monitoring"]


def test_the_plan_says_what_is_watched(box: Plan, duo: Plan) -> None:
    shown = show_plan(box)
    assert "monitoring figures of this host on 127.0.0.1:9100" in shown
    assert "Prometheus watches hosts: box, duo" in shown
    assert "Prometheus watches duo.worker at duo.lan:8002" in shown
    assert "reasoner" not in "".join(line for line in shown.splitlines() if "watches" in line), "it is its host's alone"
    assert "on 0.0.0.0:9100, for 192.0.2.1 alone" in show_plan(duo)


def test_a_fleet_of_one_watches_itself() -> None:
    rig = Rig.model_validate(cpu_rig())
    alone = plan(rig, Lock(), {"box": rig}, fleet=fleet_of("monitoring: {on: box}"))
    assert alone.monitoring
    assert alone.monitoring.watcher
    assert [host.address for host in alone.monitoring.watcher.hosts] == ["127.0.0.1"]


def test_figures_are_written_where_there_are_gpus_or_servers(box: Plan, duo: Plan) -> None:
    (change,) = exporter_changes(duo, parse_state(drifted(duo, "(figures.timer\tactive\t)enabled", r"\1disabled")))
    assert "llamaherd-figures.timer is disabled" in change.reasons[0]
    given = input_of(change, ExporterInput)
    assert (given.timer, given.restart) == (True, False)
    assert exporter_of(box, VIRGIN).timer, "its servers may be paused"


def test_a_rig_without_gpus_and_servers_any_more_writes_none(box: Plan) -> None:
    exporter = monitored(box).exporter
    assert exporter
    without = {"exporter": exporter.model_copy(update={"figures": None})}
    box = box.model_copy(update={"monitoring": monitored(box).model_copy(update=without)})
    lines = [*converged(box, HELD), "monitoring\tunit\tllamaherd-figures.timer\tactive\tenabled\tno\t"]
    (change,) = leftovers(box, parse_state(lines))
    assert change.name == "llamaherd-figures.timer"
    assert input_of(change, RemoveInput).units == ("llamaherd-figures.timer",)


def test_who_watches_reads_figures_of_drift_where_they_are_told(box: Plan, duo: Plan) -> None:
    """Also without a GPU. Elsewhere nobody writes any."""
    told, reads = monitored(box).exporter, "--collector.textfile.directory=/var/lib/llamaherd-figures"
    assert told
    assert told.told
    assert reads in told.unit.text
    assert exporter_of(box, VIRGIN).data
    assert not exporter_of(duo, VIRGIN).data
    silent = monitored(household(HOUSEHOLD.replace("drift: true", "drift: false"))["box"])
    assert silent.exporter
    assert silent.watcher
    assert not silent.exporter.told
    assert "llamaherd_diff" not in silent.watcher.files[1].text
