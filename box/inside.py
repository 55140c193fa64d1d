"""Into a container past SSH: files that are put there, and commands."""

import io
import os
import tarfile
from collections.abc import Iterable
from contextlib import closing
from typing import Any, NamedTuple

from docker import DockerClient
from docker.models.containers import Container
from docker.utils.socket import consume_socket_output, demux_adaptor, frames_iter


class File(NamedTuple):
    """A file to put on a host."""

    path: str
    data: bytes
    mode: int = 0o644
    owner: int = 0


def put_files(container: Container, files: Iterable[File]) -> None:
    """Files, with the folders that they lie in."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for file in files:
            entry = tarfile.TarInfo(file.path.lstrip("/"))
            entry.size, entry.mode, entry.uid, entry.gid = len(file.data), file.mode, file.owner, file.owner
            tar.addfile(entry, io.BytesIO(file.data))
    container.put_archive("/", archive.getvalue())


def run_inside(client: DockerClient, container: Container, argv: list[str]) -> tuple[int, str, str]:
    """A command inside: its exit code, its output and its errors."""
    api = client.api
    # docker-py loses what comes together with the head of the engine's answer: the command waits for our line.
    waiting = ["sh", "-c", 'read -r go && exec "$@" </dev/null', "sh", *argv]
    started = api.exec_create(container.id, waiting, stdin=True)["Id"]
    stream: Any = api.exec_start(started, socket=True)
    with closing(stream):
        os.write(stream.fileno(), b"go\n")
        frames = (demux_adaptor(*frame) for frame in frames_iter(stream, tty=False))
        out, err = consume_socket_output(frames, demux=True)
    code = api.exec_inspect(started)["ExitCode"]
    return int(code), (out or b"").decode(errors="replace"), (err or b"").decode(errors="replace")
