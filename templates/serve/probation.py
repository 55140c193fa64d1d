#!/usr/bin/python3 -I
"""Watch servers for a minute after a switch, and restore the previous versions if a new one fails.

The switch starts this program as a transient unit, so it works without a controller. Its argument is a JSON file with a
list of servers: one, or those that were changed together. It polls the state of each unit or container, and probes each
server after 5, 20 and 60 seconds.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PROBES = (5, 20, 60)
"""Seconds after the switch at which the server is probed."""
POLL = 0.5
"""Seconds between two inspections of the unit or container."""
SILENT = 10
"""Seconds without a response after which a server that computes nothing hangs."""
COMPUTES = 0.1
"""Share of one core that a working server uses at least. A hung one uses none; CUDA waits by spinning."""
GOOD, WRONG, NO_RESPONSE = 0, 1, 3
"""Exit codes of the probe."""
COMMAND_SECONDS = 30
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Watched:
    """One server: where its files are, and what its probe is."""

    service: str
    kind: str
    """`unit` or `container`."""
    spec: str
    tried: str
    instance: str
    user: str
    kept: str
    """The folder with the versions that can be restored: `last` is the new one, `before` the previous one."""
    refused: str
    releases: str
    locks: str
    lock_seconds: int
    seconds: int
    """How long a busy server may take to respond to a probe."""
    prompts: bool
    """Whether a prompt probes it. A group would have to swap models for one."""
    prove: str
    started: str
    forget: str
    """The script that removes a unit or container after a move from one to the other."""

    @property
    def is_unit(self) -> bool:
        """Whether systemd runs the server."""
        return self.kind == "unit"


@dataclass(frozen=True)
class Run:
    """The state of a unit or container: `up`, `died` or `stopped` (by a person or another run)."""

    state: str
    pid: int = 0


@dataclass(frozen=True)
class Kept:
    """A version that can be restored, as the switch described it in the file `how`."""

    folder: Path
    kind: str
    spec: str
    seconds: int
    file: str
    key: str
    inputs: tuple[str, ...]


class FailedError(Exception):
    """A step of the rollback failed. The message says which and why."""


class System:
    """What this program needs of a host. Tests play it."""

    def run(self, argv: Sequence[str], seconds: float = COMMAND_SECONDS, text: str = "") -> tuple[int, str]:
        """Run a program and return its exit code and output.

        The code is 124 if it takes longer than `seconds`, and 127 if it cannot be started.
        """
        try:
            ended = subprocess.run(
                argv, input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return 124, ""
        except OSError:
            return 127, ""
        return ended.returncode, ended.stdout

    def now(self) -> float:
        """Return seconds of a clock that never jumps."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def computed(self, pid: int) -> float:
        """Return the seconds of processor time that a server's processes have used: all in the control group of one."""
        used = 0
        with suppress(OSError):
            group = Path("/proc", str(pid), "cgroup").read_text(encoding="utf-8")
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError, ValueError, IndexError):
                    if (process / "cgroup").read_text(encoding="utf-8") == group:
                        words = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                        used += int(words[11]) + int(words[12])
        return used / TICKS

    def log(self, line: str) -> None:
        """Write a line to the journal."""
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def watch(servers: Sequence[Watched], system: System) -> str:
    """Probe the servers until their probation ends. Returns why they were rolled back, and nothing if they were not."""
    began = system.now()
    for at in PROBES:
        while system.now() < began + at:
            system.sleep(POLL)
            for each in servers:
                state = inspect(each, system).state
                if state == "stopped" or replaced(each):
                    return ""
                if state == "died":
                    seconds = f"{system.now() - began:.0f} s"
                    return roll_back(servers, each, f"it ended {seconds} after it had proved itself", system)
        for each in servers:
            if why := probe(each, system):
                why = "it ended while it was probed" if inspect(each, system).state == "died" else why
                return roll_back(servers, each, f"{why}, {at} s after it had proved itself", system)
    with lock(servers[0], system, "host"):
        for each in servers:
            if not replaced(each):
                drop_before(Path(each.kept))
    return ""


