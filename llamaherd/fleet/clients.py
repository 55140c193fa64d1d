"""Configure client programs for the gateway: the exact file, or lines for a shell, without the key itself. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.gateway import DeclaredGateway
from llamaherd.inventory.authority import ROOT
from llamaherd.inventory.schema import LOCAL, Task
from llamaherd.inventory.schema.fleet_file import served_task, split_served
from llamaherd.plan import PAGE_ASKS
from llamaherd.text.quoting import sh, url_host

KEY_VARIABLE = "HERD_KEY"
"""The variable from which programs read the key: no file of llamaherd contains it."""
PATIENCE = 3600
"""Seconds for a response that does not stream: a long prompt takes minutes."""


@dataclass(frozen=True)
class ClientModel:
    """A model for a client program: its name, the tokens of one request and of its output, and what it is for."""

    name: str
    context: int
    output: int
    task: Task = "chat"


@dataclass(frozen=True)
class ClientFacts:
    """The facts for a user's programs: the gateway's URL, the user's models, and the file of the root certificate that
    they must trust, if the CA is our own.
    """

    url: str
    models: tuple[ClientModel, ...]
    root: str | None = None


@dataclass(frozen=True)
class ClientConfig:
    """A text, and its file."""

    text: str
    place: str


NODE = "NODE_EXTRA_CA_CERTS"
"""The variable with a file of certificates that programs of Node trust in addition to their own."""
OPENSSL = "SSL_CERT_FILE"
"""The variable with the only file of certificates that programs in Python trust."""


def export_lines(facts: ClientFacts, variable: str) -> list[str]:
    """Return the line for a shell that makes a program trust our own CA; none without one."""
    return [f"export {variable}={sh(facts.root)}"] if facts.root else []


def place_text(facts: ClientFacts, place: str, variable: str) -> str:
    """Return where a text belongs, and the variable that makes its reader trust our own CA."""
    return f"{place}; start it with {variable}={sh(facts.root)}" if facts.root else place


_LIBRECHAT = "1.3.17"
"""The version of its file's layout."""
_LITELLM_KEY = "LITELLM_MASTER_KEY"


def open_webui(facts: ClientFacts) -> ClientConfig:
    """Configure Open WebUI, which requests the list of models from the gateway.

    Its first settings stay in its database, unless a variable disables that.
    """
    variables = {
        "ENABLE_OLLAMA_API": "false",
        "ENABLE_PERSISTENT_CONFIG": "false",
        "OPENAI_API_BASE_URLS": f"{facts.url}/v1",
        "DEFAULT_MODELS": facts.models[0].name,
        "AIOHTTP_CLIENT_TIMEOUT": str(PATIENCE),
        **PAGE_ASKS,
    }
    lines = [
        *(f"export {name}={sh(value)}" for name, value in variables.items()),
        f'export OPENAI_API_KEYS="${KEY_VARIABLE}"',
        *export_lines(facts, "AIOHTTP_CLIENT_SSL_CERT_FILE"),
        "open-webui serve",
    ]
    return ClientConfig("\n".join([*lines, ""]), "a shell that starts Open WebUI; a container gets each by `-e NAME`")


def librechat(facts: ClientFacts) -> ClientConfig:
    """Configure LibreChat, which requests no list of models: the listed ones have the tokens of a slot."""
    names = [each.name for each in facts.models]
    endpoint = {
        "name": "herd",
        "apiKey": f"${{{KEY_VARIABLE}}}",
        "baseURL": f"{facts.url}/v1",
        "models": {"default": names, "fetch": False},
        "tokenConfig": {each.name: {"prompt": 0, "completion": 0, "context": each.context} for each in facts.models},
        "titleConvo": True,
        "titleModel": "current_model",
        "modelDisplayLabel": "herd",
    }
    whole = {"version": _LIBRECHAT, "endpoints": {"custom": [endpoint]}}
    place = f"librechat.yaml; and {KEY_VARIABLE}=… in its .env"
    return ClientConfig(yaml.safe_dump(whole, sort_keys=False), place_text(facts, place, NODE))


