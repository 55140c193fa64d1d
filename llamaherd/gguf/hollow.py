"""Files that are a header and a hole: an engine sizes them as if they held the weights."""

from __future__ import annotations

from pathlib import Path

from llamaherd.gguf.parsed import GgufError


def write_hollow(path: Path, header: bytes, size: int) -> None:
    """Write a file that begins with `header` and is `size` bytes long, of which the disk holds the header alone.

    `header` may reach into the tensors' data. llama-fit-params never reads that, but refuses a file that ends before
    it (common/fit.cpp:56-58 at b11434). Raises GgufError where the file cannot be written.
    """
    try:
        with path.open("wb") as stream:
            stream.write(header[:size])
            stream.truncate(size)
    except OSError as error:
        raise GgufError(
            f"{path} cannot be written with a hole of {size} bytes: {error.strerror or type(error).__name__}"
        ) from None
