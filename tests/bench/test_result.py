"""Results as documents: what is written is read again, and nothing else is taken for one."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from llamaherd.cli.herd import main
from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.results import store
from llamaherd.measure.results.result import Gpu, Recorded, Result, Run, Start
from llamaherd.measure.results.store import (
    fold_journal,
    free_texts,
    journal_line,
    parse_result,
    redact_result,
    redact_text,
    result_bytes,
    result_schema,
    result_schema_text,
)
from tests.bench.made import full, result, run
from tests.support.rigs import ROOT


def of(planted: Result, host: str, user: str) -> Result:
    """The same, of a host and a user of these names."""
    origin = planted.provenance
    named = {
        "host": origin.host.model_copy(update={"name": host}),
        "server": origin.server.model_copy(update={"user": user}),
    }
    return planted.model_copy(update={"provenance": origin.model_copy(update=named)})


WHOLE = of(full(Result, "some text"), "attic", "tom")
VALIDATOR = Draft202012Validator(result_schema())


@pytest.mark.parametrize("each", [WHOLE, result(run(), run(99.0)), result()], ids=["whole", "small", "empty"])
def test_what_is_written_is_read_again(each: Result) -> None:
    each = store.with_id(each)
    data = result_bytes(each)
    assert parse_result(data, "a.json") == each
    assert list(VALIDATOR.iter_errors(json.loads(data))) == []


def test_each_run_is_a_line() -> None:
    """So that a diff of two results says which run is another."""
    lines = result_bytes(result(run(), run(99.0))).decode().splitlines()
    assert sum("predicted_n" in line for line in lines) == 2


def test_the_schema_of_the_docs_is_current() -> None:
    """`herd schema result > docs/schema/result.schema.json` makes it so."""
    printed = CliRunner().invoke(main, ["schema", "result"]).stdout
    assert (ROOT / "docs/schema/result.schema.json").read_text(encoding="utf-8") == printed == result_schema_text()
    Draft202012Validator.check_schema(result_schema())


@pytest.mark.parametrize("change", [{"format": 2}, {"rig": "../x"}, {"more": 1}, {"cells": 3}, {"began": "now"}])
def test_the_schema_refuses_what_is_refused(change: dict[str, Any]) -> None:
    value = json.loads(result_bytes(result(run()))) | change
    assert list(VALIDATOR.iter_errors(value))
    with pytest.raises(UserError):
        parse_result(json.dumps(value).encode(), "a.json")


def test_the_id_is_of_the_content() -> None:
    one, other = store.with_id(result(run())), store.with_id(result(run(100.1)))
    assert one.id != other.id
    assert store.with_id(one) == one
    edited = result_bytes(one).replace(b'"predicted_n": 257', b'"predicted_n": 258')
    for other_bytes in (edited, result_bytes(result(run()))):
        with pytest.raises(UserError, match="was changed after the measurement"):
            parse_result(other_bytes, "a.json")


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is no JSON, or ends in the middle"),
        (b"{}", "a.json is no result of a measurement"),
        (b"[1]", "a.json is no result of a measurement"),
        (b'{"format": true, "cells": []}', "a.json is no result of a measurement"),
        (b'{"format": 9, "cells": []}', "a result of format 9"),
        (b'{"format": 1, "cells": []}', "is missing|field required"),
        (b"\xff\xfe", "it is no text"),
        (deep(200_000), "nested too deeply"),
        (b" " * (store.MOST_RESULT_BYTES + 1), "larger than 8 MiB"),
        (b"[" + b"0," * 500_000 + b"0]", "more than 400,000 values"),
        (result_bytes(result(run()))[:-40], "ends in the middle"),
        (result_bytes(result(run())).replace(b"257", b"NaN"), "finite number|valid integer"),
        (result_bytes(result(run())).replace(b"2560.0", b"Infinity"), "finite number"),
        (result_bytes(result(run())).replace(b"2560.0", b"5e-324"), "greater than or equal to 0.000001"),
        (result_bytes(result(run())).replace(b"2560.0", b"1e300"), "less than or equal to 1000000000000000"),
        (result_bytes(result(run())).replace(b"257", b"1" + 400 * b"0"), "less than or equal to 9223372036854775807"),
        (result_bytes(result(run())).replace(b"257", b"-1"), "greater than or equal to 0"),
        (
            result_bytes(result(run(start=0))).replace(b'"predicted_n"', b'"start": 7, "predicted_n"'),
            "start of every run",
        ),
    ],
)
def test_what_is_no_result_is_a_sentence(data: bytes, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        parse_result(data, "a.json")
    assert caught.value.help
    assert len(str(caught.value)) < 400


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_nothing_else_than_a_sentence_comes_of_bytes(data: bytes) -> None:
    for read in (parse_result, fold_journal):
        with pytest.raises(UserError):
            read(data, "a")


@given(st.integers(0, 2000), st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_nothing_else_comes_of_a_result_with_a_wrong_byte(at: int, byte: int) -> None:
    data = bytearray(result_bytes(store.with_id(result(run(), run(50.0)))))
    data[at % len(data)] = byte
    with suppress(UserError):
        parse_result(bytes(data), "a.json")


JOURNAL = (
    journal_line(begin=result()),
    journal_line(start=Start(process="1")),
    journal_line(cell=0, run=run()),
    journal_line(start=Start(process="2")),
    journal_line(cell=0, run=run(99.0, start=1)),
)


def test_a_journal_that_ends_anywhere_has_what_was_whole() -> None:
    every = b"".join(JOURNAL)
    for cut in range(len(JOURNAL[0]), len(every) + 1):
        found, whole = fold_journal(every[:cut], "a.jsonl")
        lines = every[:cut].count(b"\n")
        assert whole == sum(map(len, JOURNAL[:lines]))
        assert sum(len(cell.runs) for cell in found.cells) == {1: 0, 2: 0, 3: 1, 4: 1, 5: 2}[lines]
        assert found.ended is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{\n", "line 2 of a.jsonl"),
        (b"[]\n", "line 2 is no line of a journal"),
        (b'{"cell": 7, "run": {}}\n', "line 2 is no line of a journal"),
        (b'{"cell": true, "run": {}}\n', "line 2 is no line of a journal"),
        (
            b'{"cell": 0, "run": {"predicted_n": "x"}}\n',
            "`cells.0.runs.0.predicted_n`: input should be",
        ),
    ],
)
def test_a_journal_that_is_damaged_in_the_middle_is_a_sentence(line: bytes, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        fold_journal(JOURNAL[0] + line + JOURNAL[2], "a.jsonl")


def test_a_journal_with_the_noughts_of_a_power_cut() -> None:
    data = b"".join(JOURNAL[:3])
    assert fold_journal(data + bytes(300), "a.jsonl") == fold_journal(data, "a.jsonl")


# --- for others ----------------------------------------------------------------------------------------------

CANARIES = (
    "canaryhost.example.org",
    "canaryhost",
    "canaryuser",
    "canaryhome",
    "canaryduo",
    "/opt/canarypath/canaryfile.gguf",
    "~/canarytilde",
    "C:\\canarywindows\\canaryfile",
    "192.168.77.31",
    "fe80::1a2b:3c4d:5e6f:7788",
    "2001:db8:77:31:1:2:3:4",
    "00:1b:44:11:3a:b7",
    "4d1a2b3c-5e6f-7a8b-9c0d-1e2f3a4b5c6d",
    "canarymail@canary.example",
    "canarybox.fritz.box",
    "canarynas.lan",
    "http://canaryurl.example:8080/v1",
)
TEXT = " ".join(("begin", *CANARIES, "/home/canaryhome/x", "end"))


def test_no_canary_in_any_text_is_shared() -> None:
    """Planted in every field that may hold any text, and in keys."""
    planted: Result = full(Result, TEXT).model_copy(update={"rig": "canaryduo"})
    planted = of(planted, "canaryhost.example.org", "canaryuser")
    before = result_bytes(planted).decode()
    assert before.count("canaryfile") > 2 * 30
    text = result_bytes(redact_result(planted)).decode()
    left = [canary for canary in CANARIES if json.dumps(canary)[1:-1].lower() in text.lower()]
    assert left == []
    assert "canary" not in text.lower()
    assert "begin" in text


def test_names_that_are_too_short_to_look_for_are_taken_from_their_places() -> None:
    """`al` stands in too many words; a GPU has an address that is no UUID."""
    origin = WHOLE.provenance.model_copy(update={"gpus": (Gpu(name="RTX 3090", uuid="7", address="0000:65:00.0"),)})
    shared = redact_result(of(WHOLE.model_copy(update={"provenance": origin}), "al", "x"))
    assert (shared.provenance.host.name, shared.provenance.server.user) == (None, None)
    assert shared.provenance.gpus == (Gpu(name="RTX 3090"),)
    assert [start.process for start in shared.starts] == ["0"]


def test_what_was_measured_is_shared() -> None:
    whole = store.with_id(WHOLE)
    shared = redact_result(whole)
    assert shared.shared
    assert (shared.rig, shared.instance) == ("rig", "instance")
    assert shared.id not in ("", whole.id)
    assert shared.cells[0].runs[0] == whole.cells[0].runs[0]
    assert shared.provenance.files == whole.provenance.files
    assert shared.provenance.engine == whole.provenance.engine
    assert parse_result(result_bytes(shared), "a.json") == shared
    assert redact_result(shared) == shared


def test_a_user_of_a_common_name_takes_no_fixed_word_along() -> None:
    """Whose user is `code` or `herd` still has a result: words of a fixed form are nobody's."""
    shared = redact_result(of(WHOLE, "herd", "code"))
    assert (shared.cells[0].condition.kind, shared.source.kind) == ("code", "herd")
    assert parse_result(result_bytes(shared), "a.json") == shared


