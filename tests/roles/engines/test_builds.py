"""Builds: a unit is started or joined, what it has built is admitted once, and a finished build is not made again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from llamaherd.host.state import HostState
from llamaherd.host.time_limits import BUILD_SECONDS, STEP_SECONDS
from llamaherd.layout import BUILD_USER, CACHE, INCOMING
from llamaherd.onhost import system
from llamaherd.onhost.document import decode, dump, parse_document
from llamaherd.onhost.system import Ended, FailedError, Host
from llamaherd.onhost.verbs import find_verb
from llamaherd.plan import BuildPlan
from llamaherd.role.changes import RunVerb
from roles.engines import build_changes, compile_input, onhost
from roles.engines.onhost import (
    BuildInput,
    InstallInput,
    SourceFileInput,
    VouchInput,
    admit_source,
    stamp_of,
    vouch,
)
from roles.engines.onhost.compiling import CompileInput
from roles.engines.onhost.prebuilt import ReleaseInput
from tests.render.plans import CPU
from tests.support.played_host import File, Running
from tests.support.recording import input_of
from tests.support.releases import cpu_release, planned_release, release_of
from tests.support.service_host import ServiceHost, killed_everywhere
from tests.support.states import host_with
from tests.support.stores import needs_root

BUILD = CPU.builds[0]
GIVEN = BuildInput(replace(compile_input(BUILD), targets=("llama-server",)), BUILD_SECONDS)
HOME, WORK = f"/opt/llamaherd/builds/{BUILD.id}", f"/var/lib/llamaherd/work/{BUILD.id}"
NAME = f"llamaherd-build-{BUILD.id}"
SERVER = hashlib.sha256(b"llama-server").hexdigest()


def manifest(**sums: str) -> str:
    """Return a manifest with hashes of programs."""
    return f"{json.dumps({'id': BUILD.id, 'seconds': 61, 'sha256': sums})}\n"


@dataclass
class BuildHost(ServiceHost):
    """A host whose unit compiles for a while."""

    accounts: set[str] = field(default_factory=lambda: {BUILD_USER})
    compiles: int = 25
    """Seconds until the unit has ended."""
    builds: bool = True
    """Whether it has built something by then."""
    silent: int = 0
    """How often systemd does not respond."""
    owners: list[str] = field(default_factory=list)
    ends_at: float = 0

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Play a program."""
        words = [*argv]
        if words[:2] == ["systemctl", "show"] and self.silent > 0:
            self.silent -= 1
            return Ended(1, "", "Failed to connect to bus")
        ended = super().run(words, seconds=seconds, text=text, environment=environment)
        if not ended.ok or any(" ".join(words).startswith(begins) for begins in self.ends):
            return ended
        match words[0], words[-1]:
            case "systemd-run", _:
                self._step()
                self.units[NAME] = Running("active")
                self.ends_at = self.time + self.compiles
            case "mv", to:
                self.remove(to)
                self.rename(words[-2], to)
            case "sha256sum", path:
                found = self.read(path)
                sha256 = hashlib.sha256((found or "").encode()).hexdigest()
                return Ended(1) if found is None else Ended(0, f"{sha256}  {path}\n")
            case "tail", path:
                return Ended(0, self.read(path) or "")
            case "grep", path:
                found = self.read(path) or ""
                return Ended(0, found) if "error:" in found else Ended(1)
            case (("chown" | "chmod"), path):
                self._step()
                self.owners.append(f"{words[-2]} {path}")
        return ended

    def sleep(self, seconds: float) -> None:
        """Let the unit end."""
        super().sleep(seconds)
        unit = self.units.get(NAME)
        if unit and unit.state == "active" and self.time >= self.ends_at:
            unit.state = "inactive"
            self.finish()

    def finish(self) -> None:
        """Have what the unit leaves."""
        self.files[f"{WORK}/build.log"] = File("x\n[1/9] a\r[2/9] b\nno [3/9]\n")
        self.folders.add(f"{WORK}/tree")
        if self.builds:
            self.files[f"{WORK}/out/bin/llama-server"] = File("llama-server")
            self.files[f"{WORK}/out/manifest.json"] = File(manifest(**{"llama-server": SERVER}))


def build(host: BuildHost, given: BuildInput = GIVEN) -> None:
    """Run the verb with a decoded document."""
    verb = find_verb("engines.build")
    verb.run(decode(BuildInput, parse_document(dump(given).encode())), host)


