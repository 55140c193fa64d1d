"""Chat page: Open WebUI on the gateway's host, as a project of Docker Compose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.responses import ProbeOutputs
from llamaherd.host.state import HostState, StatePart
from llamaherd.inventory.api_keys import UnreadableKeyError, read_key
from llamaherd.inventory.authority import ROOT, root_in
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.fleet_file import Chat, Gateway
from llamaherd.layout import CHAT, CHAT_CONTAINER, CHAT_DATA, CHAT_USER
from llamaherd.lock import Lock
from llamaherd.lock.apply import pinned_image
from llamaherd.onhost.verbs import NoInput
from llamaherd.onhost.verification import Probe
from llamaherd.plan import PAGE_ASKS, ChatPlan, Estimate, Plan, TextFile, digest
from llamaherd.plan.instance import Endpoint
from llamaherd.render import render
from llamaherd.role.changes import Action, Change, RunVerb, file_differences, other_settings, written_files
from llamaherd.role.preflight import Refusal, is_port_taken, port_refusal
from llamaherd.role.report import Check, private_files_check
from llamaherd.role.role import Inspection, Judging, Planning, PlanPart, Role, Task, Verified
from llamaherd.text.quoting import url_host
from roles.chat_page.onhost import ApplyInput, Found

INSIDE = "/run/llamaherd"
"""Where its container finds keys."""
PATIENCE = 3600
"""Seconds for a response: a long prompt takes minutes, and a request may wait."""
_START = f'OPENAI_API_KEYS="$(cat {INSIDE}/key)" WEBUI_SECRET_KEY="$(cat {INSIDE}/secret)" exec "$@"'


def plan(planning: Planning) -> PlanPart:
    """Return the page, on the gateway's first rig."""
    gateway = planning.fleet.gateway if planning.fleet else None
    if gateway is None or gateway.chat is None or gateway.on[0] != planning.rig.rig:
        return PlanPart()
    return PlanPart(fields={"chat": plan_chat(gateway, gateway.chat, planning.rig, planning.lock)})


def plan_chat(gateway: Gateway, chat: Chat, rig: Rig, lock: Lock) -> ChatPlan:
    """Return the page. Raise NotLockedError."""
    user = gateway.users[chat.user]
    image = chat.image if chat.digest else pinned_image(chat.image, lock, "the image of the chat page")
    root = gateway.tls.ca / ROOT if gateway.tls and gateway.tls.ca else None
    url, model = _url(gateway, rig), next(iter(user.models or gateway.models))
    values = _values(image, chat, environment(url, model, trusts=root is not None), trusts=root is not None)
    spec = digest(render("chat_page/compose.yaml.j2", rig=rig.rig, spec="", **values))
    text = render("chat_page/compose.yaml.j2", rig=rig.rig, spec=spec, **values)
    return ChatPlan(
        image=image,
        listen=chat.listen,
        port=chat.port,
        user=chat.user,
        key=user.key,
        gateway=url,
        model=model,
        root=root,
        number=CHAT_USER,
        spec=spec,
        file=TextFile(path=str(CHAT / "compose.yaml"), text=text, mode="0600"),
    )


def environment(gateway: str, model: str, *, trusts: bool) -> dict[str, str]:
    """Return the environment of Open WebUI: declared values count, whatever its database contains."""
    # The first account may be made in spite of `ENABLE_SIGNUP`, and is the administrator's.
    trusted = {"AIOHTTP_CLIENT_SSL_CERT_FILE": f"{INSIDE}/{ROOT}"} if trusts else {}
    return {
        "AIOHTTP_CLIENT_TIMEOUT": str(PATIENCE),
        "ANONYMIZED_TELEMETRY": "false",
        "DATA_DIR": "/data",
        "DEFAULT_MODELS": model,
        "DO_NOT_TRACK": "true",
        "ENABLE_OLLAMA_API": "false",
        "ENABLE_PERSISTENT_CONFIG": "false",
        "ENABLE_SIGNUP": "false",
        "ENABLE_VERSION_UPDATE_CHECK": "false",
        "HOME": "/data",
        "OFFLINE_MODE": "true",
        "OPENAI_API_BASE_URLS": f"{gateway}/v1",
        "SCARF_NO_ANALYTICS": "true",
        "STATIC_DIR": "/tmp/static",
        **PAGE_ASKS,
        **trusted,
    }


