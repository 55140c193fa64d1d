"""Docker on a played host: installed, wired to GPUs and rolled back; and NVIDIA's container toolkit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from llamaherd.host.state import HostState
from llamaherd.layout import PINNED, UNDO_RUN
from llamaherd.onhost.document import Secret, decode, dump, parse_document
from llamaherd.onhost.files import WrittenFile
from llamaherd.onhost.system import Ended, FailedError
from llamaherd.onhost.verbs import NoInput, find_verb, perform
from roles.container_runtime import PACKAGES, toolkit_changes
from roles.container_runtime.onhost import (
    BACKUP,
    SETTINGS,
    InstallInput,
    ToolkitInput,
    UndoInstallInput,
    UndoWiringInput,
    WireInput,
    Within,
    confirm,
    install,
    install_toolkit,
    undo_install,
    undo_wiring,
    wire,
)
from tests.render.plans import GPU
from tests.support.played_host import File
from tests.support.recording import input_of
from tests.support.service_host import ServiceHost, killed_everywhere

PATH, ARMED = "/etc/docker/daemon.json", f"{UNDO_RUN}/docker"
OLD, NEW = '{"old": 1}\n', '{"old": 1, "password": "canary"}\n'
ORDER = WrittenFile("/etc/systemd/system/docker.service.d/llamaherd-cards.conf", Secret("[Unit]\n"), 0o644, "root")
CARD = "nvidia.com/gpu=GPU-5090"
INSTALL = InstallInput(("docker.io", "it's $(id)"), Within(3600, 120))


def sha256(text: str) -> str:
    """Return the hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class DockerHost(ServiceHost):
    """A host with Docker, which reads its settings where it starts."""

    up: bool = True
    cdi: bool = True
    runtime: bool = True
    """What the daemon that runs has."""
    refuses: str = ""
    """The settings with which it does not come up."""
    validates: bool = True
    cards: set[str] = field(default_factory=lambda: {CARD})
    described: bool = True
    """Whether `nvidia-cdi-refresh` describes cards."""
    live: str = "false"
    up_now: list[str] = field(default_factory=lambda: ["abc", "def"])
    started: list[str] = field(default_factory=list)
    versions: dict[str, list[str]] = field(default_factory=dict)
    after_restart: tuple[bool, bool] = (True, True)
    """Whether the daemon has CDI and NVIDIA's runtime then."""

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Play a program."""
        words = [*argv][2 if argv[0] == "env" else 0 :]
        if words[0] == "docker" and self._is_free(words):
            self.done.append(words)
            return self._client(words[1:])
        ended = super().run(words, seconds=seconds, text=text, environment=environment)
        if not self._is_free(words):
            return ended
        match words:
            case ["systemctl", "-q", "is-active", "docker.service"]:
                return Ended(0 if self.up else 3)
            case ["systemctl", "-q", "is-failed", "docker.service"]:
                return Ended(0 if PATH in self.files and self.files[PATH].text == self.refuses else 1)
            case ["systemctl", ("start" | "restart"), *_, ("docker" | "docker.service")]:
                self.up = self.read(PATH) != self.refuses
                if words[1] == "restart":
                    self.cdi, self.runtime = self.after_restart
                    self.up_now = []
                return Ended(0)
            case ["systemctl", "reload", "docker"]:
                self.runtime = True
            case ["systemctl", "restart", "nvidia-cdi-refresh.service"] if self.described:
                self.cards.add(CARD)
            case ["readlink", "-f", path]:
                return Ended(0, f"{path}\n")
            case ["sha256sum", path]:
                return Ended(0, f"{sha256(self.files[path].text)}  {path}\n")
            case ["dockerd", *_]:
                return Ended(0) if self.validates else Ended(1, "", "a\nb\nc\nunknown key\n")
            case ["nvidia-ctk", *_]:
                return Ended(0, "\n".join(sorted(self.cards)) + "\n")
            case ["ip", "link", "delete", link]:
                self.remove(f"/sys/class/net/{link}")
            case ["apt-cache", "madison", package]:
                lines = (f" {package} | {each} | https://mirror.lan Packages" for each in self.versions[package])
                return Ended(0, "\n".join(lines))
            case ["sort", "-V"]:
                return Ended(0, "\n".join(sorted(text.split(), key=lambda each: each.replace(".", "-").split("-"))))
        return ended

    def _is_free(self, words: Sequence[str]) -> bool:
        return not any(" ".join(words).startswith(begins) for begins in self.ends)

    def _client(self, words: list[str]) -> Ended:
        if not self.up:
            return Ended(1, "", "Cannot connect\n")
        match words:
            case ["info", "--format", form]:
                runtimes = "nvidia\nrunc\n" if self.runtime else "runc\n"
                answers = {"Runtimes": runtimes, "CDISpecDirs": '["/etc/cdi"]' if self.cdi else "[]"}
                return Ended(0, next((text for name, text in answers.items() if name in form), f"{self.live}\n"))
            case ["ps", *_]:
                return Ended(0, "\n".join(self.up_now))
            case ["start", *names]:
                self.started += names
        return Ended(0)

    def boot_undo(self) -> None:
        """Run what the timer runs."""
        perform(parse_document(self.files[ARMED].text.encode()), self)


def wiring(**more: Any) -> WireInput:
    """Return an input for a host that has old settings."""
    given = WireInput(PATH, sha256(OLD), Secret(NEW), (ORDER,), (CARD,), True, Within(900, 120))
    return replace(given, **more)


def old(**more: Any) -> DockerHost:
    """Return a host with old settings, whose daemon lacks what they do not have."""
    return DockerHost({}, files={PATH: File(OLD, 0o600)}, **more)


def delays(host: ServiceHost) -> list[str]:
    """Return after how many seconds timers were started."""
    words = [word for each in host.done if each[0] == "systemd-run" for word in each]
    return [word.removeprefix("--on-active=") for word in words if word.startswith("--on-active=")]


# --- Docker -------------------------------------------------------------------------------------------------


def test_docker_is_armed_then_installed_then_started() -> None:
    host = DockerHost({}, up=False, files={"/sys/class/net/br-0123456789ab": File(""), "/sys/class/net/eth0": File("")})
    find_verb("container_runtime.install").run(decode(InstallInput, parse_document(dump(INSTALL).encode())), host)
    assert host.up
    assert host.index("--on-active=3600") < host.index("install", "docker.io", "it's $(id)") < host.index("enable")
    assert host.index("enable") < host.index("start", "--no-block", "docker.service") < host.index("--on-active=120")
    assert json.loads(host.files[ARMED].text)["input"] == {"bridges": ["br-0123456789ab"]}


def test_docker_that_runs_is_not_stopped_by_an_undo() -> None:
    host = DockerHost({})
    install(replace(INSTALL, packages=()), host)
    assert delays(host) == []
    assert not host.has_done("apt-get")


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ({"systemctl -q enable": Ended(1, "", "masked\n")}, "Docker cannot be enabled"),
        ({"systemctl start": Ended(1, "", "masked\n")}, "Docker cannot be started"),
        ({"apt-get": Ended(100, "E: no\n")}, "apt could not install: docker.io"),
        ({"docker info": Ended(124)}, "Docker does not respond; its last lines are above"),
    ],
)
def test_docker_that_does_not_start_is_reported_and_the_undo_stays_armed(ends: dict[str, Ended], why: str) -> None:
    host = DockerHost({}, up=False, ends=ends)
    with pytest.raises(FailedError, match=why):
        install(INSTALL, host)
    assert host.entry(ARMED)
    assert delays(host) == ["3600"]


def test_docker_that_has_failed_is_not_waited_for() -> None:
    host = DockerHost({}, up=False, files={PATH: File("bad")}, refuses="bad")
    with pytest.raises(FailedError) as caught:
        install(INSTALL, host)
    assert caught.value.log == ("the engine reports: out of memory",)
    assert host.time < 60
    host = DockerHost({}, ends={"docker info": Ended(124)})
    with pytest.raises(FailedError):
        install(INSTALL, host)
    assert 180 <= host.time < 190


def test_a_disk_that_is_full_changes_nothing() -> None:
    host = DockerHost({}, up=False, full=ARMED)
    with pytest.raises(FailedError, match="nothing was changed"):
        install(INSTALL, host)
    assert not host.has_done("apt-get")


def test_the_undo_stops_docker_and_removes_its_networks_alone() -> None:
    links = ("docker0", "br-0123456789ab", "br-ba9876543210", "br-lan", "eth0")
    host = DockerHost({}, up=False, files={"/sys/class/net/br-0123456789ab": File("")})
    install(INSTALL, host)
    host.files |= {f"/sys/class/net/{each}": File("") for each in links}
    host.boot_undo()
    assert host.has_done("disable", "--now", "docker.service")
    assert host.has_done("disable", "--now", "containerd.service")
    assert host.names("/sys/class/net") == ["br-0123456789ab", "br-lan", "eth0"]
    assert host.names(str(UNDO_RUN)) == ["docker.undone"]


def test_an_undo_that_was_disarmed_does_nothing() -> None:
    host = DockerHost({})
    undo_install(UndoInstallInput(()), host)
    undo_wiring(UndoWiringInput(PATH, ("abc",)), host)
    confirm(NoInput(), host)
    assert host.done == []


def test_a_killed_installation_is_completed_by_the_next() -> None:
    hosts = killed_everywhere(lambda: DockerHost({}, up=False), lambda host: install(INSTALL, host))
    assert len(hosts) > 4
    assert all(host.up for host in hosts)


# --- GPUs for containers ------------------------------------------------------------------------------------


def test_new_settings_are_checked_kept_armed_and_applied() -> None:
    host = old(cdi=False, runtime=False)
    find_verb("container_runtime.wire").run(decode(WireInput, parse_document(dump(wiring()).encode())), host)
    assert host.files[PATH].text == NEW
    assert host.files[PATH + BACKUP] == File(OLD, 0o600)
    assert host.files[SETTINGS] == File(OLD, 0o600)
    assert host.files[ORDER.path].text == ORDER.text.text
    new = f"{PATH}.llamaherd-new"
    assert host.index("chmod", f"--reference={PATH}", new) < host.index("dockerd", "--validate", new)
    assert host.index("dockerd") < host.index("--on-active=900") < host.index("rename", new, PATH)
    assert host.index("rename", new, PATH) < host.index("restart", "docker") < host.index("--on-active=120")
    assert json.loads(host.files[ARMED].text)["input"] == {"path": PATH, "running": ["abc", "def"]}
    assert delays(host) == ["900", "120"], "it is armed once"
    assert host.log == ["restarting Docker"]
    assert "canary" not in f"{host.done}{host.log}{wiring()!r}"


def test_a_host_without_settings_gets_some() -> None:
    host = DockerHost({})
    wire(wiring(before=""), host)
    assert host.files[PATH] == File(NEW, 0o644)
    assert not host.entry(PATH + BACKUP)
    assert not host.entry(SETTINGS)
    host.boot_undo()
    assert not host.entry(PATH)
    assert host.started == ["abc", "def"]


def test_a_backup_is_made_once() -> None:
    host = old()
    host.files[PATH + BACKUP] = File("the first")
    wire(wiring(), host)
    assert host.files[PATH + BACKUP].text == "the first"


@pytest.mark.parametrize("there", [False, True])
def test_settings_that_have_changed_meanwhile_are_left_alone(there: bool) -> None:
    host = DockerHost({}, files={PATH: File("another")} if there else {})
    with pytest.raises(FailedError, match="has changed while this ran, and was left alone; run again"):
        wire(wiring(), host)
    assert (host.read(PATH), host.entry(ARMED)) == ("another" if there else None, None)


def test_settings_that_docker_refuses_are_not_applied() -> None:
    host = old(validates=False)
    with pytest.raises(FailedError, match=r"Docker would not start with .* as it would be; it was left") as caught:
        wire(wiring(), host)
    assert caught.value.log == ("b", "c", "unknown key")
    assert (host.read(PATH), host.entry(ARMED), host.entry(f"{PATH}.llamaherd-new")) == (OLD, None, None)


def test_settings_with_which_docker_does_not_come_up_are_rolled_back() -> None:
    host = old(cdi=False, refuses=NEW)
    with pytest.raises(FailedError) as caught:
        wire(wiring(), host)
    assert caught.value.message == (
        f"Docker does not come up with {PATH} as it would be: the one before is back, and what ran is started again"
    )
    assert host.files[PATH] == File(OLD, 0o600)
    assert (host.up, host.started) == (True, ["abc", "def"])
    assert host.names(str(UNDO_RUN)) == ["docker.settings"]


def test_a_docker_that_comes_up_with_neither_is_reported() -> None:
    host = old(cdi=False, refuses=NEW)
    host.ends["docker info"] = Ended(1)
    with pytest.raises(FailedError, match="and with the one before, which is back, no more") as caught:
        wire(wiring(), host)
    assert caught.value.fix == "its last lines are above, all of them in: journalctl -u docker"


def test_what_the_daemon_has_needs_no_restart() -> None:
    host = old()
    wire(wiring(settings=Secret(""), order=()), host)
    assert not host.has_done("restart")
    assert delays(host) == []
    assert host.has_done("enable", "nvidia-cdi-refresh.path")
    assert host.index("daemon-reload") < host.index("start", "nvidia-cdi-refresh.path")


def test_a_runtime_is_read_by_a_reload() -> None:
    host = old(runtime=False)
    wire(wiring(settings=Secret("")), host)
    assert host.has_done("reload", "docker")
    assert not host.has_done("restart")


def test_a_restart_without_new_settings_is_armed_and_restores_none() -> None:
    host = old(cdi=False)
    wire(wiring(settings=Secret("")), host)
    assert delays(host) == ["900", "120"]
    host.files[PATH] = File("another's")
    host.boot_undo()
    assert host.read(PATH) == "another's"
    assert host.started == ["abc", "def"]


@pytest.mark.parametrize(
    ("may", "live", "running", "is_refused"),
    [
        (False, "false", ["a", "b"], True),
        (False, "true", ["a"], False),
        (False, "false", [], False),
        (True, "", ["a"], False),
    ],
)
def test_containers_that_run_are_restarted_only_where_that_is_allowed(
    may: bool, live: str, running: list[str], is_refused: bool
) -> None:
    host = old(cdi=False, live=live, up_now=running)
    given = wiring(settings=Secret(""), may_restart=may)
    if is_refused:
        with pytest.raises(FailedError, match=r"must be restarted once to .*, and these run: a b") as caught:
            wire(given, host)
        assert "`restart_docker: true`" in caught.value.fix
    else:
        wire(given, host)
    assert host.has_done("restart", "docker") is not is_refused


def test_a_card_is_described_anew() -> None:
    host = old(cards=set())
    wire(wiring(), host)
    assert host.has_done("restart", "nvidia-cdi-refresh.service")


def test_a_card_that_is_not_described_is_named() -> None:
    host = old(cards={"nvidia.com/gpu=0", "other"}, described=False)
    with pytest.raises(FailedError, match=f"CDI describes no such card: {CARD}") as caught:
        wire(wiring(), host)
    assert caught.value.fix.startswith("it describes nvidia.com/gpu=0; does `nvidia-smi -L` list")
    host.ends["nvidia-ctk"] = Ended(127)
    with pytest.raises(FailedError, match="CDI describes no such card"):
        wire(wiring(before=sha256(NEW)), host)


def test_units_that_are_not_there_are_not_enabled() -> None:
    host = old(ends={"systemctl cat": Ended(1)})
    wire(wiring(), host)
    assert not host.has_done("enable")
    host = old(ends={"systemctl -q enable": Ended(1, "", "masked\n")})
    with pytest.raises(FailedError, match=r"nvidia-cdi-refresh\.path cannot be enabled"):
        wire(wiring(), host)


def test_a_daemon_that_still_gives_no_cards_is_reported() -> None:
    host = old(cdi=False, after_restart=(True, False))
    with pytest.raises(FailedError, match="Docker gives no cards to containers, although its settings enable it"):
        wire(wiring(), host)


def test_a_full_disk_has_a_help() -> None:
    with pytest.raises(FailedError, match=f"cannot write {PATH}.llamaherd-new"):
        wire(wiring(), old(full="llamaherd-new"))


def test_a_killed_wiring_is_completed_by_the_next() -> None:
    def run(host: DockerHost) -> None:
        before = host.read(PATH)
        wire(wiring(before=sha256(before or "")), host)

    hosts = killed_everywhere(lambda: old(cdi=False, runtime=False), run)
    assert len(hosts) > 10
    for host in hosts:
        assert (host.read(PATH), host.cdi, host.runtime) == (NEW, True, True)
        assert host.files[PATH + BACKUP].text == OLD


# --- NVIDIA's container toolkit -----------------------------------------------------------------------------


def toolkit(version: str = "") -> ToolkitInput:
    """Return an input."""
    preferences = WrittenFile(PINNED, Secret("Pin: version @version@\n"), 0o644, "root")
    return ToolkitInput(("a", "b"), version, preferences)


def published(**versions: list[str]) -> DockerHost:
    """Return a host whose repositories have versions of packages."""
    return DockerHost({}, versions=versions)


@pytest.mark.parametrize(
    ("version", "chosen"), [("", "1.20.0-1"), ("1.19.1", "1.19.1-1"), ("1.19.1-1", "1.19.1-1"), ("1.2", None)]
)
def test_the_newest_version_that_all_packages_have(version: str, chosen: str | None) -> None:
    host = published(a=["1.21.0-1", "1.20.0-1", "1.19.1-1"], b=["1.20.0-1", "1.19.1-1", "1.2.9-1"])
    if chosen is None:
        with pytest.raises(FailedError, match=r"none of .* has all packages of .* toolkit at 1\.2$") as caught:
            install_toolkit(toolkit(version), host)
        assert caught.value.fix.startswith("what there is of all of them: 1.19.1-1 1.20.0-1; write another")
        assert not host.entry(PINNED)
        return
    install_toolkit(toolkit(version), host)
    assert host.files[PINNED] == File(f"Pin: version {chosen}\n", 0o644)
    assert host.has_done("install", "--no-remove", "--allow-downgrades", f"a={chosen}", f"b={chosen}")
    assert host.log[-1] == f"NVIDIA's container toolkit is at {chosen}"


def test_packages_that_have_no_version_in_common() -> None:
    with pytest.raises(FailedError, match="at one version") as caught:
        install_toolkit(toolkit(), published(a=["1-1"], b=[]))
    assert "of all of them: nothing;" in caught.value.fix


def test_a_toolkit_that_apt_cannot_install() -> None:
    host = published(a=["1-1"], b=["1-1"])
    host.ends["apt-get -q -y -o DPkg::Lock::Timeout=600 install"] = Ended(100, "E: held\n")
    with pytest.raises(FailedError, match="apt could not install NVIDIA's container toolkit 1-1"):
        install_toolkit(toolkit(), host)


def test_the_verb_of_a_plan() -> None:
    given = input_of(toolkit_changes(GPU, HostState())[-2], ToolkitInput)
    assert given.packages == PACKAGES
    assert "@version@" in given.preferences.text.text
