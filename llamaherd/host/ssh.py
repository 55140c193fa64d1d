"""The command line of the OpenSSH client for a rig, forwarded ports, why a login failed, and shared connections.

Commands in a row share one connection to a host, which OpenSSH holds for a minute. The first client becomes the master
of the connection (`ControlMaster`), and later clients reach it by a socket in a private folder. A client whose
connection was started by another key, user or client configuration has another socket.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.text.quoting import SSH_REFUSED, ssh_option
from llamaherd.text.terminal import shown
from llamaherd.text.textfile import UnreadableError, read_bytes


class Forward(NamedTuple):
    """A port `here` on this machine's loopback that leads to an address and a port of the host; IPv6 in brackets."""

    here: int
    address: str
    port: int

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options of the ssh client, which ends if the port is not free."""
        return ("-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{self.here}:{self.address}:{self.port}")


ROOT_SHELL = 'export LC_ALL=C; if [ "$(id -u)" = 0 ]; then exec sh -s; else exec sudo -n sh -s; fi'
"""Starts a root shell without a password prompt. The script arrives on stdin, so no process list contains it."""

LOGIN_SHELL = "exec sh -s"

PERSIST_SECONDS = 60
"""Seconds for which an unused shared connection stays open."""

SSH_ENDED = 255
"""The exit code of the ssh client if the client itself fails."""

_USUAL_PORT = 22

_SETTINGS_SECONDS = 10
"""Seconds for `ssh -G`. Files of the client may run commands (`Match exec`)."""

_LARGEST_KEY = 64 << 10
"""Bytes of a file of a private key: the largest of ssh-keygen has 13 kB."""


_PUBLIC_KEY = re.compile(rb"(ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9@.-]+ AAAA")
"""The begin of a public key as ssh-keygen writes it."""


class RemoteError(UserError):
    """A script could not be run on a host: contains the reason and the fix."""


class UnreachableError(RemoteError):
    """A host did not respond at all: it sleeps, is off, or is in another network."""


class UnknownHostKeyError(RemoteError):
    """The key of a host is in no file of known hosts."""


def argv(
    connect: Connect,
    *,
    root: bool = True,
    note_key: bool = False,
    fresh: bool = False,
    shared: Path | None = None,
) -> list[str]:
    """Return the command that reads a script on stdin. The ssh client's own files decide what the inventory omits.

    With `note_key`, the client accepts and stores the key of an unknown host, unless the inventory has `known_hosts:`.
    With `fresh`, the client shares no connection. `shared` is the socket of a connection that it shares.
    """
    shell = ROOT_SHELL if root else LOGIN_SHELL
    if connect.host == LOCAL:
        return ["sh", "-c", shell]
    options = ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=15"]
    if fresh:
        options += ["ControlMaster=no", "ControlPath=none"]
    elif shared:
        options += ["ControlMaster=auto", f"ControlPath={ssh_option(shared)}", f"ControlPersist={PERSIST_SECONDS}"]
        options += ["ClearAllForwardings=yes"]  # ports would stay taken as long as the connection
    options += _identity(connect)
    if note_key and not connect.known_hosts:
        options += ["StrictHostKeyChecking=accept-new"]
    command = ["ssh", "-T", *_where(connect), *_with_o(options)]
    # After `--`, a host's name is not an option. The script is quoted twice: any program may be the login shell.
    return [*command, "--", connect.host, f"sh -c '{shell}'"]


def terminal_argv(connect: Connect, words: tuple[str, ...], shell: str, *, terminal: bool) -> list[str]:
    """Return the command that runs words on a host for a user, or opens a login shell there without any.

    The host's shell reads the words, as with `ssh`. With `terminal`, they run on a terminal. On this machine, `shell`
    is the login shell. A first `--` is dropped, as `ssh` does.
    """
    words = words[1:] if words[:1] == ("--",) else words
    if connect.host == LOCAL:
        return [shell, "-c", " ".join(words)] if words else [shell, "-l"]
    tty = ["-t"] if words and terminal else []
    return ["ssh", *tty, *_where(connect), *_with_o(_identity(connect)), "--", connect.host, *words]


def _identity(connect: Connect) -> list[str]:
    """Return the options for the declared key and file of host keys."""
    options: list[str] = []
    if connect.key:
        options += [f"IdentityFile={ssh_option(connect.key)}", "IdentitiesOnly=yes"]
    if connect.known_hosts:
        options += [f"UserKnownHostsFile={ssh_option(connect.known_hosts)}", "StrictHostKeyChecking=yes"]
    return options


def _with_o(options: Iterable[str]) -> list[str]:
    return [word for option in options for word in ("-o", option)]


def host_key_prompt(connect: Connect) -> list[str]:
    """Return the command by which the ssh client shows the fingerprint of an unknown host's key, and prompts for it.

    The client finds aliases, ports and jump hosts, and stores the key in the file that it reads.
    """
    options = ["StrictHostKeyChecking=ask", "ConnectTimeout=10"]
    options += ["PasswordAuthentication=no", "KbdInteractiveAuthentication=no"]
    if connect.known_hosts:
        options.append(f"UserKnownHostsFile={ssh_option(connect.known_hosts)}")
    if connect.key:
        options += [f"IdentityFile={ssh_option(connect.key)}", "IdentitiesOnly=yes"]
    return ["ssh", "-T", *_where(connect), *_with_o(options), "--", connect.host, "true"]


def _where(connect: Connect) -> list[str]:
    """Return the options for the declared port and user."""
    port = ["-p", str(connect.port)] if connect.port else []
    return [*port, *(["-l", connect.user] if connect.user else [])]


def settings(connect: Connect) -> dict[str, str]:
    """Return the settings of the ssh client for a host, by `ssh -G`: `hostname`, `proxyjump` and others.

    Connect to nothing. Raise OSError and SubprocessError.
    """
    printed = subprocess.run(
        ["ssh", "-G", *_where(connect), "--", connect.host],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
        timeout=_SETTINGS_SECONDS,
    ).stdout
    return dict(line.split(" ", 1) for line in printed.splitlines() if " " in line)


def client_version() -> str:
    """Return the version of the ssh client, such as `OpenSSH_9.2p1`. Raise OSError and SubprocessError."""
    command = ["ssh", "-V"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SETTINGS_SECONDS).stderr
    return printed.strip().partition(",")[0]


def require_key(connect: Connect) -> None:
    """Raise RemoteError if the file of the declared key cannot be read."""
    if not connect.key:
        return
    try:
        read = read_bytes(connect.key, _LARGEST_KEY)
    except UnreadableError as error:
        unreadable = f"the SSH key {connect.key} cannot be read: {error}"
        message = unreadable if connect.key.exists() else f"there is no SSH key at {connect.key}"
        raise RemoteError(message, "correct `connect: key:` of this rig") from None
    if _PUBLIC_KEY.match(read):
        message = f"{connect.key} is a public key, and `connect: key:` is the private one"
        raise RemoteError(message, "name the file of the private key")


def why_not_run(connect: Connect, code: int, err: str) -> RemoteError | None:
    """Return why a script did not run, by the exit code and the output of the client; None if the script ran."""
    if code == 0:
        return None
    for sign, message, help_ in _SUDO:
        if sign in err:
            return RemoteError(message.format(place=place(connect), user=connect.user or "the login user"), help_)
    if code != SSH_ENDED or connect.host == LOCAL:
        return None
    if NOT_THROUGH in err:
        return _not_through(connect, err)
    for sign, message, help_ in _signs(connect):
        if sign in err:
            return _error(connect, sign, message, help_)
    last = [line.strip() for line in map(shown, err.splitlines()) if line.strip()][-1:]
    reason = last[0] if last else "the ssh client printed no reason"
    return RemoteError(f"cannot log in at {place(connect)}: {reason}", f"try `{_by_hand(connect)}`")


def _not_through(connect: Connect, err: str) -> RemoteError:
    """Return why a jump host did not connect to the host, in the client's words. Its last lines have no reason."""
    lines = [line.strip() for line in map(shown, err.splitlines()) if line.strip()]
    reasons = [line for line in lines if not line.startswith(_FOLLOWS) and NOT_THROUGH not in line] or lines[:1]
    return RemoteError(
        f"the jump host does not connect to {place(connect)}: {reasons[-1][:200]}",
        f"try `{_by_hand(connect)}`; check that the jump host is up and accepts your login, and check `ProxyJump` or "
        "`ProxyCommand` in ~/.ssh/config",
    )


