"""Keys that no server needs any more: which go, and never before what reads them."""

from __future__ import annotations

import pytest

from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect
from llamaherd.layout import KEYS
from llamaherd.onhost.servers import Refused, ServingState
from llamaherd.plan import Only, Plan
from llamaherd.role.role import Run
from roles.serve import tasks
from roles.serve.onhost.model import KeyRemovalInput
from roles.serve.onhost.removal import remove_key
from roles.serve.state import ServeState
from roles.serve.transaction import attempt_identity
from tests.support.ours import parse_state
from tests.support.played_host import File, PlayedHost
from tests.support.recording import input_of, recording
from tests.support.rigs import GONE, KEY, changed, converged, cpu_rig, planned
from tests.support.states import edited, updated

KEYED = planned(cpu_rig())
OPEN = planned(cpu_rig(), {"instances/chat/api_key": GONE})
RUN = Run(Connect(host="box"))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is at hand."""
    monkeypatch.setenv("CHAT_KEY", KEY)


def there(plan: Plan, *names: str) -> HostState:
    """A host that is as planned, and has further keys."""
    state = parse_state(converged(plan, {"chat": KEY}))
    return edited(state, keys={*ServeState.of(state).keys, *names})


def done(plan: Plan, state: HostState) -> list[str]:
    """What a run would do, a task after the other."""
    return [f"{each.action} {each.kind} {each.name}" for task in tasks(plan) for each in task.changes(state, RUN)]


def test_a_key_that_is_read_stays() -> None:
    assert done(KEYED, there(KEYED)) == []


def test_the_key_of_a_server_that_needs_none_goes_after_its_switch() -> None:
    assert done(OPEN, there(KEYED)) == ["restart server llama-chat", "remove key chat"]
    (task,) = (task for task in tasks(OPEN) if task.name.startswith("chat ("))
    assert not task.continues, "what fails keeps the key"


def test_one_that_was_left_goes_and_nothing_is_started_anew() -> None:
    (change,) = (each for task in tasks(OPEN) for each in task.changes(there(OPEN, "chat"), RUN))
    assert str(change) == "remove key chat: its server needs no key any more"
    host = recording(PlayedHost({}, files={f"{KEYS}/{name}": File("a key") for name in ("chat", "other")}))
    assert input_of(change, KeyRemovalInput) == KeyRemovalInput("chat")
    remove_key(input_of(change, KeyRemovalInput), host)
    assert host.done == [["remove", "/etc/llamaherd/keys/chat"]]
    assert list(host.files) == ["/etc/llamaherd/keys/other"]


def test_one_whose_switch_was_taken_back_stays() -> None:
    state = there(KEYED)
    instance = next(each for each in OPEN.instances if each.name == "chat")
    state = updated(
        state,
        serving={"llama-chat": ServingState(refused=Refused(attempt_identity(instance), "now", "it does not load"))},
    )
    (task,) = (task for task in tasks(OPEN) if task.name.startswith("chat ("))
    with pytest.raises(Exception, match="it does not load"):
        task.changes(state, RUN)


def test_one_of_no_server_goes_by_itself_and_not_in_a_run_for_others() -> None:
    state = there(KEYED, "old")
    assert done(KEYED, state) == ["remove key old"]
    assert done(KEYED.model_copy(update={"only": Only(instances=("chat",))}), state) == []


def test_one_of_a_server_that_is_not_declared_goes_with_it() -> None:
    plan = planned(changed(cpu_rig(), {"instances/chat": GONE}))
    assert [each for each in done(plan, there(KEYED)) if each.startswith("remove")] == ["remove server llama-chat"]
