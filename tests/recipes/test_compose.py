"""Compose files among recipes: what Compose refuses, and what is wrong between their lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.recipes import examine

DIGEST = "@sha256:" + "0" * 64
LLAMA = f"ghcr.io/ggml-org/llama.cpp:server-cuda{DIGEST}"
VLLM = f"vllm/vllm-openai:v0.33.0{DIGEST}"
CPU = f"ghcr.io/ggml-org/llama.cpp:server{DIGEST}"
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
SERVER: dict[str, Any] = {
    "image": LLAMA,
    "gpus": "all",
    "volumes": ["/srv/models:/models:ro"],
    "command": "--model /models/a.gguf",
    "restart": "unless-stopped",
}
KEYED = "--model /models/a.gguf --api-key-file /models/key"
OF_VLLM = {"image": VLLM, "gpus": "all", "command": "--model Qwen/Qwen3-8B --host 127.0.0.1", "ipc": "host"}
TWO = f"{OF_VLLM['command']} -tp 2"


def said(folder: Path, services: Mapping[str, Any], **top: Any) -> list[str]:
    file = folder / "compose.yaml"
    file.write_text(yaml.safe_dump({"services": services, **top}, sort_keys=False), encoding="utf-8")
    return [finding.code for finding in examine(file) if finding.code != "LH268"]  # few have `restart:`


def device(**what: Any) -> dict[str, Any]:
    return {"gpus": None, "deploy": {"resources": {"reservations": {"devices": [what]}}}}


def server(**more: Any) -> dict[str, Any]:
    """The service; None takes a key out."""
    return {key: value for key, value in {**SERVER, **more}.items() if value is not None}


@pytest.mark.parametrize(
    "service",
    [
        server(),
        server(**device(driver="nvidia", count="all", capabilities=["gpu"])),
        server(**device(driver="nvidia", device_ids=["0", "1"], capabilities=["gpu", "utility"])),
        server(network_mode="host", command="--model /models/a.gguf --host 127.0.0.1"),
        server(environment={"HF_TOKEN": "${HF_TOKEN}", "LLAMA_API_KEY_FILE": "/run/secrets/key"}),
        server(environment=["HF_TOKEN", "HF_HOME=/models"], env_file=[".env"], ports=["8080:8080"]),
        server(healthcheck={"test": ["CMD", "curl", "-f", "http://localhost:8080/health"], "start_period": "5m"}),
        server(healthcheck={"test": "wget -q http://localhost:8080/health || curl -f http://localhost:8080/health"}),
        server(healthcheck={"disable": True}),
        server(command=["--model", "/models/a.gguf", "--load-mode", "mlock"], ulimits={"memlock": -1}),
        server(restart="on-failure:5"),
        server(restart="no"),
        server(image="ghcr.io/ggml-org/llama.cpp" + DIGEST),
        server(volumes=[{"type": "bind", "source": "/srv", "target": "/models", "read_only": True}]),
        server(volumes=["C:\\models:/models"], command="-m /models/a/b.gguf"),
        server(volumes=["${MODELS:-/srv}:/models"], command="-m ${MODEL:-/models/a.gguf}"),
        server(image="me/own-llama.cpp" + DIGEST, build=".", command="--model /baked/in.gguf", volumes=None),
        server(**{"x-note": "own", "labels": {"a": "b"}, "mem_limit": "64g", "shm_size": "8gb", "init": True}),
        {**OF_VLLM, "command": f"{OF_VLLM['command']} --tensor-parallel-size 2"},
    ],
)
def test_what_is_right_is_let_be(service: Mapping[str, Any], tmp_path: Path) -> None:
    assert said(tmp_path, {"llama": service}) == []


@pytest.mark.parametrize(
    ("service", "codes"),
    [
        (server(environment={"HF_TOKEN": "hf_abc"}), ["LH202"]),
        (server(environment=["OPENAI_API_KEY=sk-abc"]), ["LH202"]),
        (server(command="--model /models/a.gguf --load-mode mlock --mlock"), ["LH204", "LH101"]),
        ({**OF_VLLM, "ipc": "private", "command": f"{OF_VLLM['command']} -tp 2", "shm_size": 1}, []),
        ({k: v for k, v in OF_VLLM.items() if k != "ipc"} | {"command": f"{OF_VLLM['command']} -tp 2"}, ["LH204"]),
        (server(healthcheck={"test": ["CMD-SHELL", "curl -f http://localhost:8080/health || exit 1"]}), []),
        (server(healthcheck={"test": "curl -sSf http://localhost:8080/health"}), []),
        (server(command=f"{KEYED}", healthcheck={"test": "curl -f http://localhost:8080/v1/health"}), []),
        (server(healthcheck={"test": "curl -f http://localhost:$$PORT/health"}, environment={"PORT": 8080}), []),
        (server(command="-m /models/a.gguf -lm mlock", cap_add=["IPC_LOCK"]), []),
        (server(command="-m /models/a.gguf -lm mlock", ulimits={"memlock": 65536}), ["LH204"]),
        (server(command="-m /models/a.gguf -lm mlock", ulimits={"memlock": {"soft": -1, "hard": -1}}), []),
        ({k: v for k, v in OF_VLLM.items() if k != "ipc"} | {"command": TWO, "shm_size": "64m"}, ["LH204"]),
        ({k: v for k, v in OF_VLLM.items() if k != "ipc"} | {"command": TWO, "shm_size": "16gb"}, []),
        (server(command="-m /models/${MODEL:-a.gguf}"), []),
        (server(command="-m /models/${MODEL:?say which}"), []),
        (server(command="-m /models/a.gguf -ot exps$$=CPU"), []),
        (server(volumes=["$HOME/models:/models"]), []),
        (server(environment={"LLAMA_ARG_ALIAS": "pa$$word"}), []),
        (server(environment={"LLAMA_ARG_ALIAS": "$NAME"}), []),
        (server(env_file=[{"path": "llm.env", "required": False}]), []),
        (server(networks=["default"]), []),
        (server(command="-m /models/a.gguf --api-key-file /etc/keys/k"), ["LH207"]),
        (server(mem_limit="32G", deploy={"resources": {"limits": {"memory": "32g"}}}), []),
        ({**OF_VLLM, "gpus": [{"count": 1}], "command": f"{OF_VLLM['command']} -tp 2"}, ["LH220"]),
        ({**OF_VLLM, "gpus": [{"device_ids": ["0", "1"]}], "command": f"{OF_VLLM['command']} -tp 2"}, []),
        (server(volumes=["/srv/models:/data"]), ["LH207"]),
        (server(volumes=None), ["LH207"]),
        (server(command="--model /models/a.gguf --mmproj /extra/p.gguf"), ["LH207"]),
        (server(command="--model /models/a.gguf \\\n--port 8080\n"), ["LH141"]),
        (server(command="--model /models/a.gguf && echo on"), ["LH141"]),
        (server(command="--model /models/a.gguf > log"), ["LH141"]),
        (server(ports=["127.0.0.1:8080"]), []),
        (server(ports=["0.0.0.0:8080"]), ["LH144"]),
        (server(command="--model /models/a.gguf # the model"), ["LH109", "LH109", "LH141"]),
        (server(command="-m /models/a --host 127.0.0.1", ports=["127.0.0.1:8080:8080"]), ["LH143"]),
    ],
)
def test_a_service_that_is_wrong_is_said(service: Mapping[str, Any], codes: list[str], tmp_path: Path) -> None:
    assert sorted(said(tmp_path, {"llama": service})) == sorted(codes)


@pytest.mark.parametrize(
    ("second", "codes"),
    [
        (server(ports=["127.0.0.1:8081:8080"]), []),
        (server(ports=["127.0.0.1:8080:8080"]), ["LH201"]),
        (server(ports=["127.0.0.1:8080:8080"], profiles=["b"]), []),
        (server(ports=["127.0.0.1:8080:8080"], profiles=["a", "b"]), ["LH201"]),
        (server(ports=["127.0.0.2:8080:8080"]), []),
        (server(ports=[{"target": 8080, "published": 8080, "host_ip": "127.0.0.1"}]), ["LH201"]),
        (server(depends_on=["first"], profiles=["a"]), []),
        (server(depends_on={"first": {"condition": "service_healthy"}}, profiles=["a"]), []),
    ],
)
def test_services_beside_each_other(second: Mapping[str, Any], codes: list[str], tmp_path: Path) -> None:
    first = server(ports=["127.0.0.1:8080:8080"], container_name="one", profiles=["a"])
    assert said(tmp_path, {"first": first, "second": second}) == codes


@pytest.mark.parametrize(
    ("service", "codes"),
    [
        (server(environment={"NVIDIA_VISIBLE_DEVICES": "void"}), ["LH266"]),
        (server(environment={"NVIDIA_VISIBLE_DEVICES": "all"}), []),
        (server(environment=["NVIDIA_DRIVER_CAPABILITIES=utility"]), ["LH266"]),
        (server(environment=["NVIDIA_DRIVER_CAPABILITIES=compute,utility"]), []),
        (server(image=CPU, gpus=None, command="-m /models/a.gguf -ngl 99"), ["LH266"]),
        (server(image=CPU, gpus=None), []),
        ({**OF_VLLM, "gpus": None}, ["LH143"]),
        (server(gpus=[{"device_ids": ["1"]}], environment={"CUDA_VISIBLE_DEVICES": "1", **BY_BUS}), ["LH258"]),
        (server(gpus=[{"device_ids": ["1"]}], environment={"CUDA_VISIBLE_DEVICES": "0"}), []),
        (server(entrypoint="/bin/bash"), ["LH143"]),
        (server(entrypoint=["sh", "-c"], command=["/app/llama-server -m /models/a.gguf"]), []),
        (server(entrypoint=["sh", "-c"], command="/app/llama-server -m /models/a.gguf"), ["LH143"]),
        (server(entrypoint=["sh", "-c"], command=["/app/llama-server", "-m", "/models/a.gguf"]), ["LH143"]),
        (server(entrypoint=["llama-server"]), ["LH143"]),
        (server(entrypoint=["/app/llama-server"]), []),
    ],
)
def test_what_a_container_starts_and_sees(service: Mapping[str, Any], codes: list[str], tmp_path: Path) -> None:
    assert sorted(said(tmp_path, {"llama": service})) == sorted(codes)


@pytest.mark.parametrize(
    ("service", "help_"),
    [
        (server(ports=["8080"]), "write `127.0.0.1:8080:8080`, or add `--api-key-file` with a file of keys"),
    ],
)
def test_the_way_out_is_what_to_write(service: Mapping[str, Any], help_: str, tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(yaml.safe_dump({"services": {"llama": service}}, sort_keys=False), encoding="utf-8")
    assert [finding.help for finding in examine(file)] == [help_]


def test_what_the_env_file_sets_is_put_in(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MODEL=a.gguf\n", encoding="utf-8")
    assert said(tmp_path, {"llama": server(command="-m /models/${MODEL}", env_file=".env")}) == []


@pytest.mark.parametrize(
    ("first", "second", "codes"),
    [
        ({}, {}, ["LH201"]),
        ({"device_ids": ["0"]}, {"device_ids": ["1"]}, []),
        ({"device_ids": ["0"]}, {"device_ids": ["0", "1"]}, ["LH201"]),
        ({"count": 1}, {"count": 1}, ["LH201"]),
        ({"device_ids": ["0"]}, {"count": "all"}, ["LH201"]),
        ({"share": 0.4}, {"share": 0.5}, []),
        ({"share": 0.4}, {}, ["LH201"]),
    ],
)
def test_two_of_vllm_share_a_card(
    first: dict[str, Any], second: dict[str, Any], codes: list[str], tmp_path: Path
) -> None:
    def declared(what: dict[str, Any]) -> dict[str, Any]:
        share = f" --gpu-memory-utilization {what.pop('share')}" if "share" in what else ""
        cards = {"gpus": [{"driver": "nvidia", "capabilities": ["gpu"], **what}]} if what else {"gpus": "all"}
        return {**OF_VLLM, **cards, "command": f"{OF_VLLM['command']}{share}"}

    assert said(tmp_path, {"a": declared(dict(first)), "b": declared(dict(second))}) == codes


def test_a_loopback_on_the_hosts_network_is_never_to_be_opened(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    service = server(network_mode="host", command="-m /models/a --host 127.0.0.1", ports=["8080:8080"])
    file.write_text(yaml.safe_dump({"services": {"llama": service}}), encoding="utf-8")
    assert not any("0.0.0.0" in finding.help for finding in examine(file))


def test_what_is_merged_and_put_in_is_read(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(
        f"""
