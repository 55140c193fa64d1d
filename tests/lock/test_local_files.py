"""Hashes of model files and source archives: written into the lock, compared with declared ones, used by plans."""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd import lock
from llamaherd.diagnostics.findings import InventoryError
from llamaherd.gguf.header import Header
from llamaherd.lock import Lock, LockedArchive, LockedLocal
from llamaherd.lock.local_files import has_secret, name_in_lock
from llamaherd.lock.resolver import LockOutcome, lock_fleet, value_places
from llamaherd.pipeline.load import declared, lock_path, missing_names, plans, read_lock
from roles import ROLES
from tests.support import gguf_files
from tests.support.gguf_files import Weight
from tests.support.rigs import changed, cpu_rig

SHA = "ab" * 32


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A fleet folder with a rig that has two model files and an archive in the folder, all without a hash."""
    for name, layers in (("gemma", 2), ("moe", 3)):
        weights = [Weight("token_embd.weight", (64, 512), "Q8_0"), Weight("output_norm.weight", (64,))]
        weights += [Weight(f"blk.{layer}.ffn_up.weight", (64, 96), "Q4_0") for layer in range(layers)]
        model = gguf_files.Model("llama", name, {"block_count": layers, "embedding_length": 64}, tuple(weights))
        (tmp_path / "models").mkdir(exist_ok=True)
        gguf_files.write(model, tmp_path / "models" / f"{name}.gguf")
    (tmp_path / "llama.tar.gz").write_bytes(b"a source archive")
    write_rig(tmp_path)
    return tmp_path


def write_rig(fleet: Path, **changes: Any) -> None:
    plain = {
        "engines/main/source": {"archive": "llama.tar.gz", "folder": "llama.cpp", "version": {"number": 11434}},
        "models/gemma": {"file": "models/gemma.gguf"},
        "models/moe": {"file": "models/moe.gguf"},
        "instances/drafter/draft": None,
    }
    (fleet / "box.yaml").write_text(yaml.safe_dump(changed(cpu_rig(), plain | changes), sort_keys=False))


def locking(fleet: Path, *upgrade: str) -> LockOutcome:
    """What `herd lock` resolves, which is written if it is whole."""
    survey, said = declared(fleet), list[str]()
    where = value_places(survey.documents, fleet)
    outcome = lock_fleet(survey.fleet, read_lock(fleet), where, said.append, upgrade, folder=fleet.resolve())
    if outcome.ok:
        lock.write_lock(lock_path(fleet), outcome.lock)
    return outcome


def sha(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_hashes_that_are_not_declared_are_locked_and_planned(fleet: Path) -> None:
    outcome = locking(fleet)
    assert outcome.findings == ()
    assert {each.file: each.sha256 for each in outcome.lock.files} == {
        f"models/{name}.gguf": sha(fleet / "models" / f"{name}.gguf") for name in ("gemma", "moe")
    }
    assert {each.archive: (each.sha256, each.size) for each in outcome.lock.archives} == {
        "llama.tar.gz": (sha(fleet / "llama.tar.gz"), 16)
    }
    _, plan = plans(fleet, ROLES)["box"]
    assert {model.name: model.files[0].sha256 for model in plan.models} == {
        name: sha(fleet / "models" / f"{name}.gguf") for name in ("gemma", "moe")
    }
    assert [build.source.sha256 for build in plan.builds] == [sha(fleet / "llama.tar.gz")]
    assert lock.read_lock_file(lock_path(fleet)) == outcome.lock


def test_the_plan_is_that_of_declared_hashes(fleet: Path) -> None:
    locking(fleet)
    _, by_lock = plans(fleet, ROLES)["box"]
    archive = {"archive": "llama.tar.gz", "folder": "llama.cpp", "version": {"number": 11434}}
    write_rig(
        fleet,
        **{
            "engines/main/source": archive | {"sha256": sha(fleet / "llama.tar.gz")},
            **{
                f"models/{name}": {"file": f"models/{name}.gguf", "sha256": sha(fleet / f"models/{name}.gguf")}
                for name in ("gemma", "moe")
            },
        },
    )
    _, by_hand = plans(fleet, ROLES)["box"]
    assert by_lock == by_hand


def test_without_a_lock_the_plan_is_refused_at_the_file(fleet: Path) -> None:
    with pytest.raises(InventoryError) as caught:
        plans(fleet, ROLES)
    messages = [finding.message for finding in caught.value.findings]
    assert {finding.code for finding in caught.value.findings} == {"LH031"}
    assert f"rig `box`: the file of model `gemma` ({fleet}/models/gemma.gguf) has no hash in the lock" in messages
    assert f"rig `box`: the archive of engine `main` ({fleet}/llama.tar.gz) has no hash in the lock" in messages
    assert all(finding.place.line for finding in caught.value.findings)


@pytest.mark.parametrize(
    ("key", "value", "file"),
    [
        ("models/gemma", {"file": "models/gemma.gguf", "sha256": SHA}, "models/gemma.gguf"),
        ("engines/main/source/sha256", SHA, "llama.tar.gz"),
    ],
)
def test_a_declared_hash_that_differs_is_an_error_and_nothing_is_written(
    fleet: Path, key: str, value: object, file: str
) -> None:
    write_rig(fleet, **{key: value})
    outcome = locking(fleet)
    (finding,) = outcome.findings
    assert (finding.code, finding.severity, outcome.ok) == ("LH034", "error", False)
    assert finding.message == f"{fleet / file} has another sha256 than declared"
    assert f"write `sha256: {sha(fleet / file)}` if it is the right file" in finding.help
    assert "sha256" in (fleet / "box.yaml").read_text().splitlines()[(finding.place.line or 0) - 1]
    assert not lock_path(fleet).exists()


def test_the_hash_of_another_file_is_no_hash_of_this_one(fleet: Path) -> None:
    """A hash that was pasted twice: the other file is locked with it, and right."""
    right = sha(fleet / "models/gemma.gguf")
    write_rig(
        fleet,
        **{
            "models/gemma": {"file": "models/gemma.gguf", "sha256": right},
            "models/moe": {"file": "models/moe.gguf", "sha256": right},
        },
    )
    assert [finding.message for finding in locking(fleet).findings] == [
        f"{fleet}/models/moe.gguf has another sha256 than declared"
    ]


def test_a_hash_that_differs_from_the_locked_one_is_refused_without_reading(fleet: Path) -> None:
    locking(fleet)
    write_rig(fleet, **{"models/gemma": {"file": "models/gemma.gguf", "sha256": SHA}})
    (fleet / "models/gemma.gguf").unlink()
    with pytest.raises(InventoryError) as caught:
        plans(fleet, ROLES)
    (finding,) = caught.value.findings
    assert finding.code == "LH031"
    assert f"is declared with sha256 {SHA[:12]}…, but was locked with" in finding.message


def test_what_is_locked_is_not_read_again_until_its_size_differs(fleet: Path) -> None:
    first = locking(fleet).lock
    assert locking(fleet) == LockOutcome(first, ())
    file = fleet / "models/gemma.gguf"
    file.write_bytes(file.read_bytes() + bytes(32))
    changed_file = locking(fleet)
    (finding,) = changed_file.findings
    assert (finding.severity, changed_file.lock) == ("warning", first)
    assert finding.help == "to use it, run `herd lock --upgrade gemma`"
    file.unlink()
    assert locking(fleet) == LockOutcome(first, ())


def test_an_upgrade_reads_a_file_and_an_archive_again(fleet: Path) -> None:
    locking(fleet)
    (fleet / "llama.tar.gz").write_bytes(b"A newer archive.")
    assert locking(fleet).lock.archives[0].sha256 != sha(fleet / "llama.tar.gz")
    assert locking(fleet, "main").lock.archives[0].sha256 == sha(fleet / "llama.tar.gz")


@pytest.mark.parametrize("name", ["models/gemma.gguf", "llama.tar.gz"])
def test_a_missing_file_without_a_hash_is_an_error(fleet: Path, name: str) -> None:
    (fleet / name).unlink()
    outcome = locking(fleet)
    (finding,) = outcome.findings
    assert (finding.severity, outcome.ok) == ("error", False)
    assert finding.message == f"{fleet / name} cannot be read: No such file or directory"


def test_entries_of_an_older_lock_get_the_name_of_their_file(fleet: Path) -> None:
    """They are found by the declared hash; where the file is missing, the entry stays as it is."""
    named = locking(fleet).lock
    hashes = {name: sha(fleet / f"models/{name}.gguf") for name in ("gemma", "moe")}
    write_rig(fleet, **{f"models/{n}": {"file": f"models/{n}.gguf", "sha256": hashes[n]} for n in hashes})
    old = named.model_copy(update={"files": tuple(e.model_copy(update={"file": None}) for e in named.files)})
    lock.write_lock(lock_path(fleet), old)
    assert locking(fleet).lock == named
    lock.write_lock(lock_path(fleet), old)
    for name in hashes:
        (fleet / f"models/{name}.gguf").unlink()
    assert locking(fleet) == LockOutcome(old, ())


def test_only_what_a_rig_cannot_be_planned_without_is_missing(fleet: Path) -> None:
    assert missing_names(fleet, Lock()).names == {"gemma", "moe", "main"}
    assert missing_names(fleet, Lock(), ["other"]).all == ()
    write_rig(fleet, **{"models/gemma": {"file": "models/gemma.gguf", "sha256": SHA}})
    assert missing_names(fleet, Lock()).names == {"moe", "main"}
    locked = Lock(
        files=(local("models/moe.gguf"),), archives=(LockedArchive(archive="llama.tar.gz", sha256=SHA, size=1),)
    )
    assert missing_names(fleet, locked).all == ()


def local(name: str) -> LockedLocal:
    return LockedLocal(file=name, sha256=SHA, size=10, data_offset=10, header=Header(architecture="llama"))


def test_how_a_lock_names_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/tom")
    fleet = Path("/home/tom/fleet")
    assert name_in_lock(fleet / "models" / "a.gguf", fleet) == "models/a.gguf"
    assert name_in_lock(Path("/home/tom/models/a.gguf"), fleet) == "~/models/a.gguf"
    assert name_in_lock(Path("/srv/a.gguf"), fleet) == "/srv/a.gguf"


@pytest.fixture
def server(fleet: Path) -> Iterator[str]:
    """The URL of a server that has the files of the fleet folder."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(fleet))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def with_url(fleet: Path, url: str, **more: str) -> None:
    write_rig(fleet, **{"engines/main/source": {"archive": url, "folder": "llama.cpp"} | more})


