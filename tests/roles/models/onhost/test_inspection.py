"""What is inspected of the store: on a played host, and in folders of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llamaherd.layout import FETCH_UNIT
from llamaherd.onhost.document import DocumentError, decode, dump, encode, parse_document
from llamaherd.onhost.system import TIMED_OUT, Ended, Host, UnknownStateError
from llamaherd.onhost.verbs import find_verb
from roles.models import inspection_input, state_parts
from roles.models.onhost import ID
from roles.models.onhost.store import Found, InspectInput, StoredFile, VerifiedFile, inspect
from tests.render.plans import CPU
from tests.support.played_host import File
from tests.support.recording import InspectedHost
from tests.support.stores import manifest_line, needs_root

HOSTILE = "a $(id) `id` \"b\" 'c' ; d"
STORE, FOLDER = "/srv/models", "/srv/models/a/b/c"
GIVEN = InspectInput(STORE, (FOLDER,))
SHA = "ab" * 32


def host(**texts: str) -> InspectedHost:
    """Return a host with files in the folder of a model."""
    played = InspectedHost({})
    played.folders |= {"/", STORE}
    played.files = {f"{FOLDER}/{name}": File(text) for name, text in texts.items()}
    return played


def test_a_host_without_a_store() -> None:
    played = InspectedHost({})
    played.folders |= {"/", "/srv"}
    found = inspect(GIVEN, played)
    assert found == Found(found.store)
    assert (found.store.folder, found.store.free, found.store.writable) == ("/srv", 1 << 40, True)
    assert played.done == []


def test_what_manifests_list_and_what_is_there() -> None:
    lines = [
        f"5\t1.5\t{SHA}\tmodel.gguf",
        f"7\t-3.000000001\t{SHA}\tdeep/{HOSTILE}",
        *(
            "",
            "no line",
            f"x\t1.5\t{SHA}\tb",
            f"5\t1e5\t{SHA}\tb",
            "5\t1.5\tzz\tb",
            f"5\t1.5\t{SHA}\t",
            f"5\t1.5\t{SHA}",
        ),
        f"5\t1.5\t{SHA}\ta\tb",
        f"9\t2\t{SHA}\tlast",
    ]
    played = host(
        **{".manifest": "\n".join(lines), "model.gguf": "12345", "deep/.manifest": "", f"deep/{HOSTILE}": "1"}
    )
    found = inspect(GIVEN, played)
    assert found.verified == {
        FOLDER: (
            VerifiedFile("model.gguf", 5, 1.5, SHA),
            VerifiedFile(f"deep/{HOSTILE}", 7, -3.000000001, SHA),
            VerifiedFile("last", 9, 2.0, SHA),
        )
    }
    assert found.stored == {FOLDER: (StoredFile(f"deep/{HOSTILE}", 1, 0.0), StoredFile("model.gguf", 5, 0.0))}
    assert found.kept == {FOLDER: 6 + len("\n".join(lines)), f"{FOLDER}/deep": 1}


def test_what_other_users_can_write_to_is_not_the_stores() -> None:
    played = host(theirs="1", writable="2", group="3", ours="4")
    played.files[f"{FOLDER}/theirs"].owner = "llama-fetch"
    played.files[f"{FOLDER}/writable"].mode = 0o646
    played.files[f"{FOLDER}/group"].mode = 0o664
    assert inspect(GIVEN, played).stored == {FOLDER: (StoredFile("ours", 1, 0.0),)}


@pytest.mark.parametrize(
    ("active", "fetch"),
    [
        *((state, "0123") for state in ("active", "activating", "deactivating", "reloading")),
        *((state, None) for state in ("inactive", "failed")),
    ],
)
def test_the_fetch_that_runs(active: str, fetch: str | None) -> None:
    played = host()
    played.ends["systemctl show"] = Ended(0, f"Id={FETCH_UNIT}\nActiveState={active}\n")
    assert inspect(GIVEN, played).fetch is None
    assert played.done == []
    played.files[ID] = File("0123\n")
    assert inspect(GIVEN, played).fetch == fetch
    assert played.done == [["systemctl", "show", "-p", "Id,ActiveState", FETCH_UNIT]]


def test_a_systemd_that_does_not_respond_is_unknown() -> None:
    played = host()
    played.files[ID] = File("0123\n")
    played.folders.add("/run/systemd/system")
    played.ends["systemctl"] = Ended(TIMED_OUT)
    with pytest.raises(UnknownStateError):
        inspect(GIVEN, played)


def test_the_state_of_a_host() -> None:
    found = inspect(GIVEN, host(**{".manifest": f"5\t1.5\t{SHA}\tmodel.gguf\n", "model.gguf": "12345"}))
    models, store = state_parts(decode(Found, parse_document(dump(found).encode())))
    assert models.verified == {FOLDER: {"model.gguf": (5, 1.5, SHA)}}
    assert models.stored == {FOLDER: {"model.gguf": (5, 0.0)}}
    assert models.kept == found.kept
    assert (store.disk, store.fetch) == (found.store, None)
    with pytest.raises(DocumentError):
        decode(Found, {**encode_found(found), "incoming": {"a": "1"}})


def encode_found(found: Found) -> dict[str, object]:
    value = encode(found)
    assert isinstance(value, dict)
    return value


def test_each_folder_is_inspected_once() -> None:
    asked = inspection_input(CPU)
    assert sorted(asked.folders) == sorted({model.folder for model in CPU.models})
    assert find_verb("models.store.inspect").input is InspectInput


@needs_root
@pytest.mark.usefixtures("starts_processes")
def test_a_real_store(tmp_path: Path) -> None:
    store = tmp_path / HOSTILE
    kept, other, twice = store / "a/b", store / "a", store / "twice"
    for folder in (kept / "deep", twice, store / ".incoming"):
        folder.mkdir(parents=True)
    (kept / "model.gguf").write_bytes(b"12345")
    (kept / "deep" / "more").write_bytes(b"123")
    (kept / "link").symlink_to("model.gguf")
    (kept / ".manifest").write_text(manifest_line(kept / "model.gguf", SHA) + "\n")
    (other / ".manifest").write_text("")
    (twice / ".manifest").write_text("")
    (twice / "model.gguf").write_bytes(b"1234567")
    os.link(twice / "model.gguf", store / "same.gguf")
    with (store / ".incoming" / "ff.part").open("wb") as part:
        part.write(b"x" * 4096)
        part.truncate(1 << 30)
    (store / ".incoming" / "short").write_bytes(b"12")
    Path(os.fsdecode(bytes(store / ".incoming") + b"/\xff\xfe")).write_bytes(b"")
    (store / ".incoming" / "folder").mkdir()
    (tmp_path / "linked").symlink_to(kept)
    folders = (str(kept), str(tmp_path / "linked"), str(tmp_path / "missing"))
    found = inspect(InspectInput(str(store), folders), Host(print, print))
    (verified,) = found.verified[str(kept)]
    stored = {each.name: each for each in found.stored[str(kept)]}
    assert (verified.name, verified.size, verified.sha256) == ("model.gguf", 5, SHA)
    assert stored.keys() == {"model.gguf", "deep/more"}
    assert stored["model.gguf"].written == verified.written == (kept / "model.gguf").stat().st_mtime_ns / 10**9
    assert found.stored.keys() == {str(kept)}, "a link to a folder is not a folder of the store"
    size = (kept / ".manifest").stat().st_size + 8
    assert found.kept == {str(kept): size, str(other): size, str(twice): 0}
    assert found.incoming["short"] == 2
    assert 4096 <= found.incoming["ff.part"] < 1 << 20
    assert found.incoming.keys() == {"short", "ff.part", "\ufffd\ufffd"}
    assert (found.store.folder, bool(found.store.kind)) == (str(store), True)
    assert decode(Found, parse_document(dump(found).encode())) == found