def litellm(facts: ClientFacts) -> ClientConfig:
    """Configure LiteLLM's proxy, which requests each model from the gateway by its own name."""
    models = [
        {
            "model_name": each.name,
            "litellm_params": {
                "model": f"openai/{each.name}",
                "api_base": f"{facts.url}/v1",
                "api_key": f"os.environ/{KEY_VARIABLE}",
                "timeout": PATIENCE,
            },
            "model_info": {
                "mode": "chat",
                "max_input_tokens": each.context,
                "max_output_tokens": each.output,
                "input_cost_per_token": 0,
                "output_cost_per_token": 0,
            },
        }
        for each in facts.models
    ]
    # It does not start without a key of its own.
    whole = {"model_list": models, "general_settings": {"master_key": f"os.environ/{_LITELLM_KEY}"}}
    place = f"config.yaml, for `litellm --config config.yaml`; its users log in by {_LITELLM_KEY}=sk-… of your own"
    return ClientConfig(yaml.safe_dump(whole, sort_keys=False), place_text(facts, place, OPENSSL))


_MOST_OUTPUT = 32_768
"""The most tokens of output that programs may request, and no more than a quarter of the context."""


def client_facts(gateway: DeclaredGateway, user: str, url: str | None = None, root: str | None = None) -> ClientFacts:
    """Return the facts for a user's programs; `url` is where they reach the gateway, if that is another one, and `root`
    the path of the root certificate of its CA there.

    Raise UserError if there is no such user.
    """
    may = gateway.user(user).models or tuple(gateway.declared.models)
    models = tuple(
        ClientModel(name, *_tokens(gateway, name), served_task(model, gateway.rigs))
        for name, model in gateway.declared.models.items()
        if name in may
    )
    tls = gateway.declared.tls
    trusted = root or str(tls.ca / ROOT) if tls and tls.ca else root
    return ClientFacts((url or _url(gateway)).rstrip("/").removesuffix("/v1"), models, trusted)


def _tokens(gateway: DeclaredGateway, model: str) -> tuple[int, int]:
    """Return the tokens of one request at the smallest slot of a model's servers, and of its output."""
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
    """Return the gateway's URL for other machines, or for its own if it listens there alone."""
    declared = gateway.declared
    host = declared.address or declared.listen
    if host in ("0.0.0.0", "::"):
        rig = gateway.rigs[declared.on[0]]
        host = rig.address
        host = "127.0.0.1" if host == LOCAL else host
    return f"{'https' if declared.tls else 'http'}://{url_host(host)}:{declared.port}"


def client_config(client: str, facts: ClientFacts) -> ClientConfig:
    """Return the configuration of a client program: of most, with models for chats alone.

    Raise UserError if the user has no such model.
    """
    chats = tuple(model for model in facts.models if model.task == "chat")
    if not chats:
        none = "this user may use no model for chats" if facts.models else "this user may use no model"
        raise UserError(none, "name some in fleet.yaml")
    return CLIENTS[client](facts if client == _EMBEDS else replace(facts, models=chats))


def _opencode(facts: ClientFacts) -> ClientConfig:
    """Configure opencode. Its provider must not be called `opencode…`: then it sends no session to stay on
    a server by.
    """
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
    return ClientConfig(_json(whole), place_text(facts, place, NODE))


_EMBEDS = "continue"
"""The program that also uses models for embeddings and rerank."""
_ROLES: Mapping[Task, list[str]] = {"chat": ["chat", "edit", "apply"], "embeddings": ["embed"], "rerank": ["rerank"]}


def _completion_options(model: ClientModel) -> dict[str, Any]:
    if model.task != "chat":
        return {}
    return {"defaultCompletionOptions": {"contextLength": model.context, "maxTokens": model.output}}


