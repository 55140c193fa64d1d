"""What all commands share: exit codes, options, and printing of text, findings and errors.

`herd --help` imports this module: it imports no other package that takes long to load.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from click.shell_completion import CompletionItem

from llamaherd.cli.envelope import COMMAND, JSON, note_error, note_findings
from llamaherd.diagnostics.findings import MOST_SHOWN, Finding, InventoryError, UserError, to_print
from llamaherd.inventory.file_writer import write_atomically
from llamaherd.layout import IN_REACH, LOCK_WAIT
from llamaherd.text.terminal import plain
from llamaherd.text.textfile import lines_of

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig

FAILED, UNUSABLE, INTERRUPTED = 1, 2, 130
QUIET, LIMIT, HINT = "llamaherd.quiet", "llamaherd.limit", "llamaherd.hint"
"""Keys of a context's `meta`, which commands share."""
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
FEWEST_COLUMNS = 40
"""The width for which findings are printed on a narrower terminal."""
MOST_SOURCE = 4 << 20
"""The most bytes of a file whose lines are shown: a lock has up to 3 MiB."""

RESUME_HINT = "results so far are saved: run the same command again to resume"

T = TypeVar("T")


def _store_inventory(context: click.Context, _parameter: click.Parameter, value: Path | None) -> None:
    """Store the inventory's path as the object of the commands. The last option on the command line wins."""
    if value is not None:
        context.obj = value


def _store_json(context: click.Context, _parameter: click.Parameter, value: bool) -> bool:
    """Return whether --json is set here or before the command: a context shares `meta` with its commands."""
    context.meta[JSON] = value or context.meta.get(JSON, False)
    context.meta[COMMAND] = " ".join(context.command_path.split()[1:])
    return bool(context.meta[JSON])


def _store_quiet(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """Store whether only errors and results are printed."""
    context.meta[QUIET] = value


def is_quiet() -> bool:
    """Return whether the running command prints only errors and its result."""
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(QUIET))


keep_option = click.option(
    "--keep",
    type=click.IntRange(0, 1000),
    metavar="N",
    default=IN_REACH,
    show_default=True,
    help="Number of successful releases whose builds, images and models are kept.",
)
inventory_option = click.option(
    "-i",
    "--inventory",
    type=click.Path(path_type=Path),
    expose_value=False,
    callback=_store_inventory,
    help="A rig's YAML file, or a folder of them. Default: the fleet folder you are in, else HERD_INVENTORY.",
)
lock_wait_option = click.option(
    "--lock-wait",
    type=click.IntRange(0, LOCK_WAIT),
    metavar="SECONDS",
    default=LOCK_WAIT,
    show_default=True,
    help="How long to wait for another run on a host.",
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, expose_value=False, callback=_store_quiet, help="Print only errors and the result."
)
json_option = click.option("--json", "as_json", is_flag=True, callback=_store_json, help="Print one JSON document.")
json_lines_option = click.option(
    "--json", "as_json", is_flag=True, callback=_store_json, help="Print a JSON object for each line."
)


def declared_rigs(path: Path | None) -> Mapping[str, Rig]:
    """Return the rigs of an inventory, to complete their names; none if the inventory has mistakes."""
    from llamaherd.pipeline.load import inventory_path, rigs  # late: the help of a command needs no inventory

    try:
        return rigs(inventory_path(path)).rigs
    except InventoryError:
        return {}


