"""A power limit and fans, held by a real unit of a real systemd in its real sandbox, by the real programs.

Faked is what NVIDIA's driver would bring: `nvidia-smi`, which keeps GPUs in a file, and the library that sets fans,
made from C on the host.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from box.cli import ROOT
from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.bench.job import PowerHold
from tests.box.bench import Bench, Declared
from tests.box.measuring.test_meter import connect
from tests.support.nvidia_smi import card

UUID = "GPU-5c1d2e7a-0b1f-4c0e-9a55-3f1f0a7c2b10"
# What a unit may write to that is no file system of the host's.
CARDS = "/dev/shm/cards.json"
PROGRAM = "/usr/local/bin/nvidia-smi"
FANS = "/dev/shm/fans"
LIBRARY = "/usr/local/lib/libnvidia-ml.so.1"
OWN, HELD = "0 0", "70 70"
"""What both fans are told: nothing, so that the GPU controls them, or a speed."""


@pytest.fixture
def fake(bench: Bench, tmp_path: Path) -> Iterator[Bench]:
    """The box, which believes that it has an RTX 3090."""
    (tmp_path / "cards.json").write_text(
        json.dumps({"cards": [card(UUID, "00000000:01:00.0", "NVIDIA GeForce RTX 3090", (350.0, 100.0, 366.0))]})
    )
    (tmp_path / "nvidia-smi").write_text(
        f"#!/bin/sh\nexport FAKE_CARDS={CARDS} FAKE_FANS={FANS}\n"
        'export RUNTIME_DIRECTORY="${RUNTIME_DIRECTORY:-/run/llamaherd/gpu-power}"\n'
        'exec python3 /usr/local/lib/nvidia_smi.py "$@"\n'
    )
    (tmp_path / "nvidia-smi").chmod(0o755)
    support = ROOT / "tests" / "support"
    for file, place in (
        (tmp_path / "nvidia-smi", PROGRAM),
        (support / "nvidia_smi.py", "/usr/local/lib/nvidia_smi.py"),
        (support / "nvml.c", "/usr/local/lib/nvml.c"),
    ):
        subprocess.run(["docker", "cp", "-q", str(file), f"{bench.host.name}:{place}"], check=True)
    # `docker cp` does not see what is mounted inside.
    bench.sh(f"cat >{CARDS} <<'END'\n{(tmp_path / 'cards.json').read_text()}\nEND")
    bench.sh(f"echo '{UUID} 30 100 0 {OWN}' >{FANS}")
    # g++ is there for engines, and brings gcc.
    warnings, soname = "-Wall -Wextra -Werror", LIBRARY.rpartition("/")[2]
    bench.sh(f"gcc {warnings} -shared -fPIC -Wl,-soname,{soname} -o {LIBRARY} /usr/local/lib/nvml.c && ldconfig")
    yield bench
    bench.declare(bench.rig())
    bench.deploy()
    bench.sh(f"rm -f {PROGRAM} /usr/local/lib/nvidia_smi.py /usr/local/lib/nvml.c {LIBRARY} {CARDS} {FANS}; ldconfig")


def limited(bench: Bench, watts: int | None, **more: str) -> Declared:
    """The rig with its GPU, which no instance is on."""
    rig = bench.rig()
    declared = {"model": "RTX 3090", "uuid": UUID, **more} | ({"power_limit": f"{watts}W"} if watts else {})
    return rig | {"gpus": {"cuda": "13.0", "cards": {"big": declared}}}


def limit(bench: Bench) -> float:
    """What the GPU is set to."""
    state: dict[str, Any] = json.loads(bench.sh(f"cat {CARDS}"))
    watts: float = state["cards"][0]["limit"]
    return watts


def test_a_power_limit_is_held(fake: Bench) -> None:
    """Set, kept, seen when somebody sets another, mended, kept over a reboot of the unit, and given back."""
    before = fake.running()
    fake.declare(limited(fake, 500))
    ended = fake.up()
    assert ended.code == 1, ended.output
    assert "takes a power limit of 100 to 366 W, but the inventory declares 500 W" in ended.output
    assert limit(fake) == 350

    fake.declare(limited(fake, 280))
    fake.finishes()
    assert limit(fake) == 280
    assert fake.sh("systemctl is-enabled llamaherd-gpu-power") == "enabled"

    fake.sh(f"{PROGRAM} -i {UUID} -pl 366")
    drifted = fake.herd("verify")
    assert drifted.code == 1, drifted.output
    assert "366" in drifted.output
    assert fake.deploy().code == 0
    assert limit(fake) == 280

    fake.declare(fake.rig())
    assert fake.deploy().code == 0
    assert limit(fake) == 350, "where no card is declared any more, too"
    assert fake.sh("systemctl list-unit-files -q llamaherd-gpu-power.service", check=False) == ""
    fake.unchanged(before)


GUARD = "systemctl is-active llamaherd-limits"


def comes_back(bench: Bench) -> None:
    """The GPU is held to what it was, and nothing of the measurement is left."""
    until = time.monotonic() + 300
    while time.monotonic() < until and bench.sh(GUARD, check=False) != "inactive":
        time.sleep(0.2)
    assert (bench.sh(GUARD, check=False), limit(bench)) == ("inactive", 350)


def test_limits_of_a_measurement_come_back(fake: Bench) -> None:
    """Whatever ends it: its end, a limit that no GPU takes, our ssh client killed, the script killed on the host."""
    with PowerHold(connect(fake), [UUID], (200, 300), 60) as holding:
        assert limit(fake) == 350, "nothing is changed before it is told to"
        holding.hold(200)
        assert (limit(fake), fake.sh(GUARD)) == (200, "active")
        holding.hold(None)
        assert limit(fake) == 350
        holding.hold(300)
        assert limit(fake) == 300
    comes_back(fake)
    with (
        pytest.raises(UserError, match="takes power limits from 100 to 366 W, not 400 W"),
        PowerHold(connect(fake), [UUID], (200, 400), 60),
    ):
        pass
    comes_back(fake)

    ours = PowerHold(connect(fake), [UUID], (200,), 60).__enter__()
    ours.hold(200)
    assert ours._shell
    ours._shell._process.kill()
    comes_back(fake)

    with PowerHold(connect(fake), [UUID], (200, 300), 60) as killed:
        killed.hold(200)
        fake.sh("kill -9 $(sed 's/process \\([0-9]*\\) .*/\\1/' /run/llamaherd/locks/host)")
        comes_back(fake)
        with pytest.raises(UserError):
            killed.hold(300)
    comes_back(fake)


def test_within_a_measurement_nobody_waits_for_its_host(fake: Bench) -> None:
    """Whoever measures has the lock of the host already, and a kill of it brings the limits back as well."""
    fake.sh("nohup flock /run/llamaherd/locks/host sleep 120 >/dev/null 2>&1 & sleep 0.5")
    try:
        with PowerHold(connect(fake), [UUID], (200, 300), 60, within=True) as holding:
            assert [each.now for each in holding.ranges] == [350]
            holding.hold(200)
            assert (limit(fake), fake.sh(GUARD)) == (200, "active")
        comes_back(fake)
        killed = PowerHold(connect(fake), [UUID], (200,), 60, within=True).__enter__()
        killed.hold(200)
        assert killed._shell
        killed._shell._process.kill()
        comes_back(fake)
    finally:
        fake.sh("kill $(pgrep -f '^sleep 120$')")


def test_without_its_guard_no_limit_is_set(fake: Bench) -> None:
    with PowerHold(connect(fake), [UUID], (200, 300), 60) as holding:
        holding.hold(200)
        fake.sh("systemctl stop llamaherd-limits")
        assert limit(fake) == 350
        with pytest.raises(UserError, match=r"its guard, llamaherd-limits\.service, has ended"):
            holding.hold(300)
        assert limit(fake) == 350


def told(bench: Bench) -> str:
    """What the fans are told."""
    return " ".join(bench.sh(f"cat {FANS}").split()[4:])


def test_fans_are_held(fake: Bench) -> None:
    """Refused by the GPU, set, seen when somebody else sets them, mended, set at every start, and given back."""
    before = fake.running()
    fake.declare(limited(fake, 280, fans="20%"))
    ended = fake.deploy()
    assert ended.code == 1, ended.output
    assert f"card {UUID} takes fan speeds of 30 to 100 %, not 20 %" in ended.output
    assert (told(fake), limit(fake)) == (OWN, 280)

    fake.declare(limited(fake, 280, fans="70%"))
    fake.finishes()
    assert told(fake) == HELD
    # After a boot nothing is held and no note is there.
    fake.sh(f"rm -rf /run/llamaherd/gpu-power/*; echo '{UUID} 30 100 0 {OWN}' >{FANS}")
    fake.sh("systemctl restart llamaherd-gpu-power")
    assert told(fake) == HELD

    fake.sh(f"echo '{UUID} 30 100 0 45 45' >{FANS}")
    drifted = fake.herd("verify")
    assert drifted.code == 1, drifted.output
    assert "its fans run at 45 %, declared are 70 %" in drifted.output
    fake.finishes()
    assert told(fake) == HELD

    # The limit stays, and with it the unit: fans alone are let go.
    fake.declare(limited(fake, 280))
    fake.finishes()
    assert (told(fake), limit(fake)) == (OWN, 280)

    fake.declare(limited(fake, None, fans="70%"))
    assert fake.deploy().code == 0
    assert (told(fake), limit(fake)) == (HELD, 350)
    fake.declare(limited(fake, None))
    fake.finishes()
    assert told(fake) == OWN
    assert fake.sh("ls /opt/llamaherd/libexec/gpu-fans", check=False) == ""
    fake.unchanged(before)
