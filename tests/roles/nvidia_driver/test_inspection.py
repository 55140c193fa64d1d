"""What is inspected of NVIDIA's driver, on a played host."""

from __future__ import annotations

import pytest

from llamaherd.layout import DRIVER_REFUSED, REBOOT_MARK, REBOOT_NOTE
from llamaherd.onhost.system import NOT_STARTED, Ended
from roles.nvidia_driver.onhost import BEFORE, Found, InspectInput, PersistenceFound, inspect
from tests.support.recording import InspectedHost

KERNEL = "6.8.0-88-generic"
POLICY = """\
libcuda1:
  Installed: 580.95.05-1
  Candidate: 590.1-1
  Version table:
     590.1-1 600
        600 https://repo.example/cuda  Packages
 *** 580.95.05-1 600
        600 https://repo.example/cuda  Packages
        100 /var/lib/dpkg/status
dkms:
  Installed: 3.0
 *** 3.0 500
        500 http://deb.example trixie/main amd64 Packages
        500 https://repo.example/cuda  Packages
"""
INSTALLED = "libcuda1\t580.95.05-1\tinstalled\ndkms\t3.0\tinstalled\nnvidia-smi\t1\tconfig-files\n"
QUESTION = InspectInput(("libcuda*", "dkms"))


def host(**ends: Ended) -> InspectedHost:
    return InspectedHost(
        {},
        ends={
            "dpkg-query": Ended(1, INSTALLED),
            "apt-cache": Ended(0, POLICY),
            "uname -r": Ended(0, f"{KERNEL}\n"),
            "readlink": Ended(1),
            "env": Ended(0, "580.95.05\n"),
            "apt-get indextargets": Ended(0, "main\nmain\nnon-free\n"),
            "dpkg -S": Ended(1),
            "nvidia-smi": Ended(0, "GPU 0: x\n"),
            "systemctl show -p Id,LoadState,ActiveState,UnitFileState nvidia-persistenced.service": Ended(
                0, "Id=nvidia-persistenced.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n"
            ),
            **{name.replace("_", "-"): ended for name, ended in ends.items()},
        },
    )


def test_a_driver_that_works() -> None:
    played = host()
    played.write("/sys/module/nvidia/version", "580.95.05\n")
    played.folders |= {"/sys/module/nvidia_uvm", "/"}
    played.write("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "")
    found = inspect(QUESTION, played)
    assert found.packages == {"libcuda1": "580.95.05-1", "dkms": "3.0"}
    assert found.origins == {"libcuda1": ("nvidia",), "dkms": ("distribution", "nvidia")}
    assert (found.loaded, found.uvm, found.disk) == ("580.95.05", True, {KERNEL: "580.95.05"})
    assert (found.library, found.problem, found.runfile) == ("1", "", False)
    assert found.persistence == PersistenceFound("active", "enabled")
    assert found.components == ("main", "non-free")


def test_no_driver() -> None:
    played = host(
        dpkg_query=Ended(1), env=Ended(1), nvidia_smi=Ended(NOT_STARTED), systemctl=Ended(0, "LoadState=not-found\n")
    )
    played.ends = {name: ended for name, ended in played.ends.items() if not name.startswith("systemctl show")}
    found = inspect(QUESTION, played)
    assert found == Found(components=("main", "non-free"), free=found.free)
    assert not played.has_done("apt-cache")


def test_a_driver_that_fails_is_told_by_its_first_line() -> None:
    played = host(nvidia_smi=Ended(9, "\nNVIDIA-SMI has\tfailed\nmore\n"))
    played.write("/usr/bin/nvidia-uninstall", "")
    found = inspect(QUESTION, played)
    assert (found.problem, found.runfile) == ("NVIDIA-SMI has failed", True)


def test_what_a_reboot_was_for() -> None:
    played = host()
    played.write(str(REBOOT_NOTE), f"580.95.05 {KERNEL}\nmore\n")
    assert inspect(QUESTION, played).tried == f"580.95.05 {KERNEL}"
    played.write(str(REBOOT_MARK), "")
    assert inspect(QUESTION, played).tried == ""


def test_what_is_kept_of_the_driver_before() -> None:
    played = host()
    played.write(f"{BEFORE}/from", "570.1\n")
    played.write(str(DRIVER_REFUSED), "590.1\topen\t2026-11-23\t580\tit hangs\nold\n")
    found = inspect(QUESTION, played)
    assert (found.kept, found.judging) == ("570.1", False)
    assert found.refused == ("590.1", "open", "2026-11-23", "580", "it hangs")


@pytest.mark.parametrize(("end", "refused"), [("", True), ("\t", True), ("\tslower", False)])
def test_a_driver_that_an_earlier_version_refused_for_its_speed_alone_may_be_tried(end: str, *, refused: bool) -> None:
    played = host()
    played.write(str(DRIVER_REFUSED), f"590.1\topen\t2026-11-23\t580\tit hangs{end}\n")
    assert bool(inspect(QUESTION, played).refused) is refused


def test_a_record_that_cannot_be_read_refuses_nothing() -> None:
    played = host()
    played.write(str(DRIVER_REFUSED), "odd\n")
    assert inspect(QUESTION, played).refused == ()
