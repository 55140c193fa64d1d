"""What a URL serves, and what is said of one that serves nothing: by real HTTP, with servers that are scripted."""

from __future__ import annotations

from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.client.http_client import MOST_JSON_BYTES, Failure, JsonResponse, Patience, Target, request_json
from llamaherd.measure.client.requests import TEMPLATE_TOKENS, estimate_prompt, inspect_url
from tests.bench.site import MODELS, Reply, Site, models, page
from tests.support.liar import LIES, Liar, whole

KEY = "sk-canary-4711"
SOON = Patience(connect=2, first=0.5, silence=0.3, total=1.5)
PROPS = {"build_info": "b11434-5ba87c9", "total_slots": 4, "default_generation_settings": {"n_ctx": 8192}}


def refused(pages: dict[str, Reply], model: str | None = None, below: str = "") -> UserError:
    with Site(pages) as site, pytest.raises(UserError) as error:
        inspect_url(Target(site.url + below, KEY), model)
    assert KEY not in str(error.value)
    return error.value


@pytest.mark.parametrize("below", ["", "/", "/v1", "/v1/"])
def test_the_url_may_end_with_the_version_or_not(below: str) -> None:
    with Site({MODELS: models("qwen")}) as site:
        served = inspect_url(Target(site.url + below, KEY))
        assert served.target.url + served.chat == site.url + "/v1/chat/completions"
    assert (served.model, served.engine, served.context, served.native) == ("qwen", None, None, False)
    assert all(headers["authorization"] == f"Bearer {KEY}" for _, headers, _ in site.asked)


def test_an_api_without_a_version_is_found() -> None:
    with Site({"/openai/models": models("qwen")}) as site:
        served = inspect_url(Target(site.url + "/openai"))
        assert served.target.url + served.chat == site.url + "/openai/chat/completions"


def test_what_llama_cpp_tells() -> None:
    pages = {MODELS: models("gemma"), "/props": page(PROPS), "/tokenize": page({"tokens": [1, 2]})}
    with Site(pages) as site:
        served = inspect_url(Target(site.url + "/v1"))
    assert (served.version, served.slots, served.context, served.native) == ("b11434-5ba87c9", 4, 8192, True)
    assert (served.engine, served.root.url) == (None, site.url)


def test_the_tokens_of_a_prompt_are_those_of_its_rendered_chat() -> None:
    pages = {"/apply-template": page({"prompt": "<s>user: red"}), "/tokenize": page({"tokens": [1, 2, 3, 4, 5]})}
    with Site(pages) as site:
        assert estimate_prompt(Target(site.url), "gemma", "red") == 5
        bodies = [body for _, _, body in site.asked]
    assert bodies == [
        {"model": "gemma", "messages": [{"role": "user", "content": "red"}]},
        {"model": "gemma", "content": "<s>user: red", "add_special": True, "parse_special": True},
    ]


@pytest.mark.parametrize(
    ("pages", "tokens"),
    [
        ({"/tokenize": page({"tokens": [1, 2, 3]})}, 3),
        ({"/tokenize": page({"count": 7})}, 7),
        ({"/apply-template": page({"prompt": 5}), "/tokenize": page({"count": 7})}, 7),
        ({}, 25),
    ],
)
def test_a_server_that_renders_no_chat_template_has_an_estimate_of_it(pages: dict[str, Reply], tokens: int) -> None:
    with Site(pages) as site:
        assert estimate_prompt(Target(site.url), "qwen", "word" * 25) == tokens + TEMPLATE_TOKENS


@pytest.mark.parametrize("tokens", [{}, {"tokens": []}, {"tokens": "1"}, {"tokens": [1.5]}, {"tokens": [True]}, []])
def test_tokens_that_are_none_make_no_server_of_tokens(tokens: Any) -> None:
    with Site({MODELS: models("gemma"), "/props": page(PROPS), "/tokenize": page(tokens)}) as site:
        assert not inspect_url(Target(site.url)).native