def not_started(connect: Connect, code: int, err: str, out: str) -> RemoteError:
    """Return why a login ended before its shell read a script."""
    if problem := why_not_run(connect, code, err):
        return problem
    lines = [line.strip() for line in map(shown, (err + "\n" + out).splitlines()) if line.strip()][-1:]
    last = f"; its last line: {lines[0][:200]}" if lines else ""
    return RemoteError(
        f"the login shell of {place(connect)} ended before it ran the command{last}",
        f"try `{_by_hand(connect)} true`; the login shell and its start files must run a command",
    )


def lost(connect: Connect, code: int, err: str, *, unfinished: bool = False) -> RemoteError | None:
    """Return the error of a connection that was lost before the script ended; None if it was not lost.

    The client may print nothing, as one that was killed (`code` is negative then), or one whose shared connection has
    ended. `unfinished`: the script has certainly not ended by itself.
    """
    ended = code < 0 or (code == SSH_ENDED and (unfinished or any(sign in err for sign in _LOST)))
    if not ended or connect.host == LOCAL:
        return None
    return RemoteError(
        f"the connection to {place(connect)} was lost while a command ran, which may still run there",
        "check that the host is up, then run the command again: it waits for the end of that, and resumes",
    )


def place(connect: Connect) -> str:
    """Return the address of a host, as the inventory has it."""
    if connect.host == LOCAL:
        return "this machine"
    return connect.host if connect.port in (None, _USUAL_PORT) else f"{connect.host} port {connect.port}"


