"""Mistakes with units, addresses, paths, names, options and files: the sentence, the place and the fix.

Each is a mistake of another kind than those in test_user_mistakes.py, tried with the real command.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner, Result

from llamaherd.cli.herd import GROUPS, OTHER_TOOLS, main, refuse_other_dashes
from llamaherd.pipeline.fleet_files import examine_fleet

RIGHT = (Path(__file__).parents[1] / "data" / "duo.yaml").read_text(encoding="utf-8")
CONNECT = "{host: duo.lan, user: tom, port: 22}"
PORT = "port: 8003"
SMALL = '{hf: bartowski/google_gemma-3-4b-it-GGUF, files: "*Q4_K_M.gguf", revision: main}'


class Case(NamedTuple):
    """A part of a right rig, what a user wrote in its place, and what the finding contains."""

    right: str
    wrong: str
    message: str
    marked: str
    help: str


UNITS = {
    "the unit in words": Case("ram: 192GB", "ram: 192 gigabytes", "is no size", "192 gi", "mean `ram: 192GB`"),
    "kilowatts": Case("limit: 320W", "limit: 0.32kW", "is no number of watts", "0.32kW", "mean `power_limit: 320W`"),
    "gigahertz": Case("max: 1800MHz", "max: 1.8GHz", "is no number of megahertz", "1.8GHz", "mean `max: 1800MHz`"),
    "a part of one": Case("fans: 70%", "fans: 0.7", "is no number of percent", "0.7", "did you mean `fans: 70%`"),
    "a part of the experts": Case(
        "experts_on_cpu: 75%", "experts_on_cpu: 0.75", "invalid value `0.75`", "0.75", "mean `experts_on_cpu: 75%`"
    ),
    "thousands": Case("context: 8192", "context: 8k", "must be a whole number", "8k", "mean `context: 8192`"),
    "a dot in a number": Case("context: 8192", "context: 8.192", "a whole number", "8.192", "mean `context: 8192`"),
    "too many digits": Case(
        "context: 8192", "context: 99999999999999999999", "at most 2147483647", "9999", "like `context: 32768`"
    ),
    "an octal number": Case("context: 8192", "context: 0o20000", "a whole number", "0o2", "mean `context: 8192`"),
    "minutes": Case("timeout: 600", "timeout: 10m", "must be a whole number", "10m", "mean `load_timeout: 600`"),
    "a speed in a word": Case("decode: 35 t/s", "decode: fast", "must be a number", "fast", "like `decode: 35 t/s`"),
    "no unit": Case("limit: 8MB/s", "limit: 8", "`8` has no unit", "8,", "did you mean `limit: 8MB/s`"),
    "hours of the clock": Case(
        '"07:00-23:00"', '"7am-11pm"', "is no part of a day", '"7am', "did you mean `hours: 07:00-23:00`"
    ),
    "one hour": Case('"07:00-23:00"', "22:00", "is no part of a day", "22:00", 'like `hours: "07:00-23:00"`'),
}
ADDRESSES = {
    "ports of Docker": Case(PORT, 'port: "8003:8080"', "must be a whole number", '"8003:', "mean `port: 8003`"),
    "ports of Docker, unquoted": Case(PORT, "port: 8003:8080", "must be a whole number", "8003:", "mean `port: 8003`"),
    "an address and ports of Docker": Case(
        PORT, "port: 0.0.0.0:8003:8080", "must be a whole number", "0.0.0.0:", "mean `port: 8003`"
    ),
    "a range of ports": Case(PORT, "port: 8003-8010", "must be a whole number", "8003-", "mean `port: 8003`"),
    "a port that does not exist": Case(PORT, "port: 80033", "at most 65535", "80033", "like `port: 8080`"),
    "a URL as a port": Case(PORT, "port: http://duo.lan:8003/v1", "a whole number", "http", "mean `port: 8003`"),
    "a port to listen on": Case("0.0.0.0", "0.0.0.0:8002", "is no IP address", "0.0.0.0:", "mean `listen: 0.0.0.0`"),
    "an interface": Case("0.0.0.0", "eth0", "`eth0` is no IP address", "eth0", "`listen: 0.0.0.0` for every network"),
    "yes to listen": Case("0.0.0.0", "yes", "`yes` is no IP address", "yes", "`listen: 127.0.0.1` for this host alone"),
    "a user in the host": Case(
        CONNECT, "{host: tom@duo.lan}", "is more than a host", "tom@", "write `host: duo.lan, user: tom`"
    ),
    "a port in the host": Case(
        CONNECT, '{host: "duo.lan:2222"}', "is more than a host", '"duo', "write `host: duo.lan, port: 2222`"
    ),
    "a URL as the host": Case("host: duo.lan", "host: ssh://duo.lan", "more than a host", "ssh:", "`host: duo.lan`"),
    "an address that does not exist": Case(
        "host: duo.lan", "host: 192.168.1.300", "is not an IP address", "192", "four numbers up to 255"
    ),
    "a network": Case(
        "host: duo.lan", "host: 192.168.1.0/24", "is a network", "192", "the address of the host in it, such as"
    ),
    "a full name": Case("user: tom", "user: Tom Smith", "invalid value `Tom Smith`", "Tom Smith", "like `user: tom`"),
}
NAMES = {
    "yes for a choice": Case("backend: systemd", "backend: yes", "invalid value `yes`", "yes", "compose, systemd"),
    "yes for all": Case("gpu_layers: all", "gpu_layers: yes", "invalid value `yes`", "yes", "mean `gpu_layers: all`"),
    "a whole driver": Case(
        "branch: 580", "branch: 580.95.05", "invalid value", "580.95", '`branch: "580", version: "580.95.05"`'
    ),
    "a UUID without its beginning": Case(
        "uuid: GPU-7a0e4a53", "uuid: 7a0e4a53", "invalid value `7a0e4a53", "7a0e", "mean `uuid: GPU-7a0e4a53"
    ),
    "a UUID twice": Case(
        "GPU-7a0e4a53-0d9b-4a54-8d0a-52c1c3a1b7ee",
        "GPU-1f0a7c2b-5c1d-4e7a-9b1f-4c0e9a553f10",
        "GPUs `ti` and `std` have the same `uuid`",
        "GPU-1f0a",
        "`nvidia-smi --query-gpu=",
    ),
    "a GPU by its number": Case("on: [std]", "on: [0]", "invalid value `0`", "0", "known names: std, ti"),
    "a GPU by CUDA's name": Case("on: [std]", "on: [CUDA0]", "invalid value `CUDA0`", "CUDA0", "known names: std, ti"),
    "a URL of the hub": Case(
        "hf: unsloth/Qwen3.6",
        "hf: https://huggingface.co/unsloth/Qwen3.6",
        "invalid value",
        "http",
        "mean `hf: unsloth/",
    ),
    "a model without its owner": Case(
        "hf: unsloth/Qwen3.6-35B", "hf: Qwen3.6-35B", "invalid value `Qwen3.6", "Qwen3.6", "write it like `hf: unsloth/"
    ),
    "a name with a blank": Case("  chat:\n", "  my chat:\n", "invalid name `my chat`", "my chat", "mean `my-chat`"),
    "a name of the system": Case(
        "os: debian-13", "os: Ubuntu 24.04 LTS", "invalid value `Ubuntu", "Ubuntu", "mean `os: ubuntu-24.04`"
    ),
    "a name of the engine": Case("kind: llama.cpp", "kind: llamacpp", "invalid value", "llamacpp", "`kind: llama.cpp`"),
    "a build without its letter": Case("ref: b11434", "ref: 11434", "must be text", "11434", "mean `ref: b11434`"),
    "a wheel's name of CUDA": Case('"13.0"', "cu130", "invalid value `cu130`", "cu130", 'mean `cuda: "13.0"`'),
    "a word for the default": Case("threads: 2", "threads: auto", "a whole number", "auto", "leave `threads` out"),
    "all processors": Case("cpus: 0-5", "cpus: all", "invalid value `all`", "all", "leave `cpus` out"),
    "a switch in quotes": Case("flash_attention: on", "flash_attention: 'true'", "invalid value", "'true'", "mean `fl"),
    "cores in words": Case("{cores: 12, performance: 8}", "12 cores", "a mapping", "12 cores", "`cpu: {cores: 12}`"),
    "a file in place of a model": Case(
        "model: small", "model: /srv/my Gemma.gguf", "invalid value", "/srv", "`my-gemma: {file: /srv/my Gemma.gguf}`"
    ),
    "a model of the hub": Case(
        "model: small",
        "model: a/B-GGUF:Q8_0",
        "invalid value",
        "a/B",
        "under `models`, as in `b: {hf: a/B-GGUF, quant: Q8_0}`",
    ),
    "a colon behind a value": Case(
        "engine: main\n    model: small",
        "engine: main:\n    model: small",
        "a colon too many",
        ":",
        "write `engine: main`",
    ),
    "null": Case("model: small", "model: null", "`instances.chat.model` has no value", "null", "122b, 35b, small"),
    "a block in itself": Case(
        "  chat:\n", "  chat: &c\n    <<: *c\n", "it contains itself", "&c", "write out what the `*` stands for"
    ),
}
PATHS = {
    "a file of Windows": Case(
        SMALL, "{file: 'C:\\models\\a.gguf'}", "is a path of Windows", "'C:", "mean `file: /mnt/c/models/a.gguf`"
    ),
    "a key of Windows": Case(
        CONNECT, "{host: duo.lan, key: 'C:/Users/tom/id'}", "is a path of Windows", "'C:", "key: /mnt/c/Users/tom/id"
    ),
    "a folder of Windows": Case("/srv/models\n", "D:\\models\n", "invalid value", "D:", "mean `path: /mnt/d/models`"),
    "a relative folder": Case("path: /srv/models", "path: models", "invalid value `models`", "models", "an absolute"),
    "a model in the home folder": Case(
        SMALL, "{file: ~/no/such.gguf}", "/no/such.gguf", "~/no", "check the spelling, or fetch it first"
    ),
    "arguments in one": Case(
        "[--slot-save-path, /tmp]", "[--slot-save-path /tmp]", "is one argument", "--slot", "arguments of their own"
    ),
    "a dash of a web page": Case(
        "[--slot-save", "[\u2014slot-save", "a dash that is no hyphen", "\u2014slot", "write `--slot-save-path`"
    ),
    "one dash of two": Case(
        "[--slot-save", "[-slot-save", "`-slot-save-path` is not known", "-slot", "mean `--slot-save-path`"
    ),
    "variables in a list": Case(
        '{GGML_CUDA_P2P: "1"}', "[GGML_CUDA_P2P=1]", "must be a mapping", "[GGML", "{GGML_CUDA_P2P: '1'}"
    ),
    "a key itself": Case("{file: keys/coder}", "sk-abcdef123456", "must be a mapping", "sk-", "{file: keys/coder}"),
    "dots in a range": Case("cpus: 0-5", "cpus: 0..5", "invalid value `0..5`", "0..5", "mean `cpus: 0-5`"),
    "a range backwards": Case("cpus: 0-5", "cpus: 5-0", "runs backwards", "5-0", "as in `0-5`"),
    "a range of a web page": Case("cpus: 0-5", "cpus: 0\u20135", "invalid value", "0\u20135", "mean `cpus: 0-5`"),
}
CASES = UNITS | ADDRESSES | NAMES | PATHS


def fleet(folder: Path, text: str = RIGHT) -> Path:
    """Write a fleet of one rig."""
    (folder / "keys").mkdir()
    (folder / "keys" / "coder").write_text("5b1f09c7d2e84a36\n", encoding="utf-8")
    (folder / "duo.yaml").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_sentence_place_and_fix_of_a_value(case: Case, tmp_path: Path) -> None:
    assert RIGHT.count(case.right) >= 1
    text = RIGHT.replace(case.right, case.wrong, 1)
    found = next(each for each in examine_fleet(fleet(tmp_path, text))[1] if each.severity != "note")
    assert case.message in found.message
    assert case.help in found.help
    assert text.split("\n")[found.place.line - 1][found.place.column - 1 :].startswith(case.marked)


WORDS = {
    "an option of Ansible": ("up --check duo", "No such option '--check'", "`herd plan` shows the changes"),
    "hosts of Ansible": ("up --host duo", "No such option '--host'", "as in `herd up attic`"),
    "one dash in place of two": ("up -limit duo", "No such option '-l'", "as in `herd up attic`"),
    "a long dash": ("up \u2014yes", "`\u2014yes` begins with a dash that is no hyphen", "write `--yes`"),
    "a short dash": ("up \u2013yes duo", "`\u2013yes` begins with a dash that is no hyphen", "write `--yes`"),
    "two long dashes and a value": (
        "up \u2014\u2014only=chat",
        "`\u2014\u2014only=chat` begins with a dash that is no hyphen",
        "write `--only=chat`",
    ),
    "a number in a word": ("up --waves two", "'--waves': 'two' is not a whole number", ""),
    "hours for seconds": ("up --lock-wait 1h", "'--lock-wait': '1h' is not a whole number", "`--lock-wait 600`"),
    "a list with commas": ("up --canary duo,six", "--canary: there is no rig `duo,six`", "known names: duo"),
    "all": ("up all", "there is no rig `all`", "leave the name out"),
    "an instance to apply": (
        "up duo/chat",
        "there is no rig `duo/chat`",
        "`duo`; `herd plan` and `herd up` have `--only",
    ),
    "a rig and an instance": ("up duo chat", "there is no rig `chat`", "`chat` is an instance: write its rig, `duo`"),
    "a pattern of rigs": ("up 'du*'", "there is no rig `du*`", "did you mean `duo`?"),
    "a command of Terraform": ("apply", "No such command 'apply'", "run `herd up`"),
    "a command of Docker": ("ps", "No such command 'ps'", "run `herd status`"),
    "a command to remove": ("remove duo/chat", "No such command 'remove'", "remove it from the inventory"),
    "the version": ("version", "No such command 'version'", "run `herd --version`"),
    "a letter for the version": ("-V", "No such option '-V'", "run `herd --version`"),
    "the help": ("help up", "No such command 'help'", "as in `herd up --help`"),
    "an option too early": ("--verbose up", "No such option '--verbose'", "as in `herd up --verbose`"),
    "a rig with several servers": ("chat duo", "rig `duo` has several servers", "name one of duo/worker, "),
    "a colon in place of a slash": ("chat duo:chat", "there is no instance `duo:chat`", "did you mean `duo/chat`?"),
    "the order of words": ("logs chat duo", "Got unexpected extra argument (duo)", "as one word: `attic/chat`"),
    "an option of Docker": ("logs --tail 50 duo/chat", "No such option '--tail'", "write `--lines N`, or `-n N`"),
    "a time without a unit": ("logs duo/chat --since 5", "`5` is no time", "write it like 45m, 90s or 2h"),
    "an hour too late": ("pause duo --until 25:00", "`25:00` does not exist", "write it like 22:00"),
    "an hour of the clock": ("pause duo --until 10pm", "`10pm` is no time", "write it like 22:00"),
    "a pause without an end": ("pause duo", "give the end of the pause", "--until 22:00, or --for 3h"),
    "a pause with two ends": ("pause duo --for 3h --until 22:00", "--until and --for both", "leave out one of them"),
    "the length of a pause": ("pause duo/chat 1m", "Got unexpected extra argument (1m)", "write `--for 1m`"),
    "the end of a pause": ("pause duo 22:00", "Got unexpected extra argument (22:00)", "write `--until 22:00`"),
    "a URL to measure": ("bench http://duo.lan:8003", "a server by its URL", "write --url http://duo.lan:8003"),
    "a duration without a unit": ("bench duo/chat --time 5", "'5' is not a time", "such as 90s or 3m"),
    "a model that does not exist": ("fit no.gguf", "there is no file no.gguf", "check the path"),
    "a GPU by its name": ("fit no.gguf --gpu 3090", "No such option '--gpu'", "as `--vram 24G`"),
    "an engine to lock": ("lock duo main", "Got unexpected extra arguments (duo main)", "`herd lock --upgrade NAME`"),
    "a release by a word": ("rollback duo --to yesterday", "'yesterday' is not a whole number", "`herd history`"),
    "a picture of another format": ("report --card duo -o card.jpg", "card.jpg is no picture's name", ".png or .svg"),
    "a code with a dash": ("explain LH-010", "there is no page `LH-010`", "did you mean `LH010`?"),
    "a port of a new host": (
        "init --from tom@host:22",
        "'host:22' cannot be the host",
        "write the port as `--port 22`",
    ),
    "an instance to check": ("check duo/chat", "`duo/chat` is no file", "write `herd check duo`"),
    "a script that does not exist": ("check no.sh", "no.sh: error LH005: there is no such file", "check the path"),
    "a pattern without files": ("check *.yml", "no file has a name like that", "name the folder, `.`"),
    "a file for the plan": ("plan -o plan.json", "No such option '-o'", "write `--save FILE`"),
}


def invoked(folder: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> Result:
    """Run a command in a folder. A traceback fails the test."""
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(main, shlex.split(command))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return done


@pytest.mark.parametrize("case", WORDS.values(), ids=WORDS)
def test_sentence_and_fix_of_a_command_line(
    case: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, message, help_ = case
    done = invoked(fleet(tmp_path), monkeypatch, command)
    assert done.exit_code in (1, 2)
    assert message in done.output
    assert help_ in done.output
    assert ":1:1" not in done.output


def test_a_group_without_a_command_prints_its_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = invoked(tmp_path, monkeypatch, "monitoring")
    assert done.exit_code == 2
    assert "Error" not in done.output
    assert "\n  grafana  Write dashboards for Grafana.\n" in done.output


def test_words_of_other_tools_name_commands_that_exist() -> None:
    ours = {name for group in GROUPS.values() for name in group}
    assert ours.isdisjoint(OTHER_TOOLS)
    for help_ in OTHER_TOOLS.values():
        named = [words.split()[1] for words in help_.split("`")[1::2] if words.startswith("herd ")]
        assert set(named) <= ours | {"--version"}


def test_a_prompt_may_begin_with_any_dash() -> None:
    """Only what would be an option of the command with hyphens is refused."""
    context = click.Context(main)
    command = main.get_command(context, "chat")
    assert command
    refuse_other_dashes(context, command, ["duo/chat", "\u2014hello", "\u2013 no", "--", "\u2014system"])
    with pytest.raises(click.UsageError, match="write `--system`"):
        refuse_other_dashes(context, command, ["\u2014system"])


def _lock_in_a_merge(folder: Path) -> None:
    lines = ("version: 2", "engines:", "<<<<<<< HEAD", "- {ref: a}", "=======", "- {ref: b}", ">>>>>>> x")
    (folder / "herd.lock").write_text("".join(f"{line}\n" for line in lines))


def _key_is_a_folder(folder: Path) -> None:
    (folder / "keys" / "coder").unlink()
    (folder / "keys" / "coder").mkdir()


def _empty_model(folder: Path) -> None:
    (folder / "a.gguf").touch()
    (folder / "duo.yaml").write_text(RIGHT.replace(SMALL, "{file: a.gguf}"))


def _nothing(folder: Path) -> None:
    for file in (folder / "duo.yaml", folder / "keys" / "coder"):
        file.unlink()


FOLDERS: dict[str, tuple[Callable[[Path], object], str, str, str]] = {
    "two rigs of one host": (
        lambda folder: (folder / "six.yaml").write_text(RIGHT.replace("rig: duo", "rig: six")),
        "check",
        "six.yaml:2:10: warning LH008: rigs `duo` and `six` have the same host, `duo.lan`",
        "correct `connect`",
    ),
    "a rig twice": (
        lambda folder: (folder / "six.yaml").write_text(RIGHT),
        "check",
        "six.yaml:1:6: error LH006: there are two rigs named `duo`",
        "rename one of them",
    ),
    "Windows' line ends": (
        lambda folder: (folder / "duo.yaml").write_bytes(
            RIGHT.replace("port: 8003", "prot: 8003").replace("\n", "\r\n").encode()
        ),
        "check",
        "duo.yaml:64:5: error LH010: there is no key `prot` here",
        "did you mean `port`?",
    ),
    "a rig in defaults.yaml": (
        lambda folder: (folder / "defaults.yaml").write_text("rig: duo\n"),
        "check",
        "defaults.yaml:1:1: error LH009: `rig` identifies one rig, but defaults.yaml is for all rigs",
        "move it to the rig's own file",
    ),
    "a list in fleet.yaml": (
        lambda folder: (folder / "fleet.yaml").write_text("- gateway\n"),
        "check",
        "fleet.yaml",
        "help: ",
    ),
    "a lock in a merge": (
        _lock_in_a_merge,
        "plan",
        "herd.lock:3:1: error LH030: a merge is not finished here",
        "or delete it and run `herd lock`",
    ),
    "an empty model": (
        _empty_model,
        "check",
        "/a.gguf: the file is empty",
        "name a GGUF file",
    ),
    "a folder for a key": (
        _key_is_a_folder,
        "check",
        "keys/coder is a folder",
        "make a key and write it there",
    ),
    "a folder without a fleet": (
        _nothing,
        "up",
        "there is no fleet folder: searched",
        "run the command in a fleet folder",
    ),
    "an empty folder": (
        lambda _: None,
        "-i keys up",
        "keys: error LH005: the inventory holds no rig",
        "`herd init DIR`",
    ),
}


@pytest.mark.parametrize("case", FOLDERS.values(), ids=FOLDERS)
def test_sentence_and_fix_of_a_folder(
    case: tuple[Callable[[Path], object], str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, command, message, help_ = case
    monkeypatch.delenv("HERD_INVENTORY", raising=False)
    change(fleet(tmp_path))
    done = invoked(tmp_path, monkeypatch, command)
    assert message in done.output
    assert help_ in done.output


def test_a_file_without_rights_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is a fleet folder only if the file can be read. Root may read everything."""
    fleet(tmp_path)
    monkeypatch.delenv("HERD_INVENTORY", raising=False)
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "duo.yaml" and may(path, mode))
    monkeypatch.setattr("llamaherd.pipeline.discovery._declares_rig", lambda _: False)
    done = invoked(tmp_path, monkeypatch, "up")
    assert "/duo.yaml: error LH005: this file cannot be read: permission denied" in done.output
    assert "check the owner and the mode" in done.output
