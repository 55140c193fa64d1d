"""Verbs that begin a fetch, join it and wait for it, on a played host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from llamaherd.host.state import HostState
from llamaherd.onhost.document import Secret, decode, dump, parse_document
from llamaherd.onhost.store import manifest_line
from llamaherd.onhost.system import Ended, FailedError, System
from llamaherd.onhost.verbs import find_verb
from llamaherd.plan import Plan
from llamaherd.role.changes import DeferredVerb, Report, RunVerb
from roles.models import ModelSource, begin_changes, model_changes
from roles.models.onhost import ID, JOB, RUN, WATCHERS, FetchInput, JoinInput, RequestedFile, begin, join, wait
from tests.support.models_host import ModelsHost, words_of
from tests.support.played_host import File
from tests.support.rigs import gpu_rig, planned
from tests.support.service_host import killed_everywhere
from tests.support.states import host_with

RUN_A, RUN_B = "a" * 16, "b" * 16
STORE = "/srv/models"
HOSTILE = "a $(id) `id` \"b\" 'c' ; d"
ONE, TWO = RequestedFile(f"{STORE}/m/r", "a.gguf", "1" * 64), RequestedFile(f"{STORE}/m/r", "UD/b.gguf", "2" * 64)


def given(watcher: str = RUN_A, **more: Any) -> FetchInput:
    """Return an input."""
    job = {"id": "ours", "files": []}
    found = FetchInput("ours", watcher, "2 files of m (1 GB)", STORE, (ONE, TWO), job, {"hub": Secret("hf_canary")}, 90)
    return replace(found, **more)


def arrive(host: ModelsHost, *files: RequestedFile) -> None:
    """Let files arrive."""
    for each in files or (ONE, TWO):
        host.files[f"{STORE}/.incoming/{each.sha256}"] = File("x", owner="llama-fetch")


def fails(host: ModelsHost) -> None:
    """Fail as the fetcher does."""
    host.files[f"{RUN}/failed"] = File("the hub gave the wrong bytes\n  help: wait\n")


def made(**more: Any) -> ModelsHost:
    """Return a host that nothing has arrived at."""
    return ModelsHost({}, **more)


def refusal(of: FetchInput, host: ModelsHost) -> FailedError:
    """Return why a wait fails."""
    with pytest.raises(FailedError) as raised:
        wait(of, host)
    return raised.value


def test_a_fetch_is_begun_in_a_unit_that_may_do_little() -> None:
    host = made(outcome=ModelsHost.runs_unit)
    begin(given(), host)
    (words,) = words_of(host, "systemd-run")
    assert words[-4:] == ["/opt/llamaherd/libexec/fetcher/fetch", "fetch", JOB, RUN]
    properties = [value for option, value in pairwise(words) if option == "-p"]
    assert {"User=llama-fetch", "TimeoutStartSec=90", "RuntimeMaxSec=90", "CapabilityBoundingSet="} <= {*properties}
    assert f'ReadWritePaths="{STORE}/.incoming" {RUN}' in properties
    assert json.loads(host.files[JOB].text) == {"id": "ours", "files": []}
    assert (host.read(ID), host.read(WATCHERS)) == ("ours\n", f"{RUN_A}\n")
    assert host.log == ["fetching 2 files of m (1 GB) meanwhile"]
    assert ["install", "-d", "-m", "0700", "-o", "llama-fetch", "-g", "llama-fetch", f"{STORE}/.incoming"] in host.done


def test_a_token_is_a_file_of_the_fetching_user_alone() -> None:
    host = made(outcome=ModelsHost.runs_unit)
    begin(given(), host)
    token = host.files[f"{RUN}/secrets/hub"]
    assert (token.text, token.mode, token.owner) == ("hf_canary", 0o600, "llama-fetch")
    assert "hf_canary" not in repr(host.done) + repr(host.log) + repr(given())


def test_what_is_here_is_not_fetched() -> None:
    """What has arrived, and what a manifest lists as it is."""
    host = made()
    arrive(host, ONE)
    host.files[f"{TWO.folder}/{TWO.name}"] = File("two")
    line = manifest_line(host, TWO.folder, TWO.name, TWO.sha256)
    host.files[f"{TWO.folder}/.manifest"] = File(f"{line}\n")
    begin(given(), host)
    wait(given(), host)
    assert host.begun == 0


def test_a_fetch_that_has_failed_by_the_time_it_is_awaited_is_the_result() -> None:
    host = made(outcome=fails)
    begin(given(), host)
    why = refusal(given(), host)
    assert (*why.log, why.message) == ("the hub gave the wrong bytes", "  help: wait")
    assert host.begun == 1


def test_the_next_run_tries_it_again() -> None:
    host = made(outcome=fails)
    begin(given(RUN_A), host)
    begin(given(RUN_B), host)
    refusal(given(RUN_B), host)
    assert host.begun == 2


def test_a_fetch_that_was_joined_is_the_result_too() -> None:
    """A second run finds it running: what it ends with is for both."""
    host = made(outcome=ModelsHost.runs_unit)
    begin(given(RUN_A), host)
    begin(given(RUN_B), host)
    begin(given(RUN_B), host)
    assert host.read(WATCHERS) == f"{RUN_A}\n{RUN_B}\n"
    host.ends_unit()
    fails(host)
    for watcher in (RUN_A, RUN_B):
        refusal(given(watcher), host)
    assert host.begun == 1


def test_a_run_joins_what_it_has_inspected() -> None:
    host = made(files={ID: File("ours\n"), WATCHERS: File(f"{RUN_A}\n")})
    join(JoinInput("ours", RUN_B), host)
    join(JoinInput("another", "c" * 16), host)
    assert host.read(WATCHERS) == f"{RUN_A}\n{RUN_B}\n"


def test_a_fetch_that_is_stopped_stays_stopped() -> None:
    host = made(outcome=ModelsHost.runs_unit)
    begin(given(), host)
    host.ends_unit()
    host.files[f"{RUN}/warnings"] = File("it arrived wrong from six\n")
    why = refusal(given(), host)
    assert "`systemctl stop`" in why.message
    assert "journalctl -u llamaherd-fetch.service" in why.fix
    assert host.log[-1] == "it arrived wrong from six"
    assert host.begun == 1


def test_no_link_of_the_fetching_user_is_followed() -> None:
    host = made(outcome=ModelsHost.runs_unit, files={"/etc/shadow": File("root:hash\n")})
    begin(given(), host)
    host.ends_unit()
    host.links[f"{RUN}/failed"] = host.links[f"{RUN}/warnings"] = "/etc/shadow"
    refusal(given(), host)
    assert "root:hash" not in "\n".join(host.log)


def test_what_another_run_fetched_meanwhile_is_no_result() -> None:
    """It ended ours and began its own, which is for something else: ours is begun once that is over."""
    host = made(outcome=ModelsHost.runs_unit)
    begin(given(), host)
    begin(given(RUN_B, id="another"), host)
    assert "it ends here, and what it has is kept" in host.log[-2]
    assert host.begun == 2

    def end(host: ModelsHost) -> None:
        host.ends_unit()
        host.outcome = fails

    host.each_second = end
    refusal(given(), host)
    assert "another run fetches what it needs: waiting for it" in host.log
    assert host.begun == 3


def test_without_a_fetch_that_was_begun_the_run_that_waits_begins() -> None:
    host = made(outcome=arrive)
    wait(given(), host)
    assert host.begun == 1


def test_what_is_let_in_while_it_waits_for_the_store_is_no_failure() -> None:
    class Lets(ModelsHost):
        @contextmanager
        def lock(self, name: str, seconds: float, purpose: str) -> Iterator[bool]:
            if name == "store":
                arrive(self)
            with super().lock(name, seconds, purpose) as waited:
                yield waited

    host = Lets({}, outcome=ModelsHost.runs_unit)
    begin(given(), host)
    host.ends_unit()
    wait(given(), host)
    assert host.begun == 1


def test_a_run_that_is_gone_begins_no_other_fetch() -> None:
    """Its fetch gave way to that of another run: once that is over, nobody waits for the first one."""

    class Gone(ModelsHost):
        def is_heard(self) -> bool:
            return self.begun < 2

    host = Gone({}, outcome=ModelsHost.runs_unit)
    begin(given(RUN_A), host)
    begin(given(RUN_B, id="another"), host)
    assert "the connection ended" in refusal(given(RUN_A), host).message
    assert host.begun == 2


def test_progress_is_reported_often_at_first() -> None:
    host = made(outcome=ModelsHost.runs_unit)
    begin(given(seconds=1000), host)
    began = host.time

    def second(host: ModelsHost) -> None:
        seconds = round(host.time - began)
        host.files[f"{RUN}/progress"] = File(f"{seconds} s\n")
        if seconds > 400:
            host.ends_unit()
            arrive(host)

    host.each_second = second
    wait(given(seconds=1000), host)
    times = [int(line.split()[0]) for line in host.log[1:]]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) > 30
    assert gaps[0] <= 3
    assert 29 <= gaps[-1] <= 32
    assert gaps == sorted(gaps) or max(gaps) <= 32


def test_a_fetch_that_never_ends() -> None:
    host = made(outcome=ModelsHost.runs_unit)
    begin(given(), host)
    why = refusal(given(), host)
    assert why.message == "the fetch has not ended within 0 h; what has come is kept"
    assert "end it with `systemctl stop" in why.fix
    assert 90 <= host.time < 120


@pytest.mark.parametrize("verb", [begin, wait])
def test_where_systemd_does_not_respond_nothing_is_changed(verb: Callable[[FetchInput, System], None]) -> None:
    host = made(silent=True)
    with pytest.raises(FailedError, match="systemd does not respond"):
        verb(given(), host)
    assert host.begun == 0
    assert host.files == {}


@pytest.mark.parametrize("program", ["install", "chown", "systemd-run"])
def test_what_cannot_be_begun_is_a_failure_with_the_programs_words(program: str) -> None:
    host = made(ends={program: Ended(1, "", f"{program}: No space left on device")})
    with pytest.raises(FailedError) as raised:
        begin(given(), host)
    assert raised.value.log[-1] == f"{program}: No space left on device"
    # Without one of ours, the sentence that explains a full disk is shown.
    assert not raised.value.fix


def test_a_full_disk() -> None:
    host = made(full=RUN)
    with pytest.raises(FailedError, match="No space left on device"):
        begin(given(), host)
    assert host.begun == 0


def test_killed_anywhere_the_next_run_gets_there() -> None:
    def run(host: ModelsHost) -> None:
        host.outcome = arrive
        begin(given(), host)
        wait(given(), host)

    for host in killed_everywhere(made, run):
        assert host.begun in (1, 2)
        assert host.held == set()
        assert all(f"{STORE}/.incoming/{each.sha256}" in host.files for each in (ONE, TWO))


def test_values_with_quotes_are_words_of_their_own() -> None:
    folder = f"/srv/{HOSTILE}"
    file = RequestedFile(f"{folder}/m", HOSTILE, "1" * 64)
    host = made(outcome=ModelsHost.runs_unit)
    begin(given(store=folder, wanted=(file,), what=HOSTILE, secrets={}), host)
    (words,) = words_of(host, "systemd-run")
    escaped = HOSTILE.replace('"', '\\"')
    assert f'ReadWritePaths="/srv/{escaped}/.incoming" {RUN}' in words
    assert host.entry(folder)


def nowhere(_plan: Plan, _wanted: Sequence[str], _say: Report) -> list[ModelSource]:
    return []


def test_changes_are_documents_that_a_host_reads() -> None:
    plan = planned(gpu_rig())
    (first,) = begin_changes(plan, HostState(), nowhere, RUN_A)
    (second,) = (
        each for each in model_changes(plan, HostState(), nowhere, RUN_A) if isinstance(each.how, DeferredVerb)
    )
    (joined,) = begin_changes(plan, host_with(fetch=id_of(plan)), nowhere, RUN_B)
    for change in (first, second, joined):
        how = change.how.make(print) if isinstance(change.how, DeferredVerb) else change.how
        assert isinstance(how, RunVerb)
        verb = find_verb(how.verb)
        assert decode(verb.input, parse_document(dump(how.given).encode())) == how.given


def id_of(plan: Plan) -> str:
    (change,) = begin_changes(plan, HostState(), nowhere, RUN_A)
    assert isinstance(change.how, DeferredVerb)
    made = change.how.make(print).given
    assert isinstance(made, FetchInput)
    return made.id
