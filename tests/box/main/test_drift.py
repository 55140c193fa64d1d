"""What was changed by hand is as declared after one run, and what was not changed keeps running."""

from tests.box.bench import UNIT, Bench


def test_a_diff_says_what_a_run_then_does(converged: Bench) -> None:
    before = converged.running()
    converged.sh(f"echo '# somebody was here' >>{UNIT} && systemctl disable llama-chat")
    said = converged.herd("plan", "box", "-v")
    assert said.code == 2, said.output
    assert "box: 1 change\n" in said.output
    assert f"restart server llama-chat: {UNIT} has another text" in said.output
    assert "    -# somebody was here\n" in said.output
    converged.unchanged(before)
    converged.repair()
    converged.unchanged(before, "chat")
    assert converged.herd("plan", "box").code == 0


def test_a_unit_that_was_stopped_is_started(converged: Bench) -> None:
    before = converged.running()
    converged.sh("systemctl stop llama-chat")
    converged.repair()
    converged.unchanged(before, "chat")
    assert converged.answers("chat")


def test_a_unit_that_was_edited_and_runs_so_is_what_it_shall_be_again(converged: Bench) -> None:
    before, text = converged.running(), converged.sh(f"cat {UNIT}")
    converged.sh(f"sed -i 's/--ctx-size 8192/--ctx-size 512/' {UNIT}")
    converged.sh("systemctl daemon-reload && systemctl restart llama-chat")
    assert '"n_ctx":512' in converged.ask("chat", "/props", key=converged.key())[1]
    converged.repair()
    assert converged.sh(f"cat {UNIT}") == text
    converged.unchanged(before, "chat")
    assert '"n_ctx":8192' in converged.ask("chat", "/props", key=converged.key())[1]


def test_a_drop_in_is_set_aside_and_what_it_opened_is_shut(converged: Bench) -> None:
    """With it, all that opens the host to others, mended by the same run."""
    before = converged.running()
    converged.sh(
        "mkdir -p /etc/systemd/system/llama-chat.service.d; cd /etc/systemd/system/llama-chat.service.d;"
        " { echo '[Service]'; echo ExecStart=; sed -n 's/--api-key-file [^ ]*//; /^ExecStart=/p' ../llama-chat.service;"
        " } >override.conf; systemctl daemon-reload; systemctl restart llama-chat;"
        " chmod 777 /etc/llamaherd/keys; usermod -s /bin/bash -aG docker llama-chat"
    )
    assert converged.ask("chat", "/props")[0] == 200
    converged.repair()
    converged.unchanged(before, "chat")
    assert converged.ask("chat", "/props")[0] == 401
    assert converged.sh("ls /var/lib/llamaherd/set-aside | grep -c llama-chat.service.d_override.conf") != "0"
    assert converged.sh("stat -c %a /etc/llamaherd/keys") == "711"
    assert converged.sh("id -nG llama-chat; getent passwd llama-chat | cut -d : -f 7").split() == [
        "llama-chat",
        "/usr/sbin/nologin",
    ]


def test_a_key_that_others_could_read_is_its_servers_alone(converged: Bench) -> None:
    converged.sh("chmod 0644 /etc/llamaherd/keys/chat")
    converged.repair()
    assert converged.sh("stat -c '%a %U' /etc/llamaherd/keys/chat") == "400 llama-chat"
    assert converged.answers("chat")


def test_a_model_with_one_wrong_byte_is_fetched_again(converged: Bench) -> None:
    model = converged.sh("ls /var/lib/llamaherd/models/local/*/tiny-moe.gguf")
    chat = converged.running()["chat"]
    sha256 = converged.rig()["models"]["tiny-moe"]["sha256"]
    converged.sh(f"printf x | dd of={model} bs=1 seek=5000000 conv=notrunc status=none")
    converged.repair()
    assert converged.sh(f"sha256sum {model}").split()[0] == sha256
    assert converged.answers("drafter").startswith("abcdefgh")
    assert converged.mapped("drafter").split() == [converged.sh(f"stat -c %i {model}")]
    assert converged.running()["chat"] == chat


def test_another_context_restarts_that_instance_only(bench: Bench) -> None:
    before = bench.running()
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 6144
    bench.declare(rig)
    bench.repair()
    bench.unchanged(before, "chat")
    assert '"n_ctx":6144' in bench.ask("chat", "/props", key=bench.key())[1]


def test_instances_that_are_no_longer_declared_are_gone_and_come_back(bench: Bench) -> None:
    before = bench.running()
    rig = bench.rig()
    del rig["instances"]["ik-chat"], rig["instances"]["drafter"]
    bench.declare(rig)
    bench.repair()
    assert bench.running()["chat"] == before["chat"]
    assert bench.sh("ls /etc/systemd/system/llama-*.service") == UNIT
    assert bench.sh("ls /etc/llamaherd/compose") == ""
    assert bench.sh("docker ps -aq") == ""
    assert bench.sh("ss -Hltn '( sport = :8081 or sport = :8082 )'") == ""
    again = bench.deploy()
    assert (again.code, again.changes) == (0, 0), again.output
    bench.declare(bench.rig())
    bench.repair()
    assert bench.running()["chat"] == before["chat"]
    assert bench.answers("drafter").startswith("abcdefgh")
    assert bench.answers("ik-chat")
