"""The kinds of input that benchmarks/mutate.py changes: right ones to begin with, how, and who judges them."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

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
from benchmarks.mutated_hosts import (
    NOW,
    command,
    foreign,
    gateway_now,
    history,
    journal,
    result,
    saved_diff,
    status,
    unused,
    would_change,
)
from benchmarks.mutations import bytes_of, lines_of, numbers_of, of_json, of_yaml, several, text_of
from llamaherd import lock
from llamaherd.lock import git_refs, hub, registry
from llamaherd.measure.results.store import journal_line, result_bytes
from llamaherd.onhost.document import dump
from llamaherd.onhost.gateway import AddressRow, GatewayState, ModelRow, ServerRow, UserRow
from llamaherd.onhost.removal import FoundThing, Things, Use
from llamaherd.onhost.status import CardStatus, HostStatus, ServerStatus
from llamaherd.onhost.store import FileHash, Hashes
from llamaherd.store.files import files_once
from tests.history.test_release import GOOD
from tests.pipeline.test_saved import written as saved_bytes
from tests.recipes.test_kinds import DOCKERFILE, PLAY, QUADLET
from tests.report.many import many
from tests.store.test_store import SAID, told
from tests.support import gguf_files
from tests.support.examples import EXAMPLES, fleet, locked, planned
from tests.support.found_hosts import found_host
from tests.support.host_lines import inspected
from tests.support.registry_server import digest_of, index
from tests.support.rigs import KEY, converged


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


def _verification(name: str) -> bytes:
    return _result(json.loads((DATA / f"verify-{name}.json").read_text(encoding="utf-8")))


def _look_of(name: str) -> bytes:
    return _inspection(converged(planned(name), defaultdict(str)))


def _inspection(lines: list[str]) -> bytes:
    return _result(inspected(lines))


def _result(value: object) -> bytes:
    return b'{"event":"progress","text":"at 0 50 100"}\n' + dump({"event": "result", "value": value}).encode()


KINDS_OF_HASHES: tuple[Literal["missing", "hashed", "sized", "unreadable"], ...] = (
    *("missing", "hashed"),
    *("sized", "unreadable"),
)
LINES = several(text_of, lines_of, numbers_of, numbers_of)
YAML = several(of_yaml, of_yaml, text_of, lines_of, numbers_of, numbers_of)
HASHING = _result(
    Hashes(
        tuple(
            FileHash(what, "ab" if what == "hashed" else "5", dropped=what == "sized")
            for what, _ in zip(itertools.cycle(KINDS_OF_HASHES), files_once(planned("duo")), strict=False)
        )
    )
)
FIGURES = b"| Host | 100 | 20 | 3 |\nCUDA0 100 20 3\nHost 100 20 3\n"

THINGS = _result(
    Things(
        (FoundThing("build", "llama.cpp-000000000000", 30), FoundThing("image", "x:y", 40)),
        (Use("unit", "a.service", "x"),),
        building=True,
    )
)
STATUS = _result(
    HostStatus(
        {
            "llama-chat": ServerStatus(
                "active", "running", "success", "200", slots=2, busy=1, reading=0, waiting=0, wrote=(41, 1002)
            )
        },
        (CardStatus("GPU-1", "00000000:01:00.0", 20480, 32607, 310.5, 600.0, 64, 99, "RTX 5090"),),
    )
)
GATEWAY = _result(
    GatewayState(
        (ModelRow("coder", 1, (ServerRow("duo.chat", "UP", 2, 4, 118),)),),
        (UserRow("tom", 2, 4),),
        0,
        address=AddressRow("192.168.1.4", here=True),
    )
)
JOURNAL = journal_line(begin=next(many(1))) + b"".join(
    journal_line(cell=at, run=run) for at, cell in enumerate(next(many(1)).cells) for run in cell.runs[:1]
)
PRESET = b"""version = 1
[*]
ctx-size = 8192
n-gpu-layers = 99
[qwen]
model = /m/a.gguf
temp = 0.7
load-on-startup = true
"""
SWAP = b"""healthCheckTimeout: 60
startPort: 5800
models:
  qwen:
    cmd: llama-server --port ${PORT} -m /m/a.gguf -c 8192 -ngl 99 --temp 0.7
    ttl: 300
    aliases: [q]
"""
INSTALL = b"""set -e
MODEL=${1:-/m/a.gguf} PORT=$((8080 + 1))
args=(-m "$MODEL" --port $PORT)
[[ -n $DEBUG ]] && args+=(--verbose)
serve() { local n=$1; llama-server "${args[@]}" -np "$n"; }
for n in 1 2; do serve $n & done
case $2 in big) C=65536;; *) C=4096;; esac
sudo tee /etc/systemd/system/l.service >/dev/null <<EOF
[Service]
ExecStart=/usr/bin/llama-server -m $MODEL -c $C \\\\
  --host 0.0.0.0
