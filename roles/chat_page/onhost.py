"""The chat page's part of the program on hosts: apply its container as a transaction, and remove it."""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import dataclass

from llamaherd.layout import CHAT, CHAT_CONTAINER, CHAT_DATA, CHAT_LOG, WRITTEN
from llamaherd.onhost.clients import docker, ensure_docker, pull_image, query_docker
from llamaherd.onhost.files import WrittenFile, write_files
from llamaherd.onhost.services import forget_fingerprints, last_lines, locked, record_fingerprints, require_success
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import NoInput, Verb

LOG = str(CHAT_LOG)
COMPOSE = str(CHAT / "compose.yaml")
BEFORE = f"{COMPOSE}.old"
"""The Compose file of the container that was healthy last."""
SECRET = str(CHAT / "secret")
"""The key that signs sessions, of this host alone."""
UNTRIED = str(CHAT / "untried")
"""Is there until the container is healthy: by that, the next run finds out that this one was cut off."""
_RECORD = "chat"
_COMPOSE_LINES, _LOG_LINES = 5, 20

_LABELS = '{{index .Config.Labels "llamaherd.spec"}} {{index .Config.Labels "llamaherd.port"}}'
_SHOWN = "{{.State.Status}} {{with .State.Health}}{{.Status}}{{else}}none{{end}} " + _LABELS


@dataclass(frozen=True)
class ApplyInput:
    """The planned chat page."""

    image: str
    number: str
    """The user and group of its container."""
    keys: tuple[WrittenFile, ...]
    """Files that are made of keys."""
    compose: WrittenFile
    seconds: int
    """How long it may take until it is healthy."""


def apply(given: ApplyInput, system: System) -> None:
    """Apply the planned chat page. Raise FailedError if it is not healthy; the previous one runs again then."""
    with locked(system, "applying the chat page"):
        if not ensure_docker(system):
            message = "Docker does not start, so the chat page was left as it was"
            raise FailedError(message, "see `systemctl status docker`")
        _ensure_image(given.image, system)
        system.folder(str(CHAT), mode=0o700)
        data = ["install", "-d", "-m", "0700", "-o", given.number, "-g", given.number, str(CHAT_DATA)]
        require_success(system.run(data), f"cannot create {CHAT_DATA}")
        if not system.entry(UNTRIED) and system.entry(COMPOSE):
            system.copy(COMPOSE, BEFORE)
        system.write(UNTRIED, "")
        secret = system.entry(SECRET)
        if secret is None or not secret.size:
            system.write(SECRET, base64.b64encode(system.random()).decode(), mode=0o400, owner=given.number)
        forget_fingerprints(system, _RECORD)
        write_files(system, [*given.keys, given.compose])
        # The keys stay, also if the container before is restored.
        record_fingerprints(system, _RECORD, [each.path for each in given.keys])
        began = system.now()
        if not _start(given.seconds, system):
            raise _rolled_back(given.seconds, system.now() - began, system)
        _accept(system)


def _ensure_image(image: str, system: System) -> None:
    """Pull the image where the host does not have it. Raise FailedError where it cannot be pulled."""
    if docker(system, "image", "inspect", image).ok:
        return
    pulled = pull_image(system, image)
    message = "the image of the chat page cannot be fetched; what ran before still does"
    require_success(pulled, message, f"run `docker pull {image}` on the host to see why")


def _start(seconds: int, system: System) -> bool:
    """Create the container again, and return whether it is healthy in time."""
    words = ("up", "-d", "--force-recreate", "--remove-orphans", "--wait", "--wait-timeout", str(seconds))
    ended = docker(system, "compose", "--progress", "plain", "-f", COMPOSE, *words)
    with suppress(OSError):
        system.write(LOG, ended.out + ended.err)
    return ended.ok


def _rolled_back(seconds: int, waited: float, system: System) -> FailedError:
    """Start the container before, if there was one, and return the failure."""
    compose = (system.read(LOG) or "").splitlines()[-_COMPOSE_LINES:]
    own = last_lines(docker(system, "logs", "--tail", str(_LOG_LINES), CHAT_CONTAINER), _LOG_LINES)
    logs = f"docker logs {CHAT_CONTAINER}"
    message = (
        f"the chat page is not healthy after {waited:.0f} s of {seconds}; "
        f"its last lines are above, all of them in: {logs}"
    )
    if not system.entry(BEFORE):
        docker(system, "compose", "-f", COMPOSE, "stop")
    else:
        system.copy(BEFORE, COMPOSE)
        if _start(seconds, system):
            _accept(system)
            message += "; what served before does again"
        else:
            message += "; what served before is not healthy either"
    return FailedError(message, "change what the lines above name, then run `herd up` again", [*compose, *own])


def _accept(system: System) -> None:
    """Record that the container is healthy."""
    system.remove(UNTRIED)
    system.remove(BEFORE)


def remove(_: NoInput, system: System) -> None:
    """Remove the chat page. The folder goes last: the next run finds by it what is left. What users wrote stays."""
    with locked(system, "removing the chat page"):
        if docker(system, "inspect", "--type", "container", CHAT_CONTAINER).ok:
            # A stop lets it finish what it is writing to its database.
            docker(system, "stop", CHAT_CONTAINER)
            message = f"cannot remove the container {CHAT_CONTAINER}"
            require_success(docker(system, "rm", "-f", CHAT_CONTAINER), message, "see `systemctl status docker`")
        system.remove(f"{WRITTEN}/{_RECORD}")
        system.remove(str(CHAT))
        if system.entry(str(CHAT_DATA)):
            system.report(f"accounts and conversations stay in {CHAT_DATA}")


@dataclass(frozen=True)
class PageState:
    """The container, as Docker reports it, the hash of the file that it was made from, and its port."""

    status: str
    health: str
    spec: str
    port: int


@dataclass(frozen=True)
class Found:
    """The chat page. `untried`: a run was cut off. `unsigned`: there is no secret that signs logins."""

    there: bool = False
    untried: bool = False
    unsigned: bool = False
    page: PageState | None = None


def inspect(_: NoInput, system: System) -> Found:
    """Inspect the chat page's folder and container."""
    if system.entry(str(CHAT)) is None:
        return Found()
    words = query_docker(system, "inspect", "--type", "container", "--format", _SHOWN, CHAT_CONTAINER).out.split()
    # A container of another program has no labels of llamaherd's.
    is_ours = len(words) == 4 and words[3].isdigit()
    page = PageState(words[0], words[1], words[2], int(words[3])) if is_ours else None
    secret = system.entry(SECRET)
    return Found(
        there=True,
        untried=system.entry(UNTRIED) is not None,
        unsigned=secret is None or not secret.size,
        page=page,
    )


VERBS = {"inspect": Verb(NoInput, inspect), "apply": Verb(ApplyInput, apply), "remove": Verb(NoInput, remove)}
