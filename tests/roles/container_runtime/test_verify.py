"""What is made of what a host says of its toolkit and of GPUs for containers: as declared, or what is not."""

from __future__ import annotations

import pytest

from llamaherd.host.answers import Answers
from llamaherd.inventory.schema import Rig
from llamaherd.pipeline.verify_show import print_report
from llamaherd.plan import Plan
from llamaherd.role.report import Check
from llamaherd.role.role import Judging
from roles import ROLES
from tests.support import ours as verify
from tests.support.rigs import changed, cpu_rig, gpu_rig, planned

PLAN = planned(gpu_rig())
DECLARED = planned(gpu_rig(), {"gpus/container_toolkit": {"version": "1.20.0"}})

# As nvcc 13.0.88 and g++ 14 of Debian 13 printed it.
AS_PLANNED = {
    ("nvcc", ""): '# 0 "<built-in>"\n# 1 "probe.cu"\n13 . 0',
    ("container toolkit", ""): "nvidia-ctk=1.20.0\nnvidia-container-cli=1.20.0\nlibrary=1.20.0",
    ("Docker", ""): "Answers=yes\nMasked=",
    ("cdi", ""): "names=0 1 GPU-3090 GPU-5090 all \nmissing=",
}


def machine_checks(plan: Plan, answers: Answers) -> list[Check]:
    """What is under servers: the CUDA toolkit, Docker, GPUs for containers."""
    judging = Judging(Rig.model_validate(gpu_rig()), plan, answers, {})
    of = [role for role in ROLES if role.name in ("cuda_toolkit", "container_runtime")]
    return [check for role in of for check in role.judge(judging).checks]


def judged(changes: dict[tuple[str, str], str]) -> dict[str, tuple[bool, str]]:
    return {check.name: (check.ok, check.detail) for check in machine_checks(DECLARED, AS_PLANNED | changes)}


def test_a_host_as_declared_passes() -> None:
    assert judged({}) == {
        "CUDA": (True, "nvcc 13.0 takes the host's compiler"),
        "Docker": (True, "answers"),
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
        ("Docker", "Answers=no\nMasked=", "Docker", "it does not answer: `herd up`"),
        (
            "Docker",
            "Answers=no\nMasked= docker.service docker.socket",
            "Docker",
            "it does not answer, and systemd may not start it, as docker.service and docker.socket are masked: "
            "see `herd preflight`",
        ),
        (
            "Docker",
            "Answers=yes\nMasked= containerd.service",
            "Docker",
            "it answers, and systemd may not start it, as containerd.service is masked: see `herd preflight`",
        ),
        ("container toolkit", "", "toolkit", "nvidia-ctk not there, nvidia-container-cli not there, library not there"),
        (
            "container toolkit",
            "nvidia-ctk=1.20.0\nnvidia-container-cli=1.19.1\nlibrary=1.19.1",
            "toolkit",
            "nvidia-ctk 1.20.0, nvidia-container-cli 1.19.1, library 1.19.1",
        ),
        (
            "container toolkit",
            "nvidia-ctk=1.19.1\nnvidia-container-cli=1.19.1\nlibrary=1.19.1",
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


def test_a_version_that_is_not_declared_may_be_any() -> None:
    older = AS_PLANNED[("container toolkit", "")].replace("1.20.0", "1.19.1")
    checks = list(machine_checks(PLAN, AS_PLANNED | {("container toolkit", ""): older}))
    assert all(check.ok for check in checks)


def test_a_host_that_needs_none_is_asked_nothing() -> None:
    bare = planned(cpu_rig())
    assert list(machine_checks(bare, {})) == []
    assert "nvidia-ctk" not in verify.question(bare)


def test_a_failure_counts_and_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    rig = Rig.model_validate(changed(gpu_rig(), {"instances": {}}))
    plan = PLAN.model_copy(update={"instances": ()})
    assert verify.judge(rig, plan, AS_PLANNED).ok
    report = verify.judge(rig, plan, AS_PLANNED | {("nvcc", ""): "12 . 8"})
    assert not report.ok
    print_report(report)
    assert "duo: the host" in (said := capsys.readouterr().out)
    assert "nvcc is 12.8, declared is 13.0" in said
