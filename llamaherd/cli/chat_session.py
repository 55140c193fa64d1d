"""The runs of `herd chat` and `herd open`: a response, a conversation on the terminal, or the page of a server."""

from __future__ import annotations

import os
import stat
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import click

from llamaherd.cli.chat import ChatOptions, OpenOptions
from llamaherd.cli.common import FAILED, UNUSABLE, echo, exit_on_error, fail, read_or_exit
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.targets import Target, find_target
from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.chat import (
    Chat,
    ChatServer,
    Message,
    Reply,
    chat_server,
    explain_refusal,
    image_url,
    require_page,
    user_message,
)
from llamaherd.host.tunnel import Tunnel, is_free, steady_port
from llamaherd.inventory.schema import LOCAL, Rig
from llamaherd.measure.client import http_client
from llamaherd.pipeline.load import inventory_path, plans, rigs
from llamaherd.pipeline.own_roles import all_roles
from llamaherd.text.terminal import streamed

MOST_STDIN = 4 << 20
"""Bytes of text from a pipe: about a million tokens."""

HISTORY_LINES = 1000
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def run_chat(options: ChatOptions) -> None:
    """Print one response, or chat on the terminal. End the program if that fails."""
    fleet = read_or_exit(lambda: rigs(inventory_path(options.inventory)))
    with exit_on_error(UNUSABLE):
        target, prompt = target_and_prompt(fleet.rigs, options.words)
        prompt = with_piped_text(prompt)
        if prompt is None and (options.as_json or not (sys.stdin and sys.stdin.isatty())):
            raise UserError("there is no prompt", "give it as the last argument, or by a pipe")
        images = [image_url(path) for path in options.images]
    server = planned_server(options.inventory, target)
    try:
        with Chat(server) as chat:
            if images:
                chat.require_vision()
            if prompt is None:
                Conversation(options, server, chat, images).run()
            else:
                _respond_once(options, server, chat, user_message(prompt, images))
    except UserError as error:
        fail(error, FAILED)
    except OutputError as error:
        raise error.cause from None


def planned_server(inventory: Path | None, target: Target) -> ChatServer:
    """Return an instance as it is planned. Print the errors of the inventory, or that it serves no chats, and end."""
    path = inventory_path(inventory)
    rig, plan = read_or_exit(lambda: plans(path, all_roles(path), (target.rig,)))[target.rig]
    with exit_on_error(UNUSABLE):
        return chat_server(rig.connect, plan, target.instance)


def target_and_prompt(fleet: dict[str, Rig], words: tuple[str, ...]) -> tuple[Target, str | None]:
    """Return the instance and the prompt that the arguments contain. Raise UserError.

    A single argument with blanks is a prompt for the only server.
    """
    if len(words) > 2:
        raise UserError(f"there are {len(words)} arguments", "write the prompt in quotation marks")
    if len(words) == 1 and len(words[0].split()) > 1:
        return find_target(fleet, None), words[0]
    return find_target(fleet, words[0] if words else None), words[1] if len(words) == 2 else None


def with_piped_text(prompt: str | None) -> str | None:
    """Return the prompt with the text of stdin, if that is a pipe or a file. Raise UserError if it is too long."""
    kind = os.fstat(sys.stdin.fileno()).st_mode if sys.stdin else 0
    if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind)):
        return prompt
    data = sys.stdin.buffer.read(MOST_STDIN + 1)
    if len(data) > MOST_STDIN:
        raise UserError("the text from stdin has more than 4 MiB", "send a shorter text")
    text = data.decode(errors="replace").strip()
    return "\n\n".join(filter(None, [prompt, text])) or None


def _respond_once(options: ChatOptions, server: ChatServer, chat: Chat, message: Message) -> None:
    messages = [*_system(options), message]
    printer = None if options.as_json else Printer()
    reply = chat.send(messages, options.max_tokens, printer.write if printer else lambda *_: None)
    if printer:
        printer.end()
        if reply.cut_off:
            echo("the response was cut off at the limit of tokens", err=True)
    else:
        print_envelope(Envelope(True, [_as_json(server, reply)]))


def _system(options: ChatOptions) -> list[Message]:
    return [{"role": "system", "content": options.system}] if options.system else []


def _as_json(server: ChatServer, reply: Reply) -> dict[str, object]:
    return {
        "rig": server.rig,
        "instance": server.instance.name,
        "model": server.instance.model,
        "text": reply.text,
        "reasoning": reply.thoughts,
        "finish": reply.finish,
        "tokens": reply.tokens,
        "tokens_per_second": reply.speed and round(reply.speed, 2),
        "first_token_ms": round(reply.first_token_ms, 1),
    }


