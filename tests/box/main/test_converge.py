"""The first run brings up servers that serve; every other run changes nothing and costs next to nothing."""

import resource

import pytest

from tests.box.bench import PORTS, Bench, Ended
from tests.support.envelope import the_rig


def processor() -> float:
    """Seconds of processor that all programs have taken that were begun here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_first_run_succeeds(first_run: Ended) -> None:
    assert first_run.code == 0, first_run.output


def test_the_second_run_changes_nothing(converged: Bench) -> None:
    before = converged.state()
    ended = converged.deploy()
    assert ended.code == 0, ended.output
    assert ended.changes == 0, ended.output
    assert converged.state() == before


def test_another_run_costs_few_round_trips_and_seconds(converged: Bench) -> None:
    began, before = converged.sh("date +%s.%N"), processor()
    ended = converged.deploy()
    took = processor() - before
    counted = converged.sessions(began)
    print(f"\n{counted} SSH execs, {took:.1f} s of processor")
    assert ended.changes == 0
    assert 0 < counted <= 4
    # 2 s where nothing else runs. How long that takes depends on what runs beside it.
    assert took <= 6


def test_herd_up_is_the_same_run(converged: Bench) -> None:
    before = converged.state()
    ended = converged.up()
    assert ended.code == 0, ended.output
    assert ended.changes == 0, ended.output
    assert converged.state() == before


def test_herd_up_with_nothing_to_do_costs_one_round_trip(converged: Bench) -> None:
    began = converged.sh("date +%s.%N")
    ended = converged.up()
    counted = converged.sessions(began)
    print(f"\n{counted} SSH execs, {ended.seconds:.1f} s")
    assert ended.output.endswith("box: up to date, nothing to do\n")
    assert counted == 1


def test_herd_status_is_one_round_trip_to_servers_that_serve(converged: Bench) -> None:
    began = converged.sh("date +%s.%N")
    ended = converged.herd("status", "box", "--json")
    assert ended.code == 0, ended.output
    rig = the_rig(ended.output)
    declared = {each["name"] for each in converged.plan()["instances"]}
    assert {each["name"]: each["state"] for each in rig["instances"]} == dict.fromkeys(declared, "serves")
    assert all(each["streams"] == 0 and each["slots"] >= 1 for each in rig["instances"]), rig
    assert rig["change"]["changes"]
    assert converged.sessions(began) == 1


def test_herd_diff_finds_nothing(converged: Bench) -> None:
    before = converged.state()
    said = converged.herd("plan", "box")
    assert said.code == 0, said.output
    assert said.output.endswith("box: up to date\n")
    assert converged.state() == before


def test_herd_up_takes_one_rig(converged: Bench) -> None:
    ended = converged.up("box")
    assert ended.code == 0, ended.output
    assert ended.changes == 0, ended.output


def test_preflight_finds_nothing_in_the_way_and_changes_nothing(converged: Bench) -> None:
    before = converged.state()
    ended = converged.herd("preflight", "box", "--json")
    assert ended.code == 0, ended.output
    rig = the_rig(ended.output)
    found = {row["what"]: row["found"] for row in rig["rows"]}
    assert (found["system"], found["kind"]) == ("debian-13 x86_64", "container (docker)")
    assert "8080" in found["ports"]
    assert converged.state() == before


@pytest.mark.parametrize("instance", PORTS)
def test_models_answer(converged: Bench, instance: str) -> None:
    assert converged.answers(instance).strip()


def test_who_has_no_key_gets_nothing(converged: Bench) -> None:
    data = '{"messages":[{"role":"user","content":"Hello"}],"max_tokens":1}'
    for key in ("", "wrong"):
        status, body = converged.ask("chat", "/v1/chat/completions", data, key)
        assert status == 401, body


def test_the_key_is_nowhere_else_on_the_host(converged: Bench) -> None:
    # The pattern comes from a file: in grep's own arguments it would be found.
    converged.sh(f"umask 077; printf %s '{converged.key()}' >/run/canary")
    found = converged.sh(
        "{ grep -lF -f /run/canary /proc/[0-9]*/cmdline /proc/[0-9]*/environ;"
        " ps axeww | grep -F -f /run/canary;"
        " journalctl -q --no-pager | grep -F -f /run/canary;"
        " docker inspect $(docker ps -aq) | grep -F -f /run/canary;"
        " docker logs llama-drafter 2>&1 | grep -F -f /run/canary;"
        " grep -rlF -f /run/canary /etc /opt /tmp /var/tmp /var/log /var/lib/llamaherd /home /root;"
        " } 2>/dev/null; rm -f /run/canary",
        check=False,
    )
    # What serves is kept, to be put back: for root alone.
    kept = converged.sh(
        "echo /var/lib/llamaherd/kept/llama-chat/$(readlink /var/lib/llamaherd/kept/llama-chat/last)/key"
    )
    assert sorted(found.splitlines()) == ["/etc/llamaherd/keys/chat", kept]


def test_nothing_of_ours_can_be_changed_by_others(converged: Bench) -> None:
    folders = "/opt/llamaherd /etc/llamaherd /var/lib/llamaherd /etc/systemd/system"
    assert converged.sh(f"find {folders} ! -type l -perm /022") == ""
