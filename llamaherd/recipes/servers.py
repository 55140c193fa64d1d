"""Check the command line of an engine: its flags, variables and build options, and what they leave open."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.engines import flags
from llamaherd.engines.flags import Catalogue, Problem, Value
from llamaherd.engines.flags.advice import ENDS, OPEN, SECRET
from llamaherd.engines.flags.cmake import OPTION_TAKEN
from llamaherd.engines.flags.conflicts import find_conflicts
from llamaherd.engines.flags.effective import OFF, Conflict, ServerContext, effective_options
from llamaherd.engines.flags.environment import PREFIX, flag_of_variable
from llamaherd.memory.facts import THREAD_FOR_EACH
from llamaherd.recipes.commands import Position, Word, word_at
from llamaherd.recipes.recipe import (
    BETTER_BY_RIG,
    FORK,
    NAME_GONE,
    NOT_AS_IT_LOOKS,
    NOT_READ,
    OLD_NAMES,
    OPENS_TO_NETWORK,
    EngineName,
    ServerCommand,
    base_name,
)
from llamaherd.text.numbers import parse_real

CHECKED = ("llama-server", "llama-cli", "llama-sweep-bench", "vllm")
"""The programs that take a server's flags. llama-bench has flags of its own."""

# What llama-cli takes and llama-server does not (llama.cpp common/arg.cpp: set_examples, set_excludes).
OF_CLI: Mapping[str, int] = {
    **dict.fromkeys(("-p", "--prompt", "-f", "--file", "-sys", "--system-prompt", "-sysf", "--system-prompt-file"), 1),
    **dict.fromkeys(("--image", "--audio", "--video", "-o", "--output", "-co", "--color"), 1),
    "--completion-bash": 0,
    **dict.fromkeys(("-st", "--single-turn", "-mli", "--multiline-input", "--simple-io", "--verbose-prompt"), 0),
    **dict.fromkeys(("--display-prompt", "--no-display-prompt", "--show-timings", "--no-show-timings"), 0),
    **dict.fromkeys(("-cnv", "--conversation", "-no-cnv", "--no-conversation", "-i", "--interactive"), 0),
}
"""Flags of llama-cli, with the number of their values."""
_CHECKED_ELSEWHERE = {OPEN, SECRET}
"""Rules that are checked elsewhere: a container decides which hosts reach a server, and recipes may contain a key."""
MODEL_FLAGS = ("-m", "--model", "-hf", "-hfr", "--hf-repo", "-mu", "--model-url")
"""Without these flags a command does not serve: `llama-server --version` prints the version and ends."""
ROUTING = ("--models-preset", "--models-dir", "--models-max")
"""Flags of a server that loads models as they are requested."""
_ELLIPSES = ("...", "…")
"""Signs for arguments that are left out."""
_KEY_FROM_FILE = "put the key into a file, and give `--api-key-file`"
_OF_FORKS = re.compile(r"turbo[2-4](?:_\w+)?")
"""Cache types that only forks have (TurboQuant)."""
_LONGEST = 80
"""The most characters of an argument in a message."""
_STAND_IN = "4321"
"""A number in place of one that only a shell can compute."""


def check_flags(file: Path, server: ServerCommand) -> Iterator[Finding]:
    """Yield the faults of a server's arguments and variables."""
    if server.version == FORK or any(_OF_FORKS.fullmatch(str(word)) for word in server.arguments):
        message = f"this is a fork of {server.kind}, whose flags are unknown: the arguments are not checked"
        yield NOT_READ.at(Place(file, *server.start), message, "`--help` of that program lists its flags", "note")
        return
    known = flags.assumed(server.kind, server.version) if server.version else None
    if known is not None and known.complete and not known.requested and not known.exact:
        message = (
            f"{server.kind} {server.version} is older than all whose flags are known: its arguments are not checked"
        )
        yield NOT_READ.at(Place(file, *server.start), message, "take a newer version", "note")
        return
    for problem, word in _problems(server):
        yield problem.at(Place(file, *word.start))
    for problem, name in _of_environment(server):
        yield problem.at(Place(file, *server.settings[name].start))
    for clash, start in _clashes(server):
        yield clash.at(Place(file, *start))


