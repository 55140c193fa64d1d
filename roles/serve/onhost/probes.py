"""Requests of an inspection: to servers, and to Docker by its socket. Tests replace them."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Protocol

from llamaherd.onhost.docker_api import query_api
from roles.serve.onhost.wire import LARGEST, Connection, path_of


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
        return query_api(paths, seconds)
