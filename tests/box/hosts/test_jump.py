"""A rig behind a jump host: all commands reach it by what `~/.ssh/config` says, and by nothing else.

Both hosts are real, with systemd and sshd of their own. The rig's sshd listens on a port of its own, and lets its user
in from the jump host's address alone: whoever does not jump is refused. Its inventory names an alias; address, port,
user, jump, key and known hosts are in `~/.ssh/config`, half of them in a Match block, and the jump host wants another
key, which only an agent has. The rig serves nothing: accounts, files and packages are enough to see that it converges,
and cost no engine.

OpenSSH finds `~` by the password file, whatever HOME says. So each command runs where a folder of the test's lies over
root's own `~/.ssh`, in a mount namespace: nobody's real one is touched.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from box.cli import BOX
from box.host import BoxHost
from box.inside import File
from tests.box.bench import HERD, PYINFRA, Ended, run
from tests.box.slot import PORTS_OF_A_SLOT, SLOT, slotted

RIG, PORT = "behind", 2345
GATE = "/opt/llamaherd/libexec/wait-healthy"
"""A file that the rig has from us; without it, there is something to do."""


@dataclass(frozen=True)
class Behind:
    """A rig, the host before it, and the folders that the fleet and the ssh client's files lie in."""

    rig: BoxHost
    jump: BoxHost
    fleet: Path
    ssh: Path
    agent: str

    def run(self, *command: str) -> Ended:
        """A command of a user who has these files in `~/.ssh`, and this agent."""
        inside = f"mkdir -p ~/.ssh && mount --bind {shlex.quote(str(self.ssh))} ~/.ssh && exec {shlex.join(command)}"
        wrapped = ["unshare", "--mount", "sh", "-c", f"cd {shlex.quote(str(self.fleet))} && {inside}"]
        environment = {**os.environ, "SSH_AUTH_SOCK": self.agent, "HERD_INVENTORY": str(self.fleet), "NO_COLOR": "1"}
        return run(wrapped, environment)

    def herd(self, *arguments: str) -> Ended:
        """A command of `herd` about this fleet."""
        return self.run(HERD, *arguments)


def address(host: BoxHost) -> str:
    """Where other containers reach it."""
    return host.exec("hostname", "-I").split()[0]


def config(rig: BoxHost, jump: BoxHost) -> str:
    """What the ssh client is told."""
    return f"""\
Host {RIG}
    HostName {address(rig)}
    Port {PORT}
    ProxyJump door
Host door
    HostName 127.0.0.1
    Port {jump.port}
    User owner
    UserKnownHostsFile {jump.known_hosts}
Match originalhost {RIG} exec "true"
    User owner
    IdentityFile {rig.key}
    IdentitiesOnly yes
    UserKnownHostsFile ~/.ssh/known_behind
Host *
    StrictHostKeyChecking yes
"""


def close(rig: BoxHost, jump: BoxHost) -> None:
    """Let nobody in who does not come from the jump host, and by another port than usual."""
    rules = f"Port {PORT}\nAllowUsers owner@{address(jump)}\n"
    rig.put(File("/etc/ssh/sshd_config.d/10-jump.conf", rules.encode()))
    rig.exec("sh", "-c", "systemctl disable -q --now ssh.socket 2>/dev/null; systemctl restart ssh.service")


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """The socket of an agent without a key."""
    said = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"(SSH_\w+)=([^;]+);", said))
    yield found["SSH_AUTH_SOCK"]
    os.kill(int(found["SSH_AGENT_PID"]), 15)


