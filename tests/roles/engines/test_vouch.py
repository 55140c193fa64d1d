"""A build that was touched: what is not of it goes, and what is stays."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

from llamaherd.host.state import HostState
from llamaherd.layout import LOCKS, SET_ASIDE
from llamaherd.role.changes import RunScript
from roles.engines.changes import build_changes
from tests.support.rigs import cpu_rig, planned
from tests.support.stores import needs_root

BUILD = planned(cpu_rig()).builds[0]


@needs_root
def test_what_is_no_part_of_a_build_is_set_aside(tmp_path: Path) -> None:
    home, aside = tmp_path / "home", tmp_path / "aside"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "llama-server").write_text("server")
    (home / "bin" / "libggml.so").write_text("not ours")
    (home / "bin" / ".hidden").symlink_to("/nowhere")
    built = {"llama-server": hashlib.sha256(b"server").hexdigest()}
    (home / "manifest.json").write_text(json.dumps({"id": BUILD.id, "sha256": built}))
    (step,) = build_changes(BUILD, HostState(builds={BUILD.id: "intact"}))
    assert isinstance(step.how, RunScript)
    script = step.script.replace(BUILD.folder, str(home)).replace(str(SET_ASIDE), str(aside))
    script = script.replace(str(LOCKS), str(tmp_path / "locks"))
    done = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, check=True)
    assert [path.name for path in (home / "bin").iterdir()] == ["llama-server"]
    assert sorted(path.name.rsplit("_", 1)[1].rsplit(".", 1)[0] for path in aside.iterdir()) == [
        ".hidden",
        "libggml.so",
    ]
    assert done.stdout.count("is no part of what was built") == 2
    assert (home / "bin" / "llama-server").stat().st_mode & 0o777 == 0o755
