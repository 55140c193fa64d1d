"""What every other role stands on: the distribution's packages, accounts, folders, and our own programs."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.layout import BUILD_USER, BUILDERS_FOLDERS, FETCHER, INCOMING, KEYS, OURS
from llamaherd.plan import Plan
from llamaherd.role.changes import Change, RunVerb, differences, differs, write_on_host
from llamaherd.role.packages import install_changes
from llamaherd.role.programs import fingerprint, programs
from roles.base.onhost import AccountsInput, OpenInput

_NO_SHELLS = ("", "/usr/sbin/nologin", "/sbin/nologin", "/usr/bin/false", "/bin/false")


def package_changes(plan: Plan, state: HostState) -> list[Change]:
    """Install what is missing from the distribution."""
    missing = [package for package in plan.packages if package not in state.packages]
    return install_changes(missing)


def strange_accounts(plan: Plan, state: HostState) -> list[str]:
    """Users of ours that are not there, could log in, or are in groups of others."""
    there = {name: user for name, user in state.users.items() if name in plan.accounts}
    strange = (
        name
        for name, user in there.items()
        if user.shell not in _NO_SHELLS or set(user.groups) - {name} or (user.groups and name in state.passwords)
    )
    return [*strange, *(name for name in plan.accounts if name not in there)]


def strange_folders(state: HostState) -> list[str]:
    """Folders of ours that are not there, that others may write to or cannot use, or that have another owner."""

    def right(path: str, mode: int, owner: str) -> bool:
        folder = state.folders.get(path)
        return folder is not None and folder.mode == mode and owner in ("", folder.owner)

    return [path for path, wanted in OURS.items() if not right(path, *wanted)]


def base_changes(plan: Plan, state: HostState) -> list[Change]:
    """Accounts, folders, and the small files that all roles share."""
    return list(_base(plan, state))


def _base(plan: Plan, state: HostState) -> Iterator[Change]:
    accounts, folders = strange_accounts(plan, state), strange_folders(state)
    if accounts or folders:
        given = AccountsInput(
            users=plan.accounts,
            folders=tuple(path for path, (_, owner) in OURS.items() if owner == "root" and path != str(KEYS)),
            build_user=BUILD_USER,
            build_folders=tuple(map(str, BUILDERS_FOLDERS)),
            keys=str(KEYS),
            incoming=str(INCOMING),
        )
        why = (*(f"user {name} is not as it must be" for name in accounts), *(f"{path} is not" for path in folders))
        yield Change("update", "accounts", ", ".join([*accounts, *folders]), why, RunVerb("base.accounts", given))
    if closed := [path for path in state.closed if plan.only is None or _read(path, plan)]:
        why = tuple(f"servers may not read {path}" for path in closed)
        yield Change("update", "permissions", ", ".join(closed), why, RunVerb("base.open", OpenInput(tuple(closed))))
    if changed := [file for file in plan.files if differs(file, state)]:
        names = ", ".join(file.path for file in changed)
        how = write_on_host(changed, "writing shared files")
        yield Change("update", "programs", names, differences(changed, state), how)
    if state.fetcher != fingerprint():
        # All anew: a module that is left over from another version could be imported.
        how = write_on_host(programs(), "writing the program that fetches models", remove=[str(FETCHER)])
        why = ("its files are not those of this version" if state.fetcher else "it is not there",)
        yield Change("update", "programs", str(FETCHER), why, how)


def _read(path: str, plan: Plan) -> bool:
    """Whether a server of the plan reads this, or something in it."""
    return any(f"{each}/".startswith(f"{path}/") for instance in plan.chosen for each in instance.reads)
