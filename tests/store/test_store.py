"""A host's store judged on what a host printed, beside plans that want this or that of it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.cli.progress import ProgressLine
from llamaherd.host.protocol import UnaskedError, answer
from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock
from llamaherd.plan import InstancePlan, ModelFile, ModelPlan, Plan, StorePlan
from llamaherd.store.hashes import FileCheck, HashProgress, Hearing, ModelCheck, files_once, hash_script
from llamaherd.store.holdings import LEFT, Holdings, Removal, User
from llamaherd.store.judge import judge_store
from llamaherd.store.outcome import Outcome, outcome
from llamaherd.store.show import console, print_checks, print_holdings, print_removals
from llamaherd.store.state import StoreState, parse_store
from tests.support.ours import plan
from tests.support.rigs import cpu_rig, served

STORE = "/var/lib/llamaherd/models"
Q = "unsloth/Qwen3.6-35B-A3B-MTP-GGUF"
OLD, NEW = "5f2c1d0e" * 5, "c0ffee11" * 5
WANTED, UNWANTED = "aa" * 32, "bb" * 32

# What a host printed that has a revision of two quantisations and an older one, a copy of which its owner has.
SAID = f"""\
@ begin
free\t412316860416
link\tmine
odd\t./org/odd
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
manifest\t./{Q}/{NEW}
vouched\t22360000000\t./{Q}/{NEW}/UD-Q4_K_XL/35b.gguf
vouched\t16700000000\t./{Q}/{NEW}/UD-Q3_K_XL/35b.gguf
manifest\t./{Q}/{OLD}
vouched\t21000000000\t./{Q}/{OLD}/35b.gguf
use\tunit\tllama-reasoner.service\t{STORE}/{Q}/{NEW}/UD-Q4_K_XL/35b.gguf --port 8001
use\tprocess\t812 less\t{STORE}/{Q}/{NEW}/UD-Q4_K_XL/35b.gguf
@ end
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


def judged(text: str = SAID, *models: ModelPlan, instances: tuple[InstancePlan, ...] = ()) -> Holdings:
    return judge_store(planned(*models, instances=instances), parse_store(answer(text.split("\n"))))


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
    found = judged(SAID.replace("@ end\n", f"{instead}\n@ end\n"), Q4, ARRIVES)
    assert {removal.what for removal in found.removals} == everything - {stays}


def test_a_plan_without_models_wants_nothing_and_what_is_used_stays_all_the_same() -> None:
    found = judged(SAID)
    assert {removal.what for removal in found.removals} == {
        LEFT,
        f"{Q}/{OLD}",
        f".incoming/{UNWANTED}",
        f".incoming/{WANTED}",
    }


@given(st.text(st.characters(exclude_characters="\t\n")))
def test_no_name_is_taken_for_anything_else(name: str) -> None:
    found = parse_store([f"file\t1:2\t1\t3\t8\t{name}", f"use\tunit\tu\t{STORE}/{name}"])
    assert [file.path for file in found.files] == [name]
    assert [use.path for use in found.uses] == [f"{STORE}/{name}"]


@given(st.text() | st.from_regex(r"(free|file|empty|manifest|vouched|use|odd)(\t\w{0,3}){1,6}", fullmatch=True))
def test_a_line_is_a_fact_or_was_not_asked_for(line: str) -> None:
    with suppress(UnaskedError):
        assert parse_store([line]) != StoreState() or line in ("empty\t", "fetch")


@pytest.mark.parametrize("line", ["", "end", "file\tx", "file\t1:2\tone\t3\t8\tx", "vouched\tmuch\tx", "use\tunit\tu"])
def test_a_line_that_was_not_asked_for(line: str) -> None:
    with pytest.raises(UnaskedError):
        parse_store([line])


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ([], Outcome((), {})),
        (["removed\ta b", "kept\tc\tit's used"], Outcome(("a b",), {"c": "it's used"})),
        (["busy\t3 of 9 GB"], Outcome((), {}, "3 of 9 GB")),
    ],
)
def test_what_became_of_a_removal(said: list[str], found: Outcome) -> None:
    assert outcome(said) == found


# --- hashes --------------------------------------------------------------------------------------------------

TWO = planned(model("m", "f", "a.gguf", "b.gguf", size=100), model("same", "f", "b.gguf", size=100))


def heard(*lines: str) -> Hearing:
    hearing = Hearing(files_once(TWO))
    for line in lines:
        hearing.hear(line)
    return hearing


def test_a_file_of_two_models_is_read_once() -> None:
    assert [name for _, name in files_once(TWO)] == ["a.gguf", "b.gguf"]
    assert hash_script(TWO).count("\ncheck ") == 2


