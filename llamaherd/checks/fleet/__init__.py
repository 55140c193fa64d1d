"""What can be known wrong about a fleet's own file. Each module has one kind of mistake."""

from llamaherd.checks.fleet.context import FleetContext
from llamaherd.checks.fleet.registry import FLEET_CHECKS

__all__ = ["FLEET_CHECKS", "FleetContext"]
