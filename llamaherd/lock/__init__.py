"""The lock: every moving name of the inventory, resolved once and written down for review."""

from llamaherd.lock.entries import (
    Digest,
    Endpoint,
    Lock,
    LockedFile,
    LockedImage,
    LockedLocal,
    LockedModel,
    LockedRef,
    ModelKey,
)
from llamaherd.lock.file import HEADER, VERSION, LockError, dumps, read, write
from llamaherd.lock.hold import held
from llamaherd.lock.sizes import contradiction
from llamaherd.lock.stale import PlaceOf, stale

__all__ = [
    "HEADER",
    "VERSION",
    "Digest",
    "Endpoint",
    "Lock",
    "LockError",
    "LockedFile",
    "LockedImage",
    "LockedLocal",
    "LockedModel",
    "LockedRef",
    "ModelKey",
    "PlaceOf",
    "contradiction",
    "dumps",
    "held",
    "read",
    "stale",
    "write",
]
