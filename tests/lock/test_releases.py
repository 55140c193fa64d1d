"""Releases in the lock: their archives by GitHub's API over real HTTP, who built them, and newer ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.inventory.schema import UPSTREAM, Fleet, Rig
from llamaherd.lock import Lock, dumps, git_refs, read_lock_file, stale
from llamaherd.lock.apply import NotLockedError, pinned
from llamaherd.lock.newest import newest_versions
from llamaherd.lock.resolver import LockOutcome, lock_fleet, lock_missing, requirements_of
from tests.support.github_server import REPOSITORY, Github
from tests.support.rigs import COMMIT, changed, cpu_rig, gpu_rig

GIT = UPSTREAM["llama.cpp"]
RELEASES = f"/repos/{REPOSITORY}/releases"
SYSTEMS = ("x64", "arm64", "cuda-12.8-x64", "cuda-13.3-x64", "cuda-13.4-x64", "cuda-13.4-arm64", "vulkan-x64")
NOT_VERIFIED = "the attestation of release b11434 was not verified: "


def published(tag: str, *systems: str) -> dict[str, bytes]:
    """Return the files of a release, as llama.cpp names them."""
    requirement = systems or SYSTEMS
    names = [f"llama-{tag}-bin-ubuntu-{system}.tar.gz" for system in requirement]
    names += [f"cudart-llama-{tag}-bin-ubuntu-{system}.tar.gz" for system in requirement if system.startswith("cuda")]
    return {name: f"the archive {name}".encode() for name in (*names, f"llama-{tag}-bin-win-cpu-x64.zip")}


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Github]:
    """GitHub with a release, for a machine without `gh`. Git queries are not what these tests are about."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("GH_TOKEN", raising=False)
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    monkeypatch.setattr(git_refs, "commit_of", lambda *_: git_refs.Ref(COMMIT))
    (tmp_path / "bin").mkdir()
    with Github({"b11434": published("b11434")}) as running:
        monkeypatch.setenv("GITHUB_API_URL", f"{running.url}/")
        yield running


@pytest.fixture
def gh(tmp_path: Path) -> Path:
    """The program `gh`, which a test writes: it is the edge to GitHub's Sigstore."""
    return tmp_path / "bin" / "gh"


def write_gh(gh: Path, script: str) -> None:
    gh.write_text(f'#!/bin/sh\necho "$@" >>{gh}.log\n{script}\n')
    gh.chmod(0o755)


def rig_of(base: dict[str, Any], release: str = "b11434", **changes: Any) -> Rig:
    """Return the rig with its first engine as a release, and no models to lock."""
    engine = {"engines/main": {"kind": "llama.cpp", "release": release}}
    others = [name for name, each in base["instances"].items() if each["engine"] != "main"]
    backends = {f"instances/{name}/backend": "systemd" for name in base["instances"] if name not in others}
    rig = changed(base, engine | backends | changes)
    for name in others:
        del rig["instances"][name]
    rig["engines"] = {"main": rig["engines"]["main"]}
    for model in rig["models"].values():
        model.clear()
        model.update({"file": "/srv/x.gguf", "sha256": "a5" * 32})
    return Rig.model_validate(rig)


def locked(rig: Rig, old: Lock | None = None, *upgrade: str) -> LockOutcome:
    """Return the new lock; findings about the model file are left out, which no test has."""
    fleet = Fleet(rigs={rig.rig: rig})
    outcome = lock_fleet(fleet, old or Lock(), lambda *_: Place(Path("x.yaml")), lambda _: None, upgrade, folder=Path())
    return LockOutcome(outcome.lock, tuple(each for each in outcome.findings if "gguf" not in each.message))


def the_finding(outcome: LockOutcome) -> Finding:
    (found,) = outcome.findings
    return found


