"""The page that people chat on: hosts that are virgin, as planned, and drifted; and what Compose reads.

Its image is in a registry, which no test asks: what runs in it is Open WebUI's own. Its verbs are run on a real host
by `tests/box/serving/test_chat_page.py`, with an image that stands in for that.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from llamaherd.diagnostics.findings import Place
from llamaherd.host.responses import ProbeOutputs
from llamaherd.inventory.authority import make_root
from llamaherd.inventory.schema import Fleet, Rig
from llamaherd.layout import CHAT_USER
from llamaherd.lock import Lock, LockedImage
from llamaherd.lock.apply import NotLockedError
from llamaherd.lock.resolver import requirements_of
from llamaherd.onhost.document import Secret
from llamaherd.onhost.verbs import NoInput
from llamaherd.plan import Plan
from roles.chat_page import KEY_FILE, chat_changes, chat_checks, chat_leftovers, environment, read_files
from roles.chat_page.onhost import ApplyInput
from tests.support.fake import run
from tests.support.gateway import KEYS, fleet_of
from tests.support.ours import inspect_text, parse_state, plan, refusals, show_plan
from tests.support.recording import input_of
from tests.support.rigs import DIGEST, changed, converged, cpu_rig

SPEC = Path(__file__).parents[2] / "data" / "compose-spec.json"

TASK = "chat_page | a page that people chat on"
TAG = "registry.example/open-webui:v0.12.4"
SERVERS = "sk-canary-of-servers"
HELD = {**KEYS, "chat": SERVERS, "box.chat": SERVERS}
LOCK = Lock(images=(LockedImage(image=TAG, digest=f"sha256:{DIGEST}"),))
FLEET = f"""
gateway:
  on: [box]
  users:
    tom: {{key: {{env: TOM_KEY}}, models: [small]}}
    ann: {{key: {{env: ANN_KEY}}}}
  models:
    coder: {{serve: [box.chat]}}
    small: {{serve: [box.drafter]}}
  chat: {{image: '{TAG}', user: tom}}
