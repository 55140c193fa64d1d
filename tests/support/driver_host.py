"""A played host with a GPU: apt with drivers, dkms, a kernel that takes modules or refuses them, and boots.

A driver is four packages of one version, as Debian's repositories name them. That real apt, dpkg and dkms behave so,
tests/box/gpus proves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from llamaherd.layout import DRIVER_UNDO, DRIVER_UNDO_UNIT, REBOOT_MARK
from llamaherd.onhost.document import parse_document
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError
from llamaherd.onhost.verbs import perform
from tests.support.played_host import File
from tests.support.service_host import ServiceHost

LIBRARY, DKMS, SMI, DAEMON = "libcuda1", "nvidia-kernel-open-dkms", "nvidia-smi", "nvidia-persistenced"
DRIVER = (LIBRARY, DKMS, SMI, DAEMON)
KERNEL = "6.12.1-amd64"
ARCHIVES = "/var/cache/apt/archives"
FAILED = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."


@dataclass
class DriverHost(ServiceHost):
    """A host whose driver works, where nothing else is set."""

    installed: dict[str, str] = field(default_factory=dict)
    """The versions of installed packages."""
    available: dict[str, list[str]] = field(default_factory=dict)
    """The versions of packages that apt can fetch, the candidate first."""
    modules: dict[str, str] = field(default_factory=dict)
    """The version of the driver's module that each kernel has on disk."""
    module: str = ""
    """The version of the driver in the kernel."""
    uvm: bool = True
    refused: set[str] = field(default_factory=set)
    """Versions whose module the kernel refuses."""
    hung: set[str] = field(default_factory=set)
    """Versions by which nvidia-smi hangs."""
    uncompiled: set[str] = field(default_factory=set)
    """Versions that dkms cannot compile."""
    unit_state: str = "enabled"
    gpus: int = 1
    space: int = 10**12
    boots: int = 0
    rebooting: bool = False
    pending: bool = False
    """Whether the unit that judges was started."""
    fetches: bool = True

    def free(self, path: str) -> int | None:
        """Return the bytes that are free."""
        assert path
        return self.space

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Play apt, dpkg, dkms, modprobe and nvidia-smi."""
        words, folder = [*argv], ""
        if words[0] == "env":
            while words[0] == "env" or "=" in words[0]:
                folder = words[0].partition("--chdir=")[2] or folder
                words = words[1:]
        first = " ".join(words)
        known = next((ended for begins, ended in self.ends.items() if first.startswith(begins)), None)
        played = known or self._play(words, folder)
        if played is None:
            return super().run(words, seconds=seconds, text=text, environment=environment)
        self.done.append(words)
        return played

    def copy(self, source: str, target: str) -> None:
        """Copy a file, if its disk has room."""
        if self.full and self.full in target:
            raise OSError(28, "No space left on device", target)
        super().copy(source, target)

    def _play(self, words: list[str], folder: str) -> Ended | None:
        match words[0]:
            case "apt-get" | "apt-cache":
                return self._apt(words, folder)
            case "dpkg" | "dpkg-query" | "dpkg-deb":
                return self._dpkg(words)
            case "modprobe" | "modinfo" | "dkms" | "nvidia-smi":
                return self._driver(words)
            case "uname":
                return Ended(0, f"{KERNEL}\n")
            case "readlink":
                return Ended(0, f"/boot/vmlinuz-{KERNEL}\n")
            case "tail":
                lines = (self.read(words[3]) or "").splitlines(keepends=True)
                return Ended(0, "".join(lines[-int(words[2]) :]))
            case "date" | "printf" | "sync" | "dmesg" | "stat" | "sh":
                return Ended(0)
            case "systemctl" if words[1:] == ["--no-block", "reboot"]:
                self._step()
                self.rebooting = True
                return Ended(0)
            case "systemctl" if words[1:] == ["--no-block", "start", DRIVER_UNDO_UNIT]:
                self._step()
                self.pending = True
                return Ended(0)
            case "systemctl" if words[1] == "is-enabled":
                return Ended(0, f"{self.unit_state}\n")
            case "systemd-run":
                self._step()
                self.rebooting = True
                return Ended(0)
        return None

    # Packages

    def _apt(self, words: list[str], folder: str) -> Ended:
        options = [at for at, each in enumerate(words) if each == "-o"]
        left = [each for at, each in enumerate(words) if at not in options and at - 1 not in options]
        left = [each for each in left[1:] if not each.startswith("--") and each not in ("-q", "-y")]
        match left:
            case ["update"]:
                return Ended(0)
            case ["policy", *names]:
                return Ended(
                    0, "".join(f"{each}:\n  Installed: x\n  Candidate: {self._best(each)}\n" for each in names)
                )
            case ["madison", name]:
                return Ended(0, "".join(f" {name} | {each} | http://mirror\n" for each in self.available.get(name, [])))
            case ["download", *names] if "--print-uris" in words:
                have = [
                    each for each in names if each.partition("=")[2] in self.available.get(each.partition("=")[0], [])
                ]
                if have != names:
                    return Ended(100, "", f"E: Version '{names[0]}' was not found\n")
                return Ended(0, "".join(f"'http://mirror/{each}.deb' {each}.deb 1000 SHA256:0\n" for each in names))
            case ["download", *names]:
                for each in names:
                    self.write(f"{folder}/{_deb(*each.split('='))}", "deb")
                return Ended(0) if self.fetches else Ended(100, "Err:1 http://mirror it is away\n")
            case ["-s", "install", *names]:
                lines = [self._line(name, version) for name, version in self._wanted(names).items()]
                return Ended(0, "".join(line for line in lines if line))
            case ["install", *names]:
                return self._install(names)
        raise AssertionError(words)

    def _best(self, name: str) -> str:
        return next(iter(self.available.get(name, [])), "(none)")

    def _wanted(self, names: Sequence[str]) -> dict[str, str]:
        """Return the version that each package becomes; empty where it goes."""
        wanted: dict[str, str] = {}
        for each in names:
            if each.startswith("/"):
                name, version, _ = each.rpartition("/")[2].split("_")
                wanted[name] = version
            elif each.endswith("-"):
                wanted[each[:-1]] = ""
            else:
                wanted[each] = self._best(each)
        return wanted

    def _line(self, name: str, version: str) -> str:
        have = self.installed.get(name)
        if have == version or (not have and not version):
            return ""
        if not version:
            return f"Remv {name} [{have}]\n"
        return f"Inst {name} {f'[{have}] ' if have else ''}({version} NVIDIA [amd64])\n"

    def _install(self, names: Sequence[str]) -> Ended:
        """Install one package after another: where the program is killed, the rest is left half-way."""
        for name, version in self._wanted(names).items():
            self._step()
            if not version:
                self.installed.pop(name, None)
                continue
            self.installed[name] = version
            self.files.setdefault(f"{ARCHIVES}/{_deb(name, version)}", File("deb"))
            if name == DKMS:
                self.compile(KERNEL)
        return Ended(0)

    def _dpkg(self, words: list[str]) -> Ended:
        match words[1:]:
            case ["--configure", "-a"]:
                return Ended(0)
            case ["-W", "-f", form, name] if "Status" in form:
                return Ended(0, "")
            case ["-W", "-f", form, name]:
                version = self.installed.get(name, "")
                both = f"{_deb(name, version)}\n{version}" if "Package" in form else version
                return Ended(0, both) if version else Ended(1)
            case ["-W", name]:
                return Ended(0 if name in self.installed else 1)
            case ["-c", path]:
                return Ended(0 if path in self.files else 2)
        raise AssertionError(words)

    # The driver

    def compile(self, kernel: str) -> None:
        """Compile the installed driver's modules."""
        version = self.installed.get(DKMS, "").partition("-")[0]
        if version and version not in self.uncompiled:
            self.modules[kernel] = version

    def _driver(self, words: list[str]) -> Ended:
        match words:
            case ["dkms", "autoinstall", "-k", kernel]:
                self.compile(kernel)
                return Ended(0)
            case ["modinfo", "-k", kernel, *_]:
                return Ended(0, f"{self.modules[kernel]}\n") if kernel in self.modules else Ended(1)
            case ["modprobe", "-r", *_]:
                self.load_version("")
                return Ended(0)
            case ["modprobe", name]:
                if not self.module and self.modules.get(KERNEL, "") not in {"", *self.refused}:
                    self.load_version(self.modules[KERNEL])
                return Ended(0) if self.module else Ended(1, "", f"modprobe: ERROR: could not insert '{name}'\n")
        library = self.installed.get(LIBRARY, "").partition("-")[0]
        if library in self.hung:
            return Ended(TIMED_OUT)
        if not self.module:
            return Ended(9, f"{FAILED}\n")
        if self.module != library:
            return Ended(18, "Failed to initialize NVML: Driver/library version mismatch\n")
        return Ended(0, "".join(f"GPU {number}: RTX 3090 (UUID: GPU-{number})\n" for number in range(self.gpus)))

    def load_version(self, version: str) -> None:
        """Let the kernel have a version of the driver, or none."""
        self.module = version
        self.files.pop("/sys/module/nvidia/version", None)
        self.files.pop("/sys/module/nvidia_uvm/x", None)
        if version:
            self.files["/sys/module/nvidia/version"] = File(f"{version}\n")
        if version and self.uvm:
            self.files["/sys/module/nvidia_uvm/x"] = File("")

    # Boots

    def boot(self) -> None:
        """Boot, also more than once: the unit that judges may ask for another boot."""
        for _ in range(5):
            self.boot_once()
            if not self.rebooting:
                return
        raise AssertionError("it boots without end")

    def boot_once(self) -> None:
        """Boot, and run the unit that judges. It can be killed in the middle."""
        self.rebooting = self.pending = False
        self.boots += 1
        kill_at, self.kill_at = self.kill_at, -1
        super().boot()
        self.steps, self.kill_at = 0, kill_at
        on_disk = self.modules.get(KERNEL, "")
        self.load_version("" if on_disk in self.refused else on_disk)
        if DRIVER_UNDO_UNIT.removesuffix(".service") in self.enabled:
            self.judge()

    def judge(self) -> None:
        """Run the unit that judges, if its file and its condition are there. What it fails with is in its journal."""
        text = self.read(f"/etc/systemd/system/{DRIVER_UNDO_UNIT}")
        if text is None or not self.entry("/var/lib/llamaherd/driver-before"):
            return
        program, document = text.partition("ExecStart=/usr/bin/python3 -I ")[2].splitlines()[0].split()
        assert program == str(DRIVER_UNDO)
        assert self.read(program) == "the program"
        with suppress(FailedError):
            perform(parse_document((self.read(document) or "").encode()), self)

    def left(self) -> list[str]:
        """Return what is there that only lasts until a driver is judged."""
        found = [path for path in self.files if "driver-before" in path or path.endswith(DRIVER_UNDO_UNIT)]
        found += [path for path in self.files if path in ("/run/llamaherd/driver-armed", str(REBOOT_MARK))]
        return found + sorted(self.enabled & {DRIVER_UNDO_UNIT.removesuffix(".service")})


def _deb(name: str, version: str) -> str:
    return f"{name}_{version}_amd64.deb"


def driver_host(version: str, *others: str, **more: Any) -> DriverHost:
    """Return a host with a driver that works. apt has this version and others, the last of them as its candidate."""
    host = DriverHost({})
    full = f"{version}-1"
    host.available = {name: [f"{each}-1" for each in reversed([version, *others])] for name in DRIVER}
    host.installed = dict.fromkeys(DRIVER, full)
    host.modules = {KERNEL: version}
    host.files = {
        host.program: File("the program"),
        f"/boot/vmlinuz-{KERNEL}": File("kernel"),
        f"/lib/modules/{KERNEL}/build/Makefile": File(""),
        **{f"{ARCHIVES}/{_deb(name, full)}": File("deb") for name in DRIVER},
    }
    host.load_version(version)
    return replace(host, **more)
