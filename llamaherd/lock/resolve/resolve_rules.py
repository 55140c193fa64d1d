"""What is found wrong as names are resolved."""

from __future__ import annotations

from llamaherd.diagnostics.rule import Rule

UNRESOLVED = Rule(
    "LH034",
    "Something could not be resolved for the lock, or not quite.",
    why="""
    A repository, tag, branch, image, revision or file is not there, is not public, or could not be asked. Where
    there is an error, nothing is written. A `file` of this machine that is not there, or has another hash, is a
    warning: a rig can be planned without it. A note says that a name is both a tag and a branch: the tag is
    taken.
    """,
    example="""
    $ herd lock
    fleet/attic.yaml:12:31: error LH034: https://github.com/ggml-org/llama.cpp has no tag and no branch `b1143`
      help: nearest: `b11434`, `b11433`, `b11432`, `b11431`, `b11430`
    """,
    language="console",
    way_out="""
    do what the help line says. For gated models give a token as `HF_TOKEN` or by `hf auth login`. If a hub is
    down, try again later: what is in the lock stays usable.
    """,
    sometimes=(
        "warning",
        "note",
    ),
)


NOTHING_MOVES = Rule(
    "LH035",
    "`herd lock --upgrade` was given a name that no rig declares, or that is nothing that moves.",
    why="An engine at a full commit, an image by digest and a source archive never move: there is nothing to upgrade.",
    example="""
    $ herd lock --upgrade mian
    /home/tom/fleet:1:1: error LH035: no rig declares `mian`, or it is nothing that moves
      help: did you mean `main`?
    """,
    language="console",
    way_out="name an engine, an image or a model as the inventory does, or `all`.",
)
