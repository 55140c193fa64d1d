"""Units as an inspection finds them: real folders and real processes, with systemctl as it responds."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from llamaherd.layout import KEPT
from llamaherd.onhost.servers import ServingState, UnitState
from llamaherd.onhost.system import Ended, Host, UnknownStateError
from roles.serve.onhost.containers import Probes
from roles.serve.onhost.inspection import SILENT, find_hangs
from roles.serve.onhost.model import PlannedUnit, Probed, ServerStates
from roles.serve.onhost.processes import health_url, other_variables, port_number
from roles.serve.onhost.units import foreign_files, inspect_units, shared_drop_ins
from tests.support.inspected_host import InspectedHost, RootedHost
from tests.support.played_host import File

UNITS = "/etc/systemd/system"
CHAT = PlannedUnit("llama-chat", ("-",), (), "^LLAMA_", "/health", "/b/llama-server", "llama-chat", ("service.d",))
HOST = Host(lambda _: None, lambda _: None)


@contextmanager
def process(*argv: str, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run a process, and wait until it is that program."""
    ran = subprocess.Popen(argv, env=env, text=True, stdout=subprocess.PIPE)
    try:
        while argv[-1].encode() not in Path(f"/proc/{ran.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        yield ran
    finally:
        ran.kill()
        ran.wait()


def systemctl(blocks: Sequence[str]) -> dict[str, Ended | Callable[[Sequence[str]], Ended]]:
    """As systemd's: what it is asked for by name, then by pattern; at a template it says nothing and gives up."""

    def show(argv: Sequence[str]) -> Ended:
        if "llama-@.service" in argv:
            return Ended(1, "", "Unit name llama-@.service is neither a valid invocation ID nor unit name.")
        return Ended(0, "\n\n".join(blocks) + "\n") if argv[-1] == "llama-*.service" else Ended(0)

    return {"systemctl show -p": show, "getent passwd": Ended(0, "llama-chat:x:0:0::/:/usr/sbin/nologin\n")}


def block(name: str, pid: int | str, **values: str) -> str:
    """Return what systemd reports of a unit."""
    shown = {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no", "InvocationID": "ff=ee="}
    lines = {"MainPID": str(pid), "Id": name, "Names": name, **shown, **values}
    return "\n".join(f"{key}={value}" for key, value in lines.items())


def inspected(root: Path, blocks: Sequence[str], planned: Sequence[PlannedUnit] = ()) -> ServerStates:
    """Return the units that are found where systemd reports this of those that it has."""
    return inspect_units(planned, RootedHost(root, systemctl(blocks)))


def test_each_unit_of_ours_is_found_once_with_what_its_process_was_given(tmp_path: Path) -> None:
    command = ["sh", "-c", "sleep 60; :", "sh", "--port", "1", "--host", "a b", "--port", "8080"]
    env = {"A": "b\nc", "LLAMAHERD_SPEC": "0a1b", "PATH": os.environ["PATH"]}
    with process(*command, env=env) as ours, process("sleep", "60", env={"PATH": os.environ["PATH"]}) as theirs:
        names = "llama-a.service other.service"
        blocks = [
            block("llama-b.service", theirs.pid),
            block("llama-a.service", ours.pid, Names=names),
            block("llama-a.service", ours.pid, Names="other.service llama-a.service"),
            block("llama-x\\x2dy.service", ours.pid, Names='"llama-x\\\\x2dy.service"'),
            block("llama-d.service", 0, ActiveState="failed"),
        ]
        state = UnitState("active", "enabled", False, "ff=ee=", "0a1b", 8080)
        found = inspected(tmp_path, blocks)
        assert found.units == {"llama-a": state, "llama-x\\x2dy": state}
        assert (found.ports, found.serving, found.probed) == ({8080}, {}, [])


def test_a_unit_without_a_process_waits_for_the_port_of_its_file(tmp_path: Path) -> None:
    text = "# Written by llamaherd\nExecStart=/b/llama-server --model m.gguf --host :: --port 8080 --metrics\n"
    RootedHost(tmp_path).put(f"{UNITS}/llama-a.service", text)
    found = inspected(tmp_path, [block("llama-a.service", 0, ActiveState="activating")])
    assert found.units == {"llama-a": UnitState("activating", "enabled", False, "ff=ee=", "", None, 8080)}
    assert found.ports == set()


def test_a_unit_that_systemd_does_not_report_is_known_by_its_file(tmp_path: Path) -> None:
    RootedHost(tmp_path).put(f"{UNITS}/llama-a.service", "# Written by llamaherd\n")
    RootedHost(tmp_path).put(f"{UNITS}/llama-theirs.service", "# Written by hand\n")
    assert inspected(tmp_path, []).units == {"llama-a": UnitState("", "", False, "", "")}
    assert inspected(tmp_path / "empty", []).units == {}


def test_a_file_under_another_name_is_a_unit(tmp_path: Path) -> None:
    host = RootedHost(tmp_path)
    host.put(f"{UNITS}/llama-a.service", "# Written by llamaherd\n")
    found = inspected(tmp_path, [block("other.service", 0, Names="other.service llama-a.service")])
    assert found.units.keys() == {"llama-a"}


def test_what_is_no_unit_keeps_none_from_being_found(tmp_path: Path) -> None:
    host = RootedHost(tmp_path, systemctl([block("llama-a.service", 0, ActiveState="failed")]))
    for name in ("llama-@.service", "llama-a.service"):
        host.put(f"{UNITS}/{name}", "# Written by llamaherd\n")
    assert inspect_units((), host).units["llama-a"].active == "failed"
    assert [words[4:] for words in host.ran] == [
        ["llama-@.service", "llama-a.service", "llama-*.service"],
        *(["llama-@.service"], ["llama-a.service"], ["llama-*.service"]),
    ]


def test_one_call_of_systemctl_is_enough(tmp_path: Path) -> None:
    host = RootedHost(tmp_path, systemctl([block(f"llama-{name}.service", 0) for name in "abc"]))
    inspect_units((CHAT,), host)
    assert [words[0] for words in host.ran] == ["getent", "systemctl"]


@pytest.mark.parametrize("ended", [Ended(124), Ended(1, "", "Failed to connect to bus: Connection refused")])
def test_where_systemd_does_not_respond_the_state_is_unknown(ended: Ended) -> None:
    host = InspectedHost({"systemctl": ended})
    host.folders.add("/run/systemd/system")
    with pytest.raises(UnknownStateError, match="systemd"):
        inspect_units((), host)


def test_a_host_without_systemd_has_no_units() -> None:
    assert inspect_units((CHAT,), InspectedHost()).units == {}


# Files of others


@pytest.mark.parametrize(
    ("text", "is_other"),
    [
        ("[Unit]\nDescription=my llama-server\n[Service]\nExecStart=/usr/bin/llama-server\n", True),
        ("# Written by hand\n[Service]\nExecStart=/usr/bin/llama-server\n", True),
        ("# Written by llamaherd for instance `chat` of rig `attic`: change the inventory, not this file.\n", False),
        ("[Service]\nEnvironment=LLAMAHERD_SPEC=0a1b\n", False),
        ("", False),
        (None, False),
    ],
)
def test_a_unit_of_another_program_with_the_name_of_ours_is_found(
    tmp_path: Path, text: str | None, is_other: bool
) -> None:
    path = f"{UNITS}/{CHAT.service}.service"
    host = RootedHost(tmp_path, systemctl([block(f"{CHAT.service}.service", 0)]))
    if text is not None:
        host.put(path, text)
    found = inspect_units((CHAT,), host).serving[CHAT.service]
    assert found.other_unit == (path if is_other else "")


def test_a_server_that_ran_before_stays_ours_whatever_its_unit_contains(tmp_path: Path) -> None:
    host = RootedHost(tmp_path, systemctl([]))
    host.put(f"{UNITS}/{CHAT.service}.service", "[Service]\nExecStart=/bin/true\n")
    host.put(f"{KEPT}/{CHAT.service}/untried", "0a1b\n")
    assert inspect_units((CHAT,), host).serving[CHAT.service].other_unit == ""


def test_a_container_that_ran_before_makes_no_unit_ours(tmp_path: Path) -> None:
    host = RootedHost(tmp_path, systemctl([]))
    path, kept = f"{UNITS}/{CHAT.service}.service", f"{KEPT}/{CHAT.service}"
    host.put(path, "[Service]\nExecStart=/bin/true\n")
    how = "was_kind=container was_spec=0a1b was_seconds=60 was_file=/c.yaml was_key='' was_inputs=''\n"
    version = host.put(f"{kept}/0a1b/how", how).parent
    (version.parent / "last").symlink_to(version.name)
    assert inspect_units((CHAT,), host).serving[CHAT.service].other_unit == path


def foreign(root: Path) -> ServingState:
    """Return what others wrote for a unit."""
    host = RootedHost(root)
    shared = shared_drop_ins(("service.d", "llama-.service.d"), host)
    return ServingState(foreign=foreign_files("llama-a.service", host), shared=shared)


@pytest.mark.parametrize("name", ["override.conf", "my own.conf", "it's.conf"])
@pytest.mark.parametrize("folder", ["/run/systemd/transient", UNITS, "/run/systemd/system"])
def test_a_drop_in_is_found_wherever_it_lies(tmp_path: Path, folder: str, name: str) -> None:
    host = RootedHost(tmp_path)
    host.put(f"{folder}/llama-a.service.d/{name}", "[Service]\nMemoryMax=1G\n")
    host.put(f"{folder}/llama-a.service.d/README", "systemd reads no such file")
    host.put(f"{folder}/llama-a.service.d/.hidden.conf", "nor this one")
    assert foreign(tmp_path) == ServingState(foreign=(f"{folder}/llama-a.service.d/{name}",))


def test_a_drop_in_that_is_a_link_counts_where_it_leads_to_a_file(tmp_path: Path) -> None:
    drop_ins = f"{UNITS}/llama-a.service.d"
    host = RootedHost(tmp_path)
    file = host.put("/srv/a.conf", "[Service]\nUser=root\n")
    folder = host.put(f"{drop_ins}/README", "").parent
    (folder / "real.conf").symlink_to(file)
    (folder / "masked.conf").symlink_to("/dev/null")
    (folder / "gone.conf").symlink_to("nowhere")
    (folder / "round.conf").symlink_to("round.conf")
    assert foreign(tmp_path) == ServingState(foreign=(f"{drop_ins}/real.conf",))


def test_a_drop_in_whose_name_is_no_text(tmp_path: Path) -> None:
    folder = RootedHost(tmp_path).put(f"{UNITS}/llama-a.service.d/README", "").parent
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.conf")).write_text("[Service]\n")
    assert foreign(tmp_path) == ServingState(foreign=(f"{UNITS}/llama-a.service.d/\ufffd.conf",))


def test_a_definition_that_comes_before_ours_is_found(tmp_path: Path) -> None:
    for root in ("/run/systemd/transient", UNITS, "/run/systemd/system"):
        folder = RootedHost(tmp_path).put(f"{root}/other", "").parent
        (folder / "llama-a.service").symlink_to("/dev/null")
    assert foreign(tmp_path) == ServingState(foreign=("/run/systemd/transient/llama-a.service",))


@pytest.mark.parametrize("folder", ["service.d", "llama-.service.d"])
@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("[Service]\nExecStart=\n ExecStart = /bin/a\nUser=root\n", "ExecStart User"),
        ("[Service]\nEnvironment=A=b ExecStart=c\n", "Environment"),
        ("[Service]\n# ExecStart=/bin/a\nNoNewPrivileges=no\nProtectProc=default\n", ""),
        ("", ""),
    ],
    ids=["what is run", "environment", "walls", "empty"],
)
def test_a_drop_in_for_all_counts_where_it_decides(tmp_path: Path, folder: str, text: str, keys: str) -> None:
    host = RootedHost(tmp_path)
    host.put(f"{UNITS}/{folder}/10-all.conf", text)
    host.put(f"{UNITS}/other.service.d/a.conf", "[Service]\nUser=root\n")
    assert foreign(tmp_path) == ServingState(shared={f"{UNITS}/{folder}/10-all.conf": keys} if keys else {})


