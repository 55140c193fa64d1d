"""The command `herd`: its commands in groups, each imported when it is used, its exit codes, and signals.

Exit codes: 0 done, or nothing to do; 1 something failed, or differs from the plan; 2 wrong usage, or an unusable
inventory; 130 interrupted.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

import click
from click.exceptions import NoArgsIsHelpError
from click.shell_completion import CompletionItem

from llamaherd import __version__
from llamaherd.cli.common import (
    FAILED,
    FEWEST_COLUMNS,
    HINT,
    INTERRUPTED,
    UNUSABLE,
    fail,
    fitted,
    inventory_option,
    json_option,
    print_errors,
    terminal_columns,
)
from llamaherd.cli.envelope import failure_printed, note_error
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.signals import END_SIGNALS
from llamaherd.text.terminal import MOST_MESSAGE, one_line

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Start": {
        "init": "Create a fleet folder with a first rig.",
        "add": "Declare an instance of a model where it fits on a rig.",
        "import": "Declare the servers of a script, a unit or another file.",
        "up": "Apply the plan to the hosts.",
        "chat": "Chat with a running server.",
        "open": "Open a server's own page in the browser.",
    },
    "Change": {
        "edit": "Open the file of a rig in an editor, and check it.",
        "check": "Report mistakes in an inventory or in a recipe.",
        "plan": "Show what `herd up` would change.",
        "upgrade": "Move to the newest versions, and apply them.",
        "rollback": "Restore the servers of an earlier release.",
        "stop": "Stop a server, or all servers of a rig.",
        "start": "Start a server, or all servers of a rig.",
        "restart": "Restart a server, or all servers of a rig.",
        "pause": "Stop a server for some time, so that its GPUs are free.",
        "resume": "End the pause of a server, or of all servers of a rig.",
        "down": "Remove servers, gateway and monitoring from a host.",
    },
    "Look": {
        "status": "Show servers, streams, speeds and GPUs of the fleet.",
        "logs": "Print the log of a server.",
        "top": "Show GPU memory, watts and speed of each server process.",
        "verify": "Check the running servers against the plan.",
        "doctor": "Report what is wrong here and on the hosts, and the fix.",
        "show": "Show the desired state of each host.",
        "history": "List the releases of each host.",
        "outdated": "Show locked and newest versions of engines, images and models.",
        "models": "List the models on the hosts, or remove unused ones.",
        "ssh": "Open a shell on a host, or run a command there.",
    },
    "Measure": {
        "bench": "Measure how fast a running server is.",
        "compare": "Compare two measurements, with a verdict on each speed.",
        "tune": "Search for settings that make an instance faster.",
        "report": "Show all measurements on one page.",
        "fit": "Show whether a model fits on given GPUs, and how.",
    },
    "People": {
        "gateway": "Show the state of the gateway, or print its CA.",
        "users": "Manage gateway users and their API keys.",
        "clients": "Print the settings with which a program uses the gateway.",
        "drain": "Stop sending new requests to a server.",
        "ready": "Send requests to a drained server again.",
        "monitoring": "Write Grafana dashboards, or a timer that reports drift.",
    },
    "Other": {
        "lock": "Resolve tags and branches to exact versions.",
        "preflight": "Compare each host with the plan, without changing it.",
        "diff": "The same as `herd plan`.",
        "prune": "Remove unused builds, images, models and sources.",
        "unlock": "Break the lock of a run on a host.",
        "support-bundle": "Write what explains a fault into one file, without secrets.",
        "explain": "Print the page of a finding, or another page of docs/.",
        "schema": "Print the JSON Schema of a file, for editors.",
        "completion": "Print the completion script of a shell.",
    },
}
"""The commands by task, each group with the most frequent ones first."""


MODULES: Mapping[str, str] = {
    "clients": "users",
    "init": "add",
    "import": "add",
    "open": "chat",
    "plan": "up",
    "diff": "up",
    "upgrade": "up",
    "down": "up",
    "preflight": "verify",
    "support-bundle": "doctor",
    "unlock": "ssh",
    "completion": "schema",
    "top": "status",
    "drain": "gateway",
    "ready": "gateway",
    "rollback": "history",
    "stop": "servers",
    "start": "servers",
    "restart": "servers",
    "pause": "servers",
    "resume": "servers",
}
"""The modules of commands that share one. Other commands have a module of their name."""


ATTRIBUTES: Mapping[str, str] = {"import": "import_", "open": "open_"}
"""The attributes of commands whose names are built-in functions, or words of Python."""


_ERROR = "Error: "
"""What click prints before a message."""
_NO_NUMBER = ("is not a valid integer range", "is not a whole number")
"""What click calls a text in place of a number, and what a user understands."""
OTHER_TOOLS: Mapping[str, str] = {
    **dict.fromkeys(("apply", "deploy", "install", "sync", "converge", "provision"), "run `herd up`"),
    **dict.fromkeys(("ps", "ls", "list", "get"), "run `herd status`"),
    **dict.fromkeys(("validate", "lint"), "run `herd check`"),
    **dict.fromkeys(("run", "prompt", "ask"), "run `herd chat`"),
    **dict.fromkeys(("exec", "shell"), "run `herd ssh`"),
    **dict.fromkeys(("nvidia-smi", "htop", "nvtop"), "run `herd top`"),
    **dict.fromkeys(("pull", "download", "fetch"), "declare the model with `herd add`; `herd up` fetches it"),
    **dict.fromkeys(
        ("remove", "rm", "delete", "destroy", "uninstall"),
        "remove it from the inventory and run `herd up`; `herd down attic` removes all servers of a host",
    ),
    "config": "run `herd show`",
    "help": "write `--help` behind the command, as in `herd up --help`",
    "version": "run `herd --version`",
}
"""Commands of other tools, which `herd` does not have."""

_RIGS = "name the rigs without an option, as in `herd {command} attic`"
_OPTIONS: Mapping[tuple[str, str], str] = {
    **dict.fromkeys((("up", "--check"), ("up", "--diff")), "`herd plan` shows the changes and makes none"),
    **dict.fromkeys((("logs", "--tail"), ("logs", "-t")), "write `--lines N`, or `-n N`"),
    **dict.fromkeys((("plan", "-o"), ("plan", "--out"), ("plan", "--output")), "write `--save FILE`"),
    **dict.fromkeys((("fit", "--gpu"), ("fit", "--gpus")), "write the memory of each GPU, as `--vram 24G`"),
}
"""Options of other tools, by command."""
_VALUES = {"--lock-wait": "write seconds, such as `--lock-wait 600`", "--to": "`herd history` lists the releases"}
"""Options with a help for each invalid value."""
_NAMING = ("-l", "--host", "--hosts", "--rig", "--target")
"""Options with which other tools name hosts."""
_END = re.compile(r"(?<=[( ])(?:(?P<length>\d+[smhd])|\d\d?:\d\d)(?=[) ])", re.ASCII)
"""The length or the end of a pause, as a further argument."""
_OPTION = re.compile(r"--?[a-z-]{1,20}")
_HYPHENS = "\u2010-\u2015\u2212\ufe58\ufe63\uff0d"
_DASHES = re.compile(rf"(?=-*[{_HYPHENS}])[-{_HYPHENS}]+([A-Za-z][\w-]*)(=.*)?", re.DOTALL)
"""An option that begins with another dash than a hyphen, as on a web page."""


class LazyGroup(click.Group):
    """A group of commands in which the module of a command is imported when the command is called or shows its help."""

    def __init__(self, **attributes: Any) -> None:
        """Add a placeholder with the line of help for each command: click suggests names from these."""
        rows = {name: click.Command(name, short_help=line) for group in GROUPS.values() for name, line in group.items()}
        super().__init__(commands=rows, **attributes)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is no command of this name."""
        if super().get_command(ctx, cmd_name) is None:
            return None
        name = cmd_name.replace("-", "_")
        module = import_module(f"llamaherd.cli.{MODULES.get(cmd_name, name)}")
        command: click.Command = getattr(module, ATTRIBUTES.get(cmd_name, name))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command and its words. Raise UsageError, with a help for words of other tools."""
        if (help_ := OTHER_TOOLS.get(args[0])) and args[0] not in self.commands and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command '{args[0]}'.\n  help: {help_}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if command and not ctx.resilient_parsing:
            refuse_other_dashes(ctx, command, rest)
        return name, command, rest

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in groups, without importing them."""
        for title, lines in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([*lines.items()], col_max=max(map(len, self.commands)))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with a word, without importing the commands."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self.commands[name].short_help) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


