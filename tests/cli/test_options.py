"""-i and --json stand before or after the command; of two inventories, the later counts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from tests.support.envelope import envelope
from tests.support.rigs import ROOT, changed, cpu_rig

WITHOUT_INVENTORY = ("completion", "explain", "init", "monitoring", "schema", "users")
WITHOUT_JSON = (
    *("clients", "completion", "down", "drain", "edit", "explain", "init", "monitoring", "open", "ready"),
    *("schema", "rollback", "ssh", "support-bundle", "unlock", "up", "upgrade", "users"),
)


def herd(*words: str | Path) -> Result:
    ended = CliRunner().invoke(main, [str(word) for word in words], prog_name="herd")
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


@pytest.fixture
def fleets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two fleets, `one` and `two`, of a rig each that is called after it; the usual inventory is no use."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        rig = {"rig": name, "connect": {"host": "127.0.0.1", "port": 9}}
        rig |= {"host": {"os": "debian-13", "cpu": {"cores": 2}, "ram": "8GB"}}
        rig |= {"engines": {}, "models": {}, "instances": {}}
        (tmp_path / name / f"{name}.yaml").write_text(json.dumps(rig))
    monkeypatch.setenv("HERD_INVENTORY", str(tmp_path / "nowhere"))
    return tmp_path


def every_command(group: click.Group = main, before: str = "herd") -> Iterator[tuple[str, click.Command]]:
    """Each command with its words, those of groups too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command, name
        yield f"{before} {name}", command
        if isinstance(command, click.Group):
            yield from every_command(command, f"{before} {name}")


COMMANDS = dict(every_command())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_list_of_commands_says_a_whole_sentence_of_each(name: str) -> None:
    """A terminal of 80 columns has room for that beside the longest name."""
    summary = COMMANDS[name].get_short_help_str(64)
    assert summary.endswith(".")
    assert not summary.endswith("...")


@pytest.mark.parametrize("name", sorted(main.commands))
def test_the_list_of_commands_has_the_first_sentence_of_each_help(name: str) -> None:
    """The list imports no command, so it has these sentences of its own."""
    assert main.commands[name].short_help == COMMANDS[f"herd {name}"].get_short_help_str(200)


@pytest.mark.parametrize("name", ["herd", *COMMANDS])
def test_a_help_fits_80_columns(name: str) -> None:
    lines = herd(*name.split()[1:], "--help").output.splitlines()
    assert lines
    assert [line for line in lines if len(line) > 80] == []


def test_the_list_of_commands_imports_none_of_them() -> None:
    program = (
        "import sys; from llamaherd.cli.herd import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(ended.stdout.split())
    assert not loaded & {f"llamaherd.cli.{name}" for name in main.commands}
    assert not loaded & {"pydantic", "jinja2", "rich", "llamaherd.pipeline.load"}


@pytest.mark.parametrize("name", ["up", "verify", "status"])
def test_the_help_of_a_command_imports_only_its_options(name: str) -> None:
    program = "import sys; from llamaherd.cli.herd import main; "
    program += f"main(['{name}', '--help'], standalone_mode=False); print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert f"herd {name}" in ended.stdout
    assert not set(ended.stdout.split()) & {"pydantic", "jinja2", "rich", "llamaherd.pipeline.load"}


@pytest.mark.parametrize("name", COMMANDS)
def test_whoever_is_not_asked_says_so_alike(name: str) -> None:
    yes = [option.opts for option in COMMANDS[name].params if "--yes" in option.opts]
    assert yes in ([], [["-y", "--yes", "--force"]])


@pytest.mark.parametrize("command", ["bench", "rollback", "tune"])
def test_a_shell_completes_the_instances_of_rigs(command: str, tmp_path: Path) -> None:
    for name in ("duo", "dusk"):
        rig = changed(cpu_rig(), {"rig": name})
        in_turn = rig["instances"]["chat"] | {"port": 8082, "group": "night"}
        rig["instances"] |= {"spare": in_turn, "other": in_turn | {"model": "moe"}}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(rig))
    shell = ShellComplete(main, {}, "herd", "_HERD_COMPLETE")

    def offered(*words: str) -> list[str]:
        *before, typed = words
        return [item.value for item in shell.get_completions(["-i", str(tmp_path), command, *before], typed)]

    names = ("chat", "drafter", "night", "other", "spare")
    assert sorted(offered("duo/")) == [f"duo/{name}" for name in names]
    assert offered("duo/s") == ["duo/spare"]
    assert sorted(offered("spa")) == ["duo/spare", "dusk/spare"]
    assert offered("nobody") == []


NAMES_NONE = {
    "herd init": "a folder",
    "herd check": "files",
    "herd explain": "codes and pages",
    "herd completion": "shells",
    "herd schema": "kinds",
    "herd fit": "a model",
    "herd add": "a model",
    "herd import": "a file",
    "herd upgrade": "engines, images and models",
    "herd clients": "programs",
    "herd drain": "a server behind the gateway",
    "herd ready": "a server behind the gateway",
    "herd users add": "a new user",
    "herd users revoke": "a user",
    "herd users rotate": "a user",
}
"""Commands whose argument is neither a rig nor an instance."""


def names_a_rig(name: str) -> bool:
    """Return whether a command has an argument for a rig or an instance."""
    every = (each for each in COMMANDS[name].params if isinstance(each, click.Argument))
    return name not in NAMES_NONE and any(each.type is not click.UNPROCESSED for each in every)


