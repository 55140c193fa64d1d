"""`herd schema`: print the JSON Schema of a file of the inventory, or of a result."""

from __future__ import annotations

import click

from llamaherd.inventory.json_schema import schema_text
from llamaherd.measure.results.document import result_schema_text


@click.command()
@click.argument("kind", type=click.Choice(["rig", "defaults", "fleet", "result"]), default="rig")
def schema(kind: str) -> None:
    """Print the JSON Schema of a file, for editors.

    The kinds are a rig's file, defaults.yaml, fleet.yaml, and the result of a measurement.

    \b
    Examples:
      herd schema > rig.schema.json
      herd schema defaults > defaults.schema.json
      herd schema fleet > fleet.schema.json
    """
    click.echo(result_schema_text() if kind == "result" else schema_text(kind), nl=False)
