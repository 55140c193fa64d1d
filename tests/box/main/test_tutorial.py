"""The tutorial, typed as it stands: each command runs on the host, and prints what the page shows.

Figures, dates and spaces may differ, and `…` stands for anything. The host of this lane stands for that of
`scripts/box`, which runs the same inventory. Two sections are about the box itself, and the last about another host.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

from box.cli import ROOT
from tests.box.bench import Bench

PAGE = ROOT / "docs" / "tutorial.md"
ELSEWHERE = ("Create the host", "Remove the box", "Continue with a host of your own")
"""The sections whose commands are not for this host."""


def blocks() -> list[tuple[str, str]]:
    """Return the commands of the page, each with what the page shows of its output."""
    found: list[tuple[str, str]] = []
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        if section.startswith(ELSEWHERE):
            continue
        for block in re.findall(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                found.append((command, shown))
    return found


def plain(text: str) -> str:
    """Return a text without its figures; a speed is missing where the machine is too slow to measure it in time."""
    text = re.sub(r" +[\d.,]+ tokens/s", "", text)
    lines = (" ".join(re.sub(r"\d[\d.,:]*", "N", line).split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def pattern(shown: str) -> str:
    """Return a pattern for the output that the page shows."""
    return "(?:.*\n)?".join(
        ".*".join(map(re.escape, part.split("…"))) for part in re.split(r"^…\n?", shown, flags=re.M)
    )


def declare_box(bench: Bench, folder: Path) -> None:
    """Write the inventory of the box for this host, with the engine that it has."""
    text = (ROOT / "inventory" / "box.yaml").read_text(encoding="utf-8")
    rig = bench.rig()
    text = text.replace("port: 2201", f"port: {bench.host.port}").replace(
        "../.box/llamaherd-box", str(bench.host.folder)
    )
    text = text.replace("../.box/api-key", str(bench.key_file)).replace("../.box/", f"{ROOT}/.box/")
    text = re.sub(
        r"^engines:\n(?:  .*\n)+", yaml.safe_dump({"engines": {"main": rig["engines"]["main"]}}), text, flags=re.M
    )
    text = re.sub(
        r"^host: .*$", yaml.safe_dump({"host": rig["host"]}, default_flow_style=None).strip(), text, flags=re.M
    )
    (folder / "inventory").mkdir()
    (folder / "inventory" / "box.yaml").write_text(text, encoding="utf-8")


def test_each_command_prints_what_the_page_shows(bench: Bench, tmp_path: Path) -> None:
    declare_box(bench, tmp_path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").write_text(f"PATH={Path(sys.executable).parent}:$PATH\n")
    environment = {name: value for name, value in bench.environment({}).items() if name != "HERD_INVENTORY"}
    script = ["herd -i inventory up --yes >/dev/null || exit 1"]
    shell = subprocess.Popen(
        ["bash"],
        cwd=tmp_path,
        env=environment | {"PATH": f"{Path(sys.executable).parent}:{environment['PATH']}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    commands = blocks()
    assert len(commands) > 10
    for command, _ in commands:
        script += ["echo '--- next ---'", f"{command} </dev/null" if "&&" not in command else command]
    printed, _ = shell.communicate("\n".join(script) + "\n", timeout=600)
    outputs = printed.split("--- next ---\n")[1:]
    assert len(outputs) == len(commands), printed
    for (command, shown), output in zip(commands, outputs, strict=True):
        matches = re.fullmatch(pattern(plain(shown)) + "\n?", plain(output) + "\n", re.DOTALL)
        assert matches or not shown.strip(), f"$ {command}\n{output}\nthe page shows:\n{shown}"
