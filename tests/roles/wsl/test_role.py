"""The role for WSL on pyinfra's @fake connector: a virgin host, one that is as planned, and drifted ones."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from llamaherd.plan import Plan
from tests.support.fake import run
from tests.support.rigs import GONE, PROFILE, converged, gpu_rig, planned

WRITES = "wsl | .wslconfig, wsl.conf and scripts"
VIRGIN = [
    *("os\tubuntu-24.04", "arch\tx86_64", "wsl\trelease\t6.6.87.2-microsoft-standard-WSL2"),
    *(f"free\t/var/lib\t{10**12}\toverlay", f"store\t/var/lib\t{10**12}\toverlay\toverlay\trw"),
    *(f"wsl\tprofile\t{PROFILE}\tno", f"wsl\tmachine\t1000\t{32 << 20}\t32"),
]

LATIN = base64.b64encode(b"# Gr\xfc\xdfe").decode()


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A GPU whose power is limited, and one instance on an image: nothing to build, nothing to fetch."""
    model = tmp_path / "gemma.gguf"
    model.write_text("gemma")
    changes: dict[str, object] = {f"instances/{name}": GONE for name in ("reasoner", "worker", "boxed")}
    changes["models"] = {"gemma": {"file": str(model), "sha256": hashlib.sha256(b"gemma").hexdigest()}}
    changes["engines"] = {"image": gpu_rig()["engines"]["image"]}
    changes["host/wsl"] = {"memory": "64GB", "networking": "mirrored"}
    changes["gpus/cards/new/power_limit"] = "450W"
    changes["instances/small/listen"] = "0.0.0.0"
    return planned(gpu_rig(), changes)


def test_a_virgin_host_is_written_to_before_anything_is_built(plan: Plan, caplog: pytest.LogCaptureFixture) -> None:
    ran = run(plan, [*VIRGIN, "systemd\tyes"])
    assert not ran.failed
    assert ran.operations.index(WRITES) == ran.operations.index("base | accounts and files") + 1
    assert WRITES in ran.changed
    (given,) = [each["input"] for each in ran.documents if each["verb"] == "wsl.write"]
    paths = [each["path"] for each in given["files"]]
    for name in ("gpu-power.ps1", "port-proxy.ps1", "autostart.ps1"):
        assert f"{PROFILE}/llamaherd/{name}" in paths
        assert f'powershell -ExecutionPolicy Bypass -File "$HOME\\llamaherd\\{name}"' in caplog.text
    assert "/etc/wsl.conf" in paths
    assert "`wsl --shutdown` in Windows ends all distributions" in caplog.text
    everything = "\n".join(ran.steps)
    assert "wsl --shutdown" not in everything
    assert "nvidia-driver" not in everything


def test_a_host_that_is_as_planned_is_left_alone(plan: Plan, caplog: pytest.LogCaptureFixture) -> None:
    ran = run(plan, converged(plan, {}))
    assert (ran.changed, ran.failed) == ([], False)
    assert ran.commands == ["inspect"], "one look for all"
    assert "Windows" not in caplog.text


def drifted(content: bytes) -> Callable[[str], str]:
    """Somebody wrote another `.wslconfig`."""
    text = base64.b64encode(content).decode()
    return lambda line: f"{line.rpartition(chr(9))[0]}\t{text}" if ".wslconfig" in line else line


DRIFTS: dict[str, Callable[[str], str]] = {
    "a key of ours has another value": drifted(b"[wsl2]\nmemory=8GB\n"),
    "the file is gone": lambda line: "" if ".wslconfig" in line else line,
    "a script is gone": lambda line: "" if "gpu-power.ps1" in line else line,
    "wsl.conf has lost systemd": lambda line: "" if "wsl.conf" in line else line,
}


@pytest.mark.parametrize("case", DRIFTS)
def test_a_drift_changes_that_alone(plan: Plan, case: str) -> None:
    world = [line for line in map(DRIFTS[case], converged(plan, {})) if line]
    ran = run(plan, world)
    assert (ran.changed, ran.failed) == ([WRITES], False)


def test_what_is_left_for_people_is_no_change(plan: Plan, caplog: pytest.LogCaptureFixture) -> None:
    """The virtual machine is older than the file: a run changes nothing, and says it again."""
    world = [
        f"wsl\tmachine\t1000\t{32 << 20}\t32" if line.startswith("wsl\tmachine") else line
        for line in converged(plan, {})
    ]
    ran = run(plan, world)
    assert (ran.changed, ran.failed) == ([], False)
    assert caplog.text.count("is newer than the virtual machine that runs") == 1


def test_without_systemd_the_run_ends_after_it_is_switched_on(plan: Plan) -> None:
    ran = run(plan, VIRGIN)
    assert WRITES in ran.operations
    assert "wsl.require_systemd" in [each["verb"] for each in ran.documents]


@pytest.mark.parametrize(
    ("world", "words"),
    [
        ([line for line in VIRGIN if not line.startswith("wsl")], "under WSL 2, and this host is none"),
        ([line for line in VIRGIN if "profile" not in line], "the Windows user's folder cannot be found"),
        (
            [*VIRGIN, f"wsl\tfile\t{PROFILE}/.wslconfig\t0\t{LATIN}"],
            "line 1 of .wslconfig is not UTF-8",
        ),
    ],
    ids=["no WSL", "no user", "unreadable"],
)
def test_what_stands_in_the_way_stops_it_before_anything_changes(
    plan: Plan, caplog: pytest.LogCaptureFixture, world: list[str], words: str
) -> None:
    ran = run(plan, [*world, "systemd\tyes"])
    assert (ran.failed, ran.changed) == (True, [])
    assert words in caplog.text
    assert "help: " in caplog.text
