"""Shell scripts, units and bare commands as newcomers paste them: every command that matters, and what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.engines.flags.arguments_rules import STRAY
from llamaherd.inventory.yamlfile_rules import TOO_LARGE
from llamaherd.recipes import (
    atonce,
    containerneeds,
    containers,
    dockerrun,
    flagged,
    servers,
    starting,
    unitrules,
    units,
    unitservice,
    unitvalues,
    unquoted,
)
from llamaherd.recipes.around import OF_ENGINES, CommandPlace
from llamaherd.recipes.commands import Command, Word, read_commands
from llamaherd.recipes.programs import (
    EngineName,
    ServerCommand,
    base_name,
    built_of,
    engine_at,
    engine_of,
    find_program,
    recipe_version,
)
from llamaherd.recipes.recipe import Recipe
from llamaherd.recipes.recipe_rules import BEHIND_IMAGE, BETTER_BY_RIG, NOT_AS_IT_LOOKS, OTHER_VARIABLE
from llamaherd.recipes.tokens import Position, Text, positioned, unixed
from llamaherd.recipes.unit_rules import SHELL_IN_UNIT, UNIT_VARIABLE

_UNIT = re.compile(r"^[^\S\n]*(?:ExecStart[^\S\n]*=|\[Service\][^\S\n]*$)", re.MULTILINE)
_DOCUMENT = re.compile(r"<<-?[ \t]*['\"\\]?[A-Za-z_]")
"""What begins a here-document: a script that writes a unit is none."""
MOST_SERVERS = 200
"""That are looked at in one recipe."""

_DETACHING = {"nohup", "screen", "tmux", "setsid"}


def check_text(file: Path, text: str) -> Recipe:
    """Everything wrong with a shell script, a systemd unit, or flags alone."""
    reader = _Reader(file, engine_of(text), recipe_version(text), built_of(text))
    recipe = reader.read(unixed(positioned(text.removeprefix("\ufeff"))))
    if text.startswith("#!") and "\r\n" in text:
        message = "lines end as on Windows: Linux takes the last sign of each for a part of its command"
        recipe += Recipe((NOT_AS_IT_LOOKS.at(Place(file), message, f"convert it: `dos2unix {file.name}`"),))
    return recipe


def check_excerpts(file: Path, text: str, excerpts: Iterable[Text]) -> Recipe:
    """Everything wrong with the commands on a page, in whose folder or text the engine is named.

    Nobody knows whether lines of an excerpt that follow each other were one command, or whose flags alone are.
    """
    engine = engine_at(file.absolute()) or engine_of(text)
    reader = _Reader(file, engine, recipe_version(text), built_of(text), excerpts=True)
    recipe = Recipe()
    for excerpt in excerpts:
        recipe += reader.read(unixed(excerpt))
    return recipe


def check_command(file: Path, text: str, command: Command) -> Recipe:
    """Everything wrong with one command that a file of another kind holds, whose whole text is `text`."""
    return _Reader(file, engine_of(text), recipe_version(text), built_of(text)).checked(command, ())


@dataclass
class _Reader:
    """The state of one reading, which the excerpts of a page share."""

    file: Path
    engine: EngineName | None
    version: str
    built: frozenset[str]
    """Images that the text itself builds."""
    excerpts: bool = False
    folder: str = ""
    assigned: dict[str, Word] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    started: int = 0
    running: list[ServerCommand] = field(default_factory=list)
    """Servers that a script has started and left running."""
    everything: bool = False
    """Whether `set -a` hands on all that is assigned."""

    def read(self, text: Text, *, nested: bool = False) -> Recipe:
        """What a text says; `nested` is a file that a script writes, whose own here-documents are nobody's."""
        if self.started >= MOST_SERVERS:
            return Recipe()
        if _UNIT.search(text.chars) and not _DOCUMENT.search(text.chars):
            return self._unit(text, generated=nested)
        script = read_commands(text)
        recipe = Recipe(tuple(self._not_continued(position) for position in script.broken))
        for command, orphans in _joined(script.commands):
            if self.excerpts and _flags_alone(command) and not flagged.familiar(command.words[1:], self.engine):
                continue  # some other program's
            recipe += Recipe(tuple(CommandPlace(self.file, self.engine, self.folder, self.version).check(command)))
            recipe += Recipe(tuple(unquoted.check(self.file, command)) if not self.excerpts else ())
            words = [str(word) for word in command.words]
            self.everything |= words in (["set", "-a"], ["set", "-o", "allexport"])
            if not words:
                self.assigned |= command.settings
                self.exported |= set(command.exports) | (set(command.settings) if self._hands_on() else set())
            given = {name: value for name, value in self.assigned.items() if name in self.exported}
            started = self.checked(replace(command, settings={**given, **command.settings}), orphans)
            if started.servers:
                recipe += Recipe(tuple(self._kept_back(text)))
            if not self.excerpts:
                recipe += Recipe(tuple(self._beside(command, started.servers)))
            recipe += started
            self.started += len(started.servers)
            if self.started >= MOST_SERVERS:
                message = f"{MOST_SERVERS} servers are started down to here: what follows is not looked at"
                place = Place(self.file, *started.servers[-1].start)
                return recipe + Recipe((TOO_LARGE.at(place, message, "cut it into several files"),))
            if words[:1] == ["cd"] and len(words) > 1:
                self.folder = base_name(words[1].rstrip("/"))
        for document in script.documents if not nested else ():
            recipe += self.read(document, nested=True)
        return recipe

    def _beside(self, command: Command, started: tuple[ServerCommand, ...]) -> Iterator[Finding]:
        """What a server wants that one which a script has left running has already."""
        for server in started:
            yield from atonce.check(self.file, self.running, server)
            if command.background or (command.words and base_name(str(command.words[0])) in {"screen", "tmux"}):
                self.running.append(server)

    def _hands_on(self) -> bool:
        """Whether variables reach programs without `export`: on a page, which shows parts, and after `set -a`."""
        return self.excerpts or self.everything

    def _kept_back(self, text: Text) -> Iterator[Finding]:
        """Variables of engines that are set for the shell alone, and used nowhere in it."""
        for name, value in self.assigned.items():
            used = re.search(rf"\$\{{?{name}\b|\b(?:export|-x)\b.*\b{name}\b", text.chars)
            if name not in self.exported and OF_ENGINES.match(name) and not used:
                self.exported.add(name)
                message = f"`{name}` is set for this shell alone: the server does not see it"
                way_out = f"write `export {name}=…`, or put it before the command on its line"
                yield OTHER_VARIABLE.at(Place(self.file, *value.start), message, way_out)

    def _not_continued(self, position: Position) -> Finding:
        message = "this backslash is not the last sign of its line: the command ends here, without the lines below"
        way_out = "let the backslash be the last sign of its line, and put comments above the command"
        return NOT_AS_IT_LOOKS.at(Place(self.file, *position), message, way_out)

    def _unit(self, text: Text, *, generated: bool) -> Recipe:
        """A systemd unit: no shell reads its lines."""
        unit = units.read_unit(text)
        settings, _ = units.unit_environment(unit)
        known = {name: str(word) for name, word in settings.items()}
        recipe = Recipe()
        words: tuple[Word, ...] = ()
        for setting in unit.all("ExecStart"):
            prefix = re.match(r"[@!:+|-]*[ \t]*", setting.text)
            words = units.words(setting.value.cut(prefix.end() if prefix else 0, len(setting.text)), known)
            recipe += Recipe(tuple(unitservice.check_container(self.file, unit, words)))
            recipe += Recipe(tuple(self._in_unit(words))) + self.checked(Command(_until_shell(words), settings), ())
        started = unitrules.Started(self.file, unit, words, self.excerpts, generated)
        recipe = Recipe((*unitrules.check(started), *unitvalues.check(started))) + recipe
        for server in recipe.servers[:1]:
            recipe += Recipe(tuple(unitservice.check(started, server)))
        # One word, one sentence: what no shell reads is no wrong argument besides.
        unread = {
            each.place
            for each in recipe.findings
            if each.code in {OTHER_VARIABLE.code, SHELL_IN_UNIT.code, UNIT_VARIABLE.code}
        }
        kept = (
            each
            for each in recipe.findings
            if each.place not in unread or each.code in {OTHER_VARIABLE.code, SHELL_IN_UNIT.code, UNIT_VARIABLE.code}
        )
        return Recipe(tuple(kept), recipe.servers)

    def _in_unit(self, words: tuple[Word, ...]) -> Iterator[Finding]:
        for word in words:
            if re.search(r"\$\(|`", str(word)):
                message = f"systemd runs no shell: `{word}` reaches the program as it is written"
                yield OTHER_VARIABLE.at(Place(self.file, *word.start), message, "write the value itself")
        if words and not str(words[0]).startswith(("/", "%", "$")) and "/" in str(words[0]):
            message = f"systemd does not start `{words[0]}`: its path is not absolute"
            yield NOT_AS_IT_LOOKS.at(Place(self.file, *words[0].start), message, "write the whole path, from `/` on")

    def checked(self, command: Command, orphans: tuple[Word, ...]) -> Recipe:
        """The server, the container or the build that a command starts."""
        words = command.words
        names = [base_name(str(word)) for word in words]
        run = next((i for i, name in enumerate(names) if name in {"docker", "podman"}), None)
        if run is not None and names[run + 1 : run + 2] == ["run"]:
            arguments, behind = dockerrun.misplaced(words[run + 2 :] + orphans)
            container = dockerrun.container_of(arguments)
            if container is None:
                return Recipe()
            built = container.repository_and_tag in self.built
            container = replace(container, built=built, engine=self.engine)
            recipe = Recipe(tuple(containers.check(self.file, container)))
            server = containers.server_of(container)
            recipe += Recipe(tuple(starting.check(self.file, container, server)))
            if server is None:
                return recipe
            recipe += Recipe(tuple(dockerrun.check(self.file, arguments)))
            if behind:
                message = f"`{behind[0]}` stands behind the image, where it is an argument of the server"
                way_out = "put options of Docker before the image"
                recipe += Recipe((BEHIND_IMAGE.at(Place(self.file, *behind[0].start), message, way_out),))
            recipe += Recipe(tuple(containerneeds.check(self.file, container, server)))
            return recipe + Recipe(self._checked(server), (server,))
        server = find_program(command, self.engine)
        if server is None:
            return Recipe()
        cut = unquoted.cuts(command)
        known = server.arguments[:-2] if cut else server.arguments  # half of an argument is none
        version = self.version if server.kind == "llama.cpp" else ""
        whole = replace(server, arguments=known + orphans, version=version)
        serving = server.program in servers.PORTS or (
            server.program == "llama-cli" and not server.has(*servers.PROMPTS)
        )
        recipe = Recipe(self._checked(whole), (whole,) if serving else ())
        if orphans and not self.excerpts and not cut:
            message = f"`{orphans[0]}` begins a line of its own: the one above ends without a backslash"
            way_out = "end every line of the command but the last with a backslash, and put no comment between them"
            recipe += Recipe((NOT_AS_IT_LOOKS.at(Place(self.file, *orphans[0].start), message, way_out),))
        return recipe + Recipe(tuple(self._not_a_service(command, server)))

    def _checked(self, server: ServerCommand) -> tuple[Finding, ...]:
        found = servers.check(self.file, server)
        return tuple(each for each in found if not (self.excerpts and _of_a_manual(each, server)))

    def _not_a_service(self, command: Command, server: ServerCommand) -> Iterator[Finding]:
        if server.program not in servers.PORTS:
            return
        way = next((word for word in command.words if base_name(str(word)) in _DETACHING), None)
        if way or command.background:
            how = f"`{base_name(str(way))}`" if way else "`&`"
            at = way.start if way else server.start
            message = f"by {how} the server is gone after a crash or a reboot, and nobody notices"
            way_out = "let systemd run it: `herd up` writes the unit"
            yield BETTER_BY_RIG.at(Place(self.file, *at), message, way_out)


