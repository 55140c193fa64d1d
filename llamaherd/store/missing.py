"""Which files of planned models a host's store lacks."""

from __future__ import annotations

from llamaherd.host.state import HostState
from llamaherd.plan import ModelFile, ModelPlan


def missing_files(model: ModelPlan, state: HostState) -> list[ModelFile]:
    """The files of a model that are not in the store, or have changed since they were verified."""
    verified, stored = state.verified.get(model.folder, {}), state.stored.get(model.folder, {})

    def whole(file: ModelFile) -> bool:
        size, written, sha256 = verified.get(file.name, (-1, 0.0, ""))
        size_now, written_now = stored.get(file.name, (-2, 0.0))
        return sha256 == file.sha256 and size == size_now and abs(written - written_now) < 1e-3

    return [file for file in model.files if not whole(file)]
