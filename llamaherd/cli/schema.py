"""`herd schema`: the JSON Schemas of an inventory's files."""

from __future__ import annotations

import click


@click.command()
@click.argument("kind", type=click.Choice(["rig", "defaults"]), default="rig")
def schema(kind: str) -> None:
    """Print the JSON Schema of a rig's file, or of defaults.yaml, for editors.

    \b
    Examples:
      herd schema > rig.schema.json
      herd schema defaults > defaults.schema.json
    """
    from llamaherd.inventory.json_schema import schema_text

    click.echo(schema_text(kind), nl=False)
