"""Shell text read into commands: every word, and where it stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.recipes.bash import read_commands
from llamaherd.recipes.commands import Command, Script, expand, joined, positioned, split


def script(text: str) -> Script:
    return read_commands(positioned(text))


def only(text: str) -> Command:
    """The one command of a script that runs anything."""
    (command,) = [each for each in script(text).commands if each.words]
    return command


def words(text: str) -> list[str]:
    return [str(word) for word in only(text).words]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
        ("a \\\n  -b \\\r\n  -c", ["a", "-b", "-c"]),
        ("a # b\n", ["a"]),
        ("a#b", ["a#b"]),
        ("A=1 B='2 3' prog -x", ["prog", "-x"]),
        ("$ prog -x", ["prog", "-x"]),
        ("tom@rig:~/llama$ prog -x", ["prog", "-x"]),
        ("prog -x > log.txt 2>&1 < in", ["prog", "-x"]),
        ("prog '{\"a\": false}'", ["prog", '{"a": false}']),
        ('prog "{\\"a\\": false}"', ["prog", '{"a": false}']),
        ("prog ''", ["prog", ""]),
        ("prog it's", ["prog", "it's"]),
        ('prog "open', ["prog", '"open']),
        ("prog $", ["prog", "$"]),
        ("prog ${open", ["prog", "${open"]),
        ("prog $'tab'", ["prog", "tab"]),
        ('prog "$@"', ["prog"]),
        ("A=x\nprog $A ${A} \"$A\" '$A'", ["prog", "x", "x", "x", "$A"]),
        ("export A=x B=y\nprog $A$B", ["prog", "xy"]),
        ("A='-x 1'\nprog $A", ["prog", "-x", "1"]),
        ("A='-x 1'\nprog \"$A\"", ["prog", "-x 1"]),
        ("A=\nprog $A -x", ["prog", "-x"]),
        ("A=-x\nA+=' 1'\nprog $A", ["prog", "-x", "1"]),
        ('A=(-x "1 2" # so\n -y)\nA+=(-z)\nprog "${A[@]}"', ["prog", "-x", "1 2", "-y", "-z"]),
        ("prog ${A:-8080} ${B-1}", ["prog", "8080", "1"]),
        ("if true\nthen\n  sudo prog; fi", ["sudo", "prog"]),
    ],
)
def test_words_are_those_of_a_shell(text: str, expected: list[str]) -> None:
    found = [[str(word) for word in each.words] for each in script(text).commands]
    assert expected in found


def test_words_know_where_they_stand() -> None:
    command = only('MODEL=m.gguf\nserver \\\n  --model "$MODEL" \\\n  --port 1')
    assert [word.start for word in command.words] == [(2, 1), (3, 3), (3, 11), (4, 3), (4, 10)]


def test_words_that_come_from_a_variable_stand_where_it_is_set() -> None:
    command = only("EXTRA='-a --bad'\nprog $EXTRA")
    assert [(str(word), word.start) for word in command.words] == [("prog", (2, 1)), ("-a", (1, 8)), ("--bad", (1, 11))]


def test_what_only_a_shell_knows_is_unknown_and_stays_as_it_is_written() -> None:
    command = only('prog -t $(nproc) -u `id` "$UNSET" $((1+2)) $1')
    assert [(str(word), word.unknown) for word in command.words[1:]] == [
        ("-t", False),
        ("$(nproc)", True),
        ("-u", False),
        ("`id`", True),
        ("$UNSET", True),
        ("3", False),
        ("$1", True),
    ]
    assert command.words[5].unset == ("UNSET",)


def test_commands_end_where_a_shell_ends_them() -> None:
    found = script("cd a && b -x | c; d &\ne")
    assert [[str(word) for word in each.words] for each in found.commands] == [
        ["cd", "a"],
        ["b", "-x"],
        ["c"],
        ["d"],
        ["e"],
    ]
    assert [each.background for each in found.commands] == [False, False, False, True, False]


def test_settings_before_a_command_are_its_own() -> None:
    found = script("A=1 prog\nprog $A").commands
    assert {name: str(word) for name, word in found[0].settings.items()} == {"A": "1"}
    assert [str(word) for word in found[1].words] == ["prog", "$A"]


def test_a_backslash_with_blanks_after_it_is_told() -> None:
    found = script("prog -a \\ \n  -b")
    assert found.broken == ((1, 9),)
    assert [str(word) for word in found.commands[0].words] == ["prog", "-a", "-b"]


def test_here_documents_are_texts_with_places() -> None:
    found = script("cat > u <<'EOF'\nExecStart=/a\n  b\nEOF\nprog")
    (document,) = found.documents
    assert (document.text.chars, document.text.at[0]) == ("ExecStart=/a\n  b\n", (2, 1))
    assert [str(word) for word in found.commands[-1].words] == ["prog"]


def test_what_no_shell_reads_keeps_its_operators() -> None:
    found = expand(positioned("/a -x ${A} ; b"), {"A": "1"})
    assert [str(word) for word in found] == ["/a", "-x", "1", ";", "b"]


def test_a_variable_made_of_itself_fills_no_memory() -> None:
    text = "A=aaaaaaaaaa\n" + "A=$A$A\n" * 60 + "B=($A)\n" + 'B=("${B[@]}" "${B[@]}")\n' * 60 + 'prog "$A" "${B[@]}"'
    command = only(text)
    assert len(command.words[1].text.chars) <= 4000
    assert len(command.words) == 1002


SIGNS = st.text(st.sampled_from(list("ab=$(){}[]<>|&;'\"`\\#@ \n\r\t-:+.,/0é")))


@given(SIGNS | st.text())
def test_any_text_can_be_read(text: str) -> None:
    source = positioned(text)
    found = script(text)
    lines = text.split("\n")
    for command in found.commands:
        for word in command.words:
            line, column = word.start
            assert 1 <= line <= len(lines)
            assert 1 <= column <= len(lines[line - 1]) + 1
            assert len(word.text.chars) == len(word.text.at)
    assert joined(source.cut(i, i + 1) for i in range(len(text))) == source


@given(SIGNS)
def test_words_hold_only_what_is_written(text: str) -> None:
    for word, _ in split(positioned(text), operators=True, comments=True):
        for char, (line, column) in zip(word.chars, word.at, strict=True):
            assert (text.split("\n")[line - 1] + "\n")[column - 1 :].startswith(char)
