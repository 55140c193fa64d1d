"""`herd`: check, plan, lock, preflight, diff, up, verify, bench, compare, report, tune, history, rollback, models.

Exit codes: 0 done, or nothing to do; 1 something failed, or is not as declared; 2 wrong usage, or an inventory that
cannot be used; 130 interrupted. Imports stand inside the commands: --help and completion answer at once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from llamaherd import __version__
from llamaherd.cli.bench import bench
from llamaherd.cli.check import check
from llamaherd.cli.clients import clients
from llamaherd.cli.common import FAILED, INTERRUPTED, UNUSABLE, fail, inventory_option, json_option, show
from llamaherd.cli.compare import compare
from llamaherd.cli.diff import diff
from llamaherd.cli.drain import drain
from llamaherd.cli.explain import explain
from llamaherd.cli.fit import fit
from llamaherd.cli.gateway import gateway
from llamaherd.cli.history import history
from llamaherd.cli.init import init
from llamaherd.cli.lock import lock
from llamaherd.cli.models import models
from llamaherd.cli.monitoring import monitoring
from llamaherd.cli.plan import plan
from llamaherd.cli.preflight import preflight
from llamaherd.cli.prune import prune
from llamaherd.cli.ready import ready
from llamaherd.cli.report import report
from llamaherd.cli.rollback import rollback
from llamaherd.cli.schema import schema
from llamaherd.cli.status import status
from llamaherd.cli.tune import tune
from llamaherd.cli.unlock import unlock
from llamaherd.cli.up import up
from llamaherd.cli.users import users
from llamaherd.cli.verify import verify
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.signals import END_SIGNALS
from llamaherd.text.terminal import MOST_MESSAGE, one_line


class Herd(click.Group):
    """The commands, any of which may be interrupted or ended."""

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        """Return the context of a run, which begins with reading the options before the command."""
        with _short_usage():
            return super().make_context(*arguments, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; Ctrl-C ends it with the shell's own code for that, also where it was asked something."""
        try:
            with _raised(), _short_usage():
                return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except InventoryError as error:  # of a fleet's own role, which is asked when its turn comes
            show(error.findings)
            ctx.exit(UNUSABLE)
        except UserError as error:
            fail(error, FAILED)
        except OSError as error:
            if error.filename is None:  # such as an output that takes nothing
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
def _raised() -> Iterator[None]:
    """Signals that end a program as exceptions meanwhile, so that what it has begun is put away."""
    before = {each: signal.getsignal(each) for each in END_SIGNALS}
    try:
        for each, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(each, signal.default_int_handler if each == signal.SIGINT else _ended)
        yield
    except RuntimeError as error:
        # Python before 3.12 has one of its own in the place of what is raised while a class is made.
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
    "  herd check                      is the inventory right?\n"
    "  herd plan box                   what would be on the host\n"
    "  herd up box && herd verify box  make it so, and ask whether it is so\n"
    "  herd up -i ~/fleet              another inventory than ./inventory",
)
@inventory_option
@json_option
@click.version_option(__version__, prog_name="herd")
@click.pass_context
def main(context: click.Context, as_json: bool) -> None:
    """From bare machines to verified LLM servers, declared in YAML.

    -i and --json may also stand after the command. Of two inventories, the later counts.
    """
    command = main.commands[context.invoked_subcommand or ""]
    if as_json and not any(parameter.name == "as_json" for parameter in command.params):
        raise click.UsageError(f"`herd {command.name}` has no output for machines; leave out --json", context)


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script by which a shell completes commands.

    It completes rigs and instances, too.

    \b
    Example:
      herd completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    click.echo(kind(main, {}, "herd", "_HERD_COMPLETE").source())


for command in (
    *(init, schema, explain, check, plan, lock, fit, preflight),
    *(diff, up, unlock, verify, bench, compare, report, tune, history, rollback, models, prune),
    *(users, clients, gateway, drain, ready, status, monitoring),
):
    main.add_command(command)
