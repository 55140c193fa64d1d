"""Fetch all files of a job over several connections, within the bandwidth rules, with a progress line."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from llamaherd.onhost.fetch.http_client import Body, ChangedError, Connections, RangeIgnoredError, request_range
from llamaherd.onhost.fetch.job import (
    FetchError,
    File,
    Job,
    Limits,
    Progress,
    Rule,
    show_duration,
    show_part,
    show_size,
)
from llamaherd.onhost.fetch.part import DiskFullError, StorageError, free_bytes
from llamaherd.onhost.fetch.transfer import Claim, LaterError, Offer, RefusedError, Supplier, Transfer

_SLICE = 0.05  # seconds of the allowed rate that one read may take
_LEAST = 512  # bytes of one read, where the rate is very low
_CREDIT = 0.1  # seconds for which an unused rate may be made up


class Throttle:
    """The allowed rate, spread over all readers. The first rule that covers the local time counts."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._lock = threading.Lock()
        self._next = 0.0  # when the next byte is due

    def rate(self) -> int | None:
        """Return the bytes per second that are allowed now; None without a limit."""
        if not self._rules:
            return None
        now = datetime.now().time()
        return next((rule.bytes_per_second for rule in self._rules if rule.covers(now)), None)

    def admit(self, wanted: int) -> int:
        """Wait until bytes are due; return how many may be read, up to `wanted`."""
        rate = self.rate()
        if rate is None:
            return wanted
        granted = min(wanted, max(_LEAST, round(rate * _SLICE)))
        with self._lock:
            now = time.monotonic()
            due = max(self._next, now - _CREDIT)
            self._next = due + granted / rate
        time.sleep(max(0.0, due - now))
        return granted

    def give_back(self, unread: int) -> None:
        """Return granted bytes that were not read to the other readers."""
        rate = self.rate()
        if rate is not None and unread:
            with self._lock:
                self._next -= unread / rate


_RATE_OVER = 10.0  # seconds


class ProgressLine:
    """The progress of all transfers, updated about every second."""

    def __init__(self, transfers: Sequence[Transfer], suppliers: Mapping[str, Supplier]) -> None:
        self._transfers = transfers
        self._suppliers = suppliers
        self._size = sum(transfer.file.size for transfer in transfers)
        self._seen: deque[tuple[float, int]] = deque()

    def line(self) -> str:
        """Return the current activity."""
        have = sum(transfer.have for transfer in self._transfers)
        rate = self._rate(have)
        amount = show_part(have, self._size)
        giving = next(((each, offer) for each in self._transfers if (offer := each.giving)), None)
        if waits := self._waits():
            return f"{waits} ({amount})"
        if giving:
            transfer, offer = giving
            left = f", {show_duration((self._size - have) / rate)} left" if rate >= 1 else ""
            return f"fetching {transfer.file.name} from {offer.source.name}: {amount}, {show_size(rate)}/s{left}"
        hashing = next((each for each in self._transfers if each.is_being_hashed), None)
        if hashing:
            return f"checking {hashing.file.name}: {show_part(hashing.hashed, hashing.file.size)} read"
        return f"fetching: {amount}"

    def _rate(self, have: int) -> float:
        """Return the bytes per second over the last seconds; a file that was begun anew makes it 0."""
        now = time.monotonic()
        self._seen.append((now, have))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _RATE_OVER:
            self._seen.popleft()
        then, had = self._seen[0]
        return max(0.0, (have - had) / (now - then)) if now > then else 0.0

    def _waits(self) -> str:
        """Return why no bytes arrive, if none have arrived since the last call but one."""
        recent = [have for _, have in list(self._seen)[-3:]]
        failing = [supplier for supplier in self._suppliers.values() if supplier.fails]
        if recent[-1] != recent[0]:
            return ""
        return "; ".join(f"no response from {each.name}: {each.reason}; {_again(each)}" for each in failing)


def _again(supplier: Supplier) -> str:
    rest = supplier.rest()
    return f"again in {show_duration(rest)}" if rest >= 0.5 else "asking again"


