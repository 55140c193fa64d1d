"""The files of HAProxy: one configuration with its program, and maps. Keys are added last, those of users as hashes.

Maps contain the users, their models and their limits; the configuration contains everything else. So HAProxy does not
reload if users are added or removed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from llamaherd.layout import GATEWAY, GATEWAY_CERTIFICATE, GATEWAY_RUN, GATEWAY_USER, GATEWAY_WAKE
from llamaherd.plan import GatewayModel, GatewayPlan, TextFile, digest
from llamaherd.render import render
from llamaherd.text.quoting import Written, haproxy, url_host

PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/v1/rerank",
)
"""What is passed on; everything else is refused."""

CONFIGURATION, SCRIPT, CERTIFICATE = "haproxy.cfg", "read-model.lua", GATEWAY_CERTIFICATE.name
HEADERS = 64 << 10
"""Bytes for a request's headers, without its body."""
REWRITE = 8 << 10
"""Bytes for what is added to them."""


@dataclass(frozen=True)
class GatewayKeys:
    """Keys, read when they are needed: hashes of users' by name, models' servers' by model, the certificate in PEM."""

    users: Mapping[str, str] = field(repr=False)
    servers: Mapping[str, str] = field(repr=False)
    certificate: str | None = field(repr=False, default=None)


def configuration(plan: GatewayPlan, keys: GatewayKeys) -> TextFile:
    """Return HAProxy's configuration. It names a hash of itself, of `reader` and of the certificate. The running
    process reports this hash."""
    pem = hashlib.sha256((keys.certificate or "").encode()).hexdigest()
    named = digest(_text(plan, keys, ""), reader().text, pem, *(file.text for file in waker(plan)))
    return _own(CONFIGURATION, _text(plan, keys, named))


def reader() -> TextFile:
    """Return the program by which HAProxy reads `model` from the body of a request."""
    return _own(SCRIPT, render("gateway/read-model.lua"))


def waker(plan: GatewayPlan) -> Iterator[TextFile]:
    """Yield the program by which HAProxy holds requests for rigs that sleep, if there are such rigs."""
    if any(model.wakes for model in plan.models):
        yield _own(GATEWAY_WAKE.name, render("gateway/wake.lua"))


def spec_of(text: str) -> str:
    """Return a configuration's spec, as HAProxy's socket reports it."""
    return text.partition("    description ")[2].split("\n", 1)[0]


def certificate(keys: GatewayKeys) -> Iterator[TextFile]:
    """Yield the certificate with its key, if there is one."""
    if keys.certificate is not None:
        yield _own(CERTIFICATE, keys.certificate)


def maps(plan: GatewayPlan, keys: GatewayKeys) -> Iterator[TextFile]:
    """Yield the maps from a key to its user, and from a user to models and limits."""
    models = {model.name: model for model in plan.models}
    users = [user for user in plan.users if user.name in keys.users]
    yield _own("streams.map", "".join(f"{user.name} {user.streams}\n" for user in users))
    yield _own(
        "models.map",
        "".join(
            f"{user.name}/{name} m_{model}\n" for user in users for model in user.models for name in models[model].names
        ),
    )
    yield _own(
        "lists.map", "".join(f"{user.name} {_listed([models[name] for name in user.models])}\n" for user in users)
    )
    yield _own("keys.map", "".join(f"{keys.users[user.name]} {user.name}\n" for user in users))


def _listed(models: list[GatewayModel]) -> str:
    """Return the response to /v1/models, without blanks: in a map a blank ends the word."""
    names = sorted(name for model in models for name in model.names)
    each = [{"id": name, "object": "model", "created": 0, "owned_by": "llamaherd"} for name in names]
    return json.dumps({"object": "list", "data": each}, separators=(",", ":"))


def _own(name: str, text: str) -> TextFile:
    return TextFile(path=str(GATEWAY / name), text=text, mode="0600", owner=GATEWAY_USER)


def _text(plan: GatewayPlan, keys: GatewayKeys, spec: str) -> Written:
    return render(
        "gateway/haproxy.cfg.j2",
        rig=plan.rig,
        spec=spec,
        address=url_host(plan.listen),
        port=plan.port,
        connections=plan.most_connections,
        buffer=plan.body + HEADERS + REWRITE,
        rewrite=REWRITE,
        socket=GATEWAY_RUN / "admin.sock",
        wait=plan.wait,
        length=plan.length,
        body=plan.body,
        certificate=CERTIFICATE if keys.certificate is not None else None,
        script=SCRIPT,
        paths=PATHS,
        models=plan.models,
        queues=plan.queues,
        steps=list(_steps(plan)),
        waker=next((PurePosixPath(file.path).name for file in waker(plan)), None),
        keys=keys.servers,
        error=_error,
        figures=plan.figures,
        probed_often=plan.virtual_address is not None,
    )


def _error(status: int, kind: str, code: str, message: str) -> Written:
    """Return an error response of the gateway itself, in the shape of OpenAI's errors."""
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    output = haproxy(json.dumps(body, separators=(",", ":")))
    return Written(f"status {status} content-type application/json string {output}")


def _steps(plan: GatewayPlan) -> Iterator[GatewayModel]:
    """Yield models whose rigs are woken, or that fall back, each before its fallback."""
    falling = list(_in_order(plan))
    yield from falling
    names = {model.name for model in falling}
    yield from (model for model in plan.models if model.wakes and model.name not in names)


def _in_order(plan: GatewayPlan) -> Iterator[GatewayModel]:
    """Yield models that fall back, each before its fallback: one pass over them follows a chain."""
    falling = {model.name: model for model in plan.models if model.fallback}
    while falling:
        named = {model.fallback for model in falling.values()}
        first = [name for name in falling if name not in named]
        for name in first or list(falling):
            yield falling.pop(name)
