"""What a build leaves out that a rig's instances want."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamaherd.pipeline.fleet_files import examine_fleet

RIG = """\
rig: attic
connect: {host: attic.lan, user: tom}
host: {os: ubuntu-24.04, cpu: {cores: 12}, ram: 64GB}
gpus:
  cuda: "13.0"
  cards:
    big: {model: RTX 3090, uuid: GPU-5c1d2e7a-0b1f-4c0e-9a55-3f1f0a7c2b10}
engines:
  main: {kind: KIND, ref: REF, options: OPTIONS}
models:
  35b: {hf: unsloth/Qwen3.6-35B-A3B-MTP-GGUF, quant: UD-Q3_K_XL}
instances:
  coder: {engine: main, model: 35b, on: [big], context: 32768, port: 8001, extra_args: ARGUMENTS}
"""
LLAMA, IK = ("llama.cpp", "b11434"), ("ik_llama.cpp", "main")
RPC = ["--rpc", "10.0.0.2:50052"]


def said(engine: tuple[str, str], options: dict[str, object], arguments: list[str], folder: Path) -> list[str]:
    file = folder / "attic.yaml"
    text = RIG.replace("KIND", engine[0]).replace("REF", engine[1]).replace("OPTIONS", json.dumps(options))
    file.write_text(text.replace("ARGUMENTS", json.dumps(arguments)), encoding="utf-8")
    return [f"{each.code} {each.help}" for each in examine_fleet(file)[1] if each.code in ("LH256", "LH272")]


@pytest.mark.parametrize(
    ("engine", "options", "arguments", "codes"),
    [
        (LLAMA, {}, RPC, ["LH272"]),
        (IK, {}, RPC, ["LH272"]),
        (LLAMA, {"GGML_RPC": True}, RPC, []),
        (LLAMA, {"GGML_RPC": "ON"}, RPC, []),
        (LLAMA, {"GGML_RPC": False}, RPC, ["LH272"]),
        (LLAMA, {"LLAMA_BUILD_SERVER": False}, [], ["LH272"]),
        (LLAMA, {"LLAMA_BUILD_EXAMPLES": False}, [], []),
        (IK, {"LLAMA_BUILD_EXAMPLES": False}, [], ["LH272"]),
        (LLAMA, {"BUILD_SHARED_LIBS": False, "GGML_BACKEND_DL": True}, [], ["LH272"]),
        (LLAMA, {"GGML_BACKEND_DL": True, "GGML_CPU_ALL_VARIANTS": True}, [], []),
        (LLAMA, {"GGML_CPU_ALL_VARIANTS": True}, [], ["LH272"]),
    ],
)
def test_a_build_without_what_is_wanted(
    engine: tuple[str, str], options: dict[str, object], arguments: list[str], codes: list[str], tmp_path: Path
) -> None:
    assert [each.split()[0] for each in said(engine, options, arguments, tmp_path)] == codes


def test_the_way_out_keeps_what_a_rig_must_have(tmp_path: Path) -> None:
    found = said(LLAMA, {}, ["--models-dir", "/srv"], tmp_path)
    assert found == ["LH256 leave out `--models-dir /srv`"]
