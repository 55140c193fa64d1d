"""`herd history` and `herd rollback`: hosts answer as tests have them, the rest is real."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.host.remote import RemoteError
from llamaherd.onhost.releases import Stored, StoredRelease
from llamaherd.pipeline import history
from llamaherd.pipeline.history import Origin, Release
from llamaherd.plan import Plan
from tests.support.envelope import the_rig
from tests.support.fake import Alone
from tests.support.ours import queried
from tests.support.rigs import KEY, changed, converged, cpu_rig, planned

pytestmark = pytest.mark.usefixtures("starts_processes")

NOW = planned(cpu_rig())
THEN = planned(cpu_rig(), {"instances/chat/context": 1024})
FIRST = Release(at="2026-11-23T09:09:48+00:00", origin=Origin(user="tom", machine="desk"), changes=("start it: new",))
SECOND = Release(
    at="2026-11-24T10:00:00+00:00",
    origin=Origin(user="ann", machine="porch", commit="5d0e1f8a2b3c+", lock="0123456789ab", version="0.1.0"),
    changes=("restart it: old",),
    back_to=1,
)
FAILED = Release(at="2026-11-25T10:00:00+00:00", origin=Origin(user="ann"), changes=(), failed=("chat: it did not",))


def answer(releases: dict[int, tuple[Release, Plan]]) -> Stored:
    """Return what a host with these releases has stored."""
    return Stored(
        tuple(
            StoredRelease(
                number,
                release.model_dump_json(),
                base64.b64encode(gzip.compress(plan.model_dump_json().encode())).decode(),
            )
            for number, (release, plan) in releases.items()
        )
    )


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A rig whose host has two releases, and then one that failed."""
    (tmp_path / "box.yaml").write_text(json.dumps(changed(cpu_rig(), {})))
    told = answer({1: (FIRST, THEN), 2: (SECOND, NOW), 3: (FAILED, NOW)})
    monkeypatch.setattr(history, "query_verb", lambda *_: told)
    # A rollback that is refused does not wait for its inspection, which would log in after the test.
    monkeypatch.setattr(history, "query_host", lambda *_: queried(converged(NOW, {"chat": KEY})))
    monkeypatch.setattr("llamaherd.cli.history.HostLock", Alone)
    monkeypatch.setattr("llamaherd.cli.history._load_pyinfra", lambda: None)  # it changes how this process waits
    return tmp_path


def herd(fleet: Path, *words: str) -> Result:
    """Run it to its end."""
    ended = CliRunner().invoke(main, ["-i", str(fleet), *words])
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


def test_what_was_done_is_told(fleet: Path) -> None:
    said = herd(fleet, "history")
    assert said.exit_code == 0
    assert said.stdout.splitlines() == [
        "box 1: done at 2026-11-23 09:09:48 UTC, by tom on desk",
        "    start it: new",
        "box 2: done at 2026-11-24 10:00:00 UTC, by ann on porch from commit 5d0e1f8a2b3c+, back to release 1",
        "    restart it: old",
        "box 3: failed at 2026-11-25 10:00:00 UTC, by ann",
        "    failed: chat: it did not",
    ]
    rig = the_rig(herd(fleet, "history", "box", "--json").stdout)
    assert [each["number"] for each in rig["releases"]] == [1, 2, 3]
    assert rig["releases"][1]["origin"]["commit"] == "5d0e1f8a2b3c+"


def test_a_host_that_remembers_nothing(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "query_verb", lambda *_: Stored())
    assert herd(fleet, "history").stdout.startswith("box: no release yet; ")
    said = herd(fleet, "rollback", "box")
    assert said.exit_code == 1
    assert said.stderr.startswith("error: box has no release to go back to\n  help: ")


def test_a_host_that_cannot_be_asked(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Stored:
        raise RemoteError("nothing listens there", "start it")

    monkeypatch.setattr(history, "query_verb", refuse)
    for words in (("history", "--json"), ("rollback", "box", "--yes")):
        said = herd(fleet, *words)
        assert said.exit_code == 1
        assert "box: nothing listens there\n  help: start it\n" in said.stderr


def test_back_to_what_runs_already(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "query_host", lambda *_: queried(converged(THEN, {"chat": KEY})))
    said = herd(fleet, "rollback", "box")
    assert (said.exit_code, said.stdout) == (0, "box: already at release 1, nothing to do\n")


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_a_dry_run_shows_the_changes_and_makes_none(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, quiet: tuple[str, ...]
) -> None:
    monkeypatch.setattr(history, "query_host", lambda *_: queried(converged(NOW, {"chat": KEY})))
    monkeypatch.setattr("llamaherd.cli.history._apply", lambda *_: pytest.fail("it was applied"))
    said = herd(fleet, "rollback", "box", "--dry-run", *quiet)
    assert (said.exit_code, said.stderr) == (0, "")
    first, second, *_ = said.stdout.splitlines()
    assert (first, second) == ("box: rollback to release 1", "box: 1 change")


def test_a_rollback_of_a_stopped_server_shows_what_differs(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs whose arguments could be compared; and a release with the same server is left out."""
    told = answer({1: (FIRST, THEN), 2: (SECOND, NOW), 3: (SECOND, NOW), 4: (FAILED, NOW)})
    monkeypatch.setattr(history, "query_verb", lambda *_: told)
    world = [line for line in converged(NOW, {"chat": KEY}) if not line.startswith("serving\tllama-chat")]
    (chat,) = NOW.of("systemd")
    world.remove(f"listens\t{chat.endpoint.port:04X}")
    runs, stopped = "\tactive\tenabled\tno\t", "\tinactive\tdisabled\tno\t"
    world = [line.replace(runs, stopped).replace(f"\t{chat.spec}\t", "\t\t") for line in world]
    monkeypatch.setattr(history, "query_host", lambda *_: queried(world))
    said = herd(fleet, "rollback", "box", "--dry-run")
    assert said.stdout.startswith("box: rollback to release 1\n")
    assert "--ctx-size 8192 → 1024" in said.stdout


def test_back_to_what_is_gone(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = [line for line in converged(THEN, {"chat": KEY}) if not line.startswith("build\t")]
    monkeypatch.setattr(history, "query_host", lambda *_: queried(there))
    said = herd(fleet, "rollback", "box", "--yes")
    assert said.exit_code == 1
    assert "release 1 cannot come back: the host has no build llama.cpp-" in said.stderr


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("nobody",), 2, "nobody"),
        (("box", "nobody"), 1, "box has no release before 2 with another version of `nobody`"),
        (("box", "--to", "7"), 1, "box has no release 7"),
        (("box", "--to", "0"), 2, "--to"),
    ],
)
def test_where_nothing_leads(fleet: Path, words: tuple[str, ...], code: int, why: str) -> None:
    said = herd(fleet, "rollback", *words)
    assert said.exit_code == code
    assert why in said.stderr
