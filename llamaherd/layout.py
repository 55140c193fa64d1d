"""Where things lie on a host, and who owns them."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath

ASK_USER = "llama"
"""Who an engine is when it is only asked what a server would take. No server runs as this user."""
BUILD_USER = "llama-build"
FETCH_USER = "llama-fetch"
GATEWAY_USER = "llamaherd-gateway"
"""No user of an instance begins like this."""
MONITORING_USER = "llamaherd-monitor"
"""Prometheus and Alertmanager."""
EXPORTER_USER = "llamaherd-exporter"
"""What tells figures of a host. systemd could make one up, but the system bus answers to none that it does not know."""
ACCOUNTS = (ASK_USER, BUILD_USER, FETCH_USER)

BUILDS = PurePosixPath("/opt/llamaherd/builds")
LIBEXEC = PurePosixPath("/opt/llamaherd/libexec")
STATE = PurePosixPath("/var/lib/llamaherd")
CACHE = PurePosixPath("/var/cache/llamaherd")
KEYS = PurePosixPath("/etc/llamaherd/keys")
PROJECTS = PurePosixPath("/etc/llamaherd/compose")
PRESETS = PurePosixPath("/etc/llamaherd/presets")
"""What servers of groups read: a file for each, named by its hash, which stays for the way back."""
UNITS = PurePosixPath("/etc/systemd/system")
DEFAULT_STORE = STATE / "models"

BUILD_PATH = STATE / "build"
"""Where every build sees itself: paths get into objects, and the same ones are compiled only once."""
WORK = STATE / "work"
"""Root's, with a folder for each build that is its user's: root writes files here, which no link may lead elsewhere."""
BUILDERS_FOLDERS = (CACHE / "sources", CACHE / "ccache")
"""What the user that compiles may write to."""
FOLDERS = (BUILDS, LIBEXEC, STATE / "models", BUILD_PATH, PROJECTS, WORK, *BUILDERS_FOLDERS)
INCOMING = STATE / "incoming"

OURS: dict[str, tuple[int, str]] = {
    **{str(folder): (0o755, "root") for folder in (BUILDS.parent, KEYS.parent, STATE, CACHE, *FOLDERS)},
    **{str(folder): (0o755, BUILD_USER) for folder in BUILDERS_FOLDERS},
    str(KEYS): (0o711, "root"),
    str(INCOMING): (0o700, ""),
}
"""Permissions and owner of each of our folders; what arrives belongs to whoever logs in."""

FETCHER = LIBEXEC / "fetcher"
"""The program that fetches models, and the folder that Python finds its modules in."""
LAUNCHER = f"{FETCHER}/fetch"
"""What is run of it."""
FETCH_RUN = PurePosixPath("/run/llamaherd/fetch")
"""What a fetch says, and its tokens; what it is told lies beside, in `fetch.json`. Gone with the next boot."""
FETCH_UNIT = "llamaherd-fetch.service"
SHARE_RUN = PurePosixPath("/run/llamaherd/share")
"""The same of a rig that lends its models to a neighbour."""

UNDO_RUN = PurePosixPath("/run/llamaherd/undo")
"""What is armed to take back a change that may cut the line, root's alone. Gone with the next boot, as its timers."""

LOCKS = PurePosixPath("/run/llamaherd/locks")
"""A folder of root's alone: `host`, `build`, `store`, `fetch` and `share` are held while these are changed."""
LOCK_WAIT = 3600
"""How long another run is waited for: it may be loading a large model, or installing a CUDA toolkit."""

POWER_UNIT = "llamaherd-gpu-power.service"
POWER_PROGRAM = LIBEXEC / "gpu-power"
POWER_FANS = LIBEXEC / "gpu-fans"
"""What it sets fans with."""
POWER_TABLE = PurePosixPath("/etc/llamaherd/gpu-power")
"""What GPUs are held to, a line each."""
POWER_RUN = PurePosixPath("/run/llamaherd/gpu-power")
"""What they are held to by now, a note each. Gone with the next boot, as are limits, locks and fan speeds."""

GATEWAY_UNIT = "llamaherd-gateway.service"
GATEWAY = PurePosixPath("/etc/llamaherd/gateway")
"""What the gateway reads, its user's alone: keys of servers, and hashes of people's."""
GATEWAY_CERTIFICATE = GATEWAY / "gateway.pem"
GATEWAY_TALK = LIBEXEC / "gateway-talk"
"""Asks a gateway that runs what it has read, and tells it what has changed in its maps."""
GATEWAY_RUN = PurePosixPath("/run/llamaherd-gateway")
"""Its socket, its user's and root's alone."""

