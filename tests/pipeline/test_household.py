"""The household among the examples: by the steps that its own file names, up to what would be on its hosts."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from llamaherd.cli.herd import main
from llamaherd.pipeline.load import declared
from llamaherd.plan import Plan
from tests.support.household import household, made_up_lock
from tests.support.ours import plan
from tests.support.rigs import DIGEST


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Path:
    return household(tmp_path / "fleet")


def herd(fleet: Path, *words: str) -> str:
    """What a command says."""
    done = CliRunner().invoke(main, [*words, "-i", str(fleet)])
    assert done.exit_code == 0, done.output
    return done.output


def test_its_steps_leave_nothing_to_complain_about(fleet: Path) -> None:
    assert CliRunner().invoke(main, ["init", str(fleet)]).exit_code == 0
    for user in ("tom", "ann", "page"):
        herd(fleet, "users", "rotate", user)
    assert "BEGIN CERTIFICATE" in herd(fleet, "gateway", "ca")
    said = herd(fleet, "check")
    assert re.findall(r"LH\d+", said) == ["LH319", "LH319"], said
    assert {stat.S_IMODE(file.stat().st_mode) for file in (fleet / "keys/users").iterdir()} == {0o600}
    assert "keys/" in (fleet / ".gitignore").read_text()


def test_it_becomes_a_gateway_and_a_page(fleet: Path) -> None:
    """With a lock that is made up: no hub and no registry is asked."""
    surveyed = declared(fleet)
    assert surveyed.own
    assert surveyed.own.gateway
    assert surveyed.own.gateway.chat
    lock = made_up_lock(surveyed)
    made: dict[str, Plan] = {
        name: plan(rig, lock, surveyed.around, fleet=surveyed.own) for name, rig in surveyed.around.items()
    }
    attic, porch = made["attic"], made["porch"]
    assert (porch.gateway, porch.chat) == (None, None)
    assert attic.gateway
    assert attic.gateway.secure
    assert "llm.lan" in attic.gateway.names
    assert attic.chat
    assert (attic.chat.model, attic.chat.gateway) == ("chat", "https://127.0.0.1:8000")
    assert attic.chat.image == f"ghcr.io/open-webui/open-webui@sha256:{DIGEST}"
    places = [each.key for each in attic.gateway.models if each.name == "small"]
    assert places == [porch.instances[0].endpoint.key] != [None], "`herd up` makes the key, and nobody writes it"
    assert attic.instances[0].endpoint.key is None, "nobody but its host reaches it"
    assert attic.runtime, "its page is the only container, and brings Docker"
