"""What is written word for word beside the keys: memory is worked out of what the engine makes of all of it."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.checks.context import RigContext
from llamaherd.checks.placement import check_memory as memory_check
from llamaherd.checks.placement import check_uncounted_memory
from llamaherd.diagnostics.findings import Finding
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.memory.estimate import estimate
from llamaherd.memory.facts import Sized, rig_facts
from llamaherd.memory.instances import draft_placement, placement
from llamaherd.memory.placement import HOST, Placement, ik_layer_devices
from llamaherd.memory.suggestions import suggest_changes
from llamaherd.plan.devices import estimate_memory
from tests.support.headers import gemma3, qwen_35b, qwen_122b

LLAMA = {"kind": "llama.cpp", "ref": "b11434"}
IK = {"kind": "ik_llama.cpp", "ref": "main", "flags": "67268c8fd"}
CARDS = {name: {"model": "RTX 3090", "index": number} for number, name in enumerate(("one", "two", "three"))}


def declared(engine: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """A rig with three GPUs, and one instance with these keys on the first, unless they say other ones."""
    instance = {"engine": "main", "model": "m", "context": 32768, "port": 8080, "on": ["one"]}
    return {
        "rig": "three",
        "connect": {"host": "three.lan"},
        "host": {"os": "ubuntu-24.04", "cpu": {"cores": 16}, "ram": "192GB"},
        "gpus": {"driver": {"branch": 580}, "cuda": "13.0", "cards": CARDS},
        "engines": {"main": engine or LLAMA},
        "models": {"m": {"hf": "a/m-GGUF", "quant": "Q4_K"}, "small": {"hf": "a/small-GGUF", "quant": "Q8_0"}},
        "instances": {"chat": instance | keys},
    }


def placed(header: Header, engine: dict[str, Any] | None = None, **keys: Any) -> Placement:
    if isinstance(keys.get("extra_args"), str):
        keys["extra_args"] = shlex.split(keys["extra_args"])
    rig = Rig.model_validate(declared(engine, **keys))
    return placement(rig, rig.instances["chat"], header)


def subject(tmp_path: Path, header: Header, engine: dict[str, Any] | None = None, **keys: Any) -> RigContext:
    file = tmp_path / "rig.yaml"
    file.write_text(yaml.safe_dump(declared(engine, **keys), sort_keys=False), encoding="utf-8")
    document = read_yaml(file)
    return RigContext(rig_facts(Rig.model_validate(document.data), {"m": header}), document)


def without_ram(each: Sized) -> Sized:
    """The same with as much RAM as it needs."""
    return replace(each, room=replace(each.room, ram=None))


def on_cpu(header: Header, placement: Placement) -> set[str]:
    """The names of the tensors that an override sends to the CPU."""
    return {tensor.name for tensor in header.each if placement.override(tensor.name) == HOST}


BY_KEY = [
    ({"ubatch": 2048}, "-ub 2048", {"LLAMA_ARG_UBATCH": "2048"}),
    ({"batch": 512}, "-b 512", {"LLAMA_ARG_BATCH": "512"}),
    ({"split": "none"}, "-sm none", {"LLAMA_ARG_SPLIT_MODE": "none"}),
    ({"tensor_split": [1, 2, 3]}, "-ts 1,2,3", {"LLAMA_ARG_TENSOR_SPLIT": "1/2/3"}),
    ({"mmap": False}, "--load-mode none", {"LLAMA_ARG_LOAD_MODE": "none"}),
    ({"context": 65536}, "-c 65536", None),
    ({"kv": {"k": "q8_0"}}, "-ctk q8_0", None),
    ({"kv": "q8_0"}, "-ctk q8_0 -ctv q8_0", None),
    ({"parallel": 4}, "-np 4", None),
    ({"gpu_layers": 20}, "-ngl 20", None),
    ({"flash_attention": "off"}, "-fa off", None),
    ({"draft": {"mtp": 2}}, "--spec-type draft-mtp --spec-draft-n-max 2", None),
    ({"draft": {"mtp": 3}}, "--spec-type draft-mtp", {"LLAMA_ARG_SPEC_TYPE": "draft-mtp"}),
]


@pytest.mark.parametrize(("keys", "arguments", "variables"), BY_KEY)
def test_arguments_and_variables_place_as_the_key_does(
    keys: dict[str, Any], arguments: str, variables: dict[str, str] | None
) -> None:
    header, on = qwen_35b(), ["one", "two", "three"]
    by_key = placed(header, on=on, **keys)
    assert by_key != placed(header, on=on)
    assert placed(header, on=on, extra_args=arguments) == by_key
    if variables:
        assert placed(header, on=on, environment=variables) == by_key


def test_a_variable_that_the_command_line_beats_changes_nothing() -> None:
    variables = {"LLAMA_ARG_CTX_SIZE": "262144", "LLAMA_ARG_N_PARALLEL": "8", "LLAMA_ARG_CACHE_TYPE_K": "f32"}
    assert placed(qwen_35b(), environment=variables) == placed(qwen_35b())
    assert placed(qwen_35b(), environment={"LLAMA_ARG_UBATCH": "64"}, extra_args="-ub 1024").ubatch == 1024


def test_in_the_fork_variables_beat_arguments() -> None:
    found = placed(qwen_35b(), IK, environment={"LLAMA_ARG_CTX_SIZE": "65536"}, extra_args="-c 4096")
    assert found.context == 65536


def test_slots_of_the_engines_choice_share_their_cache() -> None:
    found = placed(qwen_35b(), extra_args="-np -1")
    assert (found.parallel, found.kv_unified) == (4, True)
    assert placed(qwen_35b(), extra_args="-np 4 -kvu").kv_unified


def test_the_context_of_the_model_is_its_headers() -> None:
    assert placed(qwen_35b(), extra_args="-c 0").context == qwen_35b().number("context_length") > 0


def test_a_physical_batch_of_nothing_is_the_other_one() -> None:
    assert placed(qwen_35b(), extra_args="-b 1024 -ub 0").ubatch == 1024


@pytest.mark.parametrize("count", [1, 10, 40])
def test_experts_of_the_first_layers_are_those_of_the_key(count: int) -> None:
    header = qwen_35b(mtp=False)
    by_key = placed(header, experts_on_cpu=count)
    for found in (
        placed(header, extra_args=f"-ncmoe {count}"),
        placed(header, environment={"LLAMA_ARG_N_CPU_MOE": str(count)}),
        placed(header, IK, extra_args=f"--n-cpu-moe {count}"),
    ):
        assert on_cpu(header, found) == on_cpu(header, by_key) != set()
    assert estimate(header, placed(header, extra_args=f"-ncmoe {count}")) == estimate(header, by_key)


@pytest.mark.parametrize("engine", [LLAMA, IK])
@pytest.mark.parametrize("arguments", ["-cmoe", "-ot exps=CPU", r"-ot '\.ffn_.*_exps\.=CPU'", "-ncmoe 999999999"])
def test_all_experts_are_those_of_the_key(engine: dict[str, Any], arguments: str) -> None:
    header = qwen_35b(mtp=False)
    assert on_cpu(header, placed(header, engine, extra_args=arguments)) == on_cpu(
        header, placed(header, engine, experts_on_cpu="all")
    )


def test_dense_layers_can_stay_on_the_cpu() -> None:
    header = gemma3()
    found = on_cpu(header, placed(header, extra_args="--n-cpu-ffn 3"))
    assert found == {f"blk.{layer}.ffn_{part}.weight" for layer in range(3) for part in ("up", "down", "gate")}


def test_several_cards_get_what_overrides_send_them() -> None:
    """The first that matches counts, and what none matches stays with its layer."""
    header = qwen_122b(mtp=False)
    usual = placed(header, on=["one", "two", "three"], tensor_split=[1, 1, 1])
    moved = placed(
        header,
        on=["one", "two", "three"],
        tensor_split=[1, 1, 1],
        extra_args=r"-ot 'blk\.0\.ffn_.*_exps=CUDA2,blk\.(0|1|2)\.ffn_.*_exps=CPU' -ot 'exps=CUDA1'",
    )

    def size(names: str) -> int:
        return sum(tensor.bytes for tensor in header.each if re.fullmatch(names, tensor.name))

    before, after = estimate(header, usual), estimate(header, moved)
    first, others, every = (
        size(rf"blk\.{layers}\.ffn_\w+_exps\.weight") for layers in ("0", "[12]", r"(?!0\.|1\.|2\.)\d+")
    )
    assert after.host.weights - before.host.weights == others
    own = [
        use.weights
        for use in estimate(
            header, placed(header, on=["one", "two", "three"], tensor_split=[1, 1, 1], extra_args="-cmoe")
        ).devices
    ]
    assert [use.weights for use in after.devices] == [own[0], own[1] + every, own[2] + first]


def test_variables_are_read_before_arguments_and_the_key() -> None:
    """Of llama.cpp's variables `-ot` comes first, however they are written (common/arg.cpp)."""
    header = qwen_35b(mtp=False)
    found = placed(
        header,
        on=["one", "two"],
        experts_on_cpu=2,
        environment={"LLAMA_ARG_N_CPU_MOE": "4", "LLAMA_ARG_OVERRIDE_TENSOR": r"blk\.0\.ffn_.*_exps=CUDA1"},
        extra_args=r"-ot blk\.5\.ffn_.*_exps=CPU",
    )
    moved = {layer: found.override(f"blk.{layer}.ffn_up_exps.weight") for layer in range(7)}
    assert moved == {0: 1, 1: HOST, 2: HOST, 3: HOST, 4: None, 5: HOST, 6: None}


