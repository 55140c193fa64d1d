"""What the hub's client raises, as sentences that hold no token: its own texts and traceback may quote one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from llamaherd.diagnostics.findings import HubError

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

# Not JSON, or JSON of another kind: a login page of the network, or some other server.
_NO_HUB = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@contextmanager
def in_sentences(api: HfApi, repo: str, revision: str, patience: float) -> Iterator[None]:
    """Turn what the client raises into HubError. `patience` is how many seconds it waits without an answer.

    The client's own texts are left out, and so is its traceback: where a header cannot be sent, they
    quote it, and one of the headers is the token.
    """
    from huggingface_hub import constants, errors

    try:
        if constants.is_offline_mode():
            raise errors.OfflineModeIsEnabled
        yield
    except Exception as error:
        sentence = _of_repository(error, api, repo, revision) or _of_connection(error, api.endpoint, patience)
        if sentence is None:
            raise
        raise sentence from None


def _of_repository(error: Exception, api: HfApi, repo: str, revision: str) -> HubError | None:
    """What the hub says of a repository, or the client before it asks."""
    from huggingface_hub import errors

    url = api.endpoint
    match error:
        case errors.HFValidationError():
            return HubError(f"`{repo}` is no name of a repository", "write it as `owner/name`")
        case errors.GatedRepoError():
            return HubError(f"{repo} is gated: its owner wants you to accept terms first", _gated(url, repo))
        case errors.RepositoryNotFoundError():
            return HubError(f"{url} shows no repository {repo}", _no_repository())
        case errors.RevisionNotFoundError():
            return HubError(f"{repo} has no revision `{revision}`", _branches(api, repo))
        case errors.DisabledRepoError():
            return HubError(f"{url} has disabled {repo}", f"see {url}/{repo} for the reason; choose another one")
        case errors.OfflineModeIsEnabled():
            return HubError(f"{repo} cannot be looked up: HF_HUB_OFFLINE is set", "unset it to lock")
        case errors.HfHubHTTPError():
            return _answered(url, repo, error)
    return None


def _of_connection(error: Exception, url: str, patience: float) -> HubError | None:
    """What keeps the hub from answering, or makes it answer as no hub does."""
    import httpx2

    from llamaherd.bounded import ExcessError

    match error:
        case ExcessError():
            return HubError(f"{url} {error}", "check HF_ENDPOINT and any proxy in between; try again")
        case httpx2.TimeoutException():
            return HubError(
                f"{url} did not answer within {patience:.0f} seconds", "try again; check the network and any proxy"
            )
        case httpx2.LocalProtocolError() | UnicodeError():
            return HubError("the hub's token cannot be sent: it holds odd characters", _TOKEN_HELP)
        case httpx2.RequestError():
            # What the operating system says of a connection is safe to repeat, and worth it.
            reason = str(error) if isinstance(error, httpx2.ConnectError) else type(error).__name__
            return HubError(
                f"{url} cannot be reached ({reason})",
                "check the network, any proxy (HTTPS_PROXY) and HF_ENDPOINT",
            )
        case httpx2.InvalidURL():
            return HubError("HF_ENDPOINT is no URL that can be opened", "check its host and port")
    if isinstance(error, _NO_HUB):
        return HubError(f"{url} answered, but not as a model hub does", "check HF_ENDPOINT and any proxy in between")
    return None


_TOKEN_HELP = "check HF_TOKEN, or log in anew by `hf auth login`; unset it for public models"


def _gated(url: str, repo: str) -> str:
    from huggingface_hub import get_token

    if get_token():
        return f"open {url}/{repo} and accept with the account of the token in use, which has no access yet"
    return f"open {url}/{repo}, accept, and give a token of that account as HF_TOKEN or by `hf auth login`"


def _no_repository() -> str:
    from huggingface_hub import get_token

    if get_token():
        return "check the spelling; if it is private, the token in use has no access to it"
    return "check the spelling; if it is private, give a token as HF_TOKEN or by `hf auth login`"


def _branches(api: HfApi, repo: str) -> str:
    names: list[str] = []
    # Only to help: whatever goes wrong here, the sentence about the revision is what matters.
    with suppress(Exception):
        refs = api.list_repo_refs(repo)
        names = [ref.name for ref in (*refs.branches, *refs.tags) if ref.name.isprintable()][:5]
    if not names:
        return "use a branch, a tag or a full commit of that repository"
    return f"it has {', '.join(f'`{name}`' for name in names)}; a full commit works too"


def _answered(url: str, repo: str, error: HfHubHTTPError) -> HubError:
    status = error.response.status_code
    if status in (401, 403):
        help_ = f"{_TOKEN_HELP}; open {url}/{repo} to see who may have it"
        return HubError(f"{url} does not accept the token in use for {repo} ({status})", help_)
    if status == 429:
        seconds = error.response.headers.get("Retry-After", "")
        when = f"in {seconds} seconds" if re.fullmatch(r"\d{1,6}", seconds, re.ASCII) else "in some minutes"
        return HubError(f"{url} has had too many requests (429)", f"try again {when}; a token raises the limit")
    if status >= 500:
        return HubError(f"{url} is in trouble ({status})", "try again later")
    return HubError(f"{url} answered {status} for {repo}", "check HF_ENDPOINT, and `hf` and `revision` of this model")