def are_server_flags(words: Iterable[Word], engine: EngineName | None) -> bool:
    """Return whether flags without a program are likely llama-server's: at least two, and most in its catalogue."""
    names = [str(word).split("=")[0] for word in words if re.match(r"--?[a-zA-Z]", str(word))]
    known = [name for name in names if any(each.find(name) for each in _of_llama_server(engine))]
    return len(names) > 1 and 2 * len(known) > len(names)


def names_engine(text: str) -> bool:
    """Return whether a text names an engine, or one of its variables."""
    return re.search(r"(?<!o)llama|vllm|gguf", text, re.IGNORECASE) is not None


def program_of(words: Iterable[Word]) -> str:
    """Return the likely program of flags that stand without one."""
    return "llama-cli" if any(str(word) in OF_CLI for word in words) else "llama-server"


def _of_llama_server(engine: EngineName | None) -> list[Catalogue]:
    kinds: tuple[EngineName, ...] = (engine,) if engine else ("llama.cpp", "ik_llama.cpp")
    return [catalogue for kind in kinds for catalogue in flags.catalogues(kind)]


def check_build(file: Path, words: tuple[Word, ...], kind: EngineName, version: str) -> Iterator[Finding]:
    """Yield the faults of the `-D` options of cmake, for an engine's version if that is named."""
    options: dict[str, str] = {}
    places: list[Place] = []
    for index, word in enumerate(words):
        text = str(word)
        if text == "-D" and index + 1 < len(words):
            text = f"-D{words[index + 1]}"
        name, equals, value = text.removeprefix("-D").partition("=")
        if text.startswith("-D") and equals and not word.unknown and name not in options:
            options[name] = value
            places.append(Place(file, *word.start))
    if not any(name.startswith(("GGML_", "LLAMA_")) for name in options):
        return  # of some other project
    known = flags.catalogue(kind, version) if version else None
    for problem in flags.check_options(kind, options, newer=known.requested if known and known.outdated else ""):
        if problem.rule is OPTION_TAKEN and problem.severity == "warning":
            continue  # a build by hand may be for debugging
        found = problem.at(places[problem.index])
        if problem.replacement:
            written = shlex.quote(f"-D{problem.replacement[0]}")  # a `;` would end the command
            found = replace(found, help=f"write `{written}`")
        yield found


def with_arguments_of_environment(server: ServerCommand) -> ServerCommand:
    """Return a command with flags for the variables that stand for them, unless it has the flag itself."""
    catalogue = _catalogue(server)
    given: list[Word] = []
    kept: dict[str, Word] = {}
    for name, word in server.settings.items():
        shown = name.startswith(PREFIX) and not re.search("KEY|TOKEN", name)
        flag = flag_of_variable(catalogue, name) if shown and catalogue and catalogue.env != "above" else None
        if flag is None or flag.removed or word.unknown or server.program not in CHECKED:
            kept[name] = word
        elif not server.has(*flag.spellings, *flag.negated):
            on = str(word).lower() not in OFF
            names = flag.spellings if on or not flag.negated else flag.negated
            texts = [names[-1], str(word)] if flag.values else [names[-1]] if on or flag.negated else []
            given += [word_at(text, word.start) for text in texts]
    return replace(server, arguments=(*given, *server.arguments), settings=kept) if given else server


class KnownArguments(NamedTuple):
    """The arguments of a command that are known and right, and what was left out."""

    arguments: tuple[str, ...]
    unknown: tuple[str, ...]
    wrong: tuple[str, ...]