def is_built(host: BuildHost) -> bool:
    """Return whether the build is at its place, with its stamp, and nothing is left over."""
    stamp = stamp_of(HOME, host)
    assert [line.split()[0] for line in stamp.splitlines()] == [".", "bin", "manifest.json", "bin/llama-server"]
    return (host.read(f"{HOME}/.stamp"), host.names(WORK)) == (stamp, [])


def units_begun(host: BuildHost) -> list[list[str]]:
    """Return how units were begun."""
    return [each for each in host.done if each[0] == "systemd-run"]


def finished(**files: str) -> BuildHost:
    """Return a host with a finished build, and other files in it."""
    host = BuildHost({})
    texts = {"manifest.json": manifest(**{"llama-server": SERVER}), "bin/llama-server": "llama-server"} | files
    host.files = {f"{HOME}/{name}": File(text) for name, text in texts.items()}
    return host


def test_a_build_runs_in_a_unit_and_is_admitted() -> None:
    host = BuildHost({})
    build(host)
    assert is_built(host)
    (unit,) = units_begun(host)
    settings = {f"User={BUILD_USER}", f"RuntimeMaxSec={BUILD_SECONDS}", "Nice=10", "ProtectSystem=strict"}
    assert settings < set(unit)
    assert f"BindPaths={WORK}:/var/lib/llamaherd/build" in unit
    assert unit[-4:] == ["/usr/bin/python3", "-I", host.program, "/var/lib/llamaherd/build/build.json"]
    assert host.owners == [f"root:root {WORK}/out", f"u=rwX,go=rX {WORK}/out"]
    assert host.index("chown") < host.index("mv")
    assert host.log[-1] == f"built {BUILD.id} in 61 s"


def test_the_unit_reads_what_to_compile() -> None:
    host = BuildHost({}, compiles=10**6, ends={"systemd-run": Ended(1, "", "no bus\n")})
    host.files[f"{WORK}/build.sh"] = File("of the last version")
    with pytest.raises(FailedError, match=f"{NAME}.service cannot be started"):
        build(host)
    file = host.files[f"{WORK}/build.json"]
    assert (file.mode, file.owner) == (0o600, BUILD_USER)
    document = json.loads(file.text)
    assert document["verb"] == "engines.compiling.compile"
    assert decode(CompileInput, document["input"]) == GIVEN.engine
    assert not host.entry(f"{WORK}/build.sh")


def test_progress_is_reported_every_ten_seconds() -> None:
    host = BuildHost({}, compiles=35)
    host.files[f"{WORK}/build.log"] = File("old")
    build(host)
    said = [each for each in host.log if each.startswith("building")]
    assert [each.rpartition(" after ")[0] for each in said] == [f"building {BUILD.id}: configuring"] * 3
    host = BuildHost({}, units={NAME: Running("active")}, ends_at=12)
    host.finish()
    build(host)
    assert host.log[0].startswith(f"building {BUILD.id}: 2/9 after 10 s")


def test_a_unit_that_runs_is_joined() -> None:
    host = BuildHost({}, units={NAME: Running("activating")}, ends_at=5)
    host.units[NAME].state = "active"
    build(host)
    assert is_built(host)
    assert not units_begun(host)


def test_what_the_last_version_has_built_is_admitted_and_not_built_again() -> None:
    host = BuildHost({})
    host.finish()
    build(host)
    assert is_built(host)
    assert not units_begun(host)


def test_a_finished_build_is_not_built_again() -> None:
    host = finished()
    build(host)
    assert host.log == [f"built {BUILD.id}"]
    assert not units_begun(host)


@pytest.mark.parametrize("damage", ["bin/llama-server", "manifest.json"])
@pytest.mark.parametrize("text", ["", "another", "[]", '{"sha256": 1}', '{"sha256": {}}'])
def test_a_build_that_is_not_what_was_built_is_built_again(damage: str, text: str) -> None:
    host = finished(**{damage: text})
    build(host)
    assert is_built(host)
    assert len(units_begun(host)) == 1


def test_a_killed_run_is_completed_by_the_next() -> None:
    hosts = killed_everywhere(lambda: BuildHost({}), build)
    assert len(hosts) > 5
    for host in hosts:
        # One that was killed between the move and the stamp is intact, and vouched for by the next run.
        if not host.entry(f"{HOME}/.stamp"):
            vouch(VouchInput(BUILD.id), host)
        assert host.read(f"{HOME}/bin/llama-server") == "llama-server"
        assert host.entry(f"{HOME}/.stamp")
        assert len(units_begun(host)) <= 2


