"""Real programs, configured by what `herd clients` prints: each gets two responses of a real model.

They are installed from the registries of npm and Python, in their pinned versions. They read prompts of 2,000 tokens,
so the small mixture of experts responds. Open WebUI is missing here: test_chat_page.py describes why.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from box.cli import CACHE
from tests.box.bench import Bench
from tests.box.gateway import PORT, UNIT, gateway_keys
from tests.support.gateway import free_port, until

pytestmark = pytest.mark.rare

OPENCODE, AIDER, OPENAI = "opencode-ai@1.18.33", "aider-chat==0.86.2", "openai==2.20.0"
WITHIN = 60
"""Seconds for two responses of a program."""
TINY_AGENT = {"agent": {"tiny": {"mode": "primary", "prompt": "Be brief.", "tools": {"*": False}}}}
"""An agent of opencode whose prompt fits into the 4,096 tokens of the model."""


@dataclass(frozen=True)
class Site:
    """The gateway through a tunnel, a user's key, and a folder for a program."""

    bench: Bench
    url: str
    key: str
    folder: Path

    def settings(self, program: str) -> str:
        """Return what `herd clients` prints on stdout."""
        command = [str(Path(sys.executable).parent / "herd"), "clients", program, "--user", "ann", "--url", self.url]
        return subprocess.run(
            command, env=self.bench.environment({}), stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    def run(self, *words: str, path: Path | None = None, given: str = "") -> str:
        """Run a program as the user would, with the key in HERD_KEY. Return what it prints."""
        environment: Mapping[str, str] = {
            "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"],
            "HOME": str(self.folder),
            "HERD_KEY": self.key,
            "NO_PROXY": "127.0.0.1",
        }
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=environment,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert self.key not in done.stdout
        return done.stdout

    def served(self) -> int:
        """Return how many chats the gateway has answered with 200, by its log."""
        script = f"journalctl -q -u {UNIT} -o cat | grep 'status=200 ' | grep -c 'user=ann'"
        return int(self.bench.sh(script, check=False) or 0)


@contextmanager
def forwarded(ssh: list[str]) -> Iterator[str]:
    """Forward a port to the gateway, as a user would, and yield its URL."""
    port = free_port()
    tunnel = subprocess.Popen([ssh[0], "-N", "-L", f"127.0.0.1:{port}:127.0.0.1:{PORT}", *ssh[1:]])
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: subprocess.run(["curl", "-sf", f"{url}/healthz"], capture_output=True).returncode == 0)
        yield url
    finally:
        tunnel.terminate()
        tunnel.wait(10)


@pytest.fixture(scope="module")
def gateway(converged: Bench, ssh: list[str]) -> Iterator[tuple[Bench, str, str]]:
    """The rig as a gateway whose user may use the small model, and its URL here."""
    with gateway_keys(converged), forwarded(ssh) as url:
        made = converged.herd("users", "add", "ann", "--model", "small", "--streams", "4")
        assert made.code == 0, made.output
        key = next(word for word in made.output.split() if word.startswith("sk-herd-"))
        assert converged.up().code == 0
        yield converged, url, key
        assert converged.herd("users", "revoke", "ann").code == 0


@pytest.fixture
def site(gateway: tuple[Bench, str, str], tmp_path: Path) -> Site:
    return Site(*gateway, tmp_path)


def installed(name: str, *command: str) -> Path:
    """Install a program in a folder of the cache, unless it is there. Return the folder."""
    folder = CACHE / "clients" / name.replace("==", "-").replace("@", "-")
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        subprocess.run([word.format(folder=folder) for word in command], check=True, timeout=1800)
        (folder / "done").touch()
    return folder


def from_python(requirement: str) -> Path:
    """Return the programs of a package, in an environment of its own."""
    script = f"{sys.executable} -m venv {{folder}}/venv && {{folder}}/venv/bin/pip install -q {requirement}"
    return installed(requirement, "sh", "-c", script) / "venv/bin"


def twice(site: Site, once: Callable[[], None]) -> None:
    """Run a function twice within the limit, and count the chats that the gateway served."""
    before, began = site.served(), time.monotonic()
    for _ in range(2):
        once()
    assert time.monotonic() - began <= WITHIN
    assert site.served() - before >= 2


def test_curl_streams(site: Site) -> None:
    lines = site.settings("curl").replace('{"model"', '{"stream": true, "model"').replace("curl -sS", "curl -sSN")
    assert '"stream": true' in lines

    def once() -> None:
        events = [line[6:] for line in site.run("sh", given=lines).splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        choices = [choice for each in events[:-1] for choice in json.loads(each)["choices"]]
        assert any(choice["delta"].get("content") for choice in choices)

    twice(site, once)


def test_openai_python_streams(site: Site) -> None:
    python = from_python(OPENAI) / "python"
    (site.folder / "hello.py").write_text(site.settings("openai-python"))
    twice(site, lambda: _has_text(site.run(str(python), "hello.py")))


def test_aider_gets_responses(site: Site) -> None:
    """Once to chat, without the long prompt that is for edits, and without questions."""
    more = "--chat-mode ask --map-tokens 0 --no-git --yes-always --no-check-update --no-pretty --message 'Say hello'"
    lines = site.settings("aider").replace("\naider ", f"\naider {more} --analytics-disable --no-show-release-notes ")
    assert "--chat-mode ask" in lines
    path = from_python(AIDER)

    def once() -> None:
        printed = site.run("sh", path=path, given=lines)
        assert "Model: openai/small" in printed
        assert "received" in printed, printed

    twice(site, once)


def test_opencode_gets_responses(site: Site) -> None:
    path = installed(OPENCODE, "npm", "install", "--no-audit", "--no-fund", "--prefix", "{folder}", OPENCODE)
    config = site.folder / ".config/opencode"
    config.mkdir(parents=True)
    (config / "opencode.json").write_text(site.settings("opencode"))
    (site.folder / "opencode.json").write_text(json.dumps(TINY_AGENT))

    def once() -> None:
        printed = site.run("opencode", "run", "--agent", "tiny", "Say hello", path=path / "node_modules/.bin")
        *_, last = printed.strip().splitlines()
        _has_text(last)
        assert "Error" not in printed

    twice(site, once)


def _has_text(printed: str) -> None:
    assert printed.strip(), "no response"
