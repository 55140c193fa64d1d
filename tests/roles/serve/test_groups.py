"""A group as one server: what its unit and its preset file say, what it holds, and how each instance is judged."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect, Rig
from llamaherd.memory.facts import rig_facts
from llamaherd.pipeline.plan import choose_parts
from llamaherd.pipeline.preview import preview_changes
from llamaherd.plan import Estimate, Grows, Holds, InstancePlan, Plan
from roles import ROLES
from roles.serve.changes import server_changes
from roles.serve.onhost.candidate import check_arguments
from roles.serve.onhost.model import Responses, ServerFound, VerifiedServers
from roles.serve.plan import largest_estimate
from roles.serve.transaction import proof_prompt
from roles.serve.verify import verification_input
from tests.support.headers import gemma3, qwen_35b
from tests.support.ours import judge, parse_state
from tests.support.played_host import PlayedHost
from tests.support.recording import recording, switch_of
from tests.support.rigs import KEY, Declared, changed, converged, cpu_rig, gpu_rig, planned

ONE = {
    "engine": "main",
    "model": "gemma",
    "context": 8192,
    "port": 8090,
    "group": "card",
    "api_key": {"env": "CHAT_KEY"},
}
TWO = ONE | {"model": "moe", "context": 4096, "parallel": 2, "draft": {"mtp": 2}, "drain": 90}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is at hand."""
    monkeypatch.setenv("CHAT_KEY", KEY)


def declared(**two: object) -> Declared:
    """The machine without a GPU, with a group beside its servers."""
    return changed(cpu_rig(), {"instances/one": ONE, "instances/two": TWO | two})


def group(plan: Plan) -> InstancePlan:
    return next(each for each in plan.instances if each.name == "card")


PLAN = planned(declared())
CARD = group(PLAN)


def test_a_group_is_one_server_called_as_it_is() -> None:
    assert [each.name for each in PLAN.instances] == ["card", "chat", "drafter"]
    assert (CARD.service, CARD.server.user, CARD.key_file) == ("llama-card", "llama-card", "/etc/llamaherd/keys/card")
    assert [member.name for member in CARD.members] == ["one", "two"]
    assert CARD.endpoint.models == ("gemma", "moe")
    assert CARD.endpoint.streams == 1, "no more than the instance with the fewest slots has"
    assert CARD.drain == 90
    assert set(CARD.server.folders) == {member.model_folder for member in CARD.members}


def test_its_preset_file_is_named_by_what_is_in_it() -> None:
    assert CARD.preset
    assert CARD.preset in PLAN.files
    assert CARD.server.arguments[:4] == ("--models-preset", CARD.preset.path, "--models-max", "1")
    other = group(planned(declared(context=2048)))
    assert other.preset
    assert other.preset.path != CARD.preset.path
    assert other.spec != CARD.spec, "so that what runs is started anew"
    assert group(planned(declared())).spec == CARD.spec


def test_sections_have_what_each_would_be_told_alone() -> None:
    assert CARD.preset
    sections = CARD.preset.text.split("[")[1:]
    assert [section.partition("]")[0] for section in sections] == ["gemma", "moe"]
    assert ["load-on-startup = true" in section for section in sections] == [True, False]
    assert ["spec-type = draft-mtp" in section for section in sections] == [False, True]
    assert "key" not in CARD.preset.text


def test_a_name_of_a_file_that_no_preset_file_can_say_is_told() -> None:
    with pytest.raises(UserError, match="group `card` of rig box has no preset file"):
        planned(changed(declared(), {"models/moe/file": "/srv/a#b.gguf"}))


def test_the_engine_checks_the_arguments_of_each() -> None:
    (change,) = server_changes(CARD, HostState(), KEY)
    given = switch_of(change)
    front, one, two = given.arguments
    assert front.arguments == CARD.server.arguments
    assert [each.arguments for each in (one, two)] == [each.arguments for each in CARD.members]
    assert "--spec-type" in two.arguments
    host = recording(PlayedHost({}, accounts={CARD.server.user}))
    for each in given.arguments:
        check_arguments(host, given.server, each)
    assert [words[-1] for words in host.done] == ["--version"] * 3, "the server in front, and each of two"
    assert not [words for words in host.done if str(CARD.key_file) in words], "the key's file may not exist yet"


def test_a_host_that_is_as_planned_is_left_alone_and_one_with_another_is_not() -> None:
    keys = {"card": KEY, "chat": KEY}
    there = parse_state(converged(PLAN, keys))
    assert preview_changes(PLAN, ROLES, there, Connect(host="box"), {}).changes == ()
    found = preview_changes(planned(declared(context=2048)), ROLES, there, Connect(host="box"), {}).changes
    assert [(each.action, each.name) for each in found if each.kind == "server"] == [("restart", "llama-card")]


def test_a_part_alone_is_the_group_and_no_instance_of_it() -> None:
    rigs = {"box": Rig.model_validate(declared())}
    assert choose_parts(["card"], rigs, ROLES)["box"].instances == ("card",)
    with pytest.raises(UserError, match="`--only card`"):
        choose_parts(["two"], rigs, ROLES)


