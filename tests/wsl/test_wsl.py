"""WSL around a host: what is planned, what is seen, what is written.

The inspection is run by a real shell, and files are really written. Windows is faked at its outermost edge: folders
play its disk and Linux' /proc, and no PowerShell is run.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.host.state import HostState, TextState, WslMachineState, WslState
from llamaherd.inventory import wsl_files
from llamaherd.onhost.document import encode
from llamaherd.onhost.system import FailedError, Host
from llamaherd.onhost.verbs import find_verb
from llamaherd.pipeline.inspection import state_of
from llamaherd.plan import Plan, WslPlan
from llamaherd.role.changes import Change, RunVerb
from roles import ROLES
from roles.base.onhost import Found as BaseFound
from roles.wsl import SCRIPTS, inspection_input, profile_of, state_parts, wsl_changes, wsl_notes, wsl_refusals
from roles.wsl.onhost import BACKUP, FilesInput, find_windows, inspect
from roles.wsl.onhost import Found as WslFound
from roles.wsl.onhost import InspectInput as WslQuestion
from tests.support.drifts import Drift
from tests.support.ours import parse_state, refusals, show_plan
from tests.support.rigs import KEY, PROFILE, converged, cpu_rig, gpu_rig, planned, wsl_rig
from tests.support.states import edited

PLAN = planned(wsl_rig())
NEW = (
    "[wsl2]\r\nmemory=64GB\r\nswap=16GB\r\nnetworkingMode=mirrored\r\nvmIdleTimeout=-1\r\n\r\n"
    "[general]\r\ninstanceIdleTimeout=-1\r\n"
)
USERS = "# mine\n[wsl2]\nmemory=8GB # enough\ngpuMemory=24GB"


def wsl_of(plan: Plan) -> WslPlan:
    assert plan.wsl
    return plan.wsl


def scripts(plan: Plan) -> dict[str, str]:
    return {script.path.removeprefix("llamaherd/"): script.text for script in wsl_of(plan).scripts}


# --- what is planned -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "settings"),
    [
        ({}, {"wsl2": {"vmIdleTimeout": "-1"}, "general": {"instanceIdleTimeout": "-1"}}),
        ({"keep_alive": False}, {}),
        ({"keep_alive": False, "memory": "48GiB", "swap": 0}, {"wsl2": {"memory": "48GB", "swap": "0"}}),
        ({"keep_alive": False, "memory": "48.5GB", "swap": "512MiB"}, {"wsl2": {"memory": "48500MB", "swap": "512MB"}}),
        (
            {"keep_alive": False, "processors": 8, "settings": {"wsl2": {"dhcp": False, "kernelDebugPort": 1}}},
            {"wsl2": {"processors": "8", "dhcp": "false", "kernelDebugPort": "1"}},
        ),
        # Of what is said twice, its own key counts.
        ({"keep_alive": False, "networking": "nat", "settings": {"Experimental": {"NetworkingMode": "mirrored"}}},
         {"wsl2": {"networkingMode": "nat"}}),
        ({"keep_alive": False, "settings": {"wsl2": {"kernelCommandLine": "a # b"}}},
         {"wsl2": {"kernelCommandLine": '"a # b"'}}),
    ],
)  # fmt: skip
def test_what_wslconfig_is_to_say(declared: dict[str, Any], settings: dict[str, dict[str, str]]) -> None:
    assert wsl_of(planned(cpu_rig(), {"host/wsl": declared})).settings == settings


def test_nothing_is_planned_of_wsl_where_it_is_not_declared() -> None:
    assert planned(cpu_rig()).wsl is None
    assert inspection_input(planned(cpu_rig())) is None


def test_a_host_that_is_not_wsl_is_recognized() -> None:
    """This machine is inspected for a plan of WSL."""
    if "microsoft" in Path("/proc/sys/kernel/osrelease").read_text(encoding="utf-8").lower():
        pytest.skip("this is WSL")
    assert inspect(WslQuestion(None), Host(print, print)) == WslFound()
    (problem,) = wsl_refusals(PLAN, parse_state([]))
    assert "`wsl:`" in problem.help


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, ["port-proxy.ps1", "autostart.ps1"]),
        ({"instances/chat/listen": "127.0.0.1"}, ["autostart.ps1"]),
        ({"host/wsl": {"keep_alive": False}}, ["port-proxy.ps1"]),
        ({"host/wsl": {"networking": "virtioproxy"}}, ["autostart.ps1"]),
        ({"host/wsl": {"networking": "none", "keep_alive": False}}, []),
    ],
)
def test_which_scripts_windows_is_to_run(changes: dict[str, Any], names: list[str]) -> None:
    assert list(scripts(planned(wsl_rig(), changes))) == names


def test_power_limits_and_clocks_are_windows_to_set() -> None:
    cards = {
        "new": {"model": "RTX 5090", "uuid": "GPU-5090", "power_limit": "450W"},
        "old": {"model": "RTX 3090", "uuid": "GPU-3090", "power_limit": "280W", "clocks": {"max": "1800MHz"}},
    }
    plan = planned(gpu_rig(), {"host/wsl": {}, "gpus/cards": cards})
    assert plan.power is None
    text = scripts(plan)["gpu-power.ps1"]
    for command in ("-i GPU-5090 -pl 450", "-i GPU-3090 -pl 280", "-i GPU-3090 -lgc 210,1800"):
        assert f"'{command}'" in text


def test_fans_are_nothing_that_a_script_could_set_in_windows() -> None:
    fans: dict[str, Any] = {"host/wsl": {}, "gpus/cards/new/fans": "70%"}
    plan = planned(gpu_rig(), fans)
    assert "gpu-power.ps1" not in scripts(plan)
    assert "  power      new: fans at 70 %, which is Windows' to set\n" in show_plan(plan)
    both = planned(gpu_rig(), {**fans, "gpus/cards/new/power_limit": "450W"})
    assert both.windows_power[0].fans == 70
    only = planned(gpu_rig(), {"host/wsl": {}, "gpus/cards/new/power_limit": "450W"})
    assert scripts(both)["gpu-power.ps1"] == scripts(only)["gpu-power.ps1"]


@pytest.mark.parametrize(
    ("networking", "words", "other"),
    [("mirrored", "New-NetFirewallHyperVRule", "netsh"), (None, "netsh.exe interface portproxy add", "HyperVRule")],
)
def test_the_way_in_from_the_lan_depends_on_the_network(networking: str | None, words: str, other: str) -> None:
    wsl = {"networking": networking} if networking else {}
    text = scripts(planned(wsl_rig(), {"host/wsl": wsl, "instances/drafter/listen": "::"}))["port-proxy.ps1"]
    assert "$ports = @(8080, 8081)" in text
    assert words in text
    assert other not in text


def test_every_script_is_what_any_powershell_reads() -> None:
    """Windows' own takes a text without a byte order mark for one of its code page: only ASCII is the same in all."""
    changes: dict[str, Any] = {"host/wsl": {"memory": "64GB"}, "gpus/cards/new/power_limit": "450W"}
    texts = scripts(planned(gpu_rig(), {**changes, "instances/small/listen": "0.0.0.0"}))
    assert tuple(texts) == SCRIPTS
    for text in texts.values():
        assert text.isascii()
        assert text.count("\n") == text.count("\r\n")
        assert "#Requires -RunAsAdministrator\r\n" in text
        assert "To undo it" in text


