"""A power limit, held by a real unit of a real systemd. Faked is `nvidia-smi` alone, which keeps cards in a file."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llamaherd.box.cli import ROOT
from tests.box.bench import Bench, Declared
from tests.support.nvidia_smi import card

pytestmark = pytest.mark.box

UUID = "GPU-5c1d2e7a-0b1f-4c0e-9a55-3f1f0a7c2b10"
# What a unit may write to that is no file system of the host's.
CARDS = "/dev/shm/cards.json"
PROGRAM = "/usr/local/bin/nvidia-smi"


@pytest.fixture
def fake(bench: Bench, tmp_path: Path) -> Iterator[Bench]:
    """The box, which believes that it has an RTX 3090."""
    (tmp_path / "cards.json").write_text(
        json.dumps({"cards": [card(UUID, "00000000:01:00.0", "NVIDIA GeForce RTX 3090", (350.0, 100.0, 366.0))]})
    )
    (tmp_path / "nvidia-smi").write_text(
        f'#!/bin/sh\nexport FAKE_CARDS={CARDS} RUNTIME_DIRECTORY="${{RUNTIME_DIRECTORY:-/run/llamaherd/gpu-power}}"\n'
        'exec python3 /usr/local/lib/nvidia_smi.py "$@"\n'
    )
    (tmp_path / "nvidia-smi").chmod(0o755)
    source = ROOT / "tests" / "support" / "nvidia_smi.py"
    for file, place in ((tmp_path / "nvidia-smi", PROGRAM), (source, "/usr/local/lib/nvidia_smi.py")):
        subprocess.run(["docker", "cp", "-q", str(file), f"{bench.host.name}:{place}"], check=True)
    # `docker cp` does not see what is mounted inside.
    bench.sh(f"cat >{CARDS} <<'END'\n{(tmp_path / 'cards.json').read_text()}\nEND")
    yield bench
    bench.declare(bench.rig())
    bench.deploy()
    bench.sh(f"rm -f {PROGRAM} /usr/local/lib/nvidia_smi.py {CARDS}")


def limited(bench: Bench, watts: int | None) -> Declared:
    """The rig with its card, which no instance is on."""
    rig = bench.rig()
    declared = {"model": "RTX 3090", "uuid": UUID} | ({"power_limit": f"{watts}W"} if watts else {})
    return rig | {"gpus": {"cuda": "13.0", "cards": {"big": declared}}}


def limit(bench: Bench) -> float:
    """What the card is set to."""
    state: dict[str, Any] = json.loads(bench.sh(f"cat {CARDS}"))
    watts: float = state["cards"][0]["limit"]
    return watts


def test_a_power_limit_is_held(fake: Bench) -> None:
    """Set, kept, seen when somebody sets another, mended, kept over a reboot of the unit, and given back."""
    before = fake.running()
    fake.declare(limited(fake, 500))
    ended = fake.up()
    assert ended.code == 1, ended.output
    assert "takes a power limit of 100 to 366 W, the inventory says 500 W" in ended.output
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

    fake.declare(limited(fake, None))
    assert fake.deploy().code == 0
    assert limit(fake) == 350
    assert fake.sh("systemctl list-unit-files -q llamaherd-gpu-power.service", check=False) == ""
    fake.unchanged(before)
