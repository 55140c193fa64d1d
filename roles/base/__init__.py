"""Base: the distribution's packages, the accounts, folders and small files that all other roles need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import get_args

from llamaherd.host.program import fetcher_files, fetcher_hash
from llamaherd.host.responses import ProbeOutputs
from llamaherd.host.state import HostState, StatePart, SystemState, WslState
from llamaherd.inventory import wsl_files
from llamaherd.inventory.schema.rig import OperatingSystem
from llamaherd.layout import BUILD_USER, BUILDERS_FOLDERS, FETCHER, INCOMING, KEYS, OURS
from llamaherd.onhost.verification import Probe
from llamaherd.plan import Estimate, Plan
from llamaherd.reference.cards import is_pci_address
from llamaherd.role.apt import install_changes
from llamaherd.role.changes import Action, Change, RunVerb, file_differences, file_differs, write_on_host
from llamaherd.role.preflight import PreflightRow, Refusal, comma_list
from llamaherd.role.report import Check
from llamaherd.role.role import Inspection, Planning, PlanPart, Role, Task, Verified
from llamaherd.text.numbers import parse_mode, parse_whole, show_size
from roles.base.onhost import AccountsInput, FolderFound, Found, InspectInput, OpenInput, RepositoryQuery, UserFound

_FOLDERS = (
    *("/etc/llamaherd", "/etc/llamaherd/keys"),
    *("/opt/llamaherd", "/opt/llamaherd/builds", "/opt/llamaherd/libexec", "/var/lib/llamaherd"),
)
"""Folders whose owner and permissions are verified."""

PACKAGES = frozenset({"ca-certificates", "curl", "python3"})
"""Of the distribution: what our scripts and the fetcher stand on."""

_LEAST_RAM, _MOST_RAM = 0.9, 1.25
"""Of the RAM that is declared: below and above, the host has another amount. Linux shows some 97 % of what is there,
and 192 GiB are often written as 192GB."""

_BOOT = 200 * 10**6
"""Bytes: another kernel and its initrd seldom fit into less, and the old ones stay until the new ones are written."""

_DRIVERS = ("nvidia", "libnvidia", "cuda", "linux-")
"""How packages begin that driver and kernel come from."""

_NO_SHELLS = ("", "/usr/sbin/nologin", "/sbin/nologin", "/usr/bin/false", "/bin/false")


def plan(_: Planning) -> PlanPart:
    """Return the packages that every host needs. Other roles add theirs."""
    return PlanPart(packages=PACKAGES)


@dataclass(frozen=True)
class BaseState(StatePart):
    """Accounts and folders of llamaherd, and the program that fetches models."""

    users: Mapping[str, UserFound] = field(default_factory=dict)
    twins: Mapping[str, str] = field(default_factory=dict)
    """By account: another account with the same number."""
    passwords: Set[str] = frozenset()
    """Accounts that have a password."""
    folders: Mapping[str, FolderFound] = field(default_factory=dict)
    """By path, those that exist."""
    fetcher: str = ""
    """The fingerprint of the program's files."""


def inspection_input(plan: Plan) -> InspectInput:
    """Return what to inspect."""
    return InspectInput(
        packages=plan.packages,
        users=tuple(plan.accounts),
        repositories=tuple(RepositoryQuery(each.name, each.url, each.sources.path) for each in plan.repositories),
        folders=tuple(map(str, OURS)),
        fetcher=str(FETCHER),
        has_gpus=plan.has_cards,
    )


