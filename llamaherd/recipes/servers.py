"""What is wrong with the command line of an engine: its flags, and what they leave open or undone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.engines.threads import THREAD_FOR_EACH
from llamaherd.recipes import flagged
from llamaherd.recipes.programs import OLD_NAMES, ServerCommand, base_name
from llamaherd.recipes.recipe_rules import BETTER_BY_RIG, NAME_GONE, NOT_AS_IT_LOOKS, OPENS_TO_NETWORK

API_KEY_FLAGS = ("--api-key", "--api-key-file")
API_KEY_VARIABLES = {"LLAMA_API_KEY", "VLLM_API_KEY"}
PORTS = {"llama-server": "8080", "vllm": "8000"}
"""Where each server listens unless it is told (llama.cpp common/arg.cpp:3340)."""

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
OF_EVERY_PROGRAM = ("--version", "--help", "-h", "--list-devices", "--completion-bash")
PROMPTS = ("-p", "--prompt", "-f", "--file", "-st", "--single-turn", *OF_EVERY_PROGRAM)
"""With these llama-cli does one thing and ends, as it is meant to."""


_NOT_SERVING = (*OF_EVERY_PROGRAM, "--headless")
"""With these nothing listens; of vLLM, `--headless` is a node that works for another."""


def is_loopback(address: str) -> bool:
    """Whether only the machine itself reaches a server that listens there."""
    return address.startswith("127.") or address in {"localhost", "::1", "[::1]"} or address.endswith(".sock")


def check(file: Path, server: ServerCommand) -> Iterator[Finding]:
    """What is wrong with one command. A server in a container is opened by its published port, not by its flags."""
    here = Place(file, *server.start)
    if base_name(server.path) in OLD_NAMES:
        message = f"`{server.path}` is no program of llama.cpp any more"
        yield NAME_GONE.at(here, message, f"write `{server.program}` in its place")
    yield from flagged.check(file, server)
    if server.program in PORTS and not server.contained:
        yield from _open(file, server)
    if server.program == "llama-cli" and not server.contained and server.has(*PROMPTS) is None:
        message = "llama-cli talks to one terminal, and ends with it"
        way_out = "llama-server takes the same flags, and serves every program by HTTP"
        yield BETTER_BY_RIG.at(here, message, way_out)
    yield from _model(file, server)
    yield from _threads(file, server)


def _threads(file: Path, server: ServerCommand) -> Iterator[Finding]:
    """A thread for every logical processor, as nproc counts them; of `-1` and `0`, LH217 says so."""
    threads = server.value("-t", "--threads")
    counted = threads is not None and threads.unknown and "nproc" in str(threads)
    if threads is None or not counted:
        return
    at = threads.text.at[0] if threads.text.at else threads.start
    message = "nproc counts every logical processor, SMT siblings too: a thread that waits for one stops all others"
    way_out = "give the number of physical cores; of more than 16 without siblings, leave some free"
    yield THREAD_FOR_EACH.at(Place(file, *at), message, way_out, "note")


def key_advice(server: ServerCommand) -> str:
    """How a server is given a key that no list of processes shows."""
    if server.kind == "vllm":
        return "set `VLLM_API_KEY` in its environment"
    return "add `--api-key-file` with a file of keys"


def _open(file: Path, server: ServerCommand) -> Iterator[Finding]:
    """A listener beyond loopback without a key. vLLM listens everywhere unless it is told."""
    if server.has(*API_KEY_FLAGS, *_NOT_SERVING) or API_KEY_VARIABLES & set(server.settings):
        return
    if any(str(word) in {"...", "…"} for word in server.arguments):
        return  # what is left out may be a key
    flag, host = server.has("--host"), server.value("--host")
    if (variable := server.settings.get("LLAMA_ARG_HOST")) and (flag is None or server.kind == "ik_llama.cpp"):
        flag, host = variable, variable
    if flag is None and server.program == "vllm":
        message = "vLLM listens on all addresses unless it is told, and no API key is asked for"
        yield OPENS_TO_NETWORK.at(
            Place(file, *server.start), message, f"add `--host 127.0.0.1`, or {key_advice(server)}"
        )
    elif (
        flag and host and not (host.unknown or str(host).startswith("-") or is_loopback(str(host)) or "/" in str(host))
    ):
        message = f"this listens on {host}, open to the whole network, and no API key is asked for"
        way_out = f"{key_advice(server)}, or write `--host 127.0.0.1`"
        yield OPENS_TO_NETWORK.at(Place(file, *flag.start), message, way_out)


def _model(file: Path, server: ServerCommand) -> Iterator[Finding]:
    model = server.value("-m", "--model")
    if model is None:
        return
    at = Place(file, *model.start)
    if model.tilde:
        message = f"`{model}` is no path: in quotes, the shell puts no home in for `~`"
        yield NOT_AS_IT_LOOKS.at(at, message, "write `$HOME` in its place")
    if shard := _SHARD.search(str(model)):
        number, count = int(shard[1]), int(shard[2])
        if number != 1:
            first = f"-00001-of-{shard[2]}.gguf"
            message = f"this is shard {number} of {count}, and a model is loaded by its first"
            yield NOT_AS_IT_LOOKS.at(at, message, f"name the one that ends with `{first}`")
        elif count > 1:
            message = f"this is the first of {count} shards: all of them must lie beside it, under these names"
            way_out = "download them all, and never join them with `cat`"
            yield BETTER_BY_RIG.at(at, message, way_out)
    if re.match(r"/mnt/[a-z]/", str(model)):
        message = "under WSL this is a Windows disk, read by a slow network protocol: loading takes minutes"
        yield BETTER_BY_RIG.at(at, message, "copy the model into Linux's own file system, such as ~/models")
