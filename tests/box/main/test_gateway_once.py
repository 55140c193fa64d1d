"""A gateway before real servers: it is brought up, serves its users, and goes again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.box.bench import Bench
from tests.box.gateway import Keys, ask, gateway_keys, pids, up


@pytest.fixture(scope="module")
def keys(converged: Bench) -> Iterator[Keys]:
    """The rig as a gateway, and the key of a user."""
    with gateway_keys(converged) as made:
        yield made


def test_a_real_model_answers_by_its_name_and_by_another(converged: Bench, keys: Keys) -> None:
    for name in ("coder", "gpt-4o", "small"):
        status, headers, body = ask(converged, keys["tom"], name)
        assert status == 200, body
        assert json.loads(body)["choices"][0]["message"]["content"]
        assert f"x-herd-instance: box.{'drafter' if name == 'small' else 'chat'}" in headers
    assert ask(converged, "")[0] == 401
    assert ask(converged, "sk-wrong")[0] == 401
    assert ask(converged, converged.key())[0] == 401, "the server's own key is none of a user's"


def test_a_second_run_changes_nothing_and_verify_is_content(converged: Bench, keys: Keys) -> None:
    before = pids(converged)
    again = converged.up()
    assert (again.code, again.changes) == (0, 0), again.output
    assert pids(converged) == before
    verified = converged.herd("verify", "-v", "box")
    assert verified.code == 0, verified.output
    assert "responds, by box.chat" in verified.output
    assert "responds, by box.drafter" in verified.output
    assert keys["tom"] not in verified.output


def test_keys_are_nowhere_on_the_host(converged: Bench, keys: Keys) -> None:
    key = keys["tom"]
    places = "/etc /opt/llamaherd /run /var/lib/llamaherd"
    found = converged.sh(f"grep -rlIF -- {key} {places} 2>/dev/null; journalctl -q | grep -F -- {key}", check=False)
    assert found == ""
    args = converged.sh("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '", check=False)
    assert converged.key() not in converged.sh("journalctl -q -u llamaherd-gateway", check=False)
    assert converged.key() not in args


def test_a_user_comes_and_goes_and_nobody_notices(converged: Bench, keys: Keys) -> None:
    before = pids(converged)
    made = converged.herd("users", "add", "ann", "--model", "small")
    key = re.search(r"sk-herd-[0-9a-f]{48}", made.output)
    assert key
    up(converged)
    assert ask(converged, key[0], "small")[0] == 200
    assert ask(converged, key[0], "coder")[0] == 404
    assert converged.herd("users", "revoke", "ann").code == 0
    up(converged)
    assert ask(converged, key[0], "small")[0] == 401
    assert ask(converged, keys["tom"])[0] == 200
    assert pids(converged) == before, "neither restarted nor reloaded"