def test_the_fork_takes_experts_of_each_card_in_proportion() -> None:
    """From the last layers of each (src/llama-load-tensors.cpp:245-309); all, or one GPU's, from the first."""
    header = qwen_122b(mtp=False)
    found = placed(header, IK, on=["one", "two", "three"], tensor_split=[1, 1, 2], extra_args="-ncmoe 12")
    cards = ik_layer_devices(header, found)[:-1]
    moved = [layer for layer in range(48) if found.override(f"blk.{layer}.ffn_up_exps.weight") == HOST]
    counts = [sum(cards[layer] == card for layer in moved) for card in range(3)]
    assert sum(counts) == 12
    assert all(abs(count - 12 * cards.count(card) / 48) <= 0.5 for card, count in enumerate(counts))
    for card in range(3):
        here = [layer for layer in range(48) if cards[layer] == card]
        assert [layer for layer in moved if cards[layer] == card] == here[len(here) - counts[card] :]
    graph = placed(header, IK, on=["one", "two"], split="graph", extra_args="-ncmoe 12")
    assert [layer for layer in range(48) if graph.override(f"blk.{layer}.ffn_up_exps.weight") == HOST] == [*range(12)]


def test_the_fork_takes_the_last_number_and_overrides_before_it() -> None:
    header = qwen_35b(mtp=False)
    found = placed(header, IK, on=["one", "two"], extra_args=r"-ncmoe 40 -ncmoe 1 -ot blk\.0\.ffn_up_exps=CUDA1 -cmoe")
    assert found.override("blk.0.ffn_up_exps.weight") == 1
    assert found.override("blk.39.ffn_up_exps.weight") == HOST