def _until_shell(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """What is meant for the program, where its author thought that a shell reads the line."""
    words = words[: unitrules.swallowed(words)]
    texts = [str(word) for word in words]
    ends = [index for index, text in enumerate(texts) if unitrules.is_operator(text) or text[:1] in {"#", "\\", " "}]
    return words[: ends[0]] if ends else words


def _of_a_manual(finding: Finding, server: ServerCommand) -> bool:
    """Whether a finding is right of a recipe, and beside the point on a page that shows what a program can do."""
    if finding.code == BETTER_BY_RIG.code and server.program == "llama-cli":
        return True
    return finding.code == STRAY.code and sum(str(word).isalpha() for word in server.arguments[-3:]) == 3


def _flags_alone(command: Command) -> bool:
    """Whether a command is flags whose program was put before them."""
    return bool(command.words) and not command.words[0].text.at


def _joined(commands: tuple[Command, ...]) -> Iterator[tuple[Command, tuple[Word, ...]]]:
    """Each command with the lines of flags that follow it; flags that follow none are llama-server's."""
    current: Command | None = None
    orphans: list[Word] = []
    flags_alone = False
    for command in commands:
        flags = bool(command.words) and re.match(r"--?[a-zA-Z]", str(command.words[0])) is not None
        if flags and current is None:
            flags_alone = True
            program = flagged.program_of(command.words)
            current = Command((Word(Text(program, ()), command.words[0].start), *command.words))
        elif flags and current and flags_alone:
            current = replace(current, words=current.words + command.words)
        elif flags:
            orphans += command.words
        else:
            if current:
                yield current, tuple(orphans)
            nothing = [str(word) for word in command.words] == [":"]
            current, orphans, flags_alone = None if nothing else command, [], False
    if current:
        yield current, tuple(orphans)
