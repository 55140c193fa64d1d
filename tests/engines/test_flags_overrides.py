"""`-ot` read as the engines read it: cut at commas, searched as std::regex does."""

from __future__ import annotations

import pytest

from llamaherd.engines.flags.overrides import Override, parse_overrides

# What GNU libstdc++ 12 says of these patterns: whether std::regex_search finds them, or that std::regex ends in error.
EXPERT = "blk.12.ffn_up_exps.weight"
VERDICTS = {
    r"blk\.(?:[0-9]|1[0-7])\.ffn_(?:down|gate|up)_exps\.weight": True,
    ".ffn_.*_exps.": True,
    "exps": True,
    r"^output\.weight$": False,
    r"blk\.([2-9][0-9])\.": False,
    r"blk\.[[:digit:]]{2}\.": True,
    r"(?!x)up": True,
    r"blk\.\Z": False,
    r"\x62lk": True,
    "[]abc]": False,
    "a**": True,
    "e{1,2}x": True,
    "*exps*": None,
    "+exps": None,
    "blk.(12": None,
    "blk.12)": None,
    "blk.[0-9": None,
    "exps{": None,
    "exps{,2}": None,
    "(?i)EXPS": None,
    r"(?<=_)up": None,
    "(?P<a>up)": None,
    "exps\\": None,
    r"[9-0]": None,
    r"(up)\2": None,
    r"[[:number:]]": None,
    r"\xZ": None,
    "[--e]": True,
    "[e--]": None,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("pattern", "found"), VERDICTS.items())
def test_a_pattern_is_what_std_regex_makes_of_it(pattern: str, found: bool | None) -> None:
    override = Override(pattern, "CPU")
    assert (override.fault is None) is (found is not None)
    if found is None:
        assert override.regex is None
    elif override.regex is not None:  # repeats of repeats are not tried
        assert bool(override.regex.search(EXPERT)) is found


def test_a_value_is_cut_at_commas_and_its_parts_at_the_first_equals_sign() -> None:
    found = parse_overrides(r"blk\.1\.=CPU, exps=CUDA1,a=b=RPC0[10.0.0.2:50052]")
    assert [(each.pattern, each.buffer) for each in found] == [
        (r"blk\.1\.", "CPU"),
        (" exps", "CUDA1"),
        ("a", "b=RPC0[10.0.0.2:50052]"),
    ]


@pytest.mark.parametrize("text", ["", "exps", "exps=CPU,", "exps=CPU;up=CPU,gate", "blk.{1,2}.=CPU"])
def test_a_part_without_a_buffer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no `=`"):
        parse_overrides(text)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(x|x)*y", "(a*)*b", "a*a*a*a*a*b", "(?:a{0,30}){0,30}b", "a++++b"])
def test_a_pattern_that_may_take_for_ever_is_not_tried(pattern: str) -> None:
    override = Override(pattern, "CPU")
    assert override.fault is None
    assert override.regex is None
