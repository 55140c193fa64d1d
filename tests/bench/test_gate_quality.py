"""A gate's `kld`: what is judged, as which unit, and when what is declared is let in. No tool runs here."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.measure.results.store import result_files
from llamaherd.measure.trials.divergence import Compared, Figure, NoFiguresError, Quality, parse_quality
from llamaherd.measure.trials.gate import (
    GateOutcome,
    QualityJudgement,
    QualityRow,
    common_readings,
    gate_pair,
    has_same_output,
    judged_variant,
    not_judged,
    output_hashes,
    quality_unit,
    save_judgement,
    saved_judgement,
)
from llamaherd.measure.trials.pair import Pair
from llamaherd.measure.trials.trial import Variant
from llamaherd.memory.divergence import Reading
from llamaherd.plan import DivergencePlan, Plan
from tests.bench.test_divergence import REAL
from tests.support.rigs import Declared, cpu_rig, planned

GATE: Declared = {"instances/chat/gate": {"kld": 0.02}, "instances/chat/kv": "f16"}
READINGS = (Reading(8192, 2, 512, 1000), Reading(4096, 2, 512, 500))


def plan(readings: tuple[Reading, ...] = READINGS, vocabulary: int = 262_144, **keys: Any) -> Plan:
    """The plan of the rig with a gate; what is only known of its model's header is put in by hand."""
    found = planned(cpu_rig(), {**GATE, **{f"instances/chat/{key}": value for key, value in keys.items()}})

    def told(of: DivergencePlan | None) -> DivergencePlan | None:
        return of.model_copy(update={"readings": readings, "vocabulary": vocabulary}) if of else None

    instances = tuple(each.model_copy(update={"divergence": told(each.divergence)}) for each in found.instances)
    return found.model_copy(update={"instances": instances})


def pair(was: Plan, new: Plan) -> Pair:
    return gate_pair(Connect(host=LOCAL), was, new, "chat")


def row(kld: float, error: float, most: float = 0.02) -> QualityRow:
    figures = Quality(kld=Figure(value=kld, error=error), same_top=Figure(value=97.0, error=0.5))
    return QualityRow(most, Compared(context=4096, chunks=2, quality=figures))


@pytest.mark.parametrize(
    ("kld", "error", "verdict", "lets_in"),
    [
        (0.0, 0.0, "held", True),
        (0.018, 0.001, "held", True),
        (0.0181, 0.001, "not known yet", True),
        (0.0219, 0.001, "not known yet", True),
        (0.0221, 0.001, "beyond", False),
        (0.3, 0.1, "beyond", False),
        (0.3, 0.2, "not known yet", True),
    ],
)
def test_it_is_beyond_where_it_is_by_more_than_its_error(
    kld: float, error: float, verdict: str, *, lets_in: bool
) -> None:
    found = row(kld, error)
    assert (found.verdict, found.lets_in) == (verdict, lets_in)
    assert GateOutcome(found).lets_in is lets_in


def test_a_sentence_has_the_figure_its_error_and_the_limit() -> None:
    assert str(row(0.109, 0.005)) == (
        "mean KLD 0.10900 ± 0.00500, same top 97.00 ± 0.50 %, 2 x 4,096 tokens, and a mean KLD of 0.02 is the most"
    )
    assert GateOutcome(row(0.109, 0.005)).lines[0].endswith("is the most: beyond")


def test_what_could_not_be_judged_is_not_let_in() -> None:
    found = QualityRow(0.02, Compared(says="it took too long; "))
    assert (found.verdict, found.lets_in, GateOutcome(found).lets_in) == ("not judged", False, False)
    assert str(found) == "it cannot be judged, where a mean KLD of 0.02 is the most: it took too long"


@pytest.mark.parametrize(
    ("keys", "same"),
    [
        ({"threads": 1}, True),
        ({"ubatch": 64}, True),
        ({"context": 4096}, True),
        ({"parallel": 2}, True),
        ({"mlock": True}, True),
        ({"sampling": {"temperature": 0.1}}, True),
        ({"kv": "q8_0"}, False),
        ({"flash_attention": "off"}, False),
        ({"environment": {"GGML_OF_ITS_OWN": "1"}}, False),
        ({"extra_args": ["--lora", "/srv/adapter.gguf"]}, False),
        ({"extra_args": ["--rope-freq-base", "1000"]}, False),
    ],
)
def test_only_what_can_change_what_it_says_is_judged(keys: dict[str, Any], *, same: bool) -> None:
    assert has_same_output(pair(plan(), plan(**keys))) is same


def test_another_model_or_engine_is_judged() -> None:
    other = planned(cpu_rig(), {**GATE, "models/gemma/sha256": "b6" * 32})
    assert not has_same_output(pair(plan(), other))
    built = planned(cpu_rig(), {**GATE, "engines/main/options": {"GGML_NATIVE": "OFF"}})
    assert not has_same_output(pair(plan(), built))


