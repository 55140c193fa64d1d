"""A fleet's own role of plain pyinfra: the example of docs/roles.md, previewed and run on this machine."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from llamaherd.deploy.proposals import proposed_changes
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.pipeline.load import plans
from llamaherd.pipeline.own_roles import all_roles
from llamaherd.pipeline.plan import show_plan
from tests.support.rigs import ROOT
from tests.support.stores import needs_root

pytestmark = [needs_root, pytest.mark.usefixtures("starts_processes")]

RIG = """\
rig: one
connect: local
host: {os: debian-13, cpu: {cores: 2}, ram: 8GB}
engines: {}
models: {}
instances: {}
"""
PROPOSED = [
    "update operation swap | make and use the swap file: proposed by pyinfra",
    "update operation swap | use the swap file after each boot: proposed by pyinfra",
]
RUN = """
import sys
from pathlib import Path
from llamaherd.deploy import operations, run, run_state
from llamaherd.deploy.run import RunOptions
from llamaherd.pipeline.load import plans
from llamaherd.pipeline.own_roles import all_roles
from tests.support.fake import Alone

run_state.HostLock = Alone
operations.preflight = lambda *_: None  # this machine is no rig
operations.record_release = lambda host: print(*run_state._records.get(host, run_state.HostRecord()).changes, sep="\\n")
fleet = Path(sys.argv[1])
planned = plans(fleet, all_roles(fleet), deploying=True)
print(run.deploy(planned, fleet, 0, {}, RunOptions(roles=("swap",))))
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A fleet's folder with this machine as its rig, and the example, whose files are in another folder."""
    page = (ROOT / "docs/roles.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python3\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    system = tmp_path / "system"
    system.mkdir()
    for name in ("swaps", "fstab"):
        (system / name).write_text("# nothing\n")
    moved: Mapping[str, str] = {
        "/proc/swaps": f"{system}/swaps",
        "/etc/fstab": f"{system}/fstab",
        '"/swapfile"': f'"{system}/swapfile"',
        'f"swapon {FILE}"': f'f"echo {{FILE}} >>{system}/swaps"',
        "-l 8G": "-l 1M",
    }
    for old, new in moved.items():
        assert old in code
        code = code.replace(old, new)
    folder = tmp_path / "fleet"
    (folder / "roles/swap").mkdir(parents=True)
    (folder / "roles/swap/deploy.py").write_text(code)
    (folder / "one.yaml").write_text(RIG)
    return folder


def preview(fleet: Path) -> list[str]:
    """Return what the preview shows of the role."""
    roles = all_roles(fleet)
    rig, plan = plans(fleet, roles, deploying=True)["one"]
    return [str(each) for each in proposed_changes(fleet, rig.connect, plan, roles)]


def apply(fleet: Path) -> subprocess.CompletedProcess[str]:
    """Run the role alone, as `herd up` runs it among the others."""
    return subprocess.run([sys.executable, "-c", RUN, str(fleet)], capture_output=True, text=True, cwd=ROOT, check=True)


def test_it_is_previewed_and_run_and_then_changes_nothing(fleet: Path) -> None:
    system = fleet.parent / "system"
    before = sorted(system.iterdir())
    assert preview(fleet) == PROPOSED
    assert sorted(system.iterdir()) == before
    done = apply(fleet)
    changed = [line.replace("proposed by pyinfra", "it has changed something") for line in PROPOSED]
    assert done.stdout.splitlines() == [*changed, "()"], done.stderr
    assert (system / "fstab").read_text().splitlines()[-1] == f"{system}/swapfile none swap sw 0 0"
    assert (system / "swapfile").stat().st_size == 1 << 20
    assert (system / "swapfile").stat().st_mode & 0o777 == 0o600
    assert preview(fleet) == []
    again = apply(fleet)
    (total,) = [line.split() for line in again.stderr.splitlines() if "Grand total" in line]
    assert total[3:5] == ["-", "-"]
    assert again.stdout.splitlines() == ["", "()"]


def test_its_place_is_before_the_servers_and_a_plan_shows_it(fleet: Path) -> None:
    roles = all_roles(fleet)
    names = [role.name for role in roles]
    assert names.index("swap") == names.index("serve") - 1
    _, plan = plans(fleet, roles, deploying=True)["one"]
    assert "\n  swap       operations of roles/swap/deploy.py\n" in show_plan(plan, roles)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("1 / 0\n", "deploy.py:1:1: error LH290: deploy.py of role `swap` ends in ZeroDivisionError: division by zero"),
        ("def swop(): ...\n", "deploy.py: error LH290: role `swap` has no function `swap`"),
    ],
)
def test_an_error_in_it_is_shown_with_its_place(fleet: Path, code: str, problem: str) -> None:
    (fleet / "roles/swap/deploy.py").write_text(code)
    with pytest.raises(UserError) as raised:
        preview(fleet)
    assert problem in str(raised.value)


def test_it_may_not_have_the_name_of_another_role(fleet: Path) -> None:
    (fleet / "roles/swap").rename(fleet / "roles/power")
    with pytest.raises(InventoryError, match="`power` is a role of llamaherd's"):
        all_roles(fleet)