def command(chat: Chat) -> tuple[str, ...]:
    """Return the command that serves the page."""
    where = ("--host", chat.listen, "--port", str(chat.port))
    return ("python3", "-m", "uvicorn", "open_webui.main:app", *where, "--workers", "1")


def _values(image: str, chat: Chat, variables: dict[str, str], *, trusts: bool) -> dict[str, Any]:
    probe = f"import urllib.request; urllib.request.urlopen({chat_url(chat.listen, chat.port)!r}, timeout=8)"
    return {
        "container": CHAT_CONTAINER,
        "image": image,
        "entrypoint": ("/bin/sh", "-c", _START, "open-webui"),
        "command": command(chat),
        "environment": variables,
        "number": CHAT_USER,
        "port": chat.port,
        "data": CHAT_DATA,
        "folder": CHAT,
        "inside": INSIDE,
        "files": ("key", "secret", *((ROOT,) if trusts else ())),
        "probe": ("CMD", "python3", "-c", probe),
    }


def chat_url(listen: str, port: int) -> str:
    """Return the URL of the page's health, on its own host."""
    return Endpoint(listen=listen, port=port, models=(), streams=1).health


def _url(gateway: Gateway, rig: Rig) -> str:
    """Return the gateway's URL on its own host; by its name, if the certificate is not ours."""
    endpoint = Endpoint(listen=gateway.listen, port=gateway.port, models=(), streams=1)
    if gateway.tls is None:
        return endpoint.url()
    host = endpoint.local_address if gateway.tls.ca else rig.address
    return f"https://{url_host(host)}:{gateway.port}"


KEY_FILE, ROOT_FILE = str(CHAT / "key"), str(CHAT / "root.pem")

SECONDS = 300
"""For its first start, which makes its database."""

_SHOWN = "{{.State.Status}} {{with .State.Health}}{{.Status}}{{end}} {{.Config.User}} {{.Image}}"


@dataclass(frozen=True)
class ChatState(Found, StatePart):
    """The chat page."""


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """Yield a port that is in use."""
    if plan.chat is None:
        return
    port, page = plan.chat.port, ChatState.of(state).page
    if is_port_taken(port, plan, state) and not (page and page.port == port):
        yield port_refusal(port, "the chat page")


def read_files(plan: ChatPlan) -> tuple[TextFile, ...]:
    """Return the key and the certificate that the page uses at the gateway. Raise UserError."""
    try:
        key = TextFile(path=KEY_FILE, text=read_key(plan.key), mode="0400", owner=plan.number)
    except UnreadableKeyError as error:
        help_ = f"give that user one: `herd users rotate {plan.user}`"
        raise UserError(f"the key of the chat page, of user `{plan.user}`: {error}", help_) from None
    if plan.root is None:
        return (key,)
    return key, TextFile(path=ROOT_FILE, text=root_in(plan.root.parent).pem, mode="0444")


def chat_changes(plan: Plan, state: HostState) -> list[Change]:
    """Apply the planned chat page. Raise UserError where its key cannot be read."""
    return changes_with(plan.chat, state, read_files(plan.chat)) if plan.chat else []


def changes_with(chat: ChatPlan, state: HostState, files: Sequence[TextFile]) -> list[Change]:
    """Return the changes of the page with these files."""
    found = ChatState.of(state)
    reasons = (*_wrong(chat, found), *file_differences((chat.file, *files), state))
    if not reasons:
        return []
    (compose,) = written_files([chat.file])
    given = ApplyInput(chat.image, chat.number, written_files(files), compose, SECONDS)
    action: Action = "restart" if found.page else "create"
    how = RunVerb("chat_page.apply", given, "starting the chat page")
    return [Change(action, "chat page", CHAT_CONTAINER, reasons, how)]


