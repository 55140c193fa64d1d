"""A finished search of a law (`played.py`), kept as that of some rig: what others can learn from."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.tune_law import LawRig
from llamaherd.measure.tune.candidate import Purpose
from llamaherd.measure.tune.journal import Fingerprint, FingerprintGpu, Search, SearchJournal
from tests.tune.played import Played, search_on

GIB = 1 << 30
MODEL = "unsloth/Qwen3.6-35B-A3B-MTP-GGUF UD-Q4_K_XL"


def like(
    *gpus: tuple[str, int], header: str | None = "a" * 16, cores: int = 12, context: int = 32_768, model: str = MODEL
) -> Fingerprint:
    """What a rig with these GPUs, each a model and its GiB, has in common with others."""
    return Fingerprint(
        engine="llama.cpp",
        model=model,
        header=header,
        gpus=tuple(FingerprintGpu(model=name, memory_bytes=size * GIB) for name, size in gpus),
        cores=cores,
        context=context,
        parallel=1,
    )


@cache
def search_of(seed: int, purpose: Purpose) -> Search:
    """A real one, with its rounds."""
    with TemporaryDirectory() as folder:
        return search_on(Path(folder), Played(LawRig.drawn(seed)), 600, purpose)[1].journal.search


def keep(
    results: Path,
    likeness: Fingerprint | None,
    place: str = "duo/worker",
    seed: int = 1,
    *,
    purpose: Purpose = "turn",
    began: str = "2026-11-24T15:00:00Z",
    ended: bool = True,
) -> Search:
    """Keep such a search as that of `place`, a rig and its instance."""
    search = search_of(seed, purpose)
    rig, _, instance = place.partition("/")
    update = {"rig": rig, "instance": instance, "likeness": likeness, "began": began}
    with SearchJournal.begin(results, search.head.model_copy(update=update)) as journal:
        for each in search.trials:
            journal.add(each)
        if ended:
            assert search.found
            journal.add(search.found)
    return search
