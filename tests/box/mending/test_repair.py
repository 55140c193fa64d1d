"""What someone breaks by hand is whole again after one run, and what was not broken goes on running."""

from collections.abc import Iterator

import pytest

from tests.box.bench import Bench

UNIT = "/etc/systemd/system/llama-chat.service"
PROJECT = "/etc/llamaherd/compose/drafter/compose.yaml"
GEMMA = "/var/lib/llamaherd/models/local/*/gemma-3-270m-q4_k_m.gguf"
SERVER = "/opt/llamaherd/builds/llama.cpp-*/bin/llama-server"


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left_to_do(converged: Bench) -> Iterator[None]:
    """After all that was broken and repaired here, a run finds nothing to do."""
    yield
    converged.declare(converged.rig())
    ended = converged.deploy()
    assert ended.code == 0, ended.output
    assert ended.changes == 0, ended.output


def test_a_container_that_never_ran_is_seen_and_removed(converged: Bench) -> None:
    """A run that was killed may leave one: it has no health yet, and must not hide the others."""
    before = converged.running()
    image = converged.sh("docker ps --format '{{.Image}}' --filter name=llama-drafter")
    converged.sh(f"docker create --label llamaherd.spec=x --name llama-left {image} sleep 1")
    said = converged.herd("plan", "box")
    assert said.code == 2, said.output
    assert said.output.endswith("box: 1 change\n  - left  it is not declared, drift\n")
    converged.repair()
    converged.unchanged(before)
    assert "llama-left" not in converged.sh("docker ps -a --format '{{.Names}}'")


def test_a_unit_that_was_disabled_is_enabled_and_not_restarted(converged: Bench) -> None:
    before = converged.running()
    converged.sh("systemctl disable llama-chat")
    converged.repair()
    converged.unchanged(before)
    assert converged.sh("systemctl is-enabled llama-chat") == "enabled"


def test_a_unit_file_that_was_deleted_is_written(converged: Bench) -> None:
    before, text = converged.running(), converged.sh(f"cat {UNIT}")
    converged.sh(f"rm {UNIT}")
    converged.repair()
    assert converged.sh(f"cat {UNIT}") == text
    assert converged.sh("systemctl is-active llama-chat") == "active"
    assert converged.running()["ik-chat"] == before["ik-chat"]
    assert converged.running()["drafter"] == before["drafter"]


def test_a_unit_that_runs_what_its_file_no_longer_says_is_restarted(converged: Bench) -> None:
    """Edited, restarted, and the file put back: the file is right and the process is not."""
    text = converged.sh(f"cat {UNIT}")
    converged.sh(f"cp -a {UNIT} /run/unit; sed -i 's/--ctx-size 8192/--ctx-size 512/' {UNIT}")
    converged.sh(f"systemctl daemon-reload; systemctl restart llama-chat; cat /run/unit >{UNIT}; rm /run/unit")
    converged.repair()
    assert converged.sh(f"cat {UNIT}") == text
    assert '"n_ctx":8192' in converged.ask("chat", "/props", key=converged.key())[1]


@pytest.mark.rare
def test_a_variable_that_a_server_was_started_with_is_gone_again(converged: Bench) -> None:
    """By a drop-in that is no longer there: nothing but the process tells."""
    before = converged.running()
    converged.sh(
        "systemctl set-environment LLAMA_ARG_N_PREDICT=3; systemctl restart llama-chat;"
        " systemctl unset-environment LLAMA_ARG_N_PREDICT"
    )
    assert "other variables than the declared ones: LLAMA_ARG_N_PREDICT" in converged.herd("verify", "box").output
    converged.repair()
    converged.unchanged(before, "chat")


