"""The probation of a server: which observations roll it back, in which order, and what a kill leaves behind."""

from __future__ import annotations

import base64
import fcntl
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from llamaherd.history.release import Release
from roles.serve.transaction import transaction
from templates.serve import probation
from templates.serve.probation import Run, System, Watched
from tests.support.rigs import cpu_rig, planned

UP = "ActiveState=active\nSubState=running\nNRestarts=0\nMainPID=4711\n"
ENDED = "ActiveState=activating\nSubState=auto-restart\nNRestarts=0\nMainPID=0\n"
STARTED_AGAIN = "ActiveState=active\nSubState=running\nNRestarts=1\nMainPID=4712\n"
FAILED = "ActiveState=failed\nSubState=failed\nNRestarts=3\nMainPID=0\n"
LIMITED = "ActiveState=failed\nSubState=failed\nResult=start-limit-hit\nNRestarts=0\nMainPID=0\n"
STOPPED = "ActiveState=inactive\nSubState=dead\nResult=success\nNRestarts=0\nMainPID=0\n"
KILLED = "ActiveState=failed\nSubState=failed\nResult=timeout\nNRestarts=0\nMainPID=0\n"
"""Stopped by a person while it streamed: it did not end in time, and systemd killed it."""

OLD, NEW = "0000000000aa", "0000000000bb"


class KilledError(Exception):
    """The program was killed here."""


class Played(System):
    """A host whose clock is played. `unit` and `probe` return what systemd and the probe print at a second."""

    def __init__(
        self,
        unit: Callable[[float], str] = lambda _: UP,
        probe: Callable[[float], tuple[int, str]] = lambda _: (0, ""),
    ) -> None:
        self.at = 0.0
        self.ran: list[str] = []
        self.lines: list[str] = []
        self.unit, self.probe = unit, probe
        self.cpu = 0.0
        self.dies_at = -1
        self.old_runs = False
        self.start_code = 0
        self.after: dict[float, Callable[[], object]] = {}

    def run(self, argv: Sequence[str], _seconds: float = 30, text: str = "") -> tuple[int, str]:
        if argv[:2] == ["systemctl", "show"]:
            return 0, UP if self.old_runs else self.unit(self.at)
        if argv[:2] == ["docker", "inspect"]:
            return 0, self.unit(self.at)
        self.ran.append(" ".join(argv) if not text else f"{argv[0]} <<{text}")
        if len(self.ran) == self.dies_at:
            raise KilledError
        if argv[0].endswith("prove"):
            if self.old_runs:
                return 0, ""
            code, why = self.probe(self.at)
            self.at += float(argv[2]) if code == 3 else 0.1
            return code, why
        if argv[:2] == ["systemctl", "start"] or "up" in argv:
            self.old_runs = self.start_code == 0
            return self.start_code, ""
        return 0, ""

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        for second in [each for each in self.after if each <= self.at]:
            self.after.pop(second)()

    def computed(self, _pid: int) -> float:
        return self.cpu * self.at

    def log(self, line: str) -> None:
        self.lines.append(line)


def replaced_by(tmp_path: Path, service: str, *, new: bool = False) -> Watched:
    """A unit as a switch leaves it: both versions kept, unless it is a new server."""
    kept, unit, key = tmp_path / "kept" / service, tmp_path / f"{service}.unit", tmp_path / f"{service}.key"
    for folder, spec, was in (("a", OLD, "old"), ("b", NEW, "new")):
        (kept / folder).mkdir(parents=True)
        (kept / folder / "file").write_text(f"{was} unit")
        (kept / folder / "key").write_text(f"{was} key")
        (kept / folder / "asked").write_text("{}")
        how = f"was_kind=unit was_spec={spec} was_seconds=30 was_file={unit} was_key={key}\n"
        (kept / folder / "how").write_text(f"{how}was_inputs=''\"'\"'/k y'\"'\"' /m'\n")
    if not new:
        (kept / "before").symlink_to("a")
    (kept / "last").symlink_to("b")
    unit.write_text("new unit")
    key.write_text("new key")
    return Watched(
        service=service,
        kind="unit",
        spec=NEW,
        tried="try",
        instance=service.removeprefix("llama-"),
        user="root",
        kept=str(kept),
        refused=str(tmp_path / "refused" / service),
        releases=str(tmp_path / "releases"),
        locks=str(tmp_path / "locks"),
        lock_seconds=5,
        seconds=60,
        prompts=True,
        prove="/opt/prove",
        started="/opt/started",
        forget="",
    )


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    """A unit that a switch has replaced, on a host with a release and locks."""
    (tmp_path / "releases").mkdir()
    (tmp_path / "releases" / "7.json").write_text("{}")
    (tmp_path / "releases" / "7.plan").write_text("a plan")
    (tmp_path / "locks").mkdir()
    return replaced_by(tmp_path, "llama-chat")


