"""Stores, removals and hashes as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rich.console import Console

from llamaherd.store.files import ModelCheck
from llamaherd.store.holdings import LEFT, Holdings, Removal, Revision
from llamaherd.text.numbers import show_size
from llamaherd.text.tables import make_table, print_table
from llamaherd.text.terminal import printable

_IN_A_FILE = 160
"""The width of output to a file, in columns."""


def console() -> Console:
    """Return the console for tables: a path that is cut short cannot be copied."""
    found = Console(soft_wrap=True, highlight=False)
    return found if found.is_terminal else Console(soft_wrap=True, highlight=False, width=_IN_A_FILE)


def print_holdings(holdings: Holdings, to: Console) -> None:
    """Print a rig's store: revisions, files in transfer, and removable files."""
    free = f", {show_size(holdings.free)} free" if holdings.free is not None else ", which does not exist yet"
    to.print(f"[bold]{holdings.rig}[/]: {holdings.store}{free}")
    if holdings.fetch is not None:
        to.print(f"  models are being fetched: {printable(holdings.fetch) or 'no progress yet'}")
    if holdings.revisions:
        table = make_table("revision", "size", "files", "state", "used by")
        for revision in holdings.revisions:
            linked = " (linked)" if revision.linked else ""
            size = show_size(revision.size) + linked if revision.state != "missing" else "-"
            users = ", ".join(_users(revision)) or "unused"
            table.add_row(
                *(printable(text) for text in (revision.folder, size, str(revision.files), revision.state, users))
            )
        print_table(table, to)
    if holdings.parts:
        table = make_table("in transfer", "has", "of", "becomes")
        for part in holdings.parts:
            size = show_size(part.size) if part.size is not None else "?"
            table.add_row(part.sha256[:12], show_size(part.have), size, printable(part.wanted or "nothing: unwanted"))
        print_table(table, to)
    for note in holdings.notes:
        to.print(f"  note: {printable(note)}")
    if holdings.removals:
        to.print(f"  `herd models prune {holdings.rig}` would free {show_size(holdings.frees)}")


def print_removals(holdings: Holdings, to: Console) -> None:
    """Print the removable files of a rig's store, and the bytes that this frees."""
    to.print(f"[bold]{holdings.rig}[/]: {show_size(holdings.frees)} would be freed in {holdings.store}")
    for removal in holdings.removals:
        to.print(f"  {show_size(removal.frees):>8}  {printable(described(removal))}")


def described(removal: Removal) -> str:
    """Describe a removal in words."""
    if removal.what == LEFT:
        return "the rest of an earlier removal"
    return f"{removal.what}: {', '.join(removal.files)}" if removal.files else removal.what


def print_checks(rig: str, checks: Iterable[ModelCheck], to: Console) -> None:
    """Print each model of a rig, and each damaged file with its fix."""
    good, bad = ("✓", "✗") if to.encoding.lower().startswith("utf") else ("ok", "FAILED")
    for model in checks:
        count = f"{len(model.files)} file{'s' if len(model.files) != 1 else ''}"
        if model.ok:
            to.print(f"  [green]{good}[/] {model.name}: {count} as declared, by sha256")
            continue
        to.print(f"  [bold red]{bad}[/] {model.name} in {printable(model.folder)}:")
        for file in model.files:
            if file.status != "ok":
                to.print(f"      {printable(f'{file.name} is {file.status}: {file.detail}')}")
                to.print(f"      help: {_fix(rig, file.status, dropped=file.dropped)}")


def _fix(rig: str, status: str, *, dropped: bool) -> str:
    if status == "missing":
        return f"`herd up {rig}` fetches it"
    if dropped:
        return f"its hash is no longer listed: `herd up {rig}` fetches it again"
    return f"it was being changed meanwhile: run `herd verify --deep {rig}` again"


def _users(revision: Revision) -> list[str]:
    """Return the users of a revision; a unit or container of an instance that is in the list already is left out.

    Releases that a rollback could restore are listed only without other users.
    """
    instances = [user.name for user in revision.users if user.kind == "instance"]
    if back := [f"{user.kind} {user.name}" for user in revision.users if user.kind in ("release", "kept")]:
        named = [user for user in revision.users if user.kind not in ("release", "kept")]
        return _users(replace(revision, users=tuple(named))) or back
    ours = {f"llama-{name}" for name in instances}
    others = [
        f"process {user.name}" if user.kind == "process" else user.name
        for user in revision.users
        if user.kind != "instance" and user.name.removesuffix(".service") not in ours
    ]
    return instances + others
