"""A group on a real host: two models that one llama-server has in turn, asked directly and through the gateway."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from llamaherd.measure.results.store import read_result
from tests.box.bench import Bench, Declared
from tests.support.envelope import the_rig

PORT, GATEWAY_PORT = 8094, 8095
GEMMA, TINY = "gemma-3-270m", "tiny-moe"
UNIT = "llama-card"
USER = "gus"
"""Nobody else of this folder: keys of users stay beside the inventory."""
FLEET = f"""
gateway:
  on: [box]
  port: {GATEWAY_PORT}
  models:
    {GEMMA}: {{serve: [box.writer]}}
    {TINY}: {{serve: [box.guesser]}}
"""


def grouped(bench: Bench) -> Declared:
    """The rig with two instances more, in a group."""
    rig = bench.rig()
    alike = {"engine": "main", "port": PORT, "group": "card", "threads": 1, "api_key": {"file": str(bench.key_file)}}
    told = rig["instances"]["chat"]["extra_args"]
    rig["instances"]["writer"] = {**alike, "model": GEMMA, "context": 2048, "extra_args": told}
    rig["instances"]["guesser"] = {
        **alike,
        "model": TINY,
        "context": 1024,
        "parallel": 2,
        "draft": {"mtp": 2},
        "extra_args": ["--cache-ram", "64"],
    }
    return rig


@pytest.fixture(scope="module")
def group(converged: Bench) -> Iterator[Bench]:
    """The rig with the group, and a gateway before it. Afterwards nothing of either is left."""
    keys = converged.sh("ls /etc/llamaherd/keys")
    (converged.folder / "fleet.yaml").write_text(FLEET)
    converged.declare(grouped(converged))
    try:
        made = converged.herd("users", "add", USER, "--streams", "6")
        assert made.code == 0, made.output
        ended = converged.up()
        assert ended.code == 0, ended.output
        yield converged
    finally:
        (converged.folder / "fleet.yaml").write_text("gateway: null\n")
        converged.declare(converged.rig())
        ended = converged.up()
        (converged.folder / "fleet.yaml").unlink()
    assert ended.code == 0, ended.output
    assert converged.sh(f"systemctl is-active {UNIT}", check=False) in ("inactive", "unknown")
    assert converged.sh("ls /etc/llamaherd/keys") == keys


def loaded(bench: Bench) -> list[str]:
    """The models' files that the server's children have been started with."""
    said = bench.sh(
        f"for pid in $(cat /proc/$(systemctl show -P MainPID {UNIT})/task/*/children); do"
        " tr '\\0' '\\n' </proc/$pid/cmdline | grep -A 1 -x -e --model | tail -n 1; done"
    )
    return said.split()


def asking(
    bench: Bench, model: str, *, tokens: int = 8, port: int = PORT, key: str = "", out: str = "/dev/stdout"
) -> str:
    """The command line that asks for an answer of so many tokens, and ends with the status."""
    wanted = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": tokens}
    body = json.dumps(wanted | {"ignore_eos": True})
    return (
        f"curl -s -m 300 -o {out} -w '%{{http_code}} %header{{x-herd-instance}}\\n' -d '{body}' "
        f"-H 'Content-Type: application/json' -H 'Authorization: Bearer {key or bench.key()}' http://127.0.0.1:{port}/v1/chat/completions"
    )


def test_models_are_loaded_one_at_a_time_and_by_name(group: Bench) -> None:
    for model, file in ((TINY, "tiny-moe.gguf"), (GEMMA, "gemma"), (TINY, "tiny-moe.gguf")):
        assert group.sh(asking(group, model, out="/tmp/answer")).strip() == "200"
        assert json.loads(group.sh("cat /tmp/answer"))["model"] == model
        (running,) = loaded(group)
        assert file in running
    assert group.sh(asking(group, "no-such", out="/dev/null")).strip() == "400"


def test_a_swap_waits_for_answers_that_have_begun(group: Bench) -> None:
    group.sh(asking(group, GEMMA, out="/dev/null"))
    long, short = asking(group, GEMMA, tokens=300, out="/tmp/long"), asking(group, TINY, out="/tmp/short")
    said = group.sh(
        f"{long} >/tmp/long.status & sleep 1; {short}; date +%s.%N >/tmp/short.at; wait; cat /tmp/long.status"
    )
    assert said.split() == ["200", "200"]
    assert json.loads(group.sh("cat /tmp/long"))["usage"]["completion_tokens"] == 300
    assert group.sh("find /tmp/long.status -newer /tmp/short") == "", "it had ended before the other model answered"


def test_a_second_run_changes_nothing_and_verify_asks_each_model(group: Bench) -> None:
    again = group.deploy()
    assert (again.code, again.changes) == (0, 0), again.output
    verified = group.herd("verify", "box", "--json")
    assert verified.code == 0, verified.output
    report = the_rig(verified.output)
    (card,) = [each for each in report["instances"] if each["name"] == "card"]
    checks = {check["name"]: check for check in card["checks"]}
    assert {f"{name}: {what}" for name in ("writer", "guesser") for what in ("model", "context", "chat")} <= set(checks)
    assert "guesser: drafts" in checks
    assert all(check["ok"] for check in card["checks"]), card


def test_the_gateway_sends_both_models_to_the_one_server(group: Bench) -> None:
    key = (group.folder / "keys/users" / USER).read_text().strip()
    both = [asking(group, model, port=GATEWAY_PORT, key=key, out="/dev/null") for model in (GEMMA, TINY) * 3]
    said = group.sh(f"{' & '.join(both)} & wait")
    assert said.splitlines() == ["200 box.card"] * 6
    status = the_rig(group.herd("gateway", "status", "--json").output)
    assert {
        (model["name"], server["name"], server["most"]) for model in status["models"] for server in model["servers"]
    } == {
        (GEMMA, "box.card", 1),
        (TINY, "box.card", 1),
    }


def test_an_instance_is_measured_once_its_model_is_loaded(group: Bench) -> None:
    group.sh(asking(group, TINY, out="/dev/null"))
    ended = group.herd("bench", "box/writer", "--anyway", "--time", "30s")
    assert ended.code == 0, ended.output
    assert "while group card had its model loaded" in " ".join(ended.output.split())
    (path,) = group.folder.glob("results/box/writer/*.json")
    found = read_result(path)
    assert (found.provenance.model, found.provenance.server.group) == (GEMMA, "card")
    assert (found.provenance.server.context, found.provenance.server.slots) == (2048, 1)
    assert any(run.predicted_n for cell in found.cells for run in cell.counted)
    (model,) = loaded(group)
    assert "gemma" in model
    (start,) = found.starts
    child = group.sh(f"cat /proc/$(systemctl show -P MainPID {UNIT})/task/*/children").strip()
    assert (start.process or "").partition("@")[0] == child, "what is watched is the process of the model"


def test_an_instance_is_compared_as_a_server_of_its_own(group: Bench) -> None:
    words = ("--run", "box/writer", "--with", "ubatch=128", "--cells", "code", "--budget", "30s", "--yes")
    ended = group.herd("compare", *words)
    assert ended.code == 0, ended.output
    assert f"{UNIT} is stopped meanwhile" in ended.output
    assert f"{UNIT} is as before, after" in ended.output
    assert group.sh("systemctl list-units --all --plain --no-legend 'llamaherd-arm*'") == ""
    assert group.sh(asking(group, TINY, out="/dev/null")).strip() == "200"
    again = group.up("--yes")
    assert (again.code, again.changes) == (0, 0), again.output


@pytest.mark.parametrize(("model", "states"), [(GEMMA, ("serves", "waits")), (TINY, ("waits", "serves"))])
def test_status_shows_which_one_is_loaded(group: Bench, model: str, states: tuple[str, str]) -> None:
    group.sh(asking(group, model, out="/dev/null"))
    ended = group.herd("status", "--json")
    assert ended.code == 0, ended.output
    rig = the_rig(ended.output)
    found = {each["name"]: (each["state"], each["group"]) for each in rig["instances"]}
    assert (found["writer"], found["guesser"]) == ((states[0], "card"), (states[1], "card"))
    assert found["chat"] == ("serves", None)


def test_what_one_model_cannot_do_changes_nothing(group: Bench) -> None:
    before = group.sh(f"systemctl show -P MainPID {UNIT}")
    rig = grouped(group)
    rig["instances"]["guesser"]["extra_args"] += ["--chat-template-file", "/no/such/file"]
    group.declare(rig)
    ended = group.up()
    assert ended.code == 1
    assert re.search(r"does not accept its arguments", ended.output)
    assert group.sh(f"systemctl show -P MainPID {UNIT}") == before
    group.declare(grouped(group))
    assert group.up().code == 0
    assert group.sh(asking(group, TINY, out="/dev/null")).strip() == "200"


def test_a_model_that_does_not_load_is_taken_back(group: Bench) -> None:
    rig = grouped(group)
    # llama-server takes the argument, and ends as it loads the model.
    rig["instances"]["writer"]["extra_args"] = ["--override-kv", "tokenizer.ggml.model=str:nothing"]
    group.declare(rig)
    ended = group.up()
    assert ended.code == 1, ended.output
    assert f"{UNIT} serves again as before" in ended.output
    assert group.sh(asking(group, GEMMA, out="/dev/null")).strip() == "200"
    group.declare(grouped(group))
    assert group.up().code == 0


def test_preset_files_that_nothing_names_any_more_are_pruned(group: Bench) -> None:
    """The unit names one, and what is kept of it may name another: the version before, until its probation ends."""
    for context in (1536, 1792, 2048):
        changed = grouped(group)
        changed["instances"]["writer"]["context"] = context
        group.declare(changed)
        assert group.up().code == 0
    listing = "ls /etc/llamaherd/presets"
    group.sh("systemctl stop llamaherd-probation-card")
    files = f"/etc/systemd/system/{UNIT}.service /var/lib/llamaherd/kept/{UNIT}/last/file"
    before = f"/var/lib/llamaherd/kept/{UNIT}/before/file"
    named = set(group.sh(f"grep -hoE 'card-[0-9a-f]{{12}}[.]ini' {files} {before}").split())
    old = set(group.sh(listing).split()) - named
    assert old
    ended = group.herd("prune", "box", "--yes", "--keep", "0")
    assert ended.code == 0, ended.output
    assert all(f"preset {name}" in ended.output for name in old)
    assert set(group.sh(listing).split()) == named
    assert group.sh(asking(group, GEMMA, out="/dev/null")).strip() == "200"
