"""llama-server's own page: whether a server has it."""

from __future__ import annotations

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.client.http_client import Failure, Target, request_json

_NOT_FOUND, _UNSUPPORTED = 404, 415
"""Statuses without a page, and of a page that is stored compressed, for a client that reads no gzip."""


def require_page(target: Target, name: str) -> None:
    """Raise UserError if a server responds without a page at `/`, or does not respond."""
    found = request_json(target, "/")
    if not isinstance(found, Failure) or found.status == _NOT_FOUND:
        raise UserError(
            f"the server of {name} has no page: its engine has none, or was built without one",
            f"chat on the terminal with `herd chat {name}`; for a page, use llama.cpp with `ref:` set to a build, "
            "such as `b11434` (`herd explain serve`)",
        )
    if found.status != _UNSUPPORTED and found.why != "nonsense":
        raise UserError(f"{name}: {found.message}", found.help)
