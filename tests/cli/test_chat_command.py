"""`herd chat`: a real sshd, a scripted server behind it, and a real terminal."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.cli.chat_session import target_and_prompt
from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Rig
from tests.bench.played import END, PLAIN, Part, Played, delta, event, last
from tests.support.envelope import envelope
from tests.support.rigs import changed, cpu_rig
from tests.support.ssh_hosts import HERD
from tests.support.sshd import running_sshd
from tests.support.terminal import Terminal

KEY = "sk-canary-chat-77aa"
TIMINGS = {"predicted_n": 42, "predicted_ms": 764.0}


def said(*texts: str, finish: str = "stop") -> list[Part]:
    return [(0, PLAIN), *((0.0, delta(text)) for text in texts), (0, last(finish, timings=TIMINGS) + END)]


HELLO = said("Hel", "lo\n")


@dataclass(frozen=True)
class Household:
    """A rig behind a real sshd, in an inventory."""

    folder: Path
    connect: dict[str, Any]

    def declare(self, port: int, changes: dict[str, Any] | None = None) -> None:
        """Declare a rig whose only server listens on this port."""
        rig = changed(cpu_rig(), {"instances/chat/port": port, "connect": dict(self.connect), **(changes or {})})
        rig["instances"].pop("drafter")
        (self.folder / "inventory").mkdir(exist_ok=True)
        (self.folder / "inventory/box.yaml").write_text(yaml.safe_dump(rig))

    @property
    def environment(self) -> dict[str, str]:
        """The environment of `herd`."""
        return os.environ | {"CHAT_KEY": KEY, "XDG_STATE_HOME": str(self.folder / "state"), "TERM": "xterm"}

    def herd(self, *words: str, piped: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run `herd chat` to its end."""
        done = subprocess.run(
            [HERD, "chat", *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL if piped is None else None,
            input=piped,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert KEY not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done


@pytest.fixture(scope="module")
def connect() -> Iterator[dict[str, Any]]:
    with running_sshd() as found:
        yield found.declared


@pytest.fixture
def household(tmp_path: Path, connect: dict[str, Any]) -> Household:
    return Household(tmp_path, connect)


@pytest.fixture
def server(household: Household) -> Iterator[Played]:
    """A server that streams `Hello`. A test may give it another script."""
    with Played(lambda _: HELLO) as played:
        household.declare(int(played.url.rsplit(":", 1)[1]))
        yield played


def test_one_response_comes_through_the_tunnel_with_the_key(household: Household, server: Played) -> None:
    done = household.herd("box/chat", "Who are you?", "--system", "Be brief.", "--max-tokens", "9")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello\n", "")
    ((path, headers, body),) = server.requests
    assert (path, headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert (body["model"], body["max_tokens"], body["stream"]) == ("gemma", 9, True)
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Who are you?"},
    ]


def test_text_from_a_pipe_follows_the_prompt(household: Household, server: Played) -> None:
    assert household.herd("Review this change.", piped="+ a line\n").stdout == "Hello\n"
    assert household.herd(piped="Only this.\n").stdout == "Hello\n"
    sent = [body["messages"] for _, _, body in server.requests]
    assert [each[0]["content"] for each in sent] == ["Review this change.\n\n+ a line", "Only this."]
    empty = household.herd(piped="")
    assert (empty.returncode, empty.stderr.splitlines()[0]) == (2, "error: there is no prompt")


def test_json_has_the_response_with_its_tokens_and_speed(household: Household, server: Played) -> None:
    server.script = lambda _: [
        (0, PLAIN),
        (0, event({"choices": [{"delta": {"reasoning_content": "hm"}}]})),
        *said("Hello", finish="length")[1:],
    ]
    value = envelope(household.herd("box/chat", "Hi there", "--json").stdout)
    (found,) = value["rigs"]
    assert (value["ok"], found.pop("first_token_ms") > 0) == (True, True)
    assert found == {
        "rig": "box",
        "instance": "chat",
        "model": "gemma",
        "text": "Hello",
        "reasoning": "hm",
        "finish": "length",
        "tokens": 42,
        "tokens_per_second": 54.97,
    }


def test_what_controls_a_terminal_is_not_printed(household: Household, server: Played) -> None:
    """Neither a sequence in two pieces, nor a carriage return, nor a change of direction. Spaces are kept."""
    server.script = lambda _: said("a\x1b", "[31mb\r\x9b", "c\u202ed", "\u202fe\ud83d\ude00\tf\n\x07")
    assert household.herd("Hi there").stdout == "a[31mbcd\u202fe\U0001f600\tf\n"


INVALID_KEY = b'{"error":{"message":"Invalid API Key","code":401}}'


def refusal(status: bytes, body: bytes) -> list[Part]:
    return [(0, b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body))]


def test_a_failure_is_printed_with_its_fix(household: Household, server: Played) -> None:
    server.script = lambda _: refusal(b"401 No", INVALID_KEY)
    done = household.herd("box/chat", "Hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "error: box/chat: the server returns 401: Invalid API Key",
        "  help: the host has another key: run `herd up box`",
    ]


def test_a_conversation_on_a_terminal(household: Household, server: Played) -> None:
    thought = event({"choices": [{"delta": {"reasoning_content": "hm"}}]})
    endless = [(0.0, PLAIN), (0.0, delta("Once")), (50.0, delta(" upon"))]
    refused = refusal(b"401 No", INVALID_KEY)
    scripts = iter([[(0, PLAIN), (0, thought), *HELLO[1:]], endless, refused, HELLO, HELLO])
    server.script = lambda _: next(scripts)
    terminal = Terminal(household.folder, household.environment, HERD, "chat")
    terminal.wait_for("box/chat, gemma")
    terminal.wait_for("> ")
    terminal.type("Hi\n")
    first = terminal.wait_for("> ")
    assert "\x1b[2mhm\x1b[0m" in first, "the reasoning is dimmed"
    assert "Hello\r\n42 tokens, 55 t/s" in first
    terminal.type("A story\n")
    terminal.wait_for("Once")
    terminal.type("\x03")
    assert "stopped" in terminal.wait_for("> ")
    terminal.type("No\n")
    terminal.wait_for("error: box/chat: the server returns 401")
    terminal.wait_for("> ")
    terminal.type("Go on\n")
    terminal.wait_for("42 tokens")
    terminal.wait_for("> ")
    terminal.wait_for_idle()
    terminal.type("\x03")  # at the prompt, it discards the line
    terminal.wait_for("> ")
    terminal.type("/clear\n")
    terminal.wait_for("new conversation")
    terminal.wait_for("> ")
    terminal.type("New\n")
    terminal.wait_for("42 tokens")
    terminal.wait_for("> ")
    assert terminal.end() == 0
    sent = [[each["content"] for each in body["messages"]] for _, _, body in server.requests]
    assert sent == [
        ["Hi"],
        ["Hi", "Hello\n", "A story"],
        ["Hi", "Hello\n", "A story", "Once", "No"],
        ["Hi", "Hello\n", "A story", "Once", "Go on"],
        ["New"],
    ]
    history = household.folder / "state/llamaherd/chat_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert [line for line in history.read_text().splitlines() if not line.startswith(("_", "#"))] == [
        "Hi",
        "A story",
        "No",
        "Go on",
        "/clear",
        "New",
    ]


