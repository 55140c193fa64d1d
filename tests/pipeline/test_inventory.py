"""Everything that can be wrong with an inventory: its code, and exactly where it stands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from box import tiny_moe
from llamaherd.diagnostics.findings import Finding, InventoryError, Place, nearest
from llamaherd.pipeline.fleet_files import choose_rigs, examine_fleet, load_fleet
from tests.support.ours import plans
from tests.support.rigs import DIGEST, SHA

GOOD = f"""\
rig: box
connect: {{host: box.lan}}
host: {{os: ubuntu-24.04, cpu: {{cores: 2}}, ram: 64GB}}
gpus:
  cuda: "13.0"
  cards:
    ti: {{model: RTX 3090 Ti, uuid: GPU-1}}
engines:
  main:
    kind: llama.cpp
    source: {{archive: llama.tar.gz, sha256: {SHA}}}
  ik:
    kind: ik_llama.cpp
    source: {{git: https://git.lan/ik, commit: {"cd" * 20}}}
  image:
    kind: llama.cpp
    image: ghcr.io/ggml-org/llama.cpp@sha256:{DIGEST}
models:
  gemma:
    file: gemma.gguf
    sha256: {SHA}
instances:
  chat:
    engine: main
    model: gemma
    on: [ti]
    context: 8192
    port: 8080
  code:
    engine: ik
    model: gemma
    context: 4096
    port: 8081
    threads: 1
    api_key: {{file: key}}
  pulled:
    engine: image
    model: gemma
    context: 4096
    port: 8082
    threads: 1
    backend: compose
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real model, with a head that drafts."""
    file = tmp_path_factory.mktemp("model") / "tiny.gguf"
    tiny_moe.write(file)
    return file


@pytest.fixture
def folder(tmp_path: Path, model: Path) -> Path:
    for name in ("llama.tar.gz", "key"):
        (tmp_path / name).touch()
    (tmp_path / "gemma.gguf").hardlink_to(model)
    return tmp_path


def findings_of(source: Path, *, deploying: bool = True) -> list[Finding]:
    """What is wrong, after checking that loading it says the same."""
    findings = list(examine_fleet(source, deploying=deploying)[1])
    if any(finding.severity == "error" for finding in findings):
        with pytest.raises(InventoryError) as caught:
            load_fleet(source, deploying=deploying)
        assert list(caught.value.findings) == findings
    return findings


def where(text: str, mark: str) -> tuple[int, int]:
    """Line and column at which `mark` first stands in `text`."""
    before = text[: text.index(mark)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def test_the_good_one_is_good(folder: Path) -> None:
    (folder / "box.yaml").write_text(GOOD)
    assert findings_of(folder / "box.yaml") == []
    fleet = load_fleet(folder, deploying=True)
    assert list(fleet.rigs) == ["box"]
    assert fleet.rigs["box"].models["gemma"].file == folder / "gemma.gguf"


# What is replaced in GOOD, by what; the code of the one finding, the text that it points at, and words of it.
WRONG: dict[str, tuple[str, str, str, str, str]] = {
    "unknown key, a typo": (
        "    port: 8081",
        "    prot: 1\n    port: 8081",
        "LH010",
        "prot: 1",
        "did you mean `port`?",
    ),
    "unknown key, far off": ("ram: 64GB", "ram: 64GB, colour: red", "LH010", "colour", "known names: cpu, os, ram"),
    "unknown key at the top": ("models:\n", "modles: {}\nmodels:\n", "LH010", "modles", "did you mean `models`?"),
    "unknown key of a card": ("uuid: GPU-1", "uuid: GPU-1, uid: 1", "LH010", "uid: 1", "did you mean `uuid`?"),
    "unknown key of a source": (
        "commit: cd",
        "comit: a, commit: cd",
        "LH010",
        "comit: a",
        "did you mean `commit`?",
    ),
    "missing key at the top": ("connect: {host: box.lan}\n", "", "LH011", "rig", "`connect` is missing"),
    "missing key": (
        "    context: 8192\n",
        "",
        "LH011",
        "engine: main\n    model",
        "`instances.chat.context` is missing",
    ),
    "missing key in one line": ("host: box.lan", "user: tom", "LH011", "{user", "`connect.host` is missing"),
    "short sha256": (SHA, SHA[1:], "LH012", SHA[1:], "a sha256 has 64 hexadecimal digits"),
    "branch for a commit": ("cd" * 20, "main", "LH012", "main}", "give all 40 hexadecimal digits of the commit"),
    "short commit": ("cd" * 20, "cdcdcdc", "LH012", "cdcdcdc}", "give all 40 hexadecimal digits of the commit"),
    "name of a rig": ("rig: box", "rig: The Box", "LH012", "The Box", "did you mean `rig: the-box`?"),
    "name of an instance": ("  code:\n", "  Code:\n", "LH012", "Code:", "did you mean `code`, wherever it is named?"),
    "name of a card": ("  ti: {", "  TI: {", "LH012", "TI: {", "did you mean `ti`, wherever it is named?"),
    "context too small": ("context: 4096", "context: 17", "LH012", "17\n", "at least 256"),
    "context in words": ("context: 4096", "context: long", "LH012", "long", "must be a whole number"),
    "cards as a word": ("context: 4096", "context: 4096\n    on: ti", "LH012", "ti\n    ", "did you mean `on: [ti]`?"),
    "a host as a word": ("host: {", "host: debian-13 #", "LH012", "debian-13", "must be a mapping"),
    "a switch in words": ("context: 4096", "context: 4096\n    mlock: please", "LH012", "please", "true or false"),
    "a number for a name": (
        "context: 4096",
        "context: 4096\n    cpus: 4",
        "LH012",
        "4\n",
        'did you mean `cpus: "4"`?',
    ),
    "port too large": ("port: 8081", "port: 80810", "LH012", "80810", "at most 65535"),
    "cache type": ("context: 4096", "context: 4096\n    kv: q9_0", "LH012", "q9_0", "q8_0"),
    "operating system": ("ubuntu-24.04", "windows-11", "LH012", "windows-11", "debian-13"),
    "memory": ("ram: 64GB", "ram: lots", "LH012", "lots", "write it like `ram: 64GB`"),
    "memory as a list": ("ram: 64GB", "ram: [4GB]", "LH012", "[4GB]", "did you mean `ram: 4GB`?"),
    "memory beyond numbers": ("ram: 64GB", f"ram: {'9' * 400}GB", "LH012", "999", "write it like `ram: 64GB`"),
    "unknown card": ("RTX 3090 Ti", "Voodoo 2", "LH012", "Voodoo", "such as `architecture: "),
    "no source": (
        f"source: {{archive: llama.tar.gz, sha256: {SHA}}}",
        "options: {}",
        "LH012",
        "kind: l",
        "add `ref: b11434`, or an `image`",
    ),
    "home of nobody": ("box.lan", "box.lan, key: ~nobody-of-that-name/k", "LH012", "~nobody", "home"),
    "engine of nobody": ("engine: ik", "engine: mian", "LH020", "mian", "did you mean `main`?"),
    "model of nobody": ("model: gemma\n    context", "model: gema\n    context", "LH020", "gema\n", "`gemma`?"),
    "model of nobody to be tried": (
        "context: 8192",
        "context: 8192\n    tune: {models: [gema], quality: {kld: 0.02}}",
        "LH020",
        "gema]",
        "`gemma`?",
    ),
    "other weights that nobody judges": (
        "context: 8192",
        "context: 8192\n    tune: {models: [gemma]}",
        "LH012",
        "[gemma]",
        "add `quality: {kld: 0.02}`",
    ),
    "card of nobody": ("on: [ti]", "on: [ti, it]", "LH020", "it]", "known names: ti"),
    "one port twice": (
        "port: 8081",
        "port: 8080 # again",
        "LH021",
        "8080 # again",
        "already the port of instance `chat`",
    ),
    "open to all": ("    on: [ti]", "    listen: 0.0.0.0", "LH022", "0.0.0.0", "no API key"),
    "ik drafts for one": (
        "port: 8081",
        "port: 8081\n    draft: {mtp: 2}\n    parallel: 2",
        "LH023",
        "2\n    threads",
        "ik_llama.cpp drops MTP",
    ),
    "no archive": ("llama.tar.gz", "lama.tar.gz", "LH024", "lama.tar.gz", "there is no file"),
    "no model": ("file: gemma.gguf", "file: gema.gguf", "LH024", "gema.gguf", "there is no file"),
    "no API key": ("{file: key}", "{file: kye}", "LH024", "kye}", "there is no file"),
    "a name too long for a file": ("{file: key}", f"{{file: {'k' * 300}}}", "LH024", "kkk", "there is no file"),
    "image under systemd": ("engine: main\n", "engine: image\n", "LH025", "image\n    model", "add `backend: compose`"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong(folder: Path, case: str) -> None:
    old, new, code, mark, words = WRONG[case]
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    file = folder / "box.yaml"
    file.write_text(text)
    # What is left over may be used by nothing then, or want other threads: those are warnings, and another matter.
    (finding,) = [each for each in findings_of(file) if each.severity == "error"]
    assert (finding.code, finding.place) == (code, Place(file, *where(text, mark)))
    assert words in f"{finding.message}; {finding.help}"
    assert str(finding).startswith(f"{file}:{finding.place.line}:{finding.place.column}: error {code}: ")


def test_who_only_plans_can_do_without_the_files(folder: Path) -> None:
    (folder / "gemma.gguf").unlink()
    (folder / "box.yaml").write_text(GOOD)
    (finding,) = findings_of(folder, deploying=False)
    assert (finding.code, finding.severity) == ("LH024", "warning")
    assert "box" in load_fleet(folder).rigs


@pytest.mark.parametrize(("port", "free"), [(8080, 8081), (65534, 65535), (65535, 8000)])
def test_a_suggested_port_is_valid_and_free(folder: Path, port: int, free: int) -> None:
    (folder / "box.yaml").write_text(GOOD.replace("port: 8080", f"port: {port}").replace("port: 8081", f"port: {port}"))
    (finding,) = (each for each in findings_of(folder) if each.code == "LH021")
    assert finding.help == f"write another one, such as `port: {free}`"


@pytest.mark.parametrize("key", ["key", "known_hosts"])
def test_what_only_reaches_one_host_keeps_no_other_from_being_deployed(folder: Path, key: str) -> None:
    (folder / "box.yaml").write_text(GOOD.replace("box.lan", f"box.lan, {key}: id", 1))
    (finding,) = (each for each in findings_of(folder) if each.code == "LH024")
    assert (finding.severity, finding.message) == ("warning", f"there is no file {folder / 'id'}")


def test_a_system_without_compose_is_refused_before_it_is_planned(folder: Path) -> None:
    text = GOOD.replace("ubuntu-24.04", "debian-12").replace("    port: 8081", "    port: 8081\n    backend: compose")
    (folder / "box.yaml").write_text(text)
    with pytest.raises(InventoryError):
        plans(folder)


def test_everything_wrong_in_every_file_is_said_at_once_and_in_order(folder: Path) -> None:
    (folder / "a.yaml").write_text(GOOD.replace("port: 8081", "port: 8080\n    prot: 1"))
    (folder / "b.yaml").write_text("rig: [\n")
    (folder / "c.yml").write_text(GOOD.replace("rig: box", "rig: c").replace("model: gemma", "model: gone"))
    (folder / "d.yaml").write_text("- a list\n")
    (folder / "e.yaml").write_text(GOOD.replace(SHA, "short"))
    (folder / "notes.txt").write_text("not YAML: [")
    findings = findings_of(folder)
    assert [(finding.place.file.name, finding.code) for finding in findings] == [
        ("a.yaml", "LH010"),
        ("b.yaml", "LH001"),
        ("c.yml", "LH020"),
        ("c.yml", "LH020"),
        ("c.yml", "LH020"),
        ("d.yaml", "LH002"),
        ("e.yaml", "LH012"),
        ("e.yaml", "LH012"),
    ]
    assert [finding.place for finding in findings] == sorted(finding.place for finding in findings)


def test_two_rigs_of_one_name(folder: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (folder / name).write_text(GOOD)
    (finding,) = findings_of(folder)
    assert (finding.code, finding.place) == ("LH006", Place(folder / "b.yaml", 1, 6))


@pytest.mark.parametrize(
    ("name", "meant"), [("bxo.yaml", "box.yaml"), ("box", "box.yaml"), ("rgis", "rigs"), ("notes", None)]
)
def test_a_misspelt_inventory_is_suggested(tmp_path: Path, name: str, meant: str | None) -> None:
    (tmp_path / "box.yaml").write_text(GOOD)
    (tmp_path / "notes.txt").touch()
    (tmp_path / "rigs").mkdir()
    (finding,) = findings_of(tmp_path / name)
    begin = "name a rig's file or a folder of them with -i or HERD_INVENTORY, or create a folder with `herd init DIR`"
    assert finding.help == (f"did you mean `{tmp_path / meant}`?" if meant else begin)


@pytest.mark.parametrize(
    ("name", "words"), [("", "the inventory holds no rig"), ("gone", "the inventory does not exist")]
)
def test_nothing_there(tmp_path: Path, name: str, words: str) -> None:
    (finding,) = findings_of(tmp_path / name)
    assert (finding.code, finding.place) == ("LH005", Place(tmp_path / name))
    assert words in finding.message


COMPOSE = "services: {chat: {image: 'ghcr.io/ggml-org/llama.cpp:server'}}\n"
SWAP = "models:\n  small:\n    cmd: llama-server --port ${PORT} -m small.gguf\n"


def test_files_of_other_programs_are_no_rigs(folder: Path) -> None:
    (folder / "docker-compose.yml").write_text(f"# a server\n{COMPOSE}")
    (folder / "config.yaml").write_text(SWAP)
    (finding,) = findings_of(folder)
    assert (finding.code, finding.message) == ("LH005", "the inventory holds no rig")
    (folder / "a.yaml").write_text(GOOD)
    assert list(load_fleet(folder).rigs) == ["box"]
    # A rig with a wrong key stays a rig.
    (folder / "a.yaml").write_text(GOOD + COMPOSE)
    assert [finding.code for finding in findings_of(folder)] == ["LH010"]


def test_choosing_rigs(folder: Path) -> None:
    (folder / "a.yaml").write_text(GOOD)
    (folder / "b.yaml").write_text(GOOD.replace("rig: box", "rig: duo"))
    fleet = load_fleet(folder)
    assert list(choose_rigs(fleet, [], folder).rigs) == ["box", "duo"]
    assert list(choose_rigs(fleet, ["duo"], folder).rigs) == ["duo"]
    with pytest.raises(InventoryError) as caught:
        choose_rigs(fleet, ["bx", "duo", "zebra"], folder)
    assert [(finding.code, finding.help) for finding in caught.value.findings] == [
        ("LH007", "did you mean `box`?"),
        ("LH007", "known names: box, duo"),
    ]


def test_a_hub_model_without_a_lock_is_a_finding(folder: Path) -> None:
    hub = GOOD.replace(f"    file: gemma.gguf\n    sha256: {SHA}", "    hf: unsloth/gemma")
    (folder / "box.yaml").write_text(hub)
    with pytest.raises(InventoryError, match=r"LH031.*rig `box`: model `gemma`"):
        plans(folder)


def test_findings_as_json(folder: Path) -> None:
    (folder / "box.yaml").write_text("rig: *x\n")
    (finding,) = findings_of(folder)
    assert finding.as_json() == {
        "code": "LH001",
        "severity": "error",
        "file": str(folder / "box.yaml"),
        "line": 1,
        "column": 6,
        "message": finding.message,
        "help": finding.help,
        "edits": [],
    }


@pytest.mark.parametrize(
    ("word", "known", "help_"),
    [
        ("prot", ["port", "model"], "did you mean `port`?"),
        ("xyz", ["port", "model"], "known names: model, port"),
        ("xyz", [], "there is none to choose from yet"),
    ],
)
def test_the_nearest_right_name(word: str, known: list[str], help_: str) -> None:
    assert nearest(word, known) == help_


VALUES = st.sampled_from(
    [
        "[]",
        "{}",
        "[1]",
        "{a: 1}",
        "~",
        "true",
        "1",
        "-1",
        "1.5",
        ".inf",
        "2026-01-01",
        '""',
        "'~x/y'",
        '"\\0"',
        "!!binary x",
    ]
)
WORDS = sorted({word for word in GOOD.replace(",", " ").replace("{", " ").replace("}", " ").split() if len(word) < 90})


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=150, deadline=None
)
@given(st.sampled_from(WORDS), VALUES | st.text(max_size=5), st.integers(1, 3))
def test_whatever_stands_there_it_is_a_fleet_or_findings(folder: Path, word: str, value: str, times: int) -> None:
    file = folder / "box.yaml"
    file.write_bytes(GOOD.replace(word, value, times).encode())
    fleet, findings = examine_fleet(file)
    assert fleet.rigs or findings
    assert all(os.fspath(file) in str(finding) for finding in findings)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=100, deadline=None
)
@given(st.binary(max_size=40))
def test_bytes_are_a_fleet_or_findings(folder: Path, data: bytes) -> None:
    file = folder / "box.yaml"
    file.write_bytes(data)
    with pytest.raises(InventoryError):
        load_fleet(file)


def test_one_machine_is_one_rig(tmp_path: Path) -> None:
    for name in ("one", "two"):
        rig = f"rig: {name}\nconnect: local\nhost: {{os: debian-13, cpu: {{cores: 2}}, ram: 64GB}}\n"
        (tmp_path / f"{name}.yaml").write_text(rig + "engines: {}\nmodels: {}\ninstances: {}\n")
    (finding,) = examine_fleet(tmp_path)[1]
    assert (finding.code, finding.place.file.name, finding.place.line) == ("LH008", "two.yaml", 2)
