#!/usr/bin/python3 -I
"""Prove that a server serves: query it as a client does in its first minute.

    prove.py QUESTION RECORD OUT HOW PID...     after a switch
    prove.py --short SECONDS QUESTION           later: one prompt, and one that is streamed

Exits with 0 and prints nothing; with 1 and prints why the server does not serve; with 2 and prints what is not as
declared, or how much slower the server is than the same model was here before; or, in short, with 3 where no response
comes in time. Each wait has a limit for the whole of it: the first response by what is left of the load's (LEFT
seconds), all that follows by limits of its own.

The proof ends with a prompt that is as long as three seconds allow by the speed of the first one: the model is in
memory by then. A slow server has three tries, and the best counts. None counts while the server responds to other
clients, or while its host computes for others. A server that may have any speed, and has served here before, is not
measured again.
"""

import http.client
import ipaddress
import json
import math
import os
import re
import secrets
import socket
import statistics
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

LARGEST = 1 << 20
"""Bytes of a response."""
TOKENS, MOST_TOKENS, SECONDS, LEAST_SECONDS = 8, 128, 3, 0.2
"""Of a response that tells the speed: no fewer, no more, how long it should take, and must."""
CROWDED = 0.2
"""Of all processors' time, taken by others: what was measured then means nothing."""
TRIES = 3
FLOOR = 0.7
"""Of the speed that the same model had: slower is not accepted."""
RECENT, MOST = 5, 20
"""Speeds that count of one model, and those that are kept of all: the median of a few moves by no single one."""
BUSY = re.compile(
    r"^(?:llamacpp:requests_(?:processing|deferred)|vllm:num_requests_(?:running|waiting))\S* ([0-9.]+)", re.MULTILINE
)
FIRST_SECONDS, LATER_SECONDS, STEP_SECONDS, PAGE_SECONDS = 30, 120, 30, 5
"""The least limit of the first response; the limit of all that follows it; of one step; of a page such as /metrics."""
BUDGET, LONG_SECONDS = 8.0, 0.5
"""Seconds that the steps may take by the speed of this host, and the long prompt among them."""
SHORT, FORMED, CALLED, RETRIED, LONG = 4, 16, 40, 64, 2000
"""Tokens: of a step's response, of one by a schema, of a call, of a second try, and of the long prompt."""
SPARE = 8
"""Tokens that a response may have more than were allowed."""
FEWEST, MOST_CHARACTERS = 100, 8
"""Tokens of a long prompt, and characters of its tokens."""
LEAVING_SECONDS = 0.5
"""In which a server notices that a client has left, or has its response."""
FASTEST = 1e6
"""Tokens a second that are believed."""
TALKING_SECONDS = 3
"""Between two lines of progress."""
REPEATED = 4
"""Characters that are no text where all are the same."""
SPECIAL = re.compile(
    r"<\|[^|<>]{0,40}\|>|</?(?:s|bos|eos|pad|unk|unused\d+|mask|start_of_turn|end_of_turn)>|\[(?:PAD|UNK|EOS)\d*\]"
)
FINISHES = {"stop", "length", "tool_calls", "function_call"}
UNSUPPORTED = re.compile("support|jinja|template|requires|tool[ _-]?choice|--enable|system role", re.IGNORECASE)
"""In the message of an error: the server does not have what it was asked for."""
TOKENS_PATH = "/embeddings"
"""Where llama.cpp gives a vector for each token."""
NO_CHAT = "what is no chat completion"
PRIMARY = "The three primary colours are"

Json = dict[str, Any]
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
Speeds = list[Json]


class FailedError(Exception):
    """The server does not serve; contains the reason."""


class NoResponseError(FailedError):
    """No response comes in time."""


class LeftOutError(Exception):
    """A step cannot be done; contains the reason."""


