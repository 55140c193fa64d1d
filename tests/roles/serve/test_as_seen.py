"""A file that is not written anew must be the one that was seen: another run may have put back another one since."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from llamaherd.host.serving import UnitState
from roles.serve.changes import unit_changes
from tests.support.ours import parse_state
from tests.support.rigs import KEY, converged, cpu_rig, planned

PLAN = planned(cpu_rig())
CHAT = next(each for each in PLAN.instances if each.name == "chat")


@pytest.mark.parametrize("text", [CHAT.file.text, "another server's", None])
def test_one_that_was_stopped_is_started_by_what_was_seen_alone(tmp_path: Path, text: str | None) -> None:
    seen = parse_state(converged(PLAN, {"chat": KEY}))
    seen.units[CHAT.service] = UnitState("inactive", "enabled", False, "", CHAT.spec)
    (change,) = unit_changes(CHAT, seen, KEY)
    found = re.search(r"^sha256sum --status -c - .*?^}$", change.script, re.MULTILINE | re.DOTALL)
    assert found
    unit, key = tmp_path / "unit", tmp_path / "key"
    key.write_text(f"{KEY}\n")
    if text is not None:
        unit.write_text(text)
    guard = found[0].replace(CHAT.file.path, str(unit)).replace(str(CHAT.key_file), str(key))
    ended = subprocess.run(["sh", "-s"], input=f"{guard}\necho on", capture_output=True, text=True, check=False)
    if text == CHAT.file.text:
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "on\n", "")
    else:
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "another run has changed llama-chat since this one looked at it" in ended.stderr