x-base: &base
  image: {LLAMA}
  gpus: all
  restart: always
  volumes: [/srv/models:/models:ro]
services:
  one:
    <<: *base
    command: --model ${{MODEL:-/models/a.gguf}} --port ${{PORT:-8081}}
  two:
    <<: *base
    command: --model ${{MODEL:-/data/a.gguf}}
""",
        encoding="utf-8",
    )
    assert [(finding.code, finding.place.line) for finding in examine(file)] == [("LH207", 13)]


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
KEYS = st.sampled_from(
    ["image", "ports", "gpus", "deploy", "command", "volumes", "healthcheck", "depends_on", "test", "x"]
)
ANY = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.dictionaries(KEYS, ANY, max_size=5), max_size=2))
def test_rules_do_for_any_services(tmp_path_factory: pytest.TempPathFactory, services: dict[str, Any]) -> None:
    said(tmp_path_factory.mktemp("any"), {name: {**each, "image": VLLM} for name, each in services.items()})


def test_composes_own_tags_are_read(tmp_path: Path) -> None:
    """`!override` replaces what another file says, `!reset` takes it away: in one file, the value, and nothing."""
    file = tmp_path / "compose.yaml"
    file.write_text(
        "services:\n"
        "  llm:\n"
        f"    image: {LLAMA}\n"
        "    restart: always\n"
        "    gpus: !override all\n"
        "    command: !override [-m, /m.gguf, --host, 0.0.0.0, --api-key-file, /run/key]\n"
        "    volumes: [./m.gguf:/m.gguf:ro, ./key:/run/key:ro]\n"
        "    ports: !override ['127.0.0.1:8080:8080']\n"
        "    environment: !reset null\n"
        "    networks: !reset {}\n",
        encoding="utf-8",
    )
    assert [str(finding) for finding in examine(file)] == []
    file.write_text(file.read_text(encoding="utf-8").replace("--host", "--hots"), encoding="utf-8")
    assert [finding.code for finding in examine(file)] == ["LH100"]


@pytest.mark.parametrize("tag", ["!replace", "!!set", "!secret"])
def test_other_tags_are_refused(tag: str, tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(f"services:\n  llm:\n    image: {tag} a\n", encoding="utf-8")
    assert [finding.code for finding in examine(file)] == ["LH001"]


def found(folder: Path, text: str, name: str = "compose.yaml") -> list[tuple[int, str]]:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return [(finding.place.line, finding.code) for finding in examine(file) if finding.code != "LH268"]


def test_a_service_that_docker_does_not_start_again(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    for more, codes in (
        ({}, ["LH268"]),
        ({"restart": "unless-stopped"}, []),
        ({"restart": "no"}, []),
        ({"deploy": {"restart_policy": {"condition": "any"}}}, []),
    ):
        file.write_text(yaml.safe_dump({"services": {"llama": server(restart=None) | more}}), encoding="utf-8")
        assert [finding.code for finding in examine(file)] == codes


BASE = f"""\
services:
  base:
    image: {LLAMA}
    command: -m /models/a.gguf --no-mmap
    ports: ["8080:8080"]
    volumes: [/srv/models:/models]
    environment: {{LLAMA_ARG_CTX_SIZ: 1}}
