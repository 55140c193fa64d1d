"""What NVIDIA's driver lists of GPUs, as the role inspects, on a played host."""

from __future__ import annotations

import pytest

from llamaherd.onhost.hardware import parse_gpu
from llamaherd.onhost.system import NOT_STARTED, TIMED_OUT, Ended, FailedError
from llamaherd.onhost.verbs import NoInput
from roles.gpus.onhost import Found, inspect
from tests.support.recording import InspectedHost

LINE = "GPU-1, 00000000:01:00.0, Enabled, 300.0, 300.0, 100.0, 350.0, 210, [N/A], NVIDIA GeForce RTX 3090, Founders"


@pytest.mark.parametrize(
    ("ended", "found"),
    [
        (Ended(0, f"{LINE}\n"), Found((parse_gpu(LINE),))),
        (Ended(NOT_STARTED), Found(problem="there is no nvidia-smi")),
        (Ended(9, "\nNVIDIA-SMI has failed\nmore\n"), Found(problem="NVIDIA-SMI has failed")),
        (Ended(9, "", "no library\n"), Found(problem="no library")),
        (Ended(TIMED_OUT), Found()),
        (Ended(0, "GPU-1, odd\n"), Found(problem="GPU-1, odd")),
    ],
)
def test_what_the_driver_lists(ended: Ended, found: Found) -> None:
    assert inspect(NoInput(), InspectedHost({}, ends={"nvidia-smi": ended})) == found


def test_a_line_that_is_no_gpu_is_a_sentence() -> None:
    odd = LINE.replace("00000000:01:00.0", "somewhere")
    with pytest.raises(FailedError, match="nvidia-smi prints what cannot be read: not a PCI address"):
        inspect(NoInput(), InspectedHost({}, ends={"nvidia-smi": Ended(0, odd)}))