@pytest.mark.parametrize("name", [name for name in COMMANDS if names_a_rig(name)])
def test_a_shell_completes_each_argument_that_names_a_rig(name: str, fleets: Path) -> None:
    rig = changed(cpu_rig(), {"rig": "duo"})
    (fleets / "duo.yaml").write_text(json.dumps(rig))
    words = ["-i", str(fleets / "duo.yaml"), *name.split()[1:]]
    found = {each.value for each in ShellComplete(main, {}, "herd", "_HERD_COMPLETE").get_completions(words, "du")}
    assert found & {"duo", "duo/chat"}, found


@pytest.mark.parametrize(
    "words",
    [
        "-i two show --json",
        "show -i two --json",
        "show --json -i two",
        "show two --json --inventory two",
        "--json show two --inventory=two",
        "--json -i two show",
        "-i two --json show two",
        "-i one show -i two --json",
        "--json show --json -itwo",
        "-i one -i two show --json",
    ],
)
def test_on_either_side_of_the_command(words: str, fleets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fleets)
    ended = herd(*words.split())
    assert ended.exit_code == 0, ended.output
    assert [each["rig"] for each in envelope(ended.stdout)["rigs"]] == ["two"]


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    "words",
    [
        "models list two -i two --json",
        "models two -i two --json",
        "models -i two two --json",
        "models -i two list --json",
        "models --inventory=two --json",
        "models --json -i two",
        "models --json -i two list two",
        "-i two models --json two",
        "--json models -i two prune --dry-run",
        "models --json prune --dry-run -i two",
        "-i two --json models",
        "-i one models -i one prune --dry-run --json -i two",
    ],
)
def test_models_has_commands_of_its_own(words: str, fleets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens there: what is said for machines names the rig that was meant."""
    monkeypatch.chdir(fleets)
    ended = herd(*words.split())
    assert ended.exit_code == 1, ended.output
    assert [each["rig"] for each in envelope(ended.stdout)["rigs"]] == ["two"]


@pytest.mark.parametrize("words", ["show -i", "models -i", "models --json --inventory", "-i"])
def test_an_inventory_must_be_named(words: str) -> None:
    ended = herd(*words.split())
    assert ended.exit_code == 2
    assert "requires an argument" in ended.stderr


@pytest.mark.parametrize("command", sorted(main.commands))
def test_help_says_where_they_may_stand(command: str) -> None:
    told = set(re.findall(r"--\w+", herd(command, "--help").stdout.split("Options:")[1]))
    assert ("--inventory" in told) == (command not in WITHOUT_INVENTORY)
    assert ("--json" in told) == (command not in WITHOUT_JSON)


@pytest.mark.parametrize("command", WITHOUT_JSON)
def test_json_where_there_is_none(command: str, fleets: Path) -> None:
    """Nothing is done, and nothing printed that a program would take for JSON."""
    needed: dict[str, list[str | Path]] = {
        "completion": ["bash"],
        "explain": ["LH031"],
        "init": [fleets / "new"],
        "rollback": ["one"],
        "down": ["one"],
        "drain": ["one.chat"],
        "ready": ["one.chat"],
        "support-bundle": ["-o", fleets / "new"],
    }
    arguments = needed.get(command, [])
    before, after = herd("--json", command, *arguments), herd(command, *arguments, "--json")
    assert (before.exit_code, after.exit_code) == (2, 2)
    assert (before.stdout, after.stdout) == ("", "")
    assert "--json" in before.stderr
    assert not (fleets / "new").exists()


@pytest.mark.parametrize("words", [["-i", "two", "show"], ["show", "-i", "two"], ["models", "-i", "two"], ["models"]])
def test_completion_knows_the_inventory(words: list[str], fleets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fleets)
    if "-i" not in words:
        monkeypatch.setenv("HERD_INVENTORY", os.fspath(fleets / "two"))
    names = {each.value for each in ShellComplete(main, {}, "herd", "_HERD_COMPLETE").get_completions(words, "t")}
    assert names == {"two"}


@pytest.mark.parametrize("words", ["--limit two", "--limit=two", "two --limit two", "--limit two,two"])
def test_limit_is_another_spelling_of_a_rig(words: str, fleets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fleets)
    ended = herd("-i", "two", "show", "--json", *words.split())
    assert ended.exit_code == 0, ended.output
    assert [each["rig"] for each in envelope(ended.stdout)["rigs"]] == ["two"]
    ended = herd("-i", "two", "show", "--limit", "six")
    assert ended.exit_code == 2
    assert "there is no rig `six`" in ended.stderr


def test_limit_is_completed(fleets: Path) -> None:
    words = ["-i", str(fleets / "two"), "up", "--limit"]
    names = {each.value for each in ShellComplete(main, {}, "herd", "_HERD_COMPLETE").get_completions(words, "t")}
    assert names == {"two"}


@pytest.mark.parametrize("name", COMMANDS)
def test_quiet_has_one_spelling(name: str) -> None:
    found = [option.opts for option in COMMANDS[name].params if "--quiet" in option.opts]
    assert found in ([], [["-q", "--quiet"]])


def test_quiet_and_verbose_contradict_each_other(fleets: Path) -> None:
    ended = herd("-i", fleets / "two", "up", "-q", "-v")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "-q prints less and -v prints more; leave out one" in ended.stderr
