"""What reads the inputs that benchmarks/mutate.py changes, a judge for each of its kinds.

A judge says in a word how an input ended, and lets through whatever a user would see as a traceback.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from rich.console import Console

from llamaherd import lock
from llamaherd.cli.verification import print_preflight, print_report
from llamaherd.diagnostics.findings import Finding, UserError, to_print
from llamaherd.gguf.header import Header
from llamaherd.gguf.parse import GgufError
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.host.program import Events
from llamaherd.host.protocol import UnexpectedLineError, result_of
from llamaherd.inventory.schema import Connect
from llamaherd.lock import LockError, git_refs, hub, registry
from llamaherd.lock.apply import NotLockedError
from llamaherd.memory import Placement, estimate
from llamaherd.onhost.document import DocumentError, decode
from llamaherd.onhost.hardware import FoundHost
from llamaherd.onhost.store import Hashes, StoreState
from llamaherd.pipeline import engine_estimate, verify
from llamaherd.pipeline.fleet_files import examine_fleet
from llamaherd.pipeline.inspection import state_of
from llamaherd.recipes import understand
from llamaherd.recipes.suggestions import inventory_fragment, offers_of
from llamaherd.scaffold import checked_hardware, refuse_unfit, rig_yaml
from llamaherd.store import files as store_files
from llamaherd.store.holdings import judge_store as holdings
from llamaherd.store.show import print_holdings, print_removals
from roles import ROLES
from tests.pipeline.test_verify import PLAN, RIG
from tests.support import gguf_files
from tests.support.examples import EXAMPLES, locked, planned
from tests.support.liar import OK, Liar, raw
from tests.support.ours import plan, show_plan, survey
from tests.support.rigs import ROOT

T = TypeVar("T")

DATA = ROOT / "tests" / "data"
TOLD = Console(file=StringIO(), width=200)
HURRY = 2.0
"""Seconds for servers of this machine: a silent one is given up after them."""


LONGEST, LONGEST_HELP = 600, 1200
"""Characters of a message, and of a way out, which may hold a whole command."""


def fit(message: str, way_out: str) -> None:
    """Assert that a message and its way out are each one line that can be printed, and no longer than is read."""
    for text, most in ((message, LONGEST), (way_out, LONGEST_HELP)):
        assert 0 < len(text) <= most, f"{len(text)} characters: {text[:80]}"
        assert text.isprintable(), f"not to be printed: {text!a}"


def told(findings: Iterable[Finding]) -> str:
    """What findings are, if each is fit to be shown."""
    ends = "nothing"
    for finding in to_print(tuple(findings)):
        fit(finding.message, finding.help)
        ends = "error" if "error" in (ends, finding.severity) else "warning"
    return ends


def refused(message: str, way_out: str) -> str:
    """A sentence, if it is one."""
    fit(message, way_out)
    return "refused"


def written(folder: Path, name: str, data: bytes) -> Path:
    """The input as a file."""
    file = folder / name
    file.write_bytes(data)
    return file


def planned_of(source: Path, held: lock.Lock) -> str:
    """What becomes of an inventory: findings, or plans that can be shown."""
    rigs, findings = examine_fleet(source, held)
    ends = told(findings)
    if ends != "error":
        for rig in rigs.rigs.values():
            try:
                assert show_plan(plan(rig, held, rigs.rigs))
            except NotLockedError:
                ends = "not locked"
    return ends


def rig(folder: Path, data: bytes) -> str:
    """A rig, beside the one that others take models from."""
    written(folder, "duo.yaml", FLEET["duo.yaml"])
    return planned_of(written(folder, "rig.yaml", data), locked())


FLEET = {
    "defaults.yaml": b"instance_defaults: {cache_reuse: 256, environment: {A: b}}\nstore: {path: /srv/models}\n",
    "more.yaml": b"extends: duo\nrig: more\nconnect: {host: more.lan}\ninstances: {reasoner: {context: 4096}}\n",
    "duo.yaml": (EXAMPLES / "duo.yaml").read_bytes(),
}


def whole_fleet(folder: Path, data: bytes) -> str:
    """A folder of files, of which one is changed: which one says its first line."""
    changed = data.split(b"\n", 1)[0].removeprefix(b"# ").decode(errors="replace")
    for name, text in FLEET.items():
        written(folder, name, data if name == changed else text)
    return planned_of(folder, locked())


def recipe(suffix: str) -> Callable[[Path, bytes], str]:
    """A script, unit, Compose file, page or settings of WSL."""

    def judge(folder: Path, data: bytes) -> str:
        file = written(folder, f"x{suffix}", data)
        read = understand(file)
        for offer in offers_of(read.servers):
            assert all(note.isprintable() for note in offer.notes), offer.notes
        inventory_fragment(file, read.servers)
        return told(read.findings)

    return judge


def settings(folder: Path, data: bytes) -> str:
    """The `.env` beside a Compose file."""
    written(folder, ".env", data)
    text = b"services: {a: {image: '${IMAGE:-x}', command: '-m ${MODEL} -c $CTX -ngl ${NGL:?no}', ports: ['$P:80']}}\n"
    return told(understand(written(folder, "compose.yaml", text)).findings)


def lock_file(folder: Path, data: bytes) -> str:
    """A lock, and the rigs that it is of."""
    try:
        held = lock.read_lock_file(written(folder, "herd.lock", data))
    except LockError as error:
        return refused(error.message, error.help)
    shutil.copy(EXAMPLES / "duo.yaml", folder)
    return planned_of(folder / "duo.yaml", held)


def fits(header: Header) -> str:
    """What a model takes, if its header says enough for that."""
    try:
        estimate(header, Placement(context=4096, devices=2, ubatch=512))
    except ValueError as error:
        return refused(repr(error), "-")
    return "read"


def header(folder: Path, data: bytes) -> str:
    """A model that lies here."""
    try:
        return fits(join_headers(read_headers(hollow(folder / "x.gguf", data))))
    except GgufError as error:
        return refused(str(error), "-")


def hollow(file: Path, data: bytes) -> Path:
    """A header with a hole behind it, as large as no weights are."""
    file.write_bytes(data)
    os.truncate(file, max(len(data), 1 << 40))
    return file


def headers_of(model: gguf_files.Model, per_shard: int = 0) -> tuple[bytes, ...]:
    """The headers of a model's files, without the weights."""
    with TemporaryDirectory() as folder:
        files = gguf_files.write(model, Path(folder) / "x.gguf", per_shard, noise=False)
        read = read_headers(files[0])
        return tuple(beginning(file, each.data_offset) for file, each in zip(files, read, strict=True))


