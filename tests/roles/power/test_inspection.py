"""What is inspected of the unit that holds GPUs, and of the notes about each GPU."""

from __future__ import annotations

import pytest

from llamaherd.layout import POWER_RUN, POWER_UNIT, UNITS
from llamaherd.onhost.document import decode, dump, parse_document
from llamaherd.onhost.services import ServiceState
from llamaherd.onhost.system import TIMED_OUT, Ended, UnknownStateError
from llamaherd.onhost.verbs import find_verb
from roles.power import GpuNote, PowerState, state_parts
from roles.power.onhost import Found, InspectInput, inspect
from tests.support.played_host import File
from tests.support.recording import InspectedHost

SHOWN = f"Id={POWER_UNIT}\nActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=yes\n"


def host(**notes: str) -> InspectedHost:
    """Return a host with the unit, and with notes about GPUs."""
    played = InspectedHost({}, ends={"systemctl show": Ended(0, SHOWN)})
    played.files = {f"{POWER_RUN}/{name.replace('_', '-')}": File(text) for name, text in notes.items()}
    played.files[f"{UNITS}/{POWER_UNIT}"] = File("[Service]\n")
    return played


def test_the_unit_and_what_each_gpu_is_held_to() -> None:
    played = host(GPU_1="280 210,2400 on 70\nmore\n", GPU_2="", GPU_3="$(id) * ?", table="x")
    played.folders.add(f"{POWER_RUN}/GPU-4")
    found = decode(Found, parse_document(dump(inspect(InspectInput(notes=True), played)).encode()))
    notes = {"GPU-1": ("280", "210,2400", "on", "70"), "GPU-2": (), "GPU-3": ("$(id)", "*", "?")}
    assert found == Found(ServiceState("active", "enabled", True, ""), notes)
    assert len(played.done) == 1
    assert state_parts(found) == (PowerState(found.unit, {uuid: GpuNote(*words) for uuid, words in notes.items()}),)


def test_a_rig_that_declares_nothing_has_its_unit_inspected_alone() -> None:
    found = inspect(InspectInput(notes=False), host(GPU_1="280"))
    assert (found.unit is not None, found.held) == (True, {})


def test_a_host_without_a_unit() -> None:
    played = InspectedHost({})
    assert inspect(InspectInput(notes=True), played) == Found()
    assert played.done == []
    assert find_verb("power.inspect").input is InspectInput


def test_what_systemd_does_not_report_is_empty_and_where_it_is_silent_unknown() -> None:
    played = host()
    played.ends = {"systemctl show": Ended(1)}
    assert inspect(InspectInput(notes=False), played).unit == ServiceState("", "", False, "")
    played.folders.add("/run/systemd/system")
    played.ends = {"systemctl show": Ended(TIMED_OUT)}
    with pytest.raises(UnknownStateError):
        inspect(InspectInput(notes=False), played)


def test_a_note_of_too_many_words_is_none() -> None:
    with pytest.raises(ValueError, match="more than 4 words"):
        state_parts(Found(held={"GPU-1": ("a",) * 5}))