@pytest.mark.parametrize(
    ("rig", "system", "names"),
    [
        (rig_of(cpu_rig()), "x64", ["llama-b11434-bin-ubuntu-x64.tar.gz"]),
        (
            rig_of(gpu_rig()),
            "cuda-13-x64",
            [
                "llama-b11434-bin-ubuntu-cuda-13.4-x64.tar.gz",
                "cudart-llama-b11434-bin-ubuntu-cuda-13.4-x64.tar.gz",
            ],
        ),
        (
            rig_of(gpu_rig(), **{"gpus/cuda": "12.9"}),
            "cuda-12-x64",
            [
                "llama-b11434-bin-ubuntu-cuda-12.8-x64.tar.gz",
                "cudart-llama-b11434-bin-ubuntu-cuda-12.8-x64.tar.gz",
            ],
        ),
        (
            rig_of(gpu_rig(), **{"gpus/cards/new/model": "GB10"}),
            "cuda-13-arm64",
            [
                "llama-b11434-bin-ubuntu-cuda-13.4-arm64.tar.gz",
                "cudart-llama-b11434-bin-ubuntu-cuda-13.4-arm64.tar.gz",
            ],
        ),
    ],
)
def test_a_release_is_locked_for_the_system_of_its_rig(
    github: Github, tmp_path: Path, rig: Rig, system: str, names: list[str]
) -> None:
    outcome = locked(rig)
    assert outcome.ok
    (release,) = outcome.lock.releases
    assert release.key == (GIT, "b11434", system)
    files = github.releases["b11434"]
    assert [(each.url, each.sha256, each.size) for each in release.archives] == [
        (github.file_url("b11434", name), hashlib.sha256(files[name]).hexdigest(), len(files[name])) for name in names
    ]
    assert [(each.ref, each.commit, each.page) for each in outcome.lock.engines] == [("b11434", COMMIT, None)]
    # Nothing but the list was read: GitHub has the hashes.
    assert github.requests == [(f"{RELEASES}/tags/b11434", "")]
    found = the_finding(outcome)
    assert (found.severity, found.message) == ("note", f"{NOT_VERIFIED}`gh` is not installed on this machine")
    (tmp_path / "herd.lock").write_text(dumps(outcome.lock))
    assert read_lock_file(tmp_path / "herd.lock") == outcome.lock
    # From then on, no network.
    assert locked(rig, outcome.lock).lock == outcome.lock
    assert len(github.requests) == 1
    assert list(stale(rig, outcome.lock, lambda _: Place(Path("x.yaml")))) == []
    engine = pinned(rig, outcome.lock).engines["main"]
    assert [each.name for each in engine.archives] == names
    assert (engine.source.commit, engine.source.build_number) == (COMMIT, 11434) if engine.source else False


@pytest.mark.usefixtures("github")
def test_a_rig_with_other_gpus_must_be_locked_anew() -> None:
    lock = locked(rig_of(cpu_rig())).lock
    rig = rig_of(gpu_rig())
    (found,) = stale(rig, lock, lambda _: Place(Path("x.yaml")))
    assert found.code == "LH031"
    assert "release b11434 of engine `main` for Linux x86-64 with CUDA 13 is not in the lock" in found.message
    with pytest.raises(NotLockedError, match="release b11434 for Linux x86-64 with CUDA 13"):
        pinned(rig, lock)
    required = requirements_of(Fleet(rigs={rig.rig: rig}), lambda *_: Place(Path("x.yaml")))
    both = lock_missing(required.missing(lock, Path()), lock, lambda _: None, Path()).lock
    assert [each.system for each in both.releases] == ["cuda-13-x64", "x64"]


def test_a_file_without_a_hash_is_fetched_to_hash_it(github: Github) -> None:
    github.digests = False
    (release,) = locked(rig_of(cpu_rig())).lock.releases
    name = "llama-b11434-bin-ubuntu-x64.tar.gz"
    assert release.archives[0].sha256 == hashlib.sha256(github.releases["b11434"][name]).hexdigest()


@pytest.mark.parametrize("variable", ["GH_TOKEN", "GITHUB_TOKEN"])
def test_a_token_goes_to_the_api_alone(github: Github, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "ghp_canary")
    github.digests = False
    outcome = locked(rig_of(cpu_rig()))
    assert [each for _, each in github.requests] == ["Bearer ghp_canary", ""]
    assert "canary" not in dumps(outcome.lock)


@pytest.mark.parametrize(
    ("systems", "message", "help_"),
    [
        (
            ("x64", "cuda-12.8-x64"),
            "has no archive for Linux x86-64 with CUDA 13",
            "it has some for Linux x86-64 with CUDA 12, Linux x86-64; name another release, or write `ref: b11434`",
        ),
        (
            ("vulkan-x64",),
            "has no archive for Linux x86-64 with CUDA 13",
            "name another release, or write `ref: b11434`",
        ),
    ],
)
def test_a_release_without_an_archive_for_the_rig_is_an_error(
    github: Github, systems: tuple[str, ...], message: str, help_: str
) -> None:
    github.releases["b11434"] = published("b11434", *systems)
    outcome = locked(rig_of(gpu_rig()))
    found = the_finding(outcome)
    assert not outcome.ok
    assert (found.code, message in found.message) == ("LH034", True)
    assert str(found.help).startswith(help_)


