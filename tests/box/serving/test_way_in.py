"""A change that cuts the line for real: Docker's network is that of the machine that herd runs on.

The host takes it back by itself; and what does not cut the line is disarmed by a login of its own.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from box import tiny_moe
from box.cli import BOX, TINY_MOE
from box.host import BoxHost
from tests.box.bench import PYINFRA, Bench, Declared, Ended, run
from tests.box.slot import PORTS_OF_A_SLOT, SLOT, slotted

# The role under test alone.
DEPLOY = """\
from pyinfra import host
from llamaherd.deploy.operations import apply_role
from llamaherd.plan import Plan
from roles import ROLES
from tests.support.fake import SERVICES

plan = Plan.model_validate(host.data.plan)
apply_role(next(role for role in ROLES if role.name == "container_runtime"), plan, ROLES, SERVICES)
"""
ARMED = "ls /run/llamaherd/undo 2>/dev/null | grep -v log; systemctl list-units --plain --no-legend 'llamaherd-undo-*'"


class Rig(Bench):
    """A bare host, on which Docker is to run."""

    def declared(self) -> Declared:
        """One server in a container, which is never started here."""
        connect = {"host": "127.0.0.1", "port": self.host.port, "user": "owner"}
        connect |= {"key": str(self.host.key), "known_hosts": str(self.host.known_hosts)}
        image = f"registry.lan/llama@sha256:{'ab' * 32}"
        boxed = {"engine": "ready", "model": "tiny", "context": 1024, "port": 8091, "backend": "compose"}
        return {
            "rig": "box",
            "connect": connect,
            "host": {"os": "debian-13", "cpu": {"cores": 2}, "ram": "4GB"},
            "engines": {"ready": {"kind": "llama.cpp", "image": image}},
            "models": {"tiny": {"file": str(TINY_MOE), "sha256": sha256(TINY_MOE.read_bytes()).hexdigest()}},
            "instances": {"boxed": boxed},
        }

    @property
    def argv(self) -> list[str]:
        """The run of that role."""
        deployment = self.folder / "deploy.py"
        deployment.write_text(DEPLOY)
        return [*PYINFRA[:2], str(deployment), "-y"]

    def roles(self) -> Ended:
        """Carry it out."""
        return run(self.argv, self.environment({}))


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    TINY_MOE.parent.mkdir(parents=True, exist_ok=True)
    tiny_moe.write(TINY_MOE)
    name = slotted("llamaherd-way")
    # A cache of its own: apt locks the folder of packages, and another host may use it at the same time.
    host = BoxHost(name, 2214 + PORTS_OF_A_SLOT * SLOT, BOX / name, caches=name)
    host.down()
    host.up()
    made = Rig(host, Path(tmp_path_factory.mktemp("way")))
    made.declare(made.declared())
    yield made
    host.down()


def test_docker_that_cuts_the_line_is_stopped_by_the_host_itself(rig: Rig) -> None:
    """The address that we come from becomes docker0's: what the host answers goes to itself."""
    ours = rig.sh("ip route show default | cut -d ' ' -f 3")
    rig.sh(f'mkdir -p /etc/docker; echo \'{{"bip": "{ours}/24"}}\' >/etc/docker/daemon.json')
    ended = rig.roles()
    assert ended.code == 1, ended.output
    assert "Traceback" not in ended.output
    assert "no new login comes through: waiting for this host to take it back" in ended.output
    assert (
        "so this host undid the change by itself: Docker is stopped, and does not start at boot any more"
        in ended.output
    )
    assert rig.sh(
        "systemctl is-active docker; systemctl is-enabled docker; ls /sys/class/net", check=False
    ).split() == [
        *("inactive", "disabled"),
        *("eth0", "lo"),
    ]
    assert rig.sh(ARMED, check=False) == ""


def test_docker_that_does_not_is_disarmed_by_a_login_of_its_own(rig: Rig) -> None:
    # Docker remembers the address that its network had.
    rig.sh("rm -rf /etc/docker/daemon.json /var/lib/docker/network")
    ended = rig.roles()
    assert ended.code == 0, ended.output
    assert rig.sh("systemctl is-active docker") == "active"
    assert rig.sh(ARMED, check=False) == ""
    again = rig.roles()
    assert (again.code, again.changes) == (0, 0), again.output


@pytest.mark.rare
def test_a_run_that_is_killed_before_its_login_leaves_that_to_the_next(rig: Rig) -> None:
    """What is still armed is seen, and the next run logs in."""
    rig.sh("systemctl disable -q --now docker.service docker.socket")
    # It is killed while Docker starts: the script goes on there, and nobody logs in after it.
    rig.sh("mkdir -p /run/systemd/system/docker.service.d")
    rig.sh("printf '[Service]\\nExecStartPre=/bin/sleep 5\\n' >/run/systemd/system/docker.service.d/slow.conf")
    rig.sh("systemctl daemon-reload")

    def is_armed(line: str) -> bool:
        if "starting Docker" in line:
            rig.sh("timeout 60 sh -c 'until [ -e /run/llamaherd/undo/docker ]; do sleep 0.2; done'")
        return "starting Docker" in line

    rig.killed(signal.SIGKILL, is_armed, rig.argv)
    rig.sh("rm -r /run/systemd/system/docker.service.d; systemctl daemon-reload")
    rig.sh("timeout 60 sh -c 'until docker info >/dev/null 2>&1; do sleep 1; done'")
    assert "docker" in rig.sh(ARMED)
    ended = rig.roles()
    assert ended.code == 0, ended.output
    assert rig.sh("systemctl is-active docker") == "active"
    assert rig.sh(ARMED, check=False) == ""
