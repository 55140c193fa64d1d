"""Groups behind a gateway: models that one server has in turn."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.fleet.context import FleetContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule

SWAPS_BESIDE = Rule(
    "LH325",
    "A model of a group has other servers, too.",
    why="""
    The server of a group has several models, and takes a number of requests for all of them together. So these wait in
    one queue, and HAProxy counts no servers of two queues together: a model is in one alone.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:6:34: error LH325: `coder` is served by `attic.coder` of group `card`, and by another server
      help: let `coder` have that one alone, and name a model with the others as its `fallback`
    """,
    language="console",
    way_out="""
    serve the model by the instance of the group alone, or by others alone. `fallback` names a model that answers while
    the group's server does not.
    """,
)


def served_in_turn(subject: FleetContext) -> Iterator[Finding]:
    """Models of which one server is a group's, and not all."""
    served = list(subject.served())
    for each in served:
        own = {(one.rig.rig, one.rig.server_of(one.name)) for one in served if one.model == each.model}
        if each.instance.group and len(own) > 1:
            message = f"`{each.model}` is served by `{each.rig.rig}.{each.name}` of group `{each.instance.group}`, "
            message += "and by another server"
            help_ = f"let `{each.model}` have that one alone, and name a model with the others as its `fallback`"
            yield SWAPS_BESIDE.at(each.place, message, help_)
