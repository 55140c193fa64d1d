"""`herd bench RIG`, as far as it goes without a host: which instances are meant."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from llamaherd.cli.bench import bench_jobs
from llamaherd.cli.herd import main
from tests.bench.grouped import RIG


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A rig with a group beside its servers, which nobody answers for."""
    (tmp_path / "rig.yaml").write_text(yaml.safe_dump({**RIG, "connect": {"host": "127.0.0.1", "port": 9}}))
    monkeypatch.setenv("HERD_INVENTORY", str(tmp_path))
    return tmp_path


def herd(*words: str) -> Result:
    ended = CliRunner().invoke(main, ["bench", *words], prog_name="herd")
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


@pytest.mark.parametrize(
    ("name", "expected"),
    [("two", [("two", "card")]), ("card", [("one", "card"), ("two", "card")]), ("chat", [("chat", None)])],
)
def test_a_group_means_each_of_its_instances(
    inventory: Path, name: str, expected: list[tuple[str, str | None]]
) -> None:
    found = bench_jobs(inventory, "box", name, inventory / "results", 60, anyway=False)
    assert [(each.instance.name, each.group and each.group.name) for each in found] == expected


def test_the_only_server_of_a_rig_may_be_a_group(inventory: Path) -> None:
    alone = {**RIG, "instances": {name: RIG["instances"][name] for name in ("one", "two")}}
    (inventory / "rig.yaml").write_text(yaml.safe_dump(alone))
    found = bench_jobs(inventory, "box", None, inventory / "results", 60, anyway=False)
    assert [each.instance.name for each in found] == ["one", "two"]


@pytest.mark.parametrize(
    "words", [["bench", "box"], ["bench", "box", "chat"], ["tune", "box"], ["tune", "box", "chat"]]
)
def test_a_rig_without_instances_is_said_to_have_none(inventory: Path, words: list[str]) -> None:
    (inventory / "rig.yaml").write_text(yaml.safe_dump({**RIG, "instances": {}}))
    ended = CliRunner().invoke(main, ["-i", str(inventory), *words], prog_name="herd")
    assert ended.exit_code == 2, ended.output
    assert "error: box has no instance\n  help: declare one: `herd explain inventory` shows how" in ended.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["box"], "box has 4 instances\n  help: name one of one, two, chat, drafter"),
        (["box", "nobody"], "box has no instance `nobody`\n  help: name one of one, two, chat, drafter"),
        (["box", "card", "--json"], "--share and --json are for one measurement\n  help: name one or two"),
    ],
)
def test_what_is_not_one_server_is_said(inventory: Path, words: list[str], said: str) -> None:
    ended = herd(*words)
    assert (ended.exit_code, said in ended.stderr) == (2, True), ended.output
    assert not (inventory / "results").exists()


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.usefixtures("inventory")
def test_a_host_that_does_not_answer_is_said() -> None:
    ended = herd("box", "two")
    assert ended.exit_code == 2, ended.output
    assert "measuring box/two of group card" in ended.stderr
    assert "127.0.0.1 port 9" in ended.stderr
