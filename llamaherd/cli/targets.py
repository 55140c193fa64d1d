"""Arguments that name an instance: `RIG/INSTANCE`, an instance that one rig has, or a rig with one instance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from click.shell_completion import CompletionItem

from llamaherd.cli.common import complete_instances, complete_rigs, declared_rigs, echo
from llamaherd.diagnostics.findings import UserError
from llamaherd.diagnostics.spelling import nearest_name

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig


class Target(NamedTuple):
    """An instance or a group of a rig."""

    rig: str
    instance: str

    def __str__(self) -> str:
        """Return `RIG/INSTANCE`."""
        return f"{self.rig}/{self.instance}"

    def server(self, rig: Rig) -> str:
        """Return the name of the server: that of the group for a member of a group."""
        return rig.server_of(self.instance) if self.instance in rig.instances else self.instance


def complete_targets(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the `RIG/INSTANCE` of the inventory that begin with a word, or whose instance does."""
    names = _targets(declared_rigs(context.obj))
    found = [str(name) for name in names if str(name).startswith(typed)]
    return [CompletionItem(name) for name in found or [str(name) for name in names if name.instance.startswith(typed)]]


def complete_rigs_and_targets(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the rigs that begin with a word; after a slash, or if there is none, the `RIG/INSTANCE`."""
    found = [] if "/" in typed else complete_rigs(context, parameter, typed)
    return found or complete_targets(context, parameter, typed)


def complete_results(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the rigs and instances that begin with a word; if there is none, the files."""
    return complete_rigs_and_targets(context, parameter, typed) or [CompletionItem(typed, type="file")]


optional_target_argument = click.argument(
    "target", metavar="[[RIG/]INSTANCE]", required=False, shell_complete=complete_targets
)
rig_or_target_argument = click.argument("rig", metavar="RIG[/INSTANCE]", shell_complete=complete_rigs_and_targets)
second_word_argument = click.argument("instance", metavar="", required=False, shell_complete=complete_instances)
"""The instance in the old spelling `RIG INSTANCE`."""
servers_argument = click.argument(
    "target", metavar="[RIG/INSTANCE | RIG]", required=False, shell_complete=complete_targets
)


def split_words(inventory: Path | None, word: str, second: str | None) -> tuple[str, str | None]:
    """Return the rig and the instance of `RIG/INSTANCE`, `INSTANCE` or `RIG`; the instance is None for a rig alone.

    For the old spelling `RIG INSTANCE`, print the new one. Unknown names are left to the command.
    """
    if second is not None:
        echo(f"`{word} {second}` is an old spelling: write `{word}/{second}`", err=True)
        return word, second
    if "/" in word:
        rig, _, instance = word.partition("/")
        return rig, instance
    rigs = declared_rigs(inventory)
    found = [] if word in rigs else [each for each in _targets(rigs) if each.instance == word]
    return (found[0].rig, found[0].instance) if len(found) == 1 else (word, None)


def find_servers(rigs: Mapping[str, Rig], word: str | None) -> list[Target]:
    """Return the servers that a command names: one, or all servers of a rig. Raise UserError as `find_target` does.

    A member of a group stands for the server of its group.
    """
    if word is not None and word in rigs and rigs[word].servers:
        return [Target(word, server) for server in rigs[word].servers]
    found = find_target(rigs, word)
    return [Target(found.rig, found.server(rigs[found.rig]))]


def find_target(rigs: Mapping[str, Rig], word: str | None) -> Target:
    """Return the instance or group that a command names; without a word, the only server of the inventory.

    For the old spelling `RIG.INSTANCE`, print the new one. Raise UserError if no instance or several instances have the
    name.
    """
    new = _with_slash(rigs, word)
    found = _matches(rigs, new)
    if len(found) != 1:
        raise _not_one(rigs, new, found)
    if word != new:
        echo(f"`{word}` is an old spelling: write `{found[0]}`", err=True)
    return found[0]


def _not_one(rigs: Mapping[str, Rig], word: str | None, found: list[Target]) -> UserError:
    """Return why a word names no instance, or several."""
    known = found or _targets(rigs)
    if not known:
        return UserError("the inventory has no instance", "declare one below `instances:` of a rig")
    names = [str(each) for each in known]
    more = len(names) - _MOST_NAMED
    help_ = f"name one of {', '.join(names[:_MOST_NAMED])}{f' and {more} more' if more > 0 else ''}"
    if word is None:
        return UserError("the inventory has several servers", help_)
    if found and word in rigs:
        return UserError(f"rig `{word[:80]}` has several servers", help_)
    if found:
        return UserError(f"`{word[:80]}` is the name of several instances", help_)
    if near := nearest_name(word, names) or nearest_name(word, {each.instance for each in known}):
        help_ = f"did you mean `{near}`?"
    return UserError(f"there is no instance `{word[:80]}`", help_)


_MOST_NAMED = 8
"""Instances that a message lists."""


def _targets(rigs: Mapping[str, Rig]) -> list[Target]:
    """Return all instances and groups."""
    return [Target(name, each) for name, rig in rigs.items() for each in dict.fromkeys([*rig.instances, *rig.servers])]


def _with_slash(rigs: Mapping[str, Rig], word: str | None) -> str | None:
    """Return the new spelling of a word: `RIG/INSTANCE` for `RIG.INSTANCE`."""
    if word and "/" not in word and "." in word:
        rig, _, instance = word.rpartition(".")
        return f"{rig}/{instance}" if rig in rigs else word
    return word


def _matches(rigs: Mapping[str, Rig], word: str | None) -> list[Target]:
    """Return the instances that a word may name: by rig and instance, by instance, or the servers of a rig."""
    servers = [Target(name, server) for name, rig in rigs.items() for server in rig.servers]
    if word is None:
        return servers if len(servers) == 1 else []
    if "/" in word:
        return [each for each in _targets(rigs) if str(each) == word]
    named = [each for each in _targets(rigs) if each.instance == word]
    return named or [each for each in servers if each.rig == word]
