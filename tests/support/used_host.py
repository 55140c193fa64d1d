"""A played host with a folder of models, processes that use it, and containers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llamaherd.onhost.system import TIMED_OUT, Ended, Entry
from tests.support.models_host import ModelsHost
from tests.support.played_host import File

ID = "ab" * 32
"""Of the container that runs."""


@dataclass
class UsedHost(ModelsHost):
    """A played host with a folder of models, processes and containers."""

    described: list[dict[str, Any]] = field(default_factory=list)
    docker_hangs: bool = False
    numbers: dict[str, int] = field(default_factory=dict)
    """Of files, by their paths."""

    def run(self, argv: Sequence[str], **more: Any) -> Ended:
        """Play Docker, and users."""
        match [*argv]:
            case ["docker", *_] if self.docker_hangs:
                return Ended(TIMED_OUT)
            case ["docker", "ps", "-aq", *_]:
                return Ended(0, "".join(f"{ID}\n" for _ in self.described))
            case ["docker", "inspect", *_, "--format", "{{.Name}}", container]:
                return Ended(0, "/boxed\n") if container == ID else Ended(1)
            case ["docker", "inspect", *_]:
                return Ended(0, json.dumps(self.described))
            case ["getent", "passwd"]:
                return Ended(0, "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/data/ann:/bin/sh\nodd\n")
        return super().run(argv, **more)

    def read(self, path: str, most: int = 1 << 20) -> str | None:
        """Read a file; those of processes are files, too."""
        file = self.files.get(path)
        return super().read(path, most) if file is None else file.text[:most]

    def entry(self, path: str) -> Entry | None:
        """Inspect a path."""
        found = super().entry(path)
        return replace(found, inode=self.numbers[path]) if found and path in self.numbers else found

    def resolved(self, path: str) -> str:
        """Resolve a path that is a link."""
        return self.links.get(path, path)

    def process(self, pid: str, **files: str) -> None:
        """Start a process."""
        self.files |= {f"/proc/{pid}/{name}": File(text) for name, text in files.items()}
