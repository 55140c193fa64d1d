"""Files of every kind that hold an engine: Quadlets, Dockerfiles, Ansible, templates, and files that scripts write."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from llamaherd.recipes import kind_of, understand
from llamaherd.recipes.suggestions import offers_of

DIGEST = "@sha256:" + "0" * 64
CUDA = f"ghcr.io/ggml-org/llama.cpp:server-cuda{DIGEST}"


def found(folder: Path, name: str, text: str) -> list[tuple[int, str]]:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return [(finding.place.line, finding.code) for finding in understand(file).findings]


QUADLET = f"""\
[Unit]
Description=llama

[Container]
Image={CUDA}
Exec=-m /models/a.gguf -c 8192 \\
  --host 0.0.0.0 --port 8080
PublishPort=127.0.0.1:8080:8080
Volume=/srv/models:/models:ro,z
AddDevice=nvidia.com/gpu=all
Environment=LLAMA_ARG_THREADS=8 "A=b c"

[Service]
Restart=on-failure
RestartSec=5

[Install]
WantedBy=default.target
"""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "", []),
        ("AddDevice=nvidia.com/gpu=all\n", "", [(5, "LH143")]),
        ("AddDevice=nvidia.com/gpu=all", "PodmanArgs=--gpus all", []),
        ("--port 8080", "--port 9000", [(8, "LH143")]),
        ("127.0.0.1:8080:8080", "8080:8080", [(8, "LH144")]),
        ("PublishPort=127.0.0.1:8080:8080", "Network=host", [(8, "LH144")]),
        ("PublishPort=127.0.0.1:8080:8080", "PublishPort=8080:8080\nEnvironmentFile=/etc/llama.env", []),
        ("Volume=/srv/models:/models:ro,z", "Volume=/srv/models:/data", [(6, "LH207")]),
        ("Volume=/srv/models:/models:ro,z", "Mount=type=bind,source=/srv/models,target=/models", []),
        ("-c 8192", "--no-mmap", [(6, "LH101")]),
        ("-c 8192", "-c {{ context }} -ngl {{ layers | default(99) }}", []),
        ("LLAMA_ARG_THREADS", "LLAMA_ARG_THREAD", [(11, "LH120")]),
        ("Restart=on-failure\nRestartSec=5\n", "", [(5, "LH268")]),
        ("WantedBy=default.target", "", [(5, "LH268")]),
        (CUDA, "ghcr.io/ggml-org/llama.cpp:server-cuda", [(5, "LH145")]),
        (CUDA, "llama.build", []),
        ("-c 8192", "--mlock", [(6, "LH101"), (6, "LH204")]),
    ],
)
def test_a_quadlet(before: str, after: str, expected: list[tuple[int, str]], tmp_path: Path) -> None:
    assert before in QUADLET
    assert found(tmp_path, "llama.container", QUADLET.replace(before, after, 1)) == expected


def test_a_quadlet_is_offered_with_its_cards(tmp_path: Path) -> None:
    text = QUADLET.replace("AddDevice=nvidia.com/gpu=all", "AddDevice=nvidia.com/gpu=0\nAddDevice=nvidia.com/gpu=1")
    assert found(tmp_path, "llama.container", text) == []
    (server,) = understand(tmp_path / "llama.container").servers
    assert (server.cards, str(server.value("-m")), server.published and server.published.host) == (
        2,
        "/models/a.gguf",
        "8080",
    )


DOCKERFILE = f"""\
# syntax=docker/dockerfile:1
ARG TAG=12.8
FROM nvidia/cuda:${{TAG}}-devel AS build
ARG ARCH=86
RUN --mount=type=cache,target=/root/.ccache \\
    cmake -B build -DGGML_CUDA=ON \\
    # as the card is
    -DCMAKE_CUDA_ARCHITECTURES=${{ARCH}} && \\
    cmake --build build -j
