"""What every GPU and the RAM will hold, from a model's header alone."""

from llamaherd.memory.estimate import DraftUse, Memory, Use, estimate
from llamaherd.memory.placement import Placement

__all__ = ["DraftUse", "Memory", "Placement", "Use", "estimate"]
