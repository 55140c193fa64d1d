"""Chat with a server: its tunnel, its requests, and the responses as they arrive."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.host.tunnel import NotListeningError, Tunnel
from llamaherd.inventory.api_keys import UnreadableKeyError, read_key
from llamaherd.inventory.schema import Connect
from llamaherd.measure.client.http_client import (
    Failure,
    JsonResponse,
    OnText,
    Patience,
    StreamedResponse,
    Target,
    request_json,
    stream_response,
)
from llamaherd.onhost.server_control import Pauses
from llamaherd.onhost.verbs import NoInput
from llamaherd.plan import InstancePlan, Plan
from llamaherd.plan.instance import require_chats
from llamaherd.plan.plan import instances_of
from llamaherd.text.textfile import UnreadableError, read_bytes

PATIENCE = Patience(first=900, silence=180, total=3600)
"""A model may have to be loaded, and a long prompt takes minutes."""

_PAUSES_SECONDS = 30
_DAY = 86_400

MOST_IMAGE = 32 << 20
"""Bytes of an image."""

_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
}
"""The types of images by their first bytes. WebP has its name at the ninth byte."""

Message = dict[str, Any]
"""A message in the form of OpenAI's API."""


@dataclass(frozen=True)
class ChatServer:
    """A planned instance to chat with, and how to connect to its host."""

    rig: str
    connect: Connect
    instance: InstancePlan

    @property
    def name(self) -> str:
        """Its name in messages, `RIG/INSTANCE`."""
        return f"{self.rig}/{self.instance.name}"

    def key(self) -> str | None:
        """Return its API key, if it has one. Raise UserError if the key cannot be read."""
        secret = self.instance.endpoint.key
        try:
            return read_key(secret) if secret else None
        except UnreadableKeyError as error:
            raise UserError(str(error), "put the key there") from None


@dataclass(frozen=True)
class Reply:
    """A complete response: its text without the thoughts, why it ended, its tokens, and the tokens per second."""

    text: str
    thoughts: str
    finish: str | None
    tokens: int | None
    speed: float | None
    first_token_ms: float

    @property
    def cut_off(self) -> bool:
        """Return whether it ended at the limit of tokens."""
        return self.finish == "length"


def chat_server(connect: Connect, plan: Plan, name: str) -> ChatServer:
    """Return an instance of a plan. The name of a group stands for its first instance.

    Raise UserError for a server of embeddings or rerank.
    """
    instances = [(server, each) for server in plan.instances for each in instances_of(server)]
    found = next(each for server, each in instances if name in (each.name, server.name))
    require_chats(found, "`herd chat` or its page")
    return ChatServer(plan.rig, connect, found)


def user_message(text: str, images: Sequence[str] = ()) -> Message:
    """Return a message of the user, with images as data URLs."""
    if not images:
        return {"role": "user", "content": text}
    parts = [{"type": "image_url", "image_url": {"url": each}} for each in images]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def image_url(path: Path) -> str:
    """Return an image as a data URL. Raise UserError if the file cannot be read or has another type."""
    try:
        data = read_bytes(path, MOST_IMAGE)
    except UnreadableError as error:
        raise UserError(f"cannot read the image {path}: {error}", "name a file of at most 32 MiB") from None
    webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    kind = "image/webp" if webp else next((each for first, each in _IMAGES.items() if data.startswith(first)), None)
    if kind is None:
        raise UserError(f"{path} is not an image of a known type", "convert it to PNG or JPEG")
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