def state_parts(found: Found) -> tuple[SystemState, BaseState]:
    """Return the parts of the host's state. Raise ValueError for an invalid PCI address."""
    if not all(is_pci_address(each.address) for each in found.machine.cards if each.address):
        raise ValueError("not a PCI address")
    system = SystemState(
        os=found.os,
        arch=found.arch,
        systemd=found.systemd,
        wsl=found.wsl,
        free=(found.disk.folder, found.disk.free, found.disk.device) if found.disk else None,
        addresses=found.addresses,
        listening=frozenset(found.listening),
        packages=frozenset(found.packages),
        repositories=found.repositories,
        machine=found.machine,
    )
    own = BaseState(found.users, found.twins, frozenset(found.passwords), found.folders, found.fetcher)
    return system, own


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """Yield problems of the system that all other roles depend on."""
    if state.system.os != plan.os:
        known = get_args(OperatingSystem)
        runs = f"runs {state.system.os}" if state.system.os else "has no system in /etc/os-release"
        help_ = f"install one of {', '.join(known)}: llamaherd provisions no other system"
        yield Refusal(
            f"this host {runs}, but the inventory declares {plan.os}",
            "correct `host.os` in the inventory" if state.system.os in known else help_,
            "system",
        )
    if not state.system.systemd and not _starts_systemd(plan, state):
        yield Refusal(
            "systemd does not run here, and builds and servers are its units",
            "boot with systemd; under WSL, if wsl.conf enables it, run `wsl --terminate NAME` in Windows and start it",
            "systemd",
        )
    yield from _twins(plan, state)


def _starts_systemd(plan: Plan, state: HostState) -> bool:
    if plan.wsl is None or not state.system.wsl:
        return False
    file = WslState.of(state).files.get(wsl_files.WSL_CONF)
    return wsl_files.starts_systemd(file.content if file else None)


