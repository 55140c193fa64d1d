"""The distribution's Prometheus, Alertmanager and exporter, unpacked beside the tests: installed, they would listen."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

from llamaherd.plan import MonitoringPlan, Plan, WatcherPlan
from roles.monitoring.plan import key_files

PACKAGES = ("prometheus", "prometheus-alertmanager", "prometheus-node-exporter")
_UNPACKED = Path(sys.prefix) / "prometheus"


_AMONG_ITS_FILES = ("unshare", "-m", "sh", "-c", 'mount --bind "$1" /usr/share && shift && exec "$@"', "sh")


@cache
def program(name: str) -> tuple[str, ...]:
    """How a program of them begins: promtool, amtool, prometheus, prometheus-alertmanager, prometheus-node-exporter.

    One that is unpacked finds its files where they would be installed.
    """
    installed = shutil.which(name)
    share, unpacked = (str(_unpacked() / "usr" / folder) for folder in ("share", f"bin/{name}"))
    return (installed,) if installed else (*_AMONG_ITS_FILES, share, unpacked)


def _unpacked() -> Path:
    """The folder of all, brought by apt the first time."""
    _UNPACKED.mkdir(exist_ok=True)
    with (_UNPACKED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (_UNPACKED / "done").exists():
            subprocess.run(["apt-get", "-q", "download", *PACKAGES], cwd=_UNPACKED, check=True, timeout=600)
            for package in _UNPACKED.glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", str(package), str(_UNPACKED)], check=True, timeout=120)
                package.unlink()
            (_UNPACKED / "done").touch()
    return _UNPACKED


def ask(name: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one of them to its end in a folder."""
    command = [*program(name), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def monitored(planned: Plan) -> MonitoringPlan:
    """What a rig has of what watches."""
    assert planned.monitoring
    return planned.monitoring


def watcher_of(planned: Plan) -> WatcherPlan:
    """What watches, of a plan."""
    watcher = monitored(planned).watcher
    assert watcher
    return watcher


def queried(port: int, query: str) -> list[Any]:
    """What a Prometheus of this machine answers to a query: its series, none where it does not answer."""
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
    except OSError:
        return []
    return found


def write_files(watcher: WatcherPlan, keys: dict[str, str], folder: Path) -> None:
    """All that Prometheus and Alertmanager read."""
    (folder / "keys").mkdir()
    for file in (*watcher.files, *key_files(keys)):
        (folder / file.path.partition("/monitoring/")[2]).write_text(file.text, encoding="utf-8")
