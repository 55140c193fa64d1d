"""What programs must be told that serve a page, or other programs: one key of the gateway's for all who use them. Pure.

Facts: LibreChat 00450b59 (1.3.17 of its file), Open WebUI's and LiteLLM's documentation in November 2026.
"""

from __future__ import annotations

import yaml

from llamaherd.gateway.told import KEY_VARIABLE, NODE, OPENSSL, PATIENCE, ClientFacts, Told, exported, started
from llamaherd.plan import PAGE_ASKS
from llamaherd.text.quoting import sh

_LIBRECHAT = "1.3.17"
"""The version of its file's layout."""
_LITELLM_KEY = "LITELLM_MASTER_KEY"


def open_webui(facts: ClientFacts) -> Told:
    """It asks the gateway for models. What it is told first stays in its database, unless it is told otherwise."""
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
        *exported(facts, "AIOHTTP_CLIENT_SSL_CERT_FILE"),
        "open-webui serve",
    ]
    return Told("\n".join([*lines, ""]), "a shell that starts Open WebUI; a container is given each by `-e NAME`")


def librechat(facts: ClientFacts) -> Told:
    """It asks for no models: those that it is told have the tokens of a slot."""
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
    return Told(yaml.safe_dump(whole, sort_keys=False), started(facts, place, NODE))


def litellm(facts: ClientFacts) -> Told:
    """Its proxy, which asks the gateway for each model by its own name."""
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
    place = f"config.yaml, for `litellm --config config.yaml`; people are let in by {_LITELLM_KEY}=sk-… of your own"
    return Told(yaml.safe_dump(whole, sort_keys=False), started(facts, place, OPENSSL))
