"""The screen of `herd up`: steps, live lines, failures in four lines, and what serves in the end."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from llamaherd.cli.run_screen import (
    RunScreen,
    failure_lines,
    live_lines,
    next_command,
    print_done,
    print_failures,
    served_lines,
)
from llamaherd.deploy.run import RunResult
from llamaherd.deploy.run_state import Failure
from llamaherd.inventory.schema import Rig
from llamaherd.layout import APT_LOG
from llamaherd.onhost.servers import FailedSwitch
from llamaherd.role.changes import Change, RunScript, SendFile
from tests.support.rigs import changed, cpu_rig, planned

HOW = RunScript("")
BUILD = Change("build", "engine", "llama.cpp-66ca571ae125", ("it is not built",), HOW)
RESTART = Change("restart", "server", "llama-chat", ("it is old",), HOW)
PACKAGES = Change("install", "packages", "cmake, git", ("not installed",), HOW)
RETRY = "change what the lines above name, or `herd up --retry` to try the same again"


class Clock:
    """Returns seconds that tests move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def played(*, details: bool) -> tuple[RunScreen, Clock, list[str]]:
    """A screen on which a run of two hosts was shown, its clock, and what it wrote."""
    clock, written = Clock(), list[str]()
    screen = RunScreen(written.append, clock, details=details)
    screen.begin("attic", (PACKAGES,))
    screen.detail("attic", "installing cmake git")
    clock.now = 1.5
    screen.end("attic")
    screen.begin("attic", (BUILD,))
    screen.detail("attic", "[ 45%] Building CUDA object fattn.cu.o")
    clock.now = 85.5
    screen.end("attic")
    screen.begin("duo", (RESTART,))
    screen.note("duo", "chat cannot be reached from here")
    clock.now = 90.0
    screen.begin("attic", (RESTART,))
    screen.detail("attic", "starting llama-chat.service: it has 300 s to load its model")
    return screen, clock, written


def test_a_log_has_every_step_and_the_time_of_long_ones() -> None:
    _, _, written = played(details=True)
    assert written == [
        "attic: install packages cmake, git",
        "attic:   installing cmake git",
        "attic: build engine llama.cpp-66ca571ae125",
        "attic:   [ 45%] Building CUDA object fattn.cu.o",
        "attic: build engine llama.cpp-66ca571ae125: 1 min 24 s",
        "duo: restart chat",
        "duo: chat cannot be reached from here",
        "attic: restart chat",
        "attic:   starting llama-chat.service: it has 300 s to load its model",
    ]


def test_a_file_that_is_sent_has_its_size(tmp_path: Path) -> None:
    written = list[str]()
    (tmp_path / "llama.tar.gz").write_bytes(bytes(2_500_000))
    send = SendFile(tmp_path / "llama.tar.gz", "ab" * 32)
    RunScreen(written.append).begin("attic", (Change("send", "source", "llama.tar.gz", ("it lacks it",), send),))
    assert written == ["attic: send source llama.tar.gz (2.5 MB)"]


def test_on_a_terminal_only_long_steps_and_notes_stay() -> None:
    _, _, written = played(details=False)
    assert written == [
        "attic: build engine llama.cpp-66ca571ae125: 1 min 24 s",
        "duo: chat cannot be reached from here",
    ]


LIVE = {
    80: """\
attic    90 s  restart chat (0 s)  starting llama-chat.service: it has 300 s to…
duo       4 s  restart chat (4 s)
""",
    100: """\
attic    90 s  restart chat (0 s)  starting llama-chat.service: it has 300 s to load its model
duo       4 s  restart chat (4 s)
""",
}


@pytest.mark.parametrize("width", [80, 100])
def test_each_host_has_one_live_line(width: int) -> None:
    screen, _, _ = played(details=False)
    shown = StringIO()
    Console(file=shown, width=width).print(live_lines(screen, width))
    assert "".join(f"{line.rstrip()}\n" for line in shown.getvalue().splitlines()) == LIVE[width]


@pytest.mark.parametrize("width", range(34, 100, 3))
def test_a_live_line_is_cut_between_words(width: int) -> None:
    screen, _, _ = played(details=False)
    shown = StringIO()
    Console(file=shown, width=width).print(live_lines(screen, width))
    for line in shown.getvalue().splitlines():
        assert len(line.rstrip()) <= width
        assert set(line.rstrip().removesuffix("…").split()) <= set(LIVE[100].split())


def test_the_time_of_a_host_ends_with_its_run() -> None:
    screen, clock, _ = played(details=False)
    screen.finish("attic")
    clock.now = 500
    assert (screen.seconds("attic"), screen.rows["attic"].step) == (90.0, "")


HELP = "  help: change the inventory and run `herd up attic`, or try it again with its log: `herd up attic --retry -v`"
REASON = "llama_model_load: error loading model: unable to allocate CUDA0 buffer"