def test_embeddings_that_stand_in_for_the_output_are_one_tensor_where_both_are_sent() -> None:
    """Gemma 3 has no output matrix. llama.cpp finds the tensor again in the same buffer, ik_llama.cpp makes another."""
    header = gemma3()
    embedding = next(tensor.bytes for tensor in header.each if tensor.name == "token_embd.weight")
    usual = estimate(header, placed(header))
    (card,), host = usual.devices, usual.host
    moved = estimate(header, placed(header, extra_args="-ot token_embd=CUDA0"))
    assert host.weights - moved.host.weights == embedding
    assert moved.devices[0].weights == card.weights
    back = estimate(header, placed(header, extra_args="-ot token_embd=CPU"))
    assert (back.devices[0].weights, back.host.weights) == (card.weights - embedding, host.weights)
    twice = estimate(header, placed(header, IK, extra_args="-ot token_embd=CUDA0"))
    assert twice.devices[0].weights == estimate(header, placed(header, IK)).devices[0].weights + embedding


@pytest.mark.parametrize("engine", [LLAMA, IK])
def test_a_cache_in_ram_is_no_burden_of_the_card(engine: dict[str, Any]) -> None:
    header = qwen_35b(mtp=False)
    usual, moved = (estimate(header, placed(header, engine, extra_args=each)) for each in ("", "-nkvo"))
    assert (moved.devices[0].kv, moved.host.kv) == (0, usual.devices[0].kv)


