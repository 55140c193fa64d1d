"""The gateway's verbs on a played host: what is swapped in runs, and what does not is rolled back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from llamaherd.layout import GATEWAY, GATEWAY_TALK, GATEWAY_UNIT, GATEWAY_USER, UNITS, WRITTEN
from llamaherd.onhost.document import Secret, decode, dump, parse_document
from llamaherd.onhost.files import WrittenFile
from llamaherd.onhost.system import Ended, FailedError
from llamaherd.onhost.verbs import NoInput, find_verb
from roles.gateway.onhost import HAPROXY, ApplyInput, How, apply, remove
from tests.support.played_host import File, Killed
from tests.support.service_host import ServiceHost, killed_everywhere

KEY = "sk-a-canary"
CONFIG, USERS, UNIT = f"{GATEWAY}/haproxy.cfg", f"{GATEWAY}/keys.map", f"{UNITS}/{GATEWAY_UNIT}"
SERVICE = GATEWAY_UNIT.removesuffix(".service")


@dataclass
class GatewayHost(ServiceHost):
    """A host with HAProxy, which serves by what it has read last."""

    has_read: tuple[str, str] = ("", "")
    """The configuration and the users of the running HAProxy."""
    bad: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with configurations, by their texts: `refused`, `does not start`, `is not read`."""
    takes_maps: bool = True

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Play HAProxy, and the program that talks to it."""
        config, users = (self.read(each) or "" for each in (CONFIG, USERS))
        if argv[0] == HAPROXY:
            staged = self.read(argv[-1]) or ""
            says = f"[ALERT] parsing [{argv[-1]}:7]: unknown keyword 'http-request {KEY}'\n"
            return Ended(1, "", says) if self.bad.get(staged) == "refused" else Ended(0)
        if argv == [str(GATEWAY_TALK), "maps"]:
            if self.takes_maps:
                self._step()
                self.has_read = (self.has_read[0], users)
            return Ended(0 if self.takes_maps else 1)
        if argv == [str(GATEWAY_TALK), "state"]:
            same = "same" if self.has_read[1] == users else "other"
            return Ended(0, f"{self.has_read[0]} {same}\n") if self.units[SERVICE].state == "active" else Ended(1)
        if argv[0] == "journalctl":
            self.done.append([*argv])
            return Ended(0, f"10.0.0.7:4711 status=200 user=tom\n{'[ALERT] no memory':<300}\n")
        ended = super().run(argv, seconds=seconds, text=text, environment=environment)
        if argv[0] == "systemctl" and argv[1] in ("restart", "reload", "reload-or-restart", "start"):
            if argv[1].startswith("reload"):
                self._step()
            if self.bad.get(config) == "does not start":
                if argv[1] == "restart":
                    self.units[SERVICE].state = "failed"
                return Ended(1)
            if self.bad.get(config) != "is not read":
                self.units[SERVICE].state = "active"
                self.has_read = (config, users)
        return ended

    def serves(self) -> str:
        """Return the configuration that clients are served by; empty where none is."""
        return self.has_read[0] if self.units.get(SERVICE) and self.units[SERVICE].state == "active" else ""


def given(config: str = "new", *, how: How = "restart", users: str = "tom", idle_own: bool = False) -> ApplyInput:
    """Return an input with a configuration that reports itself as its spec."""
    own = [WrittenFile(CONFIG, Secret(config), 0o600, GATEWAY_USER), WrittenFile(USERS, Secret(users), 0o600, "root")]
    unit = f"Environment=LLAMAHERD_SPEC=abc\n# {config}\n"
    outside = (
        WrittenFile(UNIT, Secret(unit), 0o644, "root"),
        WrittenFile(str(GATEWAY_TALK), Secret("talk"), 0o755, "root"),
    )
    return ApplyInput(tuple(own), outside, config, how, idle_own)


def virgin(**more: Any) -> GatewayHost:
    """Return a host on which HAProxy is installed."""
    return GatewayHost({}, files={HAPROXY: File("elf", 0o755)}, accounts={GATEWAY_USER}, **more)


def serving(**more: Any) -> GatewayHost:
    """Return a host whose gateway serves by the configuration `old`."""
    host = virgin()
    apply(given("old"), host)
    host.done.clear()
    host.steps = 0
    for name, value in more.items():
        setattr(host, name, value)
    return host


def nothing_staged(host: GatewayHost) -> bool:
    """Return whether neither a staged folder nor one of a version before is left."""
    return not host.entry(f"{GATEWAY}.new") and not host.entry(f"{GATEWAY}.old")


def test_a_gateway_is_checked_then_swapped_in_then_started() -> None:
    host = virgin()
    document = parse_document(dump(given(idle_own=True)).encode())
    find_verb("gateway.apply").run(decode(ApplyInput, document), host)
    assert host.serves() == "new"
    order = [host.index(*each) for each in (("haproxy.service", "disable"), ("install",), ("rename",), ("restart",))]
    assert order == sorted(order)
    assert host.has_done("install", "0700", GATEWAY_USER, f"{GATEWAY}.new")
    assert host.files[CONFIG] == File("new", 0o600, GATEWAY_USER)
    assert host.enabled == {SERVICE}
    assert nothing_staged(host)
    records = (host.read(f"{WRITTEN}/gateway") or "").splitlines()
    assert [each.split("\t")[1] for each in records] == [CONFIG, USERS]
    assert records[0].split("\t")[0] == host.digest([f"{WRITTEN}/.secret", CONFIG])


def test_the_units_of_packages_that_serve_are_left() -> None:
    host = serving()
    apply(given(), host)
    assert not host.has_done("haproxy.service")


@pytest.mark.parametrize("how", ["reload", "maps"])
def test_what_is_read_while_it_runs_restarts_nothing(how: How) -> None:
    host = serving()
    run = host.units[SERVICE].run
    apply(given("old" if how == "maps" else "new", how=how, users="tom, ann"), host)
    assert host.has_read[1] == "tom, ann"
    assert host.units[SERVICE].run == run
    assert host.has_done("reload") is (how == "reload")
    assert nothing_staged(host)


def test_a_gateway_that_refuses_maps_is_reloaded() -> None:
    host = serving(takes_maps=False)
    apply(given("old", how="maps", users="ann"), host)
    assert host.has_read == ("old", "ann")
    assert host.has_done("reload")


@pytest.mark.parametrize("lacks", ["HAProxy", "its account", "its permission"])
def test_a_host_without_haproxy_is_left_as_it_is(lacks: str) -> None:
    host = virgin()
    if lacks == "its account":
        host.accounts.clear()
    elif lacks == "HAProxy":
        del host.files[HAPROXY]
    else:
        host.files[HAPROXY].mode = 0o644
    with pytest.raises(FailedError, match=f"HAProxy or the account {GATEWAY_USER} is missing") as caught:
        apply(given(idle_own=True), host)
    assert "without `--only`" in caught.value.fix
    assert host.steps == 0


def test_a_configuration_that_haproxy_refuses_changes_nothing() -> None:
    host = serving(bad={"new": "refused"})
    before = dict(host.files)
    with pytest.raises(FailedError, match="HAProxy rejects this configuration; the previous one still") as caught:
        apply(given(), host)
    assert (host.files, host.serves()) == (before, "old")
    assert nothing_staged(host)
    assert caught.value.log == ("haproxy.cfg:7",), "a line of it may contain a key"


@pytest.mark.parametrize(
    ("how", "bad", "why"),
    [
        ("restart", "does not start", "it does not start"),
        ("reload", "does not start", "it cannot be reloaded"),
        ("restart", "is not read", "it does not report that it has read the configuration"),
        ("reload", "is not read", "it does not report that it has read the configuration"),
    ],
)
def test_a_configuration_that_does_not_run_is_rolled_back(how: How, bad: str, why: str) -> None:
    host = serving(bad={"new": bad})
    with pytest.raises(FailedError) as caught:
        apply(given(how=how), host)
    message = f"the gateway does not run with this configuration: {why}; what served before does again"
    assert caught.value.message == message
    assert caught.value.log == (f"{'[ALERT] no memory':<200}",), "no line of a user's request is shown"
    assert (host.serves(), host.read(CONFIG)) == ("old", "old")
    assert nothing_staged(host)
    assert not host.entry(f"{WRITTEN}/gateway")
    host.bad = {}
    apply(given(how=how), host)
    assert host.serves() == "new"


def test_a_first_configuration_that_does_not_run_is_stopped() -> None:
    host = virgin(bad={"new": "does not start"})
    with pytest.raises(FailedError, match="this configuration: it does not start"):
        apply(given(), host)
    assert host.serves() == ""
    assert host.has_done("stop", GATEWAY_UNIT)


def test_a_version_before_that_does_not_run_either_is_reported() -> None:
    host = serving(bad={"new": "does not start", "old": "does not start"})
    with pytest.raises(FailedError, match="the configuration before was restored, but does not run either"):
        apply(given(), host)
    assert host.read(CONFIG) == "old"


def test_a_version_before_that_was_not_removed_is_not_what_is_restored() -> None:
    host = serving()
    with pytest.raises(Killed):
        apply(given("second"), killed_before_the_end(host))
    assert (host.serves(), host.read(f"{GATEWAY}.old/haproxy.cfg")) == ("second", "old")
    host.kill_at, host.bad = -1, {"new": "does not start"}
    host.held.clear()
    with pytest.raises(FailedError, match="what served before does again"):
        apply(given(), host)
    assert (host.serves(), host.read(CONFIG)) == ("second", "second")


def killed_before_the_end(host: GatewayHost) -> GatewayHost:
    """Return a host whose next run is killed before it removes the version before."""
    trial = serving()
    apply(given("second"), trial)
    host.kill_at = trial.steps - 1
    return host


def run_again(host: GatewayHost, wanted: ApplyInput) -> None:
    """Run to the end, whatever comes of it."""
    try:
        apply(wanted, host)
    except FailedError as error:
        host.log.append(error.message)


@pytest.mark.parametrize("how", ["restart", "reload"])
@pytest.mark.parametrize("make", [virgin, serving])
def test_a_run_that_was_killed_is_completed_by_the_next(make: Any, how: How) -> None:
    hosts = killed_everywhere(make, lambda host: apply(given(how="restart" if make is virgin else how), host))
    assert len(hosts) > 8
    for host in hosts:
        assert (host.serves(), host.read(CONFIG)) == ("new", "new")
        assert nothing_staged(host)
        assert host.entry(f"{WRITTEN}/gateway")


@pytest.mark.parametrize("bad", ["refused", "does not start", "is not read"])
@pytest.mark.parametrize("how", ["restart", "reload"])
def test_after_a_kill_what_served_last_is_restored(how: How, bad: str) -> None:
    """Not what the killed run has left there, which never ran."""
    hosts = killed_everywhere(lambda: serving(bad={"new": bad}), lambda host: run_again(host, given(how=how)))
    assert len(hosts) > 2
    for host in hosts:
        assert (host.serves(), host.read(CONFIG)) == ("old", "old")
        assert nothing_staged(host)


@pytest.mark.parametrize("full", [".new/", UNIT, str(GATEWAY_TALK)])
def test_a_full_disk_changes_nothing(full: str) -> None:
    host = serving(full=full)
    with pytest.raises(FailedError, match="No space left on device") as caught:
        apply(given(), host)
    assert caught.value.message.startswith(f"cannot write {GATEWAY if full == '.new/' else full}")
    assert "make room on /" in caught.value.fix
    assert KEY not in f"{caught.value}{caught.value.log}"
    assert (host.serves(), host.read(CONFIG)) == ("old", "old")
    assert nothing_staged(host)


def test_a_disk_without_room_for_the_record_costs_the_record_alone() -> None:
    host = virgin(full=str(WRITTEN))
    apply(given(), host)
    assert host.serves() == "new"
    assert not host.entry(f"{WRITTEN}/gateway")


@pytest.mark.parametrize("fails", ["install", "systemctl -q enable"])
def test_a_step_that_fails_is_reported_with_its_output(fails: str) -> None:
    host = serving(ends={fails: Ended(1, "", "it is masked\n")})
    with pytest.raises(FailedError, match="cannot ") as caught:
        apply(given(), host)
    assert caught.value.log == ("it is masked",)
    assert (host.serves(), host.read(CONFIG)) == ("old", "old")


def test_a_folder_that_cannot_be_renamed_is_reported() -> None:
    class Fixed(GatewayHost):
        def rename(self, path: str, to: str) -> None:
            raise PermissionError(1, "Operation not permitted", path, None, to)

    host = Fixed(**vars(serving()))
    with pytest.raises(FailedError, match=f"cannot write {GATEWAY}: Operation not permitted"):
        apply(given(), host)
    assert host.serves() == "old"


def test_a_removed_gateway_leaves_nothing_and_a_second_removal_does_nothing() -> None:
    host = serving()
    find_verb("gateway.remove").run(decode(NoInput, {}), host)
    assert host.serves() == ""
    left = [each for each in host.files if "gateway" in each]
    assert (left, host.enabled) == ([], set())
    before = dict(host.files)
    remove(NoInput(), host)
    assert host.files == before


def test_a_removal_that_was_killed_keeps_the_unit_until_the_end() -> None:
    hosts = killed_everywhere(serving, lambda host: remove(NoInput(), host))
    assert len(hosts) > 4
    assert not [each for host in hosts for each in host.files if "gateway" in each]
    for at in range(len(hosts)):
        host = replace(serving(), kill_at=at)
        with pytest.raises(Killed):
            remove(NoInput(), host)
        if any("gateway" in each for each in host.files):
            assert UNIT in host.files, "the next run finds by it what is left"