def inspect(watched: Watched, system: System) -> Run:
    """Return the state of the unit or container. One that cannot be inspected counts as running."""
    return inspect_unit(watched, system) if watched.is_unit else inspect_container(watched, system)


def inspect_unit(watched: Watched, system: System) -> Run:
    """Query systemd, which starts a server again some seconds after it ended by itself, and counts that."""
    names = "ActiveState,SubState,Result,NRestarts,MainPID"
    code, out = system.run(["systemctl", "show", "-p", names, f"{watched.service}.service"])
    found = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    if code or "ActiveState" not in found:
        return Run("up")
    restarts = number(found.get("NRestarts", ""))
    if restarts or found.get("SubState") == "auto-restart" or found.get("Result") == "start-limit-hit":
        return Run("died")
    # With Restart=always, systemd leaves only a server down that a person stopped: "failed" if it had to be killed.
    stopped = found["ActiveState"] in ("inactive", "failed")
    return Run("stopped") if stopped else Run("up", number(found.get("MainPID", "")))


def inspect_container(watched: Watched, system: System) -> Run:
    """Query Docker, which starts a container again at once after it ended by itself."""
    code, out = system.run(["docker", "inspect", "--type", "container", watched.service])
    try:
        found = json.loads(out)[0]
        status, restarts, pid = found["State"]["Status"], found["RestartCount"], found["State"]["Pid"]
    except (ValueError, LookupError, TypeError):
        return Run("up")
    if code == 0 and (restarts or status in ("restarting", "dead")):
        return Run("died")
    return Run("up", pid) if code or status == "running" else Run("stopped")


