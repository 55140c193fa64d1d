"""An instance of a group as a server of its own: how it is compared and tuned."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from llamaherd.checks.references import ALIKE
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.inventory.exact_edits import parse_setting
from llamaherd.measure.trials.pair import Pair, missing_for_trial, plan_pair, variant_result
from llamaherd.measure.trials.trial import standalone_server, trial_port
from llamaherd.measure.tune.tuning import TuneTarget, tune_target
from roles import ROLES
from tests.bench.grouped import CARD, GROUPED, RIG
from tests.support.ours import parse_state
from tests.support.rigs import KEY, changed, converged
from tests.support.trials import trial


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """The rig with the group."""
    (tmp_path / "rig.yaml").write_text(yaml.safe_dump(RIG))
    return tmp_path


def compared(inventory: Path, a: str, b: str | None, *words: str) -> Pair:
    return plan_pair(inventory, ROLES, a, b, [parse_setting(word) for word in words], lambda _: None)


def values(arguments: tuple[str, ...], *flags: str) -> list[str]:
    """What stands behind each of these flags."""
    return [arguments[arguments.index(flag) + 1] for flag in flags]


def test_it_is_what_the_group_would_run_at_a_port_of_its_own() -> None:
    made = standalone_server(CARD, "two", 60_901)
    (member,) = [each for each in CARD.members if each.name == "two"]
    assert values(made.server.arguments, "--host", "--port") == ["127.0.0.1", "60901"]
    assert len(made.server.arguments) == len(member.arguments)
    assert [each for each in zip(made.server.arguments, member.arguments, strict=True) if each[0] != each[1]] == [
        ("60901", "8090")
    ]
    assert (made.endpoint.models, made.endpoint.streams, made.endpoint.swaps) == (("moe",), 2, False)
    assert (made.server.user, made.memory) == (CARD.server.user, member.memory)
    assert made.server.folders == (member.model_folder,)
    assert made.preset is None
    assert "wait-loaded" not in made.file.text
    assert "--models-preset" not in made.file.text


def test_what_another_one_of_its_group_is_told_is_nothing_to_it(inventory: Path) -> None:
    before = compared(inventory, "box/two", None, "ubatch=256")
    (inventory / "rig.yaml").write_text(yaml.safe_dump(changed(RIG, {"instances/one/context": 4096})))
    after = compared(inventory, "box/two", None, "ubatch=256")
    assert (before.a.instance.spec, before.b.instance.spec) == (after.a.instance.spec, after.b.instance.spec)
    assert before.declared[0].spec != after.declared[0].spec


def test_both_arms_are_units_and_the_group_is_what_is_stopped(inventory: Path) -> None:
    two = compared(inventory, "box/two", None, "ubatch=256", "draft=null")
    assert [each.name for each in two.declared] == ["card"]
    assert (two.a.instance.name, two.b.title) == ("two", "box/two with ubatch=256, draft=null")
    assert values(two.b.instance.server.arguments, "--ubatch-size") == ["256"]
    assert "--spec-type" not in " ".join(two.b.instance.server.arguments)
    assert two.a.service != two.b.service
    port = str(trial_port(GROUPED, "two"))
    assert [values(each.instance.server.arguments, "--port") for each in (two.a, two.b)] == [[port], [port]]
    assert two.context == 2048
    given = trial((two.a, two.b), two.declared).input
    assert [each.service for each in given.stops] == ["llama-card"]
    result = variant_result("box", two.plan_a, two.a, (), session="s", began="2026-11-26T10:00:00Z", declared=True)
    assert (result.instance, result.provenance.around.instances) == ("two", ("chat", "drafter"))


def test_two_of_one_group_stop_it_once(inventory: Path) -> None:
    two = compared(inventory, "box/one", "box/two")
    assert [each.name for each in two.declared] == ["card"]
    assert [each.instance.model for each in (two.a, two.b)] == ["gemma", "moe"]
    beside = compared(inventory, "box/one", "box/chat")
    assert [each.name for each in beside.declared] == ["card", "chat"]
    assert values(beside.a.instance.server.arguments, "--port") == values(beside.b.instance.server.arguments, "--port")


def test_what_the_host_lacks_is_said_of_its_group(inventory: Path) -> None:
    two = compared(inventory, "box/two", None, "ubatch=256")
    there = parse_state(converged(GROUPED, {"chat": KEY}))
    assert missing_for_trial(two, there) is None
    assert "llama-card is not on its host" in str(missing_for_trial(two, parse_state([])))


@pytest.mark.parametrize(
    ("a", "words", "said"),
    [
        ("box/card", ["batch=512"], "box/card is a group, and a trial runs one model"),
        ("box/nobody", ["batch=512"], "has no instance `nobody`"),
        ("box/two", ["group=null"], "`--with group=null` does not apply to a trial"),
        ("box/two", ["port=8091"], "does not apply to a trial"),
    ],
)
def test_what_cannot_be_compared_is_said(inventory: Path, a: str, words: list[str], said: str) -> None:
    with pytest.raises(UserError) as raised:
        compared(inventory, a, None, *words)
    assert said in str(raised.value)


def test_what_a_group_has_alike_is_no_key_of_one_of_them(inventory: Path) -> None:
    with pytest.raises(InventoryError) as raised:
        compared(inventory, "box/two", None, "environment={A: b}")
    assert "LH342" in [each.code for each in raised.value.findings]


def searched(inventory: Path, name: str | None = "two") -> TuneTarget:
    return tune_target(inventory, ROLES, "box", name)


def test_an_instance_is_tuned_as_a_server_of_its_own(inventory: Path) -> None:
    found = searched(inventory)
    assert (found.server.name, found.declared.name) == ("card", "two")
    keys = {axis.key for axis in found.space.axes} | set(found.space.packed)
    assert keys
    assert keys.isdisjoint(ALIKE)
    variant = found.variant(found.start.with_keys({"ubatch": 256}), 77)
    assert values(variant.instance.server.arguments, "--ubatch-size", "--host") == ["256", "127.0.0.1"]
    assert variant.instance.server.start_seconds == 77
    assert variant.instance.name == "two"
    assert found.context == 2048


def test_a_search_is_of_an_instance_and_not_of_a_group(inventory: Path) -> None:
    with pytest.raises(UserError, match="one, two"):
        searched(inventory, None)
    with pytest.raises(UserError, match="is a group"):
        searched(inventory, "card")


def test_a_search_is_the_same_whatever_others_of_the_group_are_told(inventory: Path) -> None:
    before = searched(inventory).identity
    (inventory / "rig.yaml").write_text(yaml.safe_dump(changed(RIG, {"instances/one/context": 4096})))
    assert searched(inventory).identity == before
    (inventory / "rig.yaml").write_text(yaml.safe_dump(changed(RIG, {"instances/two/context": 8192})))
    assert searched(inventory).identity != before


def test_tune_of_an_instance_may_be_declared_in_a_group(inventory: Path) -> None:
    (inventory / "rig.yaml").write_text(yaml.safe_dump(changed(RIG, {"instances/two/tune": {"for": "turn"}})))
    assert searched(inventory).known.instance.tune


def test_its_port_is_none_that_linux_gives_to_an_outgoing_connection() -> None:
    """The range of ip_local_port_range, and that of candidates in a switch."""
    assert {trial_port(GROUPED, f"server-{number}") for number in range(1000)}.isdisjoint(range(32768, 65000))
