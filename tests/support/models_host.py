"""A played host for models: what arrives, the unit that fetches it, and a store whose files can have several names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llamaherd.layout import FETCH_UNIT
from llamaherd.onhost.system import Ended, Entry
from tests.support.played_host import Running
from tests.support.service_host import ServiceHost

UNIT = FETCH_UNIT.removesuffix(".service")


def nothing(_: ModelsHost) -> None:
    """Do nothing."""


@dataclass
class ModelsHost(ServiceHost):
    """A service host with `mv`, `ln` and `systemd-run`. A name that is linked is the same file."""

    outcome: Callable[[ModelsHost], None] = nothing
    """What a unit does that is started from now on."""
    each_second: Callable[[ModelsHost], None] = nothing
    begun: int = 0
    one_name_only: bool = False
    """Whether the file system has no hard links, as exFAT."""
    silent: bool = False
    """Whether systemd does not respond."""
    sent: dict[str, str] = field(default_factory=dict)
    """What programs were given on stdin."""

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Play a program."""
        assert argv[0] not in ("sh", "bash"), "a shell would read values"
        if text:
            self.sent[argv[-1]] = text
        played = {"mv": self._mv, "ln": self._ln, "systemd-run": self._start, "chown": self._chown}.get(argv[0])
        failed = next((ended for begins, ended in self.ends.items() if " ".join(argv).startswith(begins)), None)
        if played and not failed:
            self.done.append([*argv])
            return played(argv)
        if argv[:2] == ["systemctl", "show"] and self.silent:
            return Ended(1, "", "Failed to connect to bus: Connection refused")
        return super().run(argv, seconds=seconds, text=text, environment=environment)

    def _mv(self, argv: Sequence[str]) -> Ended:
        source, target = argv[-2:]
        if source not in self.files:
            return Ended(1, "", f"mv: cannot stat '{source}': No such file or directory")
        self._step()
        self.files[target] = self.files.pop(source)
        return Ended(0)

    def _ln(self, argv: Sequence[str]) -> Ended:
        source, target = argv[-2:]
        if self.one_name_only:
            return Ended(1, "", "ln: Operation not permitted")
        self._step()
        self.files[target] = self.files[source]
        return Ended(0)

    def _chown(self, argv: Sequence[str]) -> Ended:
        self._step()
        owner, path = argv[-2].partition(":")[0], argv[-1]
        for name, file in self.files.items():
            if name == path or name.startswith(f"{path}/"):
                file.owner = owner
        return Ended(0)

    def _start(self, _: Sequence[str]) -> Ended:
        self._step()
        self.begun += 1
        self.outcome(self)
        return Ended(0)

    def runs_unit(self) -> None:
        """Let the unit run."""
        self.units[UNIT] = Running("active", "", 1)

    def ends_unit(self) -> None:
        """End the unit."""
        self.units.pop(UNIT, None)

    def sleep(self, seconds: float) -> None:
        """Wait, while the unit does what it does."""
        super().sleep(seconds)
        self.each_second(self)

    def entry(self, path: str) -> Entry | None:
        """Inspect a path: names of one file have one number."""
        found, file = super().entry(path), self.files.get(path)
        if found is None or file is None:
            return found
        names = sum(each is file for each in self.files.values())
        return replace(found, links=names, inode=id(file))


def words_of(host: ModelsHost, program: str) -> list[Any]:
    """Return the command lines of a program that was run."""
    return [each for each in host.done if each[0] == program]
