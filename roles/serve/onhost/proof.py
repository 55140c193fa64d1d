"""Prove that a server serves: query it as a client does in its first minute, or probe it in short."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from llamaherd.onhost.document import DocumentError
from roles.serve.onhost.processes import ROOT, listening_addresses
from roles.serve.onhost.session import (
    LIMITS,
    NO_CHAT,
    PROMPT,
    RETRIED,
    SHORT,
    Completion,
    Json,
    Limits,
    Session,
    as_text,
    parse_body,
    parse_completion,
    parse_number,
)
from roles.serve.onhost.speed import (
    GOOD,
    Proof,
    ProofInput,
    draft_problem,
    judge_restored,
    judge_speed,
    measure_speed,
    parse_speeds,
)
from roles.serve.onhost.wire import (
    LARGEST,
    NoResponseError,
    NotServingError,
    Response,
    StatusError,
    explained,
    gauges,
    parse_declared,
    path_of,
)

FORMED, CALLED, LONG = 16, 40, 2000
"""Tokens: of a response by a schema, of a call, and of the long prompt."""
FEWEST, MOST_CHARACTERS_A_TOKEN = 100, 8
"""Tokens of a long prompt, and characters of its tokens."""
COLOUR: Json = {
    "type": "json_schema",
    "json_schema": {
        "name": "colour",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}},
            "required": ["colour"],
            "additionalProperties": False,
        },
    },
}
"""A schema of a response, as clients send it."""
_UNSUPPORTED = re.compile("support|jinja|template|requires|tool[ _-]?choice|--enable|system role", re.IGNORECASE)
"""In the message of an error: the server does not have what was requested."""
_UNSUPPORTED_STATUS = (400, 404, 422, 500, 501)
_TOKENS_PATH = "/embeddings"
"""Where llama.cpp returns a vector for each token."""

T = TypeVar("T")

RESPONDS, WRONG, NO_RESPONSE = 0, 1, 3
"""How a probe ends."""


class SkippedError(Exception):
    """A step does not apply to this server."""


class InconclusiveError(SkippedError):
    """The result of a step depends on the model; contains the result."""


Ending = Literal["passed", "unsupported", "slow", "disturbed"]
"""How a step ended that has not failed. `slow`, `disturbed`: it was not tried to its end."""


@dataclass(frozen=True)
class ProofStep:
    """One thing that clients do: its name, how it is tried, and the tokens that it takes.

    `run` returns what it found, as far as that is worth a word.
    """

    name: str
    run: Callable[[Session], str | None]
    prompt: int = 0
    tokens: int = 0


def run_steps(session: Session, steps: Sequence[ProofStep]) -> None:
    """Try the steps that this host has time for. Raise NotServingError at the first that fails."""
    ended = {step.name: try_step(session, step)[0] for step in steps}
    for ending in ("slow", "disturbed"):
        if names := [name for name, each in ended.items() if each == ending]:
            session.report(f"not tried, since {why_not_tried(session, ending)}: {', '.join(names)}")


def try_step(session: Session, step: ProofStep) -> tuple[Ending, str]:
    """Try a step if this host has time for it. Return how it ended, and what was found. Raise NotServingError."""
    session.progress(step.name)
    took = time.monotonic() - session.began
    if step.tokens and took + session.expected(step.prompt, step.tokens) > session.limits.steps:
        return "slow", ""
    session.shared = bool(step.tokens) and session.stays_busy()
    try:
        return "passed", step.run(session) or ""
    except SkippedError as error:  # its text is what was found, if anything was
        return "unsupported", str(error)
    except NoResponseError:
        if not session.shared:
            raise
        session.connection.close()
        return "disturbed", ""


def why_not_tried(session: Session, ending: Ending) -> str:
    """Return why a step was not tried to its end."""
    return f"it writes {session.writes:.1f} tokens/s" if ending == "slow" else "it responds to other clients"


def _supported(send: Callable[[], T], *, known: bool) -> T:
    """Call an optional function of a server. Raise SkippedError if the server reports that it lacks the function.

    `known`: the server reports elsewhere that it has the function.
    """
    try:
        return send()
    except StatusError as error:
        if not known and error.status in _UNSUPPORTED_STATUS and _UNSUPPORTED.search(error.message):
            raise SkippedError from None
        raise


# Steps of every server.


def _try_listening(session: Session) -> None:
    """Require that the server listens at the declared address, and at no other that machines reach."""
    server = session.server
    if not server.listen or not server.pids:
        raise SkippedError
    declared, port = ip_address(server.listen), urlsplit(server.url).port
    for address, at in sorted(listening_addresses(server.pids, session.root), key=str):
        if at == port and address != declared:
            raise NotServingError(f"it listens at {address}, port {at}, and {declared} is declared")
        if at != port and server.closed and not address.is_loopback:
            raise NotServingError(f"it listens at {address}, port {at}, too, which is not declared")


def _try_pages(session: Session) -> None:
    """Require the pages that clients, the gateway and monitoring read."""
    server = session.server
    if server.models_path:
        _check_models(session, server.models_path)
    read_caps(session)
    for url in server.metrics if len(server.metrics) == 1 else ():
        name = urlsplit(url).path
        response = session.get(path_of(url))
        if response.status not in (404, 501) and not gauges(response.require_ok(name)):
            raise NotServingError(f"{name} returns no metrics of a server")


def read_caps(session: Session) -> None:
    """Keep what the server reports of its chat template. Raise NotServingError."""
    if path := session.server.props_path:
        page = parse_body(session.get(path).require_ok("/props"), "/props", "something other than JSON")
        caps = page.get("chat_template_caps") if isinstance(page, dict) else None
        session.caps = caps if isinstance(caps, dict) else {}


def _check_models(session: Session, page: str) -> None:
    """Raise NotServingError where the list of models lacks one."""
    expected = "no list of models"
    found = parse_body(session.get(page).require_ok(page), page, expected)
    try:
        names = {name for each in found["data"] for name in (each["id"], *(each.get("aliases") or ()))}
    except (LookupError, TypeError, AttributeError):
        raise NotServingError(f"{page} returns {expected}") from None
    if missing := sorted(set(session.server.models) - names):
        raise NotServingError(f"{page} does not list {', '.join(missing)}")


def _try_key(session: Session) -> None:
    """Require that the server needs a declared key, and refuses another one."""
    server = session.server
    if server.key is None:
        raise SkippedError
    body = session.prompt(max_tokens=1) if server.kind == "chat" else {"input": PROMPT}
    for what, key in (("a prompt without the key", None), ("a prompt with a wrong key", _wrong_key())):
        with closing(session.connect(session.limit(SHORT))) as connection, explained(what):
            connection.key = key
            response = connection.open_response(server.path, body)
            response.read(LARGEST)
        if response.status not in (401, 403):
            raise NotServingError(f"{what} returns HTTP {response.status}, and a key is declared")


def _wrong_key() -> str:
    return f"wrong-{secrets.token_hex(8)}"


def _try_health(session: Session) -> None:
    """Require that the server is as healthy as before all other steps."""
    if path := session.server.health_path:
        session.get(path).require_ok(path)


# Steps of chats.


def try_stream(session: Session) -> None:
    """Require a response to a streamed prompt."""
    session.require_text(session.stream, "a prompt that is streamed")


def _try_system(session: Session) -> None:
    """Require a response to a system message, if the model's template has one."""
    if session.caps.get("supports_system_role") is False:
        raise SkippedError
    system = {"role": "system", "content": "You are a helpful assistant."}
    messages = [system, {"role": "user", "content": PROMPT}]
    _supported(
        lambda: session.require_text(session.stream, "a system message", messages=messages),
        known="supports_system_role" in session.caps,
    )


