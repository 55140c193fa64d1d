"""Gemma once more, every tensor in fewer bits."""

from __future__ import annotations

import hashlib

from box import downloads
from box.cli import CACHE
from tests.box.bench import Declared
from tests.support.requantized import requantized


def coarse() -> Declared:
    """A model of a rig, whose file is written unless it is there."""
    path = requantized(CACHE / downloads.GEMMA.file, CACHE / "gemma-3-270m-q4_0.gguf")
    return {"file": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
