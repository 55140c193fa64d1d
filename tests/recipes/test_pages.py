"""Pages of documentation: their commands are read, and nothing else on them is."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import Finding
from llamaherd.recipes import examine
from llamaherd.recipes.commands import positioned
from llamaherd.recipes.pages import blocks_of, typed_commands

PROSE = "This page tells how the program is started, and what each of its flags is good for.\n\n"


def found(folder: Path, text: str, name: str = "page.md") -> list[Finding]:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return list(examine(file))


def fence(code: str, language: str = "bash") -> str:
    return f"{PROSE}```{language}\n{code}\n```\n"


RIGHT = {
    "another program's flags go on": fence(
        "curl http://localhost:8080/completion \\\n  --data '{\"n\": 1}' \\\n  -H 'A: b'"
    ),
    "without a fence": PROSE + "curl http://localhost:8080/completion \\\n  --data x \\\n  --silent\n",
    "a script of their own": fence("python3 measure.py \\\n  --hardware big \\\n  --input-tokens 128"),
    "its flags alone": fence("--tune-everything \\\n--input-tokens 128"),
    "a table of options": PROSE
    + "| flag | what |\n| --- | --- |\n| `--pooling {none,mean}` | how |\n| `-c N` | size |\n",
    "help as it is printed": fence(
        "-t,    --threads N      how many threads\n-c,    --ctx-size N     how much context", ""
    ),
    "choices": fence("llama-server -m a.gguf --embeddings --pooling {none,mean,cls}"),
    "placeholders": fence("llama-server -m <model> -c {context-size} --port <port> --host 127.0.0.1 [--threads N] ..."),
    "a placeholder before a flag": fence("vllm serve <model> --host 127.0.0.1 --tensor-parallel-size <how many>"),
    "text over several lines": fence(
        'llama-cli -m a.gguf -no-cnv -p "One line,\nanother that it\'s about,\n--and this"'
    ),
    "an image built on the page": fence(
        "docker build -t me/llama.cpp:cuda .\ndocker run --gpus all me/llama.cpp:cuda -m a"
    ),
    "a local image": fence("docker run --gpus all local/llama.cpp:server-cuda -m /m/a.gguf"),
    "the image of all tools": fence(f"docker run ghcr.io/ggml-org/llama.cpp:full@sha256:{'0' * 64} --run -m a -p hi"),
    "the image of the command line": fence(f"docker run ghcr.io/ggml-org/llama.cpp:light@sha256:{'0' * 64} -m a -p hi"),
    "a question before the start": fence("llama-server --version\nllama-server --list-devices"),
    "what a program prints": fence("$ llama-server --version\nversion: it's 1\n--no-mmap --n-gpu-layers x", "console"),
    "other languages": fence('args = """\nllama-server --no-mmap\n"""', "python")
    + fence("llama-server --no-mmap", "json"),
    "one key of a flag that takes JSON": fence("vllm serve a --host 127.0.0.1 -cc.mode=3 --hf-overrides.a.b 4"),
    "what vLLM runs beside its server": fence("python -m vllm.entrypoints.openai.run_batch -i in.jsonl -o out.jsonl"),
    "a node without a listener": fence("vllm serve a --headless --data-parallel-size 2"),
    "what a program can do": fence("llama-cli -m a.gguf --completion-bash > file\nllama-cli -m a.gguf -ts 3,1"),
    "a fence in a tab": f'{PROSE}=== "GPU"\n\n    ```bash\n    curl http://x \\\n      --data y\n    ```\n',
    "a browser's page": f"<html><p>{PROSE}</p><pre>curl x \\\n  --data &quot;y&quot;</pre></html>",
}


@pytest.mark.parametrize("what", RIGHT)
def test_what_is_right_on_a_page_is_let_be(what: str, tmp_path: Path) -> None:
    page = RIGHT[what] + fence("llama-server -m a.gguf --host 127.0.0.1")
    assert [str(each) for each in found(tmp_path, page)] == []


@pytest.mark.parametrize(
    ("page", "line", "column", "code"),
    [
        (fence("llama-server -m a.gguf \\\n  --no-mmap"), 5, 3, "LH101"),
        (fence("$ llama-server -m a.gguf --no-mmap\n--draft-max it prints", "console"), 4, 26, "LH101"),
        (fence("> llama-server -m a.gguf --no-mmap", "powershell"), 4, 26, "LH101"),
        (f"{PROSE}- a list:\n\n  ~~~sh\n  llama-server -m a.gguf --no-mmap\n  ~~~\n", 6, 26, "LH101"),
        (f"{PROSE}> ```\n> llama-server -m a.gguf --no-mmap\n> ```\n", 4, 26, "LH101"),
        (f"{PROSE}```sh\nllama-server -m a.gguf --no-mmap\n", 4, 24, "LH101"),
        (f"{PROSE}llama-server -m a.gguf --no-mmap\n", 3, 24, "LH101"),
        (fence("llama-server -m <model> --no-mmap"), 4, 25, "LH101"),
        (fence("llama-cli -m a.gguf -p hi --no-mmap"), 4, 27, "LH101"),
        (fence("curl http://x \\\n  --data y\nllama-server -m a.gguf --no-mmap"), 6, 24, "LH101"),
        (fence("-ngl 99 -c 4096 --no-mmap"), 4, 17, "LH101"),
        (fence("llama-server -m a.gguf \\  # the model\n  -c 4096"), 4, 24, "LH141"),
        (fence("vllm serve a-model"), 4, 1, "LH144"),
        (f"<html><p>{PROSE}</p>\n<pre><code>llama-server -m a.gguf &#45;-no-mmap</code></pre></html>", 4, 35, "LH101"),
        (f"<html><p>{PROSE}</p>\n<pre>curl x<br>llama-server -m a.gguf --no-mmap</pre></html>", 4, 39, "LH101"),
        (fence("docker run ghcr.io/ggml-org/llama.cpp:server -m a.gguf"), 4, 12, "LH145"),
    ],
)
def test_what_is_wrong_on_a_page_is_said_where_it_stands(
    page: str, line: int, column: int, code: str, tmp_path: Path
) -> None:
    (finding,) = found(tmp_path, page)
    assert (finding.code, finding.place.line, finding.place.column) == (code, line, column)


def test_an_exported_key_holds_for_what_follows_on_the_page(tmp_path: Path) -> None:
    start = fence("llama-server -m a.gguf --host 0.0.0.0")
    assert [each.code for each in found(tmp_path, start)] == ["LH144"]
    assert found(tmp_path, fence("export LLAMA_API_KEY=$(cat key)") + start) == []


def test_the_folder_of_a_page_tells_its_engine(tmp_path: Path) -> None:
    page = fence("llama-server -m a.gguf -rtr -amb 512")
    assert {each.code for each in found(tmp_path, page, "llama.cpp/docs/page.md")} == {"LH102"}
    assert found(tmp_path, page, "ik_llama.cpp/docs/page.md") == []


@pytest.mark.parametrize("folder", ["llama.cpp", "ik_llama.cpp"])
def test_llama_cli_has_flags_of_its_own_on_every_page(folder: str, tmp_path: Path) -> None:
    assert found(tmp_path, fence("-m a.gguf --image b.png -p 'what is it'"), f"{folder}/page.md") == []


@pytest.mark.parametrize(
    ("tag", "arguments", "suggested"),
    [
        ("server-cublas", "-m a", "server-cuda`"),
        ("full-cuda", "--run -m a -p hi", "full-cuda`"),
        ("full-cuda", "-m a", "server-cuda`"),
        ("light-cuda12.4", "-m a -p hi", "light-cuda`"),
        ("server-rocm6", "-m a", "server-rocm`"),
        ("latest", "-m a", "server`"),
        ("server-cuda-b4719", "-m a", "server-cuda`"),
    ],
)
def test_only_tags_that_there_are_are_suggested(tag: str, arguments: str, suggested: str, tmp_path: Path) -> None:
    command = f"docker run --gpus all ghcr.io/ggerganov/llama.cpp:{tag} {arguments}"
    (moved,) = [each for each in found(tmp_path, command, "run.sh") if each.code == "LH140"]
    assert f"`ghcr.io/ggml-org/llama.cpp:{suggested}" in moved.help


def test_a_tag_that_there_is_not_is_told(tmp_path: Path) -> None:
    codes = [
        each.code for each in found(tmp_path, "docker run --gpus all ghcr.io/ggml-org/llama.cpp:latest -m a", "r.sh")
    ]
    assert codes == ["LH143", "LH143", "LH145"]


def test_blocks_know_their_language_and_where_each_character_stands() -> None:
    text = "Text.\n\n  ```{.console}\n  $ a b\n  out\n  ```\n"
    (block,) = blocks_of(text)
    assert (block.language, block.text.chars) == ("console", "$ a b\nout\n")
    command = typed_commands(block.text)
    assert (command.chars, command.at[0]) == ("a b\n", (4, 5))
    assert typed_commands(positioned("a\nb")).chars == "a\nb"


COMPOSED = """services:
  llm:
    image: ghcr.io/ggml-org/llama.cpp:server@sha256:{digest}
    command: -m /models/a.gguf --no-mmap
    volumes: ["/srv/models:/models:ro"]