def test_other_switches_that_decide_on_memory() -> None:
    header = gemma3()
    assert placed(header, extra_args="--swa-full").swa_full
    assert not placed(header, extra_args="--no-op-offload").op_offload
    assert placed(header, on=["one", "two"], extra_args="-sm none -mg 1").main_device == 1
    assert not placed(header, IK, extra_args="-rtr").mmap
    assert placed(header, IK, split="layer", on=["one", "two"], extra_args="-sm attn").split == "graph"


def test_a_model_that_drafts_is_placed_by_its_own_arguments() -> None:
    arguments = "-ngld 5 -ctkd q8_0 -ctvd q4_0 -ncmoed 2 -otd output=CPU"
    found = placed(qwen_35b(), draft={"model": "small"}, experts_on_cpu=5, extra_args=arguments)
    drafts = draft_placement(found)
    assert (drafts.gpu_layers, drafts.type_k, drafts.type_v) == (5, "q8_0", "q4_0")
    assert [target for _, target in drafts.overrides] == ["CPU", "CPU"]
    assert drafts.override("blk.1.ffn_up_exps.weight") == drafts.override("output.weight") == HOST
    assert drafts.override("blk.2.ffn_up_exps.weight") is None
    assert found.override("blk.4.ffn_up_exps.weight") == HOST


def test_a_rig_that_an_override_makes_fit_is_not_refused(tmp_path: Path) -> None:
    header = qwen_122b("IQ3_S", mtp=False)
    for more in (
        {"extra_args": ["-ot", r"blk\.(?:[0-9]|[1-3][0-9])\.ffn_.*_exps\.=CPU"]},
        {"extra_args": ["--n-cpu-moe", "40"]},
        {"environment": {"LLAMA_ARG_CPU_MOE": "1"}},
    ):
        assert list(memory_check(subject(tmp_path, header, **more))) == []
    (finding,) = memory_check(subject(tmp_path, header))
    assert finding.code == "LH150"


def test_a_rig_that_arguments_make_too_large_is_refused(tmp_path: Path) -> None:
    header = qwen_35b("Q4_K", "Q6_K", mtp=False)
    assert list(memory_check(subject(tmp_path, header))) == []
    for more in (
        {"extra_args": ["-ub", "4096", "-b", "4096"]},
        {"environment": {"LLAMA_ARG_UBATCH": "4096", "LLAMA_ARG_BATCH": "4096"}},
    ):
        assert [one.code for one in memory_check(subject(tmp_path, header, **more))] == ["LH150"]


@pytest.mark.parametrize(
    ("own", "key"),
    [
        ({"extra_args": ["--n-cpu-moe", "3"]}, "experts_on_cpu"),
        ({"environment": {"LLAMA_ARG_N_CPU_MOE": "3"}}, "experts_on_cpu"),
        ({"extra_args": ["-ub", "4096", "-b", "4096"], "context": 32768}, "ubatch"),
    ],
)
def test_ways_out_say_again_what_is_said_word_for_word(own: dict[str, Any], key: str) -> None:
    """A key would not count beside it, or be a contradiction; each way that is named makes it fit."""
    header = qwen_35b("Q4_K", "Q6_K", mtp=False)
    keys: dict[str, Any] = {"context": 262144, "kv": "f16"} | own
    rig = Rig.model_validate(declared(**keys))
    each = without_ram(rig_facts(rig, {"m": header}).sized["chat"])
    assert not each.fit.fits
    ways = suggest_changes(rig_facts(rig, {"m": header}), each)
    said = [way for way in ways if way.startswith(("-", "LLAMA_ARG_"))]
    assert said
    assert not any(way.startswith(key) for way in ways)
    for way in said:
        name, number = re.split("[= ]", way)
        changed: dict[str, Any] = dict(keys)
        if name.startswith("-"):
            words = list(own["extra_args"])
            words[words.index(name) + 1] = number
            changed["extra_args"] = words
        else:
            changed["environment"] = {name: number}
        again = Rig.model_validate(declared(**changed))
        assert without_ram(rig_facts(again, {"m": header}).sized["chat"]).fit.fits, way


def uncounted(tmp_path: Path, engine: dict[str, Any] | None = None, **keys: Any) -> list[Finding]:
    return list(check_uncounted_memory(subject(tmp_path, qwen_35b(mtp=False), engine, **keys)))