EOF
cat > m.ini <<'E'
[a]
model = /m/a.gguf
E
docker compose -f - up -d <<EOF
services:
  a: {image: ghcr.io/ggml-org/llama.cpp:server-cuda, command: -m /m/a.gguf -c $C}
EOF
"""
EXTENDING = b"""services:
  base: {image: 'ghcr.io/ggml-org/llama.cpp:server-cuda', ports: ['${P:-80}:8080'], gpus: all}
  a: {extends: base, command: [-m, /m/a.gguf], configs: [{source: c, target: /c.yaml}]}
configs:
  c:
    content: |
      models: {a: {cmd: 'llama-server --port $${PORT} -m a.gguf'}}
"""
COMMANDS = (
    "fit --context 8192 --parallel 2 --ubatch 512 --gpu 24G,24G --ram 64G a/b",
    "fit --mtp 2 --kv q8_0 --engine llama.cpp small",
    "check",
    "plan duo",
    "explain LH001 inventory",
    "report duo/chat",
    "users add tom --streams 4",
    "rollback duo --to 12",
    "up duo --waves 2 --keep 3 --lock-wait 5",
    "bench duo/chat --time 90s",
    "compare duo/chat --with batch=1024 --with draft.mtp=2",
    "prune duo --keep 3 --dry-run",
    "history duo",
)


def _state_of(name: str) -> bytes:
    return f"# {name}\n".encode() + _inspection(converged(NOW[name], defaultdict(lambda: KEY)))


KINDS: dict[str, Kind] = {
    "rig": Kind(tuple(each.read_bytes() for each in sorted(EXAMPLES.glob("*.yaml"))), YAML, rig, 22),
    "fleet": Kind(tuple(f"# {name}\n".encode() + text for name, text in FLEET.items()), LINES, whole_fleet, 6),
    "script": Kind(_recipes(".sh"), LINES, recipe(".sh"), 10),
    "install": Kind((INSTALL,), LINES, recipe(".sh"), 6),
    "quadlet": Kind((QUADLET.encode(),), LINES, recipe(".container"), 3),
    "dockerfile": Kind((DOCKERFILE.encode(),), LINES, recipe(".Dockerfile"), 3),
    "play": Kind((PLAY.encode(),), YAML, recipe(".play.yml"), 3),
    "extending": Kind((EXTENDING,), YAML, recipe(".yaml"), 3),
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
    "git": Kind((GIT,), bytes_of, server(lambda liar: git_refs.commit_of(f"{liar.url}/x.git", "b1")), 1),
    "seen": Kind(tuple(map(_look_of, fleet().rigs)), LINES, seen_host, 4),
    "look": Kind(tuple(_result(found_host(each)) for each in ("duo", "laptop", "wsl")), LINES, looked_at, 2),
    "verify": Kind(tuple(map(_verification, ("box", "ik", "stopped"))), LINES, verified, 4),
    "store": Kind((_result(told(SAID)),), LINES, store, 2),
    "hashes": Kind((HASHING,), LINES, hashed, 1),
    "engine": Kind((FIGURES,), LINES, engine, 1),
    "outlook": Kind(tuple(map(_state_of, NOW)), LINES, would_change, 6),
    "unused": Kind((THINGS,), LINES, unused, 1),
    "history": Kind((GOOD.model_dump_json().encode(),), LINES, history, 1),
    "status": Kind((STATUS,), LINES, status, 2),
    "gateway": Kind((GATEWAY,), LINES, gateway_now, 1),
    "saved": Kind((saved_bytes(),), several(of_json, of_json, numbers_of, text_of), saved_diff, 2),
    "result": Kind(tuple(map(result_bytes, many(3))), several(of_json, of_json, numbers_of), result, 4),
    "journal": Kind((JOURNAL,), several(numbers_of, lines_of, text_of), journal, 1),
    "foreign": Kind(_answers(*sorted(f"bench/{each.name}" for each in (DATA / "bench").iterdir())), LINES, foreign, 3),
    "preset": Kind((PRESET,), LINES, recipe(".ini"), 3),
    "swap": Kind((SWAP,), YAML, recipe(".yaml"), 3),
    "command": Kind(tuple(each.encode() for each in COMMANDS), several(numbers_of, numbers_of, text_of), command, 3),
}
