"""What servers take by the tool of their engine, and what real builds of llama.cpp (b11434) printed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.gguf.header import Header
from llamaherd.gguf.shards import read_header
from llamaherd.host.program import request
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock, LockedLocal
from llamaherd.onhost.engine_memory import EstimateInput, ToolRun, estimate
from llamaherd.onhost.store import manifest_line
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError
from llamaherd.pipeline.engine_estimate import (
    EstimateRequest,
    Shard,
    estimate_input,
    estimate_request,
    headers,
    is_absent,
    judge_run,
    query_engines,
)
from llamaherd.pipeline.fleet_files import locked_facts
from llamaherd.plan import Estimate, Holds, ModelFile, ModelPlan, Plan
from tests.support import gguf_files
from tests.support.hub_files import Hollow
from tests.support.hub_server import Hub
from tests.support.ours import plan
from tests.support.played_host import File
from tests.support.recording import RecordingHost
from tests.support.rigs import SHA, changed, gpu_rig, hub_lock

Runs = Mapping[str, ToolRun]
MIB = 1 << 20
TOKEN = "hf_canary0123456789"
CAPTURED: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "memory_engine.json").read_text(encoding="utf-8")
)
QWEN = Header.model_validate(CAPTURED["models"]["35B-A3B Q4_K"])
GEMMA = Header.model_validate(CAPTURED["models"]["Gemma 3 270M"])

LOCK = Lock(
    models=tuple(model.model_copy(update={"header": QWEN}) for model in hub_lock().models),
    files=(LockedLocal(sha256="a5" * 32, size=10**9, data_offset=10**6, header=GEMMA),),
)


def declared(**changes: Any) -> Rig:
    """A rig with two GPUs. `reasoner` drafts on both, `boxed` is in a container on one; changes are of instances."""
    paths = {f"instances/{name}/{key}": value for name, more in changes.items() for key, value in more.items()}
    return Rig.model_validate(changed(gpu_rig(), paths))


def asked(rig: Rig, name: str, lock: Lock = LOCK) -> EstimateRequest | str:
    planned = plan(rig, lock)
    return estimate_request(
        locked_facts(rig, lock), planned, next(each for each in planned.instances if each.name == name)
    )


def sure(rig: Rig, name: str) -> EstimateRequest:
    found = asked(rig, name)
    assert isinstance(found, EstimateRequest), found
    return found


def on_cpu(**changes: Any) -> tuple[Rig, EstimateRequest]:
    """The rig, and the question to `reasoner`, moved to the CPU with these keys."""
    rig = declared(reasoner={"on": [], "context": 131072, "kv": "q8_0", "draft": {"mtp": 2}} | changes)
    return rig, sure(rig, "reasoner")


def said(name: str, figures: str, code: int = 0, log: str = "") -> Runs:
    """Return a run of the tool for one instance."""
    return {name: ToolRun("ran", code, figures, log)}


def estimated(rig: Rig, each: EstimateRequest, runs: Runs) -> Estimate:
    found = judge_run(rig, each, runs)
    assert isinstance(found, Estimate), found
    return found


def mib(holds: Holds) -> tuple[int, int, int]:
    return holds.weights // MIB, (holds.kv + holds.state) // MIB, holds.compute // MIB


@pytest.mark.parametrize(
    ("name", "lock", "sentence"),
    [
        ("worker", LOCK, "ik_llama.cpp has no llama-fit-params"),
        ("small", LOCK, "engine `image` is an image: only an engine that is built on the host can estimate"),
        ("reasoner", hub_lock(), "the header of model `35b` is not in the lock: run `herd lock`"),
    ],
)
def test_who_cannot_be_asked(name: str, lock: Lock, sentence: str) -> None:
    assert asked(declared(), name, lock) == sentence


def test_a_card_of_unknown_memory_is_named() -> None:
    rig = Rig.model_validate(changed(gpu_rig(), {"gpus/cards/old": {"model": "RTX 9999", "architecture": "86"}}))
    assert asked(rig, "reasoner") == "the memory of GPU `old` is not known"


def test_the_tool_is_told_what_the_server_is_told() -> None:
    each = sure(declared(reasoner={"tensor_split": [3, 1], "kv": "q8_0", "ubatch": 1024}), "reasoner")
    said = " ".join(each.given.arguments)
    for expected in ("-c 262144", "-np 1", "-ctk q8_0", "-ctv q8_0", "-ub 1024", "-ngl all", "-ts 3,1", "-fitp on"):
        assert expected in said
    assert each.given.arguments[each.given.arguments.index("-m") + 1] == each.given.path
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in each.given.environment
    assert "CUDA_VISIBLE_DEVICES=GPU-5090,GPU-3090" in each.given.environment


def test_a_container_is_asked_for_with_the_hosts_numbers_of_its_cards() -> None:
    cards = {f"gpus/cards/{name}": {"model": "RTX 3090", "index": index} for name, index in (("new", 3), ("old", 1))}
    rig = Rig.model_validate(changed(gpu_rig(), cards))
    assert "CUDA_VISIBLE_DEVICES=3" in sure(rig, "boxed").given.environment


def test_an_instance_on_the_cpu_of_a_build_for_cards_sees_none() -> None:
    _, each = on_cpu()
    assert each.given.environment == ("CUDA_VISIBLE_DEVICES=",)
    assert "-ngl" not in each.given.arguments


def test_what_the_engine_says_is_taken_over_to_the_mib() -> None:
    """What the box printed for a hollow file of this shape; of compute, the logits that a server does not keep go."""
    rig, each = on_cpu()
    found = estimated(rig, each, said("reasoner", "Host 19599 1422 633 "))
    (ram,) = found.holds
    assert found.source == "engine"
    assert (ram.where, ram.size) == ("RAM", 192 * 10**9)
    assert mib(ram)[:2] == (19599, 1422)
    assert 633 - 485 <= mib(ram)[2] <= 633 - 400


def test_what_the_tool_leaves_out_is_added() -> None:
    """The head's weights, its cache for 131,072 tokens, and two more copies of the state."""
    rig, each = on_cpu()
    without_rig, without = on_cpu(draft=None)
    figures = said("reasoner", "Host 19599 1422 633 ")
    (drafting,), (plain,) = estimated(rig, each, figures).holds, estimated(without_rig, without, figures).holds
    assert plain.draft == 0
    assert drafting.draft > 2 * 62 * MIB + 256 * MIB + 400 * MIB
    # The head's matrices are copied to the processor's layout, too: what they came from stays mapped.
    mapped = drafting.cuda - plain.cuda
    assert 0 < mapped < drafting.draft
    assert abs(drafting.total - drafting.draft - mapped - plain.total) < 8 * MIB  # a row of logits for a drafted token
    assert any("draft" in doubt for doubt in estimated(rig, each, figures).doubts)
    assert not any("draft" in doubt for doubt in estimated(without_rig, without, figures).doubts)


