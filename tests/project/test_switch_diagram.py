"""`docs/architecture.md` shows the states of a switch as the program has them."""

from __future__ import annotations

import os

from llamaherd.resources import DOCS
from roles.serve.onhost.states import ENDS, STEPS, State, diagram, table

PAGE = DOCS / "architecture.md"
BEGIN, END = "## A switch of a server\n", "\n## "


def test_the_page_has_the_diagram_and_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    section, _, after = rest.partition(END)
    words = section.split("```mermaid\n")[0], section.split("\n```\n\n")[1].split("\n\n")[0]
    last = section.split("|\n\n")[-1]
    expected = f"{words[0]}```mermaid\n{diagram()}\n```\n\n{words[1]}\n\n{table()}\n\n{last}"
    if os.environ.get("REWRITE_GOLDEN"):
        PAGE.write_text(f"{before}{BEGIN}{expected}{END}{after}", encoding="utf-8")
    assert section == expected


def test_each_state_is_reached_and_leads_to_an_end() -> None:
    reached, left = {State.CHECK}, [State.CHECK]
    while left:
        step = STEPS.get(left.pop())
        new = {*(step.after.values() if step else ())} - reached
        reached |= new
        left += new
    assert reached == {*State}
    assert {*ENDS}.isdisjoint(STEPS)
