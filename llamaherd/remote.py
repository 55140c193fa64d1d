"""A shell script on a rig, as root, in one connection: by the OpenSSH client, or here where the rig is this machine."""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass

from llamaherd.findings import SaidError
from llamaherd.fleet import LOCAL, Connect

_AS_ROOT = 'export LC_ALL=C; if [ "$(id -u)" = 0 ]; then exec sh -s; else exec sudo -n sh -s; fi'
"""Without asking for a password: nobody is there to type it. The script comes on stdin, not in a process list."""

_SSH_ENDED = 255
"""What the ssh client ends with when it, and not what it ran, has failed."""

_ENDING_SECONDS = 5
"""How long a script that nobody listens to any more is waited for."""


@dataclass(frozen=True)
class Result:
    """How a script ended, and what it printed."""

    code: int
    out: str
    err: str


class RemoteError(SaidError):
    """A script could not be run on a rig: a sentence that says why, and a way out."""


@dataclass(frozen=True)
class Remote:
    """A rig that scripts are run on."""

    connect: Connect

    def run(self, script: str, timeout: float) -> Result:
        """Run a POSIX shell script as root. Raises RemoteError where it could not be started or never ended."""
        connect = self.connect
        _require_key(connect)
        try:
            ended = subprocess.run(
                argv(connect),
                input=script,
                capture_output=True,
                timeout=timeout,
                check=False,
                encoding="utf-8",
                errors="replace",
                env=_environment(),
            )
        except FileNotFoundError as error:
            raise _not_installed(error) from None
        except subprocess.TimeoutExpired:
            raise RemoteError(
                f"{_place(connect)} did not finish within {timeout:.0f} s",
                "look at the host's load, and whether a server on it hangs",
            ) from None
        if problem := explain(connect, ended.returncode, ended.stderr):
            raise problem
        return Result(ended.returncode, ended.stdout, ended.stderr)

    def lines(self, script: str, silence: float) -> Generator[str, None, None]:
        """Run a script that holds no secret as root; its lines as they come.

        Raises RemoteError where it could not be run, or printed nothing for `silence` seconds. Whoever stops listening
        ends it.
        """
        connect = self.connect
        _require_key(connect)
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
            stdin.write(script.encode())
            stdin.seek(0)
            try:
                process = subprocess.Popen(
                    argv(connect), stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, env=_environment()
                )
            except FileNotFoundError as error:
                raise _not_installed(error) from None
            assert process.stdout
            try:
                yield from _lines(process.stdout.fileno(), connect, silence)
                process.wait()
            finally:
                process.stdout.close()  # a script of another user cannot be sent a signal, but finds nobody listening
                with suppress(PermissionError):
                    process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_ENDING_SECONDS)
            stderr.seek(0)
            if problem := explain(connect, process.returncode, stderr.read().decode(errors="replace")):
                raise problem


def _lines(stream: int, connect: Connect, silence: float) -> Iterator[str]:
    """Whole lines of a pipe, until its other end is closed."""
    begun = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if not selector.select(silence):
                raise RemoteError(
                    f"{_place(connect)} has said nothing for {silence:.0f} s",
                    "look at the host's load and at the connection, then try again",
                )
            if not (piece := os.read(stream, 1 << 16)):
                return
            *whole, begun = (begun + piece).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)


def _require_key(connect: Connect) -> None:
    if connect.key and not connect.key.is_file():
        raise RemoteError(f"there is no SSH key at {connect.key}", "correct `connect: key:` of this rig")


def _environment() -> dict[str, str]:
    """The client's sentences are read: in English."""
    return os.environ | {"LC_ALL": "C"}


def _not_installed(error: FileNotFoundError) -> RemoteError:
    return RemoteError(f"there is no `{error.filename}` on this machine", "install the package openssh-client")


def argv(connect: Connect) -> list[str]:
    """The command that reads a script on stdin. What the inventory leaves open, the ssh client's own files decide."""
    if connect.host == LOCAL:
        return ["sh", "-c", _AS_ROOT]
    options = ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=15"]
    if connect.key:
        options += [f"IdentityFile={_quoted(connect.key)}", "IdentitiesOnly=yes"]
    if connect.known_hosts:
        options += [f"UserKnownHostsFile={_quoted(connect.known_hosts)}", "StrictHostKeyChecking=yes"]
    command = ["ssh", "-T", "-p", str(connect.port)]
    for option in options:
        command += ["-o", option]
    if connect.user:
        command += ["-l", connect.user]
    # After `--` no host's name is taken for an option. Quoted once more: the login shell may be any.
    return [*command, "--", connect.host, f"sh -c '{_AS_ROOT}'"]