_SUDO = (
    (
        "password is required",
        "sudo on {place} requires a password for {user}",
        "allow sudo without a password (a line `USER ALL=(ALL) NOPASSWD: ALL` in /etc/sudoers.d), or connect as root",
    ),
    (
        "interactive authentication is required",  # sudo-rs
        "sudo on {place} requires a password for {user}",
        "allow sudo without a password (a line `USER ALL=(ALL) NOPASSWD: ALL` in /etc/sudoers.d), or connect as root",
    ),
    (
        "sudoers",
        "sudo on {place} does not let {user} become root",
        "add that user to /etc/sudoers.d, or connect as root",
    ),
    (
        "no new privileges",
        "sudo cannot become root on {place}: the unit or container of the SSH server forbids it",
        "connect as root, or remove `NoNewPrivileges` from the SSH server's unit or container",
    ),
    ("sudo: not found", "there is no sudo on {place}", "install sudo there, or connect as root"),
)

_CHANGED_KEY, _UNKNOWN_KEY = "REMOTE HOST IDENTIFICATION HAS CHANGED", "Host key verification failed"

# By what the client prints, the specific lines first: a changed key also ends in "Host key verification failed".
_SSH = (
    (
        _CHANGED_KEY,
        "the host key of {place} has changed: the host was reinstalled, or another machine has its address",
        "if the change is expected, run `ssh-keygen -f {known} -R '{name}'`, then confirm the new key with `{prompt}`",
    ),
    (
        _UNKNOWN_KEY,
        "the host key of {place} is unknown",
        "compare it at the host's console, and confirm it once with `{prompt}`{scan}",
    ),
    (
        "UNPROTECTED PRIVATE KEY FILE",
        "the ssh client rejects the SSH key {key}: other users can read it",
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
        "{place} closed the connection: the ssh client offered too many keys",
        "set `connect: key:`: the client then offers this key only",
    ),
    (
        "Permission denied",
        "{place} does not accept {offered}",
        "correct the SSH user or key, or add the public key to that user's ~/.ssh/authorized_keys",
    ),
    (
        "Could not resolve hostname",
        "{place}: the name cannot be resolved",
        "correct the name, or give the address of the host",
    ),
    (
        "Connection refused",
        "nothing listens for SSH at {place}: connection refused",
        "check that the host is up, that sshd runs there, and that the SSH port is right",
    ),
    (
        "kex_exchange_identification",
        "{place} closes the connection before the login",
        "wait a minute: OpenSSH refuses connections for a while after failed logins; check that sshd listens there",
    ),
    (
        "banner line contains invalid characters",
        "another program than an SSH server listens at {place}",
        "correct the SSH port",
    ),
    ("timed out", "{place} does not respond", "check that the host is up, and that its firewall allows SSH"),
    ("not responding", "{place} stopped responding", "check that the host is up and in this network"),
    ("No route to host", "there is no route to {place}", "check that the host is up and in this network"),
    ("Network is unreachable", "there is no route to {place}", "check that this machine is in the host's network"),
)

