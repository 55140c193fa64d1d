"""Releases: what a host keeps of a run, and gives back. And the way from them to a plan, or to a sentence why not."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import FileState, HostState
from llamaherd.inventory.schema import Rig
from llamaherd.onhost import releases as releases_on_hosts
from llamaherd.onhost import services
from llamaherd.onhost.releases import MOST_PLAN, ReadInput, Stored, StoredRelease, read, write
from llamaherd.onhost.services import forget_fingerprints, record_fingerprints
from llamaherd.onhost.system import Host
from llamaherd.pipeline import history
from llamaherd.pipeline.diff import Causes, find_causes
from llamaherd.pipeline.history import (
    Origin,
    Past,
    Release,
    bounded_sentences,
    choose_release,
    keyless,
    missing_on_host,
    past_of,
    query_causes,
    release_plan,
    write_input,
)
from llamaherd.pipeline.preview import Preview
from llamaherd.plan import Plan
from llamaherd.role.changes import Change, RunScript
from roles import ROLES
from tests.support.rigs import cpu_rig, planned
from tests.support.service_host import ServiceHost
from tests.support.states import host_with, with_file

NOW = planned(cpu_rig())
THEN = planned(cpu_rig(), {"instances/chat/context": 1024})
GOOD = Release(at="2026-11-23T09:09:48+00:00", origin=Origin(user="tom", machine="desk"), changes=("a", "b"))
BAD = Release(at="2026-11-23T09:10:48+00:00", origin=Origin(), changes=(), failed=("chat: no",))


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def packed(text: str) -> str:
    return encoded(gzip.compress(text.encode()))


def past(releases: Mapping[int, Release], plans: Mapping[int, Plan]) -> Past:
    found = []
    for number, release in releases.items():
        plan = packed(plans[number].model_dump_json()) if number in plans else ""
        found.append(StoredRelease(number, release.model_dump_json(), plan))
    return past_of(Stored(tuple(found)))


def test_what_was_kept_comes_back_whole() -> None:
    found = past({12: BAD, 3: GOOD}, {12: NOW})
    assert list(found.releases.items()) == [(3, GOOD), (12, BAD)]
    assert found.newest_plan == NOW
    assert found.good == [3]


def test_a_host_without_releases() -> None:
    found = past_of(Stored())
    assert (found.releases, found.good, found.newest_plan) == ({}, [], None)


def test_what_a_later_version_wrote_is_left_out() -> None:
    later = StoredRelease(4, '{"at": "x", "colour": 1}', packed("{}"))
    found = past_of(Stored((StoredRelease(3, GOOD.model_dump_json()), later)))
    assert (list(found.releases), found.plans) == ([3], {})


def test_a_plan_is_unpacked_no_further_than_one_can_be_long() -> None:
    bomb = gzip.compress(b" " * (MOST_PLAN + 1) + NOW.model_dump_json().encode())
    for content in (encoded(bomb), encoded(b"no gzip"), "***"):
        assert past_of(Stored((StoredRelease(1, "", content),))).plans == {}


def test_as_much_is_kept_as_has_room() -> None:
    kept = bounded_sentences("x" * 1000 for _ in range(1000))
    assert len(kept) == 100
    assert {len(each) for each in kept} == {400}


def test_however_many_failed_there_is_a_way_back() -> None:
    """As many plans are read of releases that came out well."""
    host = ServiceHost({})
    releases = {1: GOOD, 2: GOOD, 3: GOOD} | dict.fromkeys(range(4, 30), BAD)
    for number, release in releases.items():
        write(write_input(release, THEN if number == 1 else NOW), host)
    found = past_of(read(ReadInput(newest=3), host))
    assert found.releases == releases
    assert sorted(found.plans) == [1, 2, 3, 27, 28, 29]
    assert choose_release(found, "duo", None, None) == 1
    assert choose_release(found, "duo", "chat", None) == 1


@pytest.mark.parametrize(
    ("releases", "instance", "number", "to"),
    [
        ({1: GOOD, 2: GOOD}, None, None, 1),
        ({1: GOOD, 2: BAD, 3: GOOD}, None, None, 1),
        ({1: GOOD, 2: GOOD, 3: BAD}, None, None, 1),
        ({1: GOOD, 2: GOOD, 3: GOOD}, None, None, 1),
        ({1: GOOD, 2: GOOD, 3: GOOD}, "chat", None, 1),
        ({1: GOOD, 2: GOOD, 3: GOOD}, "chat", 2, 2),
    ],
)
def test_where_a_rollback_goes(releases: dict[int, Release], instance: str | None, number: int | None, to: int) -> None:
    found = past(releases, dict.fromkeys(releases, NOW) | {1: THEN})
    assert choose_release(found, "duo", instance, number) == to


@pytest.mark.parametrize(
    ("releases", "instance", "number", "why"),
    [
        ({}, None, None, "duo has no release to go back to"),
        ({1: GOOD}, None, None, "duo has no release before 1"),
        ({1: GOOD, 2: GOOD}, "drafter", None, "duo has no release before 2 with another version of `drafter`"),
        ({1: GOOD, 2: GOOD}, None, None, "duo has no release before 2 with another version of a server"),
        ({1: GOOD, 2: GOOD}, None, 7, "duo has no release 7"),
    ],
)
def test_where_no_rollback_goes(
    releases: dict[int, Release], instance: str | None, number: int | None, why: str
) -> None:
    with pytest.raises(UserError, match=why):
        choose_release(past(releases, dict.fromkeys(releases, NOW)), "duo", instance, number)


def test_the_plan_of_a_release_asks_for_no_key() -> None:
    """One rig of the tests has a key in a variable that is not set here."""
    plan = release_plan(past({1: GOOD}, {1: THEN}), 1, None)
    assert [each.endpoint.key for each in plan.instances] == [None, None]
    assert [each.key_file for each in plan.instances] == [each.key_file for each in THEN.instances]
    assert plan == keyless(THEN)


def test_one_instance_goes_back_alone() -> None:
    other = planned(cpu_rig(), {"instances/chat/context": 1024, "instances/drafter/context": 1024})
    plan = release_plan(past({1: GOOD, 2: GOOD}, {1: other, 2: NOW}), 1, "chat")
    specs = {each.name: each.spec for each in plan.instances}
    assert specs == {
        "chat": next(each.spec for each in other.instances if each.name == "chat"),
        "drafter": next(each.spec for each in NOW.instances if each.name == "drafter"),
    }
    assert (plan.builds, plan.models) == (NOW.builds, NOW.models)
    with pytest.raises(UserError, match="release 1 has no instance `nobody`"):
        release_plan(past({1: GOOD}, {1: other}), 1, "nobody")


def test_what_a_release_needs_and_the_host_lacks() -> None:
    found = list(missing_on_host(NOW, HostState()))
    assert [each.split()[0] for each in found] == ["build", "key", "image", "model", "model"]
    builds = {build.id: "done" for build in NOW.builds}
    images = {image.tag for image in NOW.images}
    state = host_with(builds=builds, images=images)
    assert [each.split()[0] for each in missing_on_host(NOW, state)] == ["key", "model", "model"]
    state = with_file(state, "/etc/llamaherd/keys/chat", FileState("400", ("995", "llama-chat"), 0, "0" * 64))
    assert [each.split()[0] for each in missing_on_host(NOW, state)] == ["model", "model"]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/etc/llamaherd/keys/c", False),
        ("/etc/llamaherd/gateway/haproxy.cfg", False),
        ("/etc/llamaherd/gateway/gateway.pem", False),
        ("/etc/llamaherd/chat/key", False),
        ("/etc/llamaherd/monitoring/keys/mail", False),
        ("/etc/llamaherd/chat/compose.yaml", True),
        ("/etc/llamaherd/monitoring/rules.yml", True),
        ("/etc/llamaherd/gateway.d/other", True),
    ],
)
def test_nobody_can_say_who_changed_what_is_made_of_keys_and_was_not_noted(path: str, told: bool) -> None:
    """A newer llamaherd writes another configuration of a gateway, and a certificate is renewed by its date."""
    reasons = (f"{path} has another text", f"{path} has mode 644, not 600")
    each = Preview((Change("update", "gateway", "x", reasons, RunScript("")),))
    (cause,) = find_causes(each, each, {})
    assert cause.drift == (reasons if told else reasons[1:])
    assert cause.inventory == ()


@pytest.mark.parametrize(("as_written", "told"), [(False, "drift"), (True, "the inventory has moved")])
def test_what_was_noted_says_who_changed_what_is_made_of_keys(as_written: bool, told: str) -> None:
    path = "/etc/llamaherd/gateway/haproxy.cfg"
    each = Preview((Change("update", "gateway", "x", (f"{path} has another text",), RunScript("")),))
    for before in (each, Preview()):
        assert list(map(str, find_causes(each, before, {path: as_written, f"{path}.other": not as_written}))) == [told]


@pytest.mark.parametrize(
    ("running", "shown"),
    [("llama-chat", ["--ctx-size 8192 → 512"]), ("", [])],
    ids=["it runs as before", "nothing runs"],
)
def test_after_a_failure_a_change_is_compared_with_what_runs(
    running: str, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with what was tried last, and nothing counts as drift: a failed run may have left it."""
    tried = planned(cpu_rig(), {"instances/chat/extra_args": ["--lora", "/nope.gguf"]})
    wanted = planned(cpu_rig(), {"instances/chat/context": 512})
    told = past({1: GOOD, 2: BAD}, {1: NOW, 2: tried})
    monkeypatch.setattr(history, "query_past", lambda *_, **__: told)
    specs = {each.service: each.spec for each in NOW.instances if each.service == running}
    found = Preview(
        (Change("restart", "server", "llama-chat", ("it is failed",), RunScript("")),),
        unsettled="release 2 failed",
        running=specs,
    )
    (cause,) = query_causes({"box": (Rig.model_validate(cpu_rig()), wanted)}, {"box": found}, ROLES)["box"]
    assert [f"{each.key} {each.old} → {each.new}" for each in cause.values] == shown
    assert (cause.drift, cause.inventory, cause.known) == ((), (), False)