""".format(digest="0" * 64)


@pytest.mark.parametrize("language", ["yaml", "yml", ""])
def test_compose_files_on_a_page_are_read_where_they_stand(language: str, tmp_path: Path) -> None:
    for indent in ("", "    "):
        text = PROSE + "".join(f"{indent}{line}\n" for line in f"```{language}\n{COMPOSED}```".splitlines())
        (finding,) = found(tmp_path, text)
        assert (finding.code, finding.place.line, finding.place.column) == ("LH101", 7, 32 + len(indent))


@pytest.mark.parametrize(
    "text",
    [
        fence(COMPOSED.replace("services:", "# a part\nname: home\nservices:").replace(" --no-mmap", ""), "yaml"),
        fence(COMPOSED.replace("services:", "service:"), "yaml"),
        fence(COMPOSED.replace("    volumes", "    ...\n    volumes"), "yaml"),
        fence(COMPOSED.replace("services:", "services: ["), "yaml"),
        fence(COMPOSED, "json"),
        fence("services:\n  llm:\n    env_file: [llm.env]\n    image: redis:${TAG}", "yaml"),
        fence('[Service]\nEnvironment="OLLAMA_HOST=127.0.0.1"', "ini"),
    ],
)
def test_what_is_no_whole_compose_file_is_let_be(text: str, tmp_path: Path) -> None:
    assert [each.code for each in found(tmp_path, text) if each.code != "LH001"] == []