def known_arguments(server: ServerCommand) -> KnownArguments:
    """Return the corrected arguments, without those that are unknown or cannot be corrected."""
    words, arguments = _arguments(server)
    kept = set(map(id, words))
    unknown = [str(word) for word in server.arguments if word.unknown and id(word) not in kept]
    wrong: list[str] = []
    result: list[str] = []
    problems = {problem.index: problem for problem, _ in _problems(server) if problem.severity == "error"}
    problems |= {p.index: p for p, _ in _problems(server) if p.replacement is not None}
    index = 0
    while index < len(words):
        problem = problems.get(index)
        written = words[index : index + (problem.length if problem else 1)]
        if problem and problem.replacement is not None:
            stand_ins = [at for at, text in enumerate(problem.replacement) if text == _STAND_IN]
            left_out = {each for at in stand_ins for each in (at - 1, at)}
            result += [text for at, text in enumerate(problem.replacement) if at not in left_out]
            unknown += [" ".join(map(str, written))] if stand_ins else []
        elif problem:
            wrong.append(" ".join(map(str, written)))
        elif written[0].unknown and not _named(written[0]):
            flag = [result.pop()] if result and result[-1].startswith("-") else []
            unknown.append(" ".join([*flag, str(written[0])]))
        else:
            result.append(arguments[index])
        index += len(written)
    return KnownArguments(tuple(result), tuple(unknown), tuple(wrong))


def _named(word: Word) -> bool:
    """Return whether a path has a known name, in a folder that may be unknown."""
    folder, slash, name = str(word).rpartition("/")
    return bool(folder and slash and name) and not re.search(r"[$`{}<>]", name)


def sound_environment(server: ServerCommand) -> dict[str, str]:
    """Return the variables of a server whose values are known, without wrong ones."""
    wrong = {name for _, name in _of_environment(server)}
    return {name: str(word) for name, word in server.settings.items() if not word.unknown and name not in wrong}


def _of_environment(server: ServerCommand) -> list[tuple[Problem, str]]:
    catalogue = _catalogue(server)
    known = {name: str(word) for name, word in server.settings.items() if not word.unknown}
    problems = flags.check_environment(catalogue, known) if catalogue else ()
    names = list(known)
    return [(problem, names[problem.index]) for problem in problems if problem.rule not in _CHECKED_ELSEWHERE]


def _clashes(server: ServerCommand) -> Iterator[tuple[Conflict, Position]]:
    """Yield conflicts among arguments and variables; values that only a shell can compute are skipped."""
    catalogue = _catalogue(server)
    if catalogue is None or server.program not in CHECKED or any(str(word) in _ELLIPSES for word in server.arguments):
        return
    words, arguments = _arguments(server)
    settings = {name: str(word) for name, word in server.settings.items() if not word.unknown}
    of_variables = list(settings)
    open_port = server.published is not None and not is_loopback(server.published.address)
    model = str(server.arguments[0]) if server.program == "vllm" and server.arguments else ""
    around = ServerContext(cards=server.cards, reachable=open_port if server.contained else None, model=model)
    for clash in find_conflicts(effective_options(catalogue, arguments, settings), around):
        if not clash.options:  # it is about the model, which has no flag
            yield clash, server.arguments[0].start
            continue
        own = clash.options[0]
        at = [words[one.index : one.index + len(one.words)] for one in clash.options if one.origin == "argument"]
        if any(word.unknown for several in at for word in several):
            continue
        yield clash, (words[own.index] if own.origin == "argument" else server.settings[of_variables[own.index]]).start


def _catalogue(server: ServerCommand) -> Catalogue | None:
    """Return the flags of the version that a recipe names, or of the newest known version."""
    named = flags.catalogue(server.kind, server.version) if server.version else None
    known = flags.catalogues(server.kind)
    return named or (known[-1] if known else None)


def other_catalogues(catalogue: Catalogue) -> list[Catalogue]:
    """Return the flags of all other versions of llama.cpp and ik_llama.cpp."""
    return [other for other in _of_llama_server(None) if str(other) != str(catalogue)]


def _problems(server: ServerCommand) -> list[tuple[Problem, Word]]:
    """Return the faults of the arguments, each with its first word."""
    catalogue = _catalogue(server)
    if catalogue is None or server.program not in CHECKED:
        return []
    words, arguments = _arguments(server)
    found: list[tuple[Problem, Word]] = []
    for problem in flags.check_arguments(catalogue, arguments, other_catalogues(catalogue)):
        word = words[problem.index]
        if problem.rule is OPEN or (problem.rule is ENDS and not server.has(*MODEL_FLAGS)):
            continue
        if problem.rule is SECRET:
            way_out = f"leave it out, and {key_advice(server)}" if server.kind == "vllm" else _KEY_FROM_FILE
            problem = replace(problem, help=way_out, unusual="note")
        unknown = [each for each in words[problem.index : problem.index + problem.length] if each.unknown]
        for each in unknown:
            problem = replace(
                problem,
                message=problem.message.replace(_STAND_IN, str(each)),
                help=problem.help.replace(_STAND_IN, str(each)),
            )
        found.append((problem, word))
    return found


