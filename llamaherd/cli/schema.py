"""`herd schema`: print the JSON Schema of a file of the inventory, of a result, or of what `--json` prints."""

from __future__ import annotations

import click

from llamaherd.cli.envelope import envelope_schema_text
from llamaherd.inventory.json_schema import schema_text
from llamaherd.measure.results.store import result_schema_text


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
    others = {"result": result_schema_text, "output": envelope_schema_text}
    click.echo(others[kind]() if kind in others else schema_text(kind), nl=False)
