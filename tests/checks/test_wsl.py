"""WSL's memory, paths and settings; and no rig at all, however strange, that a check cannot take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks.memory_shapes_embedding import bge_m3
from llamaherd.checks.context import RigContext
from llamaherd.checks.wsl import check_default_wsl_memory
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.memory.facts import rig_facts
from tests.support.checking import Case, assert_said, findings_of
from tests.support.headers import header
from tests.support.rigs import DIGEST, Declared, changed, cpu_rig, gpu_rig
from tests.support.sample import ALL

SETTINGS = "host/wsl/settings"


def own(section: str, **keys: Any) -> dict[str, Any]:
    """Settings of `.wslconfig` beside the one that is there."""
    return {f"{SETTINGS}/{section}": keys}


CASES = {
    "WSL": Case({}, wsl=True),
    "memory": Case({"host/wsl/memory": "64GiB", "host/ram": "64GB"}, wsl=True),
    "memory of the host": Case(
        {"host/wsl/memory": "64GiB", "host/ram": "128GB"},
        "LH064",
        "128GB",
        "`ram` is 128 GB, and the virtual machine of the host has 68.7 GB",
        "the same for `ram` as for `wsl.memory`",
        "warning",
        wsl=True,
    ),
    "weights that are dropped": Case(
        {"host/wsl": {}},
        "LH067",
        "{}",
        "weights that `small` computes on the CPU",
        "autoMemoryReclaim: disabled",
        "warning",
    ),
    "weights that are dropped bit by bit": Case(
        {SETTINGS: {"Experimental": {"automemoryreclaim": "gradual"}}}, "LH067", "", "drops", "", "warning", wsl=True
    ),
    "weights that are not mapped": Case({"host/wsl": {}, "instances/small/mmap": False}),
    "weights on GPUs": Case({"host/wsl": {}, "instances/small/on": ["new"]}),
    "a path of Windows in an argument": Case(
        {"instances/worker/extra_args": ["--mmproj", "/mnt/d/models/mmproj.gguf"]},
        "LH065",
        "/mnt/d/models",
        "`/mnt/d/models/mmproj.gguf` lies on a disk of Windows",
        "the distribution's own disk",
        "warning",
        wsl=True,
    ),
    "such a path in Linux": Case({"instances/worker/extra_args": ["--mmproj", "/mnt/d/models/mmproj.gguf"]}),
    "a path that looks like it": Case(
        {"instances/worker/extra_args": ["--mmproj", "/mnt/data/m.gguf", "-x", "/srv/mnt/c/m.gguf"]}, wsl=True
    ),
    "a model on Windows' disk": Case(
        {"connect": "local", "models/gemma/file": "/mnt/c/m/gemma.gguf"},
        "LH065",
        "/mnt/c/m/gemma.gguf",
        "model `gemma` lies on a disk of Windows",
        "~/models",
        "warning",
        wsl=True,
    ),
    "a model of another machine": Case({"models/gemma/file": "/mnt/c/m/gemma.gguf"}, wsl=True),
    "a model on Linux' disk": Case({"connect": "local"}, wsl=True),
    "memory of the GPU": Case(
        own("wsl2", gpuMemory="24GB"), "LH147", "gpuMemory", "there is no key `gpuMemory`", "cannot be set", wsl=True
    ),
    "a key that WSL knows": Case(own("wsl2", dnsTunneling=True), wsl=True),
    "ports on mirrored networking": Case(
        own("experimental", ignoredPorts="3000,9000", autoMemoryReclaim="disabled")
        | {"host/wsl/networking": "mirrored"},
        wsl=True,
    ),
    "ports on other networking": Case(
        own("experimental", ignoredPorts="3000", autoMemoryReclaim="disabled"),
        "LH148",
        "'3000'",
        "mirrored` alone",
        severity="warning",
        wsl=True,
    ),
    "forwarding beside mirrored networking": Case(
        own("wsl2", localhostForwarding=True) | {"host/wsl/networking": "mirrored"},
        "LH148",
        "true",
        "does nothing",
        severity="warning",
        wsl=True,
    ),
    "a wrong value": Case(own("wsl2", dnsTunneling="yes"), "LH148", "'yes'", "neither true nor false", wsl=True),
    "a section that is none": Case(
        own("wsl", memory="8GB", swap="0"), "LH147", "wsl:", "there is no section `[wsl]`", "`wsl2`", wsl=True
    ),
    "a key in the wrong section": Case(
        own("wsl2", instanceIdleTimeout=-1), "LH147", "instanceIdleTimeout", "", "put it under `[general]`", wsl=True
    ),
    "a key with a key of its own": Case(
        own("wsl2", memory="64GB"), "LH066", "memory", "a key of its own", "`memory:` under `wsl`", "warning", wsl=True
    ),
    "a key beside its own": Case(
        own("wsl2", networkingMode="nat") | {"host/wsl/networking": "mirrored"},
        "LH066",
        "networkingMode",
        "follows from `networking` of `wsl`",
        "leave `networkingMode` out of `settings`",
        wsl=True,
    ),
    "a time beside keep_alive": Case(
        own("wsl2", vmIdleTimeout=60000), "LH066", "vmIdleTimeout", "from `keep_alive`", "out of `settings`", wsl=True
    ),
    "a time instead of keep_alive": Case(own("wsl2", vmIdleTimeout=60000) | {"host/wsl/keep_alive": False}, wsl=True),
    "a folder of Windows": Case({"host/wsl/windows_profile": "/mnt/c/Users/tom"}, wsl=True),
    "a folder as Windows writes it": Case(
        {"host/wsl/windows_profile": r"C:\Users\tom"},
        "LH068",
        "C:",
        "not a folder of Windows in WSL",
        "`windows_profile: /mnt/c/Users/tom`",
        wsl=True,
    ),
    "a folder from nowhere": Case(
        {"host/wsl/windows_profile": "Users/tom"}, "LH068", "Users", "", "like `/mnt/c/Users/tom`", wsl=True
    ),
    "a folder elsewhere": Case(
        {"host/wsl/windows_profile": "/c/Users/tom"}, "LH068", "/c", "", "automount.root", "warning", wsl=True
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_wsl(case: Case, tmp_path: Path) -> None:
    assert_said(case, tmp_path)


# Values that pydantic may accept at these places, sensible or not.
NUMBERS = st.integers(1, 10**12) | st.sampled_from([1, 2, 12, 13, 99])
CARD = st.sampled_from(["RTX 3090", "RTX 5090M", "GTX 1080 Ti", "B300"])
KINDS = st.sampled_from(["f32", "f16", "bf16", "q8_0", "q6_0", "q5_1", "iq4_nl"])
CPUS = st.from_regex(r"\A[0-9]{1,12}(-[0-9]{1,12})?(,[0-9]{1,3}(-[0-9]{1,3})?)*\Z")
WORDS = st.sampled_from(["--fit", "on", "-ot", "=CPU", "-ncmoe", "/mnt/c/x", "", "-ngl", "é", "--fit=on"])
IMAGE = st.from_regex(r"\A[a-z./:@-]{1,20}\Z") | st.sampled_from(
    [
        "ghcr.io/ggerganov/llama.cpp",
        "ghcr.io/ggml-org/llama.cpp:full",
        "ghcr.io/ikawrakow/ik-llama-cpp:",
        f"@sha256:{DIGEST}",
    ]
)
PLACES: dict[str, st.SearchStrategy[Any]] = {
    "host/os": st.sampled_from(["debian-12", "ubuntu-22.04", "ubuntu-26.04"]),
    "host/cpu/cores": NUMBERS,
    "host/cpu/performance": NUMBERS,
    "host/ram": NUMBERS,
    "host/wsl": st.fixed_dictionaries({}, optional={"memory": NUMBERS, "keep_alive": st.booleans()}),
    "host/wsl/processors": NUMBERS,
    "host/wsl/windows_profile": st.text(max_size=8) | st.sampled_from(["C:\\", "\\\\a\\b\\c", "c:x", "/mnt/c"]),
    "host/wsl/settings": st.dictionaries(
        st.sampled_from(["wsl2", "WSL2", "general", "x"]),
        st.dictionaries(
            st.sampled_from(["memory", "vmIdleTimeout", "x"]), st.text(max_size=4) | NUMBERS | st.booleans()
        ),
    ),
    "connect": st.just("local"),
    "gpus/cuda": st.from_regex(r"\A\d{1,5}\.\d{1,5}\Z"),
    "gpus/driver": st.integers(0, 1100).map(lambda branch: {"branch": branch}),
    "gpus/cards": st.dictionaries(
        st.sampled_from(["new", "old", "more"]),
        st.fixed_dictionaries(
            {"model": CARD},
            optional={
                "architecture": st.from_regex(r"\A\d{2,3}[af]?\Z"),
                "memory": NUMBERS,
                "power_limit": NUMBERS,
                "clocks": st.fixed_dictionaries({"max": NUMBERS}, optional={"min": NUMBERS}),
                "index": st.integers(0, 31),
                "pci": st.from_regex(r"\A([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\Z"),
            },
        ),
    ),
    "engines/main": st.one_of(
        IMAGE.map(lambda image: {"kind": "llama.cpp", "image": image}),
        IMAGE.map(lambda image: {"kind": "vllm", "image": image}),
        st.sampled_from(["b9889", "master", "ab" * 20]).map(lambda ref: {"kind": "ik_llama.cpp", "ref": ref}),
    ),
    "engines/main/options": st.dictionaries(
        st.sampled_from(["GGML_CUDA", "GGML_CUDA_FA_QUANTS", "GGML_CUDA_FA_ALL_QUANTS", "CMAKE_CUDA_FLAGS"]),
        st.text(max_size=9) | st.integers() | st.booleans(),
    ),
    "models": st.builds(dict),
    "models/35b": st.sampled_from([{"hf": "a/b", "quant": "IQ1_S"}, {"file": "/mnt/c/iq2", "sha256": "ab" * 32}]),
}
INSTANCE: dict[str, st.SearchStrategy[Any]] = {
    "engine": st.sampled_from(["main", "ik", "image", "none"]),
    "on": st.lists(st.sampled_from(["new", "old", "none"]), unique=True),
    "split": st.sampled_from(["none", "layer", "row", "tensor", "graph"]),
    "gpu_layers": NUMBERS | st.just("all"),
    "experts_on_cpu": NUMBERS | st.sampled_from(["all", "0%", "75%", "33.3%"]),
    "kv": KINDS | st.fixed_dictionaries({"k": KINDS, "v": KINDS}),
    "flash_attention": st.sampled_from(["auto", "on", "off"]),
    "threads": NUMBERS,
    "cpus": CPUS,
    "extra_args": st.lists(WORDS),
}


@st.composite
def rigs(draw: st.DrawFn) -> Declared:
    """The rig with two GPUs, and with some of its values changed to others that are allowed there."""
    places = draw(st.lists(st.sampled_from(sorted(PLACES)), max_size=4, unique=True))
    changes = {place: draw(PLACES[place]) for place in sorted(places)}
    for name in draw(st.lists(st.sampled_from(["boxed", "reasoner", "small", "worker"]), max_size=2, unique=True)):
        keys = draw(st.lists(st.sampled_from(sorted(INSTANCE)), max_size=4, unique=True))
        changes |= {f"instances/{name}/{key}": draw(INSTANCE[key]) for key in keys}
    return changed(gpu_rig(), changes)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
    max_examples=150 if ALL else 40,
    deadline=None,
)
@given(rigs())
def test_whatever_the_models_accept_the_checks_take(tmp_path: Path, declared: Declared) -> None:
    try:
        Rig.model_validate(declared)
    except ValidationError:
        reject()
    findings = findings_of(declared, tmp_path)
    assert all(finding.place.file.parent == tmp_path and finding.message and finding.help for finding in findings)


def test_a_rig_without_cards(tmp_path: Path) -> None:
    assert [finding.code for finding in findings_of(cpu_rig(), tmp_path)] == []


@pytest.mark.parametrize(
    ("ram", "wsl", "codes"),
    [
        ("3GiB", {}, ["LH084"]),
        ("3GiB", {"memory": "3GiB"}, []),
        ("3GiB", {"settings": {"wsl2": {"memory": "3GB"}}}, []),
        ("3GiB", None, []),
        ("64GiB", {}, []),
    ],
)
def test_a_plan_that_needs_more_than_half_of_the_memory_needs_a_word(
    tmp_path: Path, ram: str, wsl: dict[str, Any] | None, codes: list[str]
) -> None:
    """bge m3 in RAM takes 1.2 GB of weights, and some hundred MB of outputs."""
    model = next(iter(cpu_rig()["models"]))
    instance = {"engine": "main", "model": model, "context": 512, "port": 8080, "serve": "embeddings"}
    rig = changed(cpu_rig(), {"host/ram": ram, "host/wsl": wsl})
    rig["instances"] = {"one": instance}
    file = tmp_path / "rig.yaml"
    file.write_text(yaml.safe_dump(rig))
    subject = RigContext(rig_facts(Rig.model_validate(rig), {model: header(bge_m3())}), read_yaml(file))
    found = list(check_default_wsl_memory(subject))
    assert [each.code for each in found] == codes
    assert all(each.severity == "note" for each in found)
