"""Monitoring's verbs on a played host: what is swapped in runs, and what does not is rolled back."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from llamaherd.layout import (
    ALERTMANAGER_PORT,
    ALERTMANAGER_UNIT,
    EXPORTER_UNIT,
    EXPORTER_USER,
    FIGURES_DATA,
    FIGURES_FILE,
    FIGURES_PROGRAM,
    FIGURES_TIMER,
    FIGURES_UNIT,
    MONITORING,
    MONITORING_DATA,
    MONITORING_USER,
    PROMETHEUS_PORT,
    PROMETHEUS_UNIT,
    UNITS,
    WRITTEN,
)
from llamaherd.onhost.document import Secret, decode, dump, parse_document
from llamaherd.onhost.files import WrittenFile
from llamaherd.onhost.system import Ended, FailedError
from llamaherd.onhost.verbs import find_verb
from roles.monitoring import onhost
from roles.monitoring.onhost import (
    AMTOOL,
    EXPORTER,
    PROMTOOL,
    ExporterInput,
    RemoveInput,
    Response,
    WatcherInput,
    apply_exporter,
    fetch_local,
    remove,
)
from roles.monitoring.onhost import (
    apply as apply_watcher,
)
from tests.support.played_host import File
from tests.support.service_host import ServiceHost, killed_everywhere

KEY = "sk-a-canary"
CONFIG, KEY_FILE = f"{MONITORING}/prometheus.yml", f"{MONITORING}/keys/box.chat"
BOTH = (PROMETHEUS_UNIT, ALERTMANAGER_UNIT)
PROGRAMS = {each: File("elf", 0o755) for each in (PROMTOOL, AMTOOL, EXPORTER)}


@dataclass
class WatchingHost(ServiceHost):
    """A host with Prometheus and Alertmanager. A text of configuration is its spec."""

    has_read: str = ""
    dead: set[str] = field(default_factory=set)
    """Configurations with which Prometheus ends as it starts."""
    unread: set[str] = field(default_factory=set)
    """Configurations that Prometheus does not read."""
    ready: int = 200
    """The status of Alertmanager's response."""

    def run(self, argv: Sequence[str], **more: Any) -> Ended:
        """Play Prometheus."""
        ended = super().run(argv, **more)
        if argv[0] != "systemctl" or PROMETHEUS_UNIT not in argv:
            return ended
        config = self.read(CONFIG) or ""
        if argv[1] == "reload":
            self._step()
        if argv[1] in ("restart", "reload"):
            if config in self.dead:
                if argv[1] == "restart":
                    self.units[PROMETHEUS_UNIT.removesuffix(".service")].state = "failed"
                return Ended(1)
            if config not in self.unread:
                self.has_read = config
        return ended

    def fetch(self, port: int, path: str) -> Response | None:
        """Play both APIs."""
        units = {PROMETHEUS_PORT: PROMETHEUS_UNIT, ALERTMANAGER_PORT: ALERTMANAGER_UNIT}
        running = self.units.get(units[port].removesuffix(".service"))
        if running is None or running.state != "active":
            return None
        if port == ALERTMANAGER_PORT:
            return Response(self.ready, "") if path == "/-/ready" else None
        labels = f'{{"labels":{{"spec":"{self.has_read}"}}}}'
        return Response(200, f'{{"data":{{"rules":[{labels}]}}}}') if self.has_read else Response(503, "loading")

    def watches(self) -> str:
        """Return the configuration by which Prometheus watches; empty where it does not run."""
        response = self.fetch(PROMETHEUS_PORT, "")
        return self.has_read if response else ""


def given(spec: str = "bb", *, restart: tuple[str, ...] = BOTH, idle: tuple[str, ...] = ()) -> WatcherInput:
    """Return an input; it reloads Prometheus where nothing restarts."""
    own = [
        WrittenFile(path, Secret(text), 0o400, MONITORING_USER)
        for path, text in ((CONFIG, spec), (f"{MONITORING}/alertmanager.yml", "alerts"), (KEY_FILE, KEY))
    ]
    units = [WrittenFile(f"{UNITS}/{each}", Secret(f"ExecStart={each}\n"), 0o644, "root") for each in BOTH]
    return WatcherInput(tuple(own), (KEY_FILE,), tuple(units), restart, not restart, spec, idle)