# What runs


@pytest.mark.parametrize(
    ("variables", "declared", "strange", "names"),
    [
        ({"A": "b", "EMPTY": "", "HOME": "/"}, ["A=b", "EMPTY="], "^(LLAMA|LD)_", ""),
        ({"A": "c"}, ["A=b", "GONE=1"], "^LLAMA_", "A GONE"),
        ({"LLAMA_ARG_N_PREDICT": "3", "LLAMAHERD_SPEC": "x"}, [], "^(LLAMA|LD)_", "LLAMA_ARG_N_PREDICT"),
        ({"LLAMA_ARG_N_PREDICT": "3"}, [], "", ""),
        ({"A": "b=c 'd' \\", "B": "two\nLLAMA_ARG_HOST=lines"}, ["A=b=c 'd' \\"], "^LLAMA_", ""),
        ({"A": "two\nlines"}, ["A=two\nlines"], "^LLAMA_", ""),
    ],
)
def test_variables_that_a_process_has_otherwise(
    variables: dict[str, str], declared: list[str], strange: str, names: str
) -> None:
    with process("/bin/sleep", "60", env=variables) as ran:
        assert other_variables(str(ran.pid), declared, strange, HOST) == names


def test_a_process_that_has_ended_has_no_variables() -> None:
    assert other_variables("4194305", ["A=b"], "", HOST) == ""


