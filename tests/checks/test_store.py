"""Where models are kept and come from: what is wrong with one rig's store, and with what a fleet's rigs lend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.diagnostics.findings import Finding
from llamaherd.pipeline.fleet_files import survey_fleet
from llamaherd.plan import FromHub, FromPeer
from tests.support.ours import plans
from tests.support.rigs import Declared, changed

MODEL = {"hf": "unsloth/Tiny-GGUF", "quant": "Q8_0"}
SIX: Declared = {
    "rig": "six",
    "connect": {"host": "six.lan"},
    "host": {"os": "debian-13", "cpu": {"cores": 4}, "ram": "32GB"},
    "engines": {"main": {"kind": "llama.cpp", "ref": "b11434"}},
    "models": {"tiny": MODEL},
    "instances": {"chat": {"engine": "main", "model": "tiny", "context": 4096, "port": 8080}},
}
DUO = changed(SIX, {"rig": "duo", "connect/host": "duo.lan", "store/from": ["six", "hub"]})


def said(folder: Path, *rigs: Declared, asked: str = "", **others: Mapping[str, Any]) -> list[Finding]:
    """What is said of a fleet in a folder, or of one file of it; `others` are files by their stem."""
    for name, declared in [*((rig["rig"], rig) for rig in rigs), *others.items()]:
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(declared, sort_keys=False), encoding="utf-8")
    return list(survey_fleet(folder / asked if asked else folder).findings)


def text(finding: Finding) -> str:
    """The rest of the line that a finding points at."""
    line = finding.place.file.read_text(encoding="utf-8").splitlines()[finding.place.line - 1]
    return line[finding.place.column - 1 :]


def test_a_neighbour_that_has_the_model_is_one_to_take_from(tmp_path: Path) -> None:
    assert said(tmp_path, SIX, DUO) == []


def test_a_neighbour_is_found_beside_the_file_that_is_asked_for(tmp_path: Path) -> None:
    assert said(tmp_path, SIX, DUO, asked="duo.yaml") == []


def test_a_neighbour_that_cannot_be_read_is_not_said_to_be_none(tmp_path: Path) -> None:
    findings = said(tmp_path, changed(SIX, {"host/ram": "much"}), DUO)
    assert [finding.code for finding in findings] == ["LH012"]


@pytest.mark.parametrize(
    ("changes", "code", "at", "message", "help_"),
    [
        (
            {"store/from": ["sixx", "hub"]},
            "LH180",
            "sixx",
            "`sixx`, which is not in this fleet",
            "did you mean `six`?",
        ),
        ({"store/from": []}, "LH181", "[]", "`from` is empty", "`from: [hub]`"),
        (
            {"store/from": ["hub", "/mnt/a", "/mnt/a/"]},
            "LH181",
            "/mnt/a/",
            "names `/mnt/a` twice",
            "leave this one out",
        ),
        ({"store/from": ["duo", "hub"]}, "LH181", "duo", "from itself", "leave it out"),
        ({"store/path": "/srv/m", "store/from": ["/srv/m/"]}, "LH181", "/srv/m/", "the store itself", "leave it out"),
        ({"store/path": "/"}, "LH183", "/", "the whole host", "/srv/models"),
        ({"store/path": "/home/tom/models"}, "LH183", "/home/tom", "`ProtectHome=yes`", "/var/lib/llamaherd/models"),
        ({"store/path": "/root"}, "LH183", "/root", "`ProtectHome=yes`", "/srv/models"),
        ({"store/path": "/tmp/models"}, "LH183", "/tmp", "a /tmp of their own", "/srv/models"),
        ({"store/path": "/var/tmp/models"}, "LH183", "/var/tmp", "a /tmp of their own", "/srv/models"),
        ({"store/path": "/run/models"}, "LH183", "/run", "empty after a restart", "/srv/models"),
        ({"store/path": "/dev/shm"}, "LH183", "/dev/shm", "it is no disk", "/srv/models"),
        ({"store/path": "/var/lib/llamaherd/"}, "LH183", "/var/lib", "builds lie there too", "/srv/models"),
        (
            {"store/path": "/srv/my models"},
            "LH012",
            "/srv/my",
            "for `store.path`",
            "absolute path of the host",
        ),
        ({"store/path": "/srv/../etc"}, "LH012", "/srv/..", "is not an absolute path of the host", ""),
        ({"store/from": ["Six"]}, "LH012", "Six", "neither `hub`, nor the name of a rig, nor an absolute folder", ""),
        ({"store/from": "~/models"}, "LH012", "~/models", "`~/models` is neither", ""),
        ({"store/bandwidth": "8Mb/s"}, "LH012", "8Mb/s", "64Mbit/s where bits are meant", ""),
        ({"store/form": ["hub"]}, "LH010", "form", "there is no key `form`", "did you mean `from`?"),
        ({"models/from": ["hub"]}, "LH186", "from:", "a model of that name", "`store: {from: [hub]}` next to `models`"),
    ],
)
def test_what_is_wrong_with_one_store(
    tmp_path: Path, changes: dict[str, Any], code: str, at: str, message: str, help_: str
) -> None:
    (finding,) = said(tmp_path, SIX, changed(DUO, changes))
    assert (finding.code, finding.severity) == (code, "error")
    assert text(finding).removeprefix("- ").startswith(at)
    assert message in finding.message
    assert help_ in finding.help


@pytest.mark.parametrize("path", ["/srv/models", "/data", "/homes/models", "/var/lib/llamaherd/models", "/mnt/data/m"])
def test_a_folder_that_servers_can_read(tmp_path: Path, path: str) -> None:
    assert said(tmp_path, SIX, changed(DUO, {"store/path": path})) == []


def test_a_store_on_a_disk_of_windows(tmp_path: Path) -> None:
    (finding,) = said(
        tmp_path,
        SIX,
        changed(DUO, {"store/path": "/mnt/d/models", "host/wsl": {"keep_alive": True}, "instances/chat/mmap": False}),
    )
    assert (finding.code, finding.severity) == ("LH065", "warning")
    assert "`/mnt/d/models` lies on a disk of Windows" in finding.message
    assert said(tmp_path, SIX, changed(DUO, {"store/path": "/mnt/d/models"})) == []


def test_a_rig_called_hub(tmp_path: Path) -> None:
    (finding,) = said(tmp_path, changed(SIX, {"rig": "hub"}))
    assert (finding.code, text(finding)) == ("LH182", "hub")


@pytest.mark.parametrize("host", ["local", "127.0.0.1", "localhost", "::1", "0.0.0.0"])
def test_a_neighbour_that_only_itself_can_reach(tmp_path: Path, host: str) -> None:
    connect = host if host == "local" else {"host": host}
    (finding,) = said(tmp_path, changed(SIX, {"connect": connect}), DUO)
    assert (finding.code, finding.severity, text(finding)) == ("LH184", "error", "six")
    assert "`store: {share: {address:" in finding.help
    reachable = {"connect": connect, "store/share": {"address": "192.168.1.20"}}
    assert said(tmp_path, changed(SIX, reachable), DUO) == []


def test_a_neighbour_without_any_of_the_models(tmp_path: Path) -> None:
    other = changed(SIX, {"models/tiny/quant": "Q4_0"})
    (finding,) = said(tmp_path, other, DUO)
    assert (finding.code, finding.severity, text(finding)) == ("LH185", "warning", "six")


def test_a_port_that_is_lent_at(tmp_path: Path) -> None:
    busy = changed(SIX, {"instances/chat/port": 8970})
    (finding,) = said(tmp_path, busy, DUO)
    assert (finding.code, finding.place.file.name, text(finding)) == ("LH021", "six.yaml", "8970")
    assert "rig `duo` would take models" in finding.message
    assert said(tmp_path, changed(busy, {"store/share": {"port": 8971}}), DUO) == []
    assert said(tmp_path, busy, changed(DUO, {"store/from": ["hub"]})) == []


def test_what_all_rigs_take_over_may_name_each_of_them(tmp_path: Path) -> None:
    """`defaults.yaml` says `from: [six, hub]`: for six itself that is the hub."""
    plain = changed(DUO, {"store": {"connections": 4}})
    assert said(tmp_path, SIX, plain, defaults={"store": {"from": ["six", "hub"]}}) == []
    lock = {
        "version": 2,
        "engines": [{"git": "https://github.com/ggml-org/llama.cpp", "ref": "b11434", "commit": "c" * 40}],
        "models": [
            {
                "repo": MODEL["hf"],
                "revision": "main",
                "files": "*Q8_0*.gguf",
                "commit": "d" * 40,
                "endpoint": "https://hub.lan",
                "shards": [{"path": "a.gguf", "size": 9, "sha256": "e" * 64}],
            }
        ],
    }
    (tmp_path / "herd.lock").write_text(yaml.safe_dump(lock), encoding="utf-8")
    made = {name: plan.store for name, (_, plan) in plans(tmp_path).items()}
    assert made["six"].sources == (FromHub(),)
    neighbour, hub = made["duo"].sources
    assert isinstance(neighbour, FromPeer)
    assert (neighbour.name, neighbour.address, hub) == ("six", "six.lan", FromHub())
    assert made["duo"].connections == 4
    assert plans(tmp_path, ["duo"])["duo"][1].store == made["duo"]
    assert plans(tmp_path / "duo.yaml")["duo"][1].store == made["duo"]
