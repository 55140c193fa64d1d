"""What every card and the RAM will hold, from a model's header alone."""

from llamaherd.memory.estimate import estimate
from llamaherd.memory.placement import Placement
from llamaherd.memory.use import Draft, Memory, Use

__all__ = ["Draft", "Memory", "Placement", "Use", "estimate"]
