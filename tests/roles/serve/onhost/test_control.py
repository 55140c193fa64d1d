"""Stop, start, pause and resume servers: of a unit and of a container, also where the program is killed in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from llamaherd.onhost.document import VERSION, decode, parse_document
from llamaherd.onhost.reservation import RunLockInput
from llamaherd.onhost.server_control import (
    ControlInput,
    ControlledServer,
    ControlResult,
    PauseEndInput,
    pauses,
    read_pause,
)
from llamaherd.onhost.system import Ended, FailedError
from llamaherd.onhost.verbs import NoInput, find_verb
from roles.serve.onhost.control import end as run_end
from roles.serve.onhost.control import last_error, pause, resume, start, stop
from roles.serve.onhost.model import RemovalInput, Server
from roles.serve.onhost.probation import start_probation
from roles.serve.onhost.removal import remove as run_removal
from tests.support.played_host import File, Killed, PlayedHost
from tests.support.recording import recording
from tests.support.rigs import cpu_rig, planned
from tests.support.switches import copied, decided, instance_of, serving_host

PLAN = planned(cpu_rig())
NAMES = ("chat", "drafter")
"""A unit and a container."""
LOCK = RunLockInput("box", "ann@desk", 60)
HOUR = 3600
Verb = Callable[[ControlInput, PlayedHost, PlayedHost], ControlResult]
PROGRAM = "/opt/llamaherd/libexec/onhost/0.pyz"


def server(name: str) -> ControlledServer:
    """Return a server of the plan."""
    return ControlledServer(name, f"llama-{name}", instance_of(PLAN, name).endpoint.port, 60)


def given(*names: str, anew: bool = False, seconds: int = HOUR) -> ControlInput:
    """Return the input of a verb."""
    return ControlInput(LOCK, tuple(map(server, names)), anew, seconds)


def probed(name: str) -> Server:
    """Return a server on probation."""
    return Server(name, f"llama-{name}", "unit", "root", "spec", "try", "", 8001, 30, 30, (), {})


def host(name: str) -> PlayedHost:
    """Return a host on which the server serves."""
    made = serving_host(PLAN, name)
    made.files[PROGRAM] = File("the program")
    return made


def serves(made: PlayedHost, name: str) -> bool:
    """Return whether clients reach the server."""
    return made.running(f"llama-{name}") == instance_of(PLAN, name).spec


def left(made: PlayedHost) -> dict[str, float]:
    """Return the seconds that are left of pauses."""
    return dict(pauses(NoInput(), made).left)


def leftovers(made: PlayedHost) -> list[str]:
    """Return what a pause has left."""
    return [path for path in made.files if "resume" in path or "/paused/" in path]


@pytest.mark.parametrize("name", NAMES)
def test_a_server_that_is_stopped_stays_stopped_over_a_boot_until_it_is_started(name: str) -> None:
    made = host(name)
    done = stop(given(name), made, made).servers[name]
    assert (done.changed, done.why) == (True, "")
    assert not serves(made, name)
    made.boot()
    assert not serves(made, name)
    assert not stop(given(name), made, made).servers[name].changed
    assert start(given(name), made, made).servers[name].changed
    assert serves(made, name)
    made.boot()
    assert serves(made, name)
    assert not start(given(name), made, made).servers[name].changed
    assert decided(made, PLAN, name) is None
    assert made.signed["run"] == "ann@desk"


@pytest.mark.parametrize("name", NAMES)
def test_up_starts_a_server_that_was_stopped(name: str) -> None:
    made = host(name)
    stop(given(name), made, made)
    assert decided(made, PLAN, name) is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_restart_is_a_new_process(name: str) -> None:
    made = host(name)
    running = made.units if name == "chat" else made.containers
    before = running[f"llama-{name}"].run
    away: list[int] = []
    made.seen = lambda now: away.append(now.steps) if not serves(now, name) else None
    assert start(given(name, anew=True), made, made).servers[name].changed
    assert away
    assert serves(made, name)
    if name == "chat":
        assert running[f"llama-{name}"].run != before


@pytest.mark.parametrize("name", NAMES)
def test_a_failing_server_is_reported_with_its_own_last_error(name: str) -> None:
    made = host(name)
    stop(given(name), made, made)
    made.fates[instance_of(PLAN, name).spec] = "does not load"
    why = start(given(name), made, made).servers[name].why
    assert why.startswith("it is not healthy after 0 s")


STOP = ["systemctl", "stop", "llama-chat.service"]


@pytest.mark.parametrize("first", NAMES)
@pytest.mark.parametrize("verb", [stop, pause, lambda *all: start(replace(given("chat"), anew=True), *all[1:])])
def test_a_stop_soon_after_an_update_ends_its_probation(verb: Verb, first: str) -> None:
    """Also where the server was changed together with another one, which the probation is named after."""
    made = recording(host("chat"))
    servers = [probed(each) for each in sorted(NAMES, key=lambda each: each != first)]
    start_probation(made, servers)
    made.done.clear()
    verb(given("chat"), made, made)
    ended = ["systemctl", "stop", f"llamaherd-probation-{first}.service"]
    assert made.done.index(ended) < made.done.index(STOP)
    assert made.names("/run/llamaherd/probation") == []


def test_a_server_of_another_probation_is_not_its_end() -> None:
    made = recording(host("chat"))
    start_probation(made, [probed("drafter")])
    made.files["/run/llamaherd/probation/damaged.json"] = File('{"input": 7}')
    stop(given("chat"), made, made)
    assert made.names("/run/llamaherd/probation") == ["damaged.json", "llama-drafter.json"]


def test_a_start_of_a_running_server_leaves_its_probation() -> None:
    made = recording(host("chat"))
    start_probation(made, [probed("chat")])
    made.done.clear()
    assert not start(given("chat"), made, made).servers["chat"].changed
    assert ["systemctl", "stop", "llamaherd-probation-chat.service"] not in made.done


def test_a_server_that_had_to_be_killed_is_stopped_and_not_failed() -> None:
    made = recording(host("chat"))
    stop(given("chat"), made, made)
    assert made.done.index(STOP) < made.done.index(["systemctl", "reset-failed", "llama-chat.service"])


JOURNAL = """\
1.5 box llama-server[7]: load_model: error: unable to open /m.gguf: No such file
1.5 box llama-server[7]: main: exiting
1.5 box systemd[1]: llama-chat.service: Failed with result 'exit-code'.
"""


@pytest.mark.parametrize(
    ("printed", "error"),
    [
        (JOURNAL, "load_model: error: unable to open /m.gguf: No such file"),
        ("1.5 box gpu-gate[7]: there is no card GPU-0\n1.6 box systemd[1]: failed\n", "there is no card GPU-0"),
        ("", ""),
    ],
)
def test_the_last_error_of_a_unit_is_that_of_the_engine(printed: str, error: str) -> None:
    made = recording(host("chat"))
    made.ends["journalctl -q"] = Ended(0, printed)
    assert last_error("llama-chat", "unit", 7.9, made) == error
    assert "--since=@8" in made.done[-1]


def test_the_last_error_of_a_container_is_on_both_of_its_outputs() -> None:
    made = recording(host("drafter"))
    made.ends["docker logs"] = Ended(0, "listening\n", "CUDA error: out of memory\n\n")
    assert last_error("llama-drafter", "container", 0, made) == "CUDA error: out of memory"


@pytest.mark.parametrize("name", NAMES)
def test_a_paused_server_starts_when_its_time_is_over(name: str) -> None:
    made = host(name)
    assert pause(given(name), made, made).servers[name].changed
    assert not serves(made, name)
    assert HOUR - 10 < left(made)[name] <= HOUR
    record = read_pause(f"llama-{name}", made)
    assert record
    assert record.until == record.since + HOUR
    end = datetime.fromtimestamp(record.until, UTC)
    timer = made.files[f"/etc/systemd/system/llamaherd-resume-{name}.timer"].text
    assert f"\nOnCalendar={end:%Y-%m-%d %H:%M:%S} UTC\n" in timer
    assert f"llamaherd-resume-{name}.timer" in made.enabled
    made.boot()
    assert not serves(made, name), "a boot does not end a pause"
    run_end(PauseEndInput(server(name)), made, made)
    assert not serves(made, name), "it is early"
    made.time += HOUR
    assert left(made)[name] == 0
    run_end(PauseEndInput(server(name)), made, made)
    assert serves(made, name)
    assert (left(made), leftovers(made)) == ({}, [])
    assert decided(made, PLAN, name) is None


def test_the_timer_runs_this_program_with_an_input_that_it_reads() -> None:
    made = host("chat")
    pause(given("chat"), made, made)
    folder = "/var/lib/llamaherd/paused/llama-chat"
    assert made.files[f"{folder}/program.pyz"].text == "the program"
    service = made.files["/etc/systemd/system/llamaherd-resume-chat.service"].text
    assert f"\nExecStart=/usr/bin/python3 -I {folder}/program.pyz {folder}/resume.json\n" in service
    document = parse_document(made.files[f"{folder}/resume.json"].text.encode())
    assert isinstance(document, dict)
    assert document["version"] == VERSION
    verb = find_verb(document["verb"])
    assert decode(verb.input, document["input"]) == PauseEndInput(server("chat"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("verb", [resume, start])
def test_a_pause_ends_early(name: str, verb: Verb) -> None:
    made = host(name)
    pause(given(name), made, made)
    assert verb(given(name), made, made).servers[name].changed
    assert serves(made, name)
    assert (left(made), leftovers(made)) == ({}, [])
    assert f"llamaherd-resume-{name}.timer" not in made.enabled
    assert not resume(given(name), made, made).servers[name].changed


def test_a_paused_server_that_is_stopped_has_no_end_any_more() -> None:
    made = host("chat")
    pause(given("chat"), made, made)
    assert stop(given("chat"), made, made).servers["chat"].changed
    assert (left(made), leftovers(made), serves(made, "chat")) == ({}, [], False)


def test_a_pause_that_is_extended_ends_at_its_new_time() -> None:
    made = host("chat")
    pause(given("chat"), made, made)
    pause(given("chat", seconds=3 * HOUR), made, made)
    made.time += HOUR
    run_end(PauseEndInput(server("chat")), made, made)
    assert not serves(made, "chat")
    made.time += 2 * HOUR
    run_end(PauseEndInput(server("chat")), made, made)
    assert serves(made, "chat")


def test_a_server_that_fails_after_its_pause_is_down_and_not_paused() -> None:
    made = host("chat")
    pause(given("chat"), made, made)
    made.fates[instance_of(PLAN, "chat").spec] = "does not load"
    made.time += HOUR
    run_end(PauseEndInput(server("chat")), made, made)
    assert "llama-chat does not serve after its pause: it is not healthy after" in made.log[-1]
    assert (left(made), leftovers(made)) == ({}, [])


def test_a_server_is_not_stopped_where_its_timer_cannot_be_started() -> None:
    made = recording(host("chat"))
    made.ends["systemctl restart llamaherd-resume-chat.timer"] = Ended(1, "", "bad setting")
    with pytest.raises(FailedError, match="so llama-chat was not stopped"):
        pause(given("chat"), made, made)
    assert serves(made, "chat")
    assert (left(made), leftovers(made)) == ({}, [])


def test_a_removed_server_leaves_no_pause() -> None:
    made = host("chat")
    pause(given("chat"), made, made)
    removal = RemovalInput("chat", "llama-chat", "llama-chat", unit=True, container=False, key=True, drain_seconds=0)
    run_removal(removal, made, made)
    assert (left(made), leftovers(made)) == ({}, [])


def test_another_run_keeps_the_host() -> None:
    made = host("chat")
    made.holders["run"] = "tom@laptop"
    with pytest.raises(FailedError, match="another run changes this host, by tom@laptop") as error:
        stop(given("chat"), made, made)
    assert "`herd unlock box` breaks its lock" in error.value.fix
    assert made.log[-1] == "waiting up to 60 s for another run, by tom@laptop"
    assert serves(made, "chat")


def test_a_pause_ends_later_where_another_run_keeps_the_host() -> None:
    made = host("chat")
    pause(given("chat"), made, made)
    made.time += HOUR
    made.holders["run"] = "tom@laptop"
    with pytest.raises(FailedError, match="another run changes this host, by tom@laptop"):
        run_end(PauseEndInput(server("chat")), made, made)
    assert left(made) == {"chat": 0}
    assert "\nRestart=on-failure\n" in made.files["/etc/systemd/system/llamaherd-resume-chat.service"].text


def test_the_timer_of_a_pause_runs_after_each_boot_and_once_more_for_an_end_that_was_over() -> None:
    made = host("chat")
    pause(given("chat"), made, made)
    timer = made.files["/etc/systemd/system/llamaherd-resume-chat.timer"].text
    assert "\nOnActiveSec=1min\n" in timer
    made.holders["run"] = "tom@laptop"
    run_end(PauseEndInput(server("chat")), made, made)
    assert not serves(made, "chat")
    assert left(made)["chat"] > 0


def test_no_more_is_left_than_the_whole_pause_if_the_clock_of_the_host_is_set_back() -> None:
    made = host("chat")
    made.time = 1e9
    pause(given("chat"), made, made)
    made.time = 0
    assert left(made) == {"chat": HOUR}


def test_an_absent_server_is_named_before_another_one_is_stopped() -> None:
    made = host("chat")
    with pytest.raises(FailedError, match="there is no llama-drafter on this host"):
        stop(given("chat", "drafter"), made, made)
    assert serves(made, "chat")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"server":"chat","since":0}', '{"server":"chat","since":0,"until":1e400}']
)
def test_a_damaged_record_is_no_pause(text: str) -> None:
    made = PlayedHost({}, files={"/var/lib/llamaherd/paused/llama-chat/pause.json": File(text)})
    assert left(made) == {}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("verb", [stop, pause, start, resume])
def test_killed_before_each_step_and_run_again(name: str, dies: bool, verb: Verb) -> None:
    """And what a killed pause has begun ends by its timer, if the same command does not follow."""
    begun = host(name)
    if verb in (start, resume):
        pause(given(name), begun, begun)
    begun.steps = 0
    whole = copied(begun)
    verb(given(name), whole, whole)
    assert whole.steps
    for step in range(whole.steps):
        made = copied(begun)
        made.kill_at = step
        with pytest.raises(Killed):
            verb(given(name), made, made)
        made.kill_at = -1
        made.held.clear()
        if dies:
            made.boot()
        left_alone = copied(made)
        verb(given(name), made, made)
        stopped = verb in (stop, pause)
        assert serves(made, name) is not stopped, step
        assert bool(left(made)) is (verb is pause), step
        assert bool(leftovers(made)) is (verb is pause), step
        left_alone.time += 2 * HOUR
        if f"llamaherd-resume-{name}.timer" in left_alone.enabled:
            run_end(PauseEndInput(server(name)), left_alone, left_alone)
            assert (left(left_alone), leftovers(left_alone)) == ({}, []), step
        if verb is not stop:
            assert serves(left_alone, name), step