@dataclass(frozen=True)
class Question:
    """The declared server: where it listens, what a client sends first, and what its responses must be like.

    A question that an earlier version kept has no more than the prompt.
    """

    url: str = ""
    metrics: tuple[str, ...] = ()
    key: str | None = None
    seconds: float = LATER_SECONDS
    drafts: int = 0
    floor: float = 0
    body: Json = field(default_factory=dict)
    same: str | None = None
    spec: str | None = None
    kind: str = "chat"
    models: tuple[str, ...] = ()
    models_path: str | None = None
    props_path: str | None = None
    health_path: str | None = None
    listen: str | None = None
    closed: bool = False
    context: int = 0
    pids: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The path of the prompt."""
        return urlsplit(self.url).path

    def authorization(self) -> dict[str, str]:
        """Return the header that holds the key."""
        if not self.key:
            return {}
        return {"Authorization": "Bearer " + Path(self.key).read_text(encoding="utf-8").strip()}


def read_question(path: str, pids: Iterable[str]) -> Question:
    """Read a question from a file."""
    said = json.loads(Path(path).read_text(encoding="utf-8"))
    known = {name: said[name] for name in Question.__dataclass_fields__ if name in said}
    metrics = said["metrics"] if isinstance(said["metrics"], list) else [said["metrics"]]
    known |= {"metrics": tuple(metrics), "models": tuple(said.get("models", ()))}
    return Question(**known | {"pids": tuple(pid for pid in pids if pid.isdecimal() and pid != "0")})


@dataclass(frozen=True)
class Answer:
    """What is measured of a response: its tokens, those drafted and accepted, and tokens a second, 0 where unknown.

    `counts`: it is long enough to tell the speed, and others did not compute meanwhile.
    """

    tokens: int
    drafted: int
    accepted: int
    rate: float
    counts: bool


@dataclass(frozen=True)
class Reply:
    """An HTTP response."""

    status: int
    kind: str
    body: bytes
    seconds: float


@dataclass(frozen=True)
class Completion:
    """What a client gets of a prompt: text, thoughts, calls of tools, and whether it was cut by its limit of tokens.

    ik_llama.cpp calls that `stop`, too, so that the tokens decide.
    """

    text: str
    thoughts: str
    calls: tuple[Any, ...]
    cut: bool


# Waiting, with a limit for the whole.


class Wire(socket.socket):
    """A socket whose reads end at a deadline and after so many bytes, however many reads they are."""

    deadline = 0.0
    room = 2 * LARGEST

    def recv_into(self, *arguments: Any) -> int:
        self.settimeout(left(self.deadline))
        count = super().recv_into(*arguments)
        self.room -= count
        if self.room < 0:
            raise OSError("it does not end")
        return count


def left(deadline: float) -> float:
    """Return the seconds until a deadline; raises TimeoutError after it."""
    if (seconds := deadline - time.monotonic()) <= 0:
        raise TimeoutError("timed out")
    return seconds


class Link(http.client.HTTPConnection):
    """A connection to the server itself: no proxy, no redirect, and a deadline."""

    def __init__(self, url: str, deadline: float) -> None:
        parts = urlsplit(url)
        super().__init__(parts.hostname or "", parts.port)
        self.deadline = deadline

    def connect(self) -> None:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        wire = Wire(family, socket.SOCK_STREAM)
        wire.deadline = self.deadline
        wire.settimeout(left(self.deadline))
        self.sock = wire
        wire.connect((self.host, self.port))
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def until(self, deadline: float) -> None:
        """Limit what follows on this connection."""
        self.deadline = deadline
        if isinstance(self.sock, Wire):
            self.sock.deadline, self.sock.room = deadline, 2 * LARGEST
            self.sock.settimeout(left(deadline))


@contextmanager
def trouble(asked: str) -> Iterator[None]:
    """Tell of what a connection raises, in the words of what was asked for."""
    try:
        yield
    except TimeoutError as error:
        raise NoResponseError(f"{asked} is not answered: {error}") from None
    except OSError as error:
        raise FailedError(f"{asked} is not answered: {error}") from None
    except (http.client.HTTPException, ValueError) as error:
        raise FailedError(f"{asked} is answered with what is not HTTP: {type(error).__name__}") from None


def request(link: Link, question: Question, asked: str, path: str, body: Json | None = None) -> Reply:
    """Send one request and return the response. Raises FailedError where none comes, or more than a client takes."""
    with trouble(asked):
        began = time.monotonic()
        reply = begin(link, question, path, body)
        content = reply.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise FailedError(f"{asked} is answered with more than {LARGEST} bytes")
        return Reply(reply.status, reply.headers.get("Content-Type", ""), content, time.monotonic() - began)


def begin(
    link: Link, question: Question, path: str, body: Json | None, headers: Mapping[str, str] | None = None
) -> http.client.HTTPResponse:
    """Send one request and return its response, to be read."""
    kept = link.sock is not None
    more = question.authorization() if headers is None else dict(headers)
    if body is not None:
        more["Content-Type"] = "application/json"
    content = None if body is None else json.dumps(body).encode()
    try:
        link.request("GET" if body is None else "POST", path, content, more)
        return link.getresponse()
    except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
        if not kept:
            raise
    # A server may close a connection that it kept at any time: clients open another.
    link.close()
    link.request("GET" if body is None else "POST", path, content, more)
    return link.getresponse()


# What a client makes of a response.


def parsed(content: bytes, asked: str, what: str) -> Any:
    """Return the JSON of a body. Raises FailedError where a client could not read it."""
    try:
        return json.loads(content.decode("utf-8"), parse_constant=not_json)
    except (ValueError, RecursionError):
        raise FailedError(f"{asked} is answered with {what}") from None


def not_json(name: str) -> None:
    raise ValueError(name)


def said_of(body: bytes) -> str:
    """Return the message of an error's body, or the body, on one line."""
    text = body.decode(errors="replace")
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        text = str(json.loads(text)["error"]["message"])
    return " ".join(text.split())[:200]


def accepted(reply: Reply, asked: str) -> Reply:
    """Return a response that is no error."""
    if reply.status != 200:
        raise FailedError(f"{asked} is answered with HTTP {reply.status}: {said_of(reply.body)}")
    return reply


def completion(said: Any, body: Json, question: Question, asked: str) -> Completion:
    """Return a chat completion. Raises FailedError where it is none."""
    try:
        choice = said["choices"][0]
        message, finish, usage = choice["message"], choice.get("finish_reason"), said["usage"]
        text, thoughts = texts(message)
        calls = tuple(message.get("tool_calls") or ())
        model, whole = said.get("model"), said.get("object", "chat.completion")
        role = message.get("role", "assistant")
        counted(usage, body, asked)
        none = bool(text or thoughts) and not usage["completion_tokens"]
        cut = finish == "length" or usage["completion_tokens"] >= body["max_tokens"]
    except (LookupError, TypeError, AttributeError, ValueError):
        raise FailedError(f"{asked} is answered with {NO_CHAT}") from None
    if finish not in FINISHES or role != "assistant" or whole != "chat.completion":
        raise FailedError(f"{asked} is answered with {NO_CHAT}: finish_reason is {shown(finish)}, role {shown(role)}")
    if none:
        raise FailedError(f"{asked} is answered with text, and with no token by its `usage`")
    named(model, question, asked)
    return Completion(text, thoughts, calls, cut)


