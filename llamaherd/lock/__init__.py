"""The lock: every moving name of the inventory, resolved once and written down for review."""

from llamaherd.lock.apply import PlaceOf, stale
from llamaherd.lock.entries import (
    Digest,
    HubUrl,
    Lock,
    LockedArchive,
    LockedFile,
    LockedImage,
    LockedLocal,
    LockedModel,
    LockedPage,
    LockedRef,
    LockedRelease,
    LockedReleaseFile,
    ModelKey,
    ReleaseKey,
    contradiction,
)
from llamaherd.lock.file import HEADER, VERSION, LockError, dumps, lock_held, read_lock_file, write_lock

__all__ = [
    "HEADER",
    "VERSION",
    "Digest",
    "HubUrl",
    "Lock",
    "LockError",
    "LockedArchive",
    "LockedFile",
    "LockedImage",
    "LockedLocal",
    "LockedModel",
    "LockedPage",
    "LockedRef",
    "LockedRelease",
    "LockedReleaseFile",
    "ModelKey",
    "PlaceOf",
    "ReleaseKey",
    "contradiction",
    "dumps",
    "lock_held",
    "read_lock_file",
    "stale",
    "write_lock",
]
