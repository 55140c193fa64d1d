"""A fleet with a gateway that runs: the real HAProxy, asked by its host's program, behind an `ssh` of our own.

Its host has no systemd: what is asked of timers is noted in files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from tests.support.envelope import the_rig
from tests.support.gateway import TALK, Running, Upstream, free_port, made, rig_at, running, talk_env, until
from tests.support.rigs import ROOT

SSH = f"""#!{sys.executable}
import pathlib, sys

there = pathlib.Path(__file__).parent
port = sys.argv[sys.argv.index("-p") + 1]
if (there / "gone").exists() or port != "2201":
    print(f"ssh: connect to host box port {{port}}: Connection refused", file=sys.stderr)
    sys.exit(255)
sys.path.insert(0, {str(ROOT)!r})
from tests.support.ssh_program import read_document, run_program

sys.exit(run_program(read_document(), {{"GATEWAY_TALK": there / "gateway-talk", "PAUSED": there / "paused"}}))
"""


SYSTEMCTL = """#!/bin/sh
timers=$(dirname "$0")/timers
for unit; do :; done
case $1 in
stop) rm -f "$timers/$unit" ;;
try-restart) [ ! -e "$timers/$unit" ] || echo again >>"$timers/$unit" ;;
is-active) [ -e "$timers/$unit" ] ;;
list-units) ls "$timers" ;;
esac
"""
SYSTEMD_RUN = """#!/bin/sh
for word; do case $word in --unit=*) unit=${word#--unit=} ;; esac; done
printf '%s\\n' "$*" >"$(dirname "$0")/timers/$unit.timer"
"""
"""Timers that never run out: a file for each, with what it was told, and a line for each time that it began anew."""


@dataclass(frozen=True)
class Fleet:
    """An inventory, its gateway, and the servers behind it."""

    folder: Path
    gateway: Running
    one: Upstream
    two: Upstream

    def herd(self, *words: str) -> Result:
        """A command, to its end."""
        ended = CliRunner().invoke(main, [*words, "-i", str(self.folder / "fleet")])
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        return ended

    def answers(self, program: str) -> None:
        """Have a program of the host's answer in the place of ours."""
        file = self.folder / "gateway-talk"
        file.write_text(f"#!/bin/sh\n{program}\n")
        file.chmod(0o755)

    @property
    def timers(self) -> dict[str, list[str]]:
        """What the host's timers were told, each with a line for each time that it began anew."""
        return {file.name: file.read_text().splitlines() for file in (self.folder / "timers").iterdir()}

    @property
    def states(self) -> dict[str, str]:
        """How the servers of `coder` are, by what is said for machines."""
        told = the_rig(self.herd("gateway", "status", "--json").stdout)
        return {each["name"]: each["state"] for each in told["models"][0]["servers"]}


@contextmanager
def standing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """The fleet, while it stands: `coder` has both servers, `small` the second alone."""
    one, two = Upstream(), Upstream()
    text = f"""\
gateway:
  on: [box]
  port: {free_port()}
  users: {{tom: {{key: {{env: A}}, streams: 9}}}}
  models:
    coder: {{serve: [box.one, box.two], fallback: small}}
    small: {{serve: [box.two]}}
"""
    rig = rig_at({"one": one.port, "two": two.port}, {"connect/host": "box"})
    folder = tmp_path / "fleet"
    folder.mkdir()
    (folder / "fleet.yaml").write_text(text)
    (folder / "box.yaml").write_text(yaml.safe_dump(rig.model_dump(mode="json", exclude_unset=True)))
    (tmp_path / "timers").mkdir()
    for name, program in (("ssh", SSH), ("systemctl", SYSTEMCTL), ("systemd-run", SYSTEMD_RUN)):
        (tmp_path / name).write_text(program)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "haproxy").mkdir()
    try:
        with running(made(text, [rig]), tmp_path / "haproxy") as gateway:
            begun = Fleet(tmp_path, gateway, one, two)
            env = " ".join(f"{name}={value}" for name, value in talk_env(gateway.folder).items())
            begun.answers(f'{env} exec {sys.executable} -I {TALK} "$@"')
            until(lambda: begun.states == {"box.one": "up", "box.two": "up"})
            yield begun
    finally:
        one.stop()
        two.stop()
