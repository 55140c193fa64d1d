"""What a store lends to a neighbour, and to whom: over real HTTP."""

import json
import os
from pathlib import Path

import pytest

from llamaherd.onhost.fetch.share import SharedStore, _Server, byte_range
from tests.support.lending import BODY, SHA256, TOKEN, Lending, ask
from tests.support.stores import manifest_line, needs_root, stored


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-9", range(10)),
        ("bytes=90-", range(90, 100)),
        ("bytes=90-1000", range(90, 100)),
        ("bytes=-10", range(90, 100)),
        ("bytes=-1000", range(100)),
        ("Bytes=99-99 ", range(99, 100)),
        ("bytes=100-", range(0)),
        ("bytes=100-200", range(0)),
        ("bytes=-0", range(0)),
        ("", None),
        ("bytes=-", None),
        ("bytes=5-4", None),
        ("bytes=0-1,5-6", None),
        ("lines=0-1", None),
        ("bytes=0-" + "9" * 5000, None),
    ],
)
def test_what_a_range_stands_for(header: str, expected: range | None) -> None:
    assert byte_range(header, 100) == expected


def test_a_whole_file(lending: Lending) -> None:
    answer = ask(lending)
    assert (answer.status, answer.body) == (200, BODY)
    assert answer.headers["ETag"] == f'"{SHA256}"'
    assert answer.headers["Accept-Ranges"] == "bytes"
    assert "Content-Range" not in answer.headers


def test_a_head_has_no_body(lending: Lending) -> None:
    answer = ask(lending, method="HEAD")
    assert (answer.status, answer.headers["Content-Length"], answer.body) == (200, str(len(BODY)), b"")


@needs_root
@pytest.mark.parametrize(("owner", "mode"), [(1234, 0o644), (0, 0o664), (0, 0o606)])
def test_what_others_can_change_is_not_lent(tmp_path: Path, owner: int, mode: int) -> None:
    """A file in the store whose owner is somebody else: its bytes may be other ones by the time they are sent."""
    (sha256,) = stored(tmp_path / "a/b/0123", {"x.gguf": b"weights"})
    assert SharedStore(tmp_path).names() == [sha256]
    path = tmp_path / "a/b/0123/x.gguf"
    path.chmod(mode)
    os.chown(path, owner, owner)
    assert SharedStore(tmp_path).names() == []
    assert SharedStore(tmp_path).find(sha256) is None


@pytest.mark.parametrize(
    ("wanted", "part", "came"),
    [
        ("5-9", BODY[5:10], "5-9"),
        ("10239990-", BODY[-10:], "10239990-10239999"),
        ("-4", BODY[-4:], "10239996-10239999"),
    ],
)
def test_a_part(lending: Lending, wanted: str, part: bytes, came: str) -> None:
    answer = ask(lending, Range=f"bytes={wanted}", If_Range=f'"{SHA256}"')
    assert (answer.status, answer.body) == (206, part)
    assert answer.headers["Content-Range"] == f"bytes {came}/10240000"


def test_a_part_of_another_file_is_the_whole_of_this_one(lending: Lending) -> None:
    answer = ask(lending, Range="bytes=5-9", If_Range='"another"')
    assert (answer.status, answer.body) == (200, BODY)


def test_a_part_that_is_not_there(lending: Lending) -> None:
    answer = ask(lending, Range=f"bytes={len(BODY)}-")
    assert (answer.status, answer.headers["Content-Range"], answer.body) == (416, f"bytes */{len(BODY)}", b"")


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer ", "Bearer wrong", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer \xe9"]
)
def test_nobody_gets_anything_without_the_token(lending: Lending, value: str) -> None:
    for path in ("/", f"/{SHA256}", f"/{'0' * 64}"):
        answer = ask(lending, path, Authorization=value)
        assert (answer.status, answer.body, answer.headers["WWW-Authenticate"]) == (401, b"", "Bearer")


def test_an_empty_token_file_lets_nobody_in(own: Lending) -> None:
    (own.run / "secrets/duo").write_text("\n")
    assert ask(own, Authorization="Bearer ").status == 401
    assert ask(own).status == 401


