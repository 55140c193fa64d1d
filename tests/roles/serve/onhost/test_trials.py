"""Servers for trial on a played host: their order, their room, their commands, and that the declared ones return."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature

import pytest

from llamaherd.layout import TRIALS_GUARD, TRIALS_RUN
from llamaherd.onhost.document import Secret, parse_document
from llamaherd.onhost.files import WrittenFile
from llamaherd.onhost.servers import NeededGpu, RestoreServersInput, StoppedServer, TrialServer, TrialsInput
from llamaherd.onhost.system import Ended, FailedError, HeldError
from llamaherd.onhost.verbs import perform
from roles.serve.onhost import trials
from roles.serve.onhost.model import CandidateInput, Room
from roles.serve.onhost.tools import TOOLS
from roles.serve.onhost.trials import restore
from roles.serve.onhost.trials import run as run_trials
from tests.support.played_host import File, Running
from tests.support.service_host import ServiceHost

pytestmark = pytest.mark.usefixtures("starts_processes")  # a thread waits

UNIT = "/run/systemd/system/llama-chat-A.service"
RECORD = "/run/llamaherd/started/llama-chat-A"
HOSTILE = ("$(id)", "`id`; 'a' \"b\"", "a\nb", "-h", "..")
GIVEN = TrialsInput(
    name="llama-chat",
    holder="tom on desk",
    servers=(TrialServer("A", "llama-chat-A"),),
    stops=(StoppedServer("llama-chat", "/var/lib/llamaherd/kept/llama-chat"),),
    drain_seconds=60,
    longest=2100,
    patience=150,
    files=(WrittenFile(UNIT, Secret("LLAMAHERD_SPEC=a1\n"), 0o644, "root"),),
    leftovers=(UNIT, RECORD),
)
BESIDE = replace(GIVEN, stops=())


@dataclass
class Trials(ServiceHost):
    """A host on which a server serves, with a guard that restores it."""

    guarded: bool = False
    lacking: str = ""
    asked: list[object] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    printed: str = "one\n\tline\nCUDA error: out of memory\n"
    reported: threading.Condition = field(default_factory=threading.Condition)

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Play the guard and the journal."""
        ended = super().run(argv, seconds=seconds, text=text, environment=environment)
        if argv[0] == "systemd-run" and ended.ok:
            self.guarded = True
        elif [*argv] == ["systemctl", "stop", TRIALS_GUARD]:
            self.restore()
        elif argv[:2] == ["systemctl", "show"] and argv[-1] in self.results:
            return Ended(0, f"{ended.out}Result={self.results[argv[-1]]}\n")
        elif argv[:2] == ["journalctl", "-q"]:
            return Ended(0, self.printed)
        return ended

    def report(self, line: str) -> None:
        """Note a line, and wake a controller that waits for it."""
        with self.reported:
            super().report(line)
            self.reported.notify_all()

    def restore(self) -> None:
        """Do what systemd does once the guard has ended."""
        if self.guarded:
            self.guarded = False
            perform(parse_document(self.files[f"{TRIALS_RUN}/restore.json"].text.encode()), self)
            self.remove(str(TRIALS_RUN))

    def after(self, word: str, line: str) -> Callable[[], str]:
        """Return a controller that sends a line after a response that begins with a word."""

        def wait() -> str:
            with self.reported:
                assert self.reported.wait_for(lambda: any(each.startswith(word) for each in self.log), 20), self.log
            return line

        return wait

    def lacks_gpus(self, system: object, needs: Sequence[NeededGpu], pids: Sequence[str]) -> str:
        """Note what GPUs must have."""
        del system
        self.asked.append((tuple(needs), tuple(pids)))
        return self.lacking

    def lacks_ram(self, system: object, need: int, own: Sequence[str], others: Sequence[str]) -> str:
        """Note what RAM must have."""
        del system
        self.asked.append((need, tuple(own), tuple(others)))
        return self.lacking

    def lacks_room(self, system: object, room: Room, candidate: CandidateInput | None) -> str:
        """Note what must be free."""
        del system
        self.asked.append((room, candidate))
        return self.lacking

    def let_in(self, system: object) -> None:
        """Note that connections are accepted."""
        self.done.append(["let in"])
        super().let_in(system)


