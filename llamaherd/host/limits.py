"""What a container is held to, by its Compose file and by Docker: `docker update` changes it under the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from llamaherd.text.quoting import Written

ContainerLimits = Mapping[str, str]
"""By Docker's name, those that there are."""

_NUMBERS = (
    *("PidsLimit", "Memory", "MemorySwap", "MemoryReservation", "NanoCpus", "CpuShares", "CpuQuota", "CpuPeriod"),
    "BlkioWeight",
)
_NAMES = ("CpusetCpus", "CpusetMems", "RestartPolicy.Name", "RestartPolicy.MaximumRetryCount")
LIMITS = (*_NUMBERS, *_NAMES)
"""Fields of a container's HostConfig: all that `docker update` changes."""

LIMITS_FORMAT = Written(
    " ".join([*(f"{name}={{{{json .{name}}}}}" for name in _NUMBERS), *(f"{name}={{{{.{name}}}}}" for name in _NAMES)])
)
"""Prints them by `docker inspect`."""

_NONE = ("", "null", "0", "-1", "<nil>")


def read_limits(text: str) -> ContainerLimits:
    """What Docker said. Raises ValueError on what it cannot have said."""
    pairs = dict(word.split("=", 1) for word in text.split(" ")) if text else {}
    return {name: value for name, value in pairs.items() if value not in _NONE}


def declared_limits(compose: str) -> ContainerLimits:
    """What the one service of a Compose file is held to."""
    service: dict[str, Any] = yaml.safe_load(compose)["services"]["server"]
    declared = {
        "PidsLimit": service.get("pids_limit"),
        "CpusetCpus": service.get("cpuset"),
        "RestartPolicy.Name": service.get("restart"),
    }
    return {name: str(value) for name, value in declared.items() if value is not None}
