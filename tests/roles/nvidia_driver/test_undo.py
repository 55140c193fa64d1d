"""The unit that judges a driver at a boot, on a played host: the one before is restored, wherever the power goes."""

from __future__ import annotations

import itertools
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llamaherd.host.program import packed_program
from llamaherd.layout import (
    DRIVER_BEFORE,
    DRIVER_HELD,
    DRIVER_READING,
    DRIVER_UNDO_UNIT,
    DRIVER_WANTED,
    REBOOT_MARK,
    REBOOT_NOTE,
)
from llamaherd.onhost.apt import LOG
from llamaherd.onhost.document import VERSION, dump
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError
from roles.nvidia_driver.onhost.booting import (
    LoadInput,
    NothingInput,
    RebootInput,
    SettleInput,
    forget_before,
    load,
    reboot,
    require_booted,
    settle,
)
from roles.nvidia_driver.onhost.packages import install
from roles.nvidia_driver.onhost.undo import TakeBackInput, UndoInput, judge, take_back
from tests.support.driver_host import DAEMON, DKMS, DRIVER, FAILED, KERNEL, LIBRARY, DriverHost
from tests.support.driver_inputs import (
    BACK,
    BEFORE,
    JUDGED,
    NEW,
    OLD,
    REFUSED,
    TO,
    UNDO,
    bytes_of,
    given,
    installed,
    serves,
    slower,
    working,
)
from tests.support.hostile import PLAIN
from tests.support.played_host import File, Killed


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"refused": {NEW}}, f"nvidia-smi: {FAILED}"),
        ({"hung": {NEW}}, "nvidia-smi hangs"),
    ],
    ids=["refused by the kernel", "hangs"],
)
@pytest.mark.parametrize("undo", [UNDO, JUDGED], ids=["", "judged"])
def test_one_that_does_not_respond_goes_back(undo: UndoInput, more: dict[str, Any], why: str) -> None:
    host = installed(undo, **more)
    host.files[str(REBOOT_NOTE)] = File(f"{NEW} {KERNEL}\n")
    host.boot()
    assert serves(host, OLD)
    assert (host.boots, host.left(), host.read(str(REBOOT_NOTE))) == (2, [], None)
    fields = (host.read(REFUSED) or "").removesuffix("\n").split("\t")
    assert [*fields[:2], *fields[3:]] == [NEW, "open nvidia", OLD, why, *([""] if undo.judged else [])]
    assert fields[2].endswith(" UTC")
    assert host.read(str(DRIVER_WANTED)) == "wants 580\n"
    assert host.read(str(DRIVER_HELD)) is None
    assert f"driver {NEW} did not come up: {why}" in host.log


def test_what_is_restored_is_fetched_from_nowhere_and_nothing_pins_the_new_one() -> None:
    host = installed(refused={NEW})
    host.done.clear()
    host.boot()
    (words,) = [each for each in host.done if "install" in each]
    assert {"Dir::Etc::preferencesparts=/dev/null", "Acquire::Retries=0", "--allow-downgrades"} <= set(words)
    assert [each for each in words if each.startswith("/")] == [
        f"{DRIVER_BEFORE}/debs/{name}_{BEFORE}_amd64.deb" for name in sorted(DRIVER)
    ]
    assert host.index("remove", str(DRIVER_HELD)) < host.index(*words)
    assert not host.has_done("update")


def test_one_that_shows_fewer_gpus_goes_back() -> None:
    host = working(gpus=2)
    install(given(), host)
    host.gpus = 1
    host.boot()
    assert (host.read(REFUSED) or "").rstrip().endswith("nvidia-smi shows 1 of 2 GPUs")
    assert serves(host, OLD)


def test_a_driver_has_a_minute_to_respond() -> None:
    class Late(DriverHost):
        """A host whose driver shows its GPU late."""

        def _driver(self, words: list[str]) -> Ended:
            if words[0] == "nvidia-smi" and self.boots and self.time < 60:
                return Ended(9, "\nit is\tnot ready \x1b[2J\u00e9\n")
            return super()._driver(words)

    host = Late(**vars(installed()))
    host.time = 0
    host.boot()
    assert (host.boots, serves(host, NEW)) == (1, True)
    host = Late(**vars(installed()))
    host.time = -1000
    host.boot()
    assert (host.read(REFUSED) or "").endswith("\tnvidia-smi: it is not ready  [2J \n")
    assert f"driver {NEW} did not come up: nvidia-smi: it is not ready  [2J " in host.log


