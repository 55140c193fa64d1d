"""What people's programs must be told to use a gateway: the exact file, or the lines for a shell. Never a key: its
variable. Pure.

Facts: opencode 05f35982, Continue d0a3c0b6, aider 5dc9490b, openai-python 3.54; Zed's settings and Claude Code's
variables as their documentation has them in November 2026.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from llamaherd.diagnostics.findings import UserError
from llamaherd.gateway.clients_web import librechat, litellm, open_webui
from llamaherd.gateway.people import DeclaredGateway
from llamaherd.gateway.told import (
    KEY_VARIABLE,
    NODE,
    OPENSSL,
    PATIENCE,
    ClientFacts,
    ClientModel,
    Told,
    exported,
    started,
)
from llamaherd.inventory.authority import ROOT
from llamaherd.inventory.schema import LOCAL
from llamaherd.inventory.served import split_served
from llamaherd.text.quoting import sh, url_host

_MOST_OUTPUT = 32_768
"""Tokens of one answer that programs may ask for, and no more than a quarter of the context."""


def client_facts(gateway: DeclaredGateway, user: str, url: str | None = None, root: str | None = None) -> ClientFacts:
    """What is to be told to a user's programs; `url` is where they reach the gateway, if they know a better one, and
    `root` where they have the root certificate of its CA.

    Raises UserError where there is no such user.
    """
    may = gateway.user(user).models or tuple(gateway.declared.models)
    models = tuple(ClientModel(name, *_tokens(gateway, name)) for name in gateway.declared.models if name in may)
    tls = gateway.declared.tls
    trusted = root or str(tls.ca / ROOT) if tls and tls.ca else root
    return ClientFacts((url or _url(gateway)).rstrip("/").removesuffix("/v1"), models, trusted)


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
    host = declared.address or declared.listen
    if host in ("0.0.0.0", "::"):
        rig = gateway.rigs[declared.on[0]]
        host = rig.address
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
    place = "~/.config/opencode/opencode.json, or opencode.json in a project"
    return Told(_json(whole), started(facts, place, NODE))


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
            "requestOptions": {"timeout": PATIENCE, **({"caBundlePath": facts.root} if facts.root else {})},
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
        *exported(facts, OPENSSL),
        f"aider --model {sh(f'openai/{facts.models[0].name}')} --timeout {PATIENCE}",
    ]
    return Told("\n".join([*lines, ""]), "a shell in the folder that aider works in")


def _zed(facts: ClientFacts) -> Told:
    """Its key is in a variable of the provider's name, and in no file."""
    models = [
        {
            "name": each.name,
            "display_name": each.name,
            "max_tokens": each.context,
            "max_output_tokens": each.output,
            "capabilities": {"tools": True, "images": False, "parallel_tool_calls": False, "prompt_cache_key": False},
        }
        for each in facts.models
    ]
    provider = {"api_url": f"{facts.url}/v1", "available_models": models}
    place = f'~/.config/zed/settings.json; start it by `HERD_API_KEY="${KEY_VARIABLE}" zed`, where it looks for the key'
    place += f"; its system must trust {facts.root}" if facts.root else ""
    return Told(_json({"language_models": {"openai_compatible": {"herd": provider}}}), place)


def _claude_code(facts: ClientFacts) -> Told:
    """It asks for models by three sizes beside its own: all are the first one."""
    first = facts.models[0]
    sizes = [f"ANTHROPIC_DEFAULT_{size}_MODEL" for size in ("OPUS", "SONNET", "HAIKU")]
    variables = {
        "ANTHROPIC_BASE_URL": facts.url,
        **dict.fromkeys(("ANTHROPIC_MODEL", *sizes), first.name),
        "API_TIMEOUT_MS": str(PATIENCE * 1000),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(first.output),
        # Of a model that it does not know. CLAUDE_CODE_AUTO_COMPACT_WINDOW takes nothing below 100,000.
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(first.context),
    }
    lines = [
        *(f"export {name}={sh(value)}" for name, value in variables.items()),
        f'export ANTHROPIC_AUTH_TOKEN="${KEY_VARIABLE}"',
        "unset ANTHROPIC_API_KEY",
        *exported(facts, NODE),
        "# Else the head of each request is another one, and no prompt is ever found in the cache.",
        "export CLAUDE_CODE_ATTRIBUTION_HEADER=0",
        f"claude  # with --model, of {', '.join(each.name for each in facts.models)}",
    ]
    return Told("\n".join([*lines, ""]), "a shell that starts Claude Code")


def _openai_python(facts: ClientFacts) -> Told:
    ssl, names, trusts = "", "OpenAI", ""
    if facts.root:
        ssl, names = "import ssl\n", "DefaultHttpxClient, OpenAI"
        trusts = f"\n    http_client=DefaultHttpxClient(verify=ssl.create_default_context(cafile={facts.root!r})),"
    text = f"""\
import os
{ssl}
from openai import {names}

client = OpenAI(
    base_url={f"{facts.url}/v1"!r},
    api_key=os.environ[{KEY_VARIABLE!r}],
    timeout={PATIENCE},{trusts}
)
answer = client.chat.completions.create(
    model={facts.models[0].name!r},  # of {", ".join(each.name for each in facts.models)}
    messages=[{{"role": "user", "content": "Hello"}}],
)
print(answer.choices[0].message.content)
"""
    return Told(text, "a program in Python with the package `openai`")


def _curl(facts: ClientFacts) -> Told:
    # A first try ends by itself, whatever the model.
    body = {"model": facts.models[0].name, "max_tokens": 256, "messages": [{"role": "user", "content": "Hello"}]}
    trusts = f" --cacert {sh(facts.root)}" if facts.root else ""
    # The key comes on stdin: arguments are in the list of processes.
    lines = [
        f"printf 'Authorization: Bearer %s\\n' \"${KEY_VARIABLE}\" |",
        f"    curl -sS{trusts} -H @- -H 'Content-Type: application/json' -d {sh(json.dumps(body))} \\",
        f"    {sh(f'{facts.url}/v1/chat/completions')}",
    ]
    return Told("\n".join([*lines, ""]), "a shell")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


CLIENTS: Mapping[str, Callable[[ClientFacts], Told]] = {
    "opencode": _opencode,
    "continue": _continue,
    "aider": _aider,
    "zed": _zed,
    "claude-code": _claude_code,
    "open-webui": open_webui,
    "librechat": librechat,
    "litellm": litellm,
    "openai-python": _openai_python,
    "curl": _curl,
}
"""Programs by the names that people type."""