FROM {CUDA}
ENV LLAMA_ARG_CTX_SIZE=8192 MODEL=/m/a.gguf
ENV LLAMA_ARG_HOST 0.0.0.0
COPY --from=build /x /y
CMD ["-m", "/m/a.gguf", "-ngl", "99"]
"""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "", []),
        ("-DGGML_CUDA=ON", "-DGGML_CUBLAS=ON", [(6, "LH131")]),
        ("ARCH=86", "ARCH=sm_86", [(8, "LH134")]),
        ("LLAMA_ARG_CTX_SIZE", "LLAMA_ARG_CTX_SIZ", [(11, "LH120")]),
        ('"-ngl", "99"', '"-fa", "-ngl", "99"', [(14, "LH103")]),
        ('["-m", "/m/a.gguf", "-ngl", "99"]', "/app/llama-server -m $MODEL --no-mmap", [(14, "LH101")]),
        ('CMD ["-m"', 'ENTRYPOINT ["/app/llama-server"]\nCMD ["-fit", "-m"', [(15, "LH103")]),
        (CUDA, "ghcr.io/ggml-org/llama.cpp:server-cuda", [(10, "LH145")]),
        (f"FROM {CUDA}", "FROM build", []),
        ("RUN --mount", "RUN <<EOF\nllama-server -m /a.gguf --no-mmap\nEOF\nRUN --mount", [(6, "LH101")]),
        ("COPY --from=build /x /y", "COPY <<EOF /etc/m.ini\n[a]\nmodel = a.gguf\ntop_p = 1\nEOF", [(16, "LH270")]),
        ("CMD [", "ONBUILD RUN x\nCMD [", [(14, "LH280")]),
    ],
)
def test_a_dockerfile(before: str, after: str, expected: list[tuple[int, str]], tmp_path: Path) -> None:
    assert before in DOCKERFILE
    assert found(tmp_path, "Dockerfile", DOCKERFILE.replace(before, after, 1)) == expected


PLAY = f"""\
---
# of a rig
- hosts: rigs
  tasks:
    - name: unit
      ansible.builtin.copy:
        dest: /etc/systemd/system/llama.service
        content: |
          [Unit]
          Description=llama
          [Service]
          User=llama
          ExecStart=/usr/bin/llama-server -m {{{{ model }}}} --no-mmap
          Restart=on-failure
          RestartSec=5
          [Install]
          WantedBy=multi-user.target
    - ansible.builtin.shell: |
        cd /opt
        nohup llama-server -m /m/a.gguf --mtp-draft 2 &
    - command: vllm serve a/b --port 8000
    - community.docker.docker_container:
        name: llama
        image: {CUDA}
        command: -m /m/a.gguf -fa -c {{{{ ctx }}}}
        published_ports: ["8080:8080"]
        volumes: [/srv/m:/m]
        device_requests: [{{driver: nvidia, count: 1, capabilities: [[gpu]]}}]
    - template: src=x dest=/y
    - template:
        src: llama.service.j2
        dest: /etc/systemd/system/llama.service
