"""The lock file: what is written is what is read, and a broken one says where and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from llamaherd import lock
from llamaherd.lock import Lock, LockedFile, LockedModel, LockError

SHA = "ab" * 32
COMMIT = "cd" * 20
GOLDEN = f"""\
{lock.HEADER}version: 1
models:
- repo: unsloth/gemma-3-270m-it-GGUF
  revision: main
  files: '*Q8_0*'
  commit: {COMMIT}
  endpoint: https://huggingface.co
  shards:
  - path: gemma-3-270m-it-Q8_0.gguf
    size: 291545280
    sha256: {SHA}
"""


def gemma(revision: str = "main") -> LockedModel:
    return LockedModel(
        repo="unsloth/gemma-3-270m-it-GGUF",
        revision=revision,
        files="*Q8_0*",
        commit=COMMIT,
        endpoint="https://huggingface.co",
        shards=(LockedFile(path="gemma-3-270m-it-Q8_0.gguf", size=291545280, sha256=SHA),),
    )


def locks() -> st.SearchStrategy[Lock]:
    def hexes(digits: int) -> st.SearchStrategy[str]:
        # Some all-digit hashes among them: YAML takes those for numbers unless they are quoted.
        return st.text("0123456789abcdef", min_size=digits, max_size=digits) | st.text(
            "0123456789", min_size=digits, max_size=digits
        )

    line = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1)
    name = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/\\"), min_size=1).filter(
        lambda part: part not in (".", "..")
    )
    word = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
    file = st.builds(
        LockedFile,
        path=st.lists(name, min_size=1, max_size=3).map("/".join),
        size=st.integers(min_value=0, max_value=2**63),
        sha256=hexes(64),
    )
    model = st.builds(
        LockedModel,
        repo=word | st.builds(lambda owner, repo: f"{owner}/{repo}", word, word),
        revision=line,
        files=line,
        commit=hexes(40),
        endpoint=st.sampled_from(["https://huggingface.co", "http://172.17.0.1:8080", "https://cache.lan/hf"]),
        shards=st.lists(file, min_size=1, max_size=4, unique_by=lambda one: one.path).map(tuple),
    )
    return st.builds(
        Lock,
        models=st.lists(model, max_size=4, unique_by=lambda one: f"{one.repo} {one.revision} {one.files}").map(tuple),
    )


# Without a deadline: each example waits for the disk, which may be busy with a compile.
@settings(max_examples=50, deadline=None)
@given(locks())
def test_what_is_written_is_what_is_read(tmp_path_factory: pytest.TempPathFactory, value: Lock) -> None:
    file = tmp_path_factory.mktemp("lock") / "herd.lock"
    lock.write(file, value)
    assert lock.read(file) == value
    assert lock.dumps(lock.read(file)) == lock.dumps(value)


@settings(max_examples=50, deadline=None)
@given(locks())
def test_the_order_of_declaration_does_not_matter(value: Lock) -> None:
    assert lock.dumps(Lock(models=tuple(reversed(value.models)))) == lock.dumps(value)


def test_the_text_is_one_that_people_can_review() -> None:
    assert lock.dumps(Lock(models=(gemma(),))) == GOLDEN


def test_find_wants_all_three_names_exactly() -> None:
    value = Lock(models=(gemma("v2"), gemma()))
    assert value.find("unsloth/gemma-3-270m-it-GGUF", "main", "*Q8_0*") == gemma()
    assert value.find("unsloth/gemma-3-270m-it-GGUF", "v3", "*Q8_0*") is None
    assert value.find("unsloth/gemma-3-270m-it-GGUF", "main", "*") is None


def test_shards_stand_in_order_and_add_up() -> None:
    shards = tuple(LockedFile(path=f"m-0000{n}-of-00003.gguf", size=10 * n, sha256=SHA) for n in (3, 1, 2))
    model = LockedModel.model_validate({**gemma().model_dump(), "shards": shards})
    assert [shard.size for shard in model.shards] == [10, 20, 30]
    assert model.size == 60


def test_a_url_names_the_commit_and_quotes_the_path() -> None:
    shard = LockedFile(path="UD Q4/a#1.gguf", size=1, sha256=SHA)
    expected = f"https://huggingface.co/unsloth/gemma-3-270m-it-GGUF/resolve/{COMMIT}/UD%20Q4/a%231.gguf"
    assert gemma().url(shard) == expected


def test_no_file_is_an_empty_lock(tmp_path: Path) -> None:
    assert lock.read(tmp_path / "herd.lock") == Lock()


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("version: 1\n", "", 1, "`version` is missing"),
        ("version: 1\n", "version: 2\n", 3, "version 2"),
        ("version: 1\n", "version: one\n", 3, "`version`"),
        (f"  commit: {COMMIT}\n", "", 5, "`models.0.commit` is missing"),
        (COMMIT, COMMIT[:12], 8, "40 hex digits"),
        (SHA, SHA.upper(), 13, "64 hex digits"),
        ("  revision: main\n", "  revison: main\n", 6, "`models.0.revison` is no key"),
        ("size: 291545280", "size: -1", 12, "greater than or equal to 0"),
        ("size: 291545280", "size: '291545280'", 12, "integer"),
        ("path: gemma-3-270m-it-Q8_0.gguf", "path: ../../etc/passwd", 11, "inside the repository"),
        ("path: gemma-3-270m-it-Q8_0.gguf", "path: /etc/passwd", 11, "inside the repository"),
        ("repo: unsloth/", "repo: ../", 5, "repository"),
        ("https://huggingface.co", "https://user:secret@hub.lan", 9, "plain URL"),
        ("https://huggingface.co", "https://hub.lan?token=secret", 9, "plain URL"),
        ("models:\n", "<<<<<<< HEAD\nmodels:\n", 5, "not YAML"),
        ("  revision: main\n", "  revision: main\n  revision: v2\n", 7, "twice"),
    ],
)
def test_a_broken_lock_says_where_and_what(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    file = tmp_path / "herd.lock"
    assert old in GOLDEN
    file.write_text(GOLDEN.replace(old, new, 1))
    with pytest.raises(LockError) as caught:
        lock.read(file)
    assert words in caught.value.message
    assert caught.value.place.file == file
    assert caught.value.place.line == line
    assert caught.value.help
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"- 1\n", b"\xff\xfe", b"models: [\n", b"!!python/object:os.x {}\n"])
def test_a_file_that_is_no_lock_at_all(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "herd.lock"
    file.write_bytes(content)
    with pytest.raises(LockError, match="herd lock"):
        lock.read(file)


def test_a_model_locked_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "herd.lock"
    body = GOLDEN[GOLDEN.index("- repo") :]
    file.write_text(GOLDEN + body)
    with pytest.raises(LockError, match="twice"):
        lock.read(file)
    with pytest.raises(ValidationError, match="twice"):
        Lock(models=(gemma(), gemma()))


def test_writing_again_what_is_there_touches_nothing(tmp_path: Path) -> None:
    file = tmp_path / "herd.lock"
    assert lock.write(file, Lock(models=(gemma(),)))
    before = file.stat()
    assert not lock.write(file, Lock(models=(gemma(),)))
    assert file.stat() == before
    assert [each.name for each in tmp_path.iterdir()] == ["herd.lock"]


def test_a_failed_write_leaves_the_old_lock_and_no_litter(tmp_path: Path) -> None:
    file = tmp_path / "herd.lock"
    file.mkdir()
    with pytest.raises(LockError, match="cannot write"):
        lock.write(file, Lock())
    with pytest.raises(LockError, match="cannot write"):
        lock.write(tmp_path / "absent" / "herd.lock", Lock())
    assert [each.name for each in tmp_path.iterdir()] == ["herd.lock"]


def test_a_linked_lock_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.lock").symlink_to(tmp_path / "real.lock")
    lock.write(tmp_path / "link.lock", Lock(models=(gemma(),)))
    assert (tmp_path / "link.lock").is_symlink()
    assert (tmp_path / "real.lock").read_text() == GOLDEN