def test_a_compiler_that_fails_is_quoted() -> None:
    said = "".join(f"error: {number} {'x' * 400}\n" for number in range(30))

    class Failing(BuildHost):
        def finish(self) -> None:
            super().finish()
            self.files[f"{WORK}/build.log"] = File(said)
            self.files[f"{WORK}/failed"] = File("it does not compile; the log is there\n")

    host = Failing({}, builds=False)
    with pytest.raises(FailedError) as caught:
        build(host)
    assert caught.value.message == "it does not compile; the log is there"
    assert (len(caught.value.log), len(caught.value.log[0])) == (20, 300)
    assert not host.entry(f"{WORK}/tree")
    assert host.entry(f"{WORK}/build.log")


def test_a_unit_that_is_killed_is_reported() -> None:
    host = BuildHost({}, builds=False)
    with pytest.raises(FailedError, match="killed, out of memory, or after 12 h") as caught:
        build(host)
    assert caught.value.log == ()


def test_a_build_that_never_ends() -> None:
    host = BuildHost({}, compiles=10**9)
    with pytest.raises(FailedError) as caught:
        build(host, replace(GIVEN, seconds=60))
    assert caught.value.message == f"the build of {BUILD.id} has not ended within 60 s; its logs are in {WORK}"
    assert caught.value.fix == (
        f"see with `ps -ef --forest` what hangs, end it with `systemctl stop {NAME}.service`, and run again"
    )


# --- releases, which are installed by the same unit -----------------------------------------------------------

RELEASE = release_of(planned_release(cpu_release()))
RELEASE_WORK = f"/var/lib/llamaherd/work/{RELEASE.id}"
RELEASE_UNIT = f"llamaherd-build-{RELEASE.id}"


class ReleaseHost(BuildHost):
    """A host whose unit fetches for 15 seconds, and then unpacks."""

    def run(self, argv: Sequence[str], **options: Any) -> Ended:
        """Play a program: the unit is that of the release."""
        ended = super().run(argv, **options)
        if argv[0] == "systemd-run" and NAME in self.units:
            self.units[RELEASE_UNIT] = self.units.pop(NAME)
            self.folders.add(f"{RELEASE_WORK}/fetch")
        return ended

    def sleep(self, seconds: float) -> None:
        """Let the unit go on."""
        super().sleep(seconds)
        left = self.ends_at - self.time
        if left > self.compiles - 15:
            self.files[f"{RELEASE_WORK}/fetch/progress"] = File("fetching a from github.com: 1 of 9 MB\n")
        else:
            self.files[f"{RELEASE_WORK}/out/bin/llama-server"] = File("llama-server")
        if left <= 0:
            self.units[RELEASE_UNIT].state = "inactive"
            self.finish()

    def finish(self) -> None:
        """Have what the unit leaves."""
        if self.builds:
            for name in ("llama-server", "llama-fit-params"):
                self.files[f"{RELEASE_WORK}/out/bin/{name}"] = File("llama-server")
            self.files[f"{RELEASE_WORK}/out/manifest.json"] = File(manifest(**{"llama-server": SERVER}))


def install(host: BuildHost) -> None:
    """Run the verb of the change with a decoded document."""
    (change,) = build_changes(RELEASE, HostState())
    assert isinstance(change.how, RunVerb)
    document = parse_document(dump(change.how.given).encode())
    find_verb(change.how.verb).run(decode(InstallInput, document), host)


def test_a_release_is_installed_in_a_unit_and_admitted() -> None:
    host = ReleaseHost({}, compiles=35)
    install(host)
    (unit,) = units_begun(host)
    assert f"--unit={RELEASE_UNIT}.service" in unit
    assert {f"User={BUILD_USER}", "ProtectSystem=strict", f"ReadWritePaths={RELEASE_WORK} {CACHE}"} < {*unit}
    said = [each for each in host.log if each.startswith("installing")]
    assert said == [
        f"installing {RELEASE.id}: fetching a from github.com: 1 of 9 MB",
        f"installing {RELEASE.id}: unpacking after 20 s",
        f"installing {RELEASE.id}: unpacking after 30 s",
    ]
    assert host.log[-1] == f"installed {RELEASE.id} in 61 s"
    assert host.read(f"/opt/llamaherd/builds/{RELEASE.id}/bin/llama-server") == "llama-server"
    install(host)
    assert len(units_begun(host)) == 1


