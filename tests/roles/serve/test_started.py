"""What a server was started with, by the program that records it and compares: real files.

Inspections compare with the same records, and find the same.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from roles.serve.onhost import started_program
from roles.serve.onhost.processes import changed_since
from tests.support.inspected_host import RootedHost

pytestmark = pytest.mark.usefixtures("starts_processes")
AHEAD = (2_000_000_000, 2_000_000_000)
"""A time to come."""


@dataclass(frozen=True)
class Started:
    """A root with a unit, its drop-in, a key and a model, and a systemctl that tells of them."""

    root: Path

    @property
    def unit(self) -> Path:
        return self.root / "llama-chat.service"

    @property
    def drop_in(self) -> Path:
        return self.root / "llama-chat.service.d" / "my own.conf"

    @property
    def key(self) -> Path:
        return self.root / "keys" / "chat"

    @property
    def model(self) -> Path:
        return self.root / "a model & more" / "gemma.gguf"

    @property
    def record(self) -> Path:
        return self.root / "run" / "llamaherd" / "started" / "llama-chat"

    def put(self, file: Path, text: str) -> None:
        """A file beside its place, then renamed: another one than before."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_name("new").write_text(text)
        file.with_name("new").replace(file)

    def vouch(self, *files: Path) -> None:
        """The manifest of the model's folder."""
        lines = [f"1\t1.0\t{hashlib.sha256(file.read_bytes()).hexdigest()}\t{file.name}\n" for file in files]
        self.put(self.model.parent / ".manifest", "".join(lines))

    def systemd(self, run: str, *drop_ins: Path, reload: str = "no") -> None:
        """What systemd says of the unit."""
        paths = " ".join(map(str, drop_ins))
        said = f"InvocationID={run}\nFragmentPath={self.unit}\nDropInPaths={paths}\nNeedDaemonReload={reload}"
        program = self.root / "bin" / "systemctl"
        self.put(program, f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
        program.chmod(0o755)

    @property
    def path(self) -> str:
        """Return where programs are found: the played ones come first."""
        return f"{self.root / 'bin'}:{os.environ['PATH']}"

    def call(self, how: str) -> tuple[int, list[str]]:
        """Run the program in this process: its exit code, and what it prints."""
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape")
        arguments = [how, "unit", "llama-chat", str(self.key), str(self.model.parent)]
        here = patch.object(started_program, "ROOT", self.root)
        with patch.dict(os.environ, {"PATH": self.path}), here, redirect_stdout(out):
            code = started_program.main(arguments)
        out.seek(0)
        lines = out.read().splitlines()
        if how == "changed":
            assert self.inspected() == [line.rpartition("\t")[2] for line in lines]
        return code, lines

    def inspected(self) -> list[str]:
        """Return what an inspection finds to have changed."""
        shown = dict(line.split("=", 1) for line in (self.root / "bin" / "systemctl").read_text().splitlines()[2:-1])
        drop_ins = shown["DropInPaths"].split(" /")
        files = [shown["FragmentPath"], *(f"/{each.removeprefix('/')}" for each in drop_ins if each)]
        inputs = (str(self.key), str(self.model.parent))
        return [*changed_since(str(self.record), shown["InvocationID"], files, inputs, RootedHost(self.root))]


@pytest.fixture
def host(tmp_path: Path) -> Started:
    """A server that was started just now."""
    host = Started(tmp_path)
    host.put(host.unit, "[Service]\nExecStart=/bin/a\n")
    host.put(host.drop_in, "[Service]\n")
    host.put(host.key, "1234\n")
    host.put(host.model, "weights")
    host.vouch(host.model)
    host.systemd("run-1", host.drop_in)
    assert host.call("record") == (0, [])
    return host


def test_nothing_has_changed_since(host: Started) -> None:
    assert host.call("changed") == (0, [])


def ahead(host: Started) -> None:
    for file in (host.unit, host.drop_in, host.key, host.model.parent / ".manifest"):
        os.utime(file, AHEAD)


def written_again(host: Started) -> None:
    host.put(host.unit, host.unit.read_text())
    host.put(host.key, host.key.read_text())
    host.vouch(host.model)


def beside(host: Started) -> None:
    host.put(host.model.with_name("other.gguf"), "another model's")
    host.vouch(host.model, host.model.with_name("other.gguf"))


def verified_again(host: Started) -> None:
    """Its time is another, and it is the same file with the same content."""
    os.utime(host.model, AHEAD)
    host.put(host.model.parent / ".manifest", (host.model.parent / ".manifest").read_text().replace("1.0", "2.0"))


@pytest.mark.parametrize("does", [ahead, written_again, beside, verified_again])
def test_what_changes_nothing_that_was_read(host: Started, does: Callable[[Started], None]) -> None:
    does(host)
    assert host.call("changed") == (0, [])


def edited(host: Started) -> None:
    """In its place, and dated back."""
    host.unit.write_text("[Service]\nExecStart=/bin/b\n")
    os.utime(host.unit, (1, 1))


def rid_of_its_drop_in(host: Started) -> None:
    host.drop_in.unlink()
    host.systemd("run-1")


def vouched_for_as_another(host: Started) -> None:
    host.model.write_text("others")
    host.vouch(host.model)


CHANGES: dict[str, tuple[Callable[[Started], object], Callable[[Started], list[str]]]] = {
    "the unit": (lambda h: h.put(h.unit, "[Service]\n"), lambda h: [f"file\t{h.unit}"]),
    "the unit, its time kept": (edited, lambda h: [f"file\t{h.unit}"]),
    "a drop-in is gone": (rid_of_its_drop_in, lambda h: [f"file\t{h.drop_in}"]),
    "the key": (lambda h: h.put(h.key, "1235\n"), lambda h: [f"key\t{h.key}"]),
    "the key is gone": (lambda h: h.key.unlink(), lambda h: [f"key\t{h.key}"]),
    "the model came again": (lambda h: h.put(h.model, "weights"), lambda h: [f"inode\t{h.model}"]),
    "the model is vouched for as another": (vouched_for_as_another, lambda h: [f"model\t{h.model}"]),
    "another start, which recorded nothing": (lambda h: h.systemd("run-2", h.drop_in), lambda _: ["run\trun-1"]),
    "no record": (lambda h: h.record.unlink(), lambda h: [f"record\t{h.record}"]),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_has_changed_since(host: Started, case: str) -> None:
    change, found = CHANGES[case]
    change(host)
    assert host.call("changed") == (1, found(host))


def test_names_that_are_no_text_and_folders_in_folders(host: Started) -> None:
    """A record is text; nothing has changed of files that have such names."""
    inner = host.model.parent / "inner"
    inner.mkdir()
    (inner / ".manifest").write_text("")
    (inner / "x.gguf").write_text("weights")
    Path(os.fsdecode(os.fsencode(host.model.parent) + b"/\xff.gguf")).write_text("weights")
    (inner / "link.gguf").symlink_to("x.gguf")
    host.call("record")
    assert host.call("changed") == (0, [])
    host.put(inner / "x.gguf", "weights")
    assert host.call("changed") == (1, [f"inode\t{inner / 'x.gguf'}"])


def test_a_server_without_a_key_has_none_that_changes(host: Started) -> None:
    host.key.unlink()
    record = host.root / "record"
    record.write_text(f"run\trun-1\nkey\t0\t{host.key}\n")
    assert changed_since(str(record), "run-1", (), ("-",), RootedHost(host.root)) == (str(host.key),)


def test_a_start_from_a_unit_that_systemd_had_not_read_again_is_none_as_planned(host: Started) -> None:
    host.systemd("run-2", host.drop_in, reload="yes")
    host.call("record")
    host.systemd("run-2", host.drop_in)
    assert host.call("changed") == (1, ["file\tllama-chat.service"])


def test_the_record_is_roots_and_gives_no_key_away(host: Started) -> None:
    """Not to whoever reads it and tries all keys of four digits."""
    assert [path.stat().st_mode & 0o777 for path in (host.record.parent, host.record)] == [0o700, 0o600]
    text = host.record.read_text()
    for digits in range(10_000):
        for key in (f"{digits:04}", f"{digits:04}\n"):
            assert hashlib.sha256(key.encode()).hexdigest() not in text
    secret = host.root / "var" / "lib" / "llamaherd" / "started" / ".secret"
    assert (secret.stat().st_mode & 0o777, secret.stat().st_size) == (0o600, 32)
    assert host.call("changed") == (0, [])


def test_the_file_itself_records_and_compares(host: Started) -> None:
    """As root of a host: by its path, with whatever umask the unit has."""
    program = host.root / "started"
    text = Path(started_program.__file__).read_text()
    program.write_text(text.replace('ROOT = Path("/")', f"ROOT = Path({str(host.root)!r})"))
    program.chmod(0o755)
    host.record.unlink()
    for umask in (0o000, 0o077):
        for how, code in (("record", 0), ("changed", 0)):
            arguments = [str(program), how, "unit", "llama-chat", str(host.key), str(host.model.parent)]
            env = {"PATH": f"{host.root / 'bin'}:/usr/bin:/bin"}
            done = subprocess.run(arguments, env=env, capture_output=True, check=False, umask=umask)
            assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")
        assert [path.stat().st_mode & 0o777 for path in (host.record.parent, host.record)] == [0o700, 0o600]
        assert (host.root / "run" / "llamaherd").stat().st_mode & 0o777 == 0o755
    host.unit.unlink()
    assert host.call("changed") == (1, [f"file\t{host.unit}"])


def test_a_record_of_the_shell_program_of_earlier_versions_still_holds(host: Started) -> None:
    """No server restarts because another program compares."""
    secret = (host.root / "var" / "lib" / "llamaherd" / "started" / ".secret").read_bytes()
    manifest = hashlib.sha256(host.model.read_bytes()).hexdigest()
    host.record.write_text(
        "run\trun-1\n"
        f"file\t{hashlib.sha256(host.unit.read_bytes()).hexdigest()}\t{host.unit}\n"
        f"file\t{hashlib.sha256(host.drop_in.read_bytes()).hexdigest()}\t{host.drop_in}\n"
        f"key\t{hashlib.sha256(secret + host.key.read_bytes()).hexdigest()}\t{host.key}\n"
        f"model\t{manifest}\t{host.model}\n"
        f"inode\t{host.model.stat().st_ino}\t{host.model}\n"
    )
    before = host.record.read_text()
    assert host.call("changed") == (0, [])
    assert host.call("record") == (0, [])
    assert host.record.read_text() == before


def test_a_container_is_recorded_by_its_id(host: Started) -> None:
    docker = host.root / "bin" / "docker"
    host.put(docker, f"#!/bin/sh\nprintf '%s\\n' \"$@\" >{host.root}/arguments\necho InvocationID=123\n")
    docker.chmod(0o755)
    name = "llama-$(id)'x"
    with patch.dict(os.environ, {"PATH": host.path}), patch.object(started_program, "ROOT", host.root):
        assert started_program.main(["record", "container", name, "-"]) == 0
    assert (host.root / "arguments").read_text().splitlines()[-2:] == ["InvocationID={{.Id}}", name]
    assert (host.root / "var" / "lib" / "llamaherd" / "started" / name).read_text() == "run\t123\n"


@pytest.mark.parametrize("script", ["exit 1", "sleep 60"], ids=["fails", "hangs"])
def test_without_systemd_what_lies_there_is_recorded(
    host: Started, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.put(host.root / "bin" / "systemctl", f"#!/bin/sh\nexec {script}\n".replace("exec exit", "exit"))
    (host.root / "bin" / "systemctl").chmod(0o755)
    monkeypatch.setattr(started_program, "_SECONDS", 0.3)
    with patch.dict(os.environ, {"PATH": host.path}), patch.object(started_program, "ROOT", host.root):
        assert started_program.main(["record", "unit", "llama-chat", "-", str(host.model.parent)]) == 0
    assert {line.partition("\t")[0] for line in host.record.read_text().splitlines()} == {"model", "inode"}


def test_a_disk_that_takes_nothing_fails_and_keeps_the_record(
    host: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    before = host.record.read_text()
    host.record.with_name("llama-chat.new").mkdir()
    assert host.call("record") == (1, [])
    assert f"{host.record} cannot be written: [Errno 21] Is a directory" in capsys.readouterr().err
    assert host.record.read_text() == before


def test_of_two_that_start_at_once_one_makes_the_secret(host: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = host.root / "var" / "lib" / "llamaherd" / "started" / ".secret"
    secret.unlink()

    def random(size: int) -> bytes:
        secret.write_bytes(b"s" * size)
        return b"r" * size

    monkeypatch.setattr(os, "urandom", random)
    assert host.call("record") == (0, [])
    assert secret.read_bytes() == b"s" * 32
    assert [each.name for each in secret.parent.iterdir()] == [".secret"]


def test_anything_else_prints_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["record", "unit", "x"], ["forget", "unit", "x", "-"], ["record", "pod", "x", "-"]):
        assert started_program.main(arguments) == 1
        assert capsys.readouterr().err == f"{started_program.USAGE}\n"