class OutputError(Exception):
    """Stdout cannot be written: an OSError would count as an error of the connection that is read meanwhile."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass
class Printer:
    """Prints a response while it arrives. Reasoning is dimmed on a terminal, and left out elsewhere."""

    text: str = ""
    _thinks: bool = False
    _line_open: bool = False

    def write(self, thought: str, text: str) -> None:
        """Print a piece of the reasoning, and a piece of the response."""
        self.text += text
        if thought and sys.stdout.isatty():
            self._print(f"{_DIM}{streamed(thought)}{_PLAIN}")
            self._thinks = True
        if text:
            if self._thinks:
                self._print("\n\n")
                self._thinks = False
                text = text.lstrip("\n")
            if shown := streamed(text):
                self._print(shown)
                self._line_open = not shown.endswith("\n")

    def end(self) -> None:
        """Complete the last line."""
        if self._line_open or self._thinks:
            self._print("\n")
        self._line_open = self._thinks = False

    def _print(self, text: str) -> None:
        try:
            click.echo(text, nl=False, color=True)
        except OSError as error:
            raise OutputError(error) from None


class Conversation:
    """A chat on the terminal."""

    def __init__(self, options: ChatOptions, server: ChatServer, chat: Chat, images: list[str]) -> None:
        self._options, self._server, self._chat = options, server, chat
        self._messages: list[Message] = _system(options)
        self._images = images

    def run(self) -> None:
        """Read messages and print responses until Ctrl-D."""
        echo(f"{self._server.name}, {self._server.instance.model}", err=True)
        echo("Ctrl-C stops a response, /clear starts a new conversation, Ctrl-D exits", err=True)
        with line_history():
            while (line := _read_line()) is not None:
                if line == "/clear":
                    self._messages = _system(self._options)
                    echo("new conversation", err=True)
                elif line:
                    self._exchange(line)

    def _exchange(self, line: str) -> None:
        """Send a message and print the response. A message without any response is forgotten."""
        before = len(self._messages)
        printer = Printer()
        try:
            self._messages.append(user_message(line, self._images))
            reply = self._chat.send(self._messages, self._options.max_tokens, printer.write)
        except KeyboardInterrupt:
            printer.end()
            echo("stopped", err=True)
        except UserError as error:
            printer.end()
            echo(f"error: {error}", err=True)
        else:
            printer.end()
            echo(_summary(reply), err=True)
        if printer.text:
            self._messages.append({"role": "assistant", "content": printer.text})
            self._images = []
        else:
            del self._messages[before:]


def _summary(reply: Reply) -> str:
    parts = [f"{reply.tokens:,} tokens"] if reply.tokens else []
    parts += [f"{reply.speed:.0f} t/s" if reply.speed >= 10 else f"{reply.speed:.1f} t/s"] if reply.speed else []
    parts += ["cut off at the limit of tokens"] if reply.cut_off else []
    return ", ".join(parts)


def _read_line() -> str | None:
    """Return a line from the terminal; None at its end. Ctrl-C discards the line."""
    while True:
        try:
            return input("> ").strip()
        except EOFError:
            echo("")
            return None
        except KeyboardInterrupt:
            echo("")


def history_file() -> Path:
    """Return the file with the messages that you typed."""
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return folder / "llamaherd" / "chat_history"


@contextmanager
def line_history() -> Iterator[None]:
    """Let `input` use the history of earlier chats, which is kept in a file with mode 0600."""
    import readline  # late: it changes how `input` reads

    file = history_file()
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        file.chmod(0o600)
        readline.read_history_file(file)
    readline.set_history_length(HISTORY_LINES)
    try:
        yield
    finally:
        with suppress(OSError):
            readline.write_history_file(file)
            file.chmod(0o600)


def run_open(options: OpenOptions) -> None:
    """Open a server's page, and wait for Ctrl-C. Print errors and end the program if that fails."""
    fleet = read_or_exit(lambda: rigs(inventory_path(options.inventory)))
    with exit_on_error(UNUSABLE):
        target = find_target(fleet.rigs, options.target)
        if options.port and not is_free(options.port):
            raise UserError(f"port {options.port} of this machine is in use", "choose another with `--port`")
    server = planned_server(options.inventory, target)
    try:
        _open(server, options)
    except KeyboardInterrupt:
        echo("")
    except UserError as error:
        fail(error, FAILED)


def _open(server: ChatServer, options: OpenOptions) -> None:
    """Open the page, and wait until the connection ends. Raise UserError."""
    with Tunnel(server.connect, server.instance.endpoint, options.port or steady_port(server.name)) as tunnel:
        try:
            require_page(http_client.Target(tunnel.url, server.key()), server.name)
        except UserError as error:
            raise explain_refusal(server, tunnel.failure()) or error from None
        click.echo(tunnel.url)
        if key := server.instance.endpoint.key:
            place = f"in {key.file}" if key.file else f"the value of {key.env}"
            echo(f"if the page prompts for an API key, it is {place}", err=True)
        if options.browser and _has_browser():
            webbrowser.open(tunnel.url)
        if server.connect.host != LOCAL:
            echo("Ctrl-C ends the tunnel", err=True)
            tunnel.keep_open()


def _has_browser() -> bool:
    """Return whether this machine has a screen: a browser for terminals would take the terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