def number(text: str) -> int:
    """Return a number that systemd or Docker printed, or 0."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def probe(watched: Watched, system: System) -> str:
    """Probe the server, again if a response is wrong. Returns why both were, or that the server hangs."""
    why = ""
    for attempt in range(2):
        code, why = probe_once(watched, system)
        if code != WRONG or attempt:
            break
        system.log(f"{watched.service}: {why}; probing again")
        system.sleep(1)
    return why


def probe_once(watched: Watched, system: System) -> tuple[int, str]:
    """Send the probe. A server that computes is busy, with requests of clients it may be, and has more time."""
    asked = str(Path(watched.kept, "last", "asked"))
    if not watched.prompts or not Path(asked).exists():
        return GOOD, ""
    pid = inspect(watched, system).pid
    for seconds in (SILENT, watched.seconds):
        before, began = system.computed(pid), system.now()
        code, why = system.run([watched.prove, "--short", str(seconds), asked], seconds + 5)
        if code not in (NO_RESPONSE, 124):
            # A probe that fails without a reason failed itself.
            return (WRONG, why.strip()) if code and why.strip() else (GOOD, "")
        if system.computed(pid) - before < COMPUTES * (system.now() - began):
            return NO_RESPONSE, f"it hangs: it did not respond within {seconds} s, and computed nothing"
    return GOOD, ""


def replaced(watched: Watched) -> bool:
    """Return whether another run has changed the server since, or has removed it."""
    was = read_kept(Path(watched.kept, "last"))
    return was is None or was.spec != watched.spec


def read_kept(folder: Path) -> Kept | None:
    """Return a version that can be restored, or None if it is not complete."""
    try:
        folder = folder.resolve(strict=True)
        words = shlex.split((folder / "how").read_text(encoding="utf-8"))
        how = dict(word.split("=", 1) for word in words)
        inputs = tuple(shlex.split(how["was_inputs"]))
        seconds = number(how["was_seconds"])
        return Kept(folder, how["was_kind"], how["was_spec"], seconds, how["was_file"], how["was_key"], inputs)
    except (OSError, ValueError, KeyError):
        return None


def roll_back(servers: Sequence[Watched], failed: Watched, why: str, system: System) -> str:
    """Restore the previous versions of all servers, and record why. Returns why, or nothing if another run was faster.

    A kill at any point leaves the new versions marked as untried, so the next run proves them or goes back.
    """
    system.log(f"{failed.service}: {why}; restoring the previous version")
    with lock(failed, system, "host") as waited:
        if waited and not fails(failed, system):
            return ""
        versions = [(each, read_kept(Path(each.kept, "before"))) for each in servers]
        if any(map(replaced, servers)) or not any(before for _, before in versions):
            return ""
        began = system.now()
        for each, before in versions:
            if before:
                mark_untried(each)
                link(Path(each.kept, "last"), before.folder.name)
        for each, before in versions:
            stop(each, before, system, hung=each is failed)
        problems = [problem for each, before in versions if before and (problem := bring_back(each, before, system))]
        if not problems:
            refuse(failed, why)
            for each, _ in versions:
                Path(each.kept, "untried").unlink(missing_ok=True)
        for each, _ in versions:
            Path(each.kept, "before").unlink(missing_ok=True)
        names = " and ".join(each.service for each, before in versions if before)
        outcome = f"{names} serves again as before, after {system.now() - began:.0f} s: {failed.service} failed, {why}"
        outcome = "; ".join(problems) or outcome
    system.log(outcome)
    with lock(failed, system, "releases"):
        record(
            failed,
            [f"restart server {each.service}: spec {before.spec} is restored" for each, before in versions if before],
            outcome,
        )
    return why


def fails(watched: Watched, system: System) -> bool:
    """Return whether a server still fails. Another run may have changed it while this program waited for the lock."""
    return not replaced(watched) and (inspect(watched, system).state == "died" or bool(probe(watched, system)))


def mark_untried(watched: Watched) -> None:
    """Note that the new version is not proved any more."""
    with Path(watched.kept, "untried").open("a", encoding="utf-8") as file:
        file.write(f"{watched.spec}\n")
        file.flush()
        os.fsync(file.fileno())


def bring_back(watched: Watched, before: Kept, system: System) -> str:
    """Restore and start the previous version. Returns what went wrong."""
    try:
        restore(watched, before, system)
        start(watched, before, system)
    except FailedError as error:
        return f"{watched.service} was rolled back to spec {before.spec}, which does not start either: {error}"
    return ""


def stop(watched: Watched, before: Kept | None, system: System, *, hung: bool) -> None:
    """Stop the new version, by force if it may hang. Without a previous version it stays stopped."""
    unit = f"{watched.service}.service"
    if watched.is_unit:
        if hung:
            system.run(["systemctl", "kill", "--kill-who=main", "-s", "KILL", unit])
        system.run(["systemctl", "stop", unit], 120)
        if before is None:
            system.run(["systemctl", "-q", "disable", unit])
    else:
        if hung:
            system.run(["docker", "kill", watched.service])
        system.run(["docker", "stop", watched.service], 120)
    if before and before.kind != watched.kind:
        system.run(["sh"], 180, watched.forget)


def restore(watched: Watched, before: Kept, system: System) -> None:
    """Put the file and the key of the previous version in place, each at once."""
    if before.kind == "unit" and system.run(["id", "-u", watched.user])[0]:
        nobody = ("--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin")
        system.run(["useradd", "--system", "--user-group", *nobody, watched.user])
    try:
        put(before.folder / "file", Path(before.file))
        if before.key and (before.folder / "key").exists():
            put(before.folder / "key", Path(before.key))
            if before.kind == "unit":
                shutil.chown(before.key, watched.user)
    except (OSError, LookupError) as error:
        raise FailedError(f"its files cannot be written: {error}") from error


def put(source: Path, target: Path) -> None:
    """Copy a file with its mode and owner, and rename it into place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f"{target.name}.llamaherd-new")
    shutil.copy2(source, new)
    owner = source.stat()
    os.chown(new, owner.st_uid, owner.st_gid)
    new.replace(target)


