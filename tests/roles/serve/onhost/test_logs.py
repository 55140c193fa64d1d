"""The log of a server: which program prints it, its times, what is searched, and the key that is hidden."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from llamaherd.onhost.server_control import LogsInput
from llamaherd.onhost.system import FailedError
from roles.serve.onhost.control import HIDDEN, MOST_CHARACTERS, show_log
from tests.support.played_host import File, PlayedHost

KEY = "0123456789abcdef"
UNIT = LogsInput("chat", "llama-chat", unit=True, lines=3)
CONTAINER = replace(UNIT, unit=False)
JOURNAL = """\
1795249315.000001 box systemd[1]: Started llama-chat.service - LLM server chat.
1795249316.500000 box llama-server[77]: main: loading model
1795249317.500000 box llama-server[77]: ggml_cuda: Out Of Memory: 3 MiB
    a second line of the same message
1795249318.000000 box llama-server[77]: request with 0123456789abcdef: ok
"""
DOCKER = """\
2026-11-21T08:21:55.123456789Z main: loading model
2026-11-21T08:21:56.100000000Z\x20
2026-99-21T08:21:56.100000000Z no such month
"""


@dataclass
class LoggingHost(PlayedHost):
    """A host with the log of one server."""

    text: str = JOURNAL
    printed_by: list[str] = field(default_factory=list)
    heard: bool = True

    def stream(self, argv: Sequence[str], *, seconds: float | None = None) -> Iterator[str]:
        """Print the log."""
        assert (seconds is None) == any(word in ("-f", "--follow") for word in argv)
        self.printed_by = [*argv]
        yield from self.text.splitlines()


def host(text: str = JOURNAL) -> LoggingHost:
    """Return a host with a unit and a container of one name, and their key."""
    places = ("/etc/systemd/system/llama-chat.service", "/etc/llamaherd/compose/chat/compose.yaml")
    files = {**{each: File("") for each in places}, "/etc/llamaherd/keys/chat": File(f"{KEY}\n")}
    return LoggingHost({}, files=files, text=text)


def log(given: LogsInput, text: str = JOURNAL) -> list[str]:
    """Return the lines of a log."""
    made = host(text)
    show_log(given, made)
    return [line for line in made.log if line]


def test_the_last_lines_of_a_unit_have_their_times() -> None:
    assert log(UNIT) == [
        "1795249317\tggml_cuda: Out Of Memory: 3 MiB",
        "\t    a second line of the same message",
        f"1795249318\trequest with {HIDDEN}: ok",
    ]
    assert log(replace(UNIT, lines=0)) == []
    assert log(replace(UNIT, lines=9))[0] == "1795249315\tStarted llama-chat.service - LLM server chat."


def test_the_lines_of_a_container_have_their_times() -> None:
    assert log(CONTAINER, DOCKER) == ["1795249315\tmain: loading model", "1795249316\t", "\tno such month"]


@pytest.mark.parametrize("given", [UNIT, CONTAINER])
def test_a_text_is_found_in_upper_and_lower_case(given: LogsInput) -> None:
    made = host()
    show_log(replace(given, grep="out of memory"), made)
    assert [line for line in made.log if "Out Of Memory" in line] == made.log[-1:] == made.log
    assert "100000" in made.printed_by, "more is searched than is printed"


@pytest.mark.parametrize("given", [UNIT, CONTAINER])
def test_a_log_that_is_followed_begins_with_its_last_lines(given: LogsInput) -> None:
    made = host()
    show_log(replace(given, follow=True, grep="model", since=60), made)
    assert [line for line in made.log if line] == [line for line in made.log if "loading model" in line]
    assert "3" in made.printed_by
    assert f"--since={'@' * given.unit}1795249255" in made.printed_by


def test_the_programs() -> None:
    made = host()
    show_log(UNIT, made)
    unit = "llama-chat.service"
    assert made.printed_by == ["journalctl", "-q", "--no-pager", "-o", "short-unix", "-u", unit, "-n", "3"]
    show_log(CONTAINER, made)
    assert made.printed_by == ["docker", "logs", "-t", "--tail", "3", "llama-chat"]


def test_a_long_line_is_cut_and_a_short_key_hides_no_word() -> None:
    made = host(f"1.0 box a[1]: {'model ' * 1000}")
    made.files["/etc/llamaherd/keys/chat"] = File("model\n")
    show_log(UNIT, made)
    (line,) = made.log
    assert len(line) == MOST_CHARACTERS + len("1\t")
    assert line.startswith("1\tmodel model")


@pytest.mark.parametrize("given", [UNIT, CONTAINER])
def test_a_host_without_the_server(given: LogsInput) -> None:
    with pytest.raises(FailedError, match="there is no llama-chat on this host") as error:
        show_log(given, LoggingHost({}))
    assert error.value.fix == "`herd up` creates it"


def test_a_container_that_was_removed() -> None:
    with pytest.raises(FailedError, match="Docker has no container llama-chat"):
        show_log(CONTAINER, host("Error response from daemon: No such container: llama-chat"))
