"""Images' tags: the client against a real HTTP server that speaks a registry's protocol."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd.lock import registry
from llamaherd.lock.registry import ImageName, RegistryError, image_name
from tests.support.registry_server import Registry, digest_of, index

NAME = "vllm/vllm-openai"
V1, V2 = index("v1"), index("v2")
IMAGES = {f"{NAME}:v1": V1, f"{NAME}:v2": V2, "solo:latest": V2}
USER = "tom:canary-password"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


@pytest.fixture
def server() -> Iterator[Registry]:
    with Registry(IMAGES) as running:
        yield running


def log_in(folder: Path, host: str, user: str = USER) -> None:
    login = base64.b64encode(user.encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": login}, "other.lan": {}}}))


def refusal(image: str) -> RegistryError:
    with pytest.raises(RegistryError) as caught:
        registry.digest_of(image)
    assert "canary" not in str(caught.value)
    assert base64.b64encode(USER.encode()).decode() not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert caught.value.help
    return caught.value


@pytest.mark.parametrize(
    ("image", "host", "name", "tag"),
    [
        ("vllm/vllm-openai:v0.11.0", "docker.io", "vllm/vllm-openai", "v0.11.0"),
        ("debian", "docker.io", "library/debian", "latest"),
        ("docker.io/debian:13", "docker.io", "library/debian", "13"),
        ("index.docker.io/a/b", "docker.io", "a/b", "latest"),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda-b11434", "ghcr.io", "ggml-org/llama.cpp", "server-cuda-b11434"),
        ("localhost/x", "localhost", "x", "latest"),
        ("localhost:5000/x", "localhost:5000", "x", "latest"),
        ("[::1]:5000/a/b/c:1", "[::1]:5000", "a/b/c", "1"),
    ],
)
def test_names_are_read_as_docker_reads_them(image: str, host: str, name: str, tag: str) -> None:
    assert image_name(image) == ImageName(host, name, tag)


@pytest.mark.parametrize("image", ["", "/", "A/b", "a/b:", "a b", "a@sha256:12", "ghcr.io/", "h.lan:x/a", "a//b", "-a"])
def test_what_is_no_name_is_refused(image: str) -> None:
    assert "is not the name of an image" in refusal(image).message


def test_only_this_machine_is_asked_without_tls() -> None:
    assert image_name("localhost:5000/x").url == "http://localhost:5000"
    assert image_name("[::1]:5000/x").url == "http://[::1]:5000"
    assert image_name("hub.lan:5000/x").url == "https://hub.lan:5000"
    assert image_name("localhost.evil.lan/x").url == "https://localhost.evil.lan"
    assert image_name("x").url == "https://registry-1.docker.io"


def test_a_tag_is_resolved_and_proved(server: Registry) -> None:
    assert registry.digest_of(f"{server.host}/{NAME}:v1") == digest_of(V1)
    # The tag is asked for once; what it stands for is then fetched by its digest, which cannot move in between.
    assert [(each.method, each.path.rpartition("/")[2]) for each in server.requests] == [
        ("HEAD", "v1"),
        ("GET", digest_of(V1)),
    ]
    assert registry.digest_of(f"{server.host}/solo") == digest_of(V2)


def test_a_registry_that_names_no_digest(server: Registry) -> None:
    server.names_digests = False
    assert registry.digest_of(f"{server.host}/{NAME}:v2") == digest_of(V2)


def test_a_manifest_that_is_another_one_is_refused(server: Registry) -> None:
    server.corrupt = True
    assert "whose digest is another one" in refusal(f"{server.host}/{NAME}:v1").message


def test_anybody_gets_a_token_of_a_public_registry() -> None:
    with Registry(IMAGES, login="bearer") as server:
        assert registry.digest_of(f"{server.host}/{NAME}:v1") == digest_of(V1)
        assert [each.path.split("?")[0] for each in server.requests] == [
            f"/v2/{NAME}/manifests/v1",
            "/token",
            f"/v2/{NAME}/manifests/v1",
            f"/v2/{NAME}/manifests/{digest_of(V1)}",
        ]
        assert server.requests[1].login is None


@pytest.mark.parametrize("scheme", ["bearer", "basic"])
def test_a_private_registry_opens_to_the_login_of_docker(tmp_path: Path, scheme: str) -> None:
    with Registry(IMAGES, login=scheme, user=USER) as server:
        image = f"{server.host}/{NAME}:v1"
        error = refusal(image)
        assert f"has no public image {NAME} (401)" in error.message
        assert f"docker login {server.host}" in error.help
        log_in(tmp_path, server.host)
        assert registry.digest_of(image) == digest_of(V1)
        log_in(tmp_path, server.host, f"{USER}-wrong")
        assert "has no access" in refusal(image).help
        before = len(server.requests)
        log_in(tmp_path, "elsewhere.lan")
        refusal(image)
        assert all(each.login is None for each in server.requests[before:])


@pytest.mark.parametrize("text", ["", "[]", '{"auths": 1}', '{"auths": {"h": {"auth": "no base64"}}}', "\xff"])
def test_a_damaged_login_file_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    with Registry(IMAGES, login="bearer") as server:
        assert registry.digest_of(f"{server.host}/{NAME}:v1") == digest_of(V1)


def test_the_login_is_sent_nowhere_without_tls(tmp_path: Path) -> None:
    with Registry(IMAGES, login="bearer", user=USER) as server:
        log_in(tmp_path, server.host)
        server.realm = "http://auth.example.lan/token"
        assert "without TLS" in refusal(f"{server.host}/{NAME}:v1").message


@pytest.mark.parametrize("realm", ["/token", "https://[::1::]/", "https://", "mailto:a@b"])
def test_a_login_that_cannot_be_had_is_said(realm: str) -> None:
    with Registry(IMAGES, login="bearer") as server:
        server.realm = realm
        assert "" in refusal(f"{server.host}/{NAME}:v1").message


def test_a_tag_that_is_not_there_gets_the_nearest(server: Registry) -> None:
    error = refusal(f"{server.host}/{NAME}:v11")
    assert f"no image {NAME} with the tag `v11`" in error.message
    assert "`v1`" in error.help
    assert "check the spelling" in refusal(f"{server.host}/absent:v1").help


@pytest.mark.parametrize(
    ("status", "words"), [(429, "try again in 7 seconds"), (503, "has a failure (503)"), (403, "(403)"), (418, "418")]
)
def test_a_registry_in_trouble(server: Registry, status: int, words: str) -> None:
    server.status = status
    assert words in str(refusal(f"{server.host}/{NAME}:v1"))


@pytest.mark.parametrize("body", [b"<html>please log in</html>", b"[1]", b'{"schemaVersion": 1}', b"[" * 100_000])
def test_somebody_else_answers(server: Registry, body: bytes) -> None:
    server.images[f"{NAME}:v1"] = body
    assert "not as a registry does" in refusal(f"{server.host}/{NAME}:v1").message


def test_an_endless_manifest_is_not_read_to_its_end(server: Registry) -> None:
    server.images[f"{NAME}:v1"] = b" " * (5 << 20)
    assert "more than a registry does" in refusal(f"{server.host}/{NAME}:v1").message


@pytest.mark.parametrize("image", ["localhost:99999/x", "localhost:0/x", "[::zz]:1/x", "[::1::]:1/x"])
def test_hosts_that_cannot_be(image: str) -> None:
    assert refusal(image).help


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"{host} cannot be reached" in refusal(f"{host}/{NAME}:v1").message
