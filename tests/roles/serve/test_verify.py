"""A server as a value, and what systemd and Docker Compose are told of it."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.plan import Endpoint, InstancePlan, ServerSpec
from llamaherd.plan.artifacts import Planned
from llamaherd.plan.backends import BACKENDS, server_definition
from tests.support.rigs import DIGEST, cpu_rig, gpu_rig, planned, reached, served

BOXED = next(each for each in planned(gpu_rig()).instances if each.backend == "compose")
UNIT = next(each for each in planned(gpu_rig()).instances if each.backend == "systemd")
VLLM = {
    "engines/v": {"kind": "vllm", "image": f"vllm/vllm-openai@sha256:{DIGEST}"},
    "instances/boxed/engine": "v",
    "instances/boxed/api_key": {"env": "K"},
}
KEYED = next(each for each in planned(gpu_rig(), VLLM).instances if each.name == "boxed")

ASKED_ONLY = {
    *("one_process", "endpoint.scheme", "endpoint.models", "endpoint.streams", "endpoint.key"),
    *("endpoint.models_path", "endpoint.chat_path", "endpoint.metrics_path", "endpoint.props_path"),
    *("endpoint.health_status", "endpoint.counts_drafts", "endpoint.unloads"),
}
"""What decides how a server is asked, and not how it runs; `scheme` has one value."""


def leaves(value: Planned, prefix: str = "") -> dict[str, Any]:
    """Every field of a value and of the values in it, by its path."""
    found: dict[str, Any] = {}
    for name in type(value).model_fields:
        inner = getattr(value, name)
        found |= leaves(inner, f"{prefix}{name}.") if isinstance(inner, Planned) else {f"{prefix}{name}": inner}
    return found


def replaced(value: Any, path: str) -> Any:
    """The value with another one at a path."""
    name, _, rest = path.partition(".")
    inner = getattr(value, name)
    return value.model_copy(update={name: replaced(inner, rest) if rest else other(inner, name)})


def other(value: Any, name: str) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case dict():
            return {**value, "ANOTHER": "1"}
        case tuple() if name == "at":
            return tuple(each.model_copy(update={"at": "GPU-another"}) for each in value)
        case tuple():
            return (*value, "/another")
        case _:
            return "::1" if name == "listen" else f"{value}0" if value else "1"


def texts(server: ServerSpec) -> set[str]:
    # Each backend wants what the other has no use for.
    as_unit = server.model_copy(update={"program": server.program or "/bin/x"})
    return {BACKENDS["systemd"](as_unit, "").text, BACKENDS["compose"](server, "").text}


@pytest.mark.parametrize("path", sorted(set(leaves(KEYED.server)) - ASKED_ONLY))
def test_whatever_is_said_of_a_server_gets_into_what_starts_it(path: str) -> None:
    """A field that nothing writes would be a decision that nobody carries out."""
    assert texts(replaced(KEYED.server, path)) != texts(KEYED.server)


@pytest.mark.parametrize("path", sorted(ASKED_ONLY - {"endpoint.scheme"}))
def test_what_a_server_is_asked_restarts_none(path: str) -> None:
    assert texts(replaced(KEYED.server, path)) == texts(KEYED.server)


@pytest.mark.parametrize("instance", [UNIT, BOXED, KEYED], ids=["unit", "project", "pulled"])
def test_a_spec_is_that_of_the_whole_text(instance: InstancePlan) -> None:
    spec, file = server_definition(instance.backend, instance.server)
    assert (spec, file) == (instance.spec, instance.file)
    assert server_definition(instance.backend, served(instance, start_seconds=7).server)[0] != spec


def test_a_plan_that_was_sent_as_json_is_the_same() -> None:
    for plan in (planned(cpu_rig()), planned(gpu_rig(), VLLM)):
        assert type(plan).model_validate(plan.model_dump(mode="json")) == plan


@given(st.ip_addresses(), st.integers(1, 65535))
def test_a_url_has_the_address_and_port_that_it_was_made_of(address: Any, port: int) -> None:
    endpoint = Endpoint(listen=str(address), port=port, models=("m",), streams=1)
    url = urlsplit(endpoint.health)
    there = ip_address(str(url.hostname))
    assert (url.scheme, url.port, url.path) == ("http", port, "/health")
    assert there.is_loopback if address.is_unspecified else there == address
    assert endpoint.takes(str(there))


@pytest.mark.parametrize(
    ("listen", "others"),
    [("127.0.0.1", False), ("127.3.2.1", False), ("::1", False), ("0.0.0.0", True), ("::", True), ("10.0.0.5", True)],
)
def test_whom_a_server_is_for(listen: str, others: bool) -> None:
    assert reached(UNIT, listen=listen).endpoint.for_others is others


def test_an_endpoint_names_places_and_holds_no_key() -> None:
    assert KEYED.endpoint.key
    assert KEYED.endpoint.key.env == "K"
    assert KEYED.server.key
    assert (KEYED.server.key.path, KEYED.server.key.variable) == ("/etc/llamaherd/keys/boxed", "VLLM_API_KEY")
