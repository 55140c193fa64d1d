"""What serves, asked by testinfra and by curl: nothing here believes what the deployment says of itself."""

import hashlib
import json
import re
import threading

import pytest
from testinfra.host import Host

from llamaherd.host.responses import decoded_per_second
from llamaherd.layout import container_user
from tests.box.bench import PORTS, Bench, Ended
from tests.support.envelope import the_rig

UNITS = ["llama-chat", "llama-ik-chat"]
INSTANCES = ["chat", "drafter", "ik-chat"]
CONTEXTS = {"chat": 8192, "drafter": 4096, "ik-chat": 4096}


@pytest.mark.parametrize("unit", UNITS)
def test_units_run_now_and_after_a_reboot(asked: Host, unit: str) -> None:
    service = asked.service(f"{unit}.service")
    assert service.is_running
    assert service.is_enabled


@pytest.mark.parametrize("unit", UNITS)
def test_units_are_hardened(asked: Host, unit: str) -> None:
    said = asked.check_output(f"systemd-analyze security --no-pager {unit}.service")
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert exposure
    assert float(exposure[1]) <= 2.0, said


@pytest.mark.parametrize("unit", UNITS)
def test_units_run_as_a_user_who_can_do_nothing_else(asked: Host, converged: Bench, unit: str) -> None:
    status = converged.sh(f"cat /proc/$(systemctl show -P MainPID {unit})/status")
    user = asked.user(unit)
    assert re.search(rf"^Uid:\s+{user.uid}\s", status, re.MULTILINE), status
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE), status
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE), status
    assert user.shell == "/usr/sbin/nologin"
    assert 0 < user.uid < 1000


@pytest.mark.parametrize("instance", INSTANCES)
def test_only_this_host_can_reach_them(asked: Host, instance: str) -> None:
    lines = asked.check_output(f"ss -Hltn sport = :{PORTS[instance]}").splitlines()
    assert [line.split()[3] for line in lines] == [f"127.0.0.1:{PORTS[instance]}"]


def test_the_container_can_do_nothing_else(converged: Bench) -> None:
    (container,) = json.loads(converged.sh("docker inspect llama-drafter"))
    config, limits = container["Config"], container["HostConfig"]
    assert limits["ReadonlyRootfs"]
    assert limits["CapDrop"] == ["ALL"]
    assert not limits["CapAdd"]
    assert not limits["Privileged"]
    assert "no-new-privileges:true" in limits["SecurityOpt"]
    assert int(config["User"].partition(":")[0]) >= 1000
    assert [mount["RW"] for mount in container["Mounts"] if mount["Type"] == "bind"] == [False]
    assert container["State"]["Health"]["Status"] == "healthy"


def test_the_process_in_the_container_is_so_confined(converged: Bench) -> None:
    status = converged.sh("cat /proc/$(docker inspect -f '{{.State.Pid}}' llama-drafter)/status")
    assert re.search(rf"^Uid:\s+{container_user('drafter')}\s", status, re.MULTILINE), status
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE), status
    assert re.search(r"^CapBnd:\s+0+$", status, re.MULTILINE), status
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE), status


def test_the_drafter_recites_the_alphabet(converged: Bench) -> None:
    assert converged.answers("drafter").startswith("abcdefgh")


@pytest.mark.parametrize("instance", INSTANCES)
def test_the_context_is_the_declared_one(converged: Bench, instance: str) -> None:
    status, body = converged.ask(instance, "/props", key=converged.key())
    assert status == 200, body
    assert json.loads(body)["default_generation_settings"]["n_ctx"] == CONTEXTS[instance]


@pytest.mark.parametrize(
    ("instance", "model"), [("chat", "gemma-3-270m"), ("drafter", "tiny-moe"), ("ik-chat", "gemma-3-270m")]
)
def test_the_model_bears_its_declared_name(converged: Bench, instance: str, model: str) -> None:
    status, body = converged.ask(instance, "/v1/models", key=converged.key())
    assert status == 200, body
    assert [entry["id"] for entry in json.loads(body)["data"]] == [model]


@pytest.mark.parametrize("instance", INSTANCES)
def test_a_chat_streams(converged: Bench, instance: str) -> None:
    data = '{"messages":[{"role":"user","content":"Count."}],"max_tokens":8,"stream":true}'
    status, body = converged.ask(instance, "/v1/chat/completions", data, converged.key(), stream=True)
    assert status == 200, body
    chunks = [line for line in body.splitlines() if line.startswith("data: {")]
    assert len(chunks) >= 3, body
    assert "data: [DONE]" in body


def test_drafts_are_made_and_accepted(converged: Bench) -> None:
    data = '{"messages":[{"role":"user","content":"Go"}],"max_tokens":24}'
    _, body = converged.ask("drafter", "/v1/chat/completions", data)
    timings = json.loads(body)["timings"]
    assert timings["draft_n"] > 0
    assert timings["draft_n_accepted"] > 0


