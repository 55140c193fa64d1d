"""Scripts as bash runs them: functions, loops, branches, arithmetic, defaults and here-documents."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from llamaherd.recipes import examine, understand
from llamaherd.recipes.bash import read_commands
from llamaherd.recipes.commands import Script, positioned, unveil
from llamaherd.recipes.expansion import compute


def script(text: str) -> Script:
    return read_commands(positioned(text))


def runs(text: str) -> list[str]:
    """The commands called `prog` that a script runs; unknown words in angle brackets."""
    shown = [[f"<{word}>" if word.unknown else str(word) for word in each.words] for each in script(text).commands]
    return [" ".join(words[1:]) for words in shown if words[:1] == ["prog"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PORT=9000\nprog $((PORT+1)) $((PORT - 1000 * 2)) $((PORT / 7))", ["9001 7000 1285"]),
        ("prog $((PORT+1))", ["<$((PORT+1))>"]),
        ("A=x/y.gguf\nprog ${A##*/} ${A%/*} ${A%.gguf} ${A#x}", ["y.gguf x x/y /y.gguf"]),
        ("prog ${A:-a b} \"${A:-a b}\" ${B:='1 2'} ${B:-3} ${C:-$D}", ["a b a b 1 2 1 2 <$D>"]),
        ("A=1\nprog ${A:+-x $A} ${B:+-y}", ["-x 1 <${B:+-y}>"]),
        ('f() { prog "$1" $2 "$@"; }\nf a \'b c\'', ["a b c a b c"]),
        ("function f { local n=$1; shift; prog $n $*; }\nf 1 2 3", ["1 2 3"]),
        ('main() { prog "$@" $1; }', ["<$1>"]),
        ("f() { f; }\nf\nprog", [""]),
        ("for i in 1 2 {3..4} $(seq 2); do prog $i; done", ["1", "2", "3", "4", "1", "2"]),
        ('L=(a \'b c\')\nfor i in "${L[@]}"; do prog "$i"; done\nprog ${#L} ${L[1]}', ["a", "b c", "<${#L}> b c"]),
        ("for i in *.gguf; do prog $i; done", ["<$i>"]),
        ("for ((i=0; i<3; i++)); do prog $((8080+i)); done", ["8080", "8081", "8082"]),
        ('for e in a:1 b:2; do IFS=: read -r n p <<< "$e"; prog $n $p ${e%%:*}; done', ["a 1 a", "b 2 b"]),
        ("if x; then A=1; else A=2; fi\nprog $A", ["<$A>"]),
        ("if x; then A=1; fi\nprog $A", ["1"]),
        ('A=(-x)\nif y; then A+=(-y); fi\n[[ $z ]] && A+=(-z)\nprog "${A[@]}"', ["-x -y -z"]),
        ("P=80\nwhile [ $# -gt 0 ]; do case $1 in --port) P=$2; shift 2;; esac; done\nprog $P", ["80"]),
        ("case $1 in a) A=1;; b) A=2;; esac\nprog $A", ["<$A>"]),
        ("set -- 1 2\nprog $2 ${3:-x}", ["2 x"]),
        ('S="$(command -v llama-server)"\nprog "$S" $(nproc)', ["llama-server <$(nproc)>"]),
        ('E="-p $P -j"\nprog $E', ["-p <$P> -j"]),
        ("A=1 B=2\nC=$A$B # so\nD=4 prog $C $D", ["12 <$D>"]),
        ("A=1 B=2 \\\n prog $A", ["<$A>"]),
        ("A=1 B=2\nunset A\nprog $A $B", ["<$A> 2"]),
        ("a && prog 1 || prog 2", ["1", "2"]),
        ("x | while read l; do prog $l; done", ["<$l>"]),
        ("prog <<< x -y", ["-y"]),
        ("prog > out -y 2>&1", ["-y"]),
    ],
)
def test_what_a_script_runs(text: str, expected: list[str]) -> None:
    assert runs(text) == expected


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("cat > u <<EOF\na \\\\\n b $A \\$A `c` ${B:-d}\nEOF", "a \\\n b $A $A `c` d\n"),
        ("A=1\ncat > u <<EOF\na \\\n b $A \\$A\nEOF", "a  b 1 $A\n"),
        ("A=1\ncat > u <<'EOF'\na \\\\ $A\nEOF", "a \\\\ $A\n"),
        ("cat > u <<-E\n\ta\n\t\tb\n\tE", "a\nb\n"),
    ],
)
def test_what_a_here_document_writes(text: str, written: str) -> None:
    (document,) = script(text).documents
    assert (unveil(document.text.chars), document.name) == (written, "u")
    assert len(document.text.chars) == len(document.text.at)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cat <<E > a\nx\nE", "a"),
        ("D=/etc\nsudo tee $D/a >/dev/null <<E\nx\nE", "/etc/a"),
        ("cat <<E | sudo tee a >/dev/null\nx\nE", "a"),
        ("docker compose -f - up <<E\nx\nE", ""),
        ("{ cat <<E\nx\nE\n} > a", ""),
    ],
)
def test_a_here_document_has_the_name_of_its_file(text: str, name: str) -> None:
    assert [each.name for each in script(text).documents] == [name]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1+2*3", 7),
        ("(1 - 5) / 2", -2),
        ("A % 4", 3),
        ("$A + ${A}", 14),
        ("a < b", None),
        ("9**9**9", None),
        ("", None),
    ],
)
def test_arithmetic(text: str, value: int | None) -> None:
    assert compute(text, {"A": "7"}) == value


def test_a_line_that_bash_cannot_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text("A=1\nllama-server -m a.gguf --no-mmap\nif x; then\n  echo it's\n", encoding="utf-8")
    assert [(each.code, each.place.line) for each in examine(file)] == [("LH101", 2), ("LH280", 4)]


def test_a_program_that_only_a_shell_knows_is_read_by_its_flags(tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text('"$BIN" -m a.gguf -c 4096 --no-mmap\n$PYTHON -m http.server 8080\n', encoding="utf-8")
    assert [(each.code, each.place.line) for each in examine(file)] == [("LH280", 1), ("LH101", 1)]
    assert len(understand(file).servers) == 1


@pytest.mark.parametrize(
    "text",
    [
        "sudo setcap cap_net_bind_service=+ep /usr/local/bin/llama-server",
        "chmod +x llama-server",
        "sudo ln -s /opt/llama-server /usr/bin",
        "cp build/bin/llama-server /usr/local/bin/",
    ],
)
def test_a_server_that_is_an_argument_is_not_started(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text(f"{text}\n", encoding="utf-8")
    assert understand(file).servers == ()


@pytest.mark.parametrize(
    ("text", "cpus", "dropped"),
    [
        ("taskset -c 0-7 llama-server -m a.gguf", "0-7", ()),
        ("numactl --interleave=all nice -n 5 llama-server -m a.gguf", "", ("numactl --interleave=all", "nice -n 5")),
        ("sudo -u llm env A=1 timeout 5m llama-server -m a.gguf", "", ()),
    ],
)
def test_what_stands_before_a_server(text: str, cpus: str, dropped: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text(f"{text}\n", encoding="utf-8")
    (server,) = understand(file).servers
    assert (server.cpus, server.dropped) == (cpus, dropped)


HOSTILE = {
    "arrays": "A=(" * 30000,
    "redirections": "<" * 120000,
    "brackets": "(" * 100000,
    "expansions": "${a:-" * 20000,
    "loops": "for a in {1..60}; do\n" * 30 + "llama-server -m $a\n" + "done\n" * 30,
    "calls": "".join(f"f{n}() {{ f{n + 1}; f{n + 1}; }}\n" for n in range(300)) + "f0",
    "growth": "A=aaaaaaaa\n" + 'A=$A$A\nB=("${B[@]}" $A)\n' * 3000,
    "branches": "if a; then\nA=$RANDOM\n" * 300 + "fi\n" * 300,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_no_text_takes_long(what: str) -> None:
    start = time.process_time()
    read_commands(positioned(HOSTILE[what]))
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P=1\n((P++))\nprog $P\n((P += 2, Q=P*2))\nprog $P $Q\nlet P=P-1\nprog $P", ["2", "4 8", "3"]),
        ("((P++))\nprog $P", ["<$P>"]),
        ("P=8080\nfor m in a b; do prog $m $P; ((P++)); done", ["a 8080", "b 8081"]),
    ],
)
def test_counters(text: str, expected: list[str]) -> None:
    assert runs(text) == expected


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("echo 'a\nb' > u", "a\nb"),
        ('A=1\necho -e "a\\n$A" | sudo tee u >/dev/null', "a\n1"),
        ("printf '%s\\n' a 'b c' > u", "a\nb c\n"),
        ("printf 'a\\nb\\n' | tee u", "a\nb\n"),
    ],
)
def test_what_echo_writes_into_a_file(text: str, written: str) -> None:
    (document,) = script(text).documents
    assert (document.text.chars, document.name) == (written, "u")


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("docker exec -it llama-server bash", 0),
        ("docker exec -u llm box llama-server -m a.gguf", 1),
        ("docker compose exec box llama-server -m a.gguf", 1),
        ("docker logs -f llama-server", 0),
        ("tmux kill-session -t llama-server", 0),
        ("tmux new-session -d -s llama-server 'llama-server -m a.gguf'", 1),
        ("screen -S llama-server -X quit", 0),
        ("screen -dmS llama-server llama-server -m a.gguf", 1),
        ("screen -S llm -X stuff 'llama-server -m a.gguf'", 1),
        (r"tmux new-session -d -s llm \; send-keys -t llm 'llama-server -m a.gguf' Enter", 1),
        (r"ssh box cd /opt/llama.cpp \&\& ./llama-server -m a.gguf", 1),
        ("sh -c 'exec \"$@\"' sh llama-server -m a.gguf", 1),
        ("ssh llama-server uptime", 0),
        ("ssh -p 22 rig 'cd /opt && ./llama-server -m a.gguf'", 1),
        ("CMD='llama-server -m a.gguf'\neval \"$CMD --port 9000\"", 1),
        ("CMD='llama-server -m a.gguf'\nnohup $CMD &", 1),
        ("systemctl restart llama-server\npkill -f llama-server\nps aux | grep llama-server", 0),
        ("sudo -u llm bash -c 'exec llama-server -m a.gguf'", 1),
    ],
)
def test_what_starts_a_server(text: str, servers: int, tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text(f"{text}\n", encoding="utf-8")
    assert len(understand(file).servers) == servers


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("llama-swap --config c.yaml", ["LH144"]),
        ("llama-swap -config=c.yaml -listen=127.0.0.1:9292", []),
        ("llama-swap --config keyed.yaml --listen :9292", []),
        ("llama-swap --config missing.yaml", []),
        ("llama-swap --config $C", []),
    ],
)
def test_llama_swap_itself(text: str, codes: list[str], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("models: {}\n", encoding="utf-8")
    (tmp_path / "keyed.yaml").write_text("apiKeys: [x]\nmodels: {}\n", encoding="utf-8")
    file = tmp_path / "a.sh"
    file.write_text(f"{text}\n", encoding="utf-8")
    assert [each.code for each in examine(file)] == codes


def test_a_blank_that_is_missing_behind_a_model(tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text("llama-server -m /m/a.gguf\\\n--port 8080 -c 4096\\\n--jinja\n", encoding="utf-8")
    assert [(each.code, each.help) for each in examine(file)] == [
        ("LH141", "write `/m/a.gguf --port`"),
        ("LH109", "remove it, or put it into quotes with the value it is a part of"),
        ("LH111", "write a blank before `--jinja`"),
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.sh", "numactl -C 0-3 -m 0 llama-server -m a.gguf\n"),
        ("a.sh", "docker run --cpuset-cpus 0-3 ghcr.io/ggml-org/llama.cpp:server -m a.gguf\n"),
        ("a.service", "[Service]\nExecStart=/llama-server -m /a.gguf\nCPUAffinity=0-3\n"),
        (
            "compose.yaml",
            "services: {a: {image: 'ghcr.io/ggml-org/llama.cpp:server', cpuset: 0-3, command: -m a.gguf}}",
        ),
        (
            "a.container",
            "[Container]\nImage=ghcr.io/ggml-org/llama.cpp:server\nExec=-m a\n[Service]\nAllowedCPUs=0-3\n",
        ),
    ],
)
def test_the_processors_of_a_server(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert [server.cpus for server in understand(tmp_path / name).servers] == ["0-3"]