def texts(message: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text and the thoughts of a message, or of a part of it. Raises TypeError where they are no text."""
    text = message.get("content") or ""
    thoughts = message.get("reasoning_content") or message.get("reasoning") or ""
    if not isinstance(text, str) or not isinstance(thoughts, str):
        raise TypeError
    return text, thoughts


def counted(usage: Mapping[str, Any], body: Json, asked: str) -> None:
    """Raise FailedError where a response cannot have so many tokens."""
    read, written = usage.get("prompt_tokens", 1), usage["completion_tokens"]
    if not isinstance(read, int) or not isinstance(written, int):
        raise TypeError
    most = body["max_tokens"]
    if read < 0 or written < 0 or written > most + SPARE:
        raise FailedError(f"{asked} is answered with {read} + {written} tokens, and no more than {most} were allowed")


def named(model: object, question: Question, asked: str) -> None:
    """Raise FailedError where another model responds."""
    if question.models and model is not None and model not in question.models:
        raise FailedError(f"{asked} is answered by model {shown(model)}, not by {question.body['model']}")


def shown(value: object) -> str:
    """Return a value from outside as text for a message."""
    return json.dumps(value)[:60]


def visible(text: str) -> bool:
    """Return whether a person would see text: not only blanks, control or special tokens, U+FFFD, or one character."""
    rest = SPECIAL.sub("", text)
    seen = [each for each in rest if unicodedata.category(each)[0] in "LNPS" or unicodedata.category(each) == "Mn"]
    broken = seen.count("\ufffd")
    one = len(seen) >= REPEATED and len(set(seen)) == 1
    return len(seen) > 2 * broken and not one


# Steps of the proof.


@dataclass
class Talk:
    """A proof in progress: its deadline, and what was measured.

    `reads` and `writes` are tokens a second, `density` the tokens of a character by the longest prompt until now.
    """

    question: Question
    deadline: float
    link: Link
    began: float = field(default_factory=time.monotonic)
    told: float = field(default_factory=time.monotonic)
    reads: float = 0.0
    writes: float = 0.0
    longest: int = 0
    density: float = 1.0
    others: bool = False
    caps: Json = field(default_factory=dict)

    def get(self, path: str) -> Reply:
        """Return a page."""
        self.link.until(min(self.deadline, time.monotonic() + PAGE_SECONDS))
        return request(self.link, self.question, path, path)

    def limit(self, tokens: int) -> float:
        """Return the deadline of a step, which may take ten times as long as this host takes for so many tokens."""
        seconds = LATER_SECONDS if self.others else max(STEP_SECONDS, 10 * self.expected(0, tokens))
        return min(self.deadline, time.monotonic() + seconds)

    def expected(self, prompt: int, tokens: int) -> float:
        """Return the seconds that a step takes by what was measured."""
        return (prompt / self.reads if self.reads else 0) + (tokens / self.writes if self.writes else 0)

    def ask(self, asked: str, **more: Any) -> Completion:
        """Send a prompt that is not streamed, and return its completion, of which a person can see something."""
        body = prompt(self.question, **more)
        self.link.until(self.limit(body["max_tokens"]))
        reply = accepted(request(self.link, self.question, asked, self.question.path, body), asked)
        said = parsed(reply.body, asked, NO_CHAT)
        found = completion(said, body, self.question, asked)
        self.learn(body, said, reply.seconds)
        return found

    def learn(self, body: Json, said: Json, seconds: float) -> None:
        """Keep how fast a prompt was read and a response written; where the server tells no times, by the clock."""
        usage, times = said["usage"], said.get("timings") or {}
        length = sum(len(each["content"]) for each in body["messages"])
        if length > self.longest and usage.get("prompt_tokens"):
            self.longest, self.density = length, usage["prompt_tokens"] / length
        self.writes = max(self.writes, usage["completion_tokens"] / max(seconds, 0.001))
        with suppress(LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError):
            self.writes = max(self.writes, min(FASTEST, 1000 * times["predicted_n"] / times["predicted_ms"]))
            self.reads = max(self.reads, min(FASTEST, 1000 * times["prompt_n"] / times["prompt_ms"]))
        self.reads = self.reads or 10 * self.writes

    def tell(self, step: str) -> None:
        """Print what is tried, where the proof takes long."""
        if time.monotonic() - self.told > TALKING_SECONDS:
            self.told = time.monotonic()
            progress(f"still proving that it serves: {step}")


@dataclass(frozen=True)
class Step:
    """One thing that clients do: how to call it, how to try it, and the tokens that it takes."""

    name: str
    run: Callable[[Talk], None]
    prompt: int = 0
    tokens: int = 0


def progress(line: str) -> None:
    """Print a line of progress, where somebody reads it."""
    if (number := os.environ.get("PROGRESS", "")).isdecimal():
        with suppress(OSError):
            os.write(int(number), f"{line}\n".encode())


def prompt(question: Question, **more: Any) -> Json:
    """Return a chat request of a few tokens."""
    messages = [{"role": "user", "content": PRIMARY}]
    return {"model": question.body["model"], "messages": messages, "max_tokens": SHORT, **more}


def seen(talk: Talk, asked: str, found: Completion, again: Callable[..., Completion], **more: Any) -> None:
    """Raise FailedError where nothing of a response can be seen, and of a longer one neither."""
    for _ in range(2):
        if visible(found.text) or visible(found.thoughts):
            return
        tokens = max(SHORT, min(RETRIED, int(talk.writes * BUDGET) or RETRIED))
        found = again(asked, **more | {"max_tokens": tokens, "temperature": 0.8})
    if visible(found.text) or visible(found.thoughts):
        return
    raise FailedError(
        f"{asked} is answered with {f'what is no text: {shown(found.text)}' if found.text else 'nothing'}"
    )


def sees_text(talk: Talk, asked: str, **more: Any) -> Completion:
    found = talk.ask(asked, **more)
    seen(talk, asked, found, talk.ask, **more)
    return found


def streamed(talk: Talk, asked: str, **more: Any) -> Completion:
    """Send a prompt that is streamed, and return what all its parts make."""
    body = prompt(talk.question, **more) | {"stream": True, "stream_options": {"include_usage": True}}
    link = Link(talk.question.url, talk.limit(body["max_tokens"]))
    with trouble(asked):
        reply = begin(link, talk.question, talk.question.path, body)
        if reply.status != 200:
            accepted(Reply(reply.status, "", reply.read(LARGEST), 0), asked)
        if not reply.headers.get("Content-Type", "").startswith("text/event-stream"):
            raise FailedError(
                f"{asked} is answered with {reply.headers.get('Content-Type')}, not with a stream of events"
            )
        found = joined(events(reply, body["max_tokens"], asked), body, talk.question, asked)
        link.close()
    return found


def events(reply: http.client.HTTPResponse, tokens: int, asked: str) -> Iterable[bytes]:
    """Yield the data of a stream's events until it ends. Raises FailedError where it does not end as streams do."""
    count = size = 0
    while line := reply.readline(LARGEST):
        count, size = count + line.startswith(b"data:"), size + len(line)
        if count > 2 * tokens + 64 or size > LARGEST:
            raise FailedError(f"{asked} is answered with a stream that does not end after {tokens} tokens")
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        if name == b"data":
            if value.strip() == b"[DONE]":
                return
            yield value.strip()
        elif name not in (b"", b"event", b"id", b"retry"):
            raise FailedError(f"{asked} is answered with a stream of what are no events")
    raise FailedError(f"{asked} is answered with a stream that ends without [DONE]")


def joined(data: Iterable[bytes], body: Json, question: Question, asked: str) -> Completion:
    """Return the completion that a stream's events make. Raises FailedError where a client could not make one."""
    what = "a stream of " + NO_CHAT
    text = thoughts = finish = ""
    calls: list[Any] = []
    for each in data:
        said = parsed(each, asked, what)
        if isinstance(said, dict) and said.get("error"):
            raise FailedError(f"{asked} is answered with an error in the stream: {said_of(each)}")
        try:
            if usage := said.get("usage"):
                counted(usage, body, asked)
            for choice in said["choices"]:
                more, thought = texts(choice["delta"])
                text, thoughts = text + more, thoughts + thought
                calls += choice["delta"].get("tool_calls") or ()
                finish = choice.get("finish_reason") or finish
            named(said.get("model"), question, asked)
        except (LookupError, TypeError, AttributeError):
            raise FailedError(f"{asked} is answered with {what}") from None
    if finish not in FINISHES:
        raise FailedError(f"{asked} is answered with a stream whose finish_reason is {shown(finish)}")
    return Completion(text, thoughts, tuple(calls), finish == "length")


def sees_stream(talk: Talk, asked: str, **more: Any) -> None:
    def again(asked: str, **more: Any) -> Completion:
        return streamed(talk, asked, **more)

    seen(talk, asked, again(asked, **more), again, **more)


def try_stream(talk: Talk) -> None:
    sees_stream(talk, "a prompt that is streamed")


def try_system(talk: Talk) -> None:
    if talk.caps.get("supports_system_role") is False:
        raise LeftOutError
    system = {"role": "system", "content": "You are a helpful assistant."}
    messages = [system, {"role": "user", "content": PRIMARY}]
    optional(
        lambda: sees_stream(talk, "a system message", messages=messages), known="supports_system_role" in talk.caps
    )


def try_turns(talk: Talk) -> None:
    """Several turns, not all of them ASCII, at the temperature that the server chooses."""
    question = "Was heißt „drei Grundfarben“ auf Englisch? 🎨 Пожалуйста, 简短。"
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": "It means: three primary colours: red, yellow and blue."},
        {"role": "user", "content": PRIMARY},
    ]
    sees_text(talk, "a conversation of several turns", messages=messages)


