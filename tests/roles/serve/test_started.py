"""What a server was started with, by the program that records it and compares: real files, a real shell.

Inspections compare with the same records in Python, and find the same.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from llamaherd.render import render
from roles.serve.onhost.started import changed_since
from tests.support.inspected_host import RootedHost

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

    def call(self, how: str) -> tuple[int, list[str]]:
        """The program: how it ends, and what it says."""
        script = render("serve/started.sh", root=str(self.root))
        done = subprocess.run(
            ["sh", "-s", how, "unit", "llama-chat", str(self.key), str(self.model.parent)],
            input=script,
            env={**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        lines = done.stdout.splitlines()
        if how == "changed":
            assert self.inspected() == [line.rpartition("\t")[2] for line in lines]
        return done.returncode, lines

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
