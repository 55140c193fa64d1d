"""Which lanes of tests on hosts a change can touch, from the lanes' sources and the imports of what they run.

A lane runs `herd` commands: those whose names stand in its tests. It depends on every file that these commands import,
on the templates of the rooms and roles among them, and on the helpers that its tests import. A role that is optional in
a rig counts where the lane's tests name it. A file that no rule here places touches all lanes.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from llamaherd.cli.herd import MODULES

ROOT = Path(__file__).resolve().parents[2]
BOX = ROOT / "tests" / "box"
PAGES = tuple((ROOT / "docs").glob("tutorial*.md"))
"""The pages whose commands lanes run: a lane's tests name each by its file's name."""
PASSED = BOX / "PASSED"
"""The newest commit on which all lanes have passed, or those that had changed since the one before it."""
OPTIONAL = {
    "chat_page": "chat",
    "cuda_toolkit": "cuda",
    "gateway": "gateway",
    "monitoring": "monitoring",
    "nvidia_driver": "driver",
    "power": "power",
    "suspend": "suspend",
    "virtual_address": "virtual",
    "wake": "wake",
    "wsl": "wsl",
}
"""Roles that a rig may lack, and the word by which a lane's tests name each."""
NO_HOST = ("docs/", "tests/", ".github/", ".gitignore", "LICENSE", "benchmarks/")
"""What no host gets. Files of tests/ that a lane imports are its own all the same."""


def lanes_touched(since: str | None = None) -> list[str]:
    """Return the lanes that the change since a commit can touch: all of them where that commit is not known."""
    commit = since or PASSED.read_text(encoding="utf-8").split()[0]
    changed = changed_since(commit)
    return [lane for lane in lanes() if changed is None or any(touches(file, lane) for file in changed)]


def lanes() -> list[str]:
    """Return the folders of tests on hosts."""
    return sorted(folder.name for folder in BOX.iterdir() if any(folder.rglob("test_*.py")))


def changed_since(commit: str) -> set[str] | None:
    """Return the files that differ from a commit, untracked ones too; None where git does not have that commit."""
    diff = _git("diff", "--name-only", "--no-renames", "-z", commit, "--")
    new = _git("ls-files", "--others", "--exclude-standard", "-z")
    return None if diff is None or new is None else {*diff.split("\0"), *new.split("\0")} - {""}


def _git(*arguments: str) -> str | None:
    ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    return ended.stdout if ended.returncode == 0 else None


def touches(file: str, lane: str) -> bool:
    """Return whether a changed file can change what a lane's tests find."""
    if file in imported_by_tests(lane):
        return True
    if file.startswith(f"tests/box/{lane}/") or ROOT / file in pages(lane):
        return True
    if file.startswith(NO_HOST) or ("/" not in file and file.endswith(".md")):
        return False
    top, _, rest = file.partition("/")
    room = rest.partition("/")[0]
    if top in ("roles", "templates") and room in OPTIONAL:
        return OPTIONAL[room] in words(lane)
    if top == "templates":
        rendering = rendered_by(room)
        return not rendering or not rendering.isdisjoint(run_by(lane))
    if "/onhost" in file:  # sent to hosts, whoever imports it here
        return True
    if top in ("llamaherd", "roles") and file.endswith(".py") and (ROOT / file).is_file():
        return file in run_by(lane)
    return True


@cache
def rendered_by(folder: str) -> frozenset[str]:
    """Return the files of llamaherd/ and roles/ that name a folder of templates/."""
    files = (file for top in ("llamaherd", "roles") for file in (ROOT / top).rglob("*.py"))
    naming = (file for file in files if f'"{folder}/' in file.read_text("utf-8"))
    return frozenset(file.relative_to(ROOT).as_posix() for file in naming)


@cache
def sources(lane: str) -> tuple[Path, ...]:
    """Return the files of a lane and what its tests import of tests/, box/ and benchmarks/."""
    own = [*(BOX / lane).rglob("*.py"), BOX / "conftest.py", ROOT / "tests" / "conftest.py"]
    return tuple(closure(own, ("tests", "box", "benchmarks")))


@cache
def pages(lane: str) -> frozenset[Path]:
    """Return the tutorials that a lane's tests name."""
    return frozenset(page for page in PAGES if page.stem in strings(lane))


@cache
def strings(lane: str) -> frozenset[str]:
    """Return the strings in a lane's sources."""
    return frozenset(
        node.value
        for file in sources(lane)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@cache
def imported_by_tests(lane: str) -> frozenset[str]:
    """Return the same as paths from the root."""
    return frozenset(file.relative_to(ROOT).as_posix() for file in sources(lane))


@cache
def words(lane: str) -> frozenset[str]:
    """Return the words in a lane's sources and pages."""
    texts = (file.read_text(encoding="utf-8") for file in (*sources(lane), *pages(lane)))
    return frozenset(word for text in texts for word in re.findall(r"[a-z]+", text))


@cache
def commands_of(lane: str) -> frozenset[str]:
    """Return what can be a `herd` command: strings in a lane's sources, and words behind `herd` there and in pages."""
    texts = strings(lane) | {page.read_text(encoding="utf-8") for page in pages(lane)}
    return texts | {word for text in texts for word in re.findall(r"\bherd ([a-z]+)", text)}


@cache
def run_by(lane: str) -> frozenset[str]:
    """Return the files of llamaherd/ and roles/ that the commands in a lane's tests import, and those that all do."""
    folder = ROOT / "llamaherd" / "cli"
    modules = {MODULES.get(each, each) for each in commands_of(lane)}
    commands = [file for file in folder.glob("[!_]*.py") if file.stem in modules]
    always = [ROOT / "deploy.py", ROOT / "inventory.py", folder / "__main__.py", folder / "up.py"]
    ours = ("llamaherd", "roles")
    direct = [file for source in sources(lane) for file in imports(source, ours)]
    files = closure([*commands, *always, *direct], ours)
    return frozenset(file.relative_to(ROOT).as_posix() for file in files)


def closure(files: list[Path], packages: tuple[str, ...]) -> list[Path]:
    """Return files and all that they import of some packages."""
    found: set[Path] = set()
    left = list(files)
    while left:
        file = left.pop()
        if file not in found:
            found.add(file)
            left += imports(file, packages)
    return sorted(found)


@cache
def imports(file: Path, packages: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the files of some packages that a file imports, at its head or later."""
    found = (_file(name) for name in _names(file) if name.split(".")[0] in packages)
    return tuple(each for each in found if each is not None)


def _names(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            parts = node.module.split(".")
            yield from (".".join(parts[: end + 1]) for end in range(len(parts)))
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _file(name: str) -> Path | None:
    path = ROOT.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
