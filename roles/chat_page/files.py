"""What the page's container reads beside its Compose file: made of keys of the controller when a step is made."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.authority import root_in
from llamaherd.inventory.keys import UnreadableKeyError, read_key
from llamaherd.layout import CHAT
from llamaherd.plan import ChatPlan, TextFile

KEY, ROOT = str(CHAT / "key"), str(CHAT / "root.pem")


def read_files(plan: ChatPlan) -> tuple[TextFile, ...]:
    """The key that it asks the gateway with, and the certificate by which it knows it. Raises UserError."""
    return tuple(_files(plan))


def _files(plan: ChatPlan) -> Iterator[TextFile]:
    try:
        yield TextFile(path=KEY, text=read_key(plan.key), mode="0400", owner=plan.number)
    except UnreadableKeyError as error:
        help_ = f"give that user one: `herd users rotate {plan.user}`"
        raise UserError(f"the key of the chat page, of user `{plan.user}`: {error}", help_) from None
    if plan.root is not None:
        yield TextFile(path=ROOT, text=root_in(plan.root.parent).pem, mode="0444")
