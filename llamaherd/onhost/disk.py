"""Files that cannot be written: why, and what to do about it."""

from __future__ import annotations

import errno
from pathlib import Path

from llamaherd.onhost.system import FailedError


def cannot_write(error: OSError, instead: str = "") -> FailedError:
    """Return the failure that a write ended with. `instead` is the sentence about what was left as it was."""
    if not error.filename:  # not a file, such as a group that cannot be set: no advice is better than wrong advice
        return FailedError(f"{error.strerror or error}{instead}")
    path = Path(str(error.filename))
    near = next(each for each in (path, *path.parents) if each.is_dir() or each == Path("/"))
    mount = next(each for each in (near, *near.parents) if each.is_mount() or each == Path("/"))
    helps = {
        errno.ENOSPC: f"make room on {mount} (`df -h {mount}`; `df -i {mount}` if no more files fit), then run again",
        errno.EDQUOT: f"raise the quota on {mount} or make room there, then run again",
        errno.EROFS: f"make {mount} writable (`findmnt {mount}` shows how it is mounted; a disk with errors is mounted "
        "read-only, see `dmesg`), then run again",
        errno.EPERM: f"`lsattr -d {near} {path}` shows whether it is immutable (`chattr -i`), then run again",
    }
    fix = helps.get(error.errno or 0, f"see what is at {near} with `ls -la`, then run again")
    return FailedError(f"cannot write {path}: {error.strerror}{instead}", fix)
