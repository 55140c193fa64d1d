"""The kinds of input that benchmarks/mutate.py changes: right ones to begin with, how, and who judges them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.mutated import (
    DATA,
    FLEET,
    SHARDS,
    engine,
    hashed,
    header,
    headers_of,
    http,
    lock_file,
    looked_at,
    recipe,
    rig,
    seen_host,
    server,
    settings,
    shards,
    store,
    verified,
    whole_fleet,
)
from benchmarks.mutations import bytes_of, lines_of, of_json, of_yaml, several, text_of
from llamaherd import lock
from llamaherd.host.protocol import BEGIN, END
from llamaherd.lock.resolve import gitrefs, hub, registry
from tests.store.test_store import SAID
from tests.support import gguf_files
from tests.support.examples import EXAMPLES, fleet, locked, planned
from tests.support.registry_server import digest_of, index
from tests.support.rigs import converged


@dataclass(frozen=True)
class Kind:
    """Right inputs, how they are changed, what reads them, and how many of a hundred are of this kind."""

    seeds: tuple[bytes, ...]
    mutate: Callable[[Random, bytes], bytes]
    judge: Callable[[Path, bytes], str]
    weight: float


def _recipes(*suffixes: str) -> tuple[bytes, ...]:
    files = sorted((DATA / "recipes").rglob("*"))
    return tuple(file.read_bytes() for file in files if file.suffix in suffixes and _is_text(file))


def _is_text(file: Path) -> bool:
    try:
        return bool(file.read_text())
    except UnicodeDecodeError:
        return False


SHA = "ab" * 20
SHARD = {"size": 9, "lfs": {"size": 9, "sha256": SHA + "cd" * 12, "pointerSize": 1}}
SIBLINGS = [SHARD | {"rfilename": f"a-0000{number}-of-00002.gguf"} for number in (1, 2)]
LISTING = json.dumps({"id": "owner/name", "sha": SHA, "siblings": SIBLINGS}).encode()
NAMES = [f"{SHA} refs/{kind}/b1".encode() for kind in ("heads", "tags")]
PACKETS = b"".join(b"%04x%b\n" % (len(name) + 5, name) for name in NAMES)
REFS = b"001e# service=git-upload-pack\n0000" + PACKETS + b"0000"
GIT = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\r\n" + REFS


def _answers(*names: str) -> tuple[bytes, ...]:
    return tuple((DATA / name).read_bytes() for name in names)


def _look_of(name: str) -> bytes:
    return "\n".join([BEGIN, *converged(planned(name), defaultdict(str)), END]).encode()


LINES = several(text_of, lines_of)
YAML = several(of_yaml, of_yaml, text_of, lines_of)
HASHING = b"@ begin\nthere\t0\t100\nat\t0\t50\nis\t0\tab\nsized\t1\t5\ndropped\t1\nunreadable\t0\tno\n@ end\n"
FIGURES = b"| Host | 100 | 20 | 3 |\nCUDA0 100 20 3\nHost 100 20 3\n"

KINDS: dict[str, Kind] = {
    "rig": Kind(tuple(each.read_bytes() for each in sorted(EXAMPLES.glob("*.yaml"))), YAML, rig, 22),
    "fleet": Kind(tuple(f"# {name}\n".encode() + text for name, text in FLEET.items()), LINES, whole_fleet, 6),
    "script": Kind(_recipes(".sh"), LINES, recipe(".sh"), 10),
    "unit": Kind(_recipes(".service"), LINES, recipe(".service"), 8),
    "compose": Kind(_recipes(".yaml", ".yml"), YAML, recipe(".yaml"), 10),
    "page": Kind(_recipes(".md", ".txt"), LINES, recipe(".md"), 5),
    "wslconfig": Kind(
        tuple(each.read_bytes() for each in sorted((DATA / "wslconfig").iterdir()) if _is_text(each)),
        LINES,
        recipe(".wslconfig"),
        4,
    ),
    "env": Kind((b"MODEL=/m/a.gguf\nCTX='8192'\nP=\"80\"\n# x\nexport NGL=${CTX}\n",), LINES, settings, 2),
    "lock": Kind((lock.dumps(locked()).encode(),), YAML, lock_file, 4),
    "header": Kind(headers_of(gguf_files.gemma3()) + headers_of(gguf_files.llama(layers=4)), bytes_of, header, 8),
    "shards": Kind(
        tuple(b"%d" % number + each for number, each in enumerate(SHARDS)),
        lambda rng, data: data[:1] + bytes_of(rng, data[1:]),
        shards,
        3,
    ),
    "hub": Kind((http(LISTING),), bytes_of, server(lambda _: hub.resolve("owner/name", "main", "*.gguf")), 2),
    "listing": Kind(
        (LISTING,),
        lambda rng, data: http(several(of_json)(rng, data)),
        server(lambda _: hub.resolve("owner/name", "main", "*.gguf")),
        3,
    ),
    "registry": Kind(
        (http(index("a"), f"Docker-Content-Digest: {digest_of(index('a'))}\r\n".encode()),),
        bytes_of,
        server(lambda liar: registry.digest_of(f"{liar.host}/owner/name:v1")),
        2,
    ),
    "git": Kind((GIT,), bytes_of, server(lambda liar: gitrefs.commit_of(f"{liar.url}/x.git", "b1")), 1),
    "seen": Kind(tuple(map(_look_of, fleet().rigs)), LINES, seen_host, 4),
    "look": Kind(tuple(each.read_bytes() for each in sorted(DATA.glob("look-*.txt"))), LINES, looked_at, 2),
    "verify": Kind(_answers("verify-box.txt", "verify-ik.txt", "verify-stopped.txt"), LINES, verified, 4),
    "store": Kind((SAID.encode(),), LINES, store, 2),
    "hashes": Kind((HASHING,), LINES, hashed, 1),
    "engine": Kind((FIGURES,), LINES, engine, 1),
}
