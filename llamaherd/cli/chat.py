"""`herd chat`: chat with a running server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import inventory_option, json_option
from llamaherd.cli.targets import complete_targets


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
