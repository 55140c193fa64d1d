"""Each rule about recipes by itself: when it speaks, and when it is silent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.checks.arguments import check_command_line
from llamaherd.checks.context import RigContext
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.memory.facts import rig_facts
from llamaherd.recipes import examine, understand
from llamaherd.recipes.suggestions import inventory_fragment, offers_of
from tests.support.rigs import cpu_rig

DIGEST = "@sha256:" + "0" * 64
CUDA = f"ghcr.io/ggml-org/llama.cpp:server-cuda{DIGEST}"
RUN = "docker run --gpus all -p 127.0.0.1:8080:8080"


def said(folder: Path, text: str, name: str = "recipe.sh") -> list[tuple[int, str]]:
    """Line and code of each finding."""
    file = folder / name
    file.write_bytes(text.encode())
    return [(finding.place.line, finding.code) for finding in examine(file)]


@pytest.mark.parametrize(
    "text",
    [
        "llama-server -m a.gguf --host 127.0.0.1",
        "llama-server -m a.gguf --host /run/llama.sock",
        "llama-server -m a.gguf --host 0.0.0.0 --api-key-file keys",
        "export LLAMA_API_KEY=x\nllama-server -m a.gguf --host 0.0.0.0",
        "LLAMA_API_KEY=x llama-server -m a.gguf --host 0.0.0.0",
        'llama-server -m a.gguf --host "$HOST" --port "$PORT" -c $CTX -fa $FA --temp ${TEMP}',
        "llama-server -m a.gguf $EXTRA_ARGS",
        'llama-server -m "$MODEL" "$@"',
        "llama-server -m /models/a-00001-of-00001.gguf",
        "llama-server -m a.gguf -t 8 -ngl 99 -fa auto -c 32768",
        "llama-cli -m a.gguf -p 'Hello' -no-cnv",
        "llama-cli -m a.gguf -f prompt.txt --color on",
        "llama-bench -m a.gguf -fa 1 -p 512 -n 128 -ngl 99",
        "vllm serve Qwen/Qwen3-8B --host 127.0.0.1",
        "cmake -B build -DENABLE_X=ON -DCUDA_ARCH=86",
        "cmake --build build -j $(nproc)",
        "make -j8",
        "cd whisper.cpp\nmake",
        "git clone https://github.com/ikawrakow/ik_llama.cpp\ncd llama.cpp\nmake LLAMA_CUDA=1",
        "git clone https://github.com/ggml-org/llama.cpp",
        "nvidia-smi -L\nnvidia-smi --query-gpu=power.limit --format=csv",
        "echo llama-server --no-mmap",
        "# llama-server --no-mmap\n",
        "pkill llama-server",
        "cat a.gguf.part1of2 a.gguf.part2of2 > a.gguf",
        "llama-server -m ~/models/a.gguf",
        "M=~/a.gguf\nllama-server -m $M",
        'llama-server -m "$HOME/a.gguf"',
        "wget https://huggingface.co/a/b/resolve/main/c.gguf",
        "NCCL_P2P_DISABLE=1\nexport NCCL_P2P_DISABLE\nllama-server -m a.gguf",
        "set -a\nNCCL_P2P_DISABLE=1\nset +a\nllama-server -m a.gguf",
        "HF_REPO=a/b\nhf download $HF_REPO\nllama-server -m a.gguf",
        "export NCCL_P2P_DISABLE=1\nsudo -E llama-server -m a.gguf",
        "NCCL_P2P_DISABLE=1 sudo -E llama-server -m a.gguf",
        "sudo NCCL_P2P_DISABLE=1 llama-server -m a.gguf",
        f"{RUN} -v C:\\m:/m {CUDA} -m /m/a.gguf",
        f"{RUN} -v /m:/m --ulimit memlock=-1 {CUDA} -m /m/a.gguf --load-mode mlock",
        f"{RUN.replace('all', chr(39) + chr(34) + 'device=0,1' + chr(34) + chr(39))} -v /m:/m {CUDA} -m /m/a.gguf",
        "git checkout b9592\nllama-server -m a.gguf --no-mmap",
        f"{RUN} {CUDA} -m a.gguf --host 0.0.0.0",
        f"{RUN} -e LLAMA_API_KEY=x {CUDA} -m a.gguf",
        f"sudo docker run --gpus=all --rm -it --name x -p=127.0.0.1:80:9000/tcp {CUDA} -m a --port 9000 --no-webui",
        f"docker run --runtime nvidia -v ~/m:/m --network host {CUDA} -m a.gguf --host 127.0.0.1",
        "docker run -d -p 3000:8080 ghcr.io/open-webui/open-webui:main",
        f"docker run --gpus all {CUDA.replace('server', 'full')} --server -m a.gguf",
    ],
)
def test_what_is_right_is_let_be(text: str, tmp_path: Path) -> None:
    found = said(tmp_path, text)
    assert found == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nohup llama-server -m a.gguf --no-mmap &", [(1, "LH149"), (1, "LH101")]),
        ("llama-server -m a.gguf &", [(1, "LH149")]),
        ("screen -dmS x llama-server -m a.gguf --host ::", [(1, "LH149"), (1, "LH144")]),
        ("tmux new -d 'llama-server -m a.gguf --no-mmap'", [(1, "LH149"), (1, "LH101")]),
        ("bash -c 'exec llama-server -m a.gguf --no-mmap'", [(1, "LH101")]),
        ("numactl --interleave=all taskset -c 0-7 llama-server -m a --no-mmap", [(1, "LH101")]),
        ('"$LLAMA_SERVER" -m a.gguf --no-mmap', [(1, "LH101")]),
        ("llama serve -m a.gguf --no-mmap", [(1, "LH101")]),
        ("wsl -d Ubuntu -- /opt/llama-server -m a.gguf --no-mmap", [(1, "LH101")]),
        ("llama-server.exe -m a.gguf --no-mmap", [(1, "LH101")]),
        ("vllm serve Qwen/Qwen3-8B", [(1, "LH144")]),
        ("python3 -m vllm.entrypoints.openai.api_server --model x", [(1, "LH144")]),
        ("llama-server -m a-00002-of-00003.gguf", [(1, "LH141")]),
        ("llama-server -m a.gguf --api-key s3cret", [(1, "LH115")]),
        ('N=2\nllama-server -m a.gguf --mtp-draft "$N"', [(2, "LH100"), (2, "LH213")]),
        ('llama-server -m a.gguf --mtp-draft "$N"', [(1, "LH100")]),
        ("cat m-0000*-of-00003.gguf > m.gguf", [(1, "LH141")]),
        ("cat m-00001-of-00002.gguf m-00002-of-00002.gguf > m.gguf", [(1, "LH141")]),
        ("cat m.gguf.part1of2 m.gguf.part2of2 > m.gguf", []),
        ("LLAMA_ARG_HOST=0.0.0.0 llama-server -m a.gguf", [(1, "LH144")]),
        ("CUDA_VISIBLE_DEVICES=1 llama-server -m a.gguf", [(1, "LH224")]),
        ("llama-server -m a.gguf -c 8192 -np 4 -ctv q8_0 -fa off", [(1, "LH214"), (1, "LH054")]),
        ("GGML_CUDA_P2P=0 llama-server -m a.gguf", [(1, "LH121")]),
        ("llama-server -m a.gguf -rtr -fmoe", [(1, "LH101")]),
        ("git clone https://github.com/ggml-org/llama.cpp\nllama-server -m a.gguf -rtr", [(2, "LH102")]),
        ("cmake -S llama.cpp -B b -D LLAMA_CURL=OFF", [(1, "LH130")]),
        ("cd llama.cpp\nmake", [(2, "LH140")]),
        ("huggingface-cli login", [(1, "LH140")]),
        ("./main -m a.gguf -p hi", [(1, "LH140")]),
        ("#!/bin/bash\r\nllama-server -m a.gguf\r\n", [(1, "LH141")]),
        ("[Service]\nUser=llama\nExecStart=./llama-server -m /a.gguf", [(3, "LH141")]),
        ("[Service]\nUser=llama\nExecStart=/a/llama-server -m /a.gguf \\\n --no-mmap", [(4, "LH101")]),
        (f"docker run -p 8080:8080 --gpus all {CUDA} -m a.gguf", [(1, "LH144")]),
        (f"docker run --network host --gpus all {CUDA} -m a.gguf", [(1, "LH144")]),
        (f"{RUN} {CUDA} -m a.gguf --host 127.0.0.1", [(1, "LH143")]),
        (f"{RUN} {CUDA} llama-server -m a.gguf", [(1, "LH143")]),
        (f"{RUN} {CUDA.replace('-cuda', '')} -m a.gguf", [(1, "LH143")]),
        (f"{RUN} {CUDA.replace('server', 'light')} -m a.gguf", [(1, "LH143")]),
        ("docker run --gpus all ghcr.io/ggml-org/llama.cpp:server-cuda-b9592 -m a --no-mmap", []),
        ("cat a-00001-of-00002.gguf a-00002-of-00002.gguf > a.gguf", [(1, "LH141")]),
        ("cat parts/a-*-of-00002.gguf > a.gguf", [(1, "LH141")]),
        ('llama-server -m "~/models/a.gguf"', [(1, "LH141")]),
        ("M='~/a.gguf'\nllama-server -m $M", [(2, "LH141")]),
        ("wget https://huggingface.co/a/b/blob/main/c.gguf", [(1, "LH141")]),
        ("NCCL_P2P_DISABLE=1\nllama-server -m a.gguf", [(1, "LH142")]),
        ("LLAMA_API_KEY=x\nllama-server -m a.gguf --host 0.0.0.0", [(1, "LH142"), (2, "LH144")]),
        ("NCCL_P2P_DISABLE=1 sudo llama-server -m a.gguf", [(1, "LH142")]),
        (f"{RUN} -v /m:/m {CUDA} -m /models/a.gguf", [(1, "LH207")]),
        (f"{RUN} --mount type=bind,source=/m,target=/m {CUDA} -m /models/a.gguf", [(1, "LH207")]),
        (f"{RUN} -v ~/m:/m {CUDA} -m ~/m/a.gguf", [(1, "LH207")]),
        (f"{RUN} -v /m:/m {CUDA} -m /m/a.gguf --load-mode mlock", [(1, "LH204")]),
        (f"{RUN} --rm --restart always -v /m:/m {CUDA} -m /m/a.gguf", [(1, "LH143")]),
        (f"{RUN.replace('all', 'device=0,1')} -v /m:/m {CUDA} -m /m/a.gguf", [(1, "LH143")]),
        (f"{RUN} vllm/vllm-openai:v0.33.0{DIGEST} --model a/b --port 8080 -tp 2", [(1, "LH204")]),
        ("docker run `\n -p 8080:8080 `\n --gpus all `\n " + CUDA + " `\n -m a.gguf", [(2, "LH144")]),
    ],
)
def test_what_is_wrong_is_said(text: str, expected: list[tuple[int, str]], tmp_path: Path) -> None:
    assert said(tmp_path, text) == expected


def compose(**service: object) -> str:
    """A service; None takes a key out that it has otherwise."""
    declared = {"image": CUDA, "gpus": "all", "volumes": ["/m:/m"], "restart": "always", **service}
    kept = {key: value for key, value in declared.items() if value is not None}
    return yaml.safe_dump({"services": {"llama": kept}}, sort_keys=False)


@pytest.mark.parametrize(
    ("service", "codes"),
    [
        ({"command": "-m a.gguf"}, []),
        ({"runtime": "nvidia", "gpus": None, "command": ["-m", "a b.gguf"]}, []),
        ({"command": ["-m", "a.gguf", "--chat-template", 'it\'s {{ "x" }} `y`']}, []),
        ({"command": "-m ${MODEL:-a.gguf} --ctx-size ${CTX:-4096}"}, []),
        ({"command": "-m ${MODEL}", "environment": {"MODEL": "a.gguf"}}, ["LH142"]),
        ({"command": ["-m", "$MODEL", "-a", "${MODEL}"], "environment": ["MODEL=a.gguf"]}, ["LH142"]),
        ({"command": "-m ${MODEL}", "environment": ["MODEL"]}, []),
        ({"command": "-m a", "ports": [{"target": 8080, "published": 80}]}, ["LH144"]),
        ({"command": "-m a", "ports": [{"target": 8080, "published": 80, "host_ip": "127.0.0.1"}]}, []),
        ({"command": "-m a", "ports": ["8080:8080"], "environment": {"LLAMA_API_KEY": "${KEY}"}}, []),
        ({"command": "-m a", "ports": ["127.0.0.1:9000:9000"], "environment": {"LLAMA_ARG_PORT": 9000}}, []),
        ({"command": "-m a", "ports": ["127.0.0.1:9000:9000"]}, ["LH143"]),
        ({"command": "-m a", "network_mode": "host"}, ["LH144"]),
        ({"command": "-m a", "gpus": None}, ["LH143"]),
        ({"command": "-m a", "runtime": "nvidia"}, []),
        ({"command": "-m a", "volumes": ["./models:/models", "/srv:/srv", "~/m:/m", {"type": "tmpfs"}]}, []),
        ({"command": "-m a", "environment": {"GGML_CUDA_P2P": "0"}}, ["LH121"]),
        ({"command": "/app/llama-server -m a"}, ["LH143"]),
        ({"command": "/app/llama-server -m a --no-mmap", "entrypoint": ""}, ["LH101"]),
        ({"image": "me/ik:1", "command": ["bash", "-c", "llama-server -m a --no-mmap"]}, ["LH145", "LH101"]),
        ({"image": "redis:latest", "ports": ["6379:6379"], "command": "--port 1"}, ["LH001"]),
        ({"image": None, "build": "."}, ["LH001"]),
        ({"environment": 1, "ports": "x", "volumes": 3, "healthcheck": [], "deploy": []}, []),
    ],
)
def test_services_of_compose(service: Mapping[str, object], codes: list[str], tmp_path: Path) -> None:
    assert [code for _, code in said(tmp_path, compose(**service), "compose.yaml")] == codes


def test_compose_takes_variables_from_the_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# here\nexport MODEL='a.gguf'\n", encoding="utf-8")
    assert said(tmp_path, compose(command="-m ${MODEL}", environment={"MODEL": "b.gguf"}), "compose.yaml") == []


@pytest.mark.parametrize("style", ["command: >\n      -m a\n      --no-mmap", 'command: "-m a \\\n      --no-mmap"'])
def test_words_of_a_folded_command_stand_where_they_are_written(style: str, tmp_path: Path) -> None:
    text = f"services:\n  llama:\n    image: {CUDA}\n    gpus: all\n    restart: always\n    {style}\n"
    file = tmp_path / "compose.yaml"
    file.write_text(text, encoding="utf-8")
    (finding,) = examine(file)
    assert text.split("\n")[finding.place.line - 1][finding.place.column - 1 :].startswith("--no-mmap")


def suggested(folder: Path, text: str) -> dict[str, Any]:
    """What is suggested for a recipe, read back as an inventory is."""
    file, written = folder / "recipe.sh", folder / "rig.yaml"
    file.write_text(text, encoding="utf-8")
    written.write_text(inventory_fragment(file, understand(file).servers), encoding="utf-8")
    return read_yaml(written).data


OFFERED = {
    "llama.cpp": (
        "llama-server -m /srv/m.gguf --alias coder -c 8192 -dev CUDA0,CUDA1 -ngl 99 -md /srv/small.gguf"
        " --draft-p-min 0.5 --spec-draft-n-max 8 -ngld all --host 127.0.0.1",
        {
            "model": "coder",
            "on": ["card1", "card2"],
            "gpu_layers": "all",
            "context": 8192,
            "draft": {"model": "small", "max": 8, "p_min": 0.5},
            "port": 8080,
        },
    ),
    "ik_llama.cpp": (
        "~/ik_llama.cpp/build/bin/llama-server -m /srv/m.gguf -c 8192 -ngl 99 -md /srv/s.gguf"
        " --spec-type draft:n_max=8",
        {
            "model": "m",
            "on": ["card1"],
            "gpu_layers": "all",
            "context": 8192,
            "draft": {"model": "s", "max": 8},
            "port": 8080,
        },
    ),
    "vllm": (
        "vllm serve org/model --served-model-name coder --max-model-len=32768 --max-num-seqs 4 -tp 2 --host 127.0.0.1"
        """ --max_num_batched_tokens 8192 --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'"""
        """ --override-generation-config '{"temperature": 0.6, "repetition_penalty": 1.1}' --seed 3"""
        """ --default-chat-template-kwargs '{"enable_thinking": false}'""",
        {
            "model": "coder",
            "on": ["card1", "card2"],
            "context": 32768,
            "batch": 8192,
            "parallel": 4,
            "draft": {"mtp": 2},
            "sampling": {"temperature": 0.6, "repeat_penalty": 1.1},
            "thinking": False,
            "port": 8000,
            "backend": "compose",
            "extra_args": ["--seed", "3"],
        },
    ),
}