class Chat:
    """A chat with a server. The tunnel is opened before a request, and again after the connection was lost."""

    def __init__(self, server: ChatServer, patience: Patience = PATIENCE) -> None:
        self._server, self._patience = server, patience
        self._opened = ExitStack()
        self._tunnel: Tunnel | None = None

    def __enter__(self) -> Self:
        """Return the chat."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the connection."""
        self._opened.close()

    def require_vision(self) -> None:
        """Raise UserError if the server reports that its model reads no images."""
        endpoint = self._server.instance.endpoint
        if endpoint.props_path is None:
            return
        path = endpoint.of_model(endpoint.props_path, self._server.instance.model, load=True)
        found = request_json(self._connected(), path, patience=self._patience)
        if isinstance(found, Failure):
            raise self._error(found)
        if _vision(found) is False:
            raise UserError(
                f"the model of {self._server.name} reads no images",
                "leave out --image, or set `mmproj` of the model to the file of its vision projector",
            )

    def send(self, messages: Sequence[Message], most_tokens: int | None, on_text: OnText) -> Reply:
        """Send a conversation, and return the response. `on_text` receives it while it arrives. Raise UserError."""
        body: dict[str, Any] = {
            "model": self._server.instance.model,
            "messages": list(messages),
            "stream_options": {"include_usage": True},
        }
        if most_tokens is not None:
            body["max_tokens"] = most_tokens
        thoughts: list[str] = []
        texts: list[str] = []

        def hear(thought: str, text: str) -> None:
            thoughts.append(thought)
            texts.append(text)
            on_text(thought, text)

        path = self._server.instance.endpoint.chat_path
        found = stream_response(self._connected(), path, body, self._patience, on_text=hear)
        if isinstance(found, Failure):
            raise self._error(found)
        return _reply(found, "".join(thoughts), "".join(texts))

    def _connected(self) -> Target:
        """Return the server's address, with its key. Connect if there is no connection. Raise UserError."""
        if self._tunnel is None or not self._tunnel.alive:
            self._opened.close()
            key = self._server.key()
            endpoint = self._server.instance.endpoint
            self._tunnel = self._opened.enter_context(Tunnel(self._server.connect, endpoint))
            self._target = Target(self._tunnel.url, key)
        return self._target

    def _error(self, failure: Failure) -> UserError:
        """Return the error of a failed request. If the connection failed, the next request opens a new one."""
        if failure.why in ("unreachable", "cut", "late") and self._tunnel:
            reason = explain_refusal(self._server, self._tunnel.failure())
            self._opened.close()
            self._tunnel = None
            if reason:
                return reason
        rig = self._server.rig
        fixes = {
            "key": f"the host has another key: run `herd up {rig}`",
            "unreachable": f"see its state with `herd status {rig}`, and start it with `herd up {rig}`",
            "empty": "raise --max-tokens, or see the server's log",
        }
        return UserError(f"{self._server.name}: {failure.message}", fixes.get(failure.why, failure.help))


def explain_refusal(server: ChatServer, error: UserError | None) -> UserError | None:
    """Return that the server is paused, if its host refused the connection and reports a pause; else the error."""
    if not isinstance(error, NotListeningError):
        return error
    try:
        found = query_verb(
            Remote(server.connect), "llamaherd.server_control.pauses", NoInput(), Pauses, _PAUSES_SECONDS
        )
    except RemoteError:
        return error
    left = found.left.get(server.instance.service.removeprefix("llama-"))
    if left is None:
        return error
    end = datetime.now() + timedelta(seconds=left)
    shown = end.strftime("%H:%M" if left < _DAY else "%Y-%m-%d %H:%M")
    return UserError(f"{server.name} is paused until {shown}", f"start it now with `herd resume {server.name}`")


def _vision(props: JsonResponse) -> object:
    """Return whether a server reports that it reads images; None if it does not report it."""
    modalities = props.value.get("modalities") if isinstance(props.value, dict) else None
    return modalities.get("vision") if isinstance(modalities, dict) else None


def _reply(response: StreamedResponse, thoughts: str, text: str) -> Reply:
    """Return a response with the tokens and the speed that the engine reports, otherwise the client's."""
    timings, usage = response.timings, response.usage
    if timings and timings.predicted_n and timings.predicted_ms:
        tokens: int | None = timings.predicted_n
        milliseconds, counted = timings.predicted_ms, timings.predicted_n
    else:
        tokens = usage.completion if usage else None
        milliseconds, counted = response.last_token_ms - response.first_token_ms, (tokens or 1) - 1
    speed = 1000 * counted / milliseconds if counted > 0 and milliseconds > 0 else None
    return Reply(text, thoughts, response.finish, tokens, speed, response.first_token_ms)


_NOT_FOUND, _UNSUPPORTED = 404, 415
"""Statuses without a page, and of a page that is stored compressed, for a client that reads no gzip."""


def require_page(target: Target, name: str) -> None:
    """Raise UserError if a server responds without a page at `/`, or does not respond."""
    found = request_json(target, "/")
    if not isinstance(found, Failure) or found.status == _NOT_FOUND:
        raise UserError(
            f"the server of {name} has no page: its engine has none, or was built without one",
            f"chat on the terminal with `herd chat {name}`; for a page, use llama.cpp with `ref:` set to a build, "
            "such as `b11434` (`herd explain serve`)",
        )
    if found.status != _UNSUPPORTED and found.why != "nonsense":
        raise UserError(f"{name}: {found.message}", found.help)
