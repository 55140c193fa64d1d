"""`herd chat` and `herd open`: chat with a running server, or open its own page in the browser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import inventory_option, json_option
from llamaherd.cli.targets import complete_targets, optional_target_argument


@dataclass(frozen=True)
class ChatOptions:
    """The options of `herd chat`: `words` are the instance, the prompt, or both."""

    inventory: Path | None
    words: tuple[str, ...]
    system: str | None
    images: tuple[Path, ...]
    max_tokens: int | None
    as_json: bool


@click.command()
@click.argument("words", metavar="[[RIG/]INSTANCE] [PROMPT]", nargs=-1, shell_complete=complete_targets)
@click.option("--system", metavar="TEXT", help="The system prompt.")
@click.option(
    "--image",
    "images",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="An image for the first message, if the model reads images. Repeatable.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 1 << 20),
    metavar="N",
    help="The most tokens of a response. Default: no limit.",
)
@inventory_option
@json_option
@click.pass_obj
def chat(inventory: Path | None, /, **options: Any) -> None:
    """Chat with a running server.

    `herd chat` opens an SSH tunnel to the server, sends its API key, and prints the response while it arrives. With
    PROMPT, it prints one response and exits. Text from a pipe is added to PROMPT, or replaces it. Without both, you
    chat on the terminal: Ctrl-C stops a response, `/clear` starts a new conversation, and Ctrl-D exits.

    A single word is an INSTANCE; a single argument with blanks is a PROMPT for the only server. A group uses its first
    instance; name another instance of it to load that model. A model's reasoning is dimmed on the terminal, and left
    out elsewhere.

    Exit codes: 0 done; 1 no complete response; 2 wrong usage, or an unusable inventory; 130 interrupted.

    \b
    Examples:
      herd chat                                    chat with the only server
      herd chat duo/coder                          chat with one of several
      herd chat duo/coder "What is a monad?"       one response
      git diff | herd chat "Review this change."   with text from a pipe
      herd chat --image cat.jpg "What is this?"    with an image
      herd chat duo/coder "Hello" --json           with tokens and speed, as JSON
    """
    from llamaherd.cli.chat_session import run_chat  # late: the help needs none of it

    run_chat(ChatOptions(inventory, **options))


@dataclass(frozen=True)
class OpenOptions:
    """The options of `herd open`."""

    inventory: Path | None
    target: str | None
    port: int | None
    browser: bool


@click.command(name="open")
@optional_target_argument
@click.option(
    "--port",
    type=click.IntRange(1024, 65535),
    metavar="N",
    help="The port of this machine. Default: the same one for each instance, from 20000 to 29999.",
)
@click.option("--no-browser", "browser", flag_value=False, default=True, help="Only print the URL.")
@inventory_option
@click.pass_obj
def open_(inventory: Path | None, /, **options: Any) -> None:
    """Open a server's own page in the browser.

    It opens an SSH tunnel to the server, prints the URL, and runs until Ctrl-C. The page prompts for the API key of the
    server, if it has one. The browser stores conversations by the port.

    Exit codes: 0 ended by Ctrl-C; 1 the server has no page, or cannot be reached; 2 an unusable inventory.

    \b
    Examples:
      herd open                           the only server
      herd open duo/coder                 one of several
      herd open duo/coder --port 9000     at http://127.0.0.1:9000
      herd open duo/coder --no-browser    for a browser on another machine
    """
    from llamaherd.cli.chat_session import run_open  # late: the help needs none of it

    run_open(OpenOptions(inventory, **options))
