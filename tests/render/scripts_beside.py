"""Scripts of what stands beside servers: gateways with their address and page, what watches, and WSL."""

from __future__ import annotations

from collections.abc import Callable

from tests.render.plans import (
    SHARING,
)
from tests.support.virtual_address import shared_by

BESIDE: dict[str, Callable[[], str]] = {
    "virtual_address": lambda: shared_by(SHARING["box"]).program.text,
}
"""By the names of their golden files."""
