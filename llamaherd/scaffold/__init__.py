"""What `herd init` makes: the folder of a fleet, and the file of a rig from a look at its host."""

from __future__ import annotations

from llamaherd.scaffold.cards import WrittenCard, written_cards
from llamaherd.scaffold.folder import EXAMPLE, Outcome, example_rig, fleet_files, holds_rigs, write
from llamaherd.scaffold.look import FoundGpu, Look, LookError, answer, check, look, question
from llamaherd.scaffold.rig import card_names, cuda_for, reached, rig_name, rig_yaml, round_ram

__all__ = [
    "EXAMPLE",
    "FoundGpu",
    "Look",
    "LookError",
    "Outcome",
    "WrittenCard",
    "answer",
    "card_names",
    "check",
    "cuda_for",
    "example_rig",
    "fleet_files",
    "holds_rigs",
    "look",
    "question",
    "reached",
    "rig_name",
    "rig_yaml",
    "round_ram",
    "write",
    "written_cards",
]
