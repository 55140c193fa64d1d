"""`herd gateway status`, `herd drain` and `herd ready`: the real HAProxy, asked by the program of its host.

An `ssh` of the tests' own is the way there.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from click.shell_completion import ShellComplete

from llamaherd.cli.herd import main
from tests.support.envelope import the_rig
from tests.support.gateway import free_port, until
from tests.support.gateway_fleet import Fleet, standing


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    with standing(tmp_path, monkeypatch) as begun:
        yield begun


def test_status_shows_servers_and_users(fleet: Fleet) -> None:
    fleet.gateway.ask(model="small")
    done = fleet.herd("gateway", "status")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "box: 2 models, all servers are up",
        "  model  waiting  server   state  streams  answered",
        "  coder  0        box.one  up     0 of 2   0",
        "                  box.two  up     0 of 2   0",
        "  small  0        box.two  up     0 of 2   1",
        "",
        "  user  streams",
        "  tom   0 of 9",
    ]


def test_status_says_what_is_down_and_ends_with_one(fleet: Fleet) -> None:
    fleet.one.healthy = False
    until(lambda: fleet.states["box.one"] == "down")
    done = fleet.herd("gateway", "status")
    assert done.exit_code == 1
    assert "box: 2 models, box.one down" in done.stdout
    told = the_rig(fleet.herd("gateway", "status", "--json").stdout)
    assert (told["rig"], told["ok"]) == ("box", False)


def test_status_shows_a_paused_server_as_paused(fleet: Fleet) -> None:
    fleet.one.healthy = False
    until(lambda: fleet.states["box.one"] == "down")
    record = fleet.folder / "paused" / "llama-one" / "pause.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"server": "one", "since": 0, "until": 4000000000}')
    done = fleet.herd("gateway", "status")
    assert done.exit_code == 0, done.output
    assert "box: 2 models, box.one paused\n" in done.stdout
    assert "box.one  paused  0 of 2" in done.stdout


def test_status_says_what_is_declared_and_not_there_yet(fleet: Fleet) -> None:
    file = fleet.folder / "fleet" / "fleet.yaml"
    file.write_text(file.read_text() + "    last: {serve: [box.one]}\n")
    done = fleet.herd("gateway", "status")
    assert done.exit_code == 1
    assert "box.one is declared, but not at the gateway yet: run `herd up box`" in done.stderr


def test_a_server_that_is_not_there_yet_cannot_be_drained(fleet: Fleet) -> None:
    file = fleet.folder / "fleet" / "fleet.yaml"
    file.write_text(file.read_text() + "    last: {serve: [box.three]}\n")
    rig = yaml.safe_load((fleet.folder / "fleet" / "box.yaml").read_text())
    rig["instances"]["three"] = rig["instances"]["one"] | {"port": free_port()}
    (fleet.folder / "fleet" / "box.yaml").write_text(yaml.safe_dump(rig))
    done = fleet.herd("drain", "box.three")
    assert done.exit_code == 1
    assert "its gateway does not respond correctly: it has no such server" in done.stderr
    assert "`herd up` restores it" in done.stderr


def test_a_server_is_drained_and_made_ready_again(fleet: Fleet) -> None:
    done = fleet.herd("drain", "box.one")
    assert done.exit_code == 0, done.output
    assert done.stdout == "box: drained box.one; no streams left\n"
    assert "`herd ready box.one` ends this" in done.stderr
    assert fleet.states == {"box.one": "draining", "box.two": "up"}
    assert fleet.herd("gateway", "status").exit_code == 0, "nothing is down"
    done = fleet.herd("ready", "box.one")
    assert (done.exit_code, done.stdout) == (0, "box: box.one receives requests again\n")
    assert fleet.states == {"box.one": "up", "box.two": "up"}


def test_the_last_server_of_a_model_is_drained_only_where_that_is_meant(fleet: Fleet) -> None:
    done = fleet.herd("drain", "box.two")
    assert done.exit_code == 1
    assert "box.two is the only running server of small; requests would fail" in done.stderr
    assert "use `--anyway`" in done.stderr
    assert fleet.states["box.two"] == "up"
    assert fleet.herd("drain", "box.two", "--anyway").exit_code == 0
    assert fleet.states["box.two"] == "draining"
    done = fleet.herd("drain", "box.one")
    assert done.exit_code == 1
    assert "box.one is the only running server of coder; requests would go to small" in done.stderr


def test_streams_that_are_left_are_waited_for(fleet: Fleet) -> None:
    fleet.herd("drain", "box.two", "--anyway")
    fleet.one.hold.clear()
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(fleet.gateway.ask)
        until(lambda: fleet.one.busy == 1)
        fleet.herd("ready", "box.two")
        done = fleet.herd("drain", "box.one")
        assert (done.exit_code, done.stdout) == (0, "box: drained box.one; 1 stream left\n")
        done = fleet.herd("drain", "box.one", "--wait", "1s")
        assert (done.exit_code, done.stdout) == (1, "box: drained box.one; 1 stream left\n")
        fleet.one.hold.set()
        done = fleet.herd("drain", "box.one", "--wait", "30s")
        assert (done.exit_code, done.stdout) == (0, "box: drained box.one; no streams left\n")
        assert held.result().status == 200


@pytest.mark.parametrize("command", ["drain", "ready"])
def test_what_is_no_server_of_the_gateway_is_said(fleet: Fleet, command: str) -> None:
    done = fleet.herd(command, "box.on")
    assert done.exit_code == 2
    assert "the gateway has no server `box.on`" in done.stderr
    assert "did you mean `box.one`?" in done.stderr


def test_a_time_that_is_none_is_wrong_usage(fleet: Fleet) -> None:
    for wrong in ("soon", "2h"):
        assert fleet.herd("drain", "box.one", "--wait", wrong).exit_code == 2
    assert fleet.states["box.one"] == "up"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("exit 2", "its gateway is of another version of llamaherd"),
        ("printf 'no \\033[31msocket\\n' >&2; exit 1", r"its gateway does not respond correctly: no \x1b[31msocket"),
        ("exit 0", "its program has printed something else than its state"),
        ("printf 'left\\t\\033]0;a\\007\\n'", "its program has printed something else than its state"),
        ("head -c 20000000 /dev/zero | tr '\\0' a", "its program has printed something else than its state"),
    ],
)
def test_a_gateway_that_does_not_answer_fails_and_nothing_is_drained(fleet: Fleet, program: str, said: str) -> None:
    fleet.answers(program)
    for words in (("gateway", "status"), ("drain", "box.one"), ("ready", "box.one")):
        done = fleet.herd(*words)
        assert done.exit_code == 1
        assert said in done.stderr
        assert "\x1b" not in done.output
        assert "help:" in done.stderr
    told = the_rig(fleet.herd("gateway", "status", "--json").stdout)
    assert said in told["error"]
    assert fleet.gateway.talk("status").stdout.count("\tUP\t") == 3


def test_a_host_that_is_away_or_has_no_gateway_is_said(fleet: Fleet) -> None:
    (fleet.folder / "gateway-talk").unlink()
    done = fleet.herd("gateway", "status")
    assert (done.exit_code, "there is no gateway on its host" in done.stderr) == (1, True)
    (fleet.folder / "gone").touch()
    for words in (("gateway", "status"), ("drain", "box.one", "--anyway"), ("ready", "box.one")):
        done = fleet.herd(*words)
        assert done.exit_code == 1
        assert "nothing listens for SSH" in done.stderr
        assert "takes it back" not in done.stderr


def test_of_two_gateways_one_that_is_away_is_said_and_keeps_servers_as_they_are(fleet: Fleet) -> None:
    """It would send a drained server requests as soon as it is back."""
    rig = yaml.safe_load((fleet.folder / "fleet" / "box.yaml").read_text())
    for instance in rig["instances"].values():
        instance["listen"] = "0.0.0.0"
    (fleet.folder / "fleet" / "box.yaml").write_text(yaml.safe_dump(rig))
    porch = rig | {"rig": "porch", "connect": {"host": "porch", "port": 2202}}
    (fleet.folder / "fleet" / "porch.yaml").write_text(yaml.safe_dump(porch))
    file = fleet.folder / "fleet" / "fleet.yaml"
    file.write_text(file.read_text().replace("on: [box]", "on: [box, porch]"))
    done = fleet.herd("gateway", "status")
    assert done.exit_code == 1
    assert "box: 2 models, all servers are up" in done.stdout
    assert "porch: nothing listens for SSH" in done.stderr
    done = fleet.herd("drain", "box.one")
    assert done.exit_code == 1
    assert "box.one was not drained" in done.stderr
    assert "\tMAINT\t" not in fleet.gateway.talk("status").stdout
    done = fleet.herd("drain", "box.one", "--anyway")
    assert (done.exit_code, done.stdout) == (1, "box: drained box.one; no streams left\n")
    assert "\tMAINT\t" in fleet.gateway.talk("status").stdout
    done = fleet.herd("ready", "box.one")
    assert (done.exit_code, done.stdout) == (1, "box: box.one receives requests again\n")


def test_a_gateway_whose_rig_cannot_be_read_cannot_be_asked(fleet: Fleet) -> None:
    (fleet.folder / "fleet" / "box.yaml").write_text("rig: box\nengines: none\n")
    for words in (("gateway", "status"), ("drain", "box.one"), ("ready", "box.one")):
        done = fleet.herd(*words)
        assert done.exit_code == 2
        assert "help:" in done.stderr


def test_an_inventory_without_a_gateway_cannot_be_used(fleet: Fleet) -> None:
    (fleet.folder / "fleet" / "fleet.yaml").unlink()
    for words in (("gateway", "status"), ("drain", "box.one"), ("ready", "box.one")):
        done = fleet.herd(*words)
        assert done.exit_code == 2
        assert "there is no gateway in" in done.stderr


def test_a_shell_completes_servers(fleet: Fleet) -> None:
    words = ["-i", str(fleet.folder / "fleet"), "drain"]
    names = [each.value for each in ShellComplete(main, {}, "herd", "_HERD_COMPLETE").get_completions(words, "box.t")]
    assert names == ["box.two"]
