"""HTTP that an inspection needs: to servers, and to Docker by its socket. Tests of the inspection play it."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Protocol

from roles.serve.onhost.wire import LARGEST, Connection, path_of, seconds_left

DOCKER_SOCKET = "/var/run/docker.sock"


class Probes(Protocol):
    """The requests of an inspection."""

    def responds(self, url: str, seconds: float) -> bool:
        """Return whether a server responds in time, be it with an error; True where that is not certain."""

    def query_docker(self, paths: Sequence[str], seconds: float) -> list[object]:
        """Return what Docker's API returns for paths: None for what it does not have.

        Raise TimeoutError where it does not respond in time, and other OSError where there is no Docker.
        """


class RealProbes:
    """See Probes."""

    def responds(self, url: str, seconds: float) -> bool:
        """Request a page; see Probes."""
        try:
            with closing(Connection(url, time.monotonic() + seconds)) as connection:
                connection.open_response(path_of(url)).read(LARGEST)
        except socket.gaierror:
            return True
        except OSError:
            return False
        except (http.client.HTTPException, ValueError):
            return True
        return True

    def query_docker(self, paths: Sequence[str], seconds: float) -> list[object]:
        """Query Docker by its socket; see Probes."""
        try:
            with closing(_DockerConnection(time.monotonic() + seconds)) as connection:
                return [connection.fetch(each) for each in paths]
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(f"Docker returns something other than HTTP: {error}") from None


class _DockerConnection(http.client.HTTPConnection):
    def __init__(self, deadline: float) -> None:
        super().__init__("docker")
        self._deadline = deadline

    def connect(self) -> None:
        """Connect before the deadline. Raise OSError."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(seconds_left(self._deadline))
        self.sock.connect(DOCKER_SOCKET)

    def fetch(self, path: str) -> object:
        """Return a JSON document; None where the response is an error. Raise OSError, HTTPException or ValueError."""
        if self.sock:
            self.sock.settimeout(seconds_left(self._deadline))
        self.request("GET", path)
        response = self.getresponse()
        content = response.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise OSError(f"Docker returns more than {LARGEST} bytes")
        return json.loads(content) if response.status == http.client.OK else None
