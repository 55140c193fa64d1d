"""Find the mistakes of recipes: scripts, units, Compose files and pages that users paste from blogs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Literal

from llamaherd.diagnostics.findings import Finding, InventoryError, Place
from llamaherd.inventory import wslconfig
from llamaherd.inventory.yaml_file import UNREADABLE
from llamaherd.recipes import ansible, compose, dockerfile, llama_swap, preset, quadlet, shell
from llamaherd.recipes.commands import Document, Position, Text, positioned, settings_of, unveil, without_jinja
from llamaherd.recipes.pages import (
    blocks_of,
    commands_of,
    is_article,
    steps_of_package,
    text_outside_code,
    typed_commands,
    wslconfig_of,
)
from llamaherd.recipes.recipe import (
    LARGEST,
    NOT_AS_IT_LOOKS,
    NOT_READ,
    Recipe,
    text_of,
)
from llamaherd.text.textfile import UnreadableError, decoded, read_bytes, read_text

RecipeKind = Literal["inventory", "compose", "shell", "wslconfig", "preset", "swap", "quadlet", "dockerfile", "ansible"]

_OF_SERVERS = frozenset(("compose", "swap", "quadlet"))
"""Kinds of files that start servers, and do nothing else."""

_DEEPEST = 3
"""How deep files are read that are written in files."""

_SHELL_SUFFIXES = {".sh", ".bash", ".zsh", ".service"}
_TEMPLATE = re.compile(r"\.(?:j2|jinja2?|tpl|tmpl|template|sample|example|dist)$")
_WSLCONFIG = re.compile(r"\ufeff?(?:[^\S\n]*(?:#[^\n]*)?\n)*[^\S\n]*\[(?:wsl2|experimental)\]", re.IGNORECASE)
_SECTIONS = re.compile(r"^\[(?:Service|wsl2|experimental)\]\s*$", re.MULTILINE | re.IGNORECASE)
_COMPOSE_LANGUAGES = {"", "yaml", "yml", "docker-compose", "compose"}
_PRESET_LANGUAGES = {"", "ini", "toml", "conf"}
_SERVICES = re.compile(r"[ \t]*services[ \t]*:")
_FILES = re.compile(r"^[ \t]*(?:services[ \t]*:|\[)", re.MULTILINE)
_COMMANDS = re.compile(
    r"\b(?:llama-(?:server|cli|bench)|vllm serve|huggingface-cli|nvidia-smi|(?:docker|podman) run|cmake -)|ExecStart="
    r"|^[^\S\n]*--?[a-z][\w-]* ",
    re.MULTILINE,
)
_OF_ENGINES = re.compile(r"llama-(?:server|swap)[\"', ]+-|\bvllm serve\b|\bllama\.cpp:(?:server|full)")
_OTHER_YAML = re.compile(
    r"^apiVersion[ \t]*:(?=[\s\S]*^kind[ \t]*:)|^[\"']?on[\"']?[ \t]*:(?=[\s\S]*^jobs[ \t]*:)", re.MULTILINE
)
"""Files of Kubernetes, and workflows of GitHub."""


def kind_of(path: Path, text: str) -> RecipeKind | None:
    """Return the kind of a file, by its name and content; None for an unknown kind."""
    name = PurePath(_TEMPLATE.sub("", path.name.lower()))
    if name.name.endswith("wslconfig") or _WSLCONFIG.match(text):
        return "wslconfig"
    if dockerfile.is_dockerfile(name.name, text):
        return "dockerfile"
    if name.suffix == ".container" or quadlet.is_quadlet(text):
        return "quadlet"
    if name.suffix in _SHELL_SUFFIXES or text.startswith("#!"):
        return "shell"
    if name.suffix in {".ini", ""} and preset.is_preset(text) and not blocks_of(text):
        return "preset"
    if name.suffix in {".yaml", ".yml"}:
        return _kind_of_yaml(name.name, text)
    if not name.suffix and re.match(r"(?:services|models|macros|configs)[ \t]*:", _first(text)):
        kind = _kind_of_yaml(name.name, text)
        return kind if kind != "inventory" else None
    known = _COMMANDS.search(text) or _SECTIONS.search(text) or any(_files_on(text))
    return "shell" if known else None


def _kind_of_yaml(name: str, text: str) -> RecipeKind | None:
    services = re.search(r"^services\s*:", text, re.MULTILINE)
    if re.search(r"^rig\s*:", text, re.MULTILINE):
        return "inventory"
    if not services and llama_swap.is_config(text):
        return "swap"
    if services or "compose" in name:
        return "compose"
    if ansible.is_ansible(text):
        return "ansible"
    return None if _OTHER_YAML.search(text) else "inventory"


def _files_on(text: str) -> Iterator[tuple[RecipeKind, Text]]:
    """Yield the Compose files and preset files on a page."""
    for block in blocks_of(text) if _FILES.search(text) else ():
        chars = block.text.chars
        if block.language in _COMPOSE_LANGUAGES and _SERVICES.match(_first(chars)):
            yield "compose", block.text
        if block.language in _PRESET_LANGUAGES and preset.is_preset(chars):
            yield "preset", block.text


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
        return Recipe(tuple(map(_shown, error.findings)))
    except RecursionError:
        return Recipe((_unreadable(path, "it is nested too deeply", "simplify it"),))
    findings = sorted(dict.fromkeys(map(_shown, recipe.findings)), key=lambda finding: (finding.place, finding.code))
    return Recipe(tuple(findings), recipe.servers)


def further_checks(path: Path) -> tuple[tuple[str, ...], ...]:
    """Return the commands of other programs that check the rest of a file: what is not about engines."""
    text = text_of(path)
    if text is None:
        return ()
    if kind_of(path, text) == "compose":
        return (("docker", "compose", "-f", str(path), "config", "--quiet"),)
    return (("systemd-analyze", "verify", str(path)),) if path.suffix == ".service" else ()


def _shown(finding: Finding) -> Finding:
    """Return a finding with unknown values as they are written."""
    message, help_ = unveil(finding.message), unveil(finding.help)
    return (
        finding
        if (message, help_) == (finding.message, finding.help)
        else replace(finding, message=message, help=help_)
    )


def _read(path: Path) -> Recipe:
    try:
        # Read bytes: line ends of Windows are reported.
        text = decoded(read_bytes(path, LARGEST))
    except UnreadableError as error:
        return Recipe((_unreadable(path, str(error), error.help),))
    if not text.strip():
        return Recipe((_unreadable(path, "it is empty", "give a file that starts a server"),))
    kind = kind_of(path, text)
    if kind == "inventory":
        return Recipe()
    if kind is None and re.search(r"""^[{ \t]*["']?rig["']?[ \t]*:""", text, re.MULTILINE):
        help_ = f"rename it: `mv {path.name} {path.name.partition('.')[0]}.yaml`"
        return Recipe((_unreadable(path, "it holds a rig, and its name does not end in `.yaml`", help_),))
    if kind is None:
        known = "give an inventory, a shell script, a systemd unit, a Quadlet, a Dockerfile, a Compose file, a preset "
        known += "file, a .wslconfig, an Ansible file or a config.yaml of llama-swap"
        return Recipe((_unreadable(path, "nothing in it is recognised", known),))
    plain = text if kind == "wslconfig" else without_jinja(text)
    recipe = _with_documents(path, _of_kind(kind, path, plain), 0)
    if kind in _OF_SERVERS or (path.suffix == ".service" and re.search(r"^ExecStart", plain, re.MULTILINE)):
        recipe = _not_clean(path, plain, recipe)
    return recipe


def _not_clean(path: Path, text: str, recipe: Recipe) -> Recipe:
    """Return a recipe with an error in place of notes if no server in it was read: it must not seem right."""
    if recipe.servers or any(each.code != NOT_READ.code for each in recipe.findings):
        return recipe
    unread = [UNREADABLE.at(each.place, each.message, each.help) for each in recipe.findings]
    if not unread:
        lines = re.sub(r"^[ \t]*[#;].*", "", text, flags=re.MULTILINE)
        named = re.search(r"(?<!o)llama|vllm|gguf", lines, re.IGNORECASE)
        place = Place(path, lines.count("\n", 0, named.start()) + 1 if named else 1)
        message = "no server that it starts is known" if named else "it starts no server of an engine"
        unread = [UNREADABLE.at(place, message, "name the engine's program and arguments in it, or check another file")]
    return Recipe(tuple(unread))


def _of_kind(kind: RecipeKind, path: Path, text: str) -> Recipe:
    """Return the recipe of a text of a kind. Raise InventoryError for one that is not YAML where it must be."""
    match kind:
        case "compose":
            return compose.check_text(path, text, _dotenv(path))
        case "wslconfig":
            return Recipe((*_hidden_ending(path), *wslconfig.check_wslconfig(path, text)))
        case "preset":
            return preset.check_text(path, text)
        case "swap":
            return llama_swap.check_text(path, text)
        case "quadlet":
            return quadlet.check_text(path, text)
        case "dockerfile":
            return dockerfile.check_text(path, text)
        case "ansible":
            return ansible.check_text(path, text)
        case _:
            return _shell(path, text)


def _with_documents(path: Path, recipe: Recipe, depth: int) -> Recipe:
    """Return a recipe with those of the files that it writes."""
    whole = Recipe(recipe.findings, recipe.servers)
    for document in recipe.documents:
        whole += _document(path, document, depth)
    read = tuple(f"what `{document.name}` starts" for document in recipe.documents if document.name)
    kept = (each for each in whole.findings if each.code != NOT_READ.code or not any(map(each.message.count, read)))
    return Recipe(tuple(kept), whole.servers)


def _document(path: Path, document: Document, depth: int) -> Recipe:
    """Return the recipe of a file that a recipe writes; a note if it holds an engine and nothing here reads it."""
    text = document.text
    composed = "compose" in map(str, document.reader)
    kind = "compose" if composed else kind_of(Path(document.name), text.chars)
    script = PurePath(document.name).suffix in _SHELL_SUFFIXES or text.chars.startswith("#!")
    if script or re.search(r"^\[Service\]\s*$", text.chars, re.MULTILINE):
        return shell.reader_of(path, text.chars).read(text)
    if text.chars and kind not in (None, "inventory", "shell") and depth < _DEEPEST:
        try:
            return _moved(path, _with_documents(path, _of_kind(kind, path, text.chars), depth + 1), text)
        except InventoryError as error:
            return _moved(path, Recipe(error.findings), text)
    if found := _OF_ENGINES.search(text.chars):
        message = f"what is written to `{document.name or 'another program'}` names an engine, and is not read"
        place = Place(path, *text.at[found.start()])
        return Recipe((NOT_READ.at(place, message, "save it as a file of its own, and check that", "note"),))
    return Recipe()


def _moved(path: Path, recipe: Recipe, text: Text) -> Recipe:
    """Return a recipe of a text that stands in a file, with the places where its characters stand there."""
    starts = [0, *(found.end() for found in re.finditer(r"\n", text.chars))]

    def at(line: int, column: int) -> Position:
        offset = starts[min(max(line, 1), len(starts)) - 1] + max(column, 1) - 1
        return text.at[min(offset, len(text.at) - 1)]

    findings = [
        replace(each, place=Place(path, *at(each.place.line, each.place.column)), edits=())
        if each.place.file == path
        else each
        for each in recipe.findings
    ]
    servers = [replace(each, start=at(*each.start)) for each in recipe.servers]
    return Recipe(tuple(findings), tuple(servers))


def _hidden_ending(file: Path) -> Iterator[Finding]:
    """Report an ending that Notepad or a browser added to the name, and that Windows hides."""
    if re.fullmatch(r"\.?wslconfig\.(?:txt|ini|cfg|conf)", file.name, re.IGNORECASE):
        message = f"WSL reads `.wslconfig` alone, and this is `{file.name}`, which it ignores"
        yield NOT_AS_IT_LOOKS.at(Place(file), message, f"rename it: `ren {file.name} .wslconfig`")


def _shell(path: Path, text: str) -> Recipe:
    """Return the recipe of a script, or of the commands and settings of WSL in an article."""
    script = PurePath(_TEMPLATE.sub("", path.name.lower())).suffix in _SHELL_SUFFIXES or text.startswith("#!")
    if path.suffix == ".spec" and (steps := steps_of_package(text)):
        return shell.reader_of(path, text).read(steps)
    code = () if script else blocks_of(text)
    if script or not (code or is_article(text)):
        return shell.check_text(path, text)
    typed = [typed_commands(block.text) for block in code if block.shell]
    rest = positioned(commands_of(text_outside_code(text) if code else text, marked=bool(code)))
    recipe = shell.check_excerpts(path, text, (*typed, rest))
    for kind, file in _files_on(text):
        recipe += _file_on_page(path, kind, file)
    return recipe + Recipe(wslconfig.check_wslconfig(path, wslconfig_of(text)))


def _file_on_page(path: Path, kind: RecipeKind, file: Text) -> Recipe:
    """Return the recipe of a file on a page; empty for a Compose file that has omissions, or is not YAML."""
    if kind == "preset":
        return _moved(path, preset.check_text(path, file.chars), file)
    if re.search(r"^[^\S\n]*(?:\.\.\.|…)[^\S\n]*$|<[\w -]+>", file.chars, re.MULTILINE):
        return Recipe()
    try:
        return _moved(path, compose.check_excerpt(path, file.chars), file)
    except InventoryError:
        return Recipe()


def _dotenv(path: Path) -> dict[str, str]:
    """Return the variables of the `.env` that Compose would read with this file."""
    return settings_of(text_of(path.with_name(".env")) or "")


def _unreadable(path: Path, reason: str, way_out: str) -> Finding:
    return UNREADABLE.at(Place(path), f"cannot read this file: {reason}", way_out)
