"""What verification says of what a host's owner can change by hand: accounts, folders, drop-ins, programs, limits."""

from __future__ import annotations

import hashlib
import json

import pytest

from llamaherd.host.answers import Answers
from llamaherd.host.limits import declared_limits
from llamaherd.inventory.schema import Rig
from roles.base.verify import host_checks
from roles.serve.verify.container import otherwise
from roles.serve.verify.permissions import permissions
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


def check(name: str, kind: str, answers: Answers) -> tuple[bool, str]:
    """One check of one instance."""
    report = judge(Rig.model_validate(cpu_rig()), PLAN, answers)
    (instance,) = (each for each in report.instances if each.name == name)
    (one,) = (each for each in instance.checks if each.name == kind)
    return one.ok, one.detail


def unit(*lines: str) -> Answers:
    """What systemd says of a unit that runs."""
    return {("serving", "chat"): "\n".join(["ActiveState=active", "UnitFileState=enabled", *lines])}


def test_a_unit_is_its_file_and_its_drop_ins() -> None:
    ours, shared = f"FragmentPath={CHAT.file.path}", "/usr/lib/systemd/system/service.d/10-all.conf"
    assert check("chat", "unit", unit(ours, f"DropInPaths={shared}"))[0]
    drop_in = "/run/systemd/system/llama-chat.service.d/a b.conf"
    ok, detail = check("chat", "unit", unit(ours, f"DropInPaths={shared} {drop_in}"))
    assert (ok, drop_in in detail) == (False, True)
    assert not check("chat", "unit", unit("FragmentPath=/run/systemd/transient/llama-chat.service"))[0]
    assert not check("chat", "unit", unit(ours, "NeedDaemonReload=yes"))[0]


def test_a_program_that_is_not_what_was_built_is_named() -> None:
    right = hashlib.sha256(b"right").hexdigest()
    answers: dict[tuple[str, str], str] = {
        ("build", BUILD.id): json.dumps({"id": BUILD.id, "sha256": {"llama-server": right}}),
        ("file", "chat"): hashlib.sha256(CHAT.file.text.encode()).hexdigest(),
        **{("model", model.folder): f"{model.files[0].size or 1}\t{model.files[0].name}" for model in PLAN.models},
        ("programs", BUILD.id): f"{right}  llama-server",
    }
    assert check("chat", "files", answers)[0]
    ok, detail = check("chat", "files", {**answers, ("programs", BUILD.id): f"{'0' * 64}  llama-server"})
    assert (ok, f"{BUILD.folder}/bin/llama-server is not what was built" in detail) == (False, True)
    ok, detail = check("chat", "files", {**answers, ("unreadable", "chat"): f"there is no {CHAT.model_path}"})
    assert (ok, f"there is no {CHAT.model_path}" in detail) == (False, True)


OWNERS = [
    f"644\troot\tf\t{CHAT.file.path}",
    f"400\tllama-chat\tf\t{CHAT.key_file}",
    f"755\troot\td\t{CHAT.model_folder}",
    f"644\troot\tf\t{CHAT.model_path}",
]


@pytest.mark.parametrize(
    ("line", "otherwise", "words"),
    [
        (0, "", ""),
        (0, f"664\troot\tf\t{CHAT.file.path}", "is not root's alone to write (mode 664, of root)"),
        (0, f"644\ttom\tf\t{CHAT.file.path}", "is not root's alone to write (mode 644, of tom)"),
        (0, f"777\troot\tl\t{CHAT.file.path}", "is a symbolic link"),
        (1, f"440\tllama-chat\tf\t{CHAT.key_file}", "is not llama-chat's alone (mode 440"),
        (1, f"400\troot\tf\t{CHAT.key_file}", "is not llama-chat's alone (mode 400, of root)"),
        (1, f"777\tllama-chat\tl\t{CHAT.key_file}", "is not llama-chat's alone"),
        (2, f"777\troot\td\t{CHAT.model_folder}", "is not root's alone to write (mode 777"),
        (3, f"644\ttom\tf\t{CHAT.model_path}", "is not root's alone to write (mode 644, of tom)"),
        (3, f"666\troot\tf\t{CHAT.model_path}", "is not root's alone to write (mode 666"),
    ],
)
def test_files_that_somebody_else_may_write_are_named(line: int, otherwise: str, words: str) -> None:
    owners = [otherwise if n == line and otherwise else each for n, each in enumerate(OWNERS)]
    found = list(permissions(CHAT, "\n".join(owners)))
    assert [words in each and otherwise.split("\t")[-1] in each for each in found] == ([True] if words else [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"RestartPolicy.Name": "no"}, "RestartPolicy.Name"),
        ({"Memory": "1073741824", "MemorySwap": "2147483648"}, "Memory, MemorySwap"),
        ({"PidsLimit": "100"}, "PidsLimit"),
        ({"CpuShares": "0", "CpusetCpus": "", "BlkioWeight": "null", "MemorySwap": "-1"}, ""),
    ],
)
def test_a_container_is_held_to_what_is_declared(change: dict[str, str], words: str) -> None:
    limits = " ".join(f"{name}={value}" for name, value in {**declared_limits(DRAFTER.file.text), **change}.items())
    lines = ["Status=running", "Health=healthy", "Restart=unless-stopped", f"Limits={limits}", "Docker=enabled"]
    ok, detail = check("drafter", "container", {("serving", "drafter"): "\n".join(lines)})
    assert (ok, detail.endswith(words)) == (not words, True), detail