@pytest.fixture
def host() -> Trials:
    """Return a host on which the declared server serves."""
    found = Trials({})
    found.files[found.program] = File("the program")
    found.files["/etc/systemd/system/llama-chat.service"] = File("LLAMAHERD_SPEC=d1\n")
    found.run(["systemctl", "daemon-reload"])
    found.units["llama-chat"] = Running("active", "d1", 7)
    found.done.clear()
    return found


def restored(host: Trials) -> bool:
    """Return whether the declared server runs, and nothing of a trial is left."""
    left = [path for path in host.files if path.startswith("/run/")]
    trials = [each for name, each in host.units.items() if name != "llama-chat" and each.state == "active"]
    return (host.running("llama-chat"), left, trials, host.guarded, host.held, host.holders) == (
        *("d1", [], [], False, set(), {}),
    )


def test_a_trial_in_place_of_the_declared_server(host: Trials) -> None:
    states: list[str] = []

    def state() -> str:
        states.append(host.units["llama-chat"].state + " " + host.units["llama-chat-A"].state)
        return "stop"

    host.lines = iter(["go", "start A", host.after("ready", "nothing"), state, "start B", "start A; id", "unit eA=="])
    run_trials(GIVEN, host, host)
    ready, back = host.log[2], host.log[-1]
    assert host.log == ["mine", "armed", ready, "stopped", back]
    assert ready.startswith("ready A ")
    assert ready.split()[3] == str(host.units["llama-chat-A"].run)
    assert back.startswith("back ")
    assert states == ["inactive active"]
    assert restored(host)


def test_the_order_of_what_is_done(host: Trials) -> None:
    host.lines = iter(["go"])
    run_trials(GIVEN, host, host)
    guard = next(at for at, each in enumerate(host.done) if each[0] == "systemd-run")
    steps = [["systemctl", "stop", TRIALS_GUARD], ["write", f"{TRIALS_RUN}/restore.json"], host.done[guard]]
    steps += [["write", UNIT], ["systemctl", "daemon-reload"], ["systemctl", "stop", "llama-chat.service"], ["let in"]]
    places = [host.done.index(each) for each in steps]
    assert places == sorted(places)
    assert host.done[guard][5:] == [
        *("-p", "Type=exec", "-p", "RuntimeMaxSec=2100", "-p", "TimeoutStopSec=150"),
        *("-p", f"ExecStopPost=/usr/bin/python3 -I {TRIALS_RUN}/program.pyz {TRIALS_RUN}/restore.json"),
        *("-p", f"ExecStopPost=/bin/rm -rf {TRIALS_RUN}", "flock", "/run/llamaherd/locks/measure", "true"),
    ]
    assert host.files == {path: file for path, file in host.files.items() if not path.startswith("/run/")}


def test_a_trial_side_by_side_stops_nothing(host: Trials) -> None:
    host.lines = iter(["start A", host.after("ready", "stop")])
    run_trials(BESIDE, host, host)
    assert host.log[0] == "armed"
    assert not host.has_done("stop", "llama-chat.service")
    assert restored(host)


def test_a_controller_that_does_not_go_on_stops_nothing(host: Trials) -> None:
    for sent in ([], ["no"]):
        host.lines = iter(sent)
        with pytest.raises(FailedError, match="ended the measurement before it began"):
            run_trials(GIVEN, host, host)
        assert not host.has_done("stop", "llama-chat.service")
        assert restored(host)


def test_what_ends_it_restores_the_declared_server(host: Trials) -> None:
    def end() -> str:
        assert host.units["llama-chat"].state == "inactive"
        raise SystemExit(1)

    host.lines = iter(["go", "start A", host.after("ready", "x"), end])
    with pytest.raises(SystemExit):
        run_trials(GIVEN, host, host)
    assert restored(host)


def test_a_connection_that_ends_while_a_trial_starts(host: Trials) -> None:
    host.lines = iter(["go", "start A"])
    run_trials(GIVEN, host, host)
    assert host.log[-1].startswith("back ")
    assert host.running("llama-chat") == "d1"


def test_a_server_that_did_not_serve_is_not_started(host: Trials) -> None:
    host.units["llama-chat"].state = "inactive"
    host.lines = iter(["go"])
    run_trials(GIVEN, host, host)
    assert host.units["llama-chat"].state == "inactive"
    assert host.log[-1].startswith("back ")


