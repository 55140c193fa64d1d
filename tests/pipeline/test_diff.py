"""How texts of a host differ from those that are planned: read by the program on the host, whatever is in them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from llamaherd.host.remote import Remote
from llamaherd.inventory.schema import Connect
from llamaherd.onhost.files import MOST_TEXT, KeysFound, KeysInput, TextsFound, TextsInput, find_keys, read_texts
from llamaherd.onhost.system import Host
from llamaherd.pipeline import diff
from llamaherd.pipeline.diff import query_diffs, text_diff
from llamaherd.plan import TextFile
from tests.support.played_host import File, PlayedHost

HOSTILE = "a\tb\n@ end\n@ begin\n\x1b[31mred\n\\x \xe9 \u2028\nno newline"


def there(files: list[Path]) -> Mapping[str, str]:
    """Return the texts of these files as this machine's program reads them."""
    return read_texts(TextsInput(tuple(map(str, files))), Host(print, print)).texts


def test_a_text_comes_as_it_is(tmp_path: Path) -> None:
    odd = tmp_path / "o'd d"
    odd.write_text(HOSTILE)
    (tmp_path / "empty").touch()
    files = [odd, tmp_path / "empty", tmp_path / "absent", tmp_path]
    assert there(files) == {str(odd): HOSTILE, str(tmp_path / "empty"): ""}


def test_no_more_is_read_than_ours_can_have(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * (MOST_TEXT + 1))
    assert len(there([large])[str(large)]) == MOST_TEXT


def test_what_is_no_text_is_shown_as_that(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\n")
    assert there([tmp_path / "bytes"]) == {str(tmp_path / "bytes"): "\ufffd\n"}


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    (tmp_path / "other").symlink_to(tmp_path / "file")
    (tmp_path / "file").write_text("a\n")
    files = [tmp_path / name for name in ("pipe", "link", "other")]
    assert there(files) == {str(tmp_path / "other"): "a\n"}


def test_servers_with_a_key_are_found() -> None:
    hostile = "$(id)'\n"
    host = PlayedHost({}, files={"/etc/llamaherd/keys/chat": File("a key"), f"/etc/llamaherd/keys/{hostile}": File("")})
    found = find_keys(KeysInput(("small", "chat", hostile)), host)
    assert found == KeysFound(("chat", hostile))


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
    monkeypatch.setattr(diff, "query_verb", lambda *_: TextsFound({"/one": "old\n", "/other": "new\n"}))
    found = query_diffs(Remote(Connect(host="box")), [one, two])
    assert list(found) == ["/one"]
    assert found["/one"].endswith("-old\n+new")


def test_where_nothing_differs_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "query_verb", lambda *_: pytest.fail("the host was queried"))
    assert query_diffs(Remote(Connect(host="box")), []) == {}
