"""`herd plan`, its alias `herd diff`, and what `herd up` prints before it begins: hosts respond as tests have them."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.host.remote import RemoteError
from llamaherd.onhost.files import TextsFound
from llamaherd.onhost.releases import Stored, StoredRelease
from llamaherd.pipeline import diff, history, preview
from tests.support import gguf_files
from tests.support.envelope import envelope, the_rig
from tests.support.ours import plans, queried
from tests.support.rigs import KEY, SHA, converged, cpu_rig

UNIT = "/etc/systemd/system/llama-chat.service"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A rig whose files lie on this machine: one server under systemd."""
    folder = tmp_path_factory.mktemp("files")
    gguf_files.write(gguf_files.gemma3(), folder / "gemma.gguf")
    (folder / "llama.tar.gz").touch()
    declared = cpu_rig()
    declared["engines"]["main"]["source"]["archive"] = str(folder / "llama.tar.gz")
    declared["models"] = {"gemma": {"file": str(folder / "gemma.gguf"), "sha256": SHA}}
    declared["instances"] = {"chat": declared["instances"]["chat"]}
    return declared


@pytest.fixture
def fleet(rig: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with that rig, whose host answers that all is as planned."""
    monkeypatch.setenv("CHAT_KEY", KEY)
    (tmp_path / "box.yaml").write_text(json.dumps(rig))
    answers(monkeypatch, as_planned(tmp_path))
    return tmp_path


def as_planned(fleet: Path) -> list[str]:
    """The answer of a host that is."""
    ((_, plan),) = plans(fleet).values()
    return converged(plan, {"chat": KEY})


def answers(monkeypatch: pytest.MonkeyPatch, world: list[str]) -> None:
    """Have every host answer so."""
    monkeypatch.setattr(preview, "query_host", lambda *_: queried(world))
    monkeypatch.setattr(history, "query_verb", lambda *_: Stored())


def another_unit(fleet: Path) -> list[str]:
    """The answer of a host whose unit was edited."""
    return [
        f"sum\t{'0' * 64}\t{UNIT}" if line.startswith("sum") and line.endswith(UNIT) else line
        for line in as_planned(fleet)
    ]


def herd(fleet: Path, *words: str) -> Result:
    """Run it to its end."""
    ended = CliRunner().invoke(main, ["-i", str(fleet), *words])
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


def test_nothing_differs(fleet: Path) -> None:
    said = herd(fleet, "diff")
    assert (said.exit_code, said.stdout) == (0, "box: up to date\n")
    value = envelope(herd(fleet, "diff", "--json").stdout)
    assert value["ok"]
    assert value["rigs"] == [{"rig": "box", "changes": [], "diffs": {}, "problems": [], "unreached": ""}]


def test_changes_are_said_with_reasons_and_texts(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, another_unit(fleet))
    monkeypatch.setattr(diff, "query_verb", lambda *_: TextsFound({UNIT: "old\n"}))
    said = herd(fleet, "plan", "-v")
    assert said.exit_code == 2
    first, change, sentence, *rest = said.stdout.splitlines()
    assert first == "box: 1 change"
    assert change == "  ± chat  llama-chat.service has another text, downtime about 2 s (by the size of its model)"
    assert sentence == f"      restart server llama-chat: {UNIT} has another text"
    assert rest[:2] == [f"    --- {UNIT} (there)", f"    +++ {UNIT} (planned)"]
    assert "    -old" in rest
    assert KEY not in said.output
    rig = the_rig(herd(fleet, "diff", "--json").stdout)
    (change,) = rig["changes"]
    assert {key: change[key] for key in ("action", "kind", "name")} == {
        "action": "restart",
        "kind": "server",
        "name": "llama-chat",
    }
    assert change["reasons"] == [f"{UNIT} has another text"]
    assert change["away"]["measured"] is False
    assert "-old" in rig["diffs"][UNIT]


@pytest.mark.parametrize("command", ["plan", "diff"])
def test_colours_and_other_characters_are_for_terminals_that_have_them(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    answers(monkeypatch, another_unit(fleet))
    words = ["-i", str(fleet), command]
    row = "chat  llama-chat.service has another text, "
    assert f"  \x1b[33m±\x1b[0m {row}" in CliRunner().invoke(main, words, color=True).stdout
    assert f"  ± {row}" in CliRunner().invoke(main, words).stdout
    assert f"  ± {row}" in CliRunner(env={"NO_COLOR": "1"}).invoke(main, words, color=True).stdout
    assert f"  +/- {row}" in CliRunner(charset="ascii").invoke(main, words).stdout


def test_what_has_moved_is_said(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the plan that the last run left."""
    answers(monkeypatch, another_unit(fleet))
    ((_, plan),) = plans(fleet).values()
    packed = base64.b64encode(gzip.compress(plan.model_dump_json().encode())).decode()
    stored = Stored((StoredRelease(7, "", packed),))
    monkeypatch.setattr(history, "query_verb", lambda *_: stored)
    monkeypatch.setattr(diff, "query_verb", lambda *_: TextsFound({}))
    said = herd(fleet, "plan", "-v").stdout
    assert f"\n      restart server llama-chat: {UNIT} has another text (drift)\n" in said
    short = herd(fleet, "plan").stdout.splitlines()
    assert len(short) == 2
    assert short[1].endswith("has another text, downtime about 2 s (by the size of its model), drift")
    rig = the_rig(herd(fleet, "diff", "--json").stdout)
    assert (rig["changes"][0]["drift"], rig["changes"][0]["inventory"]) == ([f"{UNIT} has another text"], [])


def test_what_stands_in_the_way_is_an_error(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, [line.replace("debian-13", "fedora-40") for line in as_planned(fleet)])
    said = herd(fleet, "diff")
    assert said.exit_code == 1
    assert "fedora-40" in said.stderr
    assert "help: " in said.stderr


def test_a_host_that_cannot_be_asked_is_an_error(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> list[str]:
        raise RemoteError("nothing listens there", "start it")

    monkeypatch.setattr(preview, "query_host", refuse)
    said = herd(fleet, "diff", "--json")
    assert said.exit_code == 1
    assert the_rig(said.stdout)["unreached"] == "nothing listens there\n  help: start it"


def test_one_that_is_lost_before_its_texts_came_is_an_error(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: object) -> TextsFound:
        raise RemoteError("the connection was lost", "look whether it is up")

    answers(monkeypatch, another_unit(fleet))
    monkeypatch.setattr(diff, "query_verb", lose)
    said = herd(fleet, "plan", "-v")
    assert said.exit_code == 1
    assert "box: 1 change" in said.stdout
    assert "the connection was lost" in said.stderr


def test_an_inventory_that_cannot_be_used_is_an_error_too(fleet: Path) -> None:
    (fleet / "box.yaml").write_text("rig: 1\n")
    assert herd(fleet, "diff").exit_code == 1


ON_A_TERMINAL = """
import sys
from llamaherd.cli.herd import main
from llamaherd.deploy import run
from llamaherd.pipeline import preview
from tests.support.ours import queried
world = open(sys.argv[2]).read().split("\\n")
preview.query_host = lambda *_: queried(world)
run.deploy_on = lambda *_, **__: print("it was begun") or run.RunResult(())
main(["-i", sys.argv[1], "up", *sys.argv[3:]])
"""


@pytest.mark.parametrize(
    ("options", "typed", "code", "begun"),
    [((), b"n\n", 1, False), ((), b"\n", 1, False), ((), b"y\n", 0, True), (("--yes",), b"", 0, True)],
)
def test_on_a_terminal_a_restart_is_asked_for(
    fleet: Path, options: tuple[str, ...], typed: bytes, code: int, begun: bool
) -> None:
    (fleet / "world").write_text("\n".join(another_unit(fleet)))
    terminal, its = pty.openpty()
    os.write(terminal, typed)
    said = subprocess.run(
        [sys.executable, "-c", ON_A_TERMINAL, fleet, fleet / "world", *options],
        stdin=its,
        stderr=its,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(its)
    shown = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    assert said.returncode == code, shown
    assert "± chat  llama-chat.service has another text" in said.stdout
    assert ("it was begun" in said.stdout) == begun
    assert ("Continue?" in shown) == (not options)
    assert ("nothing was changed" in shown) == (not begun)


def test_without_a_terminal_nobody_is_asked(fleet: Path) -> None:
    (fleet / "world").write_text("\n".join(another_unit(fleet)))
    said = subprocess.run(
        [sys.executable, "-c", ON_A_TERMINAL, fleet, fleet / "world"],
        input="",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "it was begun" in said.stdout
    assert "Continue?" not in said.stdout + said.stderr
