"""The probation of a server: which observations roll it back, in which order, and what a kill leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from llamaherd.onhost.document import decode, parse_document
from llamaherd.onhost.system import Ended
from llamaherd.pipeline.history import Release
from roles.serve.onhost import probation
from roles.serve.onhost.model import ProofQuestion, Server
from roles.serve.onhost.probation import ProbationInput, Run, inspect, run_probation, start_probation
from roles.serve.onhost.proof import NO_RESPONSE
from tests.support.played_host import File, Killed, PlayedHost

UP = "ActiveState=active\nSubState=running\nNRestarts=0\nMainPID=4711\n"
ENDED = "ActiveState=activating\nSubState=auto-restart\nNRestarts=0\nMainPID=0\n"
STARTED_AGAIN = "ActiveState=active\nSubState=running\nNRestarts=1\nMainPID=4712\n"
FAILED = "ActiveState=failed\nSubState=failed\nNRestarts=3\nMainPID=0\n"
LIMITED = "ActiveState=failed\nSubState=failed\nResult=start-limit-hit\nNRestarts=0\nMainPID=0\n"
STOPPED = "ActiveState=inactive\nSubState=dead\nResult=success\nNRestarts=0\nMainPID=0\n"
KILLED = "ActiveState=failed\nSubState=failed\nResult=timeout\nNRestarts=0\nMainPID=0\n"
"""Stopped by a person while it streamed: it did not end in time, and systemd killed it."""
STOPPING = "ActiveState=deactivating\nSubState=stop-sigterm\nResult=success\nNRestarts=0\nMainPID=4711\n"
RESTARTED = "ActiveState=active\nSubState=running\nNRestarts=0\nMainPID=4720\n"
LOADING = "ActiveState=activating\nSubState=start-post\nNRestarts=0\nMainPID=4720\n"
OLD, NEW = "0000000000aa", "0000000000bb"
KEPT, RELEASES = "/var/lib/llamaherd/kept", "/var/lib/llamaherd/releases"


@dataclass
class Watched(PlayedHost):
    """A host whose unit has the state of the second, until the previous version is started."""

    unit: Callable[[float], str] = lambda _: UP
    responses: Callable[[float], tuple[int, str]] = lambda _: (0, "")
    cpu: float = 0.0
    """Processors that it uses."""
    others: float = 0.0
    """Processors that it waits for."""
    probes: int = 0
    restored: bool = False
    starts: bool = True
    ran: list[str] = field(default_factory=list)
    lock_until: float = 0.0

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        if list(argv[:2]) in (["systemctl", "show"], ["docker", "inspect"]):
            return Ended(0, UP if self.restored else self.unit(self.time))
        self.ran.append(" ".join(argv))
        ended = super().run(argv, seconds=seconds, text=text, environment=environment)
        if list(argv[:2]) == ["systemctl", "start"] or "up" in argv:
            self.restored = self.starts
            return Ended(0 if self.starts else 1)
        return ended

    def probe(self, question: ProofQuestion, *, key: str | None, seconds: float) -> tuple[int, str]:
        del question, key
        self.probes += 1
        code, why = (0, "") if self.restored else self.responses(self.time)
        self.time += seconds if code == NO_RESPONSE else 0.1
        return code, why

    @contextmanager
    def lock(self, name: str, seconds: float, purpose: str) -> Iterator[bool]:
        waited = self.time < self.lock_until
        self.time = max(self.time, self.lock_until)
        with super().lock(name, seconds, purpose):
            yield waited

    def now(self) -> float:
        return self.time

    def computed(self, pid: int) -> float:
        del pid
        return self.cpu * self.time

    def waited(self, pid: int) -> float:
        del pid
        return self.others * self.time


def server(name: str = "chat") -> Server:
    """Return a unit on probation."""
    return Server(name, f"llama-{name}", "unit", "root", NEW, "try", f"/etc/{name}.key", 8001, 30, 30, (), {})


CHAT = server()


def host(*services: str, unit: Callable[[float], str] = lambda _: UP, **more: object) -> Watched:
    """Return a host on which a switch has just replaced these servers."""
    found = Watched({}, unit=unit, accounts={"root"})
    for service in services or ("llama-chat",):
        for folder, spec, was in (("a", OLD, "old"), ("b", NEW, "new")):
            place, instance = f"{KEPT}/{service}/{folder}", service.removeprefix("llama-")
            files = {
                "file": f"{was} unit",
                "key": f"{was} key",
                "asked": "{}",
                # As shell scripts of earlier versions wrote it.
                "how": f"was_kind=unit was_spec={spec} was_seconds=30 was_file=/etc/{service}.unit "
                f"was_key=/etc/{instance}.key\nwas_inputs=''\"'\"'/k y'\"'\"' /m'\n",
            }
            found.files |= {f"{place}/{name}": File(text) for name, text in files.items()}
            found.folders.add(place)
        found.links |= {f"{KEPT}/{service}/before": "a", f"{KEPT}/{service}/last": "b"}
        found.files |= {f"/etc/{service}.unit": File("new unit"), f"/etc/{instance}.key": File("new key")}
    found.files |= {f"{RELEASES}/7.json": File("{}"), f"{RELEASES}/7.plan": File("a plan")}
    for name, value in more.items():
        setattr(found, name, value)
    return found


def watched(on: Watched, *servers: Server) -> str:
    """Return why the servers of a host were rolled back."""
    return run_probation(servers or (CHAT,), on, on.probe)


def from_second(at: float, text: str) -> Callable[[float], str]:
    """Return the states of a unit that runs until this second."""
    return lambda now: UP if now < at else text


def is_restored(on: Watched, service: str = "llama-chat") -> bool:
    """Return whether the files of the previous version are in place."""
    key = f"/etc/{service.removeprefix('llama-')}.key"
    return (on.read(f"/etc/{service}.unit"), on.read(key)) == ("old unit", "old key")


def test_a_server_that_works_keeps_its_place() -> None:
    on = host()
    assert watched(on) == ""
    assert on.ran == []
    assert on.probes == len(probation.PROBES)
    assert on.time >= 60
    assert on.target(f"{KEPT}/llama-chat/last") == "b"
    assert on.names(f"{KEPT}/llama-chat") == ["b", "last"]
    assert on.read("/etc/llama-chat.unit") == "new unit"


@pytest.mark.parametrize("text", [ENDED, STARTED_AGAIN, FAILED, LIMITED])
@pytest.mark.parametrize("at", [0, 0.3, 4, 7, 30, 55])
def test_a_server_that_ends_is_rolled_back_within_a_second(at: float, text: str) -> None:
    on = host(unit=from_second(at, text))
    assert "it ended" in watched(on)
    assert on.time <= at + 1.2
    assert is_restored(on)
    tried, _, why = (on.read("/var/lib/llamaherd/refused/llama-chat") or "").rstrip("\n").split("\t")
    assert (tried, why[:8]) == ("try", "it ended")
    assert not on.entry(f"{KEPT}/llama-chat/untried")
    assert on.target(f"{KEPT}/llama-chat/last") == "a"
    assert sorted(on.names(f"{KEPT}/llama-chat")) == ["a", "last"]
    assert "serves again as before" in on.log[-1]


def test_the_history_contains_the_rollback() -> None:
    on = host(unit=from_second(1, ENDED))
    watched(on)
    text = on.read(f"{RELEASES}/8.json") or ""
    release = Release.model_validate_json(text)
    assert '"failed":[]' not in text
    assert "serves again as before" in release.failed[0]
    assert on.read(f"{RELEASES}/8.plan") == "a plan"


@pytest.mark.parametrize("text", [STOPPED, KILLED])
def test_a_server_that_a_person_stops_is_left_alone(text: str) -> None:
    on = host(unit=from_second(3, text))
    assert watched(on) == ""
    assert on.time < 5
    assert not is_restored(on)
    assert not on.entry("/var/lib/llamaherd/refused/llama-chat")


def test_a_server_that_another_run_has_changed_is_left_alone() -> None:
    on = host(unit=from_second(20, ENDED))
    how = on.files[f"{KEPT}/llama-chat/b/how"]
    how.text = how.text.replace(NEW, "0000000000cc")
    assert watched(on) == ""
    assert not is_restored(on)


def test_a_server_that_another_run_restores_meanwhile_is_left_alone() -> None:
    """That run holds the lock: its own new version ended, and it has restored this one when it releases the lock."""
    on = host(unit=lambda at: ENDED if 2 <= at < 4 else UP)
    on.lock_until = 5
    assert watched(on) == ""
    assert not is_restored(on)


def test_a_server_that_herd_stops_while_it_is_probed_is_left_alone() -> None:
    """The stop holds the lock: the probe fails because of it, and the server has stopped when it releases the lock."""
    on = host(unit=from_second(8, STOPPED), responses=lambda _: (NO_RESPONSE, ""))
    on.lock_until = 40
    assert watched(on) == ""
    assert not is_restored(on)


def unchanged(on: Watched) -> bool:
    """Return whether no version was rolled back, and neither record nor history contains a failure."""
    failed = [on.entry("/var/lib/llamaherd/refused/llama-chat"), on.entry(f"{RELEASES}/8.json")]
    return not any(failed) and on.ran == [] and on.read("/etc/llama-chat.unit") == "new unit"


@pytest.mark.parametrize("text", [STOPPED, KILLED])
@pytest.mark.parametrize("takes", [0, 2, 60])
def test_a_stop_that_cuts_off_a_probe_is_no_failure(text: str, takes: float) -> None:
    """The stop may have ended, and have released its lock, before the probe fails; or it may still last."""
    at = 5.05
    on = host(
        unit=lambda now: UP if now < at else STOPPING if now < at + takes else text,
        responses=lambda now: (0, "") if now < 5 else (1, "[Errno 111] Connection refused"),
    )
    assert watched(on) == ""
    assert on.probes
    assert unchanged(on)


def test_a_stop_that_begins_once_a_failure_was_found_is_left_alone() -> None:
    """The server fails its probes, and a person stops it while the probation waits for the lock."""
    on = host(unit=from_second(8, KILLED), responses=lambda _: (1, "HTTP 500"))
    on.lock_until = 40
    assert watched(on) == ""
    assert unchanged(on)


@pytest.mark.parametrize("text", [RESTARTED, LOADING])
def test_a_server_that_a_person_restarts_is_left_alone(text: str) -> None:
    on = host(unit=from_second(3, text), responses=lambda now: (0, "") if now < 3 else (1, "HTTP 503: it loads"))
    assert watched(on) == ""
    assert unchanged(on)


def test_systemd_that_does_not_respond_rolls_nothing_back() -> None:
    assert watched(host(unit=lambda _: "")) == ""


@pytest.mark.parametrize("first", probation.PROBES)
def test_a_server_whose_probes_fail_is_rolled_back(first: int) -> None:
    on = host(responses=lambda at: (0, "") if at < first else (1, "a prompt is answered with nothing"))
    assert "a prompt is answered with nothing" in watched(on)
    assert on.time <= first + 3
    assert is_restored(on)


def test_one_failed_probe_rolls_nothing_back() -> None:
    failures = iter([(1, "HTTP 500"), (0, "")] * 3)
    assert watched(host(responses=lambda _: next(failures))) == ""


def test_a_server_that_hangs_is_rolled_back() -> None:
    on = host(responses=lambda _: (3, "no response"))
    assert "it hangs" in watched(on)
    assert is_restored(on)
    assert on.time <= 5 + probation.SILENT + 1


def test_a_server_that_is_busy_with_its_clients_stays() -> None:
    """Its slots are taken, so it responds to no probe; but it computes."""
    on = host(responses=lambda _: (3, "no response"), cpu=0.9)
    assert watched(on) == ""
    assert not is_restored(on)


def test_a_server_that_gets_no_processor_stays() -> None:
    """Other programs have all of them: it waits."""
    on = host(responses=lambda _: (3, "no response"), cpu=0.02, others=1.5)
    assert watched(on) == ""
    assert not is_restored(on)


def test_a_group_is_not_probed_with_prompts() -> None:
    on = host(responses=lambda _: (1, "not loaded"))
    assert watched(on, replace(CHAT, prompts=False)) == ""
    assert on.probes == 0


def test_a_previous_version_that_does_not_start_stays_untried() -> None:
    on = host(unit=from_second(1, ENDED), starts=False)
    watched(on)
    assert "does not start either" in on.log[-1]
    assert NEW in (on.read(f"{KEPT}/llama-chat/untried") or "")
    assert not on.entry("/var/lib/llamaherd/refused/llama-chat")


def test_a_previous_version_that_does_not_respond_is_reported() -> None:
    on = host(unit=from_second(1, ENDED))

    def silent(question: ProofQuestion, *, key: str | None, seconds: float) -> tuple[int, str]:
        del question, key, seconds
        return 3, ""

    run_probation((CHAT,), on, silent)
    assert "does not start either: it does not respond" in on.log[-1]


def test_a_kill_at_any_step_leaves_the_new_version_untried() -> None:
    """So that the next run proves it before it counts, and goes back to the previous version if it fails."""
    whole = host(unit=from_second(1, ENDED))
    marked: list[int] = []
    refused: list[int] = []

    def note(now: PlayedHost) -> None:
        if now.entry(f"{KEPT}/llama-chat/untried"):
            marked.append(now.steps)
        if now.entry("/var/lib/llamaherd/refused/llama-chat"):
            refused.append(now.steps)

    whole.seen = note
    watched(whole)
    for step in range(marked[0], refused[0]):
        on = host(unit=from_second(1, ENDED), kill_at=step)
        with pytest.raises(Killed):
            watched(on)
        assert NEW in (on.read(f"{KEPT}/llama-chat/untried") or ""), step
        assert on.read(f"{KEPT}/llama-chat/a/file") == "old unit"


def container(status: str, restarts: int = 0) -> str:
    """Return what Docker prints of a container."""
    return json.dumps([{"Id": "x", "RestartCount": restarts, "State": {"Status": status, "Pid": 12}}])


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        (container("running"), Run("up", 12)),
        (container("running", 1), Run("died")),
        (container("restarting", 1), Run("died")),
        (container("exited"), Run("stopped")),
        (container("paused"), Run("stopped")),
        ("", Run("up")),
        ("[]", Run("up")),
        ("{", Run("up")),
    ],
)
def test_states_of_a_container(printed: str, found: Run) -> None:
    assert inspect(replace(CHAT, kind="container"), host(unit=lambda _: printed)) == found


def test_a_container_goes_back_to_the_unit_that_it_replaced() -> None:
    on = host(unit=lambda _: container("running", 1))
    watched(on, replace(CHAT, kind="container"))
    assert is_restored(on)
    assert "docker rm -f llama-chat" in on.ran
    assert "systemctl start llama-chat.service" in on.ran


def test_servers_that_were_changed_together_go_back_together() -> None:
    on = host("llama-chat", "llama-code", "llama-new", unit=from_second(7, ENDED))
    del on.links[f"{KEPT}/llama-new/before"]
    assert watched(on, server("code"), CHAT, server("new"))
    assert is_restored(on, "llama-chat")
    assert is_restored(on, "llama-code")
    stops = [n for n, line in enumerate(on.ran) if line.startswith("systemctl stop")]
    starts = [n for n, line in enumerate(on.ran) if line.startswith("systemctl start")]
    assert max(stops) < min(starts), on.ran
    assert "systemctl -q disable llama-new.service" in on.ran
    assert "systemctl start llama-new.service" not in on.ran
    assert on.entry("/var/lib/llamaherd/refused/llama-code")  # the first that was found to have failed
    assert not on.entry("/var/lib/llamaherd/refused/llama-chat")


def test_the_switch_starts_it_with_a_document_of_its_own() -> None:
    on = host()
    start_probation(on, [CHAT])
    started = next(line for line in on.ran if line.startswith("systemd-run"))
    path = started.split()[-1]
    assert f"{on.program} {path}" in started
    assert on.files[path].mode == 0o600
    document = parse_document((on.read(path) or "").encode())
    assert isinstance(document, dict)
    assert document["verb"] == "serve.probation.watch"
    assert decode(ProbationInput, document["input"]).servers == (CHAT,)


class FullDisk(Watched):
    """A host whose disk takes nothing."""

    def write(self, path: str, text: str | bytes, *, mode: int = 0o600, owner: str = "root") -> None:
        del path, text, mode, owner
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_reported_and_fails_nothing() -> None:
    on = FullDisk({})
    start_probation(on, [CHAT])
    assert "No space left on device" in on.log[-1]
