"""The command line of the OpenSSH client for a rig, forwarded ports, and why a login failed."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.text.quoting import ssh_option
from llamaherd.text.terminal import shown
from llamaherd.text.textfile import UnreadableError, read_bytes


class Forward(NamedTuple):
    """From `here` on the loopback of this machine to an address and a port of the host's; IPv6 in brackets."""

    here: int
    address: str
    port: int

    @property
    def options(self) -> tuple[str, ...]:
        """For the ssh client, which ends where the port cannot be had."""
        return ("-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{self.here}:{self.address}:{self.port}")


ROOT_SHELL = 'export LC_ALL=C; if [ "$(id -u)" = 0 ]; then exec sh -s; else exec sudo -n sh -s; fi'
"""Without asking for a password: nobody is there to type it. The script comes on stdin, not in a process list."""

AS_WHO_LOGS_IN = "exec sh -s"

_SSH_ENDED = 255
"""What the ssh client ends with when it, and not what it ran, has failed."""

_USUAL_PORT = 22

_SETTINGS_SECONDS = 10
"""For what the client says of a host; its own files may run commands for that (`Match exec`)."""

_LARGEST_KEY = 64 << 10
"""Bytes of a private key's file; the longest that ssh-keygen makes has 13 kB."""


class RemoteError(UserError):
    """A script could not be run on a rig: a sentence that says why, and a way out."""


def argv(connect: Connect, *, root: bool = True, note_key: bool = False, fresh: bool = False) -> list[str]:
    """The command that reads a script on stdin. What the inventory leaves open, the ssh client's own files decide.

    With `note_key`, the key of a host that is not known yet is noted and taken, unless the inventory names known ones;
    with `fresh`, no connection is shared.
    """
    shell = ROOT_SHELL if root else AS_WHO_LOGS_IN
    if connect.host == LOCAL:
        return ["sh", "-c", shell]
    options = ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=15"]
    options += ["ControlMaster=no", "ControlPath=none"] if fresh else []
    if connect.key:
        options += [f"IdentityFile={ssh_option(connect.key)}", "IdentitiesOnly=yes"]
    if connect.known_hosts:
        options += [f"UserKnownHostsFile={ssh_option(connect.known_hosts)}", "StrictHostKeyChecking=yes"]
    elif note_key:
        options += ["StrictHostKeyChecking=accept-new"]
    command = ["ssh", "-T", *_where(connect)]
    for option in options:
        command += ["-o", option]
    # After `--` no host's name is taken for an option. Quoted once more: the login shell may be any.
    return [*command, "--", connect.host, f"sh -c '{shell}'"]


def _where(connect: Connect) -> list[str]:
    """What is declared of the way there: the rest is the client's to find."""
    port = ["-p", str(connect.port)] if connect.port else []
    return [*port, *(["-l", connect.user] if connect.user else [])]


def settings(connect: Connect) -> dict[str, str]:
    """What the ssh client goes by for a rig, by `ssh -G`: `hostname`, `proxyjump` and the like; nothing is connected.

    Raises OSError and SubprocessError.
    """
    said = subprocess.run(
        ["ssh", "-G", *_where(connect), "--", connect.host],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
        timeout=_SETTINGS_SECONDS,
    ).stdout
    return dict(line.split(" ", 1) for line in said.splitlines() if " " in line)


def require_key(connect: Connect) -> None:
    """Raise RemoteError where the key that is declared is no file that can be read."""
    if not connect.key:
        return
    try:
        read_bytes(connect.key, _LARGEST_KEY)
    except UnreadableError as error:
        there = f"the SSH key {connect.key} cannot be read: {error}"
        message = there if connect.key.exists() else f"there is no SSH key at {connect.key}"
        raise RemoteError(message, "correct `connect: key:` of this rig") from None


def why_not_run(connect: Connect, code: int, err: str) -> RemoteError | None:
    """Why a script was not run, from how the client ended and what it said; None if it was run."""
    if code == 0:
        return None
    for sign, message, help_ in _SUDO:
        if sign in err:
            return RemoteError(message.format(place=place(connect), user=connect.user or "the login user"), help_)
    if code != _SSH_ENDED or connect.host == LOCAL:
        return None
    if _NOT_THROUGH in err:
        return _not_through(connect, err)
    for sign, message, help_ in _signs(connect):
        if sign in err:
            return _said(connect, message, help_)
    last = [line.strip() for line in map(shown, err.splitlines()) if line.strip()][-1:]
    said = last[0] if last else "the ssh client said nothing"
    return RemoteError(f"cannot log in at {place(connect)}: {said}", f"try `{_by_hand(connect)}`")


def _not_through(connect: Connect, err: str) -> RemoteError:
    """Why another machine did not lead on to the rig, in the client's words: it says more after those that tell."""
    said = [line.strip() for line in map(shown, err.splitlines()) if line.strip()]
    tells = [line for line in said if not line.startswith(_FOLLOWS) and _NOT_THROUGH not in line] or said[:1]
    return RemoteError(
        f"the way to {place(connect)} through another machine ends before it: {tells[-1][:200]}",
        f"try `{_by_hand(connect)}`; is that machine up, does it let you in, and is `ProxyJump` or `ProxyCommand` in "
        "~/.ssh/config right?",
    )