def _try_conversation(session: Session) -> None:
    """Require a response to several turns, not all of them ASCII, at the server's own temperature."""
    messages = [
        {"role": "user", "content": "Was heißt „drei Grundfarben“ auf Englisch? 🎨 Пожалуйста, 简短。"},
        {"role": "assistant", "content": "It means: three primary colours: red, yellow and blue."},
        {"role": "user", "content": PROMPT},
    ]
    session.require_text(session.complete, "a conversation of several turns", messages=messages)


def try_tools(session: Session) -> str:
    """Require a call of a tool, if the model's template has tools. Raise InconclusiveError if it depends on the model.

    A call is required by a grammar: a server that does not return one has failed, unless the tokens ended before.
    """
    known = session.caps.get("supports_tools")
    if known is False:
        raise SkippedError
    properties = {"name": {"type": "string", "enum": ["red", "blue"]}}
    parameters = {"type": "object", "properties": properties, "required": ["name"], "additionalProperties": False}
    function = {"name": "mix_colour", "description": "Mixes a colour.", "parameters": parameters}
    more: Json = {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}
    what = "a prompt with tools"
    found = _supported(lambda: session.complete(what, max_tokens=CALLED, **more), known=known is True)
    if found.calls:
        _check_calls(found, what)
    elif known is True and not found.cut:
        raise NotServingError(f"{what} returns no call, which was required")
    if found.cut:
        raise InconclusiveError(f"no complete call within {CALLED} tokens")
    if not found.calls:
        raise InconclusiveError("the response has text instead of a call")
    return "a call that matches its schema"


