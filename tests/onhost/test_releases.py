"""Releases that a host keeps: written under the next number, read back, and what going back needs."""

from __future__ import annotations

import base64
import gzip

import pytest

from llamaherd.layout import KEPT, RELEASES, WRITTEN
from llamaherd.onhost.releases import MOST_RELEASES, ReadInput, Stored, StoredRelease, WriteInput, needed, read, write
from llamaherd.onhost.system import FailedError
from tests.support.played_host import File
from tests.support.service_host import ServiceHost, killed_everywhere

GOOD, BAD = '{"at":"x","failed":[]}', '{"at":"x","failed":["no"]}'
HOSTILE = "a $(id) `id` \"b\" 'c'\n; d"


def remembered(*releases: str) -> ServiceHost:
    """Return a host with these releases; the plan of each contains its number."""
    host = ServiceHost({})
    for number, release in enumerate(releases, 1):
        write(WriteInput(release, f'{{"model": "/srv/{number}"}}'), host)
    return host


def plan_of(found: Stored, number: int) -> str:
    """Return the text of a plan that was read."""
    (packed,) = (each.plan for each in found.releases if each.number == number)
    return gzip.decompress(base64.b64decode(packed)).decode() if packed else ""


def test_each_has_the_next_number_and_its_plan() -> None:
    host = remembered(GOOD, HOSTILE)
    host.files[f"{RELEASES}/notes"] = host.files[f"{RELEASES}/9.json.part"] = File("of others")
    write(WriteInput(GOOD, HOSTILE), host)
    found = read(ReadInput(newest=1), host)
    assert [(each.number, each.release) for each in found.releases] == [(3, GOOD), (2, HOSTILE), (1, GOOD)]
    assert (plan_of(found, 3), plan_of(found, 2)) == (HOSTILE, "")
    assert {file.mode for path, file in host.files.items() if "/releases/" in path and path[-1] == "n"} == {0o600}


def test_the_oldest_go() -> None:
    host = remembered(*[GOOD] * (MOST_RELEASES + 2))
    assert [each.number for each in read(ReadInput(), host).releases] == [*range(MOST_RELEASES + 2, 2, -1)]
    assert len(host.names(str(RELEASES))) == 2 * MOST_RELEASES


def test_killed_anywhere_no_release_is_without_its_plan() -> None:
    for host in killed_everywhere(lambda: remembered(GOOD), lambda host: write(WriteInput(BAD, "plan"), host)):
        found = read(ReadInput(newest=9), host)
        assert all(plan_of(found, each.number) for each in found.releases)
        assert found.releases[0].release == BAD


def test_a_full_disk() -> None:
    host = remembered(GOOD)
    host.full = ".json"
    with pytest.raises(FailedError, match="No space left on device"):
        write(WriteInput(GOOD, "plan"), host)
    assert [each.number for each in read(ReadInput(), host).releases] == [1]


def test_plans_are_read_of_the_newest_and_of_the_newest_good_ones() -> None:
    host = remembered(GOOD, GOOD, BAD, BAD)
    found = read(ReadInput(newest=1, number=1), host)
    assert [bool(plan_of(found, number)) for number in (1, 2, 3, 4)] == [True, True, False, True]
    host.files[f"{RELEASES}/4.plan"] = File("")
    assert read(ReadInput(newest=1), host).releases[0] == StoredRelease(4, BAD)


def test_a_host_that_remembers_nothing() -> None:
    assert read(ReadInput(3, 1, texts=True), ServiceHost({})) == Stored()
    assert list(needed(ServiceHost({}), 3)) == []


def test_going_back_needs_the_newest_good_releases_and_what_is_kept() -> None:
    host = remembered(GOOD, GOOD, BAD, GOOD)
    host.files[f"{RELEASES}/4.plan"] = File("no gzip")
    host.files[f"{KEPT}/llama-chat/x/file"] = File("ExecStart=/srv/old")
    host.links[f"{KEPT}/llama-chat/last"] = "x"
    found = [each for each in needed(host, 2) if "/srv" in each[2]]
    assert found == [("release", "2", "/srv/2"), ("kept", "llama-chat", "ExecStart=/srv/old")]


def test_texts_that_were_changed_since_are_found() -> None:
    files = {"/etc/key": File("sk-1"), "/etc/other": File("sk-1"), f"{WRITTEN}/.secret": File("s")}
    host = ServiceHost({}, files=files)
    lines = [f"{host.digest([f'{WRITTEN}/.secret', path])}\t{path}\n" for path in ("/etc/key", "/etc/other")]
    host.files[f"{WRITTEN}/gateway"] = File("".join(lines))
    host.files["/etc/other"] = File("sk-2")
    assert read(ReadInput(texts=True), host).texts == {"/etc/key": True, "/etc/other": False}
    assert read(ReadInput(), host).texts == {}
