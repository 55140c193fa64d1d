"""Servers of vLLM: whether their share of each GPU holds the model and one request, and what the model allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.memory_shapes_embedding import qwen3_embedding
from llamaherd.checks.context import RigContext
from llamaherd.checks.vllm import check_vllm_memory, check_vllm_model
from llamaherd.diagnostics.findings import Finding
from llamaherd.engines.flags import assumed
from llamaherd.engines.flags.effective import EffectiveOptions, effective_options
from llamaherd.gguf.folder import FolderShape
from llamaherd.inventory.schema import Instance, Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.memory.facts import rig_facts
from llamaherd.memory.vllm import longest_context, request_bytes, vllm_use
from tests.support.headers import header
from tests.support.rigs import changed, gpu_rig

GIB = 1 << 30
ENGINE = {"kind": "vllm", "image": f"vllm/vllm-openai:v0.33.0@sha256:{'ab' * 32}"}
CARD = {"model": "RTX 3090"}
PLAIN: dict[str, Any] = {"engine": "main", "context": 32768, "port": 8001, "backend": "compose"}


def dense(layers: int, kv_heads: int, heads: int = 32, weights: float = 15.3, **more: Any) -> FolderShape:
    """Return a model with attention to all tokens and heads of 128 numbers."""
    given = {"whole": layers, "positions": 131072, "dtype": "bfloat16", "head_width": 128, **more}
    return FolderShape(
        architecture="Made", weights=int(weights * GIB), layers=layers, kv_heads=kv_heads, heads=heads, **given
    )


def options(*arguments: str) -> EffectiveOptions:
    known = assumed("vllm", None)
    assert known
    return effective_options(known, arguments)


@pytest.mark.parametrize(
    ("shape", "tokens", "gib"),
    [
        (dense(28, 8), 40960, 4.38),  # Qwen3 1.7B, as vLLM printed it
        (dense(64, 8), 32768, 8.0),  # Qwen2.5 Coder 32B
        (dense(32, 32), 32768, 16.0),  # Qwen1.5 7B
        (dense(61, 128, latent=576), 131072, 8.58),  # DeepSeek V3: one compressed row
    ],
)
def test_a_request_takes_what_vllm_printed(shape: FolderShape, tokens: int, gib: float) -> None:
    """The figures of its error `… GiB KV cache is needed`."""
    assert request_bytes(shape, options(), 1, tokens) / GIB == pytest.approx(gib, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "share"),
    [
        (("--kv-cache-dtype", "fp8"), 0.5),
        (("--kv-cache-dtype", "fp8_e5m2"), 0.5),
        (("--kv-cache-dtype", "bfloat16"), 1),
        (("--dtype", "float32"), 2),
        (("--dtype", "half"), 1),
    ],
)
def test_a_cache_has_numbers_of_its_type(arguments: tuple[str, ...], share: float) -> None:
    plain = request_bytes(dense(32, 8), options(), 1, 8192)
    assert request_bytes(dense(32, 8), options(*arguments), 1, 8192) == share * plain


def test_gpus_share_heads_and_no_compressed_row() -> None:
    one = request_bytes(dense(32, 8), options(), 1, 8192)
    assert [request_bytes(dense(32, 8), options(), ranks, 8192) for ranks in (2, 8, 16)] == [one / 2, one / 8, one / 8]
    row = dense(61, 128, latent=576)
    assert request_bytes(row, options(), 8, 8192) == request_bytes(row, options(), 1, 8192)


def test_a_window_takes_no_more_than_it_sees() -> None:
    windowed = dense(32, 8, whole=8, windowed=24, window=1024)
    whole = request_bytes(dense(8, 8), options(), 1, 65536)
    assert request_bytes(windowed, options(), 1, 65536) == whole + request_bytes(dense(24, 8), options(), 1, 3072)


@pytest.mark.parametrize("room", [0, 1 << 20, 1 << 28, 1 << 30, 5 << 30])
def test_the_longest_context_fits_and_a_longer_one_does_not(room: int) -> None:
    shape = dense(32, 8)
    longest = longest_context(shape, options(), 1, room)
    assert longest % 1024 == 0
    assert request_bytes(shape, options(), 1, longest) <= room or not longest
    assert request_bytes(shape, options(), 1, longest + 1024) > room


@pytest.mark.parametrize(
    ("shape", "arguments", "weights"),
    [
        (dense(32, 8), (), 15.3),
        (dense(32, 8, dtype="float32", weights=30.6), (), 15.3),
        (dense(32, 8, dtype="float32", weights=30.6), ("--dtype", "float32"), 30.6),
        (dense(60, 8, heads_ahead=1, weights=61), (), 60),
        (dense(60, 8, heads_ahead=1, weights=61), ("--speculative-config", '{"method": "mtp"}'), 61),
        (dense(32, 8), ("--tensor-parallel-size", "2"), 7.65),
        (dense(32, 8), ("--cpu-offload-gb", "5"), 10.3),
        (dense(32, 8), ("--cpu-offload-gb", "50"), 0),
    ],
)
def test_weights_are_the_least_that_a_gpu_holds(shape: FolderShape, arguments: tuple[str, ...], weights: float) -> None:
    instance = Instance.model_validate({**PLAIN, "model": "m"})
    use = vllm_use(instance, options(*arguments), shape)
    assert use is not None
    assert use.weights is not None
    assert use.weights / GIB == pytest.approx(weights, abs=0.001)


def found(
    folder: Path, shape: FolderShape | None, others: dict[str, Any] | None = None, card: Any = CARD, **keys: Any
) -> list[Finding]:
    """Return what is found of a rig with two RTX 3090, whose server of vLLM has a model of this shape."""
    rig = changed(gpu_rig(), {"engines/main": ENGINE, "engines/llama": {"kind": "llama.cpp", "ref": "b11434"}})
    rig["gpus"]["cards"] = {"a": card, "b": {"model": "RTX 3090", "pci": "0000:02:00.0"}}
    model = next(iter(rig["models"]))
    rig["instances"] = {"one": {**PLAIN, "model": model, "on": ["a"], **keys}, **(others or {})}
    file = folder / "rig.yaml"
    file.write_text(yaml.safe_dump(rig))
    shapes = {model: shape} if shape else {}
    subject = RigContext(rig_facts(Rig.model_validate(rig), {}, {}, shapes), read_yaml(file))
    return [*check_vllm_memory(subject), *check_vllm_model(subject)]


def test_what_fits_is_not_reported(tmp_path: Path) -> None:
    """16 GB of weights and 4 GiB for a request of 32,768 tokens, of 22 GiB."""
    assert found(tmp_path, dense(32, 8)) == []
    assert found(tmp_path, None) == []
    assert found(tmp_path, dense(80, 8, 64, 130), on=["a", "b"], extra_args=["-pp", "2"])[0].severity == "note"


def test_a_context_that_does_not_fit_is_reported_with_one_that_does(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, dense(32, 8), context=65536)
    assert (finding.code, finding.severity) == ("LH152", "error")
    assert "23,859 MiB of GPU `a` for weights and one request of 65,536 tokens" in finding.message
    assert finding.help is not None
    context = int(finding.help.split("context: ")[1].split("`")[0])
    assert found(tmp_path, dense(32, 8), context=context) == []
    assert [each.severity for each in found(tmp_path, dense(32, 8), context=context + 2048)] == ["note"]
    cheap = found(tmp_path, dense(32, 8), context=65536, extra_args=["--kv-cache-dtype", "fp8"])
    assert [each for each in cheap if each.severity == "error"] == []


def test_weights_that_do_not_fit_are_reported_without_a_context(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, dense(64, 8, weights=61), context=1024)
    assert (finding.code, finding.severity) == ("LH152", "error")
    assert finding.help is not None
    assert finding.help.startswith("serve a quantised model")
    assert found(tmp_path, dense(64, 8, weights=20), on=["a", "b"], context=1024) == []


def test_a_share_with_little_left_is_a_note(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, dense(32, 8), context=49152)
    assert (finding.code, finding.severity) == ("LH152", "note")
    assert "activations and CUDA graphs, which are unknown" in finding.message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--quantization", "fp8"], "the bytes of its weights are unknown"),
        (["--data-parallel-size", "2"], "what each GPU holds is unknown"),
        (["--kv-cache-memory-bytes", "2G"], "the cache is unknown"),
    ],
)
def test_what_cannot_be_known_is_a_note(tmp_path: Path, arguments: list[str], words: str) -> None:
    (finding,) = found(tmp_path, dense(32, 8), extra_args=arguments)
    assert (finding.code, finding.severity) == ("LH152", "note")
    assert words in finding.message


def test_a_share_that_other_servers_take_is_reported(tmp_path: Path) -> None:
    other = {"two": {**PLAIN, "model": "35b", "on": ["a"], "port": 8002}}
    model = next(iter(gpu_rig()["models"]))
    other["two"]["model"] = model
    both = found(tmp_path, None, other)
    assert [each.code for each in both] == ["LH153", "LH153"]
    assert both[0].help == "add `--gpu-memory-utilization 0.5` to `extra_args` of `one` and `two`"
    halves = {"two": {**other["two"], "extra_args": ["--gpu-memory-utilization", "0.45"]}}
    assert found(tmp_path, None, halves, extra_args=["--gpu-memory-utilization", "0.5"]) == []
    elsewhere = {"two": {**other["two"], "on": ["b"]}}
    assert found(tmp_path, None, elsewhere) == []


def test_reserved_memory_is_not_free_for_vllm(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, None, card={"model": "RTX 3090", "reserved": "4GiB"})
    assert finding.code == "LH153"
    assert finding.help == "add `--gpu-memory-utilization 0.82` to `extra_args`"
    fixed = found(
        tmp_path,
        None,
        card={"model": "RTX 3090", "reserved": "4GiB"},
        extra_args=["--gpu-memory-utilization", "0.82"],
    )
    assert fixed == []


@pytest.mark.parametrize(
    ("shape", "keys", "codes"),
    [
        (dense(32, 8, positions=32768), {"context": 32768}, []),
        (dense(32, 8, positions=32768), {"context": 32769}, ["LH154"]),
        (dense(32, 8, positions=32768, scaled=True), {"context": 40960}, []),
        (dense(32, 8, positions=32768), {"context": 40960, "environment": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}}, []),
        (dense(32, 8), {"extra_args": ["--max-model-len", "16k"]}, []),
        (dense(32, 8), {"extra_args": ["--tensor-parallel-size", "3"]}, ["LH154"]),
        (dense(32, 8), {"on": ["a", "b"]}, []),
    ],
)
def test_what_a_model_does_not_allow_is_reported(
    tmp_path: Path, shape: FolderShape, keys: dict[str, Any], codes: list[str]
) -> None:
    assert [each.code for each in found(tmp_path, shape, **keys)] == codes


def test_the_fix_for_heads_names_numbers_that_share_them(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, dense(32, 8), extra_args=["--tensor-parallel-size", "3"])
    assert finding.help == "give it 2 or 4 GPUs in `on`"


def test_a_server_of_llama_cpp_leaves_the_rest_of_a_gpu(tmp_path: Path) -> None:
    rig = changed(gpu_rig(), {"engines/main": ENGINE, "engines/llama": {"kind": "llama.cpp", "ref": "b11434"}})
    rig["gpus"]["cards"] = {"a": CARD}
    model = next(iter(rig["models"]))
    beside = {"engine": "llama", "model": model, "on": ["a"], "context": 32768, "port": 8002}
    rig["instances"] = {"one": {**PLAIN, "model": model, "on": ["a"]}, "two": beside}
    file = tmp_path / "rig.yaml"
    file.write_text(yaml.safe_dump(rig))
    known = rig_facts(Rig.model_validate(rig), {model: header(qwen3_embedding())})
    (finding,) = check_vllm_memory(RigContext(known, read_yaml(file)))
    assert (finding.code, "and `two` leaves" in finding.message) == ("LH153", True)
    assert finding.help is not None
    share = finding.help.split("utilization ")[1].split("`")[0]
    rig["instances"]["one"]["extra_args"] = ["--gpu-memory-utilization", share]
    file.write_text(yaml.safe_dump(rig))
    known = rig_facts(Rig.model_validate(rig), {model: header(qwen3_embedding())})
    assert list(check_vllm_memory(RigContext(known, read_yaml(file)))) == []
