"""The files of a model: read their headers on this machine or by HTTP ranges from a hub, and join them."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from llamaherd.diagnostics.findings import HubError
from llamaherd.gguf.header import Header, ParameterValue, TensorGroup, ranges
from llamaherd.gguf.parse import CHUNK, MAX_HEADER, GgufError, Meta, Parsed, TensorInfo, bytes_to_fetch, parse_header
from llamaherd.text.numbers import whole_number

if TYPE_CHECKING:
    from httpx2 import Client, Response


# Hyperparameters without the architecture in front (src/llama-arch.cpp:195-353 at b11434). Left out are those that
# change numbers and not sizes: epsilons, scales, soft caps, frequencies.
_KEPT = re.compile(
    r"((leading_dense|decoder)_)?block_count|nextn_predict_layers|adapters\.count|context_length"
    r"|(embedding|feed_forward|features)_length\w*|vocab_size|full_attention_interval|num_loops"
    r"|expert_\w*(count|length|func)|experts_per_group|moe_\w+|interleave_moe_layer_step|n_deepstack_layers"
    r"|attention\.(?!.*(epsilon|scale|clamp|bias|freq))[\w.]+"
    r"|(ssm|wkv|shortconv|convnext|posnet)\.(?!.*(epsilon|rms))\w+|token_shift_count|time_\w+_dim"
    r"|rope\.(dimension_\w+|scaling\.(type|factor|original_context_length))"
    r"|hyper_connection\.(count|low_rank)|ple\.(layers|ngram_size|heads_per_ngram|conv_kernel)|hash_layer_count"
    r"|pooling_type"
)
_TEMPLATE = "tokenizer.chat_template"
_TOKENIZER = ("model", "bos_token_id", "add_bos_token")
"""The keys of a tokenizer that must be the same for a draft model (llama.cpp b11434,
common/speculative.cpp:112-135).
"""
# Numbers of layers have four digits at most, so that ranges of them, edited by hand, stay small when spread.
_LAYER = re.compile(r"blk\.(0|[1-9]\d{0,3})\.(.+)")


def join_headers(shards: Sequence[Parsed]) -> Header:
    """Join the headers of a model's files, in order. Raise GgufError if they are not one model."""
    _refuse_mixture(shards)
    first = shards[0]
    if first.architecture is None:
        raise GgufError("it does not contain its architecture (general.architecture)")
    tensors = [tensor for shard in shards for tensor in shard.tensors]
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise GgufError("its shards hold a tensor of the same name twice")
    listed = first.number("split.tensors.count", len(tensors))
    if len(shards) > 1 and listed != len(tensors):
        raise GgufError(f"its shards hold {len(tensors)} tensors; the first one lists {listed}")
    name = first.metadata.get("general.name")
    try:
        return Header(
            architecture=first.architecture,
            name=_readable(name) if isinstance(name, str) else None,
            quant=first.quant,
            vocabulary=first.vocabulary or first.number(f"{first.architecture}.vocab_size", 0),
            parameters=_parameters(first.metadata, first.architecture),
            tensors=_groups(tensors),
        )
    except ValidationError as error:
        wrong = error.errors()[0]
        where = _readable(".".join(map(str, wrong["loc"])))
        raise GgufError(f"one of its values is not a text or number of a model: {where[:100]}") from None


def _refuse_mixture(shards: Sequence[Parsed]) -> None:
    """Check a set like llama.cpp (src/llama-model-loader.cpp:592-671 at b11434), and that all are of one set."""
    if len(shards) != shards[0].shards:
        raise GgufError(f"by its header it is one of {shards[0].shards} shards, and there are {len(shards)}")
    for index, shard in enumerate(shards):
        if shard.shard != index or shard.shards != len(shards):
            raise GgufError(
                f"file {index + 1} of {len(shards)} is shard {shard.shard + 1} of {shard.shards} by its header"
            )
        if shard.architecture not in (None, shards[0].architecture):
            raise GgufError(
                f"shard {index + 1} is of architecture {shard.architecture}, shard 1 of {shards[0].architecture}"
            )


