"""Check shell scripts, units and bare commands: each command, the steps before the server, and the server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.engines.flags.arguments import STRAY
from llamaherd.inventory.yaml_file import TOO_LARGE
from llamaherd.recipes import container_rules, containers, servers, unit_rules, units
from llamaherd.recipes.bash import read_commands
from llamaherd.recipes.commands import (
    Command,
    Document,
    Position,
    Text,
    Word,
    placed,
    positioned,
    settings_of,
    unixed,
    unveil,
    word_of,
)
from llamaherd.recipes.recipe import (
    BEHIND_IMAGE,
    BETTER_BY_RIG,
    MOST_SERVERS,
    NAME_GONE,
    NOT_AS_IT_LOOKS,
    NOT_READ,
    OPENS_TO_NETWORK,
    OTHER_VARIABLE,
    SHELLS,
    WANTED_TWICE,
    EngineName,
    Recipe,
    ServerCommand,
    base_name,
    built_of,
    engine_at,
    engine_of,
    find_program,
    kind_of_program,
    recipe_version,
    text_of,
)
from llamaherd.recipes.servers import PORTS, gpu_utilization, is_loopback
from llamaherd.recipes.unit_rules import SHELL_IN_UNIT, UNIT_VARIABLE

_OVERRIDES = ("-ot", "--override-tensor", "-otd", "--override-tensor-draft", "--spec-draft-override-tensor")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ELEMENT = re.compile(r"[0-9]+[a-z0-9_-]*|q[0-9]\S*|bf16\S*|f16\S*", re.IGNORECASE)
"""An element after a `;` in a list of CMake: an architecture, or types of a cache."""
_NUMBER = re.compile(r"[0-9][0-9.,;/]*")
"""Shares of GPUs, which have commas between them."""
_VALUE = re.compile(r"[0-9]+|\S+\.gguf")


def check_quoting(file: Path, command: Command) -> Iterator[Finding]:
    """Report words of a command that a shell changes before a program reads them."""
    yield from _assigned(file, command)
    if sign := cut_sign(command):
        message = f"the shell ends the command at this `{sign}`: what follows is not among its arguments"
        way_out = "put the argument into single quotes"
        if sign == ";" and not _of_cmake(command):
            way_out += ", with a comma for each `;`, as values are separated"
        assert command.cut
        yield NOT_AS_IT_LOOKS.at(Place(file, *command.cut.start), message, way_out)


def cut_sign(command: Command) -> str:
    """Return the sign in the last argument that unintentionally ends the command; empty for none."""
    cut, words = command.cut, [str(word) for word in command.words]
    if cut is None or len(words) < 2:
        return ""
    if _of_cmake(command):
        cuts_list = cut.operator == ";" and words[-1].startswith("-D") and "=" in words[-1]
        return ";" if cuts_list and _ELEMENT.fullmatch(cut.behind) else ""
    if cut.operator == ";" and words[-2].startswith("-") and _NUMBER.fullmatch(words[-1] + cut.behind):
        return ";"
    if words[-2] not in _OVERRIDES:
        return ""
    return cut.operator if cut.operator != "|" or "=" not in words[-1] else ""


def _of_cmake(command: Command) -> bool:
    return base_name(str(command.words[0])) == "cmake"


def _assigned(file: Path, command: Command) -> Iterator[Finding]:
    words = [str(word) for word in command.words]
    if len(words) > 1 and _NAME.fullmatch(words[0]) and words[1] == "=":
        message = "this sets nothing: an assignment has no blanks around its `=`"
        value = words[2] if len(words) > 2 else "…"
        yield NOT_AS_IT_LOOKS.at(Place(file, *command.words[0].start), message, f"write `{words[0]}={value}`")
    for name, setting in command.settings.items():
        if not str(setting) and not setting.unknown and len(words) == 1 and _VALUE.fullmatch(words[0]):
            message = f"this runs `{words[0]}`, with `{name}` empty: an assignment has no blanks around its `=`"
            yield NOT_AS_IT_LOOKS.at(Place(file, *command.words[0].start), message, f"write `{name}={words[0]}`")


_HUB_COMMANDS = {"login": "auth login", "logout": "auth logout", "whoami": "auth whoami", "delete-cache": "cache prune"}
_SHARD = re.compile(r"-(?:[0-9]{5}|[0-9?*]+)-of-(?:[0-9]{5}|[0-9?*]+)\.gguf$")
OF_ENGINES = re.compile(r"(?:CUDA|GGML|LLAMA_ARG|VLLM|NCCL|OMP|HF|HUGGING_FACE)_|LLAMA_API_KEY$")
"""Variables that programs read, and that have no use in a script itself."""


_FOR_ALL = ("--help", "--version")


def check_shared_resources(file: Path, running: Iterable[ServerCommand], second: ServerCommand) -> Iterator[Finding]:
    """Report resources that a running server already uses. Containers have their own ports and GPUs."""
    if not _alone(second):
        return
    place = Place(file, *second.start)
    for first in filter(_alone, running):
        port = _port(first)
        if port and port == _port(second) and _host(first) == _host(second):
            message = f"port {port} is in use by the first server, in line {first.start[0]}: this one does not start"
            yield WANTED_TWICE.at(place, message, "give each a port of its own, by `--port`")
        shares = [gpu_utilization(each) for each in (first, second) if each.program == "vllm"]
        if len(shares) == 2 and _cards(first) == _cards(second) and sum(shares) > 1:
            message = f"two vLLM servers take {shares[0]:g} and {shares[1]:g} of the same card: this one does not start"
            way_out = "give each a GPU by `CUDA_VISIBLE_DEVICES`, or shares that add up to less than 1"
            yield WANTED_TWICE.at(place, message, way_out)


def _alone(server: ServerCommand) -> bool:
    return server.program in PORTS and not server.contained and not server.has(*_FOR_ALL)


def _port(server: ServerCommand) -> str:
    """Return the port of a server; empty if a shell computes it."""
    word = server.value("--port") or server.settings.get("LLAMA_ARG_PORT")
    return PORTS[server.program] if word is None else "" if word.unknown else str(word)


def _host(server: ServerCommand) -> str:
    word = server.value("--host") or server.settings.get("LLAMA_ARG_HOST")
    return str(word) if word else ""


def _cards(server: ServerCommand) -> str:
    word = server.settings.get("CUDA_VISIBLE_DEVICES")
    return str(word) if word else ""


_UNIT = re.compile(r"^[^\S\n]*(?:ExecStart[^\S\n]*=|\[Service\][^\S\n]*$)", re.MULTILINE)
_BEGINS = re.compile(r"(?:[^\S\n]*(?:[#;](?!!)[^\n]*)?\n)*[^\S\n]*(?:\[|[A-Z][A-Za-z]+[^\S\n]*=)")
"""The beginning of a unit, after comments: a section or a setting. A script that holds a unit begins with others."""
_DOCUMENT = re.compile(r"<<-?[ \t]*['\"\\]?[A-Za-z_]")
"""The beginning of a here-document: a script that writes a unit is not a unit."""
_DETACHING = {"nohup", "screen", "tmux", "setsid"}


def check_text(file: Path, text: str) -> Recipe:
    """Return the recipe of a shell script, a systemd unit, or bare flags."""
    reader = reader_of(file, text)
    recipe = reader.read(unixed(positioned(text.removeprefix("\ufeff"))))
    if text.startswith("#!") and "\r\n" in text:
        message = "lines end as on Windows: Linux reads the last character of each as a part of its command"
        recipe += Recipe((NOT_AS_IT_LOOKS.at(Place(file, 1, 1), message, f"convert it: `dos2unix {file.name}`"),))
    return recipe


def check_excerpts(file: Path, text: str, excerpts: Iterable[Text]) -> Recipe:
    """Return the recipe of the commands on a page, whose folder or text names the engine.

    Unlike in a script, successive lines of an excerpt need not be one command, and bare flags may be another program's.
    """
    engine = engine_at(file.absolute()) or engine_of(text)
    reader = Reader(file, engine, recipe_version(text), built_of(text), excerpts=True)
    recipe = Recipe()
    for excerpt in excerpts:
        recipe += reader.read(unixed(excerpt))
    return recipe


def reader_of(file: Path, text: str) -> Reader:
    """Return a reader of a file that is no page; its text, or else its name, names the engine."""
    engine = engine_of(text) or engine_at(file.absolute())
    return Reader(file, engine, recipe_version(text), built_of(text))


@dataclass
class Reader:
    """A reader of commands: the engine that the file names, and the state that the excerpts of a page share."""

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
    files: dict[str, Text] = field(default_factory=dict)
    """The files that a script writes, by their paths."""
    everything: bool = False
    """Whether `set -a` exports all variables."""

    def fresh(self) -> Reader:
        """Return a reader for another shell of the same file."""
        return Reader(self.file, self.engine, self.version, self.built)

    def check_words(self, words: tuple[Word, ...]) -> Recipe:
        """Return the recipe of one command that no shell reads."""
        return Recipe(tuple(self._step(Command(words)))) + self.checked(Command(words), ())

    def sibling(self, name: str) -> str:
        """Return the text of a file in the folder of this file; empty if there is none, or for a path."""
        named = re.fullmatch(r"[\w.-]*\w[\w.-]*", name) and name != self.file.name
        return (text_of(self.file.with_name(name)) or "") if named else ""

    def read(self, text: Text, known: Mapping[str, str] | None = None) -> Recipe:
        """Return the recipe of a text; files that it writes and that neither a shell nor systemd reads are left."""
        if self.started >= MOST_SERVERS:
            return Recipe()
        if (
            _UNIT.search(text.chars)
            and (_BEGINS.match(text.chars) or self.excerpts)
            and not _DOCUMENT.search(text.chars)
        ):
            return self._unit(text)
        script = read_commands(text, known, self.sibling)
        recipe = Recipe(tuple(self._not_continued(position) for position in script.broken))
        if not self.excerpts:
            recipe += Recipe(tuple(self._unread(position) for position in script.unread))
        for command, orphans in _joined(script.commands):
            if self.excerpts and _flags_alone(command) and not servers.are_server_flags(command.words[1:], self.engine):
                continue  # another program's flags
            recipe += Recipe(tuple(self._step(command)))
            recipe += Recipe(tuple(check_quoting(self.file, command)) if not self.excerpts else ())
            words = [str(word) for word in command.words]
            self.everything |= words in (["set", "-a"], ["set", "-o", "allexport"])
            if not words:
                self.assigned |= command.settings
                self.exported |= set(command.exports) | (set(command.settings) if self._exports_all() else set())
            given = {name: value for name, value in self.assigned.items() if name in self.exported}
            started = self.checked(replace(command, settings={**given, **command.settings}), orphans, shell=True)
            if started.servers:
                recipe += Recipe(tuple(self._kept_back(text)))
            if not self.excerpts:
                recipe += Recipe(tuple(self._conflicts(command, started.servers)))
            recipe += started
            self.started += len(started.servers)
            if self.started >= MOST_SERVERS:
                message = f"{MOST_SERVERS} servers are started up to this line: the rest is not checked"
                place = Place(self.file, *started.servers[-1].start)
                return recipe + Recipe((TOO_LARGE.at(place, message, "cut it into several files"),))
            if words[:1] == ["cd"] and len(words) > 1:
                self.folder = base_name(words[1].rstrip("/"))
        self.files |= {document.name: document.text for document in script.documents if document.name}
        for document in script.documents:
            recipe += self._document(document)
        return recipe

    def _step(self, command: Command) -> Iterator[Finding]:
        """Report faults of other steps: settings, clones, downloads, builds, power."""
        words = command.words
        if words and base_name(str(words[0])) in {"sudo", "time"}:
            keeps = re.match(r"-E|--preserve-env", "".join(map(str, words[1:2])))
            if base_name(str(words[0])) == "sudo" and not keeps:
                yield from self._lost(command)
            words = words[1:]
        if not words:
            return
        at = Place(self.file, *words[0].start)
        arguments = [str(word) for word in words[1:]]
        match base_name(str(words[0])):
            case "git" if "clone" in arguments:
                yield from self._clone(words)
            case "huggingface-cli":
                first = arguments[0] if arguments else ""
                right = f"hf {_HUB_COMMANDS.get(first, first)}".rstrip()
                yield NAME_GONE.at(at, "`huggingface-cli` is gone from huggingface_hub", f"write `{right}`")
            case "cmake" if "--build" not in arguments:
                kind = self.engine or "llama.cpp"
                version = self.version if kind == "llama.cpp" else ""
                yield from servers.check_build(self.file, words[1:], kind, version)
            case "make" if self._of_llama(command, arguments):
                way_out = "write `cmake -B build -DGGML_CUDA=ON && cmake --build build --config Release -j`"
                yield NAME_GONE.at(
                    at, "llama.cpp is no longer built by make: its Makefile only prints an error", way_out
                )
            case "nvidia-smi":
                yield from self._power(words)
            case "cat" if sum(2 if "*" in each or "?" in each else 1 for each in arguments if _SHARD.search(each)) > 1:
                message = "shards are not parts of one file: no engine loads them joined by `cat`"
                way_out = "name the first shard, with the others in its folder; `llama-gguf-split --merge` joins them"
                yield NOT_AS_IT_LOOKS.at(at, message, way_out)
            case "wget" | "curl":
                yield from self._page(words)

    def _lost(self, command: Command) -> Iterator[Finding]:
        """Report variables before sudo, which starts programs without them (sudoers: env_reset)."""
        for name, value in command.settings.items():
            if OF_ENGINES.match(name):
                message = f"sudo removes `{name}`: the program does not get it"
                way_out = f"write `sudo {name}=… PROGRAM`"
                yield OTHER_VARIABLE.at(Place(self.file, *value.start), message, way_out)

    def _page(self, words: tuple[Word, ...]) -> Iterator[Finding]:
        """Report downloads of the page about a file in place of the file."""
        for word in words:
            if re.match(r"https://huggingface\.co/[^?]+/blob/[^?]+\.(?:gguf|safetensors)", str(word)):
                right = str(word).replace("/blob/", "/resolve/", 1)
                message = "this is the page about the file: the download is HTML"
                yield NOT_AS_IT_LOOKS.at(Place(self.file, *word.start), message, f"write `{right}`")

    def _of_llama(self, command: Command, arguments: list[str]) -> bool:
        """Return whether `make` should build llama.cpp; ik_llama.cpp has a Makefile that does."""
        options = [*command.settings, *arguments]
        if self.engine == "ik_llama.cpp" or arguments == ["clean"]:
            return False
        return self.folder == "llama.cpp" or any(option.startswith(("LLAMA_", "GGML_")) for option in options)

    def _clone(self, words: tuple[Word, ...]) -> Iterator[Finding]:
        for word in words:
            if re.search(r"github\.com[:/]ggerganov/llama\.cpp", str(word)):
                right = str(word).replace("ggerganov", "ggml-org")
                message = "the repository of llama.cpp moved; the old address only forwards"
                yield NAME_GONE.at(Place(self.file, *word.start), message, f"write `{right}`", "warning")

    def _power(self, words: tuple[Word, ...]) -> Iterator[Finding]:
        for word in words:
            option = str(word).partition("=")[0]
            what = {"-pl": "a power limit", "--power-limit": "a power limit", "-lgc": "a clock limit"}.get(option)
            if option in {"-pm", "--persistence-mode"}:
                what = "persistence mode"
            if what:
                message = f"{what} that is set this way lasts until the next boot"
                way_out = "declare it in the inventory, where it is set at every boot and verified"
                yield BETTER_BY_RIG.at(Place(self.file, *word.start), message, way_out)

    def _document(self, document: Document) -> Recipe:
        """Return the recipe of a here-document that is a unit or the input of a shell; others are left."""
        reader = [base_name(str(word)) for word in document.reader]
        shells = {*SHELLS, "ssh", "wsl", "toolbox", "distrobox"}
        shell = not shells.isdisjoint(reader) and "compose" not in reader
        if _UNIT.search(document.text.chars) or (shell and not document.name) or document.name.endswith(".sh"):
            return self.read(document.text)
        return Recipe(documents=(document,))

    def _unread(self, position: Position) -> Finding:
        message = "bash cannot read this line: it is read without its quotes, and what it begins may be missing"
        return NOT_READ.at(Place(self.file, *position), message, "run `bash -n` on the file, and correct the line")

    def _conflicts(self, command: Command, started: tuple[ServerCommand, ...]) -> Iterator[Finding]:
        """Report resources that a server of the same script already uses."""
        for server in started:
            yield from check_shared_resources(self.file, self.running, server)
            if command.background or (command.words and base_name(str(command.words[0])) in {"screen", "tmux"}):
                self.running.append(server)

    def _exports_all(self) -> bool:
        """Return whether programs get variables without `export`: on a page, which shows parts, and after `set -a`."""
        return self.excerpts or self.everything

    def _kept_back(self, text: Text) -> Iterator[Finding]:
        """Report variables of engines that are set only in the shell, and not used in it."""
        for name, value in self.assigned.items():
            used = re.search(rf"\$\{{?{name}\b|\b(?:export|-x)\b.*\b{name}\b", text.chars)
            if name not in self.exported and OF_ENGINES.match(name) and not used:
                self.exported.add(name)
                message = f"`{name}` is set for this shell only: the server does not get it"
                way_out = f"write `export {name}=…`, or put it before the command on its line"
                yield OTHER_VARIABLE.at(Place(self.file, *value.start), message, way_out)

    def _not_continued(self, position: Position) -> Finding:
        message = "this backslash is not the last character of its line: the command ends here, without the lines below"
        way_out = "make the backslash the last character of its line, and put comments above the command"
        return NOT_AS_IT_LOOKS.at(Place(self.file, *position), message, way_out)

    def _unit(self, text: Text) -> Recipe:
        """Return the recipe of a systemd unit: no shell reads its lines."""
        unit = units.read_unit(text)
        settings = units.unit_environment(unit)
        for named in [*unit.all("EnvironmentFile")][: containers.MOST_FILES]:
            path = unveil(named.text).lstrip("-")
            written = self.files[path].chars if path in self.files else self.sibling(base_name(path))
            for name, value in settings_of(written).items():
                settings[name] = word_of(placed(value, named.at), named.at)
        known = {name: str(word) for name, word in settings.items() if not word.unknown}
        recipe = Recipe()
        words: tuple[Word, ...] = ()
        for setting in unit.all("ExecStart"):
            prefix = re.match(r"[@!:+|-]*[ \t]*", setting.text)
            words = units.words(setting.value.cut(prefix.end() if prefix else 0, len(setting.text)), known)
            recipe += Recipe(tuple(unit_rules.check_container(self.file, unit, words)))
            recipe += Recipe(tuple(self._in_unit(words))) + self.checked(Command(_until_shell(words), settings), ())
        if words and not (recipe.servers or recipe.findings):
            recipe = self._script_of_unit(words, known, servers.names_engine(text.chars))
        started = unit_rules.StartedUnit(self.file, unit, words, self.excerpts)
        recipe = Recipe(tuple(unit_rules.check_unit(started))) + recipe
        for server in recipe.servers[:1]:
            recipe += Recipe(tuple(unit_rules.check_service(started, server)))
        cpus = re.sub(r"[\s,]+", ",", unit.value("CPUAffinity") or unit.value("AllowedCPUs"))
        recipe = replace(recipe, servers=tuple(replace(each, cpus=each.cpus or cpus) for each in recipe.servers))
        # One finding a word: a word that no shell expands is not reported as a wrong argument, too.
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

    def _script_of_unit(self, words: tuple[Word, ...], known: Mapping[str, str], about_engine: bool) -> Recipe:
        """Return the recipe of a script that a unit starts; a note if it is not in the folder of the unit."""
        script, at = self.sibling(base_name(str(words[0]))), words[0].start
        if script:
            return self.fresh().read(placed(script, at), known)
        if not about_engine or base_name(str(words[0])) in ("llama-swap", "docker", "podman"):
            return Recipe()
        message = f"what `{words[0]}` starts is not read"
        way_out = "check that script, or put it into the folder of this file"
        return Recipe((NOT_READ.at(Place(self.file, *at), message, way_out, "note"),))

    def _in_unit(self, words: tuple[Word, ...]) -> Iterator[Finding]:
        for word in words:
            if re.search(r"\$\(|`", str(word)):
                message = f"systemd runs no shell: `{word}` reaches the program as it is written"
                yield OTHER_VARIABLE.at(Place(self.file, *word.start), message, "write the value itself")
        if words and not (words[0].unknown or str(words[0]).startswith(("/", "%", "$"))) and "/" in str(words[0]):
            message = f"systemd does not start `{words[0]}`: its path is not absolute"
            yield NOT_AS_IT_LOOKS.at(Place(self.file, *words[0].start), message, "write the whole path, from `/` on")

    def checked(self, command: Command, orphans: tuple[Word, ...], *, shell: bool = False) -> Recipe:
        """Return the recipe of the server, the container or the build that a command starts."""
        words = command.words
        names = [base_name(str(word)) for word in words]
        if (run := containers.end_of_run(names)) is not None:
            arguments, behind = containers.move_misplaced_options(words[run:] + orphans)
            options, rest = containers.options_of_run(arguments)
            if not rest:
                return Recipe()
            folder = None if self.excerpts else self.file.absolute().parent
            container = containers.container_of(options, rest[0], rest[1:], folder=folder)
            built = container.repository_and_tag in self.built
            recipe = container_rules.recipe_of(self.file, replace(container, built=built, engine=self.engine))
            if not recipe.servers:
                return recipe
            alone = shell and not self.excerpts
            recipe += Recipe(tuple(container_rules.check_docker_options(self.file, arguments, alone=alone)))
            if behind:
                message = f"`{behind[0]}` is after the image, where it is an argument of the server"
                way_out = "put options of Docker before the image"
                recipe += Recipe((BEHIND_IMAGE.at(Place(self.file, *behind[0].start), message, way_out),))
            return Recipe(self._kept(recipe.findings, recipe.servers[0]), recipe.servers)
        names = [base_name(str(word)) for word in words[:1]]
        if names == ["llama-swap"]:
            return Recipe(tuple(self._swap(words)))
        server = find_program(command, self.engine)
        guessed = self._guessed(command) if server is None and shell else None
        server = server or guessed
        if server is None:
            return Recipe()
        cut = cut_sign(command)
        known = server.arguments[:-2] if cut else server.arguments  # half of an argument is not one
        version = self.version if server.kind == "llama.cpp" else ""
        whole = replace(server, arguments=known + orphans, version=version)
        serving = server.program in PORTS or (server.program == "llama-cli" and not server.has(*servers.PROMPTS))
        recipe = Recipe(self._checked(whole), (whole,) if serving else ())
        if guessed:
            message = f"`{guessed.path}` is set elsewhere: by its flags it is read as {guessed.program}"
            way_out = "give the program's own path if it is another one"
            recipe += Recipe((NOT_READ.at(Place(self.file, *guessed.start), message, way_out, "note"),))
        if orphans and not self.excerpts and not cut:
            message = f"`{orphans[0]}` begins a line of its own: the one above ends without a backslash"
            way_out = "end every line of the command but the last with a backslash, and put no comment between them"
            recipe += Recipe((NOT_AS_IT_LOOKS.at(Place(self.file, *orphans[0].start), message, way_out),))
        return recipe + Recipe(tuple(self._not_a_service(command, server)))

    def _swap(self, words: tuple[Word, ...]) -> Iterator[Finding]:
        """Report llama-swap that the network reaches without a key. It listens on all addresses by default."""
        given = {str(word).lstrip("-").partition("=")[0]: at for at, word in enumerate(words) if str(word)[:1] == "-"}

        def value(name: str) -> str:
            at = given.get(name, len(words))
            written = str(words[at]).partition("=")[2] if at < len(words) else ""
            return written or "".join(map(str, words[at + 1 : at + 2]))

        config = self.file.absolute().parent / (value("config") or "config.yaml")
        if any(word.unknown for word in words) or container_rules.swap_has_keys(config):
            return
        if not is_loopback(value("listen").rpartition(":")[0]):
            message = "llama-swap is open to the whole network, and no API key is required"
            way_out = "add `--listen 127.0.0.1:8080`, or set `apiKeys` in its config.yaml"
            yield OPENS_TO_NETWORK.at(Place(self.file, *words[0].start), message, way_out)

    def _guessed(self, command: Command) -> ServerCommand | None:
        """Return the server of a command whose program is unknown and whose flags are llama-server's."""
        first, *rest = command.words or (None,)
        if first is None or not first.unknown or not servers.are_server_flags(rest, self.engine):
            return None
        kind = kind_of_program("llama-server", tuple(rest), self.engine)
        server = ServerCommand("llama-server", kind, tuple(rest), first.start, command.settings, str(first))
        return server if server.has(*servers.MODEL_FLAGS) else None

    def _checked(self, server: ServerCommand) -> tuple[Finding, ...]:
        return self._kept(servers.check_server(self.file, server), server)

    def _kept(self, found: Iterable[Finding], server: ServerCommand) -> tuple[Finding, ...]:
        return tuple(each for each in found if not (self.excerpts and _of_a_manual(each, server)))

    def _not_a_service(self, command: Command, server: ServerCommand) -> Iterator[Finding]:
        if server.program not in PORTS:
            return
        way = next((word for word in command.words if base_name(str(word)) in _DETACHING), None)
        if way or command.background:
            how = f"`{base_name(str(way))}`" if way else "`&`"
            at = way.start if way else server.start
            message = f"with {how} the server is not restarted after a crash or a reboot"
            way_out = "let systemd run it: `herd up` writes the unit"
            yield BETTER_BY_RIG.at(Place(self.file, *at), message, way_out)


def _until_shell(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the words that are meant for the program, up to syntax for a shell."""
    words = words[: unit_rules.swallowed(words)]
    texts = [str(word) for word in words]
    ends = [index for index, text in enumerate(texts) if unit_rules.is_operator(text) or text[:1] in {"#", "\\", " "}]
    return words[: ends[0]] if ends else words


def _of_a_manual(finding: Finding, server: ServerCommand) -> bool:
    """Return whether a finding applies to recipes only, and not to a page that documents a program."""
    return finding.code == STRAY.code and sum(str(word).isalpha() for word in server.arguments[-3:]) == 3


def _flags_alone(command: Command) -> bool:
    """Return whether a command is bare flags, before which the reader put a program."""
    return bool(command.words) and not command.words[0].text.at


def _joined(commands: tuple[Command, ...]) -> Iterator[tuple[Command, tuple[Word, ...]]]:
    """Yield each command with the lines of flags that follow it. Flags without a command are llama-server's."""
    current: Command | None = None
    orphans: list[Word] = []
    flags_alone = False
    for command in commands:
        flags = bool(command.words) and re.match(r"--?[a-zA-Z]", str(command.words[0])) is not None
        if flags and current is None:
            flags_alone = True
            program = servers.program_of(command.words)
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
