"""`herd init`, `herd add` and `herd import`: create a fleet, and declare the instances of its rigs."""

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


@click.command()
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--from", "host", metavar="[USER@]HOST", help="Inspect this host and write its rig; `local` is this machine."
)
@click.option("--user", help="With --from: the SSH user. Default: as SSH is configured.")
@click.option("--port", type=click.IntRange(1, 65535), help="With --from: the SSH port. Default: as SSH is configured.")
@click.option("--name", help="With --from: the name of the rig. Default: the name in --from.")
@click.option("--example", metavar="NAME", help="Write this example instead: duo, household or another.")
def init(
    folder: Path | None, host: str | None, user: str | None, port: int | None, name: str | None, example: str | None
) -> None:
    """Create a fleet folder with a first rig.

    The rig is an example or, with --from, describes an existing host, with the largest model of a few known ones that
    fits its GPU. Existing files are kept. HOST is a name, an address, or a `Host` of ~/.ssh/config. The inspection is
    one SSH connection and changes nothing. If the host's key is unknown, `ssh` shows its fingerprint and prompts you.
    A host with fewer than four cores gets the programs that the engine's authors have built, if they run there.
    If DIR has results of `herd tune` on the same GPUs with as many cores, the rig's file contains the best settings as
    a comment.

    Without DIR, the files are written to the fleet folder that you are in, or to the current folder if it is empty.

    \b
    Examples:
      herd init --from tom@duo.lan                  a rig with duo's hardware
      herd init ~/fleet --from local --name attic   this machine
      herd init ~/fleet                             an example to edit
      herd init ~/fleet --example household         two rigs with a gateway
    """
    from llamaherd.cli.fleet_folder import FirstRig, create_fleet  # late: the help needs none of it

    if host is not None and example is not None:
        raise click.UsageError("--from and --example both write the first rig; leave out one of them")
    create_fleet(folder, FirstRig(host, user, port, name, example))
