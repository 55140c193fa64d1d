"""The card of a result: what it shows as a value, and its picture."""

from __future__ import annotations

import io
import struct
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from matplotlib.image import imread

from llamaherd.cli.herd import main
from llamaherd.diagnostics.findings import UserError
from llamaherd.installation import install_command
from llamaherd.measure.report.charts import DARK, LIGHT, Scheme, context_table
from llamaherd.measure.report.drawing import CARD_HEIGHT, CARD_WIDTH, draw_card
from llamaherd.measure.report.export import card_of, card_result
from llamaherd.measure.report.results import measured
from llamaherd.measure.results.store import write_result
from tests.bench.made import result, run
from tests.report.many import many, one

SVG = "{http://www.w3.org/2000/svg}"


def herd(*words: str | Path) -> Result:
    ended = CliRunner().invoke(main, [str(word) for word in words], prog_name="herd")
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


def test_a_card_names_model_hardware_engine_and_speeds() -> None:
    card = card_of(measured(one(3, 1, 2)))
    assert card.title == "Qwen3.6 35B-A3B UD-Q3_K_XL"
    assert card.hardware.startswith("2 RTX 3090 at 280 W · AMD Ryzen 9 5950X")
    assert card.software == "llama.cpp b11434 · context 262,144"
    assert [(each.name, each.condition) for each in card.figures] == [
        ("decode", "code"),
        ("prefill", "prompt of 2K tokens"),
        ("first token", "prompt of 2K tokens"),
    ]
    assert all(each.error.startswith("± ") for each in card.figures)
    assert card.curve
    assert [point.x for point in card.curve.series[0].points] == [1 << at for at in range(12, 18)]
    assert card.bars == ()
    assert "one run for each point" in card.doubt
    assert "measured 2026-03-02 by herd bench · result " in card.origin


def test_without_a_curve_it_has_a_bar_for_each_kind_of_text() -> None:
    card = card_of(measured(one(3, 1, 2, deep=False)))
    assert card.curve is None
    assert [bar.name for bar in card.bars] == ["code", "prose", "copy-edit", "extract", "reasoning"]


def test_a_single_run_has_no_error() -> None:
    card = card_of(measured(result(run(50.0))))
    assert [each.error for each in card.figures if each.name == "decode"] == ["n = 1: error unknown"]


def test_a_result_without_a_speed_has_no_card() -> None:
    with pytest.raises(UserError, match="has no measured speed"):
        card_of(replace(measured(one(3, 1, 2)), cells=()))


def test_a_card_is_of_one_instance_and_its_newest_whole_result() -> None:
    found = [measured(each) for each in many(4, instances=1)]
    cut_off = replace(found[-1], began="2026-12-31T00:00:00Z", whole=False)
    assert card_result([*found, cut_off]) == max(found, key=lambda each: each.began)
    with pytest.raises(UserError, match="a card shows one instance") as raised:
        card_result([measured(each) for each in many(4, instances=2)])
    assert "attic/server-0, duo/server-1" in raised.value.help
    with pytest.raises(UserError, match="no result"):
        card_result([])


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("deep", [True, False])
def test_a_picture_has_its_size_and_its_scheme(deep: bool, scheme: Scheme) -> None:
    card = card_of(measured(one(3, 1, 2, deep=deep)))
    picture = draw_card(card, "png", scheme)
    paper = [round(255 * each) for each in imread(io.BytesIO(picture))[0, 0, :3]]
    assert paper == [int(scheme.paper[at : at + 2], 16) for at in (1, 3, 5)]
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == (CARD_WIDTH, CARD_HEIGHT)
    drawing = draw_card(card, "svg", scheme)
    assert drawing == draw_card(card, "svg", scheme), "the same card is the same picture"
    assert b"prefers-color-scheme: dark" in drawing
    root = ElementTree.fromstring(drawing)
    assert root.tag == f"{SVG}svg"
    assert not [each for each in root.iter() if each.tag.endswith("script")]


def test_nothing_is_drawn_beyond_the_edge() -> None:
    """Names as long as people make them: the outermost columns of the picture stay empty."""
    card = card_of(measured(one(3, 1, 2)))
    long = replace(
        card, title="M" * 90, hardware="GPU " * 90, software="W" * 300, doubt="wide " * 200, origin="o" * 300
    )
    pixels = imread(io.BytesIO(draw_card(long, "png", LIGHT)))
    paper = pixels[0, 0]
    for edge in (pixels[:, :8], pixels[:, -8:], pixels[:8], pixels[-8:]):
        assert (edge == paper).all()


def test_letters_without_a_glyph_are_drawn_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    card = card_of(measured(one(3, 1, 2)))
    assert draw_card(replace(card, title="模型 🚀"), "png", LIGHT)
    assert [str(each.message) for each in recwarn] == []


def test_a_hostile_name_is_text() -> None:
    hostile = "$\\frac{1}{0}$ <script>alert(1)</script>\x1b[31m & \u202e"
    card = replace(card_of(measured(one(3, 1, 2))), title=hostile, hardware=hostile, doubt=hostile)
    ElementTree.fromstring(draw_card(card, "svg", LIGHT))
    assert draw_card(card, "png", LIGHT).startswith(b"\x89PNG")


def test_the_command_writes_a_picture_and_explains_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in many(2, instances=2):
        write_result(tmp_path / "results", each)
    output = tmp_path / "card.png"
    done = herd("-i", tmp_path, "report", "--card", "attic/server-0", "-o", output)
    assert (done.exit_code, done.output) == (0, "")
    assert output.read_bytes().startswith(b"\x89PNG")
    for words, message in (
        (["attic/server-0"], "a card is written to a file"),
        (["attic/server-0", "-o", str(tmp_path / "card.html")], "is no picture's name"),
        (["-o", str(output)], "a card shows one instance"),
        (["attic/server-0", "--csv", "-o", str(output)], "--card has one form"),
        (["attic/server-0", "--charts", str(tmp_path), "-o", str(output)], "--card has one form"),
    ):
        refused = herd("-i", tmp_path, "report", "--card", *words)
        assert refused.exit_code == 2
        assert message in refused.stderr
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused = herd("-i", tmp_path, "report", "--card", "attic/server-0", "-o", output)
    assert refused.exit_code == 2
    assert f"help: run `{install_command('report')}`" in refused.stderr


def test_the_table_over_the_context_has_the_columns_that_people_post() -> None:
    table = context_table(measured(one(3, 1, 2)).cells)
    assert table
    assert table.headings == (
        *("context", "prefill, t/s", "decode, t/s", "first token, ms", "power, W", "decode, tokens/kWh"),
    )
    assert [row[0] for row in table.rows] == ["2K", "4K", "8K", "16K", "32K", "64K", "128K"]
    assert table.rows[1] == ("4K", "1,410 ± 26", "56.72", "735.3 ± 13", "431.4", "465,099")
    assert context_table(measured(one(3, 1, 2, deep=False)).cells) is None