def test_an_archive_behind_a_url_is_hashed_once(fleet: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    url = f"{server}/llama.tar.gz"
    with_url(fleet, url)
    first = locking(fleet)
    assert first.findings == ()
    assert first.lock.archives == (LockedArchive(archive=url, sha256=sha(fleet / "llama.tar.gz"), size=16),)
    (fleet / "llama.tar.gz").unlink()
    assert locking(fleet) == first


def test_an_archive_behind_a_url_that_differs_or_is_gone(
    fleet: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with_url(fleet, f"{server}/llama.tar.gz", sha256=SHA)
    (finding,) = locking(fleet).findings
    assert (finding.severity, finding.message) == (
        "error",
        f"{server}/llama.tar.gz has another sha256 than declared",
    )
    with_url(fleet, f"{server}/gone.tar.gz")
    (finding,) = locking(fleet).findings
    assert (finding.severity, finding.message) == ("error", f"{server}/gone.tar.gz cannot be fetched: status 404")
    with_url(fleet, f"{server}/gone.tar.gz", sha256=SHA)
    (finding,) = locking(fleet).findings
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("https://tom:canary@mirror.lan/a.tar", True),
        ("https://mirror.lan/a.tar?token=canary", True),
        ("https://mirror.lan/a.tar#canary", True),
        ("https://mirror.lan/a@b.tar", False),
        ("/srv/a?b.tar", False),
    ],
)
def test_a_url_that_may_contain_a_secret(url: str, secret: bool) -> None:
    assert has_secret(url) is secret


def test_a_url_with_a_secret_is_not_locked(fleet: Path) -> None:
    with_url(fleet, "http://tom:canary@127.0.0.1:9/a.tar")
    (finding,) = locking(fleet).findings
    assert (finding.severity, finding.help) == ("error", "add the archive's `sha256:`")
    assert "canary" not in str(finding)
    with_url(fleet, "http://tom:canary@127.0.0.1:9/a.tar", sha256=SHA)
    outcome = locking(fleet)
    assert (outcome.findings, outcome.lock.archives) == ((), ())
