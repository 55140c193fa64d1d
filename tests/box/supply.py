"""A private hub where the host can reach it, and a rig whose drafter has its model from there."""

from __future__ import annotations

import hashlib
import secrets
import signal
from dataclasses import dataclass

from box.cli import TINY_MOE
from tests.box.bench import Bench, Ended
from tests.support.hub_server import Hub

TOKEN = "hf_canary0123456789"
REPO = "llamaherd/tiny-moe"
FILE = "tiny-moe.gguf"
STORE = "/var/lib/llamaherd/models"
PACE = 700_000
"""Bytes a second: slow enough to be caught in the act."""
TRICKLE = 20_000
"""Bytes a second: a fetch outlasts whatever is done meanwhile, however busy this machine is."""


@dataclass
class Supply:
    """The rig, the hub, and what the hub has for it now."""

    bench: Bench
    hub: Hub
    content: bytes = b""

    def push(self, repo: str = REPO) -> None:
        """Give the hub a model that nobody has had yet; declare and lock it. From then on the hub is slow."""
        # Nobody reads what follows the last tensor.
        self.content = TINY_MOE.read_bytes() + secrets.token_bytes(64)
        self.hub.bytes_per_second = None
        self.hub.push(repo, {FILE: self.content})
        self.hub.corrupt.clear()
        self.hub.gated.clear()
        self.hub.on_request = lambda _: None
        self.declare(repo)
        locked = self.bench.herd("lock", "--upgrade", "tiny-moe", **self.private)
        assert locked.code == 0, locked.output
        assert TOKEN not in (self.bench.folder / "herd.lock").read_text()
        self.hub.requests.clear()
        self.hub.bytes_per_second = PACE
        self.hub.counted.reset()

    def declare(self, repo: str = REPO, **store: object) -> None:
        """The drafter's model from the hub, with such a store."""
        rig = self.bench.rig()
        rig["models"]["tiny-moe"] = {"hf": repo, "files": FILE}
        self.bench.declare(rig | {"store": store} if store else rig)

    @property
    def private(self) -> dict[str, str]:
        """The environment that lets one in; the token is sent to the hub in HF_ENDPOINT and to no other."""
        return {"HF_ENDPOINT": self.hub.url, "HF_TOKEN": TOKEN}

    @property
    def sha256(self) -> str:
        """Of the model."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def bodies(self) -> list[str | None]:
        """The range of the model's file that each request wanted."""
        return [each.range for each in self.hub.requests if each.method == "GET" and "/resolve/" in each.path]

    @property
    def twice(self) -> int:
        """Bytes of the model that the hub has sent more than once."""
        return self.hub.sent - len(self.content)

    def hurry(self) -> None:
        """The hub is as fast as it can be."""
        self.hub.bytes_per_second = None

    def caught(self, by: signal.Signals) -> Ended:
        """Start a run whose model comes in a trickle, and send it a signal once some of that has come."""
        self.hub.bytes_per_second = TRICKLE
        return self.bench.killed(by, lambda line: f"fetching tiny-moe: {FILE}" in line, **self.private)

    def deploys(self) -> str:
        """A run succeeds; returns what it said."""
        ended = self.bench.deploy(**self.private)
        assert ended.code == 0, ended.output
        return ended.output

    def settled(self) -> None:
        """A run changes nothing."""
        ended = self.bench.deploy(**self.private)
        assert (ended.code, ended.changes) == (0, 0), ended.output

    def refused(self, *words: str, **environment: str) -> None:
        """A run fails with these words, and what served goes on serving."""
        before = self.bench.running()
        ended = self.bench.up(**(environment or self.private))
        assert ended.code == 1, ended.output
        assert "Traceback" not in ended.output
        for word in words:
            assert word in ended.output, ended.output
        self.bench.unchanged(before)
