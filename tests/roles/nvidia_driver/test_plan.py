"""Which packages a driver is, what a host says of it, and what follows from both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import DriverState, HostState, PackageState, Persistence
from llamaherd.onhost.servers import UnitState
from llamaherd.plan import DriverPlan, Plan
from llamaherd.reference.packages import branch_of, upstream_version
from llamaherd.role.changes import Change
from roles.nvidia_driver import driver_refusals, inspection_input
from roles.nvidia_driver.changes import driver_changes, load_changes, reboot, reboot_changes
from roles.nvidia_driver.onhost.packages import InstallInput
from tests.support.ours import parse_state, show_plan
from tests.support.recording import input_of
from tests.support.rigs import GONE, KERNEL, converged, gpu_rig, planned
from tests.support.states import edited, updated, with_driver

NO_SERVERS: dict[str, Any] = {"instances/small": GONE, "instances/boxed": GONE}
NEW, OLD = "gpus/cards/new/model", "gpus/cards/old/model"
VERSION = "580.95.05"


def plan_of(os: str = "ubuntu-24.04", source: str = "nvidia", branch: int = 580, **changes: Any) -> Plan:
    driver: dict[str, Any] = {"branch": branch, "from": source}
    driver |= {key: changes.pop(key) for key in ("version", "reboot") if key in changes}
    return planned(gpu_rig(), {**NO_SERVERS, "host/os": os, "gpus/driver": driver, **changes})


def driver_of(*words: Any, **changes: Any) -> DriverPlan:
    driver = plan_of(*words, **changes).driver
    assert driver
    return driver


PLAN = plan_of()

# --- the plan --------------------------------------------------------------------------------------------------------

NAMES = {
    ("debian-12", "nvidia", 580): "nvidia-driver-cuda nvidia-kernel-open-dkms dkms",
    ("debian-13", "nvidia", 615): "nvidia-driver-cuda nvidia-kernel-open-dkms dkms",
    ("ubuntu-22.04", "nvidia", 580): "libnvidia-compute-580 nvidia-dkms-580-open dkms nvidia-utils-580",
    ("ubuntu-24.04", "nvidia", 590): "libnvidia-compute nvidia-dkms-open dkms",
    ("ubuntu-26.04", "nvidia", 615): "libnvidia-compute nvidia-dkms-open dkms",
    ("debian-12", "distribution", 535): "libcuda1 nvidia-kernel-dkms dkms nvidia-persistenced nvidia-smi",
    ("debian-13", "distribution", 550): "libcuda1 nvidia-kernel-dkms dkms nvidia-persistenced nvidia-smi",
    ("ubuntu-24.04", "distribution", 580): "libnvidia-compute-580 nvidia-headless-no-dkms-580-open "
    "nvidia-compute-utils-580 nvidia-utils-580",
    ("ubuntu-26.04", "distribution", 615): "libnvidia-compute-615 nvidia-headless-no-dkms-615-open "
    "nvidia-compute-utils-615 nvidia-utils-615",
}


@pytest.mark.parametrize("case", NAMES, ids=lambda case: " ".join(map(str, case)))
def test_each_system_has_its_names(case: tuple[str, str, int]) -> None:
    driver = driver_of(*case, **{NEW: "RTX 4090"})
    assert " ".join(driver.packages) == NAMES[case]
    assert driver.library == driver.packages[0]
    assert (driver.prebuilt is not None) == (case[0].startswith("ubuntu") and case[1] == "distribution")
    assert not [name for name in driver.packages if name.startswith("cuda")]


@pytest.mark.parametrize(
    ("cards", "branch", "modules"),
    [
        (("RTX 4090", "RTX 3090"), 580, "open"),
        (("RTX 4090", "RTX 2080 Ti"), 580, "open"),
        (("RTX 4090", "GTX 1080 Ti"), 580, "proprietary"),
        (("RTX 4090", "RTX 3090"), 550, "proprietary"),
        (("RTX 5090", "RTX 3090"), 550, "open"),
        (("RTX 4090", "GTX 1080 Ti"), 615, "open"),
    ],
)
def test_modules_follow_cards_and_branch(cards: tuple[str, str], branch: int, modules: str) -> None:
    assert driver_of("debian-13", "nvidia", branch, **{NEW: cards[0], OLD: cards[1]}).modules == modules


def test_nothing_is_planned_where_none_is_declared_and_under_wsl() -> None:
    bare, wsl = planned(gpu_rig()), planned(gpu_rig(), {"gpus/driver": {"branch": 580}, "host/wsl": {}})
    for plan in (bare, wsl):
        assert plan.driver is None
        assert inspection_input(plan) is None


def test_a_plan_shows_packages_pins_and_where_from() -> None:
    shown = show_plan(PLAN)
    assert "  driver     580, open modules: the newest of branch 580, then kept\n" in shown
    assert "libnvidia-compute-580 nvidia-dkms-580-open dkms nvidia-utils-580\n" in shown
    assert "from https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64\n" in shown
    assert "pinned by /etc/apt/preferences.d/00-llamaherd-nvidia-wanted\n" in shown
    own = show_plan(plan_of(source="distribution", reboot=False, version=VERSION))
    assert "version 580.95.05\n" in own
    assert "linux-modules-nvidia-580-open-<kernel>\n             from the distribution\n" in own
    assert "rebooted never\n" in own


@pytest.mark.parametrize(
    ("version", "own", "branch"),
    [
        ("580.95.05-0ubuntu1", "580.95.05", "580"),
        ("1:590.48.01-1", "590.48.01", "590"),
        ("550.163.01-2", "550.163.01", "550"),
        ("20240109+1", "20240109+1", None),
        ("6.8.0-88.89+1", "6.8.0", None),
        ("580-1", "580", None),
    ],
)
def test_versions_are_taken_apart(version: str, own: str, branch: str | None) -> None:
    assert (upstream_version(version), branch_of(version)) == (own, branch)


@pytest.mark.parametrize(
    ("origins", "source"),
    [
        (["nvidia"], "nvidia"),
        (["distribution"], "distribution"),
        # Both have that version: then it cannot be told.
        (["distribution", "nvidia"], None),
        # A file that somebody installed by hand.
        ([], None),
    ],
)
def test_whose_a_package_is_its_repository_tells(origins: list[str], source: str | None) -> None:
    lines = ["nvidia\tpackage\tlibcuda1\t550.163.01-2\tinstalled"]
    seen = parse_state([*lines, *(f"nvidia\torigin\tlibcuda1\t{origin}" for origin in origins)])
    assert seen.driver.packages["libcuda1"].source == source


# --- what a host says ------------------------------------------------------------------------------------------------


def test_an_answer_is_read_whole() -> None:
    seen = parse_state(
        line
        for line in """nvidia\tpackage\tlibcuda1\t550.163.01-2\tinstalled
