"""Base's part of a host's state: what kind of machine it is, its room, and who may do what there."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.host.state import FolderState, HostState, UserState
from llamaherd.layout import FETCHER, OURS
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.text.numbers import parse_mode, parse_whole
from llamaherd.wsl.state import WslState


def inspect(plan: Plan) -> str:
    """Ask for the system, the machine under it, packages, accounts and our folders."""
    return render(
        "base/inspect.sh.j2",
        packages=plan.packages,
        users=plan.accounts,
        repositories=plan.repositories,
        ours=OURS,
        fetcher=FETCHER,
        has_cards=plan.has_cards,
        root="",
    )


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    return _system(state, kind, fields) or _accounts(state, kind, fields)


def _system(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """What kind of machine it is, and its room. Returns whether the line was about that."""
    match kind, fields:
        case "os", [value]:
            state.os = value
        case "arch", [value]:
            state.arch = value
        case "systemd", [_]:
            state.systemd = True
        case "free", [folder, size, device]:
            state.free = (folder, parse_whole(size), device)
        case "address", [address]:
            state.addresses.append(address)
        case "listens", [port]:
            state.listening.add(int.from_bytes(bytes.fromhex(port)))
        case "machine", [what, *rest]:
            state.machine.tell(what, rest)
        case "wsl", ["release", release]:
            state.wsl = WslState(release)
        case _:
            return False
    return True


def _accounts(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Who may do what: packages, accounts, folders. Returns whether the line was about that."""
    match kind, fields:
        case "folder", [path, mode, owner]:
            state.folders[path] = FolderState(parse_mode(mode) & 0o777, owner)
        case "package", [name, status]:
            if status == "installed":
                state.packages.add(name)
        case "user", [name, shell, groups]:
            state.users[name] = UserState(shell, tuple(groups.split()))
        case "twin", [name, other]:
            state.twins[name] = other
        case "password", [name]:
            state.passwords.add(name)
        case "repository", [name, path]:
            state.repositories[name] = path
        case "fetcher", [fingerprint]:
            state.fetcher = fingerprint
        case _:
            return False
    return True
