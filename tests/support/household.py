"""The household of the examples in a folder, and a lock of it that is made up: no hub and no registry is asked."""

from __future__ import annotations

import shutil
from pathlib import Path

from llamaherd.lock import Lock, LockedFile, LockedImage, LockedModel, LockedRef
from llamaherd.pipeline.fleet_files import Survey
from tests.support.rigs import COMMIT, DIGEST, ROOT, SHA


def household(folder: Path) -> Path:
    """Copy the example to `folder`, which it returns."""
    shutil.copytree(ROOT / "inventory/examples/household", folder)
    return folder


def made_up_lock(surveyed: Survey) -> Lock:
    """Return a lock for its engine, its models and the image of its chat page."""
    assert surveyed.own
    assert surveyed.own.gateway
    assert surveyed.own.gateway.chat
    models = [model for rig in surveyed.around.values() for model in rig.models.values()]
    return Lock(
        engines=(LockedRef(git="https://github.com/ggml-org/llama.cpp", ref="b11434", commit=COMMIT),),
        images=(LockedImage(image=surveyed.own.gateway.chat.image, digest=f"sha256:{DIGEST}"),),
        models=tuple(
            LockedModel(
                repo=str(model.hf),
                revision=model.revision,
                files=str(model.files),
                commit=COMMIT,
                endpoint="https://hub.example",
                shards=(LockedFile(path="model.gguf", size=1, sha256=SHA),),
            )
            for model in models
        ),
    )