def beginning(file: Path, size: int) -> bytes:
    """Return the first bytes of a file, which can be much larger."""
    with file.open("rb") as stream:
        return stream.read(size)


SHARDS = headers_of(gguf_files.gemma3(), per_shard=200)


def shards(folder: Path, data: bytes) -> str:
    """A model of two files, of which the first or the second is changed."""
    for each, right in enumerate(SHARDS):
        hollow(folder / f"x-{each + 1:05}-of-00002.gguf", data[1:] if data[:1] == b"%d" % each else right)
    try:
        return fits(join_headers(read_headers(folder / "x-00001-of-00002.gguf")))
    except GgufError as error:
        return refused(str(error), "-")


def server(ask: Callable[[Liar], object]) -> Callable[[Path, bytes], str]:
    """A server of this machine that answers so, over HTTP."""

    def judge(_: Path, data: bytes) -> str:
        with Liar(raw(data)) as liar:
            os.environ |= {"HF_ENDPOINT": liar.url, "NO_PROXY": "127.0.0.1"}
            hub.TIMEOUT = registry.TIMEOUT = git_refs.TIMEOUT = HURRY
            try:
                ask(liar)
            except UserError as error:
                return refused(error.message, error.help)
        return "read"

    return judge


def http(body: bytes, more: bytes = b"") -> bytes:
    """An answer with this body."""
    return OK + more + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body


def printed(data: bytes) -> object:
    """Return the result in what the program on a host prints. Raise RemoteError where there is none."""
    complaints: list[str] = []
    events = Events(lambda stream, line: complaints.append(line) if stream == "stderr" else None)
    for line in data.decode(errors="replace").split("\n"):
        events.hear("stdout", line)
    return result_of(events, complaints)


def printed_as(kind: type[T], data: bytes) -> T:
    """Return that result as a value. Raise RemoteError where it is none."""
    try:
        return decode(kind, printed(data))
    except DocumentError as error:
        raise UnexpectedLineError(str(error)) from None


def seen_host(_: Path, data: bytes) -> str:
    """What the program on a host prints that inspects it, and the table that is shown of it."""
    made = planned("duo")
    try:
        there = state_of(printed(data), ROLES)
    except UserError as error:
        return refused(error.message, error.help)
    print_preflight(survey(made, there, {}), TOLD)
    return "read"


def looked_at(folder: Path, data: bytes) -> str:
    """What a host answers to `herd init`, and the rig that is made of it."""
    try:
        there = checked_hardware(printed_as(FoundHost, data))
        refuse_unfit(there, "duo")
    except UserError as error:
        return refused(error.message, error.help)
    text = rig_yaml(there, "duo", Connect(host="duo.lan"))
    return told(examine_fleet(written(folder, "duo.yaml", text.encode()))[1])


def verified(_: Path, data: bytes) -> str:
    """What the program on a host prints for `herd verify`, and its servers through it."""
    try:
        facts = verify.facts_of(printed(data), ROLES)
    except UserError as error:
        return refused(error.message, error.help)
    with redirect_stdout(StringIO()):
        found = verify.judge_host(RIG, PLAN, ROLES, facts)
        print_report(found, TOLD, verbose=True)
        json.dumps(found.as_json(), allow_nan=False)
    for check in (
        *found.machine,
        *found.cards,
        *found.driver,
        *(each for one in found.instances for each in one.checks),
    ):
        fit(check.name, check.detail or "-")
    return "right" if found.ok else "not as declared"


def store(_: Path, data: bytes) -> str:
    """What the program on a host prints that inspects its store."""
    try:
        held = holdings(planned("duo"), printed_as(StoreState, data))
    except UserError as error:
        return refused(error.message, error.help)
    print_holdings(held, TOLD)
    print_removals(held, TOLD)
    return "read"


def hashed(_: Path, data: bytes) -> str:
    """What the program on a host prints while it hashes its models."""
    wanted = store_files.files_once(planned("duo"))
    for line in data.decode(errors="replace").split("\n"):
        progress = store_files.progress_of(line, [name for _, name in wanted])
        assert progress is None or progress.total >= 0
    try:
        assert store_files.checks_of(wanted, printed_as(Hashes, data))
    except UserError as error:
        return refused(error.message, error.help)
    return "read"


def engine(_: Path, data: bytes) -> str:
    """What an engine says that its server takes."""
    try:
        engine_estimate.parse_figures(data.decode(errors="replace"))
    except ValueError as error:
        return refused(repr(error), "-")
    return "read"