@pytest.mark.parametrize("kind", OFFERED)
def test_a_suggested_instance_passes_the_checks_of_its_arguments(kind: str, tmp_path: Path) -> None:
    recipe, expected = OFFERED[kind]
    (keys,) = suggested(tmp_path, recipe)["instances"].values()
    assert keys == {"engine": kind, **expected}
    engine = {"kind": kind, **({"image": "vllm/vllm-openai:v0.33.0"} if kind == "vllm" else {"ref": "b11434"})}
    declared = cpu_rig() | {"engines": {"main": engine}, "instances": {"chat": keys | {"engine": "main"}}}
    written = tmp_path / "whole.yaml"
    written.write_text(yaml.safe_dump(declared), encoding="utf-8")
    document = read_yaml(written)
    facts = rig_facts(Rig.model_validate(declared, context={"folder": tmp_path}), {})
    assert [finding.code for finding in check_command_line(RigContext(facts, document))] == []


@pytest.mark.parametrize(
    ("flags", "keys"),
    [
        ("--cpu-moe", {"experts_on_cpu": "all"}),
        ("--n-cpu-moe 30", {"experts_on_cpu": 30}),
        ("-ot '.ffn_.*_exps.=CPU'", {"experts_on_cpu": "all"}),
        ("-ot 'blk.1.ffn_up_exps=CPU'", {"extra_args": ["-ot", "blk.1.ffn_up_exps=CPU"]}),
        ("-ctk q8_0 -ctv q4_0", {"kv": {"k": "q8_0", "v": "q4_0"}}),
        ("--mlock", {"mmap": True, "mlock": True}),
        ("-lm mmap+mlock", {"mmap": True, "mlock": True}),
        ("--spec-draft-n-max 2 --spec-type draft-mtp --spec-draft-p-min 0.5", {"draft": {"mtp": 2, "p_min": 0.5}}),
        ("--spec-type draft-mtp", {"draft": {"mtp": 3}}),
        ("--draft-max 16 -md d.gguf", {"draft": {"model": "d", "max": 16}}),
        ("-rtr -mtp --draft-max 2", {"draft": {"mtp": 2, "p_min": 0.0}, "extra_args": ["-rtr"]}),
        ("--reasoning-budget 0", {"thinking": False}),
        ("--seed -1 --jinja --metrics", {"sampling": {"seed": -1}}),
        ("--api-key s3cret", {"api_key": {"env": "LLAMA_API_KEY"}}),
        ("--api-key-file keys --host 0.0.0.0", {"listen": "0.0.0.0", "api_key": {"file": "keys"}}),
        ("-t $(nproc) --cache-reuse 256", {"cache_reuse": 256}),
        ('--mtp-draft "$N" --verbose', {"draft": {"mtp": 3}, "extra_args": ["--verbose"]}),
        ("-fa 1 --no-warmup -sm row", {"flash_attention": "on", "warmup": False, "split": "layer"}),
    ],
)
def test_flags_become_keys(flags: str, keys: dict[str, object], tmp_path: Path) -> None:
    kind = "ik_llama.cpp" if "-rtr" in flags else "llama.cpp"
    base = {"engine": kind, "model": "a", "on": ["card1"], "context": 4096, "port": 8080}
    assert suggested(tmp_path, f"llama-server -m A.gguf -c 4096 {flags}") == {"instances": {"a": base | keys}}


