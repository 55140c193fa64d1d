"""Saved diffs as files: written for their owner alone, read within bounds, and held against what is there now."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING

from llamaherd.cli.common import FAILED, UNUSABLE, fail, say
from llamaherd.diagnostics.findings import UserError
from llamaherd.text.textfile import UnreadableError, read_bytes

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig
    from llamaherd.pipeline.outlook import Outlook
    from llamaherd.pipeline.saved import Moved, SavedDiff
    from llamaherd.plan import Plan


def write(path: Path, saved: SavedDiff) -> None:
    """Put it at `path` in one atomic step, for its owner alone. Raises UserError."""
    from llamaherd.pipeline.saved import BEGINS, to_bytes

    data = to_bytes(saved, _again("RIG", path))
    try:
        target = path.resolve()  # through a link, the file that it leads to is replaced rather than the link
        if target.exists() and not _ours(target, BEGINS):
            raise UserError(f"{path} is no saved diff, and is left as it is", "name another file, or remove that one")
        handle, part = mkstemp(".part", ".herd-", target.parent)  # of mode 0600
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(handle)
            Path(part).replace(target)
        finally:
            Path(part).unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        why = error.strerror if isinstance(error, OSError) else "its links lead nowhere"
        raise UserError(f"cannot write {path}: {why}", "check the folder and its mode") from None


def _ours(target: Path, begins: bytes) -> bool:
    """Whether it may be replaced: a slip of the fingers must not cost anybody an inventory."""
    if not target.is_file():
        return False
    with target.open("rb") as stream:
        return stream.read(len(begins)) in (begins, b"")


def read_or_exit(path: Path) -> SavedDiff:
    """The saved diff at `path`; where there is none that can be used, a sentence ends the program."""
    from llamaherd.pipeline.saved import MOST, parse

    try:
        try:
            data = read_bytes(path, MOST)
        except UnreadableError as error:
            raise UserError(f"cannot read {path}: {error}", error.help) from None
        return parse(data, str(path), _again("", path))
    except UserError as error:
        fail(error, UNUSABLE)


def same_or_exit(
    path: Path, saved: SavedDiff, planned: Mapping[str, tuple[Rig, Plan]], found: Mapping[str, Outlook]
) -> None:
    """Nothing, where inventory and hosts are as they were saved; else what is not is said, and ends the program."""
    from llamaherd.pipeline.saved import moved

    unreached = {name: each.unreached for name, each in found.items() if each.unreached}
    gone = [rig.rig for rig in saved.rigs if rig.rig not in planned]  # by `--only`, it has no such instance any more
    there = [rig for rig in saved.rigs if rig.rig in planned]
    differing = [each for rig in there if (each := moved(rig, *planned[rig.rig], found[rig.rig]))]
    for name, why in unreached.items():
        say(f"{name}: {why}", err=True)
    for each in differing:
        if each.rig not in unreached:
            _show(each, path, saved, found[each.rig].problems)
    if unreached or differing or gone:
        chosen = [word for name in saved.only or () for word in ("--only", shlex.quote(name))]
        again = _again(" ".join([*saved.names, *chosen]), path)
        say(f"nothing was changed: {path} does not say what would be done now", err=True)
        say(f"  help: look at what would change, and save that: `{again}`", err=True)
        sys.exit(FAILED)


def _show(each: Moved, path: Path, saved: SavedDiff, problems: Sequence[str]) -> None:
    from llamaherd import __version__

    if each.another_plan:
        of = f", which llamaherd {saved.llamaherd} made; this is {__version__}"
        other = of if saved.llamaherd != __version__ else ""
        say(f"{each.rig}: the inventory's plan is another than that of {path}{other}", err=True)
    for problem in problems:
        say(f"{each.rig}: {problem}", err=True)
    for change in each.new:
        say(f"{each.rig}: new since {path}: {change}", err=True)
    for change in each.gone:
        say(f"{each.rig}: gone since {path}: {change}", err=True)


def _again(rigs: str, path: Path) -> str:
    """The command that saves a diff there."""
    return " ".join(filter(None, ["herd diff", rigs, "--save", shlex.quote(str(path))]))