def test_what_a_model_that_drafts_takes_is_added() -> None:
    """The tool is asked about the served model alone."""
    rig, each = on_cpu(draft={"model": "gemma"})
    without_rig, without = on_cpu(draft=None)
    figures = said("reasoner", "Host 19599 1422 633 ")
    (drafting,), (plain,) = estimated(rig, each, figures).holds, estimated(without_rig, without, figures).holds
    assert drafting.draft == each.held.extra.host.total > sum(tensor.bytes for tensor in GEMMA.each)
    assert drafting.total - drafting.draft == plain.total


def test_it_is_said_what_is_left_out_of_what_the_tool_counts() -> None:
    """For 248,320 tokens, 512 rows of 4 bytes each where a server wants three: less what other buffers can share."""
    rig, each = on_cpu()
    *_, doubt = estimated(rig, each, said("reasoner", "Host 19599 1422 633 ")).doubts
    found = re.search(r"more logits than a server does: (\d+) MiB of them are left out", doubt)
    assert found, doubt
    assert 400 <= int(found[1]) <= 485
    rig, each = on_cpu(ubatch=1, draft=None)
    assert estimated(rig, each, said("reasoner", "Host 19599 1422 148 ")).doubts == ()


def test_cards_are_taken_in_the_order_of_on() -> None:
    rig = declared(reasoner={"on": ["old", "new"]})
    each = sure(rig, "reasoner")
    figures = "CUDA0 9000 700 500 \nCUDA1 10000 800 600 \nHost 400 0 80 "
    found = estimated(rig, each, said("reasoner", figures))
    assert [holds.where for holds in found.holds] == ["old", "new", "RAM"]
    assert [mib(holds)[:2] for holds in found.holds] == [(9000, 700), (10000, 800), (400, 0)]
    assert found.holds[0].size < found.holds[1].size
    assert any("tensor_split" in doubt for doubt in found.doubts)


