"""Base's part of a host's state: what kind of machine it is, its disk, packages, accounts and llamaherd's folders."""

from __future__ import annotations

from llamaherd.host.state import FolderState, HostState, UserState
from llamaherd.layout import FETCHER, OURS
from llamaherd.plan import Plan
from llamaherd.text.pci import is_address
from llamaherd.wsl.state import WslState
from roles.base.onhost.inspection import Found, Question, RepositoryQuestion


def question(plan: Plan) -> Question:
    """Return what to inspect."""
    return Question(
        packages=plan.packages,
        users=tuple(plan.accounts),
        repositories=tuple(RepositoryQuestion(each.name, each.url, each.sources.path) for each in plan.repositories),
        folders=tuple(map(str, OURS)),
        fetcher=str(FETCHER),
        has_gpus=plan.has_cards,
    )


def take(state: HostState, found: Found) -> None:
    """Add what was found to the host's state. Raise ValueError for an invalid PCI address."""
    if not all(is_address(each.address) for each in found.machine.cards if each.address):
        raise ValueError("not a PCI address")
    state.os, state.arch, state.systemd = found.os, found.arch, found.systemd
    state.wsl = WslState(found.wsl) if found.wsl else None
    if found.disk:
        state.free = (found.disk.folder, found.disk.free, found.disk.device)
    state.addresses.extend(found.addresses)
    state.listening.update(found.listening)
    state.machine = found.machine
    state.repositories.update(found.repositories)
    state.packages.update(found.packages)
    state.users.update({name: UserState(each.shell, each.groups) for name, each in found.users.items()})
    state.twins.update(found.twins)
    state.passwords.update(found.passwords)
    state.folders.update({path: FolderState(each.mode, each.owner) for path, each in found.folders.items()})
    state.fetcher = found.fetcher
