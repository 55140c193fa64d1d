"""A switch as a transaction: what is new must answer a prompt as declared, or what served before comes back."""

from __future__ import annotations

import json
from typing import Any

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.serving import Refused
from llamaherd.layout import KEPT, REFUSED, STARTED
from llamaherd.plan import InstancePlan, digest
from llamaherd.role.report import CHAT_SECONDS, PROMPT
from llamaherd.text.quoting import base64_lines
from roles.serve.verify.answering import SLOW

MEASURED_TOKENS = 64
"""Tokens of an answer whose speed, or whose drafts, are looked at; else a few will do."""

_FEW_TOKENS = 8

DRAFTED = 16
"""Tokens that must have been drafted before it says anything that none was accepted."""


def transaction(instance: InstancePlan) -> dict[str, Any]:
    """What the scripts of a switch are given, beside what is their backend's."""
    return {
        "name": instance.service,
        "spec": instance.spec,
        "file": instance.file.path,
        "key_file": instance.key_file or "",
        "inputs": instance.server.inputs,
        "timeout": instance.server.start_seconds,
        "port": instance.endpoint.port,
        "started": STARTED,
        "kept": KEPT / instance.service,
        "refused": REFUSED / instance.service,
        "asked": base64_lines(json.dumps(asked(instance))),
        "tried": tried(instance),
        "systemd": instance.backend == "systemd",
    }


def asked(instance: InstancePlan) -> dict[str, object]:
    """One prompt, and what its answer must be like: no key is in it.

    `drafts`: drafted tokens from which on some must have been accepted, 0 where nothing drafts. `floor`: tokens/s.
    """
    drafts = instance.drafts and instance.endpoint.counts_drafts
    floor = instance.expect.decode * SLOW if instance.expect and instance.expect.decode else 0
    return {
        "url": instance.endpoint.url(instance.endpoint.chat_path),
        "key": instance.key_file,
        "seconds": CHAT_SECONDS,
        "drafts": DRAFTED if drafts else 0,
        "floor": floor,
        "body": {
            "model": instance.model,
            "messages": [{"role": "user", "content": PROMPT}],
            "temperature": 0,
            "max_tokens": MEASURED_TOKENS if drafts or floor else _FEW_TOKENS,
        },
    }


def tried(instance: InstancePlan) -> str:
    """What tells one try from another: the spec, and what its answer must be like."""
    return digest(instance.spec, asked(instance))


def not_again(instance: InstancePlan, refused: Refused) -> UserError:
    """Why what is declared is not tried: it was, and what served before serves since."""
    return UserError(
        f"{instance.name} serves as before: what is declared was tried on {refused.when}, and {refused.why}",
        "change the inventory, or `herd up --retry` to try the same again",
    )
