"""`herd add`: declare an instance of a model where it fits on a rig."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import complete_rigs, inventory_option, json_option, yes_option


@click.command()
@click.argument("model", metavar="MODEL")
@click.option("--rig", metavar="RIG", shell_complete=complete_rigs, help="The rig. Default: where it fits best.")
@click.option("--name", metavar="INSTANCE", help="Name of the instance. Default: that of the model.")
@click.option("--context", type=click.IntRange(256, 1 << 31), metavar="N", help="Tokens. Default: what fits.")
@click.option("--port", type=click.IntRange(1024, 65535), metavar="N", help="Port. Default: the next free one.")
@click.option("--on", metavar="GPU[,GPU]|cpu", help="GPUs of the rig. Default: the fewest with enough memory.")
@yes_option("Do not prompt before writing.")
@click.option("--dry-run", is_flag=True, help="Show the lines, and write nothing.")
@inventory_option
@json_option
@click.pass_obj
def add(inventory: Path | None, /, **options: Any) -> None:
    """Declare an instance of a model where it fits on a rig.

    MODEL is a repository of the hub with its quant, such as hf.co/OWNER/NAME:QUANT or OWNER/NAME:QUANT, the URL of a
    GGUF file there, or a GGUF file of this machine. Without a quant, `herd add` takes one with about 4 bits.

    Only the header of the model is fetched. From it and from the declared instances, `herd add` computes which GPUs
    have room, and how much context, up to 131072 tokens. It prints the lines, prompts once, and writes them to the file
    of the rig; all other lines stay unchanged. It also writes herd.lock. `herd up` then starts the server.

    \b
    Exit codes:
      0  it fits; the lines are written, or shown with --dry-run
      1  it does not fit, or was not found or confirmed; nothing is written
      2  wrong usage, or an unusable inventory

    \b
    Examples:
      herd add hf.co/unsloth/Qwen3-4B-GGUF:Q4_K_M
      herd add unsloth/Qwen3-4B-GGUF --rig duo --name helper --context 32768
      herd add unsloth/Qwen3-4B-GGUF:Q8_0 --on cpu --dry-run
    """
    from llamaherd.cli.new_instance import AddOptions, run_add  # late: the help needs none of it

    run_add(AddOptions(inventory, **options))
