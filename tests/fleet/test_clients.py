"""Configurations of client programs: which models they get, by what the models are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.clients import CLIENTS, client_config, client_facts
from llamaherd.fleet.gateway import DeclaredGateway
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.fleet_file import Gateway
from tests.support.rigs import changed, cpu_rig

DECLARED: dict[str, Any] = {
    "on": ["box"],
    "users": {"tom": {"key": {"env": "TOM"}}, "searcher": {"key": {"env": "SEARCHER"}, "models": ["vectors"]}},
    "models": {"vectors": {"serve": ["box.vectors"]}, "coder": {"serve": ["box.chat"]}},
}


@pytest.fixture
def gateway() -> DeclaredGateway:
    vectors = {"engine": "main", "model": "gemma", "context": 2048, "port": 8099, "serve": "embeddings"}
    rig = changed(cpu_rig(), {"instances/vectors": vectors})
    declared = Gateway.model_validate(DECLARED, context={"folder": Path("/")})
    return DeclaredGateway(declared, Path("fleet.yaml"), {"box": Rig.model_validate(rig)})


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_programs_that_chat_get_no_model_for_embeddings(gateway: DeclaredGateway, client: str) -> None:
    text = client_config(client, client_facts(gateway, "tom")).text
    assert "coder" in text
    assert ("vectors" in text) is (client == "continue")


def test_continue_embeds_with_models_for_embeddings(gateway: DeclaredGateway) -> None:
    models = yaml.safe_load(client_config("continue", client_facts(gateway, "tom")).text)["models"]
    roles = {each["name"]: each["roles"] for each in models}
    assert roles == {"coder": ["chat", "edit", "apply"], "vectors": ["embed"]}
    assert ["defaultCompletionOptions" in each for each in models if each["name"] == "vectors"] == [False]


def test_a_user_without_a_model_for_chats_gets_a_sentence(gateway: DeclaredGateway) -> None:
    with pytest.raises(UserError, match="no model for chats"):
        client_config("curl", client_facts(gateway, "searcher"))
