"""Mistakes of users, one at a time: the sentence, place and fix that `herd check` prints, and what `--fix` does.

Each case is a part of a right rig, what a user wrote in its place, words of the sentence, the text at the place, words
of the fix, and whether `--fix` restores what was meant.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from llamaherd.cli.herd import main
from llamaherd.diagnostics.findings import Finding
from llamaherd.inventory.yaml_file import parse_yaml
from llamaherd.pipeline.fleet_files import examine_fleet

RIGHT = (Path(__file__).parents[1] / "data" / "duo.yaml").read_text(encoding="utf-8")
CHAT = RIGHT[RIGHT.index("  chat:\n") :]
CONNECT = "connect: {host: duo.lan, user: tom, port: 22}"
PORT = "    port: 8003\n"
SMALL = '{hf: bartowski/google_gemma-3-4b-it-GGUF, files: "*Q4_K_M.gguf", revision: main}'
END = "    backend: systemd\n"


class Case(NamedTuple):
    """A mistake, and what is right about it."""

    right: str
    wrong: str
    message: str
    marked: str
    help: str
    fixed: bool = True


def indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}" if by > 0 else line[-by:] for line in text.splitlines(keepends=True))


INDENTATION = {
    "an instance too far in": Case(CHAT, indented(CHAT, 2), "`chat` is indented too far", "chat:", "with 2 spaces"),
    "the name of an instance too far in": Case(
        "  chat:\n", "    chat:\n", "`chat` is indented as far as the keys", "chat:", "with 2 spaces, as `reasoner`"
    ),
    "the first name too far in": Case(
        "  worker:\n", "    worker:\n", "`worker:` is indented as far", "worker:", "2 spaces"
    ),
    "an instance at the left edge": Case(
        CHAT, indented(CHAT, -2), "`chat` is not indented enough", "chat:", "with 2 spaces, below `instances`"
    ),
    "a section in another one": Case(
        "models:\n", "  models:\n", "`models` is indented too far", "models:", "left edge"
    ),
    "a key at the left edge": Case(
        END, "backend: systemd\n", "not indented enough: it stands at the left", "backend", "below `instances.chat`"
    ),
    "a key as far as names": Case(
        END, "  backend: systemd\n", "not indented enough: it stands below `inst", "backend", "with 4 spaces"
    ),
    "a block of a section at the left edge": Case(
        "  cards:\n", "cards:\n", "`cards` is not indented enough", "cards:", "with 2 spaces, below `gpus`"
    ),
    "one space less": Case("    context: 8192\n", "   context: 8192\n", "indented by 3 spaces", "context", "4 spaces"),
    "one space more": Case(
        "    context: 8192\n", "     context: 8192\n", "indented by 5 spaces", "context", "4 spaces"
    ),
    "a key among others further left": Case(
        "    context: 8192\n", "context: 8192\n", "indented by 0 spaces", "context", "4 spaces"
    ),
    "keys below a key, not indented": Case(
        "    sampling: {temperature: 0.7, top_k: 20}\n",
        "    sampling:\n    temperature: 0.7\n    top_k: 20\n",
        "`temperature` is not indented enough",
        "temperature",
        "with 6 spaces, below `instances.reasoner.sampling`",
    ),
    "a tab": Case("    context: 8192\n", "\tcontext: 8192\n", "a tab stands here", "\tcontext", "write spaces"),
}
PUNCTUATION = {
    "no space": Case(PORT, "    port:8003\n", "no space behind `port:`", "port:8003", "write `port: 8003`"),
    "no space in the first key": Case(
        "    engine: main\n    model: small",
        "    engine:main\n    model: small",
        "no space behind `eng",
        "engine:",
        "`engine: main`",
    ),
    "no space in the first line": Case("rig: duo\n", "rig:duo\n", "no space behind `rig:`", "rig:duo", "`rig: duo`"),
    "no space in braces": Case(
        "{host: duo.lan,", "{host:duo.lan,", "no space behind `host:`", "host:", "`host: duo.lan`"
    ),
    "a space before the colon alone": Case(
        PORT, "    port :8003\n", "space belongs behind the colon", "port", "`port: 8003`"
    ),
    "an equals sign": Case(PORT, "    port = 8003\n", "no colon behind `port`", "port", "write `port: 8003`"),
    "an equals sign in braces": Case("{mtp: 2}", "{mtp=2}", "no colon behind `mtp`", "mtp=2", "write `mtp: 2`"),
    "an arrow": Case(PORT, "    port => 8003\n", "no colon behind `port`", "port", "write `port: 8003`"),
    "no colon": Case(PORT, "    port 8003\n", "no colon behind `port`", "port", "write `port: 8003`", False),
    "no colon behind a name": Case("  chat:\n", "  chat\n", "no colon behind `chat`", "chat", "write `chat:`"),
    "an equals sign of a section": Case(
        "instances:\n", "instances =\n", "no colon behind `inst", "inst", "`instances:`"
    ),
    "a colon of another alphabet": Case(
        PORT, "    port\uff1a 8003\n", "no colon behind `port`", "port", "`port: 8003`"
    ),
    "a comma at the end": Case(
        PORT, "    port: 8003,\n", "must be a whole number", "8003,", "did you mean `port: 8003`"
    ),
    "a semicolon": Case(PORT, "    port: 8003;\n", "must be a whole number", "8003;", "did you mean `port: 8003`"),
    "an open quotation": Case('cuda: "13.0"', 'cuda: "13.0', '`"` is opened here', '"13.0', 'add `"` at the end'),
    "two kinds of quotes": Case('cuda: "13.0"', "cuda: \"13.0'", '`"` is opened here', '"13.0', 'write `"` in place'),
    "quotes of a text editor": Case(
        'cuda: "13.0"', "cuda: \u201c13.0\u201d", "invalid value", "\u201c13", 'mean `cuda: "13.0"`'
    ),
    "quotes around key and value": Case(
        PORT, '    "port: 8003"\n', "the quotes are around", '"port', "write `port: 8003`"
    ),
    "an open bracket": Case("on: [std]", "on: [std", "`[` is opened here", "[std", "add `]`"),
    "a bracket too many": Case("on: [std]", "on: [std]]", "`]` closes nothing", "]", "leave it out"),
    "round brackets": Case("on: [std]", "on: (std)", "must be a list", "(std)", "did you mean `on: [std]`"),
    "a dash of a text editor": Case(
        "on: [std]", "on:\n    \u2013 std", "`\u2013` does not begin an item", "\u2013", "write `- std`"
    ),
    "a space of a web page": Case(PORT, "    port:\u00a08003\n", "no-break space", "\u00a0", "a plain space"),
    "spaces of a web page": Case(
        PORT, "\u00a0\u00a0\u00a0\u00a0port: 8003\n", "no-break space", "\u00a0", "a plain space"
    ),
    "a comma in a number": Case(
        "temperature: 0.7", "temperature: 0,7", "the comma in `0,7`", "7", "write `temperature: 0.7`"
    ),
    "a star": Case('files: "*Q4', "files: *Q4", "`*` at the beginning", "*Q4", "write it in quotes", False),
    "a question mark": Case('"*Q4_K_M.gguf"', "?Q4_K_M.gguf", "begins with `?`", "?Q4", 'quotes: `"?Q4_K', False),
    "a path of Windows": Case(
        "/srv/models\n", '"C:\\models"\n', "a backslash in double quotes", '"C:', "single quotes", False
    ),
}
PASTED = {
    "a comment of C": Case(PORT, f"{PORT}    // the port\n", "`//` does not begin a comment", "//", "write `#`"),
    "a comment of SQL": Case(PORT, f"{PORT}    -- the port\n", "`--` does not begin a comment", "--", "write `#`"),
    "a fence of Markdown": Case(
        "rig: duo\n", "```yaml\nrig: duo\n", "this line marks code", "```", "leave the line out"
    ),
    "a prompt": Case("rig: duo\n", "$ cat duo.yaml\nrig: duo\n", "neither a key nor", "$ cat", "before it", False),
    "a diff": Case(
        RIGHT, "".join(f"+{line}\n" for line in RIGHT.splitlines()), "as in a diff", "+", "leave `+`", False
    ),
    "a mail": Case(RIGHT, "".join(f"> {line}\n" for line in RIGHT.splitlines()), "as in a mail", ">", "`> `", False),
    "numbers of lines": Case(
        RIGHT,
        "".join(f"{n} {line}\n" for n, line in enumerate(RIGHT.splitlines(), 1)),
        "its number",
        "1",
        "number",
        False,
    ),
    "a merge of git": Case(
        "host:\n", "=======\nhost:\n", "a merge is not finished", "=======", "take the lines", False
    ),
    "a control character": Case(PORT, "    port: 8003\x0c\n", "(U+000C)", "\x0c", "take it out", False),
}
BRACKETS = {
    "no braces": Case(CONNECT, CONNECT.translate({123: "", 125: ""}), "need braces", "host:", f"write `{CONNECT}`"),
    "no comma": Case("duo.lan, user", "duo.lan user", "a comma is missing before `user`", "user", "write `, user:`"),
    "semicolons": Case(
        CONNECT, CONNECT.replace(",", ";"), "a comma is missing before `user`", "user", "write `, user:`"
    ),
    "another closing bracket": Case("on: [std]", "on: [std}", "`}` closes what `[` opens", "}", "write `]`"),
    "a colon too many": Case(PORT, "    port: : 8003\n", "a colon too many", ": 8003", "write `port: 8003`"),
    "a bar": Case("model: small", "model: | small", "begins a text on the lines below", "| small", "`small` without"),
    "an item on the line of its key": Case(
        "on: [std]", "on: - std", "begins on a line of its own", "- std", "write `on: [std]`"
    ),
    "a dash in brackets": Case("on: [std]", "on: [- std]", "need no `- `", "- std", "leave it out"),
    "words behind a quote": Case('"13.0"', '"13.0" or later', "`or later` follows", "or later", "leave it out", False),
    "brackets of a pattern": Case('"*Q4_K_M.gguf"', "[Q4]*.gguf", "`*.gguf` follows", "*.gguf", "'[Q4]*.gguf'", False),
    "a comma in a whole number": Case(
        "top_k: 20", "top_k: 1,000", "comma in `1,000`", "000", "write `top_k: 1000`", False
    ),
    "an anchor as a value": Case("model: small", "model: &small", "has no value", "&small", "known names", False),
}
STRUCTURE = {
    "keys as items": Case(
        CHAT,
        "  chat:\n" + "".join(f"    - {line.strip()}\n" for line in CHAT.splitlines()[1:]),
        "must be a mapping, and is a list",
        "- engine",
        "leave out each `- `",
    ),
    "engines as items": Case(
        "  main:\n    kind: llama.cpp\n",
        "  - name: main\n    kind: llama.cpp\n",
        "some of what stands here begins with `- `",
        "- name",
        "leave out each `- `",
        False,
    ),
    "a key twice": Case(PORT, PORT + "    port: 8004\n", "`port` stands here twice", "port: 8004", "keep one", False),
    "a name twice": Case("  chat:\n", "  worker:\n", "`worker` stands here twice", "worker:", "rename one", False),
    "a section twice": Case(
        "instances:\n",
        "models: {}\ninstances:\n",
        "`models` stands here twice",
        "models: {}",
        "move what is below",
        False,
    ),
    "a merge of nothing": Case(
        "  chat:\n", "  chat:\n    <<: *common\n", "has no anchor `&common`", "*common", "write `&common` after", False
    ),
    "a merge of a text": Case(
        "  chat:\n", "  chat:\n    <<: common\n", "`<<` needs a mapping", "common", "`<<: *c", False
    ),
    "a template": Case(
        PORT, "    port: {{ port }}\n", "`{{` begins a template", "{ port", "write the value itself", False
    ),
    "a variable": Case(PORT, "    port: $PORT\n", "must be a whole number", "$PORT", "has no variables", False),
    "the end of a document": Case("host:\n", "...\nhost:\n", "`...` ends the document", "...", "leave the line out"),
    "two documents": Case("host:\n", "---\nhost:\n", "a second document", "---", "one file per rig", False),
    "nothing below a key": Case(PORT, "    port:\n", "`instances.chat.port` has no value", "", "`port: 8080`", False),
}
VALUES = {
    "a misspelt key": Case(PORT, "    prot: 8003\n", "no key `prot`", "prot", "did you mean `port`"),
    "a key of another tool": Case("context: 8192\n", "n_ctx: 8192\n", "no key `n_ctx`", "n_ctx", "mean `context`"),
    "a key with a dash": Case("gpu_layers", "gpu-layers", "no key `gpu-layers`", "gpu-layers", "mean `gpu_layers`"),
    "a misspelt switch": Case(END, f"{END}    mmap: flase\n", "true or false", "flase", "mean `mmap: false`", False),
    "a misspelt choice": Case("backend: systemd", "backend: sytemd", "invalid value", "sytemd", "mean `systemd`"),
    "a misspelt engine": Case(
        "engine: main\n    model: small", "engine: mian\n    model: small", "names engine `mian`", "mian", "`main`"
    ),
    "a misspelt model": Case("model: small", "model: smal", "names model `smal`", "smal", "did you mean `small`"),
    "a misspelt GPU": Case("on: [std]", "on: [sdt]", "names GPU `sdt`", "sdt", "did you mean `std`"),
    "two GPUs with a blank": Case("on: [std]", "on: ti std", "must be a list", "ti std", "`on: [ti, std]`", False),
    "digits in another order": Case(
        "model: RTX 3090,", "model: RTX 3900,", "not a known GPU", "RTX 3900", "RTX 3090`?", False
    ),
    "a GPU of another maker": Case("model: RTX 3090,", "model: MI50,", "not a known GPU", "MI50", "only NVIDIA", False),
    "a quant without its bars": Case("UD-Q4_K_XL", "Q4KM", "not a known quant", "Q4KM", "mean `quant: Q4_K_M`", False),
    "a quant of a wrong letter": Case("UD-Q4_K_XL", "Q4_K_N", "not a known quant", "Q4_K_N", "Q4_K_M", False),
    "a quant of nine bits": Case("UD-Q4_K_XL", "Q9_0", "not a known quant", "Q9_0", "no quant has 9 bits", False),
    "a model as ollama has it": Case(
        SMALL, "a/b-GGUF:Q4_K_M", "must be a mapping", "a/b", "mean `small: {hf: a/b-GGUF, quant: Q4_K_M}`", False
    ),
    "a repository with a backslash": Case(
        SMALL, "{hf: a\\b, quant: Q8_0}", "invalid value", "a\\b", "mean `hf: a/b`", False
    ),
    "a command of ssh": Case(
        CONNECT, "connect: ssh tom@duo.lan -p 22", "must be a mapping", "ssh tom", "host: duo.lan, user: tom, port: 22"
    ),
    "a host with two dots": Case("host: duo.lan", "host: duo..lan", "two dots", "duo..lan", "`host: duo.lan`", False),
    "a public key": Case("user: tom,", "user: tom, key: id.pub,", "is a public key", "id.pub", "without `.pub`", False),
    "a port with an address": Case(
        PORT, "    port: 127.0.0.1:8003\n", "whole number", "127.0", "mean `port: 8003`", False
    ),
    "a port with a letter": Case(
        PORT, "    port: 8O03\n", "must be a whole number", "8O03", "mean `port: 8003`", False
    ),
    "a port of root": Case(PORT, "    port: 80\n", "may not open port 80", "80", "from 1024 on", False),
    "a port twice": Case(PORT, "    port: 8002\n", "already the port of", "8002", "such as `port: 8003`", False),
    "a size without a unit": Case("ram: 192GB", "ram: 196608", "has no unit", "196608", "`ram: 196608MiB`", False),
    "bits in place of bytes": Case("limit: 8MB/s", "limit: 8 MBit", "is no speed", "8 MBit", "`limit: 8Mbit/s`", False),
    "a draft by its name": Case(
        "draft: {mtp: 2}", "draft: small", "must be a mapping", "small", "{model: small}", False
    ),
}
CASES = INDENTATION | PUNCTUATION | PASTED | BRACKETS | STRUCTURE | VALUES


def findings_of(text: str, folder: Path) -> list[Finding]:
    (folder / "keys").mkdir(exist_ok=True)
    (folder / "keys" / "coder").write_text("5b1f09c7d2e84a36\n", encoding="utf-8")
    (folder / "duo.yaml").write_text(text, encoding="utf-8")
    return [found for found in examine_fleet(folder / "duo.yaml")[1] if found.severity != "note"]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_sentence_place_and_fix_are_right(case: Case, tmp_path: Path) -> None:
    assert RIGHT.count(case.right) >= 1
    text = RIGHT.replace(case.right, case.wrong, 1)
    found = findings_of(text, tmp_path)[0]
    assert case.message in found.message
    assert case.help in found.help
    assert text.split("\n")[found.place.line - 1][found.place.column - 1 :].startswith(case.marked)


@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.fixed], ids=[n for n in CASES if CASES[n].fixed]
)
def test_the_fix_restores_what_was_meant(case: Case, tmp_path: Path) -> None:
    text = f"# kept\n{RIGHT.replace(case.right, case.wrong, 1)}# kept, too\n"
    findings_of(text, tmp_path)
    done = CliRunner().invoke(main, ["check", "--fix", str(tmp_path / "duo.yaml")])
    fixed = (tmp_path / "duo.yaml").read_text(encoding="utf-8")
    assert done.exit_code == 0, done.output
    assert parse_yaml(Path("duo.yaml"), fixed).data == parse_yaml(Path("duo.yaml"), RIGHT).data
    assert fixed.startswith("# kept\n")
    assert fixed.endswith("# kept, too\n")


@pytest.mark.parametrize(
    "case", [c for c in CASES.values() if not c.fixed], ids=[n for n in CASES if not CASES[n].fixed]
)
def test_a_fix_never_leaves_more_errors(case: Case, tmp_path: Path) -> None:
    before = findings_of(RIGHT.replace(case.right, case.wrong, 1), tmp_path)
    CliRunner().invoke(main, ["check", "--fix", str(tmp_path / "duo.yaml")])
    after = findings_of((tmp_path / "duo.yaml").read_text(encoding="utf-8"), tmp_path)
    assert len(after) <= len(before)


FILES: dict[str, tuple[str, bytes, str, str]] = {
    "empty": ("duo.yaml", b"", "this file is empty", "start it with `rig: NAME`"),
    "a comment alone": ("duo.yaml", b"# later\n", "this file is empty", "start it with `rig: NAME`"),
    "a list": ("duo.yaml", b"- duo\n", "is a list", "start it with `rig: NAME`"),
    "UTF-16": ("duo.yaml", RIGHT.encode("utf-16"), "it is UTF-16 text", "save it as UTF-8"),
    "another encoding": ("duo.yaml", RIGHT.encode() + b"# k\xe4se\n", "not UTF-8 text", "save it as UTF-8"),
    "another ending": ("duo.yaml.txt", RIGHT.encode(), "does not end in `.yaml`", "`mv duo.yaml.txt duo.yaml`"),
    "a model": ("m.gguf", b"GGUF\x03\0\0\0" + bytes(300_000), "it is a model (GGUF)", "`herd fit`"),
    "a model by another name": ("duo.yaml", b"GGUF\x03\0\0\0" + bytes(300_000), "it is a model (GGUF)", "`models`"),
    "compressed": ("duo.yaml", b"\x1f\x8b\x08\0", "it is compressed", "unpack it"),
    "a program": ("llama-server", b"\x7fELF\x02\x01" + bytes(99), "it is a program", "name a text file"),
}


@pytest.mark.parametrize("case", FILES.values(), ids=FILES)
def test_a_file_that_is_no_inventory_is_called_what_it_is(
    case: tuple[str, bytes, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, data, message, help_ = case
    (tmp_path / name).write_bytes(data)
    done = CliRunner().invoke(main, ["check", name])
    assert done.exit_code in (1, 2)
    first, second = done.stdout.splitlines()[:2]
    assert first.startswith(f"{name}: error LH00")
    assert message in first
    assert help_ in second


def test_a_byte_order_mark_moves_no_place(tmp_path: Path) -> None:
    (found,) = findings_of("\ufeff" + RIGHT.replace("rig: duo", "rgi: duo"), tmp_path)
    assert (found.place.line, found.place.column, found.edits[0].new) == (1, 1, "rig")


WORDS = {
    "a misspelt rig": ("plan duoo", "there is no rig `duoo`", "did you mean `duo`?"),
    "a file of a rig": ("plan duo.yaml", "there is no rig `duo.yaml`", "write the name of the rig: `duo`"),
    "a path of a rig": ("plan fleet/duo.yaml", "there is no rig", "write the name of the rig: `duo`"),
    "an instance": ("plan chat", "there is no rig `chat`", "`chat` is an instance: write its rig, `duo`"),
    "a rig and an instance": ("plan duo/chat", "there is no rig `duo/chat`", "write a rig alone: `duo`"),
    "a misspelt folder": ("check -i flete", "the inventory does not exist", "did you mean `fleet`?"),
    "a misspelt file": ("check fleet/dou.yaml", "does not exist", "did you mean `fleet/duo.yaml`?"),
    "a misspelt page": ("explain inventroy", "no page `inventroy`", "did you mean `inventory`?"),
    "a code with too few digits": ("explain LH10", "no page `LH10`", "did you mean `LH010`?"),
    "a key": ("explain kv", "no page `kv`", "it is a key: `herd explain inventory` describes it"),
    "a misspelt command": ("chek", "No such command 'chek'", "'check'"),
    "a misspelt option": ("check --fxi", "No such option '--fxi'", "'--fix'"),
}


@pytest.mark.parametrize("case", WORDS.values(), ids=WORDS)
def test_a_wrong_word_is_named_without_a_line(
    case: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fleet").mkdir()
    findings_of(RIGHT, tmp_path / "fleet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HERD_INVENTORY", "fleet")
    command, message, help_ = case
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code in (1, 2)
    assert message in done.output
    assert help_ in done.output
    assert ":1:1" not in done.output


def test_the_name_of_a_rig_is_its_file(tmp_path: Path) -> None:
    findings_of(RIGHT.replace("port: 8003", "prot: 8003"), tmp_path)
    done = CliRunner().invoke(main, ["check", "duo", "-i", str(tmp_path)])
    assert f"{tmp_path}/duo.yaml:64:5: error LH010" in done.stdout


@pytest.mark.parametrize(
    ("right", "old", "new"),
    [
        ("[--slot-save-path, /tmp]", '[--draft-min, "2"]  # kept', '[--spec-draft-n-min, "2"]  # kept'),
        ("{GGML_LTO: true}", "{LLAMA_NATIVE: true}  # kept", "{GGML_NATIVE: true}  # kept"),
    ],
)
def test_an_old_spelling_becomes_the_new_one(right: str, old: str, new: str, tmp_path: Path) -> None:
    findings_of(RIGHT.replace(right, old), tmp_path)
    done = CliRunner().invoke(main, ["check", "--fix", str(tmp_path / "duo.yaml")])
    assert (tmp_path / "duo.yaml").read_text(encoding="utf-8") == RIGHT.replace(right, new), done.output


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85"])
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("port: 8003", "prot: 8003"), ("host: duo.lan,", "host: duo.lan"), ("model: small\n", 'model: "small\n')],
)
def test_a_fix_is_in_its_line_whatever_ends_the_lines_above(right: str, wrong: str, end: str, tmp_path: Path) -> None:
    above = f"# pasted{end}#{end}# three lines to YAML\n"
    findings_of(above + RIGHT.replace(right, wrong), tmp_path)
    done = CliRunner().invoke(main, ["check", "--fix", str(tmp_path / "duo.yaml")])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    fixed = parse_yaml(tmp_path / "duo.yaml", (tmp_path / "duo.yaml").read_text(encoding="utf-8"))
    assert fixed.data == parse_yaml(tmp_path / "duo.yaml", RIGHT).data


@pytest.mark.parametrize(
    ("written", "value"),
    [("@ab#cd  # kept", "@ab#cd"), ("%d, %s  # kept", "%d, %s"), ("`x`  # kept", "`x`"), ("@a]b", "@a]b")],
)
def test_a_value_gets_its_quotes_around_the_whole_of_it(written: str, value: str, tmp_path: Path) -> None:
    file = tmp_path / "duo.yaml"
    file.write_text(f"rig: {written}\nhost: {{}}\n", encoding="utf-8")
    CliRunner().invoke(main, ["check", "--fix", str(file)])
    quoted = written.replace(value, f'"{value}"')
    assert file.read_text(encoding="utf-8").splitlines()[0] == f"rig: {quoted}"


@pytest.mark.parametrize(
    "text",
    [
        'rig: @a "b" c\n',
        "rig: @a: b\n",
        "* rig: duo\n",
        "rig:\n  * duo\n  * two\n",
        "%rig: duo\n",
        'host: {os: debian-13, ram: 64GB}"\n',
        "host: {os: debian-13}, ram: 64GB}\n",
        "host: {os: deb]ian-13, ram: 64GB}\n",
        "host: [os: debian-13, ram: 64GB}\n",
        f"rig: @{'a' * 80}: b\n",
    ],
)
def test_an_edit_that_may_be_wrong_is_left_to_the_user(text: str, tmp_path: Path) -> None:
    file = tmp_path / "duo.yaml"
    file.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(main, ["check", "--fix", str(file)])
    assert file.read_text(encoding="utf-8") == text
    assert "[--fix]" not in done.output


@pytest.mark.parametrize(
    ("name", "slip"),
    [("77", "77b"), ("77", '"77b"'), ("77", "77"), ("yes", "yesb"), ("null", "nullb"), ("0x1f", "0x1fz")],
)
def test_a_name_that_is_a_number_to_yaml_is_fixed_in_quotes(name: str, slip: str, tmp_path: Path) -> None:
    right = RIGHT.replace("  small: {", f'  "{name}": {{').replace("model: small\n", f'model: "{name}"\n')
    findings_of(right.replace(f'model: "{name}"', f"model: {slip}"), tmp_path)
    CliRunner().invoke(main, ["check", "--fix", str(tmp_path / "duo.yaml")])
    fixed = parse_yaml(tmp_path / "duo.yaml", (tmp_path / "duo.yaml").read_text(encoding="utf-8"))
    assert fixed.data["instances"]["chat"]["model"] == name


@pytest.mark.parametrize("value", ["'{mtp:}2'", "'{mtp: *x}'", "'mtp: [1'", "'mtp=\"x'", "'mtp=%a'"])
def test_a_text_in_place_of_a_mapping_is_an_error(value: str, tmp_path: Path) -> None:
    found = findings_of(RIGHT.replace(END, f"{END}    draft: {value}\n", 1), tmp_path)
    assert "LH012" in {each.code for each in found}
