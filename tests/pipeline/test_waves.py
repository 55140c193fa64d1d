"""Which rigs are changed together, and which are left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.cli.apply import Halt, Pace, Wave, halt, waves

FLEET = ("attic", "box", "duo", "six")
NAMES = st.lists(st.text("abcde", min_size=1, max_size=3), unique=True, max_size=9)


@pytest.mark.parametrize(
    ("pace", "steps"),
    [
        (Pace(), [FLEET]),
        (Pace(most=4), [FLEET]),
        (Pace(most=9), [FLEET]),
        (Pace(most=1), [("attic",), ("box",), ("duo",), ("six",)]),
        (Pace(most=3), [("attic", "box", "duo"), ("six",)]),
        (Pace("duo"), [("duo",), ("attic", "box", "six")]),
        (Pace("duo", 2), [("duo",), ("attic", "box"), ("six",)]),
        (Pace("attic", 3), [("attic",), ("box", "duo", "six")]),
        (Pace("elsewhere", 3), [("attic", "box", "duo"), ("six",)]),
    ],
)
def test_who_comes_when(pace: Pace, steps: list[tuple[str, ...]]) -> None:
    found = waves(FLEET, pace)
    assert [wave.rigs for wave in found] == steps
    assert [(wave.number, wave.of) for wave in found] == [(n, len(steps)) for n in range(1, len(steps) + 1)]
    assert [wave.last for wave in found] == [False] * (len(steps) - 1) + [True]
    assert [wave.canary for wave in found] == [pace.canary in FLEET, *[False] * (len(steps) - 1)]


@given(NAMES, st.sampled_from("abcde") | st.none(), st.integers(1, 10) | st.none())
def test_every_rig_has_its_turn_once(rigs: list[str], canary: str | None, most: int | None) -> None:
    found = waves(rigs, Pace(canary, most))
    turns = [name for wave in found for name in wave.rigs]
    assert sorted(turns) == sorted(rigs)
    assert [name for name in turns if name != canary] == [name for name in rigs if name != canary]
    assert all(0 < len(wave.rigs) <= (most or len(rigs)) for wave in found)
    if canary in rigs:
        assert (found[0].rigs, found[0].canary) == ((canary,), True)


@pytest.mark.parametrize(
    ("pace", "apart", "steps"),
    [
        (Pace(), [{"attic", "box"}], [("attic", "duo", "six"), ("box",)]),
        (Pace(), [{"attic", "box"}, {"box", "duo"}], [("attic", "duo", "six"), ("box",)]),
        (Pace(), [{"attic", "box", "six"}], [("attic", "duo"), ("box",), ("six",)]),
        (Pace(), [{"attic"}, {"elsewhere", "duo"}], [FLEET]),
        (Pace("box"), [{"attic", "box"}, {"duo", "six"}], [("box",), ("attic", "duo"), ("six",)]),
        (Pace(most=2), [{"attic", "box"}, {"duo", "six"}], [("attic", "duo"), ("box", "six")]),
        (Pace(most=1), [{"attic", "box"}], [("attic",), ("box",), ("duo",), ("six",)]),
    ],
)
def test_those_that_back_each_other_up_are_never_in_one(
    pace: Pace, apart: list[set[str]], steps: list[tuple[str, ...]]
) -> None:
    assert [wave.rigs for wave in waves(FLEET, pace, apart)] == steps


GROUPS = st.lists(st.sets(st.text("abcde", min_size=1, max_size=3), max_size=4), max_size=4)


@given(NAMES, st.sampled_from("abcde") | st.none(), st.integers(1, 10) | st.none(), GROUPS)
def test_no_wave_has_two_of_a_group(
    rigs: list[str], canary: str | None, most: int | None, groups: list[set[str]]
) -> None:
    found = waves(rigs, Pace(canary, most), groups)
    assert sorted(name for wave in found for name in wave.rigs) == sorted(rigs)
    assert all(len(wave.rigs) <= (most or len(rigs)) for wave in found)
    assert all(len(group & set(wave.rigs)) <= 1 for group in groups for wave in found)


def test_nothing_to_do_is_no_wave() -> None:
    assert waves((), Pace("duo", 2)) == ()


def test_a_wave_says_what_it_is() -> None:
    first, second = waves(FLEET, Pace("duo"))
    assert str(first) == "Wave 1 of 2, the canary: duo"
    assert str(second) == "Wave 2 of 2: attic, box, six"


@pytest.mark.parametrize(
    ("ended", "failed", "unplanned", "said"),
    [
        (0, ("box",), (), "left alone, as box failed: duo, six"),
        (0, ("attic", "box"), (), "left alone, as attic and box failed: duo, six"),
        (0, (), ("box",), "left alone, as box does not match the plan: duo, six"),
        (0, (), ("attic", "box"), "left alone, as attic and box do not match the plan: duo, six"),
        (0, ("attic",), ("box",), "left alone, as attic failed and box does not match the plan: duo, six"),
        (0, (), (), None),
        (1, ("duo", "six"), (), None),
    ],
)
def test_who_is_left_alone(ended: int, failed: tuple[str, ...], unplanned: tuple[str, ...], said: str | None) -> None:
    steps = waves(FLEET, Pace(most=2))
    found = halt(steps, steps[ended], failed, unplanned)
    assert (str(found) if found else None) == said


def test_three_that_failed() -> None:
    assert str(Halt(("a", "b", "c"), (), ("d",))) == "left alone, as a, b and c failed: d"


def test_a_wave_is_a_value() -> None:
    assert waves(("box",), Pace()) == (Wave(("box",), 1, 1),)
