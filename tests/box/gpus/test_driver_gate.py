"""A driver by which a server is slower: measured before and after its reboot, taken back, and not tried again.

The server is a real one, on the processor. What one driver does to it is played: while that is loaded, whatever is
measured is stopped for most of the time. GPUs, their module and the driver's packages are stand-ins, as all over here.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest

from box import downloads
from box.cli import CACHE
from box.inside import File
from tests.box.bench import HERD, Bench, Declared, Ended
from tests.box.gpus.rigs import SERVING, GpuRig, bare
from tests.box.slot import compiling
from tests.support.fake_kernel import RTX_3090
from tests.support.nvidia_packages import debian_driver, headers, pinning

# Rare, as speeds are judged that other lanes disturb: what `herd` makes of any reading is tested without a host.
pytestmark = [pytest.mark.rare]

BEFORE, AS_FAST, SLOW = "580.105.08", "590.48.01", "610.43.02"
KEPT = "/var/lib/llamaherd/driver-before"
PLACES = f"{KEPT} /var/lib/llamaherd/driver-reading /etc/systemd/system/llamaherd-driver-undo.service"
UP = [HERD, "up", "--yes"]
GATE = {"prefill": "-30%", "budget": "5m"}

SLOWER = f"""\
[Unit]
Description=Stand in for a driver that is slow

[Service]
ExecStart=/bin/sh -c 'while sleep 0.1; do \\
    [ "$(cat /sys/module/nvidia/version)" = {SLOW} ] || continue; \\
    pid=$(systemctl show -P MainPID llamaherd-arm-a-chat); \\
    while [ "$pid" -gt 0 ] && kill -STOP $pid; do sleep 0.15; kill -CONT $pid; sleep 0.03; done; \\
done 2>/dev/null'

