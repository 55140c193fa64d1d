"""Secrets and names are replaced in every spelling, and what explains a fault stays."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote

import pytest

from llamaherd.pipeline.bundle import REDACTED, Redactor

SECRET = 'canary/"42" ü+x'
NAMES = {"attic.lan": "host-1", "attic": "host-2", "tom": "user-1", "192.168.1.7": "host-3"}


@pytest.mark.parametrize(
    "spelling",
    [SECRET, json.dumps(SECRET)[1:-1], quote(SECRET, safe=""), base64.b64encode(SECRET.encode()).decode()],
)
def test_a_known_secret_is_replaced_in_every_spelling(spelling: str) -> None:
    assert Redactor([SECRET]).redact(f"key {spelling} end") == f"key {REDACTED} end"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abcDEF123", "abcDEF123"),
        ("llama-server --api-key s3cr3tvalue --port 1", "s3cr3tvalue"),
        ("--hf-token=abcdefgh", "abcdefgh"),
        ("HF_TOKEN=hf_abcdefghijklmnop", "hf_abcdefghijklmnop"),
        ('{"api_key": "plainword", "port": 1}', "plainword"),
        ("password: hunter22", "hunter22"),
        ("MY_SECRET='hunter22'", "hunter22"),
        ("using sk-abcdefgh12345678", "sk-abcdefgh12345678"),
        ("eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl", "eyJhbGciOi"),
        ("clone https://tom:pass-word@git.lan/x", "pass-word"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNza\n-----END OPENSSH PRIVATE KEY-----", "b3BlbnNza"),
        ("-----BEGIN RSA PRIVATE KEY-----\nthat is cut off", "cut off"),
        ('password: "two words canary"', "canary"),
        (r"{\"api_key\": \"canary1\", \"port\": 1}", "canary1"),
        ("non-default args: {'api_key': ['canary1', 'canary2'], 'port': 1}", "canary2"),
        ("API key: canary1", "canary1"),
        ("Authorization: Token canary1", "canary1"),
        ("authorization: canary1", "canary1"),
        ("Cookie: session=canary1; other=canary2", "canary2"),
        ("GET https://canary1@git.lan/x", "canary1"),
        ("https://cdn.example/x?X-Amz-Signature=canary1&y=1", "canary1"),
        ("https://hooks.slack.com/services/T0/B0/canary1", "canary1"),
        ("https://api.telegram.org/bot123456:canary1/send", "canary1"),
        ("CODER_KEY=canary1", "canary1"),
        ('"--api-key",\n "canary1"', "canary1"),
        ("passphrase: canary1", "canary1"),
        ("ghs_canary123456", "canary123456"),
        ("tom:$apr1$salt$canary1", "canary1"),
        ("user tom password $6$saltsalt$0123456789abcdefABCDEF", "0123456789abcdefABCDEF"),
    ],
)
def test_what_looks_like_a_secret_is_replaced_though_it_is_not_known(text: str, secret: str) -> None:
    found = Redactor([]).redact(text)
    assert secret not in found
    assert REDACTED in found


@pytest.mark.parametrize(
    "text",
    [
        "--api-key-file /etc/llamaherd/keys/chat",
        '"api_key_file": "/run/keys/chat"',
        "n_tokens = 4096, token_embd = true",
        "sha256 " + "ab" * 32,
        "GGML_CUDA_P2P=1",
        "tokenizer='Qwen/Qwen3', tokens: many",
        "models--Qwen/snapshots/0A1b2c3d4e5f60718293",
        "10:00:00 0000:01:00.0 driver 580.95.05",
        "listens at 127.0.0.1:8080 and ::1",
    ],
)
def test_what_explains_a_fault_stays(text: str) -> None:
    assert Redactor([], NAMES).redact(text, log=True) == text


def test_random_text_of_a_log_is_a_secret_unless_it_is_known() -> None:
    model = "Qwen3-Coder-30B-A3B-Instruct-Q4_K_XL"
    redactor = Redactor([], known=f'"model": "{model}"')
    line = f"loading {model} with rAnd0mTextThatNobodyKnows42"
    assert redactor.redact(line, log=True) == f"loading {model} with {REDACTED}"
    assert redactor.redact(line) == line


def test_names_and_addresses_are_the_same_placeholder_everywhere() -> None:
    redactor = Redactor([], NAMES)
    assert (
        redactor.redact("/home/tom at Attic.lan and attic, not atticus")
        == "/home/user-1 at host-1 and host-2, not atticus"
    )
    first = redactor.redact("10.0.0.5 fe80::1 10.0.0.6 192.168.1.7")
    assert first == "address-1 address-2 address-3 host-3"
    assert redactor.redact("10.0.0.6, 10.0.0.5") == "address-3, address-1"
    assert redactor.redact("aa:bb:cc:dd:ee:ff ann@corp.example") == "mac-1 email-1"
    assert redactor.redact("GPU-01234567-89ab-cdef-0123-456789abcdef") == "GPU-uuid-1"


def test_names_are_kept_on_request_and_secrets_never() -> None:
    text = "tom at attic.lan, 10.0.0.5, token=canary42"
    assert Redactor([]).redact(text) == f"tom at attic.lan, 10.0.0.5, token={REDACTED}"


def test_a_short_value_is_an_ordinary_word() -> None:
    assert Redactor(["on", "1", ""]).redact("on 1") == "on 1"


def test_a_line_of_a_private_key_without_its_beginning_is_a_secret() -> None:
    line = "b3BlbnNza/1rZXktdjEAAAAABG5vbmUAAAAEbm9u/ZQAAAAAAAAABAAAAMwAAAAtz"
    assert Redactor([]).redact(f"sshd: {line}", log=True) == f"sshd: {REDACTED}"


def test_letters_of_other_alphabets_that_equal_a_name_are_replaced() -> None:
    assert Redactor([], {"tess": "user-1"}).redact("te\u017fs") == "name"


@pytest.mark.parametrize("text", ["a,", "a-", "token", "aA1", "a@", "token: ", "://"])
def test_long_lines_without_blanks_take_no_time(text: str) -> None:
    began = time.process_time()
    Redactor(["known-secret"], NAMES).redact(text * (64_000 // len(text)), log=True)
    assert time.process_time() - began < 5
