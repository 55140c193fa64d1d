"""A release on a real host: the engine that the box has built, packed as llama.cpp's authors pack theirs.

The archive comes over HTTP from the host's own loopback. GitHub's API is played: it names that archive and its hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box.bench import Bench, Declared
from tests.lock.test_git_refs import git
from tests.support.github_server import REPOSITORY, Github

TAG = "b11434"
FOLDER, SERVER, PORT = "/opt/published", "published.service", 8977
NAME = f"llama-{TAG}-bin-ubuntu-x64.tar.gz"
PACK = f"""
rm -rf {FOLDER} && mkdir -p {FOLDER}/llama-{TAG} && cd {FOLDER} &&
cp "$(dirname "$(readlink /proc/$(systemctl show -P MainPID llama-chat)/exe)")"/llama-* llama-{TAG}/ &&
echo MIT >llama-{TAG}/LICENSE && echo library >llama-{TAG}/libextra.so.0.1 &&
ln -s libextra.so.0.1 llama-{TAG}/libextra.so.0 &&
tar -czf {NAME} llama-{TAG} && rm -r llama-{TAG} &&
systemd-run -q --unit={SERVER} python3 -m http.server -b 127.0.0.1 -d {FOLDER} {PORT} &&
sha256sum {NAME} | cut -d ' ' -f 1 && stat -c %s {NAME}
"""


@pytest.fixture
def published(bench: Bench, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Publish the release. Yields the environment of commands that lock it."""
    *_, sha256, size = bench.sh(PACK).splitlines()
    url = f"http://127.0.0.1:{PORT}/{NAME}"
    asset = {"name": NAME, "browser_download_url": url, "size": int(size), "digest": f"sha256:{sha256}"}
    repository = tmp_path / REPOSITORY
    repository.mkdir(parents=True)
    git(repository, "init", "-q", "--bare")
    git(
        repository,
        "update-ref",
        f"refs/tags/{TAG}",
        git(repository, "commit-tree", git(repository, "mktree"), "-m", TAG),
    )
    try:
        with Github({}) as github:
            release = json.dumps({"tag_name": TAG, "assets": [asset]}).encode()
            github.bodies = {f"/repos/{REPOSITORY}/releases/tags/{TAG}": release}
            yield {
                "GITHUB_API_URL": github.url,
                "NO_PROXY": "127.0.0.1",
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": f"url.file://{tmp_path}/.insteadOf",
                "GIT_CONFIG_VALUE_0": "https://github.com/",
            }
    finally:
        bench.sh(f"systemctl stop {SERVER}; rm -rf {FOLDER}", check=False)
        (bench.folder / "herd.lock").unlink(missing_ok=True)


def with_release(bench: Bench, engine: str) -> Declared:
    rig = bench.rig()
    rig["engines"]["prebuilt"] = {"kind": "llama.cpp", "release": TAG}
    rig["instances"]["chat"]["engine"] = engine
    return rig


def program(bench: Bench) -> Path:
    return Path(bench.sh("readlink /proc/$(systemctl show -P MainPID llama-chat)/exe"))


@pytest.mark.rare  # a measurement and four installations: minutes
def test_a_release_is_compared_installed_verified_and_rolled_back(bench: Bench, published: dict[str, str]) -> None:
    built, others = program(bench), bench.running()
    bench.declare(with_release(bench, "main"))
    locked = bench.herd("lock", **published)
    assert locked.code == 0, locked.output
    assert "was not verified" in locked.output
    # An engine that no instance uses is installed for a trial, and the server comes back as it was.
    compared = bench.herd(
        *("compare", "--run", "box/chat", "--with", "engine=prebuilt"),
        *("--cells", "prefill", "--budget", "30s", "--yes"),
    )
    assert compared.code == 0, compared.output
    assert "installs build llama.cpp-" in compared.output
    assert program(bench) == built
    assert bench.answers("chat")
    bench.unchanged(others, "chat")

    others = bench.running()
    bench.declare(with_release(bench, "prebuilt"))
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    release = program(bench)
    assert release != built
    bench.unchanged(others, "chat")
    assert bench.answers("chat")
    manifest = json.loads(bench.sh(f"cat {release.parents[1]}/manifest.json"))
    assert (manifest["release"], *manifest["archives"]) == (TAG, NAME)
    assert {"libextra.so.0", "libextra.so.0.1", "LICENSE", "llama-server"} <= {*manifest["sha256"]}
    assert bench.sh(f"find {release.parents[1]} -type l -o ! -user root -o -perm /022") == ""
    assert bench.sh(f"ls /var/cache/llamaherd/sources | grep -c {manifest['archives'][NAME]}", check=False) == "0"
    verified = bench.herd("verify", "box")
    assert verified.code == 0, verified.output
    assert "up to date, nothing to do" in bench.up().output

    back = bench.herd("rollback", "box", "--yes")
    assert back.code == 0, back.output
    assert program(bench) == built
    assert bench.answers("chat")

    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert program(bench) == release
    # A damaged file is installed anew.
    bench.sh(f"echo damaged >>{release.parent}/libextra.so.0.1")
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert bench.sh(f"cat {release.parent}/libextra.so.0") == "library"


def test_an_archive_that_was_replaced_changes_no_server(bench: Bench, published: dict[str, str]) -> None:
    before = bench.running()
    bench.declare(with_release(bench, "prebuilt"))
    locked = bench.herd("lock", **published)
    assert locked.code == 0, locked.output
    bench.sh(f"dd if=/dev/zero of={FOLDER}/{NAME} bs=1 seek=99 count=9 conv=notrunc")
    build = next(each for each in bench.plan()["builds"] if each["release"])
    bench.sh(f"rm -rf /opt/llamaherd/builds/{build['id']}")
    ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    assert f"release {TAG}: {NAME} cannot be fetched" in ended.output
    assert "sha256" in ended.output
    bench.unchanged(before)
    assert bench.answers("chat")