nvidia\torigin\tlibcuda1\tdistribution
nvidia\tpackage\tnvidia-smi\t550.163.01-2\tconfig-files
nvidia\tloaded\t550.163.01
nvidia\tuvm
nvidia\tdisk\t6.12.1\t550.163.01
nvidia\tlibrary\t550.163.01
nvidia\tsays\tFailed to initialize NVML: Driver/library version mismatch
nvidia\trun
nvidia\tpersistence\tactive\tstatic
nvidia\tcomponent\tmain
nvidia\tcomponent\tupdates/contrib
nvidia\tfree\t1000
nvidia\ttried\t550.163.01 6.12.1""".splitlines()
    ).driver
    assert seen == DriverState(
        packages={"libcuda1": PackageState("550.163.01-2", "distribution")},
        loaded="550.163.01",
        uvm=True,
        disk={"6.12.1": "550.163.01"},
        library="550.163.01",
        problem="Failed to initialize NVML: Driver/library version mismatch",
        runfile=True,
        persistence=Persistence("active", "static"),
        components={"main", "contrib"},
        free=1000,
        tried="550.163.01 6.12.1",
    )
    assert (seen.version("libcuda1"), seen.version("nvidia-smi")) == ("550.163.01", None)


# --- what is to be done ----------------------------------------------------------------------------------------------


def host(plan: Plan = PLAN, **nvidia: Any) -> HostState:
    """As planned, but for this of the driver."""
    return with_driver(parse_state(converged(plan, {})), **nvidia)


def with_packages(plan: Plan = PLAN, **packages: PackageState) -> HostState:
    """As planned, with these packages besides."""
    seen = parse_state(converged(plan, {}))
    more = {name.replace("_", "-"): package for name, package in packages.items()}
    return with_driver(seen, packages={**seen.driver.packages, **more})


def test_nothing_is_done_where_all_is_as_planned() -> None:
    seen = host()
    assert (driver_changes(PLAN, seen), load_changes(PLAN, seen), reboot_changes(PLAN, seen)) == ([], [], [])
    assert driver_refusals(PLAN, seen) == []


def test_another_version_of_the_branch_is_kept_unless_one_is_declared() -> None:
    other = plan_of(version="580.105.08")
    seen = host()
    assert driver_changes(PLAN, seen) == []
    (step,) = driver_changes(other, seen)
    given = input_of(step, InstallInput)
    assert (given.moves, given.driver.wanted) == (True, "580.105.08")
    wanted = [given.driver.wants(each) for each in ("580.105.08-1", "580.105.08", "580.105.089-1", "580.95.05-1", "")]
    assert wanted == [True, True, False, False, False]


def test_what_is_of_another_branch_is_named_and_tools_alone_are_no_reason() -> None:
    assert driver_changes(PLAN, with_packages(nvidia_modprobe=PackageState("570.133.07-1", "nvidia"))) == []
    (step,) = driver_changes(PLAN, with_packages(libnvidia_compute_570=PackageState("570.211.01-1", "nvidia")))
    assert input_of(step, InstallInput).leftovers == ("libnvidia-compute-570",)
    (step,) = driver_changes(PLAN, with_packages(nvidia_driver_pinning_570=PackageState("570-1", "nvidia")))
    assert input_of(step, InstallInput).leftovers == ("nvidia-driver-pinning-570",)


def test_headers_are_wanted_of_the_kernel_that_boots_next() -> None:
    seen = host()
    seen = edited(seen, machine=replace(seen.system.machine, next_kernel="6.8.0-90-generic"))
    (step,) = driver_changes(PLAN, seen)
    given = input_of(step, InstallInput)
    assert given.headers == ("6.8.0-90-generic",)
    assert "linux-headers-generic" in given.packages


def test_signed_modules_follow_the_kernel_that_the_host_follows() -> None:
    plan = plan_of(source="distribution")
    hwe = with_packages(plan, **{"linux_image_generic_hwe_24.04": PackageState("6.14.0.1", "distribution")})
    (step,) = driver_changes(plan, hwe)
    assert "linux-modules-nvidia-580-open-generic-hwe-24.04" in input_of(step, InstallInput).packages
    (step,) = [step for step in driver_changes(plan, HostState()) if "headless" in step.says]
    assert "linux-modules-nvidia-580-open-generic" in input_of(step, InstallInput).packages


def test_a_container_needs_no_module_where_its_kernel_has_the_driver() -> None:
    seen = host(disk={})
    assert driver_changes(PLAN, seen)
    seen = edited(seen, machine=replace(seen.system.machine, virtual="docker"))
    assert driver_changes(PLAN, seen) == []


def test_a_driver_is_loaded_where_nothing_is_in_its_way() -> None:
    assert len(load_changes(PLAN, host(loaded=None))) == 1
    nouveau = host(loaded=None)
    nouveau = edited(nouveau, machine=replace(nouveau.system.machine, nouveau=True))
    assert load_changes(PLAN, nouveau) == []
    assert load_changes(PLAN, host(loaded=None, disk={KERNEL: "580.1.1"})) == []
    assert load_changes(PLAN, host(loaded="570.1.1")) == []


def test_a_reboot_says_why_and_who_goes_down() -> None:
    seen = host(
        loaded="580.65.06", library=VERSION, problem="Failed to initialize NVML: Driver/library version mismatch"
    )
    seen = updated(seen, units={"llama-chat": UnitState("active", "enabled", False, "", "")})
    seen = updated(seen, units={"llama-old": UnitState("inactive", "enabled", False, "", "")})
    (change,) = reboot_changes(PLAN, seen)
    assert change.how == reboot(VERSION, KERNEL, kept=False)
    why = "; ".join(change.reasons)
    assert why.startswith("the kernel runs driver 580.65.06, its libraries are 580.95.05 (nvidia-smi: Failed to")
    assert "llama-chat" in why
    assert "llama-old" not in why


def test_a_reboot_is_due_by_state_alone() -> None:
    after_a_kill = host(loaded=None)
    why = ("no driver is loaded, 580.95.05 is installed", "llama-reasoner, llama-worker will be down")
    assert reboot_changes(PLAN, after_a_kill) == [
        Change("reboot", "host", PLAN.rig, why, reboot(VERSION, KERNEL, kept=False)),
    ]
    for other in (f"{VERSION} 6.8.0-87-generic", f"580.65.06 {KERNEL}"):
        assert reboot_changes(PLAN, host(loaded=None, tried=other))


@pytest.mark.parametrize(
    ("plan", "nvidia", "said", "way_out"),
    [
        (PLAN, {"disk": {}}, f"kernel {KERNEL}, which the next boot starts, has no module of driver", "dkms status"),
        (PLAN, {"disk": {KERNEL: "570.1.1"}}, "has no module of driver 580.95.05", "make.log"),
        (PLAN, {"tried": f"{VERSION} {KERNEL}"}, "was rebooted for driver 580.95.05 already", "modprobe nvidia"),
        (plan_of(reboot=False), {}, "the inventory contains `reboot: false`", "sudo systemctl reboot"),
        (plan_of(connect="local"), {}, "it is the one that herd runs on", "sudo systemctl reboot"),
    ],
    ids=["no module", "another module", "tried", "not allowed", "local"],
)
def test_a_reboot_that_would_not_do_or_may_not_be_is_refused(
    plan: Plan, nvidia: dict[str, Any], said: str, way_out: str
) -> None:
    with pytest.raises(UserError) as refusal:
        reboot_changes(plan, host(plan, loaded=None, **nvidia))
    assert said in refusal.value.message
    assert way_out in refusal.value.help


# --- what stands in the way ------------------------------------------------------------------------------------------


def problems(plan: Plan, seen: HostState) -> list[str]:
    return [str(problem) for problem in driver_refusals(plan, seen)]


def test_a_runfile_comes_off_first() -> None:
    (said,) = problems(PLAN, host(runfile=True))
    assert "`sudo nvidia-uninstall`" in said


def test_the_other_source_is_named_and_not_touched() -> None:
    other = with_packages(libcuda1=PackageState("550.163.01-2", "distribution"))
    (said,) = problems(PLAN, other)
    assert "a driver of the distribution's, but the inventory declares `from: nvidia`: libcuda1" in said
    assert "`sudo apt-get remove libcuda1`" in said
    contrib = with_packages(nvidia_kernel_common=PackageState("20240109+1", "distribution"))
    assert problems(PLAN, contrib) == []
    (said,) = problems(plan_of(source="distribution"), with_packages(libcuda1=PackageState("570.1.1-1", "nvidia")))
    assert "a driver of NVIDIA's, but the inventory declares `from: distribution`" in said


def test_a_hold_of_somebodys_is_named_only_where_it_is_in_the_way() -> None:
    seen = host()
    seen = edited(seen, machine=replace(seen.system.machine, held=("libnvidia-compute-580:amd64", "docker.io")))
    assert problems(PLAN, seen) == []
    (said,) = problems(plan_of(version="580.105.08"), seen)
    assert "on hold: libnvidia-compute-580\n" in said
    assert "docker.io" not in said


@pytest.mark.parametrize(
    ("os", "source", "mok", "words"),
    [
        ("ubuntu-24.04", "nvidia", None, ["update-secureboot-policy --new-key", "MOK.der", "`from: distribution`"]),
        ("ubuntu-24.04", "nvidia", False, ["MOK.der", "`Enroll MOK`"]),
        ("debian-13", "nvidia", None, ["dkms generate_mok", "/var/lib/dkms/mok.pub"]),
        ("debian-13", "nvidia", True, []),
        ("ubuntu-24.04", "distribution", None, []),
    ],
)
def test_secure_boot_wants_a_key_that_a_person_lets_in(
    os: str, source: str, mok: bool | None, words: list[str]
) -> None:
    plan = plan_of(os, source)
    seen = HostState()
    seen = edited(seen, machine=replace(seen.system.machine, secure_boot=True, mok=mok))
    said = problems(plan, seen)
    assert len(said) == bool(words)
    for word in words:
        assert word in said[0]
    loaded = host(plan)
    loaded = edited(loaded, machine=replace(loaded.system.machine, secure_boot=True))
    assert problems(plan, loaded) == []


def test_room_is_asked_for_before_anything_is_installed() -> None:
    seen = HostState()
    seen = with_driver(seen, free=10**9)
    seen = edited(seen, machine=replace(seen.system.machine, boot_free=10**8))
    assert [said.partition(", and")[0] for said in problems(PLAN, seen)] == [
        "/ has 1.0 GB free",
        "/boot has 100 MB free",
    ]
