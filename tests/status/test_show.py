"""What people see: lines of a terminal that never wrap, a page, and JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.fleet.snapshot import FleetSnapshot, LastChange, RigSnapshot
from llamaherd.fleet.status_text import cells, status_lines, to_html
from tests.status.made import ATTIC, CHAT, CODE, DUO, FLEET, status


def plain(text: str, _colour: str) -> str:
    return text


def lines(now: FleetSnapshot, width: int | None = None) -> list[str]:
    return list(status_lines(now, width, plain))


def test_the_table_of_a_fleet() -> None:
    assert lines(FLEET) == [
        "2 of 5 instances serve, six unreachable, 2026-11-25 10:00:00 UTC",
        "duo: code is down: its unit is failed; see there",
        "six: nothing listens for SSH at six.lan; is it on?",
        "",
        "rig    instance  state        port  model            streams  waiting  t/s now  measured",
        "duo    chat      serves       8080  qwen3.6-35b-a3b  2 of 4   3        41.2     43.10 ± 0.6",
        "       code      down         8081  gemma            -        -        -        90 expected",
        "six    -         unreachable  -     -                -        -        -        -",
        "attic  small     serves       8080  gemma            0 of 2   0        -        -",
        "",
        "rig  GPU  memory            power         heat   busy  model",
        "duo  new  20.0 of 32.0 GiB  310 of 600 W  64 °C  99 %  NVIDIA GeForce RTX 5090",
        "",
        "rig  change  when                     by   what",
        "duo  14      2026-11-24 10:00:00 UTC  ann  restart chat: its engine is another, and 1 more",
        "",
        "gateway  model  waiting  server    state  streams  answered",
        "duo      coder  1        duo.chat  up     2 of 4   118",
        "         coder  1        six.chat  down   0 of 2   7",
        "",
        "gateway  user  streams",
        "duo      tom   2 of 4",
    ]


def test_eighty_columns_keep_what_tells_most() -> None:
    found = lines(FLEET, 80)
    assert found[4] == "rig    instance  state        model       streams  waiting  t/s now  measured"
    assert found[5] == "duo    chat      serves       qwen3.6-3…  2 of 4   3        41.2     43.10 ± 0.6"
    assert "port" not in lines(status(DUO), 80)[3], "the port leaves before a name is cut"


def test_why_a_change_failed_is_folded() -> None:
    """Into four lines at most."""
    change = LastChange(14, "2026-11-24 10:00:00 UTC", "ann", ("restart chat",), ("chat did not start in 300 s: " * 3,))
    found = lines(status(replace(DUO, change=change)), 80)
    at = next(number for number, line in enumerate(found) if line.startswith("duo  14"))
    assert found[at : at + 4] == [
        "duo  14      2026-11-24 10:00:00 UTC  ann  failed: chat did not start in 300 s:",
        f"{' ' * 43}chat did not start in 300 s: chat did",
        f"{' ' * 43}not start in 300 s:",
        "",
    ]
    longer = replace(change, failed=("chat did not start in 300 s: " * 30,))
    found = lines(status(replace(DUO, change=longer)), 80)
    assert found[at + 3].endswith("…")
    assert found[at + 4] == ""


def test_a_problem_is_folded_and_never_cut() -> None:
    long = replace(DUO, problems=("code is down: " + "why " * 40 + "; see `journalctl -u llama-code` there",))
    found = lines(status(long), 60)
    assert "see `journalctl -u llama-code` there" in " ".join(line.strip() for line in found)


SOME = st.text(st.sampled_from("ab\u4e2d\u0301\x1b[2J\t\n é"), max_size=80)


@given(width=st.integers(20, 200), model=SOME, what=SOME, problem=SOME)
def test_no_line_is_wider_than_the_terminal(width: int, model: str, what: str, problem: str) -> None:
    change = LastChange(3, what, what, (what,), ())
    rig = replace(DUO, instances=(replace(CHAT, model=model), CODE), change=change, problems=(problem,))
    for line in lines(status(rig, ATTIC), width):
        assert cells(line) <= width, line
        assert line.isprintable()


def test_states_have_colours_and_nothing_else_of_others_has() -> None:
    painted = list(status_lines(FLEET, 80, lambda text, colour: f"<{colour}>{text}</>"))
    assert any(re.search(r"<green>serves *</>", line) for line in painted)
    assert any(re.search(r"<red>down *</>", line) for line in painted)
    assert painted[0].startswith("<red>")


@pytest.mark.parametrize("now", [FLEET, status(ATTIC), status()])
def test_json_has_all_of_it(now: FleetSnapshot) -> None:
    rows = json.loads(json.dumps(now.rows()))
    assert [(rig["rig"], rig["ok"]) for rig in rows] == [(rig.name, rig.ok) for rig in now.rigs]
    if now is FLEET:
        chat = rows[0]["instances"][0]
        assert (chat["state"], chat["tokens_per_second"], chat["measured"]["low"]) == ("serves", 41.25, 42.5)


def test_what_others_say_is_text_on_the_page() -> None:
    evil = "<script>alert(1)</script>\x1b[2J"
    rig = replace(DUO, change=LastChange(3, evil, evil, (evil,), ()), problems=(evil,))
    page = to_html(status(rig))
    assert "<script" not in page
    assert "\x1b" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 4


def test_the_page_says_all_that_the_terminal_does() -> None:
    page = re.sub(r"<[^>]*>", " ", to_html(FLEET))
    for said in ("qwen3.6-35b-a3b", "43.10 ± 0.6", "20.0 of 32.0 GiB", "restart chat", "six.chat", "unreachable"):
        assert said in page
    assert "//" not in to_html(FLEET)


def test_many_unreachable_rigs_are_counted() -> None:
    gone = [RigSnapshot(f"rig{number}", away="it is off; start it", declared=1) for number in range(3)]
    assert lines(status(ATTIC, *gone[:2]))[0].startswith("1 of 3 instances serve, rig0 and rig1 unreachable, ")
    assert lines(status(ATTIC, *gone))[0].startswith("1 of 4 instances serve, 3 of 4 rigs unreachable, ")
