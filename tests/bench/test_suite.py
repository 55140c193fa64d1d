"""The suite: our own prompts, the same ones for as long as their hash is; long text; beginnings that no cache knows."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamaherd.measure.client.requests import (
    CACHE_BUSTER_WORDS,
    KINDS,
    MOST_CACHE_BUSTERS,
    cache_buster,
    long_base,
    long_prompt,
    long_text,
    long_text_of,
    suite,
)

HASH = "5840426c9ca783fe0a8d0c8dbfeb9e2f8ece9046a519bd4ac40491a4b2a67e7a"


def test_the_suite_is_the_one_whose_results_there_are() -> None:
    """Another hash is another suite: its results compare with no earlier ones. Change it on purpose, and rarely."""
    assert suite().sha256 == HASH
    assert suite().ref.sha256 == HASH


def test_there_are_prompts_of_each_kind() -> None:
    """As many as four streams want, each with another: the same one in all would share experts and cache."""
    assert tuple(suite().prompts) == KINDS
    for kind, prompts in suite().prompts.items():
        assert len(prompts) == 4
        assert {each.kind for each in prompts} == {kind}
        assert len({each.text for each in prompts}) == 4
        assert all(400 < len(each.text) < 3000 for each in prompts)
        assert all(each.text.isascii() and each.text.endswith("\n") for each in prompts)


def test_what_is_to_be_copied_is_long_enough_to_be_copied() -> None:
    """256 tokens and more come of it: a model that is done must not be forced to ramble on."""
    assert all(len(each.text) > 1500 for each in suite().prompts["copy-edit"])


def test_the_long_text_is_ours_and_long() -> None:
    text = long_base()
    assert len(text) > 1_000_000
    assert "def " in text
    assert "GPU" in text
    assert "\x00" not in text
    assert long_text(10) == text[:10]
    assert len(long_text(3_000_000)) == 3_000_000
    assert long_text(3_000_000).startswith(long_text(2_000_000))


def words(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def quarters(text: str) -> int:
    return -(-len(text) // 4)


@pytest.mark.parametrize("count", [words, quarters, len], ids=["words", "quarters", "letters"])
@pytest.mark.parametrize("tokens", [1, 7, 512, 4096, 100_000])
def test_long_text_of_so_many_tokens(tokens: int, count: Callable[[str], int]) -> None:
    asked = []

    def counted(text: str) -> int:
        asked.append(len(text))
        return count(text)

    text = long_text_of(tokens, counted)
    assert count(text) == tokens
    assert text == long_text_of(tokens, count)
    assert len(asked) <= 24


@pytest.mark.parametrize("tokens", [128, 256, 2048])
def test_a_long_prompt_fills_a_batch_and_no_more(tokens: int) -> None:
    """Words of the cache buster may have several tokens, and the chat template adds some."""
    template = 39

    def read(text: str) -> int:
        return template + sum(2 if word in ("acid", "dusk", "army") else 1 for word in re.findall(r"\w+|[^\w\s]", text))

    text = long_prompt(tokens, read)
    counts = {read(cache_buster(session, number) + text) for session in "abc" for number in range(100)}
    assert max(counts) <= tokens + 1
    assert min(counts) >= tokens - 8
    assert sorted(counts)[len(counts) // 2] <= tokens
    assert text == long_prompt(tokens, read)


def test_a_long_prompt_is_exact_where_all_cache_busters_are_alike() -> None:
    text = long_prompt(2048, lambda text: 17 + words(text))
    assert {17 + words(cache_buster("session", number) + text) for number in range(500)} == {2048}


def test_a_tokenizer_that_never_comes_to_so_many() -> None:
    """It counts in twos: one token too few, and never too many."""
    assert quarters(long_text_of(1001, lambda text: quarters(text) // 2 * 2)) in (1000, 1001)
    assert long_text_of(10, lambda _: 99) == ""
    assert len(long_text_of(10, lambda _: 0)) <= 160


def test_salts_differ_from_the_first_word_on() -> None:
    salts = [cache_buster("session", number) for number in range(5000)]
    assert len(set(salts)) == 5000
    assert {len(each) for each in salts} == {len(salts[0])}
    assert all(a.split()[0] != b.split()[0] for a, b in pairwise(salts))
    assert salts[:50] == [cache_buster("session", number) for number in range(50)]


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, MOST_CACHE_BUSTERS - 1))
@settings(max_examples=100, deadline=None)
def test_another_session_has_others(one: str, other: str, number: int) -> None:
    assert (cache_buster(one, number) == cache_buster(other, number)) == (one == other)


def test_the_words_of_a_salt_are_alike() -> None:
    assert len(set(CACHE_BUSTER_WORDS)) == len(CACHE_BUSTER_WORDS) == 64
    assert {len(word) for word in CACHE_BUSTER_WORDS} == {4}
    for number in (-1, MOST_CACHE_BUSTERS):
        with pytest.raises(ValueError, match="no number of a prompt"):
            cache_buster("session", number)
