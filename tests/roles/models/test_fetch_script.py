"""The scripts that begin a fetch and await it, run by a real shell; of systemd there are two small programs."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from llamaherd.host.state import HostState
from llamaherd.layout import FETCH_RUN, LOCKS
from llamaherd.plan import Plan
from llamaherd.role.changes import DeferredScript, RunScript, Say
from roles.models.changes import ModelSource, begin_changes, model_changes
from tests.support.rigs import gpu_rig, planned

# A unit runs until somebody takes its file away; what it ends with is prepared in `outcome`.
SYSTEMCTL = """#!/bin/sh
case "$1 $2" in
"show -P") [ -e "$ROOT/active" ] && echo active || echo inactive ;;
"stop "*) rm -f "$ROOT/active" ;;
esac
exit 0
"""
SYSTEMD_RUN = """#!/bin/sh
echo begun >>"$ROOT/begun"
. "$ROOT/outcome"
"""
FAILS = 'echo "the hub gave the wrong bytes" >"$RUN/failed"\n'
GOES_ON = ': >"$ROOT/active"\n'
RUN_A, RUN_B = "a" * 16, "b" * 16


def nowhere(_plan: Plan, _wanted: Sequence[str], _say: Say) -> list[ModelSource]:
    return []


@dataclass(frozen=True)
class Host:
    """A host whose systemd does what a test prepared."""

    root: Path

    @property
    def plan(self) -> Plan:
        """What is to be fetched: two files."""
        return planned(gpu_rig(), {"store": {"path": str(self.root / "store")}})

    def will(self, outcome: str) -> None:
        """What a fetch does that is begun from now on."""
        (self.root / "outcome").write_text(outcome)

    def begin(self, watcher: str) -> subprocess.CompletedProcess[str]:
        """The first of the two places of a run that want a fetch."""
        (change,) = begin_changes(self.plan, self._seen(), nowhere, watcher)
        assert isinstance(change.how, RunScript | DeferredScript)
        return self._run(change.how)

    def wait(self, watcher: str) -> subprocess.CompletedProcess[str]:
        """The second one."""
        changes = model_changes(self.plan, self._seen(), nowhere, watcher)
        (wait,) = (each.how for each in changes if isinstance(each.how, DeferredScript))
        return self._run(wait)

    @property
    def begun(self) -> int:
        """How many fetches were begun."""
        path = self.root / "begun"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def _seen(self) -> HostState:
        known = self.root / "run/fetch.id"
        return HostState(fetch=known.read_text().strip() if (self.root / "active").exists() else None)

    def _run(self, step: RunScript | DeferredScript) -> subprocess.CompletedProcess[str]:
        made = step.make(print) if isinstance(step, DeferredScript) else step
        text = made.script.replace(str(LOCKS), f"{self.root}/locks").replace(str(FETCH_RUN), f"{self.root}/run/fetch")
        path = f"{self.root}/bin:/usr/bin:/bin"
        environment = {"PATH": path, "ROOT": str(self.root), "RUN": f"{self.root}/run/fetch"}
        return subprocess.run(
            ["sh", "-s"], input=text, capture_output=True, text=True, check=False, env=environment, timeout=60
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host on which no fetch runs; its users are whoever runs the tests."""
    folder = tmp_path / "bin"
    folder.mkdir()
    owner = 'exec /usr/bin/install "$@"\n'
    strip = (
        '#!/bin/sh\nfor each; do shift; case $each in -o | -g | llama-fetch) ;; *) set -- "$@" "$each" ;; esac; done\n'
    )
    programs = {
        "systemctl": SYSTEMCTL,
        "systemd-run": SYSTEMD_RUN,
        "install": strip + owner,
        "chown": "#!/bin/sh\n",
    }
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return Host(tmp_path)


def test_a_fetch_that_has_failed_by_the_time_it_is_awaited_is_the_answer(host: Host) -> None:
    host.will(FAILS)
    assert host.begin(RUN_A).returncode == 0
    ended = host.wait(RUN_A)
    assert (ended.returncode, ended.stderr.strip()) == (1, "the hub gave the wrong bytes")
    assert host.begun == 1


def test_the_next_run_tries_it_anew(host: Host) -> None:
    host.will(FAILS)
    host.begin(RUN_A)
    host.begin(RUN_B)
    assert host.wait(RUN_B).returncode == 1
    assert host.begun == 2


def test_a_fetch_that_was_joined_is_the_answer_too(host: Host) -> None:
    """A second run finds it running: what it ends with is for both."""
    host.will(GOES_ON)
    host.begin(RUN_A)
    assert host.begin(RUN_B).returncode == 0
    (host.root / "active").unlink()
    (host.root / "run/fetch/failed").write_text("no answer\n")
    for watcher in (RUN_A, RUN_B):
        assert (host.wait(watcher).returncode, host.begun) == (1, 1)


def test_a_fetch_that_is_stopped_stays_stopped(host: Host) -> None:
    host.will(GOES_ON)
    host.begin(RUN_A)
    (host.root / "active").unlink()
    ended = host.wait(RUN_A)
    assert ended.returncode == 1
    assert "`systemctl stop`" in ended.stderr
    assert "help: " in ended.stderr
    assert host.begun == 1


def test_what_another_run_fetched_meanwhile_is_no_answer(host: Host) -> None:
    """It ended ours and began its own, which is for something else: ours is begun once that is over."""
    host.will(GOES_ON)
    host.begin(RUN_A)
    (host.root / "active").unlink()
    (host.root / "run/fetch.id").write_text("another\n")
    (host.root / "run/fetch.watchers").write_text(f"{RUN_B}\n")
    host.will(FAILS)
    assert host.wait(RUN_A).returncode == 1
    assert host.begun == 2


def test_without_a_fetch_that_was_begun_the_one_who_waits_begins(host: Host) -> None:
    files = model_files(host.plan)
    arrive = "".join(f': >"{host.root}/store/.incoming/{sha256}"\n' for sha256 in files)
    host.will(arrive)
    assert host.wait(RUN_A).returncode == 0
    assert host.begun == 1


def model_files(plan: Plan) -> list[str]:
    """The sha256 of what is to be fetched."""
    return [file.sha256 for model in plan.models if model.url for file in model.files]
