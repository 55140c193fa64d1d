"""A run of pyinfra that `herd` starts: when pyinfra is loaded, what a run returns, and what pyinfra prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake import host_data
from tests.support.rigs import KEY, ROOT, converged, cpu_rig, planned

UP = """
import sys
from pathlib import Path
from llamaherd.deploy.run import RunOptions
from llamaherd.deploy.run import deploy
from llamaherd.pipeline.load import plans
from llamaherd.pipeline.own_roles import all_roles

path = Path(sys.argv[1])
planned = plans(path, all_roles(path), deploying=True)
argv = list(sys.argv)
for _ in range(2):
    print(deploy(planned, path, 0, {}, RunOptions()), sys.argv == argv)
print(deploy(planned, path, 0, {"one": "it does not respond", "two": ""}, RunOptions()))
"""

APPLY = """
import json, sys
from pathlib import Path
from llamaherd.deploy import run, run_state
from llamaherd.deploy.run import RunOptions
from tests.support.fake import Alone, play_inspections

play_inspections()
run_state.HostLock = Alone
hosts = json.loads(Path(sys.argv[1]).read_text())
run.rig_hosts = lambda *_: list(hosts.items())
print(run.deploy(dict.fromkeys(hosts), Path("inventory"), 0, {}, RunOptions()))
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a Python of its own: what pyinfra loads changes how a process waits."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "CHAT_KEY": KEY},
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )


@pytest.fixture
def unreachable(tmp_path: Path) -> Path:
    """Rigs at a port where nothing listens."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(
            f"rig: {name}\nconnect: {{host: 127.0.0.1, port: 1}}\n"
            "host: {os: debian-13, cpu: {cores: 2}, ram: 8GB}\nengines: {}\nmodels: {}\ninstances: {}\n"
        )
    return tmp_path


def test_each_run_returns_its_failures_and_prints_each_line_once(unreachable: Path) -> None:
    done = run(UP, str(unreachable))
    assert done.stdout.splitlines() == ["('one', 'two') True", "('one', 'two') True", "('one', 'two')"]
    assert done.stderr.count("[one] nothing listens for SSH at 127.0.0.1 port 1") == 2
    assert done.stderr.count("[one] it does not respond") == 1
    assert done.stderr.count("--> Connecting to hosts...") == 3


def test_a_run_returns_the_hosts_that_failed(tmp_path: Path) -> None:
    plan = planned(cpu_rig())
    in_sync = host_data(plan, converged(plan, {"chat": KEY}))
    broken = host_data(plan, []) | {"fake_responses": {"python3": {"success": False}}}
    hosts = {"@fake/one": in_sync, "@fake/two": broken, "@fake/three": in_sync}
    (tmp_path / "hosts.json").write_text(json.dumps(hosts))
    done = run(APPLY, str(tmp_path / "hosts.json"))
    assert done.stdout == "('@fake/two',)\n"
    assert "[@fake/one]   No changes" in done.stderr
    assert "--> Results:" in done.stderr


def test_a_plan_is_made_without_what_reads_recipes() -> None:
    loaded = run("import llamaherd.pipeline.load, sys\nprint(*sys.modules, sep='\\n')").stdout.splitlines()
    assert "llamaherd.checks.registry" in loaded
    assert "llamaherd.recipes" not in loaded


def test_what_is_refused_loads_no_pyinfra(tmp_path: Path) -> None:
    script = f"""
import sys
from click.testing import CliRunner
from llamaherd.cli.herd import main
ended = CliRunner().invoke(main, ["-i", {str(tmp_path / "nowhere")!r}, "up"])
print(ended.exit_code, {{"gevent", "pyinfra"}} & set(sys.modules))
"""
    assert run(script).stdout == "2 set()\n"


def test_a_run_with_nothing_to_do_loads_no_pyinfra(unreachable: Path) -> None:
    script = f"""
import sys
from click.testing import CliRunner
from llamaherd.cli.herd import main
from llamaherd.pipeline import preview
preview.Hosts.outlooks = lambda hosts, planned, roles, **_: dict.fromkeys(planned, preview.Preview())
ended = CliRunner().invoke(main, ["-i", {str(unreachable)!r}, "up"])
print(ended.exit_code, ended.stdout, {{"gevent", "pyinfra"}} & set(sys.modules))
"""
    assert run(script).stdout.splitlines() == [
        "0 one: up to date, nothing to do",
        "two: up to date, nothing to do",
        " set()",
    ]
