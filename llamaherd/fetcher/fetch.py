"""Everything that a job wants, fetched: several connections, several files at a time, a hash beside each."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from llamaherd.fetcher.bandwidth import Throttle
from llamaherd.fetcher.exchange import Body, ChangedError, RangeIgnoredError, ask
from llamaherd.fetcher.job import File, Job
from llamaherd.fetcher.limits import Limits
from llamaherd.fetcher.lines import Lines
from llamaherd.fetcher.progress import Progress
from llamaherd.fetcher.quantities import show_size
from llamaherd.fetcher.said import SaidError
from llamaherd.fetcher.source import LaterError, Offer, RefusedError, Supplier
from llamaherd.fetcher.storage import DiskFullError, StorageError, free
from llamaherd.fetcher.ticker import Ticker
from llamaherd.fetcher.transfer import Claim, Transfer

_AT_ONCE = 3  # files: while one is hashed to its end, the next is fetched
_BUFFER = 256 << 10  # bytes of one read
_SYNC_EVERY = 5.0  # seconds; so that little is left to be written when a file is all there
_LOOK = 0.2  # seconds between two looks for something to fetch
_JOIN = 2.0  # seconds; a thread that still waits for a server then is left behind


def fetch(job: Job, run: Path, limits: Limits | None = None) -> list[SaidError]:
    """Bring what is missing of the job's files; returns what failed. Says how it goes in the folder `run`."""
    progress = Progress(run)
    try:
        failed = Fetch(job, _tokens(job, run), progress, limits or Limits()).run()
    except SaidError as error:
        failed = [error]
    if failed:
        progress.fail(failed)
    return failed


def _tokens(job: Job, run: Path) -> dict[str, str]:
    """The bearer tokens by the names that the job's sources have for them, where there are any. Raises SaidError."""
    found = {}
    for name in sorted({source.secret for file in job.files for source in file.sources}):
        try:
            token = (run / "secrets" / name).read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SaidError(f"the token `{name}` cannot be read: {error.strerror}", "run `herd up` again") from None
        if token and not re.fullmatch(r"[!-~]+", token):
            raise SaidError(f"the token `{name}` holds odd characters", "look at where it is kept; copy it anew")
        if token:
            found[name] = token
    return found