def _arguments(server: ServerCommand) -> tuple[list[Word], list[str]]:
    """Return the words to check and their texts, with likely texts for values that only a shell can compute."""
    catalogue = _catalogue(server)
    words: list[Word] = []
    arguments: list[str] = []
    awaited: list[Value] = []
    passed_over = 0
    for word in server.arguments:
        if passed_over or (server.program == "llama-cli" and str(word) in OF_CLI):
            passed_over = passed_over - 1 if passed_over else OF_CLI[str(word)]
            continue
        text = str(word)
        if catalogue and catalogue.equals and re.match(r"--?[a-z][\w-]*\.", text):
            passed_over = int("=" not in text)
            continue  # one key of a flag that takes JSON
        flag = catalogue.find(text) if catalogue else None
        if flag and not flag.removed:
            awaited = list(flag.values)
        elif word.unknown:
            if awaited:
                text = _likely(awaited.pop(0), text)
            elif arguments and arguments[-1].startswith("-") and not (catalogue and catalogue.knows(arguments[-1])):
                text = _STAND_IN  # of a flag that this engine does not have
            else:
                continue  # it may stand for any number of arguments
        elif awaited:
            awaited.pop(0)
        words.append(word)
        arguments.append(text)
    return words, arguments


def shortened(text: str) -> str:
    """Return the first line of an argument, up to a length that fits in a message."""
    line = text.split("\n")[0]
    return text if line == text and len(line) <= _LONGEST else f"{line[:_LONGEST].rstrip()}…"


def unread_words(server: ServerCommand) -> list[Word]:
    """Return the words that may stand for any number of arguments."""
    checked = set(map(id, _arguments(server)[0]))
    return [word for word in server.arguments if word.unknown and id(word) not in checked and not _elided(word)]


def _elided(word: Word) -> bool:
    """Return whether a word is a sign for what is left out on a page, and no variable."""
    return not re.search(r"[$`{]", str(word))


def _likely(value: Value, text: str) -> str:
    """Return the written value if it may be right, else one that is right."""
    if value.wrong(text) is None:
        return text
    candidates: Iterable[str] = (*value.choices, _STAND_IN, str(value.minimum), "{}")
    return next((one for one in candidates if one and value.wrong(one) is None), text)


API_KEY_FLAGS = ("--api-key", "--api-key-file")
API_KEY_VARIABLES = {"LLAMA_API_KEY", "VLLM_API_KEY"}
PORTS = {"llama-server": "8080", "vllm": "8000"}
"""The default port of each server (llama.cpp common/arg.cpp:3340)."""

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
OF_EVERY_PROGRAM = ("--version", "--help", "-h", "--list-devices", "--completion-bash")
PROMPTS = ("-p", "--prompt", "-f", "--file", "-st", "--single-turn", *OF_EVERY_PROGRAM)
"""With these flags, llama-cli does one thing and ends."""


_NOT_SERVING = (*OF_EVERY_PROGRAM, "--headless")
"""With these flags nothing listens. `--headless` of vLLM starts a node that works for another node."""


def is_loopback(address: str) -> bool:
    """Return whether only the machine itself reaches a server at this address."""
    return address.startswith("127.") or address in {"localhost", "::1", "[::1]"} or address.endswith(".sock")


def gpu_utilization(server: ServerCommand) -> float:
    """Return the share of a GPU that a vLLM server takes."""
    word = server.value("--gpu-memory-utilization")
    try:
        return parse_real(str(word)) if word else 0.9  # vLLM 0.33.0, config/cache.py
    except ValueError:
        return 0.0


