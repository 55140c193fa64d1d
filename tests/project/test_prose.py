"""The English of the documentation: short sentences, plain openings, and none of our former private words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if page.parent.name not in ("findings", "measurements") and page.name not in ("CHANGELOG.md", "findings.md")
)
MOST_WORDS = 40_000
"""Of all pages together."""
LONGEST = 25
"""The most words of a sentence. One sentence in fifty may be longer."""
RELATIVE = re.compile(r"(?:What|Who|Whoever|Whatever|Where|Whether|Which)\b(?!.*\?$)")
PRIVATE = re.compile(
    r"\b(?:told|tells?|says?|said|asks|asked|asking|looks? at|seen|sees|wants?|wanted|made so|as planned"
    r"|put back|taken back|goes on with|being away|whoever|nobody|somebody|anybody|does not do for|is none that"
    r"|by lot|by chance|wanders?|wandering|ways? out|held to|held against|a turn|at its place|lends?|lending"
    r"|neighbours?|speaks? of)\b",
    re.IGNORECASE,
)


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph, item of a list and cell of a table with its line; code is one word."""
    text = re.sub(r"^(```|~~~).*?^\1", lambda found: "\n" * found[0].count("\n"), text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->|<[^>\n]+>", " ", text, flags=re.S)
    begun, part = 1, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        own = re.match(r"\s*(?:[-*+]|\d+\.)\s+|\s*#|\s*\||\s*>", line)
        if (not line.strip() or own) and part.strip():
            yield begun, part
            part = ""
        if re.match(r"\s*\|", line):
            yield from ((number, cell) for cell in re.split(r"(?<!\\)\|", line))
        elif not line.lstrip().startswith("#"):
            begun = begun if part else number
            part += " " + re.sub(r"^\s*(?:[-*+]|\d+\.|>)\s+", "", line)


def sentences(page: Path) -> Iterator[tuple[int, str]]:
    """Yield each sentence of a page with the line of its paragraph."""
    for number, part in paragraphs(page.read_text(encoding="utf-8")):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"``[^`].*?``|`[^`]*`", "CODE", part))
        plain = re.sub(r"\b(e\.g|i\.e|etc|vs|approx)\.", r"\1", plain.replace("*", ""))
        for sentence in re.split(r"(?<=[.!?:;])[\s)]+(?=[A-Z(\[])", plain):
            if re.search(r"[a-z]", sentence):
                yield number, " ".join(sentence.split())


def shown(page: Path, number: int, sentence: str) -> str:
    """Return a sentence with its place, as an editor opens it."""
    return f"{page.relative_to(ROOT)}:{number}: {sentence}"


def test_the_pages_together_are_short() -> None:
    texts = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
    # The bars and rules of tables are no words.
    words = {name: sum(bool(re.search(r"\w", word)) for word in text.split()) for name, text in texts.items()}
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda each: -each[1])[:10]


def test_few_sentences_are_long() -> None:
    every = [(page, *each) for page in PAGES for each in sentences(page)]
    long = [shown(*each) for each in every if len(each[2].split()) > LONGEST]
    assert len(long) <= len(every) / 50, "\n".join(long)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_sentence_begins_with_a_relative_clause(page: Path) -> None:
    assert [
        shown(page, *each) for each in sentences(page) if RELATIVE.match(each[1]) and len(each[1].split()) > 4
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_private_word_occurs(page: Path) -> None:
    found = ((number, sentence) for number, sentence in sentences(page) if PRIVATE.search(sentence))
    assert [shown(page, *each) for each in found] == []
