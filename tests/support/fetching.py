"""Jobs of the fetcher, and the fetcher as it runs on a host: in a process of the system's Python, and as a function."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from llamaherd.onhost.fetch.download import fetch
from llamaherd.onhost.fetch.job import Limits, load_job
from tests.support.hub_server import Hub
from tests.support.rigs import ROOT

# The one that hosts have, where there is one.
PYTHON = shutil.which("python3", path="/usr/bin") or sys.executable
BLOCK = 1 << 20
HASTY = Limits(block=BLOCK, connect=2, stall=0.5, first_rest=0.05, longest_rest=0.2, patience=1, room=2)
"""For what is to be given up."""
STEADY = replace(HASTY, connect=60, stall=60, patience=60, room=60)
"""For what is to succeed, however busy this machine is."""
REPO = "acme/tiny-GGUF"

_LAUNCH = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from llamaherd.onhost.fetch.main import main; sys.exit(main())"
)


def launcher(folder: Path) -> list[str]:
    """The fetcher's command line on a host that has its files in `folder`, and nothing else of llamaherd."""
    package = folder / "llamaherd" / "onhost" / "fetch"
    if not package.exists():
        shutil.copytree(ROOT / "llamaherd" / "onhost" / "fetch", package, ignore=shutil.ignore_patterns("__pycache__"))
    return [PYTHON, "-I", "-c", _LAUNCH, str(folder)]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def source(hub: Hub, path: str, name: str = "hub", commit: str | None = None) -> dict[str, str]:
    """A file of the hub's repository as one of a file's sources."""
    return {"name": name, "url": f"{hub.url}/{REPO}/resolve/{commit or hub.commit(REPO)}/{path}", "secret": name}


def wanted(path: str, content: bytes, sources: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """A file of a job."""
    return {"name": f"tiny: {path}", "sha256": sha256(content), "size": len(content), "sources": list(sources)}


@dataclass
class Host:
    """The folders of a host that files are fetched to."""

    root: Path
    connections: int = 4
    bandwidth: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.incoming.mkdir(parents=True, exist_ok=True)
        (self.run / "secrets").mkdir(parents=True, exist_ok=True)

    @property
    def incoming(self) -> Path:
        return self.root / "models" / ".incoming"

    @property
    def run(self) -> Path:
        return self.root / "run"

    def job(self, *files: Mapping[str, Any]) -> Path:
        """Write the job for these files."""
        path = self.root / "job.json"
        job = {
            "id": "0123456789ab",
            "incoming": str(self.incoming),
            "store": str(self.incoming.parent),
            "files": list(files),
            "folders": [],
            "connections": self.connections,
            "bandwidth": self.bandwidth,
        }
        path.write_text(json.dumps(job), encoding="utf-8")
        return path

    def fetch(self, *files: Mapping[str, Any], limits: Limits = STEADY) -> list[str]:
        """Fetch in this process; returns what failed, each with its way out."""
        return [str(error) for error in fetch(load_job(self.job(*files)), self.run, limits)]

    def start(self, *files: Mapping[str, Any]) -> subprocess.Popen[str]:
        """Fetch in a process, as on a host."""
        command = [*launcher(self.root / "lib"), "fetch", str(self.job(*files)), str(self.run)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def secret(self, name: str, token: str) -> None:
        """Give the run a token."""
        path = self.run / "secrets" / name
        path.write_text(f"{token}\n", encoding="utf-8")
        path.chmod(0o400)

    def arrived(self, content: bytes) -> bool:
        """Whether this content is there as whole, and nothing is left over of its way."""
        path = self.incoming / sha256(content)
        others = [each.name for each in self.incoming.iterdir() if each.name.startswith(f"{path.name}.")]
        return path.exists() and path.read_bytes() == content and not others
