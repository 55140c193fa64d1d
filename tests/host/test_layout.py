"""Who servers run as: no two as the same, under names and numbers that systems take."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.layout import ACCOUNTS, container_user, unit_user

NAMES = st.builds("a{}".format, st.text("ab9._-", max_size=39))
"""Names of instances, as an inventory may have them."""


@given(NAMES)
def test_systemd_and_useradd_take_the_name_of_a_servers_user(name: str) -> None:
    # What systemd calls strict: letters, digits, `_` and `-`, 31 characters at most.
    assert re.fullmatch(r"[a-z_][a-z0-9_-]{0,30}", unit_user(name))


@given(st.sets(NAMES, min_size=2, max_size=2))
def test_no_two_servers_are_the_same_user(names: set[str]) -> None:
    one, other = names
    assert unit_user(one) != unit_user(other)
    assert container_user(one) != container_user(other)


@pytest.mark.parametrize("name", ["build", "fetch"])
def test_a_servers_user_is_none_of_the_others_that_we_make(name: str) -> None:
    assert unit_user(name) not in ACCOUNTS


@given(NAMES)
def test_a_containers_user_is_nobody_else(name: str) -> None:
    number = int(container_user(name))
    # Subordinate ids and SSSD's domains end at 2,000,200,000, and systemd's foreign ids begin at 2,147,352,576.
    assert 2_000_200_000 < number < 2_147_352_576


def test_a_servers_user_bears_its_name() -> None:
    assert unit_user("chat") == "llama-chat"
