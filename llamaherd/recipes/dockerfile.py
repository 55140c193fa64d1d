"""Dockerfiles as the builder reads them: RUN, ENV, ARG, and what the last stage starts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from llamaherd.diagnostics.findings import Place
from llamaherd.inventory.yaml_file import UNREADABLE
from llamaherd.recipes import container_rules, shell
from llamaherd.recipes.commands import (
    EMPTY,
    Document,
    Text,
    Word,
    interpolated,
    joined,
    placed,
    positioned,
    split,
    word_at,
    word_of,
)
from llamaherd.recipes.containers import Container
from llamaherd.recipes.recipe import NOT_READ, Recipe
from llamaherd.recipes.servers import names_engine

_NAME = re.compile(r"(?:[\w-]+\.)?(?:docker|container)file(?:\.[\w.-]+)?")
_FIRST = re.compile(r"\A(?:[ \t]*(?:#[^\n]*|ARG[^\n]*)?\n)*FROM[ \t]+\S", re.IGNORECASE)
_INSTRUCTION = re.compile(r"[ \t]*(?P<name>[A-Za-z]+)(?:[ \t]+(?P<rest>.*))?", re.DOTALL)
_DOCUMENT = re.compile(r"<<-?['\"]?(\w+)['\"]?")
_OPTION = re.compile(r"(?:--[a-z-]+(?:=\S+)?\s+)+")


def is_dockerfile(name: str, text: str) -> bool:
    """Return whether a file is a Dockerfile, by its name or its first instruction."""
    return _NAME.fullmatch(name) is not None or _FIRST.match(text) is not None


def check_text(file: Path, text: str) -> Recipe:
    """Return the recipe of a Dockerfile."""
    return _Reader(file, text, shell.reader_of(file, text)).read()


@dataclass
class _Stage:
    """A stage of the build: its image, and what a container of it starts."""

    image: Word
    variables: dict[str, str] = field(default_factory=dict)
    """ARG and ENV whose values are known."""
    environment: dict[str, Word] = field(default_factory=dict)
    entrypoint: tuple[Word, ...] | None = None
    command: tuple[Word, ...] = ()
    starts: bool = False
    """Whether it sets what is started, itself."""


@dataclass
class _Reader:
    file: Path
    text: str
    reader: shell.Reader
    stages: dict[str, _Stage] = field(default_factory=dict)
    stage: _Stage | None = None
    all: list[_Stage] = field(default_factory=list)
    outside: dict[str, str] = field(default_factory=dict)
    """ARG above the first FROM."""

    def read(self) -> Recipe:
        """Return the recipe of all stages that can be started."""
        recipe = Recipe()
        for name, rest, at in _instructions(positioned(self.text.removeprefix("\ufeff"))):
            stage = self.stage
            if name == "from":
                self._from(rest)
            elif name == "arg" and stage is None:
                self._set(name, rest, self.outside, {})
            elif name in ("arg", "env") and stage:
                self._set(name, rest, stage.variables, stage.environment)
            elif name == "run" and stage:
                recipe += self._run(rest, stage)
            elif name == "cmd" and stage:
                stage.command, stage.starts = self._started(rest), True
            elif name == "entrypoint" and stage:
                stage.entrypoint, stage.command, stage.starts = self._started(rest), (), True
            elif name in ("copy", "add"):
                recipe += Recipe(documents=tuple(_copied(rest)))
            elif name == "onbuild":
                message = "`ONBUILD` is a part of another build, and is not read"
                recipe += Recipe((NOT_READ.at(Place(self.file, *at), message, "check that build", "note"),))
        if self.stage is None:
            message = "there is no `FROM`: nothing is built, and nothing was read"
            return recipe + Recipe((UNREADABLE.at(Place(self.file), message, "begin it with `FROM IMAGE`"),))
        for stage in self.all:
            if stage.starts or stage is self.stage:
                recipe += container_rules.recipe_of_image(self.file, self._container(stage))
        started = (*(self.stage.entrypoint or ()), *self.stage.command)
        if started and not recipe.servers and names_engine(self.text):
            program = started[-1] if str(started[0]) == "/bin/sh" else started[0]
            message = f"what `{program}` starts is not read"
            found = NOT_READ.at(Place(self.file, *program.start), message, "check that script by itself", "note")
            recipe += Recipe((found,))
        return recipe

    def _container(self, stage: _Stage) -> Container:
        """Return a container of a stage. GPUs, mounts and ports are given to it by others."""
        # Options of the build are variables of the build alone.
        environment = {name: word for name, word in stage.environment.items() if not re.match(r"GGML_(?!CUDA_)", name)}
        image, command, entrypoint = stage.image, stage.command, stage.entrypoint
        return Container(image, command, entrypoint, environment=environment, engine=self.reader.engine, built=True)

    def _from(self, rest: Text) -> None:
        words = [raw for raw, _ in split(interpolated(rest, self.outside)) if not raw.chars.startswith("--")]
        if not words:
            return
        base = self.stages.get(words[0].chars.lower())
        self.stage = _Stage(word_of(words[0]))
        if base is not None:
            variables, environment = dict(base.variables), dict(base.environment)
            self.stage = replace(base, variables=variables, environment=environment, starts=False)
        self.all.append(self.stage)
        if len(words) > 2 and words[1].chars.lower() == "as":
            self.stages[words[2].chars.lower()] = self.stage

    def _set(self, name: str, rest: Text, variables: dict[str, str], environment: dict[str, Word]) -> None:
        known = self.outside | variables if name == "arg" else variables
        words = [raw for raw, _ in split(interpolated(rest, known))]
        if name == "env" and len(words) > 1 and "=" not in words[0].chars:
            words = [joined([words[0], Text("=", words[0].at[:1]), words[1]])]  # `ENV NAME VALUE`
        for raw in words:
            key, equals, value = raw.chars.partition("=")
            word = word_of(raw.cut(len(key) + 1, len(raw.chars)), raw.at[0] if raw.at else None)
            variables.pop(key, None)
            if equals and not word.unknown:
                variables[key] = value
            elif name == "arg" and key in self.outside:
                variables[key] = self.outside[key]
            if name == "env":
                environment[key] = word

    def _run(self, rest: Text, stage: _Stage) -> Recipe:
        options = _OPTION.match(rest.chars)
        rest = rest.cut(options.end() if options else 0, len(rest.chars))
        found = _DOCUMENT.match(rest.chars)
        if found:  # `RUN <<EOF`: the document is the script
            first = rest.chars.find("\n") + 1
            last = rest.chars.rstrip().rfind("\n")
            rest = rest.cut(first, max(first, last))
        elif listed := self._listed(rest):
            return self.reader.check_words(listed)
        recipe = self.reader.fresh().read(rest, stage.variables)
        return Recipe(recipe.findings, documents=recipe.documents)

    def _started(self, rest: Text) -> tuple[Word, ...]:
        listed = self._listed(rest)
        if listed is not None:
            return listed
        at = rest.at[0] if rest.at else (1, 1)
        return word_at("/bin/sh", at), word_at("-c", at), Word(rest, at)

    def _listed(self, rest: Text) -> tuple[Word, ...] | None:
        """Return the words of a JSON list; None for the form of a shell."""
        try:
            values = json.loads(rest.chars)
        except (ValueError, RecursionError):
            return None
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            return None
        words: list[Word] = []
        end = 0
        for value in values:
            start = rest.chars.find('"', end)
            found = re.compile(r'"(?:[^"\\]|\\.)*"').match(rest.chars, start)
            end = found.end() if found else start + 1
            text = rest.cut(start + 1, end - 1)
            text = text if text.chars == value else placed(value, rest.at[start])
            words.append(word_of(text, rest.at[start]))
        return tuple(words)


def _copied(rest: Text) -> Iterator[Document]:
    """Yield the file that `COPY <<EOF PATH` writes."""
    first, _, _ = rest.chars.partition("\n")
    if found := _DOCUMENT.search(first):
        last = rest.chars.rstrip().rfind("\n") + 1
        names = first[found.end() :].split()
        yield Document(rest.cut(len(first) + 1, max(last, len(first) + 1)), names[-1] if names else "")


def _instructions(text: Text) -> Iterator[tuple[str, Text, tuple[int, int]]]:
    """Yield the instructions: name in small letters, the rest with its lines joined, and the position."""
    lines = text.lines()
    kept: list[Text] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        if re.match(r"[ \t]*(?:#|$)", line.chars) and (not line.chars.strip() or line.chars.lstrip().startswith("#")):
            continue
        stripped = line.chars.rstrip()
        if stripped.endswith("\\"):
            # Kept for the shell, which reads RUN; other instructions have a blank there.
            kept.append(line)
            continue
        whole = joined([*kept, line.cut(0, len(stripped))])
        kept = []
        found = _INSTRUCTION.fullmatch(whole.chars)
        if not found:
            continue
        name = found["name"].lower()
        rest = whole.cut(found.start("rest"), found.end("rest")) if found["rest"] else EMPTY
        for marker in _DOCUMENT.findall(rest.chars) if name in ("run", "copy", "add") else ():
            body: list[Text] = []
            while index < len(lines) and lines[index].chars.strip() != marker:
                body.append(lines[index])
                index += 1
            ending = lines[index : index + 1]
            rest = joined([rest, Text("\n", line.at[-1:]), *body, *ending])
            index += 1
        if name != "run":
            rest = joined(_without_line_ends(rest))
        yield name, rest, whole.at[0]


def _without_line_ends(text: Text) -> Iterator[Text]:
    end = 0
    for found in re.finditer(r"\\[ \t]*\r?\n", text.chars):
        yield text.cut(end, found.start())
        yield Text(" ", text.at[found.start() : found.start() + 1])
        end = found.end()
    yield text.cut(end, len(text.chars))
