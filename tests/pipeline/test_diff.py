"""How texts of a host differ from those that are planned: asked for by a real shell, whatever is in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from llamaherd.host.protocol import UnaskedError, answer, question_of
from llamaherd.host.remote import Remote
from llamaherd.inventory.schema import Connect
from llamaherd.pipeline import diff
from llamaherd.pipeline.diff import MOST, ask_diffs, text_diff, texts_of
from llamaherd.plan import TextFile

HOSTILE = "a\tb\n@ end\n@ begin\n\x1b[31mred\n\\x \xe9 \u2028\nno newline"


def there(files: list[Path]) -> dict[str, str]:
    """What this machine's shell says of these files."""
    script = question_of("host/texts.sh.j2", files=[str(file) for file in files], most=MOST)
    said = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, check=True)
    return texts_of(answer(said.stdout.split("\n")))


def test_a_text_comes_as_it_is(tmp_path: Path) -> None:
    odd = tmp_path / "o'd d"
    odd.write_text(HOSTILE)
    (tmp_path / "empty").touch()
    files = [odd, tmp_path / "empty", tmp_path / "absent", tmp_path]
    assert there(files) == {str(odd): HOSTILE, str(tmp_path / "empty"): ""}


def test_no_more_is_read_than_ours_can_have(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * (MOST + 1))
    assert len(there([large])[str(large)]) == MOST


def test_what_is_no_text_is_shown_as_that(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\n")
    assert there([tmp_path / "bytes"]) == {str(tmp_path / "bytes"): "\ufffd\n"}


@pytest.mark.parametrize("line", ["text\t/a", "text\t/a\tno base64!", "other\t/a\tYQ==", "text\t/a\tYQ==\tmore"])
def test_a_line_that_was_not_asked_for(line: str) -> None:
    with pytest.raises(UnaskedError):
        texts_of([line])


def test_a_diff_goes_from_what_is_there_to_what_is_planned() -> None:
    file = TextFile(path="/etc/one", text="a\nb\nc\n")
    assert text_diff("a\nx\nc\n", file).splitlines() == [
        "--- /etc/one (there)",
        "+++ /etc/one (planned)",
        "@@ -1,3 +1,3 @@",
        " a",
        "-x",
        "+b",
        " c",
    ]


def test_only_what_is_there_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (TextFile(path=path, text="new\n") for path in ("/one", "/two"))
    monkeypatch.setattr(diff, "ask_host", lambda *_: ["text\t/one\tb2xkCg=="])
    found = ask_diffs(Remote(Connect(host="box")), [one, two])
    assert list(found) == ["/one"]
    assert found["/one"].endswith("-old\n+new")


def test_where_nothing_differs_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "ask_host", lambda *_: pytest.fail("the host was asked"))
    assert ask_diffs(Remote(Connect(host="box")), []) == {}