def _continue(facts: ClientFacts) -> ClientConfig:
    models = [
        {
            "name": each.name,
            "provider": "openai",
            "model": each.name,
            "apiBase": f"{facts.url}/v1",
            "apiKey": f"${{{{ secrets.{KEY_VARIABLE} }}}}",
            "roles": _ROLES[each.task],
            **_completion_options(each),
            "requestOptions": {"timeout": PATIENCE, **({"caBundlePath": facts.root} if facts.root else {})},
        }
        for each in facts.models
    ]
    whole = {"name": "herd", "version": "1.0.0", "schema": "v1", "models": models}
    place = f"~/.continue/config.yaml; and {KEY_VARIABLE}=… in ~/.continue/.env"
    return ClientConfig(yaml.safe_dump(whole, sort_keys=False), place)


def _aider(facts: ClientFacts) -> ClientConfig:
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
        *export_lines(facts, OPENSSL),
        f"aider --model {sh(f'openai/{facts.models[0].name}')} --timeout {PATIENCE}",
    ]
    return ClientConfig("\n".join([*lines, ""]), "a shell in the folder that aider works in")


def _zed(facts: ClientFacts) -> ClientConfig:
    """Configure Zed. Its key is in a variable of the provider's name, and in no file."""
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
    place = (
        f'~/.config/zed/settings.json; start it by `HERD_API_KEY="${KEY_VARIABLE}" zed`, from which it reads the key'
    )
    place += f"; its system must trust {facts.root}" if facts.root else ""
    return ClientConfig(_json({"language_models": {"openai_compatible": {"herd": provider}}}), place)


def _claude_code(facts: ClientFacts) -> ClientConfig:
    """Configure Claude Code. It requests models of three sizes besides its own: all are the first one."""
    first = facts.models[0]
    sizes = [f"ANTHROPIC_DEFAULT_{size}_MODEL" for size in ("OPUS", "SONNET", "HAIKU")]
    variables = {
        "ANTHROPIC_BASE_URL": facts.url,
        **dict.fromkeys(("ANTHROPIC_MODEL", *sizes), first.name),
        "API_TIMEOUT_MS": str(PATIENCE * 1000),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(first.output),
        # For a model that it does not know, CLAUDE_CODE_AUTO_COMPACT_WINDOW has no effect below 100,000.
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(first.context),
    }
    lines = [
        *(f"export {name}={sh(value)}" for name, value in variables.items()),
        f'export ANTHROPIC_AUTH_TOKEN="${KEY_VARIABLE}"',
        "unset ANTHROPIC_API_KEY",
        *export_lines(facts, NODE),
        "# Otherwise the head of each request differs, and the cache never contains the prompt.",
        "export CLAUDE_CODE_ATTRIBUTION_HEADER=0",
        f"claude  # with --model, of {', '.join(each.name for each in facts.models)}",
    ]
    return ClientConfig("\n".join([*lines, ""]), "a shell that starts Claude Code")


def _openai_python(facts: ClientFacts) -> ClientConfig:
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
response = client.chat.completions.create(
    model={facts.models[0].name!r},  # of {", ".join(each.name for each in facts.models)}
    messages=[{{"role": "user", "content": "Hello"}}],
    max_tokens=256,
    stream=True,
)
for event in response:
    for choice in event.choices:
        print(choice.delta.content or "", end="", flush=True)
print()
"""
    return ClientConfig(text, "a program in Python with the package `openai`")


def _curl(facts: ClientFacts) -> ClientConfig:
    # A first try ends by itself, whatever the model.
    body = {"model": facts.models[0].name, "max_tokens": 256, "messages": [{"role": "user", "content": "Hello"}]}
    trusts = f" --cacert {sh(facts.root)}" if facts.root else ""
    # The key comes on stdin: arguments are in the list of processes.
    lines = [
        f"printf 'Authorization: Bearer %s\\n' \"${KEY_VARIABLE}\" |",
        f"    curl -sS{trusts} -H @- -H 'Content-Type: application/json' -d {sh(json.dumps(body))} \\",
        f"    {sh(f'{facts.url}/v1/chat/completions')}",
    ]
    return ClientConfig("\n".join([*lines, ""]), "a shell script")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


CLIENTS: Mapping[str, Callable[[ClientFacts], ClientConfig]] = {
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
"""Functions by the names of their programs."""