def _rig(name: str, *instances: str) -> Rig:
    rig = cpu_rig()
    (one, *_) = rig["instances"].values()
    return Rig.model_validate(rig | {"rig": name, "instances": dict.fromkeys(instances, one)})


ATTIC = {"attic": _rig("attic", "chat")}
TWO = {**ATTIC, "duo": _rig("duo", "coder")}


@pytest.mark.parametrize(
    ("rigs", "words", "found"),
    [
        (ATTIC, (), ("attic/chat", None)),
        (ATTIC, ("What is it?",), ("attic/chat", "What is it?")),
        (TWO, ("coder",), ("duo/coder", None)),
        (TWO, ("duo", "Hello"), ("duo/coder", "Hello")),
    ],
)
def test_arguments_are_an_instance_a_prompt_or_both(
    rigs: dict[str, Rig], words: tuple[str, ...], found: tuple[str, str | None]
) -> None:
    target, prompt = target_and_prompt(rigs, words)
    assert (str(target), prompt) == found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("What is it?",), "the inventory has several servers"),
        (("codr", "Hello"), "there is no instance `codr`"),
        (("duo", "What", "is", "it?"), "there are 4 arguments"),
    ],
)
def test_arguments_that_name_no_server(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError) as raised:
        target_and_prompt(TWO, words)
    assert raised.value.message == message
