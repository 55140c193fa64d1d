"""What is found wrong with the roles that a fleet brings."""

from __future__ import annotations

from llamaherd.diagnostics.rule import Rule

OWN_ROLE = Rule(
    "LH290",
    "A role of the fleet's own cannot be used.",
    why="""
    A folder `roles/<name>/` beside the rigs is a role: Python that `herd` loads. It has no `ROLE`, is called otherwise
    than its folder or like one of ours, or ends in an error: as it is loaded, or as one of its functions runs. Or a
    function gives what it must not, such as a list where it is asked for text.
    """,
    example="""
    $ herd check
    /home/tom/fleet/roles/motd/__init__.py:1:1: error LH290: role `motd` has no ROLE
      help: give it one: `ROLE = Role(name="motd", …)`
    """,
    language="console",
    way_out="[roles.md](../roles.md) has a whole one, as an example.",
)