_SILENT = frozenset({"timed out", "not responding", "No route to host"})
"""What the client prints if nothing responds at the address of the host."""

NOT_THROUGH = "UNKNOWN port 65535"
"""The client prints this if a ProxyJump or a ProxyCommand ends before the host responds."""

_FOLLOWS = ("kex_exchange_identification", "banner exchange", "stdio forwarding failed")

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
    """Yield what the client may print, its meaning and the fix. The client skips a key with a passphrase silently."""
    for sign, message, help_ in _SSH:
        if sign == "Permission denied" and connect.key and _has_passphrase(connect.key):
            yield (
                sign,
                "the SSH key {key} has a passphrase, and no agent has the key",
                "add the key to your agent with `ssh-add {key}`, or set `connect: key:` to a key without a passphrase",
            )
        yield sign, message, help_


def _error(connect: Connect, sign: str, message: str, help_: str) -> RemoteError:
    words = {
        "place": place(connect),
        "key": connect.key or "the ssh client",
        "offered": f"{connect.key} as a key" if connect.key else "any key that the ssh client has",
    }
    if sign in (_CHANGED_KEY, _UNKNOWN_KEY):
        words |= _host_key_words(connect)
    kind: type[RemoteError] = UnknownHostKeyError if sign == _UNKNOWN_KEY else RemoteError
    kind = UnreachableError if sign in _SILENT else kind
    return kind(message.format(**words), help_.format(**words))


def _host_key_words(connect: Connect) -> dict[str, str]:
    """Return the words of a fix about a host's key: the name under which the client stores it, and commands.

    `ssh-keyscan` resolves no alias and uses no jump host: it gets the real name, or is left out.
    """
    found: dict[str, str] = {}
    with suppress(OSError, subprocess.SubprocessError):
        found = settings(connect)
    host, port = found.get("hostname", connect.host), found.get("port", str(connect.port or _USUAL_PORT))
    is_usual = port == str(_USUAL_PORT)
    known = str(connect.known_hosts or found.get("userknownhostsfile", "~/.ssh/known_hosts").split(" ")[0])
    options = f"-o UserKnownHostsFile={shlex.quote(known)} " if connect.known_hosts else ""
    is_direct = not found.keys() & {"proxyjump", "proxycommand", "hostkeyalias"}
    scan = f"ssh-keyscan {'' if is_usual else f'-p {port} '}{host} >>{known}"
    return {
        "known": known,
        "name": found.get("hostkeyalias", host if is_usual else f"[{host}]:{port}"),
        "prompt": _by_hand(connect, options),
        "scan": f"; without a terminal run `{scan}`" if is_direct else "",
    }


