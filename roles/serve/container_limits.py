"""Limits of a container in its Compose file and in Docker: `docker update` changes them without the file."""

from __future__ import annotations

from typing import Any

import yaml

_NUMBERS = (
    *("PidsLimit", "Memory", "MemorySwap", "MemoryReservation", "NanoCpus", "CpuShares", "CpuQuota", "CpuPeriod"),
    "BlkioWeight",
)
_NAMES = ("CpusetCpus", "CpusetMems", "RestartPolicy.Name", "RestartPolicy.MaximumRetryCount")
LIMITS = (*_NUMBERS, *_NAMES)
"""Fields of a container's HostConfig: all that `docker update` changes."""


def declared_limits(compose: str) -> dict[str, str]:
    """Return the limits of the one service of a Compose file, by Docker's names."""
    service: dict[str, Any] = yaml.safe_load(compose)["services"]["server"]
    declared = {
        "PidsLimit": service.get("pids_limit"),
        "CpusetCpus": service.get("cpuset"),
        "RestartPolicy.Name": service.get("restart"),
    }
    return {name: str(value) for name, value in declared.items() if value is not None}