@pytest.mark.parametrize(
    ("keys", "at"),
    [
        ({"extra_args": ["--mmproj", "/srv/eyes.gguf"]}, "--mmproj"),
        ({"environment": {"LLAMA_ARG_MMPROJ": "/srv/eyes.gguf"}}, "LLAMA_ARG_MMPROJ"),
        ({"extra_args": ["--lora", "/srv/lora.gguf"]}, "--lora"),
        ({"extra_args": ["--rpc", "10.0.0.2:50052"]}, "--rpc"),
    ],
)
def test_what_is_not_counted_is_said(keys: dict[str, Any], at: str, tmp_path: Path) -> None:
    (finding,) = uncounted(tmp_path, **keys)
    assert (finding.code, finding.severity) == ("LH243", "warning")
    line = (tmp_path / "rig.yaml").read_text(encoding="utf-8").splitlines()[finding.place.line - 1]
    assert line[finding.place.column - 1 :].startswith(at)
    rig = Rig.model_validate(declared(**keys))
    held = rig_facts(rig, {"m": qwen_35b(mtp=False)}).instances["chat"].memory
    assert held
    assert any(at in doubt for doubt in estimate_memory(rig, held).doubts)


def test_a_rig_without_gpus_has_no_gpu_to_keep_free(tmp_path: Path) -> None:
    rig = declared({"kind": "llama.cpp", "release": "b11434"}, extra_args=["--lora", "/srv/lora.gguf"])
    rig.pop("gpus")
    rig["instances"]["chat"].pop("on")
    file = tmp_path / "rig.yaml"
    file.write_text(yaml.safe_dump(rig, sort_keys=False), encoding="utf-8")
    context = RigContext(rig_facts(Rig.model_validate(rig), {}), read_yaml(file))
    (finding,) = check_uncounted_memory(context)
    assert finding.help == "keep as much of the RAM free as its file has bytes"


@pytest.mark.parametrize(
    ("engine", "arguments"),
    [
        (LLAMA, ["-ngl", "auto"]),
        (LLAMA, ["-ngl", "-1", "--fit", "on"]),
        (IK, ["--fit"]),
        (LLAMA, ["-ot", "exps=RPC0[10.0.0.2:50052]"]),
        (LLAMA, ["-ot", "(a+)+b=CPU"]),
    ],
)
def test_where_nothing_can_be_worked_out_that_is_said_and_nothing_is_refused(
    engine: dict[str, Any], arguments: list[str], tmp_path: Path
) -> None:
    large = qwen_122b()
    given = subject(tmp_path, large, engine, extra_args=arguments)
    assert [one.code for one in memory_check(given)] == []
    assert [(one.code, one.severity) for one in check_uncounted_memory(given)] == [("LH243", "note")]


@pytest.mark.parametrize("arguments", ["-ngl auto --fit off", "-ngl auto -ts 1", "-ngl auto -ot output=CPU", "-ngl -2"])
def test_an_engine_that_is_told_fits_nothing_by_itself(arguments: str) -> None:
    assert placed(qwen_35b(), extra_args=arguments).gpu_layers is None


def test_less_than_no_layers_is_all_of_them_or_none() -> None:
    assert placed(qwen_35b(), extra_args="-ngl -2").gpu_layers is None
    assert placed(qwen_35b(), IK, extra_args="-ngl -2").gpu_layers == 0


def test_keys_alone_are_passed_over(tmp_path: Path) -> None:
    assert uncounted(tmp_path) == uncounted(tmp_path, extra_args=["--jinja"]) == []


@pytest.mark.parametrize(
    ("more", "computes"),
    [
        ({"environment": {"LLAMA_ARG_N_CPU_MOE": "4"}}, True),
        ({"environment": {"LLAMA_ARG_CPU_MOE": "0"}}, False),
        ({"extra_args": ["-ngl", "20"]}, True),
        ({"extra_args": ["-ngl", "99"]}, False),
        ({"extra_args": ["-nkvo"]}, True),
        ({"extra_args": ["-ncmoe", "0"]}, False),
        ({"extra_args": ["-ot", "exps=CPU"]}, True),
        ({"extra_args": ["-ot", "exps=CUDA0"]}, False),
    ],
)
def test_whether_the_cpu_computes_follows_too(more: dict[str, Any], computes: bool) -> None:
    rig = Rig.model_validate(declared(**more))
    assert rig_facts(rig, {"m": qwen_35b(mtp=False)}).instances["chat"].on_cpu is computes
