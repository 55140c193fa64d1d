"""API keys: read from where the inventory says, and what is no key is refused in words without the key in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamaherd.inventory.api_keys import UnreadableKeyError, read_key, unreadable_key
from llamaherd.inventory.schema import Secret
from tests.support.rigs import KEY


@pytest.mark.parametrize("text", [KEY, f"{KEY}\n", f"  {KEY}\r\n"])
def test_a_key_in_a_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_bytes(text.encode())
    assert read_key(Secret(file=file)) == KEY
    assert unreadable_key(Secret(file=file)) is None


def test_a_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOX_KEY", f"{KEY}\n")
    assert read_key(Secret(env="BOX_KEY")) == KEY


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "there is no API key in"),
        (b"\n \n", "there is no API key in"),
        (b"two\nlines", "is no API key"),
        (b"two words", "is no API key"),
        (b"a\x00b", "is no API key"),
        (b"a\xffb", "is no API key"),
    ],
)
def test_what_is_no_key(tmp_path: Path, data: bytes, problem: str) -> None:
    file = tmp_path / "key"
    file.write_bytes(data)
    with pytest.raises(UnreadableKeyError, match=problem) as caught:
        read_key(Secret(file=file))
    assert not data.strip() or data.decode(errors="replace") not in str(caught.value)
    assert "help: put the key there" in str(unreadable_key(Secret(file=file)))


def test_a_key_that_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOX_KEY", raising=False)
    with pytest.raises(UnreadableKeyError, match="there is no API key in the environment variable BOX_KEY"):
        read_key(Secret(env="BOX_KEY"))
    with pytest.raises(UnreadableKeyError, match=r"cannot read the API key in .*/none: No such file"):
        read_key(Secret(file=tmp_path / "none"))
    with pytest.raises(UnreadableKeyError, match="it is a folder"):
        read_key(Secret(file=tmp_path))
