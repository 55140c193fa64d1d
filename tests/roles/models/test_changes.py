"""What is sent and fetched: what is there is not fetched again, and no secret is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from llamaherd.host.program import request
from llamaherd.host.state import HostState
from llamaherd.onhost.document import Secret
from llamaherd.plan import Plan
from llamaherd.role.changes import DeferredVerb, Report, SendFile
from roles.engines import build_changes
from roles.engines.onhost import BuildInput, SourceFileInput
from roles.models import ModelSource, begin_changes, fetch_job, model_changes, to_fetch
from roles.models.onhost import FetchInput, JoinInput
from roles.models.onhost.store import AdmitInput, AdmittedFile, AdmittedModel
from tests.support.drifts import (
    CPU,
    GPU,
    WATCHER,
    having,
    nowhere,
    seen_of,
)
from tests.support.ours import sends
from tests.support.recording import input_of
from tests.support.rigs import SHA
from tests.support.states import edited, host_with


def test_a_source_or_model_from_the_controller_is_sent_first() -> None:
    build, admit, run = build_changes(CPU.builds[0], HostState())
    assert isinstance(build.how, SendFile)
    assert build.how.remote == f"/var/lib/llamaherd/incoming/{SHA}"
    assert input_of(admit, SourceFileInput) == SourceFileInput(SHA)
    assert input_of(run, BuildInput).engine.id == CPU.builds[0].id
    assert [send.sha256 for send in sends(CPU, HostState())] == [SHA, "a5" * 32, "04" * 32]
    assert [send.sha256 for send in sends(GPU, HostState())] == ["a5" * 32]


def test_what_has_arrived_is_let_in_and_not_fetched() -> None:
    model = next(model for model in GPU.models if model.name == "35b")

    arrived = {file.sha256: int(file.size or 0) for file in model.files}
    seen = seen_of(GPU, having(verified={model.folder: {}}, incoming=arrived))
    assert begin_changes(GPU, seen, nowhere, WATCHER) == []
    (admit,) = model_changes(GPU, seen, nowhere, WATCHER)
    (let_in,) = input_of(admit, AdmitInput).models
    assert let_in == AdmittedModel(model.folder, tuple(AdmittedFile(each.name, each.sha256) for each in model.files))


def test_a_model_that_one_change_brings_is_one_line_of_a_preview() -> None:
    """Previews show changes with the same text once."""
    begin = begin_changes(GPU, HostState(), nowhere, WATCHER)
    changes = [str(each) for each in (*begin, *model_changes(local_alone(GPU), HostState(), nowhere, WATCHER))]
    fetched, sent, admitted = changes
    assert sent == admitted
    assert fetched.startswith("fetch model 35b: ")
    assert "GB" in fetched


def local_alone(plan: Plan) -> Plan:
    """Return a plan with the first model of the controller's own files alone."""
    return plan.model_copy(update={"models": tuple(each for each in plan.models if each.local)[:1]})


def test_a_fetch_that_runs_is_not_begun_again() -> None:
    seen = HostState()
    job = str(fetch_job(GPU, to_fetch(GPU, seen), [])["id"])
    seen = edited(seen, fetch=job)
    (join,) = begin_changes(GPU, seen, nowhere, WATCHER)
    assert input_of(join, JoinInput) == JoinInput(job, WATCHER)
    seen = edited(seen, fetch="another")
    (begin,) = begin_changes(GPU, seen, nowhere, WATCHER)
    assert isinstance(begin.how, DeferredVerb)
    assert begin.how.make(print).verb == "models.begin"


def test_a_fetch_stays_the_same_one_while_its_files_arrive() -> None:
    """Else the run that waits, or the next one, would take it for another's and end it."""
    begun = fetch_job(GPU, to_fetch(GPU, HostState()), [])
    (first, _) = (file for _, file in to_fetch(GPU, HostState()))
    seen = host_with(incoming={first.sha256: int(first.size or 0)}, fetch=str(begun["id"]))
    assert len(to_fetch(GPU, seen)) == 1
    assert fetch_job(GPU, to_fetch(GPU, seen), [])["id"] == begun["id"]
    (join,) = begin_changes(GPU, seen, nowhere, WATCHER)
    assert input_of(join, JoinInput).id == begun["id"]


def test_a_job_names_places_in_order_and_holds_no_secret() -> None:
    first, second = (file.sha256 for _, file in to_fetch(GPU, HostState()))
    places = [
        ModelSource("six", {first: f"http://six.lan:8970/{first}"}, "canary"),
        ModelSource("hub", {first: "https://hub.lan/1", second: "https://hub.lan/2"}),
    ]
    job = fetch_job(GPU, to_fetch(GPU, HostState()), places)
    files = cast("list[dict[str, Any]]", job["files"])
    assert [[source["name"] for source in file["sources"]] for file in files] == [["six", "hub"], ["hub"]]
    assert [source["secret"] for source in files[0]["sources"]] == ["six", "_"]
    assert "canary" not in json.dumps(job) + repr(places)


def test_a_token_is_on_stdin_alone() -> None:
    def hub(_plan: Plan, wanted: Sequence[str], _say: Report) -> list[ModelSource]:
        return [ModelSource("hub", {sha256: f"https://hub.lan/{sha256}" for sha256 in wanted}, "hf_canary")]

    (begin,) = begin_changes(GPU, HostState(), hub, WATCHER)
    assert isinstance(begin.how, DeferredVerb)
    step = begin.how.make(print)
    assert isinstance(step.given, FetchInput)
    assert step.given.secrets == {"hub": Secret("hf_canary")}
    assert "hf_canary" not in json.dumps(step.given.job)
    assert request(step.verb, step.given).count(b"hf_canary") == 1
    assert "hf_canary" not in step.says + repr(step) + repr(step.given) + begin.says + repr(begin)
