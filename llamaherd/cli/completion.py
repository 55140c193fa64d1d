"""`herd completion`: print the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


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
