"""A verification of servers on a played host: what is loaded and started, who may read what, and what responds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from llamaherd.host.responses import parse_reply
from llamaherd.onhost.document import decode, dump, encode, parse_document
from llamaherd.onhost.system import NOT_STARTED, TIMED_OUT, Ended
from llamaherd.onhost.verbs import find_verb
from roles.serve.onhost.model import (
    ContainerFound,
    ImageFound,
    Mount,
    OwnedFile,
    PlannedServer,
    ProbeResult,
    ProcessFound,
    Requests,
    Responses,
    UnitFound,
    VerifiedServers,
    VerifyServersInput,
)
from roles.serve.onhost.verification import MOST_BYTES, send_requests, verify
from roles.serve.state import LIMITS
from roles.serve.verify import healthy_names, verification_input
from tests.onhost.test_hostile_inputs import SHELLS, texts, with_text
from tests.render.plans import GROUP
from tests.support.hostile import PLAIN
from tests.support.played_host import File
from tests.support.rigs import cpu_rig, gpu_rig, planned
from tests.support.verified_host import KEY, UNIT, VerifiedHost, container

VERB = "serve.verification.verify"
CPU, GPU = planned(cpu_rig()), planned(gpu_rig())
SWAPPING = GPU.model_copy(update={"instances": (GROUP,)})
SYSTEMD = {
    "systemctl show -p Id,ActiveState": Ended(0, UNIT),
    "systemctl is-enabled": Ended(0, "enabled\n"),
    "docker inspect": Ended(0, container()),
    "docker image": Ended(0, '{"Id":"sha256:1f","Size":5}\n'),
    "docker ps": Ended(0, "web 0.0.0.0:80->80/tcp\n"),
    "id -u": Ended(0, "990\n"),
    "setpriv": Ended(0),
}


def given(plan: Any = CPU) -> VerifyServersInput:
    """Return what is verified for a plan."""
    made = verification_input(plan)
    assert made
    return made


def server(name: str = "chat", plan: Any = CPU) -> PlannedServer:
    """Return a planned server."""
    return next(each for each in given(plan).servers if each.name == name)


def host(answers: Mapping[str, Ended] | None = None, files: Mapping[str, str] | None = None) -> VerifiedHost:
    """Return a host where all servers run."""
    each = VerifiedHost({**(answers or {}), **SYSTEMD}, {"/etc/llamaherd/keys/chat": f"{KEY}\nmore", **(files or {})})
    each.folders.add("/run/systemd/system")
    variables = dict(text.split("=", 1) for text in server().variables)
    each.process(7, "/bin/llama-server", "--port", "8080", **variables)
    each.process(8, "llama-server")
    return each


def verified(each: VerifiedHost, *servers: PlannedServer) -> VerifiedServers:
    """Return what is found of servers."""
    return verify(VerifyServersInput(servers or given().servers, given().images, LIMITS), each, each.probe)


# Units, containers and images


def test_a_verification_finds_units_and_containers() -> None:
    each = host()
    found = verified(each)
    assert found.servers["chat"].unit == UnitFound("active", "enabled", "success", "", (), False, "7")
    assert found.servers["chat"].container is None
    assert found.servers["drafter"].container == ContainerFound(
        status="running",
        health="healthy",
        restart="unless-stopped",
        spec="0a1b",
        pid="8",
        image="sha256:1f",
        config_files="/etc/c.yaml",
        user="990:990",
        limits={"RestartPolicy.Name": "unless-stopped", "PidsLimit": "100"},
        mounts=(Mount("/models/a b", writable=False),),
        read_only=True,
        network="host",
        ipc_mode="private",
        dropped=("ALL",),
        security=("no-new-privileges:true",),
    )
    assert (found.docker_enabled, found.unknown, found.published) == ("enabled", (), ())
    assert {*found.images.values()} == {ImageFound("sha256:1f", 5, "")}
    assert decode(VerifiedServers, parse_document(dump(found).encode())) == found
    assert list(healthy_names(found)) == ["chat", "drafter"]


def test_drop_ins_are_those_that_systemd_has_loaded() -> None:
    own, shared = "/run/systemd/system/llama-chat.service.d/a b.conf", "/etc/systemd/system/service.d/all of it.conf"
    harmless = "/usr/lib/systemd/system/service.d/10-all.conf"
    shown = f"{UNIT}DropInPaths={own} {shared} {harmless}\nFragmentPath=/a.service\nNeedDaemonReload=yes\n"
    texts = {
        shared: "[Service]\n# User=x\n User = tom\nEnvironment=A=b\nEnvironment=C=d\nNice=5\n",
        harmless: "Nice=5\nTimeoutStartSec=5\n",
        "/etc/systemd/system/service.d/unread.conf": "[Service]\nUser=root\n",
    }
    each = host({"systemctl show -p Id,ActiveState": Ended(0, shown)}, texts)
    each.answers["systemctl show -p Id,ActiveState"] = Ended(0, shown)
    unit = verified(each, server()).servers["chat"].unit
    assert unit
    assert (unit.drop_ins, unit.file, unit.needs_reload) == ((own,), "/a.service", True)
    assert unit.shared == {shared: "Environment User"}


def test_a_unit_is_found_by_an_alias() -> None:
    each = host()
    each.answers["systemctl show -p Id,ActiveState"] = Ended(0, UNIT.replace("llama-chat", "other"))
    assert verified(each, server()).servers["chat"].unit


@pytest.mark.parametrize("shown", [Ended(0), Ended(1, "", "no such unit"), Ended(NOT_STARTED)])
def test_a_unit_that_systemd_does_not_know(shown: Ended) -> None:
    each = host()
    each.answers["systemctl show -p Id,ActiveState"] = shown
    found = verified(each, server())
    assert (found.servers["chat"].unit, found.servers["chat"].process, found.unknown) == (None, None, ())


def test_a_unit_that_does_not_run_has_no_process() -> None:
    each = host()
    each.answers["systemctl show -p Id,ActiveState"] = Ended(0, UNIT.replace("MainPID=7", "MainPID=0"))
    found = verified(each, server()).servers["chat"]
    assert (found.unit and found.unit.pid, found.process) == ("", None)


def test_a_paused_server_gets_no_request_unless_it_runs() -> None:
    record = {"/var/lib/llamaherd/paused/llama-chat/pause.json": '{"server":"chat","since":0,"until":4e9}'}
    each = host(files=record)
    assert verified(each, server()).servers["chat"].pause_left is None
    assert each.urls()
    each = host(files=record)
    each.answers["systemctl show -p Id,ActiveState"] = Ended(0, UNIT.replace("MainPID=7", "MainPID=0"))
    found = verified(each, server()).servers["chat"]
    assert found.pause_left is not None
    assert found.pause_left > 1e9
    assert each.urls() == []


def test_a_container_without_health_or_labels() -> None:
    each = host()
    each.answers["docker inspect"] = Ended(0, container(Health="", Labels=None, Mounts=None, Pid=0))
    found = verified(each, server("drafter")).servers["drafter"]
    assert found.container
    assert (found.container.health, found.container.spec, found.container.mounts) == ("", "", ())
    assert (found.container.pid, found.process) == ("", None)


def test_what_is_absent_has_no_container_and_no_image() -> None:
    each = host(files={str(given().images[0].record): "sha256:2e\n"})
    each.answers["docker inspect"] = each.answers["docker image"] = Ended(1, "\n", "Error: No such object")
    found = verified(each)
    assert found.servers["drafter"].container is None
    assert (found.images, found.unknown) == ({given().images[0].tag: ImageFound("", 0, "sha256:2e")}, ())


@pytest.mark.parametrize("part", ["systemd", "Docker"])
def test_what_does_not_respond_is_unknown_and_the_rest_is_found(part: str) -> None:
    each = host()
    begins = "systemctl" if part == "systemd" else "docker"
    each.answers = {name: Ended(TIMED_OUT) if name.startswith(begins) else how for name, how in each.answers.items()}
    found = verified(each)
    assert found.unknown == (part,)
    assert (found.servers["chat"].unit is None) is (part == "systemd")
    assert found.servers["drafter"].container is None or part == "systemd"
    assert all(parse_reply(each.responses.health).status == 200 for each in found.servers.values())
    assert [words[0] for words in each.ran].count("docker") <= 3, "one that hangs is queried once"


@pytest.mark.parametrize("out", ["", "x", "[]", "null", "5", '{"Status":5}', container(HostConfig=None), "[" * 99_999])
@pytest.mark.parametrize("program", ["docker inspect", "docker image"])
def test_docker_that_returns_something_else_is_unknown(program: str, out: str) -> None:
    each = host()
    each.answers[program] = Ended(0, out)
    assert verified(each).unknown == ("Docker",)


def test_what_containers_publish_is_listed_where_there_is_docker() -> None:
    each = host(files={"/var/run/docker.sock": ""})
    each.answers["docker ps"] = Ended(0, "".join(f"{n} 0.0.0.0:{n}->80/tcp\n" for n in range(200)))
    found = verified(each, server())
    assert (len(found.published), found.published[7]) == (100, "7 0.0.0.0:7->80/tcp")
    assert found.docker_enabled == "", "no server is in a container"


# The process


def process(each: VerifiedHost, **changes: Any) -> ProcessFound:
    """Return the process of `chat`."""
    found = verified(each, replace(server(), **changes)).servers["chat"].process
    assert found
    return found


def test_a_process_is_what_it_was_started_from_and_with() -> None:
    each = host()
    each.files["/proc/7/exe"] = File("the binary")
    found = process(each)
    assert found == ProcessFound(
        sha256=each.digest(["/proc/7/exe"]),
        spec=CPU.instances[0].spec,
        uid="0",
        account="990",
        stopped=False,
        argv=("/bin/llama-server", "--port", "8080"),
    )


def test_a_process_that_is_stopped() -> None:
    each = host()
    each.files["/proc/7/status"] = File("State:\tT (stopped)\nUid:\t5\t5\t5\t5\n")
    found = process(each)
    assert (found.stopped, found.uid) == (True, "5")


@pytest.mark.parametrize(
    ("declared", "has", "strange", "names"),
    [
        (("A=b",), {"A": "b", "PATH": "/bin"}, "^LD_", ()),
        (("A=b", "C="), {"A": "c"}, "^LD_", ("A", "C")),
        (("A=b=c\nd",), {"A": "b=c\nd"}, "", ()),
        (("A=b=c\nd",), {"A": "b=c d"}, "", ("A",)),
        ((), {"LD_PRELOAD": "x", "GGML_Y": "", "LD": "1"}, "^(LD|GGML)_", ("GGML_Y", "LD_PRELOAD")),
        ((), {"LD_PRELOAD": "x"}, "", ()),
        (("LD_A=1",), {"LD_A": "1"}, "^LD_", ()),
    ],
)
def test_variables_of_a_process(
    declared: tuple[str, ...], has: dict[str, str], strange: str, names: tuple[str, ...]
) -> None:
    each = host()
    each.process(7, "x", **has)
    assert process(each, variables=declared, strange_variables=strange).variables == names


def test_no_value_of_a_variable_is_returned() -> None:
    each = host()
    each.process(7, "x", LD_PRELOAD="hidden", VLLM_API_KEY="hidden too")
    assert "hidden" not in dump(verified(each, server()))


def test_names_and_words_are_bounded() -> None:
    each = host()
    each.process(7, *map(str, range(5000)), **{f"LD_{n}": "" for n in range(5000)})
    found = process(each)
    assert (len(found.argv), found.argv[-1], len(found.variables)) == (4096, "4999", 100)


@pytest.mark.parametrize("text", ["", None])
def test_a_process_that_has_ended_is_none(text: str | None) -> None:
    each = host()
    if text is None:
        del each.files["/proc/7/cmdline"]
    else:
        each.files["/proc/7/cmdline"] = File(text)
    each.listens("00000000:1F90 4711")
    each.opens(9, "/dev/null", "socket:[4711]")
    each.files["/proc/9/comm"] = File("python3\n")
    found = verified(each, server()).servers["chat"]
    assert (found.process, found.holder) == (None, "python3 (process 9)")


# Files


def test_files_are_tried_as_the_servers_own_user() -> None:
    each = host()
    absent, closed, silent, *_ = planned_reads = ("/m/absent", "/m/closed", "/m/silent", "/m/a b")
    each.files |= {path: File("") for path in planned_reads if path != absent}
    for path, code in ((closed, 1), (silent, TIMED_OUT)):
        words = "setpriv --reuid llama-chat --regid llama-chat --clear-groups test -r"
        each.answers = {f"{words} {path}": Ended(code), **each.answers}
    found = verified(each, replace(server(), reads=planned_reads)).servers["chat"]
    assert found.access == {absent: "absent", closed: "closed", silent: "silent"}
    assert found.runs_program


def test_a_program_that_its_user_may_not_run() -> None:
    each = host()
    words = "setpriv --reuid llama-chat --regid llama-chat --clear-groups test -x"
    each.answers = {words: Ended(1), **each.answers}
    assert not verified(each, server()).servers["chat"].runs_program
    assert verified(each, replace(server(), program="")).servers["chat"].runs_program


def test_whose_files_are() -> None:
    each = host()
    each.files = {
        "/b/bin/llama-server": File("", 0o755),
        "/b/bin/.manifest.new": File(""),
        "/k": File("", 0o400, "llama-chat"),
        **each.files,
    }
    each.links["/b/bin/link"] = "llama-server"
    found = verified(each, replace(server(), owned=("/b/bin", "/gone", "/k"))).servers["chat"].owned
    assert found == (
        OwnedFile("/b/bin", "folder", 0, "root"),
        OwnedFile("/b/bin/link", "link", 0, "root"),
        OwnedFile("/b/bin/llama-server", "file", 0o755, "root"),
        OwnedFile("/k", "file", 0o400, "llama-chat"),
    )


def test_the_definition_is_hashed() -> None:
    each = host(files={server().file: "the unit"})
    assert verified(each, server()).servers["chat"].file_sha256 == each.digest([server().file])
    assert verified(host(), server()).servers["chat"].file_sha256 == ""


# Requests


def responses(each: VerifiedHost, name: str = "chat", plan: Any = CPU) -> Responses:
    """Return the responses of a server."""
    planned_server = server(name, plan)
    return send_requests(name, planned_server.requests, each, each.probe)


def test_each_request_and_its_response() -> None:
    each = host()
    each.bodies = {
        "/health": Ended(0, '{"status":"ok"}\n200\n'),
        "/v1/models": Ended(0, "models\n\n200\n"),
        "/props": Ended(0, "props\n200\n"),
        "/v1/chat": Ended(0, "data: {}\n\ndata: [DONE]\n\n\n200\n"),
    }
    chat = "data: {}\n\ndata: [DONE]\n\n\n200"
    assert responses(each) == Responses(
        health='{"status":"ok"}\n200',
        keyless="props\n200",
        models="models\n\n200",
        props={"chat": "props\n200"},
        chats={"chat": chat},
        probes={"chat": (ProbeResult("prompt", "passed", "text"),)},
    )
    assert [(question["url"], key) for question, key in each.probed] == [(each.urls()[-1], KEY)]
    base = "http://127.0.0.1:8080"
    paths = ("/health", "/props", "/v1/models", "/props", "/v1/chat/completions")
    assert each.urls() == [base + path for path in paths]


@pytest.mark.parametrize(
    ("props", "loads"),
    [
        ('{"is_sleeping":true}\n200\n', True),
        ('{"is_sleeping":false}\n200\n', False),
        ("[1]\n200\n", False),
        ("\ncurl: (7) refused\n000\n", False),
    ],
)
def test_a_server_that_has_unloaded_its_model_loads_it_before_the_probes(props: str, loads: bool) -> None:
    each = host()
    each.bodies = {"/props": Ended(0, props)}
    planned_server = server("chat")
    send_requests("chat", replace(planned_server.requests, chat_seconds=700), each, each.probe)
    paths = [url.rpartition("8080")[2] for url in each.urls()]
    assert paths[3:] == ["/props", *(["/slots"] if loads else []), "/v1/chat/completions"]
    if loads:
        words = next(words for words in each.ran if str(words[-1]).endswith("/slots"))
        assert words[words.index("--max-time") + 1] == "700"


def test_a_key_is_in_no_argument_and_in_no_request_that_goes_without_it() -> None:
    each = host()
    responses(each)
    assert KEY not in f"{each.ran}"
    header = f"Authorization: Bearer {KEY}\n"
    assert each.stdin == ["", "", header, header, header]
    assert KEY not in dump(given())


def test_no_proxy_no_configuration_and_no_pattern_is_read() -> None:
    each = host()
    responses(each)
    for words in each.ran:
        assert words[:5] == ["curl", "-q", "-sS", "-g", "--noproxy"]
        limits = dict(zip(words[6:12:2], words[7:12:2], strict=True))
        assert limits == {"--max-time": limits["--max-time"], "--max-filesize": "131072", "--limit-rate": "1M"}
    (body,) = [words[words.index("--data-raw") + 1] for words in each.ran if "--data-raw" in words]
    assert json.loads(body)["messages"][0]["role"] == "user"


def test_a_server_without_a_key_gets_no_header() -> None:
    each = host()
    assert responses(each, "drafter").keyless == ""
    assert {*each.stdin} == {""}


def test_a_key_that_is_not_there_is_an_empty_one() -> None:
    each = host()
    del each.files["/etc/llamaherd/keys/chat"]
    responses(each)
    assert "Authorization: Bearer \n" in each.stdin


def test_a_server_that_does_not_respond_gets_no_second_request() -> None:
    each = host()
    each.bodies["/health"] = Ended(28, "\n000\n", "curl: (28) Connection timed out after 5001 milliseconds\n")
    found = responses(each)
    assert (len(each.urls()), found.models, found.chats) == (1, "", {})
    assert parse_reply(found.health).problem == "curl: (28) Connection timed out after 5001 milliseconds"


def test_one_that_refuses_connections_says_so_of_each() -> None:
    each = host()
    refused = "curl: (7) Failed to connect to 127.0.0.1 port 8080 after 0 ms: Could not connect to server"
    each.bodies["127.0.0.1"] = Ended(7, "\n000\n", f"{refused}\n")
    found = responses(each)
    every = [found.health, found.keyless, found.models, *found.props.values(), *found.chats.values()]
    assert [parse_reply(text).problem for text in every] == [refused] * 5


@pytest.mark.parametrize(
    ("ended", "problem"),
    [
        (Ended(-9), "no response"),
        (Ended(NOT_STARTED, "", "curl: No such file or directory"), "curl: No such file or directory"),
        (Ended(TIMED_OUT, "x\n200\n"), "curl did not end within 15 s"),
        (Ended(0, "x" * (MOST_BYTES + 1) + "\n200\n"), "the response has more than 131072 bytes"),
        (Ended(63, "x\n200\n", "curl: (63) Maximum file size exceeded\n"), "curl: (63) Maximum file size exceeded"),
    ],
)
def test_a_response_that_is_none(ended: Ended, problem: str) -> None:
    each = host()
    each.bodies["/health"] = ended
    assert parse_reply(responses(each).health).problem == problem


@pytest.mark.parametrize("ended", [Ended(0, "{}\n500\n"), Ended(28, "\n000\n", "curl: (28) Connection timed out\n")])
def test_a_server_that_does_not_chat_is_not_probed(ended: Ended) -> None:
    each = host()
    each.bodies["/v1/chat"] = ended
    assert responses(each).probes == {}
    assert each.probed == []


@pytest.mark.parametrize("kind", ["embeddings", "rerank"])
def test_a_server_without_chats_gets_probes_alone(kind: str) -> None:
    plan = planned(cpu_rig(), {"instances/drafter/draft": None, "instances/drafter/extra_args": [f"--{kind}"]})
    each = host()
    found = responses(each, "drafter", plan)
    assert (found.chats, list(found.probes)) == ({}, ["drafter"])
    ((question, key),) = each.probed
    assert (question["kind"], question["url"], key) == (kind, f"http://127.0.0.1:8081/v1/{kind}", None)


def test_of_one_that_swaps_each_model_is_loaded_and_then_reports_itself() -> None:
    each = host()
    found = responses(each, GROUP.name, SWAPPING)
    members = [member.name for member in GROUP.members]
    assert (list(found.chats), list(found.props)) == (members, members)
    after = [url.partition("?")[0].rpartition("/")[2] for url in each.urls() if "/v1/models" not in url][-4:]
    assert after == ["completions", "props", "completions", "props"]
    assert all(f"model={member.model}" in f"{each.urls()}" for member in GROUP.members)
    asked = [question["body"] for question, _ in each.probed]
    assert asked == [{"model": member.model} for member in GROUP.members]


# All of it


@pytest.mark.parametrize("plan", [CPU, GPU, SWAPPING], ids=["cpu", "gpu", "group"])
def test_an_input_has_all_that_a_plan_names(plan: Any) -> None:
    document = dump(given(plan))
    assert decode(find_verb(VERB).input, parse_document(document.encode())) == given(plan)
    named = [value for each in plan.instances for value in (each.service, each.file.path, *each.reads)]
    named += [each.tag for each in plan.images]
    assert [each for each in named if json.dumps(each, ensure_ascii=False) not in document] == []
    assert [each.unit for each in given(plan).servers] == [each.backend == "systemd" for each in plan.instances]
    assert [each.has_gpus for each in given(plan).servers] == [bool(each.server.cards) for each in plan.instances]


def test_without_servers_nothing_is_verified() -> None:
    assert verification_input(CPU.model_copy(update={"instances": (), "images": ()})) is None


def test_variables_are_in_no_message() -> None:
    shown = repr(replace(server(), variables=("TOKEN=hidden",)))
    assert "hidden" not in shown


def test_a_hostile_text_reaches_no_shell() -> None:
    whole = given(GPU)
    places = sorted({*texts(whole)} - {""} - {*whole.limits})
    assert len(places) > 20
    for at, place in enumerate(places):
        each = host()
        changed = with_text(whole, place, PLAIN[at % len(PLAIN)])
        if any("^" in expression.strange_variables for expression in changed.servers):
            verify(changed, each, each.probe)
        assert not any(words[0] in SHELLS or "-c" in words for words in each.ran)


def test_requests_have_urls_of_this_host_alone() -> None:
    every: list[Requests] = [each.requests for each in (*given().servers, *given(GPU).servers)]
    assert all(str(url).startswith("http://127.0.0.1:") for each in every for url in url_fields(each))


def url_fields(given: Requests) -> list[object]:
    """Return all URLs of requests."""
    found: Any = encode(given)
    urls = [value for name, value in found.items() if name.endswith("_url") and value]
    return urls + [each["url"] for each in found["chats"]]
