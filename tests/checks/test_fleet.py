"""What is found wrong with a fleet's own file: each mistake, and the neighbour that is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from llamaherd.inventory.json_schema import fleet_schema
from llamaherd.pipeline.fleet_files import Survey, survey_fleet
from llamaherd.pipeline.load import plans
from llamaherd.pipeline.own_roles import all_roles
from tests.support.rigs import Declared, changed, cpu_rig

FLEET = """
gateway:
  on: [box]
  users:
    tom: {key: {file: keys/tom}, streams: 4, models: [coder]}
    ann: {key: {file: keys/ann}}
  models:
    coder: {serve: [box.chat], aliases: [gpt-4o], fallback: small, sticky: session}
    small: {serve: [box.drafter]}
"""
IMAGE = {"kind": "llama.cpp", "image": f"a@sha256:{'ab' * 32}"}
Found = Callable[..., Survey]


def porch() -> Declared:
    """A second rig, whose server others may use."""
    return changed(cpu_rig(), {"rig": "porch", "connect": {"host": "porch.lan"}, "instances/chat/listen": "0.0.0.0"})


@pytest.fixture
def survey(tmp_path: Path) -> Found:
    """Reads a folder with a fleet's file, the rig `box` and, with changes or not, the rig `porch`."""
    (tmp_path / "keys").mkdir()
    for name in ("tom", "ann"):
        (tmp_path / "keys" / name).write_text(f"key-of-{name}\n")
        (tmp_path / "keys" / name).chmod(0o600)

    def found(
        text: str = FLEET, box: Declared | None = None, beside: Declared | None = None, *, deploying: bool = False
    ) -> Survey:
        (tmp_path / "fleet.yaml").write_text(text)
        (tmp_path / "box.yaml").write_text(yaml.safe_dump(box or cpu_rig()))
        (tmp_path / "porch.yaml").write_text(yaml.safe_dump(beside or porch()))
        return survey_fleet(tmp_path, deploying=deploying)

    return found


def codes(found: Survey) -> list[str]:
    """What is found in the fleet's file."""
    return [finding.code for finding in found.findings if finding.place.file.name == "fleet.yaml"]


def test_a_fleet_that_is_right_has_no_findings(survey: Found) -> None:
    found = survey()
    assert codes(found) == []
    assert found.own
    assert found.own.gateway
    assert set(found.fleet.rigs) == {"box", "porch"}, "the fleet's file is no rig"


def test_a_folder_without_one_is_as_ever(tmp_path: Path) -> None:
    (tmp_path / "box.yaml").write_text(yaml.safe_dump(cpu_rig()))
    found = survey_fleet(tmp_path)
    assert found.own is None
    assert set(found.fleet.rigs) == {"box"}


def test_a_rig_whose_file_has_that_name_stays_a_rig(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(cpu_rig()))
    for source in (tmp_path, tmp_path / "fleet.yaml"):
        found = survey_fleet(source)
        assert set(found.fleet.rigs) == {"box"}
        assert found.own is None


def test_a_rig_that_is_asked_for_alone_has_its_fleets_file(survey: Found, tmp_path: Path) -> None:
    survey(FLEET.replace("[box.chat]", "[box.chat, porch.chat]"))
    alone = survey_fleet(tmp_path / "box.yaml")
    assert codes(alone) == []
    assert set(alone.fleet.rigs) == {"box"}
    assert set(alone.around) == {"box", "porch"}
    assert alone.own


def test_the_file_itself_is_no_inventory(survey: Found, tmp_path: Path) -> None:
    survey()
    assert [finding.code for finding in survey_fleet(tmp_path / "fleet.yaml").findings] == ["LH005"]