@pytest.mark.parametrize(
    ("failure", "lines"),
    [
        (
            Failure(
                "serve | chat (systemd)",
                "llama-chat serves again as before, …",
                RETRY,
                switch=FailedSwitch(
                    "llama-chat", f"llama-chat.service was not healthy after 3 s of 300: {REASON}", REASON, True, 14.2
                ),
            ),
            [
                "attic ✗ chat: llama-chat.service was not healthy after 3 s of 300",
                f"  engine: {REASON}",
                "  the previous version serves again, after 14.2 s of downtime",
                HELP,
            ],
        ),
        (
            Failure(
                "serve | chat (systemd)",
                "instance chat: … does not accept its arguments; the instance was left as it was",
                switch=FailedSwitch(
                    "llama-chat",
                    "instance chat: it does not accept its arguments",
                    "error: unknown argument: --x",
                    True,
                ),
            ),
            [
                "attic ✗ chat: instance chat: it does not accept its arguments",
                "  engine: error: unknown argument: --x",
                "  the running version serves as before, without downtime",
                HELP,
            ],
        ),
        (
            Failure(
                "serve | chat (systemd)", "…", "see the lines above", switch=FailedSwitch("llama-chat", "HTTP 400")
            ),
            ["attic ✗ chat: HTTP 400", "  no version of it serves now", "  help: see the lines above"],
        ),
        (
            Failure(
                "engines | main (llama.cpp-66ca571ae125)",
                "the build failed; its log is on the host",
                "see /var/lib/llamaherd/work",
                ("[ 3%] Building", "/src/a.cu:12: error: expected `;`", "ninja: build stopped: subcommand failed."),
            ),
            [
                "attic ✗ main (llama.cpp-66ca571ae125): the build failed; its log is on the host",
                "  reason: /src/a.cu:12: error: expected `;`",
                "  help: see /var/lib/llamaherd/work",
            ],
        ),
        (
            Failure(
                "packages",
                f"apt could not install: curl. The whole log is {APT_LOG} on the host.",
                "apt holds apt's locks: when it has ended, run `herd up` again",
            ),
            [
                f"attic ✗ packages: apt could not install: curl. The whole log is {APT_LOG} on the host.",
                "  help: apt holds apt's locks: when it has ended, run `herd up` again",
                f"  log: `herd ssh attic -- sudo cat {APT_LOG}`",
            ],
        ),
        (
            Failure(
                "models | begin to fetch",
                "cannot give /run/llamaherd-fetch to llama-fetch; the reason is above",
                log=("chown: invalid user: 'llama-fetch:llama-fetch'",),
            ),
            [
                "attic:   chown: invalid user: 'llama-fetch:llama-fetch'",
                "attic ✗ begin to fetch: cannot give /run/llamaherd-fetch to llama-fetch; the reason is above",
            ],
        ),
        (
            Failure("connection", "nothing listens for SSH at attic.lan port 22", "check that the host is up"),
            ["attic ✗ nothing listens for SSH at attic.lan port 22", "  help: check that the host is up"],
        ),
    ],
    ids=["rolled back", "never stopped", "down", "build", "apt", "a reason above", "unreached"],
)
def test_a_failure_ends_in_four_lines(failure: Failure, lines: list[str]) -> None:
    assert failure_lines("attic", failure) == lines
    assert len(lines) <= 4


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ("", ["attic ✗ the run has printed no reason; `herd up attic -v` shows all of the run"]),
        (
            "    [attic] motd: it broke\n",
            ["[attic] motd: it broke", "attic ✗ the reason is above; `herd up attic -v` shows all of the run"],
        ),
    ],
    ids=["nothing", "of pyinfra"],
)
def test_a_failure_that_was_not_noted_refers_to_what_is_printed(
    output: str, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    print_failures(RunResult(("attic",), output=output))
    assert [line.strip() for line in capsys.readouterr().err.splitlines()] == lines


def test_another_command_names_its_own_fix() -> None:
    """A rollback is not tried again by `herd up --retry`."""
    switch = FailedSwitch("llama-chat", "the new version did not start", "", serves=True, downtime=None)
    for help_ in ("", RETRY):
        failure = Failure("chat (systemd)", "it did not start", help_, switch=switch)
        assert failure_lines("attic", failure, "`herd history attic` lists others")[-1] == (
            "  help: `herd history attic` lists others"
        )


def test_a_quiet_run_shows_notes_alone() -> None:
    clock, written = Clock(), list[str]()
    screen = RunScreen(written.append, clock, details=False, quiet=True)
    screen.begin("attic", (BUILD,))
    screen.detail("attic", "[ 45%]")
    clock.now = 80.0
    screen.end("attic")
    screen.note("attic", "chat cannot be reached from here")
    assert written == ["attic: chat cannot be reached from here"]


def test_the_next_command_is_a_chat_where_something_chats() -> None:
    rig = Rig.model_validate(cpu_rig())
    embeds = {"instances/chat/extra_args": ["--embedding", "--pooling", "mean"]}
    assert next_command({"box": (rig, planned(cpu_rig()))}) == "herd chat box/chat"
    assert next_command({"box": (rig, planned(cpu_rig(), embeds))}) == "herd chat box/drafter"
    assert next_command({"box": (rig, planned(cpu_rig()))}, {"box": {"chat"}}) == "herd chat box/drafter"
    nothing = planned(cpu_rig()).model_copy(update={"instances": ()})
    assert next_command({"box": (rig, nothing), "duo": (rig, nothing)}) == "herd verify box duo"


def test_in_the_end_each_server_has_its_url_and_speed() -> None:
    open_to_all = {"instances/drafter/listen": "0.0.0.0", "instances/drafter/api_key": {"env": "CHAT_KEY"}}
    declared = changed(cpu_rig(), {"connect/host": "attic.lan", **open_to_all})
    lines = [*served_lines(Rig.model_validate(declared), planned(declared), {"llama-drafter": 54.321})]
    assert lines == [
        "  chat     http://127.0.0.1:8080/v1 on the host alone",
        "  drafter  http://attic.lan:8081/v1  54.3 tokens/s",
    ]
    paused = [*served_lines(Rig.model_validate(declared), planned(declared), {}, {"drafter"})]
    assert paused[1] == "  drafter  paused"


def test_a_run_ends_with_the_measured_downtime(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(cpu_rig())
    rig = Rig.model_validate(cpu_rig())
    print_done("box", rig, plan, 23.0, {}, (), {"llama-chat": 2.14})
    assert capsys.readouterr().out.splitlines()[0] == "box ✓ 23.0 s, chat was down for 2.1 s"
