"""`herd up --canary` and `--waves`. Each wave is a run of pyinfra of its own, in one process: what one leaves behind,
the next would show.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from llamaherd.cli.herd import main
from tests.support.ssh_hosts import RIGS, Hosts, three_hosts


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    """Three hosts with something to do."""
    return three_hosts(tmp_path)


def test_a_canary_and_then_one_at_a_time(hosts: Hosts) -> None:
    ended = hosts.herd("up", "-v", "--canary", "duo", "--waves", "1")
    assert ended.returncode == 0, ended.stderr
    assert hosts.turns == ["duo", "attic", "six"]
    assert [line for line in ended.stderr.splitlines() if "Wave" in line] == [
        "--> Wave 1 of 3, the canary: duo",
        "--> Wave 2 of 3: attic",
        "--> Wave 3 of 3: six",
    ]
    for name in RIGS:
        assert ended.stderr.count(f"[{name}] Connected") == 1, "what one run leaves behind, the next says again"
        assert f"{name}: 1 change\n" in ended.stdout
    assert ended.stderr.count("Grand total") == 3
    # All are looked at before; then nobody before his turn.
    assert sorted(hosts.log[:3]) == [(name, "looked") for name in RIGS]
    assert [name for name, _ in groupby(name for name, what in hosts.log[6:])] == ["duo", "attic", "six"]


def test_all_at_once_without_either(hosts: Hosts) -> None:
    ended = hosts.herd("up")
    assert ended.returncode == 0, ended.stderr
    assert "Wave" not in ended.stderr
    assert "again" not in ended.stderr
    for words in ("Grand total", "Starting operation", "Connected", "No hosts remaining"):
        assert words not in ended.stderr + ended.stdout, "pyinfra's lines are for -v"
    assert set(hosts.turns) == set(RIGS)


def test_the_others_are_left_alone_where_one_fails(hosts: Hosts) -> None:
    hosts.mark("six", "broken")
    ended = hosts.herd("up", "--canary", "six", "--waves", "2")
    assert ended.returncode == 1
    assert "left alone, as six failed: attic, duo\n" in ended.stderr
    assert hosts.turns == ["six"]


def test_one_of_a_wave_that_fails_keeps_no_other_of_it(hosts: Hosts) -> None:
    hosts.mark("attic", "broken")
    ended = hosts.herd("up", "--waves", "2")
    assert ended.returncode == 1
    assert "left alone, as attic failed: six\n" in ended.stderr
    assert set(hosts.turns) == {"attic", "duo"}
    assert (hosts.folder / str(RIGS["duo"]) / "done").exists()


def test_the_last_wave_leaves_nobody_alone(hosts: Hosts) -> None:
    hosts.mark("six", "broken")
    ended = hosts.herd("up", "--waves", "2")
    assert ended.returncode == 1
    assert "left alone" not in ended.stderr
    assert ended.stderr.endswith("six ✗ accounts and files: it broke\n")
    assert set(hosts.turns) == set(RIGS)


def test_one_that_did_not_fail_must_be_as_planned(hosts: Hosts) -> None:
    hosts.mark("attic", "stuck")
    ended = hosts.herd("up", "--waves", "2")
    assert ended.returncode == 1
    assert "left alone, as attic does not match the plan: six\n" in ended.stderr
    assert ended.stdout.count("~ programs started  started is not there") == len(RIGS) + 1
    assert set(hosts.turns) == {"attic", "duo"}


def test_a_host_that_is_up_to_date_after_a_failure_gets_a_release(hosts: Hosts) -> None:
    """Without changes, so that `herd status` and `herd history` show the failure as over; once."""
    for name in RIGS:
        hosts.mark(name, "done")
    hosts.become("duo", "after", [*hosts.planned("duo"), "unsettled\trelease 3 failed"])
    ended = hosts.herd("up")
    assert ended.returncode == 0, ended.stderr
    assert "duo: up to date, nothing to do\n" in ended.stdout
    assert hosts.turns == ["duo"]


def test_a_canary_with_nothing_to_do(hosts: Hosts) -> None:
    hosts.mark("duo", "done")
    ended = hosts.herd("up", "--canary", "duo")
    assert ended.returncode == 0, ended.stderr
    assert "duo: up to date, nothing to do\n" in ended.stdout
    assert "duo: the canary is up to date; continuing with the other rigs\n" in ended.stderr
    assert set(hosts.turns) == {"attic", "six"}


def test_named_rigs_come_as_they_are_named(hosts: Hosts) -> None:
    ended = hosts.herd("up", "six", "duo", "--waves", "1")
    assert ended.returncode == 0, ended.stderr
    assert hosts.turns == ["six", "duo"]


def test_all_tasks_are_gone_through_in_waves_too(hosts: Hosts) -> None:
    """With -vv nobody is looked at before."""
    ended = hosts.herd("up", "-vv", "duo", "six", "--canary", "six")
    assert ended.returncode == 0, ended.stderr
    assert hosts.turns == ["six", "duo"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--canary", "dua"), "--canary: there is no rig `dua`\n  help: did you mean `duo`?\n"),
        (("-v", "--canary", "dua"), "--canary: there is no rig `dua`\n  help: did you mean `duo`?\n"),
        (("six", "attic", "--canary", "sixx"), "none of the rigs that you named; did you mean `six`?\n"),
        (("six", "attic", "--canary", "duo"), "none of the rigs that you named; known names: attic, six\n"),
        (("--waves", "0"), "--waves"),
        (("--waves", "few"), "--waves"),
    ],
)
def test_what_makes_no_sense_touches_no_host(hosts: Hosts, words: tuple[str, ...], said: str) -> None:
    ended = hosts.herd("up", *words)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert hosts.log == []


def test_a_shell_completes_the_canary(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERD_INVENTORY", str(hosts.folder / "fleet"))
    found = ShellComplete(main, {}, "herd", "_HERD_COMPLETE").get_completions(["up", "--canary"], "d")
    assert [each.value for each in found] == ["duo"]