def test_cuda_needs_its_libraries_too(github: Github) -> None:
    del github.releases["b11434"]["cudart-llama-b11434-bin-ubuntu-cuda-13.4-x64.tar.gz"]
    (release,) = locked(rig_of(gpu_rig())).lock.releases
    assert [each.url.rpartition("/")[2] for each in release.archives] == [
        "llama-b11434-bin-ubuntu-cuda-13.3-x64.tar.gz",
        "cudart-llama-b11434-bin-ubuntu-cuda-13.3-x64.tar.gz",
    ]


ONE = f"{RELEASES}/tags/b11434"
FAULTS: dict[str, tuple[dict[str, int], bytes, str]] = {
    "missing": ({ONE: 404}, b"", f"{REPOSITORY} has no release `b11434`"),
    "limited": ({ONE: 403}, b"", "GitHub limits the requests of this network (403)"),
    "limited otherwise": ({ONE: 429}, b"", "GitHub limits the requests of this network (429)"),
    "token": ({ONE: 401}, b"", "GitHub does not accept the token in GH_TOKEN"),
    "down": ({ONE: 502}, b"", "GitHub responds with status 502"),
    "a login page": ({}, b"<html>", "sent no valid list of the releases"),
    "another document": ({}, b'{"tag_name": 5}', "sent no valid list of the releases"),
    "nested": ({}, b"[" * 100_000, "sent no valid list of the releases"),
    "a URL with a secret": (
        {},
        b'{"tag_name": "b11434", "assets": [{"name": "llama-b11434-bin-ubuntu-x64.tar.gz", "size": 1,'
        b'"browser_download_url": "https://a:b@c/d", "digest": "sha256:%s"}]}' % (b"ab" * 32),
        "sent no valid list of the releases",
    ),
    "a huge file": (
        {},
        b'{"tag_name": "b11434", "assets": [{"name": "llama-b11434-bin-ubuntu-x64.tar.gz", "size": 99999999999999,'
        b'"browser_download_url": "https://c/d", "digest": null}]}',
        "sent no valid list of the releases",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_github_cannot_give_is_one_sentence(github: Github, case: str) -> None:
    github.status, body, message = FAULTS[case]
    github.bodies = {ONE: body} if body else {}
    outcome = locked(rig_of(cpu_rig()))
    found = the_finding(outcome)
    assert not outcome.ok
    assert message in found.message
    assert found.help


def test_an_api_that_is_not_there_is_one_sentence(github: Github, monkeypatch: pytest.MonkeyPatch) -> None:
    github.__exit__()
    found = the_finding(locked(rig_of(cpu_rig())))
    assert "127.0.0.1 cannot be reached" in found.message
    assert found.help.endswith("without internet, use a file of this machine: `source: {archive: FILE}`")
    monkeypatch.setenv("GITHUB_API_URL", "https://tom:secret@github.lan")
    found = the_finding(locked(rig_of(cpu_rig())))
    assert "GITHUB_API_URL is not a plain URL" in found.message
    assert "secret" not in f"{found.message}{found.help}"


def test_a_release_without_internet_is_one_error(github: Github, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_commit(*_: object) -> NoReturn:
        raise git_refs.GitError("https://github.com/ggml-org/llama.cpp cannot be reached", "check the network")

    github.__exit__()
    monkeypatch.setattr(git_refs, "commit_of", no_commit)
    found = the_finding(locked(rig_of(cpu_rig())))
    assert found.message == "https://github.com/ggml-org/llama.cpp cannot be reached"


# --- who built it -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("github")
def test_gh_verifies_each_archive(gh: Path) -> None:
    write_gh(gh, 'test "$(/bin/cat "$3")" = "the archive ${3##*/}" && echo \'[{"verificationResult": {}}]\'')
    outcome = locked(rig_of(gpu_rig()))
    assert outcome.findings == ()
    (release,) = outcome.lock.releases
    assert release.attested
    runs = gh.with_name("gh.log").read_text().splitlines()
    assert len(runs) == 2
    assert all(run.startswith("attestation verify /") for run in runs)
    assert all(run.endswith(f"--repo {REPOSITORY} --format json") for run in runs)
    assert not any(Path(run.split()[2]).exists() for run in runs)
    assert "attested: true" in dumps(outcome.lock)


@pytest.mark.parametrize(
    ("script", "severity", "message"),
    [
        ("exit 4", "note", "`gh` is not logged in"),
        (
            "echo 'Error: no attestations found for subject' >&2; exit 1",
            "warning",
            "GitHub has no attestation of llama-",
        ),
        ("echo 'Error: HTTP 404: Not Found (https://…)' >&2; exit 1", "warning", "GitHub has no attestation of llama-"),
        # Versions before 2.67 ended so where there is none.
        ("exit 0", "warning", "GitHub has no attestation of llama-"),
        ("echo '[]'", "warning", "GitHub has no attestation of llama-"),
    ],
)
@pytest.mark.usefixtures("github")
def test_what_gh_cannot_verify_is_reported(gh: Path, script: str, severity: str, message: str) -> None:
    write_gh(gh, script)
    outcome = locked(rig_of(cpu_rig()))
    found = the_finding(outcome)
    assert outcome.ok
    assert found.severity == severity
    assert found.message.startswith(f"{NOT_VERIFIED}{message}")
    assert [each.attested for each in outcome.lock.releases] == [False]


@pytest.mark.usefixtures("github")
def test_an_invalid_attestation_is_an_error(gh: Path) -> None:
    write_gh(gh, "echo 'Error: verifying with issuer \"sigstore.dev\"' >&2; exit 1")
    outcome = locked(rig_of(cpu_rig()))
    assert not outcome.ok
    assert outcome.lock.releases == ()
    assert "`gh` does not verify llama-b11434-bin-ubuntu-x64.tar.gz: Error: verifying" in the_finding(outcome).message


def test_an_archive_that_is_not_as_listed_is_an_error(github: Github, gh: Path) -> None:
    write_gh(gh, "echo '[{}]'")
    name = "llama-b11434-bin-ubuntu-x64.tar.gz"
    github.bodies = {f"/{REPOSITORY}/releases/download/b11434/{name}": b"another archive"}
    outcome = locked(rig_of(cpu_rig()))
    assert not outcome.ok
    assert f"{name} has another sha256 than GitHub lists" in the_finding(outcome).message
    assert not gh.with_name("gh.log").exists()


def test_an_archive_that_is_larger_than_listed_is_not_read_to_its_end(github: Github, gh: Path) -> None:
    write_gh(gh, "echo '[{}]'")
    name = "llama-b11434-bin-ubuntu-x64.tar.gz"
    github.bodies = {f"/{REPOSITORY}/releases/download/b11434/{name}": b"x" * 5_000_000}
    assert "127.0.0.1 sends more than" in the_finding(locked(rig_of(cpu_rig()))).message


@pytest.mark.usefixtures("github")
def test_a_machine_without_room_is_named(gh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gh(gh, "echo '[{}]'")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    found = the_finding(locked(rig_of(cpu_rig())))
    assert "cannot be written: No such file or directory" in found.message
    assert "TMPDIR" in str(found.help)


def test_a_release_that_changes_under_its_tag_is_a_warning(github: Github) -> None:
    old = locked(rig_of(cpu_rig())).lock
    github.releases["b11434"]["llama-b11434-bin-ubuntu-x64.tar.gz"] = b"another archive"
    assert locked(rig_of(cpu_rig()), old).lock == old
    outcome = locked(rig_of(cpu_rig()), old, "main")
    assert [each.severity for each in outcome.findings if "has other archives" in each.message] == ["warning"]
    assert outcome.lock.releases != old.releases


# --- newer ones ---------------------------------------------------------------------------------------------


def newest(rig: Rig, lock: Lock) -> list[tuple[str, str, str | None, str]]:
    required = requirements_of(Fleet(rigs={rig.rig: rig}), lambda *_: Place(Path("x.yaml")))
    return [(each.locked, each.newest, each.move_to, each.error) for each in newest_versions(required, lock)]


def test_the_newest_release_is_one_that_has_archives_for_the_rig(github: Github) -> None:
    rig = rig_of(gpu_rig())
    lock = locked(rig).lock
    assert newest(rig, lock) == [("b11434", "b11434", None, "")]
    # The newest has no archives yet, one has none with CUDA, and one is a draft.
    github.releases |= {
        "b12003": {},
        "b12002": published("b12002", "x64"),
        "b12001": published("b12001"),
        "b12000": published("b12000"),
    }
    github.drafts = {"b12001"}
    assert newest(rig, lock) == [("b11434", "b12000", "b12000", "")]
    github.status = {RELEASES: 403}
    assert newest(rig, lock)[0][3].startswith("GitHub limits the requests")


def test_a_release_with_a_version_is_compared_with_the_latest(github: Github) -> None:
    rig = rig_of(cpu_rig(), "v0.6.0")
    github.releases = {"b12400": published("b12400"), "v0.6.0": published("v0.6.0")}
    lock = locked(rig).lock
    github.releases |= {"v1.0.0": published("v1.0.0")}
    github.latest = "v1.0.0"
    assert newest(rig, lock) == [("v0.6.0", "v1.0.0", "v1.0.0", "")]
