"""Words that name an instance, and the messages for words that name none."""

from __future__ import annotations

import click
import pytest
from click.shell_completion import CompletionItem

from llamaherd.cli import targets
from llamaherd.cli.targets import Target, complete_targets, find_target, split_words
from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Rig
from tests.support.rigs import cpu_rig


def _rig(name: str, *instances: str) -> Rig:
    rig = cpu_rig()
    (one, *_) = rig["instances"].values()
    return Rig.model_validate(rig | {"rig": name, "instances": dict.fromkeys(instances, one)})


RIGS = {"attic": _rig("attic", "chat"), "duo": _rig("duo", "chat", "coder")}
"""Two rigs that have an instance of the same name."""


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("duo/chat", "duo/chat"),
        ("coder", "duo/coder"),
        ("attic", "attic/chat"),
        ("duo.coder", "duo/coder"),
    ],
)
def test_an_instance_is_found(word: str, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert str(find_target(RIGS, word)) == found
    expected = f"`{word}` is an old spelling: write `{found}`\n" if "." in word else ""
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("word", "message", "help_"),
    [
        ("chat", "`chat` is the name of several instances", "name one of attic/chat, duo/chat"),
        ("duo", "rig `duo` has several servers", "name one of duo/chat, duo/coder"),
        ("codre", "there is no instance `codre`", "did you mean `coder`?"),
        ("duo/codr", "there is no instance `duo/codr`", "did you mean `duo/coder`?"),
        ("six/main", "there is no instance `six/main`", "name one of attic/chat, duo/chat, duo/coder"),
        (None, "the inventory has several servers", "name one of attic/chat, duo/chat, duo/coder"),
    ],
)
def test_a_word_that_names_no_single_instance(word: str | None, message: str, help_: str) -> None:
    with pytest.raises(UserError) as raised:
        find_target(RIGS, word)
    assert (raised.value.message, raised.value.help) == (message, help_)


def test_without_a_word_the_only_server_is_found() -> None:
    assert find_target({"attic": RIGS["attic"]}, None) == Target("attic", "chat")
    with pytest.raises(UserError, match="the inventory has no instance"):
        find_target({}, None)


def test_completion_of_an_instance_with_and_without_its_rig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "declared_rigs", lambda _path: RIGS)
    context, parameter = click.Context(click.Command("logs")), click.Argument(["target"])

    def completed(typed: str) -> list[str]:
        items: list[CompletionItem] = complete_targets(context, parameter, typed)
        return [str(each.value) for each in items]

    assert completed("duo/") == ["duo/chat", "duo/coder"]
    assert completed("co") == ["duo/coder"]
    assert completed("x") == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("attic/chat", None), ("attic", "chat")),
        (("coder", None), ("duo", "coder")),
        (("chat", None), ("chat", None)),
        (("duo", None), ("duo", None)),
        (("none", None), ("none", None)),
        (("attic", "chat"), ("attic", "chat")),
    ],
)
def test_words_of_a_command_that_takes_a_rig(
    words: tuple[str, str | None],
    found: tuple[str, str | None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(targets, "declared_rigs", lambda _: RIGS)
    assert split_words(None, *words) == found
    old = "`attic chat` is an old spelling: write `attic/chat`\n"
    assert capsys.readouterr().err == (old if words[1] else "")
