"""A server behind a gateway on another rig: what is compared and tuned is a candidate, and no part of the fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import InventoryError
from llamaherd.inventory.exact_edits import parse_setting
from llamaherd.lock.file import write_lock
from llamaherd.measure.trials.pair import plan_pair
from llamaherd.measure.tune.tuning import tune_target
from llamaherd.pipeline.load import declared, plans
from llamaherd.plan import InstancePlan
from roles import ROLES
from tests.support.household import household, made_up_lock


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """The household, locked: the gateway is on `attic`, and `porch` has a server behind it."""
    folder = household(tmp_path / "fleet")
    write_lock(folder / "herd.lock", made_up_lock(declared(folder)))
    return folder


def served(fleet: Path) -> InstancePlan:
    (found,) = plans(fleet, ROLES, ("porch",))["porch"][1].instances
    return found


def other_words(server: InstancePlan, variant: InstancePlan) -> dict[str, tuple[str, str]]:
    """What differs about their arguments, by the flag."""
    a, b = (each.server.arguments for each in (server, variant))
    return {a[at - 1]: (a[at], b[at]) for at in range(len(a)) if a[at] != b[at]}


def test_a_candidate_listens_on_its_own_host_and_is_else_as_declared(fleet: Path) -> None:
    server, found = served(fleet), tune_target(fleet, ROLES, "porch", None)
    variant = found.variant(found.start.with_keys({"ubatch": 1024}), 60).instance
    assert other_words(server, found.variant(found.start, None).instance) == {
        "--host": ("0.0.0.0", "127.0.0.1"),
        "--port": ("8001", str(variant.endpoint.port)),
    }
    words = variant.server.arguments
    assert words[words.index("--ubatch-size") + 1] == "1024"
    assert words[words.index("--host") + 1] == variant.endpoint.listen == "127.0.0.1"
    assert variant.server.start_seconds == 60
    assert variant.endpoint.port != server.endpoint.port
    assert variant.endpoint.key == server.endpoint.key is not None, "the key that `herd up` makes for the gateway"


def test_both_arms_of_a_comparison_are_planned(fleet: Path) -> None:
    both = plan_pair(fleet, ROLES, "porch/chat", None, [parse_setting("batch=512")], lambda _: None)
    assert both.a.instance.endpoint == both.b.instance.endpoint
    assert other_words(served(fleet), both.a.instance).keys() == {"--host", "--port"}
    assert both.b.instance.endpoint.key is not None


def test_what_the_gateway_would_send_is_nothing_to_a_candidate(fleet: Path) -> None:
    """Fewer slots than the gateway's streams are an error of the fleet, and may be measured."""
    porch, whole = fleet / "porch.yaml", fleet / "fleet.yaml"
    porch.write_text(porch.read_text() + "    parallel: 2\n")
    whole.write_text(
        whole.read_text().replace("small: {serve: [porch.chat]}", "small: {serve: [porch.chat], streams: 2}")
    )
    both = plan_pair(fleet, ROLES, "porch/chat", None, [parse_setting("parallel=1")], lambda _: None)
    assert (both.a.instance.endpoint.streams, both.b.instance.endpoint.streams) == (2, 1)


def test_a_fleet_that_is_wrong_as_declared_is_refused(fleet: Path) -> None:
    porch = fleet / "porch.yaml"
    porch.write_text(porch.read_text().replace("listen: 0.0.0.0", "listen: 127.0.0.1"))
    with pytest.raises(InventoryError, match="LH306"):
        tune_target(fleet, ROLES, "porch", None)
    with pytest.raises(InventoryError, match="LH306"):
        plan_pair(fleet, ROLES, "porch/chat", None, [parse_setting("batch=512")], lambda _: None)
