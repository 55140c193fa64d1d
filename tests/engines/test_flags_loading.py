"""Switches for loading that `--load-mode` took the place of: who follows the advice ends with one right mode."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import permutations

import pytest

from llamaherd.engines.flags import Catalogue, Problem, catalogue, catalogues, check_arguments, check_environment
from llamaherd.engines.flags.effective import effective_options

SWITCHES = ("--mmap", "--no-mmap", "--mlock", "--direct-io")
MODES = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")
OTHERS = [each for kind in ("llama.cpp", "ik_llama.cpp") for each in catalogues(kind)]
BESIDE = ("-c", "8192")
PREFIX = "LLAMA_ARG_"


def known(version: str) -> Catalogue:
    found = catalogue("llama.cpp", version)
    assert found is not None
    return found


def orders() -> Iterator[tuple[str, ...]]:
    """Every subset of the switches in every order."""
    for count in range(len(SWITCHES) + 1):
        yield from permutations(SWITCHES, count)


def right(words: Sequence[str]) -> str | None:
    """The mode that means what switches and modes say, told one by one; None where nothing is said."""
    mapped, locked, direct = "", False, False
    for word in words:
        locked = locked or "mlock" in word
        direct = direct or word in ("--direct-io", "dio")
        if word in ("--mmap", "mmap", "mmap+mlock", "auto"):
            mapped = "auto" if word == "auto" else "mmap"
        elif word in ("--no-mmap", "none", "mlock"):
            mapped = "none"
    if direct:
        return "dio"
    if locked:
        return "mlock" if mapped == "none" else "mmap+mlock"
    return mapped or None


def followed(words: Sequence[str], problems: Sequence[Problem]) -> list[str]:
    """The words as they are after one has done what each help says, to the letter."""
    result = list(words)
    out: list[str] = []
    for problem in reversed(problems):
        write = re.match(r"write `(.+?)`", problem.help)
        assert write or problem.help.startswith("leave it out: "), problem.help
        parts = tuple(write[1].split()) if write else ()
        assert parts == problem.replacement
        result[problem.index : problem.index + problem.length] = parts
        also = re.search(r", and leave (.+) out$", problem.help)
        out += re.findall("`(.+?)`", also[1]) if also else []
    for each in out:
        at = next(at for at in range(len(result)) if result[at : at + 2] == each.split())
        del result[at : at + 2]
    return result


@pytest.mark.parametrize("version", ["b10878", "b11434"])
@pytest.mark.parametrize("given", [None, *MODES])
@pytest.mark.parametrize("spelling", ["--load-mode", "-lm"])
def test_who_does_what_every_help_says_ends_with_one_right_mode(version: str, given: str | None, spelling: str) -> None:
    of = known(version)
    mode = (spelling, given) if given else ()
    for switches in orders():
        for at in range(len(switches) + 1):
            words = [*switches[:at], *mode, *BESIDE, *switches[at:]]
            problems = check_arguments(of, words, OTHERS)
            assert [words[each.index] for each in problems] == list(switches), words
            assert {(each.rule.code, each.length) for each in problems} <= {("LH101", 1)}
            better = followed(words, problems)
            assert check_arguments(of, better, OTHERS) == (), (words, better)
            wanted = right([word for word in words if word not in BESIDE])
            told = [better[at + 1] for at, word in enumerate(better) if word in ("--load-mode", "-lm")]
            assert told == ([wanted] if wanted else []), (words, better)


@pytest.mark.parametrize("switches", [*orders()], ids=" ".join)
def test_a_server_is_meant_to_load_as_the_switches_say_together(switches: tuple[str, ...]) -> None:
    told = effective_options(known("b11434"), [*switches[:1], *BESIDE, *switches[1:]])
    assert told.text("--load-mode") == (right(switches) or "")


@pytest.mark.parametrize(
    ("given", "helps"),
    [
        ("--mlock --no-mmap", ["write `--load-mode mlock`", "leave it out: `--load-mode mlock` means both"]),
        ("--mlock --mmap", ["write `--load-mode mmap+mlock`", "leave it out: `--load-mode mmap+mlock` means both"]),
        ("--load-mode none --mlock", ["write `--load-mode mlock`, and leave `--load-mode none` out"]),
        ("--load-mode mlock --no-mmap", ["leave it out: `--load-mode mlock` means both"]),
        ("--direct-io --mlock", ["write `--load-mode dio`", "leave it out: `--load-mode dio` cannot lock besides"]),
        (
            "--mlock -dio",
            ["write `--load-mode dio`, which cannot lock besides", "leave it out: `--load-mode dio` means both"],
        ),
        ("-ndio", ["leave it out: direct I/O is off by default"]),
        ("--mlock --load-mode=none", ["write `--load-mode mlock`", "leave it out: `--load-mode mlock` means both"]),
    ],
)
def test_each_switch_is_told_what_becomes_of_it(given: str, helps: list[str]) -> None:
    assert [each.help for each in check_arguments(known("b11434"), given.split(), OTHERS)] == helps


@pytest.mark.parametrize("version", ["b10306", "b10867"])
def test_where_the_switches_are_deprecated_one_mode_stands_for_them(version: str) -> None:
    of = known(version)
    for switches in orders():
        words = list(switches)
        problems = [each for each in check_arguments(of, words, OTHERS) if each.replacement is not None]
        better = followed(words, problems)
        assert better[::2] == ["--load-mode"] * (1 if words else 0), words
        assert better[1:] == ([] if not words else ["mlock"] if words == ["--mlock"] else [right(words)])


@pytest.mark.parametrize("off", ["0", "false", "off", "no", "disabled"])
def test_a_variable_that_switches_off_is_never_told_to_switch_on(off: str) -> None:
    for name, help_ in {
        "MMAP": "did you mean `LLAMA_ARG_LOAD_MODE=none`?",
        "NO_MMAP": "did you mean `LLAMA_ARG_LOAD_MODE=none`?",  # it counted by its presence
        "MLOCK": "leave it out: it switches nothing on",
        "DIO": "leave it out: it switches nothing on",
    }.items():
        (problem,) = check_environment(known("b11434"), {PREFIX + name: off})
        assert problem.help == help_


@pytest.mark.parametrize("given", [None, *MODES])
def test_variables_for_loading_become_one_mode_too(given: str | None) -> None:
    names = {"--mmap": "MMAP=1", "--no-mmap": "MMAP=0", "--mlock": "MLOCK=true", "--direct-io": "DIO=on"}
    for switches in orders():
        if {"--mmap", "--no-mmap"} <= set(switches):
            continue  # one variable
        told = [f"LOAD_MODE={given}"] if given else []
        told += [names[each] for each in switches]
        environment = {PREFIX + name: value for name, _, value in (each.partition("=") for each in told)}
        mode = right([given or "", *switches])
        problems = check_environment(known("b11434"), environment)
        kept = f"leave it out: `LLAMA_ARG_LOAD_MODE={mode}` stands for it"
        wanted = kept if given == mode else f"did you mean `LLAMA_ARG_LOAD_MODE={mode}`?"
        assert [each.help for each in problems] == [wanted] * len(switches), environment


@pytest.mark.parametrize(
    ("value", "name"),
    [("4", "N_PARALLEL"), ("2", "N_PARALLEL"), *((each, "ENDPOINT_SLOTS") for each in ("0", "1", "true", "off"))],
)
def test_a_number_of_slots_is_no_switch(value: str, name: str) -> None:
    (problem,) = check_environment(known("b11434"), {"LLAMA_ARG_SLOTS": value})
    assert problem.help == f"did you mean `{PREFIX}{name}`?"
