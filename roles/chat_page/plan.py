"""From a gateway's page to its Compose file. Pure.

Facts: Open WebUI 0.12.4, env.py, config.py and main.py of its wheel; its image runs `open_webui.main:app` by uvicorn in
/app/backend.
"""

from __future__ import annotations

from typing import Any

from llamaherd.inventory.authority import ROOT
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.fleet_file import Chat, Gateway
from llamaherd.layout import CHAT, CHAT_CONTAINER, CHAT_DATA, CHAT_USER
from llamaherd.lock import Lock
from llamaherd.lock.apply import pinned_image
from llamaherd.plan import PAGE_ASKS, ChatPlan, TextFile, digest
from llamaherd.plan.server import Endpoint
from llamaherd.render import render
from llamaherd.role.role import Planning, PlanPart
from llamaherd.text.quoting import url_host

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


def _values(image: str, chat: Chat, told: dict[str, str], *, trusts: bool) -> dict[str, Any]:
    probe = f"import urllib.request; urllib.request.urlopen({chat_url(chat.listen, chat.port)!r}, timeout=8)"
    return {
        "container": CHAT_CONTAINER,
        "image": image,
        "entrypoint": ("/bin/sh", "-c", _START, "open-webui"),
        "command": command(chat),
        "environment": told,
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
