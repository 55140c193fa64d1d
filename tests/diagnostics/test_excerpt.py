"""The line of source below a finding: cut around its mark, at any width, and without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

from llamaherd.diagnostics.excerpt import excerpt, rendered
from llamaherd.diagnostics.findings import Edit, Finding, Place

LINES = {
    "a key": ("    prot: 8003", 5, "    prot: 8003", "    ^^^^"),
    "a value": ("    port: eight # main", 11, "    port: eight # main", "          ^^^^^"),
    "a value in braces": ("connect: {host: duo.lan, user: tom}", 17, None, " " * 16 + "^^^^^^^"),
    "braces": ("connect: {host: duo.lan, user: tom}", 10, None, " " * 9 + "^" * 26),
    "braces that are open": ("connect: {host: duo.lan,", 10, None, " " * 9 + "^"),
    "a text in quotes": ('cuda: "13.0, x" # y', 7, None, "      ^^^^^^^^^"),
    "an item": ("  - coder  ", 5, "  - coder", "    ^^^^^"),
    "a flag of a script": ("llama-server -m x.gguf --nope 3 \\", 24, None, " " * 23 + "^^^^^^"),
    "behind the end": ("rig:", 5, "rig:", "    ^"),
    "a tab": ("\tport: x", 2, "    port: x", "    ^^^^"),
    "wide characters": ("name: 猫猫, x: 1", 12, "name: 猫猫, x: 1", "             ^"),
    "a wide word": ("rig: 猫猫", 6, "rig: 猫猫", "     ^^^^"),
    "a combining character": ("a\u0301b: x", 5, "a\u0301b: x", "   ^"),
    "a control character": ("a: \x1b[31m", 4, "a: \ufffd[31m", "   ^"),
}


@pytest.mark.parametrize("case", LINES.values(), ids=LINES)
def test_the_mark_is_under_the_word(case: tuple[str, int, str | None, str]) -> None:
    line, column, text, marks = case
    found = excerpt(["first", line], 2, column, 76)
    assert found
    assert found.text == (line if text is None else text)
    assert found.marks == marks


@pytest.mark.parametrize("place", [(0, 1), (3, 1), (1, 0), (1, 9)])
def test_a_place_outside_of_the_file_has_no_line(place: tuple[int, int]) -> None:
    assert excerpt(["a: 1", "b: 2"], *place, 80) is None


@pytest.mark.parametrize("width", [30, 73, 80, 93, 100])
@pytest.mark.parametrize("column", [1, 20, 150, 298, 300])
@pytest.mark.parametrize("filler", ["a", "猫", "\t", "ab "])
def test_a_long_line_is_cut_around_the_mark(width: int, column: int, filler: str) -> None:
    line = (filler * 300)[: column - 1] + "WORD" + filler * 300
    found = excerpt([line], 1, column, width)
    assert found
    assert cell_len(found.text) <= width
    assert cell_len(found.marks) <= width
    start, before = len(found.marks) - len(found.marks.lstrip()), 0
    for index, char in enumerate(found.text):
        if before == start:
            assert found.text[index:].startswith("WORD")
            break
        before += cell_len(char)
    else:
        pytest.fail(f"no character is above the mark: {found}")


SECRETS = (
    "    api_key: CANARY",
    "    api-key: 'CANARY'",
    "      password: CANARY # of tom",
    "connect: {host: a, password: CANARY}",
    "    environment: {HF_TOKEN: CANARY}",
    "export HF_TOKEN=CANARY",
    "Environment=LLAMA_API_KEY=CANARY",
    "llama-server --api-key CANARY -m x",
    "llama-server --api-key=CANARY -m x",
    'extra_args: [--api-key, "CANARY"]',
    '  "api_key": "CANARY",',
    "curl -H 'Authorization: Bearer CANARY' http://x",
    "git: https://tom:CANARY@x.lan/llama",
    "    nonsense: sk-CANARY0123456789",
    "    nonsense: hf_CANARY0123456789",
)
OPEN = (
    "    api_key: {file: keys/coder}",
    "    api_key: {env: CODER_KEY}",
    "connect: {host: a, key: ~/.ssh/id_ed25519}",
    "    sampling: {max_tokens: 4096}",
    "llama-server --api-key-file /etc/key --port 8080",
    "export HF_TOKEN=$TOKEN",
    "    api_key: keys/coder".replace("keys", "./keys"),
)


@pytest.mark.parametrize("line", SECRETS)
def test_a_secret_is_not_shown(line: str) -> None:
    for column in range(1, len(line) + 1):
        found = excerpt([line], 1, column, 100)
        assert found
        assert "CANARY" not in found.text
        assert "***" in found.text
        assert len(found.marks) <= len(found.text) + 1


def test_a_secret_below_its_name_is_not_shown() -> None:
    lines = ["extra_args:", "  - --api-key", "  - CANARY", "  - --nope"]
    assert [found.text for n in range(1, 5) if (found := excerpt(lines, n, 1, 80))] == [
        *lines[:2],
        "  - ***",
        lines[3],
    ]


@pytest.mark.parametrize("line", OPEN)
def test_what_is_no_secret_is_shown(line: str) -> None:
    found = excerpt([line], 1, 1, 100)
    assert found
    assert found.text == line


def plain(text: str, _role: str) -> str:
    return text


def test_findings_are_grouped_by_file_and_wrapped() -> None:
    key = Place(Path("b.yaml"), 1, 1)
    found = [
        Finding(
            "LH010", key, "there is no key `prot` here", "did you mean `port`?", edits=(Edit(key, "prot", "port"),)
        ),
        Finding("LH007", Place(Path("a")), "there is no rig `x`", "known names: " + ", ".join(["abcdefg"] * 12)),
        Finding("LH012", Place(Path("b.yaml"), 9, 1), "gone", "help", "warning"),
    ]
    lines = list(rendered(found, lambda file: ["prot: 1"] if file == Path("b.yaml") else None, plain, 60, fixing=True))
    assert lines == [
        "b.yaml: 1 error, 1 warning",
        "",
        "b.yaml:1:1: error LH010: there is no key `prot` here",
        "  1 | prot: 1",
        "    | ^^^^",
        "  help: did you mean `port`? [--fix]",
        "",
        "b.yaml:9:1: warning LH012: gone",
        "  help: help",
        "",
        "a: 1 error",
        "",
        "a: error LH007: there is no rig `x`",
        "  help: known names: abcdefg, abcdefg, abcdefg, abcdefg,",
        "        abcdefg, abcdefg, abcdefg, abcdefg, abcdefg,",
        "        abcdefg, abcdefg, abcdefg",
    ]
    assert "  help: known names: " + ", ".join(["abcdefg"] * 12) in list(rendered(found, lambda _: None, plain, None))
