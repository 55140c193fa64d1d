"""The two things that can be done to a host, and the files that both kinds of serving write."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from llamaherd.host.state import HostState
from llamaherd.layout import INCOMING
from llamaherd.plan import InstancePlan, TextFile
from llamaherd.text.quoting import base64_lines
from llamaherd.text.render import render


@dataclass(frozen=True)
class SendFile:
    """A file of the controller that is to be on the host under incoming/, named after its hash."""

    local: Path
    sha256: str
    settled: tuple[PurePosixPath, ...] = ()
    """Where it ends up: another run may have brought it there meanwhile."""

    @property
    def remote(self) -> str:
        """Where it arrives."""
        return str(INCOMING / self.sha256)


@dataclass(frozen=True)
class RunScript:
    """One round trip: a shell script, which travels on stdin and may hold secrets. `says` is shown meanwhile."""

    script: str = field(repr=False)
    says: str = ""


Say = Callable[[str], None]
"""Shows a line to whoever looks on."""


@dataclass(frozen=True)
class DeferredScript:
    """A step whose script depends on what other hosts say, which are asked when it is carried out. `says` as above."""

    make: Callable[[Say], RunScript]
    says: str = ""


@dataclass(frozen=True)
class RebootHost:
    """The host is booted anew, so that the kernel takes `driver`; `why` is shown. `kernel` is the one that boots."""

    driver: str
    kernel: str
    why: str


def differs(file: TextFile, seen: HostState) -> bool:
    """Whether the host's file is not this one: its bytes, its mode, or its owner."""
    have = seen.files.get(file.path)
    if have is None:
        return True
    wanted = hashlib.sha256(file.text.encode()).hexdigest()
    return (have.sha256, int(have.mode, 8)) != (wanted, int(file.mode, 8)) or file.owner not in have.owner


def reads_otherwise(file: TextFile, seen: HostState) -> bool:
    """Whether it is not there or has another text: permissions alone are set right without starting anything anew."""
    have = seen.files.get(file.path)
    return have is None or have.sha256 != hashlib.sha256(file.text.encode()).hexdigest()


def put_files(files: Iterable[TextFile]) -> str:
    """The script that writes these files, each at once."""
    return render(
        "steps/put-files.sh.j2",
        files=[
            {
                "path": file.path,
                "folder": str(PurePosixPath(file.path).parent),
                "content": base64_lines(file.text),
                "mode": file.mode,
                "owner": file.owner,
            }
            for file in files
        ],
    )


def instance_files(instance: InstancePlan, key: str | None) -> list[TextFile]:
    """The unit or project, and the key file, which its own server alone can read."""
    files = [instance.file]
    if instance.key_file and key is not None:
        files.append(TextFile(path=instance.key_file, text=f"{key}\n", mode="0400", owner=instance.server.user))
    return files


def check_arguments(instance: InstancePlan, build_folder: str) -> str:
    """The script that asks the built engine whether it understands the instance's arguments."""
    return render(
        "steps/check-arguments.sh.j2",
        name=instance.name,
        user=instance.server.user,
        program=f"{build_folder}/bin/llama-server",
        arguments=instance.server.arguments,
        key_file=instance.key_file,
    )
