"""What is found wrong with a YAML file as it is read."""

from __future__ import annotations

from llamaherd.diagnostics.rule import Rule

UNREADABLE = Rule(
    "LH001",
    "A file cannot be read.",
    why="""
    A file is not there, may not be read, is not UTF-8, or is not YAML. A recipe may also be too large, or hold
    nothing that is known here. The place is where the reader gave up: the mistake often stands a line earlier.
    """,
    example="""
    rig: attic
      connect: {host: attic.lan}
    """,
    way_out="""
    correct indentation, colons and quotes there. Quote values with `: ` or ` #` in them. Use spaces, not tabs. A
    recipe is a shell script, a systemd unit, a Compose file or a `.wslconfig`: give it by that name.
    """,
)


NO_RIG = Rule(
    "LH002",
    "A file holds no rig.",
    why="It is empty, or its top is a list or a text rather than a mapping.",
    example="""
    - attic
    - cellar
    """,
    way_out="""
    start the file with `rig: NAME`. Each `.yaml` and `.yml` file of an inventory's folder must be a rig, except
    `defaults.yaml`. Move other files elsewhere.
    """,
)


KEY_TWICE = Rule(
    "LH003",
    "A key stands twice in one mapping.",
    why="YAML readers usually keep the last one and drop the others without a word.",
    example="""
    instances:
      coder: {engine: main, model: 35b, context: 8192, port: 8001}
      coder: {engine: main, model: 35b, context: 4096, port: 8002}
    """,
    way_out="keep one of the two, or rename one.",
)


HARMFUL_CHARACTER = Rule(
    "LH013",
    "A text holds a character that it may not hold, such as a line end in a name.",
    why="""
    Control characters, ends of lines, and characters that turn the order of a text round mean something to a
    shell, to systemd, to YAML or to a terminal. A carriage return in a variable would begin a new line of the
    unit, and root would obey that line.
    """,
    example=r"""
    instance_defaults:
      environment: {GREETING: "a\rb"}
    """,
    after="""
    Line ends and tabs may stand where texts have several lines: in `extra_args`, in values of `environment`, and
    in the texts of `overlay`. Names, paths, addresses and all else may not hold them.
    """,
    way_out="take the character out. It may be invisible, and copied along: the message has its number in Unicode.",
)


TOO_LARGE = Rule(
    "LH014",
    "A file stands for more values than a fleet could have.",
    why="""
    An alias (`*name`) repeats what its anchor (`&name`) marks, and aliases of aliases multiply: nine lines can
    stand for a billion values. So can defaults that are spread over very many instances.
    """,
    example="""
    $ herd check
    /home/tom/fleet/duo.yaml:9:5: error LH014: this stands for more than 10,000 values, with all that aliases stand for
      help: write what is meant without `*`, or in several files
    """,
    language="console",
    after="""
    A file of an inventory may have up to 1 MiB, 10,000 values and 100 levels. A lock may have 3 MiB and 200,000
    values. Of a recipe, `herd` reads the first 200 servers or services.
    """,
    way_out="write what is meant without aliases, or as rigs in several files.",
)
