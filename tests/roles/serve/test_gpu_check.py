"""The program that tells whether a server is on its GPUs (tests/support/gpu_host.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamaherd.layout import GPU_CHECK
from tests.support.gpu_host import NEW, OLD, GpuHost, gpu_host

WSL = "6.6.87.2-microsoft-standard-WSL2"
CONTAINER = "pid:[4026532493]"
LOG = "journalctl -u llama-x"
NOWHERE = (
    f"the server is on no card, and would serve from the CPU: `{LOG} | grep -i cuda` shows why CUDA did not start\n"
)


@pytest.fixture
def host(tmp_path: Path) -> GpuHost:
    made = gpu_host(tmp_path, OLD, NEW)
    made.process(77)
    return made


def with_apps(card: dict[str, Any], *apps: tuple[str | int, str | int]) -> dict[str, Any]:
    """A GPU that processes are on: their ids and MiB, as the driver shows them."""
    return card | {"apps": apps}


def check(host: GpuHost, *cards: str, how: str = "every", pids: str = "77") -> tuple[int, str]:
    done = host.run(GPU_CHECK.name, [how, LOG, pids, *cards])
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize("card", ["GPU-3090", "gpu-3090", "00000000:01:00.0", "0", "any"])
def test_a_server_that_the_driver_lists_on_its_card_is_there(host: GpuHost, card: str) -> None:
    host.put(with_apps(OLD, (77, 21000)), with_apps(NEW, (8, 100)))
    assert check(host, card) == (0, "")


@pytest.mark.parametrize("cards", [["GPU-3090", "GPU-5090"], ["1", "0"], ["any", "any"]], ids=" ".join)
def test_of_several_cards_every_one_counts(host: GpuHost, cards: list[str]) -> None:
    host.put(with_apps(OLD, (77, 1)), with_apps(NEW, (77, 1)))
    assert check(host, *cards) == (0, "")
    host.put(with_apps(OLD, (77, 1)), with_apps(NEW, (8, 1)))
    code, said = check(host, *cards)
    assert code == 1
    assert "but on GPU-3090: does CUDA see that card?" in said
    assert check(host, *cards, how="one") == (0, "")


def test_the_processes_of_a_container_count_together(host: GpuHost) -> None:
    host.process(78)
    host.put(with_apps(OLD, (77, 1)), with_apps(NEW, (78, 1)))
    assert check(host, "GPU-3090", "GPU-5090", pids="77 77\n78") == (0, "")


def test_the_model_of_a_group_is_in_a_process_of_its_own(host: GpuHost) -> None:
    host.process(78)
    host.put(with_apps(OLD, (78, 1)), NEW)
    assert check(host, "GPU-3090") == (1, NOWHERE)
    threads = host.folder / "proc/77/task/77"
    threads.mkdir(parents=True)
    (threads / "children").write_text("78 ")
    assert check(host, "GPU-3090") == (0, "")


@pytest.mark.parametrize("how", ["every", "one"])
def test_a_server_on_no_card_fails(host: GpuHost, how: str) -> None:
    assert check(host, "GPU-3090", how=how) == (1, NOWHERE)
    # Looking at GPUs opens them; it is the driver's list that counts.
    host.driver({"0000:01:00.0": 0})
    host.process(79, "nvidiactl", "nvidia-uvm", "nvidia0")
    assert check(host, "GPU-3090", how=how, pids="79") == (1, NOWHERE)


def test_a_server_on_another_card_fails(host: GpuHost) -> None:
    host.put(OLD, with_apps(NEW, (77, 1)))
    assert check(host, "00000000:01:00.0") == (
        1,
        "the server is not on card 00000000:01:00.0, but on GPU-5090: does CUDA see that card? "
        f"`{LOG} | grep -i cuda` shows it\n",
    )


@pytest.mark.parametrize(
    ("namespace", "apps"),
    [(CONTAINER, []), (CONTAINER, [(77, 1)]), ("pid:[4026531836]", [("[N/A]", "[N/A]")])],
    ids=["in a container", "where ids are another's", "where none is told"],
)
def test_where_the_list_does_not_tell_open_devices_do(
    host: GpuHost, namespace: str, apps: list[tuple[str | int, str | int]]
) -> None:
    host.kernel("6.8.0-88-generic", namespace)
    # The numbers of devices need not follow the addresses.
    host.driver({"0000:01:00.0": 1, "0000:21:00.0": 0})
    host.put(OLD, with_apps(NEW, *apps))
    host.process(80, "nvidiactl", "nvidia-uvm", "nvidia1")
    host.process(81, "nvidiactl", "nvidia1")
    assert check(host, "GPU-3090", pids="80") == (0, "")
    code, said = check(host, "GPU-5090", pids="80")
    assert (code, "but on GPU-3090" in said) == (1, True)
    # Without unified memory it has only looked.
    assert check(host, "GPU-3090", pids="81") == (1, NOWHERE)
    assert check(host, "GPU-3090") == (1, NOWHERE)


def test_under_wsl_one_device_stands_for_all(host: GpuHost) -> None:
    host.kernel(WSL)
    host.put(with_apps(OLD, (77, "[N/A]")), NEW)
    assert check(host, "GPU-3090") == (1, NOWHERE)
    host.process(82, "dxg")
    assert check(host, "GPU-3090", "1", pids="82") == (0, "")


def test_what_nothing_tells_is_no_failure(host: GpuHost) -> None:
    host.kernel("6.8.0-88-generic", CONTAINER)
    code, said = check(host, "GPU-3090")
    assert code == 0
    assert said.startswith("whether process 77 is on its cards is unknown here: nvidia-smi prints GPU 0: NVIDIA")


def test_a_server_that_is_gone_fails(host: GpuHost) -> None:
    assert check(host, "GPU-3090", pids="99") == (1, f"process 99 is gone: see `{LOG}`\n")


def test_a_list_that_fails_leaves_it_to_open_devices(host: GpuHost) -> None:
    smi = host.folder / "bin" / "nvidia-smi"
    smi.write_text(smi.read_text().replace("exec", 'case "$*" in *compute-apps*) exit 9 ;; esac\nexec'))
    host.driver({"0000:01:00.0": 0})
    host.process(80, "nvidiactl", "nvidia-uvm", "nvidia0")
    assert check(host, "GPU-3090", pids="80") == (0, "")


def test_a_process_whose_files_another_user_may_not_read_is_no_failure(host: GpuHost) -> None:
    host.kernel("6.8.0-88-generic", CONTAINER)
    host.driver({"0000:01:00.0": 0})
    (host.folder / "proc" / "90").mkdir()
    (host.folder / "proc/sys/kernel/osrelease").unlink()
    (host.folder / "proc/self/ns/pid").unlink()
    code, said = check(host, "GPU-3090", pids="90")
    assert (code, said.startswith("whether process 90 is on its cards is unknown here")) == (0, True)
