"""A host's store judged on what a host printed, beside plans that want this or that of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.cli.progress import HashingLines
from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock
from llamaherd.onhost.document import decode, dump, parse_document
from llamaherd.onhost.removal import Use
from llamaherd.onhost.store import BLOCK, FileHash, Hashes, StoredFile, StoreState
from llamaherd.plan import InstancePlan, ModelFile, ModelPlan, Plan, StorePlan
from llamaherd.store.files import FileCheck, HashProgress, ModelCheck, checks_of, files_once, hash_input
from llamaherd.store.holdings import LEFT, Holdings, Removal, User, judge_store
from llamaherd.store.show import console, print_checks, print_holdings, print_removals
from tests.support.ours import plan
from tests.support.rigs import cpu_rig, served

STORE = "/var/lib/llamaherd/models"
Q = "unsloth/Qwen3.6-35B-A3B-MTP-GGUF"
OLD, NEW = "5f2c1d0e" * 5, "c0ffee11" * 5
WANTED, UNWANTED = "aa" * 32, "bb" * 32

# What a host printed that has a revision of two quantisations and an older one, a copy of which its owner has.
SAID = f"""\
free\t412316860416
link\tmine
odd\torg/odd
empty\tunsloth
file\t36:1\t1\t0\t0\t.lock
file\t36:2\t1\t22360000000\t43671880\t{Q}/{NEW}/UD-Q4_K_XL/35b.gguf
file\t36:3\t1\t16700000000\t32617192\t{Q}/{NEW}/UD-Q3_K_XL/35b.gguf
file\t36:4\t1\t200\t8\t{Q}/{NEW}/.manifest
file\t36:5\t2\t21000000000\t41015632\t{Q}/{OLD}/35b.gguf
file\t36:6\t1\t100\t8\t{Q}/{OLD}/.manifest
file\t36:7\t1\t5000000000\t2048\t.incoming/{WANTED}.part
file\t36:8\t1\t900\t8\t.incoming/{WANTED}.state
file\t36:9\t1\t700\t8\t.incoming/{UNWANTED}
file\t36:10\t1\t4096\t8\t.trash-a1b2c3/it/x.gguf
file\t36:11\t1\t10\t8\tby-hand/notes.txt
manifest\t{Q}/{NEW}
vouched\t22360000000\t{Q}/{NEW}/UD-Q4_K_XL/35b.gguf
vouched\t16700000000\t{Q}/{NEW}/UD-Q3_K_XL/35b.gguf
manifest\t{Q}/{OLD}
vouched\t21000000000\t{Q}/{OLD}/35b.gguf
use\tunit\tllama-reasoner.service\t{STORE}/{Q}/{NEW}/UD-Q4_K_XL/35b.gguf --port 8001
use\tprocess\t812 less\t{STORE}/{Q}/{NEW}/UD-Q4_K_XL/35b.gguf
"""


def model(name: str, folder: str, *paths: str, sha256: str = "cc" * 32, size: int | None = None) -> ModelPlan:
    wanted = tuple(ModelFile(name=path, sha256=sha256, size=size) for path in paths)
    return ModelPlan(name=name, folder=f"{STORE}/{folder}", files=wanted)


Q4 = model("35b", f"{Q}/{NEW}", "UD-Q4_K_XL/35b.gguf", size=22_360_000_000)
ARRIVES = model("next", f"org/next/{OLD}", "next.gguf", sha256=WANTED, size=9_000_000_000)
(CHAT, *_) = plan(Rig.model_validate(cpu_rig()), Lock()).instances
REASONER = served(CHAT.model_copy(update={"name": "reasoner", "model_folder": Q4.folder}), folders=(Q4.folder,))


def planned(*models: ModelPlan, instances: tuple[InstancePlan, ...] = ()) -> Plan:
    return Plan(
        rig="duo",
        os="debian-13",
        packages=(),
        files=(),
        builds=(),
        store=StorePlan(path=STORE),
        models=models,
        images=(),
        instances=instances,
    )


def told(text: str) -> StoreState:
    """Return the state of a store from lines."""
    lines = [line.split("\t") for line in text.splitlines()]

    def of(kind: str) -> list[list[str]]:
        return [fields for each, *fields in lines if each == kind]

    return StoreState(
        there=True,
        free=next((int(each) for (each,) in of("free")), None),
        files=tuple(stored(*fields) for fields in of("file")),
        empty=tuple(each for (each,) in of("empty")),
        links=tuple(each for (each,) in of("link")),
        odd=tuple(each for (each,) in of("odd")),
        manifests=tuple(each for (each,) in of("manifest")),
        vouched={path: int(size) for size, path in of("vouched")},
        uses=tuple(sorted(used(*fields) for fields in of("use"))),
        fetch=next((each for (each,) in of("fetch")), None),
    )


def stored(inode: str, links: str, size: str, blocks: str, path: str) -> StoredFile:
    return StoredFile(path, inode, int(links), int(size), int(blocks) * BLOCK)


def used(kind: str, name: str, path: str) -> Use:
    return decode(Use, {"kind": kind, "name": name, "path": path})


def judged(text: str = SAID, *models: ModelPlan, instances: tuple[InstancePlan, ...] = ()) -> Holdings:
    return judge_store(planned(*models, instances=instances), told(text))


def test_what_lies_there_and_who_uses_it() -> None:
    found = judged(SAID, Q4, ARRIVES, instances=(REASONER,))
    rows = [(each.folder, each.state, each.files, each.size, each.linked) for each in found.revisions]
    assert rows == [
        ("by-hand", "foreign", 1, 10, 0),
        (f"org/next/{OLD}", "missing", 0, 0, 0),
        (f"{Q}/{OLD}", "whole", 1, 21_000_000_000, 21_000_000_000),
        (f"{Q}/{NEW}", "whole", 2, 39_060_000_000, 0),
    ]
    assert found.revisions[3].users == (
        User("instance", "reasoner"),
        User("process", "812 less"),
        User("unit", "llama-reasoner.service"),
    )
    assert [(part.have, part.size, part.wanted) for part in found.parts] == [
        (1_048_576, 9_000_000_000, "next.gguf"),
        (700, 700, None),
    ]
    assert (found.free, found.fetch) == (412_316_860_416, None)
    assert [note.split()[0] for note in found.notes] == ["mine", "org/odd"]


def test_what_can_go_and_what_that_frees() -> None:
    found = judged(SAID, Q4, ARRIVES, instances=(REASONER,))
    assert found.removals == (
        Removal(LEFT, frees=4096),
        Removal(f"{Q}/{OLD}", frees=4096),  # its owner has the file too: the manifest alone comes free
        Removal(f"{Q}/{NEW}", ("UD-Q3_K_XL/35b.gguf",), ("UD-Q4_K_XL/35b.gguf",), 32_617_192 * 512),
        Removal(f".incoming/{UNWANTED}", frees=4096),
    )
    assert found.as_json()["frees"] == found.frees == sum(removal.frees for removal in found.removals)


USE = f"use\tprocess\t1 x\t{STORE}/"


@pytest.mark.parametrize(
    ("instead", "stays"),
    [
        (f"{USE}{Q}/{OLD}/35b.gguf", f"{Q}/{OLD}"),
        (f"{USE}{Q}/{OLD}", f"{Q}/{OLD}"),
        (f"{USE}{Q}/{OLD}:/models:ro", f"{Q}/{OLD}"),
        (f'{USE}{Q}/{OLD}", "--port"', f"{Q}/{OLD}"),
        (f"{USE}{Q}/{OLD}/../{OLD}/35b.gguf", f"{Q}/{OLD}"),
        (f"{USE}{Q}/{OLD}-more/35b.gguf", None),
        (f"{USE}{Q}/{OLD[:-1]}/35b.gguf", None),
        (f"{USE}{Q}/{NEW}/UD-Q3_K_XL/35b.gguf", f"{Q}/{NEW}"),
        (f"{USE}{Q}/{NEW}", f"{Q}/{NEW}"),
        (f"{USE}{Q}/{NEW}/UD-Q4_K_XL/35b.gguf", None),
    ],
)
def test_what_anything_uses_stays(instead: str, stays: str | None) -> None:
    everything = {LEFT, f"{Q}/{OLD}", f"{Q}/{NEW}", f".incoming/{UNWANTED}"}
    found = judged(f"{SAID}{instead}\n", Q4, ARRIVES)
    assert {removal.what for removal in found.removals} == everything - {stays}


def test_a_plan_without_models_wants_nothing_and_what_is_used_stays_all_the_same() -> None:
    found = judged(SAID)
    assert {removal.what for removal in found.removals} == {
        LEFT,
        f"{Q}/{OLD}",
        f".incoming/{UNWANTED}",
        f".incoming/{WANTED}",
    }


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_name_is_taken_for_anything_else(name: str) -> None:
    """As a document holds it."""
    state = StoreState(files=(StoredFile(name, "1:2", 1, 3, 8),), uses=(Use("unit", "u", f"{STORE}/{name}"),))
    assert decode(StoreState, parse_document(dump(state).encode())) == state


# --- hashes --------------------------------------------------------------------------------------------------

TWO = planned(model("m", "f", "a.gguf", "b.gguf", size=100), model("same", "f", "b.gguf", size=100))


def checked(*found: FileHash) -> list[FileCheck]:
    return [*checks_of(files_once(TWO), Hashes(found)).values()]


def test_a_file_of_two_models_is_read_once() -> None:
    assert [name for _, name in files_once(TWO)] == ["a.gguf", "b.gguf"]
    assert [each.name for each in hash_input(files_once(TWO)).files] == ["a.gguf", "b.gguf"]


@pytest.mark.parametrize(
    ("hashed", "found"),
    [
        (FileHash("hashed", "cc" * 32), FileCheck("a.gguf", "ok")),
        (
            FileHash("hashed", "dd" * 32, dropped=True),
            FileCheck("a.gguf", "damaged", f"its sha256 is {'dd' * 32}, declared is {'cc' * 32}", dropped=True),
        ),
        (FileHash("sized", "7"), FileCheck("a.gguf", "damaged", "it has 7 bytes, the lock has 100")),
        (FileHash("missing"), FileCheck("a.gguf", "missing", "it does not exist")),
        (
            FileHash("unreadable", "Input/output error"),
            FileCheck("a.gguf", "damaged", "it cannot be read: Input/output error; is the disk failing?"),
        ),
    ],
)
def test_what_was_found_of_a_file(hashed: FileHash, found: FileCheck) -> None:
    assert checked(hashed, FileHash("missing"))[0] == found


def test_hashes_of_other_files_are_no_result() -> None:
    with pytest.raises(UnexpectedLineError):
        checked(FileHash("missing"))


def test_a_log_gets_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 1.0, 6.0, 7.0, 12.0])
    lines = HashingLines("duo", lambda: next(seconds))
    for done in (10, 30, 35, 60):
        lines.tell(HashProgress(done * 10**9, 60 * 10**9, "35b.gguf"))
    assert capsys.readouterr().err == (
        "duo: hashed 30.0 GB of 60.0 GB at 5.0 GB/s: 35b.gguf\nduo: hashed 60.0 GB of 60.0 GB at 5.0 GB/s: 35b.gguf\n"
    )


# --- for people ----------------------------------------------------------------------------------------------


def test_a_store_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    found = judged(f"{SAID}fetch\t3 of 9 GB\n", Q4, ARRIVES, instances=(REASONER,))
    print_holdings(found, console())
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"duo: {STORE}, 412 GB free" in said
    assert "models are being fetched: 3 of 9 GB" in said
    assert f"{Q}/{NEW} 39.1 GB 2 whole reasoner, process 812 less" in said
    assert f"{Q}/{OLD} 21.0 GB (linked) 1 whole unused" in said
    assert f"org/next/{OLD} - 0 missing unused" in said
    assert "aaaaaaaaaaaa 1.0 MB 9.0 GB next.gguf" in said
    assert "bbbbbbbbbbbb 700 B 700 B nothing: unwanted" in said
    assert "note: mine is a symbolic link: its target is not inspected" in said


def test_names_are_no_markup_and_no_terminal_obeys_them(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"free\t1\nfile\t1:1\t1\t1\t8\t[bold]\x1b[31m/{NEW}.part\n"
    found = judged(text)
    print_holdings(found, console())
    print_removals(found, console())
    said = capsys.readouterr().out
    assert said.count("[bold]") == 2
    assert "\x1b" not in said


def test_what_is_damaged_is_said_with_a_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    files_ = (
        FileCheck("a.gguf", "ok"),
        FileCheck("b.gguf", "damaged", "its sha256 is x", dropped=True),
        FileCheck("c.gguf", "damaged", "its sha256 is y"),
        FileCheck("d.gguf", "missing", "it does not exist"),
    )
    print_checks("duo", [ModelCheck("good", "/g", files_[:1]), ModelCheck("bad", "/b", files_)], console())
    assert capsys.readouterr().out == (
        "  ✓ good: 1 file as declared, by sha256\n"
        "  ✗ bad in /b:\n"
        "      b.gguf is damaged: its sha256 is x\n"
        "      help: its hash is no longer listed: `herd up duo` fetches it again\n"
        "      c.gguf is damaged: its sha256 is y\n"
        "      help: it was being changed meanwhile: run `herd verify --deep duo` again\n"
        "      d.gguf is missing: it does not exist\n"
        "      help: `herd up duo` fetches it\n"
    )
