"""Install builds and models for a trial, as `herd up --only engines --only models` does: no server changes."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.signals import END_SIGNALS
from llamaherd.inventory.schema import Rig
from llamaherd.plan import Plan

TRIAL_ROLES = ("engines", "models")
"""The roles that install what a trial needs. They change no server."""


def install_for_trial(part: Mapping[str, tuple[Rig, Plan]], inventory: Path, lock_wait: int) -> None:
    """Apply the plans of these roles. Raise UserError if that fails."""
    from llamaherd.deploy.run import RunOptions, deploy

    handlers = {each: signal.getsignal(each) for each in END_SIGNALS}
    try:
        failed = deploy(part, inventory, 0, {}, RunOptions(lock_wait=lock_wait))
    finally:
        # A run of pyinfra sets its own handlers, whose message is about `herd up`.
        for each, handler in handlers.items():
            signal.signal(each, handler)
    if failed:
        raise UserError("the new versions could not be installed", "the reason is above; run it again to resume")
