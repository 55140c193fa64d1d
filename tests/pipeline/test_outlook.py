"""What a run would do to a host: as a run itself does, task by task, and nothing where that does nothing."""

from __future__ import annotations

import re

import pytest

from llamaherd.diagnostics.findings import InventoryError
from llamaherd.host.program import packed_program
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.inventory.api_keys import UnreadableKeyError
from llamaherd.inventory.schema import Connect, Rig
from llamaherd.pipeline import preview
from llamaherd.pipeline.preview import Preview, preview_changes
from llamaherd.plan import Plan
from llamaherd.role.role import Role, Task
from roles import ROLES
from tests.support.fake import run
from tests.support.ours import parse_state, queried
from tests.support.rigs import KEY, changed, converged, cpu_rig, planned

HERE = Connect(host="box")


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The plan of a rig whose key is at hand."""
    monkeypatch.setenv("CHAT_KEY", KEY)
    return planned(cpu_rig())


def asked(planned: dict[str, tuple[Rig, Plan]]) -> dict[str, Preview]:
    """What a run would do to rigs, each of which is asked."""
    return preview.Hosts({name: rig for name, (rig, _) in planned.items()}, packed_program()).outlooks(planned, ROLES)


def would(plan: Plan, world: list[str], *more: Role) -> Preview:
    """What a run would do to a host that answers so."""
    roles = (*ROLES, *more)
    return preview_changes(plan, roles, parse_state(world, roles), HERE, {})


def test_there_is_nothing_to_do_where_a_run_does_nothing(plan: Plan) -> None:
    world = converged(plan, {"chat": KEY})
    assert run(plan, world).changed == []
    assert would(plan, world) == Preview()
    assert would(plan, world).as_planned


@pytest.mark.parametrize("kind", ["package", "user", "folder", "file", "build", "stored", "fetcher"])
def test_what_is_missing_is_what_a_run_changes(plan: Plan, kind: str) -> None:
    world = converged(plan, {"chat": KEY})
    first = next(line for line in world if line.startswith(f"{kind}\t"))
    without = [line for line in world if line != first]
    if kind == "file":
        without = [line for line in without if not (line.startswith("sum\t") and line.endswith(first.split("\t")[1]))]
    ran = run(plan, without)
    assert ran.changed or ran.failed
    assert not would(plan, without).as_planned


def test_reasons_are_kept(plan: Plan) -> None:
    world = [line for line in converged(plan, {"chat": KEY}) if not line.startswith("package\tcmake")]
    (change,) = would(plan, world).changes
    assert str(change) == "install packages cmake: not installed"


def test_what_takes_two_steps_is_said_once(plan: Plan) -> None:
    world = [line for line in converged(plan, {"chat": KEY}) if line.split("\t")[0] not in {"build", "source", "image"}]
    said = [str(change) for change in would(plan, world).changes]
    assert any(each.startswith("send source") for each in said)
    assert len(said) == len(set(said))


def test_what_is_changed_together_is_said_of_each(plan: Plan) -> None:
    """One of two that exchange their ports has the change of both."""
    was = {"\t8080\t": "\t8081\t", "\t8081\t": "\t8080\t"} | {each.spec: "before" for each in plan.instances}

    def before(line: str) -> str:
        serves = line.startswith(("unit\t", "container\t"))
        return re.sub("|".join(was), lambda found: was[found[0]], line) if serves else line

    world = [before(line) for line in converged(plan, {"chat": KEY})]
    said = [str(change) for change in would(plan, world).changes]
    assert [each.split(":")[0] for each in said] == ["restart server llama-chat", "restart server llama-drafter"]
    assert said[0].endswith("; it changes together with llama-drafter")
    assert said[1].endswith("; it changes together with llama-chat")


def test_what_stands_in_the_way_is_said(plan: Plan) -> None:
    world = [line.replace("debian-13", "fedora-40") for line in converged(plan, {"chat": KEY})]
    assert run(plan, world).failed
    (problem,) = would(plan, world).problems
    assert "this host runs fedora-40, but the inventory declares debian-13" in problem
    assert "install one of debian-12, debian-13, ubuntu-22.04, ubuntu-24.04, ubuntu-26.04" in problem
    assert not would(plan, world).as_planned


def test_another_system_that_llamaherd_provisions_is_to_be_declared(plan: Plan) -> None:
    world = [line.replace("debian-13", "debian-12") for line in converged(plan, {"chat": KEY})]
    (problem,) = would(plan, world).problems
    assert problem.endswith("correct `host.os` in the inventory")


def test_notes_are_told_where_there_is_nothing_else(plan: Plan) -> None:
    noting = Role("noting", "", tasks=lambda _: [Task("it", lambda *_: (), notes=lambda *_: ("by the way",))])
    assert would(plan, converged(plan, {"chat": KEY}), noting) == Preview(notes=("by the way",))


@pytest.mark.parametrize(
    "error", [UnreadableKeyError("no key"), InventoryError([])], ids=lambda error: type(error).__name__
)
def test_what_roles_raise_is_said(plan: Plan, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def raising(*_: object, **__: object) -> Preview:
        raise error

    monkeypatch.setattr(preview, "query_host", lambda *_: queried(converged(plan, {"chat": KEY})))
    monkeypatch.setattr(preview, "preview_changes", raising)
    rig = Rig.model_validate(changed(cpu_rig(), {}))
    assert asked({"box": (rig, plan)}) == {"box": Preview(problems=(str(error),))}


def test_each_rig_is_asked_and_one_that_fails_leaves_the_others_be(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(remote: Remote, *_: object) -> object:
        if remote.connect.host == "sick":
            raise RemoteError("it does not answer", "see whether it is up")
        assert remote.note_key
        return queried(converged(plan, {"chat": KEY}))

    monkeypatch.setattr(preview, "query_host", ask)
    rigs = {
        name: (Rig.model_validate(changed(cpu_rig(), {"connect": {"host": name}})), plan)
        for name in ("well", "sick", "other")
    }
    found = asked(rigs)
    assert list(found) == ["well", "sick", "other"]
    assert found.pop("sick") == Preview(unreached="it does not answer\n  help: see whether it is up")
    assert found == {"well": Preview(), "other": Preview()}


def test_a_key_that_cannot_be_read_is_said(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "query_host", lambda *_: queried(converged(plan, {"chat": KEY})))
    monkeypatch.delenv("CHAT_KEY")
    rig = Rig.model_validate(changed(cpu_rig(), {}))
    (problem,) = asked({"box": (rig, plan)})["box"].problems
    assert "CHAT_KEY" in problem
