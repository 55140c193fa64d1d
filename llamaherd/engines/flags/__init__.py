"""The flags of the engines' servers by version: catalogues, and checks of arguments, variables and options."""

from llamaherd.engines.flags.arguments import check_arguments
from llamaherd.engines.flags.cmake import check_options
from llamaherd.engines.flags.definitions import Catalogue, Flag, Problem, Value, assumed, catalogue, catalogues
from llamaherd.engines.flags.environment import check_environment

__all__ = [
    "Catalogue",
    "Flag",
    "Problem",
    "Value",
    "assumed",
    "catalogue",
    "catalogues",
    "check_arguments",
    "check_environment",
    "check_options",
]