def start(watched: Watched, before: Kept, system: System) -> None:
    """Start the previous version and probe it. Raises FailedError."""
    service = watched.service
    if before.kind == "unit":
        unit = f"{service}.service"
        system.run(["systemctl", "-q", "--no-reload", "enable", unit])
        system.run(["systemctl", "daemon-reload"], 90)
        system.run(["systemctl", "reset-failed", unit])
        code, _ = system.run(["systemctl", "start", unit], before.seconds + 60)
    else:
        up = ("up", "-d", "--force-recreate", "--remove-orphans", "--wait", "--wait-timeout", str(before.seconds))
        code, _ = system.run(["docker", "compose", "-f", before.file, *up], before.seconds + 60)
        system.run([watched.started, "record", "container", service, *before.inputs])
    if code:
        raise FailedError("it is not healthy in time")
    asked = before.folder / "asked"
    if watched.prompts and asked.exists():
        code, why = system.run([watched.prove, "--short", str(watched.seconds), str(asked)], watched.seconds + 5)
        if code in (NO_RESPONSE, 124) or (code and why.strip()):
            raise FailedError(why.strip() or "it does not respond")


def refuse(watched: Watched, why: str) -> None:
    """Note the new version as refused: the next run reports it, and does not try it again by itself."""
    path = Path(watched.refused)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = " ".join(why.split())[:300]
    write(path, f"{watched.tried}\t{time.strftime('%Y-%m-%d %H:%M:%S')}\t{line}\n")


def record(watched: Watched, changes: Sequence[str], outcome: str) -> None:
    """Add a release to the history of the host: a failed one, with the plan of the newest."""
    folder = Path(watched.releases)
    numbers = [int(each.stem) for each in folder.glob("*.json") if each.stem.isascii() and each.stem.isdigit()]
    if not numbers:
        return
    newest = max(numbers)
    release = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "origin": {"user": "llamaherd", "machine": socket.gethostname(), "commit": "", "lock": "", "version": ""},
        "changes": changes,
        "failed": [f"serve | {watched.instance}: {outcome}"[:400]],
        "back_to": None,
        "only": [],
    }
    with suppress(OSError):
        shutil.copy2(folder / f"{newest}.plan", folder / f"{newest + 1}.plan")
    write(folder / f"{newest + 1}.json", json.dumps(release, separators=(",", ":")))


def drop_before(kept: Path) -> None:
    """Remove the previous version: the new one has passed its probation."""
    with suppress(OSError):
        folder = (kept / "before").resolve(strict=True)
        (kept / "before").unlink()
        if folder != (kept / "last").resolve():
            shutil.rmtree(folder)


def link(name: Path, target: str) -> None:
    """Point a link somewhere else, at once."""
    new = name.with_name(f"{name.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(name)


def write(path: Path, text: str) -> None:
    """Write a file that only root can read, at once."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


@contextmanager
def lock(watched: Watched, system: System, name: str) -> Iterator[bool]:
    """Hold a lock of the host's, and yield whether another run held it. Ends the program if it does for too long."""
    with Path(watched.locks, name).open("a+", encoding="utf-8") as file:
        until = system.now() + watched.lock_seconds
        waited = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if system.now() > until:
                    sys.exit(f"another run holds {file.name} for more than {watched.lock_seconds} s")
                system.sleep(POLL)
                waited = True
        file.truncate(0)
        file.write(f"process {os.getpid()} since {time.strftime('%H:%M:%S')}: probation of {watched.service}\n")
        file.flush()
        yield waited


def main(path: str) -> None:
    os.umask(0o077)
    watch([Watched(**each) for each in json.loads(Path(path).read_text(encoding="utf-8"))], System())
    Path(path).unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1])