def try_tools(talk: Talk) -> None:
    if talk.caps.get("supports_tools") is False:
        raise LeftOutError
    known = talk.caps.get("supports_tools") is True
    properties = {"name": {"type": "string", "enum": ["red", "blue"]}}
    parameters = {"type": "object", "properties": properties, "required": ["name"], "additionalProperties": False}
    function = {"name": "mix_colour", "description": "Mixes a colour.", "parameters": parameters}
    asked = "a prompt with tools"
    more: Json = {"tools": [{"type": "function", "function": function}], "max_tokens": CALLED}
    found: list[Completion] = []
    optional(lambda: found.append(talk.ask(asked, **more | {"tool_choice": "required"})), known=known)
    for said in found:
        if said.calls:
            called(said, asked)
        elif known and not said.cut:
            raise FailedError(f"{asked} is answered without a call, which was required")


def called(said: Completion, asked: str) -> None:
    """Raise FailedError where a client could not make the call of a tool."""
    try:
        for call in said.calls:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            if not said.cut:
                whole = isinstance(json.loads(arguments), dict) and name == "mix_colour" and call["id"]
                if not whole:
                    raise ValueError
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        raise FailedError(f"{asked} is answered with what is no call of the tool") from None


def try_schema(talk: Talk) -> None:
    """A response keeps to a JSON schema. One that does not gets a longer try: a small model may end too early."""
    asked = "a prompt with a JSON schema"
    found: list[Completion] = []

    def ask(tokens: int) -> str:
        optional(lambda: found.append(talk.ask(asked, response_format=COLOUR, max_tokens=tokens)), known=False)
        return unlike(found[-1])

    if ask(FORMED) and (text := ask(RETRIED)):
        raise FailedError(f"{asked} is answered with what is not of that schema: {shown(text)}")


