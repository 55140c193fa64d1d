"""Whether the energy of a candidate's GPUs is known, by the meter's own program on this machine.

Faked are NVML (`tests/support/nvml_cards.c`) and nvidia-smi (`smi_stream.py`), which this machine lacks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llamaherd.bench.arms.units import Arm
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.plan import GpuRef, InstancePlan
from llamaherd.plan.server import ServerGpus
from llamaherd.tune.energy import energy_told, watched
from tests.bench.meter_lines import NEW
from tests.support import smi_stream
from tests.support.rigs import cpu_rig, planned
from tests.support.stores import needs_root

pytestmark = [needs_root, pytest.mark.skipif(not shutil.which("cc"), reason="there is no compiler")]

HERE = Connect(host=LOCAL)


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has two GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!{sys.executable} -I\n" + Path(smi_stream.__file__).read_text())
    program.chmod(0o755)
    source = Path(smi_stream.__file__).with_name("nvml_cards.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libnvidia-ml.so.1"), str(source)], check=True)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))


def instance(*at: str) -> InstancePlan:
    """An instance on these GPUs, which does not run."""
    chat = next(each for each in planned(cpu_rig()).instances if each.backend == "systemd")
    refs = tuple(GpuRef(name=f"gpu{number}", at=each) for number, each in enumerate(at))
    gpus = ServerGpus(cdi=(), at=refs, any_one=False, gate_seconds=0, wsl=False)
    return chat.model_copy(update={"server": chat.server.model_copy(update={"gpus": gpus})})


@pytest.mark.usefixtures("gpus")
def test_what_a_candidate_takes_is_counted_on_its_gpus() -> None:
    assert energy_told(HERE, instance(NEW)) == ((NEW,), None)
    with watched(HERE, Arm("C", "box/chat", instance(NEW))) as watch:
        assert watch.uuids == (NEW,)
        began = watch.begin()
        time.sleep(1)
        took = watch.end(began)
    assert took
    assert took.joules
    assert took.seconds == pytest.approx(1, abs=0.3)


@pytest.mark.usefixtures("gpus")
def test_a_gpu_that_is_not_there_tells_nothing() -> None:
    assert energy_told(HERE, instance("GPU-00000000-0000-0000-0000-000000000000")) == (
        (),
        "the host tells of no GPU that it is on",
    )


def test_without_a_driver_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PATH", os.pathsep.join(each for each in os.get_exec_path() if not Path(each, "nvidia-smi").exists())
    )
    _, said = energy_told(HERE, instance(NEW))
    assert said
    assert said.startswith("nothing is known of its GPUs: ")
