"""What hosts say of themselves, and what is believed of it."""

from __future__ import annotations

import pytest

from llamaherd.host.protocol import UnaskedError
from llamaherd.host.remote import RemoteError
from llamaherd.status.told import CARD_FIELDS, parse_told

CARD = "card\tGPU-1\t00000000:01:00.0\t20480\t32607\t310.5\t600.0\t64\t99\tRTX 5090"
FINE = [
    "unit\tllama-chat\tactive\trunning\tsuccess",
    "health\tllama-chat\t200",
    "slots\tllama-chat\t2\t1\t0",
    "waiting\tllama-chat\t0",
    "wrote\tllama-chat\t41\t1002",
    CARD,
]


def test_what_is_told_is_taken_in() -> None:
    told = parse_told([*FINE, "told", "gateway", "none"], ["llama-chat"])
    chat = told.servers["llama-chat"]
    assert (chat.active, chat.health, chat.slots, chat.busy, chat.wrote) == ("active", "200", 2, 1, (41, 1002))
    assert (told.cards[0].uuid, told.cards[0].used, told.cards[0].name) == ("GPU-1", 20480, "RTX 5090")
    assert told.gateway == ["none"]


@pytest.mark.parametrize(
    "line",
    [
        "unit\tllama-other\tactive\trunning\tsuccess",
        "unit\tllama-chat\tactive\trunning",
        "unit\tllama-chat\t\x1b[2J\trunning\tsuccess",
        "unit\tllama-chat\t" + "a" * 500 + "\trunning\tsuccess",
        "container\tllama-chat\trunning",
        "health\tllama-chat\t2000",
        "health\tllama-chat\tfine",
        "health",
        "still\tllama-chat\tasleep",
        "silent\tllama-chat\tyes",
        "slots\tllama-chat\t2\t1",
        "slots\tllama-chat\t2\t-1\t0",
        "slots\tllama-chat\t2\t" + "9" * 5000 + "\t0",
        "waiting\tllama-chat\tmany",
        "wrote\tllama-chat\t41",
        "wrote\tllama-chat\t4.1\t1000",
        "card\tGPU-1\t00000000:01:00.0",
        CARD + "\tmore",
        "release\tten\te30=",
        "release\t10\t!!",
        "release\t10",
        "prompt\tllama-chat\twhat somebody asked",
        "told",
        "Traceback (most recent call last):",
    ],
)
def test_what_cannot_have_been_said_is_not_believed(line: str) -> None:
    with pytest.raises(UnaskedError):
        parse_told([*FINE, line, "told"], ["llama-chat"])


def test_cards_without_end_are_not_believed() -> None:
    with pytest.raises(UnaskedError):
        parse_told([CARD] * 65 + ["told"], [])


@pytest.mark.parametrize(
    ("figure", "known"), [("[N/A]", None), ("nan", None), ("inf", None), ("1e300", None), ("7", 7.0)]
)
def test_a_figure_that_no_gpu_has_is_none(figure: str, known: float | None) -> None:
    told = parse_told(["\t".join(["card", "GPU-1", "0", *[figure] * (len(CARD_FIELDS) - 3), "a"]), "told"], [])
    assert (told.cards[0].used, told.cards[0].celsius) == (known, known)


@pytest.mark.parametrize(("lines", "said"), [([], "did not say"), (FINE, "did not say"), (["python"], "no python3")])
def test_a_host_that_does_not_tell_has_a_way_out(lines: list[str], said: str) -> None:
    with pytest.raises(RemoteError, match=said) as refused:
        parse_told(lines, ["llama-chat"])
    assert refused.value.help
