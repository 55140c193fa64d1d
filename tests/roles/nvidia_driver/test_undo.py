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
    DRIVER_UNDO_UNIT,
    DRIVER_WANTED,
    REBOOT_NOTE,
)
from llamaherd.onhost.apt import LOG
from llamaherd.onhost.document import VERSION, dump
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError
from roles.nvidia_driver.onhost import (
    LoadInput,
    RebootInput,
    load,
    reboot,
)
from roles.nvidia_driver.onhost.packages import install
from roles.nvidia_driver.onhost.undo import judge
from tests.support.driver_host import DAEMON, DKMS, DRIVER, FAILED, KERNEL, LIBRARY, DriverHost
from tests.support.driver_inputs import (
    BEFORE,
    NEW,
    OLD,
    REFUSED,
    TO,
    UNDO,
    given,
    installed,
    serves,
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
def test_one_that_does_not_respond_goes_back(more: dict[str, Any], why: str) -> None:
    host = installed(**more)
    host.files[str(REBOOT_NOTE)] = File(f"{NEW} {KERNEL}\n")
    host.boot()
    assert serves(host, OLD)
    assert (host.boots, host.left(), host.read(str(REBOOT_NOTE))) == (2, [], None)
    fields = (host.read(REFUSED) or "").removesuffix("\n").split("\t")
    assert [*fields[:2], *fields[3:]] == [NEW, "open nvidia", OLD, why]
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


@pytest.mark.parametrize("breaks", ["apt-get -q -y -o Dir", "no module", "no packages", "a full disk"])
def test_one_that_cannot_be_restored_is_reported_once(breaks: str) -> None:
    host = installed(refused={NEW})
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
    why = f"driver {OLD} could not be restored, see {LOG} on the host"
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
    assert "could not be restored" in (host.read(REFUSED) or "")


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


def test_killed_while_it_is_installed_the_next_run_completes_it() -> None:
    def again(host: DriverHost) -> None:
        install(given(), host)
        host.boot()

    hosts = ends_everywhere(lambda: working(refused={NEW}), lambda host: install(given(), host), again)
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


# --- hostile texts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", PLAIN)
def test_no_shell_reads_a_value(text: str) -> None:
    host = installed()
    reboot(RebootInput(text, text), host)
    with suppress(FailedError):
        load(LoadInput(text), host)
    assert not [each for each in host.done if each[0] == "sh" and each != ["sh", "-c", "command -v nvidia-smi"]]
