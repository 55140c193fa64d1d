"""What is found wrong with a `.wslconfig`, as a file or as settings of an inventory."""

from __future__ import annotations

from llamaherd.diagnostics.rule import Rule

UNKNOWN_SETTING = Rule(
    "LH147",
    "`.wslconfig` knows no such section or key.",
    why="WSL ignores it, with a warning that nobody sees. `gpuMemory` is one of them: WSL lends the whole GPU.",
    example="""
    [wsl2]
    memory=64GB
    gpuMemory=24GB
    """,
    language="ini",
    way_out="""
    write the nearest key, or put it into the section it belongs to, or leave it out. The same is said of
    `host.wsl.settings` in an inventory.
    """,
)


WRONG_SETTING = Rule(
    "LH148",
    "WSL does not read a value in a `.wslconfig`.",
    why="Or the value does nothing beside the mode of networking.",
    example="""
    [wsl2]
    memory=64 GB
    """,
    language="ini",
    way_out="""
    do as the help line says. Sizes are whole numbers and, without a blank, K, M, G or T, with a B behind it or
    without. Switches are `true` or `false`. Backslashes are doubled.
    """,
    sometimes=("warning",),
)


WRONG_TIMEOUT = Rule(
    "LH283",
    "A time after which WSL ends is not what it looks like.",
    why="""
    `vmIdleTimeout` is in milliseconds, and it is the virtual machine's. The distribution in it ends by itself
    some 15 s after its last terminal is closed, and its servers with it, unless `instanceIdleTimeout` under
    `[general]` says otherwise.
    """,
    example="""
    [wsl2]
    vmIdleTimeout=-1
    """,
    language="ini",
    way_out="write both keys. `herd up` writes both where `keep_alive` is on.",
    severity="warning",
)
