"""What holds for all roles."""

import pytest


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, a look is a fresh one where nothing was changed."""
    monkeypatch.setattr("llamaherd.deploy.operations.FRESH_SECONDS", 600)
