"""The virtual address' verbs on a played host: keepalived checks its configuration before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from llamaherd.layout import ADDRESS, ADDRESS_PROGRAM, ADDRESS_UNIT, ASK_USER, UNITS
from llamaherd.onhost.document import Secret, decode, dump, parse_document
from llamaherd.onhost.files import WrittenFile
from llamaherd.onhost.system import Ended, FailedError
from llamaherd.onhost.verbs import NoInput, find_verb
from roles.virtual_address.onhost import KEEPALIVED, NEW, ApplyInput, apply, remove
from tests.support.played_host import File
from tests.support.service_host import ServiceHost, killed_everywhere

CONFIG, UNIT = f"{ADDRESS}/keepalived.conf", f"{UNITS}/{ADDRESS_UNIT}"
SERVICE = ADDRESS_UNIT.removesuffix(".service")


@dataclass
class AddressHost(ServiceHost):
    """A host with keepalived."""

    checked: list[str] = field(default_factory=list)
    """The texts that keepalived was given to check."""
    dead: bool = False
    """Whether keepalived ends as it starts."""

    def run(self, argv: Sequence[str], **more: Any) -> Ended:
        """Play keepalived, and the program that fills in the interface."""
        ended = super().run(argv, **more)
        if argv[:1] == ["sh"] and ended.ok:
            self.write(argv[4], (self.read(argv[3]) or "").replace("@INTERFACE@", "lan0"))
        if argv[0] == KEEPALIVED:
            self.checked.append(self.read(argv[-1]) or "")
        if self.dead and argv[:2] == ["systemctl", "restart"]:
            self.units[SERVICE].state = "failed"
        return ended


def given(text: str = "new", *, restart: bool = True) -> ApplyInput:
    """Return an input."""
    config = f"# {text}\ninterface @INTERFACE@\n  script_user {ASK_USER}\n"
    return ApplyInput(
        WrittenFile(CONFIG, Secret(config), 0o644, "root"),
        WrittenFile(str(ADDRESS_PROGRAM), Secret("#!/bin/sh\n"), 0o755, "root"),
        WrittenFile(UNIT, Secret(f"# {text}\n"), 0o644, "root"),
        restart,
    )


def virgin(**more: Any) -> AddressHost:
    """Return a host with the package."""
    return AddressHost({}, files={KEEPALIVED: File("elf", 0o755)}, accounts={ASK_USER}, **more)


def serving(**more: Any) -> AddressHost:
    """Return a host on which keepalived runs."""
    host = virgin()
    apply(given("old"), host)
    host.done.clear()
    for name, value in more.items():
        setattr(host, name, value)
    return host


def runs(host: AddressHost) -> str:
    """Return the unit by which keepalived runs; empty where it does not."""
    found = host.units.get(SERVICE)
    return found.text.strip("# \n") if found and found.state == "active" else ""


def test_a_configuration_is_checked_for_this_host_then_written_then_started() -> None:
    host = virgin()
    find_verb("virtual_address.apply").run(decode(ApplyInput, parse_document(dump(given()).encode())), host)
    assert runs(host) == "new"
    assert host.checked == ["# new\ninterface lan0\n  script_user root\n"], "keepalived kills itself otherwise"
    assert host.files[CONFIG].text == given().config.text.text, "each boot fills in its own interface"
    assert host.index(KEEPALIVED) < host.index("write", CONFIG) < host.index("restart")
    assert host.enabled == {SERVICE}
    assert not host.entry(NEW)


def test_a_file_alone_moves_no_address() -> None:
    host = serving()
    apply(given(restart=False), host)
    assert runs(host) == "old"
    assert host.read(UNIT) == "# new\n"


@pytest.mark.parametrize(
    ("fails", "why"),
    [
        ("sh ", "keepalived cannot be configured; what ran before still does"),
        (KEEPALIVED, "keepalived rejects this configuration; the previous one still runs"),
    ],
)
def test_a_configuration_that_is_refused_changes_nothing(fails: str, why: str) -> None:
    host = serving(ends={fails: Ended(1, "", f"no network of this host has 10.77.0.2 in it{'.' * 400}\n")})
    before = dict(host.files)
    with pytest.raises(FailedError, match=why) as caught:
        apply(given(), host)
    assert [len(each) for each in caught.value.log] == [300]
    assert (host.files, runs(host)) == (before, "old")


@pytest.mark.parametrize("lacks", [KEEPALIVED, ASK_USER])
def test_a_host_without_keepalived_is_left_as_it_is(lacks: str) -> None:
    host = virgin()
    host.files.pop(lacks, None)
    host.accounts.discard(lacks)
    with pytest.raises(FailedError, match=f"keepalived or the account {ASK_USER} is missing"):
        apply(given(), host)
    assert host.steps == 0


def test_a_keepalived_that_ends_is_reported() -> None:
    host = serving(dead=True)
    with pytest.raises(FailedError, match="keepalived does not run; the gateway responds at its host") as caught:
        apply(given(), host)
    assert caught.value.log == ("the engine reports: out of memory",)
    host.dead = False
    apply(given(), host)
    assert runs(host) == "new"


@pytest.mark.parametrize("make", [virgin, serving])
def test_a_killed_run_is_completed_by_the_next(make: Any) -> None:
    hosts: list[AddressHost] = killed_everywhere(make, lambda host: apply(given(), host))
    assert len(hosts) > 8
    for host in hosts:
        assert (runs(host), host.entry(NEW)) == ("new", None)


@pytest.mark.parametrize("full", [NEW, CONFIG, UNIT])
def test_a_full_disk_leaves_what_runs(full: str) -> None:
    host = serving(full=full)
    with pytest.raises(FailedError, match=f"cannot write {full}.*: No space left on device"):
        apply(given(), host)
    assert (runs(host), host.entry(NEW)) == ("old", None)
    host.full = ""
    apply(given(), host)
    assert runs(host) == "new"


def test_a_removed_address_leaves_nothing_and_a_second_removal_does_nothing() -> None:
    host = serving()
    for _ in range(2):
        find_verb("virtual_address.remove").run(decode(NoInput, {}), host)
        assert (set(host.files), runs(host), host.enabled) == ({KEEPALIVED}, "", set())


def test_a_killed_removal_is_completed_by_the_next() -> None:
    for host in killed_everywhere(serving, lambda host: remove(NoInput(), host)):
        assert (set(host.files), runs(host)) == ({KEEPALIVED}, "")