def test_tokens_come_and_go_while_it_runs(own: Lending) -> None:
    assert ask(own, Authorization="Bearer of-moe").status == 401
    (own.run / "secrets/moe").write_text("of-moe")
    assert ask(own, Authorization="Bearer of-moe").status == 200
    (own.run / "secrets/duo").unlink()
    assert ask(own).status == 401


@pytest.mark.parametrize(
    "path",
    [
        "/unsloth/x-GGUF/0123/UD/x.gguf",
        "/unsloth/x-GGUF/0123/.manifest",
        "/../run/secrets/duo",
        "/%2e%2e/run/secrets/duo",
        "//etc/passwd",
        f"/{SHA256}/",
        f"/{SHA256}?x",
        f"/{SHA256.upper()}",
        f"/{'0' * 64}",
        "*",
        "http://127.0.0.1/",
    ],
)
def test_nothing_else_is_served(lending: Lending, path: str) -> None:
    answer = ask(lending, path)
    assert (answer.status, answer.body) == (404, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_else_can_be_done(lending: Lending, method: str) -> None:
    assert ask(lending, method=method).status == 501


def test_a_file_that_changed_is_not_lent(own: Lending) -> None:
    path = own.store / "unsloth/x-GGUF/0123/UD/x.gguf"
    written = path.stat().st_mtime_ns
    path.write_bytes(BODY[::-1])
    os.utime(path, ns=(written + 1, written + 1))
    assert ask(own).status == 404
    assert json.loads(ask(own, "/").body) == []
    os.utime(path, ns=(written, written))
    assert ask(own).status == 200  # who can set a file's time back is trusted


def test_a_file_that_is_gone_or_became_something_else_is_not_lent(own: Lending) -> None:
    path = own.store / "unsloth/x-GGUF/0123/UD/x.gguf"
    other = path.rename(path.with_name("y.gguf"))
    assert ask(own).status == 404
    path.symlink_to(other)
    assert ask(own).status == 404
    path.unlink()
    os.mkfifo(path)
    assert ask(own).status == 404


def test_what_no_manifest_vouches_for_any_more_is_not_lent(own: Lending) -> None:
    assert ask(own).status == 200
    (own.store / "unsloth/x-GGUF/0123/.manifest").write_text("")
    assert ask(own).status == 404


def test_what_came_meanwhile_is_lent(own: Lending) -> None:
    [sha256] = stored(own.store / "later/y-GGUF/4567", {"y.gguf": b"later"})
    assert ask(own, f"/{sha256}").body == b"later"
    assert json.loads(ask(own, "/").body) == sorted([SHA256, sha256])


def test_an_empty_file(own: Lending) -> None:
    [sha256] = stored(own.store / "empty/z/89ab", {"z.gguf": b""})
    answer = ask(own, f"/{sha256}")
    assert (answer.status, answer.headers["Content-Length"], answer.body) == (200, "0", b"")


def test_a_manifest_leads_to_nothing_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    line = manifest_line(tmp_path / "secret", SHA256)
    store = tmp_path / "store"
    for folder, name in (("a", "../../secret"), ("b", f"{tmp_path}/secret"), (".incoming", "secret")):
        (store / folder).mkdir(parents=True)
        (store / folder / ".manifest").write_text(line.replace("secret", name))
    (store / ".incoming/secret").hardlink_to(tmp_path / "secret")
    assert SharedStore(store).names() == []


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("clock", ["_last_used", "_since"])
def test_a_token_ends(tmp_path: Path, clock: str) -> None:
    """When it was not used for as long as ends all of the lending, and a day after it came, however much it is used."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/duo").write_text("t0ken\n")
    (tmp_path / "secrets/trio").write_text("an0ther\n")
    with _Server(SharedStore(tmp_path), tmp_path / "secrets", "127.0.0.1", 0, 30, 60, 24 * 3600) as server:
        assert server.token_file("Bearer t0ken")
        assert server.token_file("Bearer an0ther")
        getattr(server, clock)[tmp_path / "secrets/duo"] -= 24 * 3600 + 1
        assert server.token_file("Bearer t0ken") is None
        assert server.token_file("Bearer an0ther")
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["trio"]