def unlike(said: Completion) -> str:
    """Return the text of a response that is not of the schema COLOUR, as far as it can be judged."""
    text = said.text.strip()
    # One that begins with a tag thinks first.
    if not text or text.startswith("<") or (said.cut and text.startswith("{")):
        return ""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return "" if isinstance(value, dict) and list(value.values()) in (["red"], ["blue"]) and "colour" in value else text


def optional(run: Callable[[], object], *, known: bool) -> None:
    """Do what a server need not be able to do. Raises LeftOutError where it reports that it cannot.

    `known`: it reports elsewhere that it can.
    """
    try:
        run()
    except FailedError as error:
        status = re.search(r"answered with HTTP (\d+): (.*)", str(error))
        if status and not known and status[1] in ("400", "404", "422", "500", "501") and UNSUPPORTED.search(status[2]):
            raise LeftOutError from None
        raise


def try_two(talk: Talk) -> None:
    """Two prompts at once: each gets its own response."""
    asked = "one of two prompts at once"
    bodies = [prompt(talk.question, max_tokens=tokens) for tokens in (2, FORMED)]
    deadline = talk.limit(sum(body["max_tokens"] for body in bodies))
    links = [Link(talk.question.url, deadline) for _ in bodies]
    headers = {**talk.question.authorization(), "Content-Type": "application/json"}
    with trouble(asked):
        for link, body in zip(links, bodies, strict=True):
            link.request("POST", talk.question.path, json.dumps(body).encode(), headers)
        for link, body in zip(links, bodies, strict=True):
            reply = link.getresponse()
            content = accepted(Reply(reply.status, "", reply.read(LARGEST), 0), asked).body
            completion(parsed(content, asked, NO_CHAT), body, talk.question, asked)
            link.close()


def try_leaving(talk: Talk) -> None:
    """A client leaves in the middle of a response; the next one must get its own."""
    body = prompt(talk.question, stream=True, max_tokens=RETRIED)
    asked = "a prompt whose client leaves"
    link = Link(talk.question.url, talk.limit(SHORT))
    with trouble(asked):
        reply = begin(link, talk.question, talk.question.path, body)
        reply.readline(LARGEST)
        if link.sock:
            link.sock.shutdown(socket.SHUT_RDWR)
        link.close()
    stays_busy(talk.question, LEAVING_SECONDS)
    sees_text(talk, "a prompt after a client that left")


