"""Locks of hosts that lie in folders of a test's own, one for each rig: all of them are this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamaherd.host import protocol, turn
from llamaherd.layout import LOCKS
from llamaherd.render import render
from llamaherd.text.quoting import Written


def lock_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the scripts look for locks here. `herd unlock` means the rig `duo`."""

    def moved(template: str, **values: Any) -> Written:
        place = f"{folder}/{values.get('rig', 'duo')}"
        return Written(render(template, **values).replace(str(LOCKS), place))

    monkeypatch.setattr(turn, "render", moved)
    monkeypatch.setattr(protocol, "render", moved)
