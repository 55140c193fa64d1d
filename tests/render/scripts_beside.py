"""Scripts of what stands beside servers: gateways with their address and page, what watches, power, and WSL."""

from __future__ import annotations

from collections.abc import Callable

from tests.render.pieces import (
    power,
)
from tests.render.plans import (
    HELD,
    SHARING,
)
from tests.support.virtual_address import shared_by

BESIDE: dict[str, Callable[[], str]] = {
    "virtual_address": lambda: shared_by(SHARING["box"]).program.text,
    "gpu_power": lambda: power(HELD).program.text,
}
"""By the names of their golden files."""
