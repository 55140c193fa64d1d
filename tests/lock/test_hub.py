"""The hub's edge: the genuine client against a real server, and curl against the same one."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import HubError
from llamaherd.lock import hub
from tests.support.hub_server import Hub

REPO = "unsloth/Tiny-GGUF"
TOKEN = "hf_canary0123456789"
SHARDS = {f"UD-Q4/tiny-UD-Q4-0000{n}-of-00003.gguf": b"GGUF" + bytes([n]) * 1000 * n for n in (1, 2, 3)}
FILES = {
    "README.md": b"# Tiny\n",
    "tiny-Q8_0.gguf": b"GGUF" + b"8" * 300_000,
    "tiny-Q4_K_M.gguf": b"GGUF" + b"4" * 200_000,
    **SHARDS,
}


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    # The login and the cache of whoever runs the tests stay out of them. The client is imported by now,
    # so its variables are set rather than the environment.
    constants = "huggingface_hub.constants"
    monkeypatch.setattr(f"{constants}.HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(f"{constants}.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(f"{constants}.HF_HUB_DISABLE_TELEMETRY", True)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub({REPO: FILES}) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


@pytest.fixture
def private(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub({REPO: FILES}, TOKEN) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def refusal(repo: str = REPO, revision: str = "main", files: str = "*Q8_0*") -> HubError:
    with pytest.raises(HubError) as caught:
        hub.resolve(repo, revision, files)
    assert TOKEN not in str(caught.value)
    assert TOKEN not in repr(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert caught.value.help
    return caught.value


def test_one_file_is_resolved_in_one_request(server: Hub) -> None:
    model = hub.resolve(REPO, "main", "*Q8_0*")
    assert (model.repo, model.revision, model.files) == (REPO, "main", "*Q8_0*")
    assert model.commit == server.commit(REPO)
    assert model.endpoint == server.url
    (shard,) = model.shards
    assert (shard.path, shard.size) == ("tiny-Q8_0.gguf", 300_004)
    assert shard.sha256 == hashlib.sha256(FILES["tiny-Q8_0.gguf"]).hexdigest()
    assert len(server.requests) == 1


def test_a_set_of_shards_comes_whole_and_in_order(server: Hub) -> None:
    model = hub.resolve(REPO, server.commit(REPO), "UD-Q4/*")
    assert [shard.path for shard in model.shards] == sorted(SHARDS)
    assert model.size == sum(len(body) for body in SHARDS.values())


def test_a_commit_stays_what_it_was_when_the_branch_moves(server: Hub) -> None:
    before = hub.resolve(REPO, "main", "*Q8_0*")
    server.push(REPO, {"tiny-Q8_0.gguf": b"GGUF, but newer"})
    after = hub.resolve(REPO, "main", "*Q8_0*")
    assert after.commit != before.commit
    assert after.shards[0].sha256 != before.shards[0].sha256
    pinned = hub.resolve(REPO, before.commit, "*Q8_0*")
    assert (pinned.commit, pinned.shards) == (before.commit, before.shards)


def test_a_private_hub_opens_to_the_token_alone(private: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    error = refusal()
    assert f"has no public repository {REPO}" in error.message
    assert "HF_TOKEN" in error.help
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert hub.resolve(REPO, "main", "*Q8_0*").commit == private.commit(REPO)
    assert [request.had_auth for request in private.requests] == [False, True]


def test_a_wrong_token_is_said_to_be_wrong(private: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}x")
    error = refusal()
    assert "does not accept the token" in error.message
    assert private.url in error.message


@pytest.mark.parametrize("odd", ["\x01", "é", " x", "\n\nx"])
def test_a_token_that_cannot_be_sent_is_not_quoted(private: Hub, monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}{odd}")
    assert "token" in refusal().message
    assert not any(TOKEN in request.path for request in private.requests)


def test_a_gated_repository_names_the_page_to_open(server: Hub) -> None:
    server.gated.add(REPO)
    error = refusal()
    assert "gated" in error.message
    assert f"{server.url}/{REPO}" in error.help
    assert "give a token of that account" in error.help
    server.granted.add(REPO)
    assert hub.resolve(REPO, "main", "*Q8_0*").shards


def test_a_token_without_access_to_a_gated_repository_is_told_apart(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.gated.add(REPO)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert refusal().help == (
        f"open {server.url}/{REPO} and accept with the account of the token in use, which has no access yet"
    )


EYES = {"mmproj-F16.gguf": b"GGUF" + b"p" * 5000, "mmproj-BF16.gguf": b"GGUF" + b"q" * 5000}


def test_a_projector_is_locked_beside_the_shards(server: Hub) -> None:
    server.push(REPO, FILES | EYES)
    model = hub.resolve(REPO, "main", "UD-Q4/*", mmproj="mmproj-F16.gguf")
    assert model.projector
    assert (model.projector.path, model.projector.size) == ("mmproj-F16.gguf", 5004)
    assert model.projector.sha256 == hashlib.sha256(EYES["mmproj-F16.gguf"]).hexdigest()
    assert [shard.path for shard in model.shards] == sorted(SHARDS)
    assert len(server.requests) == 1


def test_a_projector_that_a_pattern_of_the_model_matches_too_is_no_shard(server: Hub) -> None:
    server.push(REPO, {"tiny-F16.gguf": b"GGUF" + b"t" * 9000, **EYES})
    model = hub.resolve(REPO, "main", "*-F16.gguf", mmproj="mmproj-F16.gguf")
    assert [shard.path for shard in model.shards] == ["tiny-F16.gguf"]


@pytest.mark.parametrize(
    ("mmproj", "message", "help_"),
    [
        (
            "mmproj-Q8_0.gguf",
            "no file of .* matches `mmproj: mmproj-Q8_0.gguf`",
            "there is mmproj-BF16.gguf, mmproj-F16",
        ),
        ("mmproj*", "matches 2 files", "name one of them"),
    ],
)
def test_a_projector_that_is_none_or_several(server: Hub, mmproj: str, message: str, help_: str) -> None:
    server.push(REPO, FILES | EYES)
    with pytest.raises(HubError, match=message) as caught:
        hub.resolve(REPO, "main", "UD-Q4/*", mmproj=mmproj)
    assert help_ in caught.value.help


@pytest.mark.usefixtures("server")
def test_a_repository_without_projectors_says_so() -> None:
    with pytest.raises(HubError, match="no file of") as caught:
        hub.resolve(REPO, "main", "UD-Q4/*", mmproj="mmproj*")
    assert "leave `mmproj` out" in caught.value.help


@pytest.mark.usefixtures("server")
def test_a_file_of_the_model_is_no_projector() -> None:
    model = hub.resolve(REPO, "main", "*Q8_0*")
    with pytest.raises(HubError, match="which `files` names already"):
        hub.with_projector(model, "tiny-Q8_0.gguf")


def test_an_unknown_repository(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "has no public repository unsloth/Absent" in refusal("unsloth/Absent").message
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert "no access" in refusal("unsloth/Absent").help
    requests = len(server.requests)
    assert "owner/name" in refusal("https://hub.lan/a/b").help
    assert len(server.requests) == requests


def test_an_unknown_revision_lists_the_known_ones(server: Hub) -> None:
    server.push(REPO, FILES, branch="v2")
    error = refusal(revision="v3")
    assert "no revision `v3`" in error.message
    assert "`main`, `v2`" in error.help
    assert "no revision" in refusal(revision="0" * 40).message


@pytest.mark.parametrize(
    ("files", "nearest"),
    [
        ("*q8_0*", "tiny-Q8_0.gguf"),
        ("*Q8_K*", "tiny-Q8_0.gguf"),
        ("*UD-Q5*", "tiny-UD-Q4-00001-of-00003.gguf"),
    ],
)
@pytest.mark.usefixtures("server")
def test_a_pattern_that_matches_nothing_gets_the_nearest_names(files: str, nearest: str) -> None:
    error = refusal(files=files)
    assert f"matches `{files}`" in error.message
    assert nearest in error.help
    assert "00002-of" not in error.help


def test_a_repository_without_gguf_files_is_said_to_be_one(server: Hub) -> None:
    server.push(REPO, {"model.safetensors": b"x"})
    assert "no GGUF" in refusal().help


def test_missing_shards_are_named(server: Hub) -> None:
    gone = "UD-Q4/tiny-UD-Q4-00002-of-00003.gguf"
    server.push(REPO, {path: body for path, body in FILES.items() if path != gone})
    error = refusal(files="UD-Q4/*")
    assert "lacks 1 of 3 shards" in error.message
    assert gone in error.message


@pytest.mark.usefixtures("server")
def test_a_pattern_that_leaves_shards_out_gets_the_right_one() -> None:
    error = refusal(files="*UD-Q4-00001-of*")
    assert "leaves out 2 of 3 shards" in error.message
    assert "`UD-Q4/tiny-UD-Q4-*.gguf`" in error.help


@pytest.mark.usefixtures("server")
def test_a_pattern_that_matches_several_models_is_refused() -> None:
    error = refusal(files="*.gguf")
    assert "tiny-Q4_K_M.gguf" in error.message
    assert "UD-Q4/tiny-UD-Q4 in 3 shards" in error.message


def test_a_file_without_sha256_is_refused(server: Hub) -> None:
    assert "no sha256 for README.md" in refusal(files="README*").message
    server.not_lfs.add("tiny-Q8_0.gguf")
    assert "no sha256 for tiny-Q8_0.gguf" in refusal().message


@pytest.mark.parametrize(
    ("status", "words"), [(429, "try again in 7 seconds"), (503, "has a failure (503)"), (404, "returned status 404")]
)
def test_a_hub_in_trouble(server: Hub, status: int, words: str) -> None:
    server.retry_after = 7
    server.status[f"/api/models/{REPO}/revision/main"] = status
    assert words in str(refusal())


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("HF_ENDPOINT", url)
        assert f"{url} cannot be reached" in refusal().message
        assert refusal().help.endswith("`file: PATH`")


def test_somebody_else_answers(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    server.push("other/thing", {"api/models/x": b"<html>please log in</html>"})
    page = f"{server.url}/other/thing/resolve/main"
    server.push("other/thing", {f"api/models/{REPO}/revision/main": b"<html>please log in</html>"})
    monkeypatch.setenv("HF_ENDPOINT", page)
    assert "not as a model hub" in refusal().message


@pytest.mark.parametrize(
    "url",
    [
        "ftp://hub.lan",
        "hub.lan",
        f"https://me:{TOKEN}@hub.lan",
        f"https://hub.lan?token={TOKEN}",
        "http://hub.lan:port",
    ],
)
def test_an_endpoint_must_be_a_plain_url(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", url)
    assert "HF_ENDPOINT" in refusal().message


def test_offline_is_said(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in refusal().message
    assert server.requests == []


def test_a_fresh_process_asks_the_hub_nothing_else(server: Hub, tmp_path: Path) -> None:
    code = f"from llamaherd.lock import hub; print(hub.resolve({REPO!r}, 'main', '*Q8_0*').commit)"
    home = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": server.url, "NO_PROXY": "127.0.0.1"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")} | home
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == f"{server.commit(REPO)}\n"
    assert [request.path for request in server.requests] == [f"/api/models/{REPO}/revision/main?blobs=true"]


def test_importing_the_edge_does_not_import_the_client() -> None:
    code = "import sys, llamaherd.lock.hub; print('huggingface_hub' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def curl(url: str, to: Path, *options: str) -> int:
    return subprocess.run(["curl", "-sSfL", "--noproxy", "*", "-o", str(to), *options, url]).returncode


def test_the_locked_url_can_be_fetched_and_resumed_by_curl(server: Hub, tmp_path: Path) -> None:
    model = hub.resolve(REPO, "main", "*Q8_0*")
    url, file = model.url(model.shards[0]), tmp_path / "part"
    server.truncate_after = 100_000
    assert curl(url, file) == 18
    assert file.stat().st_size == 100_000
    server.truncate_after = None
    assert curl(url, file, "-C", "-") == 0
    assert hashlib.sha256(file.read_bytes()).hexdigest() == model.shards[0].sha256
    assert server.requests[-1].range == "bytes=100000-"


@pytest.mark.usefixtures("server")
def test_a_changed_file_is_sent_whole_to_if_range(tmp_path: Path) -> None:
    model = hub.resolve(REPO, "main", "*Q8_0*")
    url, file = model.url(model.shards[0]), tmp_path / "part"
    assert curl(url, file, "-H", "Range: bytes=4-7", "-H", f'If-Range: "{model.shards[0].sha256}"') == 0
    assert file.read_bytes() == b"8888"
    assert curl(url, file, "-H", "Range: bytes=4-7", "-H", 'If-Range: "older"') == 0
    assert file.stat().st_size == 300_004
    assert curl(url, file, "-H", "Range: bytes=300004-") == 22


def test_the_server_lies_when_told_to(server: Hub, tmp_path: Path) -> None:
    model = hub.resolve(REPO, "main", "*Q8_0*")
    url, file = model.url(model.shards[0]), tmp_path / "part"
    server.corrupt.add("tiny-Q8_0.gguf")
    assert curl(url, file) == 0
    assert file.stat().st_size == 300_004
    assert hashlib.sha256(file.read_bytes()).hexdigest() != model.shards[0].sha256
    server.status["tiny-Q8_0.gguf"] = 500
    assert curl(url, file) == 22


def test_a_cdn_never_sees_the_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import HfApi

    with Hub({REPO: FILES}, TOKEN, cdn=True) as private:
        monkeypatch.setenv("HF_ENDPOINT", private.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        model = hub.resolve(REPO, "main", "*Q8_0*")
        path = HfApi(endpoint=private.url).hf_hub_download(
            REPO, "tiny-Q8_0.gguf", revision=model.commit, local_dir=tmp_path
        )
        assert Path(path).read_bytes() == FILES["tiny-Q8_0.gguf"]
        to = tmp_path / "part"
        assert curl(model.url(model.shards[0]), to, "-H", f"Authorization: Bearer {TOKEN}") == 0
        assert to.read_bytes() == FILES["tiny-Q8_0.gguf"]
        assert all(request.had_auth for request in private.requests)
        assert len(private.cdn_requests) >= 2
        assert not any(request.had_auth for request in private.cdn_requests)


def test_the_client_sees_the_same_tree_page_by_page(server: Hub, tmp_path: Path) -> None:
    from huggingface_hub import HfApi

    api = HfApi(endpoint=server.url)
    server.page_size = 2
    assert {entry.path for entry in api.list_repo_tree(REPO, recursive=True)} == set(FILES)
    (entry,) = api.get_paths_info(REPO, ["tiny-Q8_0.gguf"])
    assert entry.path == "tiny-Q8_0.gguf"
    folder = Path(api.snapshot_download(REPO, allow_patterns="UD-Q4/*", local_dir=tmp_path))
    for path, body in SHARDS.items():
        assert (folder / path).read_bytes() == body


def test_a_slow_body_can_be_cut_by_the_reader(server: Hub, tmp_path: Path) -> None:
    model = hub.resolve(REPO, "main", "*Q8_0*")
    server.bytes_per_second = 100_000
    file = tmp_path / "part"
    assert curl(model.url(model.shards[0]), file, "--max-time", "0.5") == 28
    assert 0 < file.stat().st_size < 300_004
