"""Verify accounts and folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llamaherd.host.responses import ProbeOutputs
from llamaherd.layout import KEYS
from llamaherd.onhost.verification import Probe
from llamaherd.plan import Plan
from llamaherd.role.report import Check
from llamaherd.role.role import Judging, Verified
from llamaherd.text.numbers import parse_mode, parse_whole

_MAY_NOT_LOG_IN = ("nologin", "false", "")


_FOLDERS = (
    *("/etc/llamaherd", "/etc/llamaherd/keys"),
    *("/opt/llamaherd", "/opt/llamaherd/builds", "/opt/llamaherd/libexec", "/var/lib/llamaherd"),
)


def probes(_: Plan) -> Iterator[Probe]:
    """Yield probes of accounts and folders."""
    yield Probe("accounts", "", ("getent", "passwd"))
    yield Probe("accounts", "", ("getent", "group"))
    yield Probe("passwords", "", ("awk", "-F", ":", "$2 !~ /^[!*]/ { print $1 }", "/etc/shadow"))
    yield Probe("folders", "", ("stat", "-c", "%a %U %n", *_FOLDERS))


def judge(judging: Judging) -> Verified:
    """Return the checks of accounts and folders."""
    return Verified(checks=tuple(host_checks(judging.plan, judging.answers)))


def host_checks(plan: Plan, answers: ProbeOutputs) -> Iterator[Check]:
    """Yield a check of each: no login as a server, no further rights of it, and keys that only root writes."""
    if ("accounts", "") in answers:
        problems = list(_accounts(plan, answers["accounts", ""], answers.get(("passwords", ""), "").split("\n")))
        yield Check("accounts", not problems, _said(problems, f"{len(plan.accounts)} that cannot log in"))
    if ("folders", "") in answers:
        problems = list(_folders(answers["folders", ""]))
        yield Check("folders", not problems, _said(problems, "only root can write to keys and programs"))


def _said(problems: list[str], fine: str) -> str:
    return f"{'; '.join(problems)}: `herd up` mends that" if problems else fine


def _accounts(plan: Plan, said: str, passwords: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with accounts, by lines of /etc/passwd and /etc/group, and the accounts with a password."""
    lines = said.split("\n")
    rows = [line.split(":") for line in lines if line.count(":") in (3, 6)]
    users = {row[0]: row for row in rows if len(row) == 7}
    groups = [row for row in rows if len(row) == 4]
    own = {row[0]: row[2] for row in groups}
    for name in plan.accounts:
        if name not in users:
            yield f"there is no user {name}"
            continue
        if twins := [other for other, row in users.items() if other != name and row[2] == users[name][2]]:
            yield f"{name} has the number of {', '.join(twins)}"
        if parse_whole(users[name][2]) < 1000:
            _, _, _, group, *_, shell = users[name]
            if shell.rpartition("/")[2] not in _MAY_NOT_LOG_IN:
                yield f"{name} can log in ({shell})"
            if name in passwords:
                yield f"{name} has a password"
            members = [row[0] for row in groups if row[0] != name and name in row[3].split(",")]
            if others := [*([f"number {group}"] if own.get(name, group) != group else []), *members]:
                yield f"{name} is in group {', '.join(others)}"


def _folders(said: str) -> Iterator[str]:
    """Yield folders that differ, by lines of octal mode, owner and path."""
    for line in said.split("\n"):
        mode, _, rest = line.partition(" ")
        owner, _, path = rest.partition(" ")
        if not path:
            continue
        if owner != "root":
            yield f"{path} belongs to {owner}"
        if parse_mode(mode) & 0o022:
            yield f"others may write to {path} (mode {mode})"
        if path == str(KEYS) and parse_mode(mode) & 0o044:
            yield f"others may see which keys there are in {path} (mode {mode})"
