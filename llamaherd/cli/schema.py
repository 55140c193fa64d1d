"""`herd schema` and `herd completion`: print JSON Schemas for editors, and the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from llamaherd.cli.envelope import envelope_schema_text


@click.command()
@click.argument("kind", type=click.Choice(["rig", "defaults", "fleet", "result", "output"]), default="rig")
def schema(kind: str) -> None:
    """Print the JSON Schema of a file, for editors.

    The kinds are a rig's file, defaults.yaml, fleet.yaml, the result of a measurement, and the output of commands with
    --json.

    \b
    Examples:
      herd schema > rig.schema.json
      herd schema defaults > defaults.schema.json
      herd schema fleet > fleet.schema.json
      herd schema output > output.schema.json
    """
    from llamaherd.inventory.json_schema import schema_text  # late: the help needs none of it
    from llamaherd.measure.results.store import result_schema_text

    others = {"result": result_schema_text, "output": envelope_schema_text}
    click.echo(others[kind]() if kind in others else schema_text(kind), nl=False)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options, rigs and instances.

    \b
    Example:
      herd completion bash >> ~/.bashrc
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    click.echo(kind(context.find_root().command, {}, "herd", "_HERD_COMPLETE").source())
