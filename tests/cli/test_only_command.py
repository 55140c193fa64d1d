"""`--only` of `herd up` and `herd plan`: the part that is named, on rigs that have it, and one line for the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from llamaherd.cli.herd import main
from tests.support import gguf_files
from tests.support.envelope import envelope
from tests.support.rigs import SHA, cpu_rig
from tests.support.ssh_hosts import PROGRAM, RIGS, Hosts, three_hosts


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    """Three hosts with something to do, which is of the role `base`."""
    return three_hosts(tmp_path)


def test_a_role_in_waves(hosts: Hosts) -> None:
    ended = hosts.herd("up", "--only", "base", "--canary", "duo", "--waves", "1")
    assert ended.returncode == 0, ended.stderr
    assert hosts.turns == ["duo", "attic", "six"]
    assert "left out by --only" not in ended.stdout


def test_what_is_left_is_one_line_and_changes_no_exit_code(hosts: Hosts) -> None:
    ended = hosts.herd("diff", "six", "--only", "serve", "--only", "models")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "six: up to date\nsix: 1 change left out by --only; run `herd up` to apply it\n"
    assert hosts.herd("diff", "six", "--only", "base").returncode == 2
    value = envelope(hosts.herd("diff", "six", "--only", "serve", "--json").stdout)
    assert (value["data"]["only"], value["rigs"][0]["left"], value["rigs"][0]["changes"]) == (["serve"], 1, [])
    value = envelope(hosts.herd("diff", "six", "--json").stdout)
    assert value["data"]["only"] == []
    assert "left" not in value["rigs"][0]
    ended = hosts.herd("up", "--only", "serve")
    assert ended.returncode == 0, ended.stderr
    assert hosts.turns == []


def test_it_costs_what_a_run_for_all_does_and_a_look_at_what_is_remembered(hosts: Hosts) -> None:
    assert hosts.herd("up", "six").returncode == 0
    whole = [what for _, what in hosts.log]
    (hosts.folder / "log").unlink()
    (hosts.folder / str(RIGS["six"]) / "done").unlink()
    assert hosts.herd("up", "six", "--only", "base").returncode == 0
    part = [what for _, what in hosts.log]
    assert (part.count("looked"), part.count("changed")) == (whole.count("looked") + 1, whole.count("changed"))


def test_a_saved_part(hosts: Hosts) -> None:
    assert hosts.herd("diff", "six", "duo", "--only", "base", "--save", "base.json").returncode == 2
    saved = json.loads((hosts.folder / "base.json").read_text())
    assert (saved["format"], saved["only"]) == (2, ["base"])
    hosts.lacks("duo", PROGRAM, "/opt/llamaherd/libexec/wait-healthy")
    ended = hosts.herd("up", "--plan", "base.json")
    assert ended.returncode == 1
    assert "`herd plan six duo --only base --save base.json`" in ended.stderr
    assert hosts.turns == []
    hosts.lacks("duo", PROGRAM)
    ended = hosts.herd("up", "--plan", "base.json")
    assert ended.returncode == 0, ended.stderr
    assert set(hosts.turns) == {"duo", "six"}


def test_a_saved_part_that_says_it_is_everything(hosts: Hosts) -> None:
    assert hosts.herd("diff", "six", "--only", "base", "--save", "base.json").returncode == 2
    file = hosts.folder / "base.json"
    file.write_text(file.read_text().replace('"format": 2', '"format": 1'))
    ended = hosts.herd("up", "--plan", "base.json")
    assert (ended.returncode, hosts.turns) == (2, [])
    assert "must be of format 2 where it is of a part alone" in ended.stderr


@pytest.mark.parametrize(("command", "code"), [("up", 2), ("diff", 1)])
def test_a_name_that_is_none_touches_no_host(hosts: Hosts, command: str, code: int) -> None:
    ended = hosts.herd(command, "--only", "sevre")
    assert ended.returncode == code
    assert "--only sevre: there is no such instance or role\n  help: did you mean `serve`? roles: base," in ended.stderr
    assert hosts.log == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "base", "--plan", "base.json"), "base.json contains what to change; leave out --only base"),
        (("--only", "chat", "--canary", "duo"), "--canary: there is no rig `duo` that has chat"),
    ],
)
def test_what_makes_no_sense_touches_no_host(hosts: Hosts, words: tuple[str, ...], said: str) -> None:
    chat(hosts, "six")
    ended = hosts.herd("up", *words)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert hosts.log == []


def test_a_rig_that_has_none_of_it_is_left_alone(hosts: Hosts) -> None:
    chat(hosts, "six")
    ended = hosts.herd("diff", "duo", "six", "--only", "chat")
    assert "duo: skipped, it has no chat\n" in ended.stderr
    assert {name for name, _ in hosts.log} == {"six"}


def test_a_shell_completes_instances_and_roles(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    chat(hosts, "six")
    monkeypatch.setenv("HERD_INVENTORY", str(hosts.folder / "fleet"))
    for command in ("up", "diff"):
        found = ShellComplete(main, {}, "herd", "_HERD_COMPLETE").get_completions([command, "--only"], "c")
        assert [each.value for each in found] == ["chat", "chat_page", "container_runtime", "cuda_toolkit"]


def chat(hosts: Hosts, name: str) -> None:
    """Declare an instance of that name."""
    rig = json.loads(hosts.rig(name).read_text())
    more = cpu_rig()
    gguf_files.write(gguf_files.gemma3(), hosts.folder / "gemma.gguf")
    (hosts.folder / "llama.tar.gz").touch()
    more["engines"]["main"]["source"]["archive"] = str(hosts.folder / "llama.tar.gz")
    more["models"] = {"gemma": {"file": str(hosts.folder / "gemma.gguf"), "sha256": SHA}}
    more["instances"] = {"chat": {**more["instances"]["chat"], "api_key": {"file": str(hosts.folder / "key")}}}
    (hosts.folder / "key").write_text("canary-0123456789abcdef\n")
    (hosts.folder / "key").chmod(0o600)
    hosts.rig(name).write_text(json.dumps(rig | {each: more[each] for each in ("engines", "models", "instances")}))