def test_the_unit_reads_what_to_install() -> None:
    host = ReleaseHost({}, ends={"systemd-run": Ended(1, "", "no bus\n")})
    with pytest.raises(FailedError, match=f"{RELEASE_UNIT}.service cannot be started"):
        install(host)
    document = json.loads(host.files[f"{RELEASE_WORK}/build.json"].text)
    assert document["verb"] == "engines.prebuilt.install"
    assert find_verb(document["verb"]).input is ReleaseInput
    assert decode(ReleaseInput, document["input"]).tag == "b11434"


def test_a_release_that_fails_has_a_reason_and_a_fix() -> None:
    class Failing(ReleaseHost):
        def finish(self) -> None:
            self.files[f"{RELEASE_WORK}/failed"] = File("it does not run here\nwrite `ref`\n")

    with pytest.raises(FailedError) as caught:
        install(Failing({}, builds=False))
    assert (caught.value.message, caught.value.fix) == ("it does not run here", "write `ref`")
    with pytest.raises(FailedError, match="the installation was stopped before it ended"):
        install(ReleaseHost({}, builds=False))


def test_the_step_of_a_build_has_more_time_than_its_unit() -> None:
    how = build_changes(BUILD, HostState())[-1].how
    assert isinstance(how, RunVerb)
    assert isinstance(how.given, BuildInput)
    assert how.seconds == STEP_SECONDS > how.given.seconds == BUILD_SECONDS


@pytest.mark.parametrize("silent", [3, 1000])
def test_systemd_that_does_not_respond_is_no_reason_to_conclude_anything(silent: int) -> None:
    host = BuildHost({}, silent=silent)
    if silent == 3:
        build(host)
        assert is_built(host)
    else:
        with pytest.raises(FailedError, match=r"systemd does not respond, .*nothing was changed: run again"):
            build(host)
        assert not units_begun(host)


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ("install", f"cannot create {WORK}"),
        ("chown", f"cannot set owner and permissions of {WORK}/out"),
        ("mv", f"cannot move the build to {HOME}"),
    ],
)
def test_a_tool_that_fails_is_reported(ends: str, why: str) -> None:
    host = BuildHost({}, ends={ends: Ended(1, "", "read-only\n")})
    with pytest.raises(FailedError, match=why) as caught:
        build(host)
    assert caught.value.log == ("read-only",)


def test_a_full_disk_has_a_help() -> None:
    host = BuildHost({}, full="build.json")
    with pytest.raises(FailedError, match=r"cannot write .*build.json: No space left") as caught:
        build(host)
    assert "make room" in caught.value.fix


# --- finished builds ----------------------------------------------------------------------------------------


def test_a_build_that_is_another_is_not_vouched_for() -> None:
    host = finished(**{"bin/llama-server": "another"})
    with pytest.raises(FailedError, match="is not what was built; run again, and it is built anew"):
        vouch(VouchInput(BUILD.id), host)
    assert not host.entry(f"{HOME}/.stamp")


def test_what_is_no_part_of_a_build_is_moved_aside() -> None:
    host = finished(**{"bin/it's $(id)": "x", "bin/.hidden": "y"})
    vouch(VouchInput(BUILD.id), host)
    assert host.names(f"{HOME}/bin") == ["llama-server"]
    aside = host.names("/var/lib/llamaherd/set-aside")
    place = HOME.lstrip("/").replace("/", "_")
    assert [each.rpartition(".")[0] for each in aside] == [f"{place}_bin_.hidden", f"{place}_bin_it's $(id)"]
    assert host.log == [
        f"{HOME}/bin/{name} is no part of what was built; it lies in /var/lib/llamaherd/set-aside/{to} now"
        for name, to in zip([".hidden", "it's $(id)"], aside, strict=True)
    ]
    assert host.owners == [
        f"root:root {HOME}",
        f"{HOME}/bin {HOME}/bin/llama-server",
        f"0644 {HOME}/manifest.json",
    ]
    assert host.entry(f"{HOME}/.stamp")


def test_a_file_that_cannot_be_moved_is_reported() -> None:
    host = finished(**{"bin/other": "x"})
    host.ends["mv"] = Ended(1, "", "busy\n")
    with pytest.raises(FailedError, match=f"cannot move {HOME}/bin/other to /var"):
        vouch(VouchInput(BUILD.id), host)
    host = finished()
    host.full = ".stamp"
    with pytest.raises(FailedError, match=r"cannot write .*/\.stamp"):
        vouch(VouchInput(BUILD.id), host)


