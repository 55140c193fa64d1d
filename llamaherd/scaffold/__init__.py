"""What `herd init` makes: the folder of a fleet, and the file of a rig from a look at its host."""

from __future__ import annotations

from llamaherd.scaffold.folder import EXAMPLE, FileOutcome, example_rig, fleet_files, holds_rigs, write_files
from llamaherd.scaffold.gpus import WrittenGpu, written_gpus
from llamaherd.scaffold.look import FoundGpu, FoundHost, LookError, checked_hardware, look, refuse_unfit
from llamaherd.scaffold.rig import connect_to, cuda_for, gpu_names, rig_name, rig_yaml, round_ram

__all__ = [
    "EXAMPLE",
    "FileOutcome",
    "FoundGpu",
    "FoundHost",
    "LookError",
    "WrittenGpu",
    "checked_hardware",
    "connect_to",
    "cuda_for",
    "example_rig",
    "fleet_files",
    "gpu_names",
    "holds_rigs",
    "look",
    "refuse_unfit",
    "rig_name",
    "rig_yaml",
    "round_ram",
    "write_files",
    "written_gpus",
]