def _has_passphrase(key: Path) -> bool:
    """Return whether a private key is encrypted, by the cipher in OpenSSH's format or the first lines of PEM."""
    with suppress(UnreadableError, ValueError):
        lines = read_bytes(key, _LARGEST_KEY)[:4096].splitlines()
        if lines[:1] == [b"-----BEGIN OPENSSH PRIVATE KEY-----"]:
            begun = base64.b64decode(lines[1][:64])
            return begun.startswith(b"openssh-key-v1\0") and not begun[15:].startswith(b"\0\0\0\x04none")
        return any(b"ENCRYPTED" in line for line in lines[:3])
    return False


def _by_hand(connect: Connect, options: str = "") -> str:
    user = f"{connect.user}@" if connect.user else ""
    port = f"-p {connect.port} " if connect.port else ""
    return f"ssh {options}{port}{user}{connect.host}"


VARIABLE = "HERD_SSH_PERSIST"
"""The environment variable that switches sharing off: `0`."""

JOIN_SECONDS = 10
"""Seconds to wait for a shell on a shared connection. Without a response, the connection may be dead."""

_LONGEST = 86
"""Bytes of the socket's path: 104 of an address on any system, less what ssh adds while it creates the socket."""

_PROBE_SECONDS = 2


def shared_socket(connect: Connect) -> Path | None:
    """Return the path of the socket of a host's shared connection; None if its connections are not shared.

    They are not shared if the user has switched that off, has a `ControlPath` in the client's own files, which then
    counts, or has no private folder.
    """
    if connect.host == LOCAL or os.environ.get(VARIABLE) == "0":
        return None
    folder = next((each for each in _folders() if _is_private(each)), None)
    if folder is None:
        return None
    path = folder / _socket_name(connect)
    if SSH_REFUSED.search(str(path)) or len(os.fsencode(path)) > _LONGEST:
        return None
    return path if path.exists() or not _has_own_path(connect) else None


def share_none() -> None:
    """Switch sharing off in this process and its children: a run reboots hosts, which ends their connections."""
    os.environ[VARIABLE] = "0"


def is_open(path: Path) -> bool:
    """Return whether the master of a shared connection still runs."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_PROBE_SECONDS)
        client.connect(str(path))
        return True
    return False


def _folders() -> Iterator[Path]:
    """Yield the folders that may have the sockets. The first private one is used."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    with suppress(OSError):
        if Path(runtime).is_absolute() and Path(runtime).stat().st_uid == os.getuid():
            yield Path(runtime, "llamaherd")
    yield Path(tempfile.gettempdir(), f"llamaherd-{os.getuid()}")


def _is_private(folder: Path) -> bool:
    """Return whether a folder is this user's alone. Create the folder if it is missing."""
    try:
        with suppress(FileExistsError):
            folder.mkdir(0o700)
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077


def _socket_name(connect: Connect) -> str:
    """Return the name of the socket: a hash of the declared connection and of the files that decide the login."""
    files = [connect.key, connect.known_hosts]
    with suppress(RuntimeError):  # a user without a home
        files.append(Path("~/.ssh/config").expanduser())
    text = f"{connect.model_dump_json()} {[_version(each) for each in files]} {os.environ.get('SSH_AUTH_SOCK')}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _version(file: Path | None) -> tuple[int, int] | None:
    """Return size and time of a file; None if it does not exist."""
    with suppress(OSError):
        if file:
            found = file.stat()
            return found.st_size, found.st_mtime_ns
    return None


def _has_own_path(connect: Connect) -> bool:
    """Return whether the client's own files have a `ControlPath` for a host. Also return True if they are invalid."""
    try:
        return "controlpath" in settings(connect)
    except (OSError, subprocess.SubprocessError):
        return True