@pytest.fixture(scope="module")
def behind(agent: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    """Both hosts from nothing, and the fleet's folder."""
    names = slotted("llamaherd-jump"), slotted("llamaherd-behind")
    ports = (2280 + PORTS_OF_A_SLOT * SLOT, 2281 + PORTS_OF_A_SLOT * SLOT)
    jump, rig = (BoxHost(n, port, BOX / n, caches=n) for n, port in zip(names, ports, strict=True))
    fleet, ssh = tmp_path_factory.mktemp("jump") / "fleet", tmp_path_factory.mktemp("ssh")
    subprocess.run([HERD, "init", str(fleet)], check=True, capture_output=True)
    for example in fleet.glob("*.yaml"):
        example.unlink()
    declared = {"rig": RIG, "connect": {"host": RIG}, "engines": {}, "models": {}, "instances": {}}
    system = {"os": "debian-13", "cpu": {"cores": 2}, "ram": "8GB"}
    (fleet / f"{RIG}.yaml").write_text(yaml.safe_dump(declared | {"host": system}))
    try:
        for host in (jump, rig):
            host.down()
            host.up()
        close(rig, jump)
        (ssh / "config").write_text(config(rig, jump))
        _, kind, key = rig.known_hosts.read_text().split()
        (ssh / "known_behind").write_text(f"[{address(rig)}]:{PORT} {kind} {key}\n")
        subprocess.run(["ssh-add", "-q", str(jump.key)], env={**os.environ, "SSH_AUTH_SOCK": agent}, check=True)
        yield Behind(rig, jump, fleet, ssh, agent)
    finally:
        if not os.environ.get("LLAMAHERD_KEEP"):
            for host in (jump, rig):
                host.down()
                for volume in host.cache_volumes:
                    subprocess.run(["docker", "volume", "rm", "-f", volume], check=False, capture_output=True)


@pytest.fixture
def without_jump(behind: Behind) -> Iterator[Behind]:
    """The rig, without the way round."""
    text = (behind.ssh / "config").read_text()
    (behind.ssh / "config").write_text(text.replace("    ProxyJump door\n", ""))
    yield behind
    (behind.ssh / "config").write_text(text)


def say_alike(behind: Behind, sentence: str) -> None:
    """All commands end with 1, and with this sentence and the same way out."""
    said = {command: behind.herd(*command.split()) for command in ("preflight", "verify", "models list", "up -v")}
    for command, ended in said.items():
        assert (command, ended.code) == (command, 1), ended.output
        assert sentence in ended.output, ended.output
    assert len({re.findall(r"help: (.*)", ended.output)[0] for ended in said.values()}) == 1, said


def test_the_rig_is_reached_and_brought_up_by_every_command(behind: Behind) -> None:
    for arguments in (("preflight",), ("show", RIG)):
        ended = behind.herd(*arguments)
        assert ended.code == 0, ended.output
    assert behind.rig.exec("ls", GATE, check=False) == ""

    ended = behind.herd("up", "-v")
    assert ended.code == 0, ended.output
    assert ended.changes
    assert behind.rig.exec("ls", GATE).strip() == GATE

    for arguments in (("verify",), ("models", "list"), ("preflight",)):
        ended = behind.herd(*arguments)
        assert ended.code == 0, ended.output
    for again in (behind.herd("up", "-v"), behind.run(*PYINFRA)):
        assert (again.code, again.changes) == (0, 0), again.output

    behind.rig.exec("rm", GATE)
    ended = behind.run(*PYINFRA)
    assert (ended.code, ended.changes) == (0, 1), ended.output
    assert behind.rig.exec("ls", GATE).strip() == GATE


def test_a_new_rig_is_looked_at_through_the_jump_host(behind: Behind, tmp_path: Path) -> None:
    ended = behind.herd("init", str(tmp_path / "new"), "--from", RIG)
    assert ended.code == 0, ended.output
    written = yaml.safe_load((tmp_path / "new" / f"{RIG}.yaml").read_text())
    assert written["connect"] == {"host": RIG}


def test_without_the_jump_all_say_the_same(without_jump: Behind) -> None:
    """Nobody gets in past the jump host: what the first test shows went through it."""
    say_alike(without_jump, f"{RIG} does not accept any key that the ssh client has")


def test_a_jump_host_that_is_off_is_no_fault_of_the_rig(behind: Behind) -> None:
    behind.jump.exec("systemctl", "stop", "ssh.service", "ssh.socket", check=False)
    try:
        say_alike(behind, f"the jump host does not connect to {RIG}: ")
    finally:
        behind.jump.exec("systemctl", "start", "ssh.service")


def test_a_jump_host_that_does_not_let_us_in_is_named(behind: Behind) -> None:
    refused = f"the jump host does not connect to {RIG}: owner@127.0.0.1: Permission denied (publickey)."
    say_alike(replace(behind, agent="/dev/null"), refused)