def explain(connect: Connect, code: int, err: str) -> RemoteError | None:
    """Why the script was not run, from how the client ended and what it said; None if it was run."""
    if code == 0:
        return None
    place = _place(connect)
    for sign, message, help_ in _SUDO:
        if sign in err:
            return RemoteError(message.format(place=place, user=connect.user or "the login user"), help_)
    if code != _SSH_ENDED or connect.host == LOCAL:
        return None
    known = str(connect.known_hosts or "~/.ssh/known_hosts")
    name = connect.host if connect.port == 22 else f"[{connect.host}]:{connect.port}"
    for sign, message, help_ in _SSH:
        if sign in err:
            return RemoteError(
                message.format(place=place, key=connect.key or "the ssh client"),
                help_.format(known=known, name=name, host=connect.host, port=connect.port, key=connect.key),
            )
    last = err.strip().splitlines()[-1:] or ["the ssh client said nothing"]
    return RemoteError(f"cannot log in at {place}: {last[0].strip()}", f"try `{_by_hand(connect)}`")


_SUDO = (
    (
        "password is required",
        "sudo on {place} wants a password from {user}",
        "let that user become root without one (a line `USER ALL=(ALL) NOPASSWD: ALL` in /etc/sudoers.d), "
        "or connect as root",
    ),
    (
        "sudoers",
        "sudo on {place} does not let {user} become root",
        "add that user to /etc/sudoers.d, or connect as root",
    ),
    ("sudo: not found", "there is no sudo on {place}", "install sudo there, or connect as root"),
)

# By what the client prints, more telling lines first: a changed key also ends in "Host key verification failed".
_SSH = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host key of {place} is not the one that is known: another machine answers, or it was installed anew",
        "if you know why, run `ssh-keygen -f {known} -R '{name}'` and let the new key be known",
    ),
    (
        "Host key verification failed",
        "the host key of {place} is not known here",
        "compare it at the host's console, then `ssh-keyscan -p {port} {host} >>{known}`",
    ),
    (
        "UNPROTECTED PRIVATE KEY FILE",
        "others can read the SSH key {key}, so that the ssh client does not use it",
        "chmod 600 {key}",
    ),
    (
        "error in libcrypto",
        "{key} cannot be read as a private key: it is none, or it has a passphrase",
        "name the private key's file (not the `.pub`) in `connect: key:`",
    ),
    (
        "Permission denied",
        "{place} does not accept {key} as a key",
        "check `connect: user:` and `key:`, and that the public key is in that user's ~/.ssh/authorized_keys",
    ),
    (
        "Could not resolve hostname",
        "no machine is called what this rig is: {place} cannot be found",
        "correct `connect: host:`, or give its address",
    ),
    (
        "Connection refused",
        "nothing listens for SSH at {place}: connection refused",
        "is the host up, is sshd running, and is `connect: port:` right?",
    ),
    (
        "kex_exchange_identification",
        "{place} closes the connection before anyone has logged in",
        "OpenSSH does so for a while after failed logins: wait a minute; or is it no SSH server at all?",
    ),
    ("timed out", "{place} does not answer", "is the host up, and does a firewall let SSH through?"),
    ("No route to host", "there is no way to {place}", "is the host up and in this network?"),
    ("Network is unreachable", "there is no way to {place}", "is this machine in the host's network?"),
)


def _place(connect: Connect) -> str:
    if connect.host == LOCAL:
        return "this machine"
    return connect.host if connect.port == 22 else f"{connect.host} port {connect.port}"


def _quoted(path: object) -> str:
    """A path as an ssh option's value: it would be split at spaces and expanded at `%`."""
    return '"' + str(path).replace("%", "%%") + '"'


def _by_hand(connect: Connect) -> str:
    user = f"{connect.user}@" if connect.user else ""
    return f"ssh -p {connect.port} {user}{connect.host}"
