"""Results as files: added to, never rewritten, and whole after whatever end of the one who measured."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.results.result import Method, Source, Start
from llamaherd.measure.results.store import (
    Journal,
    last_result,
    read_result,
    result_files,
    result_folder,
    results_folder,
    unfinished_journal,
    with_id,
    write_result,
)
from tests.bench.made import result, run
from tests.support.rigs import ROOT

ENDED = "2026-11-23T20:18:00Z"


def names(results: Path) -> list[str]:
    return sorted(path.name for path in (results / "duo/chat").iterdir())


def test_a_result_is_written_beside_the_inventory(tmp_path: Path) -> None:
    results = results_folder(tmp_path)
    path = write_result(results, result(run(), ended=ENDED))
    written = read_result(path)
    assert path == tmp_path / f"results/duo/chat/20261123T201500Z-{written.id}.json"
    assert written == with_id(result(run(), ended=ENDED))
    assert write_result(results, written) == path
    other = write_result(results, result(run(90.0), ended=ENDED))
    assert names(results) == sorted([path.name, other.name])
    assert path.stat().st_mode & 0o777 == 0o644
    (tmp_path / "one.yaml").touch()
    assert results_folder(tmp_path / "one.yaml") == results


def test_what_does_not_count_is_known_after_a_kill(tmp_path: Path) -> None:
    """Somebody else was there meanwhile, as the next look tells."""
    with Journal.begin(tmp_path, result(run())) as journal:
        journal.add_run(0, run(90.0))
        journal.add_run(0, run(91.0).model_copy(update={"excluded": "it ended early"}))
        journal.exclude(0, 0, "meanwhile chat answered somebody else")
        journal.exclude(0, 1, "meanwhile chat answered somebody else")
        left = read_result(journal.path)
    assert [each.excluded for each in left.cells[0].runs] == ["meanwhile chat answered somebody else", "it ended early"]
    assert left == journal.result


@pytest.mark.parametrize("place", [-1, 1, True])
def test_an_exclusion_of_no_run_is_none(tmp_path: Path, place: int) -> None:
    with Journal.begin(tmp_path, result(run())) as journal:
        journal.add_run(0, run(90.0))
    with journal.path.open("a") as stream:
        stream.write(json.dumps({"cell": 0, "excluded": place, "why": "x"}) + "\n")
    with pytest.raises(UserError, match="is no line of a journal"):
        read_result(journal.path)


def test_the_last_result_is_one_of_the_declared_server(tmp_path: Path) -> None:
    """What blocks measured of another one, what others measured and what is damaged are passed over."""
    first = result(run(), ended=ENDED)
    kept = write_result(tmp_path, first)
    arm = first.model_copy(update={"began": "2026-11-23T20:16:00Z", "method": Method(series="s", arm="B")})
    import_ = first.model_copy(update={"began": "2026-11-23T20:17:00Z", "source": Source(kind="llama-bench")})
    damaged = first.model_copy(update={"began": "2026-11-23T20:17:30Z"})
    for each in (arm, import_):
        write_result(tmp_path, each)
    newest = write_result(tmp_path, first.model_copy(update={"began": "2026-11-23T20:17:40Z"}))
    write_result(tmp_path, damaged).write_text("{}")
    assert last_result(tmp_path, "duo", "chat", newest) == read_result(kept)
    assert last_result(tmp_path, "duo", "code", newest) is None


def test_a_journal_becomes_the_document(tmp_path: Path) -> None:
    with Journal.begin(tmp_path, result(run())) as journal:
        assert names(tmp_path) == ["20261123T201500Z.jsonl"]
        journal.add_start(Start(process="7"))
        journal.add_run(0, run(90.0))
        assert read_result(journal.path) == journal.result
        journal.add_run(0, run(91.0))
        path = journal.finish(ENDED)
    whole = read_result(path)
    assert names(tmp_path) == [path.name]
    assert [each.predicted_ms for each in whole.cells[0].runs] == [run(90.0).predicted_ms, run(91.0).predicted_ms]
    assert (whole.ended, whole.starts) == (ENDED, (Start(process="7"),))


MEASURING = """
import sys, time
from pathlib import Path
from llamaherd.measure.results.store import Journal
from tests.bench.made import result, run
with Journal.begin(Path(sys.argv[1]), result()) as journal:
    for number in range(100000):
        journal.add_run(0, run(100.0 + number % 7))
        if number == 3:
            print("going", flush=True)
