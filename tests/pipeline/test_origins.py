"""Where files are to be had: which hub is asked with which token, and what happens when a neighbour is off."""

from __future__ import annotations

import socket

import pytest

from llamaherd.diagnostics.findings import HubError
from llamaherd.inventory.schema import Connect
from llamaherd.plan import FromFolder, FromHub, FromPeer, Plan, StorePlan
from roles.models import file_places
from tests.support.rigs import gpu_rig, planned

LOCKED_AT = "https://hub.lan"
WANTED = ["1" * 64, "2" * 64]


@pytest.fixture(autouse=True)
def _nobodys_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The public hub is in use, with a token, unless a test says otherwise."""
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_canary")


def rig(*sources: FromHub | FromFolder | FromPeer) -> Plan:
    """A rig with two files to fetch, from these places."""
    return planned(gpu_rig()).model_copy(update={"store": StorePlan(sources=sources)})


def test_a_hub_is_asked_where_the_model_was_locked_and_gets_no_token_of_another() -> None:
    (hub,) = file_places(rig(FromHub()), WANTED, print)
    assert hub.token is None
    assert set(hub.urls) == set(WANTED)
    assert all(url.startswith(f"{LOCKED_AT}/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/resolve/") for url in hub.urls.values())


def test_the_hub_in_use_gets_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"{LOCKED_AT}/")
    (hub,) = file_places(rig(FromHub()), WANTED, print)
    assert hub.token == "hf_canary"


def test_a_mirror_is_asked_for_the_same_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    (locked,) = file_places(rig(FromHub()), WANTED, print)
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.lan:8080/hf")
    (mirror,) = file_places(rig(FromHub()), WANTED, print)
    assert mirror.urls == {
        sha256: url.replace(LOCKED_AT, "http://mirror.lan:8080/hf") for sha256, url in locked.urls.items()
    }


def test_an_endpoint_that_is_none_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "mirror.lan")
    with pytest.raises(HubError, match="HF_ENDPOINT is not a plain http or https URL"):
        file_places(rig(FromHub()), WANTED, print)


def test_only_what_is_wanted_is_asked_for() -> None:
    (hub,) = file_places(rig(FromHub()), WANTED[:1], print)
    assert list(hub.urls) == WANTED[:1]


def test_without_a_hub_none_is_asked() -> None:
    assert file_places(rig(FromFolder(path="/mnt/usb")), WANTED, print) == []


def test_a_neighbour_that_is_off_is_passed_over() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    six = FromPeer(
        name="six", connect=Connect(host="127.0.0.1", port=port), address="127.0.0.1", port=8970, store="/srv"
    )
    said: list[str] = []
    (hub,) = file_places(rig(six, FromHub()), WANTED, said.append)
    assert hub.name == "hub"
    assert said == [f"nothing comes from six: nothing listens for SSH at 127.0.0.1 port {port}: connection refused"]