def test_permissions_are_set_right_under_servers_that_run(converged: Bench) -> None:
    before = converged.running()
    # Other tests may have left builds beside the one that serves.
    build = converged.sh(f"sed -n 's/^ExecStart=\\([^ ]*\\).*/\\1/p' {UNIT}")
    model = converged.sh(f"ls {GEMMA}")
    converged.sh(
        f"chmod 666 {UNIT} {PROJECT}; chmod 777 /etc/llamaherd/keys/chat; chmod 600 {model};"
        f" chmod 777 {build}; cp /bin/true {build}.so"
    )
    said = converged.herd("verify", "box").output
    for words in (
        f"{UNIT} is not root's alone to write (mode 666, of root)",
        f"{PROJECT} is not root's alone to write (mode 666, of root)",
        "/etc/llamaherd/keys/chat is not llama-chat's alone (mode 777, of llama-chat)",
        f"its user may not read {model}",
        f"{build} is not root's alone to write (mode 777, of root)",
        f"{build}.so is no part of what was built",
    ):
        assert words in said
    converged.repair()
    converged.unchanged(before)
    ended = converged.herd("verify", "box")
    assert ended.code == 0, ended.output


@pytest.mark.rare
def test_a_model_that_is_somebody_elses_or_a_link_comes_anew(converged: Bench) -> None:
    sha256 = converged.rig()["models"]["tiny-moe"]["sha256"]
    model = converged.sh("ls /var/lib/llamaherd/models/local/*/tiny-moe.gguf")
    for broken in (f"chown owner {model}; chmod 600 {model}", f"mv {model} /root/mine; ln -s /root/mine {model}"):
        converged.sh(broken)
        assert converged.herd("verify", "box").code == 1
        converged.repair()
        assert converged.sh(f"stat -c '%F %a %U' {model}; sha256sum {model}").split()[:4] == [
            "regular",
            "file",
            "644",
            "root",
        ]
        assert converged.sh(f"sha256sum {model}").split()[0] == sha256


@pytest.mark.rare
def test_files_of_a_time_to_come_restart_nothing(converged: Bench) -> None:
    before = converged.running()
    converged.sh(f"touch -d 'next year' {UNIT} {PROJECT} /etc/llamaherd/keys/chat; systemctl daemon-reload")
    for _ in range(2):
        ended = converged.deploy()
        assert (ended.code, ended.changes) == (0, 0), ended.output
    converged.unchanged(before)
    converged.sh(f"touch {UNIT} {PROJECT} /etc/llamaherd/keys/chat; systemctl daemon-reload")


def test_a_server_that_hangs_is_started_anew(converged: Bench) -> None:
    before = converged.running()
    converged.sh("kill -STOP $(systemctl show -P MainPID llama-chat)")
    converged.repair()
    converged.unchanged(before, "chat")
    assert converged.answers("chat")


def test_a_container_that_is_held_to_less_by_hand_is_made_anew(converged: Bench) -> None:
    before = converged.running()
    converged.sh("docker update --restart no --cpus 0.5 llama-drafter")
    converged.repair()
    converged.unchanged(before, "drafter")
    said = converged.sh("docker inspect -f '{{.HostConfig.RestartPolicy.Name}} {{.HostConfig.NanoCpus}}' llama-drafter")
    assert said == "unless-stopped 0"


@pytest.mark.parametrize(
    ("broken", "seen"),
    [
        (["rm -rf /opt/llamaherd/libexec"], ["/opt/llamaherd/libexec/wait-healthy is not there"]),
        (
            ["rm wait-healthy", "echo >>fetcher/llamaherd/onhost/fetch/job.py", "chmod 644 started"],
            ["wait-healthy is not there", "fetch/job.py differs from the plan", "libexec/started has mode 644"],
        ),
    ],
)
def test_programs_of_ours_are_seen_to_be_broken_and_put_back(
    converged: Bench, broken: list[str], seen: list[str]
) -> None:
    """And nothing restarts."""
    before = converged.running()
    converged.sh(f"cd /opt/llamaherd/libexec && {' && '.join(broken)}")
    said = converged.herd("verify", "box").output
    assert [words for words in seen if words not in said] == []
    converged.repair()
    converged.unchanged(before)
    assert converged.sh("stat -c '%a %U' /opt/llamaherd/libexec/wait-healthy") == "755 root"
    ended = converged.herd("verify", "box")
    assert ended.code == 0, ended.output


