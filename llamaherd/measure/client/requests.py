"""Inspect a server by its URL, and send it the requests of a series: the prompt suite, and the run of each response."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.client.http_client import (
    Failure,
    JsonResponse,
    Patience,
    StreamedResponse,
    Target,
    Usage,
    request_json,
    stream_response,
)
from llamaherd.measure.results.result import Cell, Condition, Kind, Run, SuiteRef
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


_FOUR_LETTERS = """
acid also area army away baby back ball band bank base bath bear beat bell best
bird blue boat body bone book born both bowl burn bush calm came camp card care
case cash cast cell city club coal coat code cold come cook cool corn cost crew
dark data date dawn days dead deal deep desk dish door down draw drop duck dust
"""
CACHE_BUSTER_WORDS = tuple(_FOUR_LETTERS.split())
"""Sixty-four common words of four letters: most tokenizers make one token of each."""

MOST_CACHE_BUSTERS = len(CACHE_BUSTER_WORDS) ** 3
_COUNTED, _LOTS = 3, 5


def cache_buster(session: str, number: int) -> str:
    """Return the beginning of the prompt of this number: different for each number, and in each session."""
    if not 0 <= number < MOST_CACHE_BUSTERS:
        raise ValueError(f"{number} is no number of a prompt; there are {MOST_CACHE_BUSTERS:,}")
    counted = [
        CACHE_BUSTER_WORDS[number // len(CACHE_BUSTER_WORDS) ** place % len(CACHE_BUSTER_WORDS)]
        for place in range(_COUNTED)
    ]
    digest = hashlib.sha256(f"{session}\0{number}".encode()).digest()
    return (
        " ".join([*counted, *(CACHE_BUSTER_WORDS[byte % len(CACHE_BUSTER_WORDS)] for byte in digest[:_LOTS])]) + ".\n\n"
    )


SUITE_NAME = "llamaherd"
KINDS: tuple[Kind, ...] = ("code", "prose", "copy-edit", "extract", "reasoning")

_FOLDER = Path(__file__).parent / "prompts"
_LONG = _FOLDER / "long.txt.gz"
_TRIES = 24
"""How often a server counts tokens at most: halving a million characters takes no more."""


@dataclass(frozen=True)
class Prompt:
    """A task whose response is long by itself, so that no model must be forced to continue."""

    kind: Kind
    name: str
    text: str


@dataclass(frozen=True)
class Suite:
    """All prompts, those of each kind in a fixed order."""

    prompts: Mapping[Kind, tuple[Prompt, ...]]
    sha256: str

    @property
    def ref(self) -> SuiteRef:
        """The suite's name and hash in a result."""
        return SuiteRef(name=SUITE_NAME, sha256=self.sha256)


@cache
def suite() -> Suite:
    """Read our suite."""
    prompts = {
        kind: tuple(
            Prompt(kind, file.stem, file.read_text(encoding="utf-8")) for file in sorted((_FOLDER / kind).glob("*.txt"))
        )
        for kind in KINDS
    }
    whole = hashlib.sha256()
    for each in (prompt for kind in KINDS for prompt in prompts[kind]):
        whole.update(f"{each.kind}/{each.name}\0{each.text}\0".encode())
    whole.update(long_base().encode())
    return Suite(prompts, whole.hexdigest())


@cache
def long_base() -> str:
    """Read our own prose and code of one day, in alternating pieces: a million characters that stay the same."""
    with gzip.open(_LONG, "rt", encoding="utf-8") as stream:
        return stream.read()


