"""The verb that inspects a host's store, run on this machine against stores with what may lie in one."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from llamaherd.layout import FETCH_RUN, INCOMING
from llamaherd.onhost.removal import Outcome
from llamaherd.onhost.store import StoreState
from llamaherd.store.holdings import Removal
from tests.support.store_host import NEW, OLD, StoreHost, folders, used_by

HASH = "01" * 8
SHA, OTHER_SHA = "12" * 32, "34" * 32
pytestmark = pytest.mark.usefixtures("starts_processes")


def test_a_store_that_is_not_there_is_no_error_and_is_not_made(host: StoreHost) -> None:
    host.store.rmdir()
    assert host.snapshot() == StoreState()
    assert not host.store.exists()


def test_revisions_of_all_kinds(host: StoreHost) -> None:
    host.put(f"org/name/{OLD}/a.gguf")
    host.put(f"org/name/{NEW}/UD-Q4/a.gguf.part", vouched=False)
    host.put(f"local/{HASH}/a.gguf", vouched=False)
    host.put('by hand/it\'s "mine"/a.gguf', vouched=False)
    host.put("other/x.gguf.part", vouched=False)
    (host.store / "org/empty" / OLD).mkdir(parents=True)
    (host.store / "org/left").mkdir()
    holdings = host.holdings(host.model("org/gone/" + OLD, "a.gguf"))
    assert folders(holdings) == {
        f"org/name/{OLD}": "whole",
        f"org/name/{NEW}": "unfinished",
        f"local/{HASH}": "unfinished",
        'by hand/it\'s "mine"': "foreign",
        "other": "unfinished",
        f"org/empty/{OLD}": "unfinished",
        f"org/gone/{OLD}": "missing",
    }
    assert {removal.what for removal in holdings.removals} == {*folders(holdings)} - {
        'by hand/it\'s "mine"',
        f"org/gone/{OLD}",
    }
    assert holdings.free
    assert holdings.free > 0


def test_a_revision_whose_files_are_not_what_its_manifest_says_is_unfinished(host: StoreHost) -> None:
    host.put(f"org/name/{OLD}/a.gguf").write_bytes(b"shorter"[:3])
    host.put(f"org/name/{NEW}/a.gguf")
    assert folders(host.holdings(host.model(f"org/name/{NEW}", "a.gguf", "b.gguf"))) == {
        f"org/name/{OLD}": "unfinished",
        f"org/name/{NEW}": "unfinished",
    }


def test_names_with_a_line_break_are_told_of_and_nothing_near_them_is_removed(host: StoreHost) -> None:
    host.put(f"org/name/{OLD}/a.gguf")
    host.put(f"org/name/{OLD}/sub/b\nx.gguf", vouched=False)
    host.put("evil\tname/c.gguf", vouched=False)
    holdings = host.holdings()
    assert folders(holdings) == {f"org/name/{OLD}": "whole"}
    assert holdings.removals == ()
    assert len(holdings.notes) == 2
    assert all("control character" in note for note in holdings.notes)


def test_links_are_not_followed(host: StoreHost, tmp_path: Path) -> None:
    outside = tmp_path / "outside" / OLD
    outside.mkdir(parents=True)
    (outside / "a.gguf").write_bytes(b"theirs")
    (host.store / "org").mkdir()
    (host.store / "org/name").symlink_to(tmp_path / "outside")
    holdings = host.holdings()
    assert folders(holdings) == {}
    assert "org/name is a symbolic link" in holdings.notes[0]
    told = host.prune(Removal(f"org/name/{OLD}"))
    assert told.kept == {f"org/name/{OLD}": "it no longer exists"}
    assert (outside / "a.gguf").read_bytes() == b"theirs"


def test_what_has_two_names_comes_free_with_the_second(host: StoreHost, tmp_path: Path) -> None:
    large = b"x" * 100_000
    first = host.put(f"org/name/{OLD}/a.gguf", large)
    os.link(first, tmp_path / "theirs.gguf")
    linked = host.holdings()
    assert linked.revisions[0].linked == 100_000
    assert linked.frees < 100_000
    (tmp_path / "theirs.gguf").unlink()
    (host.store / f"org/name/{NEW}").mkdir()
    os.link(first, host.store / f"org/name/{NEW}/a.gguf")
    both = host.holdings()
    assert [removal.frees >= 100_000 for removal in both.removals] == [False, True]
    assert host.holdings(host.model(f"org/name/{NEW}", "a.gguf", content=large)).frees < 100_000


def test_parts_are_as_large_as_what_they_take_of_the_disk(host: StoreHost) -> None:
    content = b"x" * 8192
    sha256 = hashlib.sha256(content).hexdigest()
    incoming = host.store / ".incoming"
    incoming.mkdir()
    with (incoming / f"{sha256}.part").open("wb") as part:
        part.write(content[:4096])
        part.truncate(8192)
    (incoming / f"{sha256}.state").write_text("{}")
    (incoming / SHA).write_bytes(b"whole")
    holdings = host.holdings(host.model(f"org/name/{OLD}", "a.gguf", content=content))
    assert [(part.sha256, part.have, part.size, part.wanted) for part in holdings.parts] == sorted(
        [(sha256, 4096, 8192, "a.gguf"), (SHA, 5, 5, None)]
    )
    assert [removal.what for removal in holdings.removals] == [f".incoming/{SHA}"]


def test_what_the_controller_sent_is_shown_and_goes_where_nothing_wants_it(host: StoreHost) -> None:
    content = b"x" * 8192
    sha256 = hashlib.sha256(content).hexdigest()
    sent = Path(f"{host.root}{INCOMING}")
    sent.mkdir(parents=True)
    (sent / f"{sha256}.part").write_bytes(content[:4096])
    (sent / SHA).write_bytes(b"whole")
    (sent / "notes").write_text("not ours")
    model = host.model(f"org/name/{OLD}", "a.gguf", content=content)
    holdings = host.holdings(model)
    assert {(part.sha256, part.have, part.size, part.wanted) for part in holdings.parts} == {
        (sha256, 4096, None, "a.gguf"),
        (SHA, 5, 5, None),
    }
    (removal,) = holdings.removals
    assert (removal.what, removal.frees > 0) == (str(INCOMING / SHA), True)
    assert host.prune(removal).ok
    assert sorted(path.name for path in sent.iterdir()) == sorted([f"{sha256}.part", "notes"])
    # What is in the store by now wants the rest of it no more.
    host.put(f"org/name/{OLD}/a.gguf", content)
    (removal,) = host.holdings(model).removals
    with (sent / f"{sha256}.part").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert list(host.prune(removal).kept.values()) == ["it is being sent just now"]
    assert host.prune(removal).ok
    assert [path.name for path in sent.iterdir()] == ["notes"]


@pytest.mark.parametrize("place", ["home/tom/.local/share", "var/lib"])
def test_a_container_of_podman_uses_what_it_was_given(host: StoreHost, place: str) -> None:
    host.put(f"org/name/{OLD}/a.gguf")
    kept = host.root / place / "containers" / "storage" / "overlay-containers" / SHA / "userdata"
    kept.mkdir(parents=True)
    mount = {"destination": "/models", "source": f"{host.store}/org/name/{OLD}", "options": ["rbind", "ro"]}
    (kept / "config.json").write_text(json.dumps({"hostname": "gemma", "mounts": [mount]}))
    holdings = host.holdings()
    assert used_by(holdings)[f"org/name/{OLD}"] == ["gemma"]
    assert holdings.removals == ()


def test_a_fetch_that_runs_is_told_of(host: StoreHost, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_ = host.root / "bin"
    bin_.mkdir()
    (bin_ / "systemctl").write_text("#!/bin/sh\necho ActiveState=active\n")
    (bin_ / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    (host.root / FETCH_RUN.relative_to("/") / "progress").write_text("3 of 9 GB\n")
    host.put(f"org/name/{OLD}/a.gguf")
    assert host.holdings().fetch == "3 of 9 GB"
    assert host.prune(Removal(f"org/name/{OLD}")) == Outcome((), {}, "3 of 9 GB")
    assert (host.store / f"org/name/{OLD}/a.gguf").exists()


# --- who uses it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "text", "user"),
    [
        ("etc/systemd/system/chatbot.service", "ExecStart=/srv/llama -m {model} --port 1", "chatbot.service"),
        ("usr/lib/systemd/system/chatbot.service", "ExecStart=/srv/llama -m {model}", "chatbot.service"),
        ("run/systemd/transient/chatbot.service", "ExecStart=/srv/llama -m {model}", "chatbot.service"),
        ("etc/systemd/system/a@.service.d/model.conf", "Environment=MODEL={model}", "a@.service"),
        ("home/tom/.config/systemd/user/mine.service", "ExecStart=%h/llama -m {model}", "mine.service"),
        ("home/tom/.config/containers/systemd/m.container", "Exec=-m {model}", "m.container"),
        ("etc/containers/systemd/m.container", "Volume={store}:/models", "m.container"),
        ("etc/default/chatbot", "MODEL={model}", "/etc/default/chatbot"),
        ("etc/cron.d/nightly", "@daily root llama-bench -m {model}", "/etc/cron.d/nightly"),
        ("usr/local/bin/chat", "#!/bin/sh\nexec llama-server -m {model}", "/usr/local/bin/chat"),
        ("home/tom/start.sh", "llama-server -m '{model}'", "/home/tom/start.sh"),
        ("home/tom/ai/docker-compose.yml", "- {model}:/model.gguf:ro", "/home/tom/ai/docker-compose.yml"),
        ("srv/ai/compose.yaml", "volumes:\n  - {store}:/models\n", "/srv/ai/compose.yaml"),
        ("opt/ai/.env", "MODEL={model}", "/opt/ai/.env"),
        ("etc/systemd/system/cwd.service", "WorkingDirectory={store}\nExecStart=llama -m org/x.gguf", "cwd.service"),
    ],
)
def test_what_somebody_else_has_set_up_uses_what_it_names(host: StoreHost, place: str, text: str, user: str) -> None:
    """Be it that it is stopped: it is started again one day."""
    model = host.put(f"org/name/{OLD}/a.gguf")
    path = host.root / place
    path.parent.mkdir(parents=True)
    path.write_text(text.format(model=model, store=host.store))
    holdings = host.holdings()
    assert used_by(holdings) == {f"org/name/{OLD}": [user]}
    assert holdings.removals == ()
    assert list(host.prune(Removal(f"org/name/{OLD}")).kept) == [f"org/name/{OLD}"]
    assert model.exists()


def test_a_unit_that_names_a_link_into_the_store(host: StoreHost) -> None:
    model = host.put(f"org/name/{OLD}/a.gguf")
    link = host.root / "models/chat.gguf"
    link.parent.mkdir()
    link.symlink_to(model)
    unit = host.root / "etc/systemd/system/chatbot.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(f"[Service]\nExecStart=/srv/llama -m {link}\n")
    assert used_by(host.holdings()) == {f"org/name/{OLD}": ["chatbot.service"]}


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("etc/fstab", "/dev/sdb1 {store} ext4 defaults 0 2"),
        ("etc/exports", "{store} six(ro)"),
        ("etc/llamaherd/history/1.json", '{{"model": "{model}"}}'),
        ("etc/systemd/system/other.service", "ExecStart=/srv/llama -m {store}-of-others/org/a.gguf"),
        ("etc/systemd/system/other.service", "ExecStart=/srv/llama -m {store}2"),
    ],
)
def test_what_mounts_or_lends_a_store_uses_no_model_of_it(host: StoreHost, place: str, text: str) -> None:
    model = host.put(f"org/name/{OLD}/a.gguf")
    path = host.root / place
    path.parent.mkdir(parents=True)
    path.write_text(text.format(model=model, store=host.store))
    assert used_by(host.holdings()) == {f"org/name/{OLD}": []}


def test_units_and_projects_use_what_they_name(host: StoreHost) -> None:
    for folder in (OLD, NEW, "ef" * 20):
        host.put(f"org/name/{folder}/a.gguf")
    unit = host.root / "etc/systemd/system/llama-chat.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(f'[Service]\nExecStart=/bin/llama-server --model "{host.store}/org/name/{OLD}/a.gguf" --port 1\n')
    project = host.root / "etc/llamaherd/compose/coder/compose.yaml"
    project.parent.mkdir(parents=True)
    project.write_text(f'command: ["--model", "{host.store}/org/name/{NEW}/a.gguf"]\n')
    assert used_by(host.holdings()) == {
        f"org/name/{OLD}": ["llama-chat.service"],
        f"org/name/{NEW}": ["llama-coder"],
        f"org/name/{'ef' * 20}": [],
    }


def test_a_process_uses_what_it_names_opens_or_maps(host: StoreHost, started: list[subprocess.Popen[bytes]]) -> None:
    names = ["named", "opened", "mapped", "linked"]
    paths = {name: host.put(f"org/{name}/{OLD}/a model.gguf") for name in names}
    os.link(paths["linked"], elsewhere := host.root / paths["linked"].name)
    map_ = "import mmap, sys; f = open(sys.stdin.read()); m = mmap.mmap(f.fileno(), 0, access=1); f.close(); "
    wait = "print(flush=True); import time; time.sleep(60)"
    with paths["opened"].open("rb") as opened:
        for argv, said in (
            (["sh", "-c", "echo; sleep 60 # $0", f"--model={paths['named']}"], None),
            (["sh", "-c", "echo; exec sleep 60"], opened),
            (["python3", "-c", map_ + wait], paths["mapped"]),
            (["python3", "-c", map_ + wait], elsewhere),
        ):
            stdin = subprocess.PIPE if isinstance(said, Path) else said
            process = subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE)
            started.append(process)
            if process.stdin:
                process.stdin.write(os.fsencode(said if isinstance(said, Path) else b""))
                process.stdin.close()
            assert process.stdout
            process.stdout.readline()
    found = used_by(host.holdings())
    assert {folder.split("/")[1]: len(users) for folder, users in found.items()} == dict.fromkeys(names, 1)
    assert f"{started[0].pid} sh" in found[f"org/named/{OLD}"]
    assert [name.split()[0] for name in found[f"org/linked/{OLD}"]] == [str(started[3].pid)]


def test_a_store_behind_a_link_is_used_by_either_name(host: StoreHost, started: list[subprocess.Popen[bytes]]) -> None:
    host.put(f"org/name/{OLD}/a.gguf")
    real = host.root / "disk"
    host.store.rename(real)
    host.store.symlink_to(real)
    assert used_by(host.holdings()) == {f"org/name/{OLD}": []}
    command = ["sh", "-c", "sleep 60; :", f"{real}/org/name/{OLD}/a.gguf"]
    started.append(subprocess.Popen(command))
    assert used_by(host.holdings()) == {f"org/name/{OLD}": [f"{started[0].pid} sh"]}
    assert host.prune(Removal(f"org/name/{OLD}")).kept == {f"org/name/{OLD}": f"{started[0].pid} sh uses it"}