@pytest.mark.parametrize(
    ("lines", "progress"),
    [
        ((), None),
        (("there\t0\t100", "there\t1\t50"), None),
        (("there\t0\t100", "there\t1\t50", "at\t0\t0"), HashProgress(0, 150, "a.gguf")),
        (("there\t0\t100", "there\t1\t50", "at\t0\t"), HashProgress(0, 150, "a.gguf")),
        (("there\t0\t100", "there\t1\t50", "at\t0\t70"), HashProgress(70, 150, "a.gguf")),
        (("there\t0\t100", "there\t1\t50", "at\t0\t70", f"is\t0\t{'cc' * 32}"), None),
        (("there\t0\t100", "there\t1\t50", "missing\t0", "at\t1\t7"), HashProgress(107, 150, "b.gguf")),
        (("there\t0\t", "there\t1\t50", "missing\t0", "at\t1\t7"), HashProgress(7, 50, "b.gguf")),
    ],
)
def test_how_far_it_is(lines: tuple[str, ...], progress: HashProgress | None) -> None:
    assert heard(*lines).progress == progress


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((f"is\t0\t{'cc' * 32}",), FileCheck("a.gguf", "ok")),
        (
            (f"is\t0\t{'dd' * 32}", "dropped\t0"),
            FileCheck("a.gguf", "damaged", f"its sha256 is {'dd' * 32}, declared is {'cc' * 32}", dropped=True),
        ),
        (("sized\t0\t7",), FileCheck("a.gguf", "damaged", "it has 7 bytes, the lock says 100")),
        (("missing\t0",), FileCheck("a.gguf", "missing", "it is not there")),
        (
            ("unreadable\t0\tInput/output error",),
            FileCheck("a.gguf", "damaged", "it cannot be read: Input/output error; is the disk failing?"),
        ),
        ((), FileCheck("a.gguf", "missing", "the host said nothing of it")),
    ],
)
def test_what_was_found_of_a_file(lines: tuple[str, ...], found: FileCheck) -> None:
    assert heard(*lines).checks()[0] == found


@given(st.text() | st.from_regex(r"(there|at|is|sized|dropped)\t\d{1,2}\t\w*", fullmatch=True))
def test_a_host_tells_of_files_or_what_was_not_asked_for(line: str) -> None:
    with suppress(UnaskedError):
        assert len(heard(line).checks()) == 2


@pytest.mark.parametrize("line", ["", "is\t0", "at\t2\t1", "missing\t0\tx", "dropped", "else\t0\t1"])
def test_a_line_of_no_file(line: str) -> None:
    with pytest.raises(UnaskedError):
        heard(line)


def test_a_log_gets_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 1.0, 6.0, 7.0, 12.0])
    lines = ProgressLine("duo", lambda: next(seconds))
    for done in (10, 30, 35, 60):
        lines.tell(HashProgress(done * 10**9, 60 * 10**9, "35b.gguf"))
    assert capsys.readouterr().err == (
        "duo: hashed 30.0 GB of 60.0 GB at 5.0 GB/s: 35b.gguf\nduo: hashed 60.0 GB of 60.0 GB at 5.0 GB/s: 35b.gguf\n"
    )


# --- for people ----------------------------------------------------------------------------------------------


def test_a_store_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    found = judged(SAID.replace("@ end\n", "fetch\t3 of 9 GB\n@ end\n"), Q4, ARRIVES, instances=(REASONER,))
    print_holdings(found, console())
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"duo: {STORE}, 412 GB free" in said
    assert "models are being fetched: 3 of 9 GB" in said
    assert f"{Q}/{NEW} 39.1 GB 2 whole reasoner, process 812 less" in said
    assert f"{Q}/{OLD} 21.0 GB (linked) 1 whole unused" in said
    assert f"org/next/{OLD} - 0 missing unused" in said
    assert "aaaaaaaaaaaa 1.0 MB 9.0 GB next.gguf" in said
    assert "bbbbbbbbbbbb 700 B 700 B nothing: unwanted" in said
    assert "note: mine is a symbolic link: what it leads to is not looked at" in said


def test_names_are_no_markup_and_no_terminal_obeys_them(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"@ begin\nfree\t1\nfile\t1:1\t1\t1\t8\t[bold]\x1b[31m/{NEW}.part\n@ end\n"
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
        FileCheck("d.gguf", "missing", "it is not there"),
    )
    print_checks("duo", [ModelCheck("good", "/g", files_[:1]), ModelCheck("bad", "/b", files_)], console())
    assert capsys.readouterr().out == (
        "  ✓ good: 1 file as declared, by sha256\n"
        "  ✗ bad in /b:\n"
        "      b.gguf is damaged: its sha256 is x\n"
        "      help: it is no longer vouched for: `herd up duo` brings it again\n"
        "      c.gguf is damaged: its sha256 is y\n"
        "      help: it was being changed meanwhile: run `herd verify --deep duo` again\n"
        "      d.gguf is missing: it is not there\n"
        "      help: `herd up duo` brings it\n"
    )
