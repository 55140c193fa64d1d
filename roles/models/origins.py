"""Where a host's missing files are to be had: the hub in use, and the neighbours that are asked to lend theirs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from urllib.parse import quote

from llamaherd.host import protocol
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.lock.resolve.hub import endpoint, token_for
from llamaherd.plan import FromHub, FromNeighbour, Plan
from llamaherd.role.changes import Say
from roles.models.changes import ModelSource
from roles.models.lending import LendingError, lent, share
from roles.models.onhost.share import Shared

_ASK_SECONDS = 60


def file_places(plan: Plan, wanted: Sequence[str], say: Say) -> list[ModelSource]:
    """Where the files with these sha256s are, in the order of the rig's `from`. A neighbour that is off is left out."""
    found: list[ModelSource] = []
    for source in plan.store.sources:
        if isinstance(source, FromHub):
            found += _hub(plan, wanted)
        elif isinstance(source, FromNeighbour):
            found += _neighbour(source, wanted, say)
    return found


def _hub(plan: Plan, wanted: Sequence[str]) -> list[ModelSource]:
    """The hub that a model was locked at, or the mirror of it that HF_ENDPOINT names. Raises HubError."""
    urls = {
        file.sha256: f"{_mirrored(str(model.url), str(model.repo))}/{quote(file.name)}"
        for model in plan.models
        if model.url
        for file in model.files
        if file.sha256 in wanted
    }
    # A token is for the hub in use, and for no other that a lock may name.
    tokens = {sha256: token_for(url) for sha256, url in urls.items()}
    return [
        ModelSource("hub", {sha256: url for sha256, url in urls.items() if tokens[sha256] == token}, token)
        for token in dict.fromkeys(tokens.values())
    ]


def _mirrored(url: str, repo: str) -> str:
    if not os.environ.get("HF_ENDPOINT"):
        return url
    at = url.index(f"/{repo}/resolve/")
    return f"{endpoint()}{url[at:]}"


def _neighbour(lender: FromNeighbour, wanted: Sequence[str], say: Say) -> list[ModelSource]:
    """Asks a rig to open its store for a while; whoever has the token, which is made here, can read from it."""
    token = secrets.token_hex(32)
    try:
        given = share(lender, wanted, secrets.token_hex(6), token)
        shared = protocol.query_verb(Remote(lender.connect), "models.share.share", given, Shared, _ASK_SECONDS)
        urls = lent(lender, wanted, shared)
    except (RemoteError, LendingError) as error:
        say(f"nothing comes from {lender.name}: {error.message}")
        return []
    say(f"{lender.name} has {len(urls)} of the {len(wanted)} files")
    return [ModelSource(lender.name, urls, token)] if urls else []
