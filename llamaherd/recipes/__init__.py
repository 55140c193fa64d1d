"""Find the mistakes of recipes: scripts, units, Compose files and pages that users paste from blogs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from llamaherd.diagnostics.findings import Finding, InventoryError, Place
from llamaherd.inventory import wslconfig
from llamaherd.inventory.yaml_file import UNREADABLE
from llamaherd.recipes import compose, llama_swap, pages, preset, shell
from llamaherd.recipes import recipe as recipes_recipe
from llamaherd.recipes.recipe import NOT_AS_IT_LOOKS, Recipe
from llamaherd.recipes.tokens import positioned
from llamaherd.text.textfile import UnreadableError, read_bytes, read_text

RecipeKind = Literal["inventory", "compose", "shell", "wslconfig", "preset", "swap"]

LARGEST = 128 << 10
"""The most bytes of a recipe. Longer files are models or logs, given by mistake."""

_SHELL_SUFFIXES = {".sh", ".bash", ".zsh", ".service"}
_WSLCONFIG = re.compile(r"\ufeff?(?:[^\S\n]*(?:#[^\n]*)?\n)*[^\S\n]*\[(?:wsl2|experimental)\]", re.IGNORECASE)
_SECTIONS = re.compile(r"^\[(?:Service|wsl2|experimental)\]\s*$", re.MULTILINE | re.IGNORECASE)
_COMPOSE_LANGUAGES = {"", "yaml", "yml", "docker-compose", "compose"}
_SERVICES = re.compile(r"^[ \t]*services[ \t]*:", re.MULTILINE)
_COMMANDS = re.compile(
    r"\b(?:llama-(?:server|cli|bench)|vllm serve|huggingface-cli|nvidia-smi|(?:docker|podman) run|cmake -)|ExecStart="
    r"|^[^\S\n]*--?[a-z][\w-]* ",
    re.MULTILINE,
)


def kind_of(path: Path, text: str) -> RecipeKind | None:
    """Return the kind of a file, by its name and content; None for an unknown kind."""
    name = path.name.lower()
    if name.endswith("wslconfig") or _WSLCONFIG.match(text):
        return "wslconfig"
    if path.suffix.lower() in _SHELL_SUFFIXES or text.startswith("#!"):
        return "shell"
    if path.suffix.lower() == ".ini" and preset.is_preset(text):
        return "preset"
    if path.suffix.lower() in {".yaml", ".yml"}:
        services = re.search(r"^services\s*:", text, re.MULTILINE)
        rig = re.search(r"^rig\s*:", text, re.MULTILINE)
        if not rig and not services and llama_swap.is_config(text):
            return "swap"
        return "compose" if not rig and (services or "compose" in name) else "inventory"
    known = _COMMANDS.search(text) or _SECTIONS.search(text) or _composed(text) or _presets(text)
    return "shell" if known else None


def _presets(text: str) -> tuple[pages.Block, ...]:
    """Return the preset files on a page."""
    shown = pages.blocks_of(text) if re.search(r"^[ \t]*\[", text, re.MULTILINE) else ()
    return tuple(
        block for block in shown if block.language in {"", "ini", "toml", "conf"} and preset.is_preset(block.text.chars)
    )


def _composed(text: str) -> tuple[pages.Block, ...]:
    """Return the Compose files on a page."""
    shown = pages.blocks_of(text) if _SERVICES.search(text) else ()
    return tuple(
        block for block in shown if block.language in _COMPOSE_LANGUAGES and _SERVICES.match(_first(block.text.chars))
    )


def _first(text: str) -> str:
    """Return a text without leading comments, and without the name or version of a Compose file."""
    return re.sub(r"\A(?:[ \t]*(?:#[^\n]*|---|(?:version|name|x-[\w-]+)[ \t]*:[^\n]*)?\n)+", "", text)


def is_recipe(path: Path) -> bool:
    """Return whether a path is a recipe: an existing file that is not an inventory."""
    if not path.is_file():
        return False
    try:
        text = read_text(path, LARGEST)
    except UnreadableError:
        return path.suffix.lower() not in {".yaml", ".yml"}
    return kind_of(path, text) != "inventory"


def examine(path: Path) -> tuple[Finding, ...]:
    """Return the findings of a recipe, in the order of its lines. An inventory is checked elsewhere."""
    return understand(path).findings


def understand(path: Path) -> Recipe:
    """Return the findings of a recipe, and the servers that it would start."""
    try:
        recipe = _read(path)
    except InventoryError as error:
        return Recipe(error.findings)
    except RecursionError:
        return Recipe((_unreadable(path, "it is nested too deeply", "simplify it"),))
    findings = sorted(dict.fromkeys(recipe.findings), key=lambda finding: (finding.place, finding.code))
    return Recipe(tuple(findings), recipe.servers)


def _read(path: Path) -> Recipe:
    try:
        # Read bytes: line ends of Windows are reported.
        text = read_bytes(path, LARGEST).decode()
    except UnreadableError as error:
        return Recipe((_unreadable(path, str(error), error.help),))
    except UnicodeDecodeError:
        return Recipe((_unreadable(path, "it is not UTF-8 text", "save it as UTF-8"),))
    match kind_of(path, text):
        case "compose":
            recipe = compose.check_text(path, text, _dotenv(path))
        case "shell":
            recipe = _shell(path, text)
        case "wslconfig":
            recipe = Recipe((*_hidden_ending(path), *wslconfig.check_wslconfig(path, text)))
        case "preset":
            recipe = Recipe(preset.check_text(path, text))
        case "swap":
            recipe = llama_swap.check_text(path, text)
        case "inventory":
            return Recipe()
        case None:
            known = "give an inventory, a shell script, a systemd unit, a Compose file, a preset file, a .wslconfig or "
            known += "a config.yaml of llama-swap"
            return Recipe((_unreadable(path, "nothing in it is recognised", known),))
    return recipe + Recipe(tuple(recipes_recipe.check_outdated_terms(path, text)))


def _hidden_ending(file: Path) -> Iterator[Finding]:
    """Report an ending that Notepad or a browser added to the name, and that Windows hides."""
    if re.fullmatch(r"\.?wslconfig\.(?:txt|ini|cfg|conf)", file.name, re.IGNORECASE):
        message = f"WSL reads `.wslconfig` alone, and this is `{file.name}`, which it ignores"
        yield NOT_AS_IT_LOOKS.at(Place(file), message, f"rename it: `ren {file.name} .wslconfig`")


def _shell(path: Path, text: str) -> Recipe:
    """Return the recipe of a script, or of the commands and settings of WSL in an article."""
    script = path.suffix.lower() in _SHELL_SUFFIXES or text.startswith("#!")
    code = () if script else pages.blocks_of(text)
    if script or not (code or pages.is_article(text)):
        return shell.check_text(path, text)
    typed = [pages.typed_commands(block.text) for block in code if block.shell]
    rest = positioned(pages.commands_of(pages.text_outside_code(text) if code else text, marked=bool(code)))
    recipe = shell.check_excerpts(path, text, (*typed, rest))
    for block in _composed(text):
        recipe += _shown(path, text, block)
    for block in _presets(text):
        first = block.text.at[0][0] - 1
        found = preset.check_text(path, block.text.chars)
        moved = (replace(each, place=replace(each.place, line=each.place.line + first)) for each in found)
        recipe += Recipe(tuple(moved))
    return recipe + Recipe(wslconfig.check_wslconfig(path, pages.wslconfig_of(text)))


def _shown(path: Path, text: str, block: pages.Block) -> Recipe:
    """Return the recipe of a Compose file on a page; empty if it has omissions, or is not YAML."""
    if re.search(r"^[^\S\n]*(?:\.\.\.|…)[^\S\n]*$|<[\w -]+>", block.text.chars, re.MULTILINE):
        return Recipe()
    kept = set(block.text.at)
    lines = text.split("\n")
    blank = (
        "".join(char if (number, column) in kept else " " for column, char in enumerate(line, start=1))
        for number, line in enumerate(lines, start=1)
    )
    try:
        return compose.check_excerpt(path, "\n".join(blank))
    except InventoryError:
        return Recipe()


def _dotenv(path: Path) -> dict[str, str]:
    """Return the variables of the `.env` that Compose would read with this file."""
    try:
        return compose.settings_of(read_text(path.with_name(".env"), LARGEST))
    except (UnreadableError, ValueError):
        return {}


def _unreadable(path: Path, reason: str, way_out: str) -> Finding:
    return UNREADABLE.at(Place(path), f"cannot read this file: {reason}", way_out)
