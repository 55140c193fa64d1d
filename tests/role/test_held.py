"""What of an instance's RAM nothing can take back."""

from __future__ import annotations

from typing import Any

import pytest

from llamaherd.memory.estimate import estimate
from llamaherd.memory.overhead import repacked_bytes
from llamaherd.memory.placement import Placement
from llamaherd.plan.devices import resident_bytes
from tests.support.headers import qwen_35b

HEADER = qwen_35b()


def need(*, locked: bool = False, mmap: bool = True, devices: int = 0, vector: bool = False) -> dict[str, int]:
    """How much that is, beside what there is in RAM by its kind."""
    placed = Placement(mmap=mmap, devices=devices, layouts=("vector",) if vector else ())
    use = estimate(HEADER, placed).host
    copied = repacked_bytes(HEADER, placed)
    own = use.context + use.compute
    found = resident_bytes(use, HEADER, placed, locked=locked) - own
    return {"more": found, "weights": use.weights, "copies": copied.copies, "originals": copied.originals}


def test_pages_of_a_mapped_file_can_be_dropped() -> None:
    assert need()["more"] == 0


@pytest.mark.parametrize("how", [{"locked": True}, {"mmap": False}, {"mmap": False, "devices": 1}])
def test_weights_that_are_read_or_locked_cannot(how: dict[str, Any]) -> None:
    found = need(**how)
    assert found["more"] == found["weights"] > 0


def test_copies_in_another_layout_cannot_either() -> None:
    mapped, read = need(vector=True), need(vector=True, mmap=False)
    assert mapped["more"] == mapped["copies"] > 0
    assert read["more"] == read["weights"] - read["originals"] + read["copies"]
