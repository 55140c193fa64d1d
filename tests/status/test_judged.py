"""What follows from what a host told: states, problems, and GPUs by their names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd.fleet.snapshot import FleetSnapshot, InstanceSnapshot, RigSnapshot, Speed, judge_gateways
from llamaherd.fleet.status import CheckedStatus, check_status, rig_snapshot, status_input
from llamaherd.fleet.status_text import status_summary, status_tables
from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.onhost.status import CardStatus, HostStatus, ServerStatus
from llamaherd.pipeline.history import Origin, Release
from llamaherd.plan import Plan
from tests.bench.grouped import GROUPED
from tests.status.made import GATEWAY
from tests.support.rigs import cpu_rig, gpu_rig, planned

BOX = planned(cpu_rig())
DUO = planned(gpu_rig())
GATEWAY_RIG = RigSnapshot("duo", gateway=GATEWAY)
IDLE = "it does not respond, and is idle"
FINE = ServerStatus(
    active="active", doing="running", ended="success", health="200", slots=2, busy=1, reading=0, waiting=0
)


def told(plan: Plan, **servers: ServerStatus) -> CheckedStatus:
    """A host whose other servers are fine."""
    return CheckedStatus({each.service: servers.get(each.name, FINE) for each in plan.instances})


def in_turn(**models: str) -> RigSnapshot:
    """The rig with a group, whose server says this of its models."""
    server = replace(FINE, models=models)
    return rig_snapshot(
        GROUPED, told(GROUPED, card=server), {"two": Speed(10.0, None, None, "2026-11-23T20:15:00Z", "n = 2, too few")}
    )


@pytest.mark.parametrize(
    ("models", "states"),
    [
        ({"gemma": "loaded", "moe": "unloaded"}, ["serves", "waits"]),
        ({"gemma": "unloaded", "moe": "sleeping"}, ["waits", "asleep"]),
        ({"gemma": "unloaded", "moe": "loading"}, ["waits", "loads"]),
        ({"gemma": "failed", "moe": "loaded"}, ["down", "serves"]),
        ({}, ["waits", "waits"]),
    ],
)
def test_of_a_group_one_serves_and_the_others_wait(models: dict[str, str], states: list[str]) -> None:
    now = in_turn(**models)
    one, two = now.instances[:2]
    assert [(each.name, each.group, each.model) for each in (one, two)] == [
        ("one", "card", "gemma"),
        ("two", "card", "moe"),
    ]
    assert [each.state for each in (one, two)] == states
    assert all((each.streams is not None) == (each.state == "serves") for each in (one, two))
    assert (one.expected, two.expected) == (10, None)
    assert (one.measured, two.measured and two.measured.value) == (None, 10.0)
    assert now.ok == set(states).issubset({"serves", "waits", "asleep"})


def test_a_model_that_did_not_load_is_a_problem() -> None:
    (problem,) = in_turn(gemma="failed", moe="loaded").problems
    assert problem == ("one is down: its model ended with an error when it was last loaded; see `herd logs box/card`")


def test_a_group_that_does_not_run_is_one_problem() -> None:
    now = rig_snapshot(GROUPED, told(GROUPED, card=ServerStatus("failed", "failed", "exit-code")), {})
    assert [each.state for each in now.instances[:2]] == ["down", "down"]
    (problem,) = now.problems
    assert problem.startswith("card is down: its unit is failed")


@pytest.mark.parametrize(
    ("server", "state", "why"),
    [
        (FINE, "serves", ""),
        (ServerStatus("active", "running", "success", "silent"), "busy", "it responds later than in 2 s"),
        (ServerStatus("active", "running", "success", "200", silent=True), "busy", "it responds later than in 2 s"),
        (
            ServerStatus("active", "running", "success", "silent", "idle"),
            "hangs",
            "it does not respond, and is idle",
        ),
        (ServerStatus("active", "running", "success", "silent", "stopped"), "hangs", "its process is stopped"),
        (ServerStatus("active", "running", "success", "503"), "loads", "it reports that it is not ready"),
        (ServerStatus("activating", "start-post", "success", "refused"), "loads", "it starts"),
        (ServerStatus("activating", "start-post", "success", "503"), "loads", "it reports that it is not ready"),
        (ServerStatus("active", "running", "success", "refused"), "down", "nothing listens at port 8080"),
        (ServerStatus("active", "running", "success", "broken"), "down", "the program at port 8080 breaks off"),
        (ServerStatus("active", "running", "success", "500"), "down", "it returns 500 when its health is requested"),
        (ServerStatus("failed", "failed", "exit-code"), "down", "its unit is failed (exit-code)"),
        (ServerStatus("inactive", "dead", "success"), "down", "it was stopped"),
        (
            ServerStatus("activating", "auto-restart", "oom-kill"),
            "down",
            "its unit fails, and is started again (oom-kill)",
        ),
        (
            ServerStatus("activating", "auto-restart-queued", "signal"),
            "down",
            "its unit fails, and is started again (signal)",
        ),
        (ServerStatus("absent", "dead", "success"), "down", "its unit does not exist"),
        (ServerStatus("active", "running", "success"), "busy", "it responds later than in 2 s"),
        (ServerStatus(), "down", "its state is unknown"),
        (ServerStatus(health="200", slots=2, busy=0), "serves", ""),
    ],
)
def test_states_of_a_unit(server: ServerStatus, state: str, why: str) -> None:
    now = rig_snapshot(BOX, told(BOX, chat=server), {})
    assert (now.instances[0].state, now.instances[0].why) == (state, why)
    assert now.ok == (state in ("serves", "busy"))


@pytest.mark.parametrize(
    ("server", "state", "why"),
    [
        (ServerStatus("running", "healthy", health="200"), "serves", ""),
        (ServerStatus("running", "starting", health="refused"), "loads", "it starts"),
        (ServerStatus("restarting", ""), "down", "its container fails, and is started again"),
        (ServerStatus("exited", ""), "down", "it was stopped"),
        (ServerStatus("absent", ""), "down", "its container does not exist"),
    ],
)
def test_states_of_a_container(server: ServerStatus, state: str, why: str) -> None:
    now = rig_snapshot(BOX, told(BOX, drafter=server), {}).instances[1]
    assert (now.state, now.why) == (state, why)


def test_a_problem_says_where_to_look() -> None:
    down = told(BOX, chat=ServerStatus("failed", "failed", "exit-code"), drafter=ServerStatus("absent", ""))
    assert rig_snapshot(BOX, down, {}).problems == (
        "chat is down: its unit is failed (exit-code); see `herd logs box/chat`",
        "drafter is down: its container does not exist; `herd up box` creates it",
    )
    hangs = told(BOX, chat=ServerStatus("active", "running", "success", "silent", "idle"))
    assert rig_snapshot(BOX, hangs, {}).problems == (
        "chat hangs: it does not respond, and is idle; `herd up box` starts it again",
    )


def test_a_server_that_was_stopped_is_started_by_a_command() -> None:
    stopped = told(BOX, chat=ServerStatus("inactive", "dead", "success"), drafter=ServerStatus("exited"))
    assert rig_snapshot(BOX, stopped, {}).problems == (
        "chat is down: it was stopped; `herd start box/chat` starts it",
        "drafter is down: it was stopped; `herd start box/drafter` starts it",
    )


def test_a_run_that_is_at_work_is_named_instead_of_another_run() -> None:
    busy = replace(told(BOX, chat=ServerStatus("absent", "")), holder="ann on desk since 2026-11-29, process 7")
    assert rig_snapshot(BOX, busy, {}).problems == (
        "chat is down: its unit does not exist; a run is at work there, by ann on desk since 2026-11-29, process 7",
    )
    assert rig_snapshot(BOX, replace(told(BOX), holder="ann on desk"), {}).problems == ()


@pytest.mark.parametrize("active", ["inactive", "failed", "exited"])
def test_a_paused_server_is_no_problem(active: str) -> None:
    paused = ServerStatus(active, "dead", "signal", pause_left=7800.5)
    now = rig_snapshot(BOX, told(BOX, chat=paused), {})
    assert (now.instances[0].state, now.instances[0].why) == ("paused", "for 2 h 11 min more")
    assert not now.instances[0].ok
    assert now.ok
    fleet = FleetSnapshot("now", (now,))
    assert fleet.pauses == ("box: chat is paused for 2 h 11 min more; `herd resume box/chat` starts it",)
    assert status_summary(fleet) == "1 of 2 instances serve, 1 paused, now"


def test_a_server_that_has_unloaded_its_model_is_asleep_and_serves() -> None:
    idle = planned(cpu_rig(), {"instances/chat/idle": {"unload": "15m"}})
    asleep = ServerStatus("active", "running", "success", "200", busy=0, asleep=True)
    now = rig_snapshot(idle, told(idle, chat=asleep), {})
    assert (now.instances[0].state, now.instances[0].why) == ("asleep", "its model is unloaded until the next request")
    assert now.ok
    assert status_summary(FleetSnapshot("now", (now,))) == "2 of 2 instances serve, now"
    assert [each.props for each in status_input(idle).servers] == ["/props", ""]


def test_a_paused_group_is_one_pause() -> None:
    now = rig_snapshot(GROUPED, told(GROUPED, card=ServerStatus("inactive", pause_left=0)), {})
    assert [each.state for each in now.instances[:2]] == ["paused", "paused"]
    (line,) = FleetSnapshot("now", (now,)).pauses
    assert line == f"{GROUPED.rig}: card is paused for 1 min more; `herd resume {GROUPED.rig}/card` starts it"


@pytest.mark.parametrize("left", [-1.0, 1e12])
def test_an_impossible_pause_is_refused(left: float) -> None:
    with pytest.raises(UnexpectedLineError):
        check_status(HostStatus({"llama-chat": replace(FINE, pause_left=left)}), ["llama-chat"])


def test_a_gateway_shows_a_server_of_another_rig_as_paused() -> None:
    six = RigSnapshot("six", (InstanceSnapshot("chat", "gemma", 8080, "paused", "for 1 min more"),))
    duo, _ = judge_gateways([GATEWAY_RIG, six])
    assert duo.gateway
    assert (duo.gateway.down, duo.gateway.paused, duo.problems) == ((), ("six.chat",), ())
    duo, _ = judge_gateways([GATEWAY_RIG, replace(six, name="ten")])
    assert duo.problems == ("the gateway reports six.chat as down; `herd gateway status` reports more",)


def test_a_gateway_shows_a_server_of_a_rig_that_sleeps() -> None:
    chat = InstanceSnapshot("chat", "gemma", 8080, "asleep", "its rig sleeps")
    duo, six = judge_gateways([GATEWAY_RIG, RigSnapshot("six", (chat,), asleep=True)])
    assert duo.gateway
    assert (duo.gateway.down, duo.gateway.asleep, duo.problems, six.ok) == ((), ("six.chat",), (), True)
    # A server that has unloaded its model, on a rig that is awake, responds to its gateway.
    duo, _ = judge_gateways([GATEWAY_RIG, RigSnapshot("six", (chat,))])
    assert duo.gateway
    assert duo.gateway.down == ("six.chat",)


def test_streams_and_tokens_a_second() -> None:
    speed = Speed(43.1, 42.5, 43.7, "2026-11-23T20:15:00Z", "n = 9")
    wrote = ServerStatus("active", "running", "success", "200", slots=4, busy=3, reading=1, waiting=2, wrote=(82, 1025))
    chat, drafter = rig_snapshot(
        BOX, told(BOX, chat=wrote, drafter=ServerStatus(health="200", busy=5)), {"chat": speed}
    ).instances
    assert (chat.streams, chat.slots, chat.reading, chat.waiting) == (3, 4, 1, 2)
    assert (chat.tokens_per_second, chat.measured) == (80.0, speed)
    # An engine that says nothing of slots has as many as are declared.
    assert (drafter.streams, drafter.slots, drafter.tokens_per_second) == (5, 1, None)


def shown(rig: RigSnapshot) -> tuple[str, ...]:
    """The row of its first instance."""
    return next(iter(status_tables(FleetSnapshot("2026-11-23T20:15:00Z", (rig,)))[0].rows))


def test_a_speed_of_too_few_runs_says_so() -> None:
    few, many = (
        rig_snapshot(BOX, told(BOX), {"chat": Speed(938.3, low, high, "2026-11-23T20:15:00Z", counted)})
        for low, high, counted in ((None, None, "n = 2, too few"), (930.0, 946.0, "n = 9"))
    )
    assert "938.3 (n = 2, too few)" in shown(few)
    assert "938.3 ± 8.0" in shown(many)


def card(uuid: str, pci: str = "00000000:01:00.0") -> CardStatus:
    return CardStatus(uuid, pci, 1024, 24576, 30, 350, 40, 0, "RTX 3090")


def test_gpus_are_called_as_declared_and_others_by_their_address() -> None:
    host = told(DUO)
    host.cards = [card("GPU-other", "00000000:03:00.0"), card("GPU-3090", "00000000:02:00.0"), card("gpu-5090")]
    now = rig_snapshot(DUO, host, {})
    assert [each.name for each in now.cards] == ["new", "old", "00000000:03:00.0"]
    assert (now.cards[0].memory_used, now.cards[0].memory_total) == (1 << 30, 24 << 30)
    assert now.problems == ()


def test_a_gpu_that_is_gone_is_a_problem_and_so_is_a_driver_that_says_nothing() -> None:
    host = told(DUO)
    host.cards = [card("GPU-5090")]
    assert rig_snapshot(DUO, host, {}).problems == (
        "GPU old does not exist; `herd preflight duo` lists the missing ones",
    )
    host.cards, host.driver = [], "nvidia-smi does not answer within 5 s"
    (problem,) = rig_snapshot(DUO, host, {}).problems
    assert problem.startswith("its GPUs are unknown: nvidia-smi does not answer within 5 s")


def test_the_last_change() -> None:
    host = told(BOX)
    assert rig_snapshot(BOX, host, {}).change is None
    release = Release(at="2026-11-24T10:00:00+00:00", origin=Origin(user="ann"), changes=("a", "b"), failed=("c",))
    host.release = (14, release)
    change = rig_snapshot(BOX, host, {}).change
    assert change
    assert (change.number, change.at, change.who, change.changes, change.failed) == (
        *(14, "2026-11-24 10:00:00 UTC", "ann"),
        *(("a", "b"), ("c",)),
    )