def test_a_model_of_a_hub_is_declared(tmp_path: Path) -> None:
    found = suggested(tmp_path, "llama-server -hf unsloth/Qwen3-8B-GGUF:Q4_K_M -c 4096 --port 9000")
    assert found == {
        "models": {"qwen3-8b": {"hf": "unsloth/Qwen3-8B-GGUF", "files": "*Q4_K_M*.gguf"}},
        "instances": {
            "qwen3-8b": {
                "engine": "llama.cpp",
                "model": "qwen3-8b",
                "on": ["card1"],
                "context": 4096,
                "port": 9000,
            }
        },
    }


def test_no_layer_on_a_card_means_the_cpu(tmp_path: Path) -> None:
    found = suggested(tmp_path, "llama-server -m a.gguf -c 1024 -ngl 0")
    assert found == {"instances": {"a": {"engine": "llama.cpp", "model": "a", "context": 1024, "port": 8080}}}


def test_two_servers_of_one_model_get_two_names(tmp_path: Path) -> None:
    found = suggested(tmp_path, "llama-server -m a.gguf -c 1024\nllama-server -m a.gguf -c 2048 --port 8081")
    instances = found["instances"]
    assert list(instances) == ["a", "a-2"]
    assert {instance["model"] for instance in instances.values()} == {"a"}


