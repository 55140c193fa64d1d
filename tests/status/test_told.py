"""What hosts return of themselves, and which of it is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd.fleet.status import check_status
from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.onhost.document import DocumentError, decode, encode
from llamaherd.onhost.gateway import NO_GATEWAY
from llamaherd.onhost.status import CardStatus, GatewayError, HostStatus, ReleaseStatus, ServerStatus

CARD = CardStatus("GPU-1", "00000000:01:00.0", 20480, 32607, 310.5, 600.0, 64, 99, "RTX 5090")
CHAT = ServerStatus("active", "running", "success", "200", slots=2, busy=1, reading=0, waiting=0, wrote=(41, 1002))
FINE = HostStatus({"llama-chat": CHAT}, (CARD,), gateway_error=GatewayError(*NO_GATEWAY))


def test_a_state_is_read() -> None:
    found = check_status(decode(HostStatus, encode(FINE)), ["llama-chat", "llama-other"])
    assert found.servers == {"llama-chat": CHAT, "llama-other": ServerStatus()}
    assert found.cards == [CARD]
    assert found.gateway == GatewayError(*NO_GATEWAY)
    assert (found.release, found.driver) == (None, "")


@pytest.mark.parametrize(
    "server",
    [
        replace(CHAT, active="\x1b[2J"),
        replace(CHAT, doing="a" * 500),
        replace(CHAT, ended="exit code"),
        replace(CHAT, health="2000"),
        replace(CHAT, health="fine"),
        replace(CHAT, still="asleep"),
        replace(CHAT, slots=-1),
        replace(CHAT, busy=10**16),
        replace(CHAT, wrote=(-1, 1000)),
        replace(CHAT, wrote=(1, 0)),
        replace(CHAT, models={"gemma": "Loaded at once"}),
        replace(CHAT, models={str(number): "loaded" for number in range(65)}),
    ],
)
def test_a_state_that_no_server_can_have_is_refused(server: ServerStatus) -> None:
    with pytest.raises(UnexpectedLineError):
        check_status(replace(FINE, servers={"llama-chat": server}), ["llama-chat"])


def test_a_server_that_was_not_queried_is_refused() -> None:
    with pytest.raises(UnexpectedLineError, match="llama-chat"):
        check_status(FINE, ["llama-other"])


def test_cards_without_end_are_refused() -> None:
    with pytest.raises(UnexpectedLineError):
        check_status(replace(FINE, cards=(CARD,) * 65), ["llama-chat"])


@pytest.mark.parametrize(("value", "known"), [(1e300, None), (-1e9, None), (None, None), (7.0, 7.0)])
def test_a_figure_that_no_gpu_has_is_none(value: float | None, known: float | None) -> None:
    card = replace(CARD, used=value, celsius=value, name="a" * 500)
    (found,) = check_status(replace(FINE, cards=(card,)), ["llama-chat"]).cards
    assert (found.used, found.celsius, len(found.name)) == (known, known, 200)


@pytest.mark.parametrize("slots", ["many", 1.5, True, 10**30, {}])
def test_a_count_that_is_no_number_is_refused(slots: object) -> None:
    with pytest.raises(DocumentError):
        decode(HostStatus, {"servers": {"llama-chat": {"slots": slots}}})


def test_a_release_of_a_later_version_is_left_out() -> None:
    found = check_status(replace(FINE, release=ReleaseStatus(12, '{"of": "a later version"}')), ["llama-chat"])
    assert found.release is None