"""
VIRGIN = [
    *("os\tdebian-13", "arch\tx86_64", "systemd\tyes"),
    *(f"free\t/var/lib\t{10**12}\toverlay", f"store\t/var/lib\t{10**12}\toverlay\toverlay\trw"),
]


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in (("TOM_KEY", KEYS["tom"]), ("ANN_KEY", KEYS["ann"]), ("CHAT_KEY", SERVERS)):
        monkeypatch.setenv(name, key)


@pytest.fixture(name="rig")
def _rig(tmp_path: Path) -> Rig:
    """Nothing to build, what is sent is here, and no instance is a container."""
    model = tmp_path / "model.gguf"
    model.write_text("gemma")
    sent = {"file": str(model), "sha256": hashlib.sha256(b"gemma").hexdigest()}
    changes = {"models/gemma": sent, "models/moe": sent}
    image = {"engines/main": {"kind": "llama.cpp", "image": f"a@sha256:{'ab' * 32}"}}
    compose = {f"instances/{name}/backend": "compose" for name in ("chat", "drafter")}
    return Rig.model_validate(changed(cpu_rig(), changes | image | compose))


@pytest.fixture(name="wanted")
def _wanted(rig: Rig) -> Plan:
    return plan(rig, LOCK, {"box": rig}, fleet=fleet_of(FLEET))


def secured(rig: Rig, tmp_path: Path) -> Plan:
    """With a gateway that has a CA of its own."""
    make_root(tmp_path / "ca")
    text = FLEET.replace("  on: [box]", f"  on: [box]\n  tls: {{ca: {tmp_path}/ca}}")
    return plan(rig, LOCK, {"box": rig}, fleet=fleet_of(text))


def drifted(wanted: Plan, was: str, now: str) -> tuple[str, tuple[str, ...]]:
    """What is done to the page, and why, where one line of the host is another."""
    lines = [line.replace(was, now) for line in converged(wanted, HELD)]
    assert lines != converged(wanted, HELD)
    (change,) = chat_changes(wanted, parse_state(lines))
    return change.action, change.reasons


def test_a_virgin_host_gets_it_after_its_servers(wanted: Plan) -> None:
    ran = run(wanted, VIRGIN)
    assert TASK in ran.changed
    assert ran.operations.index(TASK) > ran.operations.index("serve | chat (compose)")
    assert [each["verb"] for each in ran.documents if each["verb"].startswith("chat_page.")] == ["chat_page.apply"]


def test_a_host_that_is_as_planned_is_left_alone(wanted: Plan, rig: Rig, tmp_path: Path) -> None:
    assert chat_changes(wanted, parse_state(converged(wanted, HELD))) == []
    safe = secured(rig, tmp_path)
    assert safe.chat
    lines = converged(safe.model_copy(update={"gateway": None}), HELD)
    assert chat_changes(safe, parse_state(lines)) == []


@pytest.mark.parametrize(
    ("was", "now", "action", "why"),
    [
        ("container\trunning", "container\texited", "restart", "it is exited"),
        ("running\thealthy\t", "running\tunhealthy\t", "restart", "it is unhealthy"),
        ("chat\tthere", "chat\tuntried", "restart", "a run before did not see it healthy"),
        ("chat\tthere", "chat\tunsigned", "restart", "the secret that signs logins is missing"),
        ("chat\tcontainer", "unit-file\tx", "create", "there is no such container"),
        (f"{CHAT_USER} UNKNOWN", "0 root", "restart", f"{KEY_FILE} belongs to root, not to {CHAT_USER}"),
    ],
)
def test_a_drift_is_mended(wanted: Plan, was: str, now: str, action: str, why: str) -> None:
    if was == "chat\tcontainer":
        lines = [line for line in converged(wanted, HELD) if not line.startswith(was)]
        (change,) = chat_changes(wanted, parse_state(lines))
        assert (change.action, change.reasons) == (action, (why,))
    else:
        assert drifted(wanted, was, now) == (action, (why,))


def test_another_key_makes_it_anew(wanted: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = converged(wanted, HELD)
    monkeypatch.setenv("TOM_KEY", "herd-tom-anew")
    (change,) = chat_changes(wanted, parse_state(lines))
    assert change.reasons == (f"{KEY_FILE} has another text",)
    given = input_of(change, ApplyInput)
    assert [each.text for each in given.keys] == [Secret("herd-tom-anew")]
    assert "herd-tom-anew" not in f"{given!r}{change}{change!r}"


def test_the_page_trusts_the_ca_of_its_gateway(rig: Rig, wanted: Plan, tmp_path: Path) -> None:
    safe = secured(rig, tmp_path).chat
    assert safe
    assert wanted.chat
    (_, root) = read_files(safe)
    assert root.text in [path.read_text() for path in (tmp_path / "ca").iterdir()]
    assert root.text.startswith("-----BEGIN CERTIFICATE-----")
    (volume,) = [
        each for each in yaml.safe_load(safe.file.text)["services"]["page"]["volumes"] if root.path in str(each)
    ]
    assert "ro" in str(volume)
    assert [each.path for each in read_files(wanted.chat)] == [KEY_FILE]


def test_a_rig_without_it_is_asked_and_loses_it(wanted: Plan, rig: Rig) -> None:
    """Accounts and conversations stay."""
    without = plan(rig, LOCK, {"box": rig}, fleet=fleet_of(FLEET.partition("  chat:")[0]))
    assert without.chat is None
    assert "chat_page.inspect" in inspect_text(without)
    state = parse_state(converged(wanted, HELD))
    (change,) = chat_leftovers(without, state)
    assert input_of(change, NoInput) == NoInput()
    assert chat_leftovers(wanted, state) == []
    assert "chat_page.inspect" not in inspect_text(plan(rig, LOCK, {"box": rig}))


def test_docker_is_brought_for_it_alone(rig: Rig) -> None:
    units = Rig.model_validate(
        cpu_rig() | {"instances": {"one": {**cpu_rig()["instances"]["chat"], "backend": "systemd"}}}
    )
    text = FLEET.replace("box.chat", "box.one").replace("box.drafter", "box.one")
    assert plan(units, LOCK, {"box": units}, fleet=fleet_of(text)).runtime
    without = fleet_of(text.partition("  chat:")[0])
    assert plan(units, LOCK, {"box": units}, fleet=without).runtime is None
    assert rig.rig == units.rig


def test_a_tag_is_locked_as_other_images_are(rig: Rig) -> None:
    fleet = fleet_of(FLEET)
    wants = requirements_of(Fleet(rigs={"box": rig}), lambda *_: Place(Path("x")), fleet)
    assert wants.images[TAG].names == {"chat", TAG}
    with pytest.raises(NotLockedError, match=re.escape(f"the image of the chat page ({TAG})")):
        plan(rig, Lock(), {"box": rig}, fleet=fleet)
    pinned = plan(rig, LOCK, {"box": rig}, fleet=fleet).chat
    assert pinned
    assert pinned.image == f"registry.example/open-webui@sha256:{DIGEST}"
    by_digest = fleet_of(FLEET.replace(TAG, f"a@sha256:{DIGEST}"))
    assert not requirements_of(Fleet(rigs={"box": rig}), lambda *_: Place(Path("x")), by_digest).images


@pytest.mark.parametrize("safe", [False, True], ids=["in the clear", "with a CA"])
def test_its_compose_file_says_what_is_meant(rig: Rig, wanted: Plan, tmp_path: Path, safe: bool) -> None:
    """By the schema of its specification; Docker Compose itself reads it on the box."""
    made = (secured(rig, tmp_path) if safe else wanted).chat
    assert made
    text = made.file.text
    schema = json.loads(SPEC.read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(schema).validate(yaml.safe_load(text))
    service = yaml.safe_load(text)["services"]["page"]
    assert (service["read_only"], service["cap_drop"], service["user"]) == (True, ["ALL"], f"{CHAT_USER}:{CHAT_USER}")
    read = {name: value.replace("$$", "$") for name, value in service["environment"].items()}
    assert read == environment(made.gateway, "small", trusts=safe)
    assert made.gateway == ("https://127.0.0.1:8000" if safe else "http://127.0.0.1:8000")
    assert any("root.pem" in str(each) for each in service["volumes"]) is safe


def test_a_message_is_one_request_and_everybody_sees_the_models(wanted: Plan) -> None:
    """Else a model is the administrator's alone, and titles, tags, follow-ups and 21 KB of tools take slots."""
    assert wanted.chat
    told = yaml.safe_load(wanted.chat.file.text)["services"]["page"]["environment"]
    assert told["BYPASS_MODEL_ACCESS_CONTROL"] == "true"
    assert {told[f"ENABLE_{what}_GENERATION"] for what in ("TITLE", "TAGS", "FOLLOW_UP")} == {"false"}
    assert json.loads(told["DEFAULT_MODEL_METADATA"])["capabilities"] == {"builtin_tools": False}


