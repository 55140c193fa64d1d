"""Every command that reaches a rig logs in by the same function, with the same options.

An `ssh` of the test's own notes how it is called, and that nothing listens there: no host is needed to see that.
Whether the client's own files are obeyed alike, a real jump host shows: tests/box/hosts/test_jump.py.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import llamaherd

PACKAGE = Path(llamaherd.__file__).parent
HERD, PYINFRA = (str(Path(sys.executable).parent / name) for name in ("herd", "pyinfra"))
CONNECTS: dict[str, dict[str, object]] = {
    "an alias": {"host": "duo"},
    "all that there is": {"host": "10.0.0.9", "port": 2222, "user": "tom", "key": "id", "known_hosts": "known"},
}
COMMANDS = {
    "preflight": (HERD, "preflight"),
    "verify": (HERD, "verify"),
    "models": (HERD, "models", "list"),
    "up": (HERD, "up"),
    "pyinfra": (PYINFRA, "inventory.py", "deploy.py", "-y"),
}
NOTES = "StrictHostKeyChecking=accept-new"
"""Whoever deploys also notes the key of a host that is new, unless known ones are declared."""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A fleet's folder, with an `ssh` beside it."""
    subprocess.run([HERD, "init", str(tmp_path / "fleet")], check=True, capture_output=True)
    for rig in (tmp_path / "fleet").glob("*.yaml"):
        rig.unlink()
    (tmp_path / "fleet" / "id").write_text("a key\n")
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\nif '-G' in sys.argv:\n    sys.exit(0)\n"
        f"with open({str(tmp_path / 'called')!r}, 'a') as log:\n    print(json.dumps(sys.argv[1:]), file=log)\n"
        "print('ssh: connect to host duo port 22: Connection refused', file=sys.stderr)\nsys.exit(255)\n"
    )
    program.chmod(0o755)
    return tmp_path / "fleet"


def called(fleet: Path, command: tuple[str, ...]) -> tuple[list[list[str]], str]:
    """How a command calls ssh, and what it says."""
    log = fleet.parent / "called"
    log.write_text("")
    ended = subprocess.run(
        command,
        cwd=fleet,
        env=os.environ
        | {"PATH": f"{fleet.parent / 'bin'}:{os.environ['PATH']}", "HERD_INVENTORY": str(fleet)}
        | {"HERD_SSH_PERSIST": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return [json.loads(line) for line in log.read_text().splitlines()], ended.stdout + ended.stderr


@pytest.mark.parametrize("connect", CONNECTS)
def test_all_commands_log_in_alike(fleet: Path, connect: str) -> None:
    rig = {"rig": "duo", "connect": CONNECTS[connect], "host": {"os": "debian-13", "cpu": {"cores": 2}, "ram": "8GB"}}
    (fleet / "duo.yaml").write_text(yaml.safe_dump(rig | {"engines": {}, "models": {}, "instances": {}}))
    ways = {}
    for name, command in COMMANDS.items():
        calls, said = called(fleet, command)
        assert "nothing listens for SSH at" in said, name
        assert "that sshd runs there" in said, name
        (ways[name],) = calls
    shared = {name for name, way in ways.items() if "ControlMaster=auto" in way}
    assert shared == {*ways} - {"pyinfra"}, "a run that changes hosts has connections of its own"
    for way in ways.values():
        _remove_sharing(way)
    notes = {name for name, way in ways.items() if NOTES in way}
    assert notes == (set() if "known_hosts" in CONNECTS[connect] else {"up", "pyinfra"})
    for name in notes:
        at = ways[name].index(NOTES)
        del ways[name][at - 1 : at + 1]
    assert all(way == ways["preflight"] for way in ways.values()), ways


def _remove_sharing(way: list[str]) -> None:
    """Remove the options that share a connection, or that forbid it."""
    for option in [each for each in way if each.startswith(("Control", "ClearAllForwardings"))]:
        at = way.index(option)
        del way[at - 1 : at + 1]


def test_one_module_calls_the_client() -> None:
    """And one function makes what it is called with; nothing logs in by a library."""
    lists, calls, imports = set(), set(), set()
    for file in PACKAGE.rglob("*.py"):
        where = str(file.relative_to(PACKAGE))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.List) and ast.unparse(node).startswith("['ssh'"):
                lists.add(where)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("argv", "ssh.argv"):
                calls.add(where)
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports |= {where for word in ("paramiko", "connectors.ssh", "asyncssh") if word in ast.unparse(node)}
    assert (lists, calls, imports) == ({"host/ssh.py"}, {"host/remote.py"}, set())