def _parameters(metadata: Mapping[str, Meta], architecture: str) -> dict[str, ParameterValue]:
    kept: dict[str, ParameterValue] = {}
    for key, value in metadata.items():
        name = key.removeprefix(f"{architecture}.")
        if name != key and _KEPT.fullmatch(name) and (plain := _plain(value)) is not None:
            kept[name] = plain
    for name in _TOKENIZER:
        if (plain := _plain(metadata.get(f"tokenizer.ggml.{name}", ""))) not in (None, ""):
            kept[f"tokenizer_{name}"] = plain
    # Some models have one template for each purpose, by names behind the key.
    if any(key.startswith(_TEMPLATE) for key in metadata):
        kept["has_chat_template"] = True
    return dict(sorted(kept.items()))


def _plain(value: Meta) -> ParameterValue | None:
    """Return a value in the form of the lock; None if it is not a number, text or array of whole numbers."""
    if isinstance(value, tuple):
        whole = tuple(int(entry) for entry in value if isinstance(entry, int))
        return whole if len(whole) == len(value) else None
    if isinstance(value, str):
        return _readable(value)
    return value if not isinstance(value, float) or math.isfinite(value) else None


def _readable(text: str) -> str:
    """Return a text on one line that a terminal and a lock can show."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def _groups(tensors: Sequence[TensorInfo]) -> tuple[TensorGroup, ...]:
    """Group tensors: those outside of the layers first; by name, then by where a type or shape first appears."""
    layers: dict[tuple[str, str, tuple[int, ...]], list[int]] = {}
    outside: list[TensorGroup] = []
    for tensor in tensors:
        if match := _LAYER.fullmatch(tensor.name):
            layers.setdefault((match[2], tensor.type, tensor.shape), []).append(int(match[1]))
        else:
            outside.append(TensorGroup(name=tensor.name, type=tensor.type, shape=tensor.shape))
    inside = [
        TensorGroup(name=name, type=type_, shape=shape, layers=ranges(numbers))
        for (name, type_, shape), numbers in sorted(layers.items(), key=lambda item: (item[0][0], min(item[1])))
    ]
    return (*sorted(outside, key=lambda group: group.name), *inside)


FIRST = 8 << 20
"""Bytes of the first try: most headers are whole then, and each try begins anew."""

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf")


def read_header(path: Path) -> Parsed:
    """Return the header of one file, and check that the file is as large as its tensors need. Raise GgufError."""
    try:
        # Reading a pipe would wait, and a device has no end.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise GgufError("it is no file")
        with path.open("rb") as stream:
            size = path.stat().st_size
            data, wanted = bytearray(), FIRST
            while True:
                # No more than the file has: a header may claim to be as large as memory.
                data += stream.read(min(wanted, size) - len(data))
                header = parse_header(data)
                if isinstance(header, Parsed):
                    break
                if len(data) < wanted:
                    where = f"it ends inside its header, at byte {len(data)}"
                    raise GgufError(where if data else "the file is empty")
                wanted = bytes_to_fetch(len(data), header.needed)
    except OSError as error:
        raise GgufError(f"{path} cannot be read: {error.strerror or type(error).__name__}") from None
    except GgufError as error:
        raise GgufError(f"{path}: {error}") from None
    if size < header.size:
        raise GgufError(f"{path} has {size} bytes of {header.size}: it was not copied or fetched to its end")
    return header


def read_headers(path: Path) -> tuple[Parsed, ...]:
    """Return the headers of all shards of a model; `path` is its only file, or the first shard. Raise GgufError."""
    first = read_header(path)
    if first.shard != 0:
        raise GgufError(f"{path} is shard {first.shard + 1} of {first.shards}: name the first one, as for an engine")
    return (first, *(read_header(sibling) for sibling in _siblings(path, first.shards)))


def _siblings(path: Path, shards: int) -> list[Path]:
    """Return the other shards, by the names that engines expect (`llama_split_path`, src/llama.cpp:552 at b11434)."""
    if shards == 1:
        return []
    name = _SHARD.fullmatch(path.name)
    if name is None or (int(name["number"]), int(name["total"])) != (1, shards):
        raise GgufError(
            f"{path} is shard 1 of {shards} by its header, so its name must end in -00001-of-{shards:05}.gguf"
        )
    paths = [path.with_name(f"{name['stem']}-{number:05}-of-{name['total']}.gguf") for number in range(2, shards + 1)]
    absent = [sibling.name for sibling in paths if not sibling.is_file()]
    if absent:
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        raise GgufError(f"{path.parent} lacks {len(absent)} of {shards} shards: {', '.join(absent[:3])}{more}")
    return paths


_CONTENT_RANGE = re.compile(r"bytes (?P<first>\d{1,19})-\d+/(?P<size>\d{1,19}|\*)", re.ASCII)
_MAX_REDIRECTS = 5  # the public hub needs one, to the storage
_AGAIN = "try again; check the network and any proxy"
_RELOCK = "run `herd lock` again; if that does not help, the upload is broken: lock an earlier revision"


@dataclass(frozen=True)
class HubPatience:
    """Time limits for a hub, in seconds, and the number of attempts in a row that may bring nothing.

    `pause` is before the second attempt, and doubles; `longest` is the most that the hub may request by Retry-After;
    `silence` may pass without a byte; `total` is for everything.
    """

    attempts: int = 5
    pause: float = 1.0
    longest: float = 60.0
    silence: float = 30.0
    total: float = 600.0


DEFAULT_PATIENCE = HubPatience()


def fetch_header(
    url: str, token: str | None, size: int, patience: HubPatience = DEFAULT_PATIENCE
) -> tuple[Parsed, bytes]:
    """Return the header of a file of `size` bytes, parsed and as bytes. Raise HubError.

    The fetch reads at most one chunk (`reach`) more than the header. `token` is sent to the host of `url` and no other.
    """
    from llamaherd.bounded import BoundedClient, Bounds

    if not size:
        raise HubError(f"{url} is an empty file", _RELOCK)
    held = _Held(url, size)
    deadline = time.monotonic() + patience.total
    failures = 0
    bounds = Bounds(MAX_HEADER + bytes_to_fetch(MAX_HEADER, 0), patience.silence, patience.total)
    with _sentences(url), BoundedClient(bounds, _MAX_REDIRECTS) as client:
        while held.header is None:
            before, trouble = len(held.data), None
            try:
                _ask(client, held, token, deadline)
            except _TroubleError as error:
                trouble = error
            failures = 0 if len(held.data) > before else failures + 1
            if trouble:
                wait = patience.pause * 2 ** max(failures - 1, 0) if trouble.wait is None else trouble.wait
                if failures >= patience.attempts or wait > patience.longest or time.monotonic() + wait > deadline:
                    raise trouble.error
                time.sleep(wait)
        return held.header, bytes(memoryview(held.data)[: held.header.data_offset])


class _TroubleError(Exception):
    """A failure that may be over soon: the error to end with if it is not, and the seconds that the hub requests."""

    def __init__(self, error: HubError, wait: float | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.wait = wait


@dataclass
class _Held:
    """The bytes that have arrived, and the position that is needed next."""

    url: str
    size: int
    data: bytearray = field(default_factory=bytearray)
    wanted: int = 0
    etag: str | None = None
    header: Parsed | None = None

    def __post_init__(self) -> None:
        self.wanted = min(CHUNK, self.size)

    def accept(self, response: Response) -> None:
        """Check that the body continues where `data` ends, in the same file; else drop `data`, or raise HubError."""
        if response.status_code == 206:
            content_range = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if content_range is None or whole_number(content_range["first"]) != len(self.data):
                raise HubError(f"{self.url} returned another part than was requested", "check any proxy")
            size = content_range["size"]
        else:
            size = response.headers.get("Content-Length", "*")
        if size != "*" and whole_number(size) != self.size:
            raise HubError(f"{self.url} has {size} bytes, and not the expected {self.size}", _RELOCK)
        etag = response.headers.get("ETag")
        if self.etag and etag and etag != self.etag:
            raise HubError(f"{self.url} was changed while its header was read", _RELOCK)
        # A weak one does not promise the same bytes and may not be sent back (RFC 9110, 13.1.5).
        if etag and not etag.startswith("W/"):
            self.etag = etag
        if response.status_code != 206:
            # The whole file from its start: such a server supports no ranges.
            self.data.clear()

    def add(self, piece: bytes) -> None:
        """Add the bytes that arrived, and parse the header once there are enough. Raise HubError."""
        self.data += piece
        if len(self.data) < self.wanted:
            return
        try:
            found = parse_header(self.data)
        except GgufError as error:
            raise HubError(f"{self.url} cannot be used: {error}", "lock another file, or an earlier revision") from None
        if isinstance(found, Parsed) and found.size <= self.size:
            self.header = found
            return
        needed = found.size if isinstance(found, Parsed) else found.needed
        if needed > self.size or len(self.data) >= self.size:
            raise HubError(f"{self.url} ends too early: its header needs more than {self.size} bytes", _RELOCK)
        self.wanted = min(self.size, bytes_to_fetch(len(self.data), needed))


def _ask(client: Client, held: _Held, token: str | None, deadline: float) -> None:
    """Send one request for the bytes that are needed next. Raise HubError, or _TroubleError if it may be repeated."""
    import httpx2

    headers = {"Range": f"bytes={len(held.data)}-{held.wanted - 1}"}
    if held.etag:
        headers["If-Range"] = held.etag
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        with client.stream("GET", held.url, headers=headers) as response:
            if response.status_code not in (200, 206):
                raise _refusal(held, response, token)
            held.accept(response)
            before = len(held.data)
            for piece in response.iter_raw():
                held.add(piece)
                if held.header:
                    return
                if time.monotonic() > deadline:
                    raise HubError(f"{held.url} is sent too slowly to read its header", _AGAIN)
            # A body without a length may have been cut without a sign of it.
            if response.status_code == 200 or len(held.data) == before:
                raise _TroubleError(HubError(f"{held.url} returned fewer bytes than it has", _AGAIN))
    except (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError):
        raise
    except httpx2.TimeoutException:
        raise _TroubleError(HubError(f"{held.url} did not respond in time", _AGAIN)) from None
    except httpx2.TransportError as error:
        # Errors of the operating system about a connection are safe to repeat, and worth it.
        reason = str(error) if isinstance(error, httpx2.ConnectError) else type(error).__name__
        raise _TroubleError(HubError(f"the connection for {held.url} failed ({reason})", _AGAIN)) from None


def _refusal(held: _Held, response: Response, token: str | None) -> Exception:
    """Return the error for a status other than success: HubError, or _TroubleError if it may be over soon."""
    status, url = response.status_code, held.url
    if status == 429:
        wait = _retry_after(response)
        when = "in some minutes" if wait is None else f"in {wait:.0f} seconds"
        return _TroubleError(
            HubError(
                f"{url}: the hub has received too many requests (429)", f"try again {when}; a token raises the limit"
            ),
            wait,
        )
    if status == 408 or status >= 500:
        return _TroubleError(
            HubError(f"{url}: the hub has a failure ({status})", "try again later"), _retry_after(response)
        )
    if status in (401, 403):
        if token:
            help_ = "check that the token in use may read it, and that its account has accepted the owner's terms"
        else:
            help_ = "give a token that may read it as HF_TOKEN or by `hf auth login`"
        return HubError(f"{url} requires access ({status})", help_)
    if status in (404, 410):
        return HubError(f"{url} does not exist ({status})", _RELOCK)
    if status == 416:
        return HubError(f"{url} has fewer than the expected {held.size} bytes", _RELOCK)
    return HubError(f"{url} returned status {status}", "check HF_ENDPOINT and any proxy in between")


def _retry_after(response: Response) -> float | None:
    """Return the seconds that the hub requests, as a number or as a date."""
    text = response.headers.get("Retry-After", "")
    if (seconds := whole_number(text)) is not None:
        return float(seconds)
    try:
        then = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (then - datetime.now(UTC)).total_seconds()) if then.tzinfo else None


@contextmanager
def _sentences(url: str) -> Iterator[None]:
    """Turn failures that no repetition fixes into HubError; the client's own texts may quote the token."""
    import httpx2

    from llamaherd.bounded import ExcessError

    try:
        yield
    except ExcessError as error:
        raise HubError(f"{url}: the hub {error}", "check HF_ENDPOINT and any proxy in between; try again") from None
    except (httpx2.LocalProtocolError, UnicodeError):
        raise HubError(
            "the hub's token cannot be sent: it holds odd characters",
            "check HF_TOKEN, or log in anew by `hf auth login`; unset it for public models",
        ) from None
    except (httpx2.TooManyRedirects, httpx2.UnsupportedProtocol):
        raise HubError(f"{url} leads nowhere", "check HF_ENDPOINT and any proxy in between") from None
    except httpx2.InvalidURL:
        raise HubError("the model's URL cannot be opened", "check HF_ENDPOINT, and run `herd lock` again") from None