def test_its_shell_hands_keys_on(wanted: Plan, tmp_path: Path) -> None:
    """The entry point as Compose reads it, by a shell, with the files that it is given."""
    assert wanted.chat
    service = yaml.safe_load(wanted.chat.file.text)["services"]["page"]
    (tmp_path / "key").write_text(KEYS["tom"])
    (tmp_path / "secret").write_text("a $ecret")
    start = service["entrypoint"][2].replace("$$", "$").replace("/run/llamaherd", str(tmp_path))
    shown = [
        "sh",
        "-c",
        start,
        "open-webui",
        "sh",
        "-c",
        'printf %s "$OPENAI_API_KEYS|$WEBUI_SECRET_KEY|$1"',
        "x",
        "last",
    ]
    done = subprocess.run(shown, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == f"{KEYS['tom']}|a $ecret|last"


def test_no_key_is_in_the_plan_or_in_what_is_shown(wanted: Plan) -> None:
    (change,) = chat_changes(wanted, parse_state(VIRGIN))
    given = repr(input_of(change, ApplyInput))
    for text in (wanted.model_dump_json(), show_plan(wanted), str(change), repr(change), given):
        assert KEYS["tom"] not in text
    assert "chat page  http on 127.0.0.1:3000, as user tom, small first" in show_plan(wanted)


def test_a_port_that_is_taken_is_refused(wanted: Plan) -> None:
    taken = [*VIRGIN, f"listens\t{3000:04X}"]
    assert any("port 3000 of the chat page" in each.message for each in refusals(wanted, parse_state(taken), {}))
    own = parse_state(converged(wanted, HELD))
    assert not any("chat page" in each.message for each in refusals(wanted, own, {}))


FINE: ProbeOutputs = {
    ("chat container", ""): f"running healthy {CHAT_USER}:{CHAT_USER} sha256:ab",
    ("chat page", ""): '{"status":true}',
    ("chat files", ""): f"400 {CHAT_USER} /k\n400 {CHAT_USER} /s\n700 {CHAT_USER} /d",
}


@pytest.mark.parametrize(
    ("section", "said", "failed"),
    [
        ("chat page", '{"status":true}', []),
        ("chat container", f"running unhealthy {CHAT_USER}:{CHAT_USER} x", ["chat page's container"]),
        ("chat container", "running healthy 0:0 x", ["chat page's container"]),
        ("chat container", "Error: No such object", ["chat page's container"]),
        ("chat page", "curl: (7) Failed to connect", ["chat page"]),
        ("chat files", f"444 {CHAT_USER} /k", ["chat page's files"]),
        ("chat files", "", ["chat page's files"]),
    ],
)
def test_verify_believes_what_is_so(wanted: Plan, section: str, said: str, failed: list[str]) -> None:
    assert wanted.chat
    checks = chat_checks(wanted.chat, {**FINE, (section, ""): said})
    assert [each.name for each in checks if not each.ok] == failed
