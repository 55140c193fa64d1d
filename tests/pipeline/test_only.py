"""A part of a rig alone: which names there are, what an instance needs, and what of the host stays as it is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Connect, Rig
from llamaherd.pipeline import plan as planning
from llamaherd.pipeline.diff import plan_digest
from llamaherd.pipeline.fleet_files import locked_facts
from llamaherd.pipeline.plan import choose_parts
from llamaherd.pipeline.preview import Preview, preview_changes
from llamaherd.plan import Only, Plan
from llamaherd.role.role import Role
from roles import ROLES
from tests.support.fake import run
from tests.support.ours import parse_state
from tests.support.rigs import GONE, KEY, Declared, changed, converged, cpu_rig, gpu_rig, hub_lock, planned

BOX, DUO = Rig.model_validate(cpu_rig()), Rig.model_validate(gpu_rig())
FLEET = {"box": BOX, "duo": DUO}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is at hand."""
    monkeypatch.setenv("CHAT_KEY", KEY)


def part(declared: Declared, *names: str, roles: Sequence[Role] = ROLES) -> Plan:
    """The plan of a rig, for this part alone."""
    rig = Rig.model_validate(declared)
    only = choose_parts(names, {rig.rig: rig}, roles)[rig.rig]
    return planning.plan(locked_facts(rig, hub_lock()), hub_lock(), roles, only=only)


def would(plan: Plan, world: list[str], roles: Sequence[Role] = ROLES) -> Preview:
    return preview_changes(plan, roles, parse_state(world), Connect(host="box"), {})


def names(found: Preview) -> list[str]:
    return [f"{change.action} {change.name}" for change in found.changes]


def test_an_instance_needs_what_a_search_of_it_may_try() -> None:
    tune = {"models": ["finer"], "quality": {}}
    finer = {"file": "/srv/finer.gguf", "sha256": "b7" * 32}
    plan = part(changed(cpu_rig(), {"models/finer": finer, "instances/chat/tune": tune}), "chat")
    assert plan.only
    assert plan.only.needs
    assert [each.name for each in plan.only.needs.models] == ["finer", "gemma"]


def test_names_are_instances_and_roles() -> None:
    found = choose_parts(["chat", "power", "worker", "power"], FLEET, ROLES)
    assert found == {
        "box": Only(instances=("chat",), roles=("power",)),
        "duo": Only(instances=("worker",), roles=("power",)),
    }


def test_a_rig_that_has_none_of_it_is_left_out() -> None:
    assert list(choose_parts(["chat"], FLEET, ROLES)) == ["box"]


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("drafte", "did you mean `drafter`? instances: "),
        ("engine", "did you mean `engines`? instances: "),
        ("models begin", "instances: "),
        ("role:chat", "instances: boxed, chat, drafter, reasoner, small, worker; roles: base, "),
    ],
)
def test_a_name_that_is_none(name: str, way_out: str) -> None:
    with pytest.raises(UserError) as raised:
        choose_parts([name], FLEET, ROLES)
    assert raised.value.message == f"--only {name}: there is no such instance or role"
    assert way_out in raised.value.help
    assert "roles: base, chat_page, container_runtime, " in raised.value.help


def test_a_name_of_both_is_asked_about() -> None:
    rig = Rig.model_validate(changed(cpu_rig(), {"instances/power": cpu_rig()["instances"]["chat"] | {"port": 9000}}))
    with pytest.raises(UserError, match="an instance and a role") as raised:
        choose_parts(["power"], {"box": rig}, ROLES)
    assert raised.value.help == "`--only instance:power` or `--only role:power`"
    assert choose_parts(["instance:power"], {"box": rig}, ROLES)["box"] == Only(instances=("power",))
    assert choose_parts(["role:power"], {"box": rig}, ROLES)["box"] == Only(roles=("power",))


def test_an_instance_brings_what_it_needs_and_no_more() -> None:
    plan = part(gpu_rig(), "reasoner")
    assert plan.only
    needs = plan.only.needs
    assert needs
    assert [each.name for each in needs.instances] == ["reasoner"]
    assert [each.engine for each in needs.builds] == ["main"]
    assert [each.name for each in needs.models] == ["35b"]
    assert (needs.images, needs.driver, needs.runtime, needs.power) == ((), None, None, None)
    assert needs.toolkit
    assert "mmdebstrap" not in needs.packages
    assert "cmake" in needs.packages
    # It is the same server, built for the same GPUs: others share both.
    whole = planned(gpu_rig())
    assert needs.instances[0] in whole.instances
    assert needs.builds[0] in whole.builds


def test_a_container_brings_its_image_and_docker() -> None:
    plan = part(gpu_rig(), "boxed")
    assert plan.only
    assert plan.only.needs
    assert [each.build for each in plan.only.needs.images] == [plan.only.needs.builds[0].id]
    assert plan.only.needs.runtime
    assert "mmdebstrap" in plan.only.needs.packages


