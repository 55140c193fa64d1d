"""The container toolkit that is declared: each mistake beside its neighbour that is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.checking import Case, assert_said
from tests.support.rigs import GONE

VERSION = "gpus/container_toolkit/version"
NO_CARD: dict[str, Any] = {"instances/boxed": GONE}

CASES = {
    "undeclared": Case({}),
    "1.18.0": Case({VERSION: "1.18.0"}),
    "1.17.8": Case({VERSION: "1.17.8"}, "LH074", "1.17.8", "1.17.8 does not describe GPUs", "`version: 1.18.0`"),
    "1.9.0": Case({VERSION: "1.9.0"}, "LH074", "1.9.0", "1.9.0 does not describe GPUs", "`version: 1.18.0`"),
    "1.19.0 under WSL": Case(
        {VERSION: "1.19.0"}, "LH074", "1.19.0", "1.19.0 does not describe GPUs", "`version: 1.19.1`", wsl=True
    ),
    "1.19.1 under WSL": Case({VERSION: "1.19.1"}, wsl=True),
    "for nothing": Case(
        {VERSION: "1.20.0"} | NO_CARD, "LH074", "container_toolkit", "no instance in a container", "", "warning"
    ),
    "nothing for nothing": Case(NO_CARD),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_gives_cards_to_containers(case: Case, tmp_path: Path) -> None:
    assert_said(case, tmp_path)
