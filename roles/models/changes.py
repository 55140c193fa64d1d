"""Models: what is in the store is whole, proved by its hash, and never fetched again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from llamaherd.host.state import HostState
from llamaherd.host.totals import HOUR, show_limit, transfer_seconds
from llamaherd.layout import FETCH_RUN, FETCH_UNIT, FETCH_USER, INCOMING, LAUNCHER
from llamaherd.plan import FromFolder, ModelFile, ModelPlan, Plan, digest
from llamaherd.render import render
from llamaherd.role.changes import Change, DeferredScript, RunScript, Say, SendFile
from llamaherd.store.missing import missing_files
from llamaherd.text.quoting import base64_lines
from llamaherd.text.units import show_size

_NO_SECRET = "_"
"""What a job calls the token of a place that wants none; no place has this name."""


@dataclass(frozen=True)
class ModelSource:
    """Somewhere that files come from: where each is, by its sha256, and the bearer token that is wanted there."""

    name: str
    urls: Mapping[str, str]
    token: str | None = field(default=None, repr=False)


Places = Callable[[Plan, Sequence[str], Say], Sequence[ModelSource]]
"""Finds out, when it is needed, where the files with these sha256s are to be had."""


def to_fetch(plan: Plan, state: HostState) -> list[tuple[ModelPlan, ModelFile]]:
    """What is missing and has not arrived yet: each content once, whichever models it is part of."""
    wanted: dict[str, tuple[ModelPlan, ModelFile]] = {}
    for model in plan.models:
        for file in missing_files(model, state) if model.url else ():
            if file.sha256 not in state.incoming:
                wanted.setdefault(file.sha256, (model, file))
    return list(wanted.values())


def model_sends(plan: Plan, state: HostState) -> list[SendFile]:
    """The controller's own files that the store lacks."""
    local: dict[str, Path] = {}
    places: dict[str, list[PurePosixPath]] = {}
    for model in plan.models:
        for file in missing_files(model, state) if model.local else ():
            assert model.local
            local[file.sha256] = model.local
            places.setdefault(file.sha256, []).append(PurePosixPath(model.folder, file.name))
    return [SendFile(local[sha256], sha256, tuple(settled)) for sha256, settled in places.items()]


def begin_changes(plan: Plan, state: HostState, places: Places, watcher: str) -> list[Change]:
    """Begin to fetch, and go on to other things meanwhile. `watcher` tells one run of `herd up` from the others."""
    wanted = to_fetch(plan, state)
    if not wanted:
        return []
    if state.fetch == _job_id(plan):
        join = RunScript(render("models/join-fetch.sh.j2", id=state.fetch, watcher=watcher, run=FETCH_RUN))
        return [Change("fetch", "models", _what(wanted), ("a fetch of them runs",), join)]
    make = partial(_fetch, plan, wanted, places, watcher, wait=False)
    return [
        Change("fetch", "models", _what(wanted), _not_there(wanted), DeferredScript(make, "asking where models are"))
    ]


def model_changes(plan: Plan, state: HostState, places: Places, watcher: str) -> list[Change]:
    """Bring what is missing: sent from here, or fetched; then all of it is let in.

    What `watcher` has begun to fetch, or has joined, it awaits: a fetch that has failed by now is not begun again.
    """
    incomplete = [model for model in plan.models if missing_files(model, state)]
    if not incomplete:
        return []
    wanted = to_fetch(plan, state)
    wait = DeferredScript(partial(_fetch, plan, wanted, places, watcher, wait=True), f"fetching {_what(wanted)}")
    lacking = tuple(f"{model.folder} lacks {file.name}" for model in incomplete for file in missing_files(model, state))
    admit = render(
        "models/admit.sh.j2",
        store=plan.store.path,
        incoming=_incoming(plan),
        sent=INCOMING,
        warnings=FETCH_RUN / "warnings",
        user=FETCH_USER,
        models=_admitted(incomplete),
    )
    names = ", ".join(model.name for model in incomplete)
    return [
        *(Change("send", "model", send.local.name, lacking, send) for send in model_sends(plan, state)),
        *([Change("fetch", "models", _what(wanted), lacking, wait)] if wanted else []),
        Change("update", "models", names, lacking, RunScript(admit)),
    ]


def _not_there(wanted: Sequence[tuple[ModelPlan, ModelFile]]) -> tuple[str, ...]:
    return tuple(f"{model.folder} lacks {file.name}" for model, file in wanted)


def _admitted(models: Sequence[ModelPlan]) -> list[dict[str, object]]:
    """The models for the script; `keep` stands at a file whose content another one needs that comes later."""
    left = Counter(file.sha256 for model in models for file in model.files)

    def admitted(file: ModelFile) -> dict[str, object]:
        left[file.sha256] -= 1
        return {"name": file.name, "sha256": file.sha256, "keep": left[file.sha256] > 0}

    return [{"folder": model.folder, "files": [admitted(file) for file in model.files]} for model in models]


def _fetch(
    plan: Plan,
    wanted: Sequence[tuple[ModelPlan, ModelFile]],
    places: Places,
    watcher: str,
    say: Say,
    *,
    wait: bool,
) -> RunScript:
    found = places(plan, [file.sha256 for _, file in wanted], say)
    job = fetch_job(plan, wanted, found)
    seconds = transfer_seconds(file.size for _, file in wanted)
    script = render(
        "models/fetch.sh.j2",
        job=job,
        content=base64_lines(json.dumps(job, indent=1)),
        wanted=wanted,
        secrets=[(place.name, base64_lines(place.token)) for place in found if place.token],
        run=FETCH_RUN,
        unit=FETCH_UNIT,
        user=FETCH_USER,
        program=LAUNCHER,
        watcher=watcher,
        says=f"fetching {_what(wanted)} meanwhile",
        wait=wait,
        seconds=seconds,
        limit=show_limit(seconds),
    )
    return RunScript(script, seconds=seconds + HOUR)


def fetch_job(
    plan: Plan, wanted: Sequence[tuple[ModelPlan, ModelFile]], places: Iterable[ModelSource]
) -> dict[str, object]:
    """What the fetcher is told. No secret is in it: `secret` names the file that holds one."""
    sources = [(place, place.name if place.token else _NO_SECRET) for place in places]
    return {
        "id": _job_id(plan),
        "incoming": _incoming(plan),
        "store": plan.store.path,
        "files": [
            {
                "name": f"{model.name}: {file.name}",
                "sha256": file.sha256,
                "size": file.size,
                "sources": [
                    {"name": place.name, "url": place.urls[file.sha256], "secret": secret}
                    for place, secret in sources
                    if file.sha256 in place.urls
                ],
            }
            for model, file in wanted
        ],
        "folders": [source.path for source in plan.store.sources if isinstance(source, FromFolder)],
        "connections": plan.store.connections,
        "bandwidth": [rule._asdict() for rule in plan.store.bandwidth],
    }


def _job_id(plan: Plan) -> str:
    """The same for what is declared, however much of it has come by now and whichever neighbours are awake."""
    files = [file.sha256 for model in plan.models if model.url for file in model.files]
    return digest(files, plan.store.model_dump(mode="json"))


def _incoming(plan: Plan) -> str:
    return f"{plan.store.path}/.incoming"


def _what(wanted: Sequence[tuple[ModelPlan, ModelFile]]) -> str:
    names = list(dict.fromkeys(model.name for model, _ in wanted))
    size = sum(file.size or 0 for _, file in wanted)
    files = "1 file" if len(wanted) == 1 else f"{len(wanted)} files"
    return f"{files} of {', '.join(names)} ({show_size(size)})"
