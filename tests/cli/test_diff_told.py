"""What Prometheus learns of a look: figures in a file, and at the rig that watches, whose exporter reads them for real.

Hosts return what tests name; the rig that watches runs the verb that SSH would bring it, with its files in a folder.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.diagnostics.findings import UserError
from llamaherd.host.program import request
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.layout import DRIFT_FILE, EXPORTER_UNIT, FIGURES_DATA, UNITS
from llamaherd.onhost.document import decode, dump, parse_document
from llamaherd.onhost.system import FailedError
from llamaherd.onhost.verbs import perform
from llamaherd.pipeline import diff, preview
from llamaherd.plan import Plan
from tests.support.gateway import free_port, until
from tests.support.inspected_host import RootedHost
from tests.support.ours import plans, queried
from tests.support.prometheus import monitored, program
from tests.support.rigs import converged, cpu_rig

T = TypeVar("T")
WATCHED = "monitoring: {on: box, rigs: [box], drift: true}"
LOOK = re.compile(r"(?<= )\d{10}$", re.MULTILINE)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A rig that watches itself, whose host answers that all is as planned."""
    folder = tmp_path / "fleet"
    folder.mkdir()
    declared: dict[str, Any] = {**cpu_rig(), "engines": {}, "models": {}, "instances": {}}
    (folder / "box.yaml").write_text(json.dumps(declared))
    (folder / "fleet.yaml").write_text(WATCHED)
    monkeypatch.setattr(preview, "query_host", lambda *_: queried(converged(of(folder), {})))
    return folder


def of(folder: Path) -> Plan:
    """What the rig must be."""
    return plans(folder)["box"][1]


@pytest.fixture
def there(tmp_path: Path, fleet: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The rig's own files, in a folder of this machine."""
    exporter = monitored(of(fleet)).exporter
    assert exporter
    host = RootedHost(tmp_path / "host")

    def query(_: Remote, verb: str, given: object, kind: type[T], limit: float) -> T:
        assert limit == 60
        try:
            found = perform(parse_document(request(verb, given)), host)
        except FailedError as error:
            raise UserError(error.message, error.fix) from error
        return decode(kind, parse_document(dump(found).encode()))

    monkeypatch.setattr(diff, "query_verb", query)
    host.put(str(UNITS / EXPORTER_UNIT), exporter.unit.text)
    (host.root / str(FIGURES_DATA)[1:]).mkdir(parents=True)
    return host.root


def herd(fleet: Path, *words: str) -> Result:
    """Run it to its end."""
    ended = CliRunner().invoke(main, ["-i", str(fleet), *words])
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


def test_figures_are_written_whole(fleet: Path, tmp_path: Path) -> None:
    file = tmp_path / "drift.prom"
    said = herd(fleet, "diff", "--metrics", str(file))
    assert (said.exit_code, said.stderr.splitlines()[-1]) == (0, f"written: {file}")
    told = [line for line in LOOK.sub("NOW", file.read_text()).splitlines() if not line.startswith("#")]
    assert told == [
        "llamaherd_diff_seconds NOW",
        'llamaherd_diff_seen_seconds{rig="box"} NOW',
        'llamaherd_diff_failed{rig="box"} 0',
        'llamaherd_diff_changes{rig="box"} 0',
        'llamaherd_diff_drift_changes{rig="box"} 0',
        'llamaherd_diff_inventory_changes{rig="box"} 0',
    ]
    assert file.stat().st_mode & 0o777 == 0o644
    assert not list(tmp_path.glob(".herd-*"))


def test_the_rig_that_watches_is_told_and_its_exporter_reads_it(fleet: Path, there: Path) -> None:
    said = herd(fleet, "diff", "--tell")
    assert (said.exit_code, said.stderr.splitlines()[-1]) == (0, "sent the metrics to box, which runs monitoring")
    port = free_port()
    words = (
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={there}{FIGURES_DATA}",
    )
    exporter = [*program("prometheus-node-exporter"), *words, f"--web.listen-address=127.0.0.1:{port}"]
    asking = ["curl", "-q", "-s", f"http://127.0.0.1:{port}/metrics"]

    def asked() -> str:
        return subprocess.run(asking, capture_output=True, text=True, check=False, timeout=30).stdout

    with subprocess.Popen(exporter, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: "llamaherd_diff_seconds" in asked())
            told = asked()
        finally:
            process.terminate()
    assert 'llamaherd_diff_drift_changes{rig="box"} 0' in told
    assert "node_textfile_scrape_error 0" in told


def test_a_host_that_is_away_is_told_of_and_ends_with_1(
    fleet: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise RemoteError("nothing listens there", "is it on?")

    monkeypatch.setattr(preview, "query_host", away)
    assert herd(fleet, "diff", "--tell").exit_code == 1
    told = (there / str(DRIFT_FILE)[1:]).read_text()
    assert 'llamaherd_diff_failed{rig="box"} 1' in told
    assert "seen_seconds{" not in told


def test_a_rig_that_does_not_read_it_is_not_told(fleet: Path, there: Path) -> None:
    unit = there / str(UNITS)[1:] / EXPORTER_UNIT
    unit.write_text(unit.read_text().replace("--collector.textfile.directory", "--collector.other"))
    said = herd(fleet, "diff", "--tell")
    assert said.exit_code == 1
    assert said.stderr.splitlines()[-2:] == [
        "error: nothing on box reads metrics of drift",
        "  help: `herd up box` changes that",
    ]
    assert not list((there / str(FIGURES_DATA)[1:]).iterdir())


def test_a_folder_that_takes_nothing_is_said(fleet: Path, there: Path) -> None:
    (there / str(DRIFT_FILE)[1:]).mkdir()
    said = herd(fleet, "diff", "--tell")
    assert (said.exit_code, said.stderr.splitlines()[-2:]) == (
        1,
        [
            "error: /var/lib/llamaherd-figures/drift.prom could not be written: Is a directory",
            "  help: check whether the disk is full or read-only",
        ],
    )


def test_nobody_is_told_where_that_is_not_declared(fleet: Path) -> None:
    (fleet / "fleet.yaml").write_text("monitoring: {on: box}")
    said = herd(fleet, "diff", "--tell")
    assert said.exit_code == 1
    assert said.stderr.startswith(f"error: no rig receives metrics of drift by {fleet / 'fleet.yaml'}\n")


def test_a_look_at_a_part_is_not_told(fleet: Path, there: Path, tmp_path: Path) -> None:
    beside = {**cpu_rig(), "rig": "porch", "connect": {"host": "porch.lan"}}
    (fleet / "porch.yaml").write_text(json.dumps({**beside, "engines": {}, "models": {}, "instances": {}}))
    alone = herd(fleet / "box.yaml", "diff", "--tell")
    assert (alone.exit_code, "`--tell` needs every rig, but porch was left out" in alone.stderr) == (1, True)
    for words in (["box", "--tell"], ["--only", "monitoring", "--tell"], ["--only", "power", "--metrics", "a.prom"]):
        assert herd(fleet, "diff", *words).exit_code == 2
    assert not list((there / str(FIGURES_DATA)[1:]).iterdir())
    assert herd(fleet, "diff", "--metrics", str(tmp_path / "box.yaml")).exit_code == 2