"""


def measuring(folder: Path) -> subprocess.Popen[str]:
    """Somebody who measures without end, and is at it."""
    process = subprocess.Popen(
        [sys.executable, "-c", MEASURING, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "going\n"
    return process


def test_killed_in_the_middle_what_was_measured_stays_and_is_gone_on_with(tmp_path: Path) -> None:
    process = measuring(tmp_path)
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (path,) = result_files(tmp_path, "duo", "chat")
    before = read_result(path)
    assert before.ended is None
    assert len(before.cells[0].runs) >= 4
    assert unfinished_journal(tmp_path, "duo", "chat", lambda found: found.began == before.began) == path
    assert unfinished_journal(tmp_path, "duo", "chat", lambda found: found.began != before.began) is None
    with Journal.resume(path) as journal:
        journal.add_run(0, run(55.0))
        document = journal.finish(ENDED)
    whole = read_result(document)
    assert whole.cells[0].runs == (*before.cells[0].runs, run(55.0))
    assert names(tmp_path) == [document.name]


def test_a_line_that_was_cut_is_cut_off_before_it_goes_on(tmp_path: Path) -> None:
    with Journal.begin(tmp_path, result()) as journal:
        journal.add_run(0, run())
    with journal.path.open("ab") as stream:
        stream.write(b'{"cell":0,"run":{"pred')
    with Journal.resume(journal.path) as again:
        again.add_run(0, run(90.0))
    assert len(read_result(journal.path).cells[0].runs) == 2


def test_nobody_else_writes_it_meanwhile(tmp_path: Path) -> None:
    process = measuring(tmp_path)
    try:
        (path,) = result_files(tmp_path, "duo", "chat")
        with pytest.raises(UserError, match="being written by another run"):
            Journal.resume(path)
        with pytest.raises(UserError, match="exists already"):
            Journal.begin(tmp_path, result())
    finally:
        process.kill()
        process.wait()
    assert names(tmp_path) == [path.name]
    Journal.resume(path).close()


def test_killed_before_the_journal_goes_the_document_counts(tmp_path: Path) -> None:
    with Journal.begin(tmp_path, result()) as journal:
        journal.add_run(0, run())
        left = journal.path.read_bytes()
        document = journal.finish(ENDED)
    journal.path.write_bytes(left)
    assert result_files(tmp_path, "duo", "chat") == [document]
    assert unfinished_journal(tmp_path, "duo", "chat", lambda _: True) is None


FULL = """
import resource, signal, sys
from pathlib import Path
from llamaherd.measure.results.store import Journal
from llamaherd.diagnostics.findings import UserError
from tests.bench.made import result, run
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Journal.begin(Path(sys.argv[1]), result()) as journal:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    try:
        for _ in range(1000):
            journal.add_run(0, run())
    except UserError as error:
        print(error, len(journal.result.cells[0].runs))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    journal.add_run(0, run(50.0))
"""


def test_what_takes_no_more_keeps_what_it_has(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: a line is written in part, and then nothing more."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "cannot write" in done.stdout
    assert "check the folder, its mode and its disk" in done.stdout
    runs = read_result(result_files(tmp_path, "duo", "chat")[0]).cells[0].runs
    assert len(runs) == int(done.stdout.split()[-1]) + 1
    assert runs[-1] == run(50.0)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_files_are_listed_from_the_newest_and_others_left_out(tmp_path: Path) -> None:
    assert result_files(tmp_path, "duo", "chat") == []
    for began in ("2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-02-01T00:00:00Z"):
        write_result(tmp_path, result(run(), began=began))
    folder = result_folder(tmp_path, result())
    for name in ("notes.txt", "20260101T000000Z.json", "x.json", ".herd-1.part"):
        (folder / name).touch()
    found = [path.name[:8] for path in result_files(tmp_path, "duo", "chat")]
    assert found == ["20260301", "20260201", "20260101"]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "duo").write_text("a file")
    for write in (write_result, Journal.begin):
        with pytest.raises(UserError, match=r"cannot write .*: (Not a directory|File exists)"):
            write(tmp_path, result())
    assert (tmp_path / "duo").read_text() == "a file"


def test_what_lies_there_is_read_within_bounds(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for name, said in (("pipe.json", "it is a pipe"), ("none.json", "No such file"), ("", "it is a folder")):
        with pytest.raises(UserError, match=said):
            read_result(tmp_path / name)
    with pytest.raises(UserError, match="cannot write"):
        Journal.resume(tmp_path / "none.jsonl")
