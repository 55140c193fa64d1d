"""Parts of files: what is counted, what is believed after a crash, and who may write."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import threading
from pathlib import Path

import pytest

from llamaherd.onhost.fetch.part import Part, StorageError, kept_bytes
from tests.support.fetching import launcher

BLOCK = 4096
BODY = random.Random(2).randbytes(3 * BLOCK + 100)
SHA256 = hashlib.sha256(BODY).hexdigest()
BOOT = slice(24, 40)  # of the map's header


def opened(folder: Path, size: int = len(BODY), block: int = BLOCK) -> Part:
    return Part(folder, SHA256, size, block, lambda: None)


def put(part: Part, start: int, end: int, body: bytes = BODY) -> int:
    return part.absorb(start, memoryview(body)[start:end])


def content(part: Part) -> bytes:
    buffer = bytearray(part.size)
    at = 0
    while at < part.size:
        at += part.read_into(at, memoryview(buffer)[at:])
    return bytes(buffer)


def of_another_boot(folder: Path) -> None:
    """Make the map one that was written before the machine went down."""
    path = folder / f"{SHA256}.map"
    data = bytearray(path.read_bytes())
    data[BOOT] = bytes(16)
    path.write_bytes(data)


def test_blocks_are_counted_and_the_prefix_ends_at_the_first_gap(tmp_path: Path) -> None:
    part = opened(tmp_path)
    assert (part.blocks, part.have, part.prefix()) == (4, 0, 0)
    put(part, BLOCK, 2 * BLOCK)
    assert (part.have, part.prefix()) == (BLOCK, 0)
    put(part, 0, 10)
    put(part, 10, BLOCK)
    put(part, 2 * BLOCK, 2 * BLOCK + 7)
    assert (part.have, part.prefix()) == (2 * BLOCK + 7, 2 * BLOCK + 7)
    assert part.lacking(2) == (2 * BLOCK + 7, 3 * BLOCK)
    assert part.lacking(3) == (3 * BLOCK, len(BODY))


def test_bytes_that_are_there_are_not_written_again(tmp_path: Path) -> None:
    part = opened(tmp_path)
    put(part, 0, 10)
    put(part, BLOCK, BLOCK + 10)
    assert put(part, 0, len(BODY), bytes(len(BODY))) == len(BODY) - 20
    assert part.prefix() == len(BODY)
    there = content(part)
    assert there[:10] == BODY[:10]
    assert there[BLOCK : BLOCK + 10] == BODY[BLOCK : BLOCK + 10]
    assert there[10:BLOCK] == bytes(BLOCK - 10)


def test_a_gap_is_never_left(tmp_path: Path) -> None:
    part = opened(tmp_path)
    with pytest.raises(ValueError, match="gap"):
        put(part, 5, 10)


def test_what_was_written_is_known_to_the_next(tmp_path: Path) -> None:
    part = opened(tmp_path)
    put(part, 0, 100)
    put(part, BLOCK, 2 * BLOCK)
    part.close()
    again = opened(tmp_path)
    assert (again.have, again.prefix()) == (BLOCK + 100, 100)


@pytest.mark.parametrize("size", [len(BODY), 0, 1, BLOCK])
def test_a_whole_file_gets_its_name_and_leaves_nothing_behind(tmp_path: Path, size: int) -> None:
    part = opened(tmp_path, size)
    part.absorb(0, memoryview(BODY)[:size])
    part.sync()
    assert part.prefix() == size
    part.finish()
    part.close()
    assert [path.name for path in tmp_path.iterdir()] == [SHA256]
    assert (tmp_path / SHA256).read_bytes() == BODY[:size]
    again = opened(tmp_path, size)
    assert again.whole
    assert again.have == size == kept_bytes(tmp_path, SHA256, size)


def test_left_overs_of_a_run_that_died_behind_the_rename_go(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / SHA256).write_bytes(BODY)
    assert opened(tmp_path).whole
    assert [path.name for path in tmp_path.iterdir()] == [SHA256]


def test_after_a_power_failure_only_what_was_synced_is_believed(tmp_path: Path) -> None:
    part = opened(tmp_path)
    put(part, 0, 100)
    put(part, BLOCK, BLOCK + 50)
    part.sync()
    put(part, 100, BLOCK)
    part.close()
    of_another_boot(tmp_path)
    again = opened(tmp_path)
    assert (again.have, again.prefix()) == (150, 100)
    again.close()
    # From here on it is this boot's, and what is written is believed at once.
    again = opened(tmp_path)
    put(again, 100, 200)
    again.close()
    assert opened(tmp_path).have == 250


def test_after_a_power_failure_before_the_first_sync_nothing_is_believed(tmp_path: Path) -> None:
    part = opened(tmp_path)
    put(part, 0, 100)
    part.close()
    of_another_boot(tmp_path)
    assert opened(tmp_path).have == 0


def test_a_map_that_did_not_reach_the_disk_gives_way_to_the_synced_one(tmp_path: Path) -> None:
    part = opened(tmp_path)
    put(part, 0, 100)
    part.sync()
    part.close()
    (tmp_path / f"{SHA256}.map").write_bytes(b"")
    assert opened(tmp_path).have == 100


def map_of(folder: Path) -> Path:
    return folder / f"{SHA256}.map"


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: map_of(folder).write_bytes(b"rubbish" * 8),
        lambda folder: map_of(folder).write_bytes(map_of(folder).read_bytes()[:-1]),
        lambda folder: map_of(folder).write_bytes(map_of(folder).read_bytes()[:40] + b"\xff" * 16),
        lambda folder: (folder / f"{SHA256}.part").unlink(),
        lambda folder: os.truncate(folder / f"{SHA256}.part", 5),
    ],
    ids=["rubbish", "short", "counts too high", "no part", "short part"],
)
def test_what_cannot_be_is_begun_anew(tmp_path: Path, damage: object) -> None:
    part = opened(tmp_path)
    put(part, 0, 100)
    part.close()
    assert callable(damage)
    damage(tmp_path)
    again = opened(tmp_path)
    assert again.have == 0
    assert (tmp_path / f"{SHA256}.part").stat().st_size == len(BODY)


def test_another_size_of_blocks_begins_anew(tmp_path: Path) -> None:
    part = opened(tmp_path)
    put(part, 0, 100)
    part.close()
    assert opened(tmp_path, block=2 * BLOCK).have == 0


def test_what_is_discarded_is_gone_for_good(tmp_path: Path) -> None:
    part = opened(tmp_path)
    put(part, 0, 2 * BLOCK)
    part.sync()
    assert part.prefix() == 2 * BLOCK
    part.discard()
    assert (part.have, part.prefix()) == (0, 0)
    part.close()
    of_another_boot(tmp_path)
    assert opened(tmp_path).have == 0


def test_a_file_that_somebody_shortens_is_said(tmp_path: Path) -> None:
    part = opened(tmp_path)
    os.truncate(tmp_path / f"{SHA256}.part", 0)
    with pytest.raises(StorageError, match="made shorter"):
        part.read_into(0, memoryview(bytearray(10)))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / f"{SHA256}.part").symlink_to(victim)
    with pytest.raises(StorageError):
        opened(tmp_path)
    assert victim.read_bytes() == b"mine"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    """The second waits, says so, and finds what the first one made."""
    script = (
        "from pathlib import Path; from llamaherd.onhost.fetch.part import Part\n"
        f"part = Part(Path({str(tmp_path)!r}), {SHA256!r}, {len(BODY)}, {BLOCK}, lambda: None)\n"
        "print('locked', flush=True); body = bytes.fromhex(input())\n"
        "part.absorb(0, memoryview(body)); part.finish(); part.close()"
    )
    python, isolated, option, _, folder = launcher(tmp_path / "lib")
    start = f"import sys; sys.path.insert(0, {folder!r})\n{script}"
    with subprocess.Popen([python, isolated, option, start], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdin
        assert other.stdout
        assert other.stdout.readline() == "locked\n"
        waited = threading.Event()
        parts: list[Part] = []
        thread = threading.Thread(
            target=lambda: parts.append(Part(tmp_path, SHA256, len(BODY), BLOCK, waited.set)), daemon=True
        )
        thread.start()
        assert waited.wait(60)
        assert parts == []
        other.stdin.write(f"{BODY.hex()}\n")
        other.stdin.flush()
        thread.join(60)
    (part,) = parts
    assert part.whole
    assert content(part) == BODY