def apply(wanted: WatcherInput, host: WatchingHost) -> None:
    """Apply an input, and let the host respond."""
    apply_watcher(wanted, host, host.fetch)


def virgin(**more: Any) -> WatchingHost:
    """Return a host with the packages."""
    return WatchingHost({}, files=dict(PROGRAMS), accounts={MONITORING_USER, EXPORTER_USER}, **more)


def watching(**more: Any) -> WatchingHost:
    """Return a host that watches by the configuration `aa`."""
    host = virgin()
    apply(given("aa"), host)
    host.done.clear()
    for name, value in more.items():
        setattr(host, name, value)
    return host


def nothing_staged(host: ServiceHost) -> bool:
    """Return whether neither a staged folder nor one of a version before is left."""
    return not host.entry(f"{MONITORING}.new") and not host.entry(f"{MONITORING}.old")


def test_a_configuration_is_checked_then_swapped_in_then_started(monkeypatch: pytest.MonkeyPatch) -> None:
    host = virgin()
    monkeypatch.setattr(onhost, "fetch_local", host.fetch)
    document = parse_document(dump(given(idle=("prometheus.service",))).encode())
    find_verb("monitoring.apply").run(decode(WatcherInput, document), host)
    assert host.watches() == "bb"
    words = (("prometheus.service", "disable"), (f"{MONITORING}.new/keys",), (PROMTOOL,), (AMTOOL,), ("rename",))
    order = [host.index(*each) for each in (*words, ("restart",))]
    assert order == sorted(order)
    assert host.files[KEY_FILE] == File(KEY, 0o400, MONITORING_USER)
    assert host.enabled == {each.removesuffix(".service") for each in BOTH}
    assert nothing_staged(host)
    assert (host.read(f"{WRITTEN}/monitoring") or "").endswith(f"\t{KEY_FILE}\n")
    assert KEY not in f"{host.done}{host.log}{given()}"


def test_a_reload_restarts_nothing() -> None:
    host = watching()
    runs = {name: each.run for name, each in host.units.items()}
    apply(given(restart=()), host)
    assert host.watches() == "bb"
    assert {name: each.run for name, each in host.units.items()} == runs


def test_a_key_alone_restarts_and_reloads_nothing() -> None:
    host = watching()
    wanted = given("aa", restart=())
    apply(WatcherInput(wanted.files, wanted.keys, wanted.units, (), False, "aa", ()), host)
    assert not host.has_done("restart")
    assert not host.has_done("reload")
    assert nothing_staged(host)


@pytest.mark.parametrize(("tool", "name"), [(PROMTOOL, "Prometheus"), (AMTOOL, "Alertmanager")])
def test_a_configuration_that_is_refused_changes_nothing(tool: str, name: str) -> None:
    host = watching(ends={tool: Ended(1, "SUCCESS: one file\n", f"FAILED: line 7{'.' * 400}\n")})
    before = dict(host.files)
    with pytest.raises(FailedError, match=f"{name} rejects this configuration; the previous one still") as caught:
        apply(given(), host)
    assert [len(each) for each in caught.value.log] == [300]
    assert (host.files, host.watches()) == (before, "aa")


@pytest.mark.parametrize(
    ("restart", "more", "why"),
    [
        (BOTH, {"dead": {"bb"}}, "it does not start"),
        ((), {"dead": {"bb"}}, "it cannot be reloaded"),
        (BOTH, {"unread": {"bb"}}, "it does not report that it has read the configuration"),
        (BOTH, {"ready": 503}, "it does not report that it has read the configuration"),
    ],
)
def test_a_configuration_that_does_not_run_is_rolled_back(
    restart: tuple[str, ...], more: dict[str, Any], why: str
) -> None:
    host = watching(**more)
    before = host.time
    with pytest.raises(FailedError) as caught:
        apply(given(restart=restart), host)
    message = f"monitoring does not run with this configuration: {why}; the configuration before is used again"
    assert caught.value.message == message
    assert (host.watches(), host.read(CONFIG)) == ("aa", "aa")
    assert nothing_staged(host)
    assert (host.time - before > 100) is ("report" in why), "Prometheus may read its data for two minutes"


