"""The roles of CUDA toolkit and Docker on pyinfra's @fake connector: virgin, as planned, and drifted hosts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from llamaherd.deploy import commands
from llamaherd.plan import Plan
from llamaherd.reference.packages import COMPOSE_PACKAGES
from tests.support.fake import run
from tests.support.rigs import DOCKER_UNITS, GONE, Declared, changed, converged, gpu_rig, planned

CUDA = "cuda_toolkit | CUDA 13.0"
DOCKER = "container_runtime | Docker and Compose"
CARDS = "container_runtime | GPUs for containers"
SYSTEMS = sorted(COMPOSE_PACKAGES)


def declared(folder: Path, system: str) -> Declared:
    """A server that is built with CUDA, one in a container on a GPU, one in a container without; a model from here."""
    model = folder / "gemma.gguf"
    model.write_text("gemma")
    sha256 = hashlib.sha256(b"gemma").hexdigest()
    rig = changed(gpu_rig(), {f"instances/{name}": GONE for name in ("reasoner", "worker")})
    rig["host"]["os"] = system
    rig["models"] = {"gemma": {"file": str(model), "sha256": sha256}}
    rig["engines"] = {name: rig["engines"][name] for name in ("main", "image")}
    rig["instances"]["boxed"] |= {"engine": "image"}
    rig["instances"]["built"] = {"engine": "main", "model": "gemma", "on": ["new"], "context": 4096, "port": 8001}
    return rig


@pytest.fixture(params=SYSTEMS)
def plan(request: pytest.FixtureRequest, tmp_path: Path) -> Plan:
    return planned(declared(tmp_path, request.param))


def virgin(plan: Plan) -> list[str]:
    return [
        *(f"os\t{plan.os}", "arch\tx86_64", "systemd\tyes"),
        *(f"free\t/var/lib\t{10**12}\toverlay", f"store\t/var/lib\t{10**12}\toverlay\toverlay\trw"),
    ]


def test_a_virgin_host_gets_both_before_what_needs_them(plan: Plan) -> None:
    ran = run(plan, virgin(plan))
    assert not ran.failed
    assert {CUDA, DOCKER, CARDS} <= set(ran.changed)
    order = [ran.operations.index(name) for name in (CUDA, DOCKER, CARDS, "serve | boxed (compose)")]
    assert order == sorted(order)
    assert ran.operations.index(CUDA) < min(n for n, name in enumerate(ran.operations) if name.startswith("engines |"))


def test_a_host_that_is_as_planned_is_left_alone(plan: Plan) -> None:
    ran = run(plan, converged(plan, {}))
    assert (ran.changed, ran.failed) == ([], False)
    assert ran.commands == ["inspect"], "one look for all"


DOCKER_UNIT = "\t".join(("docker", *DOCKER_UNITS[0]))


@pytest.mark.parametrize(
    ("line", "instead", "changes"),
    [
        ("toolkit\t13.0", None, CUDA),
        (DOCKER_UNIT, DOCKER_UNIT.replace("active", "inactive"), DOCKER),
        ("docker\ttoolkit\tlibnvidia-container1\t1.20.0-1\tinstalled", None, CARDS),
        ("docker\tdevice\tnvidia.com/gpu=GPU-5090", None, CARDS),
    ],
    ids=["the toolkit is gone", "Docker does not run", "a package is gone", "a card is not described"],
)
def test_a_drift_changes_what_it_concerns(tmp_path: Path, line: str, instead: str | None, changes: str) -> None:
    plan = planned(declared(tmp_path, "debian-13"))
    world = converged(plan, {})
    assert line in world
    drifted = [instead if each == line else each for each in world if each != line or instead]
    ran = run(plan, [each for each in drifted if each is not None])
    assert (ran.changed, ran.failed) == ([changes], False)


@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ("docker\tpackage\tdocker.io\t26.1.5+dfsg1-9+deb13u1", "docker\tsnap", "is a snap"),
        ("toolkit\t13.0", "toolkit\t12.8", "is of CUDA 12.8"),
        ('["/etc/cdi", "/var/run/cdi"]', "[]", "these run: llama-boxed, llama-small"),
    ],
    ids=["a snap", "another toolkit", "containers in the way"],
)
def test_what_stands_in_the_way_is_said_before_anything_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str, instead: str, said: str
) -> None:
    plan = planned(declared(tmp_path, "debian-13"))
    world = [each.replace(line, instead) for each in converged(plan, {})]
    assert world != converged(plan, {})
    ran = run(plan, world)
    assert (ran.failed, ran.changed) == (True, [])
    assert said in caplog.text


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, list[str]]:
    """A host as planned, but that Docker does not run; no time passes but what is slept."""
    slept: list[float] = []
    monkeypatch.setattr(commands, "sleep", slept.append)
    monkeypatch.setattr(commands, "monotonic", lambda: sum(slept))
    plan = planned(declared(tmp_path, "debian-13"))
    return plan, [line.replace("active", "inactive") if line == DOCKER_UNIT else line for line in converged(plan, {})]


def is_login(script: str) -> bool:
    """Whether it is what only a login of its own runs."""
    return '"verb":"base.disarm_undo"' in script


def test_what_may_cut_the_line_is_armed_first_and_disarmed_by_a_login(stopped: tuple[Plan, list[str]]) -> None:
    ran = run(*stopped)
    assert (ran.changed, ran.failed) == ([DOCKER], False)
    change, login, _release = ran.steps
    given = json.loads(change)
    assert given["verb"] == "container_runtime.install"
    assert given["input"] == {"packages": [], "within": {"longest": 3600, "login": 120}}
    assert is_login(login)


def test_a_host_that_was_faster_than_the_login_fails_with_what_it_did(
    stopped: tuple[Plan, list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    plan, world = stopped
    ran = run(plan, world, {"python3 -I base.disarm_undo": ["undone"]})
    assert ran.failed
    assert "undid the change by itself: Docker is stopped, and does not start at boot any more" in caplog.text
    assert "see how you reach this host" in caplog.text


def test_a_host_that_lets_nobody_in_again_fails_after_a_while(
    stopped: tuple[Plan, list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    ran = run(*stopped, broken=is_login)
    assert ran.failed
    assert "no new login comes through since this, and not within 420 s either" in caplog.text
    assert caplog.text.count("waiting for this host to take it back") == 1 + 420 // commands.TELL_SECONDS


def test_what_an_earlier_run_has_left_armed_is_disarmed(tmp_path: Path) -> None:
    plan = planned(declared(tmp_path, "debian-13"))
    ran = run(plan, [*converged(plan, {}), "docker\tarmed"])
    assert (ran.changed, ran.failed) == ([DOCKER], False)
    nothing, login, _release = ran.steps
    assert json.loads(nothing)["verb"] == "container_runtime.confirm"
    assert is_login(login)
