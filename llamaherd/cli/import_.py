"""`herd import`: declare the servers of a script, a unit or another file as instances of a rig."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import complete_rigs, inventory_option, json_option, yes_option


@click.command("import")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--rig", metavar="RIG", shell_complete=complete_rigs, help="The rig. Default: the only one.")
@click.option(
    "--from", "host", metavar="[USER@]HOST", help="Inspect this host and write a new rig; `local` is this machine."
)
@click.option(
    "--model",
    "models",
    metavar="[NAME=]MODEL",
    multiple=True,
    help="The source of a model that FILE names by a path alone, as `herd add` takes it. Repeatable.",
)
@yes_option("Do not prompt before writing.")
@click.option("--dry-run", is_flag=True, help="Show the lines, and write nothing.")
@inventory_option
@json_option
@click.pass_obj
def import_(inventory: Path | None, /, **options: Any) -> None:
    """Declare the servers of a script, a unit or another file.

    FILE is what `herd check` reads as a recipe: a script that starts a server, a unit, a Quadlet, a Dockerfile, a
    Compose file, an Ansible play, a preset file, a config.yaml of llama-swap. It may also be the output of
    `ollama show --modelfile`, or of `ollama list`, or a folder of LM Studio: these become models. `-` is standard
    input.

    Each server becomes an instance of the rig, with the same arguments, environment, GPUs, processors and port. A
    comment above it lists what differs, and why. Models of one llama-swap or router become a group. All other lines
    of the rig's file stay unchanged. With --from, the rig is a new one, with the hardware of that host.

    A model's source is known if FILE has a repository, or a path that exists here. For another path, give --model.

    \b
    Exit codes:
      0  the lines are written, or shown with --dry-run
      1  FILE has no server, a model is unknown, or it does not fit or was not
         confirmed; nothing is written
      2  wrong usage, or an unusable inventory or FILE

    \b
    Examples:
      herd import start.sh
      herd import start.sh --from tom@duo.lan
      herd import compose.yaml --rig duo --model unsloth/Qwen3-4B-GGUF:Q4_K_M
      herd import config.yaml --model small=unsloth/Qwen3-4B-GGUF:Q8_0 --dry-run
      ollama list | herd import - --rig duo --dry-run
    """
    from llamaherd.cli.import_run import ImportOptions, run_import  # late: the help needs none of it

    run_import(ImportOptions(inventory, **options))
