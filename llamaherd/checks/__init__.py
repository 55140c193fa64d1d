"""What can be known wrong about a rig before any host is touched: one module per kind of mistake."""

from __future__ import annotations

from llamaherd.checks.memory import memory
from llamaherd.checks.models import drafting, models
from llamaherd.checks.references import references
from llamaherd.checks.subject import Check

CHECKS: tuple[Check, ...] = (references, models, drafting, memory)