def complete_rigs(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the inventory's rigs that begin with a word."""
    return [CompletionItem(name) for name in declared_rigs(context.obj) if name.startswith(typed)]


def complete_instances(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the instances and groups of the rig that is named before them."""
    rig = declared_rigs(context.obj).get(context.params.get("rig") or "")
    names = sorted({*rig.instances, *rig.servers}) if rig else []
    return [CompletionItem(name) for name in names if name.startswith(typed)]


def complete_parts(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the inventory's instances and its roles."""
    from llamaherd.pipeline.load import inventory_path
    from llamaherd.pipeline.own_roles import all_roles

    instances = {name for rig in declared_rigs(context.obj).values() for name in rig.servers}
    try:
        roles = {role.thing for role in all_roles(inventory_path(context.obj))}
    except InventoryError:
        return []
    return [CompletionItem(name) for name in sorted(instances | roles) if name.startswith(typed)]


def _limited_rigs(context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Return the rigs that are named as arguments and by `--limit`, which Ansible and pyinfra have."""
    return (*value, *context.meta.get(LIMIT, ()))


def _store_limit(context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> None:
    context.meta[LIMIT] = tuple(name for words in value for name in words.split(",") if name)


def rigs_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument with the names of rigs, none for all, and `--limit`, another spelling of it."""
    argument = click.argument(
        "rigs", metavar="[RIG]...", nargs=-1, shell_complete=complete_rigs, callback=_limited_rigs
    )
    option = click.option(
        "--limit",
        metavar="RIG",
        multiple=True,
        is_eager=True,
        expose_value=False,
        shell_complete=complete_rigs,
        callback=_store_limit,
        help="The same as the argument RIG. Repeatable, or with commas.",
    )
    return argument(option(command))


def yes_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option that confirms in advance, so that a command does not prompt."""
    return click.option("-y", "--yes", "--force", "yes", is_flag=True, help=text)


rig_argument = click.argument("rig", shell_complete=complete_rigs)
only_option = click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_parts,
    help="Only this instance, with what it needs, or this role. Repeatable.",
)


def require_yes(what: str, yes: bool, as_json: bool) -> None:
    """End the program if removing something needs a confirmation, and there is no terminal to ask on."""
    if not yes and (as_json or not sys.stdin.isatty()):
        why = f"removing {what} needs a confirmation, and this is no terminal"
        fail(UserError(why, "run it with `--dry-run` to see what would be removed, then with `--yes`"), UNUSABLE)


def confirm_or_exit(yes: bool, cancelled: str) -> None:
    """Prompt on a terminal for confirmation, unless `yes`. End the program with the message `cancelled` on a no."""
    if not yes and sys.stdin.isatty() and sys.stderr.isatty() and not click.confirm("Continue?", err=True):
        echo(cancelled, err=True)
        sys.exit(FAILED)


def read_or_exit(read: Callable[[], T]) -> T:
    """Return the result of `read`. Print the findings of an InventoryError and end the program."""
    try:
        return read()
    except InventoryError as error:
        print_errors(error.findings)
        sys.exit(UNUSABLE)


@contextmanager
def exit_on_error(code: int) -> Iterator[None]:
    """Print a UserError, and end the program with an exit code."""
    try:
        yield
    except UserError as error:
        fail(error, code)


@contextmanager
def measuring_or_exit() -> Iterator[None]:
    """Run a measurement. Print findings, errors and, on Ctrl-C, how to resume, and end the program."""
    try:
        yield
    except InventoryError as error:
        print_errors(error.findings)
        sys.exit(FAILED)
    except UserError as error:
        fail(error, FAILED)
    except KeyboardInterrupt:
        hint_after_interrupt(RESUME_HINT)
        raise


def hint_after_interrupt(text: str) -> None:
    """Store what `herd` prints after `interrupted`, on the same line, when Ctrl-C ends the command."""
    click.get_current_context().meta[HINT] = text


def write_output(path: Path, content: str | bytes) -> None:
    """Write an output file of a command in one atomic step. Raise UserError."""
    data = content if isinstance(content, bytes) else content.encode("utf-8", "replace")
    try:
        write_atomically(path, data, 0o644)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(f"cannot write {path}: {why}", "check the folder, its mode and its disk") from None


def fail(error: Exception, code: int) -> NoReturn:
    """Print an error with its help, and end the program."""
    print_error(error)
    sys.exit(code)


def print_error(error: Exception) -> None:
    """Print an error with its help. With `--json`, it is also in the envelope of a command that fails."""
    note_error(error if isinstance(error, UserError) else UserError(str(error), ""))
    echo(f"error: {error}", err=True)


def echo(text: str, *, err: bool = False, fit: bool | None = None) -> None:
    """Print a text without control characters: it may contain text of a host or a model.

    With `fit`, as by default on stderr, lines that are wider than the terminal are wrapped between words. Other lines
    are for copying.
    """
    width = terminal_columns(err=err) if (err if fit is None else fit) else None
    click.echo("\n".join(fitted(plain(text), width)), err=err)


def report(line: str) -> None:
    """Print on stderr what happens."""
    echo(line, err=True)


def fitted(text: str, width: int | None) -> Iterator[str]:
    """Yield the lines of a text. Lines wider than `width` are wrapped between words, and indented by four more."""
    for line in text.split("\n"):
        if width is None or len(line.encode()) <= width:
            yield line
            continue
        from llamaherd.diagnostics.excerpt import wrapped  # late: most lines are short

        rest = line.lstrip(" ")
        indent = min(len(line) - len(rest), width // 2)
        first, *words = rest.split(" ")
        yield from wrapped([(" " * indent + first, None), *((word, None) for word in words)], width, indent + 4)


def progress(text: str) -> None:
    """Print on stderr what a command does, unless it is quiet."""
    if not is_quiet():
        echo(text, err=True)


def print_findings(
    findings: Sequence[Finding], *, err: bool = True, fixing: bool = False, texts: Mapping[Path, str] | None = None
) -> None:
    """Print findings: the place, what is wrong, the line of the file, the suggestion.

    `fixing` marks the findings that `herd check --fix` fixes. `texts` replace files that are not written yet.
    """
    from llamaherd.diagnostics.excerpt import rendered  # late: most runs print no finding

    note_findings(findings)

    def lines(file: Path) -> list[str] | None:
        return lines_of(texts[file]) if texts and file in texts else _source_lines(file)

    for line in rendered(to_print(findings), lines, _painted, terminal_columns(err=err), fixing=fixing):
        click.echo(line, err=err, color=False if os.environ.get("NO_COLOR") else None)
    if (left := len(findings) - MOST_SHOWN) > 0:
        click.echo(f"and {left:,} more", err=err)
    if codes := sorted({finding.code for finding in findings}):
        click.echo(f"explained by: herd explain {' '.join(codes)}", err=err)


def print_errors(findings: Sequence[Finding]) -> None:
    """Print the errors of an inventory, and how many warnings there are."""
    print_findings([finding for finding in findings if finding.severity == "error"])
    print_warnings_line(findings)


def print_warnings_line(findings: Sequence[Finding]) -> None:
    """Print how many warnings there are, if any: `herd check` prints them."""
    if number := sum(finding.severity == "warning" for finding in findings):
        echo(f"{counted(number, 'warning')}: run `herd check`", err=True)


def _painted(text: str, role: str) -> str:
    return click.style(text, fg=COLOURS.get(role), bold=role != "gutter" or None, dim=role == "gutter" or None)


def terminal_columns(*, err: bool) -> int | None:
    """Return the width of the output; None if it is no terminal."""
    if not (sys.stderr if err else sys.stdout).isatty():
        return None
    return max(shutil.get_terminal_size().columns, FEWEST_COLUMNS)


def _source_lines(file: Path) -> list[str] | None:
    """Return the lines of a file that findings point into; None if it is not readable text."""
    from llamaherd.text.textfile import UnreadableError, read_text

    try:
        return lines_of(read_text(file, MOST_SOURCE))
    except UnreadableError:
        return None


def counted(number: int, what: str) -> str:
    """Return `1 rig`, `2 rigs`."""
    return f"{number} {what}{'s' if number != 1 else ''}"
