"""Fetch one file: assign its blocks to sources, hash it as it arrives, and find the source of wrong bytes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from llamaherd.onhost.fetch.job import File
from llamaherd.onhost.fetch.part import Part, kept_bytes
from llamaherd.onhost.fetch.report import FetchError
from llamaherd.onhost.fetch.source import Offer, RefusedError, wrong_bytes

_WHOLE = -1  # in place of a block's number: all of them, in order
_READ = 1 << 20  # bytes that are hashed at once
_LOOK = 0.2  # seconds between two checks for new bytes


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

    def bring(self) -> None:
        """Fetch the file until it is complete; else `error` has the reason. Raise StorageError."""
        self.part = part = Part(self._incoming, self.file.sha256, self.file.size, self._block, self._say_locked)
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
        offer.supplier.asked()
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
            self._arrived.wait(_LOOK)
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

    def _say_locked(self) -> None:
        self._note(f"another run fetches {self.file.name}: waiting for it")
