"""What server processes take on a host, and which programs on its GPUs are theirs."""

from __future__ import annotations

import pytest

from llamaherd.onhost.status import GpuUse, ProcessUse, StatusInput, inspect_usage
from llamaherd.onhost.system import TIMED_OUT, Ended
from tests.onhost.test_status import CHAT, unit
from tests.support.played_host import File
from tests.support.recording import InspectedHost

pytestmark = pytest.mark.usefixtures("starts_processes")

APPS = (
    "GPU-1, 400, 20480, /opt/llamaherd/builds/x/llama-server\n"
    "GPU-2, 401, [N/A], a worker, of the same server\n"
    "GPU-1, 77, 512, /usr/bin/python3\n"
    "not a line\nGPU-1, x, 1, y\n"
)
UNIT = "0::/system.slice/llama-chat.service\n"


def host_with(apps: Ended) -> InspectedHost:
    running = unit(ActiveState="active", SubState="running", MainPID="400")
    host = InspectedHost({}, ends={"systemctl show": running, "nvidia-smi --query-compute-apps": apps})
    host.files |= {"/proc/400/cgroup": File(UNIT), "/proc/401/cgroup": File(UNIT), "/proc/77/cgroup": File("0::/\n")}
    host.files["/proc/400/status"] = File("Name:\tllama-server\nVmRSS:\t  2048 kB\n")
    return host


def test_processes_on_gpus_belong_to_the_server_of_their_control_group() -> None:
    found = inspect_usage(StatusInput((CHAT,), gpus=True, gateway=False), host_with(Ended(0, APPS)))
    assert found.apps == (
        GpuUse("GPU-1", 400, 20480.0, "llama-server", "llama-chat"),
        GpuUse("GPU-2", 401, None, "a worker, of the same server", "llama-chat"),
        GpuUse("GPU-1", 77, 512.0, "python3", ""),
    )
    process = found.processes["llama-chat"]
    assert process == ProcessUse(400, 2 << 20, process.computed)


def test_programs_in_no_group_of_their_own_are_no_servers() -> None:
    """As in a container without control groups: all processes are in the root group."""
    host = host_with(Ended(0, APPS))
    for pid in (400, 401, 77):
        host.files[f"/proc/{pid}/cgroup"] = File("0::/\n")
    found = inspect_usage(StatusInput((CHAT,), gpus=True, gateway=False), host)
    assert [each.service for each in found.apps] == ["llama-chat", "", ""]


def test_a_driver_that_hangs_leaves_the_servers() -> None:
    found = inspect_usage(StatusInput((CHAT,), gpus=True, gateway=False), host_with(Ended(TIMED_OUT)))
    assert (found.apps, found.host.servers["llama-chat"].active) == ((), "active")


def test_without_gpus_the_driver_is_not_queried() -> None:
    host = host_with(Ended(0, APPS))
    assert inspect_usage(StatusInput((CHAT,), gpus=False, gateway=False), host).apps == ()
    assert not host.has_done("nvidia-smi")
