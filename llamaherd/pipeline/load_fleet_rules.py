"""What is found wrong with the files and the rigs of an inventory."""

from __future__ import annotations

from llamaherd.diagnostics.rule import Rule

NO_INVENTORY = Rule(
    "LH005",
    "There is no inventory.",
    why="The path does not exist, or the folder holds no `.yaml` or `.yml` file but `defaults.yaml`.",
    example="""
    $ herd -i ~/flete check
    /home/tom/flete:1:1: error LH005: the inventory does not exist
    """,
    language="console",
    way_out="""
    write one YAML file per rig there, or let `herd init` write the first. Or name the right place, by `-i` or in
    `HERD_INVENTORY`; without either it is `inventory/` in the current folder.
    """,
)


SAME_NAME = Rule(
    "LH006",
    "Two files declare rigs of one name.",
    why="Commands could not tell them apart.",
    example="""
    $ herd -i ~/fleet check
    /home/tom/fleet/cellar.yaml:1:6: error LH006: there are two rigs named `attic`
    """,
    language="console",
    way_out="rename one. The name is what `rig:` says, whatever the file is called.",
)


UNKNOWN_RIG = Rule(
    "LH007",
    "A rig is named that is not in the inventory.",
    why="An argument of `herd`, or pyinfra's `--limit`, names it. pyinfra alone would do nothing and report success.",
    example="""
    $ herd plan atic
    /home/tom/fleet:1:1: error LH007: there is no rig `atic`
      help: did you mean `attic`?
    """,
    language="console",
    way_out="use one of the names that the help line gives. `--limit` also takes patterns such as `attic*`.",
)


SAME_MACHINE = Rule(
    "LH008",
    "Two rigs are one machine.",
    why="Both say `connect: local`. Each would remove the other's instances.",
    example="""
    $ herd check
    /home/tom/fleet/two.yaml:2:10: error LH008: rig `two` is this machine, and so is rig `one`
      help: declare one rig per machine
    """,
    language="console",
    way_out="put the instances of both into one rig.",
)


NOT_SIZED = Rule(
    "LH162",
    "A model's file lies here and cannot be sized.",
    why="""
    Its header is read where it lies, until `herd lock` has written it down. No engine loads what cannot be read
    there.
    """,
    example="""
    $ herd check attic
    fleet/attic.yaml:15:17: warning LH162: model `35b` cannot be sized: it ends inside its header, at byte 4096
      help: name a GGUF file
    """,
    language="console",
    way_out="name a whole GGUF file. Of a set, name the first shard.",
    severity="warning",
)
