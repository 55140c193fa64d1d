"""The host of two arms while they are measured: a connection that starts and stops them, another to ask them by.

Whoever dies with it leaves nothing there: the host brings back what served before by itself.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, Self

from llamaherd.bench.arms import Arm, ArmName
from llamaherd.bench.arms_way import Forward
from llamaherd.bench.client import Answer, Failure, Patience, Target, ask
from llamaherd.bench.result import Start
from llamaherd.diagnostics.findings import UserError
from llamaherd.host.remote import Shell
from llamaherd.host.ssh import RemoteError
from llamaherd.inventory.schema import Connect

_SILENCE = 120
"""Seconds without a word of the host: it says one every 15."""
_COUNT_SECONDS, _LARGEST = 60, 64 << 20
_PATIENCE = Patience(first=600.0, silence=120.0, total=900.0)


class ArmsHost:
    """A host that arms are started on, from `with` to its end. `back` is how long what served before took to load.

    `back` stays None where that does not serve again, or nobody knows.
    """

    def __init__(
        self, connect: Connect, script: str, arms: Mapping[ArmName, Arm], keys: Mapping[ArmName, str | None]
    ) -> None:
        self._connect, self._script, self._arms, self._keys = connect, script, arms, keys
        self._key: str | None = None
        self._forward = Forward(connect, next(iter(arms.values())).instance.endpoint.port)
        self._shell: Shell | None = None
        self._lines: Iterator[str] = iter(())
        self.back: float | None = None

    def __enter__(self) -> Self:
        """Begin: what serves is stopped. Raises UserError where the host does not let it."""
        self._forward.__enter__()
        try:
            self._shell = Shell(self._connect)
            self._lines = self._shell.before_it_listens(self._script, _SILENCE)
            self._hear("armed")
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End both arms, and wait until what served before serves again."""
        try:
            assert self._shell
            self._shell.hang_up()
            word, *said = self._hear("back", "away")
            self.back = int(said[0]) / 1000 if word == "back" else None
        except UserError:
            self.back = None
        finally:
            self._close()

    def start(self, name: ArmName) -> Start:
        """Start an arm, and wait until it answers. Raises UserError where it does not."""
        arm, self._key = self._arms[name], self._keys[name]
        self._tell(f"start {name}")
        word, *said = self._hear("ready", "failed")
        if word == "failed":
            raise UserError(
                f"{arm.title} does not start: {' '.join(said[1:]) or 'it says nothing'}",
                "change what its own words name; it was a unit of its own, and what served before is started again",
            )
        return Start(process=said[2] if len(said) > 2 else None, ready_seconds=int(said[1]) / 1000)

    def stop(self) -> None:
        """Stop whichever arm runs."""
        self._tell("stop")
        self._hear("stopped")

    def ask(self, path: str, body: Mapping[str, Any]) -> Answer | Failure:
        """One streamed answer of the arm that runs."""
        return ask(Target(self._forward.url, self._key), path, body, _PATIENCE)

    def count(self, text: str) -> int:
        """Tokens of a text, by the tokenizer of the arm that runs. Raises UserError."""
        data = json.dumps({"content": text, "add_special": False}).encode()
        request = urllib.request.Request(f"{self._forward.url}/tokenize", data, {"Content-Type": "application/json"})
        if self._key:
            request.add_header("Authorization", f"Bearer {self._key}")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_COUNT_SECONDS) as answer:
                return len(json.loads(answer.read(_LARGEST))["tokens"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UserError(f"the server does not count tokens: {error}", "see its log") from None

    def clock(self) -> float:
        """Seconds, from whenever on."""
        return time.monotonic()

    def _tell(self, line: str) -> None:
        assert self._shell
        self._shell.tell(line)

    def _hear(self, *words: str) -> list[str]:
        """The next line that begins with one of these words. Raises UserError where the host says no more."""
        for line in self._lines:
            said = line.split(" ")
            if said[0] in words:
                return said
        assert self._shell
        *_, why, way_out = ("", "it does not say why", *self._shell.complaints)
        if way_out.startswith("  help: "):
            raise UserError(why, way_out.removeprefix("  help: "))
        raise RemoteError(
            f"measuring ended halfway: {way_out[:300]}", "what served before comes back by itself; run again to go on"
        )

    def _close(self) -> None:
        if self._shell:
            self._shell.close()
        self._forward.__exit__()
