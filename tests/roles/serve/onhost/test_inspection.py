"""An inspection of servers as a whole: what runs have recorded, what servers may not read, and the state from it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from llamaherd.host.protocol import NotInspectedError, UnexpectedLineError
from llamaherd.host.state import ServersState
from llamaherd.onhost.document import decode, dump, encode, parse_document
from llamaherd.onhost.servers import Holder, Holding, Loaded, Refused, ServingState, UnitState
from llamaherd.onhost.system import TIMED_OUT, Ended, UnknownStateError
from llamaherd.onhost.verbs import find_verb
from llamaherd.onhost.verification import Inspected
from llamaherd.pipeline.inspection import state_of
from roles import ROLES
from roles.serve.onhost.inspection import SILENT, find_closed, inspect
from roles.serve.onhost.model import InspectedServers, InspectServersInput, UsedPort
from roles.serve.state import ServeState, inspection_input, state_parts
from tests.onhost.test_hostile_inputs import SHELLS, texts, with_text
from tests.support.hostile import PLAIN
from tests.support.inspected_host import InspectedHost, RootedHost
from tests.support.rigs import cpu_rig, gpu_rig, planned
from tests.support.stores import needs_root

VERB = "serve.inspection.inspect"
CPU, GPU = planned(cpu_rig()), planned(gpu_rig())
PAUSED = "/var/lib/llamaherd/paused"
KEPT, REFUSED = "/var/lib/llamaherd/kept", "/var/lib/llamaherd/refused"
SYSTEMD = {"systemctl show -p": Ended(0), "getent": Ended(2), "setpriv": Ended(1)}


def host(texts: Mapping[str, str]) -> InspectedHost:
    """Return a host with these files, and no server."""
    return InspectedHost(SYSTEMD, texts)


def found(texts: Mapping[str, str]) -> InspectedServers:
    """Return what is found where nothing is planned."""
    each = host(texts)
    return inspect(InspectServersInput(), each, each)


# What runs have recorded


@pytest.mark.parametrize(
    ("path", "text", "state"),
    [
        (f"{REFUSED}/llama-a", "0a1b\t2026-11-27 10:00:00\tit did not\tserve\nmore\n", "refused"),
        (f"{KEPT}/llama-a/last/loaded", "12345\t/m/a b\t/m/c\n", "loaded"),
        (f"{KEPT}/llama-a/last/holds", "0a1b\tRAM\t=1\tRAM=5\tGPU a=b=7\tGPU=x\n", "holding"),
        (f"{KEPT}/llama-a/untried", "0a1b\n\n0001\n0a1b\n", "untried"),
        ("/run/systemd/system/llamaherd-beside-a.service", "", "beside"),
        (f"{PAUSED}/llama-a/pause.json", '{"server":"a","since":5,"until":7}', "paused"),
    ],
)
def test_records(path: str, text: str, state: str) -> None:
    states = {
        "refused": ServingState(refused=Refused("0a1b", "2026-11-27 10:00:00", "it did not\tserve")),
        "loaded": ServingState(loaded=Loaded(12.345, ("/m/a b", "/m/c"))),
        "holding": ServingState(holding=Holding("0a1b", {"RAM": 5, "GPU a=b": 7, "": 1})),
        "untried": ServingState(untried=("0001", "0a1b")),
        "beside": ServingState(beside=True),
        "paused": ServingState(pause_left=0.0),
    }
    assert found({path: text}) == InspectedServers(serving={"llama-a": states[state]})


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{REFUSED}/llama-a", ""),
        (f"{REFUSED}/llama-a", "\n"),
        (f"{KEPT}/llama-a/last/loaded", "soon\t/m\n"),
        (f"{KEPT}/llama-a/last/loaded", "²\t/m\n"),
        (f"{KEPT}/llama-a/last/loaded", "9" * 400),
        (f"{KEPT}/llama-a/last/holds", "\n"),
        (f"{KEPT}/llama-a/untried", "\n"),
        (f"{KEPT}/.exchange/untried", "0a1b\n"),
        ("/run/systemd/system/llamaherd-beside-a.socket", ""),
        ("/etc/llamaherd/keys/Odd Name", "key"),
        ("/etc/llamaherd/keys/a/b", "key"),
        ("/etc/llamaherd/compose/file", ""),
        (f"{PAUSED}/llama-a/pause.json", "{}"),
        (f"{PAUSED}/llama-a/resume.json", "{}"),
    ],
)
def test_what_is_no_record(path: str, text: str) -> None:
    assert found({path: text}) == InspectedServers()


def test_an_attempt_without_a_reason() -> None:
    assert found({f"{REFUSED}/llama-a": "0a1b"}).serving["llama-a"].refused == Refused("0a1b", "", "")


def test_a_version_that_a_link_leads_to() -> None:
    each = host({f"{KEPT}/llama-a/7f/loaded": "1000\t/m\n", f"{KEPT}/llama-a/how": ""})
    each.links[f"{KEPT}/llama-a/last"] = "7f"
    each.files[f"{KEPT}/llama-a/last/loaded"] = each.files[f"{KEPT}/llama-a/7f/loaded"]
    assert inspect(InspectServersInput(), each, each).serving["llama-a"].loaded == Loaded(1.0, ("/m",))


def test_an_exchange_that_was_cut_off() -> None:
    members = {f"{KEPT}/.exchange/members": "llama-a, llama-b\n"}
    assert found(members).cut_off == ""
    assert found({**members, f"{KEPT}/.exchange/back": ""}).cut_off == ""
    assert found({**members, f"{KEPT}/.exchange/back": "x"}).cut_off == "llama-a, llama-b"


def test_keys_and_projects() -> None:
    each = found({"/etc/llamaherd/keys/chat": "k", "/etc/llamaherd/compose/drafter/compose.yaml": ""})
    assert (each.keys, each.projects) == (("chat",), ("drafter",))


# All of it


def serving() -> InspectedHost:
    """Return a host where the planned unit hangs, and its variables are not the declared ones."""
    each = host({f"{KEPT}/llama-chat/untried": "0a1b\n"})
    shown = "Id=llama-chat.service\nNames=llama-chat.service\nMainPID=7\nActiveState=active\nUnitFileState=enabled\n"
    each.answers |= {
        "systemctl show -p": Ended(0, f"{shown}NeedDaemonReload=no\nInvocationID=ff\n"),
        "systemctl show-environment": Ended(0, "LD_PRELOAD=x\nPATH=/bin\n"),
    }
    each.process(7, "llama-server", "--host", "0.0.0.0", "--port", "8080", LLAMAHERD_SPEC="0a1b", LD_PRELOAD="x")
    each.silent = {":8080"}
    return each


def test_the_states_of_a_server_come_together() -> None:
    each = serving()
    result = inspect(inspection_input(CPU), each, each)
    assert result.units == {"llama-chat": UnitState("active", "enabled", False, "ff", "0a1b", 8080)}
    state = result.serving["llama-chat"]
    assert (state.hangs, state.untried, state.given_to_all) == (SILENT, ("0a1b",), "LD_PRELOAD")
    assert "LD_PRELOAD" in state.variables.split()
    assert each.requested[0] == "http://127.0.0.1:8080/health"
    assert decode(InspectedServers, parse_document(dump(result).encode())) == result


def test_systemd_is_queried_once_where_variables_are_as_declared() -> None:
    each = host({})
    inspect(inspection_input(CPU), each, each)
    assert [words[0] for words in each.ran].count("systemctl") == 1


@pytest.mark.parametrize("part", ["systemd", "Docker"])
def test_what_does_not_respond_makes_the_state_unknown(part: str) -> None:
    each = host({})
    if part == "systemd":
        each.folders.add("/run/systemd/system")
        each.answers["systemctl show -p"] = Ended(124)
    else:
        each.docker_api = TimeoutError("timed out")
        each.answers["systemctl show -P"] = Ended(0, "active\n")
    with pytest.raises(UnknownStateError) as caught:
        inspect(inspection_input(CPU), each, each)
    assert caught.value.part == part


@pytest.mark.parametrize("plan", [CPU, GPU], ids=["cpu", "gpu"])
def test_a_question_has_all_that_a_plan_names(plan: Any) -> None:
    document = dump(inspection_input(plan))
    assert decode(find_verb(VERB).input, parse_document(document.encode())) == inspection_input(plan)
    named = [each.service for each in plan.instances] + [each.folder for each in plan.models]
    named += [each.tag for each in plan.images] + [f"{each.folder}/bin/llama-server" for each in plan.builds]
    assert [each for each in named if json.dumps(each) not in document] == []
    assert [each.service for each in inspection_input(plan).units] == [each.service for each in plan.of("systemd")]
    assert inspection_input(plan).ports == tuple(sorted({each.endpoint.port for each in plan.instances}))


def test_gpus_of_containers() -> None:
    (boxed,) = [each for each in inspection_input(GPU).containers if each.service == "llama-boxed"]
    (instance,) = [each for each in GPU.instances if each.service == "llama-boxed"]
    assert boxed.gpus == tuple(card.at for card in instance.server.cards)
    assert not any(each.gpus for each in inspection_input(CPU).containers)


def test_a_hostile_text_reaches_no_shell() -> None:
    given = inspection_input(GPU)
    places = sorted({*texts(given)} - {""} - {*given.limits})
    assert len(places) > 20
    for at, place in enumerate(places):
        each = serving()
        changed = with_text(given, place, PLAIN[at % len(PLAIN)])
        if any("^" in expression.strange_variables for expression in changed.units):
            inspect(changed, each, each)
        assert not any(words[0] in SHELLS or "-c" in words for words in each.ran)


# What servers may not read


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that everybody may read: that of a test is its owner's alone."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@needs_root
@pytest.mark.usefixtures("starts_processes")
def test_what_servers_may_not_read(folder: Path) -> None:
    root = RootedHost(folder)

    def put(name: str, mode: int, owner: int = 0) -> str:
        file = root.put(f"{folder}/{name}", "x")
        file.chmod(mode)
        os.chown(file, owner, owner)
        return str(file)

    open_program, closed_program = put("bin/open", 0o755), put("bin/closed", 0o700)
    put("models/a/open.gguf", 0o644)
    closed = put("models/a/a 'b'\n.gguf", 0o600)
    put("models/a/theirs.gguf", 0o600, 1234)
    put("models/a/.manifest", 0o600)
    put("models/a/inner/x.gguf", 0o644)
    (folder / "models/a/inner").chmod(0o700)
    put("models/closed/x.gguf", 0o644)
    (folder / "models/closed").chmod(0o744)
    (folder / "models/link").symlink_to(folder / "models/a/open.gguf")
    stores = [str(folder / "models" / name) for name in ("a", "closed", "gone", "link")]
    reads = (open_program, closed_program, str(folder / "bin/gone"))
    found = find_closed(InspectServersInput(reads=reads, stores=tuple(stores)), root)
    inner = str(folder / "models/a/inner")
    assert sorted(found) == sorted([closed_program, closed, inner, str(folder / "models/closed")])


def test_where_that_cannot_be_tried_nothing_is_closed() -> None:
    each = host({"/opt/x/bin/llama-server": ""})
    assert find_closed(InspectServersInput(reads=("/opt/x/bin/llama-server",)), each) == ()
    each.answers["setpriv"] = Ended(1, "/\0")
    assert find_closed(InspectServersInput(reads=("/opt/x/bin/llama-server",)), each) == ("/opt/x/bin/llama-server",)


def test_a_disk_that_does_not_respond_is_not_taken_for_one_without_closed_files() -> None:
    each = host({"/opt/x/bin/llama-server": ""})
    each.answers["setpriv"] = Ended(TIMED_OUT, "/\0")
    with pytest.raises(UnknownStateError, match="the disk with models did not respond"):
        find_closed(InspectServersInput(reads=("/opt/x/bin/llama-server",)), each)


def test_nothing_is_tried_where_nothing_is_read() -> None:
    each = host({})
    assert (find_closed(InspectServersInput(), each), each.ran) == ((), [])


# The state of the host


def test_the_state_has_all_that_was_found() -> None:
    result = InspectedServers(
        units={"llama-a": UnitState("active", "enabled", True, "ff", "0a", 8080, 8081)},
        serving={"llama-a": ServingState(changed=("/k",))},
        images=("x:y",),
        off_gpus=("llama-b",),
        closed=("/a b",),
        projects=("drafter",),
        keys=("chat",),
        ports=(
            UsedPort(8080, "", Holder(7, "a b", "")),
            UsedPort(8081, "llama-c", Holder(8, "x", "")),
        ),
        cut_off="llama-a, llama-b",
    )
    servers, own = state_parts(result)
    assert servers == ServersState(result.units, {}, result.serving, {"x:y"}, ("/a b",))
    assert own == ServeState(
        holders={8080: Holder(7, "a b", "")},
        own_ports={8081: "llama-c"},
        projects={"drafter"},
        off_gpus={"llama-b"},
        keys={"chat"},
        cut_off="llama-a, llama-b",
    )


def test_the_state_of_a_host_without_servers() -> None:
    assert state_parts(InspectedServers()) == (ServersState(), ServeState())


WRONG: dict[str, object] = {
    "a port that is text": {"units": {"llama-a": [*("active", "enabled", False, "", ""), "8080"]}},
    "a unit without a state": {"units": {"llama-a": {}}},
    "a number of a process": {
        "ports": [{"port": 8080, "unit": "", "holder": {"pid": "7", "program": "", "container": ""}}]
    },
    "seconds": {"serving": {"llama-a": {"loaded": {"seconds": "soon", "folders": []}}}},
    "too many seconds": {"serving": {"llama-a": {"loaded": {"seconds": 10**400, "folders": []}}}},
    "bytes": {"serving": {"llama-a": {"holding": {"spec": "", "room": {"RAM": 1.5}}}}},
    "a field that there is not": {"serving": {"llama-a": {"gone": ""}}},
    "paths": {"closed": "/a"},
    "limits": {"containers": {"llama-a": {"status": "", "health": "", "run": "", "spec": "", "limits": {"Memory": 1}}}},
}


@pytest.mark.parametrize("case", WRONG)
def test_what_the_program_cannot_have_returned(case: str) -> None:
    with pytest.raises(UnexpectedLineError, match="printed an unexpected line"):
        state_of(encode(Inspected(parts={VERB: WRONG[case]})), ROLES)


@pytest.mark.parametrize("parts", [["systemd"], ["Docker"], ["systemd", "Docker"]])
def test_nothing_follows_from_an_inspection_that_something_did_not_respond_to(parts: list[str]) -> None:
    with pytest.raises(NotInspectedError) as caught:
        state_of(encode(Inspected(unknown=tuple(parts))), ROLES)
    names = " and ".join(sorted(parts))
    assert caught.value.message == f"{names} did not respond to the inspection, so what runs there is left as it is"


def test_files_are_read_that_links_lead_to() -> None:
    each = host({"/srv/key": "k"})
    each.links["/etc/llamaherd/keys/chat"] = "../../../srv/key"
    each.links["/etc/llamaherd/keys/gone"] = "nowhere"
    assert inspect(InspectServersInput(), each, each).keys == ("chat",)
