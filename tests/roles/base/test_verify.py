"""What verification says of what a host's owner can change by hand: accounts, folders, drop-ins, programs, limits."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from llamaherd.host.responses import ProbeOutputs
from llamaherd.inventory.schema import Rig
from llamaherd.role.report import Check
from roles.base import host_checks
from roles.serve.onhost.model import (
    ContainerFound,
    ImageFound,
    Mount,
    OwnedFile,
    ProcessFound,
    ServerFound,
    UnitFound,
    VerifiedServers,
)
from roles.serve.state import declared_limits
from roles.serve.verify.process import check_running, compose_differences, permission_problems
from tests.support.ours import judge
from tests.support.rigs import cpu_rig, planned

PLAN = planned(cpu_rig())
CHAT, DRAFTER = PLAN.instances
BUILD = PLAN.builds[0]
ACCOUNTS = "\n".join(f"{name}:x:{n}:{n}::/nonexistent:/usr/sbin/nologin" for n, name in enumerate(PLAN.accounts, 990))
FOLDERS = "755 root /etc/llamaherd\n711 root /etc/llamaherd/keys\n755 root /opt/llamaherd"


def found(accounts: str = ACCOUNTS, folders: str = FOLDERS, passwords: str = "tom") -> dict[str, tuple[bool, str]]:
    """Each check of the host: whether it passes, and what it says."""
    return {
        check.name: (check.ok, check.detail)
        for check in host_checks(
            PLAN, {("accounts", ""): accounts, ("folders", ""): folders, ("passwords", ""): passwords}
        )
    }


def test_a_host_as_it_should_be() -> None:
    assert [ok for ok, _ in found().values()] == [True, True]


@pytest.mark.parametrize(
    ("accounts", "words"),
    [
        (f"{ACCOUNTS}\ndocker:x:998:tom,llama-chat", "llama-chat is in group docker"),
        (f"{ACCOUNTS}\nsudo:x:27:llama\nadm:x:4:llama,tom", "llama is in group sudo, adm"),
        (ACCOUNTS.replace("/usr/sbin/nologin", "/bin/bash", 1), "llama can log in (/bin/bash)"),
        (ACCOUNTS.replace("llama-chat", "other"), "there is no user llama-chat"),
        (f"{ACCOUNTS}\nllama-chat:x:5:", "llama-chat is in group number 993"),
        (f"root:x:0:0::/root:/bin/bash\n{ACCOUNTS.replace(':993:', ':0:')}", "llama-chat has the number of root"),
    ],
)
def test_an_account_that_may_more_than_it_should(accounts: str, words: str) -> None:
    ok, detail = found(accounts=accounts)["accounts"]
    assert (ok, words in detail) == (False, True), detail


def test_an_account_with_a_password() -> None:
    ok, detail = found(passwords="tom\nllama-chat")["accounts"]
    assert (ok, "llama-chat has a password" in detail) == (False, True)


def test_an_account_that_is_a_persons_is_not_judged() -> None:
    person = ACCOUNTS.replace(
        f"{PLAN.accounts[0]}:x:990:990::/nonexistent:/usr/sbin/nologin", "llama:x:1000:1000::/:/bin/sh"
    )
    assert found(accounts=f"{person}\nsudo:x:27:llama")["accounts"][0]


@pytest.mark.parametrize(
    ("folders", "words"),
    [
        (FOLDERS.replace("711", "777"), "others may write to /etc/llamaherd/keys (mode 777)"),
        (FOLDERS.replace("711", "755"), "others may see which keys there are"),
        (FOLDERS.replace("755 root /opt", "775 root /opt"), "others may write to /opt/llamaherd"),
        (FOLDERS.replace("755 root /opt", "755 tom /opt"), "/opt/llamaherd belongs to tom"),
    ],
)
def test_a_folder_that_is_open_to_others(folders: str, words: str) -> None:
    ok, detail = found(folders=folders)["folders"]
    assert (ok, words in detail) == (False, True), detail


def check(
    name: str, kind: str, server: ServerFound, answers: ProbeOutputs | None = None, **facts: Any
) -> tuple[bool, str]:
    """One check of one instance."""
    servers = VerifiedServers({name: server}, docker_enabled="enabled", **facts)
    report = judge(Rig.model_validate(cpu_rig()), PLAN, answers or {}, found=servers)
    (instance,) = (each for each in report.instances if each.name == name)
    (one,) = (each for each in instance.checks if each.name == kind)
    return one.ok, one.detail


UNIT = UnitFound("active", "enabled", "success", CHAT.file.path, (), needs_reload=False, pid="7")
"""One that runs."""


def unit(**changes: Any) -> tuple[bool, str]:
    """The check of a unit."""
    return check("chat", "unit", ServerFound(unit=replace(UNIT, **changes)))


def test_a_unit_is_its_file_and_its_drop_ins() -> None:
    assert unit()[0]
    drop_in = "/run/systemd/system/llama-chat.service.d/a b.conf"
    ok, detail = unit(drop_ins=(drop_in,))
    assert (ok, drop_in in detail) == (False, True)
    assert not unit(file="/run/systemd/transient/llama-chat.service")[0]
    assert not unit(needs_reload=True)[0]


def test_a_drop_in_for_all_units_that_decides_what_is_run_is_named() -> None:
    shared = "/usr/lib/systemd/system/service.d/10-all.conf"
    assert unit(shared={shared: "Environment User"}) == (
        False,
        f"llama-chat.service is active, enabled; {shared} sets Environment User for it",
    )


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"active": "failed", "result": "oom-kill"}, "llama-chat.service is failed, enabled (oom-kill)"),
        ({"active": "", "enabled": ""}, "llama-chat.service is unknown to systemd, not there"),
        ({"result": ""}, "llama-chat.service is active, enabled"),
    ],
)
def test_the_state_of_a_unit(changes: dict[str, str], detail: str) -> None:
    assert unit(**changes) == ("active" not in changes, detail)


def test_what_is_not_there_and_what_did_not_respond_are_two_things() -> None:
    nothing = ServerFound()
    assert check("chat", "unit", nothing)[1] == "llama-chat.service is unknown to systemd, not there"
    assert check("drafter", "container", nothing)[1] == "there is no container llama-drafter"
    unknown: dict[str, Any] = {"unknown": ("Docker", "systemd")}
    said = "so the state of llama-chat.service is unknown: run again"
    assert check("chat", "unit", nothing, **unknown) == (False, f"systemd did not respond, {said}")
    assert "Docker did not respond" in check("drafter", "container", nothing, **unknown)[1]
    for name in ("chat", "drafter"):
        assert check(name, "process", nothing)[1] == "no process runs"
        assert "did not respond, so it is unknown" in check(name, "process", nothing, **unknown)[1]


def in_place(change: Any = None, **answers: str) -> tuple[bool, str]:
    """The check of the files of a server that has all of them."""
    right = hashlib.sha256(b"right").hexdigest()
    printed: dict[tuple[str, str], str] = {
        ("build", BUILD.id): json.dumps({"id": BUILD.id, "sha256": {"llama-server": right}}),
        **{("model", model.folder): f"{model.files[0].size or 1}\t{model.files[0].name}" for model in PLAN.models},
        ("programs", BUILD.id): f"{right}  llama-server",
        **{(what, BUILD.id): text for what, text in answers.items()},
    }
    file = hashlib.sha256(CHAT.file.text.encode()).hexdigest()
    return check("chat", "files", replace(ServerFound(file_sha256=file), **(change or {})), printed)


def test_a_program_that_is_not_what_was_built_is_named() -> None:
    assert in_place()[0]
    ok, detail = in_place(programs=f"{'0' * 64}  llama-server")
    assert (ok, f"{BUILD.folder}/bin/llama-server is not what was built" in detail) == (False, True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"access": {CHAT.model_path: "absent"}}, f"there is no {CHAT.model_path}"),
        ({"access": {CHAT.model_path: "closed"}}, f"its user may not read {CHAT.model_path}"),
        ({"access": {CHAT.model_path: "silent"}}, f"the disk of {CHAT.model_path} did not respond: run again"),
        ({"access": {"/etc/shadow": "closed"}}, ""),
        ({"runs_program": False}, f"its user may not run {CHAT.server.program}"),
        ({"file_sha256": ""}, f"{CHAT.file.path} is not there"),
        ({"file_sha256": "0" * 64}, f"{CHAT.file.path} is out of date: `herd up`"),
    ],
)
def test_files_that_a_server_could_not_start_from(change: dict[str, Any], words: str) -> None:
    assert in_place(change) == (not words, words or "engine, model and definition are in place")


OWNERS = [
    OwnedFile(CHAT.file.path, "file", 0o644, "root"),
    OwnedFile(str(CHAT.key_file), "file", 0o400, "llama-chat"),
    OwnedFile(CHAT.model_folder, "folder", 0o755, "root"),
    OwnedFile(CHAT.model_path, "file", 0o644, "root"),
]


@pytest.mark.parametrize(
    ("at", "changes", "words"),
    [
        (0, {}, ""),
        (0, {"mode": 0o664}, "is not root's alone to write (mode 664, of root)"),
        (0, {"owner": "tom"}, "is not root's alone to write (mode 644, of tom)"),
        (0, {"mode": 0o777, "kind": "link"}, "is a symbolic link"),
        (1, {"mode": 0o440}, "is not llama-chat's alone (mode 440"),
        (1, {"owner": "root"}, "is not llama-chat's alone (mode 400, of root)"),
        (1, {"mode": 0o777, "kind": "link"}, "is not llama-chat's alone"),
        (2, {"mode": 0o777}, "is not root's alone to write (mode 777"),
        (3, {"owner": "tom"}, "is not root's alone to write (mode 644, of tom)"),
        (3, {"mode": 0o666}, "is not root's alone to write (mode 666"),
    ],
)
def test_files_that_somebody_else_may_write_are_named(at: int, changes: dict[str, Any], words: str) -> None:
    owners = [replace(each, **changes) if n == at else each for n, each in enumerate(OWNERS)]
    found = list(permission_problems(CHAT, owners))
    assert [words in each and OWNERS[at].path in each for each in found] == ([True] if words else [])
    assert in_place({"owned": tuple(owners)})[0] is (not words)


WALLS = ContainerFound(
    status="running",
    health="healthy",
    restart="unless-stopped",
    spec=DRAFTER.spec,
    pid="8",
    image="a",
    config_files=DRAFTER.file.path,
    user=f"{DRAFTER.server.user}:{DRAFTER.server.user}",
    limits=declared_limits(DRAFTER.file.text),
    mounts=(Mount(DRAFTER.model_folder, writable=False),),
    read_only=True,
    network="host",
    ipc_mode="private",
    dropped=("ALL",),
    security=("no-new-privileges:true",),
)
"""As Docker 26.1 has them."""


def container(images: dict[str, ImageFound] | None = None, **changes: Any) -> tuple[bool, str]:
    """The check of a container."""
    return check("drafter", "container", ServerFound(container=replace(WALLS, **changes)), images=images or {})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"RestartPolicy.Name": "no"}, "RestartPolicy.Name"),
        ({"Memory": "1073741824", "MemorySwap": "2147483648"}, "Memory, MemorySwap"),
        ({"PidsLimit": "100"}, "PidsLimit"),
    ],
)
def test_a_container_is_held_to_what_is_declared(change: dict[str, str], words: str) -> None:
    ok, detail = container(limits={**declared_limits(DRAFTER.file.text), **change})
    assert (ok, detail.endswith(words)) == (not words, True), detail


@pytest.mark.parametrize(
    ("changes", "docker", "detail"),
    [
        ({}, "enabled", "llama-drafter is running, healthy"),
        ({"health": ""}, "enabled", "llama-drafter is running, without a health check"),
        ({"status": "exited", "restart": "no"}, "", "llama-drafter is exited, healthy"),
        (
            {"restart": ""},
            "enabled",
            "llama-drafter is running, healthy, but restart is `no` and docker.service enabled",
        ),
        ({}, "", "llama-drafter is running, healthy, but restart is `unless-stopped` and docker.service not there"),
    ],
)
def test_the_state_of_a_container(changes: dict[str, Any], docker: str, detail: str) -> None:
    found = VerifiedServers({"drafter": ServerFound(container=replace(WALLS, **changes))}, docker_enabled=docker)
    assert check_running(DRAFTER, found.servers["drafter"], found) == Check(
        "container", not changes and bool(docker), detail
    )


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("", {}),
        ("ConfigFiles", {"config_files": f"{DRAFTER.file.path},/etc/llamaherd/compose.override.yaml"}),
        ("User", {"user": "0:0"}),
        ("User", {"user": ""}),
        ("Mounts", {"mounts": ()}),
        ("Mounts", {"mounts": (Mount(DRAFTER.model_folder, writable=True),)}),
        ("Mounts", {"mounts": (Mount("/", writable=True), *WALLS.mounts)}),
        ("Mounts", {"mounts": (Mount("/other", writable=False),)}),
        ("Privileged", {"privileged": True}),
        ("ReadonlyRootfs", {"read_only": False}),
        ("NetworkMode", {"network": "llama-drafter_default"}),
        ("PidMode", {"pid_mode": "host"}),
        ("IpcMode", {"ipc_mode": "host"}),
        ("CapAdd", {"added": ("SYS_ADMIN",)}),
        ("CapDrop", {"dropped": ()}),
        ("SecurityOpt", {"security": ()}),
        ("SecurityOpt", {"security": ("no-new-privileges:true", "seccomp=unconfined")}),
    ],
)
def test_a_container_has_the_walls_of_its_file(name: str, changes: dict[str, Any]) -> None:
    assert compose_differences(DRAFTER.file, replace(WALLS, **changes)) == ([name] if name else [])
    assert container(**changes)[0] is (not name)


@pytest.mark.parametrize(
    ("runs", "tagged", "made", "well"),
    [
        ("a", "a", "a", True),
        ("a", "a", "", True),
        ("a", "b", "a", False),
        ("b", "a", "a", False),
        ("b", "b", "a", False),
        ("a", "", "a", False),
    ],
)
def test_a_container_runs_the_image_that_we_made(runs: str, tagged: str, made: str, well: bool) -> None:
    ok, detail = container({str(DRAFTER.server.image): ImageFound(tagged, 5, made)}, image=runs)
    assert (ok, "is another image" not in detail) == (well, well)


RUNS = ProcessFound(sha256="", spec="", uid="0", account="", stopped=False, argv=("a",))


def test_who_runs_a_server_is_its_own_user() -> None:
    for uid, account, well in (("990", "990", True), ("0", "990", False), ("990", "", True)):
        _, detail = check("chat", "process", ServerFound(process=replace(RUNS, uid=uid, account=account)))
        assert ("it runs as user" not in detail) == well


def test_who_holds_the_port_of_a_server_that_does_not_run_is_named() -> None:
    ok, detail = check("chat", "process", ServerFound(holder="nc (process 123)"))
    assert (ok, detail) == (False, "no process runs, and port 8080 is held by nc (process 123)")


def test_a_server_that_is_stopped_says_so() -> None:
    ok, detail = check("chat", "process", ServerFound(process=replace(RUNS, stopped=True)))
    assert (ok, "it is stopped (SIGSTOP)" in detail) == (False, True)


def test_variables_that_a_process_should_not_have_are_named() -> None:
    ok, detail = check("chat", "process", ServerFound(process=replace(RUNS, variables=("GGML_A", "LD_PRELOAD"))))
    words = "it has other variables than the declared ones: GGML_A, LD_PRELOAD: `herd up`"
    assert (ok, words in detail) == (False, True)