def not_started(connect: Connect, code: int, err: str, out: str) -> RemoteError:
    """Why no shell of the rig took a script, for certain: it has ended without one."""
    if problem := why_not_run(connect, code, err):
        return problem
    said = [line.strip() for line in map(shown, (err + "\n" + out).splitlines()) if line.strip()][-1:]
    last = f"; its last words: {said[0][:200]}" if said else ""
    return RemoteError(
        f"the shell of {place(connect)} ends before it has run anything{last}",
        f"try `{_by_hand(connect)} true`; the login shell and its start files must let a command through",
    )


def lost(connect: Connect, code: int, err: str) -> RemoteError | None:
    """Why the rest of a script's answer did not come, where the connection was lost in the middle of it."""
    if code != _SSH_ENDED or connect.host == LOCAL or not any(sign in err for sign in _LOST):
        return None
    return RemoteError(
        f"the connection to {place(connect)} was lost in the middle of something",
        "look whether the host is up, then run again: what was begun there goes on, or is left as it is",
    )


def place(connect: Connect) -> str:
    """Where a rig is, in the words of its inventory."""
    if connect.host == LOCAL:
        return "this machine"
    return connect.host if connect.port in (None, _USUAL_PORT) else f"{connect.host} port {connect.port}"


_SUDO = (
    (
        "password is required",
        "sudo on {place} wants a password from {user}",
        "let that user become root without one (a line `USER ALL=(ALL) NOPASSWD: ALL` in /etc/sudoers.d), "
        "or connect as root",
    ),
    (
        "interactive authentication is required",  # sudo-rs
        "sudo on {place} wants a password from {user}",
        "let that user become root without one (a line `USER ALL=(ALL) NOPASSWD: ALL` in /etc/sudoers.d), "
        "or connect as root",
    ),
    (
        "sudoers",
        "sudo on {place} does not let {user} become root",
        "add that user to /etc/sudoers.d, or connect as root",
    ),
    (
        "no new privileges",
        "sudo cannot become root on {place}: what runs the SSH server forbids it",
        "connect as root, or take `NoNewPrivileges` from the SSH server's unit or container",
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
        "compare it at the host's console, then `ssh-keyscan {option}{host} >>{known}`",
    ),
    (
        "UNPROTECTED PRIVATE KEY FILE",
        "others can read the SSH key {key}, so that the ssh client does not use it",
        "chmod 600 {key}",
    ),
    (
        "error in libcrypto",
        "{key} cannot be read as a private key",
        "name the private key's file (not the `.pub`) in `connect: key:`",
    ),
    (
        "invalid format",
        "{key} cannot be read as a private key",
        "name the private key's file (not the `.pub`) in `connect: key:`",
    ),
    (
        "Too many authentication failures",
        "{place} does not accept the keys that it was offered, and takes no more",
        "name the right one in `connect: key:`: then no other is offered",
    ),
    (
        "Permission denied",
        "{place} does not accept {offered}",
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
    (
        "banner line contains invalid characters",
        "what answers at {place} is no SSH server",
        "is `connect: port:` right?",
    ),
    ("timed out", "{place} does not answer", "is the host up, and does a firewall let SSH through?"),
    ("not responding", "{place} answers no more", "is the host up, and in this network?"),
    ("No route to host", "there is no way to {place}", "is the host up and in this network?"),
    ("Network is unreachable", "there is no way to {place}", "is this machine in the host's network?"),
)

_NOT_THROUGH = "closed by UNKNOWN port 65535"
"""What the client says where a ProxyJump or a ProxyCommand ends before the rig has answered."""

_FOLLOWS = ("kex_exchange_identification", "stdio forwarding failed")

_LOST = (
    "not responding",
    "closed by remote host",
    "Connection reset",
    "Broken pipe",
    "Connection to",
    "client_loop",
    "timed out",
)


def _signs(connect: Connect) -> Iterator[tuple[str, str, str]]:
    """What the client may say, what that means, and the way out; a key with a passphrase is only silently not used."""
    for sign, message, help_ in _SSH:
        if sign == "Permission denied" and connect.key and _has_passphrase(connect.key):
            yield (
                sign,
                "the SSH key {key} has a passphrase, and nobody is there to type it",
                "`ssh-add {key}` gives it to your agent; or name a key without one in `connect: key:`",
            )
        yield sign, message, help_


def _said(connect: Connect, message: str, help_: str) -> RemoteError:
    words = {
        "place": place(connect),
        "known": connect.known_hosts or "~/.ssh/known_hosts",
        "name": connect.host if connect.port in (None, _USUAL_PORT) else f"[{connect.host}]:{connect.port}",
        "host": connect.host,
        "option": f"-p {connect.port} " if connect.port else "",
        "key": connect.key or "the ssh client",
        "offered": f"{connect.key} as a key" if connect.key else "any key that the ssh client has",
    }
    return RemoteError(message.format(**words), help_.format(**words))


def _has_passphrase(key: Path) -> bool:
    """Whether a private key is encrypted: OpenSSH's own format names the cipher first, PEM in its first lines."""
    with suppress(UnreadableError, ValueError):
        lines = read_bytes(key, _LARGEST_KEY)[:4096].splitlines()
        if lines[:1] == [b"-----BEGIN OPENSSH PRIVATE KEY-----"]:
            begun = base64.b64decode(lines[1][:64])
            return begun.startswith(b"openssh-key-v1\0") and not begun[15:].startswith(b"\0\0\0\x04none")
        return any(b"ENCRYPTED" in line for line in lines[:3])
    return False


def _by_hand(connect: Connect) -> str:
    user = f"{connect.user}@" if connect.user else ""
    port = f"-p {connect.port} " if connect.port else ""
    return f"ssh {port}{user}{connect.host}"
