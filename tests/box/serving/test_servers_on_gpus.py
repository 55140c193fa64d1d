"""A unit that waits for its GPU and fails without it, by a real systemd, in the sandbox that it has on every rig.

Faked are nvidia-smi, which keeps GPUs in a file; the devices, all of which are /dev/net/tun by other names; and the
server, which says that it is healthy and is on its GPU only where CUDA is told to work: as llama-server does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from box.cli import ROOT
from tests.box.bench import Bench
from tests.support.nvidia_smi import card
from tests.support.rigs import gpu_rig, planned

UNIT = "llama-worker.service"
WORKER = next(each for each in planned(gpu_rig()).instances if each.name == "worker")
OLD = card("GPU-3090", "00000000:01:00.0", "NVIDIA GeForce RTX 3090", None)
# What a unit may write to that is no file system of the host's, in a folder without the sticky bit.
STATE = "/dev/shm/gpu"
SERVER = f"""#!/usr/bin/python3
import http.server, json, os, pathlib
cards = pathlib.Path("{STATE}/cards.json")
told = json.loads(cards.read_text())
if told["cuda"]:
    os.open("/dev/nvidia-uvm", os.O_RDWR)
    told["cards"][0]["apps"] = [[os.getpid(), 21000]]
    cards.write_text(json.dumps(told))
else:
    print("ggml_cuda_init: failed to initialize CUDA: unknown error", flush=True)
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", {WORKER.endpoint.port}), Health).serve_forever()
"""
SMI = f'#!/bin/sh\nexport FAKE_CARDS={STATE}/cards.json\nexec python3 /usr/local/lib/nvidia_smi.py "$@"\n'
DEVICES = ("nvidiactl", "nvidia-uvm")
# Sooner than in earnest; and by their paths, since /proc/devices knows no such names.
DROP_IN = f"""[Service]
ExecStart=
ExecStart=/usr/local/bin/fake-server
RestartSec=1
{"".join(f"DeviceAllow=/dev/{name} rwm{chr(10)}" for name in DEVICES)}"""


def put(bench: Bench, path: str, text: str, mode: str = "0755") -> None:
    """A file on the host; `docker cp` does not see what is mounted inside."""
    bench.sh(f"mkdir -p $(dirname {path}); cat >{path} <<'TEXT'\n{text}\nTEXT\nchmod {mode} {path}")


def cards(bench: Bench, *here: dict[str, Any], cuda: bool) -> None:
    """The GPUs that nvidia-smi knows, and whether CUDA starts."""
    put(bench, f"{STATE}/cards.json", json.dumps({"cards": here, "cuda": cuda}), "0666")


def devices(bench: Bench) -> None:
    """What the driver's module and udev make."""
    bench.sh("; ".join(f"mknod -m 666 /dev/{name} c 10 200" for name in DEVICES))


def wait(bench: Bench, *states: str) -> str:
    """What becomes of the unit, once it is one of these."""
    for _ in range(480):
        if (state := bench.sh(f"systemctl is-active {UNIT}", check=False)) in states:
            return state
        time.sleep(0.25)
    raise AssertionError(bench.sh(f"journalctl -u {UNIT} -n 40 -o cat --no-pager"))


def said(bench: Bench) -> str:
    """The unit's log since the test began."""
    return bench.sh(f"journalctl -u {UNIT} -o cat --no-pager --since @$(stat -c %Y {STATE}/begun)")


def wait_to_hear(bench: Bench, words: str) -> None:
    """Go on once the unit has said this."""
    for _ in range(240):
        if words in said(bench):
            return
        time.sleep(0.1)
    raise AssertionError(said(bench))


