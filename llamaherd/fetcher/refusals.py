"""Why a source does not give a file, in clauses that begin with the source's name."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from llamaherd.fetcher.source import Offer, RefusedError

_AGAIN = "run `herd up` again; if this stays, leave this source out"
_NOT_A_FILE = "open the source's address in a browser: a login page or a proxy may be in between"
_HUB_PATH = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/[^/]+/.+")


def refused(offer: Offer, status: int, code: str) -> RefusedError:
    """What a status that will not change means, with the `code` that a hub gives beside it."""
    name, url = offer.source.name, urlsplit(offer.source.url)
    hub = _HUB_PATH.fullmatch(url.path)
    if status in (401, 403) and hub is None:
        kind = "does not accept the token" if offer.token else "wants a token, and there is none"
        return RefusedError(f"{name} {kind} ({status})", _AGAIN)
    if status in (404, 410) and hub is None:
        return RefusedError(f"{name} does not have it ({status})", "let another source have it too")
    if hub is None or status not in (400, 401, 403, 404, 410):
        return RefusedError(f"{name} answered with status {status}", _AGAIN)
    repo = unquote(hub["repo"])
    if status == 400:
        # Single files of some 400 GB: https://github.com/huggingface/huggingface_hub/issues/4330
        return RefusedError(
            f"{name} does not give this file of {repo} over HTTP ({status}), as it may be too large for that",
            f"`hf download {repo}` on this host, then run `herd up` again: it takes the file from that cache",
        )
    page = f"{url.scheme}://{url.netloc}/{repo}"
    if code == "GatedRepo":
        return RefusedError(
            f"{name} gives {repo} only to accounts that its owner has granted access ({status})",
            f"open {page} in a browser and ask for access, then give a token of that account as HF_TOKEN",
        )
    if code == "RevisionNotFound":
        return RefusedError(
            f"{name} no longer has this revision of {repo} ({status})",
            "lock one that is there: `herd lock --upgrade` with the model's name",
        )
    if code == "EntryNotFound":
        return RefusedError(
            f"{name} has no such file in this revision of {repo} ({status})",
            "lock files that are there: `herd lock --upgrade` with the model's name",
        )
    if status in (404, 410):
        return RefusedError(f"{name} does not have {repo} ({status})", f"see {page}: it may be gone, or renamed")
    if offer.token:
        return RefusedError(
            f"{name} does not accept the token for {repo} ({status})",
            "check HF_TOKEN: it may be mistyped or expired, or its account has no access",
        )
    return RefusedError(f"{name} wants a token for {repo} ({status})", "give one as HF_TOKEN")


def wrong_size(offer: Offer, size: int, expected: int) -> RefusedError:
    """It has a file of another size."""
    return RefusedError(f"{offer.source.name} has {size} bytes where {expected} are expected", _NOT_A_FILE)


def not_as_asked(offer: Offer, what: str) -> RefusedError:
    """It answers in a way that no sound server does."""
    return RefusedError(f"{offer.source.name} {what}", _NOT_A_FILE)


def wrong_bytes(offer: Offer, sha256: str, expected: str) -> RefusedError:
    """All of it came, and it is another file."""
    name = offer.source.name
    if _HUB_PATH.fullmatch(urlsplit(offer.source.url).path):
        way_out = "lock the model anew by `herd lock --upgrade` and its name, if its files may have changed"
    else:
        way_out = f"`herd verify --deep {name}` says what is damaged there, and `herd up {name}` brings it again"
    return RefusedError(
        f"it arrived from {name} with sha256 {sha256}, but {expected} was expected; nothing of it was kept", way_out
    )
