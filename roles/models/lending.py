"""A rig that shares its models: its store is opened to one peer, for as long as the peer fetches."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.protocol import UnaskedError
from llamaherd.onhost.document import Secret
from llamaherd.plan import FromNeighbour
from roles.models.onhost.share import Shared, ShareInput

IDLE = 900
"""Seconds without a request after which it closes again."""


class LendingError(UserError):
    """A rig shares nothing just now, and reports why."""


def share(lender: FromNeighbour, wanted: Sequence[str], peer: str, token: str) -> ShareInput:
    """Return the input that opens a rig's store to a peer with the token.

    `peer` is the name of the file which holds the token on the lender: one for each peer.
    """
    return ShareInput(
        store=lender.store,
        wanted=tuple(wanted),
        peer=peer,
        token=Secret(token),
        address=lender.address,
        port=lender.port,
        idle=IDLE,
    )


def lent(lender: FromNeighbour, wanted: Sequence[str], shared: Shared) -> dict[str, str]:
    """Return where the peer finds what is shared, by sha256.

    Raise LendingError where the rig shares nothing, and UnaskedError for what was not wanted.
    """
    if shared.refused:
        raise LendingError(shared.refused, f"`herd verify {lender.name}` reports the state of that rig")
    if unwanted := {*shared.files} - {*wanted}:
        raise UnaskedError(min(unwanted))
    host = f"[{lender.address}]" if ":" in lender.address else lender.address
    return {sha256: f"http://{host}:{lender.port}/{sha256}" for sha256 in shared.files}