def started(root: Path, pid: int, unit: PlannedUnit = CHAT, **values: str) -> ServingState:
    """Return what is found of a unit with this process."""
    host = RootedHost(root, systemctl([block(f"{unit.service}.service", pid, **values)]))
    host.put(f"/run/llamaherd/started/{unit.service}", "run\tff=ee=\n")
    return inspect_units((unit,), host).serving[unit.service]


SLEEP = ("/bin/sleep", "60")


def test_a_process_as_planned(tmp_path: Path) -> None:
    with process(*SLEEP, env={"LLAMAHERD_SPEC": "0a1b"}) as ran:
        found = started(tmp_path, ran.pid, replace(CHAT, program="/bin/sleep"))
        argv = HOST.digest([f"/proc/{ran.pid}/cmdline"])
    assert replace(found, groups="") == ServingState(argv=argv, arguments=SLEEP)


def test_a_process_of_another_program_user_and_variables(tmp_path: Path) -> None:
    with process(*SLEEP, env={"LLAMAHERD_SPEC": "0a1b", "LLAMA_ARG_X": "1"}) as ran:
        unit = replace(CHAT, program="/bin/true", variables=("A=b",))
        host = RootedHost(tmp_path, systemctl([block("llama-chat.service", ran.pid)]))
        host.answers = {**host.answers, "getent passwd": Ended(0, "llama-chat:x:992:992::/:/bin/false\n")}
        found = inspect_units((unit,), host).serving["llama-chat"]
    assert (found.replaced, found.user, found.variables) == ("/bin/true", str(os.getuid()), "A LLAMA_ARG_X")
    assert found.changed == ("/run/llamaherd/started/llama-chat",)