"""
EXPECTED = [
    *((13, "LH101"), (20, "LH100"), (20, "LH149"), (20, "LH213"), (21, "LH144"), (25, "LH103"), (26, "LH144")),
    (31, "LH280"),
]


def test_a_play_of_ansible(tmp_path: Path) -> None:
    assert sorted(found(tmp_path, "play.yml", PLAY)) == sorted(EXPECTED)
    without = PLAY.replace("---\n", "", 1)
    assert sorted(found(tmp_path, "play.yml", without)) == sorted((line - 1, code) for line, code in EXPECTED)


def test_a_play_that_is_no_yaml_is_named_where_it_fails(tmp_path: Path) -> None:
    assert found(tmp_path, "play.yml", "- hosts: x\n  tasks: [\n")[0][1] == "LH001"


UNIT = """\
[Unit]
Description=x
[Service]
User=llm
Restart=on-failure
RestartSec=5
ExecStart=/usr/bin/llama-server -m {model} -c {context} --mlock
LimitMEMLOCK=infinity
[Install]
WantedBy=multi-user.target
"""


@pytest.mark.parametrize("name", ["llama.service", "llama.service.j2"])
def test_an_expression_of_jinja_is_one_unknown_value(name: str, tmp_path: Path) -> None:
    text = UNIT.format(model="{{ llama_model | default('a b') }}", context="{{ ctx }}").replace(
        "LimitMEMLOCK", "{% if lock %}\n# {{ note }}\n{% endif %}\nLimitMEMLOCK"
    )
    assert found(tmp_path, name, text) == [(7, "LH101")]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("M=/a.gguf\nsudo tee /etc/systemd/system/l.service <<EOF\n{}EOF\n", [(9, "LH101")]),
        ("cat > l.service <<EOF\n{}EOF\n", [(8, "LH101")]),
        ("cat > l.service <<'EOF'\n{}EOF\n", [(8, "LH193"), (8, "LH101")]),
    ],
)
def test_a_unit_that_a_script_writes(script: str, expected: list[tuple[int, str]], tmp_path: Path) -> None:
    assert found(tmp_path, "install.sh", script.format(UNIT.format(model="$M", context=4096))) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("cat > /opt/m.ini <<EOF\n[a]\nmodel = /a.gguf\ntop_p = 1\nEOF\n", [(4, "LH270")]),
        ("docker compose -f - up -d <<EOF\nservices:\n  a:\n    image: x/llama.cpp:1\n    command: -fa\nEOF\n", None),
        ("cat > config.yaml <<EOF\nmodels:\n  a:\n    cmd: llama-server -m a.gguf --no-mmap\nEOF\n", None),
        (f"cat > l.container <<EOF\n{QUADLET.replace('-c 8192', '--no-mmap')}EOF\n", None),
        ("cat > Dockerfile <<'EOF'\nFROM x\nRUN cmake -B b -DGGML_CUBLAS=ON\nEOF\n", [(3, "LH131")]),
        ("ssh rig <<EOF\nllama-server -m a.gguf --no-mmap\nEOF\n", [(2, "LH101")]),
        ("sudo -u llm bash <<EOF\nllama-server -m a.gguf --no-mmap\nEOF\n", [(2, "LH101")]),
        ("cat > start.sh <<'EOF'\nllama-server -m a.gguf --no-mmap\nEOF\n", [(2, "LH101")]),
        ("python3 - <<EOF\nrun('llama-server -m a.gguf')\nEOF\n", [(2, "LH280")]),
        ("cat > nginx.conf <<EOF\nserver { listen 80; }\nEOF\n", []),
    ],
)
def test_other_files_that_a_script_writes(script: str, expected: list[tuple[int, str]] | None, tmp_path: Path) -> None:
    lines = found(tmp_path, "install.sh", script)
    assert lines == expected if expected is not None else lines and all(code != "LH280" for _, code in lines)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("Containerfile", "FROM x\n", "dockerfile"),
        ("cuda.Dockerfile", "FROM x\n", "dockerfile"),
        ("pasted", "# x\nFROM x\nRUN y\n", "dockerfile"),
        ("pasted", "[Container]\nImage=x\n", "quadlet"),
        ("x.service.j2", "[Service]\n", "shell"),
        ("compose.yml.j2", "services: {}\n", "compose"),
        ("main.yml", "- name: x\n  ansible.builtin.copy: {}\n", "ansible"),
        ("rigs.yml", "- a\n- b\n", "inventory"),
        ("deploy.yaml", "apiVersion: v1\nkind: Pod\n", None),
        (
            "build.yml",
            "name: build\non: [push]\njobs:\n  a:\n    steps:\n      - run: cmake -B b -DGGML_CUBLAS=ON\n",
            None,
        ),
        ("build.yml", "'on':\n  push:\njobs: {}\n", None),
        ("rig.yaml", "rig: a\non: b\njobs: c\n", "inventory"),
    ],
)
def test_the_kind_of_a_file(name: str, text: str, kind: str | None) -> None:
    assert kind_of(Path(name), text) == kind


@pytest.mark.parametrize("name", ["Dockerfile", "a.container", "a.ini", "play.yml", "deploy.yaml"])
def test_a_file_of_which_nothing_is_read_is_no_clean_one(name: str, tmp_path: Path) -> None:
    text = {"deploy.yaml": "apiVersion: v1\nkind: Pod\n", "play.yml": "- hosts: [\n"}.get(name, "nothing of this\n")
    assert [code for _, code in found(tmp_path, name, text)] == ["LH001"]


def test_a_unit_that_echo_writes_is_read_with_its_values(tmp_path: Path) -> None:
    unit = UNIT.format(model="$D/a.gguf", context="${C:-4096}").replace("llm", "${SUDO_USER:-$USER}")
    script = f'#!/bin/bash\nD=/opt\necho "{unit}" | sudo tee /etc/systemd/system/l.service > /dev/null\n'
    assert found(tmp_path, "install.sh", script) == [(9, "LH101")]
    (server,) = understand(tmp_path / "install.sh").servers
    assert (str(server.value("-m")), str(server.value("-c"))) == ("/opt/a.gguf", "4096")


def test_a_statement_of_jinja_ends_no_command(tmp_path: Path) -> None:
    text = UNIT.format(model="/a.gguf", context="1 \\\n{% if draft %}\n -md /b.gguf \\\n{% endif %}\n --no-mmap")
    assert found(tmp_path, "a.service.j2", text.replace(" --mlock", "")) == [(9, "LH212"), (11, "LH101")]


@pytest.mark.parametrize(
    ("environment", "keys"),
    [
        ("LLAMA_ARG_CTX_SIZE=4096", {"context": 4096, "environment": None}),
        ("LLAMA_ARG_MODEL=/m/Q.gguf LLAMA_ARG_HOST=0.0.0.0", {"model": "q", "listen": "0.0.0.0"}),
        ("LLAMA_ARG_NO_WARMUP=1 LLAMA_ARG_CTX_SIZE=$C", {"context": None}),
        ("GGML_CUDA_NO_PINNED=1", {"environment": {"GGML_CUDA_NO_PINNED": "1"}}),
    ],
)
def test_variables_become_keys_in_an_offer(environment: str, keys: dict[str, object], tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text(f"{environment} llama-server\n", encoding="utf-8")
    (offer,) = offers_of(understand(file).servers)
    assert {key: offer.keys.get(key) for key in keys} == keys


def test_a_value_that_no_inventory_has_is_left_out_and_named(tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text("vllm serve a/b --max-model-len 32k --host 127.0.0.1 --max-num-seqs 0\n", encoding="utf-8")
    (offer,) = offers_of(understand(file).servers)
    assert offer.keys["context"] == 32000
    assert "parallel" not in offer.keys
    assert any("`parallel: 0` is not carried over" in note for note in offer.notes)


def test_a_unit_has_the_variables_of_a_file_that_the_script_writes(tmp_path: Path) -> None:
    unit = UNIT.format(model="${MODEL}", context="4096 $MORE").replace("User=llm", "User=llm\nEnvironmentFile=-/etc/l")
    script = f"cat > /etc/l <<EOF\nMODEL=/a.gguf\nMORE='--no-mmap -t 4'\nEOF\ncat > l.service <<'EOF'\n{unit}EOF\n"
    assert found(tmp_path, "install.sh", script) == [(13, "LH101"), (13, "LH101")]
    (server,) = understand(tmp_path / "install.sh").servers
    assert str(server.value("-m")) == "/a.gguf"


def test_the_definition_of_a_project_in_a_play_is_read(tmp_path: Path) -> None:
    text = f"- community.docker.docker_compose_v2:\n    definition:\n      services:\n        a: {{image: '{CUDA}', "
    text += "restart: always, gpus: all, command: [-fa, -m, a.gguf]}\n"
    assert found(tmp_path, "main.yml", text) == [(3, "LH103")]


def test_each_stage_that_can_be_started_is_read(tmp_path: Path) -> None:
    text = 'FROM x AS server\nENTRYPOINT ["/app/llama-server", "-fa"]\nFROM server AS swap\nENTRYPOINT ["llama-swap"]\n'
    assert found(tmp_path, "Dockerfile", text) == [(2, "LH104")]
    assert found(tmp_path, "Dockerfile", "ENV A=b\nFROM x\nENV GGML_HIPBLAS=1\nCMD [llama-server]\n") == [(4, "LH280")]


def test_the_name_of_a_file_names_its_engine(tmp_path: Path) -> None:
    text = "models:\n  a:\n    cmd: llama-server --port ${PORT} -m a.gguf -c 4096 -rtr\n"
    (tmp_path / "ik_llama.yaml").write_text(text, encoding="utf-8")
    (server,) = understand(tmp_path / "ik_llama.yaml").servers
    assert server.kind == "ik_llama.cpp"


PACKAGE = """\
Name: llama.cpp
Version: 1
Source0: https://github.com/ggml-org/llama.cpp
%description
To serve a model, type:
  llama-server -m a.gguf --no-mmap
