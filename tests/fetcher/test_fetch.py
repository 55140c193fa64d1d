"""Fetching as a whole: what arrives, what a killed run leaves to the next, what people see, what disks refuse."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.fetching import BLOCK, HASTY, REPO, Host, sha256, source, wanted
from tests.support.hub_server import Hub, Request, gone
from tests.support.sample import drawn
from tests.support.stores import needs_root

WHOLE = random.Random(3).randbytes(5 * BLOCK + 777)
PAGE, PIECE = 4096, 1 << 18
FILES = {"a.gguf": WHOLE, "b.gguf": WHOLE[:BLOCK], "c/d e.gguf": WHOLE[1:-1], "empty": b"", "one": b"1"}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({REPO: FILES}) as hub:
        yield hub


# --- what arrives --------------------------------------------------------------------------------------------


def test_files_arrive_once_and_whole(host: Host, hub: Hub) -> None:
    files = [wanted(path, body, [source(hub, path.replace(" ", "%20"))]) for path, body in FILES.items()]
    assert host.fetch(*files) == []
    assert all(host.arrived(body) for body in FILES.values())
    assert hub.sent == sum(map(len, FILES.values()))
    asked = len(hub.requests)
    assert host.fetch(*files) == []
    assert len(hub.requests) == asked


def test_the_same_content_twice_is_fetched_once(host: Host, hub: Hub) -> None:
    files = [wanted(name, WHOLE, [source(hub, "a.gguf")]) for name in ("here", "there")]
    assert host.fetch(*files) == []
    assert hub.sent == len(WHOLE)


def test_blocks_come_by_several_connections_at_once(host: Host, hub: Hub) -> None:
    together = threading.Barrier(host.connections)

    def wait(_: Request) -> None:
        if len(hub.requests) <= host.connections:
            together.wait(60)

    hub.on_request = wait
    assert host.fetch(wanted("a", WHOLE, [source(hub, "a.gguf")])) == []
    assert {request.range for request in hub.requests} == {
        f"bytes={start}-{min(start + BLOCK, len(WHOLE)) - 1}" for start in range(0, len(WHOLE), BLOCK)
    }


def test_a_file_without_a_source_fails_alone(host: Host, hub: Hub) -> None:
    (said,) = host.fetch(wanted("lost", b"lost", []), wanted("a", WHOLE, [source(hub, "a.gguf")]))
    assert said.startswith("tiny: lost is not on this host, and has no source\n  help: ")
    assert host.arrived(WHOLE)


def test_an_empty_file_that_cannot_be_empty_fails(host: Host, hub: Hub) -> None:
    (said,) = host.fetch({**wanted("empty", WHOLE, [source(hub, "empty")]), "size": 0})
    assert f"it arrived from hub with sha256 {sha256(b'')}, but {sha256(WHOLE)} was expected" in said


def test_two_runs_at_once_share_the_work(host: Host, hub: Hub) -> None:
    met = threading.Event()

    def wait(_: Request) -> None:
        assert met.wait(60)

    hub.on_request = wait
    file = wanted("a", WHOLE, [source(hub, "a.gguf")])

    def said(run: subprocess.Popen[str]) -> list[bool]:
        waits = []
        for line in run.stdout or ():
            waits.append("another run fetches tiny: a: waiting for it" in line)
            if waits[-1]:
                met.set()  # not a byte comes before the two have met
        return waits

    runs = [host.start(file), host.start(file)]
    with ThreadPoolExecutor(2) as pool:
        assert [sum(waits) for waits in pool.map(said, runs)] in ([0, 1], [1, 0])
    assert [run.wait(60) for run in runs] == [0, 0]
    assert hub.sent == len(WHOLE)
    assert host.arrived(WHOLE)


def test_no_more_comes_than_the_hour_allows(host: Host, hub: Hub) -> None:
    host.bandwidth = [{"begin": "00:00", "end": "00:00", "bytes_per_second": 3 * BLOCK}]
    began = time.monotonic()
    assert host.fetch(wanted("a", WHOLE, [source(hub, "a.gguf")])) == []
    assert time.monotonic() - began >= len(WHOLE) / (3 * BLOCK) * 0.9


# --- what people see -----------------------------------------------------------------------------------------


def seen(host: Host, run: subprocess.Popen[str], pattern: str) -> bool:
    """Whether the line comes to be one like this while the run goes on, however long that takes."""
    while run.poll() is None:
        with suppress(FileNotFoundError):
            if re.fullmatch(pattern, (host.run / "progress").read_text()):
                return True
        time.sleep(0.02)
    return False


def some_has_come(host: Host) -> None:
    """Wait until bytes of a file are there."""
    part = host.incoming / f"{sha256(WHOLE)}.part"
    while not (part.exists() and part.stat().st_blocks):
        time.sleep(0.02)


def test_the_line_says_what_comes_from_where_and_how_long_it_takes(host: Host, hub: Hub) -> None:
    hub.bytes_per_second = BLOCK // 10
    with host.start(wanted("a", WHOLE, [source(hub, "a.gguf")])) as run:
        # How fast it is depends on how busy this machine is: that it says so does not.
        line = r"fetching tiny: a from hub: \d\.\d of 5\.2 MB, \d+(\.\d)? ([kM]B|B)/s, [\d hmins]+ left\n"
        assert seen(host, run, line)
        run.terminate()


def test_the_line_says_what_is_waited_for(host: Host) -> None:
    with gone({REPO: FILES}) as hub, host.start(wanted("a", WHOLE, [source(hub, "a.gguf")])) as run:
        line = r"no response from hub: connection refused; (again in \d+ s|asking again) \(0 of 5\.2 MB\)\n"
        assert seen(host, run, line)
        run.terminate()


def test_nothing_of_a_token_or_a_signature_is_said(host: Host) -> None:
    with Hub({REPO: FILES}, token="hf_canary", cdn=True) as hub:
        hub.signature = "canary"
        host.secret("hub", "hf_canary")
        hub.on_request = lambda _: setattr(hub, "truncate_after", BLOCK // 4) if hub.sent else None
        path = f"/{REPO}/resolve/{hub.commit(REPO)}"
        hub.redirects = {f"{path}/bad": f"{hub.url}/x y?signature=canary", f"{path}/worse": "http://[canary"}
        files = [wanted(name, name.encode(), [source(hub, name)]) for name in ("bad", "worse")]
        with host.start(wanted("a", WHOLE, [source(hub, "a.gguf")]), *files) as run:
            text, _ = run.communicate(timeout=120)
    assert run.returncode == 1
    assert "tiny: a is complete" in text
    assert "canary" not in text + (host.run / "failed").read_text() + (host.run / "progress").read_text()


# --- runs that end early -------------------------------------------------------------------------------------


def test_a_stopped_run_ends_at_once_and_the_next_goes_on(host: Host, hub: Hub) -> None:
    hub.bytes_per_second = BLOCK // 2
    file = wanted("a", WHOLE, [source(hub, "a.gguf")])
    with host.start(file) as run:
        some_has_come(host)
        run.terminate()
        assert run.wait() == 143
    assert not (host.run / "failed").exists()
    hub.bytes_per_second = None
    assert host.fetch(file, limits=HASTY) == []
    assert host.arrived(WHOLE)


def test_killed_again_and_again_it_fetches_nothing_twice(host: Host) -> None:
    """Whatever was on the disk when a process died is not asked for again. What was on the line is."""
    chance = random.Random(4)
    body = chance.randbytes(64_000_000)
    with Hub({REPO: {"a.gguf": body}}) as hub:
        hub.bytes_per_second = 4_000_000
        file = wanted("a", body, [source(hub, "a.gguf")])
        there = b""
        for _ in drawn(range(80)):
            asked, goal = len(hub.requests), hub.sent + chance.randrange(100_000, 2_000_000)
            with host.start(file) as run:
                while hub.sent < goal:
                    assert run.poll() is None
                    time.sleep(0.01)
                run.send_signal(signal.SIGKILL)
            # A piece may be written, and the note of it not yet, on each connection.
            assert sum(arrived(there, body, request.range) for request in hub.requests[asked:]) <= 4 * PIECE
            there = (host.incoming / f"{sha256(body)}.part").read_bytes()
        assert arrived(there, body, f"bytes=0-{len(body) - 1}") > len(body) / 100
        hub.bytes_per_second = None
        asked = len(hub.requests)
        with host.start(file) as run:
            assert run.wait(300) == 0
        assert sum(arrived(there, body, request.range) for request in hub.requests[asked:]) <= 4 * PIECE
        assert host.arrived(body)


def arrived(there: bytes, body: bytes, asked: str | None) -> int:
    """How many bytes of a range, in whole pages, are as they should be in a part."""
    assert asked
    first, last = (int(each) for each in asked.removeprefix("bytes=").split("-"))
    pages = range(first - first % -PAGE, last + 2 - PAGE, PAGE)
    return PAGE * sum(there[at : at + PAGE] == body[at : at + PAGE] for at in pages)


# --- memory and disks ----------------------------------------------------------------------------------------


def most_memory(run: subprocess.Popen[str]) -> int:
    """The most that a process had in memory at once, in KiB, when it has ended."""
    most = 0
    # Not ru_maxrss: it begins with what this process had when it forked.
    while run.poll() is None:
        with suppress(OSError):
            status = Path(f"/proc/{run.pid}/status").read_text()
            most = max([most, *map(int, re.findall(r"VmHWM:\s+(\d+) kB", status))])
        time.sleep(0.05)
    return most


def test_memory_does_not_grow_with_the_file(host: Host, tmp_path: Path) -> None:
    size = 1 << 28
    hollow = tmp_path / "hollow"
    with hollow.open("wb") as stream:
        stream.truncate(size)
    digest = subprocess.run(["sha256sum", hollow], capture_output=True, check=True, text=True).stdout.split()[0]
    with Hub({REPO: {"a.gguf": hollow}}) as hub:
        host.connections = 16
        run = host.start({**wanted("a", b"", [source(hub, "a.gguf")]), "size": size, "sha256": digest})
        most = most_memory(run)
    assert run.returncode == 0
    assert 5_000 < most < 100_000
    (host.incoming / digest).unlink()


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@needs_root
def test_a_disk_without_room_is_said_before_anything_is_fetched(tmp_path: Path, hub: Hub) -> None:
    with mounted(tmp_path / "models", f"size={2 * BLOCK}"):
        host = Host(tmp_path)
        (said,) = host.fetch(wanted("a", WHOLE, [source(hub, "a.gguf")]))
        assert re.match(r"5\.2 MB are still missing, but .+/\.incoming has room for 2\.\d MB\n  help: make room", said)
        assert hub.requests == []


def fill(host: Host, hub: Hub) -> Path:
    """Let another file come in the way of a fetch, on a disk of eight blocks: three are left."""
    path = host.incoming / "other"
    first = threading.Lock()

    def come(_: Request) -> None:
        if first.acquire(blocking=False):
            path.write_bytes(bytes(5 * BLOCK))

    hub.on_request = come
    return path


@needs_root
def test_a_disk_that_becomes_full_is_said_and_nothing_is_lost(tmp_path: Path, hub: Hub) -> None:
    with mounted(tmp_path / "models", f"size={8 * BLOCK}"):
        host = Host(tmp_path)
        other = fill(host, hub)
        file = wanted("a", WHOLE, [source(hub, "a.gguf")])
        (said,) = host.fetch(file, limits=HASTY)
        assert re.match(r"the disk is full at .+/\.incoming: 0 B are free\n  help: make room, then run", said)
        other.unlink()
        hub.counted.reset()
        assert host.fetch(file) == []
        assert host.arrived(WHOLE)
        # The map, the folders and the ends of what each connection wrote take some pages of the room.
        assert hub.sent <= len(WHOLE) - 3 * BLOCK + (64 << 10)


@needs_root
def test_room_that_is_made_meanwhile_is_used(tmp_path: Path, hub: Hub) -> None:
    with mounted(tmp_path / "models", f"size={8 * BLOCK}"):
        host = Host(tmp_path)
        other = fill(host, hub)
        over = threading.Event()

        def make_room() -> None:
            line = host.run / "progress"
            while not (line.exists() and "waiting for room" in line.read_text()) and not over.wait(0.02):
                pass
            other.unlink()

        room = threading.Thread(target=make_room)
        room.start()
        said = host.fetch(wanted("a", WHOLE, [source(hub, "a.gguf")]))
        over.set()
        room.join()
        assert said == []
        assert host.arrived(WHOLE)
        assert hub.sent == len(WHOLE)


@needs_root
def test_a_disk_that_is_read_only_is_said(tmp_path: Path, hub: Hub) -> None:
    with mounted(tmp_path / "models", f"size={8 * BLOCK}"):
        host = Host(tmp_path)
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "models"], check=True)
        (said,) = host.fetch(wanted("a", WHOLE, [source(hub, "a.gguf")]))
        assert re.match(r".+/\.incoming is read-only\n  help: check `dmesg`", said)


def test_the_pieces_of_a_file_are_where_they_belong(host: Host, hub: Hub) -> None:
    """While it arrives, by other eyes than the fetcher's."""
    hub.bytes_per_second = BLOCK
    with host.start(wanted("a", WHOLE, [source(hub, "a.gguf")])) as run:
        some_has_come(host)
        run.kill()
    there = (host.incoming / f"{sha256(WHOLE)}.part").read_bytes()
    assert len(there) == len(WHOLE)
    assert [there[at] for at in range(len(there)) if there[at] not in (0, WHOLE[at])] == []
    assert any(there)