def from_second(at: float, text: str) -> Callable[[float], str]:
    """A unit that runs until this second, and is in another state from then on."""
    return lambda now: UP if now < at else text


def restored(tmp_path: Path, service: str = "llama-chat") -> bool:
    files = [tmp_path / f"{service}.unit", tmp_path / f"{service}.key"]
    return [each.read_text() for each in files] == ["old unit", "old key"]


def test_a_server_that_works_keeps_its_place(watched: Watched, tmp_path: Path) -> None:
    host = Played()
    assert probation.watch([watched], host) == ""
    assert [line for line in host.ran if "prove" not in line] == []
    assert len(host.ran) == len(probation.PROBES)
    assert host.at >= 60
    assert not (Path(watched.kept) / "before").is_symlink()
    assert not (Path(watched.kept) / "a").exists()
    assert (Path(watched.kept) / "last").resolve().name == "b"
    assert (tmp_path / "llama-chat.unit").read_text() == "new unit"


@pytest.mark.parametrize("text", [ENDED, STARTED_AGAIN, FAILED, LIMITED])
@pytest.mark.parametrize("at", [0, 0.3, 4, 7, 30, 55])
def test_a_server_that_ends_is_rolled_back_within_a_second(
    watched: Watched, tmp_path: Path, at: float, text: str
) -> None:
    host = Played(unit=from_second(at, text))
    assert "it ended" in probation.watch([watched], host)
    assert host.at <= at + 1
    assert restored(tmp_path)
    tried, _, why = Path(watched.refused).read_text().rstrip("\n").split("\t")
    assert (tried, why[:8]) == ("try", "it ended")
    assert not (Path(watched.kept) / "untried").exists()
    assert (Path(watched.kept) / "last").resolve().name == "a"
    assert "serves again as before" in host.lines[-1]


def test_the_history_contains_the_rollback(watched: Watched) -> None:
    probation.watch([watched], Played(unit=from_second(1, ENDED)))
    text = (Path(watched.releases) / "8.json").read_text()
    release = Release.model_validate_json(text)
    assert '"failed":[]' not in text
    assert "serves again as before" in release.failed[0]
    assert (Path(watched.releases) / "8.plan").read_text() == "a plan"


@pytest.mark.parametrize("text", [STOPPED, KILLED])
def test_a_server_that_a_person_stops_is_left_alone(watched: Watched, tmp_path: Path, text: str) -> None:
    host = Played(unit=from_second(3, text))
    assert probation.watch([watched], host) == ""
    assert host.at < 5
    assert not restored(tmp_path)
    assert not Path(watched.refused).exists()


def test_a_server_that_another_run_has_changed_is_left_alone(watched: Watched, tmp_path: Path) -> None:
    host = Played(unit=from_second(20, ENDED))
    last = Path(watched.kept) / "b" / "how"
    last.write_text(last.read_text().replace(NEW, "0000000000cc"))
    assert probation.watch([watched], host) == ""
    assert not restored(tmp_path)


def test_a_server_that_another_run_restores_meanwhile_is_left_alone(watched: Watched, tmp_path: Path) -> None:
    """That run holds the lock: its own new version ended, and it has restored this one when it gives the lock back."""
    held = (tmp_path / "locks" / "host").open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    host = Played(unit=lambda at: ENDED if 2 <= at < 4 else UP)
    host.after = {5: lambda: fcntl.flock(held, fcntl.LOCK_UN)}
    assert probation.watch([watched], host) == ""
    assert not restored(tmp_path)
    held.close()


def test_systemd_that_does_not_respond_rolls_nothing_back(watched: Watched) -> None:
    assert probation.watch([watched], Played(unit=lambda _: "")) == ""


@pytest.mark.parametrize("first", probation.PROBES)
def test_a_server_whose_probes_fail_is_rolled_back(watched: Watched, tmp_path: Path, first: int) -> None:
    host = Played(probe=lambda at: (0, "") if at < first else (1, "a prompt is answered with nothing"))
    assert "a prompt is answered with nothing" in probation.watch([watched], host)
    assert host.at <= first + 3
    assert restored(tmp_path)


def test_one_failed_probe_rolls_nothing_back(watched: Watched) -> None:
    failures = iter([(1, "HTTP 500"), (0, "")] * 3)
    assert probation.watch([watched], Played(probe=lambda _: next(failures))) == ""