WALLS = {
    "ConfigFiles": DRAFTER.file.path,
    "User": f"{DRAFTER.server.user}:{DRAFTER.server.user}",
    "Mounts": f'[[false,"{DRAFTER.model_folder}"],null]',
    "Privileged": "false",
    "ReadonlyRootfs": "true",
    "NetworkMode": '"host"',
    "PidMode": '""',
    "IpcMode": '"private"',
    "CapAdd": "null",
    "CapDrop": '["ALL"]',
    "SecurityOpt": '["no-new-privileges:true"]',
}
"""As Docker 26.1 says them."""


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("", ""),
        ("ConfigFiles", f"{DRAFTER.file.path},/etc/llamaherd/compose/drafter/compose.override.yaml"),
        ("User", "0:0"),
        ("User", ""),
        ("Mounts", "[null]"),
        ("Mounts", WALLS["Mounts"].replace("false", "true")),
        ("Mounts", '[[true,"/"],' + WALLS["Mounts"][1:]),
        ("Mounts", '[[false,"/other"],null]'),
        ("Privileged", "true"),
        ("ReadonlyRootfs", "false"),
        ("NetworkMode", '"llama-drafter_default"'),
        ("PidMode", '"host"'),
        ("IpcMode", '"host"'),
        ("CapAdd", '["SYS_ADMIN"]'),
        ("CapDrop", "null"),
        ("SecurityOpt", "null"),
        ("SecurityOpt", '["no-new-privileges:true","seccomp=unconfined"]'),
    ],
)
def test_a_container_has_the_walls_of_its_file(name: str, instead: str) -> None:
    said = {**WALLS, **({name: instead} if name else {})}
    assert otherwise(DRAFTER.file, said) == ([name] if name else [])


@pytest.mark.parametrize(
    ("images", "well"),
    [
        (["Runs=a", "Tagged=a", "Made=a"], True),
        (["Runs=a", "Tagged=a", "Made="], True),
        (["Runs=a", "Tagged=b", "Made=a"], False),
        (["Runs=b", "Tagged=a", "Made=a"], False),
        (["Runs=b", "Tagged=b", "Made=a"], False),
        (["Runs=a", "Tagged=", "Made=a"], False),
    ],
)
def test_a_container_runs_the_image_that_we_made(images: list[str], well: bool) -> None:
    lines = ["Status=running", "Health=healthy", "Restart=unless-stopped", "Docker=enabled", *images]
    ok, detail = check("drafter", "container", {("serving", "drafter"): "\n".join(lines)})
    assert (ok, "is another image" not in detail) == (well, well)


def test_who_runs_a_server_is_its_own_user() -> None:
    for uid, account, well in (("990", "990", True), ("0", "990", False), ("990", "", True)):
        _, detail = check("chat", "process", {("process", "chat"): f"uid={uid}\naccount={account}\nargv=a"})
        assert ("it runs as user" not in detail) == well


def test_who_holds_the_port_of_a_server_that_does_not_run_is_named() -> None:
    ok, detail = check("chat", "process", {("holder", "chat"): "nc (process 123)"})
    assert (ok, detail) == (False, "no process runs, and port 8080 is held by nc (process 123)")


def test_a_server_that_is_stopped_says_so() -> None:
    ok, detail = check("chat", "process", {("process", "chat"): "state=stopped\nargv=a"})
    assert (ok, "it is stopped (SIGSTOP)" in detail) == (False, True)