def _twins(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """Yield accounts that share their number with another account."""
    # Which of both gets another number is not for us to choose, and a number in use cannot be changed.
    for name, other in sorted(BaseState.of(state).twins.items()):
        if name in plan.accounts:
            yield Refusal(
                f"users {name} and {other} have one number on this host: each may do what the other may",
                f"give {name} a number of its own (`vipw`, or `userdel {name}` while its server is stopped: "
                "`herd up` makes it anew)",
            )


def facts(plan: Plan, state: HostState) -> Iterator[PreflightRow]:
    """Yield the rows about the system."""
    yield PreflightRow("system", f"{state.system.os} {state.system.arch}", plan.os)
    yield PreflightRow("systemd", "runs" if state.system.systemd else "does not run", "runs")
    yield _kernel(state)
    yield PreflightRow("kind", state.system.kind or "not known", "WSL" if plan.wsl else "")
    yield _ram(plan, state)
    yield _cores(plan, state)
    if plan.amx != state.system.machine.amx:
        yield _amx(state)
    if state.system.machine.boot_free is not None and plan.has_cards and not state.system.machine.in_container:
        yield _boot(state.system.machine.boot_free)
    yield _packages(plan, state)


def _kernel(state: HostState) -> PreflightRow:
    running, following = state.system.machine.kernel or "not known", state.system.machine.next_kernel
    if following in ("", running):
        return PreflightRow("kernel", running)
    return PreflightRow(
        "kernel",
        running,
        following,
        "note",
        f"{running} runs, and the next boot starts {following}",
        "reboot when it suits, so that what is built for a kernel is built for the one that stays",
    )


def _ram(plan: Plan, state: HostState) -> PreflightRow:
    have, declared = state.system.machine.memory, plan.ram
    found = show_size(have) if have else "not known"
    if not have or declared is None:
        return PreflightRow("RAM", found)
    wanted = show_size(declared)
    if have < declared * _LEAST_RAM:
        why = f"the inventory declares {wanted} of RAM, but the host has {found}: what is planned for RAM may not fit"
    # In a container it is the host's, of which it may have been given a part.
    elif have > declared * _MOST_RAM and not state.system.machine.in_container:
        why = f"the inventory declares {wanted} of RAM, but the host has {found}"
    else:
        return PreflightRow("RAM", found, wanted)
    return PreflightRow(
        "RAM", found, wanted, "note", why, f"write `ram: {have >> 30}GiB` under `host:`, or see what is missing"
    )


def _cores(plan: Plan, state: HostState) -> PreflightRow:
    """Return the row about the cores. Fewer declared than there are is a choice, as for other programs' sake."""
    have, declared = state.system.machine.cores, plan.cores
    found = f"{have} cores" if have else "not known"
    if not have or declared is None:
        return PreflightRow("CPU", found)
    if have >= declared:
        return PreflightRow("CPU", found, f"{declared} cores")
    why = f"the inventory declares {declared} cores, but the host has {have}: servers would start too many threads"
    help_ = f"write `cores: {have}` under `host: cpu:`; SMT siblings are no cores"
    return PreflightRow("CPU", found, f"{declared} cores", "note", why, help_)


def _amx(state: HostState) -> PreflightRow:
    """Return the row about AMX."""
    # Of RAM, llama.cpp takes up to twice as much where it computes with AMX.
    if state.system.machine.amx:
        why = "the processor has AMX, where llama.cpp without a GPU holds most matrices twice: less RAM is planned"
        help_ = "write `amx: true` under `host: cpu:`; `--no-repack` in `extra_args` does without the copies"
        return PreflightRow("AMX", "yes", "no", "note", why, help_)
    why = "the inventory declares AMX, but the processor has none: the plan reserves more RAM than servers take"
    return PreflightRow("AMX", "no", "yes", "note", why, "remove `amx: true` under `host: cpu:`")


def _boot(free: int) -> PreflightRow:
    found = f"{show_size(free)} free"
    if free >= _BOOT:
        return PreflightRow("/boot", found)
    why = f"/boot has {found}, which may not do for another kernel with a driver in its initrd"
    return PreflightRow(
        "/boot", found, show_size(_BOOT), "note", why, "`apt-get autoremove --purge` removes kernels of old"
    )


def _packages(plan: Plan, state: HostState) -> PreflightRow:
    machine = state.system.machine
    missing = len(set(plan.packages) - state.system.packages)
    wanted = f"{missing} to be installed" if missing else ""
    if machine.package_holder:
        why = f"apt or dpkg is held by {machine.package_holder}: a run waits for it"
        found = f"held by {machine.package_holder}"
        return PreflightRow("packages", found, wanted, "note", why, "let it end, or see what it is doing")
    held = sorted(name for name in machine.held if name in plan.packages or name.startswith(_DRIVERS))
    if held:
        why = f"{comma_list(held)} {'is' if len(held) == 1 else 'are'} on hold: apt does not change packages on hold"
        help_ = f"run `apt-mark unhold {' '.join(held)}` if you no longer need the hold"
        return PreflightRow("packages", f"on hold: {comma_list(held)}", wanted, "note", why, help_)
    return PreflightRow("packages", "none on hold", wanted)


def package_changes(plan: Plan, state: HostState) -> list[Change]:
    """Install what is missing from the distribution."""
    return install_changes(package for package in plan.packages if package not in state.system.packages)


def strange_accounts(plan: Plan, state: HostState) -> list[str]:
    """Return accounts of ours that are missing, can log in, or are in groups of others."""
    own = BaseState.of(state)
    there = {name: user for name, user in own.users.items() if name in plan.accounts}
    strange = (
        name
        for name, user in there.items()
        if user.shell not in _NO_SHELLS or set(user.groups) - {name} or (user.groups and name in own.passwords)
    )
    return [*strange, *(name for name in plan.accounts if name not in there)]


def strange_folders(state: HostState) -> list[str]:
    """Return folders of ours that are missing, have another mode, or have another owner."""
    folders = BaseState.of(state).folders
    return [
        path
        for path, (mode, owner) in OURS.items()
        if not (found := folders.get(path)) or found.mode != mode or owner not in ("", found.owner)
    ]


def base_changes(plan: Plan, state: HostState) -> Iterator[Change]:
    """Yield the changes of accounts, folders, and the small files that all roles share."""
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
        new = [name for name in accounts if name not in BaseState.of(state).users]
        why = _strange_reasons([name for name in accounts if name not in new], new, folders)
        kind, strange = ("accounts", accounts) if accounts else ("folders", folders)
        action: Action = "create" if new and len(new) == len(accounts) else "update"
        yield Change(action, kind, ", ".join(strange), why, RunVerb("base.accounts", given))
    if closed := [path for path in state.servers.closed if plan.only is None or _read(path, plan)]:
        why = tuple(f"servers may not read {path}" for path in closed)
        yield Change("update", "permissions", ", ".join(closed), why, RunVerb("base.open", OpenInput(tuple(closed))))
    if changed := [file for file in plan.files if file_differs(file, state)]:
        names = ", ".join(file.path for file in changed)
        how = write_on_host(changed, "writing shared files")
        yield Change("update", "programs", names, file_differences(changed, state), how)
    if BaseState.of(state).fetcher != fetcher_hash():
        # All anew: a module that is left over from another version could be imported.
        how = write_on_host(fetcher_files(), "writing the program that fetches models", remove=[str(FETCHER)])
        why = ("its files are not those of this version" if BaseState.of(state).fetcher else "it is not there",)
        yield Change("update", "programs", str(FETCHER), why, how)


def _strange_reasons(strange: Sequence[str], new: Sequence[str], folders: Sequence[str]) -> tuple[str, ...]:
    """Return why accounts and folders change: accounts first, folders by their number if accounts change, too."""
    why = [f"{name} can log in, or is in groups of other users" for name in strange]
    if new and strange:
        why += [f"{name} does not exist" for name in new]
    elif new:
        why.append("new")
    if folders and (strange or new):
        why.append(f"with {len(folders)} folder{'s'[: len(folders) != 1]}")
    else:
        why += [f"{path} is missing, or has another mode or owner" for path in folders]
    return tuple(why)


def _read(path: str, plan: Plan) -> bool:
    """Return whether a server of the plan reads this path, or a file below it."""
    return any(f"{each}/".startswith(f"{path}/") for instance in plan.chosen for each in instance.reads)


def probes(_: Plan) -> Iterator[Probe]:
    """Yield probes of accounts and folders."""
    yield Probe("accounts", "", ("getent", "passwd"))
    yield Probe("accounts", "", ("getent", "group"))
    yield Probe("passwords", "", ("awk", "-F", ":", "$2 !~ /^[!*]/ { print $1 }", "/etc/shadow"))
    yield Probe("folders", "", ("stat", "-c", "%a %U %n", *_FOLDERS))


def host_checks(plan: Plan, outputs: ProbeOutputs) -> Iterator[Check]:
    """Yield a check of each: no login as a server, no further rights of it, and keys that only root writes."""
    if ("accounts", "") in outputs:
        problems = list(_accounts(plan, outputs["accounts", ""], outputs.get(("passwords", ""), "").split("\n")))
        yield Check("accounts", not problems, _detail(problems, f"{len(plan.accounts)} that cannot log in"))
    if ("folders", "") in outputs:
        problems = list(_folders(outputs["folders", ""]))
        yield Check("folders", not problems, _detail(problems, "only root can write to keys and programs"))


def _detail(problems: list[str], fine: str) -> str:
    return f"{'; '.join(problems)}: `herd up` mends that" if problems else fine


def _accounts(plan: Plan, output: str, passwords: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with accounts, by lines of /etc/passwd and /etc/group, and the accounts with a password."""
    lines = output.split("\n")
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
            if shell.rpartition("/")[2] not in ("nologin", "false", ""):
                yield f"{name} can log in ({shell})"
            if name in passwords:
                yield f"{name} has a password"
            members = [row[0] for row in groups if row[0] != name and name in row[3].split(",")]
            if others := [*([f"number {group}"] if own.get(name, group) != group else []), *members]:
                yield f"{name} is in group {', '.join(others)}"


def _folders(output: str) -> Iterator[str]:
    """Yield folders that differ, by lines of octal mode, owner and path."""
    for line in output.split("\n"):
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


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """Return the packages."""
    return [f"  packages   {' '.join(plan.packages)}"]


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield packages first: the other tasks use them."""
    yield Task("packages", lambda state, _: package_changes(plan, state))
    yield Task("accounts and files", lambda state, run: [*base_changes(plan, state), *run.leftovers])


ROLE = Role(
    name="base",
    summary="The distribution's packages, accounts, folders and our own programs are there.",
    for_instances=True,
    ground=True,
    plan=plan,
    brings=lambda plan: plan.files,
    inspection=Inspection("base.inspect", inspection_input, Found, state_parts),
    refusals=refusals,
    facts=facts,
    tasks=tasks,
    probes=probes,
    judge=lambda judging: Verified(tuple(host_checks(judging.plan, judging.outputs))),
    describe=describe,
)