ADDRESS_UNIT = "llamaherd-address.service"
ADDRESS = PurePosixPath("/etc/llamaherd/address")
"""What keepalived's configuration is made of, where two gateways have an address in turn."""
ADDRESS_RUN = PurePosixPath("/run/llamaherd-address")
"""That configuration, for the interface that this boot has."""
ADDRESS_PROGRAM = LIBEXEC / "virtual-address"
"""Writes it, says where the address is, and takes it from the host."""

CHAT = PurePosixPath("/etc/llamaherd/chat")
"""What the page reads that people chat on, root's alone: its container is given the files of it one by one."""
CHAT_DATA = PurePosixPath("/var/lib/llamaherd-chat")
"""People's accounts and conversations."""
CHAT_CONTAINER = "llamaherd-chat"

PROMETHEUS_UNIT = "llamaherd-prometheus.service"
ALERTMANAGER_UNIT = "llamaherd-alertmanager.service"
EXPORTER_UNIT = "llamaherd-exporter.service"
PROMETHEUS_PORT, ALERTMANAGER_PORT, EXPORTER_PORT = 9090, 9093, 9100
"""Those that everybody knows. The first two are their own host's alone."""
GATEWAY_FIGURES_PORT = 8405
"""Where a gateway that is watched tells its figures."""
MONITORING = PurePosixPath("/etc/llamaherd/monitoring")
"""What Prometheus and Alertmanager read, their user's alone: keys of servers, and of where alerts go."""
FIGURES_TIMER, FIGURES_UNIT = "llamaherd-figures.timer", "llamaherd-figures.service"
FIGURES_PROGRAM = LIBEXEC / "figures"
"""Writes what the exporter has no name for, for the exporter."""
FIGURES_DATA = PurePosixPath("/var/lib/llamaherd-figures")
"""The exporter reads all that ends with .prom there."""
FIGURES_FILE, DRIFT_FILE = FIGURES_DATA / "llamaherd.prom", FIGURES_DATA / "drift.prom"
"""What that program writes, and what `herd diff --tell` says."""
MONITORING_DATA = PurePosixPath("/var/lib/llamaherd-monitoring")
"""What they remember."""
UNPLANNED = (KEYS, GATEWAY, CHAT / "key", CHAT / "root.pem", MONITORING / "keys")
"""Folders and files whose texts are made of keys: no plan holds them."""

DRIVER_KEPT = PurePosixPath("/etc/apt/preferences.d/00-llamaherd-nvidia-kept")
"""Which version of the driver stays. apt takes the first entry that matches: this file comes before the next."""
DRIVER_WANTED = PurePosixPath("/etc/apt/preferences.d/00-llamaherd-nvidia-wanted")
DRIVER_HELD = PurePosixPath("/etc/apt/apt.conf.d/52llamaherd-nvidia")
"""What unattended-upgrades leaves alone; its own file is 50unattended-upgrades."""
DRIVER_LOADED = PurePosixPath("/etc/modules-load.d/llamaherd-nvidia.conf")
REBOOT_MARK = PurePosixPath("/run/llamaherd/reboot")
"""Written before a reboot, and gone with it."""
REBOOT_NOTE = STATE / "driver-reboot"
"""Driver and kernel that a reboot was for, until that driver is loaded: the same one is not tried twice."""
DRIVER_BEFORE = STATE / "driver-before"
"""What is needed to go back to the driver that worked before a change, until the next boot has judged the new one."""
DRIVER_ARMED = PurePosixPath("/run/llamaherd/driver-armed")
"""Written with that, and gone with the boot that is to judge."""
DRIVER_REFUSED = STATE / "driver-refused"
"""Which driver did not come up, when, which one came back for it, and why."""
DRIVER_UNDO = LIBEXEC / "driver-undo"
"""Judges a driver at the first boot with it, and brings the one before back."""
DRIVER_UNDO_UNIT = "llamaherd-driver-undo.service"
PINNED = "/etc/apt/preferences.d/llamaherd-container-toolkit"
"""At which version apt keeps the container toolkit."""

