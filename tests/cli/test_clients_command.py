"""`herd clients`: what programs are told, as they read it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.cli.users import CLIENTS
from llamaherd.fleet import clients
from tests.support.gateway import KEYS, Upstream, free_port, made, rig_at, running, until
from tests.support.rigs import changed, cpu_rig

FLEET = """\
gateway:
  on: [box]
  listen: 0.0.0.0
  users:
    tom: {key: {env: TOM_KEY}}
    ann: {key: {env: ANN_KEY}, models: [small]}
  models:
    coder: {serve: [box.chat], aliases: [gpt-4o]}
    small: {serve: [box.drafter]}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    rig = changed(cpu_rig(), {"connect": {"host": "box.lan"}, "instances/chat/parallel": 2})
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "box.yaml").write_text(yaml.safe_dump(rig))
    return tmp_path


def told(fleet: Path, client: str, user: str = "tom", *more: str) -> Result:
    return CliRunner().invoke(main, ["clients", client, "--user", user, "-i", str(fleet), *more])


def test_the_command_knows_all_that_there_are() -> None:
    assert tuple(clients.CLIENTS) == CLIENTS
    told = CliRunner().invoke(main, ["clients", "--help"], prog_name="herd").stdout
    (line,) = re.findall(r"PROGRAM is (.*?)\.\n", told, re.DOTALL)
    assert re.split(r", | or ", " ".join(line.split())) == list(CLIENTS)


