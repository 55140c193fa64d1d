"""Words and options of other tools, and what to write here: the help of a wrong command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import click

COMMANDS: Mapping[str, str] = {
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
