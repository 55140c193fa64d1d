"""Arguments as meant: precedence as the engines have it, and what does not go together, wherever it is written."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.engines.flags import Catalogue, catalogue, check_arguments
from llamaherd.engines.flags.access import is_local
from llamaherd.engines.flags.conflicts import find_conflicts
from llamaherd.engines.flags.effective import EffectiveOptions, ServerContext, effective_options

LLAMA, IK_MTP, IK_TYPES = ("llama.cpp", "b11434"), ("ik_llama.cpp", "mtp"), ("ik_llama.cpp", "spec-type")
VLLM = ("vllm", "0.33.0")


def known(of: tuple[str, str]) -> Catalogue:
    found = catalogue(*of)
    assert found is not None
    return found


def told(of: tuple[str, str], line: str, **environment: str) -> EffectiveOptions:
    return effective_options(known(of), shlex.split(line), environment)


def test_the_last_of_two_counts_under_any_spelling() -> None:
    assert told(LLAMA, "-c 1 --ctx-size 2 --ctx_size 3").text("-c") == "3"
    assert told(LLAMA, "--jinja --no-jinja").is_on("--jinja") is False
    assert [each.value for each in told(LLAMA, "-ot a=CPU -ot b=CPU").every("--override-tensor")] == ["a=CPU", "b=CPU"]


def test_the_command_line_beats_variables_in_one_engine_and_they_beat_it_in_the_other() -> None:
    assert told(LLAMA, "--host 127.0.0.1", LLAMA_ARG_HOST="0.0.0.0").text("--host") == "127.0.0.1"
    assert told(LLAMA, "-c 1", LLAMA_ARG_HOST="0.0.0.0").text("--host") == "0.0.0.0"
    assert told(IK_MTP, "--host 127.0.0.1", LLAMA_ARG_HOST="0.0.0.0").text("--host") == "0.0.0.0"


def test_what_another_version_says_is_meant_as_it_says_it() -> None:
    assert told(LLAMA, "--no-mmap").text("--load-mode") == "none"
    assert told(LLAMA, "-mtp --draft-max 2").text("--spec-type") == "draft-mtp"


def test_a_secret_is_not_shown() -> None:
    assert "s3cret" not in str(told(LLAMA, "--api-key s3cret").get("--api-key"))


@pytest.mark.parametrize(
    ("of", "line", "codes"),
    [
        (LLAMA, "-ctv q8_0 -fa off", ["LH054"]),
        (LLAMA, "-ctk q8_0 -fa off", []),
        (LLAMA, "-ctv q8_0 -fa auto", []),
        (IK_MTP, "-ctv q8_0 -fa 0", ["LH054"]),
        (LLAMA, "-ngl 99 -ncmoe 30 --fit on", ["LH057"]),
        (LLAMA, "-ngl 99 -ncmoe 30", []),
        (LLAMA, "-ngl auto --fit on", []),
        (IK_MTP, "--fit -ot exps=CPU", ["LH057"]),
        (IK_MTP, "-mtp --draft-max 2 -np 4", ["LH023"]),
        (IK_TYPES, "--spec-type mtp:n_max=2 -np 2", ["LH023"]),
        (IK_TYPES, "--spec-type mtp:n_max=2 -np 1", []),
        (LLAMA, "-md d.gguf", ["LH212"]),
        (LLAMA, "--draft-max 4 -md d.gguf", ["LH212"]),
        (LLAMA, "--spec-draft-n-max 4", ["LH212"]),
        (LLAMA, "-md d.gguf --spec-type draft-simple", []),
        (LLAMA, "-md mtp-head.gguf", []),
        (("llama.cpp", "b9093"), "-md d.gguf", []),
        (LLAMA, "--spec-type draft-mtp", ["LH213"]),
        (LLAMA, "--spec-type draft-mtp -np -1", ["LH213"]),
        (LLAMA, "--spec-type draft-mtp -np 1", []),
        (LLAMA, "-c 8192 -np 4", ["LH214"]),
        (LLAMA, "-c 8192 -np 4 -kvu", []),
        (LLAMA, "-c 65536 -np 4", []),
        (LLAMA, "-t -1", ["LH217"]),
        (IK_MTP, "-t 0", ["LH217"]),
        (LLAMA, "-t 8 -tb 16", []),
        (LLAMA, "-ub 4096", ["LH219"]),
        (LLAMA, "-ub 2048 -b 512", ["LH219"]),
        (LLAMA, "-ub 4096 -b 4096", []),
        (LLAMA, "--chat-template ./qwen.jinja", ["LH216"]),
        (LLAMA, "--chat-template /models/t.txt", ["LH216"]),
        (LLAMA, "--chat-template chatml", []),
        (LLAMA, "--chat-template '{{ messages }}'", []),
        (LLAMA, "--chat-template chatlm", ["LH277"]),
        (LLAMA, "--chat-template llama3", ["LH277"]),
        (LLAMA, "--chat-template llama3 --no-jinja", []),
        (LLAMA, "--chat-template lama3 --no-jinja", ["LH277"]),
        (LLAMA, "--chat-template mistral-nemo --no-jinja", []),
        (IK_MTP, "--chat-template llama3", []),
        (IK_MTP, "--chat-template llama3 --jinja", ["LH277"]),
        (LLAMA, "--ssl-key-file k.pem", ["LH221"]),
        (LLAMA, "--ssl-key-file k.pem --ssl-cert-file c.pem", []),
        (LLAMA, "-m https://hub.lan/a/b/resolve/main/c.gguf", ["LH273"]),
        (LLAMA, "-m unsloth/Qwen3-8B-GGUF:Q4_K_M", ["LH273"]),
        (IK_MTP, "-m /srv/model.safetensors", ["LH273"]),
        (LLAMA, "-m /srv/mmproj-F16.gguf", ["LH273"]),
        (LLAMA, "-m /srv/models/a.gguf --mmproj /srv/mmproj-F16.gguf", []),
        (LLAMA, "-m models/a", []),
        (LLAMA, "-m quantized.bin", []),
        (LLAMA, "-c -1", ["LH105"]),
        (LLAMA, "-c 0", []),
        (LLAMA, "-dev 0,1", ["LH106"]),
        (LLAMA, "-dev CUDA0,RPC0", []),
        (LLAMA, "-ctkd q8_0", ["LH212"]),
        (LLAMA, "-ctkd q8_0 --spec-type draft-mtp -np 1", []),
        (VLLM, "--speculative-config {method:mtp}", ["LH261"]),
        (VLLM, '--speculative-config \'{"method": "mtp"}\'', []),
        (VLLM, "--model ./a-Q4_K_M.gguf", ["LH281"]),
        (VLLM, "--model a/b-GGUF:Q4_K_M", ["LH281"]),
        (VLLM, "--model a/b-GGUF:Q4_K_M --tokenizer a/b", []),
        (VLLM, "--model Qwen/Qwen3-8B-AWQ", []),
        (LLAMA, "-ngl -1", ["LH259"]),
        (LLAMA, "-ngl -2", ["LH259"]),
        (LLAMA, "-ngl all", []),
        (IK_MTP, "-ngl -2", ["LH259"]),
        (IK_MTP, "-ngl 0", []),
        (LLAMA, "-m a.gguf -md a.gguf --spec-type draft-simple", ["LH029"]),
        (LLAMA, "-md d.gguf --spec-type ngram-mod", ["LH212"]),
        (LLAMA, "-md d.gguf --spec-type draft-simple,ngram-mod", []),
        (LLAMA, "--spec-type draft-simple", ["LH212"]),
        (LLAMA, "--spec-type draft-eagle3 -ngld 99", ["LH212"]),
        (LLAMA, "-hfd a/b --spec-type draft-simple", []),
        (LLAMA, "--spec-type ngram-mod", []),
        (LLAMA, "-ngld 99", ["LH212"]),
        (LLAMA, "--spec-type draft-mtp -np 1 --spec-draft-n-min 4", ["LH212"]),
        (LLAMA, "--spec-type draft-mtp -np 1 --spec-draft-n-min 4 --spec-draft-n-max 4", []),
        (LLAMA, "-sm none -ts 1,1", ["LH256"]),
        (LLAMA, "-sm layer -ts 1,1", []),
        (LLAMA, "-m a.gguf --models-dir /m", ["LH256"]),
        (LLAMA, "-hf a/b --models-preset p.ini --models-max 2", ["LH256"]),
        (LLAMA, "--models-preset p.ini --models-max 2", []),
        (LLAMA, "-cmoe -ncmoe 4", ["LH256"]),
        (LLAMA, "--context-shift --mmproj p.gguf", ["LH256"]),
        (LLAMA, "--fit off --fit-target 512", ["LH256"]),
        (LLAMA, "--fit-ctx 8192 -c 8192", ["LH256"]),
        (LLAMA, "--fit-ctx 8192", []),
        (LLAMA, "--no-jinja --chat-template-kwargs '{}'", ["LH256"]),
        (LLAMA, "--chat-template-kwargs '{}'", []),
        (IK_MTP, "--chat-template-kwargs '{}'", ["LH256"]),
        (IK_MTP, "--jinja --chat-template-kwargs '{}'", []),
        (LLAMA, "--reranking --pooling mean", ["LH256"]),
        (LLAMA, "--reranking --pooling rank", []),
        (LLAMA, "--embeddings", []),
        (LLAMA, "-c 512 --embeddings", []),
        (LLAMA, "-c 8192", []),
        (LLAMA, "-c 8192 --embeddings", ["LH225"]),
        (LLAMA, "-c 8192 --embeddings -ub 2048", ["LH225"]),
        (LLAMA, "-c 8192 --embeddings -b 8192 -ub 8192", []),
        (LLAMA, "-c 8192 --embeddings -b 8192", ["LH225"]),
        (LLAMA, "-c 8192 --embeddings -np 16 -kvu", ["LH225"]),
        (LLAMA, "-c 2048 --embeddings -np 4", ["LH214"]),
        (LLAMA, "-c 8192 --embeddings --pooling last", []),
        (LLAMA, "-c 8192 --embeddings --pooling mean", ["LH225"]),
        (LLAMA, "-c 8192 --rerank", ["LH225"]),
        (LLAMA, "-c 8192 --pooling mean", []),
        (IK_MTP, "-c 8192 --embedding --pooling last", ["LH225"]),
        (LLAMA, "-dev none -ngl 99", ["LH256"]),
        (LLAMA, "-dev CUDA0 -ngl 99", []),
        (LLAMA, "-ot exps=CPU -ot 'blk.[0-9].ffn_.*exps=CUDA0'", ["LH260"]),
        (LLAMA, "-ot 'blk.[0-9].ffn_.*exps=CUDA0' -ot exps=CPU", []),
        (LLAMA, "-ot 'exps=CPU,blk.0.ffn_up_exps=CUDA0'", ["LH260"]),
        (LLAMA, "-cmoe -ot blk.0.ffn_up_exps=CUDA0", ["LH260"]),
        (LLAMA, "-ncmoe 4 -ot blk.9.ffn_up_exps=CUDA0", []),
        (LLAMA, "-ot exps=CPU -ot attn=CUDA0", []),
        (LLAMA, "--port 80800", ["LH257"]),
        (LLAMA, "--port 65535", []),
        (LLAMA, "--rpc 10.0.0.2", ["LH257"]),
        (LLAMA, "--rpc 10.0.0.2:50052,rig.lan:50052", []),
        (VLLM, "--gpu-memory-utilization 90", ["LH261"]),
        (VLLM, "--gpu-memory-utilization 0.95", []),
        (VLLM, "--enable-auto-tool-choice", ["LH261"]),
        (VLLM, "--enable-auto-tool-choice --tool-call-parser hermes", []),
        (VLLM, "--max-num-seqs 0", ["LH261"]),
        (VLLM, "--max-num-seqs 512 --max-num-batched-tokens 256", ["LH261"]),
        (VLLM, "--max-num-batched-tokens 2048 --max-model-len 8192 --no-enable-chunked-prefill", ["LH261"]),
        (VLLM, "--max-num-batched-tokens 2048 --max-model-len 8192", []),
        (VLLM, "--quantization Q4_K_M", ["LH261"]),
        (VLLM, "--model Qwen/Qwen3-8B-AWQ --quantization gptq", ["LH261"]),
        (VLLM, "--model Qwen/Qwen3-8B-AWQ --quantization awq_marlin", []),
        (LLAMA, "--tools all", ["LH211"]),
        (LLAMA, "--host 0.0.0.0 --props", ["LH211"]),
        (LLAMA, "--props", []),
        (LLAMA, "-ot exps", ["LH218"]),
        (LLAMA, "-ot '*exps*=CPU'", ["LH218"]),
        (LLAMA, "-ot exps=cpu", ["LH218"]),
        (LLAMA, "-ot exps=CUDA_Host", ["LH218"]),
        (LLAMA, "-ot exps=CUDA00", ["LH218"]),
        (LLAMA, "-ot 'exps=RPC0[10.0.0.2:50052]'", ["LH218"]),
        (LLAMA, "-ot exps=CPU,exps=CUDA0", ["LH260"]),
        (LLAMA, r"-ot 'blk\.[0-9]\.=CUDA0,exps=CPU,a=RPC0[10.0.0.2:50052]' --rpc 10.0.0.2:50052", []),
    ],
)
def test_two_things_together(of: tuple[str, str], line: str, codes: list[str]) -> None:
    assert [clash.rule.code for clash in find_conflicts(told(of, line))] == codes


def test_variables_clash_as_arguments_do() -> None:
    line = told(LLAMA, "-ctv q8_0", LLAMA_ARG_FLASH_ATTN="off")
    (clash,) = find_conflicts(line)
    assert (clash.rule.code, [option.origin for option in clash.options]) == ("LH054", ["argument", "environment"])
    assert [each.rule.code for each in find_conflicts(told(IK_MTP, "-fa on -ctv q8_0", LLAMA_ARG_FLASH_ATTN="on"))] == [
        "LH054"
    ]


@pytest.mark.parametrize(
    ("around", "line", "codes"),
    [
        (ServerContext(cores=16), "-t 32", ["LH060"]),
        (ServerContext(cores=16), "-t 16", []),
        (ServerContext(cards=1), "-mg 1", ["LH220"]),
        (ServerContext(cards=1), "-ts 1,1", ["LH220"]),
        (ServerContext(cards=2), "-ts 3,1 -mg 0", []),
        (ServerContext(cards=2), "-sm none -mg 1", []),
        (ServerContext(cards=2), "-mg 1", ["LH256"]),
        (ServerContext(shifts=False), "--context-shift", ["LH256"]),
        (ServerContext(shifts=False), "--cache-reuse 256", ["LH222"]),
        (ServerContext(shifts=True), "--cache-reuse 256", []),
        (ServerContext(shifts=None), "--cache-reuse 256", []),
        (ServerContext(shifts=False), "--cache-reuse 0", []),
        (ServerContext(shifts=True), "--cache-reuse 256 --mmproj p.gguf", ["LH222"]),
        (ServerContext(cards=1), "-dev CUDA1", ["LH220"]),
        (ServerContext(cards=2), "-dev CUDA1", []),
        (ServerContext(shifts=True), "--context-shift", []),
        (ServerContext(cards=2), "-ot exps=CUDA2", ["LH218"]),
        (ServerContext(tensors=("blk.0.ffn_up_exps.weight",)), "-ot attn=CPU", ["LH218"]),
        (ServerContext(tensors=("blk.0.ffn_up_exps.weight",)), "-ot ffn_.*_exps=CPU", []),
        (ServerContext(experts_moved=True), "-ot exps=CPU", ["LH218"]),
        (ServerContext(reachable=True), "--tools all", ["LH211"]),
    ],
)
def test_what_is_said_against_the_rig(around: ServerContext, line: str, codes: list[str]) -> None:
    assert [clash.rule.code for clash in find_conflicts(told(LLAMA, line), around)] == codes


@pytest.mark.parametrize(
    ("chosen", "refused"), [("0", True), ("0,1", False), ("0,-1,1", True), ("", True), ("GPU-1,GPU-2", False)]
)
def test_cards_that_cuda_is_to_see_are_counted(chosen: str, refused: bool) -> None:
    found = tuple(find_conflicts(told(LLAMA, "-ts 1,1", CUDA_VISIBLE_DEVICES=chosen, CUDA_DEVICE_ORDER="PCI_BUS_ID")))
    assert bool(found) is refused


@pytest.mark.parametrize(
    ("of", "line", "environment", "codes"),
    [
        (LLAMA, "-ngl 99", {"CUDA_VISIBLE_DEVICES": ""}, ["LH258"]),
        (LLAMA, "-ngl 99", {"CUDA_VISIBLE_DEVICES": "-1"}, ["LH258"]),
        (LLAMA, "-ngl 0", {"CUDA_VISIBLE_DEVICES": ""}, []),
        (LLAMA, "", {"CUDA_VISIBLE_DEVICES": "-1"}, []),
        (LLAMA, "", {"CUDA_VISIBLE_DEVICES": "cuda:0"}, ["LH258"]),
        (LLAMA, "", {"CUDA_VISIBLE_DEVICES": "all"}, ["LH258"]),
        (LLAMA, "", {"CUDA_VISIBLE_DEVICES": "1,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ["LH258"]),
        (LLAMA, "", {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI"}, ["LH124"]),
        (LLAMA, "", {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, []),
        (LLAMA, "", {"CUDA_VISIBLE_DEVICES": "GPU-5c1d2e7a,MIG-5c1d2e7a-0b1f"}, []),
        (LLAMA, "-c 8192", {"LLAMA_ARG_CTX_SIZE": "4096"}, ["LH256"]),
        (LLAMA, "-c 8192", {"LLAMA_ARG_CTX_SIZE": "8192"}, []),
        (LLAMA, "", {"LLAMA_ARG_CTX_SIZE": "8192"}, []),
        (VLLM, "--model a/b", {"CUDA_VISIBLE_DEVICES": ""}, ["LH258"]),
        (VLLM, "-tp 2", {"CUDA_VISIBLE_DEVICES": "0"}, ["LH220"]),
        (VLLM, "-tp 2 -pp 2", {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}, ["LH220"]),
        (VLLM, "-tp 2", {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}, []),
    ],
)
def test_variables_that_choose_cards(
    of: tuple[str, str], line: str, environment: dict[str, str], codes: list[str]
) -> None:
    assert [clash.rule.code for clash in find_conflicts(told(of, line, **environment))] == codes


@pytest.mark.parametrize(
    ("host", "instead"),
    [
        ("127.0.0.1:8080", "write `--host 127.0.0.1` and `--port 8080`"),
        ("http://0.0.0.0:80/v1", "write `--host 0.0.0.0` and `--port 80`"),
        ("https://rig.lan", "write `--host rig.lan`"),
        *((host, None) for host in ("127.0.0.1", "::1", "fe80::1", "/run/x.sock", "run/x.sock", "127.0.0.1,::1")),
    ],
)
def test_an_address_is_taken_apart(host: str, instead: str | None) -> None:
    assert [clash.help for clash in find_conflicts(told(LLAMA, f"--host {host}"))] == ([instead] if instead else [])


@pytest.mark.parametrize(
    ("words", "replacement"),
    [
        (["-c 4096"], [("-c", "4096")]),
        (["--jinja ", "--ctx-size  8192 -np 2"], [("--jinja",), ("--ctx-size", "8192", "-np", "2")]),
        (["--chat-template-kwargs", '{"a": 1}', "--alias", "two words"], []),
    ],
)
def test_a_flag_with_its_value_in_one_argument(words: list[str], replacement: list[tuple[str, ...]]) -> None:
    found = check_arguments(known(LLAMA), words)
    assert [(each.rule.code, each.replacement) for each in found] == [("LH255", each) for each in replacement]


@pytest.mark.parametrize(
    ("host", "local"),
    [
        *((host, True) for host in ("127.0.0.1", "", "::1", "[::1]", "/run/x.sock", "127.0.0.1,::1")),
        *((host, False) for host in ("0.0.0.0", "127.0.0.1,0.0.0.0", "192.168.1.5", "rig.lan", "::")),
    ],
)
def test_who_reaches_an_address(host: str, local: bool) -> None:
    assert is_local(host) is local


WORDS = st.one_of(
    st.sampled_from(sorted(known(LLAMA).flags)),
    st.sampled_from(
        ["9" * 5000, "-1", "\N{SUPERSCRIPT TWO}", "CUDA" + "9" * 5000, "exps=CPU", "(a+)+=CPU", "0,1", "on"]
    ),
    st.text(max_size=12),
)


@given(
    st.lists(WORDS, max_size=12),
    st.dictionaries(st.sampled_from(["CUDA_VISIBLE_DEVICES", "LLAMA_ARG_HOST", "LLAMA_ARG_N_PARALLEL"]), WORDS),
    st.integers(0, 4) | st.none(),
)
def test_any_arguments_are_taken(words: list[str], environment: dict[str, str], cards: int | None) -> None:
    for of in (LLAMA, IK_MTP, IK_TYPES, VLLM):
        around = ServerContext(cards=cards, cores=8, tensors=("blk.0.ffn_up_exps.weight",))
        for clash in find_conflicts(effective_options(known(of), words, environment), around):
            assert clash.options
            assert clash.help
