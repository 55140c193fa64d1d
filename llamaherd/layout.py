"""Paths on a host, their owners, and the names of users and units."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath

ASK_USER = "llama"
"""The user of an engine that only estimates the memory of a server. No server runs as this user."""
BUILD_USER = "llama-build"
FETCH_USER = "llama-fetch"
GATEWAY_USER = "llamaherd-gateway"
"""No user of an instance begins with this name."""
MONITORING_USER = "llamaherd-monitor"
"""The user of Prometheus and Alertmanager."""
EXPORTER_USER = "llamaherd-exporter"
"""The user of the exporter. The system bus refuses a dynamic user of systemd."""
ACCOUNTS = (ASK_USER, BUILD_USER, FETCH_USER)

BUILDS = PurePosixPath("/opt/llamaherd/builds")
LIBEXEC = PurePosixPath("/opt/llamaherd/libexec")
STATE = PurePosixPath("/var/lib/llamaherd")
CACHE = PurePosixPath("/var/cache/llamaherd")
KEYS = PurePosixPath("/etc/llamaherd/keys")
PROJECTS = PurePosixPath("/etc/llamaherd/compose")
PRESETS = PurePosixPath("/etc/llamaherd/presets")
"""Preset files of groups' servers, each named by its hash. They stay for a rollback."""
UNITS = PurePosixPath("/etc/systemd/system")
DEFAULT_STORE = STATE / "models"

BUILD_PATH = STATE / "build"
"""The path of every build in its own mount namespace: objects contain paths, and ccache reuses equal objects."""
WORK = STATE / "work"
"""A folder of root with a folder for each build. Root writes files here, so the build user may create no links here."""
BUILDERS_FOLDERS = (CACHE / "sources", CACHE / "ccache")
"""The folders that the build user may write to."""
FOLDERS = (BUILDS, LIBEXEC, STATE / "models", BUILD_PATH, PROJECTS, WORK, *BUILDERS_FOLDERS)
INCOMING = STATE / "incoming"

OURS: dict[str, tuple[int, str]] = {
    **{str(folder): (0o755, "root") for folder in (BUILDS.parent, KEYS.parent, STATE, CACHE, *FOLDERS)},
    **{str(folder): (0o755, BUILD_USER) for folder in BUILDERS_FOLDERS},
    str(KEYS): (0o711, "root"),
    str(INCOMING): (0o700, ""),
}
"""Permissions and owner of each folder of llamaherd. An empty owner is the user of the SSH login."""

FETCHER = LIBEXEC / "fetcher"
"""The program that fetches models: a folder of Python modules."""
LAUNCHER = f"{FETCHER}/fetch"
"""The command that starts a fetch."""
FETCH_RUN = PurePosixPath("/run/llamaherd/fetch")
"""The progress of a fetch and its tokens. Its input is `fetch.json` in the same parent folder. A reboot removes it."""
FETCH_UNIT = "llamaherd-fetch.service"
SHARE_RUN = PurePosixPath("/run/llamaherd/share")
"""The same files of a rig that shares its models with a peer."""

UNDO_RUN = PurePosixPath("/run/llamaherd/undo")
"""Files of root's timers that undo a change if it cuts the connection. A reboot removes files and timers."""

LOCKS = PurePosixPath("/run/llamaherd/locks")
"""A folder of root's locks: `host`, `build`, `store`, `fetch` and `share`."""
LOCK_WAIT = 3600
"""Seconds to wait for the lock of another run, which may be loading a large model or installing a CUDA toolkit."""

POWER_UNIT = "llamaherd-gpu-power.service"
POWER_PROGRAM = LIBEXEC / "gpu-power"
POWER_FANS = LIBEXEC / "gpu-fans"
"""The program that sets the fans of GPUs."""
POWER_TABLE = PurePosixPath("/etc/llamaherd/gpu-power")
"""The declared limits of GPUs, a line each."""
POWER_RUN = PurePosixPath("/run/llamaherd/gpu-power")
"""The applied limits, a file for each GPU. A reboot removes them, like limits, clocks and fan speeds themselves."""