def test_a_saved_part_is_another_where_the_part_is() -> None:
    chat = plan_digest(BOX, part(cpu_rig(), "chat"))
    assert plan_digest(BOX, part(changed(cpu_rig(), {"instances/drafter/context": 1024}), "chat")) == chat
    assert plan_digest(BOX, part(changed(cpu_rig(), {"instances/chat/context": 1024}), "chat")) != chat
    assert plan_digest(BOX, part(cpu_rig(), "chat", "serve")) != chat
    serve = plan_digest(BOX, part(cpu_rig(), "serve"))
    assert plan_digest(BOX, part(changed(cpu_rig(), {"instances/drafter/context": 1024}), "serve")) != serve
    assert plan_digest(BOX, part(changed(cpu_rig(), {"store/connections": 3}), "serve")) == serve


MOVED = {"instances/chat/context": 1024, "instances/drafter/context": 1024}


def test_what_belongs_to_others_is_left_and_counted() -> None:
    world = converged(planned(cpu_rig()), {"chat": KEY})
    found = would(part(changed(cpu_rig(), MOVED), "chat"), world)
    assert names(found) == ["restart llama-chat"]
    assert [change.name for change in found.left or ()] == ["llama-drafter"]


def test_a_server_that_is_not_declared_stays() -> None:
    world = converged(planned(cpu_rig()), {"chat": KEY})
    declared = changed(cpu_rig(), {"instances/drafter": GONE})
    found = would(part(declared, "chat"), world)
    alone = "restart llama-chat"  # which has all processors then
    assert (names(found), [change.action for change in found.left or ()]) == ([alone], ["remove"])
    assert names(would(part(declared, "serve"), world)) == ["remove llama-drafter", alone]
    ran = run(part(declared, "chat"), world)
    assert (ran.changed, ran.failed) == (["serve | chat (systemd)"], False)


def test_a_run_carries_out_that_alone() -> None:
    world = converged(planned(cpu_rig()), {"chat": KEY})
    ran = run(part(changed(cpu_rig(), MOVED), "chat"), world)
    assert ran.changed == ["serve | chat (systemd)"]
    assert not any("drafter" in operation for operation in ran.operations)


def test_what_stands_in_the_way_of_others_does_not_matter() -> None:
    world = converged(planned(cpu_rig()), {"chat": KEY})
    held = [line for line in world if "llama-drafter" not in line and not line.startswith("project")]
    held.append("holder\t8081\t77\tnginx\t")
    assert would(planned(cpu_rig()), held).problems
    found = would(part(cpu_rig(), "chat"), held)
    assert (found.problems, found.changes, found.left) == ((), (), None)


def test_a_role_makes_its_own_changes_alone() -> None:
    world = [line for line in converged(planned(cpu_rig()), {"chat": KEY}) if not line.startswith("package\tcmake")]
    declared = changed(cpu_rig(), MOVED)
    assert names(would(part(declared, "base"), world)) == ["install cmake"]
    assert names(would(part(declared, "serve"), world)) == ["restart llama-chat", "restart llama-drafter"]
    assert names(would(part(declared, "engines"), world)) == []
    assert names(would(part(declared, "chat", "base"), world)) == ["install cmake", "restart llama-chat"]


def test_servers_alone_are_not_started_without_their_engine() -> None:
    world = [line for line in converged(planned(cpu_rig()), {"chat": KEY}) if not line.startswith("build\t")]
    found = would(part(changed(cpu_rig(), MOVED), "serve"), world)
    assert found.changes == ()
    assert "chat is left as it is: its engine `main` is not built\n  help: `herd up --only chat`" in found.problems[0]


def test_the_host_itself_may_refuse_a_role() -> None:
    world = [line.replace("debian-13", "fedora-40") for line in converged(planned(cpu_rig()), {"chat": KEY})]
    (problem,) = would(part(cpu_rig(), "engines"), world).problems
    assert "fedora-40" in problem


def test_a_port_of_a_server_that_is_to_stay_is_not_taken() -> None:
    world = converged(planned(cpu_rig()), {"chat": KEY})
    declared = changed(cpu_rig(), {"instances/talk": cpu_rig()["instances"]["drafter"], "instances/drafter": GONE})
    found = would(part(declared, "talk"), world)
    assert "talk is left as it is: llama-drafter has its port 8081, and is to stay" in found.problems[0]


def test_what_a_role_did_once_is_taken_away_by_it_alone() -> None:
    declared = gpu_rig()
    declared["gpus"]["cards"]["new"]["power_limit"] = "400W"
    world = converged(planned(declared), {})
    found = would(part(gpu_rig(), "power"), world)
    assert [change.action for change in found.changes] == ["remove"]
    assert would(part(gpu_rig(), "worker"), world).changes == ()