@pytest.mark.parametrize("client", CLIENTS)
def test_no_key_is_in_what_is_printed(fleet: Path, client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOM_KEY", KEYS["tom"])
    done = told(fleet, client)
    assert done.exit_code == 0, done.output
    assert KEYS["tom"] not in done.output
    assert "HERD_KEY" in done.output
    assert "http://box.lan:8000" in done.stdout


def test_opencode_is_told_models_with_what_a_slot_takes(fleet: Path) -> None:
    whole = json.loads(told(fleet, "opencode").stdout)
    provider = whole["provider"]["herd"]
    assert provider["options"] == {
        "baseURL": "http://box.lan:8000/v1",
        "apiKey": "{env:HERD_KEY}",
        "headerTimeout": False,
    }
    limits = {name: each["limit"] for name, each in provider["models"].items()}
    assert limits == {"coder": {"context": 4096, "output": 1024}, "small": {"context": 4096, "output": 1024}}
    assert whole["model"] == "herd/coder"


def test_a_user_is_told_of_no_other_model(fleet: Path) -> None:
    for client in CLIENTS:
        said = told(fleet, client, "ann").stdout
        assert "small" in said
        assert "coder" not in said


def test_continue_reads_yaml(fleet: Path) -> None:
    whole = yaml.safe_load(told(fleet, "continue").stdout)
    assert whole["schema"] == "v1"
    assert [each["model"] for each in whole["models"]] == ["coder", "small"]
    assert {each["apiKey"] for each in whole["models"]} == {"${{ secrets.HERD_KEY }}"}


def test_aiders_lines_write_what_it_reads(fleet: Path, tmp_path: Path) -> None:
    """By a shell, with a program in aider's place that shows what it was given."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/aider"
    program.write_text('#!/bin/sh\necho "$OPENAI_API_BASE $OPENAI_API_KEY $*"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HERD_KEY": "a key"}
    done = subprocess.run(
        ["sh"],
        input=told(fleet, "aider").stdout,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "http://box.lan:8000/v1 a key --model openai/coder --timeout 3600\n"
    known = json.loads((tmp_path / ".aider.model.metadata.json").read_text())
    assert known["openai/coder"]["max_input_tokens"] == 4096


def test_zed_is_told_models_with_what_a_slot_takes(fleet: Path) -> None:
    done = told(fleet, "zed")
    provider = json.loads(done.stdout)["language_models"]["openai_compatible"]["herd"]
    assert provider["api_url"] == "http://box.lan:8000/v1"
    tokens = {each["name"]: (each["max_tokens"], each["max_output_tokens"]) for each in provider["available_models"]}
    assert tokens == {"coder": (4096, 1024), "small": (4096, 1024)}
    assert 'HERD_API_KEY="$HERD_KEY"' in done.stderr


def environment_of(fleet: Path, client: str, program: str) -> dict[str, str]:
    """What a program's environment is by the lines for a shell, with one in its place that shows it."""
    (fleet / "bin").mkdir()
    (fleet / "bin" / program).write_text("#!/bin/sh\nexec env -0\n")
    (fleet / "bin" / program).chmod(0o755)
    begun = {"PATH": f"{fleet / 'bin'}:{os.environ['PATH']}", "HERD_KEY": "a $key", "ANTHROPIC_API_KEY": "another's"}
    lines = told(fleet, client).stdout
    done = subprocess.run(["sh", "-eu"], input=lines, env=begun, capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)


def test_claude_codes_lines_set_what_it_reads(fleet: Path) -> None:
    has = environment_of(fleet, "claude-code", "claude")
    assert has["ANTHROPIC_BASE_URL"] == "http://box.lan:8000", "it appends /v1/messages itself"
    assert has["ANTHROPIC_AUTH_TOKEN"] == "a $key"
    assert "ANTHROPIC_API_KEY" not in has
    assert has["CLAUDE_CODE_ATTRIBUTION_HEADER"] == "0"
    assert {value for name, value in has.items() if name.startswith("ANTHROPIC_") and "MODEL" in name} == {"coder"}
    assert (has["CLAUDE_CODE_MAX_OUTPUT_TOKENS"], has["CLAUDE_CODE_MAX_CONTEXT_TOKENS"]) == ("1024", "4096")
    assert "CLAUDE_CODE_AUTO_COMPACT_WINDOW" not in has, "what is below 100,000 it takes for that"
    assert has["API_TIMEOUT_MS"] == "3600000"


def test_open_webuis_lines_set_what_it_reads(fleet: Path) -> None:
    has = environment_of(fleet, "open-webui", "open-webui")
    assert (has["OPENAI_API_BASE_URLS"], has["OPENAI_API_KEYS"]) == ("http://box.lan:8000/v1", "a $key")
    assert (has["ENABLE_OLLAMA_API"], has["ENABLE_PERSISTENT_CONFIG"]) == ("false", "false")
    assert (has["DEFAULT_MODELS"], has["AIOHTTP_CLIENT_TIMEOUT"]) == ("coder", "3600")
    assert has["BYPASS_MODEL_ACCESS_CONTROL"] == "true"
    assert json.loads(has["DEFAULT_MODEL_METADATA"]) == {"capabilities": {"builtin_tools": False}}
    assert {has[f"ENABLE_{what}_GENERATION"] for what in ("TITLE", "TAGS", "FOLLOW_UP")} == {"false"}


def test_librechat_reads_yaml(fleet: Path) -> None:
    whole = yaml.safe_load(told(fleet, "librechat").stdout)
    (endpoint,) = whole["endpoints"]["custom"]
    assert isinstance(whole["version"], str)
    assert (endpoint["apiKey"], endpoint["baseURL"]) == ("${HERD_KEY}", "http://box.lan:8000/v1")
    assert endpoint["models"] == {"default": ["coder", "small"], "fetch": False}
    assert {name: each["context"] for name, each in endpoint["tokenConfig"].items()} == {"coder": 4096, "small": 4096}


def test_litellm_reads_yaml(fleet: Path) -> None:
    done = told(fleet, "litellm")
    whole = yaml.safe_load(done.stdout)
    assert whole["general_settings"] == {"master_key": "os.environ/LITELLM_MASTER_KEY"}, "else it does not start"
    assert "LITELLM_MASTER_KEY" in done.stderr
    models = whole["model_list"]
    assert {each["model_name"]: each["litellm_params"]["model"] for each in models} == {
        "coder": "openai/coder",
        "small": "openai/small",
    }
    assert {each["litellm_params"]["api_key"] for each in models} == {"os.environ/HERD_KEY"}
    assert {each["litellm_params"]["api_base"] for each in models} == {"http://box.lan:8000/v1"}
    assert {(each["model_info"]["max_input_tokens"], each["model_info"]["max_output_tokens"]) for each in models} == {
        (4096, 1024)
    }


def test_the_program_in_python_is_one(fleet: Path) -> None:
    assert ast.parse(told(fleet, "openai-python").stdout)


def test_curls_lines_get_an_answer(fleet: Path, tmp_path: Path) -> None:
    """As they are printed, against the real HAProxy."""
    server = Upstream()
    text = f"gateway: {{on: [box], port: {free_port()}, users: {{tom: {{key: {{env: A}}}}}}, "
    plan = made(text + "models: {coder: {serve: [box.one]}}}", [rig_at({"one": server.port})])
    (tmp_path / "gateway").mkdir()
    try:
        with running(plan, tmp_path / "gateway") as gateway:
            until(lambda: gateway.ask().status == 200)
            lines = told(fleet, "curl", "tom", "--url", f"http://127.0.0.1:{plan.port}/v1/").stdout
            environment = {"PATH": os.environ["PATH"], "HERD_KEY": KEYS["tom"]}
            done = subprocess.run(["sh"], input=lines, env=environment, capture_output=True, text=True, check=True)
    finally:
        server.stop()
    assert json.loads(done.stdout) == {"by": server.port}
    sent = json.loads(server.seen[-1].body)
    assert (sent["model"], sent["max_tokens"]) == ("coder", 256)


def test_a_gateway_for_its_own_host_is_said_to_be_one(fleet: Path) -> None:
    (fleet / "fleet.yaml").write_text(FLEET.replace("  listen: 0.0.0.0\n", ""))
    done = told(fleet, "curl")
    assert "http://127.0.0.1:8000" in done.stdout
    assert "ssh -L" in done.stderr


def test_of_two_gateways_with_one_address_that_is_told(fleet: Path) -> None:
    rig = (fleet / "box.yaml").read_text()
    for name, address in (("box", "192.168.1.20"), ("porch", "192.168.1.21")):
        declared = yaml.safe_load(rig) | {"rig": name, "store": {"share": {"address": address}}}
        for each in declared["instances"].values():
            each |= {"listen": "0.0.0.0", "api_key": {"env": "K"}}
        (fleet / f"{name}.yaml").write_text(yaml.safe_dump(declared))
    text = FLEET.replace("on: [box]", "on: [box, porch]\n  address: 192.168.1.50")
    (fleet / "fleet.yaml").write_text(text)
    assert "http://192.168.1.50:8000/v1" in told(fleet, "curl").stdout


@pytest.mark.parametrize(("user", "said"), [("tim", "did you mean `tom`"), ("bob", "no user `bob`")])
def test_who_is_no_user_is_told_so(fleet: Path, user: str, said: str) -> None:
    done = told(fleet, "curl", user)
    assert done.exit_code == 2
    assert re.search(re.escape(said), done.output)
