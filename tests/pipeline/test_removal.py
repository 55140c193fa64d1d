"""What `herd down` changes on hosts by the roles: every service goes, and nothing is installed or written."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from llamaherd.inventory.schema import Connect, Rig
from llamaherd.pipeline.history import Past, merged_plan
from llamaherd.pipeline.own_roles import all_roles
from llamaherd.pipeline.preview import Preview, preview_changes
from llamaherd.pipeline.removal import empty_plan, removing_roles, unremovable_roles
from llamaherd.plan import Plan
from llamaherd.role.changes import Change, RunVerb
from llamaherd.role.preflight import Refusal
from roles import ROLES
from tests.render.plans import CHATTING, HELD, SHARING, WATCHING
from tests.support.fake import run
from tests.support.ours import parse_state
from tests.support.own_role import write_example
from tests.support.rigs import KEY, changed, converged, cpu_rig, planned

CPU = Rig.model_validate(cpu_rig())
EMPTY = empty_plan(CPU, ROLES)
KEYS: defaultdict[str, str] = defaultdict(lambda: KEY)
PLANS = {
    "servers": planned(cpu_rig()),
    "gpus": HELD,
    "gateways": SHARING["box"],
    "chat page": CHATTING,
    "monitoring": WATCHING["box"],
}
REMOVALS = {
    "servers": {"server"},
    "gpus": {"server", "power"},
    "gateways": {"server", "gateway", "virtual address"},
    "chat page": {"server", "chat page", "gateway"},
    "monitoring": {"server", "monitoring", "gateway"},
}


def preview(made: Plan, lines: list[str]) -> Preview:
    roles = removing_roles(ROLES)
    return preview_changes(replace_os(EMPTY, made), roles, parse_state(lines, roles), Connect(host="box"), {})


def replace_os(empty: Plan, made: Plan) -> Plan:
    return empty.model_copy(update={"os": made.os, "store": made.store})


def kinds(changes: tuple[Change, ...]) -> set[str]:
    return {each.kind for each in changes}


@pytest.mark.parametrize("name", PLANS)
def test_all_services_of_a_host_go_and_nothing_else_changes(name: str) -> None:
    made = PLANS[name]
    found = preview(made, converged(made, KEYS))
    assert found.problems == ()
    assert {each.action for each in found.changes} == {"remove"}
    assert kinds(found.changes) >= REMOVALS[name] - {"gateway" if not made.gateway else ""}
    servers = {each.name for each in found.changes if each.kind == "server"}
    assert servers == {instance.service for instance in made.instances}
    assert all(isinstance(each.how, RunVerb) and ".remove" in each.how.verb for each in found.changes)


def test_a_host_without_anything_has_nothing_to_remove() -> None:
    bare = [line for line in converged(replace_os(EMPTY, PLANS["servers"]), {}) if "\t/" not in line]
    assert preview(PLANS["servers"], bare).as_planned


def test_a_host_of_another_system_is_not_refused() -> None:
    """It is not to be set up: what runs there can be removed whatever it is."""
    made = PLANS["servers"]
    lines = ["os\tubuntu-20.04" if line.startswith("os\t") else line for line in converged(made, KEYS)]
    found = preview(made, lines)
    assert (found.problems, bool(found.changes)) == ((), True)


def test_a_run_carries_out_the_removals_alone() -> None:
    made = PLANS["servers"]
    ran = run(replace_os(EMPTY, made), converged(made, KEYS), roles=removing_roles(ROLES))
    verbs = {each["verb"] for each in ran.documents} - {"inspect"}
    assert {verb for verb in verbs if not verb.startswith("llamaherd.releases.")} == {"serve.removal.remove"}


def test_a_rollback_brings_the_servers_back() -> None:
    """The release of a removal has none, and that before has all."""
    made = PLANS["servers"]
    after = merged_plan(Past({}, {1: made}), replace_os(EMPTY, made), {})
    assert (after.instances, after.power, after.only) == ((), None, None)
    assert after.packages == made.packages


def own(folder: Path, leftovers: str) -> Path:
    """Return an inventory with a role of its own, and another that is plain pyinfra."""
    write_example(folder)
    file = folder / "roles/motd/__init__.py"
    file.write_text(f"{file.read_text()}\nfrom dataclasses import replace\nROLE = replace(ROLE{leftovers})\n")
    (folder / "roles/swap").mkdir()
    (folder / "roles/swap/deploy.py").write_text("from pyinfra.api import deploy\n@deploy('swap')\ndef swap(): pass\n")
    (folder / "box.yaml").touch()
    return folder / "box.yaml"


def test_own_roles_take_part_with_their_leftovers_alone(tmp_path: Path) -> None:
    roles = all_roles(own(tmp_path, ", leftovers=lambda plan, state: ()"))
    assert unremovable_roles(roles) == ("swap",)
    (motd,) = (role for role in removing_roles(roles) if role.name == "motd")
    assert tuple(motd.tasks(EMPTY)) == ()
    only = empty_plan(CPU, roles).only
    assert only
    assert "motd" in only.roles


def test_own_roles_without_leftovers_have_no_part_in_it(tmp_path: Path) -> None:
    roles = all_roles(own(tmp_path, ""))
    assert unremovable_roles(roles) == ("motd", "swap")
    assert not {"motd", "swap"} & {role.name for role in removing_roles(roles)}


def test_what_checks_keep_of_a_host_stays_in_the_inventory() -> None:
    def fails(*_: object) -> str:
        raise AssertionError

    def refuse(*_: object) -> list[Refusal]:
        return [Refusal("no", "no")]

    roles = removing_roles([replace(role, keep=fails, refusals=refuse) for role in ROLES])
    state = parse_state(converged(PLANS["servers"], KEYS))
    assert {role.keep(Path(), EMPTY, state) for role in roles} == {""}
    assert [each for role in roles for each in role.refusals(EMPTY, state)] == []


def test_the_store_is_that_of_the_rig() -> None:
    rig = Rig.model_validate(changed(cpu_rig(), {"store": {"path": "/srv/models"}}))
    assert empty_plan(rig, ROLES).store.path == "/srv/models"
