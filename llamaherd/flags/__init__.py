"""What the engines' servers understand, by version: catalogues of flags, and checks of what is given to them."""

from llamaherd.flags.arguments import check
from llamaherd.flags.cmake import check_options
from llamaherd.flags.codes import CODES
from llamaherd.flags.environment import check_environment
from llamaherd.flags.load import assumed, catalogue, catalogues
from llamaherd.flags.model import Catalogue, Flag, Problem, Value

__all__ = [
    "CODES",
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