GATEWAY_UNIT = "llamaherd-gateway.service"
GATEWAY = PurePosixPath("/etc/llamaherd/gateway")
"""The gateway's configuration, readable for its user alone: keys of servers, and hashes of users' keys."""
GATEWAY_CERTIFICATE = GATEWAY / "gateway.pem"
GATEWAY_TALK = LIBEXEC / "gateway-talk"
"""The program that queries a running gateway, and sends it changes of its maps."""
GATEWAY_RUN = PurePosixPath("/run/llamaherd-gateway")
"""The gateway's socket, for its user and root alone."""

GATEWAY_WAKE = GATEWAY / "wake.lua"
"""The program by which HAProxy holds requests for rigs that sleep."""

WAKE_SOCKET, WAKE_UNIT = "llamaherd-wake.socket", "llamaherd-wake@.service"
WAKE_RUN = PurePosixPath("/run/llamaherd-wake.sock")
"""The gateway requests packets here. systemd starts the program for each request."""
WAKE_PROGRAM = LIBEXEC / "wake"
"""The program that sends a wake-on-LAN packet."""
WAKE_TABLE = PurePosixPath("/etc/llamaherd/wake")
"""The rigs that can be woken, each with the address of its network card."""

SUSPEND_TIMER, SUSPEND_UNIT = "llamaherd-suspend.timer", "llamaherd-suspend.service"
SUSPEND_PROGRAM = LIBEXEC / "suspend"
"""The program that suspends the host when it is not used."""
SUSPEND_TABLE = PurePosixPath("/etc/llamaherd/suspend.json")
"""When it does so, and the servers that must have no requests."""
SUSPEND_RUN = PurePosixPath("/run/llamaherd/suspend")
"""Since when the host is not used. A reboot removes it."""
SUSPEND_STATE = STATE / "suspend"
"""The servers to start when the host wakes, also after a reboot: Docker remembers that a container was stopped."""

ADDRESS_UNIT = "llamaherd-address.service"
ADDRESS = PurePosixPath("/etc/llamaherd/address")
"""The parts of keepalived's configuration, for two gateways that share an address."""
ADDRESS_RUN = PurePosixPath("/run/llamaherd-address")
"""keepalived's configuration, with the network interface of this boot."""
ADDRESS_PROGRAM = LIBEXEC / "virtual-address"
"""The program that writes it, prints the host of the address, and removes the address from the host."""

CHAT = PurePosixPath("/etc/llamaherd/chat")
"""The chat page's configuration, readable for root alone. Its container mounts single files of it."""
CHAT_DATA = PurePosixPath("/var/lib/llamaherd-chat")
"""Users' accounts and conversations."""
CHAT_CONTAINER = "llamaherd-chat"

PROMETHEUS_UNIT = "llamaherd-prometheus.service"
ALERTMANAGER_UNIT = "llamaherd-alertmanager.service"
EXPORTER_UNIT = "llamaherd-exporter.service"
PROMETHEUS_PORT, ALERTMANAGER_PORT, EXPORTER_PORT = 9090, 9093, 9100
"""The usual ports. The first two are open on their own host alone."""
GATEWAY_FIGURES_PORT = 8405
"""The port of a monitored gateway's metrics."""
MONITORING = PurePosixPath("/etc/llamaherd/monitoring")
"""The configuration of Prometheus and Alertmanager, readable for their user alone: keys of servers and of receivers."""
FIGURES_TIMER, FIGURES_UNIT = "llamaherd-figures.timer", "llamaherd-figures.service"
FIGURES_PROGRAM = LIBEXEC / "figures"
"""The program that writes metrics which node_exporter lacks."""
FIGURES_DATA = PurePosixPath("/var/lib/llamaherd-figures")
"""The exporter reads all files here that end with .prom."""
FIGURES_FILE, DRIFT_FILE = FIGURES_DATA / "llamaherd.prom", FIGURES_DATA / "drift.prom"
"""The metrics of that program, and of `herd diff --tell`."""
MONITORING_DATA = PurePosixPath("/var/lib/llamaherd-monitoring")
"""The data of Prometheus and Alertmanager."""
UNPLANNED = (KEYS, GATEWAY, CHAT / "key", CHAT / "root.pem", MONITORING / "keys")
"""Folders and files whose content is derived from keys: no plan contains it."""