def test_secrets_and_foreign_variables_are_not_copied(tmp_path: Path) -> None:
    text = (
        "export HF_TOKEN=hf_s3cret LLAMA_API_KEY=s3cret GGML_CUDA_NO_PINNED=1 CUDA_VISIBLE_DEVICES=1 GGML_CUDA_P2P=0\n"
    )
    text += "llama-server -m a.gguf -c 1024 --host 0.0.0.0 --api-key s3cret\n"
    environment = suggested(tmp_path, text)["instances"]["a"]["environment"]
    assert environment == {"GGML_CUDA_NO_PINNED": "1"}
    written = (tmp_path / "rig.yaml").read_text(encoding="utf-8")
    assert "s3cret" not in written + "".join(map(str, examine(tmp_path / "recipe.sh")))


IMAGE = f"ghcr.io/ggml-org/llama.cpp:server-cuda@sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("behind", "codes"),
    [
        ("-p 127.0.0.1:8080:8080", ["LH265"]),
        ("-e LLAMA_ARG_CTX_SIZE=4096", ["LH265"]),
        ("-v /srv/more:/more", ["LH265"]),
        ("--rm --gpus all", ["LH265"]),
        ("-v", []),
        ("--alias a:b", []),
    ],
)
def test_options_of_docker_behind_the_image(behind: str, codes: list[str], tmp_path: Path) -> None:
    line = f"docker run --gpus all -v /srv:/m:ro {IMAGE} -m /m/a.gguf {behind}\n"
    assert [code for _, code in said(tmp_path, line)] == codes