@pytest.mark.parametrize(("unit", "kind"), [("llama-chat", "llama.cpp"), ("llama-ik-chat", "ik_llama.cpp")])
def test_what_runs_is_what_its_manifest_says(asked: Host, unit: str, kind: str) -> None:
    running = asked.check_output(f"readlink /proc/$(systemctl show -P MainPID {unit})/exe")
    assert re.fullmatch(rf"/opt/llamaherd/builds/{kind}-[0-9a-f]{{12}}/bin/llama-server", running)
    folder = running.removesuffix("/bin/llama-server")
    manifest = json.loads(asked.file(f"{folder}/manifest.json").content_string)
    assert manifest["id"] == folder.rpartition("/")[2]
    assert manifest["kind"] == kind
    assert manifest["seconds"] > 0
    assert manifest["compiler"]
    assert "llama-server" in manifest["sha256"]
    for name, sha256 in manifest["sha256"].items():
        binary = asked.file(f"{folder}/bin/{name}")
        assert binary.sha256sum == sha256
        assert (binary.user, binary.mode) == ("root", 0o755)


def test_the_key_is_its_servers_alone(asked: Host) -> None:
    key = asked.file("/etc/llamaherd/keys/chat")
    assert (key.user, key.mode) == ("llama-chat", 0o400)
    assert asked.file("/etc/llamaherd/keys").mode == 0o711
    assert not asked.run("sudo -u nobody cat /etc/llamaherd/keys/chat").succeeded


def test_the_most_talkative_run_does_not_tell_the_key(converged: Bench, first_run: Ended) -> None:
    assert converged.key() not in first_run.output


def test_a_new_key_counts_at_once_and_shows_nowhere_meanwhile(bench: Bench) -> None:
    old, new = bench.key(), "canary-" + hashlib.sha256(bench.key().encode()).hexdigest()
    before = bench.running()
    bench.sh(f"umask 077; printf '{old}\\n{new}' >/run/canary; rm -f /run/leaks /run/enough")
    look = (
        "until [ -e /run/enough ]; do"
        " grep -lF -f /run/canary /proc/[0-9]*/cmdline /proc/[0-9]*/environ >>/run/leaks 2>/dev/null; done; true"
    )
    watcher = threading.Thread(target=bench.sh, args=(look,))
    watcher.start()
    try:
        bench.key_file.write_text(f"{new}\n")
        ended = bench.deploy("-vvv", "--diff")
    finally:
        bench.sh("touch /run/enough")
        watcher.join()
        leaks = bench.sh("cat /run/leaks; rm -f /run/canary /run/leaks /run/enough", check=False)
        bench.key_file.write_text(f"{old}\n")
    assert ended.code == 0, ended.output
    assert new not in ended.output
    assert leaks == ""
    assert bench.sh("cat /etc/llamaherd/keys/chat") == new
    bench.unchanged(before, "chat")
    assert bench.ask("chat", "/props", key=new)[0] == 200
    assert bench.ask("chat", "/props", key=old)[0] == 401


def test_what_is_being_answered_when_a_change_comes_ends_first(bench: Bench) -> None:
    rig = bench.rig()
    rig["instances"]["chat"] |= {"context": 3584, "drain": 120}
    bench.declare(rig)
    bench.sh(
        'umask 077; echo \'{"prompt": "Once", "n_predict": 900, "ignore_eos": true, "stream": true}\' >/run/asked;'
        f" printf 'header = \"Authorization: Bearer %s\"\n' '{bench.key()}' >/run/curlrc;"
        " systemd-run -q --unit=stream sh -c"
        " 'curl -K /run/curlrc -sN -d @/run/asked http://127.0.0.1:8080/completion >/run/stream';"
        " until [ -s /run/stream ]; do sleep 0.1; done"
    )
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert "waiting for 1 request in flight, for up to 120 s" in ended.output
    assert '"stop_type":"limit"' in bench.sh("tail -n 2 /run/stream")
    assert '"n_ctx":3584' in bench.ask("chat", "/props", key=bench.key())[1]


def test_speeds_of_both_engines_are_counted_alike(converged: Bench) -> None:
    """By what each says of the same answer: only one of their own figures leaves the first token out."""
    data = '{"messages":[{"role":"user","content":"Count to one hundred."}],"max_tokens":12,"ignore_eos":true}'
    for name, counted in (("chat", 11), ("ik-chat", 12)):
        status, body = converged.ask(name, "/v1/chat/completions", data, converged.key() if name == "chat" else "")
        assert status == 200, body
        timings = json.loads(body)["timings"]
        seconds = timings["predicted_ms"] / 1000
        assert timings["predicted_per_second"] == pytest.approx(counted / seconds, rel=1e-3)
        assert decoded_per_second(timings) == pytest.approx(11 / seconds)


def test_what_listens_for_others_and_is_not_declared_is_named(bench: Bench) -> None:
    """The only one that is declared for others is the SSH server."""

    def exposed() -> tuple[bool, str]:
        said = bench.herd("verify", "box", "--json").output
        (check,) = [each for each in the_rig(said)["machine"] if each["name"] == "exposed"]
        return check["doubt"], check["detail"]

    assert exposed() == (False, "ssh (22)")
    answers = "curl -so /dev/null http://127.0.0.1:8099"
    bench.sh(f"systemd-run -q --unit=stray python3 -m http.server 8099; until {answers}; do sleep 0.1; done")
    try:
        assert exposed() == (True, "python3 (stray.service) listens at 8099 for others: not declared")
    finally:
        bench.sh("systemctl stop stray")