DRIVER_KEPT = PurePosixPath("/etc/apt/preferences.d/00-llamaherd-nvidia-kept")
"""The pin of the driver's version. apt uses the first entry that matches, so this file sorts before the next."""
DRIVER_WANTED = PurePosixPath("/etc/apt/preferences.d/00-llamaherd-nvidia-wanted")
DRIVER_HELD = PurePosixPath("/etc/apt/apt.conf.d/52llamaherd-nvidia")
"""Packages that unattended-upgrades must not change; its own file is 50unattended-upgrades."""
DRIVER_LOADED = PurePosixPath("/etc/modules-load.d/llamaherd-nvidia.conf")
REBOOT_MARK = PurePosixPath("/run/llamaherd/reboot")
"""A file that is written before a reboot, which removes it."""
REBOOT_NOTE = STATE / "driver-reboot"
"""Driver and kernel of a requested reboot, until the driver is loaded: no run reboots twice for the same pair."""
DRIVER_BEFORE = STATE / "driver-before"
"""The data to restore the previous driver, until the first boot with the new one has checked it."""
DRIVER_ARMED = PurePosixPath("/run/llamaherd/driver-armed")
"""A file that is written with it. The reboot removes it."""
DRIVER_REFUSED = STATE / "driver-refused"
"""The driver that failed, the time, the restored driver and the reason."""
DRIVER_UNDO = LIBEXEC / "driver-undo"
"""The program that checks a driver at its first boot, and restores the previous driver if it failed."""
DRIVER_UNDO_UNIT = "llamaherd-driver-undo.service"
PINNED = "/etc/apt/preferences.d/llamaherd-container-toolkit"
"""The pin of the container toolkit's version."""

PROGRAMS = LIBEXEC / "onhost"
"""The versions of the program that runs on hosts, each named by its hash."""

STARTED = LIBEXEC / "started"
"""The program that records the inputs of servers at their start, and prints the inputs that have changed since."""

KEPT = STATE / "kept"
"""A folder of root for each server, for a rollback: its last good state, its unit or Compose file, and its key."""
EXCHANGE = KEPT / ".exchange"
"""The journal of servers that change together. If a run is interrupted, the next one resumes from it."""
REFUSED = STATE / "refused"
"""A file for each server that was rolled back: the refused spec, the time and the reason."""

PAUSED = STATE / "paused"
"""A folder for each server that is paused: the end of its pause, and the program that starts the server then."""
TIMER_STAMPS = PurePosixPath("/var/lib/systemd/timers")
"""A file for each timer with `Persistent=`: systemd compares its time with the timer at a boot."""

PROBATION_RUN = PurePosixPath("/run/llamaherd/probation")
"""The input of probations, a file for each server. A reboot removes the files and ends every probation."""

CANDIDATES = PurePosixPath("/run/llamaherd/beside")
"""Compose files of candidates that run side by side with the current servers. A reboot removes them and their units."""
RUNTIME_UNITS = PurePosixPath("/run/systemd/system")
"""Units that a reboot removes: those of candidates and trials."""

TRIALS_RUN = PurePosixPath("/run/llamaherd/arms")
"""The data to restore a server that is stopped during a trial. A reboot removes it."""
TRIALS_TEXT = PurePosixPath("/run/llamaherd/arms-text")
"""The input of a program that runs in place of a trial's server."""
TRIALS_GUARD = "llamaherd-arms.service"
"""The unit that runs during a trial. When it stops, systemd restores the servers."""

LIMITS_RUN = PurePosixPath("/run/llamaherd/limits")
"""The limits of GPUs before a measurement changed them. A reboot removes the file and the limits."""
LIMITS_GUARD = "llamaherd-limits.service"
"""The unit that runs during such a measurement. When it stops, systemd restores the limits."""

