"""What `herd down` prints before it removes anything: what goes, and what stays and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd.cli.host_removal import Removal, grouped_by_folder, show_removal
from llamaherd.inventory.schema import Rig
from llamaherd.layout import DEFAULT_STORE, SET_ASIDE, STATE
from llamaherd.onhost.uninstall import Installed
from llamaherd.pipeline.preview import Preview
from llamaherd.pipeline.removal import Stored, empty_plan
from llamaherd.role.changes import Change, RunScript
from llamaherd.store.holdings import Holdings, Revision, RevisionState, User
from llamaherd.store.holdings import Removal as ModelRemoval
from llamaherd.store.unused import HostItem, HostItems
from roles import ROLES
from tests.support.rigs import cpu_rig, gpu_rig, wsl_rig

RIG = Rig.model_validate(cpu_rig())
REMOVE_CHAT = Change("remove", "server", "llama-chat", ("it is not declared",), RunScript(""))
FOUND = Removal(RIG, empty_plan(RIG, ROLES))
INSTALLED = Installed(
    units=("llamaherd-fetch.service",),
    containers=("llamaherd-beside-x",),
    accounts=("llama",),
    paths=(f"{STATE}/kept",),
    spared=(str(SET_ASIDE),),
    sizes={str(STATE): 43 * 10**9, "/etc/llamaherd": 4096},
)


def revision(folder: str, state: RevisionState, *users: User) -> Revision:
    return Revision(folder, state, 1, 2_500_000_000, 0, users)


def stored(*revisions: Revision, items: tuple[HostItem, ...] = (), removals: tuple[ModelRemoval, ...] = ()) -> Stored:
    holdings = Holdings("box", str(DEFAULT_STORE), None, None, revisions, (), removals, ())
    return Stored(holdings, HostItems("box", items))


def shown(found: Removal, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], list[str]]:
    """Return the lines of what goes, and of what stays."""
    show_removal(found)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "box: this is removed"
    at = lines.index("box: this stays")
    return lines[1:at], lines[at + 1 :]


def test_services_go_and_the_rest_is_named_with_its_size(capsys: pytest.CaptureFixture[str]) -> None:
    goes, stays = shown(replace(FOUND, preview=Preview((REMOVE_CHAT,)), installed=INSTALLED), capsys)
    assert goes == [
        "  - chat",
        "  - unit llamaherd-fetch.service",
        "  - container llamaherd-beside-x",
    ]
    assert stays == [
        "  packages, with Docker if installed, with their settings, repositories and pulled images",
        "  systemd's journal",
        "  models, engines, accounts, state and logs, 43.0 GB in all; --purge removes them",
    ]


def test_a_purge_names_models_engines_accounts_and_folders(capsys: pytest.CaptureFixture[str]) -> None:
    chat = User("unit", "llama-chat.service")
    held = stored(
        revision("ann/tiny/1", "whole", chat, User("release", "12")),
        revision("ann/half/1", "unfinished"),
        revision("ann/big/1", "whole", chat, User("file", "/srv/run.sh")),
        revision("mine", "foreign"),
        revision("gone", "missing"),
        items=(
            HostItem("build", "llama.cpp-1", 10**9, ("unit llama-chat.service",)),
            HostItem("build", "llama.cpp-2", 10**9, ("container nginx",)),
            HostItem("source", "ab", 5, ()),
        ),
    )
    found = replace(FOUND, preview=Preview((REMOVE_CHAT,)), installed=INSTALLED, stored=held, others=("motd", "swap"))
    goes, stays = shown(found, capsys)
    assert goes[3:] == [
        "  - account llama",
        "  - model ann/tiny/1  2.5 GB",
        "  - model ann/half/1  2.5 GB",
        "  - engines  1 build, 1 source, 1.0 GB",
        f"  - folder {STATE}  43.0 GB in all",
    ]
    assert stays[2:] == [
        "  what your own roles have set up: motd, swap",
        "  model ann/big/1: file /srv/run.sh uses it",
        f"  {DEFAULT_STORE}/mine, which llamaherd has not written",
        "  build llama.cpp-2: container nginx uses it",
        f"  {SET_ASIDE}, with files of other programs that changed units",
    ]


def test_windows_keeps_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    rig = Rig.model_validate(wsl_rig())
    show_removal(replace(FOUND, rig=rig, preview=Preview((REMOVE_CHAT,))))
    assert "  settings of Windows and of WSL\n" in capsys.readouterr().out


def test_a_rig_with_gpus_keeps_their_driver(capsys: pytest.CaptureFixture[str]) -> None:
    show_removal(replace(FOUND, rig=Rig.model_validate(gpu_rig()), preview=Preview((REMOVE_CHAT,))))
    assert "  packages, with NVIDIA's driver, CUDA and Docker if installed, " in capsys.readouterr().out


def test_paths_of_one_folder_are_one_entry() -> None:
    ccache = [f"/var/cache/llamaherd/ccache/{name}" for name in ("0", "1", "built")]
    removed = ["account llama", "/etc/llamaherd", *ccache, "/var/cache/llamaherd/sources", "/opt/llamaherd", "/srv/x"]
    assert grouped_by_folder(removed) == [
        "account llama",
        "/etc/llamaherd",
        "3 files and folders in /var/cache/llamaherd/ccache",
        "/var/cache/llamaherd/sources",
        "/opt/llamaherd",
        "/srv/x",
    ]


def test_what_is_needed() -> None:
    used = stored(revision("ann/big/1", "whole", User("file", "/srv/run.sh")))
    unused = stored(removals=(ModelRemoval("ann/tiny/1", frees=1),))
    accounts = Installed(accounts=("llama",))
    assert not FOUND.needed
    assert not replace(FOUND, installed=accounts).needed, "only a purge removes accounts"
    assert not replace(FOUND, stored=used).needed, "another program uses it"
    for each in (
        replace(FOUND, preview=Preview((REMOVE_CHAT,))),
        replace(FOUND, installed=Installed(units=("llamaherd-fetch.service",))),
        replace(FOUND, installed=Installed(containers=("llamaherd-chat",))),
        replace(FOUND, installed=accounts, stored=used),
        replace(FOUND, stored=unused),
    ):
        assert each.needed