def test_a_server_that_does_not_serve_again_is_reported(host: Trials) -> None:
    host.lines = iter(["go"])
    host.fates["d1"] = "does not load"
    run_trials(GIVEN, host, host)
    assert host.log[-1] == "away llama-chat.service"


def test_an_unknown_state_changes_nothing(host: Trials) -> None:
    host.ends["systemctl show"] = Ended(1)
    with pytest.raises(FailedError, match="systemd does not report whether llama-chat runs; nothing was changed"):
        run_trials(GIVEN, host, host)
    assert not host.has_done("write", UNIT)


@pytest.mark.parametrize(("result", "why"), [("oom-kill", "the system ended it for lack of RAM; "), ("exit-code", "")])
def test_a_trial_that_does_not_start(host: Trials, result: str, why: str) -> None:
    host.fates["a1"] = "does not load"
    host.results["llama-chat-A.service"] = result
    host.lines = iter(["go", "start A", host.after("failed", "stop")])
    run_trials(GIVEN, host, host)
    assert f"failed A {why}one line CUDA error: out of memory" in host.log
    assert restored(host)


def test_the_reason_of_a_failure_is_short(host: Trials) -> None:
    host.fates["a1"] = "does not load"
    host.printed = "x" * 5000
    host.lines = iter(["go", "start A", host.after("failed", "stop")])
    run_trials(GIVEN, host, host)
    assert f"failed A {'x' * 300}" in host.log


def test_another_measurement(host: Trials) -> None:
    host.holders["measure"] = "ann since now"
    with pytest.raises(HeldError, match="another measurement runs on this host, by ann since now"):
        run_trials(GIVEN, host, host)
    assert not host.has_done("systemd-run")


GPU = TrialServer("A", "llama-chat-A", 4, (NeededGpu("card", "GPU-1", 9),))


@pytest.mark.parametrize(
    ("given", "server", "message", "fix"),
    [
        (GIVEN, GPU, "llama-chat is left as it is: GPU card has 1 GB", "end other programs on that GPU"),
        (GIVEN, replace(GPU, gpus=()), "llama-chat-A is not started: GPU card has 1 GB", "end what else holds RAM"),
        (
            BESIDE,
            GPU,
            "llama-chat-A has no room side by side with the running servers: GPU card has 1 GB",
            "without `--beside`",
        ),
    ],
)
def test_memory_that_lacks_is_reported_before_anything_is_changed(
    host: Trials, given: TrialsInput, server: TrialServer, message: str, fix: str
) -> None:
    host.lacking = "GPU card has 1 GB"
    with pytest.raises(FailedError, match=message) as raised:
        run_trials(replace(given, servers=(server,)), host, host)
    assert raised.value.fix.startswith(fix)
    assert not host.has_done("systemd-run")
    assert restored(host)


def test_what_memory_is_required(host: Trials) -> None:
    host.lines = iter(["go"])
    need = NeededGpu("card", "GPU-1", 9)
    run_trials(replace(GIVEN, servers=(GPU,)), host, host)
    assert host.asked == [((need,), ("7", "7")), (4, ("7",), ())]
    host.asked.clear()
    host.lines = iter([])
    run_trials(replace(BESIDE, servers=(GPU,)), host, host)
    assert host.asked == [(Room(4, (need,)), None)]


def test_memory_that_is_not_certain_is_not_required(host: Trials) -> None:
    host.lines = iter(["go"])
    run_trials(GIVEN, host, host)
    assert host.asked == []


def test_a_disk_without_room_restores_everything(host: Trials) -> None:
    host.full = UNIT
    with pytest.raises(FailedError, match="cannot write"):
        run_trials(GIVEN, host, host)
    assert restored(host)


def test_systemd_that_reads_no_units_restores_everything(host: Trials) -> None:
    host.ends["systemctl daemon-reload"] = Ended(1)
    with pytest.raises(FailedError, match="systemd does not read the units for trial"):
        run_trials(GIVEN, host, host)
    assert not host.has_done("stop", "llama-chat.service")


