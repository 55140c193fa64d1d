"""A verb that the controller talks to, played by a shell script."""

from __future__ import annotations

import pytest

from llamaherd.host import remote
from llamaherd.host.program import GO


def play_verb(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let a host run a script in place of the program, once it has received the document."""
    monkeypatch.setattr(remote, "bootstrap", lambda *_, **__: f"echo '{GO}'\nread -r document\n{script}")
