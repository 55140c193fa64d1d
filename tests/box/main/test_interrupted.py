"""Runs that are killed: the next one resumes, and the one after it finds nothing to do."""

import signal

import pytest

from tests.box.bench import HERD, UNIT, Bench


def test_between_the_unit_file_and_the_restart(bench: Bench) -> None:
    """The state that such a run leaves, made by hand: the new text is in its place, the old process runs."""
    before = bench.running()
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 4096
    bench.declare(rig)
    (chat,) = [instance for instance in bench.plan()["instances"] if instance["name"] == "chat"]
    bench.host.exec("sh", "-c", f'printf %s "$0" >{UNIT}', chat["file"]["text"])
    bench.unchanged(before)
    bench.finishes()
    bench.unchanged(before, "chat")
    assert '"n_ctx":4096' in bench.ask("chat", "/props", key=bench.key())[1]


@pytest.mark.parametrize(("instance", "by"), [("chat", signal.SIGKILL), ("drafter", signal.SIGINT)])
def test_while_an_instance_starts(bench: Bench, by: signal.Signals, instance: str) -> None:
    before = bench.running()
    rig = bench.rig()
    rig["instances"][instance]["context"] = 3072
    bench.declare(rig)
    bench.killed(by, lambda line: "starting llama-" in line)
    bench.finishes()
    bench.unchanged(before, instance)
    assert '"n_ctx":3072' in bench.ask(instance, "/props", key=bench.key())[1]


def test_herd_up_says_that_it_was_interrupted(bench: Bench) -> None:
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 2560
    bench.declare(rig)
    ended = bench.killed(signal.SIGINT, lambda line: "starting llama-" in line, [HERD, "up", "-v"])
    assert ended.code == 130, ended.output
    assert "interrupted" in ended.output
    assert "Traceback" not in ended.output, ended.output
    bench.finishes()
