"""What every GPU and the RAM will hold, from a model's header alone."""

from llamaherd.memory.estimate import estimate
from llamaherd.memory.placement import Placement
from llamaherd.memory.use import DraftUse, Memory, Use

__all__ = ["DraftUse", "Memory", "Placement", "Use", "estimate"]