[Install]
WantedBy=multi-user.target
"""


def declared(rig: GpuRig, version: str, **gate: object) -> Declared:
    """The rig with this driver, and a server on its processor that must not become slower."""
    box, made = Bench(rig.host, rig.folder).rig(), rig.rig(branch=int(version[:3]), version=version)
    chat = {**box["instances"]["chat"], "context": 256, "gate": {**GATE, **gate}}
    del chat["api_key"]
    return made | {
        "engines": {"main": box["engines"]["main"]},
        "models": {"gemma-3-270m": box["models"]["gemma-3-270m"]},
        "instances": {"chat": chat},
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuRig]:
    """A rig that serves, with the driver that all begins with. With LLAMAHERD_KEEP=1 it is not removed afterwards."""
    for artifact in (downloads.LLAMA_CPP, downloads.GEMMA):
        downloads.fetch(artifact, CACHE)
    rig = bare("debian-13", tmp_path_factory.mktemp("rig"), SERVING, "llamaherd")
    try:
        rig.fit([RTX_3090])
        rig.host.put(File("/etc/systemd/system/slow-driver.service", SLOWER.encode(), 0o644))
        rig.sh("systemctl daemon-reload; systemctl enable -q --now slow-driver")
        drivers = [package for version in (BEFORE, AS_FAST, SLOW) for package in debian_driver(version)]
        rig.repository.publish(*drivers, *map(pinning, ("580", "590", "610")), headers(rig.kernel))
        with rig.repository:
            rig.declare(declared(rig, BEFORE))
            with compiling(rig.host, downloads.LLAMA_CPP):
                ended = rig.up("--yes")
            assert ended.code == 0, ended.output
            yield rig
    finally:
        if not os.environ.get("LLAMAHERD_KEEP"):
            rig.host.down()


@pytest.fixture
def serving(made: GpuRig) -> GpuRig:
    """The same, with the driver that all begins with, whatever a test before has left."""
    made.sh("rm -f /var/lib/llamaherd/driver-refused")
    made.declare(declared(made, BEFORE))
    ended = made.up("--yes", "--retry")
    assert ended.code == 0, ended.output
    settled(made, BEFORE)
    return made


def settled(rig: GpuRig, version: str) -> None:
    """This driver is loaded, the server answers, and nothing is kept of any other."""
    assert rig.sh("cat /sys/module/nvidia/version") == version
    assert rig.version("libcuda1") == f"{version}-1"
    assert rig.sh(f"ls -d {PLACES} 2>/dev/null", check=False) == ""
    assert rig.sh("curl -s --retry 30 --retry-all-errors -m 5 http://127.0.0.1:8080/health") == '{"status":"ok"}'
    assert rig.sh("systemctl list-units --all --plain --no-legend 'llamaherd-arm*'") == ""


def went_back(rig: GpuRig, ended: Ended) -> None:
    """It was slower: the run says by how much, and the host has the driver of before and remembers why."""
    assert ended.code == 1, ended.output
    told = rf"driver {SLOW} was taken back, and {BEFORE} serves again: chat is slower by it: reading -\d+"
    assert re.search(told, ended.output), ended.output
    figures = r"reading -\d+\.\d% \(-\d+\.\d% to -\d+\.\d%, [3-5] starts\), and -30\.0% may be lost"
    assert re.search(figures, ended.output), ended.output
    assert "Traceback" not in ended.output
    settled(rig, BEFORE)
    assert rig.sh("cut -f 1,4,6 /var/lib/llamaherd/driver-refused") == f"{SLOW}\t{BEFORE}\tslower"


def killed_while_it_is_measured_since(rig: GpuRig) -> None:
    """The run is killed after the reboot, once it measures for the second time; the host is left to itself."""
    seen: list[str] = []

    def second(line: str) -> bool:
        seen.extend([line] if "chat: it is measured for" in line else [])
        return len(seen) == 2

    rig.killed(signal.SIGKILL, second, UP)
    assert rig.sh(f"cat /sys/module/nvidia/version; ls {KEPT}/answered") == f"{SLOW}\n{KEPT}/answered"


def test_one_that_is_slower_goes_back_and_is_not_tried_again(serving: GpuRig) -> None:
    boots = serving.host.boots()
    serving.declare(declared(serving, SLOW))
    ended = serving.up("--yes")
    assert "chat must not become slower by it: measured before and after" in ended.output
    went_back(serving, ended)
    assert serving.host.boots() == boots + 2

    again = serving.up("--yes")
    assert again.code == 1, again.output
    assert f"driver {SLOW} was tried on 20" in again.output
    assert "and taken back: chat is slower by it" in again.output
    assert f"and {BEFORE} serves as before" in again.output
    assert serving.host.boots() == boots + 2

    retried = serving.up("--yes", "--retry")
    assert retried.code == 0, retried.output
    assert "it is measured" not in retried.output
    settled(serving, SLOW)


def test_one_that_is_as_fast_stays_and_leaves_nothing_behind(serving: GpuRig) -> None:
    boots = serving.host.boots()
    serving.declare(declared(serving, AS_FAST))
    ended = serving.up("--yes")
    assert ended.code == 0, ended.output
    assert re.search(r"chat: reading .*: (held|not known yet)", ended.output), ended.output
    assert serving.host.boots() == boots + 1
    settled(serving, AS_FAST)
    again = serving.up("--yes")
    assert (again.code, again.changes) == (0, 0), again.output


def test_killed_before_it_is_judged_the_next_run_judges_it(serving: GpuRig) -> None:
    serving.declare(declared(serving, SLOW))
    killed_while_it_is_measured_since(serving)
    went_back(serving, serving.up("--yes"))


def test_without_what_was_measured_before_it_stays(serving: GpuRig) -> None:
    serving.declare(declared(serving, SLOW))
    killed_while_it_is_measured_since(serving)
    serving.sh("echo nonsense >/var/lib/llamaherd/driver-reading")
    ended = serving.up("--yes")
    assert ended.code == 0, ended.output
    assert f"driver {SLOW} stays unjudged: what was measured before it is gone" in ended.output
    settled(serving, SLOW)
