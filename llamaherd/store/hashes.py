"""The files of a plan's models, hashed on the host, beside the hashes that the plan has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Literal

from llamaherd.host.pipes import Patience
from llamaherd.host.protocol import heard, question_of, take_facts
from llamaherd.host.remote import Remote
from llamaherd.host.totals import hash_seconds
from llamaherd.plan import ModelFile, Plan
from llamaherd.store.ask import store_places
from llamaherd.text.numbers import whole

Status = Literal["ok", "damaged", "missing"]

SILENCE_SECONDS = 120
"""It tells how far it is every two seconds, unless the host hangs."""


@dataclass(frozen=True)
class FileCheck:
    """One file: what is wrong with it, if anything is. `dropped`: its manifest no longer vouches for it."""

    name: str
    status: Status
    detail: str = ""
    dropped: bool = False


@dataclass(frozen=True)
class ModelCheck:
    """One model's files."""

    name: str
    folder: str
    files: tuple[FileCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether every file is what it should be."""
        return all(file.status == "ok" for file in self.files)

    def as_json(self) -> dict[str, Any]:
        """The model as plain JSON values."""
        return asdict(self) | {"ok": self.ok}


@dataclass(frozen=True)
class HashProgress:
    """How far hashing is: bytes of all files that are there, and the file that is being read."""

    done: int
    total: int
    name: str


Key = tuple[str, str]
"""A file of the store: its model's folder and its name."""


def check_hashes(plan: Plan, remote: Remote, tell: Callable[[HashProgress], None]) -> tuple[ModelCheck, ...]:
    """Hash every file of the plan's models on the rig's host. Raises RemoteError where that cannot be done."""
    wanted = files_once(plan)
    hearing = Hearing(wanted)
    # A disk that hangs does not keep the script from telling how far it is.
    patience = Patience(SILENCE_SECONDS, hash_seconds(file.size for file in wanted.values()), "hashing its models")
    with closing(remote.lines(hash_script(plan), patience)) as lines:
        for line in heard(lines):
            hearing.hear(line)
            if progress := hearing.progress:
                tell(progress)
    found = dict(zip(wanted, hearing.checks(), strict=True))
    return tuple(
        ModelCheck(model.name, model.folder, tuple(found[model.folder, file.name] for file in model.files))
        for model in plan.models
    )


def files_once(plan: Plan) -> dict[Key, ModelFile]:
    """Every file of the plan's models, each once: two models may have one."""
    return {(model.folder, file.name): file for model in plan.models for file in model.files}


def hash_script(plan: Plan) -> str:
    """The script that hashes them; it knows them by their number."""
    listed = [
        {"folder": folder, "name": name, "path": f"{folder}/{name}", "sha256": file.sha256, "size": file.size}
        for (folder, name), file in files_once(plan).items()
    ]
    return question_of("store/hash.sh.j2", files=listed, **store_places(plan.store.path))


class Hearing:
    """What the script has said so far, a line at a time."""

    def __init__(self, wanted: Mapping[Key, ModelFile]) -> None:
        self._wanted = [(name, file) for (_, name), file in wanted.items()]
        self._sizes: dict[int, int] = {}
        self._found: dict[int, tuple[Status, str]] = {}
        self._dropped: set[int] = set()
        self._reading: tuple[int, int] | None = None

    def hear(self, line: str) -> None:
        """Take in one line. Raises UnaskedError for one that the script cannot have said."""
        take_facts([line], self._take)

    def _take(self, kind: str, fields: list[str]) -> bool:
        number = _integer(fields[0], -1)
        if number not in range(len(self._wanted)):
            return False
        match kind, fields[1:]:
            case "there", [size]:
                self._sizes[number] = _integer(size, 0)
            case "at", [read]:
                self._reading = number, _integer(read, 0)
            case "dropped", []:
                self._dropped.add(number)
            case ("is" | "sized" | "unreadable", [_]) | ("missing", []):
                self._reading = None
                self._found[number] = _judged(self._wanted[number][1], kind, *fields[1:])
            case _:
                return False
        return True

    @property
    def progress(self) -> HashProgress | None:
        """How far it is; None while no file is being read."""
        if not self._reading:
            return None
        number, read = self._reading
        done = sum(size for each, size in self._sizes.items() if each in self._found)
        return HashProgress(done + read, sum(self._sizes.values()), self._wanted[number][0])

    def checks(self) -> list[FileCheck]:
        """What was found of every file, in the order in which they were asked for."""
        nothing: tuple[Status, str] = ("missing", "the host said nothing of it")
        return [
            FileCheck(name, *self._found.get(number, nothing), dropped=number in self._dropped)
            for number, (name, _) in enumerate(self._wanted)
        ]


def _integer(text: str, otherwise: int) -> int:
    number = whole(text)
    return otherwise if number is None else number


def _judged(file: ModelFile, what: str, said: str = "") -> tuple[Status, str]:
    """What a line says of its file, and how that differs from what was declared."""
    if what == "is" and said == file.sha256:
        return "ok", ""
    if what == "is":
        return "damaged", f"its sha256 is {said}, declared is {file.sha256}"
    if what == "sized":
        return "damaged", f"it has {said} bytes, the lock says {file.size}"
    if what == "unreadable":
        return "damaged", f"it cannot be read: {said}; is the disk failing?"
    return "missing", "it is not there"