def test_other_cards_than_declared_are_no_figures() -> None:
    rig = declared()
    found = judge_run(rig, sure(rig, "reasoner"), said("reasoner", "Host 19599 1422 633 "))
    assert found == "the tool printed 0 GPUs, but the instance is on 2"


# What b11434 printed: of a file that is cut short, of arguments that it refuses, and with too little memory.
CUT = """\
0.00.007.054 I llama_fit_params: printing estimated memory in MiB to stdout (device, model, context, compute) ...
0.00.022.305 E llama_model_load: error loading model: tensor 'output.weight' data is not within the file bounds
0.00.022.356 E llama_model_load_from_file_impl: failed to load model
terminate called after throwing an instance of 'std::runtime_error'
  what():  failed to load model
Aborted"""
SILENT = """\
0.00.002.723 I llama_fit_params: printing estimated memory in MiB to stdout (device, model, context, compute) ...
terminate called after throwing an instance of 'std::runtime_error'
  what():  failed to load model
Aborted"""
NO_SUCH_TYPE = """\
error while handling argument "-ctk": Unsupported cache type: q99

usage:
-ctk,  --cache-type-k TYPE              KV cache data type for K

to show complete usage, run with -h"""
NO_LIBRARY = "llama-fit-params: error while loading shared libraries: libcudart.so.13: cannot open shared object file"


@pytest.mark.parametrize(
    ("code", "log", "why"),
    [
        (134, CUT, "error loading model: tensor 'output.weight' data is not within the file bounds"),
        (134, SILENT, "failed to load model"),
        (1, NO_SUCH_TYPE, '"-ctk": Unsupported cache type: q99'),
        (1, "error: invalid argument: -fitp", "invalid argument: -fitp"),
        (127, NO_LIBRARY, NO_LIBRARY),
        (139, "", "it ended with 139"),
        (1, "0.00.001.000 E load: token \x1b[2J in the vocabulary", "token [2J in the vocabulary"),
    ],
)
def test_why_the_tool_failed(code: int, log: str, why: str) -> None:
    rig, each = on_cpu()
    assert judge_run(rig, each, said("reasoner", "", code, log)) == f"llama-fit-params failed: {why}"


def test_a_tool_that_was_stopped() -> None:
    rig, each = on_cpu()
    assert judge_run(rig, each, said("reasoner", "", 124)) == "llama-fit-params did not end within 120 s"
    assert "more RAM than is free" in str(judge_run(rig, each, said("reasoner", "", 137)))


def test_an_end_without_figures_is_no_figure() -> None:
    rig, each = on_cpu()
    assert "printed no figures" in str(judge_run(rig, each, said("reasoner", "usage: none")))


ON_CPU = on_cpu()


FIGURES = st.from_regex(r"(CUDA0 \d{1,9} \d \d \n)?Host \d{1,20} \d{1,4} \d{1,4} ", fullmatch=True)


