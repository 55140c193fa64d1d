"""Below which speed something is wrong with a server. Where it is switched and where it is watched, the same counts."""

from __future__ import annotations

OF_EXPECTED = 0.5
"""Of what its owner expects. Half of it is no bad day: a server that lost its GPU answers all the same."""
OF_MEASURED = 0.7
"""Of what it was measured to do here: `roles/serve/onhost/speed.py` takes the same share of what it has measured."""


def floor(expected: float | None, measured: float | None = None) -> float | None:
    """Tokens a second of one request below which a server is too slow; None where nothing is known of it.

    What its owner expects counts for more than what was measured.
    """
    if expected:
        return expected * OF_EXPECTED
    return measured * OF_MEASURED if measured else None
