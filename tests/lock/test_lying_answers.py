"""Every question that is asked before a host is, put to servers that lie: a sentence each, soon, and little memory."""

from __future__ import annotations

import itertools
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.gguf.shards import HubPatience, fetch_header
from llamaherd.lock import git_refs, hub, registry
from tests.support.liar import LIES, OK, Liar, Lie, raw, whole
from tests.support.sample import drawn

SILENCE = 0.3
"""Seconds; in homes it is 30 to 60."""
SILENCE_OF_GIT = 3
"""Seconds: on a busy machine three programs start before it asks anybody."""
SOON = 5
"""Seconds, on a busy machine: what has no end would take days."""
PATIENCE = HubPatience(attempts=2, pause=0.01, silence=SILENCE, total=10)
MEMORY_MIB = 300
SHA = "ab" * 20
# Of a GGUF file that has a text of a hundred million bytes: all of it is wanted.
HEADER = struct.pack("<4sIQQQ1sIQ", b"GGUF", 3, 1, 1, 1, b"a", 8, 100 * 2**20)
Question = Callable[[Liar], object]

QUESTIONS: dict[str, Question] = {
    "hub": lambda _: hub.resolve("owner/name", "main", "*.gguf"),
    "registry": lambda liar: registry.digest_of(f"{liar.host}/owner/name:v1"),
    "gguf": lambda liar: fetch_header(f"{liar.url}/x.gguf", None, 10**12, PATIENCE),
    "git": lambda liar: git_refs.commit_of(f"{liar.url}/x.git", "b1"),
}


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for module in (hub, registry):
        monkeypatch.setattr(module, "TIMEOUT", SILENCE)
    monkeypatch.setattr(git_refs, "TIMEOUT", SILENCE_OF_GIT)


def refusal(lie: Lie, question: str, monkeypatch: pytest.MonkeyPatch) -> UserError:
    """What is said to a lie."""
    with Liar(lie) as liar:
        monkeypatch.setenv("HF_ENDPOINT", liar.url)
        began = time.process_time()
        with pytest.raises(UserError) as caught:
            QUESTIONS[question](liar)
        assert time.process_time() - began < SOON
        assert liar.requests
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400
    return caught.value


@pytest.mark.parametrize(("question", "lie"), drawn(itertools.product(QUESTIONS, LIES)))
def test_a_lie_is_a_sentence(lie: str, question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(LIES[lie], question, monkeypatch).help


LISTING: dict[str, Any] = {"id": "owner/name", "sha": SHA, "siblings": [{"rfilename": "a.gguf", "size": 1}]}
LFS = {"size": 1, "sha256": "ab" * 32, "pointerSize": 1}


@pytest.mark.parametrize(
    "listing",
    [
        {"sha": 5},
        {"sha": None},
        {"sha": [SHA]},
        {"siblings": 5},
        {"siblings": {"a": 1}},
        {"siblings": [5]},
        {"siblings": [{"rfilename": 5}]},
        {"siblings": [{"rfilename": None}]},
        {"siblings": [{"rfilename": ["a.gguf"]}]},
        {"siblings": [{"rfilename": "\x1b[2Ja.gguf", "lfs": LFS}]},
        {"siblings": [{"rfilename": "a.gguf" * 10_000, "lfs": LFS}]},
        {"siblings": [{"rfilename": "a.gguf", "size": "1", "lfs": LFS}]},
        {"siblings": [{"rfilename": "a.gguf", "size": True, "lfs": LFS}]},
        {"siblings": [{"rfilename": "a.gguf", "lfs": 5}]},
        {"siblings": [{"rfilename": "a.gguf", "lfs": LFS | {"size": 1.5}}]},
        {"siblings": [{"rfilename": "a.gguf", "lfs": LFS | {"size": -1}}]},
        {"siblings": [{"rfilename": "a.gguf", "lfs": LFS | {"sha256": 5}}]},
        {"siblings": [{"rfilename": "a.gguf", "lfs": LFS | {"sha256": "x"}}]},
        {"siblings": [{"rfilename": "../a.gguf", "lfs": LFS}]},
        {"siblings": [{"rfilename": f"{n}.txt"} for n in range(50_000)]},
        {"siblings": [{"rfilename": f"{n:05}-00001-of-99999.gguf"} for n in range(2)]},
        {"siblings": [{"rfilename": f"a-{n:05}-of-99999.gguf"} for n in range(1, 50_000)]},
        {"siblings": [{"rfilename": f"{'x' * 60}{n}.gguf"} for n in range(20_000)]},
    ],
    ids=lambda listing: json.dumps(listing)[:60],
)
@pytest.mark.parametrize("files", ["*.gguf", "b*.gguf"])
def test_a_listing_of_other_kinds_is_a_sentence(
    listing: dict[str, Any], files: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Liar(whole(json.dumps(LISTING | listing).encode())) as liar:
        monkeypatch.setenv("HF_ENDPOINT", liar.url)
        began = time.process_time()
        with pytest.raises(UserError) as caught:
            hub.resolve("owner/name", "main", files)
        assert time.process_time() - began < SOON
    assert caught.value.message.isprintable()
    assert caught.value.help.isprintable()


MEASURED = """
import re, resource, sys
from pathlib import Path
from llamaherd.lock import git_refs, hub, registry
from llamaherd.diagnostics.findings import UserError
from llamaherd.gguf.shards import fetch_header
hub.TIMEOUT = registry.TIMEOUT = git_refs.TIMEOUT = 10
question, url, host = sys.argv[1:]
try:
    eval(question)
except UserError as error:
    print(error.message)
own = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]
print(max(int(own), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
"""


def objects(_: Liar) -> Iterator[bytes]:
    """Three characters of JSON make an object of 64 bytes."""
    return whole(b'{"siblings": [' + b"{}," * (2 * 10**6 - 10) + b"{}]}")(_)


def names(_: Liar) -> Iterator[bytes]:
    """As many files as go into what is read of an answer."""
    siblings = [{"rfilename": f"{n}"} for n in range(250_000)]
    return whole(json.dumps(LISTING | {"siblings": siblings}, separators=(",", ":")).encode())(_)


REFS = raw(
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\r\n"
    b"001e# service=git-upload-pack\n0000",
    then=b"".join(b"0042" + SHA.encode() + b" refs/heads/" + b"%09d\n" % n for n in range(1000)),
)
HUB = 'hub.resolve("owner/name", "main", "*.gguf")'


@pytest.mark.parametrize(
    ("question", "lie"),
    [
        (HUB, objects),
        (HUB, names),
        (HUB, LIES["a body without end"]),
        ('registry.digest_of(f"{host}/owner/name:v1")', objects),
        ('fetch_header(f"{url}/x.gguf", None, 10**12)', raw(OK + b"\r\n", HEADER, then=bytes(1 << 16))),
        ('git_refs.commit_of(f"{url}/x.git", "b1")', REFS),
    ],
    ids=["hub-objects", "hub-names", "hub-endless", "registry", "gguf", "git"],
)
def test_a_large_lie_takes_little_memory(question: str, lie: Lie) -> None:
    """Measured in a process of its own, and in git."""
    with Liar(lie) as liar:
        environment = dict(os.environ) | {"HF_ENDPOINT": liar.url, "NO_PROXY": "127.0.0.1"}
        ended = subprocess.run(
            [sys.executable, "-c", MEASURED, question, liar.url, liar.host],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
    *said, kibibytes = ended.stdout.splitlines()
    assert said
    assert int(kibibytes) < MEMORY_MIB << 10, said
