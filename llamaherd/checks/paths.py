"""Paths in arguments and variables that a server does not get at: units and containers are closed around it.

templates/serve/llama-server.service.j2 (ProtectSystem=strict, ProtectHome=, PrivateTmp=) and
templates/serve/compose.yaml.j2 (read_only, tmpfs, volumes): /tmp is the server's own, and all else is not written to.
"""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.checks.whole import Whole, whole
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines import flags_of, reads_gguf
from llamaherd.engines.flags.meant import Option

WRITTEN = (
    "--log-file",
    "--logdir",
    "--slot-save-path",
    "--log-prompts-dir",
    "--lookup-cache-dynamic",
    "--sql-save-file",
)
READ = (
    *("--chat-template-file", "--grammar-file", "--json-schema-file", "--lookup-cache-static", "--mmproj"),
    *("--lora", "--control-vector", "--model-draft", "--spec-draft-model", "--media-path", "--path"),
    *("--ui-config-file", "--mcp-servers-config", "--models-preset", "--models-dir", "--system-prompt-file"),
    *("--banned-string-file", "--context-file"),
)
OWN = ("/tmp/", "/var/tmp/")
"""Where a server may write; what it wrote there goes with it."""
HOMES = ("/home/", "/root/", "/run/user/")


OUT_OF_REACH = Rule(
    "LH278",
    "A server cannot reach a path.",
    why="""
    A server runs in a closed place: a unit with `ProtectSystem=strict`, `ProtectHome=yes` and `PrivateTmp=yes`,
    or a read-only container. It writes to its own `/tmp` alone, which is gone when it ends. A unit shows it
    nothing of `/home`, `/root` and the host's `/tmp`. It starts in `/`, and relative paths count from there.

    So saved slots never pass from one build to another, at a switch or a rollback: llama.cpp v0.4.0 and v1.0.0 do
    not load what builds before them saved.
    """,
    example="""
    instances:
      coder: {extra_args: [--log-file, /var/log/llama.log]}
    """,
    way_out="""
    leave logs out: the journal has them. Save slots in `/tmp` (`--slot-save-path /tmp`). Put templates and
    adapters into a folder such as `/srv`.
    """,
)


def paths(subject: RigContext) -> Iterator[Finding]:
    """What a server cannot write to, or does not see."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        known = flags_of(engine) if engine else None
        if known is None or not reads_gguf(engine) or not (instance.extra_args or instance.environment):
            continue
        each = whole(subject, name, instance, known)
        contained = instance.backend == "compose"
        for option in _own(each, WRITTEN):
            if said := _not_written(name, option, contained=contained):
                yield OUT_OF_REACH.at(each.place(option), *said)
        for option in _own(each, READ) if not contained else ():
            if said := _not_seen(option):
                yield OUT_OF_REACH.at(each.place(option), *said)


def _own(each: Whole, names: tuple[str, ...]) -> tuple[Option, ...]:
    """Those of some options that are written word for word."""
    found = (option for name in names for option in each.told.every(name) if each.key(option) is None)
    return tuple(dict.fromkeys(found))


def _not_written(name: str, option: Option, *, contained: bool) -> tuple[str, str] | None:
    if f"{option.value}/".startswith(OWN):
        return None
    where = "container" if contained else "unit"
    message = f"{option}: the {where} lets its server write to `/tmp` alone, which is its own"
    if option.flag.spellings[-1] in ("--log-file", "--logdir"):
        shown = f"docker logs llama-{name}" if contained else f"journalctl -u llama-{name}"
        return message, f"leave it out: `{shown}` shows what the server says"
    return message, "name a path in `/tmp`, whose files last as long as the server runs; or leave it out"


def _not_seen(option: Option) -> tuple[str, str] | None:
    value = option.value.partition(",")[0]
    if value and not value.startswith("/"):
        return f"{option} is looked for in `/`, where the unit starts its server", "write the whole path, from `/` on"
    for prefix in (*HOMES, *OWN):
        if f"{value}/".startswith(prefix):
            message = f"{option}: the unit hides `{prefix.rstrip('/')}` of the host from its server"
            return message, "let the file lie elsewhere, such as in `/srv`, where its user may read it"
    return None