def test_an_account_that_takes_a_password_or_has_anothers_group_is_its_own_again(converged: Bench) -> None:
    before = converged.running()
    converged.sh("echo llama-chat:open | chpasswd; usermod -g docker llama-chat")
    said = converged.herd("verify", "box").output
    assert "llama-chat has a password; llama-chat is in group number " in said
    converged.repair()
    converged.unchanged(before)
    assert converged.sh("passwd -S llama-chat").split()[1] == "L"
    assert converged.sh("id -nG llama-chat") == "llama-chat"
    ended = converged.herd("verify", "box")
    assert ended.code == 0, ended.output


def test_an_account_that_is_root_is_named_and_nothing_is_started_as_it(converged: Bench) -> None:
    before, row = converged.running(), converged.sh("getent passwd llama-chat")
    converged.sh("sed -i 's/^llama-chat:x:[0-9]*:/llama-chat:x:0:/' /etc/passwd")
    assert "llama-chat has the number of root" in converged.herd("verify", "box").output
    ended = converged.up()
    assert ended.code == 1
    assert "users llama-chat and root have one number on this host" in ended.output
    converged.unchanged(before)
    converged.sh("systemctl restart llama-chat", check=False)
    converged.sh(f"sed -i 's,^llama-chat:.*,{row},' /etc/passwd")
    converged.repair()
    uid = "stat -c %U /proc/$(systemctl show -P MainPID llama-chat)"
    assert converged.sh(uid) == "llama-chat"
    assert converged.answers("chat")


@pytest.mark.rare
def test_a_container_that_was_made_from_other_files_is_made_from_ours(converged: Bench) -> None:
    before = converged.running()
    converged.sh(
        "printf 'services: {server: {user: \"0:0\", privileged: true, volumes: [/:/mnt]}}' >/run/more.yaml;"
        f" docker compose -f {PROJECT} -f /run/more.yaml up -d --force-recreate --wait 2>&1"
    )
    said = converged.herd("verify", "box").output
    assert "it was made with another ConfigFiles, User, Mounts, Privileged than declared" in said
    converged.repair()
    converged.unchanged(before, "drafter")
    ended = converged.herd("verify", "box")
    assert ended.code == 0, ended.output


@pytest.mark.rare
def test_a_docker_that_somebody_masked_is_theirs_to_unmask(converged: Bench) -> None:
    before = converged.running()
    converged.sh("systemctl mask --now docker.service docker.socket; systemctl mask docker.service")
    said = converged.herd("verify", "box").output
    assert "systemd may not start it, as docker.service and docker.socket are masked" in said
    ended = converged.up()
    assert ended.code == 1
    assert "help: `systemctl unmask docker.service docker.socket`, then `herd up`" in ended.output
    converged.sh("systemctl unmask docker.service docker.socket")
    converged.repair()
    converged.unchanged(before, "drafter")


def test_a_model_that_was_cut_short_is_whole_and_served(converged: Bench) -> None:
    """The servers have it mapped: what was cut off is gone for them too, until they load the whole file."""
    sha256 = converged.rig()["models"]["gemma-3-270m"]["sha256"]
    drafter = converged.running()["drafter"]
    converged.sh(f"truncate -s 1000000 {GEMMA}")
    converged.repair()
    assert converged.sh(f"sha256sum {GEMMA}").split()[0] == sha256
    assert converged.answers("chat")
    assert converged.answers("ik-chat")
    assert converged.mapped("chat").split() == [converged.sh(f"stat -c %i {GEMMA}")]
    assert converged.running()["drafter"] == drafter


def test_an_engine_that_was_deleted_is_built_again(converged: Bench) -> None:
    converged.sh(f"rm {SERVER}")
    converged.repair()
    sha256 = converged.sh(f"sha256sum {SERVER}").split()[0]
    assert sha256 in converged.sh("cat /opt/llamaherd/builds/llama.cpp-*/manifest.json")
    assert converged.answers("chat")