DIRECT_GROUP = 2_009_999_999
"""The group of processes whose connections go to the replaced server, not to the candidate. No account has it."""

APT_ARCHIVES = PurePosixPath("/var/cache/apt/archives")
"""apt's archive of installed packages."""

LOGS = PurePosixPath("/var/log/llamaherd")
APT_LOG, BASE_IMAGE_LOG = LOGS / "apt.log", LOGS / "base-image.log"
COMPOSE_LOG, CHAT_LOG = PurePosixPath("/run/llamaherd-compose.log"), PurePosixPath("/run/llamaherd-chat.log")
"""The output of the last `docker compose`. A reboot removes them."""

RELEASES = STATE / "releases"
"""The releases of this host, each a file named by its number, and its plan."""
WRITTEN = STATE / "written"
"""Hashes of the last written files that contain keys, with a secret of the host. Readable for root alone."""
IN_REACH = 3
"""The number of successful releases whose builds, images and models stay, by default."""

SET_ASIDE = STATE / "set-aside"
"""The folder for undeclared files of other programs that changed units of llamaherd."""

GPU_CHECK = LIBEXEC / "gpu-check"
"""The program that checks the GPUs of processes."""

OURS_ALONE = (
    *(KEYS.parent, CACHE, CHAT_DATA, FIGURES_DATA, MONITORING_DATA, LOGS),
    *(LOCKS.parent, GATEWAY_RUN, ADDRESS_RUN, WAKE_RUN, COMPOSE_LOG, CHAT_LOG, STATE, BUILDS.parent),
)
"""The folders and files that llamaherd alone uses. `herd down --purge` removes them with everything in them."""
OF_THE_SYSTEM = (
    *(PurePosixPath("/etc/apt"), APT_ARCHIVES, DRIVER_LOADED.parent),
    *(UNITS, RUNTIME_UNITS, TIMER_STAMPS),
)
"""Folders of the system. `herd down` removes llamaherd's units from them. Settings of packages stay, as packages do."""
OWN_PREFIX = "llamaherd-"
"""The prefix of all units and containers but those of servers."""

_CONTAINER_UIDS = range(2_010_000_000, 2_110_000_000)
"""Ids that no program assigns: above subordinate ids (login.defs: to 600,100,000), systemd's containers (UIDS-GIDS in
its documentation: to 1,879,048,191) and SSSD's domains (sssd-ldap: to 2,000,200,000), below systemd's foreign ids
(2,147,352,576)."""


def service_of(instance: str) -> str:
    """Return the name of an instance's unit and container."""
    return f"llama-{instance}"


def candidate_service(instance: str) -> str:
    """Return the name of an instance's candidate. No instance's service begins with this name."""
    return f"llamaherd-beside-{instance}"


def probation_of(instance: str) -> str:
    """Return the name of the unit that watches an instance's server after a switch."""
    return f"llamaherd-probation-{instance}"


def resume_of(instance: str) -> str:
    """Return the name of the timer, and of its service, that ends the pause of an instance's server."""
    return f"llamaherd-resume-{instance}"


def trial_service(instance: str, variant: str) -> str:
    """Return the name of a trial's server. No instance's service begins with this name."""
    return f"llamaherd-arm-{variant.lower()}-{instance}"


def unit_user(instance: str) -> str:
    """Return the user of an instance's unit, which runs nothing else. useradd and systemd accept the name.

    systemd accepts 31 characters and no dots (USER_NAMES in its documentation).
    """
    plain = f"llama-{instance}"
    if len(plain) <= 31 and "." not in plain and plain not in ACCOUNTS:
        return plain
    return f"llama_{hashlib.sha256(instance.encode()).hexdigest()[:12]}"


def container_user(instance: str) -> str:
    """Return the numeric user of an instance's container, also on the host. No account has it."""
    number = int(hashlib.sha256(instance.encode()).hexdigest()[:12], 16)
    return str(_CONTAINER_UIDS[number % len(_CONTAINER_UIDS)])


CHAT_USER = container_user("the chat page")
"""The numeric user of the chat page. No instance has such a name."""
