"""What others wrote for many units, one of ours among them: it is not ours to change."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.diagnostics.findings import UserError
from llamaherd.plan import InstancePlan


def shared(instance: InstancePlan, drop_ins: Mapping[str, str]) -> UserError:
    """Why a drop-in for many units keeps an instance from being started."""
    path, keys = next(iter(drop_ins.items()))
    return UserError(
        f"{path} sets {keys.replace(' ', ', ')} for {instance.service}.service, and for units that are not ours",
        "take that out of the file, or move it away; then `systemctl daemon-reload` and `herd up`, which goes on here",
    )


def given_to_all(instance: InstancePlan, names: str) -> UserError:
    """Why variables that systemd gives to all its units keep an instance from being started."""
    return UserError(
        f"systemd gives {names.replace(' ', ', ')} to all its units, and so to {instance.service}.service",
        f"`systemctl unset-environment {names}`, or take it out of `DefaultEnvironment=` in /etc/systemd/system.conf; "
        "then `herd up`, which goes on here",
    )
