"""The program that sets fans: its exit codes and sentences. Faked is NVIDIA's library, as `ctypes.CDLL` gives it."""

from __future__ import annotations

import ctypes
import json
import time
from pathlib import Path
from typing import Any

import pytest

from roles.power.onhost import gpu_fans
from tests.support import nvidia_smi, nvml

CARD = nvidia_smi.card("GPU-3090", "00000000:01:00.0", "NVIDIA GeForce RTX 3090", None)
FAILED, MISUSED, NO_FANS, OUT_OF_RANGE = 1, 2, 3, 4


class Bench:
    """A host with one GPU, and the program beside it."""

    def __init__(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.file, self.capsys = file, capsys
        self.put()

    def put(self, *, state: dict[str, Any] | None = None, **card: Any) -> None:
        """The GPU is otherwise, or the host is."""
        self.file.write_text(json.dumps({"cards": [CARD | card], **(state or {})}))

    def run(self, *arguments: str) -> tuple[int, str]:
        """How the program ended, and what it said."""
        code = gpu_fans.main(list(arguments))
        out, err = self.capsys.readouterr()
        assert out == ""
        return code, err

    @property
    def fans(self) -> list[int | None]:
        """What the fans are told."""
        fans: list[int | None] = json.loads(self.file.read_text())["cards"][0]["fans"]
        return fans


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    monkeypatch.setenv("FAKE_CARDS", str(tmp_path / "cards.json"))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(ctypes, "CDLL", nvml.Library)
    # Fans take their time, tests do not: each time that one waits, a second has gone.
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda _: clock.append(clock.pop() + 1.0))
    return Bench(tmp_path / "cards.json", capsys)


def test_fans_are_held_and_given_back(bench: Bench) -> None:
    assert (bench.run("GPU-3090", "70"), bench.fans) == ((0, ""), [70, 70])
    assert (bench.run("GPU-3090", "auto"), bench.fans) == ((0, ""), [None, None])
    assert (bench.run("GPU-3090", "auto"), bench.fans) == ((0, ""), [None, None])


@pytest.mark.parametrize("arguments", [(), ("GPU-3090",), ("GPU-3090", "0"), ("GPU-3090", "101"), ("GPU-3090", "²")])
def test_anything_else_is_refused(bench: Bench, arguments: tuple[str, ...]) -> None:
    said = "gpu-fans UUID PERCENT, from 1 to 100, or gpu-fans UUID auto\n"
    assert (bench.run(*arguments), bench.fans) == ((MISUSED, said), [None, None])


NONE = "card GPU-3090 has no fans that can be set"
CASES: dict[str, tuple[dict[str, Any], str, tuple[int, str]]] = {
    "too slow": ({}, "20", (OUT_OF_RANGE, "card GPU-3090 takes fan speeds of 30 to 100 %, not 20 %")),
    "too fast": ({"fan_range": [0, 80]}, "90", (OUT_OF_RANGE, "card GPU-3090 takes fan speeds of 0 to 80 %, not 90 %")),
    "no fans": ({"fans": []}, "70", (NO_FANS, NONE)),
    "no fans to give back": ({"fans": []}, "auto", (NO_FANS, NONE)),
    "cannot be counted": ({"fan_errors": {"nvmlDeviceGetNumFans": 3}}, "70", (NO_FANS, NONE)),
    "cannot be set": ({"fan_errors": {"nvmlDeviceSetFanSpeed_v2": 3}}, "70", (NO_FANS, NONE)),
    "another card": (
        {"uuid": "GPU-5090"},
        "70",
        (FAILED, "nvmlDeviceGetHandleByUUID of card GPU-3090 failed: Not Found"),
    ),
    "not allowed": (
        {"fan_errors": {"nvmlDeviceSetFanSpeed_v2": 4}},
        "70",
        (FAILED, "nvmlDeviceSetFanSpeed_v2 of card GPU-3090 failed: Insufficient Permissions"),
    ),
    "not given back": (
        {"fan_errors": {"nvmlDeviceSetDefaultFanSpeed_v2": 999}},
        "auto",
        (FAILED, "nvmlDeviceSetDefaultFanSpeed_v2 of card GPU-3090 failed: Unknown Error"),
    ),
    "cannot be read back": (
        {"fan_errors": {"nvmlDeviceGetTargetFanSpeed": 999}},
        "70",
        (FAILED, "nvmlDeviceGetTargetFanSpeed of card GPU-3090 failed: Unknown Error"),
    ),
    "no target, and the speed is right": ({"fan_errors": {"nvmlDeviceGetTargetFanSpeed": 3}}, "70", (0, "")),
    "no target, and the speed is another": (
        {"fan_errors": {"nvmlDeviceGetTargetFanSpeed": 3}, "fan_at": 30},
        "70",
        (FAILED, "fans of card GPU-3090 run at 30 %, 30 %, not at 70 %"),
    ),
    # Told they are: what they do of it, whoever looks later sees.
    "they take their time": ({"fan_at": 45}, "70", (0, "")),
}


@pytest.mark.parametrize("case", CASES)
def test_what_becomes_of_it_is_said(bench: Bench, case: str) -> None:
    card, speed, (code, said) = CASES[case]
    bench.put(**card)
    assert bench.run("GPU-3090", speed) == (code, f"{said}\n" if said else "")
    if code == OUT_OF_RANGE:
        assert bench.fans == [None, None]


def test_fans_that_are_told_something_else_are_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that says yes and does nothing."""
    monkeypatch.setattr(nvml.Library, "_tell", lambda *_: None)
    assert bench.run("GPU-3090", "70") == (FAILED, "fans of card GPU-3090 are set to 30 %, 30 %, not 70 %\n")


@pytest.mark.parametrize(
    ("state", "ends", "said"),
    [
        (
            {"missing": "libnvidia-ml.so.1"},
            NO_FANS,
            "NVIDIA's driver is not installed here: libnvidia-ml.so.1: cannot open shared object file: No such file",
        ),
        ({"broken": "whatever"}, FAILED, "NVIDIA's driver does not respond: Driver Not Loaded\n"),
        (
            {"missing": "nvmlDeviceGetMinMaxFanSpeed"},
            FAILED,
            "NVIDIA's driver is too old to set fans: it has no nvmlDeviceGetMinMaxFanSpeed\n",
        ),
    ],
    ids=["no driver", "not loaded", "too old"],
)
def test_a_driver_that_cannot_is_said(bench: Bench, state: dict[str, Any], ends: int, said: str) -> None:
    bench.put(state=state)
    code, words = bench.run("GPU-3090", "70")
    assert code == ends
    assert words.startswith(said)


def test_a_driver_that_tells_no_targets_sets_fans_all_the_same(bench: Bench) -> None:
    bench.put(state={"missing": "nvmlDeviceGetTargetFanSpeed"})
    assert (bench.run("GPU-3090", "70"), bench.fans) == ((0, ""), [70, 70])