def try_long(talk: Talk) -> None:
    """A long prompt, as long as this host reads in half a second; all of it must be read."""
    tokens = min(LONG, int(talk.reads * LONG_SECONDS), talk.question.context // 4)
    if tokens < FEWEST:
        raise LeftOutError
    length, start = int(tokens / talk.density), secrets.randbelow(1000)
    text = " ".join(f"{each} is a number." for each in range(start, start + tokens))[:length]
    asked = f"a prompt of {length} characters"
    body = prompt(talk.question, messages=[{"role": "user", "content": f"{text} {PRIMARY}"}])
    talk.link.until(talk.limit(tokens))
    reply = accepted(request(talk.link, talk.question, asked, talk.question.path, body), asked)
    said = parsed(reply.body, asked, NO_CHAT)
    completion(said, body, talk.question, asked)
    read = said["usage"].get("prompt_tokens", length)
    if read < length // MOST_CHARACTERS:
        raise FailedError(f"{asked} is answered after {read} tokens of it")


def try_key(talk: Talk) -> None:
    """A declared key is required, and another one refused."""
    if not talk.question.key:
        raise LeftOutError
    for asked, headers in (
        ("a prompt without the key", {}),
        ("a prompt with a wrong key", {"Authorization": f"Bearer wrong-{secrets.token_hex(8)}"}),
    ):
        link = Link(talk.question.url, talk.limit(SHORT))
        body = prompt(talk.question, max_tokens=1) if talk.question.kind == "chat" else {"input": PRIMARY}
        with trouble(asked):
            reply = begin(link, talk.question, talk.question.path, body, headers)
            status = reply.status
            reply.read(LARGEST)
            link.close()
        if status not in (401, 403):
            raise FailedError(f"{asked} is answered with HTTP {status}, and a key is declared")


def try_pages(talk: Talk) -> None:
    """The pages that clients, the gateway and monitoring read."""
    question = talk.question
    if question.models_path:
        page = question.models_path
        said = parsed(accepted(talk.get(page), page).body, page, "what is no list of models")
        try:
            names = {name for each in said["data"] for name in (each["id"], *(each.get("aliases") or ()))}
        except (LookupError, TypeError, AttributeError):
            raise FailedError(f"{page} is answered with what is no list of models") from None
        if missing := sorted(set(question.models) - names):
            raise FailedError(f"{page} does not list {', '.join(missing)}")
    if question.props_path:
        said = parsed(accepted(talk.get(question.props_path), "/props").body, "/props", "what is not JSON")
        caps = said.get("chat_template_caps") if isinstance(said, dict) else None
        talk.caps = caps if isinstance(caps, dict) else {}
    for url in question.metrics if len(question.metrics) == 1 else ():
        parts = urlsplit(url)
        reply = talk.get(f"{parts.path}?{parts.query}" if parts.query else parts.path)
        if reply.status not in (404, 501) and not BUSY.search(
            accepted(reply, parts.path).body.decode(errors="replace")
        ):
            raise FailedError(f"{parts.path} is answered with what are no figures of a server")


def try_health(talk: Talk) -> None:
    """It is as healthy as before all of this."""
    if path := talk.question.health_path:
        accepted(talk.get(path), path)


def try_listening(talk: Talk) -> None:
    """It listens where it is declared, and nowhere else that other machines reach."""
    question = talk.question
    if not question.listen or not question.pids:
        raise LeftOutError
    declared, port = ipaddress.ip_address(question.listen), urlsplit(question.url).port
    found = listening(question.pids)
    for address, number in sorted(found, key=str):
        if number == port and address != declared:
            raise FailedError(f"it listens at {address}, port {number}, and {declared} is declared")
        if number != port and question.closed and not address.is_loopback:
            raise FailedError(f"it listens at {address}, port {number}, too, which is not declared")


def listening(pids: Sequence[str]) -> set[tuple[Any, int]]:
    """Return the TCP addresses and ports of processes and those that they started, on this host's own network."""
    own, sockets = network("self"), set()
    every = [pid for pid in family(pids) if network(pid) == own]
    for pid in every:
        with suppress(OSError):
            for each in Path("/proc", pid, "fd").iterdir():
                with suppress(OSError):
                    sockets.add(str(each.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path("/proc/self/net", table).read_text(encoding="utf-8").splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                    address, _, port = words[1].partition(":")
                    found.add((kernel_address(address), int(port, 16)))
    return found


def network(pid: str) -> str:
    """Return the network that a process is in, or nothing."""
    with suppress(OSError):
        return str(Path("/proc", pid, "ns/net").readlink())
    return ""


def family(pids: Sequence[str]) -> set[str]:
    """Return processes and all that they started."""
    parents: dict[str, str] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            with suppress(OSError, IndexError):
                parents[each.name] = (each / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
    found = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def kernel_address(text: str) -> Any:
    """Return an IP address of /proc/net/tcp: words of 32 bits in this machine's order."""
    words = [int(text[n : n + 8], 16).to_bytes(4, sys.byteorder) for n in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(words))


def try_embedding(talk: Talk) -> None:
    """Two texts give two vectors of one length; one text gives one."""
    for given in ([PRIMARY, "A letter about the weather in March"], PRIMARY):
        asked, what = "an embedding" if given == PRIMARY else "two embeddings", "what is no embedding"
        count = 1 if given == PRIMARY else len(given)
        path, body = talk.question.path, {"model": talk.question.body["model"], "input": given}
        talk.link.until(talk.limit(SHORT))
        reply = request(talk.link, talk.question, asked, path, body)
        if by_token := reply.status == 400 and b"ooling type 'none'" in reply.body:
            # A vector for each token, which this path does not have.
            reply = request(talk.link, talk.question, asked, TOKENS_PATH, {"content": given})
        said = parsed(accepted(reply, asked).body, asked, what)
        try:
            data = said if by_token else said["data"]
            vectors = {each["index"]: tuple(map(number, flat(each["embedding"]))) for each in data}
        except (LookupError, TypeError, AttributeError, ValueError):
            raise FailedError(f"{asked} is answered with {what}") from None
        if sorted(vectors) != list(range(count)) or len(data) != count:
            raise FailedError(f"{asked} is answered with {what}: numbers {sorted(vectors)}, of {count}")
        lengths = {len(each) for each in vectors.values()}
        if not all(any(vector) for vector in vectors.values()) or (len(lengths) > 1 and not by_token):
            raise FailedError(f"{asked} is answered with {what}: zeros, or vectors of several lengths")
        if len(set(vectors.values())) != count:
            raise FailedError(f"{asked} is answered with the same embedding for different texts")


def flat(vector: list[Any]) -> list[Any]:
    """Return a vector, or those of all tokens as one."""
    return [each for part in vector for each in (part if isinstance(part, list) else [part])]


def try_rerank(talk: Talk) -> None:
    """Documents get scores, and different ones."""
    asked = "a rerank"
    documents = ["Red, yellow and blue are the three primary colours.", "The train to Bern leaves at noon.", "Cheese"]
    body = {
        "model": talk.question.body["model"],
        "query": "Which are the three primary colours?",
        "documents": documents,
    }
    talk.link.until(talk.limit(SHORT))
    reply = accepted(request(talk.link, talk.question, asked, talk.question.path, body), asked)
    said = parsed(reply.body, asked, "what is no rerank")
    try:
        scores = {each["index"]: number(each["relevance_score"]) for each in said["results"]}
    except (LookupError, TypeError, AttributeError, ValueError):
        raise FailedError(f"{asked} is answered with what is no rerank") from None
    if sorted(scores) != list(range(len(documents))):
        raise FailedError(f"{asked} is answered with {len(scores)} scores of {len(documents)}")
    if len(set(scores.values())) == 1:
        raise FailedError(f"{asked} is answered with the same score for different documents")


def number(value: Any) -> float:
    """Return a number that a client can compute with. Raises ValueError where it is none."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or abs(value) > 3.4e38
    ):
        raise ValueError
    return float(value)


PROVES = {"embeddings": Step("an embedding", try_embedding), "rerank": Step("a rerank", try_rerank)}
"""The first step of a server that completes no prompts."""

STEPS = (
    Step("its addresses", try_listening),
    Step("its pages", try_pages),
    Step("its key", try_key, 16, 1),
)
CHAT_STEPS = (
    Step("a stream", try_stream, 8, SHORT),
    Step("several turns", try_turns, 60, SHORT),
    Step("a system message", try_system, 16, SHORT),
    Step("a JSON schema", try_schema, 16, FORMED),
    Step("tools", try_tools, 120, CALLED),
    Step("two prompts at once", try_two, 16, 2 + FORMED),
    Step("a long prompt", try_long, 0, SHORT),
    # Last, since its response may still be written when the next step begins.
    Step("a client that leaves", try_leaving, 16, 2 * SHORT),
)
LAST = Step("its health", try_health)


def prove(talk: Talk, steps: Sequence[Step]) -> None:
    """Do the steps that this host has time for. Raises FailedError at the first that fails."""
    slow = []
    for step in steps:
        talk.tell(step.name)
        took = time.monotonic() - talk.began
        if step.tokens and took + talk.expected(step.prompt, step.tokens) > BUDGET:
            slow.append(step.name)
            continue
        talk.others = bool(step.tokens) and stays_busy(talk.question, LEAVING_SECONDS)
        try:
            step.run(talk)
        except LeftOutError:
            continue
        except FailedError as error:
            if not talk.others or not isinstance(error, NoResponseError):
                raise
            talk.link.close()
            slow.append(step.name)
    if slow:
        why = "it responds to other clients" if talk.others else f"it writes {talk.writes:.1f} tokens/s"
        progress(f"not tried, since {why}: {', '.join(slow)}")


def probe(question: Question, seconds: float) -> tuple[int, str]:
    """Return an exit code and a reason, by a prompt and a stream, or an embedding, within so many seconds."""
    deadline = time.monotonic() + seconds
    talk = Talk(question, deadline, Link(question.url, deadline), others=True)
    try:
        if question.kind in PROVES:
            PROVES[question.kind].run(talk)
        else:
            sees_text(talk, "a prompt")
            try_stream(talk)
    except FailedError as error:
        return (3 if isinstance(error, NoResponseError) else 1), str(error)
    return 0, ""


# After a switch.


def main(path: str, record: str, out: str, how: str, *pids: str) -> tuple[int, str]:
    """Return an exit code and a reason.

    `record`: the speeds that are known; `out`: where they go with this one.
    `how`: `judge` for one that may be taken back for its speed, `any` where any speed will do from now on, `back` for
    one that was put back, `beside` for one that is tried side by side, and nothing for one that is started as before.
    `pids` are its processes. What was put back, or proved side by side a moment ago (PROVED), is proved in short.
    """
    question = read_question(path, pids)
    limit = FIRST_SECONDS
    if (rest := os.environ.get("LEFT", "")).isdecimal():
        limit = max(limit, int(rest))
    first_end = time.monotonic() + min(limit, question.seconds)
    deadline = first_end + LATER_SECONDS
    talk = Talk(question, first_end, Link(question.url, first_end))
    short = how == "back" or bool(os.environ.get("PROVED"))
    try:
        if question.kind in PROVES:
            talk.deadline = first_end
            PROVES[question.kind].run(talk)
            talk.deadline = deadline
            prove(talk, () if short else (*STEPS, LAST))
            return 0, ""
        first = ask(talk, first_end)
        talk.deadline = deadline
        talk.began = time.monotonic()
        if why := undrafted(question, first):
            return 2, why
        if short:
            talk.others = True
            try_stream(talk)
        else:
            prove(talk, (*STEPS, *CHAT_STEPS, LAST))
        known = speeds(record)
        if how == "beside":
            return 0, ""
        if how == "back":
            put_back(talk, first, known, Path(out))
            return 0, ""
        return judged(talk, first, known, Path(out), how)
    except FailedError as error:
        return 1, str(error)


def judged(talk: Talk, first: Answer, known: Speeds, out: Path, how: str) -> tuple[int, str]:
    question = talk.question
    floor, before = question.floor, usual(question, known)
    if how == "any" and not floor and (then := own_speeds(question, known)):
        keep([*others(question, known), *then], out)
        return 0, ""
    best, alone = measured(talk, first, floor or (FLOOR * before if how == "judge" else 0))
    if (declared := max(best, first.rate)) < floor:
        return 2, f"it decodes {declared:.1f} tokens/s, and `expect` allows no less than {floor:g}"
    if not alone or not best or not question.same:
        return 0, ""
    slow = best < FLOOR * before
    if slow and how == "judge" and not floor:
        Path(f"{out}.slow").write_text(str(best), encoding="utf-8")
        why = f"it decodes {best:.1f} tokens/s, and the same model decoded {before:.1f} here before"
        return 2, why + ": `expect: {decode: " + f"{max(best, 0.1):.1f}" + "}` or `herd up --retry` has it so"
    if floor or how == "any" or not slow:
        write(question, others(question, known) if slow else known, best, out)
    return 0, ""


def put_back(talk: Talk, first: Answer, known: Speeds, out: Path) -> None:
    """Write what is known from now on, where this one is as slow itself as what it was put back for."""
    slow = Path(f"{out}.slow")
    if talk.question.same and slow.exists():
        other = float(slow.read_text(encoding="utf-8"))
        best, alone = measured(talk, first, other / FLOOR * 1.001)
        if alone and 0 < best * FLOOR <= other:
            write(talk.question, others(talk.question, known), best, out)


def measured(talk: Talk, first: Answer, enough: float) -> tuple[float, bool]:
    """Return the best of a few tries, 0 where no speed is told, and whether it responded to nobody else then."""
    best = first.rate if first.counts and first.tokens > TOKENS else 0.0
    alone = not in_flight(talk.question)
    most = max(TOKENS, min(MOST_TOKENS, int(first.rate * SECONDS)))
    for _ in range((TRIES if enough else 1) if first.rate else 0):
        if not alone or (best and best >= enough):
            break
        talk.others = False
        said = ask(talk, talk.limit(most), most)
        alone = not in_flight(talk.question)
        best = max(best, said.rate if said.counts else 0)
    return best, alone


def ask(talk: Talk, deadline: float, tokens: int = 0) -> Answer:
    """Return what is measured of the prompt, of which a person can see something."""
    question, asked = talk.question, "a prompt"
    body = question.body | ({"max_tokens": tokens} if tokens else {})
    talk.link.until(deadline)
    before = computed(question.pids)
    reply = accepted(request(talk.link, question, asked, question.path, body), asked)
    after = computed(question.pids)
    said = parsed(reply.body, asked, NO_CHAT)
    found = completion(said, body, question, asked)
    talk.learn(body, said, reply.seconds)
    if not tokens:
        seen(talk, asked, found, talk.ask)
    try:
        return timed(said.get("timings", {}), crowded(before, after))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        raise FailedError(f"{asked} is answered with {NO_CHAT}") from None


def timed(said: Mapping[str, Any], crowded: bool) -> Answer:
    """The first token comes with the prompt: of those after it, engines count one more or less in the same time."""
    count, seconds = int(said.get("predicted_n", 0)), float(said.get("predicted_ms", 0)) / 1000
    drafted, accepted = int(said.get("draft_n", 0)), int(said.get("draft_n_accepted", 0))
    rate = (count - 1) / seconds if seconds > 0 and count > 1 else 0.0
    return Answer(count, drafted, accepted, rate, count >= TOKENS and seconds >= LEAST_SECONDS and not crowded)


def computed(pids: Iterable[str]) -> tuple[int, int]:
    """How long all processors have been there, and how long they have computed for others, in the kernel's ticks."""
    try:
        with Path("/proc/stat").open(encoding="utf-8") as stat:
            user, nice, system, idle, waiting, *more = map(int, stat.readline().split()[1:9])
    except (OSError, ValueError):
        return 0, 0
    busy = user + nice + system + sum(more)
    return busy + idle + waiting, busy - sum(map(own, pids))


def own(pid: str) -> int:
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc", pid, "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    return 0


def crowded(before: tuple[int, int], after: tuple[int, int]) -> bool:
    return after[1] - before[1] > CROWDED * (after[0] - before[0])


def in_flight(question: Question) -> bool:
    """Whether it responds to others, or what was tried beside it does, on the same GPU it may be."""
    beside = os.environ.get("BESIDE")
    return busy(question) or bool(beside and busy(read_question(beside, ())))


def busy(question: Question) -> bool:
    return any(busy_at(url, question) for url in question.metrics)


def stays_busy(question: Question, seconds: float) -> bool:
    """Return whether requests of others are in flight: a server may count one of ours for a moment after its end."""
    end = time.monotonic() + seconds
    while busy(question):
        if time.monotonic() > end:
            return True
        time.sleep(0.02)
    return False


def busy_at(url: str, question: Question) -> bool:
    """Whether requests are in flight, as far as it tells; one that is too busy to tell has some."""
    parts = urlsplit(url)
    link = Link(url, time.monotonic() + 2)
    try:
        reply = begin(link, question, f"{parts.path}?{parts.query}" if parts.query else parts.path, None)
        said = reply.read(LARGEST).decode(errors="replace")
        link.close()
    except TimeoutError:
        return True
    except (OSError, http.client.HTTPException):
        return False
    return any(float(each) for each in BUSY.findall(said))


def undrafted(question: Question, said: Answer) -> str:
    if question.drafts and not said.drafted:
        return "no token was drafted, though drafting is declared"
    if question.drafts and said.drafted >= question.drafts and not said.accepted:
        return f"none of {said.drafted} drafted tokens was accepted: what drafts does not fit the model"
    return ""


def speeds(record: str) -> Speeds:
    """Those that are known, the newest last."""
    with suppress(OSError, ValueError):
        return list(json.loads(Path(record).read_text(encoding="utf-8")))
    return []


def usual(question: Question, known: Speeds) -> float:
    """What the same model decoded on the same GPUs; one that does not draft is not held to one that did."""
    alike = [each for each in known if each["same"] == question.same and each["drafts"] <= bool(question.drafts)]
    return statistics.median_low(each["rate"] for each in alike[-RECENT:]) if alike else 0.0


def others(question: Question, known: Speeds) -> Speeds:
    """Speeds of other models: what was known of this one is so no more."""
    return [each for each in known if each["same"] != question.same]


def own_speeds(question: Question, known: Speeds) -> Speeds:
    """What the very same server decoded here, if it was measured."""
    alike = (each for each in known if each["same"] == question.same and each["drafts"] == bool(question.drafts))
    return [each for each in alike if question.spec is not None and each.get("spec") == question.spec]


def write(question: Question, known: Speeds, best: float, out: Path) -> None:
    one = {"same": question.same, "spec": question.spec, "drafts": bool(question.drafts), "rate": round(best, 3)}
    keep([*known, one], out)


def keep(known: Speeds, out: Path) -> None:
    out.write_text(json.dumps(known[-MOST:]), encoding="utf-8")


def run(arguments: Sequence[str]) -> tuple[int, str]:
    """Return an exit code, and what to print."""
    if arguments[0] == "--short":
        return probe(read_question(arguments[2], ()), float(arguments[1]))
    return main(*arguments)


code, why = run(sys.argv[1:])
sys.stdout.write(why)
sys.exit(code if why else 0)
