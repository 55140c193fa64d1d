"""What is found wrong with a unit."""

from __future__ import annotations

from llamaherd.diagnostics.rule import Rule

SKIPPED_BY_SYSTEMD = Rule(
    "LH190",
    "systemd skips a section, key or value of a unit.",
    why="""
    Names are compared with systemd's own table of version 257. It also skips a line that is neither a section nor
    a setting.
    """,
    example="""
    [Service]
    User=llama
    ExecStart=/usr/bin/llama-server -m /srv/qwen.gguf --port 8080
    StartLimitIntervalSec=300
    """,
    language="ini",
    way_out="put the key under the section that it belongs to.",
    sometimes=("warning",),
)

SHELL_IN_UNIT = Rule(
    "LH191",
    "A unit has shell syntax, and systemd runs no shell.",
    why="""
    Pipes, `&&`, redirections and `~` reach the program as arguments. A comment stands on a line of its own:
    behind a value it is a part of it.
    """,
    example="""
    [Service]
    User=llama
    ExecStart=/usr/bin/llama-server -m /srv/qwen.gguf --port 8080 >> /var/log/llama.log
    """,
    language="ini",
    way_out="leave it out; the journal keeps what the server prints.",
)

NEVER_STARTED = Rule(
    "LH192",
    "systemd would refuse the service, or never take it for started.",
    why="""
    llama-server and vLLM do not call sd_notify and stay in the foreground. A service has one `ExecStart`, unless
    it is `oneshot`.
    """,
    example="""
    [Service]
    Type=notify
    User=llama
    ExecStart=/usr/bin/llama-server -m /srv/qwen.gguf --port 8080
    """,
    language="ini",
    way_out="write `Type=exec`, and ask `/health` for readiness.",
)

UNIT_VARIABLE = Rule(
    "LH193",
    "A variable of a unit is not what it looks like.",
    why="""
    `${NAME}` is put in only in command lines, and only if `Environment=` or `EnvironmentFile=` sets it. A value
    with blanks needs quotes around the whole assignment.
    """,
    example="""
    [Service]
    User=llama
    ExecStart=/usr/bin/llama-server -m ${MODEL} --port 8080
    """,
    language="ini",
    way_out="set the variable, or write the value itself.",
    sometimes=("warning",),
)

OUT_OF_SIGHT = Rule(
    "LH194",
    "A service cannot see a file, a device or the network that it needs.",
    why="""
    `ProtectHome=`, `PrivateTmp=` and `PrivateDevices=` hide; a relative path is looked for in `/` without
    `WorkingDirectory=`.
    """,
    example="""
    [Service]
    ProtectHome=true
    User=llama
    ExecStart=/usr/bin/llama-server -m /home/tom/qwen.gguf --port 8080
    """,
    language="ini",
    way_out="let the file lie where the service sees it, or name its folder in `BindReadOnlyPaths=`.",
)
