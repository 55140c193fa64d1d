"""Preset files of llama-server's router: what a command line becomes, and what none can say."""

from __future__ import annotations

import pytest

from llamaherd.engines.flags.definitions import assumed
from llamaherd.engines.llama_cpp import NotRoutedError, router_arguments, router_preset, router_section

KNOWN = assumed("llama.cpp", "b11434")


def test_flags_are_keys_and_switches_are_on() -> None:
    words = ("--ctx-size", "4096", "--metrics", "--no-warmup", "-ot", "exps=CPU", "--load_mode", "none", "--seed", "-1")
    assert router_section(words, KNOWN) == {
        "ctx-size": "4096",
        "metrics": "true",
        "no-warmup": "true",
        "ot": "exps=CPU",
        "load-mode": "none",
        "seed": "-1",
    }


def test_what_the_router_says_itself_is_left_out() -> None:
    words = ("--host", "0.0.0.0", "--port", "8001", "--alias", "a", "--api-key-file", "/key", "--model", "/m.gguf")
    assert router_section(words, KNOWN) == {"model": "/m.gguf"}


@pytest.mark.parametrize("known", [KNOWN, None], ids=["known", "unknown"])
def test_a_flag_that_is_not_known_has_what_follows_unless_that_is_a_flag(known: object) -> None:
    words = ("--brand-new", "7", "--newer", "--model", "/m.gguf")
    assert router_section(words, KNOWN if known else None) == {"brand-new": "7", "newer": "true", "model": "/m.gguf"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-ot", "a=CPU;b=CPU"), "`;`"),
        (("--chat-template", "{# x #}"), "`#`"),
        (("--chat-template", "one\ntwo"), "ends the value"),
        (("--chat-template", " edge"), "blank"),
        (("-ot", "a=CPU", "--override-tensor", "b=CPU"), "given twice"),
        (("--ctx-size", "1", "-c", "2"), "given twice"),
        (("--brand-new", "a", "b"), "2 values"),
        (("--ssl-key-file", "/k"), "server in front"),
        (("--models-max", "4"), "server in front"),
        (("stray",), "belongs to no flag"),
    ],
)
def test_what_no_preset_file_can_say_is_refused(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(NotRoutedError, match=why):
        router_section(words, KNOWN)


def test_the_first_model_is_loaded_at_once_and_no_other() -> None:
    text = router_preset([("a", ("--model", "/a")), ("b", ("--model", "/b"))], KNOWN, "attic", "card")
    head, a, b = text.split("\n[")
    assert head.startswith("; Written by llamaherd for group `card` of rig `attic`")
    assert a == "a]\nload-on-startup = true\nmodel = /a\n"
    assert b == "b]\nmodel = /b\n"


def test_one_model_at_a_time() -> None:
    assert router_arguments("/p.ini", "127.0.0.1", 8001, None) == (
        *("--models-preset", "/p.ini", "--models-max", "1", "--host", "127.0.0.1", "--port", "8001"),
    )
    assert router_arguments("/p.ini", "::", 8001, "/key")[-2:] == ("--api-key-file", "/key")
