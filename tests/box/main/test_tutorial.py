"""The first tutorial on a real host. The host of this lane stands for that of `scripts/box`.

Both run the same inventory. Two sections are about the box itself, and the last one about another host.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml

from box.cli import ROOT
from tests.box.bench import Bench
from tests.box.tutorial import steps, terminal

ELSEWHERE = ("Create the host", "Remove the box", "Continue with a host of your own")
"""The sections whose commands are not for this host."""


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
    page = [step for step in steps("tutorial") if step.heading not in ELSEWHERE]
    assert len(page) > 10
    with terminal(tmp_path, environment) as typed:
        assert typed.prints("herd -i inventory up --yes && echo ready").endswith("ready\n")
        for step in page:
            typed.follows(step)
