"""The transfer of a file: its sources, connections, and the parts that it receives."""

from __future__ import annotations

import hashlib
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from llamaherd.onhost.fetch.job import FetchError, File, Limits, Source, show_duration, show_size
from llamaherd.onhost.fetch.part import Part, kept_bytes

# How often in a row a source that has served may fail, and for how many seconds, until the next one is tried.
_STUMBLES, _SHORT = 3, 5.0


class RefusedError(FetchError):
    """A source will not send a file, however often it is requested. The message is a clause that begins
    with its name.
    """


class LaterError(Exception):
    """A source did not respond this time. `after` is the pause in seconds that it requests."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after


class Supplier:
    """A source, for all files: it rests for a while after a failure, longer each time."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.name = name
        self.reason = ""
        self._limits = limits
        self._lock = threading.Lock()
        self._failures = 0
        self._failing_since = 0.0
        self._rests_until = 0.0
        self._probed = False
        self._has_served = False
        self._waited = 0.0  # seconds for the bytes that arrived since then
        self._got = 0
        self._is_too_slow = False

    def rest(self) -> float:
        """Return the seconds for which it must not be queried."""
        return max(0.0, self._rests_until - time.monotonic())

    @property
    def slowest(self) -> int:
        """The bytes a second that each connection to it should deliver at least."""
        return self._limits.slowest

    @property
    def fails(self) -> bool:
        """Return whether its last request failed."""
        return self._failures > 0

    def is_ready(self) -> bool:
        """Return whether it may be queried now; while it fails, single requests test it."""
        with self._lock:
            return time.monotonic() >= self._rests_until and not (self._failures and self._probed)

    def is_worth_waiting_for(self) -> bool:
        """Return whether it has failed only briefly, so that no other source needs to be tried."""
        with self._lock:
            fails_since = time.monotonic() - self._failing_since
            return self._has_served and 0 < self._failures <= _STUMBLES and self.rest() < _SHORT > fails_since

    def note_request(self) -> None:
        """Record that a request begins."""
        with self._lock:
            self._probed = True

    def left(self) -> None:
        """Record that a request is over."""
        with self._lock:
            self._probed = False

    def served(self) -> None:
        """Record that it sent bytes."""
        if self._failures or not self._has_served:
            with self._lock:
                self._failures, self._has_served = 0, True

    def is_too_slow(self, count: int, waited: float) -> bool:
        """Add bytes and the seconds of waiting for them; return whether the source is too slow by now."""
        with self._lock:
            self._got += count
            self._waited += waited
            if self._waited > self._limits.patience:
                self._is_too_slow = self._got < self._waited * self._limits.slowest
                self._got, self._waited = 0, 0.0
            return self._is_too_slow

    def failed(self, requested_at: float, later: LaterError) -> bool:
        """Record a failed request of this (monotonic) time; return whether to give up."""
        with self._lock:
            now = time.monotonic()
            if not self._failures:
                self._failing_since = now
            # Many requests that fail together are one failure.
            if not self._failures or requested_at >= self._rests_until:
                pause = min(self._limits.longest_rest, self._limits.first_rest * 2**self._failures)
                self._rests_until = now + pause * random.uniform(0.75, 1.0)
                self._failures += 1
            if later.after is not None:
                self._rests_until = max(self._rests_until, now + later.after)
            self.reason = later.reason
            return now - self._failing_since > self._limits.patience


class Offer:
    """One source of one file, and the state of its requests."""

    def __init__(self, source: Source, supplier: Supplier, token: str | None, patience: float) -> None:
        self.source = source
        self.supplier = supplier
        self.token = token
        self.target = source.url  # where redirects led
        self.etag: str | None = None
        self.ignores_ranges = False
        self.changes = 0
        self.refused: RefusedError | None = None
        self._patience = patience

    def forget_target(self) -> None:
        """Query the source itself again: the target of its redirect expires, and another one may have another ETag."""
        self.target = self.source.url
        self.etag = None

    def too_slow(self) -> RefusedError:
        """Return the error for a source that would take years."""
        return RefusedError(
            f"{self.source.name} sent less than {show_size(self.supplier.slowest)} a second"
            f" for {show_duration(self._patience)}",
            "check the line, then run `herd up` again: it continues from here",
        )

    def gave_up(self) -> RefusedError:
        """Return the error for a source that has not responded for too long."""
        return RefusedError(
            f"{self.source.name} sent nothing for {show_duration(self._patience)}: {self.supplier.reason}",
            "check that it runs and is reachable, then run `herd up` again: it continues from here",
        )


