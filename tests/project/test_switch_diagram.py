"""`docs/design/switch.md` shows the states of a switch as the program has them; the architecture, the packages."""

from __future__ import annotations

import os

from llamaherd.resources import DOCS
from roles.serve.onhost.states import ENDS, STEPS, State, diagram, table
from tests.support.houses import drawing

SWITCH, ARCHITECTURE = DOCS / "design/switch.md", DOCS / "architecture.md"


def test_the_page_of_the_switch_has_the_diagram_and_the_table() -> None:
    page = SWITCH.read_text(encoding="utf-8")
    before, after_diagram = page.split("```mermaid\n")[0], page.split("\n```\n\n")[1]
    words, last = after_diagram.split("\n\n")[0], page.split("|\n\n")[-1]
    expected = f"{before}```mermaid\n{diagram()}\n```\n\n{words}\n\n{table()}\n\n{last}"
    if os.environ.get("REWRITE_GOLDEN"):
        SWITCH.write_text(expected, encoding="utf-8")
    assert page == expected


def test_the_architecture_has_the_drawing_of_the_packages() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    before, found, rest = page.partition("```mermaid\nflowchart TD\n    cli([cli])\n")
    assert found
    expected = f"{before}```mermaid\n{drawing()}\n```{rest.partition('```')[2]}"
    if os.environ.get("REWRITE_GOLDEN"):
        ARCHITECTURE.write_text(expected, encoding="utf-8")
    assert page == expected


def test_each_state_is_reached_and_leads_to_an_end() -> None:
    reached, left = {State.CHECK}, [State.CHECK]
    while left:
        step = STEPS.get(left.pop())
        new = {*(step.after.values() if step else ())} - reached
        reached |= new
        left += new
    assert reached == {*State}
    assert {*ENDS}.isdisjoint(STEPS)