def test_a_modprobe_that_hangs_is_named() -> None:
    host = installed(hung={NEW}, ends={"modprobe nvidia": Ended(TIMED_OUT)})
    host.boot()
    assert "the driver hangs" in (host.read(REFUSED) or "")


def test_the_boot_that_changed_it_does_not_judge() -> None:
    host = installed(refused={NEW})
    judge(UNDO, host)
    assert (host.installed[LIBRARY], host.read(REFUSED)) == (TO, None)


def test_what_is_not_complete_is_not_judged() -> None:
    for name in ("from", "to", "cards"):
        host = installed(refused={NEW})
        host.files.pop(f"{DRIVER_BEFORE}/{name}")
        host.boot()
        assert (host.installed[LIBRARY], host.left()) == (TO, [])


@pytest.mark.parametrize("undo", [UNDO, JUDGED], ids=["", "judged"])
@pytest.mark.parametrize("breaks", ["apt-get -q -y -o Dir", "no module", "no packages", "a full disk"])
def test_one_that_cannot_be_restored_is_reported_once(breaks: str, undo: UndoInput) -> None:
    host = installed(undo, refused={NEW})
    host.files[str(REBOOT_MARK)] = File("")
    if breaks == "no module":
        host.uncompiled = {OLD}
    elif breaks == "no packages":
        host.remove(f"{DRIVER_BEFORE}/debs")
    elif breaks == "a full disk":
        host.full = "apt/preferences.d"
    else:
        host.ends[breaks] = Ended(100)
    host.boot()
    assert (host.boots, host.left()) == (1, [])
    why = f"driver {OLD} could not be brought back, {LOG} on the host says why"
    assert why in (host.read(REFUSED) or "")


def test_a_host_that_is_not_to_be_booted_loads_the_driver_before() -> None:
    host = installed(replace(UNDO, may_reboot=False), refused={NEW})
    host.boot()
    assert serves(host, OLD)
    assert (host.boots, host.left()) == (1, [])
    assert host.has_done("systemctl", "start", f"{DAEMON}.service")


def test_where_the_power_goes_again_and_again_it_ends_after_three_tries() -> None:
    host = installed(refused={NEW})
    host.files[f"{DRIVER_BEFORE}/tries"] = File("again\n" * 3)
    host.boot()
    assert (host.boots, host.left(), host.installed[LIBRARY]) == (1, [], TO)
    assert "could not be brought back" in (host.read(REFUSED) or "")


# --- servers that judge --------------------------------------------------------------------------------------


def test_one_that_responds_is_kept_until_servers_were_measured() -> None:
    host = installed(JUDGED)
    host.files[str(DRIVER_READING)] = File("figures")
    host.boot()
    assert serves(host, NEW)
    assert host.read(f"{DRIVER_BEFORE}/answered") == ""
    assert not [each for each in host.left() if "undo.service" in each or each in host.enabled]
    # The next boot judges nothing.
    host.boot()
    assert serves(host, NEW)
    forget_before(NothingInput(), host)
    assert (host.left(), host.read(str(DRIVER_READING))) == ([], None)


def test_one_that_servers_are_slower_by_goes_back() -> None:
    host = slower()
    take_back(bytes_of(BACK, TakeBackInput), host)
    steps = [("write", f"{DRIVER_BEFORE}/slower"), ("-q", "enable", DRIVER_UNDO_UNIT), ("write", str(REBOOT_MARK))]
    found = [host.index(*words) for words in (*steps, ("--no-block", "start"))]
    assert found == sorted(found)
    with pytest.raises(FailedError):
        require_booted(NothingInput(), host)
    host.judge()
    assert host.rebooting
    host.boot()
    require_booted(NothingInput(), host)
    assert serves(host, OLD)
    assert (host.left(), host.read(str(DRIVER_READING))) == ([], None)
    fields = (host.read(REFUSED) or "").removesuffix("\n").split("\t")
    assert (fields[0], *fields[3:]) == (NEW, OLD, "chat is slower by it", "slower")


