"""Whether a second server can run side by side with the others: files of /proc, nvidia-smi and nft are played."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from llamaherd.onhost.servers import NeededGpu
from llamaherd.onhost.system import TIMED_OUT, Ended
from roles.serve.onhost.tools import NFT, lacks_room
from tests.support.proofs import Programs

GIB = 1 << 30
RULES = "table inet filter { chain in { type filter hook input priority 0; policy drop; } }"


def lacks(
    root: Path,
    *,
    rules: str | None = "",
    code: int = 0,
    smi: Ended | None = None,
    ram: int = GIB,
    gpus: tuple[NeededGpu, ...] = (),
    listen: str = "127.0.0.1",
    port: int | None = 0,
    for_others: bool = False,
) -> str:
    """Return what lacks on a host with 8 GiB available."""
    (root / "proc/net").mkdir(parents=True, exist_ok=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {8 * GIB >> 10} kB\n")
    programs = Programs({"nvidia-smi": lambda _, __: smi} if smi else {})
    if rules is not None:
        programs.programs = {**programs.programs, NFT: lambda _, __: Ended(code, rules)}
    return lacks_room(ram, gpus, listen=listen, port=port, for_others=for_others, system=programs, root=root)


@pytest.mark.usefixtures("starts_processes")
def test_a_host_has_room(tmp_path: Path) -> None:
    assert lacks(tmp_path) == lacks(tmp_path, listen="::1") == ""


def test_a_host_without_nft(tmp_path: Path) -> None:
    assert lacks(tmp_path, rules=None) == "there is no nft (package nftables) to lead connections to it"
    assert lacks(tmp_path, rules=None, port=None) == ""


@pytest.mark.usefixtures("starts_processes")
def test_a_firewall_has_rules_for_the_declared_port_alone(tmp_path: Path) -> None:
    assert lacks(tmp_path, rules=RULES, for_others=True) == "a firewall here filters by port"
    assert lacks(tmp_path, rules=RULES) == lacks(tmp_path, for_others=True) == ""
    (tmp_path / "proc/net/ip_tables_names").write_text("filter\n")
    assert lacks(tmp_path, for_others=True) == "a firewall here filters by port"
    (tmp_path / "proc/net/ip_tables_names").write_text("\n")
    assert lacks(tmp_path, for_others=True) == ""


def test_an_nft_that_fails(tmp_path: Path) -> None:
    found = lacks(tmp_path, code=TIMED_OUT)
    assert found == f"this host does not report what is free ({NFT} failed with exit code 124)"


def test_a_port_that_another_program_has(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        assert lacks(tmp_path, port=port) == f"its port {port} cannot be had (Address already in use)"
        assert lacks(tmp_path, port=None) == ""


def test_ram_that_is_not_free(tmp_path: Path) -> None:
    found = lacks(tmp_path, ram=9 * GIB, port=None)
    assert found == "8.6 GB of RAM are free, and it takes 9.7 GB with what the system needs"


def test_a_kernel_that_reports_no_available_ram(tmp_path: Path) -> None:
    assert lacks(tmp_path, port=None) == ""
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1 kB\n")
    found = lacks_room(1, (), listen="", port=None, for_others=False, system=Programs({}), root=tmp_path)
    assert found == "this host does not report what is free ('MemAvailable')"


BIG = "GPU-a", "00000000:01:00.0", "0"


@pytest.mark.parametrize("at", BIG)
@pytest.mark.parametrize(
    ("smi", "why"),
    [
        (Ended(0, "00000000:01:00.0, GPU-a, 24000\n"), ""),
        (Ended(0, "00000000:01:00.0, GPU-a, 3000\n"), "GPU big has 3.1 GB free, and it takes 8.0 GB"),
        (Ended(9), "this host does not report what is free (nvidia-smi failed with exit code 9)"),
        (Ended(0, "00000000:01:00.0, GPU-a, [N/A]\n"), "this host does not report what is free (invalid literal "),
        (Ended(0, "No devices were found\n"), "this host does not report what is free (nvidia-smi does not print "),
        (Ended(0, ""), "this host does not report what is free (nvidia-smi lists no GPU "),
    ],
)
def test_a_gpu_must_surely_have_room(tmp_path: Path, smi: Ended, why: str, at: str) -> None:
    found = lacks(tmp_path, smi=smi, gpus=(NeededGpu("big", at, 8_000_000_000),), port=None)
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_without_gpus_nvidia_smi_is_not_run(tmp_path: Path) -> None:
    assert lacks(tmp_path, port=None, smi=Ended(9)) == ""
