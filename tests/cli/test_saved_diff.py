"""`herd plan --save` and `herd up --plan`: what was shown is done, if it is still so, and nothing else."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.envelope import envelope
from tests.support.ssh_hosts import HERD, PROGRAM, RIGS, Hosts, three_hosts

OTHER = "/opt/llamaherd/libexec/wait-healthy"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Hosts:
    """Three hosts with something to do, which was saved; the log of their inspection is removed."""
    hosts = three_hosts(tmp_path_factory.mktemp("saved"))
    ended = hosts.herd("diff", "--save", "monday.json")
    assert ended.returncode == 2, ended.stderr
    assert "saved to monday.json: `herd up --plan monday.json` applies it" in ended.stderr
    (hosts.folder / "log").unlink()
    return hosts


@pytest.fixture
def hosts(saved: Hosts, tmp_path: Path) -> Hosts:
    """A copy of these hosts, with their saved diff."""
    return Hosts(shutil.copytree(saved.folder, tmp_path / "hosts"))


def changed(hosts: Hosts) -> set[str]:
    return set(hosts.turns)


def test_what_was_shown_is_in_the_file(hosts: Hosts) -> None:
    file = hosts.folder / "monday.json"
    assert file.stat().st_mode & 0o777 == 0o600
    saved, shown = json.loads(file.read_text()), envelope(hosts.herd("diff", "--json").stdout)
    assert [re.fullmatch("[0-9a-f]{64}", rig.pop("plan")) is not None for rig in saved["rigs"]] == [True] * 3
    for rig in shown["rigs"]:
        assert [each.pop("values") for each in rig["changes"]] == [[]]
    assert saved["rigs"] == shown["rigs"]
    assert [each.name for each in hosts.folder.iterdir() if "part" in each.name] == []


def test_what_was_shown_is_done(hosts: Hosts) -> None:
    ended = hosts.herd("up", "--plan", "monday.json")
    assert ended.returncode == 0, ended.stderr
    assert changed(hosts) == set(RIGS)


def test_only_its_own_rigs_are_changed(hosts: Hosts) -> None:
    assert hosts.herd("diff", "six", "--save", "six.json").returncode == 2
    assert hosts.herd("up", "--plan", "six.json").returncode == 0
    assert changed(hosts) == {"six"}


def test_in_waves(hosts: Hosts) -> None:
    ended = hosts.herd("up", "--plan", "monday.json", "--canary", "six", "--waves", "1")
    assert ended.returncode == 0, ended.stderr
    assert hosts.turns == ["six", "attic", "duo"]
    # It is done: to do it once more is another thing.
    again = hosts.herd("up", "--plan", "monday.json")
    assert again.returncode == 1
    assert f"six: gone since monday.json: update programs {PROGRAM}: {PROGRAM} is not there\n" in again.stderr


def on_a_terminal(hosts: Hosts, *words: str) -> tuple[int, str]:
    """How `herd up` ends there, and what it says, where `n` is typed."""
    terminal, its = pty.openpty()
    os.write(terminal, b"n\n")
    with subprocess.Popen(
        [HERD, "-i", "fleet", "up", *words],
        cwd=hosts.folder,
        env=os.environ | {"PATH": f"{hosts.folder}:{os.environ['PATH']}", "PYINFRA_PROGRESS": "off"},
        stdin=its,
        stdout=its,
        stderr=its,
    ) as running:
        os.close(its)
        said = b""
        with suppress(OSError):  # nobody holds the other end any more
            while piece := os.read(terminal, 1 << 16):
                said += piece
    os.close(terminal)
    return running.returncode, said.decode()


def test_nobody_is_asked_on_a_terminal(hosts: Hosts) -> None:
    """As something is removed, `herd up` alone asks."""
    for name in RIGS:
        hosts.become(name, "before", [*hosts.planned(name), "unit\tllama-old\tactive\tenabled\tno\t\t\t\t"])
    assert hosts.herd("diff", "--save", "monday.json").returncode == 2
    code, said = on_a_terminal(hosts)
    assert (code, "Continue?" in said, changed(hosts)) == (1, True, set())
    code, said = on_a_terminal(hosts, "--plan", "monday.json")
    assert (code, "Continue?" in said, changed(hosts)) == (0, False, set(RIGS))
    assert "old  it is not declared" in said


def test_a_host_that_has_moved(hosts: Hosts) -> None:
    hosts.lacks("duo", PROGRAM, OTHER)
    hosts.mark("six", "done")
    ended = hosts.herd("up", "--plan", "monday.json")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[1:] == [
        f"duo: new since monday.json: update programs {OTHER}, {PROGRAM}: {OTHER} is not there; {PROGRAM} is not there",
        f"duo: gone since monday.json: update programs {PROGRAM}: {PROGRAM} is not there",
        f"six: gone since monday.json: update programs {PROGRAM}: {PROGRAM} is not there",
        "nothing was changed: monday.json is out of date",
        "  help: run `herd plan attic duo six --save monday.json` to review and save the current changes",
    ]
    assert changed(hosts) == set()


def test_an_inventory_that_has_moved(hosts: Hosts) -> None:
    hosts.rig("six").write_text(hosts.rig("six").read_text().replace("4GB", "8GB"))
    ended = hosts.herd("up", "--plan", "monday.json")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[1] == "six: the plan differs from the plan in monday.json"
    assert changed(hosts) == set()


def test_a_rig_that_is_another_host_now(hosts: Hosts) -> None:
    hosts.rig("six").write_text(hosts.rig("six").read_text().replace(str(RIGS["six"]), str(RIGS["duo"])))
    ended = hosts.herd("up", "--plan", "monday.json")
    assert ended.returncode == 1
    assert "six: the plan differs from the plan in monday.json" in ended.stderr


def test_another_version_is_named_where_the_plan_is_another(hosts: Hosts) -> None:
    file = hosts.folder / "monday.json"
    saved = json.loads(file.read_text()) | {"llamaherd": "0.0.9"}
    file.write_text(json.dumps(saved))
    assert hosts.herd("up", "--plan", "monday.json").returncode == 0
    saved["rigs"][0]["plan"] = "0" * 64
    file.write_text(json.dumps(saved))
    assert (
        "from the plan in monday.json, which llamaherd 0.0.9 wrote; this is "
        in hosts.herd("up", "--plan", "monday.json").stderr
    )


def test_a_host_that_cannot_be_asked(hosts: Hosts) -> None:
    """Of one that was as planned it must be known, too, that it still is."""
    hosts.mark("six", "done")
    assert hosts.herd("diff", "--save", "monday.json").returncode == 2
    hosts.mark("six", "gone")
    ended = hosts.herd("up", "--plan", "monday.json")
    assert ended.returncode == 1
    assert "six: nothing listens for SSH at 127.0.0.1 port 2303" in ended.stderr
    assert "since monday.json" not in ended.stderr
    assert "nothing was changed" in ended.stderr
    assert changed(hosts) == set()


def test_a_rig_that_is_declared_no_more(hosts: Hosts) -> None:
    hosts.rig("six").unlink()
    ended = hosts.herd("up", "--plan", "monday.json")
    assert ended.returncode == 2
    assert "LH007: there is no rig `six`" in ended.stderr
    assert hosts.log == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("six", "--plan", "monday.json"), "monday.json contains the rigs to change; leave out six, or --plan"),
        (("--retry", "--plan", "monday.json"), "monday.json was saved without --retry"),
        (("--canary", "sixx", "--plan", "monday.json"), "none of the rigs in monday.json; did you mean `six`?"),
        (("--plan", "nothing.json"), "cannot read nothing.json: No such file or directory\n  help: "),
        (("--plan", "fleet"), "cannot read fleet: it is a folder, and no file\n  help: "),
        (("--plan", "fleet/six.yaml"), "fleet/six.yaml is no saved diff\n  help: "),
        (("--plan", "/dev/zero"), "cannot read /dev/zero: it is a device, and no file\n  help: "),
    ],
)
def test_what_makes_no_sense_touches_no_host(hosts: Hosts, words: tuple[str, ...], said: str) -> None:
    ended = hosts.herd("up", *words)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert hosts.log == []


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text[: len(text) // 2], "it ends in the middle\n  help: save it again: `herd plan --save "),
        (lambda text: text.replace('"format": 1', '"format": 3'), "saved diff of format 3, and this llamaherd, "),
        (lambda text: text.replace('"action": "update"', '"action": "destroy"'), "`rigs.0.changes.0.action`: "),
        (lambda text: text + " " * (8 << 20), "it is larger than 8.4 MB"),
        (lambda text: text.replace("attic", "\\u001b[2Jattic"), "there is no rig"),
    ],
)
def test_a_file_that_is_spoilt(hosts: Hosts, spoil: Callable[[str], str], said: str) -> None:
    file = hosts.folder / "monday.json"
    file.write_text(spoil(file.read_text()))
    ended = hosts.herd("up", "--plan", "monday.json")
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "\x1b[2J" not in ended.stderr
    assert hosts.log == []


def test_what_holds_something_else_is_not_overwritten(hosts: Hosts) -> None:
    before = hosts.rig("six").read_text()
    ended = hosts.herd("diff", "--save", "fleet/six.yaml")
    assert ended.returncode == 1
    assert "fleet/six.yaml exists and is not a saved diff\n  help: " in ended.stderr
    assert hosts.rig("six").read_text() == before
    ended = hosts.herd("diff", "--save", "nowhere/monday.json")
    assert ended.returncode == 1
    assert "cannot write nowhere/monday.json: No such file or directory\n  help: " in ended.stderr


def test_saving_again_closes_a_file_that_was_open(hosts: Hosts) -> None:
    file = hosts.folder / "monday.json"
    file.chmod(0o644)
    (hosts.folder / "link.json").symlink_to(file)
    assert hosts.herd("diff", "six", "--json", "--save", "link.json").returncode == 2
    assert (hosts.folder / "link.json").is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600
    assert [rig["rig"] for rig in json.loads(file.read_text())["rigs"]] == ["six"]