def test_a_killed_vouch_is_completed_by_the_next() -> None:
    for host in killed_everywhere(
        lambda: finished(**{"bin/other": "x"}), lambda host: vouch(VouchInput(BUILD.id), host)
    ):
        assert host.names(f"{HOME}/bin") == ["llama-server"]
        assert host.entry(f"{HOME}/.stamp")


@needs_root
@pytest.mark.usefixtures("starts_processes")
def test_a_real_build_is_vouched_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(onhost, "BUILDS", tmp_path)
    monkeypatch.setattr(onhost, "SET_ASIDE", tmp_path / "aside")
    home = tmp_path / BUILD.id
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "llama-server").write_text("llama-server")
    (home / "bin" / "libggml.so").write_text("not ours")
    (home / "bin" / ".hidden").symlink_to("/nowhere")
    (home / "manifest.json").write_text(manifest(**{"llama-server": SERVER}))
    os.chown(home / "bin" / "llama-server", 65534, 65534)
    lines: list[str] = []
    vouch(VouchInput(BUILD.id), Host(lines.append, lines.append))
    assert [path.name for path in (home / "bin").iterdir()] == ["llama-server"]
    names = sorted(path.name.rsplit("_", 1)[1].rsplit(".", 1)[0] for path in (tmp_path / "aside").iterdir())
    assert names == [".hidden", "libggml.so"]
    assert len(lines) == 2
    found = (home / "bin" / "llama-server").stat()
    assert (found.st_mode & 0o777, found.st_uid) == (0o755, 0)
    assert (home / ".stamp").stat().st_mode & 0o777 == 0o644


# --- a source that was sent ---------------------------------------------------------------------------------

ARCHIVE = "an archive"
SHA = hashlib.sha256(ARCHIVE.encode()).hexdigest()
SENT, SOURCE = f"{INCOMING}/{SHA}", f"{CACHE}/sources/{SHA}"


def with_files(**files: str) -> BuildHost:
    """Return a host with a file that was sent, or that another run has admitted."""
    paths = {"sent": SENT, "source": SOURCE}
    return BuildHost({}, files={paths[name]: File(text) for name, text in files.items()})


def test_a_source_is_admitted_once() -> None:
    host = with_files(sent=ARCHIVE)
    admit_source(SourceFileInput(SHA), host)
    assert host.names(str(INCOMING)) == []
    assert host.read(SOURCE) == ARCHIVE
    assert host.owners == [f"{BUILD_USER} {SENT}", f"0644 {SENT}"]
    before = len(host.done)
    admit_source(SourceFileInput(SHA), host)
    assert len(host.done) == before


def test_another_source_is_removed() -> None:
    host = with_files(sent="another")
    sha256 = hashlib.sha256(b"another").hexdigest()
    with pytest.raises(
        FailedError, match=f"the archive arrived with sha256 {sha256}, but the inventory declares {SHA}"
    ):
        admit_source(SourceFileInput(SHA), host)
    assert not host.files


def test_a_source_that_cannot_be_moved_is_reported() -> None:
    host = with_files(sent=ARCHIVE)
    host.ends["mv"] = Ended(1, "", "full\n")
    with pytest.raises(FailedError, match=f"cannot move the archive to {SOURCE}"):
        admit_source(SourceFileInput(SHA), host)


def test_a_killed_admission_is_completed_by_the_next() -> None:
    for host in killed_everywhere(
        lambda: with_files(sent=ARCHIVE), lambda host: admit_source(SourceFileInput(SHA), host)
    ):
        assert host.read(SOURCE) == ARCHIVE


def test_a_source_is_sent_and_admitted_before_it_is_compiled() -> None:
    changes = build_changes(BUILD, HostState())
    assert [each.action for each in changes] == ["send", "send", "build"]
    assert input_of(changes[1], SourceFileInput).sha256 == BUILD.source.sha256
    assert [each.action for each in build_changes(BUILD, host_with(builds={BUILD.id: "built"}))] == ["build"]
    vouched = build_changes(BUILD, host_with(builds={BUILD.id: "intact"}))
    assert input_of(vouched[0], VouchInput).id == BUILD.id
    assert build_changes(BUILD, host_with(builds={BUILD.id: "done"})) == []


def test_a_plan_of_the_last_version_is_read() -> None:
    """It contains the script of each build."""
    old: dict[str, Any] = {**BUILD.model_dump(mode="json"), "script": "#!/bin/sh\n"}
    assert BuildPlan.model_validate(old) == BUILD
