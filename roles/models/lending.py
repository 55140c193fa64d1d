"""A rig that lends its models: its store is opened to one neighbour, for as long as that one fetches."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.converge.programs import LAUNCHER
from llamaherd.layout import FETCH_USER, SHARE_RUN
from llamaherd.plan import FromNeighbour
from llamaherd.text.quoting import base64_lines
from llamaherd.text.render import render

IDLE = 900
"""Seconds without a request after which it closes again."""


def share(lender: FromNeighbour, wanted: Sequence[str], name: str, token: str) -> str:
    """The script that opens a rig's store to whoever has the token, and prints which of the sha256s are there.

    `name` is that of the file which holds the token on the lender: one for each neighbour.
    """
    return render(
        "share.sh.j2",
        lender=lender,
        wanted=wanted,
        run=SHARE_RUN,
        user=FETCH_USER,
        program=LAUNCHER,
        idle=IDLE,
        name=name,
        secret=base64_lines(token),
    )


def lent(lender: FromNeighbour, wanted: Sequence[str], said: str) -> dict[str, str]:
    """Where the neighbour finds what the script said to be there, by sha256."""
    host = f"[{lender.address}]" if ":" in lender.address else lender.address
    return {sha256: f"http://{host}:{lender.port}/{sha256}" for sha256 in said.split() if sha256 in wanted}
