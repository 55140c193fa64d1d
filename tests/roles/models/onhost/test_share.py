"""The verb that opens a store to a peer, on a played host; and what the peer makes of its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from llamaherd.host.program import Events, Program
from llamaherd.host.protocol import UnexpectedLineError, query_verb
from llamaherd.host.remote import Patience, Remote
from llamaherd.inventory.schema import Connect
from llamaherd.layout import LAUNCHER
from llamaherd.onhost.document import Secret, decode, dump, parse_document
from llamaherd.onhost.system import Ended, FailedError
from llamaherd.onhost.verbs import perform
from llamaherd.plan import FromPeer
from roles.models import SharingError, share_input, shared_urls
from roles.models.onhost import SHARE_UNIT, SHARED, Shared, ShareInput, share
from tests.support.models_host import ModelsHost, words_of
from tests.support.played_host import File, Running
from tests.support.service_host import killed_everywhere

STORE, TOKEN = "/srv/models", "t0ken-of-duo"
ONE, TWO, OTHER = "1" * 64, "2" * 64, "3" * 64
HOSTILE = "a $(id) `id` \"b\" 'c' ; d"
LENDER = FromPeer(name="six", connect=Connect(host="six"), address="192.0.2.6", port=8970, store=STORE)
GIVEN = share_input(LENDER, [ONE, TWO], "0123456789ab", TOKEN)


def listens(host: ModelsHost) -> None:
    """Start the unit, which opens its port."""
    host.units[SHARE_UNIT.removesuffix(".service")] = Running("active", "", 1)
    host.files["/proc/net/tcp6"] = File("  sl local_address\n 0: 00000000:230A 00000000:0000 0A\n")


def lender(outcome: Callable[[ModelsHost], None] = listens, **more: Any) -> ModelsHost:
    """Return a host with one of the files that a peer looks for."""
    files = {
        LAUNCHER: File("a program", 0o755),
        f"{STORE}/m/r/.manifest": File(f"1\t1.0\t{ONE}\ta.gguf\n2\t2.0\t{OTHER}\tb.gguf\n\n"),
        f"{STORE}/.incoming/{TWO}": File("not let in"),
    }
    ends = {"hostname": Ended(0, "10.0.0.6 192.0.2.6 \n")}
    return ModelsHost({}, files=files, outcome=outcome, ends=ends, accounts={"llama-fetch"}, **more)


@pytest.mark.parametrize("address", ["192.0.2.6", "192.0.2.99"])
def test_a_store_is_opened_for_what_is_there(address: str) -> None:
    host = lender()
    host.ends["getent"] = Ended(0, f"{address}  STREAM six\n{address}  DGRAM\n\n")
    assert share(GIVEN, host) == Shared((ONE,))
    (words,) = words_of(host, "systemd-run")
    # On the address that peers use, where it is one of the host's; behind a router it is not.
    bind = "192.0.2.6" if address == "192.0.2.6" else "0.0.0.0"
    served = ["share", STORE, SHARED, "--bind", bind, "--port", "8970", "--idle", "900"]
    assert words[-len(served) - 1 :] == [LAUNCHER, *served]
    assert f"ExecStopPost=+/usr/bin/rm -rf {SHARED}" in words
    assert shared_urls(LENDER, [ONE, TWO], Shared((ONE,))) == {ONE: f"http://192.0.2.6:8970/{ONE}"}


def test_a_token_is_written_as_the_user_whose_folder_it_is() -> None:
    host = lender()
    share(GIVEN, host)
    (words,) = words_of(host, "setpriv")
    assert words[-2:] == ["tee", f"{SHARED}/secrets/0123456789ab"]
    assert words[1:6] == ["--reuid", "llama-fetch", "--regid", "llama-fetch", "--clear-groups"]
    assert host.sent == {f"{SHARED}/secrets/0123456789ab": TOKEN}
    assert TOKEN not in repr(host.done) + repr(host.log) + repr(GIVEN)


def test_a_second_peer_uses_the_unit_that_runs() -> None:
    host = lender()
    share(GIVEN, host)
    share(replace(GIVEN, peer="another"), host)
    assert host.begun == 1
    assert len(words_of(host, "setpriv")) == 2
    assert len(words_of(host, "remove")) == 0


def test_what_is_not_there_opens_nothing() -> None:
    host = lender()
    assert share(replace(GIVEN, wanted=(TWO,)), host) == Shared()
    assert host.begun == 0


@pytest.mark.parametrize("reported", ["port 8970 is in use\nmore\n", ""])
def test_a_port_that_cannot_be_opened_is_a_reason(reported: str) -> None:
    def fails(host: ModelsHost) -> None:
        if reported:
            host.files[f"{SHARED}/failed"] = File(reported)

    found = share(GIVEN, lender(fails))
    assert found.refused == (reported.split("\n")[0] or "it cannot open port 8970")
    with pytest.raises(SharingError, match=found.refused):
        shared_urls(LENDER, [ONE], found)


def test_a_unit_that_is_slow_to_listen_is_waited_for() -> None:
    def starts(host: ModelsHost) -> None:
        host.units[SHARE_UNIT.removesuffix(".service")] = Running("active", "", 1)

    host = lender(starts)
    assert share(GIVEN, host) == Shared((ONE,))
    assert 9.9 < host.time < 13


def test_a_host_that_was_never_deployed_to_shares_nothing() -> None:
    found = share(GIVEN, ModelsHost({}))
    with pytest.raises(SharingError, match=r"was deployed there; run `herd up` for that rig first"):
        shared_urls(LENDER, [ONE], found)


@dataclass(frozen=True)
class Rig(Remote):
    """A rig whose host is played."""

    host: ModelsHost = field(default_factory=lender)

    def perform(
        self, program: Program, document: bytes | Callable[[], bytes], events: Events, limit: float | Patience
    ) -> int:
        """Run the verb there."""
        assert program.path
        assert limit
        assert isinstance(document, bytes)
        result = perform(parse_document(document), self.host)
        events.hear("stdout", dump({"event": "result", "value": result}) + "\n")
        return 0


def test_a_run_queries_a_peer() -> None:
    asked = query_verb(Rig(LENDER.connect), "models.share", GIVEN, Shared, 60)
    assert asked == Shared((ONE,))
    with pytest.raises(UnexpectedLineError, match=r"ShareInput\.store is missing"):
        query_verb(Rig(LENDER.connect), "models.share", GIVEN, ShareInput, 60)


def test_what_was_not_wanted_is_no_result() -> None:
    with pytest.raises(UnexpectedLineError):
        shared_urls(LENDER, [TWO], Shared((ONE,)))


def test_an_address_of_six_words() -> None:
    """IPv6, as a URL has it."""
    six = LENDER.model_copy(update={"address": "2001:db8::6"})
    assert shared_urls(six, [ONE], Shared((ONE,))) == {ONE: f"http://[2001:db8::6]:8970/{ONE}"}


@pytest.mark.parametrize("program", ["install", "setpriv", "systemd-run"])
def test_what_a_program_refuses_is_a_failure_with_its_words(program: str) -> None:
    host = lender()
    host.ends[program] = Ended(1, TOKEN if program == "setpriv" else "", f"{program}: No space left on device")
    with pytest.raises(FailedError) as raised:
        share(GIVEN, host)
    assert raised.value.log == (f"{program}: No space left on device",)


def test_killed_anywhere_the_next_run_shares() -> None:
    for host in killed_everywhere(lender, lambda host: share(GIVEN, host)):
        assert host.units[SHARE_UNIT.removesuffix(".service")].state == "active"
        assert words_of(host, "setpriv")


def test_hostile_values_are_words_of_their_own() -> None:
    host = lender()
    given = replace(GIVEN, address=HOSTILE, store=f"/srv/{HOSTILE}")
    host.files[f"/srv/{HOSTILE}/.manifest"] = File(f"1\t1.0\t{ONE}\ta\n")
    assert share(given, host) == Shared((ONE,))
    assert ["getent", "ahosts", HOSTILE] in host.done
    assert f"/srv/{HOSTILE}" in words_of(host, "systemd-run")[0]


def test_the_document_is_read_back() -> None:
    assert decode(ShareInput, parse_document(dump(GIVEN).encode())) == GIVEN
    assert GIVEN.token == Secret(TOKEN)