"""


def test_a_service_has_what_it_extends(tmp_path: Path) -> None:
    text = BASE + "  a:\n    extends: base\n    gpus: all\n    command: -m /data/a.gguf\n"
    lines = found(tmp_path, text)
    assert (11, "LH207") in lines
    assert (4, "LH101") in lines
    assert (3, "LH143") in lines  # of `base`, which has no GPU of its own


def test_a_service_extends_one_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE, encoding="utf-8")
    text = "services:\n  a:\n    gpus: all\n    extends: {file: base.yaml, service: base}\n"
    assert found(tmp_path, text) == [(4, "LH101"), (4, "LH120"), (4, "LH144")]
    assert found(tmp_path, text.replace("extends", "environment: {LLAMA_API_KEY: $K}\n    extends")) == [
        (5, "LH101"),
        (5, "LH120"),
    ]


@pytest.mark.parametrize("file", ["missing.yaml", "${BASE}.yaml", "list.yaml"])
def test_a_file_that_is_extended_and_not_read_is_named(file: str, tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- a\n", encoding="utf-8")
    text = f"services:\n  a:\n    image: {LLAMA}\n    gpus: all\n    ports: ['80:8080']\n"
    text += f"    extends: {{file: '{file}', service: base}}\n    command: -m /m/a.gguf\n"
    assert found(tmp_path, text) == [(6, "LH280")]


def test_services_that_extend_each_other_end(tmp_path: Path) -> None:
    assert found(tmp_path, f"services:\n  a: {{extends: b, image: '{LLAMA}', gpus: all}}\n  b: {{extends: a}}\n") == []


SWAP = f"""\
services:
  swap:
    image: ghcr.io/mostlygeek/llama-swap:cuda{DIGEST}
    ports: ["9292:8080"]
    configs: [{{source: models, target: /app/config.yaml}}]
