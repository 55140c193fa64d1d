"""`herd schema`: the JSON Schemas of an inventory's files, and of results."""

from __future__ import annotations

import click


@click.command()
@click.argument("kind", type=click.Choice(["rig", "defaults", "fleet", "result"]), default="rig")
def schema(kind: str) -> None:
    """Print the JSON Schema of a file, for editors.

    It is that of a rig's file, of defaults.yaml, of fleet.yaml, or of a measurement's result.

    \b
    Examples:
      herd schema > rig.schema.json
      herd schema defaults > defaults.schema.json
      herd schema fleet > fleet.schema.json
    """
    if kind == "result":
        from llamaherd.measure.results.document import result_schema_text

        click.echo(result_schema_text(), nl=False)
        return
    from llamaherd.inventory.json_schema import schema_text

    click.echo(schema_text(kind), nl=False)