RARE_WAYS = (pytest.param(each, marks=pytest.mark.rare) for each in ("docker stop", "docker kill"))


@pytest.mark.parametrize("broken", [*RARE_WAYS, "docker rm -f"])
def test_a_container_that_was_taken_down_is_up(converged: Bench, broken: str) -> None:
    before = converged.running()
    converged.sh(f"{broken} llama-drafter")
    converged.repair()
    converged.unchanged(before, "drafter")
    assert converged.answers("drafter").startswith("abcdefgh")


@pytest.mark.rare
def test_a_project_that_was_edited_and_runs_so_is_what_it_shall_be_again(converged: Bench) -> None:
    before, text = converged.running(), converged.sh(f"cat {PROJECT}")
    converged.sh(f'sed -i \'s/"4096"/"512"/\' {PROJECT}; docker compose -f {PROJECT} up -d --wait 2>&1')
    assert '"n_ctx":512' in converged.ask("drafter", "/props")[1]
    converged.repair()
    assert converged.sh(f"cat {PROJECT}") == text
    converged.unchanged(before, "drafter")
    assert '"n_ctx":4096' in converged.ask("drafter", "/props")[1]


def test_a_docker_that_was_stopped_is_started(converged: Bench) -> None:
    before = converged.running()
    converged.sh("systemctl stop docker docker.socket")
    converged.repair()
    assert converged.answers("drafter").startswith("abcdefgh")
    assert converged.running()["chat"] == before["chat"]
    assert converged.running()["ik-chat"] == before["ik-chat"]


@pytest.mark.rare
def test_an_image_that_was_removed_is_made_again(converged: Bench) -> None:
    before = converged.running()
    converged.sh("docker rm -f llama-drafter; docker image rm -f $(docker image ls -q llamaherd/engine)")
    converged.repair()
    converged.unchanged(before, "drafter")
    assert converged.answers("drafter").startswith("abcdefgh")


@pytest.mark.rare
def test_an_images_name_that_was_given_to_another_is_its_own_again(converged: Bench) -> None:
    before = converged.running()
    tag = converged.sh("docker inspect -f '{{.Config.Image}}' llama-drafter")
    base = converged.sh("docker image ls --format '{{.Repository}}:{{.Tag}}' | grep -Ev 'engine|none' | head -n 1")
    converged.sh(f"docker tag {base} {tag}")
    assert f"{tag} is another image than it runs" in converged.herd("verify", "box").output
    converged.repair()
    converged.unchanged(before)
    other = f"FROM {tag}\\nENV LLAMA_ARG_N_PREDICT=3\\n"
    converged.sh(
        f"mkdir -p /run/other; printf '{other}' >/run/other/Dockerfile;"
        f" DOCKER_BUILDKIT=0 docker build -q -t {tag} /run/other;"
        f" docker compose -f {PROJECT} up -d --force-recreate --wait 2>&1"
    )
    assert "LLAMA_ARG_N_PREDICT" in converged.herd("verify", "box").output
    before = converged.running()
    converged.repair()
    converged.unchanged(before, "drafter")
    assert converged.answers("drafter").startswith("abcdefgh")


def test_another_context_in_a_container_recreates_that_one_only(bench: Bench) -> None:
    before = bench.running()
    rig = bench.rig()
    rig["instances"]["drafter"]["context"] = 2048
    bench.declare(rig)
    bench.repair()
    bench.unchanged(before, "drafter")
    assert '"n_ctx":2048' in bench.ask("drafter", "/props")[1]


def test_an_instance_moves_from_one_backend_to_the_other(bench: Bench) -> None:
    before = bench.running()
    rig = bench.rig()
    rig["instances"]["drafter"]["backend"] = "systemd"
    bench.declare(rig)
    bench.repair()
    assert bench.sh("docker ps -aq") == ""
    assert bench.sh("systemctl is-active llama-drafter") == "active"
    assert bench.answers("drafter").startswith("abcdefgh")
    assert bench.running()["chat"] == before["chat"]