MISTAKES = {
    "a rig that is none": ("on: [box]", "on: [bx]", ["LH300"]),
    "a server that is none": ("[box.chat]", "[box.cht]", ["LH301"]),
    "a server of a rig that is none": ("[box.chat]", "[bx.chat]", ["LH301"]),
    "an alias that is a model": ("[gpt-4o]", "[small]", ["LH302"]),
    "an alias that is the model itself": ("[gpt-4o]", "[coder]", ["LH302"]),
    "a fallback that is none": ("fallback: small", "fallback: smal", ["LH303"]),
    "a fallback that is an alias": ("fallback: small", "fallback: gpt-4o", ["LH303"]),
    "a fallback to itself": ("fallback: small", "fallback: coder", ["LH303"]),
    "a circle": ("[box.drafter]", "[box.drafter], fallback: coder", ["LH303", "LH303"]),
    "a user's model that is none": ("models: [coder]", "models: [codr]", ["LH304"]),
    "one key file for two": ("keys/ann", "keys/tom", ["LH305"]),
    "streams beyond slots": ("sticky: session", "streams: 2", ["LH308"]),
    "a page's user that is none": ("  models:\n", "  chat: {image: a, user: tm}\n  models:\n", ["LH317"]),
    "a page of a user": ("  models:\n", "  chat: {image: a, user: tom}\n  models:\n", []),
    "a page with the gateway's port": (
        "  models:\n",
        "  chat: {image: a, user: tom, port: 8000}\n  models:\n",
        ["LH318"],
    ),
    "a page with a server's port": ("  models:\n", "  chat: {image: a, user: tom, port: 8080}\n  models:\n", ["LH318"]),
    "a page for others": ("  models:\n", "  chat: {image: a, user: tom, listen: '::'}\n  models:\n", ["LH319"]),
    "a server's port": ("on: [box]", "on: [box]\n  port: 8080", ["LH310"]),
    "a small body": ("on: [box]", "on: [box]\n  body: 64KB", []),
    "a long wait": ("on: [box]", "on: [box]\n  queue: {wait: 300s}", ["LH312"]),
    "a wait that clients bear": ("on: [box]", "on: [box]\n  queue: {wait: 299s}", []),
    "keys in the clear": ("on: [box]", "on: [box]\n  listen: 0.0.0.0", ["LH313"]),
    "one server for two models": ("[box.drafter]", "[box.chat]", ["LH316"]),
    "a key that is not there": ("keys/ann", "keys/nobody", ["LH024"]),
    "no model": ("coder: {", "Coder: {", ["LH012"]),
    "an unknown key": ("streams: 4", "steams: 4", ["LH010"]),
    "an unknown key at the top": ("gateway:", "gatway:", ["LH010"]),
    "a server without its rig": ("[box.chat]", "[chat]", ["LH012", "LH012"]),
    "a server twice": ("[box.chat]", "[box.chat, box.chat]", ["LH012"]),
    "an address that is none": ("on: [box]", "on: [box]\n  listen: all", ["LH012"]),
    "a body without bounds": ("on: [box]", "on: [box]\n  body: 1GB", ["LH012"]),
    "a wait without bounds": ("on: [box]", "on: [box]\n  queue: {wait: 9h}", ["LH012"]),
    "an alias with a blank": ("[gpt-4o]", "['gpt 4o']", ["LH012"]),
    "a number for text": ("sticky: session", "sticky: 7", ["LH012"]),
    "a list for a mapping": ("{key: {file: keys/ann}}", "[a]", ["LH012"]),
}


@pytest.mark.parametrize(("key", "wanted"), [("changeme", ["LH226"]), ("sk-1234", ["LH226"]), ("8kx-attic", [])])
def test_a_user_with_a_placeholder_as_key_is_reported(
    survey: Found, tmp_path: Path, key: str, wanted: list[str]
) -> None:
    (tmp_path / "keys" / "ann").write_text(f"{key}\n")
    found = survey()
    assert codes(found) == wanted
    assert key not in str(found.findings)


@pytest.mark.parametrize(
    ("key", "listen", "wanted"),
    [("changeme", "0.0.0.0", ["warning"]), ("changeme", "127.0.0.1", []), ("9f86d081884c7d65", "0.0.0.0", [])],
)
def test_a_server_with_a_placeholder_as_key_is_reported_where_others_reach_it(
    survey: Found, tmp_path: Path, key: str, listen: str, wanted: list[str]
) -> None:
    (tmp_path / "keys" / "chat").write_text(key)
    keys = {"instances/chat/listen": listen, "instances/chat/api_key": {"file": "keys/chat"}}
    found = survey(box=changed(cpu_rig(), keys))
    assert [each.severity for each in found.findings if each.code == "LH226"] == wanted


