"""A rig that fetches from a neighbour, and from the hub what that lacks or fails to give: by the real commands."""

import contextlib
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.hub_server import Hub
from tests.support.lending import TOKEN, Lending, begun, ended, prepared
from tests.support.stores import fetcher_command

REPO = "unsloth/x-GGUF"
BODY = os.urandom(1 << 20) * 40
SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def six(tmp_path: Path) -> Iterator[Lending]:
    """A neighbour that has the file."""
    with lending(tmp_path / "six", {"x.gguf": BODY}) as neighbour:
        yield neighbour


@contextlib.contextmanager
def lending(rig: Path, files: Mapping[str, bytes]) -> Iterator[Lending]:
    """A neighbour that has these files."""
    with ended(begun(prepared(rig, files))) as neighbour:
        yield neighbour


class Rig(NamedTuple):
    """The rig that fetches."""

    incoming: Path
    run: Path

    def begin(self, *urls: tuple[str, str], token: str = TOKEN, **more: object) -> subprocess.Popen[str]:
        """Begin to fetch the file from these sources, as (name, URL)."""
        sources = [{"name": name, "url": url, "secret": name} for name, url in urls]
        job = {
            "id": "0123456789ab",
            "incoming": str(self.incoming),
            "store": str(self.incoming.parent),
            "files": [{"name": "35b: x.gguf", "sha256": SHA256, "size": len(BODY), "sources": sources}],
            "folders": [],
            "connections": 4,
            "bandwidth": [],
            **more,
        }
        (self.run / "job.json").write_text(json.dumps(job))
        (self.run / "secrets/six").write_text(token)
        command = fetcher_command("fetch", self.run / "job.json", self.run)
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def has_it(self) -> bool:
        """Whether the file is here, right, and nothing else."""
        [path] = self.incoming.iterdir()
        return path.name == SHA256 and path.read_bytes() == BODY


@pytest.fixture
def duo(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path / "duo/store/.incoming", tmp_path / "duo/run")
    rig.incoming.mkdir(parents=True)
    (rig.run / "secrets").mkdir(parents=True)
    return rig


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({REPO: {"x.gguf": BODY}}) as hub:
        yield hub


def on_hub(hub: Hub) -> tuple[str, str]:
    return "hub", f"{hub.url}/{REPO}/resolve/{hub.commit(REPO)}/x.gguf"


def test_all_comes_from_the_neighbour(six: Lending, duo: Rig, hub: Hub) -> None:
    process = duo.begin(("six", six.url(SHA256)), on_hub(hub))
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert duo.has_it()
    assert hub.requests == []
    assert TOKEN not in out


def test_what_the_neighbour_lacks_comes_from_the_hub(tmp_path: Path, duo: Rig, hub: Hub) -> None:
    with lending(tmp_path / "six", {"y.gguf": b"y"}) as six:
        process = duo.begin(("six", six.url(SHA256)), on_hub(hub))
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert duo.has_it()


def test_a_neighbour_that_does_not_know_the_token_is_passed_over(six: Lending, duo: Rig, hub: Hub) -> None:
    process = duo.begin(("six", six.url(SHA256)), on_hub(hub), token="another")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert duo.has_it()
    assert not any(request.had_auth for request in hub.requests)


def test_only_the_neighbour_and_it_lacks_the_file(six: Lending, duo: Rig) -> None:
    process = duo.begin(("six", six.url("0" * 64)))
    assert process.wait(timeout=60) == 1
    failed = (duo.run / "failed").read_text()
    assert "35b: x.gguf" in failed
    assert "help: " in failed
    assert TOKEN not in failed


def test_a_neighbour_that_dies_half_way_is_replaced_by_the_hub(six: Lending, duo: Rig, hub: Hub) -> None:
    slowly = [{"begin": "00:00", "end": "00:00", "bytes_per_second": 8_000_000}]
    process = duo.begin(("six", six.url(SHA256)), on_hub(hub), bandwidth=slowly)
    part = duo.incoming / f"{SHA256}.part"
    while not (part.exists() and part.stat().st_blocks * 512 > 4_000_000):
        assert process.poll() is None
        time.sleep(0.02)
    six.process.kill()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert duo.has_it()
    # What had come already printed an unexpected line again.
    assert sum(length(request.range) for request in hub.requests) < len(BODY)


def length(text: str | None) -> int:
    """The bytes that a Range header asks for."""
    assert text
    first, last = text.removeprefix("bytes=").split("-")
    return int(last) + 1 - int(first)


@pytest.mark.parametrize("with_hub", [True, False])
def test_a_neighbour_whose_file_is_damaged_is_named_to_whoever_waits(
    six: Lending, duo: Rig, hub: Hub, with_hub: bool
) -> None:
    """Also where the hub helps out; and what helps is to be done at the neighbour."""
    (file,) = six.store.rglob("x.gguf")
    before = file.stat()
    with file.open("r+b") as stream:
        stream.write(b"damage")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    process = duo.begin(("six", six.url(SHA256)), *([on_hub(hub)] if with_hub else []))
    process.communicate(timeout=60)
    assert process.returncode == (0 if with_hub else 1)
    said = (duo.run / ("warnings" if with_hub else "failed")).read_text()
    assert "it arrived from six with sha256 " in said
    assert "help: `herd verify --deep six` reports what is damaged there, and `herd up six` fetches it again" in said