def test_a_guard_that_does_not_start_changes_nothing(host: Trials) -> None:
    host.ends["systemd-run"] = Ended(1)
    with pytest.raises(FailedError, match="nothing was changed"):
        run_trials(GIVEN, host, host)
    assert not host.has_done("write", UNIT)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("text", ["[Service]\n", "ä", *HOSTILE])
def test_another_unit_in_its_place(host: Trials, text: str) -> None:
    placed: list[str] = []

    def look() -> str:
        placed.append(host.files[UNIT].text)
        return "x"

    host.lines = iter(["go", f"unit {encoded(text)}", look])
    run_trials(replace(GIVEN, placed=UNIT), host, host)
    assert "placed" in host.log
    assert placed == [text]
    assert restored(host)


@pytest.mark.parametrize("line", ["unit %%%", "unit 'eA==", "unit ä", "unit eA"])
def test_a_unit_that_is_not_base64(host: Trials, line: str) -> None:
    host.lines = iter(["go", line])
    run_trials(replace(GIVEN, placed=UNIT), host, host)
    assert "failed the unit of a candidate cannot be written" in host.log


JUDGES = replace(GIVEN, placed=UNIT, scratch="/var/tmp")


@pytest.fixture
def judging(host: Trials) -> Trials:
    """Return a host with room for what a program keeps."""
    host.folders.add("/var/tmp")
    return host


def test_a_program_that_runs_to_its_end(judging: Trials) -> None:
    judging.printed = "a\n'b' $(id)\n"
    judging.lines = iter(["go", "judge 10", judging.after("judged", "stop")])
    run_trials(JUDGES, judging, judging)
    assert f"judged {encoded(judging.printed)}" in judging.log
    assert judging.index("journalctl", "--sync") < judging.index("journalctl", "200")
    assert restored(judging)


def test_of_its_output_the_end_is_returned(judging: Trials) -> None:
    judging.printed = "x" * 40_000 + "ä"
    judging.lines = iter(["go", "judge 10", judging.after("judged", "stop")])
    run_trials(JUDGES, judging, judging)
    (line,) = (each for each in judging.log if each.startswith("judged "))
    assert base64.b64decode(line.removeprefix("judged ")) == judging.printed.encode()[-30_000:]


@pytest.mark.parametrize(
    ("result", "why"),
    [("timeout", "it took too long; "), ("oom-kill", "the system ended it for lack of RAM; "), ("exit-code", "")],
)
def test_a_program_that_fails(judging: Trials, result: str, why: str) -> None:
    judging.fates["a1"] = "does not load"
    judging.results["llama-chat-A.service"] = result
    judging.lines = iter(["go", "judge 10", judging.after("failed", "stop")])
    run_trials(JUDGES, judging, judging)
    assert f"failed - {why}one line CUDA error: out of memory" in judging.log


@pytest.mark.parametrize(("room", "free"), [(str(1 << 50), 1 << 40), ("1", 0)])
def test_a_program_without_room(judging: Trials, room: str, free: int) -> None:
    if not free:
        judging.folders.discard("/var/tmp")
    judging.lines = iter(["go", f"judge {room}", judging.after("failed", "stop")])
    run_trials(JUDGES, judging, judging)
    assert f"failed - there is no room in /var/tmp: {room} bytes are needed, {free} are free" in judging.log
    assert not judging.has_done("start", "llama-chat-A.service")


@pytest.mark.parametrize("line", ["judge", "judge x", "judge ٣", "judge -1", "stop now", "start", *HOSTILE])
def test_no_other_line_is_a_command(judging: Trials, line: str) -> None:
    judging.lines = iter(["go", line])
    run_trials(JUDGES, judging, judging)
    assert judging.log[:2] == ["mine", "armed"]
    assert judging.log[2].startswith("back ")


def test_what_cannot_be_removed_ends_no_restore(host: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(path: str) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    host.units["llama-chat"].state = "inactive"
    monkeypatch.setattr(host, "remove", remove)
    restore(RestoreServersInput(("llama-chat-A.service",), (UNIT,), ("llama-chat.service",)), host)
    assert host.log == [f"{UNIT} cannot be removed: Operation not permitted"]
    assert host.running("llama-chat") == "d1"


def test_it_runs_with_the_tools_of_a_real_host() -> None:
    assert signature(trials.run).parameters["tools"].default is TOOLS
