"""Models: what is in the store is whole, proved by its hash, and not fetched again."""

from __future__ import annotations

from urllib.parse import quote

from llamaherd.converge.steps import Send, Step
from llamaherd.observe import Seen
from llamaherd.planned import ModelFile, ModelPlan
from llamaherd.render import render


def missing_files(model: ModelPlan, seen: Seen) -> list[ModelFile]:
    """The files of a model that are not in the store, or have changed since they were verified."""
    verified, stored = seen.verified.get(model.folder, {}), seen.stored.get(model.folder, {})

    def whole(file: ModelFile) -> bool:
        size, written, sha256 = verified.get(file.name, (-1, 0.0, ""))
        size_now, written_now = stored.get(file.name, (-2, 0.0))
        return sha256 == file.sha256 and size == size_now and abs(written - written_now) < 1e-3

    return [file for file in model.files if not whole(file)]


def model_steps(model: ModelPlan, seen: Seen, token: str | None) -> list[Send | Step]:
    """Bring what is missing of a model. `token` is the hub's, where it asks for one."""
    missing = missing_files(model, seen)
    if not missing:
        return []
    script = render(
        "steps/fetch-model.sh.j2",
        name=model.name,
        folder=model.folder,
        url=model.url,
        files=[
            {"name": f.name, "sha256": f.sha256, "size": f.size, "url": f"{model.url}/{quote(f.name)}"}
            for f in model.files
        ],
        curl_config=f'header = "Authorization: Bearer {token}"' if token else "# no token",
    )
    sends: list[Send | Step] = [Send(model.local, file.sha256) for file in missing if model.local]
    return [*sends, Step(script, f"bringing model {model.name}")]
