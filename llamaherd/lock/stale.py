"""What an inventory declares and its lock lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.inventory.schema import Model, Rig
from llamaherd.lock.entries import Lock

PlaceOf = Callable[[tuple[str | int, ...]], Place]
"""Where the value at a path of a rig stands."""


def stale(rig: Rig, lock: Lock, place: PlaceOf, command: str = "herd lock") -> Iterator[Finding]:
    """What the lock lacks for a rig: errors (LH031), or a warning where only sizing lacks something (LH033)."""
    help_ = f"run `{command}` and commit the lock"
    for name, engine in rig.engines.items():
        source = engine.source
        if source and source.git and source.ref and lock.commit(source.git, source.ref) is None:
            path: tuple[str, ...] = ("engines", name, "ref") if engine.ref else ("engines", name, "source", "ref")
            message = f"rig `{rig.rig}`: engine `{name}` ({source.git} at {source.ref}) is not in the lock"
            yield Finding("LH031", place(path), message, help_)
        if engine.image and not engine.digest and lock.digest(engine.image) is None:
            message = f"rig `{rig.rig}`: the image of engine `{name}` ({engine.image}) is not in the lock"
            yield Finding("LH031", place(("engines", name, "image")), message, help_)
    for name, model in rig.models.items():
        if model.hf is not None:
            yield from _stale_model(rig, name, model, lock, place, help_)


def _stale_model(rig: Rig, name: str, model: Model, lock: Lock, place: PlaceOf, help_: str) -> Iterator[Finding]:
    locked = lock.model(model)
    where = place(("models", name, "hf"))
    if locked is None:
        files = f"{model.files} with {model.mmproj}" if model.mmproj else model.files
        message = f"model `{name}` ({model.hf} at {model.revision}, {files}) is not in the lock"
        yield Finding("LH031", where, f"rig `{rig.rig}`: {message}", help_)
    elif locked.header is None and locked.is_gguf:
        message = f"rig `{rig.rig}`: model `{name}` is locked without its header, so its memory cannot be worked out"
        yield Finding("LH033", where, message, help_, "warning")
