"""The role that holds GPUs on pyinfra's @fake connector: a virgin host, one that is as planned, and drifted ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from llamaherd.plan import Plan
from tests.support.fake import run
from tests.support.power import BOTH, OLD
from tests.support.rigs import GONE, Declared, cards, changed, converged, gpu_rig, planned

HOLDS = "power | limits, clocks and fans"
FILES = "base | accounts and files"
VIRGIN = [
    *("os\tubuntu-24.04", "arch\tx86_64", "systemd\tyes"),
    *(f"free\t/var/lib\t{10**12}\toverlay", f"store\t/var/lib\t{10**12}\toverlay\toverlay\trw"),
]


def declared(tmp_path: Path) -> Declared:
    """One instance of a model that is here, on an image: nothing to build, nothing to fetch."""
    model = tmp_path / "gemma.gguf"
    model.write_text("gemma")
    sha256 = hashlib.sha256(b"gemma").hexdigest()
    rig = changed(gpu_rig(), {f"instances/{name}": GONE for name in ("reasoner", "worker", "boxed")})
    rig["models"] = {"gemma": {"file": str(model), "sha256": sha256}}
    rig["engines"] = {"image": rig["engines"]["image"]}
    return rig


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return planned(declared(tmp_path), {**BOTH, OLD + "fans": "70%"})


@pytest.fixture
def bare(tmp_path: Path) -> Plan:
    return planned(declared(tmp_path))


def world_of(plan: Plan) -> list[str]:
    """A virgin host, but that its driver shows the GPUs."""
    return [*VIRGIN, *(f"card\t{line}" for line in cards(plan))]


def test_a_virgin_host_has_its_cards_held_before_it_serves(plan: Plan) -> None:
    ran = run(plan, world_of(plan))
    assert not ran.failed
    assert HOLDS in ran.changed
    assert ran.operations.index(HOLDS) < ran.operations.index("serve | small (compose)")
    (given,) = [each["input"] for each in ran.documents if each["verb"] == "power.apply"]
    assert given["restart"]
    paths = {each["path"] for each in given["files"]}
    assert {"/opt/llamaherd/libexec/gpu-power", "/opt/llamaherd/libexec/gpu-fans"} <= paths


def test_a_host_that_is_as_planned_is_left_alone(plan: Plan) -> None:
    ran = run(plan, converged(plan, {}))
    assert (ran.changed, ran.failed) == ([], False)
    assert ran.commands == ["inspect"], "one look for all"


def test_a_rig_that_declares_nothing_pays_nothing(bare: Plan) -> None:
    assert HOLDS not in run(bare, converged(bare, {})).operations


@pytest.mark.parametrize(
    "drift",
    [
        ("GPU-3090, 00000000:02:00.0, Enabled, 280.00", "GPU-3090, 00000000:02:00.0, Enabled, 350.00"),
        ("held\tGPU-5090\t450\t210,2400\ton", "held\tGPU-5090\t450\t-\ton"),
        ("power\tactive", "power\tfailed"),
        ("210, 70, NVIDIA", "210, 45, NVIDIA"),
        ("held\tGPU-3090\t280\t-\ton\t70", "held\tGPU-3090\t280\t-\ton"),
    ],
    ids=["a limit", "a lock", "the unit", "a fan speed", "a note of before there were fans"],
)
def test_a_drift_changes_what_it_concerns(plan: Plan, drift: tuple[str, str]) -> None:
    world = [line.replace(*drift) for line in converged(plan, {})]
    assert world != converged(plan, {})
    ran = run(plan, world)
    assert (ran.changed, ran.failed) == ([HOLDS], False)


def test_what_is_no_longer_declared_is_given_back(bare: Plan) -> None:
    ran = run(bare, [*converged(bare, {}), "power\tactive\tenabled\tno"])
    assert (ran.changed, ran.failed) == ([FILES], False)
    assert "power.remove" in [each["verb"] for each in ran.documents]


@pytest.mark.parametrize(
    ("world", "said"),
    [
        (["driver\tthere is no nvidia-smi"], "NVIDIA's driver does not respond: there is no nvidia-smi"),
        (
            ["card\tGPU-3090, 00000000:01:00.0, Enabled, 350.00, 350.00, 300.00, 366.00, 210, 30, GeForce RTX 3090"],
            "takes a power limit of 300 to 366 W, but the inventory declares 280 W",
        ),
    ],
    ids=["no driver", "out of range, and a card less"],
)
def test_what_cards_cannot_be_held_to_stops_it_before_anything_changes(
    plan: Plan, caplog: pytest.LogCaptureFixture, world: list[str], said: str
) -> None:
    ran = run(plan, [*VIRGIN, *world])
    assert (ran.failed, ran.changed) == (True, [])
    assert said in caplog.text
    assert ("GPU `new` (GPU-5090) is not in this host" in caplog.text) == (world[0].startswith("card"))
