"""Placeholders as keys: which are recognized, and on which servers they are reported."""

from __future__ import annotations

import secrets

import pytest

from llamaherd.engines.flags import assumed
from llamaherd.engines.flags.access import GUESSED_KEY, is_placeholder
from llamaherd.engines.flags.conflicts import find_conflicts
from llamaherd.engines.flags.effective import effective_options

OPEN = ("--host", "0.0.0.0")


@pytest.mark.parametrize(
    "key",
    [
        *("dummy", "changeme", "change-me", "CHANGE_ME", "EMPTY", "none", "test", "secret", "password", "token"),
        *("sk-1234", "sk-no-key-required", "sk-xxxx", "sk-xxxxxxxxxxxx", "sk-your-key-here", "sk-proj-example"),
        *("your-api-key", "YOUR_API_KEY_HERE", "my-secret-key", "mykey123", "api_key", "<your key>", "1234", "123456"),
        *("token-abc123", "no-key", "not-needed", "ollama", "lm-studio", "sk-example", "sk-abc-example", "abc123"),
    ],
)
def test_a_placeholder_is_recognized(key: str) -> None:
    assert is_placeholder(key)


@pytest.mark.parametrize(
    "key",
    [
        *("9f86d081884c7d659a2feaa0c55ad015", "correct-horse-battery-staple", "tom7-Xk2q", "herd-tom-0f3a"),
        *("sk-proj-T3BlbkFJ8sKf02mXq", "key-of-tom", "a-key", "wKq3!mz", "8kx-attic"),
    ],
)
def test_a_key_of_ones_own_is_none(key: str) -> None:
    assert not is_placeholder(key)


def test_no_random_key_is_one() -> None:
    assert not any(is_placeholder(make(16)) for make in (secrets.token_hex, secrets.token_urlsafe) for _ in range(500))


@pytest.mark.parametrize(
    ("kind", "arguments", "environment", "reported"),
    [
        ("llama.cpp", (*OPEN, "--api-key", "dummy"), {}, True),
        ("llama.cpp", (*OPEN, "--api-key", "9f86d081884c7d65,changeme"), {}, True),
        ("llama.cpp", (*OPEN, "--api-key", "9f86d081884c7d65"), {}, False),
        ("llama.cpp", ("--api-key", "dummy"), {}, False),
        ("llama.cpp", ("--host", "127.0.0.1", "--api-key", "dummy"), {}, False),
        ("llama.cpp", OPEN, {"LLAMA_API_KEY": "dummy"}, True),
        ("ik_llama.cpp", (*OPEN, "--api-key", "sk-1234"), {}, True),
        ("vllm", ("--api-key", "token-abc123"), {}, True),
        ("vllm", ("--host", "127.0.0.1", "--api-key", "token-abc123"), {}, False),
        ("vllm", OPEN, {"VLLM_API_KEY": "EMPTY"}, True),
    ],
)
def test_it_is_reported_where_other_machines_reach_the_server(
    kind: str, arguments: tuple[str, ...], environment: dict[str, str], reported: bool
) -> None:
    known = assumed(kind, None)
    assert known
    found = find_conflicts(effective_options(known, arguments, environment))
    guessed = [each for each in found if each.rule is GUESSED_KEY]
    assert bool(guessed) is reported
    assert not any("dummy" in each.message or "changeme" in each.message for each in guessed)