# --- what is seen and written, by a real shell ------------------------------------------------------------------


class Machine:
    """A folder with Windows' disk and Linux' own files in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.profile = root / PROFILE[1:]
        for name in ("tom", "Public", "Default", "All Users"):
            (root / "mnt/c/Users" / name / "AppData/Local").mkdir(parents=True)
        (root / "etc").mkdir()
        (root / "proc").mkdir()
        (root / "proc/mounts").write_text(
            "/dev/sdd / ext4 rw 0 0\nnone /mnt/wsl tmpfs rw 0 0\n"
            "C:\\134 /mnt/c 9p rw,noatime,aname=drvfs;path=C:\\;uid=1000 0 0\n"
        )
        (root / "proc/meminfo").write_text(f"MemTotal:       {62 << 20} kB\nMemFree: 1 kB\n")
        (root / "proc/cpuinfo").write_text("processor\t: 0\nmodel name\t: x\nprocessor\t: 1\n")
        self.restarted(1000)
        (root / "etc/wsl.conf").write_bytes(wsl_files.merge_wslconf(None))

    @property
    def wslconfig(self) -> Path:
        return self.profile / ".wslconfig"

    def restarted(self, at: int = 4000000000) -> None:
        """The virtual machine was started at this time, by default after all that is written here."""
        (self.root / "proc/stat").write_text(f"cpu 1 2 3\nbtime {at}\nprocesses 1\n")

    def snapshot(self, plan: Plan = PLAN) -> HostState:
        """Return what an inspection of this part finds."""
        seen = parse_state(["wsl\trelease\t6.6.87.2-microsoft-standard-WSL2"])
        question = WslQuestion(wsl_of(plan).profile, root=str(self.root))
        seen = seen.with_parts(*state_parts(find_windows(question, Host(print, print))))
        return edited(seen, systemd=True)

    def converge(self, plan: Plan = PLAN, seen: HostState | None = None) -> list[str]:
        """Carry out what is to be done, in the folder; what each step failed with."""
        return [self.failure_of(step) for step in wsl_changes(plan, seen or self.snapshot(plan))]

    def failure_of(self, step: Change) -> str:
        """Run a step with real files, by the umask of the program on hosts. Empty where it went well."""
        assert isinstance(step.how, RunVerb)
        before = os.umask(0o077)
        try:
            find_verb(step.how.verb).run(self.inside(step.how.given), Host(print, print))
        except FailedError as error:
            return f"{error.message}\n{error.fix}"
        finally:
            os.umask(before)
        return ""

    def inside(self, given: object) -> object:
        """Return an input with its paths in the folder."""
        if not isinstance(given, FilesInput):
            return given
        files = tuple(replace(each, path=f"{self.root}{each.path}") for each in given.files)
        return FilesInput(files, tuple(f"{self.root}{path}" for path in given.stale))

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-s"], input=f"{{\n{script}\n}} </dev/null\n", capture_output=True, text=True, check=False
        )

    def run_in_windows(self) -> None:
        """What the end of each script leaves: its own hash, as PowerShell writes one."""
        for path, script in WslState.of(self.snapshot()).scripts.items():
            (self.root / path[1:]).with_suffix(".applied").write_text(f"{script.sha256.upper()}\r\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def good(failures: list[str]) -> int:
    """How many steps there were; all went well."""
    assert failures == [""] * len(failures)
    return len(failures)


def test_a_virgin_windows_gets_all_and_a_second_run_changes_nothing(machine: Machine) -> None:
    assert good(machine.converge()) == 1
    assert machine.wslconfig.read_bytes().decode() == NEW
    assert {file.name for file in (machine.profile / "llamaherd").iterdir()} == set(scripts(PLAN))
    for name, text in scripts(PLAN).items():
        assert (machine.profile / "llamaherd" / name).read_bytes().decode() == text
    assert sorted(file.name for file in machine.profile.iterdir()) == [".wslconfig", "AppData", "llamaherd"]
    assert machine.converge() == []


def test_what_is_left_for_people_is_told_until_it_is_done(machine: Machine) -> None:
    virgin = machine.snapshot()
    notes = wsl_notes(PLAN, virgin)
    machine.converge(seen=virgin)
    assert wsl_notes(PLAN, machine.snapshot()) == notes
    restart, *commands = notes
    assert restart.startswith("/mnt/c/Users/tom/.wslconfig is newer than the virtual machine that runs")
    assert "`wsl --shutdown` in Windows" in restart
    assert [command.rsplit(": ", 1)[1] for command in commands] == [
        f'powershell -ExecutionPolicy Bypass -File "$HOME\\llamaherd\\{name}"' for name in scripts(PLAN)
    ]
    machine.restarted()
    assert wsl_notes(PLAN, machine.snapshot()) == commands
    machine.run_in_windows()
    assert wsl_notes(PLAN, machine.snapshot()) == []
    assert machine.converge() == []


def test_a_script_that_became_another_is_to_be_run_again(machine: Machine) -> None:
    machine.converge()
    machine.restarted()
    machine.run_in_windows()
    other = planned(wsl_rig(), {"instances/drafter/listen": "0.0.0.0"})
    assert good(machine.converge(other)) == 1
    (note,) = wsl_notes(other, machine.snapshot(other))
    assert note.endswith('port-proxy.ps1"')


def test_the_users_file_is_kept_but_for_our_keys_and_once_as_it_was(machine: Machine) -> None:
    machine.wslconfig.write_text(USERS)
    backup = machine.profile / f".wslconfig{BACKUP}"
    good(machine.converge())
    assert machine.wslconfig.read_text().startswith("# mine\n[wsl2]\nmemory=64GB # enough\ngpuMemory=24GB\nswap=16GB\n")
    assert backup.read_text() == USERS
    assert any("gpuMemory" in note for note in wsl_notes(PLAN, machine.snapshot()))
    assert good(machine.converge(planned(wsl_rig(), {"host/wsl/memory": "32GB"}))) == 1
    assert "memory=32GB # enough" in machine.wslconfig.read_text()
    assert backup.read_text() == USERS


def test_what_is_written_after_the_look_is_not_lost(machine: Machine) -> None:
    machine.wslconfig.write_text(USERS)
    seen = machine.snapshot()
    machine.wslconfig.write_text("[wsl2]\nmemory=1GB\n")
    assert machine.converge(seen=seen) == [
        f"{machine.wslconfig} has changed while this ran, and was left alone\nrun again"
    ]
    assert machine.wslconfig.read_text() == "[wsl2]\nmemory=1GB\n"
    assert not (machine.profile / f".wslconfig{BACKUP}").exists()


def test_a_file_that_came_after_the_look_is_not_lost(machine: Machine) -> None:
    seen = machine.snapshot()
    machine.wslconfig.write_text(USERS)
    (failure,) = machine.converge(seen=seen)
    assert "has changed while this ran" in failure
    assert machine.wslconfig.read_text() == USERS


def test_a_run_that_was_killed_in_the_middle_leaves_nothing_that_counts(machine: Machine) -> None:
    machine.wslconfig.write_text(USERS)
    (machine.profile / f".wslconfig{BACKUP}.new").write_text("ha")
    (machine.profile / ".wslconfig.llamaherd-new").write_text("ha")
    good(machine.converge())
    assert (machine.profile / f".wslconfig{BACKUP}").read_text() == USERS
    assert sorted(file.name for file in machine.profile.iterdir() if file.is_file()) == [
        ".wslconfig",
        f".wslconfig{BACKUP}",
    ]


def test_a_file_that_lies_elsewhere_stays_there(machine: Machine) -> None:
    dotfiles = machine.profile / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "wslconfig").write_text(USERS)
    machine.wslconfig.symlink_to("dotfiles/wslconfig")
    good(machine.converge())
    assert machine.wslconfig.is_symlink()
    assert "memory=64GB" in (dotfiles / "wslconfig").read_text()
    assert machine.converge() == []


def test_what_is_no_longer_planned_is_taken_away(machine: Machine) -> None:
    machine.converge()
    machine.run_in_windows()
    (machine.profile / "llamaherd/mine.ps1").write_text("# mine")
    inward = planned(wsl_rig(), {"instances/chat/listen": "127.0.0.1"})
    assert good(machine.converge(inward)) == 1
    left = {file.name for file in (machine.profile / "llamaherd").iterdir()}
    assert left == {"autostart.ps1", "autostart.applied", "mine.ps1"}
    assert machine.converge(inward) == []


def test_wsl_conf_gets_systemd_and_keeps_its_mode(machine: Machine) -> None:
    file = machine.root / "etc/wsl.conf"
    file.write_text("[user]\ndefault=tom\n")
    file.chmod(0o640)
    machine.converge()
    assert file.read_text() == "[user]\ndefault=tom\n\n[boot]\nsystemd=true\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert machine.converge() == []


def test_without_systemd_a_run_writes_and_ends_with_what_is_to_be_done(machine: Machine) -> None:
    (machine.root / "etc/wsl.conf").unlink()
    seen = machine.snapshot()
    seen = edited(seen, systemd=False)
    assert not [problem for problem in refusals(PLAN, seen, {}) if "systemd" in problem.message]
    wrote, ended = machine.converge(seen=seen)
    assert wrote == ""
    assert ended.startswith("systemd does not run yet")
    assert "`wsl --terminate NAME` stops it" in ended
    again = edited(machine.snapshot(), systemd=False)
    (problem,) = [problem for problem in refusals(PLAN, again, {}) if "systemd" in problem.message]
    assert "wsl --terminate NAME" in problem.help


def test_the_windows_user_is_found_by_what_can_be_opened(machine: Machine) -> None:
    # Another user's folder, into which WSL cannot look.
    (machine.root / "mnt/c/Users/anna").mkdir()
    seen = WslState.of(machine.snapshot())
    assert seen.profiles == {PROFILE: False}
    assert profile_of(wsl_of(PLAN), seen) == PROFILE


@pytest.mark.parametrize("disk", ["wsl/{guid}/ext4.vhdx", "Packages/CanonicalGroupLimited.Ubuntu/LocalState/ext4.vhdx"])
def test_of_several_users_the_one_with_a_distribution_is_meant(machine: Machine, disk: str) -> None:
    anna = machine.root / "mnt/c/Users/anna b/AppData/Local"
    (anna / disk).parent.mkdir(parents=True)
    (anna / disk).touch()
    seen = WslState.of(machine.snapshot())
    assert profile_of(wsl_of(PLAN), seen) == "/mnt/c/Users/anna b"
    machine.converge()
    assert (machine.root / "mnt/c/Users/anna b/.wslconfig").read_bytes().decode() == NEW


def test_a_disk_of_windows_may_be_mounted_elsewhere(machine: Machine) -> None:
    (machine.root / "mnt/c").rename(machine.root / "c")
    mounts = machine.root / "proc/mounts"
    mounts.write_text(mounts.read_text().replace(" /mnt/c ", " /c "))
    seen = WslState.of(machine.snapshot())
    assert list(seen.profiles) == ["/c/Users/tom"]


DECLARED = planned(wsl_rig(), {"host/wsl/windows_profile": "/mnt/c/Users/anna/"})


def test_the_declared_user_is_the_one(machine: Machine) -> None:
    assert "there is no folder /mnt/c/Users/anna" in str(wsl_refusals(DECLARED, machine.snapshot(DECLARED))[0])
    (machine.root / "mnt/c/Users/anna").mkdir()
    assert wsl_refusals(DECLARED, machine.snapshot(DECLARED)) == []
    good(machine.converge(DECLARED))
    assert (machine.root / "mnt/c/Users/anna/.wslconfig").exists()
    assert not machine.wslconfig.exists()


# --- what stands in the way ---------------------------------------------------------------------------------------


def seen_of(drift: Drift | None = None, plan: Plan = PLAN) -> HostState:
    seen = parse_state(converged(plan, {"chat": KEY}))
    return drift(seen) if drift else seen


def wslconfig(content: bytes, path: str = f"{PROFILE}/.wslconfig") -> Drift:
    def drift(seen: HostState) -> HostState:
        windows = WslState.of(seen)
        return seen.with_parts(replace(windows, files={**windows.files, path: TextState(0, content)}))

    return drift


def profiles(*paths: str) -> Drift:
    return lambda seen: seen.with_parts(replace(WslState.of(seen), profiles=dict.fromkeys(paths, False)))


def release(text: str) -> Drift:
    return lambda seen: edited(seen, wsl=text)


PROBLEMS: dict[str, tuple[Plan, Drift, str, str]] = {
    "no WSL": (PLAN, release(""), "under WSL 2, and this host is none", "`wsl:` out of `host:`"),
    "not declared": (
        planned(cpu_rig()),
        release("6.6.87.2-microsoft-standard-WSL2"),
        "the inventory does not declare it",
        "add `wsl: {}`",
    ),
    "WSL 1": (PLAN, release("4.4.0-19041-Microsoft"), "under WSL 1", "wsl --set-version"),
    "no user": (PLAN, profiles(), "the Windows user's folder cannot be found", "windows_profile: /mnt/c/Users/NAME"),
    "two users": (
        PLAN,
        profiles(PROFILE, "/mnt/c/Users/anna"),
        "several Windows users can own WSL here: there are /mnt/c/Users/anna, /mnt/c/Users/tom",
        "windows_profile: /mnt/c/Users/anna",
    ),
    "another user": (DECLARED, profiles(PROFILE), "there is no folder /mnt/c/Users/anna", "windows_profile:"),
    "UTF-16": (PLAN, wslconfig(NEW.encode("utf-16")), "written in UTF-16", "Set-Content -Encoding utf8"),
    "wsl.conf": (
        PLAN,
        wslconfig(b"; no\n", wsl_files.WSL_CONF),
        "line 1 of /etc/wsl.conf",
        "comments begin with `#`",
    ),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_what_stands_in_the_way(case: str) -> None:
    plan, drift, message, help_ = PROBLEMS[case]
    seen = seen_of(drift, plan)
    (problem,) = wsl_refusals(plan, seen)
    assert message in problem.message
    assert help_ in problem.help
    assert problem in refusals(plan, seen, {})


def test_a_host_as_planned_has_no_problem_no_step_and_no_note() -> None:
    seen = seen_of()
    assert (wsl_refusals(PLAN, seen), wsl_changes(PLAN, seen), wsl_notes(PLAN, seen)) == ([], [], [])


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (WslMachineState(4e9, 31 << 30, 32), "memory=64GB, and the virtual machine has 31744MB"),
        (WslMachineState(4e9, 62 << 30, 8), "processors=16, and the virtual machine has 8"),
    ],
)
def test_a_virtual_machine_that_has_less_than_the_file_says_is_told(machine: WslMachineState, words: str) -> None:
    plan = planned(wsl_rig(), {"host/wsl/processors": 16})
    seen = seen_of(plan=plan)
    seen = seen.with_parts(replace(WslState.of(seen), machine=machine))
    (note,) = wsl_notes(plan, seen)
    assert words in note
    assert "windows_profile" in note
    seen = seen.with_parts(replace(WslState.of(seen), machine=WslMachineState(1, *machine[1:])))
    (note,) = wsl_notes(plan, seen)
    assert "counts from its next start" in note


def test_a_content_that_is_not_base64_is_refused() -> None:
    found = {"profiles": {}, "files": {"/x": {"written": 1.0, "content": "%%"}}, "scripts": {}, "machine": None}
    base = encode(BaseFound(wsl="6.6"))
    parts = {"base.inspect": base, "wsl.inspect": found}
    with pytest.raises(UnexpectedLineError):
        state_of({"files": {}, "parts": parts, "lines": [], "unknown": []}, ROLES)