def long_text(characters: int) -> str:
    """Return so many characters of it, repeated from its end; no context of 262,144 tokens reaches it."""
    base = long_base()
    return base * (characters // len(base)) + base[: characters % len(base)]


def long_text_of(tokens: int, count: Callable[[str], int]) -> str:
    """Return the longest text of at most so many tokens, as `count`, the server's own tokenizer, counts them.

    It is the same for the same tokenizer. If no text has exactly so many tokens, it is some tokens shorter.
    """
    least, most = 0, max(64, tokens * 16)
    guess = tokens * 4
    for _ in range(_TRIES):
        found = count(long_text(guess))
        if found == tokens:
            return long_text(guess)
        least, most = (guess, most) if found < tokens else (least, guess)
        if most - least <= 1:
            break
        # Tokens come evenly enough to aim by their mean length; a step that leads nowhere new is halved.
        aim = round(guess * tokens / found) if found else most
        guess = aim if least < aim < most else (least + most) // 2
    return long_text(least)


_BEFORE = 16
"""Cache busters of which the longest one is counted."""


def long_prompt(tokens: int, count: Callable[[str], int]) -> str:
    """Return the long text of a prompt of so many tokens: of text, cache buster and chat template together.

    `count` returns the tokens that the server reads of a chat with a text. Cache busters may differ by a token. The
    longest one of a few decides, since a token more than a batch holds is read in a batch of its own.
    """
    before = max((cache_buster("", number) for number in range(_BEFORE)), key=count)
    return long_text_of(tokens, lambda text: count(before + text))


@dataclass(frozen=True)
class RequestSpec:
    """One request, and the cell of its series that its run belongs to; None: the run is not kept.

    `salt` numbers the beginning that is put before its text: within a measurement, an equal number is an equal
    beginning. None: there is none. With `reuse`, the server may use its cache. `more` is added to the request's body.
    """

    cell: int | None
    text: str
    tokens: int
    salt: int | None = None
    reuse: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """Requests that belong together, one after another, after `rest` seconds without any.

    `watts` is the power limit of each GPU during the step; None: it stays as it is. `about` is shown to you as
    progress.
    """

    requests: tuple[RequestSpec, ...]
    rest: float = 0.0
    watts: int | None = None
    about: str = ""


@dataclass(frozen=True)
class SeriesProgress:
    """The state of a series: its cells with their runs, in its own order, and how much time it has left.

    `steps` counts those since this program began. The numbers of salts follow from it, as each program has its own
    salts.
    """

    cells: tuple[Cell, ...]
    seconds_left: float
    steps: int


class MeasurementPart(Protocol):
    """Measurements that belong together, under some conditions."""

    @property
    def name(self) -> str:
        """The name in messages."""
        ...

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of its cells; requests and runs refer to a cell by its place here."""
        ...

    @property
    def rule(self) -> str:
        """The criterion to stop, which is fixed beforehand."""
        ...


class Series(MeasurementPart, Protocol):
    """Measurements in steps. The measuring loop fetches a step, runs it, and fetches the next one."""

    def next_step(self, so_far: SeriesProgress) -> Step | None:
        """Return the next step; None if the series is complete."""
        ...

    def share_done(self, so_far: SeriesProgress) -> float:
        """Estimate the share that is done, from 0 to 1."""
        ...


def chat_body(model: str, request: RequestSpec, session: str) -> dict[str, Any]:
    """Return the body of a chat of one message. Only llama.cpp and ik_llama.cpp read `cache_prompt`."""
    before = "" if request.salt is None else cache_buster(session, request.salt)
    return {
        "model": model,
        "messages": [{"role": "user", "content": before + request.text}],
        "max_tokens": request.tokens,
        "stream_options": {"include_usage": True},
        "cache_prompt": request.reuse,
        **request.more,
    }


_GRACE, _LEAST, _SILENCE = 60.0, 300.0, 60.0
"""Seconds: beyond the time that is left, at least, and between two pieces."""


@dataclass(frozen=True)
class Requests:
    """A server, the path of its chats, the name of its model, and what the beginnings of this program derive from."""

    target: Target
    path: str
    model: str
    salts: str

    def send(self, request: RequestSpec, seconds_left: float) -> StreamedResponse | Failure:
        """Send one request, and return its response."""
        most = max(_LEAST, seconds_left + _GRACE)
        return stream_response(
            self.target,
            self.path,
            chat_body(self.model, request, self.salts),
            Patience(first=most, silence=_SILENCE, total=most),
        )


@dataclass(frozen=True)
class TaskRequests(Requests):
    """A server of embeddings or rerank: `more` of a request is its body, and the response is one JSON value."""

    def send(self, request: RequestSpec, seconds_left: float) -> StreamedResponse | Failure:
        """Send one request, and return its response: its first piece is all of it."""
        most = max(_LEAST, seconds_left + _GRACE)
        patience = Patience(first=most, silence=_SILENCE, total=most)
        found = request_json(self.target, self.path, {"model": self.model, **request.more}, patience)
        if isinstance(found, Failure):
            return found
        took = found.total_ms
        usage = found.value.get("usage") if isinstance(found.value, dict) else None
        prompt = usage.get("prompt_tokens", usage.get("total_tokens")) if isinstance(usage, dict) else None
        tokens = prompt if type(prompt) is int and 0 < prompt < 1 << 40 else None
        return StreamedResponse(0.0, took, took, took, (), "", None, None, Usage(prompt=tokens, completion=0))


_HALF = 0.5
"""Of the requested tokens: a shorter response is no run of that length."""

_STOPPED: dict[str | None, Literal["end", "length", "word"]] = {
    "stop": "end",
    "eos": "end",
    "length": "length",
    "limit": "length",
    "word": "word",
}


def run_from_response(
    response: StreamedResponse | Failure, condition: Condition, *, at: float, start: int = 0, block: int | None = None
) -> Run:
    """Return the run of a response, under the condition that it was requested for. A failure is an excluded run."""
    if isinstance(response, Failure):
        return Run(at=round(at, 3), start=start, block=block, excluded=response.message)
    timings, usage = response.timings, response.usage
    engine = timings is not None and timings.predicted_ms is not None and timings.predicted_n is not None
    client_ms = response.last_token_ms - response.first_token_ms
    cached = timings.cache_n if timings and timings.cache_n is not None else usage.cached if usage else None
    run = Run(
        at=round(at, 3),
        start=start,
        block=block,
        prompt_n=timings.prompt_n if timings and engine else _new_tokens(response),
        cache_n=cached,
        prompt_ms=timings.prompt_ms if timings and engine else response.first_token_ms,
        predicted_n=timings.predicted_n if timings and engine else usage.completion if usage else None,
        predicted_ms=timings.predicted_ms if timings and engine else client_ms or None,
        draft_n=timings.draft_n if timings else None,
        draft_n_accepted=timings.draft_n_accepted if timings else None,
        first_token_ms=response.first_token_ms,
        total_ms=response.total_ms,
        pieces_ms=_gaps(response),
        characters=len(response.text),
        clock="engine" if engine else "client",
        stopped=_STOPPED.get(response.finish),
    )
    return run.model_copy(update={"excluded": exclusion_reason(run, condition)})


def exclusion_reason(run: Run, condition: Condition) -> str | None:
    """Return why a run is no measurement of its condition; None if it is one."""
    if condition.cache == "cold" and run.cache_n:
        return f"{run.cache_n:,} tokens of the prompt came from a cache"
    if condition.cache == "warm" and run.cache_n == 0:
        return "nothing of the prompt came from the cache"
    if run.predicted_n is None:
        return "the server does not report how many tokens it generated"
    if ended_early(run, condition):
        return f"it ended after {run.predicted_n:,} of {condition.generated:,} tokens"
    return None


def ended_early(run: Run, condition: Condition) -> bool:
    """Check whether a response is too short for its condition, because the model ended it."""
    return (run.predicted_n or 0) < _HALF * (condition.generated or 0)


def _new_tokens(response: StreamedResponse) -> int | None:
    """Return the tokens of the prompt that had to be computed."""
    if response.usage is None or response.usage.prompt is None:
        return None
    return max(0, response.usage.prompt - (response.usage.cached or 0))


def _gaps(response: StreamedResponse) -> tuple[float, ...]:
    """Return the milliseconds between pieces: with drafts, several tokens come in one."""
    times = [piece.at for piece in response.pieces]
    return tuple(round(later - earlier, 2) for earlier, later in pairwise(times))
