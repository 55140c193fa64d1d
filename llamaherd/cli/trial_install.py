"""Install builds and models for a trial, as `herd up --only engines --only models` does: no server changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from llamaherd.cli.screened_run import print_failures, run_screened_within
from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Rig
from llamaherd.plan import Plan

TRIAL_ROLES = ("engines", "models")
"""The roles that install what a trial needs. They change no server."""


def install_for_trial(part: Mapping[str, tuple[Rig, Plan]], inventory: Path, lock_wait: int) -> None:
    """Apply the plans of these roles. Raise UserError if that fails."""
    from llamaherd.deploy.run import RunOptions

    ended = run_screened_within(part, inventory, RunOptions(lock_wait=lock_wait))
    print_failures(ended, "run the command again to resume")
    if ended.failed:
        raise UserError("the new versions could not be installed", "the reason is above; run it again to resume")
