"""Converging: the first run brings everything about, and every other run changes nothing and costs next to nothing."""

import json
import resource

from tests.box.bench import Bench, Ended


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
    assert ended.output.endswith("box: as planned, nothing to do\n")
    assert counted == 1


def test_herd_status_is_one_round_trip_to_servers_that_serve(converged: Bench) -> None:
    began = converged.sh("date +%s.%N")
    ended = converged.herd("status", "box", "--json")
    assert ended.code == 0, ended.output
    (rig,) = json.loads(ended.output.splitlines()[-1])["rigs"]
    declared = {each["name"] for each in converged.plan()["instances"]}
    assert {each["name"]: each["state"] for each in rig["instances"]} == dict.fromkeys(declared, "serves")
    assert all(each["streams"] == 0 and each["slots"] >= 1 for each in rig["instances"]), rig
    assert rig["change"]["changes"]
    assert converged.sessions(began) == 1


def test_herd_diff_finds_nothing(converged: Bench) -> None:
    before = converged.state()
    said = converged.herd("diff", "box")
    assert said.code == 0, said.output
    assert said.output.endswith("box: as planned\n")
    assert converged.state() == before


def test_herd_up_takes_one_rig(converged: Bench) -> None:
    ended = converged.up("box")
    assert ended.code == 0, ended.output
    assert ended.changes == 0, ended.output


def test_preflight_finds_nothing_in_the_way_and_changes_nothing(converged: Bench) -> None:
    before = converged.state()
    ended = converged.herd("preflight", "box", "--json")
    assert ended.code == 0, ended.output
    (rig,) = json.loads(ended.output.splitlines()[-1])["rigs"]
    found = {row["what"]: row["found"] for row in rig["rows"]}
    assert (found["system"], found["kind"]) == ("debian-13 x86_64", "container (docker)")
    assert "8080" in found["ports"]
    assert converged.state() == before
