"""Every command with --json prints one envelope, whether it succeeds or fails."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from llamaherd.cli.envelope import Envelope, envelope_schema_text
from llamaherd.cli.herd import main
from llamaherd.diagnostics.findings import Finding, Place, UserError
from llamaherd.measure.results.store import write_result
from tests.bench.made import result, run
from tests.support.envelope import SCHEMA, envelope
from tests.support.rigs import ROOT, changed, cpu_rig

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "add": ("org/name:Q4_K_M", "--dry-run"),
    "bench": ("box/chat",),
    "chat": ("box/chat", "Hello"),
    "check": (),
    "compare": ("box/chat", "box/chat"),
    "diff": (),
    "doctor": (),
    "fit": ("none.gguf", "--vram", "24G"),
    "gateway ca": (),
    "gateway status": (),
    "history": (),
    "import": ("none.sh", "--dry-run"),
    "lock": (),
    "logs": ("box/chat",),
    "models list": (),
    "models prune": ("--dry-run",),
    "outdated": (),
    "pause": ("box/chat", "--for", "1h"),
    "plan": (),
    "preflight": (),
    "prune": ("--dry-run",),
    "report": (),
    "restart": ("box/chat",),
    "resume": ("box/chat",),
    "show": (),
    "start": ("box/chat",),
    "status": (),
    "stop": ("box/chat",),
    "top": (),
    "tune": ("box/chat",),
    "users list": (),
    "verify": (),
}
"""The arguments with which each command does the least."""
FLEET = """\
gateway:
  on: [box]
  listen: 0.0.0.0
  tls: {ca: keys/ca}
  users:
    tom: {key: {env: TOM_KEY}}
  models:
    coder: {serve: [box.chat]}
"""
WITHOUT_HOST = {"check", "compare", "gateway ca", "lock", "outdated", "report", "show", "users list"}
"""The commands that succeed although the host is away."""
GROUPS = {"gateway", "models"}
"""Commands whose --json is that of their commands."""


def with_json(group: click.Group = main, before: str = "") -> Iterator[str]:
    """Yield each command that has --json, with the words before it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command
        if any("--json" in parameter.opts for parameter in command.params):
            yield f"{before}{name}"
        if isinstance(command, click.Group):
            yield from with_json(command, f"{before}{name} ")


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fleet of one rig on which nothing listens, with a gateway and a result."""
    monkeypatch.setenv("CHAT_KEY", "canary")
    # The library reads its variable once, when it is imported: that would switch the hub off for later tests, too.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("TOM_KEY", "canary")
    # The runner's stdin is no file.
    monkeypatch.setattr("llamaherd.cli.chat_session.with_piped_text", lambda prompt: prompt)
    rig = changed(cpu_rig(), {"connect": {"host": "127.0.0.1", "port": 9}})
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "box.yaml").write_text(json.dumps(rig))
    write_result(tmp_path / "results", result(run(50.0), rig="box", instance="chat"))
    return tmp_path


def printed(folder: Path, command: str) -> tuple[int, dict[str, object], str]:
    """Return the exit code, the only document on stdout, and stderr."""
    words = ["-i", str(folder), *command.split(), *ARGUMENTS[command], "--json"]
    ended = CliRunner().invoke(main, words, prog_name="herd")
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    assert ended.stdout.count("\n") == 1, ended.output
    return ended.exit_code, envelope(ended.stdout), ended.stderr


def test_the_schema_of_the_docs_is_current() -> None:
    """`herd schema output > docs/schema/output.schema.json` writes it."""
    Draft202012Validator.check_schema(SCHEMA)
    assert (ROOT / "docs/schema/output.schema.json").read_text(encoding="utf-8") == envelope_schema_text()
    assert CliRunner().invoke(main, ["schema", "output"]).stdout == envelope_schema_text()


def test_every_command_with_json_is_run_here() -> None:
    assert set(with_json()) - GROUPS == set(ARGUMENTS)


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("command", ARGUMENTS)
def test_a_command_on_a_fleet_that_is_away_prints_one_envelope(command: str, away: Path) -> None:
    code, found, stderr = printed(away, command)
    assert found["command"] == command
    assert found["ok"] == (code == 0) == (command in WITHOUT_HOST), stderr
    assert "canary" not in json.dumps(found)
    assert found["ok"] or found["errors"] or found["findings"] or found["rigs"], stderr


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("command", ARGUMENTS)
def test_a_command_without_a_usable_inventory_prints_one_envelope(command: str, tmp_path: Path) -> None:
    (tmp_path / "box.yaml").write_text("nonsense: 1\n")
    code, found, stderr = printed(tmp_path, command)
    assert code in (1, 2), stderr
    assert (found["command"], found["ok"]) == (command, False)
    # `herd doctor` lists the mistakes of an inventory with its own checks.
    assert found["errors"] or found["findings"] or found["data"], stderr


@pytest.mark.usefixtures("starts_processes")
def test_status_that_repeats_itself_prints_a_line_each_time(away: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def interrupt_the_second(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    # Of this module alone: others wait meanwhile.
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=interrupt_the_second)
    monkeypatch.setattr("llamaherd.cli.snapshots.time", clock)
    ended = CliRunner().invoke(main, ["-i", str(away), "status", "--watch", "1", "--json"], prog_name="herd")
    first, second = ended.stdout.splitlines()
    assert envelope(first)["rigs"][0]["away"] == envelope(second)["rigs"][0]["away"] != ""
    assert ended.exit_code == 130


def test_an_interrupted_command_prints_that(away: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("llamaherd.cli.show.read_or_exit", interrupted)
    monkeypatch.setattr("llamaherd.cli.rigs.read_or_exit", interrupted)
    ended = CliRunner().invoke(main, ["-i", str(away), "show", "--json"], prog_name="herd")
    assert ended.exit_code == 130
    assert [each["message"] for each in envelope(ended.stdout)["errors"]] == ["interrupted"]


def test_a_wrong_command_line_prints_no_document(away: Path) -> None:
    ended = CliRunner().invoke(main, ["-i", str(away), "show", "--json", "--nonsense"], prog_name="herd")
    assert (ended.exit_code, ended.stdout) == (2, "")


def test_all_keys_are_there_and_no_others_fit() -> None:
    finding = Finding("LH001", Place(Path("a.yaml")), "wrong", "mend it")
    filled = Envelope(False, [{"rig": "a", "more": 1}], {"x": 1}, [finding], [UserError("a", "b")]).document("plan")
    valid = Draft202012Validator(SCHEMA).is_valid
    for document in (filled, Envelope(True).document("plan")):
        assert valid(document)
        assert list(document) == ["schema", "command", "ok", "rigs", "findings", "errors", "data"]
        for key in document:
            assert not valid({name: value for name, value in document.items() if name != key})
    wrong: dict[str, object] = {"more": 1, "rigs": [{"name": "a"}], "schema": 2, "errors": ["a"], "data": []}
    for key, value in wrong.items():
        assert not valid(filled | {key: value})
