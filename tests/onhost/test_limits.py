"""Power limits during a measurement: what is set, what is refused, and that the limits before are restored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from llamaherd.layout import LIMITS_GUARD, LIMITS_RUN
from llamaherd.onhost.document import decode, parse_document
from llamaherd.onhost.reservation import LimitsInput, RestoreInput, hold_limits, query_gpu, restore_limits, set_limits
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError, HeldError
from llamaherd.onhost.verbs import find_verb, perform
from tests.support.played_host import File
from tests.support.recording import RecordingHost

pytestmark = pytest.mark.usefixtures("starts_processes")  # a thread waits

OLD, NEW = "GPU-3090", "GPU-5090"
GIVEN = LimitsInput((OLD, NEW), 1500)
HOSTILE = ("", "$(id)", "a; id", "'", '"', "a\nb", "`id`", "-h", "ä \\")


@dataclass
class Gpus(RecordingHost):
    """A host with GPUs, and a guard that runs from its start to its stop."""

    watts: dict[str, str] = field(default_factory=lambda: {OLD: "350.00", NEW: "575.00"})
    refuses: bool = False
    guarded: bool = False
    hangs: bool = False

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Play nvidia-smi and the guard."""
        ended = super().run(argv, seconds=seconds, text=text, environment=environment)
        match [*argv]:
            case ["nvidia-smi", "-i", uuid, "-pl", watts]:
                assert seconds == 60
                if self.refuses:
                    return Ended(4, "\nInsufficient Permissions\n")
                self.watts[uuid] = f"{float(watts):.2f}"
                return Ended(0, "All done.\n")
            case ["nvidia-smi", "-i", uuid, "--query-gpu=power.limit", "--format=csv,noheader,nounits"]:
                return Ended(TIMED_OUT) if self.hangs else Ended(0, f"{self.watts[uuid]}\n")
            case ["nvidia-smi", "-i", _, what, _]:
                return Ended(0, "100.00\n" if "min" in what else "[N/A]\n")
            case ["systemd-run", *_] if ended.ok:
                self.guarded = True
            case ["systemctl", "stop", unit]:
                assert unit == LIMITS_GUARD
                self._restore()
            case ["systemctl", "-q", "is-active", unit]:
                return Ended(0 if self.guarded else 3)
        return ended

    def _restore(self) -> None:
        """Do what systemd does once the guard has ended."""
        if self.guarded:
            self.guarded = False
            perform(parse_document(self.files[f"{LIMITS_RUN}/restore.json"].text.encode()), self)
            self.remove(str(LIMITS_RUN))


def gpus(*sent: str) -> Gpus:
    """Return a host, and what the controller sends."""
    host = Gpus({})
    host.files[host.program] = File("the program")
    host.lines = iter(sent)
    return host


def test_limits_are_set_one_after_another_and_restored() -> None:
    host = gpus("hold 200", "free", "hold 300", "nonsense", "hold $(id)", "")
    find_verb("llamaherd.reservation.hold_limits").run(GIVEN, host)
    assert host.log == [
        f"gpu {OLD} 350.00 100.00 ",
        f"gpu {NEW} 575.00 100.00 ",
        "armed",
        "held 200",
        "free",
        "held 300",
    ]
    assert host.watts == {OLD: "350.00", NEW: "575.00"}
    assert not [path for path in host.files if path.startswith(str(LIMITS_RUN))]
    assert (host.held, host.holders) == (set(), {})


def test_the_guard_is_there_before_a_limit_is_set() -> None:
    host = gpus("hold 200")
    hold_limits(GIVEN, host)
    (guard,) = (each for each in host.done if each[0] == "systemd-run")
    assert guard[1:5] == [
        "-q",
        "--collect",
        f"--unit={LIMITS_GUARD}",
        "--description=Restores power limits after a measurement",
    ]
    program, document = f"{LIMITS_RUN}/program.pyz", f"{LIMITS_RUN}/restore.json"
    assert guard[5:] == [
        *("-p", "Type=exec", "-p", "RuntimeMaxSec=1500"),
        *("-p", f"ExecStopPost=/usr/bin/python3 -I {program} {document}"),
        *("-p", f"ExecStopPost=/bin/rm -rf {LIMITS_RUN}"),
        *("flock", "/run/llamaherd/locks/limits", "true"),
    ]
    first = next(at for at, each in enumerate(host.done) if "-pl" in each)
    assert host.done.index(["write", document]) < host.done.index(guard) < first
    # The guard of an earlier measurement has ended before its folder is used again.
    assert host.done.index(["systemctl", "stop", LIMITS_GUARD]) == 0


