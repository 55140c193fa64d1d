"""What `herd up` loads of pyinfra, and that what takes the place of pyinfra's own gives the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.rigs import ROOT

UNUSED = {
    *("paramiko", "invoke", "nacl", "cryptography", "docker", "requests", "httpx2", "rich", "huggingface_hub"),
    *("pyinfra.connectors.ssh", "pyinfra.operations.server", "pyinfra.facts.server"),
}
LOADED = "from llamaherd.deploy.lean import load_pyinfra\nload_pyinfra()\n"
UP = f"""{LOADED}
import sys
from pathlib import Path
from llamaherd.deploy.run import deploy
from llamaherd.deploy.hosts import RunOptions
from llamaherd.pipeline.own_roles import all_roles
from llamaherd.pipeline.load import plans

path = Path(sys.argv[1])
deploy(plans(path, all_roles(path), deploying=True), path, 0, {{}}, RunOptions())
print(*sorted(set(sys.modules) & {UNUSED}))
"""
CALLS = f"""{LOADED}
from importlib import import_module
from types import SimpleNamespace
import pyinfra
from llamaherd.deploy.lean import order_of_call
from pyinfra.api.util import get_operation_order_from_stack

pyinfra.is_cli = True
state = SimpleNamespace(current_deploy_filename="deploy.py", current_op_file_number=0)


def operation():
    return get_operation_order_from_stack(state), order_of_call(state)


deploy = '''
def role(depth):
    if depth:
        return role(depth - 1)
    return (
        operation()
    )

first = role(0)
found = first, role(3)
'''
told = {{"operation": operation}}
exec(compile(deploy, "deploy.py", "exec"), told)
for theirs, ours in told["found"]:
    print(theirs == ours, len(ours))
"""
ASKED = f"""{LOADED}
from importlib import import_module

operation = import_module("pyinfra.api.operation").solve_operation_consistency.__globals__
print(operation["get_operation_order_from_stack"].__module__)
arguments = import_module("pyinfra.api.arguments").pop_global_arguments.__globals__
print(arguments["all_global_arguments"]() is arguments["all_global_arguments"]())
"""
DATA = f"""{LOADED}
from pyinfra.api import Config, Host, Inventory, State
from llamaherd.deploy.run import Rigs
from llamaherd.deploy.connector import RigConnector

answers = []
for kind in (Rigs, Inventory):
    name = "@llamaherd/one" if kind is Inventory else "one"
    inventory = kind(([(name, {{"rig_connect": {{}}, "_sudo": True}})], {{}}))
    State(inventory, Config())
    (host,) = inventory
    asked = ("rig_connect", "_sudo", "_shell_executable", "told", "deployed")
    host.data.told = 1
    with host.deploy("role", None, {{"deployed": 2, "told": 3}}):
        answers.append([host.data.get(key, "not there") for key in asked] + [sorted(host.data.dict())])
print(answers[0] == answers[1], answers[0])
"""


def run(script: str, *arguments: str) -> list[str]:
    """The lines that a Python of its own prints: gevent cannot be taken back out of this one."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout.splitlines()


@pytest.fixture
def unreachable(tmp_path: Path) -> Path:
    """A rig at a port where nothing listens: all is loaded when that turns out."""
    (tmp_path / "one.yaml").write_text(
        "rig: one\nconnect: {host: 127.0.0.1, port: 1}\n"
        "host: {os: debian-13, cpu: {cores: 2}, ram: 8GB}\nengines: {}\nmodels: {}\ninstances: {}\n"
    )
    return tmp_path


def test_nothing_is_loaded_that_no_run_uses(unreachable: Path) -> None:
    assert run(UP, str(unreachable)) == [""]


def test_paramiko_can_still_be_had() -> None:
    script = (
        f"{LOADED}import paramiko\nprint(issubclass(paramiko.SSHException, Exception), paramiko.Transport.__name__)"
    )
    assert run(script) == ["True Transport"]


def test_an_operation_stands_where_pyinfra_says() -> None:
    assert run(CALLS) == ["True 4", "True 7"]


def test_pyinfra_asks_ours() -> None:
    assert run(ASKED) == ["llamaherd.deploy.lean", "True"]


def test_a_hosts_data_is_what_pyinfras_own_layers_say() -> None:
    there = "{}, True, 'not there', 1, 2, ['_sudo', 'deployed', 'rig_connect', 'told']"
    assert run(DATA) == [f"True [{there}]"]


def test_a_plan_is_made_without_what_reads_recipes() -> None:
    loaded = run("import llamaherd.pipeline.load, sys\nprint(*sys.modules, sep='\\n')")
    assert "llamaherd.checks.registry" in loaded
    assert "llamaherd.recipes" not in loaded


def test_what_is_refused_loads_none_of_it(tmp_path: Path) -> None:
    """gevent changes the process that it is loaded in, and whatever runs there afterwards."""
    script = f"""
import sys
from click.testing import CliRunner
from llamaherd.cli.herd import main
ended = CliRunner().invoke(main, ["-i", {str(tmp_path / "nowhere")!r}, "up"])
print(ended.exit_code, "gevent" in sys.modules)
"""
    assert run(script) == ["2 False"]


def test_what_has_nothing_to_do_loads_none_of_it(unreachable: Path) -> None:
    script = f"""
import sys
from click.testing import CliRunner
from llamaherd.cli.herd import main
from llamaherd.pipeline import preview
from llamaherd.pipeline.preview import Preview
preview.Hosts.outlooks = lambda hosts, planned, roles, **_: dict.fromkeys(planned, Preview())
ended = CliRunner().invoke(main, ["-i", {str(unreachable)!r}, "up"])
print(ended.exit_code, ended.stdout, {{"gevent", "pyinfra"}} & set(sys.modules))
"""
    assert run(script) == ["0 one: up to date, nothing to do", " set()"]
