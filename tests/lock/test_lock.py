"""The lock file: what is written is what is read, and a broken one says where and what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from llamaherd import lock
from llamaherd.gguf.header import BLOCKS, Header, TensorGroup, ranges
from llamaherd.inventory.schema import Model
from llamaherd.lock import (
    Lock,
    LockedArchive,
    LockedFile,
    LockedImage,
    LockedLocal,
    LockedModel,
    LockedRef,
    LockError,
    contradiction,
)
from tests.support.sample import ALL

SHA = "ab" * 32
COMMIT = "cd" * 20
GOLDEN = f"""\
{lock.HEADER}version: 2
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
_HEADER = """\
  header:
    architecture: gemma3
    quant: Q8_0
    vocabulary: 32
    parameters:
      block_count: 4
      attention.head_count_kv: [1, 1, 0, 1]
      rope.scaling.type: yarn
    tensors:
    - {name: token_embd.weight, type: Q8_0, shape: [64, 32]}
    - {name: ffn_up.weight, type: Q8_0, shape: [32, 64], layers: '0-1,3'}
    - {name: attn_norm.weight, type: F32, shape: [64], layers: '0-1,3'}
"""
WHOLE = f"""\
{lock.HEADER}version: 2
engines:
- git: https://github.com/ggml-org/llama.cpp
  ref: b11434
  commit: {COMMIT}
images:
- image: vllm/vllm-openai:v1
  digest: sha256:{SHA}
models:
- repo: unsloth/gemma-3-270m-it-GGUF
  revision: main
  files: '*Q8_0*'
  commit: {COMMIT}
  endpoint: https://huggingface.co
  shards:
  - path: gemma-3-270m-it-Q8_0.gguf
    size: 13568
    sha256: {SHA}
    data_offset: 4096
{_HEADER}files:
- file: models/tiny.gguf
  sha256: {SHA}
  size: 13568
  data_offset: 4096
{_HEADER}archives:
- archive: https://mirror.lan/llama.tar.gz
  sha256: {SHA}
  size: 30000000
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


def tiny() -> Header:
    return Header(
        architecture="gemma3",
        quant="Q8_0",
        vocabulary=32,
        parameters={"block_count": 4, "attention.head_count_kv": (1, 1, 0, 1), "rope.scaling.type": "yarn"},
        tensors=(
            TensorGroup(name="token_embd.weight", type="Q8_0", shape=(64, 32)),
            TensorGroup(name="ffn_up.weight", type="Q8_0", shape=(32, 64), layers="0-1,3"),
            TensorGroup(name="attn_norm.weight", type="F32", shape=(64,), layers="0-1,3"),
        ),
    )


def whole() -> Lock:
    """One entry of each kind."""
    model = gemma()
    shard = model.shards[0].model_copy(update={"size": 4096 + weights(tiny()), "data_offset": 4096})
    return Lock(
        engines=(LockedRef(git="https://github.com/ggml-org/llama.cpp", ref="b11434", commit=COMMIT),),
        images=(LockedImage(image="vllm/vllm-openai:v1", digest=f"sha256:{SHA}"),),
        models=(model.model_copy(update={"shards": (shard,), "header": tiny()}),),
        files=(local("models/tiny.gguf", SHA, tiny()),),
        archives=(LockedArchive(archive="https://mirror.lan/llama.tar.gz", sha256=SHA, size=30_000_000),),
    )


def hexes(digits: int) -> st.SearchStrategy[str]:
    # Some all-digit hashes among them: YAML takes those for numbers unless they are quoted.
    return st.text("0123456789abcdef", min_size=digits, max_size=digits) | st.text(
        "0123456789", min_size=digits, max_size=digits
    )


LINE = st.text(st.characters(exclude_categories=["Cc", "Cf", "Cn", "Cs", "Zl", "Zp"]), min_size=1)
NAME = st.text(
    st.characters(exclude_categories=["Cc", "Cf", "Cn", "Cs", "Zl", "Zp"], exclude_characters="/\\"), min_size=1
).filter(lambda part: part not in (".", "..") and not part.startswith("-"))
WORD = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
URL = st.sampled_from(["https://huggingface.co", "http://172.17.0.1:8080", "https://cache.lan/hf"])


@st.composite
def groups(draw: st.DrawFn) -> TensorGroup:
    kind = draw(st.sampled_from(sorted(BLOCKS)))
    axes = draw(st.lists(st.integers(1, 4096), max_size=3))
    layers = draw(st.none() | st.lists(st.integers(0, 200), min_size=1, unique=True).map(ranges))
    shape = (BLOCKS[kind][1] * draw(st.integers(1, 32)), *axes)
    return TensorGroup(name=draw(LINE), type=kind, shape=shape, layers=layers)


def headers() -> st.SearchStrategy[Header]:
    number = st.integers(-(2**63), 2**64) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans()
    return st.builds(
        Header,
        architecture=WORD,
        name=st.none() | LINE,
        quant=st.none() | WORD,
        vocabulary=st.integers(0, 2**32),
        parameters=st.dictionaries(LINE, number | LINE | st.lists(st.integers(0, 2**32), max_size=70).map(tuple)),
        tensors=st.lists(groups(), max_size=5).map(tuple),
    )


def weights(header: Header) -> int:
    return sum(tensor.bytes for tensor in header.each)


@st.composite
def models(draw: st.DrawFn) -> LockedModel:
    header = draw(st.none() | headers())
    paths = draw(st.lists(st.lists(NAME, min_size=1, max_size=3).map("/".join), min_size=1, max_size=4, unique=True))
    shards = [
        LockedFile(path=path, size=size, sha256=draw(hexes(64)), data_offset=size if header else None)
        for path in paths
        if (size := draw(st.integers(min_value=0, max_value=2**63))) is not None
    ]
    if header:
        shards[0] = shards[0].model_copy(update={"size": shards[0].size + weights(header)})
    return LockedModel(
        repo=draw(WORD | st.builds(lambda owner, repo: f"{owner}/{repo}", WORD, WORD)),
        revision=draw(LINE),
        files=draw(LINE),
        commit=draw(hexes(40)),
        endpoint=draw(URL),
        shards=tuple(shards),
        header=header,
    )


def local(file: str | None, sha256: str, header: Header) -> LockedLocal:
    return LockedLocal(file=file, sha256=sha256, size=4096 + weights(header), data_offset=4096, header=header)


def locks() -> st.SearchStrategy[Lock]:
    ref = st.builds(LockedRef, git=URL, ref=LINE, commit=hexes(40))
    image = st.builds(LockedImage, image=WORD, digest=hexes(64).map("sha256:{}".format))
    return st.builds(
        Lock,
        engines=st.lists(ref, max_size=3, unique_by=lambda one: f"{one.git} {one.ref}").map(tuple),
        images=st.lists(image, max_size=3, unique_by=lambda one: one.image).map(tuple),
        models=st.lists(models(), max_size=3, unique_by=lambda one: f"{one.repo} {one.revision} {one.files}").map(
            tuple
        ),
        files=st.lists(
            st.builds(local, st.none() | LINE, hexes(64), headers()),
            max_size=2,
            unique_by=lambda one: one.file or one.sha256,
        ).map(tuple),
        archives=st.lists(
            st.builds(LockedArchive, archive=LINE, sha256=hexes(64), size=st.integers(0, 1 << 40)),
            max_size=2,
            unique_by=lambda one: one.archive,
        ).map(tuple),
    )


# Without a deadline: each example waits for the disk, which may be busy with a compile.
@settings(max_examples=50 if ALL else 15, deadline=None)
@given(locks())
def test_what_is_written_is_what_is_read(tmp_path_factory: pytest.TempPathFactory, value: Lock) -> None:
    file = tmp_path_factory.mktemp("lock") / "herd.lock"
    lock.write_lock(file, value)
    assert lock.read_lock_file(file) == value
    assert lock.dumps(lock.read_lock_file(file)) == lock.dumps(value)


@settings(max_examples=50 if ALL else 15, deadline=None)
@given(locks())
def test_the_order_of_declaration_does_not_matter(value: Lock) -> None:
    sections = ("engines", "images", "models", "files", "archives")
    turned = Lock.model_validate({name: getattr(value, name)[::-1] for name in sections})
    assert lock.dumps(turned) == lock.dumps(value)


def test_the_text_is_one_that_people_can_review() -> None:
    assert lock.dumps(Lock(models=(gemma(),))) == GOLDEN
    assert lock.dumps(whole()) == WHOLE


def test_names_are_looked_up_as_they_are_declared() -> None:
    value = whole()
    assert value.commit("https://github.com/ggml-org/llama.cpp", "b11434") == COMMIT
    assert value.commit("https://github.com/ggml-org/llama.cpp", "master") is None
    assert value.digest("vllm/vllm-openai:v1") == f"sha256:{SHA}"
    assert value.digest("vllm/vllm-openai") is None
    hub = Model(hf="unsloth/gemma-3-270m-it-GGUF", quant="Q8_0", files="*Q8_0*")
    assert value.header(hub) == value.models[0].header == tiny()
    assert value.header(hub.model_copy(update={"revision": "v2"})) is None
    assert value.header(Model(file=Path("/m.gguf"), sha256=SHA)) == tiny()
    assert value.header(Model(file=Path("/m.gguf"), sha256=SHA[::-1])) is None


def test_a_lock_of_version_1_is_read_and_written_as_version_2(tmp_path: Path) -> None:
    file = tmp_path / "herd.lock"
    file.write_text(GOLDEN.replace("version: 2", "version: 1"))
    assert lock.read_lock_file(file) == Lock(models=(gemma(),))
    assert lock.write_lock(file, lock.read_lock_file(file))
    assert file.read_text() == GOLDEN


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("size: 13568", "size: 13567", 18, "13567 bytes in all, and its header and tensors alone take 13568"),
        ("size: 13568", "size: 135680", 18, "take no more than"),
        ("type: Q8_0", "type: F32", 18, "alone take"),
        ("layers: '0-1,3'", "layers: 0-39", 18, "alone take"),
        ("size: 13568\n  data", "size: 10240\n  data", 37, "models/tiny.gguf"),
    ],
)
def test_sizes_that_cannot_be_are_refused(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    file = tmp_path / "herd.lock"
    assert old in WHOLE
    file.write_text(WHOLE.replace(old, new, 1))
    with pytest.raises(LockError) as caught:
        lock.read_lock_file(file)
    assert words in caught.value.message
    assert (caught.value.rule.code, caught.value.place.line) == ("LH032", line)


def test_sizes_are_held_against_what_is_known_of_them() -> None:
    shard = LockedFile(path="a.gguf", size=13_568, sha256=SHA)
    assert contradiction((shard,), tiny()) is None
    assert contradiction((shard.model_copy(update={"size": 9471}),), tiny()) is not None
    # Without knowing where the tensors begin, there is no telling how long the header is.
    assert contradiction((shard.model_copy(update={"size": 10**9}),), tiny()) is None
    assert contradiction((shard.model_copy(update={"size": 10**9, "data_offset": 4096}),), tiny()) is not None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("https://github.com", "https://tom:hunter2@github.com", "without a password"),
        ("https://github.com", "https://hunter2@github.com", "without a password"),
        ("https://github.com/", "ssh://tom:hunter2@github.com/", "without a password"),
        ("https://github.com/", "--upload-pack=/", "git URL"),
        ("image: vllm/vllm-openai:v1", "image: vllm/vllm-openai@sha256:ab", "by its tag"),
        ("digest: sha256:", "digest: ", "`images.0.digest`: must be a digest"),
        (f"commit: {COMMIT}", "commit: master", "`engines.0.commit`: must be a full commit"),
        ("shape: [64, 32]", "shape: []", "`models.0.header.tensors.0.shape`"),
        ("layers: '0-1,3'", "layers: all", "`models.0.header.tensors.1.layers`"),
        ("type: Q8_0", "type: Q9_0", "not a known type of tensors"),
        ("    vocabulary: 32", "    vocabulary: many", "`models.0.header.vocabulary`"),
        ("    vocabulary: 32", "    tokens: 32", "`models.0.header.tokens` is not a key"),
    ],
)
def test_broken_entries_say_what_is_wrong(tmp_path: Path, old: str, new: str, words: str) -> None:
    file = tmp_path / "herd.lock"
    assert old in WHOLE
    file.write_text(WHOLE.replace(old, new, 1))
    with pytest.raises(LockError) as caught:
        lock.read_lock_file(file)
    assert words in caught.value.message
    assert caught.value.rule.code == "LH030"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["git@github.com:a/b", "ssh://git@github.com/a/b", "file:///srv/git/x", "/srv/x.git"])
def test_git_urls_without_a_secret_are_fine(url: str) -> None:
    assert LockedRef(git=url, ref="main", commit=COMMIT).git == url


def test_find_wants_all_three_names_exactly() -> None:
    value = Lock(models=(gemma("v2"), gemma()))
    assert value.find("unsloth/gemma-3-270m-it-GGUF", "main", "*Q8_0*") == gemma()
    assert value.find("unsloth/gemma-3-270m-it-GGUF", "v3", "*Q8_0*") is None
    assert value.find("unsloth/gemma-3-270m-it-GGUF", "main", "*") is None


def test_a_projector_is_found_with_the_model_that_declares_it(tmp_path: Path) -> None:
    projector = LockedFile(path="mmproj-F16.gguf", size=5, sha256=SHA)
    seeing = gemma().model_copy(update={"mmproj": "mmproj*", "projector": projector})
    value = Lock(models=(seeing, gemma()))
    lock.write_lock(tmp_path / "herd.lock", value)
    assert lock.read_lock_file(tmp_path / "herd.lock") == value
    declared = Model(hf=gemma().repo, files="*Q8_0*", mmproj="mmproj*")
    assert (value.model(declared), value.projector_size(declared)) == (seeing, 5)
    plain = declared.model_copy(update={"mmproj": None})
    assert (value.model(plain), value.projector_size(plain)) == (gemma(), None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mmproj": "mmproj*"}, "`mmproj` and `projector` go together"),
        ({"projector": LockedFile(path="p.gguf", size=5, sha256=SHA)}, "`mmproj` and `projector` go together"),
        ({"mmproj": "*", "projector": gemma().shards[0]}, "is both a shard and the projector"),
    ],
)
def test_half_a_projector_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        LockedModel.model_validate(gemma().model_dump() | changes)


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
    assert lock.read_lock_file(tmp_path / "herd.lock") == Lock()


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("version: 2\n", "", 0, "`version` is missing"),
        ("version: 2\n", "version: 3\n", 3, "version 3"),
        ("version: 2\n", "version: one\n", 3, "`version`"),
        (f"  commit: {COMMIT}\n", "", 5, "`models.0.commit` is missing"),
        (COMMIT, COMMIT[:12], 8, "40 hex digits"),
        (SHA, SHA.upper(), 13, "64 hex digits"),
        ("  revision: main\n", "  revison: main\n", 6, "`models.0.revison` is not a key"),
        ("size: 291545280", "size: -1", 12, "greater than or equal to 0"),
        ("size: 291545280", "size: '291545280'", 12, "integer"),
        ("path: gemma-3-270m-it-Q8_0.gguf", "path: ../../etc/passwd", 11, "inside the repository"),
        ("path: gemma-3-270m-it-Q8_0.gguf", "path: /etc/passwd", 11, "inside the repository"),
        ("repo: unsloth/", "repo: ../", 5, "repository"),
        ("https://huggingface.co", "https://user:secret@hub.lan", 9, "plain URL"),
        ("https://huggingface.co", "https://hub.lan?token=secret", 9, "plain URL"),
        ("models:\n", "<<<<<<< HEAD\nmodels:\n", 4, "a merge is not finished"),
        ("  revision: main\n", "  revision: main\n  revision: v2\n", 7, "twice"),
    ],
)
def test_a_broken_lock_says_where_and_what(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    file = tmp_path / "herd.lock"
    assert old in GOLDEN
    file.write_text(GOLDEN.replace(old, new, 1))
    with pytest.raises(LockError) as caught:
        lock.read_lock_file(file)
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
        lock.read_lock_file(file)


def test_a_model_locked_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "herd.lock"
    body = GOLDEN[GOLDEN.index("- repo") :]
    file.write_text(GOLDEN + body)
    with pytest.raises(LockError, match="twice"):
        lock.read_lock_file(file)
    with pytest.raises(ValidationError, match="twice"):
        Lock(models=(gemma(), gemma()))


def test_writing_again_what_is_there_touches_nothing(tmp_path: Path) -> None:
    file = tmp_path / "herd.lock"
    assert lock.write_lock(file, Lock(models=(gemma(),)))
    # Long ago: a write, however soon, would show in the time.
    os.utime(file, (1, 1))
    before = file.stat()
    assert not lock.write_lock(file, Lock(models=(gemma(),)))
    after = file.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )
    assert [each.name for each in tmp_path.iterdir()] == ["herd.lock"]


def test_a_failed_write_leaves_the_old_lock_and_no_litter(tmp_path: Path) -> None:
    file = tmp_path / "herd.lock"
    file.mkdir()
    with pytest.raises(LockError, match="cannot write"):
        lock.write_lock(file, Lock())
    with pytest.raises(LockError, match="cannot write"):
        lock.write_lock(tmp_path / "absent" / "herd.lock", Lock())
    assert [each.name for each in tmp_path.iterdir()] == ["herd.lock"]


def test_a_linked_lock_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.lock").symlink_to(tmp_path / "real.lock")
    lock.write_lock(tmp_path / "link.lock", Lock(models=(gemma(),)))
    assert (tmp_path / "link.lock").is_symlink()
    assert (tmp_path / "real.lock").read_text() == GOLDEN