PROGRAMS = LIBEXEC / "onhost"
"""The versions of the program that runs on hosts, each named by its hash."""

STARTED = LIBEXEC / "started"
"""Records what servers are started with, and says what of it has changed since."""

KEPT = STATE / "kept"
"""A folder for each server, root's alone: what served last, its file and its key, to be put back."""
EXCHANGE = KEPT / ".exchange"
"""The journal of servers that change together: how to end that, whatever ends the run that began it."""
REFUSED = STATE / "refused"
"""A file for each server that was put back: what was tried, when, and why it was taken back."""

PROBATION_RUN = PurePosixPath("/run/llamaherd/probation")
"""What the probation watches, a file for each server. Gone with the next boot, which ends every probation."""

BESIDE = PurePosixPath("/run/llamaherd/beside")
"""Compose files of servers that are tried beside those that serve. Gone with the next boot, as their units are."""
BESIDE_UNITS = PurePosixPath("/run/systemd/system")

ARMS_RUN = PurePosixPath("/run/llamaherd/arms")
"""What brings back the server that is stopped while two others are compared. Gone with the next boot."""
ARMS_TEXT = PurePosixPath("/run/llamaherd/arms-text")
"""What a program reads that is run in the place of an arm."""
ARMS_GUARD = "llamaherd-arms.service"
"""Runs as long as they are compared: once it ends, systemd does what brings it back."""

LIMITS_RUN = PurePosixPath("/run/llamaherd/limits")
"""What GPUs were held to before a measurement holds them to something else. Gone with the next boot, as limits are."""
LIMITS_GUARD = "llamaherd-limits.service"
"""Runs as long as that goes on: once it ends, systemd brings back what was."""

DIRECT_GROUP = 2_009_999_999
"""Whose connections are not led to a server beside: ours, to the one that is being replaced. No account has it."""

APT_ARCHIVES = PurePosixPath("/var/cache/apt/archives")
"""Packages that were installed, where apt keeps them."""

RELEASES = STATE / "releases"
"""What was done here: a release under its number, and its plan beside it."""
WRITTEN = STATE / "written"
"""What we wrote last of files that are made of keys: hashes with a secret of the host, root's alone."""
IN_REACH = 3
"""Releases, of those that came out well, whose builds, images and models stay, where nobody says another number."""

SET_ASIDE = STATE / "set-aside"
"""Where files of others go that changed our units and are not declared."""

GPU_CHECK = LIBEXEC / "gpu-check"
"""Says whether processes are on the GPUs that they should be on."""

_CONTAINER_UIDS = range(2_010_000_000, 2_110_000_000)
"""Ids that nobody gives away: above subordinate ids (login.defs: to 600,100,000), systemd's containers (UIDS-GIDS in
its documentation: to 1,879,048,191) and SSSD's domains (sssd-ldap: to 2,000,200,000), below systemd's foreign ids
(2,147,352,576)."""


def service_of(instance: str) -> str:
    """What an instance is called by systemd and Docker."""
    return f"llama-{instance}"


def beside_of(instance: str) -> str:
    """What the server is called that is tried beside an instance's: no instance's service begins like this."""
    return f"llamaherd-beside-{instance}"


def probation_of(instance: str) -> str:
    """Name the unit that watches an instance's server after a switch."""
    return f"llamaherd-probation-{instance}"


def arm_of(instance: str, arm: str) -> str:
    """What the server is called that is measured as one arm of a comparison: no instance's service begins like this."""
    return f"llamaherd-arm-{arm.lower()}-{instance}"


def unit_user(instance: str) -> str:
    """The account that an instance's unit runs as, and nothing else does: a name that useradd and systemd take.

    systemd takes 31 characters and no dots (USER_NAMES in its documentation).
    """
    plain = f"llama-{instance}"
    if len(plain) <= 31 and "." not in plain and plain not in ACCOUNTS:
        return plain
    return f"llama_{hashlib.sha256(instance.encode()).hexdigest()[:12]}"


def container_user(instance: str) -> str:
    """The number that an instance's server is in its container and on the host; no account has it."""
    number = int(hashlib.sha256(instance.encode()).hexdigest()[:12], 16)
    return str(_CONTAINER_UIDS[number % len(_CONTAINER_UIDS)])


CHAT_USER = container_user("the chat page")
"""Whose number it runs by. No instance has such a name."""
