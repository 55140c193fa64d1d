"""A file that is not written must be the one that was inspected: another run may have restored another one since."""

from __future__ import annotations

import hashlib

import pytest

from llamaherd.onhost.servers import UnitState
from llamaherd.onhost.system import FailedError
from roles.serve.changes import server_changes
from roles.serve.onhost.switch import switch as run_switch
from tests.support.ours import parse_state
from tests.support.played_host import File
from tests.support.recording import recording, switch_of
from tests.support.rigs import KEY, converged, cpu_rig, planned
from tests.support.states import updated
from tests.support.switches import serving_host

PLAN = planned(cpu_rig())
CHAT = next(each for each in PLAN.instances if each.name == "chat")


@pytest.mark.parametrize("path", [CHAT.file.path, str(CHAT.key_file)])
@pytest.mark.parametrize("text", ["as inspected", "another server's", None])
def test_one_that_was_stopped_is_started_by_what_was_inspected_alone(path: str, text: str | None) -> None:
    seen = parse_state(converged(PLAN, {"chat": KEY}))
    seen = updated(seen, units={CHAT.service: UnitState("inactive", "enabled", False, "", CHAT.spec)})
    (change,) = server_changes(CHAT, seen, KEY)
    given = switch_of(change)
    texts = {CHAT.file.path: CHAT.file.text, str(CHAT.key_file): f"{KEY}\n"}
    assert given.unchanged == {each: hashlib.sha256(texts[each].encode()).hexdigest() for each in texts}
    host = recording(serving_host(PLAN, "chat"))
    host.units[CHAT.service].state = "inactive"
    if text is None:
        del host.files[path]
    elif text != "as inspected":
        host.files[path] = File(text)
    if text == "as inspected":
        run_switch(given, host, host)
        assert host.running(CHAT.service) == CHAT.spec
        return
    with pytest.raises(FailedError, match="another run has changed llama-chat since it was inspected"):
        run_switch(given, host, host)
    assert not host.has_done("systemctl", "start")
    assert not host.has_done("systemctl", "restart")
    assert not host.has_done("write")
