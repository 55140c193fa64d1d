"""llamaherd as users have it: its wheel, in an environment of its own that knows nothing of this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.rigs import ROOT

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
UNSET = ("PYTHONPATH", "HERD_INVENTORY", "VIRTUAL_ENV", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True)
class Installed:
    """The wheel, and the environment that it is installed into."""

    wheel: Path
    home: Path

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.home / "bin" / "python"

    def herd(self, *words: str) -> list[str]:
        """The argv of a command of its `herd`."""
        return [str(self.home / "bin" / "herd"), *words]

    def pyinfra(self, *words: str) -> list[str]:
        """The argv of pyinfra there."""
        return [str(self.python), "-m", "pyinfra", *words]

    def run(self, argv: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
        """What a program of it says in a folder, with an environment that names no checkout."""
        return subprocess.run(
            argv, cwd=folder, env=clean(more), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )


def clean(more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a user's shell: of this one, what does not lead here."""
    quiet = {"PYINFRA_PROGRESS": "off", "NO_COLOR": "1"}
    return {**{name: value for name, value in os.environ.items() if name not in UNSET}, **quiet, **more}


def install(folder: Path) -> Installed:
    """Build the wheel and install it under `folder`, without a network; dependencies are those of these tests."""
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(ROOT)]
    _run(build)
    (wheel,) = folder.glob("*.whl")
    installed = Installed(wheel, folder / "venv")
    _run([sys.executable, "-m", "venv", "--without-pip", str(installed.home)])
    # Paths of a .pth file are searched, but .pth files that lie there are not read: this checkout stays out.
    site = sysconfig.get_path("purelib", vars={"base": str(installed.home)})
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    _run([*PIP, "--python", str(installed.python), "install", "--no-deps", "--no-index", "--no-compile", str(wheel)])
    return installed


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, env=clean({}), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
