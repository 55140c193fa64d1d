"""The process of a server by /proc: its arguments, variables, program, user and groups."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from llamaherd.onhost.serving import ServingState
from llamaherd.onhost.system import System
from roles.serve.onhost.inspected import PlannedUnit

_MOST_PORT = 65535
_UNSPECIFIED = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where a server that listens on all addresses of a kind is reached from its own host."""


def valid_pid(text: str) -> str:
    """Return the id of a process; empty where there is none, which systemd and Docker report as 0."""
    return text if text.isascii() and text.isdecimal() and int(text) else ""


def arguments(pid: str, system: System) -> list[str]:
    """Return the arguments of a process; nothing where it has ended."""
    return (system.read(f"/proc/{pid}/cmdline") or "").split("\0")


def option(words: Sequence[str], name: str) -> str:
    """Return what a process was given as `--name`: the last one counts."""
    values = [value for word, value in pairwise(words) if word == f"--{name}"]
    return values[-1] if values else ""


def port_number(text: str) -> int | None:
    """Return the number of a port; None where a text is none."""
    number = int(text) if re.fullmatch("[0-9]{1,5}", text) else 0
    return number if 0 < number <= _MOST_PORT else None


def environment(pid: str, system: System) -> dict[str, str] | None:
    """Return the variables that a process was started with; None where it has ended."""
    text = system.read(f"/proc/{pid}/environ")
    if text is None:
        return None
    return {name: value for name, found, value in (each.partition("=") for each in text.split("\0")) if found}


def health_url(address: str, port: int, path: str) -> str:
    """Return the URL of a server's health, where it listens."""
    host = _UNSPECIFIED.get(address, address)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"


def other_variables(pid: str, declared: Sequence[str], strange: str, system: System) -> str:
    """Return names of variables that a process has otherwise than declared, or should not have at all."""
    has = environment(pid, system)
    if has is None:
        return ""
    wanted = {name: value for name, _, value in (each.partition("=") for each in declared)}
    names = {name for name, value in wanted.items() if has.get(name) != value}
    names |= {name for name in has.keys() - wanted.keys() if strange and re.search(strange, name)}
    return " ".join(sorted(names))


def process_state(pid: str, unit: PlannedUnit, users: Mapping[str, str], system: System) -> ServingState:
    """Return how the process of a unit differs from the planned one; nothing where it has ended.

    `users` are numbers of accounts, by name.
    """
    text = system.read(f"/proc/{pid}/status")
    if not text:
        return ServingState()
    status = dict(line.split(":\t", 1) for line in text.split("\n") if ":\t" in line)
    number = next(iter(status.get("Uid", "").split()), "")
    own = next(iter(status.get("Gid", "").split()), "")
    return ServingState(
        argv=system.digest([f"/proc/{pid}/cmdline"]),
        replaced="" if system.same_file(f"/proc/{pid}/exe", unit.program) else unit.program,
        # What it was given when it started stays its own.
        user=number if users.get(unit.user, number) != number else "",
        groups=" ".join(each for each in status.get("Groups", "").split() if each != own),
        variables=other_variables(pid, unit.variables, unit.strange_variables, system),
    )
