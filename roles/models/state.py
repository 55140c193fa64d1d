"""Models' part of a host's state: what lies in the store, and what is on its way."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.host.state import HostState, StoreFolderState
from llamaherd.layout import FETCH_RUN
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.text.numbers import parse_real, parse_whole


def inspect(plan: Plan) -> str:
    """Ask for the store's disk, the files of planned models, what arrives, and all that is kept."""
    stores = [model.folder for model in plan.models]
    return render("models/inspect.sh.j2", store=plan.store.path, stores=stores, fetch_run=FETCH_RUN)


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    match kind, fields:
        case "store", [folder, size, device, filesystem, ("rw" | "ro") as access]:
            state.store = StoreFolderState(folder, parse_whole(size), device, filesystem, access == "rw")
        case "verified", [folder, size, written, sha256, name]:
            state.verified.setdefault(folder, {})[name] = (parse_whole(size), parse_real(written), sha256)
        case "stored", [folder, size, written, name]:
            state.stored.setdefault(folder, {})[name] = (parse_whole(size), parse_real(written))
        case "incoming", [name, size, blocks]:
            state.incoming[name] = min(parse_whole(size), parse_whole(blocks) * 512)
        case "kept", [folder, size]:
            state.kept[folder] = parse_whole(size)
        case "fetch", [job]:
            state.fetch = job
        case _:
            return False
    return True