def test_what_others_tell() -> None:
    vllm = {MODELS: models("qwen", owned_by="vllm", max_model_len=32768), "/version": page({"version": "0.13.0"})}
    with Site(vllm) as site:
        served = inspect_url(Target(site.url))
    assert (served.engine, served.version, served.context, served.slots) == ("vllm", "0.13.0", 32768, None)
    with Site({MODELS: models("llama3"), "/api/version": page({"version": "0.15.2"})}) as site:
        served = inspect_url(Target(site.url))
    assert (served.engine, served.version) == ("ollama", "0.15.2")


def test_of_several_models_one_is_named() -> None:
    error = refused({MODELS: models(*(f"m{number}" for number in range(10)), "\x1b[2Jevil")})
    assert "serves 11 models" in error.message
    assert "--model" in error.help
    assert "m0, m1, m2" in error.help
    assert "and 3 more" in error.help
    with Site({MODELS: models("a", "b")}) as site:
        assert inspect_url(Target(site.url), "b").model == "b"
        assert inspect_url(Target(site.url), "alias").model == "alias"


def test_who_lists_no_models_is_told_one() -> None:
    assert "--model" in refused({MODELS: models()}).help
    with Site({}) as site:
        assert inspect_url(Target(site.url), "gpt").chat == "/v1/chat/completions"
    assert "404" in refused({}).message


@pytest.mark.parametrize(
    ("page_there", "says"),
    [
        (page("<html>please log in</html>", kind="text/html"), "sends text/html instead of JSON"),
        (page({"error": {"message": f"wrong key {KEY}"}}, "401 Unauthorized"), "the server returns 401: wrong key …"),
        (page("no JSON"), "sends invalid JSON"),
        (page("[" * 100_000), "sends invalid JSON"),
        (page({"error": "loading"}, "503 Service Unavailable"), "503: loading"),
    ],
)
def test_a_server_of_something_else(page_there: Reply, says: str) -> None:
    assert says in refused({MODELS: page_there}).message
    assert says in refused({MODELS: page_there}, model="qwen").message


@pytest.mark.parametrize("value", [[], 7, {"data": 7}, {"data": [7, {"id": 7}, {}]}, None])
def test_json_that_lists_nothing(value: Any) -> None:
    assert "names no model" in refused({MODELS: page(value)}).message


def test_nobody_there() -> None:
    with Site({}) as site:
        url = site.url
    with pytest.raises(UserError, match="cannot be reached"):
        inspect_url(Target(url))
    with pytest.raises(UserError, match="must begin with http"):
        inspect_url(Target("ftp://box"))


@pytest.mark.parametrize("lie", LIES)
def test_no_lie_is_more_than_a_sentence(lie: str) -> None:
    with Liar(LIES[lie]) as liar:
        found = request_json(Target(liar.url), MODELS, patience=SOON)
    if isinstance(found, Failure):
        assert found.help
        assert "\n" not in found.message
    else:
        assert lie in ("a list", "a text")


def test_an_answer_is_bounded() -> None:
    with Liar(whole(b" " * (MOST_JSON_BYTES + 10))) as liar:
        found = request_json(Target(liar.url), MODELS)
    assert isinstance(found, Failure)
    assert "more than 8 MiB" in found.message
    with Liar(
        lambda _: iter([b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{}"])
    ) as cut:
        assert isinstance(request_json(Target(cut.url), MODELS), Failure)


def test_a_body_is_posted() -> None:
    with Site({"/tokenize": page({"tokens": [1]})}) as site:
        found = request_json(Target(site.url), "/tokenize", {"content": "x"})
    assert isinstance(found, JsonResponse)
    assert found.value == {"tokens": [1]}
    assert site.asked[0][2] == {"content": "x"}


@pytest.mark.parametrize("url", ["http://me:sk-canary@127.0.0.1:9/v1", "http://127.0.0.1:9/v1?key=sk-canary#sk-canary"])
def test_a_secret_in_a_url_is_not_said(url: str) -> None:
    with pytest.raises(UserError) as error:
        inspect_url(Target(url))
    assert error.value.message == "http://127.0.0.1:9/v1: " + (
        "no request can be sent to the server: it may have a host, a port and a path, and nothing else"
    )
