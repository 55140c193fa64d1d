"""Why something failed on a host that kept nothing else from being done: said again at the end, where people look."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from pyinfra.api import Host

HELP = "  help: "
"""What the way out begins with, where an error is shown."""

_reasons: WeakKeyDictionary[Host, dict[str, str]] = WeakKeyDictionary()


def note(host: Host, lines: Sequence[str]) -> None:
    """Keep why the operation that runs has failed: the last sentence of these lines, with its way out.

    What fails in it after that follows from it, or is the lesser reason.
    """
    operation = host.executing_op_hash
    if operation is None:
        return
    (name, *_) = host.state.get_op_meta(operation).names
    said = [line for line in lines if line.strip()]
    last = next((n for n in reversed(range(len(said))) if not said[n].startswith(HELP)), None)
    reason = "\n".join(said[last:]) if last is not None else "it does not say why"
    _reasons.setdefault(host, {}).setdefault(name, reason)


def noted(host: Host) -> list[str]:
    """What has failed there by now, and why."""
    return [f"{name}: {reason}" for name, reason in _reasons.get(host, {}).items()]
