"""The quants of a model that a repository of the hub has: their names, files and sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from llamaherd.diagnostics.findings import HubError
from llamaherd.lock import hub

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

_SHARD = re.compile(r"(?P<stem>.+)-\d{5}-of-\d{5}")
_NAME = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d[A-Z0-9]*(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|F16|F32|(?:MX|NV)FP4(?:_[A-Z]+)*))$",
    re.IGNORECASE,
)
_NO_MODELS = ("mmproj", "imatrix")
"""Parts of the names of GGUF files that are no model."""

USUAL = ("UD-Q4_K_XL", "Q4_K_M", "Q4_K_S", "IQ4_XS", "MXFP4_MOE", "MXFP4", "Q4_0", "UD-Q5_K_XL", "Q5_K_M", "Q8_0")
"""The quants that are taken if none is named, the first that a repository has: about 4 bits lose little."""


@dataclass(frozen=True)
class Quant:
    """One model of a repository. `name` is its quant, or its file if the file's name has none; `size` is in bytes.

    `files` is a pattern for exactly its files. `short` is set if the key `quant` with its name has the same meaning.
    """

    name: str
    files: str
    size: int
    short: bool = False

    @property
    def keys(self) -> dict[str, str]:
        """Return the keys of an inventory that name its files."""
        return {"quant": self.name} if self.short else {"files": self.files}


@dataclass(frozen=True)
class RepoQuants:
    """The quants of a repository, the largest first, and its vision projectors."""

    repo: str
    each: tuple[Quant, ...]
    projectors: tuple[str, ...] = ()

    def named(self, name: str | None) -> Quant:
        """Return the quant of a name, in upper or lower case; without a name, a usual one. Raise HubError."""
        by_name = {each.name.upper(): each for each in self.each}
        found = [each for word in ((name,) if name else USUAL) if (each := by_name.get(word.upper()))]
        if name is None and len(self.each) == 1:
            found = [*self.each]
        if found:
            return found[0]
        if not self.each:
            raise HubError(f"{self.repo} has no GGUF file", "choose a repository that has some, often named `…-GGUF`")
        what = f"has no quant `{name}`" if name else "has no usual quant"
        raise HubError(f"{self.repo} {what}", f"name one of its quants: {self.shown}")

    def smaller(self, than: int) -> tuple[Quant, ...]:
        """Return the quants with fewer bytes, the largest first."""
        return tuple(each for each in self.each if each.size < than)

    @property
    def shown(self) -> str:
        """The names of the quants, as many as a message holds."""
        names = [each.name for each in self.each]
        more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
        return f"{', '.join(f'`{each}`' for each in names[:_MOST_SHOWN])}{more}"


_MOST_SHOWN = 12


def quants_of(repo: str, revision: str = "main") -> RepoQuants:
    """Query the hub for the quants of a repository. Raise HubError."""
    return group_files(repo, hub.model_info(hub.endpoint(), repo, revision).siblings or [])


def group_files(repo: str, siblings: Sequence[RepoSibling]) -> RepoQuants:
    """Return the quants among the files of a repository. The shards of a model are one quant."""
    sizes = {each.rfilename: each.size or 0 for each in siblings}
    paths = [path for path in sorted(sizes) if path.endswith(".gguf")]
    projectors = tuple(path for path in paths if "mmproj" in path.lower())
    groups: dict[str, list[str]] = {}
    for path in paths:
        if not any(part in path.rpartition("/")[2].lower() for part in _NO_MODELS):
            shard = _SHARD.fullmatch(path.removesuffix(".gguf"))
            groups.setdefault(shard["stem"] if shard else path, []).append(path)
    found = [_quant(stem, files, sum(sizes[each] for each in files), sizes) for stem, files in groups.items()]
    names = [each.name.upper() for each in found]
    # Two files with one quant are told apart by their paths.
    single = [
        each if names.count(each.name.upper()) == 1 else Quant(each.files, each.files, each.size) for each in found
    ]
    return RepoQuants(repo, tuple(sorted(single, key=lambda each: -each.size)), projectors)


def _quant(stem: str, files: Sequence[str], size: int, everything: Iterable[str]) -> Quant:
    """Return the quant of a group of files."""
    whole = stem if len(files) == 1 and files[0] == stem else f"{stem}-*.gguf"
    match = _NAME.search(stem.removesuffix(".gguf"))
    if match is None:
        return Quant(whole, whole, size)
    matching = {path for path in everything if fnmatchcase(path, f"*{match[1]}*.gguf")}
    return Quant(match[1], whole, size, short=matching == {*files})
