"""`herd chat`, `herd open` and `herd ssh` on a real host, with the real models."""

from __future__ import annotations

from tests.box.bench import Bench
from tests.support.envelope import the_rig


def test_the_real_models_respond_through_the_tunnel(converged: Bench) -> None:
    ended = converged.herd("chat", "box/chat", "Name three colours.", "--max-tokens", "12", "--json")
    assert ended.code == 0, ended.output
    found = the_rig(ended.output)
    assert found["text"].strip()
    assert 1 <= found["tokens"] <= 12
    assert found["tokens_per_second"] > 0
    assert converged.key() not in ended.output
    plain = converged.herd("chat", "box/drafter", "The letters:", "--max-tokens", "8")
    assert plain.code == 0, plain.output
    assert plain.output.strip()


def test_a_wrong_key_is_reported_with_the_fix(converged: Bench) -> None:
    right = converged.key_file.read_text()
    converged.key_file.write_text("wrong\n")
    try:
        ended = converged.herd("chat", "box/chat", "Are you there?")
    finally:
        converged.key_file.write_text(right)
    assert ended.code == 1
    assert "the server returns 401" in ended.output
    assert "run `herd up box`" in ended.output


def test_an_engine_from_an_archive_has_no_page(converged: Bench) -> None:
    ended = converged.herd("open", "box/chat", "--no-browser")
    assert ended.code == 1, ended.output
    assert "the server of box/chat has no page" in ended.output


def test_a_command_runs_as_the_declared_user(converged: Bench) -> None:
    ended = converged.herd("ssh", "box", "id", "-un")
    assert (ended.code, ended.output) == (0, "owner\n")