def test_a_gate_that_is_new_says_nothing_otherwise() -> None:
    """Its engine is built anew, with one program more: nothing of the server is another one."""
    was = planned(cpu_rig(), {"instances/chat/kv": "f16"})
    both = pair(was, plan())
    assert both.a.instance.server.program != both.b.instance.server.program
    assert both.a.instance.divergence is None
    assert has_same_output(both)
    changed = not_judged(pair(was, plan(kv="q8_0")), 0.02)
    assert changed
    assert "was built without the program that compares" in str(changed)
    assert "only `gate` changed" in changed.way_out


def test_another_vocabulary_is_another_model() -> None:
    found = not_judged(pair(plan(), plan(vocabulary=151_936)), 0.02)
    assert found
    assert "it has 151,936 kinds of tokens, and what serves 262,144: it is another model" in str(found)


def test_where_no_text_can_be_read_it_is_not_judged() -> None:
    assert not_judged(pair(plan(), plan()), 0.02) is None
    found = not_judged(pair(plan(), plan(readings=())), 0.02)
    assert found
    assert "no text can be read" in str(found)


def test_a_vocabulary_that_nobody_knows_is_no_other_one() -> None:
    found = not_judged(pair(plan(), plan(readings=(), vocabulary=0)), 0.02)
    assert found
    assert "the vocabulary is not known" in str(found)


def test_both_read_as_much_as_the_one_that_has_less_room() -> None:
    less = READINGS[1:]
    assert (
        common_readings(pair(plan(), plan(readings=less))) == common_readings(pair(plan(readings=less), plan())) == less
    )


def test_the_unit_reads_as_both() -> None:
    both = pair(plan(environment={"OLD": "1", "SAME": "2"}), plan(kv="q4_0", environment={"SAME": "2", "NEW": "%h"}))
    unit = quality_unit(both, READINGS[0], 300)
    *_, kept, compared = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    tools = [f"{each.build_folder}/bin/llama-perplexity" for each in (both.a.instance, both.b.instance)]
    assert kept.startswith(f"ExecStart=/usr/bin/env -u NEW OLD=1 SAME=2 {tools[0]} --model ")
    assert compared.startswith(f"ExecStart={tools[1]} --model ")
    assert "--cache-type-k f16 --cache-type-v f16" in kept
    assert "--cache-type-k q4_0 --cache-type-v q4_0" in compared
    assert kept.endswith("--kl-divergence-base /var/tmp/logits --file /run/llamaherd/arms-text --chunks 2")
    assert compared.endswith("--kl-divergence-base /var/tmp/logits --kl-divergence")
    for line in (kept, compared):
        assert "--ctx-size 8192 --batch-size 512 --ubatch-size 512" in line
        assert not {"--port", "--alias", "--api-key-file", "--metrics"} & set(line.split())
    assert "TimeoutStartSec=300" in unit


def test_it_runs_where_one_of_both_has_gpus() -> None:
    both = pair(plan(), plan(kv="q8_0"))
    assert judged_variant(both).instance is both.b.instance
    gpus = both.a.instance.server.model_copy(update={"gpus": object()})
    moved = replace(both, a=Variant("A", "a", both.a.instance.model_copy(update={"server": gpus})))
    assert judged_variant(moved).instance is moved.a.instance


def test_of_two_vocabularies_the_tool_says_so_and_goes_on() -> None:
    said = "0.00.913.411 E kl_divergence: inconsistent vocabulary (262144 vs 248320)\n" + REAL
    with pytest.raises(NoFiguresError, match=r"other tokens, 262,144 and 248,320 of them"):
        parse_quality(said)


def judgement(began: str, a: str = "a", found: Compared | None = None) -> QualityJudgement:
    quality = row(0.01, 0.001).found if found is None else found
    return QualityJudgement(
        llamaherd="0", rig="box", instance="chat", began=began, text="0" * 64, a=a, b="b", found=quality
    )


def test_what_was_read_today_is_not_read_again(tmp_path: Path) -> None:
    since = datetime.fromisoformat("2026-11-26T00:00:00Z")
    like = judgement("2026-11-26T20:00:00Z")
    assert saved_judgement(tmp_path, like, since) is None
    first = judgement("2026-11-26T10:00:00Z")
    path = save_judgement(tmp_path, first)
    assert path == tmp_path / "box/chat/kld-20261126T100000Z.json"
    save_judgement(tmp_path, judgement("2026-11-26T11:00:00Z", a="another"))
    save_judgement(tmp_path, judgement("2026-11-26T12:00:00Z", found=Compared(says="it took too long")))
    assert saved_judgement(tmp_path, like, since) == first
    assert saved_judgement(tmp_path, like, datetime.fromisoformat("2026-11-27T00:00:00Z")) is None
    for text in ("{}", first.model_dump_json().replace("2026-11-26", "2026-13-26"), first.model_dump_json()[:-1]):
        path.write_text(text, encoding="utf-8")
        assert saved_judgement(tmp_path, like, since) is None
    assert result_files(tmp_path, "box", "chat") == []


def test_it_is_known_by_what_is_said_and_not_by_how_fast() -> None:
    a, b = output_hashes(pair(plan(), plan(kv="q8_0")))
    assert a != b
    assert output_hashes(pair(plan(threads=1), plan(kv="q8_0", ubatch=64))) == (a, b)
    assert output_hashes(pair(plan(), plan(kv="q4_0")))[1] != b
