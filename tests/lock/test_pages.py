"""The page of llama.cpp in the lock, in a plan, and in a build."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import Finding, HubError, Place
from llamaherd.inventory.schema import UPSTREAM, Fleet, Rig
from llamaherd.lock import Lock, LockedPage, LockedRef, dumps, git_refs, hub, read_lock_file
from llamaherd.lock.resolver import LockOutcome, lock_fleet
from roles.engines import compile_input
from roles.engines.onhost.compiling import PageInput
from tests.bench.played import Part, Played
from tests.support.ours import plan
from tests.support.rigs import COMMIT, changed, cpu_rig, hub_lock

GIT = UPSTREAM["llama.cpp"]
SUM = "5b" * 32
PATH = "/buckets/ggml-org/llama-ui/resolve/b11434/dist.tar.gz"


def response(status: bytes, body: bytes) -> list[Part]:
    return [(0, b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))]


FOUND = response(b"200 OK", f"{SUM.upper()}  dist.tar.gz\n".encode())
MISSING = response(b"404 Not Found", b"Entry not found")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    """A hub that has the sum of a page. A test may give it another script."""
    with Played(lambda _: FOUND) as played:
        monkeypatch.setenv("HF_ENDPOINT", played.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr(git_refs, "commit_of", lambda *_: git_refs.Ref(COMMIT))
        yield played


def locked(ref: str, old: Lock | None = None, *upgrade: str, git: str = GIT) -> LockOutcome:
    rig = changed(cpu_rig(), {"models": {}, "instances": {}, "engines": {"main": {"kind": "llama.cpp"}}})
    rig["engines"]["main"] |= {"source": {"git": git, "ref": ref}}
    fleet = Fleet(rigs={"box": Rig.model_validate(rig)})
    return lock_fleet(fleet, old or Lock(), lambda *_: Place(Path("box.yaml")), lambda _: None, upgrade, folder=Path())


def page_and_findings(outcome: LockOutcome) -> tuple[LockedPage | None, list[Finding]]:
    assert outcome.ok
    (engine,) = outcome.lock.engines
    return engine.page, list(outcome.findings)


def test_the_page_of_a_build_is_locked_by_its_sum(server: Played, tmp_path: Path) -> None:
    outcome = locked("b11434")
    assert page_and_findings(outcome) == (LockedPage(url=f"{server.url}{PATH}", sha256=SUM), [])
    assert [path for path, _, _ in server.requests] == [f"{PATH}.sha256"]
    (tmp_path / "herd.lock").write_text(dumps(outcome.lock))
    assert read_lock_file(tmp_path / "herd.lock") == outcome.lock


@pytest.mark.usefixtures("server")
def test_a_release_has_the_page_of_its_build() -> None:
    page, _ = page_and_findings(locked("v0.6.0"))
    assert page
    assert page.url.endswith("/b11429/dist.tar.gz")


def test_an_engine_that_was_locked_without_a_page_stays_so_until_it_is_upgraded(server: Played) -> None:
    old = Lock(engines=(LockedRef(git=GIT, ref="b11434", commit=COMMIT),))
    assert locked("b11434", old).lock == old
    assert server.requests == []
    assert page_and_findings(locked("b11434", old, "main"))[0]


@pytest.mark.parametrize(("ref", "git"), [("master", GIT), ("b11434", "https://git.lan/llama.cpp")])
def test_other_sources_have_no_page(server: Played, ref: str, git: str) -> None:
    assert page_and_findings(locked(ref, git=git)) == (None, [])
    assert server.requests == []


def test_a_build_without_a_page_is_a_note(server: Played) -> None:
    server.script = lambda _: MISSING
    page, (finding,) = page_and_findings(locked("b11434"))
    assert (page, finding.severity) == (None, "note")
    assert "its authors have published none for b11434" in finding.message


@pytest.mark.parametrize(
    "parts",
    [
        response(b"500 Oh", b"no"),
        response(b"200 OK", b"<html>log in</html>"),
        response(b"200 OK", f"{SUM}0".encode()),
        response(b"200 OK", SUM.encode() + b" " * 8192),
        [(0.0, b"SSH-2.0-OpenSSH\r\n")],
    ],
    ids=["500", "a login page", "a longer number", "too long", "no HTTP"],
)
def test_a_hub_that_fails_is_a_warning_with_the_command_that_tries_again(server: Played, parts: list[Part]) -> None:
    server.script = lambda _: parts
    with pytest.raises(HubError):
        hub.page_of(11434)
    page, (finding,) = page_and_findings(locked("b11434"))
    assert (page, finding.severity) == (None, "warning")
    assert "b11434 is built without a page for browsers" in finding.message
    assert "herd lock --upgrade main" in str(finding.help)


def test_a_hub_that_fails_takes_no_page_from_an_engine_that_stays(
    server: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = locked("b11434").lock
    server.script = lambda _: response(b"500 Oh", b"no")
    outcome = locked("b11434", old, "all")
    assert outcome.lock == old
    assert [each.severity for each in outcome.findings].count("warning") == 1
    monkeypatch.setattr(git_refs, "commit_of", lambda *_: git_refs.Ref("ab" * 20))
    assert page_and_findings(locked("b11434", old, "all"))[0] is None


def test_a_build_is_another_one_with_a_page_and_the_same_one_without() -> None:
    engine = {"engines/main/source": {"git": GIT, "ref": "b11434"}}
    rig = Rig.model_validate(changed(cpu_rig(), engine))

    def planned_with(page: LockedPage | None) -> Lock:
        entry = LockedRef(git=GIT, ref="b11434", commit=COMMIT, page=page)
        return hub_lock().model_copy(update={"engines": (entry,)})

    with_page = LockedPage(url=f"https://hub.lan{PATH}", sha256=SUM)
    (before,) = plan(rig, planned_with(None)).builds
    (after,) = plan(rig, planned_with(with_page)).builds
    assert before.id != after.id
    assert (before.page, compile_input(before).source.page) == (None, None)
    assert compile_input(after).source.page == PageInput(with_page.url, SUM)
    assert before.options == after.options
