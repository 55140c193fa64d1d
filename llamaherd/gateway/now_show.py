"""What a gateway does now, for people: a small table. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from llamaherd.gateway.now import GatewayNow, ModelNow

_SERVERS = ("model", "waiting", "server", "state", "streams", "answered")
_USERS = ("user", "streams")


def now_lines(now: GatewayNow) -> Iterator[str]:
    """Its servers by model, then its users, each a line."""
    yield from _columns([_SERVERS, *(row for model in now.models for row in _rows(model))])
    if now.users:
        yield ""
        yield from _columns([_USERS, *((user.name, f"{user.streams} of {user.most}") for user in now.users)])
    for server in now.returning:
        yield f"  {server} is drained by `herd up` or a measurement, and comes back by itself"


def _rows(model: ModelNow) -> Iterator[Sequence[str]]:
    """A line of each server; the model and who waits for it stand in the first."""
    of_model = (model.name, str(model.waiting))
    for server in model.servers:
        yield (*of_model, server.name, server.state, f"{server.streams} of {server.most}", str(server.answered))
        of_model = ("", "")


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()


def ending_line(ending: int) -> str:
    """That processes from before a reload are at work, whose streams are not counted."""
    processes = "a process" if ending == 1 else f"{ending} processes"
    return f"{processes} from before a reload still {'has' if ending == 1 else 'have'} streams, which are not counted"


class AddressTold(NamedTuple):
    """Where the address of two gateways is, in a sentence, and whether that is on one of them."""

    line: str
    ok: bool


def address_line(gateways: Mapping[str, GatewayNow]) -> AddressTold | None:
    """Which of these gateways has the address that they have in turn; None where they have none."""
    told = {rig: now.address for rig, now in gateways.items() if now.address}
    if not told:
        return None
    address = next(iter(told.values())).address
    owners = [rig for rig, each in told.items() if each.here]
    if len(owners) == 1:
        return AddressTold(f"{address} is on {owners[0]}", True)
    if owners:
        way_out = "let what they say of it through between them: protocol 112, VRRP"
        return AddressTold(f"{address} is on {' and '.join(owners)} at once: {way_out}", False)
    where = ", nor on ".join(told)
    return AddressTold(f"{address} is not on {where}: see `systemctl status llamaherd-address` there", False)
