"""Rules for when a systemd service starts and restarts: at boot, after a crash, on demand."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.diagnostics.findings import Finding, Rule
from llamaherd.recipes.programs import ServerCommand
from llamaherd.recipes.unit_rules import NEVER_STARTED, StartedUnit, swallowed
from llamaherd.recipes.units import known_keys, words
from llamaherd.text.numbers import whole_number


def check_start(started: StartedUnit, server: ServerCommand) -> Iterator[Finding]:
    """Yield the faults of the starts and restarts of a server."""
    yield from _restarts(started)
    yield from _at_boot(started)
    yield from _again(started)
    yield from _early_requests(started, server)
    yield from _other_users(started)
    yield from _processors(started, server)


def _whole(started: StartedUnit) -> bool:
    """Return whether the whole unit is given, so that absent settings are really missing."""
    sections = {name for name, _ in started.unit.sections}
    if swallowed(started.words) is not None:
        return False
    return not (started.partial or started.generated) and "Unit" in sections and sections <= set(known_keys())


NOT_AT_BOOT = Rule(
    "LH268",
    "A service is not started at boot, or not again after a crash.",
    why="""
    `systemctl enable` makes the links that `[Install]` names; `Restart=` decides when systemd starts a service again.
    """,
    example="""
    [Unit]
    Description=llama

    [Service]
    User=llama
    ExecStart=/usr/bin/llama-server -m /srv/a.gguf --port 8080
    Restart=on-failure
    RestartSec=5
    """,
    language="ini",
    fix="add `WantedBy=multi-user.target` under `[Install]`, and `Restart=on-failure`.",
    severity="warning",
    sometimes=("note",),
)


def _at_boot(started: StartedUnit) -> Iterator[Finding]:
    """Report units that do not start at boot: `systemctl enable` creates the links that [Install] names."""
    wanted = started.unit.last("WantedBy", "Install")
    pulled = wanted or any(started.unit.all(key, "Install") for key in ("RequiredBy", "UpheldBy", "Also"))
    start = started.unit.last("ExecStart")
    if not pulled and start and _whole(started):
        message = "nothing starts this at boot: `WantedBy=` under `[Install]` is missing"
        yield started.finding(NOT_AT_BOOT, start.start, message, "add `WantedBy=multi-user.target` there", "note")
    elif wanted and started.under_user and wanted.text in {"multi-user.target", "graphical.target"}:
        message = f"a user's manager has no `{wanted.text}`: this does not start by itself"
        yield started.finding(NOT_AT_BOOT, wanted.at, message, "write `WantedBy=default.target`")


def _again(started: StartedUnit) -> Iterator[Finding]:
    """Report servers that systemd does not start again after a crash (man systemd.service, Restart=)."""
    restart, start = started.unit.last("Restart"), started.unit.last("ExecStart")
    if restart is None and start and _whole(started):
        message = "a server that crashes stays down: `Restart=` is missing"
        yield started.finding(NOT_AT_BOOT, start.start, message, "add `Restart=on-failure` and `RestartSec=5`", "note")
    elif restart and restart.text == "on-success":
        message = "a server that crashes stays down: `on-success` restarts it only after a clean exit"
        yield started.finding(NOT_AT_BOOT, restart.at, message, "write `Restart=on-failure`")


def _early_requests(started: StartedUnit, server: ServerCommand) -> Iterator[Finding]:
    """Report requests in ExecStartPost, which runs as soon as the process exists: a model takes longer to load."""
    if started.unit.value("Type") in {"notify", "forking", "oneshot"} or server.contained:
        return
    for setting in started.unit.all("ExecStartPost"):
        line = [str(word) for word in words(setting.value, {})]
        first = line[0].lstrip("@!:+|-").rpartition("/")[2] if line else ""
        optional = setting.text.startswith("-")
        if first in {"curl", "wget"} and "--retry" not in setting.text and not optional:
            message = "this requests at once, while the server still loads: it fails, and systemd ends the service"
            way_out = "add `--retry 60 --retry-delay 5 --retry-connrefused`" if first == "curl" else "leave it out"
            yield started.finding(NEVER_STARTED, setting.at, message, way_out)


def _other_users(started: StartedUnit) -> Iterator[Finding]:
    user = started.unit.last("User")
    if started.under_user and user:
        message = "a user's manager starts services only as that user: the service fails with 216/GROUP"
        yield started.finding(NEVER_STARTED, user.at, message, "leave `User=` out")
    elif user and user.text not in {"", "root", "0"} and started.words and str(started.words[0]).endswith("/sudo"):
        message = f"sudo requires a password of `{user.text}`, and a service has no terminal for it"
        yield started.finding(
            NEVER_STARTED, started.words[0].start, message, "start the server itself: `User=` sets the user"
        )


FEWER_PROCESSORS = Rule(
    "LH269",
    "A server has more threads than its service has processors.",
    why="`CPUAffinity=`, `AllowedCPUs=` and `CPUQuota=` limit all threads together: those that wait stop the others.",
    example="""
    [Unit]
    Description=llama

    [Service]
    User=llama
    CPUAffinity=0-7
    ExecStart=/usr/bin/llama-server -m /srv/a.gguf --port 8080 -t 16
    Restart=on-failure
    RestartSec=5

    [Install]
    WantedBy=multi-user.target
    """,
    language="ini",
    fix="write at most as many threads as there are processors.",
    severity="warning",
)


def _processors(started: StartedUnit, server: ServerCommand) -> Iterator[Finding]:
    """Report more threads than the service may use processors: they wait for each other."""
    threads = server.value("-t", "--threads")
    count = whole_number(str(threads), 9999) if threads else None
    if threads is None or count is None:
        return
    for key in ("CPUAffinity", "AllowedCPUs"):
        setting = started.unit.last(key)
        number = _counted(setting.text) if setting else 0
        if 0 < number < count:
            message = f"`-t {threads}` are more threads than the {number} processors of `{key}=`"
            yield started.finding(FEWER_PROCESSORS, threads.start, message, f"write {number} at most")
    quota = re.fullmatch(r"(\d{1,6})%", started.unit.value("CPUQuota"))
    if quota and int(quota[1]) < 100 * count:
        message = f"`CPUQuota={quota[0]}` stops {threads} threads for a part of every tenth of a second"
        way_out = f"leave `CPUQuota=` out, and write `-t {max(1, int(quota[1]) // 100)}`"
        yield started.finding(FEWER_PROCESSORS, threads.start, message, way_out)


def _counted(text: str) -> int:
    """Return the number of processors in a list of numbers and ranges; 0 for an invalid list."""
    found: set[int] = set()
    for part in re.split(r"[\s,]+", text.strip(" ,")):
        limits = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part)
        if limits is None:
            return 0
        found |= set(range(int(limits[1]), int(limits[2] or limits[1]) + 1))
    return len(found)


GIVEN_UP = Rule(
    "LH196",
    "A server that cannot start is given up at once.",
    why="""
    `Restart=` waits a tenth of a second, and gives up after five starts in ten seconds, unless the unit sets other
    values.
    """,
    example="""
    [Service]
    User=llama
    ExecStart=/usr/bin/llama-server -m /srv/qwen.gguf --port 8080
    Restart=on-failure
    """,
    language="ini",
    fix="add `RestartSec=5`, and `StartLimitIntervalSec=` and `StartLimitBurst=` under `[Unit]`.",
    severity="note",
)


def _restarts(started: StartedUnit) -> Iterator[Finding]:
    restart = started.unit.last("Restart")
    limits = ("StartLimitIntervalSec", "StartLimitInterval", "StartLimitBurst")
    limited = any(started.unit.last(key, section) for key in limits for section in ("Unit", "Service"))
    if restart and restart.text != "no" and not limited and started.unit.last("RestartSec") is None:
        message = "a server that cannot start is tried five times within a second, and then never again"
        way_out = "add `RestartSec=5`, and `StartLimitIntervalSec=` under `[Unit]`"
        yield started.finding(GIVEN_UP, restart.at, message, way_out)
