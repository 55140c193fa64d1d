"""Jobs, the rules for bandwidth, and what people see."""

from __future__ import annotations

import json
import threading
import time
from datetime import datetime, timedelta
from datetime import time as clock
from pathlib import Path
from typing import Any

import pytest

from llamaherd.onhost.fetch.download import Throttle
from llamaherd.onhost.fetch.job import (
    FetchError,
    File,
    Progress,
    Rule,
    Source,
    atomic_write,
    load_job,
    show_duration,
    show_part,
    show_size,
)

JOB: dict[str, Any] = {
    "id": "0123456789ab",
    "incoming": "/store/.incoming",
    "store": "/store",
    "files": [
        {
            "name": "35b: x.gguf",
            "sha256": "ab" * 32,
            "size": 123,
            "sources": [{"name": "hub", "url": "https://hub.lan/a/b/resolve/c/x.gguf", "secret": "hub"}],
        }
    ],
    "folders": ["/mnt/usb"],
    "connections": 8,
    "bandwidth": [{"begin": "07:00", "end": "23:00", "bytes_per_second": 8000000}],
}


def written(folder: Path, job: Any) -> Path:
    path = folder / "job.json"
    path.write_text(json.dumps(job))
    return path


def test_a_job_is_read(tmp_path: Path) -> None:
    job = load_job(written(tmp_path, JOB))
    source = Source("hub", "https://hub.lan/a/b/resolve/c/x.gguf", "hub")
    assert job.files == (File("35b: x.gguf", "ab" * 32, 123, (source,)),)
    assert (job.incoming, job.store, job.folders) == (Path("/store/.incoming"), Path("/store"), (Path("/mnt/usb"),))
    assert job.bandwidth == (Rule(clock(7), clock(23), 8_000_000),)


def changed(**values: object) -> dict[str, object]:
    return {**JOB, **values}


def with_file(**values: object) -> dict[str, object]:
    (file,) = JOB["files"]
    return changed(files=[{**file, **values}])


def with_url(url: str) -> dict[str, object]:
    return with_file(sources=[{"name": "hub", "url": url, "secret": "hub"}])


@pytest.mark.parametrize(
    "job",
    [
        [],
        {},
        changed(incoming="here"),
        changed(connections=0),
        changed(bandwidth=[{"begin": "25:00", "end": "23:00", "bytes_per_second": 1}]),
        changed(bandwidth=[{"begin": "07:00", "end": "23:00", "bytes_per_second": 0}]),
        with_file(sha256="../../etc/passwd"),
        with_file(size=-1),
        with_url("file:///etc/passwd"),
        with_url("https://user:password@hub.lan/x"),
        with_url("https:///x"),
        with_file(sources=[{"name": "hub", "url": "https://hub.lan/x", "secret": "../shadow"}]),
    ],
)
def test_a_job_that_is_none_is_said(tmp_path: Path, job: object) -> None:
    with pytest.raises(FetchError, match="cannot be read by this version: ") as caught:
        load_job(written(tmp_path, job))
    assert "password@" not in str(caught.value)


def test_a_job_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="cannot be read: No such file"):
        load_job(tmp_path / "job.json")


@pytest.mark.parametrize(
    ("begin", "end", "covered", "free"),
    [
        ("07:00", "23:00", ["07:00", "22:59:59"], ["06:59:59", "23:00"]),
        ("23:00", "07:00", ["23:00", "00:00", "06:59"], ["07:00", "12:00", "22:59"]),
        ("08:00", "08:00", ["00:00", "08:00", "23:59"], []),
    ],
)
def test_hours_of_rules(begin: str, end: str, covered: list[str], free: list[str]) -> None:
    rule = Rule(clock.fromisoformat(begin), clock.fromisoformat(end), 1)
    assert [rule.covers(clock.fromisoformat(each)) for each in (*covered, *free)] == [
        *(True for _ in covered),
        *(False for _ in free),
    ]


def around_now(hours: int, rate: int) -> Rule:
    """A rule whose time begins some hours from now, and lasts two."""
    begin = datetime.now() + timedelta(hours=hours)
    return Rule(begin.time(), (begin + timedelta(hours=2)).time(), rate)


def test_the_first_rule_that_covers_now_counts() -> None:
    assert Throttle([]).rate() is None
    assert Throttle([around_now(3, 5)]).rate() is None
    assert Throttle([around_now(3, 5), around_now(-1, 7), around_now(-1, 9)]).rate() == 7


def test_the_rate_is_kept_by_all_together() -> None:
    rate = 1_000_000
    throttle = Throttle([Rule(clock(0), clock(0), rate)])
    read_in: list[tuple[float, float, int]] = []

    def read() -> None:
        while sum(count for _, _, count in read_in) < 2 * rate:
            began = time.monotonic()
            granted = throttle.admit(1 << 20)
            # Whatever was not there to be read is given back.
            throttle.give_back(granted // 2)
            read_in.append((began, time.monotonic(), granted - granted // 2))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # In each span of time, by what surely was in it. A tenth of a second may be made up, and each has a slice more.
    for since in {began for began, _, _ in read_in}:
        for until in {ended for _, ended, _ in read_in if ended > since}:
            count = sum(count for began, ended, count in read_in if since <= began and ended <= until)
            assert count <= rate * (until - since + 0.1 + len(threads) * 0.05)


def test_sizes_and_durations_are_shown_for_people() -> None:
    assert [show_size(size) for size in (0, 999, 1000, 11_300_000, 105e9)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "11.3 MB",
        "105 GB",
    ]
    assert show_part(41_200_000_000, 105_000_000_000) == "41.2 of 105 GB"
    assert show_part(0, 105) == "0 of 105 B"
    assert [show_duration(seconds) for seconds in (0, 8.4, 245, 5640, 183_600)] == [
        "0 s",
        "8 s",
        "4 min 05 s",
        "1 h 34 min",
        "2 d 3 h",
    ]


def test_what_is_shown_is_replaced_and_what_happens_is_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress(tmp_path)
    for line in ("one", "two"):
        progress.show(line)
    assert (tmp_path / "progress").read_text() == "two\n"
    progress.note("three")
    progress.fail([FetchError("It broke", "mend it"), FetchError("It fell", "lift it")])
    assert (tmp_path / "progress").read_text() == "three\n"
    assert (tmp_path / "failed").read_text() == "It broke\n  help: mend it\n\nIt fell\n  help: lift it\n"
    assert capsys.readouterr().out == f"one\nthree\n{(tmp_path / 'failed').read_text()}"


def test_a_link_in_the_way_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in ("progress", "progress.new"):
        (tmp_path / name).symlink_to(victim)
    atomic_write(tmp_path / "progress", "line\n")
    assert victim.read_text() == "mine"
    assert (tmp_path / "progress").read_text() == "line\n"
    assert (tmp_path / "progress").stat().st_mode & 0o777 == 0o644
