"""A host with a store of models, and processes that use it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.store_host import StoreHost


@pytest.fixture
def host(tmp_path: Path) -> StoreHost:
    """Return a host whose store is empty."""
    return StoreHost.made(tmp_path)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield the list of processes that a test starts, and kill them afterwards."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