@pytest.fixture
def unit(converged: Bench) -> Iterator[Bench]:
    """The host with a unit that is to be on a GPU: no device is there yet, and the GPU's programs are."""
    bench = converged
    namespace = bench.sh("readlink /proc/self/ns/pid").strip("pid:[]")
    for name in ("gpu-gate", "gpu-check"):
        (text,) = (file.text for file in planned(gpu_rig()).files if file.path.endswith(name))
        # A container is not in the first namespace: here, it is taken for it.
        put(bench, f"/opt/llamaherd/libexec/{name}", text.replace("4026531836", namespace))
    put(bench, "/usr/local/bin/fake-server", SERVER)
    put(bench, "/usr/local/bin/nvidia-smi", SMI)
    put(bench, "/usr/local/lib/nvidia_smi.py", (ROOT / "tests" / "support" / "nvidia_smi.py").read_text())
    text = WORKER.file.text.replace("gpu-gate 120", "gpu-gate 8")
    assert text != WORKER.file.text
    put(bench, f"/run/systemd/system/{UNIT}", text, "0644")
    put(bench, f"/run/systemd/system/{UNIT}.d/fake.conf", DROP_IN, "0644")
    bench.sh(f"useradd --system --no-create-home {WORKER.server.user}")
    bench.sh(f"mkdir -p {STATE}; chmod 0777 {STATE}; touch {STATE}/begun; systemctl daemon-reload")
    yield bench
    bench.sh(f"systemctl stop {UNIT}; systemctl reset-failed {UNIT}; userdel {WORKER.server.user}", check=False)
    names = " ".join(f"/dev/{name}" for name in DEVICES)
    bench.sh(f"rm -rf /run/systemd/system/{UNIT}* {STATE} {names} /usr/local/bin/fake-server /usr/local/bin/nvidia-smi")
    bench.sh("cd /opt/llamaherd/libexec && rm -f /usr/local/lib/nvidia_smi.py gpu-gate gpu-check")
    bench.sh("systemctl daemon-reload")


def test_a_card_that_comes_late_is_waited_for(unit: Bench) -> None:
    devices(unit)
    cards(unit, cuda=True)
    unit.sh(f"systemctl start --no-block {UNIT}")
    wait_to_hear(unit, "waiting: there is no card GPU-3090")
    cards(unit, OLD, cuda=True)
    wait(unit, "active")
    assert unit.sh(f"systemctl show -P NRestarts {UNIT}") == "0"


def test_devices_that_come_late_are_opened_by_the_next_start(unit: Bench) -> None:
    cards(unit, OLD, cuda=True)
    unit.sh(f"systemctl start --no-block {UNIT}")
    wait_to_hear(unit, "waiting: the module nvidia is not loaded")
    devices(unit)
    wait(unit, "active")
    log = said(unit)
    assert "/dev/nvidiactl came after this start had begun, so that it may not be opened: the next start may" in log
    assert unit.sh(f"systemctl show -P NRestarts {UNIT}") == "1"


def test_a_card_that_never_comes_fails_the_unit(unit: Bench) -> None:
    devices(unit)
    cards(unit, cuda=True)
    assert unit.sh(f"systemctl start {UNIT} || echo failed", check=False).endswith("failed")
    assert "there is no card GPU-3090: `nvidia-smi -L` shows those that are there (waited 8 s)" in said(unit)


def test_a_server_without_cuda_fails_instead_of_serving_from_the_cpu(unit: Bench) -> None:
    devices(unit)
    cards(unit, OLD, cuda=False)
    unit.sh(f"systemctl start --no-block {UNIT}")
    wait(unit, "failed")
    assert said(unit).count("the server is on no card, and would serve from the CPU") == 3
    # Whoever mends it needs no more than this.
    cards(unit, OLD, cuda=True)
    unit.sh(f"systemctl reset-failed {UNIT}; systemctl start {UNIT}")
    assert wait(unit, "active")


def test_what_a_unit_says_of_its_cards_is_its_own(unit: Bench) -> None:
    """The check runs as the server's user, and sees its process and nothing of others."""
    devices(unit)
    cards(unit, OLD, cuda=True)
    unit.sh(f"systemctl start {UNIT}")
    pid = unit.sh(f"systemctl show -P MainPID {UNIT}")
    # Where the list does not tell, the devices that the process holds open do.
    script = f"ls -l /proc/{pid}/fd | grep -c nvidia-uvm; ls /proc | grep -cx 1; true"
    seen = unit.sh(
        f"systemd-run -q --pipe --wait -p User={WORKER.server.user} -p NoNewPrivileges=yes -p CapabilityBoundingSet= "
        f"-p ProtectProc=invisible -p SystemCallFilter=@system-service sh -c '{script}'"
    )
    assert seen.split() == ["1", "0"]