def test_a_first_configuration_that_does_not_run_is_stopped() -> None:
    host = virgin(dead={"bb"})
    with pytest.raises(FailedError, match="it does not start"):
        apply(given(), host)
    assert host.watches() == ""
    assert {each.state for each in host.units.values()} == {"inactive"}


@pytest.mark.parametrize("make", [virgin, watching])
def test_a_run_that_was_killed_is_completed_by_the_next(make: Any) -> None:
    hosts: list[WatchingHost] = killed_everywhere(make, lambda host: apply(given(), host))
    assert len(hosts) > 8
    for host in hosts:
        assert (host.watches(), host.read(CONFIG)) == ("bb", "bb")
        assert nothing_staged(host)


def test_after_a_kill_what_ran_last_is_restored() -> None:
    def run(host: WatchingHost) -> None:
        with pytest.raises(FailedError):
            apply(given(), host)

    for host in killed_everywhere(lambda: watching(dead={"bb"}), run):
        assert (host.watches(), host.read(CONFIG)) == ("aa", "aa")


@pytest.mark.parametrize("full", [".new/keys/", PROMETHEUS_UNIT])
def test_a_full_disk_changes_nothing(full: str) -> None:
    host = watching(full=full)
    with pytest.raises(FailedError, match="No space left on device") as caught:
        apply(given(), host)
    assert KEY not in f"{caught.value}{caught.value.fix}"
    assert (host.watches(), host.read(CONFIG)) == ("aa", "aa")
    assert nothing_staged(host)


@pytest.mark.parametrize("lacks", [PROMTOOL, AMTOOL, MONITORING_USER])
def test_a_host_without_the_packages_is_left_as_it_is(lacks: str) -> None:
    host = virgin()
    host.files.pop(lacks, None)
    host.accounts.discard(lacks)
    with pytest.raises(FailedError, match="Prometheus, Alertmanager or the account llamaherd-monitor is missing"):
        apply(given(), host)
    assert host.steps == 0


# --- the exporter -------------------------------------------------------------------------------------------


def exporter(*, restart: bool = True, timer: bool = False, data: bool = False) -> ExporterInput:
    """Return an input of the exporter, with a timer and what it starts."""
    files = [WrittenFile(f"{UNITS}/{EXPORTER_UNIT}", Secret("ExecStart=a\n"), 0o644, "root")]
    if timer:
        files.append(WrittenFile(f"{UNITS}/{FIGURES_TIMER}", Secret("OnCalendar=a\n"), 0o644, "root"))
    return ExporterInput(tuple(files), restart, timer, data, ("prometheus-node-exporter.service",))


def running(host: ServiceHost) -> set[str]:
    """Return the units that run."""
    return {name for name, each in host.units.items() if each.state == "active"}


def test_an_exporter_is_started_after_the_folder_that_it_reads() -> None:
    host = virgin()
    document = parse_document(dump(exporter(timer=True, data=True)).encode())
    find_verb("monitoring.apply_exporter").run(decode(ExporterInput, document), host)
    assert running(host) == {"llamaherd-exporter", FIGURES_TIMER}
    assert host.enabled == running(host)
    assert str(FIGURES_DATA) in host.folders
    assert host.index("prometheus-node-exporter.service", "disable") < host.index("restart", EXPORTER_UNIT)


def test_an_exporter_that_runs_as_planned_is_not_restarted() -> None:
    host = virgin()
    apply_exporter(exporter(), host)
    run = host.units["llamaherd-exporter"].run
    apply_exporter(exporter(restart=False, timer=True), host)
    assert host.units["llamaherd-exporter"].run == run
    assert FIGURES_TIMER in running(host)
    assert not host.entry(str(FIGURES_DATA))


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        (f"systemctl restart {EXPORTER_UNIT}", "the exporter does not run"),
        (f"systemctl -q is-active {EXPORTER_UNIT}", "the exporter does not run"),
        (f"systemctl restart {FIGURES_TIMER}", f"{FIGURES_TIMER} does not start"),
        (f"systemctl -q enable {FIGURES_TIMER}", f"cannot enable {FIGURES_TIMER}"),
    ],
)
def test_an_exporter_that_does_not_run_is_reported(ends: str, why: str) -> None:
    host = virgin(ends={ends: Ended(3)})
    with pytest.raises(FailedError, match=why):
        apply_exporter(exporter(timer=True), host)


