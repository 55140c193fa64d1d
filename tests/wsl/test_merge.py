"""Our keys in `.wslconfig` and wsl.conf: what is not ours comes out as it went in, and twice is once.

The files in `data/wslconfig` are written for these tests, in the shapes that such files have on people's machines.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llamaherd.inventory.wsl_files import (
    Merged,
    MergeError,
    canonical_name,
    effective_settings,
    merge_wslconf,
    merge_wslconfig,
    read_settings,
)

CORPUS = sorted((Path(__file__).parents[1] / "data" / "wslconfig").glob("*.wslconfig"))
WANTED = {
    "wsl2": {"memory": "64GB", "swap": "16GB", "networkingMode": "mirrored", "vmIdleTimeout": "-1"},
    "general": {"instanceIdleTimeout": "-1"},
}
OURS = {canonical_name(f"{section}.{key}") for section, keys in WANTED.items() for key in keys}


def merged(text: str) -> str:
    return merge_wslconfig(text.encode(), WANTED).text.decode()


def others(text: str) -> list[tuple[str, str]]:
    """Every setting that is not ours, as WSL reads it."""
    return [(each.name, each.value) for each in read_settings(text).settings if canonical_name(each.name) not in OURS]


def untouched(text: str) -> list[str]:
    """The text without the values of our keys that count, cut where they stood."""
    pieces, at = [], 0
    for setting in sorted(
        effective_settings(read_settings(text), canonical_name).values(), key=lambda each: each.start
    ):
        if canonical_name(setting.name) in OURS:
            pieces.append(text[at : setting.start])
            at = setting.end
    return [*pieces, text[at:]]


def in_order(pieces: list[str], text: str) -> bool:
    """Whether the text holds all characters of the pieces, in their order."""
    rest = iter(text)
    return all(character in rest for character in "".join(pieces))


def hold_the_laws(text: str) -> Merged:
    before = text.encode()
    once = merge_wslconfig(before, WANTED)
    after = once.text.decode()
    effective = effective_settings(read_settings(after.removeprefix("\ufeff")), canonical_name)
    for section, keys in WANTED.items():
        for key, value in keys.items():
            assert effective[canonical_name(f"{section}.{key}")].value.lower() == value.lower()
    plain = text.removeprefix("\ufeff")
    assert others(after.removeprefix("\ufeff")) == others(plain)
    assert in_order(untouched(plain), after)
    assert after.startswith("\ufeff") == text.startswith("\ufeff")
    assert after.endswith("\n") == (text.endswith("\n") or not plain) or read_settings(plain).open_end
    assert merge_wslconfig(once.text, WANTED) == once
    return once


NAMES = st.sampled_from(
    [
        "memory",
        "Swap",
        "networkingMode",
        "NETWORKINGMODE",
        "vmIdleTimeout",
        "processors",
        "gpuMemory",
        "sparseVhd",
        "x1",
    ]
)
SPACES = st.sampled_from(["", " ", "\t", "  "])
VALUES = st.sampled_from(
    [
        "",
        "8GB",
        "64gb",
        "-1",
        "true",
        '"a # b"',
        "C:\\\\swap.vhdx",
        "a b",
        "mirrored",
        "one \\\n two",
        "bad\\x",
        '"open',
    ]
)
COMMENTS = st.sampled_from(["", "# ours", " # Grüße", "#\\", "; none"])
SETTINGS = st.builds("{}{}{}={}{}{}{}".format, SPACES, NAMES, SPACES, SPACES, VALUES, SPACES, COMMENTS)
HEADERS = st.builds(
    "{}{}{}".format,
    SPACES,
    st.sampled_from(["[wsl2]", "[WSL2]", "[experimental]", "[General]", "[user]", "[wsl-2]", "[wsl2 ]", "[", "[wsl2"]),
    COMMENTS,
)
LINES = st.one_of(
    SETTINGS, HEADERS, COMMENTS, SPACES, st.text(st.sampled_from(list('[]=#\r \t\\"wl2;éx')), max_size=12)
)
FILES = st.builds(
    lambda bom, lines, newline, last: bom + newline.join(lines) + last,
    st.sampled_from(["", "\ufeff"]),
    st.lists(LINES, max_size=14),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\n", "\r\n"]),
)


@given(FILES)
@example("")
@example("\ufeff")
@example("[wsl2]\r\nmemory=8GB")
@example("[wsl2]\rmemory=8GB\rswap=0")
@example("[wsl2]\nmemory=8GB\\")
@example("memory=8GB\\")
@example("#\r")
@example('[wsl2]\nmemory="8GB\nswap=0')
@example("[wsl2]\n[wsl-2]\nmemory=8GB\n")
@example("[experimental]\nnetworkingMode=nat\n[wsl2]\nnetworkingMode=bridged")
def test_what_is_not_ours_comes_out_as_it_went_in_and_twice_is_once(text: str) -> None:
    hold_the_laws(text)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x1a")))
def test_the_same_of_any_text(text: str) -> None:
    hold_the_laws(text)


def test_there_is_a_corpus() -> None:
    assert len(CORPUS) >= 10


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_the_same_of_files_as_people_have_them(file: Path) -> None:
    hold_the_laws(file.read_bytes().decode())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "[wsl2]\r\nmemory=64GB\r\nswap=16GB\r\n"),
        ("[wsl2]\n", "[wsl2]\nmemory=64GB\nswap=16GB\n"),
        ("[wsl2]", "[wsl2]\r\nmemory=64GB\r\nswap=16GB"),
        ("# mine\r\n[wsl2]\r\n", "# mine\r\n[wsl2]\r\nmemory=64GB\r\nswap=16GB\r\n"),
        ("[WSL2]\nMEMORY = 8GB  # half\nswap=0", "[WSL2]\nMEMORY = 64GB  # half\nswap=16GB"),
        ("[wsl2]\nmemory=# none\nswap=16gb\n", "[wsl2]\nmemory=64GB # none\nswap=16gb\n"),
        ('[wsl2]\nmemory="64GB"\nswap=\\\n0\n', '[wsl2]\nmemory="64GB"\nswap=16GB\n'),
        ("[wsl2]\nmemory=1GB\nmemory=2GB\nswap=16GB\n", "[wsl2]\nmemory=64GB\nmemory=2GB\nswap=16GB\n"),
        (
            "[wsl2]\nmemory=1GB\n\n# about disks\n[experimental]\nsparseVhd=true\n",
            "[wsl2]\nmemory=64GB\nswap=16GB\n\n# about disks\n[experimental]\nsparseVhd=true\n",
        ),
        (
            "[experimental]\nsparseVhd=true\n",
            "[experimental]\nsparseVhd=true\n\n[wsl2]\nmemory=64GB\nswap=16GB\n",
        ),
        ("[experimental]", "[experimental]\r\n\r\n[wsl2]\r\nmemory=64GB\r\nswap=16GB"),
        (
            "[wsl2]\nmemory=64GB\n[general]\n[wsl2]\nkernel=k\n",
            "[wsl2]\nmemory=64GB\nswap=16GB\n[general]\n[wsl2]\nkernel=k\n",
        ),
        ("[wsl2]\nmemory 8GB\n;swap=0\n", "[wsl2]\nmemory=64GB\nswap=16GB\nmemory 8GB\n;swap=0\n"),
    ],
)
def test_where_a_key_goes(before: str, after: str) -> None:
    wanted = {"wsl2": {"memory": "64GB", "swap": "16GB"}}
    assert merge_wslconfig(before.encode(), wanted).text.decode() == after


def test_an_older_home_of_a_key_is_the_same_key() -> None:
    text = merged("[experimental]\nnetworkingMode=nat\n")
    assert "[experimental]\nnetworkingMode=mirrored\n" in text
    assert text.count("networkingMode") == 1


def test_what_does_nothing_is_kept_and_told() -> None:
    text = (
        b"first=1\n[wsl2]\ngpuMemory=24GB\nmemory=1GB\nmemory=2GB\nnot a setting\ndhcp=yes\nswapFile=C:\\\\swap.vhdx\n"
    )
    done = merge_wslconfig(text, {"wsl2": {"memory": "64GB"}})
    assert done.text == text.replace(b"=1GB", b"=64GB")
    assert done.notes == (
        "line 1 of .wslconfig: `first` stands under no section that WSL can read, so that it does nothing",
        "line 3 of .wslconfig: there is no key `gpuMemory` in a .wslconfig, so that it does nothing",
        "line 5 of .wslconfig: `memory` again; the one in line 4 counts",
        "line 6 of .wslconfig: WSL cannot read it, and skips it",
        "line 7 of .wslconfig: `yes` is neither true nor false to WSL",
    )


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("[wsl2]\n".encode("utf-16"), "written in UTF-16"),
        (b"# Gr\xfc\xdfe\n[wsl2]\n", "line 1 of .wslconfig is not UTF-8"),
        (b"[wsl2]\nmemory=1GB\n\x1a", "line 3 of .wslconfig has a Ctrl-Z"),
    ],
)
def test_what_cannot_be_read_is_left_alone(before: bytes, words: str) -> None:
    with pytest.raises(MergeError, match=words) as caught:
        merge_wslconfig(before, WANTED)
    assert caught.value.help


@pytest.mark.parametrize("value", ['"open', "C:\\Users", "two\nlines"])
def test_a_value_that_wsl_would_not_read_is_refused(value: str) -> None:
    with pytest.raises(MergeError, match="cannot be written into"):
        merge_wslconfig(b"[wsl2]\n", {"wsl2": {"kernelCommandLine": value}})


# Each line was followed by hand through ParseConfigFile of microsoft/WSL.
READINGS = {
    "[wsl2]\nmemory=1GB # x": [("wsl2.memory", "1GB")],
    '[wsl2]\nkernelCommandLine = " a # b " # c': [("wsl2.kernelcommandline", " a # b ")],
    "[wsl2]\na=b\\\n c\n": [("wsl2.a", "b c")],
    "[wsl2]\na=b\\\r\n c\r\n": [("wsl2.a", "b c")],
    "[wsl2]\na=\\t\\\\x\n": [("wsl2.a", "\t\\x")],
    "[wsl2]\na=b\\c\nd=e": [("wsl2.d", "e")],
    "[wsl2]# x\na=b": [("wsl2.a", "b")],
    "[wsl2] x\na=b": [(".a", "b")],
    "[wsl2]\n[exp-x]\na=b": [("exp\0.a", "b")],
    "[wsl2]\n[wsl2 ]\na=b": [("wsl2.a", "b")],
    "[wsl2]\n[experimental ]\na=b": [("expe.a", "b")],
    "a_b=1\nc=2": [(".c", "2")],
    " \t[wsl2]\r\n \ta\t=\tb\t\r\n": [("wsl2.a", "b")],
    '[wsl2]\na="b\nc=d': [("wsl2.c", "d")],
    "[\na=b": [(".a", "b")],
}


@pytest.mark.parametrize("text", READINGS)
def test_how_wsl_reads(text: str) -> None:
    assert [(each.name, each.value) for each in read_settings(text).settings] == READINGS[text]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_lines_that_a_backslash_hid_are_kept_where_our_value_comes(newline: str) -> None:
    lines = ["[wsl2]", "memory=8GB \\", "processors=4", "dnsTunneling=false", ""]
    after = merged(newline.join(lines))
    assert f"memory=64GB{newline}# processors=4{newline}dnsTunneling=false{newline}" in after
    hold_the_laws(newline.join(lines))


def test_a_value_over_two_lines_goes_whole() -> None:
    assert "GB" not in merged("[wsl2]\nmemory=8\\\nGB\n").replace("64GB", "").replace("16GB", "")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, b"[boot]\nsystemd=true\n"),
        (b"", b"[boot]\nsystemd=true\n"),
        (b"[user]\ndefault=tom\n", b"[user]\ndefault=tom\n\n[boot]\nsystemd=true\n"),
        (b"[Boot]\ncommand=service x\n", b"[Boot]\ncommand=service x\nsystemd=true\n"),
        (b"[boot]\nsystemd=false # no\n", b"[boot]\nsystemd=true # no\n"),
        (b"[boot]\nsystemd = 1\n", b"[boot]\nsystemd = 1\n"),
        (b"[boot]\nSystemD=TRUE\nnonsense\n", b"[boot]\nSystemD=TRUE\nnonsense\n"),
        (b"[boot]\r\ncommand=x", b"[boot]\r\ncommand=x\r\nsystemd=true"),
    ],
)
def test_systemd_is_switched_on(before: bytes | None, after: bytes) -> None:
    assert merge_wslconf(before) == after
    assert merge_wslconf(after) == after


@pytest.mark.parametrize(
    ("before", "line"),
    [(b"; systemd\n[boot]\nsystemd=true\n", 1), (b"[user]\ndefault\n", 2), (b"\xef\xbb\xbf[boot]\nsystemd=true\n", 1)],
)
def test_behind_a_line_that_cannot_be_read_wsl_reads_nothing(before: bytes, line: int) -> None:
    with pytest.raises(MergeError, match=rf"^line {line} of /etc/wsl\.conf cannot be read") as caught:
        merge_wslconf(before)
    assert caught.value.help