class Fetch:
    """A run of a job."""

    def __init__(self, job: Job, tokens: Mapping[str, str], progress: Progress, limits: Limits) -> None:
        self._job = job
        self._limits = limits
        self._progress = progress
        self._throttle = Throttle(job.bandwidth)
        self._changed = threading.Condition(threading.RLock())
        self._over = threading.Event()
        self._fatal: Exception | None = None
        self._hindrance = ""
        names = {source.name for file in job.files for source in file.sources}
        self._suppliers = {name: Supplier(name, limits) for name in sorted(names)}
        self._transfers = [self._transfer(file, tokens) for file in _distinct(job.files)]
        self._waiting = deque(self._transfers)
        self._left = len(self._transfers)

    def run(self) -> list[SaidError]:
        """Fetch until every file is whole or has failed; returns why some have. Raises StorageError."""
        if not self._transfers:
            return []
        self._refuse_without_room()
        threads = [self._thread(self._bring_all) for _ in range(min(_AT_ONCE, len(self._transfers)))]
        threads += [self._thread(self._work) for _ in range(self._job.connections)]
        threads.append(self._thread(self._sync_all))
        ticker = Ticker(self._transfers, self._suppliers)
        while not self._over.wait(1.0):
            self._progress.show(self._hindrance or ticker.line())
        for transfer in self._transfers:
            transfer.stop()
        until = time.monotonic() + _JOIN
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        if self._fatal:
            raise self._fatal
        return [transfer.error for transfer in self._transfers if transfer.error]

    def _transfer(self, file: File, tokens: Mapping[str, str]) -> Transfer:
        offers = [
            Offer(source, self._suppliers[source.name], tokens.get(source.secret), self._limits.patience)
            for source in file.sources
        ]
        return Transfer(
            file,
            offers,
            self._job.incoming,
            self._limits.block,
            self._changed,
            self._progress.note,
            self._progress.warn,
        )

    def _refuse_without_room(self) -> None:
        missing = sum(each.file.size - each.have for each in self._transfers)
        room = free(self._job.incoming)
        if missing > room:
            raise StorageError(
                f"{show_size(missing)} are still to come, but {self._job.incoming} has room for {show_size(room)}",
                "make room there, or move the store to a larger disk, and run `herd up` again",
            )

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except Exception as error:
                # Without this thread the run might never end.
                self._fatal = self._fatal or error
                self._over.set()

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def _bring_all(self) -> None:
        """Bring one file after the other, until none is waiting."""
        while not self._over.is_set():
            with self._changed:
                if not self._waiting:
                    return
                transfer = self._waiting.popleft()
            transfer.bring()
            if transfer.error is None and not self._over.is_set():
                self._progress.note(f"{transfer.file.name} is whole: {show_size(transfer.file.size)}")
            with self._changed:
                self._left -= 1
                if self._left == 0:
                    self._over.set()

    def _work(self) -> None:
        """Fetch what can be claimed, on connections that are kept, until the run is over."""
        lines, buffer = Lines(self._limits), memoryview(bytearray(_BUFFER))
        while claim := self._next_claim():
            try:
                self._carry_out(claim, lines, buffer)
            finally:
                claim.transfer.release(claim)
        lines.close()

    def _next_claim(self) -> Claim | None:
        with self._changed:
            while not self._over.is_set():
                for transfer in self._transfers:
                    if claim := transfer.claim():
                        return claim
                self._changed.wait(_LOOK)
        return None

    def _carry_out(self, claim: Claim, lines: Lines, buffer: memoryview) -> None:
        offer, transfer, asked_at, got = claim.offer, claim.transfer, time.monotonic(), 0
        try:
            with ask(lines, offer, claim.start, claim.end, transfer.file.size) as body:
                while body.at < body.end and not claim.revoked and not self._over.is_set():
                    got += self._pass_on(claim, body, buffer)
        except LaterError as later:
            # What broke off half-way is gone on with at once.
            if not got and offer.supplier.failed(asked_at, later):
                transfer.refuse(offer, offer.gave_up())
        except RefusedError as reason:
            transfer.refuse(offer, reason)
        except ChangedError:
            transfer.source_changed(claim)
        except RangeIgnoredError:
            offer.ignores_ranges = True

    def _pass_on(self, claim: Claim, body: Body, buffer: memoryview) -> int:
        """Read once and write it down; returns how many bytes are new."""
        at = body.at
        granted = self._throttle.admit(min(len(buffer), body.end - at))
        count = 0
        try:
            count = body.read_into(buffer[:granted])
        finally:
            self._throttle.give_back(granted - count)
        new = 0 if claim.revoked else self._write(claim, body, at, buffer[:count])
        if new:
            claim.offer.supplier.served()
            claim.transfer.gave(claim.offer)
        return new

    def _write(self, claim: Claim, body: Body, offset: int, data: memoryview) -> int:
        """Write what came, and return how much of it is there; on a full disk, wait for room first.

        Of an answer that does not say how long it is, nothing is there before all is. Raises StorageError.
        """
        until = time.monotonic() + self._limits.room
        while True:
            try:
                if body.is_sure:
                    new = claim.part.absorb(offset, data)
                else:
                    claim.part.hold(offset, data)
                    new = claim.part.keep(claim.start, body.end) if body.at == body.end else 0
            except DiskFullError as error:
                if time.monotonic() > until or self._over.is_set():
                    raise
                self._hindrance = f"{error.message}; waiting for room"
                self._over.wait(1.0)
            else:
                self._hindrance = ""
                return new

    def _sync_all(self) -> None:
        """Bring what came to the disk now and then."""
        while not self._over.wait(_SYNC_EVERY):
            for transfer in self._transfers:
                if transfer.part:
                    transfer.part.sync()


def _distinct(files: Sequence[File]) -> list[File]:
    """The files, each content once."""
    return list({file.sha256: file for file in reversed(files)}.values())[::-1]