def test_a_killed_run_of_the_exporter_is_completed_by_the_next() -> None:
    wanted = exporter(timer=True, data=True)
    for host in killed_everywhere(virgin, lambda host: apply_exporter(wanted, host)):
        assert running(host) == host.enabled == {"llamaherd-exporter", FIGURES_TIMER}


def test_a_full_disk_stops_no_exporter() -> None:
    host = virgin()
    apply_exporter(exporter(), host)
    host.full = str(UNITS)
    with pytest.raises(FailedError, match=f"cannot write {UNITS}/{EXPORTER_UNIT}: No space left on device"):
        apply_exporter(exporter(), host)
    assert running(host) == {"llamaherd-exporter"}


def test_a_host_without_the_exporters_package_is_left_as_it_is() -> None:
    host = virgin()
    del host.files[EXPORTER]
    with pytest.raises(FailedError, match="the exporter's package or the account llamaherd-exporter is missing"):
        apply_exporter(exporter(), host)


# --- removal ------------------------------------------------------------------------------------------------


def everything() -> WatchingHost:
    """Return a host that has all of it."""
    host = watching()
    apply_exporter(exporter(timer=True, data=True), host)
    for path in (f"{UNITS}/{FIGURES_UNIT}", str(FIGURES_PROGRAM), str(FIGURES_FILE), f"{MONITORING_DATA}/wal"):
        host.files[path] = File("x")
    return host


ALL = RemoveInput((PROMETHEUS_UNIT, ALERTMANAGER_UNIT, EXPORTER_UNIT, FIGURES_TIMER))


def test_what_is_removed_leaves_data_alone_and_a_second_removal_does_nothing() -> None:
    host = everything()
    find_verb("monitoring.remove").run(decode(RemoveInput, parse_document(dump(ALL).encode())), host)
    assert host.files.keys() == {*PROGRAMS, f"{MONITORING_DATA}/wal", f"{WRITTEN}/.secret"}
    assert (running(host), host.enabled) == (set(), set())
    remove(ALL, host)
    assert host.files.keys() == {*PROGRAMS, f"{MONITORING_DATA}/wal", f"{WRITTEN}/.secret"}


def test_a_timer_goes_with_its_figures_alone() -> None:
    host = everything()
    remove(RemoveInput((FIGURES_TIMER,)), host)
    assert not [path for path in host.files if "figures" in path]
    assert host.entry(str(FIGURES_DATA)), "the exporter reads it still"
    assert running(host) == {each.removesuffix(".service") for each in (*BOTH, EXPORTER_UNIT)}
    assert host.watches() == "aa"


def test_a_killed_removal_is_completed_by_the_next() -> None:
    for host in killed_everywhere(everything, lambda host: remove(ALL, host)):
        assert host.files.keys() == {*PROGRAMS, f"{MONITORING_DATA}/wal", f"{WRITTEN}/.secret"}


# --- HTTP ---------------------------------------------------------------------------------------------------


class Connection:
    """In the place of a connection of http.client."""

    fails: Exception | None = None
    status = 200

    def __init__(self, host: str, port: int, timeout: float) -> None:
        assert (host, port, timeout) == ("127.0.0.1", PROMETHEUS_PORT, 5)
        self.closed = False

    def request(self, method: str, path: str) -> None:
        """Send a request, or fail."""
        assert (method, path) == ("GET", "/a")
        if self.fails:
            raise self.fails

    def getresponse(self) -> Connection:
        """Return a response, which is this."""
        return self

    def read(self, most: int) -> bytes:
        """Return a body that is not UTF-8."""
        return b"\xffspec"[:most]

    def close(self) -> None:
        """Close it."""
        self.closed = True


@pytest.mark.parametrize("fails", [None, ConnectionRefusedError(), http.client.BadStatusLine("x"), TimeoutError()])
def test_a_service_that_does_not_respond_has_no_response(
    monkeypatch: pytest.MonkeyPatch, fails: Exception | None
) -> None:
    monkeypatch.setattr(http.client, "HTTPConnection", Connection)
    monkeypatch.setattr(Connection, "fails", fails)
    expected = None if fails else Response(200, "\ufffdspec")
    assert fetch_local(PROMETHEUS_PORT, "/a") == expected
