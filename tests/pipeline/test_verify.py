"""Verification judged on what real hosts printed: the box, the box with its servers stopped, and ik_llama.cpp."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.host.protocol import marked_lines, parse_texts
from llamaherd.host.responses import parse_chat, parse_reply
from llamaherd.inventory.schema import Expect, Rig, Source
from llamaherd.onhost.document import encode
from llamaherd.onhost.verification import Text, VerifyResult
from llamaherd.pipeline.verify import facts_of, judge_host, verify_input
from llamaherd.plan import BuildPlan, ImagePlan, InstancePlan, ModelFile, ModelPlan, Plan, TextFile
from llamaherd.role.report import Check, Report
from roles import ROLES
from roles.serve.onhost.model import ProbeResult, Responses, ServerFound, VerifiedServers
from roles.serve.state import declared_limits
from tests.support.rigs import cpu_rig, planned, reached, served

VERB = "serve.verification.verify"
DATA = Path(__file__).parents[1] / "data"
BUILD = "llama.cpp-66ca571ae125"
IMAGE = f"llamaherd/engine:{BUILD}-a371b6"
GEMMA = "/var/lib/llamaherd/models/local/a5fd3b62230aa5ec/gemma-3-270m-q4_k_m.gguf"
TINY = "/var/lib/llamaherd/models/local/041d6924ab124e1f/tiny-moe.gguf"

RIG = Rig.model_validate(
    {
        "rig": "box",
        "connect": {"host": "127.0.0.1"},
        "host": {"os": "debian-13", "cpu": {"cores": 2}, "ram": "4GB"},
        "engines": {"main": {"kind": "llama.cpp", "source": {"git": "https://example.org/e", "commit": "0" * 40}}},
        "models": {"gemma-3-270m": {"hf": "a/b"}, "tiny-moe": {"hf": "a/c"}},
        "instances": {
            "chat": {"engine": "main", "model": "gemma-3-270m", "context": 8192, "port": 8080},
            "drafter": {"engine": "main", "model": "tiny-moe", "context": 4096, "draft": {"mtp": 2}, "port": 8081},
        },
    }
)

PLANNED = {each.name: each for each in planned(cpu_rig()).instances}
CHAT = served(
    PLANNED["chat"].model_copy(
        update={
            "build": BUILD,
            "model": "gemma-3-270m",
            "model_folder": str(PurePosixPath(GEMMA).parent),
            "model_path": GEMMA,
            "spec": "fa9c016b726a",
            "file": TextFile(path="/etc/systemd/system/llama-chat.service", text="the unit"),
        }
    ),
    program=f"/opt/llamaherd/builds/{BUILD}/bin/llama-server",
    folders=(str(PurePosixPath(GEMMA).parent),),
    arguments=tuple(
        f"--model {GEMMA} --alias gemma-3-270m --ctx-size 8192 --cache-type-k q8_0 --cache-type-v q8_0 "
        "--flash-attn on --parallel 1 --threads 2 --host 127.0.0.1 --port 8080 --metrics "
        "--api-key-file /etc/llamaherd/keys/chat".split()
    ),
)
DRAFTER = served(
    PLANNED["drafter"].model_copy(
        update={
            "build": BUILD,
            "model": "tiny-moe",
            "model_folder": str(PurePosixPath(TINY).parent),
            "model_path": TINY,
            "mtp": 2,
            "spec": "88bc115cb8eb",
            "file": PLANNED["drafter"].file,
        }
    ),
    image=IMAGE,
    folders=(str(PurePosixPath(TINY).parent),),
    arguments=tuple(
        f"--model {TINY} --alias tiny-moe --ctx-size 4096 --cache-type-k f16 --cache-type-v f16 "
        "--flash-attn auto --parallel 1 --threads 2 --host 0.0.0.0 --port 8081 --metrics "
        "--spec-type draft-mtp --spec-draft-n-max 2".split()
    ),
)


def _model(instance: InstancePlan, size: int | None) -> ModelPlan:
    path = PurePosixPath(instance.model_path)
    file = ModelFile(name=path.name, sha256="0" * 64, size=size)
    return ModelPlan(name=instance.model, folder=str(path.parent), files=(file,))


PLAN = Plan(
    rig="box",
    os="debian-13",
    packages=(),
    files=(),
    builds=(
        BuildPlan(
            id=BUILD,
            engine="main",
            kind="llama.cpp",
            source=Source(git="https://example.org/e", commit="0" * 40),
            options={},
            targets=("llama-server",),
            cuda=None,
            disk=0,
        ),
    ),
    models=(_model(CHAT, 253113024), _model(DRAFTER, None)),
    images=(ImagePlan(tag=IMAGE, build=BUILD, base="b", base_packages=(), dockerfile=""),),
    instances=(CHAT, DRAFTER),
)


def captured(name: str) -> str:
    """Return what a host returned, with hashes and other values of its real unit and project those of this plan."""
    text = (DATA / name).read_text()
    limits = declared_limits(DRAFTER.file.text)
    for real, planned_here in (
        ("784b29025b02d0aee0fe6dcf27ccdfa9aad0d2b828485da6c21963889e5bb0c4", _hash(CHAT.file)),
        ("793c3b9359bcb034520192c3c4e62c27dea5c06e5062b1a3748e7f631cc78783", _hash(DRAFTER.file)),
        ('"USER"', f'"{DRAFTER.server.user}:{DRAFTER.server.user}"'),
        ('"PIDS"', f'"{limits["PidsLimit"]}"'),
        (f'"source": "{PurePosixPath(TINY).parent}"', f'"source": "{PLANNED["drafter"].model_folder}"'),
    ):
        text = text.replace(real, planned_here)
    return text


def probed(text: str) -> str:
    """Return what a host returned, with the results of probes: both servers respond with text."""
    value: dict[str, Any] = json.loads(text)
    for name, found in value["parts"][VERB]["servers"].items():
        found["responses"]["probes"] = {name: [encode(ProbeResult("prompt", "passed", "text"))]}
    return json.dumps(value)


def well() -> str:
    """Return what a host returned whose servers respond with text."""
    value: dict[str, Any] = json.loads(probed(captured("verify-box.json")))
    chats = value["parts"][VERB]["servers"]["chat"]["responses"]["chats"]
    last = [line for line in chats["chat"].split("\n") if '"timings"' in line]
    pieces = [f'data: {{"choices":[{{"delta":{{"content":"{each}"}}}}]}}' for each in ("red, ", "yellow ", "and blue")]
    chats["chat"] = "\n\n".join([*pieces, *last, "data: [DONE]", "200"])
    return json.dumps(value)


def _hash(file: TextFile) -> str:
    return hashlib.sha256(file.text.encode()).hexdigest()


def report(text: str, rig: Rig = RIG, plan: Plan = PLAN) -> Report:
    return judge_host(rig, plan, ROLES, facts_of(json.loads(text), ROLES))


def returned(found: VerifiedServers, **texts: str) -> str:
    """Return what a host returns of servers, and what probes print there."""
    printed = tuple(Text(what, "", text) for what, text in texts.items())
    return json.dumps(encode(VerifyResult(printed, {VERB: found})))


def in_json(text: str) -> str:
    """Return a part of a text as JSON has it."""
    return json.dumps(text)[1:-1]


def failed(found: Report) -> dict[str, Check]:
    """The failed checks, by instance and name."""
    return {f"{i.name} {check.name}": check for i in found.instances for check in i.checks if not check.ok}


def test_the_box_is_what_was_declared() -> None:
    found = report(well())
    assert failed(found) == {}
    drafter = found.instances[1]
    assert drafter.answer == "abcdefghijklmnopqrstuvwxyz"
    assert (drafter.draft_n, drafter.draft_accepted) == (18, 18)
    assert [each.tokens_per_second for each in found.instances] == [
        pytest.approx(7.288025184638649),
        pytest.approx(770.3931968354617),
    ]
    assert [check.name for check in drafter.checks] == [
        *("container", "process", "files", "listens", "health", "model", "context", "chat", "drafts", "prompt"),
    ]


def chat_check(text: str, *probes: ProbeResult) -> Check:
    """Return the check of a streamed response in which each word is an event; it is that of `chat` on the box."""
    pieces = [{"choices": [{"delta": {"content": piece}}]} for piece in re.split("(?<= )", text)]
    events = "".join(f"data: {json.dumps(each)}\n\n" for each in pieces)
    value: dict[str, Any] = json.loads(captured("verify-box.json"))
    value["parts"][VERB]["servers"]["chat"]["responses"] |= {
        "chats": {"chat": f"{events}\n200"},
        "probes": {"chat": [encode(each) for each in probes]},
    }
    checks = report(json.dumps(value)).instances[0].checks
    return next(check for check in checks if check.name == "chat")


GARBAGE = (
    *(
        "<|im_end|> <|im_start|>",
        "<|im_end|>",
        " \n",
        "",
        "\ufffd\ufffd\ufffd",
        "red " * 9,
        "GGGG GGGG",
        "\u200b \u200b",
    ),
)


@pytest.mark.parametrize("text", GARBAGE)
def test_a_response_without_text_fails(text: str) -> None:
    """However the prompt that is not streamed ends, unless that has text."""
    for probes in ((), (ProbeResult("prompt", "failed", "nothing"),), (ProbeResult("prompt", "note", "busy"),)):
        check = chat_check(text, *probes)
        assert (check.ok, check.doubt) == (False, False)
        assert "no text" in check.detail or "is not text" in check.detail
        assert ("--chat-template" in check.detail) is ("<|" in text)


@pytest.mark.parametrize("text", ["\ufffd \ufffd", "red " * 9])
def test_a_response_without_text_is_a_doubt_where_another_one_has_text(text: str) -> None:
    check = chat_check(text, ProbeResult("prompt", "passed", "text"))
    assert (check.ok, check.doubt) == (True, True)
    assert "is not text, and a later one is" in check.detail


@pytest.mark.parametrize(
    "text",
    [
        "<|im_end|> <|im_start|>",
        "<|im_end|>\n<|im_start|>\n<|im_end|>\n<|im",  # as Gemma 3 270M responds through the template chatml
        "<|im_end|>user\n <|im_start|>user\n",
        "<end_of_turn>\n<start_of_turn>model\n red",
    ],
)
def test_a_response_that_begins_with_markers_fails(text: str) -> None:
    """Whatever the model returns later: its chat template is another one."""
    check = chat_check(text, ProbeResult("prompt", "passed", "text"))
    assert (check.ok, check.doubt) == (False, False)
    assert "is not text: set the `--chat-template`" in check.detail


@pytest.mark.parametrize(("text", "doubt"), [("red and blue", False), ("red and blue<|im_end|> \n<|im_start|>", True)])
def test_text_with_markers_of_a_template_is_a_doubt(text: str, doubt: bool) -> None:
    check = chat_check(text)
    assert (check.ok, check.doubt, "--chat-template" in check.detail) == (True, doubt, doubt)


def test_each_probe_is_a_check() -> None:
    value = json.loads(captured("verify-box.json"))
    probes = [ProbeResult("schema", "failed", "a prompt returns HTTP 500"), ProbeResult("tools", "note", "busy")]
    value["parts"][VERB]["servers"]["drafter"]["responses"]["probes"] = {"drafter": [encode(each) for each in probes]}
    drafter = report(json.dumps(value)).instances[1]
    assert drafter.checks[-2:] == (
        Check("schema", False, "a prompt returns HTTP 500"),
        Check("tools", True, "busy", note=True),
    )
    assert drafter.responds, "clients get responses, and not all that they may request"


@pytest.mark.parametrize(("flag", "name"), [("--embeddings", "embeddings"), ("--reranking", "rerank")])
def test_a_server_that_completes_no_prompts_is_judged_by_its_probe(flag: str, name: str) -> None:
    plain = CHAT.model_copy(update={"server": CHAT.server.model_copy(update={"arguments": (flag,)})})
    plan = PLAN.model_copy(update={"instances": (plain,)})

    def judged(*probes: ProbeResult) -> tuple[bool, list[Check]]:
        responses = Responses(health='{"status":"ok"}\n200', probes={"chat": probes})
        (instance,) = report(returned(VerifiedServers({"chat": ServerFound(responses=responses)})), plan=plan).instances
        return instance.responds, [check for check in instance.checks if check.name in (name, "chat")]

    assert judged(ProbeResult(name, "passed", "x")) == (True, [Check(name, True, "x")])
    assert judged(ProbeResult(name, "failed", "x")) == (False, [Check(name, False, "x")])
    assert judged() == (False, [Check(name, False, "it was not tried")])


def test_the_report_as_json() -> None:
    value = report(well()).as_json()
    assert set(value) == {"rig", "ok", "instances", "installed", "cards", "driver", "machine"}
    assert value["ok"] is True
    assert set(value["instances"][0]) == {
        *("name", "backend", "model", "engine", "build", "port", "answer"),
        *("tokens_per_second", "draft_n", "draft_accepted", "checks", "responds", "paused"),
    }
    assert set(value["instances"][0]["checks"][0]) == {"name", "ok", "detail", "doubt", "note"}
    assert {row["where"] for row in value["installed"]} == {
        f"/opt/llamaherd/builds/{BUILD}",
        str(PurePosixPath(GEMMA).parent),
        str(PurePosixPath(TINY).parent),
        "Docker's store",
        CHAT.file.path,
        DRAFTER.file.path,
    }


def test_stopped_servers_fail_and_the_rest_is_still_reported() -> None:
    found = report(captured("verify-stopped.json"))
    names = ["process", "listens", "health", "model", "context", "chat"]
    assert set(failed(found)) == {
        *("chat unit", "chat key", *(f"chat {name}" for name in names)),
        *("drafter container", "drafter drafts", *(f"drafter {name}" for name in names)),
    }
    assert failed(found)["chat unit"].detail == "llama-chat.service is inactive, enabled"
    assert failed(found)["drafter container"].detail == "llama-drafter is exited, unhealthy"
    assert "Failed to connect" in failed(found)["chat health"].detail
    assert len(found.installed) == 6


@pytest.mark.parametrize(
    ("there", "instead", "name", "detail"),
    [
        ('"spec": "fa9c', '"spec": "0000', "chat process", "it runs spec 000001"),
        ('"spec": "88bc', '"spec": "0000', "drafter process", "declared is 88bc115cb8eb"),
        ('"8192",', '"4096",', "chat process", "`4096`"),
        ('"sha256": "e5e3', '"sha256": "0000', "chat process", "its binary"),
        (r"253113024\t", r"25311302\t", "chat files", "has 25311302 bytes, but the lock contains 253113024"),
        (r"\ttiny-moe.gguf", r"\tother.gguf", "drafter files", "is not there"),
        ("0100007F:1F90", "00000000:1F90", "chat listens", "port 8080 on 0.0.0.0, declared is 127.0.0.1"),
        ("0100007F:1F90", r"0100007F:1F90\n0200000A:1F90", "chat listens", "10.0.0.2 and 127.0.0.1"),
        ('"enabled": "enabled"', '"enabled": "disabled"', "chat unit", "is active, disabled"),
        ('"health": "healthy"', '"health": "starting"', "drafter container", "running, starting"),
        ('"restart": "unless-stopped"', '"restart": "no"', "drafter container", "restart is `no`"),
        (in_json('"data":[{"id":"gemma-3-270m"'), in_json('"data":[{"id":"other"'), "chat model", "other from /var"),
        (
            in_json(f'"model_path":"{TINY}"'),
            in_json('"model_path":"/x.gguf"'),
            "drafter model",
            "tiny-moe from /x.gguf; declared is",
        ),
        (in_json('"n_ctx":8192},"total_slots"'), in_json('"n_ctx":4096},"total_slots"'), "chat context", "1 of 8192"),
        (
            in_json('"total_slots":1'),
            in_json('"total_slots":4'),
            "chat context",
            "4 slot(s) of 8192 tokens, declared is 1 of 8192",
        ),
        (in_json('"draft_n":18'), in_json('"draft_n":0'), "drafter drafts", "no token was drafted"),
    ],
)
def test_what_is_not_as_declared_is_said_with_both(there: str, instead: str, name: str, detail: str) -> None:
    text = captured("verify-box.json")
    assert there in text
    problems = failed(report(text.replace(there, instead)))
    assert detail in problems[name].detail


def changed(text: str, **responses: str) -> str:
    """Return what a host returned, with other responses of `chat`."""
    value: dict[str, Any] = json.loads(text)
    found = value["parts"][VERB]["servers"]["chat"]["responses"]
    for what, response in responses.items():
        found[what] = {"chat": response} if what in ("props", "chats") else response
    return json.dumps(value)


def test_a_declared_key_that_nobody_asks_for_fails() -> None:
    problems = failed(report(changed(well(), keyless='{"total_slots":1}\n200')))
    assert list(problems) == ["chat key"]


def test_a_host_with_nothing_on_it_fails_every_check_and_has_nothing_installed() -> None:
    found = report(returned(VerifiedServers(), listening=""))
    assert not any(check.ok for instance in found.instances for check in instance.checks)
    assert found.installed == ()


def test_ik_llama_cpp_is_understood_too() -> None:
    served = CHAT.model_copy(update={"model_path": "/work/main/.box/cache/gemma-3-270m-q4_k_m.gguf"})
    found = report(captured("verify-ik.json"), plan=PLAN.model_copy(update={"instances": (served,)}))
    passed = {check.name for check in found.instances[0].checks if check.ok}
    assert {"health", "key", "model", "context"} <= passed
    # All 64 tokens by the time of 63: it calls that 2.4327 a second.
    assert found.instances[0].tokens_per_second == pytest.approx(63 / 26.307847)


@pytest.mark.parametrize(
    ("context", "parallel", "extra", "found", "right"),
    [
        (8192, 4, (), 2048, True),
        (8192, 4, (), 8192, False),
        (8192, 4, ("--kv-unified",), 8192, True),
        (4000, 3, (), 1536, True),  # rounded up to 256 cells for each slot
        (4000, 1, (), 4096, True),
        (4000, 1, (), 3840, False),
    ],
)
def test_slots_share_the_context(context: int, parallel: int, extra: tuple[str, ...], found: int, right: bool) -> None:
    declared = RIG.instances["chat"].model_copy(
        update={"context": context, "parallel": parallel, "extra_args": extra},
    )
    text = captured("verify-box.json").replace(
        in_json('"n_ctx":8192},"total_slots":1'), in_json(f'"n_ctx":{found}}},"total_slots":{parallel}')
    )
    rig = RIG.model_copy(update={"instances": {**RIG.instances, "chat": declared}})
    assert ("chat context" not in failed(report(text, rig))) is right


ODD = ("[]", "5", '"x"', "null", "[" * 100_000, "9" * 5000, "1e999", '{"a": 1}', "[5, null]", '[{"id": 5, "delta": 5}]')


@pytest.mark.parametrize("value", ODD, ids=lambda value: value[:20])
def test_a_server_that_answers_with_other_kinds_of_values_fails_its_checks(value: str) -> None:
    """What listens there may be anything, and a model may have taken it over."""
    keys = ("data", "default_generation_settings", "total_slots", "model_path", "error", "status", "choices", "timings")
    for body in (value, *(f'{{"{key}": {value}}}' for key in keys)):
        plain, streamed = f"{body}\n200", f"data: {body}\n200"
        text = captured("verify-box.json")
        found = report(changed(text, health=plain, models=plain, props=plain, chats=streamed))
        assert "chat model" in failed(found)
        assert not [name for name in failed(found) if name.startswith("drafter")]
        json.dumps(found.as_json())


@pytest.mark.parametrize("line", ["x:1F90", "0:1F90", "0100007F", "0100007F:", "0100007F:zz", "²²²²²²²²:1F90", ":"])
def test_a_socket_that_is_none_is_passed_over(line: str) -> None:
    text = captured("verify-box.json").replace("0100007F:1F90", f"0100007F:1F90\\n{line}")
    assert line in text
    assert report(text) == report(captured("verify-box.json"))


@pytest.mark.parametrize("manifest", ["[]", '{"sha256": 5}', '{"sha256": [1]}', "x", '{"id": {}}'])
def test_a_manifest_of_other_kinds_is_no_finished_build(manifest: str) -> None:
    value = json.loads(captured("verify-box.json"))
    (build,) = [each for each in value["texts"] if each["what"] == "build"]
    build["text"] = manifest
    assert {"chat files", "chat process"} <= failed(report(json.dumps(value))).keys()


def test_sizes_that_are_none_are_passed_over() -> None:
    text = captured("verify-box.json").replace(r"253113024\t", rf"{'9' * 5000}\t")
    assert "chat files" in failed(report(text))


def test_replies() -> None:
    assert parse_reply('{"status":"ok"}\n200').json == {"status": "ok"}
    assert parse_reply("sh: 12: curl: not found").problem == "sh: 12: curl: not found"
    assert parse_reply("").problem == "no response"
    loading = '{"error":{"message":"Loading model","type":"unavailable_error","code":503}}\n503'
    assert parse_reply(loading).problem == "HTTP 503: Loading model"
    broken = "data: {}\n\ncurl: (28) Operation timed out after 120000 milliseconds\n200"
    assert parse_reply(broken).problem.startswith("curl: (28)")
    assert parse_reply("[1]\n200").json == {}


def test_a_thinking_model_has_answered_even_if_it_still_thinks() -> None:
    said = parse_chat(
        'data: {"choices":[{"delta":{"reasoning_content":"Hm"}}]}\n\ndata: {"choices":[]}\n\ndata: [DONE]'
    )
    assert (said.answer, said.chunks) == ("Hm", 1)


@pytest.mark.parametrize(
    ("timings", "speed"),
    [
        ({"predicted_n": 65, "predicted_ms": 2000.0, "predicted_per_second": 32.5}, 32),  # ik_llama.cpp
        ({"predicted_n": 65, "predicted_ms": 2000.0, "predicted_per_second": 32.0}, 32),  # llama.cpp
        ({"predicted_n": 1, "predicted_ms": 0.001, "predicted_per_second": 1e6}, None),
        ({"predicted_n": 65, "predicted_ms": 0, "predicted_per_second": 1e6}, None),
        ({"predicted_n": 65, "predicted_ms": -3}, None),
        ({"predicted_n": 65, "predicted_ms": 1e-15}, None),
        ({"predicted_n": "65", "predicted_ms": [2000]}, None),
        ({"predicted_per_second": 32.0}, None),
    ],
)
def test_both_engines_are_held_to_the_same_count(timings: dict[str, object], speed: float | None) -> None:
    """The first token comes out of the prompt; ik_llama.cpp counts it nevertheless."""
    said = parse_chat("data: " + json.dumps({"choices": [], "timings": timings}))
    assert said.tokens_per_second == (speed and pytest.approx(speed))


@given(st.lists(st.text(st.characters(exclude_characters="\n"))))
def test_no_answer_is_taken_for_a_heading(lines: list[str]) -> None:
    said = ["@ begin", "@ chat\tx", *(f"\t{line}" for line in lines), "@ end\t", "@ end"]
    assert parse_texts(marked_lines(said)) == {("chat", "x"): "\n".join(lines), ("end", ""): ""}


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080/health"),
        ("0.0.0.0", "http://127.0.0.1:8080/health"),
        ("::", "http://[::1]:8080/health"),
        ("10.0.0.5", "http://10.0.0.5:8080/health"),
    ],
)
def test_a_server_is_asked_where_it_listens(listen: str, url: str) -> None:
    instance = reached(CHAT, listen=listen)
    given: Any = verify_input(PLAN.model_copy(update={"instances": (instance,)}), ROLES).parts[VERB]
    assert given.servers[0].requests.health_url == url


@pytest.mark.parametrize(
    ("listen", "sockets", "right"),
    [
        ("::1", "00000000000000000000000001000000:1F90", True),
        ("::", "00000000000000000000000000000000:1F90", True),
        ("127.0.0.1", "0100007F:1F90", True),
        ("127.0.0.1", "00000000:1F90", False),
        ("10.0.0.2", "0200000A:1F90", True),
        ("10.0.0.2", "", False),
    ],
)
def test_addresses(listen: str, sockets: str, right: bool) -> None:
    plan = PLAN.model_copy(update={"instances": (reached(CHAT, listen=listen),)})
    found = report(returned(VerifiedServers(), listening=sockets), plan=plan)
    assert ("chat listens" not in failed(found)) is right


def test_only_a_unit_reads_a_program_of_the_host() -> None:
    assert CHAT.server.program in CHAT.reads
    assert DRAFTER.server.program
    assert DRAFTER.server.program not in DRAFTER.reads
    assert DRAFTER.model_path in DRAFTER.reads


@pytest.mark.parametrize(("decode", "right"), [(1.0, True), (200.0, False)])
def test_half_the_speed_that_is_expected_is_not_as_declared(decode: float, right: bool) -> None:
    slow = CHAT.model_copy(update={"expect": Expect(decode=decode)})
    found = report(captured("verify-box.json"), plan=PLAN.model_copy(update={"instances": (slow, DRAFTER)}))
    checks = {check.name: check for check in found.instances[0].checks}
    assert checks["speed"].ok is right
    assert f"expected are {decode:g}" in checks["speed"].detail


VLLM_MODELS = '{"object":"list","data":[{"id":"NAME","object":"model","root":"/m","max_model_len":LENGTH}]}'


@pytest.mark.parametrize(
    ("name", "length", "wrong"),
    [("tiny-moe", 4096, set()), ("other", 4096, {"model", "context"}), ("tiny-moe", 2048, {"context"})],
)
def test_vllm_tells_model_and_context_in_its_list(name: str, length: int, wrong: set[str]) -> None:
    """Its answers are written by hand, after its API's documentation."""
    served = reached(DRAFTER, props_path=None, health_status=None, counts_drafts=False)
    models = VLLM_MODELS.replace("NAME", name).replace("LENGTH", str(length))
    responses = Responses(health="\n200", models=f"{models}\n200")
    text = returned(VerifiedServers({"drafter": ServerFound(responses=responses)}))
    (instance,) = report(text, plan=PLAN.model_copy(update={"instances": (served,)})).instances
    asked = {check.name: check.ok for check in instance.checks}
    assert asked["health"]
    assert {check for check in ("model", "context") if not asked[check]} == wrong
    assert "drafts" not in asked