class Herd(LazyGroup):
    """The commands, each of which can be interrupted or ended by a signal."""

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        """Return the context of a run, after parsing the options before the command."""
        with _short_usage():
            return super().make_context(*arguments, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command. Ctrl-C ends it with exit code 130, also at a question. With --json, errors are JSON, too."""
        with failure_printed(ctx):
            try:
                with _signals_raised(), _short_usage():
                    return super().invoke(ctx)
            except (KeyboardInterrupt, click.Abort):
                note_error(UserError("interrupted", ""))
                click.echo("; ".join(filter(None, ["interrupted", ctx.meta.get(HINT)])), err=True)
                ctx.exit(INTERRUPTED)
            except InventoryError as error:  # raised by a fleet's own role during the run
                print_errors(error.findings)
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
    """Shorten what click quotes of a command line, such as the name of an unknown option, and add a help."""
    try:
        yield
    except NoArgsIsHelpError:  # its message is the help of a group
        raise
    except click.UsageError as error:
        help_ = usage_help(error)
        is_unknown = help_ and isinstance(error, click.NoSuchOption)  # without click's own guess
        text = (error.message if is_unknown else error.format_message()).replace(*_NO_NUMBER)
        if len(text) > MOST_MESSAGE or not text.replace("\n", "").replace("\t", "").isprintable():
            text = one_line(text)
        elif not help_ and _NO_NUMBER[1] not in text and len(text) < FEWEST_COLUMNS:
            raise
        lines = fitted(f"{_ERROR}{text}\n  help: {help_}" if help_ else f"{_ERROR}{text}", terminal_columns(err=True))
        raise click.UsageError("\n".join(lines).removeprefix(_ERROR), error.ctx) from None


def usage_help(error: click.UsageError) -> str:
    """Return the help for an error of a command line; empty if click's own message has all of it."""
    context = error.ctx
    if context is None:
        return ""
    command = context.command
    if isinstance(error, click.NoSuchOption):
        return _option_help(context, error.option_name)
    if isinstance(error, click.BadParameter) and error.param:
        return next((_VALUES[each] for each in error.param.opts if each in _VALUES), "")
    if error.message.startswith("Got unexpected extra argument"):
        if command.name == "lock":
            return "`herd lock` is for the whole fleet; `herd lock --upgrade NAME` moves one version"
        if command.name == "pause" and (end := _END.search(error.message)):
            return f"write `--{'for' if end['length'] else 'until'} {end[0]}`"
        if any(each.name == "target" for each in command.params):
            return "write rig and instance as one word: `attic/chat`"
    return ""


def _option_help(context: click.Context, option: str) -> str:
    if context.parent is None:
        if option == "-V":
            return "run `herd --version`"
        return f"options follow the command, as in `herd up {option}`" if _OPTION.fullmatch(option) else ""
    name = context.command.name or ""
    if option in _NAMING and any(each.name == "rigs" for each in context.command.params):
        return _RIGS.format(command=name)
    return _OPTIONS.get((name, option), "")


def refuse_other_dashes(context: click.Context, command: click.Command, words: Sequence[str]) -> None:
    """Raise UsageError for an option of the command that begins with another dash than a hyphen."""
    names = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    for word in words:
        if word == "--":
            return
        if found := _DASHES.fullmatch(word):
            meant = next((each for each in (f"--{found[1]}", f"-{found[1]}") if each in names), None)
            if meant:
                message = f"`{word}` begins with a dash that is no hyphen\n  help: write `{meant}{found[2] or ''}`"
                raise click.UsageError(message, context)


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
    "  herd init ~/fleet --from attic.lan  declare a host, with a model that fits\n"
    "  herd up                             apply the plan to all hosts\n"
    "  herd chat                           talk to a server\n"
    "  herd plan; herd up attic            show all changes, then change one rig\n"
    "  herd logs attic/chat -f             follow the log of a server",
)
@inventory_option
@json_option
@click.version_option(__version__, prog_name="herd")
@click.pass_context
def main(context: click.Context, as_json: bool) -> None:
    """Turn bare machines into verified LLM servers, as declared in YAML.

    -i and --json work before and after the command. Of two inventories, the last is used. NO_COLOR=1 turns colours off.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False
    command = main.get_command(context, context.invoked_subcommand or "")
    if command and as_json and not any(parameter.name == "as_json" for parameter in command.params):
        raise click.UsageError(f"`herd {command.name}` has no JSON output; leave out --json", context)
