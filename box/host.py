"""A throwaway host in a container: real systemd, real sshd, on 127.0.0.1 only."""

import hashlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from docker import DockerClient, from_env
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container

from box import image
from box.alone import alone
from box.errors import BoxError, ending
from box.inside import File, put_files, run_inside

Report = Callable[[str], None]

USER, USER_ID = "owner", 1000
BOOT_SECONDS = 60
CCACHE = "/var/cache/llamaherd/ccache"
SPEC = "llamaherd.spec"  # the label that says what the container was made from


@dataclass(frozen=True)
class BoxHost:
    """One host; `folder` keeps its keys, which outlive the container."""

    name: str
    port: int
    folder: Path
    publish: tuple[tuple[int, int], ...] = ()
    """More ports of the container and where they appear on 127.0.0.1."""
    caches: str = "llamaherd"
    """Boxes of one name share their package and compiler caches."""
    packages: str = ""
    """Boxes of one name share their package cache, where it is not that of `caches`: apt lets one at a time use it."""
    debian: image.Debian = image.TRIXIE
    """What it runs."""
    reboots: bool = False
    """Whether it comes back after a reboot from inside; without, that is its end until `up`."""
    made_from: str = ""
    """The image that another host was kept as, which it goes on from; without, a bare system."""

    @property
    def key(self) -> Path:
        """The private key that lets its user in."""
        return self.folder / "id_ed25519"

    @property
    def host_key(self) -> Path:
        """The private key that the host proves itself with."""
        return self.folder / "ssh_host_ed25519_key"

    @property
    def known_hosts(self) -> Path:
        """What ssh must be given to trust this host and no other."""
        return self.folder / "known_hosts"

    @property
    def data_volumes(self) -> dict[str, str]:
        """Volumes that go with the container: the stores of a Docker inside need a real file system."""
        return {f"{self.name}-docker": "/var/lib/docker", f"{self.name}-containerd": "/var/lib/containerd"}

    @property
    def cache_volumes(self) -> dict[str, str]:
        """Volumes that outlive it: what would only be fetched or compiled again."""
        return {
            f"{self.caches}-ccache": CCACHE,
            f"{self.packages or self.caches}-apt": "/var/cache/apt/archives",
        }

    def up(self, report: Report = print) -> None:
        """Make the host, or start the one that is there; returns when systemd and sshd are ready."""
        self._keys()
        with alone(self.folder.parent / "image.lock"):
            image_id = self.made_from or image.ensure(self._client, self.debian, report)
        spec = self._spec(image_id)
        container = self._container()
        if container is not None and container.labels.get(SPEC) != spec:
            report(f"the host {self.name} was made from another recipe: making it anew")
            self.down(report=report)
            container = None
        if container is None:
            report(f"making the host {self.name}")
            container = self._create(image_id, spec)
        if container.status != "running":
            self._start(container)
        self._wait(container)

    def reboot(self) -> None:
        """Boot it anew from inside, as its own root would; returns when it is ready again. It must be one that can."""
        before = self.boots()
        self.exec("systemctl", "reboot")
        deadline = time.monotonic() + BOOT_SECONDS
        while self.boots() == before:
            if time.monotonic() > deadline:
                raise BoxError(f"the host {self.name} did not go down within {BOOT_SECONDS} s")
            time.sleep(0.2)
        self._wait(self._there())

    def boots(self) -> int:
        """How often it has come back after a reboot from inside, since it was made."""
        return int(self._there().attrs["RestartCount"])

    def down(self, *, caches: bool = False, report: Report = print) -> None:
        """Remove the host and its data; with `caches`, also what would make the next one fast."""
        if (container := self._container()) is not None:
            report(f"removing the host {self.name}")
            container.remove(force=True, v=True)
        volumes = [*self.data_volumes, *(self.cache_volumes if caches else ())]
        for volume in volumes:
            try:
                self._client.volumes.get(volume).remove()
            except NotFound:
                continue
            except APIError as error:
                report(f"the volume {volume} stays: {error.explanation}")
        if caches:
            image.remove(self._client, self.debian, report)
            shutil.rmtree(self.folder, ignore_errors=True)

    def put(self, *files: File) -> None:
        """Files on it, past SSH; not where something is mounted, such as /run."""
        put_files(self._there(), files)

    def exec(self, *argv: str, check: bool = True) -> str:
        """Run a command inside as root, past SSH; returns what it printed."""
        code, out, err = run_inside(self._client, self._there(), list(argv))
        if check and code != 0:
            raise BoxError(f"{' '.join(argv)} failed on {self.name} (exit {code}):\n{ending(out + err)}")
        return out

    @cached_property
    def _client(self) -> DockerClient:
        """The container engine."""
        try:
            client = from_env()
            client.ping()
        except DockerException as error:
            raise BoxError("no container engine answers: run scripts/setup, which installs and starts one") from error
        return client

    def _container(self) -> Container | None:
        """The container, where there is one."""
        try:
            return self._client.containers.get(self.name)
        except NotFound:
            return None

    def _there(self) -> Container:
        """The container, which is there."""
        if (container := self._container()) is None:
            raise BoxError(f"there is no host {self.name}")
        return container

    def _keys(self) -> None:
        """Both key pairs, made once, and the known_hosts that follows from one of them."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for key in (self.key, self.host_key):
            public = key.with_name(f"{key.name}.pub")
            if not (key.exists() and public.exists()):
                key.unlink(missing_ok=True)
                public.unlink(missing_ok=True)
                argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", str(key)]
                subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
        kind, data, *_ = self._public(self.host_key).split()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {data}\n")

    def _public(self, key: Path) -> str:
        """A key's public half, as one line."""
        return key.with_name(f"{key.name}.pub").read_text()

    def _spec(self, image_id: str) -> str:
        """A hash of everything that the container is made from."""
        parts = [
            image_id,
            self._host_config(),
            self._environment(),
            self._public(self.key),
            self._public(self.host_key),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def _host_config(self) -> dict[str, Any]:
        """What a container needs for systemd and Docker to run inside, short of --privileged."""
        volumes = {**self.data_volumes, **self.cache_volumes, "/sys/fs/cgroup": "/sys/fs/cgroup"}
        ports = {"22/tcp": self.port, **{f"{inside}/tcp": outside for inside, outside in self.publish}}
        config: dict[str, Any] = self._client.api.create_host_config(
            # SYS_PTRACE: without it a Docker inside cannot enter containers whose user is not root (health checks do).
            cap_add=["SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE"],
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            tmpfs={"/run": "", "/run/lock": ""},
            binds=[f"{source}:{target}:rw" for source, target in volumes.items()],
            port_bindings={inside: ("127.0.0.1", outside) for inside, outside in ports.items()},
        )
        # The engine makes all of /proc/sys read-only.  A Docker inside must write to /proc/sys/net, which is the
        # container's own; the rest belongs to this machine and stays as it was.
        config["ReadonlyPaths"] = [
            *("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sysrq-trigger"),
            *(f"/proc/sys/{part}" for part in ("abi", "debug", "dev", "fs", "kernel", "vm")),
        ]
        config["CgroupnsMode"] = "host"
        if self.reboots:
            # Without CAP_SYS_BOOT systemd ends where it would boot again; the engine starts it anew.
            config["RestartPolicy"] = {"Name": "always"}
        return config

    def _environment(self) -> dict[str, str]:
        """What systemd must know about where it runs."""
        environment = {"container": "docker"}
        if self._client.info().get("CgroupVersion") == "1":
            environment["SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE"] = "1"  # systemd 257 refuses cgroup v1 otherwise
        return environment

    def _create(self, image_id: str, spec: str) -> Container:
        """A container that has not run yet."""
        host_config = self._host_config()
        made = self._client.api.create_container(
            image_id,
            name=self.name,
            hostname=self.name,
            environment=self._environment(),
            ports=[int(port.removesuffix("/tcp")) for port in host_config["PortBindings"]],
            labels={SPEC: spec},
            host_config=host_config,
        )
        return self._client.containers.get(made["Id"])

    def _start(self, container: Container) -> None:
        """Start it with its keys in place, or say what is in the way."""
        self._put_keys(container)
        try:
            container.start()
        except APIError as error:
            raise BoxError(
                f"the host {self.name} cannot start: {error.explanation}. If a port is taken, stop what "
                "listens there and run this again."
            ) from error

    def _put_keys(self, container: Container) -> None:
        """Give the host its identity and its user's key, before its sshd looks for them."""
        files = [
            File("/etc/ssh/ssh_host_ed25519_key", self.host_key.read_bytes(), 0o600),
            File("/etc/ssh/ssh_host_ed25519_key.pub", self._public(self.host_key).encode(), 0o600),
            File(f"/home/{USER}/.ssh/authorized_keys", self._public(self.key).encode(), 0o600, USER_ID),
        ]
        put_files(container, files)

    def _wait(self, container: Container) -> None:
        """Wait until systemd has booted and sshd greets on the published port."""
        deadline = time.monotonic() + BOOT_SECONDS
        state = ""
        while time.monotonic() < deadline:
            container.reload()
            if container.status != "running" and not self.reboots:
                log = container.logs(tail=10).decode(errors="replace")
                raise BoxError(f"the host {self.name} went down while it started:\n{ending(log)}")
            # One that reboots cannot be asked for a moment.
            with suppress(*([APIError] if self.reboots else [])):
                state = run_inside(self._client, container, ["systemctl", "is-system-running"])[1].strip()
            if state in ("running", "degraded") and self._greeted():
                return
            time.sleep(0.2)
        recent = ["journalctl", "-b", "-p", "warning", "-n", "10", "--no-pager"]
        journal = run_inside(self._client, container, recent)[1]
        raise BoxError(
            f"the host {self.name} is not ready after {BOOT_SECONDS} s "
            f"(systemd says {state or 'nothing'!r}):\n{ending(journal)}"
        )

    def _greeted(self) -> bool:
        """Whether sshd answers on the published port."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.settimeout(2)
                return connection.recv(8) == b"SSH-2.0-"
        except OSError:
            return False
