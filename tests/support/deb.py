"""Debian packages from a short declaration, without dpkg: an `ar` archive of two tar archives."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import NamedTuple


class Link(NamedTuple):
    """A symbolic link in a package, in place of a file."""

    target: str


File = str | bytes | Link

_RELATIONS = ("depends", "recommends", "provides", "conflicts", "replaces")


@dataclass(frozen=True)
class Package:
    """What a package says of itself, what it installs, and the scripts that dpkg runs."""

    name: str
    version: str
    depends: tuple[str, ...] = ()
    recommends: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    source: str = ""
    """The source package, by which pins may name it; the same name otherwise."""
    maintainer: str = "cudatools <cudatools@nvidia.com>"
    files: Mapping[str, File] = field(default_factory=dict)
    """By absolute path. A text that begins with `#!` can be run; what is below /etc is configuration."""
    scripts: Mapping[str, str] = field(default_factory=dict)
    """By dpkg's names, such as `postinst`."""

    @property
    def control(self) -> str:
        """The paragraph that says what it is, as in a repository's index."""
        lines = {"Package": self.name, "Version": self.version, "Architecture": "amd64", "Source": self.source}
        lines |= {"Maintainer": self.maintainer, "Section": "misc", "Priority": "optional"}
        lines |= {relation.title(): ", ".join(getattr(self, relation)) for relation in _RELATIONS}
        lines |= {"Description": f"stands in for {self.name}"}
        return "".join(f"{name}: {value}\n" for name, value in lines.items() if value)

    @cached_property
    def deb(self) -> bytes:
        """The package's file; the same bytes for the same declaration."""
        configuration = "".join(f"{path}\n" for path in self.files if path.startswith("/etc/"))
        control: dict[str, File] = {"control": self.control, **self.scripts}
        if configuration:
            control["conffiles"] = configuration
        members = {"debian-binary": b"2.0\n", "control.tar.gz": _tar(control), "data.tar.gz": _tar(self.files)}
        parts = [b"!<arch>\n"]
        for name, data in members.items():
            parts += [f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode(), data]
            parts += [b"\n"] if len(data) % 2 else []
        return b"".join(parts)

    @property
    def filename(self) -> str:
        """What its file is called."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_amd64.deb"


def _tar(files: Mapping[str, File]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        paths = {path: PurePosixPath("." + path if path.startswith("/") else f"./{path}") for path in files}
        # dpkg wants every folder before what is in it.
        folders = {folder for path in paths.values() for folder in path.parents if folder.name}
        for folder in sorted(folders):
            entry = tarfile.TarInfo(f"./{folder}")
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for path, content in files.items():
            entry = tarfile.TarInfo(f"./{paths[path]}")
            if isinstance(content, Link):
                entry.type, entry.linkname = tarfile.SYMTYPE, content.target
                archive.addfile(entry)
                continue
            data = content.encode() if isinstance(content, str) else content
            entry.size, entry.mode = len(data), 0o755 if data.startswith(b"#!") else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), compresslevel=1, mtime=0)