def test_a_server_that_hangs_is_rolled_back(watched: Watched, tmp_path: Path) -> None:
    host = Played(probe=lambda _: (3, "no response"))
    assert "it hangs" in probation.watch([watched], host)
    assert restored(tmp_path)
    assert host.at <= 5 + probation.SILENT + 1


def test_a_server_that_is_busy_with_its_clients_stays(watched: Watched, tmp_path: Path) -> None:
    """Its slots are taken, so it responds to no probe; but it computes."""
    host = Played(probe=lambda _: (3, "no response"))
    host.cpu = 0.9
    assert probation.watch([watched], host) == ""
    assert not restored(tmp_path)


def test_a_group_is_not_probed_with_prompts(watched: Watched) -> None:
    host = Played(probe=lambda _: (1, "not loaded"))
    assert probation.watch([replace(watched, prompts=False)], host) == ""
    assert not any("prove" in line for line in host.ran)


def test_a_previous_version_that_does_not_start_stays_untried(watched: Watched) -> None:
    host = Played(unit=from_second(1, ENDED))
    host.start_code = 1
    probation.watch([watched], host)
    assert "does not start either" in host.lines[-1]
    assert NEW in (Path(watched.kept) / "untried").read_text()
    assert not Path(watched.refused).exists()


def test_a_kill_at_any_step_leaves_the_new_version_untried(watched: Watched, tmp_path: Path) -> None:
    """So that the next run proves it before it counts, and goes back to the previous version if it fails."""
    whole = Played(unit=from_second(1, ENDED))
    before = shutil.copytree(tmp_path, tmp_path / "saved", symlinks=True)
    probation.watch([watched], whole)
    kept = Path(watched.kept)
    for step in range(1, len(whole.ran) + 1):
        for name in ("kept", "refused", "releases"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
            if (before / name).exists():
                shutil.copytree(before / name, tmp_path / name, symlinks=True)
        host = Played(unit=from_second(1, ENDED))
        host.dies_at = step
        with pytest.raises(KilledError):
            probation.watch([watched], host)
        assert NEW in (kept / "untried").read_text(), whole.ran[step - 1]
        assert (kept / "last").resolve().name == "a"
        assert (kept / "a" / "file").read_text() == "old unit"


def docker(status: str, restarts: int = 0) -> str:
    return json.dumps([{"Id": "x", "RestartCount": restarts, "State": {"Status": status, "Pid": 12}}])


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        (docker("running"), Run("up", 12)),
        (docker("running", 1), Run("died")),
        (docker("restarting", 1), Run("died")),
        (docker("exited"), Run("stopped")),
        (docker("paused"), Run("stopped")),
        ("", Run("up")),
        ("[]", Run("up")),
        ("{", Run("up")),
    ],
)
def test_states_of_a_container(watched: Watched, printed: str, found: Run) -> None:
    assert probation.inspect(replace(watched, kind="container"), Played(unit=lambda _: printed)) == found


def test_a_container_goes_back_to_the_unit_that_it_replaced(watched: Watched, tmp_path: Path) -> None:
    host = Played(unit=lambda _: docker("running", 1))
    moved = replace(watched, kind="container", forget="remove the container\n")
    probation.watch([moved], host)
    assert restored(tmp_path)
    assert "sh <<remove the container\n" in host.ran
    assert "systemctl start llama-chat.service" in host.ran


def test_servers_that_were_changed_together_go_back_together(watched: Watched, tmp_path: Path) -> None:
    other, new = replaced_by(tmp_path, "llama-code"), replaced_by(tmp_path, "llama-new", new=True)
    host = Played(unit=from_second(7, ENDED))
    assert probation.watch([other, watched, new], host)
    assert restored(tmp_path, "llama-chat")
    assert restored(tmp_path, "llama-code")
    stops = [n for n, line in enumerate(host.ran) if line.startswith("systemctl stop")]
    starts = [n for n, line in enumerate(host.ran) if line.startswith("systemctl start")]
    assert max(stops) < min(starts), host.ran
    assert "systemctl -q disable llama-new.service" in host.ran
    assert "systemctl start llama-new.service" not in host.ran
    assert Path(other.refused).exists()  # the first that was found to have failed
    assert not Path(watched.refused).exists()


def test_the_switch_describes_the_server_to_the_program() -> None:
    (instance,) = planned(cpu_rig()).instances[:1]
    given = transaction(instance, elsewhere=False, any_speed=False, beside={})
    (watched,) = (Watched(**each) for each in json.loads(base64.b64decode(given["probation"])))
    assert (watched.service, watched.spec) == (instance.service, instance.spec)
    assert watched.kept == str(given["kept"])