_AT_ONCE = 3  # files: while one is hashed to its end, the next is fetched
_BUFFER = 256 << 10  # bytes of one read
_SYNC_EVERY = 5.0  # seconds; so that little is left to be written when a file is complete
_CHECK_SECONDS = 0.2  # seconds between two checks for something to fetch
_JOIN = 2.0  # seconds; a thread that still waits for a server then is left behind


def fetch(job: Job, run: Path, limits: Limits | None = None) -> list[FetchError]:
    """Fetch the missing files of a job; return the failures. The folder `run` has the progress."""
    progress = Progress(run)
    try:
        failed = Fetch(job, _tokens(job, run), progress, limits or Limits()).run()
    except FetchError as error:
        failed = [error]
    if failed:
        progress.fail(failed)
    return failed


def _tokens(job: Job, run: Path) -> dict[str, str]:
    """Return the bearer tokens by their names in the job's sources, if there are any. Raise FetchError."""
    found = {}
    for name in sorted({source.secret for file in job.files for source in file.sources}):
        try:
            token = (run / "secrets" / name).read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise FetchError(f"the token `{name}` cannot be read: {error.strerror}", "run `herd up` again") from None
        if token and not re.fullmatch(r"[!-~]+", token):
            raise FetchError(f"the token `{name}` holds odd characters", "check its file; copy it anew")
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

    def run(self) -> list[FetchError]:
        """Fetch until every file is complete or has failed; return the failures. Raise StorageError."""
        if not self._transfers:
            return []
        self._refuse_without_room()
        threads = [self._thread(self._run_transfers) for _ in range(min(_AT_ONCE, len(self._transfers)))]
        threads += [self._thread(self._work) for _ in range(self._job.connections)]
        threads.append(self._thread(self._sync_all))
        ticker = ProgressLine(self._transfers, self._suppliers)
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
        room = free_bytes(self._job.incoming)
        if missing > room:
            raise StorageError(
                f"{show_size(missing)} are still missing, but {self._job.incoming} has room for {show_size(room)}",
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

    def _run_transfers(self) -> None:
        """Fetch one file after the other, until none is waiting."""
        while not self._over.is_set():
            with self._changed:
                if not self._waiting:
                    return
                transfer = self._waiting.popleft()
            transfer.run()
            if transfer.error is None and not self._over.is_set():
                self._progress.note(f"{transfer.file.name} is complete: {show_size(transfer.file.size)}")
            with self._changed:
                self._left -= 1
                if self._left == 0:
                    self._over.set()

    def _work(self) -> None:
        """Fetch what can be claimed, on connections that are kept, until the run is over."""
        lines, buffer = Connections(self._limits), memoryview(bytearray(_BUFFER))
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
                self._changed.wait(_CHECK_SECONDS)
        return None

    def _carry_out(self, claim: Claim, lines: Connections, buffer: memoryview) -> None:
        offer, transfer, requested_at, got = claim.offer, claim.transfer, time.monotonic(), 0
        try:
            with request_range(lines, offer, claim.start, claim.end, transfer.file.size) as body:
                while body.at < body.end and not claim.revoked and not self._over.is_set():
                    got += self._pass_on(claim, body, buffer)
        except LaterError as later:
            # An interrupted transfer continues at once.
            if not got and offer.supplier.failed(requested_at, later):
                transfer.refuse(offer, offer.gave_up())
        except RefusedError as reason:
            transfer.refuse(offer, reason)
        except ChangedError:
            transfer.source_changed(claim)
        except RangeIgnoredError:
            offer.ignores_ranges = True

    def _pass_on(self, claim: Claim, body: Body, buffer: memoryview) -> int:
        """Read once and write the bytes; return how many are new."""
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
        """Write bytes, and return how many count as written; on a full disk, wait for room first.

        Of a response without a length, no byte counts before all have arrived. Raise StorageError.
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
        """Write the received bytes to the disk every few seconds."""
        while not self._over.wait(_SYNC_EVERY):
            for transfer in self._transfers:
                if transfer.part:
                    transfer.part.sync()


def _distinct(files: Sequence[File]) -> list[File]:
    """Return the files, each content once."""
    return list({file.sha256: file for file in reversed(files)}.values())[::-1]