%build
cmake -B build -DGGML_CUBLAS=ON
%install
cat <<'EOF' > %{buildroot}/usr/lib/systemd/system/llama.service
[Service]
User=llama
EnvironmentFile=/etc/sysconfig/llama
ExecStart=/usr/bin/llama-server $ARGS
EOF
echo 'ARGS="-m /srv/a.gguf --no-mmap"' > %{buildroot}/etc/sysconfig/llama
%files
llama-server --no-mmap
"""


def test_the_scripts_of_a_package_are_read_and_its_other_sections_are_not(tmp_path: Path) -> None:
    assert found(tmp_path, "llama.spec", PACKAGE) == [(8, "LH131"), (14, "LH101")]
    (server,) = understand(tmp_path / "llama.spec").servers
    assert str(server.value("-m")) == "/srv/a.gguf"
    page = "# How to start it\n```\nllama-server -m a.gguf --no-mmap\n```\n"
    assert found(tmp_path, "page.spec", page) == [(3, "LH101")]


LONG = {
    "Dockerfile": "FROM x\n" + "RUN cmake -B b -DGGML_CUDA=ON && echo a\n" * 3000,
    "play.yml": "- hosts: a\n  tasks:\n" + "    - shell: llama-server -m a -c 4096 --no-mmap\n" * 2500,
    "start.sh": "#!/bin/sh\n" + "llama-server -m /m/a.gguf -c 4096 -ngl 99\n" * 2900,
    "arrays.sh": "#!/bin/sh\n" + 'A=("${A[@]}" -c 1)\n' * 100 + 'llama-server "${A[@]}"\n' * 3000,
    "compose.yaml": "services:\n" + "".join(f"  a{n}: {{extends: a{n + 1}, image: x}}\n" for n in range(3000)),
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_file_is_read_soon(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(LONG[name], encoding="utf-8")
    start = time.process_time()
    understand(file)
    assert time.process_time() - start < 5