configs:
  models:
    content: |
      models:
        a:
          cmd: llama-server --port $${{PORT}} -m /m/a.gguf -c 4096
"""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "", [(4, "LH144")]),
        ("-c 4096", "--no-mmap", [(4, "LH144"), (11, "LH101")]),
        ("$${PORT}", "9", [(4, "LH144"), (11, "LH282")]),
        ("      models:\n", "      apiKeys: [x]\n      models:\n", []),
        ('"9292:8080"', '"127.0.0.1:9292:8080"', []),
        (
            "configs: [{source: models, target: /app/config.yaml}]",
            "volumes: [./config.yaml:/app/config.yaml]",
            [(3, "LH280")],
        ),
    ],
)
def test_llama_swap_and_its_models(before: str, after: str, expected: list[tuple[int, str]], tmp_path: Path) -> None:
    assert before in SWAP
    assert found(tmp_path, SWAP.replace(before, after, 1)) == expected


def test_llama_swap_with_a_file_of_models(tmp_path: Path) -> None:
    text = SWAP.split("    configs:")[0] + "    volumes: [./c.yaml:/app/config.yaml]\n"
    (tmp_path / "c.yaml").write_text("models: {}\n", encoding="utf-8")
    assert found(tmp_path, text) == [(3, "LH280"), (4, "LH144")]
    (tmp_path / "c.yaml").write_text("apiKeys: [x]\nmodels: {}\n", encoding="utf-8")
    assert found(tmp_path, text) == [(3, "LH001")]


@pytest.mark.parametrize(
    ("port", "codes"),
    [
        ("${BIND}:8080:8080", []),
        ("${BIND:-127.0.0.1}:8080:8080", []),
        ("${BIND:-0.0.0.0}:8080:8080", ["LH144"]),
        ("${HOST}:8080:8080", []),
        ("${PORT}:8080", ["LH144"]),
        ("127.0.0.1:${PORT:-8080}:8080", []),
        ("127.0.0.1:8080:${INNER:-9000}", ["LH143"]),
    ],
)
def test_a_port_whose_address_is_set_elsewhere(port: str, codes: list[str], tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HOST=127.0.0.1\n", encoding="utf-8")
    assert said(tmp_path, {"llama": server(ports=[port])}) == codes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: a\n", [(0, "LH001")]),
        ("include: [a.yaml]\n", [(1, "LH001")]),
        ("services:\n  llama: {build: ./llama.cpp, command: -fa}\n", [(2, "LH001")]),
        ("services:\n  x: {build: ., entrypoint: [/app/llama-server], command: [--no-mmap]}\n", [(2, "LH101")]),
        ("services:\n  llama:\n    image: ${IMAGE}\n    command: -m a.gguf\n", [(3, "LH001")]),
        ("services:\n  web: {build: .}\n", [(1, "LH001")]),
    ],
)
def test_what_is_not_read_is_named(text: str, expected: list[tuple[int, str]], tmp_path: Path) -> None:
    assert found(tmp_path, text) == expected