# --- memory --------------------------------------------------------------------------------------------------


def of(gpu: int, ram: int, *, prompts: int | None = 0, resident: int | None = 1) -> Estimate:
    parts = {"kv": 0, "state": 0, "compute": 0, "draft": 0}
    holds = tuple(Holds(where=where, size=100, weights=each, **parts) for where, each in (("big", gpu), ("RAM", ram)))
    return Estimate(source="arithmetic", holds=holds, grows=Grows(prompts=prompts), resident=resident)


def test_the_largest_counts_in_each_place() -> None:
    both = largest_estimate([of(70, 5, prompts=4), of(30, 50, prompts=9, resident=7)])
    assert both
    assert {each.where: each.total for each in both.holds} == {"big": 70, "RAM": 50}
    assert (both.grows.prompts, both.resident) == (9, 7)
    unlimited = largest_estimate([of(1, 1, prompts=None), of(1, 1)])
    assert unlimited
    assert unlimited.grows.prompts is None
    assert largest_estimate([of(1, 1), None]) is None, "one that is not known may be any size"


def test_what_swaps_has_room_as_if_the_other_were_not_there() -> None:
    """And a server beside them has what the largest leaves."""
    swapping = {"engine": "main", "on": ["old"], "context": 8192, "port": 8010}
    data = changed(
        gpu_rig(),
        {
            "instances": {
                "big": swapping | {"model": "35b", "group": "card"},
                "small": swapping | {"model": "gemma", "group": "card"},
                "beside": swapping | {"model": "gemma", "port": 8011},
            }
        },
    )
    rig = Rig.model_validate(data)
    headers = {"35b": qwen_35b(), "gemma": gemma3()}
    facts = rig_facts(rig, headers)
    found = facts.sized
    big, beside = facts.instances["big"].memory, facts.instances["beside"].memory
    assert big
    assert beside
    without = rig_facts(rig.model_copy(update={"instances": {"beside": rig.instances["beside"]}}), headers).sized[
        "beside"
    ]
    assert found["beside"].room.cards[0] == without.room.cards[0] - big.on_gpus["old"]
    one = rig_facts(rig.model_copy(update={"instances": {"small": rig.instances["small"]}}), headers).sized["small"]
    assert found["small"].room.cards[0] == one.room.cards[0] - beside.on_gpus["old"]


# --- asking --------------------------------------------------------------------------------------------------


def test_a_prompt_goes_to_what_is_loaded_first_and_figures_come_without_a_swap() -> None:
    said = proof_prompt(CARD)
    body = said["body"]
    assert isinstance(body, dict)
    assert body["model"] == "gemma"
    assert said["metrics"] == [
        f"http://127.0.0.1:8090/metrics?model={model}&autoload=false" for model in ("gemma", "moe")
    ]


def responses(**props: str) -> Responses:
    """Return what the group's server returns: its list, what each model has loaded, and a chat with each."""
    loaded, chats = {}, {}
    for member in CARD.members:
        told = {
            "model_path": props.get(member.name, member.model_path),
            "total_slots": member.slots,
            "default_generation_settings": {"n_ctx": member.context // member.slots},
        }
        loaded[member.name] = json.dumps(told) + "\n200"
        pieces = [{"choices": [{"delta": {"content": each}}]} for each in ("a", "b")]
        chats[member.name] = "".join(f"data: {json.dumps(each)}\n\n" for each in pieces) + "\n200"
    listed = json.dumps({"data": [{"id": "gemma"}, {"id": "moe"}]}) + "\n200"
    return Responses(models=listed, props=loaded, chats=chats)


def checks(found: Responses) -> dict[str, bool]:
    servers = VerifiedServers({"card": ServerFound(responses=found)})
    report = judge(Rig.model_validate(declared()), PLAN, {}, found=servers)
    (card,) = [each for each in report.instances if each.name == "card"]
    assert card.model == "gemma or moe"
    return {check.name: check.ok for check in card.checks if ":" in check.name}


def test_each_instance_is_judged_by_its_name() -> None:
    assert checks(responses()) == {
        **{f"{name}: {what}": True for name in ("one", "two") for what in ("model", "context", "chat")},
        "two: drafts": False,
    }
    assert not checks(responses(two="/elsewhere.gguf"))["two: model"]
    assert not checks(replace(responses(), models='{"data": [{"id": "gemma"}]}\n200'))["one: model"]
    assert not checks(Responses())["one: chat"]


def test_each_model_is_asked_for_before_it_is_told_what_is_loaded() -> None:
    given = verification_input(PLAN)
    assert given
    (requests,) = [each.requests for each in given.servers if each.name == "card"]
    assert [each.name for each in requests.chats] == ["one", "two"]
    assert requests.chats[1].props_url.endswith("/props?model=moe&autoload=false")
    assert requests.props_url == ""
