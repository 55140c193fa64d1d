"""Whether the energy of a candidate's GPUs is known, by the meter's own program on this machine.

Faked are NVML (`tests/support/nvml_cards.c`) and nvidia-smi (`smi_stream.py`), which this machine lacks.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.measure.trials.trial import Variant
from llamaherd.measure.tune.evaluation import probe_energy, watch_gpus
from llamaherd.plan import GpuRef, InstancePlan
from llamaherd.plan.instance import ServerGpus
from tests.bench.meter_lines import NEW
from tests.support.rigs import cpu_rig, planned
from tests.support.stores import needs_root
from tests.support.told_gpus import put_gpus

pytestmark = needs_root

HERE = Connect(host=LOCAL)


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has two GPUs."""
    put_gpus(tmp_path, monkeypatch)


def instance(*at: str) -> InstancePlan:
    """An instance on these GPUs, which does not run."""
    chat = next(each for each in planned(cpu_rig()).instances if each.backend == "systemd")
    refs = tuple(GpuRef(name=f"gpu{number}", at=each) for number, each in enumerate(at))
    gpus = ServerGpus(cdi=(), at=refs, any_one=False, gate_seconds=0, wsl=False)
    return chat.model_copy(update={"server": chat.server.model_copy(update={"gpus": gpus})})


@pytest.mark.usefixtures("gpus")
def test_what_a_candidate_takes_is_counted_on_its_gpus() -> None:
    assert probe_energy(HERE, instance(NEW)) == ((NEW,), None)
    with watch_gpus(HERE, Variant("C", "box/chat", instance(NEW))) as watch:
        assert watch.uuids == (NEW,)
        began = watch.begin()
        time.sleep(1)
        took = watch.end(began)
        longest = time.monotonic() - began
    assert took
    assert took.joules
    assert 0.9 < took.seconds < longest + 0.1


@pytest.mark.usefixtures("gpus")
def test_a_gpu_that_is_not_there_tells_nothing() -> None:
    assert probe_energy(HERE, instance("GPU-00000000-0000-0000-0000-000000000000")) == (
        (),
        "the host reports no GPU that it is on",
    )


def test_without_a_driver_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PATH", os.pathsep.join(each for each in os.get_exec_path() if not Path(each, "nvidia-smi").exists())
    )
    _, said = probe_energy(HERE, instance(NEW))
    assert said
    assert said.startswith("nothing is known of its GPUs: ")