_AGAIN = "run `herd up` again; if this stays, leave this source out"
_NOT_A_FILE = "open the source's address in a browser: a login page or a proxy may be in between"
_HUB_PATH = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/[^/]+/.+")


def refused_by_status(offer: Offer, status: int, code: str) -> RefusedError:
    """Return the error for a permanent status, with the `code` of a hub."""
    name, url = offer.source.name, urlsplit(offer.source.url)
    hub = _HUB_PATH.fullmatch(url.path)
    if status in (401, 403) and hub is None:
        kind = "does not accept the token" if offer.token else "requires a token, and there is none"
        return RefusedError(f"{name} {kind} ({status})", _AGAIN)
    if status in (404, 410) and hub is None:
        return RefusedError(f"{name} does not have it ({status})", "let another source have it too")
    if hub is None or status not in (400, 401, 403, 404, 410):
        return RefusedError(f"{name} returned status {status}", _AGAIN)
    repo = unquote(hub["repo"])
    if status == 400:
        # Single files of some 400 GB: https://github.com/huggingface/huggingface_hub/issues/4330
        return RefusedError(
            f"{name} does not send this file of {repo} over HTTP ({status}), as it may be too large for that",
            f"`hf download {repo}` on this host, then run `herd up` again: it adopts the file from that cache",
        )
    page = f"{url.scheme}://{url.netloc}/{repo}"
    if code == "GatedRepo":
        return RefusedError(
            f"{name} sends {repo} only to accounts that its owner has granted access ({status})",
            f"open {page} in a browser and request access, then give a token of that account as HF_TOKEN",
        )
    if code == "RevisionNotFound":
        return RefusedError(
            f"{name} no longer has this revision of {repo} ({status})",
            "lock an existing one: `herd lock --upgrade` with the model's name",
        )
    if code == "EntryNotFound":
        return RefusedError(
            f"{name} has no such file in this revision of {repo} ({status})",
            "lock existing files: `herd lock --upgrade` with the model's name",
        )
    if status in (404, 410):
        return RefusedError(f"{name} does not have {repo} ({status})", f"check {page}: it may be deleted, or renamed")
    if offer.token:
        return RefusedError(
            f"{name} does not accept the token for {repo} ({status})",
            "check HF_TOKEN: it may be mistyped or expired, or its account has no access",
        )
    return RefusedError(f"{name} requires a token for {repo} ({status})", "give one as HF_TOKEN")


def wrong_size(offer: Offer, size: int, expected: int) -> RefusedError:
    """Return the error for a file of another size."""
    return RefusedError(f"{offer.source.name} has {size} bytes where {expected} are expected", _NOT_A_FILE)


def unexpected_response(offer: Offer, what: str) -> RefusedError:
    """Return the error for an invalid response."""
    return RefusedError(f"{offer.source.name} {what}", _NOT_A_FILE)


def wrong_bytes(offer: Offer, sha256: str, expected: str) -> RefusedError:
    """Return the error for a complete file with another hash."""
    name = offer.source.name
    if _HUB_PATH.fullmatch(urlsplit(offer.source.url).path):
        fix = "lock the model anew by `herd lock --upgrade` and its name, if its files may have changed"
    else:
        fix = f"`herd verify --deep {name}` reports what is damaged there, and `herd up {name}` fetches it again"
    return RefusedError(
        f"it arrived from {name} with sha256 {sha256}, but {expected} was expected; nothing of it was kept", fix
    )


_WHOLE = -1  # in place of a block's number: all of them, in order
_READ = 1 << 20  # bytes that are hashed at once
_CHECK_SECONDS = 0.2  # seconds between two checks for new bytes


