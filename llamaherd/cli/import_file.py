"""The file of `herd import`: the servers or models that it declares."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from llamaherd.cli.common import FAILED, UNUSABLE, fail, print_findings
from llamaherd.diagnostics.findings import Finding, UserError
from llamaherd.inventory.yaml_file import UNREADABLE
from llamaherd.recipes import understand
from llamaherd.recipes.model_lists import ListedModel, listed_models, models_of_folder, server_of_modelfile
from llamaherd.recipes.recipe import LARGEST
from llamaherd.recipes.servers import OF_EVERY_PROGRAM, PORTS
from llamaherd.recipes.suggestions import Offer, is_router, offers_of
from llamaherd.text.textfile import UnreadableError, read_text


@dataclass(frozen=True)
class ImportFile:
    """What a file declares: servers, or models without a server; and its findings."""

    offers: tuple[Offer, ...] = ()
    models: tuple[ListedModel, ...] = ()
    findings: tuple[Finding, ...] = ()
    routers: tuple[int, ...] = ()
    """The lines of commands that start a router, which is not imported."""


def read_import(file: Path) -> ImportFile:
    """Return what a file, a folder or standard input declares. End the program if it is unreadable or empty."""
    if str(file) == "-":
        with TemporaryDirectory() as folder:
            copy = Path(folder) / "stdin"
            copy.write_bytes(sys.stdin.buffer.read(LARGEST + 1))
            return _read(copy, "standard input")
    return _read(file, str(file))


def _read(file: Path, shown: str) -> ImportFile:
    """Return what a file or a folder declares; messages call it `shown`."""
    if file.is_dir():
        models = models_of_folder(file)
        if not models:
            help_ = "name a folder of LM Studio, such as ~/.lmstudio/models, or the file that starts the server"
            fail(UserError(f"{shown} is a folder without a GGUF file", help_), FAILED)
        return ImportFile(models=models)
    try:
        text = read_text(file, LARGEST)
    except UnreadableError as error:
        fail(UserError(f"cannot read {shown}: {error}", error.help), UNUSABLE)
    if models := listed_models(text):
        return ImportFile(models=models)
    if server := server_of_modelfile(text):
        return ImportFile(offers_of((server,)))
    recipe = understand(file)
    offers = offers_of(each for each in recipe.servers if each.program in PORTS and not each.has(*OF_EVERY_PROGRAM))
    if not offers:
        _refuse_empty(shown, recipe.findings, router=any(map(is_router, recipe.servers)))
    routers = tuple(each.start[0] for each in recipe.servers if is_router(each))
    return ImportFile(offers, findings=recipe.findings, routers=routers)


def _refuse_empty(shown: str, findings: Sequence[Finding], *, router: bool) -> NoReturn:
    """End the program for a file without a server."""
    if any(each.code == UNREADABLE.code for each in findings):
        print_findings([replace(each, place=replace(each.place, file=Path(shown))) for each in findings])
        sys.exit(UNUSABLE)
    if router:
        help_ = "import its preset file, or declare each model with `herd add`, and a `group` of them"
        fail(UserError(f"{shown} starts a router, and does not name its models", help_), FAILED)
    help_ = "`herd check FILE` shows what it reads in a file; `herd add` declares an instance of a model"
    fail(UserError(f"{shown} starts no server that can be imported", help_), FAILED)