@given(st.text() | FIGURES, st.integers(-1, 256), st.text())
def test_whatever_a_host_returns_becomes_a_sentence(figures: str, code: int, log: str) -> None:
    rig, each = ON_CPU
    found = judge_run(rig, each, said("reasoner", figures, code, log))
    assert found if isinstance(found, str) else found.holds


STATE, NEW = "/var/lib/llamaherd", re.compile(r"/var/lib/llamaherd/asked\.[0-9a-f]{12}")
SERVER = ["prlimit", "--core=0", "choom", "-n", "1000", "--", "setpriv", "--reuid", "7", "--regid", "8"]


class EngineHost(RecordingHost):
    """A host whose programs and environment are recorded, and whose paths of one run are named alike."""

    environments: ClassVar[list[Mapping[str, str]]] = []

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Record a program, and play it."""
        if environment is not None:
            self.environments.append(environment)
        return super().run(argv, seconds=seconds, text=text, environment=environment)


def engine_host(given: EstimateInput, *, stored: bool = False) -> EngineHost:
    """Return a host on which all is built, and each model is stored or none is."""
    host = EngineHost({}, folders={STATE})
    host.environments.clear()
    host.ends |= {
        "id -u llama": Ended(0, "7\n"),
        "id -g llama": Ended(0, "8\n"),
        "truncate": Ended(0),
        "prlimit": Ended(0, "Host 1 2 3 \n", "a line of the log\n"),
    }
    for each in given.instances:
        host.files[f"{each.build}/manifest.json"] = File("{}")
        host.files[f"{each.build}/bin/{given.tool}"] = File("", 0o755)
    for model in given.models if stored else ():
        for file in model.files:
            host.files[f"{model.folder}/{file.name}"] = File("whole")
            line = manifest_line(host, model.folder, file.name, file.sha256)
            there = host.read(f"{model.folder}/.manifest") or ""
            host.files[f"{model.folder}/.manifest"] = File(f"{there}{line}\n")
    return host


def given_of(*names: str, hollow: Mapping[str, tuple[Shard, ...]] = MappingProxyType({})) -> EstimateInput:
    rig = declared()
    return estimate_input(plan(rig, LOCK), [sure(rig, name) for name in names], hollow)


def test_a_bare_host_reports_that_nothing_is_built_and_stays_bare() -> None:
    rig, given = declared(), given_of("reasoner", "boxed")
    host = EngineHost({}, ends={"id": Ended(0, "7\n")})
    runs = estimate(given, host).runs
    for name in ("reasoner", "boxed"):
        assert judge_run(rig, sure(rig, name), runs) == "engine `main` is not built on duo yet: run `herd up duo`"
        assert not is_absent(name, runs)
    assert not host.files


def test_a_model_that_is_stored_is_read_where_it_is() -> None:
    given = given_of("reasoner")
    host = engine_host(given, stored=True)
    (instance,) = given.instances
    assert estimate(given, host).runs == {"reasoner": ToolRun("ran", 0, "Host 1 2 3 \n", "a line of the log\n")}
    tool = [*SERVER, "--clear-groups", "--no-new-privs", f"{instance.build}/bin/llama-fit-params", *instance.arguments]
    assert tool in host.done
    (environment,) = host.environments
    assert environment["XDG_CONFIG_HOME"] == "/nonexistent"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert not host.has_done("truncate")


@pytest.mark.parametrize("hollow", [{}, {"35b": (Shard("a/model.gguf", 10**9, b"a header"),)}])
def test_a_model_that_is_not_stored_is_a_header_with_a_hole(hollow: Mapping[str, tuple[Shard, ...]]) -> None:
    given = given_of("reasoner", hollow=hollow)
    host = engine_host(given)
    host.files[f"{STATE}/asked.0/0/old"] = File("")
    (run,) = estimate(given, host).runs.values()
    assert run.state == ("ran" if hollow else "absent")
    if hollow:
        (path,) = [argv[1] for argv in host.done if argv[0] == "write"]
        assert NEW.match(path)
        assert path.endswith("/0/a/model.gguf")
        assert ["truncate", "-s", str(10**9), path] in host.done
        assert any(argv[0] == "prlimit" and NEW.match(argv[argv.index("-m") + 1]) for argv in host.done)
    assert not [path for path in host.files if NEW.match(path)]


def test_a_changed_file_is_not_stored() -> None:
    given = given_of("reasoner")
    host = engine_host(given, stored=True)
    (model,) = given.models
    host.files[f"{model.folder}/{model.files[0].name}"] = File("more than was whole")
    assert estimate(given, host).runs["reasoner"].state == "absent"


@pytest.mark.parametrize(("ended", "code"), [(Ended(-9), 137), (Ended(-6, "", CUT), 134), (Ended(TIMED_OUT), 124)])
def test_a_signal_is_a_code_as_of_a_shell(ended: Ended, code: int) -> None:
    given = given_of("reasoner")
    host = engine_host(given, stored=True)
    host.ends["prlimit"] = ended
    assert estimate(given, host).runs["reasoner"].code == code


def test_a_header_that_cannot_be_written_fails() -> None:
    given = given_of("reasoner", hollow={"35b": (Shard("model.gguf", 10**9, b"a header"),)})
    host = engine_host(given)
    host.ends["truncate"] = Ended(1, "", "truncate: File too large\n")
    with pytest.raises(FailedError, match="a file of 1000000000 bytes cannot be made: truncate: File too large"):
        estimate(given, host)
    assert not [path for path in host.files if NEW.match(path)]


def test_a_host_without_its_account_runs_the_tool_as_nobody() -> None:
    given = given_of("reasoner")
    host = engine_host(given, stored=True)
    host.ends |= {"id -u llama": Ended(1), "id -u nobody": Ended(0, "65534\n"), "id -g nobody": Ended(0, "65534\n")}
    estimate(given, host)
    assert host.has_done("setpriv", "--reuid", "65534")
    host.ends["id -u nobody"] = Ended(1)
    with pytest.raises(FailedError, match="no account llama and no account `nobody`"):
        estimate(given, host)


def test_names_that_a_shell_would_take_apart_stay_whole() -> None:
    """Environment, file names and headers: each is one argument, one variable or the bytes of a file."""
    note, odd = "$(id) 'and' \"more\"\n`id`", "it's $(id) `id`\n.gguf"
    rig = declared(reasoner={"environment": {"NOTE": "$(id) 'and' \"more\""}})
    run = sure(rig, "reasoner")
    each = replace(run, given=replace(run.given, environment=(f"NOTE={note}",)))
    planned = plan(rig, LOCK)
    files = tuple(file.model_copy(update={"name": odd}) for file in planned.models[0].files)
    model = planned.models[0].model_copy(update={"files": files})
    planned = planned.model_copy(update={"models": (model, *planned.models[1:])})
    given = estimate_input(planned, [each], {"35b": (Shard(odd, 10, b"END\n" * 100),)})
    host = engine_host(given)
    assert estimate(given, host).runs["reasoner"].state == "ran"
    assert host.environments[0]["NOTE"] == note
    assert next(argv[1] for argv in host.done if argv[0] == "write").endswith(f"/0/{odd}")
    assert {argv[0] for argv in host.done} == {"id", "write", "truncate", "prlimit", "remove"}


@given(st.binary(max_size=3000))
def test_a_header_arrives_as_it_was(header: bytes) -> None:
    given = given_of("reasoner", hollow={"35b": (Shard("model.gguf", 10**9, header),)})
    written: list[str | bytes] = []

    class Host(EngineHost):
        def write(self, path: str, text: str | bytes, *, mode: int = 0o600, owner: str = "root") -> None:
            written.append(text)
            assert (mode, owner) == (0o644, "root")
            assert NEW.match(path)

    host = engine_host(given)
    estimate(given, Host({}, host.files, folders={STATE}, ends=host.ends))
    assert written == [header]


REPO = "unsloth/Qwen3.6-35B-A3B-MTP-GGUF"


def lying(hub: Hub, paths: list[Path], local: Path) -> Plan:
    """A plan of two models: files of a repository of this hub, and a file of this machine."""
    url = f"{hub.url}/{REPO}/resolve/{hub.commit(REPO)}"
    files = tuple(ModelFile(name=path.name, sha256=SHA, size=path.stat().st_size) for path in paths)
    return plan(declared(), LOCK).model_copy(
        update={
            "models": (
                ModelPlan(name="35b", folder="/srv/35b", files=files, url=url),
                ModelPlan(name="gemma", folder="/srv/g", files=(ModelFile(name="g.gguf", sha256=SHA),), local=local),
            )
        }
    )


def hollow(path: Path) -> Hollow:
    """The file without its weights, which have no place on this disk."""
    with path.open("rb") as stream:
        return Hollow(stream.read(read_header(path).data_offset), path.stat().st_size)


def test_headers_are_brought_and_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = gguf_files.write(gguf_files.qwen(), tmp_path / "35b.gguf", per_shard=400)
    (local,) = gguf_files.write(gguf_files.gemma3(), tmp_path / "gemma.gguf")
    heads = {path.name: hollow(path) for path in paths}
    with Hub({REPO: heads}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        shards, failed = headers(lying(hub, paths, local), {"35b", "gemma"})
        authorised = [request.had_auth for request in hub.requests]
    assert failed == {}
    assert len(paths) > 1
    assert [(shard.name, shard.size, shard.header) for shard in shards["35b"]] == [
        (name, head.size, head.head) for name, head in heads.items()
    ]
    (gemma,) = shards["gemma"]
    assert (gemma.name, gemma.size) == ("g.gguf", local.stat().st_size)
    assert gemma.header == local.read_bytes()[: read_header(local).data_offset]
    assert authorised
    assert all(authorised)
    given = estimate_input(plan(declared(), LOCK), [sure(declared(), "reasoner")], shards)
    assert TOKEN.encode() not in request("llamaherd.engine_memory.estimate", given)


def test_a_model_whose_header_cannot_be_had_leaves_the_others_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = gguf_files.write(gguf_files.qwen(), tmp_path / "35b.gguf")
    with Hub({REPO: {path.name: hollow(path) for path in paths}}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        shards, failed = headers(lying(hub, paths, tmp_path / "gone.gguf"), {"35b", "gemma"})
        assert list(shards) == ["35b"]
        assert failed == {"gemma": f"{tmp_path}/gone.gguf cannot be read: No such file or directory"}
        hub.status[f"/{REPO}/resolve/{hub.commit(REPO)}/{paths[0].name}"] = 404
        shards, failed = headers(lying(hub, paths, tmp_path / "gone.gguf"), {"35b"})
    assert shards == {}
    assert "does not exist (404)" in failed["35b"]


def test_a_host_is_left_alone_if_there_is_nothing_to_ask() -> None:
    """Nothing listens where this rig is said to be."""
    rig = Rig.model_validate(changed(gpu_rig(), {"connect": {"host": "127.0.0.1", "port": 1}}))
    planned = plan(rig, hub_lock())
    found = query_engines(rig, planned, Lock(), Remote(rig.connect))
    assert list(found) == [each.name for each in planned.instances]
    assert all(isinstance(sentence, str) for sentence in found.values())


@pytest.mark.usefixtures("starts_processes")
def test_a_host_that_cannot_be_reached_is_an_error() -> None:
    rig = Rig.model_validate(changed(gpu_rig(), {"connect": {"host": "127.0.0.1", "port": 1}}))
    with pytest.raises(RemoteError, match="nothing listens for SSH"):
        query_engines(rig, plan(rig, LOCK), LOCK, Remote(rig.connect))