def noted(folder: Path, host: Host) -> Mapping[str, bool]:
    with patch.object(releases_on_hosts, "WRITTEN", folder):
        return past_of(read(ReadInput(texts=True), host)).texts


def test_a_host_notes_what_was_written_and_nobody_can_try_keys_against_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(lambda _: None, lambda _: None)
    monkeypatch.setattr(services, "WRITTEN", tmp_path / "written")
    notes, key, other, gone = tmp_path / "written", tmp_path / "a key", tmp_path / "other", tmp_path / "gone"
    for file in (key, other, gone):
        file.write_text("sk-1\n")
    assert noted(notes, host) == {}
    record_fingerprints(host, "gateway", map(str, (key, other, gone)))
    record_fingerprints(host, "chat", ())
    assert noted(notes, host) == {str(key): True, str(other): True, str(gone): True}
    text = (notes / "gateway").read_text()
    assert hashlib.sha256(b"sk-1\n").hexdigest() not in text
    assert {each.stat().st_mode & 0o077 for each in (notes, *notes.iterdir())} == {0}
    other.write_text("sk-2\n")
    gone.unlink()
    assert noted(notes, host) == {str(key): True, str(other): False, str(gone): False}
    record_fingerprints(host, "gateway", map(str, (key, other)))
    assert noted(notes, host) == {str(key): True, str(other): True}
    assert (notes / "gateway").read_text().splitlines()[0] == text.splitlines()[0], "by the same secret"
    forget_fingerprints(host, "gateway")
    assert noted(notes, host) == {}


def test_drift_is_told_from_a_moved_inventory() -> None:
    def change(name: str, *reasons: str) -> Change:
        return Change("update", "server", name, reasons, RunScript(""))

    found = Preview((change("a", "x", "y"), change("b", "x"), change("c", "/etc/llamaherd/keys/c has another text")))
    before = Preview((change("a", "y", "z"), change("other", "x")))
    assert find_causes(found, before, {}) == (Causes(("y",), ("x",)), Causes((), ("x",)), Causes())
    assert [str(each) for each in find_causes(found, before, {})] == [
        "drift and the inventory has moved",
        "the inventory has moved",
        "",
    ]
