"""What people's programs must be told to use a gateway: the exact file, or the lines for a shell. Never a key: its
variable. Pure.

Facts: opencode 05f35982, Continue d0a3c0b6, aider 5dc9490b, openai-python 3.54.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from llamaherd.diagnostics.findings import UserError
from llamaherd.gateway.people import DeclaredGateway
from llamaherd.inventory.schema import LOCAL
from llamaherd.inventory.served import split_served
from llamaherd.text.quoting import sh, url_host

KEY_VARIABLE = "HERD_KEY"
"""Where programs find the key: it is in no file of ours."""
_MOST_OUTPUT = 32_768
"""Tokens of one answer that programs may ask for, and no more than a quarter of the context."""
_PATIENCE = 3600
"""Seconds for an answer that does not stream: a long prompt takes minutes."""


@dataclass(frozen=True)
class ClientModel:
    """A model as a program must know it: its name, the tokens of one request, and those of an answer."""

    name: str
    context: int
    output: int


@dataclass(frozen=True)
class ClientFacts:
    """What a user's programs are told: where the gateway is, and what may be used there."""

    url: str
    models: tuple[ClientModel, ...]


@dataclass(frozen=True)
class Told:
    """A text, and where it belongs."""

    text: str
    place: str


def client_facts(gateway: DeclaredGateway, user: str, url: str | None) -> ClientFacts:
    """What is to be told to a user's programs; `url` is where they reach the gateway, if they know a better one.

    Raises UserError where there is no such user.
    """
    may = gateway.user(user).models or tuple(gateway.declared.models)
    models = tuple(ClientModel(name, *_tokens(gateway, name)) for name in gateway.declared.models if name in may)
    return ClientFacts((url or _url(gateway)).rstrip("/").removesuffix("/v1"), models)


def _tokens(gateway: DeclaredGateway, model: str) -> tuple[int, int]:
    """Of one request at the smallest slot of a model's servers, and of an answer."""
    places = [split_served(named, gateway.rigs) for named in gateway.declared.models[model].serve]
    slots = [
        instance.context // instance.parallel
        for place in places
        if place
        for instance in [gateway.rigs[place[0]].instances[place[1]]]
    ]
    context = min(slots)
    return context, min(_MOST_OUTPUT, context // 4)


def _url(gateway: DeclaredGateway) -> str:
    """Where the gateway is for other machines; for its own, where it listens there alone."""
    declared = gateway.declared
    host = declared.listen
    if host in ("0.0.0.0", "::"):
        rig = gateway.rigs[declared.on[0]]
        host = rig.store.share.address or rig.connect.host
        host = "127.0.0.1" if host == LOCAL else host
    return f"{'https' if declared.tls else 'http'}://{url_host(host)}:{declared.port}"


def told_to(client: str, facts: ClientFacts) -> Told:
    """What a program is told. Raises UserError where the user may use nothing."""
    if not facts.models:
        raise UserError("this user may use no model", "name some in fleet.yaml")
    return CLIENTS[client](facts)


def _opencode(facts: ClientFacts) -> Told:
    """Its provider must not be called `opencode…`: then it sends no session to stay on a server by."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "herd",
        # A request may wait, and a prompt may be long: headers come late.
        "options": {"baseURL": f"{facts.url}/v1", "apiKey": f"{{env:{KEY_VARIABLE}}}", "headerTimeout": False},
        "models": {
            each.name: {"name": each.name, "limit": {"context": each.context, "output": each.output}}
            for each in facts.models
        },
    }
    whole = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"herd": provider},
        "model": f"herd/{facts.models[0].name}",
    }
    return Told(_json(whole), "~/.config/opencode/opencode.json, or opencode.json in a project")


def _continue(facts: ClientFacts) -> Told:
    models = [
        {
            "name": each.name,
            "provider": "openai",
            "model": each.name,
            "apiBase": f"{facts.url}/v1",
            "apiKey": f"${{{{ secrets.{KEY_VARIABLE} }}}}",
            "roles": ["chat", "edit", "apply"],
            "defaultCompletionOptions": {"contextLength": each.context, "maxTokens": each.output},
            "requestOptions": {"timeout": _PATIENCE},
        }
        for each in facts.models
    ]
    whole = {"name": "herd", "version": "1.0.0", "schema": "v1", "models": models}
    place = f"~/.continue/config.yaml; and {KEY_VARIABLE}=… in ~/.continue/.env"
    return Told(yaml.safe_dump(whole, sort_keys=False), place)


def _aider(facts: ClientFacts) -> Told:
    known = {
        f"openai/{each.name}": {
            "max_input_tokens": each.context,
            "max_output_tokens": each.output,
            "input_cost_per_token": 0,
            "output_cost_per_token": 0,
            "litellm_provider": "openai",
            "mode": "chat",
        }
        for each in facts.models
    }
    lines = [
        f"cat >.aider.model.metadata.json <<'END'\n{_json(known)}END",
        f"export OPENAI_API_BASE={sh(f'{facts.url}/v1')}",
        f'export OPENAI_API_KEY="${KEY_VARIABLE}"',
        f"aider --model {sh(f'openai/{facts.models[0].name}')} --timeout {_PATIENCE}",
    ]
    return Told("\n".join([*lines, ""]), "a shell in the folder that aider works in")


def _openai_python(facts: ClientFacts) -> Told:
    text = f"""\
import os

from openai import OpenAI

client = OpenAI(base_url={f"{facts.url}/v1"!r}, api_key=os.environ[{KEY_VARIABLE!r}], timeout={_PATIENCE})
answer = client.chat.completions.create(
    model={facts.models[0].name!r},  # of {", ".join(each.name for each in facts.models)}
    messages=[{{"role": "user", "content": "Hello"}}],
)
print(answer.choices[0].message.content)
"""
    return Told(text, "a program in Python with the package `openai`")


def _curl(facts: ClientFacts) -> Told:
    body = {"model": facts.models[0].name, "messages": [{"role": "user", "content": "Hello"}]}
    # The key comes on stdin: arguments are in the list of processes.
    lines = [
        f"printf 'Authorization: Bearer %s\\n' \"${KEY_VARIABLE}\" |",
        f"    curl -sS -H @- -H 'Content-Type: application/json' -d {sh(json.dumps(body))} \\",
        f"    {sh(f'{facts.url}/v1/chat/completions')}",
    ]
    return Told("\n".join([*lines, ""]), "a shell")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


CLIENTS: Mapping[str, Callable[[ClientFacts], Told]] = {
    "opencode": _opencode,
    "continue": _continue,
    "aider": _aider,
    "openai-python": _openai_python,
    "curl": _curl,
}
"""Programs by the names that people type."""