def test_an_account_that_is_unknown_is_no_other_user(tmp_path: Path) -> None:
    with process(*SLEEP, env={"LLAMAHERD_SPEC": "0a1b"}) as ran:
        assert started(tmp_path, ran.pid, replace(CHAT, user="nobody-there")).user == ""


def test_groups_beside_its_own() -> None:
    host = InspectedHost(systemctl([block("llama-chat.service", 7)]))
    host.process(7, "llama-server", LLAMAHERD_SPEC="0a1b")
    host.files["/proc/7/status"] = File("Uid:\t0\t0\t0\t0\nGid:\t992\t992\t992\t992\nGroups:\t44 992 993 \n")
    assert inspect_units((CHAT,), host).serving["llama-chat"].groups == "44 993"


def test_a_process_that_ends_meanwhile_differs_in_nothing() -> None:
    host = InspectedHost(systemctl([block("llama-chat.service", 7)]))
    host.process(7, "llama-server", "--port", "8080", LLAMAHERD_SPEC="0a1b")
    del host.files["/proc/7/status"]
    found = inspect_units((CHAT,), host)
    assert replace(found.serving["llama-chat"], changed=()) == ServingState()


def test_a_unit_that_still_starts_is_not_compared(tmp_path: Path) -> None:
    """Its program may not run yet; what it was started with is known."""
    with process(*SLEEP, env={"LLAMAHERD_SPEC": "0a1b"}) as ran:
        assert started(tmp_path, ran.pid, ActiveState="activating") == ServingState()


