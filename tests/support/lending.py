"""A share process that lends a store, and requests to it."""

import contextlib
import hashlib
import http.client
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.stores import fetcher_command, stored

BODY = bytes(range(256)) * 40_000
SHA256 = hashlib.sha256(BODY).hexdigest()
TOKEN = "t0ken-of-duo"
RIGHT = {"Authorization": f"Bearer {TOKEN}"}


class Lending(NamedTuple):
    """A share process, and what it lends from."""

    process: subprocess.Popen[str]
    port: int
    store: Path
    run: Path

    def url(self, sha256: str) -> str:
        return f"http://127.0.0.1:{self.port}/{sha256}"


def started(root: Path, *options: str, port: int = 0) -> subprocess.Popen[str]:
    """The command as the unit runs it."""
    command = fetcher_command("share", root / "store", root / "run", "--port", port, *options)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def begun(root: Path, *options: str) -> Lending:
    """A share process that listens."""
    return listening(started(root, *(options or ("--bind", "127.0.0.1", "--idle", "60"))), root)


def listening(process: subprocess.Popen[str], root: Path) -> Lending:
    """The process, once it says where it listens."""
    assert process.stdout
    line = process.stdout.readline()
    assert line.startswith("sharing models at "), line
    return Lending(process, int(line.split()[-1]), root / "store", root / "run")


def prepared(root: Path, files: Mapping[str, bytes]) -> Path:
    """Make a folder with a store of these files, and a run folder with one token."""
    stored(root / "store/unsloth/x-GGUF/0123", files)
    (root / "run/secrets").mkdir(parents=True)
    (root / "run/secrets/duo").write_text(f"{TOKEN}\n")
    return root


@contextlib.contextmanager
def ended(lending: Lending) -> Iterator[Lending]:
    """A process that is gone afterwards."""
    try:
        yield lending
    finally:
        lending.process.kill()
        lending.process.wait()


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def ask(lending: Lending, path: str = f"/{SHA256}", method: str = "GET", **headers: str) -> Answer:
    """One request with the right token, unless another header is given; names have _ for -."""
    connection = http.client.HTTPConnection("127.0.0.1", lending.port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest(method, path, skip_accept_encoding=True)
    for name, value in {**RIGHT, **named}.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    answer = Answer(response.status, dict(response.getheaders()), response.read())
    connection.close()
    return answer
