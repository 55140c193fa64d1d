"""Where missing files come from: the hub in use, and peers that open their stores for a while."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from urllib.parse import quote

from llamaherd.diagnostics.findings import UserError
from llamaherd.host import protocol
from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.lock.hub import endpoint, token_for
from llamaherd.onhost.document import Secret
from llamaherd.plan import FromHub, FromNeighbour, Plan
from llamaherd.role.changes import Say
from roles.models.changes import ModelSource
from roles.models.onhost.share import Shared, ShareInput

IDLE_SECONDS = 900
"""Seconds without a request after which it closes again."""

_SHARE_SECONDS = 60


class SharingError(UserError):
    """A rig shares nothing just now, and reports why."""


def share_input(lender: FromNeighbour, wanted: Sequence[str], peer: str, token: str) -> ShareInput:
    """Return the input that opens a rig's store to a peer with the token.

    `peer` is the name of the file which holds the token on the lender: one for each peer.
    """
    return ShareInput(
        store=lender.store,
        wanted=tuple(wanted),
        peer=peer,
        token=Secret(token),
        address=lender.address,
        port=lender.port,
        idle=IDLE_SECONDS,
    )


def shared_urls(lender: FromNeighbour, wanted: Sequence[str], shared: Shared) -> dict[str, str]:
    """Return the URLs of the shared files, by sha256.

    Raise SharingError if the rig shares nothing, and UnexpectedLineError for a file that was not requested.
    """
    if shared.refused:
        raise SharingError(shared.refused, f"`herd verify {lender.name}` reports the state of that rig")
    if unwanted := {*shared.files} - {*wanted}:
        raise UnexpectedLineError(min(unwanted))
    host = f"[{lender.address}]" if ":" in lender.address else lender.address
    return {sha256: f"http://{host}:{lender.port}/{sha256}" for sha256 in shared.files}


def file_places(plan: Plan, wanted: Sequence[str], say: Say) -> list[ModelSource]:
    """Return the sources of files with these sha256s, in the order of `from`, without rigs that are off."""
    found: list[ModelSource] = []
    for source in plan.store.sources:
        if isinstance(source, FromHub):
            found += _from_hub(plan, wanted)
        elif isinstance(source, FromNeighbour):
            found += _from_peer(source, wanted, say)
    return found


def _from_hub(plan: Plan, wanted: Sequence[str]) -> list[ModelSource]:
    """Return the hub that a model was locked at, or its mirror by HF_ENDPOINT. Raise HubError."""
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


def _from_peer(lender: FromNeighbour, wanted: Sequence[str], say: Say) -> list[ModelSource]:
    """Open the store of a rig for a while. A client with the token, which is made here, can read from it."""
    token = secrets.token_hex(32)
    try:
        given = share_input(lender, wanted, secrets.token_hex(6), token)
        shared = protocol.query_verb(Remote(lender.connect), "models.share.share", given, Shared, _SHARE_SECONDS)
        urls = shared_urls(lender, wanted, shared)
    except (RemoteError, SharingError) as error:
        say(f"nothing comes from {lender.name}: {error.message}")
        return []
    say(f"{lender.name} has {len(urls)} of the {len(wanted)} files")
    return [ModelSource(lender.name, urls, token)] if urls else []