@pytest.mark.parametrize(
    "text",
    [
        "llama.cpp b11434 (build 11434, 8cf427ff), 267 t/s",
        "unsloth/Qwen3.6-35B-A3B-MTP-GGUF UD-Q3_K_XL",
        "Ubuntu 24.04.1 LTS, 6.8.0-45-generic, glibc 2.39",
        "NVIDIA GeForce RTX 5090, 600.00 W, 580.95.05",
        "-DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=86;120",
        "--spec-draft-n-max 3 -ts 0.9,1,1,1,1,1 --temp 0.6",
    ],
)
def test_what_is_nobodys_stays(text: str) -> None:
    assert redact_text(text, ("tom", "duo")) == text


def test_every_text_is_of_a_form_or_is_scrubbed() -> None:
    """A new field that holds texts in another shape would go out as it is."""
    for model in models(Result):
        for name, field in model.model_fields.items():
            kind = str(field.annotation)
            if name not in free_texts(model) and "str" in kind.replace("StringConstraints", ""):
                assert "StringConstraints" in kind or field.metadata, f"{model.__name__}.{name}: {kind}"


def models(top: type[Recorded]) -> set[type[Recorded]]:
    """All models that a value of this one holds."""
    return {each for each in recorded(Recorded) if each.__name__ in json.dumps(top.model_json_schema())} | {top}


def recorded(base: type[Recorded]) -> set[type[Recorded]]:
    return {deeper for each in base.__subclasses__() for deeper in (each, *recorded(each))}


def test_steps_of_a_draft() -> None:
    """The ten runs of a published table: 2,000 tokens of which 1,454 were drafted and accepted."""
    assert run(draft_n=1634, draft_n_accepted=1454, n=2000).steps == 545
    assert run(n=2000).steps == 1999
    assert run(n=1).steps is None
    assert Run().steps is None
