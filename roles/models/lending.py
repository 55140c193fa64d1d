"""A rig that lends its models: its store is opened to one neighbour, for as long as that one fetches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.protocol import question_of, take_facts
from llamaherd.layout import FETCH_USER, LAUNCHER, SHARE_RUN
from llamaherd.plan import FromNeighbour
from llamaherd.text.quoting import base64_lines

IDLE = 900
"""Seconds without a request after which it closes again."""


class LendingError(UserError):
    """A rig lends nothing just now, and says why."""


def share(lender: FromNeighbour, wanted: Sequence[str], name: str, token: str) -> str:
    """The script that opens a rig's store to whoever has the token, and prints which of the sha256s are there.

    `name` is that of the file which holds the token on the lender: one for each neighbour.
    """
    return question_of(
        "models/share.sh.j2",
        lender=lender,
        wanted=wanted,
        run=SHARE_RUN,
        user=FETCH_USER,
        program=LAUNCHER,
        idle=IDLE,
        name=name,
        secret=base64_lines(token),
    )


def lent(lender: FromNeighbour, wanted: Sequence[str], lines: Iterable[str]) -> dict[str, str]:
    """Where the neighbour finds what the script said to be there, by sha256.

    Raises LendingError where it said why it lends nothing, UnaskedError where it said what it cannot have said.
    """
    host = f"[{lender.address}]" if ":" in lender.address else lender.address
    urls: dict[str, str] = {}

    def take(kind: str, fields: list[str]) -> bool:
        match kind, fields:
            case "has", [sha256] if sha256 in wanted:
                urls[sha256] = f"http://{host}:{lender.port}/{sha256}"
            case "cannot", [reason]:
                raise LendingError(reason, f"`herd verify {lender.name}` says how that rig is")
            case _:
                return False
        return True

    take_facts(lines, take)
    return urls