def test_what_ends_it_restores_the_limits() -> None:
    host = gpus("hold 200")

    def end() -> str:
        assert host.watts == {OLD: "200.00", NEW: "200.00"}
        raise SystemExit(1)

    host.lines = iter(["hold 200", end])
    with pytest.raises(SystemExit):
        hold_limits(GIVEN, host)
    assert host.watts == {OLD: "350.00", NEW: "575.00"}


def noted(host: Gpus, held: list[set[str]]) -> str:
    """Note which locks are held."""
    held.append(set(host.held))
    return "free"


def test_the_lock_of_the_host_is_held_unless_a_measurement_has_it() -> None:
    for within in (False, True):
        host = gpus()
        held: list[set[str]] = []
        host.lines = iter([partial(noted, host, held)])
        hold_limits(LimitsInput((OLD,), 60, within=within), host)
        assert held == [{"limits"} if within else {"host", "limits"}]


def test_another_measurement_that_sets_limits() -> None:
    host = gpus("hold 200")
    host.holders["limits"] = ""
    with pytest.raises(HeldError, match="another measurement sets the power limits of this host"):
        hold_limits(GIVEN, host)
    assert host.watts == {OLD: "350.00", NEW: "575.00"}
    assert not host.has_done("-pl")


def test_without_its_guard_no_limit_is_set() -> None:
    host = gpus()
    assert set_limits(host, (OLD,), 200) == f"its guard, {LIMITS_GUARD}, has ended"
    assert not host.has_done("-pl")
    host.ends["systemd-run"] = Ended(1, "", "Unit is loaded already\n")
    host.lines = iter(["hold 200"])
    with pytest.raises(FailedError, match="cannot be started; nothing was changed") as raised:
        hold_limits(GIVEN, host)
    assert raised.value.log == ("Unit is loaded already",)
    assert not host.has_done("-pl")


def test_a_program_that_cannot_be_copied_changes_nothing() -> None:
    host = gpus("hold 200")
    del host.files[host.program]
    with pytest.raises(FailedError, match="nothing was changed"):
        hold_limits(GIVEN, host)
    assert not host.has_done("-pl")


def test_a_limit_that_a_gpu_does_not_take() -> None:
    host = gpus("hold 200")
    host.refuses = True
    hold_limits(GIVEN, host)
    assert host.log[3] == f"failed GPU {OLD} is not limited to 200 W: Insufficient Permissions"
    assert host.log[4:] == [f"GPU {uuid} was limited to {host.watts[uuid]} W, and is no longer" for uuid in (OLD, NEW)]


def test_a_gpu_without_a_limit_is_reported_and_not_restored() -> None:
    host = gpus("hold 200")
    host.watts[NEW] = "[N/A]"
    host.refuses = True
    hold_limits(GIVEN, host)
    assert host.log[1] == f"gpu {NEW} - 100.00 "
    assert [each for each in host.done if each[-2:] == ["-pl", "575.00"]] == []


@pytest.mark.parametrize("printed", [*HOSTILE, "1e9", "-1", "inf", "nan", "350.00\n350.00", "350.00; id"])
def test_what_is_no_number_is_none(printed: str) -> None:
    host = gpus()
    host.watts[OLD] = printed
    assert query_gpu(host, OLD, "power.limit") == ""


def test_a_driver_that_hangs_reports_nothing() -> None:
    host = gpus()
    host.watts[OLD] = "350.00"
    host.hangs = True
    assert query_gpu(host, OLD, "power.limit") == ""


@pytest.mark.parametrize("uuid", HOSTILE)
def test_no_shell_reads_a_uuid(uuid: str) -> None:
    host = gpus()
    host.watts = {uuid: "350.00"}
    restored = decode(RestoreInput, json.loads(json.dumps({"watts": {uuid: "300.00"}})))
    restore_limits(restored, host)
    assert host.done == [["nvidia-smi", "-i", uuid, "-pl", "300.00"]]