def _check_calls(found: Completion, what: str) -> None:
    """Raise NotServingError where a client could not make the call of a tool."""
    try:
        for call in found.calls:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            if not found.cut:
                whole = isinstance(json.loads(arguments), dict) and name == "mix_colour" and call["id"]
                if not whole:
                    raise ValueError
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        raise NotServingError(f"{what} returns a call that is not one of the tool") from None


def try_schema(session: Session) -> str:
    """Require a response that follows a JSON schema. A failure gets a longer try: a small model may end too early."""
    what = "a prompt with a JSON schema"

    def send(tokens: int) -> Completion:
        return _supported(lambda: session.complete(what, response_format=COLOUR, max_tokens=tokens), known=False)

    found = send(FORMED)
    if _matches_schema(found) is False:
        found = send(RETRIED)
    match _matches_schema(found):
        case False:
            text = as_text(found.text.strip())
            raise NotServingError(f"{what} returns text that does not match that schema: {text}")
        case None:
            raise InconclusiveError("the response ends, or thinks, before its object is complete")
    return "an object that matches its schema"


def _matches_schema(found: Completion) -> bool | None:
    """Return whether a response matches the schema COLOUR; None if that cannot be judged."""
    text = found.text.strip()
    # One that begins with a tag thinks first.
    if not text or text.startswith("<") or (found.cut and text.startswith("{") and not text.endswith("}")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and list(value.values()) in (["red"], ["blue"]) and "colour" in value


def _try_two(session: Session) -> None:
    """Require that two prompts at once get their own responses."""
    what = "one of two prompts at once"
    bodies = [session.prompt(max_tokens=tokens) for tokens in (2, FORMED)]
    deadline = session.limit(sum(body["max_tokens"] for body in bodies))
    with ExitStack() as stack, explained(what):
        connections = [stack.enter_context(closing(session.connect(deadline))) for _ in bodies]
        for connection, body in zip(connections, bodies, strict=True):
            connection.send_request(session.server.path, body)
        for connection, body in zip(connections, bodies, strict=True):
            response = connection.getresponse()
            content = Response(response.status, response.read(LARGEST)).require_ok(what)
            parse_completion(parse_body(content, what, NO_CHAT), body, session.server, what)


def _try_long(session: Session) -> None:
    """Require that a long prompt, of half a second's reading on this host, is read whole."""
    tokens = min(LONG, int(session.reads * session.limits.long), session.server.context // 4)
    if tokens < FEWEST:
        raise SkippedError
    length, start = int(tokens / session.density), secrets.randbelow(1000)
    text = " ".join(f"{each} is a number." for each in range(start, start + tokens))[:length]
    what = f"a prompt of {length} characters"
    body = session.prompt(messages=[{"role": "user", "content": f"{text} {PROMPT}"}])
    content = session.post(what, body, session.limit(tokens)).require_ok(what)
    found = parse_body(content, what, NO_CHAT)
    parse_completion(found, body, session.server, what)
    read = found["usage"].get("prompt_tokens", length)
    if read < length // MOST_CHARACTERS_A_TOKEN:
        raise NotServingError(f"{what} returns a response after {read} tokens of it")


def _try_leaving(session: Session) -> None:
    """Require that the request after a client's disconnect gets its own response."""
    body = session.prompt(stream=True, max_tokens=RETRIED)
    with (
        closing(session.connect(session.limit(SHORT))) as connection,
        explained("a prompt whose client leaves"),
    ):
        connection.open_response(session.server.path, body).readline(LARGEST)
        connection.hang_up()
    session.stays_busy()
    session.require_text(session.complete, "a prompt after a client that left")


# The first step of servers that complete no prompts.


def try_embedding(session: Session) -> str:
    """Require two vectors of one length for two texts, and one for one text."""
    model, expected = session.server.model, "no embedding"
    length, by_token = 0, False
    for given in ([PROMPT, "A letter about the weather in March"], PROMPT):
        what = "an embedding" if given == PROMPT else "two embeddings"
        count = 1 if given == PROMPT else len(given)
        response = session.post(what, {"model": model, "input": given}, session.limit(SHORT))
        if by_token := response.status == 400 and b"ooling type 'none'" in response.body:
            # A vector for each token, which this path does not have.
            response = session.post(what, {"content": given}, session.limit(SHORT), _TOKENS_PATH)
        found = parse_body(response.require_ok(what), what, expected)
        try:
            data = found if by_token else found["data"]
            vectors = {each["index"]: tuple(map(parse_number, _flat(each["embedding"]))) for each in data}
            numbers = sorted(vectors)
        except (LookupError, TypeError, AttributeError, ValueError):
            raise NotServingError(f"{what} returns {expected}") from None
        if numbers != list(range(count)) or len(data) != count:
            raise NotServingError(f"{what} returns {expected}: numbers {as_text(numbers)}, of {count}")
        lengths = {len(each) for each in vectors.values()}
        if not all(any(vector) for vector in vectors.values()) or (len(lengths) > 1 and not by_token):
            raise NotServingError(f"{what} returns {expected}: zeros, or vectors of several lengths")
        if len(set(vectors.values())) != count:
            raise NotServingError(f"{what} returns the same embedding for different texts")
        length = max(lengths)
    return "a vector for each token" if by_token else f"vectors of {length:,} numbers, which differ"


def _flat(vector: list[Any]) -> list[Any]:
    """Return a vector, or those of all tokens as one."""
    return [each for part in vector for each in (part if isinstance(part, list) else [part])]


def _try_rerank(session: Session) -> str:
    """Require different scores of documents."""
    scores = rerank_scores(session)
    if len(set(scores)) == 1:
        raise NotServingError("a rerank returns the same score for different documents")
    return f"different scores of {len(scores)} documents"


def try_order(session: Session) -> str:
    """Require that the relevant document has the highest score."""
    scores = rerank_scores(session)
    if max(scores) != scores[0] or scores.count(scores[0]) > 1:
        shown = ", ".join(f"{each:.3g}" for each in scores)
        raise NotServingError(f"a rerank does not rank the relevant document, the first one, highest: {shown}")
    return f"of {len(scores)} documents, the relevant one ranks highest"


def rerank_scores(session: Session) -> list[float]:
    """Return the scores of three documents, of which the first one is relevant to the query."""
    what, expected = "a rerank", "no scores of documents"
    documents = ["Red, yellow and blue are the three primary colours.", "The train to Bern leaves at noon.", "Cheese"]
    query = "Which are the three primary colours?"
    body = {"model": session.server.model, "query": query, "documents": documents}
    found = parse_body(session.post(what, body, session.limit(SHORT)).require_ok(what), what, expected)
    try:
        scores = {each["index"]: parse_number(each["relevance_score"]) for each in found["results"]}
        numbers = sorted(scores)
    except (LookupError, TypeError, AttributeError, ValueError):
        raise NotServingError(f"{what} returns {expected}") from None
    if numbers != list(range(len(documents))):
        raise NotServingError(f"{what} returns {len(scores)} scores of {len(documents)}")
    return [scores[number] for number in numbers]


WITHOUT_PROMPTS = {
    "embeddings": ProofStep("an embedding", try_embedding),
    "rerank": ProofStep("a rerank", _try_rerank),
}
"""The first step of a server that completes no prompts."""
STEPS = (
    ProofStep("its addresses", _try_listening),
    ProofStep("its pages", _try_pages),
    ProofStep("its key", _try_key, 16, 1),
)
CHAT_STEPS = (
    ProofStep("a stream", try_stream, 8, SHORT),
    ProofStep("several turns", _try_conversation, 60, SHORT),
    ProofStep("a system message", _try_system, 16, SHORT),
    ProofStep("a JSON schema", try_schema, 16, FORMED),
    ProofStep("tools", try_tools, 120, CALLED),
    ProofStep("two prompts at once", _try_two, 16, 2 + FORMED),
    ProofStep("a long prompt", _try_long, 0, SHORT),
    # Last, since its response may still be written when the next step begins.
    ProofStep("a client that leaves", _try_leaving, 16, 2 * SHORT),
)
LAST = ProofStep("its health", _try_health)


def prove(given: ProofInput, report: Callable[[str], None], *, limits: Limits = LIMITS, root: Path = ROOT) -> Proof:
    """Prove a server after a switch, and return how that ended."""
    try:
        server = parse_declared(given.question, given.key, given.pids)
        beside = None if given.other is None else parse_declared(given.other, given.key)
    except DocumentError as error:
        return Proof("bad", f"what its proof compares cannot be read: {error}")
    first_end = time.monotonic() + min(max(limits.first, given.seconds), server.seconds)
    session = Session(server, first_end, limits, report, beside, root)
    try:
        with closing(session.connection):
            return _prove(session, first_end + limits.later, given)
    except NotServingError as error:
        return Proof("bad", str(error))


def _prove(session: Session, end: float, given: ProofInput) -> Proof:
    short = given.short or given.how == "back"  # a restored server is proved in short, too
    if step := WITHOUT_PROMPTS.get(session.server.kind):
        step.run(session)
        session.deadline, session.began = end, time.monotonic()
        run_steps(session, () if short else (*STEPS, LAST))
        return GOOD
    first = measure_speed(session, session.deadline)
    session.deadline, session.began = end, time.monotonic()
    if why := draft_problem(session.server, first):
        return Proof("undeclared", why)
    if short:
        session.shared = True
        try_stream(session)
    else:
        run_steps(session, (*STEPS, *CHAT_STEPS, LAST))
    known = parse_speeds(given.speeds)
    match given.how:
        case "beside":
            return GOOD
        case "back":
            return judge_restored(session, first, known, given.slow)
        case how:
            return judge_speed(session, first, known, how)


def probe(
    question: Mapping[str, object], *, key: str | None, seconds: float, limits: Limits = LIMITS
) -> tuple[int, str]:
    """Send one prompt and one that is streamed, or the request of an embedding, within so many seconds.

    Return RESPONDS, WRONG or NO_RESPONSE, and the reason. A question that cannot be read probes nothing.
    """
    try:
        server = parse_declared(question, key)
    except DocumentError:
        return RESPONDS, ""
    session = Session(server, time.monotonic() + seconds, limits, shared=True)
    try:
        with closing(session.connection):
            if step := WITHOUT_PROMPTS.get(server.kind):
                step.run(session)
            else:
                session.require_text(session.complete, "a prompt")
                try_stream(session)
    except NoResponseError as error:
        return NO_RESPONSE, str(error)
    except NotServingError as error:
        return WRONG, str(error)
    return RESPONDS, ""
