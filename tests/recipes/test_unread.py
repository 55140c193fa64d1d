"""What a file starts and nothing here reads is named, and what looks unlike a server is read as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamaherd.recipes import examine, understand
from llamaherd.recipes.containers import variables_of_files
from llamaherd.recipes.servers import known_arguments

SERVED = "-m /models/a.gguf -c 4096 --port 8081"
UNIT = """\
[Unit]
Description=llama
[Service]
User=llama
{more}
Restart=always
RestartSec=5
[Install]
WantedBy=multi-user.target
"""
QUADLET = """\
[Unit]
Description=a
[Container]
Image={image}
{more}
[Service]
Restart=always
RestartSec=5
[Install]
WantedBy=default.target
"""


def found(folder: Path, name: str, text: str) -> list[tuple[int, str]]:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return [(each.place.line, each.code) for each in examine(file)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.service", UNIT.format(more="ExecStart=/opt/llama/run.sh"), [(5, "LH001")]),
        ("a.service", UNIT.format(more="ExecStart=/opt/chat/run.sh").replace("=llama", "=chat"), [(1, "LH001")]),
        ("a.container", QUADLET.format(image="localhost/chat:1", more=""), [(1, "LH001")]),
        ("a.container", QUADLET.format(image="quay.io/x/llama-swap:1", more=""), [(4, "LH001")]),
        (
            "a.yaml",
            "services:\n  a:\n    image: me/llm:1\n    gpus: all\n    volumes: [/m/a.gguf:/a.gguf]\n",
            [(3, "LH001")],
        ),
        ("a.yaml", "models:\n  a:\n    cmd: docker compose up\n    proxy: http://localhost:1\n", [(3, "LH001")]),
        (
            "Dockerfile",
            'FROM x\nRUN cmake -B b -DGGML_CUDA=ON\nCOPY llama-server /\nENTRYPOINT ["/start.sh"]\n',
            [(4, "LH280")],
        ),
        ("a.sh", 'llama-server "$ARGS"\n', [(1, "LH280")]),
        ("a.sh", "ARGS=()\nwhile read -r X; do ARGS+=($X); done <a\nvllm serve ${ARGS[@]}\n", [(2, "LH280")]),
    ],
)
def test_what_is_not_read_is_named(name: str, text: str, expected: list[tuple[int, str]], tmp_path: Path) -> None:
    assert found(tmp_path, name, text) == expected


def test_a_script_reads_a_bounded_number_of_files(tmp_path: Path) -> None:
    (tmp_path / "other.sh").write_text("A=1\n", encoding="utf-8")
    start = f"llama-server {SERVED} $A\n"
    assert (17, "LH280") not in found(tmp_path, "a.sh", ". other.sh\n" * 16 + start)
    assert found(tmp_path, "a.sh", ". other.sh\n" * 17 + start) == [(17, "LH280")]


def test_a_container_reads_a_bounded_number_of_files(tmp_path: Path) -> None:
    for number in range(18):
        (tmp_path / f"{number}.env").write_text(f"A{number}=1\n", encoding="utf-8")
    named = [(f"{number}.env", (1, 1)) for number in range(18)]
    variables, unread = variables_of_files(tmp_path, named[:1] * 5000 + named[:16])
    assert (len(variables), unread) == (16, ())
    variables, unread = variables_of_files(tmp_path, named)
    assert (len(variables), unread) == (16, ("16.env",))


@pytest.mark.parametrize(
    ("command", "program", "kind"),
    [
        (f"/opt/ik-llama-server {SERVED}", "llama-server", "ik_llama.cpp"),
        (f"llama-server-cuda {SERVED}", "llama-server", "llama.cpp"),
        ("uv run --with x vllm serve a/b --host 127.0.0.1", "vllm", "vllm"),
        (f"toolbox run -c box llama-server {SERVED}", "llama-server", "llama.cpp"),
        (f"distrobox enter -n box -- llama-server {SERVED}", "llama-server", "llama.cpp"),
        (f'exec "$(cd "$(dirname "$0")" && pwd)/llama-server" {SERVED}', "llama-server", "llama.cpp"),
        ("docker create --gpus all vllm/vllm-openai:v0.33.0 --model a/b", "vllm", "vllm"),
        (f"podman container run -v /m:/models --gpus all me/llm:1 {SERVED}", "llama-server", "llama.cpp"),
    ],
)
def test_a_server_by_another_name_is_read(command: str, program: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(f"{command}\n", encoding="utf-8")
    (server,) = understand(tmp_path / "a.sh").servers
    assert (server.program, server.kind) == (program, kind)


@pytest.mark.parametrize(
    "command",
    [
        "./llama-server.sh -m a",
        "bash start.sh llama-server -m a",
        "llama-server-start -m a",
        "ollama serve",
        "uv pip x",
    ],
)
def test_a_script_with_such_a_name_is_none(command: str, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(f"{command}\n", encoding="utf-8")
    assert not understand(tmp_path / "a.sh").servers


def test_an_image_of_one_s_own_is_read_by_its_flags(tmp_path: Path) -> None:
    text = QUADLET.format(image="localhost/mine:1", more=f"PublishPort=8081:8081\nExec={SERVED} --host 0.0.0.0")
    assert found(tmp_path, "a.container", text) == [(5, "LH144")]
    text = text.replace("-m /models/a.gguf", "--model-id a")
    assert found(tmp_path, "a.container", text) == [(1, "LH001")]


def test_an_image_that_sets_the_model_itself(tmp_path: Path) -> None:
    text = (
        "services:\n  a:\n    image: me/llama.cpp:v1.0\n    restart: always\n    environment: [LLAMA_ARG_PORT=8081]\n"
    )
    (tmp_path / "compose.yaml").write_text(text, encoding="utf-8")
    (server,) = understand(tmp_path / "compose.yaml").servers
    assert server.dropped == ("the entrypoint of me/llama.cpp:v1.0",)


def test_a_misspelt_key_of_a_quadlet(tmp_path: Path) -> None:
    text = QUADLET.format(image="localhost/llama.cpp:1", more=f"Eexc=llama-server {SERVED} --no-mmap\nPublishPorts=1:2")
    assert found(tmp_path, "a.container", text) == [(5, "LH141"), (5, "LH101"), (6, "LH141"), (6, "LH143")]


def test_files_in_the_same_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "llama.env").write_text("HOST=0.0.0.0\nMODEL=/models/a.gguf\n", encoding="utf-8")
    script = '#!/bin/bash\nsource "$(dirname "$0")/llama.env"\nexec llama-server -m "$MODEL" --host "$HOST"\n'
    assert found(tmp_path, "run.sh", script) == [(3, "LH144")]
    more = "EnvironmentFile=/etc/llama/llama.env\nExecStart=/usr/bin/llama-server -m ${MODEL} --host ${HOST}"
    assert found(tmp_path, "a.service", UNIT.format(more=more)) == [(6, "LH144")]
    assert found(tmp_path, "a.service", UNIT.format(more="ExecStart=/opt/llama/run.sh")) == [(5, "LH144")]


def test_an_empty_default_is_unknown(tmp_path: Path) -> None:
    script = '#!/bin/bash\nNAME="${1:-}"\nllama-server -m "/models/$NAME" -c ${2:-4096} ${MORE:-}\n'
    (tmp_path / "a.sh").write_text(script, encoding="utf-8")
    (server,) = understand(tmp_path / "a.sh").servers
    assert known_arguments(server) == (("-c", "4096"), ("-m /models/",), ())


def test_flags_of_a_version_before_all_known_are_not_judged(tmp_path: Path) -> None:
    text = "docker run --gpus all -p 127.0.0.1:8000:8000 vllm/vllm-openai:v0.13.0 --model a/b --swap-space 4\n"
    assert found(tmp_path, "a.sh", text) == [(1, "LH280")]
    assert found(tmp_path, "a.sh", text.replace("v0.13.0", "v0.33.0")) == [(1, "LH100")]


@pytest.mark.parametrize("name", ["models.ini.sample", "models.ini.example", "models.ini.j2"])
def test_a_sample_is_of_the_kind_that_it_is_a_sample_of(name: str, tmp_path: Path) -> None:
    assert found(tmp_path, name, "[a]\nmodel = /models/a.gguf\nctx-size = 4096\n") == []


def test_of_two_alternatives_of_a_template_the_last_is_read(tmp_path: Path) -> None:
    more = "ExecStart=/usr/bin/llama-server -m /models/a.gguf{% if embed %} \\\n  --embedding{% else %} \\\n"
    more += "  --jinja{% endif %} --port 8081"
    (tmp_path / "a.service.j2").write_text(UNIT.format_map({"more": more}), encoding="utf-8")
    (server,) = understand(tmp_path / "a.service.j2").servers
    known = known_arguments(server)
    assert known.arguments == ("-m", "/models/a.gguf", "--jinja", "--port", "8081")
    assert known.unknown == ("--embedding",)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("docker run -d --gpus all -v /m:/models x/llama.cpp:b9999 -m /models/a.gguf", ["LH149"]),
        ("docker run -d --restart always --gpus all -v /m:/models x/llama.cpp:b9999 -m /models/a.gguf", []),
        ("OMP_NUM_THREADS=8\nllama-server -m a.gguf", ["LH142"]),
        ("CUDA_VISIBLE_DEVICES=-1 llama-server -m a.gguf -ngl 99 --device Vulkan0", []),
        ("docker run -p 172.17.0.1:8081:8080 --gpus all -v /m:/models x/llama.cpp:b9999 -m /models/a.gguf", []),
    ],
)
def test_what_starts_and_hides(command: str, expected: list[str], tmp_path: Path) -> None:
    assert [code for _, code in found(tmp_path, "a.sh", f"{command}\n")] == expected


def test_tools_behind_a_published_port_are_an_error(tmp_path: Path) -> None:
    text = "services:\n  a:\n    image: x/llama.cpp:b9999\n    restart: always\n    ports: ['8080:8080']\n"
    (tmp_path / "compose.yaml").write_text(f"{text}    command: -m /a.gguf --tools all\n", encoding="utf-8")
    assert ("LH211", "error") in {(each.code, each.severity) for each in examine(tmp_path / "compose.yaml")}


def test_a_folder_of_devices_opens_none(tmp_path: Path) -> None:
    more = "ExecStart=/usr/bin/llama-server -m /srv/a.gguf -ngl 99\nDeviceAllow=/dev/dri rw"
    assert found(tmp_path, "a.service", UNIT.format(more=more)) == [(6, "LH194")]
    assert found(tmp_path, "a.service", UNIT.format(more=more.replace("/dev/dri", "char-drm"))) == []


def test_a_script_of_the_same_play_is_read(tmp_path: Path) -> None:
    text = "- copy:\n    dest: /opt/llama.sh\n    content: |\n      llama-server -m a.gguf --no-mmap\n"
    text += "- copy:\n    dest: /etc/a.service\n    content: |\n      [Service]\n      ExecStart=/opt/llama.sh\n"
    assert found(tmp_path, "main.yml", text) == [(4, "LH101")]


def test_a_folder_whose_path_is_set_elsewhere_is_mounted(tmp_path: Path) -> None:
    text = 'docker run --gpus all -v "$(pwd)/a.yaml:/a.yaml" -v "${DIR:-/srv}/m:/m" x/vllm-openai:v0.33.0 --model a/b\n'
    (tmp_path / "a.sh").write_text(text, encoding="utf-8")
    (server,) = understand(tmp_path / "a.sh").servers
    assert server.binds == (("$(pwd)/a.yaml", "/a.yaml"), ("/srv/m", "/m"))
    text = "services:\n  a:\n    image: vllm/vllm-openai:v0.33.0\n    gpus: all\n    command: --model a/b\n"
    text += "    volumes: ['${DIR:-/srv}/m:/m:ro', 'cache:/c']\n"
    (tmp_path / "compose.yaml").write_text(text, encoding="utf-8")
    (server,) = understand(tmp_path / "compose.yaml").servers
    assert server.binds == (("/srv/m", "/m"),)


def test_a_card_that_is_full_is_reported_once_for_a_service(tmp_path: Path) -> None:
    text = "services:\n" + "".join(
        f"  s{n}:\n    image: vllm/vllm-openai:v0.33.0\n    gpus: all\n    restart: always\n    command: --model a/b\n"
        for n in range(4)
    )
    assert found(tmp_path, "compose.yaml", text) == [(8, "LH201"), (13, "LH201"), (18, "LH201")]


def test_flags_of_a_fork_are_not_judged(tmp_path: Path) -> None:
    text = "llama-server -m a.gguf -ctk q8_0 -ctv turbo3 --moe-cache on --host 0.0.0.0\n"
    assert found(tmp_path, "a.sh", text) == [(1, "LH280"), (1, "LH144")]
    text = "V=turbo3\nllama-server -m a.gguf -ctv $V --moe-cache on\n"
    assert found(tmp_path, "a.sh", text) == [(2, "LH280")]


def test_what_all_branches_have_is_known(tmp_path: Path) -> None:
    text = 'A=(--host 0.0.0.0)\nif [ -n "$U" ]; then A+=(-mu "$U"); else A+=(-m a.gguf); fi\nllama-server "${A[@]}"\n'
    assert found(tmp_path, "a.sh", text) == [(2, "LH280")]
    (server,) = understand(tmp_path / "a.sh").servers
    assert [*map(str, server.arguments)] == ["--host", "0.0.0.0", "$A"]


def test_a_line_of_a_unit_that_is_not_continued(tmp_path: Path) -> None:
    more = "ExecStart=/usr/bin/llama-server \\\n  -m /srv/a.gguf\n  --port 8081 --host 0.0.0.0"
    assert found(tmp_path, "a.service", UNIT.format(more=more)) == [(7, "LH141"), (7, "LH144")]


def test_a_value_that_is_empty_at_first_is_unknown(tmp_path: Path) -> None:
    text = 'CTX=""\nif [ -n "$1" ]; then CTX="$1"; fi\nllama-server -m a.gguf -c "$CTX"\n'
    assert found(tmp_path, "a.sh", text) == []


def test_a_script_without_a_known_path_is_read(tmp_path: Path) -> None:
    text = 'F="$(mktemp)"\ncat >"$F" <<E\n#!/bin/sh\nllama-server -m a.gguf --no-mmap\nE\n'
    assert found(tmp_path, "a.sh", text) == [(4, "LH101")]
    assert found(tmp_path, "a.sh", text.replace("#!/bin/sh", "# steps")) == [(4, "LH280")]


def test_values_that_are_unknown_or_empty_everywhere(tmp_path: Path) -> None:
    text = 'case $1 in a) X=;; b) X="";; *) X="$Y"; X=;; esac\nA=()\n[ -n "$2" ] && A+=("$2")\n'
    assert found(tmp_path, "a.sh", f'{text}llama-server -m a.gguf -c 4096 --alias "$X" "${{A[@]}}"\n') == []


def test_an_empty_file_is_none(tmp_path: Path) -> None:
    assert found(tmp_path, "a.service", "\n") == [(0, "LH001")]


def test_tasks_of_another_file_are_named(tmp_path: Path) -> None:
    text = "- name: llama.cpp\n  block:\n    - include_tasks: build.yml\n    - import_role: {name: gpu}\n"
    assert found(tmp_path, "main.yml", text) == [(3, "LH280"), (4, "LH280")]
    assert found(tmp_path, "main.yml", text.replace("llama", "x")) == []


@pytest.mark.parametrize("model", ["google/gemma-3-27b", "/model"])
def test_the_image_of_vllm_takes_a_model_without_a_flag(model: str, tmp_path: Path) -> None:
    text = "services:\n  a:\n    image: vllm/vllm-openai:v0.33.0\n    gpus: all\n    restart: always\n"
    text += f"    ports: ['8000:8000']\n    command: [{model}, --max-model-len, '8192']\n"
    assert found(tmp_path, "compose.yaml", text) == [(6, "LH144")]
    assert found(tmp_path, "compose.yaml", text.replace(model, "bash")) == [(3, "LH001")]


def test_files_of_variables_are_read_or_named(tmp_path: Path) -> None:
    image = "ghcr.io/ggml-org/llama.cpp:server-b11434"
    text = (
        f"services:\n  a:\n    image: {image}\n    restart: always\n    ports: ['8080:8080']\n    env_file: llm.env\n"
    )
    script = f"docker run -p 8080:8080 --env-file llm.env {image}\n"
    assert found(tmp_path, "a.sh", script) == [(1, "LH280")]
    assert found(tmp_path, "compose.yaml", text) == [(3, "LH280")]
    quadlet = QUADLET.format(image=image, more="PublishPort=8080:8080\nEnvironmentFile=%h/llm.env")
    assert found(tmp_path, "a.container", quadlet) == [(4, "LH280")]
    (server,) = understand(tmp_path / "a.container").servers
    assert server.dropped == ("EnvironmentFile=%h/llm.env",)
    (tmp_path / "llm.env").write_text("LLAMA_ARG_MODEL=/a.gguf\nLLAMA_ARG_CTX_SIZ=4096\n", encoding="utf-8")
    assert found(tmp_path, "compose.yaml", text) == [(5, "LH144"), (6, "LH120")]
    assert found(tmp_path, "a.sh", script) == [(1, "LH144"), (1, "LH120")]
    assert found(tmp_path, "a.container", quadlet) == [(5, "LH144"), (6, "LH120")]
    (tmp_path / "llm.env").write_text(
        "LLAMA_ARG_MODEL=/a.gguf\nLLAMA_API_KEY=f00dfeed5eed1e55f00dfeed5eed1e55\n", encoding="utf-8"
    )
    assert found(tmp_path, "compose.yaml", text) == []
    assert found(tmp_path, "a.sh", script) == []


def test_an_image_with_the_name_of_the_server(tmp_path: Path) -> None:
    command = "docker run --rm -p 127.0.0.1:8081:8081 llama-server:arm64 --port 8081 --hf a/b"
    assert found(tmp_path, "a.sh", f"{command}\n") == [(1, "LH100")]
