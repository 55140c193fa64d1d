"""`herd` itself: options before the command, exit codes, and signals.

Exit codes: 0 done, or nothing to do; 1 something failed, or differs from the plan; 2 wrong usage, or an unusable
inventory; 130 interrupted.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from llamaherd import __version__
from llamaherd.cli.commands import LazyGroup
from llamaherd.cli.common import FAILED, INTERRUPTED, UNUSABLE, fail, inventory_option, json_option, print_findings
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.signals import END_SIGNALS
from llamaherd.text.terminal import MOST_MESSAGE, one_line


class Herd(LazyGroup):
    """The commands, each of which can be interrupted or ended by a signal."""

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        """Return the context of a run, after parsing the options before the command."""
        with _short_usage():
            return super().make_context(*arguments, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command. Ctrl-C ends it with exit code 130, also at a question."""
        try:
            with _signals_raised(), _short_usage():
                return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except InventoryError as error:  # raised by a fleet's own role during the run
            print_findings(error.findings)
            ctx.exit(UNUSABLE)
        except UserError as error:
            fail(error, FAILED)
        except OSError as error:
            if error.filename is None:  # for example an output that cannot be written
                raise
            why = f"cannot access {error.filename}: {error.strerror}"
            fail(UserError(why, "check the path and its mode"), UNUSABLE)


@contextmanager
def _short_usage() -> Iterator[None]:
    """Shorten what click quotes of a command line, such as the name of an unknown option."""
    try:
        yield
    except click.UsageError as error:
        text = error.format_message()
        if len(text) <= MOST_MESSAGE and text.replace("\n", "").replace("\t", "").isprintable():
            raise
        raise click.UsageError(one_line(text), error.ctx) from None


@contextmanager
def _signals_raised() -> Iterator[None]:
    """Raise exceptions for signals that end the program, so that unfinished work is cleaned up."""
    before = {each: signal.getsignal(each) for each in END_SIGNALS}
    try:
        for each, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(each, signal.default_int_handler if each == signal.SIGINT else _ended)
        yield
    except RuntimeError as error:
        # Python before 3.12 wraps an exception that is raised while a class body runs in a RuntimeError.
        if isinstance(error.__cause__, KeyboardInterrupt | SystemExit):
            raise error.__cause__ from None
        raise
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _ended(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


@click.group(
    cls=Herd,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n"
    "  herd check                      report mistakes in ./inventory\n"
    "  herd plan box                   show what will be on the host\n"
    "  herd up box && herd verify box  apply the plan, and check the running servers\n"
    "  herd up -i ~/fleet              use another inventory",
)
@inventory_option
@json_option
@click.version_option(__version__, prog_name="herd")
@click.pass_context
def main(context: click.Context, as_json: bool) -> None:
    """Turn bare machines into verified LLM servers, as declared in YAML.

    -i and --json work before and after the command. Of two inventories, the last is used.
    """
    command = main.get_command(context, context.invoked_subcommand or "")
    if command and as_json and not any(parameter.name == "as_json" for parameter in command.params):
        raise click.UsageError(f"`herd {command.name}` has no JSON output; leave out --json", context)