def test_nothing_goes_back_to_what_is_gone() -> None:
    host = slower()
    host.remove(f"{DRIVER_BEFORE}/answered")
    with pytest.raises(FailedError, match="what was kept of the driver before is gone"):
        take_back(BACK, host)
    host = slower()
    host.ends["systemctl --no-block start"] = Ended(1, "", "it is masked\n")
    with pytest.raises(FailedError, match="cannot start llamaherd-driver-undo"):
        take_back(BACK, host)


@pytest.mark.usefixtures("starts_processes")
def test_a_unit_runs_the_copied_program_with_its_document(tmp_path: Path) -> None:
    """Its name has no ending, and Python runs it even so. The document lacks a field, so that it changes nothing."""
    program, document = tmp_path / "driver-undo", tmp_path / "undo.json"
    program.write_bytes(packed_program().data)
    document.write_text(dump({"version": VERSION, "verb": "nvidia_driver.undo.judge", "input": {"kind": "open"}}))
    words = [sys.executable, "-I", str(program), str(document)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (2, "UndoInput.may_reboot is missing")


# --- killed anywhere -----------------------------------------------------------------------------------------


def ends_everywhere(make: Any, run: Any, then: Any) -> list[DriverHost]:
    """Kill a run before each of its steps, and do something each time. Return the hosts afterwards."""
    hosts: list[DriverHost] = []
    for at in itertools.count():
        host = make()
        host.steps, host.kill_at = 0, at
        killed = True
        with suppress(Killed):
            run(host)
            killed = False
        host.kill_at = -1
        host.held.clear()
        if not killed:
            return hosts
        then(host)
        hosts.append(host)
    raise AssertionError


@pytest.mark.parametrize("undo", [UNDO, JUDGED], ids=["", "judged"])
def test_killed_while_it_is_installed_the_next_run_completes_it(undo: UndoInput) -> None:
    def again(host: DriverHost) -> None:
        install(given(undo=undo), host)
        host.boot()

    hosts = ends_everywhere(lambda: working(refused={NEW}), lambda host: install(given(undo=undo), host), again)
    assert len(hosts) > 20
    for host in hosts:
        assert serves(host, OLD), host.kill_at
        assert (host.left(), (host.read(REFUSED) or "").partition("\t")[0]) == ([], NEW)


def test_killed_while_it_is_installed_the_next_boot_goes_back_by_itself() -> None:
    """A boot in the middle of apt: what the kernel refuses goes; what is still the one before stays."""
    hosts = ends_everywhere(lambda: working(refused={NEW}), lambda host: install(given(), host), DriverHost.boot)
    for host in hosts:
        assert host.module == OLD
        assert not {DRIVER_UNDO_UNIT.removesuffix(".service")} & host.enabled or host.installed[DKMS] == BEFORE


def test_the_power_may_go_while_it_is_judged() -> None:
    hosts = ends_everywhere(lambda: installed(refused={NEW}), DriverHost.boot_once, DriverHost.boot)
    assert len(hosts) > 15
    for host in hosts:
        assert serves(host, OLD)
        # At most the unit is left, which does nothing without that folder.
        assert (host.entry(str(DRIVER_BEFORE)), (host.read(REFUSED) or "").partition("\t")[0]) == (None, NEW)


def test_the_power_may_go_while_a_slower_one_is_taken_back() -> None:
    def run(host: DriverHost) -> None:
        take_back(BACK, host)
        host.judge()

    def resume(host: DriverHost) -> None:
        host.boot()
        if host.entry(f"{DRIVER_BEFORE}/answered"):  # the next run measures again
            take_back(BACK, host)
            host.judge()
            host.boot()

    hosts = ends_everywhere(slower, run, resume)
    assert len(hosts) > 20
    for host in hosts:
        assert serves(host, OLD)
        assert (host.entry(str(DRIVER_BEFORE)), (host.read(REFUSED) or "").rstrip().split("\t")[-1]) == (None, "slower")


# --- hostile texts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", PLAIN)
def test_no_shell_reads_a_value(text: str) -> None:
    host = slower()
    take_back(replace(BACK, why=text), host)
    host.judge()
    host.boot()
    assert serves(host, OLD)
    reboot(RebootInput(text, text), host)
    settle(SettleInput((text,), 1), host)
    with suppress(FailedError):
        load(LoadInput(text), host)
    assert not [each for each in host.done if each[0] == "sh" and each != ["sh", "-c", "command -v nvidia-smi"]]
