"""How instances share GPUs and cores, what their cache needs, the images that they run, and what none of them uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.checks.context import RigContext
from llamaherd.checks.references import check_unused
from llamaherd.checks.sources import untagged
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import Document, read_yaml
from llamaherd.memory.facts import rig_facts
from tests.support.checking import Case, assert_said
from tests.support.rigs import DIGEST, changed, gpu_rig

TWO, ONE, SMALL, BOXED = "instances/reasoner/", "instances/worker/", "instances/small/", "instances/boxed/"
OFFICIAL = f"ghcr.io/ggml-org/llama.cpp@sha256:{DIGEST}"


def arguments(instance: str, *words: str) -> dict[str, Any]:
    return {f"{instance}extra_args": list(words)}


def fork(**changes: Any) -> dict[str, Any]:
    """The instance on two GPUs, by the fork, which drafts on the CPU in no way."""
    return {TWO + "engine": "ik"} | {TWO + key: value for key, value in changes.items()}


HELD = {"gpus/cards/new/power_limit": 450, "gpus/cards/old/power_limit": 250}
EXPECTING = {
    "power that its GPUs can take": Case(HELD | {TWO + "expect": {"power": 700}, ONE + "expect": {"power": 250}}),
    "more than both can take": Case(
        HELD | {TWO + "expect": {"power": 701}}, "LH080", "701", "limited to 700 W together", "`700W`", "warning"
    ),
    "more than its own can take": Case(
        HELD | {ONE + "expect": {"power": 300}}, "LH080", "300", "limited to 250 W together", "`250W`", "warning"
    ),
    "one limit is not declared": Case({"gpus/cards/old/power_limit": 250, TWO + "expect": {"power": 3000}}),
    "power without a GPU": Case(
        {SMALL + "expect": {"power": 65}}, "LH080", "65", "on no GPU", "take `power` out", "warning"
    ),
    "speed without a GPU": Case({SMALL + "expect": {"decode": 65, "prefill": 900}}),
}

QUALITY, WEIGHTS = {"quality": {"kld": 0.005}}, {"models": ["small"]}
JUDGING = {
    "a unit of a build": Case({TWO + "tune": QUALITY}),
    "by the fork": Case({ONE + "kv": "q8_0", ONE + "tune": QUALITY}),
    "an image": Case(
        {SMALL + "tune": QUALITY}, "LH081", "kld", "cannot be judged: it is a container", "take `quality`"
    ),
    "a container": Case({BOXED + "tune": QUALITY}, "LH081", "kld", "cannot be judged: it is a cont", "take `quality`"),
    "a container that has none": Case({BOXED + "tune": {"for": "decode"}}),
    "what a gate of a unit says": Case({TWO + "gate": {"kld": 0.02}}),
    "a gate of short requests": Case(
        {TWO + "gate": {"kld": 0.02}, TWO + "context": 1024, TWO + "parallel": 4},
        *("LH081", "0.02", "a request has 256 tokens of context", "more `context`"),
    ),
    "two types": Case({ONE + "tune": QUALITY}, "LH081", "kld", "V is q4_0", "take `quality` out", "warning"),
    "without flash attention": Case(
        {TWO + "flash_attention": "off", TWO + "tune": QUALITY},
        *("LH081", "kld", "flash attention", "take `quality` out", "warning"),
    ),
    "as coarse as it gets": Case(
        {TWO + "kv": "q4_0", TWO + "tune": QUALITY},
        *("LH081", "kld", "coarser than q4_0", "take `quality` out", "warning"),
    ),
    "as coarse as it gets, with other weights": Case({TWO + "kv": "q4_0", TWO + "tune": WEIGHTS | QUALITY}),
}

EFFICIENCY = {"for": "efficiency"}
SAVING = {
    "on a GPU": Case({ONE + "tune": EFFICIENCY}),
    "on none": Case(
        {SMALL + "tune": EFFICIENCY}, "LH082", "efficiency", "`small` is on no GPU", "choose another objective"
    ),
    "power limits on none": Case(
        {SMALL + "tune": {"power": {"max": 120}}}, "LH083", "max", "`small` is on no GPU", "take `power` out"
    ),
    "power limits under WSL": Case(
        {ONE + "tune": {"power": {"max": 250}}},
        "LH083",
        "max",
        "Windows sets power limits",
        "take `power` out",
        wsl=True,
    ),
    "power limits on a GPU": Case({ONE + "tune": {"power": {"max": 250}}}),
    "another aim on none": Case({SMALL + "tune": {"for": "turn"}}),
}

SPLITTING = {
    "by layer": Case({TWO + "split": "layer", TWO + "tensor_split": [0.9, 1]}),
    "by row": Case({TWO + "split": "row"}, "LH052", "row", "no split buffers", "`split: layer`, or `split: tensor`"),
    "by row, long ago": Case(
        {TWO + "split": "row", "engines/main/source/ref": "b9888", "engines/main/source/commit": None}
    ),
    "by row, since": Case(
        {TWO + "split": "row", "engines/main/source/ref": "b9890", "engines/main/source/commit": None}, "LH052", "row"
    ),
    "by row, in the fork": Case(fork(split="row"), "LH052", "row", "ik_llama.cpp has no", "`split: graph`"),
    "by graph": Case({TWO + "split": "graph"}, "LH052", "graph", "of ik_llama.cpp, not", "`split: tensor`"),
    "by graph, in the fork": Case(fork(split="graph")),
    "by graph, on one GPU": Case(
        {ONE + "split": "graph"}, "LH052", "graph", "does not start with `split: graph` and one GPU", "leave out"
    ),
    "by tensor": Case({TWO + "split": "tensor"}),
    "by tensor, in the fork": Case(fork(split="tensor"), "LH052", "tensor", "of llama.cpp, not", "`split: graph`"),
    "by tensor, without flash attention": Case(
        {TWO + "split": "tensor", TWO + "flash_attention": "off"},
        "LH052",
        "tensor",
        "without flash attention",
        "leave out `flash_attention: off`",
    ),
    "not at all": Case(
        {TWO + "split": "none"}, "LH053", "none", "only the first of the 2 GPUs", "or `on: [new]`", "warning"
    ),
    "one GPU by layer": Case({ONE + "split": "layer"}, "LH053", "split", "`split` does nothing", "", "warning"),
    "one GPU of one": Case({ONE + "tensor_split": [1]}, "LH053", "tensor_split", "does nothing", "", "warning"),
    "one GPU, not at all": Case({ONE + "split": "none"}),
    "fit": Case(
        arguments(TWO, "--fit", "on"),
        "LH057",
        "--fit",
        "here `--gpu-layers all` does so",
        "leave out `--fit on`",
        "note",
    ),
    "fit beside layers": Case(
        arguments(TWO, "--fit", "on") | {TWO + "gpu_layers": 99},
        "LH057",
        "--fit",
        "here `gpu_layers` does so",
        "leave out `--fit on`, or `gpu_layers`",
        "note",
    ),
    "fit beside flags": Case(
        arguments(TWO, "-ts", "3,1", "-fit", "on"),
        "LH057",
        "-fit",
        "here `--gpu-layers all` does so",
        "leave out `-fit on`",
        "note",
    ),
    "no fit beside layers": Case(arguments(TWO, "--fit", "off") | {TWO + "gpu_layers": 99}),
    "layers alone": Case({TWO + "gpu_layers": 99, TWO + "experts_on_cpu": "0%"}),
    "fit in the fork": Case(arguments(ONE, "--fit") | {ONE + "gpu_layers": 99}),
    "fit in the fork beside experts": Case(
        arguments(ONE, "--fit") | {ONE + "experts_on_cpu": "75%", ONE + "threads": 6, SMALL + "threads": 6},
        "LH057",
        "--fit",
        "does not start with both `--fit` and `experts_on_cpu`",
        "leave out one",
    ),
}

NO_ALL = {"engines/ik/options": {"GGML_CUDA_FA_ALL_QUANTS": False}}
FEW = {"engines/main/options": {"GGML_CUDA_FA_QUANTS": "q8_0-q8_0;q8_0-q4_0"}}


def on_card(image: str, kind: str = "llama.cpp", **more: Any) -> dict[str, Any]:
    """The instance of an image, on a GPU."""
    return {"engines/image": {"kind": kind, "image": image}, SMALL + "on": ["new"]} | {
        SMALL + key: value for key, value in more.items()
    }


CACHE = {
    "of the fork": Case({TWO + "kv": "q6_0"}, "LH055", "q6_0", "of ik_llama.cpp", "`q5_1` or `q8_0`"),
    "in the fork": Case({ONE + "kv": "q6_0"}),
    "quantised without flash attention": Case(
        {TWO + "kv": {"k": "q8_0", "v": "q4_0"}, TWO + "flash_attention": "off"},
        "LH054",
        "'off'",
        "a V cache of type `q4_0` needs flash attention",
        "`kv: {k: q8_0}`",
    ),
    "K quantised without flash attention": Case({TWO + "kv": {"k": "q8_0"}, TWO + "flash_attention": "off"}),
    "of the fork, on the CPU": Case(
        {ONE + "kv": "q5_1", ONE + "gpu_layers": 0}, "LH076", "q5_1", "no attention on the CPU for", "`kv: q6_0`"
    ),
    "of the fork, as values on the CPU": Case(
        {ONE + "kv": {"k": "q8_0", "v": "q5_0"}, ONE + "gpu_layers": 0}, "LH076", "k: q8_0", "type `q5_0`", "`kv: q8_0`"
    ),
    "of the fork, with its cache in RAM": Case(
        {ONE + "kv": "q5_1"} | arguments(ONE, "-nkvo"), "LH076", "q5_1", "on the CPU for", "`kv: q6_0`"
    ),
    "of the fork, with no layer on a GPU, word for word": Case(
        {ONE + "kv": "q5_1"} | arguments(ONE, "-ngl", "0"), "LH076", "q5_1", "on the CPU for", "`kv: q6_0`"
    ),
    "of the fork, on a GPU": Case({ONE + "kv": "q5_1"}),
    "on the CPU, by another": Case({SMALL + "kv": "q5_1"}),
    "another of the fork, on the CPU": Case({ONE + "kv": "q6_0", ONE + "gpu_layers": 0}),
    "all kernels": Case({TWO + "kv": {"k": "q5_1", "v": "q4_0"}}),
    "a type without kernels": Case(
        {TWO + "kv": "iq4_nl"}, "LH056", "iq4_nl", "no CUDA kernel for a cache of type `iq4_nl`", "q4_0", "warning"
    ),
    "a type without kernels on the CPU": Case({SMALL + "kv": "iq4_nl"}),
    "a pair that was chosen": Case(FEW | {TWO + "kv": {"k": "q8_0", "v": "q4_0"}, BOXED + "kv": "f32"}),
    "a pair that was not chosen": Case(
        FEW | {TWO + "kv": "q4_0"},
        "LH056",
        "q4_0",
        "K-V types `q4_0-q4_0`",
        '`options: {GGML_CUDA_FA_QUANTS: "f16-f16;q4_0-q4_0;q8_0-q4_0;q8_0-q8_0"}` for engine `main`',
        "warning",
    ),
    "what is no pair is no advice": Case(
        {"engines/main/options": {"GGML_CUDA_FA_QUANTS": "q4_0;q8_0-q8_0"}, TWO + "kv": {"k": "q8_0", "v": "q4_0"}},
        "LH056",
        "k: q8_0",
        "K-V types `q8_0-q4_0`",
        '`options: {GGML_CUDA_FA_QUANTS: "f16-f16;q8_0-q4_0;q8_0-q8_0"}` for engine `main`',
        "warning",
    ),
    "all by the old name": Case(
        {"engines/main/options": {"GGML_CUDA_FA_ALL_QUANTS": "on"}, TWO + "kv": {"k": "q5_1", "v": "q4_0"}}
    ),
    "a pair of the official image": Case(on_card(OFFICIAL, kv="q8_0")),
    "a pair that it lacks": Case(
        on_card(OFFICIAL, kv={"k": "q8_0", "v": "q4_0"}), "LH056", "k: q8_0", "`q8_0-q4_0`", "from a source", "warning"
    ),
    "a pair of an image of one's own": Case(
        on_card(f"registry.lan/llama.cpp@sha256:{DIGEST}", kv={"k": "q8_0", "v": "q4_0"})
    ),
    "the fork with few kernels": Case(
        NO_ALL, "LH056", "k: q8_0", "stops at the first token", "{GGML_CUDA_FA_ALL_QUANTS: true}", "warning"
    ),
    "the fork with few kernels, and one of them": Case(NO_ALL | {ONE + "kv": {"k": "q8_0", "v": "iq4_nl"}}),
}

GGML, IK = "ghcr.io/ggml-org/llama.cpp", "ghcr.io/ikawrakow/ik-llama-cpp"

IMAGES = {
    "by digest": Case(on_card(OFFICIAL)),
    "by tag and digest": Case(on_card(f"{GGML}:server-cuda@sha256:{DIGEST}")),
    "by tag": Case(
        on_card(f"{GGML}:server-cuda13"),
        "LH070",
        f"{GGML}:server",
        "`server-cuda13` is a tag that moves",
        f"`image: {GGML}@sha256:…`",
        "warning",
    ),
    "by the tag of a build": Case(on_card(f"{GGML}:server-cuda13-b11434")),
    "by the tag of a version": Case(on_card("registry.lan/llama.cpp:v0.11")),
    "by the tag of a commit": Case(on_card("registry.lan/llama.cpp:nightly-9ee9fc04c")),
    "by nothing, at a port": Case(
        on_card("registry.lan:5000/llama.cpp"),
        "LH070",
        "registry",
        "the one tagged `latest`",
        "registry.lan:5000/llama.cpp@sha256",
        "warning",
    ),
    "moved": Case(
        on_card("ghcr.io/ggerganov/llama.cpp:full-cuda"),
        "LH071",
        "ghcr.io/ggerganov",
        "gets no new images",
        f"`image: {GGML}:server-cuda`",
    ),
    "moved, without a tag": Case(on_card("ghcr.io/ggerganov/llama.cpp"), "LH071", "", "moved", f"{GGML}:server-cuda"),
    "no server": Case(
        on_card(f"{GGML}:light-cuda13@sha256:{DIGEST}"),
        "LH072",
        GGML,
        "`light-cuda13` does not",
        f"{GGML}:server-cuda13`",
    ),
    "no server of the fork": Case(
        on_card(f"{IK}:cu12-full-4000@sha256:{DIGEST}", "ik_llama.cpp"),
        "LH072",
        IK,
        "does not start",
        f"{IK}:cu12-server`",
    ),
    "no CUDA": Case(
        on_card(f"{GGML}:server-b11434@sha256:{DIGEST}"), "LH072", GGML, "on the CPU alone", "server-cuda-b11434`"
    ),
    "no CUDA, and no GPU": Case(on_card(f"{GGML}:server-b11434@sha256:{DIGEST}", on=[])),
    "of the other engine": Case(
        on_card(f"{IK}:cu13-server@sha256:{DIGEST}"), "LH072", IK, "is an image of ik_llama.cpp", "`kind: ik_llama.cpp`"
    ),
    "the fork's on Blackwell": Case(
        on_card(f"{IK}:cu13-server@sha256:{DIGEST}", "ik_llama.cpp"), "LH073", IK, "built for 86 and 90", "", "note"
    ),
    "the fork's on Ampere": Case(on_card(f"{IK}:cu13-server@sha256:{DIGEST}", "ik_llama.cpp", on=["old"])),
    "vLLM": Case(on_card(f"vllm/vllm-openai@sha256:{DIGEST}", "vllm", split="row", flash_attention="off", kv="q6_0")),
}

PROCESSOR = {
    "as many as cores": Case({SMALL + "threads": 12, ONE + "threads": 12}),
    "more than cores": Case(
        {ONE + "threads": 24}, "LH060", "24", "24 threads, and there are 12 physical cores", "`threads: 12`"
    ),
    "more than performance cores": Case({"host/cpu/performance": 8, SMALL + "threads": 12}),
    "more performance cores than cores": Case(
        {"host/cpu/performance": 16}, "LH063", "16", "16 performance cores", "`performance: 12` at most"
    ),
    "more than cores, with performance cores": Case(
        {"host/cpu/performance": 8, SMALL + "threads": 24}, "LH060", "24", "12 physical", "`threads: 8`"
    ),
    "together": Case(
        {BOXED + "on": [], BOXED + "threads": 4, SMALL + "threads": 9},
        "LH061",
        "9",
        "`boxed` (4), `small` (9) compute on the CPU with 13 threads together on 12 cores",
        "`threads: 6` for each",
        "warning",
    ),
    "together as many as cores": Case({BOXED + "on": [], BOXED + "threads": 4, SMALL + "threads": 8}),
    "by default they share": Case({BOXED + "on": []}),
    "one takes nearly all": Case(
        {BOXED + "on": [], SMALL + "threads": 11},
        "LH061",
        "11",
        "with 17 threads together",
        "6",
        "warning",
    ),
    "experts": Case(
        {ONE + "experts_on_cpu": "75%", SMALL + "threads": 12},
        *("LH061", "context: 204800", "`small` (12), `worker` (6)", "6", "warning"),
    ),
    "experts by flags": Case(
        arguments(ONE, "-ot", r"\.ffn_.*_exps=CPU") | {SMALL + "threads": 12},
        *("LH061", "", "`small` (12), `worker` (6)", "6", "warning"),
    ),
    "all of many cores": Case(
        {"host/cpu/cores": 64, SMALL + "threads": 64}, "LH160", "64", "each of the 64 cores", "`threads: 40`", "warning"
    ),
    "all but one of many cores": Case({"host/cpu/cores": 64, SMALL + "threads": 63}),
    "all performance cores of many": Case({"host/cpu/cores": 24, "host/cpu/performance": 24, SMALL + "threads": 24}),
    "tensors to another GPU by flags": Case(arguments(ONE, "-ot", r"blk\.1\.=CUDA0")),
    "some layers": Case(
        {ONE + "gpu_layers": 20, SMALL + "threads": 12}, "LH061", "", "`small` (12), `worker` (6)", "6", "warning"
    ),
    "all layers": Case({ONE + "gpu_layers": 999}),
    "processors": Case({SMALL + "cpus": "0-5,12-17"}),
    "processors that are not there": Case(
        {SMALL + "cpus": "0-5,24"},
        "LH062",
        "0-5,24",
        "uses logical processor 24, and there are at most 24",
        "up to 23",
    ),
    "processors without number": Case(
        {SMALL + "cpus": "0-" + "9" * 5000}, "LH062", "0-9", "logical processor 1000000000"
    ),
    "processors backwards": Case({SMALL + "cpus": "5-0"}, "LH062", "5-0", "runs backwards", "`0-5`"),
    "more threads than processors": Case(
        {SMALL + "cpus": "0-3,2-5", SMALL + "threads": 7},
        "LH062",
        "0-3",
        "7 threads for 6 logical processors",
        "`threads: 6`",
        "warning",
    ),
    "as many threads as processors": Case({SMALL + "cpus": "0-3,2-5", SMALL + "threads": 6}),
    "shared processors": Case(
        {SMALL + "cpus": "0-5", SMALL + "threads": 6, BOXED + "on": [], BOXED + "threads": 6, BOXED + "cpus": "11,5-9"},
        "LH062",
        "0-5",
        "`boxed` and `small` both compute on logical processor 5",
        "its own `cpus`",
        "warning",
    ),
    "their own processors": Case(
        {SMALL + "cpus": "0-5", SMALL + "threads": 6, BOXED + "on": [], BOXED + "threads": 6, BOXED + "cpus": "6-11"}
    ),
    "shared with one that is on a GPU": Case({SMALL + "cpus": "0-5", BOXED + "cpus": "0-5"}),
    "processors of the virtual machine": Case(
        {"host/wsl/processors": 8, SMALL + "cpus": "0-11"}, "LH062", "0-11", "at most 8", "up to 7", wsl=True
    ),
}

GATES = {
    "a gate of a container": Case(
        {BOXED + "gate": {"decode": "-3%"}},
        "LH330",
        "decode: -3%",
        "`boxed` is a container, and its gate measures units of systemd alone",
        "take `gate` out",
        "warning",
    ),
    "a gate of a unit": Case({ONE + "gate": {"decode": "-3%"}}),
}

UNUSED = {
    "an engine": Case(
        {SMALL + "engine": "main"},
        "LH075",
        "image:",
        "no instance uses engine `image`",
        "take engine `image` out",
        "warning",
    ),
    "a model": Case({"models/more": {"hf": "a/b"}}, "LH075", "more:", "no instance uses model `more`", "", "warning"),
    "a GPU": Case(
        {"gpus/cards/third": {"model": "RTX 3090", "uuid": "GPU-3"}},
        "LH075",
        "third:",
        "uses GPU `third`",
        "",
        "warning",
    ),
    "a name that is misspelt": Case({SMALL + "engine": "imgae"}),
}

CASES = SPLITTING | EXPECTING | JUDGING | SAVING | CACHE | IMAGES | PROCESSOR | GATES | UNUSED


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_instances(case: Case, tmp_path: Path) -> None:
    assert_said(case, tmp_path)


def test_no_case_hides_another() -> None:
    assert len(CASES) == sum(map(len, (SPLITTING, EXPECTING, JUDGING, SAVING, CACHE, IMAGES, PROCESSOR, GATES, UNUSED)))


def test_what_another_file_declares_may_be_unused(tmp_path: Path) -> None:
    for name, declared in (("rig", gpu_rig()), ("defaults", {"engines": {"lent": gpu_rig()["engines"]["main"]}})):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(declared))
    own, lent = read_yaml(tmp_path / "rig.yaml"), read_yaml(tmp_path / "defaults.yaml")
    rig = Rig.model_validate(changed(gpu_rig(), {"engines/lent": lent.data["engines"]["lent"]}))
    whole = Document(own.file, own.data, {**lent.keys, **own.keys}, {**lent.values, **own.values})
    assert list(check_unused(RigContext(rig_facts(rig, {}), whole))) == []
    moved = Document(lent.file, own.data, whole.keys, whole.values)
    assert [finding.code for finding in check_unused(RigContext(rig_facts(rig, {}), moved))] == ["LH075"]


@pytest.mark.parametrize(("layers", "on_cpu"), [(47, True), (48, False), (999, False)])
def test_a_header_tells_how_many_layers_are_all(layers: int, on_cpu: bool) -> None:
    rig = Rig.model_validate(changed(gpu_rig(), {ONE + "gpu_layers": layers}))
    header = Header(architecture="qwen35moe", parameters={"block_count": 48})
    subject = RigContext(rig_facts(rig, {"35b": header}), Document(Path("rig.yaml"), {}, {}, {}))
    assert subject.facts.instances["worker"].on_cpu is on_cpu


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (f"a/b@sha256:{DIGEST}", "a/b"),
        (f"a/b:c@sha256:{DIGEST}", "a/b"),
        ("lan:5000/b", "lan:5000/b"),
        ("lan:5000/b:c", "lan:5000/b"),
        ("b", "b"),
    ],
)
def test_the_name_of_an_image(image: str, name: str) -> None:
    assert untagged(image) == name
