"""Inspect a server by its URL: API paths, model, engine, context and token counts."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.client.http_client import Failure, JsonResponse, Target, request_json
from llamaherd.text.terminal import shown

_VERSIONED = re.compile(r"/v\d\w*$")
_MOST_NAMED, _LETTERS = 8, 200

LETTERS_A_TOKEN = 4
"""Letters of a token, roughly."""
TEMPLATE_TOKENS = 22
"""Tokens that a chat template adds to a message, roughly."""


@dataclass(frozen=True)
class Served:
    """A server by its URL. `root` is the URL of llama.cpp's own paths, `chat` the path below `target`.

    `slots` and `context`, of each slot, are as the server reports them. `native`: it has llama.cpp's own API, which
    accepts tokens and counts those from its cache.
    """

    target: Target
    root: Target
    chat: str
    model: str
    engine: str | None = None
    version: str | None = None
    context: int | None = None
    slots: int | None = None
    native: bool = False


def inspect_url(target: Target, model: str | None = None) -> Served:
    """Return what a URL serves. Raise UserError if it is no server of models."""
    base = replace(target, url=target.url.rstrip("/"))
    versioned = _VERSIONED.search(urlsplit(base.url).path)
    root = replace(base, url=base.url[: -len(versioned[0])]) if versioned else base
    api, listed = "", request_json(base, "/models") if versioned else Failure("path", "", "", 404)
    if not versioned:
        api, listed = "/v1", request_json(base, "/v1/models")
        if _is_missing(listed) and not _is_missing(below := request_json(base, "/models")):
            api, listed = "", below
    if isinstance(listed, Failure) and not (model and _is_missing(listed)):
        raise unusable_url(target, listed)
    models = _models(listed.value) if isinstance(listed, JsonResponse) else []
    entry = _select_model(models, model, target)
    served = Served(base, root, f"{api}/chat/completions", str(entry["id"]), context=_count(entry.get("max_model_len")))
    return _engine_of(served, entry)


def unusable_url(target: Target, failed: Failure) -> UserError:
    """Return the error that a URL cannot be measured, with the reason."""
    return UserError(f"{_address(target)}: {failed.message}", failed.help)


def _address(target: Target) -> str:
    """Return a URL for messages: without users, passwords and queries, which may hold keys."""
    return shown(re.sub(r"//[^/]*@", "//", re.split(r"[?#]", target.url)[0]))[:_LETTERS]


def _is_missing(found: JsonResponse | Failure) -> bool:
    return isinstance(found, Failure) and found.why == "path" and found.status in (404, 405)


def _models(value: Any) -> list[dict[str, Any]]:
    listed = value.get("data") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        return []
    return [each for each in listed if isinstance(each, dict) and _text(each.get("id"))]


def _select_model(models: list[dict[str, Any]], model: str | None, target: Target) -> dict[str, Any]:
    """Return the named model, or the only one."""
    if model is not None:
        # Many servers accept names that they do not list: the first request shows whether this one does.
        return next((each for each in models if each["id"] == model), {"id": model})
    if len(models) == 1:
        return models[0]
    if not models:
        raise UserError(f"{_address(target)} names no model", "name it with `--model NAME`")
    names = ", ".join(shown(str(each["id"]))[:_LETTERS] for each in models[:_MOST_NAMED])
    more = f" and {len(models) - _MOST_NAMED:,} more" if len(models) > _MOST_NAMED else ""
    raise UserError(f"{_address(target)} serves {len(models):,} models", f"choose one with `--model`: {names}{more}")


def _engine_of(served: Served, entry: dict[str, Any]) -> Served:
    """Add what the engine reports about itself; each engine has its own paths."""
    if entry.get("owned_by") == "vllm":
        return replace(served, engine="vllm", version=_version(served, "/version"))
    facts = server_facts(served.root, "/props")
    if not facts.build:
        version = _version(served, "/api/version")
        return replace(served, engine="ollama", version=version) if version else served
    return replace(
        served,
        version=facts.build,
        context=facts.context or served.context,
        slots=facts.slots,
        native=is_native(served.root, served.model),
    )


def is_native(root: Target, model: str) -> bool:
    """Check for llama.cpp's own API. Of other engines, only vLLM has a path of this name, with another body."""
    found = request_json(root, "/tokenize", {"model": model, "content": "one two"})
    tokens = _object(found).get("tokens")
    return isinstance(tokens, list) and bool(tokens) and all(type(each) is int for each in tokens)


def _version(served: Served, path: str) -> str | None:
    return _text(_object(request_json(served.root, path)).get("version"))


def _object(found: JsonResponse | Failure) -> dict[str, Any]:
    return found.value if isinstance(found, JsonResponse) and isinstance(found.value, dict) else {}


def _text(value: object) -> str | None:
    return shown(value)[:_LETTERS] if isinstance(value, str) and value else None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 < value < 1 << 40 else None


@dataclass(frozen=True)
class ServerFacts:
    """What a server reports: the context of a slot, the number of slots, and its build."""

    context: int | None = None
    slots: int | None = None
    build: str | None = None


def server_facts(target: Target, props_path: str | None) -> ServerFacts:
    """Request the facts from the path of llama.cpp and ik_llama.cpp; without a path there are none."""
    props = _object(request_json(target, props_path)) if props_path else {}
    settings = props.get("default_generation_settings")
    context = settings.get("n_ctx") if isinstance(settings, dict) else None
    return ServerFacts(_count(context), _count(props.get("total_slots")), _text(props.get("build_info")))


def count_tokens(target: Target, model: str, text: str) -> int | None:
    """Count the tokens of a text by the server's own tokenizer: llama.cpp reads `content`, vLLM `prompt`."""
    found = _object(request_json(target, "/tokenize", {"model": model, "content": text, "prompt": text}))
    tokens = found.get("tokens")
    return len(tokens) if isinstance(tokens, list) else _count(found.get("count"))


def estimate_prompt(target: Target, model: str, text: str) -> int:
    """Count the tokens that a server reads of a chat with one message, or estimate them.

    llama.cpp renders the chat template and tokenizes the result as it does for a chat (b11434,
    tools/server/server-context.cpp:5416 and 2443).
    """
    chat = {"model": model, "messages": [{"role": "user", "content": text}]}
    rendered = _object(request_json(target, "/apply-template", chat)).get("prompt")
    if isinstance(rendered, str):
        body = {"model": model, "content": rendered, "add_special": True, "parse_special": True}
        tokens = _object(request_json(target, "/tokenize", body)).get("tokens")
        if isinstance(tokens, list):
            return len(tokens)
    return (count_tokens(target, model, text) or len(text) // LETTERS_A_TOKEN) + TEMPLATE_TOKENS
