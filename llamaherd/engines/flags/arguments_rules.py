"""What is found wrong as arguments are read, from left to right as the engine does."""

from __future__ import annotations

from llamaherd.diagnostics.rule import Rule

SWALLOWS = Rule(
    "LH103",
    "A flag that needs a value takes the next flag for it.",
    why="So `--flash-attn --no-warmup` sets flash attention to `--no-warmup`.",
    example="""
    instances:
      coder: {extra_args: [--cache-ram, --no-slots]}
    """,
    way_out="write the value.",
)

MISSING_VALUE = Rule(
    "LH104",
    "A flag that needs a value is the last argument.",
    example="""
    instances:
      coder: {extra_args: [--cache-ram]}
    """,
    way_out="write the value.",
)


SWITCH_VALUE = Rule(
    "LH107",
    "A value stands after a switch, which takes none.",
    why="`--op-offload 1` is the usual case: the engine takes the 1 for an argument of its own, and does not start.",
    example="""
    instances:
      coder: {extra_args: [--op-offload, "1"]}
    """,
    way_out="leave the value out. To switch it off, write `--no-op-offload`.",
)

EQUALS = Rule(
    "LH108",
    "A flag and its value are written with `=`, and this engine wants two arguments.",
    example="""
    instances:
      coder: {extra_args: [--cache-ram=2048]}
    """,
    way_out="write two arguments: here `--cache-ram 2048`.",
)

STRAY = Rule(
    "LH109",
    "A word belongs to no flag.",
    example="""
    instances:
      coder: {extra_args: [--no-slots, please]}
    """,
    way_out="leave it out, or write the flag before it.",
)

TWICE = Rule(
    "LH110",
    "A flag is given twice, and the last one counts.",
    example="""
    instances:
      coder: {extra_args: [--cache-ram, "2048", --cache-ram, "4096"]}
    """,
    way_out="keep one.",
    severity="warning",
)


MANAGED = Rule(
    "LH116",
    "llamaherd sets a flag from a key of the inventory.",
    why="The engine would get it twice, and llamaherd would check and size something else than what runs.",
    example="""
    instances:
      coder: {extra_args: [--batch-size, "1024"]}
    """,
    after="Where the key says something else, that is an error (LH210).",
    way_out="write the key of the help line.",
    severity="warning",
)