ONE, OTHER = "llama-server -m a.gguf", "vllm serve a/b --host 127.0.0.1"


@pytest.mark.parametrize(
    ("script", "codes"),
    [
        (f"{ONE} &\n{ONE}", ["LH201"]),
        (f"nohup {ONE} >log &\n{ONE} --port 8080", ["LH201"]),
        (f"nohup {ONE} >log\n{ONE}", []),
        (f"{ONE} &\n{ONE} --port 8081", []),
        (f"{ONE} --port $A &\n{ONE} --port $B", []),
        (f"{ONE}\n{ONE}", []),
        (f"{OTHER} &\n{OTHER} --port 8001", ["LH201"]),
        (f"{OTHER} --gpu-memory-utilization 0.4 &\n{OTHER} --port 8001 --gpu-memory-utilization 0.5", []),
        (f"CUDA_VISIBLE_DEVICES=GPU-1 {OTHER} &\nCUDA_VISIBLE_DEVICES=GPU-2 {OTHER} --port 8001", []),
    ],
)
def test_servers_that_a_script_starts_beside_each_other(script: str, codes: list[str], tmp_path: Path) -> None:
    assert [code for _, code in said(tmp_path, f"#!/bin/sh\n{script}\n") if code != "LH149"] == codes


def test_what_to_write_for_an_option_is_one_word_to_a_shell(tmp_path: Path) -> None:
    file = tmp_path / "build.sh"
    file.write_text("cmake -B build -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=86,120\n", encoding="utf-8")
    assert [each.help for each in examine(file)] == ["write `'-DCMAKE_CUDA_ARCHITECTURES=86;120'`"]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("CUDA_VISIBLE_DEVICES=0,2 llama-server -m A.gguf -c 4096", {"on": ["card1", "card2"]}),
        ("CUDA_VISIBLE_DEVICES= llama-server -m A.gguf -c 4096", {"on": None}),
        ("CUDA_VISIBLE_DEVICES=$GPU llama-server -m A.gguf -c 4096", {"on": ["card1"]}),
        ("taskset -c 0-3,8 llama-server -m A.gguf -c 4096", {"cpus": "0-3,8"}),
        (
            "llama-server -m A.gguf -c 4096 -ot b=CUDA1 -ngl 9 -ot c=CPU",
            {"extra_args": ["-ot", "b=CUDA1", "-ot", "c=CPU"]},
        ),
        ("llama-server -m A.gguf -c 4096--jinja", {"context": 4096}),
        ("llama-server -m A.gguf -c 4096 -sm $S -fa $F", {"split": None, "flash_attention": None}),
        ("llama-server -m $DIR/A.gguf -c 4096", {"model": "a"}),
    ],
)
def test_an_offer_has_what_the_command_has(text: str, keys: dict[str, Any], tmp_path: Path) -> None:
    (found,) = suggested(tmp_path, f"{text}\n")["instances"].values()
    assert {key: found.get(key) for key in keys} == keys


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        (
            "llama-server -m a.gguf -c 4096 -ts $S $MORE",
            ["`$MORE` is not carried over", "`-ts $S` is not carried over"],
        ),
        ("llama-server -m $M -c 4096", ["`-m $M` is not carried over"]),
        ("llama-server -m a.gguf -c 4096 on", ["`on` is not carried over: see its finding"]),
        ("nice -n 5 llama-server -m a.gguf -c 4096", ["`nice -n 5` is not carried over"]),
        (
            "llama-server -m a.gguf -c 4096 --fit-target 9",
            ["lets llama.cpp fit the model into free memory, and has 4 slots"],
        ),
        ("llama-server -m a.gguf -c 4096 -np 2 --fit on", ["lets llama.cpp fit the model into free memory: the rig"]),
    ],
)
def test_an_offer_names_what_differs(text: str, notes: list[str], tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text(f"{text}\n", encoding="utf-8")
    (offer,) = offers_of(understand(file).servers)
    assert len(offer.notes) == len(notes)
    assert all(note in given for note, given in zip(notes, offer.notes, strict=True))


@pytest.mark.parametrize("flags", ["--models-preset /x.ini", "--models-dir /m --port 9000"])
def test_a_router_is_no_instance(flags: str, tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text(f"llama-server {flags}\n", encoding="utf-8")
    assert inventory_fragment(file, understand(file).servers) == ""
    file.write_text(f"llama-server {flags} &\nllama-server -m a.gguf -c 1\n", encoding="utf-8")
    assert inventory_fragment(file, understand(file).servers).startswith("# line 1 starts a router")