@dataclass(eq=False)
class Claim:
    """The permission to fetch the bytes from `start` to before `end`.

    Once it is revoked, no more of them may be written.
    """

    transfer: Transfer
    offer: Offer
    part: Part
    block: int
    start: int
    end: int
    revoked: bool = False


class Transfer:
    """A file in transfer.

    One thread manages it, and hashes what has arrived; others fetch the blocks that they have claimed.

    `changed` guards their shared state, and is notified when there may be something new to claim.
    """

    def __init__(
        self,
        file: File,
        offers: Sequence[Offer],
        incoming: Path,
        block: int,
        changed: threading.Condition,
        note: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self.file = file
        self.part: Part | None = None
        self.error: FetchError | None = None
        self.hashed = 0
        self._incoming = incoming
        self._block = block
        self._kept = kept_bytes(incoming, file.sha256, file.size)
        self._offers = offers
        self._changed = changed
        self._note = note
        self._warn = warn
        self._open = False  # for claims
        self._stopped = False
        self._claims: dict[int, Claim] = {}
        self._lowest = 0  # no block before this one is free
        self._arrived = threading.Event()
        self._resumed = False
        self._givers: set[Offer] = set()
        self._alone: Offer | None = None

    def run(self) -> None:
        """Fetch the file until it is complete; else `error` has the reason. Raise StorageError."""
        self.part = part = Part(self._incoming, self.file.sha256, self.file.size, self._block, self._report_locked)
        try:
            if not part.whole and self._has_sources():
                self._resumed = part.have > 0
                self._until_right(part)
        finally:
            self._close()
            part.close()

    @property
    def have(self) -> int:
        """The number of its bytes that are on this host."""
        return self.part.have if self.part else self._kept

    @property
    def giving(self) -> Offer | None:
        """A source that sends now."""
        return next((claim.offer for claim in list(self._claims.values())), None)

    @property
    def is_being_hashed(self) -> bool:
        """Return whether its hash is still behind."""
        return self._open and self.have == self.file.size > self.hashed

    def claim(self) -> Claim | None:
        """Return the next bytes to fetch and their source, if there are any. Needs `changed`."""
        if not self._open or self.part is None or _WHOLE in self._claims:
            return None
        offer = self._choice()
        if offer is None:
            return None
        if offer.ignores_ranges:
            block, start, end = _WHOLE, 0, self.file.size
            if self._claims:
                return None
        else:
            block = self._free(self.part)
            if block == self.part.blocks:
                return None
            start, end = self.part.lacking(block)
        claim = self._claims[block] = Claim(self, offer, self.part, block, start, end)
        offer.supplier.note_request()
        return claim

    def release(self, claim: Claim) -> None:
        """End a claim; its missing bytes may be claimed again."""
        with self._changed:
            claim.offer.supplier.left()
            del self._claims[claim.block]
            self._lowest = min(self._lowest, max(claim.block, 0))
            self._changed.notify_all()
        self._arrived.set()

    def gave(self, offer: Offer) -> None:
        """Record that bytes of the file came from a source."""
        self._givers.add(offer)

    def refuse(self, offer: Offer, reason: RefusedError) -> None:
        """Stop using this source; without another one, the file has failed."""
        with self._changed:
            if offer.refused is None:
                offer.refused = reason
                self._note(f"{self.file.name}: {reason.message}")
            if all(each.refused for each in self._offers):
                self._fail()

    def source_changed(self, claim: Claim) -> None:
        """Drop the bytes of a source that has another file now. It happens once, or the source is refused."""
        with self._changed:
            if claim.revoked:
                return
            claim.offer.changes += 1
            claim.offer.etag = None
            self._shut()
        if claim.offer.changes > 1:
            reason = RefusedError(
                f"{claim.offer.source.name} changes the file while it is fetched", "run `herd up` again later"
            )
            self.refuse(claim.offer, reason)
        else:
            self._note(f"{self.file.name} has changed at {claim.offer.source.name}: starting over")

    def stop(self) -> None:
        """Give up for now: the bytes that have arrived stay."""
        with self._changed:
            self._stopped = True
            self._shut()
            self._changed.notify_all()

    def _has_sources(self) -> bool:
        if not self._offers:
            self.error = FetchError(
                f"{self.file.name} is not on this host, and has no source",
                "put it into one of the folders that are searched, or give the model a source",
            )
        return bool(self._offers)

    def _until_right(self, part: Part) -> None:
        while True:
            with self._changed:
                self._lowest = 0
                self._open = not self._stopped and self.error is None
                self._changed.notify_all()
            digest = self._followed(part)
            self._close()
            if self._stopped or self.error:
                return
            if digest == self.file.sha256:
                part.finish()
                return
            if digest:
                self._blame(digest)
            part.discard()
            self._resumed, self._givers = False, set()

    def _followed(self, part: Part) -> str | None:
        """Return the sha256 of the whole file, read as it arrives; None if it fails."""
        digest = hashlib.sha256()
        buffer, other = memoryview(bytearray(_READ)), memoryview(bytearray(_READ))
        self.hashed = 0
        # Each piece is read while the one before it is hashed: one after the other would be a third slower.
        with ThreadPoolExecutor(1) as reader:
            reading = reader.submit(self._next, part, 0, buffer)
            while self.hashed < part.size:
                count = reading.result()
                if not count:
                    return None
                self.hashed += count
                reading = reader.submit(self._next, part, self.hashed, other)
                digest.update(buffer[:count])
                buffer, other = other, buffer
        return digest.hexdigest()

    def _next(self, part: Part, offset: int, buffer: memoryview) -> int:
        """Read new bytes from this offset on, once there are enough; return how many, 0 if no more arrive."""
        while offset < part.size and self._open:
            ready = part.prefix()
            if ready >= min(offset + _READ, part.size):
                return part.read_into(offset, buffer[: ready - offset])
            self._arrived.wait(_CHECK_SECONDS)
            self._arrived.clear()
        return 0

    def _blame(self, digest: str) -> None:
        """Find the cause of wrong bytes: the disk, one of several sources, or the only one."""
        name = self.file.name
        if self._resumed:
            self._note(f"the kept part of {name} was damaged: starting over")
            return
        if len(self._givers) > 1:
            self._alone = self._usable()[0] if self._usable() else None
            self._note(f"{name} arrived wrong from several sources: starting over with one")
            return
        # No source has sent bytes of an empty file: then all of them are tried in vain.
        for giver in self._givers or self._offers:
            reason = wrong_bytes(giver, digest, self.file.sha256)
            self._warn(f"{self.file.name}: {reason.message}\n  help: {reason.help}")
            self.refuse(giver, reason)

    def _choice(self) -> Offer | None:
        """Return the first source that may be queried now."""
        for offer in self._usable():
            if offer.supplier.is_ready():
                return offer
            if offer.supplier.is_worth_waiting_for():
                return None
        return None

    def _usable(self) -> list[Offer]:
        usable = [offer for offer in self._offers if offer.refused is None]
        return [self._alone] if self._alone in usable else usable

    def _free(self, part: Part) -> int:
        """Return the first block that lacks something and that no source fetches; the number of blocks if there is
        none.
        """
        while self._lowest < part.blocks:
            start, end = part.lacking(self._lowest)
            if start < end and self._lowest not in self._claims:
                break
            self._lowest += 1
        return self._lowest

    def _shut(self) -> None:
        self._open = False
        for claim in self._claims.values():
            claim.revoked = True
        self._arrived.set()

    def _close(self) -> None:
        """Stop all writers."""
        with self._changed:
            self._shut()
            while self._claims:
                self._changed.wait()

    def _fail(self) -> None:
        reasons = [offer.refused for offer in self._offers if offer.refused]
        helps = dict.fromkeys(reason.help for reason in reasons)
        self.error = FetchError(
            f"{self.file.name} cannot be fetched: {'; '.join(reason.message for reason in reasons)}",
            "; or ".join(helps),
        )
        self._shut()

    def _report_locked(self) -> None:
        self._note(f"another run fetches {self.file.name}: waiting for it")
