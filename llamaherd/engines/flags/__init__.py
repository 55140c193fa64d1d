"""What the engines' servers understand, by version: catalogues of flags, and checks of what is given to them."""

from llamaherd.engines.flags.arguments import check
from llamaherd.engines.flags.cmake import check_options
from llamaherd.engines.flags.environment import check_environment
from llamaherd.engines.flags.load import assumed, catalogue, catalogues
from llamaherd.engines.flags.model import Catalogue, Flag, Problem, Value

__all__ = [
    "Catalogue",
    "Flag",
    "Problem",
    "Value",
    "assumed",
    "catalogue",
    "catalogues",
    "check",
    "check_environment",
    "check_options",
]
