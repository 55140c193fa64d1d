"""What people's programs are told of a gateway, as values."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.text.quoting import sh

KEY_VARIABLE = "HERD_KEY"
"""Where programs find the key: it is in no file of ours."""
PATIENCE = 3600
"""Seconds for an answer that does not stream: a long prompt takes minutes."""


@dataclass(frozen=True)
class ClientModel:
    """A model as a program must know it: its name, the tokens of one request, and those of an answer."""

    name: str
    context: int
    output: int


@dataclass(frozen=True)
class ClientFacts:
    """What a user's programs are told: where the gateway is, what may be used there, and the file of the root
    certificate that they must trust, where the CA is our own."""

    url: str
    models: tuple[ClientModel, ...]
    root: str | None = None


@dataclass(frozen=True)
class Told:
    """A text, and where it belongs."""

    text: str
    place: str


NODE = "NODE_EXTRA_CA_CERTS"
"""The file of certificates that programs of Node trust beside those that they bring."""
OPENSSL = "SSL_CERT_FILE"
"""The file of certificates that programs in Python trust, and no others."""


def exported(facts: ClientFacts, variable: str) -> list[str]:
    """The line for a shell that has a program trust our own CA; none where there is none."""
    return [f"export {variable}={sh(facts.root)}"] if facts.root else []


def started(facts: ClientFacts, place: str, variable: str) -> str:
    """Where a text belongs, and what a program that reads it must find in its environment to trust our own CA."""
    return f"{place}; start it with {variable}={sh(facts.root)}" if facts.root else place