def check_server(file: Path, server: ServerCommand) -> Iterator[Finding]:
    """Yield the faults of one command. The published port opens a server in a container, not its flags."""
    here = Place(file, *server.start)
    if base_name(server.path) in OLD_NAMES:
        message = f"`{server.path}` is no program of llama.cpp any more"
        yield NAME_GONE.at(here, message, f"write `{server.program}` in its place")
    yield from check_flags(file, server)
    if server.program in PORTS and not server.contained:
        yield from _open(file, server)
    yield from _model(file, server)
    yield from _threads(file, server)
    named = server.has(*MODEL_FLAGS, *ROUTING)
    named = named or next((each for each in server.arguments[:1] if re.match(r"[\w/.]", str(each))), None)
    for word in () if named else unread_words(server)[:1]:
        message = f"`{shortened(str(word))}` is set elsewhere: the arguments in it are not checked"
        yield NOT_READ.at(Place(file, *word.start), message, "write the arguments here, or check them there", "note")


def _threads(file: Path, server: ServerCommand) -> Iterator[Finding]:
    """Yield a note on a thread for every logical processor, as nproc counts them; LH217 reports `-1` and `0`."""
    threads = server.value("-t", "--threads")
    counted = threads is not None and threads.unknown and "nproc" in str(threads)
    if threads is None or not counted:
        return
    at = threads.text.at[0] if threads.text.at else threads.start
    message = "nproc counts every logical processor, SMT siblings too: a thread that waits for one stops all others"
    way_out = "give the number of physical cores; of more than 16 without siblings, leave some free"
    yield THREAD_FOR_EACH.at(Place(file, *at), message, way_out, "note")


def key_advice(server: ServerCommand) -> str:
    """Return how to set a server's key so that no list of processes shows it."""
    if server.kind == "vllm":
        return "set `VLLM_API_KEY` in its environment"
    return "add `--api-key-file` with a file of keys"


def _open(file: Path, server: ServerCommand) -> Iterator[Finding]:
    """Yield a listener beyond loopback without a key. vLLM listens on all addresses by default."""
    if server.has(*API_KEY_FLAGS, *_NOT_SERVING) or API_KEY_VARIABLES & set(server.settings):
        return
    if any(str(word) in {"...", "…"} for word in server.arguments) or unread_words(server):
        return  # what is left out may be a key
    flag, host = server.has("--host"), server.value("--host")
    if (variable := server.settings.get("LLAMA_ARG_HOST")) and (flag is None or server.kind == "ik_llama.cpp"):
        flag, host = variable, variable
    if flag is None and server.program == "vllm":
        message = "vLLM listens on all addresses by default, and no API key is required"
        yield OPENS_TO_NETWORK.at(
            Place(file, *server.start), message, f"add `--host 127.0.0.1`, or {key_advice(server)}"
        )
    elif (
        flag and host and not (host.unknown or str(host).startswith("-") or is_loopback(str(host)) or "/" in str(host))
    ):
        message = f"this listens on {host}, open to the whole network, and no API key is required"
        way_out = f"{key_advice(server)}, or write `--host 127.0.0.1`"
        yield OPENS_TO_NETWORK.at(Place(file, *flag.start), message, way_out)


def _model(file: Path, server: ServerCommand) -> Iterator[Finding]:
    model = server.value("-m", "--model")
    if model is None:
        return
    at = Place(file, *model.start)
    if glued := re.fullmatch(r"(\S+\.gguf)(--?[a-z][\w-]*)", str(model)):
        message = f"`{model}` is one word: a blank is missing before `{glued[2]}`"
        yield NOT_AS_IT_LOOKS.at(at, message, f"write `{glued[1]} {glued[2]}`")
    if model.tilde:
        message = f"`{model}` is no path: in quotes, the shell does not replace `~`"
        yield NOT_AS_IT_LOOKS.at(at, message, "write `$HOME` in its place")
    if shard := _SHARD.search(str(model)):
        number, count = int(shard[1]), int(shard[2])
        if number != 1:
            first = f"-00001-of-{shard[2]}.gguf"
            message = f"this is shard {number} of {count}, and the engine needs the first"
            yield NOT_AS_IT_LOOKS.at(at, message, f"name the file that ends with `{first}`")
    if re.match(r"/mnt/[a-z]/", str(model)):
        message = "under WSL this is a Windows disk, read by a slow network protocol: loading takes minutes"
        yield BETTER_BY_RIG.at(at, message, "copy the model into Linux's own file system, such as ~/models")