@pytest.mark.parametrize(
    ("chat", "drafter", "wanted"),
    [
        ("chat", "embeddings", ["LH303"]),
        ("embeddings", "chat", ["LH303"]),
        ("embeddings", "embeddings", ["LH303"]),
        ("rerank", "rerank", []),
        ("chat", "rerank", ["LH303"]),
    ],
)
def test_a_fallback_that_is_for_other_requests_is_reported(
    survey: Found, chat: str, drafter: str, wanted: list[str]
) -> None:
    tasks = {"instances/chat/serve": chat, "instances/drafter/serve": drafter, "instances/drafter/draft": None}
    assert codes(survey(box=changed(cpu_rig(), tasks))) == wanted


@pytest.mark.parametrize(("was", "now", "wanted"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_found_where_it_stands(survey: Found, was: str, now: str, wanted: list[str]) -> None:
    text = FLEET.replace(was, now, 1)
    assert text != FLEET
    found = survey(text)
    assert [code for code in codes(found) if code != "LH304" or "LH304" in wanted] == wanted
    lines = text.split("\n")
    changed_lines = {n for n, line in enumerate(lines, 1) if line not in FLEET.split("\n")}
    for finding in found.findings:
        if finding.place.file.name == "fleet.yaml" and finding.code not in ("LH303", "LH012", "LH010", "LH312"):
            assert finding.place.line in changed_lines | {2}


def test_a_file_with_another_mistake_does_not_hide_rigs(survey: Found) -> None:
    found = survey("gateway: [")
    assert codes(found) == ["LH001"]
    assert set(found.fleet.rigs) == {"box", "porch"}


def test_a_server_of_a_rig_that_cannot_be_read_is_not_called_unknown(survey: Found) -> None:
    found = survey(FLEET.replace("[box.chat]", "[box.chat, porch.chat]"), beside={"rig": "porch"})
    assert codes(found) == []
    assert not found.ok


BEYOND: dict[str, tuple[dict[str, object], list[str]]] = {
    "in reach": ({}, []),
    "on its own host alone": ({"instances/chat/listen": "127.0.0.1"}, ["LH306"]),
    "without a key, beside one that names its own": ({"instances/chat/api_key": None}, ["LH307"]),
    "at an address that means something else": ({"connect": {"host": "127.0.0.1"}}, ["LH306"]),
    "at one, but the LAN's is known": (
        {"connect": {"host": "127.0.0.1"}, "store": {"share": {"address": "192.168.1.9"}}},
        [],
    ),
    "this machine": ({"connect": "local"}, ["LH306"]),
    "another key": ({"instances/chat/api_key": {"env": "OTHER"}}, ["LH307"]),
}


@pytest.mark.parametrize(("changes", "wanted"), BEYOND.values(), ids=BEYOND)
def test_a_server_of_another_rig_must_be_reached(survey: Found, changes: dict[str, object], wanted: list[str]) -> None:
    text = FLEET.replace("[box.chat]", "[box.chat, porch.chat]")
    assert codes(survey(text, beside=changed(porch(), changes))) == wanted


def test_servers_that_name_no_key_are_given_one(survey: Found, tmp_path: Path) -> None:
    """It is not there yet, which `herd up` sees to; what lies there is judged as any other key."""
    text = FLEET.replace("[box.chat]", "[box.chat, porch.chat]")
    keyless: dict[str, object] = {"instances/chat/api_key": None}
    box, beside = changed(cpu_rig(), {**keyless, "instances/chat/listen": "0.0.0.0"}), changed(porch(), keyless)
    for deploying in (False, True):
        found = survey(text, box, beside, deploying=deploying)
        assert {each.code for each in found.findings} & {"LH022", "LH024", "LH306", "LH307"} == {"LH024"}
        assert all("keys/rigs" not in each.message for each in found.findings), "files of the engine's alone"
    file = tmp_path / "keys/rigs/box"
    file.parent.mkdir()
    file.write_text("key-of-servers\n")
    file.chmod(0o644)
    found = survey(text, box, beside)
    assert codes(found) == ["LH315"]
    assert "key-of-servers" not in str(found.findings)
    file.chmod(0o600)
    assert codes(survey(text, box, beside)) == []


def test_a_server_that_no_gateway_sends_to_must_name_its_key(survey: Found) -> None:
    found = survey(beside=changed(porch(), {"instances/chat/api_key": None}))
    assert "LH022" in {each.code for each in found.findings}


def test_a_server_that_minds_names_is_served_under_its_own(survey: Found) -> None:
    vllm = changed(
        cpu_rig(),
        {
            "engines/main": {"kind": "vllm", "image": f"vllm/vllm-openai@sha256:{'ab' * 32}"},
            "instances/chat/backend": "compose",
            "instances/chat/model": "coder",
            "models/coder": {"hf": "a/b", "files": "*"},
        },
    )
    text = FLEET.replace(", aliases: [gpt-4o]", "")
    assert "LH309" in codes(survey(FLEET, box=vllm)), "an alias is none of its names"
    assert codes(survey(text, box=vllm)).count("LH309") == 1, "and `small` is the drafter's, which has another"


def test_a_body_is_as_large_as_the_largest_slot(survey: Found) -> None:
    large = changed(cpu_rig(), {"instances/chat/context": 262_144, "instances/chat/parallel": 2})
    small, enough = (FLEET.replace("on: [box]", f"on: [box]\n  body: {size}") for size in ("500KB", "700KB"))
    found = survey(small, box=large)
    assert codes(found) == ["LH311"]
    assert next(each.help for each in found.findings if each.code == "LH311") == "write `body: 1MB`"
    assert codes(survey(enough, box=large)) == []


def test_a_gateway_that_nobody_may_use_is_said(survey: Found) -> None:
    text = FLEET.partition("  users:")[0] + "  models:" + FLEET.partition("  models:")[2]
    assert codes(survey(text)) == ["LH314"]


def test_a_key_that_others_may_read_is_said(survey: Found, tmp_path: Path) -> None:
    (tmp_path / "keys" / "tom").chmod(0o640)
    found = survey()
    assert codes(found) == ["LH315"]
    assert "key-of-tom" not in str(found.findings)


def test_one_key_in_two_files_is_found_without_showing_it(survey: Found, tmp_path: Path) -> None:
    (tmp_path / "keys" / "ann").write_text("key-of-tom\n")
    found = survey()
    assert codes(found) == ["LH305"]
    assert "key-of-tom" not in str(found.findings)


def test_a_key_that_is_not_there_is_an_error_only_where_it_is_needed(survey: Found) -> None:
    text = FLEET.replace("keys/ann", "keys/nobody")
    for deploying, severity in ((True, "error"), (False, "warning")):
        found = survey(text, deploying=deploying).findings
        assert [each.severity for each in found if "nobody" in each.message] == [severity]


def test_only_the_rig_that_is_named_becomes_a_gateway(survey: Found, tmp_path: Path) -> None:
    image = {"engines/main": IMAGE, "instances/chat/backend": "compose"}
    survey(box=changed(cpu_rig(), image), beside=changed(porch(), image))
    found = plans(tmp_path, all_roles(tmp_path))
    assert {name: (plan.gateway is not None, plan.of_fleet) for name, (_, plan) in found.items()} == {
        "box": (True, True),
        "porch": (False, True),
    }
    assert "haproxy" in found["box"][1].packages
    assert "haproxy" not in found["porch"][1].packages


def test_the_schema_for_editors_takes_what_is_taken_here() -> None:
    from jsonschema import Draft202012Validator

    from llamaherd.inventory.yaml_text import Loader

    validator = Draft202012Validator(fleet_schema())
    assert list(validator.iter_errors(yaml.load(FLEET, Loader=Loader))) == []
    for was, now in (("sticky: session", "sticky: 7"), ("on: [box]", "on: []"), ("streams: 4", "steams: 4")):
        assert list(validator.iter_errors(yaml.load(FLEET.replace(was, now), Loader=Loader)))


WATCH = "monitoring: {on: box, rigs: [porch], alerts: {ntfy: {url: 'https://ntfy.sh/a', key: {file: keys/tom}}}}"


def known_as(address: str | None) -> Declared:
    """A rig with an address of its own in the LAN, or none."""
    return changed(cpu_rig(), {"store/share": {"address": address}} if address else {})


def test_what_watches_as_it_must_has_no_findings(survey: Found) -> None:
    assert codes(survey(WATCH, known_as("192.168.1.20"))) == []
    assert codes(survey(WATCH.replace("[porch]", "[box]"), known_as(None))) == []


@pytest.mark.parametrize(
    ("was", "now", "code"),
    [
        ("on: box", "on: bxo", "LH320"),
        ("[porch]", "[porsch]", "LH320"),
        (", alerts: {ntfy: {url: 'https://ntfy.sh/a', key: {file: keys/tom}}}", "", "LH323"),
        ("https:", "htps:", "LH012"),
        ("on: box", "retention: 5000d, on: box", "LH012"),
    ],
    ids=["no rig watches", "no rig is watched", "nobody is told", "no URL", "too long"],
)
def test_what_cannot_watch_is_found(survey: Found, was: str, now: str, code: str) -> None:
    assert was in WATCH
    found = survey(WATCH.replace(was, now), known_as("192.168.1.20"))
    assert code in codes(found)


@pytest.mark.parametrize("address", ["attic.lan", "127.0.0.1", None])
def test_who_watches_others_must_be_known_by_an_address(survey: Found, address: str | None) -> None:
    found = survey(WATCH, known_as(address))
    assert codes(found) == ["LH321"]
    assert codes(survey(WATCH.replace("[porch]", "[]"), known_as(address))) == ["LH321"], "all are watched"


@pytest.mark.parametrize(("port", "found"), [(9090, True), (9093, True), (9100, True), (9091, False), (8405, False)])
def test_a_servers_port_is_not_what_watches(survey: Found, port: int, found: bool) -> None:
    box = changed(known_as("192.168.1.20"), {"instances/chat/port": port})
    assert ("LH322" in codes(survey(WATCH, box))) is found


def test_a_gateway_that_is_watched_has_a_port_for_its_figures(survey: Found) -> None:
    box = changed(known_as("192.168.1.20"), {"instances/drafter/port": 8405})
    assert codes(survey(f"{FLEET}{WATCH}", box)) == ["LH322"]
    assert codes(survey(f"{FLEET.replace('port: 8000', '')}{WATCH}", known_as("192.168.1.20"))) == []


@pytest.mark.parametrize(
    ("on", "port", "found"),
    [("box", 9090, True), ("box", 8405, True), ("box", 3000, False), ("porch", 9100, True), ("porch", 9090, False)],
)
def test_a_page_has_no_port_of_what_watches(survey: Found, on: str, port: int, found: bool) -> None:
    """Where the gateway is first, which is where the page is; Prometheus is on `box` alone."""
    page = f"  chat: {{image: a, user: tom, port: {port}}}\n  models:\n"
    text = FLEET.replace("  models:\n", page).replace("on: [box]", f"on: [{on}]") + WATCH
    ports = [each for each in survey(text, known_as("192.168.1.20")).findings if each.code == "LH322"]
    assert ["the chat page" in each.message for each in ports] == [True] * found


def test_a_rig_that_is_watched_has_one_port_less(survey: Found) -> None:
    for port, expected in ((9100, ["LH322"]), (9090, [])):
        beside = changed(porch(), {"instances/chat/port": port})
        assert codes(survey(WATCH, known_as("192.168.1.20"), beside)) == expected


def test_a_key_that_alerts_are_sent_with_must_be_there_and_its_owners_alone(survey: Found, tmp_path: Path) -> None:
    box = known_as("192.168.1.20")
    survey(WATCH, box)
    (tmp_path / "keys/tom").chmod(0o644)
    assert codes(survey(WATCH, box)) == ["LH315"]
    (tmp_path / "keys/tom").unlink()
    for deploying, severity in ((True, "error"), (False, "warning")):
        findings = survey(WATCH, box, deploying=deploying).findings
        found = [(each.code, each.severity) for each in findings if each.place.file.name == "fleet.yaml"]
        assert found == [("LH024", severity)]
