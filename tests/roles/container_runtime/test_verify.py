"""What is made of what a host says of its toolkit and of GPUs for containers: as declared, or what is not."""

from __future__ import annotations

import pytest
from rich.console import Console

from llamaherd.cli.verification import print_report
from llamaherd.host.responses import ProbeOutputs
from llamaherd.inventory.schema import Rig
from llamaherd.plan import Plan
from llamaherd.role.report import Check
from llamaherd.role.role import Judging
from roles import ROLES
from tests.support import ours as verify
from tests.support.ours import probes_text
from tests.support.rigs import changed, cpu_rig, gpu_rig, planned


def toolkit(ctk: str, cli: str) -> str:
    """Return what NVIDIA's programs print, of these versions."""
    return (
        f"NVIDIA Container Toolkit CLI version {ctk}\ncommit: 0123\n"
        f"cli-version: {cli}\nlib-version: {cli}\nbuild date: 2026-01-01"
    )


def units(*masked: str, active: bool = True) -> str:
    """Return what systemd shows of Docker's units."""
    names = ("docker.service", "docker.socket", "containerd.service")
    return "\n\n".join(
        f"Id={name}\nActiveState={'active' if active else 'inactive'}\n"
        f"UnitFileState={'masked-runtime' if name in masked else 'enabled'}"
        for name in names
    )


PLAN = planned(gpu_rig())
DECLARED = planned(gpu_rig(), {"gpus/container_toolkit": {"version": "1.20.0"}})

# As nvcc 13.0.88 and g++ 14 of Debian 13 printed it.
AS_PLANNED = {
    ("nvcc", ""): '# 0 "<built-in>"\n# 1 "probe.cu"\n13 . 0',
    ("container toolkit", ""): toolkit("1.20.0", "1.20.0"),
    ("Docker", ""): "0\nClient: Docker Engine - Community",
    ("Docker units", ""): units(),
    ("cdi", ""): "names=0 1 GPU-3090 GPU-5090 all \nmissing=",
}


def machine_checks(plan: Plan, answers: ProbeOutputs) -> list[Check]:
    """What is under servers: the CUDA toolkit, Docker, GPUs for containers."""
    judging = Judging(Rig.model_validate(gpu_rig()), plan, answers, {})
    of = [role for role in ROLES if role.name in ("cuda_toolkit", "container_runtime")]
    return [check for role in of for check in role.judge(judging).checks]


def judged(changes: dict[tuple[str, str], str]) -> dict[str, tuple[bool, str]]:
    return {check.name: (check.ok, check.detail) for check in machine_checks(DECLARED, AS_PLANNED | changes)}


def test_a_host_as_declared_passes() -> None:
    assert judged({}) == {
        "CUDA": (True, "nvcc 13.0 takes the host's compiler"),
        "Docker": (True, "responds"),
        "toolkit": (True, "1.20.0"),
        "GPUs": (True, "CDI describes nvidia.com/gpu=GPU-5090, and all that it names is there"),
    }


@pytest.mark.parametrize(
    ("what", "said", "name", "detail"),
    [
        ("nvcc", "12 . 8", "CUDA", "nvcc is 12.8, declared is 13.0"),
        ("nvcc", "timeout: failed to run command", "CUDA", "do not go together: timeout: failed to run command"),
        ("nvcc", "", "CUDA", "do not go together: it does not run"),
        (
            "nvcc",
            "host_config.h:139:2: error: #error -- unsupported GNU version!\ncompilation terminated.",
            "CUDA",
            "do not go together: host_config.h:139:2: error: #error -- unsupported GNU version!",
        ),
        ("Docker", "1\nClient: Docker Engine", "Docker", "it does not respond: `herd up`"),
        ("Docker", "124", "Docker", "it does not respond: `herd up`"),
        (
            "Docker units",
            units("containerd.service"),
            "Docker",
            "it responds, and systemd may not start it, as containerd.service is masked: see `herd preflight`",
        ),
        ("container toolkit", "", "toolkit", "nvidia-ctk not there, nvidia-container-cli not there, library not there"),
        (
            "container toolkit",
            toolkit("1.20.0", "1.19.1"),
            "toolkit",
            "nvidia-ctk 1.20.0, nvidia-container-cli 1.19.1, library 1.19.1",
        ),
        (
            "container toolkit",
            toolkit("1.19.1", "1.19.1"),
            "toolkit",
            "1.19.1, declared is 1.20.0",
        ),
        ("cdi", "", "GPUs", "no CDI file describes nvidia.com/gpu=GPU-5090: `herd up`"),
        ("cdi", "names=0 GPU-1 all \nmissing=", "GPUs", "no CDI file describes nvidia.com/gpu=GPU-5090: `herd up`"),
        (
            "cdi",
            "names=GPU-5090 \nmissing=/usr/lib/libcuda.so.580.95.05 ",
            "GPUs",
            "CDI names what is not there: /usr/lib/libcuda.so.580.95.05: `herd up`",
        ),
    ],
)
def test_what_is_not_as_declared_fails(what: str, said: str, name: str, detail: str) -> None:
    found = judged({(what, ""): said})
    assert [each for each, (ok, _) in found.items() if not ok] == [name]
    assert found[name][1].endswith(detail)


def test_a_docker_that_is_masked_and_does_not_run() -> None:
    shown = units("docker.service", "docker.socket", active=False)
    detail = "it does not respond, and systemd may not start it, as docker.service and docker.socket are masked: "
    assert judged({("Docker", ""): "1", ("Docker units", ""): shown})["Docker"] == (
        False,
        f"{detail}see `herd preflight`",
    )
    # What a Docker that runs does without, the next boot does without.
    socket = "Id=docker.socket\nActiveState="
    idle = units("docker.socket").replace(f"{socket}active", f"{socket}inactive")
    assert judged({("Docker units", ""): idle})["Docker"] == (True, "responds")


def test_a_version_that_is_not_declared_may_be_any() -> None:
    older = AS_PLANNED[("container toolkit", "")].replace("1.20.0", "1.19.1")
    checks = list(machine_checks(PLAN, AS_PLANNED | {("container toolkit", ""): older}))
    assert all(check.ok for check in checks)


def test_a_host_that_needs_none_is_asked_nothing() -> None:
    bare = planned(cpu_rig())
    assert list(machine_checks(bare, {})) == []
    assert "nvidia-ctk" not in probes_text(bare)


def test_a_failure_counts_and_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    rig = Rig.model_validate(changed(gpu_rig(), {"instances": {}}))
    plan = PLAN.model_copy(update={"instances": ()})
    assert verify.judge(rig, plan, AS_PLANNED).ok
    report = verify.judge(rig, plan, AS_PLANNED | {("nvcc", ""): "12 . 8"})
    assert not report.ok
    print_report(report, Console(highlight=False), verbose=True)
    assert "\n  host\n" in (said := capsys.readouterr().out)
    assert "nvcc is 12.8, declared is 13.0" in said