def _wrong(chat: ChatPlan, found: ChatState) -> Iterator[str]:
    """Yield why the container must be created anew."""
    page = found.page
    if page is None:
        yield "there is no such container"
        return
    if page.status != "running":
        yield f"it is {page.status}"
    elif page.health == "unhealthy":
        yield "it is unhealthy"
    if page.spec != chat.spec:
        yield other_settings(page.spec, chat.spec)
    if found.untried:
        yield "a run before did not see it healthy"
    if found.unsigned:
        yield "the secret that signs logins is missing"


def chat_leftovers(plan: Plan, state: HostState) -> list[Change]:
    """Take it away where the fleet has it elsewhere, or none. What people wrote stays."""
    if plan.chat or not ChatState.of(state).there:
        return []
    why = ("this rig has no chat page any more",)
    how = RunVerb("chat_page.remove", NoInput(), "ending the chat page")
    return [Change("remove", "chat page", CHAT_CONTAINER, why, how)]


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of the page, its container and its files."""
    if plan.chat is None:
        return
    container = ("docker", "inspect", "--type", "container", "--format", _SHOWN, CHAT_CONTAINER)
    page = ("curl", "-q", "-sS", "--noproxy", "*", "--max-time", "10", chat_url(plan.chat.listen, plan.chat.port))
    files = (f"{CHAT}/key", f"{CHAT}/secret", str(CHAT_DATA))
    yield Probe("chat container", "", container, errors=True)
    yield Probe("chat page", "", page, errors=True)
    yield Probe("chat files", "", ("stat", "-c", "%a %u %n", *files), errors=True)


def judge(judging: Judging) -> Verified:
    """Return the checks of the page."""
    made = judging.plan.chat
    return Verified(checks=tuple(chat_checks(made, judging.outputs))) if made else Verified()


def chat_checks(made: ChatPlan, outputs: ProbeOutputs) -> Iterator[Check]:
    """Yield checks of the container, its response, and the permissions of its keys and the chats."""
    container = outputs.get(("chat container", ""), "")
    status, health, user, *_ = [*container.split(), "", "", ""]
    right = (status, health, user) == ("running", "healthy", f"{made.number}:{made.number}")
    yield Check(
        "chat page's container", right, f"is {status} {health} as {user}" if right else container or "no response"
    )
    output = outputs.get(("chat page", ""), "")
    well = '"status":true' in output.replace(" ", "")
    yield Check("chat page", well, f"responds on port {made.port}" if well else output[:200] or "no response")
    owners, private = outputs.get(("chat files", ""), ""), (f"400 {made.number} ", f"700 {made.number} ")
    yield private_files_check("chat page's files", owners, private, "keys and conversations")


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> Iterator[str]:
    """Yield the page's address and its image."""
    if plan.chat:
        made = plan.chat
        yield f"  chat page  http on {made.listen}:{made.port}, as user {made.user}, {made.model} first"
        yield f"             {made.image}"


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield the page's task, after the servers that it uses. If the task fails, all others go on."""
    if plan.chat:
        yield Task("a page that people chat on", lambda state, _: chat_changes(plan, state), alone=True)


ROLE = Role(
    name="chat_page",
    summary="People find a page that they chat on.",
    plan=plan,
    brings=lambda plan: (plan.chat.file,) if plan.chat else (),
    files=lambda plan: (KEY_FILE, ROOT_FILE) if plan.chat else (),
    # Also where none is declared any more: what an earlier run has left is removed.
    inspection=Inspection("chat_page.inspect", lambda plan: NoInput() if plan.of_fleet else None, ChatState),
    refusals=refusals,
    leftovers=chat_leftovers,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