def test_a_unit_is_compared_with_what_it_would_start_with_after_drop_ins_of_others_went(tmp_path: Path) -> None:
    theirs, ours = f"{UNITS}/llama-chat.service.d/my own.conf", "/usr/lib/systemd/system/service.d/1.conf"
    host = RootedHost(tmp_path)
    texts = {theirs: "[Service]\nNice=5\n", ours: "[Service]\n", f"{UNITS}/llama-chat.service": "[Service]\n"}
    files = {path: str(host.put(path, text)) for path, text in texts.items()}
    sums = {path: host.digest([path]) for path in files}
    paths = {"FragmentPath": f"{UNITS}/llama-chat.service", "DropInPaths": f"{theirs} {ours}"}

    def changed(*recorded: str) -> tuple[str, ...]:
        with process(*SLEEP, env={"LLAMAHERD_SPEC": "0a1b"}) as ran:
            rooted = RootedHost(tmp_path, systemctl([block("llama-chat.service", ran.pid, **paths)]))
            lines = ["run\tff=ee=", *(f"file\t{sums[path]}\t{path}" for path in recorded)]
            rooted.put("/run/llamaherd/started/llama-chat", "".join(f"{line}\n" for line in lines))
            found = inspect_units((CHAT,), rooted).serving["llama-chat"]
            assert found.foreign == (theirs,)
            return found.changed

    assert changed(f"{UNITS}/llama-chat.service", ours) == ()
    assert changed(f"{UNITS}/llama-chat.service", ours, theirs) == (theirs,)


# Where it is probed

LISTENS = """
import socket, sys, time
family = socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET
at = socket.create_server((sys.argv[2], int(sys.argv[4])), family=family)
while sys.argv[5] == "answers":
    there, _ = at.accept()
    there.recv(1000)
    there.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\n")
    there.close()
time.sleep(600)
"""


@pytest.mark.parametrize(("listens", "at"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "::1")])
@pytest.mark.parametrize("does", ["answers", "hangs"])
def test_a_server_is_probed_where_it_listens_and_not_where_it_is_planned_to(
    tmp_path: Path, listens: str, at: str, does: str
) -> None:
    with socket.socket(socket.AF_INET6 if ":" in at else socket.AF_INET) as free:
        free.bind((at, 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", LISTENS, "--host", listens, "--port", str(port), does]
    with process(*command, env={"LLAMAHERD_SPEC": "0a1b", "PATH": os.environ["PATH"]}) as ran:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                socket.create_connection((at, port)).close()
                break
            except OSError:
                time.sleep(0.05)
        host = RootedHost(tmp_path, systemctl([block("llama-chat.service", ran.pid)]))
        found = inspect_units((CHAT,), host)
        assert found.units["llama-chat"].port == port
        url = f"http://[{at}]:{port}/health" if ":" in at else f"http://{at}:{port}/health"
        assert found.probed == [Probed("llama-chat", str(ran.pid), url)]
        hangs = find_hangs(found.probed, host, Probes())
    assert hangs == ({"llama-chat": SILENT} if does == "hangs" else {})


@pytest.mark.parametrize(
    ("text", "number"), [("8080", 8080), ("65535", 65535), ("", None), ("0", None), ("65536", None), ("²", None)]
)
def test_the_number_of_a_port(text: str, number: int | None) -> None:
    assert port_number(text) == number


def test_a_server_without_an_address_of_its_own_is_reached_at_the_loopback() -> None:
    assert health_url("", 8080, "/health") == "http://127.0.0.1:8080/health"
    assert health_url("::", 8080, "/health") == "http://[::1]:8080/health"
