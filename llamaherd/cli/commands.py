"""The commands of `herd` in groups, with one line of help each; the module of a command is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Write an inventory": {
        "init": "Create a fleet folder with a first rig.",
        "check": "Report mistakes in an inventory or in a recipe.",
        "explain": "Print the page of a finding, or another page of docs/.",
        "fit": "Show whether a model fits on given GPUs, and how.",
        "lock": "Resolve tags and branches to exact versions.",
        "schema": "Print the JSON Schema of a file, for editors.",
    },
    "Change hosts": {
        "plan": "Show exactly what will be on each host.",
        "preflight": "Compare each host with the plan, without changing it.",
        "diff": "Show what `herd up` would change, and why.",
        "up": "Apply the plan to the hosts.",
        "history": "List the releases of each host.",
        "rollback": "Restore the servers of an earlier release.",
        "unlock": "Break the lock of a run on a host.",
        "models": "List the models on the hosts, or remove unused ones.",
        "prune": "Remove unused builds, images, models and caches.",
    },
    "Check and measure": {
        "status": "Show servers, streams, speeds and GPUs of the fleet.",
        "verify": "Check the running servers against the plan.",
        "bench": "Measure how fast a running server is.",
        "compare": "Compare two measurements, with a verdict on each speed.",
        "tune": "Search for settings that make an instance faster.",
        "report": "Show all measurements on one page.",
    },
    "Serve users": {
        "gateway": "Show the state of the gateway, or print its CA.",
        "users": "Manage gateway users and their API keys.",
        "clients": "Print the settings with which a program uses the gateway.",
        "drain": "Stop sending new requests to a server.",
        "ready": "Send requests to a drained server again.",
        "monitoring": "Write Grafana dashboards, or a timer that reports drift.",
    },
    "Shell": {
        "completion": "Print the completion script of a shell.",
    },
}


class LazyGroup(click.Group):
    """A group of commands in which the module of a command is imported when the command is called or shows its help.

    A command `name` is the attribute `name` of the module `llamaherd.cli.name`.
    """

    def __init__(self, **attributes: Any) -> None:
        """Add a placeholder with the line of help for each command: click suggests names from these."""
        rows = {name: click.Command(name, short_help=line) for group in GROUPS.values() for name, line in group.items()}
        super().__init__(commands=rows, **attributes)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is no command of this name."""
        if super().get_command(ctx, cmd_name) is None:
            return None
        command: click.Command = getattr(import_module(f"llamaherd.cli.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in groups, without importing them."""
        for title, lines in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([*lines.items()], col_max=max(map(len, self.commands)))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with a word, without importing the commands."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self.commands[name].short_help) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]
