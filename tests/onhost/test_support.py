"""The last log lines of a host: bounded, and without what has none."""

from __future__ import annotations

from llamaherd.onhost.doctor import MOST_LOG, MOST_LOGS, LogsInput, read_logs
from llamaherd.onhost.system import Ended
from tests.support.recording import RecordingHost

JOURNAL = "journalctl --no-pager --no-hostname -o short-iso -n 300"


def test_each_server_has_a_log_of_its_own() -> None:
    ends = {
        f"{JOURNAL} -u llama-chat.service": Ended(0, "it loads\n"),
        f"{JOURNAL} -u llama-idle.service": Ended(0, "-- No entries --\n"),
        f"{JOURNAL} -u llamaherd-*": Ended(0, "a build\n"),
        f"{JOURNAL} -k": Ended(1, "", "no match\n"),
        "docker logs --timestamps --tail 300 llama-vllm": Ended(0, "out\n", "err\n"),
        "docker logs --timestamps --tail 300 llama-gone": Ended(1, "", "no such container\n"),
    }
    host = RecordingHost({}, ends=ends)
    found = read_logs(LogsInput(("llama-chat", "llama-idle"), ("llama-vllm", "llama-gone")), host)
    assert found.texts == {"llama-chat": "it loads\n", "llama-vllm": "out\nerr\n", "llamaherd": "a build\n"}
    assert found.hostname


def test_logs_are_bounded_and_their_end_counts() -> None:
    host = RecordingHost({}, ends={"journalctl": Ended(0, "x" * MOST_LOG + "end")})
    found = read_logs(LogsInput(tuple(f"llama-{number}" for number in range(100))), host)
    assert all(len(text) <= MOST_LOG for text in found.texts.values())
    assert found.texts["llama-0"].endswith("end")
    assert sum(map(len, found.texts.values())) == MOST_LOGS


def test_a_log_begins_with_a_whole_line() -> None:
    lines = "a key: canary-0123456789\n" + "x" * (MOST_LOG - 7) + "\n"
    host = RecordingHost({}, ends={"journalctl": Ended(0, lines)})
    assert "6789" not in read_logs(LogsInput(("llama-chat",)), host).texts["llama-chat"]
