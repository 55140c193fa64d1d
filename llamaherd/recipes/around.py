"""What scripts do around the server that they start: clones, downloads, builds, power limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.recipes import flagged
from llamaherd.recipes.commands import Command, Word
from llamaherd.recipes.programs import EngineName, base_name
from llamaherd.recipes.recipe_rules import BETTER_BY_RIG, NAME_GONE, NOT_AS_IT_LOOKS, OTHER_VARIABLE

_HUB_COMMANDS = {"login": "auth login", "logout": "auth logout", "whoami": "auth whoami", "delete-cache": "cache prune"}
_SHARD = re.compile(r"-(?:[0-9]{5}|[0-9?*]+)-of-(?:[0-9]{5}|[0-9?*]+)\.gguf$")
OF_ENGINES = re.compile(r"(?:CUDA|GGML|LLAMA_ARG|VLLM|NCCL|HF|HUGGING_FACE)_|LLAMA_API_KEY$")
"""Variables that programs read, and scripts have no use for."""


@dataclass(frozen=True)
class CommandPlace:
    """Where a command stands: its file, the engine that this is about and its version, the folder that it runs in."""

    file: Path
    engine: EngineName | None
    folder: str
    version: str = ""

    def check(self, command: Command) -> Iterator[Finding]:
        """What else recipes do: settings, clones, downloads, builds, power."""
        words = command.words
        if words and base_name(str(words[0])) == "sudo" and not re.match(r"-E|--preserve-env", str(words[1:2] or "")):
            yield from self._lost(command)
        if words and base_name(str(words[0])) in {"sudo", "time"}:
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
                yield from flagged.check_build(self.file, words[1:], kind, version)
            case "make" if (
                arguments != ["clean"] and self.engine != "ik_llama.cpp" and self._of_llama(command, arguments)
            ):
                way_out = "write `cmake -B build -DGGML_CUDA=ON && cmake --build build --config Release -j`"
                yield NAME_GONE.at(at, "llama.cpp is no longer built by make: its Makefile only says so", way_out)
            case "nvidia-smi":
                yield from self._power(words)
            case "cat" if sum(2 if "*" in each or "?" in each else 1 for each in arguments if _SHARD.search(each)) > 1:
                message = "shards are no parts of one file: joined by `cat`, no engine loads them"
                way_out = (
                    "name the first shard, and let the others lie beside it; `llama-gguf-split --merge` joins them"
                )
                yield NOT_AS_IT_LOOKS.at(at, message, way_out)
            case "wget" | "curl":
                yield from self._page(words)

    def _lost(self, command: Command) -> Iterator[Finding]:
        """Variables before sudo, which starts programs without them (sudoers: env_reset)."""
        for name, value in command.settings.items():
            if OF_ENGINES.match(name):
                message = f"sudo takes `{name}` away: the program does not see it"
                way_out = f"write `sudo {name}=… PROGRAM`"
                yield OTHER_VARIABLE.at(Place(self.file, *value.start), message, way_out)

    def _page(self, words: tuple[Word, ...]) -> Iterator[Finding]:
        """Downloads of the page about a file in place of the file."""
        for word in words:
            if re.match(r"https://huggingface\.co/[^?]+/blob/[^?]+\.(?:gguf|safetensors)", str(word)):
                right = str(word).replace("/blob/", "/resolve/", 1)
                message = "this is the page about the file, and what comes is HTML"
                yield NOT_AS_IT_LOOKS.at(Place(self.file, *word.start), message, f"write `{right}`")

    def _of_llama(self, command: Command, arguments: list[str]) -> bool:
        """Whether `make` is to build llama.cpp; ik_llama.cpp has a Makefile that does."""
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
